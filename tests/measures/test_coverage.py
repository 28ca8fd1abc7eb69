"""How often intervals of few clusters hold the truth: what the docs claim of them."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.measures.clustered import clustered_difference, clustered_mean

pytestmark = pytest.mark.nightly
DRAWS = 2_000


def drawn(rng: np.random.Generator, groups: int, equal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values around zero (n,) with half of their variance between groups, and their groups."""
    sizes = np.full(groups, 8) if equal else 2 + 3 * np.arange(groups) % 17
    of = np.repeat(np.arange(groups), sizes)
    return rng.normal(size=groups)[of] + rng.normal(size=len(of)), of


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("groups", [5, 8, 12])
def test_means_and_differences_of_few_clusters_are_covered(groups: int, equal: bool) -> None:
    rng = np.random.default_rng(groups)
    within, between = [], []
    for _ in range(DRAWS):
        y, of = drawn(rng, groups, equal)
        mean = clustered_mean(y, of.tolist())
        within.append(mean.low <= 0 <= mean.high)
        gap = clustered_difference(y, of % 2 == 0, of.tolist())
        between.append(gap.low <= 0 <= gap.high)
    assert 0.935 <= np.mean(within) <= 0.975, np.mean(within)
    assert 0.935 <= np.mean(between) <= 0.985, np.mean(between)
