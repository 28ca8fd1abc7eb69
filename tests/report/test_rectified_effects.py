"""Intervals of corrected effects contain the true effect. The tests go from tables of a run and a
human file to the printed row: independent humans, groups, and humans in both conditions."""

from __future__ import annotations

from typing import cast

import numpy as np
import polars as pl
import pytest

from folkmoot.randomness import generator
from folkmoot.report.comparison.people import PLANNED_WIDTH, against_people
from folkmoot.report.comparison.samples import Sample
from tests.sweeps import sample_daily

EFFECT = 0.5
GROUP_SIZE = 8  # participants who talk with each other
ICC = 0.3
# Humans answer for the first groups of each condition.
GROUPS, HUMAN_GROUPS = 40, 12
# The humans are independent, in groups, in both conditions, or both of the latter.
DESIGNS = ("alone", "grouped", "within", "within groups")


def draw_tables(design: str, rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Draw a simulated table and a human one, with a rating and a choice in two conditions.

    Answers are similar within groups. The simulation follows humans in part and is biased, by
    more in one condition.
    """
    grouped, within = "group" in design, "within" in design
    n = GROUPS * GROUP_SIZE
    condition_tables = []
    for arm in (0, 1):
        # The same people answer in both conditions, or the second half of the ids do.
        ids = np.arange(n) + (0 if within else n * arm)
        condition_tables.append(pl.DataFrame({"number": ids, "arm": np.full(n, arm)}))
    participants = pl.concat(condition_tables)
    number, arm = (participants[name].to_numpy() for name in ("number", "arm"))
    group = number // GROUP_SIZE
    taste = rng.normal(size=number.max() + 1)[number]
    talk_effects = rng.normal(size=(group.max() + 1, 2))[group, arm]
    group_effects = rng.normal(size=group.max() + 1)[group]
    group_part = np.sqrt(ICC) * (0.7 * group_effects + 0.7 * talk_effects) if grouped else 0
    human_scores = EFFECT * arm + group_part + 0.6 * taste + 0.6 * rng.normal(size=len(arm))
    simulated_scores = 0.6 * human_scores + 0.4 + 0.3 * arm + 0.6 * rng.normal(size=len(arm))
    ids_text = pl.Series([f"p{i:04}" for i in number])
    keys = {
        "participant_id": ids_text,
        "condition": pl.Series(["after" if is_second else "before" for is_second in arm]),
    }
    keys |= {"group": pl.Series([f"g{group_number}" for group_number in group])} if grouped else {}

    def make_table(score: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame({**keys, "score": score, "in_favour": score > 0})

    human_table = make_table(human_scores).filter(pl.Series(number % n < HUMAN_GROUPS * GROUP_SIZE))
    return make_table(simulated_scores), human_table


def rectified_rows(design: str, seed: int) -> list[dict[str, object]]:
    simulated, humans = draw_tables(design, generator(seed, ("rectified effects", design)))
    run = Sample("run", "any", {"participants": simulated}, {}, {})
    file = Sample("people", "people", {"participants": humans}, {}, {})
    findings = {finding.key: finding for finding in against_people(run, file)}
    # The planned interval has a width of a tenth of the spread.
    assert PLANNED_WIDTH == 2 / 20
    (note,) = (note for note in findings["people_rectified"].notes if "People needed" in note)
    assert "a twentieth of a standard deviation to each side" in note
    grid = findings["people_rectified"].grid
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]


def select_effect(rows: list[dict[str, object]], measure: str) -> dict[str, object]:
    (row,) = (row for row in rows if row["measure"] == measure and "−" in str(row["condition"]))
    sign = 1 if str(row["condition"]).casefold().startswith("after") else -1
    low, high, value = (cast(float, row[name]) for name in ("low", "high", "corrected"))
    bounds = sorted((sign * low, sign * high))
    return {**row, "corrected": sign * value, "low": bounds[0], "high": bounds[1]}


def rating_effects(design: str, draws: int) -> list[dict[str, object]]:
    """Return the corrected effect on the rating in each of several data sets."""
    return [select_effect(rectified_rows(design, seed), "score") for seed in range(draws)]


def compute_coverage(effects: list[dict[str, object]]) -> tuple[float, float]:
    """Return the share of data sets with the true effect in the interval of the corrected one, and
    the mean width of its interval."""
    assert all(row["not_corrected_because"] is None for row in effects)
    is_covered = [row["low"] <= EFFECT <= row["high"] for row in effects]  # type: ignore[operator]
    return float(np.mean(is_covered)), float(np.mean([row["high"] - row["low"] for row in effects]))  # type: ignore[operator]


@pytest.mark.parametrize("design", sample_daily(DESIGNS, daily=[*DESIGNS][::2], part="seeds"))
def test_a_corrected_effect_is_near_the_true_one(
    design: str,
) -> None:
    rows = rating_effects(design, 20)
    share, _ = compute_coverage(rows)
    assert share >= 0.8
    # The simulation has six tenths of the effect plus three tenths.
    assert np.mean([row["corrected"] for row in rows]) == pytest.approx(EFFECT, abs=0.1)


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_of_corrected_effects_cover_the_true_one(design: str) -> None:
    share, width = compute_coverage(rating_effects(design, 2_000))
    print(f"{design}: {share:.3f} of corrected effects hold the true one, mean width {width:.2f}")
    assert 0.93 <= share <= 0.97


def test_humans_in_both_conditions_are_compared_within_persons() -> None:
    """Differences within persons vary less than between samples, so the interval is shorter."""
    _, within = compute_coverage(rating_effects("within", 5))
    _, between = compute_coverage(rating_effects("alone", 5))
    assert within < between


def test_corrected_shares_are_in_points_and_groups_are_units() -> None:
    simulated, humans = (
        table.drop("score") for table in draw_tables("grouped", generator(0, ("told",)))
    )
    run = Sample("run", "any", {"participants": simulated}, {}, {})
    findings = {}
    for name, human_table in (
        ("all", humans),
        ("few", humans.filter(pl.col("group").is_in(FEW_GROUPS))),
    ):
        sample = Sample("people", "people", {"participants": human_table}, {}, {})
        findings[name] = {finding.key: finding for finding in against_people(run, sample)}[
            "people_rectified"
        ]
    assert " points (" in findings["all"].says and " %)" in findings["all"].says
    refusal_reasons = {row[-1] for row in findings["few"].grid.rows}
    assert "of the people alone (6 groups; a correction needs 10)" in findings["few"].says
    assert refusal_reasons == {"6 groups; a correction needs 10"}


FEW_GROUPS = [*(f"g{g}" for g in range(6)), *(f"g{GROUPS + g}" for g in range(6))]


@pytest.mark.parametrize(("simulated_count", "is_enough"), [(320, False), (2_000, True)])
def test_people_needed_depend_on_the_number_of_simulated_participants(
    simulated_count: int, is_enough: bool
) -> None:
    """With a human for each of 320 simulated participants, a share has six points to each side."""
    rng = generator(0, ("people needed",))
    human_choices = rng.random(simulated_count) < 0.5
    is_followed = rng.random(simulated_count) < 0.8
    simulated = pl.DataFrame(
        {
            "participant_id": [f"p{number:04}" for number in range(simulated_count)],
            "in_favour": np.where(is_followed, human_choices, ~human_choices),
        }
    )
    humans = simulated.with_columns(in_favour=pl.Series(human_choices)).head(200)
    run = Sample("run", "any", {"participants": simulated}, {}, {})
    people = Sample("people", "people", {"participants": humans}, {}, {})
    findings = {finding.key: finding for finding in against_people(run, people)}
    grid = findings["people_rectified"].grid
    (needed,) = (row[[*grid.columns].index("people_needed")] for row in grid.rows)
    assert (needed is not None) == is_enough
