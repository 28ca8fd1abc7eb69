"""Compute the hashes of a journal's content, and check that the content still matches."""

# Every entry has two SHA-256 hashes. The content hash covers address, request, reply and served
# model. The seal covers the whole row, with usage, cost, times and attempts. The content digest of
# a run is a hash over all content hashes. The record digest covers everything in the journal. The
# chain is a hash over the seals in the order of writing. It is stored with every commit, so it
# shows added or removed entries even after a crash. The check finds damage and manual changes. It
# does not find a change after which every hash was recomputed. Only a digest that was published
# elsewhere reveals such a change. Journals of formats 1 to 3 have a 128-bit sum of hashes instead,
# which can be forged.

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from folkmoot import json_text
from folkmoot.randomness import digest

# The first journal format with SHA-256 hashes.
BINDING_FORMAT = 4
# SQLite may report thousands of problems of one damaged file. The first ones say enough.
MAX_STRUCTURE_PROBLEMS = 5

# The columns of an entry in the order of the table. `JournalEntry` in journal_file.py has the same
# fields.
COLUMNS = (
    *("address", "kind", "fingerprint", "request", "reply", "blob", "finish"),
    *("input_tokens", "output_tokens", "cached_tokens", "cost_usd", "latency_s", "attempts"),
    *("model_asked", "model_served", "request_id", "started_at"),
)
NAMES = ", ".join(COLUMNS)
_TEXT_REFERENCE = re.compile(r'\{"\$text":"([0-9a-f]*)"\}')

Cells = Sequence[object]


class Damage(NamedTuple):
    """One difference between a journal and the data that was written to it."""

    # Empty if the difference belongs to no entry.
    address: str
    problem: str

    def __str__(self) -> str:
        return f"{self.address}: {self.problem}" if self.address else self.problem


class Chain(NamedTuple):
    """A running count and hash of everything that was written to a journal or replaced in it."""

    length: int = 0
    value: bytes = bytes(32)

    def add_event(self, event: bytes) -> Chain:
        return Chain(self.length + 1, hashlib.sha256(self.value + event).digest())

    def __str__(self) -> str:
        return f"{self.length} {self.value.hex()}"


def hash_content(cells: Cells) -> bytes:
    """Return the SHA-256 of an entry's request, reply and the name of the answering model."""
    address, kind, fingerprint, request, reply, blob, finish = cells[:7]
    return _hash_values((address, kind, request, reply, finish, cells[14]), fingerprint, blob)


def hash_entry(number: int, cells: Cells, content: bytes) -> bytes:
    """Return the SHA-256 of an entry's row.

    `content`: the result of `hash_content`.
    """
    return _hash_values((number, *cells[7:14], *cells[15:]), content)


def hash_superseding(number: int, address: str, at: float) -> bytes:
    """Return the hash which records that a new answer has replaced an entry.

    Returns b"" for a damaged row with values of a wrong type.
    """
    try:
        return _hash_values(("superseded", number, address, at))
    except TypeError:
        return b""


def hash_rows(rows: Iterable[Cells]) -> str:
    """Return the SHA-256 of the rows of a small table."""
    return _hash_values([list(row) for row in rows]).hex()


def _hash_values(values: Sequence[object], *blobs: object) -> bytes:
    # `blobs` are bytes or None.
    hasher = hashlib.sha256(orjson.dumps(values))
    for blob in blobs:
        if blob is None:
            hasher.update(b"-")
        elif isinstance(blob, bytes):
            # The length separates the values: two blobs must not hash like their concatenation.
            hasher.update(b"%d:" % len(blob))
            hasher.update(blob)
        else:
            raise TypeError(f"bytes were written, {type(blob).__name__} is there")
    return hasher.digest()


def digest_of_run(record: str, plan: object) -> str:
    """Return a hash over the plan and the journal of a run.

    `record`: the digest of the journal.
    """
    return hash_rows([[record, json.dumps(plan, sort_keys=True)]]) if record else ""


def digest_of_content(db: sqlite3.Connection, format_version: int) -> str:
    """Return a hash over all requests and replies, independent of the order of calls."""
    if format_version < BINDING_FORMAT:
        return f"{_sum_of_contents(db):032x}"
    return _hash_column(db, "content")


def digest_of_record(db: sqlite3.Connection, format_version: int) -> str:
    """Return a hash over everything in the journal, including costs and times.

    Returns an empty string for formats before 4.
    """
    if format_version < BINDING_FORMAT:
        return ""
    superseded = db.execute("SELECT seal, gone, at FROM superseded ORDER BY number").fetchall()
    table_hashes = [read_meta_value(db, name) for name in ("batches", "broken")]
    # Leave the hash of an empty table out: journals written before the table existed keep their
    # digest.
    if loans := read_meta_value(db, "loans"):
        table_hashes.append(loans)
    return hash_rows(
        [
            [_hash_column(db, "seal"), *table_hashes],
            *([bytes(seal).hex(), gone, at] for seal, gone, at in superseded),
        ]
    )


