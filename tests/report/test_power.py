"""Power reports: the published figures in words, and designs of every study type."""

from __future__ import annotations

from types import SimpleNamespace as Config

import pytest

from folkmoot.records.findings import Finding
from folkmoot.report.power import Layout, layout_of, power_report
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig


def pilot(per: int) -> CrossPollinationConfig:
    return CrossPollinationConfig.model_validate(
        {
            "pilot_id": "p",
            "topic": {"description": "d", "options": ["a", "b", "c"]},
            "participants_per_condition": per,
        }
    )


def cell(finding: Finding, column: str, row: int) -> object:
    return finding.grid.rows[row][finding.grid.columns.index(column)]


def test_pilot_of_300_per_condition():
    smallest, chances, needed = power_report(pilot(300))
    assert smallest.headline
    assert "4 conditions of 300 participants" in smallest.says
    assert "0.2287" in smallest.notes[0]
    # From 10 %, h = .2287: sin²(asin √.1 + .2287/2) = .1781.
    assert cell(smallest, "seen_from_rate", 1) == pytest.approx(0.1781, abs=5e-4)
    assert cell(smallest, "holm_from_rate", 1) > cell(smallest, "seen_from_rate", 1)
    assert cell(chances, "plus_10_points_rate", 1) == pytest.approx(0.935214, abs=1e-6)
    assert "94 %" in chances.says
    assert cell(needed, "plus_10_points", 1) == 195


def test_more_participants_see_smaller_differences():
    small, large = (power_report(pilot(n))[0] for n in (50, 500))
    for row in range(5):
        assert cell(large, "difference_rate", row) < cell(small, "difference_rate", row)


def test_one_participant_sees_nothing_and_does_not_break():
    (found, *_) = power_report(pilot(1))
    assert "cannot be distinguished from chance" in found.says


def test_sets_are_the_units_of_a_paired_design():
    config = Config(sets=20, levels=["1", "2-1", "3", "4"], residents=Config(general=16))
    assert layout_of(config) == Layout("paired", 4, 20, 20, "set")
    paired, clusters = power_report(config, Config(title="Town hall"))
    # Paired t test: 20 sets see .66 standard deviations.
    assert "20 sets" in paired.says
    assert "0.66 standard deviations" in paired.says
    assert cell(clusters, "worth_participants", 0) == pytest.approx(400)
    assert cell(clusters, "worth_participants", 2) == pytest.approx(400 / 1.95)


def test_sessions_of_a_workbook_cost_power():
    settings = Config(num_sessions=40, num_agents_per_session=4)
    config = Config(workbook=Config(settings=settings, treatments=("a", "b")))
    assert layout_of(config) == Layout("clustered", 2, 20, 4, "session")
    (found,) = power_report(config)
    worth = [cell(found, "worth_participants", row) for row in range(len(found.grid.rows))]
    assert worth[0] == 80
    assert worth == sorted(worth, reverse=True)


def test_groups_and_replications():
    groups = Config(groups_per_type=4, group_types=("a", "b"), groups=None, conditions=("C1", "C2"))
    assert layout_of(groups) == Layout("paired", 2, 8, 6, "group")
    single = Config(replications=1, num_personas=8, stimuli=None)
    assert "cannot be distinguished from chance" in power_report(single)[0].says


def test_unknown_design_still_helps():
    (found,) = power_report(Config(), Config(title="My study"))
    assert "My study" in found.says
    assert len(found.grid.rows) > 3
    own = Config(layout=Layout("independent", 2, 100))
    assert "2 conditions of 100" in power_report(own)[0].says
