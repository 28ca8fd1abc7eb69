"""Read free text with a coder, a lexicon and codebooks.

The coder is a model that rates positions. A lexicon rates the tone.
"""
# Codebooks give objections, needs, themes and private stances.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.answer_types import (
    Json,
    Missing,
    pin_schema,
)
from folkmoot.conversation.sentiment import sentiment_score
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.run.study_language import is_english
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    DiscussionMessage,
    DiscussionTranscript,
    InterviewTime,
)
from folkmoot.studies.focus_group.participants import Participant
from folkmoot.studies.focus_group.positions import DECIMALS, describe_position, has_moved

MODEL = "model"


class OpinionReading(BaseModel):
    """The coder's reading of one answer.

    Only a model that also rates the tone fills in `sentiment`.
    """

    model_config = pin_schema(
        "OpinionReading",
        "What an answer shows of a position; `sentiment` where the model is asked for it.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    changed: bool | None = Field(
        description="true if the position moved, false if it did not; null if it cannot be said"
    )
    valence: Annotated[float | None, Field(ge=-1, le=1)] = Field(
        description="the position after this answer, a number from -1 to 1 (the last known one if "
        "nothing changed); null if it cannot be said"
    )
    takes_up: str | None = Field(
        None,
        description="the first name of the person whose remark the answer takes up; null if there "
        "is none",
    )
    stance: Literal["agree", "disagree", "none_of_these", "declined"] | None = Field(
        None,
        description="whether the answer agrees or disagrees with another person's remark (granting "
        "a point and then objecting is to disagree); none_of_these if it takes up a remark in "
        "another way, null if it takes up none",
    )
    sentiment: Annotated[float | None, Field(ge=-1, le=1)] = Field(
        None,
        description="the tone of the answer itself, a number from -1 (very negative) to 1 (very "
        "positive)",
    )


STANCES = ("agree", "disagree")
OPINION_READING = Json(OpinionReading, may_decline=True)
WITHOUT_SENTIMENT = Json(OpinionReading, may_decline=True, excluded_fields=("sentiment",))


class Position(NamedTuple):
    """The coder's reading of an answer."""

    # The speaker's position from −1 to 1, or None.
    valence: float | None
    # True if the answer changed the position.
    changed: bool = False
    # The message to which the answer responds.
    takes_up: DiscussionMessage | None = None
    # Agreement or disagreement with that message.
    stance: str | None = None
    sentiment: float | None = None
    # The reason if the coder gave no position.
    missing: str | None = None


async def read_position(
    scope: Scope,
    participant: Participant,
    last_position: float | None,
    question: DiscussionMessage,
    answer: str,
    history: Sequence[DiscussionMessage],
) -> Position:
    """Ask the coder which position an answer expresses, and to which message it is a response."""
    # `history` holds the messages before the answer. If the coder gives no position,
    # `last_position` is returned. A first position (`last_position` None) does not count as a
    # change.
    others = [
        message
        for message in history
        if message.by_participant and message.speaker_id != participant.id
    ]
    own_turns = (
        message.turn_number
        for message in reversed(history)
        if message.speaker_id == participant.id and message.valence is not None
    )
    turn, texts = next(own_turns, 0), participant.texts
    names = {
        message.speaker_id: texts.name(message.speaker_id, message.speaker_name)
        for message in others
    }
    just_before = others[-1] if others else None
    answer_type = OPINION_READING if participant.config.sentiment == MODEL else WITHOUT_SENTIMENT
    prompt = scope.prompt(
        "opinion_shift",
        who=texts.name(participant.id, participant.name),
        concept=texts.concept,
        first_opinion=participant.opinion_words,
        last_position=""
        if last_position is None
        else texts.quote_position(participant.id, turn, last_position),
        last_leaning=""
        if last_position is None
        else texts.quote_leaning(participant.id, turn, describe_position(last_position)),
        before=just_before
        and {"name": names[just_before.speaker_id], "words": just_before.quoted_text},
        others=list(names.values()),
        question=question.quoted_text,
        answer=answer,
        answer_format=answer_type.describe_format(),
    )
    # A coder works at temperature 0, because it reads and does not play a persona.
    coder = Speaker("coder", "Coder", role="coder", system=scope.prompt("coder_system"))
    result = await scope.ask_detailed(
        coder, prompt, answer_type=answer_type, temperature=0.0, about=str(answer)
    )
    reading = result.value
    if isinstance(reading, Missing):
        return Position(last_position, missing=reading.reason)
    name = (reading.takes_up or "").casefold()
    takes_up = next(
        (message for message in reversed(others) if message.speaker_name.casefold() == name),
        None,
    )
    tone = None if reading.sentiment is None else round(reading.sentiment, 3)
    stance = reading.stance if others and reading.stance in STANCES else None
    other_fields = (takes_up, stance, tone)
    if reading.valence is None:
        reason = result.reason_of_null("valence")
        return Position(last_position, False, *other_fields, missing=reason)
    if last_position is None:
        return Position(round(reading.valence, DECIMALS), False, *other_fields)
    # The coder must say that the position changed, and the number must differ enough. A small
    # difference is a matter of wording.
    moved = bool(reading.changed) and has_moved(last_position, reading.valence)
    missing = result.reason_of_null("changed") if reading.changed is None else None
    return Position(
        round(reading.valence, DECIMALS) if moved else last_position, moved, *other_fields, missing
    )


