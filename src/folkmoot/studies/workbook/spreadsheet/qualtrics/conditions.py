"""Conditions under which a question is asked: terms that are simplified and then written as an
expression of the workbook's language.

A condition on treatments is a set of them, so that it is known whether two conditions exclude each
other. All others are comparisons in the workbook's language.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class InTreatments:
    """The session has one of these treatments. They are numbered from 0 up to `count`."""

    numbers: frozenset[int]
    count: int


@dataclass(frozen=True)
class Comparison:
    """A comparison in the workbook's language, such as `Q1 == "yes"`.

    `needs_answer`: it holds for nobody who was not asked.
    """

    expression: str
    needs_answer: bool = True


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
    flat = [
        part
        for condition in conditions
        for part in (condition.parts if isinstance(condition, kind) else (condition,))
    ]
    of_treatments = [part for part in flat if isinstance(part, InTreatments)]
    # First, because the treatment decides without a look at the answers.
    others = (part for part in flat if not isinstance(part, InTreatments))
    parts = dict.fromkeys((_join_treatments(of_treatments, kind, neutral=neutral), *others))
    if (not neutral) in parts:
        return not neutral
    parts.pop(neutral, None)
    if any(negate(part) in parts for part in parts):
        return not neutral
    reduced = [_reduce(part, parts) for part in parts]
    if reduced != list(parts):
        return _join((neutral if part is None else part for part in reduced), kind, neutral=neutral)
    if not parts:
        return neutral
    return kind(tuple(parts)) if len(parts) > 1 else next(iter(parts))


def _reduce(part: Condition, beside: Collection[Condition]) -> Condition | None:
    """Return a part without what is decided by the conditions that it stands beside.

    In `a and (not a or b)` the second part is `b`; in `a and (a or b)` it says nothing: None.
    Without this, the conditions of a long chain of skips would double with each of them.
    """
    if not isinstance(part, (All, Any)):
        return part
    if any(inner in beside for inner in part.parts):
        return None
    left = [inner for inner in part.parts if negate(inner) not in beside]
    if len(left) == len(part.parts):
        return part
    return all_of(*left) if isinstance(part, All) else any_of(*left)


def holds_only_if_asked(condition: Condition) -> bool:
    """Return whether a condition holds for nobody who was not asked what it compares."""
    if isinstance(condition, Comparison):
        return condition.needs_answer
    if isinstance(condition, All):
        return any(map(holds_only_if_asked, condition.parts))
    return isinstance(condition, Any) and all(map(holds_only_if_asked, condition.parts))


def _join_treatments(
    conditions: Sequence[InTreatments], kind: type[All] | type[Any], *, neutral: bool
) -> Condition:
    """Return the treatments that all of these, or at least one of them, have."""
    if not conditions:
        return neutral
    sets = [condition.numbers for condition in conditions]
    joined = frozenset.intersection(*sets) if kind is All else frozenset.union(*sets)
    return _simplify(InTreatments(joined, conditions[0].count))


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
