"""A computation in a process of its own: `python -m` this module, by `effects.py`.

What clusters thousands of vectors loads libraries and makes copies; a large run should not hold
them in memory to its end.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from folkmoot.errors import FolkmootError
from folkmoot.files import storage_errors
from folkmoot.randomness import one_thread

OWN = "folkmoot."  # functions of other modules may not be found by another process


def done_aside(fn: Callable[..., object], args: Sequence[object], folder: Path) -> object:
    """`fn(*args)`; what is handed over waits in a file of `folder` without a name.

    Raises StorageError, and FolkmootError with the last line of what went wrong there.
    """
    with storage_errors(folder), tempfile.TemporaryFile(dir=folder) as asked:
        pickle.dump((fn, args), asked, protocol=5)
        asked.seek(0)
        done = subprocess.run(
            # -P: no module of the folder that this was started in, which a stranger may have sent.
            (sys.executable, "-P", "-m", "folkmoot.engine.session.subprocess_compute"),
            stdin=asked,
            capture_output=True,
            start_new_session=True,  # Ctrl-C is for the run to answer
            check=False,
        )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = said[0] if said else f"status {done.returncode}; was there enough memory?"
        raise FolkmootError(f"{fn.__module__}.{fn.__qualname__}: {why}")
    return pickle.loads(done.stdout)


def main() -> None:
    fn, args = pickle.load(sys.stdin.buffer)
    with one_thread():
        result = fn(*args)
    sys.stdout.buffer.write(pickle.dumps(result, 5))


if __name__ == "__main__":
    main()
