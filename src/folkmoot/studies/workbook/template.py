"""`folkmoot new workbook`: a blank workbook with drop-downs and notes, and a filled example.

Both are made here cell by cell, so that they always fit what `reading.py` accepts. The same input
gives the same bytes.
"""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import cast

from openpyxl import Workbook as Book
from openpyxl.cell import Cell
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet

from folkmoot.studies.workbook.config import Scalar
from folkmoot.studies.workbook.layouts import (
    AGENT_ROLES,
    COLUMNS,
    COMPUTED,
    NOTES_SHEET,
    SETTINGS,
    Layout,
)

NOTES: Mapping[str, str] = {
    "settings.experiment_id": "Names the run folder and the files: <experiment_id>.json and .csv.",
    "settings.model_info": "The model that answers, e.g. gpt-4o-mini. With hf-inference fill in "
    "api_endpoint as well. --model synthetic on the command line needs no key.",
    "settings.api_endpoint": "Only for hf-inference: the URL of the endpoint.",
    "settings.temperature": "A number from 0 to 2.",
    "settings.num_agents_per_session": "Participants in each session, special roles not counted.",
    "settings.num_sessions": "How many sessions are played.",
    "settings.max_conversation_length": "Most messages of a session that a model writes. A session "
    "that reaches it ends there.",
    "settings.treatment_assignment_strategy": "simple_random: each session draws by itself. "
    "complete_random: as even as can be. manual: by a column of agent_profiles.",
    "settings.treatment_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.session_assignment_strategy": "random, or manual by a column of agent_profiles. "
    "Who is blank there takes no part.",
    "settings.session_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.role_assignment_strategy": "random, or manual by a column of agent_profiles.",
    "settings.role_column": "Only for manual: name of the column (row 1 or row 2).",
    "settings.random_seed": "The same seed draws the same. Blank: 42.",
    "treatments.treatment_label": "A short label; must be unique.",
    "treatments.treatment_description": "Shown to all participants of the session, as part of what "
    "they are told at the beginning.",
    "roles.role_label": "Facilitator must be there: it poses the questions. Summarizer may be "
    "there. All others are roles of participants.",
    "roles.role_description": "What the role is told about itself.",
    "tasks.task_id": "Must be unique.",
    "tasks.type": "context: told before everything, must come first. discussion: one after the "
    "other, all hear. public_question: one after the other, answers so far are shown. "
    "private_question: answers are hidden until the round ends.",
    "tasks.task_order": "Tasks with the same number are shuffled, anew in each session.",
    "tasks.is_adapted": "1 if the original wording was changed. For the record only.",
    "tasks.human_text": "The original wording. For the record only.",
    "tasks.llm_text": 'What is asked. Plain text for all, or {"Role 1": "…", "Role 2": "…"}: the '
    "order of the dict is the order of speaking, and who is not in it sits out. {{ name }} puts a "
    "constant or an earlier result in, {response_options} the options.",
    "tasks.var_name": "Column of the answer in the CSV file; must be unique.",
    "tasks.var_type": "category, integer or float. Blank: text.",
    "tasks.response_options": 'A text, a list ["yes", "no"], a range (0, 10) with both ends '
    'included, or a dict of these by role {"Role 1": (0, 10)}.',
    "tasks.randomize_response_order": "1: each participant sees the list in an order of its own.",
    "tasks.validate_response": "1: an answer that does not fit is asked for again, up to 5 times.",
    "tasks.generate_speculation_score": "1: asks how speculative the answer is, 0 to 100.",
    "tasks.format_response": "1: the answer is asked for as JSON.",
    "profiles.ID": "Row 1: short names. Row 2: the questions as asked. From row 3 on: one person a "
    "row. The column ID must be there, its values must be unique; it is never shown.",
    "constants.name": "A placeholder: {{ name }} in the other sheets becomes its value.",
    "constants.value": 'A list: ["participant", "subject"]. Each combination of values is an '
    "experiment of its own.",
    "computed.name": "{{ name }} shows the result in later tasks; a column of the CSV file.",
    "computed.scope": "participant: one value each. session: one value for all.",
    "computed.expression": "Arithmetic over variables and constants. give is one's own value; "
    "sum(give), mean(give), min(give), max(give), count(give > 5) go over the session, "
    "sum(others(give)) over the others.",
}

