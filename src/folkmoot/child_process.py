"""Run large or risky work in a child process."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from folkmoot.errors import FolkmootError, LimitReached
from folkmoot.files import storage_errors

try:
    import resource
except ImportError:
    # Windows has no such limits. There, only the time-out of the parent ends a process.
    resource = None  # type: ignore[assignment]

# Numeric libraries use one thread, so that results do not depend on the number of cores.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_STATM = Path("/proc/self/statm")
# The exit status of a child that has no memory left. Its output may then be cut or mixed with other
# messages.
_OUT_OF_MEMORY = errno.ENOMEM


@dataclass(frozen=True)
class Limits:
    """Limits for the work that a child process does."""

    # The limit of CPU time. Elapsed time has a limit of six times as much.
    seconds: int
    # The limit of memory. macOS does not enforce the memory limit. Windows enforces only the
    # elapsed time.
    memory_bytes: int


def run_in_child(
    fn: Callable[..., object],
    args: Sequence[object],
    *,
    limits: Limits | None = None,
    folder: Path | None = None,
    blocked_modules: Sequence[str] = (),
) -> object:
    """Return `fn(*args)`, computed in a child process with one thread.

    - `blocked_modules`: optional modules that the child cannot import.
    - `folder`: the folder for temporary files.

    Raises LimitReached if the child exceeds a limit. Raises StorageError for a disk error. Raises
    FolkmootError for any other error in the child.
    """
    # A child without the blocked modules starts faster.
    folder = folder or Path(tempfile.gettempdir())
    name = f"{fn.__module__}.{fn.__qualname__}"
    with storage_errors(folder), tempfile.TemporaryFile(dir=folder) as request_file:
        # First, because unpickling the function imports its module.
        pickle.dump(blocked_modules, request_file, protocol=5)
        pickle.dump((fn, args, limits), request_file, protocol=5)
        request_file.seek(0)
        try:
            process = subprocess.run(
                # -P: do not import modules from the working directory, which may be untrusted.
                (sys.executable, "-P", "-m", "folkmoot.child_process"),
                stdin=request_file,
                capture_output=True,
                env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
                # In a new session, Ctrl-C does not reach the child. The run handles it.
                start_new_session=True,
                check=False,
                timeout=6 * limits.seconds if limits else None,
            )
        except subprocess.TimeoutExpired as error:
            raise LimitReached(f"{name}: not done after {error.timeout:.0f} seconds") from error
    if process.returncode:
        error_lines = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        reason = (
            error_lines[0]
            if error_lines
            else f"status {process.returncode}; was there enough memory?"
        )
        if process.returncode == _OUT_OF_MEMORY:
            reason = "MemoryError"
        # A negative return code is a signal: the system killed the child at a limit.
        at_limit = limits and (process.returncode < 0 or reason.startswith("MemoryError"))
        raise (LimitReached if at_limit else FolkmootError)(f"{name}: {reason}")
    return pickle.loads(process.stdout)


def _set_limits(limits: Limits) -> None:
    if resource is None:
        return
    bounds = {resource.RLIMIT_CPU: limits.seconds}
    if _STATM.exists():
        # The limit counts from here, without the memory that the imports took.
        size = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        bounds[resource.RLIMIT_AS] = size + limits.memory_bytes
    for kind, bound in bounds.items():
        hard_limit = resource.getrlimit(kind)[1]
        allowed_bound = bound if hard_limit == resource.RLIM_INFINITY else min(bound, hard_limit)
        # macOS rejects some limits.
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (allowed_bound, allowed_bound))


def main() -> None:
    """Read a function and its arguments from standard input and write the pickled result."""
    for name in pickle.load(sys.stdin.buffer):
        sys.modules[name] = None  # type: ignore[assignment]
    fn, args, limits = pickle.load(sys.stdin.buffer)
    if limits is not None:
        _set_limits(limits)
    try:
        result = pickle.dumps(fn(*args), 5)
    except MemoryError:
        # A traceback may need more memory than is left.
        os._exit(_OUT_OF_MEMORY)
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()
    # A normal exit would free each object first, which takes long after a large computation.
    os._exit(0)


if __name__ == "__main__":
    main()
