"""Codes of whether concerns were answered: the coder's material, and the findings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from folkmoot import Run
from folkmoot.kit import coding
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall.findings import compute_findings
from tests.shown import render_run_text

from .hall_script import (
    CallKey,
    answer_in_one_session,
    answer_plainly,
    make_model,
    run_hall,
    small_hall,
)

# Where a prompt leaves what the hall has heard and comes to what is asked now.
OWN_PART = re.compile(r"^(?:Round \d|The discussion is over|The meeting is over)", re.MULTILINE)
CONCERN_ANSWER = "A04, the lift will be built in the first year."


def answer_concern(key: CallKey, request: ModelRequest) -> Any:
    """Return answers in which A04's concern is answered at level 2-1 and no concern at level 4."""
    if key[0] == "concern":
        text = request.messages[-1].content
        codes = [{"code": "answered", "quote": "the lift will be built"}] * (CONCERN_ANSWER in text)
        wrong = {"code": "understood", "quote": "nobody has said this"}
        return {"codes": [*codes, wrong] if "A05" in request.messages[0].content else codes}
    said = answer_plainly(key, request)
    if key == ("speak", "A04", 1):
        said |= {"new_points": ["Without a lift I cannot leave the house."]}
    if key[:2] == ("speak", "A05"):
        said |= {"full_statement": ""}
    if key == ("speak", "A01", 2) and request.model == "one":
        said |= {"full_statement": CONCERN_ANSWER}
    return said


pytestmark = pytest.mark.xdist_group("heard in a hall")  # one run is enough


@pytest.fixture(scope="module")
def hall_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ScriptedProvider]:
    folder = tmp_path_factory.mktemp("heard")
    settings = small_hall(folder) | {"coding": {"sample": 2}, "sets": 2, "levels": ["2-1", "4"]}
    settings |= {"level_settings": {"2-1": {"models": "one"}}, "models": {"coder": "reader"}}
    model = make_model(answer_concern, keep=True)
    return run_hall(folder, settings, model), model


