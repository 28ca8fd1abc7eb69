"""Texts that carry a source, which says where the text comes from.

docs/provenance.md explains sources to researchers. A text with a source is a `Quoted`, which is a
string. A source has a kind and an id:

    kind            id
    utterance       `utterance_id` in the table `utterances`
    answer          `address` in the table `answers`
    reply           address of an entry of the journal
    any other       `table.column/key…`, one cell of a table (`cell_id`), or
                    `study.key.path`, a key of the study file
"""
# Templates, joins and histories keep the sources of their inputs. A request therefore knows the
# source of each of its characters. No code searches for known texts inside other texts. Ids that
# begin with `protocol.` belong to numbers that follow from the position in the protocol, such as
# the round.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel

from folkmoot.hints import has_unspaced_script, shorten

Kind = Literal[
    # An utterance of a speaker, public or private.
    "utterance",
    # A closed answer of a speaker: a choice, a number, a field of a form.
    "answer",
    # The description of a participant.
    "persona",
    # Reading material from the study file: topic, concept, rules, treatment.
    "material",
    # One of the alternatives of a choice.
    "option",
    # An item that a speaker wrote and participants decide on, such as an item of a ballot.
    "proposal",
    # A speaker's summary of the utterances of several others.
    "summary",
    # A number or a name that the protocol computed or took from a table.
    "value",
    # The speaker's last reply, repeated in a re-ask because it could not be parsed.
    "reply",
    # Interpolated text with an unknown source.
    "unattributed",
]
KINDS: tuple[str, ...] = get_args(Kind)
UNATTRIBUTED = "unattributed"
# The first part of ids that name a key of the study file.
STUDY = "study"
# The first part of ids of numbers that follow from the position in the protocol.
PROTOCOL = "protocol"

T = TypeVar("T")
# Creates a named tuple in a third of the time of its constructor. A run creates millions of spans.
_new = tuple.__new__


class Source(NamedTuple):
    """Where a text comes from."""

    kind: str
    id: str = ""
    # The id of the speaker of an utterance or answer, or of the participant whom a persona
    # describes. Empty for other texts.
    speaker: str = ""
    # True if a filter such as `upper` changed the text, so that it differs from the recorded text.
    altered: bool = False

    @property
    def address(self) -> str:
        """The address of the reply that contains the text. Empty if no reply contains it."""
        reply = self.id.rpartition("/")[2].partition("#")[0]
        if self.kind not in ("utterance", "answer", "reply") or not reply.startswith("ask"):
            return ""
        return self.id[: len(self.id) - len(self.id.rpartition("/")[2]) + len(reply)]


UNKNOWN = Source(UNATTRIBUTED)


class Span(NamedTuple):
    """A part of a text, with a source. The part begins at `start` and ends just before `end`."""

    # In a request, `message` is the index of the message in which the positions lie. Spans may be
    # nested. For example, a summary can contain a name.

    start: int
    end: int
    source: Source
    message: int = 0

    def shift_span(self, by: int, message: int = 0) -> Span:
        """Return the span moved by `by` characters, in the message with this index."""
        return _new(Span, (self.start + by, self.end + by, self.source, message))


class SourcedText(str):
    """A string that records where its parts come from."""

    # Characters outside all spans are instructions of the study.

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, text: str = "", spans: Iterable[Span] = ()) -> Self:
        self = super().__new__(cls, text)
        self.spans = tuple(spans)
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.spans

    def __str__(self) -> str:
        # `join` creates a plain `str` without sources.
        return "".join((self,))

    def __add__(self, other: str) -> SourcedText:
        return concatenate_texts((self, other))

    def __radd__(self, other: str) -> SourcedText:
        return concatenate_texts((other, self))


class Quoted(SourcedText):
    """A string together with the source of its text. Slicing and f-strings lose the source."""

    __slots__ = ("source",)
    source: Source

    def __new__(cls, text: str, source: Source) -> Self:
        inner = [span for span in spans_of(text) if span.source not in (UNKNOWN, source)]
        self = super().__new__(cls, text, (Span(0, len(text), source), *inner) if text else ())
        self.source = source
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        inner = self.spans[1:]
        return SourcedText(str(self), inner) if inner else str(self), self.source


class QuotedInt(int):
    """A whole number that carries its source."""

    source: Source

    def __new__(cls, number: int, source: Source) -> Self:
        self = super().__new__(cls, number)
        self.source = source
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return int(self), self.source


class QuotedFloat(float):
    """A number that carries its source."""

    source: Source

    def __new__(cls, number: float, source: Source) -> Self:
        self = super().__new__(cls, number)
        self.source = source
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.source


