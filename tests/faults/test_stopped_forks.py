"""Forks that are killed or run out of budget lose no call and repeat none."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.journal.journal_loans import LOANS, PROCESS, OutstandingLoan, write_loan
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork_repeats import pairs_of
from folkmoot.engine.run.grid import cell_folder, read_grid
from folkmoot.errors import BudgetReachedError
from folkmoot.kit.controls.asking import run_controls
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder
from tests.contract.small import small_study
from tests.faults.conftest import Serve
from tests.faults.lab import (
    MODEL,
    CommandLine,
    count_journaled_requests,
    read_table_bytes,
    write_pilot_study,
)
from tests.faults.test_kills import Process, kill
from tests.servers.batches import BatchPlan
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

# A model with a price, so that a budget in US dollars can run out.
PRICED = "openai/gpt-4o-mini"


def kill_and_finish(
    server: ServerThread, command_line: CommandLine, folder: Path, calls: int, *args: object
) -> Counter[str]:
    """Run a command, kill it after `calls` calls, and run it again to its end.

    The second run may only request what the journal of the folder does not contain. Returns the
    entries that were added without a request: the replies that were taken over.
    """
    model, start = server.model, len(server.model.log)
    command_line.run_until(lambda: len(model.log) >= start + calls, kill, *args)
    # Requests in flight at the kill are still answered.
    server.wait_until_quiet()
    journaled, before = count_journaled_requests(folder), len(model.log)
    assert journaled, "the kill came before the first reply was stored"
    resume_arguments = ["fork", folder, "--resume"] if args[0] == "fork" else args
    command_line.run(*resume_arguments)
    request_counts, added = (
        Counter(model.log[before:]),
        count_journaled_requests(folder) - journaled,
    )
    assert request_counts <= added
    return added - request_counts


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a finished run with interviews and dialogues."""
    folder = tmp_path_factory.mktemp("dialogues")
    path = write_pilot_study(folder, "conditions: [simple_passive, acp]\n")
    path.write_text(path.read_text().replace(MODEL, PRICED))
    with ServerThread(FaultPlan(), answers="respondent") as server:
        CommandLine(server.openai).run("run", path, "--out", folder / "run")
    return folder / "run"


def kill_and_check_controls(
    server: ServerThread, command_line: CommandLine, run: Path, *, participants: int, calls: int
) -> None:
    """Check that controls that are killed after some calls give the tables of undisturbed ones."""
    flags = ["--no-negative", "--no-retest", "--no-persona", "--trust"]
    flags += ["--participants", str(participants)]
    killed_run = run.with_name("killed")
    shutil.copytree(run, killed_run)
    command_line.run("controls", run, *flags)
    assert not kill_and_finish(
        server, command_line, killed_run / CONTROLS, calls, "controls", killed_run, *flags
    )
    assert read_table_bytes(killed_run / CONTROLS) == read_table_bytes(run / CONTROLS)
    command_line.run("verify", killed_run)


