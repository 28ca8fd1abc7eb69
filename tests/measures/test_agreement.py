"""Agreement of coders, compared with published tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from folkmoot.measures.agreement import (
    krippendorff_alpha,
    krippendorff_interval,
    number_codes,
)

MISSING = math.nan
# The example of the article "Krippendorff's alpha" in Wikipedia: 3 coders, 15 units.
THREE_CODERS = [
    [MISSING, MISSING, MISSING, MISSING, MISSING, 3, 4, 1, 2, 1, 1, 3, 3, MISSING, 3],
    [1, MISSING, 2, 1, 3, 3, 4, 3, MISSING, MISSING, MISSING, MISSING, MISSING, MISSING, MISSING],
    [MISSING, MISSING, 2, 1, 3, 4, 4, MISSING, 2, 1, 1, 3, 3, MISSING, 4],
]
# Krippendorff (2011): 4 coders, 12 units.
FOUR_CODERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, MISSING, MISSING, MISSING],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, MISSING, 3],
    [MISSING, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, MISSING],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, MISSING],
]


@pytest.mark.parametrize(
    ("level", "three", "four"),
    [
        ("nominal", 0.691358, 0.743421),
        ("ordinal", 0.806721, 0.815388),
        ("interval", 0.810845, 0.849107),
    ],
)
def test_krippendorff_known_answers(level, three, four):
    assert krippendorff_alpha(THREE_CODERS, level) == pytest.approx(three, abs=1e-6)
    assert krippendorff_alpha(FOUR_CODERS, level) == pytest.approx(four, abs=1e-6)


def test_krippendorff_perfect_and_undefined():
    assert krippendorff_alpha([[1, 2, 3], [1, 2, 3]], "interval") == 1.0
    assert math.isnan(krippendorff_alpha([[1, 1], [1, 1]]))
    assert math.isnan(krippendorff_alpha([[1, MISSING], [MISSING, 2]]))
    with pytest.raises(ValueError, match="coders, units"):
        krippendorff_alpha([1, 2, 3])


def test_nominal_alpha_is_independent_of_code_names():
    coded = number_codes([["yes", "no", None, "no"], ["yes", "yes", "no", "no"]])
    swapped = number_codes([["no", "yes", None, "yes"], ["no", "no", "yes", "yes"]])
    assert krippendorff_alpha(coded) == pytest.approx(krippendorff_alpha(swapped))
    assert np.isnan(coded[0, 2])


def test_the_interval_of_alpha_has_texts_as_units() -> None:
    rng = np.random.default_rng(1)
    first = rng.integers(0, 3, 80).astype(float)
    second = np.where(rng.random(80) < 0.8, first, rng.integers(0, 3, 80))
    estimate = krippendorff_interval([first, second])
    assert estimate.value == pytest.approx(krippendorff_alpha([first, second]))
    assert (estimate.n, estimate.clusters) == (80, 80)
    assert (
        0.1 < estimate.high - estimate.low < 0.4 and estimate.low < estimate.value < estimate.high
    )
    # Each unit occurs three times in the cluster of its text, so the interval stays the same.
    tripled = krippendorff_interval(np.tile([first, second], 3), clusters=[*range(80)] * 3)
    assert tripled.high - tripled.low == pytest.approx(estimate.high - estimate.low, abs=0.03)
    assert tripled.clusters == 80


def test_alpha_of_one_text_or_without_variation_has_no_interval() -> None:
    one_text = krippendorff_interval([[1, 2, 1], [1, 2, 2]], clusters=["a", "a", "a"])
    assert math.isfinite(one_text.value) and not one_text.has_interval
    assert not krippendorff_interval([[1, 1], [1, 1]]).has_interval  # all the same


@pytest.mark.nightly(part="alarms")
def test_the_interval_of_alpha_covers_the_truth() -> None:
    rng = np.random.default_rng(2)

    def draw(n: int) -> list[list[float]]:
        first = rng.integers(0, 2, n).astype(float)
        return [list(first), list(np.where(rng.random(n) < 0.6, first, rng.integers(0, 2, n)))]

    truth = krippendorff_alpha(draw(1_000_000))
    estimates = [krippendorff_interval(draw(60)) for _ in range(300)]
    covered = sum(estimate.low <= truth <= estimate.high for estimate in estimates)
    assert covered / len(estimates) > 0.9
