"""Write rows of research data as Parquet and CSV tables, and build the codebook.

Analysis code reads tables through `RunFolder`.
"""

# The same rows give the same bytes.

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import polars as pl
import polars.selectors as cs

from folkmoot.files import write_bytes, write_with

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
# A small table is in memory, and a large one is read when it is needed.
Table = pl.DataFrame | pl.LazyFrame


# Two functions of polars take the same settings. The type lets mypy check both calls.
class _Parquet(TypedDict):
    compression: Literal["zstd"]
    compression_level: int
    statistics: bool
    row_group_size: int


# Fixed settings, so that the same rows give the same bytes in every process.
PARQUET: _Parquet = {
    "compression": "zstd",
    "compression_level": 3,
    "statistics": True,
    # While it is written, a group of 5,000 rows with long texts takes about 20 MB.
    "row_group_size": 5_000,
}


# Tables that a run writes as Parquet only. Their rows follow from the rest of the run, and their
# CSV would be larger than all other files. `folkmoot export --to csv` writes them.
PARQUET_ONLY = frozenset({"provenance"})
# Spreadsheets run a cell as a formula if it begins with one of these characters. Signed numbers are
# harmless and stay unchanged.
FORMULA = r"^[=+\-@\t\r]"
SIGNED_NUMBER = r"[+-]?[\d.,]+%?"


def write_table(folder: Path, name: str, data: Table) -> Table:
    """Write `<name>.parquet` and `<name>.csv` and return the written table."""
    # The output of models is untrusted. So the CSV has an apostrophe before each text that a
    # spreadsheet would run as a formula. Tables in `PARQUET_ONLY` have no CSV. Both files are
    # written atomically.
    parquet, csv = folder / f"{name}.parquet", folder / f"{name}.csv"
    if isinstance(data, pl.DataFrame):
        write_with(parquet, lambda file: data.write_parquet(file, **PARQUET))
        if name not in PARQUET_ONLY:
            write_bytes(csv, format_csv(data))
        return data
    write_parquet(parquet, data)
    # Read the CSV from the written file. The lazy frame would compute all rows a second time.
    written = pl.scan_parquet(parquet, glob=False)
    if name not in PARQUET_ONLY:
        write_csv(csv, _escape_formulas(written))
    return written


def write_parquet(path: Path, data: pl.LazyFrame) -> None:
    """Write a table as a Parquet file."""
    write_with(path, lambda file: data.sink_parquet(file, **PARQUET))


def write_csv(path: Path, data: pl.LazyFrame) -> None:
    """Write a table as a CSV file with unchanged texts."""
    write_with(path, data.sink_csv)


def format_csv(data: pl.DataFrame) -> bytes:
    """Return the content of a table's CSV file as bytes."""
    # With formulas escaped as in `write_table`.
    return (_escape_formulas(data) if _may_have_formulas(data) else data).write_csv().encode()


def is_one_of(column: str, values: Collection[str]) -> pl.Expr:
    """Return a filter that keeps the rows with one of `values` in a column."""
    # The values are passed as one list. If they are passed one by one, polars compares each value
    # with the statistics of the file, and planning alone takes 20 ms.
    return pl.col(column).is_in(pl.Series([*values], dtype=pl.String).implode())


def escape_formula(text: str) -> str:
    """Return a text for a cell, with an apostrophe before a text that would run as a formula."""
    # One cell for files that are written line by line. Tables escape whole columns by the same
    # patterns, because a call per cell would take most of the time of writing them.
    is_formula = re.match(FORMULA, text) and not re.fullmatch(SIGNED_NUMBER, text)
    return f"'{text}" if is_formula else text


# A query of polars costs some 100 µs, and most tables of a run are small. Up to this number of
# cells, looking at each cell in Python is faster.
MAX_CELLS_READ_IN_PYTHON = 500


def _may_have_formulas(data: pl.DataFrame) -> bool:
    texts = [column for column in data if column.dtype == pl.String]
    if len(texts) * data.height > MAX_CELLS_READ_IN_PYTHON:
        return True
    return any(cell and re.match(FORMULA, cell) for column in texts for cell in column.to_list())


def _escape_formulas(data: Frame) -> Frame:
    text_columns = cs.string()
    is_formula = text_columns.str.contains(FORMULA) & ~text_columns.str.contains(
        f"^(?:{SIGNED_NUMBER})$"
    )
    return data.with_columns(
        pl.when(is_formula).then(pl.lit("'") + text_columns).otherwise(text_columns).name.keep()
    )


