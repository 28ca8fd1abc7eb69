"""The share of the variance of answers that personas, or single attributes of personas, explain.

Answers are numbers or categories.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.distributions import student_quantile
from folkmoot.measures.inference.estimates import FEWEST_UNITS, ROUNDING, Estimate, jackknife

FloatArray = NDArray[np.float64]
# A share of variance from fewer participants says nothing: with 30 its interval is about ±.3.
FEWEST_PARTICIPANTS = 30
# A value of an attribute needs this many participants, to compare it with other values.
FEWEST_PER_VALUE = 5


def intraclass_correlation(
    first: Sequence[str | float], second: Sequence[str | float], units: Sequence[Hashable]
) -> Estimate:
    """Return how much the two answers of a participant are alike.

    1 means that they are always equal, and 0 that they are alike only by chance.

        intraclass_correlation([1, 5, 3], [1, 5, 3], ["ann", "ben", "cem"])

    - `first`, `second`: the two answers, shape (n,), both texts or both numbers.
    - `units`: the independent unit of each participant, shape (n,).

    The result is NaN if all answers are equal.

    Source of ICC(1): Shrout and Fleiss (1979), doi:10.1037/0033-2909.86.2.420.
    """
    # For categories the ICC nearly equals the kappa of Fleiss: Fleiss and Cohen (1973),
    # doi:10.1177/001316447303300309.
    coded = _code([*first, *second])
    pairs = np.hstack([coded[: len(first)], coded[len(first) :]])

    # (MSB − MSW) / (MSB + MSW), the mean squares between and within participants. The interval is
    # the jackknife over units of −log(1 − ICC).
    least = _rounding_of_squares(pairs)

    def icc(rows: FloatArray) -> float:
        a, b = np.hsplit(rows, 2)
        means = (a + b) / 2
        between = 2 * float(((means - means.mean(0)) ** 2).sum()) / (len(rows) - 1)
        within = float(((a - b) ** 2).sum()) / 2 / len(rows)
        total = between + within
        return (between - within) / total if total > least else math.nan

    return _over_units(icc, pairs, units)


def explained_share(
    answers: Sequence[str | float],
    values: Sequence[Hashable],
    units: Sequence[Hashable],
    participants: Sequence[Hashable] | None = None,
) -> Estimate:
    """Return the share of the variance of answers that an attribute of the participants explains.

    - `answers`: the answers, shape (n,).
    - `values`: the value of the attribute for the participant of each answer, shape (n,).
    - `units`: the independent unit of each answer, shape (n,).
    - `participants`: the participant of each answer, shape (n,). Several answers of a participant
      count as their mean. By default, all participants differ.

    The result is NaN with fewer than 30 participants, with only one value, or if all answers are
    equal.

    Sources: Kelley (1935), doi:10.1073/pnas.21.9.554. Categories: Light and Margolin (1971),
    doi:10.1080/01621459.1971.10482297.
    """
    # The result is ε². Values of fewer than five participants are left out. Without an effect, the
    # result is 0 on average, so single results can be negative.
    people = range(len(answers)) if participants is None else participants
    # Equal answers of one participant are no further evidence, so each participant is one row.
    rows_of: dict[tuple[Hashable, Hashable], list[int]] = {}
    for n, key in enumerate(zip(people, values, strict=True)):
        rows_of.setdefault(key, []).append(n)
    counts = Counter(value for _, value in rows_of)
    own = [rows for (_, value), rows in rows_of.items() if counts[value] >= FEWEST_PER_VALUE]
    kept = [rows[0] for rows in own]
    if len(kept) < FEWEST_PARTICIPANTS or len({values[n] for n in kept}) < 2:
        return Estimate(math.nan, math.nan, math.nan, len(kept))
    coded = _code(answers)
    coded = np.array([coded[rows].mean(0) for rows in own])
    names: dict[Hashable, int] = {}
    groups = np.array([names.setdefault(values[n], len(names)) for n in kept])

    # ε² = 1 − (1 − η²)(n − 1)/(n − k) for k values. The interval is the jackknife over units of
    # −log(1 − ε²).
    least = _rounding_of_squares(coded)

    def epsilon(rows: FloatArray) -> float:
        own, at = rows[:, :-1], rows[:, -1]
        total = float(((own - own.mean(0)) ** 2).sum())
        within, count = 0.0, 0
        for group in np.unique(at):
            part = own[at == group]
            within += float(((part - part.mean(0)) ** 2).sum())
            count += 1
        if total <= least or len(rows) <= count:
            return math.nan
        return 1 - within / total * (len(rows) - 1) / (len(rows) - count)

    rows = np.column_stack([coded, groups])
    return _over_units(epsilon, rows, [units[n] for n in kept])


# For categories, the sums of squares are added over indicators, one for each category.
def _code(answers: Sequence[str | float]) -> FloatArray:
    if not any(isinstance(answer, str) for answer in answers):
        return np.asarray(answers, float)[:, None]
    categories = sorted({str(answer) for answer in answers})
    return np.array([[str(answer) == name for name in categories] for answer in answers], float)


def _rounding_of_squares(rows: FloatArray) -> float:
    # Sums of squares up to this are rounding errors.
    return (ROUNDING * max(1.0, float(np.abs(rows).max(initial=0.0)))) ** 2


def _over_units(
    statistic: Callable[[FloatArray], float], rows: FloatArray, units: Sequence[Hashable]
) -> Estimate:
    # `rows` (n, m): what the statistic reads, one row for each participant.
    names: dict[Hashable, int] = {}
    at = np.array([names.setdefault(unit, len(names)) for unit in units])
    whole = float(statistic(rows)) if len(at) > 1 else math.nan
    low = high = math.nan
    kinds = _equal_units(rows, at)
    # Without variance within, −log(1 − 1) is infinite, and there is nothing to estimate. Units that
    # are all alike do not vary, so there is no error to estimate.
    if (
        len(names) >= FEWEST_UNITS
        and math.isfinite(whole)
        and whole < 1
        and len({_shares_of_rows(unit_rows) for unit_rows in kinds}) > 1
    ):
        without = [float(statistic(rows[at != equal_units[0]])) for equal_units in kinds.values()]
        if all(math.isfinite(value) and value < 1 for value in without):
            middle, error = jackknife(
                -math.log1p(-whole), -np.log1p(-np.asarray(without)), [*map(len, kinds.values())]
            )
            # Unlike units may count alike, such as those that are mirror images of each other.
            if error > ROUNDING:
                reach = student_quantile(0.975, len(names) - 1) * error
                low, high = -math.expm1(-(middle - reach)), -math.expm1(-(middle + reach))
    return Estimate(whole, low, high, len(at), len(names), method="jackknife")


def _equal_units(rows: FloatArray, at: NDArray[np.int64]) -> dict[tuple[int, ...], list[int]]:
    # Lists of units with equal rows, by the sorted numbers of these rows. The statistic without one
    # of them is that without another, so it is computed once for each list: thousands of
    # participants give few different answers.
    numbers = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    rows_of_unit: dict[int, list[int]] = defaultdict(list)
    for unit, number in zip(at.tolist(), numbers.tolist(), strict=True):
        rows_of_unit[unit].append(number)
    kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for unit, unit_rows in rows_of_unit.items():
        kinds[tuple(sorted(unit_rows))].append(unit)
    return kinds


def _shares_of_rows(unit_rows: tuple[int, ...]) -> frozenset[tuple[int, int]]:
    # How often a unit has each row, in the smallest whole numbers, so that they are equal for units
    # of different size with equal shares.
    counts = Counter(unit_rows)
    divisor = math.gcd(*counts.values())
    return frozenset((row, count // divisor) for row, count in counts.items())


def quartile_groups(numbers: ArrayLike) -> list[str]:
    """Return the quarter to which each number belongs, such as "quarter 1" for low numbers."""
    values = np.asarray(numbers, float)
    cuts = np.unique(np.quantile(values, [0.25, 0.5, 0.75]))
    return [f"quarter {1 + place}" for place in np.searchsorted(cuts, values, side="left")]
