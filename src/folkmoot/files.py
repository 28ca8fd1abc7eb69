"""Files: atomic writes, CSV with line numbers, YAML, and disk errors in plain words."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import yaml

from folkmoot.errors import InputError, Problem, StorageError

# The error numbers of the disk. Other OSErrors, such as those of a connection, are not about it.
_DISK = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EFBIG}
DISK_IS_FULL = "the disk is full; free some space, then try again (a run: with --resume)"


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace the content of a file by `data`. If the write fails, the file stays unchanged.

    Raises StorageError for a disk error.
    """
    # The umask takes bits away from `mode`, as for any new file.
    with storage_errors(path), whole_file(path, mode) as file:
        file.write(data)


def write_with(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Replace the content of a file by the output of `write`.

    If `write` fails, the file stays unchanged. Raises StorageError for a disk error.
    """
    with storage_errors(path), whole_file(path) as file:
        write(file)


READ_CSV_OPTIONS = "save it as CSV in UTF-8, with commas, as many in each row as in the first"


class CsvTable(NamedTuple):
    """The cells of a CSV file as text, with the line number of each row."""

    # The names of the columns.
    columns: tuple[str, ...]
    # (line number, cells) of each row that is not blank.
    rows: list[tuple[int, dict[str, str]]]


def read_csv(text: str, name: str) -> CsvTable:
    """Return the table of a CSV text with a header. A missing cell is an empty text.

    Raises InputError for a faulty header or a row with too many cells.
    """
    # `name` is the file name for error messages.
    lines = csv.reader(io.StringIO(text))
    columns = tuple(column.strip() for column in next(lines, ()))
    if problem := header_problem(columns):
        raise InputError(Problem(problem, name, "1"))
    table = CsvTable(columns, [])
    for cells in lines:
        if any(cells[len(columns) :]):
            hint = "put a text that has commas into quotes"
            problem = "more cells than there are columns"
            raise InputError(Problem(problem, name, str(lines.line_num), hint=hint))
        row = dict(
            zip(
                columns, (column.strip() for column in (*cells, *[""] * len(columns))), strict=False
            )
        )
        if any(row.values()):
            table.rows.append((lines.line_num, row))
    return table


def header_problem(columns: Sequence[str], separator: str = ",") -> str:
    """Return what is wrong with the header of a CSV file, or an empty text."""
    names_by_separator = {";": "semicolons", "\t": "tabs", ",": "commas"}
    if len(columns) == 1:
        for other, separator_name in names_by_separator.items():
            if other != separator and other in columns[0]:
                hint = f"save it with {names_by_separator[separator]} between the columns"
                return f"its columns are separated by {separator_name}; {hint}"
    # polars renames a repeated column to "name_duplicated_0".
    column_names = [column.partition("_duplicated_")[0] for column in columns]
    count = Counter(column_names)
    duplicate = next((name for name in column_names if name and count[name] > 1), "")
    return f"two columns are called {duplicate}; leave one out" if duplicate else ""


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows, including a header, as a CSV text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# Several times as fast if PyYAML has libyaml. Its error messages are worse, so study files have
# another reader (`yaml_tree`).
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Deeper than any settings. libyaml would overflow the stack at some ten thousand levels.
MAX_YAML_DEPTH = 100


def read_yaml(text: str) -> Any:
    """Return the data of a YAML document from an untrusted source, in plain values only.

    Raises ValueError if the text is not valid YAML or is nested too deeply.
    """
    try:
        depth = 0
        # Events are read one after the other, so counting them needs no stack.
        for event in yaml.parse(text, Loader=_FAST_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_YAML_DEPTH:
                raise ValueError(f"nested more than {MAX_YAML_DEPTH} levels deep")
        return yaml.load(text, Loader=_FAST_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def packaged_yaml(module_file: str, name: str) -> Any:
    """Return the data of a YAML file that lies beside a module.

    Example: `packaged_yaml(__file__, "names_us.yaml")`
    """
    text = Path(module_file).with_name(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_FAST_LOADER)


def user_cache_dir() -> Path:
    """Return the user's cache folder for Folkmoot."""
    return _user_folder("Caches", "XDG_CACHE_HOME", ".cache")


def user_state_dir() -> Path:
    """Return the user's folder for data that Folkmoot keeps between runs and cannot recreate."""
    return _user_folder("Application Support", "XDG_STATE_HOME", ".local/state")


def _user_folder(library: str, xdg_variable: str, home_folder: str) -> Path:
    # Windows has one local folder for both kinds. `library` is the folder of macOS.
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / library
    else:
        root = Path(os.environ.get(xdg_variable) or Path.home() / home_folder)
    return root / "folkmoot"


# The name of the file that `whole_file` writes before it replaces the target.
TEMPORARY_NAME = re.compile(r"\..+\.[0-9a-f]{12}\.tmp", re.DOTALL)


def remove_temporary_files(folder: Path) -> None:
    """Remove the unfinished files that killed processes have left in a folder and below it.

    A process that is writing such a file fails.

    Raises StorageError for a disk error.
    """
    with storage_errors(folder):
        for path, _, names in os.walk(folder):
            for name in filter(TEMPORARY_NAME.fullmatch, names):
                Path(path, name).unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Context manager: open a binary file that replaces `path` only if the block succeeds.

    Raises StorageError for a disk error.
    """
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            # The content must be on the disk before the rename, or a power cut could leave an empty
            # file.
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
    """Context manager: raise a StorageError in plain words instead of an OSError."""
    try:
        yield
    except OSError as error:
        raise _storage_error(path, error) from error


# Why a file cannot be read or written, and what to do, by error number.
_REASONS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), DISK_IS_FULL),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM), "you have no permission; change the permissions of this path"
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST),
        "a file is where a folder is needed; choose another location",
    ),
    errno.EROFS: "the disk is read-only; choose another location",
    errno.EISDIR: "a folder is where a file is needed",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ELOOP: "a link leads back to itself",
}


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read, in plain words without the path."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return _REASONS.get(error.errno, error.strerror or str(error))


def explain_file_error(error: Exception) -> StorageError | None:
    """Return an error about a file in plain words, or None if the error is about something else."""
    # The path is missing if the output of a command cannot be written, and for connections.
    if not isinstance(error, OSError) or error.errno not in _DISK | _REASONS.keys():
        return None
    # An integer is the number of an open file.
    if error.filename is None or isinstance(error.filename, int):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return StorageError(f"the output of the command: {DISK_IS_FULL}") if is_full else None
    return StorageError(f"{os.fsdecode(error.filename)}: {reason_of(error)}")


def require_utf8(path: Path) -> None:
    """Raise StorageError if the name of a folder is not UTF-8."""
    # The library that reads and writes tables opens no files there. Old archives and the memory
    # sticks of other systems have such names.
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode("utf-8", "replace").decode()
        raise StorageError(
            f"{shown}: this name is not UTF-8; rename the folder, or choose another"
        ) from None


def _storage_error(path: Path, error: OSError) -> StorageError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            f"{path}: this location is not writable; make it writable, or choose another"
        )
    is_known = error.errno in _REASONS
    return StorageError(f"{path}: {'' if is_known else 'cannot be written: '}{reason_of(error)}")


def _sync_folder(folder: Path) -> None:
    # Sync the folder, so that the rename survives a power cut. Some file systems reject this. The
    # content of the file is already safe.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
