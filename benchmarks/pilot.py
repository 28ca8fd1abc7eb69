"""The pilot of 1,200 participants: makespan over HTTP, replay, memory; and 20,000 participants.

Each function is run in a process of its own (see `measure.py`), so that memory is its own.
"""

from __future__ import annotations

import resource
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import folkmoot
from tests.servers.process import ServerProcess

STUDY = Path(__file__).parents[1] / "examples" / "cross_pollination.yaml"
MODEL = "openai/test-model"


def makespan(folder: str, latency: float = 0.1, concurrency: int = 256) -> dict[str, float]:
    """Wall time of the pilot over HTTP against the ideal, in seconds.

    The server thinks every request over in a first run; in the second, which is measured, it
    only waits its latency and answers. The ideal is the longer of calls ÷ concurrency × latency
    and the longest chain of calls × latency.
    """
    with ServerProcess(latency=0.0, answers="respondent") as server:
        options = {"model": MODEL, "concurrency": concurrency}
        _with_server(server.openai, Path(folder) / "first", options)
        server.change(latency=latency)
        cpu, wall = time.process_time(), time.perf_counter()
        run = _with_server(server.openai, Path(folder) / "second", options)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    calls = _calls(run.path)
    chain = _longest_chain(run.path)
    ideal = max(calls * latency / concurrency, chain * latency)
    return {
        "calls": calls,
        "chain": chain,
        "wall_s": wall,
        "ideal_s": ideal,
        "ratio": wall / ideal,
        "cpu_s": cpu,
        "peak_mb": _peak_mb(),
    }


def synthetic(folder: str, per_condition: int = 300) -> dict[str, float]:
    """The pilot with the embedded respondent: wall time and peak memory."""
    began = time.perf_counter()
    size = f"participants_per_condition={per_condition}"
    run = folkmoot.run(STUDY, out=Path(folder), overrides=(size,))
    wall = time.perf_counter() - began
    manifest = run.folder.manifest
    return {"calls": manifest["calls"], "wall_s": wall, "peak_mb": _peak_mb()}


def replay(folder: str) -> dict[str, float]:
    """The same again from the journal: nothing is asked, all files are written anew."""
    began = time.perf_counter()
    folkmoot.run(STUDY, out=Path(folder), resume=True)
    return {"wall_s": time.perf_counter() - began, "peak_mb": _peak_mb()}


def _with_server(url: str, out: Path, options: dict[str, Any]) -> folkmoot.Run:
    endpoints = f"endpoints={{{MODEL}: '{url}'}}"
    return folkmoot.run(STUDY, out=out, overrides=(endpoints,), **options)


def _calls(run: Path) -> int:
    """Calls that went to the server: what is journaled under its model."""
    with sqlite3.connect(run / "journal.sqlite") as db:
        row = db.execute("SELECT count(*) FROM entries WHERE model_asked = ?", (MODEL,)).fetchone()
    return int(row[0])


def _longest_chain(run: Path) -> int:
    """Most calls to the server that had to wait for each other: the sum over the stages, which
    follow one another, of the most calls of one participant."""
    query = "SELECT address FROM entries WHERE model_asked = ?"
    with sqlite3.connect(run / "journal.sqlite") as db:
        scopes = Counter(row[0].rpartition("/")[0] for row in db.execute(query, (MODEL,)))
    longest: dict[str, int] = {}
    for scope, calls in scopes.items():
        stage = "/".join(scope.split("/")[:-1])
        longest[stage] = max(longest.get(stage, 0), calls)
    return sum(longest.values())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
