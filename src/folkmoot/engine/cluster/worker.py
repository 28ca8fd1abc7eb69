"""A worker of a cluster: the engine in another process, which runs shares of the parts of `each`.

The head calls its methods; Ray runs each of them on the worker's own event loop.
"""

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

from folkmoot.conversation.prompts import SUFFIX, PromptLibrary
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.calls.progress import CallDone, Event
from folkmoot.engine.calls.retries import UNBOUNDED, Allowance, Halted
from folkmoot.engine.cluster.leases import Lease, Money, report_of, take
from folkmoot.engine.cluster.pickling import packed, packed_by_name, sendable, unpacked
from folkmoot.engine.journal.journal import Entry
from folkmoot.engine.journal.shards import SHARDS, Shard, entries_after, forget, hold, shards_in
from folkmoot.engine.limits.budget import Budget
from folkmoot.engine.limits.lender import Loan
from folkmoot.engine.limits.rate_limiter import Use
from folkmoot.engine.session.folder_access import HOLDER
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.session.run_context import Part, RunContext
from folkmoot.engine.session.session import Fork, here
from folkmoot.engine.settings.author_errors import caller
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import Study, find_study, load_study
from folkmoot.engine.study.study_file import prompts_of
from folkmoot.errors import FolkmootError, InputError, ProtocolError
from folkmoot.storage.manifest import ModelUse
from folkmoot.storage.run_folder import PLAN
from folkmoot.storage.table_buffer import Cell, Place, cells_of

REPORT_SECONDS = 0.25  # between two reports, and so between two leases
SOONEST = 0.05  # the same, where calls wait for a lease
CLOSURES = 8  # functions of forks that are kept unpacked

# What a share is: its parts, what the journal has of them, and which models played which roles.
Share = tuple[list[Part[object]], dict[str, Entry], dict[tuple[str | None, str], str]]


class Setup(NamedTuple):
    """What a worker must know of the run. `study` is the study type itself, packed, or how to find
    it: its name, or its file and the consent to that. `holder` is the content of the run folder's
    file of that name: a worker that reads the same content there sees that folder. `key` names the
    run elsewhere."""

    study: bytes | str | tuple[str, Consent]
    packed: bytes  # the path of the study file, its config
    prompts: Mapping[str, str] | None  # the user's own
    folder: Path
    holder: str
    key: str
    started_at: str
    override: str | None
    embedding: str | None
    limits: tuple[float | None, int | None]
    accept_changes: bool


class Ready(NamedTuple):
    """What a worker says when it is set up: why it cannot work, or where its shard lies, whether
    that is the run folder, on which of Ray's nodes, and what workers before it `left` there."""

    problem: str
    shard: Path = Path()
    shared: bool = False
    node: str = ""
    left: tuple[tuple[Path, list[Entry]], ...] = ()


@dataclass(slots=True)
class Report:
    """What a worker tells the head: what was answered (in order; `covers`: with what cover in USD,
    None for what none covered), what happened, what it needs.

    `wanted`: addresses of which it does not know whether the journal has them.
    """

    entries: list[Entry]
    covers: list[float | None]
    superseding: list[str]
    wanted: list[str]
    events: list[Event]
    uses: dict[str, Use]
    money: Money
    stopped: bytes | None


@dataclass(slots=True)
class Outcome:
    """What a share came to. `row`: the entries that must be in the journal before it counts."""

    results: dict[int, object]
    failures: dict[int, BaseException]
    rows: list[tuple[str, bytes, dict[str, Cell]]]
    recorded_at: dict[str, tuple[str, int] | None]
    files: dict[str, bytes]
    used: list[str]
    roles: dict[tuple[str | None, str], str]
    embedded: bool
    longer: ModelUse
    row: int = 0


class _Plan(Plan):
    """What a worker knows of the plan; the head alone writes it."""

    def seal(self, name: str, data: object) -> None:
        raise ProtocolError(
            f"seal({name!r}) within each(): with --executor the plan is the head's; seal before"
        )

    def write(self) -> None:
        """The head did, before it sent anything."""


class _Running(NamedTuple):
    """A share under way: the scopes of its parts, of which the head sent all there is, and the rows
    recorded by them."""

    scopes: tuple[str, ...]
    rows: list[tuple[str, bytes, dict[str, Cell]]]


