"""Answers: a reply parsed to a type, or `Missing` with its reason, never blank text.

Each answer type climbs a ladder of ever more forgiving readings and says on which rung it
succeeded. When none does, it says what was wrong, so that the engine can ask again.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import json_repair
from pydantic import BaseModel, ValidationError
from rapidfuzz import fuzz, process

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Missing:
    """No answer could be had. `reason`: refused, unparsed, empty, too_long, filtered, ….

    `raw` keeps the last reply, for the record; it is never scored.
    """

    reason: str
    detail: str = ""
    raw: str = ""

    def __bool__(self) -> bool:
        return False


class Parsed(NamedTuple, Generic[T_co]):
    """A value and the rung of the ladder at which it was read."""

    value: T_co
    rung: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a reply could not be read, in words for the model that is asked again."""

    problem: str


class Answer(Protocol[T_co]):
    """An answer type: reads replies, and may carry a JSON schema for the request."""

    @property
    def schema(self) -> dict[str, Any] | None: ...

    @property
    def kind(self) -> str: ...

    def parse(self, reply: str) -> Parsed[T_co] | Unreadable: ...


@dataclass(frozen=True, slots=True)
class Text:
    """Free text. Only an empty reply is unreadable."""

    kind: str = "text"
    schema: dict[str, Any] | None = None

    def parse(self, reply: str) -> Parsed[str] | Unreadable:
        text = reply.strip()
        return Parsed(text, "exact") if text else Unreadable("The reply was empty.")


MOST_UNCLOSED, LONGEST_REPAIRED = 50, 200_000
LONGEST_CHOICE = 50  # words; a longer reply is asked again rather than searched for an option


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options, in the order in which the prompt lists them.

    Ladder: exact → normalised → the only option named, unless negated → ask again.
    """

    options: tuple[str, ...]
    kind: str = "choice"
    schema: dict[str, Any] | None = None

    def __init__(self, options: Sequence[str]) -> None:
        object.__setattr__(self, "options", tuple(options))
        object.__setattr__(self, "kind", "choice")
        object.__setattr__(self, "schema", None)

    def parse(self, reply: str) -> Parsed[str] | Unreadable:
        text = reply.strip()
        if text in self.options:
            return Parsed(text, "exact")
        by_norm = {normalise(o): o for o in self.options}
        found = by_norm.get(normalise(text))
        if found is not None:
            return Parsed(found, "normalised")
        numbered = re.fullmatch(r"\s*(?:option\s*)?(\d{1,3})[.):]?\s*", text, re.IGNORECASE)
        if numbered and normalise(numbered[1]) not in by_norm:
            index = int(numbered[1])
            if 1 <= index <= len(self.options):
                return Parsed(self.options[index - 1], "number")
        return self._only_named(text)

    def _only_named(self, text: str) -> Parsed[str] | Unreadable:
        named = named_options(text, self.options)
        if len(text.split()) > LONGEST_CHOICE:
            # A summary or an essay that happens to name one option is no vote for it.
            named = {}
        standing = [o for o, negated in named.items() if not negated]
        if len(standing) == 1 and len(named) == 1:
            return Parsed(standing[0], "named")
        listed = "; ".join(f'"{o}"' for o in self.options)
        if len(named) > 1:
            what = "More than one option was named."
        elif named:
            what = "The only option named was rejected."
        else:
            guess = process.extractOne(text, self.options, scorer=fuzz.WRatio, score_cutoff=80)
            what = f'Was "{guess[0]}" meant?' if guess else "The reply was not one option."
        return Unreadable(f"{what} Reply with exactly one of these and nothing else: {listed}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds (inclusive). `integer=True` refuses fractions."""

    low: float | None = None
    high: float | None = None
    integer: bool = False
    kind: str = "number"
    schema: dict[str, Any] | None = None

    def parse(self, reply: str) -> Parsed[float] | Unreadable:
        text = reply.strip()
        found = re.findall(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?![\w])", text)
        if len(found) != 1:
            return Unreadable(f"Reply with a single number{self._bounds()} and nothing else.")
        value = float(found[0].replace(",", ""))
        if not math.isfinite(value):
            return Unreadable(f"{found[0][:20]}… is no sensible number{self._bounds()}.")
        if self.integer and not value.is_integer():
            return Unreadable(f"Reply with a whole number{self._bounds()} and nothing else.")
        if (self.low is not None and value < self.low) or (
            self.high is not None and value > self.high
        ):
            return Unreadable(f"{found[0]} is out of range. Reply with a number{self._bounds()}.")
        return Parsed(value, "exact" if text == found[0] else "named")

    def _bounds(self) -> str:
        if self.low is not None and self.high is not None:
            return f" from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f" of at least {self.low:g}"
        return f" of at most {self.high:g}" if self.high is not None else ""


