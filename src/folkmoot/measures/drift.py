"""User drift: do answers that no treatment can change differ between two arms?

Each question gives a distribution in each arm. Their distance is the total variation, half the sum
of the absolute differences of shares: 0 where they are alike, 1 where they have nothing in common.
Numbers are divided at the quartiles of both arms together. Finite samples differ by chance alone,
so the mean distance over questions is scaled by the root of the part of its squared differences
that sampling does not explain (their bootstrap variance taken off).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.estimates import ALPHA, FEWEST_UNITS, Estimate

FloatArray = NDArray[np.float64]
EXCHANGES = 1000
RESAMPLES = 400
Z = 1.959964


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers (n,) to one question in one arm, and the independent unit of each (n,)."""

    values: tuple[Hashable, ...]
    units: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class QuestionDrift:
    """One question: the total variation of its answers between two arms, and the chance that arms
    exchanged at random differ as much."""

    distance: float
    p: float


@dataclass(frozen=True, slots=True)
class Drift:
    """All questions of two arms: the mean distance beyond chance, with its interval and p."""

    mean: Estimate
    questions: tuple[QuestionDrift, ...]


def measure_drift(questions: Sequence[tuple[Answers, Answers]], rng: np.random.Generator) -> Drift:
    """The drift between two arms over several questions.

    Units that answered in both arms change sides with themselves, others with each other, always
    whole. The interval is the mean ± 1.96 bootstrap standard errors over units, and reaches at
    least to the distance that is not corrected; there is none below five units in an arm.
    """
    units = [
        list(dict.fromkeys(u for question in questions for u in question[arm].units))
        for arm in (0, 1)
    ]
    named = list(dict.fromkeys([*units[0], *units[1]]))
    tables = [_tables(first, second, named) for first, second in questions]
    counts = min(map(len, units))
    observed = np.array([_distances(t[0].sum(0), t[1].sum(0)) for t in tables])
    known = np.isfinite(observed)
    if not known.any():
        nothing = Estimate(math.nan, math.nan, math.nan, 0, counts)
        return Drift(nothing, tuple(QuestionDrift(math.nan, math.nan) for _ in questions))
    n = max(len(first.values) + len(second.values) for first, second in questions)
    if counts < FEWEST_UNITS:
        mean = Estimate(float(observed[known].mean()), math.nan, math.nan, n, counts)
        return Drift(mean, tuple(QuestionDrift(float(d), math.nan) for d in observed))
    keep = _exchanges(named, units, rng)
    chance = np.stack([_exchanged(t, keep) for t in tables])  # (questions, exchanges)
    weights = _resamples(named, units, rng)
    again = [_differences(weights @ t[0], weights @ t[1]) for t in tables]
    value = float(observed[known].mean())
    means = np.nanmean(chance[known], axis=0)
    p = (int((means >= value - 1e-12).sum()) + 1) / (EXCHANGES + 1)
    real, error = _beyond_sampling(value, tables, again)
    # Interval and test agree: zero is excluded exactly where the exchange rules out chance.
    low = max(0.0, real - Z * error) if p < ALPHA else 0.0
    # Sampling makes the plain distance too large, never too small, so the drift may be that much.
    high = min(1.0, max(real + Z * error, value))
    mean = Estimate(real, low, high, n, counts, p, method="exchange of units")
    by_question = (
        QuestionDrift(
            float(distance),
            (int((draws >= distance - 1e-12).sum()) + 1) / (EXCHANGES + 1)
            if math.isfinite(distance)
            else math.nan,
        )
        for distance, draws in zip(observed, chance, strict=True)
    )
    return Drift(mean, tuple(by_question))


def _tables(first: Answers, second: Answers, named: Sequence[Hashable]) -> FloatArray:
    """Counts (arm, unit, kind of answer)."""
    kinds = _kinds(first.values, second.values)
    place = {unit: index for index, unit in enumerate(named)}
    table = np.zeros((2, len(named), 1 + max(kinds.values(), default=0)))
    for arm, answers in enumerate((first, second)):
        for value, unit in zip(answers.values, answers.units, strict=True):
            table[arm, place[unit], kinds[value]] += 1
    return table


