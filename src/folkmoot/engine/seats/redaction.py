"""Texts of one person, and what takes their place in the tables and files of a run.

A text is recognised because it is one that was recorded of this person, however a file spells it.
The one search for fewer words is between a reply and the texts that its own prompt showed: it finds
quotations.
"""

from __future__ import annotations

import html
import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate

from pydantic import JsonValue

from folkmoot.provenance import Replacement, SourcedText, replace_parts
from folkmoot.randomness import digest

QUOTED = 4  # words in a row that are a quotation; a shorter one is a whole sentence in both texts
LONG = 3  # words of a line that is recognised inside other text, where it need not stand alone
BEGINNING = 8  # characters of a line from which one that was cut off is recognised
VECTOR = 16  # a list with this many numbers or more is the embedding of a text
MARK = re.compile(r"\[withdrawn [0-9a-f]{12}\]")  # takes the place of words
# Words. An escape is none: `&quot;` in a page, `\n` in JSON. A letter of a word may be `\u00e9`.
_WORD = re.compile(r"&(?:#\w+|\w+);|\\[nrtbf]|((?:\\u[0-9a-fA-F]{4}|[^\W_])+)")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_SENTENCE = re.compile(r"[^.!?\n]+")
IS_CUT = re.compile(r"…\W*$")  # ends a text that was cut off, in a log or a message

Gram = tuple[str, ...]
Places = list[tuple[int, int]]


class Words:
    """The words of a text: their `places`, how they are `folded` for comparison, and these as one
    `line`."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = [
            part for word in _WORD.finditer(text) if word[1] for part in _split_escaped_word(word)
        ]
        self.places: Places = [(start, end) for start, end, _ in found]
        self.folded = [word.casefold() for _, _, word in found]
        self.line = f" {' '.join(self.folded)} "

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def _word_offsets(self) -> list[int]:
        """Where each word begins in the line, with the space before it."""
        return list(accumulate((len(word) + 1 for word in self.folded), initial=0))

    def find_word_sequence(self, wanted: str) -> Iterator[int]:
        """Yield the number of the first word wherever these words stand, given as a line."""
        at = self.line.find(wanted)
        while at >= 0:
            yield bisect_left(self._word_offsets, at)
            at = self.line.find(wanted, at + 1)

    def find_beginning(self, line: str, min_characters: int) -> int | None:
        """Return from which word on this text is the beginning of other words."""
        numbers = self.find_word_sequence(line[: min_characters + 1])
        rest = ((n, self.line[self._word_offsets[n] :].rstrip()) for n in numbers)
        return next((number for number, words in rest if line.startswith(words)), None)

    def place(self, first: int, last: int) -> tuple[int, int]:
        """Return where the words from number `first` to `last` (excluded) stand in the text."""
        return self.places[first][0], self.places[last - 1][1]

    def original_text(self, first: int, last: int) -> str:
        """Return these words with what stands between them, as no file spells it."""
        start, end = self.place(first, last)
        part = self.text[start:end]
        if not part.isascii() or not part.isalnum():
            part = _without_escapes(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), part))
            part = part.replace("\\", "").replace('""', '"')
            part = "".join(column for column in part if column.isprintable() or column.isspace())
        return " ".join(part.split())


def _split_escaped_word(word: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the place and the letters of a word; of several words, where an escaped character in
    between is no letter."""
    if "\\" not in word[1]:
        yield word.start(), word.end(), word[1]
        return
    start, letters = word.start(), ""
    for found in re.finditer(r"\\u[0-9a-fA-F]{4}|.", word[1]):
        letter = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), found[0])
        if letter.isalnum():
            letters += letter
            continue
        if letters:
            yield start, word.start() + found.start(), letters
        start, letters = word.start() + found.end(), ""
    if letters:
        yield start, word.end(), letters


def _without_escapes(text: str) -> str:
    """Return a text with spaces and quotation marks in place of how files spell them."""
    return html.unescape(re.sub(r"\\[nrtbf]", "\n", text))


def find_grams(text: str, sizes: Iterable[int] = range(2, QUOTED + 1)) -> set[Gram]:
    """Return all runs of words of a text that have one of these lengths."""
    words = Words(text).folded
    return {tuple(words[i : i + n]) for n in sizes for i in range(len(words) - n + 1)}


def find_quotable(text: str) -> set[Gram]:
    """Return the runs of words by which a quotation of a text is recognised: those of `QUOTED`
    words, and whole sentences of fewer."""
    sentences = (tuple(Words(sentence).folded) for sentence in _SENTENCE.findall(text))
    return find_grams(text, [QUOTED]) | {
        sentence for sentence in sentences if 1 < len(sentence) < QUOTED
    }


def find_quoted(text: str, quotable: Collection[Gram]) -> Places:
    """Return the places of a text that have these runs of words, in order and without overlap."""
    words = Words(text)
    return [words.place(*numbers) for numbers in _find_quoted_words(words, quotable)]


