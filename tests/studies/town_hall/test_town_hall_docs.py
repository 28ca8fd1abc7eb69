"""The page on the town hall quotes a real discussion and names every key, file and table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.studies.town_hall.files import FILES
from tests.fenced import find_blocks
from tests.shown import render_run_text

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "town_hall.md").read_text("utf-8")


# Daily, the next test reads the names on the page.
@pytest.mark.nightly(part="pages")
def test_the_quoted_discussion_is_that_of_the_example(tmp_path: Path) -> None:
    source, levels = ROOT / "examples" / "town_hall.yaml", ("sets=1", "levels=[2-1,4]")
    hall_run = folkmoot.run(source, model="synthetic", out=tmp_path / "run", overrides=levels)
    (quoted,) = (block for block in find_blocks(PAGE) if block.startswith("Round 2\n"))
    said = " ".join(render_run_text(hall_run.folder, "set01_lv4").split())
    pieces = [" ".join(p.split()) for p in quoted.split("…")]
    assert len(pieces) >= 4
    for piece in pieces:
        assert piece in said


def test_every_file_and_table_is_on_the_page(run_of_small_study: Callable[[str], Path]) -> None:
    run = folkmoot.load(run_of_small_study("town_hall"))
    tables = (t for t in run.folder.table_names() if t != "answers")
    for name in [*(f"{f}.json" for f in FILES), *tables]:
        assert f"`{name}`" in PAGE, name
