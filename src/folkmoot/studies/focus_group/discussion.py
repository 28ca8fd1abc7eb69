"""The data of a discussion, as stored in JSON files: messages, private answers, transcript."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby

from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.transcript import Transcript, Utterance
from folkmoot.hints import count_words
from folkmoot.people.sources.grounded import Profile
from folkmoot.provenance import Quoted, Source
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase

MODERATOR = "moderator"


class MessageRole(StrEnum):
    """The role of a speaker. Messages of `system` are never shown to a participant."""

    MODERATOR = "moderator"
    PARTICIPANT = "participant"
    SYSTEM = "system"


class DiscussionMessage(BaseModel):
    """One message of a discussion.

    - `turn_number` counts all messages from 1, `question` counts questions from 1. A probe has
      the number of the question to which it belongs. `position` counts the answers to one
      question.
    - `replied_to` is the id of the speaker to whom the message responds. `replied_to_turn` is the
      turn number of the earlier message. Both are None for an answer to a question put to all.
    - `sentiment` is the tone, from −1 to 1.
    - `valence` is the speaker's position after the message, from −1 to 1. `changed_mind` is True
      if this position differs from the speaker's last known position.
    - `asks` holds the ids of the participants whom a question addresses by name.
    - `rung` is 1 for a probe that asks for the reason, 2 for a probe that asks why the reason
      matters. The answer to a probe has the same `rung` as the probe.
    - `stance` says how the message responds to others, as the coder reads it: `agree`, `disagree`
      or None.
    - `reading_missing` is the reason why the coder gave no position. `valence` is then the
      speaker's last known position.
    - `out_of_character` is True if the words are typical of an assistant or a script.
    - `finish` is the finish reason of the reply. It is None for words of the guide.
    - `utterance_id` is the id in the table `utterances`.
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
        return count_words(self.content)

    @property
    def by_participant(self) -> bool:
        return self.role is MessageRole.PARTICIPANT

    @property
    def as_utterance(self) -> Utterance:
        """The message as an utterance of `folkmoot.conversation`."""
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
        """The message as a string that carries a source, for use in prompts."""
        return self.as_utterance.quoted_text


class InterviewTime(StrEnum):
    """The time of a private question.

    - `BEFORE`, `AFTER`: before or after the discussion.
    - `ALONE`: after an interview without the other participants.
    - `RETEST`: before the discussion, when the same question is asked a second time. The prompt
      does not show the first answer.
    """

    BEFORE = "before"
    AFTER = "after"
    ALONE = "alone"
    RETEST = "retest"

    @property
    def phrase(self) -> str:
        """The time as a part of a sentence, such as "before the discussion"."""
        if self is InterviewTime.ALONE:
            return "after the interview alone"
        if self is InterviewTime.RETEST:
            return "when asked again before the discussion"
        return f"{self.value} the discussion"


class Statement(BaseModel):
    """The private opinion of a participant: words and a position from −1 to 1.

    Without an answer, `missing` holds the reason (`declined`, `cannot_say`, `unparsed`, …).
    `planted` is True if the opinion was drawn with the persona, without a question. `utterance_id`
    is the id of the words in the table `utterances`.
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
        """The statement as a string that carries a source, for use in prompts."""
        return Quoted(self.words, Source("utterance", self.utterance_id, self.persona_id))


class PurchaseIntent(BaseModel):
    """The private purchase intent of a participant: one of `INTENTS`, or no answer.

    `missing` is the reason why an answer is missing. `price` is the price in the prompt, or None if
    only the material names a price. `ladder` is False if `price` is the product's own price, and
    True if it is one of the further prices in the study file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    persona_id: str
    when: InterviewTime
    price: str | None = None
    ladder: bool = False
    answer: str | None
    missing: str | None = None


# The order from low to high gives the scores 1 to 5 in the table `intents`.
INTENTS = (
    "Definitely would not buy",
    "Probably would not buy",
    "Might or might not buy",
    "Probably would buy",
    "Definitely would buy",
)


class ModeratorNotes(BaseModel):
    """The notes of the moderator after planning one question.

    `question` is the number of the planned question.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: int
    summary: str
    unanswered: tuple[str, ...]


class DiscussionTranscript(BaseModel):
    """A complete discussion of one group on one concept.

    `guide` holds the planned questions by phase. `notes` holds the notes of the moderator, one
    entry per question. `silences` holds (question, participant id, reason) for missing answers.
    """

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
        (), description="(question, persona id, reason) of each missing answer"
    )

    def by_phase(self) -> list[tuple[DiscussionPhase, list[DiscussionMessage]]]:
        """Return the messages of each phase, in order."""
        return [
            (phase, list(messages))
            for phase, messages in groupby(self.messages, lambda message: message.phase)
        ]

    def positions(self, when: InterviewTime) -> dict[str, float]:
        """Return a map from participant id to private position at the time `when`."""
        # Participants without a position are left out.
        return {
            statement.persona_id: statement.position
            for statement in self.statements
            if statement.when is when and statement.position is not None
        }

    def positions_before_and_after(self) -> dict[str, tuple[float, float]]:
        """Return a map from participant id to the positions before and after the discussion."""
        # Participants without one of the two positions are left out.
        before, after = self.positions(InterviewTime.BEFORE), self.positions(InterviewTime.AFTER)
        return {
            persona_id: (before[persona_id], after[persona_id])
            for persona_id in before
            if persona_id in after
        }

    def intents_by_participant(self, when: InterviewTime) -> dict[str, str]:
        """Return a map from participant id to the answer on buying at the product's own price.

        - `when`: the time of the question.
        """
        return {
            intent.persona_id: intent.answer
            for intent in self.intents
            if intent.when is when and not intent.ladder and intent.answer is not None
        }

    def by_participants(self) -> Iterator[DiscussionMessage]:
        """Return the messages of participants, in order."""
        return (message for message in self.messages if message.by_participant)


def recent_transcript(messages: Sequence[DiscussionMessage], last: int) -> Transcript:
    """Return the latest messages as a transcript for the prompt of a speaker.

    - `last`: the number of messages.
    """
    return Transcript(tuple(message.as_utterance for message in messages[-last:]))
