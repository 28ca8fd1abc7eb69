"""Power of claims, computed by the decision rule and simulated."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student_t
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.settings.hypotheses import Hypothesis
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.measures.inference.claims import Claim, judge
from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.estimates import format_percent
from folkmoot.measures.inference.power import DesignSize
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.measures.inference.simultaneous import DirectionalTests, decide_jointly
from folkmoot.report.comparison.power import claim_power, people_power, primary_claims
from folkmoot.report.comparison.simulated_power import (
    Job,
    TrialOutcome,
    Trials,
    run_trial,
    simulated_power,
)
from folkmoot.storage.findings import Finding, TableCell
from tests.contract.small import SMALL
from tests.engine.test_hypotheses import compute_hypotheses_finding

HYPOTHESES = """
hypotheses:
  - {measure: position_changed, contrast: [acp, simple_voting], direction: greater, expected: 0.2}
"""


def make_hypothesis(**changes: object) -> Hypothesis:
    defaults = {"measure": "position_changed", "contrast": ["b", "a"], "direction": "greater"}
    return Hypothesis.model_validate({**defaults, **changes})


def make_claim(**changes: Any) -> Claim:
    return replace(
        Claim("participants.position_changed", ("b", "a"), direction="greater", family="primary"),
        **changes,
    )


def make_mean_claim(**changes: Any) -> Claim:
    return make_claim(measure="participants.warmth", kind="mean", **changes)


def read_cells(finding: Finding) -> dict[str, TableCell]:
    return dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))


def write_study_file(folder: Path, other_keys: str = HYPOTHESES) -> Path:
    path = folder / "study.yaml"
    path.write_text(f"study: cross_pollination\n{SMALL['cross_pollination']}{other_keys}", "utf-8")
    return path


@pytest.mark.parametrize(
    ("direction", "expected", "smallest"),
    [
        ("greater", 0.15, 0.0),
        ("greater", 0.2, 0.05),
        ("less", -0.2, 0.0),
        ("different", -0.2, 0.0),
        ("equivalent", 0.0, 0.12),
        ("equivalent", -0.1, 0.2),
        ("greater", -0.1, 0.0),
        ("less", 0.2, 0.0),
        ("less", -0.9, 0.7),
        ("different", -0.3, 0.05),
    ],
)
def test_power_equals_the_share_of_supported_samples(
    direction: str, expected: float, smallest: float
) -> None:
    n, runs = 120, 1500
    tested_claim = make_claim(direction=direction, margin=smallest)
    finding = claim_power([tested_claim], DesignSize("independent", 2, n), [expected])
    power = read_cells(finding)["power_rate"]
    assert isinstance(power, float)
    base_share = 0.9 if expected < 0 else 0.1
    other_share = base_share + expected
    assert f" points from {format_percent(base_share)} in " in finding.says
    rng = np.random.default_rng(5)
    samples = np.column_stack(
        [rng.binomial(n, other_share, runs), rng.binomial(n, base_share, runs)]
    )
    pairs, counts = np.unique(samples, axis=0, return_counts=True)  # most pairs occur many times
    verdicts = [
        judge(
            tested_claim.direction,
            tested_claim.margin,
            newcombe(int(hits1), n, int(hits2), n),
            0.05,
        )
        for hits1, hits2 in pairs
    ]
    supported = np.array(verdicts) == "supported"
    assert power == pytest.approx(counts[supported].sum() / runs, abs=0.05)


def test_a_claim_without_an_expectation_has_a_detectable_difference() -> None:
    size = DesignSize("independent", 2, 300)
    finding = claim_power([make_claim()], size)
    assert "a power of 80 % from +8 points on, from 10 % in a" in finding.says
    assert read_cells(finding)["units_needed"] is None
    finding_with_margin = claim_power([make_claim(margin=0.05)], size)
    assert "from +13 points on" in finding_with_margin.says
    assert (
        "0.23 standard deviations of the participants"
        in claim_power([make_mean_claim()], size).says
    )
    finding_of_sets = claim_power(
        [make_mean_claim(unit="set")], DesignSize("paired", 4, 20, 1, "set")
    )
    assert "0.66 standard deviations of the differences" in finding_of_sets.says


def test_the_needed_units_give_the_requested_power() -> None:
    """The power is the share of simulated samples with the verdict "supported"."""
    small_design = DesignSize("independent", 2, 50)
    for direction, margin, true_difference in (("greater", 0.1, 0.2), ("equivalent", 0.1, 0.0)):
        cells = read_cells(
            claim_power([make_claim(direction=direction, margin=margin)], small_design)
        )
        n = cells["units_needed"]
        assert isinstance(n, int) and cells["units_in_design"] == 50
        rng = np.random.default_rng(3)
        samples = np.column_stack(
            [rng.binomial(n, 0.1 + true_difference, 800), rng.binomial(n, 0.1, 800)]
        )
        verdicts = [
            judge(direction, margin, newcombe(int(hits1), n, int(hits2), n))
            for hits1, hits2 in samples
        ]
        assert np.mean(np.array(verdicts) == "supported") == pytest.approx(0.8, abs=0.05)
    # Cohen (1988): half a standard deviation needs 64 in each group, or 34 pairs.
    assert (
        read_cells(claim_power([make_mean_claim(margin=1.0)], small_design))["units_needed"] == 64
    )
    design_of_sets = DesignSize("paired", 4, 5, 1, "set")
    cells = claim_power([make_mean_claim(margin=1.0, unit="set")], design_of_sets)
    assert read_cells(cells)["units_needed"] == 34
    assert "(34 sets in each arm needed, 5 in this design)" in cells.says
    # With an ICC of .05, a session of five is worth 5 / 1.2 participants.
    sessions = DesignSize("clustered", 2, 20, 5, "session")
    independent_units = read_cells(claim_power([make_claim(margin=0.1)], small_design))[
        "units_needed"
    ]
    clustered_units = read_cells(
        claim_power([make_claim(margin=0.1, unit="session")], sessions, iccs=[0.05])
    )
    assert clustered_units["units_needed"] == math.ceil(int(str(independent_units)) * 1.2 / 5)


def share_of_supported_equivalences(
    design: DesignSize, units: int, margin: float, difference: float, alpha: float
) -> float:
    """Return how often the decision rule of a report supports an equivalence of means.

    All lengths are in standard deviations: of paired differences, or within each condition.
    """
    rng = np.random.default_rng(4)
    is_paired = design.kind == "paired"
    first = rng.normal(difference, 1, (4000, units))
    second = np.zeros_like(first) if is_paired else rng.normal(0, 1, first.shape)
    variances = [side.var(axis=1, ddof=1) / units for side in (first, second)]
    quantile = student_t.ppf(1 - alpha / 2, (units - 1) * (1 if is_paired else 2))
    halves = quantile * np.sqrt(variances[0] + variances[1])
    estimates = first.mean(axis=1) - second.mean(axis=1)
    supported = np.abs(estimates) + halves <= margin
    # The intervals are those of the report.
    second_units = range(units) if is_paired else range(units, 2 * units)
    for sample in range(3):
        sides = (
            Side.from_values(first[sample], range(units)),
            Side.from_values(second[sample], second_units),
        )
        estimate = estimate_difference(*sides, "mean", 1 - alpha)
        assert estimate.high - estimate.low == pytest.approx(2 * halves[sample])
        verdict = judge("equivalent", margin, estimate, alpha)
        assert (verdict == "supported") == supported[sample]
    return float(supported.mean())


@pytest.mark.parametrize(
    "design",
    [DesignSize("paired", 2, 8, 1, "set"), DesignSize("independent", 2, 8)],
    ids=["paired", "independent"],
)
@pytest.mark.parametrize("expected", [None, 0.1, -0.1], ids=str)
def test_the_power_of_an_equivalence_of_means_is_that_of_its_rule(
    design: DesignSize, expected: float | None
) -> None:
    """The power is that at a true difference within the margin. Beyond it, the claim is false."""
    other = make_mean_claim(direction="greater")
    tested_claim = make_mean_claim(direction="equivalent", margin=0.4)
    finding = claim_power([other, tested_claim], design, [None, expected])
    stated = re.search(
        r"less than 0\.4: a power of 80 % at a true difference of (\S+) if the margin is at least "
        r"(\S+) standard deviations of the (.+?) \((\d+) \w+ in each arm needed",
        finding.says,
    )
    assert stated is not None, finding.says
    difference, margin, quantity, needed = stated.groups()
    assert float(difference.replace("−", "-")) == (expected or 0.0)
    assert quantity == ("differences of sets" if design.kind == "paired" else "participants")
    ratio = (expected or 0.0) / 0.4
    for units, size in ((8, float(margin)), (int(needed), 0.5)):
        share = share_of_supported_equivalences(design, units, size, ratio * size, 0.05 / 2)
        assert share == pytest.approx(0.8, abs=0.03)
    assert finding.grid.rows[1][finding.grid.columns.index("units_needed")] == int(needed)


def test_an_equivalence_that_is_expected_to_be_false_has_no_power() -> None:
    for design in (DesignSize("paired", 2, 20, 1, "set"), DesignSize("independent", 2, 200)):
        tested_claim = make_mean_claim(direction="equivalent", margin=0.4)
        finding = claim_power([tested_claim], design, [0.4])
        assert "which is not within the margin" in finding.says
        assert read_cells(finding)["units_needed"] is None


def test_the_needed_units_of_an_equivalence_of_shares_fit_its_power() -> None:
    tested_claim = make_claim(direction="equivalent", margin=0.12)
    size = DesignSize("independent", 2, 50)
    units = read_cells(claim_power([tested_claim], size, [-0.05]))["units_needed"]
    assert isinstance(units, int)
    enough, too_few = (
        read_cells(claim_power([tested_claim], replace(size, units=n), [-0.05]))["power_rate"]
        for n in (units, units - max(2, units // 100))
    )
    assert float(str(too_few)) < 0.8 <= float(str(enough))


def test_several_claims_share_the_level() -> None:
    size = DesignSize("independent", 2, 100)
    one_claim = read_cells(claim_power([make_claim()], size, [0.2]))["power_rate"]
    three_claims = read_cells(
        claim_power([make_claim(), make_claim(), make_claim()], size, [0.2] * 3)
    )
    assert float(str(three_claims["power_rate"])) < float(str(one_claim))
    # The last step of Holm's method has the whole level.
    assert three_claims["power_at_most_rate"] == one_claim


@pytest.mark.parametrize(
    "other_directions", [("greater",), ("less",), ("different",), ("greater", "different")]
)
def test_the_largest_power_of_an_equivalence_follows_the_joint_decision(
    other_directions: tuple[str, ...],
) -> None:
    """The other claims are always supported. A claim of any difference has the more useful sign."""
    size = DesignSize("independent", 2, 200)
    claims = [make_claim(direction=direction) for direction in other_directions]
    claims.append(make_claim(direction="equivalent", margin=0.1))
    finding = claim_power(claims, size, [0.2] * len(other_directions) + [0.0])
    most = finding.grid.rows[-1][finding.grid.columns.index("power_at_most_rate")]
    se = math.sqrt(2 * 0.1 * 0.9 / 200)

    def interval_at(estimate: float, level: float) -> tuple[float, float]:
        half = NormalDist().inv_cdf((1 + level) / 2) * se
        return estimate - half, estimate + half

    def share_supported(signs: tuple[int, ...]) -> float:
        certain = [
            DirectionalTests(
                0.0,
                0.0,
                0.0 if sign > 0 else 1.0,
                1.0 if sign > 0 else 0.0,
                partial(interval_at, sign * 1.0),
                is_mirrored=direction == "less",
            )
            for sign, direction in zip(signs, other_directions, strict=True)
        ]
        supported = 0
        estimates = np.random.default_rng(1).normal(0, se, 2000)
        for estimate in estimates:
            both = DirectionalTests(
                0.0, 0.0, 1.0, 1.0, partial(interval_at, float(estimate)), keeps_share=True
            )
            *_, result = decide_jointly([*certain, both])
            assert result is not None
            supported += result.interval.low > -0.1 and result.interval.high < 0.1
        return supported / len(estimates)

    signs_of = {"greater": (1,), "less": (-1,), "different": (1, -1)}
    possible = itertools.product(*(signs_of[direction] for direction in other_directions))
    assert most == pytest.approx(max(map(share_supported, possible)), abs=0.025)


def test_limits_of_computed_power_are_reported() -> None:
    finding_of_few_units = claim_power(
        [make_mean_claim(unit="group")], DesignSize("paired", 2, 3, 8, "group")
    )
    assert "not tested: an illustration of 3 groups" in finding_of_few_units.says
    assert "--simulate" in claim_power([make_claim()], None).says
    size = DesignSize("independent", 2, 100)
    unknown = make_hypothesis(measure="x").as_claim()
    assert (
        "its table is known only after a run: use --simulate" in claim_power([unknown], size).says
    )
    finding_of_draws = claim_power([make_claim(unit="draw of the summaries")], size)
    assert "which only --simulate takes into account" in finding_of_draws.says
    assert "is not a rate" in claim_power([make_claim()], size, [0.95]).says


def test_the_number_of_humans_for_a_width_equals_a_hand_calculation() -> None:
    """(2 · 1.96 · .5 / .1)² humans are needed without correlation, 1 − r² times as many with r, and
    1 + 7 · .05 times as many in groups of eight. An effect needs twice as many per condition."""
    rows = people_power(0.1).grid.rows
    assert rows[0] == (0.0, 385, 769, 1537)
    assert rows[2][:2] == (0.5, math.ceil(384.16 * 0.75))
    grouped_rows = people_power(0.1, DesignSize("paired", 2, 6, 8, "group"), [0.05]).grid.rows
    assert grouped_rows[0][1] == math.ceil(384.16 * 1.35)


@pytest.mark.parametrize("study", sorted(SMALL))
def test_the_claims_of_every_study_type_have_a_power(study: str, tmp_path: Path) -> None:
    path = tmp_path / f"{study}.yaml"
    path.write_text(f"study: {study}\n{SMALL[study]}", "utf-8")
    claims, expected = primary_claims(load_study_file(path))
    result = CliRunner().invoke(app, ["power", str(path), "--width", "0.2"], env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    assert "People to ask beside the simulation" in result.output
    assert "10 points to each side of a share" in result.output
    assert ("The primary claims of this study" in result.output) == bool(claims)
    for primary_claim in claims:
        assert primary_claim.says in result.output and primary_claim.unit in result.output
    assert expected == [None] * len(claims)
    assert CliRunner().invoke(app, ["power", str(path), "--width", "2"]).exit_code == 2


def test_a_trial_equals_a_run_with_its_size_and_seed(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)
    size = ("participants_per_condition=8", "conditions=[simple_voting, acp]")
    job = Job(path, (*size, "extra_conditions=[]"), "8", 7)
    run = folkmoot.run(
        path, model="synthetic", seed=7, out=tmp_path / "run", overrides=job.overrides
    )
    grid = compute_hypotheses_finding(
        run.folder, [make_hypothesis(contrast=["acp", "simple_voting"])]
    ).grid
    outcome = run_trial(job)
    column_index = grid.columns.index
    assert outcome == TrialOutcome(
        "8", (grid.rows[0][column_index("verdict")],), (grid.rows[0][column_index("difference")],)
    )


@pytest.mark.nightly(part="truths")
def test_larger_samples_and_effects_give_more_power(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)

    def simulate_power(sizes: str, persuasion: float, runs: int) -> list[float]:
        conditions = ("conditions=[simple_voting, acp]", "extra_conditions=[]")
        overrides = (f"respondent.persuasion={persuasion}", *conditions)
        trials = Trials.from_study_file(path, overrides, sizes, runs, Consent())
        grid = simulated_power(trials, trials.run_trials(1)).grid
        return [row[grid.columns.index("power_rate")] for row in grid.rows]  # type: ignore[misc]

    small, large = simulate_power("6,40", 3, 2)
    assert small < large
    assert simulate_power("40", 0, 2) == [0.0]


def test_default_sizes_are_half_one_and_two_times_the_study_size(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)
    trials = Trials.from_study_file(path, (), None, 2, Consent())
    assert [(job.size, job.seed) for job in trials.jobs] == [
        (size, seed) for size in ("3", "6", "12") for seed in (42, 43)
    ]
    with pytest.raises(InputError, match="not a list of whole numbers"):
        Trials.from_study_file(path, (), "a,b", 2, Consent())
    with pytest.raises(InputError, match="unknown key"):
        Trials.from_study_file(path, (), "peeple=3", 2, Consent())
    # Without hypotheses the primary claims of the study type are simulated.
    trials_of_claims = Trials.from_study_file(
        write_study_file(tmp_path, ""), (), None, 2, Consent()
    )
    assert [primary_claim.contrast for primary_claim in trials_of_claims.claims] == [
        ("acp", "clarified_passive"),
        ("acp", "simple_passive"),
        ("acp", "simple_voting"),
    ]


@pytest.mark.nightly(part="sweeps")
def test_the_power_command_reports_built_in_effects(tmp_path: Path) -> None:
    path = str(write_study_file(tmp_path))
    simulated = CliRunner().invoke(
        app, ["power", path, "--simulate", "--sizes", "5", "--runs", "2"], env={"COLUMNS": "200"}
    )
    assert simulated.exit_code == 0, simulated.output
    assert "supported in" in simulated.output
    assert "expected: +20 points" in simulated.output
    assert "no evidence about people or models" in simulated.output
    computed = CliRunner().invoke(app, ["power", path], env={"COLUMNS": "200"})
    assert "The primary claims of this study" in computed.output
    assert CliRunner().invoke(app, ["power", path, "--runs", "2"]).exit_code == 2
