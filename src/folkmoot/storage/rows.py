"""A table declared as a class: columns, their types and what they mean, in one place.

    class Vote(Row, table="votes"):
        round: int
        choice: str | None = column("the option chosen; empty when the vote could not be read")

    scope.record(Vote(round=1, choice="Park"))

Studies list their rows in `Study.tables`; the codebook and tables without rows come from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from types import NoneType
from typing import Any, ClassVar, Self, dataclass_transform, get_args, get_type_hints

NON_TEXT_TYPES = (bool, int, float)  # any other type is text; lists and mappings become JSON


def column(description: str, *, default: Any = MISSING) -> Any:
    """A column with its meaning for the codebook. Columns without one are the engine's own words
    (`condition`, `round`, …)."""
    return field(default=default, metadata={"meaning": description})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(column,))
class Row:
    """One row of a table. Subclasses are frozen dataclasses; columns stand in their order, those
    of a base class first. `key` names the columns that tell a row from all others; the sources of
    texts in prompts name rows by it (`folkmoot.provenance`)."""

    table: ClassVar[str] = ""
    key: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls, *, table: str = "", key: tuple[str, ...] = (), **more: object
    ) -> None:
        super().__init_subclass__(**more)
        cls.table = table or cls.table
        cls.key = key or cls.key
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def from_source(cls, source: object, /, **cells: object) -> Self:
        """The row of these `cells` and, for every other column, what `source` has under its name:
        an attribute of an object, or an entry of a mapping. A column that `source` lacks has its
        default."""
        known: dict[str, Any] = dict(cells)
        has = source.__contains__ if isinstance(source, Mapping) else partial(hasattr, source)
        get = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
        for name in cls.columns():
            if name not in known and has(name):
                known[name] = get(name)
        return cls(**known)

    def cells(self) -> Mapping[str, object]:
        """Column → cell, in the order of the columns."""
        return vars(self)

    @classmethod
    @cache  # types are looked up by name, which takes long for a row of each round
    def columns(cls) -> Mapping[str, str]:
        """Column → "bool", "int", "float" or "text"."""
        hints = get_type_hints(cls)
        return {f.name: _column_kind(hints[f.name]) for f in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def column_meanings(cls) -> dict[str, str]:
        """Column → meaning, of those that say one."""
        said = {f.name: f.metadata.get("meaning", "") for f in fields(cls)}  # type: ignore[arg-type]
        return {name: meaning for name, meaning in said.items() if meaning}


def columns_of_class(tables: Iterable[type[Row]]) -> dict[str, Mapping[str, str]]:
    """Table → column → kind."""
    return {row.table: row.columns() for row in tables}


def column_meanings(tables: Iterable[type[Row]]) -> dict[str, dict[str, str]]:
    """Table → column → meaning."""
    return {row.table: row.column_meanings() for row in tables}


def _column_kind(hint: object) -> str:
    kinds = set(get_args(hint) or (hint,)) - {NoneType}
    for kind in NON_TEXT_TYPES:
        if kinds == {kind}:
            return kind.__name__
    return "float" if kinds == {int, float} else "text"
