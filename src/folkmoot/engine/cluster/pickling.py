"""Serialise the data that machines exchange: functions, items, results and errors."""

# A reference to the run is replaced by a reference to the run of the receiving process. Values on
# disk are copied to the disk store of the receiving process. The module needs Ray for its
# cloudpickle.

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar, cast

from ray import cloudpickle

from folkmoot.engine.session.map_execution import run_locally
from folkmoot.engine.session.run_context import ForkItem, ForkLike, RunContext
from folkmoot.engine.session.session import Fork
from folkmoot.engine.settings.author_errors import last_author_location
from folkmoot.errors import ProtocolError
from folkmoot.storage.disk_store import DiskStore, StoredValue

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

RUN_REFERENCE = "run"
# The first line of an error's note that holds its traceback in another process.
ELSEWHERE = "In another process:\n"
# True while an item runs. A fork inside an item runs locally, as on a worker.
_inside_item = ContextVar("within a part", default=False)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    # Replaces a reference to the run by a name, and reads in values on disk.
    def persistent_id(self, value: object) -> object:
        if isinstance(value, RunContext):
            return RUN_REFERENCE
        return value.to_bytes() if isinstance(value, StoredValue) else None


class _Unpickler(pickle.Unpickler):
    # Values that the sender kept on disk are stored on this machine's disk, in `disk_store`.
    def __init__(self, data: bytes, run: RunContext | None, disk_store: DiskStore | None) -> None:
        super().__init__(io.BytesIO(data))
        self._run = run
        self._disk_store = disk_store

    def persistent_load(self, reference: object) -> object:
        if isinstance(reference, bytes):
            return StoredValue.from_bytes(reference, self._disk_store)
        if self._run is None:
            raise pickle.UnpicklingError("it refers to the run before the run exists")
        return self._run


def pickle_value(value: object) -> bytes:
    """Return the value as bytes.

    If an object in the value cannot be pickled, the error of the pickling is raised.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def unpickle_value(data: bytes, run: RunContext | None = None) -> object:
    """Return the value that `pickle_value` turned into bytes.

    `run`: the run of this process. References to the run in the value will point to `run`.
    """
    return _Unpickler(data, run, None if run is None else run.disk_store).load()


def pickle_function(
    value: object, description: str, fn: Callable[..., object] | None = None
) -> bytes:
    """Return a value of the study, such as a function, as bytes.

    - `description`: the name of the value in the error message.
    - `fn`: the function from which the value comes. The error message names the location of the
      function, and the variable that cannot be pickled.

    Raises ProtocolError if the value cannot be pickled.
    """
    try:
        return pickle_value(value)
    # A class of the study may raise anything when it is pickled.
    except Exception as error:
        raise ProtocolError(
            f"{description} cannot be sent to another machine{_find_unpicklable_variable(fn)} "
            f"({error}); use plain values, or run without --executor",
            _function_location(fn),
        ) from error


def _find_unpicklable_variable(fn: Callable[..., object] | None) -> str:
    # Returns part of an error message.
    for name, value in _closure_variables(fn):
        try:
            pickle_value(value)
        # The variable may raise anything when it is pickled.
        except Exception:
            return f": {getattr(fn, '__name__', 'it')} uses {name}"
    return ""


async def run_pickled_locally(
    run: RunContext,
    fork: ForkLike[I, R],
    fork_items: Sequence[ForkItem[I]],
    results: dict[int, R],
    stage: str,
) -> dict[int, BaseException]:
    """Run the items of a `Scope.map` call in this process, in the way of a cluster worker.

    This shows before a cluster is used whether the study can run on a cluster.

    - `results`: the dictionary to fill, a map from item number to result.
    - `stage`: the name of the stage in progress reports.

    Returns a map from item number to error, for the failed items. Raises ProtocolError if something
    cannot be pickled, or if the function changes outer variables.
    """
    # On another machine the function would change a copy of its variables. Only the outer `map` of
    # nested ones is pickled.
    if _inside_item.get():
        return await run_locally(run, fork, fork_items, results, stage)
    local_fork = cast("Fork[I, R]", fork)
    description = f"map() at {'/'.join(local_fork.path) or 'session'}"
    copied_fork = cast(
        "Fork[I, R]", unpickle_value(pickle_function(local_fork, description, local_fork.fn), run)
    )
    items = pickle_function(list(fork_items), f"an item of {description}")
    # Take the snapshot of the copy, because items run with the copy.
    closure_before = _snapshot_closure(copied_fork.fn)
    copied_items, token = (
        cast("list[ForkItem[I]]", unpickle_value(items, run)),
        _inside_item.set(True),
    )
    try:
        failures = await run_locally(run, copied_fork, copied_items, results, stage)
    finally:
        _inside_item.reset(token)
    # Only to check: results would be sent back from a worker.
    pickle_function(results, f"the result of {description}", local_fork.fn)
    changed = [
        name
        for name, value in _snapshot_closure(copied_fork.fn).items()
        if value != closure_before[name]
    ]
    if changed and not failures:
        raise ProtocolError(
            f"{description} changes {', '.join(changed)}, but on another machine it would "
            "change a copy; return the values that the study needs, or run without --executor",
            _function_location(local_fork.fn),
        )
    return failures


def _snapshot_closure(fn: Callable[..., object]) -> dict[str, object]:
    # Returns the value of each plain variable, and the length of each container.
    closure: dict[str, object] = {}
    for name, value in _closure_variables(fn):
        if isinstance(value, (list, dict, set)):
            closure[name] = len(value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            closure[name] = value
    return closure


def _closure_variables(fn: Callable[..., object] | None) -> Iterator[tuple[str, object]]:
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=False):
        # ValueError: the variable has no value yet.
        with suppress(ValueError):
            yield name, cell.cell_contents


def _function_location(fn: Callable[..., object] | None) -> tuple[str, int] | None:
    code = getattr(fn, "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


def picklable_error(error: BaseException) -> BaseException:
    """Return the error in a form that can be pickled and sent to a different process."""
    # The returned error has the line of the study author's code that caused the error, and a note
    # with the traceback. An error that cannot be pickled becomes a ProtocolError with the same
    # message.
    location = getattr(error, "location", None) or last_author_location(error)
    # One error may end many items. Its notes are part of its traceback, so a note for each item
    # would double it each time.
    if not any(note.startswith(ELSEWHERE) for note in getattr(error, "__notes__", ())):
        error.add_note(ELSEWHERE + "".join(traceback.format_exception(error)))
    try:
        if location is not None:
            error.location = location  # type: ignore[attr-defined]
        return cast("BaseException", unpickle_value(pickle_value(error.with_traceback(None))))
    # The error, or an object it refers to, may raise anything when it is pickled.
    except Exception:
        return ProtocolError(f"{type(error).__name__}: {error}", location)
