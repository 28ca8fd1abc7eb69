"""Texts of one person, and what takes their place in the tables and files of a run.

A text is recognised because it is, exactly, one that was recorded of this person. The one search
for words is between a reply and the texts that its own prompt showed: it finds quotations.
"""

from __future__ import annotations

import html
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import JsonValue

from folkmoot.provenance import Replacement, SourcedText, replace_parts
from folkmoot.randomness import digest

QUOTED = 4  # words in a row that are a quotation; a shorter one is a whole sentence in both texts
LONG = 3  # words of a line that is recognised inside other text, where it need not stand alone
BEGINNING = 8  # characters of a line from which one that was cut off is recognised
VECTOR = 16  # a list with this many numbers or more is the embedding of a text
MARK = re.compile(r"\[withdrawn [0-9a-f]{12}\]")  # takes the place of words
_WORD = re.compile(r"(?<!\\)\b\w+|(?<=\\[nrt])\w+")  # the letter of an escape is no part of a word
_SENTENCE = re.compile(r"[^.!?\n]+")
CUT = "…"  # ends a text of a log that was cut off

Gram = tuple[str, ...]


def find_grams(text: str, sizes: Iterable[int] = range(2, QUOTED + 1)) -> set[Gram]:
    """Return all runs of words of a text that have one of these lengths."""
    words = [word.casefold() for word in _WORD.findall(text)]
    return {tuple(words[i : i + n]) for n in sizes for i in range(len(words) - n + 1)}


def find_quotable(text: str) -> set[Gram]:
    """Return the runs of words by which a quotation of a text is recognised: those of `QUOTED`
    words, and whole sentences of fewer."""
    sentences = (tuple(w.casefold() for w in _WORD.findall(s)) for s in _SENTENCE.findall(text))
    return find_grams(text, [QUOTED]) | {s for s in sentences if 1 < len(s) < QUOTED}


def find_quoted(text: str, quotable: Collection[Gram]) -> list[tuple[int, int]]:
    """Return the places of a text that have these runs of words, in order and without overlap."""
    words = list(_WORD.finditer(text))
    folded = [word[0].casefold() for word in words]
    places: list[tuple[int, int]] = []
    for size in range(2, QUOTED + 1):
        for first in range(len(words) - size + 1):
            if tuple(folded[first : first + size]) in quotable:
                start, end = words[first].start(), words[first + size - 1].end()
                if size == QUOTED or _is_sentence(text, start, end):
                    places.append((start, end))
    return merge(places)


