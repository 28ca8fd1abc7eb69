"""One discussion as immutable data, and who is asked in it and how.

Residents sit in sessions of their own, or in one shared session. Only this module calls the
engine's `ask_detailed`; every answer leaves a `Call` for the quality counts and the logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_types import (
    DECLINED,
    WAYS_OUT_OF_OPTIONS,
    AnswerType,
    Json,
    JsonMap,
    MapEntries,
    Missing,
    Repair,
)
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER
from folkmoot.engine.session.session import AskResult, Scope
from folkmoot.models import catalog
from folkmoot.models.request import Completion
from folkmoot.provenance import alter_text, cell_id, quote_all, quote_value
from folkmoot.studies.town_hall.answers.options import CLOSED_FIELDS
from folkmoot.studies.town_hall.answers.outcome import (
    MINIMAL_CLOSING,
    Ballot,
    Closing,
    Moderation,
    Planned,
    PlannedItem,
    Satisfaction,
)
from folkmoot.studies.town_hall.answers.repairs import AskContext, resolve_id
from folkmoot.studies.town_hall.answers.turns import Reflection, Turn
from folkmoot.studies.town_hall.config import Level, TownHallConfig, assign_models
from folkmoot.studies.town_hall.participants import (
    Resident,
    ResidentSet,
    shuffle_labels,
    with_stories,
)
from folkmoot.studies.town_hall.tables import ItemRow

T = TypeVar("T")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)


class Named(TypedDict):
    """A resident as prompts name them."""

    id: str
    name: str


class StatementLine(Named):
    """A statement as prompts list it."""

    text: str


class AddressedQuestion(StatementLine):
    """A question, and to whom it was put."""

    target: str


class RoundRecord(TypedDict):
    """What was said in public in one round."""

    round: int
    statements: list[StatementLine]
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
        return tuple(resident.id for resident in self.residents)

    @cached_property
    def vulnerable_ids(self) -> tuple[str, ...]:
        return tuple(resident.id for resident in self.residents if resident.is_vulnerable)

    @cached_property
    def general_ids(self) -> tuple[str, ...]:
        return tuple(resident.id for resident in self.residents if not resident.is_vulnerable)

    @cached_property
    def topic(self) -> dict[str, str]:
        topic = quote_all(self.config.topic, "material", "study.topic")
        texts = {"title": topic.title, "background": topic.background}
        return {name: alter_text(text, text.strip()) for name, text in texts.items()}

    @property
    def round_count(self) -> int:
        return self.config.rounds

    @cached_property
    def named_residents(self) -> dict[str, Named]:
        """Each resident's id and name with their sources, for prompts."""

        def quote_column(resident: Resident, column: str) -> str:
            id = cell_id(f"residents.{column}", self.set.number, resident.id)
            return quote_value(str(getattr(resident, column)), "value", id, resident.id)

        return {
            resident.id: {
                "id": quote_column(resident, "id"),
                "name": quote_column(resident, "id" if resident.id in self.oneself else "name"),
            }
            for resident in self.residents
        }

    def describe_format(self, answer: AnswerType[Any]) -> str:
        """Return the keys of an answer for a prompt; options have their source and order."""
        return answer.describe_format(self._closed_fields)

    @cached_property
    def _closed_fields(self) -> dict[str, list[str]]:
        """Field of an answer → its options and the ways out."""
        return {
            field: [
                *(
                    quote_value(
                        option, "option", cell_id("option_orders.option", self.set.number, name, n)
                    )
                    for n, option in enumerate(getattr(self.set.options, name), start=1)
                ),
                *WAYS_OUT_OF_OPTIONS,
            ]
            for field, name in CLOSED_FIELDS.items()
        }

    def round_numbers(self, round: int) -> dict[str, int]:
        """The number of a round, and how many there are, for prompts."""
        rounds = quote_value(self.round_count, "value", "study.rounds")
        return {"round": quote_round(round), "rounds": rounds}

    def ids_of(self, residents: Iterable[str]) -> list[str]:
        """The ids of residents, for prompts."""
        return [self.named_residents[resident]["id"] for resident in residents]

    @property
    def one_model(self) -> str | None:
        """The model of a shared session; None for the run's own."""
        return self.level.models[0] if self.level.models else None

    @cached_property
    def names_by_id(self) -> dict[str, str]:
        return {
            resident.id: resident.id if resident.id in self.oneself else resident.name
            for resident in self.residents
        }

    def topic_for(self, resident: Resident, said: Mapping[str, T]) -> list[T]:
        """What the topic says of a resident: for all, by ownership, vulnerable type, label."""
        keys = ("all", resident.ownership, resident.vulnerable_type or "", resident.label)
        return [said[key] for key in keys if key in said]

    def statements(self, round_: Round, *, but: str = "") -> list[StatementLine]:
        """What was said in a round, in its order of speaking, without one resident's and the
        silent."""
        return self.as_lines(
            (resident_id, round_.recorded[resident_id].statement)
            for resident_id in round_.order
            if resident_id != but
        )

    def public_history(self, rounds: Sequence[Round], *, but: str = "") -> list[RoundRecord]:
        """All that was said in public, round by round."""
        return [
            {
                "round": quote_round(r.number),
                "statements": self.statements(r, but=but),
                "moderator": on_one_line(r.moderator) if r.moderator else "",
            }
            for r in rounds
        ]

    def remembered_rounds(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """The rounds that residents still have before them; the same at every level."""
        return rounds if self.config.history == "all" else rounds[-1:]

    def questions_put_to(
        self, rounds: Sequence[Round], *asked: str, but: str = ""
    ) -> list[AddressedQuestion]:
        """Questions that were put to any of `asked`, without one resident's own.

        Whoever made no statement has put no question that anybody could hear.
        """
        named = self.named_residents
        return [
            {
                **self._build_line(resident_id, question.said),
                "target": named[question.target]["id"]
                if question.target in named
                else question.target,
            }
            for r in rounds
            for resident_id in r.order
            if resident_id != but
            for question in r.recorded[resident_id].questions
            if question.target in asked
        ]

    def as_lines(self, said: Iterable[tuple[str, Utterance]]) -> list[StatementLine]:
        """Who said what, without the silent, as prompts list it."""
        return [
            self._build_line(resident_id, utterance)
            for resident_id, utterance in said
            if utterance.text
        ]

    def _build_line(self, resident: str, said: Utterance) -> StatementLine:
        # The source names whom the prompt names, which exposure compares with who spoke.
        return {
            **self.named_residents[resident],
            "text": on_one_line(said._replace(speaker_id=resident)),
        }


def quote_round(number: int) -> int:
    """The number of a round, for prompts."""
    return quote_value(number, "value", "protocol.round")


def make_meeting(config: TownHallConfig, of: ResidentSet, level: Level, seed: int) -> Meeting:
    """The meeting of one set at one level."""
    people, orders = of.residents, of.orders
    general = [resident.id for resident in people if not resident.is_vulnerable]
    vulnerable = [resident.id for resident in people if resident.is_vulnerable]
    seats = assign_models(level.models, general, vulnerable, seed, of.number)
    if not level.vulnerable:
        instead = dict(zip(vulnerable, of.stand_ins, strict=True))
        people = tuple(instead.get(resident.id, resident) for resident in people)
        orders = tuple(
            tuple(
                instead[resident_id].id if resident_id in instead else resident_id
                for resident_id in order
            )
            for order in orders
        )
        seats = {
            instead[resident_id].id if resident_id in instead else resident_id: model
            for resident_id, model in seats.items()
        }
    if level.stories != "vulnerable":
        people = with_stories(people, level.stories, seed, of.number)
    residents = shuffle_labels(people, seed, of.number) if level.labels == "shuffled" else people
    name = f"set{of.number:02d}_lv{level.name}"
    return Meeting(name, of, level, seats, config, people, residents, orders)


SATISFIED = "how satisfied with how the question is dealt with, and with the say in it"
ABOUT = {  # stage → the matter that is asked about
    "satisfaction_before": SATISFIED,
    "think": "thoughts on what was said, and a stance on the question",
    "speak": "a statement on the question",
    "round": "thoughts, and a statement on the question",
    "moderate": "where the discussion stands, and who has not been heard",
    "reflect": "whose opinion convinced, and a stance on the question",
    "plan": "proposals to vote on",
    "vote": "a vote on each proposal",
    "consensus": "what the hall wants done",
    "satisfaction_after": SATISFIED,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Where in a discussion a question is asked; `memory` counts the earlier entries it holds."""

    name: str
    round: int | None = None
    memory: int = 0

    @property
    def question_matter(self) -> str:
        """The matter that is asked about, for the embedded respondent."""
        return ABOUT[self.name]


@dataclass(frozen=True, slots=True)
class Call:
    """One answer of one seat, or of the shared session: for quality counts and logs.

    `parse_step` is the step at which it was read, `minimal` counts the residents with the minimal
    structure as answer. An answer that was declined is `missing` and not minimal. Times, tokens and
    cost of the `reply` are as journaled, so a replay gives the same.
    """

    stage: Stage
    agent: str
    address: str
    question: str
    reply: Completion
    parse_step: str
    reasks: int
    missing: str
    minimal: int
    repairs: tuple[Repair, ...]

    @property
    def round(self) -> int | None:
        return self.stage.round


class PutTo(NamedTuple):
    """A question in a statement, and to whom it is put: an id, `all`, `moderator` or `planner`."""

    target: str
    said: Utterance


class Recorded(NamedTuple):
    """The utterances of one resident's turn as they were recorded, for prompts to quote. Thoughts
    go into no prompt but their owner's; None where there are none."""

    statement: Utterance
    questions: tuple[PutTo, ...] = ()
    thoughts: Utterance | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `order` is the order in which statements are listed to those who hear them.

    `recorded`, `moderator` and `notes` are the utterances of `turns`, `moderation` and
    `reflections`.
    """

    number: int
    order: tuple[str, ...]
    turns: Mapping[str, Turn]
    recorded: Mapping[str, Recorded]
    moderation: Moderation | None = None
    moderator: Utterance | None = None
    reflections: Mapping[str, Reflection] = field(default_factory=dict)
    notes: Mapping[str, Utterance] = field(default_factory=dict)
    parts: int = 0  # calls that a shared session took for this round; 0 for separate ones
    planned_parts: int = 1  # as many are needed where no reply is too long or cut

    def quote_stance(self, resident: str) -> str:
        """The stance that a resident's thoughts in this round state, for prompts."""
        thoughts = self.recorded[resident].thoughts
        return quote_value(
            self.turns[resident].stance, "utterance", thoughts.id if thoughts else "", resident
        )


@dataclass(frozen=True)
class Discussion:
    """A meeting as far as it has come, from the first survey to the last."""

    meeting: Meeting
    rounds: tuple[Round, ...] = ()
    planned: Planned | None = None
    ballots: Mapping[str, Ballot] = field(default_factory=dict)
    item_outcomes: tuple[ItemRow, ...] = ()  # how each item came out
    closing: Closing = MINIMAL_CLOSING
    consensus: Utterance | None = None
    before: Mapping[str, Satisfaction] = field(default_factory=dict)
    after: Mapping[str, Satisfaction] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def with_stage(self, calls: Sequence[Call], **stage: Any) -> Discussion:
        """The same with one stage more."""
        return replace(self, calls=(*self.calls, *calls), **stage)

    @cached_property
    def items(self) -> dict[str, PlannedItem]:
        """The items of the ballot by id; none if the planner could not be read."""
        planned = self.planned.items if self.planned else ()
        return {f"V{number}": item for number, item in enumerate(planned, start=1)}


def own_statements(rounds: Sequence[Round], resident: str) -> list[dict[str, int | str]]:
    """What one resident has said so far."""
    said = {r.number: r.recorded[resident].statement for r in rounds}
    return [
        {"round": quote_round(number), "text": on_one_line(own)}
        for number, own in said.items()
        if own.text
    ]


def one_line(text: str) -> str:
    """A statement without line breaks, so that nobody's words can pass for another's line."""
    return " ".join(text.split())


def on_one_line(said: Utterance) -> str:
    """An utterance without line breaks, with its source."""
    return alter_text(said.quoted_text, one_line(said.text))


@dataclass(frozen=True)
class HallSpeakers:
    """Who can be asked at a meeting: `seats` of residents, or the one shared `session`.
    `portraits` describe the residents."""

    meeting: Meeting
    portraits: Mapping[str, str]
    seats: Mapping[str, Speaker]
    session: Speaker | None
    planner: Speaker
    moderator: Speaker | None
    longest_reply: int  # tokens of one reply of the shared session, as far as they are known

    @property
    def ids(self) -> tuple[str, ...]:
        return self.meeting.ids

    def reading_context(
        self, me: str, *, round: int = 2, stance: str = "", think: bool = True, most: int = 0
    ) -> AskContext:
        """What reading an answer of `me` takes: who else is there, and what was asked for."""
        meeting = self.meeting
        return AskContext(
            self.ids, me, round, stance, think, most, meeting.names_by_id, meeting.set.options
        )


def open_hall(scope: Scope, meeting: Meeting) -> HallSpeakers:
    """Everybody with their system prompt: personas, the shared session, planner, moderator.

    The planner is not told who is vulnerable and is the same model at every level.
    """
    level = meeting.level
    known = {"residents": count_residents(meeting), "topic": meeting.topic}
    shared = level.context == "shared"
    portraits = {
        resident.id: describe_resident(scope, meeting, resident) for resident in meeting.people
    }
    moderator = None
    if level.is_moderated:
        listed = [
            {
                **meeting.named_residents[resident.id],
                "label": quote_value(
                    resident.label,
                    "value",
                    cell_id("portraits.label", meeting.id, resident.id),
                    resident.id,
                ),
            }
            for resident in meeting.residents
            if resident.is_vulnerable and level.moderator_list
        ]
        moderator = Speaker(
            id="moderator",
            name="Moderator",
            role="moderator",
            system=scope.prompt("moderator_system", vulnerable=listed, **known),
            model=None if level.moderator == "model" else level.moderator,
        )
    return HallSpeakers(
        meeting,
        portraits,
        {}
        if shared
        else {
            resident_id: _resident_speaker(scope, meeting, resident_id, own)
            for resident_id, own in portraits.items()
        },
        _shared_session(scope, meeting, list(portraits.values())) if shared else None,
        Speaker(
            id="planner",
            name="Planner",
            role="planner",
            system=scope.prompt("planner_system", **known),
        ),
        moderator,
        longest_reply(meeting.config, scope.root.resolve_model("participant", meeting.one_model)),
    )


def count_residents(meeting: Meeting) -> int:
    """How many residents take part, for prompts."""
    return quote_value(len(meeting.ids), "value", "protocol.residents")


def longest_reply(config: TownHallConfig, model: str) -> int:
    """Tokens of the longest reply that a shared session is asked for: as the study file says, or
    as the model can give, whichever is less."""
    limit = catalog.max_output_tokens(model, config.endpoints)
    return min(config.longest_shared_reply, limit or config.longest_shared_reply)


def _resident_speaker(scope: Scope, meeting: Meeting, resident: str, portrait: str) -> Speaker:
    system = scope.prompt(
        "persona",
        r=meeting.named_residents[resident],
        portrait=portrait,
        topic=meeting.topic,
        residents=count_residents(meeting),
        rounds=quote_value(meeting.round_count, "value", "study.rounds"),
    )
    return Speaker(resident, resident, system=system, model=meeting.seats[resident])


def _shared_session(scope: Scope, meeting: Meeting, portraits: Sequence[str]) -> Speaker:
    system = scope.prompt(
        "shared_session",
        portraits=portraits,
        residents=meeting.ids_of(meeting.ids),
        count=count_residents(meeting),
        topic=meeting.topic,
        rounds=quote_value(meeting.round_count, "value", "study.rounds"),
    )
    return Speaker(id="session", name="session", system=system, model=meeting.one_model)


def describe_resident(scope: Scope, meeting: Meeting, resident: Resident) -> str:
    """Who a resident is, in one paragraph that opens with "You are"; the same at every level."""
    topic = meeting.config.topic
    id = cell_id("portraits.portrait", meeting.id, resident.id)
    if resident.id in meeting.oneself:
        text = f"You are {SELF_DESCRIPTION_PLACEHOLDER} The others call you {resident.id}."
        return quote_value(text, "persona", id, resident.id)
    text = scope.prompt(
        "portrait",
        r=resident.to_row() | {"story": resident.story} | meeting.named_residents[resident.id],
        contributions=meeting.topic_for(resident, topic.contributions),
        stakes=[text for of in meeting.topic_for(resident, topic.stakes) for text in of],
    )
    return quote_value(text, "persona", id, resident.id)


class ResidentHistory(TypedDict):
    """What a resident with a session of their own knows of some rounds, as variables of prompts:
    `statements` (others', of `last_round`), `earlier` (rounds before it), `own` statements,
    `questions` put to them in the last round, and what the `moderator` said after it."""

    me: str
    last_round: int
    earlier: list[RoundRecord]
    statements: list[StatementLine]
    moderator: str
    own: list[dict[str, int | str]]
    questions: list[AddressedQuestion]


def resident_history(hall: HallSpeakers, rounds: Sequence[Round], me: str) -> ResidentHistory:
    """What one resident knows of these rounds."""
    meeting, rounds = hall.meeting, hall.meeting.remembered_rounds(rounds)
    said = meeting.public_history(rounds, but=me)
    return {
        "me": meeting.named_residents[me]["id"],
        "last_round": said[-1]["round"] if said else 0,
        "earlier": said[:-1],
        "statements": said[-1]["statements"] if said else [],
        "moderator": said[-1]["moderator"] if said else "",
        "own": own_statements(rounds, me),
        "questions": meeting.questions_put_to(rounds[-1:], me, "all", but=me),
    }


def shared_history(hall: HallSpeakers, rounds: Sequence[Round]) -> dict[str, object]:
    """What the shared session knows of these rounds: the same, of all residents at once."""
    meeting, rounds = hall.meeting, hall.meeting.remembered_rounds(rounds)
    history = meeting.public_history(rounds)
    return {
        "history": history,
        "last_round": history[-1]["round"] if history else 0,
        "moderator": history[-1]["moderator"] if history else "",
        "questions": meeting.questions_put_to(rounds[-1:], *meeting.ids, "all"),
    }


@dataclass(frozen=True, slots=True)
class SpeakerAnswer(Generic[T]):
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
        missing = {
            resident_id: declined if resident_id in self.declined else unread for resident_id in ids
        }
        return {
            resident_id: self.values.get(resident_id, none) for resident_id, none in missing.items()
        }


async def ask_speaker(
    scope: Scope, who: Speaker, prompt: str, answer: AnswerType[T], stage: Stage
) -> SpeakerAnswer[T]:
    """One answer of one speaker, after two re-asks that say what was wrong."""
    got = await scope.ask_detailed(who, prompt, answer_type=answer, about=stage.question_matter)
    value = None if isinstance(got.value, Missing) else got.value
    return SpeakerAnswer(value, call_of(stage, who, 1, prompt, got))


async def ask_alone(
    scope: Scope, hall: HallSpeakers, ask: Callable[[Scope, Speaker], Awaitable[SpeakerAnswer[T]]]
) -> tuple[Answers[T], list[Call]]:
    """Residents in their own sessions, side by side."""
    got = await scope.map([hall.seats[resident_id] for resident_id in hall.ids], ask)
    values = {
        resident_id: speaker_answer.value
        for resident_id, speaker_answer in got.items()
        if speaker_answer.value is not None
    }
    declined = frozenset(
        resident_id
        for resident_id, speaker_answer in got.items()
        if speaker_answer.call.missing == DECLINED
    )
    return Answers(values, declined), [speaker_answer.call for speaker_answer in got.values()]


@dataclass(frozen=True, slots=True)
class SharedRequest(Generic[M, V]):
    """What the shared session is asked for several residents.

    `tokens` is the expected length of one resident's part, which says how many fit in one reply.
    `prompt` gets the residents who are asked for, and what calls before it gave. `record` makes of
    a resident, an answer and its address what is kept of it.
    """

    stage: Stage
    answers: Mapping[str, Json[M]]
    tokens: int
    prompt: Callable[[list[str], Mapping[str, V]], str]
    record: Callable[[str, M, str], V]


def keep_answer(_resident: str, answer: T, _address: str) -> T:
    """Keep an answer as it is (`SharedRequest.record`)."""
    return answer


async def ask_together(
    scope: Scope, hall: HallSpeakers, group: SharedRequest[M, V]
) -> tuple[Answers[V], list[Call]]:
    """Answers of many residents from the shared session.

    One call where the reply can hold all, else several. Residents that a reply did not come to are
    asked for again, until a call brings nobody new.
    """
    who, longest = session_of(hall), hall.longest_reply
    waiting = list(group.answers)
    values: dict[str, V] = {}
    declined: set[str] = set()
    calls: list[Call] = []
    size = max(1, longest // max(1, group.tokens))
    while waiting:
        chunk, waiting = waiting[:size], waiting[size:]
        question = group.prompt(chunk, values)
        answer = each_of({resident_id: group.answers[resident_id] for resident_id in chunk})
        # Providers cut replies short unless told how long they may be.
        most = who.max_tokens or longest
        about = group.stage.question_matter
        got = await scope.ask_detailed(
            who, question, answer_type=answer, max_tokens=most, about=about
        )
        none: MapEntries[M] = MapEntries({}, {})
        entries = none if isinstance(got.value, Missing) else got.value
        found, refused = entries.values, entries.declined
        calls.append(call_of(group.stage, who, len(chunk), question, got))
        values.update(
            {
                resident_id: group.record(resident_id, value, got.address)
                for resident_id, value in found.items()
            }
        )
        declined.update(refused)
        if found or refused:
            waiting = [
                resident_id
                for resident_id in chunk
                if resident_id not in found and resident_id not in refused
            ] + waiting
    return Answers(values, frozenset(declined)), calls


def each_of(answers: Mapping[str, Json[M]]) -> JsonMap[M]:
    """One object with an entry for each resident."""
    named_in = ("resident", "id", "agent_id")
    return JsonMap(answers, match_key=resolve_id, name_fields=named_in, title="Residents")


def session_of(hall: HallSpeakers) -> Speaker:
    """The shared session of a hall that has one."""
    assert hall.session is not None
    return hall.session


def call_of(stage: Stage, who: Speaker, residents: int, question: str, got: AskResult[T]) -> Call:
    """The record of one answer. Without one, the minimal structure stands for the `residents`, so
    many, whose words it would have held."""
    value = got.value
    missing = value.reason if isinstance(value, Missing) else ""
    lost = bool(missing) and missing != DECLINED
    return Call(
        stage=stage,
        agent=who.id,
        address=got.address,
        question=question,
        reply=got.reply,
        parse_step="minimal" if lost else missing or got.parse_step,
        reasks=got.reasks,
        missing=missing,
        minimal=residents if lost else 0,
        repairs=got.repairs,
    )
