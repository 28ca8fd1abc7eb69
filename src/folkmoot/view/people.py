"""The participants of a run as one table with one row per participant."""
# The table has all values that are recorded once per participant.
# In a finished run, the participants are the rows of the largest table with unique ids. Other
# tables with one row per participant are joined to it. If participants take part in several
# conversations, the table has a row for each of them, and each participant counts once. In a run
# in progress, the participants come from the plan, or else from the questions asked until now.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from folkmoot.engine.calls.retries import PREFLIGHT_SCOPE
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.session.plan import sealed_data
from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import EmptyJournalError, StorageError
from folkmoot.storage.findings import TableCell
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, PLAN, TABLES, RunFolder, RunSoFar
from folkmoot.storage.tables import PARTICIPANT_COLUMNS

IDS = ("agent_id", *PARTICIPANT_COLUMNS)
# Ids may be unique only within a conversation. These columns identify it, the most specific first.
WITHIN = ("discussion_id", "group_id", "group", "experiment_id", "session", "session_id", "set")
ENGINE_TABLES = ("answers", "provenance", "exposure", "texts", "codes")
# Addresses of calls that hold no utterances: coding, preflight, and self-descriptions of humans.
HIDDEN_ADDRESSES = ("coding/", f"{PREFLIGHT_SCOPE}/", "seats/")
NAMES = ("name", "member_name", "participant_name")
# Columns that name the speaker whom a row is about.
SPEAKERS = ("speaker_id", "speaker", "target")
KEY_COLUMN = "participant_key"
# In characters. Longer cells are shown only on the page of the participant.
MAX_SHORT_CHARACTERS = 60
# A column with more levels is not offered as a filter.
MAX_LEVELS = 12


@dataclass(frozen=True, slots=True)
class People:
    """Where the participants of a run are recorded: the table and its columns."""

    # The name of the table, or empty if the run has none.
    table: str
    # The columns, such as the session, that make the id unique together with it.
    within: tuple[str, ...]
    # The column with the participant's id.
    id: str
    # The columns that identify a participant in all their conversations, such as those of a town
    # hall at several levels. Empty if each row is another participant.
    person: tuple[str, ...] = ()
    # Without a table: the participants that the plan or the journal names.
    drawn: pl.LazyFrame = field(default_factory=pl.LazyFrame, compare=False)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return (*self.within, self.id)


def state_of(run: RunFolder) -> tuple[object, ...]:
    """Return a cache key that changes when the table files of a run change."""
    files = ((run.path / TABLES / f"{name}.parquet").stat() for name in run.table_names())
    return tuple((file.st_mtime_ns, file.st_size, file.st_ino) for file in files)


def people_of(run: RunFolder) -> People:
    """Return where the participants of a run are recorded."""
    # In a table, in the plan, or in the journal.
    complete = not isinstance(run, RunSoFar)
    recorded = _recorded_people(run.path, state_of(run)) if complete and run.table_names() else None
    return (
        recorded
        or _planned_people(run.path, file_stamp(run.path / PLAN))
        or _asked_participants(run)
    )


def file_stamp(path: Path) -> tuple[int, int]:
    """Return the modification time and size of a file, or zeros if there is no file."""
    # The stamp is a cache key.
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=2048)
def _recorded_people(path: Path, _state: tuple[object, ...]) -> People | None:
    run = RunFolder(path)
    best_people, size = None, (0, 0)
    tables: list[tuple[int, str, tuple[str, ...]]] = []
    for name in run.table_names():
        if name in ENGINE_TABLES:
            continue
        columns = _column_names(run, name)
        keys = _key_columns(columns)
        if not keys or not (rows := _unique_row_count(run, name, keys)):
            continue
        tables.append((rows, name, keys))
        if (rows, len(columns)) > size:
            best_people, size = People(name, keys[:-1], keys[-1]), (rows, len(columns))
    if best_people is None:
        return None
    return replace(best_people, person=_person_columns(run, best_people, tables))


