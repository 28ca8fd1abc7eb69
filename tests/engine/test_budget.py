"""Budgets in money and calls: which calls start, which wait, and when the run pauses."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.limits.budget import Amount, Budget, CallPrice
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import BudgetReachedError, RunPausedError, TransientError
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.prices import ModelPrice, find_price
from folkmoot.models.request import Completion, Message, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider

SPEC = ModelSpec("openai/gpt-4o", "openai", "gpt-4o", price_provider="openai", price_model="gpt-4o")


def build_price(usd: float) -> CallPrice:
    return CallPrice(usd, usd)


async def spend(budget: Budget, cost: float | None, max_usd: float = 0.0) -> None:
    budget.record_cost(await budget.reserve_call(build_price(max_usd)), cost)


async def test_without_limits_every_call_starts() -> None:
    budget = Budget()
    assert not budget.active
    for _ in range(10):
        await spend(budget, 1e6)


async def test_money_budget_stops_at_the_limit() -> None:
    budget = Budget(usd=1.0)
    with pytest.raises(BudgetReachedError, match=r"budget_usd"):
        for _ in range(100):
            await spend(budget, 0.1, 0.1)
    assert budget.spent_usd == pytest.approx(1.0)


async def test_call_that_does_not_fit_waits_for_calls_in_flight() -> None:
    budget = Budget(usd=1.0)
    first = await budget.reserve_call(build_price(0.6))
    waiting = asyncio.ensure_future(budget.reserve_call(build_price(0.6)))
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.record_cost(first, 0.1)  # the cost was below the reserved maximum
    assert await waiting == 0.6


async def test_run_pauses_if_nothing_is_in_flight_and_the_next_call_does_not_fit() -> None:
    budget = Budget(usd=1.0)
    first = await budget.reserve_call(build_price(0.6))
    waiting = asyncio.ensure_future(budget.reserve_call(build_price(0.6)))
    await asyncio.sleep(0)
    budget.record_cost(first, 0.5)
    with pytest.raises(BudgetReachedError, match=r"0\.5000 USD spent.*0\.6000 USD"):
        await waiting


async def test_calls_get_money_in_order_of_arrival() -> None:
    budget = Budget(usd=1.0)
    reservation = await budget.reserve_call(build_price(1.0))
    early = asyncio.ensure_future(budget.reserve_call(build_price(0.7)))
    late = asyncio.ensure_future(budget.reserve_call(build_price(0.7)))
    await asyncio.sleep(0)
    budget.release_reservation(reservation)
    assert await early == 0.7 and not late.done()
    budget.record_cost(0.7, 0.0)
    assert await late == 0.7


async def test_stop_cancels_calls_that_wait_for_money() -> None:
    budget = Budget(usd=1.0)
    await budget.reserve_call(build_price(1.0))
    waiting = [asyncio.ensure_future(budget.reserve_call(build_price(1.0))) for _ in range(3)]
    await asyncio.sleep(0)
    budget.stop_calls(RunPausedError("enough"))
    for waiting_call in waiting:
        with pytest.raises(RunPausedError, match="enough"):
            await waiting_call


async def test_reply_without_a_limit_runs_alone_if_its_maximum_does_not_fit() -> None:
    budget = Budget(usd=1.0)
    open_end = CallPrice(max_usd=5.0, expected_usd=0.2)
    for _ in range(5):
        budget.record_cost(await budget.reserve_call(open_end), 0.2)
    with pytest.raises(BudgetReachedError, match="max_tokens is not set"):
        await budget.reserve_call(open_end)


async def test_free_calls_continue_after_the_money_is_spent() -> None:
    budget = Budget(usd=1.0, spent_usd=1.0)
    await spend(budget, 0.0, 0.0)


async def test_call_budget_is_exact_for_concurrent_calls() -> None:
    budget = Budget(calls=3)
    reserved = [await budget.reserve_call(build_price(0.0)) for _ in range(3)]
    waiting = [asyncio.ensure_future(budget.reserve_call(build_price(0.0))) for _ in range(2)]
    await asyncio.sleep(0)
    budget.release_reservation(reserved[0])  # one call failed, so its slot is free again
    await waiting[0]
    for _ in range(3):
        budget.record_cost(0.0, None)
    with pytest.raises(BudgetReachedError, match="3 calls"):
        await waiting[1]


async def test_cost_of_earlier_processes_counts() -> None:
    with pytest.raises(BudgetReachedError):
        await Budget(calls=5, spent_calls=5).reserve_call(build_price(0.0))
    with pytest.raises(BudgetReachedError):
        await Budget(usd=2.0, spent_usd=2.0).reserve_call(build_price(0.01))
    await Budget(usd=2.5, spent_usd=2.0).reserve_call(build_price(0.1))


async def test_warning_is_given_once_at_80_percent() -> None:
    messages: list[str] = []
    budget = Budget(calls=10, warn=messages.append)
    for i in range(10):
        await spend(budget, None)
        assert len(messages) == (1 if i >= 7 else 0)
    assert "budget_calls" in messages[0]


@pytest.mark.parametrize(
    ("usd", "cost", "expected"),
    [
        (0.02, 0.0191, "0.0191 of 0.02 USD"),
        (0.002, 0.0017, "0.0017 of 0.002 USD"),
        (0.0001, 0.000085, "0.000085 of 0.0001 USD"),
        (0.00001, 0.0000085, "0.0000085 of 0.000010 USD"),
        (40.0, 33.0, "33.0000 of 40 USD"),
    ],
)
async def test_warning_contains_the_sums(usd: float, cost: float, expected: str) -> None:
    messages: list[str] = []
    await spend(Budget(usd=usd, warn=messages.append), cost, cost)
    assert messages == [f"{expected} (budget_usd) have been spent."]


async def test_broken_replies_are_named_in_the_warning_but_not_counted_as_spent() -> None:
    messages: list[str] = []
    budget = Budget(usd=1.0, spent_usd=0.3, warn=messages.append)
    # Of the 0.3 USD of earlier processes.
    budget.note_broken(Amount(2, 0.2))
    await spend(budget, 0.1, 0.2)
    budget.settle_broken(await budget.reserve_call(build_price(0.5)))
    assert messages == ["0.9000 of 1 USD (budget_usd) have been spent or may have been billed."]
    budget.count_possible(Amount(4, 0.05))
    with pytest.raises(BudgetReachedError) as caught:
        await budget.reserve_call(build_price(0.3))
    assert (
        "0.2000 USD spent, up to 0.7000 USD possibly billed for 3 replies that broke off or did "
        "not arrive, up to 0.0500 USD possibly paid by processes"
    ) in str(caught.value)


async def test_calls_of_killed_processes_above_the_budget_give_correct_sums() -> None:
    budget = Budget(calls=70, spent_calls=6)
    budget.count_possible(Amount(102, 0.1))
    with pytest.raises(BudgetReachedError, match="6 calls answered, and up to 102 possibly made"):
        await budget.reserve_call(build_price(0.0))


async def test_zero_budget_allows_no_call() -> None:
    for budget in (Budget(usd=0.0), Budget(calls=0)):
        with pytest.raises(BudgetReachedError):
            await budget.reserve_call(build_price(1e-6))


def find_rate() -> ModelPrice:
    model_price = find_price(SPEC)
    assert model_price is not None
    return model_price


calls = st.tuples(
    st.text("aé한 ", min_size=1, max_size=400),  # the prompt
    st.integers(1, 300),  # max_tokens
    st.floats(0, 1),  # the share of it that the reply uses
    st.integers(1, 4),  # event loop turns until the reply: all calls have started by then
    st.integers(0, 2),  # failures before the reply
)


@settings(max_examples=150, deadline=None)
@given(st.lists(calls, min_size=1, max_size=25), st.floats(0, 0.02), st.integers(1, 8))
def test_budget_is_never_exceeded_and_never_left_unused(
    planned_calls: list[tuple[str, int, float, int, int]], usd: float, concurrency: int
) -> None:
    """Check the budget through the real gateway for all lengths, latencies, failures and limits."""
    failures = [plan[4] for plan in planned_calls]

    async def answer(request: ModelRequest, address: str) -> Completion:
        number = int(address)
        text, limit, reply_share, loop_turns, _ = planned_calls[number]
        for _ in range(loop_turns):
            await asyncio.sleep(0)
        if failures[number]:
            failures[number] -= 1
            raise TransientError("come again")
        return Completion("x", Usage(len(text.encode()) // 3 + 1, int(reply_share * limit), 0))

    async def run(folder: Path) -> tuple[float, list[CallPrice], list[object]]:
        config = StudyConfig(
            concurrency=concurrency, budget_usd=usd, api_retry_base_seconds=0.0, max_api_retries=3
        )
        with Journal(folder / "journal.sqlite") as journal:
            gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), config)

            async def make_call(number: int) -> object:
                text, limit, *_ = planned_calls[number]
                request = ModelRequest("openai/gpt-4o", (Message("user", text),), max_tokens=limit)
                return await gateway.complete_request(str(number), request)

            outcomes = await asyncio.wait_for(
                asyncio.gather(*map(make_call, range(len(planned_calls))), return_exceptions=True),
                60,
            )
            await gateway.wait_for_calls_in_flight()
            model_state = gateway._model_states["openai/gpt-4o"]
            prices = [model_state.price(len(p[0].encode()) + 32, p[1]) for p in planned_calls]
            return gateway.budget.spent_usd, prices, outcomes

    with tempfile.TemporaryDirectory() as folder:
        spent, prices, outcomes = asyncio.run(run(Path(folder)))
    assert spent <= usd + 1e-9
    unaffordable = [
        p for p, outcome in zip(prices, outcomes, strict=True) if isinstance(outcome, BaseException)
    ]
    assert all(isinstance(outcome, (Completion, BudgetReachedError)) for outcome in outcomes)
    for price in unaffordable:  # the run paused only because the budget was used up
        assert spent + price.max_usd > usd - 1e-9


async def test_money_budget_counts_replaced_entries(tmp_path: Path) -> None:
    """Entries that --accept-changes replaced were paid for as well."""
    model = ScriptedProvider(lambda _request, _address: Completion("x", Usage(1000, 100, 0)))
    for text, accept in (("one", False), ("two", True)):
        with Journal(tmp_path / "journal.sqlite", accept_changes=accept) as journal:
            gateway = Gateway(journal, lambda name: (model, SPEC), StudyConfig())
            await gateway.complete_request(
                "a", ModelRequest("openai/gpt-4o", (Message("user", text),))
            )
            await gateway.close()
    with Journal(tmp_path / "journal.sqlite") as journal:
        spent = journal.spent()
    cost = find_rate().cost(Usage(1000, 100, 0))
    assert cost is not None
    assert (spent.calls, spent.unpriced) == (2, ()) and spent.usd == pytest.approx(2 * cost)


async def test_ctrl_c_cancels_calls_that_wait_for_money(tmp_path: Path) -> None:
    """One call in flight holds the whole budget and the others wait. A stop cancels the waiting
    calls, and the call in flight is journaled."""
    call_started, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest, address: str) -> Completion:
        call_started.set()
        await may_answer.wait()
        return Completion("x", Usage(10, 10, 0))

    config = StudyConfig(budget_usd=0.0006)
    with Journal(tmp_path / "journal.sqlite") as journal:
        gateway = Gateway(journal, lambda name: (ScriptedProvider(answer), SPEC), config)
        hello_request = ModelRequest("openai/gpt-4o", (Message("user", "Hello"),), max_tokens=40)
        first = asyncio.ensure_future(gateway.complete_request("a", hello_request))
        await call_started.wait()
        waiting = [
            asyncio.ensure_future(gateway.complete_request(name, hello_request)) for name in "bcd"
        ]
        await asyncio.sleep(0)
        gateway.stop_calls(RunPausedError("Ctrl-C"))
        for waiting_call in waiting:
            with pytest.raises(RunPausedError, match="Ctrl-C"):
                await waiting_call
        may_answer.set()
        assert (await first).text == "x"
        await gateway.wait_for_calls_in_flight()
        await gateway.close()
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert len(journal) == 1
