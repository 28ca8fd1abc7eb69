"""Preregistered hypotheses: sealed, tested first, and never supported by too little data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run import dry_run
from folkmoot.engine.run.grid import GridCell
from folkmoot.engine.session.plan import DESIGN, Plan
from folkmoot.engine.settings import claims as claims_of_run
from folkmoot.engine.settings.claimed_tables import find_condition_column
from folkmoot.engine.settings.claims import CLAIMS_TESTED, evaluate_claims
from folkmoot.engine.settings.hypotheses import (
    ADDED_LATER,
    NOT_SEALED,
    Hypothesis,
    build_hypotheses_finding,
)
from folkmoot.engine.study.strict_answers import CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY
from folkmoot.engine.study.study import compute_findings, find_study_of_run
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import DriftError, InputError
from folkmoot.measures.inference.claims import Claim, judge
from folkmoot.measures.inference.estimates import Estimate, format_p_value
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.report.comparison.pooled import judge_claims
from folkmoot.report.document.document import build_document
from folkmoot.storage.findings import Finding, format_cell
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import write_table
from tests.contract.small import SMALL, small_study
from tests.frames import rows_to_frame

FEW_CONDITIONS = {"extra_conditions": []}
CHANGE_HYPOTHESIS = {
    "measure": "position_changed",
    "contrast": ["acp", "simple_voting"],
    "direction": "greater",
}


def build_hypothesis(**changes: object) -> Hypothesis:
    return Hypothesis.model_validate({**CHANGE_HYPOTHESIS, **changes})


def compute_hypotheses_finding(run: RunFolder, hypotheses: list[Hypothesis]) -> Finding:
    return build_hypotheses_finding(
        evaluate_claims(run, [hypothesis.as_claim() for hypothesis in hypotheses])
    )


def write_run_with_table(folder: Path, rows: list[dict], table: str = "participants") -> RunFolder:
    (folder / "tables").mkdir(parents=True)
    write_table(folder / "tables", table, rows_to_frame(rows))
    (folder / "study.yaml").write_text("study: x\n")
    (folder / "manifest.json").write_text('{"outcome": "done"}')
    return RunFolder(folder)


def build_vote_rows(acp: int, simple: int, n: int = 100) -> list[dict]:
    return [
        {"participant_id": f"{arm}{i}", "condition": arm, "position_changed": i < changed_count}
        for arm, changed_count in (("acp", acp), ("simple_voting", simple))
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("acp", "simple", "changes", "verdict"),
    [
        (40, 10, {}, "supported"),
        (40, 10, {"smallest": 0.1}, "supported"),
        (40, 10, {"smallest": 0.25}, "neither shown nor ruled out"),
        (14, 10, {}, "neither shown nor ruled out"),
        (10, 40, {}, "contradicted"),
        (10, 40, {"direction": "less"}, "supported"),
        (40, 10, {"direction": "less"}, "contradicted"),
        (10, 10, {"smallest": 0.2}, "contradicted"),
        (40, 10, {"direction": "different"}, "supported"),
        (12, 10, {"direction": "different"}, "neither shown nor ruled out"),
        (12, 10, {"direction": "equivalent", "smallest": 0.15}, "supported"),
        (12, 10, {"direction": "equivalent", "smallest": 0.05}, "neither shown nor ruled out"),
        (40, 10, {"direction": "equivalent", "smallest": 0.05}, "contradicted"),
    ],
)
def test_verdicts(
    acp: int, simple: int, changes: dict[str, object], verdict: str, tmp_path: Path
) -> None:
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "run", build_vote_rows(acp, simple)),
        [build_hypothesis(**changes)],
    )
    assert finding.grid.rows[0][1] == verdict
    assert verdict in finding.says


def test_few_conversations_are_an_illustration_for_any_number_of_participants(
    tmp_path: Path,
) -> None:
    rows = [
        {"set": set_number, "level": level, "heard": 0.9 if level == "4" else 0.1, "id": i}
        for set_number in range(4)
        for level in ("1", "4")
        for i in range(50)
    ]
    hypothesis = Hypothesis(measure="heard", contrast=("4", "1"), direction="greater")
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "four", rows, "discussions"), [hypothesis]
    )
    assert "4 independent units are an illustration" in finding.says
    assert finding.grid.rows[0][3:6] == (None, None, None)
    # The same difference in eight sets, with some variation between sets, is tested by sets.
    rows_of_eight_sets = [
        {
            **row,
            "set": set_number,
            "heard": row["heard"] + 0.01 * set_number * (row["level"] == "4"),
        }
        for set_number in range(8)
        for row in rows
    ]
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "eight", rows_of_eight_sets, "discussions"), [hypothesis]
    )
    assert finding.grid.rows[0][1] == "supported"
    assert finding.grid.rows[0][6] == 8


def test_null_hypotheses_are_rarely_supported_together(tmp_path: Path) -> None:
    """Five null measures in each of 120 runs: at most 5 % of runs support one of them."""
    rng = np.random.default_rng(11)
    alpha = 0.05 / 5
    false_positives = 0
    for _ in range(120):
        verdicts = []
        for _ in range(5):
            votes_a, votes_b = rng.binomial(1, 0.3, 60), rng.binomial(1, 0.3, 60)
            estimate = newcombe(int(votes_a.sum()), 60, int(votes_b.sum()), 60, 1 - alpha)
            verdicts.append(judge("different", 0.0, estimate, alpha))
        false_positives += "supported" in verdicts
    assert false_positives <= 13  # with a true rate of 5 %, more than 13 occur in 0.5 % of cases


def test_exact_test_over_few_units_must_agree_with_the_interval() -> None:
    sure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.03)
    unsure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.06)
    assert judge("greater", 0.0, sure) == "supported"
    assert judge("greater", 0.0, unsure) == "neither shown nor ruled out"
    nothing = Estimate(0.3, float("nan"), float("nan"), 1)
    assert judge("greater", 0.0, nothing) == "neither shown nor ruled out"


def test_reason_is_given_for_an_untestable_hypothesis(tmp_path: Path) -> None:
    run = write_run_with_table(tmp_path / "run", build_vote_rows(40, 10))
    invalid_hypotheses = [
        build_hypothesis(measure="warmth"),
        build_hypothesis(contrast=["acp", "control"]),
    ]
    finding = compute_hypotheses_finding(run, invalid_hypotheses)
    assert "no table has warmth and arms" in finding.says
    assert "no condition control; there are acp, simple_voting" in finding.says
    assert finding.chart is None


def test_measure_unknown_in_one_arm_is_reported_as_unknown(tmp_path: Path) -> None:
    rows = [
        {**row, "delay": None if row["condition"] == "acp" else 1}
        for row in build_vote_rows(40, 10)
    ]
    run, hypothesis = (
        write_run_with_table(tmp_path / "run", rows),
        build_hypothesis(measure="delay"),
    )
    finding = compute_hypotheses_finding(run, [hypothesis])
    assert "delay is unknown in acp" in finding.says
    assert "no condition" not in finding.says
    # All subjects of a condition lack the measure, so their number must not be given as 0.
    of_all = claims_of_run.tested_finding(evaluate_claims(run, [hypothesis.as_claim()]))
    assert of_all is not None
    for listed, column in (
        (finding, "excluded"),
        (of_all, "excluded_first"),
        (of_all, "excluded_second"),
    ):
        (row,) = listed.grid.rows
        assert row[listed.grid.columns.index(column)] is None


def test_difference_of_shares_in_points_is_not_multiplied_by_a_hundred(
    tmp_path: Path,
) -> None:
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "run", build_vote_rows(40, 10)),
        [build_hypothesis(smallest=5)],
    )
    assert "write smallest: 0.05 for five points" in finding.says
    assert "contradicted" not in finding.says


def test_participant_with_many_answers_is_one_unit(tmp_path: Path) -> None:
    """Six participants who give the same answer twenty times are six units."""
    rows = [
        {
            "participant_id": f"{arm}{i}",
            "condition": arm,
            "round": round_number,
            "heat": i + (arm == "a"),
        }
        for arm in "ab"
        for i in range(3)
        for round_number in range(20)
    ]
    hypothesis = Hypothesis(measure="heat", contrast=("a", "b"), direction="greater")
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "run", rows, "rounds"), [hypothesis]
    )
    # Three in each arm, for any number of answers.
    assert finding.grid.rows[0][1].startswith("not tested (3 independent units")
    # The same six participants in both arms, always one point higher in the first, are pairs.
    same = [
        {
            "participant_id": f"p{i}",
            "condition": arm,
            "round": round_number,
            "heat": i + (arm == "a") * i,
        }
        for arm in "ab"
        for i in range(6)
        for round_number in range(20)
    ]
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "pairs", same, "rounds"), [hypothesis]
    )
    assert finding.grid.rows[0][6] == 6


@pytest.fixture(scope="module")
def run_with_hypothesis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run with a hypothesis in its study file. No test changes it."""
    folder = tmp_path_factory.mktemp("hypothesis")
    path = write_study_with_hypothesis(
        "cross_pollination", folder, FEW_CONDITIONS, **CHANGE_HYPOTHESIS
    )
    return folkmoot.run(path, model="synthetic", out=folder / "run").path