def _hash_column(db: sqlite3.Connection, column: str) -> str:
    hasher = hashlib.sha256(f"folkmoot {column}\n".encode())
    for (value,) in db.execute(f"SELECT {column} FROM entries ORDER BY address"):
        hasher.update(value)
    return hasher.hexdigest()


def read_meta_value(db: sqlite3.Connection, key: str) -> str:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return "" if row is None else str(row[0])


def write_meta_value(db: sqlite3.Connection, key: str, value: str) -> None:
    """Store a hash in the table `meta`."""
    # Call it in the transaction that changed the hashed data.
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def hash_batches(db: sqlite3.Connection) -> str:
    """Return the SHA-256 of the batches submitted to vendors, or "" if there are none."""
    if not has_table(db, "batches"):
        return ""
    rows = db.execute("SELECT * FROM batches ORDER BY name").fetchall()
    keys = db.execute("SELECT key, batch FROM batched ORDER BY key").fetchall()
    return hash_rows([*rows, *keys])


def hash_broken(db: sqlite3.Connection) -> str:
    """Return a hash over all replies that broke off, or "" if there are none."""
    chain_hash = ""
    if has_table(db, "broken"):
        for row in db.execute("SELECT at, address, model, max_usd FROM broken ORDER BY rowid"):
            chain_hash = add_broken(chain_hash, row)
    return chain_hash


def add_broken(before: str, row: Cells) -> str:
    """Return the hash over all broken-off replies, including the new reply in `row`.

    `before`: the hash over the earlier replies.
    """
    return hash_rows([[before], row])


def hash_loans(db: sqlite3.Connection) -> str:
    """Return the SHA-256 of the table `loans`, or "" if the table is empty."""
    if not has_table(db, "loans"):
        return ""
    rows = db.execute("SELECT * FROM loans ORDER BY number").fetchall()
    return hash_rows(rows) if rows else ""


