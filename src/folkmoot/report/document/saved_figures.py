"""Save the charts of a report as SVG and PNG files for papers and slides.

A saved chart has a white background and names the run that it comes from.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from folkmoot.errors import InputError, Problem
from folkmoot.files import storage_errors, write_bytes
from folkmoot.report.document.document import Document
from folkmoot.report.document.style import FONT, svg_to_png
from folkmoot.storage.json_files import write_text
from folkmoot.storage.manifest import HUMAN_MARK, MIXED_MARK, SYNTHETIC_MARK

INK_ON_PAPER = "#1b1b1b"
# What a provenance label means, for readers who see the figure without its report.
MARK_MEANINGS = {
    SYNTHETIC_MARK: "simulated respondent, not evidence about people",
    MIXED_MARK: "people and models answered",
    HUMAN_MARK: "people answered",
}
# Pixels around the drawing, height of the line below it, and estimated width of one of its letters.
MARGIN, MARK_HEIGHT, MARK_LETTER = 8.0, 22.0, 6.4


class SavedFigure(NamedTuple):
    """A chart as a complete SVG file. `name` is the file name without the extension."""

    name: str
    svg: str

    @property
    def png(self) -> bytes:
        """The chart as a PNG image."""
        return svg_to_png(self.svg)

    @property
    def data_link(self) -> str:
        """The SVG file as a `data:` address, for a page that works offline."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


def figures_of_report(document: Document) -> Iterator[SavedFigure]:
    """Yield the charts of a report in order."""
    findings = [*document.headlines, *(f for part in document.sections for f in part.figures)]
    drawn = [finding for finding in findings if finding.panels]
    for number, finding in enumerate(drawn, 1):
        # Keys of an external study type may hold characters that file names must not.
        key = re.sub(r"[^\w-]+", "_", finding.finding.key)
        for panel_number, panel in enumerate(finding.panels, 1):
            suffix = f"_{panel_number}" if len(finding.panels) > 1 else ""
            yield SavedFigure(f"{number:02d}_{key}{suffix}", complete_svg(panel, document))


def saved_by_panel(document: Document) -> dict[str, SavedFigure]:
    """Return the saved charts of a report.

    Each key is the SVG of the chart in the form that the page shows.
    """
    findings = [*document.headlines, *(f for part in document.sections for f in part.figures)]
    panels = [panel for finding in findings for panel in finding.panels]
    return dict(zip(panels, figures_of_report(document), strict=True))


def save_figures(document: Document, folder: Path, *, png: bool = True) -> None:
    """Write all charts of a report as SVG files into `folder`.

    - `png`: True to write PNG files too.

    Raises InputError if `folder` is a file, and StorageError if it cannot be created.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(Problem("is a file; name a folder for the figures", str(folder)))
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for figure in figures_of_report(document):
        write_text(folder / f"{figure.name}.svg", figure.svg)
        if png:
            write_bytes(folder / f"{figure.name}.png", figure.png)


def complete_svg(panel: str, document: Document) -> str:
    """Return a chart of the report as a complete SVG file."""
    box = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', panel)
    assert box is not None
    width, height = float(box[1]), float(box[2])
    lines = [
        *([f"{document.mark}: {MARK_MEANINGS[document.mark]}"] if document.mark else []),
        *([document.partial] if document.partial else []),
    ]
    full_width = max(width, MARK_LETTER * max(map(len, lines), default=0)) + 2 * MARGIN
    full_height = height + 2 * MARGIN + MARK_HEIGHT * len(lines)
    inner = re.sub(r' style="max-width:[^"]*"', "", panel, count=1).replace(
        "<svg", f'<svg x="{MARGIN:g}" y="{MARGIN:g}" width="{width:g}" height="{height:g}"', 1
    )
    marks = "".join(
        f'<text x="{MARGIN:g}" y="{height + 2 * MARGIN + MARK_HEIGHT * (i + 0.5):g}" '
        f'font-family="{FONT}" font-size="11" fill="{INK_ON_PAPER}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width:g}" height="{full_height:g}" '
        f'viewBox="0 0 {full_width:g} {full_height:g}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f"{inner.replace('currentColor', INK_ON_PAPER)}{marks}</svg>\n"
    )
