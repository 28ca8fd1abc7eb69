"""What all scopes of one run share: seed, journal, gateway, folder, rows, plan.

Made by the runner, used by `session.py`; a study never sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import polars as pl

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import ItemDone, Notice, Progress, StageStarted
from folkmoot.engine.calls.retries import RunHaltedError
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import ReplayJournal
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.settings.author_errors import locate_calling_study_code
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem, ProtocolError, StorageError
from folkmoot.models.catalog import HUMAN_MODEL, is_synthetic
from folkmoot.models.request import Completion, FloatArray, ModelRequest
from folkmoot.provenance import Quoted, Span
from folkmoot.storage.disk_store import DiskStore
from folkmoot.storage.json_files import write_content, write_json, write_text
from folkmoot.storage.manifest import ModelUsage, describe_mark
from folkmoot.storage.provenance_table import PROVENANCE, pack_spans, unpack_spans
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PLAN,
    STUDY_FILE_NAME,
    TABLES,
    utc_timestamp,
)
from folkmoot.storage.table_buffer import ROWS, RowFile, RowOrder, TableBuffer

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# What the engine writes into a run folder; also `journal.sqlite-wal`.
_ENGINE_FILES = (PLAN, MANIFEST, STUDY_FILE_NAME, CODEBOOK, JOURNAL, LOG, LOG_LINES, ROWS, ".lock")


LARGE_FORK_ITEMS = 4_000  # items of a fork; of more, the run is a large one
# How long rows wait in memory. `folkmoot view` asks for news every two seconds.
FLUSH_SECONDS = 1.0


class ForkItem(NamedTuple, Generic[I]):
    """One part of a fork: its number among them, its name in addresses, and the item."""

    number: int
    key: str
    item: I


class ForkLike(Protocol[I, R_co]):
    """A fork, as whoever runs its parts sees it."""

    @property
    def path(self) -> tuple[str, ...]: ...

    @property
    def at_once(self) -> int: ...

    def start_item(self, run: RunContext, part: ForkItem[I], /) -> Awaitable[R_co]: ...


class ForkExecutor(Protocol):
    """Where parts of a fork run: fills in results by index, and says why parts failed."""

    async def __call__(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        parts: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
        /,
    ) -> dict[int, BaseException]: ...


@dataclass
class RunContext:
    """The shared state of a run. `embedded` is set by the first embedding. `executor`: where parts
    run that need not run in this process; None where all do.

    The study file comes in parts, because a study type holds a function over a session, and so over
    this. `columns` are those of the tables that the study declares; `study_dir` is the folder that
    paths in the file are relative to.
    """

    config: StudyConfig
    prompts: PromptLibrary
    columns: Mapping[str, Mapping[str, str]]
    study_dir: Path
    folder: Path
    providers: ModelRouter
    journal: Journal | ReplayJournal
    gateway: Gateway
    plan: Plan
    progress: Progress
    clock: Callable[[], str] = utc_timestamp
    seats: Sequence[Seat] = ()  # that people take
    seat_manager: SeatManager | None = None  # where they answer; None where nobody can be asked
    executor: ForkExecutor | None = None
    change: ReplyChange | None = None  # the one reply in which it differs from another run
    embedded: bool = False
    place: RowOrder = field(default_factory=RowOrder)
    tables: dict[str, TableBuffer] = field(default_factory=dict)
    recorded_at: dict[str, tuple[str, int] | None] = field(default_factory=dict)  # first rows
    unawaited_errors: list[ProtocolError] = field(default_factory=list)  # awaits
    study_files: set[str] = field(default_factory=set)  # files of the study's own
    held_files: dict[Path, Path] | None = None  # file → where it waits; None: nothing is held back
    halt_cause: BaseException | None = None
    is_large: bool = False  # whether memory is worth a process more
    cut_retry_usage: ModelUsage = field(
        default_factory=ModelUsage
    )  # calls that asked again for cut replies
    compute_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    self_descriptions: dict[Seat, asyncio.Future[Quoted]] = field(
        default_factory=dict
    )  # people's own
    answered_seats: set[Seat] = field(default_factory=set)  # seats in which a person gave an answer
    _claimed: set[int] = field(default_factory=set)  # hashes of paths: there may be millions
    models_by_seat: dict[tuple[str | None, str], str] = field(
        default_factory=dict
    )  # models, by seat

    def __post_init__(self) -> None:
        self.seed = self.config.random_seed
        self.shelf = DiskStore(self.folder)
        self.row_file = RowFile(self.folder)
        self._next_flush: asyncio.TimerHandle | None = None
        self._seated: dict[str, list[Seat]] = {}
        for place in self.seats:
            self._seated.setdefault(place.id, []).append(place)

    def find_seat(self, who: Speaker, path: Sequence[str]) -> Seat | None:
        """The seat of the person whose call this is; None where a model answers."""
        found = self.find_seat_in_scope(who, path)
        if found is not None:
            self.models_by_seat[HUMAN_MODEL, who.role] = HUMAN_MODEL
        return found

    def find_seat_in_scope(self, who: Speaker, path: Sequence[str]) -> Seat | None:
        """The place of a person in whose scope this path is."""
        return next(
            (seat for seat in self._seated.get(who.id, ()) if seat.owns_call(who, path)), None
        )

    @property
    def humans_answer_as_themselves(self) -> bool:
        """Whether people speak for themselves, and play no card."""
        return self.config.seats is not None and self.config.seats.as_ == "self"

    def answerer_kind(self, model: str) -> str:
        """Who answers under a model's name: a person, the embedded respondent, or a model."""
        if model == HUMAN_MODEL:
            return HUMAN_MODEL
        return (
            "synthetic"
            if is_synthetic(model) and not self.providers.has_custom_provider
            else "model"
        )

    def requested_model(self, named: str | None, role: str) -> str:
        """The model of a seat: command line, then the speaker's own, then the role's, then all."""
        key = (named, role)
        if key not in self.models_by_seat:
            asked = self.providers.seat_model(named)
            own = asked or self.config.models.get(role) or self.config.model
            override, default = self.providers.override, self.providers.default
            self.models_by_seat[key] = override or own or default
            if not (override or own) and not all(map(is_synthetic, self.config.models.values())):
                self.log_warning((), f"no model is named for the role {role}: {default} answers")
            if named and asked is None and not override:
                who = self.models_by_seat[key]
                self.log_warning((), f"nobody asked for {named}, which a seat names: {who} answers")
        return self.models_by_seat[key]

    def model_at(self, address: str, named: str | None, role: str) -> str:
        """The model that is asked at an address: that of the seat, unless a fork names another."""
        if self.change is None or self.change.model is None or self.change.address != address:
            return self.requested_model(named, role)
        self.models_by_seat[self.change.model, role] = self.change.model
        return self.change.model

    def resolve_model(self, role: str, named: str | None = None) -> str:
        """The model that answers a role, in a seat that names its own (`named`) or not, even if it
        is never asked."""
        own = self.providers.seat_model(named) or self.config.model_for(role)
        return self.providers.override or own or self.providers.default

    def uses_embedded_respondent(self, role: str) -> bool:
        """Whether the embedded respondent answers a role."""
        return not self.providers.has_custom_provider and is_synthetic(self.resolve_model(role))

    def synthetic_roles(self) -> tuple[str, ...]:
        """The roles that the embedded respondent has answered so far, in order of name."""
        if self.providers.has_custom_provider:
            return ()
        return tuple(
            sorted(
                {role for (_, role), model in self.models_by_seat.items() if is_synthetic(model)}
            )
        )

    @property
    def provenance_label(self) -> str:
        """The mark on files that people or the embedded respondent had a part in; else empty."""
        who = {
            (role, self.answerer_kind(model)) for (_, role), model in self.models_by_seat.items()
        }
        return describe_mark(who, has_people=bool(self.answered_seats))

    def roles_by_model(self) -> dict[str, tuple[str, ...]]:
        """Which roles each model has played so far, in order of name."""
        played: dict[str, set[str]] = {}
        for (_, role), model in self.models_by_seat.items():
            played.setdefault(model, set()).add(role)
        return {model: tuple(sorted(roles)) for model, roles in played.items()}

    async def complete_request(
        self, address: str, request: ModelRequest, *, spare: bool = False
    ) -> Completion:
        """One reply, from the journal or from the model."""
        self.plan.write_plan()
        await self.prefetch_entry(address)
        return await self.gateway.complete_request(address, request, has_alternative=spare)

    async def embed_texts(self, address: str, texts: list[str]) -> FloatArray:
        """One batch of embeddings, from the journal or from the model."""
        model = self.providers.resolve_embedding
        if isinstance(model, Problem):
            raise InputError(model)
        self.plan.write_plan()
        self.embedded = True
        await self.prefetch_entry(address)
        return await self.gateway.embed_texts(address, model, texts)

    async def prefetch_entry(self, address: str) -> None:
        """Have what the journal holds at an address where it is looked up; a worker of a cluster
        may have to ask for it."""

    def claim_scope(self, prefix: str) -> None:
        """Note that a scope path has effects; a second scope of that path may not."""
        if hash(prefix) in self._claimed:
            raise ProtocolError(
                f"{prefix or 'session'}: this path is in use by another scope; give each part of "
                "the protocol a name of its own with at()"
            )
        self._claimed.add(hash(prefix))

    def check_awaited(self) -> None:
        """Raise ProtocolError if the study forgot an `await`."""
        if self.unawaited_errors:
            raise self.unawaited_errors[0]

    def check_halted(self) -> None:
        if self.halt_cause is not None:
            raise RunHaltedError("the run is stopping")

    def stop_new_calls(self, cause: BaseException) -> None:
        """Start no new calls; calls in flight go on. The first cause stays."""
        if self.halt_cause is None:
            self.halt_cause = cause
            self.gateway.stop_calls(RunHaltedError("the run is stopping"))

    def primary_error(self, failures: Mapping[int, BaseException]) -> BaseException:
        """The error to raise: the first item's own, or what stopped the run."""
        own = [failures[i] for i in sorted(failures) if not isinstance(failures[i], RunHaltedError)]
        if own:
            return own[0]
        assert self.halt_cause is not None or failures
        return self.halt_cause or failures[min(failures)]

    def report_stage_started(self, path: tuple[str, ...], total: int) -> str:
        """Report the progress of a fork; only those near the root are worth a line."""
        self.is_large = self.is_large or total > LARGE_FORK_ITEMS
        stage = "/".join(path[:1]) or "run"
        if len(path) <= 1:
            self.progress(StageStarted(stage, total))
            return stage
        return ""

    def report_item_done(self, stage: str) -> None:
        if stage:
            self.progress(ItemDone(stage))

    def log_message(self, path: tuple[str, ...], message: str) -> None:
        self.progress(Notice(f"{'/'.join(path)}: {message}" if path else message))

    def log_warning(self, path: tuple[str, ...], message: str) -> None:
        self.progress(Notice(f"{'/'.join(path)}: {message}" if path else message, "warning"))

    def write_json(self, name: str, data: object) -> None:
        write_json(self._place_for(name), data)

    def write_text(self, name: str, text: str) -> None:
        write_text(self._place_for(name), text)

    def write_content(self, name: str, content: object) -> None:
        write_content(self._place_for(name), content)

    def _place_for(self, name: str) -> Path:
        """Where to write a file of the study: aside, while files are held back."""
        target = self._path_in_run_folder(name)
        self.study_files.add(name)
        if self.held_files is None:
            return target
        # A file that is not there yet is written at once, since the study may read it back.
        aside = target.with_name(f".{target.name}.held") if target.exists() else target
        return self.held_files.setdefault(target, aside)

    def write_held_files(self) -> None:
        """Put the files that were held back in their places, and hold back no more."""
        held, self.held_files = self.held_files or {}, None
        for target, aside in held.items():
            if aside != target:
                aside.replace(target)

    def discard_held_files(self) -> None:
        """Remove the files that are still held back."""
        for aside in (self.held_files or {}).values():
            aside.unlink(missing_ok=True)

    def record_row(self, place: RowOrder, table: str, row: Mapping[str, object]) -> None:
        """Add a row to a table, at this place among the rows of the protocol."""
        self.add_row(place.next_key(), table, row)
        if table not in self.recorded_at:
            self.recorded_at[table] = locate_calling_study_code()

    def record_spans(self, place: RowOrder, address: str, spans: Sequence[Span]) -> None:
        """Record whose texts stand in the request at an address."""
        if spans:
            self.record_row(place, PROVENANCE, {"address": address, "spans": pack_spans(spans)})

    def add_row(self, key: bytes, table: str, row: Mapping[str, object]) -> None:
        """Add a row at the place of this key."""
        if table not in self.tables:
            self.tables[table] = self.new_recording(table)
        self.tables[table].add_row(row, key)
        # A timer, and no look at the clock for each row: rows are written while nothing happens
        # too, as when a human takes minutes to answer.
        if self._next_flush is None:
            self._flush_later()

    def new_recording(self, table: str) -> TableBuffer:
        """Return an empty table. Its rows wait in the file of the run."""
        return TableBuffer(table, self.row_file, self.columns.get(table, {}))

    def _flush_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_flush = loop.call_later(FLUSH_SECONDS, self._flush_rows)

    def _flush_rows(self) -> None:
        """Write the rows in memory, so that other processes can read them."""
        self._next_flush = None
        if self.held_files is not None:  # a resume that may still be refused changes no file
            self._flush_later()
            return
        try:
            self.row_file.write_rows(self.tables.values())
        except StorageError as error:
            self.stop_new_calls(error)

    def recorded_tables(self) -> Iterator[tuple[str, pl.DataFrame | pl.LazyFrame]]:
        """The tables by name, their rows in the order of the protocol; those that the study
        declares are there without rows too."""
        for name in sorted({*self.tables, *self.columns}):
            try:
                table = (self.tables.get(name) or self.new_recording(name)).to_frame()
                yield name, unpack_spans(table) if name == PROVENANCE else table
            except ProtocolError as error:
                error.place = self.recorded_at[name]
                raise

    def close_rows(self, *, keep: bool) -> None:
        """Record no more. `keep`: no tables were written, so that the rows stay readable until
        `--resume` computes them again."""
        if self._next_flush is not None:
            self._next_flush.cancel()
            self._next_flush = None
        if self.held_files is not None:  # a refused resume
            self.row_file.discard_file()
        elif keep:
            with suppress(StorageError):  # of what stopped the run, the researcher knows
                self.row_file.write_rows(self.tables.values())
            self.row_file.close()
        else:
            self.row_file.remove_file()

    def _path_in_run_folder(self, name: str) -> Path:
        target = (self.folder / name).resolve()
        if not target.is_relative_to(self.folder.resolve()):
            raise ProtocolError(f"{name}: a study may write inside its run folder only")
        inside = target.relative_to(self.folder.resolve()).parts
        if not inside or inside[0] == TABLES or inside[0].startswith(_ENGINE_FILES):
            raise ProtocolError(f"{name} is written by the engine; choose another name")
        return target
