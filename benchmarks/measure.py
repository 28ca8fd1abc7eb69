"""Runs one measurement in a process of its own, so that its memory and CPU time are its own."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def alone(function: str, **arguments: object) -> dict[str, float]:
    """Call `module.function(**arguments)` in a fresh process; what it returned."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "benchmarks.measure", function, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """`python -m benchmarks.measure module.function '{"argument": 1}'`"""
    module, _, name = sys.argv[1].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    print(json.dumps(function(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