def test_hypotheses_are_sealed_and_all_other_findings_are_exploratory(
    run_with_hypothesis: Path, tmp_path: Path
) -> None:
    finished_run = folkmoot.load(shutil.copytree(run_with_hypothesis, tmp_path / "run"))
    hypotheses_finding, *other_findings = finished_run.findings
    assert hypotheses_finding.key == "hypotheses"
    assert hypotheses_finding.headline
    assert other_findings
    # Findings on how answers were read are not exploratory. The list of tests names each family.
    about_answers = (CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY, "claims_tested")
    # The finding on differences repeats the hypothesis, which its table marks as primary.
    named_findings = [finding for finding in other_findings if finding.key not in about_answers]
    assert all(
        finding.title.endswith("(exploratory)") != finding.primary for finding in named_findings
    )
    (tested_finding,) = (finding for finding in other_findings if finding.key == "claims_tested")
    families = [
        row[tested_finding.grid.columns.index("family")] for row in tested_finding.grid.rows
    ]
    assert families[0] == "primary" and set(families[1:]) == {"exploratory"}
    # The stated contrast has the numbers of the hypothesis in every table.
    (differences_finding,) = (
        finding for finding in other_findings if finding.key == "change_differences"
    )
    rows = [
        dict(zip(differences_finding.grid.columns, row, strict=True))
        for row in differences_finding.grid.rows
    ]
    (same,) = (
        row
        for row in rows
        if (row["first"], row["second"]) == ("Adversarial (ACP)", "Simple voting")
    )
    stated = dict(
        zip(hypotheses_finding.grid.columns, hypotheses_finding.grid.rows[0], strict=True)
    )
    assert same["family"] == "primary"
    assert (same["difference_points"], same["p"]) == (stated["difference"], stated["adjusted_p"])
    plan = json.loads((finished_run.path / "plan.json").read_text("utf-8"))
    assert "acp" in json.dumps(plan["sealed"]["design"]["data"]["settings"]["hypotheses"])
    path = write_study_with_hypothesis(
        "cross_pollination", tmp_path, FEW_CONDITIONS, **{**CHANGE_HYPOTHESIS, "direction": "less"}
    )
    with pytest.raises(DriftError, match="hypotheses"):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "expected_text"),
    [
        ({"measure": "position_chnged"}, "did you mean position_changed"),
        ({"measure": "participants.warmth"}, "no column warmth in the table participants"),
        ({"measure": "particpants.position_changed"}, "did you mean participants?"),
        ({"measure": "participants.final_choice"}, "final_choice is a text"),
        ({"measure": "first_votes.votes"}, "first_votes has no conditions to compare"),
        (
            {"contrast": ["acp", "simple_votin"]},
            "there is no condition simple_votin in this study with these settings (did you mean "
            "simple_voting? there are: simple_voting, simple_passive, clarified_passive, acp, ",
        ),
        ({"smallest": 5}, "the measure is a share"),
        ({"expected": -12}, "write expected: -0.12 for -12 points"),
        ({"direction": "upwards"}, "must be one of"),
        ({"contrast": ["acp", "acp"]}, "two different conditions"),
        ({"direction": "equivalent"}, "needs a margin"),
        ({"smallest": -1}, "at least 0"),
    ],
)
def test_mistakes_are_named_by_line(changes: dict, expected_text: str, tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(
        yaml.safe_dump({**settings, "hypotheses": [{**CHANGE_HYPOTHESIS, **changes}]}), "utf-8"
    )
    with pytest.raises(InputError) as error:
        load_study_file(path)
    assert expected_text in str(error.value)
    assert "hypotheses" in str(error.value)


def write_study_with_hypothesis(study: str, folder: Path, settings: dict, **stated: object) -> Path:
    """Write the small study of a type, with changed settings and one hypothesis."""
    path = small_study(study, folder)
    loaded = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**loaded, **settings, "hypotheses": [stated]}), "utf-8")
    return path


