"""The file of a journal: one SQLite database, readable with any sqlite3."""

# Schema (WAL, synchronous=FULL):
#     meta(key, value)               format, the software that made the file, hashes of the tables
#     texts(hash, text)              long texts, once each, by hash (see `commit_group`)
#     entries(number, address, …)    one row per journaled call, kind ask, embed or compute
#     superseded(…, at, gone, event) entries replaced under --accept-changes, and the calls of
#                                    entries that a repair removed, without texts
#     batches(name, model, id, …)    batches submitted to a vendor, without replies
#     batched(key, batch)            request (key of `BatchQueue`) and its batch
#     broken(at, address, …)         broken-off replies that may be billed, with maximum cost
#     loans(number, at, who, …)      calls that may be billed without an entry
#
# `integrity.py` describes the hashes. Format 3 had weaker hashes, and formats 1 and 2 had none.
# Format 1 hashed requests in another way. Journals of these three formats can be read, but their
# runs cannot be resumed.

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
    read_meta_value,
    write_meta_value,
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
# Columns of the file format, in the order of the fields of `BatchRecord`.
BATCH_COLUMNS = "name, model, id, calls, begun, promised"
BROKEN = """
CREATE TABLE IF NOT EXISTS broken(
    at REAL NOT NULL, address TEXT NOT NULL, model TEXT NOT NULL, max_usd REAL
);
"""
# A committed reply was paid for and must survive a power cut.
SYNCHRONOUS = "FULL"
# "FMOT" in ASCII: tells our files from SQLite databases of other programs.
APPLICATION_ID = 0x464D4F54
FORMAT = 4
READABLE_FORMATS = (1, 2, 3, 4)
# The key of `meta` that marks a repaired journal.
REPAIRED = "repaired"
# The finish reason in `superseded` of a call with an entry that a repair removed.
SET_ASIDE = "set_aside"
# Longer texts are stored once under their hash, because prompts repeat most of their text. A hash
# and its look-up cost more than a short text.
MAX_INLINE_CHARACTERS = 200
# Hashes of texts known to be stored. The set is emptied when it is full: `INSERT OR IGNORE` makes
# a forgotten hash harmless.
TEXT_HASH_CACHE_SIZE = 20_000

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


# Addresses are paths: a name with a slash must stay one part. Escape % first, so that the escape
# can be undone.
def escape_address_part(name: Hashable) -> str:
    """Escape a name so that it can be one part of an address."""
    return str(name).replace("%", "%25").replace("/", "%2F")


def unescape_address_part(part: str) -> str:
    """Return the name that `escape_address_part` escaped."""
    return part.replace("%2F", "/").replace("%25", "%")


def question_address(address: str) -> str:
    """Return the address of a question without the suffix of a re-ask, such as `.r1` or `.long`."""
    scope, slash, name = address.rpartition("/")
    return f"{scope}{slash}{name.partition('.')[0]}"


class JournalEntry(NamedTuple):
    """One journaled call: its request, its result and its cost."""

    address: str
    kind: str
    fingerprint: bytes
    # A JSON object.
    request: Mapping[str, Any]
    # The text of a reply, or the JSON result of a computation.
    reply: str = ""
    # An embedding as float32 bytes.
    blob: bytes | None = None
    finish: str = "stop"
    # Numbers of tokens are None if the server did not report them.
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    # None if the cost is unknown.
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    model_asked: str = ""
    model_served: str = ""
    request_id: str = ""
    started_at: float = 0.0


class FirstReply(NamedTuple):
    """The first reply to a question.

    `asked_again`: True if the question was asked a second time.
    """

    model: str
    text: str
    finish: str
    asked_again: bool
    address: str = ""


class BatchRecord(NamedTuple):
    """A batch submitted to a vendor."""

    # Given by this run.
    name: str
    model: str
    # Given by the vendor. Empty until it is known.
    id: str
    calls: int
    # Times are in seconds since 1970.
    submitted_at: float
    # The vendor ends the batch at this time at the latest.
    due_at: float


def batch_key(run: str, address: str, fingerprint: bytes, step: int) -> str:
    """Return the key of a request in the batches of a run, as 32 hexadecimal digits.

    - `run`: the part of the batch names before the hyphen.
    - `step`: how often the call was submitted before.
    """
    return digest(run, address, fingerprint, step).hex()


class BrokenReply(NamedTuple):
    """A reply that broke off, or that did not arrive although the whole request was sent."""

    # In seconds since 1970.
    at: float
    address: str
    model: str
    # The most that the vendor may charge (USD), or None if this is unknown.
    max_usd: float | None


def _to_sql_values(entry: JournalEntry, request: str) -> tuple[object, ...]:
    # Convert numpy numbers and the like: the hashes are computed from these cells and checked
    # against those that SQLite returns.
    token_counts = (entry.input_tokens, entry.output_tokens, entry.cached_tokens)
    return (
        *(
            entry.address,
            entry.kind,
            entry.fingerprint,
            request,
            entry.reply,
            entry.blob,
            entry.finish,
        ),
        *(None if token_count is None else int(token_count) for token_count in token_counts),
        None if entry.cost_usd is None else float(entry.cost_usd),
        *(float(entry.latency_s), int(entry.attempts)),
        *(
            str(entry.model_asked),
            str(entry.model_served),
            str(entry.request_id),
            float(entry.started_at),
        ),
    )


