"""Measure the pilot (1,200 and 20,000 participants) and eight concurrent town-hall discussions.

The measures are the makespan over HTTP, the replay and the memory. Each function runs in a separate
process (see `measure.py`), so that only its memory is measured.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import folkmoot
from benchmarks import quick_server
from benchmarks.http_cost import plain_run
from benchmarks.measure import peak_mb
from folkmoot.engine.calls.progress import CallDone, Event, Progress, StageStarted, ignore_progress

EXAMPLES = Path(__file__).parents[1] / "examples"
PILOT = EXAMPLES / "cross_pollination.yaml"
TOWN_HALL = EXAMPLES / "town_hall.yaml"
MODEL = "openai/test-model"
# Stages of the pilot that call the server; those of one step run side by side.
STEPS = (
    ("initial_vote",),
    ("clarification",),
    ("summaries",),
    ("adversarial_dialogue", "cross_pollination", "second_vote"),
)


def pilot_makespan(folder: str, concurrency: int) -> dict[str, float]:
    """Measure the pilot over HTTP with a latency of 1 s, which is typical of real models."""
    return _makespan(
        PILOT,
        ("embedding_model=synthetic",),  # the server knows none
        Path(folder),
        latency=1.0,
        concurrency=concurrency,
        chain_of=_pilot_chain,
    )


ALIKE = ("sets=8", "levels=['2-1']")
MIXED = ("sets=2", "levels=['1', '2-1', '3', '4']")


def town_hall_makespan(folder: str, mixed: bool, latency: float = 1.0) -> dict[str, float]:
    """Measure eight concurrent discussions of one level or of four, at concurrency 64."""
    return _makespan(
        TOWN_HALL,
        MIXED if mixed else ALIKE,
        Path(folder),
        latency=latency,
        concurrency=64,
        chain_of=_discussion_chain,
    )


def synthetic(folder: str, per_condition: int = 300) -> dict[str, float]:
    """Return the wall time and the peak memory of the pilot with the embedded respondent."""
    began = time.perf_counter()
    size = f"participants_per_condition={per_condition}"
    run = folkmoot.run(PILOT, out=Path(folder), overrides=(size,))
    wall = time.perf_counter() - began
    manifest = run.folder.manifest
    return {"calls": manifest["calls"], "wall_s": wall, "peak_mb": peak_mb()}


def replay(folder: str) -> dict[str, float]:
    """Replay the run from the journal: no model is called, all files are written again."""
    began = time.perf_counter()
    folkmoot.run(PILOT, out=Path(folder))
    wall = time.perf_counter() - began
    return {"wall_s": wall, "cpu_s": time.process_time(), "peak_mb": peak_mb()}


def _makespan(
    study: Path,
    changes: tuple[str, ...],
    folder: Path,
    *,
    latency: float,
    concurrency: int,
    chain_of: Callable[[Path], int],
    turns: int = 1,
) -> dict[str, float]:
    """Compare the time of a study over HTTP with the ideal, in turns with plain aiohttp.

    In a first run the server computes each reply. In the measured runs it waits for its latency and
    sends the stored reply. The ideal is the larger of two times: calls ÷ concurrency × latency, and
    the longest chain of calls × latency. The ratios are medians over the ideal; times are seconds:

    - `ratio`: the whole command, from the reading of the study file to the last table.
    - `calls_ratio`: the part from the beginning of the first stage to the last reply.
    - `plain_ratio`: plain aiohttp with as many calls to the same server.
    """

    def once(name: str, progress: Progress = ignore_progress) -> folkmoot.Run:
        there = f"endpoints={{{MODEL}: '{server.openai}'}}"
        return folkmoot.run(
            study,
            out=folder / name,
            overrides=(*changes, there),
            model=MODEL,
            concurrency=concurrency,
            progress=progress,
        )

    def plain() -> float:
        began = time.perf_counter()
        plain_run(server.openai, concurrency, rounds, concurrency)
        return time.perf_counter() - began

    def measured(name: str) -> tuple[float, float, float]:
        moments: list[float] = []

        def note(event: Event) -> None:
            if isinstance(event, CallDone) or (isinstance(event, StageStarted) and not moments):
                moments.append(time.perf_counter())

        cpu, began = time.process_time(), time.perf_counter()
        once(name, note)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        return moments[-1] - moments[0], wall, cpu

    with quick_server.start() as server:
        run = once("first").path
        calls, chain = _calls(run), chain_of(run)
        rounds = round(calls / concurrency)
        plain()
        server.set_latency(latency)
        found = [(plain(), *measured(f"turn{n}")) for n in range(turns)]
    plain_s, calls_s, wall, cpu = map(statistics.median, zip(*found, strict=True))
    ideal = max(calls * latency / concurrency, chain * latency)
    return {
        "calls": calls,
        "chain": chain,
        "turns": turns,
        "ideal_s": ideal,
        "ratio": wall / ideal,
        "calls_ratio": calls_s / ideal,
        "wall_s": wall,
        "plain_ratio": plain_s / (rounds * latency),
        "cpu_s": cpu,
        "peak_mb": peak_mb(),
    }


def _calls(run: Path) -> int:
    """Return the number of calls to the server, which are the entries with its model."""
    with sqlite3.connect(run / "journal.sqlite") as db:
        row = db.execute("SELECT count(*) FROM entries WHERE model_asked = ?", (MODEL,)).fetchone()
    return int(row[0])


def _calls_by_scope(run: Path) -> Counter[tuple[str, ...]]:
    """Count the calls to the server by the path of their scope."""
    query = "SELECT address FROM entries WHERE model_asked = ?"
    with sqlite3.connect(run / "journal.sqlite") as db:
        return Counter(tuple(row[0].split("/")[:-1]) for row in db.execute(query, (MODEL,)))


def _pilot_chain(run: Path) -> int:
    """Return the number of calls in the longest chain.

    Steps follow one another, and the stages of a step run concurrently. In a stage each participant
    (or cluster) has a separate chain.
    """
    chains: Counter[tuple[str, ...]] = Counter()
    for path, calls in _calls_by_scope(run).items():
        chains[path[:4] if path[0] == "summaries" else path[:2]] += calls
    return sum(
        max((n for path, n in chains.items() if path[0] in step), default=0) for step in STEPS
    )


def _discussion_chain(run: Path) -> int:
    """Return the number of calls in the longest chain of one discussion.

    The stages of a discussion follow one another. In each stage every speaker (the last part of
    the path) has a separate chain.
    """
    longest: dict[tuple[str, ...], int] = {}
    for path, calls in _calls_by_scope(run).items():
        longest[path[:-1]] = max(longest.get(path[:-1], 0), calls)
    discussions: Counter[str] = Counter()
    for place, calls in longest.items():
        discussions[place[0] if place else ""] += calls
    return max(discussions.values())
