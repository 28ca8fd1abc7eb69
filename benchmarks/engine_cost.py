"""Measure the CPU time of the engine per call, with a model in this process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import folkmoot
from benchmarks.small_study import STUDY
from folkmoot.models.request import Completion, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider

USAGE = Usage(300, 1)


def answer(request: ModelRequest, address: str) -> Completion:
    return Completion("Jobs", USAGE, "model-served", "id")


def run(participants: int = 1000, turns: int = 10) -> dict[str, float]:
    """Return the microseconds of CPU time (all threads) and of wall time per call."""
    settings = {"participants": participants, "turns": turns, "concurrency": 256}
    with tempfile.TemporaryDirectory() as folder:
        empty = {**settings, "participants": 1, "turns": 1}
        folkmoot.run(STUDY, empty, out=Path(folder) / "warm", provider=ScriptedProvider(answer))
        cpu, wall = time.process_time(), time.perf_counter()
        folkmoot.run(STUDY, settings, out=Path(folder) / "run", provider=ScriptedProvider(answer))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    calls = participants * turns
    return {"calls": calls, "cpu_us": cpu / calls * 1e6, "wall_us": wall / calls * 1e6}
