"""Ask one question twice, in two separate conversations.

The difference between the two answers is noise, because nothing happened between them.
"""
# A change that a study reports is tested against this noise (`measures.retest`).

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

# The suffix of the second question's scope.
RETEST = "retest"


async def ask_twice(scope: Scope, name: str, ask: Callable[[Scope], Awaitable[T]]) -> tuple[T, T]:
    """Ask one question in two fresh child scopes of `scope` and return both answers.

    - `name`: the name of the first scope.
    - `ask`: makes the same request in both scopes.
    """
    # If a study adds a retest later, the addresses of its earlier calls stay the same.
    first = await ask(scope.child(name))
    return first, await ask(scope.child(f"{name}_{RETEST}"))


def pair_answers(
    table: pl.DataFrame,
    pairs: Iterable[tuple[object, object]],
    participant_columns: Sequence[str],
    *,
    unit: Sequence[str],
    question: Sequence[str] = (),
    untouched: bool = False,
) -> list[Repeat]:
    """Return both answers of each participant who answered on both occasions of a pair.

    - `table`: a row for each participant and occasion, with the columns `answer` and `occasion`.
    - `pairs`: pairs of values of `occasion`.
    - `participant_columns`: columns that identify a participant on all occasions.
    - `unit`: columns that identify the unit of analysis, such as a group with one conversation.
    - `question`: columns that identify the question.
    - `untouched`: True if the participant read and heard nothing between the two occasions.
    """
    # An answer is a text or a number, and rows without one are left out. The pair of occasions is
    # always part of the question.
    answered = table.filter(pl.col("answer").is_not_null())
    repeats: list[tuple[tuple[object, ...], Repeat]] = []
    for first, last in pairs:
        first_answers, last_answers = (
            answered.filter(pl.col("occasion") == when) for when in (first, last)
        )
        last_answers = last_answers.select(*participant_columns, last="answer")
        both = first_answers.join(
            last_answers,
            on=list(participant_columns),
            nulls_equal=True,
            maintain_order="left_right",
        )
        for row in both.iter_rows(named=True):
            repeat = Repeat(
                tuple(row[name] for name in unit),
                (first, last, *(row[name] for name in question)),
                row["answer"],
                row["last"],
                untouched,
            )
            repeats.append((tuple(row[name] for name in participant_columns), repeat))
    # `measures.retest` needs the number k of answers per participant. A participant with k answers
    # is in m = k (k − 1) / 2 pairs, so k = (1 + √(1 + 8 m)) / 2.
    pair_counts = Counter(person for person, _ in repeats)
    return [
        replace(repeat, askings=(1 + math.sqrt(1 + 8 * pair_counts[person])) / 2)
        for person, repeat in repeats
    ]
