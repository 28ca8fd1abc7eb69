"""The rate limiter of one model: concurrency, calls and tokens per minute, and pauses."""

# The concurrency is halved after a 429 and rises by one with each round of successes. The limiter
# learns requests and tokens per minute from the provider's headers. A `Retry-After` header delays
# all calls to the model. The gateway has one limiter per model. An uncontended call costs about a
# microsecond. On a cluster worker, the limiter only follows the limiter in the main process, and
# reports limits, errors and successes to it.

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from folkmoot.errors import FolkmootError

# The refill time of a limit "per minute" if the headers give no reset time.
WINDOW_SECONDS = 60.0
UNLIMITED = math.inf


@dataclass(slots=True)
class TokenBucket:
    """An amount of calls or tokens that refills at a rate per second."""

    capacity: float
    available: float
    rate: float
    updated_at: float

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available."""
        # At most the capacity can become available.
        self.available = min(self.capacity, self.available + (now - self.updated_at) * self.rate)
        self.updated_at = now
        missing_tokens = min(amount, self.capacity) - self.available
        if missing_tokens <= 1e-9:
            return 0.0
        return missing_tokens / self.rate if self.rate else UNLIMITED

    def take_tokens(self, amount: float) -> None:
        self.available -= min(amount, self.capacity)


@dataclass(slots=True)
class ModelDemand:
    """A cluster worker's report on one model: waiting calls, unused limits and errors."""

    in_flight: int = 0
    waiting: int = 0
    waiting_tokens: float = 0.0
    # The number of tokens of the call that has waited longest.
    first: float = 0.0
    starts_left: float = 0.0
    tokens_left: float = 0.0
    successes: int = 0
    rate_hints: Mapping[str, float] | None = None
    # Two numbers for each 429: the seconds since the call began, and the requested wait in seconds.
    rate_limit_events: list[tuple[float, float | None]] = field(default_factory=list)
    # The remaining time in which no call to the model may start.
    hold_seconds: float = 0.0
    retries: int = 0
    lost_calls: int = 0


@dataclass(slots=True)
class Grant:
    """The part of one model's limits that a cluster worker may use."""

    # It holds until the worker's next report.
    # The number of slots to add, or to give up if it is negative.
    extra_slots: int = 0
    # The number of calls that may start, and the tokens for them.
    call_starts: float = 0.0
    tokens: float = 0.0
    # A call never waits for more tokens than these.
    max_tokens_per_call: float = UNLIMITED
    # For this time, no call starts.
    hold_seconds: float = 0.0
    # The minimum time between calls is divided among this number of workers.
    worker_count: int = 1
    # True if the model has answered at least once.
    answered: bool = False


class SlotWaiter(NamedTuple):
    """A call that waits until fewer calls to the same model are in flight."""

    admitted: asyncio.Future[bool]
    tokens: float