_CONTEXT = (
    "You take part in an economic game with {{ members - 1 }} other people. You play "
    "three rounds with the same group. In each round everybody gets {{ endowment }} tokens and "
    "decides alone how many of them to put into a common pot. The pot is multiplied by "
    "{{ multiplier }} and shared equally among all {{ members }} members, whatever each one gave. "
    "What you do not give you keep. Your earnings of a round are what you kept plus your share of "
    "the pot. After each round everybody learns what the others gave."
)
_CHECK = (
    "Before we begin, one question to see that the rules are clear. Everybody puts all "
    "{{ endowment }} tokens into the pot. Does each member then end the round with more tokens "
    "than if nobody gave anything?\n\n{response_options}"
)
_TALK = (
    "You may now talk with the others before the first round. What should the group do, and why? "
    "Speak in two or three sentences."
)
_GIVE = "How many of your {{ endowment }} tokens do you put into the pot?\n\n{response_options}"


def _again(last: int) -> str:
    return (
        f"Round {last} is over. Together the group put {{{{ total_{last} }}}} tokens into the pot. "
        f"You put in {{{{ give_{last} }}}} and earned {{{{ payoff_{last} | round(1) }}}} tokens."
        f"\n\nRound {last + 1}: {_GIVE[0].lower()}{_GIVE[1:]}"
    )


_CLOSE = (
    "The game is over; you earned {{ earnings | round(1) }} tokens in all. How satisfied are you "
    "with what the group did?\n\n{response_options}"
)
_FAIR = (
    "The game is over. On a scale from 0 (not at all) to 100 (entirely), how fair was the outcome "
    "to you?\n\n{response_options}"
)
_SATISFIED = '["very satisfied", "rather satisfied", "rather dissatisfied", "very dissatisfied"]'
_YES_NO = '["yes", "no"]'
_FIRST = f"Round 1: {_GIVE}"
_RANGE = "(0, {{ endowment }})"

_PEOPLE: Sequence[Sequence[Scalar]] = (
    ("1.1", 34, "nurse", "a city", 4, "I look after my parents and count every euro."),
    ("1.2", 61, "retired engineer", "a village", 3, "I like plans that can be checked."),
    ("1.3", 22, "student of law", "a city", 5, "Rules are there so that people can trust."),
    ("1.4", 45, "baker with a shop of her own", "a small town", 2, "Nobody ever gave me a thing."),
    ("1.5", 38, "primary school teacher", "a suburb", 5, "Children learn sharing by seeing it."),
    ("1.6", 53, "truck driver", "a small town", 2, "I keep what I earn and I work for it."),
    ("1.7", 29, "software developer", "a city", 3, "I think in expected values."),
    ("1.8", 70, "widow and volunteer", "a village", 5, "A community lives from those who give."),
    ("1.9", 41, "police officer", "a suburb", 3, "Most people are decent when watched."),
    ("1.10", 26, "waiter and musician", "a city", 4, "Money comes and goes, friends stay."),
    ("1.11", 57, "farmer", "a village", 3, "You reap what the neighbours sow with you."),
    ("1.12", 48, "accountant", "a suburb", 2, "Numbers first, feelings later."),
    ("1.13", 33, "social worker", "a city", 5, "People without a cushion need the others."),
    ("1.14", 65, "former mayor", "a small town", 4, "I have seen good projects fail for a little."),
    ("1.15", 19, "apprentice electrician", "a small town", 3, "I do what the group agrees on."),
    ("1.16", 50, "owner of a small firm", "a suburb", 2, "Risk should pay for who takes it."),
)


