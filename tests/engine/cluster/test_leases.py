"""Leases: the limits of a run hold for all workers together, and no call waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.engine.calls.retries import LOCAL_MODEL_CONCURRENCY, SharedLimits
from folkmoot.engine.cluster.leases import Lease, Leases, apply_lease, build_report, divide_fairly
from folkmoot.engine.limits.budget import Budget, CallPrice
from folkmoot.engine.limits.lender import Loan
from folkmoot.errors import BudgetReachedError, FolkmootError, RunPausedError
from tests.turns import yield_to_loop

MODEL = "openai/m"


@dataclass
class Fleet:
    """Workers of one lender in one process. Their reports are processed in turn."""

    concurrency: int = 4
    usd: float | None = None
    calls: int | None = None
    size: int = 2
    at_once: int = 0
    max_at_once: int = 0
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = Budget(self.usd, self.calls)
        self.head = SharedLimits(self.budget, self.concurrency)
        self.leases = Leases(self.head, 0.0, lambda _: True, self.stop_calls)
        self.workers: list[SharedLimits] = []
        self.paid: dict[int, list[float]] = {}
        for number in range(self.size):
            self.leases.add_worker(number)
            self.workers.append(self.create_worker())
            self.paid[number] = []

    def create_worker(self) -> SharedLimits:
        """Return the shared limits of a new worker without a loan."""
        nothing = (None if self.usd is None else 0.0, None if self.calls is None else 0)
        budget = Budget(*nothing, ask_for_more=lambda: None)
        loan = Loan(lambda: None)
        return SharedLimits(budget, LOCAL_MODEL_CONCURRENCY, tell=lambda urgent: None, loan=loan)

    def apply_lease(self, number: int, lease: Lease) -> None:
        apply_lease(lease, self.workers[number], require_loan(self.workers[number]))

    def stop_calls(self, error: FolkmootError) -> None:
        self.head.stop_calls(error)
        for worker in self.workers:
            worker.stop_calls(error)

    async def call(self, number: int, cost: float, length: int, model: str = MODEL) -> None:
        """Make one call of a worker with this maximum cost."""
        worker = self.workers[number]
        limiter = worker.get_limiter(model, 0.0, local=False)
        reserved = (
            await worker.budget.reserve_call(CallPrice(cost, cost))
            if worker.budget.active
            else None
        )
        await limiter.acquire(10.0)
        self.at_once += 1
        self.max_at_once = max(self.max_at_once, self.at_once)
        await yield_to_loop(length)
        self.at_once -= 1
        self.done.append(number)
        limiter.release()
        limiter.record_success()
        if reserved is not None:
            worker.budget.record_cost(reserved, cost)
        self.paid[number].append(cost)

    async def report(self, number: int) -> Lease:
        """Report the use of a worker and return its next lease. Its payments are journaled."""
        paid, self.paid[number] = self.paid[number], []
        worker = self.workers[number]
        uses, money = build_report(worker, require_loan(worker), is_quiet=True)
        for cost in paid:
            self.leases.record_cost(number, cost)
        return self.leases.issue_lease(number, uses, money)

    async def go_round(self) -> None:
        while True:
            for number in range(self.size):
                lease = await self.report(number)
                await yield_to_loop(1)
                self.apply_lease(number, lease)
                await yield_to_loop(3)

    async def run(self, calls: Sequence[tuple[int, float, int]]) -> list[BaseException | None]:
        """Start all calls (worker, cost, length) at once. Return the exception of each, if any."""
        round_trip = asyncio.ensure_future(self.go_round())
        open_calls = (self.call(*call) for call in calls)
        try:
            return await asyncio.gather(*open_calls, return_exceptions=True)
        finally:
            round_trip.cancel()


def require_loan(worker: SharedLimits) -> Loan:
    assert worker.loan is not None
    return worker.loan


def test_total_is_divided_by_demand() -> None:
    assert divide_fairly(10, [2, 20]) == [2, 8]
    assert divide_fairly(10, [20, 20]) == [5, 5]
    assert divide_fairly(10, [2, 2]) == [5, 5]  # the unused rest is divided equally
    assert divide_fairly(-1, [3]) == [0]


CALLS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.25, 0.5]), st.integers(0, 5)))


@settings(max_examples=30)
@given(CALLS, st.integers(1, 6))
async def test_no_more_calls_are_in_flight_than_in_one_process(
    calls: list[tuple[int, float, int]], concurrency: int
) -> None:
    fleet = Fleet(concurrency, size=3)
    assert not any(await fleet.run(calls))
    assert len(fleet.done) == len(calls) and fleet.max_at_once <= concurrency
    assert fleet.head.get_limiter(MODEL, 0.0, local=False).in_flight <= concurrency


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("size", [1, 2])
async def test_unused_model_gives_its_slots_to_another(concurrency: int, size: int) -> None:
    fleet = Fleet(concurrency, size=size)
    calls = [(number, 0.0, 2) for number in range(size)]
    assert not any(await fleet.run(calls))
    later_calls = [
        asyncio.ensure_future(fleet.call(*call, model="openai/other")) for call in calls * 3
    ]
    round_trip = asyncio.ensure_future(fleet.go_round())
    await yield_to_loop(500)
    round_trip.cancel()
    assert all(call.done() for call in later_calls) and fleet.max_at_once <= concurrency


@settings(max_examples=30)
@given(CALLS, st.integers(0, 12))
async def test_call_budget_is_used_up_to_the_last_call(
    calls: list[tuple[int, float, int]], call_limit: int
) -> None:
    fleet = Fleet(calls=call_limit, size=3)
    outcomes = await fleet.run(calls)
    assert len(fleet.done) == min(call_limit, len(calls))
    assert all(isinstance(error, BudgetReachedError) for error in outcomes if error)


@settings(max_examples=30)
@given(CALLS, st.sampled_from([0.0, 0.6, 1.0, 2.75]))
async def test_money_budget_is_kept_and_used_as_far_as_calls_fit(
    calls: list[tuple[int, float, int]], usd: float
) -> None:
    fleet = Fleet(usd=usd, size=3)
    outcomes = await fleet.run(calls)
    refused_costs = [call[1] for call, error in zip(calls, outcomes, strict=True) if error]
    spent = sum(call[1] for call, error in zip(calls, outcomes, strict=True) if not error)
    assert spent <= usd + 1e-9
    assert not refused_costs or spent + max(refused_costs) > usd  # refused calls did not fit


async def test_call_without_a_limit_runs_alone_if_its_expected_cost_fits() -> None:
    fleet = Fleet(usd=1.0, size=2)
    budget = fleet.workers[0].budget
    round_trip = asyncio.ensure_future(fleet.go_round())
    assert await budget.reserve_call(CallPrice(max_usd=3.0, expected_usd=0.5)) == 3.0
    other_call = asyncio.ensure_future(fleet.workers[1].budget.reserve_call(CallPrice(0.1, 0.1)))
    await yield_to_loop(200)
    assert not other_call.done()  # as long as the cost of the first call is unknown
    budget.record_cost(3.0, 0.4)
    fleet.paid[0].append(0.4)
    assert await other_call == 0.1
    round_trip.cancel()


@pytest.mark.parametrize(("usd", "calls"), [(None, 1), (1.0, None)])
async def test_call_of_the_head_leaves_room_for_a_worker(
    usd: float | None, calls: int | None
) -> None:
    fleet = Fleet(usd=usd, calls=calls, size=2)
    reserved = await fleet.budget.reserve_call(CallPrice(1.0, 1.0))
    waiting = asyncio.ensure_future(fleet.run([(0, 0.5, 1)]))
    await yield_to_loop(200)
    assert not waiting.done()
    # The call of the head fails without a cost.
    fleet.budget.release_reservation(reserved)
    assert await waiting == [None]


async def test_loan_of_a_lost_worker_goes_to_others() -> None:
    fleet = Fleet(concurrency=2, calls=5, size=2)
    fleet.workers[0].get_limiter(MODEL, 0.0, local=False)
    fleet.apply_lease(0, await fleet.report(0))
    fleet.apply_lease(0, await fleet.report(0))
    hung_calls = [asyncio.ensure_future(fleet.call(0, 0.0, 10**6)) for _ in range(4)]
    await yield_to_loop(5)
    fleet.apply_lease(0, await fleet.report(0))
    fleet.leases.remove_worker(0)
    fleet.workers = [fleet.create_worker(), fleet.workers[1]]
    fleet.leases.add_worker(0)
    assert not any(await fleet.run([(1, 0.0, 1)] * 5))
    for hung_call in hung_calls:
        hung_call.cancel()


async def test_pause_learnt_by_one_worker_holds_for_all() -> None:
    fleet = Fleet(size=2)
    for number in range(2):
        fleet.workers[number].get_limiter(MODEL, 0.0, local=False)
        fleet.apply_lease(number, await fleet.report(number))
    limiter = fleet.workers[0].limiters[MODEL]
    limiter.in_flight += 1
    limiter.record_rate_limit(limiter.current_time(), 30.0)
    limiter.release()
    fleet.apply_lease(0, await fleet.report(0))
    assert fleet.leases.hold_seconds_by_model()[MODEL] == pytest.approx(30.0, abs=5.0)
    fleet.apply_lease(1, await fleet.report(1))
    assert not fleet.workers[1].limiters[MODEL].try_acquire(1.0)
    assert fleet.workers[1].limiters[MODEL].hold_seconds == pytest.approx(30.0, abs=5.0)
    assert fleet.head.get_limiter(MODEL, 0.0, local=False).allowed < fleet.concurrency


async def test_rate_learnt_by_one_worker_holds_for_all() -> None:
    fleet = Fleet(concurrency=100, size=3)
    for worker in fleet.workers:
        worker.get_limiter(MODEL, 0.0, local=False)
    hints = {"requests_limit": 9.0, "requests_remaining": 6.0, "requests_reset": 600.0}
    fleet.workers[0].limiters[MODEL].record_success(hints)
    waiting = [asyncio.ensure_future(fleet.call(n % 3, 0.0, 0)) for n in range(30)]
    round_trip = asyncio.ensure_future(fleet.go_round())
    await yield_to_loop(500)
    assert len(fleet.done) == 6
    fleet.stop_calls(RunPausedError("enough"))
    await asyncio.gather(*waiting, return_exceptions=True)
    round_trip.cancel()
