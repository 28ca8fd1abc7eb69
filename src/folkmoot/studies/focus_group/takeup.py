"""How a message takes up what others said: to whom it replies, and whether it agrees.

Read from its words alone (English cues), so that it holds for any model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from folkmoot.studies.focus_group.discussion import DiscussionMessage
from folkmoot.studies.focus_group.speaking import named

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
    text: str,
    speaker_id: str,
    before: Sequence[DiscussionMessage],
    names: Mapping[str, str],
) -> DiscussionMessage | None:
    """The message that this one answers to, or None where it answers the question put to all.

    Somebody named who has spoken: their latest message. Nobody named, but agreement or
    disagreement said: the participant who spoke just before, in the same question.
    """
    others = {who: name for who, name in names.items() if who != speaker_id}
    for who in named(text, others):
        latest = next((m for m in reversed(before) if m.speaker_id == who), None)
        if latest is not None:
            return latest
    if stance(text) is None or not before:
        return None
    last = before[-1]
    return last if last.by_participant and last.speaker_id != speaker_id else None


def surprising(stance: str | None, tone: float | None, last: float, changed: bool) -> bool:
    """Whether an answer is worth a probe: a change of mind, open disagreement, or a tone that
    goes clearly against where the speaker stood.
    """
    against = tone is not None and abs(tone) >= 0.5 and abs(last) >= 0.2 and tone * last < 0
    return changed or stance == "disagree" or against
