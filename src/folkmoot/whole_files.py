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


class Draft:
    """What shall become a file: a temporary file in the same folder, and then `finish` or `drop`.

    `finish` may run in another thread than what came before it. All raise StorageError that says
    what the disk said.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self._temporary.open("xb")

    def finish(self) -> None:
        """Sync the file and put it in its place; on any failure the place is left as it was."""
        try:
            with storage_errors(self.path):
                with self.file:
                    self.file.flush()
                    os.fsync(self.file.fileno())
                self._temporary.replace(self.path)
        except BaseException:
            self.drop()
            raise
        _sync_folder(self.path.parent)

    def drop(self) -> None:
        """Leave the place as it was."""
        with suppress(OSError):  # it may want to write what is left
            self.file.close()
        self._temporary.unlink(missing_ok=True)


def draft(path: Path, write: Callable[[IO[bytes]], Any]) -> Draft:
    """A draft of what `write` writes. Raises StorageError, and what else `write` raises."""
    made = Draft(path)
    try:
        with storage_errors(path):
            write(made.file)
    except BaseException:
        made.drop()
        raise
    return made


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file by these bytes or leave it as it was."""
    write_with(path, lambda file: file.write(data))


def write_with(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Replace a file by what `write` writes, or leave it as it was. Raises StorageError."""
    draft(path, write).finish()


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` only when the block ends well.

    Raises StorageError that says what the disk said. Other errors of the block pass, also those
    of a connection, which are OSErrors too.
    """
    made = Draft(path)
    try:
        yield made.file
    except OSError as error:
        made.drop()
        if error.errno in _DISK:
            raise _storage_error(path, error) from error
        raise
    except BaseException:
        made.drop()
        raise
    made.finish()


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
