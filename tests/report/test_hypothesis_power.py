"""Power of claims: computed by the rule that decides them, and simulated."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.settings.hypotheses import Hypothesis
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.measures.inference.claims import Claim, judge
from folkmoot.measures.inference.power import DesignSize
from folkmoot.measures.inference.proportions import newcombe
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

STATED = """
hypotheses:
  - {measure: position_changed, contrast: [acp, simple_voting], direction: greater, expected: 0.2}
"""


def stated(**changes: object) -> Hypothesis:
    more = {"measure": "position_changed", "contrast": ["b", "a"], "direction": "greater"}
    return Hypothesis.model_validate({**more, **changes})


def claim(**changes: Any) -> Claim:
    return replace(
        Claim("participants.position_changed", ("b", "a"), direction="greater", family="primary"),
        **changes,
    )


def mean(**changes: Any) -> Claim:
    return claim(measure="participants.warmth", kind="mean", **changes)


def cells(finding: Finding) -> dict[str, TableCell]:
    return dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))


def study_file(folder: Path, more: str = STATED) -> Path:
    path = folder / "study.yaml"
    path.write_text(f"study: cross_pollination\n{SMALL['cross_pollination']}{more}", "utf-8")
    return path


@pytest.mark.parametrize(
    ("direction", "expected", "smallest"),
    [
        ("greater", 0.15, 0.0),
        ("greater", 0.2, 0.05),
        ("less", -0.2, 0.0),
        ("different", -0.2, 0.0),
        ("equivalent", 0.0, 0.12),
    ],
)
def test_power_is_the_share_of_samples_in_which_the_report_would_say_supported(
    direction: str, expected: float, smallest: float
) -> None:
    n, runs = 120, 1500
    stated = claim(direction=direction, margin=smallest)
    found = claim_power([stated], DesignSize("independent", 2, n), [expected])
    power = cells(found)["power_rate"]
    assert isinstance(power, float)
    base = 0.9 if expected < 0 and direction == "less" else 0.1
    other = base + (abs(expected) if direction == "different" else expected)
    rng = np.random.default_rng(5)
    drawn = np.column_stack([rng.binomial(n, other, runs), rng.binomial(n, base, runs)])
    pairs, times = np.unique(drawn, axis=0, return_counts=True)  # most come many times
    verdicts = [
        judge(stated.direction, stated.margin, newcombe(int(a), n, int(b), n), 0.05)
        for a, b in pairs
    ]
    supported = np.array(verdicts) == "supported"
    assert power == pytest.approx(times[supported].sum() / runs, abs=0.05)


def test_a_claim_without_an_expectation_gets_the_least_difference() -> None:
    size = DesignSize("independent", 2, 300)
    found = claim_power([claim()], size)
    assert "a power of 80 % from +8 points on, from 10 % in a" in found.says
    assert cells(found)["units_needed"] is None
    beyond = claim_power([claim(margin=0.05)], size)
    assert "from +13 points on" in beyond.says
    assert "0.23 standard deviations of the participants" in claim_power([mean()], size).says
    sets = claim_power([mean(unit="set")], DesignSize("paired", 4, 20, 1, "set"))
    assert "0.66 standard deviations of the differences" in sets.says


def test_the_units_that_a_margin_needs_have_the_power_that_is_asked_for() -> None:
    """The share of simulated samples of that size in which the report would say supported."""
    small = DesignSize("independent", 2, 50)
    for direction, margin, true in (("greater", 0.1, 0.2), ("equivalent", 0.1, 0.0)):
        found = cells(claim_power([claim(direction=direction, margin=margin)], small))
        n = found["units_needed"]
        assert isinstance(n, int) and found["units_in_design"] == 50
        rng = np.random.default_rng(3)
        drawn = np.column_stack([rng.binomial(n, 0.1 + true, 800), rng.binomial(n, 0.1, 800)])
        verdicts = [judge(direction, margin, newcombe(int(a), n, int(b), n)) for a, b in drawn]
        assert np.mean(np.array(verdicts) == "supported") == pytest.approx(0.8, abs=0.05)
    # Cohen (1988): 64 in each group see half a standard deviation, 34 pairs see it within pairs.
    assert cells(claim_power([mean(margin=1.0)], small))["units_needed"] == 64
    sets = DesignSize("paired", 4, 5, 1, "set")
    found = claim_power([mean(margin=1.0, unit="set")], sets)
    assert cells(found)["units_needed"] == 34
    assert "(34 sets in each arm needed, 5 in this design)" in found.says
    # Sessions of five at an ICC of .05 are worth 5 / 1.2 participants each.
    sessions = DesignSize("clustered", 2, 20, 5, "session")
    alone = cells(claim_power([claim(margin=0.1)], small))["units_needed"]
    together = cells(claim_power([claim(margin=0.1, unit="session")], sessions, iccs=[0.05]))
    assert together["units_needed"] == math.ceil(int(str(alone)) * 1.2 / 5)


def test_several_claims_share_the_level() -> None:
    size = DesignSize("independent", 2, 100)
    alone = cells(claim_power([claim()], size, [0.2]))["power_rate"]
    shared = cells(claim_power([claim(), claim(), claim()], size, [0.2] * 3))
    assert float(str(shared["power_rate"])) < float(str(alone))
    # The last step of Holm's method has the whole level.
    assert shared["power_at_most_rate"] == alone


def test_what_is_not_known_beforehand_is_said() -> None:
    few = claim_power([mean(unit="group")], DesignSize("paired", 2, 3, 8, "group"))
    assert "not tested: an illustration of 3 groups" in few.says
    assert "--simulate" in claim_power([claim()], None).says
    size = DesignSize("independent", 2, 100)
    unknown = stated(measure="x").as_claim()
    assert (
        "its table is known only after a run: use --simulate" in claim_power([unknown], size).says
    )
    drawn = claim_power([claim(unit="draw of the summaries")], size)
    assert "which only --simulate takes into account" in drawn.says
    assert "is not a rate" in claim_power([claim()], size, [0.95]).says


def test_people_to_ask_for_a_width_by_hand() -> None:
    """(2 · 1.96 · .5 / .1)² people of whom the simulation tells nothing, times 1 − r², in groups of
    eight times 1 + 7 · .05; an effect of two arms needs twice as many in each."""
    rows = people_power(0.1).grid.rows
    assert rows[0] == (0.0, 385, 769, 1537)
    assert rows[2][:2] == (0.5, math.ceil(384.16 * 0.75))
    grouped = people_power(0.1, DesignSize("paired", 2, 6, 8, "group"), [0.05]).grid.rows
    assert grouped[0][1] == math.ceil(384.16 * 1.35)


@pytest.mark.parametrize("study", sorted(SMALL))
def test_the_claims_of_every_study_type_have_a_power(study: str, tmp_path: Path) -> None:
    path = tmp_path / f"{study}.yaml"
    path.write_text(f"study: {study}\n{SMALL[study]}", "utf-8")
    claims, expected = primary_claims(load_study_file(path))
    shown = CliRunner().invoke(app, ["power", str(path), "--width", "0.2"], env={"COLUMNS": "250"})
    assert shown.exit_code == 0, shown.output
    assert "People to ask beside the simulation" in shown.output
    assert "10 points to each side of a share" in shown.output
    assert ("The primary claims of this study" in shown.output) == bool(claims)
    for claim in claims:
        assert claim.says in shown.output and claim.unit in shown.output
    assert expected == [None] * len(claims)
    assert CliRunner().invoke(app, ["power", str(path), "--width", "2"]).exit_code == 2


def test_a_simulated_run_is_the_run_of_that_size_and_seed(tmp_path: Path) -> None:
    path = study_file(tmp_path)
    size = ("participants_per_condition=8", "conditions=[simple_voting, acp]")
    job = Job(path, (*size, "extra_conditions=[]"), "8", 7)
    run = folkmoot.run(
        path, model="synthetic", seed=7, out=tmp_path / "run", overrides=job.overrides
    )
    grid = compute_hypotheses_finding(run.folder, [stated(contrast=["acp", "simple_voting"])]).grid
    found = run_trial(job)
    at = grid.columns.index
    assert found == TrialOutcome(
        "8", (grid.rows[0][at("verdict")],), (grid.rows[0][at("difference")],)
    )


@pytest.mark.nightly(part="truths")
def test_more_people_and_stronger_effects_give_more_power(tmp_path: Path) -> None:
    path = study_file(tmp_path)

    def power(sizes: str, persuasion: float, runs: int) -> list[float]:
        arms = ("conditions=[simple_voting, acp]", "extra_conditions=[]")
        own = (f"respondent.persuasion={persuasion}", *arms)
        trials = Trials.from_study_file(path, own, sizes, runs, Consent())
        grid = simulated_power(trials, trials.run_trials(1)).grid
        return [row[grid.columns.index("power_rate")] for row in grid.rows]  # type: ignore[misc]

    small, large = power("6,40", 3, 2)
    assert small < large
    assert power("40", 0, 2) == [0.0]


def test_sizes_are_the_files_own_times_a_half_one_and_two(tmp_path: Path) -> None:
    path = study_file(tmp_path)
    trials = Trials.from_study_file(path, (), None, 2, Consent())
    assert [(job.size, job.seed) for job in trials.jobs] == [
        (size, seed) for size in ("3", "6", "12") for seed in (42, 43)
    ]
    with pytest.raises(InputError, match="not a list of whole numbers"):
        Trials.from_study_file(path, (), "a,b", 2, Consent())
    with pytest.raises(InputError, match="unknown key"):
        Trials.from_study_file(path, (), "peeple=3", 2, Consent())
    # Without hypotheses the primary claims of the study type are simulated.
    declared = Trials.from_study_file(study_file(tmp_path, ""), (), None, 2, Consent())
    assert [claim.contrast for claim in declared.claims] == [
        ("acp", "clarified_passive"),
        ("acp", "simple_passive"),
        ("acp", "simple_voting"),
    ]


@pytest.mark.nightly(part="sweeps")
def test_the_command_says_that_effects_are_planted(tmp_path: Path) -> None:
    path = str(study_file(tmp_path))
    shown = CliRunner().invoke(
        app, ["power", path, "--simulate", "--sizes", "5", "--runs", "2"], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0, shown.output
    assert "supported in" in shown.output
    assert "expected: +20 points" in shown.output
    assert "no evidence about people or models" in shown.output
    plain = CliRunner().invoke(app, ["power", path], env={"COLUMNS": "200"})
    assert "The primary claims of this study" in plain.output
    assert CliRunner().invoke(app, ["power", path, "--runs", "2"]).exit_code == 2
