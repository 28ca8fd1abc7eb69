"""Conversations of several speakers, as pages show them."""
# The code calls a conversation of several speakers a room. In the table `utterances`, the column
# `address` gives the call of an utterance, and `public` is true if other participants heard it.
# Runs of earlier versions lack both columns, so their utterances are shown without calls.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from folkmoot.engine.journal.journal import escape_address_part
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.redaction import WITHDRAWAL_MARK
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.measures.reply_checks import CODERS
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.talk import ReplyView, base_of, fields_of, is_within, place_of, replies_at

# Column sets by which study types identify a conversation, the most specific first.
ROOMS = (
    ("discussion_id",), ("group", "stimulus"), ("group_id", "condition"),
    ("experiment_id", "session"), ("group_id",), ("group",), ("session",), ("discussion",),
)  # fmt: skip
# Columns that divide the conversation of a room.
PART_COLUMNS = ("topic", "task_id", "phase", "round")
SPEAKER_COLUMNS = ("speaker_id", "speaker")
# Runs of earlier versions have the latter two columns.
NAME_COLUMNS = ("speaker_name", "name", "speaker")
# The table of whom a speaker refers to and how, if a study records it.
REFERENCES = "references"

# Roles of speakers who lead a conversation or code its texts, without taking part. A role may also
# be one of the study type, such as resident.
LEADERS = CODERS | {"moderator", "mediator", "facilitator", "planner", "summarizer", "host"}

Reactions = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Room:
    """One conversation of several speakers."""

    key: tuple[str, ...]
    # Numbers of utterances and of speakers.
    utterances: int
    speakers: int

    @property
    def title(self) -> str:
        return " · ".join(self.key)


@dataclass(frozen=True, slots=True)
class Line:
    """One utterance in a conversation, or one reply that only the speaker saw."""

    # The round or stage of the conversation.
    part: str
    speaker: str
    speaker_id: str
    role: str
    turn: str
    text: str
    fields: tuple[tuple[str, str], ...]
    # Additions of the page: to whom the utterance responds, and which changes it made.
    notes: tuple[str, ...]
    # (kind of reference, targets) pairs.
    reactions: Reactions
    address: str
    private: bool
    # True for a text that no model wrote.
    prescribed: bool = False

    @property
    def withdrawn(self) -> bool:
        """True if the text was removed because its speaker left the study."""
        return bool(WITHDRAWAL_MARK.search(self.text))

    @property
    def leads(self) -> bool:
        """True if the speaker is a moderator, not a participant."""
        # Runs of earlier versions did not record roles in all tables.
        return (self.role or self.speaker_id).lower() in LEADERS


def room_columns(run: RunFolder) -> tuple[str, ...]:
    """Return the columns that identify a conversation of several speakers.

    Returns an empty tuple if the run has no such conversations.
    """
    if not run.has_table(UTTERANCES):
        return ()
    columns_of_table = set(run.scan_table(UTTERANCES).collect_schema().names())
    if "participant_id" in columns_of_table:
        return ()
    return next((columns for columns in ROOMS if columns_of_table.issuperset(columns)), ())


def find_rooms(run: RunFolder, columns: Sequence[str]) -> list[Room]:
    """Return all conversations of several speakers in a run, in recorded order."""
    table = run.scan_table(UTTERANCES)
    columns_of_table = table.collect_schema().names()
    is_public = pl.col("public") if "public" in columns_of_table else pl.lit(True)
    speaker = pl.col(
        next(
            speaker_column
            for speaker_column in SPEAKER_COLUMNS
            if speaker_column in columns_of_table
        )
    )
    counts = table.group_by(*columns, maintain_order=True).agg(
        is_public.sum().alias("_said"), speaker.filter(is_public).n_unique().alias("_speakers")
    )
    return [Room(tuple(map(str, row[:-2])), *row[-2:]) for row in counts.collect().iter_rows()]


def spoken_at(run: RunFolder, room: Room) -> set[str]:
    """Return the addresses of the replies that contain utterances of a conversation."""
    columns = room_columns(run)
    return _utterance_addresses(
        run,
        *(
            pl.col(column).cast(pl.String) == value
            for column, value in zip(columns, room.key, strict=True)
        ),
    )


def spoken_by(run: RunFolder, speaker: str) -> set[str]:
    """Return the addresses of the replies that contain utterances of a speaker."""
    return _utterance_addresses(run, pl.col("speaker_id") == speaker)


def _utterance_addresses(run: RunFolder, *conditions: pl.Expr) -> set[str]:
    # Runs of earlier versions recorded no addresses.
    table = run.scan_table(UTTERANCES) if run.has_table(UTTERANCES) else pl.LazyFrame()
    if "address" not in table.collect_schema().names():
        return set()
    return set(filter(None, table.filter(*conditions).select("address").collect()["address"]))


def in_room(
    run: RunFolder,
    journal: JournalReader,
    columns: Sequence[str],
    key: Sequence[str],
    given_names: Mapping[str, str],
) -> list[Line]:
    """Return the public utterances and the private replies of a conversation.

    - `given_names`: a map from participant id to name.
    """
    # The names are for tables that record only ids.
    conditions = [
        pl.col(column).cast(pl.String) == value for column, value in zip(columns, key, strict=True)
    ]
    table = run.scan_table(UTTERANCES).filter(*conditions).collect()
    names = {**_speaker_names(table), **given_names}
    references = _references_by_utterance(run, columns, conditions, names)
    # Private replies are merged in by the time of their calls.
    unspoken = (
        _unspoken_replies(run, journal, key, table) if "address" in table.columns else iter(())
    )
    next_reply = next(unspoken, None)
    lines: list[Line] = []
    part = ""
    for row in _order_by_part(table):
        part = _conversation_part(row) or part
        address = str(row.get("address") or "")
        asked_at = journal.call_time(address) if address and next_reply else 0.0
        while next_reply is not None and next_reply.at < asked_at:
            lines.append(_build_thought(next_reply, part, names, key))
            next_reply = next(unspoken, None)
        lines.append(_build_line(row, part, names, key, references))
    while next_reply is not None:
        lines.append(_build_thought(next_reply, part, names, key))
        next_reply = next(unspoken, None)
    return lines


