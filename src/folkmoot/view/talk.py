"""Replies as one reads them: who was asked where in the protocol, with the call behind them.

A run's journal holds every reply at its address. The table `answers` tells who was asked there, of
runs under way too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from folkmoot.engine.journal.journal import Entry, JournalReader, as_part, name_in
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.storage.findings import heading
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.sources import Sourced, draw_by_source

_TRY = re.compile(r"(/ask\d+|^ask\d+)\.[\w.]+$")  # an address of a further try: `…/ask2.r1`
UNKNOWN = "unknown speaker"  # the row of the answer is not there (yet)
CODER = "coder"  # reads what was said, and takes no part in it


@dataclass(frozen=True, slots=True)
class Said:
    """One reply at an address. `fields` are those of a JSON reply, `text` is any other.

    `place`: where in the protocol, in words; `own`: it is of the person whose page this is.
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
    """All that is known of one call: each try with its prompt by source and its reply."""

    address: str
    asked: Asked | None
    place: str
    tries: tuple[tuple[Entry, Sourced], ...]


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
    return [a for a in found if base_of(a) == a and is_within(a, within)]


def is_within(address: str, within: Sequence[str]) -> bool:
    """Return whether an address is of a conversation: its names are parts of the address, or one
    part joins them (`family_01-C4`, `game.3`)."""
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

    `who`: the key of the person whose page it is; its last part is the id of the speaker.
    """
    known = asked(run, addresses)
    tries: dict[str, list[Entry]] = {}
    for address in addresses:
        found = _tries(journal, address, whole=False)
        if found and not (address in known and known[address].role == CODER):
            tries[address] = found
    result, turns = [], dict.fromkeys((place_of(a, who) for a in addresses), 0)
    for address in sorted(tries, key=lambda a: (tries[a][0].started_at, a)):
        entry, row = tries[address][-1], known.get(address)
        speaker = row.speaker if row else UNKNOWN
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
                bool(who) and speaker == who[-1],
                entry.started_at,
            )
        )
    return result


def said_by_others(
    run: RunFolder,
    journal: JournalReader,
    who: Sequence[str],
    within: Mapping[str, str],
    names: Mapping[str, str],
) -> list[Said]:
    """What replies of other speakers say in a participant's name: one session may play several.

    `who`: the key of the participant; `within`: the columns of `utterances` that name the
    conversation, with their values.
    """
    if not run.has_table(UTTERANCES):
        return []
    table = run.lazy(UTTERANCES)
    have = table.collect_schema().names()
    if not {"address", "speaker_role"} <= {*have}:  # a run of an earlier version
        return []
    same = [pl.col(c).cast(pl.String) == value for c, value in within.items() if c in have]
    own = table.filter(*same, pl.col("speaker_id") == who[-1], pl.col("address") != "").collect()
    known = asked(run, own["address"].unique().to_list())
    found: list[Said] = []
    for row in own.iter_rows(named=True):
        address, text = row["address"], row["text"] or ""
        by = known[address].speaker if address in known else who[-1]
        if by == who[-1]:
            continue
        fields = fields_of(text)
        role = f"{row['speaker_role']}, in a reply of {names.get(by, by)}"
        found.append(
            Said(
                address, names.get(who[-1], who[-1]), role, place_of(address, who),
                len(found) + 1, "" if fields else text, fields, "", row["missing"] or "", 1, False,
                journal.asked_at(address),
            )
        )  # fmt: skip
    return found


def _tries(journal: JournalReader, address: str, *, whole: bool) -> list[Entry]:
    """The entry at an address and those of its further tries, in order."""
    read = (journal.at(a, whole=whole) for a in journal.tries(address))
    found = [entry for entry in read if entry is not None]
    return sorted(found, key=lambda e: (e.started_at, e.address))


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


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return "; ".join(value)
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return "\n".join(map(_plain, value))
    if isinstance(value, dict):
        return "; ".join(f"{heading(str(k))}: {_plain(v)}" for k, v in value.items())
    return json.dumps(value, ensure_ascii=False)


def drawer(run: RunFolder, journal: JournalReader, address: str) -> Drawer | None:
    """All that is known of the call at an address; None where there is none."""
    base = base_of(address)
    tries = _tries(journal, base, whole=True)
    if not tries:
        return None
    row = asked(run, [base]).get(base)
    prompts = [(entry.address, entry.request) for entry in tries]
    sourced = draw_by_source(run, row.speaker if row else "", prompts)
    return Drawer(base, row, place_of(base), tuple(zip(tries, sourced, strict=True)))
