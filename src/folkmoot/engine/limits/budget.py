"""The user's budget in money and in calls: which calls may start, which wait, and when to stop.

It covers the whole run, however often it is resumed: what earlier processes spent counts, replayed
calls cost nothing. Every call reserves the most it may cost before it starts, so calls already in
flight cannot exceed a budget. What a killed process may have paid counts as spent. Used by the
gateway, and on each worker of a cluster, where the budget is what the head gave out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from folkmoot.errors import BudgetReachedError, FolkmootError

WARNING_SHARE = 0.8
KILLED = "a process that was killed with calls in flight"
GRACE_LOOP_ITERATIONS = (
    200  # of the loop, for calls that are on their way when nothing is in flight
)
_USD_TOLERANCE = 1e-12  # USD; sums of floats


class CallPrice(NamedTuple):
    """What a call may cost (USD) before it is made.

    `expected_usd` is less than `max_usd` only where nothing bounds the reply (no max_tokens): such
    a call may go alone when its dearest does not fit, or a small budget would buy nothing at all.
    """

    max_usd: float = 0.0
    expected_usd: float = 0.0


class Amount(NamedTuple):
    """Calls, and the most that they may cost (USD)."""

    calls: int = 0
    usd: float = 0.0

    def add_amount(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.usd + other.usd)

    def subtract_amount(self, other: Amount) -> Amount:
        return Amount(self.calls - other.calls, self.usd - other.usd)

    def covers_amount(self, other: Amount) -> bool:
        return self.calls >= other.calls and self.usd >= other.usd


NOTHING = Amount()


class BudgetWaiter(NamedTuple):
    """A call that waits for money."""

    admitted: asyncio.Future[bool]
    price: CallPrice


class Budget:
    """Counts what is spent and what is in flight; lets a call wait that would go over.

    `usd` and `calls` are the limits (None: none); `spent_usd` and `spent_calls` what earlier
    processes of this run took; `warn` is told once, at 80 %. `reserve_call` raises
    BudgetReached only when nothing is in flight that could give money back, and no call that waits
    would fit. With `ask_for_more` it never does: it is called when a call does not fit, and
    `raise_limits` gives more.
    """

    def __init__(
        self,
        usd: float | None = None,
        calls: int | None = None,
        *,
        spent_usd: float = 0.0,
        spent_calls: int = 0,
        warn: Callable[[str], None] = lambda _: None,
        ask_for_more: Callable[[], None] | None = None,
    ) -> None:
        self.usd = usd
        self.calls = calls
        self.spent_usd = spent_usd
        self.spent_calls = spent_calls
        self.active = usd is not None or calls is not None
        self.out_calls = 0  # of loans that are not settled (`LoanManager`)
        self.out_usd = 0.0
        self._possible = NOTHING
        self._warn = warn
        self._ask_for_more = ask_for_more
        self._warned = False
        self._reserved = 0.0
        self._in_flight = 0
        self._lent_usd = 0.0  # to workers of a cluster
        self._lent_calls = 0
        self._waiting: deque[BudgetWaiter] = deque()  # first come, first served
        self._judging = False
        self._stopped: FolkmootError | None = None

    async def reserve_call(self, price: CallPrice) -> float:
        """Wait until a call fits; what was reserved (USD). Raises BudgetReached, or what
        `stop_calls` was given."""
        if self._stopped is None and not self._waiting and self._fits_budget(price.max_usd):
            return self._reserve_now(price)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(BudgetWaiter(future, price))
        self._admit_waiting_calls()
        try:
            admitted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.release_reservation(
                    price.max_usd
                )  # it was let in in the same turn of the loop
            raise
        if admitted:
            if self._stopped is None:
                return price.max_usd
            self.release_reservation(price.max_usd)
        assert self._stopped is not None
        raise self._stopped.with_traceback(None)

    def record_cost(self, reserved: float, cost: float | None) -> None:
        """The call was answered: what it cost replaces what was reserved; where the cost is
        unknown, the reserve is the best bound there is."""
        self.count(reserved if cost is None else cost)
        self.release_reservation(reserved)

    def settle_broken(self, reserved: float) -> None:
        """The reply to an admitted call broke off: count all that was reserved for it as spent,
        since the vendor may bill it. It is no answer, so it is not one of the calls."""
        self.record_spending(reserved)
        self.release_reservation(reserved)

    def count(self, cost: float) -> None:
        """A call was answered, whoever made it."""
        self.spent_calls += 1
        self.record_spending(cost)

    def record_spending(self, usd: float) -> None:
        """Add to what is spent, and warn once when the budget is nearly used up."""
        self.spent_usd += usd
        if not self._warned and (message := self._warn_near_limit()):
            self._warned = True
            self._warn(message)

    def count_possible(self, amount: Amount) -> None:
        """Count what a process may have paid that was killed."""
        self._possible = self._possible.add_amount(amount)
        self.spent_calls += amount.calls
        self.spent_usd += amount.usd

    def left(self) -> tuple[float | None, int | None]:
        """What is not spent (USD, calls); None without a limit."""
        return (
            None if self.usd is None else self.usd - self.spent_usd,
            None if self.calls is None else self.calls - self.spent_calls,
        )

    def raise_limits(self, usd: float, calls: int) -> None:
        """Go on with more."""
        if self.usd is not None:
            self.usd += usd
        if self.calls is not None:
            self.calls += calls
        self._admit_waiting_calls()

    def take_free(self) -> tuple[float, int]:
        """Take away what is neither spent nor reserved (USD, calls)."""
        usd, calls = self.remaining()
        usd = max(0.0, usd - _USD_TOLERANCE)
        if self.usd is not None:
            self.usd -= usd
        if self.calls is not None:
            self.calls -= calls
        return usd, calls

    @property
    def prices_waiting(self) -> list[CallPrice]:
        """The prices of the calls that wait for money here, in order."""
        return [
            budget_waiter.price
            for budget_waiter in self._waiting
            if not budget_waiter.admitted.done()
        ]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is reserved."""
        return not self._in_flight

    def lend_to_worker(self, usd: float, calls: int) -> None:
        """Keep so much for the calls of others; below zero it is given back."""
        self._lent_usd += usd
        self._lent_calls += calls
        if usd < 0 or calls < 0:
            self._admit_waiting_calls()

    def remaining(self) -> tuple[float, int]:
        """What is neither spent nor kept for a call (USD, calls); without a limit nothing."""
        usd = (self.usd or 0.0) - self.spent_usd - self._reserved - self._lent_usd
        calls = (self.calls or 0) - self.spent_calls - self._in_flight - self._lent_calls
        return max(0.0, usd + _USD_TOLERANCE), max(0, calls)

    @property
    def waiting_count(self) -> int:
        """How many calls wait for money here."""
        return len(self._waiting)

    def release_reservation(self, reserved: float) -> None:
        """The call came to nothing: give back what was reserved."""
        self._in_flight -= 1
        # Nothing in flight is nothing reserved: no rounding errors add up.
        self._reserved = self._reserved - reserved if self._in_flight else 0.0
        self._admit_waiting_calls()

    def repeats_affordable(self, usd: float, calls: float) -> int:
        """How many times the rest of the budget covers this much money and this many calls."""
        left = [1e9]
        if self.usd is not None and usd:
            left.append((self.usd - self.spent_usd) / usd)
        if self.calls is not None and calls:
            left.append((self.calls - self.spent_calls) / calls)
        return max(0, int(min(left)))

    def stop_calls(self, error: FolkmootError) -> None:
        """Admit nobody else; those who wait get the error."""
        self._stopped = self._stopped or error
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.admitted.done():
                each.admitted.set_result(False)

    def _reserve_now(self, price: CallPrice) -> float:
        self._in_flight += 1
        self._reserved += price.max_usd
        return price.max_usd

    def _fits_budget(self, usd: float) -> bool:
        if self.calls is not None and (
            self.spent_calls + self._in_flight + self._lent_calls >= self.calls
        ):
            return False
        if self.usd is None or usd == 0.0:
            return True
        return self.spent_usd + self._reserved + self._lent_usd + usd <= self.usd + _USD_TOLERANCE

    def _admit_waiting_calls(self) -> None:
        """Admit those who wait as far as they fit; stop when nobody ever will."""
        self._admit_in_order()
        if self._ask_for_more is not None:
            if self._waiting:
                self._ask_for_more()
            return
        while self._waiting and not self._has_calls_in_flight:
            next_one = next(
                (
                    budget_waiter
                    for budget_waiter in self._waiting
                    if self._fits_budget(budget_waiter.price.expected_usd)
                ),
                None,
            )
            if next_one is None:
                if not self._judging:
                    self._judging = True
                    self._stop_if_nothing_fits(GRACE_LOOP_ITERATIONS)
                return
            self._waiting.remove(next_one)
            self._admit_waiter(next_one)

    def _admit_in_order(self) -> None:
        if self._stopped is not None:
            self.stop_calls(self._stopped)
        while self._waiting and (
            self._waiting[0].admitted.done() or self._fits_budget(self._waiting[0].price.max_usd)
        ):
            self._admit_waiter(self._waiting.popleft())

    def _stop_if_nothing_fits(self, loop_iterations: int) -> None:
        """Stop, unless a call that fits arrives within this many turns of the loop."""
        if loop_iterations and self._waiting and not self._has_calls_in_flight:
            asyncio.get_running_loop().call_soon(self._stop_if_nothing_fits, loop_iterations - 1)
            return
        self._judging = False
        if self._waiting and not self._has_calls_in_flight:
            self.stop_calls(self.exhausted_error(self._waiting[0].price))

    def _admit_waiter(self, waiter: BudgetWaiter) -> None:
        if not waiter.admitted.done():  # else cancelled while it waited
            self._reserve_now(waiter.price)
            waiter.admitted.set_result(True)

    @property
    def _has_calls_in_flight(self) -> bool:
        """Whether anything may give money back."""
        return bool(self._in_flight or self._lent_calls or self._lent_usd > _USD_TOLERANCE)

    def exhausted_error(self, price: CallPrice) -> BudgetReachedError:
        """What to say when the next call, of this price, does not fit."""
        calls, usd = self._possible
        if self.calls is not None and self.spent_calls >= self.calls:
            possible = f"; {calls} of them were possibly made by {KILLED}" if calls else ""
            return BudgetReachedError(
                f"The budget of {self.calls} calls (budget_calls) is used up{possible}. All work "
                "is kept; resume with a larger one."
            )
        possible = f", up to {usd:.4f} USD possibly paid by {KILLED}" if usd else ""
        open_end = (
            "" if price.expected_usd == price.max_usd else " or more, since max_tokens is not set"
        )
        return BudgetReachedError(
            f"The budget of {self.usd:g} USD (budget_usd) is used up: {self.spent_usd - usd:.4f} "
            f"USD spent{possible}, and the next call may cost {price.expected_usd:.4f} "
            f"USD{open_end}. "
            "All work is kept; resume with a larger one."
        )

    def _warn_near_limit(self) -> str:
        if self.usd is not None and self.spent_usd >= WARNING_SHARE * self.usd:
            return f"{self.spent_usd:.2f} of {self.usd:.2f} USD (budget_usd) have been spent."
        if self.calls is not None and self.spent_calls >= WARNING_SHARE * self.calls:
            return f"{self.spent_calls} of {self.calls} calls (budget_calls) have been made."
        return ""
