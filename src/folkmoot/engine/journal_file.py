"""The file of a journal: one SQLite database (WAL, synchronous=FULL), readable with any sqlite3.

Schema:
    meta(key, value)               format, the software that made the file, digest of the entries
    texts(hash, text)              long texts, once each; `{"$text": hash}` in a request points here
    entries(address, kind, …)      one row an effect; kind is ask, embed or compute
    superseded(…, at)              entries replaced under --accept-changes, kept
    batches(name, model, id, …)    what was handed in to a vendor's batch interface; no replies
    batched(key, batch)            which request (`Outbox`'s key) stands in which batch
    broken(at, address, …)         replies that broke off and may have been billed, and their bound

Formats 1 and 2 had no seals and no digest, and format 1 hashed requests in another way: they are
read, but their runs cannot go on.

Used by `journal.py` alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot import json_text
from folkmoot.errors import EmptyJournal, ForeignJournal, StorageError
from folkmoot.randomness import digest

BATCHES = """
CREATE TABLE IF NOT EXISTS batches(
    name TEXT PRIMARY KEY, model TEXT NOT NULL, id TEXT NOT NULL, calls INTEGER NOT NULL,
    begun REAL NOT NULL, promised REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS batched(key TEXT PRIMARY KEY, batch TEXT NOT NULL) WITHOUT ROWID;
"""
BROKEN = """
CREATE TABLE IF NOT EXISTS broken(
    at REAL NOT NULL, address TEXT NOT NULL, model TEXT NOT NULL, max_usd REAL
);
"""
APPLICATION_ID = 0x464D4F54  # "FMOT"
FORMAT = 3
READABLE = (1, 2, 3)
INLINE_TEXT = 200  # shorter texts are cheaper inline than behind a hash
STORED = 20_000  # hashes of which it is remembered that their text is stored

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE texts(hash BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries(
    address TEXT PRIMARY KEY, kind TEXT NOT NULL, fingerprint BLOB NOT NULL,
    request TEXT NOT NULL, reply TEXT NOT NULL, blob BLOB, finish TEXT NOT NULL,
    input_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER,
    cost_usd REAL, latency_s REAL NOT NULL, attempts INTEGER NOT NULL,
    model_asked TEXT NOT NULL, model_served TEXT NOT NULL, request_id TEXT NOT NULL,
    started_at REAL NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE superseded AS SELECT *, 0.0 AS at FROM entries WHERE 0;
"""


def as_part(name: Hashable) -> str:
    """A name as one part of an address."""
    return str(name).replace("%", "%25").replace("/", "%2F")


def name_in(part: str) -> str:
    """The name that a part of an address stands for."""
    return part.replace("%2F", "/").replace("%25", "%")


class Entry(NamedTuple):
    """One effect: what was asked for, what came back, what it took.

    `request` is any JSON object; `reply` text (JSON for a computation); `blob` float32 bytes of
    an embedding. `None` for tokens means that the server did not say, `cost_usd` None
    that the cost is unknown. Times in seconds, `started_at`
    since the epoch.
    """

    address: str
    kind: str
    fingerprint: bytes
    request: Mapping[str, Any]
    reply: str = ""
    blob: bytes | None = None
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    model_asked: str = ""
    model_served: str = ""
    request_id: str = ""
    started_at: float = 0.0


class Batch(NamedTuple):
    """What was handed in to a vendor's batch interface: under a name of ours, with the vendor's id
    once it is known. Times in seconds since 1970; `promised` is when it ends at the latest."""

    name: str
    model: str
    id: str
    calls: int
    begun: float
    promised: float


class BrokenReply(NamedTuple):
    """A reply that broke off after it had begun: when (seconds since 1970), where, of which model,
    and the most that the vendor may charge for it (USD; None: unknown)."""

    at: float
    address: str
    model: str
    max_usd: float | None


def content_of(entry: Entry) -> int:
    """A hash (128 bits) of what was asked and what came back, without what it took."""
    parts = (entry.address, entry.fingerprint, entry.finish, entry.reply, entry.blob or b"")
    return int.from_bytes(digest(*parts), "big")


def _as_stored(e: Entry, request: str) -> tuple[object, ...]:
    """The cells of an entry as SQLite will give them back: types as in the schema."""
    used = (e.input_tokens, e.output_tokens, e.cached_tokens)
    return (
        *(e.address, e.kind, e.fingerprint, request, e.reply, e.blob, e.finish),
        *(None if n is None else int(n) for n in used),
        None if e.cost_usd is None else float(e.cost_usd),
        *(float(e.latency_s), int(e.attempts)),
        *(str(e.model_asked), str(e.model_served), str(e.request_id), float(e.started_at)),
    )


def seal_of(row: Sequence[object]) -> bytes:
    """16 bytes that change when any cell of a stored row (in the order of COLUMNS) does."""
    cells = [c for c in row if not isinstance(c, bytes)]
    return digest(json_text.encode(cells), *(c for c in row if isinstance(c, bytes)))


COLUMNS = Entry._fields
NAMES = ", ".join(COLUMNS)
INSERT = f"INSERT INTO entries({NAMES}, seal) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
SELECT = f"SELECT {NAMES} FROM entries"


@contextmanager
def _opening(path: Path, where: str | Path, **how: Any) -> Iterator[sqlite3.Connection]:
    """A connection that is closed where the file is refused.

    Left open, it would leave its write-ahead log beside the file, and SQLite would read that log
    into the journal that somebody puts back in its place.
    """
    try:
        with ExitStack() as refused:
            db = sqlite3.connect(where, check_same_thread=False, **how)
            refused.callback(db.close)
            yield db
            refused.pop_all()
    except sqlite3.Error as error:
        raise storage_error(path, error) from None


def open_file(path: Path) -> sqlite3.Connection:
    """Open or create the file, to write; refuse what is corrupt, another program's or too new."""
    with _opening(path, path, isolation_level="DEFERRED", timeout=30) as db:
        found = _format_of(db, path)
        if found not in (0, FORMAT):
            raise ForeignJournal(
                f"{path}: journal format {found}: `show` and `report` read it. To go on with the "
                "run, install the Folkmoot that started it (manifest.json names its version)."
            )
        _pragmas(db)
        if not found:
            with db:
                db.execute("BEGIN IMMEDIATE")
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                facts = {
                    "format": str(FORMAT),
                    "software": version("folkmoot"),
                    "digest": f"{0:032x}",
                }
                db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a journal of any format that was ever written, and change nothing, on any medium."""
    # Without a write-ahead log nobody is writing, and SQLite need not leave files beside it.
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _opening(path, f"{path.resolve().as_uri()}?{way}", uri=True) as db:
        if not _format_of(db, path):
            raise EmptyJournal(f"{path}: is empty.")
        return db


def recorded_digest(db: sqlite3.Connection) -> int | None:
    """The digest of the entries as it was at the last commit; None where the format has none."""
    row = db.execute("SELECT value FROM meta WHERE key = 'digest'").fetchone()
    return None if row is None else int(row[0], 16)


def _format_of(db: sqlite3.Connection, path: Path) -> int:
    """The format of a journal; 0 for a new file. Raises ForeignJournal for any other file."""
    app = db.execute("PRAGMA application_id").fetchone()[0]
    tables = {r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if app in (0, APPLICATION_ID) and not tables:
        return 0
    if app != APPLICATION_ID or not {"entries", "meta"} <= tables:
        raise ForeignJournal(f"{path}: not a Folkmoot journal; left as it is.")
    said = dict(db.execute("SELECT key, value FROM meta").fetchall())
    found = said.get("format", "")
    if found not in map(str, READABLE):
        raise ForeignJournal(
            f"{path}: journal format {found or 'unknown'}, written by Folkmoot "
            f"{said.get('software', 'of another version')}; this is {version('folkmoot')}, which "
            f"reads formats 1 to {FORMAT}. Install the version that wrote it (manifest.json names "
            "it); the file is left as it is."
        )
    return int(found)


def content_in(db: sqlite3.Connection) -> int:
    """The sum of the contents of all entries: whatever their order, it is the same."""
    return sum(map(content_of, map(Entry._make, db.execute(SELECT)))) % 2**128


def keep_digest(db: sqlite3.Connection, content: int) -> None:
    """Write down the digest, in the transaction of what changed it."""
    db.execute("UPDATE meta SET value = ? WHERE key = 'digest'", (f"{content % 2**128:032x}",))


def _pragmas(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def into_one_file(db: sqlite3.Connection) -> None:
    """Move what stands in the write-ahead log into the file, so that a copy of it holds all.

    Closing does so only where nobody looks on. What cannot be moved stays in the log.
    """
    with suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")  # a page that is being read is not waited for
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    if "not a database" in text or "malformed" in text or "encrypted" in text:
        return ForeignJournal(f"{path}: corrupt or not a journal ({text}); left as it is.")
    if "full" in text or "disk I/O" in text:
        return StorageError(f"{path}: the disk is full ({text}). Free some space and --resume.")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path}: cannot be written ({text}).")
    return StorageError(f"{path}: {text}")


def commit(db: sqlite3.Connection, group: list[Entry], stored: set[bytes], content: int) -> int:
    """One transaction for a group; the digest of all entries after it, given that before it.

    `stored` holds hashes of texts that are in the file already.
    """
    texts: list[tuple[bytes, str]] = []

    def shorten(value: object) -> object:
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
        row = _as_stored(e, json_text.encode(shorten(dict(e.request))).decode())
        rows.append((*row, seal_of(row)))
    content += sum(map(content_of, group))
    with db:
        db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts)
        db.executemany(INSERT, rows)
        keep_digest(db, content)
    if len(stored) > STORED:
        stored.clear()
    return content
