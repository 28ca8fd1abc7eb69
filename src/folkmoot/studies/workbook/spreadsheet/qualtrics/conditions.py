"""Simplify the conditions under which a question is asked, and write them as expressions."""
# A condition on treatments is stored as the set of treatments in which it holds. So the module can
# decide whether two such conditions exclude each other.

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class InTreatments:
    """The condition that the session has one of the treatments in `numbers`."""

    # The survey has `count` treatments, numbered from 0.

    numbers: frozenset[int]
    count: int


@dataclass(frozen=True)
class ValueComparison:
    """A comparison in the workbook's expression language, such as `Q1 == "yes"`."""

    expression: str
    # True if it can only hold for participants who were asked the question.
    needs_answer: bool = True


@dataclass(frozen=True)
class Not:
    """The negation of a comparison."""

    # It is also true if a compared value is missing.

    inner: ValueComparison


@dataclass(frozen=True)
class All:
    """The condition that all of `parts` hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """The condition that at least one of `parts` holds."""

    parts: tuple[Condition, ...]


Condition = bool | InTreatments | ValueComparison | Not | All | Any


def all_of(*conditions: Condition) -> Condition:
    """Join conditions by "and", and return the simplified result."""
    return _join(conditions, All, neutral=True)


def any_of(*conditions: Condition) -> Condition:
    """Join conditions by "or", and return the simplified result."""
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


# Without this step, each skip in a long chain would double the length of a condition.
def _reduce(part: Condition, beside: Collection[Condition]) -> Condition | None:
    # The conditions in `beside` already decide some parts. These are left out.
    if not isinstance(part, (All, Any)):
        return part
    if any(inner in beside for inner in part.parts):
        return None
    left = [inner for inner in part.parts if negate(inner) not in beside]
    if len(left) == len(part.parts):
        return part
    return all_of(*left) if isinstance(part, All) else any_of(*left)


def holds_only_if_asked(condition: Condition) -> bool:
    """Return whether a condition is false for a participant who was asked nothing."""
    if isinstance(condition, ValueComparison):
        return condition.needs_answer
    if isinstance(condition, All):
        return any(map(holds_only_if_asked, condition.parts))
    return isinstance(condition, Any) and all(map(holds_only_if_asked, condition.parts))


def _join_treatments(
    conditions: Sequence[InTreatments], kind: type[All] | type[Any], *, neutral: bool
) -> Condition:
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
    """Return the negation of a condition."""
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
    """Return `condition` without the parts that `known` already implies."""
    parts = condition.parts if isinstance(condition, All) else (condition,)
    held = known.parts if isinstance(known, All) else (known,)
    return all_of(*(part for part in parts if part not in held))


def write_condition(
    condition: Condition, write_treatments: Callable[[frozenset[int]], str], *, inner: bool = False
) -> str:
    """Return a condition as an expression of the workbook.

    - `write_treatments`: returns the expression for the treatments with the given numbers.
    - `inner`: True to add parentheses where a larger expression needs them.
    """
    # A list of treatments is joined by "or", so it needs parentheses inside "and". A single
    # treatment does not.
    if isinstance(condition, bool):
        return str(condition)
    if isinstance(condition, ValueComparison):
        return condition.expression
    if isinstance(condition, Not):
        # `not (…)` would not hold for a participant without the answer.
        return f"(0 if {write_condition(condition.inner, write_treatments)} else 1)"
    if isinstance(condition, InTreatments):
        text, is_single = write_treatments(condition.numbers), len(condition.numbers) == 1
        return f"({text})" if inner and not is_single else text
    word = " and " if isinstance(condition, All) else " or "
    text = word.join(
        write_condition(part, write_treatments, inner=True) for part in condition.parts
    )
    return f"({text})" if inner else text


def text_literal(text: str) -> str:
    """Return a text in quotes, for use inside a placeholder."""
    # A brace inside the literal could be taken for the end of the placeholder.
    written = json.dumps(text, ensure_ascii=False)
    return written.replace("{", "\\u007b").replace("}", "\\u007d")
