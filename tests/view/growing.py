"""The files of a running run after a given number of replies."""

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

ENTRY_COLUMNS = ", ".join(("number", *COLUMNS, "content", "seal"))


class GrowingRun:
    """Files in `folder` of a run that ends like the run `finished`. This process holds the run."""

    def __init__(self, finished: Path, folder: Path) -> None:
        self.finished = finished
        self.folder = folder
        folder.mkdir(parents=True)
        self.hold()

    def hold(self) -> None:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": "2026-01-01T00:00:00Z"}
        (self.folder / HOLDER_FILE).write_text(json.dumps(holder))

    def release(self) -> None:
        (self.folder / HOLDER_FILE).unlink()

    def copy_files(self, *names: str) -> None:
        """Copy the files that exist before the first call, or the named ones."""
        for name in names or (STUDY_FILE_NAME, LOG, LOG_LINES, PLAN):
            shutil.copy(self.finished / name, self.folder / name)

    def write_journal(self, rows: int) -> int:
        """Write the first `rows` entries. Return the number of entries of the finished run."""
        with closing(open_for_writing(self.folder / JOURNAL)) as database, database:
            database.execute("ATTACH ? AS whole", (str(self.finished / JOURNAL),))
            database.execute("INSERT OR IGNORE INTO texts SELECT hash, text FROM whole.texts")
            database.execute(
                f"INSERT OR REPLACE INTO entries({ENTRY_COLUMNS}) SELECT {ENTRY_COLUMNS} "
                "FROM whole.entries ORDER BY rowid LIMIT ?",
                (rows,),
            )
            return int(database.execute("SELECT count(*) FROM whole.entries").fetchone()[0])

    def write_rows(self) -> None:
        """Write the table rows that belong to the journaled replies."""
        with JournalReader(self.folder / JOURNAL) as journal:
            journaled_addresses = journal.list_addresses()
        finished_run, row_file = RunFolder(self.finished), RowFile(self.folder)
        buffers = [TableBuffer(name, row_file) for name in ("answers", "utterances", PROVENANCE)]
        for buffer in buffers:
            rows = finished_run.read_table(buffer.name)
            if "address" in rows.columns:
                rows = rows.filter(pl.col("address").is_in([*journaled_addresses, ""]))
            for row in pack_rows(rows) if buffer.name == PROVENANCE else rows.to_dicts():
                buffer.add_row(row)
        row_file.write_rows(buffers)
        row_file.close()

    def iterate_states(self) -> Iterator[str]:
        """Go through all states of the run and yield the name of each."""
        yield "nothing"
        for name in (STUDY_FILE_NAME, LOG, LOG_LINES):
            self.copy_files(name)
            yield name
        (self.folder / JOURNAL).touch()
        yield "a journal without a byte"
        with closing(sqlite3.connect(self.folder / JOURNAL)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            yield "a journal without a table"
        count = self.write_journal(0)
        yield "an empty journal"
        self.copy_files(PLAN)
        yield PLAN
        for rows in (1, count // 2, count):
            self.write_journal(rows)
            yield f"{rows} replies"
            self.write_rows()
            yield f"the rows of {rows} replies"
        yield from self.iterate_end_states()

    def iterate_end_states(self) -> Iterator[str]:
        """Go through the states from the last reply to the end and yield the name of each."""
        (self.folder / TABLES).mkdir()
        for table in sorted((self.finished / TABLES).iterdir()):
            shutil.copy(table, self.folder / TABLES)
            if table.suffix == ".parquet":
                yield f"the table {table.stem}"
        for name in (CODEBOOK, MANIFEST):
            shutil.copy(self.finished / name, self.folder / name)
            yield name
        RowFile(self.folder).remove_file()
        self.release()
        yield "its end"


def pack_rows(spans: pl.DataFrame) -> Iterator[dict[str, object]]:
    for (address,), rows in spans.group_by("address", maintain_order=True):
        address_spans = [
            Span(start, end, Source(*source), message)
            for _, message, start, end, *source in rows.iter_rows()
        ]
        yield {"address": address, "spans": pack_spans(address_spans)}
