"""A table while a run records it: rows in any order, each with a key, returned in the order of
their keys.

What a few thousand rows take stays in memory; the rest waits in a file that is removed at the end,
so that the memory of a run does not grow with what it records.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson
import polars as pl
from polars.io.plugins import register_io_source

from folkmoot.errors import ProtocolError, StorageError

Cell = str | int | float | bool | None
Kept = tuple[bytes, int, Sequence[Cell]]  # the key, the row's columns (`_columns`), its cells

HELD = 4_000  # rows of a table in memory
GROUP = 2_000  # rows of a frame; a larger table is written frame by frame

AFTER_PROTOCOL = b"\xff"  # begins the keys of rows that stand after those of the protocol

KINDS: Mapping[str, pl.DataType] = {
    "text": pl.String(),
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "float": pl.Float64(),
}


class Place:
    """A place in a protocol: gives keys to the rows recorded and the places opened there.

    Keys of any depth compare as the protocol goes: each part is a number from 0 behind its length.
    """

    __slots__ = ("_count", "key")

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        self._count = 0

    def next(self) -> bytes:
        """The key of what comes next here."""
        self._count += 1
        return self.part(self._count - 1)

    def part(self, number: int) -> bytes:
        """The key of the part of this number."""
        length = (number.bit_length() + 7) // 8
        return b"%b%c%b" % (self.key, length, number.to_bytes(length, "big"))


class Recording:
    """One table. Columns are the union over all rows, in order of first mention. A column is
    boolean, integer, float or text; integers and floats together give floats. A cell of lists or
    mappings becomes JSON text. NaN becomes null, as a missing cell does.

    `folder` is where rows wait; without it all stay in memory.
    """

    def __init__(self, name: str = "table", folder: Path | None = None) -> None:
        self.name = name
        self._file = None if folder is None else folder / self.file_of(name)
        self._db: sqlite3.Connection | None = None
        self._held: list[Kept] = []
        self._count = 0
        self._kinds: dict[str, set[type]] = {}  # by column
        self._numbers: dict[tuple[str, ...], int] = {}  # of each set of columns; nearly always one
        self._columns: list[tuple[str, ...]] = []
        self._first: list[bytes] = []  # key of the first row with these columns

    @staticmethod
    def file_of(name: str) -> str:
        """The file in which the rows of a table wait."""
        return f".{name}.rows"

    def add(self, row: Mapping[str, object], key: bytes | None = None) -> None:
        """Take in a row as it is now; without a key it comes after all others. Raises
        ProtocolError, sooner or later, when a column mixes text with numbers."""
        columns = tuple(row)
        cells = list(cells_of(row, self.name).values())
        if key is None:
            key = Place().part(self._count)
        number = self._numbers.get(columns)
        if number is None:
            number = self._numbers[columns] = len(self._columns)
            self._columns.append(columns)
            self._first.append(key)
            for name in columns:
                self._kinds.setdefault(name, set())
        elif key < self._first[number]:
            self._first[number] = key
        for name, cell in zip(columns, cells, strict=True):
            self._kinds[name].add(type(cell))
        self._held.append((key, number, cells))
        self._count += 1
        if len(self._held) >= HELD and self._file is not None:
            self._put_away(self._file)

    def table(self, declared: Mapping[str, str] | None = None) -> pl.DataFrame | pl.LazyFrame:
        """All rows in the order of their keys; of more than one group a lazy frame that reads group
        by group. `declared`: column → kind (`Row.columns`); what cells cannot tell, being whole
        numbers or not there, is as declared. Raises ProtocolError when a column mixes kinds."""
        schema = self._schema(declared or {})
        if self._count <= GROUP:
            return next(self._groups(schema))

        def groups(
            columns: list[str] | None, predicate: pl.Expr | None, _most: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            for data in self._groups(schema):
                chosen = data if columns is None else data.select(columns)
                yield chosen if predicate is None else chosen.filter(predicate)

        return register_io_source(groups, schema=schema)

    def close(self) -> None:
        """Forget the rows."""
        self._held.clear()
        if self._db is not None and self._file is not None:
            self._db.close()
            self._file.unlink(missing_ok=True)

    def _put_away(self, file: Path) -> None:
        """Rows in memory into the file."""
        try:
            if self._db is None:
                file.unlink(missing_ok=True)  # of a process that was killed
                self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
                self._db.execute("PRAGMA journal_mode = OFF")
                self._db.execute("PRAGMA synchronous = OFF")
                self._db.execute(
                    "CREATE TABLE rows(key BLOB PRIMARY KEY, columns INTEGER, cells BLOB) "
                    "WITHOUT ROWID"
                )
            self._db.execute("BEGIN")
            rows = ((key, number, orjson.dumps(cells)) for key, number, cells in self._held)
            self._db.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"{file}: {error}; free some space and --resume") from error
        self._held.clear()

    def _rows(self) -> Iterable[Kept]:
        if self._db is None or self._file is None:
            return sorted(self._held, key=lambda kept: kept[0])
        self._put_away(self._file)
        rows = self._db.execute("SELECT key, columns, cells FROM rows ORDER BY key")
        return ((key, number, orjson.loads(cells)) for key, number, cells in rows)

    def _groups(self, schema: Mapping[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        """Frames of `GROUP` rows; one without rows where there are none."""
        rows = iter(self._rows())
        places = [[list(schema).index(c) for c in columns] for columns in self._columns]
        left = self._count
        while True:
            height = min(left, GROUP)
            cells: list[list[Cell]] = [[None] * height for _ in schema]
            for n in range(height):
                _, number, row = next(rows)
                for place, cell in zip(places[number], row, strict=True):
                    cells[place][n] = cell
            yield pl.DataFrame(dict(zip(schema, cells, strict=True)), schema=schema)
            left -= height
            if not left:
                return

    def _schema(self, declared: Mapping[str, str]) -> dict[str, pl.DataType]:
        schema = {}
        for number in sorted(range(len(self._first)), key=self._first.__getitem__):
            for name in self._columns[number]:
                if name not in schema:
                    told = _type(self._kinds[name], name, self.name)
                    schema[name] = _of_kind(told, KINDS.get(declared.get(name, "")))
        return schema or {name: KINDS[kind] for name, kind in declared.items()}


def frame(rows: Iterable[Mapping[str, object]], table: str = "table") -> pl.DataFrame:
    """Rows as a data frame; see `Recording`. Raises ProtocolError when a column mixes kinds."""
    recording = Recording(table)
    for row in rows:
        recording.add(row)
    return recording.table().lazy().collect()


_HALF = re.compile(r"[\ud800-\udfff]")  # half of a character: no file can hold it


def cells_of(row: Mapping[str, object], table: str) -> dict[str, Cell]:
    """A row as it is kept. Raises ProtocolError for what cannot stand in a cell."""
    return {name: _cell(value, name, table) for name, value in row.items()}


def _cell(value: object, name: str, table: str) -> Cell:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not value.isascii() and _HALF.search(value):
            raise ProtocolError(f"table {table}, column {name}: the text holds half a character")
        return value if type(value) is str else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ProtocolError(
                f"table {table}, column {name}: a whole number has at most 63 bits; record a float "
                "or text"
            )
        return int(value)
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


def _type(kinds: set[type], name: str, table: str) -> pl.DataType | None:
    """The type that the cells tell; None where there are none."""
    kinds = kinds - {type(None)}
    if not kinds:
        return None
    if kinds == {str}:
        return pl.String()
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        return pl.Int64()
    if kinds <= {int, float}:
        return pl.Float64()
    names = " and ".join(sorted(k.__name__ for k in kinds))
    raise ProtocolError(f"table {table}, column {name}: {names} in one column; record one kind")


def _of_kind(told: pl.DataType | None, declared: pl.DataType | None) -> pl.DataType:
    if told is None:
        return declared or pl.String()
    whole = told.is_integer() and declared is not None and declared.is_float()
    return declared if whole and declared is not None else told
