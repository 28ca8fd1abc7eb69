"""How far a group stands in opposing camps, for options on a line or at known distances."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.measures.diversity import shares


def esteban_ray(counts: ArrayLike, positions: ArrayLike | None = None, alpha: float = 1.0) -> float:
    """Esteban and Ray's polarisation, K = 1: Σ_i Σ_j p_i^(1+α) p_j |y_i − y_j|.

    `counts` (k,) of people at `positions`: (k,) on a line, or (k, k) distances between options.
    Without positions all options lie at distance 1 (nominal choices). `alpha` in (0, 1.6] weighs
    identification within camps. Largest for two equal camps at the extremes (.25 for α = 1, unit
    distance); 0 when all agree.
    Esteban and Ray (1994), doi:10.2307/2951734.
    """
    if not 0 < alpha <= 1.6:
        raise ValueError(f"alpha must be in (0, 1.6], got {alpha}")
    p = shares(counts)
    distances = _distances(len(p), positions)
    return float(((p ** (1 + alpha))[:, None] * p[None, :] * distances).sum())


def _distances(k: int, positions: ArrayLike | None) -> np.ndarray:
    if positions is None:
        return 1.0 - np.eye(k)
    y = np.asarray(positions, float)
    distances = np.abs(y[:, None] - y[None, :]) if y.ndim == 1 else y
    if distances.shape != (k, k):
        raise ValueError(f"{k} counts but positions of shape {y.shape}")
    return distances


def van_der_eijk(counts: ArrayLike) -> float:
    """Van der Eijk's coefficient of agreement A for an ordered scale, in [−1, 1].

    1: all in one category; 0: evenly spread; −1: half at each end. The distribution (k,) is cut
    into layers with the same people in each non-empty category; a layer with S of k categories
    has agreement U · (1 − (S − 1)/(k − 1)), where U compares triples of categories that are
    unimodal (TU) with those that are not (TDU): ((k − 2) TU − (k − 1) TDU) / ((k − 2)(TU + TDU)).
    A is the mean of the layers by their weight. Needs k ≥ 3 categories for U; with two, A is
    1 − 2 min(p).
    Van der Eijk (2001), doi:10.1023/A:1010374114305.
    """
    p = shares(counts)
    if len(p) == 1:
        return 1.0
    if len(p) == 2:
        return float(1 - 2 * p.min())
    left, agreement = p.copy(), 0.0
    while (pattern := left > 1e-12).any():
        depth = left[pattern].min()
        agreement += depth * pattern.sum() * _layer_agreement(pattern)
        left = np.where(pattern, left - depth, 0.0)
    return float(agreement)


def _layer_agreement(pattern: np.ndarray) -> float:
    """A of a layer: `pattern` (k,) says which categories are non-empty."""
    k, size = len(pattern), int(pattern.sum())
    if size in (1, k):
        return 1.0 if size == 1 else 0.0
    unimodal = bimodal = 0
    for i in range(k - 2):
        for j in range(i + 1, k - 1):
            for m in range(j + 1, k):
                triple = (bool(pattern[i]), bool(pattern[j]), bool(pattern[m]))
                # 110 and 011 support agreement, 101 denies it; the rest says nothing.
                unimodal += triple in ((True, True, False), (False, True, True))
                bimodal += triple == (True, False, True)
    u = ((k - 2) * unimodal - (k - 1) * bimodal) / ((k - 2) * (unimodal + bimodal))
    return float(u * (1 - (size - 1) / (k - 1)))


def polarisation(counts: ArrayLike) -> float:
    """(1 − A) / 2 with A of `van_der_eijk`, in [0, 1]: 0 all agree, .5 even, 1 two camps."""
    return (1 - van_der_eijk(counts)) / 2
