"""Runs of the two-stage study against a local server, in this process or in a killable one."""

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


def write_study_file(folder: Path, url: str, **settings: object) -> Path:
    """Write a study file that uses the server at this URL."""
    folder.mkdir(parents=True, exist_ok=True)
    content: Mapping[str, object] = {
        "study": str(STUDY),
        "model": "openai/m",
        "endpoints": {"openai/m": url},
        "max_tokens": 20,
        **settings,
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(dict(content)), "utf-8")
    return path


def count_journaled(run: Path, shards: Iterable[Path] | None = None) -> int:
    """Count the answers on disk, in the journal and in all shards or the given shards."""
    addresses: set[str] = set()
    shards = list_shards(run / SHARD_FOLDER) if shards is None else shards
    for file in filter(Path.exists, [run / "journal.sqlite", *shards]):
        # The file may not be complete yet.
        with suppress(StorageError), JournalReader(file) as journal:
            addresses.update(journal.list_addresses())
    return len(addresses)


def read_worker_pid(shard: Path) -> int:
    """Return the process id of the worker that writes a shard."""
    return int(shard.stem.split("-")[0])


class HeadProcess:
    """A run in a separate process, on the cluster of this process."""

    def __init__(self, study: Path, out: Path, workers: int) -> None:
        import ray

        address = ray.get_runtime_context().gcs_address
        command = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
        self.process = subprocess.Popen(
            add_default_signals(*command, "--executor", "ray", "--workers", workers, "--trust"),
            env={**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> HeadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def run_two_stages(study: Path, out: Path, **options: Any) -> folkmoot.Run:
    """Run a study in this process."""
    return folkmoot.run(study, out=out, trust=True, **options)


def assert_same_results(run: folkmoot.Run, local_run: folkmoot.Run) -> None:
    assert digest(run) == digest(local_run) and run.manifest["calls"] == local_run.manifest["calls"]
    assert not (run.path / ".shards").exists()