# The SQL and the hashes rely on one order of columns.
assert JournalEntry._fields == COLUMNS
INSERT_SQL = (
    f"INSERT INTO entries(number, {NAMES}, content, seal) "
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 3))})"
)
SELECT_SQL = f"SELECT {NAMES} FROM entries"


class _Cursor(sqlite3.Cursor):
    # SQLite finds damage while it reads, so each fetch may raise, not only `execute`.
    def execute(self, *arguments: Any) -> Self:
        with _translating_errors(self):
            return super().execute(*arguments)

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
    # Raises ForeignJournalError for unreadable data.
    path: Path

    def execute(self, *arguments: Any) -> _Cursor:
        return self.cursor(_Cursor).execute(*arguments)


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
def _open_connection(
    path: Path, database: str | Path, **connect_options: Any
) -> Iterator[_Connection]:
    # Close the connection if the block raises. It would leave its write-ahead log beside a rejected
    # file.
    try:
        with ExitStack() as cleanup:
            db = sqlite3.connect(
                database, check_same_thread=False, factory=_Connection, **connect_options
            )
            cleanup.callback(db.close)
            db.path = path
            yield db
            cleanup.pop_all()
    except sqlite3.Error as error:
        raise storage_error(path, error) from None


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open or create a journal for writing.

    Raises ForeignJournalError for a corrupt file, a file of another program, or an old or unknown
    journal format.
    """
    with _open_connection(path, path, isolation_level="DEFERRED", timeout=30) as db:
        format_version = _read_format(db, path)
        if format_version not in (0, FORMAT):
            raise ForeignJournalError(
                f"{path}: journal format {format_version}: `show` and `report` read it. To "
                "resume the run, install the version of Folkmoot that started it (see "
                "manifest.json)."
            )
        _apply_pragmas(db)
        if not format_version:
            with db:
                # Create the schema in one transaction: a killed process leaves a complete journal
                # or none.
                db.execute("BEGIN IMMEDIATE")
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                meta_values = {
                    "format": str(FORMAT),
                    "software": version("folkmoot"),
                    "chain": str(Chain()),
                }
                db.executemany("INSERT INTO meta VALUES (?, ?)", meta_values.items())
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a journal of any format read-only, even on read-only media."""
    # Without a write-ahead log the file has no writer. With `immutable`, SQLite then leaves no
    # files beside it.
    access = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _open_connection(path, f"{path.resolve().as_uri()}?{access}", uri=True) as db:
        if not _read_format(db, path):
            raise EmptyJournalError(f"{path}: is empty.")
        return db


def _read_format(db: sqlite3.Connection, path: Path) -> int:
    # Returns 0 for a new file. Raises ForeignJournalError for a file that is no journal.
    application_id = db.execute("PRAGMA application_id").fetchone()[0]
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if application_id in (0, APPLICATION_ID) and not tables:
        return 0
    if application_id != APPLICATION_ID or not {"entries", "meta"} <= tables:
        raise ForeignJournalError(f"{path}: not a Folkmoot journal. The file was not changed.")
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    format_version = meta.get("format", "")
    if format_version not in map(str, READABLE_FORMATS):
        raise ForeignJournalError(
            f"{path}: journal format {format_version or 'unknown'}, written by Folkmoot "
            f"{meta.get('software', 'of another version')}; this is {version('folkmoot')}, "
            f"which reads formats 1 to {FORMAT}. Install the version that wrote it (see "
            "manifest.json). The file was not changed."
        )
    return int(format_version)


def read_chain(db: sqlite3.Connection) -> Chain:
    """Return the stored `Chain`: how many entries were written or replaced, and the hash."""
    # Both are as the last commit stored them.
    count, _, value = read_meta_value(db, "chain").partition(" ")
    return Chain(int(count), bytes.fromhex(value))


def write_batch(db: sqlite3.Connection, batch: BatchRecord, keys: Iterable[str]) -> None:
    """Write a batch and the keys of its requests."""
    # Most runs submit no batches, so the tables are created with the first one.
    for statement in filter(str.strip, BATCH_SCHEMA.split(";")):
        db.execute(statement)
    placeholders = ", ".join("?" * len(batch))
    db.execute(f"INSERT OR REPLACE INTO batches VALUES ({placeholders})", batch)
    rows = ((key, batch.name) for key in keys)
    db.executemany("INSERT OR REPLACE INTO batched VALUES (?, ?)", rows)
    write_meta_value(db, "batches", hash_batches(db))


