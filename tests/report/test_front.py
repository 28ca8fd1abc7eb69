"""The first page: question, design, answer, and trust lights with their reasons."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.session.folder_access import open_run
from folkmoot.engine.settings.hypotheses import FINDINGS_SECTION as STATED
from folkmoot.engine.study.study import analysed_parts, find_study_of_run
from folkmoot.errors import RunPausedError
from folkmoot.kit.exposure import ExposureRow
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.diagnostics import Verdict
from folkmoot.report.document.deviations import list_deviations
from folkmoot.report.document.front import (
    DesignLane,
    build_front_page,
    design_lanes,
    main_answers,
    question_of,
    trust_lights,
)
from folkmoot.report.document.html import write_report
from folkmoot.report.document.validity import CardRow
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.manifest import SYNTHETIC_MARK, SYNTHETIC_NOTE
from folkmoot.storage.partial_run import PartialRun
from folkmoot.storage.run_folder import MANIFEST, TABLES, RunFolder
from tests.contract.small import small_study


def test_every_report_starts_with_question_design_answer_and_light(
    finished_run: RunFolder, finished_page: str
) -> None:
    first_page = finished_page.split('id="glance"')[1].split("</section>")[0]
    for heading in ("The answer", "How far to trust it"):
        assert f"<h3>{heading}</h3>" in first_page
    title = re.findall(r"<h1>(.*?)</h1>", finished_page)[0]
    questions = re.findall(r'class="question">(.*?)</p>', first_page)
    assert questions or title.endswith("?")
    if finished_run.study == "workbook":  # it has no question in words
        assert questions == ["What differs between Plain and Appeal?"]
    subtitle = re.findall(r'class="subtitle">(.*?)</p>', finished_page)[0]
    assert title not in subtitle
    assert first_page.count("<svg") == 1
    assert first_page.count('class="says"') <= 3
    assert first_page.count('class="says"') + first_page.count('class="contrast"') >= 1
    assert 'class="light red"' in first_page  # the embedded respondent answered
    assert finished_page.index('id="glance"') < finished_page.index('id="findings"')


def test_the_design_lanes_follow_the_requests(pilot_run: RunFolder) -> None:
    front_page = build_front_page(pilot_run, find_study_of_run(pilot_run), [], [])
    shown_kinds = {
        lane.arm.split(",")[0]: {step.decision: set(step.sees) for step in lane.steps}
        for lane in front_page.lanes
    }
    assert shown_kinds["Simple voting"] == {"first vote, final vote": set()}
    assert shown_kinds["Simple passive"]["final vote"] == {"summaries"}
    assert shown_kinds["Clarified passive"]["final vote"] == {"summaries", "interview"}
    assert shown_kinds["Adversarial (ACP)"]["final vote"] == {"summaries", "interview", "dialogue"}
    assert {lane.size.removesuffix(" each") for lane in front_page.lanes} == {"10 participants"}
    assert front_page.question.startswith(pilot_run.config["topic"]["description"].split()[0])


def test_conditions_with_the_same_exposure_share_a_lane_with_planned_sizes(
    finished_run: RunFolder,
) -> None:
    lanes = list(design_lanes(finished_run, find_study_of_run(finished_run)))
    steps = [lane.steps for lane in lanes]
    assert len(steps) == len(set(steps)) or {lane.size for lane in lanes} != {lanes[0].size}
    assert all(
        step.sees != next_step.sees
        for lane_steps in steps
        for step, next_step in pairwise(lane_steps)
    )
    sizes = {lane.size for lane in lanes}
    expected = {
        "cross_pollination": {"6 participants", "6 participants each"},
        "town_hall": {"1 discussion"},
        "negotiation": {"", "2 sessions", "2 sessions each"},
        "workbook": {"2 sessions each"},
    }
    if finished_run.study in expected:
        assert sizes <= expected[finished_run.study]
        assert len(sizes - {""}) > 0


def report_paused_run(study: str, budget_calls: int, folder: Path) -> str:
    """Return the report of a small run that pauses at a budget of calls."""
    overrides = ("concurrency=1", f"budget_calls={budget_calls}")
    with pytest.raises(RunPausedError):
        folkmoot.run(
            small_study(study, folder), model="synthetic", out=folder / "run", overrides=overrides
        )
    return write_report(open_run(folder / "run")).read_text("utf-8")


@pytest.mark.parametrize("finished_run", ["workbook"], indirect=True)
def test_a_condition_without_a_complete_part_is_not_one_that_asks_nothing(
    finished_run: RunFolder, tmp_path: Path
) -> None:
    # The second of four sessions is not complete. The first belongs to one of two conditions.
    page = report_paused_run("workbook", finished_run.manifest["calls"] * 3 // 8, tmp_path)
    assert page.count("no decision in what the figures cover so far") == 1
    assert "nothing is asked of participants" not in page
    lanes = design_lanes(finished_run, find_study_of_run(finished_run))
    assert {lane.without_steps for lane in lanes} == {"nothing is asked of participants"}


ONE_CONCEPT = """
study: focus_group
product_concept: An oven that scans ready meals
category: kitchen appliances
stimulus_material: Meet the oven that reads.
num_personas: 4
max_responses_per_question: 2
questions_per_phase: 1
replications: 2
"""


def list_lanes(path: Path) -> tuple[list[DesignLane], list[DesignLane]]:
    """Return the lanes of a whole run, and of one that paused after three quarters of its calls."""
    study_run = partial(folkmoot.run, path, model="synthetic")
    whole, paused = study_run(out=path.parent / "whole"), path.parent / "paused"
    budget = f"budget_calls={whole.manifest['calls'] * 3 // 4}"
    with pytest.raises(RunPausedError):
        study_run(out=paused, overrides=("concurrency=1", budget))
    study, run = find_study_of_run(whole.folder), open_run(paused)
    covered = analysed_parts(study, run)
    assert isinstance(covered, PartialRun) and covered.parts.complete
    return list(design_lanes(whole.folder, study)), list(design_lanes(covered, study))


PANEL = """
import folkmoot as fm
from folkmoot.engine.study.study import ExpectedRows

