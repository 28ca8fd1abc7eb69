"""The kit for findings: one estimate as cells, chart and words; the unknown stays unknown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from folkmoot.kit.findings import (
    category_shares,
    collect_findings,
    estimate_cells,
    estimate_from_json,
    format_change,
    format_mean,
    format_mean_value,
    format_points,
    format_share,
    format_signed,
    interaction_matrix,
    interval_chart,
    is_significant,
    p_value_cell,
    p_value_words,
    wilson_rates,
    with_adjusted_p,
)
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.proportions import wilson
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable

HALF = Estimate(0.5, 0.25, 0.75, 20)
BARE = Estimate(-0.312, math.nan, math.nan, 1)
UNKNOWN = Estimate(math.nan, math.nan, math.nan, 0)


def test_an_estimate_reads_alike_in_every_scale() -> None:
    assert format_share(HALF) == "50 % (25 to 75 %)"
    assert format_points(Estimate(0.12, -0.06, 0.3, 9), "adjusted p = .2") == (
        "+12 points (−6 to +30, adjusted p = .2)"
    )
    assert format_mean(Estimate(1.238, 0.9, 1.576, 9)) == "1.24 (0.90 to 1.58)"
    assert format_change(Estimate(-0.05, -0.11, 0.02, 9), "groups as units") == (
        "−0.05 (−0.11 to +0.02, groups as units)"
    )


def test_the_unknown_is_never_a_number() -> None:
    assert format_change(BARE) == "−0.31 (no interval)"
    assert [
        word(UNKNOWN) for word in (format_share, format_points, format_mean, format_change)
    ] == ["unknown"] * 4
    assert estimate_cells(BARE, "gap") == {"gap": -0.312, "low": None, "high": None}
    assert estimate_cells(None, "rate", "_rate") == {
        "rate": None,
        "low_rate": None,
        "high_rate": None,
    }
    assert category_shares({"yes": 0, "no": 0}) == {"yes": None, "no": None}
    assert interval_chart({"a": UNKNOWN}) is None
    chart = interval_chart({"a": UNKNOWN, "b": BARE, "c": HALF}, "gap", zero=0.0)
    assert chart is not None
    assert chart.items == (("b", -0.312, -0.312, -0.312), ("c", 0.5, 0.25, 0.75))
    assert wilson_rates({"nobody": (0, 0), "one": (1, 1)}).keys() == {"one"}
    assert is_significant(BARE) is None


def test_significance_goes_by_p_where_there_is_one() -> None:
    """A run of an older version can hold an interval and a p of two methods."""
    excludes = Estimate(0.4, 0.1, 0.7, 40, 6, p=0.5)
    assert excludes.excludes_zero and is_significant(excludes) is False
    assert is_significant(replace(excludes, p=math.nan)) is True


def test_an_estimate_kept_in_a_file_comes_back() -> None:
    kept = {"estimate": 0.2, "low": None, "high": None, "p": None, "n": 12, "sets": 4}
    e = estimate_from_json(kept, "sets")
    assert (e.value, e.n, e.clusters, e.has_interval) == (0.2, 12, 4, False)
    assert math.isnan(e.p) and math.isnan(estimate_from_json({"estimate": None}).value)


def test_shares_of_people_who_talked_stay_within_what_a_share_can_be() -> None:
    hits = [True] * 6 + [False] * 6
    # The odds are 1; their log has a standard error of √.05 / .25 and five degrees of freedom.
    e = clustered_share(hits, list("aabbccddeeff"))
    reach = 2.570582 * math.sqrt(0.05) / 0.25
    assert (e.value, e.clusters) == (0.5, 6)
    assert e.low == pytest.approx(1 / (1 + math.exp(reach)))
    assert e.high == pytest.approx(1 - e.low)
    alone = clustered_share(hits, ["a"] * 12)
    assert alone.value == 0.5 and not alone.has_interval


def test_a_finding_with_an_interval_names_its_independent_unit() -> None:
    grid = ResultTable.from_records([estimate_cells(HALF, "rate", "_rate")])
    chart = interval_chart({"all": HALF})
    for some in ((grid, None), (ResultTable((), ()), chart)):
        with pytest.raises(ValueError, match="independent unit"):
            Finding("f", "F", "", *some)
    named = Finding("f", "F", format_share(HALF), grid, chart, unit="group", units=20)
    assert named.independent == "Independent unit: group (20)."
    assert not named.illustrates and named.says == "50 % (25 to 75 %)"
    assert (
        Finding("f", "F", "", ResultTable.from_records([estimate_cells(BARE, "rate")])).independent
        == ""
    )
    people = ResultTable.from_records([{"people_low": 0.1, "people_high": 0.3}])
    assert Finding("f", "F", "", people).grid == people


def test_fewer_than_five_units_are_an_illustration_in_words_table_and_chart() -> None:
    few = clustered_mean([0.2, 0.4, 0.9, 0.7], ["a", "a", "b", "c"])
    wide = Estimate(0.5, 0.1, 0.9, 30, p=0.01)  # of more units than the finding as a whole
    grid = ResultTable.from_records(
        [{"of": "x", **estimate_cells(wide, "rate", "_rate"), "p": 0.01, "holm_p": 0.02}]
    )
    made = Finding(
        "f",
        "F",
        f"It is {format_mean(few)}.",
        grid,
        interval_chart({"x": few}),
        unit="group",
        units=3,
    )
    assert made.says == "An illustration, not evidence: 3 groups. It is 0.55 (no interval)."
    assert made.grid.rows == (("x", 0.5, None, None, None, None),)
    assert isinstance(made.chart, IntervalChart)
    assert made.chart.items == (("x", few.value, few.value, few.value),)
    assert [value for _, value in made.chart.unit_values] == pytest.approx([0.3, 0.9, 0.7])
    assert made.notes == ("Each group: x 0.300, 0.900, 0.700.",)
    assert replace(made, title="G").says == made.says


@pytest.mark.parametrize("units", range(1, 5))
def test_no_word_of_the_kit_tells_an_interval_of_fewer_than_five_units(units: int) -> None:
    sure = Estimate(0.5, 0.4, 0.6, 100, units, 0.001)
    assert {format_share(sure), format_points(sure), format_mean(sure), format_change(sure)} == {
        "50 % (no interval)", "+50 points (no interval)", "0.50 (no interval)",
        "+0.50 (no interval)",
    }  # fmt: skip
    assert is_significant(sure) is None and p_value_words(sure) == p_value_words(sure, 0.01) == ""
    assert p_value_cell(sure) is None and math.isnan(with_adjusted_p({"a": sure})["a"])
    assert estimate_cells(sure, "x") == {"x": 0.5, "low": None, "high": None}
    few = wilson_rates({"a": (1, units)})
    assert "no interval" in format_share(few["a"])


def test_all_comparisons_of_a_table_are_adjusted_together() -> None:
    some = {n: Estimate(0.1, 0.0, 0.2, 50, p=x) for n, x in {"a": 0.01, "b": 0.04}.items()}
    some["few"] = Estimate(0.1, 0.0, 0.2, 50, 3, 0.001)
    assert with_adjusted_p(some) == pytest.approx(
        {"a": 0.02, "b": 0.04, "few": math.nan}, nan_ok=True
    )
    assert (
        p_value_words(some["a"], 0.02) == "adjusted p = .020"
        and p_value_words(some["a"]) == "p = .010"
    )
    # Where the interval agrees with p alone, the words show both.
    assert p_value_words(some["a"], 0.2) == "p = .010 by itself, adjusted p = .200"


@pytest.mark.parametrize("tiny", [-0.0, -1e-17, 0.004, -0.004])
def test_nothing_has_no_sign(tiny: float) -> None:
    assert format_signed(tiny) == format_mean_value(tiny) == "0.00"


def test_who_to_whom_holds_everybody_but_nobody_with_themselves() -> None:
    heat = interaction_matrix(
        {("a", "b"): 2, ("a", "moderator"): 5}, {"a": "Ann", "b": "Bo"}, "replies"
    )
    assert heat.items == (("Ann", "Bo", 2.0), ("Bo", "Ann", 0.0))


def test_findings_that_have_nothing_to_say_are_left_out_in_order() -> None:
    a, b = (Finding(key, key, "", ResultTable((), ())) for key in "ab")
    assert collect_findings(None, b, (None, a), []) == [b, a]


def test_clusters_that_all_say_the_same_leave_room_for_others() -> None:
    e = clustered_share([True] * 12, [i // 2 for i in range(12)])
    # Six equal pairs are six observations, and not twelve.
    assert e.value == e.high == 1.0 and e.low == wilson(6, 6).low
