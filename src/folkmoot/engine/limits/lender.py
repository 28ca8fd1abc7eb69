"""Loans: the number and the maximum cost (USD) of calls, written to disk before they are sent.

After a kill, the next process thus knows how many calls may be billed, and their maximum cost. Each
journal has one loan manager, which lends to its own process and to cluster workers. Loans are taken
ahead of need, with the group commits of the journal, so that calls seldom wait for a loan.

A call is covered if a loan includes it. A call is settled when its entry is in the journal. The
outstanding amount is the lent amount less the settled amount. All amounts are totals since a
process began. The gateway and `cluster` use this module.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from folkmoot.engine.limits.budget import NOTHING, Amount, Budget
from folkmoot.errors import FolkmootError, StorageError

# Calls lent ahead of need: at first, at least and at most. What is lent ahead counts as possibly
# paid after a kill, so it should be little. Too little makes calls wait for the disk.
INITIAL_CALLS_AHEAD = 64
MIN_CALLS_AHEAD = 8
MAX_CALLS_AHEAD = 1000
# The calls lent ahead shrink at most by this factor per loan, so that a short pause costs nothing.
AHEAD_DECAY = 0.9
# The share of the remaining budget that may be lent ahead, or FEWEST_AHEAD calls if that is more.
SHARE_AHEAD = 0.05
# The time until a loan is on disk, on a slow disk, too.
COMMIT_SECONDS = 0.05
# The borrower number of the process that has the journal. Workers count from 0.
OWN_PROCESS = -1
# Sums of floats may exceed a loan in USD by this much.
_USD_TOLERANCE = 1e-12


class LoanWish(NamedTuple):
    """The loan that a process asks for.

    The loan should cover the calls that have `begun`, the `waiting` calls, and `ahead` further
    calls of this `price` (USD). `urgent` means that calls wait for this loan already, or will wait
    soon. `unpriced` means that the process calls a model of unknown price.
    """

    begun: Amount = NOTHING
    waiting: Amount = NOTHING
    ahead: int = 0
    price: float = 0.0
    urgent: bool = False
    unpriced: bool = False


class LoanWaiter(NamedTuple):
    """A call that waits until a loan covers it."""

    covered: asyncio.Future[bool]
    usd: float


class Loan:
    """The loan of one process: the calls that the process may send before it asks for more.

    `ask` is called when the loan runs short. The caller answers with `apply_loan`, usually
    `seconds` later. `wait` returns a context manager that is open while a call waits. Set
    `unpriced` before the first call of unknown price. From then on only a loan at an unknown price
    covers calls.
    """

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
        """Cover a call of this maximum cost (USD) if the loan suffices.

        Returns whether the call is covered.
        """
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
        """Wait until a call is covered. Raises the error given to `stop_calls`."""
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
        """Release the amount (USD) that covered a call which has ended and cannot be billed."""
        self.begun_calls -= 1
        self.begun_usd -= usd
        self._admit_waiting_calls()

    def current_wish(self) -> LoanWish:
        """Return the loan to ask for.

        The amount asked for ahead of need grows with the number of calls started per second.
        """
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
        """Store a loan that is on disk, or the error of writing it. The writer thread calls this
        method.

        Returns True if calls wait for this loan. The caller must then run `process_arrivals` in the
        event loop.
        """
        self._arrived = lent
        return bool(self._waiting)

    def process_arrivals(self) -> None:
        """Apply the loan that `receive_loan` has stored."""
        self._take_arrivals()

    def apply_loan(self, lent: Amount, *, unpriced: bool = False) -> None:
        """Apply a loan that is on disk. `lent` is the total lent so far."""
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
        """Cover no more calls and raise `error` in waiting calls."""
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
            and self.begun_usd + usd <= self._lent.usd + _USD_TOLERANCE
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
    """A journal that can record loans."""

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
    """The loan of one borrower, and the part of it that is settled."""

    lent: Amount = NOTHING
    settled_calls: int = 0
    settled_usd: float = 0.0

    @property
    def settled_amount(self) -> Amount:
        return Amount(self.settled_calls, self.settled_usd)

    @property
    def outstanding_amount(self) -> Amount:
        return self.lent.subtract_amount(self.settled_amount)


class LoanManager:
    """Records on disk how many calls may be billed, before any process sends them.

    There is one manager for each journal. A "loan" is the number and the maximum cost of the calls
    that a process may send. `wait` is passed to the loan of this process (see `Loan`).
    """

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
        """Settle a call that is in the journal: subtract the call and `usd` from the loan."""
        account = self._accounts[borrower]
        account.settled_calls += 1
        account.settled_usd += usd
        self._budget.out_calls -= 1
        self._budget.out_usd -= usd

    async def lend_to_worker(self, borrower: int, wish: LoanWish) -> Amount:
        """Lend to a worker, and return the total lent to this worker once the loan is on disk.

        Raises StorageError if the loan cannot be written.
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
        """Record a lost worker and return its outstanding loan. The vendor may have billed it."""
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
        """Give back the part of this process's own loan that no call has used.

        Called when no call is in flight.
        """
        loan = self.loan
        self.take_back(OWN_PROCESS, Amount(loan.begun_calls, loan.begun_usd))
        loan.apply_loan(self._accounts[OWN_PROCESS].lent)

    def take_back(self, borrower: int, begun: Amount) -> None:
        """Reduce the loan of a process that starts no more calls.

        The loan then covers exactly the calls that have `begun`.
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
        """Lend the amount that a process asks for. Return the total lent to this process."""
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
        """Return the amount to lend ahead of need (calls, USD).

        `needed`: the amount for calls that are unsettled or about to start. `had`: the outstanding
        loan.
        """
        # Loans of the other borrowers are already promised.
        lent_to_others = Amount(self._budget.out_calls, self._budget.out_usd).subtract_amount(had)
        usd, calls = self._budget.left()
        max_calls, max_usd = wish.ahead, wish.ahead * wish.price
        if calls is not None:
            free_calls = calls - lent_to_others.calls - needed.calls
            max_calls = min(
                max_calls, free_calls, max(MIN_CALLS_AHEAD, int(SHARE_AHEAD * free_calls))
            )
        if usd is not None:
            free_usd = usd - lent_to_others.usd - needed.usd
            share = max(MIN_CALLS_AHEAD * wish.price, SHARE_AHEAD * free_usd)
            max_usd = min(max_usd, free_usd, share)
            if wish.price:
                max_calls = min(max_calls, int(max_usd / wish.price))
        return Amount(max(0, max_calls), max(0.0, max_usd))
