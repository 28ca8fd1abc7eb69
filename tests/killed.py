"""Make run folders as a killed process leaves them: rows that are not in a table yet."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import MANIFEST, TABLES, RunFolder
from folkmoot.storage.table_buffer import RowFile, TableBuffer


def write_row_file(folder: Path, tables: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    """Write the row file of a run in progress."""
    file = RowFile(folder)
    file.remove_file()
    buffers = [TableBuffer(name, file) for name in tables]
    for buffer in buffers:
        for row in tables[buffer.name]:
            buffer.add_row(row)
    file.write_rows(buffers)
    file.close()


def reopen_run(folder: Path, *, keep_manifest: bool = False) -> None:
    """Move the tables of a finished run back to the row file.

    `keep_manifest`: keep the manifest, as that of an earlier process.
    """
    run = RunFolder(folder)
    names = [name for name in run.table_names() if name != PROVENANCE]
    tables = {name: run.read_table(name).to_dicts() for name in names}
    shutil.rmtree(folder / TABLES)
    if not keep_manifest:
        (folder / MANIFEST).unlink()
    write_row_file(folder, tables)
