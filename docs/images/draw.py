"""Draws the picture of the README from a run of the example: `python docs/images/draw.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import folkmoot
from folkmoot.report.charts import svgs

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        example = HERE.parents[1] / "examples" / "cross_pollination.yaml"
        run = folkmoot.run(example, out=Path(folder) / "run")
        finding = next(f for f in run.findings() if f.key == "position_change")
        assert finding.chart is not None
        (picture,) = svgs(finding.chart, finding.title)
        (HERE / "position_change.svg").write_text(picture, "utf-8")
        print(finding.says)


if __name__ == "__main__":
    main()
