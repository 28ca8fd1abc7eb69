"""Read the JSON in replies: a bare JSON value, a fenced code block, or JSON that needs a repair."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count

import json_repair

from folkmoot.conversation.reply_forms import is_bare_refusal, refuses_at_its_ends
from folkmoot.json_text import replace_lone_surrogates

# The repair library needs seconds for thousands of open braces and for very long texts. If a model
# repeats quotation marks without end, its time grows with their square.
MAX_UNCLOSED_BRACES, MAX_REPAIRABLE_CHARACTERS, MAX_REPAIRABLE_QUOTES = 50, 200_000, 8_000
# The parse step of a reply that is not valid JSON.
REPAIRED = "repaired"
# The possessive quantifiers keep the time linear in a text with many escapes.
_WHOLE_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_STRAIGHT_QUOTES = str.maketrans("“”„", '"""')
# The name of a language in the first line of a code block.
_LANGUAGE = re.compile(r"\A\s*+(?:json\w*|javascript|js|python)\b", re.IGNORECASE)
# A text, a comment, or a colon with the value after it if the value has no quotation marks.
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
    r"|(?<=[:,{\[\s])'(?:[^'\\\n]|\\.)*+'(?=\s*+[:,}\]])"
    r"|(?<=[\s,{\[])(?://|#)[^\n]*+"
    r"""|:\s*+(?P<bare>(?!//|\#)[^\s"'{}\[\],][^"{}\[\]\n]*+)?""",
    re.DOTALL,
)
# A value ends at a comma before the next key or the end, or at a comment. Other commas belong to
# the value, as in `5, 6`.
_END_OF_BARE_VALUE = re.compile(r""",\s*+(?:['}\]]|//|\#|\w+\s*+:|\Z)|\s(?://|\#)|/\*""")
_JSON_SCALAR = re.compile(
    r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?|true|false|null|none|nan|-?infinity", re.IGNORECASE
)
_LAST_NUMBER = re.compile(r"(?<=[:,\[])(\s*+)[-+]?\d[\d.eE+-]*\Z")
# The end of a reply after which no value is open. An apostrophe, a comma and a colon may belong to
# a text, unless a quotation mark, a bracket, a number or a key comes before them.
_END_OF_VALUE = re.compile(
    r"""(?:[{}\[\]"”`\n]|[:,\[]\s*+(?:true|false|null)|["'”}\]\d]\s*+,|["'”]\s*+:|[{,]\s*+\w++:)\s*+\Z"""
)
# The end of a text that the token limit cut. No option and no number ends in this character.
CUT_MARK = "…"
# Stands for the value of a key without a value. No reply contains it either.
_NO_VALUE = "\ufdd1"
# Makes the keys of an object different for the repair library, which keeps only the last of two
# equal keys. The code points are no characters, so no reply contains them.
_KEY_MARK = re.compile("\ufdd0\\d+\ufdd0")
_MARKABLE_KEY = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\\n]|\\.)*+(?:'|\\?\Z|(?=\n))|[\w.-]++)"""
    r"(?P<is_key>(?=\s*+:))?",
    re.DOTALL,
)


class UnreadableValue:
    """The value of a field to which a reply gives no value, or several values that differ.

    - `values`: the values in the reply.
    """

    # An own type, because each value of JSON is a readable value of some field: an empty object is
    # an empty mapping, and null may mean "cannot say". No dataclass, because pydantic would turn it
    # into a mapping.

    __slots__ = ("stated",)

    def __init__(self, values: Iterable[object] = ()) -> None:
        texts = (json.dumps(value, ensure_ascii=False, default=str) for value in values)
        self.stated = replace_lone_surrogates("; ".join(texts))

    @property
    def problem(self) -> str:
        """The problem in words for the speaker."""
        return "It is given twice, with different values" if self.stated else "It has no value"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadableValue) and self.stated == other.stated

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.stated


