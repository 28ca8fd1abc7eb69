"""The shipped example as a user runs it, with the embedded respondent (nightly: it is long)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import folkmoot
from tests.studies.negotiation.test_session import digest

EXAMPLE = Path(__file__).parents[3] / "examples" / "negotiation.yaml"


@pytest.mark.nightly
def test_the_example_decides_the_same_at_any_concurrency(tmp_path: Path) -> None:
    runs: list[Any] = [
        folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / str(n), concurrency=n)
        for n in (1, 64)
    ]
    assert digest(runs[0]) == digest(runs[1])
    decisions = runs[0].table("decisions")
    assert len(decisions) == 5 * 4 * 5 * 8
    assert not decisions["parse_error"].any()
    assert set(decisions["condition"]) == {"C1", "C2", "C3", "C4", "C5"}


def test_a_small_part_of_the_example(tmp_path: Path) -> None:
    """What members say reaches the decision: text is the respondent's only channel."""
    run: Any = folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / "run", limit=2)
    scores = run.table("scores")
    named = scores.filter(scores["condition"] == "C2")
    assert (named.group_by("group_id", "topic", "member_id").max()["score"] >= 2).mean() > 0.9
    ballots = run.table("ballots")
    assert not ballots["missing"].any()
    answers = run.table("answers")
    assert answers["missing"].is_null().all()


def test_the_respondent_reacts_to_the_decision_it_is_asked_about(tmp_path: Path) -> None:
    """Who accepts says so, who does not asks for the own wish, and the mediator answers that."""
    few = ("group_types=[family, elder_young]", "conditions=[C5]")
    run: Any = folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / "run", overrides=few)
    told = {True: 0, False: 0}
    for path in sorted((run.path / "groups").glob("*/C5")):
        decisions = run.folder.json(f"groups/{path.parent.name}/C5/decisions.json")
        dialogue = run.folder.json(f"groups/{path.parent.name}/C5/dialogue.json")
        for slot in ("cuisine", "attraction", "event"):
            lines = [x for x in dialogue[slot] if x["intent"] == f"user_feedback_{slot}"]
            for round_, line in zip(decisions[slot]["feedback"], lines, strict=True):
                asks = any(w in line["text"] for w in ("Could we fit", "I'd feel better"))
                assert asks is not round_["resolved"], line
                told[round_["resolved"]] += 1
    assert min(told.values()) > 3
    said = " ".join(run.table("utterances")["text"])
    assert "something Italian" in said
    assert "italian" not in said
