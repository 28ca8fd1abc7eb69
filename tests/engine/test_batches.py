"""Batches: the same results at half the price, nothing paid for twice, whatever happens between."""

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
from tests.default_signals import add_default_signals
from tests.engine.batch_study import PEOPLE, STUDY
from tests.servers.batches import BatchPlan, Job
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-haiku-4-5"}
MODELS["google"] = "google/gemini-2.5-flash"
# Every vendor is killed at each of its requests in the nightly tests.
ONE_KILLED = [
    pytest.param(vendor, marks=() if vendor == "openai" else pytest.mark.nightly(part="kills"))
    for vendor in MODELS
]
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("keys")


def settings(server: ServerThread, vendor: str = "openai", **more: Any) -> dict[str, Any]:
    url = server.openai if vendor == "openai" else server.url
    quick = {"batch_poll_seconds": 0.001, "api_retry_base_seconds": 0.001, "max_tokens": 100}
    named = {"model": MODELS[vendor], "endpoints": {vendor: url}}
    return {"batch": True, **named, **quick, **more}


def resumed(values: dict[str, Any], out: Path, **more: Any) -> Run:
    return run(STUDY, values, out=out, **more)


def answers(done: Run) -> list[tuple[Any, ...]]:
    with sqlite3.connect(done.path / "journal.sqlite") as db:
        asked = "SELECT address, reply, finish, input_tokens, output_tokens FROM entries ORDER BY 1"
        return db.execute(asked).fetchall()


@pytest.mark.parametrize("vendor", MODELS)
def test_a_run_by_batches_says_the_same_at_half_the_price(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, settings(server, vendor, batch=False), out=tmp_path / "direct")
        batched = run(STUDY, settings(server, vendor), out=tmp_path / "batched")
        jobs = server.model.batches.jobs
        assert [len(job.items) for job in jobs] == [PEOPLE, PEOPLE]  # a wave for each question
    assert answers(batched) == answers(direct)
    assert batched.manifest["cost_usd"] == pytest.approx(direct.manifest["cost_usd"] / 2, rel=1e-3)
    assert batched.manifest["journal_digest"] == direct.manifest["journal_digest"]
    assert batched.manifest["handed_in_by_batches"] == 2 * PEOPLE
    assert "handed_in_by_batches" not in direct.manifest
    assert verify_run(batched.folder, STUDY).differences == []


def dump(values: dict[str, Any], out: Path) -> subprocess.Popen[str]:
    """The run in a process of its own, that a test can kill."""
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from folkmoot import run\n"
        "from tests.engine.batch_study import STUDY\n"
        "out = Path(sys.argv[2])\n"
        "run(STUDY, json.loads(sys.argv[1]), out=out)\n"
    )
    words = [sys.executable, "-c", code, json.dumps(values), str(out)]
    return subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("vendor", ONE_KILLED)
def test_a_killed_run_finds_its_batches_again_with_and_without_batches(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor), server.model.batches
        desk.plan = BatchPlan(hold=True)
        killed = dump(values, tmp_path / "run")
        wait_until(lambda: bool(desk.jobs) and desk.jobs[0].looks > 1)  # its id is written down
        killed.kill()
        killed.wait()
        desk.plan = BatchPlan()
        with pytest.raises(RunExistsError):  # no answer yet, but a batch that will be billed
            run(STUDY, values, out=tmp_path / "run", if_exists="error")
        shutil.copytree(tmp_path / "run", tmp_path / "direct")
        # Without batches, those that were handed in are still fetched.
        direct = resumed({**values, "batch": False}, tmp_path / "direct")
        assert desk.calls == PEOPLE
        assert server.model.counts["answered"] == 2 * PEOPLE
        done = resumed(values, tmp_path / "run")
        assert desk.calls == 2 * PEOPLE
        assert server.model.counts["answered"] == 3 * PEOPLE
        fresh = run(STUDY, values, out=tmp_path / "fresh")
    assert answers(done) == answers(fresh) == answers(direct)