# Conditions that exist in the study type but are not run by this file.
NOT_RUN = [
    ("cross_pollination", {"conditions": ["acp", "simple_passive"]}, ["acp", "simple_voting"]),
    ("cross_pollination", {"revote": False}, ["acp", "simple_voting"]),
    ("town_hall", {"levels": [1, 4]}, ["4", "3"]),
    ("negotiation", {"conditions": ["C1", "C2", "C3"]}, ["C4", "C3"]),
    ("focus_group", {}, ["oven", "toaster"]),
]
MEASURES = {
    "cross_pollination": "position_changed",
    "town_hall": "discussions.items_passed",
    "negotiation": "measures.satisfaction",
    "focus_group": "statements.position",
}


@pytest.mark.parametrize(("study", "settings", "contrast"), NOT_RUN)
def test_condition_that_is_not_run_is_refused_before_the_first_call(
    study: str, settings: dict, contrast: list[str], tmp_path: Path
) -> None:
    stated = {"measure": MEASURES[study], "contrast": contrast, "direction": "different"}
    path = write_study_with_hypothesis(study, tmp_path, settings, **stated)
    commands = (
        ("check", str(path)),
        ("plan", str(path)),
        ("run", str(path), "--model", "synthetic", "--out", str(tmp_path / "run")),
    )
    missing_condition = contrast[1] if contrast[1] != "C3" else contrast[0]
    for command in commands:
        result = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        assert result.exit_code == 2, (command, result.output)
        output = " ".join(result.output.split())
        assert "hypotheses[1].contrast" in output and f" {missing_condition} " in output, output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "again",
    [
        {"measure": "participants.position_changed", "smallest": 0.1},
        {"contrast": CHANGE_HYPOTHESIS["contrast"][::-1], "direction": "less"},
        {"contrast": CHANGE_HYPOTHESIS["contrast"][::-1], "direction": "less", "smallest": 0.1},
    ],
)
def test_same_comparison_in_two_hypotheses_is_refused(again: dict, tmp_path: Path) -> None:
    """Each of two hypotheses is tested at a stricter level, and one difference would get two
    joint intervals."""
    path = small_study("cross_pollination", tmp_path)
    settings = {
        **yaml.safe_load(path.read_text("utf-8")),
        "hypotheses": [CHANGE_HYPOTHESIS, {**CHANGE_HYPOTHESIS, **again}],
    }
    path.write_text(yaml.safe_dump(settings), "utf-8")
    run = ("run", str(path), "--model", "synthetic", "--out", str(tmp_path / "run"))
    for command in (("check", str(path)), run):
        result = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        assert result.exit_code == 2, (command, result.output)
        output = " ".join(result.output.split())
        assert "hypotheses[2]" in output and "states the same comparison as hypotheses[1]" in output
    assert not (tmp_path / "run").exists()


