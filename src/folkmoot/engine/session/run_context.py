"""The state that all scopes of one run share: seed, journal, gateway, folder, rows, plan."""

# The runner creates the `RunContext`, and `session.py` uses it. Study types never see it.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import polars as pl

from folkmoot.conversation.answer_types import AnswerType
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import BuiltMessages, Speaker
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import ItemDone, Notice, Progress, StageStarted
from folkmoot.engine.calls.retries import RunHaltedError
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import ReplayJournal
from folkmoot.engine.seats.questionnaire import PEOPLE_COLUMNS, SeatProgress
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.plan import Plan
from folkmoot.engine.settings.author_errors import locate_calling_study_code
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem, ProtocolError, RunPausedError, StorageError
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL, is_synthetic
from folkmoot.models.request import Completion, FloatArray, ModelRequest
from folkmoot.provenance import Quoted, Span
from folkmoot.storage.disk_store import DiskStore
from folkmoot.storage.json_files import write_content, write_json, write_text
from folkmoot.storage.manifest import HOSTED, ModelUsage, label_answers
from folkmoot.storage.provenance_table import PROVENANCE, pack_spans, unpack_spans
from folkmoot.storage.run_folder import CODINGS, CONTROLS, ENGINE_FILES, TABLES, utc_timestamp
from folkmoot.storage.table_buffer import AFTER_PROTOCOL, RowFile, RowOrder, TableBuffer
from folkmoot.storage.tables import ANSWER_COLUMNS

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# Beginnings of the names that a study may not write. The name of the journal also covers
# `journal.sqlite-wal`. Names with a leading dot are locks and temporary files of the engine.
_ENGINE_NAMES = (*ENGINE_FILES, ".")
# Folders that a study may not write to. Controls that asked nothing are deleted with their folder,
# and a withdrawal deletes controls and codings.
_ENGINE_FOLDERS = (TABLES, CONTROLS, CODINGS)


# A run with a fork of more items is large: it then pays to save memory with a child process.
LARGE_FORK_ITEMS = 4_000
# How long rows wait in memory. `folkmoot view` polls every two seconds, so a write per second is
# soon enough.
FLUSH_SECONDS = 1.0


class ForkItem(NamedTuple, Generic[I]):
    """One item of a `Scope.map` call: number in input order, key in addresses, and the item."""

    number: int
    key: str
    item: I


class ForkLike(Protocol[I, R_co]):
    """What an executor needs from a `Scope.map` call: scope path, and a method to start items."""

    @property
    def path(self) -> tuple[str, ...]: ...

    @property
    def at_once(self) -> int: ...

    def start_item(self, run: RunContext, part: ForkItem[I], /) -> Awaitable[R_co]: ...


