"""A worker of a cluster: a process that runs items of `Scope.map` calls for the main process."""

# The head calls the worker's methods. Ray runs each call on the worker's event loop.

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

import ray
from filelock import FileLock

from folkmoot.conversation.prompts import PROMPT_SUFFIX, PromptLibrary
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import CallDone, Event
from folkmoot.engine.calls.retries import LOCAL_MODEL_CONCURRENCY, RunHaltedError, SharedLimits
from folkmoot.engine.cluster.leases import BudgetDemand, Lease, apply_lease, build_report
from folkmoot.engine.cluster.pickling import (
    picklable_error,
    pickle_function,
    pickle_value,
    unpickle_value,
)
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.journal.shards import (
    SHARD_FOLDER,
    JournalShard,
    delete_shard,
    entries_after_row,
    list_shards,
    lock_shard,
)
from folkmoot.engine.limits.budget import Budget
from folkmoot.engine.limits.lender import Loan
from folkmoot.engine.limits.rate_limiter import ModelDemand
from folkmoot.engine.session.folder_access import HOLDER_FILE
from folkmoot.engine.session.map_execution import run_locally
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.session.run_context import ForkItem, RunContext
from folkmoot.engine.session.session import Fork
from folkmoot.engine.settings.author_errors import locate_calling_study_code
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import Study, find_study, load_study
from folkmoot.engine.study.study_file import build_prompt_library
from folkmoot.errors import FolkmootError, InputError, ProtocolError
from folkmoot.storage.manifest import ModelUsage
from folkmoot.storage.run_folder import PLAN
from folkmoot.storage.table_buffer import RowOrder, TableCell, row_cells

# The time between two reports, and so between two leases.
REPORT_INTERVAL_SECONDS = 0.25
# The minimum time between two reports if calls wait for a lease.
MIN_REPORT_INTERVAL_SECONDS = 0.05
# Unpickled functions of forks to keep. Few forks run at the same time.
FUNCTION_CACHE_SIZE = 8

# A chunk: its items, their journal entries by address, and the models that answered so far.
ChunkContent = tuple[
    list[ForkItem[object]], dict[str, JournalEntry], dict[tuple[str | None, str], str]
]


class WorkerSetup(NamedTuple):
    """The data about the run that a worker needs when the worker starts."""

    # The pickled study type, or its name, or its file with the consent to run it.
    study: bytes | str | tuple[str, Consent]
    # The path of the study file and its config.
    pickled_file_and_config: bytes
    # Prompts of the researcher, by name. None: those of the study type.
    prompts: Mapping[str, str] | None
    folder: Path
    # The content of a file in the run folder. A worker that reads the same content there shares
    # the folder with the main process.
    run_holder: str
    # Identifies the run for a worker that does not share the folder.
    key: str
    started_at: str
    model_override: str | None
    embedding_model: str | None
    # The budget (USD, calls).
    limits: tuple[float | None, int | None]
    accept_changes: bool


class WorkerReady(NamedTuple):
    """A worker's answer to `WorkerSetup`: whether the worker can work."""

    # Why the worker cannot work. Empty if it can.
    problem: str
    # The worker's shard, the file in which it keeps entries until the journal has them.
    shard_path: Path = Path()
    # True if the shard is in the run folder.
    sees_run_folder: bool = False
    # The worker's Ray node.
    node: str = ""
    # The shards that earlier workers left on this machine, with their entries.
    leftover: tuple[tuple[Path, list[JournalEntry]], ...] = ()


@dataclass(slots=True)
class WorkerReport:
    """A worker's report to the main process: new journal entries, events, and needed limits."""

    entries: list[JournalEntry]
    # For each entry, the maximum cost (USD) that was recorded on disk before the call was sent.
    # None if none was recorded.
    covers: list[float | None]
    superseded_addresses: list[str]
    # Addresses at which the journal may have an entry.
    requested_addresses: list[str]
    events: list[Event]
    demands: dict[str, ModelDemand]
    budget_demand: BudgetDemand
    # The pickled error that stopped the worker's calls.
    stop_error: bytes | None


@dataclass(slots=True)
class ChunkResult:
    """The results and errors of a chunk (some items), with all rows and files of these items."""

    # The main process accepts it once the first `row` entries of the worker are in the journal.
    results: dict[int, object]
    failures: dict[int, BaseException]
    rows: list[tuple[str, bytes, dict[str, TableCell]]]
    recorded_at: dict[str, tuple[str, int] | None]
    files: dict[str, bytes]
    used_addresses: list[str]
    roles: dict[tuple[str | None, str], str]
    embedded: bool
    cut_retry_usage: ModelUsage
    row: int = 0


