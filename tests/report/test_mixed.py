"""Reports of runs in which humans and models answered the same questions."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from openpyxl import load_workbook
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.seats.seat_manager import (
    SEAT_CLOSED,
    PendingQuestion,
    SeatManager,
    SeatState,
    read_seats,
)
from folkmoot.errors import InputError
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.report.comparison.samples import load_samples, people_in
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.export import export_run
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import EXAMPLES
from tests.engine.test_seats import build_seat_host

STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 20
conditions: [simple_voting]
min_responses_for_threshold: 50
personas: {source: quota}
"""


def read_rows(finding: Finding) -> list[dict[str, Any]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


def run_vote(folder: Path, human_count: int, option: str = "Keep it open") -> RunFolder:
    """Run a vote in which `human_count` humans choose one option, and models choose freely."""
    path = folder / "centre.yaml"
    path.write_text(f"{STUDY}seats: {human_count}\n", "utf-8")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        return option if question.view.options else "Words of my own."

    return folkmoot.run(path, out=folder / "run", seat_host=build_seat_host(answer)).folder


def test_shares_of_humans_and_models_and_their_difference(tmp_path: Path) -> None:
    """Twelve humans agree, and eight models vote. The figures equal those of the
    table, the interval is Newcombe's, and the first page of the report has the difference."""
    run = run_vote(tmp_path, 12)
    finding = people_and_models(run)
    assert finding is not None and not finding.illustrates and finding.headline
    model_votes = run.read_table("answers").filter(stage="initial_vote", answered_by="synthetic")
    keep_count = int((model_votes["value"] == "Keep it open").sum())
    difference = newcombe(keep_count, len(model_votes), 12, 12)
    (row,) = (
        candidate
        for candidate in read_rows(finding)
        if candidate["answer"] == "initial vote: Keep it open"
    )
    assert (row["people"], row["people_n"], row["models_n"]) == (1.0, 12, len(model_votes))
    assert row["models"] == keep_count / len(model_votes)
    assert (row["models_minus_people"], row["low"], row["high"]) == (
        difference.value,
        difference.low,
        difference.high,
    )
    assert row["p"] == difference.p and row["adjusted_p"] is not None
    assert finding.unit == "seat" and finding.units == 12
    document = build_document(run)
    assert "people_and_models" in {figure.finding.key for figure in document.headlines}
    assert "People and models who answered the same questions" in write_report(run).read_text(
        "utf-8"
    )


def test_fewer_than_five_humans_are_an_illustration(tmp_path: Path) -> None:
    finding = people_and_models(run_vote(tmp_path, 4))
    assert finding is not None and finding.illustrates
    assert finding.says.startswith("An illustration, not evidence: 4 seats.")
    assert "4 people and 16 participants played by models answered" in finding.says
    for row in read_rows(finding):
        assert row["people_n"] == 4
        assert row["low"] is row["high"] is row["p"] is row["adjusted_p"] is None


def test_without_humans_or_without_models_there_is_no_comparison(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    assert people_and_models(run_vote(tmp_path / "all", 20)) is None
    path = tmp_path / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    assert people_and_models(folkmoot.run(path, out=tmp_path / "run").folder) is None


def test_humans_who_never_replied_are_no_people(tmp_path: Path) -> None:
    """The seats are closed before the first answer, so models alone took part."""

    @asynccontextmanager
    async def close_seats(seat_manager: SeatManager) -> AsyncIterator[None]:
        for seat_state in seat_manager:
            seat_manager.close_seat(seat_state, SEAT_CLOSED)
        yield
        seat_manager.finish()

    path = tmp_path / "centre.yaml"
    path.write_text(f"{STUDY}seats: 3\n", "utf-8")
    run = folkmoot.run(path, out=tmp_path / "run", seat_host=close_seats).folder
    (sample,) = load_samples([run])
    assert people_in(sample) is None and people_and_models(run) is None
    methods = build_document(run).methods
    assert methods is not None
    assert "People were asked, but none replied, as participant." in methods.paragraphs[0]
    (automation,) = (row[2] for row in methods.checklist.rows if row[0] == "A.2")
    assert automation == "Fully automated."


def test_checks_of_the_model_leave_out_humans(tmp_path: Path) -> None:
    """Humans who decline do not make a model unfit that refuses nothing."""
    run = run_vote(tmp_path, 12, option="declined")
    answers = run.read_table("answers")
    assert answers.filter(missing="declined")["answered_by"].unique().to_list() == ["human"]
    model_replies = answers.filter(pl.col("answered_by") != "human").height
    document = build_document(run)
    figures = [figure for section in document.sections for figure in section.figures]
    (finding,) = (
        figure.finding
        for figure in (*document.headlines, *figures)
        if figure.finding.key == RESPONDENT_CHECKS_KEY
    )
    says = {row["check"]: row["says"] for row in read_rows(finding)}
    assert says["Refusals"].startswith(f"None of {model_replies} replies")
    assert "8 speakers" in says["Refusals"] and "8 speakers" in finding.notes[-1]


def test_the_same_seats_are_compared_between_runs_with_and_without_humans(
    tmp_path: Path,
) -> None:
    """`compare_runs` compares human votes with model votes in the same seats, and corrects
    the simulation."""
    for name in ("mixed", "models"):
        (tmp_path / name).mkdir()
    mixed_run = run_vote(tmp_path / "mixed", 12)
    path = tmp_path / "models" / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    model_run = folkmoot.run(path, out=tmp_path / "models" / "run").folder
    findings = {finding.key: finding for finding in compare_runs([model_run, mixed_run])}
    (row,) = (
        candidate
        for candidate in read_rows(findings["people_calibration"])
        if candidate["measure"] == "initial choice"
    )
    votes = model_run.read_table("participants")["initial_choice"].drop_nulls()
    assert row["off"] == pytest.approx((votes == "Close it").mean())
    corrected = {str(row["measure"]): row for row in read_rows(findings["people_rectified"])}
    assert corrected.keys() == {"initial_choice: Close it", "initial_choice: Keep it open"}
    keep_row = corrected["initial_choice: Keep it open"]
    assert (keep_row["people"], keep_row["people_alone"]) == (12, 1.0)


def test_recruitment_ids_are_exported_only_on_request(tmp_path: Path) -> None:
    """Exports contain no ids by default. With `--with-ids`, one file maps seats to ids. Only
    its owner can read it. Without ids the option is refused."""
    run = run_vote(tmp_path, 5)
    names = run.plan["sealed"]["seats"]["data"]
    ids_by_seat = {names[0]: {"PROLIFIC_PID": "5f3a"}, names[1]: {"PROLIFIC_PID": "=1+1"}}
    with pytest.raises(InputError, match="contains no recruitment ids"):
        export_run(run, "csv", tmp_path / "none", with_ids=True)
    assert not (tmp_path / "none").exists()
    (run.path / "people.json").write_text(json.dumps(ids_by_seat), "utf-8")
    for export_format in ("csv", "parquet", "json"):
        export_run(run, export_format, tmp_path / export_format)
        files_with_ids = [
            path
            for path in (tmp_path / export_format).rglob("*")
            if path.is_file() and b"5f3a" in path.read_bytes()
        ]
        assert files_with_ids == [] and not (tmp_path / export_format / "people.csv").exists()
    result = CliRunner().invoke(
        app, ["export", str(run.path), "--out", str(tmp_path / "told"), "--with-ids"]
    )
    assert result.exit_code == 0, result.output
    ids_file = tmp_path / "told" / "people.csv"
    lines = ids_file.read_text("utf-8").splitlines()
    assert lines == ["seat,PROLIFIC_PID", f"{names[0]},5f3a", f"{names[1]},'=1+1"]
    assert stat.S_IMODE(ids_file.stat().st_mode) == 0o600


def test_means_of_people_and_models_differ_by_the_printed_difference(tmp_path: Path) -> None:
    """Every session of a public goods game has people and models, but not equally many. Every
    seat counts equally, in the means as in the difference."""
    run = folkmoot.run(
        EXAMPLES / "public_goods.xlsx",
        out=tmp_path / "run",
        model="synthetic",
        overrides=("seats.count=9",),
        seat_host=build_seat_host(
            lambda _seat, question: question.view.options[0] if question.view.options else "7"
        ),
    ).folder
    gifts = run.read_table("responses").filter(var_name="give_1")
    seat = pl.format("public_goods.{}/{}", "session", "participant_id")
    is_human = seat.is_in([seat.name for seat in read_seats(run.path)])
    sides = {"people": gifts.filter(is_human), "models": gifts.filter(~is_human)}
    expected = {side: rows["number"].mean() for side, rows in sides.items()}
    finding = people_and_models(run)
    assert finding is not None and (finding.unit, finding.units) == ("session with people", 4)
    rows = read_rows(finding)
    (row,) = (row for row in rows if row["answer"] == "give_1")
    assert {side: row[side] for side in expected} == pytest.approx(expected)
    by_session = sides["models"].group_by("session").agg(pl.col("number").mean())
    assert expected["models"] != by_session["number"].mean()
    for row in rows:
        assert row["models_minus_people"] == pytest.approx(row["models"] - row["people"])


def test_answers_of_a_workbook_are_compared_by_variable(tmp_path: Path) -> None:
    """Plain choices count like numbers and JSON answers, each under the name of its variable. A
    separate question for the speculation score does not replace the answer."""
    workbook = load_workbook(EXAMPLES / "public_goods.xlsx")
    sheet = workbook["interview_prompts"]
    columns = {cell.value: cell.column for cell in sheet[1]}
    for row in range(2, sheet.max_row + 1):
        if sheet.cell(row, columns["var_name"]).value == "fair":
            sheet.cell(row, columns["generate_speculation_score"]).value = 1
    workbook.save(tmp_path / "game.xlsx")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        options = question.view.options
        if question.address.endswith("ask1"):
            return "40"
        if question.request.schema is None:
            return "yes" if "yes" in options else "7"
        response = "very satisfied" if "very satisfied" in options else 7
        return json.dumps({"response": response, "speculation_score": 40})

    run = folkmoot.run(
        tmp_path / "game.xlsx",
        out=tmp_path / "run",
        model="synthetic",
        overrides=("seats.count=2",),
        seat_host=build_seat_host(answer),
    ).folder
    finding = people_and_models(run)
    assert finding is not None
    rows = {str(row["answer"]): row for row in read_rows(finding)}
    assert {name.partition(":")[0] for name in rows} == {
        *("understood", "give_1", "give_2", "give_3", "satisfied", "fair")
    }
    assert rows["satisfied: very satisfied"]["people"] == 1
    responses = run.read_table("responses")
    models = pl.col("participant_id").is_in([seat.id for seat in read_seats(run.path)]).not_()
    understood = responses.filter(models, var_name="understood")
    assert rows["understood: yes"]["models_n"] == len(understood)
    assert rows["fair"]["people"] == 7
    assert rows["fair: speculation score"]["people"] == 40
