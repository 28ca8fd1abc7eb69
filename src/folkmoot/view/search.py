"""Full-text search over all replies of a run.

The index is a cache outside of the run folder. It holds words and no texts, so results are read
from the journal. It grows with a run in progress. It is rebuilt if something was removed from the
journal, so withdrawn words can no longer be found.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape
from polars.exceptions import PolarsError
from starlette.exceptions import HTTPException

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.storage.amendments import AMENDMENTS_FILE
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.view.overview import open_overview_cache
from folkmoot.view.people import NOT_SAID, journal_of
from folkmoot.view.talk import Asked, base_of, fields_of, hints_by_address, place_of

INDEX = "search.sqlite"
# Replies in one transaction.
AT_ONCE = 2000
# Seconds that a page waits for the index.
WAIT = 0.25
PER_PAGE = 50
# Search in all runs: seconds that a page takes, and results shown of each run.
WAIT_FOR_ALL, FROM_EACH = 0.4, 3
DAMAGED = (sqlite3.Error, OSError, StorageError, PolarsError)
# Characters shown on each side of the first match.
AROUND = 130
_SCHEMA = """
CREATE VIRTUAL TABLE said USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2');
CREATE TABLE state(stamp TEXT NOT NULL, upto INTEGER NOT NULL);
"""


class Hit(NamedTuple):
    """A reply that contains all words of a query, with the text around the first match."""

    address: str
    speaker: str
    role: str
    place: str
    words: Markup


class Found(NamedTuple):
    """One page of search results.

    `total` counts all results. `indexed` is the indexed share of the run (0 to 1), and `why` is the
    reason if indexing failed.
    """

    hits: list[Hit]
    total: int
    indexed: float
    why: str = ""


class Searches:
    """The indices of the runs. One thread for each run brings its index up to date."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Path, threading.Thread] = {}
        self._failed: dict[Path, str] = {}

    def find_replies(
        self,
        run: RunFolder,
        query: str,
        start: int = 0,
        most: int = PER_PAGE,
        *,
        wait: float = WAIT,
    ) -> Found:
        """Return the replies that contain all words of a query, the best first.

        A part of the query in quotation marks is a phrase. `wait` is in seconds.
        """
        wanted = _query_expression(query)
        opened = journal_of(run) if wanted else None
        if opened is None:
            return Found([], 0, 1.0)
        self._brought_up(run, wait)
        with opened as journal:
            last = journal.last_row()
            with closing(_open_index(run, journal)) as db:
                upto = int(db.execute("SELECT upto FROM state").fetchone()[0])
                match = "FROM said WHERE said MATCH ?"
                total = int(db.execute(f"SELECT count(*) {match}", (wanted,)).fetchone()[0])
                page = f"SELECT rowid {match} ORDER BY rank, rowid LIMIT ? OFFSET ?"
                rows = db.execute(page, (wanted, most, start)).fetchall()
            # The row ids of the index are those of the journal. A row that was removed from the
            # journal gives no result, because the next row has another id.
            replies = [
                r
                for (name,) in rows
                for r in journal.replies_after_row(name - 1, 1)
                if r[0] == name
            ]
        known = hints_by_address(run, [base_of(address) for _, address, _ in replies])
        hits = [_build_hit(address, text, query, known) for _, address, text in replies]
        indexed = min(1.0, upto / last) if last else 1.0
        return Found(hits, total, indexed, self._failed.get(run.path, ""))

    def find_in_runs(
        self, runs: Sequence[tuple[str, Callable[[], RunFolder]]], query: str
    ) -> tuple[list[tuple[str, Found]], int]:
        """Search several runs, given as (name, function that opens the run).

        Returns the results by name, and the number of runs that were searched before the time was
        up. The index of the last of them may be incomplete.
        """
        until = time.monotonic() + WAIT_FOR_ALL
        found: list[tuple[str, Found]] = []
        for done, (name, opened) in enumerate(runs):
            left = until - time.monotonic()
            if left <= 0:
                return found, done
            try:
                own = self.find_replies(opened(), query, most=FROM_EACH, wait=left)
            except (*DAMAGED, HTTPException) as error:
                own = Found([], 0, 1.0, str(error))
            if own.indexed < 1 and not own.why:
                return found, done
            if own.total or own.why:
                found.append((name, own))
        return found, len(runs)

    def _brought_up(self, run: RunFolder, wait: float) -> None:
        """Start a thread that indexes new replies, and wait for it for a moment."""
        with self._lock:
            thread = self._under_way.get(run.path)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._index_run, args=(run,), daemon=True)
                self._under_way[run.path] = thread
                thread.start()
        thread.join(wait)

    def _index_run(self, run: RunFolder) -> None:
        self._failed.pop(run.path, None)
        try:
            _build_index(run)
        # An exception in a thread has no caller, so the page shows the message.
        except Exception as error:
            self._failed[run.path] = str(error)


