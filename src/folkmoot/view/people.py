"""The people of a run as one table: who took part, and all that was recorded once for each.

The people of a finished run are those of the table in which the id columns that study types use
name every row; whatever other tables hold once for each of them is joined to it. Those of a run
under way are the ones that the plan names or, where it names none, that were asked so far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from folkmoot.engine.calls.retries import PREFLIGHT_SCOPE
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import EmptyJournalError, StorageError
from folkmoot.storage.findings import TableCell
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, PLAN, TABLES, RunFolder, RunSoFar
from folkmoot.storage.tables import PARTICIPANT_COLUMNS

IDS = ("agent_id", *PARTICIPANT_COLUMNS)
# Columns that tell apart those whose ids are unique in their conversation only, the nearest first.
WITHIN = ("discussion_id", "group_id", "group", "experiment_id", "session", "session_id", "set")
OF_ENGINE = ("answers", "provenance", "exposure", "texts", "codes")
# Addresses at which texts are coded, models tried out, people asked for a card of their own.
NOT_SAID = ("coding/", f"{PREFLIGHT_SCOPE}/", "seats/")
NAMES = ("name", "member_name", "participant_name")
SPEAKERS = ("speaker_id", "speaker", "target")  # columns that say whom a row is about
# Roles and ids of speakers who lead a conversation or code its texts, and take no part in it.
LEADERS = frozenset(
    {"moderator", "mediator", "facilitator", "planner", "summarizer", "host", "coder"}
)
UTTERANCES = "utterances"
KEY = "who"
LONG = 60  # characters; longer cells are shown on a person's own page
MOST_LEVELS = 12  # of a column that is offered as a filter


@dataclass(frozen=True, slots=True)
class People:
    """Where the people of a run are recorded: the table, and the columns that name a row.

    Without a table they come from the plan or the journal, and `drawn` holds them, all as text.
    """

    table: str
    within: tuple[str, ...]
    id: str
    drawn: pl.LazyFrame = field(default_factory=pl.LazyFrame, compare=False)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return (*self.within, self.id)


def state_of(run: RunFolder) -> tuple[object, ...]:
    """What must be the same for what was read from the tables to be of them as they are."""
    files = ((run.path / TABLES / f"{name}.parquet").stat() for name in run.table_names())
    return tuple((file.st_mtime_ns, file.st_size, file.st_ino) for file in files)


def people_of(run: RunFolder) -> People:
    """Where the people of a run are recorded."""
    complete = not isinstance(run, RunSoFar)
    recorded = _recorded_people(run.path, state_of(run)) if complete and run.table_names() else None
    return (
        recorded
        or _planned_people(run.path, file_stamp(run.path / PLAN))
        or _asked_participants(run)
    )


def file_stamp(path: Path) -> tuple[int, int]:
    """What must be the same for a file to be as it was."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2048)
def _recorded_people(path: Path, _state: tuple[object, ...]) -> People | None:
    """The table with the most people, if there is one."""
    run = RunFolder(path)
    best, place = None, (0, 0)
    for name in run.table_names():
        if name in OF_ENGINE:
            continue
        columns = _column_names(run, name)
        keys = _key_columns(columns)
        if keys and (rows := _unique_row_count(run, name, keys)) and (rows, len(columns)) > place:
            best, place = People(name, keys[:-1], keys[-1]), (rows, len(columns))
    return best


@lru_cache(maxsize=8)
def _planned_people(path: Path, _plan: tuple[int, int]) -> People | None:
    """Those whom the sealed plan names, where it does."""
    run = RunFolder(path)
    sealed = {name: part.get("data") for name, part in run.plan.get("sealed", {}).items()}
    try:
        planned = [table for table in find_study_of_run(run).expected_rows(sealed) if table.rows]
    except Exception:  # a study of the user's own that is gone, not trusted here, or other now
        return None
    drawn = [
        pl.DataFrame(expected_rows.rows, infer_schema_length=None).cast(pl.String)
        for expected_rows in planned
    ]
    for table, found in zip(planned, drawn, strict=True):
        named = next((key for key in table.key if key in IDS), None)
        if named is None:
            continue
        joined = found
        for others in drawn:  # people of a set who take part in several conversations
            shared = [column for column in others.columns if column in joined.columns]
            if shared and _nearest_column(others.columns) not in joined.columns:
                joined = joined.join(others, on=shared, how="left", maintain_order="left")
        alone = not joined[named].is_duplicated().any()
        within = () if alone else tuple(filter(None, [_nearest_column(joined.columns)]))
        return People("", within, named, joined.lazy())
    return None


