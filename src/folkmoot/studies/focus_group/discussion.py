"""A discussion as data: messages and transcript, read back from JSON as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby

from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.transcript import Transcript, Utterance
from folkmoot.people.sources.grounded import Profile
from folkmoot.provenance import Quoted, Source
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase

MODERATOR = "moderator"


class MessageRole(StrEnum):
    """Who said something. `system` is for tracking only and never shown to anybody."""

    MODERATOR = "moderator"
    PARTICIPANT = "participant"
    SYSTEM = "system"


class DiscussionMessage(BaseModel):
    """One thing said.

    `turn_number` counts all messages from 1. `replied_to` is the speaker answered to (with the
    turn in `replied_to_turn`), None for an answer to the question put to all. `sentiment` is in
    −1 … 1; `valence` is the speaker's position after the message, `changed_mind` whether it moved
    from the last one known. `question` counts the questions from 1 (probes belong to theirs),
    `position` the answers to one question; `asks` holds the ids of those whom a question asks by
    name; `rung` is 1 for a probe of an answer (why?), 2 for one of the answer to that (why does
    that matter?), and the same for their answers; `stance` is how it takes up others (`agree`,
    `disagree` or None), as the coder reads it; `reading_missing` why the coder's reading of the
    position is not known, so that `valence` is the one known before; `out_of_character` whether it
    has signs of an assistant's or a script's words; `finish` how the reply ended,
    None for words of the guide; `utterance_id` names it in the table `utterances`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: MessageRole
    speaker_id: str
    speaker_name: str
    content: str
    phase: DiscussionPhase
    turn_number: int
    replied_to: str | None = None
    replied_to_turn: int | None = None
    sentiment: float | None = None
    sentiment_source: str | None = None
    changed_mind: bool = False
    valence: float | None = None
    question: int = 0
    position: int = 0
    addressed: bool = False
    asks: tuple[str, ...] = ()
    probe: bool = False
    rung: int = 0
    stance: str | None = None
    surprising: bool = False
    reading_missing: str | None = None
    out_of_character: bool = False
    finish: str | None = None
    utterance_id: str = ""

    @property
    def words(self) -> int:
        return len(self.content.split())

    @property
    def by_participant(self) -> bool:
        return self.role is MessageRole.PARTICIPANT

    @property
    def as_utterance(self) -> Utterance:
        """The message as the engine's conversations know it."""
        return Utterance(
            self.speaker_id,
            self.content,
            name=self.speaker_name,
            role=self.role.value,
            stage=self.phase.value,
            round=self.question,
            id=self.utterance_id,
        )

    @property
    def quoted_text(self) -> Quoted:
        """The words for use in prompts."""
        return self.as_utterance.quoted_text


class InterviewTime(StrEnum):
    """When a participant is asked in private; `alone`: after an interview without the others;
    `retest`: before the talk as well, in a second conversation that knows nothing of the first."""

    BEFORE = "before"
    AFTER = "after"
    ALONE = "alone"
    RETEST = "retest"


class Statement(BaseModel):
    """What somebody says in private of the concept: a position in −1 … 1 with their own words, or
    why there is none (`declined`, `cannot_say`, `unparsed`, …).

    `planted`: it was drawn by what the person is like, not asked for. `utterance_id` names the
    words in the table `utterances`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    persona_id: str
    when: InterviewTime
    position: float | None = None
    words: str = ""
    planted: bool = False
    missing: str | None = None
    utterance_id: str = ""

    @property
    def quoted_text(self) -> Quoted:
        """The words for use in prompts."""
        return Quoted(self.words, Source("utterance", self.utterance_id, self.persona_id))


class PurchaseIntent(BaseModel):
    """What somebody says in private of buying it: one of `INTENTS`, or why there is no answer.

    `price` is the one in view, None where the material alone says it; `ladder`: it is one of the
    prices of the ladder, and not the product's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    persona_id: str
    when: InterviewTime
    price: str | None = None
    ladder: bool = False
    answer: str | None
    missing: str | None = None


INTENTS = (
    "Definitely would not buy",
    "Probably would not buy",
    "Might or might not buy",
    "Probably would buy",
    "Definitely would buy",
)


class ModeratorNotes(BaseModel):
    """What the moderator had noted when it asked a question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: int
    summary: str
    unanswered: tuple[str, ...]


class DiscussionTranscript(BaseModel):
    """A whole discussion. `guide` holds the questions planned per phase."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str = "group_001"
    stimulus: str = "concept"
    config: DiscussionConfig
    messages: tuple[DiscussionMessage, ...] = ()
    personas: tuple[Profile, ...]
    guide: dict[DiscussionPhase, tuple[str, ...]] = Field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    intents: tuple[PurchaseIntent, ...] = ()
    notes: tuple[ModeratorNotes, ...] = ()
    interviews: dict[str, tuple[DiscussionMessage, ...]] = Field(
        default_factory=dict, description="by persona id, with `control: alone`"
    )
    silences: tuple[tuple[int, str, str], ...] = Field(
        (), description="(question, persona id, reason) where an answer could not be had"
    )

    def by_phase(self) -> list[tuple[DiscussionPhase, list[DiscussionMessage]]]:
        """The messages of each phase, in order."""
        return [
            (phase, list(ms))
            for phase, ms in groupby(
                self.messages, lambda discussion_message: discussion_message.phase
            )
        ]

    def positions(self, when: InterviewTime) -> dict[str, float]:
        """Where each person stood, by id, of those of whom it is known."""
        return {
            statement.persona_id: statement.position
            for statement in self.statements
            if statement.when is when and statement.position is not None
        }

    def positions_before_and_after(self) -> dict[str, tuple[float, float]]:
        """Positions before and after by id, of those of whom both are known."""
        before, after = self.positions(InterviewTime.BEFORE), self.positions(InterviewTime.AFTER)
        return {who: (before[who], after[who]) for who in before if who in after}

    def intents_by_participant(self, when: InterviewTime) -> dict[str, str]:
        """What each answered about buying it at its own price, by id."""
        return {
            purchase_intent.persona_id: purchase_intent.answer
            for purchase_intent in self.intents
            if purchase_intent.when is when
            and not purchase_intent.ladder
            and purchase_intent.answer is not None
        }

    def by_participants(self) -> Iterator[DiscussionMessage]:
        """The messages of participants, in order."""
        return (
            discussion_message
            for discussion_message in self.messages
            if discussion_message.by_participant
        )


def recent_transcript(messages: Sequence[DiscussionMessage], last: int) -> Transcript:
    """The latest messages as a transcript to be heard."""
    return Transcript(
        tuple(discussion_message.as_utterance for discussion_message in messages[-last:])
    )
