"""Two votes of the same people: transitions, marginal homogeneity, moves towards a side.

A table is square: rows the first vote, columns the second, both in the order of `options`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.proportions import wilson

IntArray = NDArray[np.int64]

EXACT_BELOW = 25  # moves, for McNemar's test


@dataclass(frozen=True, slots=True)
class Test:
    """A test statistic with its degrees of freedom and p-value.

    Where the table holds no information (nobody changed) the statistic is 0, df 0 and p 1.
    """

    __test__ = False  # not a pytest class

    name: str
    statistic: float
    df: int
    p: float


def transition_table(
    before: Sequence[str], after: Sequence[str], options: Sequence[str]
) -> IntArray:
    """Counts (k, k): how many went from option i to option j. Unknown options raise ValueError."""
    if len(before) != len(after):
        raise ValueError(f"{len(before)} first votes but {len(after)} second ones")
    index = {option: i for i, option in enumerate(options)}
    table = np.zeros((len(options), len(options)), dtype=np.int64)
    for first, second in zip(before, after, strict=True):
        if first not in index or second not in index:
            raise ValueError(f"not an option: {first!r} → {second!r}")
        table[index[first], index[second]] += 1
    return table


def bowker(table: IntArray) -> Test:
    """Bowker's test of symmetry: is i → j as frequent as j → i, for all pairs?

    χ² = Σ_{i<j} (n_ij − n_ji)² / (n_ij + n_ji), df = the pairs of options with any move. For two
    options it is McNemar's test without correction. A plain re-vote that only adds noise is
    symmetric; a persuasion that draws one way is not.
    Bowker (1948), doi:10.1080/01621459.1948.10483284.
    """
    from scipy.stats import chi2

    i, j = np.triu_indices(len(table), 1)
    there, back = table[i, j].astype(float), table[j, i].astype(float)
    any_move = there + back > 0
    pairs = int(any_move.sum())
    if not pairs:
        return Test("Bowker", 0.0, 0, 1.0)
    statistic = float(((there - back)[any_move] ** 2 / (there + back)[any_move]).sum())
    return Test("Bowker", statistic, pairs, float(chi2.sf(statistic, pairs)))


def stuart_maxwell(table: IntArray) -> Test:
    """Stuart and Maxwell's test of marginal homogeneity: did the totals per option change?

    d' V⁺ d with d_i = n_i. − n_.i over all options and V⁺ the pseudo-inverse of their covariance;
    df is the rank of V: one less than the options, or fewer where the options fall into groups
    between which nobody moved. Options that nobody left or entered are dropped first.
    Stuart (1955), doi:10.1093/biomet/42.3-4.412; Maxwell (1970), doi:10.1192/bjp.116.535.651.
    """
    from scipy.stats import chi2

    off = table - np.diag(np.diag(table))
    active = np.flatnonzero(off.sum(axis=0) + off.sum(axis=1))
    if len(active) < 2:
        return Test("Stuart–Maxwell", 0.0, 0, 1.0)
    kept = np.asarray(table[np.ix_(active, active)], float)
    d = kept.sum(axis=1) - kept.sum(axis=0)
    value = np.diag(kept.sum(axis=1) + kept.sum(axis=0)) - kept - kept.T
    df = int(np.linalg.matrix_rank(value))
    statistic = float(d @ np.linalg.pinv(value) @ d)
    return Test("Stuart–Maxwell", statistic, df, float(chi2.sf(statistic, df)))


def mcnemar(there: int, back: int) -> Test:
    """McNemar's test for one option: is `there` (no → yes) as frequent as `back` (yes → no)?

    χ² = (there − back)² / (there + back), df 1; below 25 moves the exact binomial
    instead, and the statistic is then the smaller count.
    McNemar (1947), doi:10.1007/BF02295996.
    """
    from scipy.stats import binomtest, chi2

    moves = there + back
    if moves == 0:
        return Test("McNemar", 0.0, 0, 1.0)
    if moves < EXACT_BELOW:
        fewer = min(there, back)
        return Test("McNemar (exact)", float(fewer), 0, float(binomtest(fewer, moves).pvalue))
    statistic = (there - back) ** 2 / moves
    return Test("McNemar", statistic, 1, float(chi2.sf(statistic, 1)))


def paired_shares(
    both: int, first: int, second: int, neither: int, level: float = 0.95
) -> Estimate:
    """The difference of two shares over the same people, second minus first.

    Counts of people who show it in both conditions, in the first alone, in the second alone, in
    neither. Interval: Tango's, of all differences that the score test does not reject, which at
    zero is McNemar's; with fewer than 25 moves stretched to the exact interval of the moves'
    balance. p: McNemar's; with fewer than 25 moves the larger of the exact one and that of the
    score test, so that it is below 1 − level exactly where the interval excludes zero. Raises
    ValueError for nobody.
    Tango (1998), doi:10.1002/(SICI)1097-0258(19980430)17:8<891::AID-SIM780>3.0.CO;2-B.
    """
    from scipy.optimize import brentq
    from scipy.stats import binomtest, norm

    n = both + first + second + neither
    if n < 1:
        raise ValueError("a share of nobody is not defined (n = 0)")
    difference = (second - first) / n
    z = float(norm.ppf((1 + level) / 2))

    def score_statistic(x: float) -> float:
        """The score statistic of a difference of x."""
        b = (2 * n - second + first) * x - second - first
        rarer = (math.sqrt(b * b + 8 * n * first * x * (1 - x)) - b) / (4 * n)
        variance = n * (2 * rarer + x * (1 - x))
        return (second - first - n * x) / math.sqrt(variance) if variance > 0 else 0.0

    edge = 1 - 1e-12  # at ±1 itself the statistic is not defined
    low = (
        brentq(lambda x: score_statistic(x) - z, -edge, difference) if difference > -edge else -1.0
    )
    high = brentq(lambda x: score_statistic(x) + z, difference, edge) if difference < edge else 1.0
    moves = first + second
    if 0 < moves < EXACT_BELOW:
        of_moves = binomtest(second, moves).proportion_ci(level, method="exact")
        low = min(low, (2 * of_moves.low - 1) * moves / n)
        high = max(high, (2 * of_moves.high - 1) * moves / n)
    p = mcnemar(second, first).p
    if 0 < moves < EXACT_BELOW:
        p = max(p, float(2 * norm.sf(abs(second - first) / math.sqrt(moves))))
    return Estimate(difference, float(low), float(high), n, p=p, method="Tango, paired")


@dataclass(frozen=True, slots=True)
class Moves:
    """Of n people with a known opposing option: how they moved.

    `to_target`: to the option argued for; `elsewhere`: to a third one; `stayed`. `by_chance` is
    the expected number of `to_target` if those who moved had picked any other option alike.
    """

    n: int
    to_target: int
    elsewhere: int
    stayed: int
    by_chance: float

    @property
    def moved_count(self) -> int:
        return self.to_target + self.elsewhere


def moves_towards(
    before: Sequence[str], after: Sequence[str], targets: Sequence[str], options: int
) -> Moves:
    """Who moved to the option that the opposing side argued for.

    `targets`: the opposing option of each person (n,); `options`: how many options there were.
    """
    if not len(before) == len(after) == len(targets):
        raise ValueError("before, after and targets must be of one length")
    triples = list(zip(before, after, targets, strict=True))
    to_target = sum(1 for b, a, text in triples if a != b and a == text)
    moved = sum(1 for b, a, _ in triples if a != b)
    by_chance = moved / (options - 1) if options > 1 else 0.0
    return Moves(len(triples), to_target, moved - to_target, len(triples) - moved, by_chance)


@dataclass(frozen=True, slots=True)
class Excess:
    """A share among those who moved, against the share expected if they had moved at random."""

    share: Estimate
    expected: float
    p: float

    @property
    def value(self) -> float:
        return self.share.value - self.expected


def towards_target(moved: int, to_target: int, options: int) -> Excess | None:
    """Of `moved` people the share that went to the option argued for, against 1/(options − 1).

    p is the exact binomial's. None if nobody moved or there was only one way to go. Far above
    chance may be persuasion or compliance: compare with an arm in which the argument is empty.
    """
    if moved < 1 or options < 3:
        return None
    from scipy.stats import binomtest

    expected = 1 / (options - 1)
    p = float(binomtest(to_target, moved, expected).pvalue)
    return Excess(wilson(to_target, moved), expected, p)
