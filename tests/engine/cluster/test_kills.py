"""Workers and heads that are killed: the same run in the end, and nothing is paid for twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import folkmoot
from tests.engine.cluster.runs import Head, journaled, play, study_file, the_same, workers_of
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough
AT = 20  # answers before the server lets everybody wait


def stopped_in_the_middle(server: ServerThread, run: Path) -> Counter[str]:
    """Wait until the server answers nobody and all that it said is on the disk; what it said."""
    wait_until(lambda: len(server.model.log) == AT and journaled(run) >= AT)
    return Counter(server.model.log)


@contextmanager
def held_server() -> Iterator[ServerThread]:
    """A server that answers so many and lets everybody else wait."""
    with ServerThread(FaultPlan(hold_after=AT)) as server:
        try:
            yield server
        finally:
            go_on(server)


def go_on(server: ServerThread) -> None:
    server.model.plan = FaultPlan()


def nothing_paid_twice(server: ServerThread, paid: Counter[str], alone: folkmoot.Run) -> None:
    asked = Counter(server.model.log)
    assert len(asked) == alone.manifest["calls"] and all(asked[one] == 1 for one in paid)


def test_a_worker_that_is_killed_is_replaced(
    cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool, held_server() as server:
        study, out = study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        run = pool.submit(play, study, out, executor="ray", workers=2)
        paid = stopped_in_the_middle(server, out)
        os.kill(workers_of(out)[0], signal.SIGKILL)
        go_on(server)
        done = run.result()
        nothing_paid_twice(server, paid, alone)
    the_same(done, alone)
    assert "a worker was lost" in (out / "run.log").read_text()


@pytest.mark.parametrize(
    "workers",
    [None, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.nightly)],
)
def test_a_head_that_is_killed_is_resumed_by_anybody(
    workers: int | None, cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    with held_server() as server:
        study, out = study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        with Head(study, out, workers=2) as head:
            paid = stopped_in_the_middle(server, out)
            head.process.kill()
        go_on(server)
        executor = {} if workers is None else {"executor": "ray", "workers": workers}
        done = play(study, out, resume=True, **executor)
        nothing_paid_twice(server, paid, alone)
    the_same(done, alone)
