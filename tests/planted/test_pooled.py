"""A grid of real runs: the pooled interval holds the planted truth as often as it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.grid import RunGrid, run_grid
from folkmoot.report.comparison.pooled import (
    Figure,
    _collect_figures,
    findings_of_cells,
    overall_estimate,
)
from tests.planted.audit import Audit

STUDY = """
study: cross_pollination
pilot_id: planted
topic:
  description: Your city can fund one purpose this year. Which shall it be?
  options: [Park improvements, Youth job training, Street safety]
participants_per_condition: 40
revote: true
personas: {source: quota}
"""
REPEATS, POOLED = 150, 5
NAMES = {
    "simple_voting": "Simple voting",
    "simple_passive": "Simple passive",
    "clarified_passive": "Clarified passive",
}


def differences(grid: RunGrid) -> Iterator[tuple[str, Figure]]:
    """Condition → the difference of the dialogue to it in all cells."""
    cells = findings_of_cells(grid)
    usable = [(cell, found) for cell in grid.cells if (found := cells[cell.name]) is not None]
    figures = {f.label: f for f in _collect_figures(usable) if f.finding == "change_differences"}
    for condition, name in NAMES.items():
        yield condition, figures[f"Adversarial (ACP) − {name}"]


@pytest.mark.nightly(part="seeds")
def test_pooled_intervals_of_real_runs_hold_the_planted_truth(tmp_path: Path) -> None:
    """150 repeats, pooled by fives: 30 intervals for each of three planted effects."""
    (tmp_path / "study.yaml").write_text(STUDY)
    how = RunOptions(out=tmp_path / "grid", model="synthetic")
    grid = run_grid(tmp_path / "study.yaml", how, {}, REPEATS)
    truths = [Audit(run).truth() for _, run in grid.finished_cells().values()]
    planted = {c: np.mean([t["acp"] - t[c] for t in truths]) for c in NAMES}
    held, off = [], {}
    for condition, figure in differences(grid):
        truth = planted[condition]
        off[condition] = np.mean([c.value for c in figure.cells]) - truth
        for first in range(0, REPEATS, POOLED):
            e = overall_estimate(replace(figure, cells=figure.cells[first : first + POOLED]))
            held.append(e.low <= truth <= e.high)
    print(f"planted {planted}, off by {off}, held {sum(held)} of {len(held)}")
    # Bias is held to .6 points at 300 a condition; at 40 the summaries hold fewer arguments.
    assert max(map(abs, off.values())) <= 0.03
    # The three effects share their people: 30 independent grids, not 90.
    pools = REPEATS // POOLED
    least, most = (binom.ppf(q, pools, 0.95) / pools for q in (0.005, 0.995))
    assert least <= np.mean(held) <= most