def test_grid_setting_that_removes_the_condition_is_refused(tmp_path: Path) -> None:
    path = write_study_with_hypothesis("cross_pollination", tmp_path, {}, **CHANGE_HYPOTHESIS)
    out = tmp_path / "grid"
    command = ["run", str(path), "--model", "synthetic", "--grid", "revote=true,false"]
    result = CliRunner().invoke(app, [*command, "--out", str(out)], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert "in the cell revote false: position_changed is not recorded" in result.output
    assert not out.exists()


@pytest.mark.parametrize("study", sorted(MEASURES))
def test_study_type_names_all_conditions_that_it_compares(study: str, tmp_path: Path) -> None:
    loaded = load_study_file(small_study(study, tmp_path))
    conditions = loaded.study.conditions(loaded.config)
    for claim in loaded.study.claims(loaded.config):
        assert set(claim.contrast) <= set(conditions.get(claim.by, claim.contrast))


def test_design_with_too_few_units_for_any_test_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The dry run has one set, which takes less time. The warning counts the sets of the file.
    monkeypatch.setattr(dry_run, "SUFFICIENT_SAMPLE_CALLS", 1)
    stated = {"measure": MEASURES["town_hall"], "contrast": ["4", "1"], "direction": "different"}
    path = write_study_with_hypothesis("town_hall", tmp_path, {"sets": 3, "rounds": 1}, **stated)
    result = CliRunner().invoke(app, ["check", str(path)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "no hypothesis is tested with 3 sets, because a test needs 5 (raise sets)" in output
    enough = CliRunner().invoke(app, ["check", str(path), "--set", "sets=5"])
    assert "no hypothesis is tested" not in " ".join(enough.output.split())


CUSTOM_STUDY_TYPE = """
from folkmoot import Choice, Speaker, Study, StudyConfig


class Config(StudyConfig):
    people: int = 12


async def protocol(session):
    async def vote(scope, n):
        answer = Choice(["yes", "no"])
        said = await scope.ask(Speaker(f"p{n}"), "Yes or no?", answer_type=answer)
        row = {"id": f"p{n}", "condition": "reasons" if n % 2 else "plain", "agrees": said == "yes"}
        scope.record("votes", {**row, "delay": None if n % 2 else n})

    await session.map(range(session.config.people), vote)


STUDY = Study(name="own", title="Own", config=Config, protocol=protocol)
"""


@pytest.mark.parametrize(
    ("stated", "exit_code", "expected_output"),
    [
        ({"contrast": ["reasons", "none"]}, 2, "no condition none; there are plain, reasons"),
        ({"measure": "votes.warmth"}, 2, "no table has votes.warmth and arms"),
        ({"smallest": 5}, 2, "write smallest: 0.05 for five points"),
        ({"measure": "delay"}, 0, "delay is unknown in reasons"),
        ({}, 0, ""),
    ],
)
def test_dry_run_checks_hypotheses_of_types_that_declare_nothing(
    stated: dict, exit_code: int, expected_output: str, tmp_path: Path
) -> None:
    """Such a type declares neither its tables nor its conditions. What is unknown only with the
    embedded respondent is a warning, because a model may answer differently."""
    (tmp_path / "own.py").write_text(CUSTOM_STUDY_TYPE, "utf-8")
    hypothesis = {"measure": "agrees", "contrast": ["reasons", "plain"], "direction": "greater"}
    settings = {"study": "./own.py", "hypotheses": [{**hypothesis, **stated}]}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(settings), "utf-8")
    result = CliRunner().invoke(app, ["check", str(path), "--trust"], env={"COLUMNS": "300"})
    assert result.exit_code == exit_code, result.output
    assert expected_output in " ".join(result.output.split())
    assert ("test it" in result.output) == bool(expected_output), result.output


OWN_CONDITION_COLUMN = """
from folkmoot import Choice, Row, Speaker, Study, StudyConfig
from folkmoot.kit.claims import claims_finding, read_results
from folkmoot.measures.inference.claims import Claim


class Config(StudyConfig):
    people: int = 12


class Vote(Row, table="votes"):
    id: str
    arm: str
    agrees: bool


async def protocol(session):
    async def vote(scope, n):
        said = await scope.ask(Speaker(f"p{n}"), "Yes or no?", answer_type=Choice(["yes", "no"]))
        arm = ("plain", "reasons")[n & 1]
        scope.record(Vote(id=f"p{n}", arm=arm, agrees=said == "yes"))

    await session.map(range(session.config.people), vote)


NAMES = {"arm": {"reasons": "With reasons", "plain": "Without any"}}
CLAIM = Claim("votes.agrees", ("plain", "reasons"), by="arm")


def findings(run):
    results = read_results(run, Config, lambda _: [CLAIM])
    return [claims_finding("votes", "Votes", results, axis="agree")]


STUDY = Study("own", "Own", Config, protocol, %s)
"""
DECLARED_CONDITIONS = "conditions=lambda _: NAMES"


@pytest.mark.parametrize(
    "declared",
    [
        f"tables=[Vote], {DECLARED_CONDITIONS}",
        "tables=[Vote], claims=lambda _: [CLAIM]",
        DECLARED_CONDITIONS,
    ],
)
def test_hypothesis_is_tested_in_the_condition_column_of_the_study_type(
    declared: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN_CONDITION_COLUMN % declared, "utf-8")
    hypothesis = {"measure": "agrees", "contrast": ["reasons", "plain"], "direction": "greater"}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"study": "./own.py", "hypotheses": [hypothesis]}), "utf-8")
    result = CliRunner().invoke(app, ["check", str(path), "--trust"], env={"COLUMNS": "300"})
    assert result.exit_code == 0 and "test it" not in result.output, result.output
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run", trust=True)
    (row,) = next(finding for finding in run.findings if finding.key == "hypotheses").grid.rows
    assert ("With reasons" in str(row)) == (DECLARED_CONDITIONS in declared)
    assert "cannot be tested" not in str(row)


