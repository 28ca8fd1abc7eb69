"""What stood in the prompts of every study type is what its design says, or shouted."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study import find_study, registered
from folkmoot.kit.exposure import ELSEWHERE, ExposureRow, differences
from tests.contract.small import EXAMPLES, small_study

# Study → the kinds that its decisions are checked for.
KINDS = {
    "cross_pollination": {"summaries", "interview", "dialogue"},
    "focus_group": {"material", "others' statements", "own words"},
    "negotiation": {"preferences", "strategy", "own words"},
    "town_hall": {"life story", "others' statements", "own words", "proposals"},
    "workbook": {"treatment"},
}
# A prompt of one's own that leaves something out, and what is then said.
DROPPED = {
    "cross_pollination": (
        *("final_vote_after_summary", "{{ cross_pollination_content }}"),
        "clarified_passive, final vote: summaries should stand in the prompt and did not in 6 of 6",
    ),
    "focus_group": (
        *("purchase_intent", "{{ stimulus }}"),
        "intent before: material should stand in the prompt and did not",
    ),
    "negotiation": (
        *("ballot", "{{ preference }}"),
        "C4, ballot: own words should stand in the prompt and did not",
    ),
    "town_hall": (
        *("shared_vote", "{{ s.text }}"),
        "1, vote: others' statements should stand in the prompt and did not",
    ),
    "workbook": (
        *("system", "{{ treatment }}"),
        "treatment should stand in the prompt and did not",
    ),
}


def test_every_study_type_says_what_its_decisions_see() -> None:
    assert set(KINDS) == set(DROPPED) == set(registered())
    assert all(ExposureRow in find_study(name).tables for name in KINDS)


@pytest.mark.parametrize("study", KINDS)
def test_what_stood_in_the_prompts_is_what_the_design_says(study: str, tmp_path: Path) -> None:
    done = folkmoot.run(small_study(study, tmp_path), model="synthetic", out=tmp_path / "run")
    assert differences(done.folder) == []
    table = done.table("exposure")
    stood = table.filter(table["expected"] & (table["texts"] > 0))
    assert set(stood["kind"]) >= KINDS[study]
    assert ELSEWHERE not in set(table["kind"])
    (finding,) = (f for f in done.findings() if f.key == "exposure")
    assert not finding.alarms and not finding.headline


@pytest.mark.nightly
@pytest.mark.parametrize(
    "example", [*(f"{name}.yaml" for name in KINDS if name != "workbook"), "public_goods.xlsx"]
)
def test_so_it_is_in_every_example_at_its_full_size(example: str, tmp_path: Path) -> None:
    done = folkmoot.run(EXAMPLES / example, model="synthetic", out=tmp_path / "run")
    assert differences(done.folder) == []
    assert ELSEWHERE not in set(done.table("exposure")["kind"])


@pytest.mark.parametrize("study", DROPPED)
def test_a_prompt_that_leaves_something_out_is_caught(study: str, tmp_path: Path) -> None:
    name, variable, told = DROPPED[study]
    shipped = find_study(study).prompts
    assert shipped is not None
    words = (shipped / f"{name}.md").read_text("utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / f"{name}.md").write_text(words.replace(variable, "…"), "utf-8")
    done = folkmoot.run(
        small_study(study, tmp_path / "study"),
        model="synthetic",
        out=tmp_path / "run",
        overrides=(f"prompts={own}",),
    )
    (finding,) = (f for f in done.findings() if f.key == "exposure")
    assert any(told in alarm for alarm in finding.alarms)
    assert finding.headline
