"""Costs are reported correctly over HTTP, from the reply to the manifest and the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from typer.testing import CliRunner

from folkmoot import Choice, Run, Session, Speaker, Study, StudyConfig, run
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.run_totals import describe_spending, spent_below
from folkmoot.errors import BudgetReachedError, FatalModelError, InputError, RunPausedError
from folkmoot.models import prices
from folkmoot.models.request import Completion, Usage
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.front import build_front_page
from folkmoot.report.document.methods import build_methods
from folkmoot.report.document.trust import build_trust_section
from folkmoot.storage.run_folder import RunFolder
from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-haiku-4-5"}
MODELS["google"] = "google/gemini-2.5-flash"

pytestmark = pytest.mark.usefixtures("keys")


async def ask_for_votes(session: Session) -> None:
    async def vote_once(scope: Any, number: int) -> None:
        speaker = Speaker(f"p{number}", system="You are a cook.")
        await scope.ask(
            speaker, f"Parks or jobs, {number}?", answer_type=Choice(("Parks", "Jobs")), reasks=0
        )
        await scope.ask(speaker, f"Why, {number}?")

    await session.map(range(6), vote_once)


async def ask_participants(session: Session) -> None:
    async def ask_three_questions(scope: Any, number: int) -> None:
        await scope.ask(Speaker(f"p{number}"), f"Why, {number}?")

    await session.map(range(3), ask_three_questions)


def build_embedding_study(text_count: int) -> Study:
    # A call has 100 texts at most, and a request 50.
    async def embed_texts(session: Session) -> None:
        await session.embed([f"Text of 20 bytes {number:03}" for number in range(text_count)])

    return Study("texts", "Texts", StudyConfig, embed_texts, uses_embeddings=True)


TALK = Study(name="talk", title="Talk", config=StudyConfig, protocol=ask_participants)
STUDY = Study(name="votes", title="Votes", config=StudyConfig, protocol=ask_for_votes)


def build_settings(server: ServerThread, vendor: str = "openai", **more: Any) -> dict[str, Any]:
    url = server.openai if vendor == "openai" else server.url
    return {"model": MODELS[vendor], "endpoints": {vendor: url}, "concurrency": 8, **more}


def build_embedding_settings(server: ServerThread, vendor: str) -> dict[str, Any]:
    embedding_models = {
        "google": "google/gemini-embedding-001",
        "openai": "openai/text-embedding-3-small",
    }
    budget = {"embedding_model": embedding_models[vendor], "budget_usd": 1.0}
    return build_settings(server, vendor, **budget)


def resume_run(values: dict[str, Any], out: Path) -> Run:
    return run(STUDY, values, out=out)


@pytest.mark.parametrize("vendor", ["google", "openai"])
@pytest.mark.parametrize(("usage", "tokens"), [("full", 600), ("none", 2400)])
def test_embeddings_keep_a_budget_in_usd_with_and_without_token_counts(
    vendor: str, usage: str, tokens: int, tmp_path: Path
) -> None:
    study = build_embedding_study(120)
    with ServerThread(FaultPlan(usage=usage)) as server:
        settings = build_embedding_settings(server, vendor)
        manifest = run(study, settings, out=tmp_path / "run").manifest
        # Without a count, the number of bytes is the upper bound of the number of tokens.
        price = {"google": 0.15e-6, "openai": 0.02e-6}[vendor]
        assert manifest["cost_usd"] == pytest.approx(tokens * price, abs=1e-6)
        assert manifest["cost_unknown_for"] == []
        (model,) = manifest["models"]
        assert model["input_tokens"] == (None if usage == "none" else tokens)
        # A resume with the same budget is not refused.
        assert (
            run(study, settings, out=tmp_path / "run").manifest["cost_usd"]
            == (manifest["cost_usd"])
        )


def fail_embeddings(server: ServerThread, status: int, *failing: int) -> list[int]:
    """Let the server reject these of its requests. Return the growing list of embedded texts."""
    received, embedded = 0, list[int]()

    async def reject_some(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal received
        received += 1
        if received in failing:
            return web.json_response({"error": {"message": "later"}}, status=status)
        body = await request.json()
        embedded.append(len(body.get("input") or body.get("requests")))
        return await handler(request)

    server.model.between = reject_some
    return embedded


@pytest.mark.parametrize("vendor", ["google", "openai"])
@pytest.mark.parametrize("status", [500, 429])
def test_embeddings_that_arrived_are_not_sent_again(
    vendor: str, status: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        embedded = fail_embeddings(server, status, 2, 3)
        settings = build_embedding_settings(server, vendor) | {"api_retry_base_seconds": 0.001}
        manifest = run(build_embedding_study(100), settings, out=tmp_path / "run").manifest
    assert embedded == [50, 50]
    assert manifest["input_tokens"] == 500 and "broken_replies" not in manifest


@pytest.mark.parametrize("status", [500, 401])
def test_cost_of_embeddings_that_arrived_before_a_stop_is_reported(
    status: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        embedded = fail_embeddings(server, status, 2, 3)
        settings = build_embedding_settings(server, "openai") | {"max_api_retries": 1}
        settings["api_retry_base_seconds"] = 0.001
        with pytest.raises((RunPausedError, FatalModelError)):
            run(build_embedding_study(100), settings, out=tmp_path / "run")
        paused = RunFolder(tmp_path / "run").manifest
        assert embedded == [50]
        # The price of 250 tokens.
        assert paused["broken_replies"] == {"count": 1, "max_usd": 5e-6}
        assert paused["cost_unknown_for"] == ["openai/text-embedding-3-small"]
        with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
            assert journal.spent().usd == pytest.approx(5e-6)
        server.model.between = ModelServer.between
        resumed = run(build_embedding_study(100), settings, out=tmp_path / "run").manifest
    assert resumed["cost_usd"] == pytest.approx(1e-5)
    assert resumed["broken_replies"] == paused["broken_replies"]


@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize("usage", ["none", "input"])
def test_cost_without_usage_is_never_reported_as_zero(
    vendor: str, usage: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(usage=usage)) as server:
        finished_run = run(STUDY, build_settings(server, vendor), out=tmp_path / "run")
    manifest = finished_run.manifest
    (model,) = manifest["models"]
    assert manifest["cost_usd"] is None and manifest["cost_unknown_for"] == [MODELS[vendor]]
    assert manifest["input_tokens"] is None and manifest["output_tokens"] is None
    assert (model["cost_usd"], model["calls_without_usage"]) == (None, model["calls"])
    methods = build_methods(
        finished_run.folder, STUDY, build_front_page(finished_run.folder, STUDY, [], [])
    )
    methods_text = " ".join(methods.paragraphs)
    assert "unknown price" in methods_text and "unknown number" in methods_text
    trust_section = str(build_trust_section(finished_run.folder, STUDY))
    assert "unknown" in trust_section and "$0.00" not in trust_section
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert '"cost_usd": null' in log.splitlines()[-1]


@pytest.mark.parametrize("vendor", MODELS)
def test_money_budget_ends_the_run_at_the_first_reply_without_usage(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(usage="none")) as server:
        run_settings = build_settings(server, vendor, budget_usd=5.0, concurrency=1)
        with pytest.raises(FatalModelError, match="budget_calls"):
            run(STUDY, run_settings, out=tmp_path / "run")
        assert server.model.counts["answered"] == 1
        manifest_entry = RunFolder(tmp_path / "run").manifest
        assert (manifest_entry["calls"], manifest_entry["cost_usd"]) == (1, None)
        with pytest.raises(InputError, match="budget_calls"):  # no call is repeated
            resume_run(run_settings, tmp_path / "run")
        assert server.model.counts["answered"] == 1
        resume_run(build_settings(server, vendor, budget_calls=50), tmp_path / "run")
        assert server.model.counts["answered"] == 12


def test_money_budget_refuses_a_model_of_unknown_price(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        run_settings = {"model": "openai/nobody-knows-it", "endpoints": {"openai": server.openai}}
        with pytest.raises(InputError, match="budget_calls"):
            run(STUDY, {**run_settings, "budget_usd": 5.0}, out=tmp_path / "run")
        assert server.model.counts["received"] == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("usd", [0.03, 0.01])
@pytest.mark.parametrize("limit", [None, 40])
def test_budget_is_neither_exceeded_nor_left_unused(
    usd: float, limit: int | None, tmp_path: Path
) -> None:
    async def ask_participants_at_length(session: Session) -> None:
        async def ask_three_questions(scope: Any, number: int) -> None:
            for turn in range(10):
                await scope.ask(Speaker(f"p{number}"), f"Question {turn} " + "so it is " * 60)

        await session.map(range(40), ask_three_questions)

    study = Study(
        name="talk", title="Talk", config=StudyConfig, protocol=ask_participants_at_length
    )
    with ServerThread(FaultPlan()) as server:
        run_settings = build_settings(server, budget_usd=usd, concurrency=32, max_tokens=limit)
        with pytest.raises(BudgetReachedError):
            run(study, run_settings, out=tmp_path / "run")
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        spent = journal.spent()
        dearest = max(float(entry.cost_usd or 0) for entry in journal.read_entries())
    assert not spent.unpriced and spent.calls > 5
    room = 0.0055 if limit is None else 0.0025  # the maximum cost of the next call
    assert usd - room < spent.usd <= usd + (dearest if limit is None else 0)


def test_cost_of_a_resume_counts_against_the_same_budget(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        run_settings = build_settings(server, budget_usd=0.0005, max_tokens=10)
        with pytest.raises(BudgetReachedError):
            run(STUDY, run_settings, out=tmp_path / "run")
        answered_before = server.model.counts["answered"]
        assert 0 < answered_before < 12
        with pytest.raises(BudgetReachedError):
            resume_run(run_settings, tmp_path / "run")
        assert server.model.counts["answered"] == answered_before
        finished_run = resume_run({**run_settings, "budget_usd": 1.0}, tmp_path / "run")
    assert finished_run.manifest["calls"] == 12


@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize("fault", ["half", "malformed", "drop"])
def test_broken_reply_is_charged_at_its_reservation_and_its_cost_is_unknown(
    fault: str, vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(**{fault: 0.4})) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 20, "max_tokens": 40}
        run_settings = build_settings(server, vendor, budget_usd=1.0, **retry_settings)
        finished_run = run(STUDY, run_settings, out=tmp_path / "run")
        broken_count = server.model.counts[fault]
    manifest = finished_run.manifest
    assert broken_count > 0 and manifest["calls"] == 12
    manifest_entry = manifest["broken_replies"]
    assert manifest_entry["count"] == broken_count and manifest_entry["max_usd"] > 0
    assert manifest["cost_unknown_for"] == [MODELS[vendor]] and manifest["cost_usd"] > 0
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        entries = list(journal.read_entries())
        spent = journal.spent()
        bounds = [reply.max_usd for reply in journal.read_broken_replies()]
    known_usd = sum(float(entry.cost_usd or 0) for entry in entries)
    assert (spent.calls, spent.unpriced) == (12, ()) and len(bounds) == broken_count
    dearest = max(float(entry.cost_usd or 0) for entry in entries)
    assert all(bound is not None and bound >= dearest for bound in bounds)
    assert spent.usd == pytest.approx(known_usd + manifest_entry["max_usd"])
    last = (tmp_path / "run" / "run.log").read_text()
    assert "may have been billed" in last
    assert "interrupted replies" in str(build_trust_section(finished_run.folder, STUDY))


def test_replies_that_come_too_late_count_against_the_budget(tmp_path: Path) -> None:
    """The vendor bills every request that it received, also those that timed out."""
    # The stall is much longer than the time-out, so a slow machine makes no difference.
    with ServerThread(FaultPlan(stall=0.4, stall_seconds=60)) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 20, "max_tokens": 40}
        run_settings = build_settings(
            server, budget_usd=1.0, request_timeout_seconds=1, **retry_settings
        )
        finished_run = run(STUDY, run_settings, out=tmp_path / "run")
        received_count = server.model.counts["received"]
    manifest = finished_run.manifest
    assert manifest["calls"] == 12 and received_count > 12
    assert manifest["broken_replies"]["count"] == received_count - 12
    assert manifest["cost_unknown_for"] == [MODELS["openai"]]
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        entries, spent = list(journal.read_entries()), journal.spent()
    known_usd = sum(float(entry.cost_usd or 0) for entry in entries)
    dearest = max(float(entry.cost_usd or 0) for entry in entries)
    assert spent.usd >= known_usd + dearest * (received_count - 12)


def test_attempts_with_an_error_status_count_as_free(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(server_error=0.3, rate_limit=0.2)) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 20, "max_tokens": 40}
        run_settings = build_settings(server, budget_usd=1.0, **retry_settings)
        finished_run = run(STUDY, run_settings, out=tmp_path / "run")
        assert server.model.counts["server_error"] > 0
    manifest = finished_run.manifest
    assert manifest["lost_tries"] > 0 and manifest["cost_unknown_for"] == []
    assert "broken_replies" not in manifest


@pytest.mark.parametrize("status", [504, 524])
def test_time_outs_of_a_gateway_count_against_the_budget(status: int, tmp_path: Path) -> None:
    """The server behind the gateway may have gone on, and its reply may be billed."""
    with ServerThread(FaultPlan(server_error=0.4, error_status=status)) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 20, "max_tokens": 40}
        run_settings = build_settings(server, budget_usd=1.0, **retry_settings)
        finished_run = run(STUDY, run_settings, out=tmp_path / "run")
        error_count = server.model.counts["server_error"]
    manifest = finished_run.manifest
    assert error_count > 0 and manifest["calls"] == 12
    assert manifest["broken_replies"]["count"] == error_count
    assert manifest["cost_unknown_for"] == [MODELS["openai"]]


@pytest.mark.parametrize(
    "faults",
    sample_daily(
        [{"half": 1.0}, {"stall": 1.0, "stall_seconds": 60}, {"drop": 1.0}], daily=1, part="kills"
    ),
    ids=["broken off", "too late", "dropped"],
)
def test_broken_replies_use_up_a_budget_over_resumes(
    faults: dict[str, float], tmp_path: Path
) -> None:
    """No call is ever answered, so no cost is known. The budget ends the run nevertheless."""
    (fault, *_) = faults
    with ServerThread(FaultPlan(**faults)) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 1, "max_tokens": 40}
        if fault == "stall":
            retry_settings["request_timeout_seconds"] = 0.3
        run_settings = build_settings(server, budget_usd=0.01, concurrency=1, **retry_settings)
        out = tmp_path / "run"
        with pytest.raises(RunPausedError):
            run(STUDY, run_settings, out=out)
        assert not isinstance(run_until_pause(run_settings, out), BudgetReachedError)
        for _ in range(20):
            pause = run_until_pause(run_settings, out)
            if isinstance(pause, BudgetReachedError):
                break
        assert isinstance(pause, BudgetReachedError)
        asked_before = server.model.counts[fault]
        assert isinstance(run_until_pause(run_settings, out), BudgetReachedError)
        assert server.model.counts[fault] == asked_before  # no further call is made
        with Journal(out / "journal.sqlite") as journal:
            spent = journal.spent()
        assert 0.008 < spent.usd <= 0.01


def test_replies_that_do_not_arrive_count_against_a_budget_of_calls(tmp_path: Path) -> None:
    """The vendor may bill them, and only a budget of calls bounds a model of unknown price."""
    with ServerThread(FaultPlan(drop=0.5)) as server:
        retry_settings = {"api_retry_base_seconds": 0.001, "max_api_retries": 20}
        run_settings = build_settings(server, budget_calls=10, **retry_settings)
        with pytest.raises(BudgetReachedError, match="broke off or did not arrive") as caught:
            run(STUDY, run_settings, out=tmp_path / "run")
        assert server.model.counts["received"] == 10
        broken_count = server.model.counts["drop"]
        assert f"10 calls (budget_calls) is used up: {10 - broken_count} call" in str(caught.value)
        assert isinstance(run_until_pause(run_settings, tmp_path / "run"), BudgetReachedError)
        assert server.model.counts["received"] == 10


def run_until_pause(run_settings: dict[str, Any], out: Path) -> RunPausedError:
    with pytest.raises(RunPausedError) as caught:
        resume_run(run_settings, out)
    return caught.value


def test_console_output_names_broken_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ServerThread(FaultPlan(half=0.3)) as server:
        (tmp_path / "panel.yaml").write_text(
            "study: focus_group\nproduct_concept: An oven\ncategory: ovens\nnum_personas: 2\n"
            "phases: [warmup]\nquestions_per_phase: 1\nmax_responses_per_question: 2\n"
            "model: openai/gpt-4o\napi_retry_base_seconds: 0.001\nmax_api_retries: 20\n"
            f"endpoints: {{openai: '{server.openai}'}}\nembedding_model: synthetic\n"
        )
        result = CliRunner().invoke(app, ["run", "panel.yaml", "--no-preflight", "--trust"])
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "the unknown cost of openai/gpt-4o" in output and "broke off" in output


@pytest.mark.parametrize(
    ("options", "faults", "exit_code"),
    [
        (["--budget", "0.01"], {}, 75),
        (["--budget", "0.01", "--repeats", "2"], {}, 75),
        (["--set", "max_api_retries=0"], {"server_error": 0.5, "error_status": 401}, 2),
    ],
    ids=["budget", "budget of a grid", "rejected key"],
)
def test_console_output_of_a_stopped_run_has_its_cost(
    options: list[str],
    faults: dict[str, float],
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with ServerThread(FaultPlan(**faults)) as server:
        (tmp_path / "panel.yaml").write_text(
            "study: focus_group\nproduct_concept: An oven\ncategory: ovens\nnum_personas: 2\n"
            "phases: [warmup]\nquestions_per_phase: 1\nmodel: openai/gpt-4o\nmax_tokens: 40\n"
            f"concurrency: 1\nendpoints: {{openai: '{server.openai}'}}\n"
            "embedding_model: synthetic\n"
        )
        arguments = ["run", "panel.yaml", "--no-preflight", "--trust", "--out", "run", *options]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    spent = spent_below(tmp_path / "run")
    assert spent.usd > 0
    assert f"Paid so far: {describe_spending(spent)}." in " ".join(result.stderr.split())


def test_server_that_only_streams_is_named_at_the_first_reply(tmp_path: Path) -> None:
    async def send_stream(request: web.Request, handler: Any) -> web.StreamResponse:
        received.append(request.path)
        stream_text = 'data: {"choices": [{"delta": {"content": "Parks"}}]}\n\ndata: [DONE]\n\n'
        return web.Response(text=stream_text, content_type="text/event-stream")

    received: list[str] = []
    with ServerThread(FaultPlan()) as server:
        server.model.between = send_stream
        run_settings = build_settings(server, concurrency=1)
        with pytest.raises(FatalModelError, match="stream of events"):
            run(STUDY, run_settings, out=tmp_path / "run")
    assert len(received) == 1
    assert RunFolder(tmp_path / "run").manifest["broken_replies"]["count"] == 1


def test_possibly_billed_attempts_are_reported(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(drop=0.3)) as server:
        run_settings = build_settings(server, api_retry_base_seconds=0.001, max_api_retries=20)
        finished_run = run(STUDY, run_settings, out=tmp_path / "run")
        dropped_count = server.model.counts["drop"]
    assert dropped_count > 0 and finished_run.manifest["lost_tries"] == dropped_count
    assert "may have billed" in str(build_trust_section(finished_run.folder, STUDY))


def test_reasoning_tokens_counted_separately_are_paid(tmp_path: Path) -> None:
    manifests = {}
    for usage in ("full", "apart"):
        with ServerThread(FaultPlan(usage=usage)) as server:
            manifests[usage] = run(TALK, build_settings(server), out=tmp_path / usage).manifest
    added_tokens = manifests["apart"]["output_tokens"] - manifests["full"]["output_tokens"]
    assert added_tokens == 3 * 50
    dearer = manifests["apart"]["cost_usd"] - manifests["full"]["cost_usd"]
    assert dearer == pytest.approx(added_tokens * 10e-6)  # the output price of gpt-4o


def test_prompt_blocked_by_gemini_costs_its_input_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 10},
    }
    monkeypatch.setattr(ModelServer, "_answered", lambda *_: web.json_response(blocked))
    with ServerThread(FaultPlan()) as server:
        finished_run = run(
            TALK, build_settings(server, "google", budget_usd=5.0), out=tmp_path / "run"
        )
    assert set(finished_run.table("answers")["missing"]) == {"filtered"}
    manifest = finished_run.manifest
    assert (manifest["calls"], manifest["input_tokens"], manifest["output_tokens"]) == (3, 30, 0)
    assert manifest["cost_usd"] == pytest.approx(30 * 0.3e-6)  # the price of the input


# The fields of a response that hold the reply and its usage.
RESPONSE_FIELDS = {
    "openai": ("choices", "usage"),
    "anthropic": ("content", "usage"),
    "google": ("candidates", "usageMetadata"),
}


def send_errors_once(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Any], None], *numbers: int
) -> None:
    """Let the server change its first response to each question with one of these numbers."""
    answered, changed = ModelServer._answered, set[str]()

    def answer_with_error(server: ModelServer, body: Any, data: Any) -> web.Response:
        for question in (f"Why, {number}?" for number in numbers):
            if question in str(body) and question not in changed:
                changed.add(question)
                fail(data)
        return answered(server, body, data)

    monkeypatch.setattr(ModelServer, "_answered", answer_with_error)


@pytest.mark.parametrize("left_out", ["", "reply", "usage"])
@pytest.mark.parametrize("vendor", MODELS)
def test_error_beside_a_billed_reply_is_reported(
    vendor: str, left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply_field, usage_field = RESPONSE_FIELDS[vendor]

    def add_error(data: Any) -> None:
        data["error"] = {"code": 502, "message": "The provider stopped"}
        data.pop({"reply": reply_field, "usage": usage_field}.get(left_out, ""), None)

    send_errors_once(monkeypatch, add_error, 0, 1)
    with ServerThread(FaultPlan()) as server:
        settings = build_settings(server, vendor, api_retry_base_seconds=0.001, max_tokens=40)
        manifest = run(TALK, settings, out=tmp_path / "run").manifest
    assert (manifest["calls"], manifest["lost_tries"]) == (3, 2)
    assert manifest["broken_replies"]["count"] == 2 and manifest["broken_replies"]["max_usd"] > 0
    assert manifest["cost_unknown_for"] == [MODELS[vendor]]


@pytest.mark.parametrize(("code", "reason"), [(403, "filtered"), (413, "too_long")])
def test_refusal_inside_a_reply_has_the_cost_that_the_server_states(
    code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_inside_choice(data: Any) -> None:
        data["choices"][0]["error"] = {"code": code, "message": "Flagged by moderation"}

    with ServerThread(FaultPlan()) as server:
        whole_cost = run(TALK, build_settings(server), out=tmp_path / "whole").manifest["cost_usd"]
    send_errors_once(monkeypatch, refuse_inside_choice, 0)
    with ServerThread(FaultPlan()) as server:
        refused_run = run(TALK, build_settings(server), out=tmp_path / "refused")
    assert refused_run.table("answers")["missing"].to_list() == [reason, None, None]
    assert refused_run.manifest["cost_usd"] == pytest.approx(whole_cost)
    assert refused_run.manifest["cost_unknown_for"] == []


def test_refusal_inside_a_reply_without_usage_has_unknown_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_inside_choice(data: Any) -> None:
        data["choices"][0]["error"] = {"code": 403, "message": "Flagged by moderation"}
        del data["usage"]

    send_errors_once(monkeypatch, refuse_inside_choice, 0)
    with ServerThread(FaultPlan()) as server:
        manifest = run(TALK, build_settings(server), out=tmp_path / "run").manifest
    assert manifest["cost_unknown_for"] == [MODELS["openai"]] and manifest["cost_usd"] > 0


async def send_long_reply_once(request: web.Request, handler: Any) -> web.StreamResponse:
    if "Why, 1?" in await request.text():
        return web.Response(body=b" " * 2_000_000)
    response: web.StreamResponse = await handler(request)
    return response


def test_reply_above_the_size_limit_keeps_a_budget_and_ends_no_run(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.between = send_long_reply_once
        settings = build_settings(server, budget_usd=0.01, max_tokens=40, max_reply_mb=0.5)
        finished_run = run(TALK, settings, out=tmp_path / "run")
        manifest = finished_run.manifest
        assert finished_run.table("answers")["missing"].to_list() == [None, "too_large", None]
        # The maximum cost of the reply counts against the budget, also of a resume.
        with Journal(tmp_path / "run" / "journal.sqlite") as journal:
            spent = journal.spent()
        run(TALK, settings, out=tmp_path / "run")
    assert manifest["broken_replies"]["count"] == 1
    assert manifest["cost_unknown_for"] == [MODELS["openai"]]
    max_usd = manifest["broken_replies"]["max_usd"]
    assert max_usd > 40 * 10e-6  # the price of 40 tokens and the prompt
    assert spent.usd == pytest.approx(manifest["cost_usd"] + max_usd, abs=2e-6)
    assert (spent.unpriced, spent.total.calls) == ((), 3)


def test_reply_above_the_size_limit_is_one_call_also_at_an_unknown_price(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.between = send_long_reply_once
        model = {"model": "openai/unpriced", "budget_calls": 3, "max_reply_mb": 0.5}
        run(TALK, build_settings(server, **model), out=tmp_path / "run")
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        spent = journal.spent()
    assert (spent.broken.calls, spent.total.calls) == (1, 3)
    assert spent.unpriced == ("openai/unpriced",) and spent.is_broken_unpriced


def test_unread_embeddings_above_the_size_limit_are_reported(tmp_path: Path) -> None:
    async def embed_texts(session: Session) -> None:
        await session.embed(["a tree"])

    async def send_long_reply(request: web.Request, handler: Any) -> web.StreamResponse:
        return web.Response(body=b" " * 2_000_000)

    study = Study("texts", "Texts", StudyConfig, embed_texts, uses_embeddings=True)
    with ServerThread(FaultPlan()) as server:
        server.model.between = send_long_reply
        settings = build_embedding_settings(server, "openai") | {"max_reply_mb": 0.5}
        with pytest.raises(FatalModelError, match="refuses to embed"):
            run(study, settings, out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").manifest["broken_replies"]["count"] == 1


def test_one_reply_of_unknown_cost_does_not_hide_the_cost_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = ModelServer._answered

    def answer_once_without_usage(server: ModelServer, body: Any, data: Any) -> web.Response:
        if "Why, 1?" in str(body):
            del data["usage"]
        return answered(server, body, data)

    monkeypatch.setattr(ModelServer, "_answered", answer_once_without_usage)
    with ServerThread(FaultPlan()) as server:
        finished_run = run(TALK, build_settings(server), out=tmp_path / "run")
    with JournalReader(finished_run.path / "journal.sqlite") as journal:
        known_costs = [
            entry.cost_usd for entry in journal.read_entries() if entry.cost_usd is not None
        ]
    assert len(known_costs) == 2
    assert finished_run.manifest["cost_usd"] == pytest.approx(sum(known_costs))
    assert finished_run.manifest["cost_unknown_for"] == [MODELS["openai"]]
    methods = build_methods(
        finished_run.folder, STUDY, build_front_page(finished_run.folder, STUDY, [], [])
    )
    assert f"plus the unknown cost of {MODELS['openai']}" in " ".join(methods.paragraphs)


MALFORMED_USAGES = {
    "beyond 63 bits": Completion("said", Usage(2**63, 5), "m"),
    "negative": Completion("said", Usage(-1000, -5), "m"),
    "not a number": Completion("said", Usage(float("nan"), 5), "m"),  # type: ignore[arg-type]
    "texts": Completion("said", Usage("12", "5"), "m"),  # type: ignore[arg-type]
    "nested": Completion("said", Usage({"tokens": 12}, [5]), "m"),  # type: ignore[arg-type]
    "nothing": Completion("said", None, "m"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("odd", MALFORMED_USAGES)
def test_missing_count_is_unknown_and_the_reply_is_kept(odd: str, tmp_path: Path) -> None:
    provider = ScriptedProvider(lambda request, address: MALFORMED_USAGES[odd])
    finished_run = run(TALK, {"model": "synthetic"}, out=tmp_path / "run", provider=provider)
    manifest = finished_run.manifest
    assert (manifest["calls"], manifest["input_tokens"]) == (3, None)
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        assert [entry.reply for entry in journal.read_entries()] == ["said"] * 3
    run(TALK, {"model": "synthetic"}, out=tmp_path / "run", provider=provider)
    assert provider.calls == 3  # no call is repeated


def test_reply_is_kept_for_any_reported_texts(tmp_path: Path) -> None:
    half = Completion("said", Usage(np.int64(12), 5), "m\ud800", "id\udc00", "unknown:\ud800")  # type: ignore[arg-type]
    none = Completion("said", Usage(12, 5), None, None, None)  # type: ignore[arg-type]
    for name, reply in {"half": half, "none": none}.items():
        provider = ScriptedProvider(lambda request, address, reply=reply: reply)
        finished_run = run(TALK, {"model": "synthetic"}, out=tmp_path / name, provider=provider)
        assert (finished_run.manifest["calls"], finished_run.manifest["input_tokens"]) == (3, 36)


def test_each_reply_has_the_price_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    hour = 0

    async def ask_at_two_times(session: Session) -> None:
        nonlocal hour
        for later in (20, 27):  # the low evening price, and the price of the next morning
            hour = later
            await session.ask(Speaker("p"), "Why?")

    monkeypatch.setattr(prices, "_current_time", lambda: 3600 * (24 * 20_786 + hour))
    study = Study(name="times", title="Times", config=StudyConfig, protocol=ask_at_two_times)
    with ServerThread(FaultPlan()) as server:
        run_settings = {"model": "deepseek/deepseek-chat", "endpoints": {"deepseek": server.openai}}
        run(study, run_settings, out=tmp_path / "run")
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        low, high = (
            float(entry.cost_usd or 0) / (entry.output_tokens or 0)
            for entry in journal.read_entries()
        )
    assert high > 1.9 * low > 0
