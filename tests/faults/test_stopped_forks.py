"""Forks that are killed or run out of budget: nothing is lost, nothing is asked twice."""

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
from tests.faults.lab import MODEL, CommandLine, journaled, pilot, tables
from tests.faults.test_kills import Process, kill
from tests.servers.batches import BatchPlan
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

# A model with a price, so that a budget in US dollars can run out.
PRICED = "openai/gpt-4o-mini"


def kill_and_finish(
    server: ServerThread, line: CommandLine, folder: Path, calls: int, *args: object
) -> Counter[str]:
    """Run a command, killed after so many calls. Then run it again to its end.

    The second time only what the journal of the folder does not hold may be asked. Returns what it
    holds more in the end without having been asked: the replies that were taken over.
    """
    model, start = server.model, len(server.model.log)
    line.run_until(lambda: len(model.log) >= start + calls, kill, *args)
    # What was on its way when the process was killed is still answered.
    server.wait_until_quiet()
    known, before = journaled(folder), len(model.log)
    assert known, "the kill came before the first reply was stored"
    again = ["fork", folder, "--resume"] if args[0] == "fork" else args
    line.run(*again)
    asked, added = Counter(model.log[before:]), journaled(folder) - known
    assert asked <= added
    return added - asked


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with interviews and dialogues."""
    folder = tmp_path_factory.mktemp("dialogues")
    path = pilot(folder, "conditions: [simple_passive, acp]\n")
    path.write_text(path.read_text().replace(MODEL, PRICED))
    with ServerThread(FaultPlan(), answers="respondent") as server:
        CommandLine(server.openai).run("run", path, "--out", folder / "run")
    return folder / "run"


def test_a_kill_inside_a_fork_of_a_control_loses_nothing(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    flags = ["--no-negative", "--no-retest", "--no-persona", "--participants", "2", "--trust"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        shutil.copytree(dialogues, folder)
    command_line.run("controls", whole, *flags)
    # The forks of two dialogues take most of these calls, one after the other in each.
    assert not kill_and_finish(
        server, command_line, killed / CONTROLS, 12, "controls", killed, *flags
    )
    assert tables(killed / CONTROLS) == tables(whole / CONTROLS)
    command_line.run("verify", killed)


# Daily, a kill inside a fork.
@pytest.mark.nightly(part="kills")
def test_a_kill_inside_a_session_that_a_control_runs_again_loses_nothing(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    flags = ["--no-negative", "--no-retest", "--no-persona", "--participants", "1", "--trust"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    path = small_study("workbook", tmp_path)
    command_line.run("run", path, "--model", MODEL, "--out", whole, "--trust")
    shutil.copytree(whole, killed)
    command_line.run("controls", whole, *flags)
    # All but the first two calls belong to games.
    assert not kill_and_finish(
        server, command_line, killed / CONTROLS, 20, "controls", killed, *flags
    )
    assert tables(killed / CONTROLS) == tables(whole / CONTROLS)
    command_line.run("verify", killed)


# Daily, a kill inside a fork of a control.
@pytest.mark.nightly(part="kills")
def test_a_killed_fork_of_a_run_goes_on(dialogues: Path, tmp_path: Path, serve: Serve) -> None:
    server = serve(latency=0.02, answers="respondent")
    command_line = CommandLine(server.openai)
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, spoken["utterance_id"][0], "--say", "The costs are unfair to us."]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command_line.run("fork", *change, "--out", whole, "--trust")
    args = ["fork", *change, "--out", killed, "--trust"]
    assert kill_and_finish(server, command_line, killed, 5, *args) <= journaled(dialogues)
    assert tables(killed) == tables(whole)
    command_line.run("verify", killed)


def stored(folder: Path) -> Mapping[str, str]:
    with JournalReader(folder / JOURNAL) as journal:
        return {entry.address: repr(entry) for entry in journal.read_entries()}


# What the addresses of a fork contain: of a conversation, and of a session that is run again.
FORKS = {"focus_group": "final-", "workbook": "decision-no_persona/sessions/"}


@pytest.mark.parametrize("study", sample_daily(sorted(FORKS), ["workbook"], part="kills"))
def test_a_budget_that_ends_inside_a_fork_of_a_control(study: str, tmp_path: Path) -> None:
    path = small_study(study, tmp_path)
    base = folkmoot.run(path, out=tmp_path / "run", model="synthetic").path
    settings = {"negative": False, "retest": False, "no_persona": True, "participants": 2}
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    for folder in (whole, paused):
        shutil.copytree(base, folder)
    run_controls(RunFolder(whole), settings, RunOptions())
    total = len(stored(whole / CONTROLS))
    for calls in (total // 3, 2 * total // 3):
        with pytest.raises(BudgetReachedError):
            run_controls(RunFolder(paused), settings, RunOptions(), budget_calls=calls)
        part = stored(paused / CONTROLS)
        # Each decision after a discussion is the last of more than eleven calls, one after another.
        assert 4 < len(part) <= calls and any(FORKS[study] in address for address in part)
    run_controls(RunFolder(paused), settings, RunOptions())
    done = stored(paused / CONTROLS)
    assert {address: done[address] for address in part} == part
    assert done.keys() == stored(whole / CONTROLS).keys()
    assert tables(paused / CONTROLS) == tables(whole / CONTROLS)
    assert not folkmoot.load(paused).verify().differences


def test_the_command_to_go_on_with_a_fork_is_printed(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, spoken["utterance_id"][0], "--say", "The costs are unfair to us."]
    paused = tmp_path / "paused"
    output = command_line.run(
        "fork", *change, "--out", paused, "--trust", "--budget", 1e-6, expect=75
    )
    assert f"folkmoot fork {paused} --budget MORE --resume" in output
    command_line.run("fork", paused, "--budget", 1, "--resume", "--trust")
    assert RunFolder(paused).manifest["outcome"] == "done"


@pytest.mark.nightly(part="kills")
def test_a_budget_that_ends_inside_a_fork_of_a_run(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, spoken["utterance_id"][0], "--say", "The costs are unfair to us."]
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    command_line.run("fork", *change, "--out", whole, "--trust")
    cost = float(RunFolder(whole).manifest["cost_usd"])
    assert cost > 0
    budget = ["--budget", f"{cost / 2:.6f}"]
    command_line.run("fork", *change, "--out", paused, "--trust", *budget, expect=75)
    part = stored(paused)
    command_line.run("fork", paused, "--resume", "--trust")
    done = stored(paused)
    assert 0 < len(part) < len(done) and {address: done[address] for address in part} == part
    assert done.keys() == stored(whole).keys()
    assert tables(paused) == tables(whole)


def with_batches(dialogues: Path, folder: Path) -> Path:
    """A copy of the run, of which controls are asked in batches, as if its study had been."""
    run = Path(shutil.copytree(dialogues, folder / "run"))
    study = run / "study.yaml"
    settings = study.read_text().replace("batch: false\n", "")
    study.write_text(f"{settings}batch: true\nbatch_poll_seconds: 0.01\n")
    return run


@pytest.mark.nightly(part="kills")
def test_controls_killed_while_a_batch_is_open_pay_for_it_once(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line, batch_api = CommandLine(server.openai), server.model.batches
    run = with_batches(dialogues, tmp_path)
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
    assert 0 < batch_api.calls == journaled(run / CONTROLS).total()


def test_a_batch_of_controls_that_the_vendor_no_longer_knows_proposes_what_their_command_can_do(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line, batch_api = CommandLine(server.openai), server.model.batches
    run = with_batches(dialogues, tmp_path)
    command = ["controls", run, "--no-persona", "--no-retest", "--participants", 2, "--trust"]
    batch_api.plan = BatchPlan(cancel=frozenset({0}))
    command_line.run(*command, expect=75)
    batch_api.jobs[0].id = "gone"
    output = " ".join(command_line.run(*command, expect=2).split())
    assert "begun with other settings" in output and "does not know batch" in output
    assert "--accept-changes" not in output


def test_possibly_paid_calls_of_a_killed_fork_count_against_the_budget_of_its_repeats(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line, forks = CommandLine(serve(answers="respondent").openai), tmp_path / "forks"
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = [dialogues, spoken["utterance_id"][-1], "--say", "The costs are unfair to us."]
    command_line.run("fork", *change, "--repeats", 1, "--out", forks, "--trust")
    changed, as_it_was = next(pairs_of(read_grid(forks)))
    resume = ["fork", forks, "--resume", "--trust", "--budget", 0.5]
    for max_usd, code, said in ((0.6, 75, "is used up"), (None, 2, "budget_usd cannot be kept")):
        shutil.rmtree(cell_folder(forks, as_it_was), ignore_errors=True)
        with closing(sqlite3.connect(cell_folder(forks, changed) / JOURNAL)) as db, db:
            db.execute("DROP TABLE IF EXISTS loans")
            db.execute(LOANS)
            # What a process leaves that is killed with a call in flight.
            write_loan(db, OutstandingLoan(0.0, PROCESS, 1, max_usd))
        assert said in " ".join(command_line.run(*resume, expect=code).split())


@pytest.mark.nightly(part="kills")  # a fork stopped twice, and resumed
def test_repeats_that_stop_are_resumed_as_a_whole_within_one_budget(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(answers="respondent")
    command_line = CommandLine(server.openai)
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = ["fork", dialogues, spoken["utterance_id"][-1], "--say", "It is unfair to us."]
    repeats = ["--repeats", 2, "--trust"]
    whole, forks = tmp_path / "whole", tmp_path / "forks"
    command_line.run(*change, *repeats, "--out", whole)
    # The first fork fits into the budget. A later one does not.
    first = cell_folder(whole, read_grid(whole).cells[0])
    budget = 1.3 * float(RunFolder(first).manifest["cost_usd"])
    output = command_line.run(*change, *repeats, "--out", forks, "--budget", budget, expect=75)
    assert f"folkmoot fork {forks} --budget MORE --resume" in output
    assert f"All forks share the budget of {budget:g} USD" in output
    # Whoever interrupts the resume is told to keep the budget.
    server.model.plan = FaultPlan(hold_after=len(server.model.log) + 3)
    held = len(server.model.log) + 3

    def interrupt(process: Process) -> None:
        process.send_signal(signal.SIGINT)
        server.model.plan = FaultPlan()

    code, output = command_line.run_until(
        lambda: len(server.model.log) >= held,
        interrupt,
        *("fork", forks, "--budget", 1, "--resume", "--trust"),
    )
    assert code == 130
    assert f"folkmoot fork {forks} --budget 1 --resume" in output
    command_line.run("fork", forks, "--budget", 1, "--trust", "--resume")
    for cell in read_grid(whole).cells:
        assert tables(cell_folder(forks, cell)) == tables(cell_folder(whole, cell))
    assert str(forks) in command_line.run("report", forks)


def test_repeats_that_were_killed_before_the_first_fork_start_again(
    dialogues: Path, tmp_path: Path, serve: Serve
) -> None:
    command_line = CommandLine(serve(answers="respondent").openai)
    spoken = RunFolder(dialogues).read_table("utterances").filter(speaker_role="participant")
    change = ["fork", dialogues, spoken["utterance_id"][-1], "--say", "It is unfair to us."]
    command = [*change, "--repeats", 1, "--trust", "--out", tmp_path / "forks"]
    command_line.run(*command)
    # As a process leaves the folder that is killed before its first fork.
    shutil.rmtree(tmp_path / "forks" / "cells")
    assert "start new forks" in command_line.run("fork", tmp_path / "forks", "--resume", expect=2)
    command_line.run(*command)
    assert len(read_grid(tmp_path / "forks").finished_cells()) == 2
