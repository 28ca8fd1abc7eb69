"""Files of a run are put in their places beside the event loop: calls do not wait for the disk.

Used by the run's context for what a study writes, and by the sitting for what ends a run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Filing:
    """Work on files: by one thread, so that they appear in the order in which they were written,
    or by several where the order is nothing to anybody.

    An error comes out of the next `check`, or of `done`.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="files")
        self._under_way: deque[Future[Any]] = deque()

    def do(self, work: Callable[..., Any], *args: Any) -> None:
        """Do `work(*args)`, after what was begun before it if there is one thread."""
        self._under_way.append(self._threads.submit(work, *args))

    def check(self) -> None:
        """Raise what earlier work raised, as far as it is known."""
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft().result()

    async def done(self) -> None:
        """Wait until all is done; raises the first error of what was begun."""
        under_way, self._under_way = self._under_way, deque()
        await asyncio.gather(*map(asyncio.wrap_future, under_way))

    def close(self) -> None:
        """Wait for what is under way, whatever becomes of it."""
        self._threads.shutdown()
