"""Later codings and controls with other processes and withdrawals at the same time."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_loans import LOANS, PROCESS, OutstandingLoan, write_loan
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.seats import withdrawal
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seat_manager import WITHDRAWN, read_seats
from folkmoot.engine.session.folder_access import HOLDER_FILE, lock_folder
from folkmoot.errors import BudgetReachedError, RunLockedError
from folkmoot.kit import run_below
from folkmoot.kit.coding.post_hoc import code_finished_run
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.amendments import read_amendments
from folkmoot.storage.run_folder import CODINGS, JOURNAL, SEATS, RunFolder
from tests.conftest import SharedFolder
from tests.engine.test_seats import build_seat_host
from tests.engine.test_withdrawal import (
    FOCUS_GROUP_STUDY,
    HIDDEN_WORDS,
    find_files_containing,
    give_human_answer,
)
from tests.kit.test_coding import SECOND

SEAT = "p_0002"


@pytest.fixture
def coded_later_run(shared_folder: SharedFolder, tmp_path: Path) -> RunFolder:
    """Copy a run with texts of a human. The texts are not coded yet."""

    def run_study(folder: Path) -> None:
        (folder / "cup.yaml").write_text(f"{FOCUS_GROUP_STUDY}coding: off\n", "utf-8")
        folkmoot.run(
            folder / "cup.yaml",
            out=folder / "run",
            seats=(SEAT,),
            seat_host=build_seat_host(give_human_answer),
        )

    shared = shared_folder("later_questions/cup", run_study)
    return RunFolder(shutil.copytree(shared / "run", tmp_path / "run"))


def make_coder(on_call: Callable[[int], object] = lambda _call: None) -> ScriptedProvider:
    """Make a model that assigns no codes. `on_call` gets the number of each call."""

    def answer(_request: ModelRequest, _address: str) -> str:
        on_call(provider.calls)
        return json.dumps({"codes": []})

    provider = ScriptedProvider(answer, keep_requests=True)
    return provider


def code_run(run: RunFolder, provider: ScriptedProvider) -> RunFolder:
    return code_finished_run(run, SECOND, RunOptions(custom_provider=provider))


def run_command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def join_requests(provider: ScriptedProvider) -> str:
    return "".join(message.content for _, request in provider.seen for message in request.messages)


def test_a_withdrawal_is_refused_while_a_coding_runs(coded_later_run: RunFolder) -> None:
    results: list[tuple[int, str]] = []

    def withdraw(call: int) -> None:
        if call == 2:
            results.append(run_command("withdraw", coded_later_run.path, SEAT, "--yes"))

    provider = make_coder(withdraw)
    folder = code_run(coded_later_run, provider).path
    ((exit_code, output),) = results
    assert exit_code == 2 and f"{folder}: process" in output and "wait until it ends" in output
    assert [amendment.kind for amendment in read_amendments(coded_later_run.path)] == ["coding"]
    assert run_command("verify", coded_later_run.path)[0] == 0
    exit_code, output = run_command("withdraw", coded_later_run.path, SEAT, "--yes")
    assert exit_code == 0, output
    assert (
        find_files_containing(coded_later_run.path, HIDDEN_WORDS[0]) == [] and not folder.exists()
    )


def test_a_killed_withdrawal_is_completed_before_a_coder_reads_the_texts(
    coded_later_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def raise_killed(_run: Path) -> NoReturn:
        raise KilledError

    (seat,) = read_seats(coded_later_run.path)
    with monkeypatch.context() as patch:
        # All new files are prepared, and none is moved to its place.
        patch.setattr(withdrawal, "finish_withdrawal", raise_killed)
        with pytest.raises(KilledError):
            withdrawal.withdraw_texts(
                coded_later_run, find_personal_texts(coded_later_run, seat), "researcher"
            )
    provider = make_coder()
    code_run(RunFolder(coded_later_run.path), provider)
    assert provider.calls and HIDDEN_WORDS[0] not in join_requests(provider)
    assert find_files_containing(coded_later_run.path, HIDDEN_WORDS[0]) == []
    kinds = [amendment.kind for amendment in read_amendments(coded_later_run.path)]
    assert kinds == [withdrawal.AMENDMENT_KIND, "coding"]


def test_texts_of_a_withdrawal_in_a_killed_run_are_not_coded(
    coded_later_run: RunFolder,
) -> None:
    # The state of a folder after a kill that follows the end of the run.
    seats = json.loads((coded_later_run.path / SEATS).read_text())
    for seat in seats["seats"].values():
        seat["ended"] = WITHDRAWN
    (coded_later_run.path / SEATS).write_text(json.dumps(seats))
    provider = make_coder()
    code_run(coded_later_run, provider)
    assert provider.calls and HIDDEN_WORDS[0] not in join_requests(provider)
    assert find_files_containing(coded_later_run.path, HIDDEN_WORDS[0]) == []


def test_repeating_the_command_records_an_unrecorded_coding(
    coded_later_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_below, "MAX_WAIT_SECONDS", 0)
    with pytest.raises(RunLockedError, match=r"All answers are saved in .* asks nothing again"):
        # Another process amends the run when the coding ends.
        lock = lock_folder(coded_later_run.path)
        code_run(coded_later_run, make_coder(lambda call: lock.__enter__() if call == 1 else None))
    lock.__exit__(None, None, None)
    assert not read_amendments(coded_later_run.path)
    second_coder = make_coder()
    code_run(coded_later_run, second_coder)
    assert second_coder.calls == 0
    assert [amendment.kind for amendment in read_amendments(coded_later_run.path)] == ["coding"]


def test_an_empty_journal_of_a_killed_coding_is_no_difference(
    coded_later_run: RunFolder,
) -> None:
    folder = coded_later_run.path / CODINGS / "killed"
    folder.mkdir(parents=True)
    (folder / JOURNAL).touch()
    exit_code, output = run_command("verify", coded_later_run.path)
    assert exit_code == 0, output


def test_calls_of_a_coding_in_another_process_are_not_reported_as_lost(
    coded_later_run: RunFolder,
) -> None:
    def stop_at_second_call(call: int) -> None:
        if call == 2:
            raise BudgetReachedError("used up")

    with pytest.raises(BudgetReachedError):
        code_run(coded_later_run, make_coder(stop_at_second_call))
    (journal,) = (coded_later_run.path / CODINGS).rglob(JOURNAL)
    with closing(sqlite3.connect(journal)) as db, db:
        db.execute("DROP TABLE IF EXISTS loans")
        db.execute(LOANS)
        # The record of a process with calls in flight.
        write_loan(db, OutstandingLoan(0.0, PROCESS, 1, 0.5))
    holder = {"pid": os.getppid(), "host": socket.gethostname(), "since": "now"}
    journal.with_name(HOLDER_FILE).write_text(json.dumps(holder))
    assert "possibly paid" not in run_command("verify", coded_later_run.path)[1]
    # The state of the folder after a kill of the process.
    journal.with_name(HOLDER_FILE).unlink()
    assert "possibly paid" in run_command("verify", coded_later_run.path)[1]
