"""The file of a journal: one SQLite database (WAL, synchronous=FULL), readable with any sqlite3.

Schema:
    meta(key, value)               format, the software that made the file, hashes of the tables
    texts(hash, text)              long texts, once each; `{"$text": hash}` in a request points here
    entries(number, address, …)    one row an effect; kind is ask, embed or compute
    superseded(…, at, gone, event) entries replaced under --accept-changes, kept
    batches(name, model, id, …)    what was handed in to a vendor's batch interface; no replies
    batched(key, batch)            which request (`BatchQueue`'s key) stands in which batch
    broken(at, address, …)         replies that broke off and may have been billed, and their bound
    loans(number, at, who, …)      what may be out beside the entries (`journal_loans.py`)

What the hashes are of is said in `integrity.py`. Format 3 had weaker ones, formats 1 and 2 had
none, and format 1 hashed requests in another way: they are read, but their runs cannot go on.

Used by `journal.py`, `withdrawal.py` and `repair.py`.
"""

from __future__ import annotations

import difflib
import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

from folkmoot import json_text
from folkmoot.engine.journal.integrity import (
    COLUMNS,
    NAMES,
    Chain,
    add_broken,
    hash_batches,
    hash_content,
    hash_entry,
    hash_superseding,
    keep_in_meta,
    kept_in_meta,
)
from folkmoot.errors import EmptyJournalError, ForeignJournalError, StorageError
from folkmoot.randomness import digest

BATCH_SCHEMA = """
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
FORMAT = 4
READABLE_FORMATS = (1, 2, 3, 4)
REPAIRED = "repaired"  # key of `meta`
MAX_INLINE_CHARACTERS = 200  # shorter texts are cheaper inline than behind a hash
TEXT_HASH_CACHE_SIZE = 20_000  # hashes of which it is remembered that their text is stored

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE texts(hash BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries(
    number INTEGER PRIMARY KEY, address TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    request TEXT NOT NULL, reply TEXT NOT NULL, blob BLOB, finish TEXT NOT NULL,
    input_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER,
    cost_usd REAL, latency_s REAL NOT NULL, attempts INTEGER NOT NULL,
    model_asked TEXT NOT NULL, model_served TEXT NOT NULL, request_id TEXT NOT NULL,
    started_at REAL NOT NULL, content BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE superseded AS SELECT *, 0.0 AS at, 0 AS gone, x'' AS event FROM entries WHERE 0;
"""


def escape_address_part(name: Hashable) -> str:
    """A name as one part of an address."""
    return str(name).replace("%", "%25").replace("/", "%2F")


def unescape_address_part(part: str) -> str:
    """The name that a part of an address stands for."""
    return part.replace("%2F", "/").replace("%25", "%")


class JournalEntry(NamedTuple):
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


class FirstReply(NamedTuple):
    """What a model replied to a question at first, and whether the question was asked again because
    the reply could not be read."""

    model: str
    text: str
    finish: str
    asked_again: bool


class BatchRecord(NamedTuple):
    """What was handed in to a vendor's batch interface: under a name of ours, with the vendor's id
    once it is known. Times in seconds since 1970; `due_at` is when it ends at the latest."""

    name: str
    model: str
    id: str
    calls: int
    submitted_at: float
    due_at: float


class BrokenReply(NamedTuple):
    """A reply that broke off after it had begun: when (seconds since 1970), where, of which model,
    and the most that the vendor may charge for it (USD; None: unknown)."""

    at: float
    address: str
    model: str
    max_usd: float | None


def _to_sql_values(journal_entry: JournalEntry, request: str) -> tuple[object, ...]:
    """The cells of an entry as SQLite will give them back: types as in the schema."""
    used = (journal_entry.input_tokens, journal_entry.output_tokens, journal_entry.cached_tokens)
    return (
        *(
            journal_entry.address,
            journal_entry.kind,
            journal_entry.fingerprint,
            request,
            journal_entry.reply,
            journal_entry.blob,
            journal_entry.finish,
        ),
        *(None if n is None else int(n) for n in used),
        None if journal_entry.cost_usd is None else float(journal_entry.cost_usd),
        *(float(journal_entry.latency_s), int(journal_entry.attempts)),
        *(
            str(journal_entry.model_asked),
            str(journal_entry.model_served),
            str(journal_entry.request_id),
            float(journal_entry.started_at),
        ),
    )


