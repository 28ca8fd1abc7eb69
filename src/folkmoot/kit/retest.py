"""A retest: one question asked twice, in two conversations that know nothing of each other.

The second answer shows how far answers differ where nothing has happened in between. Whatever a
study calls movement is tested against that (`measures.retest`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl

from folkmoot.engine.session.session import Scope
from folkmoot.measures.retest import Repeat

T = TypeVar("T")

# What the scope of the second asking adds to the name of the first.
RETEST = "retest"


async def ask_twice(scope: Scope, name: str, ask: Callable[[Scope], Awaitable[T]]) -> tuple[T, T]:
    """Ask one question in two fresh scopes below this one and return both answers.

    The first scope is called `name`, so that a study which adds a retest keeps the addresses of
    what it asked before. `ask` must put the same request in both.
    """
    first = await ask(scope.child(name))
    return first, await ask(scope.child(f"{name}_{RETEST}"))


def pair_answers(
    table: pl.DataFrame,
    pairs: Iterable[tuple[object, object]],
    who: Sequence[str],
    *,
    unit: Sequence[str],
    question: Sequence[str] = (),
    untouched: bool = False,
) -> list[Repeat]:
    """Return both answers of everybody who answered on both occasions of a pair.

    Args:
        table: a row for each person and occasion. `answer`: a text or a number; rows without one
            are left out. `occasion`: when, or in which condition, it was given
        pairs: two values of `occasion`
        who: columns that name a person, the same on both occasions
        unit: columns that name what is independent: the person, or those who talked in between
        question: columns that name what was asked, besides the pair of occasions
        untouched: nothing was read or heard between the two occasions
    """
    known = table.filter(pl.col("answer").is_not_null())
    found: list[tuple[tuple[object, ...], Repeat]] = []
    for first, last in pairs:
        one, other = (known.filter(pl.col("occasion") == when) for when in (first, last))
        other = other.select(*who, last="answer")
        both = one.join(other, on=list(who), nulls_equal=True, maintain_order="left_right")
        for row in both.iter_rows(named=True):
            repeat = Repeat(
                tuple(row[name] for name in unit),
                (first, last, *(row[name] for name in question)),
                row["answer"],
                row["last"],
                untouched,
            )
            found.append((tuple(row[name] for name in who), repeat))
    # Of k answers there are k (k − 1) / 2 pairs.
    made = Counter(person for person, _ in found)
    return [
        replace(repeat, askings=(1 + math.sqrt(1 + 8 * made[person])) / 2)
        for person, repeat in found
    ]
