"""Tables declared as classes: columns, kinds and meanings, also without rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import folkmoot
from folkmoot import Row, Session, Speaker, Study, StudyConfig, column
from folkmoot.engine.study.study import ENGINE_TABLES, describe_tables
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.rows import AnswerRange, column_ranges


class Placed(Row):
    round: int
    who: str = column("who it was")


class Vote(Placed, table="votes"):
    choice: str | None = column("the option chosen")
    weight: float | None = column("how much it counts", default=None)
    seen: Sequence[str] = column("what was shown, as JSON", default=())
    kept: bool = column("whether it stood", default=True)


class Withdrawal(Placed, table="withdrawals"):
    at_turn: int | None


def test_row_class_declares_its_columns_and_meanings() -> None:
    assert list(Vote.columns().items()) == [
        *(("round", "int"), ("who", "text"), ("choice", "text")),
        *(("weight", "float"), ("seen", "text"), ("kept", "bool")),
    ]
    assert Vote.column_meanings()["who"] == "who it was"
    assert "round" not in Vote.column_meanings()


def test_a_column_without_a_range_in_one_of_the_tables_has_none() -> None:
    class Rating(Row, table="ratings"):
        score: int | None = column("the rating", between=(1, 5))
        share: float | None = column("a share", between=(0, 1))

    class Measure(Row, table="measures"):
        score: float | None = column("the mean rating", between=(0, 6))
        share: float | None = column("a ratio")

    assert column_ranges([Rating, Measure]) == {"score": AnswerRange(False, 0, 6)}
    assert column_ranges([Rating])["share"] == AnswerRange(False, 0, 1)


def test_tables_and_codebook_come_from_the_class_with_and_without_rows(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.record(Vote(round=1, who="ann", choice=None, weight=2, seen=["a", "b"]))

    study = Study("trial", "Trial", StudyConfig, protocol, tables=(Vote, Withdrawal))
    run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda _request, _address: "yes")
    )
    votes, withdrawals = run.table("votes"), run.table("withdrawals")
    assert votes.columns == list(Vote.columns())
    assert votes.row(0) == (1, "ann", None, 2, '["a", "b"]', True)
    assert (votes.schema["choice"], votes.schema["weight"]) == (pl.String, pl.Float64)
    assert withdrawals.is_empty() and withdrawals.schema["at_turn"] == pl.Int64
    book = json.loads((run.path / "codebook.json").read_text())
    assert book["votes"]["columns"]["choice"]["meaning"] == "the option chosen"
    assert book["votes"]["columns"]["round"]["meaning"]  # the text of the engine


def test_study_describes_its_columns_in_an_engine_table(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.say(Speaker("ann"), "Yes.", mood="calm")

    described = {"utterances": {"mood": "how it was said"}}
    study = Study("trial", "Trial", StudyConfig, protocol, codebook=described)
    run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda _request, _address: "yes")
    )
    columns = run.folder.codebook()["utterances"]["columns"]
    assert columns["mood"]["meaning"] == "how it was said"
    assert all(facts["meaning"] for facts in columns.values())


def test_every_column_of_an_engine_table_has_a_meaning() -> None:
    async def protocol(session: Session) -> None: ...

    empty_tables = {row.table: pl.DataFrame(schema=[*row.columns()]) for row in ENGINE_TABLES}
    book: Any = describe_tables(Study("trial", "Trial", StudyConfig, protocol), empty_tables)
    unexplained = [
        (table, name)
        for table, entry in book.items()
        for name, facts in entry["columns"].items()
        if not facts["meaning"]
    ]
    assert unexplained == []
