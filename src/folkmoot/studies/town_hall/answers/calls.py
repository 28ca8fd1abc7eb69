"""Records of the answers in a discussion. Quality counts and logs are made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from folkmoot.conversation.answer_types import DECLINED, Missing, Repair
from folkmoot.conversation.lenient_fields import UNREADABLE
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import AskResult
from folkmoot.models.request import Completion
from folkmoot.studies.town_hall.answers.records import UNREAD
from folkmoot.studies.town_hall.answers.turns import Turn

T = TypeVar("T")

SATISFACTION_MATTER = "how satisfied with how the question is dealt with, and with the say in it"
# Stage → the matter of its question, for the embedded respondent.
QUESTION_MATTERS = {
    "satisfaction_before": SATISFACTION_MATTER,
    "think": "thoughts on what was said, and a stance on the question",
    "speak": "a statement on the question",
    "round": "thoughts, and a statement on the question",
    "moderate": "where the discussion stands, and who has not been heard",
    "reflect": "whose opinion convinced, and a stance on the question",
    "plan": "proposals to vote on",
    "vote": "a vote on each proposal",
    "consensus": "what the hall wants done",
    "satisfaction_after": SATISFACTION_MATTER,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """The stage and round of a question."""

    name: str
    round: int | None = None
    # The number of earlier entries in the prompt of the question.
    memory: int = 0

    @property
    def question_matter(self) -> str:
        """The subject of the question in words, as the built-in rules receive it."""
        return QUESTION_MATTERS[self.name]


@dataclass(frozen=True, slots=True)
class Call:
    """The record of one answer, for quality counts and logs."""

    stage: Stage
    agent: str
    address: str
    question: str
    # Its times, tokens and cost come from the journal, so a replay gives the same values.
    reply: Completion
    # The step of the parser that read the answer.
    parse_step: str
    reasks: int
    # The reason why there is no answer, or "".
    missing: str
    # Number of residents with empty fields because the answer could not be read.
    minimal: int
    repairs: tuple[Repair, ...]

    @property
    def round(self) -> int | None:
        return self.stage.round


def call_of(
    stage: Stage, speaker: Speaker, residents: int, question: str, result: AskResult[T]
) -> Call:
    """Return the record of one answer.

    `residents`: the number of residents for whom the speaker answers.
    """
    value = result.value
    missing = value.reason if isinstance(value, Missing) else ""
    # Nothing is unreadable in a reply that a fork left out.
    is_lost = bool(missing) and missing not in (DECLINED, DROPPED)
    return Call(
        stage=stage,
        agent=speaker.id,
        address=result.address,
        question=question,
        reply=result.reply,
        parse_step="minimal" if is_lost else missing or result.parse_step,
        reasks=result.reasks,
        missing=missing,
        minimal=residents if is_lost else sum(map(_is_lost_part, result.repairs)),
        repairs=result.repairs,
    )


def _is_lost_part(repair: Repair) -> bool:
    # Half of a turn in a shared reply.
    return repair.kind == UNREADABLE and repair.field in Turn.model_fields


@dataclass(frozen=True, slots=True)
class SpeakerAnswer(Generic[T]):
    """The answer of one speaker."""

    # None if there is no answer. `call.missing` is the reason.
    value: T | None
    call: Call

    def or_else(self, replacements: Mapping[str, T]) -> T:
        """Return the answer, or a replacement if there is none.

        - `replacements`: reason why there is no answer → replacement. `unparsed` is for all reasons
          that are not listed.
        """
        if self.value is not None:
            return self.value
        return replacements.get(self.call.missing, replacements[UNREAD])


@dataclass(frozen=True, slots=True)
class ResidentAnswers(Generic[T]):
    """The answers of several residents, and the reasons why others have none."""

    values: dict[str, T]
    # Resident id → reason. Residents whom a reply for several ones lacks have no reason.
    missing: Mapping[str, str]

    def of_all(self, ids: Iterable[str], replacements: Mapping[str, T]) -> dict[str, T]:
        """Return an answer for each resident, with a replacement for each missing answer.

        - `replacements`: see `SpeakerAnswer.or_else`.
        """
        unread = replacements[UNREAD]
        fallbacks = {id: replacements.get(self.missing.get(id, UNREAD), unread) for id in ids}
        return {id: self.values.get(id, fallback) for id, fallback in fallbacks.items()}
