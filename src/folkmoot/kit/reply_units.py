"""The independent units of replies in a run: the conversations in which speakers heard each other.

Reports use these units to check the replies of study types that declare no `reply_unit`.
"""

# Replies of people who heard each other are alike. A unit that is too small would make an interval
# too short, so in doubt speakers count together.

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.study.study import Study
from folkmoot.measures.diagnostics import Check, Row
from folkmoot.measures.position import Shown
from folkmoot.measures.reply_checks import (
    FieldReasons,
    UnitOf,
    check_answers,
    is_json_answer,
    speaker_of,
)
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import is_reply_of_human
from folkmoot.provenance import UNATTRIBUTED
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import RowStream, RunFolder

# Kinds of texts that a speaker says or chooses. Others describe a speaker or come from the study.
HEARD = ("utterance", "answer", "proposal", "summary", "reply")
SPEAKER, CONVERSATION, SESSION = "speaker", "conversation", "session scope"


class ReplyUnit(NamedTuple):
    """The independent unit of replies, such as a group of participants who talk to each other."""

    # The noun for one unit, such as "group".
    name: str
    # Returns the unit of a row of the table `answers`.
    of: UnitOf
    # True if units are that large only because texts without a recorded source may be those of
    # others.
    is_uncertain: bool = False


def reply_unit_of(study: Study, run: RunFolder) -> ReplyUnit:
    """Return the independent unit of the replies of a run."""
    if study.reply_unit is not None:
        return ReplyUnit(study.reply_unit_name, study.reply_unit)
    if not run.has_table("answers"):
        return ReplyUnit(SPEAKER, speaker_of)
    return find_conversations(run)


def name_reply_units(run: RunFolder, name: str) -> str:
    """Return the noun for the units in a report's count of replies.

    - `name`: the noun for a unit of a finished run.
    """
    # In an unfinished run the checks count all replies, but its figures cover finished units alone.
    # So the noun gets the word "started". A speaker with a reply needs no such word.
    return f"started {name}" if run.partial and name != SPEAKER else name


def check_replies(
    run: RunFolder,
    unit_of: UnitOf,
    unit_name: str,
    choices: Callable[[RunFolder], Iterable[Shown]] = lambda _run: (),
    is_structured: Callable[[Row], bool] = is_json_answer,
    field_reasons: FieldReasons | None = None,
) -> list[Check]:
    """Return the checks of all replies of models in a run.

    - `unit_of`: returns the independent unit of a row of the table `answers`.
    - `unit_name`: the noun for such a unit, such as "group".
    - `choices`: returns the choices that other tables hold, as `Study.choices` does.
    - `is_structured`: returns whether a row's question asked for JSON.
    - `field_reasons`: the reasons of missing fields of JSON answers, see `check_refusals`.
    """
    # The choices are those of all recorded parts, like the replies in `answers`.
    answers = RowStream(scan_model_answers(run)) if run.has_table("answers") else ()
    unit_text = name_reply_units(run, unit_name)
    listed = choices(run.whole)
    return check_answers(answers, unit_of, unit_text, listed, is_structured, field_reasons)


def scan_model_answers(run: RunFolder) -> pl.LazyFrame:
    """Return the rows of the table `answers` that no human answered.

    The checks of models use these rows only.
    """
    answers = run.scan_table("answers")
    # Runs of earlier versions lack the column, and no human answered in them.
    if "answered_by" not in answers.collect_schema():
        return answers
    return answers.filter(pl.col("answered_by").ne_missing(HUMAN_MODEL))


def scan_participant_answers(run: RunFolder) -> pl.LazyFrame:
    """Return the participants' rows of the table `answers`.

    The result has no rows for a run of an earlier version, in which no human answered.
    """
    if run.has_table("answers"):
        answers = run.scan_table("answers")
        if "answered_by" in answers.collect_schema():
            return answers.filter(pl.col("role") == PARTICIPANT_ROLE)
    columns = ("stage", "scope", "role", "speaker_id", "answered_by", "missing", "finish")
    return pl.LazyFrame(schema=dict.fromkeys(columns, pl.String))


def find_humans(run: RunFolder) -> frozenset[str]:
    """Return the ids of the participants for whom a human in a seat was asked.

    No model played them, even if the human gave no reply.
    """
    return frozenset(str(row["speaker_id"]) for row in _answers_of_humans(run))


def find_humans_who_replied(run: RunFolder) -> frozenset[str]:
    """Return the ids of the participants for whom a human in a seat gave a reply."""
    return frozenset(
        str(row["speaker_id"])
        for row in _answers_of_humans(run)
        if is_reply_of_human(str(row["finish"]))
    )


def _answers_of_humans(run: RunFolder) -> Iterable[Row]:
    columns = ("stage", "scope", "role", "speaker_id", "finish")
    is_human = pl.col("answered_by") == HUMAN_MODEL
    answers = scan_participant_answers(run).filter(is_human).select(columns)
    return answers.unique().collect().iter_rows(named=True)


