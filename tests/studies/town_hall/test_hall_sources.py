"""Every text in the prompts of a town hall has a source and equals the recorded text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.kit.exposure import FOREIGN_WORDS, describe_deviations
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import cell_id, quote_value
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall import STUDY, stages
from folkmoot.studies.town_hall.discussion import Meeting, Round, StatementLine
from folkmoot.studies.town_hall.exposure_design import NOTES, PROPOSALS, QUESTIONS, STATEMENTS
from tests.conftest import SharedFolder
from tests.helpers_provenance import assert_every_text_has_its_source, write_prompts_in_capitals
from tests.studies.town_hall.hall_script import (
    CallKey,
    answer_in_any_session,
    answer_plainly,
    make_model,
    make_reflection,
    run_hall,
    small_hall,
)
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

PROMPTS = Path(str(STUDY.prompts))
EXAMPLE = Path(__file__).parents[3] / "examples" / "town_hall.yaml"
LEVELS = ("1", "2-1", "2-2", "3", "4")
SMALL_SETTINGS: Mapping[str, Any] = {
    "topic": {
        "title": "Shall Mill Street be closed to cars?",
        "background": "  The bus would go round by the bridge.\nThe cost is not settled.\n",
        "contributions": {"owner": "a fee of 40 a year for the parking place"},
        "stakes": {"tenant": "The rent may rise.", "all": ["The bus is late.", "So is the post."]},
    },
    "sets": 1,
    "rounds": 3,
    "residents": {"general": 3},
    "coding": "off",
    "random_seed": 3,
}
SHARED_SESSION = {"context": "shared"}
MODERATED_SESSIONS = {"context": "separate", "moderator": "model"}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    **{f"level {level}": {"levels": [level]} for level in LEVELS},
    "only the last round is remembered": {"levels": ["1", "4"], "history": "last"},
    "one round": {"levels": ["1", "4"], "rounds": 1},
    "with codes": {"levels": ["4"], "coding": "on", "rounds": 2},
    "parts of a shared session": {"levels": ["1"], "longest_shared_reply": 1_500},
    "nobody vulnerable": {"levels": ["1", "4"], "vulnerable": []},
    "one item": {"levels": ["1", "2-1"], "max_vote_items": 1},
    "switches of a shared session": {
        "levels": ["chaired", "thoughtless", "rash", "told"],
        "level_settings": {
            "chaired": {**SHARED_SESSION, "moderator": "model"},
            "thoughtless": {**SHARED_SESSION, "think": False},
            "rash": {**SHARED_SESSION, "reflect": False},
            "told": {**SHARED_SESSION, "stories": "all", "labels": "shuffled"},
        },
    },
    "switches of separate sessions": {
        "levels": ["thoughtless", "rash", "bare", "unlisted", "placebo", "long", "short"],
        "level_settings": {
            "thoughtless": {**MODERATED_SESSIONS, "think": False},
            "rash": {**MODERATED_SESSIONS, "reflect": False},
            "bare": {**MODERATED_SESSIONS, "vulnerable": False},
            "unlisted": {**MODERATED_SESSIONS, "moderator_list": False},
            "placebo": {**MODERATED_SESSIONS, "labels": "shuffled"},
            "long": {**MODERATED_SESSIONS, "stories": "all"},
            "short": {**MODERATED_SESSIONS, "stories": "none"},
        },
    },
    "residents in other words": {
        "levels": ["2-1"],
        "residents": {
            "general": 3,
            "ratios": {
                "age_group": {"under 20": 0.5, "40s": 0.5},
                "gender": {"diverse": 1.0},
                "ownership": {"lodger": 1.0},
            },
            "occupations": {"under 20": {of: ["apprentice"] for of in ("low", "middle", "high")}},
        },
    },
}


# test_hall_privacy shows daily that only the last round is remembered.
DAILY = ("with codes", "switches of a shared session", "residents in other words")


def run_town_hall(folder: Path, settings: Mapping[str, Any]) -> RunFolder:
    raw = {**SMALL_SETTINGS, **settings}
    return folkmoot.run(STUDY, raw, out=folder / "run", model="synthetic").folder


@pytest.mark.parametrize("name", sample_daily(VARIANTS, DAILY, part="mutations"))
def test_every_text_in_a_prompt_is_what_its_source_recorded(name: str, tmp_path: Path) -> None:
    run = run_town_hall(tmp_path, VARIANTS[name])
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert set(run.read_table("provenance")["kind"]) >= {
        "persona",
        "material",
        "utterance",
        "value",
    }


def answer_with_questions(key: CallKey, request: ModelRequest) -> Any:
    """Return answers in which all say "No." and ask questions. A02 raises a further point."""
    said = answer_plainly(key, request)
    stage, who, number = key
    if stage == "speak":
        said["full_statement"] = "No." if who != "A02" else f"A02 minds the lift ({number})."
        targets = ("all", "A01", "moderator", "planner")
        said["questions"] = [{"target": to, "content": f"{who} to {to}?"} for to in targets]
    if stage == "reflect":
        said |= make_reflection(
            "neutral", "oppose", "harden", next_round_strategy=f"{who} will wait."
        )
    return said


def write_own_prompts(folder: Path) -> str:
    """Write prompts in which filters, tables and another order change the shown texts."""
    names = {"s.text", "item.text", "moderator", "q.text", "n.reflection", "s.stance"}
    write_prompts_in_capitals(folder, STUDY, names)
    for path in folder.glob("*.md"):
        text = path.read_text("utf-8")
        text = text.replace("{{ s.id }} ({{ s.name }})", "**{{ s.name | title }}, {{ s.id }}**")
        path.write_text(text.replace("in statements %}", "in statements | reverse %}"), "utf-8")
    return str(folder)


def test_own_prompts_that_change_texts_show_the_same_texts(tmp_path: Path) -> None:
    model = answer_in_any_session(answer_with_questions)
    shown = []
    for name, prompts in (
        ("shipped", str(PROMPTS)),
        ("own", write_own_prompts(tmp_path / "prompts")),
    ):
        settings = small_hall(tmp_path) | {"levels": ["1", "4"], "prompts": prompts, "rounds": 2}
        run = run_hall(tmp_path / name, settings, make_model(model)).folder
        assert_every_text_has_its_source(run, STUDY)
        assert describe_deviations(run) == []
        ids = pl.col("text_ids").str.json_decode(pl.List(pl.String)).list.sort()
        shown.append((run.read_table("exposure").with_columns(ids), run.read_table("provenance")))
    (shipped, _), (own, provenance) = shown
    assert own.equals(shipped)
    changed = provenance.filter("altered")
    assert {"utterance", "proposal"} <= set(changed["kind"])


def test_sources_are_right_with_declined_and_unreadable_answers(tmp_path: Path) -> None:
    def broken(key: CallKey, request: ModelRequest) -> Any:
        stage, who, number = key
        if (stage, number) in (("think", 2), ("speak", 1), ("reflect", 1)):
            if who == "A01":
                return {"declined": True}
            if who == "A02":
                return "I'd rather not say."
        if stage in ("moderator", "plan", "consensus"):
            return {"declined": True}
        return answer_plainly(key, request)

    settings = small_hall(tmp_path) | {"levels": ["1", "4"]}
    run = run_hall(tmp_path, settings, make_model(answer_in_any_session(broken))).folder
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []


@pytest.fixture(scope="session")
def example(shared_folder: SharedFolder) -> RunFolder:
    """One set of the example, at the lowest and at the highest level."""

    def make(folder: Path) -> None:
        overrides = ("sets=1", "levels=[1,4]", "rounds=2", "coding=off")
        folkmoot.run(EXAMPLE, model="synthetic", out=folder / "run", overrides=overrides)

    return folkmoot.load(shared_folder("hall/example", make) / "run").folder


def test_every_text_in_a_prompt_of_the_example_is_what_its_source_recorded(
    example: RunFolder,
) -> None:
    assert_every_text_has_its_source(example, STUDY)


def test_what_is_said_is_recorded_with_the_reply_that_it_comes_from(example: RunFolder) -> None:
    run = example
    said, answers = run.read_table("utterances"), set(run.read_table("answers")["address"])
    assert said["utterance_id"].is_unique().all()
    assert set(said["address"]) <= answers
    assert (said.filter("public")["stage"].unique().sort()).to_list() == [
        "consensus",
        "moderate",
        "speak",
    ]
    # The row of a question names its addressee.
    asked = said.filter(pl.col("addressee").is_not_null())
    assert not asked["public"].any() and asked["stage"].unique().to_list() == ["speak"]


# --- exposure -------------------------------------------------------------------------------------


def list_shown_kinds(run: RunFolder) -> dict[tuple[str, str], set[str]]:
    """Return the kinds of text in the prompts of each level and decision: in every prompt where the
    design requires it, in some prompt where the design allows it."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in run.read_table("exposure").filter(pl.col("texts") > 0).iter_rows(named=True):
        found.setdefault((row["condition"], row["decision"]), set()).add(row["kind"])
    return found


