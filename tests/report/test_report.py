"""The report of every study type: one file, nothing from outside, every chart with its numbers."""

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
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily


def test_every_study_type_gets_a_page_that_asks_nothing_of_the_network(
    finished: RunFolder, finished_page: str
) -> None:
    assert not re.search(
        r"""(?:src|href)=["'](?!#|data:image/svg)|@import|url\(|<script""", finished_page
    )
    for finding in find_study_of_run(finished).findings(finished):
        assert finding.says, f"{finding.key} says nothing in words"
        assert f'id="{finding.key}"' in finished_page


def test_whether_the_model_is_fit_is_asked_once(finished_page: str) -> None:
    """Once for every study type: its own finding, or one of the answers that all record."""
    assert finished_page.count("<h3>Is the model fit to answer?</h3>") == 1
    assert finished_page.count('id="respondent_checks"') == 1


@pytest.mark.parametrize(
    "finished",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "town_hall"), part="sweeps"
    ),
    indirect=True,
)
def test_the_effect_of_the_place_in_a_list_is_one_figure(finished: RunFolder) -> None:
    doc = build_document(finished)
    findings = [f.finding for f in (*doc.headlines, *(f for s in doc.sections for f in s.figures))]
    rows = [
        (f, dict(zip(f.grid.columns, row, strict=True))) for f in findings for row in f.grid.rows
    ]
    (checked,) = (row["value"] for f, row in rows if row.get("check") == "Position bias")
    # A finding of its own shows all places, and the check names the one of the greatest effect.
    told = [row["effect_points"] for f, row in rows if f.key == "position_effects"]
    assert bool(told) is (finished.study == "cross_pollination")
    assert not told or max(told, key=abs) == checked
    others = [f.key for f in findings if "listed first" in f.says.lower()]
    assert others in ([], ["position_effects"])


def test_every_drawing_has_a_description_and_a_table(finished_page: str) -> None:
    for article in finished_page.split("<article")[1:]:
        if "<svg" in article:
            assert re.search(r'<svg role="img" aria-label="[^"]{20,}"', article)
            assert "<details" in article and "<table" in article


def test_a_synthetic_run_says_so_on_the_page(finished_page: str) -> None:
    assert '<body class="synthetic">' in finished_page
    page, _, _ = finished_page.partition("</section>")
    assert page.count("no evidence about people") == 1


def test_the_trust_section_is_filled_in(pilot: RunFolder) -> None:
    page = (pilot.path / "report.html").read_text("utf-8")
    facts = pilot.manifest
    for expected in (
        f"{facts['calls']:,}",
        facts["models"][0]["served"][0],
        facts["journal_digest"],
        facts["software"]["packages"]["numpy"],
        "B.1",
        "to be filled in by the authors",
        "We ran a",
        "None: the run followed the plan sealed",
    ):
        assert expected in page


def test_deviations_are_named(pilot: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot.path, copy)
    plan = (copy / "plan.json").read_text("utf-8")
    changed = plan.replace('"changes": []', '"changes": [{"name": "design", "was": {}}]')
    assert changed != plan
    (copy / "plan.json").write_text(changed, "utf-8")
    assert "“design” was changed with --accept-changes" in write_report(RunFolder(copy)).read_text(
        "utf-8"
    )


