"""How spread answers are over options, and how far two distributions lie apart.

All functions take counts or shares (k,) of options and normalise them; logarithms are of base 2
unless said otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def shares(counts: ArrayLike) -> FloatArray:
    """Counts (k,) as shares that sum to 1. Raises ValueError for negative or all-zero counts."""
    p = np.asarray(counts, float)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ValueError(f"no distribution: {counts!r}")
    normalised: FloatArray = p / p.sum()
    return normalised


def entropy(counts: ArrayLike, base: float = 2.0) -> float:
    """Shannon entropy −Σ p log p, in bits for base 2; 0 when all agree, log k when evenly split.

    Shannon (1948), doi:10.1002/j.1538-7305.1948.tb01338.x; computed by scipy.
    """
    from scipy.stats import entropy as shannon

    return float(shannon(shares(counts), base=base))


def normalised_entropy(counts: ArrayLike) -> float:
    """Entropy over its maximum log k, in [0, 1]; 0 for a single option."""
    k = len(np.asarray(counts, float))
    return entropy(counts) / float(np.log2(k)) if k > 1 else 0.0


def effective_number(counts: ArrayLike, order: float = 1.0) -> float:
    """The effective number of options (Hill number): how many equally liked ones say as much.

    order 1: exp(entropy); order 2: 1 / Σ p² (Laakso and Taagepera's effective number of
    parties); order 0: the options with any vote. Between 1 and k.
    Hill (1973), doi:10.2307/1934352; Laakso and Taagepera (1979), doi:10.1177/001041407901200101.
    """
    p = shares(counts)
    p = p[p > 0]
    if order == 1.0:
        return float(np.exp(-(p * np.log(p)).sum()))
    return float((p**order).sum() ** (1 / (1 - order)))


def jensen_shannon(first: ArrayLike, second: ArrayLike, base: float = 2.0) -> float:
    """Jensen–Shannon divergence H((p+q)/2) − (H(p) + H(q))/2, in [0, 1] for base 2.

    The square of what scipy calls the Jensen–Shannon distance.
    Lin (1991), doi:10.1109/18.61115; computed by scipy.
    """
    from scipy.spatial.distance import jensenshannon

    p, q = _both(first, second)
    return float(jensenshannon(p, q, base=base) ** 2)


def total_variation(first: ArrayLike, second: ArrayLike) -> float:
    """½ Σ |p − q|, in [0, 1]: the least share of people who must differ between the two."""
    p, q = _both(first, second)
    return float(0.5 * np.abs(p - q).sum())


def hellinger(first: ArrayLike, second: ArrayLike) -> float:
    """Hellinger distance ‖√p − √q‖₂ / √2, in [0, 1]."""
    p, q = _both(first, second)
    return float(np.linalg.norm(np.sqrt(p) - np.sqrt(q)) / np.sqrt(2))


def _both(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, q = shares(first), shares(second)
    if p.shape != q.shape:
        raise ValueError(f"distributions over {len(p)} and {len(q)} options")
    return p, q
