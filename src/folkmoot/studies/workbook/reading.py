"""From cells to the internal model: every sheet read, every mistake collected, nothing guessed.

`read_workbook` is the one way in. A cell that is wrong is reported and replaced by a harmless
value, so that the checks of the design as a whole can still run and all mistakes come at once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openpyxl.utils import get_column_letter

from folkmoot.errors import Problem
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import nearest
from folkmoot.studies.workbook.config import (
    FACILITATOR,
    Computed,
    ComputedScope,
    Constant,
    Profiles,
    Role,
    Settings,
    Task,
    TaskType,
    Treatment,
    VarType,
    Workbook,
)
from folkmoot.studies.workbook.layouts import (
    COLUMNS,
    COMPUTED,
    MAX_ABOVE,
    NOTES_SHEET,
    SHEETS,
    SHORT,
    Layout,
    Problems,
    Row,
    as_bool,
    as_integer,
    as_number,
    describe,
    gap_note,
    header_row,
    names_for,
    note_above,
    one_of,
    read_table,
    recognise,
    report_hidden,
    sheet_problems,
    unique,
)
from folkmoot.studies.workbook.literals import (
    NotALiteral,
    is_scalar,
    looks_like_dict,
    read_literal,
    scalar_text,
)
from folkmoot.studies.workbook.sheets import Cell, Sheet, read_book, rows_in_words

MAX_ROWS_OF_ONE_KIND = 20


def read_profiles(sheet: Sheet, problems: Problems) -> Profiles:
    """Short names, below them the questions, then one respondent a row; everything stays text."""
    top = names_row(sheet, problems)
    names = {c: cell.text for c, cell in sheet.rows.get(top, {}).items()}
    questions = {c: cell.text for c, cell in sheet.rows.get(top + 1, {}).items()}
    data = {n: cells for n, cells in sorted(sheet.rows.items()) if n > top + 1}
    used = sorted({c for cells in data.values() for c in cells} | set(names) | set(questions))
    columns = [c for c in used if c in names]
    titles = [names[c] for c in columns]
    asked = tuple(questions.get(c, names[c]) for c in columns)
    _check_header(sheet, top, names, questions, used, problems)
    profiles = Profiles(
        names=tuple(titles),
        questions=asked,
        rows=tuple(
            tuple(without_hidden(cells[c].text) if c in cells else "" for c in columns)
            for cells in data.values()
        ),
        lines=tuple(data),
        columns=tuple(get_column_letter(c) for c in columns),
        sheet=sheet.name,
    )
    for row in (top, top + 1):
        for c in columns:
            report_hidden(sheet, row, c, problems)
    if "ID" not in profiles.titles:
        near = next((t for t in titles if t.casefold() == "id"), None)
        mend = f"rename {near!r} to 'ID'" if near else "name the column of identifiers ID"
        where = sheet.at(top, 1)
        problems.add(f"there is no column named ID in row {top} or {top + 1}", where, mend=mend)
        problems.structural = True
        return profiles
    column = columns[profiles.id_column]
    for row in data:
        report_hidden(sheet, row, column, problems)
    if names[column] != "ID":
        problems.notes.append(
            f"{sheet.at(top + 1, column)}: the column {names[column]} holds the IDs, as row "
            f"{top + 1} says"
        )
    if not data:
        problems.add("there is no respondent", sheet.at(top + 2, 1), mend="add rows from there on")
    _check_questions(sheet, top + 1, column, data, problems)
    _check_ids(profiles, problems)
    _note_rows(profiles, problems)
    gap_note(sheet, data, problems)
    return profiles


def names_row(sheet: Sheet, problems: Problems) -> int:
    """The row of the short names: 1, or further down where ID is named there.

    Some workbooks have ID among the questions only; then the short names are one row above.
    """

    def has_id(row: int) -> bool:
        return any(cell.text == "ID" for cell in sheet.rows.get(row, {}).values())

    found = next((row for row in sorted(sheet.rows)[:MAX_ABOVE] if has_id(row)), 1)
    above = len(sheet.rows.get(found - 1, {}))
    if not has_id(found + 1) and 2 * above > len(sheet.rows.get(found, {})):
        found -= 1
    note_above(sheet, found, problems)
    return found


def _check_header(
    sheet: Sheet,
    top: int,
    names: Mapping[int, str],
    questions: Mapping[int, str],
    used: list[int],
    problems: Problems,
) -> None:
    if names and not questions:
        problems.add(
            f"row {top + 1} is empty; the questions belong there",
            sheet.at(top + 1, min(names)),
            mend="write each question as it was asked",
        )
    for column in used:
        if column not in names:
            problems.add(
                f"the column has no name in row {top}",
                sheet.at(top, column),
                mend="name it or clear it",
            )
        elif questions and column not in questions:
            problems.add(
                f"the column {names[column]} has no question in row {top + 1}",
                sheet.at(top + 1, column),
                mend="write the question as it was asked",
            )
    seen: set[str] = set()
    for column, title in sorted(names.items()):
        if title in seen:
            problems.add(
                f"the name {title!r} stands in row {top} twice",
                sheet.at(top, column),
                mend="rename",
            )
        seen.add(title)


def _check_questions(
    sheet: Sheet, row: int, column: int, data: Mapping[int, Mapping[int, Cell]], problems: Problems
) -> None:
    """Without a row of questions the first respondent would be taken for one."""
    asked = as_number(sheet.rows.get(row, {}).get(column))
    ids = [as_number(cells.get(column)) for cells in data.values()]
    if asked is not None and ids and None not in ids:
        problems.add(
            f"row {row} must hold the questions, but it looks like a respondent",
            sheet.at(row, column),
            mend=f"insert a row {row} with the questions as they were asked",
        )


def _check_ids(profiles: Profiles, problems: Problems) -> None:
    seen: dict[str, str] = {}
    reported = 0
    for i, identifier in enumerate(profiles.ids()):
        where = profiles.cell(i, profiles.id_column)
        if not identifier:
            message, mend = "the respondent has no ID", "fill in the cell or clear the row"
        elif identifier in seen:
            message = f"the ID {identifier!r} stands there twice"
            mend = (
                f"it is in {seen[identifier]} as well; make them differ, and format the column as "
                "text where 3.1 and 3.10 are two"
            )
        else:
            seen[identifier] = where
            continue
        reported += 1
        if reported <= MAX_ROWS_OF_ONE_KIND:
            problems.add(message, where, mend=mend)
    if reported > MAX_ROWS_OF_ONE_KIND:
        problems.add(
            f"{reported - MAX_ROWS_OF_ONE_KIND} more respondents have a missing or repeated ID",
            profiles.sheet,
            mend="mend the column ID",
        )
    problems.notes += [
        f"{seen[labels[-1]]}: the IDs {' and '.join(map(repr, labels))} look alike; they are "
        "different respondents"
        for labels in look_alikes(list(seen))[:MAX_ROWS_OF_ONE_KIND]
    ]


def look_alikes(labels: Sequence[str]) -> list[list[str]]:
    """Different labels that a person would take for one, together."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(_folded(label), {})[label] = None
    return [list(group) for group in groups.values() if len(group) > 1]