def _task(
    task_id: int,
    kind: str,
    order: int,
    text: str,
    name: str,
    var_type: str | None = None,
    options: str | None = None,
    flags: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[Scalar | None, ...]:
    """A row of the prompts sheet; flags: shuffle options, validate, speculation score, JSON."""
    return (task_id, kind, order, 0, None, text, name, var_type, options, *flags)


EXAMPLE: Mapping[str, Sequence[Sequence[Scalar | None]]] = {
    "settings": (
        ("experiment_id", "public_goods"),
        ("model_info", "gpt-4o-mini"),
        ("api_endpoint", None),
        ("temperature", 1),
        ("num_agents_per_session", 4),
        ("num_sessions", 4),
        ("max_conversation_length", 60),
        ("treatment_assignment_strategy", "complete_random"),
        ("treatment_column", None),
        ("session_assignment_strategy", "random"),
        ("session_column", None),
        ("role_assignment_strategy", "random"),
        ("role_column", None),
        ("random_seed", 42),
    ),
    "treatments": (
        ("plain", "The tokens are paid out in money after the game."),
        (
            "appeal",
            "The tokens are paid out in money after the game. Groups before you did best when "
            "everybody gave, and worst when each waited for the others.",
        ),
    ),
    "roles": (
        ("Facilitator", "You lead the session and pose the questions."),
        (
            "Summarizer",
            "You keep the minutes. You report what was said in neutral words and take no side.",
        ),
        (
            "Member",
            "You are a member of the group. You decide for yourself and need not agree with "
            "anybody.",
        ),
    ),
    "tasks": (
        _task(0, "context", 0, _CONTEXT, "context"),
        _task(
            1,
            "private_question",
            1,
            _CHECK,
            "understood",
            "category",
            '["yes", "no"]',
            (1, 1, 0, 0),
        ),
        _task(2, "discussion", 2, _TALK, "talk"),
        _task(
            3,
            "discussion",
            3,
            '{"Summarizer": "Sum up in one sentence what the group wants to do.",\n'
            ' "Member": "Is there anything that you want to add before we play?",}',
            "last_words",
        ),
        _task(
            4, "private_question", 4, f"Round 1: {_GIVE}", "give_1", "integer", _RANGE, (0, 1, 0, 0)
        ),
        _task(5, "private_question", 5, _again(1), "give_2", "integer", _RANGE, (0, 1, 0, 0)),
        _task(6, "private_question", 6, _again(2), "give_3", "integer", _RANGE, (0, 1, 0, 1)),
        _task(7, "public_question", 7, _CLOSE, "satisfied", "category", _SATISFIED, (1, 1, 1, 1)),
        _task(8, "private_question", 7, _FAIR, "fair", "float", "(0, 100)", (0, 1, 0, 0)),
    ),
    "profiles": (
        ("ID", "age", "work", "home", "sharing", "motto"),
        (
            "ID",
            "How old are you?",
            "What is your work?",
            "Where do you live?",
            "How much do you like to share, from 1 (not at all) to 5 (very much)?",
            "What would you say about yourself?",
        ),
        *_PEOPLE,
    ),
    "constants": (("endowment", "[10]"), ("multiplier", "[2]"), ("members", "[4]")),
    "computed": (
        *(
            row
            for n in (1, 2, 3)
            for row in (
                (f"total_{n}", "session", f"sum(give_{n})"),
                (
                    f"payoff_{n}",
                    "participant",
                    f"endowment - give_{n} + multiplier * total_{n} / members",
                ),
            )
        ),
        ("earnings", "participant", "payoff_1 + payoff_2 + payoff_3"),
        ("group_earnings", "session", "sum(earnings)"),
        ("share_given", "participant", "(give_1 + give_2 + give_3) / (3 * endowment)"),
    ),
}


BLANK_NAME = "experiment.xlsx"
EXAMPLE_NAME = "public_goods.xlsx"
_DAY = dt.datetime(2025, 1, 1)
_LAST_ROW = 500  # drop-downs reach so far down
_WIDTHS = {"llm_text": 70, "human_text": 40, "role_description": 90, "treatment_description": 90}
_FLAGS = (
    *("is_adapted", "randomize_response_order", "validate_response"),
    *("generate_speculation_score", "format_response"),
)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "type": ("context", "discussion", "public_question", "private_question"),
    "var_type": ("category", "integer", "float"),
    "scope": ("participant", "session"),
    **dict.fromkeys(_FLAGS, ("0", "1")),
}
_SETTING_CHOICES: Mapping[str, tuple[str, ...]] = {
    "treatment_assignment_strategy": ("simple_random", "complete_random", "manual"),
    "session_assignment_strategy": ("random", "manual"),
    "role_assignment_strategy": ("random", "manual"),
}

Rows = Sequence[Sequence[Scalar | None]]


def template() -> dict[str, str | bytes]:
    """File name → content for `folkmoot new workbook`."""
    return {BLANK_NAME: blank(), EXAMPLE_NAME: example()}


def blank() -> bytes:
    """The six sheets with headers, notes and drop-downs, and the one role that must be there."""
    facilitator = ("Facilitator", "You lead the session and pose the questions.")
    return workbook_bytes(
        {
            "settings": [(key, None) for key in SETTINGS],
            "roles": [facilitator],
            "profiles": [("ID",), ("ID",)],
        }
    )


def example() -> bytes:
    """A public goods game with payoffs that are computed."""
    return workbook_bytes(EXAMPLE)


def workbook_bytes(
    content: Mapping[str, Rows], layout: Layout = AGENT_ROLES, notes: Sequence[str] = ()
) -> bytes:
    """A workbook of a layout; rows in the order of our columns. `notes` get a sheet."""
    book = Book()
    book.remove(book.active)
    book.properties.creator = "folkmoot"
    for ours, title in layout.sheets.items():
        sheet = book.create_sheet(title)
        rows = content.get(ours, ())
        if ours == "settings":
            _settings(sheet, rows, layout.settings_header)
        elif ours == "profiles":
            _profiles(sheet, rows)
        else:
            _table(sheet, ours, rows, layout)
    if COMPUTED in content:
        _table(book.create_sheet(COMPUTED), COMPUTED, content[COMPUTED], layout)
    if notes:
        sheet = book.create_sheet(NOTES_SHEET)
        sheet.column_dimensions["A"].width = 120
        for number, note in enumerate(notes, 1):
            _write(sheet, number, 1, note)
    book.properties.created = book.properties.modified = _DAY
    out = io.BytesIO()
    book.save(out)
    return _timeless(out.getvalue())


