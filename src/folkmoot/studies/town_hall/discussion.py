"""The data and the speakers of one discussion, and functions that ask the speakers."""

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
    Missing,
)
from folkmoot.conversation.json_maps import MapEntries
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER
from folkmoot.engine.session.session import Scope
from folkmoot.hints import collapse_spaces
from folkmoot.models import catalog
from folkmoot.provenance import alter_text, cell_id, quote_all, quote_value
from folkmoot.studies.town_hall.answers.calls import (
    Call,
    ResidentAnswers,
    SpeakerAnswer,
    Stage,
    call_of,
)
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
from folkmoot.studies.town_hall.answers.repairs import AskContext
from folkmoot.studies.town_hall.answers.shared_replies import each_of
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
    """The id and name of a resident, as prompts show them."""

    id: str
    name: str


class StatementLine(Named):
    """One statement in a list that a prompt shows."""

    text: str


class AddressedQuestion(StatementLine):
    """One question and its addressee, in a list that a prompt shows."""

    target: str


class RoundRecord(TypedDict):
    """The public utterances of one earlier round, as a prompt shows them."""

    round: int
    statements: list[StatementLine]
    moderator: str


@dataclass(frozen=True)
class Meeting:
    """The plan of one discussion: the residents, the level, and the model of each resident."""

    id: str
    set: ResidentSet
    level: Level
    # Resident id → model, or None for the run's model.
    seats: Mapping[str, str | None]
    config: TownHallConfig
    # The residents with their own labels (vulnerable or not, and type).
    people: tuple[Resident, ...]
    # The residents with the labels that lists and counts use. These labels differ from those in
    # `people` only if labels are shuffled.
    residents: tuple[Resident, ...]
    orders: tuple[tuple[str, ...], ...]
    # The ids of humans without a persona, who are called by their id.
    ids_as_self: frozenset[str] = frozenset()

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

    @cached_property
    def named_residents(self) -> dict[str, Named]:
        """The id and name of each resident, as prompts show them."""

        def quote_column(resident: Resident, column: str) -> str:
            source_id = cell_id(f"residents.{column}", self.set.number, resident.id)
            return quote_value(str(getattr(resident, column)), "value", source_id, resident.id)

        return {
            resident.id: {
                "id": quote_column(resident, "id"),
                "name": quote_column(resident, "id" if resident.id in self.ids_as_self else "name"),
            }
            for resident in self.residents
        }

    def describe_format(self, answer: AnswerType[Any]) -> str:
        """Return the text that tells a model which format the reply must have."""
        return answer.describe_format(self._closed_fields)

    @cached_property
    def _closed_fields(self) -> dict[str, list[str]]:
        return {
            field: [
                *(
                    quote_value(
                        option,
                        "option",
                        cell_id("option_orders.option", self.set.number, name, position),
                    )
                    for position, option in enumerate(getattr(self.set.options, name), start=1)
                ),
                *WAYS_OUT_OF_OPTIONS,
            ]
            for field, name in CLOSED_FIELDS.items()
        }

    def round_numbers(self, round: int) -> dict[str, int]:
        """Return two variables for prompts: the given round and the number of rounds."""
        rounds = quote_value(self.config.rounds, "value", "study.rounds")
        return {"round": quote_round(round), "rounds": rounds}

    def ids_of(self, residents: Iterable[str]) -> list[str]:
        """Return the ids of residents as prompts show them."""
        return [self.named_residents[resident]["id"] for resident in residents]

    @property
    def one_model(self) -> str | None:
        """The model that answers for all residents, or None for the run's model."""
        return self.level.models[0] if self.level.models else None

    @cached_property
    def names_by_id(self) -> dict[str, str]:
        return {
            resident.id: resident.id if resident.id in self.ids_as_self else resident.name
            for resident in self.residents
        }

    def topic_for(self, resident: Resident, texts_by_key: Mapping[str, T]) -> list[T]:
        """Return the texts about the topic that one resident is shown.

        `texts_by_key`: the texts. A key is "all", an ownership such as "tenant", a type of
        vulnerable resident, or a label.
        """
        keys = ("all", resident.ownership, resident.vulnerable_type or "", resident.label)
        return [texts_by_key[key] for key in keys if key in texts_by_key]

    def statements(self, round_: Round, *, excluding: str = "") -> list[StatementLine]:
        """Return the statements of a round in order. Empty statements are left out.

        `excluding`: the id of a resident. Statements of this resident are left out. "" keeps all.
        """
        return self.as_lines(
            (resident_id, round_.recorded[resident_id].statement)
            for resident_id in round_.order
            if resident_id != excluding
        )

    def public_history(self, rounds: Sequence[Round], *, excluding: str = "") -> list[RoundRecord]:
        """Return the public utterances of the given rounds.

        `excluding`: the id of a resident. Statements of this resident are left out. "" keeps all.
        """
        return [
            {
                "round": quote_round(round_.number),
                "statements": self.statements(round_, excluding=excluding),
                "moderator": on_one_line(round_.moderator) if round_.moderator else "",
            }
            for round_ in rounds
        ]

    def remembered_rounds(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """Return the earlier rounds that prompts still show."""
        # They are the same at every level.
        return rounds if self.config.history == "all" else rounds[-1:]

    def questions_put_to(
        self, rounds: Sequence[Round], *asked: str, but: str = ""
    ) -> list[AddressedQuestion]:
        """Return the questions to the speakers in `asked`.

        `but`: the id of a resident. Questions that this resident asked are left out. "" keeps all.
        """
        residents = self.named_residents
        return [
            {
                **self._build_line(resident_id, question.utterance),
                "target": residents[question.target]["id"]
                if question.target in residents
                else question.target,
            }
            for round_ in rounds
            for resident_id in round_.order
            if resident_id != but
            for question in round_.recorded[resident_id].questions
            if question.target in asked
        ]

    def as_lines(self, utterances: Iterable[tuple[str, Utterance]]) -> list[StatementLine]:
        """Return utterances as lines for prompts. Empty utterances are left out.

        `utterances`: pairs of a resident id and an utterance.
        """
        return [
            self._build_line(resident_id, utterance)
            for resident_id, utterance in utterances
            if utterance.text
        ]

    def _build_line(self, resident: str, utterance: Utterance) -> StatementLine:
        # The source names the resident whom the prompt names. Exposure compares it with the real
        # speaker.
        return {
            **self.named_residents[resident],
            "text": on_one_line(utterance._replace(speaker_id=resident)),
        }


def quote_round(number: int) -> int:
    """Return the number of a round, for prompts."""
    return quote_value(number, "value", "protocol.round")


def make_meeting(
    config: TownHallConfig, resident_set: ResidentSet, level: Level, seed: int
) -> Meeting:
    """Return the meeting of one set of residents at one level."""
    people, orders = resident_set.residents, resident_set.orders
    general = [resident.id for resident in people if not resident.is_vulnerable]
    vulnerable = [resident.id for resident in people if resident.is_vulnerable]
    seats = assign_models(level.models, general, vulnerable, seed, resident_set.number)
    if not level.vulnerable:
        stand_in_of = dict(zip(vulnerable, resident_set.stand_ins, strict=True))
        people = tuple(stand_in_of.get(resident.id, resident) for resident in people)
        orders = tuple(
            tuple(
                stand_in_of[resident_id].id if resident_id in stand_in_of else resident_id
                for resident_id in order
            )
            for order in orders
        )
        seats = {
            stand_in_of[resident_id].id if resident_id in stand_in_of else resident_id: model
            for resident_id, model in seats.items()
        }
    if level.stories != "vulnerable":
        people = with_stories(people, level.stories, seed, resident_set.number)
    residents = (
        shuffle_labels(people, seed, resident_set.number) if level.labels == "shuffled" else people
    )
    name = f"set{resident_set.number:02d}_lv{level.name}"
    return Meeting(name, resident_set, level, seats, config, people, residents, orders)


class RecordedQuestion(NamedTuple):
    """A question that a statement contains."""

    # The id of a resident, `all`, `moderator` or `planner`.
    target: str
    utterance: Utterance


class RecordedTurn(NamedTuple):
    """The recorded utterances of one resident's turn."""

    statement: Utterance
    questions: tuple[RecordedQuestion, ...] = ()
    # Shown only to the resident. None if the turn has no thoughts.
    thoughts: Utterance | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a discussion."""

    number: int
    # The order in which prompts list the statements of the round.
    order: tuple[str, ...]
    turns: Mapping[str, Turn]
    # The utterances of `turns`.
    recorded: Mapping[str, RecordedTurn]
    moderation: Moderation | None = None
    # The utterance of `moderation`.
    moderator: Utterance | None = None
    reflections: Mapping[str, Reflection] = field(default_factory=dict)
    # The utterances of `reflections`.
    notes: Mapping[str, Utterance] = field(default_factory=dict)
    # The number of calls of a shared session, or 0 for separate sessions.
    parts: int = 0
    # The number of calls of a shared session if every reply is complete.
    planned_parts: int = 1

    def quote_stance(self, resident: str) -> str:
        """Return the stance in a resident's thoughts of this round, for prompts."""
        thoughts = self.recorded[resident].thoughts
        return quote_value(
            self.turns[resident].stance, "utterance", thoughts.id if thoughts else "", resident
        )


@dataclass(frozen=True)
class Discussion:
    """A discussion with the results of its stages so far."""

    meeting: Meeting
    rounds: tuple[Round, ...] = ()
    planned: Planned | None = None
    ballots: Mapping[str, Ballot] = field(default_factory=dict)
    item_outcomes: tuple[ItemRow, ...] = ()
    closing: Closing = MINIMAL_CLOSING
    consensus: Utterance | None = None
    # Resident id → satisfaction rating.
    before: Mapping[str, Satisfaction] = field(default_factory=dict)
    after: Mapping[str, Satisfaction] = field(default_factory=dict)
    # The records of all answers.
    calls: tuple[Call, ...] = ()

    def with_stage(self, calls: Sequence[Call], **stage: Any) -> Discussion:
        """Return a copy of the discussion to which the calls and results of one stage are added."""
        return replace(self, calls=(*self.calls, *calls), **stage)

    @cached_property
    def items(self) -> dict[str, PlannedItem]:
        """The ballot items, as a map from an id such as `V1` to the item."""
        # There are none if the planner's answer could not be read.
        planned = self.planned.items if self.planned else ()
        return {f"V{number}": item for number, item in enumerate(planned, start=1)}


def own_statements(rounds: Sequence[Round], resident: str) -> list[dict[str, int | str]]:
    """Return one resident's statements in the given rounds, for prompts."""
    statements = {round_.number: round_.recorded[resident].statement for round_ in rounds}
    return [
        {"round": quote_round(number), "text": on_one_line(utterance)}
        for number, utterance in statements.items()
        if utterance.text
    ]


def on_one_line(utterance: Utterance) -> str:
    """Return an utterance without line breaks."""
    # A text with line breaks could imitate another speaker's line.
    return alter_text(utterance.quoted_text, collapse_spaces(utterance.text))


@dataclass(frozen=True)
class HallSpeakers:
    """The speakers of a meeting."""

    meeting: Meeting
    # Resident id → persona text.
    portraits: Mapping[str, str]
    # Resident id → speaker, if each resident is asked separately.
    seats: Mapping[str, Speaker]
    # The speaker that answers for all residents at once, or None if each is asked separately.
    session: Speaker | None
    planner: Speaker
    moderator: Speaker | None
    # The limit of a reply of `session`, in tokens.
    longest_reply: int

    @property
    def ids(self) -> tuple[str, ...]:
        return self.meeting.ids

    def reading_context(
        self, me: str, *, round: int = 2, stance: str = "", think: bool = True, max_items: int = 0
    ) -> AskContext:
        """Return the context in which an answer of the speaker `me` is read.

        - `stance`: the resident's recorded stance before a reflection, or "".
        - `think`: True if the question asks for thoughts.
        - `max_items`: the maximum number of ballot items.
        """
        meeting = self.meeting
        return AskContext(
            self.ids, me, round, stance, think, max_items, meeting.names_by_id, meeting.set.options
        )


def open_hall(scope: Scope, meeting: Meeting) -> HallSpeakers:
    """Return the speakers of a meeting, each with a system prompt."""
    # The planner has the same model at every level and is not told who is vulnerable.
    level = meeting.level
    prompt_variables = {"residents": count_residents(meeting), "topic": meeting.topic}
    is_shared = level.context == "shared"
    portraits = {
        resident.id: describe_resident(scope, meeting, resident) for resident in meeting.people
    }
    moderator = None
    if level.is_moderated:
        vulnerable_residents = [
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
            system=scope.prompt(
                "moderator_system", vulnerable=vulnerable_residents, **prompt_variables
            ),
            model=None if level.moderator == "model" else level.moderator,
        )
    return HallSpeakers(
        meeting,
        portraits,
        {}
        if is_shared
        else {
            resident_id: _resident_speaker(scope, meeting, resident_id, portrait)
            for resident_id, portrait in portraits.items()
        },
        _shared_session(scope, meeting, list(portraits.values())) if is_shared else None,
        Speaker(
            id="planner",
            name="Planner",
            role="planner",
            system=scope.prompt("planner_system", **prompt_variables),
        ),
        moderator,
        longest_reply(meeting.config, scope.root.resolve_model("participant", meeting.one_model)),
    )


def count_residents(meeting: Meeting) -> int:
    """Return the number of residents, for prompts."""
    return quote_value(len(meeting.ids), "value", "protocol.residents")


def longest_reply(config: TownHallConfig, model: str) -> int:
    """Return the maximum length of a reply for several residents, in tokens."""
    # The study file and the model each have a limit, and the lower limit counts.
    limit = catalog.max_output_tokens(model, config.endpoints)
    return min(config.longest_shared_reply, limit or config.longest_shared_reply)


def _resident_speaker(scope: Scope, meeting: Meeting, resident: str, portrait: str) -> Speaker:
    system = scope.prompt(
        "persona",
        r=meeting.named_residents[resident],
        portrait=portrait,
        as_self=resident in meeting.ids_as_self,
        topic=meeting.topic,
        residents=count_residents(meeting),
        rounds=quote_value(meeting.config.rounds, "value", "study.rounds"),
    )
    return Speaker(resident, resident, system=system, model=meeting.seats[resident])


def _shared_session(scope: Scope, meeting: Meeting, portraits: Sequence[str]) -> Speaker:
    system = scope.prompt(
        "shared_session",
        portraits=portraits,
        residents=meeting.ids_of(meeting.ids),
        count=count_residents(meeting),
        topic=meeting.topic,
        rounds=quote_value(meeting.config.rounds, "value", "study.rounds"),
    )
    return Speaker(id="session", name="session", system=system, model=meeting.one_model)


def describe_resident(scope: Scope, meeting: Meeting, resident: Resident) -> str:
    """Return a resident's persona as one paragraph."""
    # It is the same at all levels.
    topic = meeting.config.topic
    source_id = cell_id("portraits.portrait", meeting.id, resident.id)
    if resident.id in meeting.ids_as_self:
        text = f"You are {SELF_DESCRIPTION_PLACEHOLDER} The others call you {resident.id}."
        return quote_value(text, "persona", source_id, resident.id)
    text = scope.prompt(
        "portrait",
        r=resident.to_row() | {"story": resident.story} | meeting.named_residents[resident.id],
        contributions=meeting.topic_for(resident, topic.contributions),
        stakes=[text for texts in meeting.topic_for(resident, topic.stakes) for text in texts],
    )
    return quote_value(text, "persona", source_id, resident.id)


class ResidentHistory(TypedDict):
    """The history of a resident for prompts: the utterances heard and said so far."""

    me: str
    last_round: int
    # The public utterances of the rounds before the last one.
    earlier: list[RoundRecord]
    # Statements of other residents in the last round.
    statements: list[StatementLine]
    # The moderator's speech after the last round.
    moderator: str
    # The resident's own statements in all rounds that the resident remembers.
    own: list[dict[str, int | str]]
    # Questions in the last round to the resident or to all residents.
    questions: list[AddressedQuestion]


def resident_history(hall: HallSpeakers, rounds: Sequence[Round], me: str) -> ResidentHistory:
    """Return what resident `me` has heard and said, limited to the rounds that prompts show."""
    meeting, rounds = hall.meeting, hall.meeting.remembered_rounds(rounds)
    history = meeting.public_history(rounds, excluding=me)
    return {
        "me": meeting.named_residents[me]["id"],
        "last_round": history[-1]["round"] if history else 0,
        "earlier": history[:-1],
        "statements": history[-1]["statements"] if history else [],
        "moderator": history[-1]["moderator"] if history else "",
        "own": own_statements(rounds, me),
        "questions": meeting.questions_put_to(rounds[-1:], me, "all", but=me),
    }


def shared_history(hall: HallSpeakers, rounds: Sequence[Round]) -> dict[str, object]:
    """Return the history that is shown to the model that answers for all residents."""
    meeting, rounds = hall.meeting, hall.meeting.remembered_rounds(rounds)
    history = meeting.public_history(rounds)
    return {
        "history": history,
        "last_round": history[-1]["round"] if history else 0,
        "moderator": history[-1]["moderator"] if history else "",
        "questions": meeting.questions_put_to(rounds[-1:], *meeting.ids, "all"),
    }


async def ask_speaker(
    scope: Scope, speaker: Speaker, prompt: str, answer_type: AnswerType[T], stage: Stage
) -> SpeakerAnswer[T]:
    """Ask one speaker and return the answer."""
    result = await scope.ask_detailed(
        speaker, prompt, answer_type=answer_type, about=stage.question_matter
    )
    value = None if isinstance(result.value, Missing) else result.value
    return SpeakerAnswer(value, call_of(stage, speaker, 1, prompt, result))


async def ask_alone(
    scope: Scope, hall: HallSpeakers, ask: Callable[[Scope, Speaker], Awaitable[SpeakerAnswer[T]]]
) -> tuple[ResidentAnswers[T], list[Call]]:
    """Ask all residents at the same time, each in a separate call."""
    answers = await scope.map([hall.seats[resident_id] for resident_id in hall.ids], ask)
    values = {
        resident_id: speaker_answer.value
        for resident_id, speaker_answer in answers.items()
        if speaker_answer.value is not None
    }
    missing = {
        resident_id: speaker_answer.call.missing for resident_id, speaker_answer in answers.items()
    }
    return ResidentAnswers(values, missing), [
        speaker_answer.call for speaker_answer in answers.values()
    ]


@dataclass(frozen=True, slots=True)
class SharedRequest(Generic[M, V]):
    """A question to the model that answers for all residents."""

    stage: Stage
    # Resident id → answer type.
    answers: Mapping[str, Json[M]]
    # Expected length, in tokens, of one resident's part of the reply. It limits how many residents
    # one reply can hold.
    tokens: int
    # Builds the question for some residents from their ids and the results of earlier calls.
    prompt: Callable[[list[str], Mapping[str, V]], str]
    # Makes a result from a resident's id, the answer and the address of the reply.
    record: Callable[[str, M, str], V]


def keep_answer(_resident: str, answer: T, _address: str) -> T:
    """Return the answer unchanged."""
    # Used as `SharedRequest.record` if there is nothing to record.
    return answer


async def ask_together(
    scope: Scope, hall: HallSpeakers, group: SharedRequest[M, V]
) -> tuple[ResidentAnswers[V], list[Call]]:
    """Ask one model to answer for all residents."""
    # There are as few calls as the reply limit allows. The model is asked again for residents who
    # are missing in a reply, until a reply adds none.
    session, max_reply_tokens = session_of(hall), hall.longest_reply
    waiting = list(group.answers)
    values: dict[str, V] = {}
    missing: dict[str, str] = {}
    calls: list[Call] = []
    # At least one resident per call, even if its part is expected to be too long.
    chunk_size = max(1, max_reply_tokens // max(1, group.tokens))
    while waiting:
        chunk, waiting = waiting[:chunk_size], waiting[chunk_size:]
        question = group.prompt(chunk, values)
        answer_type = each_of({resident_id: group.answers[resident_id] for resident_id in chunk})
        # Providers cut replies at a short default length if no maximum is set.
        max_tokens = session.max_tokens or max_reply_tokens
        about = group.stage.question_matter
        result = await scope.ask_detailed(
            session, question, answer_type=answer_type, max_tokens=max_tokens, about=about
        )
        no_entries: MapEntries[M] = MapEntries({}, {})
        entries = no_entries if isinstance(result.value, Missing) else result.value
        parsed, refused = entries.values, entries.declined
        call = call_of(group.stage, session, len(chunk), question, result)
        calls.append(call)
        if call.missing == DROPPED:
            missing |= dict.fromkeys(chunk, DROPPED)
        values.update(
            {
                resident_id: group.record(resident_id, value, result.address)
                for resident_id, value in parsed.items()
            }
        )
        missing |= dict.fromkeys(refused, DECLINED)
        if parsed or refused:
            waiting = [
                resident_id
                for resident_id in chunk
                if resident_id not in parsed and resident_id not in refused
            ] + waiting
    return ResidentAnswers(values, missing), calls


def session_of(hall: HallSpeakers) -> Speaker:
    """Return the speaker that answers for all residents."""
    assert hall.session is not None
    return hall.session
