"""Tables in which nothing is planted: how often a report would claim something all the same.

400 reports of each study: the tables that its primary claims read are drawn with variation between
people, groups, rounds and conversations and no difference between arms, and the claims are those of
the example's study file. 400 grids: twelve specifications of which none has an effect. At most 28
of 400 may find something, which a true rate of 5 % exceeds in one of 33 counts. The seeds were
fixed before the first count, and the counts are in docs/measures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pytest

from folkmoot.engine.settings.claims import evaluate_claims
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.measures.inference.claims import SUPPORTED, Claim, Result
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.specification_curve import specification_curve
from folkmoot.randomness import generator
from folkmoot.storage.run_folder import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples"
REPORTS = 400
MOST = 28
Rng = np.random.Generator
Tables = Mapping[str, pl.DataFrame]


class InMemory:
    """The part of a run folder from which claims are read."""

    is_finished = True

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def table_names(self) -> list[str]:
        return [*self._tables]

    def has_table(self, name: str) -> bool:
        return name in self._tables

    def scan_table(self, name: str) -> pl.LazyFrame:
        return self._tables[name].lazy()


def claims_of_example(study: str) -> list[Claim]:
    name = "public_goods.xlsx" if study == "workbook" else f"{study}.yaml"
    found = load_study_file(EXAMPLES / name)
    return list(found.study.claims(found.config))


def votes(rng: Rng) -> Tables:
    """60 people in each condition, of whom a share that differs by data set change their choice."""
    arms = ("simple_voting", "simple_passive", "clarified_passive", "acp")
    condition = [arm for arm in arms for _ in range(60)]
    changed = rng.random(len(condition)) < rng.uniform(0.05, 0.4)
    people = {"participant_id": range(len(condition)), "condition": condition}
    status = ["complete"] * len(condition)
    return {"participants": pl.DataFrame({**people, "position_changed": changed, "status": status})}


def private_words(rng: Rng) -> Tables:
    """Eight groups of 8. A talk moves each group somewhere: on average nowhere."""
    group = np.repeat(np.arange(8), 8)
    taste = rng.normal(0, 0.4, 64)
    after = taste + rng.normal(0, 0.2, 8)[group] + rng.normal(0, 0.2, 64)
    before = taste + rng.normal(0, np.sqrt(0.08), 64)
    both = {"before": before, "after": after}
    frames = {
        when: pl.DataFrame(
            {
                "stimulus": "concept",
                "group": [f"group_{g}" for g in group],
                "persona_id": [f"p_{n}" for n in range(64)],
                "when": when,
                "position": np.clip(position, -1, 1),
                "score": np.clip(np.round(3 + 2 * position), 1, 5).astype(int),
                "ladder": False,
            }
        )
        for when, position in both.items()
    }
    table = pl.concat(frames.values())
    return {"statements": table.drop("score", "ladder"), "intents": table.drop("position")}


def content(rng: Rng) -> Tables:
    """Twenty groups; how content they are differs more between groups than between conditions."""
    groups = rng.normal(1, 1, 20)
    rows = [
        {
            "group_id": f"group_{g}",
            "condition": condition,
            "satisfaction": groups[g] + rng.normal(0, 0.5),
            "lowest_satisfaction": groups[g] - 1 + rng.normal(0, 0.8),
            "minority_promised_share": float(rng.integers(0, 4)) / 3,
        }
        for g in range(20)
        for condition in ("C1", "C2", "C3", "C4", "C5")
    ]
    return {"measures": pl.DataFrame(rows)}


def halls(rng: Rng) -> Tables:
    """Eight sets, at four levels. Gaps have a long tail, as sums of few reactions do."""
    sets = rng.normal(0, 0.3, 8)
    rows = [
        {
            "set": s + 1,
            "level": level,
            "part": "main",
            "gap_weighted_inclusivity_score": sets[s] + rng.gamma(2, 0.2) - rng.gamma(2, 0.2),
        }
        for s in range(8)
        for level in ("1", "2-1", "3", "4")
    ]
    return {"discussions": pl.DataFrame(rows)}


def games(rng: Rng) -> Tables:
    """Twelve sessions of 4, half in each treatment, in which members follow each other."""
    rows = []
    for s in range(12):
        habit = rng.normal(5, 1.5)
        for p in range(4):
            given = np.clip(habit + rng.normal(0, 2, 3), 0, 10)
            numbers = {f"payoff_{n + 1}": 10 - x + 0.4 * 4 * x for n, x in enumerate(given)}
            numbers["share_given"] = given.sum() / 30
            rows += [
                {
                    "experiment_id": "public_goods",
                    "session": str(s + 1),
                    "treatment": "appeal" if s % 2 else "plain",
                    "participant_id": f"{s}.{p}",
                    "name": name,
                    "number": float(number),
                }
                for name, number in numbers.items()
            ]
    return {"computed": pl.DataFrame(rows)}


NULL: Mapping[str, Callable[[Rng], Tables]] = {
    "cross_pollination": votes,
    "focus_group": private_words,
    "negotiation": content,
    "town_hall": halls,
    "workbook": games,
}


def primary_results(study: str, claims: list[Claim], seed: int) -> list[Result]:
    """The results of a study's primary claims, judged among all of its claims."""
    tables = NULL[study](generator(seed, ("null claims", study)))
    results = evaluate_claims(cast(RunFolder, InMemory(tables)), claims)
    return [r for r in results if r.claim.family == "primary"]


