"""Hypotheses stated beforehand: sealed, tested first, and never supported by too little."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
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
from folkmoot.engine.settings.claims import evaluate_claims
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
from folkmoot.measures.inference.claims import judge
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.report.comparison.pooled import judge_claims
from folkmoot.report.document.document import build_document
from folkmoot.storage.findings import Finding, format_cell
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.table_buffer import rows_to_frame
from folkmoot.storage.tables import write_table
from tests.contract.small import SMALL, small_study

FEW = {"extra_conditions": []}
MORE = {"measure": "position_changed", "contrast": ["acp", "simple_voting"], "direction": "greater"}


def stated(**changes: object) -> Hypothesis:
    return Hypothesis.model_validate({**MORE, **changes})


def hypotheses_finding(run: RunFolder, hypotheses: list[Hypothesis]) -> Finding:
    return build_hypotheses_finding(
        evaluate_claims(run, [hypothesis.as_claim() for hypothesis in hypotheses])
    )


def run_of(folder: Path, rows: list[dict], table: str = "participants") -> RunFolder:
    (folder / "tables").mkdir(parents=True)
    write_table(folder / "tables", table, rows_to_frame(rows))
    (folder / "study.yaml").write_text("study: x\n")
    (folder / "manifest.json").write_text('{"outcome": "done"}')
    return RunFolder(folder)


def votes(acp: int, simple: int, n: int = 100) -> list[dict]:
    return [
        {"participant_id": f"{arm}{i}", "condition": arm, "position_changed": i < moved}
        for arm, moved in (("acp", acp), ("simple_voting", simple))
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
    found = hypotheses_finding(run_of(tmp_path / "run", votes(acp, simple)), [stated(**changes)])
    assert found.grid.rows[0][1] == verdict
    assert verdict in found.says


def test_a_few_conversations_are_an_illustration_however_many_people_were_in_them(
    tmp_path: Path,
) -> None:
    rows = [
        {"set": s, "level": level, "heard": 0.9 if level == "4" else 0.1, "id": i}
        for s in range(4)
        for level in ("1", "4")
        for i in range(50)
    ]
    h = Hypothesis(measure="heard", contrast=("4", "1"), direction="greater")
    found = hypotheses_finding(run_of(tmp_path / "four", rows, "discussions"), [h])
    assert "4 independent units are an illustration" in found.says
    assert found.grid.rows[0][3:6] == (None, None, None)
    # The same difference in eight sets, with some variation between them, is tested by sets.
    more = [
        {**r, "set": s, "heard": r["heard"] + 0.01 * s * (r["level"] == "4")}
        for s in range(8)
        for r in rows
    ]
    found = hypotheses_finding(run_of(tmp_path / "eight", more, "discussions"), [h])
    assert found.grid.rows[0][1] == "supported"
    assert found.grid.rows[0][6] == 8


def test_null_hypotheses_are_rarely_supported_together(tmp_path: Path) -> None:
    """Five null measures in each of 120 runs: some one supported in at most 5 % of runs."""
    rng = np.random.default_rng(11)
    alpha = 0.05 / 5
    wrong = 0
    for _ in range(120):
        verdicts = []
        for _ in range(5):
            a, b = rng.binomial(1, 0.3, 60), rng.binomial(1, 0.3, 60)
            e = newcombe(int(a.sum()), 60, int(b.sum()), 60, 1 - alpha)
            verdicts.append(judge("different", 0.0, e, alpha))
        wrong += "supported" in verdicts
    assert wrong <= 13  # with a true rate of 5 % more happens in 0.5 % of cases


def test_an_exact_test_over_few_units_must_agree_with_the_interval() -> None:
    sure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.03)
    unsure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.06)
    assert judge("greater", 0.0, sure) == "supported"
    assert judge("greater", 0.0, unsure) == "neither shown nor ruled out"
    nothing = Estimate(0.3, float("nan"), float("nan"), 1)
    assert judge("greater", 0.0, nothing) == "neither shown nor ruled out"


def test_what_cannot_be_tested_says_why(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", votes(40, 10))
    wrong = [stated(measure="warmth"), stated(contrast=["acp", "control"])]
    found = hypotheses_finding(run, wrong)
    assert "no table has warmth and arms" in found.says
    assert "no condition control; there are acp, simple_voting" in found.says
    assert found.chart is None


def test_what_is_unknown_in_an_arm_is_said_to_be_unknown(tmp_path: Path) -> None:
    rows = [{**r, "delay": None if r["condition"] == "acp" else 1} for r in votes(40, 10)]
    found = hypotheses_finding(run_of(tmp_path / "run", rows), [stated(measure="delay")])
    assert "delay is unknown in acp" in found.says
    assert "no condition" not in found.says


def test_a_difference_of_shares_in_points_is_not_read_as_a_hundred_times_as_large(
    tmp_path: Path,
) -> None:
    found = hypotheses_finding(run_of(tmp_path / "run", votes(40, 10)), [stated(smallest=5)])
    assert "write smallest: 0.05 for five points" in found.says
    assert "contradicted" not in found.says


def test_people_who_answer_often_are_one_unit_each(tmp_path: Path) -> None:
    """Six people who say the same twenty times are six people."""
    rows = [
        {"participant_id": f"{arm}{i}", "condition": arm, "round": r, "heat": i + (arm == "a")}
        for arm in "ab"
        for i in range(3)
        for r in range(20)
    ]
    h = Hypothesis(measure="heat", contrast=("a", "b"), direction="greater")
    found = hypotheses_finding(run_of(tmp_path / "run", rows, "rounds"), [h])
    # Three in each arm, however often they answer.
    assert found.grid.rows[0][1].startswith("not tested (3 independent units")
    # The same six people in both arms, always one higher in the first, are pairs.
    same = [
        {"participant_id": f"p{i}", "condition": arm, "round": r, "heat": i + (arm == "a") * i}
        for arm in "ab"
        for i in range(6)
        for r in range(20)
    ]
    found = hypotheses_finding(run_of(tmp_path / "pairs", same, "rounds"), [h])
    assert found.grid.rows[0][6] == 6


@pytest.fixture(scope="module")
def run_with_hypothesis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run whose study file states a hypothesis. No test changes it."""
    folder = tmp_path_factory.mktemp("hypothesis")
    path = hypothesis_in("cross_pollination", folder, FEW, **MORE)
    return folkmoot.run(path, model="synthetic", out=folder / "run").path


