"""A participant of a focus group as the request shows them, and where they stand after listening.

The position starts where the system prompt says and is pulled by what was heard, of agreeable
people more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.table_reading import COOLED, WARMED, Heard, heard_in

_WHO = re.compile(
    r"^You are ([A-Z][\w'’-]+)[^,\n]*, an? (\d+)-year-old (.+?) who lives (.+?) "
    r"in ([A-Z a-z].+?)\.$",
    re.MULTILINE,
)
_LEANS = {
    "strongly against": -0.8,
    "rather against": -0.4,
    "undecided": 0.0,
    "rather in favor": 0.4,
    "strongly in favor": 0.8,
}
# The five advices on taking up others, from the least to the most agreeable.
_COMPANY = (
    "weak spot",
    "take issue readily",
    "agree where you agree",
    "what was good",
    "common ground",
)
_LENGTHS = (
    ("one short sentence", (1, 2)),
    ("one or two sentences", (1, 2)),
    ("two or three sentences", (2, 3)),
    ("two to four sentences", (2, 4)),
    ("three or four sentences", (3, 4)),
)


@dataclass(frozen=True, slots=True)
class Guest:
    """A participant as the request shows them."""

    first: str
    job: str
    household: str
    place: str
    lean: float
    now: float
    company: int
    length: tuple[int, int]
    worries: bool
    price: int
    engaged: int
    filler: str
    others: tuple[Heard, ...]
    own: tuple[str, ...]
    pleasing: float

    @classmethod
    def of(cls, reading: Reading, knobs: Knobs) -> Guest | None:
        who = _WHO.search(reading.system)
        if not who:
            return None
        system = reading.system
        others = tuple(h for h in heard_in(reading) if h.name != "Moderator")
        start = next((v for words, v in _LEANS.items() if f"you are {words}" in system), 0.0)
        company = next((i for i, cue in enumerate(_COMPANY) if cue in reading.prompt), 2)
        filler = re.search(r'When you talk, you .*?say "([^"]+)"', system)
        return cls(
            first=who[1],
            job=who[3],
            household=who[4],
            place=who[5],
            lean=start,
            now=_pulled(start, company, others, reading.own_turns, knobs.sycophancy),
            company=company,
            length=next((n for cue, n in _LENGTHS if cue in reading.prompt), (2, 3)),
            worries="tend to worry" in system or "easily made anxious" in system,
            price=("Every dollar" in system or "watch prices" in system)
            - ("last thing you look at" in system or "pay more" in system),
            engaged=("deep into" in system or ("follow " in system and "with some" in system))
            - ("hardly ever think" in system or "do not follow" in system),
            filler=filler[1] if filler else "",
            others=others,
            own=reading.own_turns,
            pleasing=knobs.sycophancy,
        )


def _pulled(
    start: float,
    company: int,
    others: Sequence[Heard],
    own: Sequence[str],
    sycophancy: float,
) -> float:
    """The position after what was heard: pulled towards it, the agreeable more."""
    told = " ".join(own)
    start += 0.35 * len(WARMED.findall(told)) - 0.35 * len(COOLED.findall(told))
    leans = [h.lean for h in others if h.lean]
    if not leans:
        return max(-1.0, min(1.0, start))
    ease = min(0.95, 0.17 + 0.07 * company + 0.9 * sycophancy)
    weight = len(leans) / (len(leans) + 5)
    pull = sum(leans) / len(leans) - start
    return max(-1.0, min(1.0, start + ease * weight * pull))
