"""The table `loans` of a journal: calls that may be billed although the journal has no entry."""

# One row belongs to the running process. This row changes with every commit and is deleted at a
# normal end of the process. Rows that killed processes and workers left are calls that were
# possibly paid. `engine/limits/lender.py` explains loans.

from __future__ import annotations

import sqlite3
import time
from typing import NamedTuple

from folkmoot.engine.journal.integrity import has_table, hash_loans, write_meta_value
from folkmoot.engine.limits.budget import NOTHING, Amount

PROCESS, WORKER = "process", "worker"
# Calls with entries that a repair removed and could not read.
REMOVED = "removed"
LOANS = """
CREATE TABLE IF NOT EXISTS loans(
    number INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, calls INTEGER NOT NULL,
    max_usd REAL
)
"""


class OutstandingLoan(NamedTuple):
    """Calls that may be billed although they have no journal entry."""

    # The time of their record in seconds since 1970.
    at: float
    who: str
    calls: int
    # Their maximum cost (USD), or None if a price is unknown.
    max_usd: float | None


def read_loans(db: sqlite3.Connection) -> list[OutstandingLoan]:
    """Return the possibly billed calls without a journal entry, oldest first."""
    if not has_table(db, "loans"):
        return []
    rows = db.execute("SELECT at, who, calls, max_usd FROM loans ORDER BY number")
    return [OutstandingLoan._make(row) for row in rows]


def write_loan(db: sqlite3.Connection, loan: OutstandingLoan, number: int | None = None) -> int:
    """Write a row of the table `loans`, and return its number.

    `number`: the row to replace, or None to add a row.
    """
    # The row is written in the caller's transaction. A row without calls is deleted.
    if number is None:
        db.execute(LOANS)
    if loan.calls:
        cursor = db.execute("INSERT OR REPLACE INTO loans VALUES (?, ?, ?, ?, ?)", (number, *loan))
        number = cursor.lastrowid
    else:
        db.execute("DELETE FROM loans WHERE number = ?", (number,))
    # The seal of the table must change in the transaction that changes the table.
    write_meta_value(db, "loans", hash_loans(db))
    return number or 0


class OwnLoan:
    """The calls of this process that have no journal entry yet."""

    # They are kept as one row of the table `loans`. Only the writer thread uses the object.
    def __init__(self) -> None:
        self._lent = NOTHING
        self._settled_calls = 0
        self._settled_usd = 0.0
        self._unpriced = False
        self._written = OutstandingLoan(time.time(), PROCESS, 0, 0.0)
        self._number: int | None = None

    @property
    def has_changed(self) -> bool:
        """True if the calls that may be billed have changed since the last write."""
        return self._current_outstanding() != self._written

    @property
    def is_outstanding(self) -> bool:
        """True if the last write recorded calls that may be billed."""
        return self._written.calls > 0

    def write_loan(self, db: sqlite3.Connection) -> None:
        """Write the row of this process to the table `loans`, if the row has changed."""
        # Use the transaction that writes the entries of these calls.
        outstanding = self._current_outstanding()
        if outstanding != self._written:
            self._number = write_loan(db, outstanding, self._number)
            self._written = outstanding

    def increase_loan(self, more: Amount, *, unpriced: bool) -> None:
        """Add calls that this process may now send.

        `unpriced`: whether the calls may have an unknown price.
        """
        # They are on disk after the next commit.
        self._lent = self._lent.add_amount(more)
        self._unpriced = self._unpriced or unpriced

    def settle_call(self, usd: float) -> None:
        """Record that a call of this process now has a journal entry.

        `usd`: the maximum cost that was recorded before the call.
        """
        # The change is on disk after the next commit.
        self._settled_calls += 1
        self._settled_usd += usd

    def settle_found(self, db: sqlite3.Connection, calls: int, usd: float) -> None:
        """Subtract recovered replies from the possibly billed calls of killed processes.

        - `calls`: the number of recovered replies.
        - `usd`: the cost of the recovered replies in USD.
        """
        # The latest process comes first, because the journal does not know which process made which
        # call.
        if not has_table(db, "loans"):
            return
        # The loan of this process is settled by `settle_call`.
        own_number = self._number or 0
        query = "SELECT number, calls, max_usd FROM loans WHERE number != ? ORDER BY number DESC"
        for number, outstanding_calls, max_usd in db.execute(query, (own_number,)).fetchall():
            covered_calls = min(calls, outstanding_calls)
            usd -= max_usd or 0.0
            # `usd` is negative once the loans exceed the cost of the replies. The difference is
            # carried to the next loan.
            remaining: tuple[int, float | None] = (outstanding_calls - covered_calls, None)
            if covered_calls < outstanding_calls:
                remaining = (
                    outstanding_calls - covered_calls,
                    None if max_usd is None else max(0.0, -usd),
                )
                usd = 0.0
            calls -= covered_calls
            db.execute(
                "UPDATE loans SET calls = ?, max_usd = ? WHERE number = ?", (*remaining, number)
            )
        db.execute("DELETE FROM loans WHERE calls = 0")
        write_meta_value(db, "loans", hash_loans(db))

    def record_lost_loan(self, db: sqlite3.Connection, out: Amount) -> None:
        """Record a lost worker's possibly billed calls in a separate row.

        `out`: the number and the maximum cost of the calls.
        """
        max_usd = None if self._unpriced else out.usd
        write_loan(db, OutstandingLoan(time.time(), WORKER, out.calls, max_usd))
        # The worker borrowed from the loan of this process, which now shrinks by the same amount.
        self._settled_calls += out.calls
        self._settled_usd += out.usd
        self.write_loan(db)

    def _current_outstanding(self) -> OutstandingLoan:
        calls = self._lent.calls - self._settled_calls
        usd = self._lent.usd - self._settled_usd
        if calls <= 0:
            return self._written._replace(calls=0, max_usd=0.0)
        # Round, because sums of floats would make the row differ with every commit.
        max_usd = None if self._unpriced else round(max(usd, 0.0), 9)
        return self._written._replace(calls=calls, max_usd=max_usd)
