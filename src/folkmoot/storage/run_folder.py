"""Read the folder of a run: tables, files, settings and manifest, for findings and reports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from folkmoot.errors import StorageError
from folkmoot.files import read_yaml, reason_of, require_utf8, user_cache_dir
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL
from folkmoot.models.request import is_reply_of_human
from folkmoot.storage.json_files import read_json, read_json_object
from folkmoot.storage.manifest import (
    AMENDMENTS_KEY,
    HUMAN_MARK,
    MIXED_MARK,
    NO_FINDINGS,
    SYNTHETIC_MARK,
    SYNTHETIC_NOTE,
    ProvenanceLabel,
    RunTotals,
    label_answers,
    summarise_answers,
    summarise_totals,
)
from folkmoot.storage.provenance_table import PROVENANCE, RequestSpans, unpack_spans
from folkmoot.storage.rows import Row
from folkmoot.storage.table_buffer import DTYPES, TableBuffer, has_waiting_rows, read_recordings
from folkmoot.storage.tables import is_one_of

C = TypeVar("C", bound=BaseModel)

# The default folder of all runs.
OUTPUTS = Path("outputs")
STUDY_FILE_NAME = "study.yaml"
PLAN = "plan.json"
MANIFEST = "manifest.json"
CODEBOOK = "codebook.json"
JOURNAL = "journal.sqlite"
LOG = "run.log"
LOG_LINES = "log.jsonl"
TABLES = "tables"
# The subfolder with the run of the control questions.
CONTROLS = "controls"
# The subfolder with the runs of later codings, one for each coder.
CODINGS = "codings"
# Personas are drawn once. Later processes of the run read them from this file.
PERSONAS = "personas.json"
# The number of rows of a large table that are in memory at a time.
ROWS_PER_BATCH = 20_000
# Limits against forged files that unpack to more than the memory. The most regular table that a run
# can write has about 16 cells per byte. Tables below the absolute limit are accepted in any case.
MAX_CELLS_PER_BYTE, MAX_CELLS_UNCHECKED = 64, 5_000_000
# Names in the table `answers` and in the manifest that differ in runs of earlier versions.
LEGACY_COLUMN_NAMES = {
    "rung": "parse_step",
    "rungs": "parse_steps",
}
# The links of the human participants. Only the owner of the run may see them.
SEATS = "seats.json"
# The ids of human participants at recruitment sites. Exports leave this file out.
PEOPLE = "people.json"
# Files that the program writes into run folders and grid folders of any study type. A study may
# write none of them. The viewer lists them in this order.
ENGINE_FILES = (
    *(STUDY_FILE_NAME, PLAN, MANIFEST, JOURNAL, CODEBOOK, "amendments.jsonl", LOG, LOG_LINES),
    *("report.html", "report.pdf", SEATS, PEOPLE, "grid.json"),
)
# Files with a meaning in the run folder of any study type. A study that draws personas writes them
# to `personas.json` itself.
COMMON_FILES = (*ENGINE_FILES, PERSONAS)


# The entries of a manifest that a later process of the run does not change. Retries and lost tries
# are lower bounds then, because no journal has them.
LASTING_FACTS = (
    *("run_id", "study", "seed", "started_at", "study_file", "override", "scripted", "software"),
    *("synthetic", "mark", "note", "synthetic_roles", "planted", "embedding_model"),
    *("retries", "lost_tries", AMENDMENTS_KEY),
)
# Those of them that are known before the first call.
PLANNED_FACTS = ("seed", "started_at", "study_file", "software")
# See `UnsettledRun`.
TotalsReader = Callable[[Mapping[str, Any]], RunTotals | None]

# Only these outcomes write tables. After an error or an interruption the rows may be incomplete in
# ways that no reader could see, so they wait in their file.
WITH_TABLES = ("done", "paused")
# The outcomes after which rows wait.
WITH_ROWS = ("failed", "interrupted")
# The label for the role of replies without a row in the table of answers.
UNRECORDED_ROLE = "a role without recorded answers"
# The states of an unfinished run that do not come from its manifest.
GOING_ON, UNFINISHED = "still going on", "unfinished"


def is_run_folder(path: Path) -> bool:
    """Return whether a folder is the folder of a run, finished or not."""
    return any((path / name).is_file() for name in (PLAN, MANIFEST, STUDY_FILE_NAME))


def find_main_run(run: Path) -> Path | None:
    """Return the folder of the run that the controls or the later coding in `run` belong to.

    Returns None for any other run.
    """
    folder = run.resolve()
    if folder.name == CONTROLS:
        main = folder.parent
    elif folder.parent.name == CODINGS:
        main = folder.parent.parent
    else:
        return None
    return main if is_run_folder(main) else None


def cache_folder(run: Path) -> Path:
    """Return the folder in which charts and search indices of a run are cached."""
    # It is outside the run folder. Only the user can read it, and it can be deleted at any time.
    name = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:24]
    return user_cache_dir() / "view" / name


class RowStream(Collection[dict[str, object]]):
    """A collection of the rows of a table. Each loop reads the rows from the file again."""

    # They are read in batches.

    def __init__(self, table: pl.LazyFrame) -> None:
        self._table = table

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return int(self._table.select(pl.len()).collect().item())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.collect_batches(chunk_size=ROWS_PER_BATCH):
            yield from batch.iter_rows(named=True)

    def __contains__(self, row: object) -> bool:
        return any(row == own_row for own_row in self)


class TextStream(Collection[str]):
    """A collection of the texts in a column. Each loop reads the texts from the file again.

    A missing text is an empty string.
    """

    # They are read in batches.

    def __init__(self, column: pl.LazyFrame) -> None:
        self._rows = RowStream(column)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return (text or "" for row in self._rows for text in row.values())

    def __contains__(self, text: object) -> bool:
        return any(text == own_text for own_text in self)


def first_versions(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the parts of a plan by name, each in the version that was sealed first.

    A later version is one that `--accept-changes` sealed in its place. A part that was added by
    `--accept-changes` is left out.
    """
    parts: dict[str, Mapping[str, Any]] = dict(plan.get("sealed", {}))
    # The last entry that is applied is the oldest one.
    for change in reversed(plan.get("changes", [])):
        parts[change["name"]] = change["was"]
    return {name: part for name, part in parts.items() if "data" in part}


