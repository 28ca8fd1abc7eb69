"""Measure a run through a batch API with more calls than one batch can hold."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import folkmoot
from benchmarks.measure import peak_mb
from benchmarks.small_study import STUDY
from folkmoot.engine.journal.journal_reader import JournalReader
from tests.servers.process import ServerProcess

MODEL = "openai/gpt-4o-mini"


def run(calls: int = 50_001) -> dict[str, float]:
    """Return the batches, the peak memory (MB), the seconds and the CPU time of so many calls."""
    os.environ["OPENAI_API_KEY"] = "key"
    settings = {
        "participants": calls,
        "turns": 1,
        "choose": False,  # the server answers with no option
        "model": MODEL,
        "batch": True,
        "batch_poll_seconds": 0.5,
    }
    with tempfile.TemporaryDirectory() as folder, ServerProcess() as server:
        began = time.perf_counter()
        run = folkmoot.run(
            STUDY, {**settings, "endpoints": {"openai": server.openai}}, out=Path(folder) / "run"
        )
        wall = time.perf_counter() - began
        assert run.folder.manifest["handed_in_by_batches"] >= calls
        with JournalReader(run.path / "journal.sqlite") as journal:
            batches = len(journal.read_batches())
    return {"batches": batches, "peak_mb": peak_mb(), "wall_s": wall, "cpu_s": time.process_time()}