@dataclass(frozen=True, slots=True)
class Json(Generic[M]):
    """A JSON object validated by a pydantic model.

    Ladder: direct → fenced block → repair library → ask again → `Missing`, or `fallback` (the
    protocol's documented minimal structure, which carries `_parse_error`).
    """

    model: type[M]
    fallback: M | None = None
    kind: str = "json"

    @property
    def schema(self) -> dict[str, Any] | None:
        return schema_of(self.model)

    def parse(self, reply: str) -> Parsed[M] | Unreadable:
        problem = "The reply was not a JSON object."
        for rung, candidate in _json_candidates(reply):
            if not isinstance(candidate, dict):
                continue
            try:
                return Parsed(self.model.model_validate(candidate), rung)
            except ValidationError as error:
                first = "; ".join(
                    f"{'.'.join(map(str, e['loc'])) or 'object'}: {e['msg']}"
                    for e in error.errors()[:3]
                )
                problem = f"The JSON did not fit: {first}."
        return Unreadable(f"{problem} Reply with only the JSON object, all fields present.")


@lru_cache(maxsize=256)
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, made once (it costs milliseconds). Not to be changed."""
    return model.model_json_schema()


def _json_candidates(reply: str) -> list[tuple[str, Any]]:
    """Readings of the reply as JSON, strictest first."""
    reply = reply.encode("utf-8", "replace").decode("utf-8")  # no file can hold lone surrogates
    found: list[tuple[str, Any]] = []
    fenced = re.search(r"```(?:json|JSON)?\s*(.*?)```", reply, re.DOTALL)
    for rung, text in (("exact", reply), ("fenced", fenced[1] if fenced else None)):
        if text is None:
            continue
        # ValueError also for integers of thousands of digits.
        with suppress(ValueError, RecursionError):
            found.append((rung, _sound(json.loads(text))))
    if "{" in reply and _repairable(reply):
        body = fenced[1] if fenced and "{" in fenced[1] else reply[reply.index("{") :]
        with suppress(ValueError, RecursionError):
            found.append(("repaired", _sound(json_repair.loads(body))))
    return found


def _repairable(reply: str) -> bool:
    """Whether repair is worth its time: thousands of open braces take seconds for nothing."""
    unclosed = reply.count("{") - reply.count("}") + reply.count("[") - reply.count("]")
    return unclosed <= MOST_UNCLOSED and len(reply) <= LONGEST_REPAIRED


def _sound(value: Any) -> Any:
    """The value without lone surrogates, which may come in as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_sound(v) for v in value]
    if isinstance(value, dict):
        return {str(_sound(k)): _sound(v) for k, v in value.items()}
    return value


_NEGATION = re.compile(
    r"\b(?:not|no|never|don't|won't|cannot|can't|isn't|wouldn't|against|reject\w*|rather than|"
    r"instead of|except|without|oppos\w*|neither|nor|unlike)\b"
)
_CLAUSE = re.compile(r"[.;:!?\n]|,|\bbut\b|\bso\b|\btherefore\b")


def normalise(text: str) -> str:
    """Case, width, quotes, dashes, punctuation, a leading number or label, and spaces folded."""
    text = _folded(text)
    text = re.sub(r"^\s*(?:option\s*)?(?:\(?\d{1,3}[.):]|[-*•])\s*", "", text)
    text = re.sub(r"[-–—_/]", " ", text)
    text = re.sub(r"[^\w\s%$+&<>=]", "", text)
    return " ".join(text.split())


def named_options(text: str, options: Sequence[str]) -> dict[str, bool]:
    """Options that a text names, each with whether a negation stands in the same clause.

    The longest option is matched first and its words are used up, so that an option inside the
    name of another is not a second hit, and a "no" that belongs to an option is no negation.
    """
    rest = _folded(text)
    for option in sorted(options, key=len, reverse=True):
        words = re.findall(r"\w+", _folded(option))
        if words:
            pattern = r"(?<!\w)" + r"\W+".join(map(re.escape, words)) + r"(?!\w)"
            rest = re.sub(pattern, f"\x00{options.index(option)}\x00", rest)
    named: dict[str, bool] = {}
    for clause in _CLAUSE.split(rest):
        for number in re.findall("\x00(\\d+)\x00", clause):
            option = options[int(number)]
            named[option] = named.get(option, False) or bool(_NEGATION.search(clause))
    return named


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"')