def test_hypotheses_are_sealed_and_everything_else_is_called_exploratory(
    run_with_hypothesis: Path, tmp_path: Path
) -> None:
    done = folkmoot.load(shutil.copytree(run_with_hypothesis, tmp_path / "run"))
    first, *others = done.findings
    assert first.key == "hypotheses"
    assert first.headline
    assert others
    # How answers were had explores nothing; what was tested is told with the family of each claim.
    about_answers = (CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY, "claims_tested")
    # The finding on the differences repeats the hypothesis, which its table calls primary.
    named = [f for f in others if f.key not in about_answers]
    assert all(f.title.endswith("(exploratory)") != f.primary for f in named)
    (tested,) = (f for f in others if f.key == "claims_tested")
    families = [row[tested.grid.columns.index("family")] for row in tested.grid.rows]
    assert families[0] == "primary" and set(families[1:]) == {"exploratory"}
    # The contrast that is stated has the numbers of the hypothesis wherever it stands.
    (pairs,) = (f for f in others if f.key == "change_differences")
    rows = [dict(zip(pairs.grid.columns, row, strict=True)) for row in pairs.grid.rows]
    (same,) = (
        r for r in rows if (r["first"], r["second"]) == ("Adversarial (ACP)", "Simple voting")
    )
    stated = dict(zip(first.grid.columns, first.grid.rows[0], strict=True))
    assert same["family"] == "primary"
    assert (same["difference_points"], same["p"]) == (stated["difference"], stated["adjusted_p"])
    plan = json.loads((done.path / "plan.json").read_text("utf-8"))
    assert "acp" in json.dumps(plan["sealed"]["design"]["data"]["settings"]["hypotheses"])
    path = hypothesis_in("cross_pollination", tmp_path, FEW, **{**MORE, "direction": "less"})
    with pytest.raises(DriftError, match="hypotheses"):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "says"),
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
def test_mistakes_are_named_by_line(changes: dict, says: str, tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**settings, "hypotheses": [{**MORE, **changes}]}), "utf-8")
    with pytest.raises(InputError) as error:
        load_study_file(path)
    assert says in str(error.value)
    assert "hypotheses" in str(error.value)


