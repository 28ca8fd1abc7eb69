"""Repeated answers of one participant: their agreement, and changes larger than retest noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.agreement import correlation_with_oneself, kappa_of_possible
from folkmoot.measures.inference.estimates import Estimate

# Random swaps for a p-value. The smallest p is 1/2001.
SWAPS = 2000


@dataclass(frozen=True, slots=True)
class Repeat:
    """Two answers of one participant to one question."""

    # Both are options or both are numbers.

    # The unit of analysis, a participant or a group that talked between the answers.
    unit: Hashable
    question: Hashable
    first: str | float
    last: str | float
    # True if the participant read and heard nothing between the answers.
    untouched: bool = False
    # How often the participant was asked the question. With more than two askings, each pair of
    # answers is a separate `Repeat`.
    askings: float = 2.0

    @property
    def is_choice(self) -> bool:
        """True if the answers are options, and False if they are numbers."""
        return isinstance(self.first, str)


def agreement_with_oneself(repeats: Collection[Repeat]) -> Estimate:
    """Return how far two answers of one participant agree beyond chance.

    - `repeats`: the pairs of answers. All answers are choices, or all are numbers.
    """
    # κ for choices (`kappa_of_possible`) and r for numbers (`correlation_with_oneself`).
    columns = [(r.first, r.last, r.question, r.unit) for r in repeats]
    first, last, questions, units = (list(part) for part in zip(*columns, strict=True))
    if isinstance(first[0], str):
        return kappa_of_possible(first, last, questions, units)
    askings = math.fsum(r.askings for r in repeats) / len(repeats)
    return correlation_with_oneself(first, last, questions, units, askings)


def mean_spread(groups: Sequence[ArrayLike]) -> float:
    """Return the mean of the groups' standard deviations, or NaN if there are no groups."""
    spreads = [np.std(np.asarray(values, dtype=float), ddof=1) for values in groups]
    return float(np.mean(spreads)) if spreads else math.nan


def convergence_p(
    retest: Sequence[ArrayLike], after: Sequence[ArrayLike], rng: np.random.Generator
) -> float:
    """Return the p-value of convergence: answers spread less after the conversation than before.

    - `retest`: for each group the answers to a retest before the conversation.
    - `after`: for each group the answers of the same participants after the conversation.
    - `rng`: selects at random for which participants the two answers are swapped.

    The result is 1 if all participants give the same answer twice, and NaN if there are no groups.
    """
    pairs = [_centred_values(before, end) for before, end in zip(retest, after, strict=True)]
    if not pairs:
        return math.nan
    if all(np.allclose(before, end) for before, end in pairs):
        return 1.0
    # If the conversation had no effect, the two answers of a participant can be swapped. The mean
    # of each group is already subtracted, because a move that all members share is no convergence.
    observed = mean_spread([end for _, end in pairs])
    spread = np.zeros(SWAPS)
    for before, end in pairs:
        swapped = np.where(rng.random((SWAPS, len(end))) < 0.5, before, end)
        spread += swapped.std(axis=1, ddof=1) / len(pairs)
    # The observed order counts as one of the swaps. The margin absorbs rounding of sums.
    return (int((spread <= observed + 1e-12).sum()) + 1) / (SWAPS + 1)


def _centred_values(
    before: ArrayLike, end: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, last = np.asarray(before, dtype=float), np.asarray(end, dtype=float)
    return first - first.mean(), last - last.mean()
