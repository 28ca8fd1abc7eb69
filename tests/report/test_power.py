"""Power reports: the published figures in words, and designs of every study type."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.measures.inference.power import DesignSize, detectable_share
from folkmoot.report.comparison.power import power_report
from folkmoot.storage.findings import Finding

EXAMPLES = Path(__file__).parents[2] / "examples"


def size_of(example: str, *overrides: str) -> DesignSize | None:
    found = load_study_file(EXAMPLES / example, overrides)
    return found.study.size(found.config, found.study_folder)


def pilot(per: int) -> DesignSize | None:
    return size_of("cross_pollination.yaml", f"participants_per_condition={per}")


def cell(finding: Finding, column: str, row: int) -> object:
    return finding.grid.rows[row][finding.grid.columns.index(column)]


def test_pilot_of_300_per_condition():
    smallest, chances, needed = power_report(pilot(300), claim_count=3)
    assert smallest.headline
    assert "4 conditions of 300 participants" in smallest.says
    assert "0.2287" in smallest.notes[0]
    # From 10 %, h = .2287: sin²(asin √.1 + .2287/2) = .1781.
    assert cell(smallest, "seen_from_rate", 1) == pytest.approx(0.1781, abs=5e-4)
    # The level is that of three primary claims, and not of the six pairs of conditions.
    assert cell(smallest, "holm_from_rate", 1) == pytest.approx(
        detectable_share(0.1, 300, 0.05 / 3)
    )
    assert cell(smallest, "holm_from_rate", 1) > cell(smallest, "seen_from_rate", 1)
    assert "for 3 primary claims" in smallest.says
    assert cell(chances, "plus_10_points_rate", 1) == pytest.approx(0.935214, abs=1e-6)
    assert "94 %" in chances.says
    assert cell(needed, "plus_10_points", 1) == 195


def test_more_participants_see_smaller_differences():
    small, large = (power_report(pilot(n))[0] for n in (50, 500))
    for row in range(5):
        assert cell(large, "difference_points", row) < cell(small, "difference_points", row)


def test_one_participant_sees_nothing_and_does_not_break():
    (found, *_) = power_report(pilot(1))
    assert "cannot be distinguished from chance" in found.says


def test_sets_are_the_units_of_a_paired_design():
    size = size_of("town_hall.yaml", "sets=20", "levels=[1, 2-1, 3, 4]", "residents.general=16")
    assert size == DesignSize("paired", 4, 20, 20, "set")  # with four vulnerable residents
    paired, clusters = power_report(size, "Town hall: who is heard")
    # Paired t test: 20 sets see .66 standard deviations.
    assert paired.says.startswith("Town hall: 20 sets")
    assert "0.66 standard deviations" in paired.says
    assert cell(clusters, "worth_participants", 0) == pytest.approx(400)
    assert cell(clusters, "worth_participants", 2) == pytest.approx(400 / 1.95)


def test_sessions_of_a_workbook_cost_power():
    assert size_of("public_goods.xlsx") == DesignSize("clustered", 2, 2, 4, "session")
    (found,) = power_report(DesignSize("clustered", 2, 20, 4, "session"))
    worth = [cell(found, "worth_participants", row) for row in range(len(found.grid.rows))]
    assert worth[0] == 80
    assert worth == sorted(worth, reverse=True)


def test_groups_and_replications():
    made_up = size_of("negotiation.yaml", "groups_per_type=2", "group_types=[spouses]")
    assert made_up is not None
    assert (made_up.kind, made_up.units, made_up.unit_name) == ("paired", 2, "group")
    own = size_of("negotiation.yaml", "groups=negotiation_groups.yaml")
    assert own is not None and own.units == (EXAMPLES / "negotiation_groups.yaml").read_text(
        "utf-8"
    ).count("- id:")
    single = size_of("focus_group.yaml", "replications=1")
    assert "cannot be distinguished from chance" in power_report(single)[0].says


def test_unknown_design_still_helps():
    (found,) = power_report(None, "My study")
    assert "My study" in found.says
    assert len(found.grid.rows) > 3
    own = DesignSize("independent", 2, 100)
    assert "2 conditions of 100" in power_report(own)[0].says
