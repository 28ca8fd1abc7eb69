"""Later codings and controls, other processes, and withdrawals that go on at the same time."""

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
def cup(shared_folder: SharedFolder, tmp_path: Path) -> RunFolder:
    """A copy of a run in which a human spoke. Its texts are not coded yet."""

    def make(folder: Path) -> None:
        (folder / "cup.yaml").write_text(f"{FOCUS_GROUP_STUDY}coding: off\n", "utf-8")
        folkmoot.run(
            folder / "cup.yaml",
            out=folder / "run",
            seats=(SEAT,),
            seat_host=build_seat_host(give_human_answer),
        )

    made = shared_folder("later_questions/cup", make)
    return RunFolder(shutil.copytree(made / "run", tmp_path / "run"))


def coder(meanwhile: Callable[[int], object] = lambda call: None) -> ScriptedProvider:
    """A model that assigns no codes. `meanwhile` gets the number of each call."""

    def answer(_request: ModelRequest, _address: str) -> str:
        meanwhile(provider.calls)
        return json.dumps({"codes": []})

    provider = ScriptedProvider(answer, keep_requests=True)
    return provider


def code(run: RunFolder, provider: ScriptedProvider) -> RunFolder:
    return code_finished_run(run, SECOND, RunOptions(custom_provider=provider))


def cli(*words: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [str(word) for word in words])
    return ended.exit_code, " ".join(ended.output.split())


def asked_words(provider: ScriptedProvider) -> str:
    return "".join(message.content for _, request in provider.seen for message in request.messages)


def test_no_withdrawal_deletes_a_coding_while_it_is_made(cup: RunFolder) -> None:
    refused: list[tuple[int, str]] = []

    def withdraw(call: int) -> None:
        if call == 2:
            refused.append(cli("withdraw", cup.path, SEAT, "--yes"))

    provider = coder(withdraw)
    folder = code(cup, provider).path
    ((exit_code, said),) = refused
    assert exit_code == 2 and f"{folder}: process" in said and "wait until it ends" in said
    assert [amendment.kind for amendment in read_amendments(cup.path)] == ["coding"]
    assert cli("verify", cup.path)[0] == 0
    exit_code, said = cli("withdraw", cup.path, SEAT, "--yes")
    assert exit_code == 0, said
    assert find_files_containing(cup.path, HIDDEN_WORDS[0]) == [] and not folder.exists()


def test_a_killed_withdrawal_is_completed_before_a_coder_reads_the_texts(
    cup: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def die(_run: Path) -> NoReturn:
        raise KilledError

    (seat,) = read_seats(cup.path)
    with monkeypatch.context() as patched:
        # All new files are prepared, and none has taken its place.
        patched.setattr(withdrawal, "finish_withdrawal", die)
        with pytest.raises(KilledError):
            withdrawal.withdraw_texts(cup, find_personal_texts(cup, seat), "researcher")
    provider = coder()
    code(RunFolder(cup.path), provider)
    assert provider.calls and HIDDEN_WORDS[0] not in asked_words(provider)
    assert find_files_containing(cup.path, HIDDEN_WORDS[0]) == []
    kinds = [amendment.kind for amendment in read_amendments(cup.path)]
    assert kinds == [withdrawal.AMENDMENT_KIND, "coding"]


def test_a_human_who_withdrew_in_a_killed_run_is_not_read_by_a_later_coder(cup: RunFolder) -> None:
    # As a process leaves the folder that is killed after it has finished the run.
    seats = json.loads((cup.path / SEATS).read_text())
    for seat in seats["seats"].values():
        seat["ended"] = WITHDRAWN
    (cup.path / SEATS).write_text(json.dumps(seats))
    provider = coder()
    code(cup, provider)
    assert provider.calls and HIDDEN_WORDS[0] not in asked_words(provider)
    assert find_files_containing(cup.path, HIDDEN_WORDS[0]) == []


def test_a_coding_that_cannot_be_recorded_is_recorded_by_the_same_command(
    cup: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_below, "MAX_WAIT_SECONDS", 0)
    with pytest.raises(RunLockedError, match=r"All answers are saved in .* asks nothing again"):
        # Another process amends the run when the coding ends.
        lock = lock_folder(cup.path)
        code(cup, coder(lambda call: lock.__enter__() if call == 1 else None))
    lock.__exit__(None, None, None)
    assert not read_amendments(cup.path)
    again = coder()
    code(cup, again)
    assert again.calls == 0
    assert [amendment.kind for amendment in read_amendments(cup.path)] == ["coding"]


def test_a_coding_that_was_killed_when_its_journal_was_created_is_no_fault_of_the_run(
    cup: RunFolder,
) -> None:
    folder = cup.path / CODINGS / "killed"
    folder.mkdir(parents=True)
    (folder / JOURNAL).touch()
    exit_code, said = cli("verify", cup.path)
    assert exit_code == 0, said


def test_calls_of_a_coding_that_another_process_makes_are_not_called_lost(cup: RunFolder) -> None:
    def stop(call: int) -> None:
        if call == 2:
            raise BudgetReachedError("used up")

    with pytest.raises(BudgetReachedError):
        code(cup, coder(stop))
    (journal,) = (cup.path / CODINGS).rglob(JOURNAL)
    with closing(sqlite3.connect(journal)) as db, db:
        db.execute("DROP TABLE IF EXISTS loans")
        db.execute(LOANS)
        # What a process has recorded while its calls are in flight.
        write_loan(db, OutstandingLoan(0.0, PROCESS, 1, 0.5))
    holder = {"pid": os.getppid(), "host": socket.gethostname(), "since": "now"}
    journal.with_name(HOLDER_FILE).write_text(json.dumps(holder))
    assert "possibly paid" not in cli("verify", cup.path)[1]
    # As the process leaves the folder if it is killed.
    journal.with_name(HOLDER_FILE).unlink()
    assert "possibly paid" in cli("verify", cup.path)[1]
