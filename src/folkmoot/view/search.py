"""Full-text search over all replies of a run."""
# The index is a cache outside the run folder. It grows while a run is in progress. It is rebuilt
# after a withdrawal, so that withdrawn texts can no longer be found. The texts of results are read
# from the journal.

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import polars as pl
from markupsafe import Markup, escape
from polars.exceptions import PolarsError
from starlette.exceptions import HTTPException

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.errors import StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import collapse_spaces
from folkmoot.storage.amendments import AMENDMENTS_FILE
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.view.overview import open_overview_cache
from folkmoot.view.people import HIDDEN_ADDRESSES, journal_of
from folkmoot.view.talk import RecordedAnswer, answers_by_address, base_of, fields_of, place_of

INDEX = "search.sqlite"
# Replies in one transaction.
REPLIES_PER_BATCH = 2000
# Seconds that a page waits for the index.
MAX_WAIT_SECONDS = 0.25
PER_PAGE = 50
# Most speakers that a page lists by their name or role.
MAX_SPEAKERS = 20
# Search in all runs: seconds that a page takes, and results shown of each run.
MAX_WAIT_FOR_ALL_SECONDS, MAX_HITS_PER_RUN = 0.4, 3
DAMAGED = (sqlite3.Error, OSError, StorageError, PolarsError)
# Characters shown on each side of the first match.
CONTEXT_CHARACTERS = 130
_SCHEMA = """
CREATE VIRTUAL TABLE said USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2');
CREATE TABLE state(stamp TEXT NOT NULL, upto INTEGER NOT NULL);
"""


class Hit(NamedTuple):
    """A reply that contains all words of a search query."""

    address: str
    speaker: str
    role: str
    # Where in the study the question was asked.
    place: str
    # The text around the first match, with the matches marked.
    words: Markup


class FoundSpeaker(NamedTuple):
    """A speaker with all words of a search query in the id, name or role."""

    id: str
    # The names and roles, which may differ between conversations.
    label: str
    # The number of utterances, and of replies that are none.
    utterances: int


class SearchResult(NamedTuple):
    """One page of search results."""

    hits: list[Hit]
    # The number of all results.
    total: int
    # The share of the run's replies that are indexed (0 to 1).
    indexed: float
    # The reason if indexing failed, or "".
    why: str = ""


class FoundInRun(NamedTuple):
    """What a search in several runs found in one of them."""

    run: str
    replies: SearchResult
    speakers: list[FoundSpeaker]


class Searches:
    """The search indices of all runs."""

    # A thread updates each of them.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Path, threading.Thread] = {}
        self._failed: dict[Path, str] = {}

    def find_replies(
        self,
        run: RunFolder,
        query: str,
        start: int = 0,
        max_hits: int = PER_PAGE,
        *,
        wait: float = MAX_WAIT_SECONDS,
    ) -> SearchResult:
        """Return the replies that contain all words of a query, the best match first.

        - `wait`: the most seconds to wait for the index.
        """
        # Words in quotation marks are searched as a phrase.
        expression = _query_expression(query)
        opened_journal = journal_of(run) if expression else None
        if opened_journal is None:
            return SearchResult([], 0, 1.0)
        self._update_index(run, wait)
        with opened_journal as journal:
            last_row = journal.last_row()
            index = _open_current_index(run, journal)
            if index is None:
                # The thread that builds the index has not created it yet, or has failed.
                return SearchResult([], 0, 0.0, self._failed.get(run.path, ""))
            with closing(index) as db:
                indexed_row = int(db.execute("SELECT upto FROM state").fetchone()[0])
                match = "FROM said WHERE said MATCH ?"
                total = int(db.execute(f"SELECT count(*) {match}", (expression,)).fetchone()[0])
                query_sql = f"SELECT rowid {match} ORDER BY rank, rowid LIMIT ? OFFSET ?"
                rows = db.execute(query_sql, (expression, max_hits, start)).fetchall()
            # The row ids of the index are those of the journal. A row that was removed from the
            # journal gives no result, because the next row has another id.
            replies = [
                reply
                for (row_number,) in rows
                for reply in journal.replies_after_row(row_number - 1, 1)
                if reply[0] == row_number
            ]
        answers = answers_by_address(run, [base_of(address) for _, address, _ in replies])
        hits = [_build_hit(address, text, query, answers) for _, address, text in replies]
        indexed_share = min(1.0, indexed_row / last_row) if last_row else 1.0
        return SearchResult(hits, total, indexed_share, self._failed.get(run.path, ""))

    def find_in_runs(
        self, runs: Sequence[tuple[str, Callable[[], RunFolder]]], query: str
    ) -> tuple[list[FoundInRun], int]:
        """Search several runs until a time limit. Returns results and the number of searched runs.

        - `runs`: pairs of the name of a run and a function that opens the run.
        """
        deadline = time.monotonic() + MAX_WAIT_FOR_ALL_SECONDS
        found: list[FoundInRun] = []
        for searched_count, (name, open_run) in enumerate(runs):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                return found, searched_count
            speakers: list[FoundSpeaker] = []
            try:
                run = open_run()
                speakers = find_speakers(run, query)
                replies = self.find_replies(
                    run, query, max_hits=MAX_HITS_PER_RUN, wait=seconds_left
                )
            except (*DAMAGED, HTTPException) as error:
                replies = SearchResult([], 0, 1.0, str(error))
            if replies.indexed < 1 and not replies.why:
                return found, searched_count
            if replies.total or replies.why or speakers:
                found.append(FoundInRun(name, replies, speakers))
        return found, len(runs)

    def _update_index(self, run: RunFolder, wait: float) -> None:
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


