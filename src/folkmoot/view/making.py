"""Make the overview of a run in a separate process."""
# The command is `python -m folkmoot.view.making RUN FOLDER` (see `overview.py`).

from __future__ import annotations

import re
import sys
from pathlib import Path

from markupsafe import Markup

from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import FolkmootError
from folkmoot.report.document.document import Document, build_document
from folkmoot.report.document.front import design_lanes, question_of
from folkmoot.report.document.html import format_prose, write_page
from folkmoot.report.document.saved_figures import save_figures, saved_by_panel
from folkmoot.storage.json_files import write_text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.overview import FIGURES, FINDINGS, heading_of
from folkmoot.view.site import template_environment


def make_pages(run: RunFolder, folder: Path) -> None:
    """Write the overview of a run and its report into a folder."""
    # The tables of a run in progress are ignored, because some may not be written yet. Without
    # tables, there is no report.
    content: Document | None = None
    if run.table_names() and not is_held(run.path):
        content = build_document(run)
        write_page(content, folder)
        # PNG files take longer than everything else, so each is drawn when it is asked for.
        save_figures(content, folder / FIGURES, png=False)
    front = content.front if content else None
    question = front.question if front else question_of(run.config)
    env = template_environment()
    env.filters["prose"] = format_prose
    env.filters["drawing"] = draw_chart
    page = env.get_template("findings.html.j2").render(
        doc=content,
        saved=saved_by_panel(content) if content else {},
        question=question if heading_of(run.config) != question else "",
        lanes=(
            design := front.lanes if front else tuple(design_lanes(run, find_study_of_run(run)))
        ),
        seen=any(lane.steps for lane in design),
    )
    write_text(folder / FINDINGS, page)


def draw_chart(svg: str) -> Markup:
    """Return a chart without inline styles."""
    # The content security policy of the pages forbids inline styles.
    sized = re.sub(r' style="max-width:(\d+)px"', r' width="\1"', svg, count=1)
    return Markup(re.sub(r' style="[^"]*"', "", sized))


if __name__ == "__main__":
    try:
        make_pages(RunFolder(sys.argv[1]), Path(sys.argv[2]))
    except FolkmootError as error:
        sys.exit(str(error))
