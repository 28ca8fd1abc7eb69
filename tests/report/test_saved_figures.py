"""Saved figures: complete SVG and PNG files with the mark below the plot."""

from __future__ import annotations

import re
import shutil
import struct
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.study.study import registered_studies
from folkmoot.report.document.charts import render_svgs, round_ticks
from folkmoot.storage.findings import BarChart, Chart, Heatmap
from folkmoot.storage.run_folder import RunFolder
from tests.killed import reopen_run
from tests.sweeps import sample_daily

# Daily, test_charts draws each kind of chart.
STUDIES = sample_daily(sorted(registered_studies()), daily=["workbook"], part="pages")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def figures(finished_run: RunFolder, tmp_path: Path) -> Path:
    """Write all figures of a small run of each study type with the command."""
    folder = tmp_path / "paper" / "figures"
    result = CliRunner().invoke(app, ["report", str(finished_run.path), "--figures", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def _read_texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("finished_run", ["town_hall"], indirect=True)
def test_an_impossible_folder_for_figures_is_reported(
    finished_run: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["report", str(finished_run.path), "--figures", str(tmp_path / "file" / "figures")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "a file is where a folder is needed" in " ".join(result.output.split())


@pytest.mark.parametrize("finished_run", ["town_hall"], indirect=True)
def test_figures_of_a_killed_run_have_the_marks_of_a_finished_one(
    finished_run: RunFolder, tmp_path: Path
) -> None:
    killed_run, folder = tmp_path / "killed", tmp_path / "figures"
    shutil.copytree(finished_run.path, killed_run)
    reopen_run(killed_run)
    result = CliRunner().invoke(app, ["report", str(killed_run), "--figures", str(folder)])
    assert result.exit_code == 0, result.output
    svg_paths = sorted(folder.glob("*.svg"))
    assert svg_paths
    for path in svg_paths:
        marks = ElementTree.parse(path).getroot().findall(f"{SVG}text")
        assert marks[0].text == "SYNTHETIC: simulated respondent, not evidence about people"
        assert (marks[1].text or "").startswith("PARTIAL: the run is unfinished")
    page = (killed_run / "report.html").read_text("utf-8")
    assert '<body class="synthetic">' in page and "<strong>SYNTHETIC</strong>" in page
    assert "Answered by the embedded respondent." in page


@pytest.mark.parametrize("finished_run", STUDIES, indirect=True)
def test_figures_of_a_run_are_complete_and_equal_those_of_the_page(
    figures: Path, finished_run: RunFolder
) -> None:
    """Each figure is an SVG and a PNG with the mark below the plot. Its labels are words, and
    the report offers the same file."""
    svg_paths = sorted(figures.glob("*.svg"))
    assert svg_paths
    assert [path.with_suffix(".png") for path in svg_paths] == sorted(figures.glob("*.png"))
    for path in svg_paths:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        plot, mark = root.find(f"{SVG}svg"), root.find(f"{SVG}text")
        assert plot is not None and mark is not None
        assert (mark.text or "").startswith("SYNTHETIC: ")
        plot_end = float(plot.attrib["y"]) + float(plot.attrib["height"])
        assert plot_end < float(mark.attrib["y"]) < height
        assert "currentColor" not in path.read_text("utf-8")
        image = path.with_suffix(".png").read_bytes()
        assert image.startswith(b"\x89PNG")
        assert struct.unpack(">II", image[16:24]) == pytest.approx((3 * width, 3 * height), abs=3)
        for text in _read_texts(path.read_text("utf-8")):
            assert not re.search(r"[^\W_]_[^\W_]", text), (path.name, text)
    assert not finished_run.partial
    page = (finished_run.path / "report.html").read_text("utf-8")
    links = re.findall(r'download="([^"]+)" href="data:image/svg\+xml;base64,([^"]+)"', page)
    saved = {path.name: path.read_bytes() for path in svg_paths}
    assert {name: b64decode(data) for name, data in links} == saved


@pytest.mark.parametrize("finished_run", ["town_hall"], indirect=True)
def test_a_file_at_the_path_of_the_folder_is_refused(
    finished_run: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    command = ["report", str(finished_run.path), "--figures", str(tmp_path / "taken")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0 and "taken" in result.output
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("low", "high", "whole", "ticks"),
    [
        (0, 3, True, [0, 1, 2, 3]),
        (0, 1, True, [0, 1]),
        (0, 2, True, [0, 1, 2]),
        (0, 17, True, [0, 5, 10, 15]),
        (0, 3.52, False, [0, 1, 2, 3]),
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.4, 0.35, False, [-0.4, -0.2, 0, 0.2]),
    ],
)
def test_ticks_are_round_numbers_and_whole_for_counts(
    low: float, high: float, whole: bool, ticks: list[float]
) -> None:
    assert round_ticks(low, high, whole=whole) == ticks


@pytest.mark.parametrize(
    "chart",
    [
        Heatmap((("a", "b", 0), ("b", "a", 3)), unit="replies"),
        Heatmap((("a", "b", 0), ("b", "a", 0)), unit="replies"),
        BarChart((("a", "before", 2), ("a", "after", 1)), unit="people"),
    ],
)
def test_a_chart_of_counts_has_no_fractions(chart: Chart) -> None:
    (svg,) = render_svgs(chart, "")
    numbers = [text for text in re.findall(r">([^<]+)</text>", svg) if text[0].isdigit()]
    assert numbers and all(text.isdigit() for text in numbers)


def test_shares_and_their_changes_have_the_units_of_the_text() -> None:
    (matrix,) = render_svgs(Heatmap((("a", "b", 0.25), ("b", "a", 0.5)), unit="share of it"), "")
    assert {"25%", "50%", "0%", "100%"} <= set(_read_texts(matrix))
    changes = BarChart((("a", "x", -0.02), ("a", "y", 0.02)), "net change in share", percent=True)
    (bars,) = render_svgs(changes, "")
    assert {"net change in share, points", "+2", "−2"} <= set(_read_texts(bars))
