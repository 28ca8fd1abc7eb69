"""Effects of factors: known effects are estimated, and unidentified ones are left out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.api import OLS

from folkmoot.measures.inference.factorial import factorial

NAMES = ("a", "b", "c")
ALL_CONDITIONS = list(product((False, True), repeat=3))
effects = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=7, max_size=7)


def make_conditions(cells: list[tuple[bool, ...]], per_condition: int = 3) -> dict[str, list[bool]]:
    return {
        name: [cell[i] for cell in cells for _ in range(per_condition)]
        for i, name in enumerate(NAMES)
    }


@given(effects)
def test_all_effects_of_a_full_design_are_estimated(true_effects: list[float]) -> None:
    factor_values = make_conditions(ALL_CONDITIONS)
    a, b, c = (np.array(factor_values[n], float) - 0.5 for n in NAMES)
    columns = (np.ones(len(a)), a, b, c, a * b, a * c, b * c)
    y = sum(x * size for x, size in zip(columns, true_effects, strict=True))
    effects_found = factorial(y, factor_values, range(len(a)))
    assert [estimate.value for estimate in effects_found.main.values()] == pytest.approx(
        true_effects[1:4]
    )
    assert [estimate.value for estimate in effects_found.pairs.values()] == pytest.approx(
        true_effects[4:]
    )


def test_a_main_effect_is_the_average_of_simple_effects() -> None:
    factor_values = {"a": [False, False, True, True] * 2, "b": [False] * 4 + [True] * 4}
    effects_found = factorial([0, 0, 1, 1, 0, 0, 3, 3], factor_values, range(8))
    assert effects_found.main["a"].value == pytest.approx(2)  # 1 without b, 3 with it
    assert effects_found.pairs["a", "b"].value == pytest.approx(2)  # 3 − 1


def test_errors_are_those_of_clustered_least_squares() -> None:
    rng = np.random.default_rng(3)
    factor_values = make_conditions(ALL_CONDITIONS, per_condition=10)
    y = rng.normal(size=80)
    groups = rng.integers(0, 12, 80)
    a, b, c = (np.array(factor_values[n], float) - 0.5 for n in NAMES)
    design = np.column_stack([np.ones(80), a, b, c, a * b, a * c, b * c])
    fitted = OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    effects_found = factorial(y, factor_values, groups.tolist())
    b = effects_found.main["b"]
    # statsmodels uses another small-sample factor, and clusters − 1 degrees of freedom.
    df = float(b.method.split()[-2])
    assert df < 11
    assert b.value == pytest.approx(fitted.params[2])
    assert (b.high - b.value) / stats.t.ppf(0.975, df) == pytest.approx(fitted.bse[2], rel=0.06)


def test_unidentified_effects_are_left_out() -> None:
    nested = [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]
    nested_effects = factorial(range(12), make_conditions(nested), range(12))
    assert (set(nested_effects.main), nested_effects.pairs) == (set(NAMES), {})
    with_c_alone = [*nested, (False, False, True)]
    effects_with_c = factorial(range(15), make_conditions(with_c_alone), range(15))
    assert set(effects_with_c.main) == set(NAMES)
    assert set(effects_with_c.pairs) <= {("a", "c"), ("b", "c")}
    always_together = [(False, False, False), (True, True, False)]
    assert factorial(range(6), make_conditions(always_together), range(6)).main == {}
