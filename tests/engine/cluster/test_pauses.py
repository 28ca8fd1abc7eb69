"""A run on a cluster that pauses, or is stopped, goes on anywhere."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from shutil import copytree
from sqlite3 import connect

import pytest

import folkmoot
from folkmoot.errors import EXIT_INTERRUPTED, BudgetReachedError, DriftError
from tests.engine.cluster.runs import Head, journaled, play, study_file, the_same
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("ray")
BUSY = FaultPlan(rate_limit=0.1, server_error=0.05, retry_after=0.05)


def test_a_budget_of_calls_buys_exactly_so_many_from_a_busy_server(
    cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    with ServerThread(BUSY) as server:
        quick = {"api_retry_base_seconds": 0.01, "max_api_retries": 20, "concurrency": 8}
        study, out = study_file(tmp_path, server.openai, **quick), tmp_path / "run"
        most = ("budget_calls=30",)
        with pytest.raises(BudgetReachedError):
            play(study, out, executor="ray", workers=2, overrides=most)
        paused = folkmoot.load(out)
        assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == 30
        assert len(server.model.log) == 30 and journaled(out) == 30
        assert paused.manifest["retries"] > 0
        the_same(play(study, out), alone)


@pytest.mark.parametrize(
    ("workers", "budget"),
    sample_daily(
        [*product((1, 3), ("budget_calls=300", "budget_usd=0.002"))],
        daily=[],  # a budget of calls pauses a run above
        part="kills",
    ),
)
def test_a_budget_that_is_used_up_pauses_a_run_of_many_parts(
    workers: int, budget: str, cluster: None, key: None, tmp_path: Path
) -> None:
    """Hundreds of parts end with one and the same error, which goes to the head for each."""
    with ServerThread(FaultPlan()) as server:
        study = study_file(
            tmp_path,
            server.openai,
            model="openai/gpt-4o-mini",
            endpoints={"openai": server.openai},
            concurrency=8,
            people=300,
        )
        out = tmp_path / "run"
        with pytest.raises(BudgetReachedError, match=budget.partition("=")[0]) as ended:
            play(study, out, executor="ray", workers=workers, overrides=(budget,))
        asked = len(server.model.log)
    paused = folkmoot.load(out)
    assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == asked
    assert len("".join(getattr(ended.value, "__notes__", ()))) < 20_000
    if "calls" in budget:
        assert asked == 300
    else:
        assert 0.0019 < paused.manifest["cost_usd"] <= 0.002


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_answers_arrive_and_the_run_is_resumed(
    told: signal.Signals, cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(), latency=0.1) as server:
        study, out = study_file(tmp_path, server.openai, concurrency=8), tmp_path / "run"
        with Head(study, out, workers=2) as head:
            wait_until(lambda: len(server.model.log) > 10)
            head.process.send_signal(told)
            output, _ = head.process.communicate()
        assert head.process.returncode == EXIT_INTERRUPTED, output
        assert "--resume" in output and journaled(out) == len(server.model.log)
        the_same(play(study, out, executor="ray", workers=1), alone)


@pytest.mark.nightly(part="kills")
def test_changes_are_accepted_as_in_one_process(
    cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    how = {"accept_changes": True, "overrides": ("temperature=0.5",)}
    out = tmp_path / "alone" / "run"
    copytree(out, tmp_path / "run")
    with ServerThread(FaultPlan()) as server:
        study = study_file(tmp_path / "alone", server.openai, concurrency=8)
        with pytest.raises(DriftError, match="temperature"):
            play(study, tmp_path / "run", **{**how, "accept_changes": False}, executor="ray")
        assert not server.model.log
        finished_run = play(study, tmp_path / "run", **how, executor="ray", workers=2)
        the_same(finished_run, play(study, out, **how))
    assert superseded(finished_run) == superseded(alone) > 0


def superseded(run: folkmoot.Run) -> int:
    with connect(run.path / "journal.sqlite") as journal:
        count: int = journal.execute("SELECT COUNT(*) FROM superseded").fetchone()[0]
    return count
