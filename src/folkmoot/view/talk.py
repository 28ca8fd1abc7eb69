"""What was said, as one reads it: by whom, where in the protocol, with the call behind it.

A run's journal holds every reply at its address; the table `answers` says who was asked there. In a
run under way that table is not there yet: then who has a person's own instructions is that person,
and everybody else is somebody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from folkmoot.engine.journal import Entry, JournalReader, as_part, name_in
from folkmoot.engine.withdrawal import MARK
from folkmoot.storage.findings import heading
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.people import UTTERANCES

_TRY = re.compile(r"(/ask\d+|^ask\d+)\.[\w.]+$")  # an address of a further try: `…/ask2.r1`
OTHER = "somebody else"
CODER = "coder"  # reads what was said, and takes no part in it
# Roles and ids of speakers who lead a talk.
LEADERS = frozenset(
    {"moderator", "mediator", "facilitator", "planner", "summarizer", "host", CODER}
)
ROOMS = (
    ("discussion_id",), ("group", "stimulus"), ("group_id", "condition"),
    ("experiment_id", "session"), ("group_id",), ("group",), ("session",), ("discussion",),
)  # fmt: skip
PARTS = ("topic", "task_id", "round", "phase", "stage")  # what a room's talk is divided by
SPEAKERS = ("speaker_id", "speaker")
SPOKEN = ("name", "speaker_name", "speaker")
REACTIONS = "reactions"


@dataclass(frozen=True, slots=True)
class Said:
    """One reply at an address. `fields` are those of a JSON reply, `text` any other, `values` all
    texts in it: a reply may speak for several.

    `place`: where in the protocol, in words; `own`: it is of the person whose page this is;
    `instructions`: the system message that was sent, empty where a table says who was asked.
    """

    address: str
    speaker: str
    role: str
    place: str
    turn: int
    text: str
    fields: tuple[tuple[str, str], ...]
    value: str
    missing: str
    tries: int
    own: bool
    at: float
    values: tuple[str, ...]
    reply: str
    instructions: str


class Asked(NamedTuple):
    """Who was asked at an address, and how the reply was read (a row of `answers`)."""

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
class Drawer:
    """All that is known of one call: each try with what was sent and what came back."""

    address: str
    asked: Asked | None
    place: str
    tries: tuple[Entry, ...]


def base_of(address: str) -> str:
    """The address of the question that a try at this address belongs to."""
    return _TRY.sub(r"\1", address)


def place_of(address: str, leave_out: Iterable[str] = ()) -> str:
    """Where in the protocol an address is, in words."""
    dropped = {as_part(part) for part in leave_out}
    parts = [name_in(p) for p in address.split("/")[:-1] if p not in dropped]
    # Names of stages are words; whatever holds a figure may be an id.
    return " · ".join(p if re.search(r"\d", p) else heading(p) for p in parts)


def addresses_of(journal: JournalReader, within: Sequence[str], who: str) -> list[str]:
    """The addresses of what was asked about or of one of the people, tries left out."""
    found = journal.holding(as_part(who))
    return [a for a in found if base_of(a) == a and _in(a, within)]


def _in(address: str, within: Sequence[str]) -> bool:
    """Whether an address is of a conversation: its names are parts of it, or one part joins them
    (`family_01-C4`, `game.3`)."""
    parts, names = address.split("/"), [as_part(name) for name in within]
    if not names or {"-".join(names), ".".join(names)} & set(parts):
        return True
    if len(names) == 1:
        return any(p == names[0] or p.startswith((f"{names[0]}-", f"{names[0]}.")) for p in parts)
    return set(names) <= set(parts)


def asked(run: RunFolder, addresses: Sequence[str]) -> dict[str, Asked]:
    """Address → who was asked there; empty while the run has no tables."""
    if not run.has_table("answers") or not addresses:
        return {}
    table = run.lazy("answers")
    have = table.collect_schema().names()
    columns = ("address", "speaker_id", *Asked._fields[1:])
    wanted = [pl.col(c) if c in have else pl.lit(None).alias(c) for c in columns]
    rows = table.select(wanted).filter(pl.col("address").is_in(list(addresses))).collect()
    return {
        row[0]: Asked(*("" if c is None else str(c) for c in row[1:])) for row in rows.iter_rows()
    }


def said(
    run: RunFolder,
    journal: JournalReader,
    addresses: Sequence[str],
    *,
    who: Sequence[str] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[Said]:
    """The replies at addresses in the order in which they were asked for.

    `who`: the key of the person whose page it is, which says whose words are their own.
    """
    known = asked(run, addresses)
    bases = set(addresses)
    tries: dict[str, list[Entry]] = {}
    for address in addresses:
        found = _tries(journal, address, whole=address not in known)
        if found and not (address in known and known[address].role == CODER):
            tries[address] = found
    order = sorted(tries, key=lambda a: (tries[a][0].started_at, a))
    first = next((_instructions(tries[a][0]) for a in order), "") if who else ""
    result, turns = [], dict.fromkeys((place_of(a, who) for a in bases), 0)
    for address in order:
        entry, row = tries[address][-1], known.get(address)
        told = "" if row else _instructions(entry)
        own = row.speaker == who[-1] if row and who else same_speaker(first, told)
        speaker = row.speaker if row else who[-1] if own and who else OTHER
        place = place_of(address, who)
        turns[place] += 1
        fields = fields_of(entry.reply) if not row or row.kind in ("json", "workbook") else ()
        result.append(
            Said(
                address,
                names.get(speaker, speaker),
                row.role if row else "",
                place,
                turns[place],
                "" if fields else entry.reply,
                fields,
                row.value if row else "",
                (row.missing if row else "") or _unfinished(entry),
                len(tries[address]),
                bool(who) and own,
                entry.started_at,
                tuple(_texts(entry.reply)) if fields else (entry.reply,),
                entry.reply,
                told,
            )
        )
    return result


def _tries(journal: JournalReader, address: str, *, whole: bool) -> list[Entry]:
    """The entry at an address and those of its further tries, in order."""
    read = (journal.at(a, whole=whole) for a in journal.tries(address))
    found = [entry for entry in read if entry is not None]
    return sorted(found, key=lambda e: (e.started_at, e.address))


def _instructions(entry: Entry) -> str:
    messages = entry.request.get("messages") or []
    return next((str(m["content"]) for m in messages if m["role"] == "system"), "")


def same_speaker(first: str, told: str) -> bool:
    """Whether instructions are of the speaker who was given these first: a protocol adds to them
    (an opinion, the rules of a dialogue) and leaves most of their paragraphs."""
    parts = first.split("\n\n")
    return first == told or sum(part in told for part in parts) > len(parts) / 2


def _unfinished(entry: Entry) -> str:
    return entry.finish if entry.finish.startswith("refused") else ""


def fields_of(reply: str) -> tuple[tuple[str, str], ...]:
    """The fields of a reply that is a JSON object; empty for any other."""
    text = reply.strip()
    if not text.startswith("{"):
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return tuple((str(k), _plain(v)) for k, v in found.items()) if isinstance(found, dict) else ()


def _texts(reply: str) -> Iterator[str]:
    """All texts and figures in a JSON reply, however deep."""
    waiting = [json.loads(reply)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            yield value if isinstance(value, str) else json.dumps(value)


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return "; ".join(value)
    if isinstance(value, dict):
        return "; ".join(f"{heading(str(k))}: {_plain(v)}" for k, v in value.items())
    return json.dumps(value, ensure_ascii=False)


def drawer(run: RunFolder, journal: JournalReader, address: str) -> Drawer | None:
    """All that is known of the call at an address; None where there is none."""
    base = base_of(address)
    tries = _tries(journal, base, whole=True)
    if not tries:
        return None
    return Drawer(base, asked(run, [base]).get(base), place_of(base), tuple(tries))


# --- rooms ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """One conversation of several: its key and how much was said in it."""

    key: tuple[str, ...]
    utterances: int
    speakers: int

    @property
    def title(self) -> str:
        return " · ".join(self.key)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing in a room: an utterance, or, with `private`, a thought that nobody heard."""

    part: str
    speaker: str
    speaker_id: str
    role: str
    turn: str
    text: str
    fields: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]  # whom it answers, what it moved
    reactions: tuple[tuple[str, tuple[str, ...]], ...]  # kind → to whom
    address: str
    private: bool

    @property
    def withdrawn(self) -> bool:
        """Whether words of this were taken out because the speaker withdrew."""
        return bool(MARK.search(self.text))

    @property
    def leads(self) -> bool:
        """Whether the speaker leads the talk and takes no part in it."""
        return not LEADERS.isdisjoint((self.role.lower(), self.speaker_id.lower()))


