"""Compare a new process that asks 300 personas one question with a bare script."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import quick_server

HERE = Path(__file__).parent
FOLKMOOT = str(Path(sys.executable).with_name("folkmoot"))
PEOPLE, CONCURRENCY, LATENCY, TURNS = 300, 64, 0.1, 5
STUDY = f"""\
study: {HERE / "small_study.py"}
model: openai/test-model
participants: {PEOPLE}
turns: 1
choose: false
concurrency: {CONCURRENCY}
"""


def run() -> dict[str, float]:
    """Return the medians of the wall seconds of both, run in turns, and the median ratio."""
    with quick_server.start() as server, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "study.yaml").write_text(STUDY)
        env = {**os.environ, "OPENAI_BASE_URL": server.openai, "FOLKMOOT_TRUST": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def timed(*command: object) -> float:
            began = time.perf_counter()
            subprocess.run([str(c) for c in command], env=env, check=True, capture_output=True)
            return time.perf_counter() - began

        def ours(name: str) -> float:
            return timed(FOLKMOOT, "run", folder / "study.yaml", "--out", folder / name)

        def bare(name: str) -> float:
            script, table = HERE / "bare_script.py", folder / f"{name}.sqlite"
            return timed(sys.executable, script, server.openai, table, PEOPLE, CONCURRENCY)

        ours("first"), bare("first")  # In the first run the server computes each reply.
        server.set_latency(LATENCY)
        turns = [(ours(f"run{n}"), bare(f"run{n}")) for n in range(TURNS)]
    return {
        "folkmoot_s": statistics.median(o for o, _ in turns),
        "bare_s": statistics.median(b for _, b in turns),
        "ratio": statistics.median(o / b for o, b in turns),
    }


def help_seconds() -> dict[str, float]:
    """Return the wall seconds of `folkmoot --help`, the median of five."""
    found = []
    for _ in range(TURNS):
        began = time.perf_counter()
        subprocess.run([FOLKMOOT, "--help"], check=True, capture_output=True)
        found.append(time.perf_counter() - began)
    return {"wall_s": statistics.median(found)}
