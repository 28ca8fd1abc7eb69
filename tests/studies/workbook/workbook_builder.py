"""Small workbooks for the tests, cell by cell, and a scripted provider for them."""

from __future__ import annotations

import copy
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from openpyxl import Workbook as Book
from openpyxl.cell.cell import ERROR_CODES
from openpyxl.utils import get_column_letter
from openpyxl.utils.cell import column_index_from_string, coordinate_from_string

from folkmoot.conversation.answer_types import Missing
from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.workbook.config import Scalar, WorkbookConfig
from folkmoot.studies.workbook.language.expressions import EvaluationContext, evaluate_for
from folkmoot.studies.workbook.preparation import load_workbook_config

SETTINGS = {
    "experiment_id": "market",
    "model_info": "gpt-4o-mini",
    "api_endpoint": None,
    "temperature": 1,
    "num_agents_per_session": 4,
    "num_sessions": 2,
    "max_conversation_length": 100,
    "treatment_assignment_strategy": "complete_random",
    "treatment_column": None,
    "session_assignment_strategy": "random",
    "session_column": None,
    "role_assignment_strategy": "random",
    "role_column": None,
    "random_seed": 7,
}
TASK_COLUMNS = (
    *("task_id", "type", "task_order", "is_adapted", "human_text", "llm_text", "var_name"),
    *("var_type", "response_options", "randomize_response_order", "validate_response"),
    *("generate_speculation_score", "format_response"),
)


def make_task_row(
    task_id: Any, kind: str, order: Any, text: str, name: str, **more: Any
) -> list[Any]:
    """Return a row of `interview_prompts`."""
    values = {
        **dict.fromkeys(TASK_COLUMNS),
        "task_id": task_id,
        "type": kind,
        "task_order": order,
        "is_adapted": 0,
        "llm_text": text,
        "var_name": name,
        **dict.fromkeys(TASK_COLUMNS[9:], 0),
        **more,
    }
    return [values[c] for c in TASK_COLUMNS]


def make_workbook() -> dict[str, list[list[Any]]]:
    """Make a valid workbook with every task type, both special roles, constants and computed."""
    return {
        "experimental_setting": [
            ["experimental_setting", "value"],
            *([k, v] for k, v in SETTINGS.items()),
        ],
        "treatments": [
            ["treatment_label", "treatment_description"],
            ["calm", "The market is calm today."],
            ["NONE", "Nothing is known about the market."],
        ],
        "agent_roles": [
            ["role_label", "role_description"],
            ["Facilitator", "You run the market."],
            ["Summarizer", "You keep the books."],
            ["Buyer", "You buy {{ goods }}."],
            ["Seller", "You sell {{ goods }}."],
        ],
        "interview_prompts": [
            list(TASK_COLUMNS),
            make_task_row("c", "context", 0, "This is a market for {{ goods }}.", "context"),
            make_task_row("t", "discussion", 1, "What is a fair price?", "talk"),
            make_task_row(
                "o",
                "private_question",
                2,
                '{"Buyer": "What do you bid? {response_options}",\n'
                ' "Seller": "What do you ask? {response_options}",}',
                "offer",
                var_type="integer",
                response_options="(0, 20)",
                validate_response=1,
            ),
            make_task_row(
                "m",
                "public_question",
                3,
                "All offers add up to {{ total }}; yours is {{ offer }}. Trade? {response_options}",
                "trade",
                var_type="category",
                response_options='["yes", "no", "I don’t know"]',
                randomize_response_order=1,
                validate_response=1,
            ),
            make_task_row(
                "s",
                "private_question",
                4,
                '{"Buyer": "How sure are you? {response_options}", "Summarizer": "Sum up."}',
                "sure",
                var_type="float",
                response_options='{"Buyer": (0, 1)}',
                validate_response=1,
                generate_speculation_score=1,
                format_response=1,
            ),
        ],
        "agent_profiles": [
            ["ID", "age", "town"],
            ["ID", "How old are you?", "Where do you live?"],
            *([f"p{i}", 20 + i, f"Town {i}"] for i in range(1, 9)),
        ],
        "constants": [["name", "value"], ["goods", '["apples"]']],
        "computed": [
            ["name", "scope", "expression"],
            ["total", "session", "sum(offer)"],
            ["share", "participant", "offer / total"],
        ],
    }


def with_cell(
    book: dict[str, list[list[Any]]], address: str, value: Any
) -> dict[str, list[list[Any]]]:
    """Return a copy of a workbook with another value in a cell (`agent_roles!B3`)."""
    changed = copy.deepcopy(book)
    sheet, cell = address.split("!")
    column, row = coordinate_from_string(cell)
    rows = changed[sheet]
    while len(rows) < row:
        rows.append([])
    index = column_index_from_string(column) - 1
    cells = rows[row - 1]
    cells.extend([None] * (index + 1 - len(cells)))
    cells[index] = value
    return changed


def with_setting(
    book: dict[str, list[list[Any]]], key: str, value: Any
) -> dict[str, list[list[Any]]]:
    """Return a copy of a workbook with another value of a setting."""
    changed = copy.deepcopy(book)
    for row in changed["experimental_setting"]:
        if row[0] == key:
            row[1] = value
    return changed


