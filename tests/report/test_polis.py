"""Polis exports: the files as pol.is writes them, and groups as Polis finds them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from sklearn.metrics import adjusted_rand_score

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import InputError
from folkmoot.measures.clusters import opinion_groups
from folkmoot.report.export import export_run
from folkmoot.report.polis import (
    CastVote,
    Comment,
    ExportedConversation,
    write_conversation,
    write_polis,
)
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.table_buffer import rows_to_frame
from folkmoot.storage.tables import write_table

COMMENTS = [
    *("timestamp", "datetime", "comment-id", "author-id", "agrees", "disagrees"),
    *("moderated", "comment-body"),
]
VOTES = ["timestamp", "datetime", "comment-id", "voter-id", "vote"]
PARTICIPANTS = ["participant", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree"]
SUMMARY = [
    *("topic", "url", "views", "voters", "voters-in-conv", "commenters", "comments", "groups"),
    "conversation-description",
]


def read(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def test_the_fields_are_those_of_polis(tmp_path: Path) -> None:
    said = ExportedConversation("Bread, or roses?", 'Two lines:\nand "quotes"')
    said.comments = [Comment("Bread, first", "b", 1_400_000_000_000), Comment("Roses")]
    said.people = {"a": "", "b": "", "c": ""}
    said.votes = [
        *(CastVote("a", 0, 1, 1_400_000_001_000), CastVote("a", 0, -1, 1_400_000_009_000)),
        *(CastVote("b", 0, 0, 1_400_000_002_000), CastVote("b", 1, 1, 1_400_000_003_000)),
    ]
    write_conversation(said, tmp_path)

    comments = read(tmp_path / "comments.csv")
    assert comments[0] == COMMENTS
    assert comments[1] == [
        *("1400000000000", "Tue May 13 16:53:20 UTC 2014", "0", "1", "0", "1", "1"),
        "Bread, first",
    ]
    assert (
        comments[2][3] == "3"
    )  # None of the three wrote it. Programs that read the file know no author below 0.
    # Every vote is kept with its time; the matrix holds the last of each.
    votes = read(tmp_path / "votes.csv")
    assert votes[0] == VOTES
    assert [row[2:] for row in votes[1:]] == [
        ["0", "0", "1"],
        ["0", "0", "-1"],
        ["0", "1", "0"],
        ["1", "1", "1"],
    ]
    matrix = read(tmp_path / "participants-votes.csv")
    assert matrix[0] == [*PARTICIPANTS, "0", "1"]
    assert matrix[1:] == [
        ["0", "", "0", "1", "0", "1", "-1", ""],
        ["1", "", "1", "2", "1", "0", "0", "1"],
        ["2", "", "0", "0", "0", "0", "", ""],
    ]
    summary = read(tmp_path / "summary.csv")
    assert [row[0] for row in summary] == SUMMARY
    assert dict(summary)["conversation-description"] == said.description
    assert (dict(summary)["voters"], dict(summary)["commenters"]) == ("2", "2")


def test_a_choice_among_options_is_one_agreement_and_nothing_else(
    pilot: RunFolder, tmp_path: Path
) -> None:
    export_run(pilot, "polis", tmp_path / "polis")
    people = pilot.read_table("participants").filter(pl.col("initial_choice").is_not_null())
    votes = pl.read_csv(tmp_path / "polis" / "votes.csv")
    assert votes["vote"].to_list() == [1] * people.height
    comments = dict(
        pl.read_csv(tmp_path / "polis" / "comments.csv")
        .select("comment-body", "agrees")
        .iter_rows()
    )
    last = pl.coalesce("final_choice", "initial_choice")
    assert comments == {o: people.filter(last == o).height for o in comments}
    # The times are those of the calls in which the choices were made.
    with JournalReader(pilot.path / "journal.sqlite") as journal:
        called = {int(1000 * journal.call_time(address)) for address in journal.list_addresses()}
    assert set(votes["timestamp"]) <= called and votes["timestamp"].n_unique() > 1
    # Polis forgets who they were and what they chose at first: a file of its own keeps it.
    known = pl.read_csv(tmp_path / "polis" / "participants.csv")
    assert known["participant_id"].to_list() == people["participant_id"].to_list()
    assert known["first_choice"].to_list() == people["initial_choice"].to_list()


@pytest.mark.parametrize("topic", ["Parks or jobs?", {"options": ["Parks"]}, None])
def test_a_study_of_ones_own_may_name_its_options_nowhere(topic: object, tmp_path: Path) -> None:
    """A vote on what the study file does not list, and a last vote without a first, are votes."""
    rows = [("a", "Parks", "Jobs"), ("b", None, "Jobs"), ("c", "Parks", None), ("d", None, None)]
    columns = ("participant_id", "initial_choice", "final_choice")
    (tmp_path / "run" / "tables").mkdir(parents=True)
    table = rows_to_frame(dict(zip(columns, row, strict=True)) for row in rows)
    write_table(tmp_path / "run" / "tables", "participants", table)
    (tmp_path / "run" / "study.yaml").write_text(yaml.safe_dump({"study": "own", "topic": topic}))
    write_polis(RunFolder(tmp_path / "run"), tmp_path / "out")
    comments = {row[7]: row[2] for row in read(tmp_path / "out" / "comments.csv")[1:]}
    cast = {(row[3], row[2]) for row in read(tmp_path / "out" / "votes.csv")[1:]}
    assert cast == {("0", comments["Jobs"]), ("1", comments["Jobs"]), ("2", comments["Parks"])}


def test_each_discussion_of_a_town_hall_is_a_conversation(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    held = RunFolder(run_of_small_study("town_hall"))
    export_run(held, "polis", tmp_path / "polis")
    for (name,), items in held.read_table("items").group_by(["discussion_id"], maintain_order=True):
        folder = tmp_path / "polis" / str(name)
        comments = pl.read_csv(folder / "comments.csv")
        assert comments["comment-body"].to_list() == items["text"].to_list()
        assert comments["agrees"].to_list() == items["yes"].to_list()
        assert comments["disagrees"].to_list() == items["no"].to_list()
        assert comments["author-id"].min() >= 0
        votes = held.read_table("votes").filter(pl.col("discussion_id") == name)
        cast = votes.filter(pl.col("vote").is_in(["yes", "no", "abstain"])).height
        assert pl.read_csv(folder / "votes.csv").height == cast


def test_a_study_without_votes_is_refused(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no votes that can be written"):
        export_run(RunFolder(run_of_small_study("focus_group")), "polis", tmp_path / "polis")


def test_two_camps_are_two_groups_and_one_opinion_is_none() -> None:
    rng = np.random.default_rng(3)
    camp = np.repeat([0, 1], [40, 20])
    sides = np.where(camp[:, None] == 0, 1.0, -1.0) * np.tile([1, -1], 8)
    votes = np.where(rng.random((60, 16)) < 0.15, 0.0, sides)
    votes[rng.random((60, 16)) < 0.4] = np.nan
    votes[-1] = np.nan
    votes[-1, :3] = sides[-1, :3]
    found = opinion_groups(votes)
    assert found[-1] is None  # three votes are too few
    kept = [
        (c, g)
        for c, g, row in zip(camp, found, votes, strict=True)
        if g is not None and np.isfinite(row).sum() >= 7
    ]
    assert adjusted_rand_score(*zip(*kept, strict=True)) > 0.9
    assert found[0] == 0  # the larger group comes first
    assert opinion_groups(np.ones((30, 5))) == [None] * 30
    assert opinion_groups(np.full((4, 3), np.nan)) == [None] * 4


@pytest.mark.skipif(
    "FOLKMOOT_POLIS" not in os.environ, reason="set FOLKMOOT_POLIS to a folder of Polis exports"
)
def test_real_conversations_come_out_as_they_went_in(tmp_path: Path) -> None:
    real = sorted(p.parent for p in Path(os.environ["FOLKMOOT_POLIS"]).glob("*/summary.csv"))
    assert real
    for folder in real:
        comments = {row[2]: row for row in read(folder / "comments.csv")[1:]}
        header, *rows = read(folder / "participants-votes.csv")
        summary = dict(read(folder / "summary.csv"))
        assert read(folder / "comments.csv")[0] == COMMENTS
        assert header[:6] == PARTICIPANTS
        assert list(summary) == SUMMARY
        said = ExportedConversation(summary["topic"], summary["conversation-description"])
        said.comments = [
            Comment(row[7], row[3], int(row[0])) for row in map(comments.__getitem__, header[6:])
        ]
        said.people = {row[0]: "" for row in rows}
        said.votes = [
            CastVote(row[0], number, int(vote), 0)
            for row in rows
            for number, vote in enumerate(row[6:])
            if vote
        ]
        out = tmp_path / folder.name
        write_conversation(said, out)
        number = {row[0]: str(n) for n, row in enumerate(rows)}
        _, *ours = read(out / "participants-votes.csv")
        assert [row[0] for row in ours] == list(number.values())
        assert [row[2:] for row in ours] == [row[2:] for row in rows]
        for own, name in zip(read(out / "comments.csv")[1:], header[6:], strict=True):
            theirs = comments[name]
            assert [own[0], own[3], own[7]] == [theirs[0], number[theirs[3]], theirs[7]]
            for text in (own[1], theirs[1]):
                assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d [A-Z]{3} \d{4}", text)
            # Theirs count changed votes and people left out of the matrix as well, so never fewer.
            assert all(int(o) <= int(t) for o, t in zip(own[4:6], theirs[4:6], strict=True))
        told = dict(read(out / "summary.csv"))
        # The rest tells of a website (address, visits), and of groups as Polis kept them over time.
        for name in ("topic", "voters", "commenters", "comments", "conversation-description"):
            assert told[name] == summary[name], name
        grouped = [
            (row[1], own[1]) for row, own in zip(rows, ours, strict=True) if row[1] and own[1]
        ]
        print("groups:", adjusted_rand_score(*zip(*grouped, strict=True)), "of", len(grouped))
