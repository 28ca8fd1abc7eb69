"""Loans: calls that are written to disk before they may be sent.

After a kill, the next process knows how many calls may be billed.
"""

# Each journal has one loan manager, which lends to its own process and to cluster workers. Some
# calls are recorded in advance, with the group commits of the journal, so that calls seldom wait
# for the disk. A loan says how many calls a process may send. A call is covered if a loan includes
# it. It is settled when its entry is in the journal. The outstanding calls are those lent but not
# settled. All amounts are totals since a process began.

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from folkmoot.engine.limits.budget import NOTHING, USD_TOLERANCE, Amount, Budget
from folkmoot.errors import FolkmootError, StorageError

# The number of calls lent ahead of need: at first, at least and at most. After a kill these calls
# count as possibly paid, so they should be few. With too few, calls wait for the disk. Runs that
# spend one budget at the same time, such as the cells of a grid, divide the least and the most.
INITIAL_CALLS_AHEAD = 64
MIN_CALLS_AHEAD = 8
MAX_CALLS_AHEAD = 1000
# The calls lent ahead shrink at most by this factor per loan, so that a short pause costs nothing.
AHEAD_DECAY = 0.9
# The share of the remaining budget that may be lent ahead, or `MIN_CALLS_AHEAD` calls if that is
# more.
SHARE_AHEAD = 0.05
# The time until a loan is on disk, on a slow disk, too.
COMMIT_SECONDS = 0.05
# The borrower number of the process that has the journal. Workers count from 0.
OWN_PROCESS = -1


class LoanWish(NamedTuple):
    """The calls that a process wants to be recorded on disk."""

    # The calls that have begun since the process started.
    begun: Amount = NOTHING
    # The calls that wait to begin.
    waiting: Amount = NOTHING
    # A number of further calls, and the price of each (USD).
    ahead: int = 0
    price: float = 0.0
    # Calls wait for the answer already, or will wait soon.
    urgent: bool = False
    # The process calls a model of unknown price.
    unpriced: bool = False


class LoanWaiter(NamedTuple):
    """A call that waits until it is recorded on disk and may be sent."""

    covered: asyncio.Future[bool]
    usd: float


