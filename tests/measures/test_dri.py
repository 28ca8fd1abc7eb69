"""The Deliberative Reason Index: the published small example and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from folkmoot.measures.dri import consistency, group_dri

# Computed with the R functions of deliberr 6bcba3c (MIT).
C = [[1, 2, 3, 4], [2, 3, 2, 3], [3, 4, 4, 3], [4, 3, 2, 1]]
P = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]


def test_a_small_example_equals_published_values():
    pairs = consistency(C, P)
    assert pairs.reasons == pytest.approx([0.4472135955, 0, -1, 0, -0.4472135955, 0])
    assert pairs.preferences == pytest.approx([-0.5, -0.5, -1, -0.5, 0.5, 0.5])
    assert group_dri(pairs) == pytest.approx(-0.131475730333)
    assert group_dri(pairs, adjusted=False) == pytest.approx(-0.131475730333)


def test_reasons_that_match_preferences_give_one():
    table = [[1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4]]
    pairs = consistency(table, table)
    assert group_dri(pairs) == pytest.approx(1.0)
    assert group_dri(pairs, adjusted=False) == pytest.approx(1.0)


def test_opposite_preferences_give_the_original_minimum():
    pairs = consistency([[1, 2, 3], [1, 2, 3]], [[1, 2, 3], [3, 2, 1]])
    # d = 2/sqrt 2: (1 - d - lambda) / (1 - lambda) * 2 - 1 = -3
    assert group_dri(pairs, adjusted=False) == pytest.approx(-3.0)


def test_uncorrelated_answers_are_not_consistent_in_the_adjusted_index():
    # Spearman is 0 for both: perfect in the original index, no weight in the adjusted one.
    uncorrelated = [[1, 2, 3, 4], [2, 4, 1, 3]]
    pairs = consistency(uncorrelated, uncorrelated)
    assert pairs.reasons == pytest.approx([0.0])
    assert group_dri(pairs, adjusted=False) == pytest.approx(1.0)
    assert group_dri(pairs) == pytest.approx(2 * (-(1 - 0.5**0.5) / 0.5**0.5) - 1)


def test_constant_and_missing_answers_are_counted_but_not_scored():
    c = np.array([[1.0, 2, 3], [2, 2, 2], [3, 2, 1], [1, np.nan, 2]])
    p = np.array([[1.0, 2, 3], [1, 2, 3], [3, 2, 1], [1, 3, 2]])
    pairs = consistency(c, p)
    assert pairs.undefined == 5
    assert group_dri(pairs) == pytest.approx(1.0)


def test_empty_columns_are_dropped_and_empty_groups_are_nan():
    with_empty_column = np.column_stack([np.array(C, float), np.full(4, np.nan)])
    assert group_dri(consistency(with_empty_column, P)) == pytest.approx(-0.131475730333)
    assert math.isnan(group_dri(consistency([[1, 2]], [[1, 2]])))
    with pytest.raises(ValueError, match="people"):
        consistency(C, P[:2])
