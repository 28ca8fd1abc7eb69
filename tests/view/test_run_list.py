"""Which runs there are and how each stands, whatever state its folder is in."""

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
from tests.view.conftest import reader


def state(run: Path) -> str:
    return read_run_status(run, run.name).state


def change(run: Path, **facts: object) -> None:
    path = run / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **facts}), "utf-8")


def held_by(run: Path, pid: int, host: str = "") -> None:
    who = {"pid": pid, "host": host or socket.gethostname(), "since": "2026-01-01T00:00:00+00:00"}
    (run / HOLDER_FILE).write_text(json.dumps(who))


def test_a_finished_run_is_told_by_its_manifest(outputs: Path) -> None:
    found = {s.name: s for s in RunCollection(outputs).list_statuses()}
    assert set(found) == {
        "cross_pollination",
        "focus_group",
        "negotiation",
        "town_hall",
        "workbook",
    }
    one, manifest = (
        found["town_hall"],
        json.loads((outputs / "town_hall" / MANIFEST).read_text("utf-8")),
    )
    assert (one.state, one.calls, one.cost) == ("done", manifest["calls"], "$0")
    assert one.models == "synthetic" and one.mark == "SYNTHETIC" and one.study == "town_hall"


@pytest.mark.parametrize("outcome", ["paused", "interrupted", "failed"])
def test_a_run_that_stopped_says_how(copy: Path, outcome: str) -> None:
    change(copy, outcome=outcome)
    with (copy / LOG_LINES).open("a") as log:
        log.write(json.dumps({"event": "RunEnded", "message": "the budget is used up"}) + "\n")
    found = read_run_status(copy, "copy")
    assert found.state == outcome and found.why == "the budget is used up"


def test_a_run_of_which_nothing_is_usable_says_why(copy: Path) -> None:
    change(copy, unusable="no participant gave an answer")
    found = read_run_status(copy, "copy")
    assert found.state == "unusable" and found.why == "no participant gave an answer"


def test_people_at_the_table_are_marked(copy: Path) -> None:
    change(copy, mark="MIXED", note="People answered as participant; synthetic as moderator.")
    assert (found := read_run_status(copy, "copy")).mark == "MIXED" and "synthetic as" in found.note
    (copy / MANIFEST).unlink()
    assert read_run_status(copy, "copy").mark == "SYNTHETIC"
    (copy / "seats.json").write_text("{}")
    found = read_run_status(copy, "copy")  # no human has answered yet
    assert found.mark == "SYNTHETIC" and "Humans take part" in found.note


def test_the_label_of_an_unfinished_run_follows_from_its_answers(copy: Path) -> None:
    (copy / MANIFEST).unlink()
    (copy / LOG_LINES).unlink()
    answers: list[dict[str, object]] = []
    for answered_by, mark, note in (
        ("model", "", ""),
        ("human", "MIXED", "People answered; models answered as model."),
        ("synthetic", "MIXED", "the embedded respondent answered as synthetic; models"),
    ):
        answers.append({"role": answered_by, "answered_by": answered_by, "missing": None})
        write_row_file(copy, {"answers": answers})
        found = read_run_status(copy, "copy")
        assert found.mark == open_run(copy).mark == mark
        assert note in found.note and found.note == (open_run(copy).provenance_note if mark else "")
    write_row_file(copy, {"answers": answers[1:2]})
    found = read_run_status(copy, "copy")
    assert (found.mark, found.note) == ("HUMAN", "People answered.")
    with reader(copy.parent) as server:
        assert "<strong>HUMAN</strong> People answered." in server.get("/run/copy/-/").text


