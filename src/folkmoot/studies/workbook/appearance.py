"""What a sheet looks like beyond its cells: merged ranges, and what is hidden from sight.

A person reads a merged cell as one value for all its rows, and takes hidden rows for gone. The
first is read so, the second is not; either way `check` says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from openpyxl.utils import get_column_letter, range_boundaries

from folkmoot.errors import InputError, Problem

MAX_MERGED = 20_000
MAX_RANGES = 20
_BLOCK = 1 << 16


@dataclass(slots=True)
class Look:
    """`merged`: (first column, first row, last column, last row), all from 1."""

    hidden: bool = False
    filtered: bool = False
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[tuple[int, int]] = field(default_factory=list)


def look_at(sheet: Any) -> Look:
    """The look of a sheet that openpyxl opened for reading; no tree is built of it."""
    look = Look(hidden=sheet.sheet_state != "visible")
    row = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal row
        tag = name.rpartition("}")[2]
        if tag == "row":
            row = int(attributes.get("r", row + 1))
            if _hidden(attributes, "ht"):
                look.rows.append(row)
        elif tag == "col" and _hidden(attributes, "width"):
            look.columns.append((int(attributes["min"]), int(attributes["max"])))
        elif tag == "filterColumn":
            look.filtered = True
        elif tag == "mergeCell":
            look.merged.append(_bounds(attributes["ref"]))
            if len(look.merged) > MAX_MERGED:
                raise InputError(
                    Problem(f"more than {MAX_MERGED:,} merged ranges", where=sheet.title)
                )

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    with sheet._get_source() as source:  # openpyxl has no public way to a sheet's own XML
        while block := source.read(_BLOCK):
            parser.Parse(block)
        parser.Parse(b"", True)
    return look


def _hidden(attributes: dict[str, str], size: str) -> bool:
    return attributes.get("hidden") in ("1", "true") or float(attributes.get(size, 1)) == 0


def _bounds(ref: str) -> tuple[int, int, int, int]:
    left, top, right, bottom = range_boundaries(ref)
    if left is None or top is None or right is None or bottom is None:
        raise ValueError(f"{ref} is no range")
    return left, top, right, bottom


def hidden_notes(
    name: str, look: Look, filled: Collection[int], columns: Collection[int]
) -> Iterator[str]:
    """What is out of sight and read all the same, of the rows and columns that hold values."""
    if look.hidden:
        yield f"the sheet {name} is hidden in the spreadsheet; it is read all the same"
    rows = sorted(set(look.rows) & set(filled))
    if rows:
        by = "hidden by a filter" if look.filtered else "hidden"
        yield (
            f"{name}: {rows_in_words(rows)} {by} in the spreadsheet; read all the same "
            "(delete what should not take part)"
        )
    shut = [get_column_letter(c) for c in sorted(columns) if _within(c, look.columns)]
    if shut:
        what = f"column{'s' * (len(shut) > 1)} {', '.join(shut)}"
        yield f"{name}: {what} hidden in the spreadsheet; read all the same"


def _within(column: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= column <= last for first, last in ranges)


def rows_in_words(rows: Iterable[int], most: int = MAX_RANGES) -> str:
    """Row numbers as `row 3` or `rows 3–5, 9`; of more ranges than `most` the first are named."""
    ranges: list[list[int]] = []
    for row in sorted(rows):
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1][1] = row
        else:
            ranges.append([row, row])
    shown = [str(a) if a == b else f"{a}–{b}" for a, b in ranges[:most]]
    more = sum(b - a + 1 for a, b in ranges[most:])
    tail = f" and {more:,} more" if more else ""
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'row' if one else 'rows'} {', '.join(shown)}{tail}"
