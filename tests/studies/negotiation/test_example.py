"""The shipped example as a researcher runs it, with the embedded respondent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from tests.studies.negotiation.test_session import digest_run

EXAMPLE = Path(__file__).parents[3] / "examples" / "negotiation.yaml"


@pytest.mark.nightly(part="scale")
def test_the_example_decides_the_same_at_any_concurrency(tmp_path: Path) -> None:
    runs: list[Any] = [
        folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / str(n), concurrency=n)
        for n in (1, 64)
    ]
    assert digest_run(runs[0]) == digest_run(runs[1])
    decisions = runs[0].table("decisions")
    assert len(decisions) == 5 * 4 * 5 * 8
    assert not decisions["parse_error"].any()
    assert set(decisions["condition"]) == {"C1", "C2", "C3", "C4", "C5"}


def test_a_small_part_of_the_example(tmp_path: Path) -> None:
    """The words of members reach the decision. Text is the only input of the respondent."""
    run: Any = folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / "run", limit=1)
    scores = run.table("scores")
    named = scores.filter(scores["condition"] == "C2")
    assert (named.group_by("group_id", "topic", "member_id").max()["score"] >= 2).mean() > 0.9
    ballots = run.table("ballots")
    assert not ballots["missing"].any()
    answers = run.table("answers")
    assert answers["missing"].is_null().all()


def test_the_respondent_reacts_to_the_decision_it_is_asked_about(tmp_path: Path) -> None:
    """Exactly the members who get their first choice say that they are pleased."""
    few = ("group_types=[family, elder_young]", "groups_per_type=1", "conditions=[C3]")
    run: Any = folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / "run", overrides=few)
    members = run.table("members").select("group_id", "member_id", "member_name")
    scores = (
        run.table("scores").filter(pl.col("primary")).join(members, on=["group_id", "member_id"])
    )
    gets = run.table("portions").select("group_id", "topic", "member_id", "option")
    keys = ["group_id", "topic", "member_id", "option"]
    served = scores.join(gets, on=keys, how="semi")
    glad = {tuple(r) for r in served.select("group_id", "topic", "member_name").rows()}
    told = {True: 0, False: 0}
    lines = run.table("utterances").filter(pl.col("intent").str.starts_with("user_respond"))
    for group, topic, name, text in lines.select(
        "group_id", "topic", "speaker_name", "text"
    ).rows():
        pleased = any(w in text for w in ("works for me", "Good, I had hoped", "I am happy"))
        assert pleased is ((group, topic, name) in glad), (text, topic)
        told[pleased] += 1
    assert min(told.values()) > 10
    said = " ".join(run.table("utterances")["text"])
    assert "Italian food" in said or "Mexican food" in said
    assert "italian" not in said and "mexican" not in said
