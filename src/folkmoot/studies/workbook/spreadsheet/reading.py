"""Read a spreadsheet file into a `Workbook` object, and collect all problems."""
# A wrong cell is reported and replaced by a harmless value. So the checks of the design can still
# run, and the researcher sees all problems at once.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from openpyxl.utils import get_column_letter

from folkmoot.errors import Problem
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import closest_name, collapse_spaces, number_text
from folkmoot.studies.workbook.answers import by_role, is_scalar, scalar_text
from folkmoot.studies.workbook.config import (
    COMPUTED_KINDS,
    COMPUTED_SCOPES,
    FACILITATOR,
    STRATEGIES,
    SUMMARIZER,
    TASK_TYPES,
    VAR_TYPES,
    Computed,
    ComputedKind,
    ComputedScope,
    Constant,
    LabelledPart,
    Problems,
    Profiles,
    Role,
    Scalar,
    Settings,
    Task,
    TaskType,
    Treatment,
    VarType,
    Workbook,
    written_label,
)
from folkmoot.studies.workbook.literals import NotALiteral, looks_like_dict, read_literal
from folkmoot.studies.workbook.spreadsheet.layouts import (
    COLUMNS,
    COMPUTED,
    MAX_ABOVE,
    NOTES_SHEET,
    SHEETS,
    SHORT,
    Layout,
    Row,
    as_bool,
    as_integer,
    as_number,
    check_unique,
    describe_layout,
    detect_layout,
    header_row,
    names_for,
    parse_choice,
    read_table,
    report_hidden,
    sheet_problems,
    warn_empty_rows,
    warn_header_offset,
)
from folkmoot.studies.workbook.spreadsheet.sheets import Cell, Sheet, read_book, rows_in_words

