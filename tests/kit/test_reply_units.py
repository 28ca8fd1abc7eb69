"""Replies of participants with a shared history are one unit, unless the study sets another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

import folkmoot
from folkmoot.engine.settings.claims import CLAIMS_TESTED
from folkmoot.engine.settings.run_claims import registered_claims
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.kit.reply_units import check_replies, reply_unit_of
from folkmoot.report.document.document import build_document
from folkmoot.storage.run_folder import RunFolder

STUDY_HEAD = """
import folkmoot as fm

class Talk(fm.StudyConfig):
    groups: int = 6

class Row(fm.Row, table="opinions", key=("id",)):
    id: str
    opinion: str | None

SPEAK = "What do you think of the park?"
"""
# Six groups of three participants talk in turn. Later speakers hear the earlier ones.
TALK = """
async def protocol(session):
    async def discuss(scope, group):
        async def speak(turn, who, heard):
            said = await turn.ask(who, SPEAK, history=heard)
            return None if isinstance(said, fm.Missing) else fm.Utterance(who.id, said, who.name)

        await scope.take_turns([fm.Speaker(f"p{3 * group + n}") for n in range(3)], speak)

    await session.map(range(session.config.groups), discuss, key=lambda group: f"group_{group}")
"""
# The participants of a survey hear no other participant.
SURVEY = """
async def protocol(session):
    async def ask(scope, n):
        await scope.ask(fm.Speaker(f"p{n}"), SPEAK)

    await session.map(range(3 * session.config.groups), ask, key=lambda n: f"p{n}")
"""
# A text without a recorded source may be that of another participant.
UNKNOWN = """
async def protocol(session):
    async def discuss(scope, group):
        said = ""
        for n in range(3):
            who = fm.Speaker(f"p{3 * group + n}")
            said += str(await scope.ask(who, f"{SPEAK} You heard: {said}"))

    await session.map(range(session.config.groups), discuss, key=lambda group: f"group_{group}")
"""
# Prompts of the second round may contain all texts of the first round.
DELPHI = """
async def protocol(session):
    said = []

    async def first(scope, n):
        said.append(str(await scope.ask(fm.Speaker(f"p{n}"), SPEAK)))

    async def second(scope, n):
        await scope.ask(fm.Speaker(f"p{n}"), f"{SPEAK} The others: {sorted(said)}")

    for name, ask in (("first", first), ("second", second)):
        await session.child(name).map(range(18), ask, key=lambda n: f"p{n}")
"""
STUDY_TAIL = """
STUDY = fm.Study("talk", "Talks", Talk, protocol, tables=(Row,))
"""


@pytest.mark.parametrize(
    ("protocol", "units"),
    [
        (TALK, "6 conversations"),
        (SURVEY, "18 speakers"),
        (UNKNOWN, "6 session scopes"),
        (DELPHI, "1 session scope"),
    ],
    ids=["talk", "survey", "unknown", "delphi"],
)
def test_participants_with_a_shared_history_are_one_unit(
    tmp_path: Path, protocol: str, units: str
) -> None:
    (tmp_path / "talk.py").write_text(STUDY_HEAD + dedent(protocol) + STUDY_TAIL)
    (tmp_path / "talk.yaml").write_text("study: talk.py\n")
    result = folkmoot.run(tmp_path / "talk.yaml", model="synthetic", out=tmp_path / "run")
    run = RunFolder(result.path if hasattr(result, "path") else tmp_path / "run")
    unit = reply_unit_of(find_study_of_run(run), run)
    answers = run.read_table("answers").rows(named=True)
    assert len({unit.of(row) for row in answers}) == int(units.split()[0])
    document = build_document(run)
    figures = [
        *document.headlines,
        *(section_figure for section in document.sections for section_figure in section.figures),
    ]
    notes = [note for figure in figures for note in figure.finding.notes]
    (unit_note,) = (note for note in notes if f"judged over {units}" in note)
    # If sources are not recorded, the note names the setting for units.
    assert ("`reply_unit`" in unit_note) == ("scope" in units)


VILLAGES = """
from folkmoot.measures.inference.claims import Claim

class Person(fm.Row, table="people"):
    participant_id: str
    condition: str
    village: str
    score: float

async def protocol(session):
    async def discuss(scope, village):
        async def speak(turn, who, heard):
            return turn.say(who, await turn.ask(who, SPEAK, history=heard))

        people = [fm.Speaker(f"p{3 * village + n}") for n in range(3)]
        await scope.take_turns(people, speak)
        for n, who in enumerate(people):
            condition = "ab"[village % 2]
            row = {"condition": condition, "village": f"v{village}", "score": village + n}
            scope.record(Person(participant_id=who.id, **row))

    await session.map(range(12), discuss, key=lambda village: f"v{village}")

