"""A retest: one question asked twice, in two conversations that know nothing of each other.

The second answer shows how far answers differ where nothing has happened in between. Whatever a
study calls movement is tested against that (`measures.retest`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from folkmoot.engine.session import Scope

T = TypeVar("T")

# What the scope of the second asking adds to the name of the first.
RETEST = "retest"


async def ask_twice(scope: Scope, name: str, ask: Callable[[Scope], Awaitable[T]]) -> tuple[T, T]:
    """Ask one question in two fresh scopes below this one and return both answers.

    The first scope is called `name`, so that a study which adds a retest keeps the addresses of
    what it asked before. `ask` must put the same request in both.
    """
    first = await ask(scope.at(name))
    return first, await ask(scope.at(f"{name}_{RETEST}"))
