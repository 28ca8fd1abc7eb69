"""How replies end, from the server's finish reason to the tables.

Cut replies are asked for once more, empty replies are retried, and errors inside a reply are no
answers. A rejected prompt affects one participant only."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from rich.console import Console

import folkmoot
from folkmoot import (
    AnswerType,
    Choice,
    Json,
    JsonList,
    Missing,
    Number,
    Run,
    Session,
    Speaker,
    Study,
    StudyConfig,
)
from folkmoot.cli.run import print_results
from folkmoot.engine.session.session import Scope
from folkmoot.errors import BudgetReachedError, FatalModelError, RunPausedError
from folkmoot.measures.reply_checks import check_answers
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.front import build_front_page
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

ANN = Speaker("ann", "Ann", "participant", "You are Ann.")
MARA = Speaker("mara", "Mara", "participant", "You are Mara.")
MODELS = ("openai/m", "anthropic/m", "google/m")
CUT_WORD = {"openai/m": "length", "anthropic/m": "max_tokens", "google/m": "MAX_TOKENS"}
Body = dict[str, Any]


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan()) as running:
        yield running


def run(
    server: ServerThread,
    out: Path,
    protocol: Callable[[Session], Awaitable[None]],
    model: str = "openai/m",
    **settings: Any,
) -> Run:
    url = server.openai if model.startswith("openai") else server.url
    all_settings = {"model": model, "endpoints": {model: url}, "api_retry_base_seconds": 0.001}
    study = Study("trial", "Trial", StudyConfig, protocol)
    return folkmoot.run(study, {**all_settings, **settings}, out=out, key="a-test-key")


def read_token_limit(body: Body) -> int | None:
    config = body.get("generationConfig") or {}
    limit: int | None = body.get("max_tokens", config.get("maxOutputTokens"))
    return limit


def read_replies(run: Run) -> list[tuple[str, str, str]]:
    with sqlite3.connect(run.path / "journal.sqlite") as db:
        return db.execute("SELECT address, reply, finish FROM entries ORDER BY address").fetchall()


class Score(BaseModel):
    score: int
    why: str = ""


async def ask_for_opinion(session: Session) -> None:
    reply = await session.ask(ANN, "What do you think?")
    session.record("said", {"text": None if isinstance(reply, Missing) else reply})


@pytest.mark.parametrize("model", MODELS)
def test_cut_reply_is_asked_for_once_more_with_twice_the_limit(
    model: str, server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(read_token_limit(body))
        if len(limits) == 1:
            return {"text": "I think that", "finish": CUT_WORD[model]}
        return {"text": "I think that parks matter."}

    server.model.says = reply_to
    finished_run = run(server, tmp_path / "run", ask_for_opinion, model, max_tokens=150)
    assert limits == [150, 300]
    assert finished_run.table("said")["text"].to_list() == ["I think that parks matter."]
    (row,) = finished_run.table("answers").to_dicts()
    assert (row["finish"], row["reasks"]) == ("stop", 0)
    assert read_replies(finished_run) == [
        ("ask0", "I think that", "length"),
        ("ask0.long", "I think that parks matter.", "stop"),
    ]
    assert finished_run.manifest["cut_replies"] == {"calls": 1, "cost_usd": None, "kept": 0}


def test_reply_that_stays_cut_is_kept_flagged_and_reported(
    server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"text": "I think that", "finish": "length"}

    async def ask_three_times(session: Session) -> None:
        await session.map(range(3), lambda scope, _: scope.ask(ANN, "What do you think?"))

    finished_run = run(server, tmp_path / "run", ask_three_times, max_tokens=150)
    assert server.model.counts["answered"] == 6
    assert finished_run.table("answers")["finish"].to_list() == ["length"] * 3
    cut_check = {
        check.key: check for check in check_answers(finished_run.table("answers").to_dicts())
    }["cut"]
    assert cut_check.verdict == "failed" and "100 %" in cut_check.says
    console = Console(record=True, width=200)
    print_results(finished_run.study, finished_run.folder, console)
    output = console.export_text()
    assert "3 replies were cut by the token limit (max_tokens: 150)." in output
    assert "3 calls (cost unknown) repeated with twice the limit." in output
    assert "3 remained cut" in output


def test_reply_cut_by_the_context_window_is_not_blamed_on_the_token_limit(
    server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {
        "text": "I think that",
        "finish": "length" if messages[-1]["content"] == "Why, 0?" else "model_length",
    }

    async def ask_three_times(session: Session) -> None:
        await session.map(range(3), lambda scope, number: scope.ask(ANN, f"Why, {number}?"))

    finished_run = run(server, tmp_path / "run", ask_three_times, max_tokens=150)
    console = Console(record=True, width=200)
    print_results(finished_run.study, finished_run.folder, console)
    output = console.export_text()
    assert "1 reply was cut by the token limit (max_tokens: 150)." in output
    assert "2 replies were cut by the context window of the model." in output
    assert "3 remained cut (`finish` is `length` or `length:model` in the table" in output
    answers = finished_run.table("answers").to_dicts()
    says = {check.key: check.says for check in check_answers(answers)}["cut"]
    assert says == (
        "100 % of 3 replies were cut by the token limit or by the context window of the model."
    )
    front = build_front_page(finished_run.folder, finished_run.study, [], [])
    assert any("2 replies were cut by the context window" in light.reason for light in front.lights)


def test_partial_value_of_a_cut_object_is_asked_for_again_and_never_counts(
    server: ServerThread, tmp_path: Path
) -> None:
    class Rating(BaseModel):
        why: str
        vote: Literal["yes", "yes, but later"] = "yes"
        score: int = 0

    cut_replies = ('{"why": "Near.", "score": 1', '{"why": "Near.", "vote": "yes', '{"why": "It is')
    server.model.says = lambda messages, body: {
        "text": cut_replies[int(messages[1]["content"])],
        "finish": "length",
    }

    async def rate(session: Session) -> None:
        for n in range(3):
            answer = await session.child(f"{n}").ask(ANN, f"{n}", answer_type=Json(Rating))
            session.record("said", {"why": None if isinstance(answer, Missing) else answer.why})

    finished_run = run(server, tmp_path / "run", rate, max_tokens=150)
    assert finished_run.table("said")["why"].to_list() == [None, None, "It is…"]
    assert finished_run.table("answers")["missing"].to_list() == ["unparsed", "unparsed", None]


def test_first_reply_is_kept_if_a_longer_one_is_refused(
    server: ServerThread, tmp_path: Path
) -> None:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        if read_token_limit(body) == 150:
            return {"text": "I think that", "finish": "length"}
        return {"status": 400, "message": "max_tokens is too large: the most is 200"}

    server.model.says = reply_to

    # More calls than the number of rejected prompts that stops a run.
    async def ask_many_times(session: Session) -> None:
        await session.map(range(8), lambda scope, _: scope.ask(ANN, "What do you think?"))

    finished_run = run(server, tmp_path / "run", ask_many_times, max_tokens=150)
    rows = finished_run.table("answers").to_dicts()
    assert [(row["finish"], row["missing"], row["words"]) for row in rows] == [
        ("length", None, 3)
    ] * 8


def test_limit_of_the_provider_is_used_if_none_was_set(
    server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(read_token_limit(body))
        return {"text": "x" * 80, "finish": "length" if len(limits) == 1 else "stop"}

    server.model.says = reply_to  # the server reports 20 tokens for 80 characters
    run(server, tmp_path / "one", ask_for_opinion)
    assert limits == [None, 40]
    server.model.says = lambda messages, body: {"text": "I th", "finish": "model_length"}
    # A limit set by us would not change the model's own limit.
    finished_run = run(server, tmp_path / "two", ask_for_opinion)
    assert [finish for _, _, finish in read_replies(finished_run)] == ["length:model"]
    assert finished_run.manifest["cut_replies"]["kept"] == 1


def test_cut_reply_without_a_known_limit_is_kept_unchanged(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda request, address: Completion("I think that", finish="length"))
    study = Study("trial", "Trial", StudyConfig, ask_for_opinion)
    finished_run = folkmoot.run(study, {}, out=tmp_path / "run", provider=model)
    assert model.calls == 1  # without a limit there is nothing to double
    assert finished_run.table("answers")["finish"].to_list() == ["length"]


def test_cut_vote_does_not_count_as_the_option_that_it_begins_like(
    server: ServerThread, tmp_path: Path
) -> None:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        is_retry = read_token_limit(body) == 4
        return {
            "text": "Plan A+" if is_retry else "Plan A",
            "finish": "stop" if is_retry else "length",
        }

    server.model.says = reply_to

    async def vote(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Plan A", "Plan A+"]))

    finished_run = run(server, tmp_path / "run", vote, max_tokens=2)
    assert finished_run.table("answers")["value"].to_list() == ["Plan A+"]


@pytest.mark.parametrize(
    ("answer_type", "cut"),
    [
        (Choice(["Park", "Park and ride"]), "Park"),
        (Number(0, 20), "1"),
        (Json(Score), '{"score": 1'),
        (JsonList(Score), '{"items": [{"score": 1'),
    ],
)
def test_reply_cut_by_the_context_window_is_no_whole_answer(
    answer_type: AnswerType[Any], cut: str, server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"text": cut, "finish": "model_length"}

    async def ask(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=answer_type)

    finished_run = run(server, tmp_path / "run", ask, max_tokens=150)
    (row,) = finished_run.table("answers").to_dicts()
    assert (row["finish"], row["missing"], row["value"]) == ("length:model", "unparsed", None)
    # A larger limit of the request would not change the model's own limit.
    assert not any(address.endswith(".long") for address, _, _ in read_replies(finished_run))


@pytest.mark.parametrize("finish", [None, "tool_calls"])
@pytest.mark.parametrize(
    ("cut", "score", "why"),
    [
        ('{"score": 1', None, None),
        ('{"why": "It is near", "score": 1', None, None),
        ('{"score": 12, "why": "It is {so} ne', 12, "It is {so} ne…"),
        ('{"score": 12, "why": "It is near"', 12, "It is near"),
        ('{"score": 12}', 12, ""),
    ],
)
def test_last_value_of_json_that_is_open_without_a_finish_reason_is_not_read(
    finish: str | None,
    cut: str,
    score: int | None,
    why: str | None,
    server: ServerThread,
    tmp_path: Path,
) -> None:
    server.model.says = lambda messages, body: {"text": cut, "finish": finish}

    async def ask(session: Session) -> None:
        answer = await session.ask(ANN, "Which?", answer_type=Json(Score))
        values = (None, None) if isinstance(answer, Missing) else (answer.score, answer.why)
        session.record("scores", {"score": values[0], "why": values[1]})

    finished_run = run(server, tmp_path / "run", ask)
    assert finished_run.table("answers")["finish"].str.starts_with("unknown").all()
    assert finished_run.table("scores").rows() == [(score, why)]


def test_clarification_of_a_cut_choice_counts_as_a_repeated_call(
    server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(read_token_limit(body))
        return {"text": "I thi", "finish": "length"} if len(limits) == 1 else {"text": "Park"}

    server.model.says = reply_to

    async def ask(session: Session) -> None:
        assert await session.ask(ANN, "Which?", answer_type=Choice(("Park", "Jobs"))) == "Park"

    finished_run = run(server, tmp_path / "run", ask, max_tokens=10)
    assert limits == [10, 20]
    assert finished_run.manifest["cut_replies"] == {"calls": 1, "cost_usd": None, "kept": 0}


def test_replay_of_cut_and_empty_replies_makes_no_calls_and_gives_the_same_bytes(
    server: ServerThread, tmp_path: Path
) -> None:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        digest = sum(map(ord, messages[-1]["content"])) % 3
        if read_token_limit(body) == 10 and digest:
            return {"text": "I thi" if digest == 1 else "", "finish": "length"}
        return {"text": "" if "empty" not in messages[-1]["content"] else "I think so."}

    server.model.says = reply_to

    async def ask_about_many_plans(session: Session) -> None:
        async def ask_about_plan(scope: Scope, number: int) -> None:
            reply = await scope.ask(ANN, f"What do you think of plan {number}?")
            scope.record("said", {"text": None if isinstance(reply, Missing) else reply})

        await session.map(range(12), ask_about_plan)

    finished_run = run(server, tmp_path / "run", ask_about_many_plans, max_tokens=10)
    table_bytes = {p.name: p.read_bytes() for p in (finished_run.path / "tables").iterdir()}
    received_count, cut_replies = (
        server.model.counts["received"],
        finished_run.manifest["cut_replies"],
    )
    replayed_run = folkmoot.run(
        Study("trial", "Trial", StudyConfig, ask_about_many_plans),
        {"model": "openai/m", "endpoints": {"openai/m": server.openai}, "max_tokens": 10},
        out=finished_run.path,
        key="a-test-key",
    )
    assert server.model.counts["received"] == received_count
    assert {p.name: p.read_bytes() for p in (replayed_run.path / "tables").iterdir()} == table_bytes
    assert replayed_run.manifest["cut_replies"] == cut_replies and cut_replies["calls"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_empty_reply_is_retried_and_then_missing(
    model: str, server: ServerThread, tmp_path: Path
) -> None:
    received_messages: list[list[dict[str, str]]] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        received_messages.append(messages)
        return {"text": ["", "  ", "\ufeff\u200b "][len(received_messages) % 3]}

    server.model.says = reply_to

    async def ask_once(session: Session) -> None:
        answer = await session.ask(ANN, "What do you think?", reasks=0)
        assert isinstance(answer, Missing) and answer.reason == "empty"

    finished_run = run(server, tmp_path / "run", ask_once, model)
    assert len(received_messages) == 3
    assert [[message["role"] for message in messages] for messages in received_messages] == [
        ["system", "user"]
    ] * 3
    assert all(
        "no answer" not in message["content"]
        for messages in received_messages
        for message in messages
    )
    assert [address for address, _, _ in read_replies(finished_run)] == [
        "ask0",
        "ask0.r1",
        "ask0.r2",
    ]
    assert finished_run.table("answers")["missing"].to_list() == ["empty"]


def test_retry_after_an_empty_reply_can_succeed(server: ServerThread, tmp_path: Path) -> None:
    replies = iter(["", "maybe", "", "50"])
    received_messages: list[list[dict[str, str]]] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        received_messages.append(messages)
        return {"text": next(replies)}

    server.model.says = reply_to

    async def vote(session: Session) -> None:
        assert await session.ask(ANN, "How sure?", answer_type=Number(0, 100), reasks=3) == 50

    run(server, tmp_path / "run", vote)
    assert [message["role"] for message in received_messages[-1]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert all(message["content"].strip() for messages in received_messages for message in messages)


def test_limit_used_up_by_reasoning_is_doubled_once(server: ServerThread, tmp_path: Path) -> None:
    limits: list[int | None] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(read_token_limit(body))
        return {"text": "<think>Well, on the one hand", "finish": "length"}

    server.model.says = reply_to
    finished_run = run(server, tmp_path / "run", ask_for_opinion, max_tokens=100)
    assert limits == [100, 200]
    (row,) = finished_run.table("answers").to_dicts()
    assert (row["missing"], row["finish"], row["words"]) == ("empty", "length", 0)


@pytest.mark.parametrize(
    "broken",
    [
        {"text": "Half an answ", "finish": "error"},
        {"text": "Half an answ", "error": {"code": 502, "message": "Provider disconnected"}},
        {"text": "", "finish": "insufficient_system_resource"},
    ],
)
def test_error_inside_a_reply_is_retried_and_never_an_answer(
    broken: Body, server: ServerThread, tmp_path: Path
) -> None:
    replies = iter([broken, {"text": "I think so."}])
    server.model.says = lambda messages, body: next(replies)
    finished_run = run(server, tmp_path / "run", ask_for_opinion)
    assert read_replies(finished_run) == [("ask0", "I think so.", "stop")]
    assert finished_run.manifest["retries"] == 1
    server.model.says = lambda messages, body: broken
    with pytest.raises(RunPausedError):
        run(server, tmp_path / "paused", ask_for_opinion, max_api_retries=1)


def test_missing_finish_reason_is_unknown(server: ServerThread, tmp_path: Path) -> None:
    server.model.says = lambda messages, body: {"text": "I think so.", "finish": None}
    finished_run = run(server, tmp_path / "run", ask_for_opinion)
    assert finished_run.table("answers")["finish"].to_list() == ["unknown"]
    cut_check = {
        check.key: check for check in check_answers(finished_run.table("answers").to_dicts())
    }["cut"]
    assert cut_check.verdict == "not known"


@pytest.mark.parametrize("status", [400, 500])
def test_model_without_a_system_role_gets_the_system_prompt_in_the_first_message(
    status: int, server: ServerThread, tmp_path: Path
) -> None:
    received_roles: list[list[str]] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        received_roles.append([message["role"] for message in messages])
        if messages[0]["role"] == "system":
            return {"status": status, "message": "Only user and assistant roles are supported!"}
        return {"text": messages[0]["content"]}

    server.model.says = reply_to

    async def ask_twice(session: Session) -> None:
        for _ in range(2):
            assert await session.ask(ANN, "Well?") == "You are Ann.\n\nWell?"

    finished_run = run(server, tmp_path / "run", ask_twice)
    # The capability is learnt once.
    assert received_roles == [["system", "user"], ["user"], ["user"]]
    assert "does not accept a system message" in (finished_run.path / "run.log").read_text("utf-8")


def build_panel(names: list[str]) -> Callable[[Session], Awaitable[None]]:
    async def protocol(session: Session) -> None:
        async def ask_participant(scope: Scope, name: str) -> None:
            reply = await scope.ask(Speaker(name, name), f"You are {name}. What do you think?")
            missing = reply.reason if isinstance(reply, Missing) else None
            scope.record("people", {"name": name, "missing": missing})

        await session.child("interview").map(names, ask_participant)

    return protocol


def reject_prompts_of(*names: str) -> Callable[[list[dict[str, str]], Body], Body]:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        is_rejected = any(f"You are {name}." in messages[-1]["content"] for name in names)
        return {"status": 400, "message": "invalid content"} if is_rejected else {"text": "Parks."}

    return reply_to


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("position", [0, 5, 11])
def test_rejected_prompt_fails_one_participant(
    position: int, concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(12)]
    server.model.says = reject_prompts_of(names[position])
    finished_run = run(server, tmp_path / "run", build_panel(names), concurrency=concurrency)
    missing = finished_run.table("people")["missing"].to_list()
    assert missing == ["rejected" if i == position else None for i in range(12)]
    log = (finished_run.path / "run.log").read_text("utf-8")
    assert f"interview/p{position}/ask0" in log and "invalid content" in log
    finish_by_address = {address: finish for address, _, finish in read_replies(finished_run)}
    assert finish_by_address[f"interview/p{position}/ask0"] == "refused:rejected"


def test_rejected_prompts_do_not_stop_a_model_that_answers_others(
    server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(24)]
    server.model.says = reject_prompts_of("p0", "p5", "p6", "p11", "p19")
    server.model.latency = 0.01
    finished_run = run(server, tmp_path / "run", build_panel(names), concurrency=24)
    assert finished_run.table("people")["missing"].null_count() == 19


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("budget", [{"budget_calls": 12}, {"budget_calls": 2}])
def test_pending_decision_on_rejected_prompts_holds_no_budget(
    budget: Body, concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(12)]
    server.model.says = reject_prompts_of("p0", "p1")
    if budget["budget_calls"] == 12:
        finished_run = run(
            server, tmp_path / "run", build_panel(names), concurrency=concurrency, **budget
        )
        assert finished_run.table("people")["missing"].null_count() == 10
    else:
        with pytest.raises((BudgetReachedError, FatalModelError)):
            run(server, tmp_path / "run", build_panel(names), concurrency=concurrency, **budget)
    server.model.says = lambda messages, body: {"status": 400, "message": "top_p: no such knob"}
    with pytest.raises((BudgetReachedError, FatalModelError)):
        run(server, tmp_path / "two", build_panel(names), concurrency=concurrency, **budget)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_error_that_concerns_every_call_stops_the_run_and_fails_no_participant(
    concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"status": 400, "message": "top_p: no such knob"}
    with pytest.raises(FatalModelError, match="no such knob"):
        run(
            server,
            tmp_path / "run",
            build_panel([f"p{i}" for i in range(60)]),
            concurrency=concurrency,
        )
    assert server.model.counts["received"] <= concurrency + 2
    with sqlite3.connect(tmp_path / "run" / "journal.sqlite") as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_rejection_of_the_first_call_stops_the_run(server: ServerThread, tmp_path: Path) -> None:
    server.model.says = lambda messages, body: {"status": 422, "message": "no"}
    with pytest.raises(FatalModelError):
        run(server, tmp_path / "run", ask_for_opinion)
    assert server.model.counts["received"] == 1


def test_three_rejected_prompts_in_a_row_stop_the_run(server: ServerThread, tmp_path: Path) -> None:
    async def in_turn(session: Session) -> None:
        for i in range(9):
            await session.ask(ANN, f"Question {i}?")

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        number = int(messages[-1]["content"][9])
        return {"status": 400, "message": "gone"} if number in (1, 2, 4, 5, 6) else {"text": "So."}

    server.model.says = reply_to
    with pytest.raises(FatalModelError, match="gone"):
        run(server, tmp_path / "run", in_turn)
    with sqlite3.connect(tmp_path / "run" / "journal.sqlite") as db:
        rows = db.execute("SELECT address, finish FROM entries ORDER BY address").fetchall()
    refused = [address for address, finish in rows if finish == "refused:rejected"]
    # The third rejected prompt in a row is asked on a resume.
    assert refused == ["ask1", "ask2", "ask4", "ask5"]


def test_wrong_key_or_unknown_model_stops_the_run_at_once(
    server: ServerThread, tmp_path: Path
) -> None:
    replies = iter([{"text": "So."}, {"status": 401, "message": "Incorrect API key"}])
    server.model.says = lambda messages, body: next(replies)
    with pytest.raises(FatalModelError, match="key"):
        run(server, tmp_path / "key", build_panel(["a", "b", "c"]), concurrency=1)
    replies = iter([{"text": "So."}, {"status": 400, "message": "The model `m` does not exist"}])
    with pytest.raises(FatalModelError, match="does not exist"):
        run(server, tmp_path / "model", build_panel(["a", "b", "c"]), concurrency=1)


def test_unreadable_answers_are_reported_at_the_end(server: ServerThread, tmp_path: Path) -> None:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        clarified = "stated" in str(body.get("response_format"))
        willing = "Ann" in messages[0]["content"]
        return {"text": '{"stated": "Park"}' if clarified and willing else "Hm, who knows"}

    server.model.says = reply_to

    class Two(BaseModel):
        words: int

    async def ask_in_two_formats(session: Session) -> None:
        await session.map(
            range(4),
            lambda scope, n: scope.ask(
                MARA if n else ANN, "Which?", answer_type=Choice(["Park", "Mall"])
            ),
        )
        await session.ask(ANN, "How many?", answer_type=Json(Two, fallback_value=Two(words=0)))
        await session.ask(ANN, "What do you think?")

    output = format_outcome(run(server, tmp_path / "run", ask_in_two_formats))
    assert "3 of 6 answers without a valid value (unparsed: 3)." in output
    assert "1 of 6 answers needed a second question about which option" in output
    assert "1 of 6 answers could not be read. The tables hold the minimal answer" in output
    assert "without a valid value" not in format_outcome(
        run(server, tmp_path / "said", ask_for_opinion)
    )


def format_outcome(finished_run: Run) -> str:
    console = Console(record=True, width=200)
    print_results(finished_run.study, finished_run.folder, console)
    return console.export_text()


def test_schema_returned_as_an_answer_is_asked_for_again_and_never_counts(
    server: ServerThread, tmp_path: Path
) -> None:
    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        willing = (
            "Ann" in messages[0]["content"]
            and "why repeats the question" in messages[-1]["content"]
        )
        return {"text": f'{{"why": "{"Parks last." if willing else "in one sentence"}"}}'}

    class Why(BaseModel):
        why: str = Field(description="in one sentence")

    async def ask_for_reason(session: Session) -> None:
        answer_type = Json(Why)
        for speaker in (ANN, MARA):
            prompt = session.prompt("why", answer_format=answer_type.describe_format())
            await session.child(speaker.id).ask(speaker, prompt, answer_type=answer_type)

    (tmp_path / "why.md").write_text("Why? Reply in JSON:\n{{ answer_format }}", "utf-8")
    server.model.says = reply_to
    study = Study("asks", "Asks", StudyConfig, ask_for_reason, prompts=tmp_path)
    finished_run = folkmoot.run(
        study,
        {"model": "openai/m", "endpoints": {"openai": f"{server.url}/v1"}},
        out=tmp_path / "r",
    )
    assert finished_run.table("answers")["reasks"].to_list() == [1, 2]
    assert finished_run.table("answers")["missing"].to_list() == [None, "unparsed"]


def test_re_ask_contains_only_the_last_unreadable_reply(tmp_path: Path) -> None:
    """Several unreadable replies would form a pattern that small models continue."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest, address: str) -> str:
        requests.append(request)
        return f"perhaps {len(requests)}"

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(200, 300), reasks=3)

    study = Study(name="again", title="Again", config=StudyConfig, protocol=protocol)
    folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(answer))
    assistant_texts = [
        [message.content for message in request.messages if message.role == "assistant"]
        for request in requests
    ]
    assert assistant_texts == [[], ["perhaps 1"], ["perhaps 2"], ["perhaps 3"]]


def test_only_the_start_of_an_endless_reply_is_quoted_in_the_re_ask(
    server: ServerThread, tmp_path: Path
) -> None:
    """The whole reply, generated at twice the limit, could exceed the context of the model."""
    sizes: list[int] = []

    def reply_to(messages: list[dict[str, str]], body: Body) -> Body:
        sizes.append(sum(len(message["content"]) for message in messages))
        return {"text": "and so on " * 5000, "finish": "length"}

    server.model.says = reply_to

    async def rate(session: Session) -> None:
        await session.ask(ANN, "How sure are you?", answer_type=Number(0, 100))

    finished_run = run(server, tmp_path / "run", rate, max_tokens=150)
    assert finished_run.table("answers")["missing"].to_list() == ["unparsed"]
    assert len(sizes) > 2 and max(sizes) < 2000
