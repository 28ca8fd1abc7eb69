"""The rows of a table during a run. Rows are added in any order and returned sorted by key.

A few thousand rows stay in memory. All other rows are in a file.
"""

# So the memory of a run does not grow with its tables. About once a second, the engine also writes
# the rows in memory to that file, so that another process can read them (`read_recordings`). The
# file is removed when the tables are written. A killed run leaves the file, and a resume removes
# it, because the replay computes the rows again.

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
import polars as pl
from polars.io.plugins import register_io_source

from folkmoot.errors import ProtocolError, StorageError
from folkmoot.files import reason_of
from folkmoot.hints import shorten

TableCell = str | int | float | bool | None
# The key of a row, the index of its columns in `_columns`, and its cells.
BufferedRow = tuple[bytes, int, Sequence[TableCell]]

# Rows of one table that stay in memory before they are written to the file.
MAX_ROWS_IN_MEMORY = 4_000
# Characters of a text that an error message quotes.
MAX_QUOTED_CHARACTERS = 40
# Rows of one frame. A larger table is written frame by frame. Polars holds several frames at the
# same time, and one row of packed spans becomes a dozen rows. Frames of 2,000 rows took 150 MB more
# memory for the table of spans, and saved no time.
FRAME_ROWS = 200
# The file in the run folder in which rows wait.
ROWS = ".rows.db"

# The first byte of the keys of rows that are placed after those of the protocol. No other key
# begins with it, because keys begin with a length.
AFTER_PROTOCOL = b"\xff"

DTYPES: Mapping[str, pl.DataType] = {
    "text": pl.String(),
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "float": pl.Float64(),
}


class RowOrder:
    """The source of sort keys, which put rows into the order of the study's protocol."""

    # Child scopes are numbered too. A row's key holds the numbers of all scopes around it and its
    # own number. Rows sorted by their keys are in the order of the protocol, even if they were
    # recorded in another order.

    __slots__ = ("_count", "key")

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        self._count = 0

    def next_key(self) -> bytes:
        """Return the sort key for the next row or the next child scope (part of a stage)."""
        self._count += 1
        return self.key_of(self._count - 1)

    def key_of(self, number: int) -> bytes:
        """Return the sort key of the row or child scope with the number `number`, from 0."""
        # The length comes first, so that comparing bytes compares numbers: 255 is one byte, 256 is
        # two.
        length = (number.bit_length() + 7) // 8
        return b"%b%c%b" % (self.key, length, number.to_bytes(length, "big"))


