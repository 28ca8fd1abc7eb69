"""Main effects of switches that are on or off, and how far one changes another's effect.

Studies use it where arms combine the same switches; each effect is an average over all arms.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_coefficient
from folkmoot.measures.inference.estimates import Estimate

Key = tuple[str, ...]  # of a column: nothing for the constant, one switch, or two


@dataclass(frozen=True, slots=True)
class Effects:
    """`main`: switch → on minus off, averaged over the other switches. `pairs`: two switches → the
    effect of one where the other is on, minus where it is off. What the arms cannot tell apart is
    left out; a pair that is left out is taken to be zero."""

    main: Mapping[str, Estimate]
    pairs: Mapping[tuple[str, str], Estimate]


def factorial(
    outcome: ArrayLike, switches: Mapping[str, Sequence[bool]], clusters: Sequence[Hashable]
) -> Effects:
    """Effects of `switches` (name → n truth values) on `outcome` (n,), errors clustered by
    `clusters` (n,): one per unit where units are independent.

    Least squares on switches coded −½ and ½ and their products, so that a coefficient is a
    difference in the outcome's own scale and a product's the difference of two differences. A
    column stays only if no others add up to it. Interactions of three are taken to be zero. t with
    G − 1 df, see `clustered_coefficient`.
    """
    y = np.asarray(outcome, float)
    coded = {name: np.asarray(on, float) - 0.5 for name, on in switches.items()}
    products = list(combinations(coded, 2))
    everything: dict[Key, NDArray[np.float64]] = {(): np.ones(len(y))}
    everything |= {(name,): x for name, x in coded.items()}
    everything |= {(a, b): coded[a] * coded[b] for a, b in products}
    full = _told_apart(everything, products)
    kept = {key: x for key, x in everything.items() if len(key) < 2 or key in full}
    mains = _told_apart(kept, [(name,) for name in coded])
    design = np.column_stack([*kept.values()])
    found = {
        key: clustered_coefficient(y, design, column, clusters)
        for column, key in enumerate(kept)
        if key in mains or key in full
    }
    return Effects(
        {name: found[name,] for name in coded if (name,) in found},
        {(a, b): found[a, b] for a, b in products if (a, b) in found},
    )


def _told_apart(columns: Mapping[Key, NDArray[np.float64]], asked: Sequence[Key]) -> set[Key]:
    """Which of the columns asked about no others add up to."""
    rank = np.linalg.matrix_rank(np.column_stack([*columns.values()]))

    def rank_without(key: Key) -> int:
        rest = [x for other, x in columns.items() if other != key]
        return int(np.linalg.matrix_rank(np.column_stack(rest)))

    return {key for key in asked if rank_without(key) < rank}
