"""Ways out: declined, unknown and other answers are recorded as such and counted separately."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from folkmoot.conversation.answer_types import Missing, ParsedAnswer
from folkmoot.engine.study.strict_answers import STRICT_ANSWERS_KEY
from folkmoot.engine.study.study import compute_findings
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.reply_checks import REFUSALS_TITLE
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.document import build_document
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.participants import PRIVATE_OPINION
from folkmoot.studies.focus_group.talk.reading import OPINION_READING
from tests.studies.focus_group.at_hand import AskedQuestion, answer_plainly, discuss, write_codes
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group

SMALL = "num_personas: 4\nmax_responses_per_question: 3\nquestions_per_phase: 1\n"
REFUSALS = (
    "As an assistant I have no money and buy nothing.",
    "Das möchte ich nicht beantworten.",
    "I would rather not say.",
)


def schema_title(request: ModelRequest) -> str:
    return str((request.schema or {}).get("title", ""))


def decline_intent(request: ModelRequest, address: str) -> str:
    """Return replies that decline the question of intent, in several languages."""
    if "/intent/" not in address:
        return reply_plainly(request, address)
    if request.schema is not None:
        schema = json.dumps(request.schema)
        assert '"none_of_these"' in schema and '"declined"' in schema
        return json.dumps({"stated": "declined"})
    return REFUSALS[len(address) % len(REFUSALS)]


def read_findings(run: RunFolder) -> dict[str, Finding]:
    return {f.key: f for f in STUDY.findings(run)}


def test_declined_intents_are_null_with_the_reason_and_no_option(tmp_path: Path) -> None:
    run = run_focus_group(tmp_path, SMALL, provider=ScriptedProvider(decline_intent))
    intents = run.read_table("intents")
    assert intents["answer"].null_count() == intents.height == 8
    assert set(intents["missing"]) == {"declined"} and intents["score"].null_count() == 8
    (concept,) = run.read_json("topline.json")["concepts"]
    assert concept["purchase_intent"]["unanswered"] == {"declined": 4}
    assert set(concept["purchase_intent"]["counts"].values()) == {0}
    assert "No participant said whether they would buy it: 4 declined" in (
        read_findings(run)["purchase_intent"].says
    )
    written = json.loads(run.text("transcript.json"))["intents"]
    assert {(i["answer"], i["missing"]) for i in written} == {(None, "declined")}


def test_concepts_without_positions_are_not_compared(tmp_path: Path) -> None:
    two = f"{SMALL}stimuli:\n  - {{name: oven, product_concept: An oven that reads}}\n"
    two += "  - {name: box, product_concept: A box that cooks}\n"

    def declining(of: str) -> Callable[[ModelRequest, str], str]:
        def answer(request: ModelRequest, address: str) -> str:
            declines = (
                schema_title(request) in ("PrivateOpinion", "OpinionReading") and of in address
            )
            return json.dumps({"declined": True}) if declines else reply_plainly(request, address)

        return answer

    for name, of, unknown in (("all", "/", "oven, box"), ("one", "/oven/", "oven")):
        (tmp_path / name).mkdir()
        run = run_focus_group(tmp_path / name, two, provider=ScriptedProvider(declining(of)))
        found = read_findings(run)["concepts"]
        expected = f"The concepts cannot be compared: no final position is known for {unknown}."
        assert expected in found.says and found.conclusion == ""


@pytest.mark.parametrize(("groups", "is_conclusion"), [(1, False), (5, True)])
def test_clarified_intents_are_reported_beside_those_of_the_first_reply(
    tmp_path: Path, groups: int, is_conclusion: bool
) -> None:
    def vague(request: ModelRequest, address: str) -> str:
        if "/intent/" in address and "p_0001" not in address:
            if request.schema is None:
                return "Honestly, that depends on a great many things in my life."
            return json.dumps({"stated": "Definitely would buy"})
        return (
            "Definitely would not buy" if "/intent/" in address else reply_plainly(request, address)
        )

    study = f"{SMALL}replications: {groups}\n"
    run = run_focus_group(tmp_path, study, provider=ScriptedProvider(vague))
    found = {f.key: f for f in compute_findings(STUDY, run)}
    says = found["purchase_intent"].says
    assert "75 %" in says
    # One group has no interval, so its share is no conclusion that could differ.
    counted = f"exact and stated answers only ({2 * groups} of {8 * groups} answers)"
    assert (f"The conclusion differs with {counted}" in says) == is_conclusion
    (row,) = [r for r in found[STRICT_ANSWERS_KEY].grid.rows if r[0] == "Would they buy it?"]
    interval = "0 to 43 %" if is_conclusion else "no interval"
    assert f"0 % ({interval})" in str(row[2]) and f"{groups} people in" in str(row[2])
    assert str(row[3]).startswith("differs: at most half would buy it") == is_conclusion


NOT_STATED: dict[tuple[str, str], tuple[dict[str, object], str]] = {
    ("group_001", "p_0001"): ({"declined": True}, "declined"),
    ("group_001", "p_0002"): ({"declined": True, "opinion": "No.", "position": 1}, "declined"),
    ("group_001", "p_0003"): (
        {"opinion": "I do not know such things.", "position": None},
        "cannot_say",
    ),
    ("group_001", "p_0004"): (
        {"opinion": "I do not know such things.", "position": "cannot say"},
        "cannot_say",
    ),
    ("group_002", "p_0001"): (
        {"opinion": "None of it.", "position": "none_of_these"},
        "cannot_say",
    ),
}


def test_a_position_that_is_not_stated_is_unknown_and_not_undecided(tmp_path: Path) -> None:
    def silent(request: ModelRequest, address: str) -> str:
        if schema_title(request) == "PrivateOpinion":
            for (group, who), (said, _) in NOT_STATED.items():
                if group in address and who in address:
                    return json.dumps(said)
        return reply_plainly(request, address)

    scripted = ScriptedProvider(silent, keep_requests=True)
    run = run_focus_group(tmp_path, f"{SMALL}replications: 2\n", provider=scripted)
    for (group, who), (said, reason) in NOT_STATED.items():
        own = run.read_table("statements").filter(group=group, persona_id=who)
        assert own["position"].null_count() == own.height == 3, said
        assert set(own["missing"]) == {reason}, said
    # It was said the first time, and not asked for again.
    assert not [a for a, _ in scripted.seen if a.startswith("discussion/") and ".r" in a]
    found = read_findings(run)
    assert "not counted: 6 cannot_say, 4 declined." in found["positions"].says
    # The check counts all three statements, whether they are missing as a whole or in one field.
    checks = {row[0]: row[-1] for row in found[RESPONDENT_CHECKS_KEY].grid.rows}
    assert "(cannot_say 9, declined 6)" in str(checks[REFUSALS_TITLE])


@pytest.mark.parametrize("groups", [1, 2])
def test_figures_cover_the_same_participants_if_some_positions_are_unknown(
    groups: int, tmp_path: Path
) -> None:
    def reply(request: ModelRequest, address: str) -> str:
        if schema_title(request) == "OpinionReading":
            return json.dumps({"changed": True, "valence": 0.9 if len(address) % 2 else -0.9})
        # One participant is undecided before the discussion, and another one after it.
        is_silent = "/before/p_0001" in address or "/after/p_0002" in address
        if schema_title(request) == "PrivateOpinion" and is_silent:
            return json.dumps({"opinion": "I do not know.", "position": None})
        return reply_plainly(request, address)

    settings = f"{SMALL}replications: {groups}\n"
    run = run_focus_group(tmp_path, settings, provider=ScriptedProvider(reply))
    finding = read_findings(run)["positions"]
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    opinions = run.read_table("opinions").filter("changed")
    without_both = pl.col("persona_id").is_in(["p_0001", "p_0002"])
    assert opinions.filter(without_both).height > 0
    assert sum(row["changes coded"] for row in rows) == opinions.height
    assert "of people who stated both" in finding.grid.caption
    assert len(rows) == (4 if groups == 1 else groups)
    # The files hold the means of the same participants.
    (concept,) = run.read_json("topline.json")["concepts"]
    for when in ("before", "after"):
        if groups == 1:
            statistics = run.read_json("statistics.json")
            assert statistics[f"mean_valence_{when}"] == concept["positions"][f"mean_{when}"]
            continue
        for row in rows:
            statistics = run.read_json(f"groups/{row['group']}/statistics.json")
            mean = row[f"mean {when}"]
            assert statistics[f"mean_valence_{when}"] == pytest.approx(mean, abs=5e-4)


def test_a_participant_with_one_position_is_excluded_once(tmp_path: Path) -> None:
    def silent(request: ModelRequest, address: str) -> str:
        if schema_title(request) == "PrivateOpinion" and "/after/p_0002" in address:
            return json.dumps({"declined": True})
        return reply_plainly(request, address)

    settings = f"{SMALL}replications: 5\n"
    run = run_focus_group(tmp_path, settings, provider=ScriptedProvider(silent))
    methods = str(build_document(run).methods)
    (sentence,) = re.findall(r"Outcome “position”[^;]*;", methods)
    assert "n = 15 and 15, 5 excluded because one of the two measures is unknown;" in sentence
    tested = {finding.key: finding for finding in compute_findings(STUDY, run)}["claims_tested"]
    assert "excludes a subject without one of the two measures" in tested.grid.caption


@pytest.mark.parametrize("answer", [PRIVATE_OPINION, OPINION_READING])
def test_declining_is_the_first_field_of_every_schema(answer: object) -> None:
    schema = answer.schema  # type: ignore[attr-defined]
    assert next(iter(schema["properties"])) == "declined"
    closed = {
        name: field
        for name, field in schema["properties"].items()
        if name not in ("declined", "opinion", "takes_up")
    }
    for name, field in closed.items():
        assert {"type": "null"} in field["anyOf"], name
    if "stance" in closed:
        options = next(part["enum"] for part in closed["stance"]["anyOf"] if "enum" in part)
        assert {"none_of_these", "declined"} <= set(options)


@pytest.mark.parametrize(
    ("said", "stance"),
    [
        ("Agree", "agree"), ("DISAGREE", "disagree"), (" agree. ", "agree"),
        ("“disagree”", "disagree"), ("none", None), ("None", None), ("null", None),
        ("neither", None), ("", None), (None, None),
        ("none_of_these", None), ("Declined", None),
    ],
)  # fmt: skip
async def test_a_stance_is_read_like_any_other_enumeration(
    said: str | None, stance: str | None
) -> None:
    read = OPINION_READING.parse_reply(
        json.dumps({"changed": False, "valence": 0.1, "stance": said})
    )
    assert isinstance(read, ParsedAnswer)

    def coding(asked: AskedQuestion) -> str:
        return (
            write_codes(valence=0.1, stance=said)
            if asked.kind == "coder"
            else answer_plainly(asked)
        )

    t = await discuss(3, coding)
    said_later = list(t.by_participants())[3:]
    assert {m.stance for m in said_later} == {stance}
    assert {m.reading_missing for m in said_later} == {None}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: json.dumps({"declined": True}), "declined"),
        (lambda: json.dumps({"changed": None, "valence": 0.9}), "cannot_say"),
        (lambda: json.dumps({"changed": "cannot say", "valence": 0.9}), "cannot_say"),
        (write_codes, "cannot_say"),
        (lambda: Missing("unparsed"), "unparsed"),
    ],
)
async def test_a_reading_that_the_coder_cannot_give_keeps_the_position_and_says_why(
    make: Callable[[], str | Missing], reason: str
) -> None:
    t = await discuss(3, lambda asked: make() if asked.kind == "coder" else answer_plainly(asked))
    before = {s.persona_id: s.position for s in t.statements if s.when == "before"}
    said = list(t.by_participants())
    assert {m.reading_missing for m in said} == {reason}
    assert all(m.valence == before[m.speaker_id] and not m.changed_mind for m in said)


def test_a_position_that_stays_unreadable_is_not_called_cannot_say(tmp_path: Path) -> None:
    def vague(request: ModelRequest, address: str) -> str:
        said = reply_plainly(request, address)
        if schema_title(request) == "PrivateOpinion":
            return json.dumps({**json.loads(said), "position": "0.2 to 0.4"})
        if schema_title(request) == "OpinionReading":
            return json.dumps({**json.loads(said), "changed": "perhaps", "valence": "high"})
        return said

    run = run_focus_group(tmp_path, SMALL, provider=ScriptedProvider(vague))
    statements, heard = run.read_table("statements"), run.read_table("utterances")
    assert statements["position"].null_count() == statements.height > 0
    assert set(statements["missing"]) == {"unparsed"} and statements["words"].str.len_chars().min()
    assert set(heard["reading_missing"].drop_nulls()) == {"unparsed"}


def test_a_word_for_nothing_is_no_question_and_no_opinion(tmp_path: Path) -> None:
    """In each group, moderator and participants say another one."""
    words = ("N/A", "None.", "null", "…", "-")

    def empty(request: ModelRequest, address: str) -> str:
        said = reply_plainly(request, address)
        found = re.search(r"group_(\d+)", address)
        if found is None:
            return said
        nothing = words[int(found[1]) - 1]
        fields = {
            "PhaseGuide": {"questions": [nothing]},
            "NextQuestion": {"question": nothing},
            "PrivateOpinion": {"opinion": nothing},
        }.get(schema_title(request))
        return said if fields is None else json.dumps({**json.loads(said), **fields})

    study = f"{SMALL}replications: {len(words)}\n"
    run = run_focus_group(tmp_path, study, provider=ScriptedProvider(empty))
    utterances, statements = run.read_table("utterances"), run.read_table("statements")
    assert not set(words) & set(utterances["text"])
    assert set(statements["missing"]) == {"unparsed"}
    # The questions are those of the packaged guide.
    asked = utterances.filter(speaker_role="moderator")
    assert asked["group"].n_unique() == statements["group"].n_unique() == len(words)
