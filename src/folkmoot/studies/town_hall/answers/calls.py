"""Records of the answers in a discussion. Quality counts and logs are made from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from folkmoot.conversation.answer_types import DECLINED, Missing, Repair
from folkmoot.conversation.lenient_fields import UNREADABLE
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import AskResult
from folkmoot.models.request import Completion
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
    is_lost = bool(missing) and missing != DECLINED
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

    # None if the speaker declined or the answer could not be read.
    value: T | None
    call: Call

    def or_else(self, unread: T, declined: T) -> T:
        """Return the answer, or a replacement if there is none.

        - `unread`: replaces an answer that could not be read.
        - `declined`: replaces a declined answer.
        """
        if self.value is not None:
            return self.value
        return declined if self.call.missing == DECLINED else unread


@dataclass(frozen=True, slots=True)
class ResidentAnswers(Generic[T]):
    """The answers of several residents, and the ids of those who declined."""

    values: dict[str, T]
    declined: frozenset[str] = frozenset()

    def of_all(self, ids: Iterable[str], unread: T, declined: T) -> dict[str, T]:
        """Return an answer for each resident, with a replacement for each missing answer.

        - `unread`: replaces an answer that could not be read.
        - `declined`: replaces a declined answer.
        """
        missing = {
            resident_id: declined if resident_id in self.declined else unread for resident_id in ids
        }
        return {
            resident_id: self.values.get(resident_id, fallback)
            for resident_id, fallback in missing.items()
        }
