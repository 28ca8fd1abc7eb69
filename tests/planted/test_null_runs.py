"""Runs in which nothing is planted: how often the headline test of each study type finds something.

80 runs of each type are in the nightly tests (400 in all). One run of one type is made daily, so
that a test that cannot be made any more is noticed. In each null the arms differ by chance alone,
and by enough of it that a test can reject: with arms that are the same draw, none ever would.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import openpyxl
import pytest
from scipy.stats import binom

import folkmoot
from folkmoot.measures.inference.proportions import wilson
from folkmoot.storage.findings import Finding
from tests.sweeps import sample_daily

EXAMPLES = Path(__file__).parents[2] / "examples"
ALPHA = 0.05
MANY = 80

NULL = {
    # Nobody is persuaded, and two in five answers are a mere draw.
    "cross_pollination": """
pilot_id: nothing
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
participants_per_condition: 40
max_clarification_exchanges: 1
min_responses_for_threshold: 500
revote: true
option_order: random
personas: {source: quota}
respondent: {persuasion: 0, instability: 0.4}
""",
    # Two levels with the same switches: the same residents, asked again.
    "town_hall": """
topic:
  title: Should the quarter be redeveloped?
  background: The city proposes to pull down the old blocks and to build higher ones.
sets: 6
rounds: 2
levels: ["1", "same"]
level_settings: {same: {like: "1", part: main}}
residents: {general: 2}
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
    # C1 takes what the first spouse wishes, C2 is the expectation over the wishes of both: the same
    # on average. (C5 without feedback would be C4 itself.)
    "negotiation": """
conditions: [C1, C2]
group_types: [spouses]
groups_per_type: 11
""",
}
HEADLINE = {
    "cross_pollination": "change_differences",
    "town_hall": "steps",
    "focus_group": "concepts",
    "negotiation": "paired_satisfaction",
    "workbook": "treatment_payoff",
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
        ("experimental_setting", "num_sessions", 12),
        ("constants", "members", "[2]"),
    ):
        row = next(r for r in book[sheet].iter_rows() if r[0].value == key)
        row[1].value = value
    profiles = book["agent_profiles"]  # five sessions and more in each arm
    more = [[c.value for c in row] for row in profiles.iter_rows(min_row=3, max_row=10)]
    for name, *rest in more:
        profiles.append([f"{name} again", *rest])
    (_, plain), (_, appeal) = (row[:2] for row in book["treatments"].iter_rows(min_row=2))
    appeal.value = plain.value
    book.save(path)
    return path


def p_values_of(study: str, findings: Sequence[Finding], column: str) -> list[float]:
    """A column of p-values of the headline test of a run; those of no test are left out."""
    (own,) = (f for f in findings if f.key == HEADLINE[study])
    cells = (row[own.grid.columns.index(column)] for row in own.grid.rows)
    return [cell for cell in cells if isinstance(cell, float)]


def null_runs(study: str, folder: Path, runs: int) -> list[tuple[float, float]]:
    """Of each run the least p of the headline table, adjusted for all of it, and its first p."""
    source = study_file(study, folder)
    found = []
    for seed in range(runs):
        run = folkmoot.run(source, model="synthetic", seed=seed, out=folder / f"run{seed}")
        own = run.findings
        found.append((min(p_values_of(study, own, "adjusted_p")), p_values_of(study, own, "p")[0]))
        shutil.rmtree(run.path)
    return found


@pytest.mark.parametrize(
    "study", sample_daily(HEADLINE, daily=("cross_pollination",), part="seeds")
)
def test_runs_without_planted_effects_have_a_test(study: str, tmp_path: Path) -> None:
    ((adjusted, first),) = null_runs(study, tmp_path, 1)
    assert 0 < first < 1
    assert 0 < adjusted <= 1


@pytest.mark.nightly(part="alarms")
def test_400_null_runs_find_something_as_often_as_the_level_says(tmp_path: Path) -> None:
    rejected = 0
    for study in HEADLINE:
        (tmp_path / study).mkdir()
        found = null_runs(study, tmp_path / study, MANY)
        own = sum(adjusted < ALPHA for adjusted, _ in found)
        low = sum(first < 0.5 for _, first in found)
        e = wilson(own, MANY)
        print(f"{study}: {own} of {MANY} ({e.value:.3f}, {e.low:.3f} to {e.high:.3f}); {low} < .5")
        assert own <= binom.ppf(0.999, MANY, ALPHA), study
        # p is spread evenly: the arms are neither the same draw nor further apart than chance.
        assert binom.ppf(0.0005, MANY, 0.5) <= low <= binom.ppf(0.9995, MANY, 0.5), study
        rejected += own
    runs = MANY * len(HEADLINE)
    print(f"all: {rejected} of {runs}")
    assert binom.ppf(0.001, runs, ALPHA) <= rejected <= binom.ppf(0.999, runs, ALPHA)
