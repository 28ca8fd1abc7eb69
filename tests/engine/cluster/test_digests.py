"""A run on a cluster gives the same bytes as one in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study import registered_studies
from tests.contract.runs import digest, play

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
    cluster: None, small_run: Callable[[str], Path], tmp_path: Path
) -> None:
    same_on(2, SHORT, folkmoot.load(small_run(SHORT)), tmp_path)


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_every_study_gives_the_same_bytes(
    study: str, workers: int, cluster: None, small_run: Callable[[str], Path], tmp_path: Path
) -> None:
    same_on(workers, study, folkmoot.load(small_run(study)), tmp_path)