def has_table(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def find_damage(db: sqlite3.Connection, format_version: int) -> list[Damage]:
    """Return all damage to a journal, as found by SQLite and by the stored hashes."""
    # `db` needs a `text_factory` that accepts bytes that are not UTF-8. Otherwise the address of a
    # damaged entry could not be read.
    try:
        check_results = [
            row[0] for row in db.execute(f"PRAGMA integrity_check({MAX_STRUCTURE_PROBLEMS})")
        ]
    except sqlite3.Error as error:
        return [Damage("", f"the file cannot be read as a database: {error}")]
    found = (
        []
        if check_results == ["ok"]
        else [Damage("", f"damaged file: {text}") for text in check_results]
    )
    try:
        found += _find_damaged_texts(db)
        found += (
            _find_damaged_rows(db)
            if format_version >= BINDING_FORMAT
            else _find_damage_in_old_format(db, format_version)
        )
    except sqlite3.Error as error:
        found.append(Damage("", f"the file cannot be read to its end: {error}"))
    # One damaged text may be reported by two checks.
    return list(dict.fromkeys(found))


def _find_damaged_texts(db: sqlite3.Connection) -> list[Damage]:
    intact = set[str]()
    damaged_addresses = []
    for key, text in db.execute("SELECT hash, text FROM texts"):
        if isinstance(key, bytes) and isinstance(text, str) and _is_of_hash(text, key):
            intact.add(key.hex())
        else:
            # The empty address counts a damaged text until an entry is found that uses it.
            damaged_addresses.append("")
    for table in ("entries", "superseded"):
        for address, request in db.execute(f"SELECT address, request FROM {table}"):
            hashes = _TEXT_REFERENCE.findall(request) if isinstance(request, str) else []
            if not intact.issuperset(hashes):
                damaged_addresses.append(str(address))
    problem = "a long text of the request changed since it was written or is missing"
    addresses = dict.fromkeys(filter(None, damaged_addresses))
    if damaged_addresses and not addresses:
        return [Damage("", "a long text that no request uses changed since it was written")]
    return [Damage(address, problem) for address in addresses]


def _is_of_hash(text: str, key: bytes) -> bool:
    try:
        return digest(text) == key
    except UnicodeEncodeError:
        return False


def _find_damaged_rows(db: sqlite3.Connection) -> list[Damage]:
    found: list[Damage] = []
    superseding_events: list[tuple[int, bytes]] = []
    for table in ("entries", "superseded"):
        rows = db.execute(f"SELECT number, {NAMES}, content, seal FROM {table}")
        changed_addresses = (row[1] for row in rows if not is_intact(row))
        found += (
            Damage(_format_address(address), "changed since it was written")
            for address in changed_addresses
        )
    superseded = "SELECT gone, address, at, event FROM superseded ORDER BY gone"
    for number, address, at, event in db.execute(superseded):
        if isinstance(address, str) and hash_superseding(number, address, at) == event:
            superseding_events.append((number, event))
        else:
            found.append(
                Damage(_format_address(address), "the time when it was superseded changed")
            )
    # The chain is made from the seals. A changed row would break it, too, and be reported twice.
    if not found and _rebuild_chain(db, superseding_events) != read_meta_value(db, "chain"):
        found.append(Damage("", "entries were added or removed since they were written"))
    tables = (("batches", hash_batches), ("broken", hash_broken), ("loans", hash_loans))
    for name, hash_table in tables:
        try:
            same = hash_table(db) == read_meta_value(db, name)
        except TypeError:
            same = False
        if not same:
            found.append(Damage("", f"the table {name} changed since it was written"))
    return found


def _format_address(address: object) -> str:
    return address if isinstance(address, str) else repr(address)


def is_intact(row: Cells) -> bool:
    """Return whether a row matches its stored hashes."""
    # A row is (number, cells …, hash of the content, hash of the whole row).
    number, cells = row[0], row[1 : 1 + len(COLUMNS)]
    content, seal = row[1 + len(COLUMNS) : 3 + len(COLUMNS)]
    try:
        return (
            isinstance(number, int)
            and hash_content(cells) == content
            and hash_entry(number, cells, content) == seal
        )
    # A cell has another type than was written, so the row cannot be hashed.
    except (TypeError, ValueError):
        return False


def has_intact_usage(row: Cells) -> bool:
    """Return whether the model, tokens and cost of a damaged row are as they were written.

    The row is that of `is_intact`.
    """
    # The seal covers these cells and the stored hash of the content, but not the content itself.
    number, cells = row[0], row[1 : 1 + len(COLUMNS)]
    content, seal = row[1 + len(COLUMNS) : 3 + len(COLUMNS)]
    try:
        return (
            isinstance(number, int)
            and isinstance(content, bytes)
            and hash_entry(number, cells, content) == seal
        )
    except (TypeError, ValueError):
        return False


def _rebuild_chain(db: sqlite3.Connection, superseding_events: Sequence[tuple[int, bytes]]) -> str:
    # Returns an empty string if the number of an event is missing.
    rows = "SELECT number, seal FROM entries UNION ALL SELECT number, seal FROM superseded"
    written = db.execute(f"SELECT number, seal FROM ({rows}) ORDER BY number")
    chain = Chain()
    for number, event in _merge_in_order(written, superseding_events):
        if number != chain.length + 1:
            return ""
        chain = chain.add_event(event)
    return str(chain)


def _merge_in_order(
    written: Iterable[tuple[int, bytes]], superseding_events: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes]]:
    waiting = list(superseding_events)[::-1]
    for number, event in written:
        while waiting and waiting[-1][0] < number:
            yield waiting.pop()
        yield number, event
    yield from reversed(waiting)


# --- formats 1 to 3 -----------------------------------------------------------------------------


def _find_damage_in_old_format(db: sqlite3.Connection, format_version: int) -> list[Damage]:
    # Format 3 has 16-byte hashes of rows and a sum of hashes. Formats 1 and 2 have no hashes.
    if format_version < 3:
        return []
    rows = db.execute(f"SELECT {NAMES}, seal FROM entries ORDER BY address")
    found = [
        Damage(_format_address(row[0]), "changed since it was written")
        for row in rows
        if _seal_of_old_format(row[:-1]) != row[-1]
    ]
    stored_digest = read_meta_value(db, "digest")
    if not found and stored_digest and stored_digest != f"{_sum_of_contents(db):032x}":
        found.append(Damage("", "entries were added or removed since they were written"))
    return found


def _seal_of_old_format(cells: Cells) -> bytes | None:
    try:
        text = json_text.encode_json([cell for cell in cells if not isinstance(cell, bytes)])
    except ValueError:
        return None
    return digest(text, *(cell for cell in cells if isinstance(cell, bytes)))


def _sum_of_contents(db: sqlite3.Connection) -> int:
    columns = "address, fingerprint, finish, reply, coalesce(blob, x'')"
    contents = (digest(*row) for row in db.execute(f"SELECT {columns} FROM entries"))
    return sum(int.from_bytes(content, "big") for content in contents) % 2**128