class RowFile:
    """The file for those rows of a run that are no longer kept in memory."""

    # One SQLite database, with one table for each table of the run. There is one writer. Each scan
    # opens a separate connection, in any thread or process. Rows are appended as they come, and
    # each scan sorts them. Inserting them in the order of their keys took three times as long,
    # because the rows of one second have keys all over a table.

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROWS
        self._db: sqlite3.Connection | None = None
        # The number in the name of the SQLite table, by table of the run. SQLite would not tell
        # `Votes` from `votes`.
        self._numbers: dict[str, int] = {}

    def write_rows(self, buffers: Iterable[TableBuffer]) -> None:
        """Move the rows of `buffers` from memory to the file.

        Raises StorageError for a disk error.
        """
        # In one transaction.
        waiting_buffers = [buffer for buffer in buffers if buffer.waiting]
        if not waiting_buffers:
            return
        try:
            db = self._db or self._create_database()
        except sqlite3.Error as error:
            raise self._disk_full_error(error) from error
        try:
            db.execute("BEGIN")
            for buffer in waiting_buffers:
                number = self._numbers.setdefault(buffer.name, len(self._numbers))
                shape = orjson.dumps(buffer.describe_shape())
                db.execute(
                    "INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", (buffer.name, number, shape)
                )
                table = f"rows{number}"
                db.execute(
                    f"CREATE TABLE IF NOT EXISTS {table}(key BLOB, columns INTEGER, cells BLOB)"
                )
                rows = (
                    (key, columns, orjson.dumps(cells)) for key, columns, cells in buffer.waiting
                )
                db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise self._disk_full_error(error) from error
        for buffer in waiting_buffers:
            # Clear the rows only after the commit, so that a full disk loses none.
            buffer.waiting.clear()

    def table_shapes(self) -> dict[str, dict[str, Any]]:
        """Return a map from table name to shape: the number of rows, and the columns."""
        # In the form of `TableBuffer.describe_shape`, with the types of the columns.
        with self._reading_connection() as db:
            # The run may have created the file a moment ago, and its tables are not there yet.
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'tables'").fetchone():
                return {}
            shape_rows = db.execute("SELECT name, shape FROM tables ORDER BY name").fetchall()
        return {name: orjson.loads(shape) for name, shape in shape_rows}

    def rows(self, name: str, count: int) -> Iterator[BufferedRow]:
        """Yield the first `count` written rows of a table, in the order of their keys."""
        with self._reading_connection() as db:
            query = "SELECT number FROM tables WHERE name = ?"
            (number,) = db.execute(query, (name,)).fetchone()
            # The run may have appended further rows since the shape of the table was read. Rows of
            # other tables that belong to those rows were not read.
            query = f"SELECT key, columns, cells FROM rows{number} WHERE rowid <= ? ORDER BY key"
            for key, columns, cells in db.execute(query, (count,)):
                yield key, columns, orjson.loads(cells)

    def unique_rows(
        self, name: str, count: int, columns: Sequence[Sequence[int | None]]
    ) -> set[tuple[TableCell, ...]]:
        """Return the different combinations of cells in the first `count` written rows of a table.

        - `columns`: for each tuple of columns (`BufferedRow`), the indices of the cells. None is a
          column that these rows lack.
        """
        # The page of all runs asks this of each run in progress after each call. SQLite takes a
        # third of the time that parsing all cells takes.
        unique: set[tuple[TableCell, ...]] = set()
        with self._reading_connection() as db:
            query = "SELECT number FROM tables WHERE name = ?"
            (number,) = db.execute(query, (name,)).fetchone()
            for shape, indices in enumerate(columns):
                paths = [None if index is None else f"$[{index}]" for index in indices]
                cells = ", ".join("json_extract(cells, ?)" for _ in paths)
                query = (
                    f"SELECT DISTINCT {cells} FROM rows{number} WHERE rowid <= ? AND columns = ?"
                )
                unique.update(db.execute(query, (*paths, count, shape)))
        return unique

    def finish_writing(self, buffers: Iterable[TableBuffer]) -> None:
        """Close the writer. The rows of `buffers` that are in memory go to the file first.

        If no row is in the file, all rows stay in memory.
        """
        if self._db is not None:
            self.write_rows(buffers)
            self.close()

    def close(self) -> None:
        """Close the connection of the writer. The file stays."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def discard_file(self) -> None:
        """Delete the file if this process wrote it."""
        if self._db is not None:
            self.remove_file()

    def remove_file(self) -> None:
        """Delete the file, including a file that a killed process left behind."""
        self.close()
        # SQLite keeps its write-ahead log in two further files.
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _create_database(self) -> sqlite3.Connection:
        self.remove_file()
        self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        # WAL lets another process read during a write. Syncing to the disk is off, because a replay
        # computes the rows again after a power cut.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("BEGIN")
        self._db.execute("CREATE TABLE tables(name TEXT PRIMARY KEY, number INTEGER, shape BLOB)")
        self._db.execute("COMMIT")
        return self._db

    def _disk_full_error(self, error: sqlite3.Error) -> StorageError:
        return StorageError(f"{self.path}: {error}; free some space and --resume")

    @contextmanager
    def _reading_connection(self) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        try:
            # polars reads the rows in its own threads, so the check of the thread is off.
            with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as db:
                yield db
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: cannot be read: {reason_of(error)}") from error


class TemporaryRowFile(RowFile):
    """A file for rows that no run folder keeps. It is deleted when no object refers to it."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="folkmoot-rows-"))
        super().__init__(folder)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