def _person_columns(
    run: RunFolder, people: People, tables: Sequence[tuple[int, str, tuple[str, ...]]]
) -> tuple[str, ...]:
    # The shortest other table that names each participant of `people.table` once says who they are.
    # `tables`: row count, name and key columns of each table with unique keys.
    columns = _column_names(run, people.table)
    row_count = int(run.scan_table(people.table).select(pl.len()).collect().item())
    for rows, name, keys in sorted(tables):
        within = keys[:-1]
        if rows >= row_count or not set(within) <= set(columns):
            continue
        person = (*within, people.id)
        named = run.scan_table(name).select(pl.col(key).cast(pl.String) for key in keys)
        shown = run.scan_table(people.table).select(pl.col(key).cast(pl.String) for key in person)
        missing = shown.join(named, left_on=person, right_on=keys, how="anti", nulls_equal=True)
        if not missing.collect().height:
            return person
    return ()


@lru_cache(maxsize=8)
def _planned_people(path: Path, _plan: tuple[int, int]) -> People | None:
    run = RunFolder(path)
    sealed = sealed_data(run.plan)
    try:
        planned_tables = [
            table for table in find_study_of_run(run).expected_rows(sealed) if table.rows
        ]
    # A study type by the user may be missing, changed, or not trusted here.
    except Exception:
        return None
    planned_frames = [
        pl.DataFrame(table.rows, infer_schema_length=None).cast(pl.String)
        for table in planned_tables
    ]
    for table, frame in zip(planned_tables, planned_frames, strict=True):
        id_column = next((key for key in table.key if key in IDS), None)
        if id_column is None:
            continue
        joined = frame
        # In some studies the participants of a group take part in several conversations.
        for other_frame in planned_frames:
            shared_columns = [column for column in other_frame.columns if column in joined.columns]
            if shared_columns and _nearest_column(other_frame.columns) not in joined.columns:
                joined = joined.join(
                    other_frame, on=shared_columns, how="left", maintain_order="left"
                )
        is_unique = not joined[id_column].is_duplicated().any()
        within = () if is_unique else tuple(filter(None, [_nearest_column(joined.columns)]))
        person = tuple(key for key in (*table.key, id_column) if key in joined.columns)
        return People("", within, id_column, tuple(dict.fromkeys(person)), joined.lazy())
    return None


def _nearest_column(columns: Sequence[str]) -> str:
    return next((column for column in WITHIN if column in columns), "")


def _asked_participants(run: RunFolder) -> People:
    empty = pl.LazyFrame(schema={"speaker_id": pl.String, "role": pl.String})
    answers = run.scan_table("answers") if run.has_table("answers") else empty
    participants = answers.filter(role=PARTICIPANT_ROLE).select("speaker_id", "role")
    drawn = participants.unique(maintain_order=True).collect().lazy()
    return People("", (), "speaker_id", drawn=drawn)


def journal_of(run: RunFolder) -> JournalReader | None:
    """Open the journal of a run. Returns None if the journal has no entries yet.

    Raises StorageError if the journal cannot be read.
    """
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
    """Return the table of participants, with one row for each participant."""
    if people.table:
        return _cached_frame(run.path, people, state_of(run))
    return _with_key(people, people.drawn)


@lru_cache(maxsize=32)
def _cached_frame(path: Path, people: People, _state: tuple[object, ...]) -> pl.LazyFrame:
    run = RunFolder(path)
    joined = run.scan_table(people.table)
    for name in run.table_names():
        if name not in (people.table, *ENGINE_TABLES):
            joined = _join_table(run, joined, people, name)
    return _with_key(people, joined)


