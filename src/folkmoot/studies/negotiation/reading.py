"""What a decision in free words gives to whom: the options it names, read without a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.operators import Portion
from folkmoot.studies.negotiation.operators.outcome import WHOLE_TRIP


def portions_in(group: Group, text: str, options: Sequence[str]) -> tuple[Portion, ...]:
    """A portion for each option that a text names and nowhere turns down, by first mention.

    It is for everyone, unless members are named after it behind "for" ("sushi for Child 1 on
    Day 2"): then for them. Several options share the trip, so each has a part of its own.
    """
    named = polarity.adopted(text, options)
    found = []
    for option in named:
        who = _for_whom(group, text, option)
        when = WHOLE_TRIP if len(named) == 1 else f"part with {option}"
        found.append(Portion(option, who, when))
    return tuple(found)


def _for_whom(group: Group, text: str, option: str) -> tuple[str, ...]:
    everyone = tuple(m.id for m in group.members)
    # The words of the option, apart by anything but letters, as they may stand in the text.
    words = (re.escape(w.removesuffix("y")) + r"\w*" for w in polarity.words_of(option))
    stated = re.search(r"\W+".join(words), text, re.IGNORECASE)
    if stated is None:
        return everyone
    rest = re.match(r"\s+for\s+(.*)", re.split(r"[.;]", text[stated.end() :])[0], re.DOTALL)
    if rest is None or re.match(r"(?:everyone|everybody|all|us)\b", rest[1]):
        return everyone
    longest_first = sorted((m.name for m in group.members), key=len, reverse=True)
    name = rf"(?:{'|'.join(map(re.escape, longest_first))})(?!\w)"
    listed = re.match(rf"{name}(?:(?:,| and|, and) {name})*", rest[1])
    told = re.findall(name, listed[0]) if listed else []
    return tuple(m.id for m in group.members if m.name in told) or everyone