class ReadOnlyPlan(Plan):
    """The plan of a run on a worker. The worker can read the plan but cannot write the plan."""

    # Only the main process writes the plan.
    def seal_part(self, name: str, data: object) -> None:
        raise ProtocolError(
            f"seal({name!r}) within map(): with --executor the plan must be sealed before map()"
        )

    def write_plan(self) -> None:
        """Do nothing, because only the main process writes the plan."""


class _RunningChunk(NamedTuple):
    # The scopes of the items. The main process has sent all journal entries in these scopes.
    scopes: tuple[str, ...]
    # The rows recorded so far.
    rows: list[tuple[str, bytes, dict[str, TableCell]]]


@dataclass
class WorkerRunContext(RunContext):
    """The run context of a worker.

    - `fetch_entry`: asks the main process for the journal entry at an address.
    """

    # Rows and files wait until the main process collects them.
    fetch_entry: Callable[[str], Awaitable[None]] = field(kw_only=True)
    running: ContextVar[_RunningChunk] = field(default_factory=lambda: ContextVar("share"))

    def record_row(self, row_order: RowOrder, table: str, row: Mapping[str, object]) -> None:
        self.recorded_at.setdefault(table, locate_calling_study_code())
        self.running.get().rows.append((table, row_order.next_key(), row_cells(row, table)))

    async def prefetch_entry(self, address: str) -> None:
        if not address.startswith(self.running.get().scopes):
            await self.fetch_entry(address)

    def collect_new_files(self) -> dict[str, bytes]:
        """Delete the files that the study wrote, and return a map from file name to content."""
        contents = {name: (self.folder / name).read_bytes() for name in self.study_files}
        for name in self.study_files:
            (self.folder / name).unlink()
        self.study_files.clear()
        return contents


class _StopNotifier:
    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def stop_calls(self, error: FolkmootError) -> None:
        self._notify()


