"""A run as Polis writes a conversation: who agreed, disagreed or passed on which comment, and when.

Five files: comments.csv, votes.csv, participants-votes.csv (1 agree, -1 disagree, 0 pass, empty
unseen), summary.csv (no header), and participants.csv of ours, because Polis numbers people and
knows one vote of each on a comment. Nobody is given a vote that they did not cast. A comment that
no participant made has the next free number as its author: readers refuse negative ones.

Groups are found as Polis finds them: see `measures.clusters.opinion_groups`.
"""

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
MODERATED = 1  # Polis's mark of an accepted comment


class Comment(NamedTuple):
    """A statement to vote on. `author` is a participant's id, or empty where none of them made it;
    `at` ms since 1970."""

    text: str
    author: str = ""
    at: int = 0


class Cast(NamedTuple):
    """A vote: who, on which comment (its number), what, and when (ms since 1970)."""

    who: str
    comment: int
    vote: int
    at: int


@dataclass
class ExportedConversation:
    """What Polis calls a conversation. `people`: participant id → first choice (empty if none)."""

    topic: str
    description: str = ""
    comments: list[Comment] = field(default_factory=list)
    votes: list[Cast] = field(default_factory=list)
    people: dict[str, str] = field(default_factory=dict)


def write_polis(run: RunFolder, out: Path) -> None:
    """Write the conversation of a run, or a folder for each of several. Raises InputError for a
    run without votes on comments."""
    found = dict([*_of_options(run), *_of_items(run)])
    if not found:
        raise InputError(f"{run.path}: this study has no votes that fit the Polis format")
    for name, conversation in found.items():
        write_conversation(conversation, out / name if len(found) > 1 else out)


