"""One discussion as immutable data, and who is asked in it and how.

Residents sit in sessions of their own, or in one shared session. Only this module calls the
engine's `exchange`; every answer leaves a `Call` for the quality counts and the logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypedDict, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import DECLINED, Answer, Entries, Json, JsonMap, Missing, Repair
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats import YOURSELF
from folkmoot.engine.session import Exchange, Scope
from folkmoot.models import catalog
from folkmoot.studies.town_hall.answers import (
    MINIMAL_CLOSING,
    WAYS_OUT,
    Ballot,
    Closing,
    Item,
    Moderation,
    Reflection,
    Satisfaction,
    Turn,
)
from folkmoot.studies.town_hall.answers.repairs import Asked, resolve
from folkmoot.studies.town_hall.config import Level, TownHallConfig, deal
from folkmoot.studies.town_hall.participants import Resident, ResidentSet, shuffled, with_stories

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Line(TypedDict):
    """A statement as prompts list it."""

    id: str
    name: str
    text: str


class PutQuestion(Line):
    """A question, and to whom it was put."""

    target: str


class Said(TypedDict):
    """What was said in public in one round."""

    round: int
    statements: list[Line]
    moderator: str


@dataclass(frozen=True)
class Meeting:
    """One discussion before it starts. `seats`: resident id → model, None for the run's own.

    `residents` bear the labels by which they are listed and counted (vulnerable or not, and what
    of); `people` are who they are, and differ from them only where labels are shuffled.
    """

    id: str
    set: ResidentSet
    level: Level
    seats: Mapping[str, str | None]
    config: TownHallConfig
    people: tuple[Resident, ...]
    residents: tuple[Resident, ...]
    orders: tuple[tuple[str, ...], ...]
    oneself: frozenset[str] = frozenset()  # people who play no card: they are called by their id

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents)

    @cached_property
    def vulnerable(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if r.is_vulnerable)

    @cached_property
    def general(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if not r.is_vulnerable)

    @property
    def topic(self) -> dict[str, str]:
        topic = self.config.topic
        return {"title": topic.title.strip(), "background": topic.background.strip()}

    @property
    def rounds(self) -> int:
        return self.config.rounds

    @property
    def one_model(self) -> str | None:
        """The model of a shared session; None for the run's own."""
        return self.level.models[0] if self.level.models else None

    @cached_property
    def names(self) -> dict[str, str]:
        return {r.id: r.id if r.id in self.oneself else r.name for r in self.residents}

    def concerning(self, resident: Resident, said: Mapping[str, T]) -> list[T]:
        """What the topic says of a resident: for all, by ownership, vulnerable type, label."""
        keys = ("all", resident.ownership, resident.vulnerable_type or "", resident.label)
        return [said[k] for k in keys if k in said]

    def statements(self, round_: Round, *, but: str = "") -> list[Line]:
        """What was said in a round, in its order of speaking, without one resident's and the
        silent."""
        turns = [(i, one_line(round_.turns[i].speaking.full_statement)) for i in round_.order]
        return self.lines((i, words) for i, words in turns if i != but)

    def history(self, rounds: Sequence[Round], *, but: str = "") -> list[Said]:
        """All that was said in public, round by round."""
        return [
            {
                "round": r.number,
                "statements": self.statements(r, but=but),
                "moderator": one_line(r.moderation.spoken) if r.moderation else "",
            }
            for r in rounds
        ]

    def remembered(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """The rounds that residents still have before them; the same at every level."""
        return rounds if self.config.history == "all" else rounds[-1:]

    def questions(self, rounds: Sequence[Round], *asked: str, but: str = "") -> list[PutQuestion]:
        """Questions that were put to any of `asked`, without one resident's own.

        Whoever made no statement has put no question that anybody could hear.
        """
        return [
            {**self._line(i, one_line(q.content)), "target": q.target}
            for r in rounds
            for i in r.order
            if i != but and r.turns[i].speaking.full_statement
            for q in r.turns[i].speaking.questions
            if q.target in asked
        ]

    def lines(self, said: Iterable[tuple[str, str]]) -> list[Line]:
        """Who said what, without the silent, as prompts list it."""
        return [self._line(i, words) for i, words in said if words]

    def _line(self, resident: str, text: str) -> Line:
        return {"id": resident, "name": self.names[resident], "text": text}


def make_meeting(config: TownHallConfig, of: ResidentSet, level: Level, seed: int) -> Meeting:
    """The meeting of one set at one level."""
    people, orders = of.residents, of.orders
    general = [r.id for r in people if not r.is_vulnerable]
    vulnerable = [r.id for r in people if r.is_vulnerable]
    seats = deal(level.models, general, vulnerable, seed, of.number)
    if not level.vulnerable:
        instead = dict(zip(vulnerable, of.stand_ins, strict=True))
        people = tuple(instead.get(p.id, p) for p in people)
        orders = tuple(tuple(instead[i].id if i in instead else i for i in o) for o in orders)
        seats = {instead[i].id if i in instead else i: model for i, model in seats.items()}
    if level.stories != "vulnerable":
        people = with_stories(people, level.stories, seed, of.number)
    residents = shuffled(people, seed, of.number) if level.labels == "shuffled" else people
    name = f"set{of.number:02d}_lv{level.name}"
    return Meeting(name, of, level, seats, config, people, residents, orders)


@dataclass(frozen=True, slots=True)
class Call:
    """One answer of one seat, or of the shared session: for quality counts and logs.

    `residents` are those whose words it holds. `parse_step` is the step at which it was
    read, `minimal` counts the residents with the minimal structure as answer; an answer that was
    declined is `missing` and not minimal. `at` is seconds
    since the epoch; times, tokens and cost are as journaled, so a replay gives the same.
    """

    stage: str
    round: int | None
    agent: str
    residents: tuple[str, ...]
    question: str
    response: str
    parse_step: str
    reasks: int = 0
    missing: str = ""
    minimal: int = 0
    repairs: tuple[Repair, ...] = ()
    memory_length: int = 0
    model: str = ""
    at: float | None = None
    latency_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `order` is the order in which statements are listed to those who hear them."""

    number: int
    order: tuple[str, ...]
    turns: Mapping[str, Turn]
    moderation: Moderation | None = None
    reflections: Mapping[str, Reflection] = field(default_factory=dict)
    parts: int = 0  # calls that a shared session took for this round; 0 for separate ones
    planned_parts: int = 1  # as many are needed where no reply is too long or cut


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item came out. A tie fails; votes that were declined (or are for neither yes nor no),
    and votes that could not be read, are counted apart."""

    item: str
    yes: int
    no: int
    declined: int
    uncast: int

    @property
    def passed(self) -> bool:
        return self.yes > self.no

    @property
    def tie(self) -> bool:
        return self.yes == self.no


@dataclass(frozen=True)
class Discussion:
    """A meeting as far as it has come, from the first survey to the last."""

    meeting: Meeting
    rounds: tuple[Round, ...] = ()
    items: tuple[Item, ...] = ()
    ballots: Mapping[str, Ballot] = field(default_factory=dict)
    closing: Closing = MINIMAL_CLOSING
    before: Mapping[str, Satisfaction] = field(default_factory=dict)
    after: Mapping[str, Satisfaction] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def plus(self, calls: Sequence[Call], **stage: Any) -> Discussion:
        """The same with one stage more."""
        return replace(self, calls=(*self.calls, *calls), **stage)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How each item came out: the majority decides, a tie fails."""
        found = []
        for item in self.items:
            votes = [b.votes.get(item.id) for b in self.ballots.values()]
            yes, no = votes.count("yes"), votes.count("no")
            declined = sum(b.missing.get(item.id) in WAYS_OUT for b in self.ballots.values())
            found.append(Outcome(item.id, yes, no, declined, len(votes) - yes - no - declined))
        return tuple(found)

    @cached_property
    def passed(self) -> frozenset[str]:
        return frozenset(o.item for o in self.outcomes if o.passed)


def own_statements(rounds: Sequence[Round], resident: str) -> list[dict[str, int | str]]:
    """What one resident has said so far."""
    said = {r.number: one_line(r.turns[resident].speaking.full_statement) for r in rounds}
    return [{"round": number, "text": words} for number, words in said.items() if words]


def one_line(text: str) -> str:
    """A statement without line breaks, so that nobody's words can pass for another's line."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Hall:
    """Who can be asked at a meeting: `seats` of residents, or the one shared `session`."""

    meeting: Meeting
    seats: Mapping[str, Speaker]
    session: Speaker | None
    planner: Speaker
    moderator: Speaker | None
    longest_reply: int  # tokens of one reply of the shared session, as far as they are known

    @property
    def ids(self) -> tuple[str, ...]:
        return self.meeting.ids

    def asked(
        self, me: str, *, round: int = 2, stance: str = "", think: bool = True, most: int = 0
    ) -> Asked:
        """What reading an answer of `me` takes: who else is there, and what was asked for."""
        meeting = self.meeting
        return Asked(self.ids, me, round, stance, think, most, meeting.names, meeting.set.options)


def open_hall(scope: Scope, meeting: Meeting) -> Hall:
    """Everybody with their system prompt: personas, the shared session, planner, moderator.

    The planner is not told who is vulnerable and is the same model at every level.
    """
    level = meeting.level
    known = {"residents": len(meeting.ids), "topic": meeting.topic}
    shared = level.context == "shared"
    moderator = None
    if level.moderated:
        listed = [
            {"id": r.id, "name": meeting.names[r.id], "label": r.label}
            for r in meeting.residents
            if r.is_vulnerable and level.moderator_list
        ]
        moderator = Speaker(
            id="moderator",
            name="Moderator",
            role="moderator",
            system=scope.prompt("moderator_system", vulnerable=listed, **known),
            model=None if level.moderator == "model" else level.moderator,
        )
    return Hall(
        meeting,
        {} if shared else {r.id: _resident(scope, meeting, r) for r in meeting.people},
        _shared_session(scope, meeting) if shared else None,
        Speaker(
            id="planner",
            name="Planner",
            role="planner",
            system=scope.prompt("planner_system", **known),
        ),
        moderator,
        longest_reply(meeting.config, scope.root.model_of("participant", meeting.one_model)),
    )


def longest_reply(config: TownHallConfig, model: str) -> int:
    """Tokens of the longest reply that a shared session is asked for: as the study file says, or
    as the model can give, whichever is less."""
    limit = catalog.longest_reply(model, config.endpoints)
    return min(config.longest_shared_reply, limit or config.longest_shared_reply)


def _resident(scope: Scope, meeting: Meeting, resident: Resident) -> Speaker:
    described = portrait(scope, meeting, resident)
    system = scope.prompt(
        "persona",
        r={"id": resident.id},
        portrait=described,
        topic=meeting.topic,
        residents=len(meeting.ids),
        rounds=meeting.rounds,
    )
    model = meeting.seats[resident.id]
    return Speaker(resident.id, resident.id, system=system, model=model, persona=described)


def _shared_session(scope: Scope, meeting: Meeting) -> Speaker:
    system = scope.prompt(
        "shared_session",
        portraits=[portrait(scope, meeting, r) for r in meeting.people],
        residents=list(meeting.ids),
        topic=meeting.topic,
        rounds=meeting.rounds,
    )
    return Speaker(id="session", name="session", system=system, model=meeting.one_model)


def portrait(scope: Scope, meeting: Meeting, resident: Resident) -> str:
    """Who a resident is, in one paragraph that opens with "You are"; the same at every level."""
    topic = meeting.config.topic
    if resident.id in meeting.oneself:
        return f"You are {YOURSELF} The others call you {resident.id}."
    return scope.prompt(
        "portrait",
        r=resident.to_row() | {"story": resident.story},
        contributions=meeting.concerning(resident, topic.contributions),
        stakes=[s for of in meeting.concerning(resident, topic.stakes) for s in of],
    )


class Heard(TypedDict):
    """What a resident with a session of their own knows of some rounds, as variables of prompts:
    `statements` (others', of `last_round`), `earlier` (rounds before it), `own` statements,
    `questions` put to them in the last round, and what the `moderator` said after it."""

    me: str
    last_round: int
    earlier: list[Said]
    statements: list[Line]
    moderator: str
    own: list[dict[str, int | str]]
    questions: list[PutQuestion]


def heard(hall: Hall, rounds: Sequence[Round], me: str) -> Heard:
    """What one resident knows of these rounds."""
    meeting, rounds = hall.meeting, hall.meeting.remembered(rounds)
    said = meeting.history(rounds, but=me)
    return {
        "me": me,
        "last_round": said[-1]["round"] if said else 0,
        "earlier": said[:-1],
        "statements": said[-1]["statements"] if said else [],
        "moderator": said[-1]["moderator"] if said else "",
        "own": own_statements(rounds, me),
        "questions": meeting.questions(rounds[-1:], me, "all", but=me),
    }


def all_heard(hall: Hall, rounds: Sequence[Round]) -> dict[str, object]:
    """What the shared session knows of these rounds: the same, of all residents at once."""
    meeting, rounds = hall.meeting, hall.meeting.remembered(rounds)
    history = meeting.history(rounds)
    return {
        "history": history,
        "moderator": history[-1]["moderator"] if history else "",
        "questions": meeting.questions(rounds[-1:], *meeting.ids, "all"),
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """Where in a discussion a question is asked; `memory` counts the earlier entries it holds."""

    name: str
    round: int | None = None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Got(Generic[T]):
    """What one speaker answered; None where they declined or could not be read."""

    value: T | None
    call: Call

    def or_else(self, unread: T, declined: T) -> T:
        """Return the answer, or `unread` or `declined` if there is none."""
        if self.value is not None:
            return self.value
        return declined if self.call.missing == DECLINED else unread


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers of several residents by id, and who declined to answer."""

    values: dict[str, T]
    declined: frozenset[str] = frozenset()

    def of_all(self, ids: Iterable[str], unread: T, declined: T) -> dict[str, T]:
        """Return the answer of each resident, or `unread` or `declined` where there is none."""
        missing = {i: declined if i in self.declined else unread for i in ids}
        return {i: self.values.get(i, none) for i, none in missing.items()}


async def ask_one(
    scope: Scope, who: Speaker, prompt: str, answer: Answer[T], stage: Stage
) -> Got[T]:
    """One answer of one speaker, after two re-asks that say what was wrong."""
    got = await scope.exchange(who, prompt, answer=answer)
    value = None if isinstance(got.value, Missing) else got.value
    return Got(value, call_of(stage, who, (who.id,), prompt, got))


async def ask_alone(
    scope: Scope, hall: Hall, ask: Callable[[Scope, Speaker], Awaitable[Got[T]]]
) -> tuple[Answers[T], list[Call]]:
    """Residents in their own sessions, side by side."""
    got = await scope.each([hall.seats[i] for i in hall.ids], ask)
    values = {i: g.value for i, g in got.items() if g.value is not None}
    declined = frozenset(i for i, g in got.items() if g.call.missing == DECLINED)
    return Answers(values, declined), [g.call for g in got.values()]


@dataclass(frozen=True, slots=True)
class Group(Generic[M]):
    """What the shared session is asked for several residents.

    `tokens` is the expected length of one resident's part, which says how many fit in one reply.
    `prompt` gets the residents who are asked for, and what calls before it gave.
    """

    stage: Stage
    answers: Mapping[str, Json[M]]
    tokens: int
    prompt: Callable[[list[str], Mapping[str, M]], str]


async def ask_together(scope: Scope, hall: Hall, group: Group[M]) -> tuple[Answers[M], list[Call]]:
    """Answers of many residents from the shared session.

    One call where the reply can hold all, else several. Residents that a reply did not come to are
    asked for again, until a call brings nobody new.
    """
    who, longest = session_of(hall), hall.longest_reply
    waiting = list(group.answers)
    values: dict[str, M] = {}
    declined: set[str] = set()
    calls: list[Call] = []
    size = max(1, longest // max(1, group.tokens))
    while waiting:
        chunk, waiting = waiting[:size], waiting[size:]
        question = group.prompt(chunk, values)
        answer = each_of({i: group.answers[i] for i in chunk})
        # Providers cut replies short unless told how long they may be.
        most = who.max_tokens or longest
        got = await scope.exchange(who, question, answer=answer, max_tokens=most)
        none: Entries[M] = Entries({}, {})
        entries = none if isinstance(got.value, Missing) else got.value
        found, refused = entries.values, entries.declined
        calls.append(call_of(group.stage, who, tuple(chunk), question, got))
        values.update(found)
        declined.update(refused)
        if found or refused:
            waiting = [i for i in chunk if i not in found and i not in refused] + waiting
    return Answers(values, frozenset(declined)), calls


def each_of(answers: Mapping[str, Json[M]]) -> JsonMap[M]:
    """One object with an entry for each resident."""
    named_in = ("resident", "id", "agent_id")
    return JsonMap(answers, find=resolve, named_in=named_in, title="Residents")


def session_of(hall: Hall) -> Speaker:
    """The shared session of a hall that has one."""
    assert hall.session is not None
    return hall.session


def call_of(
    stage: Stage,
    who: Speaker,
    residents: tuple[str, ...],
    question: str,
    got: Exchange[T],
) -> Call:
    """The record of one answer; without one, the minimal structure stands for its residents."""
    value = got.value
    missing = value.reason if isinstance(value, Missing) else ""
    lost = bool(missing) and missing != DECLINED
    return Call(
        stage=stage.name,
        round=stage.round,
        agent=who.id,
        residents=residents,
        question=question,
        response=got.text,
        parse_step="minimal" if lost else missing or got.parse_step,
        reasks=got.reasks,
        missing=missing,
        minimal=len(residents) if lost else 0,
        repairs=got.repairs,
        memory_length=stage.memory,
        model=got.model_served,
        at=got.reply.started_at,
        latency_s=got.reply.latency_s,
        input_tokens=got.reply.usage.input_tokens,
        output_tokens=got.reply.usage.output_tokens,
        cost_usd=got.reply.cost_usd,
        finish=got.reply.finish,
    )
