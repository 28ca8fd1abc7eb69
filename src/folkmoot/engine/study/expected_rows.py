"""The rows that the sealed plan of a run expects in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from folkmoot.storage.tables import CLUSTER_COLUMNS, PARTICIPANT_COLUMNS


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows that `plan.json` expects in one table."""

    # A report compares them with the run.

    table: str
    # Columns that identify a row. All other columns of `rows` were fixed before the run.
    key: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    # The noun for a row in sentences. Empty: "participant" if the key identifies participants, and
    # "row" if it has further columns, such as the wave of a panel.
    unit: str = ""
    # A column and its value that mark a row as finished. Empty if there is no such column.
    done: tuple[str, str] = ("", "")
    # A column, and the beginning of its text in rows that the stopping rule of the study ended.
    # Such a row follows the plan. Empty if no row is ended by a rule.
    stopped: tuple[str, str] = ("", "")
    # The column that divides the run into parts, such as sets. A report of an unfinished run covers
    # its complete parts only ("2 of 6 sets"). A part is complete when all its planned rows are
    # recorded, so they must be recorded when the part ends.
    part: str = ""

    @property
    def noun(self) -> str:
        """The noun for a row in sentences."""
        are_participants = len(self.key) == 1 or self.participant_key == self.key
        return self.unit or ("participant" if are_participants else "row")

    @property
    def participant_key(self) -> tuple[str, ...]:
        """The columns of the key that identify participants. Empty if none has a usual name."""
        known = (*CLUSTER_COLUMNS, *PARTICIPANT_COLUMNS)
        has_ids = not {*self.key}.isdisjoint(PARTICIPANT_COLUMNS)
        return tuple(column for column in self.key if column in known) if has_ids else ()