def test_the_coder_reads_what_others_said_after_a_concern_and_not_the_level(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    texts = hall_run[0].table("texts")
    row = texts.filter(text_id="set01_lv2-1/A04").row(0, named=True)
    about = json.loads(row["about"])
    assert about["concern"] == "Without a lift I cannot leave the house."
    assert CONCERN_ANSWER in row["text"] and "A02 speaks in round 2." in row["text"]
    assert "in round 1" not in row["text"] and "A04 speaks" not in row["text"]
    assert "Proposal V1: Do it?" in row["text"] and "The final text: We agree." in row["text"]
    moderated = texts.filter(text_id="set01_lv4/A04")["text"].item()
    assert "The chair: The moderator sums up round 1." in moderated
    for address, request in hall_run[1].seen:
        if address.startswith("coding/"):
            sent = "\n".join(m.content for m in request.messages)
            assert request.model == "reader"
            for word in ("profile 0", "vulnerable", "set01", "lv4", "2-1"):
                assert word not in sent


def test_each_vulnerable_resident_has_as_many_others_beside(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    texts = hall_run[0].table("texts").with_columns(pl.col("text_id").str.split("/").list.first())
    assert not texts.filter(participant_id="A05").height  # who never spoke voiced no concern
    for number in ("01", "02"):
        of = {
            level: texts.filter(text_id=f"set{number}_lv{level}")["participant_id"].to_list()
            for level in ("2-1", "4")
        }
        assert of["2-1"] == of["4"] and len(of["4"]) == 3 and "A04" in of["4"]


def test_the_finding_gives_shares_gaps_and_quotes_by_level(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    found = {f.key: f for f in compute_findings(hall_run[0].folder)}
    rows = {(r[0], r[1]): r for r in found["heard"].grid.rows}
    columns = found["heard"].grid.columns
    share = columns.index("vulnerable_share")
    assert rows["2-1", "answered"][share] == 1.0 and rows["4", "answered"][share] == 0.0
    assert rows["2-1", "understood"][share] == 0.0
    said = found["heard"].says
    _, of_level = said.split("At level 2-1, of the concerns that vulnerable residents voiced, ")
    assert "; 100 % were answered" in of_level.split(".")[0]
    assert any("Coded by reader" in note for note in found["heard"].notes)
    quotes = found["heard_quotes"].grid
    assert ("set01_lv2-1/A04", "Without a lift I cannot leave the house.", "answered",
            "the lift will be built") in quotes.rows  # fmt: skip


def test_show_gives_the_quotes_beside_a_residents_own_words(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    talk = render_run_text(hall_run[0].folder, "set01_lv2-1/A04")
    assert "answered: “the lift will be built”" in talk
    assert "not heard" in render_run_text(hall_run[0].folder, "set01_lv4/A04")


def test_embedded_codes_support_no_finding(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"coding": "on", "models": {"coder": "synthetic"}}
    import folkmoot

    path = tmp_path / "hall.yaml"
    path.write_text(json.dumps({"study": "town_hall", **settings, "rounds": 2}), "utf-8")
    hall_run = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    keys = {f.key for f in compute_findings(hall_run.folder)}
    assert "coding" in keys and not keys & {"heard", "heard_quotes"}
    assert coding.read_codings(hall_run.folder)["concern"].primary_coder is not None


def test_all_prompts_of_a_resident_begin_with_the_same_transcript(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    """All prompts of a resident begin with the same bytes, so that the vendor can cache them."""
    sent: dict[tuple[str, str], list[str]] = {}
    for address, request in hall_run[1].seen:
        level, *_, who = address.rpartition("/")[0].split("/")
        if who.startswith("A") and level.startswith("set") and "/before/" not in address:
            system, asked = (m.content for m in request.messages)
            transcript = OWN_PART.split(asked, maxsplit=1)[0]
            sent.setdefault((level, who), []).append(system + transcript)
    assert len(sent) == 4 * 5
    for prompts in sent.values():
        whole = max(prompts, key=len)
        assert all(whole.startswith(p) for p in prompts)
        assert "speaks in round 1." in whole and "speaks in round 3." in whole


# --- references as they were given, and the check of robustness ---

GIVEN_REFERENCES = {  # who → (content of a reference to A04, what the statement says)
    "A01": ("A04 is right about the lift", "Her point hit home for me."),  # real, and not found
    "A02": ("the lift must come first", "As I see it, the lift must come first."),  # found
    "A03": ("I agree", ""),  # from a resident without a statement
}


def answer_with_references(key: CallKey, request: ModelRequest) -> Any:
    said = answer_plainly(key, request)
    stage, who, number = key
    if stage == "speak" and number == 2 and who in GIVEN_REFERENCES:
        content, statement = GIVEN_REFERENCES[who]
        reference = {"target_agent": "A04", "content": content, "interaction_type": "agree"}
        said |= {"references": [reference], "full_statement": statement}
    return said


@pytest.mark.parametrize("level", ["1", "2-1"])
def test_references_count_as_given_and_the_check_is_reported_beside_them(
    tmp_path: Path, level: str
) -> None:
    settings = small_hall(tmp_path) | {"levels": [level], "rounds": 2}
    run = run_hall(
        tmp_path,
        settings,
        make_model(
            answer_in_one_session(answer_with_references)
            if level == "1"
            else answer_with_references
        ),
    )
    references = run.table("references").sort("speaker")
    assert references["content"].to_list() == [content for content, _ in GIVEN_REFERENCES.values()]
    assert references["said_aloud"].to_list() == [False, True, False]
    reactions = run.table("reactions").filter(target="A04").sort("speaker")
    assert reactions["reaction_level"].to_list() == [4, 4, 4, 0]
    assert reactions["said_aloud"].to_list() == [False, True, False, None]
    assert reactions["reaction_level_said_aloud"].to_list() == [0, 4, 0, 0]
    # Three agree with A04 of eight possible reactions to the two vulnerable; the rule finds one.
    row = run.table("discussions").row(0, named=True)
    assert row["vulnerable_weighted_inclusivity_score"] == 3 * 4 / 8
    assert row["vulnerable_weighted_inclusivity_score_said_aloud"] == 4 / 8
    assert run.folder.read_json(f"set01_lv{level}/metrics_summary.json")["quality"]["dropped"] == {}
    finding = next(f for f in run.findings if f.key == "inclusion")
    shown = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert (shown["vulnerable"], shown["vulnerable_said_aloud"]) == (1.5, 0.5)
    assert "the gaps are +0.50 instead of +1.50" in finding.says