def merge(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places of a text in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _is_sentence(text: str, start: int, end: int) -> bool:
    """Whether there is no other word beside these in their sentence, line, cell or quotation."""
    before, after = (
        text[max(0, start - 20) : start].rstrip(" *_"),
        text[end : end + 20].lstrip(" *_"),
    )
    return not before[-1:].isalnum() and not after[:1].isalnum()


@dataclass
class Redaction:
    """What takes the place of which recorded text.

    `ids` are the names of the person in rows and files, `others` the ids of other participants,
    `scopes` the sessions that the person takes part in, if the same id takes part in several.
    `texts`: recorded text, or a line of one → what takes the place of which parts of it, the words
    of the person; the rest of a text that quotes them stays. Those that are also `shared`
    were given by another speaker too, and go only from rows of the person. Those that are
    `impersonal` (names of the protocol, options, texts of the study file) are not recorded.
    """

    ids: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    texts: dict[str, list[Replacement]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    impersonal: set[str] = field(default_factory=set)
    # Equal marks show equal words. The salt is not kept, so that no guess can be tried.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def mark(self, text: str) -> str:
        """Return the mark that takes the place of a text; a mark stays as it is."""
        if not text or MARK.fullmatch(text):
            return text
        return f"[withdrawn {digest(self.salt, text.strip().casefold(), size=6).hex()}]"

    def replace(self, text: str, places: Iterable[tuple[int, int]]) -> list[Replacement]:
        """Return the marks that take these places in a text."""
        return [Replacement(start, end, self.mark(text[start:end])) for start, end in places]

    def without_quotations(self, text: str, quotable: Collection[Gram]) -> str:
        """Return a text with marks in place of these runs of words."""
        parts = self.replace(text, find_quoted(text, quotable))
        return str(replace_parts(SourcedText(text), parts))

    def learn(self, text: str, quotable: Collection[Gram] | None = None) -> None:
        """Take in a recorded text, as a whole and by line: all of it is of the person, or the runs
        of words that are `quotable`. Figures alone are not personal."""
        lines = [line.strip() for line in (text, *text.splitlines())]
        for part in (*lines, *(line.rstrip(".!?") for line in lines)):
            if part in self.impersonal or not any(character.isalpha() for character in part):
                continue
            places = [(0, len(part))] if quotable is None else find_quoted(part, quotable)
            replaced = [found for found in self.replace(part, places) if found.text != part]
            if replaced:
                self.texts.setdefault(part, replaced)
                self.__dict__.pop("_forms", None)

    def settle(self, others: Collection[str]) -> None:
        """Find out which texts other speakers gave too. Call it when all texts are known."""
        whole = _fold("\n".join(others))
        self.shared = {text for text in self.texts if _fold(text) in whole}
        self.__dict__.pop("_forms", None)

    @cached_property
    def _forms(self) -> list[tuple[str, list[Replacement], bool]]:
        """How each line may be written in a file, what takes the place of which parts of it, and
        whether it is long."""
        found: dict[str, tuple[list[Replacement], bool]] = {}
        for text, parts in self.texts.items():
            if "\n" not in text and text not in self.shared:
                for spell in SPELLINGS:
                    spelled = [
                        Replacement(len(spell(text[:start])), len(spell(text[:end])), left)
                        for start, end, left in parts
                    ]
                    found[spell(text)] = spelled, _is_long(text)
        return [(f, *found[f]) for f in sorted(found, key=lambda form: (-len(form), form))]

    def find_recorded(self, text: str, *, altered: bool = False) -> list[Replacement]:
        """Return what takes the place of the person's words inside a text of which the parts have
        no source. A recorded text that is long is found in any case, since a prompt may have it in
        capitals; a short one only if it stands alone, and in any case in a text that is `altered`.
        """
        found: dict[tuple[int, int], list[Replacement]] = {}  # by the place of a recorded text
        folded = _fold(text)
        for form, parts, is_long in self._forms:
            same = (folded, _fold(form)) if is_long or altered else (text, form)
            for start in _find(*same, is_long=is_long):
                end = start + len(form)
                if all(end <= first or last <= start for first, last in found):
                    found[start, end] = parts
            start = same[0].rfind(same[1][:BEGINNING]) if is_long and text.endswith(CUT) else -1
            if start >= 0 and same[1].startswith(same[0][start:-1].rstrip()):
                found = {place: of for place, of in found.items() if place[1] <= start}
                found[start, len(text) - 1] = parts
        return [
            Replacement(first + start, min(first + end, last), left)
            for (first, last), parts in sorted(found.items())
            for start, end, left in parts
            if first + start < last
        ]

    def find_whole(self, text: str, *, own: bool = False) -> str | None:
        """Return what is left of a text that is exactly a recorded one; None for other texts."""
        recorded = text.strip()
        if recorded not in self.texts or (recorded in self.shared and not own):
            return None
        return str(replace_parts(SourcedText(recorded), self.texts[recorded]))

    def in_text(self, text: str, *, own: bool = False) -> str:
        """Return what is left of a text: a cell, JSON, or a file that is made of several texts.
        `own`: it is in a row of the person."""
        whole = self.find_whole(text, own=own)
        if whole is not None:
            return whole
        if text[:1] in ("[", "{"):
            return change_json(text, lambda value: self.in_json(value, own=own), self._in_parts)
        return self._in_parts(text)

    def _in_parts(self, text: str) -> str:
        return str(replace_parts(SourcedText(text), self.find_recorded(text)))

    def in_json(
        self, value: JsonValue, around: frozenset[str] = frozenset(), *, own: bool = False
    ) -> JsonValue:
        """Return JSON data without the person's texts and the embeddings of these. `around` are the
        names that the data stands under."""
        if isinstance(value, str):
            return self.in_text(value, own=own)
        if isinstance(value, list):
            if own and _is_vector(value):
                return None
            return [self.in_json(entry, around, own=own) for entry in value]
        if not isinstance(value, dict):
            return value
        named = [v for v in value.values() if isinstance(v, str)]
        own = self.is_of_person(named, around) or (own and self.others.isdisjoint(named))
        changed = {}
        for key, v in value.items():
            names = around.union(named, [key])
            changed[self.in_text(key)] = self.in_json(v, names, own=own or key in self.ids)
        if any(changed.get(key, v) != v for key, v in value.items() if isinstance(v, str)):
            return {key: None if _is_vector(v) else v for key, v in changed.items()}
        return changed

    def is_of_person(self, cells: Iterable[object], around: Iterable[str] = ()) -> bool:
        """Whether cells of a row, or values of an object, name this person and no other one."""
        parts, outer = _parts(cells), _parts(around)
        in_session = not self.scopes or not self.scopes.isdisjoint(parts | outer)
        return in_session and not self.ids.isdisjoint(parts) and self.others.isdisjoint(parts)


def change_json(
    text: str, change: Callable[[JsonValue], JsonValue], otherwise: Callable[[str], str]
) -> str:
    """Return a text that is JSON with its data changed, and any other text as `otherwise` does."""
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return otherwise(text)
    changed = change(value)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def find_texts(value: object) -> Iterator[str]:
    """Yield all texts in JSON data, without keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from find_texts(part)


def change_texts(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """Return JSON data with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [change_texts(part, change) for part in value]
    if isinstance(value, dict):
        return {key: change_texts(part, change) for key, part in value.items()}
    return value


def find_offered(schema: object) -> Iterator[str]:
    """Yield the texts that a JSON schema offers to choose from."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            yield from map(str, part) if key == "enum" else find_offered(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from find_offered(part)


def _fold(text: str) -> str:
    """Return a text in lower case, with every character where it was."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _find(text: str, wanted: str, *, is_long: bool) -> Iterator[int]:
    """Yield where a line begins in a text; a short one, only where it stands alone."""
    start = text.find(wanted)
    while start >= 0:
        if is_long or _is_sentence(text, start, start + len(wanted)):
            yield start
        start = text.find(wanted, start + len(wanted))


# How files spell a text: as it is, in a page, in JSON, in a cell of a CSV file. Each treats every
# character by itself.
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    html.escape,
    lambda text: html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    lambda text: html.escape(text, quote=False),
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: text.replace('"', '""'),
)


def _is_long(text: str) -> bool:
    return len(_WORD.findall(text)) >= LONG


def _parts(names: Iterable[object]) -> set[str]:
    """The names, and the parts of those that are paths."""
    short = [name for name in names if isinstance(name, str) and len(name) <= 200]
    return {part for name in short for part in (name, *name.split("/"))}


def _is_vector(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= VECTOR
        and all(isinstance(entry, (int, float)) for entry in value)
    )
