"""The methods section of a report, which is complete enough for a paper."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

import folkmoot
from folkmoot.cli.run import print_results
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.kit.controls.asking import run_controls
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.document.trust import build_trust_section
from folkmoot.report.preregistration import build_preregistration
from folkmoot.storage.run_folder import MANIFEST, RunFolder
from folkmoot.view.run_list import read_run_status
from tests.engine.test_seats import build_seat_host

PILOT = """
pilot_id: described
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive, acp]
participants_per_condition: 6
min_responses_for_threshold: 5
disagreement_threshold: 1.0
temperature: 0.7
personas: {source: quota}
revote: true
"""


def read_paragraphs(page: str) -> list[str]:
    """Return the paragraphs of the methods section as plain text."""
    block = page.split("For the methods section</h3>")[1].split("</blockquote>")[0]
    return [
        " ".join(html.unescape(re.sub("<[^>]*>", "", paragraph)).split())
        for paragraph in re.findall("<p>(.*?)</p>", block, re.DOTALL)
    ]


def read_report(run: RunFolder) -> str:
    return write_report(run).read_text("utf-8")


def test_the_methods_section_has_the_facts_that_a_paper_needs(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(PILOT, "utf-8")
    run = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    design, material, analysis, controls, record = read_paragraphs(read_report(run))
    day = run.manifest["started_at"][:10]
    for text in (
        "Simple voting: 6 participants",
        "Adversarial (ACP): 6 participants",
        "Participants were simulated by synthetic (served as",
        f"called from {day} ",
        "Temperature: 0.7",
        "random seed 42",
        run.plan["sealed"]["design"]["hash"][:12],
    ):
        assert text in design
    for text in (
        "The question: One purpose can be funded.",
        "At first vote and final vote participants chose one of 3 options (“Park improvements”, "
        "“Safer streets”, “Youth job training”)",
        "Prompts of Adversarial (ACP): before first vote they contained no text; before final "
        "vote they contained interview, summaries and dialogue.",
    ):
        assert text in material
    for text in (
        "Outcome “changed their choice”, contrast Adversarial (ACP) − Clarified passive: n = 6 "
        "and 6, none excluded; independent unit: participant",
        "Newcombe",
        "Primary: 3 claims, decided by Holm's method in each direction",
    ):
        assert text in analysis
    assert controls.startswith("No control questions were asked.")
    assert "user drift not known" in controls
    assert f"{run.manifest['calls']:,} calls" in record
    assert "Answers without a valid value were not scored" in record
    run_controls(run, {"participants": 3}, RunOptions())
    controls = read_paragraphs(read_report(run))[3]
    assert "asked again: 12 answers of 12 participants" in controls
    assert "persona kept" in controls


def test_each_of_several_models_has_its_roles(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(PILOT, "utf-8")
    run = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    path = run.path / MANIFEST
    manifest = json.loads(path.read_text("utf-8"))
    models = [
        {**manifest["models"][0], "asked": name, "served": [], "roles": roles}
        for name, roles in (
            ("openai/gpt-4o", ["participant", "summarizer"]),
            ("openai/gpt-4o-mini", ["moderator"]),
            ("human", ["participant"]),
        )
    ]
    path.write_text(json.dumps({**manifest, "models": models, "mark": "MIXED"}), "utf-8")
    design, *_ = read_paragraphs(read_report(RunFolder(run.path)))
    assert (
        "Replies were simulated by openai/gpt-4o as participant and summarizer; "
        "openai/gpt-4o-mini as moderator. People answered as participant."
    ) in design
    assert "Participants were simulated by" not in design


def test_cost_and_temperature_have_one_wording_everywhere(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    conditions = "[simple_voting, simple_passive, clarified_passive, acp]"
    settings = PILOT.replace(conditions, "[simple_voting]")
    study.write_text(settings.replace("temperature: 0.7", "temperature: 1"), "utf-8")
    run = folkmoot.run(study, model="synthetic", out=tmp_path / "run").folder
    path = run.path / MANIFEST
    manifest = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**manifest, "cost_usd": 0.003, "cost_unknown_for": ["m"]}), "utf-8")
    run = RunFolder(run.path)
    page = read_report(run)
    design, *_, record = read_paragraphs(page)
    assert "Temperature: 1;" in design
    assert "temperature 1, reply limit" in html.unescape(page)
    trust = build_trust_section(run, load_study_file(study).study)
    assert dict(trust.run.rows)["temperature"] == "1"
    registered = build_preregistration(load_study_file(study), RunOptions(model="synthetic"))
    fields = [field for section in registered.sections for field in section.fields]
    assert "Models; temperature 1." in [field.grid.caption for field in fields]
    cost = "$0.0030 plus the unknown cost of m"
    assert f"at a cost of {cost} (US dollars)." in record
    printed = io.StringIO()
    print_results(load_study_file(study).study, run, Console(file=printed, width=200))
    assert cost in printed.getvalue()
    assert read_run_status(run.path, "run").cost == "$0.0030 + unknown"


def test_every_study_type_describes_sample_exposure_tests_and_controls(
    finished_page: str,
) -> None:
    design, material, analysis, controls, _ = read_paragraphs(finished_page)
    assert "Sample in each condition, as planned: " in design
    assert "Prompts of " in material or "not recorded" in material
    assert "independent unit: " in analysis or "every figure is exploratory" in analysis
    assert controls
    for paragraph in (design, material, analysis, controls):
        assert "None" not in paragraph and "nan" not in paragraph.split()


def test_people_in_seats_are_not_called_simulated(tmp_path: Path) -> None:
    """The paragraph has a sentence for models and one for people, and the checklist says in a whole
    sentence what their comparison shows."""
    study = tmp_path / "described.yaml"
    study.write_text(PILOT, "utf-8")
    run = folkmoot.run(
        study,
        model="synthetic",
        out=tmp_path / "run",
        overrides=("conditions=[simple_voting]", "seats.count=2"),
        seat_host=build_seat_host(
            lambda _, question: (
                question.view.options[0] if question.view.options else "Words of my own."
            )
        ),
    ).folder
    document = build_document(run)
    assert document.methods is not None
    design = document.methods.paragraphs[0]
    simulated = re.findall(r" were simulated by (.*?) UTC\.", design)
    assert len(simulated) == 1 and "human" not in simulated[0] and "synthetic" in simulated[0]
    assert "People answered as participant." in design
    assert "Temperature of models: " in design
    (validation,) = (row[2] for row in document.methods.checklist.rows if row[0] == "E.1")
    assert str(validation).startswith("People may answer otherwise: more people have to answer. ")
    assert ": whether people and models differ is not known. Of " in str(validation)


def test_the_checklist_counts_items_that_the_run_does_not_record(finished_page: str) -> None:
    page = html.unescape(finished_page)
    table = page.split("GUIDE-LLM reporting checklist</h3>")[1].split("</table>")[0]
    filled, total = re.findall(r"answer (\d+) of (\d+) items", table)[0]
    rows = re.findall("<tr>.*?</tr>", table.split("<tbody>")[1], re.DOTALL)
    assert int(total) == len(rows) == 14 + 8
    assert int(filled) == sum("not recorded" not in row for row in rows)


def test_the_checklist_does_not_claim_that_a_request_has_the_whole_conversation(
    finished_page: str,
) -> None:
    """Study types limit what a speaker is shown, for example to the latest messages."""
    (row,) = re.findall("<tr>(?:(?!</tr>).)*B\\.5.*?</tr>", html.unescape(finished_page), re.DOTALL)
    assert "Each contains the part of the conversation that the study shows the speaker." in row
    assert "everything" not in row


@pytest.mark.parametrize(
    ("finished_run", "source"),
    [("cross_pollination", "quota,"), ("focus_group", "grounded,"), ("town_hall", "not recorded:")],
    indirect=["finished_run"],
)
def test_the_checklist_names_the_source_of_personas_in_the_study_file(
    finished_page: str, source: str
) -> None:
    table = html.unescape(finished_page).split("GUIDE-LLM reporting checklist</h3>")[1]
    assert f"Source of the personas: {source}" in table.split("</table>")[0]