assert JournalEntry._fields == COLUMNS
INSERT_SQL = (
    f"INSERT INTO entries(number, {NAMES}, content, seal) "
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 3))})"
)
SELECT_SQL = f"SELECT {NAMES} FROM entries"


class _Cursor(sqlite3.Cursor):
    """A cursor that tells damage as an error of ours, wherever it is met."""

    def execute(self, *given: Any) -> Self:
        with _translating_errors(self):
            return super().execute(*given)

    def fetchone(self) -> Any:
        with _translating_errors(self):
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with _translating_errors(self):
            return super().fetchall()

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlite3.Error as error:
            raise _to_storage_error(self, error) from None


class _Connection(sqlite3.Connection):
    """A connection to a journal: what SQLite cannot read is a ForeignJournal."""

    path: Path

    def execute(self, *given: Any) -> _Cursor:
        return self.cursor(_Cursor).execute(*given)


@contextmanager
def _translating_errors(cursor: sqlite3.Cursor) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _to_storage_error(cursor, error) from None


def _to_storage_error(cursor: sqlite3.Cursor, error: sqlite3.Error) -> StorageError:
    db = cursor.connection
    return storage_error(db.path if isinstance(db, _Connection) else Path(), error)


@contextmanager
def _open_connection(path: Path, where: str | Path, **how: Any) -> Iterator[_Connection]:
    """A connection that is closed where the file is refused.

    Left open, it would leave its write-ahead log beside the file, and SQLite would read that log
    into the journal that somebody puts back in its place.
    """
    try:
        with ExitStack() as refused:
            db = sqlite3.connect(where, check_same_thread=False, factory=_Connection, **how)
            refused.callback(db.close)
            db.path = path
            yield db
            refused.pop_all()
    except sqlite3.Error as error:
        raise storage_error(path, error) from None


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open or create the file, to write; refuse what is corrupt, another program's or too new."""
    with _open_connection(path, path, isolation_level="DEFERRED", timeout=30) as db:
        found = _read_format(db, path)
        if found not in (0, FORMAT):
            raise ForeignJournalError(
                f"{path}: journal format {found}: `show` and `report` read it. To go on with the "
                "run, install the Folkmoot that started it (manifest.json names its version)."
            )
        _apply_pragmas(db)
        if not found:
            with db:
                db.execute("BEGIN IMMEDIATE")
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                facts = {
                    "format": str(FORMAT),
                    "software": version("folkmoot"),
                    "chain": str(Chain()),
                }
                db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a journal of any format that was ever written, and change nothing, on any medium."""
    # Without a write-ahead log nobody is writing, and SQLite need not leave files beside it.
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _open_connection(path, f"{path.resolve().as_uri()}?{way}", uri=True) as db:
        if not _read_format(db, path):
            raise EmptyJournalError(f"{path}: is empty.")
        return db


def _read_format(db: sqlite3.Connection, path: Path) -> int:
    """The format of a journal; 0 for a new file. Raises ForeignJournal for any other file."""
    app = db.execute("PRAGMA application_id").fetchone()[0]
    tables = {r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if app in (0, APPLICATION_ID) and not tables:
        return 0
    if app != APPLICATION_ID or not {"entries", "meta"} <= tables:
        raise ForeignJournalError(f"{path}: not a Folkmoot journal; left as it is.")
    said = dict(db.execute("SELECT key, value FROM meta").fetchall())
    found = said.get("format", "")
    if found not in map(str, READABLE_FORMATS):
        raise ForeignJournalError(
            f"{path}: journal format {found or 'unknown'}, written by Folkmoot "
            f"{said.get('software', 'of another version')}; this is {version('folkmoot')}, which "
            f"reads formats 1 to {FORMAT}. Install the version that wrote it (manifest.json names "
            "it); the file is left as it is."
        )
    return int(found)


def chain_in(db: sqlite3.Connection) -> Chain:
    """The chain over the entries as it was at the last commit."""
    count, _, value = kept_in_meta(db, "chain").partition(" ")
    return Chain(int(count), bytes.fromhex(value))


def write_batch(db: sqlite3.Connection, batch: BatchRecord, keys: Iterable[str]) -> None:
    """Record a batch and the keys of its requests."""
    for statement in filter(str.strip, BATCH_SCHEMA.split(";")):
        db.execute(statement)
    marks = ", ".join("?" * len(batch))
    db.execute(f"INSERT OR REPLACE INTO batches VALUES ({marks})", batch)
    rows = ((key, batch.name) for key in keys)
    db.executemany("INSERT OR REPLACE INTO batched VALUES (?, ?)", rows)
    keep_in_meta(db, "batches", hash_batches(db))


def write_broken(db: sqlite3.Connection, broken: BrokenReply) -> None:
    """Write down a reply that broke off."""
    db.execute(BROKEN)
    db.execute("INSERT INTO broken VALUES (?, ?, ?, ?)", broken)
    row = db.execute(
        "SELECT at, address, model, max_usd FROM broken ORDER BY rowid DESC"
    ).fetchone()
    keep_in_meta(db, "broken", add_broken(kept_in_meta(db, "broken"), row))


def mark_repaired(path: Path) -> None:
    """Note in a journal that damaged entries are missing: until the run is done, a resume asks
    again for each request that differs, as with --accept-changes."""
    with closing(open_for_writing(path)) as db:
        with db:
            keep_in_meta(db, REPAIRED, "damaged entries were set aside")
        checkpoint_wal(db)


def supersede_entry(db: sqlite3.Connection, address: str, at: float, chain: Chain) -> Chain:
    """Move an entry to `superseded`, in a transaction of the caller's; the chain after it."""
    number = chain.length + 1
    event = hash_superseding(number, address, at)
    db.execute(
        "INSERT INTO superseded SELECT *, ?, ?, ? FROM entries WHERE address = ?",
        (at, number, event, address),
    )
    db.execute("DELETE FROM entries WHERE address = ?", (address,))
    chain = chain.add_event(event)
    keep_in_meta(db, "chain", str(chain))
    return chain


