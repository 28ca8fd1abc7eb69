"""Write the votes of a run as the five files of a Polis export.

- `comments.csv`: one row per comment.
- `votes.csv`: one row per vote.
- `participants-votes.csv`: one row per participant, one column per comment. 1 means agree, -1
  disagree, 0 pass. An empty cell means that the participant did not see the comment.
- `summary.csv`: figures of the conversation, without a header.
- `participants.csv`: the participant numbers of Polis, with the ids and first choices of the run.
"""
# Only votes that were cast are written. A comment that no participant wrote gets an unused author
# number, because readers of the format refuse negative numbers. Polis knows no `participants.csv`.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import InputError
from folkmoot.files import csv_text
from folkmoot.measures.clusters import opinion_groups
from folkmoot.storage.json_files import write_text
from folkmoot.storage.run_folder import JOURNAL, RunFolder

AGREE, PASS, DISAGREE = 1, 0, -1
ITEM_VOTES = {"yes": AGREE, "no": DISAGREE, "abstain": PASS}
# Polis marks a comment that a moderator accepted with 1.
MODERATED = 1


class Comment(NamedTuple):
    """A statement on which participants vote."""

    text: str
    # The id of the participant who wrote it, or empty if no participant did.
    author: str = ""
    # The time in milliseconds since 1970.
    at: int = 0


class CastVote(NamedTuple):
    """One vote of a participant on one comment."""

    participant_id: str
    # The index of the comment.
    comment: int
    # `AGREE`, `PASS` or `DISAGREE`.
    vote: int
    # The time in milliseconds since 1970.
    at: int


@dataclass
class ExportedConversation:
    """The votes on one list of comments, which Polis calls a conversation."""

    topic: str
    description: str = ""
    comments: list[Comment] = field(default_factory=list)
    votes: list[CastVote] = field(default_factory=list)
    # The first choice of each participant by id, or empty. Participants are numbered in this order.
    people: dict[str, str] = field(default_factory=dict)


def write_polis(run: RunFolder, out: Path) -> None:
    """Write the votes of a run in the format of Polis into the folder `out`.

    Several conversations get a folder each.
    Raises InputError for a run without votes on comments.
    """
    conversations = dict([*_conversations_from_options(run), *_conversations_from_items(run)])
    if not conversations:
        raise InputError(
            f"{run.path}: this study has no votes that can be written in the Polis format"
        )
    for name, conversation in conversations.items():
        write_conversation(conversation, out / name if len(conversations) > 1 else out)


