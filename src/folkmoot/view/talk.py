"""Replies as pages show them, with speaker, stage, text and call."""
# The journal holds every reply at its address. The table `answers` gives the speaker at each
# address. The journal and the table can be read while the run is in progress.

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from folkmoot.conversation.json_replies import read_whole_json
from folkmoot.engine.journal.journal import JournalEntry, escape_address_part, unescape_address_part
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.questionnaire import WORDINGS
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.measures.reply_checks import CODERS
from folkmoot.storage.findings import column_heading
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import is_one_of
from folkmoot.view.sources import Sourced, draw_by_source

# Matches the address of a re-ask, such as `…/ask2.r1`.
_TRY = re.compile(r"(/ask\d+|^ask\d+)\.[\w.]+$")
# Shown until the run has written the row of the answer.
UNKNOWN = "unknown speaker"


@dataclass(frozen=True, slots=True)
class ReplyView:
    """One reply, as pages show it."""

    address: str
    speaker: str
    role: str
    # The stage of the study.
    place: str
    turn: int
    # The reply, unless it is a JSON object.
    text: str
    # The fields of a JSON reply.
    fields: tuple[tuple[str, str], ...]
    value: str
    missing: str
    # The number of replies to the question: this one and those before re-asks.
    tries: int
    # True if the participant of the current page gave the reply.
    own: bool
    # The time in seconds since the Unix epoch.
    at: float


class RecordedAnswer(NamedTuple):
    """The recorded answer at an address: who was asked, and how the reply was parsed."""

    # One row of the table `answers`.

    speaker: str
    role: str
    kind: str
    value: str
    parse_step: str
    missing: str
    reasks: str
    finish: str
    options: str


@dataclass(frozen=True, slots=True)
class CallView:
    """One question to a speaker, with all replies to the question."""

    address: str
    asked: RecordedAnswer | None
    place: str
    # One pair for the question and one for each re-ask: the journal entry, and the prompt split
    # into passages by source.
    tries: tuple[tuple[JournalEntry, Sourced], ...]
    # (part, text) of each text that a human read in another wording than that of the prompt.
    wordings: tuple[tuple[str, str], ...] = ()


def base_of(address: str) -> str:
    """Return the address of the question itself, without the number of a re-ask."""
    return _TRY.sub(r"\1", address)


def place_of(address: str, leave_out: Iterable[str] = ()) -> str:
    """Return the parts of an address as readable text, such as "First vote · p_0001".

    - `leave_out`: parts that the text does not name.
    """
    dropped = {escape_address_part(part) for part in leave_out}
    parts = [unescape_address_part(part) for part in address.split("/")[:-1] if part not in dropped]
    # Names of stages are words. A part with a digit may be an id, so it is shown unchanged.
    return " · ".join(part if re.search(r"\d", part) else column_heading(part) for part in parts)


def addresses_of(journal: JournalReader, scope_parts: Sequence[str], speaker_id: str) -> list[str]:
    """Return the addresses of the questions to a participant or about the participant.

    Re-asks are left out.
    """
    addresses = journal.addresses_containing(escape_address_part(speaker_id))
    return [
        address
        for address in addresses
        if base_of(address) == address and is_within(address, scope_parts)
    ]


def is_within(address: str, scope_parts: Sequence[str]) -> bool:
    """Return True if an address belongs to a conversation.

    - `scope_parts`: the values that identify the conversation, such as `family_01` and `C4`.
    """
    # Several names may be one part of the address, such as `family_01-C4` or `game.3`.
    parts, names = address.split("/"), [escape_address_part(name) for name in scope_parts]
    if not names or {"-".join(names), ".".join(names)} & set(parts):
        return True
    if len(names) == 1:
        return any(
            part == names[0] or part.startswith((f"{names[0]}-", f"{names[0]}.")) for part in parts
        )
    return set(names) <= set(parts)


def answers_by_address(run: RunFolder, addresses: Sequence[str]) -> dict[str, RecordedAnswer]:
    """Return what is recorded about the reply at each address.

    The result lacks addresses for which nothing is recorded yet.
    """
    if not run.has_table("answers") or not addresses:
        return {}
    table = run.scan_table("answers")
    table_columns = table.collect_schema().names()
    columns = ("address", "speaker_id", *RecordedAnswer._fields[1:])
    selected = [
        pl.col(column) if column in table_columns else pl.lit(None).alias(column)
        for column in columns
    ]
    rows = table.select(selected).filter(is_one_of("address", addresses)).collect()
    return {
        row[0]: RecordedAnswer(*("" if column is None else str(column) for column in row[1:]))
        for row in rows.iter_rows()
    }


