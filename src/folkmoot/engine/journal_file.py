"""The file of a journal: one SQLite database (WAL, synchronous=FULL), readable with any sqlite3.

Schema:
    meta(key, value)               format version
    texts(hash, text)              long texts, once each; `{"$text": hash}` in a request points here
    entries(address, kind, …)      one row an effect; kind is ask, embed or compute
    superseded(…, at)              entries replaced under --accept-changes, kept

Used by `journal.py` alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot import json_text
from folkmoot.errors import ForeignJournal, StorageError
from folkmoot.randomness import digest

APPLICATION_ID = 0x464D4F54  # "FMOT"
FORMAT = 2
INLINE_TEXT = 200  # shorter texts are cheaper inline than behind a hash
STORED = 200_000  # hashes of which it is remembered that their text is stored

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


class Entry(NamedTuple):
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


def content_of(entry: Entry) -> int:
    """A hash (128 bits) of what was asked and what came back, without what it took."""
    parts = (entry.address, entry.fingerprint, entry.finish, entry.reply, entry.blob or b"")
    return int.from_bytes(digest(*parts), "big")


COLUMNS = Entry._fields
INSERT = f"INSERT INTO entries({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"


def open_file(path: Path) -> sqlite3.Connection:
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
        raise storage_error(path, error) from None


def _pragmas(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    if "not a database" in text or "malformed" in text or "encrypted" in text:
        return ForeignJournal(f"{path}: corrupt or not a journal ({text}); left as it is.")
    if "full" in text or "disk I/O" in text:
        return StorageError(f"{path}: the disk is full ({text}). Free some space and --resume.")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path}: cannot be written ({text}).")
    return StorageError(f"{path}: {text}")


def commit(db: sqlite3.Connection, group: list[Entry], stored: set[bytes]) -> None:
    """One transaction for a group. `stored` holds hashes of texts that are in the file already."""
    texts: list[tuple[bytes, str]] = []

    def shorten(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= INLINE_TEXT:
                return value
            key = digest(value)
            if key not in stored:
                stored.add(key)
                texts.append((key, value))
            return {"$text": key.hex()}
        if isinstance(value, dict):
            return {k: shorten(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [shorten(v) for v in value]
        return value

    rows = []
    for e in group:
        address, kind, fingerprint, request, *rest = e
        stored_as = json_text.encode(shorten(dict(request))).decode()
        rows.append((address, kind, fingerprint, stored_as, *rest))
    with db:
        db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts)
        db.executemany(INSERT, rows)
    if len(stored) > STORED:
        stored.clear()
