"""Find errors in the code of a study author, with their location and a hint."""

# The command line passes every error to `find_author_error`. A forgotten `await` raises no error,
# so `report_unawaited_coroutines` detects it while a run is active.

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar, cast

from pydantic import BaseModel

from folkmoot.errors import FolkmootError, Problem, ProtocolError
from folkmoot.hints import did_you_mean
from folkmoot.registry import STUDIES, installed_entry_points

T = TypeVar("T")

# The names of modules made from single study files begin with this.
STUDY_MODULE_PREFIX = "folkmoot_study_"
PACKAGE_ROOT = Path(__file__).parents[2]

_ADD_AWAIT_HINT = "put `await` before the call that returned it"
_REMOVE_AWAIT_HINT = "leave out `await`: record, log, prompt and the like are plain calls"
# Python's warning for a coroutine that was never awaited. It names the file and the line of the
# call only while coroutine origin tracking is on.
_NEVER_AWAITED_PATTERN = re.compile(
    r"coroutine '(?P<name>.+)' was never awaited"
    r"(?:\n.*?File \"(?P<file>.+?)\", line (?P<line>\d+))?",
    re.DOTALL,
)


def find_author_error(error: BaseException) -> Problem | None:
    """Return the problem in the study author's code that caused an error.

    Returns None if the study author's code did not cause the error.
    """
    # Folkmoot's other errors explain themselves.
    if isinstance(error, FolkmootError) and not isinstance(error, ProtocolError):
        return None
    # Python turns a StopIteration in a coroutine into a RuntimeError, and the engine turns a
    # SystemExit into a ProtocolError. The cause has the traceback that leads to the author's line.
    if isinstance(error.__cause__, (StopIteration, SystemExit)):
        error = error.__cause__
    # A ProtocolError may know its place. Its traceback may not, for example for a missing `await`.
    error_location = getattr(error, "location", None)
    location = (
        error_location
        if error_location and _is_author_file(error_location[0], "")
        else last_author_location(error)
    )
    if location is None:
        return None
    message = str(error) if isinstance(error, ProtocolError) else f"{type(error).__name__}: {error}"
    return Problem(message, location[0], str(location[1]), hint=_suggest_fix(error))


def locate_load_error(error: BaseException, path: Path) -> str:
    """Return the number of the line that caused an error when the file at `path` was loaded.

    Returns "" if the line is unknown.
    """
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return str(error.lineno or "")
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return str(lines[-1]) if lines else ""