def drop_humans(
    run: RunFolder, table: pl.DataFrame, *columns: str, unit_of: UnitOf | None
) -> pl.DataFrame:
    """Return the rows of a table that concern participants whom a model played.

    - `columns`: the column with the ids of participants. If these are unique only within a unit,
      such as a group, the column with the units comes first.
    - `unit_of`: returns the unit of a row of the table `answers`, as the first column holds it.
    """
    humans = {
        (*([] if unit_of is None else [unit_of(row)]), row["speaker_id"])
        for row in _answers_of_humans(run)
    }
    if not humans:
        return table
    return table.filter([row not in humans for row in table.select(columns).iter_rows()])


def find_conversations(run: RunFolder) -> ReplyUnit:
    """Return the unit of replies that follows from who heard whom in a run.

    Participants who heard each other, or heard the same text, belong to one unit. If no participant
    heard another speaker, each speaker is a unit. If a prompt holds a text without a recorded
    source, participants who could have heard each other in a scope of the protocol belong to one
    unit.
    """
    columns = ("address", "scope", "role", "speaker_id")
    answers = run.scan_table("answers").select(columns).collect()
    # Without recorded sources, each text could be that of another speaker.
    unknown = set(answers["address"])
    heard: list[tuple[str, str, str]] = []
    if run.has_table(PROVENANCE):
        spans = run.scan_table(PROVENANCE)
        listed = spans.filter(pl.col("kind") == UNATTRIBUTED).select("address").unique().collect()
        unknown = set(listed["address"])
        texts = spans.filter(pl.col("kind").is_in(HEARD) & (pl.col("speaker") != ""))
        heard = texts.select("address", "source_id", "speaker").unique().collect().rows()
    participants = {
        address: speaker
        for address, _, role, speaker in answers.iter_rows()
        if role == PARTICIPANT_ROLE and speaker is not None
    }
    joined = _Groups()
    names = {*participants.values()}
    for address, source, speaker in heard:
        reader = participants.get(address)
        if reader is None or reader == speaker:
            continue
        # A text of a moderator is one source. It joins only those who heard this text, because a
        # moderator speaks in every group.
        joined.join(_Speaker(reader), _Speaker(speaker) if speaker in names else source)
    is_heard = joined.size > 0
    is_scoped = False
    is_uncertain = False
    if unknown & participants.keys():
        for members in _scope_groups(answers):
            first, *others = members
            is_scoped |= bool(others)
            for other in others:
                is_uncertain |= joined.find(_Speaker(first)) != joined.find(_Speaker(other))
                joined.join(_Speaker(first), _Speaker(other))
    if not is_heard and not is_scoped:
        return ReplyUnit(SPEAKER, speaker_of)
    # Other speakers belong to the conversation of the first text that they read or wrote.
    read: dict[str, Hashable] = {}
    for address, source, speaker in heard:
        if address not in participants:
            read.setdefault(address, _Speaker(speaker) if speaker in names else source)

    def unit_of(row: Row) -> Hashable:
        address = str(row["address"])
        if address in participants:
            return joined.find(_Speaker(participants[address]))
        if joined.has(address) or address in read:
            return joined.find(address if joined.has(address) else read[address])
        return speaker_of(row)

    name = SESSION if is_scoped and not is_heard else CONVERSATION
    return ReplyUnit(name, unit_of, is_uncertain)


class _Speaker(NamedTuple):
    # A participant as a node. Other nodes are sources of texts.

    id: str


class _Groups:
    # Disjoint sets of nodes that are joined step by step.
    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    @property
    def size(self) -> int:
        return len(self._parents)

    def has(self, node: Hashable) -> bool:
        return node in self._parents

    def find(self, node: Hashable) -> Hashable:
        while (parent := self._parents.get(node, node)) != node:
            # Halve the path, so that long conversations stay fast.
            self._parents[node] = self._parents.get(parent, parent)
            node = parent
        return node

    def join(self, first: Hashable, second: Hashable) -> None:
        one, other = self.find(first), self.find(second)
        self._parents.setdefault(first, one)
        self._parents.setdefault(second, other)
        self._parents[one] = other
        self._parents.setdefault(other, other)


def _scope_groups(answers: pl.DataFrame) -> Iterable[set[str]]:
    # The outermost level of scopes that divides the participants. A scope that contains all
    # participants divides none. Stages with the same participants do not divide them either: a text
    # of a later stage may be of any speaker of an earlier one, so all participants are one unit.
    rows = answers.filter(
        (pl.col("role") == PARTICIPANT_ROLE) & pl.col("speaker_id").is_not_null()
    ).select("scope", "speaker_id")
    paths = [(str(scope).split("/"), speaker) for scope, speaker in rows.unique().iter_rows()]
    for depth in range(max((len(path) for path, _ in paths), default=0)):
        parts: dict[str, set[str]] = {}
        for path, speaker in paths:
            parts.setdefault(path[min(depth, len(path) - 1)], set()).add(speaker)
        if len(parts) > 1:
            return parts.values() if _are_disjoint(parts) else [set().union(*parts.values())]
    return ()


def _are_disjoint(parts: Mapping[str, set[str]]) -> bool:
    return sum(len(part) for part in parts.values()) == len(set().union(*parts.values()))
