"""Effects of switches: what was put in comes out, and what arms cannot tell apart is left out."""

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
EIGHT = list(product((False, True), repeat=3))
effects = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=7, max_size=7)


def arms(cells: list[tuple[bool, ...]], each: int = 3) -> dict[str, list[bool]]:
    return {name: [cell[i] for cell in cells for _ in range(each)] for i, name in enumerate(NAMES)}


@given(effects)
def test_of_all_eight_arms_every_effect_comes_out(planted: list[float]) -> None:
    on = arms(EIGHT)
    a, b, c = (np.array(on[n], float) - 0.5 for n in NAMES)
    columns = (np.ones(len(a)), a, b, c, a * b, a * c, b * c)
    y = sum(x * size for x, size in zip(columns, planted, strict=True))
    found = factorial(y, on, range(len(a)))
    assert [e.value for e in found.main.values()] == pytest.approx(planted[1:4])
    assert [e.value for e in found.pairs.values()] == pytest.approx(planted[4:])


def test_a_main_effect_is_the_average_of_the_simple_ones() -> None:
    on = {"a": [False, False, True, True] * 2, "b": [False] * 4 + [True] * 4}
    found = factorial([0, 0, 1, 1, 0, 0, 3, 3], on, range(8))
    assert found.main["a"].value == pytest.approx(2)  # 1 without b, 3 with it
    assert found.pairs["a", "b"].value == pytest.approx(2)  # 3 − 1


def test_errors_are_those_of_least_squares_clustered() -> None:
    rng = np.random.default_rng(3)
    on = arms(EIGHT, each=10)
    y = rng.normal(size=80)
    groups = rng.integers(0, 12, 80)
    a, b, c = (np.array(on[n], float) - 0.5 for n in NAMES)
    design = np.column_stack([np.ones(80), a, b, c, a * b, a * c, b * c])
    fitted = OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    found = factorial(y, on, groups.tolist())
    b = found.main["b"]
    # statsmodels takes another small-sample factor and the clusters less one as degrees of freedom.
    df = float(b.method.split()[-2])
    assert df < 11
    assert b.value == pytest.approx(fitted.params[2])
    assert (b.high - b.value) / stats.t.ppf(0.975, df) == pytest.approx(fitted.bse[2], rel=0.06)


def test_what_the_arms_cannot_tell_apart_is_left_out() -> None:
    nested = [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]
    found = factorial(range(12), arms(nested), range(12))
    assert (set(found.main), found.pairs) == (set(NAMES), {})
    with_c_alone = [*nested, (False, False, True)]
    more = factorial(range(15), arms(with_c_alone), range(15))
    assert set(more.main) == set(NAMES)
    assert set(more.pairs) <= {("a", "c"), ("b", "c")}
    always_together = [(False, False, False), (True, True, False)]
    assert factorial(range(6), arms(always_together), range(6)).main == {}