def write_conversation(conversation: ExportedConversation, folder: Path) -> None:
    """Write the files of one conversation."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {who: number for number, who in enumerate(conversation.people)}
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


def _of_options(run: RunFolder) -> Iterator[tuple[str, ExportedConversation]]:
    """Cross-pollination: each option is a comment, and whoever chose it at last agrees with it.

    What was not chosen was not voted on: it stays unseen. So nobody disagrees and there are no
    groups to be found; who chose what at first is in participants.csv.
    """
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
    people = table.filter(pl.col("last").is_not_null()).collect()
    topic = _topic_settings(run)
    chosen = pl.concat([people["initial_choice"], people["last"]]).drop_nulls().unique().sort()
    options = list(dict.fromkeys([*map(str, topic.get("options") or ()), *chosen]))
    found = ExportedConversation(run.id, str(topic.get("description", "")).strip())
    found.comments = [Comment(option, at=_start_milliseconds(run)) for option in options]
    times = _chosen_at(run)
    for row in people.iter_rows(named=True):
        who, choice = str(row["participant_id"]), row["last"]
        found.people[who] = row["initial_choice"] or ""
        at = times.get((who, choice), _start_milliseconds(run))
        found.votes.append(Cast(who, options.index(choice), AGREE, at))
    yield "", found


def _of_items(run: RunFolder) -> Iterator[tuple[str, ExportedConversation]]:
    """Town hall: each discussion is a conversation, each item of its ballot a comment.

    A vote that could not be read stays unseen: it is not a pass.
    """
    if not (run.has_table("votes") and run.has_table("items")):
        return
    votes, items = run.read_table("votes"), run.read_table("items")
    wanted = {"discussion_id", "item_id"}
    if not (wanted | {"agent_id", "vote"} <= {*votes.columns} and wanted <= {*items.columns}):
        return
    topic = _topic_settings(run)
    asked = _asked_at(run)
    for (discussion,), listed in items.group_by(["discussion_id"], maintain_order=True):
        found = ExportedConversation(f"{topic.get('title', run.id)}: {discussion}")
        numbers: dict[str, int] = {}
        for row in listed.iter_rows(named=True):
            numbers[row["item_id"]] = len(numbers)
            author, *_ = str(row.get("origin") or "").split("|")
            found.comments.append(Comment(row["text"], author, _start_milliseconds(run)))
        for row in votes.filter(pl.col("discussion_id") == discussion).iter_rows(named=True):
            who = str(row["agent_id"])
            found.people.setdefault(who, "")
            if row["vote"] in ITEM_VOTES:
                at = asked.get((discussion, who), _start_milliseconds(run))
                vote = ITEM_VOTES[row["vote"]]
                found.votes.append(Cast(who, numbers[row["item_id"]], vote, at))
        yield str(discussion), found


def _topic_settings(run: RunFolder) -> Mapping[str, Any]:
    """The topic of the study file, which may be no more than a sentence."""
    topic = run.config.get("topic")
    return topic if isinstance(topic, Mapping) else {"description": topic or ""}


def _start_milliseconds(run: RunFolder) -> int:
    """When the run began (ms since 1970): the time of what has none of its own."""
    try:
        began = datetime.fromisoformat(str(run.manifest.get("started_at")))
    except ValueError:
        return 0
    return int(began.timestamp() * 1000)


def _answered_at(run: RunFolder, which: pl.Expr, *columns: str) -> pl.DataFrame:
    """These columns of some answers with the time at which each was asked for (ms), in order."""
    path = run.path / JOURNAL
    if not run.has_table("answers") or not path.exists():
        return pl.DataFrame(schema=[*columns, "at"])
    answers = run.scan_table("answers").filter(which).select("address", *columns).collect()
    with JournalReader(path) as journal:
        at = [int(1000 * journal.call_time(address)) for address in answers["address"]]
    return answers.select(*columns, pl.Series("at", at, pl.Int64)).sort("at", maintain_order=True)


def _chosen_at(run: RunFolder) -> dict[tuple[str, str], int]:
    """(participant, option) → when the participant last chose it."""
    chosen = _answered_at(run, pl.col("kind") == "choice", "speaker_id", "value")
    return {(who, value): at for who, value, at in chosen.iter_rows()}


def _asked_at(run: RunFolder) -> dict[tuple[str, str], int]:
    """(discussion, resident) → when the resident was last asked there; a reply that voted for
    all is everybody's."""
    voted = _answered_at(run, pl.col("address").str.contains("/vote/"), "stage", "speaker_id")
    times = {(stage, who): at for stage, who, at in voted.iter_rows()}
    residents = run.read_table("votes").select("discussion_id", "agent_id").unique()
    return {
        (d, who): times.get((d, who), times.get((d, "session"), _start_milliseconds(run)))
        for d, who in residents.iter_rows()
    }


def _vote_matrix(
    conversation: ExportedConversation, numbers: Mapping[str, int]
) -> NDArray[np.float64]:
    """Votes (participants, comments), the last of each; NaN where there is none."""
    matrix = np.full((len(numbers), len(conversation.comments)), np.nan)
    for cast in sorted(conversation.votes, key=lambda cast: cast.at):
        matrix[numbers[cast.who], cast.comment] = cast.vote
    return matrix


Table = Sequence[Sequence[object]]


def _format_date(milliseconds: int) -> str:
    """`Sat Nov 17 05:09:36 UTC 2018`."""
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
    cast = sorted(conversation.votes, key=lambda cast: (cast.comment, numbers[cast.who], cast.at))
    return [
        ("timestamp", "datetime", "comment-id", "voter-id", "vote"),
        *(
            (cast.at, _format_date(cast.at), cast.comment, numbers[cast.who], cast.vote)
            for cast in cast
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
                *(number, group, authored.count(who), int(np.isfinite(row).sum())),
                *(int((row == vote).sum()) for vote in (AGREE, DISAGREE)),
                *(int(vote) if np.isfinite(vote) else None for vote in row),
            )
            for number, (who, group, row) in enumerate(
                zip(conversation.people, groups, matrix, strict=True)
            )
        ),
    ]


def _summary_table(conversation: ExportedConversation, groups: Sequence[int | None]) -> Table:
    voters = {cast.who for cast in conversation.votes}
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
        *((n, who, first) for n, (who, first) in enumerate(conversation.people.items())),
    ]