class Worker:
    """A process on Ray that runs items of a cluster run and sends the requests to models."""

    async def start(self, setup: WorkerSetup) -> WorkerReady:
        """Set up the engine in this worker.

        An error is not raised. It is returned in the field `problem`.
        """
        try:
            return self._start_engine(setup)
        except (FolkmootError, ImportError, OSError, AttributeError) as error:
            reason = str(error) if isinstance(error, FolkmootError) else repr(error)
            return WorkerReady(f"the worker on {socket.gethostname()} cannot work: {reason}")

    def _start_engine(self, setup: WorkerSetup) -> WorkerReady:
        self._locks: list[FileLock] = []
        study = _load_study_type(setup.study)
        path, config = cast(
            "tuple[Path, StudyConfig]", unpickle_value(setup.pickled_file_and_config)
        )
        providers = ModelRouter(
            config,
            setup.model_override,
            extra_models=study.extra_models(config),
            respondent=study.respondent_part,
        )
        providers.check_models(
            uses_embeddings=study.uses_embeddings, images=study.image_locations(config)
        )
        if setup.embedding_model is not None:
            providers.embedding_choice = setup.embedding_model
        scratch = Path(tempfile.mkdtemp(prefix="folkmoot-worker-"))
        # The path alone proves nothing: another machine may have a folder of the same name.
        shares_folder = _read_text(setup.folder / HOLDER_FILE) == setup.run_holder
        shards = setup.folder / SHARD_FOLDER if shares_folder else remote_shard_folder(setup.key)
        shards.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Shards in the run folder were merged by the head before it started workers.
        leftover = () if shares_folder else self._collect_leftover_shards(shards)
        name = f"{os.getpid()}-{socket.gethostname()}-{scratch.name}"
        shard_path = shards / f"{name}.sqlite"
        self._locks += filter(None, (lock_shard(shard_path),))
        self._shard = JournalShard(shard_path, accept_changes=setup.accept_changes)
        self._sent_count = 0
        self._events: list[Event] = []
        self._requested_entries: dict[str, asyncio.Future[None]] = {}
        self._closures: dict[int, Fork[object, object]] = {}
        self._urgent, self._shortage = asyncio.Event(), asyncio.Event()
        usd, calls = setup.limits
        # Start with an empty budget of the same kind. Leases raise it.
        empty_limits = (None if usd is None else 0.0, None if calls is None else 0)
        budget = Budget(*empty_limits, ask_for_more=self._shortage.set)
        self._loan = Loan(self._shortage.set, 2 * REPORT_INTERVAL_SECONDS)
        # The head limits all models together, so this limiter must not.
        self._shared_limits = SharedLimits(
            budget, LOCAL_MODEL_CONCURRENCY, tell=self._report_demand, loan=self._loan
        )
        self._shared_limits.stoppables.append(_StopNotifier(self._schedule_report))
        gateway = Gateway(
            self._shard, providers.open_provider, config, self._queue_event, self._shared_limits
        )
        plan = ReadOnlyPlan(scratch / PLAN, started_at=setup.started_at)
        prompts = build_prompt_library(study, config, path.parent)
        if setup.prompts is not None:
            prompts = PromptLibrary(study.prompts, scratch / "prompts")
            for prompt_name, text in setup.prompts.items():
                file = scratch / "prompts" / f"{prompt_name}{PROMPT_SUFFIX}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
        self._run = WorkerRunContext(
            *(config, prompts, {}, path.parent, scratch, providers, self._shard, gateway),
            *(plan, self._queue_event),
            fetch_entry=self._fetch_entry,
        )
        node = ray.get_runtime_context().get_node_id()
        return WorkerReady("", self._shard.path, shares_folder, node, leftover)

    async def run_chunk(self, fork_number: int, function_bytes: bytes, chunk_bytes: bytes) -> bytes:
        """Run some items of a `Scope.map` call, and return their pickled `ChunkResult`."""
        run = self._run
        local_fork = self._load_function(fork_number, function_bytes)
        fork_items, known_entries, models_by_seat = cast(
            "ChunkContent", unpickle_value(chunk_bytes, run)
        )
        run.models_by_seat.update(models_by_seat)
        self._shard.known.update(known_entries)
        # With a slash at the end: the scope `p_1` must not match `p_10`.
        scopes = tuple(
            f"{'/'.join((*local_fork.path, fork_item.key))}/" for fork_item in fork_items
        )
        running = _RunningChunk(scopes, [])
        run.running.set(running)
        results: dict[int, object] = {}
        failures = await run_locally(run, local_fork, fork_items, results, stage="")
        # Another chunk or the head stopped the run: items without a result get an error.
        if run.halt_cause is not None:
            unfinished = (
                fork_item.number for fork_item in fork_items if fork_item.number not in results
            )
            failures = {
                **dict.fromkeys(unfinished, RunHaltedError("the run is stopping")),
                **failures,
            }
            await run.gateway.wait_for_calls_in_flight()
        # Forget the entries of this chunk, or memory would grow with the run.
        for address in known_entries:
            self._shard.known.pop(address, None)
        used_addresses, self._shard.used = self._shard.used, []
        cut_retries, run.cut_retry_usage = run.cut_retry_usage, ModelUsage()
        self._schedule_report()
        outcome = ChunkResult(
            results,
            {number: picklable_error(error) for number, error in failures.items()},
            running.rows,
            run.recorded_at,
            run.collect_new_files(),
            used_addresses,
            run.models_by_seat,
            run.embedded,
            cut_retries,
            self._sent_count + self._shard.unsent_count,
        )
        try:
            return pickle_function(
                outcome, f"the result of map() at {'/'.join(local_fork.path)}", local_fork.fn
            )
        except ProtocolError as error:
            # The results cannot be pickled. Send all but the results: rows and usage are paid for.
            return pickle_value(
                replace(outcome, results={}, failures={fork_items[0].number: error})
            )

    async def exchange_report(self, lease: Lease) -> WorkerReport:
        """Set the limits of this worker to those in `lease`, and return the next report."""
        # The report waits for news, at most `REPORT_INTERVAL_SECONDS`.
        usage_by_model = self._run.gateway.usage_by_model
        for model, grant in lease.models.items():
            # The model answered another worker, so a rejection here concerns the prompt
            # (see `RetryPolicy`).
            if grant.answered:
                usage_by_model.setdefault(model, ModelUsage()).replayed |= 1
        apply_lease(lease, self._shared_limits, self._loan)
        for address, entry in lease.journal_entries.items():
            if entry is not None:
                self._shard.known[address] = entry
            self._requested_entries.pop(address).set_result(None)
        # Wait for an urgent event first. After the minimum interval, a shortage is enough to
        # report.
        for seconds, event in (
            (MIN_REPORT_INTERVAL_SECONDS, self._urgent),
            (REPORT_INTERVAL_SECONDS - MIN_REPORT_INTERVAL_SECONDS, self._shortage),
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
                break
        self._urgent.clear()
        self._shortage.clear()
        unsent = await self._shard.take_unsent()
        self._sent_count += len(unsent)
        events, self._events = self._events, []
        superseded_addresses, self._shard.superseding = self._shard.superseding, []
        demands, budget_demand = build_report(
            self._shared_limits, self._loan, is_quiet=not self._shard.unsent_count
        )
        for model, demand in demands.items():
            usage = usage_by_model.setdefault(model, ModelUsage())
            demand.retries, demand.lost_calls = usage.retries, usage.lost_calls
            usage.retries = usage.lost_calls = 0
        stop_error = self._run.gateway.stop_error
        return WorkerReport(
            [entry for entry, _ in unsent],
            [covered for _, covered in unsent],
            superseded_addresses,
            list(self._requested_entries),
            events,
            demands,
            budget_demand,
            None if stop_error is None else pickle_value(picklable_error(stop_error)),
        )

    async def hold_models(self, seconds_by_model: Mapping[str, float]) -> None:
        """Make calls to models wait for the given number of seconds."""
        # A vendor has asked another worker to wait for this time.
        for model, seconds in seconds_by_model.items():
            if model in self._shared_limits.limiters:
                self._shared_limits.limiters[model].learn_hold(seconds)

    async def stop_calls(self, error: bytes) -> None:
        """Start no further calls.

        `error`: the pickled error that is the cause.
        """
        stop_error = cast("FolkmootError", unpickle_value(error))
        self._run.halt_cause = self._run.halt_cause or stop_error
        self._run.gateway.stop_calls(stop_error)

    async def delete_shard(self, shard: Path) -> None:
        """Delete the file of journal entries that an earlier worker left."""
        delete_shard(shard)

    async def close(self) -> None:
        """End this worker, and delete the worker's file of journal entries."""
        # The main process has all entries by now.
        await self._run.gateway.close()
        self._shard.close()
        for lock in self._locks:
            lock.release()
        delete_shard(self._shard.path)
        shutil.rmtree(self._run.folder, ignore_errors=True)

    async def _fetch_entry(self, address: str) -> None:
        if address not in self._requested_entries:
            self._requested_entries[address] = asyncio.get_running_loop().create_future()
            self._schedule_report()
        await self._requested_entries[address]

    def _collect_leftover_shards(self, shards: Path) -> tuple[tuple[Path, list[JournalEntry]], ...]:
        # A shard that another worker has locked is left to that worker.
        locked_shards = [(path, lock_shard(path)) for path in list_shards(shards)]
        self._locks += [lock for _, lock in locked_shards if lock is not None]
        return tuple(
            (path, entries_after_row(path, 0)) for path, lock in locked_shards if lock is not None
        )

    def _load_function(self, fork_number: int, function_bytes: bytes) -> Fork[object, object]:
        if fork_number not in self._closures:
            # Drop the oldest function. Dictionaries keep the order of insertion.
            while len(self._closures) >= FUNCTION_CACHE_SIZE:
                del self._closures[next(iter(self._closures))]
            self._closures[fork_number] = cast(
                "Fork[object, object]", unpickle_value(function_bytes, self._run)
            )
        return self._closures[fork_number]

    def _report_demand(self, urgent: bool) -> None:
        (self._schedule_report if urgent else self._shortage.set)()

    def _schedule_report(self) -> None:
        self._urgent.set()
        self._shortage.set()

    def _queue_event(self, event: Event) -> None:
        # The head counts calls from the entries.
        if not isinstance(event, CallDone):
            self._events.append(event)


def _load_study_type(reference: bytes | str | tuple[str, Consent]) -> Study:
    # Raises InputError if the file is not on this machine.
    if isinstance(reference, bytes):
        return cast("Study", unpickle_value(reference))
    if isinstance(reference, str):
        return find_study(reference)
    file, consent = reference
    if not Path(file).is_file():
        raise InputError(
            f"the study type is defined in {file}, and this machine has no such file; put it "
            "there, or install it as a package on every machine"
        )
    return load_study(Path(file), consent)


def remote_shard_folder(key: str) -> Path:
    """Return the folder for journal entries on machines that do not have the run folder."""
    return Path(tempfile.gettempdir()) / f"folkmoot-shards-{os.getuid()}" / key


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
