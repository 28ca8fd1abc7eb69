"""Write `report.pdf` with Typst. The PDF is the same report as the HTML page.

Typst is an optional extra that works offline.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from folkmoot.errors import InputError
from folkmoot.files import write_bytes
from folkmoot.hints import lacks_extra
from folkmoot.report.document.document import Document, DrawnFinding
from folkmoot.report.document.validity import CARD_NOTE
from folkmoot.report.preregistration import Preregistration
from folkmoot.storage.findings import ResultTable, column_heading, format_cell, numeric_columns

TEMPLATE = Path(__file__).parent / "templates" / "report.typ"
TABLES = TEMPLATE.with_name("tables.typ")
REGISTRATION = TEMPLATE.with_name("preregistration.typ")
# The caption of a longer table gives the number of rows left out. The HTML report shows all rows.
MOST_ROWS = 40
# In a table with a cell longer than this (in characters), columns of text share the width.
PROSE = 60
# Columns up to 8 characters take the width that they need. Above 120 characters, the share of a
# column does not grow any further.
WEIGHTS = 8, 120
# A drawing of this width in pixels fills the width of the page.
PAGE = 640.0


def load_typst() -> ModuleType:
    """Return the module `typst`.

    Raises InputError if Typst is not installed.
    """
    try:
        import typst
    except ModuleNotFoundError:
        raise InputError(lacks_extra("a PDF", "pdf", "Typst")) from None
    module: ModuleType = typst
    return module


def write_pdf(document: Document, path: Path) -> Path:
    """Write a report as a PDF and return the path of the file.

    Raises InputError if Typst is not installed.
    """
    # The PDF holds the first 40 rows of each table.
    typst = load_typst()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for template in (TEMPLATE, TABLES):
            (folder / template.name).write_text(template.read_text("utf-8"), "utf-8")
        data = _Writer(folder).document_data(document)
        (folder / "report.json").write_text(json.dumps(data), "utf-8")
        write_bytes(path, typst.compile(str(folder / "report.typ")))
    return path


def write_registration_pdf(text: Preregistration, path: Path) -> Path:
    """Write a preregistration as a PDF and return the path of the file.

    Raises InputError if Typst is not installed.
    """
    typst = load_typst()
    data = {
        "title": text.title,
        "digest": text.digest,
        "note": text.note,
        "sections": [
            {
                "title": section.title,
                "fields": [
                    {
                        "title": field.title,
                        "paragraphs": [_strip_markup(words) for words in field.paragraphs],
                        "numbered": [_strip_markup(words) for words in field.numbered],
                        "grid": _grid_data(field.grid, None),
                        "verbatim": field.verbatim,
                    }
                    for field in section.fields
                ],
            }
            for section in text.sections
        ],
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        for template in (REGISTRATION, TABLES):
            (folder / template.name).write_text(template.read_text("utf-8"), "utf-8")
        (folder / "preregistration.json").write_text(json.dumps(data), "utf-8")
        write_bytes(path, typst.compile(str(folder / REGISTRATION.name)))
    return path


class _Writer:
    # Collects the content for the Typst template. Drawings become files beside the template. All
    # other content goes into one JSON object.
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drawn = 0

    def document_data(self, doc: Document) -> dict[str, object]:
        trust, methods = doc.trust, doc.methods
        # The command line refuses a PDF of a grid, so every document here has both sections.
        assert trust is not None and methods is not None
        return {
            "title": doc.title,
            "subtitle": doc.subtitle,
            "partial": doc.partial,
            "mark": doc.mark,
            "note": doc.caution,
            "planted": doc.planted,
            "front": self._front_data(doc),
            "sections": [
                {
                    "title": "Main findings",
                    "figures": [
                        self._write_figure(drawn_finding) for drawn_finding in doc.headlines
                    ],
                },
                *(
                    {
                        "title": section.title,
                        "figures": [
                            self._write_figure(drawn_finding) for drawn_finding in section.figures
                        ],
                    }
                    for section in doc.sections
                ),
            ],
            "deviations": list(trust.deviations),
            "registered": [_strip_markup(words) for words in trust.registered],
            "claims": _grid_data(trust.claims),
            "versions": _grid_data(trust.versions),
            "since": list(trust.since),
            "tables": [
                {"title": "Models, as requested and as served", "grid": _grid_data(trust.models)},
                {"title": "The run", "grid": _grid_data(trust.run)},
                {"title": "How answers were parsed", "grid": _grid_data(trust.answers)},
                {"title": "GUIDE-LLM checklist", "grid": _grid_data(methods.checklist)},
                {"title": "Hashes", "grid": _grid_data(trust.hashes)},
            ],
            "methods": [_strip_markup(words) for words in methods.paragraphs],
        }

    def _front_data(self, doc: Document) -> dict[str, object]:
        front = doc.front
        assert front is not None
        return {
            "question": front.question,
            "lanes": [
                {
                    "arm": lane.arm,
                    "people": lane.size,
                    "steps": [
                        {"sees": list(step.sees) or ["nothing shown"], "decision": step.decision}
                        for step in lane.steps
                    ],
                    "without": lane.without_steps,
                }
                for lane in front.lanes
            ],
            "excluded": front.excluded,
            "fixed": front.fixed,
            "contrasts": [
                {**contrast._asdict(), "outcome": f"{contrast.outcome}:"}
                for contrast in front.contrasts
            ],
            "answer": [_strip_markup(words) for words in front.answer],
            "legend": _strip_markup(front.legend),
            "panels": [self._write_panel(doc.answer)] if doc.answer else [],
            "colour": front.colour,
            "verdict": front.verdict,
            "lights": [{"colour": lamp, "reason": why} for lamp, why in front.lights],
            "card": [
                {
                    "colour": colour,
                    "name": row.name,
                    "verdict": row.verdict,
                    "figures": _strip_markup(row.figures),
                    "consequence": _strip_markup(row.consequence),
                }
                for colour, row in front.coloured_card
            ],
            "card_note": CARD_NOTE,
        }

    def _write_figure(self, figure: DrawnFinding) -> dict[str, object]:
        finding = figure.finding
        return {
            "title": finding.title,
            "says": _strip_markup(finding.says),
            "panels": [self._write_panel(svg) for svg in figure.panels],
            "share": min(0.88, max(map(_svg_width, figure.panels), default=0.0) / PAGE),
            "grid": _grid_data(finding.grid),
            "notes": [
                _strip_markup(name) for name in (finding.independent, *finding.notes) if name
            ],
            "alarms": [_strip_markup(alarm) for alarm in finding.alarms],
        }

    def _write_panel(self, svg: str) -> str:
        self._drawn += 1
        name = f"figure{self._drawn}.svg"
        (self._folder / name).write_text(svg.replace("currentColor", "#1b1b1b"), "utf-8")
        return name


def _strip_markup(text: str) -> str:
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text).replace("`", "")


def _svg_width(svg: str) -> float:
    found = re.search(r"max-width:(\d+)px", svg)
    return float(found[1]) if found else PAGE


def _column_widths(grid: ResultTable, rows: list[list[str]]) -> list[float]:
    # 0 means automatic width, for columns with numbers or short texts. The others share the
    # remaining width. A column with longer texts gets more of it.
    columns = list(zip(*rows, strict=True))
    longest = [max(map(len, cells)) for cells in columns] or [0] * len(grid.columns)
    if max(longest, default=0) <= PROSE:
        return [0.0] * len(longest)
    low, high = WEIGHTS
    return [
        # The exponent limits the ratio of widths: a text twice as long gets a column half as wide
        # again.
        0.0 if number or length <= low else min(length, high) ** 0.6
        for number, length in zip(numeric_columns(grid), longest, strict=True)
    ]


def _grid_data(grid: ResultTable, most: int | None = MOST_ROWS) -> dict[str, object]:
    left = 0 if most is None else len(grid.rows) - most
    rows = [
        [format_cell(value, column) for value, column in zip(row, grid.columns, strict=True)]
        for row in grid.rows[:most]
    ]
    return {
        "columns": [column_heading(column) for column in grid.columns],
        "numeric": numeric_columns(grid),
        "widths": _column_widths(grid, rows),
        "rows": rows,
        "caption": grid.caption
        + (f" … and {left} more rows in the HTML report" if left > 0 else ""),
    }