def room_columns(run: RunFolder) -> tuple[str, ...]:
    """The columns of `utterances` that tell its rooms apart; none where people talk alone with a
    moderator, or where nothing was recorded."""
    if not run.has_table(UTTERANCES):
        return ()
    have = set(run.lazy(UTTERANCES).collect_schema().names())
    if "participant_id" in have:
        return ()
    return next((columns for columns in ROOMS if have.issuperset(columns)), ())


def rooms(run: RunFolder, columns: Sequence[str]) -> list[Room]:
    """All rooms of a run in the order of its tables."""
    table = run.lazy(UTTERANCES)
    speaker = _first(SPEAKERS, table)
    counted = table.group_by(*columns, maintain_order=True).agg(
        pl.len().alias("_said"), pl.col(speaker).n_unique().alias("_speakers")
    )
    return [Room(tuple(map(str, row[:-2])), *row[-2:]) for row in counted.collect().iter_rows()]


def _first(columns: Sequence[str], table: pl.LazyFrame) -> str:
    have = table.collect_schema().names()
    return next((c for c in columns if c in have), have[0])


def in_room(
    run: RunFolder,
    journal: JournalReader,
    columns: Sequence[str],
    key: Sequence[str],
    called: Mapping[str, str],
) -> list[Line]:
    """What was said in a room and, marked as private, what was only thought or asked in private.

    `called`: names of those whose utterances are recorded by their ids alone.
    """
    same = [pl.col(c).cast(pl.String) == v for c, v in zip(columns, key, strict=True)]
    table = run.lazy(UTTERANCES).filter(*same).collect()
    replies, shared = _replies(run, journal, key)
    spoken = _by_words([*replies, *shared])
    reacted = _reactions(run, columns, same)
    names = {**called, **_names(table)}
    lines: list[Line] = []
    waiting = iter(sorted(replies, key=lambda s: (s.at, s.address)))
    thought = next(waiting, None)
    heard: set[str] = set()
    found = [_call_of(row, spoken, replies, heard) for row in table.iter_rows(named=True)]
    for row, call in zip(table.iter_rows(named=True), found, strict=True):
        while call is not None and thought is not None and thought.at < call.at:
            if thought.address not in heard:
                lines.append(_thought(thought, _part(row), names, key))
            thought = next(waiting, None)
        lines.append(_line(row, call, names, reacted))
    last = lines[-1].part if lines else ""
    rest = [] if thought is None else [thought, *waiting]
    lines += [_thought(s, last, names, key) for s in rest if s.address not in heard]
    return lines


