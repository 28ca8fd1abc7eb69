"""A run's folder, read: tables, files, config and manifest. Findings and reports start from it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from folkmoot.errors import StorageError
from folkmoot.files import user_cache_dir
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.storage.json_files import read_json, read_json_object
from folkmoot.storage.manifest import NO_FINDINGS, SYNTHETIC_MARK, SYNTHETIC_NOTE, describe_mark
from folkmoot.storage.provenance_table import PROVENANCE, unpack_spans
from folkmoot.storage.table_buffer import TableBuffer, read_recordings

OUTPUTS = Path("outputs")  # where runs lie unless told otherwise
STUDY_FILE_NAME = "study.yaml"
PLAN = "plan.json"
MANIFEST = "manifest.json"
CODEBOOK = "codebook.json"
JOURNAL = "journal.sqlite"
LOG = "run.log"
LOG_LINES = "log.jsonl"
TABLES = "tables"
CONTROLS = "controls"  # the run of control questions below this one
PERSONAS = "personas.json"  # drawn once; later processes read it back
ROWS_PER_BATCH = 20_000  # rows of a large table that are read at once
# The most regular table that a run can write has about 16 cells in a byte.
MOST_CELLS_A_BYTE, MOST_CELLS_UNASKED = 64, 5_000_000
LEGACY_COLUMN_NAMES = {
    "rung": "parse_step",
    "rungs": "parse_steps",
}  # in the answers of earlier versions
SEATS = "seats.json"  # links of the people who take part: for the run's owner alone
PEOPLE = "people.json"  # what recruitment sites call these people; no export takes it along
# The files that the program writes into run folders and folders of grids, for any study type.
WRITTEN_BY_ALL = (
    *(STUDY_FILE_NAME, PLAN, MANIFEST, CODEBOOK, JOURNAL, LOG, LOG_LINES, PERSONAS, SEATS, PEOPLE),
    *("amendments.jsonl", "grid.json", "report.html", "report.pdf"),
)


def cache_folder(run: Path) -> Path:
    """Where pages keep what they made from a run: drawings, words to search. Outside of it, for
    the user alone, and never needed."""
    name = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:24]
    return user_cache_dir() / "view" / name


class RowStream(Collection[dict[str, object]]):
    """The rows of a table as records: read anew by each loop, a part at a time in memory."""

    def __init__(self, table: pl.LazyFrame) -> None:
        self._table = table
        self._count = int(table.select(pl.len()).collect().item())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self._table.collect_batches(chunk_size=ROWS_PER_BATCH):
            yield from part.iter_rows(named=True)

    def __contains__(self, row: object) -> bool:
        return any(row == own for own in self)


class TextStream(Collection[str]):
    """The texts of the one column of a table, a missing one empty: read anew by each loop."""

    def __init__(self, column: pl.LazyFrame) -> None:
        self._rows = RowStream(column)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return (text or "" for row in self._rows for text in row.values())

    def __contains__(self, text: object) -> bool:
        return any(text == own for own in self)


def utc_timestamp() -> str:
    """The time of day as the files of a run have it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunFolder:
    """`outputs/<id>/` of a run, finished or not. Raises StorageError for any other folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise StorageError(f"{self.path}: no such run folder")
        if not any((self.path / name).exists() for name in (PLAN, MANIFEST, STUDY_FILE_NAME)):
            raise StorageError(f"{self.path}: not a run folder: it has no {PLAN}")

    def __repr__(self) -> str:
        partial = f"; {self.partial}" if self.partial else ""
        return f"RunFolder({str(self.path)!r}: {self.study or 'unknown study'}{partial})"

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.path.resolve().name

    @property
    def study(self) -> str:
        """The name of the study type."""
        return str(self.manifest.get("study") or self.config.get("study") or "")

    @property
    def is_finished(self) -> bool:
        """Whether the run finished (a paused one has no manifest, or one that says so)."""
        return bool(self.manifest) and self.manifest.get("outcome", "done") == "done"

    @property
    def partial(self) -> str:
        """The caveat for every figure of an unfinished run; else empty."""
        if self.is_finished:
            return ""
        return f"PARTIAL: the run is {self.state}, figures cover {self.covered}"

    @property
    def state(self) -> str:
        """How an unfinished run is: paused, failed, interrupted; unfinished if nothing says why."""
        return str(self.manifest.get("outcome", "unfinished"))

    @property
    def covered(self) -> str:
        """What the tables of an unfinished run cover."""
        return "only what was done until then"

    @property
    def unusable_reason(self) -> str:
        """Why nothing in a finished run is usable; empty when something is."""
        return str(self.manifest.get("unusable", ""))

    @property
    def is_synthetic(self) -> bool:
        """Whether the embedded respondent answered, in whole or in part."""
        return bool(self.manifest.get("synthetic", False))

    @property
    def mark(self) -> str:
        """SYNTHETIC, HUMAN or MIXED; empty where models alone answered."""
        return str(self.manifest.get("mark") or (SYNTHETIC_MARK if self.is_synthetic else ""))

    @property
    def mark_of_files(self) -> str:
        """The mark on the study's own files, as far as answers are recorded; else empty."""
        who = list(self.rows("answers", "role", "answered_by", "missing"))
        people = any(by == HUMAN_MODEL and missing is None for _, by, missing in who)
        return describe_mark({(role, by) for role, by, _ in who}, has_people=people)

    @property
    def caution(self) -> str:
        """The note that says what the run is not evidence of; empty without a mark."""
        if not self.mark:
            return ""
        return (
            f"{self.provenance_note} {NO_FINDINGS}" if self.is_synthetic else self.provenance_note
        )

    @property
    def provenance_note(self) -> str:
        """What a reader must be told of a run with a mark: who answered as whom."""
        return str(self.manifest.get("note") or SYNTHETIC_NOTE)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The study file as it was run, with every default filled in."""
        path = self.path / STUDY_FILE_NAME
        if not path.exists():
            return {}
        try:
            data = yaml.safe_load(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        return data if isinstance(data, dict) else {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What was run with what; empty while the run is not finished."""
        path = self.path / MANIFEST
        if not path.exists():
            return {}
        kept = read_json_object(path)
        answers = kept.get("answers")
        if isinstance(answers, dict):
            kept["answers"] = {
                LEGACY_COLUMN_NAMES.get(name, name): told for name, told in answers.items()
            }
        return kept

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What was sealed before the first call."""
        path = self.path / PLAN
        if not path.exists():
            return {}
        plan = read_json_object(path)
        parts = plan.get("sealed", {})
        if not (
            isinstance(parts, dict)
            and all(isinstance(part, dict) and "data" in part for part in parts.values())
            and isinstance(plan.get("software", {}), dict)
            and isinstance(plan.get("changes", []), list)
        ):
            raise StorageError(f"{path}: not a plan as a run writes it")
        return plan

    def table_names(self) -> list[str]:
        """The names of the tables, in order of name."""
        return sorted(path.stem for path in (self.path / TABLES).glob("*.parquet"))

    def require_tables(self) -> None:
        """Raises StorageError where there are no tables yet, or the run wrote one that is gone."""
        if not self.table_names():
            raise StorageError(f"{self.path}: no tables yet; finish the run with --resume")
        written = (Path(name) for name in self.manifest.get("hashes", {}))
        for path in written:
            if path.match(f"{TABLES}/*.parquet") and not self.has_file(str(path)):
                raise StorageError(
                    f"{self.path / path} is gone; --resume writes it again and asks nothing"
                )

    def has_table(self, name: str) -> bool:
        return (self.path / TABLES / f"{name}.parquet").exists()

    def read_table(self, name: str) -> pl.DataFrame:
        """A table as a data frame. Raises StorageError that names the tables there are."""
        path = self.path / TABLES / f"{name}.parquet"
        if not path.exists():
            known = ", ".join(self.table_names()) or "none yet; has the run finished?"
            raise StorageError(f"{self.path}: no table {name}; tables: {known}")
        try:
            self._refuse_inflated(path)
            rows = pl.read_parquet(path, glob=False)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        return rows.rename(LEGACY_COLUMN_NAMES, strict=False) if name == "answers" else rows

    def scan_table(self, name: str) -> pl.LazyFrame:
        """A table that is read only as far as it is asked for."""
        if not self.has_table(name):
            return self.read_table(name).lazy()  # which says what there is
        path = self.path / TABLES / f"{name}.parquet"
        try:
            self._refuse_inflated(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        rows = pl.scan_parquet(path, glob=False)
        return rows.rename(LEGACY_COLUMN_NAMES, strict=False) if name == "answers" else rows

    def _refuse_inflated(self, path: Path) -> None:
        """Raise StorageError for a table that says far more cells than its bytes can hold.

        A forged file of a megabyte can say that it has a hundred million equal rows, which would
        fill the memory.
        """
        if path in self._measured_tables:
            return
        table = pl.scan_parquet(path, glob=False)
        rows = int(table.select(pl.len()).collect().item())
        cells, size = rows * len(table.collect_schema()), path.stat().st_size
        if cells > max(MOST_CELLS_UNASKED, MOST_CELLS_A_BYTE * size):
            raise StorageError(
                f"{path}: says {rows:,} rows in {size:,} bytes, which no run writes; it would fill "
                "the memory"
            )
        self._measured_tables.add(path)

    @cached_property
    def _measured_tables(self) -> set[Path]:
        """The tables that were found to be no larger than they look."""
        return set()

    def rows(self, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, these columns of them, a part at a time in memory."""
        for part in (
            self.scan_table(name).select(columns).collect_batches(chunk_size=ROWS_PER_BATCH)
        ):
            yield from part.iter_rows()

    def codebook(self) -> dict[str, Any]:
        """What each table and column means."""
        for path in (self.path / CODEBOOK, self.path / TABLES / CODEBOOK):
            if path.exists():
                return read_json_object(path)
        return {}

    def has_file(self, name: str) -> bool:
        """Whether the folder holds a file of this name."""
        return (self.path / name).exists()

    def read_json(self, name: str) -> Any:
        """One of the study's own JSON files, by its name in the folder."""
        return read_json(self.path / name)

    def text(self, name: str) -> str:
        """One of the study's own text files, by its name in the folder."""
        path = self.path / name
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error


