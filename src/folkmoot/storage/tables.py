"""Rows of research data as tables: Parquet and CSV with the same bytes for the same rows, and the
codebook that says what each column means and holds.

The runner writes a run's tables with this; analysis code reads them back through `RunFolder`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from folkmoot.errors import ProtocolError
from folkmoot.files import write_bytes, write_with

Row = Mapping[str, Any]


class Recording:
    """A table while its rows are still being recorded; kept in columns, which take less memory than
    as many dictionaries.

    Columns are the union over all rows, in order of first mention. A column is boolean, integer,
    float or text; integers and floats together give floats. A cell of lists or mappings becomes
    JSON text. NaN becomes null, as a missing cell does.
    """

    def __init__(self, name: str = "table") -> None:
        self.name = name
        self._cells: dict[str, list[Any]] = {}  # by column
        self._shapes: list[tuple[str, ...]] = []  # the columns of each row; nearly always the same
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}  # one object for each shape

    def add(self, row: Row) -> int:
        """Take in a row as it is now; its number, from 0. Raises ProtocolError, sooner or later,
        when a column mixes text with numbers."""
        number = len(self._shapes)
        cells = [_cell(value, name, self.name) for name, value in row.items()]
        for name, cell in zip(row, cells, strict=True):
            column = self._cells.setdefault(name, [])
            column.extend([None] * (number - len(column)))
            column.append(cell)
        shape = tuple(row)
        self._shapes.append(self._known.setdefault(shape, shape))
        return number

    def frame(self, order: Sequence[int] | None = None) -> pl.DataFrame:
        """All rows as a data frame, in this order of their numbers, or as they were added. Raises
        ProtocolError when a column mixes text with numbers."""
        count = len(self._shapes)
        order = range(count) if order is None else order
        shapes = dict.fromkeys(self._shapes[number] for number in order)
        data = {}
        for name in dict.fromkeys(column for shape in shapes for column in shape):
            cells = self._cells[name]
            cells.extend([None] * (count - len(cells)))
            kind = _type(set(map(type, cells)), name, self.name)
            data[name] = pl.Series(name, [cells[number] for number in order], dtype=kind)
        return pl.DataFrame(data)


def frame(rows: Iterable[Row], table: str = "table") -> pl.DataFrame:
    """Rows as a data frame; see `Recording`. Raises ProtocolError when a column mixes kinds."""
    recording = Recording(table)
    for row in rows:
        recording.add(row)
    return recording.frame()


_KINDS: Mapping[str, pl.DataType] = {
    "text": pl.String(),
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "float": pl.Float64(),
}


def typed(data: pl.DataFrame | None, columns: Mapping[str, str]) -> pl.DataFrame:
    """The table with the columns that a study declares (column → kind, see `Row.columns`).

    Without rows it has just these. Columns that hold nothing, or only whole numbers, get their
    declared type, which their cells cannot tell.
    """
    declared = {name: _KINDS[kind] for name, kind in columns.items()}
    if data is None:
        return pl.DataFrame(schema=declared)
    wrong = {n for n in declared if n in data.columns and _untold(data[n], declared[n])}
    return data.cast({n: declared[n] for n in wrong})


def _untold(cells: pl.Series, kind: pl.DataType) -> bool:
    """Whether the cells do not tell their kind: there are none, or whole numbers among floats."""
    whole = cells.dtype.is_integer() and kind.is_float()
    return whole or cells.null_count() == cells.len()


def write_table(folder: Path, name: str, data: pl.DataFrame) -> None:
    """Write `<name>.parquet` and `<name>.csv`, each whole or not at all, free of time stamps.

    In the CSV a text that a spreadsheet would take for a formula gets an apostrophe before it,
    because models' words are not to be trusted; the Parquet file holds the text as it is.
    """
    write_with(
        folder / f"{name}.parquet",
        lambda file: data.write_parquet(
            file, compression="zstd", compression_level=3, statistics=True, row_group_size=100_000
        ),
    )
    write_bytes(folder / f"{name}.csv", as_csv(data))


def as_csv(data: pl.DataFrame) -> bytes:
    """The CSV file of a table; see `write_table`."""
    return _harmless(data).write_csv().encode()


def _harmless(data: pl.DataFrame) -> pl.DataFrame:
    """Text cells that begin like a formula made plain text for spreadsheets."""
    text = cs.string()
    risky = text.str.contains(r"^[=+\-@\t\r]") & ~text.str.contains(r"^[+-]?[\d.,]+%?$")
    return data.with_columns(pl.when(risky).then(pl.lit("'") + text).otherwise(text).name.keep())


_HALF = re.compile(r"[\ud800-\udfff]")  # half of a character: no file can hold it


def _cell(value: Any, name: str, table: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not value.isascii() and _HALF.search(value):
            raise ProtocolError(f"table {table}, column {name}: the text holds half a character")
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ProtocolError(
                f"table {table}, column {name}: a whole number has at most 63 bits; record a float "
                "or text"
            )
        return value
    try:
        if isinstance(value, Mapping):
            return json.dumps({str(k): v for k, v in value.items()}, ensure_ascii=False)
        if isinstance(value, (list, tuple)):
            return json.dumps(list(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"table {table}, column {name}: {error}") from error
    what = type(value).__name__
    hint = {
        "coroutine": "put `await` before the call that gave it",
        "Missing": "there is no answer: record None, and its `.reason` in a column of its own",
        "set": "sets have no order: record sorted(…)",
    }.get(what, "record text, a number, True, False, None, a list or a dict")
    raise ProtocolError(f"table {table}, column {name}: a cell cannot be a {what}; {hint}")


def _type(kinds: set[type], name: str, table: str) -> pl.DataType:
    kinds = kinds - {type(None)}
    if kinds <= {str}:
        return pl.String()
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        return pl.Int64()
    if kinds <= {int, float}:
        return pl.Float64()
    names = " and ".join(sorted(k.__name__ for k in kinds))
    raise ProtocolError(f"table {table}, column {name}: {names} in one column; record one kind")


MOST_LEVELS = 20
LONGEST_LEVEL = 200

# Columns that tell arms of a design apart, and columns of those who shared a conversation.
BY = ("condition", "level", "treatment", "stimulus", "concept")
CLUSTERS = ("set", "discussion", "group_id", "group", "replication", "session", "session_id")

# What the engine itself records; a study describes its own columns beside these.
ENGINE_COLUMNS: dict[str, str] = {
    "address": "where in the run the call stands: scope path, kind, occurrence",
    "stage": "named part of the protocol",
    "scope": "path of the scope that asked",
    "speaker_id": "who was asked or spoke",
    "speaker_name": "name of the speaker as others saw it",
    "speaker_role": "role of the speaker",
    "role": "role of who was asked",
    "kind": "type of the answer that was wanted: text, choice, number or json",
    "value": "the answer as it was read, for choices and numbers",
    "parse_step": "parse step that could read the reply: exact, normalised, number, …, missing",
    "missing": "why there is no answer; empty when there is one",
    "finish": "how the reply ended: stop, length (cut by the token limit), refused:…, or unknown",
    "reasks": "how often the format had to be asked for again",
    "options": "the options in the order in which they were shown, as JSON",
    "position": "place of the chosen option in the order shown, from 1",
    "model_asked": "model that was asked for",
    "model_served": "model that the provider says answered",
    "turn": "place in the transcript, from 1",
    "round": "repetition within the stage, from 1",
    "text": "what was said",
    "words": "words in the reply as it came",
    "condition": "arm of the design",
    "participant_id": "the participant",
}


def codebook(
    tables: Mapping[str, pl.DataFrame], described: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Describe tables: per column its type, meaning, missing cells, and levels or range.

    `described`: column → meaning, or table → {column → meaning}; the table's own wins.
    """
    words = described or {}
    return {
        name: {
            "rows": data.height,
            "columns": {
                column: _column(data[column], _meaning(words, name, column))
                for column in data.columns
            },
        }
        for name, data in tables.items()
    }