class Loan:
    """The calls that one process may send, because they are recorded on disk.

    - `ask`: called when few calls are left. It requests that more calls are recorded on disk.
    - `seconds`: the usual time from a call of `ask` to a call of `apply_loan`.
    - `wait`: returns a context manager that is open while a call waits.
    """

    # Set `unpriced` before the first call of unknown price. From then on, calls wait until the
    # record on disk says that the price is unknown.
    def __init__(
        self,
        ask: Callable[[], None],
        seconds: float = COMMIT_SECONDS,
        wait: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.begun_calls = 0
        self.begun_usd = 0.0
        self.unpriced = False
        self._ask = ask
        self._seconds = seconds
        self._wait = wait
        self._lent = NOTHING
        self._lent_unpriced = False
        # The begun amount beyond which the loan asks for more.
        self._mark = NOTHING
        # Whether an answer is expected, and whether calls wait for it.
        self._awaited = self._urgent = False
        # When the loan last asked, and how many calls had begun by then.
        self._asked = 0.0, 0
        self._ahead = INITIAL_CALLS_AHEAD
        self._price = 0.0
        # Set by the journal's writer thread, read by the event loop. Assigning one attribute is
        # atomic.
        self._arrived: tuple[Amount, bool] | StorageError | None = None
        # First come, first served: otherwise an expensive call might wait for ever.
        self._waiting: deque[LoanWaiter] = deque()
        self._stopped: FolkmootError | None = None

    def try_cover(self, usd: float) -> bool:
        """Return whether a call of this maximum cost in USD may be sent now."""
        # If so, the call counts as sent.
        if self._arrived is not None:
            self._take_arrivals()
        if self._waiting or self._stopped is not None or not self._fits_loan(usd):
            return False
        self._begin_call(usd)
        if not self._awaited and (
            self.begun_calls > self._mark.calls or self.begun_usd > self._mark.usd
        ):
            self._awaited = True
            self._ask()
        return True

    async def wait_until_covered(self, usd: float) -> None:
        """Wait until a call of this maximum cost in USD may be sent.

        Raises the error given to `stop_calls`.
        """
        if self.try_cover(usd):
            return
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(LoanWaiter(future, usd))
        # The loan may have arrived just before this call was queued.
        self._take_arrivals()
        if self._waiting and not self._urgent:
            self._awaited = self._urgent = True
            # Ask in the next turn of the event loop, so that calls that start together need one
            # loan.
            asyncio.get_running_loop().call_soon(self._ask)
        try:
            with self._wait():
                covered = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                # The call was covered in the turn of the event loop that also cancelled it.
                self.give_back(usd)
            raise
        if not covered:
            assert self._stopped is not None
            raise self._stopped.with_traceback(None)

    def give_back(self, usd: float) -> None:
        """Release the maximum cost in USD of a call that cannot be billed."""
        self.begun_calls -= 1
        self.begun_usd -= usd
        self._admit_waiting_calls()

    def current_wish(self) -> LoanWish:
        """Return the calls that this process wants to send now."""
        # These are the calls that wait, and some calls in advance. The more calls start per second,
        # the more are asked for in advance.
        now = time.monotonic()
        asked_at, calls_when_asked = self._asked
        # The calls that will start until the answer arrives, at the present rate.
        soon = (self.begun_calls - calls_when_asked) / max(now - asked_at, 1e-3) * self._seconds
        self._asked = now, self.begun_calls
        waiting = [waiter.usd for waiter in self._waiting if not waiter.covered.done()]
        # Three times the expected calls: the next request is sent when half of them is used. If
        # calls wait nevertheless, double the amount.
        ahead = max(
            3 * soon,
            AHEAD_DECAY * self._ahead,
            2 * self._ahead if waiting and calls_when_asked else 0.0,
        )
        self._ahead = min(MAX_CALLS_AHEAD, 2 * self._ahead, max(MIN_CALLS_AHEAD, int(ahead)))
        begun = Amount(self.begun_calls, self.begun_usd)
        price = max([self._price, *waiting])
        # Halve the price, so that an expensive call of long ago stops counting.
        self._price = price / 2
        wanted = Amount(len(waiting), sum(waiting))
        self._urgent = bool(waiting) or soon > self._ahead / 2
        return LoanWish(begun, wanted, self._ahead, price, self._urgent, self.unpriced)

    def receive_loan(self, lent: tuple[Amount, bool] | StorageError) -> bool:
        """Note the outcome of the last write to disk.

        `lent`: the calls that are now recorded on disk, or the error that prevented the write.

        Returns True if calls are waiting. The caller then runs `process_arrivals` in the
        event loop.
        """
        # The writer thread calls this method.
        self._arrived = lent
        return bool(self._waiting)

    def process_arrivals(self) -> None:
        """Start the waiting calls that the last `receive_loan` permits."""
        self._take_arrivals()

    def apply_loan(self, lent: Amount, *, unpriced: bool = False) -> None:
        """Let waiting calls start, because more calls are recorded on disk.

        - `lent`: the total of recorded calls since the process began.
        - `unpriced`: whether the record says that calls may have an unknown price.
        """
        self._lent, self._arrived = lent, None
        self._lent_unpriced = self._lent_unpriced or unpriced
        self._awaited = self._urgent = False
        calls, usd = lent.calls - self.begun_calls, lent.usd - self.begun_usd
        waiting = [waiter.usd for waiter in self._waiting if not waiter.covered.done()]
        ahead = Amount(calls - len(waiting), usd - sum(waiting))
        # Ask again when half of the amount ahead is used.
        self._mark = Amount(lent.calls - ahead.calls // 2, lent.usd - ahead.usd / 2)
        self._admit_waiting_calls()
        if self._waiting:
            self._awaited = True
            self._ask()

    def stop_calls(self, error: FolkmootError) -> None:
        """Let no more calls be sent, and raise `error` in waiting calls."""
        self._stopped = self._stopped or error
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.covered.done():
                waiter.covered.set_result(False)

    def _take_arrivals(self) -> None:
        arrived, self._arrived = self._arrived, None
        if isinstance(arrived, StorageError):
            self.stop_calls(arrived)
        elif arrived is not None:
            self.apply_loan(arrived[0], unpriced=arrived[1])

    def _fits_loan(self, usd: float) -> bool:
        return (
            # If a call of unknown price was made, the loan must be unpriced, too.
            self.unpriced <= self._lent_unpriced
            and self.begun_calls < self._lent.calls
            and self.begun_usd + usd <= self._lent.usd + USD_TOLERANCE
        )

    def _begin_call(self, usd: float) -> None:
        self.begun_calls += 1
        self.begun_usd += usd
        self._price = max(self._price, usd)

    def _admit_waiting_calls(self) -> None:
        while self._waiting and (
            self._waiting[0].covered.done() or self._fits_loan(self._waiting[0].usd)
        ):
            waiter = self._waiting.popleft()
            # A done future belongs to a call that was cancelled while it waited.
            if not waiter.covered.done():
                self._begin_call(waiter.usd)
                waiter.covered.set_result(True)


class Ledger(Protocol):
    """A journal that can record on disk how many calls may be billed."""

    def record_loan(
        self,
        more: Amount,
        done: Callable[[StorageError | None], None],
        *,
        unpriced: bool,
        at_once: bool,
    ) -> None: ...

    def note_lost(self, out: Amount) -> None: ...


@dataclass(slots=True)
class Account:
    """The number and cost of calls that one process may send, and the part already journaled."""

    # Calls that the process may send, in total since it began.
    lent: Amount = NOTHING
    # The part of these calls that is in the journal.
    settled_calls: int = 0
    settled_usd: float = 0.0

    @property
    def settled_amount(self) -> Amount:
        return Amount(self.settled_calls, self.settled_usd)

    @property
    def outstanding_amount(self) -> Amount:
        return self.lent.subtract_amount(self.settled_amount)


class LoanManager:
    """Records on disk how many calls may be billed. A process sends calls only after this record.

    `wait`: passed to the `Loan` of this process.
    """

    # There is one manager for each journal.
    def __init__(
        self,
        ledger: Ledger,
        budget: Budget,
        wait: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.loan = Loan(self._lend_to_own, wait=wait)
        self._ledger = ledger
        self._budget = budget
        self._accounts: dict[int, Account] = {OWN_PROCESS: Account()}
        # Changes of loans that are not in the ledger yet.
        self._unwritten = NOTHING
        # Whether loans include calls of unknown price.
        self.unpriced = False

    def record_settlement(self, usd: float, borrower: int = OWN_PROCESS) -> None:
        """Record that a call of a process now has a journal entry.

        - `usd`: the maximum cost that was recorded for the call.
        - `borrower`: the number of the process.
        """
        account = self._accounts[borrower]
        account.settled_calls += 1
        account.settled_usd += usd
        self._budget.out_calls -= 1
        self._budget.out_usd -= usd

    async def lend_to_worker(self, borrower: int, wish: LoanWish) -> Amount:
        """Record on disk how many calls a worker may send, and return the worker's total.

        `borrower`: the number of the worker.

        Raises StorageError if the record cannot be written.
        """
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        failed: list[StorageError | None] = []

        def signal_written(error: StorageError | None) -> None:
            failed.append(error)
            # RuntimeError: the event loop has ended, and no coroutine waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(written.set)

        lent = self._grant_wish(borrower, wish)
        self._write_loan(signal_written, at_once=True)
        await written.wait()
        if failed[0] is not None:
            raise failed[0]
        return lent

    def record_lost_worker(self, borrower: int) -> Amount:
        """Record that a worker is lost, and return the worker's possibly billed calls.

        `borrower`: the number of the worker.
        """
        account = self._accounts.pop(borrower, Account())
        out = Amount(
            max(0, account.outstanding_amount.calls), max(0.0, account.outstanding_amount.usd)
        )
        self._add_out(NOTHING.subtract_amount(account.outstanding_amount))
        self._budget.count_possible(out)
        if out.calls:
            self._ledger.note_lost(out)
        return out

    def end_own_loan(self) -> None:
        """Record that this process sends no further calls."""
        # Call it when no call is in flight.
        loan = self.loan
        self.take_back(OWN_PROCESS, Amount(loan.begun_calls, loan.begun_usd))
        loan.apply_loan(self._accounts[OWN_PROCESS].lent)

    def take_back(self, borrower: int, begun: Amount) -> None:
        """Record that a process sends no calls other than those in `begun`.

        - `borrower`: the number of the process.
        - `begun`: the number and maximum cost of the calls that the process has already sent.
        """
        account = self._accounts.get(borrower)
        if account is not None and account.lent != begun:
            self._record_loan(borrower, begun)
            self._write_loan(lambda error: None)

    def _lend_to_own(self) -> None:
        wish = self.loan.current_wish()
        lent, loop = self._grant_wish(OWN_PROCESS, wish), asyncio.get_running_loop()
        granted = (lent, self.unpriced)

        def signal_own_loan(error: StorageError | None) -> None:
            if error is None and not self._accounts[OWN_PROCESS].lent.covers_amount(lent):
                # The loan was given back before it was on disk.
                return
            if self.loan.receive_loan(granted if error is None else error):
                # RuntimeError: the event loop has ended, and no call waits any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.loan.process_arrivals)

        self._write_loan(signal_own_loan, at_once=wish.urgent)

    def _write_loan(
        self, done: Callable[[StorageError | None], None], *, at_once: bool = False
    ) -> None:
        more, self._unwritten = self._unwritten, NOTHING
        self._ledger.record_loan(more, done, unpriced=self.unpriced, at_once=at_once)

    def _grant_wish(self, borrower: int, wish: LoanWish) -> Amount:
        # Allow what the process asks for, as far as the budget permits. Returns the total of calls
        # that it may send.
        account = self._accounts.setdefault(borrower, Account())
        needed = wish.begun.add_amount(wish.waiting)
        ahead = self._ahead_of(
            wish, needed.subtract_amount(account.settled_amount), account.outstanding_amount
        )
        self.unpriced = self.unpriced or wish.unpriced
        wanted = needed.add_amount(ahead)
        # A loan never shrinks here: the borrower may use it while the answer is on its way.
        lent = Amount(max(wanted.calls, account.lent.calls), max(wanted.usd, account.lent.usd))
        self._record_loan(borrower, lent)
        return lent

    def _record_loan(self, borrower: int, lent: Amount) -> None:
        account = self._accounts[borrower]
        more = lent.subtract_amount(account.lent)
        account.lent = lent
        self._unwritten = self._unwritten.add_amount(more)
        self._add_out(more)

    def _add_out(self, more: Amount) -> None:
        self._budget.out_calls += more.calls
        self._budget.out_usd += more.usd

    def _ahead_of(self, wish: LoanWish, needed: Amount, had: Amount) -> Amount:
        # `needed`: calls that are under way or about to start. `had`: calls that the process may
        # already send and that are not in the journal.
        # Loans of the other borrowers are already promised.
        lent_to_others = Amount(self._budget.out_calls, self._budget.out_usd).subtract_amount(had)
        usd, calls = self._budget.left()
        # Each run has its own lender, and a kill ends all runs of the process.
        runs = self._budget.concurrent_runs
        min_calls, share_ahead = max(1, MIN_CALLS_AHEAD // runs), SHARE_AHEAD / runs
        max_calls = min(wish.ahead, MAX_CALLS_AHEAD // runs)
        max_usd = max_calls * wish.price
        if calls is not None:
            free_calls = calls - lent_to_others.calls - needed.calls
            max_calls = min(max_calls, free_calls, max(min_calls, int(share_ahead * free_calls)))
            # No more money than these calls can cost: after a kill it counts as possibly paid.
            max_usd = max_calls * wish.price
        if usd is not None:
            free_usd = usd - lent_to_others.usd - needed.usd
            share = max(min_calls * wish.price, share_ahead * free_usd)
            max_usd = min(max_usd, free_usd, share)
            if wish.price:
                max_calls = min(max_calls, int(max_usd / wish.price))
        return Amount(max(0, max_calls), max(0.0, max_usd))
