"""Killed workers and heads: the results are the same, and no call is paid for twice."""

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
    HeadProcess,
    assert_same_results,
    count_journaled,
    read_worker_pid,
    run_two_stages,
    write_study_file,
)
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough
PEOPLE = 12
HOLD_AFTER = 20  # answers before the server holds all requests


def wait_until_held(server: ServerThread, run: Path) -> Counter[str]:
    """Wait until the server holds all requests and every reply is on disk. Return the replies."""
    wait_until(lambda: len(server.model.log) == HOLD_AFTER and count_journaled(run) >= HOLD_AFTER)
    return Counter(server.model.log)


@contextmanager
def start_held_server() -> Iterator[ServerThread]:
    """Start a server that answers HOLD_AFTER requests and then holds all others."""
    with ServerThread(FaultPlan(hold_after=HOLD_AFTER)) as server:
        try:
            yield server
        finally:
            release_server(server)


def release_server(server: ServerThread) -> None:
    server.model.plan = FaultPlan()


def assert_no_call_paid_twice(
    server: ServerThread, paid: Counter[str], local_run: folkmoot.Run
) -> None:
    call_counts = Counter(server.model.log)
    assert len(call_counts) == local_run.manifest["calls"] and all(
        call_counts[request_digest] == 1 for request_digest in paid
    )