def _folded(text: str) -> str:
    """The same for labels that a person would take for one: P1 and p1, 1 and 1.0 and 01."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    try:
        return f"{float(plain):g}"
    except ValueError:
        return plain


def _note_rows(profiles: Profiles, problems: Problems) -> None:
    """A footnote below the table becomes a respondent who answered nothing: say so."""
    if len(profiles.names) == 1:
        return
    bare = [n for n, row in zip(profiles.lines, profiles.rows, strict=True) if _bare(row)]
    if bare and len(bare) < len(profiles.rows):
        problems.notes.append(
            f"{profiles.sheet}: {rows_in_words(bare)} with one filled cell only, read as "
            "respondents all the same"
        )


def _bare(row: tuple[str, ...]) -> bool:
    return sum(map(bool, row)) == 1


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
        guess = nearest(title, unknown.values())
        mend = f"add a row {title}"
        if guess:
            row = next(number for number, name in unknown.items() if name == guess)
            mend = f"rename {guess!r} in {sheet.at(row, left)} to {title}"
            del unknown[row]
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


TASK_TYPES = ("context", "discussion", "public_question", "private_question")
REPEATED = ("repeat_public_question", "repeat_private_question")
VAR_TYPES = ("category", "integer", "float")
FREE_TEXT = ("freetext", "text", "string")  # how other layouts say that the type is left open


def read_workbook(path: Path) -> tuple[Workbook | None, list[Problem]]:
    """The model of a file and all mistakes in it; no model when sheets or columns are missing.

    Raises InputError when the file cannot be opened at all.
    """
    book = read_book(path)
    problems = Problems(list(book.problems))
    layout, found = recognise(list(book.sheets))
    missing = sheet_problems(layout, found, list(book.sheets), book.hidden)
    problems.found[:0] = missing
    problems.structural = any(ours not in found for ours in SHEETS)
    sheets = {ours: book.sheets[name] for ours, name in found.items()}
    problems.notes = [describe(layout, found), *book.notes]
    if NOTES_SHEET in book.sheets:
        problems.notes.append(f"the sheet {NOTES_SHEET} is for people; it is not read")
    for ours, sheet in sheets.items():
        if ours != "profiles":  # what people wrote of themselves is read without
            for row, cells in sorted(sheet.rows.items()):
                for column in sorted(cells):
                    report_hidden(sheet, row, column, problems)
    workbook = _read_sheets(sheets, layout, problems)
    listed = [_in_file(p, path) for p in problems.found]
    return (None if problems.structural else workbook), listed


def _in_file(problem: Problem, path: Path) -> Problem:
    return Problem(problem.message, path.name, problem.where, problem.key, problem.mend)


def _read_sheets(
    sheets: Mapping[str, Sheet], layout: Layout, problems: Problems
) -> Workbook | None:
    """All sheets that are there, so that one missing sheet does not hide the other mistakes."""

    def sheet(ours: str) -> Sheet:
        return sheets.get(ours) or Sheet(layout.sheet(ours))

    settings = read_settings(sheet("settings"), layout, problems) if "settings" in sheets else None
    tables = {
        ours: read_table(sheets[ours], {c: layout.column(ours, c) for c in COLUMNS[ours]}, problems)
        for ours in COLUMNS
        if ours in sheets
    }
    treatments = [_treatment(r, layout, problems) for r in tables.get("treatments", [])]
    roles = [_role(r, layout, problems) for r in tables.get("roles", [])]
    tasks = [_task(r, problems) for r in tables.get("tasks", [])]
    constants = [_constant(r, problems) for r in tables.get("constants", [])]
    computed = [_computed(r, problems) for r in tables.get(COMPUTED, [])]
    for ours, column in (
        ("treatments", "treatment_label"),
        ("roles", "role_label"),
        ("tasks", "task_id"),
        ("tasks", "var_name"),
        ("constants", "name"),
        (COMPUTED, "name"),
    ):
        unique(tables.get(ours, []), column, problems)
    for ours, what in (("treatments", "treatment"), ("roles", "role"), ("tasks", "task")):
        if ours in tables and not tables[ours]:
            problems.add(f"there is no {what}", f"{sheets[ours].name}!A2", mend="add a row")
    if "roles" in tables:
        _check_roles(roles, sheets["roles"], problems)
    profiles = read_profiles(sheets["profiles"], problems) if "profiles" in sheets else None
    if settings is None or profiles is None:
        return None
    return Workbook(
        layout=layout.name,
        settings=settings,
        treatments=tuple(treatments),
        roles=tuple(roles),
        tasks=tuple(tasks),
        profiles=profiles,
        constants=tuple(c for c in constants if c is not None),
        computed=tuple(computed),
        notes=tuple(problems.notes),
    )


def _described(
    row: Row, column: str, layout: Layout, problems: Problems
) -> tuple[str, dict[str, str]]:
    """A description, and the further attributes where the layout allows a dict of them."""
    row.required(column, problems)
    text = row.long_text(column).strip()
    if not (layout.texts_may_be_dicts and looks_like_dict(text)):
        return text, {}
    try:
        value = read_literal(text)
    except NotALiteral as error:
        problems.add(f"the dict cannot be read: {error}", row.at(column), mend="mend the dict")
        return text, {}
    if "description" not in value:
        problems.add("the dict has no description", row.at(column), mend='add "description": "…"')
    bad = [k for k, v in value.items() if not (isinstance(k, str) and is_scalar(v))]
    for key in bad:
        problems.add(f"the attribute {key!r} is no text", row.at(column), mend="write a text")
    plain = {k: scalar_text(v) for k, v in value.items() if k not in bad}
    return plain.pop("description", ""), plain


def _treatment(row: Row, layout: Layout, problems: Problems) -> Treatment:
    label = row.required("treatment_label", problems)
    description, extra = _described(row, "treatment_description", layout, problems)
    return Treatment(label=label, description=description, extra=extra, at=row.addresses())


def _role(row: Row, layout: Layout, problems: Problems) -> Role:
    label = row.required("role_label", problems)
    description, extra = _described(row, "role_description", layout, problems)
    return Role(label=label, description=description, extra=extra, at=row.addresses())


def _check_roles(roles: list[Role], sheet: Sheet, problems: Problems) -> None:
    if not any(r.special == FACILITATOR for r in roles):
        problems.add(
            f"the role {FACILITATOR} is missing",
            f"{sheet.name}!A2",
            mend=f"add a row {FACILITATOR} with a description; it poses the questions",
        )
    if all(r.special for r in roles):
        problems.add(
            "there is no role for participants",
            f"{sheet.name}!A{len(roles) + 2}",
            mend="add a row such as Participant with its description",
        )


def _task(row: Row, problems: Problems) -> Task:
    task_id = row.required("task_id", problems, f"row {row.number}")
    kind = _task_type(row, problems)
    var_name = row.text("var_name")
    if not var_name:
        var_name = task_id
        if kind != "context":
            problems.notes.append(
                f"{row.at('var_name')} is blank: the task_id {task_id} names the variable"
            )
    return Task(
        task_id=task_id,
        type=kind,
        task_order=row.integer("task_order", problems, default=row.number),
        is_adapted=row.boolean("is_adapted", problems),
        human_text=row.long_text("human_text"),
        llm_text=_llm_text(row, problems),
        var_name=var_name,
        var_type=_var_type(row, kind, problems),
        response_options=row.long_text("response_options").strip() or None,
        randomize_response_order=row.boolean("randomize_response_order", problems),
        validate_response=row.boolean("validate_response", problems),
        generate_speculation_score=row.boolean("generate_speculation_score", problems),
        format_response=row.boolean("format_response", problems),
        at=row.addresses(),
    )


def _task_type(row: Row, problems: Problems) -> TaskType:
    text = row.required("type", problems)
    if text.casefold() in REPEATED:
        problems.add(
            f"type {text} is not supported: a round cannot repeat itself",
            row.at("type"),
            mend=f"write each repetition as a row of its own, of type {text.casefold()[7:]}",
        )
        return cast("TaskType", text.casefold()[7:])
    found = one_of(text, TASK_TYPES, "type", row.at("type"), problems) if text else None
    return cast("TaskType", found or "private_question")


def _var_type(row: Row, kind: str, problems: Problems) -> VarType | None:
    text = row.text("var_type")
    if not text or (kind == "context" and text.casefold() == "context"):
        return None
    if re.sub(r"[\s_-]", "", text.casefold()) in FREE_TEXT:
        return None
    found = one_of(text, VAR_TYPES, "var_type", row.at("var_type"), problems)
    return cast("VarType | None", found)


def _llm_text(row: Row, problems: Problems) -> str | dict[str, str]:
    row.required("llm_text", problems)
    text = row.long_text("llm_text")
    if not looks_like_dict(text):
        return text
    try:
        value = read_literal(text)
    except NotALiteral as error:
        problems.add(
            f"the dict of prompts cannot be read: {error}",
            row.at("llm_text"),
            mend='write {"Role 1": "text", "Role 2": "text"}',
        )
        return ""
    if not isinstance(value, dict) or not value:
        problems.add("the dict of prompts is empty", row.at("llm_text"), mend="name a role")
        return ""
    bad = [k for k, v in value.items() if not (isinstance(k, str) and isinstance(v, str) and v)]
    for key in bad:
        problems.add(f"the prompt of {key!r} is no text", row.at("llm_text"), mend="quote it")
    return {k.strip(): v for k, v in value.items() if k not in bad}


def _constant(row: Row, problems: Problems) -> Constant | None:
    name = row.required("name", problems)
    text = row.required("value", problems)
    where = row.at("value")
    mend = 'write a list, e.g. ["participant", "subject"] or [10, 20]'
    if name and not name.isidentifier():
        problems.add(
            f"{name!r} cannot be a placeholder", row.at("name"), mend="use letters, digits and _"
        )
        return None
    try:
        values = read_literal(text) if text else []
    except NotALiteral as error:
        problems.add(f"the value is no list: {error}", where, mend=mend)
        values = [text]
    if not isinstance(values, (list, tuple)):
        problems.add(f"the value {text[:40]} is no list", where, mend=f"write [{text[:40]}]")
        values = [values]
    if not values or not all(is_scalar(v) for v in values):
        if text:
            problems.add("the list must hold texts or numbers, at least one", where, mend=mend)
        # The name is known, so that texts which use it are no mistakes.
        values = [text or name]
    if len({scalar_text(v) for v in values}) < len(values):
        problems.add("a value stands in the list twice", where, mend="keep one of them")
    return Constant(name=name, values=tuple(values), at=row.addresses()) if name else None


def _computed(row: Row, problems: Problems) -> Computed:
    name = row.required("name", problems, f"row_{row.number}")
    if not name.isidentifier():
        problems.add(f"{name!r} is no name", row.at("name"), mend="use letters, digits and _")
    text = row.text("scope")
    scopes = ("participant", "session")
    scope = one_of(text, scopes, "scope", row.at("scope"), problems) if text else None
    if not text:
        row.required("scope", problems)
    expression = row.required("expression", problems, "0")
    return Computed(
        name=name,
        scope=cast("ComputedScope", scope or "participant"),
        expression=expression,
        at=row.addresses(),
    )