def test_markup_in_what_models_say_stays_text(pilot: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot.path, copy)
    study = (copy / "study.yaml").read_text("utf-8")
    (copy / "study.yaml").write_text(study + "\npilot_name: '<script>alert(1)</script>'\n", "utf-8")
    page = write_report(RunFolder(copy)).read_text("utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page


def test_text_copied_from_the_pdf_holds_no_letters_of_the_mark_and_no_narrow_columns(
    pilot: RunFolder,
) -> None:
    path = pilot.path / "report.pdf"
    assert path.read_bytes().startswith(b"%PDF") and path.stat().st_size > 20_000
    pages = [page.extract_text() for page in PdfReader(path).pages]
    # The mark is printed in the header of each page, beside the charts.
    assert all("SYNTHETIC · " in text for text in pages)
    # In the table of models the word may wrap to a line of its own.
    assert sum("SYNTHETIC" in map(str.strip, text.splitlines()) for text in pages) <= 1 < len(pages)
    assert not any("`" in text for text in pages)  # the marks of code are for the web page
    assert "Red: Answered by the embedded respondent" in pages[0]  # whole, and told in grey too
    # Primary claims have intervals at a level of their own, which their table names.
    assert "Brackets and lines: 95 % intervals, each by itself" in " ".join(pages[0].split())
    own = max(pilot.read_table("participants")["individual_summary"].drop_nulls(), key=len)
    words = own.split()[:4]
    assert any(" ".join(words) in " ".join(text.split()) for text in pages)
    # A quoted text is set in lines of about a dozen words, not one word below another.
    lines = [line for text in pages for line in text.splitlines()]
    assert max(sum(w in own for w in line.split()) for line in lines) >= 5


@pytest.mark.nightly(part="pages")
def test_letters_of_a_wide_table_can_be_read(pilot: RunFolder, tmp_path: Path) -> None:
    """A table of 21 columns is split into parts. No letter is smaller than 7.5 points, all columns
    are there, and none leaves the page."""
    doc = build_document(pilot)
    columns = ("level", *(f"measure_{n}_rate" for n in range(20)))
    rows = tuple((f"Level {n}", *(n / 100 for _ in columns[1:])) for n in range(3))
    first = doc.headlines[0]
    wide = replace(first, finding=replace(first.finding, grid=ResultTable(columns, rows)))
    path = write_pdf(replace(doc, headlines=(wide, *doc.headlines[1:])), tmp_path / "report.pdf")
    sizes: set[float] = set()
    told = ""
    for page in PdfReader(path).pages:

        def look(text: str, cm: list[float], tm: list[float], _font: object, size: float) -> None:
            if re.search("measure|Level", text):
                sizes.add(round(size * abs(tm[0]) * abs(cm[0]), 2))

        told += " ".join(page.extract_text(visitor_text=look).split())
    assert min(sizes) >= 7.5
    assert all(re.search(rf"measure\s?{n}\b", told) for n in range(20))
    assert told.count("Level 2") >= 3  # each part names its rows


def test_an_unfinished_run_is_told_so(pilot: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(pilot.path, copy)
    shutil.rmtree(copy / "tables")
    with pytest.raises(StorageError, match="--resume"):
        write_report(RunFolder(copy))


def test_the_checklist_tells_the_embedded_respondent_a_local_model_and_a_vendor_apart(
    pilot: RunFolder, tmp_path: Path
) -> None:
    def answers(*models: str) -> dict[str, str]:
        folder = tmp_path / str(len(models)) / models[0].replace("/", "_")
        shutil.copytree(pilot.path, folder)
        facts = json.loads((folder / "manifest.json").read_text("utf-8"))
        facts["models"] = [{**facts["models"][0], "asked": m, "served": [m]} for m in models]
        (folder / "manifest.json").write_text(json.dumps(facts))
        methods = build_document(RunFolder(folder)).methods
        assert methods is not None
        rows = methods.checklist.rows
        assert len(rows) == 14 + 8
        assert [row[0] for row in rows].count("optional") == 8
        return {str(row[1]): str(row[2]) for row in rows}

    embedded = answers("synthetic")
    assert "no language model" in embedded["mode of access"]
    assert "API" not in embedded["mode of access"]
    assert embedded["fine-tuning or customisation"].startswith("None")
    local = answers("local:model.gguf")
    assert "on this machine" in local["mode of access"]
    assert "API" not in local["mode of access"]
    assert "no language model" not in local["mode of access"]
    vendor = answers("openai/gpt-4o", "human")
    assert "openai/gpt-4o: API" in vendor["mode of access"]
    assert vendor["human in the loop, or fully automated"].startswith("People answered")
    assert vendor["why these models"] == "not recorded: to be filled in by the authors"
    assert "size and source link: not recorded" in " ".join(vendor.values())
    assert "withdraw" in vendor["handling of personal data"]
