"""What goes between machines: functions with what they refer to, items, results, errors.

Whoever refers to the run gets that of the process where it arrives, and values on a shelf go onto
the shelf there. Needs Ray (its cloudpickle).
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable
from typing import cast

from ray import cloudpickle

from folkmoot.engine.authors import last_place
from folkmoot.engine.context import RunContext
from folkmoot.errors import ProtocolError
from folkmoot.storage.shelf import Kept, Shelf

THE_RUN = "run"


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    def persistent_id(self, value: object) -> object:
        if isinstance(value, RunContext):
            return THE_RUN
        return value.packed() if isinstance(value, Kept) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, run: RunContext | None, shelf: Shelf | None) -> None:
        super().__init__(io.BytesIO(data))
        self._run = run
        self._shelf = shelf

    def persistent_load(self, named: object) -> object:
        if isinstance(named, bytes):
            return Kept.of(named, self._shelf)
        if self._run is None:
            raise pickle.UnpicklingError("it refers to the run before there is one")
        return self._run


def packed(value: object) -> bytes:
    """The value as bytes. Raises whatever its parts raise that cannot be pickled."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def unpacked(data: bytes, run: RunContext | None = None) -> object:
    """The value of these bytes, in a run."""
    return _Unpickler(data, run, None if run is None else run.shelf).load()


def packed_by_name(value: object, what: str, fn: Callable[..., object] | None = None) -> bytes:
    """`packed`; raises ProtocolError that says what of a function cannot go to another machine."""
    try:
        return packed(value)
    except Exception as error:  # whatever a class of the study's raises when it is pickled
        code = getattr(fn, "__code__", None)
        place = (code.co_filename, code.co_firstlineno) if code else None
        raise ProtocolError(
            f"{what} cannot go to another machine{_culprit(fn)} ({error}); give it plain values, "
            "or run without --executor",
            place,
        ) from error


def _culprit(fn: Callable[..., object] | None) -> str:
    """The variable that a function closes over and that cannot be pickled, if it is one."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=False):
        try:
            packed(cell.cell_contents)
        except Exception:  # see `packed_by_name`
            return f": {getattr(fn, '__name__', 'it')} uses {name}"
    return ""


def sendable(error: BaseException) -> BaseException:
    """The error as it can be sent: with the line of the author's code that led to it, and the
    traceback as a note. One that cannot be pickled becomes a ProtocolError that tells of it."""
    place = getattr(error, "place", None) or last_place(error)
    error.add_note("".join(traceback.format_exception(error)))
    try:
        if place is not None:
            error.place = place  # type: ignore[attr-defined]
        return cast("BaseException", unpacked(packed(error.with_traceback(None))))
    except Exception:  # see `packed_by_name`
        return ProtocolError(f"{type(error).__name__}: {error}", place)
