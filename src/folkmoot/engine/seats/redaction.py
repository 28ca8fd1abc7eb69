"""Find the texts of one human in tables and files, and replace each by `[withdrawn …]`."""

# A text is removed if the run has recorded it as a text of this human. White space and escapes of a
# file are ignored in the comparison. A quotation may be only a part of a recorded text. In a reply,
# parts are therefore searched for as well, if their text was in the prompt of the reply.

from __future__ import annotations

import html
import json
import re
import secrets
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple

from pydantic import JsonValue

from folkmoot.engine.seats.json_texts import change_json
from folkmoot.hints import collapse_spaces, has_unspaced_script
from folkmoot.provenance import Replacement, SourcedText, replace_parts
from folkmoot.randomness import digest

# Texts are measured in twelfths of a quotation. In scripts without spaces, each letter is compared,
# and counts as a part of a word: Chinese words have one or two letters, words in kana or in Thai
# about three.
WORD_SIZE = 3
IDEOGRAPH_SIZE = 2
UNSPACED_LETTER_SIZE = 1
# Four equal words in a row are a quotation. A shorter one counts only if it is a whole sentence of
# two words or more in both texts. Three words in a row are too often equal by chance.
QUOTED_SIZE = 4 * WORD_SIZE
MIN_SENTENCE_SIZE = 2 * WORD_SIZE
# A line of three words or more is recognised inside other text. A shorter one occurs everywhere.
MIN_LONG_TEXT_SIZE = 3 * WORD_SIZE
# Number of first words by which recorded texts are looked up.
LOOKED_UP_WORDS = 3
# The beginning of a line that was cut off is recognised from this number of characters on.
MIN_BEGINNING_CHARACTERS = 8
# Earlier versions cut a value that was repaired to this number of characters, without an ellipsis.
CUT_VALUE_CHARACTERS = 80
# A list with at least this number of numbers is taken to be an embedding. Embeddings have more
# dimensions, and a participant's list of votes or ratings is rarely as long.
MIN_VECTOR_LENGTH = 16
# The mark that replaces a text.
WITHDRAWAL_MARK = re.compile(r"\[withdrawn [0-9a-f]{12}\]")
# Signs that are written with the letter before them, such as the vowel signs of Hindi. For Python
# they are no letters, and would divide a word into several.
_COMBINING_SIGNS = frozenset(
    sign for sign in map(chr, range(0x300, 0xFE00)) if unicodedata.category(sign).startswith("M")
)
# Matches words and escapes, and group 1 is a word. Escapes such as `&quot;` in a page and `\n` in
# JSON match so that their letters do not count as words. A letter of a word may be `\u00e9`.
_WORD = re.compile(
    r"&(?:#\w+|\w+);|\\[nrtbf]|((?:\\u[0-9a-fA-F]{4}|[^\W_])(?:\\u[0-9a-fA-F]{4}|[^\W_]|["
    + "".join(sorted(_COMBINING_SIGNS))
    + "])*)"
)
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
# Signs that end a sentence: also those of Chinese and Japanese, Arabic and Urdu, Hindi, Armenian,
# Amharic, Burmese, Khmer and Tibetan.
_SENTENCE = re.compile("[^.!?…\n。．｡！？؟۔।॥։።፧၊။។៕།༎]+")
_SPACE = re.compile(r"\s|\\[nrtbf]")
# A character, or an escape that stands for one.
_SIGN = re.compile(r"&(?:#\w+|\w+);|\\[nrtbf]|\S")
_ONE_QUOTATION_MARK = str.maketrans(dict.fromkeys('“”„‟«»‹›‘’‚‛"', "'"))
# Chinese characters, which Japanese uses too.
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Logs and messages end a text that was cut off with an ellipsis.
IS_CUT = re.compile(r"…\W*$")

# A run of case-folded words, and places in a text as (start, end).
Gram = tuple[str, ...]
Places = list[tuple[int, int]]


