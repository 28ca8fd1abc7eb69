"""What is read from an answer: the speaker's position, its tone, whom it takes up, objections.

The position is read by a coder, a model that is asked after each answer. The rest is read from the
words alone, by English cues, so that it holds for any model. Such counts help to find passages;
none is better than the words it stands on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionMessage, DiscussionTranscript
from folkmoot.studies.focus_group.moderator import named
from folkmoot.studies.focus_group.participants import Participant, leaning

# Smaller differences of position are wording, not a change of mind.
SMALLEST_SHIFT = 0.1
MODEL = "model"


class OpinionReading(BaseModel):
    """What an answer shows of a position; `sentiment` where the model is asked for it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    changed: bool
    valence: Annotated[float | None, Field(ge=-1, le=1)]
    sentiment: Annotated[float | None, Field(ge=-1, le=1)] = None


class Position(NamedTuple):
    """Where somebody stands (−1 … 1; None: not known), whether the last answer moved it, the
    coder's sentiment."""

    valence: float | None
    changed: bool = False
    sentiment: float | None = None


async def read_position(
    scope: Scope, who: Participant, last: float | None, question: str, answer: str
) -> Position:
    """Ask the coder whether an answer shows a change from the position last known, and to where.

    A reading that cannot be had leaves the position where it was. Where none was known before,
    the first one read is no change.
    """
    prompt = scope.prompt(
        "opinion_shift",
        who=who.name,
        concept=who.config.product_concept,
        first_opinion=who.persona.opinion.sentence if who.persona.opinion else "",
        last_position="" if last is None else f"{last:+.2f}",
        last_leaning="" if last is None else leaning(last),
        question=question,
        answer=answer,
        with_sentiment=who.config.sentiment == MODEL,
    )
    coder = Speaker("coder", "Coder", role="coder", system=scope.prompt("coder_system"))
    read = await scope.ask(coder, prompt, answer=Json(OpinionReading), temperature=0.0)
    if isinstance(read, Missing):
        return Position(last)
    tone = None if read.sentiment is None else round(read.sentiment, 3)
    if read.valence is None or last is None:
        return Position(last if read.valence is None else round(read.valence, 2), False, tone)
    moved = read.changed and abs(read.valence - last) >= SMALLEST_SHIFT
    return Position(round(read.valence, 2) if moved else last, moved, tone)


# --- tone --------------------------------------------------------------------------------------


def tone(text: str) -> float:
    """VADER's compound score in −1 … 1, rounded to three digits.

    Hutto & Gilbert (2014), ICWSM. A lexicon reads words, not irony; where somebody stands comes
    from the position after each message, not from this.
    """
    return round(float(_analyzer().polarity_scores(text)["compound"]), 3)


@cache
def lexicon() -> str:
    """What is recorded as the source of a lexicon's rating."""
    return f"vader {version('vaderSentiment')}"


@cache
def _analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()


# --- whom an answer takes up, and how ----------------------------------------------------------

_DISAGREE = re.compile(
    r"\b(?:disagree|don'?t agree|do not agree|can'?t agree|not so sure|not sure (?:that|about)|"
    r"see it differently|see (?:this|that) (?:another|a different) way|not (?:really )?convinced|"
    r"wouldn'?t go that far|the opposite|on the contrary|beg to differ|not how i see|"
    r"(?:not|isn'?t|wasn'?t) my experience|"
    r"hold on|with respect|have to push back|push back|don'?t buy (?:that|it)|"
    r"that'?s (?:not|exactly not|just not) (?:right|true|the point|it|how)|i doubt that|"
    r"can'?t go along|not with you|take issue|have to object|i'?d argue|you'?re overlooking)\b",
    re.IGNORECASE,
)
_AGREE = re.compile(
    r"\b(?:i agree|agreed|agree with|i'?m with|same here|same for me|exactly|good point|fair point|"
    r"that'?s a (?:good|fair|great) (?:point|one)|you'?re right|is right|are right|has a point|"
    r"have a point|makes? a good point|made a good point|like (?:\w+) said|as (?:\w+) said|"
    r"i second|to add to|building on|picking up on|me too|absolutely|i go along|feel the same|"
    r"couldn'?t agree more|that rings true|what (?:\w+) said|took the words|put it well|"
    r"on the same page)\b",
    re.IGNORECASE,
)


def stance(text: str) -> str | None:
    """`disagree`, `agree` or None. A message that grants a point and then objects disagrees."""
    plain = text.replace("’", "'")
    if _DISAGREE.search(plain):
        return "disagree"
    return "agree" if _AGREE.search(plain) else None


