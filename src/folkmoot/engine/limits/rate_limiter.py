"""The limiter of one model: how many calls at once, how fast, and when to hold them all.

Its concurrency halves when the provider says 429 and rises by one on success; requests and tokens
per minute are learnt from the provider's headers; a `Retry-After` holds the whole model. Used by
the gateway, one limiter per model. An uncontended call costs about a microsecond.

On a worker of a cluster a limiter decides nothing: it goes by the `Grant` of the head's limiter,
and reports what it learns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from folkmoot.errors import FolkmootError

WINDOW_SECONDS = 60.0  # what "per minute" means where a header gives no reset time
UNLIMITED = math.inf


@dataclass(slots=True)
class TokenBucket:
    """A token bucket whose size and refill rate (units per second) a provider told us."""

    capacity: float
    available: float
    rate: float
    updated_at: float

    def seconds_until(self, amount: float, now: float) -> float:
        """Seconds until `amount` is there (never more than the capacity is asked for)."""
        self.available = min(self.capacity, self.available + (now - self.updated_at) * self.rate)
        self.updated_at = now
        short = min(amount, self.capacity) - self.available
        if short <= 1e-9:
            return 0.0
        return short / self.rate if self.rate else UNLIMITED

    def take_tokens(self, amount: float) -> None:
        self.available -= min(amount, self.capacity)


@dataclass(slots=True)
class ModelDemand:
    """What a worker reports of one model: what waits there, what it gives back, what it learned.

    `first` are the tokens of the call that waits longest. `rate_limit_events`: for each 429 how
    long ago its call began (s), and the wait that it asked for. `hold_seconds`: seconds that the
    model is on hold.
    """

    in_flight: int = 0
    waiting: int = 0
    waiting_tokens: float = 0.0
    first: float = 0.0
    starts_left: float = 0.0
    tokens_left: float = 0.0
    successes: int = 0
    rate_hints: Mapping[str, float] | None = None
    rate_limit_events: list[tuple[float, float | None]] = field(default_factory=list)
    hold_seconds: float = 0.0
    retries: int = 0
    lost_calls: int = 0


@dataclass(slots=True)
class Grant:
    """What a worker may use of one model: places to add (or to give up, below zero), calls to start
    and tokens to start them with.

    `max_tokens_per_call` is the largest amount of tokens that a call may have to wait for;
    `hold_seconds` seconds in which nothing starts; `worker_count` the workers among whom a minimum
    spacing is divided; `answered` whether the model ever answered.
    """

    extra_slots: int = 0
    call_starts: float = 0.0
    tokens: float = 0.0
    max_tokens_per_call: float = UNLIMITED
    hold_seconds: float = 0.0
    worker_count: int = 1
    answered: bool = False


class SlotWaiter(NamedTuple):
    """A call that waits for a place."""

    admitted: asyncio.Future[bool]
    tokens: float


class RateLimiter:
    """Admission of calls to one model, first come, first served.

    `concurrency` is the most calls in flight, `spacing` the least time (s) between two starts. With
    `tell` it begins with nothing and goes by grants: `tell` is called where these are not enough,
    and with True where all others should know at once what was learned.
    """

    def __init__(
        self,
        concurrency: int,
        spacing: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[bool], None] | None = None,
    ) -> None:
        self.most = max(1, concurrency)
        self.allowed = float(self.most) if tell is None else 0.0
        self.in_flight = 0
        self.successes = 0
        self._spacing = self._own_spacing = spacing
        self._clock = clock
        self._tell = tell
        self._use = ModelDemand()
        self._not_before = 0.0
        self._last_cut = 0.0
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        self._waiting: deque[SlotWaiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: FolkmootError | None = None

    @property
    def hold_seconds(self) -> float:
        """Seconds for which no call starts."""
        return max(0.0, self._not_before - self._clock())

    @property
    def counts_tokens(self) -> bool:
        """Whether an estimate of a call's tokens is of any use yet."""
        return self.tokens is not None

    def try_acquire(self, tokens: float = 0.0) -> bool:
        """Take a place at once if nothing stands in the way."""
        if self._waiting or self._stopped is not None:
            return False
        return self._try_to_admit(tokens, self._clock()) == 0.0

    async def acquire(self, tokens: float = 0.0) -> None:
        """Wait for a place. Raises what `stop_calls` was given."""
        self._raise_if_stopped()
        if self.try_acquire(tokens):
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(SlotWaiter(future, tokens))
        self._admit_waiting_calls()
        try:
            admitted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.release()  # the place was given in the same turn of the loop
            raise
        if admitted and self._stopped is not None:
            self.release()
        self._raise_if_stopped()

    def release(self, places: int = 1) -> None:
        """Give the place back, whatever became of the call; or those of a worker of a cluster."""
        self.in_flight -= places
        if self._waiting:
            self._admit_waiting_calls()

    def record_success(self, hints: Mapping[str, float] | None = None) -> None:
        """A reply came: rise by one place per round of replies, and learn from headers."""
        self.successes += 1
        if self._tell is not None:
            self._use.successes += 1
            if hints:
                if self._use.rate_hints is None and self.tokens is None:
                    self._tell(True)
                self._use.rate_hints = hints
            return
        if self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + 1.0 / int(self.allowed))
        if hints:
            self.update_from_headers(hints)

    def record_rate_limit(self, entered_at: float, retry_after: float | None) -> None:
        """A 429 came: halve, once for all calls sent together, and hold the model if told to."""
        if self._tell is not None:
            self._use.rate_limit_events.append((self._clock() - entered_at, retry_after))
            self._tell(True)
        elif entered_at >= self._last_cut:
            self.allowed = max(1.0, min(self.allowed, float(self.in_flight)) / 2)
            self._last_cut = self._clock()
        if retry_after:
            self.learn_hold(retry_after)

    def hold_calls(self, seconds: float) -> None:
        """Start no call for so many seconds, on no worker either."""
        self.learn_hold(seconds)
        if self._tell is not None:
            self._tell(True)

    def learn_hold(self, seconds: float) -> None:
        """Start no call for so many seconds."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    @property
    def is_lent(self) -> bool:
        """Whether it goes by grants."""
        return self._tell is not None

    def apply_grant(self, grant: Grant) -> None:
        """Go on with a grant. It was made out before calls ended that left their places here."""
        self.allowed += grant.extra_slots
        self.requests = _filled_bucket(grant.call_starts, UNLIMITED)
        self.tokens = _filled_bucket(grant.tokens, grant.max_tokens_per_call)
        self._spacing = self._own_spacing * grant.worker_count
        if grant.hold_seconds:
            self.learn_hold(grant.hold_seconds)
        self._admit_waiting_calls()

    def take_report(self) -> ModelDemand:
        """What happened since the last report; gives back what is free."""
        use, self._use = self._use, ModelDemand()
        waiting = [
            slot_waiter.tokens for slot_waiter in self._waiting if not slot_waiter.admitted.done()
        ]
        use.in_flight, use.hold_seconds = self.in_flight, self.hold_seconds
        use.waiting, use.waiting_tokens = len(waiting), sum(waiting)
        use.first = waiting[0] if waiting else 0.0
        use.starts_left, use.tokens_left = _empty_bucket(self.requests), _empty_bucket(self.tokens)
        self.allowed = float(self.in_flight)
        return use

    def stop_calls(self, error: FolkmootError) -> None:
        """Admit nobody else; those who wait get the error."""
        self._stopped = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.admitted.done():
                each.admitted.set_result(False)

    def current_time(self) -> float:
        """The limiter's clock, to be handed back to `record_rate_limit`."""
        return self._clock()

    def _raise_if_stopped(self) -> None:
        if self._stopped is not None:
            # One error for thousands of waiters: its traceback must not grow with each of them.
            raise self._stopped.with_traceback(None)

    def _try_to_admit(self, tokens: float, now: float) -> float:
        """0 and the place is taken; else the seconds to wait (infinite: until somebody leaves)."""
        is_full = self.in_flight >= int(self.allowed + 1e-9)  # a sum of fractions may fall short
        wait = UNLIMITED if is_full else self._not_before - now
        if self.requests is not None:
            wait = max(wait, self.requests.seconds_until(1.0, now))
        if self.tokens is not None:
            wait = max(wait, self.tokens.seconds_until(tokens, now))
        if wait > 0.0:
            if self._tell is not None and wait == UNLIMITED and not (is_full and self.in_flight):
                self._tell(False)
            return wait
        if self.requests is not None:
            self.requests.take_tokens(1.0)
        if self.tokens is not None:
            self.tokens.take_tokens(tokens)
        if self._spacing:
            self._not_before = now + self._spacing
        self.in_flight += 1
        return 0.0

    def _admit_waiting_calls(self) -> None:
        """Let in those who wait, in order; set an alarm if only time stands in the way."""
        while self._waiting:
            first = self._waiting[0]
            if first.admitted.done():  # cancelled while waiting
                self._waiting.popleft()
                continue
            wait = self._try_to_admit(first.tokens, self._clock())
            if wait:
                if wait != UNLIMITED:
                    self._set_alarm(wait)
                return
            self._waiting.popleft()
            first.admitted.set_result(True)

    def _set_alarm(self, seconds: float) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(seconds, 0.0005), self._on_alarm)

    def _on_alarm(self) -> None:
        self._timer = None
        self._admit_waiting_calls()

    def update_from_headers(self, hints: Mapping[str, float]) -> None:
        """Take limits, what is left and the time to full (s) over from a provider's headers."""
        now = self._clock()
        self.requests = _update_bucket(self.requests, hints, "requests", now)
        self.tokens = _update_bucket(self.tokens, hints, "tokens", now)


def _filled_bucket(amount: float, capacity: float) -> TokenBucket | None:
    """A bucket that only a grant fills."""
    return None if amount == UNLIMITED else TokenBucket(capacity, amount, 0.0, 0.0)


def _empty_bucket(bucket: TokenBucket | None) -> float:
    """What was in a bucket, and is no more."""
    if bucket is None:
        return UNLIMITED
    left, bucket.available = bucket.available, 0.0
    return left


def _update_bucket(
    old: TokenBucket | None, hints: Mapping[str, float], what: str, now: float
) -> TokenBucket | None:
    capacity = hints.get(f"{what}_limit")
    left = hints.get(f"{what}_remaining")
    if capacity is None or left is None or capacity < 1:
        return old
    reset = hints.get(f"{what}_reset", 0.0)
    used = capacity - left
    rate = used / reset if reset > 0 and used > 0 else capacity / WINDOW_SECONDS
    if old is not None:
        # Replies arrive out of order: believe the lower of what we counted and what we are told.
        old.seconds_until(0.0, now)
        left = min(left, max(old.available, 0.0)) if old.capacity == capacity else left
    return TokenBucket(capacity, left, rate, now)