@pytest.mark.parametrize(
    ("contrast", "conditions", "column"),
    [
        (("x", "y"), {}, "phase"),
        (("north", "south"), {}, "side"),
        # The study type lists the conditions of one of the columns only.
        (("north", "south"), {"phase": {"x": "X", "y": "Y"}}, "side"),
        (("x", "other"), {"phase": {"x": "X", "y": "Y"}}, "phase"),
        # A measure that only some conditions record is no column of conditions.
        (("a", "b"), {"people.score": {"a": "A", "b": "B"}}, "side"),
    ],
)
def test_hypothesis_uses_that_own_column_which_has_both_conditions(
    contrast: tuple[str, str], conditions: dict[str, dict[str, str]], column: str
) -> None:
    claim = Claim("people.score", ("north", "south"), "mean", by="side")
    others = [claim, replace(claim, contrast=("x", "y"), by="phase")]
    tables = {"people": {"id": "text", "side": "text", "phase": "text", "score": "float"}}
    stated = Claim("score", contrast, "mean")
    assert find_condition_column(stated, tables, others, conditions) == column
    same_in_usual = replace(claim, contrast=contrast, by="")
    assert find_condition_column(stated, tables, [*others, same_in_usual], conditions) == ""
    # In a table with a usual column, only conditions that the study type lists are meant.
    tables["people"]["condition"] = "text"
    assert find_condition_column(stated, tables, others, conditions) == ""
    listed = {column: dict.fromkeys(contrast, "")}
    assert find_condition_column(stated, tables, others, listed) == column


