"""Power reports: the published figures in words, and designs of every study type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.measures.inference.power import DesignSize, detectable_share, power_two_shares
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.report.comparison.power import NORMAL_NOTE, power_report
from folkmoot.storage.findings import Finding

EXAMPLES = Path(__file__).parents[2] / "examples"


def find_design_size(example: str, *overrides: str) -> DesignSize | None:
    study_file = load_study_file(EXAMPLES / example, overrides)
    return study_file.study.size(study_file.config, study_file.study_folder)


def find_pilot_size(per: int) -> DesignSize | None:
    return find_design_size("cross_pollination.yaml", f"participants_per_condition={per}")


def read_cell(finding: Finding, column: str, row: int) -> object:
    return finding.grid.rows[row][finding.grid.columns.index(column)]


def test_the_power_of_few_participants_is_called_too_high():
    """All pairs of counts of 25 participants: Newcombe's interval finds 5 to 10 % more rarely."""
    counts = np.arange(26)
    chances = [binom.pmf(counts, 25, share) for share in (0.1, 0.05)]
    power = sum(
        chances[0][first] * chances[1][second]
        for first in counts
        for second in counts
        if newcombe(int(first), 25, int(second), 25).excludes_zero
    )
    assert power_two_shares(0.1, 0.05, 25) > power + 0.05
    few_participants, *_ = power_report(find_pilot_size(25))
    assert NORMAL_NOTE in few_participants.notes


def test_power_of_300_participants_per_condition():
    smallest_effects, power_table, needed_sizes = power_report(find_pilot_size(300), claim_count=3)
    assert smallest_effects.headline
    assert "4 conditions of 300 participants" in smallest_effects.says
    assert "0.2287" in smallest_effects.notes[0]
    assert NORMAL_NOTE not in smallest_effects.notes
    # From 10 %, h = .2287: sin²(asin √.1 + .2287/2) = .1781.
    assert read_cell(smallest_effects, "seen_from_rate", 1) == pytest.approx(0.1781, abs=5e-4)
    # The level is that of three primary claims, and not of the six pairs of conditions.
    assert read_cell(smallest_effects, "holm_from_rate", 1) == pytest.approx(
        detectable_share(0.1, 300, 0.05 / 3)
    )
    assert read_cell(smallest_effects, "holm_from_rate", 1) > read_cell(
        smallest_effects, "seen_from_rate", 1
    )
    assert "for 3 primary claims" in smallest_effects.says
    assert read_cell(power_table, "plus_10_points_rate", 1) == pytest.approx(0.935214, abs=1e-6)
    assert "94 %" in power_table.says
    assert read_cell(needed_sizes, "plus_10_points", 1) == 195


def test_more_participants_detect_smaller_differences():
    small, large = (power_report(find_pilot_size(n))[0] for n in (50, 500))
    for row in range(5):
        assert read_cell(large, "difference_points", row) < read_cell(
            small, "difference_points", row
        )


@pytest.mark.parametrize(
    ("example", "overrides"),
    [
        ("cross_pollination.yaml", ("conditions=[simple_voting]",)),
        ("town_hall.yaml", ('levels=["1"]',)),
    ],
)
def test_a_design_with_one_condition_has_no_other_condition(example, overrides):
    size = find_design_size(example, *overrides)
    (finding, *_) = power_report(size)
    assert size is not None and size.arms == 1
    assert "1 condition" in finding.says and "1 conditions" not in finding.says
    assert finding.says.endswith("the figures hold for two runs of this size.")


def test_one_participant_per_condition_detects_nothing():
    (finding, *_) = power_report(find_pilot_size(1))
    assert "cannot be distinguished from chance" in finding.says


@pytest.mark.parametrize(
    "participants, says",
    [
        (2, "no difference is detected with a power of 80 %, however many change in another."),
        (
            3,
            "a difference is detected with a power of 80 % when 99 % or more change in another; at "
            "the strictest level for 3 primary claims, none is detected.",
        ),
    ],
)
def test_a_design_that_detects_no_difference_says_so(participants, says):
    (finding, *_) = power_report(find_pilot_size(participants), claim_count=3)
    assert finding.says.endswith(f"If 10 % change in one condition, {says}")


def test_small_sessions_that_detect_no_change_say_so():
    (finding,) = power_report(DesignSize("clustered", 2, 2, 1, "session"))
    assert finding.says.endswith(
        "and no rate is detected as different from 10 % with a power of 80 %."
    )


def test_sets_are_the_units_of_a_paired_design():
    size = find_design_size(
        "town_hall.yaml", "sets=20", "levels=[1, 2-1, 3, 4]", "residents.general=16"
    )
    assert size == DesignSize("paired", 4, 20, 20, "set")  # with four vulnerable residents
    paired, clusters = power_report(size, "Town hall: who is heard")
    # Paired t test: 20 sets see .66 standard deviations.
    assert paired.says.startswith("Town hall: 20 sets")
    assert "0.66 standard deviations" in paired.says
    assert read_cell(clusters, "worth_participants", 0) == pytest.approx(400)
    assert read_cell(clusters, "worth_participants", 2) == pytest.approx(400 / 1.95)


def test_clustering_in_sessions_reduces_power():
    assert find_design_size("public_goods.xlsx") == DesignSize("clustered", 2, 2, 4, "session")
    (finding,) = power_report(DesignSize("clustered", 2, 20, 4, "session"))
    worth = [read_cell(finding, "worth_participants", row) for row in range(len(finding.grid.rows))]
    assert worth[0] == 80
    assert worth == sorted(worth, reverse=True)


def test_groups_and_replications():
    generated_groups = find_design_size(
        "negotiation.yaml", "groups_per_type=2", "group_types=[spouses]"
    )
    assert generated_groups is not None
    assert (generated_groups.kind, generated_groups.units, generated_groups.unit_name) == (
        "paired",
        2,
        "group",
    )
    listed_groups = find_design_size("negotiation.yaml", "groups=negotiation_groups.yaml")
    assert listed_groups is not None and listed_groups.units == (
        EXAMPLES / "negotiation_groups.yaml"
    ).read_text("utf-8").count("- id:")
    single_group = find_design_size("focus_group.yaml", "replications=1")
    assert "cannot be distinguished from chance" in power_report(single_group)[0].says


def test_an_unknown_design_gives_a_general_table():
    (finding,) = power_report(None, "My study")
    assert "My study" in finding.says
    assert len(finding.grid.rows) > 3
    design = DesignSize("independent", 2, 100)
    assert "2 conditions of 100" in power_report(design)[0].says
