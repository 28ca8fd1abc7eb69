"""Killed processes: the vendor never bills more than the paid plus the possibly paid sum.

The tests run over HTTP. The server adds up the billed calls, also of clients that are gone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.limits.lender import MAX_CALLS_AHEAD, MIN_CALLS_AHEAD, SHARE_AHEAD
from folkmoot.engine.session.folder_access import open_run
from folkmoot.models.catalog import resolve_model
from folkmoot.models.prices import ModelPrice, find_price
from folkmoot.models.request import Usage
from folkmoot.storage.run_folder import MANIFEST, RunFolder
from folkmoot.view.run_list import read_run_status
from tests.faults.lab import CommandLine, write_panel_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

MODEL = "openai/gpt-4o"
CALLS = 192  # calls of one panel run
CONCURRENCY = 8
PRICE = 4e-4  # USD that are reserved for a call, at least


class Vendor:
    """The server, its billed calls and USD, and the command line that asks it."""

    def __init__(self, server: ServerThread) -> None:
        self.server = server
        self.calls = 0
        self.usd = 0.0
        rate = find_price(resolve_model(MODEL))
        assert rate is not None
        self._rate: ModelPrice = rate
        server.model.between = self._bill
        self.line = CommandLine(server.openai)

    async def _bill(self, request: Any, handler: Any) -> Any:
        answer = await handler(request)
        usage = json.loads(answer.body)["usage"]
        tokens = Usage(usage["prompt_tokens"], usage["completion_tokens"], 0)
        self.usd += self._rate.cost(tokens) or 0.0
        self.calls += 1
        return answer

    def kill_at(self, calls: int, *command: object) -> int | None:
        """Kill the run after `calls` billed calls. Return the exit code if it ended before."""
        process = self.line.start(*command)
        wait_until(lambda: process.poll() is not None or self.calls >= calls)
        exit_code = process.poll()
        process.kill()
        process.communicate()
        self.server.wait_until_quiet()
        return exit_code


@dataclass
class Money:
    """The paid and the possibly paid sums of a journal, in calls and USD."""

    paid: tuple[int, float]
    possible: tuple[int, float]

    @classmethod
    def read(cls, run: Path) -> Money:
        with JournalReader(run / "journal.sqlite") as journal:
            spent = journal.spent()
            return cls((spent.calls, spent.usd), tuple(spent.possible))

    @property
    def calls(self) -> int:
        return self.paid[0] + self.possible[0]

    @property
    def usd(self) -> float:
        return self.paid[1] + self.possible[1]


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with ServerThread(FaultPlan(), latency=0.02) as server:
        yield Vendor(server)


def build_run_command(folder: Path, *more: object) -> list[object]:
    study = folder / "panel.yaml"
    if not study.exists():
        write_panel_study(folder, "max_tokens: 40\n")
    resume = ["--resume"] if (folder / "run").exists() else []
    command = ["run", study, "--out", folder / "run", "--trust", "--no-preflight"]
    return [*command, "--model", MODEL, *resume, *more]


BUDGETS: tuple[tuple[object, ...], ...] = ((), ("--budget", 1), ("--set", "budget_calls=400"))
MOMENTS = (1, 13, 90)  # billed calls when the process is killed


# Daily, the test below kills runs with a budget of calls.
@pytest.mark.parametrize(
    ("moment", "budget"),
    sample_daily(
        product(MOMENTS, BUDGETS), daily=[(1, BUDGETS[0]), (90, BUDGETS[1])], part="kills"
    ),
)
def test_billed_calls_are_paid_or_possibly_paid(
    moment: int, budget: tuple[object, ...], vendor: Vendor, tmp_path: Path
) -> None:
    assert vendor.kill_at(moment, *build_run_command(tmp_path, *budget)) is None
    money = Money.read(tmp_path / "run")
    assert money.possible[0] > 0
    assert money.paid[0] <= vendor.calls <= money.calls
    assert money.paid[1] <= vendor.usd <= money.usd + 1e-9
    # Apart from sent calls, only advance loans are outstanding.
    in_calls = {"--budget": SHARE_AHEAD / PRICE, "--set": SHARE_AHEAD * 400}
    ahead = max(MIN_CALLS_AHEAD, in_calls[str(budget[0])]) if budget else MAX_CALLS_AHEAD
    assert money.calls - vendor.calls <= CONCURRENCY + ahead


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("calls_between", [5, 15, 25])
@pytest.mark.parametrize("limit", [("--budget", 0.03), ("--set", "budget_calls=60")])
def test_repeated_kills_never_exceed_a_budget(
    limit: tuple[str, object], calls_between: int, vendor: Vendor, tmp_path: Path
) -> None:
    exit_code = None
    for _ in range(12):
        exit_code = vendor.kill_at(
            vendor.calls + calls_between, *build_run_command(tmp_path, *limit)
        )
        if exit_code is not None:
            break
    assert exit_code == 75  # the run is paused, because the budget is used up
    money = Money.read(tmp_path / "run")
    if limit[0] == "--budget":
        assert vendor.usd <= 0.03 and money.usd <= 0.03 + 1e-9
    else:
        assert vendor.calls <= 60 and money.calls <= 60
    before = vendor.calls
    output = vendor.line.run(*build_run_command(tmp_path, *limit), expect=75)
    assert vendor.calls == before
    assert "possibly" in output and "killed" in output


def test_both_sums_are_reported_and_stay_after_the_run_is_finished(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor.kill_at(60, *build_run_command(tmp_path))
    possible_before = Money.read(tmp_path / "run").possible
    output = vendor.line.run(*build_run_command(tmp_path))
    money = Money.read(tmp_path / "run")
    assert (
        money.possible == possible_before and money.paid[0] == CALLS <= vendor.calls <= money.calls
    )
    run = RunFolder(tmp_path / "run")
    manifest_entry = run.manifest["possibly_paid"]
    assert (manifest_entry["calls"], manifest_entry["processes"], manifest_entry["workers"]) == (
        possible_before[0],
        1,
        0,
    )
    assert manifest_entry["max_usd"] == pytest.approx(possible_before[1], abs=1e-6)
    assert run.manifest["processes"] == 2
    assert run.manifest["cost_usd"] == pytest.approx(money.paid[1], abs=1e-6)
    assert "possibly paid up to $" in " ".join(output.split())
    verified = vendor.line.run("verify", tmp_path / "run")
    assert "Consistent" in verified and "possibly paid up to $" in verified
    (tmp_path / "outputs").mkdir()
    (tmp_path / "run").rename(tmp_path / "outputs" / "panel")
    monkeypatch.chdir(tmp_path)
    checked = vendor.line.run("check", "panel.yaml", "--trust")
    assert f"Paid ${money.paid[1]:.2f}" in checked and "possibly paid up to $" in checked


def test_run_that_ends_normally_has_no_outstanding_loans(vendor: Vendor, tmp_path: Path) -> None:
    vendor.line.run(*build_run_command(tmp_path))
    assert Money.read(tmp_path / "run").possible == (0, 0.0)
    assert "possibly_paid" not in RunFolder(tmp_path / "run").manifest
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        assert journal.read_outstanding_loans() == []


def test_replaced_replies_count_in_every_sum(vendor: Vendor, tmp_path: Path) -> None:
    vendor.line.run(*build_run_command(tmp_path))
    code = tmp_path / "panel.py"
    code.write_text(code.read_text().replace('"Question {turn}?"', '"Question {max(2, turn)}?"'))
    output = vendor.line.run(*build_run_command(tmp_path, "--accept-changes"))
    assert vendor.calls > CALLS
    run = RunFolder(tmp_path / "run")
    assert run.manifest["calls"] == vendor.calls
    assert run.manifest["cost_usd"] == pytest.approx(vendor.usd, abs=1e-6)
    (model,) = run.manifest["models"]
    assert (model["calls"], model["cost_usd"]) == (vendor.calls, run.manifest["cost_usd"])
    assert f"{vendor.calls} calls" in output
    assert "Consistent" in vendor.line.run("verify", tmp_path / "run")
    # The answers are those of the current run.
    assert run.read_table("answers").height == CALLS


def test_paused_resume_keeps_the_cost_of_the_earlier_process(
    vendor: Vendor, tmp_path: Path
) -> None:
    study = tmp_path / "panel.yaml"
    write_panel_study(tmp_path, "max_tokens: 40\n")
    code = tmp_path / "panel.py"
    code.write_text(code.read_text().replace(", talk)", ", talk, block=lambda n: n)"))
    command = [
        "run",
        study,
        "--out",
        tmp_path / "run",
        "--trust",
        "--no-preflight",
        "--model",
        MODEL,
    ]
    vendor.server.model.plan = FaultPlan(quota_after=100)
    vendor.line.run(*command, expect=75)
    vendor.line.run(*command, "--resume", "--set", "budget_calls=50", expect=75)
    assert vendor.calls >= 100
    run, paid = RunFolder(tmp_path / "run"), Money.read(tmp_path / "run").paid
    assert (run.manifest["calls"], run.manifest["processes"]) == (100, 2)
    assert run.manifest["cost_usd"] == pytest.approx(paid[1], abs=1e-6) and paid[1] > 0
    assert run.read_table("said").height == paid[0] == 100


def read_printed_money(text: str) -> tuple[int, int]:
    """Return the paid and the possibly paid calls that a command prints."""
    paid, possible = (
        re.search(r"Paid \$\S+ \((\d+) calls?\)", text),
        re.search(r"possibly paid .*?\(at most (\d+) calls? of processes", text),
    )
    return int(paid[1]) if paid else 0, int(possible[1]) if possible else 0


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("ending", ["failed", "paused"])
def test_run_killed_during_resume_is_unfinished_with_the_sums_of_its_journal(
    ending: str, vendor: Vendor, tmp_path: Path
) -> None:
    if ending == "failed":
        vendor.server.model.plan = FaultPlan(key="another")
        command = build_run_command(tmp_path)
        vendor.server.model.between = staticmethod(lambda request, handler: handler(request))
        vendor.line.run(*command, expect=2)
        vendor.server.model.between = vendor._bill
    else:
        vendor.line.run(*build_run_command(tmp_path, "--set", "budget_calls=20"), expect=75)
    assert RunFolder(tmp_path / "run").manifest["outcome"] == ending
    vendor.server.model.plan = FaultPlan()
    assert vendor.kill_at(vendor.calls + 40, *build_run_command(tmp_path)) is None
    killed, money = open_run(tmp_path / "run"), Money.read(tmp_path / "run")
    assert killed.state == "unfinished"
    assert (killed.manifest["calls"], killed.manifest["possibly_paid"]["calls"]) == (
        money.paid[0],
        money.possible[0],
    )
    assert killed.manifest["cost_usd"] == pytest.approx(money.paid[1], abs=1e-6)
    status = read_run_status(tmp_path / "run", "run")
    assert (status.state, status.calls) == ("unfinished", money.paid[0])
    output = vendor.line.run("report", tmp_path / "run")
    assert "the run is unfinished" in output
    report = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert f"The run took {money.paid[0]} calls" in report
    # A refused resume changes nothing, including the reported sums.
    vendor.server.model.plan = FaultPlan(key="another")
    vendor.server.model.between = staticmethod(lambda request, handler: handler(request))
    vendor.line.run(*build_run_command(tmp_path), expect=2)
    assert open_run(tmp_path / "run").state == "unfinished"


def test_paused_run_of_an_early_version_without_a_digest_is_paused(
    vendor: Vendor, tmp_path: Path
) -> None:
    vendor.line.run(*build_run_command(tmp_path, "--set", "budget_calls=20"), expect=75)
    manifest = dict(open_run(tmp_path / "run").manifest)
    assert manifest.pop("record_digest")
    (tmp_path / "run" / MANIFEST).write_text(json.dumps(manifest))
    assert open_run(tmp_path / "run").state == "paused"


@pytest.mark.nightly(part="kills")
def test_cost_of_a_killed_grid_is_reported(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = build_run_command(tmp_path, "--repeats", 2)
    assert vendor.kill_at(30, *command) is None
    cells = [Money.read(cell) for cell in sorted((tmp_path / "run" / "cells").iterdir())]
    expected = sum(cell.paid[0] for cell in cells), sum(cell.possible[0] for cell in cells)
    assert expected[0] <= vendor.calls <= sum(expected)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "run").rename(tmp_path / "outputs" / "panel")
    monkeypatch.chdir(tmp_path)
    assert read_printed_money(vendor.line.run("check", "panel.yaml", "--trust")) == expected
    assert read_printed_money(vendor.line.run("show", "panel")) == expected
    assert read_printed_money(vendor.line.run("verify", "panel", expect=4)) == expected
    # No cell has finished, so there is nothing to pool. The message names what can be reported.
    output = " ".join(vendor.line.run("report", "panel", expect=2).split())
    cell = Path("outputs", "panel", "cells", "r1")
    assert f"folkmoot report {cell}" in output
    assert "PARTIAL" in vendor.line.run("report", cell)
    output = vendor.line.run("run", "panel.yaml", "--trust", "--no-preflight", "--resume")
    assert read_printed_money(output[output.rindex("cells/ ") :])[1] == expected[1]


@pytest.mark.nightly(part="kills")
def test_cells_of_a_killed_grid_divide_the_calls_that_are_reserved_ahead(
    vendor: Vendor, tmp_path: Path
) -> None:
    budget_calls = 4 * CALLS
    command = build_run_command(tmp_path, "--repeats", 4, "--set", f"budget_calls={budget_calls}")
    # By then all cells have asked.
    assert vendor.kill_at(150, *command) is None
    cells = [Money.read(cell) for cell in (tmp_path / "run" / "cells").iterdir()]
    assert len(cells) == 4 and all(cell.paid[0] for cell in cells)
    ahead = max(MIN_CALLS_AHEAD, SHARE_AHEAD * budget_calls)
    assert sum(cell.calls for cell in cells) - vendor.calls <= CONCURRENCY + ahead


@pytest.mark.nightly(part="kills")
def test_report_covers_live_and_interrupted_runs(vendor: Vendor, tmp_path: Path) -> None:
    report = tmp_path / "run" / "report.html"

    def report_and_interrupt(process: subprocess.Popen[str]) -> None:
        vendor.line.run("report", tmp_path / "run")
        process.send_signal(signal.SIGINT)

    vendor.server.model.latency = 0.2
    code, _ = vendor.line.run_until(
        lambda: vendor.calls >= 20, report_and_interrupt, *build_run_command(tmp_path)
    )
    assert code == 130
    report_text = report.read_text("utf-8")
    assert "The run is still going on" in report_text
    assert "The run took an unknown number of calls" in report_text
    # A live run has made calls, although their count is unknown.
    assert "Of 0 answers" not in report_text and "The run recorded no answer" not in report_text
    interrupted = open_run(tmp_path / "run")
    count = interrupted.read_table("answers").height
    assert count > 0 and interrupted.manifest["answers"]["count"] == count
    vendor.line.run("report", tmp_path / "run")
    report_text = report.read_text("utf-8")
    assert f"Of {count} answers" in report_text and "The run recorded no answer" not in report_text
