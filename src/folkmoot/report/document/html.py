"""Write `report.html`, a page without scripts that works offline and prints well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.study.derived_files import write_derived_files
from folkmoot.engine.study.study import Study, analysed_parts, find_study_of_run
from folkmoot.report.comparison.pooled import findings_of_cells
from folkmoot.report.document.document import Document, build_document, grid_document
from folkmoot.report.document.pdf import load_typst, write_pdf
from folkmoot.report.document.saved_figures import save_figures, saved_by_panel
from folkmoot.report.document.validity import CARD_NOTE, CardRow, claims_over_wordings
from folkmoot.storage.findings import (
    CardBoard,
    column_heading,
    format_cell,
    numeric_columns,
)
from folkmoot.storage.json_files import write_content, write_text
from folkmoot.storage.partial_run import PartialRun
from folkmoot.storage.run_folder import JOURNAL, RunFolder, RunSoFar

TEMPLATES = Path(__file__).parent / "templates"
HTML = "report.html"
PDF = "report.pdf"


def write_report(
    run: RunFolder,
    pdf: bool = False,
    figures: Path | None = None,
    study: Study | None = None,
) -> Path:
    """Write `report.html` into the run folder and return the path of the file.

    Of a killed or active run, the JSON files of the study are written too, for its complete parts.

    - `pdf`: also write `report.pdf`, and return the path of that file.
    - `figures`: a folder for all charts as SVG and PNG files, or None.
    - `study`: the study type of the run. None means that it is looked up.

    Raises InputError and writes nothing if a PDF is requested and Typst is not installed.
    """
    if pdf:
        # Check for Typst first, so that a missing package is reported before any file is written.
        load_typst()
    study = study or find_study_of_run(run)
    covered_run = analysed_parts(study, run)
    content = build_document(covered_run, study=study)
    path = write_page(content, run.path)
    _write_derived_files(study, covered_run)
    if figures is not None:
        save_figures(content, figures)
    if pdf:
        return write_pdf(content, run.path / PDF)
    return path


def _write_derived_files(study: Study, run: RunFolder) -> None:
    # The process of a killed or active run has not written the files that the study derives from
    # its results.
    if isinstance(run, PartialRun) and isinstance(run.whole, RunSoFar) and run.parts.analysed:
        with JournalReader(run.path / JOURNAL) as journal:
            write_derived_files(
                study, run, journal, lambda file, content: write_content(run.path / file, content)
            )


def write_grid_report(grid: RunGrid) -> Path:
    """Write the report of a grid, and the report of each finished run.

    Each report is written into the folder of the grid or run that it describes. Returns the path of
    the grid's report.
    """
    cells = findings_of_cells(grid)
    finished = grid.finished_cells()
    # All cells share one judgement over the wordings, so it is made once.
    over_grid = next((claims_over_wordings(run) for _, run in finished.values()), None)
    cards: dict[str, Sequence[CardRow]] = {}
    for name, (_, run) in finished.items():
        content = build_document(run, cells[name] or (), over_grid)
        write_page(content, run.path)
        cards[name] = content.front.card if content.front is not None else ()
    return write_page(grid_document(grid, cells, cards), grid.path)


def write_page(content: Document, folder: Path) -> Path:
    """Write `report.html` into a folder and return the path of the file."""
    page = (
        _template_environment()
        .get_template("report.html.j2")
        .render(
            doc=content,
            saved=saved_by_panel(content),
            card_note=CARD_NOTE,
            css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        )
    )
    write_text(folder / HTML, page)
    return folder / HTML


@cache
def _template_environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Folkmoot draws the SVGs itself and escapes their texts, so they may enter the page unescaped.
    env.filters["svg"] = Markup
    env.filters["heading"] = column_heading
    env.filters["cell"] = format_cell
    env.filters["numeric_columns"] = numeric_columns
    env.filters["cards"] = arrange_cards
    env.filters["prose"] = format_prose
    return env


def format_prose(text: str) -> Markup:
    """Return a sentence as HTML."""
    # Text in backticks becomes code. The space before a percent sign becomes a no-break space.
    kept = re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(kept))))


def arrange_cards(board: CardBoard) -> dict[str, object]:
    """Return the columns and the rows of a board. A missing card is None."""
    # Rows and columns are in the order in which `board.items` first names them.
    columns = list(dict.fromkeys(item[1] for item in board.items))
    rows = list(dict.fromkeys(item[0] for item in board.items))
    found = {(item[0], item[1]): item[2:] for item in board.items}
    return {
        "columns": columns,
        "rows": [(row, [found.get((row, column)) for column in columns]) for row in rows],
    }
