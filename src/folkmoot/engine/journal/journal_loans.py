"""The table `loans` of a journal: how many calls may be out beside its entries, and for how much.

One row is of the process under way, changed with every commit and gone when it ends as it should.
Rows that killed processes and workers left are what was possibly paid. Used by `journal.py`.
"""

from __future__ import annotations

import sqlite3
import time
from typing import NamedTuple

from folkmoot.engine.journal.integrity import has_table, hash_loans, keep_in_meta
from folkmoot.engine.limits.budget import NOTHING, Amount

PROCESS, WORKER = "process", "worker"
LOANS = """
CREATE TABLE IF NOT EXISTS loans(
    number INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, calls INTEGER NOT NULL,
    max_usd REAL
)
"""


class Outstanding(NamedTuple):
    """What may be out: of a process or a worker, since when (seconds since 1970), how many calls,
    and for how much at most (USD; None: at an unknown price)."""

    at: float
    who: str
    calls: int
    max_usd: float | None


def loans_in(db: sqlite3.Connection) -> list[Outstanding]:
    """What may be out beside the entries, in the order in which it was lent."""
    if not has_table(db, "loans"):
        return []
    rows = db.execute("SELECT at, who, calls, max_usd FROM loans ORDER BY number")
    return [Outstanding._make(row) for row in rows]


def write_loan(db: sqlite3.Connection, loan: Outstanding, number: int | None = None) -> int:
    """Write down what is out, in place of the row of this number, in a transaction of the caller's.
    Returns the number of its row. Where nothing is out there is no row."""
    if number is None:
        db.execute(LOANS)
    if loan.calls:
        made = db.execute("INSERT OR REPLACE INTO loans VALUES (?, ?, ?, ?, ?)", (number, *loan))
        number = made.lastrowid
    else:
        db.execute("DELETE FROM loans WHERE number = ?", (number,))
    keep_in_meta(db, "loans", hash_loans(db))
    return number or 0


class OwnLoan:
    """What the process that writes a journal has out: what was lent since it began, less what was
    settled. The writer's thread alone uses it."""

    def __init__(self) -> None:
        self._lent = NOTHING
        self._settled_calls = 0
        self._settled_usd = 0.0
        self._unpriced = False
        self._written = Outstanding(time.time(), PROCESS, 0, 0.0)
        self._number: int | None = None

    @property
    def has_changed(self) -> bool:
        """Whether the file does not say what is out."""
        return self._current_outstanding() != self._written

    def write_loan(self, db: sqlite3.Connection) -> None:
        """Write what is out, in the transaction of what changed it."""
        now = self._current_outstanding()
        if now != self._written:
            self._number = write_loan(db, now, self._number)
            self._written = now

    def increase_loan(self, more: Amount, *, unpriced: bool) -> None:
        """So much more may be out with the next commit."""
        self._lent = self._lent.add_amount(more)
        self._unpriced = self._unpriced or unpriced

    def settle_call(self, usd: float) -> None:
        """A call is settled with the next commit."""
        self._settled_calls += 1
        self._settled_usd += usd

    def settle_found(self, db: sqlite3.Connection, calls: int, usd: float) -> None:
        """Take replies that were found off what others had out, the latest first. Who had
        them out is not known, so what they did not cost stays out as long as any call does."""
        if not has_table(db, "loans"):
            return
        own = self._number or 0
        rows = "SELECT number, calls, max_usd FROM loans WHERE number != ? ORDER BY number DESC"
        for number, out, most in db.execute(rows, (own,)).fetchall():
            fewer = min(calls, out)
            usd -= most or 0.0
            left: tuple[int, float | None] = (out - fewer, None)
            if fewer < out:
                left = (out - fewer, None if most is None else max(0.0, -usd))
                usd = 0.0
            calls -= fewer
            db.execute("UPDATE loans SET calls = ?, max_usd = ? WHERE number = ?", (*left, number))
        db.execute("DELETE FROM loans WHERE calls = 0")
        keep_in_meta(db, "loans", hash_loans(db))

    def record_lost_loan(self, db: sqlite3.Connection, out: Amount) -> None:
        """Write down what a lost worker had out in a row for itself."""
        most = None if self._unpriced else out.usd
        write_loan(db, Outstanding(time.time(), WORKER, out.calls, most))
        self._settled_calls += out.calls
        self._settled_usd += out.usd
        self.write_loan(db)

    def _current_outstanding(self) -> Outstanding:
        calls = self._lent.calls - self._settled_calls
        usd = self._lent.usd - self._settled_usd
        if calls <= 0:
            return self._written._replace(calls=0, max_usd=0.0)
        most = None if self._unpriced else round(max(usd, 0.0), 9)
        return self._written._replace(calls=calls, max_usd=most)
