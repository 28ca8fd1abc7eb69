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

from folkmoot.errors import BudgetReached, FolkmootError

WARN_AT = 0.8
KILLED = "a process that was killed with calls in flight"
GRACE_TURNS = 200  # of the loop, for calls that are on their way when nothing is in flight
_ROUNDING = 1e-12  # USD; sums of floats


class Price(NamedTuple):
    """What a call may cost (USD) before it is made.

    `likely` is less than `dearest` only where nothing bounds the reply (no max_tokens): such a
    call may go alone when its dearest does not fit, or a small budget would buy nothing at all.
    """

    dearest: float = 0.0
    likely: float = 0.0


class Amount(NamedTuple):
    """Calls, and the most that they may cost (USD)."""

    calls: int = 0
    usd: float = 0.0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.usd + other.usd)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.calls - other.calls, self.usd - other.usd)

    def covers(self, other: Amount) -> bool:
        return self.calls >= other.calls and self.usd >= other.usd


NOTHING = Amount()


class Waiter(NamedTuple):
    """A call that waits for money."""

    admitted: asyncio.Future[bool]
    price: Price


class Budget:
    """Counts what is spent and what is in flight; lets a call wait that would go over.

    `usd` and `calls` are the limits (None: none); `spent_usd` and `spent_calls` what earlier
    processes of this run took; `warn` is told once, at 80 %. `reserve` raises
    BudgetReached only when nothing is in flight that could give money back, and no call that waits
    would fit. With `ask_for_more` it never does: it is called when a call does not fit, and `grow`
    gives more.
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
        self.out_calls = 0  # of loans that are not settled (`Lender`)
        self.out_usd = 0.0
        self._possible = NOTHING
        self._warn = warn
        self._ask_for_more = ask_for_more
        self._warned = False
        self._reserved = 0.0
        self._in_flight = 0
        self._lent_usd = 0.0  # to workers of a cluster
        self._lent_calls = 0
        self._waiting: deque[Waiter] = deque()  # first come, first served
        self._judging = False
        self._stopped: FolkmootError | None = None

    async def reserve(self, price: Price) -> float:
        """Wait until a call fits; what was reserved (USD). Raises BudgetReached, or what `stop`
        was given."""
        if self._stopped is None and not self._waiting and self._fits(price.dearest):
            return self._take(price)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiter(future, price))
        self._pump()
        try:
            admitted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.release(price.dearest)  # it was let in in the same turn of the loop
            raise
        if admitted:
            if self._stopped is None:
                return price.dearest
            self.release(price.dearest)
        assert self._stopped is not None
        raise self._stopped.with_traceback(None)

    def settle(self, reserved: float, cost: float | None) -> None:
        """The call was answered: what it cost replaces what was reserved; where the cost is
        unknown, the reserve is the best bound there is."""
        self.count(reserved if cost is None else cost)
        self.release(reserved)

    def settle_broken(self, reserved: float) -> None:
        """The reply to an admitted call broke off: count all that was reserved for it as spent,
        since the vendor may bill it. It is no answer, so it is not one of the calls."""
        self.spend(reserved)
        self.release(reserved)

    def count(self, cost: float) -> None:
        """A call was answered, whoever made it."""
        self.spent_calls += 1
        self.spend(cost)

    def spend(self, usd: float) -> None:
        """Add to what is spent, and warn once when the budget is nearly used up."""
        self.spent_usd += usd
        if not self._warned and (message := self._nearly_used()):
            self._warned = True
            self._warn(message)

    def count_possible(self, amount: Amount) -> None:
        """Count what a process may have paid that was killed."""
        self._possible = self._possible.plus(amount)
        self.spent_calls += amount.calls
        self.spent_usd += amount.usd

    def left(self) -> tuple[float | None, int | None]:
        """What is not spent (USD, calls); None without a limit."""
        return (
            None if self.usd is None else self.usd - self.spent_usd,
            None if self.calls is None else self.calls - self.spent_calls,
        )

    def grow(self, usd: float, calls: int) -> None:
        """Go on with more."""
        if self.usd is not None:
            self.usd += usd
        if self.calls is not None:
            self.calls += calls
        self._pump()

    def take_free(self) -> tuple[float, int]:
        """Take away what is neither spent nor reserved (USD, calls)."""
        usd, calls = self.free()
        usd = max(0.0, usd - _ROUNDING)
        if self.usd is not None:
            self.usd -= usd
        if self.calls is not None:
            self.calls -= calls
        return usd, calls

    @property
    def prices_waiting(self) -> list[Price]:
        """The prices of the calls that wait for money here, in order."""
        return [w.price for w in self._waiting if not w.admitted.done()]

    @property
    def idle(self) -> bool:
        """Whether nothing is reserved."""
        return not self._in_flight

    def lend(self, usd: float, calls: int) -> None:
        """Keep so much for the calls of others; below zero it is given back."""
        self._lent_usd += usd
        self._lent_calls += calls
        if usd < 0 or calls < 0:
            self._pump()

    def free(self) -> tuple[float, int]:
        """What is neither spent nor kept for a call (USD, calls); without a limit nothing."""
        usd = (self.usd or 0.0) - self.spent_usd - self._reserved - self._lent_usd
        calls = (self.calls or 0) - self.spent_calls - self._in_flight - self._lent_calls
        return max(0.0, usd + _ROUNDING), max(0, calls)

    @property
    def waiting(self) -> int:
        """How many calls wait for money here."""
        return len(self._waiting)

    def release(self, reserved: float) -> None:
        """The call came to nothing: give back what was reserved."""
        self._in_flight -= 1
        # Nothing in flight is nothing reserved: no rounding errors add up.
        self._reserved = self._reserved - reserved if self._in_flight else 0.0
        self._pump()

    def affords(self, usd: float, calls: float) -> int:
        """How many times the rest of the budget covers this much money and this many calls."""
        left = [1e9]
        if self.usd is not None and usd:
            left.append((self.usd - self.spent_usd) / usd)
        if self.calls is not None and calls:
            left.append((self.calls - self.spent_calls) / calls)
        return max(0, int(min(left)))

    def stop(self, error: FolkmootError) -> None:
        """Admit nobody else; those who wait get the error."""
        self._stopped = self._stopped or error
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.admitted.done():
                each.admitted.set_result(False)

    def _take(self, price: Price) -> float:
        self._in_flight += 1
        self._reserved += price.dearest
        return price.dearest

    def _fits(self, usd: float) -> bool:
        if self.calls is not None and (
            self.spent_calls + self._in_flight + self._lent_calls >= self.calls
        ):
            return False
        if self.usd is None or usd == 0.0:
            return True
        return self.spent_usd + self._reserved + self._lent_usd + usd <= self.usd + _ROUNDING

    def _pump(self) -> None:
        """Admit those who wait as far as they fit; stop when nobody ever will."""
        self._admit_in_order()
        if self._ask_for_more is not None:
            if self._waiting:
                self._ask_for_more()
            return
        while self._waiting and not self._under_way:
            next_one = next((w for w in self._waiting if self._fits(w.price.likely)), None)
            if next_one is None:
                if not self._judging:
                    self._judging = True
                    self._judge(GRACE_TURNS)
                return
            self._waiting.remove(next_one)
            self._admit(next_one)

    def _admit_in_order(self) -> None:
        if self._stopped is not None:
            self.stop(self._stopped)
        while self._waiting and (
            self._waiting[0].admitted.done() or self._fits(self._waiting[0].price.dearest)
        ):
            self._admit(self._waiting.popleft())

    def _judge(self, turns: int) -> None:
        """Stop, unless a call that fits arrives within this many turns of the loop."""
        if turns and self._waiting and not self._under_way:
            asyncio.get_running_loop().call_soon(self._judge, turns - 1)
            return
        self._judging = False
        if self._waiting and not self._under_way:
            self.stop(self.reached(self._waiting[0].price))

    def _admit(self, waiter: Waiter) -> None:
        if not waiter.admitted.done():  # else cancelled while it waited
            self._take(waiter.price)
            waiter.admitted.set_result(True)

    @property
    def _under_way(self) -> bool:
        """Whether anything may give money back."""
        return bool(self._in_flight or self._lent_calls or self._lent_usd > _ROUNDING)

    def reached(self, price: Price) -> BudgetReached:
        """What to say when the next call, of this price, does not fit."""
        calls, usd = self._possible
        if self.calls is not None and self.spent_calls >= self.calls:
            possible = f"; {calls} of them were possibly made by {KILLED}" if calls else ""
            return BudgetReached(
                f"The budget of {self.calls} calls (budget_calls) is used up{possible}. All work "
                "is kept; resume with a larger one."
            )
        possible = f", up to {usd:.4f} USD possibly paid by {KILLED}" if usd else ""
        open_end = "" if price.likely == price.dearest else " or more, since max_tokens is not set"
        return BudgetReached(
            f"The budget of {self.usd:g} USD (budget_usd) is used up: {self.spent_usd - usd:.4f} "
            f"USD spent{possible}, and the next call may cost {price.likely:.4f} USD{open_end}. "
            "All work is kept; resume with a larger one."
        )

    def _nearly_used(self) -> str:
        if self.usd is not None and self.spent_usd >= WARN_AT * self.usd:
            return f"{self.spent_usd:.2f} of {self.usd:.2f} USD (budget_usd) have been spent."
        if self.calls is not None and self.spent_calls >= WARN_AT * self.calls:
            return f"{self.spent_calls} of {self.calls} calls (budget_calls) have been made."
        return ""
