"""The journal: every paid-for effect of a run, once, at its structural address.

One writer thread commits in groups. Entries are committed in the order in which they were put, so
after a crash the journal holds a prefix of the run: never an effect without those it was made from.
The gateway and the session write; reports, `show` and `verify` read.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self

from folkmoot.engine.journal_file import (
    BATCHES,
    BROKEN,
    NAMES,
    SELECT,
    Batch,
    BrokenReply,
    Entry,
    as_part,
    commit,
    content_in,
    content_of,
    into_one_file,
    keep_digest,
    name_in,
    open_file,
    open_to_read,
    recorded_digest,
    seal_of,
    storage_error,
)
from folkmoot.errors import DriftError, ForeignJournal, NotJournaled, StorageError
from folkmoot.models.catalog import HUMAN
from folkmoot.models.request import Message
from folkmoot.randomness import digest

__all__ = [
    "Batch",
    "BrokenReply",
    "Entry",
    "Journal",
    "JournalReader",
    "Replay",
    "as_part",
    "name_in",
]

MOST_NAMED = 5
GROUP = 1000  # entries a commit at most
GROUP_SECONDS = 0.02  # how long a group waits for company
MOST_WAITING = 2 * GROUP  # entries that are not on the disk yet


class JournalReader:
    """A journal opened to read, in any format ever written. Use as a context manager, or call
    `close`.

    Raises ForeignJournal for a file that is corrupt or not ours, StorageError when there is none.
    """

    def __init__(self, path: Path, db: sqlite3.Connection | None = None) -> None:
        self.path = path
        self._reader = open_to_read(path) if db is None else db

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Entries committed so far."""
        return int(self._reader.execute("SELECT count(*) FROM entries").fetchone()[0])

    def close(self) -> None:
        self._reader.close()

    def spent(self) -> tuple[int, float, list[str]]:
        """Calls and known cost (USD) of all that was ever asked, what was asked again included,
        and the models some of whose replies have an unknown cost. A reply that broke off is no
        call, and costs the most that it may have cost."""
        paid = (
            "(SELECT model_asked, cost_usd FROM entries WHERE kind != 'compute' UNION ALL "
            "SELECT model_asked, cost_usd FROM superseded WHERE kind != 'compute')"
        )
        calls, usd = self._reader.execute(
            f"SELECT count(*), coalesce(sum(cost_usd), 0) FROM {paid}"
        ).fetchone()
        unknown = self._reader.execute(
            f"SELECT DISTINCT model_asked FROM {paid} WHERE cost_usd IS NULL ORDER BY 1"
        ).fetchall()
        broken = self.broken()
        models = {row[0] for row in unknown} | {b.model for b in broken if b.max_usd is None}
        return int(calls), float(usd) + sum(b.max_usd or 0.0 for b in broken), sorted(models)

    def broken(self) -> list[BrokenReply]:
        """The replies that broke off and may have been billed, in order of time."""
        if not self._has("broken"):
            return []
        rows = self._reader.execute("SELECT at, address, model, max_usd FROM broken ORDER BY at")
        return [BrokenReply._make(row) for row in rows]

    def by_people(self) -> int:
        """Answers of people, which no budget counts."""
        asked = "SELECT count(*) FROM entries WHERE model_asked = ?"
        return int(self._reader.execute(asked, (HUMAN,)).fetchone()[0])

    def called(self) -> dict[str, tuple[float, float]]:
        """Model asked → when it was called first and last (seconds since 1970)."""
        rows = self._reader.execute(
            "SELECT model_asked, min(started_at), max(started_at) FROM entries "
            "WHERE kind != 'compute' GROUP BY model_asked"
        )
        return {name: (first, last) for name, first, last in rows}

    def asked_at(self, address: str) -> float:
        """When an address was asked (seconds since 1970); 0 where it was not."""
        asked = "SELECT started_at FROM entries WHERE address = ?"
        row = self._reader.execute(asked, (address,)).fetchone()
        return float(row[0]) if row else 0.0

    @property
    def format(self) -> int:
        """The version of the file's format."""
        return int(self._reader.execute("SELECT value FROM meta WHERE key='format'").fetchone()[0])

    def superseded(self) -> int:
        """Entries that were asked for again under --accept-changes."""
        return int(self._reader.execute("SELECT count(*) FROM superseded").fetchone()[0])

    def content_digest(self) -> str:
        """A hash of all requests and replies by address; times and costs left out.

        A sum over entries, so that each is hashed as it is written and none need be read back.
        """
        return f"{content_in(self._reader):032x}"

    def recorded_digest(self) -> str | None:
        """The digest as it was at the last commit; None in formats that did not keep it."""
        found = recorded_digest(self._reader)
        return None if found is None else f"{found:032x}"

    def addresses(self) -> list[str]:
        """All addresses, in order."""
        return [r[0] for r in self._reader.execute("SELECT address FROM entries ORDER BY address")]

    def messages(self, address: str) -> list[Message]:
        """What was sent at an address, in order; empty where nothing was asked."""
        row = self._reader.execute(
            "SELECT request FROM entries WHERE address = ?", (address,)
        ).fetchone()
        request = self._expand(json.loads(row[0])) if row else {}
        return [Message(m["role"], m["content"]) for m in request.get("messages", ())]

    def holding(self, name: str, *, whole: bool = True) -> list[str]:
        """Addresses with this name (as it stands in addresses) among their parts, in order; unless
        `whole`, also those of which a part begins with it."""
        wanted = f"/{name}/" if whole else f"/{name}"
        parts = "instr('/' || address || '/', ?)"
        found = self._reader.execute(
            f"SELECT address FROM entries WHERE {parts} ORDER BY address", (wanted,)
        )
        return [row[0] for row in found]

    def below(self, scope: str) -> list[str]:
        """The addresses of what was asked in a scope itself, in order."""
        found = self._reader.execute(
            "SELECT address FROM entries WHERE address >= ? AND address < ? AND kind = 'ask'",
            (f"{scope}/", f"{scope}0"),  # "0" follows "/"
        )
        return [row[0] for row in found if "/" not in row[0][len(scope) + 1 :]]

    def tries(self, address: str) -> list[str]:
        """The addresses of a question and of its further tries (`.r1`, `.long`), in order."""
        found = self._reader.execute(
            "SELECT address FROM entries WHERE address = ? OR (address >= ? AND address < ?) "
            "ORDER BY address",
            (address, f"{address}.", f"{address}/"),
        )
        return [row[0] for row in found]

    def at(self, address: str, *, whole: bool = True) -> Entry | None:
        """The entry at an address; unless `whole`, long texts of its request are left as hashes."""
        row = self._reader.execute(f"{SELECT} WHERE address = ?", (address,)).fetchone()
        if row is None:
            return None
        request = json.loads(row[3])
        return Entry._make((*row[:3], self._expand(request) if whole else request, *row[4:]))

    def replies_after(self, row: int, most: int) -> list[tuple[int, str, str]]:
        """Replies (row, address, text) to questions, of the rows after this one, in their order."""
        found = self._reader.execute(
            "SELECT rowid, address, reply FROM entries WHERE rowid > ? AND kind = 'ask' "
            "ORDER BY rowid LIMIT ?",
            (row, most),
        )
        return found.fetchall()

    def last_row(self) -> int:
        """The number of the row that was written last; 0 in an empty journal."""
        return int(self._reader.execute("SELECT max(rowid) FROM entries").fetchone()[0] or 0)

    def changed(self) -> list[str]:
        """Addresses of entries that were changed since they were written, as far as seals tell."""
        columns = [row[1] for row in self._reader.execute("PRAGMA table_info(entries)")]
        if "seal" not in columns:
            return []
        rows = self._reader.execute(f"SELECT {NAMES}, seal FROM entries ORDER BY address")
        return [row[0] for row in rows if seal_of(row[:-1]) != row[-1]]

    def changed_texts(self) -> int:
        """How many of the long texts are no longer those of their hashes."""
        rows = self._reader.execute("SELECT hash, text FROM texts")
        return sum(digest(text) != key for key, text in rows)

    def batches(self) -> dict[str, Batch]:
        """What was handed in to vendors' batch interfaces, by name."""
        if not self._has("batches"):
            return {}
        rows = self._reader.execute(f"SELECT {', '.join(Batch._fields)} FROM batches")
        return {row[0]: Batch._make(row) for row in rows}

    def batch_of(self, key: str) -> str | None:
        """The name of the batch in which a request stands."""
        if not self._has("batched"):
            return None
        row = self._reader.execute("SELECT batch FROM batched WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _has(self, table: str) -> bool:
        known = "SELECT 1 FROM sqlite_master WHERE name = ?"
        return self._reader.execute(known, (table,)).fetchone() is not None

    def lookup(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> Entry | None:
        """The entry at an address, or None if this effect has not happened yet.

        Raises DriftError with a diff when the entry was made from another request.
        """
        row = self._reader.execute(f"{SELECT} WHERE address = ?", (address,)).fetchone()
        if row is None:
            return None
        if row[2] == fingerprint:
            # The request of a replayed entry is what was just asked; no need to read it back.
            return Entry(row[0], row[1], row[2], {}, *row[4:])
        return self._drifted(address, row[3], request)

    def _drifted(
        self, address: str, stored: str, request: Callable[[], Mapping[str, object]]
    ) -> Entry | None:
        raise DriftError(
            f"{address}: the request differs from the one in the journal. Restore the study as "
            "it was, or add --accept-changes to ask again where it differs.\n"
            + _difference(self._expand(json.loads(stored)), request())
        )

    def entries(self, kind: str | None = None) -> Iterable[Entry]:
        """All committed entries in address order, requests expanded (for exports and checks)."""
        where = " WHERE kind = ?" if kind else ""
        args = (kind,) if kind else ()
        for row in self._reader.execute(f"{SELECT}{where} ORDER BY address", args):
            yield Entry(row[0], row[1], row[2], self._expand(json.loads(row[3])), *row[4:])

    def everything(self, table: str) -> Iterable[tuple[Entry, float]]:
        """All of `entries` or `superseded`, requests expanded, with when they were superseded."""
        at = "at" if table == "superseded" else "0.0"
        for *row, when in self._reader.execute(f"SELECT {NAMES}, {at} FROM {table}"):
            yield Entry._make((*row[:3], self._expand(json.loads(row[3])), *row[4:])), when

    def under(self, prefix: str) -> Iterable[Entry]:
        """The entries whose addresses begin so, in the order in which they were put."""
        where = "WHERE substr(address, 1, ?) = ? ORDER BY rowid"
        for row in self._reader.execute(f"{SELECT} {where}", (len(prefix), prefix)):
            yield Entry(row[0], row[1], row[2], self._expand(json.loads(row[3])), *row[4:])

    def row_of(self, address: str) -> int:
        """The number of the row of an address; 0 where there is none."""
        row = self._reader.execute("SELECT rowid FROM entries WHERE address = ?", (address,))
        return int((row.fetchone() or (0,))[0])

    def within(self, scope: str) -> Iterable[Entry]:
        """The entries of a scope and the scopes in it, in order, without their requests."""
        where = "WHERE address >= ? AND address < ? ORDER BY address"
        inside = (f"{scope}/", f"{scope}0")  # "0" follows "/"
        for row in self._reader.execute(f"{SELECT} {where}", inside):
            yield Entry(row[0], row[1], row[2], {}, *row[4:])

    def after(self, row: int) -> Iterable[Entry]:
        """The entries of the rows after this one, in the order in which they were put."""
        for cells in self._reader.execute(f"{SELECT} WHERE rowid > ? ORDER BY rowid", (row,)):
            yield Entry._make((*cells[:3], self._expand(json.loads(cells[3])), *cells[4:]))

    def _expand(self, value: Any) -> Any:
        """A stored request with its long texts put back."""
        if isinstance(value, dict):
            if set(value) == {"$text"}:
                found = self._reader.execute(
                    "SELECT text FROM texts WHERE hash = ?", (bytes.fromhex(value["$text"]),)
                ).fetchone()
                return found[0] if found else value
            return {k: self._expand(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._expand(v) for v in value]
        return value


class Replay(JournalReader):
    """A journal that answers a replay and takes no entries.

    `asked` holds the addresses that were looked up.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: set[str] = set()

    def content_digest(self) -> str:
        """Empty: that of the journal itself is the reader's to say."""
        return ""

    def lookup(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> Entry:
        """As the reader's. Raises NotJournaled where there is no entry."""
        found = super().lookup(address, fingerprint, request)
        if found is None:
            raise NotJournaled(f"{address} is not in the journal")
        self.asked.add(address)
        return found

    def put(self, entry: Entry) -> None:
        raise NotJournaled(f"{entry.address} is not in the journal")

    async def committed(self) -> None:
        """Nothing is ever written."""


class Journal(JournalReader):
    """The journal of a run that is under way. Use as a context manager, or call `close`.

    Raises ForeignJournal for a file that is corrupt, not ours, or changed since it was written;
    StorageError when the disk is full or read-only.
    """

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        super().__init__(path, open_file(path))
        self.accept_changes = accept_changes
        self._resuming = (
            self._reader.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        )
        try:
            self._content = self._unchanged() if self._resuming else 0  # with what was put since
        except StorageError:
            self._reader.close()
            raise
        self._queue: queue.SimpleQueue[Entry | _Told | Callable[[], None] | None]
        self._queue = queue.SimpleQueue()
        self._error: StorageError | None = None
        self._closed = False
        self._last = threading.Event()  # nothing more will come: no waiting for company
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def content_digest(self) -> str:
        """As the reader's, of what is committed: ask when it is closed."""
        return f"{self._content % 2**128:032x}"

    def lookup(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> Entry | None:
        """As the reader's; under `accept_changes` an entry that was made from another request is
        moved to `superseded` and None is returned."""
        return super().lookup(address, fingerprint, request) if self._resuming else None

    def _drifted(
        self, address: str, stored: str, request: Callable[[], Mapping[str, object]]
    ) -> Entry | None:
        if not self.accept_changes:
            return super()._drifted(address, stored, request)
        self._queue.put(lambda: self._supersede(address))
        return None

    def _unchanged(self) -> int:
        """The digest of the entries. Raises ForeignJournal when it is not the one written down."""
        try:
            found = content_in(self._reader)
            if found == recorded_digest(self._reader):
                return found
            changed = self.changed()
        except sqlite3.Error as error:
            raise storage_error(self.path, error) from None
        named = ", ".join(changed[:MOST_NAMED]) + (", …" if len(changed) > MOST_NAMED else "")
        what = (
            f"the entries at {named} were changed" if changed else "entries were added or removed"
        )
        raise ForeignJournal(
            f"{self.path}: {what} since they were written, so the run would continue from what was "
            "never said. Put the journal back as it was, or start a new run with --out."
        )

    def put(self, entry: Entry) -> None:
        """Queue an entry for the next commit. Raises StorageError if an earlier one failed.

        Replies may come faster than the disk takes them (a model in the process): then all waits,
        or memory would grow with the run, and a crash would lose what stood in the queue.
        """
        if self._error is not None:
            raise self._error
        self._queue.put(entry)
        if self._queue.qsize() >= MOST_WAITING:
            written = threading.Event()
            self._queue.put(_Told(written.set))
            written.wait()

    async def committed(self) -> None:
        """Return when all that was put so far is on the disk. Raises StorageError if it is not."""
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        self._queue.put(_Told(lambda: loop.call_soon_threadsafe(written.set)))
        await written.wait()
        if self._error is not None:
            raise self._error

    def note(self, batch: Batch, keys: Iterable[str] = ()) -> Future[None]:
        """Write a batch down, and which requests stand in it; done when it is on the disk.

        Nothing of it is in the digest: how a run was sent is not part of what was said.
        """

        def write(db: sqlite3.Connection) -> None:
            for statement in filter(str.strip, BATCHES.split(";")):
                db.execute(statement)
            marks = ", ".join("?" * len(batch))
            db.execute(f"INSERT OR REPLACE INTO batches VALUES ({marks})", batch)
            rows = ((key, batch.name) for key in keys)
            db.executemany("INSERT OR REPLACE INTO batched VALUES (?, ?)", rows)

        return self._write_beside(write)

    def put_broken(self, broken: BrokenReply) -> Future[None]:
        """Write down a reply that broke off; done when it is on the disk. A resume counts it
        against the budget. It is not in the digest: nothing was said."""

        def write(db: sqlite3.Connection) -> None:
            db.execute(BROKEN)
            db.execute("INSERT INTO broken VALUES (?, ?, ?, ?)", broken)

        return self._write_beside(write)

    def _write_beside(self, write: Callable[[sqlite3.Connection], None]) -> Future[None]:
        """Have the writer thread write what is no entry, in a transaction of its own."""
        done: Future[None] = Future()

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
            self._last.set()
            self._thread.join()
            if self._resuming:  # not all of it was written here
                self._content = sum(map(content_of, map(Entry._make, self._reader.execute(SELECT))))
            self._reader.close()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        """The writer thread: take what is queued, commit it as one group, repeat."""
        try:
            db = open_file(self.path)
        except StorageError as error:
            self._error = error
            self._discard()
            return
        self._db = db
        stored: set[bytes] = set()
        open_for_more = True
        while open_for_more:
            group, notices, open_for_more = self._next_group()
            try:
                if group and self._error is None:
                    self._content = commit(db, group, stored, self._content)
            except sqlite3.Error as error:
                self._error = storage_error(self.path, error)
            for notice in notices:
                notice()
        into_one_file(db)
        db.close()

    def _next_group(self) -> tuple[list[Entry], list[Callable[[], object]], bool]:
        """Entries for one commit, the callbacks to run after it, and whether to go on.

        Sleeps while a group gathers: a thread that woke for every entry would take the
        interpreter from the event loop each time.
        """
        group: list[Entry] = []
        notices: list[Callable[[], object]] = []
        item = self._queue.get()
        self._last.wait(GROUP_SECONDS)
        while True:
            if item is None:
                return group, notices, False
            if isinstance(item, Entry):
                group.append(item)
            elif isinstance(item, _Told):
                notices.append(item.tell)
            else:
                return group, [*notices, item], True
            if len(group) >= GROUP:
                return group, notices, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, notices, True

    def _discard(self) -> None:
        """Answer the queue after a failed start, so that nobody waits for ever."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, _Told):
                item.tell()
            elif not isinstance(item, Entry):
                item()

    def _supersede(self, address: str) -> None:
        with self._db:
            row = self._db.execute(f"{SELECT} WHERE address = ?", (address,)).fetchone()
            self._db.execute(
                "INSERT INTO superseded SELECT *, ? FROM entries WHERE address = ?",
                (time.time(), address),
            )
            self._db.execute("DELETE FROM entries WHERE address = ?", (address,))
            self._content -= content_of(Entry._make(row))
            keep_digest(self._db, self._content)


class _Told(NamedTuple):
    """A callback for when all earlier entries are on the disk; later ones may go with them."""

    tell: Callable[[], object]


def _difference(old: object, new: object) -> str:
    """A unified diff of two requests, as a person would read it."""

    def lines(value: object) -> list[str]:
        return (
            json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
            .replace("\\n", "\n")
            .splitlines()
        )

    diff = difflib.unified_diff(lines(old), lines(new), "journal", "now", lineterm="", n=2)
    return "\n".join(list(diff)[:80])
