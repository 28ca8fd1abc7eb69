"""The journal of a running study: appends entries, and finds the entry at an address.

Reports and `verify` read a journal with `journal_reader`.
"""

# One writer thread commits entries in groups, in the order in which they were appended. After a
# crash the journal therefore holds a prefix of the run: no entry without the entries that it
# depends on.

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
    read_meta_value,
)
from folkmoot.engine.journal.journal_file import (
    FORMAT,
    REPAIRED,
    BatchRecord,
    BrokenReply,
    FirstReply,
    JournalEntry,
    checkpoint_wal,
    commit_group,
    escape_address_part,
    open_for_writing,
    read_chain,
    release_batch,
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
# Bounds one transaction, so that a loan does not wait long for its commit.
MAX_GROUP_COMMIT = 1000
# A commit waits this long for further entries. Each commit syncs the disk, so one commit for each
# entry would limit a run to the speed of the disk.
GROUP_COMMIT_SECONDS = 0.02
# Entries that are not on disk yet. A full queue blocks `append`.
MAX_QUEUED_ENTRIES = 2 * MAX_GROUP_COMMIT


class Journal(JournalReader):
    """The journal of a run in progress, closed by `with` or `close`.

    Raises ForeignJournalError if the file is corrupt, was changed, or is not a journal.
    Raises StorageError if the disk is full or read-only.
    """

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        # Check before opening for writing: SQLite would create files beside a journal that is
        # refused.
        _refuse_damaged(path)
        super().__init__(path, open_for_writing(path))
        self.repaired = bool(read_meta_value(self._reader, REPAIRED))
        self.accept_changes = accept_changes or self.repaired
        # Whether earlier processes have made calls. A new journal has no entries to look up, which
        # saves a query for each call.
        self.is_resumed = (
            self._reader.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        )
        try:
            # The hash chain over all entries, those appended by this process included.
            self._chain = read_chain(self._reader)
        except StorageError:
            self._reader.close()
            raise
        self._digests = ("", "")
        # The journal of the run that this run is a fork of.
        self.earlier: EarlierReplies | None = None
        # Whether this process has written anything.
        self.changed = False
        self.before_change: Callable[[], None] | None = None
        self._queue: queue.SimpleQueue[
            JournalEntry | _Covered | _AfterCommit | Callable[[], None] | None
        ]
        self._queue = queue.SimpleQueue()
        self._loan = OwnLoan()
        self._error: StorageError | None = None
        self._closed = False
        # Set to make the writer commit at once, without waiting for further entries.
        self._now = threading.Event()
        self._thread = threading.Thread(target=self._run_writer, name="journal", daemon=True)
        self._thread.start()

    def end_repair(self) -> None:
        """Remove the note that the journal was repaired.

        Use this after the calls of all removed entries were made again.
        """

        def delete_repair_mark(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM meta WHERE key = ?", (REPAIRED,))

        if self.repaired:
            self._run_in_writer(delete_repair_mark)

    def notify_change(self) -> None:
        """Call `self.before_change` before the first change. Later, do nothing."""
        callback, self.before_change = self.before_change, None
        if callback is not None:
            callback()

    def content_digest(self) -> str:
        """Return a hash over all requests and replies of the closed journal."""
        return self._digests[0]

    def record_digest(self) -> str:
        """Return a hash over everything in the closed journal."""
        return self._digests[1]

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """Return the entry at an address, or None if the call has to be made.

        Raises DriftError if the entry at the address holds a request that differs from `request`.
        """
        # In a fork, an entry of the earlier run with the same request is copied. With
        # `accept_changes`, an entry with another request is moved to the table of replaced entries,
        # and the result is None.
        found = super().lookup_entry(address, fingerprint, request) if self.is_resumed else None
        if found is None and self.earlier is not None:
            found = self.earlier.take(address, fingerprint, request)
            if found is not None:
                # A copied entry is queued like a new one, so that the order of the run is kept.
                self.append(found)
        return found

    def _drift_error(
        self, address: str, stored: str, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        if not self.accept_changes:
            return super()._drift_error(address, stored, request)
        self.changed = True
        self.notify_change()
        # The writer thread moves the entry, after it has committed the entries queued before.
        self._queue.put(lambda: self._supersede_entry(address))
        return None

    def append(self, entry: JournalEntry, covered_usd: float | None = None) -> None:
        """Queue an entry for the next commit.

        `covered_usd`: the maximum cost recorded on disk before the call, or None.

        Raises StorageError if an earlier commit failed.
        """
        # A full queue blocks the caller, because a crash would lose the whole queue.
        if self._error is not None:
            raise self._error
        self.changed = True
        self.notify_change()
        self._queue.put(entry if covered_usd is None else _Covered(entry, covered_usd))
        if self._queue.qsize() >= MAX_QUEUED_ENTRIES:
            # Block the whole event loop, not this coroutine alone: other coroutines would fill the
            # queue further.
            written = threading.Event()
            self._queue.put(_AfterCommit(written.set))
            written.wait()

    async def flush(self) -> None:
        """Wait until all entries appended so far are on disk.

        Raises StorageError if entries could not be written.
        """
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
        """Queue a change in the number of calls that may be sent.

        - `more`: the number of calls and the maximum cost to add. Negative values subtract.
        - `done`: called by the writer thread when the change is on disk.
        - `unpriced`: whether the calls may have an unknown price.
        - `at_once`: write without waiting for further entries.
        """

        def apply_loan() -> None:
            self._loan.increase_loan(more, unpriced=unpriced)

        self._queue.put(_AfterCommit(lambda: done(self._error), apply_loan))
        if at_once:
            self._now.set()

    def note_lost(self, out: Amount) -> None:
        """Record that calls of a lost worker may have been billed.

        `out`: the number and the maximum cost of the calls.
        """
        self._run_in_writer(lambda db: self._loan.record_lost_loan(db, out))

    def note_found(self, entries: Iterable[JournalEntry]) -> None:
        """Record that `entries`, which killed processes left behind, have been recovered.

        From then on, the calls of these entries do not count as possibly billed.
        """
        costs = [entry.cost_usd or 0.0 for entry in entries if entry.kind != "compute"]
        if costs:
            self._run_in_writer(lambda db: self._loan.settle_found(db, len(costs), sum(costs)))

    def note(self, batch: BatchRecord, keys: Iterable[str] = ()) -> Future[None]:
        """Write a batch and the keys of its requests.

        The returned future is done after the write.
        """
        # The content digest leaves batches out, because the way in which requests were sent does
        # not change the results.
        return self._run_in_writer(lambda db: write_batch(db, batch, keys))

    def release_batch(self, name: str) -> Future[None]:
        """Record that the vendor processed no request of a batch, so that none may be billed.

        The returned future is done after the write.
        """
        return self._run_in_writer(lambda db: release_batch(db, name))

    def put_broken(self, broken: BrokenReply) -> Future[None]:
        """Write the record of a reply that broke off or did not arrive.

        The returned future is done after the write.
        """
        # A resume counts the maximum cost of the reply against the budget. The content digest
        # leaves it out.
        return self._run_in_writer(lambda db: write_broken(db, broken))

    @property
    def has_own_loan(self) -> bool:
        """True if calls of this process may be billed without an entry. Valid after `close`."""
        return self._loan.is_outstanding

    def _run_in_writer(self, write: Callable[[sqlite3.Connection], None]) -> Future[None]:
        written: Future[None] = Future()
        self.changed = True
        self.notify_change()

        def write_now() -> None:
            try:
                if self._error is not None:
                    raise self._error
                with self._db:
                    write(self._db)
            except Exception as error:
                written.set_exception(storage_error(self.path, error))
            else:
                written.set_result(None)

        self._queue.put(write_now)
        return written

    def close(self) -> None:
        """Commit queued entries and close the file.

        Raises StorageError if entries could not be written. Later calls of `close` raise it again.
        """
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._now.set()
            self._thread.join()
            if self.earlier is not None:
                self.earlier.close()
            # Compute the digests while the connection is still open: they are asked for after
            # `close`.
            self._digests = super().content_digest(), super().record_digest()
            self._reader.close()
        if self._error is not None:
            raise self._error

    def _run_writer(self) -> None:
        try:
            # A separate connection, so that lookups of the event loop do not wait for transactions.
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
                # After an error nothing more is committed: the journal must stay a prefix of the
                # run.
                if self._error is None and (group or self._loan.has_changed):
                    self._chain = commit_group(
                        db, group, stored, self._chain, self._loan.write_loan
                    )
            except Exception as error:
                # The thread must continue after any error, because callers wait for it.
                self._error = storage_error(self.path, error)
            # Run callbacks even after an error: callers wait for them and read the error
            # themselves.
            for notice in notices:
                notice()
        # The file must be complete without its write-ahead log, because people copy it.
        checkpoint_wal(db)
        db.close()

    def _next_group(self) -> tuple[list[JournalEntry], list[Callable[[], object]], bool]:
        # Returns the entries of one commit, the callbacks after it, and whether to continue.
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
                # A separate write ends the group, so that it is committed after the entries before
                # it.
                return group, [*notices, item], True
            if len(group) >= MAX_GROUP_COMMIT:
                return group, notices, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, notices, True

    def _fail_queue(self) -> None:
        # No caller may wait for ever after a failed start.
        while (item := self._queue.get()) is not None:
            if isinstance(item, _AfterCommit):
                item.callback()
            elif not isinstance(item, (JournalEntry, _Covered)):
                item()

    def _supersede_entry(self, address: str) -> None:
        # An error must not end the writer thread: callers wait for it, and read the error.
        try:
            if self._error is None:
                with self._db:
                    self._chain = supersede_entry(self._db, address, time.time(), self._chain)
        except Exception as error:
            self._error = storage_error(self.path, error)


def _refuse_damaged(path: Path) -> None:
    # Open read-only, so that a refusal leaves no SQLite files beside the journal.
    if not path.exists() or not path.stat().st_size:
        return
    try:
        with JournalReader(path) as journal:
            damage = journal.find_damage() if journal.format_version == FORMAT else []
    except EmptyJournalError:
        return
    if not damage:
        return
    listed_damage = "; ".join(map(str, damage[:MAX_LISTED_ADDRESSES]))
    more = "; …" if len(damage) > MAX_LISTED_ADDRESSES else ""
    raise ForeignJournalError(
        f"{path}: {listed_damage}{more}. The run would continue from false answers. Restore the "
        "original journal, without journal.sqlite-wal and -shm, or have the damaged answers "
        "asked again: `folkmoot verify --repair`."
    )


class _Covered(NamedTuple):
    # The maximum cost (USD) was recorded on disk before the call.
    entry: JournalEntry
    usd: float


class _AfterCommit(NamedTuple):
    # The writer runs `callback` when all items queued before it are on disk.
    callback: Callable[[], object]
    # Called earlier, when the writer takes the item from the queue.
    take: Callable[[], None] = lambda: None
