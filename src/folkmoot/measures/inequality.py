"""How unevenly something is shared out: speaking time, payoffs, influence."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def gini(amounts: ArrayLike) -> float:
    """The Gini coefficient Σ_i Σ_j |x_i − x_j| / (2 n² x̄) of amounts (n,) ≥ 0.

    0: all have the same; (n − 1)/n: one has all (no small-sample correction). NaN for nothing to
    share out. Raises ValueError for negative amounts.
    Gini (1912), Variabilità e mutabilità; the sorted form is that of Sen (1973).
    """
    x = np.sort(_amounts(amounts))
    if not len(x) or x.sum() == 0:
        return math.nan
    ranks = np.arange(1, len(x) + 1)
    return float((2 * (ranks * x).sum() / (len(x) * x.sum())) - (len(x) + 1) / len(x))


def jain(amounts: ArrayLike) -> float:
    """Jain's index of fairness (Σ x)² / (n Σ x²) of amounts (n,) ≥ 0, from 1/n to 1 (all equal).

    NaN for nothing to share out. Jain, Chiu and Hawe (1984), DEC Research Report TR-301.
    """
    x = _amounts(amounts)
    if not len(x) or x.sum() == 0:
        return math.nan
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def _amounts(amounts: ArrayLike) -> np.ndarray:
    x = np.asarray(amounts, float).ravel()
    if (x < 0).any() or not np.isfinite(x).all():
        raise ValueError("amounts must be finite and not negative")
    return x
