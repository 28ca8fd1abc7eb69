"""Providers that fail: the run completes, or pauses with all work kept; no one is marked failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.conftest import Serve
from tests.faults.lab import (
    KEY,
    MODEL,
    CommandLine,
    journaled,
    panel,
    pilot,
    resume_line,
    tables,
    texts_of,
)
from tests.servers.faults import BAD_DAY, FaultPlan
from tests.servers.thread import ServerThread


def bad_day(study: Path, out: Path, server: ServerThread) -> None:
    """Run through all faults; fails if one of them never came, or a key got out."""
    printed = CommandLine(server.openai).run("run", study, "--out", out)
    for fault in ("rate_limit", "server_error", "drop", "stall", "malformed"):
        assert server.model.counts[fault] > 0, f"the plan held no {fault}"
    assert KEY.encode() not in texts_of(study.parent) and KEY not in printed


def test_a_bad_day_changes_nothing(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    study = panel(tmp_path, "request_timeout_seconds: 1\n")
    bad_day(study, tmp_path / "run", serve(BAD_DAY))
    assert tables(tmp_path / "run") == undisturbed_panel


@pytest.mark.nightly(part="kills")
def test_a_bad_day_changes_nothing_of_the_pilot(
    tmp_path: Path, serve: Serve, undisturbed_pilot: dict[str, bytes]
) -> None:
    study = pilot(tmp_path, "request_timeout_seconds: 1\n")
    bad_day(study, tmp_path / "run", serve(BAD_DAY, answers="respondent"))
    assert tables(tmp_path / "run") == undisturbed_pilot


def test_an_empty_account_pauses_the_run_and_resume_finishes_it(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(quota_after=70))
    command_line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    printed = command_line.run("run", study, "--out", out, expect=75)
    assert "quota" in printed.lower() and resume_line(printed)
    assert sum(journaled(out).values()) == 70
    # The run waits once, however many calls are waiting: the eight in flight ask twice.
    assert printed.count("waiting once") == 1
    assert server.model.counts["quota"] <= 16
    server.model.plan = FaultPlan()
    command_line.run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel
    assert set(Counter(server.model.log).values()) == {1}


def test_token_counts_that_no_reply_can_have_are_unknown(tmp_path: Path, serve: Serve) -> None:
    study, out = panel(tmp_path), tmp_path / "run"
    study.write_text(study.read_text().replace(MODEL, "openai/gpt-4o-mini"))
    server = serve(FaultPlan(usage="absurd"))
    printed = CommandLine(server.openai).run("run", study, "--out", out)
    assert f"{len(server.model.log)} calls" in printed and "cost unknown" in printed
    assert sum(journaled(out).values()) == len(server.model.log)


def test_a_wrong_key_stops_the_run_at_once(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(key=KEY))
    study, out = panel(tmp_path), tmp_path / "run"
    wrong = "another-key-entirely-1999"
    printed = CommandLine(server.openai, wrong).run("run", study, "--out", out, expect=2)
    assert "key" in printed and wrong not in printed and resume_line(printed)
    assert server.model.counts["received"] <= 8  # those that were in flight, and no more
    assert not journaled(out) and not (out / "tables").exists()
    assert wrong.encode() not in texts_of(tmp_path)
    CommandLine(server.openai).run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel


def test_no_network_pauses_the_run(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(server_error=1.0))
    command_line, out = CommandLine(server.openai), tmp_path / "run"
    study = panel(tmp_path, "max_api_retries: 1\n")
    printed = command_line.run("run", study, "--out", out, expect=75)
    assert "max_api_retries" in printed and resume_line(printed)
    server.model.plan = FaultPlan()
    command_line.run("run", study, "--out", out, "--resume")
    assert tables(out) == undisturbed_panel


def test_a_budget_pauses_the_run_and_a_larger_one_finishes_it(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve()
    command_line, study, out = CommandLine(server.openai), panel(tmp_path), tmp_path / "run"
    printed = command_line.run("run", study, "--out", out, "--set", "budget_calls=60", expect=75)
    assert "budget_calls" in printed and resume_line(printed)
    assert server.model.counts["answered"] == 60
    again = ["run", study, "--out", out, "--resume", "--set"]
    command_line.run(*again, "budget_calls=60", expect=75)  # the same budget is still used up
    assert server.model.counts["answered"] == 60
    command_line.run(*again, "budget_calls=500")
    assert tables(out) == undisturbed_panel
