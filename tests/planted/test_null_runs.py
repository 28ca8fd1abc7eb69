"""Runs in which nothing is planted: how often the headline test of each study type finds something.

80 runs of each type are in the nightly tests (400 in all); a few of each run always, so that a test
that cannot be made any more is noticed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import openpyxl
import pytest
from scipy.stats import binom

import folkmoot
from folkmoot.storage.findings import Finding

EXAMPLES = Path(__file__).parents[2] / "examples"
ALPHA = 0.05
MANY, FEW = 80, 2

NULL = {
    "cross_pollination": """
pilot_id: nothing
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
participants_per_condition: 20
min_responses_for_threshold: 500
revote: true
option_order: random
personas: {source: quota}
respondent: {persuasion: 0}
""",
    # Two levels with the same switches.
    "town_hall": """
topic:
  title: Should the quarter be redeveloped?
  background: The city proposes to pull down the old blocks and to build higher ones.
sets: 6
rounds: 2
levels: ["1", "same"]
level_settings: {same: {like: "1", part: main}}
residents: {general: 3}
max_vote_items: 2
""",
    # The same concept twice.
    "focus_group": """
product_concept: An oven that scans ready meals and cooks them by itself
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
num_personas: 4
phases: [reaction]
max_responses_per_question: 4
questions_per_phase: 1
replications: 6
stimuli:
  - {name: one, product_concept: An oven that reads}
  - {name: two, product_concept: An oven that reads}
""",
    # Without feedback the last condition is the one before it; people answer at random half of the
    # time, or all members would be as content in both.
    "negotiation": """
conditions: [C4, C5]
group_types: [spouses]
groups_per_type: 6
enable_feedback: false
respondent: {instability: 0.5}
""",
}


def study_file(study: str, folder: Path) -> Path:
    """A study file in which no arm differs from another."""
    if study in NULL:
        path = folder / f"{study}.yaml"
        path.write_text(f"study: {study}\n{NULL[study]}", "utf-8")
        return path
    path = folder / "nothing.xlsx"
    shutil.copy(EXAMPLES / "public_goods.xlsx", path)
    book = openpyxl.load_workbook(path)
    for sheet, key, value in (
        ("experimental_setting", "num_agents_per_session", 2),
        ("experimental_setting", "num_sessions", 8),
        ("constants", "members", "[2]"),
    ):
        row = next(r for r in book[sheet].iter_rows() if r[0].value == key)
        row[1].value = value
    (_, plain), (_, appeal) = (row[:2] for row in book["treatments"].iter_rows(min_row=2))
    appeal.value = plain.value
    book.save(path)
    return path


def p_values_of(study: str, findings: Sequence[Finding]) -> list[float]:
    """The adjusted p-values of the headline test of a run; those of no test are left out."""
    keys = {
        "cross_pollination": ("change_differences",),
        "town_hall": ("steps",),
        "focus_group": ("concepts",),
        "negotiation": ("paired_satisfaction",),
        "workbook": ("treatment_payoff",),
    }[study]
    own = [f for f in findings if f.key in keys]
    assert own, f"{study} has no finding {keys}"
    if study == "workbook":  # which says it in words alone
        said = (re.search(r"\bp ([=<]) (\d?\.\d+)", f.says) for f in own)
        return [float(found[2]) - 1e-9 * (found[1] == "<") for found in said if found]
    columns = [(f.grid, f.grid.columns.index("holm_p")) for f in own]
    cells = [row[at] for grid, at in columns for row in grid.rows]
    return [cell for cell in cells if isinstance(cell, float)]


def null_runs(study: str, folder: Path, runs: int) -> tuple[int, int]:
    """(runs with a test, runs in which the test rejects)."""
    source = study_file(study, folder)
    tested = rejected = 0
    for seed in range(runs):
        out = folder / f"run{seed}"
        found = folkmoot.run(source, model="synthetic", seed=seed, out=out).findings()
        ps = p_values_of(study, found)
        tested, rejected = tested + bool(ps), rejected + any(p < ALPHA for p in ps)
        shutil.rmtree(out)
    return tested, rejected


@pytest.mark.parametrize(
    ("study", "runs"),
    [
        *((study, FEW) for study in (*NULL, "workbook")),
        *(pytest.param(study, MANY, marks=pytest.mark.nightly) for study in (*NULL, "workbook")),
    ],
)
def test_where_nothing_is_planted_nothing_is_found_more_often_than_the_level_says(
    study: str, runs: int, tmp_path: Path
) -> None:
    tested, rejected = null_runs(study, tmp_path, runs)
    print(f"{study}: {rejected} of {tested} null runs rejected ({runs} made)")
    assert tested > 0.8 * runs
    assert rejected <= binom.ppf(0.999, tested, ALPHA)