def _find_quoted_words(words: Words, quotable: Collection[Gram]) -> Places:
    """Return which words these are, by their numbers: first and last (excluded)."""
    found: Places = []
    for size in range(2, QUOTED + 1) if quotable else ():
        for first in range(len(words) - size + 1):
            last = first + size
            if tuple(words.folded[first:last]) in quotable and (
                size == QUOTED or _is_sentence(words.text, *words.place(first, last))
            ):
                found.append((first, last))
    return merge_overlapping(found)


def merge_overlapping(places: Iterable[tuple[int, int]]) -> Places:
    """Return places of a text in order, those that overlap as one."""
    merged: Places = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _is_sentence(text: str, start: int, end: int) -> bool:
    """Whether there is no other word beside these in their sentence, line, cell or quotation."""
    return _begins_sentence(text, start) and _ends_sentence(text, end)


def _begins_sentence(text: str, start: int) -> bool:
    before = _without_escapes(text[max(0, start - 20) : start]).rstrip(" *_")
    return not before[-1:].isalnum()


def _ends_sentence(text: str, end: int) -> bool:
    after = _without_escapes(text[end : end + 20]).lstrip(" *_")
    return not after[:1].isalnum()


@dataclass(slots=True)
class Recorded:
    """The words of a recorded text, which of them are the person's, by their numbers, and whether
    it was `offered` to others as an option afterwards."""

    words: Words
    own: Places
    offered: bool = False

    @property
    def is_long(self) -> bool:
        return len(self.words) >= LONG

    @property
    def is_whole(self) -> bool:
        return self.own == [(0, len(self.words))]

    def is_at(
        self,
        words: Words,
        first: int,
        *,
        ignore_case: bool,
        beside: Collection[tuple[int, int]] = (),
    ) -> bool:
        """Whether this text stands in another one, where its words do. A short one must stand
        alone, or beside others that were found. An option need not: a study puts it into sentences
        of its own."""
        last = first + len(self.words)
        own, other = self.words.original_text(0, len(self.words)), words.original_text(first, last)
        if self.is_long or self.offered or ignore_case:
            own, other = own.casefold(), other.casefold()
        if own != other or self.is_long or self.offered:
            return own == other
        start, end = words.place(first, last)
        begins = any(first == place[1] for place in beside) or _begins_sentence(words.text, start)
        return begins and (
            any(last == place[0] for place in beside) or _ends_sentence(words.text, end)
        )


