"""A run that is under way, as it lies on the disk when so many of its replies have come."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl

from folkmoot.engine.journal.journal_file import COLUMNS, open_for_writing
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.folder_access import HOLDER_FILE
from folkmoot.provenance import Source, Span
from folkmoot.storage.provenance_table import PROVENANCE, pack_spans
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PLAN,
    STUDY_FILE_NAME,
    TABLES,
    RunFolder,
)
from folkmoot.storage.table_buffer import RowFile, TableBuffer

CELLS = ", ".join(("number", *COLUMNS, "content", "seal"))


class Growing:
    """The run at `folder` that will once be what `finished` is. This process holds it."""

    def __init__(self, finished: Path, folder: Path) -> None:
        self.finished = finished
        self.folder = folder
        folder.mkdir(parents=True)
        self.hold()

    def hold(self) -> None:
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": "2026-01-01T00:00:00Z"}
        (self.folder / HOLDER_FILE).write_text(json.dumps(who))

    def let_go(self) -> None:
        (self.folder / HOLDER_FILE).unlink()

    def begin(self, *names: str) -> None:
        """Its files up to the first call, or some of them."""
        for name in names or (STUDY_FILE_NAME, LOG, LOG_LINES, PLAN):
            shutil.copy(self.finished / name, self.folder / name)

    def journal(self, rows: int) -> int:
        """As many of the rows as that in its journal; how many the finished one has."""
        with closing(open_for_writing(self.folder / JOURNAL)) as db, db:
            db.execute("ATTACH ? AS whole", (str(self.finished / JOURNAL),))
            db.execute("INSERT OR IGNORE INTO texts SELECT hash, text FROM whole.texts")
            db.execute(
                f"INSERT OR REPLACE INTO entries({CELLS}) SELECT {CELLS} FROM whole.entries "
                "ORDER BY rowid LIMIT ?",
                (rows,),
            )
            return int(db.execute("SELECT count(*) FROM whole.entries").fetchone()[0])

    def record(self) -> None:
        """The rows that its process has recorded of these replies."""
        with JournalReader(self.folder / JOURNAL) as journal:
            done = journal.list_addresses()
        run, file = RunFolder(self.finished), RowFile(self.folder)
        recordings = [TableBuffer(name, file) for name in ("answers", "utterances", PROVENANCE)]
        for recording in recordings:
            rows = run.read_table(recording.name)
            if "address" in rows.columns:
                rows = rows.filter(pl.col("address").is_in([*done, ""]))
            for row in _packed(rows) if recording.name == PROVENANCE else rows.to_dicts():
                recording.add_row(row)
        file.write_rows(recordings)
        file.close()

    def life(self) -> Iterator[str]:
        """Its states, one after another; each by name."""
        yield "nothing"
        for name in (STUDY_FILE_NAME, LOG, LOG_LINES):
            self.begin(name)
            yield name
        (self.folder / JOURNAL).touch()
        yield "a journal without a byte"
        with closing(sqlite3.connect(self.folder / JOURNAL)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            yield "a journal without a table"
        count = self.journal(0)
        yield "an empty journal"
        self.begin(PLAN)
        yield PLAN
        for rows in (1, count // 2, count):
            self.journal(rows)
            yield f"{rows} replies"
            self.record()
            yield f"the rows of {rows} replies"
        yield from self.end()

    def end(self) -> Iterator[str]:
        """From its last reply to its end."""
        (self.folder / TABLES).mkdir()
        for table in sorted((self.finished / TABLES).iterdir()):
            shutil.copy(table, self.folder / TABLES)
            if table.suffix == ".parquet":
                yield f"the table {table.stem}"
        for name in (CODEBOOK, MANIFEST):
            shutil.copy(self.finished / name, self.folder / name)
            yield name
        RowFile(self.folder).remove_file()
        self.let_go()
        yield "its end"


def _packed(spans: pl.DataFrame) -> Iterator[dict[str, object]]:
    for (address,), rows in spans.group_by("address", maintain_order=True):
        found = [
            Span(start, end, Source(*source), message)
            for _, message, start, end, *source in rows.iter_rows()
        ]
        yield {"address": address, "spans": pack_spans(found)}