def test_claims_have_the_names_of_conditions_that_the_study_type_declares(tmp_path: Path) -> None:
    """In the findings of the study type, in the list of claims and in the sealed plan."""
    declared = f"tables=[Vote], claims=lambda _: [CLAIM], findings=findings, {DECLARED_CONDITIONS}"
    (tmp_path / "own.py").write_text(OWN_CONDITION_COLUMN % declared, "utf-8")
    path = tmp_path / "study.yaml"
    path.write_text("study: ./own.py\n", "utf-8")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run", trust=True)
    findings = {finding.key: finding for finding in run.findings}
    assert "Without any − With reasons" in findings["votes"].says
    assert "Without any" in str(findings[CLAIMS_TESTED].grid.rows)
    (sealed,) = run.folder.plan["sealed"]["claims"]["data"]
    assert sealed["names"] == ["Without any", "With reasons"]


def test_hypothesis_about_an_unknown_condition_of_an_own_column_is_refused(
    tmp_path: Path,
) -> None:
    declared = f"tables=[Vote], {DECLARED_CONDITIONS}"
    (tmp_path / "own.py").write_text(OWN_CONDITION_COLUMN % declared, "utf-8")
    hypothesis = {"measure": "agrees", "contrast": ["reasons", "none"], "direction": "greater"}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"study": "./own.py", "hypotheses": [hypothesis]}), "utf-8")
    result = CliRunner().invoke(app, ["check", str(path), "--trust"], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert "there is no arm none in this study" in " ".join(result.output.split())


def test_hypothesis_is_one_row_for_every_label_of_its_conditions(tmp_path: Path) -> None:
    """Without `revote` the study type compares nothing with simple voting, so plans of earlier
    versions contain its key instead of its name."""
    cells = {}
    for repeat, revote in enumerate((True, False), 1):
        folder = tmp_path / str(revote)
        write_run_with_table(folder, build_vote_rows(40, 10))
        settings = {**yaml.safe_load(SMALL["cross_pollination"]), "revote": revote}
        settings |= {"study": "cross_pollination", "hypotheses": [CHANGE_HYPOTHESIS]}
        (folder / "study.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        plan = Plan(folder / "plan.json", started_at="2026-11-26T09:00:00+00:00")
        plan.seal_part(DESIGN, {"settings": settings})
        plan.write_plan()
        cell = GridCell(folder.name, {"revote": str(revote).lower()}, repeat, repeat)
        cells[folder.name] = (cell, RunFolder(folder))
    results = judge_claims(cells)
    assert results is not None
    (row,) = results.grid.rows
    assert row[0] == "Changed their choice: Adversarial (ACP) exceeds Simple voting"
    assert "simple_voting" not in results.says and "supported in 2 of 2 cells" in results.says


def test_unit_is_the_draw_of_the_texts_that_were_read(tmp_path: Path) -> None:
    """Twenty readers of each of five draws, which differ by more than the two arms."""
    rows = [
        {
            "participant_id": f"{arm}{draw}{i}",
            "condition": arm,
            "summary_draw": draw,
            "position_changed": i < 6 + (arm == "acp" and draw == 5) * 24,
        }
        for arm in ("acp", "simple_passive")
        for draw in range(1, 6)
        for i in range(30)
    ]
    hypothesis = build_hypothesis(contrast=["acp", "simple_passive"])
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "draws", rows), [hypothesis]
    )
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert (row["units"], row["unit"], row["verdict"]) == (
        5,
        "draw of the summaries",
        "neither shown nor ruled out",
    )
    # Without draws, the participants are the units, and there are enough of them.
    rows_without_draws = [
        {column: value for column, value in row.items() if column != "summary_draw"} for row in rows
    ]
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "plain", rows_without_draws), [hypothesis]
    )
    assert finding.grid.rows[0][1] == "supported"


