"""Makes the overview of a run: `python -m folkmoot.view.making RUN FOLDER` (see `overview.py`)."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from markupsafe import Markup

from folkmoot.engine.study import study_of_run
from folkmoot.errors import FolkmootError
from folkmoot.report.document import Document, document
from folkmoot.report.front import Lane, question_of
from folkmoot.report.html import prose, write_page
from folkmoot.report.samples import condition_name
from folkmoot.storage.files import write_text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.overview import FINDINGS
from folkmoot.view.site import environment


def make(run: RunFolder, folder: Path) -> None:
    """Write the overview of a run into a folder; its report too, where there are tables."""
    content: Document | None = None
    if run.tables():
        content = document(run)
        write_page(content, folder)
    at = content.front if content else None
    env = environment()
    env.filters["prose"] = prose
    env.filters["drawing"] = drawing
    page = env.get_template("findings.html.j2").render(
        doc=content,
        question=at.question if at else question_of(run.config),
        lanes=at.lanes if at and at.lanes else planned_lanes(run),
        seen=bool(at and at.lanes),
    )
    write_text(folder / FINDINGS, page)


def drawing(svg: str) -> Markup:
    """A chart of ours without styles of its own, which the pages' policy forbids."""
    sized = re.sub(r' style="max-width:(\d+)px"', r' width="\1"', svg, count=1)
    return Markup(re.sub(r' style="[^"]*"', "", sized))


def planned_lanes(run: RunFolder) -> tuple[Lane, ...]:
    """The arms and how many take part, from the sealed plan."""
    sealed = {name: part.get("data") for name, part in run.plan.get("sealed", {}).items()}
    counts: Counter[str] = Counter()
    for planned in study_of_run(run).planned(sealed):
        counts.update(str(row["condition"]) for row in planned.rows if row.get("condition"))
    return tuple(Lane(condition_name(arm), people, ()) for arm, people in counts.items())


if __name__ == "__main__":
    try:
        make(RunFolder(sys.argv[1]), Path(sys.argv[2]))
    except FolkmootError as error:
        sys.exit(str(error))