def as_plain_json(value: object) -> object:
    """Return a value of `json_candidates` in which each unreadable value is null."""
    if isinstance(value, dict):
        return {name: as_plain_json(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [as_plain_json(entry) for entry in value]
    return None if isinstance(value, UnreadableValue) else value


def close_cut_json(reply: str) -> str:
    """Mark or remove the last value of a JSON reply that was cut off.

    Otherwise the truncated value could pass as a complete one.
    """
    # For example, 1 may be the beginning of 15. A truncated text gets "…" at its end, in whatever
    # quotation marks. A truncated number is removed.

    # Without its complete strings, a reply that still holds a quotation mark ends inside a string.
    inside_text = '"' in _WHOLE_TEXT.sub("", reply)
    if inside_text and not reply.rstrip().endswith(('"', "}", "]", "`")):
        return reply.rstrip("\\") + CUT_MARK
    without_number = _LAST_NUMBER.sub(r"\1", reply)
    if not reply.strip() or _END_OF_VALUE.search(without_number):
        return without_number
    return without_number.rstrip("\\'") + CUT_MARK


def text_after_json(reply: str) -> str:
    """Return the text after the last object or list of a reply, or "" if one is not closed."""
    is_closed = all(reply.count(opening) <= reply.count(end) for opening, end in ("{}", "[]"))
    end = max(reply.rfind("}"), reply.rfind("]"))
    return reply[end + 1 :] if is_closed and end >= 0 else ""


def has_open_brackets(reply: str) -> bool:
    """Return whether a JSON reply ends before its lists and objects are closed."""
    outside_texts = _WHOLE_TEXT.sub("", reply)
    return _count_open_brackets(outside_texts) > 0


def ends_inside_json(reply: str) -> bool:
    """Return whether a reply ends inside an object or a list, also inside a text in it."""
    # A quotation mark that is left without the complete texts opens a text. Brackets in that text
    # close nothing.
    before_open_text = _WHOLE_TEXT.sub("", reply).partition('"')[0]
    return _count_open_brackets(before_open_text) > 0


def read_whole_json(reply: str, *, repair: bool) -> object | None:
    """Return the JSON value that a reply consists of, or None if the reply is prose.

    - `repair`: whether to repair a reply that is not valid JSON.
    """
    # Prose that only mentions an object is no JSON. A backtick opens a code fence.
    if reply.lstrip()[:1] not in ("{", "[", "`"):
        return None
    candidates = json_candidates(reply, "{[")
    values = (value for step, value in candidates if repair or step != REPAIRED)
    return as_plain_json(next(values, None))


def json_candidates(
    reply: str, openings: str, *, numbers_as_text: bool = False
) -> Iterator[tuple[str, object]]:
    """Yield possible readings of a JSON reply, beginning with the strictest reading.

    - `openings`: the characters with which a JSON value can begin, such as "{".
    - `numbers_as_text`: keep each decimal number as it is written, such as "1.000".

    Each item holds the parse step and the JSON value. A field without a value or with several
    different values has an `UnreadableValue`.
    """
    # A reply may hold lone surrogates, and so may its escapes, such as `\ud800`.
    reply = replace_lone_surrogates(reply)
    blocks = [block for block in reply.split("```")[1::2] if block.strip()]
    # Of several code blocks the last one counts: those before it are examples or drafts.
    block = _LANGUAGE.sub("", blocks[-1]) if blocks else None
    loads = partial(
        json.loads,
        parse_float=str if numbers_as_text else float,
        object_pairs_hook=_object_without_conflicts,
    )
    body = block if block is not None and _holds_json(blocks, openings) else reply
    starts = [body.index(opening) for opening in openings if opening in body]
    for parse_step, text in (("exact", reply), ("fenced", block)):
        if text is None:
            continue
        # Python raises ValueError for bad JSON and for integers of thousands of digits. Deep
        # nesting raises RecursionError. Both only mean that this reading fails.
        with suppress(ValueError, RecursionError):
            yield parse_step, replace_lone_surrogates(loads(text))
    # The repair library turns any prose into some value, so it needs an opening character to start
    # at.
    if starts and _is_worth_repairing(body):
        body = body[min(starts) :]
        # The library would take curly quotation marks around texts for parts of the texts.
        if '"' not in body:
            body = body.translate(_STRAIGHT_QUOTES)
        body = _quote_bare_values(body, numbers_as_text=numbers_as_text)
        with suppress(ValueError, RecursionError):
            try:
                value = loads(body)
            except ValueError:
                value = _repair_json(body)
            yield REPAIRED, replace_lone_surrogates(value)


def refuses_beside_json(reply: str) -> bool:
    """Return whether a reply refuses to answer in words before or after its JSON.

    Such a reply may still show an object: as an example, or to take it back.
    """
    blocks = [block for block in reply.split("```")[1::2] if block.strip()]
    if blocks and _holds_json(blocks, "{["):
        parts = reply.split("```")[::2]
        return is_bare_refusal(parts[0]) or any(map(refuses_at_its_ends, parts))
    start = min((reply.index(opening) for opening in "{[" if opening in reply), default=len(reply))
    before, after = reply[:start], text_after_json(reply)
    # After an object, "No comment." may mean that there is nothing to add.
    return is_bare_refusal(before) or any(map(refuses_at_its_ends, (before, after)))


def _holds_json(blocks: list[str], openings: str) -> bool:
    return len(blocks) > 1 or any(opening in blocks[-1] for opening in openings)


def _repair_json(body: str) -> object:
    # The library keeps the last of two equal keys, and the last of two objects with the same keys
    # that follow each other. Which of them is meant is unknown. With a mark in each key, it keeps
    # all of them.
    numbers = count()

    def mark_key(match: re.Match[str]) -> str:
        if match["is_key"] is None:
            return match[0]
        quote = match[0][-1] if match[0][-1] in "\"'" else ""
        return f"{match[0].removesuffix(quote)}\ufdd0{next(numbers)}\ufdd0{quote}"

    marked_body = _MARKABLE_KEY.sub(mark_key, body)
    value = _remove_key_marks(json_repair.loads(marked_body, skip_json_loads=True))
    # Objects that follow each other may be equal, and may be the entries of a list.
    if isinstance(value, list) and body.startswith("{"):
        first, *others = value
        return value if any(entry != first for entry in others) else first
    return value


def _remove_key_marks(value: object) -> object:
    if isinstance(value, str):
        return _KEY_MARK.sub("", value)
    if isinstance(value, list):
        return [_remove_key_marks(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return _object_without_conflicts(
        [(_KEY_MARK.sub("", key), _remove_key_marks(entry)) for key, entry in value.items()]
    )


def _object_without_conflicts(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Of two different values of a key, Python would keep the last one.
    result: dict[str, object] = {}
    for key, entry in pairs:
        value = UnreadableValue() if entry == _NO_VALUE else entry
        is_other = key in result and result[key] != value
        result[key] = UnreadableValue((result[key], value)) if is_other else value
    return result


def _quote_bare_values(text: str, *, numbers_as_text: bool) -> str:
    # Values without quotation marks get them, unless JSON or Python would read them as they are.
    # Otherwise the repair library reads `7 or 8` as 7 and `−4` (a Unicode minus) as 4, and may move
    # a number to another key. The library would give a key without a value an empty text, which may
    # mean "cannot say".
    parts: list[str] = []
    position = 0
    while token := _TOKEN.search(text, position):
        parts.append(text[position : token.start()])
        position = token.end()
        if not token[0].startswith(":"):
            parts.append(token[0])
            continue
        bare = token["bare"] or ""
        end = _END_OF_BARE_VALUE.search(bare)
        value = (bare[: end.start()] if end else bare).rstrip()
        after = text[position : position + 1]
        if not bare and after in ("", ",", "}", "]"):
            parts.append(f'{token[0]}"{_NO_VALUE}"')
            continue
        position = token.start("bare") + len(value) if bare else position
        parts.append(text[token.start() : position - len(value)])
        # A value before a quotation mark or a bracket may be the beginning of something longer.
        is_whole = bool(value) and (end is not None or after in ("", "}", "]", "\n"))
        is_decimal_text = numbers_as_text and "." in value
        is_plain = _JSON_SCALAR.fullmatch(value) is not None and not is_decimal_text
        parts.append(json.dumps(value, ensure_ascii=False) if is_whole and not is_plain else value)
    parts.append(text[position:])
    return "".join(parts)


def _is_worth_repairing(reply: str) -> bool:
    # The repair library is slow for long replies and for many open brackets.
    quotes = reply.count('"') + reply.count("'")
    is_short = len(reply) <= MAX_REPAIRABLE_CHARACTERS and quotes <= MAX_REPAIRABLE_QUOTES
    return is_short and _count_open_brackets(reply) <= MAX_UNCLOSED_BRACES


def _count_open_brackets(text: str) -> int:
    return text.count("{") - text.count("}") + text.count("[") - text.count("]")
