"""The first page: question, design, answer, and lights with the reasons for their colours."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from folkmoot.engine.settings.hypotheses import FINDINGS_SECTION as STATED
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.kit.exposure import ExposureRow
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.diagnostics import Verdict
from folkmoot.report.document.front import (
    build_front_page,
    design_lanes,
    main_answers,
    question_of,
    trust_lights,
)
from folkmoot.report.document.validity import CardRow
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder


def test_every_report_opens_with_a_question_a_design_an_answer_and_a_light(
    finished: RunFolder, finished_page: str
) -> None:
    glance = finished_page.split('id="glance"')[1].split("</section>")[0]
    for heading in ("The answer", "How far to trust it"):
        assert f"<h3>{heading}</h3>" in glance
    title = re.findall(r"<h1>(.*?)</h1>", finished_page)[0]
    asked = re.findall(r'class="question">(.*?)</p>', glance)
    assert asked or title.endswith("?")
    if finished.study == "workbook":  # which asks nothing in words
        assert asked == ["What differs between Plain and Appeal?"]
    subtitle = re.findall(r'class="subtitle">(.*?)</p>', finished_page)[0]
    assert title not in subtitle
    assert glance.count("<svg") == 1
    assert glance.count('class="says"') <= 3
    assert glance.count('class="says"') + glance.count('class="contrast"') >= 1
    assert 'class="light red"' in glance  # the embedded respondent answered
    assert finished_page.index('id="glance"') < finished_page.index('id="findings"')


def test_the_design_is_what_the_requests_held(pilot: RunFolder) -> None:
    found = build_front_page(pilot, find_study_of_run(pilot), [], [])
    seen = {
        lane.arm.split(",")[0]: {s.decision: set(s.sees) for s in lane.steps}
        for lane in found.lanes
    }
    assert seen["Simple voting"] == {"first vote, final vote": set()}
    assert seen["Simple passive"]["final vote"] == {"summaries"}
    assert seen["Clarified passive"]["final vote"] == {"summaries", "interview"}
    assert seen["Adversarial (ACP)"]["final vote"] == {"summaries", "interview", "dialogue"}
    assert {lane.size.removesuffix(" each") for lane in found.lanes} == {"10 participants"}
    assert found.question.startswith(pilot.config["topic"]["description"].split()[0])


def test_arms_that_saw_the_same_are_one_lane_and_sizes_are_those_of_the_plan(
    finished: RunFolder,
) -> None:
    found = list(design_lanes(finished, find_study_of_run(finished)))
    steps = [lane.steps for lane in found]
    assert len(steps) == len(set(steps)) or {lane.size for lane in found} != {found[0].size}
    assert all(a.sees != b.sees for own in steps for a, b in pairwise(own))
    sizes = {lane.size for lane in found}
    expected = {
        "cross_pollination": {"6 participants", "6 participants each"},
        "town_hall": {"1 discussion"},
        "negotiation": {"", "2 sessions", "2 sessions each"},
        "workbook": {"2 sessions each"},
    }
    if finished.study in expected:
        assert sizes <= expected[finished.study]
        assert len(sizes - {""}) > 0


def test_what_is_wrong_with_the_model_is_no_answer_and_hypotheses_come_first() -> None:
    def of(
        key: str, says: str, chart: IntervalChart | None = None, section: str = "Effects"
    ) -> Finding:
        known = {"section": section, "headline": True, "unit": "group", "units": 9}
        return Finding(key, key, says, ResultTable((), ()), chart, **known)  # type: ignore[arg-type]

    line = IntervalChart((("a", 1.0, 0.0, 2.0),))
    found = [
        of("play", "Played."),
        of(RESPONDENT_CHECKS_KEY, "Yes-saying."),
        of("effect", "More.", line),
    ]
    stated = of("hypotheses", "Supported.", section=STATED)
    assert [f.says for f in main_answers([*found, stated])] == ["Supported.", "More.", "Played."]


def test_landmarks_have_names_of_their_own(finished_page: str) -> None:
    labels = re.findall(r'role="region" aria-label="([^"]*)"', finished_page)
    assert labels
    assert max(Counter(labels).values()) == 1
    assert max(Counter(re.findall(r'\bid="([^"]*)"', finished_page)).values()) == 1


def copied(run: RunFolder, folder: Path, **changes: object) -> RunFolder:
    """The run, answered by a real model as far as its manifest says, with changes."""
    shutil.copytree(run.path, folder)
    facts = json.loads((folder / "manifest.json").read_text("utf-8"))
    facts |= {"synthetic": False, **changes}
    (folder / "manifest.json").write_text(json.dumps(facts))
    return RunFolder(folder)


def fitness_of(*verdicts: str) -> Finding:
    rows = tuple((f"Check {n}", verdict) for n, verdict in enumerate(verdicts))
    return Finding(RESPONDENT_CHECKS_KEY, "Fit?", "Says.", ResultTable(("check", "verdict"), rows))


def test_green_only_where_all_checks_and_all_rows_of_the_card_passed(
    pilot: RunFolder, tmp_path: Path
) -> None:
    run, study = copied(pilot, tmp_path / "fine"), find_study_of_run(pilot)
    fit = [fitness_of("passed", "passed")]
    (only,) = trust_lights(run, fit, [])
    assert only.colour == "green"
    assert f"{run.manifest['answers']['count']:,} answers" in only.reason
    colours: dict[Verdict, str] = {"passed": "green", "not known": "amber", "failed": "red"}
    for verdict, colour in colours.items():
        card = [CardRow("A", "passed", "", ""), CardRow("B", verdict, "", "")]
        assert build_front_page(run, study, fit, [], card=card).colour == colour


@pytest.mark.parametrize(
    ("findings", "colour", "reason"),
    [
        ([fitness_of("passed", "not known")], "amber", "Checks of the model without a verdict: "),
        ([fitness_of("failed", "not known")], "red", "Failed checks of the model: "),
        ([], "amber", "The model was not checked"),
    ],
)
def test_what_is_not_known_is_amber_and_a_failed_check_red(
    findings: list[Finding], colour: str, reason: str, pilot: RunFolder, tmp_path: Path
) -> None:
    found = [*trust_lights(copied(pilot, tmp_path / "run"), findings, [])]
    assert found[0].colour == colour
    assert any(light.colour == colour and reason in light.reason for light in found)


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
def test_each_fault_has_its_light(
    changes: dict[str, object], colour: str, reason: str, pilot: RunFolder, tmp_path: Path
) -> None:
    run = copied(pilot, tmp_path / "run", **changes)
    found = build_front_page(run, find_study_of_run(run), [], [])
    assert found.colour == colour
    assert any(reason in light.reason for light in found.lights)


def test_what_findings_and_plan_flag_is_amber(pilot: RunFolder, tmp_path: Path) -> None:
    run = copied(pilot, tmp_path / "run")
    fitness = fitness_of("not known")
    few = Finding("few", "Heard", "Some.", ResultTable((), ()), unit="set", units=4)
    found = list(trust_lights(run, [fitness, few], ["The seed differs.", "More."]))
    assert {light.colour for light in found} == {"amber"}
    said = " ".join(light.reason for light in found)
    for reason in ("check 0", "Heard", "The seed differs. (1 more below)"):
        assert reason in said


def test_prompts_that_differ_from_the_design_are_red(pilot: RunFolder, tmp_path: Path) -> None:
    run = copied(pilot, tmp_path / "run")
    path = run.path / "tables" / f"{ExposureRow.table}.parquet"
    table = pl.read_parquet(path)
    at = (pl.col("condition") == "acp") & (pl.col("kind") == "summaries")
    texts = pl.when(at).then(0).otherwise(pl.col("texts")).cast(table.schema["texts"])
    table.with_columns(texts.alias("texts")).write_parquet(path)
    first, *_ = trust_lights(RunFolder(run.path), [], [])
    assert first.colour == "red"
    assert "Some prompts do not match the design" in first.reason
    run = RunFolder(run.path)
    shown = {lane.arm: lane.steps[-1].sees for lane in design_lanes(run, find_study_of_run(run))}
    assert "summaries" not in shown["Adversarial (ACP)"]


def test_a_question_is_found_where_study_files_say_it() -> None:
    assert question_of({"topic": {"description": "Which\n one?"}}) == "Which one?"
    assert question_of({"question": "How many?", "topic": {"title": "x"}}) == "How many?"
    assert question_of({"topic": "x", "case": " "}) == ""
    asked = "An oven. What do people think of it, and would they buy it?"
    assert question_of({"product_concept": "An oven"}) == asked
    assert question_of({"product_concept": "Would you buy an oven?"}) == "Would you buy an oven?"


def test_that_units_are_few_is_said_once_on_the_first_page(pilot: RunFolder) -> None:
    line = IntervalChart((("a", 1.0, 1.0, 1.0),))

    def of(key: str, says: str, units: int) -> Finding:
        return Finding(
            key, key, says, ResultTable((), ()), line, headline=True, unit="set", units=units
        )

    found = [of("one", "It is 1 (no interval).", 2), of("two", "B.", 2), of("three", "C.", 3)]
    assert build_front_page(pilot, find_study_of_run(pilot), found, []).answer == (
        "An illustration, not evidence: 2 sets. It is 1.",
        "B.",
        "An illustration, not evidence: 3 sets. C.",
    )


def test_the_first_page_says_how_brackets_and_circles_are_read(pilot: RunFolder) -> None:
    line = IntervalChart((("a", 1.0, 0.5, 1.5),))
    shares = Finding(
        "one", "A", "7 % (5 to 11 %), adjusted p = .04.", ResultTable((), ()), line, headline=True,
        unit="set", units=9,
    )  # fmt: skip
    few = Finding(
        "two", "B", "It is 1 (no interval).", ResultTable((), ()),
        replace(line, unit_values=(("a", 0.9),)), headline=True, unit="set", units=2,
    )  # fmt: skip
    stated = replace(shares, section=STATED, says="+8 points (+3 to +13).")

    def legend(*findings: Finding) -> str:
        return build_front_page(pilot, find_study_of_run(pilot), findings, []).legend

    adjusted = "Adjusted p: by Holm's method."
    unit = "Independent unit: set (9)."
    alone = "Brackets and lines: 95 % intervals, each by itself."
    assert legend(shares) == f"{alone} {adjusted} {unit}"
    plain = replace(shares, says="7 % (5 to 11 %).")
    assert legend(plain) == f"{alone} {unit}"
    assert legend(few) == "Filled circle: the mean. Open circles: one for each set."
    assert legend(stated) == alone
    both = replace(stated, says="+8 points (+3 to +13 by itself, above 0 to +15 jointly).")
    assert legend(both) == (
        f"{alone} Jointly: for all primary claims at once, in agreement with the verdicts, and so "
        "often wider. Above or below a value: only the side is shown."
    )
    assert legend() == ""