def replies_at(
    run: RunFolder,
    journal: JournalReader,
    addresses: Sequence[str],
    *,
    participant_key: Sequence[str] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[ReplyView]:
    """Return the replies at `addresses`, in the order of their questions.

    - `participant_key`: the values that identify the participant, with the speaker id last.
    """
    # Replies of coders are left out.
    answers = answers_by_address(run, addresses)
    entries_by_address: dict[str, list[JournalEntry]] = {}
    for address in addresses:
        entries = _entries_of_call(journal, address, expand_texts=False)
        # A coder reads texts of the run and takes no part in its conversations.
        if entries and not (address in answers and answers[address].role in CODERS):
            entries_by_address[address] = entries
    result, turns_by_place = (
        [],
        dict.fromkeys((place_of(address, participant_key) for address in addresses), 0),
    )
    for address in sorted(
        entries_by_address, key=lambda address: (entries_by_address[address][0].started_at, address)
    ):
        entry, row = entries_by_address[address][-1], answers.get(address)
        speaker = row.speaker if row else UNKNOWN
        place = place_of(address, participant_key)
        turns_by_place[place] += 1
        fields = fields_of(entry.reply) if not row or row.kind in ("json", "workbook") else ()
        result.append(
            ReplyView(
                address,
                names.get(speaker, speaker),
                row.role if row else "",
                place,
                turns_by_place[place],
                "" if fields else entry.reply,
                fields,
                row.value if row else "",
                (row.missing if row else "") or _unfinished_reason(entry),
                len(entries_by_address[address]),
                bool(participant_key) and speaker == participant_key[-1],
                entry.started_at,
            )
        )
    return result


def said_by_others(
    run: RunFolder,
    journal: JournalReader,
    participant_key: Sequence[str],
    scope_columns: Mapping[str, str],
    names: Mapping[str, str],
) -> list[ReplyView]:
    """Return the utterances that another speaker, such as a mediator, wrote for the participant.

    - `participant_key`: the values that identify the participant, with the speaker id last.
    - `scope_columns`: the values that identify the conversation, by column.
    """
    # One model call may play several participants.
    if not run.has_table(UTTERANCES):
        return []
    table = run.scan_table(UTTERANCES)
    table_columns = table.collect_schema().names()
    # Runs of earlier versions lack these columns.
    if not {"address", "speaker_role"} <= {*table_columns}:
        return []
    conditions = [
        pl.col(column).cast(pl.String) == value
        for column, value in scope_columns.items()
        if column in table_columns
    ]
    own_utterances = table.filter(
        *conditions, pl.col("speaker_id") == participant_key[-1], pl.col("address") != ""
    ).collect()
    answers = answers_by_address(run, own_utterances["address"].unique().to_list())
    replies: list[ReplyView] = []
    for row in own_utterances.iter_rows(named=True):
        address, text = row["address"], row["text"] or ""
        reply_speaker = answers[address].speaker if address in answers else participant_key[-1]
        if reply_speaker == participant_key[-1]:
            continue
        fields = fields_of(text)
        role = f"{row['speaker_role']}, in a reply of {names.get(reply_speaker, reply_speaker)}"
        replies.append(
            ReplyView(
                address,
                names.get(participant_key[-1], participant_key[-1]),
                role,
                place_of(address, participant_key),
                len(replies) + 1,
                "" if fields else text,
                fields,
                "",
                row["missing"] or "",
                1,
                False,
                journal.call_time(address),
            )
        )
    return replies


def _entries_of_call(
    journal: JournalReader, address: str, *, expand_texts: bool
) -> list[JournalEntry]:
    entries = (
        journal.entry_at(address, expand_texts=expand_texts)
        for address in journal.list_ask_addresses(address)
    )
    present_entries = [entry for entry in entries if entry is not None]
    return sorted(present_entries, key=lambda entry: (entry.started_at, entry.address))


def _unfinished_reason(entry: JournalEntry) -> str:
    return entry.finish if entry.finish.startswith("refused") else ""


def fields_of(reply: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of a reply that is a JSON object.

    The result is empty for any other reply.
    """
    fields = read_whole_json(reply, repair=False)
    return (
        tuple((str(key), _plain_text(value)) for key, value in fields.items())
        if isinstance(fields, dict)
        else ()
    )


def _plain_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n".join(map(_plain_text, value))
    if isinstance(value, dict):
        return "; ".join(
            f"{column_heading(str(key))}: {_plain_text(item)}" for key, item in value.items()
        )
    return json.dumps(value, ensure_ascii=False)


def build_call_view(run: RunFolder, journal: JournalReader, address: str) -> CallView | None:
    """Return the details of the call at an address. Returns None if there is no call."""
    base = base_of(address)
    entries = _entries_of_call(journal, base, expand_texts=True)
    if not entries:
        return None
    row = answers_by_address(run, [base]).get(base)
    prompts = [(entry.address, entry.request) for entry in entries]
    sourced = draw_by_source(run, row.speaker if row else "", prompts)
    tries = tuple(zip(entries, sourced, strict=True))
    return CallView(base, row, place_of(base), tries, _wordings_of_call(run, base))


def _wordings_of_call(run: RunFolder, address: str) -> tuple[tuple[str, str], ...]:
    # The journal holds the prompt that a model would get.
    if not run.has_table(WORDINGS):
        return ()
    rows = run.scan_table(WORDINGS).filter(question=address).select("part", "text").collect()
    return tuple(rows.iter_rows())
