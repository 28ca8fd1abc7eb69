"""CR2 and its degrees of freedom against the figures of R's clubSandwich 0.5.11.

Data: 27 effect sizes from 10 studies, as robumeta's example has them; figures:
`coef_test(rma.uni(effect, variance, mods, method = "FE"), vcov = "CR2", cluster = study)`.
A fit with weights 1/v, v the same within a study, is least squares on rows divided by √v, with
independent errors as the working model.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from folkmoot.measures.inference.clustered import bias_reduced, clustered_coefficient

# study, effect, variance (one a study), within, between
ROWS = np.array(
    [
        (1, -0.0073, 0.19, -1.624, -0.882), (2, 1.3934, 0.209, -0.305, -0.934),
        (2, 2.0386, 0.209, 1.437, -0.934), (2, 0.9493, 0.209, 0.593, -0.934),
        (2, 0.7504, 0.209, -0.724, -0.934), (3, 0.277, 0.163, 0.332, -1.085),
        (3, 0.0764, 0.163, -0.057, -1.085), (4, 0.8485, 0.193, 0.351, -0.32),
        (4, -0.1053, 0.193, -0.283, -0.32), (4, 0.0949, 0.193, 0.162, -0.32),
        (5, 2.1082, 0.076, 0.036, -1.797), (6, 0.5885, 0.133, -0.511, -0.333),
        (6, 1.2319, 0.133, -0.372, -0.333), (6, -0.502, 0.133, -2.254, -0.333),
        (6, 0.5587, 0.133, -1.259, -0.333), (6, 0.8294, 0.133, -1.044, -0.333),
        (7, 3.0638, 0.282, 3.284, -0.201), (7, -0.9789, 0.282, -0.622, -0.201),
        (8, -0.2288, 0.396, -0.445, -0.997), (8, -1.0822, 0.396, -0.992, -0.997),
        (8, -0.5791, 0.396, -2.323, -0.997), (9, -1.9666, 0.214, -0.882, 1.334),
        (9, -1.2482, 0.214, 0.083, 1.334), (10, 0.7104, 0.352, 0.867, -0.882),
        (10, -1.2881, 0.352, -0.993, -0.882), (10, 2.1542, 0.352, 3.247, -0.882),
        (10, 1.1171, 0.352, 0.318, -0.882),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "column", "value", "error", "df", "p"),
    [
        ((), 0, 0.537532180612, 0.259239381735, 6.2235205325, 0.0818056880036),
        ((3,), 0, 0.686335167934, 0.280655998234, 6.90965508294, 0.044843596354),
        ((3,), 1, 0.582738074386, 0.121110337412, 4.17242253386, 0.0077123070105),
        ((3, 4), 0, 0.171966328883, 0.334922729672, 2.84058116353, 0.644887108192),
        ((3, 4), 1, 0.518972905325, 0.166547548578, 4.18221096349, 0.0335693448094),
        ((3, 4), 2, -0.825221607894, 0.2882970912, 2.02871252094, 0.101788286006),
    ],
)  # fmt: skip
def test_coefficients_equal_those_of_clubsandwich(
    columns: tuple[int, ...], column: int, value: float, error: float, df: float, p: float
) -> None:
    weights = 1 / np.sqrt(ROWS[:, 2])
    design = np.column_stack(
        [np.ones(len(ROWS)), *(ROWS[:, design_column] for design_column in columns)]
    )
    estimate = clustered_coefficient(
        ROWS[:, 1] * weights, design * weights[:, None], column, ROWS[:, 0].tolist()
    )
    assert estimate.value == pytest.approx(value, rel=1e-9)
    _, study = np.unique(ROWS[:, 0], return_inverse=True)
    y, x = ROWS[:, 1] * weights, design * weights[:, None]
    coefficient = bias_reduced(y - x @ np.linalg.lstsq(x, y)[0], x, column, study)
    assert coefficient.variance == pytest.approx(error**2, rel=1e-9)
    assert coefficient.df_independent == pytest.approx(df, rel=1e-9)
    assert p == pytest.approx(2 * stats.t.sf(abs(value) / error, df), rel=1e-9)
    # The estimate uses the lower degrees of freedom of the two working models.
    if coefficient.df < 4:  # not tested below 4 degrees of freedom, although the package gives a p
        shown_df, _, rest = estimate.why.partition(" ")
        assert not estimate.has_interval and rest.startswith("degrees of freedom")
        assert 0 <= coefficient.df - float(shown_df) < 0.01 + 1e-9
        return
    assert estimate.p == pytest.approx(2 * stats.t.sf(abs(value) / error, coefficient.df), rel=1e-9)
    assert estimate.high - estimate.value == pytest.approx(
        stats.t.ppf(0.975, coefficient.df) * error, rel=1e-9
    )


def test_equal_clusters_have_equal_degrees_of_freedom_in_both_models() -> None:
    clusters = np.repeat(np.arange(6), 4)
    coefficient = bias_reduced(
        np.random.default_rng(2).normal(size=24), np.ones((24, 1)), 0, clusters
    )
    assert coefficient.df_independent == pytest.approx(5)
    assert coefficient.df_alike == pytest.approx(5)
