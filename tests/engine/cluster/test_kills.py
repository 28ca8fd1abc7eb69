"""Workers and heads that are killed: the same run in the end, and nothing is paid for twice."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import folkmoot
from folkmoot.engine.journal.shards import (
    SHARD_FOLDER,
    delete_shard,
    entries_after_row,
    list_shards,
)
from folkmoot.engine.limits.lender import MIN_CALLS_AHEAD, SHARE_AHEAD
from tests.engine.cluster.runs import (
    Head,
    journaled,
    play,
    study_file,
    the_same,
    worker_of,
)
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough
PEOPLE = 12
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


class Deaf:
    """A head that can stop listening: `cut` has it hear no report from the next on. `arrived`:
    how many entries of each shard it has or is about to put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> None:
        from folkmoot.engine.cluster import head

        hear, setup = head.ClusterExecutor._handle_report, head._worker_setup
        self.arrived: dict[Path, int] = {}
        self.stuck, self.listens = threading.Event(), threading.Event()
        self.listens.set()

        def heard(cluster: Any, worker: Any, report: Any) -> Any:
            self.arrived[worker.ready.shard_path] = worker.received_entry_count + len(
                report.entries
            )
            if not self.listens.is_set():
                self.stuck_in = worker.ready.shard_path
                self.stuck.set()
                self.listens.wait()
            return hear(cluster, worker, report)

        def elsewhere(*args: Any, **options: Any) -> Any:
            made = setup(*args, **options)
            return made if shared else made._replace(run_holder="of another folder")

        monkeypatch.setattr(head.ClusterExecutor, "_handle_report", heard)
        monkeypatch.setattr(head, "_worker_setup", elsewhere)

    def cut(self) -> Path:
        """Hear nobody; the shard of which nothing more can arrive."""
        self.listens.clear()
        self.stuck.wait(TIMEOUT_SECONDS)
        return self.stuck_in


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("shared", [True, False])
def test_of_workers_that_are_killed_only_what_a_lost_disk_had_not_sent_is_asked_again(
    shared: bool,
    cluster: None,
    alone: folkmoot.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaf, held = Deaf(monkeypatch, shared=shared), [b"Question 1"]

    async def wait_at(request: Any, handler: Any) -> Any:
        body = await request.read()
        while any(question in body for question in held):
            await asyncio.sleep(0.005)
        return await handler(request)

    with ThreadPoolExecutor(1) as pool, ServerThread(FaultPlan()) as server:
        server.model.between = wait_at
        study, out = study_file(tmp_path, server.openai, concurrency=24), tmp_path / "run"
        run = pool.submit(play, study, out, executor="ray", workers=2)
        try:
            wait_until(lambda: journaled(out, shards=()) == PEOPLE, lambda: server.model.log)
            lost = deaf.cut()
            held[:] = [b"Question 2 to p7"]  # all other parts end
            shards = list(deaf.arrived)
            assert {path.parent == out / SHARD_FOLDER for path in shards} == {shared}
            wait_until(lambda: journaled(out, shards=shards) == 3 * PEOPLE - 1)
            for shard in shards:
                os.kill(worker_of(shard), signal.SIGKILL)
            paid = Counter(server.model.log)
            unsent = len(entries_after_row(lost, deaf.arrived[lost]))
            delete_shard(lost)
        finally:
            held.clear()
            deaf.listens.set()
        done = run.result()
        asked = Counter(server.model.log)
    assert unsent and sum(asked[one] == 2 for one in paid) == unsent
    assert max(asked[one] for one in paid) == 2 and len(asked) == alone.manifest["calls"]
    told = done.manifest["possibly_paid"]  # what the lost disk had is in it
    assert told["workers"] == 2 and unsent <= told["calls"]
    assert asked.total() <= done.manifest["calls"] + told["calls"]
    the_same(done, alone)
    assert (out / "run.log").read_text().count("a worker was lost") == 2


class Losing:
    """An actor whose machine is lost between the end of its first share and the head's reading what
    came of it: Ray raises ObjectLostError then, and ActorDiedError only of later calls."""

    def __init__(self, actor: Any, shard: Path) -> None:
        self._actor, self._shard = actor, shard

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._actor, name)
        return SimpleNamespace(remote=self._lose) if name == "run_chunk" else found

    async def _lose(self, *args: Any) -> NoReturn:
        from ray.exceptions import ObjectLostError

        await self._actor.run_chunk.remote(*args)
        with suppress(ProcessLookupError):  # by an earlier share
            os.kill(worker_of(self._shard), signal.SIGKILL)
        raise ObjectLostError("00" * 28, "", "")


@pytest.mark.nightly(part="kills")
def test_a_share_whose_reply_is_lost_with_its_machine_is_run_again(
    cluster: None, alone: folkmoot.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from folkmoot.engine.cluster import head

    start, lost = head.ClusterExecutor._start_worker, []

    async def started(self: Any) -> str:
        said = await start(self)
        if not lost:
            worker = self._workers[0]
            worker.actor = Losing(worker.actor, worker.ready.shard_path)
            lost.append(worker)
        return said

    monkeypatch.setattr(head.ClusterExecutor, "_start_worker", started)
    with ServerThread(FaultPlan()) as server:
        study, out = study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        done = play(study, out, executor="ray", workers=2)
    assert (out / "run.log").read_text().count("a worker was lost") == 1
    the_same(done, alone)


@pytest.mark.nightly(part="kills")
def test_what_a_killed_worker_had_in_flight_is_possibly_paid(
    cluster: None, key: None, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool, held_server() as server:
        priced = {"model": "openai/gpt-4o-mini", "endpoints": {"openai": server.openai}}
        study = study_file(tmp_path, server.openai, concurrency=8, budget_calls=200, **priced)
        out = tmp_path / "run"
        run = pool.submit(play, study, out, executor="ray", workers=2)
        stopped_in_the_middle(server, out)
        os.kill(worker_of(list_shards(out / SHARD_FOLDER)[0]), signal.SIGKILL)
        wait_until(lambda: "a worker was lost" in (out / "run.log").read_text())
        go_on(server)
        done = run.result()
        server.wait_until_quiet()
        billed = len(server.model.log)
    told, calls = done.manifest["possibly_paid"], done.manifest["calls"]
    assert (told["processes"], told["workers"]) == (0, 1) and told["max_usd"] > 0
    assert calls <= billed <= calls + told["calls"]
    assert told["calls"] <= 8 + SHARE_AHEAD * 200 + MIN_CALLS_AHEAD


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("workers", [None, 2, 3])
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
        done = play(study, out, **executor)
        nothing_paid_twice(server, paid, alone)
        server.wait_until_quiet()
        billed = len(server.model.log)
    the_same(done, alone)
    told = done.manifest["possibly_paid"]
    assert told["processes"] == 1 and told["max_usd"] is None  # the model's price is unknown
    assert billed <= done.manifest["calls"] + told["calls"]