class Words:
    """The words of a text, prepared for comparison."""

    # `places` holds the start and end of each word in the text, `folded` the case-folded words.
    # `line` joins the folded words with single spaces, so that `str.find` finds consecutive words.
    # In a script without spaces, each letter is a word.

    def __init__(self, text: str) -> None:
        self.text = text
        found = [part for word in _WORD.finditer(text) if word[1] for part in _split_letters(word)]
        self.places: Places = [(start, end) for start, end, _ in found]
        self.folded = [word.casefold() for _, _, word in found]
        self.line = f" {' '.join(self.folded)} "

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def _sizes(self) -> list[int]:
        # The sum of the sizes before each word.
        return list(accumulate(map(_word_size, self.folded), initial=0))

    def size(self, first: int, last: int) -> int:
        """Return the size of the words `first` to `last` − 1, in twelfths of a quotation."""
        return self._sizes[last] - self._sizes[first]

    def find_quoted_sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges (first, last excluded) of words that may be quotations.

        At each word, these are the ranges from a short sentence to a quotation.
        """
        for first in range(len(self)):
            for last in range(first + 1, len(self) + 1):
                size = self.size(first, last)
                if size >= MIN_SENTENCE_SIZE:
                    yield first, last
                if size >= QUOTED_SIZE:
                    break

    @cached_property
    def _word_offsets(self) -> list[int]:
        # The offset of the space before each word.
        return list(accumulate((len(word) + 1 for word in self.folded), initial=0))

    def find_word_sequence(self, wanted: str) -> Iterator[int]:
        """Yield the number of the word at which each occurrence of `wanted` begins.

        `wanted` holds lower-case words with single spaces.
        """
        offset = self.line.find(wanted)
        while offset >= 0:
            yield bisect_left(self._word_offsets, offset)
            offset = self.line.find(wanted, offset + 1)

    @cached_property
    def cut_ends(self) -> list[int]:
        """The number of words before each place at which this text may have been cut off."""
        ends = {bisect_left(self.places, (cut.start(),)) for cut in re.finditer("…", self.text)}
        if len(self.text) == CUT_VALUE_CHARACTERS:
            ends.add(len(self))
        return sorted(ends)

    def find_beginnings(
        self, line: str, ends: Sequence[int], min_characters: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the ranges (first, last excluded) of words with the beginning of `line`.

        - `line`: the words of a recorded text that may have been cut off.
        - `ends`: the numbers of words at which a range may end.
        - `min_characters`: the number of characters that are equal at least.
        """
        for first in self.find_word_sequence(line[: min_characters + 1]):
            start, last = self._word_offsets[first], 0
            # Only a few places are near enough. Slices up to a far one would be slow in long files.
            for position in range(bisect_right(ends, first), len(ends)):
                end = ends[position]
                length = self._word_offsets[end] - start
                if length > len(line) or not line.startswith(self.line[start : start + length]):
                    break
                last = end
            if last:
                yield first, last

    def character_span(self, first: int, last: int) -> tuple[int, int]:
        """Return the start and the end of the words `first` to `last` − 1, as character offsets."""
        # `last` itself is excluded.
        return self.places[first][0], self.places[last - 1][1]

    def original_text(self, first: int, last: int) -> str:
        """Return the words `first` to `last` − 1 without escapes, and with one quotation mark."""
        start, end = self.character_span(first, last)
        part = self.text[start:end]
        # Most parts are one plain word and need none of this.
        if not part.isascii() or not part.isalnum():
            part = _without_escapes(_UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), part))
            # JSON escapes quotation marks, CSV doubles them, and prompts change them in quotations.
            part = part.replace("\\", "").replace('""', '"').translate(_ONE_QUOTATION_MARK)
            part = "".join(
                character for character in part if character.isprintable() or character.isspace()
            )
        return collapse_spaces(part)


def _split_letters(word: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    # Yields (start, end, letters). Escaped characters, such as a dash, separate words.
    if "\\" not in word[1] and not has_unspaced_script(word[1]):
        yield word.start(), word.end(), word[1]
        return
    start, letters = word.start(), ""
    for found in re.finditer(r"\\u[0-9a-fA-F]{4}|.", word[1]):
        letter = _UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), found[0])
        place = word.start() + found.start(), word.start() + found.end()
        is_unspaced = has_unspaced_script(letter)
        is_part = letter.isalnum() or (letters and letter in _COMBINING_SIGNS)
        if is_part and not is_unspaced:
            letters += letter
            continue
        if letters:
            yield start, place[0], letters
        if is_unspaced:
            yield *place, letter
        start, letters = place[1], ""
    if letters:
        yield start, word.end(), letters


