"""`Estimate`, the result type of all measures, and functions that format estimates as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

# The level of every test.
ALPHA = 0.05
# The normal quantile of a two-sided interval with the level `1 - ALPHA`. It is written out, because
# importing SciPy takes time.
NORMAL_QUANTILE = 1.959963984540054
# Larger p-values are printed as larger than this.
MOST_PRINTED_P = 0.99
# Fewer independent units are shown as single values, without interval or test.
FEWEST_UNITS = 5
# A standard error or a spread up to this, relative to values above 1, is a rounding error. If all
# units are alike, it is seldom exactly 0: the mean of three shares of 1/3 need not be 1/3.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval."""

    value: float
    # The bounds, or NaN if there is no interval (`low`, `high`).
    low: float
    high: float
    # The number of averaged values.
    n: int
    # The number of independent groups of values, or 0 if each value is independent. For a
    # difference of shares it is set only if a condition has fewer than five units.
    clusters: int = 0
    # The two-sided p-value against no effect, by the same method as the interval, or NaN.
    p: float = math.nan
    # The name of the method of the interval.
    method: str = ""
    # The values of the independent units if there are fewer than five.
    each: tuple[float, ...] = ()
    # The reason if there is no interval despite five or more units.
    why: str = ""

    @property
    def unit_count(self) -> int:
        """The number of independent units."""
        return self.clusters or self.n

    @property
    def has_interval(self) -> bool:
        """True if the estimate has an interval. Estimates from fewer than five units have none."""
        enough = self.unit_count >= FEWEST_UNITS
        return enough and math.isfinite(self.low) and math.isfinite(self.high)

    def clip_bounds(self, least: float, most: float) -> Self:
        """Return the estimate with an interval that is cut off at `least` and `most`.

        Bounds of the interval that are NaN stay NaN.
        """
        if not self.has_interval:
            return self
        return replace(self, low=max(least, self.low), high=min(most, self.high))

    @property
    def excludes_zero(self) -> bool:
        """True if the whole interval is on one side of zero."""
        return self.has_interval and (self.low > 0 or self.high < 0)


def jackknife(whole: float, without: ArrayLike, times: ArrayLike) -> tuple[float, float]:
    """Compute a bias-corrected value and its standard error with the jackknife.

    - `whole`: the value from all units.
    - `without`: for each kind of unit, the value without one unit of this kind, shape (m,).
    - `times`: the number of units of each kind, shape (m,).

    Sources: Quenouille (1956), doi:10.1093/biomet/43.3-4.353. Tukey (1958).
    """
    # Units with equal data form m kinds.
    values, weights = np.asarray(without, float), np.asarray(times, float)
    n = weights.sum()
    mean = float(weights @ values / n)
    variance = (n - 1) / n * float(weights @ (values - mean) ** 2)
    return n * whole - (n - 1) * mean, math.sqrt(variance)


def varies(values: ArrayLike) -> bool:
    """Return whether numbers, or the rows of a table, differ by more than rounding errors."""
    x = np.asarray(values, float)
    if not x.size:
        return False
    rounding = ROUNDING * np.maximum(1.0, np.abs(x).max(axis=0))
    return bool((np.ptp(x, axis=0) > rounding).any())


def difference_or_none(first: float | None, second: float | None) -> float | None:
    """Return `first` minus `second`, or None if one of them is missing."""
    return None if first is None or second is None else first - second


def finite_or_none(number: float) -> float | None:
    """Return the number for a table cell, or None if it is not finite."""
    return number if math.isfinite(number) else None


def round_half_away(value: float, digits: int) -> float:
    """Round a number for readers. Ties are rounded away from zero, as readers do.

    round_half_away(12.5)  # 13.0
    """
    # Python rounds ties to even. A computed number misses a tie by the errors of floats.
    tolerance = math.copysign(1e-9 * 10.0**-digits, value)
    # Adding 0.0 turns −0.0 into 0.0, which gets no sign.
    return round(value + tolerance, digits) + 0.0


