"""Findings of incomplete tables: random rows are removed, and no finding raises an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.randomness import generator
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())


class ThinnedRunFolder(RunFolder):
    """A run with fewer rows: each table keeps a random share of its rows, drawn by `seed`."""

    def __init__(self, path: Path, seed: int, shares: tuple[float, ...]) -> None:
        super().__init__(path)
        self.drawn, self.shares = seed, shares

    def read_table(self, name: str) -> pl.DataFrame:
        whole = super().read_table(name)
        rng = generator(self.drawn, (name,))
        left = rng.random(whole.height) < rng.choice(self.shares)
        return whole.filter(pl.Series(left, dtype=pl.Boolean))


@pytest.fixture(scope="module")
def runs(run_of_small_study: Callable[[str], Path]) -> dict[str, Path]:
    return {study: run_of_small_study(study) for study in STUDIES}


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("focus_group", "town_hall", "workbook"), part="truths")
)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_no_finding_needs_a_row(runs: dict[str, Path], study: str, seed: int) -> None:
    thinned = ThinnedRunFolder(runs[study], seed, (0.0, 0.0, 0.02, 0.1, 0.3, 0.6, 1.0, 1.0))
    assert all(finding.says for finding in find_study(study).findings(thinned))


@pytest.mark.parametrize("study", STUDIES)
def test_no_finding_needs_any_row(runs: dict[str, Path], study: str) -> None:
    find_study(study).findings(ThinnedRunFolder(runs[study], 0, (0.0,)))
