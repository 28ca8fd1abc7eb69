"""Read a conversation that was exported from Polis, so that a study can use its comments.

An export is a folder with comments.csv, participants-votes.csv and summary.csv.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv, reason_of
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import collapse_spaces

COMMENTS, VOTES, SUMMARY = "comments.csv", "participants-votes.csv", "summary.csv"
AGREE, PASS, DISAGREE = 1, 0, -1
ID_COLUMNS = ("participant",)
# The value of `moderated` for a comment that a moderator of the conversation rejected.
REJECTED_MARK = "-1"
# Exports that went through a spreadsheet or pandas hold votes as decimals.
VOTES_BY_MARK = {"1": AGREE, "1.0": AGREE, "0": PASS, "0.0": PASS, "-1": DISAGREE, "-1.0": DISAGREE}


@dataclass(frozen=True, slots=True)
class PolisVoter:
    """One participant of a Polis conversation."""

    id: str
    # The id of one of Polis's opinion groups, or empty for a voter without a group.
    group: str
    # Maps the id of a comment to 1 (agree), 0 (pass) or −1 (disagree).
    votes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PolisConversation:
    """A Polis conversation: its question, comments and voters."""

    topic: str
    description: str
    # Maps the id of each accepted comment to its text.
    comments: Mapping[str, str]
    voters: Sequence[PolisVoter]

    def count(self, comment: str, vote: int) -> int:
        """Return how many voters cast this vote on a comment."""
        return sum(voter.votes.get(comment) == vote for voter in self.voters)

    @property
    def most_divisive_comment(self) -> str:
        """The id of the comment on which the voters disagree most."""
        return max(
            self.comments,
            key=lambda comment: min(self.count(comment, AGREE), self.count(comment, DISAGREE)),
        )


def read_polis(folder: Path) -> PolisConversation:
    """Return the Polis conversation in the folder of an export.

    Raises InputError for a missing file or column, an unreadable cell, and an export without votes.
    """
    for name in (COMMENTS, VOTES):
        if not (folder / name).is_file():
            hint = "give the folder of a Polis export"
            raise InputError(Problem(f"there is no {name}", str(folder), hint=hint))
    comments: dict[str, str] = {}
    agree_counts: dict[str, int] = {}
    for line, row in _read_rows(folder / COMMENTS, ("comment-id", "comment-body", "agrees")):
        # Comments come from strangers and end up in prompts, so hidden characters are removed.
        text = collapse_spaces(without_hidden(row["comment-body"]))
        if row.get("moderated") != REJECTED_MARK and text:
            comments[row["comment-id"]] = text
            agree_counts[row["comment-id"]] = _parse_int(row["agrees"], folder / COMMENTS, line)
    voters = [
        _parse_voter(row, folder / VOTES, line, comments)
        for line, row in _read_rows(folder / VOTES, ID_COLUMNS)
    ]
    if not comments or not any(voter.votes for voter in voters):
        raise InputError(Problem("no participant voted on an accepted comment", str(folder)))
    # The summary only adds topic and description. An export without it is usable.
    summary = _read_summary(folder / SUMMARY)
    conversation = PolisConversation(
        summary.get("topic", ""), summary.get("conversation-description", ""), comments, voters
    )
    _check_vote_signs(conversation, agree_counts, folder)
    return conversation


def _parse_voter(
    row: Mapping[str, str], path: Path, line: int, comments: Mapping[str, str]
) -> PolisVoter:
    votes = {}
    for comment in comments:
        mark = row.get(comment, "")
        # An empty cell means that the participant did not see the comment. This is not a pass.
        if mark and mark not in VOTES_BY_MARK:
            hint = "1: agree, -1: disagree, 0: pass, empty: not seen"
            raise InputError(
                Problem(f"{mark!r} is not a vote", str(path), str(line), comment, hint)
            )
        if mark:
            votes[comment] = VOTES_BY_MARK[mark]
    group = row.get("group-id", "")
    return PolisVoter(row["participant"], group, votes)


def _check_vote_signs(
    conversation: PolisConversation, agree_counts: Mapping[str, int], folder: Path
) -> None:
    # Polis's database stores agree as −1, and some exports keep that sign. The counts in
    # comments.csv reveal which sign is meant. Exact equality is not required, because the two files
    # may differ by a few votes.
    mismatch = sum(
        abs(conversation.count(comment, AGREE) - n) for comment, n in agree_counts.items()
    )
    mismatch_if_swapped = sum(
        abs(conversation.count(comment, DISAGREE) - n) for comment, n in agree_counts.items()
    )
    if mismatch_if_swapped < mismatch:
        what = f"the votes contradict {COMMENTS}: 1 and -1 are swapped"
        raise InputError(Problem(what, str(folder / VOTES), hint="multiply the votes by -1"))


def _read_rows(path: Path, required_columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    # (line number, cells by column).
    columns, rows = read_csv(_read_text(path), str(path))
    for column in required_columns:
        if column not in columns:
            raise InputError(Problem(f"there is no column {column}", str(path), "1"))
    return rows


def _read_summary(path: Path) -> dict[str, str]:
    # Polis writes the file without a header.
    if not path.is_file():
        return {}
    rows = csv.reader(io.StringIO(_read_text(path)))
    return {row[0]: without_hidden(row[1]).strip() for row in rows if len(row) > 1}


def _read_text(path: Path) -> str:
    try:
        # Spreadsheet programs put a byte order mark at the start of a CSV file.
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {reason_of(error)}", str(path))) from error


def _parse_int(text: str, path: Path, line: int) -> int:
    try:
        # Counts may be empty or written as decimals.
        return int(float(text or 0))
    except (ValueError, OverflowError) as error:
        raise InputError(
            Problem(f"{text!r} is not a number", str(path), str(line), "agrees")
        ) from error