def release_batch(db: sqlite3.Connection, name: str) -> None:
    """Remove the keys of the requests in a batch, because the vendor processed none of them."""
    # The row of the batch stays, so that no later batch gets its name.
    db.execute("DELETE FROM batched WHERE batch = ?", (name,))
    write_meta_value(db, "batches", hash_batches(db))


def write_broken(db: sqlite3.Connection, broken: BrokenReply) -> None:
    """Write the record of a reply that broke off."""
    db.execute(BROKEN)
    db.execute("INSERT INTO broken VALUES (?, ?, ?, ?)", broken)
    row = db.execute(
        "SELECT at, address, model, max_usd FROM broken ORDER BY rowid DESC"
    ).fetchone()
    write_meta_value(db, "broken", add_broken(read_meta_value(db, "broken"), row))


def mark_repaired(path: Path) -> None:
    """Mark a journal as repaired, because its damaged entries were removed."""
    # Until the run is done, a resume accepts requests that differ from the journal, and sends them
    # again.
    with closing(open_for_writing(path)) as db:
        with db:
            write_meta_value(db, REPAIRED, "damaged entries were set aside")
        checkpoint_wal(db)


def supersede_entry(db: sqlite3.Connection, address: str, at: float, chain: Chain) -> Chain:
    """Move the entry at an address to the table `superseded`.

    - `at`: the present time in seconds since 1970.
    - `chain`: the hash over all entries before this change.

    Returns the hash after the change.
    """
    # The caller commits the transaction.
    number = chain.length + 1
    event = hash_superseding(number, address, at)
    db.execute(
        "INSERT INTO superseded SELECT *, ?, ?, ? FROM entries WHERE address = ?",
        (at, number, event, address),
    )
    db.execute("DELETE FROM entries WHERE address = ?", (address,))
    chain = chain.add_event(event)
    write_meta_value(db, "chain", str(chain))
    return chain


def _apply_pragmas(db: sqlite3.Connection) -> None:
    # First, because the change of mode is forced onto the disk as well.
    db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
    # WAL lets readers watch a running run.
    db.execute("PRAGMA journal_mode = WAL")


def checkpoint_wal(db: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file, so that copies are complete."""
    # SQLite moves the log on close only if no reader is connected. If a reader blocks the move, the
    # rest stays in the log. So it does on a full disk, which the writer has reported already.
    with suppress(sqlite3.Error, StorageError):
        # Do not wait for readers: they may watch for hours.
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def storage_error(path: Path, error: Exception) -> StorageError:
    """Return the error of a journal that could not be written or read."""
    if isinstance(error, StorageError):
        return error
    text = str(error)
    if not isinstance(error, sqlite3.Error):
        return StorageError(f"{path}: an entry cannot be written ({type(error).__name__}: {text}).")
    if any(sign in text for sign in ("not a database", "malformed", "encrypted", "UTF-8")):
        return ForeignJournalError(
            f"{path}: corrupt or not a journal ({text}). The file was not changed."
        )
    if "full" in text or "disk I/O" in text:
        return StorageError(f"{path}: the disk is full ({text}). Free some space and resume.")
    if "readonly" in text:
        return StorageError(f"{path}: cannot be written ({text}).")
    if "unable to open" in text:
        return StorageError(
            f"{path}: cannot be written or read ({text}). Check the folder and the permissions."
        )
    return StorageError(f"{path}: {text}")


def commit_group(
    db: sqlite3.Connection,
    group: list[JournalEntry],
    stored: set[bytes],
    chain: Chain,
    write_other_tables: Callable[[sqlite3.Connection], None] = lambda _: None,
) -> Chain:
    """Write entries in one transaction, and return the new hash over all entries.

    - `stored`: hashes of texts that are already in the table `texts`.
    - `chain`: the hash over all entries before this group.
    - `write_other_tables`: writes further data in the same transaction.
    """
    # A long text in a request is stored in the table `texts` and replaced by `{"$text": hash}`.
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
            return {name: replace_long_text(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [replace_long_text(item) for item in value]
        return value

    rows = []
    for entry in group:
        row = _to_sql_values(
            entry,
            json_text.encode_json(replace_long_text(dict(entry.request))).decode(),
        )
        content = hash_content(row)
        seal = hash_entry(chain.length + 1, row, content)
        rows.append((chain.length + 1, *row, content, seal))
        chain = chain.add_event(seal)
    with db:
        db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", texts)
        db.executemany(INSERT_SQL, rows)
        if rows:
            write_meta_value(db, "chain", str(chain))
        write_other_tables(db)
    if len(stored) > TEXT_HASH_CACHE_SIZE:
        stored.clear()
    return chain


def format_difference(old: object, new: object) -> str:
    """Return the differing lines of two requests, at most 80 lines."""

    def format_lines(value: object) -> list[str]:
        return (
            json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
            # Show the lines of a prompt as lines: a diff of one long line would be unreadable.
            .replace("\\n", "\n")
            .splitlines()
        )

    diff = difflib.unified_diff(
        format_lines(old), format_lines(new), "journal", "now", lineterm="", n=2
    )
    return "\n".join(list(diff)[:80])
