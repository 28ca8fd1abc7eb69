"""The journal: every paid-for effect of a run, once, at its structural address.

One writer thread commits in groups. Entries are committed in the order in which they were put, so
after a crash the journal holds a prefix of the run: never an effect without those it was made from.
The gateway and the session write; reports, `show` and `verify` read.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from folkmoot.engine.journal.earlier_replies import EarlierReplies
from folkmoot.engine.journal.integrity import (
    kept_in_meta,
)
from folkmoot.engine.journal.journal_file import (
    FORMAT,
    REPAIRED,
    BatchRecord,
    BrokenReply,
    FirstReply,
    JournalEntry,
    chain_in,
    checkpoint_wal,
    commit_group,
    escape_address_part,
    open_for_writing,
    storage_error,
    supersede_entry,
    unescape_address_part,
    write_batch,
    write_broken,
)
from folkmoot.engine.journal.journal_loans import OwnLoan
from folkmoot.engine.journal.journal_reader import JournalReader, ReplayJournal
from folkmoot.engine.limits.budget import Amount
from folkmoot.errors import (
    EmptyJournalError,
    ForeignJournalError,
    StorageError,
)

__all__ = [
    "BatchRecord",
    "BrokenReply",
    "FirstReply",
    "Journal",
    "JournalEntry",
    "JournalReader",
    "ReplayJournal",
    "escape_address_part",
    "unescape_address_part",
]

MAX_LISTED_ADDRESSES = 5
MAX_GROUP_COMMIT = 1000  # entries a commit at most
GROUP_COMMIT_SECONDS = 0.02  # how long a group waits for company
MAX_QUEUED_ENTRIES = 2 * MAX_GROUP_COMMIT  # entries that are not on the disk yet


class Journal(JournalReader):
    """The journal of a run that is under way. Use as a context manager, or call `close`.

    Raises ForeignJournal for a file that is corrupt, not ours, or changed since it was written;
    StorageError when the disk is full or read-only.
    """

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        _refuse_damaged(path)
        super().__init__(path, open_for_writing(path))
        self.repaired = bool(kept_in_meta(self._reader, REPAIRED))
        self.accept_changes = accept_changes or self.repaired
        self._resuming = (
            self._reader.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        )
        try:
            self._chain = chain_in(self._reader)  # with what was put since
        except StorageError:
            self._reader.close()
            raise
        self._digests = ("", "")
        self.earlier: EarlierReplies | None = None  # of the run of which this one is a fork
        self.changed = False  # by this process
        self.before_change: Callable[[], None] | None = None
        self._queue: queue.SimpleQueue[
            JournalEntry | _Covered | _AfterCommit | Callable[[], None] | None
        ]
        self._queue = queue.SimpleQueue()
        self._loan = OwnLoan()
        self._error: StorageError | None = None
        self._closed = False
        self._now = threading.Event()  # no waiting for company
        self._thread = threading.Thread(target=self._run_writer, name="journal", daemon=True)
        self._thread.start()

    def end_repair(self) -> None:
        """Note that everything that a repair had set aside was asked for again."""

        def delete_repair_mark(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM meta WHERE key = ?", (REPAIRED,))

        if self.repaired:
            self._write_beside(delete_repair_mark)

    def tell_change(self) -> None:
        """Call `before_change`, once."""
        tell, self.before_change = self.before_change, None
        if tell is not None:
            tell()

    def content_digest(self) -> str:
        """As the reader's, of what is committed: ask when it is closed."""
        return self._digests[0]

    def record_digest(self) -> str:
        """As the reader's, of what is committed: ask when it is closed."""
        return self._digests[1]

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """As the reader's; under `accept_changes` an entry that was made from another request is
        moved to `superseded_count` and None is returned. What an earlier run knows is copied."""
        found = super().lookup_entry(address, fingerprint, request) if self._resuming else None
        if found is None and self.earlier is not None:
            found = self.earlier.take(address, fingerprint, request)
            if found is not None:
                self.append(found)
        return found

    def _drift_error(
        self, address: str, stored: str, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        if not self.accept_changes:
            return super()._drift_error(address, stored, request)
        self.changed = True
        self.tell_change()
        self._queue.put(lambda: self._supersede_entry(address))
        return None

    def append(self, entry: JournalEntry, covered_usd: float | None = None) -> None:
        """Queue an entry for the next commit. Raises StorageError if an earlier one failed. What
        covered it (USD) is out no more when it is on the disk; None where no loan did.

        Replies may come faster than the disk takes them (a model in the process): then all waits,
        or memory would grow with the run, and a crash would lose what stood in the queue.
        """
        if self._error is not None:
            raise self._error
        self.changed = True
        self.tell_change()
        self._queue.put(entry if covered_usd is None else _Covered(entry, covered_usd))
        if self._queue.qsize() >= MAX_QUEUED_ENTRIES:
            written = threading.Event()
            self._queue.put(_AfterCommit(written.set))
            written.wait()

    async def flush(self) -> None:
        """Return when all that was put so far is on the disk. Raises StorageError if it is not."""
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        self._queue.put(_AfterCommit(lambda: loop.call_soon_threadsafe(written.set)))
        await written.wait()
        if self._error is not None:
            raise self._error

    def record_loan(
        self,
        more: Amount,
        done: Callable[[StorageError | None], None],
        *,
        unpriced: bool,
        at_once: bool,
    ) -> None:
        """Write down that so much more is lent, or less below zero. `done` is called when it is on
        the disk, in the writer's thread. It is no change of the run: a process that ends as it
        should leaves nothing of it."""

        def apply_loan() -> None:
            self._loan.increase_loan(more, unpriced=unpriced)

        self._queue.put(_AfterCommit(lambda: done(self._error), apply_loan))
        if at_once:
            self._now.set()

    def note_lost(self, out: Amount) -> None:
        """A worker of this process is gone: what it had out is possibly paid."""
        self._write_beside(lambda db: self._loan.record_lost_loan(db, out))

    def note_found(self, entries: Iterable[JournalEntry]) -> None:
        """Replies of an earlier process were found: they are paid, and no longer possibly."""
        costs = [entry.cost_usd or 0.0 for entry in entries if entry.kind != "compute"]
        if costs:
            self._write_beside(lambda db: self._loan.settle_found(db, len(costs), sum(costs)))

    def note(self, batch: BatchRecord, keys: Iterable[str] = ()) -> Future[None]:
        """Write a batch down, and which requests stand in it; done when it is on the disk.

        Nothing of it is in the digest: how a run was sent is not part of what was said.
        """

        return self._write_beside(lambda db: write_batch(db, batch, keys))

    def put_broken(self, broken: BrokenReply) -> Future[None]:
        """Write down a reply that broke off; done when it is on the disk. A resume counts it
        against the budget. It is not in the digest: nothing was said."""

        return self._write_beside(lambda db: write_broken(db, broken))

    def _write_beside(self, write: Callable[[sqlite3.Connection], None]) -> Future[None]:
        """Have the writer thread write data other than entries, in a separate transaction."""
        done: Future[None] = Future()
        self.changed = True
        self.tell_change()

        def write_now() -> None:
            try:
                if self._error is not None:
                    raise self._error
                with self._db:
                    write(self._db)
            except sqlite3.Error as error:
                done.set_exception(storage_error(self.path, error))
            except StorageError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._queue.put(write_now)
        return done

    def close(self) -> None:
        """Commit what is queued and close the file. Raises StorageError, each time, if entries
        could not be written."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._now.set()
            self._thread.join()
            if self.earlier is not None:
                self.earlier.close()
            self._digests = super().content_digest(), super().record_digest()
            self._reader.close()
        if self._error is not None:
            raise self._error

    def _run_writer(self) -> None:
        """The writer thread: take what is queued, commit it as one group, repeat."""
        try:
            db = open_for_writing(self.path)
        except StorageError as error:
            self._error = error
            self._fail_queue()
            return
        self._db = db
        stored: set[bytes] = set()
        open_for_more = True
        while open_for_more:
            group, notices, open_for_more = self._next_group()
            try:
                if self._error is None and (group or self._loan.has_changed):
                    self._chain = commit_group(
                        db, group, stored, self._chain, self._loan.write_loan
                    )
            except sqlite3.Error as error:
                self._error = storage_error(self.path, error)
            except StorageError as error:
                self._error = error
            for notice in notices:
                notice()
        checkpoint_wal(db)
        db.close()

    def _next_group(self) -> tuple[list[JournalEntry], list[Callable[[], object]], bool]:
        """Entries for one commit, the callbacks to run after it, and whether to go on.

        Sleeps while a group gathers: a thread that woke for every entry would take the
        interpreter from the event loop each time.
        """
        group: list[JournalEntry] = []
        notices: list[Callable[[], object]] = []
        item = self._queue.get()
        self._now.wait(GROUP_COMMIT_SECONDS)
        if not self._closed:
            self._now.clear()
        while True:
            if item is None:
                return group, notices, False
            if isinstance(item, JournalEntry):
                group.append(item)
            elif isinstance(item, _Covered):
                group.append(item.entry)
                self._loan.settle_call(item.usd)
            elif isinstance(item, _AfterCommit):
                item.take()
                notices.append(item.callback)
            else:
                return group, [*notices, item], True
            if len(group) >= MAX_GROUP_COMMIT:
                return group, notices, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, notices, True

    def _fail_queue(self) -> None:
        """Answer the queue after a failed start, so that nobody waits for ever."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, _AfterCommit):
                item.callback()
            elif not isinstance(item, (JournalEntry, _Covered)):
                item()

    def _supersede_entry(self, address: str) -> None:
        with self._db:
            self._chain = supersede_entry(self._db, address, time.time(), self._chain)


def _refuse_damaged(path: Path) -> None:
    """Raise ForeignJournal where anything in a journal of this format is not as it was written.

    It is opened to read alone: a refusal leaves no file of SQLite's beside it.
    """
    if not path.exists() or not path.stat().st_size:
        return
    try:
        with JournalReader(path) as journal:
            damage = journal.find_damage() if journal.format_version == FORMAT else []
    except EmptyJournalError:
        return
    if not damage:
        return
    named = "; ".join(map(str, damage[:MAX_LISTED_ADDRESSES]))
    more = "; …" if len(damage) > MAX_LISTED_ADDRESSES else ""
    raise ForeignJournalError(
        f"{path}: {named}{more}. The run would continue from what was never said. Put the journal "
        "back as it was, without journal.sqlite-wal and -shm, or have the damaged answers asked "
        "again: `folkmoot verify --repair`."
    )


class _Covered(NamedTuple):
    """An entry, and what covered its call (USD)."""

    entry: JournalEntry
    usd: float


class _AfterCommit(NamedTuple):
    """A callback for when all earlier entries are on the disk; later ones may go with them. `take`
    is called first, when its turn comes."""

    callback: Callable[[], object]
    take: Callable[[], None] = lambda: None
