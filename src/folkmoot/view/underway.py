"""Rooms of a run that has no tables yet: who spoke, and what the others were given to read of it.

Addresses tell which room a reply is of (`Study.rooms`) and, with the instructions that were sent,
who was asked there. What was said aloud is what stood in the prompt of somebody else of the room;
until it does, a reply is private.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from folkmoot.engine.journal import JournalReader, as_part, name_in
from folkmoot.engine.study import study_of_run
from folkmoot.errors import FolkmootError
from folkmoot.storage.findings import heading
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.people import NOT_SAID
from folkmoot.view.talk import (
    OTHER,
    TELLING,
    Line,
    Room,
    Said,
    base_of,
    said,
    same_speaker,
    squeezed,
)


class Addressed(NamedTuple):
    """How addresses tell rooms: the columns of a room's key, and where they stand; and whom a reply
    takes up (`Study.takes_up`)."""

    columns: tuple[str, ...]
    pattern: re.Pattern[str]
    takes_up: Callable[[Sequence[str], str, Mapping[str, str]], list[tuple[str, str]]]

    def split(self, address: str) -> tuple[tuple[str, ...], list[str]]:
        """The room of an address, and the names after it; both empty where it is in no room."""
        found = None if address.startswith(NOT_SAID) else self.pattern.match(address)
        if found is None or base_of(address) != address:
            return (), []
        rest = address[found.end() :].split("/")
        return tuple(map(name_in, found.groups())), list(map(name_in, rest[:-1]))


def addressed(run: RunFolder) -> Addressed | None:
    """How addresses of a run tell its rooms; None where the study type does not say."""
    try:
        study = study_of_run(run)
    except FolkmootError:  # a study of the user's own that is gone, or not trusted here
        return None
    parts = re.split(r"\{(\w+)\}", study.rooms)
    text = "".join("([^/]+)" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    how = Addressed(tuple(parts[1::2]), re.compile(f"{text}/"), study.takes_up)
    return how if study.rooms else None


def rooms_so_far(journal: JournalReader, how: Addressed, people: Collection[str]) -> list[Room]:
    """The rooms in which something was asked; `people`: the ids of all."""
    found: dict[tuple[str, ...], list[str]] = {}
    for address in journal.addresses():
        key, rest = how.split(address)
        if key:
            found.setdefault(key, []).append(_speaker(rest, people))
    return [Room(key, len(asked), len(set(asked))) for key, asked in found.items()]


def so_far(
    run: RunFolder,
    journal: JournalReader,
    how: Addressed,
    key: Sequence[str],
    names: Mapping[str, str],
) -> list[Line]:
    """What was said in a room so far and, marked as private, what nobody else was given to read.
    `names`: id → name of its people."""
    near = journal.holding(as_part(key[0]), whole=False)
    after = {a: rest for a in near for own, rest in [how.split(a)] if own == tuple(key)}
    replies = said(run, journal, list(after))
    speakers = _speakers(replies, after, names)
    of_people = [a for a, who in speakers.items() if who in names] or list(speakers)
    sent: dict[str, set[str]] = {}  # a text → who was sent it
    for address in of_people:
        for _, message in journal.messages(address):
            for text in (message, *filter(_is_short, _lines_of(message))):
                sent.setdefault(squeezed(text), set()).add(speakers[address])
    whose: dict[str, set[str]] = {}  # a text → who said it
    for reply in replies:
        for text in map(squeezed, reply.values):
            whose.setdefault(text, set()).add(speakers[reply.address])
    aloud = _Aloud(sent, whose)
    called = {i: name.removesuffix(f" ({i})") for i, name in names.items()}
    lines: list[Line] = []
    latest: dict[str, int] = {}  # of each of the people the last of `lines`
    turns = count(1)
    for n, reply in enumerate(replies):
        who, rest = speakers[reply.address], after[reply.address]
        told = [text for text in reply.values if aloud.heard(squeezed(text), bool(reply.fields))]
        heard = [t for t in told if not any(t != other and t in other for other in told)]
        if len(heard) > 1:  # notes in a form may hold what somebody else has said
            heard = [t for t in heard if not aloud.quotes(squeezed(t))] or heard
        if who not in names:  # a guide of questions is heard when they are put
            own = [r for r in replies[n + 1 :] if speakers[r.address] == who]
            later = [squeezed(text) for r in own for text in r.values]
            heard = [t for t in heard if not any(t != v and squeezed(t) in v for v in later)]
        part = rest[0].replace("_", " ") if rest else ""
        place = " · ".join(name for name in rest[1:] if name != who)
        lines.append(
            Line(
                part, names.get(who, heading(who)), who, "",
                str(next(turns)) if heard else "",
                "\n\n".join(heard) or reply.text, () if heard else reply.fields,
                (place,) if place and not heard else (), (), reply.address, not heard,
            )
        )  # fmt: skip
        person = _speaker(rest, names)
        if who == person:
            latest[person] = len(lines) - 1
        if person in latest and (taken := how.takes_up(rest, reply.reply, called)):
            at, kinds = latest[person], dict.fromkeys(kind for kind, _ in taken)
            told_by = {k: tuple(names[i] for kind, i in taken if kind == k) for k in kinds}
            lines[at] = replace(lines[at], reactions=tuple(told_by.items()))
    return lines


def _speakers(
    replies: Sequence[Said], after: Mapping[str, Sequence[str]], people: Collection[str]
) -> dict[str, str]:
    """Address → who was asked there. At an address that names one of the people others may be asked
    about them: whoever has not that person's instructions is somebody else, known by name where an
    address of their own tells it."""
    named = {r.address: _speaker(after[r.address], people) for r in replies}
    first: dict[str, str] = {}
    others: dict[str, str] = {}  # instructions → who has them, as the longest address names them
    for reply in replies:
        if named[reply.address] in people:
            first.setdefault(named[reply.address], reply.instructions)
    for reply in sorted(replies, key=lambda r: len(after[r.address])):
        who = named[reply.address]
        if who not in people and len(after[reply.address]) > 1 and reply.instructions:
            others[reply.instructions] = who
    return {
        r.address: who
        if (who := named[r.address]) in people and same_speaker(first[who], r.instructions)
        else others.get(r.instructions, OTHER if who in people else who)
        for r in replies
    }


def _speaker(rest: Sequence[str], people: Collection[str]) -> str:
    """Who was asked: one of the people, or the part of the protocol that spoke."""
    return next((name for name in rest if name in people), rest[-1] if rest else "")


class _Aloud:
    """Which texts stood in prompts of others than those who said them. Long ones are looked for
    anywhere, short ones where a line holds nothing else: a yes stands in many a text by chance."""

    def __init__(self, sent: Mapping[str, set[str]], whose: Mapping[str, set[str]]) -> None:
        self._sent = sent
        self._whose = whose
        self._places: dict[str, list[tuple[str, int]]] = {t[:TELLING]: [] for t in whose}
        for text in sent:
            for at in range(len(text) - TELLING + 1):
                places = self._places.get(text[at : at + TELLING])
                if places is not None:
                    places.append((text, at))

    def quotes(self, text: str) -> bool:
        """Whether a text stands in what somebody else said."""
        return any(text in said and who - self._whose[text] for said, who in self._whose.items())

    def heard(self, text: str, in_fields: bool) -> bool:
        """Whether somebody else was given a text to read; a short one is told by nobody in the
        fields of a form."""
        own = self._whose[text]
        if len(text) < TELLING:
            return not in_fields and bool(self._sent.get(text, own) - own)
        places = self._places[text[:TELLING]]
        return any(held.startswith(text, at) and self._sent[held] - own for held, at in places)


def _is_short(text: str) -> bool:
    return 0 < len(text) < TELLING


def _lines_of(message: str) -> Iterator[str]:
    """The lines of a message, each also without the name before it."""
    for line in message.splitlines():
        yield line.strip()
        yield line.partition(": ")[2].strip()
