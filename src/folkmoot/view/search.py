"""Full-text search over everything said in a run.

The index is a cache outside of the run folder and holds words, no texts: what is shown is read from
the journal. It grows with a run under way, and is made anew when something was taken from the
journal, so that words that somebody withdrew can't be found any more.
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
AT_ONCE = 2000  # replies a transaction
WAIT = 0.25  # seconds that a page waits for the index
PER_PAGE = 50
WAIT_FOR_ALL, FROM_EACH = 0.4, 3  # in all runs: seconds a page, hits shown of each
DAMAGED = (sqlite3.Error, OSError, StorageError, PolarsError)
AROUND = 130  # characters on each side of the first word found
_SCHEMA = """
CREATE VIRTUAL TABLE said USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2');
CREATE TABLE state(stamp TEXT NOT NULL, upto INTEGER NOT NULL);
"""


class Hit(NamedTuple):
    """A reply that holds what was looked for, and the words around it."""

    address: str
    speaker: str
    role: str
    place: str
    words: Markup


class Found(NamedTuple):
    """A page of hits, how many there are in all, how much of the run is indexed (0 to 1), and why
    it is not all."""

    hits: list[Hit]
    total: int
    indexed: float
    why: str = ""


class Searches:
    """The indices of the runs; each is made once, in a thread of its own."""

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
        """The replies that hold all words of a query, the best first. `"…"` is a phrase."""
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
        """What is found in these runs (name, how to open it), and in how many of them it was
        looked for: as many as a page has time for, of which the last may not be indexed yet."""
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
        """Index what is new, or wait a moment for the thread that does."""
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
        except Exception as error:  # a thread has nobody to raise to
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
        with db:  # the last rows may be of embeddings, which nobody said
            db.execute("UPDATE state SET upto = max(upto, ?)", (last,))


def _searchable_text(reply: str) -> str:
    fields = "\n".join(value for _, value in fields_of(reply) if value != "null")
    return without_hidden(fields) or reply  # JSON may hold half a character, no text can


def _open_index(run: RunFolder, journal: JournalReader) -> sqlite3.Connection:
    """The index of a run; an empty one where there is none of the journal as it is."""
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
    """What must be the same for an index to hold only what the journal holds."""
    amended = run.path / AMENDMENTS_FILE
    changed = amended.stat().st_mtime_ns if amended.exists() else 0
    return f"1 {(run.path / JOURNAL).stat().st_ino} {journal.superseded_count()} {changed}"


def _query_words(query: str) -> Iterator[str]:
    for phrase, word in re.findall(r'"([^"]*)"|(\S+)', query):
        text = (phrase or word).replace('"', " ").strip()
        if re.search(r"\w", text):
            yield text


def _query_expression(query: str) -> str:
    """A query in the index's language: every word or phrase, the last one as a beginning."""
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
    """The words around the first that was found, all that were found marked."""
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
