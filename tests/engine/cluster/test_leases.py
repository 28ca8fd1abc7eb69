"""Leases: the limits of a run hold for all workers together, and nobody waits in vain."""

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
    """Workers of one lender, in one process, whose reports go round in turn."""

    concurrency: int = 4
    usd: float | None = None
    calls: int | None = None
    size: int = 2
    at_once: int = 0
    most: int = 0
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = Budget(self.usd, self.calls)
        self.head = SharedLimits(self.budget, self.concurrency)
        self.leases = Leases(self.head, 0.0, lambda _: True, self.stop_calls)
        self.workers: list[SharedLimits] = []
        self.paid: dict[int, list[float]] = {}
        for number in range(self.size):
            self.leases.add_worker(number)
            self.workers.append(self.worker())
            self.paid[number] = []

    def worker(self) -> SharedLimits:
        """What calls of a worker compete for; it has nothing yet."""
        nothing = (None if self.usd is None else 0.0, None if self.calls is None else 0)
        budget = Budget(*nothing, ask_for_more=lambda: None)
        loan = Loan(lambda: None)
        return SharedLimits(budget, LOCAL_MODEL_CONCURRENCY, tell=lambda urgent: None, loan=loan)

    def take(self, number: int, lease: Lease) -> None:
        apply_lease(lease, self.workers[number], loan_of(self.workers[number]))

    def stop_calls(self, error: FolkmootError) -> None:
        self.head.stop_calls(error)
        for worker in self.workers:
            worker.stop_calls(error)

    async def call(self, number: int, cost: float, length: int, model: str = MODEL) -> None:
        """One call of a worker, of at most its cost."""
        worker = self.workers[number]
        limiter = worker.get_limiter(model, 0.0, local=False)
        reserved = (
            await worker.budget.reserve_call(CallPrice(cost, cost))
            if worker.budget.active
            else None
        )
        await limiter.acquire(10.0)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await yield_to_loop(length)
        self.at_once -= 1
        self.done.append(number)
        limiter.release()
        limiter.record_success()
        if reserved is not None:
            worker.budget.record_cost(reserved, cost)
        self.paid[number].append(cost)

    async def report(self, number: int) -> Lease:
        """What a worker may use next; what it paid is in the journal by then."""
        paid, self.paid[number] = self.paid[number], []
        worker = self.workers[number]
        uses, money = build_report(worker, loan_of(worker), is_quiet=True)
        for cost in paid:
            self.leases.record_cost(number, cost)
        return self.leases.issue_lease(number, uses, money)

    async def go_round(self) -> None:
        while True:
            for number in range(self.size):
                lease = await self.report(number)
                await yield_to_loop(1)
                self.take(number, lease)
                await yield_to_loop(3)

    async def run(self, calls: Sequence[tuple[int, float, int]]) -> list[BaseException | None]:
        """All calls (worker, cost, length) at once; what became of each."""
        round_trip = asyncio.ensure_future(self.go_round())
        made = (self.call(*call) for call in calls)
        try:
            return await asyncio.gather(*made, return_exceptions=True)
        finally:
            round_trip.cancel()


def loan_of(worker: SharedLimits) -> Loan:
    assert worker.loan is not None
    return worker.loan


def test_a_total_is_divided_by_what_is_wanted() -> None:
    assert divide_fairly(10, [2, 20]) == [2, 8]
    assert divide_fairly(10, [20, 20]) == [5, 5]
    assert divide_fairly(10, [2, 2]) == [5, 5]  # what nobody wants goes to all alike
    assert divide_fairly(-1, [3]) == [0]


CALLS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.25, 0.5]), st.integers(0, 5)))


@settings(max_examples=30)
@given(CALLS, st.integers(1, 6))
async def test_no_more_calls_are_in_flight_than_in_one_process(
    calls: list[tuple[int, float, int]], concurrency: int
) -> None:
    fleet = Fleet(concurrency, size=3)
    assert not any(await fleet.run(calls))
    assert len(fleet.done) == len(calls) and fleet.most <= concurrency
    assert fleet.head.get_limiter(MODEL, 0.0, local=False).in_flight <= concurrency


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("size", [1, 2])
async def test_a_model_that_is_no_longer_called_leaves_its_slots_to_another(
    concurrency: int, size: int
) -> None:
    fleet = Fleet(concurrency, size=size)
    calls = [(number, 0.0, 2) for number in range(size)]
    assert not any(await fleet.run(calls))
    later = [asyncio.ensure_future(fleet.call(*call, model="openai/other")) for call in calls * 3]
    round_trip = asyncio.ensure_future(fleet.go_round())
    await yield_to_loop(500)
    round_trip.cancel()
    assert all(call.done() for call in later) and fleet.most <= concurrency