def format_percent(share: float, digits: int = 0) -> str:
    """Format a share in percent.

    format_percent(0.159)  # "16 %"
    """
    # Only a share that is 0 or 1 is shown as 0 % or 100 %: 399 of 400 are 99.8 %. Shares below 1 %
    # have at least one digit.
    if not math.isfinite(share):
        return "unknown"
    percent = 100 * share
    # Floats that are this close to 0 or 1 differ from it only by the errors of a computation.
    is_exact = any(math.isclose(share, whole, abs_tol=1e-9) for whole in (0.0, 1.0))
    if abs(share) < 0.0095 and not is_exact:
        digits = max(digits, 1)
    while not is_exact and round_half_away(percent, digits) in (0.0, 100.0):
        digits += 1
    return f"{round_half_away(percent, digits):.{digits}f} %"


def share_digits(n: int) -> int:
    """Return with how many decimals a percentage of n values is printed."""
    # One value more or less moves a percentage of 200 values by half a point.
    return 1 if n >= 200 else 0


def format_points(difference: float, digits: int = 0) -> str:
    """Format a difference between shares in percentage points.

    format_points(0.123)  # "+12 points"
    """
    if not math.isfinite(difference):
        return "an unknown number of points"
    rounded = round_half_away(100 * difference, digits)
    text = f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", "−")
    return f"{text if rounded else 0} point{'' if abs(rounded) == 1 else 's'}"


def format_signed(value: float | None, digits: int = 2) -> str:
    """Return a difference with its sign and `digits` decimals, or "unknown".

    format_signed(-0.301)  # "−0.30"
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    rounded = round_half_away(value, digits)
    return f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", "−")


def points_span(low: float, high: float, margin: float = 0.0) -> str:
    """Format the interval of a difference between shares in percentage points.

        points_span(-0.06, 0.02)  # "−6 to +2"

    - `margin`: both ends get more decimals if an end would otherwise be rounded to ± this value.
    """
    # If rounding would make an end equal to the margin or to zero, both ends get more digits, as in
    # "+0.3 to +20.0".
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    digits = needed_digits((100 * low, 100 * high), 100 * margin)
    return " to ".join(format_points(end, digits).rpartition(" ")[0] for end in (low, high))


def needed_digits(ends: Iterable[float], margin: float = 0.0, fewest: int = 0) -> int:
    """Return how many decimals are needed so that no end of an interval is rounded to zero.

    - `margin`: no end may be rounded to ± this value either.
    - `fewest`: the minimum number of decimals.
    """
    # The result is at most two more than `fewest`.
    pairs = [(end, bound) for end in ends for bound in (0.0, margin, -margin)]
    near = [pair for pair in pairs if not math.isclose(*pair, abs_tol=1e-9)]
    return next(
        (
            digits
            for digits in (fewest, fewest + 1)
            if all(
                round_half_away(end, digits) != round_half_away(bound, digits)
                for end, bound in near
            )
        ),
        fewest + 2,
    )


def format_span(low: float, high: float, digits: int = 0) -> str:
    """Format the interval of a share in percent.

    format_span(0.28, 0.39)  # "28 to 39 %"
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"{format_percent(low, digits).removesuffix(' %')} to {format_percent(high, digits)}"


def format_p_value(p: float) -> str:
    """Return a p-value as text: "p < .001", "p = .043", or "p not computed" for NaN.

    The largest p-values are "p > .99", because 1 would mean certainty.
    """
    if not math.isfinite(p):
        return "p not computed"
    if p < 0.001:
        return "p < .001"
    return f"p = {format_p_digits(p)}" if p <= MOST_PRINTED_P else "p > .99"


def format_p_digits(p: float) -> str:
    """Return a p-value from .001 on as digits, such as ".043"."""
    digits = 3
    # A p-value of .0498 printed as .050 would contradict a verdict beside it.
    while p < ALPHA <= round(p, digits):
        digits += 1
    return f"{p:.{digits}f}".removeprefix("0")


def format_dollars(cost: float | None) -> str:
    """Return a cost in USD as text.

        format_dollars(1234.5)  # "$1,234.50"

    None gives "cost unknown".
    """
    # Costs below one cent have four decimals.
    if cost is None:
        return "cost unknown"
    return f"${cost:,.2f}" if cost >= 0.01 else f"${cost:.4f}" if cost else "$0"


def format_count(n: int, one: str, many: str | None = None) -> str:
    """Return a count and a noun as text.

        format_count(2, "vote")  # "2 votes"

    - `one`, `many`: the singular and the plural of the noun. By default, the plural adds an "s".
    """
    return f"{n:,} {one if n == 1 else (many or one + 's')}"
