"""Session and Scope: all that a study may do. Every effect goes through the journal at an address.

The address is structural: the path of the scope, the kind of effect, and how many of that kind the
scope has had. So serial, concurrent, resumed and distributed runs ask the same things and get the
same bytes. Studies import this and nothing else of the engine.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np

from folkmoot.conversation.answer_types import Answer, Json, Missing, Text
from folkmoot.conversation.transcript import (
    EMPTY,
    Speaker,
    Transcript,
    Utterance,
    build_messages,
)
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.progress import AnswerMissing
from folkmoot.engine.journal.journal import as_part
from folkmoot.engine.seats.seat_manager import Scene
from folkmoot.engine.seats.seats import (
    OWN_CARD,
    OwnCard,
    Playable,
    as_oneself,
    describe_oneself,
    own_card_at,
)
from folkmoot.engine.seats.utterances import SELF_DESCRIPTIONS, UTTERANCES, SelfDescriptionRow
from folkmoot.engine.session.confounders import with_confounders
from folkmoot.engine.session.effects import (
    AskedAt,
    Exchange,
    answer_row,
    computed,
    converse,
    embedded,
)
from folkmoot.engine.session.run_context import Away, Begins, Part, RunContext
from folkmoot.engine.settings.config import Config
from folkmoot.errors import ProtocolError
from folkmoot.models.catalog import HUMAN
from folkmoot.models.images import shown_in
from folkmoot.models.request import FloatArray, Request, RespondentHints
from folkmoot.provenance import Quoted, quote, source_of
from folkmoot.randomness import generator
from folkmoot.storage.disk_store import Kept
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.rows import Row
from folkmoot.storage.table_buffer import AFTER_PROTOCOL, Place

__all__ = ["Exchange", "Scope", "Session"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

REASKS = 2
# Items begun before the loop may look at its sockets: 1,200 begun at once would all write their
# prompts before the first request leaves the machine.
BEGUN_AT_ONCE = 32


class Scope:
    """A place in a run. Sequential: only `each` forks.

    Raises ProtocolError for two calls at once in one scope, or an address used twice.
    """

    __slots__ = (
        *("_busy", "_counts", "_place", "_prefix", "_rng", "_run"),
        *("address", "finish", "path"),
    )

    def __init__(self, run: RunContext, path: tuple[str, ...], place: Place) -> None:
        self._run = run
        self._place = place
        self._counts: dict[str, int] = {}
        self._busy = ""
        self._rng: np.random.Generator | None = None
        self._prefix: str | None = None
        self.finish: str | None = None  # how the last reply asked for here ended
        self.address = ""  # … and the address of its question
        self.path = path

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this path; the same object at each use, so draws go on."""
        if self._rng is None:
            self._rng = generator(self._run.seed, self.path)
        return self._rng

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._run.seed

    def oneself(self, id: str, *within: str) -> bool:
        """Whether a person speaks for themselves in this seat, in the scope below this one by these
        names. Their prompts then say `YOURSELF` where a card would stand, and nothing drawn."""
        return self._run.as_oneself and self.is_human(id, *within)

    def is_human(self, id: str, *within: str) -> bool:
        """Whether a human answers for this speaker in the scope below this one by these names."""
        return bool(self._run.place_of(Speaker(id), (*self.path, *within)))

    def at(self, *names: str) -> Scope:
        """The scope below this one by these names. What it records stands at this point."""
        place = Place(self._place.next())
        return Scope(self._run, (*self.path, *(as_part(n) for n in names)), place)

    def at_row(self, number: int) -> Scope:
        """A scope for the rows of the n-th of many (from 0): they stand in the order of the
        numbers, whichever is recorded first. It asks nothing."""
        return Scope(self._run, self.path, Place(self._place.part(number)))

    async def ask(
        self,
        who: Speaker,
        prompt: str,
        *,
        heard: Transcript = EMPTY,
        answer: Answer[T] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        reasks: int = REASKS,
        about: str = "",
        shows: Sequence[str] = (),
    ) -> T | Missing:
        """Ask one speaker one thing; the parsed answer, or why there is none.

        `heard` is all that the speaker knows of the conversation besides the prompt. An answer
        that cannot be read is asked for again `reasks` times with what was wrong; then it is
        `Missing`, or the `fallback` of a `Json` answer. Text and choices come back as `Quoted`: put
        into a later prompt, they say whose words they are.

        `about`: the matter that is asked about, for the embedded respondent, who reads no
        instructions. `shows`: texts that stand in a prompt which was written without a template;
        it is an error if one of them does not.
        """
        exchange = await self.exchange(
            who,
            prompt,
            heard=heard,
            answer=answer,
            temperature=temperature,
            max_tokens=max_tokens,
            reasks=reasks,
            about=about,
            shows=shows,
        )
        return exchange.value

    async def exchange(
        self,
        who: Speaker,
        prompt: str,
        *,
        heard: Transcript = EMPTY,
        answer: Answer[T] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        reasks: int = REASKS,
        about: str = "",
        shows: Sequence[str] = (),
    ) -> Exchange[T]:
        """`ask`, with the raw reply, the parse step and the number of re-asks."""
        _check_asked(who, prompt, heard, answer)
        wanted = cast("Answer[T]", Text()) if answer is None else answer
        address = self._enter("ask")
        run = self._run
        try:
            seat = run.seat_of(who, self.path)
            model = run.model_at(address, who.model, who.role) if seat is None else HUMAN
            if seat is not None and run.as_oneself:
                who = as_oneself(who, await _own_card(run, seat))
            else:
                who = with_confounders(who, run.config.controls, run.seed)
            try:
                messages, begins, spans = build_messages(who, heard, prompt, shows)
            except ValueError as error:
                raise ProtocolError(f"ask(): {error}") from error
            request = Request(
                model,
                messages,
                _first(temperature, who.temperature, run.config.temperature),
                _first(max_tokens, who.max_tokens, run.config.max_tokens),
                wanted.schema,
                shown_in({*who.images, *(w for u in heard for w in u.images)}, messages),
                _hints_for_respondent(who, wanted, about, heard),
                begins,
                spans,
            )
            if seat is not None and run.desk is not None:
                said = tuple(u for u in heard if u.missing is None and u.text)
                form, count = (wanted.form, wanted.offered), len(messages)
                scene = Scene(who, said, prompt, *form, count, wanted.problem_in)
                run.desk.expect(seat, address, scene)
            asked_at = AskedAt(address, self._place, who.id)
            got = await converse(run, asked_at, request, wanted, reasks)
        finally:
            self._busy = ""
        self.finish, self.address = got.reply.finish, address
        if isinstance(got.value, Missing):
            run.progress(AnswerMissing(address))
        elif seat is not None:
            run.sat.add(seat)
        row = answer_row(self.path, address, who, wanted, got)
        answered = {"model_asked": model, "answered_by": run.answered_by(model)}
        run.record(self._place, "answers", {**row, **answered})
        return got._replace(value=_with_source(got.value, wanted, address, who), address=address)

    def say(
        self,
        who: Speaker,
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
        """Record that a speaker said something, in the table `utterances`, and return it with its
        source: for a `Transcript`, or for a prompt by `.quoted`.

        The reply that the text comes from is known from the text, if it is as `ask` gave it. Else
        give the `address` (`scope.address` of the last question here, `exchange.address`); the
        empty one is for words that no model wrote. `part` tells the texts of one reply apart, such
        as the turns of several residents. `public`: whether the others in the conversation hear it;
        an empty public text is a silent turn. `finish`: how that reply ended, if it is not the last
        one that was asked for here. `columns` are the study's own columns of the table.
        """
        known = source_of(text)
        if address is None:
            address = known.address if known is not None and known.kind == "utterance" else ""
        if address:
            id = f"{address}#{as_part(part)}" if part else address
        else:
            count = self._counts.get("said", 0)
            self._counts["said"] = count + 1
            id = f"{'/'.join((*self.path, 'said'))}{count}"
        if address and address == self.address:
            finish = self.finish
        stage = self.path[0] if stage is None and self.path else stage or ""
        row = {
            **columns,
            "utterance_id": id,
            "address": address,
            "scope": "/".join(self.path),
            "stage": stage,
            "round": round,
            "speaker_id": who.id,
            "speaker_name": who.name,
            "speaker_role": who.role,
            "public": public,
            "text": text,
            "missing": missing,
            "finish": finish,
        }
        self._run.record(self._place, UTTERANCES, row)
        said = (stage, round, missing, finish, images, id, public)
        text = quote(text, "utterance", id, who.id)
        return Utterance(who.id, text, who.name, who.role, *said)

    @overload
    async def each(
        self, items: Mapping[str, Callable[[Scope], Awaitable[R]]], /
    ) -> dict[str, R]: ...

    @overload
    async def each(
        self,
        items: Mapping[str, I],
        fn: Callable[[Scope, I], Awaitable[R]],
        *,
        sets: Callable[[I], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]: ...

    @overload
    async def each(
        self,
        items: Iterable[I],
        fn: Callable[[Scope, I], Awaitable[R]],
        *,
        key: Callable[[I], str] | None = None,
        sets: Callable[[I], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]: ...

    async def each(
        self,
        items: Any,
        fn: Callable[[Scope, Any], Awaitable[R]] | None = None,
        *,
        key: Callable[[Any], str] | None = None,
        sets: Callable[[Any], Hashable] | None = None,
        width: int = 0,
    ) -> dict[str, R]:
        """Run `fn(scope, item)` for all items side by side; results by key, in input order.

        The key is the item itself, its `id`, or what `key` gives; it must be unique. Of a
        dictionary the keys are the names, the values the items; without `fn` the values are parts
        of the protocol that need nothing of each other, each called with a scope of its own.

        When one fails, calls in flight are awaited and journaled, no new ones begin, and the error
        of the first item (in input order) is raised.

        `sets` names what an item is compared within (the same residents at every level): under a
        budget sets are run in order, so that the money buys whole comparisons. `width`: how many
        calls an item has in flight for most of its time. Then no more sets are begun than keep the
        permitted calls busy, so that a run has whole sets early.
        """
        named = isinstance(items, Mapping)
        listed = list(items.values() if named else items)
        keys = [as_part(k) for k in (items if named else map(key or _key_of, listed))]
        if len(set(keys)) != len(keys):
            twice = next(k for i, k in enumerate(keys) if k in keys[:i])
            raise ProtocolError(
                f"{'/'.join(self.path) or 'session'}: each() was given a duplicate key, {twice!r}"
            )
        if fn is None:
            if not (named and all(map(callable, listed))):
                raise ProtocolError("each() needs a function, or a dictionary of functions")
            return await self._fork(listed, keys, lambda scope, part: part(scope), None)
        stage = self._run.stage_started(self.path, len(listed))
        of = [sets(i) for i in listed] if sets else []
        largest = max(map(of.count, dict.fromkeys(of)), default=1)
        enough = -(-2 * self._run.config.concurrency // width) if width else len(listed)
        at_once = max(largest, enough)
        return await self._fork(
            listed, keys, fn, self._run.away, stage=stage, sets=of, at_once=at_once
        )

    async def _fork(
        self,
        items: list[I],
        keys: list[str],
        fn: Callable[[Scope, I], Awaitable[R]],
        away: Away | None,
        *,
        stage: str = "",
        sets: Sequence[Hashable] = (),
        at_once: int = 0,
    ) -> dict[str, R]:
        fork = Fork(self.path, self._place.next(), fn, at_once or len(items))
        parts = [Part(*one) for one in zip(range(len(items)), keys, items, strict=True)]
        self._hold("each")
        try:
            results = await fan_out(self._run, fork, parts, away or here, stage, sets)
        finally:
            self._busy = ""
        return dict(zip(keys, results, strict=True))

    async def in_turn(
        self,
        speakers: Iterable[Speaker],
        fn: Callable[[Scope, Speaker, Transcript], Awaitable[Utterance | None]],
        heard: Transcript = EMPTY,
    ) -> Transcript:
        """Speakers one after another, each hearing those before; `heard` and what was added.

        `fn(scope, speaker, heard so far)` gives an utterance, or None for who keeps silent.
        """
        _must_be(heard, Transcript, "in_turn(): heard", "leave it out, or give a Transcript")
        for speaker in speakers:
            _must_be(speaker, Speaker, "in_turn(): a speaker", "give Speaker(…) objects")
            begun = fn(self.at(speaker.id), speaker, heard)
            said = await _async_of(begun, fn, "in_turn(): fn(scope, speaker, heard)")
            if said is not None:
                hint = "return Utterance(speaker.id, text), or None for who keeps silent"
                _must_be(said, Utterance, "in_turn(): what fn gave", hint)
                heard = heard + said
        return heard

    async def embed(self, texts: Iterable[str]) -> FloatArray:
        """Embeddings (n, d) of texts, rows of length one, asked for in batches of 100."""
        address = self._enter("embed")
        try:
            return await embedded(self._run, address, texts)
        finally:
            self._busy = ""

    async def compute(
        self, fn: Callable[..., Any], *args: Any, version: int = 1, name: str | None = None
    ) -> Any:
        """`fn(*args)`, pure but expensive: run once in a thread, journaled, replayed after.

        Arguments are JSON values or arrays; the result must be JSON and comes back as its own round
        trip. Raise `version` when `fn` gives other results than before. The journal knows the
        computation by `name` (default: module and name of `fn`): give one, and `fn` can be moved or
        renamed while a run is paused.
        """
        address = self._enter("compute")
        try:
            return await computed(self._run, address, fn, args, version, name)
        finally:
            self._busy = ""

    @overload
    def record(self, row: Row, /) -> None: ...

    @overload
    def record(self, table: str, row: Mapping[str, object], /) -> None: ...

    def record(self, table: Row | str, row: Mapping[str, object] | None = None, /) -> None:
        """Add a row to its table, or to `tables/<table>`. Rows stand in the order of the protocol,
        always."""
        name, cells = (table.table, table.cells()) if isinstance(table, Row) else (table, row)
        hint = 'write record("table", {"column": value})'
        _must_be(name, str, "record(): the table", hint)
        _must_be(cells, Mapping, "record(): the row", hint)
        engines = name in ("answers", PROVENANCE, SELF_DESCRIPTIONS)
        if engines or not re.fullmatch(r"\w[\w-]*", name):
            why = "a table of the engine" if engines else "not a plain name"
            raise ProtocolError(f"record(): the table {name!r} is {why}; name one of your own")
        for column in cells or ():
            _must_be(column, str, f"record(): a column of {name}", hint)
        self._run.record(self._place, name, cells or {})

    def prompt(self, name: str, **variables: object) -> str:
        """The study's prompt of that name (or the user's own in its place), filled in."""
        return self._run.prompts.render(name, **variables)

    def write_json(self, name: str, data: object) -> None:
        """Write a JSON file into the run folder, whole or not at all."""
        self._run.write_json(name, data)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file into the run folder, whole or not at all."""
        self._run.write_text(name, text)

    def keep(self, value: T) -> Kept[T]:
        """Keep a value on disk until its `get`: what each of very many people takes along to a
        later stage (a persona, a conversation)."""
        return Kept(value, self._run.shelf)

    def log(self, message: str) -> None:
        """Write a message to the run's log and the console."""
        self._run.log(self.path, message)

    def warn(self, message: str) -> None:
        """Log something that the user should look at."""
        self._run.warn(self.path, message)

    @property
    def root(self) -> Session[Any]:
        """The session that this scope belongs to."""
        return Session(self._run)

    def _hold(self, kind: str) -> None:
        if self._busy:
            raise ProtocolError(
                f"{'/'.join(self.path) or 'session'}: {kind} while {self._busy} is under way; "
                "a scope does one thing at a time, use each() to do several"
            )
        self._busy = kind

    def _enter(self, kind: str) -> str:
        """Take the scope for one effect; its address."""
        self._run.check_awaited()
        self._hold(kind)
        if self._prefix is None:
            self._prefix = "/".join(self.path)
            self._run.claim(self._prefix)
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        return f"{self._prefix}/{kind}{count}" if self._prefix else f"{kind}{count}"


class Session(Scope, Generic[Config]):
    """The root scope of a run: a study is an async function over one of these.

    `Session[MyConfig]` types `session.config`; a plain `Session` leaves it open.
    """

    __slots__ = ()

    def __init__(self, run: RunContext) -> None:
        super().__init__(run, (), run.place)

    @property
    def config(self) -> Config:
        """The study's settings, as its own config model."""
        return cast("Config", self._run.config)

    @property
    def study_dir(self) -> Path:
        """The folder of the study file, against which its paths are read."""
        return self._run.study_dir

    @property
    def started_at(self) -> str:
        """When the run was first started (ISO 8601, UTC); the same after every resume."""
        return self._run.plan.started_at

    @property
    def synthetic_mark(self) -> str:
        """What a file must say that the embedded respondent had a part in so far; else empty."""
        return self._run.synthetic_mark

    def model_of(self, role: str, named: str | None = None) -> str:
        """The model that answers this role, in a seat that names its own (`named`) or not."""
        return self._run.model_of(role, named)

    def synthetic(self, role: str) -> bool:
        """Whether the embedded respondent answers this role."""
        return self._run.embedded_respondent(role)

    def now(self) -> str:
        """The time of day (ISO 8601, UTC), for files that only people read; never a result."""
        return self._run.now()

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return self._run.folder

    async def seal(self, name: str, data: object) -> None:
        """Fix a part of the design: it stands in plan.json before the calls that it governs.

        On a resume the same data must come out; otherwise DriftError says what differs.
        """
        self._run.plan.seal(name, data)


def _hints_for_respondent(
    who: Speaker, wanted: Answer[object], about: str, history: Transcript
) -> RespondentHints:
    names = tuple({u.speaker_id: u.name for u in history if u.speaker_id}.items())
    hints = (who.role, wanted.form, wanted.offered, wanted.signal, about, who.id, wanted.total)
    return RespondentHints(*hints, names)


def _with_source(value: Any, wanted: Answer[Any], address: str, who: Speaker) -> Any:
    """A text or a choice as a text that knows where it was said."""
    if not isinstance(value, str):
        return value
    return quote(value, "utterance" if wanted.kind == "text" else "answer", address, who.id)


async def _own_card(run: RunContext, seat: Playable) -> Quoted:
    """What the person in a seat says of themselves; asked once, whoever needs it first."""
    if seat not in run.cards:
        run.cards[seat] = asyncio.ensure_future(_ask_card(run, seat))
    return await asyncio.shield(run.cards[seat])


async def _ask_card(run: RunContext, seat: Playable) -> Quoted:
    who, wanted, address = Speaker(seat.id), Json(OwnCard), own_card_at(seat)
    messages, _, spans = build_messages(who, EMPTY, OWN_CARD)
    asked = RespondentHints(who.role, wanted.form, speaker=seat.id)
    request = Request(HUMAN, messages, schema=wanted.schema, asked=asked, spans=spans)
    if run.desk is not None:
        scene = Scene(who, (), OWN_CARD, "json", (), len(messages), wanted.problem_in)
        run.desk.expect(seat, address, scene)
    # After all rows of the protocol, in the order of the seats: which of a person's questions comes
    # first depends on how fast others answer.
    place = Place(AFTER_PROTOCOL + Place().part(run.seats.index(seat)))
    got = await converse(run, AskedAt(address, place, who.id), request, wanted, REASKS)
    card = OwnCard() if isinstance(got.value, Missing) else got.value
    row = SelfDescriptionRow(seat=seat.name, speaker_id=seat.id, address=address, text=card.told)
    run.record(place, row.table, row.cells())
    return describe_oneself(seat, card.told)


def _first(*values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _check_asked(who: object, prompt: object, heard: object, answer: object) -> None:
    _must_be(who, Speaker, "ask(): who", 'give Speaker("p_0001", system="You are …")')
    _must_be(prompt, str, "ask(): the prompt", 'give text, e.g. scope.prompt("name", …)')
    _must_be(heard, Transcript, "ask(): heard", "leave it out, or give EMPTY + Utterance(…)")
    if answer is not None and not isinstance(answer, Answer):
        given = answer.__name__ if isinstance(answer, type) else repr(answer)[:60]
        raise ProtocolError(
            f"ask(): answer is {given}, which is not an answer type; give Text(), Choice(options), "
            "Number(low, high) or Json(Model)"
        )


def _must_be(value: object, kind: type, what: str, hint: str) -> None:
    if isinstance(value, kind):
        return
    given = f"of type {type(value).__name__}"
    if inspect.iscoroutine(value):
        value.close()
        given, hint = "a coroutine", "put `await` before the call that gave it"
    raise ProtocolError(f"{what} is {given}, not {kind.__name__}; {hint}")


def _async_of(begun: Awaitable[R], fn: object, what: str) -> Awaitable[R]:
    if inspect.isawaitable(begun):
        return begun
    name = getattr(fn, "__name__", "fn")
    code = getattr(fn, "__code__", None)
    place = (code.co_filename, code.co_firstlineno) if code else None
    hint = "make it call an async function" if name == "<lambda>" else f"write `async def {name}`"
    raise ProtocolError(f"{what} is not async; {hint}", place)


def _key_of(item: object) -> str:
    if isinstance(item, (str, int)):
        return str(item)
    found = getattr(item, "id", None)
    if isinstance(found, (str, int)):
        return str(found)
    raise ProtocolError(f"each() needs key= for items of type {type(item).__name__}")


@dataclass(frozen=True)
class Fork(Generic[I, R]):
    """What `each` runs, and where in the protocol: all that another machine must know of it but
    the parts. `at_once`: parts that are under way at the same time in one process, at most."""

    path: tuple[str, ...]
    place: bytes
    fn: Callable[[Scope, I], Awaitable[R]]
    at_once: int

    def begin(self, run: RunContext, part: Part[I]) -> Awaitable[R]:
        """Begin one part, in a scope of its own."""
        place = Place(Place(self.place).part(part.number))
        begun = self.fn(Scope(run, (*self.path, part.key), place), part.item)
        return _async_of(begun, self.fn, "each(): fn(scope, item)")


async def fan_out(
    run: RunContext,
    fork: Fork[I, R],
    parts: Sequence[Part[I]],
    where: Away,
    stage: str,
    sets: Sequence[Hashable] = (),
) -> list[R]:
    """What all parts come to, in input order. They run `where` it says.

    When one fails no new calls begin, those in flight are awaited and journaled, and the error of
    the first part (in input order) is raised. `stage` names the fork for the progress, or is empty.
    `sets` says for each part to which set it belongs: a budget buys whole sets.
    """
    results: dict[int, R] = {}

    async def side_by_side(indices: Sequence[int]) -> None:
        failures = await where(run, fork, [parts[i] for i in indices], results, stage)
        if failures or run.halted is not None:
            raise run.first_cause(failures)

    if sets and run.gateway.budget.active:
        await _set_by_set(run.gateway, sets, side_by_side)
    else:
        await side_by_side(range(len(parts)))
    return [results[part.number] for part in parts]


async def here(
    run: RunContext,
    fork: Begins[I, R],
    parts: Sequence[Part[I]],
    results: dict[int, R],
    stage: str,
) -> dict[int, BaseException]:
    """Run parts side by side in this process; their results by index, and why parts failed."""
    failures: dict[int, BaseException] = {}

    async def worker(pending: Iterator[Part[I]]) -> None:
        for part in pending:
            if failures or run.halted is not None:
                return
            try:
                results[part.number] = await fork.begin(run, part)
            except BaseException as error:
                failures[part.number] = error
                run.halt(error)
                return
            run.item_done(stage)

    pending = iter(parts)
    workers: list[asyncio.Future[None]] = []
    try:
        most = min(len(parts), run.gateway.most_waiting, fork.at_once)
        for begun in range(1, most + 1):
            workers.append(asyncio.ensure_future(worker(pending)))
            if begun % BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)
        for each in workers:
            await each
    except asyncio.CancelledError:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return failures


async def _set_by_set(
    gateway: Gateway,
    sets: Sequence[Hashable],
    side_by_side: Callable[[Sequence[int]], Awaitable[None]],
) -> None:
    """Sets in order: the first alone, to learn what one takes, then as many at once as half of
    what is left of the budget pays for. So a budget that ends in the middle ends in one set."""
    members: dict[Hashable, list[int]] = {}
    for index, of in enumerate(sets):
        members.setdefault(of, []).append(index)
    waiting, at_once = list(members.values()), 1
    dearest = [0.0, 0.0]
    while waiting:
        now, waiting = waiting[:at_once], waiting[at_once:]
        before = gateway.taken()
        await side_by_side([index for of in now for index in of])
        took = ((b - a) / len(now) for a, b in zip(before, gateway.taken(), strict=True))
        dearest = [max(pair) for pair in zip(dearest, took, strict=True)]
        at_once = max(1, gateway.budget.affords(*dearest) // 2)
