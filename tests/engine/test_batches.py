"""Batches: the same results at half the price, and no call is paid for twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from aiohttp import web
from pydantic import BaseModel
from typer.testing import CliRunner

from benchmarks.measure import alone
from folkmoot import Json, Run, Session, Speaker, Study, StudyConfig, fork, load, run
from folkmoot.cli.app import app
from folkmoot.cli.study_files import check_command
from folkmoot.engine.calls import batch_queue as outbox_module
from folkmoot.engine.calls import gateway as gateway_module
from folkmoot.engine.calls.progress import Event, format_event
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.session.folder_access import has_calls
from folkmoot.engine.session.run_totals import money_in, spent_below
from folkmoot.errors import (
    BudgetReachedError,
    FatalModelError,
    InputError,
    QuotaExhaustedError,
    RunExistsError,
    RunPausedError,
)
from folkmoot.models.wire.batches import AnthropicBatchApi
from folkmoot.storage.run_folder import RunFolder
from tests.default_signals import add_default_signals
from tests.engine.batch_study import PEOPLE, STUDY
from tests.servers import batches as batches_module
from tests.servers.batches import BatchPlan, Job
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until

MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-haiku-4-5"}
MODELS["google"] = "google/gemini-2.5-flash"
# The nightly tests kill the run with every vendor, daily tests with one.
VENDORS_TO_KILL = [
    pytest.param(vendor, marks=() if vendor == "openai" else pytest.mark.nightly(part="kills"))
    for vendor in MODELS
]
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("keys")


def build_settings(server: ServerThread, vendor: str = "openai", **more: Any) -> dict[str, Any]:
    url = server.openai if vendor == "openai" else server.url
    fast_settings = {
        "batch_poll_seconds": 0.001,
        "api_retry_base_seconds": 0.001,
        "max_tokens": 100,
    }
    run_settings = {"model": MODELS[vendor], "endpoints": {vendor: url}}
    return {"batch": True, **run_settings, **fast_settings, **more}


def resume_run(values: dict[str, Any], out: Path, **more: Any) -> Run:
    return run(STUDY, values, out=out, **more)


def read_journal_entries(finished_run: Run) -> list[tuple[Any, ...]]:
    with sqlite3.connect(finished_run.path / "journal.sqlite") as db:
        query = "SELECT address, reply, finish, input_tokens, output_tokens FROM entries ORDER BY 1"
        return db.execute(query).fetchall()


@pytest.mark.parametrize("vendor", MODELS)
def test_batch_run_gives_the_same_results_at_half_the_price(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, build_settings(server, vendor, batch=False), out=tmp_path / "direct")
        batched = run(STUDY, build_settings(server, vendor), out=tmp_path / "batched")
        jobs = server.model.batches.jobs
        assert [len(job.items) for job in jobs] == [PEOPLE, PEOPLE]  # a wave for each question
    assert read_journal_entries(batched) == read_journal_entries(direct)
    assert batched.manifest["cost_usd"] == pytest.approx(direct.manifest["cost_usd"] / 2, rel=1e-3)
    assert batched.manifest["journal_digest"] == direct.manifest["journal_digest"]
    assert batched.manifest["handed_in_by_batches"] == 2 * PEOPLE
    assert "handed_in_by_batches" not in direct.manifest
    assert verify_run(batched.folder, STUDY).differences == []


def start_process(values: dict[str, Any], out: Path) -> subprocess.Popen[str]:
    """Start the run in a new process that a test can kill."""
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from folkmoot import run\n"
        "from tests.engine.batch_study import STUDY\n"
        "out = Path(sys.argv[2])\n"
        "run(STUDY, json.loads(sys.argv[1]), out=out)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(values), str(out)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("vendor", VENDORS_TO_KILL)
def test_killed_run_finds_its_batches_on_resume_with_and_without_batch_mode(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor), server.model.batches
        batch_api.plan = BatchPlan(hold=True)
        killed = start_process(values, tmp_path / "run")
        # The batch id is in the journal.
        wait_until(lambda: bool(batch_api.jobs) and batch_api.jobs[0].looks > 1)
        killed.kill()
        killed.wait()
        batch_api.plan = BatchPlan()
        with pytest.raises(RunExistsError):  # no answer yet, but a batch that will be billed
            run(STUDY, values, out=tmp_path / "run", if_exists="error")
        shutil.copytree(tmp_path / "run", tmp_path / "direct")
        # A resume without batches still fetches the batches that were submitted.
        direct = resume_run({**values, "batch": False}, tmp_path / "direct")
        assert batch_api.calls == PEOPLE
        assert server.model.counts["answered"] == 2 * PEOPLE
        finished_run = resume_run(values, tmp_path / "run")
        assert batch_api.calls == 2 * PEOPLE
        assert server.model.counts["answered"] == 3 * PEOPLE
        fresh = run(STUDY, values, out=tmp_path / "fresh")
    assert (
        read_journal_entries(finished_run)
        == read_journal_entries(fresh)
        == read_journal_entries(direct)
    )


def test_failed_fork_keeps_its_open_batch(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        batch_api = server.model.batches

        async def protocol(session: Session) -> None:
            reply = await session.ask(Speaker("a"), "What matters?")

            async def ask_on(scope: Any) -> None:
                await scope.ask(Speaker("a"), f"You said {reply!r}. Why?")

            async def check(_scope: Any) -> None:
                if reply == "Nothing.":
                    # The first batch belongs to the source run, the second asks its second wave.
                    while len(batch_api.jobs) < 3 or not batch_api.jobs[-1].looks:
                        await asyncio.sleep(0.01)
                    raise InputError("nothing can be found out about nothing")

            await session.map({"more": ask_on, "check": check})

        study = Study(name="two", title="Two", config=StudyConfig, protocol=protocol)
        base = run(study, build_settings(server), out=tmp_path / "run")
        assert len(batch_api.jobs) == 2
        batch_api.plan = BatchPlan(hold=True)
        out = tmp_path / "fork"
        with pytest.raises(InputError, match="about nothing"):
            fork(base, "ask0", say="Nothing.", out=out, study=study, trust=True)
        with JournalReader(out / "journal.sqlite") as journal:
            assert [batch.calls for batch in journal.read_batches().values()] == [1]


@pytest.mark.parametrize("vendor", VENDORS_TO_KILL)
def test_run_killed_during_submission_finds_the_batch_by_its_name(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor), server.model.batches
        for _ in range(3):  # batches of others, so that the list has several pages
            batch_api.jobs.append(
                Job(f"other{len(batch_api.jobs)}", len(batch_api.jobs), [], "another")
            )
        batch_api.plan = BatchPlan(stall=True, hold=True)
        killed = start_process(values, tmp_path / "run")
        wait_until(lambda: len(batch_api.jobs) > 3)
        killed.kill()
        killed.wait()
        batch_api.plan = BatchPlan()
        resume_run(values, tmp_path / "run")
        assert batch_api.calls == 2 * PEOPLE == server.model.counts["answered"]


@pytest.mark.parametrize("vendor", MODELS)
def test_batch_is_not_submitted_twice_if_the_response_was_lost(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(swallow=frozenset({0}))
        run(STUDY, build_settings(server, vendor), out=tmp_path / "run")
        assert server.model.batches.calls == 2 * PEOPLE == server.model.counts["answered"]


@pytest.mark.parametrize("vendor", MODELS)
def test_batch_with_a_lost_receipt_is_found_on_a_later_page(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        batch_api = server.model.batches
        add_job = batch_api._add_job

        def add_newer_jobs(*job_parts: Any) -> Job:
            job = add_job(*job_parts)
            if job.number == 0:
                batch_api.jobs += [Job(f"{job.id}-newer{n}", -1, []) for n in range(3)]
            return job

        batch_api._add_job = add_newer_jobs  # type: ignore[method-assign]
        batch_api.plan = BatchPlan(swallow=frozenset({0}))
        run(STUDY, build_settings(server, vendor), out=tmp_path / "run")
        assert batch_api.calls == 2 * PEOPLE == server.model.counts["answered"]


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_a_server_that_repeats_the_first_page_of_batches_ends_the_search(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        batch_api = server.model.batches
        other = Job("other", -1, [])
        batch_api._page_after = lambda _after: ([other], True)  # type: ignore[method-assign]
        batch_api.plan = BatchPlan(swallow=frozenset({0}))
        run(STUDY, build_settings(server, vendor), out=tmp_path / "run")
        # The batch was not found, so its calls were submitted once more.
        assert batch_api.calls == 3 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
def test_calls_that_expire_or_fail_in_a_batch_are_retried(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, build_settings(server, vendor, batch=False), out=tmp_path / "direct")
        server.model.batches.plan = BatchPlan(expire=frozenset({0}), errors=frozenset({1}))
        batched = run(STUDY, build_settings(server, vendor), out=tmp_path / "batched")
        sizes = [len(job.items) for job in server.model.batches.jobs]
    assert sum(sizes) == 2 * PEOPLE + PEOPLE // 2 + 1
    assert read_journal_entries(batched) == read_journal_entries(direct)


@pytest.mark.parametrize("is_killed", [False, True])
def test_batch_of_another_run_is_not_taken_for_a_batch_with_a_lost_receipt(
    is_killed: bool, tmp_path: Path
) -> None:
    """Anthropic's batches have no names, and that of another run has the same age and size."""
    with ServerThread(FaultPlan()) as server:
        batch_api = server.model.batches
        add_job, other = batch_api._add_job, Job("msgbatch_other", -1, [])

        def add_job_of_another_run(*job_parts: Any) -> Job:
            job = add_job(*job_parts)
            if job.number == 0:
                other.items = [(f"other-{key}", body) for key, body in job.items]
                batch_api.jobs.append(other)
            return job

        batch_api._add_job = add_job_of_another_run  # type: ignore[method-assign]
        batch_api.plan = BatchPlan(swallow=frozenset({0}))
        values, out = build_settings(server, "anthropic"), tmp_path / "run"
        if not is_killed:
            manifest = run(STUDY, values, out=out).manifest
        else:
            # The run is killed while it waits for the other run's batch.
            batch_api.plan = BatchPlan(swallow=frozenset({0}), hold=True)
            killed = start_process(values, out)
            wait_until(lambda: other.looks > 1)
            killed.kill()
            killed.wait()
            batch_api.plan = BatchPlan()
            manifest = resume_run(values, out).manifest
        own_jobs = [job for job in batch_api.jobs if job is not other]
    assert [len(job.items) for job in own_jobs] == [PEOPLE, PEOPLE]
    assert (manifest["handed_in_by_batches"], manifest["lost_tries"]) == (2 * PEOPLE, 0)


