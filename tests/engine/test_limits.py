"""The limiter, with a simulated clock where time matters."""

from __future__ import annotations

import asyncio

import pytest

from folkmoot.engine.limits.rate_limiter import RateLimiter
from folkmoot.errors import RunPausedError


class ManualClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def count_admitted(limiter: RateLimiter, max_count: int = 1000) -> int:
    """Count how many more calls are admitted now."""
    count = 0
    while count < max_count and limiter.try_acquire(1.0):
        count += 1
    return count


def test_no_more_calls_than_allowed_are_admitted() -> None:
    limiter = RateLimiter(3)
    assert count_admitted(limiter) == 3
    limiter.release()
    assert count_admitted(limiter) == 1


def test_concurrency_halves_once_per_burst_and_recovers_slowly() -> None:
    clock = ManualClock()
    limiter = RateLimiter(16, clock=clock)
    assert count_admitted(limiter) == 16
    start_time = limiter.current_time()
    clock.now += 1
    for _ in range(16):  # all 16 calls get a rate limit: that counts as one signal
        limiter.record_rate_limit(start_time, None)
        limiter.release()
    assert count_admitted(limiter) == 8
    for _ in range(8):
        limiter.record_success()
        limiter.release()
    assert count_admitted(limiter) == 9  # one more after each round of replies
    for _ in range(9):
        limiter.release()
    for _ in range(1000):
        limiter.record_success()
    assert count_admitted(limiter) == 16  # never above the setting


def test_limiter_never_blocks_completely() -> None:
    clock = ManualClock()
    limiter = RateLimiter(4, clock=clock)
    for _ in range(20):
        assert limiter.try_acquire()
        clock.now += 1
        limiter.record_rate_limit(limiter.current_time(), None)
        limiter.release()
    assert count_admitted(limiter) == 1


def test_retry_after_holds_the_whole_model() -> None:
    clock = ManualClock()
    limiter = RateLimiter(8, clock=clock)
    assert limiter.try_acquire()
    limiter.record_rate_limit(limiter.current_time(), 5.0)
    limiter.release()
    clock.now += 4.9
    assert count_admitted(limiter) == 0
    clock.now += 0.2
    assert count_admitted(limiter) > 0


def test_spacing_is_the_minimum_time_between_two_starts() -> None:
    clock = ManualClock()
    limiter = RateLimiter(100, spacing=3.0, clock=clock)
    assert count_admitted(limiter) == 1
    clock.now += 2.9
    assert count_admitted(limiter) == 0
    clock.now += 0.2
    assert count_admitted(limiter) == 1


def test_requests_per_minute_are_learnt_from_headers() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1000, clock=clock)
    hints = {"requests_limit": 60.0, "requests_remaining": 10.0, "requests_reset": 50.0}
    assert limiter.try_acquire()
    limiter.record_success(hints)
    limiter.release()
    assert count_admitted(limiter) == 10
    clock.now += 5.0  # refills at (60 - 10) / 50 = 1 a second
    assert count_admitted(limiter) == 5


def test_tokens_are_counted_once_limited_and_a_very_large_call_still_passes() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1000, clock=clock)
    assert not limiter.counts_tokens
    limiter.try_acquire()
    limiter.record_success({"tokens_limit": 1000.0, "tokens_remaining": 1000.0})
    assert limiter.counts_tokens
    assert limiter.try_acquire(600.0) and not limiter.try_acquire(600.0)
    clock.now += 60.0
    # More than one minute allows: waits until the bucket is full.
    assert limiter.try_acquire(5000.0)
    assert not limiter.try_acquire(1.0)


async def test_waiting_calls_are_admitted_in_order_of_arrival() -> None:
    limiter = RateLimiter(1)
    order: list[int] = []

    async def call(number: int) -> None:
        await limiter.acquire()
        order.append(number)
        await asyncio.sleep(0)
        limiter.release()

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))
    assert limiter.in_flight == 0


async def test_cancelled_call_takes_no_slot() -> None:
    limiter = RateLimiter(1)
    assert limiter.try_acquire()
    waiting = [asyncio.ensure_future(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    limiter.release()
    waiting[1].cancel()  # in the same loop turn in which the slot is granted
    await waiting[2]
    assert limiter.in_flight == 1


async def test_hold_ends_by_itself() -> None:
    limiter = RateLimiter(2)
    limiter.hold_calls(0.02)
    await limiter.acquire()
    assert limiter.in_flight == 1


async def test_stop_ends_all_waiting_calls() -> None:
    limiter = RateLimiter(1)
    assert limiter.try_acquire()
    waiting = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    limiter.stop_calls(RunPausedError("enough"))
    with pytest.raises(RunPausedError):
        await waiting
    with pytest.raises(RunPausedError):
        await limiter.acquire()
    assert not limiter.try_acquire()
