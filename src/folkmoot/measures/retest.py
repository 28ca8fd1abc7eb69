"""Answers of one person to one question: do they agree, and is a move more than another asking?"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.agreement import correlation_with_oneself, kappa_of_possible
from folkmoot.measures.inference.estimates import Estimate

SWAPS = 2000


@dataclass(frozen=True, slots=True)
class Repeat:
    """Two answers of one person to one question, both options or both numbers.

    `unit`: what is independent of the others, the person, or those who talked in between.
    `untouched`: the person read and heard nothing in between. `askings`: how often the person was
    asked, where this is one of all pairs of the answers.
    """

    unit: Hashable
    question: Hashable
    first: str | float
    last: str | float
    untouched: bool = False
    askings: float = 2.0

    @property
    def is_choice(self) -> bool:
        return isinstance(self.first, str)


def agreement_with_oneself(repeats: Collection[Repeat]) -> Estimate:
    """How far people agree with themselves beyond chance: κ of choices, r of numbers.

    All of one kind. Both are taken within questions and do not count a shift of all people.
    """
    columns = [(r.first, r.last, r.question, r.unit) for r in repeats]
    first, last, questions, units = (list(part) for part in zip(*columns, strict=True))
    if isinstance(first[0], str):
        return kappa_of_possible(first, last, questions, units)
    askings = sum(r.askings for r in repeats) / len(repeats)
    return correlation_with_oneself(first, last, questions, units, askings)


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
    pairs = [_centred_values(before, end) for before, end in zip(retest, after, strict=True)]
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


def _centred_values(
    before: ArrayLike, end: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, last = np.asarray(before, dtype=float), np.asarray(end, dtype=float)
    return first - first.mean(), last - last.mean()