def test_each_decision_of_the_example_has_the_texts_that_the_protocol_gives_it(
    example: RunFolder,
) -> None:
    story, own = "life story", "own words"
    heard = {story, own, STATEMENTS}
    moderated = {*heard, "moderator's words"}
    before_all = {"satisfaction before": {story}}
    shared = before_all | {
        "first statement": {story},
        "later statement": {*heard, QUESTIONS, NOTES},
        "vote": {*heard, QUESTIONS, PROPOSALS},
        "satisfaction after": {*heard, PROPOSALS, "final consensus"},
    }
    separate = before_all | {
        "first statement": {story, own},  # thoughts are shown to who speaks
        "later statement": {*moderated, QUESTIONS},
        "reflection": moderated,
        "vote": {*moderated, QUESTIONS, PROPOSALS},
        "satisfaction after": {*moderated, PROPOSALS, "final consensus"},
    }
    expected = {("1", name): kinds for name, kinds in shared.items()}
    expected |= {("4", name): kinds for name, kinds in separate.items()}
    assert list_shown_kinds(example) == expected
    assert describe_deviations(example) == []


def test_a_short_statement_is_found_like_a_long_one(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"levels": ["2-1"], "rounds": 2}
    run = run_hall(tmp_path, settings, make_model(answer_with_questions)).folder
    said = run.read_table("utterances").filter(public=True, round=1, stage="speak")
    assert said.filter(text="No.").height == 4
    votes = run.read_table("exposure").filter(decision="vote", kind=STATEMENTS)
    for row in votes.iter_rows(named=True):
        others = said.filter(pl.col("speaker_id") != row["participant_id"])["utterance_id"]
        assert set(others) <= set(json.loads(row["text_ids"]))