def test_a_run_killed_after_a_pause_is_not_paused_any_more(copy: Path) -> None:
    """The list and the report say so, and the list shows the calls of the killed process."""
    change(copy, outcome="paused", calls=3, cost_usd=0.5, mark="", synthetic=False)
    assert state(copy) == open_run(copy).state == "paused"
    assert read_run_status(copy, "copy").calls == 3
    reopen_run(copy, keep_manifest=True)
    found, run = read_run_status(copy, "copy"), open_run(copy)
    assert found.state == run.state == "unfinished"
    assert found.calls > 3 and found.cost == "$0" and found.stages
    assert found.mark == run.mark == "SYNTHETIC" and found.study == run.study


def test_a_folder_in_place_of_a_file_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes" / PLAN).mkdir(parents=True)
    assert RunCollection(tmp_path).run_names() == []
    with pytest.raises(StorageError, match="not a run folder"):
        open_run(tmp_path / "notes")


def test_an_unknown_cost_is_not_zero(copy: Path) -> None:
    change(copy, cost_usd=None, cost_unknown_for=["m"])
    assert read_run_status(copy, "copy").cost == "unknown"
    change(copy, cost_usd=1.5)
    assert read_run_status(copy, "copy").cost == "$1.50 + unknown"


def test_a_run_runs_while_the_process_that_holds_it_lives(copy: Path) -> None:
    (copy / MANIFEST).unlink()
    held_by(copy, os.getpid())
    assert state(copy) == "running"
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    held_by(copy, int(gone.stdout))
    assert state(copy) == "unfinished"  # by kill -9: the file of the holder is left
    (copy / HOLDER_FILE).unlink()
    assert state(copy) == "unfinished"


def test_a_paused_run_that_goes_on_is_running(copy: Path) -> None:
    change(copy, outcome="paused")
    held_by(copy, os.getpid())
    assert state(copy) == "running"


def test_a_run_on_another_machine_runs_while_its_journal_moves(copy: Path) -> None:
    (copy / MANIFEST).unlink()
    held_by(copy, os.getpid(), "another.example")
    for moved_at, expected in ((time.time(), "running"), (1e9, "unfinished")):
        for file in copy.iterdir():
            if file.is_file():
                os.utime(file, (moved_at, moved_at))
        assert state(copy) == expected


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "null", ""])
def test_a_damaged_manifest_is_said_and_the_rest_is_shown(copy: Path, text: str) -> None:
    (copy / MANIFEST).write_text(text)
    found = read_run_status(copy, "copy")
    assert found.state == "unreadable" and found.why
    with reader(copy.parent) as server:
        for page in ("", "people", "rooms", "search?q=oven"):
            assert server.get(f"/run/copy/-/{page}").status == 200, page
        assert "cannot be read" in server.get("/").text


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"event": "RunStarted"', b"\xff\xfe", b'{"stages": 3}']
)
def test_a_log_that_ends_in_the_middle_of_a_line_is_read_up_to_it(copy: Path, line: bytes) -> None:
    (copy / MANIFEST).unlink()
    before = read_run_status(copy, "copy").calls
    with (copy / LOG_LINES).open("ab") as log:
        log.write(line)
    assert before and read_run_status(copy, "copy").calls == before


def test_a_damaged_journal_is_said_and_the_rest_is_shown(copy: Path) -> None:
    for damage in (b"not a database" * 100, b""):
        (copy / JOURNAL).write_bytes(damage)
        with reader(copy.parent) as server:
            assert server.get("/run/copy/-/").status == 200
            assert server.get("/run/copy/-/people").status == 200
            found = server.get("/run/copy/-/room?id=group_001&id=oven")
            assert found.status == 404 and "journal" in found.text


def test_a_journal_that_is_damaged_in_the_middle_ends_no_server(copy: Path) -> None:
    data = bytearray((copy / JOURNAL).read_bytes())
    data[8192 : len(data) - 4096] = b"\x5a" * (len(data) - 12288)
    (copy / JOURNAL).write_bytes(data)
    with reader(copy.parent) as server:
        for page in ("room?id=group_001&id=oven", "person?id=group_001/p_0001", "search?q=oven"):
            got = server.get(f"/run/copy/-/{page}")
            assert got.status == 404 or "could not be indexed" in got.text, page
        assert server.get("/").status == 200


