"""The gateway's policy: what is asked, what is replayed, what is retried and what stops a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import folkmoot
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.progress import CallRetried, Event, Notice, ignore_progress
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import spent_in_journals
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import (
    BudgetReachedError,
    DriftError,
    FatalModelError,
    FolkmootError,
    QuotaError,
    QuotaExhaustedError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    RunPausedError,
    TransientError,
)
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.load_balancer import LoadBalancer
from folkmoot.models.request import (
    Completion,
    FloatArray,
    Message,
    ModelRequest,
    Provider,
    Usage,
)
from folkmoot.models.scripted import ScriptedProvider
from tests.turns import yield_to_loop

FAST = StudyConfig(api_retry_base_seconds=0.001, quota_wait_seconds=0.01, max_api_retries=3)
PRICED = ModelSpec(
    "openai/gpt-4o", "openai", "gpt-4o", price_provider="openai", price_model="gpt-4o"
)

LOCAL = ModelSpec("ollama/tiny", "openai", "tiny", local=True)


def build_request(text: str = "Hello", model: str = "openai/gpt-4o", **more: Any) -> ModelRequest:
    return ModelRequest(model, (Message("user", text),), **more)


@asynccontextmanager
async def open_gateway(
    folder: Path,
    model: ScriptedProvider,
    settings: StudyConfig = FAST,
    spec: ModelSpec = PRICED,
    events: list[Event] | None = None,
) -> AsyncIterator[Gateway]:
    with Journal(folder / "journal.sqlite") as journal:
        progress = events.append if events is not None else ignore_progress
        gateway = Gateway(journal, lambda name: (model, spec), settings, progress)
        yield gateway
        await gateway.wait_for_calls_in_flight()
        await gateway.close()


def list_notices(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def raise_errors_then(
    errors: list[FolkmootError], then: str = "fine"
) -> Callable[[ModelRequest, str], str]:
    """Return an answer function that raises each error once, in order, and then answers."""
    remaining_errors = list(errors)

    def answer(request: ModelRequest, address: str) -> str:
        if remaining_errors:
            raise remaining_errors.pop(0)
        return then

    return answer


async def test_answer_is_requested_once_and_then_replayed(tmp_path: Path) -> None:
    usage = Usage(1000, 100, 50)
    model = ScriptedProvider(
        lambda _request, _address: Completion("hi \ud800", usage, "served", "id-1", "length")
    )
    async with open_gateway(tmp_path, model) as first_gateway:
        live = await first_gateway.complete_request("a/ask0", build_request())
    async with open_gateway(tmp_path, model) as second_gateway:
        replayed = await second_gateway.complete_request("a/ask0", build_request())
        stats = second_gateway.usage_by_model["openai/gpt-4o"]
    assert model.calls == 1
    assert replayed == live._replace(replayed=True)  # time and cost come from the journal
    assert (live.text, live.finish, live.usage) == ("hi ?", "length", usage)
    assert (stats.calls, stats.replayed) == (0, 1)
    assert stats.input_tokens == 1000 and stats.cost_usd == live.cost_usd


async def test_cost_follows_the_price_list(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda _request, _address: Completion("x", Usage(1_000_000, 0)))
    async with open_gateway(tmp_path, model) as gateway:
        reply = await gateway.complete_request("a", build_request())
    assert reply.cost_usd == pytest.approx(2.5)


@pytest.mark.parametrize("usage", [Usage(1_000_000, 0), None])
async def test_billed_rejection_is_counted_once(usage: Usage | None, tmp_path: Path) -> None:
    rejection = RejectedError("not this prompt")
    rejection.may_be_billed, rejection.usage = True, usage
    model = ScriptedProvider(raise_errors_then([rejection]))
    budget = FAST.model_copy(update={"budget_usd": 50.0, "max_tokens": 10})
    async with open_gateway(tmp_path, model, budget) as gateway:
        reply = await gateway.complete_request("a", build_request(max_tokens=10))
        assert (await gateway.complete_request("b", build_request("Bye"))).text == "fine"
    assert reply.finish == "refused:rejected" and model.calls == 2
    broken = spent_in_journals([tmp_path / "journal.sqlite"]).broken
    if usage is not None:
        assert reply.cost_usd == pytest.approx(2.5)
    assert broken.calls == (usage is None) and (broken.usd > 0) == (usage is None)


async def test_unknown_price_gives_unknown_cost(tmp_path: Path) -> None:
    spec = ModelSpec("x/y", "openai", "y")
    async with open_gateway(
        tmp_path, ScriptedProvider(lambda _request, _address: "x"), FAST, spec
    ) as gateway:
        reply = await gateway.complete_request("a", build_request())
    assert reply.cost_usd is None


async def test_money_budget_refuses_an_unknown_price_before_the_first_call(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(lambda _request, _address: "x")
    settings = StudyConfig(budget_usd=1.0)
    async with open_gateway(tmp_path, model, settings, ModelSpec("x/y", "openai", "y")) as gateway:
        for call in (
            gateway.complete_request("a", build_request()),
            gateway.embed_texts("b", "x/y", ["text"]),
        ):
            with pytest.raises(FatalModelError, match=r"price .* is unknown.*budget_calls"):
                await call
    assert model.calls == 0


@pytest.mark.parametrize("usage", [Usage(), Usage(10), Usage(None, 10), Usage(None, None, 5)])
async def test_reply_without_usage_has_unknown_cost(usage: Usage, tmp_path: Path) -> None:
    model = ScriptedProvider(lambda _request, _address: Completion("x", usage))
    async with open_gateway(tmp_path, model) as gateway:
        reply = await gateway.complete_request("a", build_request())
        assert (reply.cost_usd, reply.usage) == (None, usage)
        stats = gateway.usage_by_model["openai/gpt-4o"]
        assert (stats.calls_without_price, stats.calls_without_token_count) == (1, 1)
    async with open_gateway(tmp_path, model) as gateway:  # a replay has the same result
        assert (await gateway.complete_request("a", build_request()))[:3] == reply[:3]


async def test_local_model_costs_nothing_with_and_without_usage(tmp_path: Path) -> None:
    local_model = ModelSpec("synthetic", "synthetic", "synthetic", local=True)
    model = ScriptedProvider(lambda _request, _address: Completion("x", Usage()))
    async with open_gateway(tmp_path, model, StudyConfig(budget_usd=0.0), local_model) as gateway:
        assert (await gateway.complete_request("a", build_request())).cost_usd == 0.0


async def test_money_budget_refuses_a_model_without_usage_at_once(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(lambda _request, _address: Completion("x", Usage()))
    async with open_gateway(tmp_path, model, StudyConfig(budget_usd=1.0)) as gateway:
        for address in "ab":
            with pytest.raises(
                FatalModelError, match=r"does not report how many tokens.*budget_calls"
            ):
                await gateway.complete_request(address, build_request())
    assert model.calls == 1
    async with open_gateway(tmp_path, model, StudyConfig(budget_calls=3)) as gateway:
        assert (
            await gateway.complete_request("a", build_request())
        ).replayed  # the paid reply is kept


async def test_rejected_request_costs_nothing(tmp_path: Path) -> None:
    model = ScriptedProvider(raise_errors_then([RefusedError("filtered", reason="filtered")]))
    async with open_gateway(tmp_path, model, StudyConfig(budget_usd=1.0)) as gateway:
        assert (await gateway.complete_request("a", build_request())).cost_usd == 0.0


async def test_failed_attempts_count_as_possibly_billed(tmp_path: Path) -> None:
    model = ScriptedProvider(
        raise_errors_then(
            [TransientError("dropped"), RateLimitedError("slow"), TransientError("?")]
        )
    )
    async with open_gateway(tmp_path, model) as gateway:
        await gateway.complete_request("a", build_request())
        assert gateway.usage_by_model["openai/gpt-4o"].lost_calls == 2


async def test_request_uses_the_api_id_of_the_model(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda _request, _address: "x", keep_requests=True)
    async with open_gateway(tmp_path, model) as gateway:
        await gateway.complete_request("a", build_request())
    assert model.seen[0][1].model == "gpt-4o" and model.seen[0][0] == "a"
    with Journal(tmp_path / "journal.sqlite") as journal:
        (entry,) = journal.read_entries()
        assert entry.model_asked == entry.request["model"] == "openai/gpt-4o"


@pytest.mark.parametrize(
    "changed",
    [
        build_request("Other"),
        build_request(temperature=0.5),
        build_request(max_tokens=3),
        build_request(schema={"type": "x"}),
    ],
)
async def test_different_request_at_the_same_address_is_drift(
    tmp_path: Path, changed: ModelRequest
) -> None:
    model = ScriptedProvider(lambda _request, _address: "x")
    async with open_gateway(tmp_path, model) as gateway:
        await gateway.complete_request("a", build_request())
    async with open_gateway(tmp_path, model) as gateway:
        with pytest.raises(DriftError):
            await gateway.complete_request("a", changed)
    assert model.calls == 1


async def test_transient_errors_are_retried_and_counted(tmp_path: Path) -> None:
    errors: list[FolkmootError] = [
        TransientError("500"),
        RateLimitedError("429", retry_after=0.01),
        TransientError("dropped"),
    ]
    events: list[Event] = []
    async with open_gateway(
        tmp_path, ScriptedProvider(raise_errors_then(errors)), events=events
    ) as gateway:
        reply = await gateway.complete_request("a", build_request())
        stats = gateway.usage_by_model["openai/gpt-4o"]
    assert reply.text == "fine"
    assert (stats.calls, stats.retries) == (1, 3)
    retries = [(event.reason, event.attempt) for event in events if isinstance(event, CallRetried)]
    assert retries == [("500", 1), ("429", 2), ("dropped", 3)]
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert [event.attempts for event in journal.read_entries()] == [4]


async def test_a_reported_wait_is_the_requested_and_the_drawn_one(tmp_path: Path) -> None:
    events: list[Event] = []
    errors: list[FolkmootError] = [TransientError("500", retry_after=0.01)]
    async with open_gateway(
        tmp_path, ScriptedProvider(raise_errors_then(errors)), events=events
    ) as gateway:
        await gateway.complete_request("a", build_request())
    (retry,) = [event for event in events if isinstance(event, CallRetried)]
    assert retry.wait_seconds > 0.01


async def test_exhausted_retries_pause_the_run_and_nothing_is_journaled(
    tmp_path: Path,
) -> None:
    def fail(request: ModelRequest, address: str) -> str:
        raise TransientError("no network")

    model = ScriptedProvider(fail)
    async with open_gateway(tmp_path, model) as gateway:
        with pytest.raises(RunPausedError, match="4 attempts"):
            await gateway.complete_request("a", build_request())
        with pytest.raises(RunPausedError):
            await gateway.complete_request("b", build_request())
    assert model.calls == 4
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert len(journal) == 0


async def test_excessive_wait_pauses_the_run(tmp_path: Path) -> None:
    model = ScriptedProvider(raise_errors_then([RateLimitedError("tomorrow", retry_after=86_400)]))
    async with open_gateway(tmp_path, model) as gateway:
        with pytest.raises(RunPausedError, match="86400 s"):
            await gateway.complete_request("a", build_request())


async def test_rate_limits_do_not_fail_a_call_while_others_succeed(tmp_path: Path) -> None:
    calls = 0

    def answer(request: ModelRequest, address: str) -> str:
        nonlocal calls
        calls += 1
        if address == "unlucky" and calls < 30:
            raise RateLimitedError("429")
        return "fine"

    async def make_other_calls(gateway: Gateway) -> None:
        for i in range(200):
            await gateway.complete_request(f"other{i}", build_request())
            await yield_to_loop(3)

    async with open_gateway(tmp_path, ScriptedProvider(answer)) as gateway:
        noise = asyncio.ensure_future(make_other_calls(gateway))
        assert (await gateway.complete_request("unlucky", build_request())).text == "fine"
        await noise


async def test_refusal_is_a_result_and_is_journaled(tmp_path: Path) -> None:
    def raise_refusal(request: ModelRequest, address: str) -> str:
        raise RefusedError("too long", reason="too_long")

    model = ScriptedProvider(raise_refusal)
    for _ in range(2):
        async with open_gateway(tmp_path, model) as gateway:
            reply = await gateway.complete_request("a", build_request())
            assert (reply.text, reply.finish) == ("", "refused:too_long")
    assert model.calls == 1


@pytest.mark.parametrize(
    ("finish", "recorded_finish"),
    [
        ("refusal", "refused:refused"),
        ("filter", "refused:filtered"),
        ("content_filter", "refused:filtered"),
        ("SAFETY", "refused:filtered"),
        ("refused", "refused:refused"),
        ("max_tokens", "length"),
        ("length", "length"),
        ("stop:unread", "stop:unread"),
        ("unknown:odd", "unknown:odd"),
    ],
)
async def test_vendors_finish_reason_from_any_provider_is_translated(
    tmp_path: Path, finish: str, recorded_finish: str
) -> None:
    model = ScriptedProvider(
        lambda _request, _address: Completion("I cannot help with that.", finish=finish)
    )
    async with open_gateway(tmp_path, model) as gateway:
        reply = await gateway.complete_request("a", build_request())
    assert (reply.finish, reply.text) == (recorded_finish, "I cannot help with that.")


async def test_wrong_key_stops_all_calls_at_once(tmp_path: Path) -> None:
    def raise_wrong_key(request: ModelRequest, address: str) -> str:
        raise FatalModelError("401")

    model = ScriptedProvider(raise_wrong_key)
    settings = StudyConfig(concurrency=1)
    async with open_gateway(tmp_path, model, settings) as gateway:
        results = await asyncio.gather(
            *(gateway.complete_request(f"a{i}", build_request()) for i in range(50)),
            return_exceptions=True,
        )
    assert all(isinstance(result, FatalModelError) for result in results)
    assert model.calls == 1


async def test_exhausted_quota_gets_one_wait_and_then_pauses_the_run(tmp_path: Path) -> None:
    provider_with_quota = ScriptedProvider(raise_errors_then([QuotaError("empty")]))
    events: list[Event] = []
    async with open_gateway(tmp_path, provider_with_quota, events=events) as gateway:
        assert (await gateway.complete_request("a", build_request())).text == "fine"
    assert list_notices(events) == ["openai/gpt-4o: empty; waiting once for 0.01 s"]
    provider_without_quota = ScriptedProvider(
        raise_errors_then([QuotaError("empty"), QuotaError("empty")])
    )
    async with open_gateway(tmp_path, provider_without_quota) as gateway:
        with pytest.raises(QuotaExhaustedError):
            await gateway.complete_request("b", build_request())
    assert provider_without_quota.calls == 2


async def test_stop_waits_for_calls_in_flight(tmp_path: Path) -> None:
    go, two_are_out = asyncio.Event(), asyncio.Event()

    async def answer_slowly(request: ModelRequest, address: str) -> str:
        if model.calls == 2:
            two_are_out.set()
        await go.wait()
        return "paid"

    model = ScriptedProvider(answer_slowly)
    settings = StudyConfig(concurrency=2)
    async with open_gateway(tmp_path, model, settings) as gateway:
        calls = [
            asyncio.ensure_future(gateway.complete_request(f"a{i}", build_request()))
            for i in range(5)
        ]
        await two_are_out.wait()
        gateway.stop_calls(RunPausedError("enough"))
        draining = asyncio.ensure_future(gateway.wait_for_calls_in_flight())
        # As the items of a cluster worker do.
        other_calls = asyncio.ensure_future(gateway.wait_for_calls_in_flight())
        await yield_to_loop(10)
        assert not draining.done()
        go.set()
        await draining
        await other_calls
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [
        Completion,
        Completion,
        RunPausedError,
        RunPausedError,
        RunPausedError,
    ]
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert [(entry.address, entry.reply) for entry in journal.read_entries()] == [
            ("a0", "paid"),
            ("a1", "paid"),
        ]


async def test_stop_cancels_calls_that_wait_for_a_retry(tmp_path: Path) -> None:
    first_call_started = asyncio.Event()

    def fail(request: ModelRequest, address: str) -> str:
        first_call_started.set()
        raise TransientError("500", retry_after=300)

    model = ScriptedProvider(fail)
    async with open_gateway(tmp_path, model) as gateway:
        call = asyncio.ensure_future(gateway.complete_request("a", build_request()))
        await first_call_started.wait()
        await yield_to_loop(10)  # it waits for the next retry
        gateway.stop_calls(RunPausedError("enough"))
        with pytest.raises(RunPausedError, match="enough"):
            await call
    assert model.calls == 1


async def test_call_budget_is_exact_and_replays_are_free(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda _request, _address: "x", latency=0.001)
    settings = StudyConfig(budget_calls=5)
    async with open_gateway(tmp_path, model, settings) as gateway:
        results = await asyncio.gather(
            *(gateway.complete_request(f"a{i}", build_request()) for i in range(9)),
            return_exceptions=True,
        )
    assert sum(isinstance(result, Completion) for result in results) == 5 == model.calls
    assert sum(isinstance(result, BudgetReachedError) for result in results) == 4
    larger_budget = StudyConfig(budget_calls=7)
    async with open_gateway(tmp_path, model, larger_budget) as gateway:
        for i in range(7):
            await gateway.complete_request(f"a{i}", build_request())
        with pytest.raises(BudgetReachedError):
            await gateway.complete_request("a7", build_request())
    assert model.calls == 7


async def test_money_budget_stops_before_it_is_exceeded(tmp_path: Path) -> None:
    model = ScriptedProvider(
        lambda _request, _address: Completion("x", Usage(40_000, 0)), latency=0.001
    )  # 0.10 USD
    events: list[Event] = []
    settings = StudyConfig(concurrency=4, budget_usd=1.0)
    async with open_gateway(tmp_path, model, settings, events=events) as gateway:
        with pytest.raises(BudgetReachedError):
            for i in range(20):
                await gateway.complete_request(f"a{i}", build_request())
        assert 0.8 <= gateway.budget.spent_usd <= 1.0 + 1e-9
    assert len(list_notices(events)) == 1 and "budget_usd" in list_notices(events)[0]


@pytest.mark.parametrize(("spec", "lost_count"), [(LOCAL, 0), (PRICED, 1)])
async def test_embeddings_before_a_stop_count_against_a_budget_unless_they_are_free(
    spec: ModelSpec, lost_count: int, tmp_path: Path
) -> None:
    class StoppingProvider(ScriptedProvider):
        async def embed_texts(self, *args: Any, **options: Any) -> Any:
            error = FatalModelError("stopped")
            error.partial_result = (np.ones((1, 2), dtype=np.float32), Usage(3, 0))
            raise error

    model, settings = StoppingProvider(lambda _request, _address: "x"), StudyConfig(budget_calls=5)
    async with open_gateway(tmp_path, model, settings, spec) as gateway:
        with pytest.raises(FatalModelError):
            await gateway.embed_texts("e", spec.name, ["one", "two"])
        assert gateway.budget.spent_calls == lost_count
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert journal.spent().total.calls == lost_count


async def test_embeddings_are_journaled_exactly(tmp_path: Path) -> None:
    model = ScriptedProvider(lambda _request, _address: "x")
    texts = ["one two", "two three", ""]
    async with open_gateway(tmp_path, model) as gateway:
        live = await gateway.embed_texts("e", "openai/emb", texts)
    async with open_gateway(tmp_path, model) as gateway:
        replayed = await gateway.embed_texts("e", "openai/emb", texts)
        with pytest.raises(DriftError):
            await gateway.embed_texts("e", "openai/emb", ["changed", "b", "c"])
    assert model.calls == 1
    assert live.shape == (3, 64) and live.dtype == np.float32
    np.testing.assert_array_equal(live, replayed)


async def test_concurrency_is_bounded(tmp_path: Path) -> None:
    open_calls = max_open_calls = 0

    async def answer(request: ModelRequest, address: str) -> str:
        nonlocal open_calls, max_open_calls
        open_calls += 1
        max_open_calls = max(max_open_calls, open_calls)
        await yield_to_loop(3)
        open_calls -= 1
        return "x"

    async with open_gateway(
        tmp_path, ScriptedProvider(answer), StudyConfig(concurrency=7)
    ) as gateway:
        await asyncio.gather(
            *(gateway.complete_request(f"a{i}", build_request()) for i in range(60))
        )
    assert max_open_calls == 7


async def test_bug_in_a_provider_is_raised(tmp_path: Path) -> None:
    def raise_key_error(request: ModelRequest, address: str) -> str:
        raise KeyError("bug")

    async with open_gateway(tmp_path, ScriptedProvider(raise_key_error)) as gateway:
        with pytest.raises(KeyError):
            await gateway.complete_request("a", build_request())
        assert gateway.in_flight == 0


async def test_local_provider_yields_to_the_event_loop(tmp_path: Path) -> None:
    turns = 0

    async def count_turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def compute_answer(request: ModelRequest, address: str) -> str:
        sum(range(20_000))
        return "x"

    local = ModelSpec("synthetic", "synthetic", "synthetic", local=True)
    async with open_gateway(tmp_path, ScriptedProvider(compute_answer), spec=local) as gateway:
        ticking = asyncio.ensure_future(count_turn())
        for i in range(300):
            await gateway.complete_request(f"a{i}", build_request())
        ticking.cancel()
    assert turns > 1


async def test_several_models_share_one_concurrency_limit(tmp_path: Path) -> None:
    open_calls = max_open_calls = 0

    async def answer(request: ModelRequest, address: str) -> str:
        nonlocal open_calls, max_open_calls
        open_calls += 1
        max_open_calls = max(max_open_calls, open_calls)
        await yield_to_loop(3)
        open_calls -= 1
        return "x"

    async with open_gateway(
        tmp_path, ScriptedProvider(answer), StudyConfig(concurrency=6)
    ) as gateway:
        requests = [build_request(model=f"openai/m{i % 3}") for i in range(60)]
        await asyncio.gather(
            *(gateway.complete_request(f"a{i}", request) for i, request in enumerate(requests))
        )
    assert max_open_calls == 6


async def test_provider_notes_are_reported_once(tmp_path: Path) -> None:
    class Talkative(ScriptedProvider):
        notes: ClassVar[list[str]] = []

    model = Talkative(
        lambda _request, address: Talkative.notes.append(f"takes no {address}") or "x"
    )
    events: list[Event] = []
    async with open_gateway(tmp_path, model, events=events) as gateway:
        await gateway.complete_request("temperature", build_request())
        assert list_notices(events) == ["takes no temperature"]
        # Two models share the provider.
        await gateway.complete_request("image", build_request(model="openai/other"))
        await gateway.complete_request("seed", build_request())
    assert list_notices(events) == ["takes no temperature", "takes no image", "takes no seed"]


async def test_notes_of_two_servers_are_reported_once(tmp_path: Path) -> None:
    class Server(ScriptedProvider):
        def __init__(self) -> None:
            super().__init__(
                lambda _request, _address: self.found.append("takes no temperature") or "x"
            )
            self.found: list[str] = []

        @property
        def notes(self) -> list[str]:
            return self.found

    first_server, second_server = Server(), Server()
    events: list[Event] = []
    async with open_gateway(
        tmp_path, LoadBalancer([first_server, second_server]), events=events
    ) as gateway:
        await gateway.complete_request("a", build_request())
        second_server.found.append("takes no schema")
        await gateway.complete_request("b", build_request())
        first_server.found.append("takes no image")
        await gateway.complete_request("c", build_request())
    lacks = ["image", "schema", "temperature"]
    assert sorted(list_notices(events)) == [f"takes no {capability}" for capability in lacks]


class WrongProvider(Provider):
    """A provider of a study author that returns other objects than it should."""

    def __init__(self, returned: object) -> None:
        self.returned: Any = returned

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        return self.returned

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        return self.returned


@pytest.mark.parametrize("returned", ["yes", None, ("yes", 1)])
def test_a_provider_that_returns_no_completion_is_named(tmp_path: Path, returned: object) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(Speaker("ann"), "Well?")

    study = Study("wrong", "Wrong", StudyConfig, protocol)
    with pytest.raises(
        FatalModelError, match=r"WrongProvider\.complete_request gave .*; return Com"
    ):
        folkmoot.run(study, {}, out=tmp_path / "run", provider=WrongProvider(returned))


@pytest.mark.parametrize("returned", [None, [[1.0]], ([[1.0]], Usage()), ("ab", Usage())])
def test_a_provider_that_returns_other_embeddings_is_named(
    tmp_path: Path, returned: object
) -> None:
    async def protocol(session: Session) -> None:
        await session.embed(["a", "b"])

    study = Study("wrong", "Wrong", StudyConfig, protocol)
    with pytest.raises(FatalModelError, match="gave no embeddings of 2 texts"):
        folkmoot.run(study, {}, out=tmp_path / "run", provider=WrongProvider(returned))