def locate_calling_study_code() -> tuple[str, int] | None:
    """Return file and line of the study code that called this function, or None.

    The innermost frame of study code on the call stack counts.
    """
    # The innermost frame counts. Study code is all code outside this package.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and PACKAGE_ROOT in Path(frame.f_code.co_filename).parents:
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def locate_function(function: Callable[..., object]) -> tuple[str, int] | None:
    """Return the file and the first line of a function, or None if Python does not know them."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else None


def check_members(
    returned: object, wanted: type[T], name: str, function: Callable[..., object], remedy: str = ""
) -> Iterator[T]:
    """Yield the members of what a study author's function returned.

    - `name`: how the study names the function, such as `derived_tables`.
    - `remedy`: what to write instead. Empty: to yield objects of the class.

    Raises ProtocolError for a member of another class, and if nothing was returned.
    """
    # A text would be taken apart into its letters.
    is_list = isinstance(returned, Iterable) and not isinstance(returned, str)
    for member in cast(Iterable[object], returned) if is_list else (returned,):
        if not is_list or not isinstance(member, wanted):
            remedy = remedy or f"yield {wanted.__name__}(…)"
            raise wrong_return_value(name, member, remedy, function)
        yield member


def wrong_return_value(
    name: str, returned: object, remedy: str, function: Callable[..., object]
) -> ProtocolError:
    """Return the error for a function of a study that returned something of a wrong class."""
    # No line of the study raises an error if only its return value is wrong.
    message = f"{name} gave {type(returned).__name__}; {remedy}"
    return ProtocolError(message, locate_function(function))


@contextmanager
def report_unawaited_coroutines(on_unawaited: Callable[[ProtocolError], object]) -> Iterator[None]:
    """Report each missing `await` in study code while this context manager is open.

    - `on_unawaited`: receives a ProtocolError with file and line.
    """

    # Study code is all code outside this package.
    def report_warning(message: Warning | str, *args: object, **options: object) -> None:
        match = _NEVER_AWAITED_PATTERN.match(str(message))
        file, line = (match["file"], match["line"]) if match else (None, None)
        if match is None or file is None or PACKAGE_ROOT in Path(file).parents:
            # Any other warning is shown as before.
            original_showwarning(message, *args, **options)  # type: ignore[arg-type]
            return
        name = match["name"].removeprefix("Scope.").removeprefix("Session.")
        on_unawaited(
            ProtocolError(
                f"{name}(…) is not awaited, so it did nothing; write `await` "
                f"before it ({Path(file).name}, line {line})",
                (file, int(line or 0)),
            )
        )

    depth = sys.get_coroutine_origin_tracking_depth()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", r"coroutine .* was never awaited", RuntimeWarning)
        original_showwarning, warnings.showwarning = warnings.showwarning, report_warning
        # One frame is enough: the line that created the coroutine. Each further frame costs time.
        sys.set_coroutine_origin_tracking_depth(1)
        tasks_before = asyncio.all_tasks()
        try:
            yield
            for task in asyncio.all_tasks() - tasks_before:
                if (error := _find_unawaited_task(task)) is not None:
                    on_unawaited(error)
        finally:
            sys.set_coroutine_origin_tracking_depth(depth)


def _find_unawaited_task(task: asyncio.Task[object]) -> ProtocolError | None:
    # A task of study code that is still pending at the end of the protocol. Its questions would not
    # be asked, and asyncio would report nothing before Python ends.
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    origin = getattr(coroutine, "cr_origin", None)
    if task.done() or code is None or not origin:
        return None
    file, line, _ = origin[0]
    folders = {PACKAGE_ROOT, Path(asyncio.__file__).parents[1]}
    if folders & {*Path(file).parents} or "site-packages" in Path(file).parts:
        return None
    name = code.co_qualname.removeprefix("Scope.").removeprefix("Session.")
    return ProtocolError(
        f"{name}(…) runs in a task that is not awaited, so the protocol ended before it; write "
        f"`await` before the call, or use map() for calls at the same time ({Path(file).name}, "
        f"line {line})",
        (file, line),
    )


def last_author_location(error: BaseException) -> tuple[str, int] | None:
    """Return the file and the innermost line of the study author's code that led to an error.

    Returns None if no line of the author's code led to the error.
    """
    # The innermost frame counts.
    locations = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_author_frame(frame)
    ]
    return locations[-1] if locations else None


def _is_author_frame(frame: FrameType) -> bool:
    return _is_author_file(frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")))


def _is_author_file(file: str, module: str) -> bool:
    packages = {
        point.value.partition(":")[0].partition(".")[0]
        for point in installed_entry_points(STUDIES).values()
    }
    if module.partition(".")[0] in packages - {"folkmoot"}:
        return True
    path = Path(file)
    # A virtual environment may be inside the folder of the study, but its packages are not.
    if PACKAGE_ROOT in path.parents or "site-packages" in path.parts:
        return False
    # A copy of the modules, because another thread may import one during the loop.
    study_module_files = (
        module.__file__
        for name, module in list(sys.modules.items())
        if name.startswith(STUDY_MODULE_PREFIX)
    )
    return any(
        Path(module_file).parent in path.parents
        for module_file in study_module_files
        if module_file
    )


def _suggest_fix(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, SystemExit):
        return "return instead; a study must not end the process"
    # The second wording is that of Python 3.14.
    if "'await' expression" in text or "can't be awaited" in text:
        return _REMOVE_AWAIT_HINT
    if "coroutine" in text and not isinstance(error, ProtocolError):
        return _ADD_AWAIT_HINT
    if isinstance(error, AttributeError) and error.name:
        return did_you_mean(error.name, _attribute_names(error.obj))
    if isinstance(error, NameError) and error.name:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        return did_you_mean(
            error.name, [*frames[-1].f_locals, *frames[-1].f_globals] if frames else []
        )
    return ""


def _attribute_names(value: object) -> list[str]:
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    return [name for name in dir(value) if not name.startswith("_")]