def test_missing_answers_bound_the_difference(tmp_path: Path) -> None:
    rows = build_vote_rows(40, 10)
    missing_rows = [{**row, "position_changed": None} for row in rows[:60]]
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "run", [*rows, *missing_rows]), [build_hypothesis()]
    )
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert row["excluded"] == 60
    assert row["least_if_missing"] == pytest.approx(40 / 160 - 10 / 100)
    assert row["most_if_missing"] == pytest.approx(100 / 160 - 10 / 100)
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path / "more", [*rows, *missing_rows * 6]), [build_hypothesis()]
    )
    assert any("missing answers could change the sign" in note for note in finding.notes)


def test_edited_hypothesis_is_not_evaluated_and_a_broken_seal_is_named(
    run_with_hypothesis: Path, tmp_path: Path
) -> None:
    finished_run = folkmoot.load(shutil.copytree(run_with_hypothesis, tmp_path / "run"))
    assert "Adversarial (ACP) exceeds Simple voting" in finished_run.findings[0].says
    edited = finished_run.path / "study.yaml"
    edited.write_text(edited.read_text("utf-8").replace("greater", "less"), "utf-8")
    hypotheses_finding = compute_findings(
        find_study_of_run(RunFolder(finished_run.path)), RunFolder(finished_run.path)
    )[0]
    assert (
        "Adversarial (ACP) exceeds Simple voting" in hypotheses_finding.says
        and NOT_SEALED not in hypotheses_finding.says
    )
    plan = finished_run.path / "plan.json"
    plan.write_text(plan.read_text("utf-8").replace('"greater"', '"less"'), "utf-8")
    hypotheses_finding = compute_findings(
        find_study_of_run(RunFolder(finished_run.path)), RunFolder(finished_run.path)
    )[0]
    assert (
        hypotheses_finding.alarms == (NOT_SEALED,)
        and "Sealed in the plan" not in hypotheses_finding.notes[0]
    )
    # A hypothesis that may have been written after the data is not tested.
    assert (
        "supported" not in hypotheses_finding.says and "contradicted" not in hypotheses_finding.says
    )
    assert {row[1] for row in hypotheses_finding.grid.rows} == {"no conclusion"}
    front = build_document(RunFolder(finished_run.path)).front
    assert front is not None and front.contrasts == () and front.colour == "red"
    assert NOT_SEALED in {light.reason for light in front.lights}
    assert "before the first call" not in front.fixed


