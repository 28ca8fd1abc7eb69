"""Raking: a table of counts is scaled until all the margins hold that are published of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROUNDS = 100
CLOSE = 1e-7


@dataclass(frozen=True, slots=True)
class RakingMargin:
    """What a table must sum to: `wanted` over `axes`, in this order, sums to 1.

    `within` (axis → slice) says which part of the table it is about; `groups` (axis → group of each
    level) merges levels: all degrees, say.
    """

    name: str
    axes: tuple[int, ...]
    wanted: Array
    within: Mapping[int, slice] = field(default_factory=dict)
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def table_part(self, table: Array) -> Array:
        """The part of a table that the margin is about (a view)."""
        cut = tuple(self.within.get(axis, slice(None)) for axis in range(table.ndim))
        part: Array = table[cut]
        return part

    def observed_margin(self, table: Array) -> Array:
        """The margin as the table has it."""
        part = self.table_part(table)
        sums = part.sum(axis=tuple(a for a in range(table.ndim) if a not in self.axes))
        sums = np.transpose(sums, np.argsort(np.argsort(self.axes)))
        for place, axis in enumerate(self.axes):
            if axis in self.groups:
                levels = np.array(self.groups[axis])
                each = [
                    sums.compress(levels == group, place).sum(place) for group in sorted({*levels})
                ]
                sums = np.stack(each, axis=place)
        result: Array = sums / max(sums.sum(), 1e-300)
        return result

    def fit_table(self, table: Array) -> None:
        """Scale the table's cells so that the margin holds; what the part weighs stays."""
        found = self.observed_margin(table)
        factors = np.divide(self.wanted, found, out=np.zeros_like(found), where=found > 0)
        for place, axis in enumerate(self.axes):
            if axis in self.groups:
                factors = factors.take(self.groups[axis], axis=place)
        part = self.table_part(table)
        total = part.sum()
        shape = [name if axis in self.axes else 1 for axis, name in enumerate(part.shape)]
        part *= np.transpose(factors, np.argsort(self.axes)).reshape(shape)
        part *= total / max(part.sum(), 1e-300)


def rake_table(seed: Array, margins: Sequence[RakingMargin]) -> Array:
    """The table nearest to the seed (in relative entropy) that has all margins: iterative
    proportional fitting (Deming and Stephan 1940). Sums to 1.

    Where margins contradict each other the last ones hold; `RakingMargin.observed_margin` shows how
    near the others come.
    """
    table = seed / seed.sum()
    for _ in range(ROUNDS):
        before = table.copy()
        for margin in margins:
            margin.fit_table(table)
        if np.abs(table - before).sum() < CLOSE:
            break
    shares: Array = table / table.sum()
    return shares
