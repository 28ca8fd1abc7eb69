"""Read the age and the other attributes that the personas of a run state."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from folkmoot.storage.run_folder import RunFolder

# Columns for the age of a persona. Study types use one of these names.
_AGES = ("age", "demographic_age")
# Columns for the id of a participant in the tables of study types.
_IDS = ("participant_id", "persona_id", "member_id")
# Columns for the group of a participant. An id may occur once in each group.
_GROUPS = ("group", "group_id")
# Studies with personas from a source have these columns in the table of their participants.
_PREFIX = "demographic_"
# Columns of the table `personas` that identify a participant or the source.
_NO_ATTRIBUTE = (*_GROUPS, *_IDS, "name", "first_name", "source")


def read_ages(run: RunFolder) -> dict[tuple[str, str], int]:
    """Return the ages of participants, or {} if no table has ages.

    Each key is a pair of unit and participant id. The unit can be empty.
    """
    # The unit is empty if the ids of participants are unique in the run.
    for name, who, group in _tables_of_participants(run):
        table = run.scan_table(name)
        age = next((age for age in _AGES if age in table.collect_schema().names()), None)
        if age is None:
            continue
        units = pl.lit("") if group is None else pl.col(group)
        rows = table.select(unit=units, who=who, age=age).drop_nulls().collect()
        if rows.height and rows["age"].dtype.is_integer():
            return {(unit, id): age for unit, id, age in rows.iter_rows()}
    return {}


def read_attributes(run: RunFolder) -> pl.DataFrame | None:
    """Return the stated attributes of the participants, with the column `participant_id`.

    Returns None if no table of the run has one row of attributes for each participant.
    """
    # The table also has the column `unit` (the group) if ids are unique only within their group.
    for name, who, group in _tables_of_participants(run):
        table = run.scan_table(name)
        columns = table.collect_schema().names()
        stated = [column for column in columns if column.startswith(_PREFIX)]
        if name == "personas":
            stated = [column for column in columns if column not in _NO_ATTRIBUTE]
        if stated:
            own = {"participant_id": who} | ({} if group is None else {"unit": group})
            attributes = {column.removeprefix(_PREFIX): column for column in stated}
            return table.select(**(own | attributes)).collect()
    return None


def _tables_of_participants(run: RunFolder) -> Iterator[tuple[str, str, str | None]]:
    # (table, id column, group column). The group column is None if the ids alone are unique.
    for name in run.table_names():
        table = run.scan_table(name)
        columns = table.collect_schema().names()
        who = next((column for column in _IDS if column in columns), None)
        if who is None:
            continue
        group = next((column for column in _GROUPS if column in columns), None)
        # Try the id alone first: if it is unique, the pair with the group is unique as well.
        for key in ([who], [group, who] if group is not None else [who]):
            rows = table.select(key).collect()
            if rows.height and rows.is_unique().all():
                yield name, who, group if len(key) == 2 else None
                break
