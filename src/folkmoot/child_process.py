"""A function in a process of its own: `python -m` this module.

For work that takes much memory, and for files from somebody else: those are read under limits, so
that a hostile one ends that process and not this one.
"""

from __future__ import annotations

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
except ImportError:  # Windows has no such limits: there only the clock ends a process
    resource = None  # type: ignore[assignment]

# A computation gives the same numbers however many cores there are.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Limits:
    """What a process may take once its function is imported: `seconds` of processor time, six times
    as many by the clock, and bytes of memory.

    macOS does not limit the memory; Windows limits the time by the clock alone.
    """

    seconds: int
    memory_bytes: int


def run_in_child(
    fn: Callable[..., object],
    args: Sequence[object],
    *,
    limits: Limits | None = None,
    folder: Path | None = None,
) -> object:
    """Return `fn(*args)`, done in one thread. What is handed over waits in a file of `folder`
    without a name.

    Raises StorageError, LimitReached, and FolkmootError with the last line of what went wrong.
    """
    folder = folder or Path(tempfile.gettempdir())
    name = f"{fn.__module__}.{fn.__qualname__}"
    with storage_errors(folder), tempfile.TemporaryFile(dir=folder) as asked:
        pickle.dump((fn, args, limits), asked, protocol=5)
        asked.seek(0)
        try:
            done = subprocess.run(
                # -P: no module of the folder that this was started in, which may be a stranger's.
                (sys.executable, "-P", "-m", "folkmoot.child_process"),
                stdin=asked,
                capture_output=True,
                env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
                start_new_session=True,  # Ctrl-C is for the run to answer
                check=False,
                timeout=6 * limits.seconds if limits else None,
            )
        except subprocess.TimeoutExpired as error:
            raise LimitReached(f"{name}: not done after {error.timeout:.0f} seconds") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = said[0] if said else f"status {done.returncode}; was there enough memory?"
        at_limit = limits and (done.returncode < 0 or why.startswith("MemoryError"))
        raise (LimitReached if at_limit else FolkmootError)(f"{name}: {why}")
    return pickle.loads(done.stdout)


def _set_limits(limits: Limits) -> None:
    if resource is None:
        return
    wanted = {resource.RLIMIT_CPU: limits.seconds}
    if _STATM.exists():  # what the imports took is not counted
        size = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        wanted[resource.RLIMIT_AS] = size + limits.memory_bytes
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(kind, (bound, bound))


def main() -> None:
    fn, args, limits = pickle.load(sys.stdin.buffer)
    if limits is not None:
        _set_limits(limits)
    try:
        result = pickle.dumps(fn(*args), 5)
    except MemoryError:
        # Too little may be left for a traceback, so the word is written without one.
        os.write(2, b"MemoryError\n")
        os._exit(1)
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()
    os._exit(0)  # what fills the memory takes long to be taken apart


if __name__ == "__main__":
    main()