@dataclass
class _Run(RunContext):
    """The run as a worker knows it: what is recorded and written waits for the head. `ask` has the
    head say what the journal holds at an address."""

    ask: Callable[[str], Awaitable[None]] = field(kw_only=True)
    running: ContextVar[_Running] = field(default_factory=lambda: ContextVar("share"))

    def record(self, place: Place, table: str, row: Mapping[str, object]) -> None:
        self.recorded_at.setdefault(table, caller())
        self.running.get().rows.append((table, place.next(), cells_of(row, table)))

    async def find(self, address: str) -> None:
        if not address.startswith(self.running.get().scopes):
            await self.ask(address)

    def files(self) -> dict[str, bytes]:
        """What was written since the last time."""
        found = {name: (self.folder / name).read_bytes() for name in self.written}
        for name in self.written:
            (self.folder / name).unlink()
        self.written.clear()
        return found


class _Bell:
    """Rings when the gateway starts no more calls."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def stop(self, error: FolkmootError) -> None:
        self._ring()


class Worker:
    """One worker; an actor of Ray's."""

    async def begin(self, setup: Setup) -> Ready:
        """Set the engine up. Says why that cannot be, rather than raise."""
        try:
            return self._begin(setup)
        except (FolkmootError, ImportError, OSError, AttributeError) as error:
            why = str(error) if isinstance(error, FolkmootError) else repr(error)
            return Ready(f"the worker on {socket.gethostname()} cannot work: {why}")

    def _begin(self, setup: Setup) -> Ready:
        self._locks: list[FileLock] = []
        study = _study_of(setup.study)
        path, config = cast("tuple[Path, StudyConfig]", unpacked(setup.packed))
        seats, respondent = study.seat_models(config), study.respondent
        providers = Providers(config, setup.override, seats=seats, respondent=respondent)
        providers.check(embeds=study.embeds, images=study.images(config))
        if setup.embedding is not None:
            providers.embedding = setup.embedding
        scratch = Path(tempfile.mkdtemp(prefix="folkmoot-worker-"))
        shared = _text(setup.folder / HOLDER) == setup.holder
        shards = setup.folder / SHARDS if shared else shards_elsewhere(setup.key)
        shards.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = () if shared else self._found_in(shards)
        name = f"{os.getpid()}-{socket.gethostname()}-{scratch.name}"
        own = shards / f"{name}.sqlite"
        self._locks += filter(None, (hold(own),))
        self._shard = Shard(own, accept_changes=setup.accept_changes)
        self._sent = 0
        self._events: list[Event] = []
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._closures: dict[int, Fork[object, object]] = {}
        self._urgent, self._hungry = asyncio.Event(), asyncio.Event()
        usd, calls = setup.limits
        nothing = (None if usd is None else 0.0, None if calls is None else 0)
        budget = Budget(*nothing, ask_for_more=self._hungry.set)
        self._loan = Loan(self._hungry.set, 2 * REPORT_SECONDS)
        self._allowance = Allowance(budget, UNBOUNDED, tell=self._call_for, loan=self._loan)
        self._allowance.users.append(_Bell(self._wake))
        gateway = Gateway(self._shard, providers.open, config, self._tell, self._allowance)
        plan = _Plan(scratch / PLAN, started_at=setup.started_at)
        prompts = prompts_of(study, config, path.parent)
        if setup.prompts is not None:
            prompts = PromptLibrary(study.prompts, scratch / "prompts")
            for prompt, text in setup.prompts.items():
                file = scratch / "prompts" / f"{prompt}{SUFFIX}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
        self._run = _Run(
            *(config, prompts, {}, path.parent, scratch, providers, self._shard, gateway),
            *(plan, self._tell),
            ask=self._ask,
        )
        node = ray.get_runtime_context().get_node_id()
        return Ready("", self._shard.path, shared, node, left)

    async def share(self, fork: int, begins: bytes, share: bytes) -> bytes:
        """Run some parts of a fork; the `Outcome`, packed."""
        run = self._run
        begin = self._closure(fork, begins)
        parts, known, played = cast("Share", unpacked(share, run))
        run.played.update(played)
        self._shard.known.update(known)
        scopes = tuple(f"{'/'.join((*begin.path, part.key))}/" for part in parts)
        running = _Running(scopes, [])
        run.running.set(running)
        results: dict[int, object] = {}
        failures = await here(run, begin, parts, results, stage="")
        if run.halted is not None:  # by another share, or the head
            left = (part.number for part in parts if part.number not in results)
            failures = {**dict.fromkeys(left, Halted("the run is stopping")), **failures}
            await run.gateway.drain()
        for address in known:
            self._shard.known.pop(address, None)
        used, self._shard.used = self._shard.used, []
        longer, run.longer = run.longer, ModelUse()
        self._wake()
        outcome = Outcome(
            results,
            {i: sendable(error) for i, error in failures.items()},
            running.rows,
            run.recorded_at,
            run.files(),
            used,
            run.played,
            run.embedded,
            longer,
            self._sent + self._shard.unsent,
        )
        try:
            return packed_by_name(outcome, f"what each() at {'/'.join(begin.path)} gives", begin.fn)
        except ProtocolError as error:
            return packed(replace(outcome, results={}, failures={parts[0].number: error}))

    async def report(self, lease: Lease) -> Report:
        """Go on with a lease; after a while, or as soon as something is to be told, report."""
        uses_of = self._run.gateway.uses
        for model, grant in lease.models.items():
            if grant.answered:  # elsewhere: prompts that it takes are no riddle (`Attempts`)
                uses_of.setdefault(model, ModelUse()).replayed |= 1
        take(lease, self._allowance, self._loan)
        for address, entry in lease.found.items():
            if entry is not None:
                self._shard.known[address] = entry
            self._wanted.pop(address).set_result(None)
        for seconds, event in ((SOONEST, self._urgent), (REPORT_SECONDS - SOONEST, self._hungry)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
                break
        self._urgent.clear()
        self._hungry.clear()
        sent = await self._shard.to_send()
        self._sent += len(sent)
        events, self._events = self._events, []
        superseding, self._shard.superseding = self._shard.superseding, []
        uses, money = report_of(self._allowance, self._loan, quiet=not self._shard.unsent)
        for model, use in uses.items():
            told = uses_of.setdefault(model, ModelUse())
            use.retries, use.lost = told.retries, told.lost
            told.retries = told.lost = 0
        stopped = self._run.gateway.stopped
        return Report(
            [entry for entry, _ in sent],
            [covered for _, covered in sent],
            superseding,
            list(self._wanted),
            events,
            uses,
            money,
            None if stopped is None else packed(sendable(stopped)),
        )

    async def hold(self, holds: Mapping[str, float]) -> None:
        """Other workers learned that models want to be left alone for so many seconds."""
        for model, seconds in holds.items():
            if model in self._allowance.limiters:
                self._allowance.limiters[model].learn_hold(seconds)

    async def stop(self, error: bytes) -> None:
        """Start no more calls."""
        stopped = cast("FolkmootError", unpacked(error))
        self._run.halted = self._run.halted or stopped
        self._run.gateway.stop(stopped)

    async def forget(self, shard: Path) -> None:
        """The head has what a worker before this one left."""
        forget(shard)

    async def close(self) -> None:
        """The run is over, and the head has all that this worker was answered."""
        await self._run.gateway.close()
        self._shard.close()
        for lock in self._locks:
            lock.release()
        forget(self._shard.path)
        shutil.rmtree(self._run.folder, ignore_errors=True)

    async def _ask(self, address: str) -> None:
        """Know what the journal holds at an address outside the scopes of a share."""
        if address not in self._wanted:
            self._wanted[address] = asyncio.get_running_loop().create_future()
            self._wake()
        await self._wanted[address]

    def _found_in(self, shards: Path) -> tuple[tuple[Path, list[Entry]], ...]:
        """What workers that are gone left on this machine, of which no other worker has hold."""
        found = [(path, hold(path)) for path in shards_in(shards)]
        self._locks += [lock for _, lock in found if lock is not None]
        return tuple((path, entries_after(path, 0)) for path, lock in found if lock is not None)

    def _closure(self, fork: int, begins: bytes) -> Fork[object, object]:
        """What a fork runs, unpacked once."""
        if fork not in self._closures:
            while len(self._closures) >= CLOSURES:
                del self._closures[next(iter(self._closures))]
            self._closures[fork] = cast("Fork[object, object]", unpacked(begins, self._run))
        return self._closures[fork]

    def _call_for(self, urgent: bool) -> None:
        """Have the head hear of it soon that limits are not enough, or at once."""
        (self._wake if urgent else self._hungry.set)()

    def _wake(self) -> None:
        self._urgent.set()
        self._hungry.set()

    def _tell(self, event: Event) -> None:
        if not isinstance(event, CallDone):  # the head counts entries
            self._events.append(event)


def _study_of(named: bytes | str | tuple[str, Consent]) -> Study:
    """The study type that the head runs. Raises InputError where this machine has another."""
    if isinstance(named, bytes):
        return cast("Study", unpacked(named))
    if isinstance(named, str):
        return find_study(named)
    file, consent = named
    if not Path(file).is_file():
        raise InputError(
            f"the study type is defined in {file}, and this machine has no such file; put it "
            "there, or install it as a package on every machine"
        )
    return load_study(Path(file), consent)


def shards_elsewhere(key: str) -> Path:
    """Where the shards of a run lie on a machine that does not see its folder."""
    return Path(tempfile.gettempdir()) / f"folkmoot-shards-{os.getuid()}" / key


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
