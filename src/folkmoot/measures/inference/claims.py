"""Claims: one statement of a comparison, from which estimate, verdict and words follow.

A claim says which measure is compared between which two arms, in which direction, and by how much
the arms must differ for it to matter. `estimate_difference` is the only place that chooses a
method, by the kind of the measure and by what is independent of each other; `judge` is the only
place that gives a verdict; `judge_families` is the only place that allows for how many claims there
are. Findings, hypotheses, grids and comparisons print what these return.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_difference, paired_difference
from folkmoot.measures.inference.estimates import (
    ALPHA,
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_points,
    points_span,
)
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.measures.inference.proportions import Arm, Bounds, difference_bounds, holm, newcombe
from folkmoot.measures.wording import NOT_TESTED, PHRASES

FloatArray = NDArray[np.float64]
Kind = Literal["share", "mean"]
Direction = Literal["greater", "less", "different", "equivalent"]
Family = Literal["primary", "secondary", "exploratory"]
ClaimVerdict = Literal["supported", "contradicted", "undecided"]
Level = str | int | float | bool | None  # of a column

SUPPORTED: ClaimVerdict = "supported"
CONTRADICTED: ClaimVerdict = "contradicted"
UNDECIDED: ClaimVerdict = "undecided"


MOST_PRIMARY = 3  # claims of a study
# In place of the column that tells arms apart, where the arms are columns of one row:
# `before_score` and `after_score` for the measure `score` in the arms `before` and `after`.
ACROSS = "columns of a row"
MISSING = "Subjects of whom the measure is not known are left out, counted, and bounded."


@dataclass(frozen=True, slots=True)
class Claim:
    """A comparison of two arms in one measure, as it is stated before anybody looks at the data.

    measure    `table.column`, or a column
    contrast   two arms; the difference is first minus second
    kind       of truth values a share, else a mean
    direction  greater, less, different or equivalent
    margin     the smallest difference that matters, or the largest that counts as none
               (`equivalent`)
    family     primary, secondary or exploratory; a study has at most `MOST_PRIMARY` primary claims
    unit       what is independent of each other, in words
    estimand   population, treatment, outcome and unit in one sentence
    by         the column that tells the arms apart; empty: the first such column of the table;
               `ACROSS`: each arm is a column
    where      the rows that count: column → values
    subject    the columns that name who or what is observed. Several rows of one subject in one arm
               are averaged. Empty: each row is a subject
    paired     whether each subject is observed in both arms, and compared with itself
    at_least   a number that makes a share of a mean: how many reach it
    outcome    the measure in words, and `names` the arms, as readers see them
    missing    the rule for subjects of whom the measure is not known
    """

    measure: str
    contrast: tuple[str, str]
    kind: Kind = "share"
    direction: Direction = "different"
    margin: float = 0.0
    family: Family = "exploratory"
    unit: str = "participant"
    estimand: str = ""
    by: str = ""
    where: tuple[tuple[str, tuple[Level, ...]], ...] = ()
    subject: tuple[str, ...] = ()
    paired: bool = False
    at_least: float | None = None
    outcome: str = ""
    names: tuple[str, str] = ("", "")
    missing: str = MISSING

    def __post_init__(self) -> None:
        if self.paired and not self.subject:
            raise ValueError(f"{self.measure}: a paired claim names its subjects")
        if self.at_least is not None and self.kind != "share":
            raise ValueError(f"{self.measure}: how many reach a number is a share")

    @property
    def arm_labels(self) -> tuple[str, str]:
        """The arms, as readers see them."""
        first, second = (name or arm for name, arm in zip(self.names, self.contrast, strict=True))
        return first, second

    @property
    def contrast_label(self) -> str:
        """The contrast as the label of a line or row: "ACP − Simple voting"."""
        return " − ".join(self.arm_labels)

    @property
    def says(self) -> str:
        """The claim in words, without its result."""
        first, second = self.arm_labels
        by = f" by more than {self.size(self.margin)}" if self.margin else ""
        words = {
            "greater": f"{first} exceeds {second}{by}",
            "less": f"{first} falls below {second}{by}",
            "different": f"{first} and {second} differ{by}",
            "equivalent": f"{first} and {second} differ by less than {self.size(self.margin)}",
        }
        return f"{self.outcome or self.measure}: {words[self.direction]}"

    def size(self, difference: float) -> str:
        """A size without its sign: "5 points", "0.30"."""
        if self.kind == "share":
            return format_points(abs(difference)).lstrip("+−")
        return f"{abs(difference):.2g}"

    def format_signed(self, difference: float, more: int = 0) -> str:
        """A difference with its sign: "+5 points", "−0.30". `more` digits where it is itself a term
        of a difference that is printed beside it."""
        if not math.isfinite(difference):
            return "unknown"
        if self.kind == "share":
            return format_points(difference, more)
        rounded = round(difference, 2 + more) + 0.0  # −0 becomes 0
        return f"{rounded:{'+' if rounded else ''}.{2 + more}f}".replace("-", "−")

    def format_interval(self, e: Estimate) -> str:
        """The interval in the unit of the measure: "+3 to +20"."""
        if not e.has_interval:
            return "no interval"
        if self.kind == "share":
            return points_span(e.low, e.high)
        return f"{self.format_signed(e.low)} to {self.format_signed(e.high)}"


@dataclass(frozen=True, slots=True)
class Side:
    """One arm: the known values (n,), the independent unit of each (n,), and how many are lost.

    `subjects` (n,): who each value belongs to, where both arms observe the same subjects. Both
    sides then have the same subjects in the same order.
    """

    values: FloatArray
    units: tuple[Hashable, ...]
    lost: int = 0
    subjects: tuple[Hashable, ...] = ()

    @classmethod
    def from_values(cls, values: ArrayLike, units: Sequence[Hashable] | None = None) -> Side:
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

    `why` tells why there is no test; it is empty where there is one. `adjusted_p` is the p of no
    difference that allows for the claim's family (see `judge_families`); NaN in a family of one.
    `level` is that of the interval.
    """

    claim: Claim
    estimate: Estimate
    verdict: str
    why: str = ""
    bounds: Bounds | None = None
    counts: tuple[int, int] = (0, 0)
    lost: tuple[int, int] = (0, 0)
    adjusted_p: float = math.nan
    level: float = 1 - ALPHA

    @property
    def p(self) -> float:
        """The p that counts: adjusted for the claim's family where that has several."""
        return self.adjusted_p if math.isfinite(self.adjusted_p) else self.estimate.p

    @property
    def is_tested(self) -> bool:
        """Whether there is a test."""
        return not self.why and math.isfinite(self.estimate.p)

    @property
    def p_in_words(self) -> str:
        """The p that counts, with its name: "adjusted p = .012".

        Empty where nothing was tested, and of a claim with a margin: the p of no difference is no
        test of it, the interval is.
        """
        if not self.is_tested or self.claim.margin:
            return ""
        return f"{'adjusted ' * math.isfinite(self.adjusted_p)}{format_p_value(self.p)}"

    @property
    def span(self) -> str:
        """The interval. It is said to hold by itself where the family leaves open what the interval
        shows: one by one, intervals of exploratory claims exclude too much."""
        alone = self.estimate.excludes_zero and self.verdict == UNDECIDED and self.p >= ALPHA
        return f"{self.claim.format_interval(self.estimate)}{' by itself' * alone}"

    @property
    def is_shown(self) -> bool:
        """Whether a primary claim is supported."""
        return self.claim.family == "primary" and self.verdict == SUPPORTED

    @property
    def says(self) -> str:
        """The claim with its verdict and its numbers."""
        return f"{self.claim.says}: {self.verdict}{self.format_numbers}."

    @property
    def verdict_phrase(self) -> str:
        """What may be said of the result."""
        if self.why:
            return f"{NOT_TESTED} ({self.estimate.why})" if self.estimate.why else NOT_TESTED
        first, second = self.claim.arm_labels
        margin = self.claim.size(self.claim.margin)
        by = f" by more than {margin}" * bool(self.claim.margin)
        told = PHRASES[self.verdict, self.claim.direction]
        return told.format(first=first, second=second, by=by, margin=margin)

    @property
    def describe_estimate(self) -> str:
        """The contrast with its estimate and interval, without a test: "A − B +8 points (+3 to
        +13)"."""
        estimate = self.estimate
        if not math.isfinite(estimate.value):
            return f"{self.claim.contrast_label} unknown ({self.why})"
        return (
            f"{self.claim.contrast_label} {self.claim.format_signed(estimate.value)} "
            f"({self.claim.format_interval(estimate)})"
        )

    @property
    def describe_conclusion(self) -> str:
        """The contrast with estimate, interval and p, and what may be said of it."""
        told = self.describe_estimate
        if self.p_in_words:
            told = f"{told.removesuffix(')')}, {self.p_in_words})"
        return f"{told}: {self.verdict_phrase}"

    @property
    def format_numbers(self) -> str:
        """ " (+12 points, +3 to +20, p = .012)"; empty where nothing is known."""
        estimate = self.estimate
        if not math.isfinite(estimate.value):
            return ""
        parts = [
            self.claim.format_signed(estimate.value),
            self.span if estimate.has_interval else "",
            self.p_in_words,
        ]
        return f" ({', '.join(filter(None, parts))})"


