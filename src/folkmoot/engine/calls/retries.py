"""One call, tried until there is an answer: budget, limiter, loan, and the policy for each kind of
error.

Used by the gateway, which journals what comes of it. What stops one call for good (wrong key, no
quota, attempts used up, budget) stops all: nobody starts another, and those who wait are released.

A plain 400 may be about one prompt or about every call. The replies to others decide: it waits for
the next of its model. Once the model answers somebody, it was the prompt, and the call ends as
rejected. The run stops where nobody else is under way and the model has never answered, or where
`MAX_CONSECUTIVE_REJECTIONS` prompts were rejected without an answer between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from folkmoot.engine.calls.progress import CallRetried, Notice, Progress
from folkmoot.engine.limits.budget import Budget, CallPrice
from folkmoot.engine.limits.lender import Loan
from folkmoot.engine.limits.rate_limiter import RateLimiter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    QuotaError,
    QuotaExhaustedError,
    RateLimitedError,
    RejectedError,
    RunPausedError,
    TransientError,
)
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.prices import FREE_PRICE, ModelPrice
from folkmoot.models.request import Provider, Usage
from folkmoot.randomness import uniform_values
from folkmoot.storage.manifest import ModelUsage

R = TypeVar("R")

MAX_BACKOFF_SECONDS = 60.0
MAX_RETRY_AFTER_SECONDS = 600.0  # a provider that asks for more pauses the run instead
EVENT_LOOP_YIELD_SECONDS = 0.02  # a provider in this process lets others run at least this often
ASSUMED_OUTPUT_TOKENS = 400
LOCAL_MODEL_CONCURRENCY = 1_000_000  # places at the limiter of a model in this process
UNBOUNDED_OUTPUT_TOKENS = 4096  # tokens reserved for a reply that nothing bounds (no max_tokens)
PREFLIGHT_SCOPE = "preflight%"  # names of scopes have their % escaped: no study's address begins so
MAX_CONSECUTIVE_REJECTIONS = 3  # rejected prompts without an answer between them


@dataclass(slots=True)
class ModelState:
    """What the gateway knows of one model."""

    name: str
    provider: Provider
    spec: ModelSpec
    limiter: RateLimiter
    rate: ModelPrice | None
    usage: ModelUsage
    # Messages of the provider about the model; the list grows, `notes_reported` counts those passed
    # on.
    notes: Sequence[str] = ()
    notes_reported: int = 0
    sees: bool = False  # it has answered a prompt with images
    longest_output_tokens: int = ASSUMED_OUTPUT_TOKENS  # tokens, of those that nothing bounded
    # For the verdict on rejected prompts: answers so far, rejections since the last of them, calls
    # that may still bring one, and what wakes those who wait for news of these.
    answers: int = 0
    consecutive_rejections: int = 0
    calls_in_progress: int = 0
    verdict_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def price(
        self, max_input_tokens: int, max_output_tokens: int | None, *, batched: bool = False
    ) -> CallPrice:
        """The most that a call may cost; `max_output_tokens` None where nothing bounds the
        reply."""

        if self.rate is None:
            return CallPrice()
        rate = self.rate.batch_price() if batched else self.rate
        if max_output_tokens is not None:
            usd = rate.max_cost_usd(max_input_tokens, max_output_tokens)
            return CallPrice(usd, usd)
        unbounded = max(UNBOUNDED_OUTPUT_TOKENS, self.longest_output_tokens)
        return CallPrice(
            rate.max_cost_usd(max_input_tokens, unbounded),
            rate.max_cost_usd(max_input_tokens, self.longest_output_tokens),
        )

    def notify_waiters(self) -> None:
        """Wake everyone who waits for this model's answers."""
        self.verdict_changed.set()
        self.verdict_changed = asyncio.Event()

    def cost(self, usage: Usage, *, batched: bool = False) -> float | None:
        """The cost of the tokens (USD); None where the price or their number is unknown."""
        if self.rate is None:
            return None
        return (self.rate.batch_price() if batched else self.rate).cost(usage)


