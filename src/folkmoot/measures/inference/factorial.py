"""Main effects and two-way interactions of on/off factors.

Each condition of a study switches every factor on or off.
"""

# Each effect is an average over all conditions.

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkmoot.measures.inference.clustered import clustered_coefficient
from folkmoot.measures.inference.estimates import Estimate

# Identifies a column: empty for the constant, one factor, or two factors.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """Estimated effects of on/off factors, made by `factorial`."""

    # For each factor, the mean with the factor on minus the mean with it off, averaged over the
    # other factors.
    main: Mapping[str, Estimate]
    # For (a, b), the effect of factor a while b is on, minus its effect while b is off. Effects
    # that the conditions do not identify are left out.
    pairs: Mapping[tuple[str, str], Estimate]


def factorial(
    outcome: ArrayLike, switches: Mapping[str, Sequence[bool]], clusters: Sequence[Hashable]
) -> Effects:
    """Return the effect of each on/off factor on an outcome, and the interactions of factor pairs.

    - `outcome`: numbers, shape (n,).
    - `switches`: for each factor, n truth values: was the factor on?
    - `clusters`: the independent unit of each outcome, shape (n,).

    Effects that the data cannot separate are left out.
    """
    # Interactions of three factors are assumed to be zero.
    y = np.asarray(outcome, float)
    # Factors are coded −½ and ½. So the coefficient of a factor is a difference of means, and that
    # of a product is a difference of two differences.
    coded = {name: np.asarray(on, float) - 0.5 for name, on in switches.items()}
    products = list(combinations(coded, 2))
    everything: dict[Key, NDArray[np.float64]] = {(): np.ones(len(y))}
    everything |= {(name,): x for name, x in coded.items()}
    everything |= {(a, b): coded[a] * coded[b] for a, b in products}
    # Drop interactions first. Main effects are then checked against the remaining columns.
    full = _independent_columns(everything, products)
    kept = {key: x for key, x in everything.items() if len(key) < 2 or key in full}
    mains = _independent_columns(kept, [(name,) for name in coded])
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


def _independent_columns(
    columns: Mapping[Key, NDArray[np.float64]], asked: Sequence[Key]
) -> set[Key]:
    rank = np.linalg.matrix_rank(np.column_stack([*columns.values()]))

    def rank_without(key: Key) -> int:
        rest = [x for other, x in columns.items() if other != key]
        return int(np.linalg.matrix_rank(np.column_stack(rest)))

    return {key for key in asked if rank_without(key) < rank}
