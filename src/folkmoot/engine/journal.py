"""The journal: every paid-for effect of a run, once, at its structural address.

One SQLite file (`journal.sqlite`, WAL, synchronous=FULL) with one writer thread that commits in
groups. Entries are committed in the order in which they were put, so after a crash the journal
holds a prefix of the run: never an effect without those it was made from. The gateway and the
session are the only users.

Schema (readable with any sqlite3):
    meta(key, value)               format version
    texts(hash, text)              long texts, once each; `{"$text": hash}` in a request points here
    entries(address, kind, …)      one row an effect; kind is ask, embed or compute
    superseded(…, at)              entries replaced under --accept-changes, kept
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from folkmoot import json_text
from folkmoot.errors import DriftError, ForeignJournal, StorageError
from folkmoot.randomness import digest

APPLICATION_ID = 0x464D4F54  # "FMOT"
FORMAT = 2
INLINE_TEXT = 200  # shorter texts are cheaper inline than behind a hash
KNOWN_TEXTS = 8192  # texts whose hash is remembered, so that a dialogue's are hashed once
GROUP = 1000  # entries a commit at most
GROUP_SECONDS = 0.004  # how long a group waits for company

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE texts(hash BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries(
    address TEXT PRIMARY KEY, kind TEXT NOT NULL, fingerprint BLOB NOT NULL,
    request TEXT NOT NULL, reply TEXT NOT NULL, blob BLOB, finish TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    cost_usd REAL, latency_s REAL NOT NULL, attempts INTEGER NOT NULL,
    model_asked TEXT NOT NULL, model_served TEXT NOT NULL, request_id TEXT NOT NULL,
    started_at REAL NOT NULL
);
CREATE TABLE superseded AS SELECT *, 0.0 AS at FROM entries WHERE 0;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One effect: what was asked for, what came back, what it took.

    `request` is any JSON object; `reply` text (JSON for a computation); `blob` float32 bytes of
    an embedding. `cost_usd` None means that the price is unknown. Times in seconds, `started_at`
    since the epoch.
    """

    address: str
    kind: str
    fingerprint: bytes
    request: Mapping[str, Any]
    reply: str = ""
    blob: bytes | None = None
    finish: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    model_asked: str = ""
    model_served: str = ""
    request_id: str = ""
    started_at: float = 0.0


_COLUMNS = tuple(f.name for f in fields(Entry))
_INSERT = f"INSERT INTO entries({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM entries"


