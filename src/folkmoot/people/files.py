"""Files written whole or not at all, for what the people package keeps between runs."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from folkmoot.errors import StorageError

_DISK = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EFBIG}


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `path` only when the block ends well.

    Raises StorageError when the folder cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _storage(path, error) from error
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(_as_usual())
        Path(name).replace(path)
    except OSError as error:
        # What fails inside the block may be a connection (those are OSErrors too): not ours.
        if error.errno in _DISK:
            raise _storage(path, error) from error
        raise
    finally:
        Path(name).unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """`data` as readable UTF-8 JSON, whole or not at all."""
    text = json.dumps(data, ensure_ascii=False, indent=1)
    with whole_file(path) as out:
        out.write(text.encode() + b"\n")


def _as_usual() -> int:
    """The mode that a plain new file would get (a temporary one is for its owner alone)."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _storage(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {error.strerror or error}")
