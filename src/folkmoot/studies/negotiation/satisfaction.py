"""How content a member is with what was decided: the member's own score of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.operators import Portion
from folkmoot.studies.negotiation.polarity import STRONG_REJECTION

LOWEST, HIGHEST = STRONG_REJECTION, polarity.NAMED + polarity.WANTED


def member_scores(
    group: Group, texts: Mapping[str, str], options: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Member → option → score by the stated preference alone, so that conditions with and
    without ballots are measured with one yardstick. Members who stated nothing are left out."""
    return {m.id: polarity.scores(texts[m.id], options) for m in group.members if m.id in texts}


def member_satisfaction(
    group: Group,
    texts: Mapping[str, str],
    options: Sequence[str],
    portions: Sequence[Portion],
) -> dict[str, float]:
    """Member → score of what the member gets: the mean over the times or branches that are for
    the member; where several options hold at once, the best of them, or the worst if one is
    strongly rejected. Members who get nothing or stated nothing are left out."""
    every = tuple(dict.fromkeys([*options, *(p.option for p in portions)]))
    scored = member_scores(group, texts, every)
    result: dict[str, float] = {}
    for member, own in scored.items():
        by_time: dict[str, list[int]] = {}
        for portion in portions:
            if member in portion.members:
                by_time.setdefault(portion.when, []).append(own[portion.option])
        if by_time:
            held = [min(s) if min(s) <= STRONG_REJECTION else max(s) for s in by_time.values()]
            result[member] = sum(held) / len(held)
    return result