def find_speakers(run: RunFolder, query: str) -> list[FoundSpeaker]:
    """Return the speakers with all words of a query in the id, name or role.

    Those who said most come first.
    """
    patterns = [rf"(?i)\b{re.escape(word)}" for word in _query_words(query)]
    said = _said_by_speaker(run)
    if not patterns or said is None:
        return []
    names = (pl.col(name).drop_nulls().unique(maintain_order=True) for name in ("name", "role"))
    speakers = said.group_by("speaker_id").agg(*names, pl.len()).collect()
    found: list[FoundSpeaker] = []
    for speaker_id, own_names, roles, count in speakers.iter_rows():
        # A moderator is often named after the role.
        labels = {label.casefold(): label for label in reversed((*own_names, *roles))}
        label = ", ".join(reversed(labels.values()))
        if all(re.search(pattern, f"{speaker_id} {label}") for pattern in patterns):
            found.append(FoundSpeaker(speaker_id, label, count))
    return sorted(found, key=lambda speaker: (-speaker.utterances, speaker.id))


def list_said_by(
    run: RunFolder, speaker_id: str, start: int = 0, max_hits: int = PER_PAGE
) -> SearchResult:
    """Return what one speaker said, in the order of the tables."""
    said = _said_by_speaker(run)
    if said is None:
        return SearchResult([], 0, 1.0)
    rows = said.filter(speaker_id=speaker_id).collect()
    shown = list(rows.slice(start, max_hits).iter_rows(named=True))
    replies = _replies_at(run, [row["address"] for row in shown if row["text"] is None])
    hits = [
        Hit(
            row["address"],
            speaker_id,
            row["role"] or "",
            place_of(row["address"] or f"{row['scope'] or ''}/"),
            _shorten_text(row["text"] or replies.get(row["address"], "")),
        )
        for row in shown
    ]
    return SearchResult(hits, rows.height, 1.0)


def _shorten_text(text: str) -> Markup:
    shown = collapse_spaces(_searchable_text(text))
    return escape(shown[: 2 * CONTEXT_CHARACTERS] + "…" * (len(shown) > 2 * CONTEXT_CHARACTERS))


def _replies_at(run: RunFolder, addresses: Sequence[str]) -> dict[str, str]:
    opened_journal = journal_of(run) if addresses else None
    if opened_journal is None:
        return {}
    with opened_journal as journal:
        entries = ((address, journal.entry_at(address)) for address in addresses)
        return {address: entry.reply for address, entry in entries if entry is not None}


def _said_by_speaker(run: RunFolder) -> pl.LazyFrame | None:
    # One row for each utterance, and for each reply that is none, such as that of a planner. None
    # if nothing is recorded yet. A text that no model wrote, such as an instruction, has no
    # address. Texts of replies that are no utterance are in the journal only.
    said: list[pl.LazyFrame] = []
    if run.has_table(UTTERANCES):
        renamed = {"speaker_name": "name", "speaker_role": "role"}
        said.append(run.scan_table(UTTERANCES).rename(renamed, strict=False))
    if run.has_table("answers"):
        answers = run.scan_table("answers")
        hidden = (pl.col("address").str.starts_with(start) for start in HIDDEN_ADDRESSES)
        answers = answers.filter(~pl.any_horizontal(*hidden))
        if said and "address" in said[0].collect_schema():
            answers = answers.join(said[0], on="address", how="anti", maintain_order="left")
        said.append(answers.with_columns(text=pl.lit(None, pl.String)))
    frames: list[pl.LazyFrame] = []
    for frame in said:
        known = frame.collect_schema().names()
        frames.append(
            frame.select(
                (pl.col(column) if column in known else pl.lit(None)).cast(pl.String).alias(column)
                for column in ("address", "speaker_id", "name", "role", "scope", "text")
            )
        )
    return pl.concat(frames) if frames else None


