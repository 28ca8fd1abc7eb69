"""Compare levels: paired differences within sets, computed by hand, and the supplementary part."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import norm, t

from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall import STUDY
from folkmoot.studies.town_hall.config import BUILT_IN
from folkmoot.studies.town_hall.measures import Json, compare_all_levels
from folkmoot.studies.town_hall.tables import FIGURES
from tests.studies.town_hall.hall_script import (
    answer_plainly,
    parse_address,
    run_hall,
    small_hall,
)

SCORES = {  # set → level → (vulnerable, general)
    1: {"2-1": (1.0, 2.0), "3": (1.5, 2.0), "2-2": (0.0, 0.0)},
    2: {"2-1": (2.0, 2.0), "3": (2.9, 2.1), "2-2": (1.0, 0.0)},
    3: {"2-1": (0.5, 1.0), "3": (0.9, 1.0), "2-2": (2.0, 0.0)},
}


Discussion = dict[str, int | str | float | None]


def make_discussion(
    set_no: int, level: str, vulnerable: float | None, general: float | None
) -> Discussion:
    gap = None if vulnerable is None or general is None else vulnerable - general
    groups = {"vulnerable": vulnerable, "general": general, "gap": gap}
    figures = {f"{group}_{name}": v for group, v in groups.items() for name in FIGURES}
    return {"set": set_no, "level": level, **figures}


def table(results: list[Discussion]) -> pl.DataFrame:
    return pl.DataFrame(results, infer_schema_length=None)


@pytest.fixture(scope="module")
def compared() -> Json:
    levels = [BUILT_IN[name] for name in ("2-1", "2-2", "3")]
    results = [
        make_discussion(s, name, *both) for s, row in SCORES.items() for name, both in row.items()
    ]
    return compare_all_levels(levels, table(results))


FIGURE = "weighted_inclusivity_score"


def test_the_mean_of_a_level_is_over_sets(compared: Json) -> None:
    found = compared["main"]["levels"]["2-1"]["figures"][FIGURE]
    assert found["vulnerable"]["estimate"] == pytest.approx(3.5 / 3)
    assert found["gap"]["estimate"] == pytest.approx((-1.0 + 0.0 - 0.5) / 3)
    assert found["gap"]["sets"] == 3


def test_differences_are_within_sets_with_t_over_sets(compared: Json) -> None:
    (step,) = compared["main"]["differences"]
    assert (step["from"], step["to"]) == ("2-1", "3")
    assert step["switches_changed"] == ["models"] and step["consecutive"]
    assert step["figures"][FIGURE]["gap"]["estimate"] == pytest.approx((0.5 + 0.8 + 0.4) / 3)
    moved = (0.5, 0.9, 0.4, 0.6, 0.1)  # mean .5, standard deviation √.085
    results = [
        make_discussion(n, level, value, 0.0)
        for n, to in enumerate(moved, 1)
        for level, value in (("2-1", 1.0), ("3", 1.0 + to))
    ]
    (step,) = compare_all_levels([BUILT_IN["2-1"], BUILT_IN["3"]], table(results))["main"][
        "differences"
    ]
    found, error = step["figures"][FIGURE]["vulnerable"], (0.085 / 5) ** 0.5
    assert found["estimate"] == pytest.approx(0.5) and found["sets"] == 5
    assert found["low"] == pytest.approx(0.5 - t.ppf(0.975, 4) * error)
    assert found["high"] == pytest.approx(0.5 + t.ppf(0.975, 4) * error)
    assert found["p"] == pytest.approx(2 * t.sf(0.5 / error, 4))


def test_three_sets_have_their_own_values_and_neither_interval_nor_test(
    compared: Json,
) -> None:
    found = compared["main"]["differences"][0]["figures"][FIGURE]["vulnerable"]
    assert (found["low"], found["high"], found["p"]) == (None, None, None)
    assert found["each"] == pytest.approx([0.5, 0.9, 0.4])


def test_the_replication_is_apart(compared: Json) -> None:
    assert list(compared["main"]["levels"]) == ["2-1", "3"]
    assert list(compared["supplementary"]["levels"]) == ["2-2"]
    steps = [(d["from"], d["to"]) for d in compared["supplementary"]["differences"]]
    assert steps == [("2-1", "2-2"), ("3", "2-2")]


def test_a_figure_that_a_set_does_not_have_is_left_out_of_pairs() -> None:
    levels = [BUILT_IN["2-1"], BUILT_IN["3"]]
    results = [
        make_discussion(1, "2-1", 1.0, 1.0),
        make_discussion(1, "3", 2.0, 1.0),
        make_discussion(2, "2-1", None, 1.0),
        make_discussion(2, "3", 4.0, 1.0),
    ]
    found = compare_all_levels(levels, table(results))["main"]
    difference = found["differences"][0]["figures"][FIGURE]["vulnerable"]
    assert (difference["estimate"], difference["sets"]) == (1.0, 1)
    assert difference["low"] is None and difference["p"] is None
    assert found["levels"]["3"]["figures"][FIGURE]["vulnerable"]["estimate"] == 3.0


def test_a_share_over_few_sets_has_the_interval_of_log_odds_and_of_equal_sets_wilsons() -> None:
    shares = (1.0, 1.0, 1.0, 1.0, 0.75, 0.75)
    results = [
        make_discussion(n, level, value, 0.0)
        for n, share in enumerate(shares)
        for level, value in (("2-1", share), ("3", 1.0))
    ]
    found = compare_all_levels([BUILT_IN["2-1"], BUILT_IN["3"]], table(results))["main"]
    rate = "opinion_reflection_rate"
    passed = found["levels"]["2-1"]["figures"][rate]["vulnerable"]
    # The mean is 11 / 12, the variance over sets 1 / 60; a t interval would reach from .78 to 1.05.
    middle, reach = math.log(11), t.ppf(0.975, 5) * math.sqrt(1 / 360) * 144 / 11
    assert passed["estimate"] == pytest.approx(11 / 12)
    assert passed["low"] == pytest.approx(1 / (1 + math.exp(reach - middle)))
    assert passed["high"] == pytest.approx(1 / (1 + math.exp(-reach - middle)))
    all_passed = found["levels"]["3"]["figures"][rate]["vulnerable"]
    square = norm.ppf(0.975) ** 2
    assert (all_passed["estimate"], all_passed["high"]) == (1.0, 1.0)
    assert all_passed["low"] == pytest.approx(6 / (6 + square))
    # The difference within sets is paired, and no bound is beyond what a difference can be.
    step = found["differences"][0]["figures"][rate]["vulnerable"]
    assert step["low"] == pytest.approx(1 / 12 - t.ppf(0.975, 5) * math.sqrt(1 / 360))
    assert -1 <= step["low"] <= step["high"] <= 1


def test_satisfaction_is_a_mean_over_sets_in_every_table(tmp_path: Path) -> None:
    # In set 1 the three general residents go from 4 to 8. In set 2 they begin at 4, one answers 2
    # after the discussion, and the others take a way out.
    def answer(request: ModelRequest, address: str) -> str:
        stage, who, _ = key = parse_address(address)
        if stage not in ("before", "after") or who not in ("A01", "A02", "A03"):
            return json.dumps(answer_plainly(key, request))
        in_set = address.partition("_")[0]
        after = 8 if in_set == "set01" else 2 if who == "A01" else "declined"
        return json.dumps({"satisfaction": 4 if stage == "before" else after, "reason": "so"})

    settings = small_hall(tmp_path) | {"sets": 2}
    run = run_hall(tmp_path, settings, ScriptedProvider(answer))
    findings = {finding.key: finding for finding in STUDY.findings(run.folder)}
    satisfaction, measures = findings["satisfaction"], findings["all_measures"]
    row = next(row for row in satisfaction.grid.rows if row[1] == "general")
    values = dict(zip(satisfaction.grid.columns, row, strict=True))
    assert [values[name] for name in ("before", "after", "change")] == [4.0, 5.0, 1.0]
    figures = {
        row[0]: dict(zip(measures.grid.columns, row, strict=True))["general"]
        for row in measures.grid.rows
    }
    names = ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    assert [figures[name] for name in names] == [4.0, 5.0, 1.0]
    assert satisfaction.notes[0].startswith("Means over sets of the mean in each set.")
