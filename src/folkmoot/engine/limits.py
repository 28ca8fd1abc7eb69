"""The limiter of one model: how many calls at once, how fast, and when to hold them all.

Its concurrency halves when the provider says 429 and rises by one on success; requests and tokens
per minute are learnt from the provider's headers; a `Retry-After` holds the whole model. Used by
the gateway, one limiter per model. An uncontended call costs about a microsecond.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from folkmoot.errors import FolkmootError

WINDOW_SECONDS = 60.0  # what "per minute" means where a header gives no reset time


@dataclass(slots=True)
class Bucket:
    """A token bucket whose size and refill rate (units per second) a provider told us."""

    capacity: float
    level: float
    rate: float
    at: float

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` is there (never more than the capacity is asked for)."""
        self.level = min(self.capacity, self.level + (now - self.at) * self.rate)
        self.at = now
        short = min(amount, self.capacity) - self.level
        return 0.0 if short <= 1e-9 else short / self.rate

    def take(self, amount: float) -> None:
        self.level -= min(amount, self.capacity)


class Waiter(NamedTuple):
    """A call that waits for a place."""

    admitted: asyncio.Future[bool]
    tokens: float


class Limiter:
    """Admission of calls to one model, first come, first served.

    `concurrency` is the most calls in flight, `spacing` the least time (s) between two starts.
    """

    def __init__(
        self,
        concurrency: int,
        spacing: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = max(1, concurrency)
        self.allowed = float(self.most)
        self.in_flight = 0
        self.successes = 0
        self._spacing = spacing
        self._clock = clock
        self._not_before = 0.0
        self._last_cut = 0.0
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self._waiting: deque[Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: FolkmootError | None = None

    @property
    def held(self) -> float:
        """Seconds for which no call starts."""
        return max(0.0, self._not_before - self._clock())

    @property
    def counts_tokens(self) -> bool:
        """Whether an estimate of a call's tokens is of any use yet."""
        return self.tokens is not None

    def try_enter(self, tokens: float = 0.0) -> bool:
        """Take a place at once if nothing stands in the way."""
        if self._waiting or self._stopped is not None:
            return False
        return self._admit(tokens, self._clock()) == 0.0

    async def enter(self, tokens: float = 0.0) -> None:
        """Wait for a place. Raises what `stop` was given."""
        self._check()
        if self.try_enter(tokens):
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiter(future, tokens))
        self._pump()
        try:
            admitted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.leave()  # the place was given in the same turn of the loop
            raise
        if admitted and self._stopped is not None:
            self.leave()
        self._check()

    def leave(self, places: int = 1) -> None:
        """Give the place back, whatever became of the call; or those of a worker of a cluster."""
        self.in_flight -= places
        if self._waiting:
            self._pump()

    def succeeded(self, hints: Mapping[str, float] | None = None) -> None:
        """A reply came: rise by one place per round of replies, and learn from headers."""
        self.successes += 1
        if self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + 1.0 / int(self.allowed))
        if hints:
            self.learn(hints)

    def rate_limited(self, entered_at: float, retry_after: float | None) -> None:
        """A 429 came: halve, once for all calls sent together, and hold the model if told to."""
        if entered_at >= self._last_cut:
            self.allowed = max(1.0, min(self.allowed, float(self.in_flight)) / 2)
            self._last_cut = self._clock()
        if retry_after:
            self.hold(retry_after)

    def hold(self, seconds: float) -> None:
        """Start no call for so many seconds."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    def stop(self, error: FolkmootError) -> None:
        """Admit nobody else; those who wait get the error."""
        self._stopped = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.admitted.done():
                each.admitted.set_result(False)

    def now(self) -> float:
        """The limiter's clock, to be handed back to `rate_limited`."""
        return self._clock()

    def _check(self) -> None:
        if self._stopped is not None:
            # One error for thousands of waiters: its traceback must not grow with each of them.
            raise self._stopped.with_traceback(None)

    def _admit(self, tokens: float, now: float) -> float:
        """0 and the place is taken; else the seconds to wait (infinite: until somebody leaves)."""
        if self.in_flight >= int(self.allowed + 1e-9):  # a sum of fractions may fall short
            return float("inf")
        wait = self._not_before - now
        if self.requests is not None:
            wait = max(wait, self.requests.wait(1.0, now))
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait(tokens, now))
        if wait > 0.0:
            return wait
        if self.requests is not None:
            self.requests.take(1.0)
        if self.tokens is not None:
            self.tokens.take(tokens)
        if self._spacing:
            self._not_before = now + self._spacing
        self.in_flight += 1
        return 0.0

    def _pump(self) -> None:
        """Let in those who wait, in order; set an alarm if only time stands in the way."""
        while self._waiting:
            first = self._waiting[0]
            if first.admitted.done():  # cancelled while waiting
                self._waiting.popleft()
                continue
            wait = self._admit(first.tokens, self._clock())
            if wait:
                if wait != float("inf"):
                    self._alarm(wait)
                return
            self._waiting.popleft()
            first.admitted.set_result(True)

    def _alarm(self, seconds: float) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(seconds, 0.0005), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._pump()

    def learn(self, hints: Mapping[str, float]) -> None:
        """Take limits, what is left and the time to full (s) over from a provider's headers."""
        now = self._clock()
        self.requests = _bucket(self.requests, hints, "requests", now)
        self.tokens = _bucket(self.tokens, hints, "tokens", now)


def _bucket(old: Bucket | None, hints: Mapping[str, float], what: str, now: float) -> Bucket | None:
    capacity = hints.get(f"{what}_limit")
    left = hints.get(f"{what}_remaining")
    if capacity is None or left is None or capacity < 1:
        return old
    reset = hints.get(f"{what}_reset", 0.0)
    used = capacity - left
    rate = used / reset if reset > 0 and used > 0 else capacity / WINDOW_SECONDS
    if old is not None:
        # Replies arrive out of order: believe the lower of what we counted and what we are told.
        old.wait(0.0, now)
        left = min(left, max(old.level, 0.0)) if old.capacity == capacity else left
    return Bucket(capacity, left, rate, now)
