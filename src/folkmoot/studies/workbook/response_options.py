"""What may be answered: plain words, a list, or a range, and how it is put to a participant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from folkmoot.conversation.answers import NOT_COUNTED, alike, listed
from folkmoot.studies.workbook.literals import (
    NotALiteral,
    is_scalar,
    looks_like_literal,
    read_literal,
    scalar_text,
)
from folkmoot.studies.workbook.sheets import number_text


@dataclass(frozen=True, slots=True)
class Words:
    """Options in plain words; they are shown and cannot be checked."""

    text: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A closed list, in the order of the workbook."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers between two bounds, both included."""

    low: float
    high: float


Options = Words | Listed | Range


@dataclass(frozen=True, slots=True)
class Shown:
    """Options as one participant saw them: in words, and in which order."""

    text: str
    order: tuple[str, ...] = ()


def read_options(text: str) -> Options | dict[str, Options]:
    """The options of a cell, or those of each role. Raises NotALiteral with a message."""
    if not looks_like_literal(text):
        return Words(text.strip())
    value = read_literal(text)
    if isinstance(value, dict):
        if not value:
            raise NotALiteral("the dict is empty")
        return {_role(key): _single(v) for key, v in value.items()}
    return _single(value)


def _role(key: Any) -> str:
    if not isinstance(key, str):
        raise NotALiteral(f"the key {key!r} is no role label")
    return key.strip()


def _single(value: Any) -> Options:
    if isinstance(value, str):
        if not value.strip():
            raise NotALiteral("an empty text holds no options")
        return read_nested(value)
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, tuple):
        return _range(value)
    raise NotALiteral(f"{value!r} is neither a text nor a list nor a pair of bounds")


def read_nested(text: str) -> Options:
    """A text inside a dict: words, or a list or range that was put between quotes."""
    if looks_like_literal(text):
        value = read_literal(text)
        if isinstance(value, (list, tuple)):
            return _single(value)
    return Words(text.strip())


def _listed(values: Sequence[Any]) -> Listed:
    if not values:
        raise NotALiteral("the list is empty")
    for value in values:
        if not is_scalar(value):
            raise NotALiteral(f"{value!r} is no single option")
    options = tuple(scalar_text(v) for v in values)
    if "" in options:
        raise NotALiteral("an option is empty")
    twice = [o for i, o in enumerate(options) if o in options[:i]]
    if twice:
        raise NotALiteral(f"the option {twice[0]!r} stands there twice")
    for first, second in alike(options):
        raise NotALiteral(
            f"{options[first]!r} and {options[second]!r} cannot be told apart: {NOT_COUNTED}"
        )
    return Listed(options)


def _range(values: Sequence[Any]) -> Range:
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(values) != 2 or len(numbers) != 2:
        raise NotALiteral("a range is a pair of numbers, (low, high); a list needs [ ]")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise NotALiteral(f"the range runs from {number_text(low)} down to {number_text(high)}")
    return Range(low, high)


def show(
    options: Options | None, *, integer: bool, shuffle: bool, rng: np.random.Generator
) -> Shown:
    """Options as text for the prompt; a list is shuffled by `rng` where that is asked for."""
    if options is None:
        return Shown("")
    if isinstance(options, Words):
        return Shown(options.text)
    if isinstance(options, Range):
        kind = "a whole number" if integer else "a number"
        low, high = number_text(options.low), number_text(options.high)
        return Shown(f"Answer with {kind} from {low} to {high}, both included.")
    order = options.options
    if shuffle:
        order = tuple(order[i] for i in rng.permutation(len(order)))
    return Shown(f"Choose exactly one of these options:\n{listed(order, labelled=False)}", order)


def by_role(options: Options | Mapping[str, Options] | None, role: str) -> Options | None:
    """The options of one role."""
    if isinstance(options, Mapping):
        return options.get(role)
    return options