# Task types that some workbooks use and that are not supported.
REPEATED = ("repeat_public_question", "repeat_private_question")
# Names of other layouts for an open type.
FREE_TEXT = ("freetext", "text", "string")
# The experiment id names files. File systems allow about 255 bytes, and endings are added.
MAX_ID = 100
MAX_COUNT = 1_000_000
MAX_ROWS_OF_ONE_KIND = 20
# Characters that Windows refuses in file names, and below them its device names.
UNSAFE = re.compile(r'[\x00-\x1f<>:"/\\|?*]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")

T = TypeVar("T")
D = TypeVar("D", bound=LabelledPart)


def read_workbook(path: Path) -> tuple[Workbook | None, list[Problem]]:
    """Return the content of a workbook file as a `Workbook`, and all problems of the file.

    The `Workbook` is None if sheets or columns are missing. Raises InputError if the file cannot be
    opened.
    """
    book = read_book(path)
    problems = book.problems
    layout, sheet_names = detect_layout(list(book.sheets))
    # Problems of whole sheets come first.
    problems.found[:0] = sheet_problems(layout, sheet_names, list(book.sheets), book.hidden)
    problems.structural = any(own_name not in sheet_names for own_name in SHEETS)
    problems.notes.insert(0, describe_layout(layout, sheet_names))
    problems.notes += [
        f"the sheet {name} is hidden in the spreadsheet; it is read all the same"
        for name in sheet_names.values()
        if name in book.hidden
    ]
    if NOTES_SHEET in book.sheets:
        problems.notes.append(f"the sheet {NOTES_SHEET} is for people; it is not read")
    sheets = {own_name: book.sheets[name] for own_name, name in sheet_names.items()}
    for own_name, sheet in sheets.items():
        # Answers of respondents may hold invisible characters, which are removed when they are
        # read.
        if own_name != "profiles":
            for row, column, _ in sheet.iterate_cells():
                report_hidden(sheet, row, column, problems)
    workbook = _read_sheets(sheets, layout, problems)
    unread = tuple(name for name in sheet_names.values() if name in book.with_drawings)
    if workbook is not None and unread:
        workbook = workbook.model_copy(update={"sheets_with_drawings": unread})
    located = [replace(problem, file=path.name) for problem in problems.found]
    return (None if problems.structural else workbook), located


def _read_sheets(
    sheets: Mapping[str, Sheet], layout: Layout, problems: Problems
) -> Workbook | None:
    # All sheets are read even if the settings or the profiles are missing, so that their problems
    # are reported too.
    settings = read_settings(sheets["settings"], layout, problems) if "settings" in sheets else None
    tables = {
        own_name: read_table(
            sheets[own_name],
            {column: layout.column_name(own_name, column) for column in COLUMNS[own_name]},
            problems,
        )
        for own_name in COLUMNS
        if own_name in sheets
    }
    treatments = tuple(
        _read_labelled_row(row, Treatment, layout, problems) for row in tables.get("treatments", [])
    )
    roles = tuple(
        _read_labelled_row(row, Role, layout, problems) for row in tables.get("roles", [])
    )
    tasks = tuple(_parse_task(row, problems) for row in tables.get("tasks", []))
    constants = tuple(_parse_constant(row, problems) for row in tables.get("constants", []))
    computed = tuple(_parse_computed(row, problems) for row in tables.get(COMPUTED, []))
    for own_name, column in (
        ("treatments", "treatment_label"),
        ("roles", "role_label"),
        ("tasks", "task_id"),
        ("tasks", "var_name"),
        ("constants", "name"),
        (COMPUTED, "name"),
    ):
        check_unique(tables.get(own_name, []), column, problems)
    for own_name, part_name in (("treatments", "treatment"), ("roles", "role"), ("tasks", "task")):
        if own_name in tables and not tables[own_name]:
            problems.add_problem(
                f"there is no {part_name}", f"{sheets[own_name].name}!A2", "add a row"
            )
    if "roles" in tables:
        _check_roles(roles, sheets["roles"], problems)
    profiles = read_profiles(sheets["profiles"], problems) if "profiles" in sheets else None
    if settings is None or profiles is None:
        return None
    return Workbook(
        layout=layout.name,
        settings=settings,
        treatments=treatments,
        roles=roles,
        tasks=tasks,
        profiles=profiles,
        constants=tuple(constant for constant in constants if constant is not None),
        computed=computed,
        notes=tuple(problems.notes),
    )


# --- settings ----------------------------------------------------------------------------------


class _Settings:
    def __init__(self, sheet: Sheet, layout: Layout, problems: Problems) -> None:
        self.sheet, self.layout, self.problems = sheet, layout, problems
        self.cells: dict[str, Cell] = {}
        self.rows: dict[str, int] = {}
        header_number = header_row(sheet, (layout.settings_header, "value"), problems)
        header = {column: text.casefold() for column, text in sheet.texts(header_number).items()}
        key_column = next(
            (column for column, text in header.items() if text == layout.settings_header), 1
        )
        self.column = key_column + 1
        for column, title in ((key_column, layout.settings_header), (self.column, "value")):
            if header.get(column, "") != title:
                where = sheet.cell_address(header_number, column)
                problems.add_problem(f"the header should be {title}", where, f"write {title}")
        unknown: dict[int, str] = {}
        by_name = {
            alias: setting_key
            for setting_key in layout.setting_keys
            for alias in names_for(layout.setting_name(setting_key))
        }
        # Names of this layout come last, so that they win over aliases of other layouts.
        by_name |= {
            layout.setting_name(setting_key): setting_key for setting_key in layout.setting_keys
        }
        for number, row in sorted(sheet.rows.items()):
            if number < header_number:
                continue
            # A value in a third column is usually a comment that the researcher takes for read.
            for column in sorted(set(row) - {key_column, self.column}):
                where = sheet.cell_address(number, column)
                problems.add_problem("nothing belongs beside the value", where, "clear it")
            if number == header_number or not (key_column in row or self.column in row):
                continue
            name = row[key_column].text if key_column in row else ""
            key = by_name.get(name)
            if key is None:
                unknown[number] = name
            elif key in self.rows:
                problems.add_problem(
                    f"duplicate setting {name}",
                    sheet.cell_address(number, key_column),
                    "keep one row",
                )
            else:
                self.rows[key] = number
                if self.column in row:
                    self.cells[key] = row[self.column]
        self._report_keys(unknown)

    def _report_keys(self, unknown: dict[int, str]) -> None:
        # `unknown` holds names by row number.
        sheet, key_column = self.sheet, self.column - 1
        for key in self.layout.setting_keys:
            if key in self.rows or key in self.layout.optional:
                continue
            title = self.layout.setting_name(key)
            hint = f"add a row {title}"
            if guess := closest_name(title, unknown.values()):
                number = next(row for row, name in unknown.items() if name == guess)
                hint = f"rename {guess!r} in {sheet.cell_address(number, key_column)} to {title}"
                del unknown[number]
            self.problems.add_problem(f"the setting {title} is missing", sheet.name, hint)
        for number, name in unknown.items():
            message = f"there is no setting {name!r}" if name else "the value has no key"
            self.problems.add_problem(
                message, sheet.cell_address(number, key_column), "delete the row"
            )

    def cell_address(self, key: str) -> str:
        return self.sheet.cell_address(self.rows.get(key, 1), self.column)

    def report_wrong(self, key: str, hint: str) -> None:
        # A missing key is reported already.
        if key in self.rows:
            cell = self.cells.get(key)
            state = "is blank" if cell is None else f"is {cell.text!r}"
            self.problems.add_problem(
                f"{self.layout.setting_name(key)} {state}", self.cell_address(key), hint
            )

    def text(self, key: str, hint: str, default: str = "") -> str:
        if key not in self.cells:
            self.report_wrong(key, hint)
            return default
        return self.cells[key].text

    def optional_text(self, key: str) -> str | None:
        cell = self.cells.get(key)
        return cell.text if cell else None

    def parse_typed(
        self,
        key: str,
        parse: Callable[[Cell | None], T | None],
        is_valid: Callable[[T], bool],
        default: T,
        hint: str,
    ) -> T:
        value = parse(self.cells.get(key))
        if value is None or not is_valid(value):
            self.report_wrong(key, hint)
            return default
        return value

    def count(self, key: str, default: int = 1) -> int:
        hint = "write a whole number of at least 1"
        return self.parse_typed(key, as_integer, lambda n: 1 <= n <= MAX_COUNT, default, hint)

    def parse_boolean(self, key: str, default: bool) -> bool:
        # Only optional settings may be left out.
        if key not in self.cells and key in self.layout.optional:
            return default
        return self.parse_typed(key, as_bool, lambda _: True, default, "write True or False")

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        text = self.text(key, f"write one of {', '.join(choices)}")
        if not text:
            return default
        title = self.layout.setting_name(key)
        return parse_choice(text, choices, title, self.cell_address(key), self.problems) or default

    def random_seed(self) -> int:
        if "random_seed" not in self.cells:
            return 42
        hint = "write a whole number of at least 0, or leave it blank"
        return self.parse_typed("random_seed", as_integer, lambda n: n >= 0, 42, hint)

    def experiment_id(self) -> str:
        text = self.text("experiment_id", "give the experiment a name", "experiment")
        hint = ""
        if len(text) > MAX_ID or UNSAFE.search(text) or text.startswith((".", "-", "~")):
            hint = f'it names files: at most {MAX_ID} characters, none of them / \\ : * ? " < > |'
        elif _RESERVED.fullmatch(text) or text.endswith((".", " ")):
            hint = "it names files: choose another name"
        if hint:
            self.report_wrong("experiment_id", hint)
        return "experiment" if hint else text


def read_settings(sheet: Sheet, layout: Layout, problems: Problems) -> Settings:
    """Return the settings in a sheet, and add the problems of the sheet to `problems`."""
    # Wrong or missing values are reported and replaced.
    reader = _Settings(sheet, layout, problems)
    limit = "max_rounds" if layout is SHORT else "max_conversation_length"
    values: dict[str, object] = {
        "experiment_id": reader.experiment_id(),
        "model_info": reader.text("model_info", "name a model, e.g. gpt-4o-mini", "synthetic"),
        "api_endpoint": reader.optional_text("api_endpoint"),
        "temperature": reader.parse_typed(
            "temperature", as_number, lambda t: 0 <= t <= 2, 0.0, "write a number from 0 to 2"
        ),
        "num_agents_per_session": reader.count("num_agents_per_session"),
        "num_sessions": reader.count("num_sessions"),
        limit: reader.count("max_conversation_length", MAX_COUNT),
        "random_seed": reader.random_seed(),
        "include_backstories": reader.parse_boolean("include_backstories", False),
        "at": {key: reader.cell_address(key) for key in reader.rows},
        **layout.fixed,
    }
    if "show_profile" in layout.more_settings:
        values["show_profile"] = reader.parse_boolean("show_profile", True)
    for key, choices in STRATEGIES.items():
        default = "complete_random" if "treatment" in key else "random"
        values[key] = reader.choice(key, choices, default)
        column = key.replace("_assignment_strategy", "_column")
        values[column] = reader.optional_text(column)
    return Settings(**values)


# --- treatments, roles, tasks, constants, computed values --------------------------------------


def _read_labelled_row(row: Row, kind: type[D], layout: Layout, problems: Problems) -> D:
    kind_name = "role" if issubclass(kind, Role) else "treatment"
    column = f"{kind_name}_description"
    label = row.required(f"{kind_name}_label", problems)
    label = written_label(label) if kind_name == "role" else label
    row.required(column, problems)
    text, where = row.long_text(column).strip(), row.address_of(column)
    extra: dict[str, str] = {}
    if layout.texts_may_be_dicts and looks_like_dict(text):
        # An unreadable dict counts as a description, so that the row can still be checked.
        value: dict[object, object] = {"description": text}
        try:
            literal = read_literal(text)
            value = literal if isinstance(literal, dict) else value
        except NotALiteral as error:
            problems.add_problem(f"the dict cannot be read: {error}", where, "correct the dict")
        if "description" not in value:
            problems.add_problem("the dict has no description", where, 'add "description": "…"')
        invalid_keys = [
            key for key, entry in value.items() if not (isinstance(key, str) and is_scalar(entry))
        ]
        for key in invalid_keys:
            problems.add_problem(f"the attribute {key!r} is not a text", where, "write a text")
        extra = {
            _normalise_name(str(key)): scalar_text(entry)
            for key, entry in value.items()
            if key not in invalid_keys and is_scalar(entry)
        }
        text = extra.pop("description", "")
    return kind(label=label, description=text, extra=extra, at=row.cell_addresses())


def _check_roles(roles: Sequence[Role], sheet: Sheet, problems: Problems) -> None:
    if not any(role.special_name == FACILITATOR for role in roles):
        hint = f"add a row {FACILITATOR} with a description; it asks the questions"
        problems.add_problem(f"the role {FACILITATOR} is missing", f"{sheet.name}!A2", hint)
    for duplicate in [role for role in roles if role.label == SUMMARIZER][1:]:
        where = duplicate.at.get("role_label", "")
        problems.add_problem(f"duplicate role {SUMMARIZER}", where, "keep one of them")
    if all(role.special_name for role in roles):
        where = f"{sheet.name}!A{len(roles) + 2}"
        hint = "add a row such as Participant with its description"
        problems.add_problem("there is no role for participants", where, hint)


def _parse_task(row: Row, problems: Problems) -> Task:
    task_id = row.required("task_id", problems, f"row {row.number}")
    kind = _task_type(row, problems)
    var_name = _normalise_name(row.text("var_name"))
    if not var_name:
        var_name = task_id
        if kind != "context":
            problems.notes.append(
                f"{row.address_of('var_name')} is blank: the task_id {task_id} names the variable"
            )
    return Task(
        task_id=task_id,
        type=kind,
        task_order=row.parse_integer("task_order", problems, default=row.number),
        is_adapted=row.parse_boolean("is_adapted", problems),
        human_text=row.long_text("human_text"),
        llm_text=_prompts_of(row, "llm_text", problems),
        var_name=var_name,
        var_type=_var_type(row, kind, problems),
        response_options=row.long_text("response_options").strip() or None,
        randomize_response_order=row.parse_boolean("randomize_response_order", problems),
        validate_response=row.parse_boolean("validate_response", problems),
        generate_speculation_score=row.parse_boolean("generate_speculation_score", problems),
        format_response=row.parse_boolean("format_response", problems),
        people_text=_prompts_of(row, "people_text", problems, is_required=False),
        measure=row.text("measure"),
        at=row.cell_addresses(),
    )


def _task_type(row: Row, problems: Problems) -> TaskType:
    text, where = row.required("type", problems), row.address_of("type")
    task_type: str | None = None
    if text.casefold() in REPEATED:
        task_type = text.casefold().removeprefix("repeat_")
        message = f"type {text} is not supported: a task cannot repeat itself"
        problems.add_problem(
            message, where, f"write each repetition as a row of its own, of type {task_type}"
        )
    elif text:
        task_type = parse_choice(text, TASK_TYPES, "type", where, problems)
    return cast("TaskType", task_type or "private_question")


def _var_type(row: Row, kind: str, problems: Problems) -> VarType | None:
    text = row.text("var_type")
    # Some workbooks repeat the task type here for contexts.
    if not text or (kind == "context" and text.casefold() == "context"):
        return None
    if re.sub(r"[\s_-]", "", text.casefold()) in FREE_TEXT:
        return None
    var_type = parse_choice(text, VAR_TYPES, "var_type", row.address_of("var_type"), problems)
    return cast("VarType | None", var_type)


def _prompts_of(
    row: Row, column: str, problems: Problems, *, is_required: bool = True
) -> str | dict[str, str]:
    # A dict holds the texts by role.
    if is_required:
        row.required(column, problems)
    text, where = row.long_text(column), row.address_of(column)
    if not looks_like_dict(text):
        return text
    try:
        literal = read_literal(text)
        prompts = by_role(literal) if isinstance(literal, dict) else {}
    except NotALiteral as error:
        hint = 'write {"Role 1": "text", "Role 2": "text"}'
        problems.add_problem(f"the dict of prompts cannot be read: {error}", where, hint)
        return ""
    if not prompts:
        problems.add_problem("the dict of prompts is empty", where, "name a role")
        return ""
    for label, prompt in prompts.items():
        if not (isinstance(prompt, str) and prompt):
            problems.add_problem(f"the prompt of {label!r} is not a text", where, "quote it")
    return {
        label: prompt for label, prompt in prompts.items() if isinstance(prompt, str) and prompt
    }


def _normalise_name(name: str) -> str:
    # Expressions read names in this form, in which an accent is part of its letter.
    return unicodedata.normalize("NFKC", name) if name.isidentifier() else name


def _parse_constant(row: Row, problems: Problems) -> Constant | None:
    name = _normalise_name(row.required("name", problems))
    text = row.required("value", problems)
    where = row.address_of("value")
    hint = 'write a list, e.g. ["participant", "subject"] or [10, 20]'
    if name and not name.isidentifier():
        message = f"{name!r} cannot be a placeholder"
        problems.add_problem(message, row.address_of("name"), "use letters, digits and _")
        return None
    try:
        value = read_literal(text) if text else []
    except NotALiteral as error:
        problems.add_problem(f"the value is not a list: {error}", where, hint)
        value = [text]
    if not isinstance(value, (list, tuple)):
        problems.add_problem(f"the value {text[:40]} is not a list", where, f"write [{text[:40]}]")
        value = [value]
    values: list[Scalar] = [item for item in value if is_scalar(item)]
    if not values or len(values) < len(value):
        if text:
            problems.add_problem("the list must hold texts or numbers, at least one", where, hint)
        # Keep the name known, so that texts with it are not reported as well.
        values = [text or name]
    if len({scalar_text(value) for value in values}) < len(values):
        problems.add_problem("duplicate value in the list", where, "keep one of them")
    return Constant(name=name, values=tuple(values), at=row.cell_addresses()) if name else None


def _parse_computed(row: Row, problems: Problems) -> Computed:
    name = _normalise_name(row.required("name", problems, f"row_{row.number}"))
    if not name.isidentifier():
        problems.add_problem(
            f"{name!r} is not a name", row.address_of("name"), "use letters, digits and _"
        )
    text = row.required("scope", problems)
    scope = (
        parse_choice(text, COMPUTED_SCOPES, "scope", row.address_of("scope"), problems)
        if text
        else None
    )
    kind_text = row.text("kind")
    kind = (
        parse_choice(kind_text, COMPUTED_KINDS, "kind", row.address_of("kind"), problems)
        if kind_text
        else None
    )
    # The defaults are harmless: an expression "0" is valid and uses no names.
    return Computed(
        name=name,
        scope=cast("ComputedScope", scope or "participant"),
        expression=row.required("expression", problems, "0"),
        kind=cast("ComputedKind", kind or "number"),
        at=row.cell_addresses(),
    )


# --- profiles ----------------------------------------------------------------------------------


def read_profiles(sheet: Sheet, problems: Problems) -> Profiles:
    """Return the profiles of all respondents, and add the problems of the sheet to `problems`."""
    header = names_row(sheet, problems)
    names, questions = sheet.texts(header), sheet.texts(header + 1)
    data = {row: cells for row, cells in sorted(sheet.rows.items()) if row > header + 1}
    columns = sorted(names)
    _check_header(sheet, header, problems)
    profiles = Profiles(
        names=tuple(_normalise_name(names[column]) for column in columns),
        questions=tuple(questions.get(column, names[column]) for column in columns),
        rows=tuple(
            tuple(
                without_hidden(cells[column].text) if column in cells else "" for column in columns
            )
            for cells in data.values()
        ),
        lines=tuple(data),
        columns=tuple(get_column_letter(column) for column in columns),
        sheet=sheet.name,
    )
    for row in (header, header + 1):
        for title_column in columns:
            report_hidden(sheet, row, title_column, problems)
    if "ID" not in profiles.column_titles:
        near_name = next((name for name in profiles.names if name.casefold() == "id"), None)
        hint = f"rename {near_name!r} to 'ID'" if near_name else "name the column of identifiers ID"
        where = sheet.cell_address(header, 1)
        problems.add_problem(
            f"there is no column named ID in row {header} or {header + 1}", where, hint
        )
        problems.structural = True
        return profiles
    column = columns[profiles.id_column]
    for row in data:
        report_hidden(sheet, row, column, problems)
    if names[column] != "ID":
        problems.notes.append(
            f"{sheet.cell_address(header + 1, column)}: the column {names[column]} "
            "holds the IDs, as "
            "row "
            f"{header + 1} says"
        )
    if not data:
        problems.add_problem(
            "there is no respondent",
            sheet.cell_address(header + 2, 1),
            "add a row for each respondent",
        )
    # Without a row of questions, the first respondent would be read as the questions.
    if _is_respondent(sheet.rows.get(header + 1, {}), column, [*data.values()]):
        message = f"row {header + 1} must hold the questions, but it looks like a respondent"
        hint = f"insert a row {header + 1} with the questions as they were asked"
        problems.add_problem(message, sheet.cell_address(header + 1, column), hint)
    _check_ids(profiles, problems)
    single_cell_rows = [
        line
        for line, row in zip(profiles.lines, profiles.rows, strict=True)
        if sum(map(bool, row)) == 1
    ]
    # Rows with a single cell may be a footnote below the table.
    if single_cell_rows and len(single_cell_rows) < len(profiles.rows) and len(columns) > 1:
        problems.notes.append(
            f"{profiles.sheet}: {rows_in_words(single_cell_rows)} with one filled cell "
            "only, read as "
            "respondents all the same"
        )
    warn_empty_rows(sheet, data, problems)
    return profiles


def _is_respondent(
    questions: Mapping[int, Cell], id_column: int, data: Sequence[Mapping[int, Cell]]
) -> bool:
    # Whether the row of the questions looks like one more row of `data`.
    if id_column not in questions or not data:
        return False
    own_id = questions[id_column].text
    ids = [cells[id_column].text for cells in data if id_column in cells]
    # A question about an identifier, such as "ID" or "What is your ID?", has no digits.
    if _looks_like_one_of(own_id, ids):
        return True
    # The wording of a question for the ID says nothing about the other columns.
    if own_id.casefold() == "id" or any(char in own_id for char in " ?"):
        return False
    for column, question in questions.items():
        answers = [cells[column] for cells in data if column in cells and column != id_column]
        # A question is not a number, and not equal to one of its answers.
        is_number = as_number(question) is not None
        if answers and is_number and all(as_number(answer) is not None for answer in answers):
            return True
        if question.text in (answer.text for answer in answers):
            return True
    return False


def _looks_like_one_of(own_id: str, ids: Sequence[str]) -> bool:
    digits = re.compile(r"\d+")
    if not ids or not digits.search(own_id):
        return False
    # `p1` and `p12` are alike, and so are `Person 1` and `Person 2`.
    if digits.sub("0", own_id) in {digits.sub("0", other) for other in ids}:
        return True
    codes = [own_id, *ids]
    return all(digits.search(code) and " " not in code for code in codes)


def names_row(sheet: Sheet, problems: Problems) -> int:
    """Return the number of the row with the short names of the questions."""
    # It is the first row that contains "ID", or else row 1. If that row holds the full questions,
    # the short names are in the row above it.
    rows_with_id = [
        row for row in sorted(sheet.rows)[:MAX_ABOVE] if "ID" in sheet.texts(row).values()
    ]
    header = rows_with_id[0] if rows_with_id else 1
    above = len(sheet.rows.get(header - 1, {}))
    # The row above counts as short names if it is at least half as full as the row with ID.
    next_has_id = "ID" in sheet.texts(header + 1).values()
    if not next_has_id and 2 * above > len(sheet.rows.get(header, {})):
        header -= 1
    warn_header_offset(sheet, header, problems)
    return header


def _check_header(sheet: Sheet, top: int, problems: Problems) -> None:
    names, questions = sheet.texts(top), sheet.texts(top + 1)
    hint = "write each question as it was asked"
    if names and not questions:
        message = f"row {top + 1} is empty; the questions belong there"
        problems.add_problem(message, sheet.cell_address(top + 1, min(names)), hint)
    for column in sorted(
        {cell_column for row, cell_column, _ in sheet.iterate_cells() if row >= top}
    ):
        if column not in names:
            message = f"the column has no name in row {top}"
            problems.add_problem(message, sheet.cell_address(top, column), "name it or clear it")
        elif questions and column not in questions:
            message = f"the column {names[column]} has no question in row {top + 1}"
            problems.add_problem(
                message, sheet.cell_address(top + 1, column), "write the question as it was asked"
            )
    seen: set[str] = set()
    for column, title in sorted(names.items()):
        normalised = unicodedata.normalize("NFKC", title)
        if normalised in seen:
            problems.add_problem(
                f"duplicate name {title!r} in row {top}", sheet.cell_address(top, column), "rename"
            )
        seen.add(normalised)


def _check_ids(profiles: Profiles, problems: Problems) -> None:
    cell_of_id: dict[str, str] = {}
    reported = 0
    for i, identifier in enumerate(profiles.ids()):
        where = profiles.cell_address(i, profiles.id_column)
        if identifier and identifier not in cell_of_id:
            cell_of_id[identifier] = where
            continue
        # A shifted column makes every row wrong, so the list is cut.
        reported += 1
        if reported > MAX_ROWS_OF_ONE_KIND:
            continue
        if not identifier:
            problems.add_problem(
                "the respondent has no ID", where, "fill in the cell or clear the row"
            )
        else:
            hint = (
                f"it is in {cell_of_id[identifier]} as well; make them differ, and "
                "format the column as "
                "text where 3.1 and 3.10 are two"
            )
            problems.add_problem(f"duplicate ID {identifier!r}", where, hint)
    if (more := reported - MAX_ROWS_OF_ONE_KIND) > 0:
        message = f"{more} more respondents have a missing or repeated ID"
        problems.add_problem(message, profiles.sheet, "correct the column ID")
    problems.notes += [
        f"{cell_of_id[labels[-1]]}: the IDs {' and '.join(map(repr, labels))} look alike; they are "
        "different respondents"
        for labels in look_alikes(list(cell_of_id))[:MAX_ROWS_OF_ONE_KIND]
    ]


def look_alikes(labels: Sequence[str]) -> list[list[str]]:
    """Return groups of different labels that a human would read as the same label."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(_normalise_label(label), {})[label] = None
    return [list(group) for group in groups.values() if len(group) > 1]


def _normalise_label(text: str) -> str:
    normalised = collapse_spaces(unicodedata.normalize("NFKC", text).casefold())
    try:
        return number_text(float(normalised))
    except ValueError:
        return normalised
