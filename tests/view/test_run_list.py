"""The list of runs and the state of each, also of damaged and unfinished run folders."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from folkmoot.engine.session.folder_access import HOLDER_FILE, open_run
from folkmoot.errors import StorageError
from folkmoot.report.document.document import build_document
from folkmoot.report.preregistration import title_of
from folkmoot.storage.run_folder import JOURNAL, LOG_LINES, MANIFEST, PLAN, RunFolder
from folkmoot.view.run_list import RunCollection, read_run_status
from tests.killed import reopen_run, write_row_file
from tests.view.conftest import create_viewer_server


def read_state(run: Path) -> str:
    return read_run_status(run, run.name).state


def change_manifest(run: Path, **facts: object) -> None:
    path = run / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **facts}), "utf-8")


def write_holder(run: Path, pid: int, host: str = "") -> None:
    holder = {
        "pid": pid,
        "host": host or socket.gethostname(),
        "since": "2026-01-01T00:00:00+00:00",
    }
    (run / HOLDER_FILE).write_text(json.dumps(holder))


def test_the_status_of_a_finished_run_comes_from_its_manifest(outputs: Path) -> None:
    statuses = {status.name: status for status in RunCollection(outputs).list_statuses()}
    assert set(statuses) == {
        "cross_pollination",
        "focus_group",
        "negotiation",
        "town_hall",
        "workbook",
    }
    town_hall, manifest = (
        statuses["town_hall"],
        json.loads((outputs / "town_hall" / MANIFEST).read_text("utf-8")),
    )
    assert (town_hall.state, town_hall.calls, town_hall.cost) == ("done", manifest["calls"], "$0")
    assert (
        town_hall.models == "synthetic"
        and town_hall.mark == "SYNTHETIC"
        and town_hall.study == "town_hall"
    )


@pytest.mark.parametrize("outcome", ["paused", "interrupted", "failed"])
def test_a_stopped_run_shows_its_outcome_and_reason(run_copy: Path, outcome: str) -> None:
    change_manifest(run_copy, outcome=outcome)
    with (run_copy / LOG_LINES).open("a") as log:
        log.write(json.dumps({"event": "RunEnded", "message": "the budget is used up"}) + "\n")
    status = read_run_status(run_copy, "copy")
    assert status.state == outcome and status.why == "the budget is used up"


def test_an_unusable_run_shows_its_reason(run_copy: Path) -> None:
    change_manifest(run_copy, unusable="no participant gave an answer")
    status = read_run_status(run_copy, "copy")
    assert status.state == "unusable" and status.why == "no participant gave an answer"


def test_runs_with_human_participants_are_marked(run_copy: Path) -> None:
    change_manifest(
        run_copy, mark="MIXED", note="People answered as participant; synthetic as moderator."
    )
    assert (
        status := read_run_status(run_copy, "copy")
    ).mark == "MIXED" and "synthetic as" in status.note
    (run_copy / MANIFEST).unlink()
    assert read_run_status(run_copy, "copy").mark == "SYNTHETIC"
    (run_copy / "seats.json").write_text("{}")
    status = read_run_status(run_copy, "copy")  # no human has answered yet
    assert status.mark == "SYNTHETIC" and "Humans take part" in status.note


def test_an_unreadable_list_of_seats_does_not_hide_the_mark(run_copy: Path) -> None:
    change_manifest(run_copy, mark="MIXED", note="People answered as participant.")
    (run_copy / "seats.json").write_text('{"seats": 3}')
    status = read_run_status(run_copy, "copy")
    assert (status.mark, status.note) == ("MIXED", "People answered as participant.")


def test_the_label_of_an_unfinished_run_follows_from_its_answers(run_copy: Path) -> None:
    (run_copy / MANIFEST).unlink()
    (run_copy / LOG_LINES).unlink()
    # The journal names the embedded respondent, who gave no answer of these tables.
    (run_copy / JOURNAL).unlink()
    answers: list[dict[str, object]] = []
    for answered_by, mark, note in (
        ("model", "", ""),
        ("human", "MIXED", "People answered; models answered as model."),
        ("synthetic", "MIXED", "the embedded respondent answered as synthetic; models"),
    ):
        answers.append({"role": answered_by, "answered_by": answered_by, "missing": None})
        write_row_file(run_copy, {"answers": answers})
        status = read_run_status(run_copy, "copy")
        assert status.mark == open_run(run_copy).mark == mark
        assert note in status.note and status.note == (
            open_run(run_copy).provenance_note if mark else ""
        )
    write_row_file(run_copy, {"answers": answers[1:2]})
    status = read_run_status(run_copy, "copy")
    assert (status.mark, status.note) == ("HUMAN", "People answered.")
    with create_viewer_server(run_copy.parent) as server:
        assert "<strong>HUMAN</strong> People answered." in server.get("/run/copy/-/").text


def test_a_run_killed_after_a_resume_is_unfinished(run_copy: Path) -> None:
    """The list and the report show the state, the list also the calls of the killed process."""
    change_manifest(run_copy, outcome="paused", calls=3, cost_usd=0.5, mark="", synthetic=False)
    assert read_state(run_copy) == open_run(run_copy).state == "paused"
    assert read_run_status(run_copy, "copy").calls == 3
    reopen_run(run_copy, keep_manifest=True)
    status, run = read_run_status(run_copy, "copy"), open_run(run_copy)
    assert status.state == run.state == "unfinished"
    assert status.calls > 3 and status.cost == "$0" and status.stages
    assert status.mark == run.mark == "SYNTHETIC" and status.study == run.study


def test_a_folder_in_place_of_a_file_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes" / PLAN).mkdir(parents=True)
    assert RunCollection(tmp_path).run_names() == []
    with pytest.raises(StorageError, match="not a run folder"):
        open_run(tmp_path / "notes")


def test_an_unknown_cost_is_not_zero(run_copy: Path) -> None:
    change_manifest(run_copy, cost_usd=None, cost_unknown_for=["m"])
    assert read_run_status(run_copy, "copy").cost == "unknown"
    change_manifest(run_copy, cost_usd=1.5)
    assert read_run_status(run_copy, "copy").cost == "$1.50 + unknown"


def test_a_run_is_running_while_its_process_lives(run_copy: Path) -> None:
    (run_copy / MANIFEST).unlink()
    write_holder(run_copy, os.getpid())
    assert read_state(run_copy) == "running"
    ended_process = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    write_holder(run_copy, int(ended_process.stdout))
    # Killed with kill -9: the file of the holder remains.
    assert read_state(run_copy) == "unfinished"
    (run_copy / HOLDER_FILE).unlink()
    assert read_state(run_copy) == "unfinished"


def test_a_resumed_run_is_running(run_copy: Path) -> None:
    change_manifest(run_copy, outcome="paused")
    write_holder(run_copy, os.getpid())
    assert read_state(run_copy) == "running"


def test_a_run_on_another_machine_is_running_while_its_files_change(run_copy: Path) -> None:
    (run_copy / MANIFEST).unlink()
    write_holder(run_copy, os.getpid(), "another.example")
    for moved_at, expected in ((time.time(), "running"), (1e9, "unfinished")):
        for file in run_copy.iterdir():
            if file.is_file():
                os.utime(file, (moved_at, moved_at))
        assert read_state(run_copy) == expected


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "null", ""])
def test_a_damaged_manifest_is_reported_and_the_rest_is_shown(run_copy: Path, text: str) -> None:
    (run_copy / MANIFEST).write_text(text)
    status = read_run_status(run_copy, "copy")
    assert status.state == "unreadable" and status.why
    with create_viewer_server(run_copy.parent) as server:
        for page in ("", "people", "rooms", "search?q=oven"):
            assert server.get(f"/run/copy/-/{page}").status == 200, page
        assert "cannot be read" in server.get("/").text


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"event": "RunStarted"', b"\xff\xfe", b'{"stages": 3}']
)
def test_a_log_with_an_incomplete_last_line_is_read_up_to_it(run_copy: Path, line: bytes) -> None:
    (run_copy / MANIFEST).unlink()
    before = read_run_status(run_copy, "copy").calls
    with (run_copy / LOG_LINES).open("ab") as log:
        log.write(line)
    assert before and read_run_status(run_copy, "copy").calls == before


def test_a_damaged_journal_is_reported_and_the_rest_is_shown(run_copy: Path) -> None:
    for damage in (b"not a database" * 100, b""):
        (run_copy / JOURNAL).write_bytes(damage)
        with create_viewer_server(run_copy.parent) as server:
            assert server.get("/run/copy/-/").status == 200
            assert server.get("/run/copy/-/people").status == 200
            response = server.get("/run/copy/-/room?id=group_001&id=oven")
            assert response.status == 404 and "journal" in response.text


def test_a_journal_damaged_in_the_middle_does_not_stop_the_server(run_copy: Path) -> None:
    data = bytearray((run_copy / JOURNAL).read_bytes())
    data[8192 : len(data) - 4096] = b"\x5a" * (len(data) - 12288)
    (run_copy / JOURNAL).write_bytes(data)
    with create_viewer_server(run_copy.parent) as server:
        for page in ("room?id=group_001&id=oven", "person?id=group_001/p_0001", "search?q=oven"):
            response = server.get(f"/run/copy/-/{page}")
            assert response.status == 404 or "could not be indexed" in response.text, page
        assert server.get("/").status == 200


def test_a_run_deleted_while_it_is_open_is_reported(run_copy: Path) -> None:
    with create_viewer_server(run_copy.parent) as server:
        assert server.get("/run/copy/-/").status == 200
        shutil.rmtree(run_copy)
        for page in (
            "",
            "people",
            "person?id=group_001/p_0001",
            "search?q=oven",
            "findings",
            "live",
        ):
            response = server.get(f"/run/copy/-/{page}")
            assert response.status == 404 and "no run copy here" in response.text
        assert "no runs in this folder" in server.get("/").text


def test_damaged_tables_are_reported(run_copy: Path) -> None:
    with create_viewer_server(run_copy.parent) as server:
        assert server.get("/run/copy/-/people").status == 200
        for table in (run_copy / "tables").glob("*.parquet"):
            table.unlink()
            table.write_bytes(b"PAR1 no more")
        for page in ("people", "rooms", "person?id=group_001/p_0001"):
            response = server.get(f"/run/copy/-/{page}")
            assert response.status == 404 and "Cannot be read" in response.text, page


def test_folders_that_are_not_runs_are_not_listed(outputs: Path, tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.txt").write_text("x")
    (root / "empty").mkdir()
    (root / "file").write_text("x")
    shutil.copytree(outputs / "workbook", root / ".hidden")
    assert RunCollection(root).run_names() == []
    with create_viewer_server(root) as server:
        assert "no runs in this folder" in server.get("/").text
        assert server.get("/run/.hidden/-/").status == server.get("/run/notes/-/").status == 404


def test_the_page_of_a_run_has_the_title_of_its_report(outputs: Path) -> None:
    """The title of a workbook is the name of its experiment."""
    run = RunFolder(outputs / "workbook")
    title = title_of(run.config)
    assert title and build_document(run).title == title
    with create_viewer_server(outputs) as server:
        assert f"<h1>{escape(title)}</h1>" in server.get("/run/workbook/-/").text


def test_the_folder_of_a_single_run_is_served(outputs: Path) -> None:
    runs = RunCollection(outputs / "workbook")
    assert runs.run_names() == ["workbook"]
    with pytest.raises(HTTPException):
        runs.run("focus_group")
    with create_viewer_server(outputs / "workbook") as server:
        assert server.get("/").headers["Location"] == "/run/workbook/-/"
        assert server.get("/run/workbook/-/").status == 200
        assert server.get("/run/focus_group/-/").status == 404


def test_runs_of_a_grid_are_named_by_it(outputs: Path, tmp_path: Path) -> None:
    grid = tmp_path / "outputs" / "models"
    shutil.copytree(outputs / "workbook", grid / "cells" / "a")
    (grid / "grid.json").write_text("{}")
    assert RunCollection(tmp_path / "outputs").run_names() == ["models/a"]
    assert (
        RunCollection(grid).run_names() == ["a"]
        and RunCollection(grid).run("a").path == grid / "cells" / "a"
    )
    with create_viewer_server(tmp_path / "outputs") as server:
        assert "models/a" in server.get("/").text
        for page in ("", "people", "rooms"):
            assert server.get(f"/run/models/a/-/{page}").status == 200


def test_a_list_of_many_runs_reads_few_files_and_each_once(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_count = 500
    for n in range(run_count):
        run = tmp_path / "outputs" / f"run_{n:03}"
        run.mkdir(parents=True)
        for name in (MANIFEST, PLAN, LOG_LINES, JOURNAL):
            os.link(outputs / "town_hall" / name, run / name)
    # Participants are not counted.
    monkeypatch.setattr("folkmoot.view.run_list.MAX_COUNTING_SECONDS", 0.0)
    open_counts: Counter[str] = Counter()
    original_open = io.open

    def count_open(file: str | Path, *args: Any, **options: Any) -> Any:
        open_counts[Path(file).name] += 1
        return original_open(file, *args, **options)

    monkeypatch.setattr(io, "open", count_open)
    runs = RunCollection(tmp_path / "outputs")
    assert len(runs.list_statuses()) == run_count
    assert (
        open_counts[MANIFEST] == open_counts[LOG_LINES] == run_count
        and not open_counts[PLAN]
        and not open_counts[JOURNAL]
    )
    open_counts.clear()
    assert len(runs.list_statuses()) == run_count
    assert set(open_counts) <= {HOLDER_FILE}


def test_runs_of_earlier_versions_can_be_read(run_copy: Path) -> None:
    for name in ("exposure", "texts", "codes"):
        (run_copy / "tables" / f"{name}.parquet").unlink()
    (run_copy / LOG_LINES).unlink()
    change_manifest(run_copy, answers={})
    with create_viewer_server(run_copy.parent) as server:
        for page in ("", "people", "rooms", "person?id=group_001/p_0001", "search?q=oven"):
            assert server.get(f"/run/copy/-/{page}").status == 200, page
