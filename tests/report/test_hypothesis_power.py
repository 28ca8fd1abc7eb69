"""Power of stated hypotheses: computed by the rule that decides them, and simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.consent import Consent
from folkmoot.engine.hypotheses import Hypothesis, hypotheses_finding
from folkmoot.errors import InputError
from folkmoot.measures.claims import judge
from folkmoot.measures.power import DesignSize
from folkmoot.measures.proportions import newcombe
from folkmoot.report.power import hypothesis_power
from folkmoot.report.simulated_power import Job, Outcome, Trials, outcome, simulated_power
from tests.contract.small import SMALL

TABLES = {"participants": {"position_changed": "bool", "warmth": "float"}}
STATED = """
hypotheses:
  - {measure: position_changed, contrast: [acp, simple_voting], direction: greater, expected: 0.2}
"""


def stated(**changes: object) -> Hypothesis:
    more = {"measure": "position_changed", "contrast": ["b", "a"], "direction": "greater"}
    return Hypothesis.model_validate({**more, **changes})


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
    h = stated(direction=direction, expected=expected, smallest=smallest)
    found = hypothesis_power([h], DesignSize("independent", 2, n), TABLES)
    power = found.grid.rows[0][found.grid.columns.index("power_rate")]
    assert isinstance(power, float)
    base = 0.9 if expected < 0 and direction == "less" else 0.1
    other = base + (abs(expected) if direction == "different" else expected)
    rng = np.random.default_rng(5)
    drawn = np.column_stack([rng.binomial(n, other, runs), rng.binomial(n, base, runs)])
    pairs, times = np.unique(drawn, axis=0, return_counts=True)  # most come many times
    verdicts = [
        judge(h.direction, h.smallest, newcombe(int(a), n, int(b), n), 0.05) for a, b in pairs
    ]
    supported = np.array(verdicts) == "supported"
    assert power == pytest.approx(times[supported].sum() / runs, abs=0.05)


def test_a_hypothesis_without_an_expectation_gets_the_least_difference() -> None:
    size = DesignSize("independent", 2, 300)
    found = hypothesis_power([stated()], size, TABLES)
    assert "a power of 80 % from +8 points on, from 10 % in a" in found.says
    beyond = hypothesis_power([stated(smallest=0.05)], size, TABLES)
    assert "from +13 points on" in beyond.says
    mean = hypothesis_power([stated(measure="warmth")], size, TABLES)
    assert "0.23 standard deviations of the participants" in mean.says
    sets = hypothesis_power([stated(measure="warmth")], DesignSize("paired", 4, 20), TABLES)
    assert "0.66 standard deviations of the differences" in sets.says


def test_what_is_not_known_beforehand_is_said() -> None:
    few = hypothesis_power([stated()], DesignSize("paired", 2, 3, 8, "group"), TABLES)
    assert "3 groups are an illustration" in few.says
    assert "--simulate" in hypothesis_power([stated(measure="x")], None, TABLES).says
    size = DesignSize("independent", 2, 100)
    assert "--simulate" in hypothesis_power([stated(measure="x")], size, TABLES).says
    assert "is not a rate" in hypothesis_power([stated(expected=0.95)], size, TABLES).says


def test_a_simulated_run_is_the_run_of_that_size_and_seed(tmp_path: Path) -> None:
    path = study_file(tmp_path)
    job = Job(path, ("participants_per_condition=8",), "8", 7)
    run = folkmoot.run(
        path, model="synthetic", seed=7, out=tmp_path / "run", overrides=job.overrides
    )
    grid = hypotheses_finding(run.folder, [stated(contrast=["acp", "simple_voting"])]).grid
    found = outcome(job)
    at = grid.columns.index
    assert found == Outcome("8", (grid.rows[0][at("verdict")],), (grid.rows[0][at("difference")],))


def test_more_people_and_stronger_effects_give_more_power(tmp_path: Path) -> None:
    path = study_file(tmp_path)

    def power(sizes: str, persuasion: float) -> list[float]:
        own = (f"respondent.persuasion={persuasion}",)
        trials = Trials.of(path, own, sizes, 6, Consent())
        grid = simulated_power(trials, trials.outcomes(1)).grid
        return [row[grid.columns.index("power_rate")] for row in grid.rows]  # type: ignore[misc]

    small, large = power("6,40", 3)
    assert small < large
    assert power("40", 0) == [0.0]


def test_sizes_are_the_files_own_times_a_half_one_and_two(tmp_path: Path) -> None:
    path = study_file(tmp_path)
    trials = Trials.of(path, (), None, 2, Consent())
    assert [(job.size, job.seed) for job in trials.jobs] == [
        (size, seed) for size in ("3", "6", "12") for seed in (42, 43)
    ]
    with pytest.raises(InputError, match="not a list of whole numbers"):
        Trials.of(path, (), "a,b", 2, Consent())
    with pytest.raises(InputError, match="unknown key"):
        Trials.of(path, (), "peeple=3", 2, Consent())
    with pytest.raises(InputError, match="states no hypotheses"):
        Trials.of(study_file(tmp_path, ""), (), None, 2, Consent())


def test_the_command_says_that_effects_are_planted(tmp_path: Path) -> None:
    path = str(study_file(tmp_path))
    shown = CliRunner().invoke(
        app, ["power", path, "--simulate", "--sizes", "5", "--runs", "2"], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0, shown.output
    assert "supported in" in shown.output
    assert "expected: +0.2" in shown.output
    assert "no evidence about people or models" in shown.output
    plain = CliRunner().invoke(app, ["power", path], env={"COLUMNS": "200"})
    assert "The hypotheses of this study" in plain.output
    assert CliRunner().invoke(app, ["power", path, "--runs", "2"]).exit_code == 2