def _build_index(run: RunFolder) -> None:
    with JournalReader(run.path / JOURNAL) as journal, closing(_open_index(run, journal)) as db:
        last = journal.last_row()
        upto = int(db.execute("SELECT upto FROM state").fetchone()[0])
        while replies := journal.replies_after_row(upto, AT_ONCE):
            rows = [
                (n, _searchable_text(text))
                for n, address, text in replies
                if not address.startswith(NOT_SAID)
            ]
            with db:
                db.executemany("INSERT INTO said(rowid, text) VALUES (?, ?)", rows)
                db.execute("UPDATE state SET upto = ?", (replies[-1][0],))
            upto = replies[-1][0]
        # The last rows may be embeddings, which are not replies.
        with db:
            db.execute("UPDATE state SET upto = max(upto, ?)", (last,))


def _searchable_text(reply: str) -> str:
    fields = "\n".join(value for _, value in fields_of(reply) if value != "null")
    # JSON may hold an unpaired surrogate, which no text of the index can hold.
    return without_hidden(fields) or reply


def _open_index(run: RunFolder, journal: JournalReader) -> sqlite3.Connection:
    """Open the index of a run, or create an empty one if there is none for the current journal."""
    path, stamp = open_overview_cache(run.path) / INDEX, _journal_stamp(run, journal)
    db = sqlite3.connect(path, timeout=30)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        found = db.execute("SELECT stamp FROM state").fetchone()
    except sqlite3.Error:
        found = None
    if found is None or found[0] != stamp:
        db.close()
        for end in ("", "-wal", "-shm"):
            path.with_name(INDEX + end).unlink(missing_ok=True)
        db = sqlite3.connect(path, timeout=30)
        db.executescript(f"PRAGMA journal_mode = WAL; BEGIN; {_SCHEMA}")
        db.execute("INSERT INTO state VALUES (?, 0)", (stamp,))
        db.commit()
    return db


def _journal_stamp(run: RunFolder, journal: JournalReader) -> str:
    """Return the state of the journal to which an index must belong."""
    amended = run.path / AMENDMENTS_FILE
    changed = amended.stat().st_mtime_ns if amended.exists() else 0
    # The leading number is the version of the index format.
    return f"1 {(run.path / JOURNAL).stat().st_ino} {journal.superseded_count()} {changed}"


def _query_words(query: str) -> Iterator[str]:
    for phrase, word in re.findall(r'"([^"]*)"|(\S+)', query):
        text = (phrase or word).replace('"', " ").strip()
        if re.search(r"\w", text):
            yield text


def _query_expression(query: str) -> str:
    """Translate a query for SQLite's FTS5: all words and phrases, the last one as a prefix."""
    words = [f'"{text}"' for text in _query_words(query)]
    return f"{' '.join(words)}*" if words else ""


def _build_hit(address: str, reply: str, query: str, known: dict[str, Asked]) -> Hit:
    asked_there = known.get(base_of(address))
    return Hit(
        base_of(address),
        asked_there.speaker if asked_there else "",
        asked_there.role if asked_there else "",
        place_of(address),
        _mark_matches(" ".join(_searchable_text(reply).split()), query),
    )


def _mark_matches(text: str, query: str) -> Markup:
    """Return the text around the first match, with all matches marked."""
    pattern = re.compile(
        "|".join(rf"\b{re.escape(word)}\w*" for word in _query_words(query)), re.IGNORECASE
    )
    first = pattern.search(text)
    at = first.start() if first else 0
    begin, end = max(0, at - AROUND), min(len(text), at + AROUND)
    parts, last = [], begin
    for match in pattern.finditer(text, begin, end):
        parts += [escape(text[last : match.start()]), Markup("<mark>{}</mark>").format(match[0])]
        last = match.end()
    parts.append(escape(text[last : max(last, end)]))
    shown = Markup("").join(parts)
    return Markup("{}{}{}").format("…" * (begin > 0), shown, "…" * (end < len(text)))