def _word_size(word: str) -> int:
    if _IDEOGRAPH.match(word):
        return IDEOGRAPH_SIZE
    return UNSPACED_LETTER_SIZE if not word.isascii() and has_unspaced_script(word) else WORD_SIZE


def _spell_sign(sign: str) -> tuple[str, ...]:
    # As in JSON, as in Markdown, and as it is.
    return json.dumps(sign)[1:-1], f"\\{sign}", sign


def _find_prefix_end(text: str, start: int, wanted: str) -> int:
    # The end of the longest beginning of `wanted` that `text` has at `start`. Spaces are ignored.
    # A backslash may be an escape or a character of `wanted`, so there may be several ends. An
    # escape counts as a whole: the start of `&quot;` may be an "&" and a word of another speaker.
    ends = {start}
    for sign in _SIGN.findall(wanted):
        firsts = {_skip_spaces(text, end) for end in ends}
        forms = _spell_sign(sign)
        found = {
            first + len(form) for first in firsts for form in forms if text.startswith(form, first)
        }
        if not found:
            break
        ends = found
    return max(ends)


def _find_suffix_start(text: str, end: int, wanted: str) -> int:
    # The start of the longest end of `wanted` that `text` has before `end`.
    starts = {end}
    for sign in reversed(_SIGN.findall(wanted)):
        lasts = {_skip_spaces_back(text, start) for start in starts}
        forms = _spell_sign(sign)
        found = {
            last - len(form) for last in lasts for form in forms if text.endswith(form, 0, last)
        }
        if not found:
            break
        starts = found
    return min(starts)


def _skip_spaces(text: str, start: int) -> int:
    # A space may be escaped as in JSON.
    while _SPACE.fullmatch(text, start, start + 1) or _SPACE.fullmatch(text, start, start + 2):
        start += 1 if text[start].isspace() else 2
    return start


def _skip_spaces_back(text: str, end: int) -> int:
    while end and (
        _SPACE.fullmatch(text, end - 1, end) or _SPACE.fullmatch(text, max(0, end - 2), end)
    ):
        end -= 1 if text[end - 1].isspace() else 2
    return end


def _without_escapes(text: str) -> str:
    return html.unescape(re.sub(r"\\[nrtbf]", "\n", text))


def find_grams(text: str) -> set[Gram]:
    """Return all sequences of consecutive words that may be a quotation of a text."""
    words = Words(text)
    return {tuple(words.folded[first:last]) for first, last in words.find_quoted_sizes()}


def find_sequences(words: Words, sizes: Iterable[int]) -> set[Gram]:
    """Return all sequences of consecutive words, with the numbers of words in `sizes`."""
    folded = words.folded
    return {tuple(folded[i : i + n]) for n in sizes for i in range(len(folded) - n + 1)}


def find_quotable(text: str) -> set[Gram]:
    """Return the word sequences of a text that count as quotations when a second text has them."""
    # These are all sequences of `QUOTED_SIZE`, and whole sentences of two or three words.
    words = Words(text)
    sentences = map(Words, _SENTENCE.findall(text))
    return {
        tuple(words.folded[first:last])
        for first, last in words.find_quoted_sizes()
        if words.size(first, last) >= QUOTED_SIZE
    } | {
        tuple(sentence.folded)
        for sentence in sentences
        if MIN_SENTENCE_SIZE <= sentence.size(0, len(sentence)) < QUOTED_SIZE
    }


def join_lines(texts: Iterable[str]) -> str:
    """Return the words of texts, in which a sequence of words is found only within one text."""
    return "\n".join(Words(text).line for text in texts)


class Quotable(NamedTuple):
    """What counts as a quotation of the human who withdraws in the reply of another speaker."""

    # Sequences of `QUOTED_SIZE` anywhere, and shorter ones as a whole sentence.
    grams: set[Gram]
    # Options that the human proposed, as in `Redaction.texts`. They count anywhere.
    proposals: set[str]


def _find_quoted_grams(words: Words, grams: Collection[Gram]) -> Places:
    # Places are pairs of word numbers (first, last excluded).
    return [
        (first, last)
        for first, last in (words.find_quoted_sizes() if grams else ())
        if tuple(words.folded[first:last]) in grams
        and (
            words.size(first, last) >= QUOTED_SIZE
            or _is_sentence(words.text, *words.character_span(first, last))
        )
    ]


