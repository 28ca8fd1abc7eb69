"""Findings of claims: only primary claims have a conclusion."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from folkmoot.kit.claims import claims_finding, describe_claims
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.families import judge_families
from folkmoot.storage.findings import IntervalChart, format_cell

CLAIM = Claim("t.changed", ("b", "a"), family="primary", outcome="changed")


def make_side(hits: int, n: int, condition: str) -> Side:
    return Side.from_values([i < hits for i in range(n)], [f"{condition}{i}" for i in range(n)])


def make_results(*counts: tuple[int, str], n: int = 100) -> list[Result]:
    """Make claims against 10 % in the second condition, each with hits and family."""
    claims = {
        replace(CLAIM, contrast=(f"arm{i}", "a"), family=family): hits  # type: ignore[arg-type]
        for i, (hits, family) in enumerate(counts)
    }
    base = make_side(n // 10, n, "base")
    return judge_families(
        list(claims), lambda claim: (claim, make_side(claims[claim], n, "own"), base)
    )


def test_only_primary_claims_have_a_p_and_a_conclusion_in_words() -> None:
    sentence = describe_claims(
        make_results((40, "primary"), (40, "secondary"), (12, "exploratory"))
    )
    assert sentence == (
        "arm0 − a +30 points (+18 to +41, p < .001): a difference is shown. "
        "The table also has 1 exploratory estimate and 1 secondary estimate, without a conclusion."
    )
    sentence_without_primary = describe_claims(make_results((40, "secondary"), (12, "exploratory")))
    assert sentence_without_primary == (
        "Estimates without a conclusion: arm0 − a +30 points (+18 to +41); "
        "arm1 − a +2 points (−7 to +11)."
    )


def test_sentence_table_and_chart_have_the_same_numbers() -> None:
    finding = claims_finding(
        "d",
        "D",
        make_results((40, "primary"), (14, "primary"), (30, "exploratory")),
        axis="changed",
    )
    assert isinstance(finding.chart, IntervalChart) and finding.headline
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    assert [cells["family"] for cells in rows] == ["primary", "primary", "exploratory"]
    assert f"{rows[2]['first']} − {rows[2]['second']}" not in finding.says
    for cells, (label, value, low, high) in zip(rows[:2], finding.chart.items, strict=True):
        assert label == f"{cells['first']} − {cells['second']}"
        assert (value, low, high) == tuple(
            cells[f"{end}_points"] for end in ("difference", "low", "high")
        )
        match = re.search(
            rf"{re.escape(label)} ([+−]\d+) points \(([+−]\d+) to ([+−]\d+)", finding.says
        )
        assert match is not None
        rounded = [int(number.replace("−", "-")) for number in match.groups()]
        assert rounded == [round(100 * number) for number in (value, low, high)]
    # Only the first claim shows a difference, so its joint interval gives only the sign.
    assert (
        rows[0]["joint_low_points"] == 0 and rows[0]["joint_high_points"] > rows[0]["high_points"]
    )
    assert rows[1]["joint_low_points"] < 0 and rows[2]["joint_low_points"] is None
    assert "by itself, above 0 to +" in finding.says


def test_claims_about_a_share_and_a_mean_keep_their_units() -> None:
    """Both claims compare the same conditions, so that their measures tell them apart."""
    mean_claim = replace(CLAIM, kind="mean", outcome="support")
    sides = {
        CLAIM: (make_side(40, 100, "own"), make_side(10, 100, "base")),
        mean_claim: tuple(
            Side.from_values(
                [level + i % 3 for i in range(100)], [f"{level}.{i}" for i in range(100)]
            )
            for level in (4.0, 2.0)
        ),
    }
    results = judge_families([*sides], lambda claim: (claim, *sides[claim]))  # type: ignore[return-value]
    finding = claims_finding("d", "D", results, axis="difference")
    assert isinstance(finding.chart, IntervalChart) and not finding.chart.percent
    assert [item[:2] for item in finding.chart.items] == [
        ("Changed: b − a", pytest.approx(0.3)),
        ("Support: b − a", pytest.approx(2.0)),
    ]
    assert "Changed: b − a +30 points" in finding.says and "Support: b − a +2.00" in finding.says
    assert finding.grid.columns[0] == "measure"
    assert [row[0] for row in finding.grid.rows] == ["Changed", "Support"]
    secondary = [replace(r, claim=replace(r.claim, family="secondary")) for r in results]
    assert "Support: b − a +2.00" in describe_claims(secondary)


def test_few_units_are_an_illustration_without_interval_p_or_conclusion() -> None:
    finding = claims_finding("d", "D", make_results((3, "primary"), n=4), axis="changed")
    assert finding.says.endswith("arm0 − a +75 points (no interval): not tested.")
    cells = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert [cells[column] for column in ("low_points", "high_points", "p", "adjusted_p")] == [
        None
    ] * 4


def test_claims_without_data_make_a_finding_that_says_why() -> None:
    results = judge_families([CLAIM], lambda _: "no table has t.changed and arms")
    finding = claims_finding("d", "D", results, axis="changed", section="Votes")
    assert (
        finding.says == "Changed: there are no data to compare (no table has t.changed and arms)."
    )
    assert finding.headline and finding.section == "Votes" and not finding.grid.rows
    assert "no comparison is planned" in claims_finding("d", "D", [], axis="changed").says


def test_claims_that_cannot_be_tested_are_named_beside_others_with_the_reason() -> None:
    """The statement names primary claims, and a note names the others."""
    secondary, exploratory = (
        replace(CLAIM, contrast=contrast, family=family)
        for contrast, family in ((("c", "a"), "secondary"), (("d", "a"), "exploratory"))
    )
    sides = (make_side(40, 100, "own"), make_side(10, 100, "base"))
    results = judge_families(
        [CLAIM, secondary, exploratory],
        lambda claim: (claim, *sides) if claim is secondary else "changed is a text",
    )
    finding = claims_finding("d", "D", results, axis="changed")
    assert finding.says.startswith("Changed: b − a unknown (changed is a text): not tested. ")
    assert finding.notes[1:] == ("d − a unknown (changed is a text): not tested.",)
    assert finding.primary and len(finding.grid.rows) == 1


def test_differences_of_shares_are_in_points_in_tables_too() -> None:
    cells = [("difference_points", 0.127), ("low_points", -0.046), ("high_points", 0.0)]
    assert [format_cell(value, name) for name, value in cells] == ["+12.7", "−4.6", "+0.0"]
