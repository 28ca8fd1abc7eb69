"""The embedded respondent at the table: varied, readable, contrary where the persona is, and its
pathologies are caught.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY

EXAMPLE = Path(__file__).parents[3] / "examples" / "focus_group.yaml"


def play(out: Path, *overrides: str, **options: Any) -> RunFolder:
    return folkmoot.run(EXAMPLE, out=out, model="synthetic", overrides=overrides, **options).folder


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return play(tmp_path_factory.mktemp("synthetic") / "run", "replications=12")


def test_length_phases_and_voices_of_every_group(groups: RunFolder) -> None:
    for _, talk in groups.table("utterances").group_by("group"):
        assert 40 <= talk.height <= 65
        assert talk["phase"].n_unique() == 5
        said = talk.filter(pl.col("role") == "participant")
        assert said["speaker_id"].n_unique() == 8
        turns = talk.sort("turn")["role"].to_list()
        assert turns[0] == "moderator"
        longest = max(len(run) for run in re.findall("p+", "".join(r[0] for r in turns)))
        assert longest <= 5


@pytest.mark.nightly
def test_length_and_voices_of_200_groups(tmp_path: Path) -> None:
    run = play(tmp_path / "run", "replications=200")
    for _, talk in run.table("utterances").group_by("group"):
        assert 40 <= talk.height <= 65
        assert talk["phase"].n_unique() == 5
        assert talk.filter(pl.col("role") == "participant")["speaker_id"].n_unique() == 8


def test_no_answer_needs_a_second_asking(groups: RunFolder) -> None:
    answers = groups.table("answers")
    assert answers["reasks"].sum() == 0
    assert answers["missing"].null_count() == answers.height


def test_words_are_varied_and_clean(groups: RunFolder) -> None:
    said = groups.table("utterances")
    for _, talk in said.group_by("group"):
        texts = talk.filter(pl.col("role") == "participant")["text"].to_list()
        assert max(Counter(texts).values()) <= 2
        assert len(set(texts)) >= 0.93 * len(texts)
    for text in said["text"]:
        assert not re.search(
            r"[{}]|None|\bnan\b|  |\.\.|,,| ,|\ba [aeio]\w+ (?:\w+ )?like that", text
        ), text
        assert text[0].isupper() and text[-1] in ".?!", text


def test_the_moderator_neither_numbers_nor_announces(groups: RunFolder) -> None:
    asked = groups.table("utterances").filter(pl.col("role") == "moderator")
    for text in asked["text"]:
        assert not re.match(r"\s*(?:\d|question|phase)", text, re.IGNORECASE)
    first = asked.filter(pl.col("turn") == 1)["text"].to_list()
    assert all(re.search(r"welcome|thank you for coming", t, re.IGNORECASE) for t in first)
    names = groups.table("personas")["name"].str.split(" ").list.first().to_list()
    drawn = asked.filter(pl.col("question") > 2)["text"].to_list()
    assert sum(any(n in t for n in names) for t in drawn) > 0.7 * len(drawn)


def test_words_follow_the_position(groups: RunFolder) -> None:
    intents = groups.table("intents")
    last = (
        groups.table("opinions")
        .group_by(["group", "persona_id"], maintain_order=True)
        .agg(pl.col("valence").last())
    )
    both = intents.join(last, on=["group", "persona_id"])
    assert both.select(pl.corr("score", "valence")).item() > 0.75
    against = both.filter(pl.col("valence") < -0.5)["score"].mean()
    favor = both.filter(pl.col("valence") > 0.5)["score"].mean()
    assert float(against) < 2.3 and float(favor) > 3.7  # type: ignore[arg-type]


def share(table: pl.DataFrame, column: str) -> float:
    return float(table[column].sum()) / table.height


def test_the_disagreeable_disagree_more(groups: RunFolder) -> None:
    said = groups.table("utterances").filter(pl.col("role") == "participant")
    who = groups.table("personas").select("group", "persona_id", "agreeableness")
    both = said.join(who, left_on=["group", "speaker_id"], right_on=["group", "persona_id"])
    both = both.with_columns(
        (pl.col("stance") == "disagree").fill_null(False).alias("no"),
        (pl.col("stance") == "agree").fill_null(False).alias("yes"),
    )
    low = both.filter(pl.col("agreeableness") < 40)
    high = both.filter(pl.col("agreeableness") >= 60)
    assert share(low, "no") > 1.5 * share(high, "no")
    assert share(high, "yes") > 1.3 * share(low, "yes")


def test_the_extraverted_say_more(groups: RunFolder) -> None:
    said = groups.table("utterances").group_by(["group", "speaker_id"]).agg(pl.col("words").sum())
    who = groups.table("personas").select("group", "persona_id", "extraversion")
    both = said.join(who, left_on=["group", "speaker_id"], right_on=["group", "persona_id"])
    assert both.select(pl.corr("words", "extraversion")).item() > 0.6


def test_same_seed_same_words_another_seed_others(tmp_path: Path) -> None:
    first = play(tmp_path / "a", seed=3).text("transcript.md")
    assert first == play(tmp_path / "b", seed=3).text("transcript.md")
    assert first != play(tmp_path / "c", seed=4).text("transcript.md")


def test_what_is_not_heard_has_no_effect(tmp_path: Path) -> None:
    """The respondent knows the others by their words alone: with one message in mind it hears
    less, and fewer are moved."""
    full = play(tmp_path / "full", "replications=8").table("opinions")
    deaf = play(tmp_path / "deaf", "replications=8", "context_messages=1").table("opinions")
    assert int(deaf["changed"].sum()) < 0.5 * int(full["changed"].sum())


def sycophancy_of(run: RunFolder) -> Mapping[str, float]:
    (found,) = (f for f in STUDY.findings(run) if f.key == "sycophancy")
    said = run.table("utterances").filter(
        (pl.col("role") == "participant") & (pl.col("position") > 1) & ~pl.col("probe")
    )
    return {
        "disagree": float((said["stance"] == "disagree").fill_null(False).mean() or 0),  # type: ignore[arg-type]
        "gave_in": float("gave in" in found.says),
        "rises": float("The later somebody speaks" in found.says),
    }


def test_the_check_catches_a_group_that_pleases(tmp_path: Path, groups: RunFolder) -> None:
    honest = sycophancy_of(groups)
    pleasing = sycophancy_of(
        play(tmp_path / "run", "replications=12", "respondent={sycophancy: 0.9}")
    )
    assert pleasing["disagree"] < 0.5 * honest["disagree"]
    assert pleasing["gave_in"] and not honest["gave_in"]
    assert not honest["rises"]