def _kinds(*values: Sequence[Hashable]) -> dict[Hashable, int]:
    """Answer → its number; numbers are divided at the quartiles of all of them."""
    everything = [value for some in values for value in some]
    numbers = [float(v) for v in everything if isinstance(v, (int, float))]
    if not numbers or len(numbers) < len(everything):
        return {kind: index for index, kind in enumerate(dict.fromkeys(everything))}
    bounds = np.unique(np.quantile(numbers, (0.25, 0.5, 0.75)))
    return {v: int(np.searchsorted(bounds, float(v))) for v in set(everything)}  # type: ignore[arg-type]


def _differences(first: FloatArray, second: FloatArray) -> FloatArray:
    """Differences of shares of counts (…, kinds); NaN where an arm is empty."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = [c / c.sum(axis=-1, keepdims=True) for c in (first, second)]
    return np.asarray(shares[0] - shares[1])


def _distances(first: FloatArray, second: FloatArray) -> FloatArray:
    """Total variation of counts (…, kinds); NaN where an arm is empty."""
    return np.asarray(np.abs(_differences(first, second)).sum(axis=-1) / 2)


def _beyond_sampling(
    value: float, tables: Sequence[FloatArray], again: Sequence[FloatArray]
) -> tuple[float, float]:
    """The mean distance scaled to what sampling does not explain, and its standard error.

    A resample adds the sampling variance a second time, so there twice of it is taken off.
    """
    own = [_differences(table[0].sum(0), table[1].sum(0)) for table in tables]
    usable = [index for index, d in enumerate(own) if np.isfinite(d).all()]
    squares = sum(float((own[i] ** 2).sum()) for i in usable)
    sampling = sum(float(np.nanvar(again[i], axis=0, ddof=1).sum()) for i in usable)
    if not squares:
        return 0.0, 0.0
    drawn = np.nansum([(again[i] ** 2).sum(axis=-1) for i in usable], axis=0)
    distances = np.nanmean([np.abs(again[i]).sum(axis=-1) / 2 for i in usable], axis=0)
    parts = np.sqrt(np.clip(1 - 2 * sampling / np.maximum(drawn, 1e-12), 0, 1))
    error = float((distances * parts).std(ddof=1))
    return value * math.sqrt(max(0.0, 1 - sampling / squares)), error


def _exchanges(
    named: Sequence[Hashable], units: Sequence[Sequence[Hashable]], rng: np.random.Generator
) -> FloatArray:
    """For each exchange (rows) the weight of each unit's own arm: 1 stays, 0 changes sides."""
    first, second = map(set, units)
    keep = (rng.random((EXCHANGES, len(named))) < 0.5).astype(float)
    alone = np.array([not (unit in first and unit in second) for unit in named])
    own = np.array([unit in first for unit in named])[alone]
    if own.size:
        dealt = rng.permuted(np.tile(own, (EXCHANGES, 1)), axis=1)
        keep[:, alone] = dealt == own
    return keep


def _exchanged(table: FloatArray, keep: FloatArray) -> FloatArray:
    first = keep @ table[0] + (1 - keep) @ table[1]
    second = keep @ table[1] + (1 - keep) @ table[0]
    return _distances(first, second)


def _resamples(
    named: Sequence[Hashable], units: Sequence[Sequence[Hashable]], rng: np.random.Generator
) -> FloatArray:
    """For each resample (rows) how often each unit is drawn. Units of both arms, of the first and
    of the second keep their number."""
    first, second = map(set, units)
    weights = np.zeros((RESAMPLES, len(named)))
    for group in (first & second, first - second, second - first):
        at = [index for index, unit in enumerate(named) if unit in group]
        if at:
            weights[:, at] = rng.multinomial(len(at), [1 / len(at)] * len(at), RESAMPLES)
    return weights
