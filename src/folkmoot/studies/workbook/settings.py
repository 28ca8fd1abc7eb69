"""The settings sheet: the canonical keys, each typed, each mistake with its cell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rapidfuzz import fuzz, process

from folkmoot.studies.workbook.layouts import SHORT, Layout, names_for
from folkmoot.studies.workbook.model import Settings
from folkmoot.studies.workbook.sheets import Cell, Sheet
from folkmoot.studies.workbook.tables import (
    Problems,
    as_bool,
    as_integer,
    as_number,
    header_row,
    one_of,
)

MAX_ID = 100
UNSAFE = re.compile(r'[\x00-\x1f<>:"/\\|?*]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
STRATEGIES = {
    "treatment_assignment_strategy": ("simple_random", "complete_random", "manual"),
    "session_assignment_strategy": ("random", "manual"),
    "role_assignment_strategy": ("random", "manual"),
}


@dataclass(frozen=True)
class _Keys:
    """The values of the sheet by our key, with helpers that report what is wrong."""

    sheet: Sheet
    layout: Layout
    column: int
    cells: dict[str, Cell]
    rows: dict[str, int]
    problems: Problems

    def at(self, key: str) -> str:
        return self.sheet.at(self.rows.get(key, 1), self.column)

    def report(self, key: str, expected: str) -> None:
        if key not in self.rows:
            return  # the missing key is reported already
        cell = self.cells.get(key)
        what = "is blank" if cell is None else f"is {cell.text!r}"
        self.problems.add(f"{self.layout.setting(key)} {what}", self.at(key), mend=expected)

    def text(self, key: str, expected: str, default: str = "") -> str:
        if key not in self.cells:
            self.report(key, expected)
            return default
        return self.cells[key].text

    def optional(self, key: str) -> str | None:
        cell = self.cells.get(key)
        return cell.text if cell else None

    def count(self, key: str, default: int) -> int:
        value = as_integer(self.cells.get(key))
        if value is None or value < 1 or value > 1_000_000:
            self.report(key, "write a whole number of at least 1")
            return default
        return value

    def choice(self, key: str, default: str) -> str:
        choices = STRATEGIES[key]
        text = self.text(key, f"write one of {', '.join(choices)}")
        if not text:
            return default
        title = self.layout.setting(key)
        return one_of(text, choices, title, self.at(key), self.problems) or default

    def boolean(self, key: str, default: bool) -> bool:
        if key not in self.cells:
            if key not in self.layout.optional:
                self.report(key, "write True or False")
            return default
        value = as_bool(self.cells[key])
        if value is None:
            self.report(key, "write True or False")
            return default
        return value


def read_settings(sheet: Sheet, layout: Layout, problems: Problems) -> Settings:
    """The settings with their types; what is wrong or missing is reported and replaced."""
    keys = _read_keys(sheet, layout, problems)
    limit = "max_rounds" if layout is SHORT else "max_conversation_length"
    values: dict[str, Any] = {
        "experiment_id": _experiment_id(keys),
        "model_info": keys.text("model_info", "name a model, e.g. gpt-4o-mini", "synthetic"),
        "api_endpoint": keys.optional("api_endpoint"),
        "temperature": _temperature(keys),
        "num_agents_per_session": keys.count("num_agents_per_session", 1),
        "num_sessions": keys.count("num_sessions", 1),
        limit: keys.count("max_conversation_length", 1_000_000),
        "random_seed": _seed(keys),
        "include_backstories": keys.boolean("include_backstories", False),
        "at": {key: keys.at(key) for key in keys.rows},
        **layout.fixed,
    }
    if "show_profile" in layout.more_settings:
        values["show_profile"] = keys.boolean("show_profile", True)
    for key in STRATEGIES:
        values[key] = keys.choice(key, "complete_random" if "treatment" in key else "random")
        column = key.replace("_assignment_strategy", "_column")
        values[column] = keys.optional(column)
    return Settings(**values)


def _read_keys(sheet: Sheet, layout: Layout, problems: Problems) -> _Keys:
    top = header_row(sheet, (layout.settings_header, "value"), problems)
    header = {n: cell.text.casefold() for n, cell in sheet.rows.get(top, {}).items()}
    left = next((n for n, text in header.items() if text == layout.settings_header), 1)
    right = left + 1
    for column, title in ((left, layout.settings_header), (right, "value")):
        if header.get(column, "") != title:
            problems.add(
                f"the header should be {title}", sheet.at(top, column), mend=f"write {title}"
            )
    cells: dict[str, Cell] = {}
    rows: dict[str, int] = {}
    unknown: dict[int, str] = {}
    by_name = {alias: k for k in layout.keys for alias in names_for(layout.setting(k))}
    by_name |= {layout.setting(k): k for k in layout.keys}
    for number, row in sorted(sheet.rows.items()):
        if number < top:
            continue
        for column in sorted(set(row) - {left, right}):
            problems.add(
                "nothing belongs beside the value", sheet.at(number, column), mend="clear it"
            )
        if number == top or not (left in row or right in row):
            continue
        name = row[left].text if left in row else ""
        key = by_name.get(name)
        if key is None:
            unknown[number] = name
        elif key in rows:
            problems.add(f"{name} stands there twice", sheet.at(number, left), mend="keep one row")
        else:
            rows[key] = number
            if right in row:
                cells[key] = row[right]
    _report_keys(sheet, layout, left, rows, unknown, problems)
    return _Keys(sheet, layout, right, cells, rows, problems)


def _report_keys(
    sheet: Sheet,
    layout: Layout,
    left: int,
    rows: dict[str, int],
    unknown: dict[int, str],
    problems: Problems,
) -> None:
    for key in layout.keys:
        if key in rows or key in layout.optional:
            continue
        title = layout.setting(key)
        guess = process.extractOne(
            title, unknown, scorer=fuzz.ratio, processor=str.casefold, score_cutoff=80
        )
        mend = f"add a row {title}"
        if guess:
            mend = f"rename {guess[0]!r} in {sheet.at(guess[2], left)} to {title}"
            del unknown[guess[2]]
        problems.add(f"the setting {title} is missing", sheet.name, mend=mend)
    for number, name in unknown.items():
        message = f"there is no setting {name!r}" if name else "the value has no key"
        problems.add(message, sheet.at(number, left), mend="delete the row")


def _experiment_id(keys: _Keys) -> str:
    text = keys.text("experiment_id", "give the experiment a name", "experiment")
    if len(text) > MAX_ID or UNSAFE.search(text) or text.startswith((".", "-", "~")):
        keys.report(
            "experiment_id",
            f'it names files: at most {MAX_ID} characters, none of them / \\ : * ? " < > |',
        )
        return "experiment"
    if _RESERVED.fullmatch(text) or text.endswith((".", " ")):
        keys.report("experiment_id", "it names files: choose another name")
        return "experiment"
    return text


def _temperature(keys: _Keys) -> float:
    value = as_number(keys.cells.get("temperature"))
    if value is None or not 0 <= value <= 2:
        keys.report("temperature", "write a number from 0 to 2")
        return 0.0
    return value


def _seed(keys: _Keys) -> int:
    if "random_seed" not in keys.cells:
        return 42
    value = as_integer(keys.cells["random_seed"])
    if value is None or value < 0:
        keys.report("random_seed", "write a whole number of at least 0, or leave it blank")
        return 42
    return value