def test_hypothesis_added_after_the_run_is_not_confirmatory(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    finished_run = folkmoot.load(
        shutil.copytree(run_of_small_study("cross_pollination"), tmp_path / "run")
    )
    edited = finished_run.path / "study.yaml"
    settings = yaml.safe_load(edited.read_text("utf-8"))
    edited.write_text(yaml.safe_dump({**settings, "hypotheses": [CHANGE_HYPOTHESIS]}), "utf-8")
    hypotheses_finding = compute_findings(
        find_study_of_run(RunFolder(finished_run.path)), RunFolder(finished_run.path)
    )[0]
    assert (
        hypotheses_finding.alarms == (ADDED_LATER,) and "supported" not in hypotheses_finding.says
    )


def test_chart_of_hypotheses_shows_intervals_and_margins(
    tmp_path: Path,
) -> None:
    run = write_run_with_table(tmp_path, build_vote_rows(60, 20))
    hypothesis = build_hypothesis(smallest=0.05)
    (single_item,) = compute_hypotheses_finding(run, [hypothesis]).chart.items
    reversed_hypothesis = build_hypothesis(smallest=0.05, contrast=["simple_voting", "acp"])
    finding_of_two = compute_hypotheses_finding(run, [hypothesis, reversed_hypothesis])
    at = finding_of_two.grid.columns.index
    drawn_items = [item[2:] for item in finding_of_two.chart.items]
    assert drawn_items == [
        (row[at("joint_low")], row[at("joint_high")]) for row in finding_of_two.grid.rows
    ]
    assert drawn_items[0][0] < single_item[2]
    assert finding_of_two.chart.margins == (0.05,)
    assert compute_hypotheses_finding(run, [build_hypothesis()]).chart.margins == ()


@pytest.mark.parametrize("number", [1, 2])
def test_table_and_sentence_of_a_smallest_difference_have_the_same_p(
    tmp_path: Path, number: int
) -> None:
    run = write_run_with_table(tmp_path, build_vote_rows(60, 20))
    finding = compute_hypotheses_finding(run, [build_hypothesis(smallest=0.35)] * number)
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    p = row["adjusted_p"]
    assert row["verdict"] == "neither shown nor ruled out" and isinstance(p, float) and p > 0.05
    assert f"{'adjusted ' * (number > 1)}{format_p_value(p)} for the margin" in finding.says
    assert "adjusted p: of the smallest difference that matters, if one is stated" in (
        finding.grid.caption
    )


def test_table_of_hypotheses_has_the_unit_of_the_text(tmp_path: Path) -> None:
    finding = compute_hypotheses_finding(
        write_run_with_table(tmp_path, build_vote_rows(60, 20)), [build_hypothesis()]
    )
    (row,) = finding.grid.rows
    difference = row[finding.grid.columns.index("difference")]
    assert difference == pytest.approx(0.4) and "+40 points" in finding.says
    assert format_cell(difference, "difference") == "+40.0 points"
