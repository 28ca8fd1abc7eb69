"""What goes between machines: functions with what they refer to, items, results, errors.

Whoever refers to the run gets that of the process where it arrives, and values on a shelf go onto
the shelf there. Needs Ray (its cloudpickle).
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar, cast

from ray import cloudpickle

from folkmoot.engine.session.run_context import ForkItem, ForkLike, RunContext
from folkmoot.engine.session.session import Fork, run_locally
from folkmoot.engine.settings.author_errors import last_author_location
from folkmoot.errors import ProtocolError
from folkmoot.storage.disk_store import DiskStore, StoredValue

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

RUN_REFERENCE = "run"
ELSEWHERE = "In another process:\n"  # begins the note that holds a traceback
_inside_item = ContextVar("within a part", default=False)  # what runs was sent as a part, or by one


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    def persistent_id(self, value: object) -> object:
        if isinstance(value, RunContext):
            return RUN_REFERENCE
        return value.to_bytes() if isinstance(value, StoredValue) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, run: RunContext | None, shelf: DiskStore | None) -> None:
        super().__init__(io.BytesIO(data))
        self._run = run
        self._shelf = shelf

    def persistent_load(self, named: object) -> object:
        if isinstance(named, bytes):
            return StoredValue.from_bytes(named, self._shelf)
        if self._run is None:
            raise pickle.UnpicklingError("it refers to the run before there is one")
        return self._run


def pickle_value(value: object) -> bytes:
    """The value as bytes. Raises whatever its parts raise that cannot be pickled."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def unpickle_value(data: bytes, run: RunContext | None = None) -> object:
    """The value of these bytes, in a run."""
    return _Unpickler(data, run, None if run is None else run.shelf).load()


def pickle_function(value: object, what: str, fn: Callable[..., object] | None = None) -> bytes:
    """`pickle_value`; raises ProtocolError that says what of a function cannot go to another
    machine."""
    try:
        return pickle_value(value)
    except Exception as error:  # whatever a class of the study's raises when it is pickled
        raise ProtocolError(
            f"{what} cannot go to another machine{_find_unpicklable_variable(fn)} ({error}); give "
            "it plain values, "
            "or run without --executor",
            _function_location(fn),
        ) from error


def _find_unpicklable_variable(fn: Callable[..., object] | None) -> str:
    """The variable that a function closes over and that cannot be pickled, if it is one."""
    for name, value in _closure_variables(fn):
        try:
            pickle_value(value)
        except Exception:  # see `pickle_function`
            return f": {getattr(fn, '__name__', 'it')} uses {name}"
    return ""


async def run_pickled_locally(
    run: RunContext,
    fork: ForkLike[I, R],
    parts: Sequence[ForkItem[I]],
    results: dict[int, R],
    stage: str,
) -> dict[int, BaseException]:
    """An `ForkExecutor` for a rehearsal: everything goes as it would to another machine, and stays
    here. What a part forks in turn goes nowhere, as on a worker.

    Raises ProtocolError where something cannot go, or what `map` runs changes what it refers to:
    on another machine it would change a copy.
    """
    if _inside_item.get():
        return await run_locally(run, fork, parts, results, stage)
    each = cast("Fork[I, R]", fork)
    what = f"map() at {'/'.join(each.path) or 'session'}"
    sent = cast("Fork[I, R]", unpickle_value(pickle_function(each, what, each.fn), run))
    items = pickle_function(list(parts), f"an item of {what}")
    before = _snapshot_closure(sent.fn)
    arrived, within = cast("list[ForkItem[I]]", unpickle_value(items, run)), _inside_item.set(True)
    try:
        failures = await run_locally(run, sent, arrived, results, stage)
    finally:
        _inside_item.reset(within)
    pickle_function(results, f"what {what} gives", each.fn)
    changed = [name for name, value in _snapshot_closure(sent.fn).items() if value != before[name]]
    if changed and not failures:
        raise ProtocolError(
            f"{what} changes {', '.join(changed)}, and on another machine it would change a copy; "
            "return what the study needs, or run without --executor",
            _function_location(each.fn),
        )
    return failures


def _snapshot_closure(fn: Callable[..., object]) -> dict[str, object]:
    """What a function closes over: the value of what is plain, how much is in what can grow."""
    found: dict[str, object] = {}
    for name, value in _closure_variables(fn):
        if isinstance(value, (list, dict, set)):
            found[name] = len(value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def _closure_variables(fn: Callable[..., object] | None) -> Iterator[tuple[str, object]]:
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # not bound yet
            yield name, cell.cell_contents


def _function_location(fn: Callable[..., object] | None) -> tuple[str, int] | None:
    code = getattr(fn, "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


def picklable_error(error: BaseException) -> BaseException:
    """Return the error as it can be sent: with the line of the author's code that led to it, and
    the traceback as a note. One that cannot be pickled becomes a ProtocolError that tells of it."""
    place = getattr(error, "place", None) or last_author_location(error)
    # One error ends many parts. Its notes are part of its traceback, so a note for each part would
    # double it each time.
    if not any(note.startswith(ELSEWHERE) for note in getattr(error, "__notes__", ())):
        error.add_note(ELSEWHERE + "".join(traceback.format_exception(error)))
    try:
        if place is not None:
            error.place = place  # type: ignore[attr-defined]
        return cast("BaseException", unpickle_value(pickle_value(error.with_traceback(None))))
    except Exception:  # see `pickle_function`
        return ProtocolError(f"{type(error).__name__}: {error}", place)