def test_two_batches_that_were_taken_for_each_other_are_not_paid_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two receipts were lost, and the batches have the same age and size."""
    monkeypatch.setattr(AnthropicBatchApi, "max_calls", PEOPLE // 2)
    with ServerThread(FaultPlan()) as server:
        values, out = build_settings(server, "anthropic"), tmp_path / "run"
        manifest = run(STUDY, values, out=out).manifest
        submitted_count = len(server.model.batches.jobs)
        with contextlib.closing(sqlite3.connect(out / "journal.sqlite")) as db, db:
            db.execute("UPDATE entries SET reply = reply || 'x'")
        repaired = CliRunner().invoke(app, ["verify", str(out), "--repair", "--yes"])
        assert repaired.exit_code == 0, repaired.output
        with Journal(out / "journal.sqlite") as journal:
            first, second, *_ = journal.read_batches().values()
            journal.note(first._replace(id=second.id)).result()
            journal.note(second._replace(id=first.id)).result()
        resumed = resume_run(values, out).manifest
        assert len(server.model.batches.jobs) == submitted_count == 4
    assert resumed["cost_usd"] == manifest["cost_usd"] and "broken_replies" not in resumed


def cut_first_result(rows: list[Any]) -> bytes:
    lines = [json.dumps(row).encode() for row in rows]
    return b"\n".join([line[:60] for line in lines[:1]] + lines[1:])


@pytest.mark.parametrize(
    ("vendor", "fault"),
    [*((vendor, "omitted") for vendor in MODELS), ("openai", "cut"), ("anthropic", "cut")],
)
def test_reply_of_a_batch_that_cannot_be_read_may_have_been_billed(
    vendor: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_json_lines = batches_module._format_json_lines
    with ServerThread(FaultPlan()) as server:
        if fault == "omitted":
            server.model.batches.plan = BatchPlan(omit=frozenset({0}))
        else:
            monkeypatch.setattr(batches_module, "_format_json_lines", cut_first_result)
        values = build_settings(server, vendor, max_api_retries=0)
        with pytest.raises(RunPausedError, match="no readable result"):
            run(STUDY, values, out=tmp_path / "run")
        paused = RunFolder(tmp_path / "run").manifest["broken_replies"]
        # The other calls without an answer are those of the second batch.
        money = money_in(tmp_path / "run")
        assert f"{PEOPLE - 1} calls in batches without an answer" in money
        assert "1 reply that broke off or did not arrive" in money
        monkeypatch.setattr(batches_module, "_format_json_lines", format_json_lines)
        # The resume reads the first batch again, and does not count its lost reply twice.
        values |= {"max_api_retries": 3}
        manifest = resume_run(values, tmp_path / "run").manifest
    assert paused["count"] == 1 and paused["max_usd"] > 0
    assert manifest["calls"] == 2 * PEOPLE and manifest["broken_replies"] == paused
    assert manifest["cost_unknown_for"] == [MODELS[vendor]]


def test_damaged_answer_of_a_batch_is_fetched_again_and_paid_once(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values, out = build_settings(server), tmp_path / "run"
        cost_usd = run(STUDY, values, out=out).manifest["cost_usd"]
        with contextlib.closing(sqlite3.connect(out / "journal.sqlite")) as db, db:
            db.execute("UPDATE entries SET reply = 'x' WHERE number = 1")
        repaired = CliRunner().invoke(app, ["verify", str(out), "--repair", "--yes"])
        assert repaired.exit_code == 0, repaired.output
        manifest = resume_run(values, out).manifest
        assert server.model.counts["answered"] == manifest["calls"] == 2 * PEOPLE
    assert manifest["cost_usd"] == cost_usd


def test_calls_that_expire_in_a_batch_are_free(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(expire=frozenset({0}))
        manifest = run(STUDY, build_settings(server), out=tmp_path / "run").manifest
    assert manifest["lost_tries"] == PEOPLE // 2 and "broken_replies" not in manifest


@pytest.mark.parametrize("vendor", MODELS)
def test_batch_cancelled_by_the_researcher_pauses_the_run(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor), server.model.batches
        batch_api.plan = BatchPlan(cancel=frozenset({0}))
        with pytest.raises(RunPausedError, match=r"cancelled, with 3 calls unanswered; a resume"):
            run(STUDY, values, out=tmp_path / "run")
        assert len(batch_api.jobs) == 1  # no batch was submitted again
        finished_run = resume_run(values, tmp_path / "run")
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert finished_run.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", ["openai"])
def test_batch_too_large_for_the_queue_is_split_in_half(
    vendor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MIN_SPLIT_CALLS", 1)
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(fail="token_limit_exceeded", most_calls=3)
        run(STUDY, build_settings(server, vendor), out=tmp_path / "run")
        sizes = [len(job.items) for job in server.model.batches.jobs]
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert sizes == [6, 3, 3, 3, 3]


@pytest.mark.parametrize("vendor", ["openai", "google"])
@pytest.mark.parametrize(
    ("code", "error"),
    [("billing_hard_limit_reached", QuotaExhaustedError), ("invalid_model", FatalModelError)],
)
def test_refused_batch_stops_the_run_and_the_run_can_be_resumed(
    vendor: str, code: str, error: type[Exception], tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values = build_settings(server, vendor)
        server.model.batches.plan = BatchPlan(fail=code, most_calls=1)
        with pytest.raises(error, match=code):
            run(STUDY, values, out=tmp_path / "run")
        server.model.batches.plan = BatchPlan()
        finished_run = resume_run(values, tmp_path / "run")
    assert finished_run.table("answers").height == 2 * PEOPLE


def test_run_can_be_resumed_after_the_quota_ran_out_inside_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(quota_after=PEOPLE)) as server:
        values = build_settings(server, quota_wait_seconds=0)
        for _ in range(2):
            with pytest.raises(QuotaExhaustedError, match="still exhausted"):
                run(STUDY, values, out=tmp_path / "run")
        server.model.plan = FaultPlan()
        finished_run = resume_run(values, tmp_path / "run")
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert finished_run.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
def test_server_without_batch_api_gives_an_error(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(interface=False)
        with pytest.raises(
            FatalModelError, match=r"no batch API at this address; leave out --batch"
        ):
            run(STUDY, build_settings(server, vendor), out=tmp_path / "run")


@pytest.mark.parametrize("vendor", MODELS)
def test_rejection_of_a_whole_batch_marks_no_prompt_as_rejected(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values = build_settings(server, vendor)
        server.model.batches.plan = BatchPlan(reject=400)
        with pytest.raises(FatalModelError, match=r"batch API: .*Invalid batch"):
            run(STUDY, values, out=tmp_path / "run")
        server.model.batches.plan = BatchPlan()
        finished_run = resume_run(values, tmp_path / "run")
    assert finished_run.table("answers")["missing"].null_count() == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize(("status", "may_be_billed"), [(402, 0), (429, 0), (503, PEOPLE)])
def test_possible_cost_of_a_refused_batch_is_reported(
    vendor: str, status: int, may_be_billed: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor, max_api_retries=1), server.model.batches
        batch_api.plan = BatchPlan(reject=status)
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        # After status 503 the batch may have arrived all the same.
        assert spent_below(tmp_path / "run").open_batch_calls == may_be_billed
        assert ("may be billed" in money_in(tmp_path / "run")) == bool(may_be_billed)
        with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
            assert not journal.find_damage()
        batch_api.plan = BatchPlan()
        finished_run = resume_run(values, tmp_path / "run")
        assert sorted(len(job.items) for job in batch_api.jobs) == [PEOPLE, PEOPLE]
    assert finished_run.table("answers").height == 2 * PEOPLE
    assert not spent_below(tmp_path / "run").open_batch_calls


@pytest.mark.parametrize("vendor", ["openai", "google"])
@pytest.mark.parametrize(("processed", "may_be_billed"), [(0, 0), (2, PEOPLE)])
def test_failed_batch_may_be_billed_only_if_the_vendor_processed_calls(
    vendor: str, processed: int, may_be_billed: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor), server.model.batches
        batch_api.plan = BatchPlan(fail="invalid_model", most_calls=1, processed=processed)
        with pytest.raises(FatalModelError, match="invalid_model"):
            run(STUDY, values, out=tmp_path / "run")
        assert spent_below(tmp_path / "run").open_batch_calls == may_be_billed
        assert ("may be billed" in money_in(tmp_path / "run")) == bool(may_be_billed)
        assert has_calls(tmp_path / "run") == bool(may_be_billed)
        with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
            assert not journal.find_damage()
        batch_api.plan = BatchPlan()
        finished_run = resume_run(values, tmp_path / "run")
    assert finished_run.table("answers").height == 2 * PEOPLE
    assert not spent_below(tmp_path / "run").open_batch_calls


def test_failed_upload_does_not_count_as_possibly_billed(
    tmp_path: Path,
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, max_api_retries=1), server.model.batches
        batch_api.plan = BatchPlan(upload=503)
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        assert not batch_api.jobs
        assert not spent_below(tmp_path / "run").open_batch_calls
        assert not money_in(tmp_path / "run") and not has_calls(tmp_path / "run")
        batch_api.plan = BatchPlan()
        finished_run = resume_run(values, tmp_path / "run")
        assert [len(job.items) for job in batch_api.jobs] == [PEOPLE, PEOPLE]
    assert finished_run.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
def test_batch_unknown_to_the_vendor_is_not_paid_for_again_without_consent(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, batch_api = build_settings(server, vendor), server.model.batches
        batch_api.plan = BatchPlan(cancel=frozenset({0}))
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        batch_api.jobs[0].id = "gone"
        batch_api.plan = BatchPlan()
        with pytest.raises(FatalModelError, match=r"does not know batch .*--accept-changes"):
            resume_run(values, tmp_path / "run")
        assert [len(job.items) for job in batch_api.jobs] == [PEOPLE, 3]
        assert "You said" in str(batch_api.jobs[1].items)  # participants with an answer continued
        finished_run = resume_run(values, tmp_path / "run", accept_changes=True)
    assert finished_run.table("answers").height == 2 * PEOPLE


def test_resume_without_batches_reserves_the_batch_price_for_open_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        # Enough for one call in a batch, and too little for one that is made directly.
        values, batch_api = build_settings(server, budget_usd=0.0009), server.model.batches
        batch_api.plan = BatchPlan(hold=True)
        killed = start_process(values, tmp_path / "run")
        wait_until(lambda: bool(batch_api.jobs) and batch_api.jobs[0].looks > 1)
        killed.kill()
        killed.wait()
        assert batch_api.calls == 1
        batch_api.plan = BatchPlan()
        with pytest.raises(BudgetReachedError):
            resume_run({**values, "batch": False}, tmp_path / "run")
        assert batch_api.calls == server.model.counts["answered"] == 1
    spent = spent_below(tmp_path / "run")
    assert (spent.calls, spent.open_batch_calls) == (1, 0)


@pytest.mark.parametrize("wave", sample_daily([1, 4, 2, 5], daily=2, part="sweeps"))
def test_results_do_not_depend_on_the_size_of_waves(
    wave: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerThread(FaultPlan()) as server:
        whole = run(STUDY, build_settings(server), out=tmp_path / "whole")
        for module in (outbox_module, gateway_module):
            monkeypatch.setattr(module, "MAX_WAVE_CALLS", wave)
        before = len(server.model.batches.jobs)
        parted = run(STUDY, build_settings(server), out=tmp_path / "parted")
        sizes = [len(job.items) for job in server.model.batches.jobs[before:]]
    assert max(sizes) == wave
    assert parted.manifest["journal_digest"] == whole.manifest["journal_digest"]


def test_auto_mode_uses_batches_only_if_enough_calls_wait(tmp_path: Path) -> None:
    async def ask_more_in_each_stage(session: Session) -> None:
        async def ask_growing_questions(scope: Any, number: int) -> None:
            await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

        await session.child("few").map(range(3), ask_growing_questions)
        await session.child("many").map(range(4), ask_growing_questions)

    study = Study(name="grows", title="Grows", config=StudyConfig, protocol=ask_more_in_each_stage)
    with ServerThread(FaultPlan()) as server:
        values = build_settings(server, batch="auto", batch_at_least=4)
        finished_run = run(study, values, out=tmp_path / "run")
        assert [len(job.items) for job in server.model.batches.jobs] == [4]
        direct = run(study, build_settings(server, batch=False), out=tmp_path / "direct")
    assert read_journal_entries(finished_run) == read_journal_entries(direct)
    price = direct.manifest["cost_usd"]
    assert price / 2 < finished_run.manifest["cost_usd"] < price


def test_wave_waits_for_embeddings_and_computations(tmp_path: Path) -> None:
    async def mix_effects(session: Session) -> None:
        async def embed_and_ask(scope: Any, number: int) -> None:
            if number % 2:
                await scope.embed([f"text {number}"])
            if number % 3 == 0:
                await scope.compute(pow, 2, number)
            await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

        await session.map(range(PEOPLE), embed_and_ask)

    study = Study(name="mixed", title="Mixed", config=StudyConfig, protocol=mix_effects)
    with ServerThread(FaultPlan(), latency=0.02) as server:
        run(study, build_settings(server), out=tmp_path / "run")
        assert [len(job.items) for job in server.model.batches.jobs] == [PEOPLE]


@pytest.mark.parametrize("vendor", MODELS)
def test_capability_of_an_endpoint_is_learnt_from_a_batch(vendor: str, tmp_path: Path) -> None:
    class Why(BaseModel):
        reason: str

    async def ask_for_json(session: Session) -> None:
        async def ask_for_reason(scope: Any, number: int) -> None:
            await scope.ask(Speaker(f"p{number}"), f"Why, {number}?", answer_type=Json(Why))

        await session.map(range(3), ask_for_reason)

    study = Study(name="forms", title="Forms", config=StudyConfig, protocol=ask_for_json)
    with ServerThread(FaultPlan(schema="refuse")) as server:
        server.model.says = lambda messages, body: {"text": '{"reason": "so"}'}
        finished_run = run(study, build_settings(server, vendor), out=tmp_path / "run")
        assert len(server.model.batches.jobs) == 2  # with a schema, then without
    assert finished_run.table("answers")["missing"].null_count() == 3


def test_rejected_prompts_in_a_batch_are_missing_and_the_run_continues(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        rejection = {"status": 400, "message": "not this one"}
        server.model.says = lambda messages, body: (
            rejection if "to you, 2" in messages[-1]["content"] else {}
        )
        finished_run = run(STUDY, build_settings(server), out=tmp_path / "run")
    missing = finished_run.table("answers").filter(pl.col("missing").is_not_null())
    assert missing["missing"].to_list() == ["rejected"]


def test_budget_covers_twice_as_many_calls_in_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values = build_settings(server, batch=False, max_tokens=10)
        cost = run(STUDY, values, out=tmp_path / "a").manifest["cost_usd"]
        with pytest.raises(BudgetReachedError):
            run(STUDY, {**values, "budget_usd": cost * 0.9}, out=tmp_path / "b")
        values = {**values, "budget_usd": cost * 0.9, "batch": True}
        assert run(STUDY, values, out=tmp_path / "c").manifest["cost_usd"] < cost * 0.51


def test_ctrl_c_keeps_the_batch_open_and_prints_the_resume_command(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(hold=True)
        values = build_settings(server, study="own.py")
        (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
        command = [sys.executable, "-m", "folkmoot", "run", "study.yaml", "--out", "run"]
        process = subprocess.Popen(
            add_default_signals(*command), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        wait_until(
            lambda: bool(server.model.batches.jobs) and server.model.batches.jobs[0].looks > 0
        )
        process.send_signal(signal.SIGINT)
        output = process.communicate()[1]
        assert process.returncode == 130, output
        assert "batch batch_0 (8 calls) continues at openai/gpt-4o, until " in output
        assert "folkmoot run study.yaml --out run --resume" in output
        server.model.batches.plan = BatchPlan()
        with contextlib.chdir(tmp_path):
            resume_result = CliRunner().invoke(app, [*command[3:], "--resume"])
        assert resume_result.exit_code == 0, resume_result.output
        assert server.model.batches.calls == 10


TWO_WAVES = """
from folkmoot import Session, Speaker, Study, StudyConfig

