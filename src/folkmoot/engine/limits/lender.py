"""Loans: no call is sent that is not covered by a loan on the disk.

The journal says how many calls may be out, and for how much money at most. So whoever opens it
after a kill knows what was possibly paid. One lender per journal lends to every process that makes
calls for it: its own, and the workers of a cluster. Loans are taken ahead of need, in the journal's
group commits, so that a call seldom waits for one.

Amounts are added up since a process began, so that a loan and what came of it need no pairing:
what is out is what was lent less what was settled. Used by the gateway and `cluster`.
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

FIRST_AHEAD = 64  # calls lent ahead of need at first, where no budget bounds them
FEWEST_AHEAD = 8
MOST_AHEAD = 1000
SHRINK = 0.9  # of what was lent ahead the last time, where fewer calls begin
SHARE_AHEAD = 0.05  # of what is left of a budget; FEWEST_AHEAD calls may be more
COMMIT_SECONDS = 0.05  # until a loan is on the disk, a slow disk included
PACKAGE_PREFIX = -1  # the number of the process that has the journal; workers count from 0
_ROUNDING = 1e-12  # USD; sums of floats


class Wish(NamedTuple):
    """What a process asks for: beside what it has `begun`, cover for calls that are `waiting`, and
    for so many calls `ahead`, of this `price` (USD). `urgent`: calls wait, or soon will.
    `unpriced`: it asks a model of unknown price."""

    begun: Amount = NOTHING
    waiting: Amount = NOTHING
    ahead: int = 0
    price: float = 0.0
    urgent: bool = False
    unpriced: bool = False


class Waiter(NamedTuple):
    """A call that waits for its cover."""

    covered: asyncio.Future[bool]
    usd: float


class Loan:
    """What the calls of one process may take before it must ask for more.

    `ask` is told when less than half of what was lent ahead is left, and again when calls wait;
    the answer comes by `apply_loan`. `seconds` is the time from one to the other. A call waits
    within `wait`. `unpriced` is set before the first call of unknown price: from then on only a
    loan at an unknown price covers any.
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
        self._mark = NOTHING  # beyond it more is asked for
        self._awaited = self._urgent = False  # an answer, and one on which calls wait
        self._asked = 0.0, 0  # when last, and how many were begun by then
        self._ahead = FIRST_AHEAD
        self._price = 0.0
        self._arrived: tuple[Amount, bool] | StorageError | None = None
        self._waiting: deque[Waiter] = deque()  # first come, first served
        self._stopped: FolkmootError | None = None

    def try_cover(self, usd: float) -> bool:
        """Take the cover for a call at once, if it is there."""
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
        """Wait until a call is covered. Raises what `stop_calls` was given."""
        if self.try_cover(usd):
            return
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiter(future, usd))
        self._take_arrivals()  # it may have come just before
        if self._waiting and not self._urgent:
            self._awaited = self._urgent = True
            # Calls that begin in the same turn of the loop are asked for together.
            asyncio.get_running_loop().call_soon(self._ask)
        try:
            with self._wait():
                covered = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.give_back(usd)  # it was covered in the same turn of the loop
            raise
        if not covered:
            assert self._stopped is not None
            raise self._stopped.with_traceback(None)

    def give_back(self, usd: float) -> None:
        """A call came to nothing that could be billed."""
        self.begun_calls -= 1
        self.begun_usd -= usd
        self._admit_waiting_calls()

    def current_wish(self) -> Wish:
        """What to ask for: more ahead, the faster calls begin."""
        now = time.monotonic()
        at, calls = self._asked
        soon = (self.begun_calls - calls) / max(now - at, 1e-3) * self._seconds  # calls until then
        self._asked = now, self.begun_calls
        waiting = [waiter.usd for waiter in self._waiting if not waiter.covered.done()]
        ahead = max(3 * soon, SHRINK * self._ahead, 2 * self._ahead if waiting and calls else 0.0)
        self._ahead = min(MOST_AHEAD, 2 * self._ahead, max(FEWEST_AHEAD, int(ahead)))
        begun = Amount(self.begun_calls, self.begun_usd)
        price = max([self._price, *waiting])
        self._price = price / 2  # what was dear long ago counts no more
        wanted = Amount(len(waiting), sum(waiting))
        self._urgent = bool(waiting) or soon > self._ahead / 2
        return Wish(begun, wanted, self._ahead, price, self._urgent, self.unpriced)

    def receive_loan(self, lent: tuple[Amount, bool] | StorageError) -> bool:
        """Another thread tells that so much is on the disk (as for `apply_loan`), or that this
        failed. Whether calls wait for it, so that `process_arrivals` must be called in the loop's;
        the next call finds it by itself."""
        self._arrived = lent
        return bool(self._waiting)

    def process_arrivals(self) -> None:
        """See `receive_loan`."""
        self._take_arrivals()

    def apply_loan(self, lent: Amount, *, unpriced: bool = False) -> None:
        """So much is lent by now, and on the disk; `unpriced`: at an unknown price."""
        self._lent, self._arrived = lent, None
        self._lent_unpriced = self._lent_unpriced or unpriced
        self._awaited = self._urgent = False
        calls, usd = lent.calls - self.begun_calls, lent.usd - self.begun_usd
        waiting = [waiter.usd for waiter in self._waiting if not waiter.covered.done()]
        ahead = Amount(calls - len(waiting), usd - sum(waiting))
        self._mark = Amount(lent.calls - ahead.calls // 2, lent.usd - ahead.usd / 2)
        self._admit_waiting_calls()
        if self._waiting:
            self._awaited = True
            self._ask()

    def stop_calls(self, error: FolkmootError) -> None:
        """Cover no more calls; those that wait get the error."""
        self._stopped = self._stopped or error
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.covered.done():
                each.covered.set_result(False)

    def _take_arrivals(self) -> None:
        """Take what arrived from the disk."""
        arrived, self._arrived = self._arrived, None
        if isinstance(arrived, StorageError):
            self.stop_calls(arrived)
        elif arrived is not None:
            self.apply_loan(arrived[0], unpriced=arrived[1])

    def _fits_loan(self, usd: float) -> bool:
        return (
            self.unpriced <= self._lent_unpriced
            and self.begun_calls < self._lent.calls
            and self.begun_usd + usd <= self._lent.usd + _ROUNDING
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
            if not waiter.covered.done():  # else cancelled while it waited
                self._begin_call(waiter.usd)
                waiter.covered.set_result(True)


class Ledger(Protocol):
    """Where loans are written down: the journal."""

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
    """What was lent to one borrower, and what of it came to an answer or to nothing."""

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
    """Lends to the processes that make calls for one journal. `budget` is the run's; `wait` as for
    a `Loan`."""

    def __init__(
        self,
        ledger: Ledger,
        budget: Budget,
        wait: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.loan = Loan(self._lend_to_own, wait=wait)
        self._ledger = ledger
        self._budget = budget
        self._accounts: dict[int, Account] = {PACKAGE_PREFIX: Account()}
        self._unwritten = NOTHING
        self.unpriced = False  # whether it lends at an unknown price

    def record_settlement(self, usd: float, borrower: int = PACKAGE_PREFIX) -> None:
        """A call that was lent for is in the journal: so much of the loan is over."""
        account = self._accounts[borrower]
        account.settled_calls += 1
        account.settled_usd += usd
        self._budget.out_calls -= 1
        self._budget.out_usd -= usd

    async def lend_to_worker(self, borrower: int, wish: Wish) -> Amount:
        """What a worker has been lent by now, its wish included, once it is on the disk."""
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        failed: list[StorageError | None] = []

        def signal_written(error: StorageError | None) -> None:
            failed.append(error)
            with suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(written.set)

        lent = self._grant_wish(borrower, wish)
        self._write_loan(signal_written, at_once=True)
        await written.wait()
        if failed[0] is not None:
            raise failed[0]
        return lent

    def record_lost_worker(self, borrower: int) -> Amount:
        """A worker is gone: what it had out is possibly paid."""
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
        """No call is in flight here: nothing is lent ahead any more."""
        loan = self.loan
        self.take_back(PACKAGE_PREFIX, Amount(loan.begun_calls, loan.begun_usd))
        loan.apply_loan(self._accounts[PACKAGE_PREFIX].lent)

    def take_back(self, borrower: int, begun: Amount) -> None:
        """A process begins no more calls than these."""
        account = self._accounts.get(borrower)
        if account is not None and account.lent != begun:
            self._record_loan(borrower, begun)
            self._write_loan(lambda error: None)

    def _lend_to_own(self) -> None:
        wish = self.loan.current_wish()
        lent, loop = self._grant_wish(PACKAGE_PREFIX, wish), asyncio.get_running_loop()
        told = (lent, self.unpriced)

        def signal_own_loan(error: StorageError | None) -> None:
            if error is None and not self._accounts[PACKAGE_PREFIX].lent.covers_amount(lent):
                return  # it was given back meanwhile
            if self.loan.receive_loan(told if error is None else error):
                with suppress(RuntimeError):  # the loop is over
                    loop.call_soon_threadsafe(self.loan.process_arrivals)

        self._write_loan(signal_own_loan, at_once=wish.urgent)

    def _write_loan(
        self, done: Callable[[StorageError | None], None], *, at_once: bool = False
    ) -> None:
        more, self._unwritten = self._unwritten, NOTHING
        self._ledger.record_loan(more, done, unpriced=self.unpriced, at_once=at_once)

    def _grant_wish(self, borrower: int, wish: Wish) -> Amount:
        """Lend what a process has begun, what waits there, and so much ahead as its rate needs and
        the budget bears."""
        account = self._accounts.setdefault(borrower, Account())
        needed = wish.begun.add_amount(wish.waiting)
        ahead = self._ahead_of(
            wish, needed.subtract_amount(account.settled_amount), account.outstanding_amount
        )
        self.unpriced = self.unpriced or wish.unpriced
        wanted = needed.add_amount(ahead)
        # What is lent stays lent: the borrower may go on with it while the answer is on its way.
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

    def _ahead_of(self, wish: Wish, needed: Amount, had: Amount) -> Amount:
        """What to lend ahead. Of this borrower `needed` is out or about to be; it `had` so much."""
        others = Amount(self._budget.out_calls, self._budget.out_usd).subtract_amount(had)
        usd, calls = self._budget.left()
        most_calls, most_usd = wish.ahead, wish.ahead * wish.price
        if calls is not None:
            free = calls - others.calls - needed.calls
            most_calls = min(most_calls, free, max(FEWEST_AHEAD, int(SHARE_AHEAD * free)))
        if usd is not None:
            free_usd = usd - others.usd - needed.usd
            share = max(FEWEST_AHEAD * wish.price, SHARE_AHEAD * free_usd)
            most_usd = min(most_usd, free_usd, share)
            if wish.price:
                most_calls = min(most_calls, int(most_usd / wish.price))
        return Amount(max(0, most_calls), max(0.0, most_usd))
