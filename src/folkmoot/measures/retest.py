"""Tests of movement against a retest: is the answer afterwards more than another asking?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SWAPS = 2000


def mean_spread(groups: Sequence[ArrayLike]) -> float:
    """The mean of the groups' standard deviations (each n - 1); NaN without a group."""
    spreads = [np.std(np.asarray(values, dtype=float), ddof=1) for values in groups]
    return float(np.mean(spreads)) if spreads else math.nan


def convergence_p(
    retest: Sequence[ArrayLike], after: Sequence[ArrayLike], rng: np.random.Generator
) -> float:
    """The chance that another asking alone would leave the groups as close together as they ended.

    Args:
        retest: for each group the answers (people,) of a second asking before the talk
        after: for each group the answers (people,) of the same people after it
        rng: draws the swaps

    If nothing happened, the two answers of a person are two draws of one and the same, so they can
    be swapped. The means of each group are taken off first: a move that all make alike is no
    convergence. Returns the share of swaps that leave the mean spread as small or smaller, one if
    no two answers differ, and NaN without a group.
    """
    pairs = [_centred(before, end) for before, end in zip(retest, after, strict=True)]
    if not pairs:
        return math.nan
    if all(np.allclose(before, end) for before, end in pairs):
        return 1.0
    observed = mean_spread([end for _, end in pairs])
    spread = np.zeros(SWAPS)
    for before, end in pairs:
        swapped = np.where(rng.random((SWAPS, len(end))) < 0.5, before, end)
        spread += swapped.std(axis=1, ddof=1) / len(pairs)
    # The order as it was counts as one of the swaps; the margin is for rounding of sums.
    return (int((spread <= observed + 1e-12).sum()) + 1) / (SWAPS + 1)


def _centred(before: ArrayLike, end: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, last = np.asarray(before, dtype=float), np.asarray(end, dtype=float)
    return first - first.mean(), last - last.mean()
