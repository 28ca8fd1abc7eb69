"""How much people differ, before and after, and the flag for populations that differ too little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.measures.diversity import effective_number


@dataclass(frozen=True, slots=True)
class SpreadRatio:
    """Ratio of standard deviations after to before, over items: median and quartiles.

    `items`: items with any spread before; the others have no ratio.
    """

    median: float
    low: float
    high: float
    items: int


def sd_ratio(before: ArrayLike, after: ArrayLike) -> SpreadRatio:
    """Item by item, the standard deviation (n − 1) after over that before.

    `before`, `after`: (people, items) or (people,); NaN is left out item by item. Below 1 people
    have come closer together.
    """
    first, second = _table(before), _table(after)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"{first.shape[1]} items before, {second.shape[1]} after")
    ratios = []
    for item_before, item_after in zip(first.T, second.T, strict=True):
        a, b = item_before[np.isfinite(item_before)], item_after[np.isfinite(item_after)]
        if len(a) > 1 and len(b) > 1 and a.std(ddof=1) > 0:
            ratios.append(b.std(ddof=1) / a.std(ddof=1))
    if not ratios:
        return SpreadRatio(math.nan, math.nan, math.nan, 0)
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return SpreadRatio(float(median), float(low), float(high), len(ratios))


def effective_number_ratio(before: ArrayLike, after: ArrayLike) -> float:
    """The effective number of options (order 1) after over that before, from counts (k,)."""
    return effective_number(after) / effective_number(before)


def pre_post_correlation(before: ArrayLike, after: ArrayLike) -> float:
    """Pearson's r of the same people's answers (n,) before and after; NaN without spread."""
    a, b = np.asarray(before, float), np.asarray(after, float)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _table(values: ArrayLike) -> np.ndarray:
    x = np.asarray(values, float)
    return x[:, None] if x.ndim == 1 else x
