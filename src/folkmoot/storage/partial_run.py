"""A view of a run for reports: only the rows of complete parts that are not excluded.

A part is a block, group, session or participant. A part is excluded if a human in this part fails a
check.
"""

# A protocol records the rows of a part when the part ends. So complete parts can be reported while
# a run is active, paused or killed. A part is excluded if a human in it fails a check of the study
# file that says so.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from folkmoot.hints import capitalise, join_first, join_words
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import Finding, ResultTable, TableCell
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.table_buffer import DTYPES

ANSWERS = "answers"
# The key of the finding that lists the complete parts.
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Parts:
    """The planned and the complete parts of a run. A part is, for example, a session."""

    # The column that holds the name of the part.
    column: str
    planned: tuple[str, ...]
    complete: tuple[str, ...]
    # The parts of each condition, or empty if a part belongs to several conditions.
    arms: Mapping[str, tuple[str, ...]]
    # The parts that the analysis leaves out.
    excluded: tuple[str, ...] = ()

    @property
    def analysed(self) -> tuple[str, ...]:
        """The complete parts, such as sessions, that are not excluded."""
        return tuple(part for part in self.complete if part not in self.excluded)

    @property
    def unit(self) -> str:
        """The noun for one part, such as "group", "session" or "participant"."""
        return self.column.removesuffix("_id")

    @property
    def count_text(self) -> str:
        """The number of complete parts as text, such as "2 of 6 groups"."""
        return f"{len(self.complete):,} of {format_count(len(self.planned), self.unit)}"

    @property
    def empty_arms(self) -> list[str]:
        """The conditions in which no part, such as a session, is complete yet."""
        done = set(self.complete)
        return [arm for arm, arm_parts in self.arms.items() if not done.intersection(arm_parts)]


class PartsView(RunFolder):
    """A view of a run without the rows of incomplete and excluded parts.

    A part is, for example, a session.
    """

    # Tables without a column that names the part are shown with all rows.

    def __init__(self, run: RunFolder, parts: Parts) -> None:
        super().__init__(run.path)
        self.parts = parts
        self._run = run

    def with_excluded(self) -> PartsView:
        """Return a view of the run that also has the rows of excluded parts."""
        return PartsView(self._run, replace(self.parts, excluded=()))

    @property
    def whole(self) -> RunFolder:
        """The run itself, with the rows of all parts."""
        return self._run

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self._run.manifest

    def table_names(self) -> list[str]:
        return self._run.table_names()

    def has_table(self, name: str) -> bool:
        return self._run.has_table(name)

    def scan_table(self, name: str) -> pl.LazyFrame:
        rows = self._run.scan_table(name)
        part_column = self.parts.column
        if part_column not in rows.collect_schema():
            return rows
        # The plan names parts by texts, so numbers in the table are compared as texts. Rows without
        # a part, such as those of the whole run, are kept.
        part_of_row = pl.col(part_column).cast(pl.String)
        return rows.filter(part_of_row.is_null() | part_of_row.is_in(self.parts.analysed))

    def read_table(self, name: str) -> pl.DataFrame:
        return self.scan_table(name).collect()


