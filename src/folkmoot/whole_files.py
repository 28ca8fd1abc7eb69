"""Files written whole or not at all: all of a run folder, and what is kept between runs."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from folkmoot.errors import StorageError

_DISK = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EFBIG}


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Replace a file by these bytes or leave it as it was; `mode` less the umask are its rights.

    Raises StorageError.
    """
    with storage_errors(path), whole_file(path, mode) as file:
        file.write(data)


def write_with(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Replace a file by what `write` writes, or leave it as it was. Raises StorageError."""
    with storage_errors(path), whole_file(path) as file:
        write(file)


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` only when the block ends well.

    Raises StorageError that says what the disk said. Other errors of the block pass, also those
    of a connection, which are OSErrors too.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(temporary, "xb", opener=lambda p, how: os.open(p, how, mode))  # noqa: SIM115
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
    """Turn what the disk says into a StorageError in plain words."""
    try:
        yield
    except OSError as error:
        raise _storage_error(path, error) from error


def _in_words(error: OSError) -> str:
    """What went wrong with the disk, and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, then go on with --resume (nothing is lost)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "this place cannot be written to; choose another place"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file stands where a folder is needed; choose another place"
    if error.errno == errno.EISDIR:
        return "a folder stands where a file is needed"
    return f"cannot be written: {error.strerror or error}"


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path}: {_in_words(error)}")


def _sync_folder(folder: Path) -> None:
    # Some file systems refuse to sync a folder; the file itself is safe by then.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