class RunSoFar(RunFolder):
    """A run that a process is writing, or that ended without tables: the rows recorded so far.

    Written tables do not count. They are those of an earlier process, or only some are there yet.
    `is_going_on`: a process writes it.
    """

    def __init__(self, path: Path | str, *, is_going_on: bool = False) -> None:
        super().__init__(path)
        self._is_going_on = is_going_on

    @property
    def is_finished(self) -> bool:
        return False

    @property
    def state(self) -> str:
        if self._is_going_on:
            return "still going on"
        outcome = super().state
        # A killed process leaves the manifest of the one before it.
        return outcome if outcome in ("failed", "interrupted") else "unfinished"

    def require_tables(self) -> None:
        """Rows are read as far as they are recorded."""

    def table_names(self) -> list[str]:
        return list(self._partial_recordings)

    def has_table(self, name: str) -> bool:
        return name in self._partial_recordings

    def read_table(self, name: str) -> pl.DataFrame:
        return self.scan_table(name).collect()

    def scan_table(self, name: str) -> pl.LazyFrame:
        if name not in self._partial_recordings:
            known = ", ".join(self.table_names()) or "none yet"
            raise StorageError(f"{self.path}: no table {name}; tables: {known}")
        rows = self._partial_recordings[name].to_frame()
        return unpack_spans(rows) if name == PROVENANCE else rows.lazy()

    @cached_property
    def _partial_recordings(self) -> dict[str, TableBuffer]:
        return read_recordings(self.path)