class Journal:
    """An open journal. Use as a context manager, or call `close`.

    Raises ForeignJournal for a file that is corrupt or not ours, StorageError when the disk is
    full or read-only.
    """

    def __init__(self, path: Path, *, accept_changes: bool = False) -> None:
        self.path = path
        self.accept_changes = accept_changes
        self._reader = _open(path)
        self._resuming = (
            self._reader.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        )
        self._queue: queue.SimpleQueue[Entry | Callable[[], None] | None] = queue.SimpleQueue()
        self._error: StorageError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Entries committed so far."""
        return int(self._reader.execute("SELECT count(*) FROM entries").fetchone()[0])

    def spent(self) -> tuple[int, float]:
        """Calls and known cost (USD) of all that is journaled."""
        row = self._reader.execute(
            "SELECT count(*), coalesce(sum(cost_usd), 0) FROM entries WHERE kind != 'compute'"
        ).fetchone()
        return int(row[0]), float(row[1])

    def content_digest(self) -> str:
        """A hash of all requests and replies by address; times and costs left out."""
        whole = hashlib.blake2b(digest_size=16)
        for address, fingerprint, finish, reply, blob in self._reader.execute(
            "SELECT address, fingerprint, finish, reply, blob FROM entries ORDER BY address"
        ):
            row = [address, fingerprint.hex(), finish, reply, (blob or b"").hex()]
            whole.update(json_text.encode(row))
        return whole.hexdigest()

    def lookup(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, Any]]
    ) -> Entry | None:
        """The entry at an address, or None if this effect has not happened yet.

        Raises DriftError with a diff when the entry was made from another request; under
        `accept_changes` that entry is moved to `superseded` and None is returned.
        """
        if not self._resuming:
            return None
        row = self._reader.execute(f"{_SELECT} WHERE address = ?", (address,)).fetchone()
        if row is None:
            return None
        if row[2] == fingerprint:
            # The request of a replayed entry is what was just asked; no need to read it back.
            return Entry(row[0], row[1], row[2], {}, *row[4:])
        if self.accept_changes:
            self._queue.put(lambda: self._supersede(address))
            return None
        raise DriftError(
            f"{address}: the request differs from the one in the journal. Restore the study as "
            "it was, or add --accept-changes to ask again where it differs.\n"
            + _difference(self._expand(json.loads(row[3])), request())
        )

    def put(self, entry: Entry) -> None:
        """Queue an entry for the next commit. Raises StorageError if an earlier one failed."""
        if self._error is not None:
            raise self._error
        self._queue.put(entry)

    async def flush(self) -> None:
        """Wait until everything put so far is on the disk."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        self._queue.put(lambda: _tell(loop, done))
        await done.wait()
        if self._error is not None:
            raise self._error

    def entries(self, kind: str | None = None) -> Iterable[Entry]:
        """All committed entries in address order, requests expanded (for exports and checks)."""
        where = " WHERE kind = ?" if kind else ""
        args = (kind,) if kind else ()
        for row in self._reader.execute(f"{_SELECT}{where} ORDER BY address", args):
            yield Entry(row[0], row[1], row[2], self._expand(json.loads(row[3])), *row[4:])

    def close(self) -> None:
        """Commit what is queued and close the file."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._reader.close()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        """The writer thread: take what is queued, commit it as one group, repeat."""
        try:
            db = _open(self.path)
        except StorageError as error:
            self._error = error
            self._discard()
            return
        self._db = db
        known: dict[str, str] = {}
        open_for_more = True
        while open_for_more:
            group, notices, open_for_more = self._next_group()
            try:
                if group and self._error is None:
                    _commit(db, group, known)
            except sqlite3.Error as error:
                self._error = _storage_error(self.path, error)
            for notice in notices:
                notice()
        db.close()

    def _next_group(self) -> tuple[list[Entry], list[Callable[[], None]], bool]:
        """Entries for one commit, the callbacks to run after it, and whether to go on."""
        group: list[Entry] = []
        item = self._queue.get()
        deadline = time.monotonic() + GROUP_SECONDS
        while True:
            if item is None:
                return group, [], False
            if isinstance(item, Entry):
                group.append(item)
            else:
                return group, [item], True
            wait = deadline - time.monotonic()
            if len(group) >= GROUP:
                return group, [], True
            try:
                item = (
                    self._queue.get(timeout=max(wait, 0.0))
                    if wait > 0
                    else self._queue.get_nowait()
                )
            except queue.Empty:
                return group, [], True

    def _discard(self) -> None:
        """Answer the queue after a failed start, so that nobody waits for ever."""
        while (item := self._queue.get()) is not None:
            if not isinstance(item, Entry):
                item()

    def _supersede(self, address: str) -> None:
        with self._db:
            self._db.execute(
                "INSERT INTO superseded SELECT *, ? FROM entries WHERE address = ?",
                (time.time(), address),
            )
            self._db.execute("DELETE FROM entries WHERE address = ?", (address,))

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


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    loop.call_soon_threadsafe(done.set)


def _open(path: Path) -> sqlite3.Connection:
    """Open or create the file; refuse what is corrupt or another program's."""
    try:
        db = sqlite3.connect(path, check_same_thread=False, isolation_level="DEFERRED", timeout=30)
        app = db.execute("PRAGMA application_id").fetchone()[0]
        tables = {r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if app == APPLICATION_ID and "entries" in tables:
            found = db.execute("SELECT value FROM meta WHERE key='format'").fetchone()
            if found is None or int(found[0]) != FORMAT:
                raise ForeignJournal(f"{path}: made by another version of Folkmoot; left as it is.")
            _pragmas(db)
            return db
        if tables or app not in (0, APPLICATION_ID):
            raise ForeignJournal(f"{path}: not a Folkmoot journal; left as it is.")
        _pragmas(db)
        with db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                if statement.strip():
                    db.execute(statement)
            db.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        return db
    except sqlite3.Error as error:
        raise _storage_error(path, error) from None


def _pragmas(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def _storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    if "not a database" in text or "malformed" in text or "encrypted" in text:
        return ForeignJournal(f"{path}: corrupt or not a journal ({text}); left as it is.")
    if "full" in text or "disk I/O" in text:
        return StorageError(f"{path}: the disk is full ({text}). Free some space and --resume.")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path}: cannot be written ({text}).")
    return StorageError(f"{path}: {text}")


def _commit(db: sqlite3.Connection, group: list[Entry], known: dict[str, str]) -> None:
    """One transaction for a group. `known`: texts that are already stored, and their hashes."""
    texts: list[tuple[bytes, str]] = []

    def shorten(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= INLINE_TEXT:
                return value
            key = known.get(value)
            if key is None:
                raw = digest(value)
                texts.append((raw, value))
                key = known[value] = raw.hex()
            return {"$text": key}
        if isinstance(value, dict):
            return {k: shorten(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [shorten(v) for v in value]
        return value

    rows = []
    for e in group:
        request = json_text.encode(shorten(dict(e.request))).decode()
        rows.append(
            (
                e.address, e.kind, e.fingerprint, request, e.reply, e.blob, e.finish,
                e.input_tokens, e.output_tokens, e.cached_tokens, e.cost_usd, e.latency_s,
                e.attempts, e.model_asked, e.model_served, e.request_id, e.started_at,
            )
        )  # fmt: skip
    with db:
        db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts)
        db.executemany(_INSERT, rows)
    if len(known) > KNOWN_TEXTS:
        known.clear()


def _difference(old: Any, new: Any) -> str:
    """A unified diff of two requests, as a person would read it."""

    def lines(value: Any) -> list[str]:
        return (
            json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
            .replace("\\n", "\n")
            .splitlines()
        )

    diff = difflib.unified_diff(lines(old), lines(new), "journal", "now", lineterm="", n=2)
    return "\n".join(list(diff)[:80])