def _order_by_part(table: pl.DataFrame) -> list[dict[str, object]]:
    # Within a round or stage, rows are sorted by turn, because a study type may have recorded them
    # by participant. Private rows keep their positions.
    rows = table.to_dicts()
    positions = [
        position for position, row in enumerate(rows) if row.get("public", True) and row.get("turn")
    ]
    parts = {
        part: n
        for n, part in enumerate(dict.fromkeys(_conversation_part(rows[n]) for n in positions))
    }
    spoken = sorted(
        (rows[n] for n in positions), key=lambda row: (parts[_conversation_part(row)], row["turn"])
    )
    for position, row in zip(positions, spoken, strict=True):
        rows[position] = row
    return rows


def _unspoken_replies(
    run: RunFolder, journal: JournalReader, key: Sequence[str], table: pl.DataFrame
) -> Iterator[ReplyView]:
    spoken = set(table["address"])
    addresses = journal.addresses_containing(escape_address_part(key[0]), whole_part=False)
    room_addresses = [
        address
        for address in addresses
        if base_of(address) == address and address not in spoken and is_within(address, key)
    ]
    return iter(replies_at(run, journal, room_addresses))


def _speaker_names(table: pl.DataFrame) -> dict[str, str]:
    name_column = next((column for column in NAME_COLUMNS if column in table.columns), None)
    if name_column is None or "speaker_id" not in table.columns:
        return {}
    return dict(table.select("speaker_id", name_column).drop_nulls().unique().iter_rows())


def _conversation_part(row: Mapping[str, object]) -> str:
    # Empty for a private utterance outside all rounds.
    is_public = row.get("public", True)
    column = next(
        (
            column
            for column in (*PART_COLUMNS, *["stage"] * bool(is_public))
            if row.get(column) is not None
        ),
        "",
    )
    if not column:
        return ""
    value = str(row[column])
    part_name = column.removesuffix("_id")
    return f"{part_name} {value}" if value.isdigit() else value.replace("_", " ")


def _build_line(
    row: Mapping[str, object],
    part: str,
    names: Mapping[str, str],
    key: Sequence[str],
    references: Mapping[tuple[str, str], Reactions],
) -> Line:
    speaker_id = str(row.get("speaker_id") or row.get("speaker") or "")
    text, address = str(row.get("text") or ""), str(row.get("address") or "")
    is_private = not row.get("public", True)
    fields = fields_of(text) if is_private else ()
    notes = [_shorten_address(address, speaker_id, key)] if is_private and address else []
    if row.get("replied_to"):
        target = str(row["replied_to"])
        turn = f", turn {row['replied_to_turn']}" if row.get("replied_to_turn") else ""
        notes.append(f"answers {names.get(target, target)}{turn}")
    if row.get("stance"):
        notes.append(f"{row['stance']}s")
    if row.get("changed_mind") and isinstance(row.get("valence"), float):
        notes.append(f"moved to {row['valence']:+.2f}".replace("-", "−"))
    if not text and not row.get("missing"):
        notes.append("silent")
    notes += [
        str(row[column]).replace("_", " ") for column in ("intent", "missing") if row.get(column)
    ]
    return Line(
        part,
        names.get(speaker_id, speaker_id),
        speaker_id,
        str(row.get("role") or row.get("speaker_role") or ""),
        str(row.get("turn") or ""),
        "" if fields else text,
        fields,
        tuple(notes),
        () if is_private else references.get((str(row.get("round")), speaker_id), ()),
        address,
        is_private,
        row.get("address") == "",
    )


def _build_thought(
    reply: ReplyView, part: str, names: Mapping[str, str], key: Sequence[str]
) -> Line:
    notes = (_shorten_address(reply.address, reply.speaker, key),)
    return Line(
        part, names.get(reply.speaker, reply.speaker), reply.speaker, reply.role, "", reply.text,
        reply.fields, notes, (), reply.address, True,
    )  # fmt: skip


def _shorten_address(address: str, speaker_id: str, key: Sequence[str]) -> str:
    return place_of(address, (*key, "-".join(key), ".".join(key), speaker_id))


def _references_by_utterance(
    run: RunFolder, columns: Sequence[str], conditions: Sequence[pl.Expr], names: Mapping[str, str]
) -> dict[tuple[str, str], Reactions]:
    # {(round, speaker): ((kind of reference, targets), …)}
    needed_columns = {*columns, "round", "speaker", "target", "interaction_type"}
    if not run.has_table(REFERENCES):
        return {}
    table = run.scan_table(REFERENCES)
    if not needed_columns <= {*table.collect_schema().names()}:
        return {}
    rows = table.filter(*conditions).select(
        pl.col("round").cast(pl.String), "speaker", "interaction_type", "target"
    )
    targets_by_kind: dict[tuple[str, str], dict[str, list[str]]] = {}
    for round_number, speaker, kind, target in rows.collect().iter_rows():
        kinds_of_speaker = targets_by_kind.setdefault((round_number, speaker), {})
        kinds_of_speaker.setdefault(kind or "refers to", []).append(names.get(target, target))
    return {
        key: tuple((kind, tuple(targets)) for kind, targets in kinds.items())
        for key, kinds in targets_by_kind.items()
    }