def _meaning(words: Mapping[str, Any], table: str, column: str) -> str:
    own = words.get(table)
    if isinstance(own, Mapping) and column in own:
        return str(own[column])
    general = words.get(column)
    if isinstance(general, str):
        return general
    return ENGINE_COLUMNS.get(column, "")


def _column(data: pl.Series, meaning: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": _type_name(data.dtype),
        "meaning": meaning,
        "missing": data.null_count(),
    }
    present = data.drop_nulls()
    if present.is_empty():
        return entry
    if data.dtype.is_numeric():
        low, high = present.min(), present.max()
        return {**entry, "min": low, "max": high}
    distinct = present.n_unique()
    if distinct <= MOST_LEVELS:
        counts = dict(present.value_counts().iter_rows())
        if all(len(str(v)) <= LONGEST_LEVEL for v in counts):
            return {**entry, "levels": {str(v): counts[v] for v in sorted(counts)}}
    return {**entry, "distinct": distinct}


def _type_name(kind: pl.DataType) -> str:
    if kind == pl.Boolean:
        return "boolean"
    if kind.is_integer():
        return "integer"
    return "float" if kind.is_float() else "text"


def by_column(table: pl.DataFrame) -> str | None:
    """The column that tells conditions apart, if there is one."""
    return next((c for c in BY if c in table.columns), None)


def cluster_column(table: pl.DataFrame) -> str | None:
    """The column of those who shared a conversation, if there is one."""
    return next((c for c in CLUSTERS if c in table.columns), None)
