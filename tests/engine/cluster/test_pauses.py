"""A run on a cluster that pauses or is stopped can be resumed with any executor."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from shutil import copytree
from sqlite3 import connect
from typing import Any

import pytest
from aiohttp import web

import folkmoot
from folkmoot.errors import EXIT_INTERRUPTED, BudgetReachedError, DriftError, RunPausedError
from tests.engine.cluster.runs import (
    HeadProcess,
    assert_same_results,
    count_journaled,
    run_two_stages,
    write_study_file,
)
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("ray")
BUSY = FaultPlan(rate_limit=0.1, server_error=0.05, retry_after=0.05)


def with_price(url: str) -> dict[str, Any]:
    """Return the settings for a model with a price, at this URL."""
    return {"model": "openai/gpt-4o-mini", "endpoints": {"openai": url}}


def test_call_budget_is_exact_with_a_busy_server(
    cluster: None, local_run: folkmoot.Run, tmp_path: Path
) -> None:
    with ServerThread(BUSY) as server:
        fast_retries = {"api_retry_base_seconds": 0.01, "max_api_retries": 20, "concurrency": 8}
        study, out = write_study_file(tmp_path, server.openai, **fast_retries), tmp_path / "run"
        call_budget = ("budget_calls=30",)
        with pytest.raises(BudgetReachedError):
            run_two_stages(study, out, executor="ray", workers=2, overrides=call_budget)
        paused = folkmoot.load(out)
        assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == 30
        assert len(server.model.log) == 30 and count_journaled(out) == 30
        assert paused.manifest["retries"] > 0
        assert_same_results(run_two_stages(study, out), local_run)


def test_lost_replies_of_a_worker_are_recorded_also_if_the_run_then_pauses(
    cluster: None, key: None, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(drop=1.0)) as server:
        study = write_study_file(
            tmp_path,
            server.openai,
            **with_price(server.openai),
            max_api_retries=0,
            concurrency=1,
        )
        with pytest.raises(RunPausedError):
            run_two_stages(study, tmp_path / "run", executor="ray", workers=1)
        dropped = server.model.counts["drop"]
    manifest = folkmoot.load(tmp_path / "run").manifest
    assert manifest["broken_replies"]["count"] == dropped > 0


def test_reply_above_the_size_limit_is_one_call_on_a_worker(
    cluster: None, key: None, tmp_path: Path
) -> None:
    async def send_long_replies(request: web.Request, handler: Any) -> web.StreamResponse:
        if "Question 2" in await request.text():
            return web.Response(body=b" " * 2_000_000)
        response: web.StreamResponse = await handler(request)
        return response

    with ServerThread(FaultPlan()) as server:
        server.model.between = send_long_replies
        study = write_study_file(
            tmp_path,
            server.openai,
            **with_price(server.openai),
            max_reply_mb=0.5,
        )
        local_manifest = run_two_stages(study, tmp_path / "local").manifest
        # No call is left of this budget.
        settings = {"overrides": (f"budget_calls={local_manifest['calls']}",)}
        manifest = run_two_stages(
            study, tmp_path / "run", executor="ray", workers=1, **settings
        ).manifest
    assert manifest["calls"] == local_manifest["calls"]
    assert manifest["broken_replies"] == local_manifest["broken_replies"]


@pytest.mark.parametrize(
    ("workers", "budget"),
    sample_daily(
        [*product((1, 3), ("budget_calls=300", "budget_usd=0.002"))],
        daily=[],  # the test above has a budget of calls
        part="kills",
    ),
)
def test_exhausted_budget_pauses_a_run_of_many_items(
    workers: int, budget: str, cluster: None, key: None, tmp_path: Path
) -> None:
    """Hundreds of items end with the same error, and each of them reports it to the head."""
    with ServerThread(FaultPlan()) as server:
        study = write_study_file(
            tmp_path,
            server.openai,
            **with_price(server.openai),
            concurrency=8,
            people=300,
        )
        out = tmp_path / "run"
        with pytest.raises(BudgetReachedError, match=budget.partition("=")[0]) as error:
            run_two_stages(study, out, executor="ray", workers=workers, overrides=(budget,))
        call_count = len(server.model.log)
    paused = folkmoot.load(out)
    assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == call_count
    assert len("".join(getattr(error.value, "__notes__", ()))) < 20_000
    if "calls" in budget:
        assert call_count == 300
    else:
        assert 0.0019 < paused.manifest["cost_usd"] <= 0.002


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_signal_waits_for_answers_and_the_run_is_resumed(
    signal_number: signal.Signals, cluster: None, local_run: folkmoot.Run, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(), latency=0.1) as server:
        study, out = write_study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        with HeadProcess(study, out, workers=2) as head:
            wait_until(lambda: len(server.model.log) > 10)
            head.process.send_signal(signal_number)
            output, _ = head.process.communicate()
        assert head.process.returncode == EXIT_INTERRUPTED, output
        assert "--resume" in output and count_journaled(out) == len(server.model.log)
        assert_same_results(run_two_stages(study, out, executor="ray", workers=1), local_run)


@pytest.mark.nightly(part="kills")
def test_changes_are_accepted_as_in_one_process(
    cluster: None, local_run: folkmoot.Run, tmp_path: Path
) -> None:
    options = {"accept_changes": True, "overrides": ("temperature=0.5",)}
    out = tmp_path / "alone" / "run"
    copytree(out, tmp_path / "run")
    with ServerThread(FaultPlan()) as server:
        study = write_study_file(tmp_path / "alone", server.openai, concurrency=8)
        with pytest.raises(DriftError, match="temperature"):
            run_two_stages(
                study, tmp_path / "run", **{**options, "accept_changes": False}, executor="ray"
            )
        assert not server.model.log
        finished_run = run_two_stages(study, tmp_path / "run", **options, executor="ray", workers=2)
        assert_same_results(finished_run, run_two_stages(study, out, **options))
    assert count_superseded(finished_run) == count_superseded(local_run) > 0


def count_superseded(run: folkmoot.Run) -> int:
    with connect(run.path / "journal.sqlite") as journal:
        count: int = journal.execute("SELECT COUNT(*) FROM superseded").fetchone()[0]
    return count