def test_kill_inside_a_fork_of_a_control_loses_no_call(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    complete_run = tmp_path / "whole"
    shutil.copytree(dialogues, complete_run)
    # The forks of two dialogues take most of these calls, one after the other in each.
    kill_and_check_controls(server, command_line, complete_run, participants=2, calls=12)


# Daily, a kill inside a fork.
@pytest.mark.nightly(part="kills")
def test_kill_inside_a_session_that_a_control_repeats_loses_no_call(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    complete_run = tmp_path / "whole"
    path = small_study("workbook", tmp_path)
    command_line.run("run", path, "--model", MODEL, "--out", complete_run, "--trust")
    # All but the first two calls belong to games.
    kill_and_check_controls(server, command_line, complete_run, participants=1, calls=20)


# Daily, a kill inside a fork of a control.
@pytest.mark.nightly(part="kills")
def test_killed_fork_of_a_run_can_be_resumed(dialogues: Path, tmp_path: Path, serve: Serve) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, utterances["utterance_id"][0], "--say", "The costs are unfair to us."]
    complete_fork, killed_fork = tmp_path / "whole", tmp_path / "killed"
    command_line.run("fork", *change, "--out", complete_fork, "--trust")
    args = ["fork", *change, "--out", killed_fork, "--trust"]
    assert kill_and_finish(server, command_line, killed_fork, 5, *args) <= count_journaled_requests(
        dialogues
    )
    assert read_table_bytes(killed_fork) == read_table_bytes(complete_fork)
    command_line.run("verify", killed_fork)


def read_entry_texts(folder: Path) -> Mapping[str, str]:
    with JournalReader(folder / JOURNAL) as journal:
        return {entry.address: repr(entry) for entry in journal.read_entries()}


# Parts of fork addresses: of a conversation, and of a session that is run again.
FORK_ADDRESSES = {"focus_group": "final-", "workbook": "decision-no_persona/sessions/"}


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("study", sorted(FORK_ADDRESSES))
def test_budget_that_ends_inside_a_fork_of_a_control_pauses_it(study: str, tmp_path: Path) -> None:
    path = small_study(study, tmp_path)
    base = folkmoot.run(path, out=tmp_path / "run", model="synthetic").path
    settings = {"negative": False, "retest": False, "no_persona": True, "participants": 2}
    complete_run, paused = tmp_path / "whole", tmp_path / "paused"
    for folder in (complete_run, paused):
        shutil.copytree(base, folder)
    run_controls(RunFolder(complete_run), settings, RunOptions())
    total = len(read_entry_texts(complete_run / CONTROLS))
    for calls in (total // 3, 2 * total // 3):
        with pytest.raises(BudgetReachedError):
            run_controls(RunFolder(paused), settings, RunOptions(), budget_calls=calls)
        partial_entries = read_entry_texts(paused / CONTROLS)
        # Each decision after a discussion follows more than ten sequential calls.
        assert 4 < len(partial_entries) <= calls and any(
            FORK_ADDRESSES[study] in address for address in partial_entries
        )
    run_controls(RunFolder(paused), settings, RunOptions())
    final_entries = read_entry_texts(paused / CONTROLS)
    assert {address: final_entries[address] for address in partial_entries} == partial_entries
    assert final_entries.keys() == read_entry_texts(complete_run / CONTROLS).keys()
    assert read_table_bytes(paused / CONTROLS) == read_table_bytes(complete_run / CONTROLS)
    assert not folkmoot.load(paused).verify().differences


def test_resume_command_of_a_fork_is_printed(dialogues: Path, tmp_path: Path, serve: Serve) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, utterances["utterance_id"][0], "--say", "The costs are unfair to us."]
    paused = tmp_path / "paused"
    output = command_line.run(
        "fork", *change, "--out", paused, "--trust", "--budget", 1e-6, expect=75
    )
    assert f"folkmoot fork {paused} --budget MORE --resume" in output
    command_line.run("fork", paused, "--budget", 1, "--resume", "--trust")
    assert RunFolder(paused).manifest["outcome"] == "done"


@pytest.mark.nightly(part="kills")
def test_budget_that_ends_inside_a_fork_of_a_run_pauses_it(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, utterances["utterance_id"][0], "--say", "The costs are unfair to us."]
    complete_fork, paused = tmp_path / "whole", tmp_path / "paused"
    command_line.run("fork", *change, "--out", complete_fork, "--trust")
    cost = float(RunFolder(complete_fork).manifest["cost_usd"])
    assert cost > 0
    budget = ["--budget", f"{cost / 2:.6f}"]
    command_line.run("fork", *change, "--out", paused, "--trust", *budget, expect=75)
    partial_entries = read_entry_texts(paused)
    command_line.run("fork", paused, "--resume", "--trust")
    final_entries = read_entry_texts(paused)
    assert (
        0 < len(partial_entries) < len(final_entries)
        and {address: final_entries[address] for address in partial_entries} == partial_entries
    )
    assert final_entries.keys() == read_entry_texts(complete_fork).keys()
    assert read_table_bytes(paused) == read_table_bytes(complete_fork)


def copy_with_batches(dialogues: Path, folder: Path) -> Path:
    """Copy the run with the batch setting, so that its controls use batches."""
    run = Path(shutil.copytree(dialogues, folder / "run"))
    study = run / "study.yaml"
    settings = study.read_text().replace("batch: false\n", "")
    study.write_text(f"{settings}batch: true\nbatch_poll_seconds: 0.01\n")
    return run


@pytest.mark.nightly(part="kills")
def test_controls_killed_with_an_open_batch_pay_for_it_once(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line, batch_api = CommandLine(server.openai), server.model.batches
    run = copy_with_batches(dialogues, tmp_path)
    command = ["controls", run, "--no-persona", "--no-retest", "--trust"]
    batch_api.plan = BatchPlan(hold=True)
    # The first look at a batch comes after its id is in the journal.
    command_line.run_until(
        lambda: bool(batch_api.jobs) and batch_api.jobs[0].looks > 0,
        kill,
        *command,
        *("--participants", 2),
    )
    batch_api.plan = BatchPlan()
    # The open batch binds the controls to their settings, as an answer does.
    output = command_line.run(*command, "--participants", 3, expect=2)
    assert "begun with other settings" in " ".join(output.split())
    command_line.run(*command, "--participants", 2)
    assert 0 < batch_api.calls == count_journaled_requests(run / CONTROLS).total()


def test_controls_with_an_unknown_batch_propose_options_of_their_command(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line, batch_api = CommandLine(server.openai), server.model.batches
    run = copy_with_batches(dialogues, tmp_path)
    command = ["controls", run, "--no-persona", "--no-retest", "--participants", 2, "--trust"]
    batch_api.plan = BatchPlan(cancel=frozenset({0}))
    command_line.run(*command, expect=75)
    batch_api.jobs[0].id = "gone"
    output = " ".join(command_line.run(*command, expect=2).split())
    assert "begun with other settings" in output and "does not know batch" in output
    assert "--accept-changes" not in output


def test_possibly_paid_calls_of_a_killed_fork_count_against_the_budget_of_repeats(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line, forks = CommandLine(serve(answers="respondent").openai), tmp_path / "forks"
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, utterances["utterance_id"][-1], "--say", "The costs are unfair to us."]
    command_line.run("fork", *change, "--repeats", 1, "--out", forks, "--trust")
    changed_cell, unchanged_cell = next(pairs_of(read_grid(forks)))
    resume = ["fork", forks, "--resume", "--trust", "--budget", 0.5]
    for max_usd, code, expected_text in (
        (0.6, 75, "is used up"),
        (None, 2, "budget_usd cannot be kept"),
    ):
        shutil.rmtree(cell_folder(forks, unchanged_cell), ignore_errors=True)
        with closing(sqlite3.connect(cell_folder(forks, changed_cell) / JOURNAL)) as db, db:
            db.execute("DROP TABLE IF EXISTS loans")
            db.execute(LOANS)
            # The entry of a process that was killed with a call in flight.
            write_loan(db, OutstandingLoan(0.0, PROCESS, 1, max_usd))
        assert expected_text in " ".join(command_line.run(*resume, expect=code).split())


@pytest.mark.nightly(part="kills")  # a fork is stopped twice and resumed
def test_stopped_repeats_are_resumed_as_a_whole_within_one_budget(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line = CommandLine(server.openai)
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = ["fork", dialogues, utterances["utterance_id"][-1], "--say", "It is unfair to us."]
    repeats = ["--repeats", 2, "--trust"]
    complete_forks, forks = tmp_path / "whole", tmp_path / "forks"
    command_line.run(*change, *repeats, "--out", complete_forks)
    # The first fork fits into the budget. A later one does not.
    first_fork = cell_folder(complete_forks, read_grid(complete_forks).cells[0])
    budget = 1.3 * float(RunFolder(first_fork).manifest["cost_usd"])
    output = command_line.run(*change, *repeats, "--out", forks, "--budget", budget, expect=75)
    assert f"folkmoot fork {forks} --budget MORE --resume" in output
    assert f"All forks share the budget of {budget:g} USD" in output
    # The message after an interrupted resume contains the budget.
    server.model.plan = FaultPlan(hold_after=len(server.model.log) + 3)
    hold_after = len(server.model.log) + 3

    def interrupt(process: Process) -> None:
        process.send_signal(signal.SIGINT)
        server.model.plan = FaultPlan()

    code, output = command_line.run_until(
        lambda: len(server.model.log) >= hold_after,
        interrupt,
        *("fork", forks, "--budget", 1, "--resume", "--trust"),
    )
    assert code == 130
    assert f"folkmoot fork {forks} --budget 1 --resume" in output
    command_line.run("fork", forks, "--budget", 1, "--trust", "--resume")
    for cell in read_grid(complete_forks).cells:
        assert read_table_bytes(cell_folder(forks, cell)) == read_table_bytes(
            cell_folder(complete_forks, cell)
        )
    assert str(forks) in command_line.run("report", forks)


@pytest.mark.nightly(part="kills")
def test_repeats_killed_before_the_first_fork_start_again(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    utterances = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = ["fork", dialogues, utterances["utterance_id"][-1], "--say", "It is unfair to us."]
    command = [*change, "--repeats", 1, "--trust", "--out", tmp_path / "forks"]
    command_line.run(*command)
    # The state of a process that was killed before its first fork.
    shutil.rmtree(tmp_path / "forks" / "cells")
    assert "start new forks" in command_line.run("fork", tmp_path / "forks", "--resume", expect=2)
    command_line.run(*command)
    assert len(read_grid(tmp_path / "forks").finished_cells()) == 2
