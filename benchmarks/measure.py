"""Run one measurement in a separate process, to measure only its memory and CPU time."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLKMOOT = str(Path(sys.executable).with_name("folkmoot"))
# `ru_maxrss` is in bytes on macOS, and in KB on other systems.
MAXRSS_PER_MB = 2**20 if sys.platform == "darwin" else 1024


class Used(NamedTuple):
    """The seconds of CPU of a command and its child processes, and the peak memory.

    The memory is that of the largest process, in MB.
    """

    cpu_s: float
    peak_mb: float


def alone(function: str, **arguments: object) -> dict[str, float]:
    """Call `module.function(**arguments)` in a new process, and return the result."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "benchmarks.measure", function, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def used_by(*command: object) -> Used:
    """Run `folkmoot …` to its end. Raises RuntimeError with its output if it failed.

    A small process starts the command, because Linux counts the memory of the starting process in
    the peak of the started one, and a test runner uses a gigabyte.
    """
    words = [FOLKMOOT, *map(str, command)]
    return Used(**alone("benchmarks.measure.waited_for", command=words, folder=str(Path.cwd())))


def waited_for(command: list[str], folder: str) -> dict[str, float]:
    """Run a command in a folder to its end, and return the values of `Used`."""
    with tempfile.TemporaryFile() as said:
        env = {**os.environ, "FOLKMOOT_TRUST": "1"}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode()[-3000:])
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / MAXRSS_PER_MB}


def peak_mb() -> float:
    """Return the peak memory (MB) of this process, without that of the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MAXRSS_PER_MB
    peak = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def main() -> None:
    """`python -m benchmarks.measure module.function '{"argument": 1}'`"""
    module, _, name = sys.argv[1].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    print(json.dumps(function(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
