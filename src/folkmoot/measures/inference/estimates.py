"""The estimate with its interval that all measures share, and words for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 0.05  # level of every test
FEWEST_UNITS = 5  # independent units; fewer are shown one by one, without interval or test


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval.

    `low` and `high` are NaN where no interval can be had (fewer than five clusters, say). `n`
    counts what was averaged, `clusters` the independent groups that it came in (0: each is
    independent); of a difference of shares, the people of a side that has fewer than five. `p` is
    the two-sided p-value against no effect by the same method as the interval, NaN where none was
    computed. `method` names the interval. `each` holds the independent units' own
    values where there are fewer than five of them. `why` says why five units or more have no
    interval, where a method refuses.
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int = 0
    p: float = math.nan
    method: str = ""
    each: tuple[float, ...] = ()
    why: str = ""

    @property
    def unit_count(self) -> int:
        """How many independent units there are."""
        return self.clusters or self.n

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval that may be shown: never with fewer than five units."""
        enough = self.unit_count >= FEWEST_UNITS
        return enough and math.isfinite(self.low) and math.isfinite(self.high)

    def clip_bounds(self, least: float, most: float) -> Self:
        """The same with bounds that go no further than the value itself can; unknown ones stay
        unknown."""
        if not self.has_interval:
            return self
        return replace(self, low=max(least, self.low), high=min(most, self.high))

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of zero."""
        return self.has_interval and (self.low > 0 or self.high < 0)


def jackknife(whole: float, without: ArrayLike, times: ArrayLike) -> tuple[float, float]:
    """The value less its bias in small samples, and its standard error.

    `whole`: the value of all units; `without` (m,): the value without one unit of each kind;
    `times` (m,): how many units are of that kind.
    Quenouille (1956), doi:10.1093/biomet/43.3-4.353; Tukey (1958).
    """
    values, weights = np.asarray(without, float), np.asarray(times, float)
    n = weights.sum()
    mean = float(weights @ values / n)
    variance = (n - 1) / n * float(weights @ (values - mean) ** 2)
    return n * whole - (n - 1) * mean, math.sqrt(variance)


def finite_or_none(number: float) -> float | None:
    """The number as a cell: None where it isn't finite."""
    return number if math.isfinite(number) else None


def format_percent(share: float, digits: int = 0) -> str:
    """0.159 → "16 %"; small shares keep a digit so that 0.4 % does not read as nothing."""
    if not math.isfinite(share):
        return "unknown"
    if 0 < abs(share) < 0.0095:
        digits = max(digits, 1)
    return f"{100 * share:.{digits}f} %"


def format_points(difference: float, digits: int = 0) -> str:
    """0.123 → "+12 points"; with one digit "+12.3 points"."""
    if not math.isfinite(difference):
        return "an unknown number of points"
    # Ties away from zero, as readers round: 12.5 is 13, and 35.0 less 12.5 is 23.
    rounded = round(100 * difference + math.copysign(1e-9, difference), digits)
    told = f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", "−")
    return f"{told if rounded else 0} point{'' if abs(rounded) == 1 else 's'}"


def points_span(low: float, high: float) -> str:
    """(−0.06, 0.02) → "−6 to +2"."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"{_format_signed(round(100 * low))} to {_format_signed(round(100 * high))}"


def format_span(low: float, high: float) -> str:
    """(0.28, 0.39) → "28 to 39 %"."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"{format_percent(low).removesuffix(' %')} to {format_percent(high)}"


def _format_signed(whole: int) -> str:
    return f"{whole:+d}".replace("-", "−") if whole else "0"


def format_p_value(p: float) -> str:
    """How a p-value is printed: "p < .001", "p = .043"; "p not computed" for NaN."""
    if not math.isfinite(p):
        return "p not computed"
    if p < 0.001:
        return "p < .001"
    return f"p = {p:.3f}".replace("0.", ".", 1) if p < 1 else "p = 1"


def format_dollars(cost: float | None) -> str:
    """1234.5 → "$1,234.50"; below a cent four decimals; None → "cost unknown"."""
    if cost is None:
        return "cost unknown"
    return f"${cost:,.2f}" if cost >= 0.01 else f"${cost:.4f}" if cost else "$0"


def format_count(n: int, one: str, many: str | None = None) -> str:
    """1, "vote" → "1 vote"; 2 → "2 votes"."""
    return f"{n:,} {one if n == 1 else (many or one + 's')}"
