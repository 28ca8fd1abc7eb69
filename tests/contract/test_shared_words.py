"""A participant withdraws, and all others wrote the same words too.

The words are removed from the participant's own rows, and stay in the rows of others.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import people_of, several_parts
from tests.contract.test_withdrawals import PLAYABLE, change_texts
from tests.studies.workbook.workbook_builder import (
    make_task_row,
    make_workbook,
    with_setting,
    write_workbook,
)
from tests.sweeps import sample_daily

SHARED = "The same seven words of every participant."
Cells = Mapping[str, Any]


def in_group(row: Cells, seat: Seat) -> bool:
    return seat.scopes[0] in (row.get("group_id"), row.get("group"))


def in_meeting(row: Cells, seat: Seat) -> bool:
    return str(row["discussion_id"]) in seat.scopes


# Study type → tables with words of participants, the column of the participant, the session.
OWN_ROWS: list[tuple[str, str, str, Callable[[Cells, Seat], bool]]] = [
    ("focus_group", "statements", "persona_id", in_group),
    ("negotiation", "preferences", "member_id", in_group),
    ("town_hall", "votes", "agent_id", in_meeting),
    ("town_hall", "satisfaction", "agent_id", in_meeting),
]


def make_model(study: str) -> ScriptedProvider:
    """Return a model in which each participant writes `SHARED` for each text."""
    people = people_of(study)

    def answer(request: ModelRequest, address: str) -> Completion:
        reply = people.reply(request, address)
        is_text = request.hints.kind not in ("choice", "number")
        if request.hints.role != "participant" or not is_text:
            return reply
        return reply._replace(text=change_texts(reply.text, lambda _: SHARED))

    return ScriptedProvider(answer)


def withdraw(run: RunFolder, seat: Seat) -> RunFolder:
    withdraw_texts(run, find_personal_texts(run, seat), "researcher")
    return RunFolder(run.path)


@pytest.mark.parametrize(
    ("study", "table", "column", "is_in_session"), sample_daily(OWN_ROWS, daily=1, part="sweeps")
)
def test_shared_words_are_removed_from_own_rows_alone(
    study: str,
    table: str,
    column: str,
    is_in_session: Callable[[Cells, Seat], bool],
    tmp_path: Path,
) -> None:
    overrides = PLAYABLE.get(study, ())
    path = several_parts(study, tmp_path)
    found = load_study_file(path, overrides)
    seat = next(p for p in found.study.seats(found.config, tmp_path) if not p.closed_reason)
    out = tmp_path / "run"
    run = folkmoot.run(
        path, provider=make_model(study), model="scripted/x", out=out, overrides=overrides
    ).folder
    before = run.read_table(table).rows(named=True)
    after = withdraw(run, seat).read_table(table).rows(named=True)
    is_own = [row[column] == seat.id and is_in_session(row, seat) for row in before]
    rows = [
        (own, old, new)
        for own, old, new in zip(is_own, before, after, strict=True)
        if SHARED in json.dumps(old)
    ]
    assert {own for own, _, _ in rows} == {True, False}
    assert [new for own, _, new in rows if own and SHARED in json.dumps(new)] == []
    assert [new for own, old, new in rows if not own and old != new] == []


@pytest.mark.parametrize("constants", ['["apples"]', '["apples", "pears"]'])
def test_shared_words_are_removed_from_own_rows_of_a_workbook_alone(
    constants: str, tmp_path: Path
) -> None:
    """The ids are numbers, like those of sessions and tasks."""
    book = with_setting(make_workbook(), "role_assignment_strategy", "random")
    book["constants"][1][1] = constants
    book["computed"].append(["loud", "participant", "upper(thought)"])
    book["interview_prompts"].append(
        make_task_row(2, "private_question", 5, '{"Buyer": "Why?", "Seller": "Why?"}', "thought")
    )
    for number, row in enumerate(book["agent_profiles"][2:], 1):
        row[0] = number

    def answer(request: ModelRequest, address: str) -> Completion:
        reply = people_of("workbook").reply(request, address)
        return reply._replace(text=SHARED) if request.hints.kind == "text" else reply

    path = write_workbook(book, tmp_path / "market.xlsx")
    found = load_study_file(path)
    seat = next(seat for seat in found.study.seats(found.config, tmp_path) if seat.id != "1")
    out = tmp_path / "run"
    run = folkmoot.run(path, provider=ScriptedProvider(answer), model="scripted/x", out=out).folder
    experiment = seat.scopes[0].rpartition(".")[0]
    before = {table: run.read_table(table) for table in ("responses", "computed")}
    run = withdraw(run, seat)
    for table, old in before.items():
        is_shared = pl.col("value").is_in((SHARED, SHARED.upper()))
        is_own = (pl.col("participant_id") == seat.id) & (pl.col("experiment_id") == experiment)
        new = run.read_table(table)
        assert old.filter(is_own & is_shared).height > 0
        assert new.filter(is_own & is_shared).height == 0
        assert new.filter(~is_own).equals(old.filter(~is_own))
    with (out / f"{experiment}.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [row["ID"] for row in lines if row["thought"] != SHARED] == [seat.id]
    people = [
        person
        for session in json.loads((out / f"{experiment}.json").read_text())["sessions"]
        for person in session["participants"]
    ]
    changed = [
        person["ID"] for person in people if person["responses"]["thought"]["value"] != SHARED
    ]
    assert changed == [seat.id]
