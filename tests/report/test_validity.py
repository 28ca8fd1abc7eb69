"""The first page of a report: the study's own question, and the validity card."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.errors import BudgetReachedError
from folkmoot.kit.controls.asking import run_controls
from folkmoot.kit.controls.findings import control_findings
from folkmoot.measures.wording import FIXED_BEFOREHAND
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import write_report
from folkmoot.report.document.validity import build_validity_card
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.engine.test_seats import build_seat_host

THREATS = [
    "Instructions followed",
    "Refusals",
    "Reliability (retest)",
    "User drift",
    "Persona kept",
    "Order effect",
    "Wording",
    "Human benchmark",
]
COLOURS = {"passed": "green", "not known": "amber", "failed": "red"}
PILOT = """
pilot_id: carded
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, acp]
participants_per_condition: 40
personas: {source: quota}
revote: true
"""


class CardEntry(NamedTuple):
    verdict: str
    consequence: str
    figures: str


def cut_first_page(report: str) -> str:
    return report.split('id="glance"')[1].split("</section>")[0]


def read_report(run: RunFolder) -> str:
    return write_report(run).read_text("utf-8")


def strip_markup(fragment: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", fragment)).split())


def read_card(report: str) -> dict[str, CardEntry]:
    """Read the validity card of a page: name → verdict, consequence and figures."""
    entries = {}
    for colour, row in re.findall(
        r'<li class="(\w+)">(.*?)</li>', cut_first_page(report).split('class="card"')[1], re.DOTALL
    ):
        name = strip_markup(re.findall(r"<strong>(.*?)</strong>", row)[0])
        verdict = strip_markup(re.findall(r'class="verdict">(.*?)</b>', row)[0])
        meaning = re.findall(r'class="meaning">(.*)', row, re.DOTALL)[0]
        consequence, _, figures = meaning.partition("<small>")
        assert colour == COLOURS[verdict]
        entries[name] = CardEntry(verdict, strip_markup(consequence), strip_markup(figures))
    return entries


def run_pilot(folder: Path, per_condition: int = 12, **respondent: float) -> RunFolder:
    """Run the pilot study with these settings of the embedded respondent."""
    study = folder / "study.yaml"
    settings = PILOT.replace("40", str(per_condition))
    study.write_text(f"{settings}respondent: {json.dumps(respondent)}\n", "utf-8")
    return folkmoot.run(study, model="synthetic", out=folder / "run").folder


@pytest.fixture
def sound_run(shared_folder: SharedFolder, tmp_path: Path) -> Path:
    """Copy the run of a respondent without faults, so that a test can run controls in it."""
    shared = shared_folder("validity/sound", run_pilot)
    return Path(shutil.copytree(shared / "run", tmp_path / "sound"))


def test_every_report_has_a_card_of_eight_threats_each_with_one_sentence(
    finished_page: str,
) -> None:
    card = read_card(finished_page)
    assert list(card) == THREATS
    for row in card.values():
        # A full stop within a command or a number ends no sentence.
        assert len(re.findall(r"[.!?](?: |$)", row.consequence)) == 1, row
        if not row.figures:
            assert row.verdict == "not known"
            assert ": " in row.consequence


@pytest.mark.nightly(part="sweeps")
def test_an_unknown_threat_names_the_command_that_makes_it_known(tmp_path: Path) -> None:
    run = run_pilot(tmp_path, per_condition=40)
    card_before = read_card(read_report(run))
    unknown = {"User drift", "Persona kept"}
    for name in unknown:
        assert card_before[name].verdict == "not known" and not card_before[name].figures
        (command,) = re.findall(
            r"run (folkmoot controls RUN .*?)\.$", card_before[name].consequence
        )
    arguments = command.replace("RUN", str(run.path)).split()[1:]
    result = CliRunner().invoke(app, [*arguments, "--participants", "40"])
    assert result.exit_code == 0, result.output
    card_after = read_card(read_report(run))
    assert card_after["Persona kept"] == (
        "passed",
        "Participants still give the age of their persona, and no other attribute was asked.",
        card_after["Persona kept"].figures,
    )
    figures_text = "give their age; the margin is at least 90 %. Of 4 groups: 4 passed."
    assert card_after["Persona kept"].figures.endswith(figures_text)
    assert card_after["Reliability (retest)"].figures.startswith("First vote: ")
    for name in (*unknown, "Order effect"):
        assert card_after[name].figures


def test_a_built_in_fault_is_red_with_its_consequence(tmp_path: Path) -> None:
    run = run_pilot(tmp_path, per_condition=24, drift=0.8, persona_forgetting=0.6, instability=0.7)
    run_controls(run, {"participants": 24}, RunOptions())
    card = read_card(read_report(run))
    for name in ("User drift", "Persona kept", "Reliability (retest)"):
        assert card[name].verdict == "failed", card[name]
    assert "other people in another condition" in card["User drift"].consequence
    pattern = r"should change, shares of answers are \d+ points \(\d+ to \d+\) apart on average"
    assert re.search(pattern, card["User drift"].figures)
    # Controls run once, so only the next run can include other controls.
    assert card["Order effect"].figures or "order: true" in card["Order effect"].consequence


@pytest.mark.parametrize("finished_run", ["workbook"], indirect=True)
def test_personas_with_their_age_in_a_list_of_attributes_have_no_column_of_it(
    finished_run: RunFolder, finished_page: str
) -> None:
    profiles = finished_run.read_table("assignment")["profile"]
    assert all("age" in json.loads(profile) for profile in profiles)
    consequence = read_card(finished_page)["Persona kept"].consequence
    assert "no table of this run has a column for the age of personas" in consequence


def test_a_missing_controls_folder_is_reported(sound_run: Path) -> None:
    run_controls(RunFolder(sound_run), {"participants": 4}, RunOptions())
    shutil.rmtree(sound_run / "controls")
    report_result = CliRunner().invoke(app, ["report", str(sound_run)])
    assert report_result.exit_code == 0, report_result.output
    page = (sound_run / "report.html").read_text("utf-8")
    assert "The controls were asked, but their folder is missing: restore it from a copy." in page
    assert "The folder controls is missing, so its answers do not count." in page
    assert "No control questions were asked." not in page
    assert read_card(page)["User drift"].consequence.endswith("but their folder is missing.")
    # Controls run once, so the report proposes no command, and the command names the reason.
    assert "folkmoot controls RUN" not in page
    controls_result = CliRunner().invoke(app, ["controls", str(sound_run)])
    assert controls_result.exit_code == 2
    assert "the controls were asked, but" in " ".join(controls_result.output.split())
    verify_result = CliRunner().invoke(app, ["verify", str(sound_run)])
    assert (
        verify_result.exit_code == 4
        and verify_result.output.count("folder controls is missing") == 1
    )


def test_a_threat_without_controls_names_its_key(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    run_controls(run, {"negative": False, "participants": 4}, RunOptions())
    assert read_card(read_report(run))["User drift"].consequence == (
        "An effect may be one of other people in another condition: its controls left it out, so "
        "write negative: true under controls: in the study file of the next run."
    )


@pytest.mark.parametrize(
    ("study", "control", "reason", "advice"),
    [
        # Without a call, no reply can be a refusal.
        ("town_hall", "order", None, "found no list that it could reverse in the prompts"),
        ("negotiation", "order", None, "found no list that it could reverse in the prompts"),
        ("town_hall", "retest", "humans_took_part", "could not ask these decisions again"),
        ("town_hall", "retest", "refused", "was asked, and too few replies are answers"),
    ],
)
def test_a_control_that_asked_nothing_blames_no_refusals(
    study: str,
    control: str,
    reason: str | None,
    advice: str,
    run_of_small_study: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(study), tmp_path / "run"))
    only_this = {"negative": False, "retest": False, "participants": 2, control: True}
    run_controls(run, only_this, RunOptions())
    if reason is not None:
        read_table = RunFolder.read_table

        def read_missing(folder: RunFolder, name: str) -> pl.DataFrame:
            table = read_table(folder, name)
            asked = pl.col("control") == control
            missing = pl.when(asked).then(pl.lit(reason)).otherwise("missing").alias("missing")
            return table.with_columns(missing) if name == "control_answers" else table

        monkeypatch.setattr(RunFolder, "read_table", read_missing)
    threat = {"order": "Order effect", "retest": "Reliability (retest)"}[control]
    row = next(row for row in build_validity_card(run, control_findings(run)) if row.name == threat)
    assert row.verdict == "not known" and f": its control {advice}" in row.consequence


def test_a_control_of_leading_roles_alone_blames_no_list(
    sound_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(sound_run)
    run_controls(run, {"negative": False, "participants": 2}, RunOptions())
    read_table = RunFolder.read_table

    def read_as_moderators(folder: RunFolder, name: str) -> pl.DataFrame:
        table = read_table(folder, name)
        is_asked = name == "control_answers"
        return table.with_columns(role=pl.lit("moderator")) if is_asked else table

    monkeypatch.setattr(RunFolder, "read_table", read_as_moderators)
    cards = {row.name: row for row in build_validity_card(run, control_findings(run))}
    assert cards["Reliability (retest)"].consequence.endswith(
        ": its control was asked, but of no participant."
    )


def test_a_paused_run_asks_the_controls_of_its_study_file_itself(tmp_path: Path) -> None:
    study, out = tmp_path / "study.yaml", tmp_path / "run"
    study.write_text(f"{PILOT}controls: {{retest: false, participants: 2}}\n", "utf-8")
    with pytest.raises(BudgetReachedError):
        folkmoot.run(study, model="synthetic", out=out, overrides=("budget_calls=20",))
    card = read_card(read_report(RunFolder(out)))
    for name in ("User drift", "Persona kept"):
        assert card[name].consequence.endswith(
            ": folkmoot run STUDY --resume asks it after the rest of the run."
        )
    for name, key in (("Reliability (retest)", "retest"), ("Order effect", "order")):
        assert f"so write {key}: true under controls: in the study" in card[name].consequence


def test_controls_of_a_run_without_a_result_are_asked_by_their_command(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(f"{PILOT}controls: {{participants: 2}}\n", "utf-8")
    provider = ScriptedProvider(lambda _request, _address: "declined")
    run = folkmoot.run(study, model="scripted", provider=provider, out=tmp_path / "run").folder
    assert run.unusable_reason
    assert read_card(read_report(run))["User drift"].consequence.endswith(
        ": the run has no usable result, so its controls were not asked; folkmoot controls RUN "
        "--order asks them."
    )


def test_humans_in_seats_are_the_benchmark(tmp_path: Path) -> None:
    """Thirty humans choose the same option, and thirty models vote."""
    study = tmp_path / "study.yaml"
    one_condition = PILOT.replace("[simple_voting, acp]", "[simple_voting]").replace("40", "60")
    study.write_text(f"{one_condition}seats: 30\n", "utf-8")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        return "Safer streets" if question.view.options else "Words of my own."

    run = folkmoot.run(study, out=tmp_path / "run", seat_host=build_seat_host(answer)).folder
    row = read_card(read_report(run))["Human benchmark"]
    assert row.verdict == "failed"
    assert row.consequence == (
        "People and models differ in a comparison that was made, so these figures are no estimate "
        "of people's."
    )
    assert row.figures.startswith("initial vote: Park improvements: people and models differ.")
    assert row.figures.endswith("Of 6 comparisons: 6 failed.")


@pytest.mark.nightly(part="sweeps")
def test_wordings_of_a_grid_are_judged_by_the_rule_of_its_claims(tmp_path: Path) -> None:
    """The embedded respondent answers alike under any wording, so the data are one specification,
    and nothing is known of a model that reads."""
    prompts = Path(folkmoot.__file__).parent / "studies" / "cross_pollination" / "prompts"
    for name in ("one", "two"):
        shutil.copytree(prompts, tmp_path / name)
    study = tmp_path / "study.yaml"
    study.write_text(PILOT.replace("40", "5"), "utf-8")
    out = tmp_path / "grid"
    ended = CliRunner().invoke(
        app,
        ["run", str(study), "--model", "synthetic", "--grid", "prompts=one,two", "--out", str(out)],
    )
    assert ended.exit_code == 0, ended.output
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    for cell in sorted((out / "cells").iterdir()):
        row = read_card(read_report(RunFolder(cell)))["Wording"]
        assert row.verdict == "not known"
        assert "1 specification cannot carry a statement about robustness" in row.figures


QUESTIONS = {
    "cross_pollination": ("Adversarial (ACP)", "Clarified passive"),
    "negotiation": ("C5", "C4"),
    "town_hall": ("level 4", "level 1"),
    "focus_group": ("after the discussion", "before"),
    "workbook": ("appeal", "plain"),
}


def test_the_first_page_starts_with_the_studys_question_and_estimand(
    finished_run: RunFolder, finished_page: str
) -> None:
    page = cut_first_page(finished_page)
    contrasts = re.findall(r'<p class="contrast">(.*?)</p>', page, re.DOTALL)
    if finished_run.study not in QUESTIONS:
        return
    answer, _, estimand = contrasts[0].partition("<small>")
    first, second = QUESTIONS[finished_run.study]
    assert strip_markup(answer).index(f" {first} ") < strip_markup(answer).index(f", {second} ")
    assert "difference" in answer
    estimand = strip_markup(estimand)
    # One sentence has population, treatment, outcome and unit.
    assert estimand.startswith("Among simulated ") and "independent unit: " in estimand
    assert " minus " in estimand and len(re.findall(r"\.(?: |$)", estimand)) == 1
    answers = page.split("<h3>The answer</h3>")[1].split("<h3>")[0]
    assert answers.index('class="contrast"') < answers.index("<svg")
    assert "fixed before the first call" in answers
    assert "not which of them is better" in answers
    # Sessions belong to one treatment, so the smaller number of sessions counts.
    if "An illustration" in answers:
        assert ("sessions in a condition" in answers) == (finished_run.study == "workbook")


def test_the_values_of_both_conditions_give_the_difference(finished_page: str) -> None:
    for contrast in re.findall(r'<p class="contrast">(.*?)<small>', cut_first_page(finished_page)):
        text = strip_markup(contrast).replace("−", "-")
        # For few participants, counts are printed beside the share: "33 % (2 of 6)".
        text = re.sub(r" \(\d+ of \d+\)", "", text)
        values = re.search(r" (-?[\d.]+)(.%)?, .*? (-?[\d.]+)(.%)?; difference ([+-]?[\d.]+)", text)
        if values is None:
            assert "unknown" in text or "tested" in text
            continue
        first, second, difference = (float(values[n]) for n in (1, 3, 5))
        # The tolerance is one unit of the last printed digit, because decimals are not exact.
        assert abs(first - second - difference) <= (1.0 if values[2] else 0.01) + 1e-9


def test_hypotheses_replace_the_question_of_the_study_type(sound_run: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        f"{PILOT.replace('40', '6')}hypotheses:\n- {{measure: participants.position_changed, "
        "contrast: [acp, simple_voting], direction: greater}\n",
        "utf-8",
    )
    run_with_hypothesis = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    for run, source in (
        (run_with_hypothesis, "Hypotheses of the study file"),
        (RunFolder(sound_run), "The study's own question"),
    ):
        page = cut_first_page(read_report(run))
        assert f"{source}, {FIXED_BEFOREHAND}." in strip_markup(page)
        assert len(re.findall('class="contrast"', page)) == 1


def test_stopped_controls_are_reported_as_unfinished(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 2}, RunOptions(), budget_calls=4)
    row = read_card(read_report(run))["User drift"]
    assert row.verdict == "not known" and "`" not in row.consequence
    assert row.consequence.endswith(
        "the controls are not finished, and the folkmoot controls command that began them asks the "
        "rest."
    )
