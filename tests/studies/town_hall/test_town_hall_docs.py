"""The page on the town hall quotes a real discussion and names every key, file and table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.studies.town_hall.files import FILES
from tests.fenced import blocks
from tests.shown import shown

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "town_hall.md").read_text("utf-8")


# Daily, the next test reads the names on the page.
@pytest.mark.nightly(part="pages")
def test_the_quoted_discussion_is_that_of_the_example(tmp_path: Path) -> None:
    source, levels = ROOT / "examples" / "town_hall.yaml", ("sets=1", "levels=[2-1,4]")
    hall_run = folkmoot.run(source, model="synthetic", out=tmp_path / "run", overrides=levels)
    (quoted,) = (block for block in blocks(PAGE) if block.startswith("Round 2\n"))
    said = " ".join(shown(hall_run.folder, "set01_lv4").split())
    pieces = [" ".join(p.split()) for p in quoted.split("…")]
    assert len(pieces) >= 4
    for piece in pieces:
        assert piece in said


def test_every_file_and_table_is_on_the_page(small_run: Callable[[str], Path]) -> None:
    run = folkmoot.load(small_run("town_hall"))
    tables = (t for t in run.folder.table_names() if t != "answers")
    for name in [*(f"{f}.json" for f in FILES), *tables]:
        assert f"`{name}`" in PAGE, name