def utc_timestamp() -> str:
    """Return the current time in UTC, in the format ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunFolder:
    """The folder of a finished or unfinished run, such as `outputs/pilot_001`.

        run = RunFolder("outputs/pilot_001")
        run.read_table("participants")

    Raises StorageError if the folder is not the folder of a run.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        require_utf8(self.path)
        if not self.path.is_dir():
            raise StorageError(f"{self.path}: no such run folder")
        if not is_run_folder(self.path):
            raise StorageError(f"{self.path}: not a run folder: it has no {PLAN}")

    def __repr__(self) -> str:
        partial = f"; {self.partial}" if self.partial else ""
        return f"RunFolder({str(self.path)!r}: {self.study or 'unknown study'}{partial})"

    @property
    def id(self) -> str:
        """The name of the run folder."""
        return self.path.resolve().name

    @property
    def study(self) -> str:
        """The name of the study type."""
        return str(self.manifest.get("study") or self.config.get("study") or "")

    @property
    def whole(self) -> RunFolder:
        """The run with the rows of all its parts, also if this is a view of some parts."""
        return self

    @property
    def is_finished(self) -> bool:
        """True if the run finished."""
        return self.state == "done"

    @property
    def partial(self) -> str:
        """The caveat for all results of an unfinished run. "" for a finished run."""
        if self.is_finished:
            return ""
        return f"PARTIAL: the run is {self.state}, figures cover {self.covered}"

    @property
    def state(self) -> str:
        """The state of the run: done, paused, failed, interrupted, unfinished or still going on."""
        # The manifest of a paused run states the pause. A killed run may have no manifest.
        return str(self.manifest.get("outcome", "done")) if self.manifest else UNFINISHED

    @property
    def covered(self) -> str:
        """A phrase for the part of an unfinished run that the tables cover."""
        return "only what was done until then"

    @property
    def unusable_reason(self) -> str:
        """The reason why a finished run has no usable results. "" if the results are usable."""
        return str(self.manifest.get("unusable", ""))

    @property
    def is_synthetic(self) -> bool:
        """True if the rule-based embedded respondent gave at least some of the answers."""
        return bool(self.manifest.get("synthetic", False))

    @property
    def mark(self) -> str:
        """The label that says who answered in the run, or "" if only models answered.

        The labels are SYNTHETIC (rules answered without a model), HUMAN and MIXED.
        """
        return str(self.manifest.get("mark") or (SYNTHETIC_MARK if self.is_synthetic else ""))

    @property
    def has_people(self) -> bool:
        """True if a human in a seat replied."""
        return self.mark in (HUMAN_MARK, MIXED_MARK)

    @property
    def provenance_sentence(self) -> str:
        """The sentence that says who has answered so far. The study writes it into its files.

        "" if only models answered.
        """
        return self._label_so_far.sentence

    @property
    def _label_so_far(self) -> ProvenanceLabel:
        # It follows from the answers recorded so far. The manifest is written later.
        has_people = any(
            answered_by == HUMAN_MODEL and is_reply_of_human(str(finish))
            for _, answered_by, finish in self._answerers
        )
        return label_answers(
            {(role, answered_by) for role, answered_by, _ in self._answerers},
            has_people=has_people,
        )

    @cached_property
    def _answerers(self) -> set[tuple[Any, ...]]:
        # (role, answerer, finish reason).
        return self.unique_rows("answers", "role", "answered_by", "finish")

    @property
    def caution(self) -> str:
        """The note on how far the run is evidence about people. "" if only models answered."""
        if not self.mark:
            return ""
        note = self.provenance_note
        # The note of a run that only the embedded respondent answered says so already.
        is_complete = not self.is_synthetic or SYNTHETIC_NOTE in note
        return note if is_complete else f"{note} {NO_FINDINGS}"

    @property
    def provenance_note(self) -> str:
        """The note for readers that says who answered in which role. "" if only models answered."""
        return str(self.manifest.get("note") or SYNTHETIC_NOTE)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of the run: the keys of the study file, with all defaults filled in."""
        path = self.path / STUDY_FILE_NAME
        if not path.exists():
            return {}
        try:
            # A run folder may come from an untrusted source.
            data = read_yaml(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error
        return data if isinstance(data, dict) else {}

    def read_settings(self, config_class: type[C]) -> C:
        """Return the settings of the run as an object of the configuration class of its study type.

        Raises StorageError if the study file of the run is missing, or its settings are invalid.
        """
        path = self.path / STUDY_FILE_NAME
        try:
            return config_class.model_validate(self.config)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            problem = f"has unreadable settings ({key}: {first['msg']})"
            raise StorageError(
                f"{path} {problem if path.exists() else 'is missing'}: restore the file from a "
                "copy, or use the version of Folkmoot that made the run"
            ) from error

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the run, or an empty mapping if none has been written yet."""
        return self._read_manifest()

    def _read_manifest(self) -> dict[str, Any]:
        path = self.path / MANIFEST
        if not path.exists():
            return {}
        manifest = read_json_object(path)
        answers = manifest.get("answers")
        if isinstance(answers, dict):
            manifest["answers"] = {
                LEGACY_COLUMN_NAMES.get(name, name): value for name, value in answers.items()
            }
        return manifest

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The content of `plan.json`: the design that was fixed before the run called a model."""
        path = self.path / PLAN
        if not path.exists():
            return {}
        plan = read_json_object(path)
        # Check the structure here, so that readers of the plan need not. The file may be edited or
        # foreign.
        parts = plan.get("sealed", {})
        if not (
            isinstance(parts, dict)
            and all(isinstance(part, dict) and "data" in part for part in parts.values())
            and isinstance(plan.get("software", {}), dict)
            and isinstance(plan.get("changes", []), list)
            and all(
                isinstance(change, dict)
                and "name" in change
                and isinstance(change.get("was"), dict)
                for change in plan.get("changes", [])
            )
        ):
            raise StorageError(f"{path}: not a plan as a run writes it")
        return plan

    def table_names(self) -> list[str]:
        """Return the names of the tables, sorted."""
        folder = self.path / TABLES
        try:
            paths = list(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"{folder}: cannot be read: {reason_of(error)}") from error
        return sorted(path.stem for path in paths if path.suffix == ".parquet")

    def require_tables(self) -> None:
        """Raise StorageError if no table has been written yet, or if a written table is missing."""
        if not self.table_names():
            raise StorageError(f"{self.path}: no tables yet; finish the run with --resume")
        written_paths = (Path(name) for name in self.manifest.get("hashes", {}))
        for path in written_paths:
            if path.match(f"{TABLES}/*.parquet") and not self.has_file(str(path)):
                raise StorageError(
                    f"{self.path / path} is gone; --resume writes it again and asks nothing"
                )

    def has_table(self, name: str) -> bool:
        return (self.path / TABLES / f"{name}.parquet").exists()

    def open_subfolder(self, name: str) -> RunFolder | None:
        """Return the run in a subfolder, such as controls, or None if the subfolder holds none."""
        folder = self.path / name
        return RunFolder(folder) if is_run_folder(folder) else None

    def read_table(self, name: str) -> pl.DataFrame:
        """Return a table as a data frame. Raises StorageError if there is no such table."""
        # The error names the existing tables.
        path = self.path / TABLES / f"{name}.parquet"
        if not path.exists():
            known_tables = ", ".join(self.table_names()) or "none yet; finish the run with --resume"
            raise StorageError(f"{self.path}: no table {name}; tables: {known_tables}")
        try:
            self._refuse_inflated(path)
            # `glob=False`, because the name of a run folder may contain brackets.
            rows = pl.read_parquet(path, glob=False)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error
        return rows.rename(LEGACY_COLUMN_NAMES, strict=False) if name == "answers" else rows

    def read_rows(self, row: type[Row]) -> pl.DataFrame:
        """Return the table of a row class as a data frame, which is empty if there is no table.

        Columns that an earlier version did not record are null.
        """
        kinds = {name: DTYPES[kind] for name, kind in row.columns().items()}
        if not self.has_table(row.table):
            return pl.DataFrame(schema=kinds)
        rows = self.read_table(row.table)
        missing = {name: kind for name, kind in kinds.items() if name not in rows.columns}
        return rows.with_columns(
            pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items()
        )

    def scan_table(self, name: str) -> pl.LazyFrame:
        """Return a table as a lazy frame. Raises StorageError if there is no such table."""
        # The error names the existing tables.
        if not self.has_table(name):
            # Raises the StorageError that lists the existing tables.
            return self.read_table(name).lazy()
        path = self.path / TABLES / f"{name}.parquet"
        try:
            self._refuse_inflated(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error
        rows = pl.scan_parquet(path, glob=False)
        return rows.rename(LEGACY_COLUMN_NAMES, strict=False) if name == "answers" else rows

    def _refuse_inflated(self, path: Path) -> None:
        # A forged file of one megabyte can claim a hundred million equal rows, which would fill the
        # memory.
        if path in self._measured_tables:
            return
        table = pl.scan_parquet(path, glob=False)
        rows = int(table.select(pl.len()).collect().item())
        cells, size = rows * len(table.collect_schema()), path.stat().st_size
        if cells > max(MAX_CELLS_UNCHECKED, MAX_CELLS_PER_BYTE * size):
            raise StorageError(
                f"{path}: says {rows:,} rows in {size:,} bytes, which no run writes; it would fill "
                "the memory"
            )
        self._measured_tables.add(path)

    @cached_property
    def _measured_tables(self) -> set[Path]:
        # The paths that `_refuse_inflated` has already checked.
        return set()

    def rows(self, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table as tuples of the cells in `columns`."""
        # They are read in batches.
        for batch in (
            self.scan_table(name).select(columns).collect_batches(chunk_size=ROWS_PER_BATCH)
        ):
            yield from batch.iter_rows()

    def read_spans(self, addresses: Collection[str]) -> RequestSpans:
        """Return the texts of known source in the requests at these addresses.

        Runs of earlier versions did not record them and give requests without spans.
        """
        if not self.has_table(PROVENANCE):
            return RequestSpans()
        rows = self.scan_table(PROVENANCE).filter(is_one_of("address", addresses))
        # `provenance` is the longest table of a run, so it is not read as a whole.
        return RequestSpans(rows.collect(engine="streaming"))

    def unique_rows(self, name: str, *columns: str) -> set[tuple[Any, ...]]:
        """Return the different combinations of cells in `columns` of a table.

        Raises StorageError if there is no such table.
        """
        return set(self.scan_table(name).select(columns).unique().collect().iter_rows())

    def codebook(self) -> dict[str, Any]:
        """Return the codebook: the meaning of each table and column."""

        for path in (self.path / CODEBOOK, self.path / TABLES / CODEBOOK):
            if path.exists():
                return read_json_object(path)
        return {}

    def has_file(self, name: str) -> bool:
        """Return True if the folder holds a file with this name."""
        return (self.path / name).exists()

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file in the run folder."""
        return read_json(self.path / name)

    def text(self, name: str) -> str:
        """Return the content of a text file in the run folder."""
        path = self.path / name
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error


class UnsettledRun(RunFolder):
    """A run that a process may have changed after the manifest was written.

    - `read_totals`: returns the sums of the journal, given a manifest. Returns None if that
      manifest describes the journal.
    """

    def __init__(self, path: Path | str, read_totals: TotalsReader | None = None) -> None:
        super().__init__(path)
        self._read_totals = read_totals

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest, if it describes the journal. Otherwise what is known so far.

        The sums of a killed run are those of its journal.
        """
        written = self._read_manifest()
        # A killed process leaves the manifest of the one before it.
        is_of_killed = has_waiting_rows(self.path) and written.get("outcome") not in WITH_ROWS
        totals = self._read_totals({} if is_of_killed else written) if self._read_totals else None
        if totals is None:
            # A process that failed or was interrupted wrote no tables and counted no answers.
            if written.get("outcome") not in WITH_ROWS:
                return written
            counted = self._count_answers()
            counted["cut_replies"] |= {**written.get("cut_replies", {}), **counted["cut_replies"]}
            return {**written, **counted}
        # If no process has written a manifest, the plan and the settings tell these.
        planned = {"seed": self.config.get("random_seed"), **self.plan}
        planned = {key: planned[key] for key in PLANNED_FACTS if key in planned}
        lasting = {key: written[key] for key in LASTING_FACTS if key in written}
        facts = {"outcome": UNFINISHED, **summarise_totals(totals, self._roles_by_model())}
        return {**planned, **lasting, **facts, **self._count_answers()}

    def _count_answers(self) -> dict[str, Any]:
        return summarise_answers(self.scan_table("answers") if self.has_table("answers") else None)

    def _roles_by_model(self) -> dict[str, list[str]]:
        roles: dict[str, list[str]] = {}
        if self.has_table("answers"):
            pairs = self.unique_rows("answers", "model_asked", "role")
            for model, role in sorted(pair for pair in pairs if None not in pair):
                roles.setdefault(model, []).append(role)
        return roles


