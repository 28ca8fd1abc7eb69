"""The head: the main process of a run on a cluster.

The head sends items to workers, divides the limits among the workers, and writes the journal.
"""

# `execution.py` starts it for `--executor`. The module needs Ray.

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

from folkmoot.engine.calls.progress import Notice, ReplyLost
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
from folkmoot.models.request import FINISH_REFUSED
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUsage

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

# A handle of a Ray actor. Ray adds the methods at run time, so they have no types.
Actor = Any

# A lost worker costs the work of its chunks, so chunks are small. Each chunk costs a message.
MAX_ITEMS_PER_CHUNK = 64
# Several chunks per worker, so that fast workers take over the work of slow ones.
MIN_CHUNKS_PER_WORKER = 4
# Lost workers after which the run pauses, since something is wrong with the machines.
MAX_LOST_WORKERS = 20
WORKER_START_TIMEOUT_SECONDS = 120.0
# Shared memory of a local cluster. Ray would take 30 % of the machine's memory.
LOCAL_OBJECT_STORE_BYTES = 200_000_000


@dataclass(eq=False)
class WorkerHandle:
    """The main process's record of one worker."""

    number: int
    actor: Actor
    ready: WorkerReady
    # The number of items that the worker runs.
    item_count: int = 0
    # The number of its entries that reached the journal.
    received_entry_count: int = 0
    lost: bool = False
    # Set when all entries of an ended worker are in the journal. Those that a lost worker has not
    # sent are recovered first.
    terminated: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when `received_entry_count` rises.
    state_changed: asyncio.Event = field(default_factory=asyncio.Event)
    monitor_task: asyncio.Task[None] | None = None


