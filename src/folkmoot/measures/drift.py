"""User drift: the difference between conditions in answers that no treatment should affect."""

# Each question gives a distribution of answers in each condition. The distance of two distributions
# is half the sum of the absolute differences of shares (total variation). It is 0 if they are
# equal, and 1 if they have no common answer. Numbers are first grouped by the quartiles of both
# conditions together. Finite samples differ by chance, so the mean distance is reduced by the part
# that chance explains.

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.distributions import student_quantile
from folkmoot.measures.inference.estimates import (
    ALPHA,
    FEWEST_UNITS,
    ROUNDING,
    Estimate,
    varies,
)

FloatArray = NDArray[np.float64]
# Random exchanges for a p-value, and resamples for a standard error. The smallest p is 1/1001.
EXCHANGES = 1000
# If there are at most this many different exchanges (of 12 units in both conditions), each is used
# once, so the p-value is exact.
MAX_ENUMERATED_EXCHANGES = 4096
RESAMPLES = 400
LEVEL = 0.95
# Count the quartiles below a number, and those up to it.
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(frozen=True, slots=True)
class ConditionAnswers:
    """The answers to one question in one condition, shape (n,)."""

    values: tuple[Hashable, ...]
    # The independent unit of each answer.
    units: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class QuestionDrift:
    """The difference between two conditions in the answers to one question."""

    # The total variation of the answers.
    distance: float
    # The p-value of a permutation test in which whole units exchange conditions.
    p: float
    # An estimate with an interval, to judge equivalence. For numbers it is the difference of means,
    # second minus first, in standard deviations. Otherwise it is the total variation.
    difference: Estimate
    # True if all answers are numbers.
    is_numeric: bool


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference between two conditions in answers that no treatment should affect."""

    # The mean distance beyond chance with its interval and p-value.
    mean: Estimate
    # The drift of each question.
    questions: tuple[QuestionDrift, ...]


def measure_drift(
    questions: Sequence[tuple[ConditionAnswers, ConditionAnswers]], rng: np.random.Generator
) -> Drift:
    """Measure how far two conditions differ in answers that no treatment should affect.

    - `questions`: for each question, the answers in the first and in the second condition.

    The interval is NaN with fewer than five units in a condition. It is a t interval with an error
    from resamples of whole units. In simulations with 5, 12 and 20 units and distances of 0 to .4,
    it held the true distance in .89 to 1 of the cases, and in .95 or more of most designs. If all
    units answer alike, or with equal shares, or if the conditions have no common answer, resamples
    do not vary. The interval then allows for the units that may differ unobserved, by the exact
    bound of a share of which no case was observed (Clopper and Pearson 1934,
    doi:10.1093/biomet/26.4.404). For one question with two answers and the same units in both
    conditions, its lower end at a distance of 1 is that of Tango (1998),
    doi:10.1002/(SICI)1097-0258(19980430)17:8<891::AID-SIM780>3.0.CO;2-B.
    """
    # The p-value comes from exchanges of whole units: from all of them if they are few, otherwise
    # from random ones. The interval comes from random draws of whole units.
    units = [
        list(dict.fromkeys(unit for question in questions for unit in question[arm].units))
        for arm in (0, 1)
    ]
    named = list(dict.fromkeys([*units[0], *units[1]]))
    tables = [_count_tables(first, second, named) for first, second in questions]
    sizes = _count_sizes(questions)
    observed = np.array(
        [_variation_distances(table[0].sum(0), table[1].sum(0)) for table in tables]
    )
    known = np.isfinite(observed)
    if not known.any() or sizes.units < FEWEST_UNITS:
        value = float(observed[known].mean()) if known.any() else math.nan
        plain = [
            _question_without_test(question, float(d))
            for question, d in zip(questions, observed, strict=True)
        ]
        nothing = Estimate(value, math.nan, math.nan, sizes.answers, sizes.units)
        return Drift(nothing, tuple(plain))
    # All questions use the same exchanges and resamples, because the questions of a unit are
    # dependent.
    keep = _exchange_weights(named, units, rng)
    # Shape (questions, exchanges).
    chance = np.stack([_exchanged_distances(table, keep) for table in tables])
    weights = _resample_counts(named, units, rng)
    again = [_share_differences(weights @ table[0], weights @ table[1]) for table in tables]
    value = float(observed[known].mean())
    mean = _estimate_mean_distance(value, np.nanmean(chance[known], axis=0), tables, again, sizes)
    by_question = (
        _measure_question(question, named, (keep, weights), (draws, table, drawn))
        for question, draws, table, drawn in zip(questions, chance, tables, again, strict=True)
    )
    return Drift(mean, tuple(by_question))


class _Sizes(NamedTuple):
    # The numbers of answers (to the question with the most), and of independent units in the
    # smaller condition.
    answers: int
    units: int
    # The number of units that can reduce a distance: those of both conditions. Units that are in
    # both conditions count once.
    all_units: int


def _count_sizes(questions: Sequence[tuple[ConditionAnswers, ConditionAnswers]]) -> _Sizes:
    answers = max(
        (len(first.values) + len(second.values) for first, second in questions), default=0
    )
    first, second = (
        {unit for question in questions for unit in question[arm].units} for arm in (0, 1)
    )
    units = min(len(first), len(second))
    return _Sizes(answers, units, min(len(first | second), 2 * units))


def _estimate_mean_distance(
    value: float,
    chance: FloatArray,
    tables: Sequence[FloatArray],
    again: Sequence[FloatArray],
    sizes: _Sizes,
) -> Estimate:
    # `value`: the observed mean distance. `chance`: the distances after each exchange. `tables`:
    # the counts, by question. `again`: the resampled differences of shares, by question.
    p = _share_as_large(chance, value)
    own = [_share_differences(table[0].sum(0), table[1].sum(0)) for table in tables]
    real = _beyond_sampling(value, own, again)
    error = _error_of_distance(own, again)
    reach = _half_width(error, sizes.units)
    # Sampling makes the uncorrected distance too large, never too small. So the drift may be larger
    # than that distance by the whole error.
    low, high = real - reach, value + reach
    # Resamples do not vary in the distance if units are equal, or at the largest distance.
    if error <= ROUNDING or value > 1 - 1e-12:
        least, most = _bound_unobserved(value, sizes)
        low, high = min(low, least), max(high, most)
    # The interval excludes zero only if the test rejects.
    low = max(0.0, low) if p < ALPHA else 0.0
    return Estimate(
        real, low, min(1.0, high), sizes.answers, sizes.units, p, method="exchange of units"
    )


def _half_width(error: float, units: int) -> float:
    # Half of an interval from the standard deviation of resamples. It is a t interval with the
    # degrees of freedom of the smaller condition. Resamples of few units vary too little, by the
    # factor of a variance that is divided by n in place of n − 1.
    return student_quantile((1 + LEVEL) / 2, units - 1) * error * math.sqrt(units / (units - 1))


def _bound_unobserved(value: float, sizes: _Sizes) -> tuple[float, float]:
    # The least and the largest distance if some units differ of which none was observed. A distance
    # of 0 has one bound, so its error is not halved.
    error = 1 - LEVEL if value == 0 else (1 - LEVEL) / 2
    # Unobserved units may be at a distance of 1.
    most = value + (1 - value) * _max_unobserved_share(sizes.units, error)
    # Or they may answer the other way round, which reduces the distance twice.
    least = value * (1 - 2 * _max_unobserved_share(sizes.all_units, error))
    return least, most


def _max_unobserved_share(units: int, error: float = 1 - LEVEL) -> float:
    # The share of units that may still differ if no observed unit differs. `error`: the probability
    # that more differ.
    return float(1 - error ** (1 / units))


def _measure_question(
    question: tuple[ConditionAnswers, ConditionAnswers],
    named: Sequence[Hashable],
    draws: tuple[FloatArray, FloatArray],
    table: tuple[FloatArray, FloatArray, FloatArray],
) -> QuestionDrift:
    # `draws`: how units exchange conditions, and how they are drawn again. `table`: the distances
    # after each exchange, the counts of answers, and the differences of shares in each resample.
    (keep, weights), (chance, counts, again) = draws, table
    distance = float(_variation_distances(counts[0].sum(0), counts[1].sum(0)))
    # Some units may lack an answer to this question, so it is judged by those that have one.
    sizes = _count_sizes([question])
    if not math.isfinite(distance) or sizes.units < FEWEST_UNITS:
        return _question_without_test(question, distance)
    own = _estimate_mean_distance(distance, chance, [counts], [again], sizes)
    if not _is_numeric(question):
        return QuestionDrift(distance, own.p, own, is_numeric=False)
    moments = _moments_by_unit(question, named)
    value = float(_standardised_difference(moments[0].sum(0), moments[1].sum(0)))
    swapped = _standardised_difference(*_swap(moments, keep))
    p = _share_as_large(np.abs(swapped), abs(value))
    drawn = _standardised_difference(weights @ moments[0], weights @ moments[1])
    usual = drawn[np.isfinite(drawn)]
    error = float(usual.std(ddof=1)) if usual.size > 1 else math.nan
    reach = _half_width(error, sizes.units)
    # Resamples do not vary. If the units have different sizes and equal shares, only the degrees of
    # freedom do. Assume that the units that may differ unobserved differ by the full range.
    if error <= ROUNDING or not _vary_by_unit(moments):
        numbers = [float(value) for arm in question for value in arm.values]  # type: ignore[arg-type]
        reach = (
            _max_unobserved_share(sizes.units) * float(np.ptp(numbers) / np.std(numbers))
            if varies(numbers)
            else math.nan
        )
    low, high = value - reach, value + reach
    # The interval excludes zero only if the test rejects. With few units it is too narrow.
    if p >= ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    difference = Estimate(
        value, low, high, sizes.answers, sizes.units, p, method="exchange of units"
    )
    return QuestionDrift(distance, p, difference, is_numeric=True)


def _question_without_test(
    question: tuple[ConditionAnswers, ConditionAnswers], distance: float
) -> QuestionDrift:
    value, is_numeric = distance, _is_numeric(question)
    if is_numeric:
        moments = _moments_by_unit(question, [*{unit for arm in question for unit in arm.units}])
        value = float(_standardised_difference(moments[0].sum(0), moments[1].sum(0)))
    sizes = _count_sizes([question])
    nothing = Estimate(value, math.nan, math.nan, sizes.answers, sizes.units)
    return QuestionDrift(distance, math.nan, nothing, is_numeric=is_numeric)


def _is_numeric(question: tuple[ConditionAnswers, ConditionAnswers]) -> bool:
    values = [value for arm in question for value in arm.values]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def _moments_by_unit(
    question: tuple[ConditionAnswers, ConditionAnswers], named: Sequence[Hashable]
) -> FloatArray:
    # The number, sum and sum of squares of each unit's answers: (condition, unit, 3).
    place = {unit: index for index, unit in enumerate(named)}
    sums = np.zeros((2, len(named), 3))
    for arm, answers in enumerate(question):
        for value, unit in zip(answers.values, answers.units, strict=True):
            number = float(value)  # type: ignore[arg-type]
            sums[arm, place[unit]] += (1.0, number, number * number)
    return sums


def _vary_by_unit(moments: FloatArray) -> bool:
    # Whether units of one condition differ in the mean or in the mean square of their answers.
    answering = (arm[arm[:, 0] > 0] for arm in moments)
    return any(varies(arm[:, 1:] / arm[:, :1]) for arm in answering)


def _standardised_difference(first: FloatArray, second: FloatArray) -> FloatArray:
    # Second minus first, in pooled standard deviations, from the moments (…, 3) of
    # `_moments_by_unit`. 0 for equal means, otherwise infinite if no answer varies within a
    # condition. NaN if a condition is empty.
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [m[..., 1] / m[..., 0] for m in (first, second)]
        squares = sum(
            m[..., 2] - m[..., 0] * mean * mean
            for m, mean in zip((first, second), means, strict=True)
        )
        # The difference of two large sums has rounding errors of their size.
        squares = np.where(squares > 1e-12 * (first[..., 2] + second[..., 2]), squares, 0.0)
        spread = np.sqrt(squares / (first[..., 0] + second[..., 0] - 2))
        apart = means[1] - means[0]
        return np.asarray(np.where(np.abs(apart) < 1e-12, 0.0, apart / spread))


def _count_tables(
    first: ConditionAnswers, second: ConditionAnswers, named: Sequence[Hashable]
) -> FloatArray:
    # The shape is (condition, unit, answer).
    kinds = _number_answers(first.values, second.values)
    place = {unit: index for index, unit in enumerate(named)}
    table = np.zeros((2, len(named), 1 + max(kinds.values(), default=0)))
    for arm, answers in enumerate((first, second)):
        for value, unit in zip(answers.values, answers.units, strict=True):
            table[arm, place[unit], kinds[value]] += 1
    return table


def _number_answers(*values: Sequence[Hashable]) -> dict[Hashable, int]:
    # If all answers are numbers, those between the same two quartiles get the same column. A number
    # that is a quartile itself gets a column of its own, so any number that more than a quarter of
    # all answers have is apart from lower and from higher ones. If it shared the column of the
    # lower ones, a difference between the two would be invisible.
    everything = [value for some in values for value in some]
    numbers = [float(value) for value in everything if isinstance(value, (int, float))]
    if not numbers or len(numbers) < len(everything):
        return {kind: index for index, kind in enumerate(dict.fromkeys(everything))}
    bounds = np.unique(np.quantile(numbers, (0.25, 0.5, 0.75)))
    columns = {}
    for value in set(everything):
        below, at_most = (int(np.searchsorted(bounds, float(value), side)) for side in _SIDES)  # type: ignore[arg-type]
        columns[value] = below + at_most
    return columns


def _share_differences(first: FloatArray, second: FloatArray) -> FloatArray:
    # First minus second, from counts (…, answers). NaN if a condition is empty.
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = [c / c.sum(axis=-1, keepdims=True) for c in (first, second)]
    return np.asarray(shares[0] - shares[1])


def _variation_distances(first: FloatArray, second: FloatArray) -> FloatArray:
    # The total variation, from 0 to 1, or NaN if a condition is empty.
    return np.asarray(np.abs(_share_differences(first, second)).sum(axis=-1) / 2)


def _beyond_sampling(value: float, own: Sequence[FloatArray], again: Sequence[FloatArray]) -> float:
    # Returns the mean distance that sampling does not explain. For each question, `own`: the
    # differences of shares. `again`: those in each resample.
    # The distance is multiplied by √(1 − s). s is the part of the squared differences that sampling
    # explains.
    usable = [index for index, d in enumerate(own) if np.isfinite(d).all()]
    squares = sum(float((own[i] ** 2).sum()) for i in usable)
    sampling = sum(float(np.nanvar(again[i], axis=0, ddof=1).sum()) for i in usable)
    return value * math.sqrt(max(0.0, 1 - sampling / squares)) if squares else 0.0


def _error_of_distance(own: Sequence[FloatArray], again: Sequence[FloatArray]) -> float:
    # The standard error of the mean distance. A distance is the difference in the share of those
    # answers that are more frequent in the first condition. This share keeps its answers in all
    # resamples. The distances of the resamples would vary too little, because they are never
    # negative.
    parts = []
    for differences, drawn in zip(own, again, strict=True):
        if not np.isfinite(differences).all():
            continue
        more = differences > 0
        if not more.any():
            # Equal shares have no such answers. The answer that varies most takes their place.
            more[np.nanvar(drawn, axis=0).argmax()] = True
        parts.append(drawn[:, more].sum(axis=-1))
    each = np.array(parts)
    # A resample may have only units without an answer.
    return float(np.nanmean(each[:, np.isfinite(each).any(axis=0)], axis=0).std(ddof=1))


def _exchange_weights(
    named: Sequence[Hashable], units: Sequence[Sequence[Hashable]], rng: np.random.Generator
) -> FloatArray:
    # 1 for a unit that keeps its condition, otherwise 0: (exchanges, units). A unit in both
    # conditions changes with probability ½. The other units change places, so conditions keep their
    # sizes. The design itself is one of the exchanges, so no p-value is 0.
    first, second = map(set, units)
    keep = (rng.random((EXCHANGES, len(named))) < 0.5).astype(float)
    alone = np.array([not (unit in first and unit in second) for unit in named])
    own = np.array([unit in first for unit in named])[alone]
    if own.size:
        # Permute the arms of units with answers in one arm only, so that both arms keep their
        # sizes.
        dealt = rng.permuted(np.tile(own, (EXCHANGES, 1)), axis=1)
        keep[:, alone] = dealt == own
    # The random exchanges are drawn in any case, so that the resamples after them stay the same.
    if 2 ** int((~alone).sum()) * math.comb(len(own), int(own.sum())) <= MAX_ENUMERATED_EXCHANGES:
        return _all_exchanges(alone, own)
    return np.vstack([np.ones(len(named)), keep])


def _all_exchanges(alone: NDArray[np.bool_], own: NDArray[np.bool_]) -> FloatArray:
    # `alone`: for each unit, whether it is in one condition only. `own`: for each of these, whether
    # it is the first condition.
    pairs = list(product((1.0, 0.0), repeat=int((~alone).sum())))
    choices = list(combinations(range(len(own)), int(own.sum())))
    dealt = np.zeros((len(choices), len(own)), dtype=bool)
    for row, positions in enumerate(choices):
        dealt[row, list(positions)] = True
    keep = np.zeros((len(pairs) * len(dealt), len(alone)))
    keep[:, ~alone] = np.repeat(np.array(pairs), len(dealt), axis=0)
    keep[:, alone] = np.tile(dealt == own, (len(pairs), 1))
    return keep


def _share_as_large(values: FloatArray, observed: float) -> float:
    # The p-value of `observed` among its values after each exchange.
    return float((values >= observed - 1e-12).mean())


def _swap(table: FloatArray, keep: FloatArray) -> tuple[FloatArray, FloatArray]:
    # `table`: counts (condition, unit, answer). `keep`: 1 for a unit that keeps its condition, else
    # 0.
    first = keep @ table[0] + (1 - keep) @ table[1]
    second = keep @ table[1] + (1 - keep) @ table[0]
    return first, second


def _exchanged_distances(table: FloatArray, keep: FloatArray) -> FloatArray:
    return _variation_distances(*_swap(table, keep))


def _resample_counts(
    named: Sequence[Hashable], units: Sequence[Sequence[Hashable]], rng: np.random.Generator
) -> FloatArray:
    # The shape is (resamples, units). Units in both conditions, in the first only, and in the
    # second only are resampled separately.
    first, second = map(set, units)
    weights = np.zeros((RESAMPLES, len(named)))
    for group in (first & second, first - second, second - first):
        at = [index for index, unit in enumerate(named) if unit in group]
        if at:
            weights[:, at] = rng.multinomial(len(at), [1 / len(at)] * len(at), RESAMPLES)
    return weights