def _nearest_column(columns: Sequence[str]) -> str:
    return next((column for column in WITHIN if column in columns), "")


def _asked_participants(run: RunFolder) -> People:
    """Those who were asked so far and lead no conversation."""
    empty = pl.LazyFrame(schema={"speaker_id": pl.String, "role": pl.String})
    asked = run.scan_table("answers") if run.has_table("answers") else empty
    leads = pl.any_horizontal(pl.col("role", "speaker_id").str.to_lowercase().is_in(LEADERS))
    met = asked.filter(~leads).select("speaker_id", "role")
    return People("", (), "speaker_id", met.unique(maintain_order=True).collect().lazy())


def journal_of(run: RunFolder) -> JournalReader | None:
    """The journal of a run; None while nothing has been asked: its file is there before anything
    is in it. Raises StorageError where it can't be read."""
    try:
        return JournalReader(run.path / JOURNAL)
    except EmptyJournalError:
        if run.has_file(MANIFEST):
            raise
        return None
    except StorageError:
        if run.has_file(JOURNAL):
            raise
        return None


def people_frame(run: RunFolder, people: People) -> pl.LazyFrame:
    """A row for each of the people: `who` (their key), then all that is recorded once for each."""
    if people.table:
        return _cached_frame(run.path, people, state_of(run))
    return _with_key(people, people.drawn)


@lru_cache(maxsize=32)
def _cached_frame(path: Path, people: People, _state: tuple[object, ...]) -> pl.LazyFrame:
    run = RunFolder(path)
    found = run.scan_table(people.table)
    for name in run.table_names():
        if name not in (people.table, *OF_ENGINE):
            found = _join_table(run, found, people, name)
    return _with_key(people, found)


def _with_key(people: People, found: pl.LazyFrame) -> pl.LazyFrame:
    return found.with_columns(_key_of(people.key_columns))


def _key_of(columns: Sequence[str]) -> pl.Expr:
    return pl.concat_str([_escape_key(column) for column in columns], separator="/").alias(KEY)


def count_of(run: RunFolder) -> int | None:
    """How many people were recorded; None where nobody was."""
    complete = not isinstance(run, RunSoFar) and run.table_names()
    people = _recorded_people(run.path, state_of(run)) if complete else None
    if people is None:
        return None
    return int(run.scan_table(people.table).select(pl.len()).collect().item())


def names_in(run: RunFolder, key: Sequence[str]) -> dict[str, str]:
    """Id → name of the people of a conversation, by the key of its room."""
    people = people_of(run)
    found = people_frame(run, people)
    if len(people.within) > len(key):
        return {}
    name = next((name for name in NAMES if name in found.collect_schema().names()), people.id)
    own = (
        pl.col(column).cast(pl.String) == value
        for column, value in zip(people.within, key, strict=False)
    )
    cells = pl.col(people.id).cast(pl.String).alias("id"), pl.col(name).cast(pl.String).alias("as")
    rows = found.filter(*own).select(*cells).collect().iter_rows()
    return {
        item_id: item_id if called in (None, item_id) else f"{called} ({item_id})"
        for item_id, called in rows
    }


def _join_table(run: RunFolder, found: pl.LazyFrame, people: People, name: str) -> pl.LazyFrame:
    """With the columns of another table that holds one row for each of the people."""
    columns, have = _column_names(run, name), found.collect_schema().names()
    own = next((column for column in (people.id, "id") if column in columns), None)
    if own is None:
        return found
    within = [
        column for column in (*people.within, *WITHIN) if column in columns and column in have
    ]
    keys = [*dict.fromkeys(within), own]
    more = [column for column in columns if column not in (*have, own)]
    if not more or (own == people.id and not set(people.within) <= set(keys)):
        return found
    if not _unique_row_count(run, name, keys):
        return found
    return found.join(
        run.scan_table(name).select(*keys, *more),
        left_on=[*keys[:-1], people.id],
        right_on=keys,
        how="left",
        maintain_order="left",
    )


