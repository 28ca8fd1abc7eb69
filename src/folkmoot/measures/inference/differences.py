"""The difference between two conditions in one measure. `estimate_difference` chooses the method.

`Side` holds the data of a condition.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import (
    clustered_difference,
    clustered_mean,
    lacks_variation,
    paired_difference,
)
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.measures.inference.proportions import between, newcombe

FloatArray = NDArray[np.float64]
# `share` for truth values, otherwise `mean`.
Kind = Literal["share", "mean"]


@dataclass(frozen=True, slots=True)
class Side:
    """The data of one condition of a claim."""

    # The known values.
    values: FloatArray
    # The independent unit of each value.
    units: tuple[Hashable, ...]
    # The independent unit of each unknown value.
    lost_units: tuple[Hashable, ...] = ()
    # The subject of each value, or empty. With `subjects`, the `Side` objects of both conditions
    # list the same subjects in the same order.
    subjects: tuple[Hashable, ...] = ()
    # The number of subjects that an unfinished run still asks.
    pending: int = 0
    # The number of rounds without a value, of subjects with a value in other rounds.
    missing_rounds: int = 0

    @classmethod
    def from_values(cls, values: ArrayLike, units: Sequence[Hashable] | None = None) -> Side:
        """Return the data of a condition.

        - `values`: the answers, shape (n,). NaN marks an unknown value.
        - `units`: the independent unit of each value, shape (n,). Default: every value is
          independent.
        """
        y = np.asarray(values, float)
        known = np.isfinite(y)
        named = range(len(y)) if units is None else units
        own, lost = (
            tuple(unit for unit, use in zip(named, used, strict=True) if use)
            for used in (known, ~known)
        )
        return cls(y[known], own, lost)

    @property
    def lost(self) -> int:
        """The number of unknown values, with those that an unfinished run still asks for."""
        return len(self.lost_units) + self.pending

    @property
    def by_unit(self) -> dict[Hashable, float]:
        """The mean of each independent unit."""
        sums: Counter[Hashable] = Counter()
        counts = Counter(self.units)
        for unit, value in zip(self.units, self.values, strict=True):
            sums[unit] += float(value)  # type: ignore[assignment]
        return {unit: sums[unit] / count for unit, count in counts.items()}

    def fill(self, value: float) -> Side:
        """Return the same data with each unknown value replaced by `value`."""
        values = np.append(self.values, np.full(self.lost, value))
        # The unit of a subject that was not asked yet is not known, so it counts as its own.
        own = (("pending", i) for i in range(self.pending))
        return Side(values, (*self.units, *self.lost_units, *own))

    @property
    def mean(self) -> float:
        """The mean of the known values, or NaN if there is none."""
        return float(self.values.mean()) if len(self.values) else math.nan


@dataclass(frozen=True, slots=True)
class Bounds:
    """The observed difference between two shares, and the range that missing answers allow."""

    observed: float
    low: float
    high: float

    @property
    def sign_holds(self) -> bool:
        """True if the difference has the same sign whatever the missing answers were."""
        return self.low > 0 or self.high < 0


def estimate_difference(
    first: Side, second: Side, kind: Kind, level: float = 0.95, *, are_shares: bool = False
) -> Estimate:
    """Return the mean of the first condition minus the mean of the second, with an interval.

    - `kind`: `share` or `mean`. It decides the method.
    - `level`: the confidence level of the interval.
    - `are_shares`: True if the averaged values are shares, so that the difference is at most 1.

    The interval is NaN with fewer than five independent units.
    """
    # Every value counts equally in every design. The estimand of a claim says "among cases", so it
    # must not depend on whether a unit occurs in one condition or in both.
    # If the conditions have separate units, each needs five. The methods:
    # - Subjects observed in both conditions: differences within subjects, clustered by unit.
    # - All units in both conditions with one value each: differences within units, with their t
    #   interval. Shares use Tango's interval and McNemar's test.
    # - Units with several values: the CR2 sandwich with Satterthwaite's degrees of freedom. If all
    #   units have the same number of values in both conditions, it equals the t interval of the
    #   differences within units.
    # - Otherwise: Newcombe's interval for shares, Welch's for means (equal to CR2 in this case).
    # Units that are all equal have no variance to estimate. Shares have bounds, so that they still
    # have an interval (`interval_of_equal_units`). Other means have none.
    bounds = (-1.0, 1.0) if kind == "share" or are_shares else None
    ids = set(first.units), set(second.units)
    paired = ids[0] == ids[1] and bool(ids[0])
    alone = len(first.units) == len(ids[0]) and len(second.units) == len(ids[1])
    # Several truth values of one subject are averaged. Such shares of a subject cannot be counted.
    counted = alone and bool(np.isin([*first.values, *second.values], (0.0, 1.0)).all())
    if first.subjects and not alone:
        found = paired_difference(first.values, second.values, first.units, level, bounds)
        units = len(ids[0])
    elif paired and alone:
        found = _paired_estimate(first, second, kind, counted, level, bounds)
        units = len(ids[0])
    elif paired:
        found = _clustered_estimate(first, second, level, bounds)
        units = len(ids[0])
    else:
        found = _independent_estimate(first, second, kind, counted and not ids[0] & ids[1], level)
        if bounds is not None and lacks_variation(found) and not ids[0] & ids[1]:
            one, other = (
                partial(clustered_mean, side.values, side.units, bounds=(0.0, 1.0))
                for side in (first, second)
            )
            found = replace(between(one, other, level), clusters=found.clusters)
        units = len(ids[0] | ids[1]) if ids[0] & ids[1] else min(map(len, ids))
    if units < FEWEST_UNITS:
        return replace(found, low=math.nan, high=math.nan, p=math.nan, clusters=units)
    # The t interval does not know that a difference of shares is limited to [−1, 1].
    return found if bounds is None else found.clip_bounds(*bounds)


def arm_means(first: Side, second: Side) -> tuple[float, float]:
    """Return the mean of each condition. `estimate_difference` returns their difference."""
    return first.mean, second.mean


def _paired_estimate(
    first: Side,
    second: Side,
    kind: Kind,
    counted: bool,
    level: float,
    bounds: tuple[float, float] | None,
) -> Estimate:
    one, other = first.by_unit, second.by_unit
    names = list(one)
    if kind == "share" and counted:
        a, b = (np.array([side[n] > 0.5 for n in names]) for side in (one, other))
        moves = (a & b, a & ~b, ~a & b, ~a & ~b)
        both, only_first, only_second, neither = (int(m.sum()) for m in moves)
        # Tango's difference is the second count minus the first.
        return paired_shares(both, only_second, only_first, neither, level)
    values = ([one[n] for n in names], [other[n] for n in names])
    return paired_difference(*values, names, level, bounds)


def _clustered_estimate(
    first: Side, second: Side, level: float, bounds: tuple[float, float] | None
) -> Estimate:
    # All units are in both conditions, and some have several values in one of them.
    values = np.append(first.values, second.values)
    treated = [True] * len(first.values) + [False] * len(second.values)
    units = [*first.units, *second.units]
    found = clustered_difference(values, treated, units, level)
    if bounds is not None and lacks_variation(found):
        # No unit departs from the difference, so only the number and the size of the units count.
        return clustered_mean([found.value] * len(units), units, level, bounds)
    if found.clusters < FEWEST_UNITS:
        one, other = first.by_unit, second.by_unit
        return replace(found, each=tuple(one[unit] - other[unit] for unit in one))
    return found


def _independent_estimate(
    first: Side, second: Side, kind: Kind, counted: bool, level: float
) -> Estimate:
    if kind == "share" and counted:
        hits = (round(float(side.values.sum())) for side in (first, second))
        one, other = hits
        return newcombe(one, len(first.values), other, len(second.values), level)
    values = [*first.values, *second.values]
    treated = [True] * len(first.values) + [False] * len(second.values)
    return clustered_difference(values, treated, [*first.units, *second.units], level)


def bound_difference(first: Side, second: Side) -> Bounds | None:
    """Return the difference between two shares, with its range over all values of missing answers.

    Returns None if no answer is missing.

    Source: Horowitz and Manski (2000), doi:10.1080/01621459.2000.10473902.
    """
    # For the low bound, no missing answer of the first condition is a hit, and all of the second
    # are. For the high bound, it is the reverse. Sampling error is not included.
    if not first.lost and not second.lost:
        return None
    return Bounds(
        first.mean - second.mean,
        first.fill(0.0).mean - second.fill(1.0).mean,
        first.fill(1.0).mean - second.fill(0.0).mean,
    )