class TableBuffer:
    """The rows of one table during a run.

    - `file`: receives the rows that do not stay in memory. Without a file, all rows stay in memory.
    - `declared`: the kind of each column.
    """

    # The columns are the union over all rows, in the order in which they first occur. A column is
    # boolean, integer, float or text. A column with integers and floats becomes float. Cells with
    # lists or mappings become JSON text. NaN becomes null, like a missing cell. `declared`
    # (`Row.columns`) decides the type of a column if all cells are whole numbers or missing.

    def __init__(
        self,
        name: str = "table",
        file: RowFile | None = None,
        declared: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        # The rows in memory, in the order of their arrival.
        self.waiting: list[BufferedRow] = []
        self._file = file
        self._declared = declared
        self._count = 0
        # The Python types of the cells, by column.
        self._kinds: dict[str, set[str]] = {}
        # A number for each distinct tuple of columns. Nearly all tables have one. A row then stores
        # the number instead of its column names.
        self._numbers: dict[tuple[str, ...], int] = {}
        self._columns: list[tuple[str, ...]] = []
        # The types of whole rows that were added to `_kinds`, for each tuple of columns. A new row
        # nearly always has the types of an earlier one.
        self._counted: list[set[tuple[type, ...]]] = []
        # The smallest key with these columns. It decides the order of the columns in the table, so
        # that this order does not depend on scheduling.
        self._first: list[bytes] = []

    def add_row(self, row: Mapping[str, object], key: bytes | None = None) -> None:
        """Add a copy of a row.

        - `key`: the sort key. Without keys, rows keep the order in which they are added.

        Raises ProtocolError for an invalid cell.
        """
        # A column that mixes text with numbers is detected later, by `to_frame`.
        columns = tuple(row)
        cells = _list_cells(row, self.name)
        if key is None:
            key = RowOrder().key_of(self._count)
        number = self._numbers.get(columns)
        if number is None:
            number = self._numbers[columns] = len(self._columns)
            self._columns.append(columns)
            self._counted.append(set())
            self._first.append(key)
            for name in columns:
                self._kinds.setdefault(name, set())
        elif key < self._first[number]:
            self._first[number] = key
        types = tuple(map(type, cells))
        if types not in self._counted[number]:
            self._refuse_undeclared_texts(columns, cells)
            self._counted[number].add(types)
            for name, cell_type in zip(columns, types, strict=True):
                self._kinds[name].add(cell_type.__name__)
        self.waiting.append((key, number, cells))
        self._count += 1
        if len(self.waiting) >= MAX_ROWS_IN_MEMORY and self._file is not None:
            self._file.write_rows([self])

    def _refuse_undeclared_texts(self, columns: Sequence[str], cells: Sequence[TableCell]) -> None:
        # A column of texts could not be tested, and findings would count no unit.
        for name, cell in zip(columns, cells, strict=True):
            declared = self._declared.get(name, "text")
            if isinstance(cell, str) and declared != "text":
                raise ProtocolError(
                    f"table {self.name}, column {name}: {shorten(cell, MAX_QUOTED_CHARACTERS)!r} "
                    f"is a text, but the class of the row declares {declared}; convert the value, "
                    "or declare `str`"
                )

    def to_frame(self) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows in the order of their keys.

        Raises ProtocolError if a column mixes text with numbers.
        """
        # More than `FRAME_ROWS` rows are returned as a lazy frame that reads them in parts.
        schema = self._table_schema()
        if self._count <= FRAME_ROWS:
            return next(self._frames(schema))

        def frames(
            columns: list[str] | None,
            predicate: pl.Expr | None,
            _max_rows: int | None,
            _: int | None,
        ) -> Iterator[pl.DataFrame]:
            for data in self._frames(schema):
                selected = data if columns is None else data.select(columns)
                yield selected if predicate is None else selected.filter(predicate)

        return register_io_source(frames, schema=schema)

    def unique_rows(self, *columns: str) -> set[tuple[TableCell, ...]]:
        """Return the different combinations of the cells in `columns`.

        A boolean in a row of the file is returned as 0 or 1.
        """
        indices = [
            [known.index(column) if column in known else None for column in columns]
            for known in self._columns
        ]
        unique = {
            tuple(None if index is None else cells[index] for index in indices[number])
            for _, number, cells in self.waiting
        }
        written_count = self._count - len(self.waiting)
        if self._file is not None and written_count:
            unique |= self._file.unique_rows(self.name, written_count, indices)
        return unique

    def describe_shape(self) -> dict[str, object]:
        """Return the shape of the table as JSON data: the number of rows, and the columns."""
        # Another process can read the rows in the file with these facts.
        return {
            "count": self._count,
            "declared": dict(self._declared),
            "kinds": {name: sorted(kinds) for name, kinds in self._kinds.items()},
            "columns": self._columns,
            "first": [key.hex() for key in self._first],
        }

    @classmethod
    def from_shape(cls, name: str, file: RowFile, shape: Mapping[str, Any]) -> TableBuffer:
        """Return a buffer that reads the rows which a different process recorded.

        - `file`: the file that the other process writes.
        - `shape`: the result of `describe_shape` in the other process.
        """
        self = cls(name, file, shape["declared"])
        self._count = shape["count"]
        self._kinds = {column: set(kinds) for column, kinds in shape["kinds"].items()}
        self._columns = [tuple(columns) for columns in shape["columns"]]
        self._counted = [set() for _ in self._columns]
        self._first = [bytes.fromhex(key) for key in shape["first"]]
        return self

    def _iterate_rows(self) -> Iterable[BufferedRow]:
        # If no row was moved to the file, sorting in memory is enough.
        if self._file is None or len(self.waiting) == self._count:
            # Sort by the key alone. Cells of different types cannot be compared.
            return sorted(self.waiting, key=lambda buffered_row: buffered_row[0])
        self._file.write_rows([self])
        return self._file.rows(self.name, self._count)

    def _frames(self, schema: Mapping[str, pl.DataType]) -> Iterator[pl.DataFrame]:
        rows = iter(self._iterate_rows())
        column_indices = [
            [list(schema).index(column) for column in columns] for columns in self._columns
        ]
        rows_left = self._count
        while True:
            height = min(rows_left, FRAME_ROWS)
            cells: list[list[TableCell]] = [[None] * height for _ in schema]
            for n in range(height):
                _, number, row = next(rows)
                for column_index, cell in zip(column_indices[number], row, strict=True):
                    cells[column_index][n] = cell
            yield pl.DataFrame(dict(zip(schema, cells, strict=True)), schema=schema)
            rows_left -= height
            if not rows_left:
                return

    def _table_schema(self) -> dict[str, pl.DataType]:
        schema = {}
        for number in sorted(range(len(self._first)), key=self._first.__getitem__):
            for name in self._columns[number]:
                if name not in schema:
                    inferred = _infer_dtype(self._kinds[name], name, self.name)
                    schema[name] = _apply_declared_kind(
                        inferred, DTYPES.get(self._declared.get(name, ""))
                    )
        # The declared order comes first, because rows may omit cells, and the first rows may then
        # name the columns in another order.
        schema = {name: schema[name] for name in (*self._declared, *schema) if name in schema}
        return schema or {name: DTYPES[kind] for name, kind in self._declared.items()}


def has_waiting_rows(folder: Path) -> bool:
    """Return whether rows of a run wait in a file, because its process has written no tables."""
    return (folder / ROWS).exists()


def read_recordings(folder: Path) -> dict[str, TableBuffer]:
    """Return the tables of an unfinished run, as a map from name to table.

    The tables hold the rows that the run has recorded so far.
    Raises StorageError if the file of rows cannot be read.
    """
    # The run may be active or killed.
    file = RowFile(folder)
    if not file.path.is_file():
        return {}
    return {
        name: TableBuffer.from_shape(name, file, shape)
        for name, shape in file.table_shapes().items()
    }


# Half of a character outside the basic plane. UTF-8 cannot encode it.
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def row_cells(row: Mapping[str, object], table: str) -> dict[str, TableCell]:
    """Return the values of a row as the files of the run store the values.

    Raises ProtocolError for an invalid value.
    """
    return dict(zip(row, _list_cells(row, table), strict=True))


def _list_cells(row: Mapping[str, object], table: str) -> list[TableCell]:
    # Most cells are short texts or empty. They are decided here, because a call per cell is a
    # noticeable part of the cost of a call of the model.
    return [
        value
        if value is None or (type(value) is str and value.isascii())
        else _check_cell(value, name, table)
        for name, value in row.items()
    ]


def _check_cell(value: object, name: str, table: str) -> TableCell:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # `isascii` is quick and decides most texts, so the pattern search is rare.
        if not value.isascii() and _LONE_SURROGATE.search(value):
            raise ProtocolError(f"table {table}, column {name}: the text holds half a character")
        # Store plain types. Sourced texts and numbers would keep their sources in memory.
        return value if type(value) is str else str(value)
    if isinstance(value, float):
        if math.isinf(value):
            raise ProtocolError(
                f"table {table}, column {name}: a cell cannot be infinite; record None for an "
                "unknown value, or a finite number"
            )
        return None if math.isnan(value) else float(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ProtocolError(
                f"table {table}, column {name}: a whole number has at most 63 bits; record a float "
                "or text"
            )
        return int(value)
    try:
        if isinstance(value, Mapping):
            return json.dumps({str(name): item for name, item in value.items()}, ensure_ascii=False)
        if isinstance(value, (list, tuple)):
            return json.dumps(list(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"table {table}, column {name}: {error}") from error
    type_name = type(value).__name__
    hint = {
        "coroutine": "put `await` before the call that gave it",
        "Missing": "there is no answer: record None, and its `.reason` in another column",
        "set": "sets have no order: record sorted(…)",
    }.get(type_name, "record text, a number, True, False, None, a list or a dict")
    raise ProtocolError(f"table {table}, column {name}: a cell cannot be a {type_name}; {hint}")


def _infer_dtype(kinds: set[str], name: str, table: str) -> pl.DataType | None:
    # None if all cells of the column are missing.
    kinds = kinds - {"NoneType"}
    if not kinds:
        return None
    if kinds == {"str"}:
        return pl.String()
    if kinds == {"bool"}:
        return pl.Boolean()
    if kinds == {"int"}:
        return pl.Int64()
    if kinds <= {"int", "float"}:
        return pl.Float64()
    names = " and ".join(sorted(kinds))
    raise ProtocolError(f"table {table}, column {name}: {names} in one column; record one kind")


def _apply_declared_kind(inferred: pl.DataType | None, declared: pl.DataType | None) -> pl.DataType:
    if inferred is None:
        return declared or pl.String()
    # A declared float may replace integers without loss. For any other difference, keep the kind of
    # the recorded cells.
    is_integer = inferred.is_integer() and declared is not None and declared.is_float()
    return declared if is_integer and declared is not None else inferred
