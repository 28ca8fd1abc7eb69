"""Choices and numbers: one of the listed options, or a number within bounds, never guessed.

Each climbs a ladder of ever more forgiving readings and says on which step it was read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pydantic import BaseModel

from folkmoot.conversation.answers import Json, Parsed, Unreadable, pin_schema
from folkmoot.conversation.spoken import (
    LONGEST,
    bare_forms,
    carried_forms,
    folded,
    key,
    label_forms,
    number_forms,
)
from folkmoot.json_text import Schema


class Choice:
    """One of the options, in the order in which the prompt lists them.

    Ladder: exact → normalised → number (its number or letter in the list) → named (alone in a
    carrier phrase, or in each of several lines) → ask again with the list → `constrained` to an
    enumeration → `Missing`. Nothing is searched for in prose, and what fits two options fits none.
    Where the prompt lists the options without numbers (`labelled=False`), a bare number is none of
    them.
    """

    __slots__ = ("_index", "_labelled", "options")
    kind = "choice"
    schema: Schema | None = None

    def __init__(self, options: Sequence[str], *, labelled: bool = True) -> None:
        if isinstance(options, str) or not all(isinstance(o, str) for o in options):
            raise TypeError('options are a list of texts: Choice(["Yes", "No"])')
        self.options = tuple(options)
        self._labelled = labelled
        self._index = _index(tuple(sorted(set(options))))

    @property
    def unclear(self) -> str:
        """Why nobody can choose, in words (options that cannot be told apart); else empty."""
        if not self.options:
            return "there are no options to choose from"
        pairs = alike(self.options) if len(self._index.exact) < len(set(self.options)) else []
        if not pairs:
            return ""
        first, second = (self.options[n] for n in pairs[0])
        return f"the options {first!r} and {second!r} cannot be told apart: {NOT_COUNTED}"

    @property
    def listing(self) -> str:
        """The options as a prompt should list them, one a line."""
        return listed(self.options, labelled=self._labelled)

    @property
    def constrained(self) -> Constrained:
        """The last try: a JSON object that holds one option."""
        return Constrained(self)

    def parse(self, reply: str) -> Parsed[str] | Unreadable:
        text = reply.strip()
        if text in self._index.exact:
            return Parsed(text, "exact")
        forms = carried_forms(text)
        found = self._index.of(forms)
        if len(found) == 1 and not self._mislabelled(forms, found):
            bare = self._index.of(bare_forms(text))
            return Parsed(next(iter(found)), "normalised" if bare == found else "named")
        by_label = [] if found else self._by_label(text)
        if len(by_label) == 1:
            return Parsed(by_label[0], "number")
        if (repeated := self._in_every_line(text)) is not None:
            return Parsed(repeated, "named")
        what = "was empty" if not text else "was not one of the options and nothing else"
        return Unreadable(
            f"The reply {what}. Reply with exactly one of these, its exact text and nothing else:"
            f"\n{self.listing}"
        )

    def _in_every_line(self, text: str) -> str | None:
        """The option that each of several lines says alone: small models repeat themselves."""
        if "\n" not in text or len(text) > LONGEST:
            return None
        read = [self.parse(line) for line in {*text.splitlines()} if line.strip()]
        said = {r.value if isinstance(r, Parsed) else None for r in read}
        return said.pop() if len(said) == 1 else None

    def _mislabelled(self, forms: Sequence[str], found: frozenset[str]) -> bool:
        """Whether a reply gives one option's text the label of another: which one is meant?

        A reply that starts with a 1 may be a list of one, which says nothing of the option's place.
        """
        list_of_one = re.match(r"\W*1\b", forms[0])
        listed = {n: o for n, o in self._listed().items() if n != "1" or not list_of_one}
        listed |= self._index.own
        labels = (_GIVEN_LABEL.fullmatch(form) for form in forms)
        return any(m and listed.get(m[1], next(iter(found))) not in found for m in labels)

    def _by_label(self, text: str) -> list[str]:
        labels = self._listed() | self._index.own
        found = (_LABEL.fullmatch(form) for form in label_forms(text))
        return list(dict.fromkeys(labels[m[1]] for m in found if m and m[1] in labels))

    def _listed(self) -> dict[str, str]:
        given = labels_of(self.options) if self._labelled else ()
        return dict(zip(given, self.options, strict=False))


@dataclass(frozen=True, slots=True)
class Constrained:
    """A choice asked for once more as JSON, with its options as an enumeration in the schema."""

    choice: Choice
    kind: str = "choice"

    @property
    def schema(self) -> Schema:
        one = {"type": "string", "enum": list(self.choice.options)}
        return {
            "title": "Choice",
            "type": "object",
            "properties": {"choice": one},
            "required": ["choice"],
            "additionalProperties": False,
        }

    @property
    def prompt(self) -> str:
        """The question for a speaker whose replies could not be read."""
        return (
            'Reply with only the JSON object {"choice": …}, where … is the exact text of one of '
            f"these options:\n{self.choice.listing}"
        )

    def parse(self, reply: str) -> Parsed[str] | Unreadable:
        """One option of the enumeration. An endpoint may ignore the schema, so a bare option
        counts as well."""
        found = Json(_Chosen).parse(reply)
        text = found.value.choice if isinstance(found, Parsed) else reply
        read = self.choice.parse(text)
        return read if isinstance(read, Unreadable) else Parsed(read.value, "constrained")


class _Chosen(BaseModel):
    model_config = pin_schema("_Chosen")

    choice: str


class _Index(NamedTuple):
    """Options by the forms of their text. `exact`: those whose own text means them alone."""

    by_form: dict[str, tuple[str, ...]]
    own: dict[str, str]  # where every option begins with a label of its own: label → option
    exact: frozenset[str]

    def of(self, forms: Sequence[str]) -> frozenset[str]:
        return frozenset(o for form in forms for o in self.by_form.get(key(form), ()))


@lru_cache(maxsize=4096)
def _index(options: tuple[str, ...]) -> _Index:
    by_form: dict[str, tuple[str, ...]] = {}
    for option in options:
        for form in dict.fromkeys(key(f) for f in bare_forms(option)):
            by_form[form] = (*by_form.get(form, ()), option)
    labelled = [_OWN_LABEL.fullmatch(folded(o)) for o in options]
    own = {m[1]: o for m, o in zip(labelled, options, strict=True) if m}
    index = _Index(by_form, own if len(own) == len(options) else {}, frozenset())
    exact = frozenset(o for o in options if index.of(carried_forms(o)) == {o})
    return index._replace(exact=exact)


def labels_of(options: Sequence[str]) -> tuple[str, ...]:
    """What the options are listed by: numbers; letters if an option looks like a number; nothing
    if an option begins or ends with such a letter."""
    texts = [folded(o) for o in options]
    if not any(_NUMERIC.search(t) or any(c.isnumeric() for c in t) for t in texts):
        return tuple(str(n) for n in range(1, len(options) + 1))
    letters = tuple("abcdefghijklmnopqrstuvwxyz"[: len(options)])
    alone = {letter for t in texts for found in _LETTER.findall(t) for letter in found}
    return letters if len(letters) == len(options) and not alone & set(letters) else ()


def listed(options: Sequence[str], *, labelled: bool = True) -> str:
    """The options one a line, each after its number or letter (a dash where it has none)."""
    labels = labels_of(options) if labelled else ()
    heads = [f"{label.upper()}." for label in labels] or ["-"] * len(options)
    return "\n".join(f"{head} {option}" for head, option in zip(heads, options, strict=True))


# For options that `alike` finds.
NOT_COUNTED = "case, width, quotes, closing marks and listing numbers count for nothing in a reply"


def alike(options: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of places (from 0) whose options cannot be told apart in a reply."""
    index = _index(tuple(sorted(set(options))))
    rivals = [index.of(carried_forms(option)) for option in options]
    return [
        (first, second)
        for second, option in enumerate(options)
        for first, other in enumerate(options[:second])
        if other == option or other in rivals[second] or option in rivals[first]
    ]


