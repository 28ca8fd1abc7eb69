"""Objections: sentences in which a participant speaks against the concept, by theme.

Found by cue words (English) in sentences that are negative in tone or come from somebody who is
against the concept at that point. A help for the reader, who has the quotes; no count of it is
better than the words it stands on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from folkmoot.studies.focus_group import sentiment
from folkmoot.studies.focus_group.discussion import DiscussionTranscript

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
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Objection:
    """One sentence against the concept."""

    theme: str
    persona_id: str
    turn: int
    phase: str
    quote: str


def in_transcript(transcript: DiscussionTranscript) -> list[Objection]:
    """All objections of a discussion in order; the warm-up, where people introduce themselves, and
    questions are left out.
    """
    found: list[Objection] = []
    for m in transcript.by_participants():
        if m.phase.value == "warmup":
            continue
        for sentence in _SENTENCE.split(m.content):
            theme = theme_of(sentence, (m.valence or 0.0) < 0)
            if theme:
                found.append(
                    Objection(theme, m.speaker_id, m.turn_number, m.phase.value, sentence.strip())
                )
    return found


def theme_of(sentence: str, speaker_is_against: bool) -> str:
    """The theme of a sentence that objects; empty for one that does not.

    Words of negation and a subject are needed, and either a negative tone or a speaker who is
    against; of several subjects the one named first counts.
    """
    plain = sentence.replace("’", "'")
    if len(plain.split()) < 4 or plain.endswith("?") or not _AGAINST.search(plain):
        return ""
    if not speaker_is_against and (sentiment.rate(plain) > -0.2 or _IN_FAVOR.search(plain)):
        return ""
    hits = _hits(plain)
    return min(hits)[1] if hits else ""


def _hits(text: str) -> list[tuple[int, str]]:
    return list(_where(text))


def _where(text: str) -> Iterator[tuple[int, str]]:
    for theme, cue in _CUES.items():
        hit = cue.search(text)
        if hit:
            yield hit.start(), theme