def test_a_fork_that_a_mistake_stops_keeps_its_open_batch(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        desk = server.model.batches

        async def protocol(session: Session) -> None:
            said = await session.ask(Speaker("a"), "What matters?")

            async def ask_on(scope: Any) -> None:
                await scope.ask(Speaker("a"), f"You said {said!r}. Why?")

            async def check(_scope: Any) -> None:
                if said == "Nothing.":
                    # The first batch belongs to the source run, the second asks its second wave.
                    while len(desk.jobs) < 3 or not desk.jobs[-1].looks:
                        await asyncio.sleep(0.01)
                    raise InputError("nothing can be found out about nothing")

            await session.map({"more": ask_on, "check": check})

        study = Study(name="two", title="Two", config=StudyConfig, protocol=protocol)
        base = run(study, settings(server), out=tmp_path / "run")
        assert len(desk.jobs) == 2
        desk.plan = BatchPlan(hold=True)
        out = tmp_path / "fork"
        with pytest.raises(InputError, match="about nothing"):
            fork(base, "ask0", say="Nothing.", out=out, study=study, trust=True)
        with JournalReader(out / "journal.sqlite") as journal:
            assert [batch.calls for batch in journal.read_batches().values()] == [1]


@pytest.mark.parametrize("vendor", ONE_KILLED)
def test_a_run_killed_while_it_handed_in_finds_the_batch_by_its_name(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor), server.model.batches
        for _ in range(3):  # batches of others, so that the list has several pages
            desk.jobs.append(Job(f"other{len(desk.jobs)}", len(desk.jobs), [], "another"))
        desk.plan = BatchPlan(stall=True, hold=True)
        killed = dump(values, tmp_path / "run")
        wait_until(lambda: len(desk.jobs) > 3)
        killed.kill()
        killed.wait()
        desk.plan = BatchPlan()
        resumed(values, tmp_path / "run")
        assert desk.calls == 2 * PEOPLE == server.model.counts["answered"]


@pytest.mark.parametrize("vendor", MODELS)
def test_a_batch_whose_receipt_was_lost_is_not_handed_in_twice(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(swallow=frozenset({0}))
        run(STUDY, settings(server, vendor), out=tmp_path / "run")
        assert server.model.batches.calls == 2 * PEOPLE == server.model.counts["answered"]


@pytest.mark.parametrize("vendor", MODELS)
def test_what_expires_or_fails_in_a_batch_is_asked_again(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, settings(server, vendor, batch=False), out=tmp_path / "direct")
        server.model.batches.plan = BatchPlan(expire=frozenset({0}), errors=frozenset({1}))
        batched = run(STUDY, settings(server, vendor), out=tmp_path / "batched")
        sizes = [len(job.items) for job in server.model.batches.jobs]
    assert sum(sizes) == 2 * PEOPLE + PEOPLE // 2 + 1
    assert answers(batched) == answers(direct)


@pytest.mark.parametrize("vendor", MODELS)
def test_a_batch_cancelled_by_hand_pauses_the_run(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor), server.model.batches
        desk.plan = BatchPlan(cancel=frozenset({0}))
        with pytest.raises(RunPausedError, match=r"cancelled, with 3 calls unanswered; a resume"):
            run(STUDY, values, out=tmp_path / "run")
        assert len(desk.jobs) == 1  # nothing was handed in against the user's will
        done = resumed(values, tmp_path / "run")
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert done.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", ["openai"])
def test_a_batch_too_large_for_the_queue_is_halved(
    vendor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MIN_SPLIT_CALLS", 1)
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(fail="token_limit_exceeded", most_calls=3)
        run(STUDY, settings(server, vendor), out=tmp_path / "run")
        sizes = [len(job.items) for job in server.model.batches.jobs]
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert sizes == [6, 3, 3, 3, 3]


@pytest.mark.parametrize("vendor", ["openai", "google"])
@pytest.mark.parametrize(
    ("code", "error"),
    [("billing_hard_limit_reached", QuotaExhaustedError), ("invalid_model", FatalModelError)],
)
def test_a_refused_batch_stops_the_run_and_can_be_resumed(
    vendor: str, code: str, error: type[Exception], tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values = settings(server, vendor)
        server.model.batches.plan = BatchPlan(fail=code, most_calls=1)
        with pytest.raises(error, match=code):
            run(STUDY, values, out=tmp_path / "run")
        server.model.batches.plan = BatchPlan()
        done = resumed(values, tmp_path / "run")
    assert done.table("answers").height == 2 * PEOPLE


def test_a_run_is_resumed_after_the_account_was_empty_inside_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(quota_after=PEOPLE)) as server:
        values = settings(server, quota_wait_seconds=0)
        for _ in range(2):
            with pytest.raises(QuotaExhaustedError, match="still exhausted"):
                run(STUDY, values, out=tmp_path / "run")
        server.model.plan = FaultPlan()
        done = resumed(values, tmp_path / "run")
        assert server.model.counts["answered"] == 2 * PEOPLE
    assert done.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
def test_a_server_without_batches_says_so(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(interface=False)
        with pytest.raises(
            FatalModelError, match=r"no batch API at this address; leave out --batch"
        ):
            run(STUDY, settings(server, vendor), out=tmp_path / "run")


@pytest.mark.parametrize("vendor", MODELS)
def test_a_batch_that_is_rejected_whole_rejects_no_prompt(vendor: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values = settings(server, vendor)
        server.model.batches.plan = BatchPlan(reject=400)
        with pytest.raises(FatalModelError, match=r"batch API: .*Invalid batch"):
            run(STUDY, values, out=tmp_path / "run")
        server.model.batches.plan = BatchPlan()
        done = resumed(values, tmp_path / "run")
    assert done.table("answers")["missing"].null_count() == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize(("status", "may_be_billed"), [(402, 0), (429, 0), (503, PEOPLE)])
def test_what_a_refused_batch_may_cost_is_told(
    vendor: str, status: int, may_be_billed: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor, max_api_retries=1), server.model.batches
        desk.plan = BatchPlan(reject=status)
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        # After status 503 the batch may have arrived all the same.
        assert spent_below(tmp_path / "run").open_batch_calls == may_be_billed
        assert ("may be billed" in money_in(tmp_path / "run")) == bool(may_be_billed)
        with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
            assert not journal.find_damage()
        desk.plan = BatchPlan()
        done = resumed(values, tmp_path / "run")
        assert sorted(len(job.items) for job in desk.jobs) == [PEOPLE, PEOPLE]
    assert done.table("answers").height == 2 * PEOPLE
    assert not spent_below(tmp_path / "run").open_batch_calls


@pytest.mark.parametrize("vendor", ["openai", "google"])
@pytest.mark.parametrize(("processed", "may_be_billed"), [(0, 0), (2, PEOPLE)])
def test_a_batch_that_failed_may_be_billed_only_if_the_vendor_processed_some_of_it(
    vendor: str, processed: int, may_be_billed: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor), server.model.batches
        desk.plan = BatchPlan(fail="invalid_model", most_calls=1, processed=processed)
        with pytest.raises(FatalModelError, match="invalid_model"):
            run(STUDY, values, out=tmp_path / "run")
        assert spent_below(tmp_path / "run").open_batch_calls == may_be_billed
        assert ("may be billed" in money_in(tmp_path / "run")) == bool(may_be_billed)
        assert has_calls(tmp_path / "run") == bool(may_be_billed)
        with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
            assert not journal.find_damage()
        desk.plan = BatchPlan()
        done = resumed(values, tmp_path / "run")
    assert done.table("answers").height == 2 * PEOPLE
    assert not spent_below(tmp_path / "run").open_batch_calls


def test_a_file_that_could_not_be_uploaded_is_in_no_batch_that_may_be_billed(
    tmp_path: Path,
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, max_api_retries=1), server.model.batches
        desk.plan = BatchPlan(upload=503)
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        assert not desk.jobs
        assert not spent_below(tmp_path / "run").open_batch_calls
        assert not money_in(tmp_path / "run") and not has_calls(tmp_path / "run")
        desk.plan = BatchPlan()
        done = resumed(values, tmp_path / "run")
        assert [len(job.items) for job in desk.jobs] == [PEOPLE, PEOPLE]
    assert done.table("answers").height == 2 * PEOPLE


@pytest.mark.parametrize("vendor", MODELS)
def test_a_batch_that_the_vendor_no_longer_knows_is_not_paid_for_again_unasked(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        values, desk = settings(server, vendor), server.model.batches
        desk.plan = BatchPlan(cancel=frozenset({0}))
        with pytest.raises(RunPausedError):
            run(STUDY, values, out=tmp_path / "run")
        desk.jobs[0].id = "gone"
        desk.plan = BatchPlan()
        with pytest.raises(FatalModelError, match=r"does not know batch .*--accept-changes"):
            resumed(values, tmp_path / "run")
        assert [len(job.items) for job in desk.jobs] == [PEOPLE, 3]
        assert "You said" in str(desk.jobs[1].items)  # those who were answered went on
        done = resumed(values, tmp_path / "run", accept_changes=True)
    assert done.table("answers").height == 2 * PEOPLE


def test_a_resume_without_batches_reserves_their_price_for_what_they_hold(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        # Enough for one call in a batch, and too little for one that is made directly.
        values, desk = settings(server, budget_usd=0.0009), server.model.batches
        desk.plan = BatchPlan(hold=True)
        killed = dump(values, tmp_path / "run")
        wait_until(lambda: bool(desk.jobs) and desk.jobs[0].looks > 1)
        killed.kill()
        killed.wait()
        assert desk.calls == 1
        desk.plan = BatchPlan()
        with pytest.raises(BudgetReachedError):
            resumed({**values, "batch": False}, tmp_path / "run")
        assert desk.calls == server.model.counts["answered"] == 1
    spent = spent_below(tmp_path / "run")
    assert (spent.calls, spent.open_batch_calls) == (1, 0)


@pytest.mark.parametrize("wave", [1, 2, 4, 5])
def test_results_do_not_depend_on_how_waves_are_cut(
    wave: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerThread(FaultPlan()) as server:
        whole = run(STUDY, settings(server), out=tmp_path / "whole")
        for module in (outbox_module, gateway_module):
            monkeypatch.setattr(module, "MAX_WAVE_CALLS", wave)
        before = len(server.model.batches.jobs)
        parted = run(STUDY, settings(server), out=tmp_path / "parted")
        sizes = [len(job.items) for job in server.model.batches.jobs[before:]]
    assert max(sizes) == wave
    assert parted.manifest["journal_digest"] == whole.manifest["journal_digest"]


def test_auto_takes_batches_only_where_enough_calls_wait(tmp_path: Path) -> None:
    async def grows(session: Session) -> None:
        async def one(scope: Any, number: int) -> None:
            await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

        await session.child("few").map(range(3), one)
        await session.child("many").map(range(4), one)

    study = Study(name="grows", title="Grows", config=StudyConfig, protocol=grows)
    with ServerThread(FaultPlan()) as server:
        values = settings(server, batch="auto", batch_at_least=4)
        done = run(study, values, out=tmp_path / "run")
        assert [len(job.items) for job in server.model.batches.jobs] == [4]
        direct = run(study, settings(server, batch=False), out=tmp_path / "direct")
    assert answers(done) == answers(direct)
    price = direct.manifest["cost_usd"]
    assert price / 2 < done.manifest["cost_usd"] < price


def test_embeddings_and_computations_are_waited_for_before_a_wave(tmp_path: Path) -> None:
    async def mixed(session: Session) -> None:
        async def one(scope: Any, number: int) -> None:
            if number % 2:
                await scope.embed([f"text {number}"])
            if number % 3 == 0:
                await scope.compute(pow, 2, number)
            await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

        await session.map(range(PEOPLE), one)

    study = Study(name="mixed", title="Mixed", config=StudyConfig, protocol=mixed)
    with ServerThread(FaultPlan(), latency=0.02) as server:
        run(study, settings(server), out=tmp_path / "run")
        assert [len(job.items) for job in server.model.batches.jobs] == [PEOPLE]


@pytest.mark.parametrize("vendor", MODELS)
def test_what_an_endpoint_does_not_take_is_learnt_in_a_batch(vendor: str, tmp_path: Path) -> None:
    class Why(BaseModel):
        reason: str

    async def forms(session: Session) -> None:
        async def one(scope: Any, number: int) -> None:
            await scope.ask(Speaker(f"p{number}"), f"Why, {number}?", answer_type=Json(Why))

        await session.map(range(3), one)

    study = Study(name="forms", title="Forms", config=StudyConfig, protocol=forms)
    with ServerThread(FaultPlan(schema="refuse")) as server:
        server.model.says = lambda messages, body: {"text": '{"reason": "so"}'}
        done = run(study, settings(server, vendor), out=tmp_path / "run")
        assert len(server.model.batches.jobs) == 2  # with a schema, then without
    assert done.table("answers")["missing"].null_count() == 3


def test_prompts_that_a_batch_rejects_are_missing_and_the_run_goes_on(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        bad = {"status": 400, "message": "not this one"}
        server.model.says = lambda messages, body: (
            bad if "to you, 2" in messages[-1]["content"] else {}
        )
        done = run(STUDY, settings(server), out=tmp_path / "run")
    missing = done.table("answers").filter(pl.col("missing").is_not_null())
    assert missing["missing"].to_list() == ["rejected"]


def test_a_budget_pays_for_twice_as_much_in_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        values = settings(server, batch=False, max_tokens=10)
        cost = run(STUDY, values, out=tmp_path / "a").manifest["cost_usd"]
        with pytest.raises(BudgetReachedError):
            run(STUDY, {**values, "budget_usd": cost * 0.9}, out=tmp_path / "b")
        values = {**values, "budget_usd": cost * 0.9, "batch": True}
        assert run(STUDY, values, out=tmp_path / "c").manifest["cost_usd"] < cost * 0.51


def test_ctrl_c_leaves_the_batch_running_and_says_how_to_come_back(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    with ServerThread(FaultPlan()) as server:
        server.model.batches.plan = BatchPlan(hold=True)
        values = settings(server, study="own.py")
        (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
        words = [sys.executable, "-m", "folkmoot", "run", "study.yaml", "--out", "run"]
        stopped = subprocess.Popen(
            add_default_signals(*words), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        wait_until(
            lambda: bool(server.model.batches.jobs) and server.model.batches.jobs[0].looks > 0
        )
        stopped.send_signal(signal.SIGINT)
        said = stopped.communicate()[1]
        assert stopped.returncode == 130, said
        assert "batch batch_0 (8 calls) continues at openai/gpt-4o, until " in said
        assert "folkmoot run study.yaml --out run --resume" in said
        server.model.batches.plan = BatchPlan()
        with contextlib.chdir(tmp_path):
            again = CliRunner().invoke(app, [*words[3:], "--resume"])
        assert again.exit_code == 0, again.output
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


def test_check_says_waves_both_prices_and_when_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    values = {"study": "own.py", "model": "gpt-4o"}
    (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
    check_command(tmp_path / "study.yaml", None, (), trust=False, preview=False)
    said = capsys.readouterr().out
    direct, batched = (
        float(re.search(rf"{word} +about \$([0-9.]+)", said)[1])  # type: ignore[index]
        for word in ("Cost", "Batches")
    )
    assert batched == pytest.approx(direct / 2, rel=0.1)
    assert "2 waves of calls, each completed within 24 h, all within 2 days" in said


@pytest.mark.parametrize(
    ("least", "told"),
    [
        (9, "none: no wave of at least 9 calls (batch: auto)"),
        (
            8,
            "8 of 10 calls, in 1 wave of at least 8 calls (batch: auto), each completed within "
            "24 h",
        ),
    ],
)
def test_check_says_what_auto_hands_in(
    least: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "own.py").write_text(TWO_WAVES, "utf-8")
    values = {"study": "own.py", "model": "gpt-4o", "batch": "auto", "batch_at_least": least}
    (tmp_path / "study.yaml").write_text(json.dumps(values), "utf-8")
    check_command(tmp_path / "study.yaml", None, (), trust=False, preview=False)
    said = capsys.readouterr().out
    assert f"Batches   {told}" in said and "if asked directly" in said
    assert ("Time " in said) == (least == 9)  # how long a batch takes nobody knows


def test_models_without_batches_are_asked_directly_and_that_is_said(tmp_path: Path) -> None:
    heard: list[str] = []

    def progress(event: Event) -> None:
        heard.append(format_event(event)[0])

    with ServerThread(FaultPlan()) as server:
        several = [server.openai, server.openai]  # a batch cannot be spread over servers
        values = {**settings(server), "endpoints": {"openai": several}}
        done = run(STUDY, values, out=tmp_path / "run", progress=progress)
        assert server.model.batches.jobs == []
    assert done.table("answers").height == 2 * PEOPLE
    assert "openai/gpt-4o has no batch API, so it is asked directly, at its full price" in heard


def test_a_run_from_python_can_be_told_to_go_by_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        run(STUDY, settings(server, batch=False), out=tmp_path / "run", batch=True)
        assert server.model.batches.calls == 2 * PEOPLE


@pytest.mark.parametrize("seed", range(6))
def test_whatever_goes_wrong_the_results_are_the_same_and_paid_for_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(seed)
    vendor = [*MODELS][seed % 3]

    def some() -> frozenset[int]:
        return frozenset(n for n in range(8) if draw.random() < 0.3)

    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, settings(server, vendor, batch=False), out=tmp_path / "direct")
        before = server.model.counts["answered"]
        wave = int(draw.integers(1, 8))
        for module in (outbox_module, gateway_module):
            monkeypatch.setattr(module, "MAX_WAVE_CALLS", wave)
        plan = BatchPlan(looks=int(draw.integers(3)), expire=some(), errors=some(), swallow=some())
        server.model.batches.plan = plan
        values = settings(server, vendor, max_api_retries=20)
        done = run(STUDY, values, out=tmp_path / "run")
        assert server.model.counts["answered"] - before == 2 * PEOPLE
    assert done.manifest["journal_digest"] == direct.manifest["journal_digest"]


@pytest.mark.nightly(part="scale")
@pytest.mark.parametrize(
    "name", ["cross_pollination", "focus_group", "negotiation", "town_hall", "deliberation_survey"]
)
def test_every_study_type_says_the_same_by_batches(name: str, tmp_path: Path) -> None:
    digests = set()
    with ServerThread(FaultPlan(), answers="respondent") as server:
        here = (f"endpoints.openai={server.openai}", "batch_poll_seconds=0.001")
        for batch in (False, True):
            done = run(
                ROOT / f"examples/{name}.yaml",
                model="openai/gpt-4o",
                out=tmp_path / f"{batch}",
                overrides=(*here, "embedding_model=wordllama"),
                limit=None if name == "deliberation_survey" else 2,
                batch=batch,
            )
            digests.add(done.manifest["journal_digest"])
        assert server.model.batches.calls
    assert len(digests) == 1


@pytest.mark.nightly(part="scale")
def test_more_calls_than_a_wave_holds_go_as_two_in_bounded_memory() -> None:
    took = alone("benchmarks.batches.run", calls=50_001)
    assert took["batches"] == 2
    assert took["peak_mb"] < 1500


@pytest.mark.nightly(part="kills")
@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("vendor", MODELS)
def test_a_run_killed_at_each_of_its_requests_pays_for_nothing_twice(
    vendor: str, handled: bool, tmp_path: Path
) -> None:
    """Each process is killed one request later than the one before, before the server has taken
    that request or before it has said so."""
    with ServerThread(FaultPlan()) as server:
        direct = run(STUDY, settings(server, vendor, batch=False), out=tmp_path / "direct")
        answered, values = server.model.counts["answered"], settings(server, vendor)
        running: list[subprocess.Popen[str]] = []
        seen = 0

        async def between(request: Any, handler: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen < len(running):
                return await handler(request)
            answer = await handler(request) if handled else web.Response(status=500)
            running[-1].kill()
            return answer

        server.model.between = between
        while not running or running[-1].returncode:
            seen = 0
            running.append(dump(values, tmp_path / "run"))
            said = running[-1].communicate()[1]
            assert running[-1].returncode in (0, -signal.SIGKILL), said
        assert len(running) > 4
        assert server.model.counts["answered"] - answered == 2 * PEOPLE
    done = load(tmp_path / "run")
    assert done.manifest["journal_digest"] == direct.manifest["journal_digest"]


def test_controls_of_a_run_by_batches_go_by_batches(tmp_path: Path) -> None:
    voting: dict[str, Any] = {
        "pilot_id": "p",
        "conditions": ["simple_voting"],
        "participants_per_condition": 3,
    }
    voting["personas"] = {"source": "quota"}
    topic = {"description": "One purpose can be funded.", "options": ["Parks", "Streets"]}
    with ServerThread(FaultPlan()) as server:
        for name, batch in (("direct", False), ("batched", True)):
            values = settings(server, batch=batch, topic=topic, **voting)
            values |= {"controls": {"order": True}, "embedding_model": "wordllama"}
            study = tmp_path / f"{name}.json"
            study.write_text(json.dumps({"study": "cross_pollination", **values}))
            run(study, out=tmp_path / name, trust=True)
    direct, batched = (load(tmp_path / name / "controls") for name in ("direct", "batched"))
    assert batched.manifest["calls"] == batched.manifest["handed_in_by_batches"] > 60
    assert batched.manifest["cost_usd"] == pytest.approx(direct.manifest["cost_usd"] / 2, rel=1e-3)
    assert batched.manifest["journal_digest"] == direct.manifest["journal_digest"]