def test_a_run_that_is_deleted_while_it_is_open_is_said(copy: Path) -> None:
    with reader(copy.parent) as server:
        assert server.get("/run/copy/-/").status == 200
        shutil.rmtree(copy)
        for page in (
            "",
            "people",
            "person?id=group_001/p_0001",
            "search?q=oven",
            "findings",
            "live",
        ):
            got = server.get(f"/run/copy/-/{page}")
            assert got.status == 404 and "no run copy here" in got.text
        assert "no runs in this folder" in server.get("/").text


def test_damaged_tables_are_said(copy: Path) -> None:
    with reader(copy.parent) as server:
        assert server.get("/run/copy/-/people").status == 200
        for table in (copy / "tables").glob("*.parquet"):
            table.unlink()
            table.write_bytes(b"PAR1 no more")
        for page in ("people", "rooms", "person?id=group_001/p_0001"):
            got = server.get(f"/run/copy/-/{page}")
            assert got.status == 404 and "Cannot be read" in got.text, page


def test_what_is_no_run_is_left_out(outputs: Path, tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.txt").write_text("x")
    (root / "empty").mkdir()
    (root / "file").write_text("x")
    shutil.copytree(outputs / "workbook", root / ".hidden")
    assert RunCollection(root).run_names() == []
    with reader(root) as server:
        assert "no runs in this folder" in server.get("/").text
        assert server.get("/run/.hidden/-/").status == server.get("/run/notes/-/").status == 404


def test_the_page_of_a_run_has_the_title_of_its_report(outputs: Path) -> None:
    """A workbook has no title but the name of its experiment."""
    run = RunFolder(outputs / "workbook")
    title = title_of(run.config)
    assert title and build_document(run).title == title
    with reader(outputs) as server:
        assert f"<h1>{escape(title)}</h1>" in server.get("/run/workbook/-/").text


def test_one_run_is_served_alone(outputs: Path) -> None:
    runs = RunCollection(outputs / "workbook")
    assert runs.run_names() == ["workbook"]
    with pytest.raises(HTTPException):
        runs.run("focus_group")
    with reader(outputs / "workbook") as server:
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
    with reader(tmp_path / "outputs") as server:
        assert "models/a" in server.get("/").text
        for page in ("", "people", "rooms"):
            assert server.get(f"/run/models/a/-/{page}").status == 200


def test_a_list_of_many_runs_reads_little_of_each_and_nothing_twice(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 500
    for n in range(many):
        run = tmp_path / "outputs" / f"run_{n:03}"
        run.mkdir(parents=True)
        for name in (MANIFEST, PLAN, LOG_LINES, JOURNAL):
            os.link(outputs / "town_hall" / name, run / name)
    monkeypatch.setattr("folkmoot.view.run_list.MAX_COUNTING_SECONDS", 0.0)  # nobody is counted
    read: Counter[str] = Counter()
    plain = io.open

    def seen(file: str | Path, *args: Any, **more: Any) -> Any:
        read[Path(file).name] += 1
        return plain(file, *args, **more)

    monkeypatch.setattr(io, "open", seen)
    runs = RunCollection(tmp_path / "outputs")
    assert len(runs.list_statuses()) == many
    assert read[MANIFEST] == read[LOG_LINES] == many and not read[PLAN] and not read[JOURNAL]
    read.clear()
    assert len(runs.list_statuses()) == many
    assert set(read) <= {HOLDER_FILE}


def test_runs_of_earlier_versions_can_be_read(copy: Path) -> None:
    for name in ("exposure", "texts", "codes"):
        (copy / "tables" / f"{name}.parquet").unlink()
    (copy / LOG_LINES).unlink()
    change(copy, answers={})
    with reader(copy.parent) as server:
        for page in ("", "people", "rooms", "person?id=group_001/p_0001", "search?q=oven"):
            assert server.get(f"/run/copy/-/{page}").status == 200, page