def merge_overlapping(places: Iterable[tuple[int, int]]) -> Places:
    """Return the places in order, with overlapping places merged into one."""
    merged: Places = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _is_sentence(text: str, start: int, end: int) -> bool:
    return _begins_sentence(text, start) and _ends_sentence(text, end)


def _begins_sentence(text: str, start: int) -> bool:
    # 20 characters are enough for the escapes of our files. Stars and underscores are Markdown.
    before = _without_escapes(text[max(0, start - 20) : start]).rstrip(" *_")
    return not (before[-1:].isalnum() or before[-1:] in _COMBINING_SIGNS)


def _ends_sentence(text: str, end: int) -> bool:
    after = _without_escapes(text[end : end + 20]).lstrip(" *_")
    return not after[:1].isalnum()


@dataclass(slots=True)
class RecordedText:
    """A text that the run has recorded as said or written by the human who withdraws."""

    words: Words
    # The parts that the human wrote, as word numbers (first, last excluded).
    own: Places
    # True if the text was an option of a later question.
    offered: bool = False
    # The characters before and after the words, such as quotation marks and tags, in each spelling
    # that was recorded.
    edges: set[tuple[str, str]] = field(default_factory=set)
    # The text from the first to the last word, in each spelling that was recorded.
    spellings: set[str] = field(default_factory=set)

    @property
    def is_long(self) -> bool:
        return self.words.size(0, len(self.words)) >= MIN_LONG_TEXT_SIZE

    @property
    def is_whole(self) -> bool:
        return self.own == [(0, len(self.words))]

    def find_edges(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Return the place of this text in a second text, with the characters around its words.

        - `start`, `end`: the place of its words in the second text.
        """
        # Parts of the text that others wrote have edges of others.
        edges = self.edges if self.is_whole else {("", "")}
        return (
            min(_find_suffix_start(text, start, before) for before, _ in edges),
            max(_find_prefix_end(text, end, after) for _, after in edges),
        )

    def is_at(
        self,
        words: Words,
        first: int,
        *,
        ignore_case: bool,
        beside: Collection[tuple[int, int]] = (),
    ) -> bool:
        """Return whether this text occurs in a second text at the word number `first`.

        - `words`: the words of the second text.
        - `beside`: places in the second text that belong to the human who withdraws.
        """
        # The caller has compared the words, so only the characters between them are compared here.
        # A short text counts only as an option, as a whole sentence, or next to one of the places
        # `beside`.
        last = first + len(self.words)
        own, other = self.spellings, words.original_text(first, last)
        # For a short text the case counts: "Peter" is a name, "peter" may be a verb.
        if self.is_long or self.offered or ignore_case:
            own, other = {*map(str.casefold, own)}, other.casefold()
        if other not in own or self.is_long or self.offered:
            return other in own
        start, end = words.character_span(first, last)
        begins = any(first == neighbour[1] for neighbour in beside) or _begins_sentence(
            words.text, start
        )
        return begins and (
            any(last == neighbour[0] for neighbour in beside) or _ends_sentence(words.text, end)
        )


@dataclass
class Redaction:
    """Finds the texts of a human who withdraws, and replaces each by a mark.

    An example of a mark is `[withdrawn 3f0c…]`.
    """

    # Names of the human in rows and files.
    ids: frozenset[str] = frozenset()
    # Ids of all other participants.
    others: frozenset[str] = frozenset()
    # Scopes of the human's sessions, if the same id takes part in several sessions.
    scopes: frozenset[str] = frozenset()
    # The cells that tell the human's session from others in tables: column → cell.
    session_cells: Mapping[str, str] = field(default_factory=dict)
    # Recorded texts and their lines, by their words.
    texts: dict[str, RecordedText] = field(default_factory=dict)
    # Texts that another speaker gave as well. Such texts are removed only from rows of the human.
    shared: set[str] = field(default_factory=set)
    # Texts that are never recorded: names of the protocol, options and texts of the design.
    impersonal: set[str] = field(default_factory=set)
    # Random bytes in the hash that replaces a removed text. Equal texts get equal hashes. The bytes
    # are not stored, because with them a hash could confirm a guess of the removed text.
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def mark(self, text: str) -> str:
        """Return the mark that replaces a text, for example `[withdrawn 3f0c…]`.

        A text that is empty or already a mark is returned unchanged.
        """
        if not text or WITHDRAWAL_MARK.fullmatch(text):
            return text
        # From the words alone, so that spellings of the same text in two files get the same mark.
        words = Words(text).line.strip() or text.strip()
        return f"[withdrawn {digest(self.salt, words, size=6).hex()}]"

    def replacements_for(self, text: str, places: Iterable[tuple[int, int]]) -> list[Replacement]:
        """Return replacements that put a mark at the given places of a text."""
        return [Replacement(start, end, self.mark(text[start:end])) for start, end in places]

    def find_quotations(self, text: str, quotable: Quotable) -> Places:
        """Return the places in a text that quote the human who withdraws.

        Each place is a pair (start, end) of character offsets.
        """
        # Places are in order and do not overlap.
        words = Words(text)
        return [
            words.character_span(*word_range)
            for word_range in self._find_quoted_ranges(words, quotable)
        ]

    def _find_quoted_ranges(self, words: Words, quotable: Quotable) -> Places:
        # Places are pairs of word numbers (first, last excluded) that do not overlap.
        found = _find_quoted_grams(words, quotable.grams)
        for line in quotable.proposals:
            proposal = self.texts[line]
            found += (
                (first, first + len(proposal.words))
                for first in words.find_word_sequence(line)
                if proposal.is_at(words, first, ignore_case=True)
            )
        return merge_overlapping(found)

    def without_quotations(self, text: str, quotable: Quotable) -> str:
        """Return a text with a mark in place of each quotation of the human who withdraws."""
        parts = self.replacements_for(text, self.find_quotations(text, quotable))
        return str(replace_parts(SourcedText(text), parts))

    def exempt_texts(self, texts: Iterable[str]) -> None:
        """Record texts that are not personal, for example options."""
        # A text that was already recorded as the human's stays personal. Its field `offered`
        # becomes true, because the text was offered as an option later.
        for words in map(Words, texts):
            if words.line in self.texts:
                self.texts[words.line].offered = True
            else:
                self.impersonal.add(words.line)

    def is_impersonal(self, text: str) -> bool:
        """Return whether a text comes from the study and not from the human who withdraws."""
        return Words(text).line in self.impersonal

    def learn_text(self, text: str, quotable: Quotable | None = None) -> None:
        """Record a text of the human who withdraws, as a whole and line by line.

        `quotable`: if given, only the quotations in the text are the human's.
        """
        # Texts without a letter are not personal.
        for part in dict.fromkeys(part.strip() for part in (text, *text.splitlines())):
            # Escaping for HTML can change the words: `&T;` in "AT&T;" reads as an escape, but not
            # in "AT&amp;T;". So both forms are recorded.
            for words in map(Words, (part, html.escape(part))):
                is_personal = any(character.isalpha() for character in words.line)
                if (
                    not is_personal
                    or words.line in self.impersonal
                    or WITHDRAWAL_MARK.fullmatch(part)
                ):
                    continue
                own = [(0, len(words))]
                if quotable is not None:
                    own = self._find_quoted_ranges(words, quotable)
                if own:
                    recorded = self.texts.setdefault(words.line, RecordedText(words, own))
                    start, end = words.character_span(0, len(words))
                    recorded.edges.add((words.text[:start], words.text[end:]))
                    recorded.spellings.add(words.original_text(0, len(words)))
                    self._forget_order()

    def discard_shared_texts(self, others: Collection[str]) -> None:
        """Exclude texts that other speakers gave as well, since a shared text identifies no one.

        - `others`: the texts of the other speakers.

        Call this after all texts have been recorded.
        """
        # For example, a bare "No." identifies no one.
        other_words = join_lines(others)
        self.shared = {line for line in self.texts if line in other_words}
        self._forget_order()

    @cached_property
    def _longest_first(self) -> list[RecordedText]:
        known = (item for item in self.texts.items() if item[0] not in self.shared)
        # A longer text is replaced as a whole before a shorter one could take a part of it. Ties
        # are sorted by text, so that results do not depend on the order of recording.
        return [text for _, text in sorted(known, key=lambda item: (-len(item[0]), item[0]))]

    @cached_property
    def _ranks(self) -> dict[Gram, list[int]]:
        # Places in `_longest_first` by the first words of the text. Few of many recorded texts have
        # their first words in a second text, so that the others need not be searched for.
        ranks = defaultdict[Gram, list[int]](list)
        for rank, recorded in enumerate(self._longest_first):
            ranks[tuple(recorded.words.folded[:LOOKED_UP_WORDS])].append(rank)
        return ranks

    def _find_possible(self, words: Words) -> list[RecordedText]:
        # The recorded texts with first words that occur in a second text, the longest text first.
        beginnings = find_sequences(words, range(1, LOOKED_UP_WORDS + 1)) & self._ranks.keys()
        ranks = sorted(rank for beginning in beginnings for rank in self._ranks[beginning])
        return [self._longest_first[rank] for rank in ranks]

    def _forget_order(self) -> None:
        for name in ("_longest_first", "_ranks"):
            self.__dict__.pop(name, None)

    def find_recorded(
        self, text: str, *, altered: bool = False, own: bool = False
    ) -> list[Replacement]:
        """Return replacements for all places in `text` that repeat the withdrawing human's texts.

        - `altered`: True to ignore case in short texts too. Case is always ignored in long texts.
        - `own`: True if the text is from a table row of the human.
        """
        # White space and escapes are ignored, and upper and lower case in long texts. If `text` was
        # cut off, its last words are compared with the beginnings of the recorded texts.
        words = Words(text)
        # Places that were found, as word numbers.
        found: dict[tuple[int, int], RecordedText] = {}
        possible = self._find_possible(words)
        count = -1
        # Repeat until nothing new is found: a short text may be next to one that was just found.
        while len(found) > count:
            count = len(found)
            for recorded in possible:
                for first in words.find_word_sequence(recorded.words.line):
                    last = first + len(recorded.words)
                    is_free = all(last <= start or end <= first for start, end in found)
                    if is_free and recorded.is_at(
                        words, first, ignore_case=altered, beside=[*found]
                    ):
                        found[first, last] = recorded
        for (first, last), recorded in self._find_cuts(words, possible, own=own):
            # The cut text replaces all shorter matches within it.
            if not any(start <= first < end or start < last < end for start, end in found):
                found = {
                    word_range: match
                    for word_range, match in found.items()
                    if word_range[1] <= first or last <= word_range[0]
                }
                found[first, last] = recorded
        spans: Places = []
        for (first, last), recorded in sorted(found.items()):
            for own_first, own_last in recorded.own:
                if first + own_first < last:
                    place = words.character_span(first + own_first, min(first + own_last, last))
                    start, end = recorded.find_edges(text, *place)
                    # Two neighbouring texts may end and begin with the same characters.
                    spans.append((max(start, spans[-1][1]) if spans else start, end))
        return self.replacements_for(text, spans)

    def _find_cuts(
        self, words: Words, possible: Iterable[RecordedText], *, own: bool
    ) -> Iterator[tuple[tuple[int, int], RecordedText]]:
        # Yields the words of `words` that are a beginning of a recorded text that was cut off.
        # `possible` are the recorded texts with first words that occur in `words`.
        if words and IS_CUT.search(words.text):
            min_characters = 1 if own else MIN_BEGINNING_CHARACTERS
            for recorded in self._longest_first:
                if recorded.is_long or own:
                    line = recorded.words.line
                    for word_range in words.find_beginnings(line, [len(words)], min_characters):
                        yield word_range, recorded
        # Speakers write an ellipsis too, and a value may have the length of a cut one by chance. So
        # a part as long as a quotation must be equal.
        for recorded in possible if words.cut_ends else ():
            line = recorded.words.line
            for word_range in words.find_beginnings(line, words.cut_ends, MIN_BEGINNING_CHARACTERS):
                if words.size(*word_range) >= QUOTED_SIZE:
                    yield word_range, recorded

    def find_whole(self, text: str, *, own: bool = False) -> str | None:
        """Return the mark for a text that equals a recorded text of the human who withdraws.

        Returns None for all other texts. `own`: the text is from a table row of the human.
        """
        # A text that was also given by another speaker counts only in a row of the human.
        words = Words(text)
        recorded = self.texts.get(words.line)
        if recorded is None or (words.line in self.shared and not own):
            return None
        if not recorded.is_at(words, 0, ignore_case=own):
            return None
        if recorded.is_whole:
            return self.mark(text)
        spans = [words.character_span(*word_range) for word_range in recorded.own]
        return str(replace_parts(SourcedText(text), self.replacements_for(text, spans)))

    def redact_text(self, text: str, *, own: bool = False) -> str:
        """Return a text, JSON text or file content without the texts of the human who withdraws.

        `own`: the text is from a table row of the human.
        """
        whole = self.find_whole(text, own=own)
        if whole is not None:
            return whole
        if text[:1] in ("[", "{"):
            redact_parts = partial(self._redact_parts, own=own)
            return change_json(text, lambda value: self.redact_json(value, own=own), redact_parts)
        return self._redact_parts(text, own=own)

    def _redact_parts(self, text: str, *, own: bool) -> str:
        return str(replace_parts(SourcedText(text), self.find_recorded(text, own=own)))

    def redact_json(
        self, value: JsonValue, around: frozenset[str] = frozenset(), *, own: bool = False
    ) -> JsonValue:
        """Return JSON data without the withdrawing human's texts and the embeddings of the texts.

        - `around`: the keys and names in the objects that contain the data.
        - `own`: all of the data belongs to the human.
        """
        # `around` tells whether the data belongs to the human.
        if isinstance(value, str):
            return self.redact_text(value, own=own)
        if isinstance(value, list):
            if own and _is_vector(value):
                return None
            return [self.redact_json(entry, around, own=own) for entry in value]
        if not isinstance(value, dict):
            return value
        named = [item for item in value.values() if isinstance(item, str)]
        # Within data of the human, a number is an answer or a task, also if it equals an id.
        others = {name for name in named if not name.isdecimal()} & self.others
        own = self.is_of_person(named, around) or (own and not others)
        changed = {}
        for key, item in value.items():
            names = around.union(named, [key])
            changed[self.redact_text(key)] = self.redact_json(
                item, names, own=own or key in self.ids
            )
        # An embedding beside a changed text is the embedding of that text.
        if any(
            changed.get(name, original) != original
            for name, original in value.items()
            if isinstance(original, str)
        ):
            return {key: None if _is_vector(value) else value for key, value in changed.items()}
        return changed

    def is_of_person(self, cells: Iterable[object], around: Iterable[object]) -> bool:
        """Return whether a row names this human and no other participant.

        - `cells`: the values in the row or JSON object.
        - `around`: names from outside the row, such as the session to which the table belongs.
        """
        parts = _name_parts(cells)
        names = parts | _name_parts(around)
        # Tables may name a session in other words than scopes do.
        is_in_session = (
            not self.scopes
            or not self.scopes.isdisjoint(names)
            or (self.session_cells and names.issuperset(self.session_cells.values()))
        )
        is_named = not self.ids.isdisjoint(parts) and self.others.isdisjoint(parts)
        return bool(is_in_session and is_named)

    def is_row_of_person(self, row: Iterable[tuple[str, object]]) -> bool:
        """Return whether the first participant whom a table row names is this human.

        - `row`: the columns with their cells, in order.
        """
        # Later cells may name other participants, such as the target of a reaction. An answer or
        # the number of a session may equal an id.
        cells = [*row]
        for column, cell in cells:
            is_named = not self._participants.isdisjoint(_name_parts([cell]))
            if is_named and column not in self.session_cells:
                return self.is_of_person([cell], self._find_session_names(cells))
        return False

    @cached_property
    def _participants(self) -> frozenset[str]:
        return self.ids | self.others

    def _find_session_names(self, cells: Collection[tuple[str, object]]) -> list[object]:
        # An answer may equal the name of the session. It names none if the row has a column for it.
        known = self.session_cells
        named = [known[column] for column, _ in cells if column in known]
        return [cell for column, cell in cells if column in known or cell not in named]


def _name_parts(names: Iterable[object]) -> set[str]:
    # Names, and the parts of names that are paths.

    # A longer string is a text and names nothing.
    short_names = [name for name in names if isinstance(name, str) and len(name) <= 200]
    return {part for name in short_names for part in (name, *name.split("/"))}


def _is_vector(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= MIN_VECTOR_LENGTH
        and all(isinstance(entry, (int, float)) for entry in value)
    )
