"""A shelf for values that a run needs again later, but not all at once: personas, conversations.

They are kept in an unnamed file that goes with the process; only their place in it stays in memory.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import IO, Generic, TypeVar, cast

from folkmoot.files import storage_errors

T = TypeVar("T")
LENGTH_PREFIX_BYTES = 8  # bytes that say how long a value is


class DiskStore:
    """Values on the disk, in a folder that can hold them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0

    def write(self, data: bytes) -> int:
        """Where these bytes lie. Raises StorageError."""
        with storage_errors(self._folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            self._file.seek(self._end)
            self._file.write(len(data).to_bytes(LENGTH_PREFIX_BYTES, "big") + data)
        place, self._end = self._end, self._end + LENGTH_PREFIX_BYTES + len(data)
        return place

    def read(self, place: int) -> bytes:
        """The bytes at a place. Raises StorageError."""
        assert self._file is not None
        with storage_errors(self._folder):
            self._file.seek(place)
            return self._file.read(int.from_bytes(self._file.read(LENGTH_PREFIX_BYTES), "big"))


class StoredValue(Generic[T]):
    """A value on a shelf; `get` reads it back. To another process it goes as the value itself."""

    __slots__ = ("_place", "_shelf", "_value")

    def __init__(self, value: T, shelf: DiskStore | None = None) -> None:
        self._shelf = shelf
        self._value = value if shelf is None else None
        self._place = 0 if shelf is None else shelf.write(pickle.dumps(value, 5))

    def get(self) -> T:
        """The value. Raises StorageError."""
        if self._shelf is None:
            return cast("T", self._value)
        return cast("T", pickle.loads(self._shelf.read(self._place)))

    def to_bytes(self) -> bytes:
        """The value as bytes, to go onto the shelf of another process: see `from_bytes`."""
        return (
            pickle.dumps(self._value, 5) if self._shelf is None else self._shelf.read(self._place)
        )

    @classmethod
    def from_bytes(cls, data: bytes, shelf: DiskStore | None) -> StoredValue[T]:
        """What `to_bytes` gave, on a shelf; without one in memory."""
        made = cls.__new__(cls)
        made._shelf = shelf
        made._value = pickle.loads(data) if shelf is None else None
        made._place = 0 if shelf is None else shelf.write(data)
        return made

    def __reduce__(self) -> tuple[type[StoredValue[T]], tuple[T]]:
        return StoredValue, (self.get(),)
