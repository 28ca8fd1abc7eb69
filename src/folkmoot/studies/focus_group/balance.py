"""How the talk was shared out: Gini of words, the moderator's share, who replied to whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from folkmoot.measures.diversity import gini
from folkmoot.studies.focus_group.discussion import DiscussionTranscript


@dataclass(frozen=True, slots=True)
class Balance:
    """Shares of the talk in one discussion. `words` and `turns` by persona id."""

    words: dict[str, int]
    turns: dict[str, int]
    gini_words: float
    moderator_share: float
    replies: dict[tuple[str, str], int]


def of(transcript: DiscussionTranscript) -> Balance:
    """The balance of a discussion; replies are counted as (who, to whom)."""
    words = dict.fromkeys((p.id for p in transcript.personas), 0)
    turns = dict.fromkeys(words, 0)
    replies: Counter[tuple[str, str]] = Counter()
    moderator = 0
    for m in transcript.messages:
        if not m.by_participant:
            moderator += m.words
            continue
        words[m.speaker_id] += m.words
        turns[m.speaker_id] += 1
        if m.replied_to:
            replies[m.speaker_id, m.replied_to] += 1
    total = moderator + sum(words.values())
    return Balance(
        words, turns, gini(list(words.values())), moderator / total if total else 0.0, dict(replies)
    )