def reply_target(
    text: str, speaker_id: str, before: Sequence[DiscussionMessage], names: Mapping[str, str]
) -> DiscussionMessage | None:
    """The message that this one answers, or None where it answers the question put to all.

    Somebody named who has spoken: their latest message. Nobody named, but agreement or
    disagreement said: the participant who spoke just before, in the same question.
    """
    for who in named(text, {who: name for who, name in names.items() if who != speaker_id}):
        latest = next((m for m in reversed(before) if m.speaker_id == who), None)
        if latest is not None:
            return latest
    if stance(text) is None or not before:
        return None
    last = before[-1]
    return last if last.by_participant and last.speaker_id != speaker_id else None


def surprising(stance: str | None, tone: float | None, last: float | None, changed: bool) -> bool:
    """Whether an answer is worth a probe: a change of mind, open disagreement, or a tone clearly
    against where the speaker stood.
    """
    felt, stood = tone or 0.0, last or 0.0
    against = abs(felt) >= 0.5 and abs(stood) >= 0.2 and felt * stood < 0
    return changed or stance == "disagree" or against


# --- objections --------------------------------------------------------------------------------

THEMES: dict[str, str] = {
    "price": r"pric|cost|expens|afford|cheap|dollar|\$|money|budget|pay\b|paying|subscription",
    "need": r"don'?t need|no need|no use|nobody asked|already (?:have|own|got|do)|solution looking|"
    r"why would i|what for|pointless|gimmick|novelty|without it|perfectly fine|works fine",
    "trust": r"trust|privacy|data|scam|sales pitch|hype|promis|believe|skeptic|too good|marketing",
    "reliability": r"break|broke|last(?:s|ed)?\b|durab|warranty|reliab|fall apart|flimsy|repair",
    "effort": r"hassle|complicat|charge it|charging|clean|set(?:ting)? (?:it )?up|app\b|"
    r"another thing|remember to|learn how|fuss|time-consuming|maintenance|patience",
    "fit": r"not for me|somebody like me|people like me|my age|my life|younger people|"
    r"my family|my kids|my house|where i live",
    "safety": r"safe|health|chemical|danger|risk|side effect|allerg",
    "waste": r"waste|landfill|plastic|environment|battery|throw (?:it )?away|clutter|shelf|drawer",
}
_CUES = {theme: re.compile(rf"\b(?:{cues})", re.IGNORECASE) for theme, cues in THEMES.items()}
_AGAINST = re.compile(
    r"\b(?:not|no|never|don'?t|won'?t|can'?t|doesn'?t|isn'?t|wouldn'?t|couldn'?t|nobody|nothing|too|"
    r"doubt|worr\w*|afraid|suspicious|skeptical|problem|trouble|pointless|gimmick|hassle|hate|"
    r"against|rather (?:keep|stay|have))\b",
    re.IGNORECASE,
)
_IN_FAVOR = re.compile(r"\bi'?d (?:buy|get|pay|use|want|enjoy|love)\b|worth it", re.IGNORECASE)


class Objection(NamedTuple):
    """One sentence against the concept."""

    theme: str
    persona_id: str
    turn: int
    phase: str
    quote: str


def objections(transcript: DiscussionTranscript) -> list[Objection]:
    """All objections of a discussion, in order: sentences against the concept, by theme.

    The warm-up, where people introduce themselves, and questions are left out.
    """
    return [
        Objection(theme, m.speaker_id, m.turn_number, m.phase.value, sentence.strip())
        for m in transcript.by_participants()
        if m.phase is not DiscussionPhase.WARMUP
        for sentence in re.split(r"(?<=[.!?])\s+", m.content)
        if (theme := theme_of(sentence, (m.valence or 0.0) < 0))
    ]


def theme_of(sentence: str, speaker_is_against: bool) -> str:
    """The theme of a sentence that objects; empty for one that does not.

    It takes words of negation and a subject, and either a negative tone or a speaker who is
    against; of several subjects the one named first counts.
    """
    plain = sentence.replace("’", "'")
    if len(plain.split()) < 4 or plain.endswith("?") or not _AGAINST.search(plain):
        return ""
    if not speaker_is_against and (tone(plain) > -0.2 or _IN_FAVOR.search(plain)):
        return ""
    hits = [(hit.start(), theme) for theme, cue in _CUES.items() if (hit := cue.search(plain))]
    return min(hits, default=(0, ""))[1]
