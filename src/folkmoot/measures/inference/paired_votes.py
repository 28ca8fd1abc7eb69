"""Two votes of the same participants: how many changed their vote, and towards which option.

A transition table is square. Rows are first votes and columns second votes, both in the order of
`options`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.distributions import (
    chi2_p,
    clopper_pearson,
    normal_p,
    normal_quantile,
    sign_p,
)
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.proportions import RESAMPLES, wilson

IntArray = NDArray[np.int64]

# With fewer moves, McNemar's test is exact: the χ² approximation is poor for small counts.
EXACT_BELOW = 25


@dataclass(frozen=True, slots=True)
class Test:
    """The result of a statistical test."""

    # If no participant changed: statistic 0, df 0 and p 1.

    # pytest would otherwise collect a class with this name.
    __test__ = False

    name: str
    statistic: float
    df: int
    p: float


def transition_table(
    before: Sequence[str], after: Sequence[str], options: Sequence[str]
) -> IntArray:
    """Return the number of participants for each first and second vote, shape (k, k).

        transition_table(["a", "b"], ["b", "b"], ["a", "b"])  # [[0, 1], [0, 1]]

    Raises ValueError for unknown options or lists of different lengths.
    """
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
    """Return Bowker's test: are moves between two options as frequent in both directions?

    - `table`: first votes in rows and second votes in columns, shape (k, k).

    Source: Bowker (1948), doi:10.1080/01621459.1948.10483284.
    """
    # Noise in a re-vote is symmetric, and persuasion in one direction is not. With two options, the
    # test is McNemar's without correction.
    i, j = np.triu_indices(len(table), 1)
    there, back = table[i, j].astype(float), table[j, i].astype(float)
    any_move = there + back > 0
    pairs = int(any_move.sum())
    if not pairs:
        return Test("Bowker", 0.0, 0, 1.0)
    statistic = float(((there - back)[any_move] ** 2 / (there + back)[any_move]).sum())
    return Test("Bowker", statistic, pairs, chi2_p(statistic, pairs))


def stuart_maxwell(table: IntArray) -> Test:
    """Return Stuart and Maxwell's test: did the number of votes per option change?

    - `table`: first votes in rows and second votes in columns, shape (k, k).

    Sources: Stuart (1955), doi:10.1093/biomet/42.3-4.412. Maxwell (1970),
    doi:10.1192/bjp.116.535.651.
    """
    # Options without any move are dropped first.
    off = table - np.diag(np.diag(table))
    active = np.flatnonzero(off.sum(axis=0) + off.sum(axis=1))
    if len(active) < 2:
        return Test("Stuart–Maxwell", 0.0, 0, 1.0)
    kept = np.asarray(table[np.ix_(active, active)], float)
    # d is the row total minus the column total of each option, and `value` its covariance. The
    # statistic is d' V⁺ d with the pseudo-inverse V⁺.
    d = kept.sum(axis=1) - kept.sum(axis=0)
    value = np.diag(kept.sum(axis=1) + kept.sum(axis=0)) - kept - kept.T
    df = int(np.linalg.matrix_rank(value))
    statistic = float(d @ np.linalg.pinv(value) @ d)
    return Test("Stuart–Maxwell", statistic, df, chi2_p(statistic, df))


def equal_totals_p(table: IntArray) -> float:
    """Return the p-value of a test whether the number of votes per option changed.

    - `table`: first votes in rows and second votes in columns, shape (k, k).

    The test is Stuart and Maxwell's. With fewer than 25 moves, it is exact: the two votes of a
    participant may as well have been given in the other order.
    """
    i, j = np.triu_indices(len(table), 1)
    there, back = table[i, j], table[j, i]
    moves = int(there.sum() + back.sum())
    if not 0 < moves < EXACT_BELOW:
        return stuart_maxwell(table).p
    has_moves = there + back > 0
    if has_moves.sum() == 1:
        return mcnemar(int(there.sum()), int(back.sum())).p
    from scipy.stats import permutation_test

    # One entry for each participant who moved.
    before = np.concatenate([np.repeat(i, there), np.repeat(j, back)])
    after = np.concatenate([np.repeat(j, there), np.repeat(i, back)])
    off = table - np.diag(np.diag(table))
    # The order of two votes changes no variance, so each permutation has the same.
    inverse = np.linalg.pinv(np.diag(off.sum(axis=1) + off.sum(axis=0)) - off - off.T)
    options = range(len(table))

    def statistic(first: IntArray, second: IntArray, axis: int) -> NDArray[np.float64]:
        counts = [
            (first == option).sum(axis=axis) - (second == option).sum(axis=axis)
            for option in options
        ]
        d = np.stack(counts, axis=-1)
        return np.asarray(np.einsum("...i,ij,...j->...", d, inverse, d))

    # All permutations up to 14 moves. With more, the drawn ones are the same in each process.
    result = permutation_test(
        (before, after),
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def mcnemar(there: int, back: int) -> Test:
    """Return McNemar's test: are moves to yes as frequent as moves to no?

    - `there`: number of moves from no to yes.
    - `back`: number of moves from yes to no.

    Source: McNemar (1947), doi:10.1007/BF02295996.
    """
    # With fewer than 25 moves, the test is exact, and its statistic is the smaller number.
    moves = there + back
    if moves == 0:
        return Test("McNemar", 0.0, 0, 1.0)
    if moves < EXACT_BELOW:
        return Test("McNemar (exact)", float(min(there, back)), 0, sign_p(there, back))
    statistic = (there - back) ** 2 / moves
    return Test("McNemar", statistic, 1, chi2_p(statistic, 1))


def paired_shares(
    both: int, first: int, second: int, neither: int, level: float = 0.95
) -> Estimate:
    """Return the difference between two shares of the same participants, second minus first.

    - `both`: participants with a yes in both conditions.
    - `first`, `second`: participants with a yes in only the first or only the second condition.
    - `neither`: participants with a yes in neither condition.

    Raises ValueError without participants.

    Source: Tango (1998), doi:10.1002/(SICI)1097-0258(19980430)17:8<891::AID-SIM780>3.0.CO;2-B.
    """
    # The interval is Tango's, and the p-value that of McNemar's test. With fewer than 25 changed
    # answers, both are made more cautious, so that they agree.
    from scipy.optimize import brentq

    n = both + first + second + neither
    if n < 1:
        raise ValueError("a share of zero units is not defined (n = 0)")
    difference = (second - first) / n
    z = normal_quantile((1 + level) / 2)

    def score_statistic(x: float) -> float:
        b = (2 * n - second + first) * x - second - first
        rarer = (math.sqrt(b * b + 8 * n * first * x * (1 - x)) - b) / (4 * n)
        variance = n * (2 * rarer + x * (1 - x))
        return (second - first - n * x) / math.sqrt(variance) if variance > 0 else 0.0

    # The statistic is undefined at ±1.
    edge = 1 - 1e-12
    low = (
        brentq(lambda x: score_statistic(x) - z, -edge, difference) if difference > -edge else -1.0
    )
    high = brentq(lambda x: score_statistic(x) + z, difference, edge) if difference < edge else 1.0
    moves = first + second
    # Widen the interval to the exact interval, and use the larger p-value. p is then below
    # 1 − level only if the interval excludes zero.
    if 0 < moves < EXACT_BELOW:
        least, most = clopper_pearson(second, moves, level)
        low = min(low, (2 * least - 1) * moves / n)
        high = max(high, (2 * most - 1) * moves / n)
    p = mcnemar(second, first).p
    if 0 < moves < EXACT_BELOW:
        p = max(p, normal_p((second - first) / math.sqrt(moves)))
    return Estimate(difference, float(low), float(high), n, p=p, method="Tango, paired")


@dataclass(frozen=True, slots=True)
class Moves:
    """The number of participants who changed their vote, and their new options."""

    n: int
    # Moves to the option for which the opposing side argued.
    to_target: int
    # Moves to any other option.
    elsewhere: int
    # Participants without a move.
    stayed: int
    # The expected `to_target` if each move led to a random other option.
    by_chance: float

    @property
    def moved_count(self) -> int:
        """The number of participants who moved."""
        return self.to_target + self.elsewhere


def moves_towards(
    before: Sequence[str], after: Sequence[str], targets: Sequence[str], options: int
) -> Moves:
    """Count the participants who moved to the option for which the opposing side argued.

    - `targets`: for each participant, the option for which the opposing side argued, shape (n,).
    - `options`: the number of options.

    Raises ValueError if the lengths differ.
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
    """An observed share of moves, and the share expected by chance."""

    share: Estimate
    expected: float
    p: float

    @property
    def value(self) -> float:
        """The observed share minus the expected share."""
        return self.share.value - self.expected


def towards_target(moved: int, to_target: int, options: int) -> Excess | None:
    """Compare the share of moves to the opposing option with the share expected by chance.

    - `moved`: number of moves.
    - `to_target`: number of moves to the option for which the opposing side argued.
    - `options`: the number of options.

    Returns None without moves or with fewer than three options.
    """
    # The share by chance is 1/(options − 1). A share far above chance may be persuasion or
    # compliance. To tell the two apart, use a condition in which the argument has no content.
    if moved < 1 or options < 3:
        return None
    from scipy.stats import binomtest

    expected = 1 / (options - 1)
    p = float(binomtest(to_target, moved, expected).pvalue)
    return Excess(wilson(to_target, moved), expected, p)