def claims(config):
    return [Claim("people.score", ("a", "b"), "mean", unit_column=UNIT_COLUMN)]

STUDY = fm.Study("talk", "Talks", Talk, protocol, tables=(Person,), claims=claims)
"""


@pytest.mark.parametrize(("unit_column", "units"), [("", 36), ("village", 12)])
def test_a_claim_that_counts_participants_of_one_conversation_is_reported(
    unit_column: str, units: int, tmp_path: Path
) -> None:
    code = STUDY_HEAD + VILLAGES.replace("UNIT_COLUMN", repr(unit_column))
    (tmp_path / "talk.py").write_text(code)
    (tmp_path / "talk.yaml").write_text("study: talk.py\n")
    run = folkmoot.run(tmp_path / "talk.yaml", model="synthetic", out=tmp_path / "run")
    document = build_document(run.folder)
    (tested,) = (
        figure.finding
        for section in document.sections
        for figure in section.figures
        if figure.finding.key == CLAIMS_TESTED
    )
    row = dict(zip(tested.grid.columns, tested.grid.rows[0], strict=True))
    assert row["units"] == units
    # The plan states the unit that the report tests.
    planned = registered_claims(run.folder)
    assert planned is not None and planned[0].unit == row["unit"]
    warning = f"(12 conversations), but a claim counts {units} independent units"
    assert any(warning in note for note in tested.notes) == (units > 12)


def test_participants_who_perhaps_read_each_other_are_no_certain_conversation(
    tmp_path: Path,
) -> None:
    """All are asked in one scope before they talk, with a text of unknown source."""
    code = VILLAGES.replace("UNIT_COLUMN", "'village'").replace(
        "    await session.map(",
        """    async def ask(scope, n):
        await scope.ask(fm.Speaker(f"p{n}"), fm.join_texts(" ", [SPEAK, str(n)]))

    await session.child("before").map(range(36), ask)
    await session.map(""",
    )
    (tmp_path / "talk.py").write_text(STUDY_HEAD + code)
    (tmp_path / "talk.yaml").write_text("study: talk.py\n")
    run = folkmoot.run(tmp_path / "talk.yaml", model="synthetic", out=tmp_path / "run")
    notes = [
        note
        for section in build_document(run.folder).sections
        for figure in section.figures
        if figure.finding.key == CLAIMS_TESTED
        for note in figure.finding.notes
    ]
    (note,) = (note for note in notes if "independent units" in note)
    assert note.startswith("Participants may have read each other's words, because prompts hold")
    assert "At worst they are 1 conversation, but a claim counts 12 independent units" in note


def test_votes_and_stances_in_json_replies_are_checked(
    run_of_small_study: Callable[[str], Path],
) -> None:
    run = RunFolder(run_of_small_study("town_hall"))
    study, unit = find_study_of_run(run), reply_unit_of(find_study_of_run(run), run)
    votes = run.read_table("votes")["vote"].drop_nulls()
    checks = check_replies(run, unit.of, unit.name, study.choices)
    (yes_share,) = (check for check in checks if check.key == "acquiescence")
    assert yes_share.value is not None
    assert yes_share.value.value == pytest.approx((votes == "yes").mean())
    assert f"{len(votes)} yes/no answers" in yes_share.says
    # The options have the order that was drawn for the set.
    orders = run.read_table("option_orders").sort("set", "field", "position")
    choices = list(study.choices(run))
    shown_orders = {choice.options for choice in choices}
    for _, order in orders.group_by("set", "field"):
        if order["field"][0] != "changes":
            assert tuple(order["option"]) in shown_orders
    stances = run.read_table("rounds").select("overall_stance", "stance_after")
    count = sum(choice.options[2] == "neutral" for choice in choices if len(choice.options) == 5)
    assert count == sum(column.drop_nulls().len() for column in stances)


def test_a_ballot_that_two_conditions_share_is_one_choice(
    run_of_small_study: Callable[[str], Path],
) -> None:
    run = RunFolder(run_of_small_study("negotiation"))
    cast = run.read_table("ballots").drop_nulls("top_choice")
    choices = list(find_study_of_run(run).choices(run))
    assert 0 < len(choices) == cast.n_unique(["group_id", "topic", "member_id"]) < cast.height
    assert {"; ".join(choice.options) for choice in choices} <= set(cast["options_shown"])