class ForkExecutor(Protocol):
    """A function that runs items of one `Scope.map` call, for example on the workers of a cluster.

    It stores the results in `results`, a map from item number to result. It returns a map from item
    number to error, for the failed items.
    """

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
    """The state that all scopes of one run share."""

    # The runner creates it.

    config: StudyConfig
    prompts: PromptLibrary
    # The columns of the tables that the study declares. This is not the `StudyFile`, because its
    # import would be circular.
    columns: Mapping[str, Mapping[str, str]]
    # Paths in the study file are relative to this folder.
    study_dir: Path
    folder: Path
    providers: ModelRouter
    journal: Journal | ReplayJournal
    gateway: Gateway
    plan: Plan
    progress: Progress
    clock: Callable[[], str] = utc_timestamp
    # Seats that humans take.
    seats: Sequence[Seat] = ()
    # Delivers questions to humans. None where no human can be asked, as in a replay.
    seat_manager: SeatManager | None = None
    # Runs the items that need not run in this process. None: all items run here.
    executor: ForkExecutor | None = None
    # The one changed reply of a fork of an earlier run.
    change: ReplyChange | None = None
    # Set by the first embedding.
    embedded: bool = False
    row_order: RowOrder = field(default_factory=RowOrder)
    tables: dict[str, TableBuffer] = field(default_factory=dict)
    # The line of the study's code that recorded the first row of each table, for error messages.
    recorded_at: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    # Errors about coroutines that the study created but did not await.
    unawaited_errors: list[ProtocolError] = field(default_factory=list)
    # Names of the files that the study wrote.
    study_files: set[str] = field(default_factory=set)
    # Final path → temporary path of files that replace the old ones once a resume is accepted.
    # None: files are written directly.
    held_files: dict[Path, Path] | None = None
    halt_cause: BaseException | None = None
    # Called when something stops new calls.
    on_halt: Callable[[], object] | None = None
    # Whether saving memory is worth an additional process.
    is_large: bool = False
    # Usage of calls that requested a cut reply again.
    cut_retry_usage: ModelUsage = field(default_factory=ModelUsage)
    compute_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Self-descriptions of humans, asked at most once per seat.
    self_descriptions: dict[Seat, asyncio.Future[Quoted]] = field(default_factory=dict)
    # Whether humans can be asked, or were asked in the run that is replayed. False in a dry run.
    asks_people: bool = True
    # Whether texts that humans read in another wording than models are recorded.
    records_wordings: bool = True
    # Seats in which a human gave an answer.
    answered_seats: set[Seat] = field(default_factory=set)
    # Hashes of the scope paths in use, not the paths: a run may have millions.
    _claimed: set[int] = field(default_factory=set)
    # (model named by the speaker, role) → the model that answers.
    models_by_seat: dict[tuple[str | None, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seed = self.config.random_seed
        self.disk_store = DiskStore(self.folder)
        self.row_file = RowFile(self.folder)
        self._next_flush: asyncio.TimerHandle | None = None
        # All seats, in the order of the study, also those that models play in the end.
        self._numbers_of_seats = {seat: number for number, seat in enumerate(self.seats)}
        self.seat_progress = {seat: SeatProgress() for seat in self.seats}
        self.seat_humans(self.seats)

    def order_after_protocol(self, seat: Seat, *numbers: int) -> RowOrder:
        """Return the position of a row about a seat, which follows all rows of the protocol.

        - `numbers`: the position among the rows of the seat.
        """
        # The order is by seat, because the time of an answer depends on people.
        keys = map(RowOrder().key_of, (self._numbers_of_seats[seat], *numbers))
        return RowOrder(AFTER_PROTOCOL + b"".join(keys))

    def seat_humans(self, seats: Sequence[Seat]) -> None:
        """Let humans answer in `seats`, and models in all other seats."""
        self.seats = seats
        self._seated: dict[str, list[Seat]] = {}
        for seat in seats:
            self._seated.setdefault(seat.id, []).append(seat)

    def find_seat(self, speaker: Speaker, path: Sequence[str]) -> Seat | None:
        """Return the seat of the human who answers a call, or None if a model answers."""
        # `path` is the path of the call's scope. Also records that a human has answered in this
        # role.
        seat = self.find_seat_in_scope(speaker, path)
        if seat is not None:
            self.models_by_seat[HUMAN_MODEL, speaker.role] = HUMAN_MODEL
        return seat

    def find_seat_in_scope(self, speaker: Speaker, path: Sequence[str]) -> Seat | None:
        """Return the seat of the human who plays a speaker in a scope, or None."""
        return next(
            (seat for seat in self._seated.get(speaker.id, ()) if seat.owns_call(speaker, path)),
            None,
        )

    @property
    def humans_answer_as_themselves(self) -> bool:
        """True if humans answer as themselves instead of playing a persona."""
        return self.config.seats is not None and self.config.seats.as_ == "self"

    def answerer_kind(self, model: str) -> str:
        """Return who answers under a model name: "human", "synthetic" or "model"."""
        if model == HUMAN_MODEL:
            return HUMAN_MODEL
        return (
            SYNTHETIC_MODEL
            if is_synthetic(model) and not self.providers.has_custom_provider
            else HOSTED
        )

    def requested_model(self, named: str | None, role: str) -> str:
        """Return the model that answers in a role, and record that the role uses the model.

        `named`: the model that the study sets for one speaker, or None.
        """
        # The first of these that is set counts: `--model`, the model that the speaker names, the
        # role's model, the study's model, the default.
        key = (named, role)
        if key not in self.models_by_seat:
            model_of_speaker = self.providers.speaker_model(named)
            configured = model_of_speaker or self.config.models.get(role) or self.config.model
            override, default = self.providers.override, self.providers.default
            self.models_by_seat[key] = override or configured or default
            # A study without any model runs with the embedded respondent by design. A warning is
            # due only if other roles have a real model.
            if not (override or configured) and not all(
                map(is_synthetic, self.config.models.values())
            ):
                self.log_warning((), f"no model is named for the role {role}: {default} answers")
            if named and model_of_speaker is None and not override:
                answering_model = self.models_by_seat[key]
                self.log_warning(
                    (),
                    (
                        f"the study names {named} for a participant, but that model was not "
                        f"chosen: {answering_model} answers"
                    ),
                )
        return self.models_by_seat[key]

    def model_at(self, address: str, named: str | None, role: str) -> str:
        """Return the model for the call at an address.

        `named`: the model that the study sets for one speaker, or None.
        """
        # A fork may set another model for one address.
        if self.change is None or self.change.model is None or self.change.address != address:
            return self.requested_model(named, role)
        # The provenance label and the manifest must know that this model answered, too.
        self.models_by_seat[self.change.model, role] = self.change.model
        return self.change.model

    def resolve_model(self, role: str, named: str | None = None) -> str:
        """Return the model that answers in a role.

        `named`: the model that the study sets for one speaker, or None.
        """
        # Unlike `requested_model`, this records nothing.
        configured = self.providers.speaker_model(named) or self.config.model_for(role)
        return self.providers.override or configured or self.providers.default

    def uses_embedded_respondent(self, role: str) -> bool:
        """Return whether the embedded rule-based respondent takes a role in place of a model."""
        return not self.providers.has_custom_provider and is_synthetic(self.resolve_model(role))

    def synthetic_roles(self) -> tuple[str, ...]:
        """The sorted roles in which the embedded rule-based respondent has answered so far."""
        if self.providers.has_custom_provider:
            return ()
        return tuple(
            sorted(
                {role for (_, role), model in self.models_by_seat.items() if is_synthetic(model)}
            )
        )

    @property
    def provenance_label(self) -> str:
        """The sentence that says who answered, such as "SYNTHETIC: the embedded respondent …".

        The sentence is empty if only models answered.
        """
        answerer_kinds = {
            (role, self.answerer_kind(model)) for (_, role), model in self.models_by_seat.items()
        }
        return label_answers(answerer_kinds, has_people=bool(self.answered_seats)).sentence

    def roles_by_model(self) -> dict[str, tuple[str, ...]]:
        """The sorted roles that each model has played so far, by model."""
        roles_by_model: dict[str, set[str]] = {}
        for (_, role), model in self.models_by_seat.items():
            roles_by_model.setdefault(model, set()).add(role)
        return {model: tuple(sorted(roles)) for model, roles in roles_by_model.items()}

    def revise_question(
        self,
        address: str,
        speaker: Speaker,
        answer_type: AnswerType[T],
        reasks: int,
        built: BuiltMessages,
    ) -> tuple[BuiltMessages, AnswerType[T]]:
        """Return the messages and the answer type with which a question is sent.

        `reasks`: the maximum number of repetitions, which stays as it is.
        """
        # Here they are those of the protocol. A protocol that a control runs again replaces parts
        # of the messages.
        return built, answer_type

    async def complete_request(
        self, address: str, request: ModelRequest, *, has_alternative: bool = False
    ) -> Completion:
        """Return the completion of a request, from the journal or from the model.

        `has_alternative`: True if the caller has an earlier reply to use if this request is
        rejected.
        """
        # Seals must be on disk before the calls that depend on them.
        self.plan.write_plan()
        await self.prefetch_entry(address)
        return await self.gateway.complete_request(
            address, request, has_alternative=has_alternative
        )

    async def embed_texts(self, address: str, texts: list[str]) -> FloatArray:
        """Return the embeddings of one batch of texts, with shape (texts, dimensions).

        Raises InputError if the study has no embedding model.
        """
        # They come from the journal or from the model.
        model = self.providers.embedding_choice
        if isinstance(model, Problem):
            raise InputError(model)
        self.plan.write_plan()
        self.embedded = True
        await self.prefetch_entry(address)
        return await self.gateway.embed_texts(address, model, texts)

    async def prefetch_entry(self, address: str) -> None:
        """Make the journal entry of an address available to the next lookup."""
        # Nothing to do here, because the journal is local. A cluster worker asks the main process
        # for the entry.

    def claim_scope(self, prefix: str) -> None:
        """Reserve a scope path.

        Raises ProtocolError if another scope uses the path already.
        """
        if hash(prefix) in self._claimed:
            raise ProtocolError(
                f"{prefix or 'session'}: another scope uses this path; give each part of the "
                "protocol its own name with child()"
            )
        self._claimed.add(hash(prefix))

    def check_awaited(self) -> None:
        """Raise ProtocolError if an `await` is missing in study code."""
        if self.unawaited_errors:
            raise self.unawaited_errors[0]

    def check_halted(self) -> None:
        if self.halt_cause is not None:
            raise RunHaltedError("the run is stopping")

    def stop_new_calls(self, cause: BaseException) -> None:
        """Stop new calls and let calls in flight finish."""
        # The first cause is kept.
        if self.halt_cause is None:
            self.halt_cause = cause
            self.gateway.stop_calls(RunHaltedError("the run is stopping"))
            if self.on_halt is not None:
                self.on_halt()

    @property
    def replays_while_pausing(self) -> bool:
        """True if this process resumes a run that is about to pause again.

        It then makes no new calls, but still replays the calls of earlier processes.
        """
        return (
            isinstance(self.halt_cause, RunPausedError)
            and isinstance(self.journal, Journal)
            and self.journal.is_resumed
        )

    def primary_error(self, failures: Mapping[int, BaseException]) -> BaseException:
        """Return the error of the first failed item in input order."""
        # If items failed only because the run stopped, this is the error that stopped the run.
        own_errors = [
            failures[i] for i in sorted(failures) if not isinstance(failures[i], RunHaltedError)
        ]
        if own_errors:
            return own_errors[0]
        assert self.halt_cause is not None or failures
        return self.halt_cause or failures[min(failures)]

    def report_stage_started(self, path: tuple[str, ...], total: int) -> str:
        """Report that a `Scope.map` call starts, and return the name of the call's stage.

        Returns an empty string if the call is not reported.
        """
        # A `map` in the session or one level below is reported. Deeper ones would give too many
        # reports.
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
        self.progress(Notice(_with_place(path, message)))

    def log_warning(self, path: tuple[str, ...], message: str) -> None:
        self.progress(Notice(_with_place(path, message), "warning"))

    def write_json(self, name: str, data: object) -> None:
        write_json(self._place_for(name), data)

    def write_text(self, name: str, text: str) -> None:
        write_text(self._place_for(name), text)

    def write_content(self, name: str, content: object) -> None:
        write_content(self._place_for(name), content)

    def _place_for(self, name: str) -> Path:
        # Until a resume is accepted, this is a temporary path if the file exists already.
        target = self._path_in_run_folder(name)
        self.study_files.add(name)
        if self.held_files is None:
            return target
        # A new file is written in its place even then, because the study may read it back. Only
        # existing files could be damaged by a refused resume.
        held_path = target.with_name(f".{target.name}.held") if target.exists() else target
        return self.held_files.setdefault(target, held_path)

    def write_held_files(self) -> None:
        """Replace the study's earlier files by the new files that this process has prepared."""
        # From now on, files are written directly.
        held_files, self.held_files = self.held_files or {}, None
        for target, held_path in held_files.items():
            if held_path != target:
                held_path.replace(target)

    def discard_held_files(self) -> None:
        """Delete the new files that this process has prepared, and keep the earlier files."""
        for held_path in (self.held_files or {}).values():
            held_path.unlink(missing_ok=True)

    def record_row(self, row_order: RowOrder, table: str, row: Mapping[str, object]) -> None:
        """Add a row to a table, at its position in the protocol."""
        self.add_row(row_order.next_key(), table, row)
        if table not in self.recorded_at:
            self.recorded_at[table] = locate_calling_study_code()

    def record_spans(self, row_order: RowOrder, address: str, spans: Sequence[Span]) -> None:
        """Record the sources of the texts in the request at an address."""
        if spans:
            self.record_row(row_order, PROVENANCE, {"address": address, "spans": pack_spans(spans)})

    def add_row(self, key: bytes, table: str, row: Mapping[str, object]) -> None:
        """Add a row to a table.

        `key`: the position of the row in the table.
        """
        buffer = self.tables.get(table)
        if buffer is None:
            buffer = self.tables[table] = self.new_recording(table)
        buffer.add_row(row, key)
        # Use a timer instead of checking the clock with each row. Rows must also be written while
        # none are added, for example while a human takes minutes to answer.
        if self._next_flush is None:
            self._flush_later()

    def new_recording(self, table: str) -> TableBuffer:
        """Return an empty buffer for the rows of a table."""
        # A full buffer moves its rows to the run's file of rows.
        columns = self.columns.get(table) or PEOPLE_COLUMNS.get(table, {})
        return TableBuffer(table, self.row_file, columns)

    def ensure_answers_table(self) -> None:
        """Add the table `answers` without rows if no answer has been recorded yet."""
        # Files and findings of a study read this table, and the run may pause before its first
        # answer.
        if "answers" not in self.tables:
            self.tables["answers"] = TableBuffer("answers", self.row_file, ANSWER_COLUMNS)

    def _flush_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_flush = loop.call_later(FLUSH_SECONDS, self._flush_rows)

    def _flush_rows(self) -> None:
        self._next_flush = None
        # A resume that may still be refused must change no file.
        if self.held_files is not None:
            self._flush_later()
            return
        try:
            self.row_file.write_rows(self.tables.values())
        except StorageError as error:
            self.stop_new_calls(error)

    def recorded_tables(self) -> Iterator[tuple[str, pl.DataFrame | pl.LazyFrame]]:
        """Yield the name and the content of each table, with rows in the order of the protocol.

        Raises ProtocolError if a column mixes values of different types.
        """
        # Tables that the study declares are yielded even without rows. The error has the line of
        # study code that recorded the table.
        for name in sorted({*self.tables, *self.columns}):
            try:
                table = (self.tables.get(name) or self.new_recording(name)).to_frame()
                yield name, unpack_spans(table) if name == PROVENANCE else table
            except ProtocolError as error:
                error.location = self.recorded_at[name]
                raise

    def close_rows(self, *, keep: bool) -> None:
        """Stop recording rows.

        `keep`: whether the recorded rows stay on disk.
        """
        # They are kept if no tables were written. The row file then stays readable until `--resume`
        # computes the rows again.
        if self._next_flush is not None:
            self._next_flush.cancel()
            self._next_flush = None
        # Files are still held back, so the resume was refused: leave nothing behind.
        if self.held_files is not None:
            self.row_file.discard_file()
        elif keep:
            # A full disk has stopped the run already and is reported as its cause.
            with suppress(StorageError):
                self.row_file.write_rows(self.tables.values())
            self.row_file.close()
        else:
            self.row_file.remove_file()

    def _path_in_run_folder(self, name: str) -> Path:
        target = (self.folder / name).resolve()
        if not target.is_relative_to(self.folder.resolve()):
            raise ProtocolError(f"{name}: a study may write only inside its run folder")
        path_parts = target.relative_to(self.folder.resolve()).parts
        # Some file systems ignore case.
        name_in_folder = path_parts[0].casefold() if path_parts else ""
        if (
            not name_in_folder
            or name_in_folder in _ENGINE_FOLDERS
            or name_in_folder.startswith(_ENGINE_NAMES)
        ):
            raise ProtocolError(f"the engine writes {name}; choose another name")
        return target


def _with_place(path: tuple[str, ...], message: object) -> str:
    # Study authors also log numbers and tables.
    return f"{'/'.join(path)}: {message}" if path else str(message)
