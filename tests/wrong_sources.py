"""Compare the texts in prompts with the texts recorded at their sources."""
# A span of the table `provenance` names a row of another table as the source of a text.

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.utterances import (
    UTTERANCES,
    SelfDescriptionRow,
    UtteranceRow,
)
from folkmoot.hints import number_text
from folkmoot.models.request import Message
from folkmoot.provenance import PROTOCOL, STUDY, UNATTRIBUTED
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import JOURNAL, RunFolder


class WrongSource(NamedTuple):
    """A text in a request that differs from its recorded original."""

    address: str
    kind: str
    source_id: str
    text: str
    # Empty if the named row does not exist.
    recorded: tuple[str, ...]


def find_wrong_sources(run: RunFolder, tables: Sequence[type[Row]]) -> list[WrongSource]:
    """Return every text in a request that differs from its recorded original.

    `tables`: the row classes of the study, which name the key columns.
    """
    # If the study altered a text, only the existence of the row is checked.
    # `count_unattributed_characters` counts texts without a source.
    recorded = _Recorded(run, tables)
    wrong_sources: dict[tuple[str, str, str], WrongSource] = {}
    for span, text in _texts_of_spans(run):
        kind, id = span["kind"], span["source_id"]
        # The same text occurs in many requests, and each difference is reported once.
        if kind == UNATTRIBUTED or (kind, id, text) in wrong_sources:
            continue
        recorded_texts = recorded.texts(kind, id)
        if recorded_texts is None or text in recorded_texts or (span["altered"] and recorded_texts):
            continue
        wrong_sources[kind, id, text] = WrongSource(
            span["address"], kind, id, text, tuple(recorded_texts)
        )
    return list(wrong_sources.values())


def _texts_of_spans(run: RunFolder) -> Iterator[tuple[Mapping[str, Any], str]]:
    with closing(JournalReader(run.path / JOURNAL)) as journal:
        address, messages = "", tuple[Message, ...]()
        for span in run.read_table(PROVENANCE).iter_rows(named=True):
            # Rows of one request are adjacent, so its messages are read from the journal once.
            if span["address"] != address:
                address, messages = span["address"], tuple(journal.messages(span["address"]))
            content = messages[span["message"]].content if messages else ""
            yield span, content[span["start"] : span["end"]]


class _Recorded:
    # The texts that a run has recorded for each source. A table is read at its first use.
    def __init__(self, run: RunFolder, tables: Sequence[type[Row]]) -> None:
        self._run = run
        rows: tuple[type[Row], ...] = (UtteranceRow, SelfDescriptionRow, *tables)
        self._keys = {row.table: row.key for row in rows}
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}

    def texts(self, kind: str, id: str) -> list[str] | None:
        # None if no table has this kind of source.
        if kind == "utterance":
            return self._cell_texts(UTTERANCES, "text", id)
        if kind == "answer":
            return self._cell_texts("answers", "value", id)
        # A rejected reply is recorded in the journal only, not in a table.
        if kind == "reply":
            return None
        where, _, key = id.partition("/")
        table, _, column = where.partition(".")
        if table == PROTOCOL:
            return None
        if table == STUDY:
            return list(_possible_spellings(_value_at_path(self._run_config, column)))
        return self._cell_texts(table, column, key)

    @cached_property
    def _run_config(self) -> dict[str, Any]:
        return self._run.config

    def _cell_texts(self, table: str, column: str, key: str) -> list[str]:
        row = self._by_key(table).get(key)
        return [] if row is None or column not in row else list(_possible_spellings(row[column]))

    def _by_key(self, table: str) -> dict[str, dict[str, Any]]:
        if table not in self._rows:
            # `answers` is a table of the engine that has no row class. Its key is the address.
            key = ("address",) if table == "answers" else self._keys.get(table, ())
            rows = self._run.read_table(table) if self._run.has_table(table) and key else None
            self._rows[table] = {
                "/".join(str(row[column]) for column in key): row
                for row in (() if rows is None else rows.iter_rows(named=True))
            }
        return self._rows[table]


def _value_at_path(value: Any, path: str) -> Any:
    # A path looks like `turns.0.text`. In a list, a number selects an entry, and a name selects
    # this field of all entries.
    for name in filter(None, path.split(".")):
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, list):
            value = [entry.get(name) for entry in value if isinstance(entry, dict)]
        elif isinstance(value, dict):
            value = value.get(name)
        else:
            return None
    return value


def _possible_spellings(value: Any) -> Iterator[str]:
    # A number is also spelled without trailing zeros. For a list, a mapping or JSON text, the
    # spellings of the entries are yielded.
    if value is None:
        return
    if isinstance(value, (list, tuple)):
        for entry in value:
            yield from _possible_spellings(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _possible_spellings(entry)
    else:
        yield str(value)
        # Templates print 2.0 as "2".
        if isinstance(value, float):
            yield number_text(value)
        if isinstance(value, str) and value[:1] in ("[", "{"):
            try:
                yield from _possible_spellings(json.loads(value))
            except ValueError:
                return