def save_workbook(book: dict[str, list[list[Any]]], path: Path) -> Path:
    """Write a workbook file with openpyxl."""
    out = Book()
    out.remove(out.active)
    for name, rows in book.items():
        sheet = out.create_sheet(name)
        for r, row in enumerate(rows, 1):
            for c, value in enumerate(row, 1):
                if value is not None:
                    sheet.cell(r, c, value)
    out.save(path)
    return path


def write_workbook(book: dict[str, list[list[Any]]], path: Path) -> Path:
    """Write a workbook file as XML, which is twenty times as fast as openpyxl."""
    names = list(book)
    kinds = "http://schemas.openxmlformats.org"
    office = f"{kinds}/officeDocument/2006/relationships"
    main = f"{kinds}/spreadsheetml/2006/main"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    with zipfile.ZipFile(path, "w") as out:
        overrides = "".join(
            f'<Override PartName="/xl/s{i}.xml" ContentType="{types}.worksheet+xml"/>'
            for i in range(len(names))
        )
        out.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{kinds}/package/2006/content-types">'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{types}.sheet.main+xml"/>'
            f"{overrides}</Types>",
        )
        out.writestr(
            "_rels/.rels", _format_relations([("officeDocument", "xl/workbook.xml")], office)
        )
        sheets = "".join(
            f'<sheet name={quoteattr(n)} sheetId="{i + 1}" r:id="r{i}"/>'
            for i, n in enumerate(names)
        )
        out.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{sheets}</sheets></workbook>',
        )
        parts = [("worksheet", f"s{i}.xml") for i in range(len(names))]
        out.writestr("xl/_rels/workbook.xml.rels", _format_relations(parts, office))
        for i, name in enumerate(names):
            rows = "".join(_format_row(r, cells) for r, cells in enumerate(book[name], 1))
            out.writestr(
                f"xl/s{i}.xml",
                f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>',
            )
    return path


def _format_relations(parts: list[tuple[str, str]], office: str) -> str:
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    listed = "".join(
        f'<Relationship Id="r{i}" Type="{office}/{kind}" Target="{target}"/>'
        for i, (kind, target) in enumerate(parts)
    )
    return f'<Relationships xmlns="{namespace}">{listed}</Relationships>'


def _format_row(number: int, cells: list[Any]) -> str:
    filled = [(c, v) for c, v in enumerate(cells, 1) if v is not None]
    inside = "".join(_format_cell(f"{get_column_letter(c)}{number}", v) for c, v in filled)
    return f'<row r="{number}">{inside}</row>' if inside else ""


def _format_cell(at: str, value: Any) -> str:
    if isinstance(value, bool):
        return f'<c r="{at}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, (int, float)):
        return f'<c r="{at}"><v>{value!r}</v></c>'
    if value.startswith("#N/A"):
        return f'<c r="{at}" t="e"><v>#N/A</v></c>'
    if value in ERROR_CODES:
        return f'<c r="{at}" t="e"><v>{value}</v></c>'
    if value.startswith("=") and len(value) > 1:
        return f'<c r="{at}"><f>{escape(value[1:])}</f></c>'
    text = escape("".join(ch for ch in value if ch in "\n\t" or ch >= " "))
    return f'<c r="{at}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'


def read_config(book: dict[str, list[list[Any]]], folder: Path) -> WorkbookConfig:
    """Write a workbook and return its configuration. Raises InputError."""
    return load_workbook_config(write_workbook(book, folder / "book.xlsx"))


def find_mistakes(book: dict[str, list[list[Any]]], folder: Path) -> list[str]:
    """Return the problems of a workbook as the researcher reads them."""
    try:
        read_config(book, folder)
    except InputError as error:
        return [str(p) for p in error.problems]
    return []


def make_script(**answers: Any) -> Callable[[Any, str], str]:
    """Return a function that answers the last question: number, option, JSON or words."""

    def answer(request: Any, address: str) -> str:
        prompt = request.messages[-1].content
        if request.schema is not None:
            return json.dumps({"response": answers.get("json", 0.5), "speculation_score": 20})
        if "How speculative" in prompt:
            return "33"
        if "Tell this person's story" in prompt:
            return str(answers.get("text", "A life."))
        if any(w in prompt for w in ("whole number from", "number alone", "a single number")):
            return str(answers.get("number", 5))
        options = re.findall(r"^- (.+)$", prompt, re.MULTILINE)
        if options:
            return str(answers.get("option", options[0]))
        return str(answers.get("text", f"words at {address}"))

    return answer


def make_provider(**answers: Any) -> ScriptedProvider:
    """Return a provider that answers by the script with these answers."""
    return ScriptedProvider(make_script(**answers), keep_requests=True)


def evaluate_expression(
    expression: str, context: EvaluationContext, participant: str | None
) -> Scalar | Missing:
    """Return the value of an expression for one participant."""
    return evaluate_for(expression, context, [participant])[0]
