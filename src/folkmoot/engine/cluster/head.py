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
from folkmoot.engine.calls.retries import Halted
from folkmoot.engine.cluster.leases import Lease, Leases
from folkmoot.engine.cluster.pickling import packed, packed_by_name, unpacked
from folkmoot.engine.cluster.preconditions import RAY
from folkmoot.engine.cluster.worker import Outcome, Ready, Report, Setup, Worker
from folkmoot.engine.journal.journal import BrokenReply, Entry, Journal
from folkmoot.engine.journal.shards import SHARDS, Drifted, entries_after, forget, known_in, merge
from folkmoot.engine.limits.budget import Amount
from folkmoot.engine.session.folder_access import HOLDER
from folkmoot.engine.session.run_context import Begins, Part, RunContext
from folkmoot.engine.session.session import Fork
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import code_of, find_study, registered
from folkmoot.engine.study.study_code import agreement_for_workers
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import FolkmootError, InputError, RunPaused, StorageError
from folkmoot.measures.inference.estimates import dollars, plural
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUse

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

Actor = Any  # a handle of Ray's, whose methods are made at run time

SHARE = 64  # parts of a share at most
EACH = 4  # shares of a fork for each worker at least, so that no worker waits for another's
LOST_AT_MOST = 20  # workers, before the run pauses
START_SECONDS = 120.0
LOCAL_STORE = 200_000_000  # bytes of shared memory of a local cluster


@dataclass(eq=False)
class _Worker:
    """A worker, as the head knows it. `received`: so many entries of its shard went to the journal;
    `news` is set when there are more, `gone` once all that could be had of a lost one is there."""

    number: int
    actor: Actor
    ready: Ready
    parts: int = 0
    received: int = 0
    lost: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    attended: asyncio.Task[None] | None = None


