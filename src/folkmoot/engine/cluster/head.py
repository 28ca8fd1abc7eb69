"""The head of a run on a cluster: it sends shares of parts to workers, lends them what the run's
limits leave, and has what they were answered in the run's one journal.

`execution.py` opens it where `--executor` asks for it. Needs Ray.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RaySystemError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from folkmoot.engine.calls.progress import CallRetried, Notice
from folkmoot.engine.calls.retries import RunHaltedError
from folkmoot.engine.cluster.leases import Lease, Leases
from folkmoot.engine.cluster.pickling import pickle_function, pickle_value, unpickle_value
from folkmoot.engine.cluster.preconditions import RAY_EXECUTOR
from folkmoot.engine.cluster.worker import (
    ChunkResult,
    Worker,
    WorkerReady,
    WorkerReport,
    WorkerSetup,
)
from folkmoot.engine.journal.journal import BrokenReply, Journal, JournalEntry
from folkmoot.engine.journal.shards import (
    SHARD_FOLDER,
    ShardDriftError,
    delete_shard,
    entries_after_row,
    entries_in_scopes,
    merge_entries,
)
from folkmoot.engine.limits.budget import Amount
from folkmoot.engine.session.folder_access import HOLDER_FILE
from folkmoot.engine.session.run_context import ForkItem, ForkLike, RunContext
from folkmoot.engine.session.session import Fork
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import find_study, registered_studies, study_code_path
from folkmoot.engine.study.study_code import agreement_for_workers
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import FolkmootError, InputError, RunPausedError, StorageError
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUsage

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

Actor = Any  # a handle of Ray's, whose methods are made at run time

MAX_ITEMS_PER_CHUNK = 64  # parts of a share at most
MIN_CHUNKS_PER_WORKER = (
    4  # shares of a fork for each worker at least, so that no worker waits for another's
)
MAX_LOST_WORKERS = 20  # workers, before the run pauses
WORKER_START_TIMEOUT_SECONDS = 120.0
LOCAL_OBJECT_STORE_BYTES = 200_000_000  # bytes of shared memory of a local cluster


@dataclass(eq=False)
class WorkerHandle:
    """A worker, as the head knows it. `received_entry_count`: so many entries of its shard went to
    the journal; `state_changed` is set when there are more, `terminated` once all that could be had
    of a lost
    one is there."""

    number: int
    actor: Actor
    ready: WorkerReady
    parts: int = 0
    received_entry_count: int = 0
    lost: bool = False
    terminated: asyncio.Event = field(default_factory=asyncio.Event)
    state_changed: asyncio.Event = field(default_factory=asyncio.Event)
    monitor_task: asyncio.Task[None] | None = None


class ClusterExecutor:
    """The workers of a run: an `ForkExecutor`, which runs the parts of forks there."""

    def __init__(self, run: RunContext, setup: WorkerSetup, size: int) -> None:
        self._run = run
        assert isinstance(run.journal, Journal)
        self._journal = run.journal
        self._setup = setup
        self._size = size
        cpus = float(ray.cluster_resources().get("CPU", 1.0))
        self._actor = ray.remote(
            num_cpus=min(1.0, cpus / size), max_concurrency=1000, scheduling_strategy="SPREAD"
        )(Worker)
        self._workers: list[WorkerHandle] = []
        self._numbers = count()
        self._closing = False
        self._losses = 0
        self._rows_before = run.journal.last_row()
        self._said: set[str] = set()
        gateway = run.gateway
        assert gateway.lender is not None
        self._lender = gateway.lender
        self._leases = Leases(
            gateway.allowance,
            run.config.api_sleep_seconds,
            lambda model: bool(model in gateway.uses and gateway.uses[model].answered),
            gateway.stop_calls,
        )
        gateway.allowance.stoppables.append(self)

    async def __call__(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        parts: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        """Run parts on the workers, in shares that begin in order."""
        run.plan.write_plan()
        each = cast("Fork[I, R]", fork)
        data = pickle_function(each, f"map() at {'/'.join(fork.path)}", each.fn)
        try:
            begins = ray.put(data)
        except (RayError, ConnectionError) as error:
            raise RunPausedError(f"The cluster cannot go on: Ray failed: {error}") from error
        number = next(self._numbers)
        size = max(1, min(MAX_ITEMS_PER_CHUNK, len(parts) // (MIN_CHUNKS_PER_WORKER * self._size)))
        shares = iter([parts[i : i + size] for i in range(0, len(parts), size)])
        failures: dict[int, BaseException] = {}

        async def run_chunks() -> None:
            for share in shares:
                if failures or run.halt_cause is not None:
                    return
                try:
                    failed = await self._run_chunk(number, begins, each.path, share, results)
                except Exception as error:
                    failed = {share[0].number: error}
                failures.update(failed)
                for number_of in sorted(failed):
                    if not isinstance(failed[number_of], RunHaltedError):
                        run.stop_new_calls(failed[number_of])
                for _ in range(0 if failed else len(share)):
                    run.report_item_done(stage)

        at_once = self._size * max(1, run.gateway.max_waiting_calls // size)
        await asyncio.gather(*(run_chunks() for _ in range(min(at_once, -(-len(parts) // size)))))
        return failures

    def stop_calls(self, error: FolkmootError) -> None:
        """Have no worker start another call."""
        for worker in self._workers:
            worker.actor.stop_calls.remote(pickle_value(error))

    async def start_workers(self) -> None:
        """Start the workers. Raises InputError that says why one cannot work."""
        started = await asyncio.gather(*(self._start_worker() for _ in range(self._size)))
        problems = dict.fromkeys(problem for problem in started if problem)
        if problems:
            raise InputError(list(problems))

    async def close(self) -> None:
        """Let the workers go, with all that they were answered in the journal."""
        self._closing = True
        self.stop_calls(RunHaltedError("the run is over"))
        for worker in list(self._workers):
            if worker.monitor_task is not None:
                await worker.monitor_task
            if not worker.lost:
                with suppress(RayError):
                    await worker.actor.close.remote()

    def kill_workers(self) -> None:
        """End the workers, whatever they are doing; what the head has not got lies in shards."""
        for worker in self._workers:
            if worker.monitor_task is not None:
                worker.monitor_task.cancel()
            ray.kill(worker.actor)
        self._workers.clear()

    async def _start_worker(self) -> str:
        """Start a worker; why it cannot work, empty where it can."""
        try:
            actor = self._actor.remote()
            ready: WorkerReady = await asyncio.wait_for(
                actor.start.remote(self._setup), WORKER_START_TIMEOUT_SECONDS
            )
        except TimeoutError:
            return (
                f"no machine had room for a worker within {WORKER_START_TIMEOUT_SECONDS} s: see "
                "`ray status`"
            )
        except (RayError, ConnectionError) as error:
            return f"a worker could not start: {error}"
        if ready.problem:
            ray.kill(actor)
            return ready.problem
        worker = WorkerHandle(next(self._numbers), actor, ready)
        self._workers.append(worker)
        self._leases.add_worker(worker.number)
        for path, entries in ready.left:
            self._settle_entries(None, merge_entries(self._journal, entries))
            await self._journal.flush()
            await actor.delete_shard.remote(path)
        worker.monitor_task = asyncio.create_task(self._monitor_worker(worker))
        return ""

    async def _monitor_worker(self, worker: WorkerHandle) -> None:
        """Lend and hear reports, as long as the worker is there."""
        lease = Lease()
        while True:
            try:
                report: WorkerReport = await worker.actor.exchange_report.remote(lease)
            except RayError as error:
                await self._replace_lost_worker(worker, error)
                return
            lease = self._handle_report(worker, report)
            wish = report.budget_demand.loan
            if self._closing and report.budget_demand.is_idle:
                self._lender.take_back(worker.number, wish.begun)
                return
            try:
                lease.lent = await self._lender.lend_to_worker(worker.number, wish)
                lease.unpriced = wish.unpriced
            except StorageError as error:
                self._run.gateway.stop_calls(error)

    def _handle_report(self, worker: WorkerHandle, report: WorkerReport) -> Lease:
        gateway = self._run.gateway
        for address in report.superseded_addresses:
            self._journal.lookup_entry(address, b"", dict)
        for entry, covered in zip(report.entries, report.covers, strict=True):
            self._journal.append(entry, covered)
            if covered is not None:
                self._lender.record_settlement(covered, worker.number)
        self._settle_entries(worker, report.entries)
        for event in report.events:
            text = event.message if isinstance(event, Notice) and event.level != "info" else ""
            if text not in self._said:  # each worker finds out what an endpoint does not take
                self._run.progress(event)
            if text:
                self._said.add(text)
            if isinstance(event, CallRetried) and event.may_be_billed:
                self._leases.settle_broken(worker.number, event.max_usd or 0.0)
                broken = BrokenReply(time.time(), "", event.model, event.max_usd)
                self._journal.put_broken(broken)
        for model, use in report.demands.items():
            told = gateway.uses.setdefault(model, ModelUsage())
            told.retries += use.retries
            told.lost_calls += use.lost_calls
        if report.stop_error is not None:
            gateway.stop_calls(cast("FolkmootError", unpickle_value(report.stop_error)))
        before = self._leases.hold_seconds_by_model()
        lease = self._leases.issue_lease(worker.number, report.demands, report.budget_demand)
        longer = {
            model: s
            for model, s in self._leases.hold_seconds_by_model().items()
            if s > before.get(model, 0.0) + 0.05
        }
        for other in self._workers:
            if longer and other is not worker:
                other.actor.hold_models.remote(longer)
        lease.journal_entries = {
            requested_address: self._journal.entry_at(requested_address, expand_texts=False)
            for requested_address in report.requested_addresses
        }
        worker.state_changed.set()
        worker.state_changed = asyncio.Event()
        return lease

    def _settle_entries(self, worker: WorkerHandle | None, entries: Iterable[JournalEntry]) -> None:
        """Count entries that went to the journal."""
        for entry in entries:
            paid = entry.kind != "compute"
            if paid:
                self._run.gateway.count(entry.model_asked, entry, replayed=False)
            if worker is not None:
                worker.received_entry_count += 1
                if paid:
                    self._leases.record_cost(worker.number, entry.cost_usd)

    async def _replace_lost_worker(self, worker: WorkerHandle, error: Exception) -> None:
        """A worker is lost: have what its disk holds, and start another in its place."""
        worker.lost = True
        self._workers.remove(worker)
        with suppress(StorageError):
            left = await self._recover_shard_entries(worker)
            for entry in left:  # what covered it is not known: at least what it cost
                covered = entry.cost_usd or 0.0 if entry.kind != "compute" else None
                self._journal.append(entry, covered)
                if covered is not None:
                    self._lender.record_settlement(covered, worker.number)
            self._settle_entries(worker, left)
            await self._journal.flush()
        self._leases.remove_worker(worker.number)
        out = self._lender.record_lost_worker(worker.number)
        self._run.log_warning((), _describe_loss(error, out))
        self._losses += 1
        halted = self._closing or self._run.halt_cause is not None
        problem = "" if halted else await self._start_worker()
        if self._losses > MAX_LOST_WORKERS or (problem and not self._workers):
            why = problem or f"{self._losses} workers were lost"
            self._run.gateway.stop_calls(RunPausedError(f"The cluster cannot go on: {why}"))
        worker.terminated.set()
        worker.state_changed.set()

    async def _recover_shard_entries(self, worker: WorkerHandle) -> list[JournalEntry]:
        """What a lost worker had written down and not sent."""
        ready = worker.ready
        if ready.sees_run_folder:
            left = entries_after_row(ready.shard_path, worker.received_entry_count)
            delete_shard(ready.shard_path)
            return left
        there = NodeAffinitySchedulingStrategy(ready.node, soft=False)
        ask = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(entries_after_row)
        with suppress(RayError, TimeoutError):  # the machine is lost as well: it is asked again
            return cast(
                "list[JournalEntry]",
                await asyncio.wait_for(
                    ask.remote(ready.shard_path, worker.received_entry_count),
                    WORKER_START_TIMEOUT_SECONDS,
                ),
            )
        return []

    async def _run_chunk(
        self,
        fork: int,
        begins: ray.ObjectRef,
        path: tuple[str, ...],
        parts: Sequence[ForkItem[I]],
        results: dict[int, R],
    ) -> dict[int, BaseException]:
        """Run a share on the least busy worker, and once more should that be lost."""
        run, scopes = self._run, ["/".join((*path, part.key)) for part in parts]
        while True:
            known = entries_in_scopes(self._journal, scopes)
            share = pickle_function(
                (list(parts), known, run.models_by_seat), f"an item of {scopes[0]}"
            )
            worker = min(self._workers, key=lambda worker_handle: worker_handle.parts, default=None)
            if worker is None or run.halt_cause is not None:
                return {parts[0].number: RunHaltedError("the run is stopping")}
            worker.parts += len(parts)
            try:
                data = await worker.actor.share.remote(fork, begins, share)
            # The latter: its reply was still on the machine.
            except (RayActorError, ObjectLostError):
                await worker.terminated.wait()
                continue
            except (RaySystemError, ConnectionError) as error:
                paused = RunPausedError(f"The cluster cannot go on: Ray failed: {error}")
                return {parts[0].number: paused}
            finally:
                worker.parts -= len(parts)
            outcome = cast("ChunkResult", unpickle_value(data, run))
            while worker.received_entry_count < outcome.row and not worker.terminated.is_set():
                await worker.state_changed.wait()
            if worker.received_entry_count < outcome.row:
                continue  # its machine is lost with what it was answered
            await self._journal.flush()
            return self._record_chunk_result(outcome, results)

    def _record_chunk_result(
        self, outcome: ChunkResult, results: dict[int, R]
    ) -> dict[int, BaseException]:
        """Record what a share came to."""
        run, journal = self._run, self._journal
        for address in outcome.used_addresses:
            entry = journal.entry_at(address, expand_texts=False)
            # What a lost worker was answered was counted then.
            if (
                entry
                and entry.kind != "compute"
                and journal.row_number(address) <= self._rows_before
            ):
                run.gateway.count(entry.model_asked, entry, replayed=True)
        for table, key, row in outcome.rows:
            run.add_row(key, table, row)
        for table, place in outcome.recorded_at.items():
            run.recorded_at.setdefault(table, place)
        for name, data in outcome.files.items():
            run.write_text(name, data.decode())
        run.models_by_seat.update(outcome.roles)
        run.embedded = run.embedded or outcome.embedded
        longer = outcome.cut_retry_usage
        run.cut_retry_usage.calls += longer.calls
        run.cut_retry_usage.add_reply(longer.input_tokens, longer.output_tokens, longer.cost_usd)
        run.cut_retry_usage.calls_without_token_count += longer.calls_without_token_count
        run.cut_retry_usage.calls_without_price += longer.calls_without_price
        results.update(cast("dict[int, R]", outcome.results))
        return {number: self._explain_error(error) for number, error in outcome.failures.items()}

    def _explain_error(self, error: BaseException) -> BaseException:
        """The error; of a drift what differs, which the journal here knows."""
        if isinstance(error, ShardDriftError):
            try:
                self._journal.lookup_entry(error.address, b"", lambda: error.request)
            except FolkmootError as told:
                return told
        return error


def _describe_loss(error: Exception, out: Amount) -> str:
    told = f"a worker was lost ({type(error).__name__}); another takes its shares"
    if out.calls:
        told += (
            f"; possibly paid: {format_dollars(out.usd)} ({format_count(out.calls, 'call')} in "
            "flight there)"
        )
    return told


@asynccontextmanager
async def open_cluster(
    run: RunContext,
    study_file: StudyFile,
    address: str,
    workers: int | None,
    *,
    accept_changes: bool,
) -> AsyncIterator[ClusterExecutor]:
    """Workers for a run, as long as the context is open. Raises InputError where there can be none,
    before anything is asked."""
    with connect_to_ray(address, workers):
        size = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        setup = _worker_setup(run, study_file, accept_changes=accept_changes)
        opened = ClusterExecutor(run, setup, size)
        try:
            await opened.start_workers()
            yield opened
            await opened.close()
        except Exception:
            await opened.close()
            raise
        finally:
            opened.kill_workers()
            with suppress(OSError):  # a shard is left, or none ever lay here
                (run.folder / SHARD_FOLDER).rmdir()


@contextmanager
def connect_to_ray(where: str, workers: int | None) -> Iterator[None]:
    """A connection to Ray: the one that is there, or that of the address, or a cluster of our own
    on this machine. How Ray asks for its token is left as it is."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of the run
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _keep_sigterm_handler():
        try:
            if where != RAY_EXECUTOR:
                ray.init(where, **quiet)
            elif os.environ.get("RAY_ADDRESS"):
                ray.init(**quiet)
            else:
                own = {"include_dashboard": False, "object_store_memory": LOCAL_OBJECT_STORE_BYTES}
                ray.init("local", num_cpus=workers, **own, **quiet)
        except Exception as error:  # Ray raises a plain one where a node does not start
            raise InputError(f"--executor {where}: Ray did not start: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Ray takes SIGTERM for itself; a run hears it as Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        with suppress(ValueError):  # another thread's business
            for number, handler in before.items():
                signal.signal(number, handler)


def _worker_setup(run: RunContext, found: StudyFile, *, accept_changes: bool) -> WorkerSetup:
    started, embedding = run.plan.started_at, run.providers.resolve_embedding
    return WorkerSetup(
        study=_study_reference(found),
        pickled_file_and_config=pickle_value((found.path, found.config)),
        prompts=run.prompts.source_texts() if found.config.prompts else None,
        folder=run.folder.resolve(),
        run_holder=(run.folder / HOLDER_FILE).read_text("utf-8"),
        key=digest(str(run.folder.resolve()), found.run_id, started).hex(),
        started_at=started,
        model_override=run.providers.override,
        embedding_model=embedding if isinstance(embedding, str) else None,
        limits=(found.config.budget_usd, found.config.budget_calls),
        accept_changes=accept_changes,
    )


def _study_reference(found: StudyFile) -> bytes | str | tuple[str, Consent]:
    """How workers find the study type: by name or file, else it goes to them as it is."""
    named = found.config.study or found.study.name
    code = study_code_path(named, found.study_folder)
    if code is not None:
        return str(code.resolve()), agreement_for_workers(code)
    if named in registered_studies() and find_study(named) is found.study:
        return named
    return pickle_function(found.study, f"the study type {found.study.name}", found.study.protocol)
