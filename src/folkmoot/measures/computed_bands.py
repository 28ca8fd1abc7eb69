"""Human benchmarks (`bands.Band`) that are computed from a table of human answers."""

# Benchmarks of change are computed in each arm, because a treatment may affect change. Examples are
# the share of changed answers and the correlation of first and second answers. Benchmarks of the
# spread over options are computed for each item, because different items have different options.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.bands import Band
from folkmoot.measures.diversity import effective_number, normalised_entropy
from folkmoot.measures.inference.estimates import varies

FloatArray = NDArray[np.float64]
# An arm or item with fewer answers is left out of a range: its value is mostly chance.
MIN_ANSWERS = 20
# Of more arms or items than these the range is the middle 80 %: extremes of many are mostly chance.
MAX_IN_FULL_RANGE = 12
# The ratings below, on and above the middle of the scale, counted as three options.
SIDES = ("against", "undecided", "for")


@dataclass(frozen=True)
class AnswerTable:
    """The answers of people before and after a treatment, one entry for each person and item.

    All sequences have the same order and length.
    """

    persons: Sequence[str]
    items: Sequence[str]
    arms: Sequence[str]
    # Ratings, or options as texts (`before`, `after`).
    before: Sequence[float] | Sequence[str]
    after: Sequence[float] | Sequence[str]
    # Lowest and highest possible rating, or None for options.
    scale: tuple[float, float] | None = None


class _Measure(NamedTuple):
    key: str
    label: str
    unit: str
    # True for a value of each item, False for a value of each arm. `calculate` receives the answers
    # of one item or arm.
    is_by_item: bool
    needs_ratings: bool
    calculate: Callable[[_Answers], float]


@dataclass(frozen=True)
class _Answers:
    # The answers of one arm or item, as numbers of the chosen options.

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    option_count: int
    # The first and the second ratings, or None if the answers are options.
    ratings: tuple[FloatArray, FloatArray] | None
    scale_width: float

    def select(self, rows: NDArray[np.bool_]) -> _Answers:
        ratings = (self.ratings[0][rows], self.ratings[1][rows]) if self.ratings else None
        return _Answers(
            self.before[rows], self.after[rows], self.option_count, ratings, self.scale_width
        )

    def counts(self, options: NDArray[np.int64]) -> NDArray[np.int64]:
        # Options that occur in no answer are left out, because they belong to other items.
        used = np.union1d(self.before, self.after)
        counts = np.bincount(options, minlength=self.option_count)
        return counts if self.ratings else counts[used]


def compute_bands(answers: AnswerTable, design: str, source: str) -> list[Band]:
    """Return the benchmarks that can be computed from a table of human answers.

    - `design`: what the people were asked, and when.
    - `source`: where the answers were published.
    """
    # Groups with fewer than `MIN_ANSWERS` answers do not count for the range of a benchmark.
    if len(answers.before) < MIN_ANSWERS:
        return []
    coded = _code_answers(answers)
    by_arm, by_item = (_large_groups(names) for names in (answers.arms, answers.items))
    bands = []
    for measure in _MEASURES:
        if measure.needs_ratings and coded.ratings is None:
            continue
        groups = by_item if measure.is_by_item else by_arm
        values = [measure.calculate(coded.select(rows)) for rows in groups]
        values = [value for value in values if math.isfinite(value)]
        # For measures of change, the centre comes from all answers, and the range from the arms.
        # For measures of spread, the range comes from the items, and the centre is the median item.
        centre = float(np.median(values)) if measure.is_by_item and values else math.nan
        if not measure.is_by_item:
            centre = measure.calculate(coded)
        if not math.isfinite(centre):
            continue
        low, high, description = _range_of(values, measure.is_by_item, len(answers.before))
        bands.append(
            Band(
                measure.key,
                measure.label if coded.ratings is None else measure.label.replace(_OPTION, _SIDE),
                design,
                low,
                high,
                centre,
                measure.unit,
                len(set(answers.persons)),
                description,
                source,
                "",
            )
        )
    return bands


