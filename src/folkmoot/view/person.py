"""Everything that a run recorded about one participant, for the participant's page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
from starlette.exceptions import HTTPException

from folkmoot.engine.journal.journal import unescape_address_part
from folkmoot.engine.study.study import with_derived_tables
from folkmoot.kit.exposure import NO_KIND, ExposureRow
from folkmoot.storage.findings import ResultTable, TableCell
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import is_one_of
from folkmoot.view.people import (
    KEY_COLUMN,
    MAX_SHORT_CHARACTERS,
    NAMES,
    journal_of,
    names_in,
    other_keys,
    people_frame,
    people_of,
    records_of,
)
from folkmoot.view.talk import ReplyView, addresses_of, replies_at, said_by_others

# Most rows of another table that are shown about one participant.
MAX_ROWS = 60


class ShownTexts(NamedTuple):
    """The texts of one kind in the prompt of a decision."""

    kind: str
    # The number of texts.
    texts: int
    ids: tuple[str, ...]
    # The share (0 to 1) of the expected texts that the prompt contained.
    share: float | None
    # Whether the design requires (True) or excludes (False) this kind, or neither (None).
    expected: bool | None

    @property
    def wrong(self) -> bool:
        return self.expected is not None and self.expected != bool(self.texts)


class DecisionView(NamedTuple):
    """One decision: its outcome, and the texts in its prompt."""

    name: str
    outcome: str
    address: str
    shown: tuple[ShownTexts, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """Everything that the page of one participant shows."""

    key: str
    name: str
    # Short values and long values, each as (column, value).
    facts: tuple[tuple[str, TableCell], ...]
    texts: tuple[tuple[str, str], ...]
    decisions: tuple[DecisionView, ...]
    talk: tuple[ReplyView, ...]
    # (table, first rows, number of all rows).
    records: tuple[tuple[str, ResultTable, int], ...]
    # The keys of the same participant in other conversations.
    elsewhere: tuple[str, ...] = ()


def find_person(run: RunFolder, key: str) -> Person:
    """Return the participant with this key.

    Raises HTTPException if there is no such participant.
    """
    # A key may leave out the conversation (`A17` for `set01_lv4/A17`) if only one participant fits.
    # The status is 404.
    people = people_of(run)
    all_people = people_frame(run, people)
    rows = all_people.filter(pl.col(KEY_COLUMN) == key).head(1).collect().to_dicts()
    # The key may be an id without its conversation.
    if not rows and "/" not in key:
        same_id = all_people.filter(pl.col(people.id).cast(pl.String) == unescape_address_part(key))
        rows = same_id.head(2).collect().to_dicts()
        rows, key = (rows, str(rows[0][KEY_COLUMN])) if len(rows) == 1 else ([], key)
    parts = [unescape_address_part(part) for part in key.split("/")]
    row = {key: value for key, value in rows[0].items() if key != KEY_COLUMN} if rows else {}
    name = next((str(row[name]) for name in NAMES if row.get(name)), parts[-1])
    names = names_in(run, parts[:-1]) if len(parts) > 1 else {parts[-1]: name}
    talk: list[ReplyView] = []
    if (opened_journal := journal_of(run)) is not None:
        with opened_journal as journal:
            addresses = addresses_of(journal, parts[:-1], parts[-1])
            talk = replies_at(run, journal, addresses, participant_key=parts, names=names)
            scope_columns = dict(zip(people.within, parts[:-1], strict=False))
            talk += said_by_others(run, journal, parts, scope_columns, names)
            talk.sort(key=lambda reply: reply.at)
    if not rows and not talk:
        raise HTTPException(404, f"There is no participant {key} in {run.id}.")
    records = records_of(run, people, parts) if rows and people.table else ()
    return Person(
        key,
        name,
        tuple(
            (column, value)
            for column, value in row.items()
            if value not in (None, name) and not _is_long(value)
        ),
        tuple(
            (column, _join_values(value))
            for column, value in sorted(row.items(), key=_persona_first)
            if _is_long(value)
        ),
        tuple(_decisions_in_order(with_derived_tables(run, part_of=row), parts[-1], talk)),
        tuple(talk),
        tuple((table, _records_table(frame), frame.height) for table, frame in records),
        tuple(other_keys(all_people, people, rows[0])) if rows else (),
    )


def _is_long(value: object) -> bool:
    return isinstance(value, str) and (
        len(value) > MAX_SHORT_CHARACTERS or value.startswith(("[", "{"))
    )


def _persona_first(cell: tuple[str, object]) -> bool:
    return cell[0] != "persona"


def _join_values(value: str) -> str:
    try:
        values = json.loads(value)
    except ValueError:
        return value
    return "; ".join(map(str, values)) if isinstance(values, list) else value


def _records_table(frame: pl.DataFrame) -> ResultTable:
    filled_columns = [
        column for column in frame.columns if frame[column].null_count() < frame.height
    ]
    return ResultTable(
        tuple(filled_columns), tuple(frame.select(filled_columns).head(MAX_ROWS).iter_rows())
    )


def _decisions_in_order(
    run: RunFolder, participant_id: str, talk: Sequence[ReplyView]
) -> list[DecisionView]:
    outcomes = {reply.address: _describe_outcome(reply) for reply in talk}
    exposure_rows: list[dict[str, Any]] = []
    if run.has_table(ExposureRow.table):
        # One request may hold the decisions of several participants.
        table = run.scan_table(ExposureRow.table).filter(participant_id=participant_id)
        exposure_rows = table.filter(is_one_of("address", outcomes)).collect().to_dicts()
    # Without exposure, the decisions are the participant's choices. An unfinished run has the
    # exposure of its complete parts only.
    if not exposure_rows and not (run.is_finished and run.has_table(ExposureRow.table)):
        return [
            DecisionView(reply.place, reply.value, reply.address, ())
            for reply in talk
            if reply.own and reply.value
        ]
    decisions_by_address: dict[str, tuple[str, list[ShownTexts]]] = {}
    for row in exposure_rows:
        _, shown_texts = decisions_by_address.setdefault(row["address"], (row["decision"], []))
        if row["kind"] == NO_KIND:
            continue
        ids = tuple(map(str, json.loads(row["text_ids"] or "[]")))
        shown_texts.append(
            ShownTexts(row["kind"], row["texts"], ids, row["share"], row["expected"])
        )
    # The same question may be asked in several conversations, such as two experiments. Then each
    # decision names its place.
    names = [name for name, _ in decisions_by_address.values()]
    is_repeated = len(set(names)) < len(names)
    places = {reply.address: reply.place for reply in talk}
    return [
        DecisionView(
            f"{name} ({places[address]})" if is_repeated else name,
            outcomes[address],
            address,
            tuple(shown_texts),
        )
        for address in outcomes
        if address in decisions_by_address
        for name, shown_texts in [decisions_by_address[address]]
    ]


def _describe_outcome(reply: ReplyView) -> str:
    if reply.missing:
        return ""
    return reply.value or reply.text or "; ".join(f"{key}: {value}" for key, value in reply.fields)
