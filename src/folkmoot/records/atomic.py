"""Writing a file whole or not at all: everything in a run folder is written through here."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from folkmoot.errors import StorageError


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file by these bytes or leave it as it was."""
    write_with(path, lambda file: file.write(data))


def write_with(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Let `write` fill a temporary file, then put it in the place of `path`.

    The temporary file is in the same folder, is synced before it is renamed, and is removed on
    any failure. Raises StorageError that says what the disk said.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the disk says into a StorageError in plain words."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {in_words(error)}") from error


def in_words(error: OSError) -> str:
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


def _sync_folder(folder: Path) -> None:
    # Some file systems refuse to sync a folder; the file itself is safe by then.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
