"""From cells to the internal model: every sheet read, every mistake collected, nothing guessed.

`read_workbook` is the one way in. A cell that is wrong is reported and replaced by a harmless
value, so that the checks of the design as a whole can still run and all mistakes come at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from folkmoot.errors import Problem
from folkmoot.studies.workbook.layouts import (
    COLUMNS,
    COMPUTED,
    NOTES_SHEET,
    SHEETS,
    Layout,
    describe,
    recognise,
    sheet_problems,
)
from folkmoot.studies.workbook.literals import (
    NotALiteral,
    is_scalar,
    looks_like_dict,
    read_literal,
    scalar_text,
)
from folkmoot.studies.workbook.model import (
    FACILITATOR,
    Computed,
    ComputedScope,
    Constant,
    Role,
    Task,
    TaskType,
    Treatment,
    VarType,
    Workbook,
)
from folkmoot.studies.workbook.profiles import read_profiles
from folkmoot.studies.workbook.settings import read_settings
from folkmoot.studies.workbook.sheets import Sheet, read_book
from folkmoot.studies.workbook.tables import (
    Problems,
    Row,
    one_of,
    read_table,
    report_hidden,
    unique,
)

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