class ClusterExecutor:
    """The executor that runs the items of `Scope.map` calls on the workers of a cluster."""

    def __init__(self, run: RunContext, setup: WorkerSetup, size: int) -> None:
        self._run = run
        assert isinstance(run.journal, Journal)
        self._journal = run.journal
        self._setup = setup
        self._size = size
        # Ask for less than one CPU per worker if there are more workers than CPUs. Otherwise Ray
        # would start only some of them.
        cpus = float(ray.cluster_resources().get("CPU", 1.0))
        self._actor = ray.remote(
            num_cpus=min(1.0, cpus / size), max_concurrency=1000, scheduling_strategy="SPREAD"
        )(Worker)
        self._workers: list[WorkerHandle] = []
        self._numbers = count()
        self._closing = False
        # The number of workers lost so far.
        self._losses = 0
        # Entries up to this row are from earlier processes: only these count as replayed.
        self._rows_before = run.journal.last_row()
        # Notices that were reported already. Each worker learns the same about an endpoint.
        self._reported_texts: set[str] = set()
        # Addresses of the lost replies of all workers.
        self._lost_addresses: set[str] = set()
        gateway = run.gateway
        assert gateway.lender is not None
        self._lender = gateway.lender
        self._leases = Leases(
            gateway.shared_limits,
            run.config.api_sleep_seconds,
            lambda model: bool(
                model in gateway.usage_by_model and gateway.usage_by_model[model].answered
            ),
            gateway.stop_calls,
        )
        gateway.shared_limits.stoppables.append(self)

    async def __call__(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        fork_items: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        # Chunks start in order. Returns the errors of failed items, by index.
        # Workers make calls without the plan, so the seals must be on disk before.
        run.plan.write_plan()
        local_fork = cast("Fork[I, R]", fork)
        data = pickle_function(local_fork, f"map() at {'/'.join(fork.path)}", local_fork.fn)
        try:
            # Store the function once in Ray's object store instead of sending it with each chunk.
            fork_reference = ray.put(data)
        except (RayError, ConnectionError) as error:
            raise RunPausedError(f"The cluster cannot continue: Ray failed: {error}") from error
        fork_number = next(self._numbers)
        chunk_size = max(
            1, min(MAX_ITEMS_PER_CHUNK, len(fork_items) // (MIN_CHUNKS_PER_WORKER * self._size))
        )
        chunks = iter(
            [fork_items[i : i + chunk_size] for i in range(0, len(fork_items), chunk_size)]
        )
        failures: dict[int, BaseException] = {}

        async def run_chunks() -> None:
            for chunk in chunks:
                if failures or run.halt_cause is not None:
                    return
                try:
                    chunk_failures = await self._run_chunk(
                        fork_number, fork_reference, local_fork.path, chunk, results
                    )
                except Exception as error:
                    chunk_failures = {chunk[0].number: error}
                failures.update(chunk_failures)
                for item_number in sorted(chunk_failures):
                    if not isinstance(chunk_failures[item_number], RunHaltedError):
                        run.stop_new_calls(chunk_failures[item_number])
                for _ in range(0 if chunk_failures else len(chunk)):
                    run.report_item_done(stage)

        at_once = self._size * max(1, run.gateway.max_waiting_calls // chunk_size)
        await asyncio.gather(
            *(run_chunks() for _ in range(min(at_once, -(-len(fork_items) // chunk_size))))
        )
        return failures

    def stop_calls(self, error: FolkmootError) -> None:
        """Tell all workers to start no further calls."""
        for worker in self._workers:
            worker.actor.stop_calls.remote(pickle_value(error))

    async def start_workers(self) -> None:
        """Start the workers.

        Raises InputError with the reason if a worker cannot be set up.
        """
        start_problems = await asyncio.gather(*(self._start_worker() for _ in range(self._size)))
        problems = dict.fromkeys(problem for problem in start_problems if problem)
        if problems:
            raise InputError(list(problems))

    async def close(self) -> None:
        """End the workers, each as soon as all entries from this worker are in the journal."""
        self._closing = True
        self.stop_calls(RunHaltedError("the run is over"))
        for worker in list(self._workers):
            if worker.monitor_task is not None:
                await worker.monitor_task
            if not worker.lost:
                with suppress(RayError):
                    await worker.actor.close.remote()

    def kill_workers(self) -> None:
        """Kill the workers without waiting for their calls."""
        # Calls that this process has not received remain in files on the workers' disks.
        for worker in self._workers:
            if worker.monitor_task is not None:
                worker.monitor_task.cancel()
            ray.kill(worker.actor)
        self._workers.clear()

    async def _start_worker(self) -> str:
        # Returns the reason why the worker cannot work, or an empty string.
        try:
            actor = self._actor.remote()
            ready: WorkerReady = await asyncio.wait_for(
                actor.start.remote(self._setup), WORKER_START_TIMEOUT_SECONDS
            )
        except TimeoutError:
            return (
                "no machine had free resources for a worker within "
                f"{WORKER_START_TIMEOUT_SECONDS} s: see `ray status`"
            )
        except (RayError, ConnectionError) as error:
            return f"a worker could not start: {error}"
        if ready.problem:
            ray.kill(actor)
            return ready.problem
        worker = WorkerHandle(next(self._numbers), actor, ready)
        self._workers.append(worker)
        self._leases.add_worker(worker.number)
        # Merge the shards that workers of an earlier process left on this machine. Delete a shard
        # only when its entries are on disk here.
        for path, entries in ready.leftover:
            self._settle_entries(None, merge_entries(self._journal, entries))
            await self._journal.flush()
            await actor.delete_shard.remote(path)
        worker.monitor_task = asyncio.create_task(self._monitor_worker(worker))
        return ""

    async def _monitor_worker(self, worker: WorkerHandle) -> None:
        lease = Lease()
        while True:
            try:
                report: WorkerReport = await worker.actor.exchange_report.remote(lease)
            except RayError as error:
                await self._replace_lost_worker(worker, error)
                return
            lease = self._handle_report(worker, report)
            wish = report.budget_demand.loan
            # Keep exchanging reports until the worker has sent all its entries.
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
            # An empty fingerprint differs from every stored one, so the entry is superseded.
            self._journal.lookup_entry(address, b"", dict)
        # A lost reply is recorded before its entry, if it has one, as in a run without a cluster.
        for event in report.events:
            text = event.message if isinstance(event, Notice) and event.level != "info" else ""
            # Each worker finds out for itself what an endpoint rejects: report it once.
            if text not in self._reported_texts:
                self._run.progress(event)
            if text:
                self._reported_texts.add(text)
            if isinstance(event, ReplyLost):
                self._lost_addresses.add(event.address)
                self._leases.settle_broken(worker.number, event.max_usd or 0.0)
                broken = BrokenReply(time.time(), event.address, event.model, event.max_usd)
                self._journal.put_broken(broken)
        for entry, covered in zip(report.entries, report.covers, strict=True):
            # Append the entry before its loan is settled: until then the call counts as possibly
            # paid.
            self._journal.append(entry, covered)
            if covered is not None:
                self._lender.record_settlement(covered, worker.number)
        self._settle_entries(worker, report.entries)
        for model, demand in report.demands.items():
            usage = gateway.usage_by_model.setdefault(model, ModelUsage())
            usage.retries += demand.retries
            usage.lost_calls += demand.lost_calls
        if report.stop_error is not None:
            gateway.stop_calls(cast("FolkmootError", unpickle_value(report.stop_error)))
        before = self._leases.hold_seconds_by_model()
        lease = self._leases.issue_lease(worker.number, report.demands, report.budget_demand)
        # Tell the other workers at once about longer holds, not only with their next lease. Below
        # 50 ms the hold is the same one.
        longer_holds = {
            model: seconds
            for model, seconds in self._leases.hold_seconds_by_model().items()
            if seconds > before.get(model, 0.0) + 0.05
        }
        for other in self._workers:
            if longer_holds and other is not worker:
                other.actor.hold_models.remote(longer_holds)
        lease.journal_entries = {
            requested_address: self._journal.entry_at(requested_address, expand_texts=False)
            for requested_address in report.requested_addresses
        }
        worker.state_changed.set()
        worker.state_changed = asyncio.Event()
        return lease

    def _settle_entries(self, worker: WorkerHandle | None, entries: Iterable[JournalEntry]) -> None:
        # `worker` is None for entries of an earlier process.
        for entry in entries:
            is_paid = entry.kind != "compute"
            if is_paid:
                self._run.gateway.count_usage(entry.model_asked, entry, replayed=False)
            if worker is not None:
                worker.received_entry_count += 1
                # The account of lost replies has the cost of such a refusal already.
                if is_paid and not self._is_lost_refusal(entry):
                    self._leases.record_cost(worker.number, entry.cost_usd)

    def _is_lost_refusal(self, entry: JournalEntry) -> bool:
        is_refused = entry.finish.startswith(FINISH_REFUSED)
        return is_refused and entry.cost_usd is None and entry.address in self._lost_addresses

    async def _replace_lost_worker(self, worker: WorkerHandle, error: Exception) -> None:
        worker.lost = True
        self._workers.remove(worker)
        with suppress(StorageError):
            recovered = await self._recover_shard_entries(worker)
            # The loan that covered an entry is unknown. It was at least the cost of the call.
            for entry in recovered:
                covered = entry.cost_usd or 0.0 if entry.kind != "compute" else None
                self._journal.append(entry, covered)
                if covered is not None:
                    self._lender.record_settlement(covered, worker.number)
            self._settle_entries(worker, recovered)
            await self._journal.flush()
        self._leases.remove_worker(worker.number)
        lost_amount = self._lender.record_lost_worker(worker.number)
        self._run.log_warning((), _describe_loss(error, lost_amount))
        self._losses += 1
        is_ending = self._closing or self._run.halt_cause is not None
        problem = "" if is_ending else await self._start_worker()
        if self._losses > MAX_LOST_WORKERS or (problem and not self._workers):
            reason = problem or f"{self._losses} workers were lost"
            self._run.gateway.stop_calls(RunPausedError(f"The cluster cannot continue: {reason}"))
        # Wake the chunks of the lost worker only now: they look up the recovered entries.
        worker.terminated.set()
        worker.state_changed.set()

    async def _recover_shard_entries(self, worker: WorkerHandle) -> list[JournalEntry]:
        # A lost worker had written these entries but not sent them.
        ready = worker.ready
        if ready.sees_run_folder:
            entries = entries_after_row(ready.shard_path, worker.received_entry_count)
            delete_shard(ready.shard_path)
            return entries
        # The shard is on the worker's machine, so read it by a task on the same machine.
        node_strategy = NodeAffinitySchedulingStrategy(ready.node, soft=False)
        read_remotely = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=node_strategy)(
            entries_after_row
        )
        # If the machine is lost as well, its calls are made again.
        with suppress(RayError, TimeoutError):
            return cast(
                "list[JournalEntry]",
                await asyncio.wait_for(
                    read_remotely.remote(ready.shard_path, worker.received_entry_count),
                    WORKER_START_TIMEOUT_SECONDS,
                ),
            )
        return []

    async def _run_chunk(
        self,
        fork_number: int,
        fork_reference: ray.ObjectRef,
        path: tuple[str, ...],
        fork_items: Sequence[ForkItem[I]],
        results: dict[int, R],
    ) -> dict[int, BaseException]:
        run, scopes = self._run, ["/".join((*path, fork_item.key)) for fork_item in fork_items]
        while True:
            # Send the journaled entries of the chunk along, so that a resume needs no message for
            # each call.
            known_entries = entries_in_scopes(self._journal, scopes)
            chunk = pickle_function(
                (list(fork_items), known_entries, run.models_by_seat), f"an item of {scopes[0]}"
            )
            worker = min(self._workers, key=lambda candidate: candidate.item_count, default=None)
            if worker is None or run.halt_cause is not None:
                return {fork_items[0].number: RunHaltedError("the run is stopping")}
            worker.item_count += len(fork_items)
            try:
                data = await worker.actor.run_chunk.remote(fork_number, fork_reference, chunk)
            # ObjectLostError: the chunk had ended, but its result was still on the lost machine.
            except (RayActorError, ObjectLostError):
                await worker.terminated.wait()
                continue
            except (RaySystemError, ConnectionError) as error:
                pause = RunPausedError(f"The cluster cannot continue: Ray failed: {error}")
                return {fork_items[0].number: pause}
            finally:
                worker.item_count -= len(fork_items)
            outcome = cast("ChunkResult", unpickle_value(data, run))
            while worker.received_entry_count < outcome.row and not worker.terminated.is_set():
                await worker.state_changed.wait()
            if worker.received_entry_count < outcome.row:
                # The worker's machine is lost with entries that the result needs, so the result
                # cannot count.
                continue
            await self._journal.flush()
            return self._record_chunk_result(outcome, results)

    def _record_chunk_result(
        self, outcome: ChunkResult, results: dict[int, R]
    ) -> dict[int, BaseException]:
        run, journal = self._run, self._journal
        for address in outcome.used_addresses:
            entry = journal.entry_at(address, expand_texts=False)
            # Entries of a lost worker were counted when they were recovered.
            if (
                entry
                and entry.kind != "compute"
                and journal.row_number(address) <= self._rows_before
            ):
                run.gateway.count_usage(entry.model_asked, entry, replayed=True)
        for table, key, row in outcome.rows:
            run.add_row(key, table, row)
        for table, location in outcome.recorded_at.items():
            run.recorded_at.setdefault(table, location)
        for name, data in outcome.files.items():
            run.write_text(name, data.decode())
        run.models_by_seat.update(outcome.roles)
        run.embedded = run.embedded or outcome.embedded
        cut_retries = outcome.cut_retry_usage
        run.cut_retry_usage.calls += cut_retries.calls
        run.cut_retry_usage.add_reply(
            cut_retries.input_tokens, cut_retries.output_tokens, cut_retries.cost_usd
        )
        run.cut_retry_usage.calls_without_token_count += cut_retries.calls_without_token_count
        run.cut_retry_usage.calls_without_price += cut_retries.calls_without_price
        results.update(cast("dict[int, R]", outcome.results))
        return {number: self._explain_error(error) for number, error in outcome.failures.items()}

    def _explain_error(self, error: BaseException) -> BaseException:
        # Only the head's journal has the earlier request, so a worker cannot show the difference.
        if isinstance(error, ShardDriftError):
            try:
                self._journal.lookup_entry(error.address, b"", lambda: error.request)
            except FolkmootError as drift:
                return drift
        return error


def _describe_loss(error: Exception, lost_amount: Amount) -> str:
    message = f"a worker was lost ({type(error).__name__}); another worker repeats its items"
    if lost_amount.calls:
        message += (
            f"; possibly paid: {format_dollars(lost_amount.usd)} "
            f"({format_count(lost_amount.calls, 'call')} in "
            "flight there)"
        )
    return message


@asynccontextmanager
async def open_cluster(
    run: RunContext,
    study_file: StudyFile,
    address: str,
    workers: int | None,
    *,
    accept_changes: bool,
) -> AsyncIterator[ClusterExecutor]:
    """Start the workers of a run. The workers end when this context manager is closed.

    Raises InputError if a worker cannot start. By then, this process has not called any model.
    """
    with connect_to_ray(address, workers):
        size = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        setup = _worker_setup(run, study_file, accept_changes=accept_changes)
        executor = ClusterExecutor(run, setup, size)
        try:
            await executor.start_workers()
            yield executor
            await executor.close()
        except Exception:
            await executor.close()
            raise
        finally:
            executor.kill_workers()
            # OSError: a shard is left for a resume, or the folder was never made.
            with suppress(OSError):
                (run.folder / SHARD_FOLDER).rmdir()


@contextmanager
def connect_to_ray(address: str, workers: int | None) -> Iterator[None]:
    """Stay connected to Ray while this context manager is open.

    Raises InputError if no connection can be made.
    """
    # An existing connection is used. Without an address, a cluster starts on this machine. Ray's
    # authentication settings are not changed.
    if ray.is_initialized():
        yield
        return
    # Ray reports usage statistics to its vendor by default.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    log_options = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _keep_sigterm_handler():
        try:
            if address != RAY_EXECUTOR:
                ray.init(address, **log_options)
            elif os.environ.get("RAY_ADDRESS"):
                ray.init(**log_options)
            else:
                local_options = {
                    "include_dashboard": False,
                    "object_store_memory": LOCAL_OBJECT_STORE_BYTES,
                }
                ray.init("local", num_cpus=workers, **local_options, **log_options)
        # Ray raises a plain Exception if a node does not start.
        except Exception as error:
            raise InputError(f"--executor {address}: Ray did not start: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    # `ray.init` replaces the handlers. A run needs its own handler of SIGTERM, which stops the run
    # like Ctrl-C.
    handlers_before = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        # ValueError: only the main thread may set signal handlers.
        with suppress(ValueError):
            for number, handler in handlers_before.items():
                signal.signal(number, handler)


def _worker_setup(run: RunContext, study_file: StudyFile, *, accept_changes: bool) -> WorkerSetup:
    started, embedding = run.plan.started_at, run.providers.embedding_choice
    return WorkerSetup(
        study=_study_reference(study_file),
        pickled_file_and_config=pickle_value((study_file.path, study_file.config)),
        prompts=run.prompts.source_texts() if study_file.config.prompts else None,
        folder=run.folder.resolve(),
        run_holder=(run.folder / HOLDER_FILE).read_text("utf-8"),
        key=digest(str(run.folder.resolve()), study_file.run_id, started).hex(),
        started_at=started,
        model_override=run.providers.override,
        embedding_model=embedding if isinstance(embedding, str) else None,
        limits=(study_file.config.budget_usd, study_file.config.budget_calls),
        accept_changes=accept_changes,
    )


def _study_reference(study_file: StudyFile) -> bytes | str | tuple[str, Consent]:
    # Returns the name of the study type, its file with the consent, or its pickle.
    study_name = study_file.config.study or study_file.study.name
    code = study_code_path(study_name, study_file.study_folder)
    if code is not None:
        return str(code.resolve()), agreement_for_workers(code)
    if study_name in registered_studies() and find_study(study_name) is study_file.study:
        return study_name
    return pickle_function(
        study_file.study, f"the study type {study_file.study.name}", study_file.study.protocol
    )