def rate_tone(text: str) -> float | None:
    """Return the tone of a message by the lexicon, or None if the message is not English."""
    # The lexicon has English words only. It knows no Chinese word, and takes the German "die" and
    # "war" for "to die" and "a war".
    tone = sentiment_score(text)
    # Two words are too few to identify a language, so a word of the lexicon decides.
    is_known = tone != 0 and len(text.split()) <= 2
    return tone if is_known or is_english(text) else None


def is_surprising(
    stance: str | None, tone: float | None, last: float | None, changed: bool
) -> bool:
    """Return whether an answer is worth a follow-up question."""
    # An answer is surprising if it changes the speaker's position or openly disagrees with another
    # speaker. A tone clearly against the speaker's last position (`last`) is surprising too.
    tone_value, position = tone or 0.0, last or 0.0
    contradicts_position = (
        abs(tone_value) >= 0.5 and abs(position) >= 0.2 and tone_value * position < 0
    )
    return changed or stance == "disagree" or contradicts_position


CODEBOOKS = Path(__file__).parents[1] / "codebooks"
# The codes of the codebook `opinion` on the scale of positions.
CODE_POSITIONS = {
    "keen": 1.0,
    "favourable": 0.5,
    "undecided": 0.0,
    "doubtful": -0.5,
    "opposed": -1.0,
}


def answer_id(transcript: DiscussionTranscript, message: DiscussionMessage) -> str:
    """Return the id that an answer has in the tables of codes."""
    return f"{transcript.group}/{transcript.stimulus}/turn{message.turn_number}"


async def code_remarks(
    session: Session[DiscussionConfig], talks: Sequence[DiscussionTranscript]
) -> None:
    """Assign codes to all answers and private statements."""
    # Answers of the warm-up are left out, because participants only introduce themselves there.
    # Private statements are coded so that the report can compare words and positions.
    answers = [
        coding.TextToCode(
            answer_id(talk, message),
            message.quoted_text,
            f"{talk.group}/{message.speaker_id}",
        )
        for talk in talks
        for message in talk.by_participants()
        if message.phase is not DiscussionPhase.WARMUP
    ]
    private = [
        coding.TextToCode(
            f"{talk.group}/{talk.stimulus}/{statement.persona_id}/{statement.when.value}",
            statement.quoted_text,
            f"{talk.group}/{statement.persona_id}",
        )
        for talk in talks
        for statement in talk.statements
        if statement.words and not statement.planted and statement.when is not InterviewTime.RETEST
    ]
    await coding.code_texts(session, CODEBOOKS / "remarks.yaml", answers)
    await coding.code_texts(session, CODEBOOKS / "opinion.yaml", private)


def kind_and_name(code: str) -> tuple[str, str]:
    """Return the kind and the name of a code, such as ("objection", "price")."""
    # The kinds are objection, need and theme. A code without one of these prefixes is a theme.
    kind, separator, name = code.partition("_")
    return (kind, name) if separator and kind in ("objection", "need", "theme") else ("theme", code)
