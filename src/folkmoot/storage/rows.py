"""`Row`, the base class for tables. A subclass declares the columns, their types and meanings.

    class Vote(Row, table="votes"):
        round: int
        choice: str | None = column("the option chosen; empty when the vote could not be read")

    scope.record(Vote(round=1, choice="Park"))

Studies list their row classes in `Study.tables`.
"""

# The codebook, and tables without rows, are made from these classes.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from types import NoneType
from typing import Any, ClassVar, Self, dataclass_transform, get_args, get_type_hints

# All other types become text. Lists and mappings become JSON.
NON_TEXT_TYPES = (bool, int, float)


@dataclass(frozen=True, slots=True)
class ComputedWords:
    """The rule by which a study computes the text of a column from a value in a JSON reply."""

    # `words(reply[key])`, such as "strongly in favour", made from the value of `position`.

    key: str
    # Returns the words. The reply is the one that the row names in its column `utterance_id`.
    words: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class AnswerRange:
    """The numbers that an answer may have. A bound that does not exist is infinite."""

    is_integer: bool
    low: float
    high: float

    def widened(self, other: AnswerRange) -> AnswerRange:
        """Return the range of an answer that may have the numbers of either range."""
        return AnswerRange(
            self.is_integer and other.is_integer,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def finite_bounds(self) -> list[float]:
        """Return the bounds that exist."""
        return [bound for bound in (self.low, self.high) if math.isfinite(bound)]


def column(
    description: str,
    *,
    default: Any = MISSING,
    computed: ComputedWords | None = None,
    between: tuple[float, float] | None = None,
) -> Any:
    """Declare a column with its description for the codebook.

        choice: str | None = column("the option chosen")

    - `default`: the value of the column in a row that gives no value.
    - `computed`: the rule by which the study computes the text of the column from a reply. Needed
      if prompts show this text.
    - `between`: the lowest and the highest number that the column may hold. A comparison with
      people refuses other numbers in their table.
    """
    # The engine itself describes common columns, such as `round`. A control computes the words
    # again.
    metadata = {"meaning": description, "computed": computed, "between": between}
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(column,))
class Row:
    """One row of a table. The fields of a subclass are the columns of the table.

    class Vote(Row, table="votes"):
        round: int
        choice: str | None = column("the option chosen")
    """

    # Subclasses are frozen dataclasses. Fields of a base class come first.

    table: ClassVar[str] = ""
    # The columns that identify a row. The sources of texts in prompts refer to rows by this key
    # (`folkmoot.provenance`).
    key: ClassVar[tuple[str, ...]] = ()
    # The protocol computes the rows from replies, such as the result of a game. If a prompt shows
    # such a value, a control runs the session again.
    from_replies: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        table: str = "",
        key: tuple[str, ...] = (),
        from_replies: bool = False,
        **options: object,
    ) -> None:
        super().__init_subclass__(**options)
        cls.table = table or cls.table
        cls.key = key or cls.key
        cls.from_replies = from_replies or cls.from_replies
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def from_source(cls, source: object, /, **cells: object) -> Self:
        """Return a row with the given `cells`. All other columns are read from `source`.

        - `source`: an object with attributes, or a mapping.

        A column that is neither in `cells` nor in `source` gets its default.
        """
        known_cells: dict[str, Any] = dict(cells)
        has = source.__contains__ if isinstance(source, Mapping) else partial(hasattr, source)
        get = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
        for name in cls.columns():
            if name not in known_cells and has(name):
                known_cells[name] = get(name)
        return cls(**known_cells)

    def cells(self) -> Mapping[str, object]:
        """Return the values of the row by column, in the order of the columns."""
        return vars(self)

    @classmethod
    # Resolving the annotations of a class is slow, and it is done for each recorded row.
    @cache
    def columns(cls) -> Mapping[str, str]:
        """Return the kind of each column: "bool", "int", "float" or "text"."""
        hints = get_type_hints(cls)
        names = [data_field.name for data_field in fields(cls)]  # type: ignore[arg-type]
        return {name: _column_kind(hints[name]) for name in names}

    @classmethod
    def column_meanings(cls) -> dict[str, str]:
        """Return the descriptions of the columns, without columns that have no description."""
        meanings = {
            data_field.name: data_field.metadata.get("meaning", "")
            for data_field in fields(cls)  # type: ignore[arg-type]
        }
        return {name: meaning for name, meaning in meanings.items() if meaning}

    @classmethod
    def column_ranges(cls) -> dict[str, AnswerRange]:
        """Return the numbers that columns may hold, for columns that declare them."""
        kinds = cls.columns()
        bounds = {
            data_field.name: data_field.metadata.get("between")
            for data_field in fields(cls)  # type: ignore[arg-type]
        }
        return {
            name: AnswerRange(kinds[name] == "int", *between)
            for name, between in bounds.items()
            if between
        }

    @classmethod
    def computed_columns(cls) -> dict[str, ComputedWords]:
        """Return, by column, the rule that computes the text of the column from a reply."""
        computed = {
            data_field.name: data_field.metadata.get("computed")
            for data_field in fields(cls)  # type: ignore[arg-type]
        }
        return {name: words for name, words in computed.items() if words is not None}


def columns_of_class(tables: Iterable[type[Row]]) -> dict[str, Mapping[str, str]]:
    """Return the kind of each column, such as "int", by table and column."""
    return {row.table: row.columns() for row in tables}


def column_meanings(tables: Iterable[type[Row]]) -> dict[str, dict[str, str]]:
    """Return the description of each column, by table and column."""
    return {row.table: row.column_meanings() for row in tables}


def column_ranges(tables: Iterable[type[Row]]) -> dict[str, AnswerRange]:
    """Return the numbers that columns may hold, the widest range if tables differ.

    A column that one of the tables has without a range may hold any number.
    """
    ranges: dict[str, AnswerRange] = {}
    without_range = set[str]()
    for row in tables:
        own_ranges = row.column_ranges()
        without_range |= row.columns().keys() - own_ranges.keys()
        for name, own in own_ranges.items():
            ranges[name] = own.widened(ranges.get(name, own))
    return {name: own for name, own in ranges.items() if name not in without_range}


def _column_kind(hint: object) -> str:
    kinds = set(get_args(hint) or (hint,)) - {NoneType}
    for kind in NON_TEXT_TYPES:
        if kinds == {kind}:
            return kind.__name__
    # A column of `int | float` may hold both, so it is stored as float.
    return "float" if kinds == {int, float} else "text"