# A column with more distinct values, or with longer ones, is text and not a category. The codebook
# then gives only the number of values.
MAX_LEVELS = 20
MAX_LEVEL_CHARACTERS = 200

# Columns that identify conditions, and columns that identify participants who shared a
# conversation. The first one that a table has is used, so the order matters.
CONDITION_COLUMNS = ("condition", "level", "treatment", "stimulus", "concept")
CLUSTER_COLUMNS = ("set", "discussion", "group_id", "group", "replication", "session", "session_id")

# Columns that identify participants, the most reliable first.
PARTICIPANT_COLUMNS = ("participant_id", "persona_id", "member_id", "resident_id", "person", "id")

# Descriptions of the columns of the table `answers`, and of columns with one meaning in several
# tables. The classes of tables describe further columns.
ENGINE_COLUMNS: dict[str, str] = {
    "address": "position of the call in the run: scope path, kind, occurrence",
    "stage": "named part of the protocol",
    "scope": "path of the scope that asked",
    "speaker_id": "the speaker who was asked, or who spoke",
    "speaker_name": "name of the speaker as others saw it",
    "speaker_role": "role of the speaker",
    "role": "role of the speaker who was asked",
    "kind": "kind of the requested answer: text, choice, number or json",
    "value": "the parsed answer, for choices and numbers; empty if it is missing",
    "said": "the first reply, unchanged, for choices and numbers",
    "recorded": "the value, or the way out taken: none_of_these, declined or cannot_say",
    "how": "how the answer was obtained: exact (the reply is the answer), stated (the reply states "
    "exactly one), clarified (a further request was needed), refused (declined, or refused by the "
    "provider), no_reply (for example, a human let the time pass), unreadable (no answer could be "
    "read, or the provider could not process the request); empty for free text",
    "agrees": "whether the first reply names the recorded answer: same, other (another option), "
    "several, none",
    "parse_step": "parse step that could read the reply: exact, normalised, number, …, missing; "
    "own_words: lines in the names of other speakers were left out",
    "missing": "reason for a missing answer; empty if there is an answer",
    "finish": "how the reply ended: stop, length (cut by the token limit), length:model (cut by "
    "the context window of the model), refused:…, or unknown",
    "reasks": "number of re-asks",
    "options": "the options in the order in which they were shown, as JSON",
    "position": "place of the chosen option in the order shown, from 1",
    "model_asked": "the requested model",
    "answered_by": "who answered: human, synthetic (the embedded respondent) or model",
    "model_served": "the model that answered, according to the provider",
    "turn": "place in the transcript, from 1",
    "round": "repetition within the stage, from 1",
    "text": "the text of the utterance",
    "words": "number of words in the unchanged reply; in scripts without spaces, of letters",
    "condition": "arm of the design",
    "participant_id": "the participant",
}

# The columns of the table `answers` with their kinds, in order. A run takes the columns from its
# rows, so this list serves only a run that ended before its first answer.
ANSWER_COLUMNS = {
    **dict.fromkeys(("address", "stage", "scope", "speaker_id", "role", "kind"), "text"),
    **dict.fromkeys(("value", "said", "recorded", "how", "agrees", "parse_step"), "text"),
    **{"missing": "text", "reasks": "int", "options": "text", "position": "int"},
    **{"finish": "text", "words": "int", "model_asked": "text", "answered_by": "text"},
}


