"""A store on disk for values that a run needs later, such as personas and conversations."""

# The values are kept in an unnamed file, which the system deletes when the process ends. Only their
# offsets stay in memory.

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import IO, Generic, TypeVar, cast

from folkmoot.files import storage_errors

T = TypeVar("T")
# The number of bytes before each value that hold its length.
LENGTH_PREFIX_BYTES = 8


class DiskStore:
    """A temporary file for values that a run needs later."""

    # The system deletes the file when it is closed, or when the process ends.

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0

    def write(self, data: bytes) -> int:
        """Append `data` to the file, and return the offset at which `data` starts.

        Raises StorageError for a disk error.
        """
        with storage_errors(self._folder):
            if self._file is None:
                # The file stays open for the whole run, so there is no `with` block. It is in the
                # run folder, because the system's temporary folder may be small or in memory.
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            self._file.seek(self._end)
            self._file.write(len(data).to_bytes(LENGTH_PREFIX_BYTES, "big") + data)
        offset, self._end = self._end, self._end + LENGTH_PREFIX_BYTES + len(data)
        return offset

    def read(self, offset: int) -> bytes:
        """Return the bytes that `write` stored at an offset.

        Raises StorageError for a disk error.
        """
        assert self._file is not None
        with storage_errors(self._folder):
            self._file.seek(offset)
            return self._file.read(int.from_bytes(self._file.read(LENGTH_PREFIX_BYTES), "big"))


class StoredValue(Generic[T]):
    """A handle for a value on disk. `load` reads the value."""

    __slots__ = ("_disk_store", "_offset", "_value")

    def __init__(self, value: T, disk_store: DiskStore | None = None) -> None:
        self._disk_store = disk_store
        self._value = value if disk_store is None else None
        # Each `load` returns a new copy, so a change to one copy does not affect the others.
        self._offset = 0 if disk_store is None else disk_store.write(pickle.dumps(value, 5))

    def load(self) -> T:
        """Return the stored value. Raises StorageError for a disk error."""
        if self._disk_store is None:
            return cast("T", self._value)
        return cast("T", pickle.loads(self._disk_store.read(self._offset)))

    def to_bytes(self) -> bytes:
        """Return the value as bytes, so that a different process can store it."""
        return (
            pickle.dumps(self._value, 5)
            if self._disk_store is None
            else self._disk_store.read(self._offset)
        )

    @classmethod
    def from_bytes(cls, data: bytes, disk_store: DiskStore | None) -> StoredValue[T]:
        """Store a value, and return a handle for the value.

        - `data`: the value as `to_bytes` encoded it.
        - `disk_store`: the store, or None to keep the value in memory.
        """
        # The constructor would pickle the value again.
        stored_value = cls.__new__(cls)
        stored_value._disk_store = disk_store
        stored_value._value = pickle.loads(data) if disk_store is None else None
        stored_value._offset = 0 if disk_store is None else disk_store.write(data)
        return stored_value

    def __reduce__(self) -> tuple[type[StoredValue[T]], tuple[T]]:
        # Pickle the value itself, because the file belongs to this process.
        return StoredValue, (self.load(),)