class PartialRun(PartsView):
    """A view of an unfinished run with only the rows of complete parts, such as sessions."""

    # `columns` declares the columns of the study's tables, so that tables without rows exist as
    # well.

    def __init__(
        self, run: RunFolder, parts: Parts, columns: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(run, parts)
        self._declared = columns

    def with_excluded(self) -> PartialRun:
        return PartialRun(self._run, replace(self.parts, excluded=()), self._declared)

    def with_only(self, part: str) -> PartialRun:
        """Return the run with the rows of one part, or without rows if it is not complete."""
        complete = tuple(name for name in self.parts.complete if name == part)
        return PartialRun(self._run, replace(self.parts, complete=complete), self._declared)

    @property
    def is_finished(self) -> bool:
        return False

    @property
    def state(self) -> str:
        return self._run.state

    @property
    def covered(self) -> str:
        return self.parts.count_text

    def require_tables(self) -> None:
        self._run.require_tables()

    @property
    def is_synthetic(self) -> bool:
        return self._run.is_synthetic

    @property
    def mark(self) -> str:
        return self._run.mark

    @property
    def provenance_note(self) -> str:
        return self._run.provenance_note

    def table_names(self) -> list[str]:
        return sorted({*self._run.table_names(), *self._declared})

    def has_table(self, name: str) -> bool:
        return name in self._declared or self._run.has_table(name)

    def scan_table(self, name: str) -> pl.LazyFrame:
        if name in self._declared and not self._run.has_table(name):
            kinds = self._declared[name].items()
            return pl.LazyFrame(schema={column: DTYPES[kind] for column, kind in kinds})
        return super().scan_table(name)


def describe_parts(run: PartialRun, names: Mapping[str, str]) -> Finding:
    """Return the finding that counts the complete parts of each condition.

    A part is, for example, a session. `names`: a map from condition to display name. A condition
    that is not in `names` is shown by its id.
    """
    # The finding also names the comparisons that are still missing.
    parts = run.parts
    complete_parts = set(parts.complete)
    says = (
        f"{parts.count_text} {'is' if len(complete_parts) == 1 else 'are'} complete; all figures "
        "cover "
        "these."
    )
    if parts.excluded:
        left_out = format_count(len(parts.excluded), parts.unit)
        says += f" Failed checks exclude {left_out} from all figures."
    if len(complete_parts) == len(parts.planned):
        says += " Later steps, such as coding, may still be missing."
    if not complete_parts:
        says = f"{parts.count_text} are complete: nothing can be reported yet."
    elif parts.empty_arms:
        arms = join_words([names.get(arm, arm) for arm in parts.empty_arms])
        says += f" Nothing is complete yet of {arms}: comparisons with these are missing."
    rows: list[dict[str, TableCell]] = [
        {
            "condition": names.get(arm, arm),
            "complete": len(complete_parts.intersection(arm_parts)),
            "planned": len(arm_parts),
        }
        for arm, arm_parts in (parts.arms or {"all": parts.planned}).items()
    ]
    incomplete = [name for name in parts.planned if name not in complete_parts]
    notes = [f"Not complete: {join_first(incomplete)}."] if incomplete else []
    if complete_parts and incomplete:
        # The table `answers` does not name the part.
        notes.append("Counts of calls and of answers by kind cover everything asked so far.")
    empty_tables = [
        table_name
        for table_name in run.table_names()
        if not run.scan_table(table_name).head(1).collect().height
    ]
    notes += [f"Tables without rows so far: {', '.join(empty_tables)}."] if empty_tables else []
    return Finding(
        COMPLETE,
        "What is complete",
        says,
        ResultTable.from_records(rows, f"{capitalise(parts.unit)}s"),
        notes=tuple(notes),
        headline=True,
    )


def parts_of(
    column: str,
    planned: Iterable[tuple[str, str, str]],
    recorded: Iterable[str],
) -> Parts:
    """Return the planned parts and the complete parts of a run. A part is, for example, a session.

    - `column`: the column of the tables that names the part.
    - `planned`: (part, key of the row, condition or "") for each planned row.
    - `recorded`: the keys of the rows that exist.
    """
    # A part is complete if all its rows exist.
    keys: dict[str, list[str]] = {}
    arms: dict[str, dict[str, None]] = {}
    for part, key, arm in planned:
        keys.setdefault(part, []).append(key)
        if arm:
            arms.setdefault(arm, {})[part] = None
    recorded_keys = set(recorded)
    complete = tuple(
        part for part, part_keys in keys.items() if recorded_keys.issuperset(part_keys)
    )
    # A part with rows in several conditions cannot be counted for one of them.
    if sum(map(len, arms.values())) != len(keys):
        arms = {}
    return Parts(
        column, tuple(keys), complete, {arm: tuple(arm_parts) for arm, arm_parts in arms.items()}
    )