def _replies(
    run: RunFolder, journal: JournalReader, key: Sequence[str]
) -> tuple[list[Said], list[Said]]:
    """The replies that were asked for in a room, and those from outside of it that its talk may
    hold: stated preferences, what an earlier condition of the same people came to."""
    near = [a for a in journal.holding(as_part(key[0]), whole=False) if base_of(a) == a]
    own = [a for a in near if _in(a, key)]
    others = [a for a in near if _in(a, key[:1]) and not _in(a, key)]
    return said(run, journal, own), said(run, journal, others)


def _by_words(replies: Sequence[Said]) -> dict[str, list[Said]]:
    """Words → the replies that hold them, once for each time that they do."""
    found: dict[str, list[Said]] = {}
    for reply in replies:
        for text in reply.values:
            if text.strip():
                found.setdefault(squeezed(text), []).append(reply)
    return found


def squeezed(text: str) -> str:
    return " ".join(text.split())


def _call_of(
    row: Mapping[str, object],
    spoken: Mapping[str, list[Said]],
    replies: Sequence[Said],
    heard: set[str],
) -> Said | None:
    """The reply that an utterance is the words of, its speaker's first; taken out of `spoken`. A
    protocol may record what it read in a reply, or set its fields into a text of its own."""
    text = squeezed(str(row.get("text") or ""))
    free = spoken.get(text, [])
    speaker = str(row.get("speaker_id") or "")
    own = [s for s in free if as_part(speaker) in s.address.split("/") or s.speaker == speaker]
    # A reply may speak for others, where it has room for several; figures are anybody's.
    for_others = [s for s in free if not speaker or (s.fields and len(text) > FIGURE)]
    call = next(iter(own or for_others), None)
    if call is not None:
        free.remove(call)
    elif text:
        new = [s for s in replies if s.address not in heard]
        read = (s for s in new if s.speaker == speaker and s.text and text in squeezed(s.text))
        within = chain(read, (s for s in new if _stands_in(s, text)))
        call = next(within, None)
    if call is not None:
        heard.add(call.address)
    return call