def _settings(sheet: Worksheet, rows: Rows, title: str) -> None:
    _header(sheet, (title, "value"))
    for number, (key, value) in enumerate(rows, 2):
        sheet.cell(number, 1, key)
        cell = _write(sheet, number, 2, value)
        cell.alignment = Alignment(horizontal="left")
        _note(sheet.cell(number, 1), f"settings.{key}")
        if key in _SETTING_CHOICES:
            _drop_down(sheet, _SETTING_CHOICES[str(key)], f"B{number}")
    sheet.column_dimensions["A"].width = 32
    sheet.column_dimensions["B"].width = 32


def _profiles(sheet: Worksheet, rows: Rows) -> None:
    for number, row in enumerate(rows, 1):
        for column, value in enumerate(row, 1):
            cell = _write(sheet, number, column, value)
            if column == 1:
                cell.number_format = "@"  # so that 3.10 stays 3.10
    for column in range(1, len(rows[0]) + 1 if rows else 2):
        _head(sheet.cell(1, column))
        sheet.cell(2, column).alignment = Alignment(wrap_text=True, vertical="top")
        sheet.column_dimensions[get_column_letter(column)].width = 24
    sheet.column_dimensions["A"].number_format = "@"
    _note(sheet["A1"], "profiles.ID")
    sheet.freeze_panes = "B3"


def _write(sheet: Worksheet, row: int, column: int, value: Scalar | None) -> Cell:
    if isinstance(value, str):
        value = ILLEGAL_CHARACTERS_RE.sub("\ufffd", value)
    cell = sheet.cell(row, column, value)
    if cell.data_type == "f":  # a text that begins with = is no formula
        cell.data_type = "s"
    return cast("Cell", cell)


def _table(sheet: Worksheet, ours: str, rows: Rows, layout: Layout) -> None:
    columns = COLUMNS[ours]
    _header(sheet, [layout.column(ours, name) for name in columns])
    for number, name in enumerate(columns, 1):
        _note(sheet.cell(1, number), f"{ours}.{name}")
        letter = get_column_letter(number)
        sheet.column_dimensions[letter].width = _WIDTHS.get(name, 22)
        if name in _CHOICES:
            _drop_down(sheet, _CHOICES[name], f"{letter}2:{letter}{_LAST_ROW}")
    for number, row in enumerate(rows, 2):
        for column, value in enumerate(row, 1):
            cell = _write(sheet, number, column, value)
            cell.alignment = Alignment(wrap_text=True, vertical="top")


def _header(sheet: Worksheet, titles: Sequence[str]) -> None:
    for column, title in enumerate(titles, 1):
        _head(sheet.cell(1, column, title))
    sheet.freeze_panes = "A2"


def _head(cell: object) -> None:
    cell.font = Font(bold=True, color="FFFFFF")  # type: ignore[attr-defined]
    cell.fill = PatternFill("solid", fgColor="33415C")  # type: ignore[attr-defined]


def _note(cell: object, key: str) -> None:
    text = NOTES.get(key)
    if text:
        note = Comment(text, "folkmoot", width=340, height=40 + 18 * (1 + len(text) // 50))
        cell.comment = note  # type: ignore[attr-defined]


def _drop_down(sheet: Worksheet, choices: Sequence[str], cells: str) -> None:
    rule = DataValidation("list", formula1=f'"{",".join(choices)}"', allow_blank=True)
    rule.error = f"one of {', '.join(choices)}"
    rule.showErrorMessage = True
    sheet.add_data_validation(rule)
    rule.add(cells)


def _timeless(data: bytes) -> bytes:
    """The same archive without the time of day at which it was written."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist()):
            entry = zipfile.ZipInfo(name, _DAY.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            content = old.read(name)
            if name == "docProps/core.xml":
                content = _fixed_times(content)
            new.writestr(entry, content)
    return out.getvalue()


def _fixed_times(core: bytes) -> bytes:
    text = core.decode()
    for tag in ("created", "modified"):
        start = text.find(f"<dcterms:{tag}")
        if start >= 0:
            begin, end = text.index(">", start) + 1, text.index(f"</dcterms:{tag}>")
            text = text[:begin] + _DAY.strftime("%Y-%m-%dT%H:%M:%SZ") + text[end:]
    return text.encode()
