"""Do answers follow the speaker's reasons, or whoever spoke last? Signs of giving in."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.measures.clustered import clustered_coefficient
from folkmoot.measures.estimates import Estimate
from folkmoot.measures.proportions import wilson


@dataclass(frozen=True, slots=True)
class Excess:
    """A share among those who moved, against the share expected if they had moved at random."""

    share: Estimate
    expected: float
    p: float

    @property
    def value(self) -> float:
        return self.share.value - self.expected


def towards_target(moved: int, to_target: int, options: int) -> Excess | None:
    """Of `moved` people the share that went to the option argued for, against 1/(options − 1).

    p is the exact binomial's. None if nobody moved or there was only one way to go. Far above
    chance may be persuasion or compliance: compare with an arm in which the argument is empty.
    """
    if moved < 1 or options < 3:
        return None
    from scipy.stats import binomtest

    expected = 1 / (options - 1)
    p = float(binomtest(to_target, moved, expected).pvalue)
    return Excess(wilson(to_target, moved), expected, p)


def towards_majority(before: Sequence[str], after: Sequence[str]) -> Excess | None:
    """Of those who left another option, the share that joined the first majority.

    The expectation is the share of the majority option among all options other than one's own,
    weighing every option alike. None if nobody outside the majority moved.
    """
    if not before:
        return None
    counts: dict[str, int] = {}
    for vote in before:
        counts[vote] = counts.get(vote, 0) + 1
    majority = max(counts, key=lambda o: (counts[o], o))
    options = len(set(before) | set(after))
    moved = [a for b, a in zip(before, after, strict=True) if b not in (majority, a)]
    return towards_target(len(moved), sum(a == majority for a in moved), options)


def pull_to_group(
    before: ArrayLike, after: ArrayLike, group: ArrayLike, clusters: Sequence[Hashable]
) -> Estimate:
    """How far numeric answers move towards the group that was heard, as a share of the way.

    Slope of (after − before) on (group − before), clustered: 0 nobody moves, 1 everybody adopts
    the group's value. `before`, `after`, `group` (n,): own answers and the mean of the others as
    heard. Noise in `before` alone gives a slope above 0 (regression to the mean), so compare with
    a re-ask arm.
    """
    a, b, g = (np.asarray(v, float) for v in (before, after, group))
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(g)
    gap, change = (g - a)[known], (b - a)[known]
    groups = [c for c, k in zip(clusters, known, strict=True) if k]
    if len(gap) < 3 or np.ptp(gap) == 0:
        return Estimate(math.nan, math.nan, math.nan, len(gap), len(set(groups)))
    design = np.column_stack([np.ones(len(gap)), gap])
    return clustered_coefficient(change, design, 1, groups)


_GIVING_IN = re.compile(
    r"^\W*(?:(?:oh|ah|well|hm+|okay|ok|yes|honestly|and)\W+)*(?:"
    r"(?:that(?:'s| is)|you(?:'re| are)|you make|you raise)\W+(?:\w+\W+){0,2}?"
    r"(?:absolutely|completely|totally|quite|entirely|very|right|fair|good|great|excellent|valid|"
    r"true|correct|convincing|compelling)"
    r"|i (?:completely |totally |fully |entirely |have to |must |do )?(?:agree|concede|admit)"
    r"|you(?:'ve| have) (?:convinced|persuaded|changed)"
    r"|absolutely\b|exactly\b|good point|fair point|great point|point taken)",
    re.IGNORECASE,
)


def opens_by_agreeing(text: str) -> bool:
    """Whether a turn opens with agreement or praise of the other's point (English only).

    A crude sign: polite people open so and then object. Look at its rate over turns.
    """
    return bool(_GIVING_IN.match(text.replace("’", "'").strip()))


def agreeing_share(texts: Sequence[str]) -> Estimate | None:
    """The share of turns that open by agreeing, or None without turns."""
    if not texts:
        return None
    return wilson(sum(opens_by_agreeing(t) for t in texts), len(texts))