def _apply_pragmas(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def checkpoint_wal(db: sqlite3.Connection) -> None:
    """Move what stands in the write-ahead log into the file, so that a copy of it holds all.

    Closing does so only where nobody looks on. What cannot be moved stays in the log.
    """
    with suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")  # a page that is being read is not waited for
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    if any(sign in text for sign in ("not a database", "malformed", "encrypted", "UTF-8")):
        return ForeignJournalError(f"{path}: corrupt or not a journal ({text}); left as it is.")
    if "full" in text or "disk I/O" in text:
        return StorageError(f"{path}: the disk is full ({text}). Free some space and --resume.")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path}: cannot be written ({text}).")
    return StorageError(f"{path}: {text}")


def commit_group(
    db: sqlite3.Connection,
    group: list[JournalEntry],
    stored: set[bytes],
    chain: Chain,
    beside: Callable[[sqlite3.Connection], None] = lambda _: None,
) -> Chain:
    """One transaction for a group, and what is written `beside` it; the chain over all entries
    after it, given that before it.

    `stored` holds hashes of texts that are in the file already.
    """
    texts: list[tuple[bytes, str]] = []

    def replace_long_text(value: object) -> object:
        if isinstance(value, str):
            if len(value) <= MAX_INLINE_CHARACTERS:
                return value
            key = digest(value)
            if key not in stored:
                stored.add(key)
                texts.append((key, value))
            return {"$text": key.hex()}
        if isinstance(value, dict):
            return {key: replace_long_text(value) for key, value in value.items()}
        if isinstance(value, (list, tuple)):
            return [replace_long_text(value) for value in value]
        return value

    rows = []
    for journal_entry in group:
        row = _to_sql_values(
            journal_entry,
            json_text.encode_json(replace_long_text(dict(journal_entry.request))).decode(),
        )
        content = hash_content(row)
        seal = hash_entry(chain.length + 1, row, content)
        rows.append((chain.length + 1, *row, content, seal))
        chain = chain.add_event(seal)
    with db:
        db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts)
        db.executemany(INSERT_SQL, rows)
        if rows:
            keep_in_meta(db, "chain", str(chain))
        beside(db)
    if len(stored) > TEXT_HASH_CACHE_SIZE:
        stored.clear()
    return chain


def format_difference(old: object, new: object) -> str:
    """A unified diff of two requests, as a person would read it."""

    def format_lines(value: object) -> list[str]:
        return (
            json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
            .replace("\\n", "\n")
            .splitlines()
        )

    diff = difflib.unified_diff(
        format_lines(old), format_lines(new), "journal", "now", lineterm="", n=2
    )
    return "\n".join(list(diff)[:80])
