"""A run on a cluster gives the same bytes as one in this process."""

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
from tests.engine.cluster.runs import worker_of
from tests.faults.lab import pilot
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough
SHORT = "negotiation"  # parts with scopes of earlier stages, parts within parts


def same_on(workers: int, study: str, alone: folkmoot.Run, tmp_path: Path) -> None:
    run = play(study, tmp_path / "run", model="synthetic", executor="ray", workers=workers)
    assert digest(run) == digest(alone)
    used = run.manifest["models"]
    assert used == alone.manifest["models"]
    assert run.manifest["calls"] == alone.manifest["calls"]
    assert not (run.path / ".shards").exists()


def test_two_workers_give_the_bytes_of_one_process(
    cluster: None, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    same_on(2, SHORT, folkmoot.load(run_of_small_study(SHORT)), tmp_path)


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
    same_on(workers, study, folkmoot.load(run_of_small_study(study)), tmp_path)


@pytest.mark.nightly(part="kills")
def test_a_killed_worker_changes_no_source_of_a_text_in_a_study_with_embeddings(
    cluster: None, key: None, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(), latency=0.05, answers="respondent") as server:
        # Chats and embeddings are calls to two models, whose workers share the concurrency.
        endpoints = f"endpoints: {{openai/m: {server.openai}, openai/e: {server.openai}}}\n"
        study = pilot(tmp_path, f"conditions: [simple_passive, acp]\n{endpoints}")
        text = study.read_text("utf-8").replace("openai/test-model", "openai/m")
        study.write_text(f"{text}embedding_model: openai/e\n", "utf-8")
        alone = folkmoot.run(study, out=tmp_path / "alone", trust=True)
        asked, out = len(server.model.log), tmp_path / "run"
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(folkmoot.run, study, out=out, trust=True, executor="ray", workers=3)
            wait_until(lambda: len(server.model.log) >= 1.5 * asked)
            os.kill(worker_of(list_shards(out / SHARD_FOLDER)[0]), signal.SIGKILL)
            done = run.result()
    assert "a worker was lost" in (out / "run.log").read_text("utf-8")
    assert digest(done) == digest(alone)
    assert len(done.table("provenance")) and len(done.table("exposure"))