def hypothesis_in(study: str, folder: Path, settings: dict, **stated: object) -> Path:
    """The small study of a type, with changed settings and one hypothesis."""
    path = small_study(study, folder)
    loaded = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**loaded, **settings, "hypotheses": [stated]}), "utf-8")
    return path


# Conditions that the study type knows, and that this file does not run.
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
def test_a_condition_that_is_not_run_is_refused_before_the_first_call(
    study: str, settings: dict, contrast: list[str], tmp_path: Path
) -> None:
    stated = {"measure": MEASURES[study], "contrast": contrast, "direction": "different"}
    path = hypothesis_in(study, tmp_path, settings, **stated)
    commands = (
        ("check", str(path)),
        ("plan", str(path)),
        ("run", str(path), "--model", "synthetic", "--out", str(tmp_path / "run")),
    )
    missing = contrast[1] if contrast[1] != "C3" else contrast[0]
    for command in commands:
        done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        assert done.exit_code == 2, (command, done.output)
        told = " ".join(done.output.split())
        assert "hypotheses[1].contrast" in told and f" {missing} " in told, told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "again",
    [
        {"measure": "participants.position_changed", "smallest": 0.1},
        {"contrast": MORE["contrast"][::-1], "direction": "less"},
        {"contrast": MORE["contrast"][::-1], "direction": "less", "smallest": 0.1},
    ],
)
def test_one_comparison_in_two_wordings_is_refused(again: dict, tmp_path: Path) -> None:
    """Each of two hypotheses is tested at a stricter level, and one difference would get two
    joint intervals."""
    path = small_study("cross_pollination", tmp_path)
    settings = {**yaml.safe_load(path.read_text("utf-8")), "hypotheses": [MORE, {**MORE, **again}]}
    path.write_text(yaml.safe_dump(settings), "utf-8")
    run = ("run", str(path), "--model", "synthetic", "--out", str(tmp_path / "run"))
    for command in (("check", str(path)), run):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        assert done.exit_code == 2, (command, done.output)
        told = " ".join(done.output.split())
        assert "hypotheses[2]" in told and "states the same comparison as hypotheses[1]" in told
    assert not (tmp_path / "run").exists()


def test_a_setting_of_a_grid_that_removes_the_condition_is_refused(tmp_path: Path) -> None:
    path = hypothesis_in("cross_pollination", tmp_path, {}, **MORE)
    out = tmp_path / "grid"
    command = ["run", str(path), "--model", "synthetic", "--grid", "revote=true,false"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)], env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert "in the cell revote false: position_changed is not recorded" in done.output
    assert not out.exists()


@pytest.mark.parametrize("study", sorted(MEASURES))
def test_a_study_type_names_all_conditions_that_it_compares(study: str, tmp_path: Path) -> None:
    loaded = load_study_file(small_study(study, tmp_path))
    conditions = loaded.study.conditions(loaded.config)
    for claim in loaded.study.claims(loaded.config):
        assert set(claim.contrast) <= set(conditions.get(claim.by, claim.contrast))


