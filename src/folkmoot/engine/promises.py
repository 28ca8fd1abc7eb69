"""One value that a part of a protocol gives and parts side by side with it wait for.

Made by `Scope.promise()`. What is given must not depend on who came first, as nothing in a study
may; then a promise changes when things are asked and never what.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar, cast

from folkmoot.engine.context import RunContext
from folkmoot.errors import ProtocolError

T = TypeVar("T")


class Promise(Generic[T]):
    """A value to come. Raises ProtocolError when it is given twice."""

    __slots__ = ("_bell", "_given", "_run", "_value")

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._bell: asyncio.Event | None = None
        self._value: T | None = None
        self._given = False

    @property
    def given(self) -> bool:
        """Whether the value is there; for whoever gives it, never to decide what to ask."""
        return self._given

    def give(self, value: T) -> None:
        """Let those who wait go on with this value."""
        if self._given:
            raise ProtocolError("a promise was given its value twice")
        self._value, self._given = value, True
        if self._bell is not None:
            self._bell.set()

    async def get(self) -> T:
        """The value, as soon as it is there; when the run stops before, nobody goes on."""
        if not self._given:
            if self._bell is None:
                self._bell = self._run.bell()
            await self._bell.wait()
        if not self._given:
            self._run.check_halted()
        return cast("T", self._value)
