"""The report of every study type: one file, no network, and each chart with its numbers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pypdf import PdfReader

from folkmoot.engine.study.study import find_study_of_run, registered_studies
from folkmoot.errors import StorageError
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.document.pdf import write_pdf
from folkmoot.storage.findings import ResultTable
from folkmoot.storage.manifest import MIXED_MARK
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily


def test_the_report_of_every_study_type_makes_no_requests(
    finished_run: RunFolder, finished_page: str
) -> None:
    assert not re.search(
        r"""(?:src|href)=["'](?!#|data:image/svg)|@import|url\(|<script""", finished_page
    )
    for finding in find_study_of_run(finished_run).findings(finished_run):
        assert finding.says, f"{finding.key} says nothing in words"
        assert f'id="{finding.key}"' in finished_page


def test_the_model_check_is_shown_once(finished_page: str) -> None:
    """It is the study's own finding, or one computed from the answers of any study."""
    assert finished_page.count("<h3>Is the model fit to answer?</h3>") == 1
    assert finished_page.count('id="respondent_checks"') == 1


@pytest.mark.parametrize(
    "finished_run",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "town_hall"), part="sweeps"
    ),
    indirect=True,
)
def test_the_position_effect_is_one_figure(finished_run: RunFolder) -> None:
    document = build_document(finished_run)
    findings = [
        finding.finding
        for finding in (
            *document.headlines,
            *(finding for section in document.sections for finding in section.figures),
        )
    ]
    rows = [
        (finding, dict(zip(finding.grid.columns, row, strict=True)))
        for finding in findings
        for row in finding.grid.rows
    ]
    (checked_effect,) = (
        row["value"] for finding, row in rows if row.get("check") == "Position bias"
    )
    # A separate finding shows all positions, and the check names that with the largest effect.
    effects = [row["effect_points"] for finding, row in rows if finding.key == "position_effects"]
    assert bool(effects) is (finished_run.study == "cross_pollination")
    assert not effects or max(effects, key=abs) == checked_effect
    list_findings = [finding.key for finding in findings if "listed first" in finding.says.lower()]
    assert list_findings in ([], ["position_effects"])


def test_every_chart_has_a_description_and_a_table(finished_page: str) -> None:
    for article in finished_page.split("<article")[1:]:
        if "<svg" in article:
            assert re.search(r'<svg role="img" aria-label="[^"]{20,}"', article)
            assert "<details" in article and "<table" in article


def test_a_synthetic_run_is_marked_on_the_page(finished_page: str) -> None:
    assert '<body class="synthetic">' in finished_page
    page, _, _ = finished_page.partition("</section>")
    assert page.count("no evidence about people") == 1


def test_the_trust_section_is_filled_in(pilot_run: RunFolder) -> None:
    page = (pilot_run.path / "report.html").read_text("utf-8")
    manifest = pilot_run.manifest
    for expected in (
        f"{manifest['calls']:,}",
        manifest["models"][0]["served"][0],
        manifest["journal_digest"],
        manifest["software"]["packages"]["numpy"],
        "B.1",
        "to be filled in by the authors",
        "We ran a",
        "None: the run followed the plan sealed",
    ):
        assert expected in page


def test_accepted_changes_are_reported(pilot_run: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot_run.path, copy)
    plan = (copy / "plan.json").read_text("utf-8")
    changed = plan.replace('"changes": []', '"changes": [{"name": "design", "was": {}}]')
    assert changed != plan
    (copy / "plan.json").write_text(changed, "utf-8")
    assert "“design” was changed with --accept-changes" in write_report(RunFolder(copy)).read_text(
        "utf-8"
    )