@dataclass(slots=True)
class ModelCall:
    """One call and its progress. `max_input_tokens` bounds the tokens that are sent.

    `max_output_tokens` gives the bound on the reply's tokens (None: unbounded). `reserved_usd` is
    what the budget holds for it (USD), None until it is admitted; `covered` what the loan holds for
    it, None until it is sent. A rejected `has_alternative` call, which the model
    has answered in another form, says nothing about other calls.
    """

    address: str
    max_input_tokens: int
    max_output_tokens: Callable[[], int | None]
    has_alternative: bool = False
    batched: bool = False  # it waits in the outbox, and takes no place at a limiter
    attempts: int = 0
    failures: int = 0
    waited_for_quota: bool = False
    started_at: float = 0.0
    latency_s: float = 0.0
    reserved_usd: float | None = None
    covered: float | None = None


class RunHaltedError(FolkmootError):
    """Inside the engine only: no new call may start, because the run is about to stop."""


class Stoppable(Protocol):
    """Who makes calls, and starts no more once it is told to stop."""

    def stop_calls(self, error: FolkmootError) -> None: ...


class SharedLimits:
    """What calls compete for: money and places at the models. Runs of a grid share one.

    Each model has its own limiter; `total_concurrency` also bounds all models together. What stops
    one of several runs (no quota, wrong key, budget) stops all; the end of one stops no other. With
    `tell` the models' limiters go by grants (see `RateLimiter`). `loan` is given where another
    process lends.
    """

    def __init__(
        self,
        budget: Budget,
        concurrency: int,
        *,
        shared: bool = False,
        tell: Callable[[bool], None] | None = None,
        loan: Loan | None = None,
    ) -> None:
        self.budget = budget
        self.loan = loan
        self._tell = tell
        self.total_concurrency = RateLimiter(concurrency)
        self.stoppables: list[Stoppable] = []
        self._shared = shared
        self._concurrency = concurrency
        self.limiters: dict[str, RateLimiter] = {}
        self._stopped: FolkmootError | None = None

    def get_limiter(self, model: str, spacing: float, *, local: bool) -> RateLimiter:
        """The limiter of a model; one in this process has places for everybody."""
        if model not in self.limiters:
            made = (
                RateLimiter(LOCAL_MODEL_CONCURRENCY)
                if local
                else RateLimiter(self._concurrency, spacing, tell=self._tell)
            )
            self.limiters[model] = made
            if self._stopped is not None:
                made.stop_calls(self._stopped)
        return self.limiters[model]

    def stop_calls(self, error: FolkmootError, *, stop_all_runs: bool = False) -> None:
        """Release all who wait, with the error."""
        if self._shared and isinstance(error, RunHaltedError) and not stop_all_runs:
            return
        self._stopped = self._stopped or error
        self.budget.stop_calls(error)
        for limiter in (self.total_concurrency, *self.limiters.values()):
            limiter.stop_calls(error)
        for user in self.stoppables:
            user.stop_calls(error)