class RunSoFar(UnsettledRun):
    """A run without written tables, read from the rows that were recorded so far.

    - `is_going_on`: True while a process writes the run.
    - `derive`: makes further tables from the recorded rows.
    - `read_totals`: see `UnsettledRun`.
    """

    # The run is active, or ended without tables. Written tables are ignored, because they may be
    # from an earlier process, or incomplete.

    def __init__(
        self,
        path: Path | str,
        *,
        is_going_on: bool = False,
        derive: Callable[[RunSoFar], Mapping[str, TableBuffer]] | None = None,
        read_totals: TotalsReader | None = None,
    ) -> None:
        super().__init__(path, read_totals)
        self._is_going_on = is_going_on
        self._derive = derive

    def with_derived(self, derive: Callable[[RunSoFar], Mapping[str, TableBuffer]]) -> RunSoFar:
        """Return the run with further tables. `derive` makes them when a further table is read."""
        if self._derive is not None:
            return self
        return RunSoFar(
            self.path,
            is_going_on=self._is_going_on,
            derive=derive,
            read_totals=self._read_totals,
        )

    @property
    def is_finished(self) -> bool:
        return False

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """See `UnsettledRun`. Without sums while a process writes the run."""
        if not self._is_going_on:
            return super().manifest
        # Pages read the run after each call, and take the sums from its log.
        written = self._read_manifest()
        return {key: written[key] for key in LASTING_FACTS if key in written}

    @property
    def state(self) -> str:
        if self._is_going_on:
            return GOING_ON
        outcome = super().state
        return outcome if outcome in WITH_ROWS else UNFINISHED

    @property
    def is_synthetic(self) -> bool:
        # The manifest, if there is one, is that of an earlier process.
        return super().is_synthetic or SYNTHETIC_MODEL in self._answered_by

    @cached_property
    def _answerers(self) -> set[tuple[Any, ...]]:
        recorded = super()._answerers if self.has_table("answers") else set()
        is_recorded = any(answered_by == SYNTHETIC_MODEL for _, answered_by, _ in recorded)
        # Rows are recorded when an item of the protocol ends. Replies before that are only in the
        # journal of a killed run, which does not tell the role.
        replied = (name for model in self.manifest.get("models", ()) for name in model["served"])
        if is_recorded or not any(name.startswith(f"{SYNTHETIC_MODEL}/") for name in replied):
            return recorded
        return recorded | {(UNRECORDED_ROLE, SYNTHETIC_MODEL, None)}

    @property
    def mark(self) -> str:
        return self._label_so_far.mark if self._answered_by else super().mark

    @property
    def provenance_note(self) -> str:
        # The manifest has no note if only models answered in the earlier process.
        return self._label_so_far.note if self._answered_by else super().provenance_note

    def require_tables(self) -> None:
        """Do nothing. This run is read from its recorded rows, so written tables are not needed."""

    def table_names(self) -> list[str]:
        return sorted({*self._partial_recordings, *self._derived})

    def has_table(self, name: str) -> bool:
        return name in self._partial_recordings or name in self._derived

    def read_table(self, name: str) -> pl.DataFrame:
        return self.scan_table(name).collect()

    def scan_table(self, name: str) -> pl.LazyFrame:
        buffer = self._partial_recordings.get(name) or self._derived.get(name)
        if buffer is None:
            known_tables = ", ".join(self.table_names()) or "none yet"
            raise StorageError(f"{self.path}: no table {name}; tables: {known_tables}")
        rows = buffer.to_frame()
        return unpack_spans(rows) if name == PROVENANCE else rows.lazy()

    def unique_rows(self, name: str, *columns: str) -> set[tuple[Any, ...]]:
        if name not in self._partial_recordings:
            return super().unique_rows(name, *columns)
        return self._partial_recordings[name].unique_rows(*columns)

    @property
    def _answered_by(self) -> set[str]:
        return {answered_by for _, answered_by, _ in self._answerers if answered_by is not None}

    @cached_property
    def _derived(self) -> Mapping[str, TableBuffer]:
        # They are made from the recorded rows alone.
        if self._derive is None:
            return {}
        return self._derive(RunSoFar(self.path, is_going_on=self._is_going_on))

    @cached_property
    def _partial_recordings(self) -> dict[str, TableBuffer]:
        return read_recordings(self.path)
