"""The kit for findings: estimates as cells, charts and words. Unknown values stay unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date

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

HALF_ESTIMATE = Estimate(0.5, 0.25, 0.75, 20)
ESTIMATE_WITHOUT_INTERVAL = Estimate(-0.312, math.nan, math.nan, 1)
UNKNOWN_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0)
NO_ROWS = ResultTable((), ())


def test_estimates_have_one_format_in_all_scales() -> None:
    assert format_share(HALF_ESTIMATE) == "50 % (25 to 75 %)"
    assert format_points(Estimate(0.12, -0.06, 0.3, 9), "adjusted p = .2") == (
        "+12 points (−6 to +30, adjusted p = .2)"
    )
    assert format_mean(Estimate(1.238, 0.9, 1.576, 9)) == "1.24 (0.90 to 1.58)"
    assert format_change(Estimate(-0.05, -0.11, 0.02, 9)) == "−0.05 (−0.11 to +0.02)"


def test_unknown_values_are_not_numbers() -> None:
    assert format_change(ESTIMATE_WITHOUT_INTERVAL) == "−0.31 (no interval)"
    assert [
        format_estimate(UNKNOWN_ESTIMATE)
        for format_estimate in (format_share, format_points, format_mean, format_change)
    ] == ["unknown"] * 4
    assert estimate_cells(ESTIMATE_WITHOUT_INTERVAL, "gap") == {
        "gap": -0.312,
        "low": None,
        "high": None,
    }
    assert estimate_cells(None, "rate", "_rate") == {
        "rate": None,
        "low_rate": None,
        "high_rate": None,
    }
    assert category_shares({"yes": 0, "no": 0}) == {"yes": None, "no": None}
    assert interval_chart({"a": UNKNOWN_ESTIMATE}) is None
    chart = interval_chart(
        {"a": UNKNOWN_ESTIMATE, "b": ESTIMATE_WITHOUT_INTERVAL, "c": HALF_ESTIMATE}, "gap", zero=0.0
    )
    assert chart is not None
    assert chart.items == (("b", -0.312, -0.312, -0.312), ("c", 0.5, 0.25, 0.75))
    assert wilson_rates({"nobody": (0, 0), "one": (1, 1)}).keys() == {"one"}
    assert is_significant(ESTIMATE_WITHOUT_INTERVAL) is None


def test_significance_follows_p_if_present() -> None:
    """In a run of an older version, interval and p may come from two methods."""
    estimate = Estimate(0.4, 0.1, 0.7, 40, 6, p=0.5)
    assert estimate.excludes_zero and is_significant(estimate) is False
    assert is_significant(replace(estimate, p=math.nan)) is True


def test_an_estimate_is_read_from_json() -> None:
    stored = {"estimate": 0.2, "low": None, "high": None, "p": None, "n": 12, "sets": 4}
    estimate = estimate_from_json(stored, "sets")
    assert (estimate.value, estimate.n, estimate.clusters, estimate.has_interval) == (
        0.2,
        12,
        4,
        False,
    )
    assert math.isnan(estimate.p) and math.isnan(estimate_from_json({"estimate": None}).value)


def test_intervals_of_clustered_shares_stay_between_zero_and_one() -> None:
    hits = [True] * 6 + [False] * 6
    # The odds are 1; their log has a standard error of √.05 / .25 and five degrees of freedom.
    estimate = clustered_share(hits, list("aabbccddeeff"))
    half_width = 2.570582 * math.sqrt(0.05) / 0.25
    assert (estimate.value, estimate.clusters) == (0.5, 6)
    assert estimate.low == pytest.approx(1 / (1 + math.exp(half_width)))
    assert estimate.high == pytest.approx(1 - estimate.low)
    one_cluster = clustered_share(hits, ["a"] * 12)
    assert one_cluster.value == 0.5 and not one_cluster.has_interval


def test_a_finding_with_an_interval_names_its_independent_unit() -> None:
    grid = ResultTable.from_records([estimate_cells(HALF_ESTIMATE, "rate", "_rate")])
    chart = interval_chart({"all": HALF_ESTIMATE})
    for content in ((grid, None), (ResultTable((), ()), chart)):
        with pytest.raises(ValueError, match="independent unit"):
            Finding("f", "F", "", *content)
    finding = Finding("f", "F", format_share(HALF_ESTIMATE), grid, chart, unit="group", units=20)
    assert finding.independent == "Independent unit: group (20)."
    assert not finding.illustrates and finding.says == "50 % (25 to 75 %)"
    assert (
        Finding(
            "f",
            "F",
            "",
            ResultTable.from_records([estimate_cells(ESTIMATE_WITHOUT_INTERVAL, "rate")]),
        ).independent
        == ""
    )
    other_table = ResultTable.from_records([{"people_low": 0.1, "people_high": 0.3}])
    assert Finding("f", "F", "", other_table).grid == other_table


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResultTable(("day",), ((date(2026, 1, 2),),)), "row 1, column day of a Result"),
        (
            lambda: ResultTable(("votes",), ((1,), ([2],))),
            "row 2, column votes of a ResultTable is",
        ),
        (lambda: Finding("a", "A", None, NO_ROWS), "says= of a Finding is a NoneType; pass a text"),
        (lambda: Finding("a", "A", "b.", NO_ROWS, notes="Mind the gap."), "notes= of a Finding is"),
        (lambda: Finding("a", "A", "b.", NO_ROWS, alarms=(5,)), "alarms= of a Finding is no list"),
        (lambda: Finding("a", "A", "b.", None), "grid= of a Finding is a NoneType; pass a Result"),
    ],
)
def test_a_part_of_a_finding_with_a_wrong_class_is_named(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_a_table_keeps_every_key_of_its_records_and_refuses_rows_of_another_length() -> None:
    table = ResultTable.from_records([{"arm": "a"}, {"arm": "b", "rate": 0.5}, {"n": 3}])
    assert table.columns == ("arm", "rate", "n")
    assert table.rows == (("a", None, None), ("b", 0.5, None), (None, None, 3))
    with pytest.raises(ValueError, match="row 2 of a ResultTable has 1 cells in place of 2"):
        ResultTable(("x", "y"), ((1, 2), (3,)))


def test_fewer_than_five_units_are_an_illustration_in_words_table_and_chart() -> None:
    few_units = clustered_mean([0.2, 0.4, 0.9, 0.7], ["a", "a", "b", "c"])
    many_units = Estimate(0.5, 0.1, 0.9, 30, p=0.01)  # has more units than the finding
    grid = ResultTable.from_records(
        [{"of": "x", **estimate_cells(many_units, "rate", "_rate"), "p": 0.01, "holm_p": 0.02}]
    )
    finding = Finding(
        "f",
        "F",
        f"It is {format_mean(few_units)}.",
        grid,
        interval_chart({"x": few_units}),
        unit="group",
        units=3,
    )
    assert finding.says == "An illustration, not evidence: 3 groups. It is 0.55 (no interval)."
    assert finding.grid.rows == (("x", 0.5, None, None, None, None),)
    assert isinstance(finding.chart, IntervalChart)
    assert finding.chart.items == (("x", few_units.value, few_units.value, few_units.value),)
    assert [value for _, value in finding.chart.unit_values] == pytest.approx([0.3, 0.9, 0.7])
    assert finding.notes == ("Each group: x 0.300, 0.900, 0.700.",)
    assert replace(finding, title="G").says == finding.says


@pytest.mark.parametrize("units", range(1, 5))
def test_the_kit_formats_no_interval_of_fewer_than_five_units(units: int) -> None:
    estimate = Estimate(0.5, 0.4, 0.6, 100, units, 0.001)
    assert {
        format_share(estimate), format_points(estimate), format_mean(estimate),
        format_change(estimate),
    } == {
        "50 % (no interval)", "+50 points (no interval)", "0.50 (no interval)",
        "+0.50 (no interval)",
    }  # fmt: skip
    assert (
        is_significant(estimate) is None
        and p_value_words(estimate) == p_value_words(estimate, 0.01) == ""
    )
    assert p_value_cell(estimate) is None and math.isnan(with_adjusted_p({"a": estimate})["a"])
    assert estimate_cells(estimate, "x") == {"x": 0.5, "low": None, "high": None}
    rates = wilson_rates({"a": (1, units)})
    assert "no interval" in format_share(rates["a"])


def test_comparisons_of_a_table_are_adjusted_together() -> None:
    estimates = {
        name: Estimate(0.1, 0.0, 0.2, 50, p=p_value)
        for name, p_value in {"a": 0.01, "b": 0.04}.items()
    }
    estimates["few"] = Estimate(0.1, 0.0, 0.2, 50, 3, 0.001)
    assert with_adjusted_p(estimates) == pytest.approx(
        {"a": 0.02, "b": 0.04, "few": math.nan}, nan_ok=True
    )
    assert (
        p_value_words(estimates["a"], 0.02) == "adjusted p = .020"
        and p_value_words(estimates["a"]) == "p = .010"
    )
    # If the interval agrees only with the unadjusted p, the words show both.
    assert p_value_words(estimates["a"], 0.2) == "p = .010 by itself, adjusted p = .200"


@pytest.mark.parametrize("tiny", [-0.0, -1e-17, 0.004, -0.004])
def test_zero_has_no_sign(tiny: float) -> None:
    assert format_signed(tiny) == format_mean_value(tiny) == "0.00"


def test_the_interaction_matrix_has_no_diagonal() -> None:
    matrix = interaction_matrix(
        {("a", "b"): 2, ("a", "moderator"): 5}, {"a": "Ann", "b": "Bo"}, "replies"
    )
    assert matrix.items == (("Ann", "Bo", 2.0), ("Bo", "Ann", 0.0))


def test_empty_findings_are_left_out_and_the_order_is_kept() -> None:
    first, second = (Finding(key, key, "", ResultTable((), ())) for key in "ab")
    assert collect_findings(None, second, (None, first), []) == [second, first]


def test_equal_clusters_have_an_interval() -> None:
    estimate = clustered_share([True] * 12, [i // 2 for i in range(12)])
    # Six pairs of equal answers are six observations, and not twelve.
    assert estimate.value == estimate.high == 1.0 and estimate.low == wilson(6, 6).low