class RateLimiter:
    """Admits the calls to one model, first come, first served.

    - `concurrency`: the maximum number of calls in flight.
    - `spacing`: the minimum time between two starts, in seconds.
    - `tell`: only on a cluster worker, sends a report to the main process.
    """

    # The limiter calls `tell(False)` if the worker's share of the limits is too small, and
    # `tell(True)` if the other workers should know a new limit at once.
    # With `tell`, the limiter admits no call until the main process assigns it a share of the
    # limits.
    def __init__(
        self,
        concurrency: int,
        spacing: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[bool], None] | None = None,
    ) -> None:
        # `allowed` is a float, because it rises by fractions. `max_concurrency` is its upper bound.
        self.max_concurrency = max(1, concurrency)
        self.allowed = float(self.max_concurrency) if tell is None else 0.0
        self.in_flight = 0
        self.successes = 0
        # When the wait for an exhausted quota ends. None if a call that began later succeeded, or
        # if there was no such wait.
        self._quota_wait_ends: float | None = None
        self._spacing = self._own_spacing = spacing
        self._clock = clock
        self._tell = tell
        self._use = ModelDemand()
        self._not_before = 0.0
        # When the concurrency was last halved.
        self._last_cut = 0.0
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        self._waiting: deque[SlotWaiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: FolkmootError | None = None

    @property
    def hold_seconds(self) -> float:
        """The number of seconds until a call may start."""
        return max(0.0, self._not_before - self._clock())

    @property
    def counts_tokens(self) -> bool:
        """True if the provider reports a limit of tokens."""
        return self.tokens is not None

    def try_acquire(self, tokens: float = 0.0) -> bool:
        """Admit a call if it may start now. Return whether the call was admitted."""
        if self._waiting or self._stopped is not None:
            return False
        return self._try_to_admit(tokens, self._clock()) == 0.0

    async def acquire(self, tokens: float = 0.0) -> None:
        """Wait until a call may start.

        Raises the error given to `stop_calls`.
        """
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
                # The slot was given in the turn of the event loop that also cancelled the call.
                self.release()
            raise
        if admitted and self._stopped is not None:
            self.release()
        self._raise_if_stopped()

    def release(self, slots: int = 1) -> None:
        """Give back the slots of calls that have ended, so that other calls may start."""
        self.in_flight -= slots
        if self._waiting:
            self._admit_waiting_calls()

    def record_success(
        self, hints: Mapping[str, float] | None = None, entered_at: float = 0.0
    ) -> None:
        """Record a success and apply the limits in the reply's headers.

        `entered_at`: the time at which the call was started.
        """
        # Each round of successful replies raises the concurrency by one.
        self.successes += 1
        if self.has_waited_for_quota(entered_at):
            self._quota_wait_ends = None
        if self._tell is not None:
            self._use.successes += 1
            if hints:
                # The first limits that any worker sees must reach the others before they start more
                # calls.
                if self._use.rate_hints is None and self.tokens is None:
                    self._tell(True)
                self._use.rate_hints = hints
            return
        if self.allowed < self.max_concurrency:
            # Adding 1/n for each of n replies gives one slot per round.
            self.allowed = min(float(self.max_concurrency), self.allowed + 1.0 / int(self.allowed))
        if hints:
            self.update_from_headers(hints)

    def record_rate_limit(self, entered_at: float, retry_after: float | None) -> None:
        """Halve the concurrency after an HTTP status 429, and pause for `retry_after` seconds.

        `entered_at`: the time at which the rejected call was started.
        """
        # If several calls that were in flight together get a 429, the concurrency is halved once.
        if self._tell is not None:
            self._use.rate_limit_events.append((self._clock() - entered_at, retry_after))
            self._tell(True)
        # A call sent before the last cut says nothing about the new concurrency.
        elif entered_at >= self._last_cut:
            self.allowed = max(1.0, min(self.allowed, float(self.in_flight)) / 2)
            self._last_cut = self._clock()
        if retry_after:
            self.learn_hold(retry_after)

    def hold_calls(self, seconds: float) -> None:
        """Start no call to the model for this many seconds, on any worker."""
        self.learn_hold(seconds)
        if self._tell is not None:
            self._tell(True)

    def begin_quota_wait(self, seconds: float) -> bool:
        """Start no call for this many seconds, because the quota is exhausted.

        Returns False if such a wait has begun before, and no call succeeded after it.
        """
        if self._quota_wait_ends is not None:
            return False
        self._quota_wait_ends = self._clock() + seconds
        self.hold_calls(seconds)
        return True

    def has_waited_for_quota(self, entered_at: float) -> bool:
        """Return True if a call that started at `entered_at` has waited for the quota."""
        return self._quota_wait_ends is not None and entered_at >= self._quota_wait_ends

    @property
    def quota_wait_left(self) -> float | None:
        """The seconds until the wait for the quota ends, or None if there is no such wait."""
        return None if self._quota_wait_ends is None else self._quota_wait_ends - self._clock()

    def learn_hold(self, seconds: float) -> None:
        """Start no call to the model for this many seconds in this process."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    @property
    def is_lent(self) -> bool:
        """True on a cluster worker, where the main process sets the limits."""
        return self._tell is not None

    def apply_grant(self, grant: Grant) -> None:
        """Use the part of the limits that the main process has sent to this worker."""
        self.allowed += grant.extra_slots
        self.requests = _filled_bucket(grant.call_starts, UNLIMITED)
        self.tokens = _filled_bucket(grant.tokens, grant.max_tokens_per_call)
        self._spacing = self._own_spacing * grant.worker_count
        if grant.hold_seconds:
            self.learn_hold(grant.hold_seconds)
        self._admit_waiting_calls()

    def take_report(self) -> ModelDemand:
        """Return what has happened since the last report and what waiting calls need."""
        # Unused parts of the limits are given back with the report.
        demand, self._use = self._use, ModelDemand()
        waiting = [waiter.tokens for waiter in self._waiting if not waiter.admitted.done()]
        demand.in_flight, demand.hold_seconds = self.in_flight, self.hold_seconds
        demand.waiting, demand.waiting_tokens = len(waiting), sum(waiting)
        demand.first = waiting[0] if waiting else 0.0
        demand.starts_left, demand.tokens_left = (
            _empty_bucket(self.requests),
            _empty_bucket(self.tokens),
        )
        # Free slots are given back: the head grants new ones at once.
        self.allowed = float(self.in_flight)
        return demand

    def stop_calls(self, error: FolkmootError) -> None:
        """Admit no more calls and raise `error` in waiting calls."""
        self._stopped = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.admitted.done():
                waiter.admitted.set_result(False)

    def current_time(self) -> float:
        """Return the time by the limiter's clock, in seconds."""
        # Callers pass this time to `record_rate_limit` as `entered_at`.
        return self._clock()

    def _raise_if_stopped(self) -> None:
        if self._stopped is not None:
            # One error ends thousands of calls. Each raise would add its frames to the shared
            # traceback.
            raise self._stopped.with_traceback(None)

    def _try_to_admit(self, tokens: float, now: float) -> float:
        # Returns 0 if the call is admitted, or the seconds after which it may be, infinite if
        # another call must end first.
        # A sum of fractions may be slightly below the next integer.
        is_full = self.in_flight >= int(self.allowed + 1e-9)
        wait = UNLIMITED if is_full else self._not_before - now
        if self.requests is not None:
            wait = max(wait, self.requests.seconds_until(1.0, now))
        if self.tokens is not None:
            wait = max(wait, self.tokens.seconds_until(tokens, now))
        if wait > 0.0:
            # Only a new grant can end this wait. If slots are full with calls in flight, their end
            # will.
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
        while self._waiting:
            first = self._waiting[0]
            # The call was cancelled while it waited.
            if first.admitted.done():
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
            # At least 0.5 ms, because a timer of 0 might fire before the bucket has refilled.
            self._timer = loop.call_later(max(seconds, 0.0005), self._on_alarm)

    def _on_alarm(self) -> None:
        self._timer = None
        self._admit_waiting_calls()

    def update_from_headers(self, hints: Mapping[str, float]) -> None:
        """Apply the limits, remaining amounts and reset times in a provider's headers."""
        # Reset times are in seconds.
        now = self._clock()
        self.requests = _update_bucket(self.requests, hints, "requests", now)
        self.tokens = _update_bucket(self.tokens, hints, "tokens", now)


def _filled_bucket(amount: float, capacity: float) -> TokenBucket | None:
    return None if amount == UNLIMITED else TokenBucket(capacity, amount, 0.0, 0.0)


def _empty_bucket(bucket: TokenBucket | None) -> float:
    if bucket is None:
        return UNLIMITED
    left, bucket.available = bucket.available, 0.0
    return left


def _update_bucket(
    old: TokenBucket | None, hints: Mapping[str, float], unit: str, now: float
) -> TokenBucket | None:
    capacity = hints.get(f"{unit}_limit")
    left = hints.get(f"{unit}_remaining")
    if capacity is None or left is None or capacity < 1:
        return old
    reset = hints.get(f"{unit}_reset", 0.0)
    used = capacity - left
    # A reset time is the time until the bucket is full again, so the used amount refills in it.
    rate = used / reset if reset > 0 and used > 0 else capacity / WINDOW_SECONDS
    if old is not None:
        # Replies arrive out of order, so use the lower of our count and the reported amount.
        old.seconds_until(0.0, now)
        left = min(left, max(old.available, 0.0)) if old.capacity == capacity else left
    return TokenBucket(capacity, left, rate, now)