def estimate_difference(first: Side, second: Side, kind: Kind, level: float = 0.95) -> Estimate:
    """The mean of the first side minus that of the second, by the method that its units call for.

    - Subjects that were observed in both arms: differences within subjects, clustered by unit.
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
    if first.subjects and not alone:
        found = paired_difference(first.values, second.values, first.units, level)
        units = len(ids[0])
    elif paired:
        found = _paired_estimate(first, second, kind, alone, level)
        units = len(ids[0])
    else:
        found = _independent_estimate(first, second, kind, alone and not ids[0] & ids[1], level)
        units = len(ids[0] | ids[1]) if ids[0] & ids[1] else min(map(len, ids))
    if units < FEWEST_UNITS:
        return replace(found, low=math.nan, high=math.nan, p=math.nan, clusters=units)
    return found.clip_bounds(-1.0, 1.0) if kind == "share" else found


def _paired_estimate(first: Side, second: Side, kind: Kind, alone: bool, level: float) -> Estimate:
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


def _independent_estimate(
    first: Side, second: Side, kind: Kind, alone: bool, level: float
) -> Estimate:
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
    return CONTRADICTED if high <= margin and (margin or sure) else UNDECIDED


def evaluate(claim: Claim, first: Side, second: Side, alpha: float = ALPHA) -> Result:
    """The result of a claim from both arms; its interval has the level 1 − alpha."""
    estimate = estimate_difference(first, second, claim.kind, 1 - alpha)
    why = ""
    verdict: str = judge(claim.direction, claim.margin, estimate, alpha)
    if estimate.unit_count < FEWEST_UNITS:
        few = format_count(estimate.unit_count, "independent unit is", "independent units are")
        why = verdict = f"not tested ({few} an illustration)"
    elif estimate.why:
        why = verdict = f"not tested ({estimate.why})"
    bounds = bound_difference(first, second) if claim.kind == "share" else None
    counts, lost = (len(first.values), len(second.values)), (first.lost, second.lost)
    return Result(claim, estimate, verdict, why, bounds, counts, lost, level=1 - alpha)


def fitted_result(claim: Claim, e: Estimate) -> Result:
    """The result of a claim of which the estimate comes from a model of all arms together."""
    verdict = judge(claim.direction, claim.margin, e)
    return Result(claim, e, verdict, e.why, counts=(e.n, e.n))


def without_result(claim: Claim, why: str) -> Result:
    """The result of a claim that the data cannot test, and why."""
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    return Result(claim, nothing, f"cannot be tested ({why})", why)


# What the data hold of a claim: the claim with its unit, and both sides; or why there are none.
Read = tuple[Claim, Side, Side] | str


def judge_families(
    claims: Sequence[Claim], read: Callable[[Claim], Read], alpha: float = ALPHA
) -> list[Result]:
    """The results of claims, in order, each allowing for the others of its family.

    Primary: intervals at the level 1 − alpha / number of primary claims (Bonferroni), which hold
    together, and p times that number, so that it is below alpha exactly where the interval excludes
    zero. The chance that any true claim of no effect comes out supported is at most alpha.
    Secondary and exploratory: 95 % intervals one by one; verdicts go by Holm's p over the family.

    Claims that cannot be tested count in the number of primary claims, because it was fixed before.
    Dunn (1961), doi:10.1080/01621459.1961.10482090; Holm (1979), Scand. J. Statist. 6, 65–70.
    """
    size = Counter(claim.family for claim in claims)
    results = []
    for claim in claims:
        at = alpha / size[claim.family] if claim.family == "primary" else alpha
        sides = read(claim)
        if isinstance(sides, str):
            results.append(without_result(claim, sides))
        else:
            results.append(evaluate(*sides, at))
    return adjust_families(results, alpha)


def adjust_families(results: Sequence[Result], alpha: float = ALPHA) -> list[Result]:
    """Results that were judged one by one, with the p that allows for their family; of secondary
    and exploratory claims the verdicts go by it."""
    size = Counter(result.claim.family for result in results)
    ps = {family: iter(_adjust_in_family(results, family)) for family in size}
    return [_within_family(r, next(ps[r.claim.family]), size, alpha) for r in results]


def _adjust_in_family(results: Sequence[Result], family: Family) -> list[float]:
    own = np.array([r.estimate.p for r in results if r.claim.family == family])
    return np.minimum(len(own) * own, 1.0).tolist() if family == "primary" else holm(own.tolist())


def _within_family(result: Result, p: float, size: Counter[Family], alpha: float) -> Result:
    claim, several = result.claim, size[result.claim.family] > 1
    if not several or claim.family == "primary" or result.why:
        return replace(result, adjusted_p=p if several else math.nan)
    verdict = judge(claim.direction, claim.margin, replace(result.estimate, p=p), alpha)
    return replace(result, adjusted_p=p, verdict=verdict)
