"""Polis exports: the file format of pol.is and its opinion groups."""

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
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame

COMMENT_COLUMNS = [
    *("timestamp", "datetime", "comment-id", "author-id", "agrees", "disagrees"),
    *("moderated", "comment-body"),
]
VOTE_COLUMNS = ["timestamp", "datetime", "comment-id", "voter-id", "vote"]
PARTICIPANT_COLUMNS = ["participant", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree"]
SUMMARY_FIELDS = [
    *("topic", "url", "views", "voters", "voters-in-conv", "commenters", "comments", "groups"),
    "conversation-description",
]


def read_rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def test_files_have_the_fields_of_polis(tmp_path: Path) -> None:
    conversation = ExportedConversation("Bread, or roses?", 'Two lines:\nand "quotes"')
    conversation.comments = [Comment("Bread, first", "b", 1_400_000_000_000), Comment("Roses")]
    conversation.people = {"a": "", "b": "", "c": ""}
    conversation.votes = [
        *(CastVote("a", 0, 1, 1_400_000_001_000), CastVote("a", 0, -1, 1_400_000_009_000)),
        *(CastVote("b", 0, 0, 1_400_000_002_000), CastVote("b", 1, 1, 1_400_000_003_000)),
    ]
    write_conversation(conversation, tmp_path)

    comments = read_rows(tmp_path / "comments.csv")
    assert comments[0] == COMMENT_COLUMNS
    assert comments[1] == [
        *("1400000000000", "Tue May 13 16:53:20 UTC 2014", "0", "1", "0", "1", "1"),
        "Bread, first",
    ]
    assert (
        comments[2][3] == "3"
    )  # None of the three wrote it. Programs that read the file know no author below 0.
    # All votes are kept with their time. The matrix has the last one of each participant.
    votes = read_rows(tmp_path / "votes.csv")
    assert votes[0] == VOTE_COLUMNS
    assert [row[2:] for row in votes[1:]] == [
        ["0", "0", "1"],
        ["0", "0", "-1"],
        ["0", "1", "0"],
        ["1", "1", "1"],
    ]
    matrix = read_rows(tmp_path / "participants-votes.csv")
    assert matrix[0] == [*PARTICIPANT_COLUMNS, "0", "1"]
    assert matrix[1:] == [
        ["0", "", "0", "1", "0", "1", "-1", ""],
        ["1", "", "1", "2", "1", "0", "0", "1"],
        ["2", "", "0", "0", "0", "0", "", ""],
    ]
    summary = read_rows(tmp_path / "summary.csv")
    assert [row[0] for row in summary] == SUMMARY_FIELDS
    assert dict(summary)["conversation-description"] == conversation.description
    assert (dict(summary)["voters"], dict(summary)["commenters"]) == ("2", "2")


def test_a_choice_among_options_is_one_agreement(pilot_run: RunFolder, tmp_path: Path) -> None:
    export_run(pilot_run, "polis", tmp_path / "polis")
    participants = pilot_run.read_table("participants").filter(
        pl.col("initial_choice").is_not_null()
    )
    votes = pl.read_csv(tmp_path / "polis" / "votes.csv")
    assert votes["vote"].to_list() == [1] * participants.height
    comments = dict(
        pl.read_csv(tmp_path / "polis" / "comments.csv")
        .select("comment-body", "agrees")
        .iter_rows()
    )
    last_choice = pl.coalesce("final_choice", "initial_choice")
    assert comments == {
        option: participants.filter(last_choice == option).height for option in comments
    }
    # The times are those of the calls in which the choices were made.
    with JournalReader(pilot_run.path / "journal.sqlite") as journal:
        call_times = {
            int(1000 * journal.call_time(address)) for address in journal.list_addresses()
        }
    assert set(votes["timestamp"]) <= call_times and votes["timestamp"].n_unique() > 1
    # The Polis format has no participant ids and first choices. A separate file has them.
    participant_rows = pl.read_csv(tmp_path / "polis" / "participants.csv")
    assert participant_rows["participant_id"].to_list() == participants["participant_id"].to_list()
    assert participant_rows["first_choice"].to_list() == participants["initial_choice"].to_list()


@pytest.mark.parametrize("topic", ["Parks or jobs?", {"options": ["Parks"]}, None])
def test_options_may_be_missing_from_the_study_file(topic: object, tmp_path: Path) -> None:
    """Votes for unlisted options, and last votes without a first one, are exported."""
    rows = [("a", "Parks", "Jobs"), ("b", None, "Jobs"), ("c", "Parks", None), ("d", None, None)]
    columns = ("participant_id", "initial_choice", "final_choice")
    (tmp_path / "run" / "tables").mkdir(parents=True)
    table = rows_to_frame(dict(zip(columns, row, strict=True)) for row in rows)
    write_table(tmp_path / "run" / "tables", "participants", table)
    (tmp_path / "run" / "study.yaml").write_text(yaml.safe_dump({"study": "own", "topic": topic}))
    write_polis(RunFolder(tmp_path / "run"), tmp_path / "out")
    comments = {row[7]: row[2] for row in read_rows(tmp_path / "out" / "comments.csv")[1:]}
    votes = {(row[3], row[2]) for row in read_rows(tmp_path / "out" / "votes.csv")[1:]}
    assert votes == {("0", comments["Jobs"]), ("1", comments["Jobs"]), ("2", comments["Parks"])}


def test_each_discussion_of_a_town_hall_is_a_conversation(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    run = RunFolder(run_of_small_study("town_hall"))
    export_run(run, "polis", tmp_path / "polis")
    for (name,), items in run.read_table("items").group_by(["discussion_id"], maintain_order=True):
        folder = tmp_path / "polis" / str(name)
        comments = pl.read_csv(folder / "comments.csv")
        assert comments["comment-body"].to_list() == items["text"].to_list()
        assert comments["agrees"].to_list() == items["yes"].to_list()
        assert comments["disagrees"].to_list() == items["no"].to_list()
        assert comments["author-id"].min() >= 0
        votes = run.read_table("votes").filter(pl.col("discussion_id") == name)
        vote_count = votes.filter(pl.col("vote").is_in(["yes", "no", "abstain"])).height
        assert pl.read_csv(folder / "votes.csv").height == vote_count


def test_a_study_without_votes_is_refused(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no votes that can be written"):
        export_run(RunFolder(run_of_small_study("focus_group")), "polis", tmp_path / "polis")


def test_two_camps_are_two_groups_and_one_opinion_gives_no_group() -> None:
    rng = np.random.default_rng(3)
    camps = np.repeat([0, 1], [40, 20])
    sides = np.where(camps[:, None] == 0, 1.0, -1.0) * np.tile([1, -1], 8)
    votes = np.where(rng.random((60, 16)) < 0.15, 0.0, sides)
    votes[rng.random((60, 16)) < 0.4] = np.nan
    votes[-1] = np.nan
    votes[-1, :3] = sides[-1, :3]
    groups = opinion_groups(votes)
    assert groups[-1] is None  # three votes are too few
    pairs = [
        (camp, group)
        for camp, group, row in zip(camps, groups, votes, strict=True)
        if group is not None and np.isfinite(row).sum() >= 7
    ]
    assert adjusted_rand_score(*zip(*pairs, strict=True)) > 0.9
    assert groups[0] == 0  # the larger group comes first
    assert opinion_groups(np.ones((30, 5))) == [None] * 30
    assert opinion_groups(np.full((4, 3), np.nan)) == [None] * 4


@pytest.mark.skipif(
    "FOLKMOOT_POLIS" not in os.environ, reason="set FOLKMOOT_POLIS to a folder of Polis exports"
)
def test_real_conversations_are_exported_unchanged(tmp_path: Path) -> None:
    folders = sorted(
        path.parent for path in Path(os.environ["FOLKMOOT_POLIS"]).glob("*/summary.csv")
    )
    assert folders
    for folder in folders:
        comments = {row[2]: row for row in read_rows(folder / "comments.csv")[1:]}
        header, *rows = read_rows(folder / "participants-votes.csv")
        summary = dict(read_rows(folder / "summary.csv"))
        assert read_rows(folder / "comments.csv")[0] == COMMENT_COLUMNS
        assert header[:6] == PARTICIPANT_COLUMNS
        assert list(summary) == SUMMARY_FIELDS
        conversation = ExportedConversation(summary["topic"], summary["conversation-description"])
        conversation.comments = [
            Comment(row[7], row[3], int(row[0])) for row in map(comments.__getitem__, header[6:])
        ]
        conversation.people = {row[0]: "" for row in rows}
        conversation.votes = [
            CastVote(row[0], new_ids, int(vote), 0)
            for row in rows
            for new_ids, vote in enumerate(row[6:])
            if vote
        ]
        out = tmp_path / folder.name
        write_conversation(conversation, out)
        new_ids = {row[0]: str(n) for n, row in enumerate(rows)}
        _, *written_rows = read_rows(out / "participants-votes.csv")
        assert [row[0] for row in written_rows] == list(new_ids.values())
        assert [row[2:] for row in written_rows] == [row[2:] for row in rows]
        for written_row, name in zip(read_rows(out / "comments.csv")[1:], header[6:], strict=True):
            original_row = comments[name]
            assert [written_row[0], written_row[3], written_row[7]] == [
                original_row[0],
                new_ids[original_row[3]],
                original_row[7],
            ]
            for text in (written_row[1], original_row[1]):
                assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d [A-Z]{3} \d{4}", text)
            # Theirs count changed votes and people left out of the matrix as well, so never fewer.
            assert all(
                int(written_count) <= int(original_count)
                for written_count, original_count in zip(
                    written_row[4:6], original_row[4:6], strict=True
                )
            )
        written_summary = dict(read_rows(out / "summary.csv"))
        # The other fields are about the website (address, visits) and the earlier groups of Polis.
        for name in ("topic", "voters", "commenters", "comments", "conversation-description"):
            assert written_summary[name] == summary[name], name
        group_pairs = [
            (row[1], written_row[1])
            for row, written_row in zip(rows, written_rows, strict=True)
            if row[1] and written_row[1]
        ]
        print(
            "groups:", adjusted_rand_score(*zip(*group_pairs, strict=True)), "of", len(group_pairs)
        )
