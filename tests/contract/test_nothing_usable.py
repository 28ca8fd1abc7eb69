"""A finished run without usable results says so: in words and by exit status 3."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.errors import RefusedError
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import write_report
from folkmoot.storage.rows import columns_of_class
from folkmoot.storage.table_buffer import TableBuffer
from tests.contract.small import people_of, small_study
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())


def refuse(_request: ModelRequest, _address: str) -> str:
    raise RefusedError("not this one", reason="filtered")


def reply_unreadably(_request: ModelRequest, _address: str) -> str:
    return "Zq zq zq."


def make_refusing_model(*stages: str) -> ScriptedProvider:
    """Return the embedded respondent, which refuses all requests of these stages."""
    inner = people_of("cross_pollination")

    async def answer(request: ModelRequest, address: str) -> Completion:
        if address.startswith(stages):
            raise RefusedError("not this one", reason="filtered")
        return await inner.complete_request(request, address=address)

    return ScriptedProvider(answer)


def assert_declared_columns(run: folkmoot.Run) -> None:
    """Assert that the run has every declared table with all declared columns and their types."""
    for name, columns in columns_of_class(run.study.tables).items():
        table, wanted = (
            run.table(name),
            TableBuffer(name, declared=columns).to_frame().lazy().collect(),
        )
        assert set(wanted.columns) <= set(table.columns), name
        assert {c: table.schema[c] for c in wanted.columns} == dict(wanted.schema), name


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("town_hall", "workbook"), part="sweeps")
)
def test_a_run_without_any_answer_is_done_and_unusable(study: str, tmp_path: Path) -> None:
    run = folkmoot.run(
        small_study(study, tmp_path), out=tmp_path / "run", provider=ScriptedProvider(refuse)
    )
    assert run.manifest["outcome"] == "done" and run.unusable
    assert_declared_columns(run)
    assert run.unusable in (run.path / "run.log").read_text().splitlines()[-1]
    assert run.findings
    assert run.unusable in html.unescape(write_report(run.folder).read_text())


@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted({*STUDIES} - {"focus_group"}),  # its talk is free text
        daily=("cross_pollination", "town_hall"),
        part="mutations",
    ),
)
def test_a_run_with_unreadable_answers_is_unusable(study: str, tmp_path: Path) -> None:
    run = folkmoot.run(
        small_study(study, tmp_path),
        out=tmp_path / "run",
        provider=ScriptedProvider(reply_unreadably),
    )
    assert run.unusable
    assert_declared_columns(run)
    assert run.findings


@pytest.mark.parametrize("study", STUDIES)
def test_a_usable_run_has_its_tables_as_declared(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    run = folkmoot.load(run_of_small_study(study))
    assert not run.unusable and "unusable" not in run.manifest
    assert_declared_columns(run)
    for name, columns in columns_of_class(find_study(study).tables).items():
        recorded = [c for c in run.table(name).columns if not c.startswith("demographic_")]
        assert (
            recorded == TableBuffer(name, declared=columns).to_frame().lazy().collect().columns
        ), name


@pytest.mark.parametrize(
    ("deaf", "said"),
    (
        (("initial_vote",), "first vote"),
        (("clarification",), "interviews"),
        (("summaries",), "cluster of reasons"),
        (("cross_pollination", "adversarial_dialogue", "second_vote"), "final vote"),
    ),
)
def test_a_pilot_reports_the_stage_at_which_it_ended(
    tmp_path: Path, deaf: tuple[str, ...], said: str
) -> None:
    source = small_study("cross_pollination", tmp_path)
    run = folkmoot.run(source, out=tmp_path / "run", provider=make_refusing_model(*deaf))
    assert said in run.unusable
    assert_declared_columns(run)
    assert said in (run.path / "run.log").read_text()


def test_a_unanimous_pilot_has_a_result(tmp_path: Path) -> None:
    source = small_study("cross_pollination", tmp_path)
    run = folkmoot.run(
        source, out=tmp_path / "run", provider=ScriptedProvider(lambda *_: "Safer streets")
    )
    assert run.json("summary.json")["terminated_early"] and not run.unusable


@pytest.mark.parametrize("revote", ("true", "false"))
def test_participants_who_only_vote_are_complete_after_an_early_end(
    tmp_path: Path, revote: str
) -> None:
    source = small_study("cross_pollination", tmp_path)
    source.write_text(source.read_text().replace("revote: true", f"revote: {revote}"))
    run = folkmoot.run(
        source, out=tmp_path / "run", provider=ScriptedProvider(lambda *_: "Safer streets")
    )
    status = run.table("participants").group_by("condition").agg(pl.col("status").unique())
    found = {row["condition"]: row["status"] for row in status.to_dicts()}
    assert found.pop("simple_voting") == ["complete"]
    assert set(map(tuple, found.values())) == {("skipped",)}


def test_the_log_reports_the_phases_in_order(tmp_path: Path) -> None:
    source = small_study("cross_pollination", tmp_path)
    source.write_text(source.read_text().replace("threshold: 5", "threshold: 500"))
    run = folkmoot.run(source, out=tmp_path / "run", model="synthetic")
    log = (run.path / "run.log").read_text()
    done = re.findall(r"done \(phase (\d) of 9\)", log)
    assert done == [str(k) for k in range(1, 10)]
    assert "36 votes, fewer than 500: no check" in log
    assert "initial_vote: 36 of 36 done" in log and "adversarial_dialogue: 6 of 6 done" in log


def test_the_end_table_counts_skipped_participants(tmp_path: Path) -> None:
    source = small_study("cross_pollination", tmp_path)
    run = folkmoot.run(source, out=tmp_path / "run", provider=make_refusing_model("summaries"))
    grid = next(f for f in run.findings if f.headline).grid
    rows = {str(row[0]): dict(zip(grid.columns, row, strict=True)) for row in grid.rows}
    skipped = run.table("participants").filter(pl.col("status") == "skipped")
    assert skipped.height and sum(int(str(r["skipped"])) for r in rows.values()) == skipped.height
    for row in rows.values():
        assert sum(int(str(row[k])) for k in ("completed", "failed", "skipped")) == 6


def test_the_command_ends_with_3_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    study = small_study("cross_pollination", tmp_path)
    refusals = f"{study.read_text()}respondent: {{refusals: 1.0}}\n"
    study.write_text(refusals)
    for more in ([], ["--resume"]):
        done = CliRunner().invoke(app, ["run", str(study), *more])
        assert done.exit_code == 3, done.output
        assert "has no usable result: no participant gave a valid first vote" in done.output
    assert "3 finished without a usable result" in " ".join(
        CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "300"}).output.split()
    )
