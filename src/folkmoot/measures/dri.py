"""The Deliberative Reason Index: do participants who agree on reasons agree on policies?

Each pair of participants has two correlations, one of reasons and one of policies. A group has a
high index if the two correlations are similar in most pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

# Below this correlation, deliberr treats the agreement of a pair as a weak signal.
_WEAK = 0.2
_HALF = math.sqrt(2) / 2


@dataclass(frozen=True, slots=True)
class Consistency:
    """Two correlations for each of m pairs of participants: of reasons, and of preferences."""

    # The pairs are (i, j) with i < j.

    # Spearman correlation of the considerations of a pair.
    reasons: FloatArray
    # Spearman correlation of the rankings of a pair.
    preferences: FloatArray
    # Number of pairs that are left out. A pair is left out if a participant gave the same answer
    # throughout or left an answer out.
    undefined: int

    @property
    def line_distances(self) -> FloatArray:
        """The distance between the two correlations of each pair of participants, shape (m,)."""
        # |r_reasons − r_preferences| / √2
        distances: FloatArray = np.abs(self.reasons - self.preferences) / math.sqrt(2)
        return distances

    @property
    def signal_weights(self) -> FloatArray:
        """The weight of each pair of participants in the index, from 0 to 1, shape (m,)."""
        # The larger |r|, divided by 0.2.
        strongest = np.maximum(np.abs(self.reasons), np.abs(self.preferences))
        return np.minimum(strongest / _WEAK, 1.0)


def consistency(considerations: ArrayLike, preferences: ArrayLike) -> Consistency:
    """Return two correlations for each pair of participants: of reasons, and of preferences.

    - `considerations`: ratings or ranks of reasons, shape (n, c).
    - `preferences`: ratings or ranks of policies, shape (n, p).

    If a participant's answer is missing, all pairs with this participant are undefined. Raises
    ValueError if the numbers of rows differ.
    """
    # Any scale is possible, because only the order within a participant counts. Ties get mean
    # ranks. Columns without any answer are dropped.
    c, p = _complete_columns(considerations), _complete_columns(preferences)
    if len(c) != len(p):
        raise ValueError(f"considerations of {len(c)} people, preferences of {len(p)}")
    first, second = np.triu_indices(len(c), 1)
    reasons = _spearman_rows(c)[first, second]
    prefs = _spearman_rows(p)[first, second]
    known = np.isfinite(reasons) & np.isfinite(prefs)
    return Consistency(reasons[known], prefs[known], int((~known).sum()))


def group_dri(pairs: Consistency, *, adjusted: bool = True) -> float:
    """Return the Deliberative Reason Index of a group, from −3 to 1.

        group_dri(consistency(considerations, preferences))

    - `adjusted`: False for the original index, without weights for the pairs.

    1 means that members who agree on reasons agree as much on policies. The result is NaN if there
    are no pairs.

    Sources: Niemeyer and Veri (2022), doi:10.1093/oso/9780192848925.001.0001, ch. 7. Niemeyer et
    al. (2024), doi:10.1017/S0003055423000023. Adjusted: the package deliberr (MIT),
    github.com/gumbelino/deliberr.
    """
    # −3: members agree on one and disagree on the other. If adjusted, pairs of members without any
    # agreement or disagreement do not count as consistent.
    # The index is 2 (c − λ)/(1 − λ) − 1 with λ = 1 − √2/2. c is the mean of 1 − d over pairs,
    # with d the line distance.
    weights = pairs.signal_weights if adjusted else 1.0
    return _reason_index((1 - pairs.line_distances) * weights)


def _reason_index(scores: FloatArray) -> float:
    if not len(scores):
        return math.nan
    lam = 1 - _HALF
    return float(2 * (scores.mean() - lam) / (1 - lam) - 1)


def _complete_columns(table: ArrayLike) -> FloatArray:
    x = np.asarray(table, float)
    if x.ndim != 2:
        raise ValueError(f"a table (participants, items) is needed, got shape {x.shape}")
    kept: FloatArray = x[:, ~np.isnan(x).all(axis=0)] if len(x) else x
    return kept


def _spearman_rows(table: FloatArray) -> FloatArray:
    # Constant rows and rows with a missing value give NaN.
    from scipy.stats import rankdata

    if not len(table) or table.shape[1] < 2:
        return np.full((len(table), len(table)), math.nan)
    ranks = rankdata(table, axis=1, nan_policy="propagate")
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = centred / norms[:, None]
    correlations: FloatArray = np.clip(unit @ unit.T, -1.0, 1.0)
    # Products of exact halves carry rounding noise that would count as a weak signal.
    correlations[np.abs(correlations) < 1e-12] = 0.0
    return correlations