class Answer(fm.Row, table="panel"):
    participant_id: str
    condition: str
    wave: int

async def protocol(session):
    people = [fm.Speaker(f"p{i}") for i in range(6)]
    await session.seal("panel", [who.id for who in people])

    async def ask(scope, who):
        for wave in (1, 2, 3):
            await scope.ask(who, "How are you?")
            condition = "even" if int(who.id[1:]) % 2 == 0 else "odd"
            scope.record(Answer(participant_id=who.id, condition=condition, wave=wave))

    await session.map(people, ask)

KEYS = lambda sealed: tuple(
    {"participant_id": who, "wave": wave} for who in sealed["panel"] for wave in (1, 2, 4)
)
STUDY = fm.Study(
    "panel", "Panel", fm.StudyConfig, protocol, tables=(Answer,),
    expected_rows=lambda sealed: [
        ExpectedRows("panel", ("participant_id", "wave"), KEYS(sealed))
    ],
)
"""


def test_participants_with_several_planned_rows_count_once(tmp_path: Path) -> None:
    (tmp_path / "panel.py").write_text(PANEL)
    (tmp_path / "panel.yaml").write_text("study: panel.py\n")
    run = folkmoot.run(tmp_path / "panel.yaml", model="synthetic", out=tmp_path / "run").folder
    study = find_study_of_run(run)
    assert {lane.size for lane in design_lanes(run, study)} == {"3 participants"}
    # Each row of the plan is a wave of a participant, and the plan has another last wave.
    deviations = list_deviations(run, study)
    assert "No record of 6 planned rows: p0 4, p1 4, p2 4 and 3 more." in deviations


def test_a_partial_run_states_the_size_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(ONE_CONCEPT)
    finished, paused = list_lanes(path)
    assert [lane.size for lane in finished] == ["8 participants"]
    assert [lane.size for lane in paused] == ["8 participants planned"]


COUPLES = """
study: negotiation
conditions: [C1, C5]
group_types: [spouses]
groups_per_type: 2
max_feedback_rounds: 1
"""


def test_a_condition_that_asks_nothing_says_so_when_a_part_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(COUPLES)
    _, paused = list_lanes(path)
    without_steps = {lane.arm: lane.without_steps for lane in paused}
    assert without_steps["C1"] == "nothing is asked of participants"


@pytest.mark.parametrize("study", ["cross_pollination", "focus_group"])
def test_an_unfinished_run_does_not_say_that_its_tables_hold_no_ages(
    study: str, tmp_path: Path
) -> None:
    page = report_paused_run(study, 12, tmp_path)
    assert "An effect may be one of other people in another condition: to know it, run" in page
    assert "Participants may forget who they are: to know it, run" in page


def test_an_unfinished_run_without_a_column_for_ages_names_no_command(tmp_path: Path) -> None:
    page = report_paused_run("town_hall", 60, tmp_path)
    assert "An effect may be one of other people in another condition: to know it, run" in page
    assert "no table of this run has a column for the age of personas" in page


def test_main_answers_start_with_hypotheses_and_omit_model_checks() -> None:
    def make_finding(
        key: str, says: str, chart: IntervalChart | None = None, section: str = "Effects"
    ) -> Finding:
        fields = {"section": section, "headline": True, "unit": "group", "units": 9}
        return Finding(key, key, says, ResultTable((), ()), chart, **fields)  # type: ignore[arg-type]

    interval_chart = IntervalChart((("a", 1.0, 0.0, 2.0),))
    findings = [
        make_finding("play", "Played."),
        make_finding(RESPONDENT_CHECKS_KEY, "Yes-saying."),
        make_finding("effect", "More.", interval_chart),
    ]
    hypotheses = make_finding("hypotheses", "Supported.", section=STATED)
    assert [finding.says for finding in main_answers([*findings, hypotheses])] == [
        "Supported.",
        "More.",
        "Played.",
    ]


def test_landmarks_and_ids_are_unique(finished_page: str) -> None:
    labels = re.findall(r'role="region" aria-label="([^"]*)"', finished_page)
    assert labels
    assert max(Counter(labels).values()) == 1
    assert max(Counter(re.findall(r'\bid="([^"]*)"', finished_page)).values()) == 1


def copy_as_real_run(run: RunFolder, folder: Path, **changes: object) -> RunFolder:
    """Copy a run so that its manifest names a real model, with other changes."""
    shutil.copytree(run.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest |= {"synthetic": False, **changes}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return RunFolder(folder)


def make_fitness_finding(*verdicts: str) -> Finding:
    rows = tuple((f"Check {n}", verdict) for n, verdict in enumerate(verdicts))
    return Finding(RESPONDENT_CHECKS_KEY, "Fit?", "Says.", ResultTable(("check", "verdict"), rows))


def test_the_light_is_green_only_if_all_checks_and_card_rows_passed(
    pilot_run: RunFolder, tmp_path: Path
) -> None:
    run, study = copy_as_real_run(pilot_run, tmp_path / "fine"), find_study_of_run(pilot_run)
    fitness_findings = [make_fitness_finding("passed", "passed")]
    (light,) = trust_lights(run, fitness_findings, [])
    assert light.colour == "green"
    assert f"{run.manifest['answers']['count']:,} answers" in light.reason
    colours: dict[Verdict, str] = {"passed": "green", "not known": "amber", "failed": "red"}
    for verdict, colour in colours.items():
        card = [CardRow("A", "passed", "", ""), CardRow("B", verdict, "", "")]
        assert build_front_page(run, study, fitness_findings, [], card=card).colour == colour


@pytest.mark.parametrize(
    ("findings", "colour", "reason"),
    [
        (
            [make_fitness_finding("passed", "not known")],
            "amber",
            "Checks of the model without a verdict: ",
        ),
        ([make_fitness_finding("failed", "not known")], "red", "Failed checks of the model: "),
        ([], "amber", "The model was not checked"),
    ],
)
def test_an_unknown_check_is_amber_and_a_failed_check_red(
    findings: list[Finding], colour: str, reason: str, pilot_run: RunFolder, tmp_path: Path
) -> None:
    lights = [*trust_lights(copy_as_real_run(pilot_run, tmp_path / "run"), findings, [])]
    assert lights[0].colour == colour
    assert any(light.colour == colour and reason in light.reason for light in lights)


@pytest.mark.parametrize(
    ("changes", "colour", "reason"),
    [
        ({"synthetic": True}, "red", "Answered by the embedded respondent."),
        ({"unusable": "no answer could be read"}, "red", "no answer could be read"),
        ({"outcome": "paused"}, "red", "paused"),
        ({"answers": {"count": 0}}, "red", "The run recorded no answer"),
        ({"answers": {"count": 100, "missing": {"unreadable": 9}}}, "amber", "9 % of answers"),
        ({"cut_replies": {"kept": 3}}, "amber", "3 replies were cut"),
    ],
)
def test_each_problem_of_a_run_has_a_light(
    changes: dict[str, object], colour: str, reason: str, pilot_run: RunFolder, tmp_path: Path
) -> None:
    run = copy_as_real_run(pilot_run, tmp_path / "run", **changes)
    front_page = build_front_page(run, find_study_of_run(run), [], [])
    assert front_page.colour == colour
    assert any(reason in light.reason for light in front_page.lights)


def test_a_run_killed_before_its_first_row_is_labelled_by_its_journal(
    finished_run: RunFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(finished_run.path, folder)
    shutil.rmtree(folder / TABLES)
    (folder / MANIFEST).unlink()
    killed_run = open_run(folder)
    assert killed_run.is_synthetic and killed_run.mark == SYNTHETIC_MARK
    assert killed_run.provenance_note == SYNTHETIC_NOTE
    page = write_report(killed_run).read_text("utf-8")
    assert '<body class="synthetic">' in page and "<strong>SYNTHETIC</strong>" in page
    assert "Answered by the embedded respondent." in page
    calls = killed_run.manifest["calls"]
    assert f"The tables hold no answer: {calls:,} calls ended" in page
    assert "simulated by models that its tables do not name yet." in page


def test_warnings_of_findings_and_plan_are_amber(pilot_run: RunFolder, tmp_path: Path) -> None:
    run = copy_as_real_run(pilot_run, tmp_path / "run")
    fitness = make_fitness_finding("not known")
    finding_of_few_units = Finding(
        "few", "Heard", "Some.", ResultTable((), ()), unit="set", units=4
    )
    lights = list(
        trust_lights(run, [fitness, finding_of_few_units], ["The seed differs.", "More."])
    )
    assert {light.colour for light in lights} == {"amber"}
    reasons = " ".join(light.reason for light in lights)
    for reason in ("check 0", "Heard", "The seed differs. (1 more below)"):
        assert reason in reasons


def test_prompts_that_differ_from_the_design_are_red(pilot_run: RunFolder, tmp_path: Path) -> None:
    run = copy_as_real_run(pilot_run, tmp_path / "run")
    path = run.path / "tables" / f"{ExposureRow.table}.parquet"
    table = pl.read_parquet(path)
    acp_summaries = (pl.col("condition") == "acp") & (pl.col("kind") == "summaries")
    texts = pl.when(acp_summaries).then(0).otherwise(pl.col("texts")).cast(table.schema["texts"])
    table.with_columns(texts.alias("texts")).write_parquet(path)
    first_light, *_ = trust_lights(RunFolder(run.path), [], [])
    assert first_light.colour == "red"
    assert "Some prompts do not match the design" in first_light.reason
    run = RunFolder(run.path)
    shown_kinds = {
        lane.arm: lane.steps[-1].sees for lane in design_lanes(run, find_study_of_run(run))
    }
    assert "summaries" not in shown_kinds["Adversarial (ACP)"]


def test_the_question_is_found_in_the_settings() -> None:
    assert question_of({"topic": {"description": "Which\n one?"}}) == "Which one?"
    assert question_of({"question": "How many?", "topic": {"title": "x"}}) == "How many?"
    assert question_of({"topic": "x", "case": " "}) == ""
    question = "An oven. What do people think of it, and would they buy it?"
    assert question_of({"product_concept": "An oven"}) == question
    assert question_of({"product_concept": "Would you buy an oven?"}) == "Would you buy an oven?"


def test_the_first_page_states_few_units_once(pilot_run: RunFolder) -> None:
    chart = IntervalChart((("a", 1.0, 1.0, 1.0),))

    def make_finding(key: str, says: str, units: int) -> Finding:
        return Finding(
            key, key, says, ResultTable((), ()), chart, headline=True, unit="set", units=units
        )

    findings = [
        make_finding("one", "It is 1 (no interval).", 2),
        make_finding("two", "B.", 2),
        make_finding("three", "C.", 3),
    ]
    assert build_front_page(pilot_run, find_study_of_run(pilot_run), findings, []).answer == (
        "An illustration, not evidence: 2 sets. It is 1.",
        "B.",
        "An illustration, not evidence: 3 sets. C.",
    )


def test_the_first_page_explains_brackets_and_circles(pilot_run: RunFolder) -> None:
    chart = IntervalChart((("a", 1.0, 0.5, 1.5),))
    shares = Finding(
        "one", "A", "7 % (5 to 11 %), adjusted p = .04.", ResultTable((), ()), chart, headline=True,
        unit="set", units=9,
    )  # fmt: skip
    finding_of_few_units = Finding(
        "two", "B", "It is 1 (no interval).", ResultTable((), ()),
        replace(chart, unit_values=(("a", 0.9),)), headline=True, unit="set", units=2,
    )  # fmt: skip
    stated_finding = replace(shares, section=STATED, says="+8 points (+3 to +13).")

    def build_legend(*findings: Finding) -> str:
        return build_front_page(pilot_run, find_study_of_run(pilot_run), findings, []).legend

    adjusted = "Adjusted p: by Holm's method."
    unit = "Independent unit: set (9)."
    lines = "Brackets and lines: 95 % intervals, each by itself."
    assert build_legend(shares) == f"{lines} {adjusted} {unit}"
    finding_without_p = replace(shares, says="7 % (5 to 11 %).")
    assert build_legend(finding_without_p) == f"{lines} {unit}"
    assert (
        build_legend(finding_of_few_units)
        == "Filled circle: the mean. Open circles: one for each set."
    )
    assert build_legend(stated_finding) == lines
    finding_with_joint = replace(
        stated_finding, says="+8 points (+3 to +13 by itself, above 0 to +15 jointly)."
    )
    assert build_legend(finding_with_joint) == (
        f"{lines} Jointly: for all primary claims at once, in agreement with the verdicts, and so "
        "often wider. Above or below a value: only the side is shown."
    )
    assert build_legend() == ""
