"""The researcher's budget, in USD and in calls. The budget decides which calls may start."""

# The budget covers the whole run over all resumes. The spending of earlier processes counts, and
# replayed calls are free. Every call reserves its maximum cost before it starts, so calls in flight
# cannot exceed the budget. Money that a killed process may have paid counts as spent. The gateway
# uses this module. On a cluster worker, the budget is the part that the main process assigns to it.

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from folkmoot.errors import BudgetReachedError, FolkmootError, InputError
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.manifest import format_broken_count

# The share of a budget at which the researcher is warned.
WARNING_SHARE = 0.8
KILLED = "processes that were killed or could not save the replies"
# Turns of the event loop to wait for a cheaper call before the budget counts as used up. A
# coroutine may need many turns from one answer to its next question.
GRACE_LOOP_ITERATIONS = 200
# Sums of floats may exceed a limit or a loan in USD by this much.
USD_TOLERANCE = 1e-12


class CallPrice(NamedTuple):
    """The maximum price and the expected price of a call, in USD."""

    max_usd: float = 0.0
    # Less than `max_usd` only if nothing limits the reply (no `max_tokens`). Such a call may run
    # alone even if the budget does not cover its maximum price. Otherwise a small budget could buy
    # nothing.
    expected_usd: float = 0.0


class Amount(NamedTuple):
    """A number of calls, and the maximum cost of these calls in USD."""

    calls: int = 0
    usd: float = 0.0

    def add_amount(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.usd + other.usd)

    def subtract_amount(self, other: Amount) -> Amount:
        return Amount(self.calls - other.calls, self.usd - other.usd)

    def covers_amount(self, other: Amount) -> bool:
        return self.calls >= other.calls and self.usd >= other.usd


NOTHING = Amount()


class Spent(NamedTuple):
    """What the processes of one or more runs have spent, as a budget counts it."""

    # Calls that models answered. Answers of humans and copies from another run are not counted.
    calls: int = 0
    # The known cost (USD) of these calls, and the maximum cost of broken replies.
    usd: float = 0.0
    # Broken replies: those that broke off or did not arrive. Their maximum cost is part of `usd`.
    broken: Amount = NOTHING
    # Calls without an answer that killed processes may have paid.
    possible: Amount = NOTHING
    # The models with answered calls of unknown cost.
    unpriced: tuple[str, ...] = ()
    # Whether `broken` or `possible` have calls of unknown price. Their USD are a lower bound then.
    is_broken_unpriced: bool = False
    is_possible_unpriced: bool = False
    # Calls in batches that have no answer yet. A resume fetches the answers and counts them then.
    open_batch_calls: int = 0

    def add_spending(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.usd + other.usd,
            self.broken.add_amount(other.broken),
            self.possible.add_amount(other.possible),
            tuple(dict.fromkeys(self.unpriced + other.unpriced)),
            self.is_broken_unpriced or other.is_broken_unpriced,
            self.is_possible_unpriced or other.is_possible_unpriced,
            self.open_batch_calls + other.open_batch_calls,
        )

    @property
    def total(self) -> Amount:
        """The calls and the USD that count against a budget."""
        calls = self.calls + self.broken.calls
        return Amount(calls, self.usd).add_amount(self.possible)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Spent:
        """Return the spending from its fields (`_asdict`), which were written as JSON."""
        amounts = {name: Amount(*fields[name]) for name in ("broken", "possible")}
        return cls(**{**fields, **amounts, "unpriced": tuple(fields["unpriced"])})

    def require_known_cost(self, budget_usd: float | None) -> None:
        """Raise InputError for a budget in USD if the cost of some calls is unknown.

        `budget_usd`: the budget, or None for no limit.
        """
        # Such a budget could be exceeded without notice.
        calls = [f"earlier calls to {', '.join(self.unpriced)}"] if self.unpriced else []
        if self.is_possible_unpriced:
            # The table of loans names no model. A process was killed, or a repair removed entries
            # that it could not read.
            calls.append("earlier calls without a saved reply")
        if budget_usd is not None and calls:
            reason = f"the cost of {' and '.join(calls)} is unknown"
            raise InputError(unknown_cost_message(reason))


def unknown_cost_message(reason: str) -> str:
    """Return the error message for a model of unknown cost in a run with a budget in USD.

    `reason`: a clause that says why the cost is unknown.
    """
    return (
        f"{reason}, so budget_usd cannot be kept. Leave it out (and --budget) and limit the "
        "calls instead, with budget_calls or --set budget_calls=N. All answers are saved"
    )


