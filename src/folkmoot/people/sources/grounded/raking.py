"""Raking: scale a table of counts until its shares agree with all published shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Rounds at most, and the total change of a round below which the table has converged.
MAX_ROUNDS = 100
CONVERGED_CHANGE = 1e-7


@dataclass(frozen=True, slots=True)
class RakingMargin:
    """Published shares, such as shares by sex and age, to which a table is fitted."""

    name: str
    axes: tuple[int, ...]
    # The shares over `axes`, in this order, with the sum 1.
    wanted: Array
    # Limits the margin to a slice of an axis, such as the employed.
    within: Mapping[int, slice] = field(default_factory=dict)
    # For each level of an axis the number of its group, if the margin merges levels (for example
    # all degrees).
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def table_part(self, table: Array) -> Array:
        """Return the part of a table that the published shares describe."""
        cut = tuple(self.within.get(axis, slice(None)) for axis in range(table.ndim))
        part: Array = table[cut]
        return part

    def observed_margin(self, table: Array) -> Array:
        """Return the shares in a table that correspond to the published shares."""
        part = self.table_part(table)
        sums = part.sum(
            axis=tuple(
                other_axis for other_axis in range(table.ndim) if other_axis not in self.axes
            )
        )
        # The sum keeps the axes in the order of the table. `axes` may have another order.
        sums = np.transpose(sums, np.argsort(np.argsort(self.axes)))
        for position, axis in enumerate(self.axes):
            if axis in self.groups:
                levels = np.array(self.groups[axis])
                group_sums = [
                    sums.compress(levels == group, position).sum(position)
                    for group in sorted({*levels})
                ]
                sums = np.stack(group_sums, axis=position)
        result: Array = sums / max(sums.sum(), 1e-300)
        return result

    def fit_table(self, table: Array) -> None:
        """Scale a table in place, so that the shares agree with the published shares."""
        # The sum of `table_part` stays the same.
        observed = self.observed_margin(table)
        factors = np.divide(self.wanted, observed, out=np.zeros_like(observed), where=observed > 0)
        for position, axis in enumerate(self.axes):
            if axis in self.groups:
                factors = factors.take(self.groups[axis], axis=position)
        part = self.table_part(table)
        total = part.sum()
        shape = [size if axis in self.axes else 1 for axis, size in enumerate(part.shape)]
        part *= np.transpose(factors, np.argsort(self.axes)).reshape(shape)
        # Cells with a zero in the table cannot reach their target, so restore the sum of the part.
        part *= total / max(part.sum(), 1e-300)


def rake_table(seed: Array, margins: Sequence[RakingMargin]) -> Array:
    """Return a copy of `seed`, scaled until it has all published shares. The copy sums to 1."""
    # Iterative proportional fitting (Deming and Stephan 1940). If margins contradict each other,
    # the last margins hold exactly. `RakingMargin.observed_margin` shows how close the table is to
    # the other margins.
    table = seed / seed.sum()
    for _ in range(MAX_ROUNDS):
        before = table.copy()
        for margin in margins:
            margin.fit_table(table)
        if np.abs(table - before).sum() < CONVERGED_CHANGE:
            break
    shares: Array = table / table.sum()
    return shares