def _build_index(run: RunFolder) -> None:
    with (
        JournalReader(run.path / JOURNAL) as journal,
        closing(_open_or_create_index(run, journal)) as db,
    ):
        last_row = journal.last_row()
        indexed_row = int(db.execute("SELECT upto FROM state").fetchone()[0])
        while replies := journal.replies_after_row(indexed_row, REPLIES_PER_BATCH):
            rows = [
                (row_number, _searchable_text(text))
                for row_number, address, text in replies
                if not address.startswith(HIDDEN_ADDRESSES)
            ]
            with db:
                db.executemany("INSERT INTO said(rowid, text) VALUES (?, ?)", rows)
                db.execute("UPDATE state SET upto = ?", (replies[-1][0],))
            indexed_row = replies[-1][0]
        # The last rows may be embeddings, which are not replies.
        with db:
            db.execute("UPDATE state SET upto = max(upto, ?)", (last_row,))


def _searchable_text(reply: str) -> str:
    fields = "\n".join(value for _, value in fields_of(reply) if value != "null")
    # JSON may hold an unpaired surrogate, which no text of the index can hold.
    return without_hidden(fields) or reply


def _open_current_index(run: RunFolder, journal: JournalReader) -> sqlite3.Connection | None:
    # Returns None if there is no index, or if it belongs to another state of the journal.
    path = open_overview_cache(run.path) / INDEX
    if not path.exists():
        return None
    db = sqlite3.connect(path, timeout=30)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        stored_stamp = db.execute("SELECT stamp FROM state").fetchone()
    except sqlite3.Error:
        stored_stamp = None
    if stored_stamp is not None and stored_stamp[0] == _journal_stamp(run, journal):
        return db
    db.close()
    return None


def _open_or_create_index(run: RunFolder, journal: JournalReader) -> sqlite3.Connection:
    # Only the thread that builds the index may call this. Another thread would delete the file
    # that is being written.
    if current := _open_current_index(run, journal):
        return current
    path = open_overview_cache(run.path) / INDEX
    for suffix in ("", "-wal", "-shm"):
        path.with_name(INDEX + suffix).unlink(missing_ok=True)
    db = sqlite3.connect(path, timeout=30)
    db.executescript(f"PRAGMA journal_mode = WAL; BEGIN; {_SCHEMA}")
    db.execute("INSERT INTO state VALUES (?, 0)", (_journal_stamp(run, journal),))
    db.commit()
    return db


def _journal_stamp(run: RunFolder, journal: JournalReader) -> str:
    amendments_file = run.path / AMENDMENTS_FILE
    amended_at = amendments_file.stat().st_mtime_ns if amendments_file.exists() else 0
    # The leading number is the version of the index format.
    return f"1 {(run.path / JOURNAL).stat().st_ino} {journal.superseded_count()} {amended_at}"


def _query_words(query: str) -> Iterator[str]:
    for phrase, word in re.findall(r'"([^"]*)"|(\S+)', query):
        # SQLite would end the expression at a null character.
        text = (phrase or word).replace('"', " ").replace("\0", " ").strip()
        if re.search(r"\w", text):
            yield text


def _query_expression(query: str) -> str:
    # The syntax is that of SQLite FTS5. The last word matches as a prefix.
    words = [f'"{text}"' for text in _query_words(query)]
    return f"{' '.join(words)}*" if words else ""


def _build_hit(address: str, reply: str, query: str, answers: dict[str, RecordedAnswer]) -> Hit:
    answer = answers.get(base_of(address))
    return Hit(
        base_of(address),
        answer.speaker if answer else "",
        answer.role if answer else "",
        place_of(address),
        _mark_matches(collapse_spaces(_searchable_text(reply)), query),
    )


def _mark_matches(text: str, query: str) -> Markup:
    pattern = re.compile(
        "|".join(rf"\b{re.escape(word)}\w*" for word in _query_words(query)), re.IGNORECASE
    )
    first = pattern.search(text)
    first_match = first.start() if first else 0
    begin, end = (
        max(0, first_match - CONTEXT_CHARACTERS),
        min(len(text), first_match + CONTEXT_CHARACTERS),
    )
    parts, position = [], begin
    for match in pattern.finditer(text, begin, end):
        parts += [
            escape(text[position : match.start()]),
            Markup("<mark>{}</mark>").format(match[0]),
        ]
        position = match.end()
    parts.append(escape(text[position : max(position, end)]))
    marked = Markup("").join(parts)
    return Markup("{}{}{}").format("…" * (begin > 0), marked, "…" * (end < len(text)))