def _range_of(
    values: Sequence[float], is_by_item: bool, answer_count: int
) -> tuple[float, float, str]:
    # Returns (low, high, explanation). With more than `MAX_IN_FULL_RANGE` values, the range covers
    # the middle 80 %. With fewer than two values, low and high are NaN.
    centre = "median over items" if is_by_item else f"all {answer_count:,} answers"
    if len(values) < 2:
        return math.nan, math.nan, f"no range; centre: {centre}"
    is_full = len(values) <= MAX_IN_FULL_RANGE
    low, high = np.quantile(values, [0, 1] if is_full else [0.1, 0.9])
    groups = f"{len(values)} {'items' if is_by_item else 'arms'}"
    covered = "lowest to highest" if is_full else "middle 80 %"
    least = f"with at least {MIN_ANSWERS} answers"
    return float(low), float(high), f"{covered} of {groups} {least}; centre: {centre}"


def _code_answers(answers: AnswerTable) -> _Answers:
    if answers.scale is not None:
        low, high = answers.scale
        ratings = np.asarray(answers.before, float), np.asarray(answers.after, float)
        middle = (low + high) / 2
        sides = [np.sign(rating - middle).astype(np.int64) + 1 for rating in ratings]
        return _Answers(sides[0], sides[1], len(SIDES), ratings, high - low)
    options = {
        option: number
        for number, option in enumerate(dict.fromkeys([*answers.before, *answers.after]))
    }
    before, after = (
        np.array([options[option] for option in column], np.int64)
        for column in (answers.before, answers.after)
    )
    return _Answers(before, after, len(options), None, math.nan)


def _large_groups(names: Sequence[str]) -> list[NDArray[np.bool_]]:
    column = np.asarray(names, object)
    groups = [column == name for name in dict.fromkeys(names)]
    return [rows for rows in groups if rows.sum() >= MIN_ANSWERS]


def _ratings_of(answers: _Answers) -> tuple[FloatArray, FloatArray]:
    assert answers.ratings is not None
    return answers.ratings


def _share_changed(answers: _Answers) -> float:
    return float((answers.before != answers.after).mean())


def _share_moved(answers: _Answers) -> float:
    before, after = _ratings_of(answers)
    return float((before != after).mean())


def _mean_absolute_change(answers: _Answers) -> float:
    before, after = _ratings_of(answers)
    return float(np.abs(after - before).mean()) / answers.scale_width


def _correlation(answers: _Answers) -> float:
    before, after = _ratings_of(answers)
    return float(np.corrcoef(before, after)[0, 1]) if varies(before) and varies(after) else math.nan


def _evenness(answers: _Answers) -> float:
    counts = answers.counts(answers.before)
    return normalised_entropy(counts) if len(counts) > 1 else math.nan


def _effective_ratio(answers: _Answers) -> float:
    before, after = (answers.counts(side) for side in (answers.before, answers.after))
    return effective_number(after) / effective_number(before)


def _spread(answers: _Answers) -> float:
    before, _ = _ratings_of(answers)
    return float(before.std(ddof=1)) / answers.scale_width


def _spread_ratio(answers: _Answers) -> float:
    before, after = _ratings_of(answers)
    return float(after.std() / before.std()) if varies(before) else math.nan


_OPTION, _SIDE = "with another option", f"on another side ({', '.join(SIDES)})"
_MEASURES = (
    _Measure("choice_changed", f"share who ended {_OPTION}", "share", False, False, _share_changed),
    _Measure("rating_moved", "share who changed their rating", "share", False, True, _share_moved),
    _Measure(
        "rating_mean_change",
        "mean absolute change, as a share of the scale",
        "ratio",
        False,
        True,
        _mean_absolute_change,
    ),
    _Measure(
        "rating_pre_post_r",
        "correlation of ratings before and after",
        "r",
        False,
        True,
        _correlation,
    ),
    _Measure(
        "effective_number_ratio",
        "effective number of options after over before",
        "ratio",
        True,
        False,
        _effective_ratio,
    ),
    _Measure(
        "normalised_entropy",
        "evenness of options before (entropy over its maximum)",
        "share",
        True,
        False,
        _evenness,
    ),
    _Measure(
        "rating_sd_of_scale",
        "standard deviation of an item before, as a share of the scale",
        "ratio",
        True,
        True,
        _spread,
    ),
    _Measure(
        "rating_sd_ratio",
        "standard deviation of an item after over before",
        "ratio",
        True,
        True,
        _spread_ratio,
    ),
)