class Cluster:
    """The workers of a run: an `Away`, which runs the parts of forks there."""

    def __init__(self, run: RunContext, setup: Setup, size: int) -> None:
        self._run = run
        assert isinstance(run.journal, Journal)
        self._journal = run.journal
        self._setup = setup
        self._size = size
        cpus = float(ray.cluster_resources().get("CPU", 1.0))
        self._actor = ray.remote(
            num_cpus=min(1.0, cpus / size), max_concurrency=1000, scheduling_strategy="SPREAD"
        )(Worker)
        self._workers: list[_Worker] = []
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
            gateway.stop,
        )
        gateway.allowance.users.append(self)

    async def __call__(
        self,
        run: RunContext,
        fork: Begins[I, R],
        parts: Sequence[Part[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        """Run parts on the workers, in shares that begin in order."""
        run.plan.write()
        each = cast("Fork[I, R]", fork)
        data = packed_by_name(each, f"each() at {'/'.join(fork.path)}", each.fn)
        try:
            begins = ray.put(data)
        except (RayError, ConnectionError) as error:
            raise RunPaused(f"The cluster cannot go on: Ray failed: {error}") from error
        number = next(self._numbers)
        size = max(1, min(SHARE, len(parts) // (EACH * self._size)))
        shares = iter([parts[i : i + size] for i in range(0, len(parts), size)])
        failures: dict[int, BaseException] = {}

        async def runner() -> None:
            for share in shares:
                if failures or run.halted is not None:
                    return
                try:
                    failed = await self._share(number, begins, each.path, share, results)
                except Exception as error:
                    failed = {share[0].number: error}
                failures.update(failed)
                for number_of in sorted(failed):
                    if not isinstance(failed[number_of], Halted):
                        run.halt(failed[number_of])
                for _ in range(0 if failed else len(share)):
                    run.item_done(stage)

        at_once = self._size * max(1, run.gateway.most_waiting // size)
        await asyncio.gather(*(runner() for _ in range(min(at_once, -(-len(parts) // size)))))
        return failures

    def stop(self, error: FolkmootError) -> None:
        """Have no worker start another call."""
        for worker in self._workers:
            worker.actor.stop.remote(packed(error))

    async def open(self) -> None:
        """Start the workers. Raises InputError that says why one cannot work."""
        started = await asyncio.gather(*(self._start() for _ in range(self._size)))
        problems = dict.fromkeys(problem for problem in started if problem)
        if problems:
            raise InputError(list(problems))

    async def close(self) -> None:
        """Let the workers go, with all that they were answered in the journal."""
        self._closing = True
        self.stop(Halted("the run is over"))
        for worker in list(self._workers):
            if worker.attended is not None:
                await worker.attended
            if not worker.lost:
                with suppress(RayError):
                    await worker.actor.close.remote()

    def abandon(self) -> None:
        """End the workers, whatever they are doing; what the head has not got lies in shards."""
        for worker in self._workers:
            if worker.attended is not None:
                worker.attended.cancel()
            ray.kill(worker.actor)
        self._workers.clear()

    async def _start(self) -> str:
        """Start a worker; why it cannot work, empty where it can."""
        try:
            actor = self._actor.remote()
            ready: Ready = await asyncio.wait_for(actor.begin.remote(self._setup), START_SECONDS)
        except TimeoutError:
            return f"no machine had room for a worker within {START_SECONDS} s: see `ray status`"
        except (RayError, ConnectionError) as error:
            return f"a worker could not start: {error}"
        if ready.problem:
            ray.kill(actor)
            return ready.problem
        worker = _Worker(next(self._numbers), actor, ready)
        self._workers.append(worker)
        self._leases.add(worker.number)
        for path, entries in ready.left:
            self._book(None, merge(self._journal, entries))
            await self._journal.committed()
            await actor.forget.remote(path)
        worker.attended = asyncio.create_task(self._attend(worker))
        return ""

    async def _attend(self, worker: _Worker) -> None:
        """Lend and hear reports, as long as the worker is there."""
        lease = Lease()
        while True:
            try:
                report: Report = await worker.actor.report.remote(lease)
            except RayError as error:
                await self._bury(worker, error)
                return
            lease = self._hear(worker, report)
            wish = report.money.loan
            if self._closing and report.money.quiet:
                self._lender.take_back(worker.number, wish.begun)
                return
            try:
                lease.lent = await self._lender.lend(worker.number, wish)
                lease.unpriced = wish.unpriced
            except StorageError as error:
                self._run.gateway.stop(error)

    def _hear(self, worker: _Worker, report: Report) -> Lease:
        gateway = self._run.gateway
        for address in report.superseding:
            self._journal.lookup(address, b"", dict)
        for entry, covered in zip(report.entries, report.covers, strict=True):
            self._journal.put(entry, covered)
            if covered is not None:
                self._lender.settle(covered, worker.number)
        self._book(worker, report.entries)
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
        for model, use in report.uses.items():
            told = gateway.uses.setdefault(model, ModelUse())
            told.retries += use.retries
            told.lost += use.lost
        if report.stopped is not None:
            gateway.stop(cast("FolkmootError", unpacked(report.stopped)))
        before = self._leases.holds()
        lease = self._leases.lease(worker.number, report.uses, report.money)
        longer = {m: s for m, s in self._leases.holds().items() if s > before.get(m, 0.0) + 0.05}
        for other in self._workers:
            if longer and other is not worker:
                other.actor.hold.remote(longer)
        lease.found = {a: self._journal.at(a, whole=False) for a in report.wanted}
        worker.news.set()
        worker.news = asyncio.Event()
        return lease

    def _book(self, worker: _Worker | None, entries: Iterable[Entry]) -> None:
        """Count entries that went to the journal."""
        for entry in entries:
            paid = entry.kind != "compute"
            if paid:
                self._run.gateway.count(entry.model_asked, entry, replayed=False)
            if worker is not None:
                worker.received += 1
                if paid:
                    self._leases.settle(worker.number, entry.cost_usd)

    async def _bury(self, worker: _Worker, error: Exception) -> None:
        """A worker is lost: have what its disk holds, and start another in its place."""
        worker.lost = True
        self._workers.remove(worker)
        with suppress(StorageError):
            left = await self._salvaged(worker)
            for entry in left:  # what covered it is not known: at least what it cost
                covered = entry.cost_usd or 0.0 if entry.kind != "compute" else None
                self._journal.put(entry, covered)
                if covered is not None:
                    self._lender.settle(covered, worker.number)
            self._book(worker, left)
            await self._journal.committed()
        self._leases.lose(worker.number)
        out = self._lender.lose(worker.number)
        self._run.warn((), _describe_loss(error, out))
        self._losses += 1
        halted = self._closing or self._run.halted is not None
        problem = "" if halted else await self._start()
        if self._losses > LOST_AT_MOST or (problem and not self._workers):
            why = problem or f"{self._losses} workers were lost"
            self._run.gateway.stop(RunPaused(f"The cluster cannot go on: {why}"))
        worker.gone.set()
        worker.news.set()

    async def _salvaged(self, worker: _Worker) -> list[Entry]:
        """What a lost worker had written down and not sent."""
        ready = worker.ready
        if ready.shared:
            left = entries_after(ready.shard, worker.received)
            forget(ready.shard)
            return left
        there = NodeAffinitySchedulingStrategy(ready.node, soft=False)
        ask = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(entries_after)
        with suppress(RayError, TimeoutError):  # the machine is lost as well: it is asked again
            return cast(
                "list[Entry]",
                await asyncio.wait_for(ask.remote(ready.shard, worker.received), START_SECONDS),
            )
        return []

    async def _share(
        self,
        fork: int,
        begins: ray.ObjectRef,
        path: tuple[str, ...],
        parts: Sequence[Part[I]],
        results: dict[int, R],
    ) -> dict[int, BaseException]:
        """Run a share on the least busy worker, and once more should that be lost."""
        run, scopes = self._run, ["/".join((*path, part.key)) for part in parts]
        while True:
            known = known_in(self._journal, scopes)
            share = packed_by_name((list(parts), known, run.played), f"an item of {scopes[0]}")
            worker = min(self._workers, key=lambda w: w.parts, default=None)
            if worker is None or run.halted is not None:
                return {parts[0].number: Halted("the run is stopping")}
            worker.parts += len(parts)
            try:
                data = await worker.actor.share.remote(fork, begins, share)
            # The latter: its reply was still on the machine.
            except (RayActorError, ObjectLostError):
                await worker.gone.wait()
                continue
            except (RaySystemError, ConnectionError) as error:
                paused = RunPaused(f"The cluster cannot go on: Ray failed: {error}")
                return {parts[0].number: paused}
            finally:
                worker.parts -= len(parts)
            outcome = cast("Outcome", unpacked(data, run))
            while worker.received < outcome.row and not worker.gone.is_set():
                await worker.news.wait()
            if worker.received < outcome.row:
                continue  # its machine is lost with what it was answered
            await self._journal.committed()
            return self._take(outcome, results)

    def _take(self, outcome: Outcome, results: dict[int, R]) -> dict[int, BaseException]:
        """Record what a share came to."""
        run, journal = self._run, self._journal
        for address in outcome.used:
            entry = journal.at(address, whole=False)
            # What a lost worker was answered was counted then.
            if entry and entry.kind != "compute" and journal.row_of(address) <= self._rows_before:
                run.gateway.count(entry.model_asked, entry, replayed=True)
        for table, key, row in outcome.rows:
            run.add_row(key, table, row)
        for table, place in outcome.recorded_at.items():
            run.recorded_at.setdefault(table, place)
        for name, data in outcome.files.items():
            run.write_text(name, data.decode())
        run.played.update(outcome.roles)
        run.embedded = run.embedded or outcome.embedded
        longer = outcome.longer
        run.longer.calls += longer.calls
        run.longer.add(longer.input_tokens, longer.output_tokens, longer.cost_usd)
        run.longer.uncounted += longer.uncounted
        run.longer.unpriced += longer.unpriced
        results.update(cast("dict[int, R]", outcome.results))
        return {number: self._explained(error) for number, error in outcome.failures.items()}

    def _explained(self, error: BaseException) -> BaseException:
        """The error; of a drift what differs, which the journal here knows."""
        if isinstance(error, Drifted):
            try:
                self._journal.lookup(error.address, b"", lambda: error.request)
            except FolkmootError as told:
                return told
        return error


def _describe_loss(error: Exception, out: Amount) -> str:
    told = f"a worker was lost ({type(error).__name__}); another takes its shares"
    if out.calls:
        told += f"; possibly paid: {dollars(out.usd)} ({plural(out.calls, 'call')} in flight there)"
    return told


@asynccontextmanager
async def cluster(
    run: RunContext, found: StudyFile, where: str, workers: int | None, *, accept_changes: bool
) -> AsyncIterator[Cluster]:
    """Workers for a run, as long as the context is open. Raises InputError where there can be none,
    before anything is asked."""
    with connected(where, workers):
        size = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        setup = _setup(run, found, accept_changes=accept_changes)
        opened = Cluster(run, setup, size)
        try:
            await opened.open()
            yield opened
            await opened.close()
        except Exception:
            await opened.close()
            raise
        finally:
            opened.abandon()
            with suppress(OSError):  # a shard is left, or none ever lay here
                (run.folder / SHARDS).rmdir()


@contextmanager
def connected(where: str, workers: int | None) -> Iterator[None]:
    """A connection to Ray: the one that is there, or that of the address, or a cluster of our own
    on this machine. How Ray asks for its token is left as it is."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of the run
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _own_signals():
        try:
            if where != RAY:
                ray.init(where, **quiet)
            elif os.environ.get("RAY_ADDRESS"):
                ray.init(**quiet)
            else:
                own = {"include_dashboard": False, "object_store_memory": LOCAL_STORE}
                ray.init("local", num_cpus=workers, **own, **quiet)
        except Exception as error:  # Ray raises a plain one where a node does not start
            raise InputError(f"--executor {where}: Ray did not start: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; a run hears it as Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        with suppress(ValueError):  # another thread's business
            for number, handler in before.items():
                signal.signal(number, handler)


def _setup(run: RunContext, found: StudyFile, *, accept_changes: bool) -> Setup:
    started, embedding = run.plan.started_at, run.providers.embedding
    return Setup(
        study=_named(found),
        packed=packed((found.path, found.config)),
        prompts=run.prompts.wording() if found.config.prompts else None,
        folder=run.folder.resolve(),
        holder=(run.folder / HOLDER).read_text("utf-8"),
        key=digest(str(run.folder.resolve()), found.run_id, started).hex(),
        started_at=started,
        override=run.providers.override,
        embedding=embedding if isinstance(embedding, str) else None,
        limits=(found.config.budget_usd, found.config.budget_calls),
        accept_changes=accept_changes,
    )


def _named(found: StudyFile) -> bytes | str | tuple[str, Consent]:
    """How workers find the study type: by name or file, else it goes to them as it is."""
    named = found.config.study or found.study.name
    code = code_of(named, found.folder)
    if code is not None:
        return str(code.resolve()), agreement_for_workers(code)
    if named in registered() and find_study(named) is found.study:
        return named
    return packed_by_name(found.study, f"the study type {found.study.name}", found.study.protocol)
