"""The page on the town hall quotes a real discussion and names every key, file and table."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot import Run
from folkmoot.studies.town_hall.files import FILES
from tests.fenced import blocks
from tests.shown import shown

pytestmark = pytest.mark.xdist_group("page of a hall")  # one run is enough
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "town_hall.md").read_text("utf-8")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("hall") / "run"
    source = ROOT / "examples" / "town_hall.yaml"
    return folkmoot.run(source, model="synthetic", out=out, overrides=("sets=1", "levels=[2-1,4]"))


def test_the_quoted_discussion_is_that_of_the_example(held: Run) -> None:
    (quoted,) = (block for block in blocks(PAGE) if block.startswith("Round 2\n"))
    said = " ".join(shown(held.folder, "set01_lv4").split())
    pieces = [" ".join(p.split()) for p in quoted.split("…")]
    assert len(pieces) >= 4
    for piece in pieces:
        assert piece in said


def test_every_file_and_table_is_on_the_page(held: Run) -> None:
    tables = (t for t in held.folder.table_names() if t != "answers")
    for name in [*(f"{f}.json" for f in FILES), *tables]:
        assert f"`{name}`" in PAGE, name
