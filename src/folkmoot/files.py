"""Files: written whole or not at all, CSV read with its lines, data that ships with the code."""

from __future__ import annotations

import csv
import errno
import io
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import yaml

from folkmoot.errors import InputError, Problem, StorageError

_DISK = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EFBIG}


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace a file by these bytes or leave it as it was; `mode` less the umask are its rights.

    Raises StorageError.
    """
    with storage_errors(path), whole_file(path, mode) as file:
        file.write(data)


def write_with(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Replace a file by what `write` writes, or leave it as it was. Raises StorageError."""
    with storage_errors(path), whole_file(path) as file:
        write(file)


READ_CSV_OPTIONS = "save it as CSV in UTF-8, with commas, as many in each row as in the first"


class CsvTable(NamedTuple):
    """A CSV file as text: its columns, and each row that is not blank with its line."""

    columns: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]]


def read_csv(text: str, name: str) -> CsvTable:
    """A CSV text with a header, all cells stripped; a cell that is not there is empty.

    Raises InputError that names the file where a header is misread, or a row has too many cells.
    """
    lines = csv.reader(io.StringIO(text))
    columns = tuple(column.strip() for column in next(lines, ()))
    if wrong := header_problem(columns):
        raise InputError(Problem(wrong, name, "1"))
    table = CsvTable(columns, [])
    for cells in lines:
        if any(cells[len(columns) :]):
            hint = "put a text that has commas into quotes"
            what = "more cells than there are columns"
            raise InputError(Problem(what, name, str(lines.line_num), hint=hint))
        row = dict(
            zip(
                columns, (column.strip() for column in (*cells, *[""] * len(columns))), strict=False
            )
        )
        if any(row.values()):
            table.rows.append((lines.line_num, row))
    return table


def header_problem(columns: Sequence[str], mark: str = ",") -> str:
    """What is wrong with the header of a table that was read by this mark; else empty."""
    marks = {";": "semicolons", "\t": "tabs", ",": "commas"}
    if len(columns) == 1:
        for other, called in marks.items():
            if other != mark and other in columns[0]:
                mend = f"save it with {marks[mark]} between the columns"
                return f"its columns are separated by {called}; {mend}"
    names = [
        column.partition("_duplicated_")[0] for column in columns
    ]  # so polars tells them apart
    count = Counter(names)
    twice = next((name for name in names if name and count[name] > 1), "")
    return f"two columns are called {twice}; leave one out" if twice else ""


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows, a header among them, as a CSV text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def packaged_yaml(beside: str, name: str) -> Any:
    """Data that ships with the code: `packaged_yaml(__file__, "names_us.yaml")`."""
    return yaml.safe_load(Path(beside).with_name(name).read_text(encoding="utf-8"))


def user_cache_dir() -> Path:
    """The user's cache folder for Folkmoot, where the system keeps such folders."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "folkmoot"


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` only when the block ends well.

    Raises StorageError with the disk's error. Other errors of the block pass, also those
    of a connection, which are OSErrors too.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(temporary, "xb", opener=lambda part, how: os.open(part, how, mode))  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with storage_errors(path):
            temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _DISK:
            raise _storage_error(path, error) from error
        raise
    _sync_folder(path.parent)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a disk error into a StorageError in plain words."""
    try:
        yield
    except OSError as error:
        raise _storage_error(path, error) from error


def _describe_disk_error(error: OSError) -> str:
    """What went wrong with the disk, and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, then try again (a run: with --resume)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "this location is not writable; choose another"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file is where a folder is needed; choose another location"
    if error.errno == errno.EISDIR:
        return "a folder is where a file is needed"
    return f"cannot be written: {error.strerror or error}"


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path}: {_describe_disk_error(error)}")


def _sync_folder(folder: Path) -> None:
    # Some file systems refuse to sync a folder; the file itself is safe by then.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