_NUMERIC = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|"
    r"first|second|third|fourth|fifth)\b"
)
_LETTER = re.compile(r"^([a-z])(?![^\W\d_])|(?<![^\W\d_])([a-z])$")
_LABEL = re.compile(
    r"(?:(?:option|choice|number|no\.|nr\.)\s?)?#?[(\[]?([1-9][0-9]{0,2}|[a-z])[)\]]?[.:]?"
)
_IN_FRONT = r"(?:option\s|choice\s)?[(\[#]?(\d{1,3}|[a-z])(?:[)\]][.:]?|[%s]|\s[-=])\s.+"
_OWN_LABEL = re.compile(_IN_FRONT % ".:", re.DOTALL)
_GIVEN_LABEL = re.compile(_IN_FRONT % ".:,", re.DOTALL)
_PLAIN_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds (inclusive). `integer=True` refuses fractions.

    Read where the reply is one number, or a number alone in a carrier phrase; never out of prose.
    """

    low: float | None = None
    high: float | None = None
    integer: bool = False
    kind: str = "number"
    schema: Schema | None = None

    @property
    def unclear(self) -> str:
        """Why no number fits, in words; else empty."""
        crossed = self.low is not None and self.high is not None and self.low > self.high
        return f"no number is{self._bounds()}" if crossed else ""

    def parse(self, reply: str) -> Parsed[float] | Unreadable:
        text = reply.strip()
        bare, carried = number_forms(text)
        found = dict.fromkeys(f for f in (*bare, *carried) if _PLAIN_NUMBER.fullmatch(f))
        values = {float(f.replace(",", "")) for f in found}
        if len(values) != 1 or any(self._ambiguous(f) for f in found):
            return Unreadable(f"Reply with a single number{self._bounds()} and nothing else.")
        (value,), said = values, next(iter(found))
        if not math.isfinite(value):
            return Unreadable(f"{said[:20]}… is no sensible number{self._bounds()}.")
        if self.integer and not value.is_integer():
            return Unreadable(f"Reply with a whole number{self._bounds()} and nothing else.")
        if not self._holds(value):
            return Unreadable(f"{said} is out of range. Reply with a number{self._bounds()}.")
        parse_step = "exact" if text == said else "normalised" if said in bare else "named"
        return Parsed(value, parse_step)

    def _holds(self, value: float) -> bool:
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    def _ambiguous(self, said: str) -> bool:
        """Whether a dot may part thousands: `1.000`, or `1.250` where that many are allowed."""
        parts = re.fullmatch(r"[-+]?[1-9][0-9]{0,2}\.([0-9]{3})", said)
        if parts is None:
            return False
        thousands = float(said) * 1000
        known = self.low is not None and self.high is not None
        return self._holds(thousands) and (known or self.integer or parts[1].endswith("0"))

    def _bounds(self) -> str:
        if self.low is not None and self.high is not None:
            return f" from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f" of at least {self.low:g}"
        return f" of at most {self.high:g}" if self.high is not None else ""
