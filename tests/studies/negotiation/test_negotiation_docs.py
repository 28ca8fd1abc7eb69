"""The page on negotiations quotes the records of a real run and names every key and table."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot import Run
from tests.fenced import find_blocks
from tests.shown import render_run_text

pytestmark = pytest.mark.xdist_group("page of a negotiation")  # one run is enough
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "negotiation.md").read_text("utf-8")


@pytest.fixture(scope="module")
def docs_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("negotiation") / "run"
    few = ("group_types=[elder_young]", "groups_per_type=1", "conditions=[C4, C5]")
    source = ROOT / "examples" / "negotiation.yaml"
    return folkmoot.run(source, model="synthetic", out=out, overrides=few)


def test_the_quoted_trail_is_what_the_example_says(docs_run: Run) -> None:
    quoted = [
        block for block in find_blocks(PAGE) if block.startswith(("Grandparent 1: ", "System: "))
    ]
    assert len(quoted) == 3
    said = render_run_text(docs_run.folder, "elder_young_01/C5/cuisine")
    for block in quoted:
        assert block.strip() in said


def test_the_quoted_count_is_that_of_the_record(docs_run: Run) -> None:
    record = docs_run.folder.read_json("groups/elder_young_01/C5/decisions.json")["cuisine"]
    for option in record["vote_summary"]["option_details"]:
        scores = [*option["member_scores"].values(), option["total_score"]]
        row = f"| {option['option']} | " + " | ".join(str(s) for s in scores) + " |"
        assert row.replace("-", "−") in PAGE
    assert record["proposed_strategy"] in PAGE
    (round_, *_) = record["feedback"]
    assert round_["targeted_feedback_question"] in PAGE


def test_every_table_is_on_the_page(docs_run: Run) -> None:
    for name in (t for t in docs_run.folder.table_names() if t != "answers"):
        assert f"`{name}`" in PAGE, name
