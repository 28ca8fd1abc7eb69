"""Findings of claims: primary ones with their conclusion, all others without one."""

from __future__ import annotations

import re
from dataclasses import replace

from folkmoot.kit.claims import claims_finding, describe_claims
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.families import judge_families
from folkmoot.storage.findings import IntervalChart, format_cell

CLAIM = Claim("t.changed", ("b", "a"), family="primary", outcome="changed")


def side(hits: int, n: int, arm: str) -> Side:
    return Side.from_values([i < hits for i in range(n)], [f"{arm}{i}" for i in range(n)])


def results(*counts: tuple[int, str], n: int = 100) -> list[Result]:
    """Claims against 10 % in the second arm, each with its hits and family."""
    claims = {
        replace(CLAIM, contrast=(f"arm{i}", "a"), family=family): hits  # type: ignore[arg-type]
        for i, (hits, family) in enumerate(counts)
    }
    base = side(n // 10, n, "base")
    return judge_families(list(claims), lambda c: (c, side(claims[c], n, "own"), base))


def test_only_primary_claims_have_a_p_and_a_conclusion_in_words() -> None:
    says = describe_claims(results((40, "primary"), (40, "secondary"), (12, "exploratory")))
    assert says == (
        "arm0 − a +30 points (+18 to +41, p < .001): a difference is shown. "
        "The table also has 1 exploratory estimate and 1 secondary estimate, without a conclusion."
    )
    rest = describe_claims(results((40, "secondary"), (12, "exploratory")))
    assert rest == (
        "Estimates without a conclusion: arm0 − a +30 points (+18 to +41); "
        "arm1 − a +2 points (−7 to +11)."
    )


def test_sentence_table_and_chart_hold_the_same_numbers() -> None:
    made = claims_finding(
        "d", "D", results((40, "primary"), (14, "primary"), (30, "exploratory")), axis="changed"
    )
    assert made is not None and isinstance(made.chart, IntervalChart) and made.headline
    told = [dict(zip(made.grid.columns, row, strict=True)) for row in made.grid.rows]
    assert [cells["family"] for cells in told] == ["primary", "primary", "exploratory"]
    assert f"{told[2]['first']} − {told[2]['second']}" not in made.says
    for cells, (label, value, low, high) in zip(told[:2], made.chart.items, strict=True):
        assert label == f"{cells['first']} − {cells['second']}"
        assert (value, low, high) == tuple(
            cells[f"{n}_points"] for n in ("difference", "low", "high")
        )
        said = re.search(
            rf"{re.escape(label)} ([+−]\d+) points \(([+−]\d+) to ([+−]\d+)", made.says
        )
        assert said is not None
        rounded = [int(x.replace("−", "-")) for x in said.groups()]
        assert rounded == [round(100 * x) for x in (value, low, high)]
    # Of the first claim alone a difference is shown, so its joint interval is known by its sign.
    assert (
        told[0]["joint_low_points"] == 0 and told[0]["joint_high_points"] > told[0]["high_points"]
    )
    assert told[1]["joint_low_points"] < 0 and told[2]["joint_low_points"] is None
    assert "by itself, above 0 to +" in made.says


def test_few_units_are_an_illustration_without_interval_p_or_conclusion() -> None:
    made = claims_finding("d", "D", results((3, "primary"), n=4), axis="changed")
    assert made is not None
    assert made.says.endswith("arm0 − a +75 points (no interval): not tested.")
    cells = dict(zip(made.grid.columns, made.grid.rows[0], strict=True))
    assert [cells[n] for n in ("low_points", "high_points", "p", "adjusted_p")] == [None] * 4


def test_claims_that_the_data_do_not_hold_make_no_finding() -> None:
    lacking = judge_families([CLAIM], lambda _: "no table has t.changed and arms")
    assert claims_finding("d", "D", lacking, axis="changed") is None


def test_differences_of_shares_are_in_points_in_tables_too() -> None:
    cells = [("difference_points", 0.127), ("low_points", -0.046), ("high_points", 0.0)]
    assert [format_cell(value, name) for name, value in cells] == ["+12.7", "−4.6", "+0.0"]