def test_markup_in_texts_is_escaped(pilot_run: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot_run.path, copy)
    study = (copy / "study.yaml").read_text("utf-8")
    (copy / "study.yaml").write_text(study + "\npilot_name: '<script>alert(1)</script>'\n", "utf-8")
    page = write_report(RunFolder(copy)).read_text("utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page


def test_the_text_of_the_pdf_has_no_mark_in_it_and_no_narrow_columns(
    pilot_run: RunFolder,
) -> None:
    path = pilot_run.path / "report.pdf"
    assert path.read_bytes().startswith(b"%PDF") and path.stat().st_size > 20_000
    pages = [page.extract_text() for page in PdfReader(path).pages]
    # The mark is printed in the header of each page, beside the charts.
    assert all("SYNTHETIC · " in text for text in pages)
    # In the table of models the word may wrap to a separate line.
    assert sum("SYNTHETIC" in map(str.strip, text.splitlines()) for text in pages) <= 1 < len(pages)
    assert not any("`" in text for text in pages)  # the marks of code are for the web page
    assert (
        "Red: Answered by the embedded respondent" in pages[0]
    )  # complete, and readable without colour
    # Primary claims have intervals at another level, which their table names.
    assert "Brackets and lines: 95 % intervals, each by itself" in " ".join(pages[0].split())
    longest_summary = max(
        pilot_run.read_table("participants")["individual_summary"].drop_nulls(), key=len
    )
    words = longest_summary.split()[:4]
    assert any(" ".join(words) in " ".join(text.split()) for text in pages)
    # A quoted text is set in lines of about a dozen words, not one word below another.
    lines = [line for text in pages for line in text.splitlines()]
    assert max(sum(word in longest_summary for word in line.split()) for line in lines) >= 5


@pytest.mark.nightly(part="pages")
def test_letters_of_a_wide_table_are_not_too_small(pilot_run: RunFolder, tmp_path: Path) -> None:
    """A table of 21 columns is split into parts. No letter is smaller than 7.5 points, all columns
    are there, and none leaves the page."""
    document = build_document(pilot_run)
    columns = ("level", *(f"measure_{n}_rate" for n in range(20)))
    rows = tuple((f"Level {n}", *(n / 100 for _ in columns[1:])) for n in range(3))
    first_figure = document.headlines[0]
    wide_figure = replace(
        first_figure, finding=replace(first_figure.finding, grid=ResultTable(columns, rows))
    )
    path = write_pdf(
        replace(document, headlines=(wide_figure, *document.headlines[1:])), tmp_path / "report.pdf"
    )
    sizes: set[float] = set()
    text_of_pdf = ""
    for page in PdfReader(path).pages:

        def record_size(
            text: str,
            page_matrix: list[float],
            text_matrix: list[float],
            _font: object,
            size: float,
        ) -> None:
            if re.search("measure|Level", text):
                sizes.add(round(size * abs(text_matrix[0]) * abs(page_matrix[0]), 2))

        text_of_pdf += " ".join(page.extract_text(visitor_text=record_size).split())
    assert min(sizes) >= 7.5
    assert all(re.search(rf"measure\s?{n}\b", text_of_pdf) for n in range(20))
    assert text_of_pdf.count("Level 2") >= 3  # each part names its rows


def test_the_report_of_a_run_without_tables_names_resume(
    pilot_run: RunFolder, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot_run.path, copy)
    shutil.rmtree(copy / "tables")
    with pytest.raises(StorageError, match="--resume"):
        write_report(RunFolder(copy))


def test_the_checklist_distinguishes_embedded_local_and_vendor_models(
    pilot_run: RunFolder, tmp_path: Path
) -> None:
    def read_answers(*models: str) -> dict[str, str]:
        folder = tmp_path / str(len(models)) / models[0].replace("/", "_")
        shutil.copytree(pilot_run.path, folder)
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        manifest["models"] = [
            {**manifest["models"][0], "asked": model, "served": [model]} for model in models
        ]
        manifest["mark"] = MIXED_MARK if "human" in models else manifest["mark"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        methods = build_document(RunFolder(folder)).methods
        assert methods is not None
        rows = methods.checklist.rows
        assert len(rows) == 14 + 8
        assert [row[0] for row in rows].count("optional") == 8
        return {str(row[1]): str(row[2]) for row in rows}

    embedded_answers = read_answers("synthetic")
    assert "no language model" in embedded_answers["mode of access"]
    assert "API" not in embedded_answers["mode of access"]
    assert embedded_answers["fine-tuning or customisation"].startswith("None")
    local_answers = read_answers("local:model.gguf")
    assert "on this machine" in local_answers["mode of access"]
    assert "API" not in local_answers["mode of access"]
    assert "no language model" not in local_answers["mode of access"]
    vendor_answers = read_answers("openai/gpt-4o", "human")
    assert "openai/gpt-4o: API" in vendor_answers["mode of access"]
    assert vendor_answers["human in the loop, or fully automated"].startswith("People answered")
    assert vendor_answers["why these models"] == "not recorded: to be filled in by the authors"
    assert "size and source link: not recorded" in " ".join(vendor_answers.values())
    assert "withdraw" in vendor_answers["handling of personal data"]