class BudgetWaiter(NamedTuple):
    """A call that waits for budget."""

    admitted: asyncio.Future[bool]
    price: CallPrice


class Budget:
    """The budget of a run: counts spending and admits the calls that fit.

    - `usd`, `calls`: the limits, or None for no limit.
    - `spent_usd`, `spent_calls`: what earlier processes of the run have spent.
    - `warn`: receives one message when 80 % are spent.
    - `ask_for_more`: called on a cluster worker if the budget cannot pay for a call.
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
        # The number of runs that spend this budget at the same time. A grid has several.
        self.concurrent_runs = 1
        # Calls and money of loans that are not settled, kept by `LoanManager`.
        self.out_calls = 0
        self.out_usd = 0.0
        # What killed processes may have paid.
        self._possible = NOTHING
        # Replies that broke off or did not arrive, with the most that they may cost. Part of
        # `spent_usd`.
        self._broken = NOTHING
        self._warn = warn
        self._ask_for_more = ask_for_more
        self._warned = False
        self._reserved = 0.0
        self._in_flight = 0
        # Lent to cluster workers.
        self._lent_usd = 0.0
        self._lent_calls = 0
        # First come, first served: otherwise an expensive call might wait for ever.
        self._waiting: deque[BudgetWaiter] = deque()
        # Whether the grace period before the budget counts as used up is running.
        self._judging = False
        self._stopped: FolkmootError | None = None

    async def reserve_call(self, price: CallPrice) -> float:
        """Wait until the budget covers a call, and return the maximum cost of the call in USD.

        Raises BudgetReachedError, or the error given to `stop_calls`.
        """
        # The returned amount is reserved.
        if self._stopped is None and not self._waiting and self._fits_budget(price.max_usd):
            return self._reserve_now(price)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(BudgetWaiter(future, price))
        self._admit_waiting_calls()
        try:
            admitted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                # The call was admitted in the turn of the event loop that also cancelled it.
                self.release_reservation(price.max_usd)
            raise
        if admitted:
            if self._stopped is None:
                return price.max_usd
            self.release_reservation(price.max_usd)
        assert self._stopped is not None
        raise self._stopped.with_traceback(None)

    def record_cost(self, reserved: float, cost: float | None) -> None:
        """Replace the amount that was reserved for a call by the actual cost of the call.

        `cost`: in USD, or None if unknown.
        """
        # If the cost is unknown, the reservation counts as the cost, because it is an upper bound.
        self.count(reserved if cost is None else cost)
        self.release_reservation(reserved)

    def settle_broken(self, reserved: float) -> None:
        """Count the whole reservation of a broken reply as spent."""
        self.count_broken(reserved)
        self.release_reservation(reserved)

    def count_broken(self, max_usd: float) -> None:
        """Count the maximum cost in USD of a broken reply as spent."""
        # The vendor may bill it, so it is one of the calls that the budget pays for.
        self.note_broken(Amount(1, max_usd))
        self.spent_calls += 1
        self.record_spending(max_usd)

    def count_earlier(self, spent: Spent) -> None:
        """Count what earlier processes of the run have spent."""
        self.spent_usd += spent.usd
        self.spent_calls += spent.calls + spent.broken.calls
        self.note_broken(spent.broken)
        self.count_possible(spent.possible)

    def note_broken(self, amount: Amount) -> None:
        """Record which part of the spending is that of broken replies.

        - `amount`: the number of these replies, and the most that they may cost. `spent_usd`
          includes this cost already.
        """
        self._broken = self._broken.add_amount(amount)

    def count(self, cost: float) -> None:
        """Count one answered call as spent, with its cost in USD."""
        self.spent_calls += 1
        self.record_spending(cost)

    def record_spending(self, usd: float) -> None:
        """Add to the spending, and warn once when little budget is left."""
        self.spent_usd += usd
        if not self._warned and (message := self._warn_near_limit()):
            self._warned = True
            self._warn(message)

    def count_possible(self, amount: Amount) -> None:
        """Count the calls of a killed process as spent, because they may have been billed."""
        # The vendor may have billed them.
        self._possible = self._possible.add_amount(amount)
        self.spent_calls += amount.calls
        self.spent_usd += amount.usd

    def left(self) -> tuple[float | None, int | None]:
        """Return the unspent budget in USD and in calls.

        None means that there is no limit.
        """
        return (
            None if self.usd is None else self.usd - self.spent_usd,
            None if self.calls is None else self.calls - self.spent_calls,
        )

    def raise_limits(self, usd: float, calls: int) -> None:
        """Raise the limits and admit calls that fit now."""
        if self.usd is not None:
            self.usd += usd
        if self.calls is not None:
            self.calls += calls
        self._admit_waiting_calls()

    def take_free(self) -> tuple[float, int]:
        """Lower the limits by the free budget, and return the free budget: USD and number of calls.

        Free means neither spent nor reserved.
        """
        # Budget is free if it is neither spent nor reserved.
        usd, calls = self.remaining()
        # `remaining` adds the tolerance for rounding, which is not part of the budget.
        usd = max(0.0, usd - USD_TOLERANCE)
        if self.usd is not None:
            self.usd -= usd
        if self.calls is not None:
            self.calls -= calls
        return usd, calls

    @property
    def prices_waiting(self) -> list[CallPrice]:
        """The prices of the calls that wait for budget, in order."""
        return [waiter.price for waiter in self._waiting if not waiter.admitted.done()]

    @property
    def is_idle(self) -> bool:
        """True if no budget is reserved for calls."""
        return not self._in_flight

    def lend_to_worker(self, usd: float, calls: int) -> None:
        """Set an amount aside for cluster workers."""
        # A negative amount returns to the budget.
        self._lent_usd += usd
        self._lent_calls += calls
        if usd < 0 or calls < 0:
            self._admit_waiting_calls()

    def remaining(self) -> tuple[float, int]:
        """Return the free budget: USD and number of calls.

        Free means neither spent nor reserved. Where there is no limit, the amount is 0.
        """
        usd = (self.usd or 0.0) - self.spent_usd - self._reserved - self._lent_usd
        calls = (self.calls or 0) - self.spent_calls - self._in_flight - self._lent_calls
        return max(0.0, usd + USD_TOLERANCE), max(0, calls)

    @property
    def waiting_count(self) -> int:
        """The number of calls that wait for budget in this process."""
        return len(self._waiting)

    def release_reservation(self, reserved: float) -> None:
        """Free the amount in USD that was reserved for an ended call."""
        # `record_cost` does the same, and counts the cost of the call.
        self._in_flight -= 1
        # Without calls in flight nothing is reserved. Setting 0 keeps rounding errors from adding
        # up.
        self._reserved = self._reserved - reserved if self._in_flight else 0.0
        self._admit_waiting_calls()

    def repeats_affordable(self, usd: float, calls: float) -> int:
        """Return how often the remaining budget can pay for `calls` calls.

        `usd`: the cost of all `calls` together, in USD.
        """
        # Without a limit, or for free calls, the result is practically unlimited.
        repeats = [1e9]
        if self.usd is not None and usd:
            repeats.append((self.usd - self.spent_usd) / usd)
        if self.calls is not None and calls:
            repeats.append((self.calls - self.spent_calls) / calls)
        return max(0, int(min(repeats)))

    def stop_calls(self, error: FolkmootError) -> None:
        """Admit no more calls and raise `error` in waiting calls."""
        self._stopped = self._stopped or error
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.admitted.done():
                waiter.admitted.set_result(False)

    def _reserve_now(self, price: CallPrice) -> float:
        self._in_flight += 1
        self._reserved += price.max_usd
        return price.max_usd

    def _fits_budget(self, usd: float) -> bool:
        if self.calls is not None and (
            self.spent_calls + self._in_flight + self._lent_calls >= self.calls
        ):
            return False
        # A free call fits even if the budget in USD is used up.
        if self.usd is None or usd == 0.0:
            return True
        return self.spent_usd + self._reserved + self._lent_usd + usd <= self.usd + USD_TOLERANCE

    def _admit_waiting_calls(self) -> None:
        self._admit_in_order()
        if self._ask_for_more is not None:
            if self._waiting:
                self._ask_for_more()
            return
        # No call in flight can release money any more. Admit the first call with an expected price
        # that fits.
        while self._waiting and not self._has_calls_in_flight:
            affordable_waiter = next(
                (
                    waiter
                    for waiter in self._waiting
                    if self._fits_budget(waiter.price.expected_usd)
                ),
                None,
            )
            if affordable_waiter is None:
                if not self._judging:
                    self._judging = True
                    self._stop_if_nothing_fits(GRACE_LOOP_ITERATIONS)
                return
            self._waiting.remove(affordable_waiter)
            self._admit_waiter(affordable_waiter)

    def _admit_in_order(self) -> None:
        if self._stopped is not None:
            self.stop_calls(self._stopped)
        while self._waiting and (
            self._waiting[0].admitted.done() or self._fits_budget(self._waiting[0].price.max_usd)
        ):
            self._admit_waiter(self._waiting.popleft())

    def _stop_if_nothing_fits(self, loop_iterations: int) -> None:
        # `loop_iterations` is the number of turns of the event loop to wait, because a call that
        # the budget can pay for may still arrive.
        if loop_iterations and self._waiting and not self._has_calls_in_flight:
            asyncio.get_running_loop().call_soon(self._stop_if_nothing_fits, loop_iterations - 1)
            return
        self._judging = False
        if self._waiting and not self._has_calls_in_flight:
            self.stop_calls(self.exhausted_error(self._waiting[0].price))

    def _admit_waiter(self, waiter: BudgetWaiter) -> None:
        # A done future belongs to a call that was cancelled while it waited.
        if not waiter.admitted.done():
            self._reserve_now(waiter.price)
            waiter.admitted.set_result(True)

    @property
    def _has_calls_in_flight(self) -> bool:
        # Calls in flight may cost less than was reserved for them, so that other calls can start.
        return bool(self._in_flight or self._lent_calls or self._lent_usd > USD_TOLERANCE)

    def exhausted_error(self, price: CallPrice) -> BudgetReachedError:
        """Return the error for a budget that cannot pay for the next call."""
        calls, usd = self._possible
        broken, broken_usd = self._broken
        if self.calls is not None and (self.usd is None or self.spent_calls >= self.calls):
            answered = format_count(self.spent_calls - calls - broken, "call")
            call_parts = [f"{answered} answered"]
            if broken:
                call_parts.append(format_broken_count(broken))
            if calls:
                # Killed processes had asked for calls in advance, so there may be more than the
                # budget.
                call_parts.append(f"and up to {calls:,} possibly made by {KILLED}")
            uncertain = f": {', '.join(call_parts)}" if broken or calls else ""
            error = BudgetReachedError(
                f"The budget of {format_count(self.calls, 'call')} (budget_calls) is used up"
                f"{uncertain}. All answers are saved; resume with a larger budget."
            )
            error.is_of_calls = True
            return error
        parts = [f"{_format_usd(max(0.0, self.spent_usd - usd - broken_usd))} USD spent"]
        if broken:
            replies = format_broken_count(broken)
            parts.append(f"up to {_format_usd(broken_usd)} USD possibly billed for {replies}")
        if usd:
            parts.append(f"up to {_format_usd(usd)} USD possibly paid by {KILLED}")
        open_end = (
            "" if price.expected_usd == price.max_usd else " or more, since max_tokens is not set"
        )
        return BudgetReachedError(
            f"The budget of {_format_limit(self.usd or 0.0)} USD (budget_usd) is used up: "
            f"{', '.join(parts)}, and the next call may cost "
            f"{_format_usd(price.expected_usd)} USD{open_end}. All answers are saved; resume with "
            "a larger budget."
        )

    def _warn_near_limit(self) -> str:
        is_certain = not (self._possible.calls or self._broken.calls)
        what = "spent" if is_certain else "spent or may have been billed"
        if self.usd is not None and self.spent_usd >= WARNING_SHARE * self.usd:
            amounts = f"{_format_usd(self.spent_usd)} of {_format_limit(self.usd)}"
            return f"{amounts} USD (budget_usd) have been {what}."
        if self.calls is not None and self.spent_calls >= WARNING_SHARE * self.calls:
            return f"{self.spent_calls} of {self.calls} calls (budget_calls) have been made."
        return ""


def _format_usd(usd: float) -> str:
    # Four decimals, or more for an amount that would show fewer than two digits.
    decimals = 4 if usd <= 0.0 else max(4, 1 - math.floor(math.log10(usd)))
    return f"{usd:.{decimals}f}"


def _format_limit(usd: float) -> str:
    # As the researcher wrote the limit, but without an exponent.
    text = f"{usd:g}"
    return _format_usd(usd) if "e" in text else text