FIGURE = 5  # characters of a figure or a yes at most
TELLING = 30  # characters of a field that stand in another text by no chance


def _stands_in(reply: Said, text: str) -> bool:
    longest = max(map(squeezed, reply.values), key=len, default="")
    return len(longest) >= TELLING and longest in text


def _names(table: pl.DataFrame) -> dict[str, str]:
    """Speaker's id → name, where utterances have both."""
    spoken = next((c for c in SPOKEN if c in table.columns), None)
    if spoken is None or "speaker_id" not in table.columns:
        return {}
    return dict(table.select("speaker_id", spoken).unique().iter_rows())


def _part(row: Mapping[str, object]) -> str:
    column = next((c for c in PARTS if row.get(c) is not None), "")
    if not column:
        return ""
    value = str(row[column])
    named = column.removesuffix("_id")
    return f"{named} {value}" if value.isdigit() else value.replace("_", " ")


def _line(
    row: Mapping[str, object],
    call: Said | None,
    names: Mapping[str, str],
    reacted: Mapping[tuple[str, str], tuple[tuple[str, tuple[str, ...]], ...]],
) -> Line:
    who = str(row.get("speaker_id") or row.get("speaker") or "")
    notes = []
    if row.get("replied_to"):
        to = str(row["replied_to"])
        turn = f", turn {row['replied_to_turn']}" if row.get("replied_to_turn") else ""
        notes.append(f"answers {names.get(to, to)}{turn}")
    if row.get("stance"):
        notes.append(f"{row['stance']}s")
    if row.get("changed_mind") and isinstance(row.get("valence"), float):
        notes.append(f"moved to {row['valence']:+.2f}".replace("-", "−"))
    if row.get("silent"):
        notes.append("silent")
    notes += [str(row[c]).replace("_", " ") for c in ("intent", "missing") if row.get(c)]
    return Line(
        _part(row), names.get(who, who), who, str(row.get("role") or row.get("speaker_role") or ""),
        str(row.get("turn") or ""), str(row.get("text") or ""), (), tuple(notes),
        tuple(
            (kind, tuple(names.get(to, to) for to in whom))
            for kind, whom in reacted.get((str(row.get("round")), who), ())
        ),
        call.address if call else "", False,
    )  # fmt: skip


def _thought(reply: Said, part: str, names: Mapping[str, str], key: Sequence[str]) -> Line:
    rooms = (*key, "-".join(key), ".".join(key), reply.speaker)
    return Line(
        part, names.get(reply.speaker, reply.speaker), reply.speaker, reply.role, "", reply.text,
        reply.fields, (place_of(reply.address, rooms),), (), reply.address, True,
    )  # fmt: skip


def _reactions(
    run: RunFolder, columns: Sequence[str], same: Sequence[pl.Expr]
) -> dict[tuple[str, str], tuple[tuple[str, tuple[str, ...]], ...]]:
    """(round, speaker) → how that speaker reacted to whom, where a study records it."""
    if not run.has_table(REACTIONS):
        return {}
    table = run.lazy(REACTIONS)
    if not {"speaker", "target", "reaction", "round", *columns} <= {
        *table.collect_schema().names()
    }:
        return {}
    rows = table.filter(*same, pl.col("reaction") != "ignore").select(
        pl.col("round").cast(pl.String), "speaker", "reaction", "target"
    )
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for number, speaker, reaction, target in rows.collect().iter_rows():
        found.setdefault((number, speaker), {}).setdefault(reaction, []).append(target)
    return {
        key: tuple((kind, tuple(targets)) for kind, targets in kinds.items())
        for key, kinds in found.items()
    }
