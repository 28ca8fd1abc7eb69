"""Claims: one statement of a comparison, from which estimate, verdict and words follow.

A claim says which measure is compared between which two arms, in which direction, and by how much
the arms must differ for it to matter. `estimate_difference` is the only place that chooses a
method, by the kind of the measure and by what is independent of each other; `judge` is the only
place that gives a verdict. Findings, hypotheses, grids and comparisons print what these return.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.clustered import clustered_difference, paired_difference
from folkmoot.measures.estimates import ALPHA, FEWEST_UNITS, Estimate, p_value, points, points_span
from folkmoot.measures.paired_votes import paired_shares
from folkmoot.measures.proportions import Arm, Bounds, difference_bounds, newcombe

FloatArray = NDArray[np.float64]
Kind = Literal["share", "mean"]
Direction = Literal["greater", "less", "different", "equivalent"]
Family = Literal["primary", "secondary", "exploratory"]
ClaimVerdict = Literal["supported", "contradicted", "undecided"]

SUPPORTED: ClaimVerdict = "supported"
CONTRADICTED: ClaimVerdict = "contradicted"
UNDECIDED: ClaimVerdict = "undecided"


@dataclass(frozen=True, slots=True)
class Claim:
    """A comparison of two arms in one measure, as it is stated before anybody looks at the data.

    `measure`: `table.column`, or a column. `contrast`: the difference is first minus second.
    `kind`: of truth values a share, else a mean. `margin`: the smallest difference that matters,
    or the largest that counts as none (`equivalent`). `unit`: what is independent of each other, in
    words. `estimand`: population, treatment, outcome and unit in one sentence.
    """

    measure: str
    contrast: tuple[str, str]
    kind: Kind = "share"
    direction: Direction = "different"
    margin: float = 0.0
    family: Family = "exploratory"
    unit: str = "participant"
    estimand: str = ""

    @property
    def says(self) -> str:
        """The claim in words, without its result."""
        first, second = self.contrast
        by = f" by more than {self.size(self.margin)}" if self.margin else ""
        words = {
            "greater": f"{first} exceeds {second}{by}",
            "less": f"{first} falls below {second}{by}",
            "different": f"{first} and {second} differ{by}",
            "equivalent": f"{first} and {second} differ by less than {self.size(self.margin)}",
        }
        return f"{self.measure}: {words[self.direction]}"

    def size(self, difference: float) -> str:
        """A size without its sign: "5 points", "0.30"."""
        if self.kind == "share":
            return points(abs(difference)).lstrip("+−")
        return f"{abs(difference):.2g}"

    def signed(self, difference: float) -> str:
        """A difference with its sign: "+5 points", "−0.30"."""
        if not math.isfinite(difference):
            return "unknown"
        if self.kind == "share":
            return points(difference)
        return f"{difference:+.2f}".replace("-", "−")

    def span(self, e: Estimate) -> str:
        """The interval in the unit of the measure: "+3 to +20"."""
        if not e.has_interval:
            return "no interval"
        if self.kind == "share":
            return points_span(e.low, e.high)
        return f"{self.signed(e.low)} to {self.signed(e.high)}"


@dataclass(frozen=True, slots=True)
class Side:
    """One arm: the known values (n,), the independent unit of each (n,), and how many are lost."""

    values: FloatArray
    units: tuple[Hashable, ...]
    lost: int = 0

    @classmethod
    def of(cls, values: ArrayLike, units: Sequence[Hashable] | None = None) -> Side:
        """The side of values (n,), NaN where one is lost; without `units` each is one by itself."""
        y = np.asarray(values, float)
        known = np.isfinite(y)
        named = range(len(y)) if units is None else units
        own = tuple(unit for unit, use in zip(named, known, strict=True) if use)
        return cls(y[known], own, int((~known).sum()))

    @property
    def by_unit(self) -> dict[Hashable, float]:
        """The mean of each independent unit."""
        sums: Counter[Hashable] = Counter()
        counts = Counter(self.units)
        for unit, value in zip(self.units, self.values, strict=True):
            sums[unit] += float(value)  # type: ignore[assignment]
        return {unit: sums[unit] / count for unit, count in counts.items()}


@dataclass(frozen=True, slots=True)
class Result:
    """What the data say of a claim: estimate, verdict, its words, and what the lost could change.

    `why` tells why there is no test; it is empty where there is one. `adjusted_p` is Holm's p in
    the claim's family.
    """

    claim: Claim
    estimate: Estimate
    verdict: str
    why: str = ""
    bounds: Bounds | None = None
    counts: tuple[int, int] = (0, 0)
    lost: tuple[int, int] = (0, 0)
    adjusted_p: float = math.nan

    @property
    def says(self) -> str:
        """The claim with its verdict and its numbers."""
        return f"{self.claim.says}: {self.verdict}{self.numbers}."

    @property
    def numbers(self) -> str:
        """ " (+12 points, +3 to +20, p = .012)"; empty where nothing is known."""
        e = self.estimate
        if not math.isfinite(e.value):
            return ""
        parts = [self.claim.signed(e.value)]
        parts += [self.claim.span(e)] if e.has_interval else []
        p = self.adjusted_p if math.isfinite(self.adjusted_p) else e.p
        if math.isfinite(p):
            parts.append(f"{'adjusted ' * math.isfinite(self.adjusted_p)}{p_value(p)}")
        return f" ({', '.join(parts)})"


def estimate_difference(first: Side, second: Side, kind: Kind, level: float = 0.95) -> Estimate:
    """The mean of the first side minus that of the second, by the method that its units call for.

    - Units that came in both arms, all of them: differences within units. Of shares with one value
      each, Tango's interval and McNemar's test; else the t interval of the units' differences.
    - Units with several values: the CR2 sandwich with Satterthwaite's degrees of freedom.
    - Otherwise of shares Newcombe's interval, of means Welch's (which CR2 is there).

    No interval below five independent units in all, or below five on a side of which the units are
    its own.
    """
    ids = set(first.units), set(second.units)
    paired = ids[0] == ids[1] and bool(ids[0])
    alone = len(first.units) == len(ids[0]) and len(second.units) == len(ids[1])
    if paired:
        found = _paired(first, second, kind, alone, level)
        units = len(ids[0])
    else:
        found = _apart(first, second, kind, alone and not ids[0] & ids[1], level)
        units = len(ids[0] | ids[1]) if ids[0] & ids[1] else min(map(len, ids))
    if units < FEWEST_UNITS:
        return replace(found, low=math.nan, high=math.nan, p=math.nan, clusters=units)
    return found


def _paired(first: Side, second: Side, kind: Kind, alone: bool, level: float) -> Estimate:
    one, other = first.by_unit, second.by_unit
    names = list(one)
    if kind == "share" and alone:
        a, b = (np.array([side[n] > 0.5 for n in names]) for side in (one, other))
        moves = (a & b, a & ~b, ~a & b, ~a & ~b)
        both, only_first, only_second, neither = (int(m.sum()) for m in moves)
        # Tango's difference is the second count minus the first.
        return paired_shares(both, only_second, only_first, neither, level)
    values = ([one[n] for n in names], [other[n] for n in names])
    return paired_difference(*values, names, level)


def _apart(first: Side, second: Side, kind: Kind, alone: bool, level: float) -> Estimate:
    if kind == "share" and alone:
        hits = (round(float(side.values.sum())) for side in (first, second))
        one, other = hits
        return newcombe(one, len(first.values), other, len(second.values), level)
    values = [*first.values, *second.values]
    treated = [True] * len(first.values) + [False] * len(second.values)
    return clustered_difference(values, treated, [*first.units, *second.units], level)


def bound_difference(first: Side, second: Side) -> Bounds | None:
    """The least and the greatest difference of two shares over all ways of filling in the lost
    values; None where none is lost."""
    if not first.lost and not second.lost:
        return None
    arms = (
        Arm(round(float(side.values.sum())), len(side.values), side.lost)
        for side in (first, second)
    )
    return difference_bounds(*arms)


def judge(direction: Direction, margin: float, e: Estimate, alpha: float = ALPHA) -> ClaimVerdict:
    """Supported, contradicted or undecided.

    Supported: the whole interval lies where the claim says, beyond the margin, and the test of the
    same method agrees. Contradicted: all of it lies elsewhere. Undecided: anything else.
    """
    if not e.has_interval:
        return UNDECIDED
    low, high = (-e.high, -e.low) if direction == "less" else (e.low, e.high)
    above, below, within = low > margin, high < -margin, -margin <= low and high <= margin
    sure = not math.isfinite(e.p) or e.p < alpha
    if direction == "equivalent":
        return SUPPORTED if within else CONTRADICTED if above or below else UNDECIDED
    if direction == "different":
        if (above or below) and sure:
            return SUPPORTED
        return CONTRADICTED if within and margin else UNDECIDED
    if above and sure:
        return SUPPORTED
    return CONTRADICTED if high <= margin else UNDECIDED


def evaluate(claim: Claim, first: Side, second: Side, alpha: float = ALPHA) -> Result:
    """The result of a claim from both arms; its interval has the level 1 − alpha."""
    e = estimate_difference(first, second, claim.kind, 1 - alpha)
    why = ""
    verdict: str = judge(claim.direction, claim.margin, e, alpha)
    if e.units < FEWEST_UNITS:
        why = verdict = f"not tested ({e.units} independent units are an illustration)"
    bounds = bound_difference(first, second) if claim.kind == "share" else None
    counts, lost = (len(first.values), len(second.values)), (first.lost, second.lost)
    return Result(claim, e, verdict, why, bounds, counts, lost)


def without_result(claim: Claim, why: str) -> Result:
    """The result of a claim that the data cannot test, and why."""
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    return Result(claim, nothing, f"cannot be tested ({why})", why)
