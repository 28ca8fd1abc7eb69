"""Effects that few people correct hold the true effect, from the tables of a run and a file of
people to the printed row: independent people, people in groups, and people in both conditions."""

from __future__ import annotations

from typing import cast

import numpy as np
import polars as pl
import pytest

from folkmoot.randomness import generator
from folkmoot.report.comparison.people import against_people
from folkmoot.report.comparison.samples import Sample
from tests.sweeps import sample_daily

EFFECT = 0.5
SIZE = 8  # people who talk with each other
ICC = 0.3
# Those in the first groups of an arm are asked as people too.
GROUPS, ASKED = 40, 12
# Design → the columns in which its people share a conversation or answer twice.
DESIGNS = ("alone", "grouped", "within", "within groups")


def draw_tables(design: str, rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A simulated table and one of people, with a rating and a choice in two conditions.

    Answers are alike within groups. The simulation follows people in part and is off on average, by
    more in one condition.
    """
    grouped, within = "group" in design, "within" in design
    n = GROUPS * SIZE
    arms = []
    for arm in (0, 1):
        # The same people answer in both conditions, or the second half of the ids do.
        who = np.arange(n) + (0 if within else n * arm)
        arms.append(pl.DataFrame({"number": who, "arm": np.full(n, arm)}))
    everybody = pl.concat(arms)
    number, arm = (everybody[name].to_numpy() for name in ("number", "arm"))
    group = number // SIZE
    taste = rng.normal(size=number.max() + 1)[number]
    talk = rng.normal(size=(group.max() + 1, 2))[group, arm]
    shared = rng.normal(size=group.max() + 1)[group]
    alike = np.sqrt(ICC) * (0.7 * shared + 0.7 * talk) if grouped else 0
    real = EFFECT * arm + alike + 0.6 * taste + 0.6 * rng.normal(size=len(arm))
    told = 0.6 * real + 0.4 + 0.3 * arm + 0.6 * rng.normal(size=len(arm))
    names = pl.Series([f"p{i:04}" for i in number])
    keys = {
        "participant_id": names,
        "condition": pl.Series(["after" if a else "before" for a in arm]),
    }
    keys |= {"group": pl.Series([f"g{g}" for g in group])} if grouped else {}

    def table(score: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame({**keys, "score": score, "in_favour": score > 0})

    asked = table(real).filter(pl.Series(number % n < ASKED * SIZE))
    return table(told), asked


def rectified_rows(design: str, seed: int) -> list[dict[str, object]]:
    simulated, people = draw_tables(design, generator(seed, ("rectified effects", design)))
    run = Sample("run", "any", {"participants": simulated}, {}, {})
    file = Sample("people", "people", {"participants": people}, {}, {})
    found = {finding.key: finding for finding in against_people(run, file)}
    grid = found["people_rectified"].grid
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]


def effect_of(rows: list[dict[str, object]], measure: str) -> dict[str, object]:
    (row,) = (row for row in rows if row["measure"] == measure and "−" in str(row["condition"]))
    sign = 1 if str(row["condition"]).casefold().startswith("after") else -1
    low, high, value = (cast(float, row[name]) for name in ("low", "high", "corrected"))
    bounds = sorted((sign * low, sign * high))
    return {**row, "corrected": sign * value, "low": bounds[0], "high": bounds[1]}


def rating_effects(design: str, draws: int) -> list[dict[str, object]]:
    """The corrected effect on the rating in each of several data sets."""
    return [effect_of(rectified_rows(design, seed), "score") for seed in range(draws)]


def coverage(found: list[dict[str, object]]) -> tuple[float, float]:
    """The share of data sets in which the corrected effect on the rating holds the true one, and
    the mean width of its interval."""
    assert all(row["not_corrected_because"] is None for row in found)
    held = [row["low"] <= EFFECT <= row["high"] for row in found]  # type: ignore[operator]
    return float(np.mean(held)), float(np.mean([row["high"] - row["low"] for row in found]))  # type: ignore[operator]


@pytest.mark.parametrize("design", sample_daily(DESIGNS, daily=[*DESIGNS][::2], part="seeds"))
def test_a_corrected_effect_is_near_the_true_one_and_not_that_of_the_simulation(
    design: str,
) -> None:
    rows = rating_effects(design, 20)
    share, _ = coverage(rows)
    assert share >= 0.8
    # Six tenths of the effect and three tenths more are what the simulation says.
    assert np.mean([row["corrected"] for row in rows]) == pytest.approx(EFFECT, abs=0.1)


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("design", DESIGNS)
def test_corrected_effects_hold_the_true_one_in_at_least_93_of_100_data_sets(design: str) -> None:
    share, width = coverage(rating_effects(design, 2_000))
    print(f"{design}: {share:.3f} of corrected effects hold the true one, mean width {width:.2f}")
    assert 0.93 <= share <= 0.97


def test_people_in_both_conditions_are_compared_with_themselves() -> None:
    """Their own differences vary less than two samples do, so the interval is shorter."""
    _, within = coverage(rating_effects("within", 5))
    _, between = coverage(rating_effects("alone", 5))
    assert within < between


def test_a_share_is_told_in_points_and_a_group_is_a_unit() -> None:
    simulated, people = (
        table.drop("score") for table in draw_tables("grouped", generator(0, ("told",)))
    )
    run = Sample("run", "any", {"participants": simulated}, {}, {})
    found = {}
    for name, file in (("all", people), ("few", people.filter(pl.col("group").is_in(FEW)))):
        sample = Sample("people", "people", {"participants": file}, {}, {})
        found[name] = {f.key: f for f in against_people(run, sample)}["people_rectified"]
    assert " points (" in found["all"].says and " %)" in found["all"].says
    refused = {row[-1] for row in found["few"].grid.rows}
    assert "of the people alone (6 groups; a correction needs 10)" in found["few"].says
    assert refused == {"6 groups; a correction needs 10"}


FEW = [*(f"g{g}" for g in range(6)), *(f"g{GROUPS + g}" for g in range(6))]