def write_conversation(conversation: ExportedConversation, folder: Path) -> None:
    """Write the five files of one conversation into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {participant_id: number for number, participant_id in enumerate(conversation.people)}
    matrix = _vote_matrix(conversation, numbers)
    groups = opinion_groups(matrix)
    files = {
        "comments.csv": _comments_table(conversation, matrix, numbers),
        "votes.csv": _votes_table(conversation, numbers),
        "participants-votes.csv": _participants_votes(conversation, matrix, groups),
        "summary.csv": _summary_table(conversation, groups),
        "participants.csv": _participants_table(conversation),
    }
    for name, rows in files.items():
        write_text(folder / name, csv_text(rows))


def _conversations_from_options(run: RunFolder) -> Iterator[tuple[str, ExportedConversation]]:
    # Each option is a comment. The last choice is agreement. Other options count as unseen, because
    # no vote on them was asked for.
    columns = (
        run.scan_table("participants").collect_schema() if run.has_table("participants") else ()
    )
    if "initial_choice" not in columns:
        return
    first = pl.col("initial_choice").cast(pl.String)
    last = pl.col("final_choice").cast(pl.String) if "final_choice" in columns else first
    table = run.scan_table("participants").select(
        "participant_id", first, last.fill_null(first).alias("last")
    )
    participants = table.filter(pl.col("last").is_not_null()).collect()
    topic = _topic_settings(run)
    chosen_options = (
        pl.concat([participants["initial_choice"], participants["last"]])
        .drop_nulls()
        .unique()
        .sort()
    )
    # Options of the study file come first and in its order. Options that only occur in answers
    # follow, so that no vote is lost.
    options = list(dict.fromkeys([*map(str, topic.get("options") or ()), *chosen_options]))
    conversation = ExportedConversation(run.id, str(topic.get("description", "")).strip())
    conversation.comments = [Comment(option, at=_start_milliseconds(run)) for option in options]
    times = _chosen_at(run)
    for row in participants.iter_rows(named=True):
        participant_id, choice = str(row["participant_id"]), row["last"]
        conversation.people[participant_id] = row["initial_choice"] or ""
        voted_at = times.get((participant_id, choice), _start_milliseconds(run))
        conversation.votes.append(CastVote(participant_id, options.index(choice), AGREE, voted_at))
    yield "", conversation


def _conversations_from_items(run: RunFolder) -> Iterator[tuple[str, ExportedConversation]]:
    # A missing vote counts as unseen, not as a pass.
    if not (run.has_table("votes") and run.has_table("items")):
        return
    votes, items = run.read_table("votes"), run.read_table("items")
    needed_columns = {"discussion_id", "item_id"}
    if not (
        needed_columns | {"agent_id", "vote"} <= {*votes.columns}
        and needed_columns <= {*items.columns}
    ):
        return
    topic = _topic_settings(run)
    asked_times = _asked_at(run)
    for (discussion,), discussion_items in items.group_by(["discussion_id"], maintain_order=True):
        conversation = ExportedConversation(f"{topic.get('title', run.id)}: {discussion}")
        numbers: dict[str, int] = {}
        for row in discussion_items.iter_rows(named=True):
            numbers[row["item_id"]] = len(numbers)
            # Polis allows one author for a comment, so the first of several authors gets it.
            author, *_ = str(row.get("origin") or "").split("|")
            conversation.comments.append(Comment(row["text"], author, _start_milliseconds(run)))
        for row in votes.filter(pl.col("discussion_id") == discussion).iter_rows(named=True):
            participant_id = str(row["agent_id"])
            conversation.people.setdefault(participant_id, "")
            if row["vote"] in ITEM_VOTES:
                voted_at = asked_times.get((discussion, participant_id), _start_milliseconds(run))
                vote = ITEM_VOTES[row["vote"]]
                conversation.votes.append(
                    CastVote(participant_id, numbers[row["item_id"]], vote, voted_at)
                )
        yield str(discussion), conversation


def _topic_settings(run: RunFolder) -> Mapping[str, Any]:
    topic = run.config.get("topic")
    return topic if isinstance(topic, Mapping) else {"description": topic or ""}


def _start_milliseconds(run: RunFolder) -> int:
    try:
        started_at = datetime.fromisoformat(str(run.manifest.get("started_at")))
    except ValueError:
        return 0
    return int(started_at.timestamp() * 1000)


def _answered_at(run: RunFolder, condition: pl.Expr, *columns: str) -> pl.DataFrame:
    # `at` is in milliseconds since 1970.
    path = run.path / JOURNAL
    if not run.has_table("answers") or not path.exists():
        return pl.DataFrame(schema=[*columns, "at"])
    answers = run.scan_table("answers").filter(condition).select("address", *columns).collect()
    with JournalReader(path) as journal:
        times = [int(1000 * journal.call_time(address)) for address in answers["address"]]
    return answers.select(*columns, pl.Series("at", times, pl.Int64)).sort(
        "at", maintain_order=True
    )


def _chosen_at(run: RunFolder) -> dict[tuple[str, str], int]:
    chosen = _answered_at(run, pl.col("kind") == "choice", "speaker_id", "value")
    return {(speaker_id, value): time for speaker_id, value, time in chosen.iter_rows()}


def _asked_at(run: RunFolder) -> dict[tuple[str, str], int]:
    # One reply of the speaker `session` may hold the votes of all residents.
    voted = _answered_at(run, pl.col("address").str.contains("/vote/"), "stage", "speaker_id")
    times = {(stage, speaker_id): time for stage, speaker_id, time in voted.iter_rows()}
    residents = run.read_table("votes").select("discussion_id", "agent_id").unique()
    return {
        (discussion, resident_id): times.get(
            (discussion, resident_id), times.get((discussion, "session"), _start_milliseconds(run))
        )
        for discussion, resident_id in residents.iter_rows()
    }


def _vote_matrix(
    conversation: ExportedConversation, numbers: Mapping[str, int]
) -> NDArray[np.float64]:
    # Shape (participants, comments). NaN means no vote.
    matrix = np.full((len(numbers), len(conversation.comments)), np.nan)
    # Votes are written in order of time, so that a later vote overwrites an earlier one.
    for vote in sorted(conversation.votes, key=lambda vote: vote.at):
        matrix[numbers[vote.participant_id], vote.comment] = vote.vote
    return matrix


Table = Sequence[Sequence[object]]


def _format_date(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _comments_table(
    conversation: ExportedConversation, matrix: NDArray[np.float64], numbers: Mapping[str, int]
) -> Table:
    header = ("timestamp", "datetime", "comment-id", "author-id", "agrees", "disagrees")
    return [
        (*header, "moderated", "comment-body"),
        *(
            (
                *(
                    comment.at,
                    _format_date(comment.at),
                    number,
                    numbers.get(comment.author, len(numbers)),
                ),
                *(int((matrix[:, number] == vote).sum()) for vote in (AGREE, DISAGREE)),
                *(MODERATED, comment.text),
            )
            for number, comment in enumerate(conversation.comments)
        ),
    ]


def _votes_table(conversation: ExportedConversation, numbers: Mapping[str, int]) -> Table:
    votes = sorted(
        conversation.votes, key=lambda vote: (vote.comment, numbers[vote.participant_id], vote.at)
    )
    return [
        ("timestamp", "datetime", "comment-id", "voter-id", "vote"),
        *(
            (vote.at, _format_date(vote.at), vote.comment, numbers[vote.participant_id], vote.vote)
            for vote in votes
        ),
    ]


def _participants_votes(
    conversation: ExportedConversation, matrix: NDArray[np.float64], groups: Sequence[int | None]
) -> Table:
    authored = [comment.author for comment in conversation.comments]
    header = ("participant", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree")
    return [
        (*header, *range(len(conversation.comments))),
        *(
            (
                *(number, group, authored.count(participant_id), int(np.isfinite(row).sum())),
                *(int((row == vote).sum()) for vote in (AGREE, DISAGREE)),
                *(int(vote) if np.isfinite(vote) else None for vote in row),
            )
            for number, (participant_id, group, row) in enumerate(
                zip(conversation.people, groups, matrix, strict=True)
            )
        ),
    ]


def _summary_table(conversation: ExportedConversation, groups: Sequence[int | None]) -> Table:
    voters = {vote.participant_id for vote in conversation.votes}
    commenters = {comment.author for comment in conversation.comments}
    return [
        ("topic", conversation.topic),
        ("url", ""),
        ("views", len(conversation.people)),
        ("voters", len(voters)),
        ("voters-in-conv", sum(group is not None for group in groups)),
        ("commenters", len(commenters)),
        ("comments", len(conversation.comments)),
        ("groups", len({group for group in groups if group is not None})),
        ("conversation-description", conversation.description),
    ]


def _participants_table(conversation: ExportedConversation) -> Table:
    return [
        ("participant", "participant_id", "first_choice"),
        *(
            (number, participant_id, first_choice)
            for number, (participant_id, first_choice) in enumerate(conversation.people.items())
        ),
    ]
