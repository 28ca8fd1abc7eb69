"""Failing providers: the run completes or pauses with all work kept, and fails no participant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.conftest import Serve
from tests.faults.lab import (
    KEY,
    MODEL,
    CommandLine,
    count_journaled_requests,
    has_resume_command,
    read_all_bytes,
    read_table_bytes,
    write_panel_study,
    write_pilot_study,
)
from tests.servers.faults import BAD_DAY, FaultPlan
from tests.servers.thread import ServerThread


def run_with_all_faults(study: Path, out: Path, server: ServerThread) -> None:
    """Run with all kinds of faults. Fail if a fault never occurred or the key was written."""
    printed = CommandLine(server.openai).run("run", study, "--out", out)
    for fault in ("rate_limit", "server_error", "drop", "stall", "malformed"):
        assert server.model.counts[fault] > 0, f"the plan held no {fault}"
    assert KEY.encode() not in read_all_bytes(study.parent) and KEY not in printed


def test_faults_change_no_result(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    study = write_panel_study(tmp_path, "request_timeout_seconds: 1\n")
    run_with_all_faults(study, tmp_path / "run", serve(BAD_DAY))
    assert read_table_bytes(tmp_path / "run") == undisturbed_panel


@pytest.mark.nightly(part="kills")
def test_faults_change_no_result_of_the_pilot(
    tmp_path: Path, serve: Serve, undisturbed_pilot: dict[str, bytes]
) -> None:
    study = write_pilot_study(tmp_path, "request_timeout_seconds: 1\n")
    run_with_all_faults(study, tmp_path / "run", serve(BAD_DAY, answers="respondent"))
    assert read_table_bytes(tmp_path / "run") == undisturbed_pilot


def test_exhausted_quota_pauses_the_run_and_resume_finishes_it(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(quota_after=70))
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    printed = command_line.run("run", study, "--out", out, expect=75)
    assert "quota" in printed.lower() and has_resume_command(printed)
    assert sum(count_journaled_requests(out).values()) == 70
    # The run waits once for all calls. The eight calls in flight are sent twice.
    assert printed.count("waiting once") == 1
    assert server.model.counts["quota"] <= 16
    server.model.plan = FaultPlan()
    command_line.run("run", study, "--out", out, "--resume")
    assert read_table_bytes(out) == undisturbed_panel
    assert set(Counter(server.model.log).values()) == {1}


def test_impossible_token_counts_are_unknown(tmp_path: Path, serve: Serve) -> None:
    study, out = write_panel_study(tmp_path), tmp_path / "run"
    study.write_text(study.read_text().replace(MODEL, "openai/gpt-4o-mini"))
    server = serve(FaultPlan(usage="absurd"))
    printed = CommandLine(server.openai).run("run", study, "--out", out)
    assert f"{len(server.model.log)} calls" in printed and "cost unknown" in printed
    assert sum(count_journaled_requests(out).values()) == len(server.model.log)


def test_wrong_key_stops_the_run_at_once(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(key=KEY))
    study, out = write_panel_study(tmp_path), tmp_path / "run"
    wrong_api_key = "another-key-entirely-1999"
    printed = CommandLine(server.openai, wrong_api_key).run("run", study, "--out", out, expect=2)
    assert "key" in printed and wrong_api_key not in printed and has_resume_command(printed)
    assert server.model.counts["received"] <= 8  # only the calls that were in flight
    assert not count_journaled_requests(out) and not (out / "tables").exists()
    assert wrong_api_key.encode() not in read_all_bytes(tmp_path)
    CommandLine(server.openai).run("run", study, "--out", out, "--resume")
    assert read_table_bytes(out) == undisturbed_panel


def test_missing_network_pauses_the_run(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve(FaultPlan(server_error=1.0))
    command_line, out = CommandLine(server.openai), tmp_path / "run"
    study = write_panel_study(tmp_path, "max_api_retries: 1\n")
    printed = command_line.run("run", study, "--out", out, expect=75)
    assert "max_api_retries" in printed and has_resume_command(printed)
    server.model.plan = FaultPlan()
    command_line.run("run", study, "--out", out, "--resume")
    assert read_table_bytes(out) == undisturbed_panel


def test_budget_pauses_the_run_and_a_larger_budget_finishes_it(
    tmp_path: Path, serve: Serve, undisturbed_panel: dict[str, bytes]
) -> None:
    server = serve()
    command_line, study, out = (
        CommandLine(server.openai),
        write_panel_study(tmp_path),
        tmp_path / "run",
    )
    printed = command_line.run("run", study, "--out", out, "--set", "budget_calls=60", expect=75)
    assert "budget_calls" in printed and has_resume_command(printed)
    assert server.model.counts["answered"] == 60
    resume_command = ["run", study, "--out", out, "--resume", "--set"]
    # The same budget is still used up.
    command_line.run(*resume_command, "budget_calls=60", expect=75)
    assert server.model.counts["answered"] == 60
    command_line.run(*resume_command, "budget_calls=500")
    assert read_table_bytes(out) == undisturbed_panel
