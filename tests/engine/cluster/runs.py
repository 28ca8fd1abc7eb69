"""Runs of the two-stage study against a local server, here and in a process that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.journal.shards import SHARD_FOLDER, list_shards
from folkmoot.errors import StorageError
from tests.contract.runs import digest
from tests.default_signals import add_default_signals

ROOT = Path(__file__).parents[3]
KEY = "sk-for-the-cluster-of-the-tests-0123456789"
STUDY = Path(__file__).with_name("two_stages.py")


def study_file(folder: Path, url: str, **settings: object) -> Path:
    """A study file that asks the server at this URL."""
    folder.mkdir(parents=True, exist_ok=True)
    asked: Mapping[str, object] = {
        "study": str(STUDY),
        "model": "openai/m",
        "endpoints": {"openai/m": url},
        "max_tokens": 20,
        **settings,
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(dict(asked)), "utf-8")
    return path


def journaled(run: Path, shards: Iterable[Path] | None = None) -> int:
    """How many answers are on the disk, in the journal and in the shards, or in these."""
    found: set[str] = set()
    shards = list_shards(run / SHARD_FOLDER) if shards is None else shards
    for file in filter(Path.exists, [run / "journal.sqlite", *shards]):
        with suppress(StorageError), JournalReader(file) as journal:  # it may be about to be made
            found.update(journal.list_addresses())
    return len(found)


def worker_of(shard: Path) -> int:
    """The process id of the worker that writes a shard."""
    return int(shard.stem.split("-")[0])


class Head:
    """A run in a process of its own, on the cluster of this process."""

    def __init__(self, study: Path, out: Path, workers: int) -> None:
        import ray

        address = ray.get_runtime_context().gcs_address
        line = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
        self.process = subprocess.Popen(
            add_default_signals(*line, "--executor", "ray", "--workers", workers, "--trust"),
            env={**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Head:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def play(study: Path, out: Path, **options: Any) -> folkmoot.Run:
    """A run in this process."""
    return folkmoot.run(study, out=out, trust=True, **options)


def the_same(run: folkmoot.Run, alone: folkmoot.Run) -> None:
    assert digest(run) == digest(alone) and run.manifest["calls"] == alone.manifest["calls"]
    assert not (run.path / ".shards").exists()