def _key_columns(columns: Sequence[str]) -> tuple[str, ...]:
    named = next((column for column in IDS if column in columns), None)
    if named is None:
        return ()
    nearest = _nearest_column(columns)
    within = ("experiment_id", "session") if nearest == "experiment_id" else (nearest,)
    return (*(column for column in within if column in columns), named)


def _unique_row_count(run: RunFolder, name: str, keys: Sequence[str]) -> int:
    """How many rows a table has, if these columns name each of them; else 0."""
    counts = run.scan_table(name).select(
        pl.struct(keys).n_unique().alias("n"), pl.len().alias("all")
    )
    distinct, rows = counts.collect().row(0)
    return int(rows) if distinct == rows else 0


def _column_names(run: RunFolder, name: str) -> list[str]:
    return run.scan_table(name).collect_schema().names()


def _escape_key(column: str) -> pl.Expr:
    text = pl.col(column).cast(pl.String).fill_null("")
    return text.str.replace_all("%", "%25", literal=True).str.replace_all("/", "%2F", literal=True)


# --- a page of the table -------------------------------------------------------------------------


_CONDITION = re.compile(r"""([\w.]+)(>=|<=|!=|=|>|<)("[^"]*"|\S+)|"[^"]*"|\S+""")
Rows = Callable[[str], pl.LazyFrame | None]  # a table with several rows for each: KEY, its columns


def filter_rows(found: pl.LazyFrame, query: str, rows: Rows = lambda _: None) -> pl.LazyFrame:
    """The rows that a query means: `age>40 condition=acp "street safety"`. A word without a column
    must stand somewhere in the row; case does not count. `votes.vote=no` means those who have such
    a row in the table `votes`."""
    schema = found.collect_schema()
    words = []
    for condition in _CONDITION.finditer(query):
        column, sign, value = condition[1], condition[2], (condition[3] or "").strip('"')
        if column in schema:
            found = found.filter(_compare_column(column, schema[column], sign, value))
            continue
        of, own = _of_table(column or "", rows)
        if of is None:
            words.append(condition[0].strip('"'))
        else:
            met = of.filter(_compare_column(own, of.collect_schema()[own], sign, value))
            found = found.join(met.select(KEY).unique(), on=KEY, how="semi", maintain_order="left")
    cells = [pl.col(column).cast(pl.String) for column in schema.names()]
    whole = pl.concat_str(cells, separator="\n", ignore_nulls=True).str.to_lowercase()
    return found.filter(*(whole.str.contains(word.lower(), literal=True) for word in words))


def _of_table(column: str, rows: Rows) -> tuple[pl.LazyFrame | None, str]:
    """The table and the column of it that `table.column` means; no table where it means none."""
    name, _, own = column.rpartition(".")
    of = rows(name) if name else None
    return (None, "") if of is None or own not in of.collect_schema() else (of, own)


def _aggregate_cells(of: pl.LazyFrame, column: str, name: str) -> pl.LazyFrame:
    """What several rows tell of each: the mean of numbers, the first of anything else."""
    cell, kind = pl.col(column), of.collect_schema()[column]
    told = cell.mean() if kind.is_numeric() else cell.first()
    return of.group_by(KEY, maintain_order=True).agg(told.alias(name))