def false_alarms(study: str, reports: int) -> int:
    """The reports of which a primary claim is supported."""
    claims = claims_of_example(study)
    return sum(
        any(r.verdict == SUPPORTED for r in primary_results(study, claims, seed))
        for seed in range(reports)
    )


@pytest.mark.parametrize("study", NULL)
def test_all_primary_claims_of_a_null_report_can_be_tested(study: str) -> None:
    for seed in range(3):
        found = primary_results(study, claims_of_example(study), seed)
        assert found and all(r.is_tested for r in found), [r.why for r in found]


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("study", NULL)
def test_reports_of_nothing_raise_few_false_alarms(study: str) -> None:
    found = false_alarms(study, REPORTS)
    print(f"{study}: {found} of {REPORTS} null reports support a primary claim")
    assert 0 < found <= MOST


def grid(rng: Rng, people: int, specifications: int, effect: float) -> dict[str, tuple[Side, Side]]:
    """The answers of the same people in all specifications, each of which has noise and a level of
    its own."""
    arms = []
    for arm in (0, 1):
        own = rng.normal(0, 1, people)
        rows = own + rng.normal(0, 1, (specifications, people)) + effect * (arm == 0)
        names = [f"{arm}/{n}" for n in range(people)]
        arms.append([Side.from_values(row, names) for row in rows])
    return {f"wording {n}": pair for n, pair in enumerate(zip(*arms, strict=True))}


DIFFERENT = Claim("score", ("a", "b"), "mean", "different")
GREATER = Claim("score", ("a", "b"), "mean", "greater")


def robust_grids(claim: Claim, grids: int, people: int, effect: float = 0.0) -> int:
    """How many grids of twelve specifications are called robust."""
    found = 0
    for seed in range(grids):
        rng = generator(seed, ("null grids", claim.direction, str(people)))
        found += (
            specification_curve(claim, grid(rng, people, 12, effect)).robustness_word == "robust"
        )
    return found


def test_a_grid_with_an_effect_is_robust_and_its_noise_is_not() -> None:
    assert robust_grids(DIFFERENT, 5, 40, effect=1.5) == 5
    assert robust_grids(GREATER, 5, 40, effect=1.5) == 5
    assert robust_grids(GREATER, 5, 40, effect=-1.5) == 0


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("people", [10, 60])
@pytest.mark.parametrize("claim", [DIFFERENT, GREATER], ids=lambda claim: claim.direction)
def test_grids_of_noise_are_seldom_called_robust(claim: Claim, people: int) -> None:
    found = robust_grids(claim, REPORTS, people)
    print(f"{claim.direction}, {people} people: {found} of {REPORTS} null grids are robust")
    assert found <= MOST