async def ask(session: Session) -> None:
    async def one(scope, number):
        await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

    await session.child("many").map(range(8), one)
    await session.child("few").map(range(2), one)

STUDY = Study(name="own", title="Own", config=StudyConfig, protocol=ask)
"""


def test_check_prints_waves_both_prices_and_duration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    values = {"study": "own.py", "model": "gpt-4o"}
    (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
    check_command(tmp_path / "study.yaml", None, (), trust=False, preview=False)
    output = capsys.readouterr().out
    direct, batched = (
        float(re.search(rf"{word} +about \$([0-9.]+)", output)[1])  # type: ignore[index]
        for word in ("Cost", "Batches")
    )
    assert batched == pytest.approx(direct / 2, rel=0.1)
    assert "2 waves of calls, each completed within 24 h, all within 2 days" in output


@pytest.mark.parametrize(
    ("least", "expected_output"),
    [
        (9, "none: no wave of at least 9 calls (batch: auto)"),
        (
            8,
            "8 of 10 calls, in 1 wave of at least 8 calls (batch: auto), each completed within "
            "24 h",
        ),
    ],
)
def test_check_prints_which_calls_auto_mode_submits(
    least: int,
    expected_output: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    values = {"study": "own.py", "model": "gpt-4o", "batch": "auto", "batch_at_least": least}
    (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
    check_command(tmp_path / "study.yaml", None, (), trust=False, preview=False)
    output = capsys.readouterr().out
    assert f"Batches   {expected_output}" in output and "if asked directly" in output
    assert ("Time " in output) == (least == 9)  # the duration of a batch is unknown


def test_models_without_batch_api_are_called_directly_with_a_notice(tmp_path: Path) -> None:
    messages: list[str] = []

    def progress(event: Event) -> None:
        messages.append(format_event(event)[0])

    with ServerThread(FaultPlan()) as server:
        several = [server.openai, server.openai]  # a batch cannot be spread over servers
        values = {**build_settings(server), "endpoints": {"openai": several}}
        finished_run = run(STUDY, values, out=tmp_path / "run", progress=progress)
        assert server.model.batches.jobs == []
    assert finished_run.table("answers").height == 2 * PEOPLE
    assert "openai/gpt-4o has no batch API, so it is asked directly, at its full price" in messages


def test_batch_mode_can_be_set_from_python(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        run(STUDY, build_settings(server, batch=False), out=tmp_path / "run", batch=True)
        assert server.model.batches.calls == 2 * PEOPLE


@pytest.mark.parametrize("seed", sample_daily(range(6), daily=2, part="kills"))
def test_random_faults_change_no_result_and_no_call_is_paid_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(seed)
    vendor = [*MODELS][seed % 3]

    def draw_call_numbers() -> frozenset[int]:
        return frozenset(n for n in range(8) if draw.random() < 0.3)

    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, build_settings(server, vendor, batch=False), out=tmp_path / "direct")
        before = server.model.counts["answered"]
        wave = int(draw.integers(1, 8))
        for module in (outbox_module, gateway_module):
            monkeypatch.setattr(module, "MAX_WAVE_CALLS", wave)
        plan = BatchPlan(
            looks=int(draw.integers(3)),
            expire=draw_call_numbers(),
            errors=draw_call_numbers(),
            swallow=draw_call_numbers(),
        )
        server.model.batches.plan = plan
        values = build_settings(server, vendor, max_api_retries=20)
        finished_run = run(STUDY, values, out=tmp_path / "run")
        assert server.model.counts["answered"] - before == 2 * PEOPLE
    assert finished_run.manifest["journal_digest"] == direct.manifest["journal_digest"]


@pytest.mark.nightly(part="scale")
@pytest.mark.parametrize(
    "name", ["cross_pollination", "focus_group", "negotiation", "town_hall", "deliberation_survey"]
)
def test_every_study_type_gives_the_same_results_with_batches(name: str, tmp_path: Path) -> None:
    digests = set()
    with ServerThread(FaultPlan(), answers="respondent") as server:
        overrides = (f"endpoints.openai={server.openai}", "batch_poll_seconds=0.001")
        for batch in (False, True):
            finished_run = run(
                ROOT / f"examples/{name}.yaml",
                model="openai/gpt-4o",
                out=tmp_path / f"{batch}",
                overrides=(*overrides, "embedding_model=wordllama"),
                limit=None if name == "deliberation_survey" else 2,
                batch=batch,
            )
            digests.add(finished_run.manifest["journal_digest"])
        assert server.model.batches.calls
    assert len(digests) == 1


@pytest.mark.nightly(part="scale")
def test_calls_above_the_wave_size_are_split_within_bounded_memory() -> None:
    took = alone("benchmarks.batches.run", calls=50_001)
    assert took["batches"] == 2
    assert took["peak_mb"] < 1500


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("vendor", MODELS)
def test_run_killed_at_each_request_pays_for_no_call_twice(
    vendor: str, handled: bool, tmp_path: Path
) -> None:
    """Kill each process one request later than the last, before or after the server handles it."""
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, build_settings(server, vendor, batch=False), out=tmp_path / "direct")
        answered, values = server.model.counts["answered"], build_settings(server, vendor)
        running: list[subprocess.Popen[str]] = []
        request_count = 0

        async def between(request: Any, handler: Any) -> Any:
            nonlocal request_count
            request_count += 1
            if request_count < len(running):
                return await handler(request)
            answer = await handler(request) if handled else web.Response(status=500)
            running[-1].kill()
            return answer

        server.model.between = between
        while not running or running[-1].returncode:
            request_count = 0
            running.append(start_process(values, tmp_path / "run"))
            output = running[-1].communicate()[1]
            assert running[-1].returncode in (0, -signal.SIGKILL), output
        assert len(running) > 4
        assert server.model.counts["answered"] - answered == 2 * PEOPLE
    finished_run = load(tmp_path / "run")
    assert finished_run.manifest["journal_digest"] == direct.manifest["journal_digest"]


def test_controls_of_a_batch_run_use_batches(tmp_path: Path) -> None:
    voting: dict[str, Any] = {
        "pilot_id": "p",
        "conditions": ["simple_voting"],
        "participants_per_condition": 3,
    }
    voting["personas"] = {"source": "quota"}
    topic = {"description": "One purpose can be funded.", "options": ["Parks", "Streets"]}
    with ServerThread(FaultPlan()) as server:
        for name, batch in (("direct", False), ("batched", True)):
            values = build_settings(server, batch=batch, topic=topic, **voting)
            values |= {"controls": {"order": True}, "embedding_model": "wordllama"}
            study = tmp_path / f"{name}.json"
            study.write_text(json.dumps({"study": "cross_pollination", **values}))
            run(study, out=tmp_path / name, trust=True)
    direct, batched = (load(tmp_path / name / "controls") for name in ("direct", "batched"))
    assert batched.manifest["calls"] == batched.manifest["handed_in_by_batches"] > 60
    assert batched.manifest["cost_usd"] == pytest.approx(direct.manifest["cost_usd"] / 2, rel=1e-3)
    assert batched.manifest["journal_digest"] == direct.manifest["journal_digest"]
