"""Reads a conversation as Polis exports it, so that a study can be made of it (`Study.from_polis`).

Three files of the export are read: comments.csv, participants-votes.csv and summary.csv.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv
from folkmoot.hidden_characters import without_hidden

COMMENTS, VOTES, SUMMARY = "comments.csv", "participants-votes.csv", "summary.csv"
AGREE, PASS, DISAGREE = 1, 0, -1
ID_COLUMNS = ("participant",)
REJECTED_MARK = "-1"  # by a moderator of the conversation
VOTES_BY_MARK = {"1": AGREE, "1.0": AGREE, "0": PASS, "0.0": PASS, "-1": DISAGREE, "-1.0": DISAGREE}


@dataclass(frozen=True, slots=True)
class Voter:
    """A participant of the conversation. `votes`: comment id → 1 agree, 0 pass, −1 disagree."""

    id: str
    group: str  # of Polis's opinion groups; empty where Polis put them in none
    votes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PolisConversation:
    """Accepted comments (id → text) and who voted how on them."""

    topic: str
    description: str
    comments: Mapping[str, str]
    voters: Sequence[Voter]

    def count(self, comment: str, vote: int) -> int:
        """How many cast this vote on a comment."""
        return sum(voter.votes.get(comment) == vote for voter in self.voters)

    @property
    def most_divisive_comment(self) -> str:
        """The comment on which the smaller side is largest."""
        return max(
            self.comments,
            key=lambda column: min(self.count(column, AGREE), self.count(column, DISAGREE)),
        )


def read_polis(folder: Path) -> PolisConversation:
    """The conversation in a folder. Raises InputError for what is missing or cannot be read."""
    for name in (COMMENTS, VOTES):
        if not (folder / name).is_file():
            hint = "name the folder of a Polis export"
            raise InputError(Problem(f"there is no {name}", str(folder), hint=hint))
    said: dict[str, str] = {}
    agreed: dict[str, int] = {}
    for line, row in _read_rows(folder / COMMENTS, ("comment-id", "comment-body", "agrees")):
        text = " ".join(without_hidden(row["comment-body"]).split())
        if row.get("moderated") != REJECTED_MARK and text:
            said[row["comment-id"]] = text
            agreed[row["comment-id"]] = _parse_int(row["agrees"], folder / COMMENTS, line)
    voters = [
        _parse_voter(row, folder / VOTES, line, said)
        for line, row in _read_rows(folder / VOTES, ID_COLUMNS)
    ]
    if not said or not any(voter.votes for voter in voters):
        raise InputError(Problem("nobody voted on an accepted comment", str(folder)))
    summary = _read_summary(folder / SUMMARY)
    found = PolisConversation(
        summary.get("topic", ""), summary.get("conversation-description", ""), said, voters
    )
    _check_vote_signs(found, agreed, folder)
    return found


def _parse_voter(row: Mapping[str, str], path: Path, line: int, said: Mapping[str, str]) -> Voter:
    votes = {}
    for comment in said:
        mark = row.get(comment, "")
        if mark and mark not in VOTES_BY_MARK:
            hint = "1 is agree, -1 disagree, 0 pass, empty unseen"
            raise InputError(
                Problem(f"{mark!r} is not a vote", str(path), str(line), comment, hint)
            )
        if mark:
            votes[comment] = VOTES_BY_MARK[mark]
    group = row.get("group-id", "")
    return Voter(row["participant"], group, votes)


def _check_vote_signs(found: PolisConversation, agreed: Mapping[str, int], folder: Path) -> None:
    """Raise InputError where comments.csv counts as agreement what the votes call disagreement."""
    as_is = sum(abs(found.count(column, AGREE) - n) for column, n in agreed.items())
    turned = sum(abs(found.count(column, DISAGREE) - n) for column, n in agreed.items())
    if turned < as_is:
        what = f"the votes contradict {COMMENTS}: 1 and -1 are swapped"
        raise InputError(Problem(what, str(folder / VOTES), hint="multiply the votes by -1"))


def _read_rows(path: Path, wanted: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """(line, column → cell) of each row. Raises InputError where a column is missing."""
    columns, rows = read_csv(_read_text(path), str(path))
    for column in wanted:
        if column not in columns:
            raise InputError(Problem(f"there is no column {column}", str(path), "1"))
    return rows


def _read_summary(path: Path) -> dict[str, str]:
    """Polis writes it without a header: a name and a value in each row."""
    if not path.is_file():
        return {}
    rows = csv.reader(io.StringIO(_read_text(path)))
    return {row[0]: without_hidden(row[1]).strip() for row in rows if len(row) > 1}


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", str(path))) from error


def _parse_int(text: str, path: Path, line: int) -> int:
    try:
        return int(float(text or 0))
    except ValueError as error:
        raise InputError(
            Problem(f"{text!r} is not a number", str(path), str(line), "agrees")
        ) from error
