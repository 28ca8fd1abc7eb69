"""Session and Scope: the interface between a study and the engine."""

# Every journaled call has a structural address: the scope path, the kind of call, and the number of
# the call among the calls of that kind. So serial, concurrent, resumed and distributed runs send
# the same requests and write the same tables.

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np

from folkmoot.conversation.answer_types import AnswerType, Json, Missing, Text
from folkmoot.conversation.prompts import as_prompt, wording_for_people
from folkmoot.conversation.transcript import (
    EMPTY_TRANSCRIPT,
    Speaker,
    Transcript,
    Utterance,
    build_messages,
)
from folkmoot.engine.calls.progress import AnswerMissing
from folkmoot.engine.journal.journal import escape_address_part
from folkmoot.engine.seats.question_view import view_for_human
from folkmoot.engine.seats.seats import (
    SELF_DESCRIPTION_QUESTION,
    Seat,
    SelfDescription,
    describe_oneself,
    self_description_address,
    with_self_description,
)
from folkmoot.engine.seats.utterances import SELF_DESCRIPTIONS, UTTERANCES, SelfDescriptionRow
from folkmoot.engine.session.arguments import (
    check_ask_arguments,
    item_key,
    require_awaitable,
    require_list,
    require_type,
)
from folkmoot.engine.session.asking import (
    AskedAt,
    AskResult,
    ask_until_parsed,
    build_answer_row,
)
from folkmoot.engine.session.computations import embed_texts, run_computation
from folkmoot.engine.session.confounders import with_confounders
from folkmoot.engine.session.map_execution import run_fork, run_locally
from folkmoot.engine.session.run_context import ForkExecutor, ForkItem, RunContext
from folkmoot.engine.session.seat_questions import (
    HumanQuestion,
    ask_due_checks,
    ask_human,
    note_question,
    record_wordings,
)
from folkmoot.engine.settings.config import ConfigT
from folkmoot.errors import ProtocolError
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.images import images_in_messages
from folkmoot.models.request import FloatArray, ModelRequest, RespondentHints, is_reply_of_human
from folkmoot.provenance import Quoted, quote_value, source_of
from folkmoot.randomness import generator
from folkmoot.storage.disk_store import StoredValue
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.rows import Row
from folkmoot.storage.table_buffer import RowOrder

