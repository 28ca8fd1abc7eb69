"""`folkmoot new workbook --from survey.qsf` on the command line, to the end of a run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from tests.studies.workbook.qualtrics.qsf_builder import (
    answer_condition,
    descriptive_text,
    make_logic,
    make_question,
    make_survey,
    randomizer,
    show_block,
    single_choice,
    text_entry,
    write_survey,
)


def run_folkmoot(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_survey_becomes_a_workbook_that_is_checked_and_run(folder: Path) -> None:
    randomized_blocks = randomizer("FL_2", 1, show_block("BL_Warm"), show_block("BL_Cold"))
    document = make_survey(
        [
            descriptive_text("QID1", "Everybody in your street gives."),
            descriptive_text("QID2", "Nobody in your street gives."),
            single_choice("QID3", "Do you give?", "Yes", "No"),
            text_entry(
                "QID4",
                "Why?",
                DisplayLogic=make_logic([answer_condition("QID3/SelectableChoice/1")]),
            ),
            make_question("QID5", "FileUpload", "FileUpload", "Send a photo"),
        ],
        {"BL_Warm": ["QID1"], "BL_Cold": ["QID2"], "BL_Q": ["QID3", "QID4", "QID5"]},
        [randomized_blocks, show_block("BL_Q")],
    )
    write_survey(document, folder / "giving.qsf")

    output = run_folkmoot("new", "workbook", "--from", "giving.qsf")
    assert "Check it: folkmoot check giving.xlsx" in output
    assert "2 treatments (Warm, Cold)" in output
    assert (
        "Left out: Q5 “Send a photo” (QID5): a file upload is not supported; if you need it"
        in output
    )
    assert "Left out: Q5 “Send a photo” (QID5)" in (folder / "giving_import.txt").read_text("utf-8")
    assert "No problems" in run_folkmoot("check", "giving.xlsx")
    run_folkmoot("run", "giving.xlsx")

    with (folder / "outputs" / "giving" / "giving.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert sorted({row["treatment"] for row in rows}) == ["Cold", "Warm"]
    assert {row["Q3"] for row in rows} <= {"Yes", "No"}
    assert all(bool(row["Q4"]) == (row["Q3"] == "Yes") for row in rows)


def test_existing_files_are_not_overwritten(folder: Path) -> None:
    write_survey(make_survey([text_entry("QID1", "Why?")]), folder / "survey.qsf")
    (folder / "survey.xlsx").write_bytes(b"mine")
    assert "already exists" in run_folkmoot("new", "workbook", "--from", "survey.qsf", exit_code=2)
    assert (folder / "survey.xlsx").read_bytes() == b"mine"


def test_unsupported_files_and_study_types_are_refused(folder: Path) -> None:
    write_survey(make_survey([text_entry("QID1", "Why?")]), folder / "survey.qsf")
    (folder / "survey.sav").write_bytes(b"$FL2")
    output = run_folkmoot("new", "workbook", "--from", "survey.sav", exit_code=2)
    assert "cannot be made from it" in output and "workbook .qsf" in output
    assert "workbook .qsf" in run_folkmoot("new", "town_hall", "--from", "survey.qsf", exit_code=2)
    assert "new workbook --from" in run_folkmoot("new", "--from", "survey.qsf", exit_code=2)
    assert "cannot be read" in run_folkmoot("new", "workbook", "--from", "no.qsf", exit_code=2)