class DeafHead:
    """A head that can stop receiving reports.

    `cut` makes it ignore all later reports. `arrived` counts the entries of each shard that it has
    stored or is about to store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> None:
        from folkmoot.engine.cluster import head

        hear, setup = head.ClusterExecutor._handle_report, head._worker_setup
        self.arrived: dict[Path, int] = {}
        self.stuck, self.listens = threading.Event(), threading.Event()
        self.listens.set()

        def receive_report(cluster: Any, worker: Any, report: Any) -> Any:
            self.arrived[worker.ready.shard_path] = worker.received_entry_count + len(
                report.entries
            )
            if not self.listens.is_set():
                self.stuck_in = worker.ready.shard_path
                self.stuck.set()
                self.listens.wait()
            return hear(cluster, worker, report)

        def set_up_worker(*args: Any, **options: Any) -> Any:
            worker_setup = setup(*args, **options)
            return worker_setup if shared else worker_setup._replace(run_holder="of another folder")

        monkeypatch.setattr(head.ClusterExecutor, "_handle_report", receive_report)
        monkeypatch.setattr(head, "_worker_setup", set_up_worker)

    def cut(self) -> Path:
        """Stop receiving reports. Return the shard of which no more entries can arrive."""
        self.listens.clear()
        self.stuck.wait(TIMEOUT_SECONDS)
        return self.stuck_in


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("shared", [True, False])
def test_only_entries_that_a_lost_disk_had_not_sent_are_asked_again(
    shared: bool,
    cluster: None,
    local_run: folkmoot.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaf_head, held_questions = DeafHead(monkeypatch, shared=shared), [b"Question 1"]

    async def hold_questions(request: Any, handler: Any) -> Any:
        body = await request.read()
        while any(question in body for question in held_questions):
            await asyncio.sleep(0.005)
        return await handler(request)

    with ThreadPoolExecutor(1) as pool, ServerThread(FaultPlan()) as server:
        server.model.between = hold_questions
        study, out = write_study_file(tmp_path, server.openai, concurrency=24), tmp_path / "run"
        run = pool.submit(run_two_stages, study, out, executor="ray", workers=2)
        try:
            wait_until(lambda: count_journaled(out, shards=()) == PEOPLE, lambda: server.model.log)
            lost_shard = deaf_head.cut()
            held_questions[:] = [b"Question 2 to p7"]  # all other items end
            shards = list(deaf_head.arrived)
            assert {path.parent == out / SHARD_FOLDER for path in shards} == {shared}
            wait_until(lambda: count_journaled(out, shards=shards) == 3 * PEOPLE - 1)
            for shard in shards:
                os.kill(read_worker_pid(shard), signal.SIGKILL)
            paid = Counter(server.model.log)
            unsent = len(entries_after_row(lost_shard, deaf_head.arrived[lost_shard]))
            delete_shard(lost_shard)
        finally:
            held_questions.clear()
            deaf_head.listens.set()
        finished_run = run.result()
        call_counts = Counter(server.model.log)
    assert unsent and sum(call_counts[request_digest] == 2 for request_digest in paid) == unsent
    assert (
        max(call_counts[request_digest] for request_digest in paid) == 2
        and len(call_counts) == local_run.manifest["calls"]
    )
    # This includes the calls on the lost disk.
    manifest_entry = finished_run.manifest["possibly_paid"]
    assert manifest_entry["workers"] == 2 and unsent <= manifest_entry["calls"]
    assert call_counts.total() <= finished_run.manifest["calls"] + manifest_entry["calls"]
    assert_same_results(finished_run, local_run)
    assert (out / "run.log").read_text().count("a worker was lost") == 2


class LosingActor:
    """An actor that loses its machine after its first chunk and before the head reads the result.

    Ray then raises ObjectLostError, and ActorDiedError only for later calls."""

    def __init__(self, actor: Any, shard: Path) -> None:
        self._actor, self._shard = actor, shard

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._actor, name)
        return SimpleNamespace(remote=self._lose) if name == "run_chunk" else attribute

    async def _lose(self, *args: Any) -> NoReturn:
        from ray.exceptions import ObjectLostError

        await self._actor.run_chunk.remote(*args)
        with suppress(ProcessLookupError):  # an earlier chunk may have killed it
            os.kill(read_worker_pid(self._shard), signal.SIGKILL)
        raise ObjectLostError("00" * 28, "", "")


@pytest.mark.nightly(part="kills")
def test_chunk_with_a_result_lost_on_its_machine_is_run_again(
    cluster: None, local_run: folkmoot.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from folkmoot.engine.cluster import head

    start, lost_workers = head.ClusterExecutor._start_worker, []

    async def start_worker(self: Any) -> str:
        start_result = await start(self)
        if not lost_workers:
            worker = self._workers[0]
            worker.actor = LosingActor(worker.actor, worker.ready.shard_path)
            lost_workers.append(worker)
        return start_result

    monkeypatch.setattr(head.ClusterExecutor, "_start_worker", start_worker)
    with ServerThread(FaultPlan()) as server:
        study, out = write_study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        finished_run = run_two_stages(study, out, executor="ray", workers=2)
    assert (out / "run.log").read_text().count("a worker was lost") == 1
    assert_same_results(finished_run, local_run)


@pytest.mark.nightly(part="kills")
def test_calls_in_flight_of_a_killed_worker_are_possibly_paid(
    cluster: None, key: None, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool, start_held_server() as server:
        priced = {"model": "openai/gpt-4o-mini", "endpoints": {"openai": server.openai}}
        study = write_study_file(tmp_path, server.openai, concurrency=8, budget_calls=200, **priced)
        out = tmp_path / "run"
        run = pool.submit(run_two_stages, study, out, executor="ray", workers=2)
        wait_until_held(server, out)
        os.kill(read_worker_pid(list_shards(out / SHARD_FOLDER)[0]), signal.SIGKILL)
        wait_until(lambda: "a worker was lost" in (out / "run.log").read_text())
        release_server(server)
        finished_run = run.result()
        server.wait_until_quiet()
        billed = len(server.model.log)
    manifest_entry, calls = finished_run.manifest["possibly_paid"], finished_run.manifest["calls"]
    assert (manifest_entry["processes"], manifest_entry["workers"]) == (0, 1) and manifest_entry[
        "max_usd"
    ] > 0
    assert calls <= billed <= calls + manifest_entry["calls"]
    assert manifest_entry["calls"] <= 8 + SHARE_AHEAD * 200 + MIN_CALLS_AHEAD


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("workers", [None, 2, 3])
def test_killed_head_is_resumed_with_any_executor(
    workers: int | None, cluster: None, local_run: folkmoot.Run, tmp_path: Path
) -> None:
    with start_held_server() as server:
        study, out = write_study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        with HeadProcess(study, out, workers=2) as head:
            paid = wait_until_held(server, out)
            head.process.kill()
        release_server(server)
        executor = {} if workers is None else {"executor": "ray", "workers": workers}
        finished_run = run_two_stages(study, out, **executor)
        assert_no_call_paid_twice(server, paid, local_run)
        server.wait_until_quiet()
        billed = len(server.model.log)
    assert_same_results(finished_run, local_run)
    manifest_entry = finished_run.manifest["possibly_paid"]
    # The model's price is unknown.
    assert manifest_entry["processes"] == 1 and manifest_entry["max_usd"] is None
    assert billed <= finished_run.manifest["calls"] + manifest_entry["calls"]