@dataclass
class Redaction:
    """What takes the place of which recorded text.

    `ids` are the names of the person in rows and files, `others` the ids of other participants,
    `scopes` the sessions that the person takes part in, if the same id takes part in several.
    `texts`: recorded texts, and lines of these, by their words. Those that are also `shared` were
    given by another speaker too, and go only from rows of the person. Those that are `impersonal`
    (names of the protocol, options, texts of the design) are not recorded.
    """

    ids: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    texts: dict[str, Recorded] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    impersonal: set[str] = field(default_factory=set)
    # Equal marks show equal words. The salt is not kept, so that no guess can be tried.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def mark(self, text: str) -> str:
        """Return the mark that takes the place of a text; a mark stays as it is."""
        if not text or MARK.fullmatch(text):
            return text
        words = Words(text).line.strip() or text.strip()
        return f"[withdrawn {digest(self.salt, words, size=6).hex()}]"

    def replacements_for(self, text: str, places: Iterable[tuple[int, int]]) -> list[Replacement]:
        """Return the marks that take these places in a text."""
        return [Replacement(start, end, self.mark(text[start:end])) for start, end in places]

    def without_quotations(self, text: str, quotable: Collection[Gram]) -> str:
        """Return a text with marks in place of these runs of words."""
        parts = self.replacements_for(text, find_quoted(text, quotable))
        return str(replace_parts(SourcedText(text), parts))

    def exempt_texts(self, texts: Iterable[str]) -> None:
        """Take in texts that are not personal, unless the person wrote them before."""
        for words in map(Words, texts):
            if words.line in self.texts:
                self.texts[words.line].offered = True
            else:
                self.impersonal.add(words.line)

    def is_impersonal(self, text: str) -> bool:
        """Whether a text is a name of the protocol, an option or a text of the design."""
        return Words(text).line in self.impersonal

    def learn_text(self, text: str, quotable: Collection[Gram] | None = None) -> None:
        """Take in a recorded text, as a whole and by line: all of it is of the person, or the runs
        of words that are `quotable`. Figures alone are not personal."""
        for part in dict.fromkeys(part.strip() for part in (text, *text.splitlines())):
            # In a page the words may be others: "AT&T;" has an escape less than "AT&amp;T;".
            for words in map(Words, (part, html.escape(part))):
                is_personal = any(character.isalpha() for character in words.line)
                if not is_personal or words.line in self.impersonal or MARK.fullmatch(part):
                    continue
                own = [(0, len(words))]
                if quotable is not None:
                    own = _find_quoted_words(words, quotable)
                if own:
                    self.texts.setdefault(words.line, Recorded(words, own))
                    self.__dict__.pop("_longest_first", None)

    def discard_shared_texts(self, others: Collection[str]) -> None:
        """Find out which texts other speakers gave too. Call it when all texts are known."""
        whole = Words("\n".join(others)).line
        self.shared = {line for line in self.texts if line in whole}
        self.__dict__.pop("_longest_first", None)

    @cached_property
    def _longest_first(self) -> list[tuple[str, Recorded]]:
        known = (item for item in self.texts.items() if item[0] not in self.shared)
        return sorted(known, key=lambda item: (-len(item[0]), item[0]))

    def find_recorded(
        self, text: str, *, altered: bool = False, own: bool = False
    ) -> list[Replacement]:
        """Return what takes the place of the person's words inside a text of which the parts have
        no source. White space and the escapes of files do not count, nor does the case of a long
        text, or of one that is `altered`: a prompt may have it in capitals. `own`: it is in a row
        of the person, where any beginning of a text that was cut off is theirs."""
        words = Words(text)
        found: dict[tuple[int, int], Recorded] = {}  # by the numbers of the words
        known = self._longest_first if words else []
        count = -1
        while len(found) > count:  # a short text may stand beside one that was found
            count = len(found)
            for line, recorded in known:
                for first in words.find_word_sequence(line):
                    last = first + len(recorded.words)
                    is_free = all(last <= start or end <= first for start, end in found)
                    if is_free and recorded.is_at(
                        words, first, ignore_case=altered, beside=[*found]
                    ):
                        found[first, last] = recorded
        for line, recorded in known if IS_CUT.search(text) else ():
            is_looked_for = recorded.is_long or own
            min_characters = 1 if own else BEGINNING
            beginning = words.find_beginning(line, min_characters) if is_looked_for else None
            if beginning is None:
                continue
            if not any(start <= beginning < end for start, end in found):
                found = {place: of for place, of in found.items() if place[1] <= beginning}
                found[beginning, len(words)] = recorded
        places = [
            words.place(first + start, min(first + end, last))
            for (first, last), recorded in sorted(found.items())
            for start, end in recorded.own
            if first + start < last
        ]
        return self.replacements_for(text, places)

    def find_whole(self, text: str, *, own: bool = False) -> str | None:
        """Return what is left of a text that is exactly a recorded one; None for other texts.
        `own`: it is in a row of the person."""
        words = Words(text)
        recorded = self.texts.get(words.line)
        if recorded is None or (words.line in self.shared and not own):
            return None
        if not recorded.is_at(words, 0, ignore_case=own):
            return None
        if recorded.is_whole:
            return self.mark(text)
        places = [words.place(*numbers) for numbers in recorded.own]
        return str(replace_parts(SourcedText(text), self.replacements_for(text, places)))

    def in_text(self, text: str, *, own: bool = False) -> str:
        """Return what is left of a text: a cell, JSON, or a file that is made of several texts.
        `own`: it is in a row of the person."""
        whole = self.find_whole(text, own=own)
        if whole is not None:
            return whole
        if text[:1] in ("[", "{"):
            part = partial(self._in_parts, own=own)
            return change_json(text, lambda value: self.in_json(value, own=own), part)
        return self._in_parts(text, own=own)

    def _in_parts(self, text: str, *, own: bool) -> str:
        return str(replace_parts(SourcedText(text), self.find_recorded(text, own=own)))

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
        named = [value for value in value.values() if isinstance(value, str)]
        own = self.is_of_person(named, around) or (own and self.others.isdisjoint(named))
        changed = {}
        for key, v in value.items():
            names = around.union(named, [key])
            changed[self.in_text(key)] = self.in_json(v, names, own=own or key in self.ids)
        if any(
            changed.get(key, value) != value
            for key, value in value.items()
            if isinstance(value, str)
        ):
            return {key: None if _is_vector(value) else value for key, value in changed.items()}
        return changed

    def is_of_person(self, cells: Iterable[object], around: Iterable[str] = ()) -> bool:
        """Whether cells of a row, or values of an object, name this person and no other one."""
        parts, outer = _name_parts(cells), _name_parts(around)
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


def _name_parts(names: Iterable[object]) -> set[str]:
    """The names, and the parts of those that are paths."""
    short = [name for name in names if isinstance(name, str) and len(name) <= 200]
    return {part for name in short for part in (name, *name.split("/"))}


def _is_vector(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= VECTOR
        and all(isinstance(entry, (int, float)) for entry in value)
    )
