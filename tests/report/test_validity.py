"""The first page of a report: the study's own question, and the validity card."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.errors import BudgetReachedError
from folkmoot.kit.controls.asking import run_controls
from folkmoot.measures.wording import FIXED_BEFOREHAND
from folkmoot.report.document.html import write_report
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


class Shown(NamedTuple):
    verdict: str
    consequence: str
    figures: str


def first_page(report: str) -> str:
    return report.split('id="glance"')[1].split("</section>")[0]


def report_of(run: RunFolder) -> str:
    return write_report(run).read_text("utf-8")


def text_of(fragment: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", fragment)).split())


def card_of(report: str) -> dict[str, Shown]:
    """The validity card as a reader sees it: name → verdict, consequence and figures."""
    found = {}
    for colour, row in re.findall(
        r'<li class="(\w+)">(.*?)</li>', first_page(report).split('class="card"')[1], re.DOTALL
    ):
        name = text_of(re.findall(r"<strong>(.*?)</strong>", row)[0])
        verdict = text_of(re.findall(r'class="verdict">(.*?)</b>', row)[0])
        meaning = re.findall(r'class="meaning">(.*)', row, re.DOTALL)[0]
        consequence, _, figures = meaning.partition("<small>")
        assert colour == COLOURS[verdict]
        found[name] = Shown(verdict, text_of(consequence), text_of(figures))
    return found


def pilot_run(folder: Path, per_condition: int = 12, **respondent: float) -> RunFolder:
    """A run of the pilot study with these settings of the embedded respondent."""
    study = folder / "study.yaml"
    settings = PILOT.replace("40", str(per_condition))
    study.write_text(f"{settings}respondent: {json.dumps(respondent)}\n", "utf-8")
    return folkmoot.run(study, model="synthetic", out=folder / "run").folder


@pytest.fixture
def sound(shared_folder: SharedFolder, tmp_path: Path) -> Path:
    """A copy of the run of a respondent without a fault, for a test to ask controls in."""
    made = shared_folder("validity/sound", pilot_run)
    return Path(shutil.copytree(made / "run", tmp_path / "sound"))


def test_every_report_has_a_card_of_eight_threats_each_with_one_sentence(
    finished_page: str,
) -> None:
    card = card_of(finished_page)
    assert list(card) == THREATS
    for row in card.values():
        # A full stop within a command or a number ends no sentence.
        assert len(re.findall(r"[.!?](?: |$)", row.consequence)) == 1, row
        if not row.figures:
            assert row.verdict == "not known"
            assert ": " in row.consequence


@pytest.mark.nightly(part="sweeps")
def test_what_is_not_known_says_what_to_do_and_that_makes_it_known(tmp_path: Path) -> None:
    run = pilot_run(tmp_path, per_condition=40)
    before = card_of(report_of(run))
    unknown = {"User drift", "Persona kept"}
    for name in unknown:
        assert before[name].verdict == "not known" and not before[name].figures
        (command,) = re.findall(r"run (folkmoot controls RUN .*?)\.$", before[name].consequence)
    arguments = command.replace("RUN", str(run.path)).split()[1:]
    ended = CliRunner().invoke(app, [*arguments, "--participants", "40"])
    assert ended.exit_code == 0, ended.output
    after = card_of(report_of(run))
    assert after["Persona kept"] == (
        "passed",
        "Participants still give the age of their persona, and no other attribute was asked.",
        after["Persona kept"].figures,
    )
    kept = "give their age; the margin is at least 90 %. Of 4 groups: 4 passed."
    assert after["Persona kept"].figures.endswith(kept)
    assert after["Reliability (retest)"].figures.startswith("First vote: ")
    for name in (*unknown, "Order effect"):
        assert after[name].figures


def test_a_planted_fault_is_red_and_says_what_it_means(tmp_path: Path) -> None:
    run = pilot_run(tmp_path, per_condition=24, drift=0.8, persona_forgetting=0.6, instability=0.7)
    run_controls(run, {"participants": 24}, RunOptions())
    card = card_of(report_of(run))
    for name in ("User drift", "Persona kept", "Reliability (retest)"):
        assert card[name].verdict == "failed", card[name]
    assert "other people in another condition" in card["User drift"].consequence
    apart = r"should change, shares of answers are \d+ points \(\d+ to \d+\) apart on average"
    assert re.search(apart, card["User drift"].figures)
    # What controls leave out is asked by the next run, because controls are asked once.
    assert card["Order effect"].figures or "order: true" in card["Order effect"].consequence


def test_a_report_says_that_the_folder_of_the_controls_is_missing(sound: Path) -> None:
    run_controls(RunFolder(sound), {"participants": 4}, RunOptions())
    shutil.rmtree(sound / "controls")
    done = CliRunner().invoke(app, ["report", str(sound)])
    assert done.exit_code == 0, done.output
    page = (sound / "report.html").read_text("utf-8")
    assert "The controls were asked, but their folder is missing: restore it from a copy." in page
    assert "The folder controls is missing, so its answers do not count." in page
    assert "No control questions were asked." not in page
    assert card_of(page)["User drift"].consequence.endswith("but their folder is missing.")
    # Controls are asked once, so the report proposes no command, and the command says why.
    assert "folkmoot controls RUN" not in page
    again = CliRunner().invoke(app, ["controls", str(sound)])
    assert again.exit_code == 2
    assert "the controls were asked, but" in " ".join(again.output.split())
    checked = CliRunner().invoke(app, ["verify", str(sound)])
    assert checked.exit_code == 4 and checked.output.count("folder controls is missing") == 1


def test_controls_that_left_a_threat_out_name_its_key(sound: Path) -> None:
    run = RunFolder(sound)
    run_controls(run, {"negative": False, "participants": 4}, RunOptions())
    assert card_of(report_of(run))["User drift"].consequence == (
        "An effect may be one of other people in another condition: its controls left it out, so "
        "write negative: true under controls: in the study file of the next run."
    )


def test_people_in_seats_are_the_benchmark(tmp_path: Path) -> None:
    """Thirty people who all choose one option beside thirty models."""
    study = tmp_path / "study.yaml"
    one = PILOT.replace("[simple_voting, acp]", "[simple_voting]").replace("40", "60")
    study.write_text(f"{one}seats: 30\n", "utf-8")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        return "Safer streets" if question.view.options else "Words of my own."

    run = folkmoot.run(study, out=tmp_path / "run", seat_host=build_seat_host(answer)).folder
    row = card_of(report_of(run))["Human benchmark"]
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
        row = card_of(report_of(RunFolder(cell)))["Wording"]
        assert row.verdict == "not known"
        assert "1 specification cannot carry a statement about robustness" in row.figures


QUESTIONS = {
    "cross_pollination": ("Adversarial (ACP)", "Clarified passive"),
    "negotiation": ("C5", "C4"),
    "town_hall": ("level 4", "level 1"),
    "focus_group": ("after the discussion", "before"),
    "workbook": ("appeal", "plain"),
}


def test_the_question_of_the_study_stands_first_with_its_estimand(
    finished: RunFolder, finished_page: str
) -> None:
    page = first_page(finished_page)
    contrasts = re.findall(r'<p class="contrast">(.*?)</p>', page, re.DOTALL)
    if finished.study not in QUESTIONS:
        return
    answer, _, estimand = contrasts[0].partition("<small>")
    first, second = QUESTIONS[finished.study]
    assert text_of(answer).index(f" {first} ") < text_of(answer).index(f", {second} ")
    assert "difference" in answer
    estimand = text_of(estimand)
    # Population, treatment, outcome and unit in one sentence.
    assert estimand.startswith("Among simulated ") and "independent unit: " in estimand
    assert " minus " in estimand and len(re.findall(r"\.(?: |$)", estimand)) == 1
    answers = page.split("<h3>The answer</h3>")[1].split("<h3>")[0]
    assert answers.index('class="contrast"') < answers.index("<svg")
    assert "fixed before the first call" in answers
    assert "not which of them is better" in answers
    # Sessions of one treatment are not in the other, so the smaller number is the one that counts.
    if "An illustration" in answers:
        assert ("sessions in a condition" in answers) == (finished.study == "workbook")


def test_the_values_of_both_arms_give_the_difference(finished_page: str) -> None:
    for contrast in re.findall(r'<p class="contrast">(.*?)<small>', first_page(finished_page)):
        told = text_of(contrast).replace("−", "-")
        # Of few participants, the number is printed beside the share: "33 % (2 of 6)".
        told = re.sub(r" \(\d+ of \d+\)", "", told)
        values = re.search(r" (-?[\d.]+)(.%)?, .*? (-?[\d.]+)(.%)?; difference ([+-]?[\d.]+)", told)
        if values is None:
            assert "unknown" in told or "tested" in told
            continue
        first, second, difference = (float(values[n]) for n in (1, 3, 5))
        # One of the last digits that are printed. Sums of decimals are not exact.
        assert abs(first - second - difference) <= (1.0 if values[2] else 0.01) + 1e-9


def test_hypotheses_take_the_place_of_the_study_types_question(sound: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        f"{PILOT.replace('40', '6')}hypotheses:\n- {{measure: participants.position_changed, "
        "contrast: [acp, simple_voting], direction: greater}\n",
        "utf-8",
    )
    stated = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    for run, source in (
        (stated, "Hypotheses of the study file"),
        (RunFolder(sound), "The study's own question"),
    ):
        page = first_page(report_of(run))
        assert f"{source}, {FIXED_BEFOREHAND}." in text_of(page)
        assert len(re.findall('class="contrast"', page)) == 1


def test_controls_that_stopped_are_said_not_to_be_finished(sound: Path) -> None:
    run = RunFolder(sound)
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 2}, RunOptions(), budget_calls=4)
    row = card_of(report_of(run))["User drift"]
    assert row.verdict == "not known" and "`" not in row.consequence
    assert row.consequence.endswith(
        "the controls are not finished, and the folkmoot controls command that began them asks the "
        "rest."
    )
