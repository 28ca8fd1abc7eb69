"""Draws the picture of the README from a run of the example: `python docs/images/draw.py`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import folkmoot
from folkmoot.report.charts import svgs

HERE = Path(__file__).parent
# As a picture of its own the drawing must follow light and dark by itself, and say what it is.
STYLE = "<style>svg{color:#1b1b1b}@media(prefers-color-scheme:dark){svg{color:#e6edf3;filter:brightness(1.35)}}</style>"
MARK = "SYNTHETIC: planted by the embedded respondent, not about people"
FOOT = 22


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        example = HERE.parents[1] / "examples" / "cross_pollination.yaml"
        run = folkmoot.run(example, out=Path(folder) / "run")
        finding = next(f for f in run.findings() if f.key == "position_change")
        assert finding.chart is not None
        (picture,) = svgs(finding.chart, f"{finding.title}. {finding.says}")
        (HERE / "position_change.svg").write_text(standing_alone(picture), "utf-8")
        print(finding.says)


def standing_alone(svg: str) -> str:
    """The drawing with a size, its own colours for light and dark, and the mark below."""
    width, height = (float(x) for x in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())  # type: ignore[union-attr]
    head, rest = svg.split(">", 1)
    head = re.sub(r' style="[^"]*"| viewBox="[^"]*"', "", head)
    tall = height + FOOT
    size = f'width="{width:g}" height="{tall:g}" viewBox="0 0 {width:g} {tall:g}"'
    mark = (
        f'<text x="{width / 2:g}" y="{tall - 6:g}" text-anchor="middle" font-size="11" '
        f'font-family="Liberation Sans, Arial, Helvetica, sans-serif" fill="currentColor" '
        f'fill-opacity="0.7">{MARK}</text></svg>'
    )
    return f"{head} {size}>{STYLE}{rest.removesuffix('</svg>')}{mark}"


if __name__ == "__main__":
    main()