__all__ = ["AskResult", "Scope", "Session"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

DEFAULT_REASKS = 2
_TABLE_NAME = re.compile(r"\w[\w-]*")


class Scope:
    """A named part of a protocol, with its own random generator.

    A scope makes one call at a time. Only `map` runs several items at once.
    """

    __slots__ = (
        *("_busy", "_counts", "_row_order", "_prefix", "_rng", "_run"),
        *("address", "finish", "path"),
    )

    def __init__(self, run: RunContext, path: tuple[str, ...], row_order: RowOrder) -> None:
        self._run = run
        self._row_order = row_order
        self._counts: dict[str, int] = {}
        self._busy = ""
        self._rng: np.random.Generator | None = None
        self._prefix: str | None = None
        # Finish reason and address of the last question of this scope.
        self.finish: str | None = None
        self.address = ""
        self.path = path

    @property
    def rng(self) -> np.random.Generator:
        """The random generator of this scope. Each use draws further numbers."""
        if self._rng is None:
            self._rng = generator(self._run.seed, self.path)
        return self._rng

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._run.seed

    def speaks_as_self(self, id: str, *scope_names: str) -> bool:
        """Return whether a human answers for this speaker without playing a persona.

        - `id`: the id of the speaker.
        - `scope_names`: the names of the child scope to check.

        If true, put `SELF_DESCRIPTION_PLACEHOLDER` into the prompt instead of a persona.
        """
        return self._run.humans_answer_as_themselves and self.is_human(id, *scope_names)

    def is_human(self, id: str, *scope_names: str) -> bool:
        """Return whether a human answers for this speaker.

        - `id`: the id of the speaker.
        - `scope_names`: the names of the child scope to check.
        """
        return bool(self._run.find_seat_in_scope(Speaker(id), (*self.path, *scope_names)))

    def child(self, *names: str) -> Scope:
        """Return the child scope at the path `names` below this scope.

        In the tables, the rows of the child scope have the position of this call.
        """
        row_order = RowOrder(self._row_order.next_key())
        return Scope(
            self._run, (*self.path, *(escape_address_part(name) for name in names)), row_order
        )

    def at_row(self, number: int) -> Scope:
        """Return a scope that can only record the rows of one item.

        `number`: the position of the item, from 0. In tables, items are sorted by position.
        """
        return Scope(self._run, self.path, RowOrder(self._row_order.key_of(number)))

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        history: Transcript = EMPTY_TRANSCRIPT,
        answer_type: AnswerType[T] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        reasks: int = DEFAULT_REASKS,
        about: str = "",
        shows: Sequence[str] = (),
        for_people: str = "",
    ) -> T | Missing:
        """Ask a speaker a question and return the parsed answer.

            vote = await scope.ask(speaker, "Yes or no?", answer_type=Choice(["yes", "no"]))

        - `history`: the transcript that the speaker is shown before the prompt.
        - `answer_type`: what kind of answer is expected. The default is free text.
        - `reasks`: the maximum number of repetitions after unreadable answers.
        - `about`: the topic, for simulated answers without a model.
        - `shows`: texts in the prompt, to be recorded as parts with a known source.
        - `for_people`: the wording for a human, if the prompt has no template.

        Returns `Missing` with the reason if no answer could be read and there is no
        `fallback_value`. Raises ProtocolError if the prompt lacks a text of `shows`, or has it more
        often than it is named.
        """
        # The embedded respondent reads no instructions, so it needs `about`. Texts and choices are
        # returned as `Quoted`: a prompt that contains them records who said them. A template
        # contains the wording for humans itself, in `{% if for_people %}`.
        result = await self.ask_detailed(
            speaker,
            prompt,
            history=history,
            answer_type=answer_type,
            temperature=temperature,
            max_tokens=max_tokens,
            reasks=reasks,
            about=about,
            shows=shows,
            for_people=for_people,
        )
        return result.value

    async def ask_detailed(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        history: Transcript = EMPTY_TRANSCRIPT,
        answer_type: AnswerType[T] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        reasks: int = DEFAULT_REASKS,
        about: str = "",
        shows: Sequence[str] = (),
        for_people: str = "",
    ) -> AskResult[T]:
        """Ask a question as `ask` does, and return the answer with details."""
        check_ask_arguments(speaker, prompt, history, answer_type, temperature, max_tokens)
        wanted = cast("AnswerType[T]", Text()) if answer_type is None else answer_type
        address = self._next_address("ask")
        run = self._run
        try:
            if wanted.configuration_error:
                raise ProtocolError(f"{address}: {wanted.configuration_error}")
            seat, view = run.find_seat(speaker, self.path), None
            if seat is not None:
                wanted = wanted.for_human()
                stages = seat.stages_of(self.path)
                await ask_due_checks(run, seat, stages)
                note_question(run, seat, stages)
            model = (
                run.model_at(address, speaker.model, speaker.role) if seat is None else HUMAN_MODEL
            )
            if seat is not None and run.humans_answer_as_themselves:
                speaker = with_self_description(speaker, await _get_self_description(run, seat))
            else:
                speaker = with_confounders(speaker, run.config.controls, run.seed)
            try:
                built = build_messages(speaker, history, prompt, shows)
            except ValueError as error:
                raise ProtocolError(f"ask(): {error}") from error
            built, wanted = run.revise_question(address, speaker, wanted, reasks, built)
            messages, cache_breakpoints, spans = built
            request = ModelRequest(
                model,
                messages,
                _first_not_none(temperature, speaker.temperature, run.config.temperature),
                _first_not_none(max_tokens, speaker.max_tokens, run.config.max_tokens),
                wanted.schema,
                images_in_messages(
                    {
                        *speaker.images,
                        *(image for utterance in history for image in utterance.images),
                    },
                    messages,
                ),
                _hints_for_respondent(speaker, wanted, about, history),
                cache_breakpoints,
                spans,
            )
            shown_prompt = as_prompt(prompt, as_prompt(for_people)) if for_people else prompt
            if seat is not None and run.seat_manager is not None:
                view = view_for_human(speaker, history, shown_prompt, wanted, len(messages))
                run.seat_manager.register_question(seat, address, view)
            asked_at = AskedAt(address, self._row_order, speaker.id)
            if seat is not None and run.records_wordings:
                record_wordings(run, asked_at, seat, speaker, history, shown_prompt)
            result = await ask_until_parsed(run, asked_at, request, wanted, reasks)
        finally:
            self._busy = ""
        self.finish, self.address = result.reply.finish, address
        if isinstance(result.value, Missing):
            run.progress(AnswerMissing(address))
        elif seat is not None and view is not None:
            run.seat_progress[seat].own_answers.append(view.describe_exchange(result.text))
        if seat is not None and is_reply_of_human(result.reply.finish):
            run.answered_seats.add(seat)
        row = build_answer_row(self.path, address, speaker, wanted, result)
        row["model_asked"], row["answered_by"] = model, run.answerer_kind(model)
        run.record_row(self._row_order, "answers", row)
        return result._replace(
            value=_with_source(result.value, wanted, address, speaker), address=address
        )

    def say(
        self,
        speaker: Speaker,
        text: str,
        *,
        address: str | None = None,
        part: str = "",
        public: bool = True,
        stage: str | None = None,
        round: int | None = None,
        missing: str | None = None,
        finish: str | None = None,
        images: tuple[str, ...] = (),
        **columns: object,
    ) -> Utterance:
        """Record an utterance in the table `utterances`, and return the utterance.

            transcript += scope.say(speaker, text)

        - `address`: the address of the question that the text answers, or "" if no model wrote it.
          The default is the address of the question to which `ask` returned the text.
        - `part`: a name for the utterance, if one reply contains several utterances.
        - `public`: whether the other speakers hear the utterance.
        - `finish`: the finish reason of the reply. The default is that of the last reply that this
          scope asked for, if `text` is this reply.
        - `columns`: additional columns of the study.
        """
        # The result can be quoted in a prompt with `.quoted_text`. `address` is `scope.address` or
        # `ask_detailed(…).address`. An empty public text is a silent turn.
        require_type(speaker, Speaker, "say(): speaker", "pass the Speaker who said it")
        remedy = (
            'pass the words; for a missing answer write say(speaker, "", missing=answer.reason)'
        )
        require_type(text, str, "say(): text", remedy)
        source = source_of(text)
        if address is None:
            address = source.address if source is not None and source.kind == "utterance" else ""
        if address:
            utterance_id = f"{address}#{escape_address_part(part)}" if part else address
        else:
            count = self._counts.get("said", 0)
            self._counts["said"] = count + 1
            utterance_id = f"{'/'.join((*self.path, 'said'))}{count}"
        if address and address == self.address:
            finish = self.finish
        stage = self.path[0] if stage is None and self.path else stage or ""
        row = {
            **columns,
            "utterance_id": utterance_id,
            "address": address,
            "scope": "/".join(self.path),
            "stage": stage,
            "round": round,
            "speaker_id": speaker.id,
            "speaker_name": speaker.name,
            "speaker_role": speaker.role,
            "public": public,
            "text": text,
            "missing": missing,
            "finish": finish,
        }
        self._run.record_row(self._row_order, UTTERANCES, row)
        utterance_fields = (stage, round, missing, finish, images, utterance_id, public)
        # A question may be said and asked. Humans who hear it later read their own wording of it.
        for_people = "" if (wording := wording_for_people(text)) is text else wording
        text = quote_value(text, "utterance", utterance_id, speaker.id)
        return Utterance(
            speaker.id,
            text,
            speaker.name,
            speaker.role,
            *utterance_fields,
            for_people=for_people,
        )

    @overload
    async def map(
        self, items: Mapping[str, Callable[[Scope], Awaitable[R]]], /
    ) -> dict[str, R]: ...

    @overload
    async def map(
        self,
        items: Mapping[str, I],
        fn: Callable[[Scope, I], Awaitable[R]],
        *,
        block: Callable[[I], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]: ...

    @overload
    async def map(
        self,
        items: Iterable[I],
        fn: Callable[[Scope, I], Awaitable[R]],
        *,
        key: Callable[[I], str] | None = None,
        block: Callable[[I], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]: ...

    async def map(
        self,
        items: Any,
        fn: Callable[[Scope, Any], Awaitable[R]] | None = None,
        *,
        key: Callable[[Any], str] | None = None,
        block: Callable[[Any], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]:
        """Run `fn(scope, item)` for all items at once, and return a map from key to result.

            answers = await session.map(people, ask_person)

        - `items`: a list of items, or a map from key to item.
        - `key`: returns the key of an item. The default is the item itself, or its `id`.
        - `block`: returns the name of an item's block. Under a budget, blocks run one by one.
        - `width`: how many calls one item usually makes at once. The larger this number, the fewer
          items run at once.

        Results are in input order, and keys must be unique. Without `fn`, the values of the map
        `items` are functions that get a scope. Raises the error of the first failed item.
        """
        # If an item fails, no new calls start and calls in flight are journaled. Under a budget,
        # blocks run in order, so that the money buys complete comparisons. `width` limits how many
        # items run at once, so that the first blocks are complete early.
        is_mapping = isinstance(items, Mapping)
        if is_mapping and key is not None:
            raise ProtocolError("map(): a dictionary has its own keys; leave key= out")
        item_list = list(items.values() if is_mapping else items)
        keys = [
            escape_address_part(item_name)
            for item_name in (items if is_mapping else map(key or item_key, item_list))
        ]
        if len(set(keys)) != len(keys):
            duplicate = next(name for i, name in enumerate(keys) if name in keys[:i])
            raise ProtocolError(
                f"{'/'.join(self.path) or 'session'}: map() was given a duplicate key, "
                f"{duplicate!r}"
            )
        if fn is None:
            if not (is_mapping and all(map(callable, item_list))):
                raise ProtocolError("map() needs a function, or a dictionary of functions")
            return await self._map_items(
                item_list, keys, lambda scope, function: function(scope), None
            )
        stage = self._run.report_stage_started(self.path, len(item_list))
        blocks = [block(item) for item in item_list] if block else []
        largest = max(Counter(blocks).values(), default=1)
        # Enough items for twice the concurrency: while one item computes, another has a call ready.
        # The negations round up.
        busy_items = -(-2 * self._run.config.concurrency // width) if width else len(item_list)
        at_once = max(largest, busy_items)
        return await self._map_items(
            item_list, keys, fn, self._run.executor, stage=stage, blocks=blocks, at_once=at_once
        )

    async def _map_items(
        self,
        items: list[I],
        keys: list[str],
        fn: Callable[[Scope, I], Awaitable[R]],
        executor: ForkExecutor | None,
        *,
        stage: str = "",
        blocks: Sequence[Hashable] = (),
        at_once: int = 0,
    ) -> dict[str, R]:
        fork = Fork(self.path, self._row_order.next_key(), fn, at_once or len(items))
        fork_items = [
            ForkItem(*fields) for fields in zip(range(len(items)), keys, items, strict=True)
        ]
        self._mark_busy("map")
        try:
            results = await run_fork(
                self._run, fork, fork_items, executor or run_locally, stage, blocks
            )
        finally:
            self._busy = ""
        return dict(zip(keys, results, strict=True))

    async def take_turns(
        self,
        speakers: Iterable[Speaker],
        fn: Callable[[Scope, Speaker, Transcript], Awaitable[Utterance | None]],
        history: Transcript = EMPTY_TRANSCRIPT,
    ) -> Transcript:
        """Let speakers speak in turn, and return `history` with their utterances added.

        `fn(scope, speaker, history)` returns an utterance, or None if the speaker stays silent.
        """
        require_type(
            history, Transcript, "take_turns(): history", "leave it out, or pass a Transcript"
        )
        for speaker in speakers:
            require_type(speaker, Speaker, "take_turns(): a speaker", "pass Speaker(…) objects")
            turn = fn(self.child(speaker.id), speaker, history)
            utterance = await require_awaitable(
                turn, fn, "take_turns(): fn(scope, speaker, history)"
            )
            if utterance is not None:
                hint = "return Utterance(speaker.id, text), or None if the speaker stays silent"
                require_type(utterance, Utterance, "take_turns(): the result of fn", hint)
                history = history + utterance
        return history

    async def embed(self, texts: Iterable[str]) -> FloatArray:
        """Return the embeddings of texts.

        The array is float32 with shape (texts, dimensions). Each row has the norm 1.
        """
        require_list(texts, "embed(): texts")
        address = self._next_address("embed")
        try:
            return await embed_texts(self._run, address, texts)
        finally:
            self._busy = ""

    async def compute(
        self, fn: Callable[..., Any], *args: Any, version: int = 1, name: str | None = None
    ) -> Any:
        """Return `fn(*args)`, which is computed once and then read from the journal.

        - `fn`: a function that depends on its arguments only. It runs in a thread.
        - `args`: JSON values or arrays. The result must be JSON.
        - `version`: a number to increase if `fn` gives other results than before.
        - `name`: the name of the computation in the journal. The default is the name of `fn`.
        """
        # With a `name`, `fn` can be moved or renamed while a run is paused.
        address = self._next_address("compute")
        try:
            return await run_computation(self._run, address, fn, args, version, name)
        finally:
            self._busy = ""

    @overload
    def record(self, row: Row, /) -> None: ...

    @overload
    def record(self, table: str, row: Mapping[str, object], /) -> None: ...

    def record(self, table: Row | str, row: Mapping[str, object] | None = None, /) -> None:
        """Add a row to a table of the run.

            scope.record("votes", {"voter": "p_0001", "vote": "yes"})

        Raises ProtocolError for an invalid name, or for a table that belongs to the engine.
        """
        # The file is `tables/<table>`. Tables keep the order of the protocol.
        name, cells = (table.table, table.cells()) if isinstance(table, Row) else (table, row)
        hint = 'write record("table", {"column": value})'
        require_type(name, str, "record(): the table", hint)
        require_type(cells, Mapping, "record(): the row", hint)
        is_engine_table = name in ("answers", PROVENANCE, SELF_DESCRIPTIONS, UTTERANCES)
        if is_engine_table or not _TABLE_NAME.fullmatch(name):
            reason = "a table of the engine" if is_engine_table else "not a plain name"
            remedy = "write say(speaker, text, …)" if name == UTTERANCES else "choose another name"
            raise ProtocolError(f"record(): the table {name!r} is {reason}; {remedy}")
        for column in cells or ():
            if not isinstance(column, str):
                require_type(column, str, f"record(): a column of {name}", hint)
        self._run.record_row(self._row_order, name, cells or {})

    def prompt(self, name: str, **variables: object) -> str:
        """Return the prompt of this name with its variables filled in."""
        # The researcher's own prompts replace those of the study.
        return self._run.prompts.render_prompt(name, **variables)

    def write_json(self, name: str, data: object) -> None:
        """Write a JSON file into the run folder atomically."""
        self._run.write_json(name, data)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file into the run folder atomically."""
        self._run.write_text(name, text)

    def store(self, value: T) -> StoredValue[T]:
        """Write a value to disk and return a handle. `handle.load()` reads the value."""
        # For values that a later stage needs, such as personas and transcripts, if there are many
        # thousand participants.
        return StoredValue(value, self._run.disk_store)

    def log(self, message: str) -> None:
        """Write a message to the run's log and the console."""
        self._run.log_message(self.path, message)

    def warn(self, message: str) -> None:
        """Log a warning for the researcher."""
        self._run.log_warning(self.path, message)

    @property
    def root(self) -> Session[Any]:
        """The session that this scope belongs to, as a new object.

        The random generator of the session starts again with every use.
        """
        # Two uses of `scope.root.rng` give the same draws. Studies use `scope.rng`, or keep the
        # session in a variable.
        return Session(self._run)

    def _mark_busy(self, kind: str) -> None:
        if self._busy:
            raise ProtocolError(
                f"{'/'.join(self.path) or 'session'}: {kind} while {self._busy} is in progress; "
                "a scope does one thing at a time, use map() for several"
            )
        self._busy = kind

    def _next_address(self, kind: str) -> str:
        # Also marks the scope as busy with one journaled call.
        self._run.check_awaited()
        self._mark_busy(kind)
        if self._prefix is None:
            self._prefix = "/".join(self.path)
            self._run.claim_scope(self._prefix)
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        return f"{self._prefix}/{kind}{count}" if self._prefix else f"{kind}{count}"


class Session(Scope, Generic[ConfigT]):
    """The outermost scope of a run, which the protocol of a study takes as its argument.

        async def protocol(session: Session[MyConfig]) -> None: ...

    `session.config` then has the type `MyConfig`.
    """

    __slots__ = ()

    def __init__(self, run: RunContext) -> None:
        super().__init__(run, (), run.row_order)

    @property
    def config(self) -> ConfigT:
        """The settings of the study file, as an instance of the study's config class."""
        return cast("ConfigT", self._run.config)

    @property
    def study_folder(self) -> Path:
        """The folder of the study file, to which paths in the file are relative."""
        return self._run.study_dir

    @property
    def started_at(self) -> str:
        """The time of the first start of the run, in ISO 8601 and UTC."""
        # A resume does not change it.
        return self._run.plan.started_at

    @property
    def provenance_label(self) -> str:
        """The sentence that says who answered, such as "SYNTHETIC: the embedded respondent …".

        The study writes it into its files. The sentence is empty if only models answered.
        """
        return self._run.provenance_label

    def resolve_model(self, role: str, named: str | None = None) -> str:
        """Return the model that answers in this role.

        `named`: the model that the study sets for one speaker, or None.
        """
        return self._run.resolve_model(role, named)

    def is_synthetic(self, role: str) -> bool:
        """Return whether the embedded rule-based respondent answers in this role."""
        return self._run.uses_embedded_respondent(role)

    def current_time(self) -> str:
        """Return the current time in ISO 8601 and UTC, for files that humans read.

        Results must not depend on the time.
        """
        return self._run.clock()

    @property
    def run_folder(self) -> Path:
        """The folder into which the run writes."""
        return self._run.folder

    def recorded_design(self, name: str) -> Mapping[str, object]:
        """Return a part of the design as the plan of this run has it. Empty in a new run.

        A study that draws in another way than an earlier version keeps the draw of its runs.
        """
        return self._run.plan.recorded_part(name)

    async def seal(self, name: str, data: object) -> None:
        """Fix a part of the design in `plan.json`, before any call depends on this part.

        Raises DriftError if a resumed run has different data under this name.
        """
        self._run.plan.seal_part(name, data)


def _hints_for_respondent(
    speaker: Speaker, answer_type: AnswerType[object], about: str, history: Transcript
) -> RespondentHints:
    names = {utterance.speaker_id: utterance.name for utterance in history if utterance.speaker_id}
    return RespondentHints(
        speaker.role,
        answer_type.form_kind,
        answer_type.offered_values,
        answer_type.end_signal,
        about,
        speaker.id,
        answer_type.total,
        tuple(names.items()),
    )


def _with_source(value: Any, answer_type: AnswerType[Any], address: str, speaker: Speaker) -> Any:
    # Texts and choices note who said them at which address. A choice does not note who proposed the
    # option: most replies state its words, which do not carry the source of the option.
    if not isinstance(value, str):
        return value
    return quote_value(
        str(value), "utterance" if answer_type.kind == "text" else "answer", address, speaker.id
    )


async def _get_self_description(run: RunContext, seat: Seat) -> Quoted:
    # The first call asks the human.
    if seat not in run.self_descriptions:
        run.self_descriptions[seat] = asyncio.ensure_future(_ask_self_description(run, seat))
    # The caller may be cancelled. Others wait for the same question.
    return await asyncio.shield(run.self_descriptions[seat])


async def _ask_self_description(run: RunContext, seat: Seat) -> Quoted:
    address = self_description_address(seat)
    row_order = run.order_after_protocol(seat)
    asked_at = AskedAt(address, row_order, seat.id)
    question = HumanQuestion(SELF_DESCRIPTION_QUESTION, Json(SelfDescription), DEFAULT_REASKS)
    answer = await ask_human(run, seat, asked_at, question)
    self_description = SelfDescription() if isinstance(answer, Missing) else answer
    row = SelfDescriptionRow(
        seat=seat.name, speaker_id=seat.id, address=address, text=self_description.as_prompt_text
    )
    run.record_row(row_order, row.table, row.cells())
    return describe_oneself(seat, self_description.as_prompt_text)


def _first_not_none(*values: Any) -> Any:
    for value in values:
        if value is not None:
            return value
    return None


@dataclass(frozen=True)
class Fork(Generic[I, R]):
    """One call of `Scope.map`: the function and the position of the call in the protocol."""

    path: tuple[str, ...]
    row_order: bytes
    fn: Callable[[Scope, I], Awaitable[R]]
    # The maximum number of items that run concurrently in one process.
    at_once: int

    def start_item(self, run: RunContext, fork_item: ForkItem[I]) -> Awaitable[R]:
        """Start the function for one item, in the scope of that item."""
        row_order = RowOrder(RowOrder(self.row_order).key_of(fork_item.number))
        awaitable = self.fn(Scope(run, (*self.path, fork_item.key), row_order), fork_item.item)
        return require_awaitable(awaitable, self.fn, "map(): fn(scope, item)")
