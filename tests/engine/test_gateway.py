"""The gateway's policy: what is asked, what is replayed, what is tried again, what stops a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.progress import CallRetried, Event, Notice, ignore_progress
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    BudgetReachedError,
    DriftError,
    FatalModelError,
    FolkmootError,
    QuotaError,
    QuotaExhaustedError,
    RateLimitedError,
    RefusedError,
    RunPausedError,
    TransientError,
)
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.load_balancer import LoadBalancer
from folkmoot.models.request import Completion, Message, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider
from tests.turns import yield_to_loop

FAST = StudyConfig(api_retry_base_seconds=0.001, quota_wait_seconds=0.01, max_api_retries=3)
PRICED = ModelSpec(
    "openai/gpt-4o", "openai", "gpt-4o", price_provider="openai", price_model="gpt-4o"
)


def ask(text: str = "Hello", model: str = "openai/gpt-4o", **more: Any) -> ModelRequest:
    return ModelRequest(model, (Message("user", text),), **more)


@asynccontextmanager
async def gateway(
    folder: Path,
    model: ScriptedProvider,
    settings: StudyConfig = FAST,
    spec: ModelSpec = PRICED,
    events: list[Event] | None = None,
) -> AsyncIterator[Gateway]:
    with Journal(folder / "journal.sqlite") as journal:
        told = events.append if events is not None else ignore_progress
        opened = Gateway(journal, lambda name: (model, spec), settings, told)
        yield opened
        await opened.wait_for_calls_in_flight()
        await opened.close()


def notices(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def failing(errors: list[FolkmootError], then: str = "fine") -> Callable[[ModelRequest, str], str]:
    """Raises each error once, in order, then answers."""
    left = list(errors)

    def answer(request: ModelRequest, address: str) -> str:
        if left:
            raise left.pop(0)
        return then

    return answer


async def test_an_answer_is_asked_for_once_and_replayed_ever_after(tmp_path: Path) -> None:
    usage = Usage(1000, 100, 50)
    model = ScriptedProvider(
        lambda r, a: Completion("hi \ud800", usage, "served", "id-1", "length")
    )
    async with gateway(tmp_path, model) as first:
        live = await first.complete_request("a/ask0", ask())
    async with gateway(tmp_path, model) as again:
        replayed = await again.complete_request("a/ask0", ask())
        stats = again.usage_by_model["openai/gpt-4o"]
    assert model.calls == 1
    assert replayed == live._replace(replayed=True)  # time and cost are the journal's
    assert (live.text, live.finish, live.usage) == ("hi ?", "length", usage)
    assert (stats.calls, stats.replayed) == (0, 1)
    assert stats.input_tokens == 1000 and stats.cost_usd == live.cost_usd


async def test_the_cost_is_that_of_the_price_list(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda r, a: Completion("x", Usage(1_000_000, 0)))
    async with gateway(tmp_path, model) as opened:
        reply = await opened.complete_request("a", ask())
    assert reply.cost_usd == pytest.approx(2.5)


async def test_an_unknown_price_is_unknown(tmp_path: Path) -> None:
    spec = ModelSpec("x/y", "openai", "y")
    async with gateway(tmp_path, ScriptedProvider(lambda r, a: "x"), FAST, spec) as opened:
        reply = await opened.complete_request("a", ask())
    assert reply.cost_usd is None


async def test_with_a_budget_in_money_an_unknown_price_is_refused_before_the_first_call(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(lambda r, a: "x")
    settings = StudyConfig(budget_usd=1.0)
    async with gateway(tmp_path, model, settings, ModelSpec("x/y", "openai", "y")) as opened:
        for call in (opened.complete_request("a", ask()), opened.embed_texts("b", "x/y", ["text"])):
            with pytest.raises(FatalModelError, match=r"price .* is unknown.*budget_calls"):
                await call
    assert model.calls == 0


@pytest.mark.parametrize("usage", [Usage(), Usage(10), Usage(None, 10), Usage(None, None, 5)])
async def test_a_reply_without_usage_costs_unknown_and_never_nothing(
    usage: Usage, tmp_path: Path
) -> None:
    model = ScriptedProvider(lambda r, a: Completion("x", usage))
    async with gateway(tmp_path, model) as opened:
        reply = await opened.complete_request("a", ask())
        assert (reply.cost_usd, reply.usage) == (None, usage)
        stats = opened.usage_by_model["openai/gpt-4o"]
        assert (stats.calls_without_price, stats.calls_without_token_count) == (1, 1)
    async with gateway(tmp_path, model) as opened:  # and so it is replayed
        assert (await opened.complete_request("a", ask()))[:3] == reply[:3]


async def test_what_answers_here_costs_exactly_nothing_counted_or_not(tmp_path: Path) -> None:
    here = ModelSpec("synthetic", "synthetic", "synthetic", local=True)
    model = ScriptedProvider(lambda r, a: Completion("x", Usage()))
    async with gateway(tmp_path, model, StudyConfig(budget_usd=0.0), here) as opened:
        assert (await opened.complete_request("a", ask())).cost_usd == 0.0


async def test_with_a_budget_in_money_a_model_that_does_not_count_is_refused_at_once(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(lambda r, a: Completion("x", Usage()))
    async with gateway(tmp_path, model, StudyConfig(budget_usd=1.0)) as opened:
        for address in "ab":
            with pytest.raises(
                FatalModelError, match=r"does not report how many tokens.*budget_calls"
            ):
                await opened.complete_request(address, ask())
    assert model.calls == 1
    async with gateway(tmp_path, model, StudyConfig(budget_calls=3)) as opened:
        assert (await opened.complete_request("a", ask())).replayed  # what was paid for is kept


async def test_a_request_that_is_turned_down_costs_nothing(tmp_path: Path) -> None:
    model = ScriptedProvider(failing([RefusedError("filtered", reason="filtered")]))
    async with gateway(tmp_path, model, StudyConfig(budget_usd=1.0)) as opened:
        assert (await opened.complete_request("a", ask())).cost_usd == 0.0


async def test_tries_that_failed_on_the_way_are_counted_as_perhaps_billed(tmp_path: Path) -> None:
    model = ScriptedProvider(
        failing([TransientError("dropped"), RateLimitedError("slow"), TransientError("?")])
    )
    async with gateway(tmp_path, model) as opened:
        await opened.complete_request("a", ask())
        assert opened.usage_by_model["openai/gpt-4o"].lost_calls == 2


async def test_the_model_is_asked_by_its_name_on_the_wire(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda r, a: "x", keep_requests=True)
    async with gateway(tmp_path, model) as opened:
        await opened.complete_request("a", ask())
    assert model.seen[0][1].model == "gpt-4o" and model.seen[0][0] == "a"
    with Journal(tmp_path / "journal.sqlite") as journal:
        (entry,) = journal.read_entries()
        assert entry.model_asked == entry.request["model"] == "openai/gpt-4o"


@pytest.mark.parametrize(
    "changed", [ask("Other"), ask(temperature=0.5), ask(max_tokens=3), ask(schema={"type": "x"})]
)
async def test_another_request_at_the_same_address_is_drift(
    tmp_path: Path, changed: ModelRequest
) -> None:
    model = ScriptedProvider(lambda r, a: "x")
    async with gateway(tmp_path, model) as opened:
        await opened.complete_request("a", ask())
    async with gateway(tmp_path, model) as opened:
        with pytest.raises(DriftError):
            await opened.complete_request("a", changed)
    assert model.calls == 1


async def test_transient_errors_are_tried_again_and_counted(tmp_path: Path) -> None:
    errors: list[FolkmootError] = [
        TransientError("500"),
        RateLimitedError("429", retry_after=0.01),
        TransientError("dropped"),
    ]
    events: list[Event] = []
    async with gateway(tmp_path, ScriptedProvider(failing(errors)), events=events) as opened:
        reply = await opened.complete_request("a", ask())
        stats = opened.usage_by_model["openai/gpt-4o"]
    assert reply.text == "fine"
    assert (stats.calls, stats.retries) == (1, 3)
    told = [(e.reason, e.attempt) for e in events if isinstance(e, CallRetried)]
    assert told == [("500", 1), ("429", 2), ("dropped", 3)]
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert [e.attempts for e in journal.read_entries()] == [4]


async def test_when_tries_are_used_up_the_run_pauses_and_nothing_is_journaled(
    tmp_path: Path,
) -> None:
    def down(request: ModelRequest, address: str) -> str:
        raise TransientError("no network")

    model = ScriptedProvider(down)
    async with gateway(tmp_path, model) as opened:
        with pytest.raises(RunPausedError, match="4 attempts"):
            await opened.complete_request("a", ask())
        with pytest.raises(RunPausedError):
            await opened.complete_request("b", ask())
    assert model.calls == 4
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert len(journal) == 0


async def test_a_wait_beyond_reason_pauses_the_run(tmp_path: Path) -> None:
    model = ScriptedProvider(failing([RateLimitedError("tomorrow", retry_after=86_400)]))
    async with gateway(tmp_path, model) as opened:
        with pytest.raises(RunPausedError, match="86400 s"):
            await opened.complete_request("a", ask())


async def test_rate_limits_do_not_fail_a_call_while_others_get_through(tmp_path: Path) -> None:
    calls = 0

    def answer(request: ModelRequest, address: str) -> str:
        nonlocal calls
        calls += 1
        if address == "unlucky" and calls < 30:
            raise RateLimitedError("429")
        return "fine"

    async def others(opened: Gateway) -> None:
        for i in range(200):
            await opened.complete_request(f"other{i}", ask())
            await yield_to_loop(3)

    async with gateway(tmp_path, ScriptedProvider(answer)) as opened:
        noise = asyncio.ensure_future(others(opened))
        assert (await opened.complete_request("unlucky", ask())).text == "fine"
        await noise


async def test_a_refusal_is_an_outcome_and_is_kept(tmp_path: Path) -> None:
    def refuse(request: ModelRequest, address: str) -> str:
        raise RefusedError("too long", reason="too_long")

    model = ScriptedProvider(refuse)
    for _ in range(2):
        async with gateway(tmp_path, model) as opened:
            reply = await opened.complete_request("a", ask())
            assert (reply.text, reply.finish) == ("", "refused:too_long")
    assert model.calls == 1


@pytest.mark.parametrize(
    ("finish", "kept"), [("refusal", "refused:refused"), ("filter", "refused:filtered")]
)
async def test_a_refusal_by_any_name_is_one(tmp_path: Path, finish: str, kept: str) -> None:
    model = ScriptedProvider(lambda r, a: Completion("I cannot help with that.", finish=finish))
    async with gateway(tmp_path, model) as opened:
        reply = await opened.complete_request("a", ask())
    assert (reply.finish, reply.text) == (kept, "I cannot help with that.")


async def test_a_wrong_key_stops_everybody_at_once(tmp_path: Path) -> None:
    def wrong(request: ModelRequest, address: str) -> str:
        raise FatalModelError("401")

    model = ScriptedProvider(wrong)
    settings = StudyConfig(concurrency=1)
    async with gateway(tmp_path, model, settings) as opened:
        results = await asyncio.gather(
            *(opened.complete_request(f"a{i}", ask()) for i in range(50)), return_exceptions=True
        )
    assert all(isinstance(r, FatalModelError) for r in results)
    assert model.calls == 1


async def test_an_empty_account_gets_one_wait_and_then_the_run_pauses(tmp_path: Path) -> None:
    back = ScriptedProvider(failing([QuotaError("empty")]))
    events: list[Event] = []
    async with gateway(tmp_path, back, events=events) as opened:
        assert (await opened.complete_request("a", ask())).text == "fine"
    assert notices(events) == ["openai/gpt-4o: empty; waiting once for 0.01 s"]
    empty = ScriptedProvider(failing([QuotaError("empty"), QuotaError("empty")]))
    async with gateway(tmp_path, empty) as opened:
        with pytest.raises(QuotaExhaustedError):
            await opened.complete_request("b", ask())
    assert empty.calls == 2


async def test_a_stop_lets_calls_in_flight_come_home(tmp_path: Path) -> None:
    go, two_are_out = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest, address: str) -> str:
        if model.calls == 2:
            two_are_out.set()
        await go.wait()
        return "paid"

    model = ScriptedProvider(slow)
    settings = StudyConfig(concurrency=2)
    async with gateway(tmp_path, model, settings) as opened:
        calls = [asyncio.ensure_future(opened.complete_request(f"a{i}", ask())) for i in range(5)]
        await two_are_out.wait()
        opened.stop_calls(RunPausedError("enough"))
        draining = asyncio.ensure_future(opened.wait_for_calls_in_flight())
        others = asyncio.ensure_future(
            opened.wait_for_calls_in_flight()
        )  # as shares of a cluster's worker do
        await yield_to_loop(10)
        assert not draining.done()
        go.set()
        await draining
        await others
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(r) for r in results] == [
        Completion,
        Completion,
        RunPausedError,
        RunPausedError,
        RunPausedError,
    ]
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert [(e.address, e.reply) for e in journal.read_entries()] == [
            ("a0", "paid"),
            ("a1", "paid"),
        ]


async def test_a_stop_wakes_those_who_wait_to_try_again(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def down(request: ModelRequest, address: str) -> str:
        asked.set()
        raise TransientError("500", retry_after=300)

    model = ScriptedProvider(down)
    async with gateway(tmp_path, model) as opened:
        call = asyncio.ensure_future(opened.complete_request("a", ask()))
        await asked.wait()
        await yield_to_loop(10)  # it waits to try again
        opened.stop_calls(RunPausedError("enough"))
        with pytest.raises(RunPausedError, match="enough"):
            await call
    assert model.calls == 1


async def test_the_budget_of_calls_holds_exactly_and_replays_are_free(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda r, a: "x", latency=0.001)
    settings = StudyConfig(budget_calls=5)
    async with gateway(tmp_path, model, settings) as opened:
        results = await asyncio.gather(
            *(opened.complete_request(f"a{i}", ask()) for i in range(9)), return_exceptions=True
        )
    assert sum(isinstance(r, Completion) for r in results) == 5 == model.calls
    assert sum(isinstance(r, BudgetReachedError) for r in results) == 4
    more = StudyConfig(budget_calls=7)
    async with gateway(tmp_path, model, more) as opened:
        for i in range(7):
            await opened.complete_request(f"a{i}", ask())
        with pytest.raises(BudgetReachedError):
            await opened.complete_request("a7", ask())
    assert model.calls == 7


async def test_the_budget_of_money_stops_before_it_is_overspent(tmp_path: Path) -> None:
    model = ScriptedProvider(
        lambda r, a: Completion("x", Usage(40_000, 0)), latency=0.001
    )  # 0.10 USD
    events: list[Event] = []
    settings = StudyConfig(concurrency=4, budget_usd=1.0)
    async with gateway(tmp_path, model, settings, events=events) as opened:
        with pytest.raises(BudgetReachedError):
            for i in range(20):
                await opened.complete_request(f"a{i}", ask())
        assert 0.8 <= opened.budget.spent_usd <= 1.0 + 1e-9
    assert len(notices(events)) == 1 and "budget_usd" in notices(events)[0]


async def test_embeddings_are_journaled_to_the_last_bit(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda r, a: "x")
    texts = ["one two", "two three", ""]
    async with gateway(tmp_path, model) as opened:
        live = await opened.embed_texts("e", "openai/emb", texts)
    async with gateway(tmp_path, model) as opened:
        replayed = await opened.embed_texts("e", "openai/emb", texts)
        with pytest.raises(DriftError):
            await opened.embed_texts("e", "openai/emb", ["changed", "b", "c"])
    assert model.calls == 1
    assert live.shape == (3, 64) and live.dtype == np.float32
    np.testing.assert_array_equal(live, replayed)


async def test_concurrency_is_bounded(tmp_path: Path) -> None:
    now = most = 0

    async def answer(request: ModelRequest, address: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await yield_to_loop(3)
        now -= 1
        return "x"

    async with gateway(tmp_path, ScriptedProvider(answer), StudyConfig(concurrency=7)) as opened:
        await asyncio.gather(*(opened.complete_request(f"a{i}", ask()) for i in range(60)))
    assert most == 7


async def test_a_bug_in_a_provider_is_not_swallowed(tmp_path: Path) -> None:
    def broken(request: ModelRequest, address: str) -> str:
        raise KeyError("bug")

    async with gateway(tmp_path, ScriptedProvider(broken)) as opened:
        with pytest.raises(KeyError):
            await opened.complete_request("a", ask())
        assert opened.in_flight == 0


async def test_a_provider_here_lets_the_loop_turn(tmp_path: Path) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def busy(request: ModelRequest, address: str) -> str:
        sum(range(20_000))
        return "x"

    local = ModelSpec("synthetic", "synthetic", "synthetic", local=True)
    async with gateway(tmp_path, ScriptedProvider(busy), spec=local) as opened:
        ticking = asyncio.ensure_future(tick())
        for i in range(300):
            await opened.complete_request(f"a{i}", ask())
        ticking.cancel()
    assert turns > 1


async def test_several_models_share_the_one_concurrency(tmp_path: Path) -> None:
    now = most = 0

    async def answer(request: ModelRequest, address: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await yield_to_loop(3)
        now -= 1
        return "x"

    async with gateway(tmp_path, ScriptedProvider(answer), StudyConfig(concurrency=6)) as opened:
        requests = [ask(model=f"openai/m{i % 3}") for i in range(60)]
        await asyncio.gather(*(opened.complete_request(f"a{i}", r) for i, r in enumerate(requests)))
    assert most == 6


async def test_what_a_provider_finds_out_is_told_once(tmp_path: Path) -> None:
    class Talkative(ScriptedProvider):
        notes: ClassVar[list[str]] = []

    model = Talkative(lambda r, address: Talkative.notes.append(f"takes no {address}") or "x")
    events: list[Event] = []
    async with gateway(tmp_path, model, events=events) as opened:
        await opened.complete_request("temperature", ask())
        assert notices(events) == ["takes no temperature"]
        # Two models share the provider.
        await opened.complete_request("image", ask(model="openai/other"))
        await opened.complete_request("seed", ask())
    assert notices(events) == ["takes no temperature", "takes no image", "takes no seed"]


async def test_what_either_of_two_servers_finds_out_is_told_once(tmp_path: Path) -> None:
    class Server(ScriptedProvider):
        def __init__(self) -> None:
            super().__init__(lambda r, a: self.found.append("takes no temperature") or "x")
            self.found: list[str] = []

        @property
        def notes(self) -> list[str]:
            return self.found

    first, second = Server(), Server()
    events: list[Event] = []
    async with gateway(tmp_path, LoadBalancer([first, second]), events=events) as opened:
        await opened.complete_request("a", ask())
        second.found.append("takes no schema")
        await opened.complete_request("b", ask())
        first.found.append("takes no image")
        await opened.complete_request("c", ask())
    lacks = ["image", "schema", "temperature"]
    assert sorted(notices(events)) == [f"takes no {what}" for what in lacks]