def _compare_column(column: str, kind: pl.DataType, sign: str, value: str) -> pl.Expr:
    cell: pl.Expr = pl.col(column)
    wanted: float | str
    try:
        wanted = float(value)
        cell = cell.cast(pl.Float64, strict=False)
        if not kind.is_numeric() and sign in ("=", "!="):
            raise ValueError
    except ValueError:
        cell, wanted = pl.col(column).cast(pl.String).str.to_lowercase(), value.lower()
    compared = {
        "=": cell == wanted, "!=": cell.is_null() | (cell != wanted), ">": cell > wanted,
        "<": cell < wanted, ">=": cell >= wanted, "<=": cell <= wanted,
    }  # fmt: skip
    return compared[sign]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of the table of people, how many match of all, and what can be filtered by."""

    columns: list[str]
    rows: list[tuple[str, dict[str, TableCell]]]
    total: int
    all: int
    levels: list[tuple[str, list[tuple[TableCell, int]]]]
    others: list[tuple[str, list[str]]]  # tables of several rows for each, and their columns


class Shape(NamedTuple):
    """What is the same on all pages of the table of a run."""

    columns: list[str]
    all: int
    levels: list[tuple[str, list[tuple[TableCell, int]]]]


def table_of(run: RunFolder, query: str, sort: str, start: int, most: int) -> Page:
    """The people that a query means, sorted by a column (`-column`: downwards)."""
    people = people_of(run)
    found = people_frame(run, people)
    shape = (
        _shape_of(run.path, people, state_of(run)) if people.table else _frame_shape(found, people)
    )
    others = repeated_tables(run, people)

    def keyed_rows(name: str) -> pl.LazyFrame | None:
        return run.scan_table(name).with_columns(_key_of(others[name])) if name in others else None

    matched, columns = filter_rows(found, query, keyed_rows), list(shape.columns)
    by = sort.removeprefix("-")
    of, own = _of_table(by, keyed_rows)
    if of is not None:
        matched = matched.join(
            _aggregate_cells(of, own, by), on=KEY, how="left", maintain_order="left"
        )
        columns.insert(1, by)
    if by in columns:
        down = sort.startswith("-")
        matched = matched.sort(by, descending=down, nulls_last=True, maintain_order=True)
    count = matched.select(pl.len())
    total, shown = pl.collect_all([count, matched.slice(start, most).select(KEY, *columns)])
    listed = [(row.pop(KEY), row) for row in shown.to_dicts()]
    named = [
        (name, [column for column in _column_names(run, name) if column not in keys])
        for name, keys in others.items()
    ]
    return Page(columns, listed, int(total.item()), shape.all, shape.levels, named)


@lru_cache(maxsize=32)
def _shape_of(path: Path, people: People, _state: tuple[object, ...]) -> Shape:
    return _frame_shape(people_frame(RunFolder(path), people), people)


def _frame_shape(found: pl.LazyFrame, people: People) -> Shape:
    whole = found.collect()
    columns = _short_columns(whole, people)
    levels = []
    for name in columns:
        told = whole[name].drop_nulls()
        counts = told.value_counts(sort=True)
        few = 1 < counts.height <= min(MOST_LEVELS, told.len() // 2)
        if few and not told.dtype.is_float():
            levels.append((name, list(counts.iter_rows())))
    return Shape(columns, whole.height, levels)


def _short_columns(found: pl.DataFrame, people: People) -> list[str]:
    """The columns that fit a table, what tells people apart first."""
    named = (*NAMES, people.id, *people.within, "condition", "status", "role")
    first = [column for column in named if column in found.columns]
    return list(
        dict.fromkeys(
            (*first, *(column for column in found.columns if _is_short_column(found[column])))
        )
    )


def _is_short_column(column: pl.Series) -> bool:
    if column.name == KEY or column.null_count() == column.len():
        return False
    if column.dtype == pl.String:
        longest = column.str.len_chars().max()
        return isinstance(longest, int) and longest <= LONG and not _is_list(column)
    return True


def _is_list(column: pl.Series) -> bool:
    return bool(column.str.starts_with("[").any())


def repeated_tables(run: RunFolder, people: People) -> dict[str, tuple[str, ...]]:
    """Tables with any number of rows for each of the people, and the columns that name them."""
    found = {}
    for name in run.table_names() if people.table else ():
        columns = _column_names(run, name)
        own = next((column for column in (people.id, *SPEAKERS) if column in columns), None)
        if name != people.table and own and set(people.within) <= set(columns):
            found[name] = (*people.within, own)
    return found


def records_of(
    run: RunFolder, people: People, parts: Sequence[str]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of all other tables that are about one of the people: (table, rows)."""
    for name, keys in repeated_tables(run, people).items():
        if name in (*OF_ENGINE, UTTERANCES):
            continue
        mine = [pl.col(key).cast(pl.String) == part for key, part in zip(keys, parts, strict=True)]
        found = run.scan_table(name).filter(*mine).drop(*keys).collect()
        if found.height:
            yield name, found
