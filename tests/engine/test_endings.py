"""How replies ended, from a server's word to the tables and the end of the run: cut ones are asked
for once more, empty ones again, failures upstream are no answers, one prompt is one person's."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from rich.console import Console

import folkmoot
from folkmoot import Choice, Json, Missing, Number, Run, Session, Speaker, Study, StudyConfig
from folkmoot.cli.run import print_results
from folkmoot.engine.session.session import Scope
from folkmoot.errors import BudgetReachedError, FatalModelError, RunPausedError
from folkmoot.measures.reply_checks import check_answers
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
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
    given = {"model": model, "endpoints": {model: url}, "api_retry_base_seconds": 0.001}
    study = Study("trial", "Trial", StudyConfig, protocol)
    return folkmoot.run(study, {**given, **settings}, out=out, key="a-test-key")


def limit_of(body: Body) -> int | None:
    config = body.get("generationConfig") or {}
    found: int | None = body.get("max_tokens", config.get("maxOutputTokens"))
    return found


def journaled(run: Run) -> list[tuple[str, str, str]]:
    with sqlite3.connect(run.path / "journal.sqlite") as db:
        return db.execute("SELECT address, reply, finish FROM entries ORDER BY address").fetchall()


async def speak(session: Session) -> None:
    said = await session.ask(ANN, "What do you think?")
    session.record("said", {"text": None if isinstance(said, Missing) else said})


@pytest.mark.parametrize("model", MODELS)
def test_a_cut_reply_is_asked_for_once_more_with_twice_the_limit(
    model: str, server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(limit_of(body))
        if len(limits) == 1:
            return {"text": "I think that", "finish": CUT_WORD[model]}
        return {"text": "I think that parks matter."}

    server.model.says = says
    done = run(server, tmp_path / "run", speak, model, max_tokens=150)
    assert limits == [150, 300]
    assert done.table("said")["text"].to_list() == ["I think that parks matter."]
    (row,) = done.table("answers").to_dicts()
    assert (row["finish"], row["reasks"]) == ("stop", 0)
    assert journaled(done) == [
        ("ask0", "I think that", "length"),
        ("ask0.long", "I think that parks matter.", "stop"),
    ]
    assert done.manifest["cut_replies"] == {"calls": 1, "cost_usd": None, "kept": 0}


def test_what_stays_cut_is_kept_with_its_mark_flagged_and_told(
    server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"text": "I think that", "finish": "length"}

    async def three(session: Session) -> None:
        await session.map(range(3), lambda scope, _: scope.ask(ANN, "What do you think?"))

    done = run(server, tmp_path / "run", three, max_tokens=150)
    assert server.model.counts["answered"] == 6
    assert done.table("answers")["finish"].to_list() == ["length"] * 3
    flagged = {c.key: c for c in check_answers(done.table("answers").to_dicts())}["cut"]
    assert flagged.verdict == "failed" and "100 %" in flagged.says
    console = Console(record=True, width=200)
    print_results(done.study, done.folder, console)
    told = console.export_text()
    assert "3 replies were cut by the token limit (max_tokens: 150)." in told
    assert "3 calls (cost unknown) repeated with twice the limit." in told
    assert "3 remained cut" in told


def test_half_a_value_of_a_cut_object_is_asked_for_again_and_never_counts(
    server: ServerThread, tmp_path: Path
) -> None:
    class Rating(BaseModel):
        why: str
        vote: Literal["yes", "yes, but later"] = "yes"
        score: int = 0

    cut = ('{"why": "Near.", "score": 1', '{"why": "Near.", "vote": "yes', '{"why": "It is')
    server.model.says = lambda messages, body: {
        "text": cut[int(messages[1]["content"])],
        "finish": "length",
    }

    async def rate(session: Session) -> None:
        for n in range(3):
            got = await session.child(f"{n}").ask(ANN, f"{n}", answer_type=Json(Rating))
            session.record("said", {"why": None if isinstance(got, Missing) else got.why})

    done = run(server, tmp_path / "run", rate, max_tokens=150)
    assert done.table("said")["why"].to_list() == [None, None, "It is…"]
    assert done.table("answers")["missing"].to_list() == ["unparsed", "unparsed", None]


def test_a_longer_reply_that_cannot_be_had_leaves_the_first(
    server: ServerThread, tmp_path: Path
) -> None:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        if limit_of(body) == 150:
            return {"text": "I think that", "finish": "length"}
        return {"status": 400, "message": "max_tokens is too large: the most is 200"}

    server.model.says = says

    async def many(session: Session) -> None:  # more than would stop the run as rejected prompts
        await session.map(range(8), lambda scope, _: scope.ask(ANN, "What do you think?"))

    done = run(server, tmp_path / "run", many, max_tokens=150)
    rows = done.table("answers").to_dicts()
    assert [(r["finish"], r["missing"], r["words"]) for r in rows] == [("length", None, 3)] * 8


def test_the_limit_is_the_providers_where_none_was_set(
    server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(limit_of(body))
        return {"text": "x" * 80, "finish": "length" if len(limits) == 1 else "stop"}

    server.model.says = says  # it reports 20 tokens for 80 characters
    run(server, tmp_path / "one", speak)
    assert limits == [None, 40]
    server.model.says = lambda messages, body: {"text": "I th", "finish": "model_length"}
    done = run(server, tmp_path / "two", speak)  # no limit of ours would move the model's own end
    assert [finish for _, _, finish in journaled(done)] == ["length:model"]
    assert done.manifest["cut_replies"]["kept"] == 1


def test_without_any_limit_known_a_cut_reply_is_kept_as_it_is(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda request, address: Completion("I think that", finish="length"))
    study = Study("trial", "Trial", StudyConfig, speak)
    done = folkmoot.run(study, {}, out=tmp_path / "run", provider=model)
    assert model.calls == 1  # twice nothing is nothing
    assert done.table("answers")["finish"].to_list() == ["length"]


def test_a_cut_vote_is_no_vote_for_its_first_letters(server: ServerThread, tmp_path: Path) -> None:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        whole = limit_of(body) == 4
        return {"text": "Plan A+" if whole else "Plan A", "finish": "stop" if whole else "length"}

    server.model.says = says

    async def vote(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Plan A", "Plan A+"]))

    done = run(server, tmp_path / "run", vote, max_tokens=2)
    assert done.table("answers")["value"].to_list() == ["Plan A+"]


def test_a_replay_of_cut_and_empty_replies_asks_nothing_and_gives_the_same_bytes(
    server: ServerThread, tmp_path: Path
) -> None:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        digest = sum(map(ord, messages[-1]["content"])) % 3
        if limit_of(body) == 10 and digest:
            return {"text": "I thi" if digest == 1 else "", "finish": "length"}
        return {"text": "" if "empty" not in messages[-1]["content"] else "I think so."}

    server.model.says = says

    async def many(session: Session) -> None:
        async def one(scope: Scope, i: int) -> None:
            said = await scope.ask(ANN, f"What do you think of plan {i}?")
            scope.record("said", {"text": None if isinstance(said, Missing) else said})

        await session.map(range(12), one)

    done = run(server, tmp_path / "run", many, max_tokens=10)
    first = {p.name: p.read_bytes() for p in (done.path / "tables").iterdir()}
    asked, manifest = server.model.counts["received"], done.manifest["cut_replies"]
    again = folkmoot.run(
        Study("trial", "Trial", StudyConfig, many),
        {"model": "openai/m", "endpoints": {"openai/m": server.openai}, "max_tokens": 10},
        out=done.path,
        key="a-test-key",
    )
    assert server.model.counts["received"] == asked
    assert {p.name: p.read_bytes() for p in (again.path / "tables").iterdir()} == first
    assert again.manifest["cut_replies"] == manifest and manifest["calls"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_an_empty_reply_is_asked_for_again_and_then_missing(
    model: str, server: ServerThread, tmp_path: Path
) -> None:
    seen: list[list[dict[str, str]]] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        seen.append(messages)
        return {"text": "  " if len(seen) % 2 else ""}

    server.model.says = says

    async def once(session: Session) -> None:
        got = await session.ask(ANN, "What do you think?", reasks=0)
        assert isinstance(got, Missing) and got.reason == "empty"

    done = run(server, tmp_path / "run", once, model)
    assert len(seen) == 3
    assert [[m["role"] for m in messages] for messages in seen] == [["system", "user"]] * 3
    assert all("no answer" not in m["content"] for messages in seen for m in messages)
    assert [address for address, _, _ in journaled(done)] == ["ask0", "ask0.r1", "ask0.r2"]
    assert done.table("answers")["missing"].to_list() == ["empty"]


def test_an_empty_reply_is_often_followed_by_a_real_one(
    server: ServerThread, tmp_path: Path
) -> None:
    said = iter(["", "maybe", "", "50"])
    seen: list[list[dict[str, str]]] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        seen.append(messages)
        return {"text": next(said)}

    server.model.says = says

    async def vote(session: Session) -> None:
        assert await session.ask(ANN, "How sure?", answer_type=Number(0, 100), reasks=3) == 50

    run(server, tmp_path / "run", vote)
    assert [m["role"] for m in seen[-1]] == ["system", "user", "assistant", "user"]
    assert all(m["content"].strip() for messages in seen for m in messages)


def test_a_limit_that_thoughts_use_up_is_doubled_once_and_no_more_is_paid(
    server: ServerThread, tmp_path: Path
) -> None:
    limits: list[int | None] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        limits.append(limit_of(body))
        return {"text": "<think>Well, on the one hand", "finish": "length"}

    server.model.says = says
    done = run(server, tmp_path / "run", speak, max_tokens=100)
    assert limits == [100, 200]
    (row,) = done.table("answers").to_dicts()
    assert (row["missing"], row["finish"], row["words"]) == ("empty", "length", 0)


@pytest.mark.parametrize(
    "broken",
    [
        {"text": "Half an answ", "finish": "error"},
        {"text": "Half an answ", "error": {"code": 502, "message": "Provider disconnected"}},
        {"text": "", "finish": "insufficient_system_resource"},
    ],
)
def test_a_failure_upstream_is_tried_again_and_never_an_answer(
    broken: Body, server: ServerThread, tmp_path: Path
) -> None:
    said = iter([broken, {"text": "I think so."}])
    server.model.says = lambda messages, body: next(said)
    done = run(server, tmp_path / "run", speak)
    assert journaled(done) == [("ask0", "I think so.", "stop")]
    assert done.manifest["retries"] == 1
    server.model.says = lambda messages, body: broken
    with pytest.raises(RunPausedError):
        run(server, tmp_path / "paused", speak, max_api_retries=1)


def test_an_ending_that_nobody_tells_is_unknown(server: ServerThread, tmp_path: Path) -> None:
    server.model.says = lambda messages, body: {"text": "I think so.", "finish": None}
    done = run(server, tmp_path / "run", speak)
    assert done.table("answers")["finish"].to_list() == ["unknown"]
    found = {c.key: c for c in check_answers(done.table("answers").to_dicts())}["cut"]
    assert found.verdict == "not known"


@pytest.mark.parametrize("status", [400, 500])
def test_a_model_without_a_system_role_is_told_in_the_first_message(
    status: int, server: ServerThread, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        seen.append([m["role"] for m in messages])
        if messages[0]["role"] == "system":
            return {"status": status, "message": "Only user and assistant roles are supported!"}
        return {"text": messages[0]["content"]}

    server.model.says = says

    async def twice(session: Session) -> None:
        for _ in range(2):
            assert await session.ask(ANN, "Well?") == "You are Ann.\n\nWell?"

    done = run(server, tmp_path / "run", twice)
    assert seen == [["system", "user"], ["user"], ["user"]]  # learnt once
    assert "does not accept a system message" in (done.path / "run.log").read_text("utf-8")


def panel(names: list[str]) -> Callable[[Session], Awaitable[None]]:
    async def protocol(session: Session) -> None:
        async def one(scope: Scope, name: str) -> None:
            said = await scope.ask(Speaker(name, name), f"You are {name}. What do you think?")
            missing = said.reason if isinstance(said, Missing) else None
            scope.record("people", {"name": name, "missing": missing})

        await session.child("interview").map(names, one)

    return protocol


def poisoned(*names: str) -> Callable[[list[dict[str, str]], Body], Body]:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        bad = any(f"You are {name}." in messages[-1]["content"] for name in names)
        return {"status": 400, "message": "invalid content"} if bad else {"text": "Parks."}

    return says


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("where", [0, 5, 11])
def test_a_prompt_that_is_always_refused_fails_one_participant(
    where: int, concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(12)]
    server.model.says = poisoned(names[where])
    done = run(server, tmp_path / "run", panel(names), concurrency=concurrency)
    missing = done.table("people")["missing"].to_list()
    assert missing == ["rejected" if i == where else None for i in range(12)]
    log = (done.path / "run.log").read_text("utf-8")
    assert f"interview/p{where}/ask0" in log and "invalid content" in log
    kept = {address: finish for address, _, finish in journaled(done)}
    assert kept[f"interview/p{where}/ask0"] == "refused:rejected"


def test_several_refused_prompts_do_not_stop_a_model_that_answers_others(
    server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(24)]
    server.model.says = poisoned("p0", "p5", "p6", "p11", "p19")
    server.model.latency = 0.01
    done = run(server, tmp_path / "run", panel(names), concurrency=24)
    assert done.table("people")["missing"].null_count() == 19


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("budget", [{"budget_calls": 12}, {"budget_calls": 2}])
def test_a_verdict_that_is_due_holds_no_budget(
    budget: Body, concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    names = [f"p{i}" for i in range(12)]
    server.model.says = poisoned("p0", "p1")
    if budget["budget_calls"] == 12:
        done = run(server, tmp_path / "run", panel(names), concurrency=concurrency, **budget)
        assert done.table("people")["missing"].null_count() == 10
    else:
        with pytest.raises((BudgetReachedError, FatalModelError)):
            run(server, tmp_path / "run", panel(names), concurrency=concurrency, **budget)
    server.model.says = lambda messages, body: {"status": 400, "message": "top_p: no such knob"}
    with pytest.raises((BudgetReachedError, FatalModelError)):
        run(server, tmp_path / "two", panel(names), concurrency=concurrency, **budget)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_mistake_that_concerns_every_call_stops_the_run_and_fails_nobody(
    concurrency: int, server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"status": 400, "message": "top_p: no such knob"}
    with pytest.raises(FatalModelError, match="no such knob"):
        run(server, tmp_path / "run", panel([f"p{i}" for i in range(60)]), concurrency=concurrency)
    assert server.model.counts["received"] <= concurrency + 2
    with sqlite3.connect(tmp_path / "run" / "journal.sqlite") as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_the_first_call_of_all_being_refused_stops_the_run(
    server: ServerThread, tmp_path: Path
) -> None:
    server.model.says = lambda messages, body: {"status": 422, "message": "no"}
    with pytest.raises(FatalModelError):
        run(server, tmp_path / "run", speak)
    assert server.model.counts["received"] == 1


def test_three_refused_prompts_in_a_row_stop_the_run(server: ServerThread, tmp_path: Path) -> None:
    async def in_turn(session: Session) -> None:
        for i in range(9):
            await session.ask(ANN, f"Question {i}?")

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        number = int(messages[-1]["content"][9])
        return {"status": 400, "message": "gone"} if number in (1, 2, 4, 5, 6) else {"text": "So."}

    server.model.says = says
    with pytest.raises(FatalModelError, match="gone"):
        run(server, tmp_path / "run", in_turn)
    with sqlite3.connect(tmp_path / "run" / "journal.sqlite") as db:
        rows = db.execute("SELECT address, finish FROM entries ORDER BY address").fetchall()
    refused = [address for address, finish in rows if finish == "refused:rejected"]
    assert refused == ["ask1", "ask2", "ask4", "ask5"]  # the third in a row is asked on a resume


def test_a_wrong_key_and_an_unknown_model_stop_the_run_at_once(
    server: ServerThread, tmp_path: Path
) -> None:
    said = iter([{"text": "So."}, {"status": 401, "message": "Incorrect API key"}])
    server.model.says = lambda messages, body: next(said)
    with pytest.raises(FatalModelError, match="key"):
        run(server, tmp_path / "key", panel(["a", "b", "c"]), concurrency=1)
    said = iter([{"text": "So."}, {"status": 400, "message": "The model `m` does not exist"}])
    with pytest.raises(FatalModelError, match="does not exist"):
        run(server, tmp_path / "model", panel(["a", "b", "c"]), concurrency=1)


def test_what_could_not_be_read_is_told_at_the_end(server: ServerThread, tmp_path: Path) -> None:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        clarified = "stated" in str(body.get("response_format"))
        willing = "Ann" in messages[0]["content"]
        return {"text": '{"stated": "Park"}' if clarified and willing else "Hm, who knows"}

    server.model.says = says

    class Two(BaseModel):
        words: int

    async def ask(session: Session) -> None:
        await session.map(
            range(4),
            lambda scope, n: scope.ask(
                MARA if n else ANN, "Which?", answer_type=Choice(["Park", "Mall"])
            ),
        )
        await session.ask(ANN, "How many?", answer_type=Json(Two, fallback_value=Two(words=0)))
        await session.ask(ANN, "What do you think?")

    told = _printed(run(server, tmp_path / "run", ask))
    assert "3 of 6 answers missing (unparsed: 3)." in told
    assert "1 of 6 answers needed a second question about which option" in told
    assert "1 of 6 answers could not be read. The tables hold the minimal answer" in told
    assert "missing" not in _printed(run(server, tmp_path / "said", speak))


def _printed(done: Run) -> str:
    console = Console(record=True, width=200)
    print_results(done.study, done.folder, console)
    return console.export_text()


def test_a_form_given_back_is_asked_for_again_and_never_counts(
    server: ServerThread, tmp_path: Path
) -> None:
    def says(messages: list[dict[str, str]], body: Body) -> Body:
        willing = (
            "Ann" in messages[0]["content"]
            and "why repeats the question" in messages[-1]["content"]
        )
        return {"text": f'{{"why": "{"Parks last." if willing else "in one sentence"}"}}'}

    class Why(BaseModel):
        why: str = Field(description="in one sentence")

    async def ask(session: Session) -> None:
        wanted = Json(Why)
        for who in (ANN, MARA):
            prompt = session.prompt("why", answer_format=wanted.describe_format())
            await session.child(who.id).ask(who, prompt, answer_type=wanted)

    (tmp_path / "why.md").write_text("Why? Reply in JSON:\n{{ answer_format }}", "utf-8")
    server.model.says = says
    study = Study("asks", "Asks", StudyConfig, ask, prompts=tmp_path)
    done = folkmoot.run(
        study,
        {"model": "openai/m", "endpoints": {"openai": f"{server.url}/v1"}},
        out=tmp_path / "r",
    )
    assert done.table("answers")["reasks"].to_list() == [1, 2]
    assert done.table("answers")["missing"].to_list() == [None, "unparsed"]


def test_a_re_ask_carries_the_last_unreadable_reply_alone(tmp_path: Path) -> None:
    """Several of them are a pattern that small models go on with."""
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest, address: str) -> str:
        seen.append(request)
        return f"perhaps {len(seen)}"

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(200, 300), reasks=3)

    study = Study(name="again", title="Again", config=StudyConfig, protocol=protocol)
    folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(answer))
    said = [[m.content for m in request.messages if m.role == "assistant"] for request in seen]
    assert said == [[], ["perhaps 1"], ["perhaps 2"], ["perhaps 3"]]


def test_of_a_reply_without_end_the_start_is_given_back(
    server: ServerThread, tmp_path: Path
) -> None:
    """All of it, at twice the limit, would be more than the model can read."""
    sizes: list[int] = []

    def says(messages: list[dict[str, str]], body: Body) -> Body:
        sizes.append(sum(len(m["content"]) for m in messages))
        return {"text": "and so on " * 5000, "finish": "length"}

    server.model.says = says

    async def rate(session: Session) -> None:
        await session.ask(ANN, "How sure are you?", answer_type=Number(0, 100))

    done = run(server, tmp_path / "run", rate, max_tokens=150)
    assert done.table("answers")["missing"].to_list() == ["unparsed"]
    assert len(sizes) > 2 and max(sizes) < 2000
