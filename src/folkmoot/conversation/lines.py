"""Who said what, in one form: rows of tables, tags and records read as “Ann: words”.

Prompts lay out what was said as their authors like: `| Ann | words |`, `<by name="Ann">words</by>`,
`{"name": "Ann", "words": "…"}`, `[3] Ann » words`. Whoever looks for them reads one form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby

_VALUES = r"(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"\n]*\"|'[^'\n]*'))*"
_NAME = r"[^\W\d_][\w.-]*"
_ELEMENT = re.compile(rf"<({_NAME})({_VALUES})\s*>[ \t]*\n?([^\n<>]+?)\s*</\1\s*>")
_TAG = re.compile(rf"</?({_NAME})({_VALUES})\s*/?>")
_VALUE = re.compile(r"=\s*([\"'])(.*?)\1")
_ROW = re.compile(r"^\s*\|(.+)\|\s*$")
_COLUMN = re.compile(r"\s*(?<!\\)\|\s*")
_RULE = re.compile(r"[\s|:+=-]+")
_NOTHING = re.compile(r"[-–—/.?]+|n/a|none", re.IGNORECASE)
_NUMBER = re.compile(r"\W*\d{1,3}\W*")
# A mark between a name and words that running text seldom has.
_MARKED = re.compile(r"^(\W*(?:\d+\W+)?\w[^\n:»›→⇒|]{0,60}?)\s*(?:[»›→⇒|]+|[=-]>)\s+(?=\S)")
LONG = 4  # words of what was said, at least; with fewer, a cell may be a name


def plain(text: str) -> str:
    """The text with each row, tag and record that says something of somebody as “Ann: words”; all
    other lines stay as they are."""
    if not any(mark in text for mark in "<>|{»›→⇒"):
        return text
    text = _ELEMENT.sub(lambda m: _titled(_label(m[1], m[2]), m[3]), text)
    lines = _TAG.sub(lambda m: _titled(_label(m[1], m[2]), ""), text).splitlines()
    rules = {n for n, line in enumerate(lines) if {"|", "-"} <= {*line} and _RULE.fullmatch(line)}
    # A table's heading says what is in its columns, and nothing of anybody.
    kept = [(line, n + 1 in rules) for n, line in enumerate(lines) if n not in rules]
    cells = [[] if heading else _cells(line) for line, heading in kept]
    said: list[str] = []
    for columns, rows in groupby(zip(cells, kept, strict=True), lambda row: len(row[0])):
        if columns:
            said += _told([row for row, _ in rows])
        else:
            said += [
                ", ".join(_COLUMN.split(line.strip("| ")))
                if heading
                else _MARKED.sub(r"\1: ", line)
                for _, (line, heading) in rows
            ]
    return "\n".join(said)


def _label(tag: str, values: str) -> str:
    """What a tag says of its content: its values; its name where that is somebody's."""
    said = [value for _, value in _VALUE.findall(values)]
    return ", ".join(said or [tag] * tag[0].isupper())


def _titled(label: str, words: str) -> str:
    return f"{label}: {words}".rstrip() if label else words


def _cells(line: str) -> list[str]:
    """The cells of a row, the values of a flat record; else none."""
    if row := _ROW.match(line):
        cells = [cell.strip(" *_`") for cell in _COLUMN.split(row[1])]
        return ["" if _NOTHING.fullmatch(cell) else cell for cell in cells]
    bare = line.strip(" ,-")
    if not (bare.startswith("{") and bare.endswith("}")):
        return []
    try:
        values = list(json.loads(bare).values())
    except (ValueError, AttributeError):
        return []
    return [str(v) for v in values] if all(isinstance(v, str | int) for v in values) else []


def _told(rows: Sequence[list[str]]) -> list[str]:
    """Each row as one line: what stands before the words is their label, what stands behind follows
    in brackets. The words are the column with most of them, or the second where all are short."""
    if len(rows[0]) > 2 and all(_NUMBER.fullmatch(row[0]) for row in rows):
        rows = [row[1:] for row in rows]
    if len(rows[0]) < 2:
        return [f"- {row[0]}" for row in rows]
    sizes = [[len(cell.split()) for cell in column] for column in zip(*rows, strict=True)]
    longest = max(range(len(sizes)), key=lambda n: (sum(sizes[n]), n))
    at = longest if longest and max(sizes[longest]) >= LONG else 1
    return [
        _titled(", ".join(filter(None, row[:at])), row[at])
        + (f" ({behind})" if (behind := "; ".join(filter(None, row[at + 1 :]))) else "")
        for row in rows
    ]