def build_codebook(
    tables: Mapping[str, Table], descriptions: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the codebook, which gives the type, the meaning and the range of each column.

    - `descriptions`: the meanings, by column, or by table and column.
    """
    # Also the missing cells, and the levels of a column. The meanings under a table have priority.
    own_descriptions = descriptions or {}
    return {
        name: _describe_table(data, partial(_find_meaning, own_descriptions, name))
        for name, data in tables.items()
    }


# A codebook asks two or three queries of each column. Up to this number of rows, a table on the
# disk is read once and its columns are described without queries.
MAX_ROWS_DESCRIBED_IN_MEMORY = 5_000


def _describe_table(data: Table, find_meaning: Callable[[str], str]) -> dict[str, object]:
    if isinstance(data, pl.DataFrame):
        rows = data.height
    else:
        rows = data.select(pl.len()).collect().item()
        if rows <= MAX_ROWS_DESCRIBED_IN_MEMORY:
            data = data.collect()
    return {
        "rows": rows,
        # One column at a time, because a column of texts may be large.
        "columns": {
            column: _describe_column(
                # The column may be called like a result of a query, such as `count`.
                data[column].alias("value")
                if isinstance(data, pl.DataFrame)
                else data.select(value=column),
                kind,
                find_meaning(column),
            )
            for column, kind in data.collect_schema().items()
        },
    }


def _find_meaning(own_descriptions: Mapping[str, object], table: str, column: str) -> str:
    table_descriptions = own_descriptions.get(table)
    if isinstance(table_descriptions, Mapping) and column in table_descriptions:
        return str(table_descriptions[column])
    general_description = own_descriptions.get(column)
    if isinstance(general_description, str):
        return general_description
    return ENGINE_COLUMNS.get(column, "")


def _describe_column(
    cells: pl.Series | pl.LazyFrame, kind: pl.DataType, meaning: str
) -> dict[str, object]:
    # `cells`: the column under the name `value`, or a table with this column alone.
    entry: dict[str, object] = {"type": _dtype_name(kind), "meaning": meaning}
    if kind.is_numeric():
        missing, low, high = _measure_numbers(cells)
        entry["missing"] = missing
        return entry if low is None else {**entry, "min": low, "max": high}
    missing, distinct, count_by_level = _count_values(cells)
    entry["missing"] = missing
    if not distinct:
        return entry
    if distinct <= MAX_LEVELS and all(
        len(str(level)) <= MAX_LEVEL_CHARACTERS for level in count_by_level
    ):
        return {
            **entry,
            "levels": {str(level): count_by_level[level] for level in sorted(count_by_level)},
        }
    return {**entry, "distinct": distinct}


def _measure_numbers(cells: pl.Series | pl.LazyFrame) -> tuple[Any, Any, Any]:
    # The number of missing cells, the minimum and the maximum.
    if isinstance(cells, pl.Series):
        return cells.null_count(), cells.min(), cells.max()
    column = pl.first()
    measures = column.null_count(), column.min().alias("min"), column.max().alias("max")
    missing, low, high = cells.select(measures).collect(engine="streaming").row(0)
    return missing, low, high


def _count_values(cells: pl.Series | pl.LazyFrame) -> tuple[int, int, dict[Any, int]]:
    # The numbers of missing cells and of distinct values, and the count of each value. With more
    # than `MAX_LEVELS` distinct values, there may be no counts.
    if isinstance(cells, pl.Series):
        missing = cells.null_count()
        distinct = cells.n_unique() - bool(missing)
        if distinct > MAX_LEVELS:
            return missing, distinct, {}
        count_by_value = dict(cells.value_counts().iter_rows())
        count_by_value.pop(None, None)
        return missing, distinct, count_by_value
    # Count hashes instead of texts. All texts of a run may be distinct, and they would fill the
    # memory.
    column = pl.first()
    counts = column.null_count(), column.drop_nulls().hash().n_unique().alias("distinct")
    missing, distinct = cells.select(counts).collect(engine="streaming").row(0)
    if distinct > MAX_LEVELS:
        return missing, distinct, {}
    level_counts = cells.drop_nulls().group_by(column).agg(pl.len())
    return missing, distinct, dict(level_counts.collect(engine="streaming").iter_rows())


def _dtype_name(kind: pl.DataType) -> str:
    if kind == pl.Boolean:
        return "boolean"
    if kind.is_integer():
        return "integer"
    return "float" if kind.is_float() else "text"


def condition_column(table: pl.DataFrame | pl.LazyFrame) -> str | None:
    """Return the name of the column that holds the condition.

    Returns None if the table has no such column.
    """
    return next(
        (name for name in CONDITION_COLUMNS if name in table.collect_schema()),
        None,
    )


def has_endings(table: pl.DataFrame | pl.LazyFrame) -> bool:
    """Return whether the columns of a table say how each row ended: both `ENDING_COLUMNS`.

    Other values than `ENDINGS` in the column `status` mean something else.
    """
    return {*ENDING_COLUMNS} <= {*table.collect_schema().names()} and is_ending_status(table)


def is_ending_status(table: pl.DataFrame | pl.LazyFrame) -> bool:
    """Return whether all known values of the column `status` are endings."""
    if table.collect_schema().get("status") != pl.String:
        return False
    known = table.lazy().select(pl.col("status").drop_nulls()).collect()["status"]
    return not known.is_empty() and bool(known.is_in(ENDINGS).all())


def cluster_column(table: pl.DataFrame) -> str | None:
    """Return the name of the column that holds the conversation.

    Returns None if the table has no such column.
    """
    return next(
        (name for name in CLUSTER_COLUMNS if name in table.columns),
        None,
    )


# The values of the column `status` in a table that says how each of its rows ended.
COMPLETE = "complete"
ENDINGS = (COMPLETE, "failed", "skipped", "pending")
# The two columns of such a table. A study type may record a `status` that means something else, so
# the column alone says nothing about the rows.
ENDING_COLUMNS = ("status", "error_message")

# Participants with the same value in this column read the same draw of the summaries. With fewer
# than five draws, nothing can be inferred about other draws.
DRAW, FEWEST_DRAWS = "summary_draw", 5
DRAWS = "draw of the summaries"
# The units of several conditions if only some of them read the texts.
DRAWS_OR_OWN = f"{DRAWS} (participant in conditions that read none)"


class Units(NamedTuple):
    """The independent units of a table."""

    # The noun for a unit.
    name: str
    # The unit of each row as text.
    of: pl.Series


def units_of(
    table: pl.DataFrame,
    fewest_draws: int = FEWEST_DRAWS,
    unit_column: str = "",
    subject: Sequence[str] = (),
) -> Units:
    """Return the independent unit of each row, such as the group that talked.

    - `fewest_draws`: the smallest number of draws (versions of the same summary) that are units.
    - `unit_column`: the column that holds the conversation. Empty: the first of `CLUSTER_COLUMNS`.
    - `subject`: the columns that identify the observed subject. Empty: the first of
      `PARTICIPANT_COLUMNS`.
    """
    # A study may draw several versions of the same summary and show each participant one of them.
    # With enough draws, all participants with the same draw are one unit. Otherwise all
    # participants who share a conversation are one unit. Without shared conversations each
    # subject is a unit. In a table without subjects each row is a unit.
    rows = pl.int_range(table.height, eager=True).cast(pl.String)
    id_column = next(
        (name for name in PARTICIPANT_COLUMNS if name in table.columns),
        None,
    )
    unit_of_row = rows if id_column is None else table[id_column].cast(pl.String)
    if DRAW in table.columns and table[DRAW].drop_nulls().n_unique() >= fewest_draws:
        draw = table[DRAW].cast(pl.String)
        return Units(DRAWS, _shared_or_own("draw " + draw, unit_of_row))
    shared_column = unit_column or cluster_column(table)
    if shared_column is not None:
        shared_units = _shared_or_own(table[shared_column].cast(pl.String), unit_of_row)
        return Units(shared_column.removesuffix("_id"), shared_units)
    if _are_rows_of_subjects(table, subject, id_column):
        name = " and ".join(column.removesuffix("_id") for column in subject)
        texts = (pl.col(column).cast(pl.String) for column in subject)
        # A row without a subject is one of its own.
        names = table.select(unit=pl.concat_str(*texts, separator="/"))["unit"]
        return Units(name, _shared_or_own(names, rows))
    if id_column is None:
        return Units("row", rows.rename("unit"))
    # A table with rows without a participant is counted by rows.
    if table[id_column].has_nulls():
        return Units("row", rows.rename("unit"))
    name = "participant" if id_column == "id" else id_column.removesuffix("_id")
    return Units(name, unit_of_row.rename("unit"))


def _are_rows_of_subjects(
    table: pl.DataFrame, subject: Sequence[str], id_column: str | None
) -> bool:
    # Whether the named subjects are the units, and not the values of a column with a usual name.
    # Such a column may hold ids of rows, or be unknown in some rows.
    if not subject or id_column is None:
        return bool(subject)
    if table[id_column].has_nulls():
        return True
    ids = pl.struct(*dict.fromkeys((*subject, id_column)))
    is_finer = table.select(ids.n_unique() > pl.struct(*subject).n_unique()).item()
    return id_column not in subject and bool(is_finer)


def join_unit_names(names: Iterable[str]) -> str:
    """Return the noun for the units of several comparisons."""
    distinct = dict.fromkeys(names)
    # Where some conditions read drawn texts, those of the others are participants.
    if len(distinct) > 1 and {DRAWS, DRAWS_OR_OWN} & {*distinct}:
        others = [name for name in distinct if name not in (DRAWS, DRAWS_OR_OWN, "participant")]
        return " or ".join([DRAWS_OR_OWN, *others])
    return " or ".join(distinct)


def _shared_or_own(shared: pl.Series, own: pl.Series) -> pl.Series:
    columns = pl.DataFrame({"shared": shared, "own": own})
    # A participant's id may equal the name of a group, for example if both are numbers.
    alone = pl.when(pl.col("shared").is_null()).then(pl.format("alone {}", "own"))
    return columns.select(unit=alone.otherwise("shared"))["unit"]
