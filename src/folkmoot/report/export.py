"""Export the tables of a run with a codebook, or the votes of a run in the format of Polis."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from folkmoot.engine.seats.questionnaire import CHECKS, EXCLUDED, excluded_parts
from folkmoot.engine.seats.seat_manager import recruitment_ids
from folkmoot.engine.seats.withdrawal import (
    describe_pending_withdrawals,
    select_since_withdrawal,
)
from folkmoot.engine.study.study import codebook_of_run, without_excluded_parts
from folkmoot.errors import InputError, Problem, RunExistsError
from folkmoot.files import storage_errors, write_bytes
from folkmoot.kit.coding.results import POST_HOC_CODING, read_codings
from folkmoot.kit.coding.tables import HUMAN_ROLE
from folkmoot.measures.inference.estimates import format_count
from folkmoot.report.polis import write_polis
from folkmoot.storage.amendments import read_amendments
from folkmoot.storage.json_files import write_json, write_text
from folkmoot.storage.run_folder import CODEBOOK, TABLES, RowStream, RunFolder, RunSoFar
from folkmoot.storage.tables import format_csv, write_csv, write_parquet

README = "README.txt"
# Cells of tables are exported unchanged and get no protective apostrophe. Every program except a
# spreadsheet would read the apostrophe as part of the text.
AS_TEXT = (
    "Some texts were written by a model or a person. A spreadsheet may execute a cell that begins "
    "with =, +, - or @ as a formula, so import these columns as text.\n"
)
CSVS = ("csv", "polis")
FORMATS = ("csv", "parquet", "json", "polis")


def export_run(run: RunFolder, export_format: str, out: Path, *, with_ids: bool = False) -> None:
    """Write the tables and the codebook of a run into the folder `out`.

    - `export_format`: one of `FORMATS`.
    - `with_ids`: also write `people.csv` with the recruitment id of each seat.

    Raises InputError for an unknown format, or if `with_ids` is True and the run has no such ids.
    Raises RunExistsError if `out` is not empty.
    Raises StorageError if a table is missing.
    """
    if export_format not in FORMATS:
        raise InputError(f"--to {export_format}: unknown format; use one of {', '.join(FORMATS)}")
    run.require_tables()
    ids = recruitment_ids(run.path) if with_ids else {}
    if with_ids and not ids:
        raise InputError(
            Problem(
                f"{run.path} contains no recruitment ids",
                hint="recruitment ids come from the links of participants (?PROLIFIC_PID=…); for "
                "this run, leave out --with-ids",
            )
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExistsError(
            f"{out} already exists and is not empty; choose another folder with --out"
        )
    if export_format == "polis":
        write_polis(without_excluded_parts(run), out)
        _finish_export(run, export_format, out, ids)
        return
    # A damaged codebook is found before anything is written.
    codebook = codebook_of_run(run)
    is_unwritten = isinstance(run, RunSoFar)
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in run.table_names():
            if export_format == "json":
                write_json(out / f"{name}.json", iter(RowStream(run.scan_table(name))))
            # The CSV files of the run folder are no source: they have apostrophes.
            elif export_format == "csv":
                write_csv(out / f"{name}.csv", _scan_with_recorded_names(run, name))
            # An unfinished run may have no files of its tables yet.
            elif is_unwritten:
                write_parquet(out / f"{name}.parquet", run.scan_table(name))
            else:
                shutil.copyfile(run.path / TABLES / f"{name}.parquet", out / f"{name}.parquet")
    write_json(out / CODEBOOK, codebook)
    _finish_export(run, export_format, out, ids)


def _scan_with_recorded_names(run: RunFolder, name: str) -> pl.LazyFrame:
    # A run of an earlier version keeps the column names that its codebook describes.
    table = run.scan_table(name)
    if isinstance(run, RunSoFar):
        return table
    # `glob=False`, because the name of a run folder may contain brackets.
    path = run.path / TABLES / f"{name}.parquet"
    recorded = pl.scan_parquet(path, glob=False).collect_schema()
    return table.rename(dict(zip(table.collect_schema(), recorded, strict=True)))


def _finish_export(
    run: RunFolder, export_format: str, out: Path, ids: Mapping[str, Mapping[str, str]]
) -> None:
    write_text(out / README, export_readme(run, export_format))
    if ids:
        names = sorted({name for person_ids in ids.values() for name in person_ids})
        rows = [
            {"seat": seat, **{name: person_ids.get(name) for name in names}}
            for seat, person_ids in ids.items()
        ]
        schema = dict.fromkeys(["seat", *names], pl.String)
        # Recruitment ids identify people, so only the owner of the file may read it. They come from
        # the address of a page, no recruitment site has one that begins like a formula, and the
        # file is read in a spreadsheet. So formulas in it are escaped.
        write_bytes(out / "people.csv", format_csv(pl.DataFrame(rows, schema=schema)), 0o600)


def _describe_later_codes(run: RunFolder) -> str:
    # Sheets of human coders and later codings change no table of the run.
    codings = read_codings(run).values()
    coders = [coder for results in codings for coder in results.coders]
    counts = (
        (sum(len(results.corrections) for results in codings), "code", "checked by a human"),
        (
            sum(len(coder.codes) for coder in coders if coder.coder_role == HUMAN_ROLE),
            *("text", "coded blind by a human"),
        ),
        (
            len(select_since_withdrawal(read_amendments(run.path), POST_HOC_CODING)),
            *("coding", "made later"),
        ),
    )
    made = [f"{format_count(number, noun)} {what}" for number, noun, what in counts if number]
    if not made:
        return ""
    return (
        " The table codes has the codes that the run itself made, uncorrected. The run folder has "
        f"besides, in amendments.jsonl and codings: {', '.join(made)}. Findings use the corrected "
        "codes."
    )


def _describe_exclusions(run: RunFolder, export_format: str) -> str:
    number = len(excluded_parts(run))
    if not number:
        return ""
    parts = format_count(number, "part")
    if export_format == "polis":
        return f" These files leave out {parts} of the run that failed checks exclude."
    return (
        f" Failed checks exclude {parts} of the run, such as a participant or a group, from all "
        "findings, but not from these tables. To get the figures of the report, leave out the rows "
        f"of the parts that the table {CHECKS} names with the outcome {EXCLUDED}."
    )


def export_readme(run: RunFolder, export_format: str) -> str:
    """Return the text of `README.txt`: the exported files, and the models that answered."""
    facts = run.manifest
    mark = f"{run.mark}. {run.caution}\n\n" if run.mark else ""
    partial = f"{run.partial}.\n\n" if run.partial else ""
    if pending := describe_pending_withdrawals(run):
        partial += f"{pending}\n\n"
    meaning = (
        "Comments and votes in the format of a Polis export."
        if export_format == "polis"
        else f"Tidy tables. {CODEBOOK} describes each column."
    )
    if export_format != "polis":
        meaning += _describe_later_codes(run)
    meaning += _describe_exclusions(run, export_format)
    served = sorted({name for model in facts.get("models", []) for name in model.get("served", [])})
    return (
        f"{mark}{partial}{meaning}\n{AS_TEXT if export_format in CSVS else ''}"
        f"Run {run.id} of the study type {run.study}, "
        f"{facts.get('started_at', '?')} to {facts.get('finished_at', '?')}; answers by "
        f"{', '.join(served) or 'unknown'}; Folkmoot "
        f"{facts.get('software', {}).get('folkmoot', '?')}.\n"
    )
