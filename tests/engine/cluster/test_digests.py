"""A run on a cluster gives the same bytes as a run in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.journal.shards import SHARD_FOLDER, list_shards
from folkmoot.engine.study.study import registered_studies
from tests.contract.runs import digest, play
from tests.engine.cluster.runs import read_worker_pid
from tests.faults.lab import write_pilot_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough
SHORT_STUDY = "negotiation"  # items with scopes of earlier stages, and nested forks


def assert_same_digest(workers: int, study: str, local_run: folkmoot.Run, tmp_path: Path) -> None:
    run = play(study, tmp_path / "run", model="synthetic", executor="ray", workers=workers)
    assert digest(run) == digest(local_run)
    models = run.manifest["models"]
    assert models == local_run.manifest["models"]
    assert run.manifest["calls"] == local_run.manifest["calls"]
    assert not (run.path / ".shards").exists()


def test_two_workers_give_the_bytes_of_one_process(
    cluster: None, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    assert_same_digest(2, SHORT_STUDY, folkmoot.load(run_of_small_study(SHORT_STUDY)), tmp_path)


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_every_study_gives_the_same_bytes(
    study: str,
    workers: int,
    cluster: None,
    run_of_small_study: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    assert_same_digest(workers, study, folkmoot.load(run_of_small_study(study)), tmp_path)


@pytest.mark.nightly(part="kills")
def test_killed_worker_changes_no_text_source_in_a_study_with_embeddings(
    cluster: None, key: None, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(), latency=0.05, answers="respondent") as server:
        # Chats and embeddings use two models. The workers of both share the concurrency.
        endpoints = f"endpoints: {{openai/m: {server.openai}, openai/e: {server.openai}}}\n"
        study = write_pilot_study(tmp_path, f"conditions: [simple_passive, acp]\n{endpoints}")
        text = study.read_text("utf-8").replace("openai/test-model", "openai/m")
        study.write_text(f"{text}embedding_model: openai/e\n", "utf-8")
        run_in_process = folkmoot.run(study, out=tmp_path / "alone", trust=True)
        call_count, out = len(server.model.log), tmp_path / "run"
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(folkmoot.run, study, out=out, trust=True, executor="ray", workers=3)
            wait_until(lambda: len(server.model.log) >= 1.5 * call_count)
            os.kill(read_worker_pid(list_shards(out / SHARD_FOLDER)[0]), signal.SIGKILL)
            finished_run = run.result()
    assert "a worker was lost" in (out / "run.log").read_text("utf-8")
    assert digest(finished_run) == digest(run_in_process)
    assert len(finished_run.table("provenance")) and len(finished_run.table("exposure"))