# --- planted mistakes -----------------------------------------------------------------------------


def test_a_short_statement_that_leaks_from_another_discussion_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: residents of level 4 also read the statement of A01 at level 2-1, "No."."""
    whole, of_others = Meeting.statements, list[StatementLine]()

    def leaky(self: Meeting, round_: Round, *, excluding: str = "") -> list[StatementLine]:
        said = whole(self, round_, excluding=excluding)
        if self.level.name == "2-1":
            of_others.extend(line for line in said if line["id"] == "A01" and not of_others)
            return said
        return [*said, *of_others]

    monkeypatch.setattr(Meeting, "statements", leaky)
    settings = small_hall(tmp_path) | {"levels": ["2-1", "4"]}
    run = run_hall(tmp_path, settings, make_model(answer_with_questions)).folder
    (line,) = of_others
    assert line["text"] == "No."
    found = run.read_table("exposure").filter(kind=FOREIGN_WORDS)
    (leaked,) = {id for ids in found["text_ids"] for id in json.loads(ids)}
    row = run.read_table("utterances").filter(utterance_id=leaked).row(0, named=True)
    assert (row["level"], row["speaker_id"], row["text"]) == ("2-1", "A01", "No.")
    assert set(found["condition"]) == {"4"}
    assert any(d.startswith("4, vote: words from elsewhere") for d in describe_deviations(run))


def test_a_short_private_note_that_leaks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: all residents read A01's thoughts in place of A01's statement."""
    whole = Meeting.statements

    def leaky(self: Meeting, round_: Round, *, excluding: str = "") -> list[StatementLine]:
        thoughts = round_.recorded["A01"].thoughts
        return [
            {**line, "text": thoughts.quoted_text} if thoughts and line["id"] == "A01" else line
            for line in whole(self, round_, excluding=excluding)
        ]

    monkeypatch.setattr(Meeting, "statements", leaky)
    run = run_hall(tmp_path, small_hall(tmp_path), make_model(answer_with_questions)).folder
    told = describe_deviations(run)
    assert any("vote: words from elsewhere: excluded by the design" in said for said in told)
    assert any(f"vote: {STATEMENTS}: required by the design in full" in said for said in told)


def test_a_leak_through_plain_text_is_counted_and_no_source_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: an f-string puts statements into prompts, so that their source is lost."""
    whole = Meeting.statements

    def plainly(self: Meeting, round_: Round, *, excluding: str = "") -> list[StatementLine]:
        return [
            {**line, "text": f"{line['text']}"} for line in whole(self, round_, excluding=excluding)
        ]

    monkeypatch.setattr(Meeting, "statements", plainly)
    run = run_hall(tmp_path, small_hall(tmp_path), make_model(answer_with_questions)).folder
    counted = count_unattributed_characters(run)
    # Three rounds, in each of which four others say something: three times "No." and A02's point.
    words = 3 * (3 * len("No.") + len("A02 minds the lift (1)."))
    assert counted["set01_lv2-1/vote/A01/ask0"] == words
    votes = run.read_table("answers").filter(pl.col("address").str.contains("/vote/"))["address"]
    assert set(votes) <= counted.keys()
    assert any(
        f"{STATEMENTS}: required by the design, missing from" in d for d in describe_deviations(run)
    )


def test_a_wrong_source_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Miswired: each proposal is quoted as the text of the first."""
    right = stages.quote_item

    def wrong(meeting: Meeting, id: str, text: str) -> dict[str, str]:
        quoted = quote_value(text, "proposal", cell_id("items.text", meeting.id, "V1"), "planner")
        return {**right(meeting, id, text), "text": quoted}

    def two_items(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] == "plan":
            said["items"] = [{**said["items"][0], "proposal": p} for p in ("Plant trees", "Do it")]
        return said

    monkeypatch.setattr(stages, "quote_item", wrong)
    run = run_hall(tmp_path, small_hall(tmp_path), make_model(two_items)).folder
    (found,) = find_wrong_sources(run, STUDY.tables)
    assert found.source_id == "items.text/set01_lv2-1/V1"
    assert (found.text, found.recorded) == ("Do it", ("Plant trees",))
    assert any(
        f"vote: {PROPOSALS}: required by the design in full" in d for d in describe_deviations(run)
    )
