"""Conditions under which a question is asked: terms that are simplified and then written as an
expression of the workbook's language.

A condition on treatments is a set of them, so that it is known whether two conditions exclude each
other. All others are comparisons in the workbook's language.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class InTreatments:
    """The session has one of these treatments. They are numbered from 0 up to `count`."""

    numbers: frozenset[int]
    count: int


@dataclass(frozen=True)
class Comparison:
    """A comparison in the workbook's language, such as `Q1 == "yes"`."""

    expression: str


@dataclass(frozen=True)
class Not:
    """The comparison does not hold, so it need not have a value."""

    inner: Comparison


@dataclass(frozen=True)
class All:
    """All of the conditions hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """At least one of the conditions holds."""

    parts: tuple[Condition, ...]


Condition = bool | InTreatments | Comparison | Not | All | Any


def all_of(*conditions: Condition) -> Condition:
    """Return the condition that holds if all of these hold."""
    return _join(conditions, All, neutral=True)


def any_of(*conditions: Condition) -> Condition:
    """Return the condition that holds if one of these holds."""
    return _join(conditions, Any, neutral=False)


def _join(
    conditions: Iterable[Condition], kind: type[All] | type[Any], *, neutral: bool
) -> Condition:
    parts: dict[Condition, None] = {}
    treatments: InTreatments | None = None
    for condition in conditions:
        for part in condition.parts if isinstance(condition, kind) else (condition,):
            if isinstance(part, bool):
                if part is not neutral:
                    return part
            elif isinstance(part, InTreatments):
                treatments = _join_treatments(treatments, part, kind)
            else:
                parts[part] = None
    if treatments is not None:
        simplified = _simplify(treatments)
        if isinstance(simplified, bool):
            if simplified is not neutral:
                return simplified
        else:
            # First, because it decides without a look at the answers.
            parts = {simplified: None, **parts}
    if any(negate(part) in parts for part in parts):
        return not neutral
    if not parts:
        return neutral
    return kind(tuple(parts)) if len(parts) > 1 else next(iter(parts))


def _join_treatments(
    first: InTreatments | None, second: InTreatments, kind: type[All] | type[Any]
) -> InTreatments:
    if first is None:
        return second
    both = first.numbers & second.numbers if kind is All else first.numbers | second.numbers
    return InTreatments(both, first.count)


def _simplify(condition: InTreatments) -> Condition:
    if not condition.numbers:
        return False
    return len(condition.numbers) == condition.count or condition


def negate(condition: Condition) -> Condition:
    """Return the condition that holds if this one does not."""
    if isinstance(condition, bool):
        return not condition
    if isinstance(condition, InTreatments):
        rest = frozenset(range(condition.count)) - condition.numbers
        return _simplify(InTreatments(rest, condition.count))
    if isinstance(condition, Not):
        return condition.inner
    # The negation of parts, and not of the whole, shows which other conditions it excludes.
    if isinstance(condition, All):
        return any_of(*map(negate, condition.parts))
    if isinstance(condition, Any):
        return all_of(*map(negate, condition.parts))
    return Not(condition)


def without_known(condition: Condition, known: Condition) -> Condition:
    """Return a condition without the parts that hold wherever the condition `known` does."""
    parts = condition.parts if isinstance(condition, All) else (condition,)
    held = known.parts if isinstance(known, All) else (known,)
    return all_of(*(part for part in parts if part not in held))


def write_condition(
    condition: Condition, write_treatments: Callable[[frozenset[int]], str], *, inner: bool = False
) -> str:
    """Return a condition as an expression. `inner`: it is a part of another expression."""
    if isinstance(condition, bool):
        return str(condition)
    if isinstance(condition, Comparison):
        return condition.expression
    if isinstance(condition, Not):
        return f"not ({write_condition(condition.inner, write_treatments)})"
    if isinstance(condition, InTreatments):
        text, is_single = write_treatments(condition.numbers), len(condition.numbers) == 1
        return f"({text})" if inner and not is_single else text
    word = " and " if isinstance(condition, All) else " or "
    text = word.join(
        write_condition(part, write_treatments, inner=True) for part in condition.parts
    )
    return f"({text})" if inner else text


def text_literal(text: str) -> str:
    """Return a text as a literal of the workbook's language that may stand inside a placeholder."""
    # A brace inside the literal could be taken for the end of the placeholder.
    written = json.dumps(text, ensure_ascii=False)
    return written.replace("{", "\\u007b").replace("}", "\\u007d")
