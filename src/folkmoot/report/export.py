"""`folkmoot export`: a run as CSV, Parquet or JSON with a codebook, or as a Polis export."""

from __future__ import annotations

import shutil
from pathlib import Path

from folkmoot.errors import InputError, RunExists
from folkmoot.records.atomic import storage_errors
from folkmoot.records.files import write_json
from folkmoot.records.run_folder import CODEBOOK, TABLES, RunFolder
from folkmoot.report.polis import write_polis

FORMATS = ("csv", "parquet", "json", "polis")


def export(run: RunFolder, to: str, out: Path) -> None:
    """Write a run's data into the folder `out`. Raises RunExists when it holds something."""
    if to not in FORMATS:
        raise InputError(f"--to {to}: formats are {', '.join(FORMATS)}")
    if not run.tables():
        raise InputError(f"{run.path}: there are no tables yet; finish the run with --resume")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExists(f"{out} is there already; choose another place with --out")
    if to == "polis":
        write_polis(run, out)
        return
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in run.tables():
            if to == "json":
                write_json(out / f"{name}.json", run.table(name).to_dicts())
            else:
                shutil.copyfile(run.path / TABLES / f"{name}.{to}", out / f"{name}.{to}")
    write_json(out / CODEBOOK, run.codebook())