class RetryPolicy:
    """The policy of a run, with the settings of its study file. `progress` hears of every wait,
    `on_stop` is told of what stops the run. What is sent to others is covered by the `loan`."""

    def __init__(
        self,
        config: StudyConfig,
        shared_limits: SharedLimits,
        progress: Progress,
        on_stop: Callable[[FolkmootError], None] = lambda _: None,
        loan: Loan | None = None,
    ) -> None:
        self.stopped: FolkmootError | None = None
        self._config = config
        self._allowance = shared_limits
        self._budget = shared_limits.budget
        self._all = shared_limits.total_concurrency
        self._progress = progress
        self._told = on_stop
        self._loan = loan
        self._stop = asyncio.Event()
        self._yielded = 0.0
        shared_limits.stoppables.append(self)

    def stop_calls(self, error: FolkmootError) -> None:
        """Start no more calls; the first error counts."""
        if self.stopped is None:
            self.stopped = error
            self._stop.set()
            self._told(error)
            if self._loan is not None:
                self._loan.stop_calls(error)
            self._allowance.stop_calls(error)

    async def wait_for_result_or_halt(self, answer: asyncio.Future[R]) -> None:
        """Return when the answer is there, or when no more calls may start."""
        settled = asyncio.Event()
        stop = asyncio.ensure_future(self._stop.wait())
        for one in (answer, stop):
            one.add_done_callback(lambda _: settled.set())
        try:
            await settled.wait()
        finally:
            stop.cancel()

    async def run(self, line: ModelState, call: ModelCall, send: Callable[[], Awaitable[R]]) -> R:
        """Send until there is an answer. Raises what stops the run, and RejectedError where the
        server takes other prompts, but not this one."""
        line.calls_in_progress += 1
        try:
            result = await self._attempt_until_completed(line, call, send)
            line.answers += 1
            if line.consecutive_rejections:
                line.consecutive_rejections = 0
                line.notify_waiters()
            return result
        except RejectedError as error:
            rejected = error
        finally:
            line.calls_in_progress -= 1
            if line.consecutive_rejections and not line.calls_in_progress:
                line.notify_waiters()
        if call.reserved_usd is not None:  # it cost nothing, and others may wait for the money
            self._budget.record_cost(call.reserved_usd, 0.0)
            call.reserved_usd = None
        if not call.has_alternative:
            await self._wait_for_rejection_verdict(line, rejected)
        raise rejected

    async def _wait_for_rejection_verdict(self, line: ModelState, error: RejectedError) -> None:
        """Wait for the verdict on a rejected prompt; raises if others fail as well."""
        answers = line.answers
        line.consecutive_rejections += 1
        await asyncio.sleep(0)  # calls of the same fork may be about to begin
        while line.calls_in_progress and line.answers == answers:
            await line.verdict_changed.wait()
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        ever = line.answers or line.usage.replayed
        if line.answers == answers and (
            not ever or line.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS
        ):
            fatal = FatalModelError(str(error))
            self.stop_calls(fatal)
            line.notify_waiters()
            raise fatal from error

    async def _attempt_until_completed(
        self, line: ModelState, call: ModelCall, send: Callable[[], Awaitable[R]]
    ) -> R:
        limiter = line.limiter
        successes = limiter.successes
        while True:
            if self._budget.active and call.reserved_usd is None:
                await self._reserve_budget(line, call)
            call.started_at = call.started_at or time.time()
            await self._acquire_slot(line, call)
            if line.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS and not call.attempts:
                self._release_slot(line, call)
                await self._pause_until_model_accepts(line, call)
                continue
            await self._cover_call(line, call)
            call.attempts += 1
            entered = limiter.current_time()
            try:
                result = await send()
            except RateLimitedError as error:
                if not call.batched:
                    limiter.record_rate_limit(entered, _hold_seconds(error))
                # While others get through, a 429 is a queue and not a failure of this call.
                call.failures += limiter.successes == successes
                successes = limiter.successes
                wait = self._backoff_seconds(line, call, error)
            except TransientError as error:
                call.failures += 1
                line.usage.lost_calls += 1
                wait = self._backoff_seconds(line, call, error) + (error.retry_after or 0.0)
            except QuotaError as error:
                wait = self._handle_quota_error(line, call, error)
            except FatalModelError as error:
                self.stop_calls(error)
                raise
            else:
                call.latency_s = limiter.current_time() - entered
                limiter.record_success(getattr(result, "rate_limit_hints", None))
                if line.spec.local:
                    await self._yield_to_event_loop()
                return result
            finally:
                self._release_slot(line, call)
            if not call.batched:  # the next batch is wait enough
                await self._sleep_until_stopped(wait)

    async def _cover_call(self, line: ModelState, call: ModelCall) -> None:
        """Have it on the disk that the call may be paid. It has its place: it waits for no money,
        and for the disk only where many more calls begin than a moment ago."""
        loan = self._loan
        if loan is None or call.covered is not None or call.batched or line.spec.local:
            return
        usd = call.reserved_usd
        if usd is None:
            priced = line.rate is not None and line.rate is not FREE_PRICE
            usd = (
                line.price(call.max_input_tokens, call.max_output_tokens()).max_usd
                if priced
                else 0.0
            )
            loan.unpriced = loan.unpriced or line.rate is None
        if not loan.try_cover(usd):
            try:
                await loan.wait_until_covered(usd)
            except BaseException:
                self._release_slot(line, call)
                raise
        call.covered = usd

    async def _pause_until_model_accepts(self, line: ModelState, call: ModelCall) -> None:
        """Send nothing more, and reserve no money, until it is known whether the model takes any
        prompt."""
        line.calls_in_progress -= 1
        if call.reserved_usd is not None:
            self._budget.release_reservation(call.reserved_usd)
            call.reserved_usd = None
        try:
            if not line.calls_in_progress:
                line.notify_waiters()
            while (
                line.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS and self.stopped is None
            ):
                await line.verdict_changed.wait()
        finally:
            line.calls_in_progress += 1

    def _release_slot(self, line: ModelState, call: ModelCall) -> None:
        if call.batched:
            return
        if not line.spec.local:
            self._all.release()
        line.limiter.release()

    async def _acquire_slot(self, line: ModelState, call: ModelCall) -> None:
        """Wait for a place at the limiter."""
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        if call.batched:
            return
        limiter = line.limiter
        tokens = call.max_input_tokens / 4 + ASSUMED_OUTPUT_TOKENS if limiter.counts_tokens else 0.0
        if not limiter.try_acquire(tokens):
            await limiter.acquire(tokens)
        try:
            if not line.spec.local and not self._all.try_acquire():
                await self._all.acquire()
        except BaseException:
            limiter.release()
            raise
        if self.stopped is not None:  # while it waited, by a run that shares the limiter
            self._release_slot(line, call)
            raise self.stopped.with_traceback(None)

    async def _reserve_budget(self, line: ModelState, call: ModelCall) -> None:
        """Wait until the budget agrees to a call, or stop the run.

        It comes before the limiter: a call that waits for money must not hold a place that a retry
        needs.
        """
        try:
            price = line.price(
                call.max_input_tokens,
                call.max_output_tokens(),
                batched=self._uses_batch_price(call),
            )
            call.reserved_usd = await self._budget.reserve_call(price)
        except RunPausedError as error:
            self.stop_calls(error)
            raise

    def _uses_batch_price(self, call: ModelCall) -> bool:
        """Whether a call is certain to be charged at the price of batches."""
        return call.batched and self._config.batch is True

    def _backoff_seconds(self, line: ModelState, call: ModelCall, error: TransientError) -> float:
        """Seconds to wait, with full jitter, or pause the run when the attempts are used up."""
        config = self._config
        line.usage.retries += 1
        asked = error.retry_after or 0.0
        if asked > MAX_RETRY_AFTER_SECONDS:
            self._pause_run(line, f"asks to wait {asked:.0f} s", error)
        if call.failures > config.max_api_retries:
            why = f"gave no answer in {call.attempts} attempts (max_api_retries)"
            self._pause_run(line, why, error)
        doubled = config.api_retry_base_seconds * 2.0 ** min(max(call.failures, 1) - 1, 10)
        longest = min(MAX_BACKOFF_SECONDS, doubled)
        wait = longest * uniform_values(config.random_seed, call.address, "retry", call.attempts)
        billed = (error.may_be_billed, error.max_usd)
        self._progress(CallRetried(line.name, str(error), max(wait, asked), call.attempts, *billed))
        return wait

    def _handle_quota_error(self, line: ModelState, call: ModelCall, error: QuotaError) -> float:
        """The account is empty: hold the model the first time; after that wait, pause the run."""
        seconds = self._config.quota_wait_seconds
        if call.waited_for_quota:
            empty = QuotaExhaustedError(
                f"The quota of {line.name} is still used up after a wait of {seconds:g} s: {error}"
            )
            self.stop_calls(empty)
            raise empty from error
        call.waited_for_quota = True
        line.usage.retries += 1
        line.limiter.hold_calls(seconds)
        self._progress(Notice(f"{line.name}: {error}; one wait of {seconds:g} s", "warning"))
        return 0.0

    def _pause_run(self, line: ModelState, why: str, error: TransientError) -> None:
        paused = RunPausedError(f"{line.name} {why}; the last error: {error}")
        self.stop_calls(paused)
        raise paused from error

    async def _sleep_until_stopped(self, seconds: float) -> None:
        """Sleep, but wake when the run is stopped."""
        if seconds > 0 and not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), seconds)
            except TimeoutError:
                return

    async def _yield_to_event_loop(self) -> None:
        """Let the loop turn now and then when providers answer without ever waiting."""
        now = time.perf_counter()
        if now - self._yielded > EVENT_LOOP_YIELD_SECONDS:
            await asyncio.sleep(0)
            self._yielded = time.perf_counter()


def _hold_seconds(error: TransientError) -> float | None:
    """How long to hold the model: as long as it asked for, within reason."""
    return None if error.retry_after is None else min(error.retry_after, MAX_RETRY_AFTER_SECONDS)