def cell_id(table_column: str, *key: object) -> str:
    """Return the id of a table cell, as in `cell_id("items.text", discussion, item)`."""
    # `key` holds the values of the key columns that the class of the row declares (`class Item(Row,
    # table="items", key=(…))`).
    return "/".join((table_column, *(str(part) for part in key)))


def quote_value(text: T, kind: Kind, source_id: str, speaker: str = "") -> T:
    """Return a text or number that carries the source given by `kind` and `source_id`."""
    # None, booleans and empty texts are returned without a source.
    source = Source(kind, source_id, speaker)
    quoted: Any = text
    if isinstance(text, str):
        quoted = Quoted(text, source)
    # In Python, True is an int. `bool` cannot be subclassed, so it carries no source.
    elif isinstance(text, int) and not isinstance(text, bool):
        quoted = QuotedInt(text, source)
    elif isinstance(text, float):
        quoted = QuotedFloat(text, source)
    return quoted  # type: ignore[no-any-return]


def quote_all(value: Any, kind: Kind, source_id: str, speaker: str = "") -> Any:
    """Return a copy of `value` in which each text and number carries a source."""
    # The id of a source is a path, such as `study.topic.name`. The entries of a sequence get the id
    # of the sequence. A pydantic model becomes a namespace of its fields, for templates.
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return SimpleNamespace(
            **{
                key: quote_all(field, kind, f"{source_id}.{key}", speaker)
                for key, field in fields.items()
            }
        )
    if isinstance(value, Mapping):
        return {
            key: quote_all(entry, kind, f"{source_id}.{key}", speaker)
            for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [quote_all(entry, kind, source_id, speaker) for entry in value]
    return quote_value(value, kind, source_id, speaker)


def enclose_text(text: str, source: Source) -> SourcedText:
    """Return the text with `source` added as a source of the whole text."""
    outer = (Span(0, len(text), source),) if text else ()
    return SourcedText(text, (*outer, *spans_of(text)))


def source_of(value: object) -> Source | None:
    """Return the source of a value. Returns None unless the value has exactly one source."""
    return value.source if isinstance(value, (Quoted, QuotedInt, QuotedFloat)) else None


def spans_of(text: object) -> tuple[Span, ...]:
    """Return the spans of a text, or an empty tuple for a plain string."""
    return text.spans if isinstance(text, SourcedText) else ()


def with_sources(value: object) -> SourcedText:
    """Return a value as text that keeps the sources of the value."""
    # A value without a source becomes a text with an unknown source.
    if isinstance(value, SourcedText):
        return value
    text = str(value)
    source = source_of(value)
    if not text.strip():
        return SourcedText(text)
    return SourcedText(text, (Span(0, len(text), source or UNKNOWN),))


def concatenate_texts(parts: Iterable[object], *, plain: Source | None = UNKNOWN) -> SourcedText:
    """Join parts into one text. Each part keeps its sources.

    - `plain`: the source for parts without a source.
    """
    # If `plain` is None, a part without sources counts as an instruction.
    texts: list[str] = []
    spans: list[Span] = []
    length = 0
    for part in parts:
        text = str(part)
        if isinstance(part, SourcedText):
            spans += [span.shift_span(length) for span in part.spans]
        elif (source := source_of(part) or plain) is not None and text.strip():
            spans.append(Span(length, length + len(text), source))
        texts.append(text)
        length += len(text)
    return SourcedText("".join(texts), spans)


def join_texts(
    separator: str, parts: Iterable[object], *, plain: Source | None = UNKNOWN
) -> SourcedText:
    """Join parts like `separator.join`. Each part keeps its sources.

    - `plain`: the source for parts without a source, see `concatenate_texts`.
    """
    sourced_separator = SourcedText(str(separator), spans_of(separator))
    return concatenate_texts(_interleave_separator(sourced_separator, parts), plain=plain)


def enumerate_texts(parts: Sequence[object]) -> SourcedText:
    """Join parts as "a, b and c". Each part keeps its sources."""
    if len(parts) < 2:
        return concatenate_texts(parts)
    return concatenate_texts((join_texts(", ", parts[:-1]), SourcedText(" and "), parts[-1]))


def _interleave_separator(separator: SourcedText, parts: Iterable[object]) -> Iterator[object]:
    for number, part in enumerate(parts):
        if number:
            yield separator
        yield part


def alter_text(text: SourcedText, changed: str) -> SourcedText:
    """Return `changed` with the sources of `text`. Sources of changed parts are marked as altered.

    If a text of several sources was stripped or cut, the rest keeps its sources. After any other
    change of its length, its source is unknown.
    """
    if changed == text:
        return text
    outer = text.spans[0] if text.spans else None
    if outer is not None and outer.start == 0 and outer.end == len(text):
        inner = SourcedText(changed, _follow_change(text, changed, text.spans[1:]))
        return Quoted(inner, outer.source._replace(altered=True))
    return SourcedText(changed, _follow_change(text, changed, text.spans))


def _follow_change(text: str, changed: str, spans: Sequence[Span]) -> Iterator[Span]:
    # Filters such as `upper` keep the length, so each span keeps its position.
    if len(changed) == len(text):
        yield from (_mark_altered(span, text, changed) for span in spans)
        return
    # A text may be stripped at its start, or cut at its end. An equal end proves nothing, because
    # many texts end with the same characters.
    is_stripped = changed in (text.strip(), text.lstrip())
    skipped = len(text) - len(text.lstrip()) if is_stripped else 0
    pairs = enumerate(zip(text[skipped:], changed, strict=False))
    kept = next(
        (i for i, (old, new) in pairs if old != new), min(len(text) - skipped, len(changed))
    )
    if any(map(str.isalnum, changed[kept:])):
        if spans:
            yield Span(0, len(changed), UNKNOWN)
        return
    for span in spans:
        start, end = max(0, span.start - skipped), min(kept, span.end - skipped)
        if start < end:
            is_cut = end - start < span.end - span.start
            yield Span(start, end, span.source._replace(altered=span.source.altered or is_cut))


def derive_number(result: T, operands: Iterable[object]) -> T:
    """Return `result` with the source of the first operand that has a source."""
    if isinstance(result, bool) or not isinstance(result, (int, float)) or source_of(result):
        return result
    sourced_operand = next((operand for operand in operands if source_of(operand)), None)
    source = source_of(sourced_operand)
    if source is None:
        return result
    altered = source.altered or str(result) != str(sourced_operand)
    number_type: Any = QuotedInt if isinstance(result, int) else QuotedFloat
    return number_type(result, source._replace(altered=altered))  # type: ignore[no-any-return]


def replace_words(text: str, old: str, new: str) -> str:
    """Replace words as `str.replace` does. The text keeps its sources."""
    # Parts that contained `old` are marked as altered.
    if not isinstance(text, SourcedText):
        return text.replace(old, new)
    match_starts = [match.start() for match in re.finditer(re.escape(old), text)]

    def shifted_offset(offset: int) -> int:
        shift = 0
        for start in match_starts:
            if start + len(old) <= offset:
                shift += len(new) - len(old)
            # An offset inside a replaced word moves to the end of the new word.
            elif start < offset:
                return start + shift + len(new)
        return offset + shift

    def move_span(span: Span) -> Span:
        touched = any(span.start < start + len(old) and start < span.end for start in match_starts)
        source = span.source._replace(altered=True) if touched else span.source
        return Span(shifted_offset(span.start), shifted_offset(span.end), source)

    spans = (span for span in map(move_span, text.spans) if span.start < span.end)
    return SourcedText(str(text).replace(old, new), spans)


def escape_text(text: SourcedText, change: Callable[[str], str]) -> SourcedText:
    """Escape the characters of a text with `change`. The text keeps its sources."""
    ends = sorted({0, len(text), *(end for span in text.spans for end in span[:2])})
    pieces = [change(str(text)[start:end]) for start, end in pairwise(ends)]
    new_offsets = dict(zip(ends, accumulate(map(len, pieces), initial=0), strict=True))

    def move_span(span: Span) -> Span:
        start, end = new_offsets[span.start], new_offsets[span.end]
        changed = str(text)[span.start : span.end] != "".join(pieces)[start:end]
        source = span.source._replace(altered=True) if changed else span.source
        return Span(start, end, source)

    return SourcedText("".join(pieces), map(move_span, text.spans))


def _mark_altered(span: Span, text: str, changed: str) -> Span:
    if text[span.start : span.end] == changed[span.start : span.end]:
        return span
    return span._replace(source=span.source._replace(altered=True))


class Replacement(NamedTuple):
    """A new text for a part of a text. The part begins at `start` and ends just before `end`."""

    start: int
    end: int
    text: str


def replace_parts(text: SourcedText, parts: Sequence[Replacement]) -> SourcedText:
    """Replace parts of a text. All other parts keep their sources."""
    # `parts` are in ascending order and do not overlap. A new text keeps its own sources. If it has
    # none and replaces exactly one span, it gets the source of that span.
    pieces: list[str] = []
    spans: list[Span] = []
    position = length = 0
    for part in parts:
        length += part.start - position
        spans += [span.shift_span(length) for span in spans_of(part.text)]
        pieces += (str(text)[position : part.start], str(part.text))
        length += len(part.text)
        position = part.end
    pieces.append(str(text)[position:])
    for span in text.spans:
        replaced_around = [
            part for part in parts if part.start <= span.start and span.end <= part.end
        ]
        if any(
            spans_of(part.text) or (part.start, part.end) != (span.start, span.end)
            for part in replaced_around
        ):
            continue
        start, end = shift_offset(span.start, parts), shift_offset(span.end, parts, after=True)
        if start < end:
            spans.append(span._replace(start=start, end=end))
    return SourcedText("".join(pieces), sorted(spans, key=lambda span: (span.start, -span.end)))


def shift_offset(offset: int, parts: Iterable[Replacement], *, after: bool = False) -> int:
    """Return the new position of `offset` after `parts` of the text were replaced.

    An offset inside a replaced part moves to the start of the part.

    - `after`: True to move such an offset to the end of the part.
    """
    # Parts after the offset do not move it.
    new_offset = offset
    for part in parts:
        if part.end <= offset and (part.start < offset or not after):
            new_offset += len(part.text) - (part.end - part.start)
        elif part.start < offset < part.end:
            new_offset += part.start - offset + (len(part.text) if after else 0)
    return new_offset


def find_exactly(text: str, shown_texts: Sequence[str], name: str) -> list[Span]:
    """Return the places in `text` where `shown_texts` occur, not inside a longer word.

    - `name`: what the messages call `text`.

    Raises ValueError if one of the texts does not occur, or if its place is not certain.
    """
    # A study author declares these texts (`ask(shows=…)`). Two speakers may say the same, so each
    # text needs a place of its own, in the order of the declaration. A place counts as taken if its
    # source is known. If all places of a text are taken, it is a part of a longer one.
    taken = [(start, end) for start, end, source, *_ in spans_of(text) if source != UNKNOWN]
    spans: list[Span] = []
    by_text: dict[str, list[str]] = {}
    for shown in shown_texts:
        by_text.setdefault(str(shown), []).append(shown)
    for wanted in sorted(by_text, key=len, reverse=True):
        declared = by_text[wanted]
        places = [(start, start + len(wanted)) for start in _places_of(wanted, text)]
        if not places:
            is_part = bool(wanted) and wanted in text
            problem = "occurs only inside a longer word of" if is_part else "does not occur in"
            raise ValueError(f"{shorten(wanted, 60)!r} {problem} {name}")
        free_places = [
            (start, end)
            for start, end in places
            if all(end <= taken_start or taken_end <= start for taken_start, taken_end in taken)
        ]
        if free_places and len(free_places) != len(declared):
            raise ValueError(
                f"{shorten(wanted, 60)!r} is named {len(declared)} × and occurs "
                f"{len(free_places)} × in {name}, so its place is not certain; join the parts of "
                'the prompt with +, as in "They say: " + said, which keeps the source, and do not '
                "name the text"
            )
        for (start, end), shown in zip(
            free_places or places[:1] * len(declared), declared, strict=True
        ):
            taken.append((start, end))
            shown_spans = spans_of(shown) or (Span(0, len(shown), Source("material")),)
            spans += [span.shift_span(start) for span in shown_spans]
    return spans


def _places_of(wanted: str, text: str) -> Iterator[int]:
    # "Ja" does not occur in "Jahr". Scripts without spaces have no such boundaries. Markdown puts
    # "_" around a text.
    if not wanted:
        return
    for match in re.finditer(re.escape(wanted), text):
        start, end = match.span()
        if not (_is_inside_word(text, start) or _is_inside_word(text, end)):
            yield start


def _is_inside_word(text: str, offset: int) -> bool:
    around = text[max(0, offset - 1) : offset + 1]
    return re.fullmatch(r"[^\W_]{2}", around) is not None and not has_unspaced_script(around)


def cover_rest(length: int, spans: Sequence[Span]) -> list[Span]:
    """Return spans of unknown source for the characters of a text that no span covers."""
    rest_spans: list[Span] = []
    position = 0
    for span in sorted(spans):
        if span.start > position:
            rest_spans.append(Span(position, span.start, UNKNOWN))
        position = max(position, span.end)
    if position < length:
        rest_spans.append(Span(position, length, UNKNOWN))
    return rest_spans