def _with_key(people: People, frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(_key_of(people.key_columns))


def _key_of(columns: Sequence[str]) -> pl.Expr:
    return pl.concat_str([_escape_key(column) for column in columns], separator="/").alias(
        KEY_COLUMN
    )


def count_of(run: RunFolder) -> int | None:
    """Return the number of participants. Returns None if none are recorded."""
    if isinstance(run, RunSoFar) or not run.table_names():
        return None
    people = people_of(run)
    rows = run.scan_table(people.table) if people.table else people.drawn
    return _count_people(rows, people) or None


def _count_people(rows: pl.LazyFrame, people: People) -> int:
    return int(
        rows.select(people.person or people.key_columns).unique().select(pl.len()).collect().item()
    )


def other_keys(frame: pl.LazyFrame, people: People, row: Mapping[str, object]) -> list[str]:
    """Return the keys of the other rows of a participant, who may be in several conversations.

    - `row`: a row of `frame`, the table of participants.
    """
    if not people.person:
        return []
    conditions = (pl.col(column).eq_missing(pl.lit(row[column])) for column in people.person)
    keys = frame.filter(*conditions, pl.col(KEY_COLUMN) != row[KEY_COLUMN]).select(KEY_COLUMN)
    return keys.collect()[KEY_COLUMN].to_list()


def names_in(run: RunFolder, key: Sequence[str]) -> dict[str, str]:
    """Return a map from participant id to name, for the participants in a conversation.

    - `key`: the key of the conversation.
    """
    people = people_of(run)
    frame = people_frame(run, people)
    if len(people.within) > len(key):
        return {}
    name = next((name for name in NAMES if name in frame.collect_schema().names()), people.id)
    conditions = (
        pl.col(column).cast(pl.String) == value
        for column, value in zip(people.within, key, strict=False)
    )
    cells = pl.col(people.id).cast(pl.String).alias("id"), pl.col(name).cast(pl.String).alias("as")
    rows = frame.filter(*conditions).select(*cells).collect().iter_rows()
    return {
        person_id: person_id if person_name in (None, person_id) else f"{person_name} ({person_id})"
        for person_id, person_name in rows
    }


def _join_table(run: RunFolder, joined: pl.LazyFrame, people: People, name: str) -> pl.LazyFrame:
    columns, joined_columns = _column_names(run, name), joined.collect_schema().names()
    id_column = next((column for column in (people.id, "id") if column in columns), None)
    if id_column is None:
        return joined
    within = [
        column
        for column in (*people.within, *WITHIN)
        if column in columns and column in joined_columns
    ]
    keys = [*dict.fromkeys(within), id_column]
    new_columns = [column for column in columns if column not in (*joined_columns, id_column)]
    if not new_columns or (id_column == people.id and not set(people.within) <= set(keys)):
        return joined
    if not _unique_row_count(run, name, keys):
        return joined
    return joined.join(
        run.scan_table(name).select(*keys, *new_columns),
        left_on=[*keys[:-1], people.id],
        right_on=keys,
        how="left",
        maintain_order="left",
    )


def _key_columns(columns: Sequence[str]) -> tuple[str, ...]:
    id_column = next((column for column in IDS if column in columns), None)
    if id_column is None:
        return ()
    nearest = _nearest_column(columns)
    within = ("experiment_id", "session") if nearest == "experiment_id" else (nearest,)
    return (*(column for column in within if column in columns), id_column)


def _unique_row_count(run: RunFolder, name: str, keys: Sequence[str]) -> int:
    # 0 if two rows have the same values in `keys`.
    counts = run.scan_table(name).select(
        pl.struct(keys).n_unique().alias("n"), pl.len().alias("all")
    )
    distinct, rows = counts.collect().row(0)
    return int(rows) if distinct == rows else 0


def _column_names(run: RunFolder, name: str) -> list[str]:
    return run.scan_table(name).collect_schema().names()


def _escape_key(column: str) -> pl.Expr:
    text = pl.col(column).cast(pl.String).fill_null("")
    # A slash separates the parts of a key, so slashes within a part are escaped.
    return text.str.replace_all("%", "%25", literal=True).str.replace_all("/", "%2F", literal=True)


# --- a page of the table -------------------------------------------------------------------------


_CONDITION = re.compile(r"""([\w.]+)(>=|<=|!=|=|>|<)("[^"]*"|\S+)|"[^"]*"|\S+""")
# Returns a table with several rows for each participant: KEY and its columns.
Rows = Callable[[str], pl.LazyFrame | None]


def filter_rows(
    frame: pl.LazyFrame, query: str, rows: Rows = lambda _: None
) -> tuple[pl.LazyFrame, list[str]]:
    """Return the rows that match a query such as `age>40 condition=acp "street safety"`.

    Also returns the names in the query that are compared as columns, but are no column of the run.
    """
    # A word without a column matches if it occurs anywhere in the row. Case is ignored.
    # `votes.vote=no` matches participants with a row in the table `votes` that has the value `no`
    # in the column `vote`.
    schema = frame.collect_schema()
    words = []
    unknown_columns: list[str] = []
    for condition in _CONDITION.finditer(query):
        sign, value = condition[2], (condition[3] or "").strip('"')
        column = _named_column(condition[1] or "", schema)
        if column in schema:
            frame = frame.filter(_compare_column(column, schema[column], sign, value))
            continue
        table, table_column = _of_table(column, rows)
        if table is None:
            words.append(condition[0].strip('"'))
            unknown_columns += [condition[1]] if condition[1] else []
        else:
            matching = table.filter(
                _compare_column(table_column, table.collect_schema()[table_column], sign, value)
            )
            frame = frame.join(
                matching.select(KEY_COLUMN).unique(),
                on=KEY_COLUMN,
                how="semi",
                maintain_order="left",
            )
    cells = [pl.col(column).cast(pl.String) for column in schema.names()]
    row_text = pl.concat_str(cells, separator="\n", ignore_nulls=True).str.to_lowercase()
    has_words = (row_text.str.contains(word.lower(), literal=True) for word in words)
    return frame.filter(*has_words), unknown_columns


def _named_column(name: str, columns: Iterable[str]) -> str:
    # The page shows columns with a capital letter, so the case is ignored.
    return next((column for column in columns if column.lower() == name.lower()), name)


def _of_table(column: str, rows: Rows) -> tuple[pl.LazyFrame | None, str]:
    # `column` is `table.column`. (None, "") if the run lacks either.
    name, _, table_column = column.rpartition(".")
    table = rows(name) if name else None
    return (
        (None, "")
        if table is None or table_column not in table.collect_schema()
        else (table, table_column)
    )


def _aggregate_cells(table: pl.LazyFrame, column: str, name: str) -> pl.LazyFrame:
    # Each participant gets one value: the mean of numbers, or else the first value.
    cell, kind = pl.col(column), table.collect_schema()[column]
    aggregated = cell.mean() if kind.is_numeric() else cell.first()
    return table.group_by(KEY_COLUMN, maintain_order=True).agg(aggregated.alias(name))


def _compare_column(column: str, kind: pl.DataType, sign: str, value: str) -> pl.Expr:
    cell: pl.Expr = pl.col(column)
    compared_value: float | str
    # The page shows these cells as yes and no.
    if kind == pl.Boolean and value.lower() in BOOLEAN_WORDS:
        value = str(BOOLEAN_WORDS[value.lower()])
    try:
        compared_value = float(value)
        cell = cell.cast(pl.Float64, strict=False)
        if not kind.is_numeric() and sign in ("=", "!="):
            raise ValueError
    except ValueError:
        cell, compared_value = pl.col(column).cast(pl.String).str.to_lowercase(), value.lower()
    comparisons = {
        "=": cell == compared_value,
        "!=": cell.is_null() | (cell != compared_value),
        ">": cell > compared_value,
        "<": cell < compared_value,
        ">=": cell >= compared_value,
        "<=": cell <= compared_value,
    }
    return comparisons[sign]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the table of participants."""

    columns: list[str]
    # (participant key, cells by column).
    rows: list[tuple[str, dict[str, TableCell]]]
    # The number of matching rows.
    total: int
    # The number of all rows.
    all: int
    # The number of participants of the matching rows, and of all rows. Each counts once.
    people: int
    all_people: int
    # Columns that can be used as filters, with the counts of their values.
    levels: list[tuple[str, list[tuple[TableCell, int]]]]
    # Tables with several rows per participant, with their columns.
    others: list[tuple[str, list[str]]]
    # Names that the query compares, and that are no column. They were searched as words.
    unknown: list[str]


class Shape(NamedTuple):
    """The fields of `Page` that are the same for all pages of a run."""

    columns: list[str]
    all: int
    all_people: int
    levels: list[tuple[str, list[tuple[TableCell, int]]]]


def table_of(run: RunFolder, query: str, sort: str, start: int, max_rows: int) -> Page:
    """Return one page of the participants who match a query, sorted by a column.

    - `sort`: the name of the column. A `-` before the name means descending order.
    - `start`: the index of the first row.
    """
    people = people_of(run)
    frame = people_frame(run, people)
    shape = (
        _shape_of(run.path, people, state_of(run)) if people.table else _frame_shape(frame, people)
    )
    key_columns_by_table = repeated_tables(run, people)

    def keyed_rows(name: str) -> pl.LazyFrame | None:
        return (
            run.scan_table(name).with_columns(_key_of(key_columns_by_table[name]))
            if name in key_columns_by_table
            else None
        )

    matched, unknown_columns = filter_rows(frame, query, keyed_rows)
    columns = list(shape.columns)
    sort_column = sort.removeprefix("-")
    table, table_column = _of_table(sort_column, keyed_rows)
    if table is not None:
        matched = matched.join(
            _aggregate_cells(table, table_column, sort_column),
            on=KEY_COLUMN,
            how="left",
            maintain_order="left",
        )
        columns.insert(1, sort_column)
    if sort_column in columns:
        is_descending = sort.startswith("-")
        matched = matched.sort(
            sort_column, descending=is_descending, nulls_last=True, maintain_order=True
        )
    count = matched.select(
        pl.len(), pl.struct(people.person or people.key_columns).n_unique().alias("n")
    )
    total, page_rows = pl.collect_all(
        [count, matched.slice(start, max_rows).select(KEY_COLUMN, *columns)]
    )
    keyed_page_rows = [(row.pop(KEY_COLUMN), row) for row in page_rows.to_dicts()]
    columns_by_table = [
        (name, [column for column in _column_names(run, name) if column not in keys])
        for name, keys in key_columns_by_table.items()
    ]
    return Page(
        columns,
        keyed_page_rows,
        total["len"].item(),
        shape.all,
        total["n"].item(),
        shape.all_people,
        shape.levels,
        columns_by_table,
        unknown_columns,
    )


@lru_cache(maxsize=32)
def _shape_of(path: Path, people: People, _state: tuple[object, ...]) -> Shape:
    return _frame_shape(people_frame(RunFolder(path), people), people)


def _frame_shape(frame: pl.LazyFrame, people: People) -> Shape:
    collected = frame.collect()
    columns = _short_columns(collected, people)
    levels = []
    for name in columns:
        known_cells = collected[name].drop_nulls()
        counts = known_cells.value_counts(sort=True)
        has_few_levels = 1 < counts.height <= min(MAX_LEVELS, known_cells.len() // 2)
        if has_few_levels and not known_cells.dtype.is_float():
            levels.append((name, list(counts.iter_rows())))
    return Shape(columns, collected.height, _count_people(frame, people), levels)


def _short_columns(frame: pl.DataFrame, people: People) -> list[str]:
    first_names = (*NAMES, people.id, *people.within, "condition", "status", "role")
    first = [column for column in first_names if column in frame.columns]
    return list(
        dict.fromkeys(
            (*first, *(column for column in frame.columns if _is_short_column(frame[column])))
        )
    )


def _is_short_column(column: pl.Series) -> bool:
    if column.name == KEY_COLUMN or column.null_count() == column.len():
        return False
    if column.dtype == pl.String:
        longest = column.str.len_chars().max()
        return isinstance(longest, int) and longest <= MAX_SHORT_CHARACTERS and not _is_list(column)
    return True


def _is_list(column: pl.Series) -> bool:
    return bool(column.str.starts_with("[").any())


def repeated_tables(run: RunFolder, people: People) -> dict[str, tuple[str, ...]]:
    """Return the tables about participants, each with the columns that identify the participant.

    The table `people.table` is left out.
    """
    key_columns_by_table = {}
    for name in run.table_names() if people.table else ():
        columns = _column_names(run, name)
        id_column = next((column for column in (people.id, *SPEAKERS) if column in columns), None)
        if name != people.table and id_column and set(people.within) <= set(columns):
            key_columns_by_table[name] = (*people.within, id_column)
    return key_columns_by_table


def records_of(
    run: RunFolder, people: People, parts: Sequence[str]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each study table's name and the participant's rows in that table.

    - `parts`: the values that identify the participant.
    """
    # Left out are `people.table`, and tables that every study has, such as `answers` and
    # `utterances`.
    for name, keys in repeated_tables(run, people).items():
        if name in (*ENGINE_TABLES, UTTERANCES):
            continue
        conditions = [
            pl.col(key).cast(pl.String) == part for key, part in zip(keys, parts, strict=True)
        ]
        records = run.scan_table(name).filter(*conditions).drop(*keys).collect()
        if records.height:
            yield name, records