@settings(max_examples=30)
@given(CALLS, st.integers(0, 12))
async def test_a_budget_of_calls_is_used_up_to_the_last_one(
    calls: list[tuple[int, float, int]], most: int
) -> None:
    fleet = Fleet(calls=most, size=3)
    ended = await fleet.run(calls)
    assert len(fleet.done) == min(most, len(calls))
    assert all(isinstance(error, BudgetReachedError) for error in ended if error)


@settings(max_examples=30)
@given(CALLS, st.sampled_from([0.0, 0.6, 1.0, 2.75]))
async def test_a_budget_in_money_is_kept_and_used_as_far_as_calls_fit(
    calls: list[tuple[int, float, int]], usd: float
) -> None:
    fleet = Fleet(usd=usd, size=3)
    ended = await fleet.run(calls)
    left = [call[1] for call, error in zip(calls, ended, strict=True) if error]
    spent = sum(call[1] for call, error in zip(calls, ended, strict=True) if not error)
    assert spent <= usd + 1e-9
    assert not left or spent + max(left) > usd  # who was turned away did not fit


async def test_an_open_end_goes_alone_where_its_likely_cost_fits() -> None:
    fleet = Fleet(usd=1.0, size=2)
    budget = fleet.workers[0].budget
    round_trip = asyncio.ensure_future(fleet.go_round())
    assert await budget.reserve_call(CallPrice(max_usd=3.0, expected_usd=0.5)) == 3.0
    other = asyncio.ensure_future(fleet.workers[1].budget.reserve_call(CallPrice(0.1, 0.1)))
    await yield_to_loop(200)
    assert not other.done()  # as long as nobody knows what the first will cost
    budget.record_cost(3.0, 0.4)
    fleet.paid[0].append(0.4)
    assert await other == 0.1
    round_trip.cancel()


@pytest.mark.parametrize(("usd", "calls"), [(None, 1), (1.0, None)])
async def test_a_call_of_the_head_may_still_leave_room_for_that_of_a_worker(
    usd: float | None, calls: int | None
) -> None:
    fleet = Fleet(usd=usd, calls=calls, size=2)
    reserved = await fleet.budget.reserve_call(CallPrice(1.0, 1.0))
    waiting = asyncio.ensure_future(fleet.run([(0, 0.5, 1)]))
    await yield_to_loop(200)
    assert not waiting.done()
    # The call of the head fails and costs nothing.
    fleet.budget.release_reservation(reserved)
    assert await waiting == [None]


async def test_what_a_lost_worker_had_is_lent_to_others() -> None:
    fleet = Fleet(concurrency=2, calls=5, size=2)
    fleet.workers[0].get_limiter(MODEL, 0.0, local=False)
    fleet.take(0, await fleet.report(0))
    fleet.take(0, await fleet.report(0))
    hung = [asyncio.ensure_future(fleet.call(0, 0.0, 10**6)) for _ in range(4)]
    await yield_to_loop(5)
    fleet.take(0, await fleet.report(0))
    fleet.leases.remove_worker(0)
    fleet.workers = [fleet.worker(), fleet.workers[1]]
    fleet.leases.add_worker(0)
    assert not any(await fleet.run([(1, 0.0, 1)] * 5))
    for one in hung:
        one.cancel()


async def test_a_pause_that_one_worker_learns_holds_for_all() -> None:
    fleet = Fleet(size=2)
    for number in range(2):
        fleet.workers[number].get_limiter(MODEL, 0.0, local=False)
        fleet.take(number, await fleet.report(number))
    told = fleet.workers[0].limiters[MODEL]
    told.in_flight += 1
    told.record_rate_limit(told.current_time(), 30.0)
    told.release()
    fleet.take(0, await fleet.report(0))
    assert fleet.leases.hold_seconds_by_model()[MODEL] == pytest.approx(30.0, abs=5.0)
    fleet.take(1, await fleet.report(1))
    assert not fleet.workers[1].limiters[MODEL].try_acquire(1.0)
    assert fleet.workers[1].limiters[MODEL].hold_seconds == pytest.approx(30.0, abs=5.0)
    assert fleet.head.get_limiter(MODEL, 0.0, local=False).allowed < fleet.concurrency


async def test_a_rate_that_one_worker_learns_is_that_of_all() -> None:
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