def test_a_design_of_too_few_units_for_any_test_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The dry run plays one set, which takes less time. The warning counts the sets of the file.
    monkeypatch.setattr(dry_run, "SUFFICIENT_SAMPLE_CALLS", 1)
    stated = {"measure": MEASURES["town_hall"], "contrast": ["4", "1"], "direction": "different"}
    path = hypothesis_in("town_hall", tmp_path, {"sets": 3, "rounds": 1}, **stated)
    done = CliRunner().invoke(app, ["check", str(path)], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert "no hypothesis is tested with 3 sets, because a test needs 5 (raise sets)" in told
    enough = CliRunner().invoke(app, ["check", str(path), "--set", "sets=5"])
    assert "no hypothesis is tested" not in " ".join(enough.output.split())


OWN_TYPE = """
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
    ("stated", "exit_code", "told"),
    [
        ({"contrast": ["reasons", "none"]}, 2, "no condition none; there are plain, reasons"),
        ({"measure": "votes.warmth"}, 2, "no table has votes.warmth and arms"),
        ({"smallest": 5}, 2, "write smallest: 0.05 for five points"),
        ({"measure": "delay"}, 0, "delay is unknown in reasons"),
        ({}, 0, ""),
    ],
)
def test_the_dry_run_finds_what_a_study_type_does_not_declare(
    stated: dict, exit_code: int, told: str, tmp_path: Path
) -> None:
    """Such a type tells neither its tables nor its conditions. What the embedded respondent alone
    leaves unknown is a warning, because a model may answer otherwise."""
    (tmp_path / "own.py").write_text(OWN_TYPE, "utf-8")
    hypothesis = {"measure": "agrees", "contrast": ["reasons", "plain"], "direction": "greater"}
    settings = {"study": "./own.py", "hypotheses": [{**hypothesis, **stated}]}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(settings), "utf-8")
    done = CliRunner().invoke(app, ["check", str(path), "--trust"], env={"COLUMNS": "300"})
    assert done.exit_code == exit_code, done.output
    assert told in " ".join(done.output.split())
    assert ("test it" in done.output) == bool(told), done.output


def test_one_hypothesis_is_one_row_whatever_a_setting_calls_its_conditions(tmp_path: Path) -> None:
    """Without `revote` the study type compares nothing with simple voting, so plans of earlier
    versions have its key in place of its name."""
    cells = {}
    for repeat, revote in enumerate((True, False), 1):
        folder = tmp_path / str(revote)
        run_of(folder, votes(40, 10))
        settings = {**yaml.safe_load(SMALL["cross_pollination"]), "revote": revote}
        settings |= {"study": "cross_pollination", "hypotheses": [MORE]}
        (folder / "study.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        plan = Plan(folder / "plan.json", started_at="2026-11-26T09:00:00+00:00")
        plan.seal_part(DESIGN, {"settings": settings})
        plan.write_plan()
        cell = GridCell(folder.name, {"revote": str(revote).lower()}, repeat, repeat)
        cells[folder.name] = (cell, RunFolder(folder))
    found = judge_claims(cells)
    assert found is not None
    (row,) = found.grid.rows
    assert row[0] == "Changed their choice: Adversarial (ACP) exceeds Simple voting"
    assert "simple_voting" not in found.says and "supported in 2 of 2 cells" in found.says


def test_the_unit_is_the_draw_of_the_texts_that_were_read(tmp_path: Path) -> None:
    """Twenty readers of each of five draws: two arms whose draws differ by more than their mean."""
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
    h = stated(contrast=["acp", "simple_passive"])
    found = hypotheses_finding(run_of(tmp_path / "draws", rows), [h])
    row = dict(zip(found.grid.columns, found.grid.rows[0], strict=True))
    assert (row["units"], row["unit"], row["verdict"]) == (
        5,
        "draw of the summaries",
        "neither shown nor ruled out",
    )
    # The same people without draws are people, and many enough.
    plain = [{k: v for k, v in r.items() if k != "summary_draw"} for r in rows]
    found = hypotheses_finding(run_of(tmp_path / "plain", plain), [h])
    assert found.grid.rows[0][1] == "supported"


def test_missing_answers_bound_the_difference(tmp_path: Path) -> None:
    rows = votes(40, 10)
    lost = [{**r, "position_changed": None} for r in rows[:60]]
    found = hypotheses_finding(run_of(tmp_path / "run", [*rows, *lost]), [stated()])
    row = dict(zip(found.grid.columns, found.grid.rows[0], strict=True))
    assert row["excluded"] == 60
    assert row["least_if_missing"] == pytest.approx(40 / 160 - 10 / 100)
    assert row["most_if_missing"] == pytest.approx(100 / 160 - 10 / 100)
    found = hypotheses_finding(run_of(tmp_path / "more", [*rows, *lost * 6]), [stated()])
    assert any("missing answers could change the sign" in note for note in found.notes)


def test_an_edited_hypothesis_is_not_evaluated_and_a_broken_seal_is_named(
    run_with_hypothesis: Path, tmp_path: Path
) -> None:
    done = folkmoot.load(shutil.copytree(run_with_hypothesis, tmp_path / "run"))
    assert "Adversarial (ACP) exceeds Simple voting" in done.findings[0].says
    edited = done.path / "study.yaml"
    edited.write_text(edited.read_text("utf-8").replace("greater", "less"), "utf-8")
    first = compute_findings(find_study_of_run(RunFolder(done.path)), RunFolder(done.path))[0]
    assert "Adversarial (ACP) exceeds Simple voting" in first.says and NOT_SEALED not in first.says
    plan = done.path / "plan.json"
    plan.write_text(plan.read_text("utf-8").replace('"greater"', '"less"'), "utf-8")
    first = compute_findings(find_study_of_run(RunFolder(done.path)), RunFolder(done.path))[0]
    assert first.alarms == (NOT_SEALED,) and "Sealed in the plan" not in first.notes[0]
    # What may have been written after the data is no longer tested as if it had been before.
    assert "supported" not in first.says and "contradicted" not in first.says
    assert {row[1] for row in first.grid.rows} == {"no conclusion"}
    front = build_document(RunFolder(done.path)).front
    assert front is not None and front.contrasts == () and front.colour == "red"
    assert NOT_SEALED in {light.reason for light in front.lights}
    assert "before the first call" not in front.fixed


def test_a_hypothesis_that_was_added_after_the_run_confirms_nothing(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    done = folkmoot.load(shutil.copytree(run_of_small_study("cross_pollination"), tmp_path / "run"))
    edited = done.path / "study.yaml"
    settings = yaml.safe_load(edited.read_text("utf-8"))
    edited.write_text(yaml.safe_dump({**settings, "hypotheses": [MORE]}), "utf-8")
    first = compute_findings(find_study_of_run(RunFolder(done.path)), RunFolder(done.path))[0]
    assert first.alarms == (ADDED_LATER,) and "supported" not in first.says


def test_the_chart_of_hypotheses_shows_the_intervals_and_the_margin_of_the_verdicts(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, votes(60, 20))
    small = stated(smallest=0.05)
    (alone,) = hypotheses_finding(run, [small]).chart.items
    other = stated(smallest=0.05, contrast=["simple_voting", "acp"])
    both = hypotheses_finding(run, [small, other])
    at = both.grid.columns.index
    drawn = [item[2:] for item in both.chart.items]
    assert drawn == [(row[at("joint_low")], row[at("joint_high")]) for row in both.grid.rows]
    assert drawn[0][0] < alone[2]
    assert both.chart.margins == (0.05,)
    assert hypotheses_finding(run, [stated()]).chart.margins == ()


def test_the_table_of_hypotheses_has_the_unit_of_the_text(tmp_path: Path) -> None:
    found = hypotheses_finding(run_of(tmp_path, votes(60, 20)), [stated()])
    (row,) = found.grid.rows
    difference = row[found.grid.columns.index("difference")]
    assert difference == pytest.approx(0.4) and "+40 points" in found.says
    assert format_cell(difference, "difference") == "+40.0 points"
