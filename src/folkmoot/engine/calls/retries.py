"""Send one call until it is answered, and react to each error."""

# Some errors end a call for good: a wrong key, an empty quota, used-up retries, a reached budget.
# Such an error stops all calls. A plain status 400 may concern one prompt or every call. A rejected
# call therefore waits for the model's next answer to another call. If an answer arrives, the prompt
# was the reason, and only this call is rejected. The run stops if no other call is in progress and
# the model has never answered. The run also stops after `MAX_CONSECUTIVE_REJECTIONS` rejected
# prompts without an answer between them.

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from folkmoot.engine.calls.progress import CallRetried, Notice, Progress
from folkmoot.engine.limits.budget import Budget, CallPrice
from folkmoot.engine.limits.lender import Loan
from folkmoot.engine.limits.rate_limiter import RateLimiter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    BudgetReachedError,
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
from folkmoot.models.prices import FREE_PRICE, find_highest_price, find_price
from folkmoot.models.request import Completion, Provider, Usage, backoff_seconds
from folkmoot.storage.manifest import ModelUsage

R = TypeVar("R")

# If a provider asks to wait longer, the run pauses instead of blocking a process for hours.
MAX_RETRY_AFTER_SECONDS = 600.0
# A provider in this process never waits, so it gives way to other coroutines at least this often.
EVENT_LOOP_YIELD_SECONDS = 0.02
# The usual length of a reply, for estimates of calls without `max_tokens`.
ASSUMED_OUTPUT_TOKENS = 400
# Slots of a model in this process: practically unlimited.
LOCAL_MODEL_CONCURRENCY = 1_000_000
# Tokens reserved for a reply without a limit (no `max_tokens`).
UNBOUNDED_OUTPUT_TOKENS = 4096
# Scope names have their % escaped, so no address of a study begins like this.
PREFLIGHT_SCOPE = "preflight%"
# Rejected prompts in a row, without an answer between them, after which the run stops.
MAX_CONSECUTIVE_REJECTIONS = 3


@dataclass(slots=True)
class ModelState:
    """The state of one model in a run: provider, limits, usage and recent rejections."""

    name: str
    provider: Provider
    spec: ModelSpec
    limiter: RateLimiter
    usage: ModelUsage
    # True once the model has answered a prompt with images.
    accepts_images: bool = False
    # Tokens of the longest reply without a limit.
    longest_output_tokens: int = ASSUMED_OUTPUT_TOKENS
    # These decide about rejected prompts: answers so far, rejections since the last answer, calls
    # that may still bring an answer, and the event that wakes waiting calls.
    completion_count: int = 0
    consecutive_rejections: int = 0
    calls_in_progress: int = 0
    verdict_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def price(
        self, max_input_tokens: int, max_output_tokens: int | None, *, batched: bool = False
    ) -> CallPrice:
        """Return the maximum and the expected price of a call, in USD.

        `max_output_tokens` is None if the length of the reply is not limited.
        """

        rate = find_highest_price(self.spec)
        if rate is None:
            return CallPrice()
        rate = rate.batch_price() if batched else rate
        if max_output_tokens is not None:
            usd = rate.max_cost_usd(max_input_tokens, max_output_tokens)
            return CallPrice(usd, usd)
        # Without a limit the expected price assumes the longest reply so far.
        unbounded = max(UNBOUNDED_OUTPUT_TOKENS, self.longest_output_tokens)
        return CallPrice(
            rate.max_cost_usd(max_input_tokens, unbounded),
            rate.max_cost_usd(max_input_tokens, self.longest_output_tokens),
        )

    def notify_waiters(self) -> None:
        """Wake the calls that wait for this model's answers."""
        self.verdict_changed.set()
        # A new event for the next news: an event that stays set wakes all later waiters at once.
        self.verdict_changed = asyncio.Event()

    def cost(self, usage: Usage, *, batched: bool = False) -> float | None:
        """Return the cost in USD, or None if the price or the tokens are unknown."""
        rate = find_price(self.spec)
        if rate is None:
            return None
        return (rate.batch_price() if batched else rate).cost(usage)

    def embedding_cost(self, usage: Usage, max_input_tokens: int) -> float | None:
        """Return the cost of embeddings in USD, or None if the price is unknown.

        `max_input_tokens`: an upper bound of the tokens. It counts if the server stated no number.
        """
        # Embeddings have no output, so their cost has an upper bound. That of a reply has none
        # without a token limit.
        usd = self.cost(usage)
        if usd is None and find_price(self.spec) is not None:
            return self.price(max_input_tokens, 0).max_usd
        return usd


@dataclass(slots=True)
class ModelCall:
    """One call and its progress through budget, limiter and retries."""

    address: str
    # An upper bound of the tokens sent.
    max_input_tokens: int
    # Returns the token limit of the reply, or None for no limit.
    max_output_tokens: Callable[[], int | None]
    # The model has already answered this question in another form. A rejection is then no evidence
    # against other calls.
    has_alternative: bool = False
    # The call goes through the batch queue and takes no slot of a rate limiter.
    batched: bool = False
    attempts: int = 0
    failures: int = 0
    started_at: float = 0.0
    latency_s: float = 0.0
    # The cost (USD) reserved in the budget. None until it is reserved.
    reserved_usd: float | None = None
    # The cost (USD) that was written to disk before the call was sent. None until it is written.
    covered_usd: float | None = None


class RunHaltedError(FolkmootError):
    """Raised in place of starting a new call, because the run is about to stop."""


class OtherRunStoppedError(RunPausedError):
    """Raised in a cell of a grid that is stopped because another cell stopped.

    - `cause`: the error of the other cell.
    """

    def __init__(self, cause: FolkmootError) -> None:
        super().__init__(f"stopped because another cell of the grid stopped ({cause})")


class Stoppable(Protocol):
    """An object that makes calls and can be told to start no more calls."""

    def stop_calls(self, error: FolkmootError) -> None: ...


class SharedLimits:
    """The limits that calls compete for: the budget and the number of calls in flight.

    - `shared`: True if several runs share these limits.
    - `tell`: on a cluster worker, sends a report to the main process.
    - `loan`: on a cluster worker, the calls that the worker may send.
    """

    # If runs share the limits, an empty quota, a wrong key or a spent budget stops all of them.
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
        """Return the rate limiter of a model.

        `local`: True for a limiter that admits any number of calls at once.
        """
        if model not in self.limiters:
            limiter = (
                RateLimiter(LOCAL_MODEL_CONCURRENCY)
                if local
                else RateLimiter(self._concurrency, spacing, tell=self._tell)
            )
            self.limiters[model] = limiter
            # A model that is first asked after the stop must not start calls either.
            if self._stopped is not None:
                limiter.stop_calls(self._stopped)
        return self.limiters[model]

    def stop_calls(self, error: FolkmootError, *, stop_all_runs: bool = False) -> None:
        """Raise `error` in all waiting calls and start no new calls."""
        # If several runs share the limits, a RunHaltedError says that only one of them stops.
        if self._shared and isinstance(error, RunHaltedError) and not stop_all_runs:
            return
        self._stopped = self._stopped or error
        self.budget.stop_calls(error)
        for limiter in (self.total_concurrency, *self.limiters.values()):
            limiter.stop_calls(error)
        # All runs share the budget. Every other error is that of one run, and its model or its disk
        # may be none of the other runs.
        concerns_all = isinstance(error, (BudgetReachedError, RunHaltedError, OtherRunStoppedError))
        error_of_others = (
            OtherRunStoppedError(error) if self._shared and not concerns_all else error
        )
        for stoppable in self.stoppables:
            stoppable.stop_calls(error_of_others)

    @property
    def is_stopped(self) -> bool:
        """True if no run that shares these limits may start new calls."""
        return self._stopped is not None


class RetryPolicy:
    """The object that makes the calls of one run, and retries failed calls as the study file says.

    - `progress`: receives an event for each wait.
    - `on_stop`: receives an error that stops the run.
    - `loan`: how many calls to hosted models may be sent. The number is on disk before the calls.
    """

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
        self._shared_limits = shared_limits
        self._budget = shared_limits.budget
        self._all = shared_limits.total_concurrency
        self._progress = progress
        self._on_stop = on_stop
        self._loan = loan
        self._stop = asyncio.Event()
        # When this policy last yielded to the event loop.
        self._yielded = 0.0
        shared_limits.stoppables.append(self)

    def stop_calls(self, error: FolkmootError) -> None:
        """Start no new calls."""
        # The first error is kept.
        if self.stopped is None:
            self.stopped = error
            self._stop.set()
            self._on_stop(error)
            if self._loan is not None:
                self._loan.stop_calls(error)
            self._shared_limits.stop_calls(error)

    async def wait_for_result_or_halt(self, answer: asyncio.Future[R]) -> None:
        """Wait until `answer` is done or the run stops new calls."""
        has_ended = asyncio.Event()
        stop = asyncio.ensure_future(self._stop.wait())
        for future in (answer, stop):
            future.add_done_callback(lambda _: has_ended.set())
        try:
            await has_ended.wait()
        finally:
            stop.cancel()

    async def run(
        self, model_state: ModelState, call: ModelCall, send: Callable[[], Awaitable[R]]
    ) -> R:
        """Send a call, and send it again after transient errors, until it is answered.

        Raises the error that stops the run.
        Raises RejectedError if the server rejects this prompt but accepts other prompts.
        """
        model_state.calls_in_progress += 1
        try:
            result = await self._attempt_until_completed(model_state, call, send)
            model_state.completion_count += 1
            if model_state.consecutive_rejections:
                model_state.consecutive_rejections = 0
                model_state.notify_waiters()
            return result
        except RejectedError as error:
            rejection = error
        finally:
            model_state.calls_in_progress -= 1
            # No call is left that could still bring an answer, so waiting calls must decide.
            if model_state.consecutive_rejections and not model_state.calls_in_progress:
                model_state.notify_waiters()
        # A rejected call costs nothing. Release its reservation before waiting for the verdict,
        # because other calls may wait for the money.
        if call.reserved_usd is not None:
            self._budget.record_cost(call.reserved_usd, 0.0)
            call.reserved_usd = None
        if not call.has_alternative:
            await self._wait_for_rejection_verdict(model_state, rejection)
        raise rejection

    async def _wait_for_rejection_verdict(
        self, model_state: ModelState, error: RejectedError
    ) -> None:
        # Other calls show whether a rejection concerns one prompt or all prompts.
        answers_before = model_state.completion_count
        model_state.consecutive_rejections += 1
        # Calls of the same fork may be about to start.
        await asyncio.sleep(0)
        while model_state.calls_in_progress and model_state.completion_count == answers_before:
            await model_state.verdict_changed.wait()
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        has_answered_before = model_state.completion_count or model_state.usage.replayed
        if model_state.completion_count == answers_before and (
            not has_answered_before
            or model_state.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS
        ):
            # Either the model never answered, or it stopped answering.
            fatal = FatalModelError(str(error))
            self.stop_calls(fatal)
            model_state.notify_waiters()
            raise fatal from error

    async def _attempt_until_completed(
        self, model_state: ModelState, call: ModelCall, send: Callable[[], Awaitable[R]]
    ) -> R:
        limiter = model_state.limiter
        successes = limiter.successes
        while True:
            if self._budget.active and call.reserved_usd is None:
                await self._reserve_budget(model_state, call)
            call.started_at = call.started_at or time.time()
            await self._acquire_slot(model_state, call)
            # The model may reject everything. Do not send further prompts until that is decided.
            if (
                model_state.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS
                and not call.attempts
            ):
                self._release_slot(model_state, call)
                await self._pause_until_model_accepts(model_state, call)
                continue
            await self._cover_call(model_state, call)
            call.attempts += 1
            entered_at = limiter.current_time()
            try:
                result = await send()
            except RateLimitedError as error:
                if not call.batched:
                    limiter.record_rate_limit(entered_at, _hold_seconds(error))
                # While other calls succeed, a 429 means a queue and not a failure of this call, so
                # it does not count against its retries.
                call.failures += limiter.successes == successes
                successes = limiter.successes
                wait = self._backoff_seconds(model_state, call, error)
            except TransientError as error:
                call.failures += 1
                # The call may have reached the model, so its usage may be lost.
                model_state.usage.lost_calls += 1
                wait = self._backoff_seconds(model_state, call, error)
            except QuotaError as error:
                wait = self._handle_quota_error(model_state, entered_at, error)
            except FatalModelError as error:
                self.stop_calls(error)
                raise
            else:
                call.latency_s = limiter.current_time() - entered_at
                # Embeddings come without hints.
                limiter.record_success(
                    result.rate_limit_hints if isinstance(result, Completion) else None,
                    entered_at,
                )
                if model_state.spec.local:
                    await self._yield_to_event_loop()
                return result
            finally:
                self._release_slot(model_state, call)
            # A batched call waits for the next wave anyway, but no wave waits for a quota.
            if not call.batched or limiter.quota_wait_left is not None:
                await self._sleep_until_stopped(wait)

    async def _cover_call(self, model_state: ModelState, call: ModelCall) -> None:
        # After a kill the loan on disk shows that the call may be billed. The call waits for the
        # disk only if calls start much faster than before.
        loan = self._loan
        if loan is None or call.covered_usd is not None or call.batched or model_state.spec.local:
            return
        usd = call.reserved_usd
        if usd is None:
            rate = find_price(model_state.spec)
            usd = (
                model_state.price(call.max_input_tokens, call.max_output_tokens()).max_usd
                if rate is not None and rate is not FREE_PRICE
                else 0.0
            )
            # From now on the loan has no known maximum cost.
            loan.unpriced = loan.unpriced or rate is None
        if not loan.try_cover(usd):
            try:
                await loan.wait_until_covered(usd)
            except BaseException:
                self._release_slot(model_state, call)
                raise
        call.covered_usd = usd

    async def _pause_until_model_accepts(self, model_state: ModelState, call: ModelCall) -> None:
        # A paused call cannot bring the answer that others wait for.
        model_state.calls_in_progress -= 1
        if call.reserved_usd is not None:
            self._budget.release_reservation(call.reserved_usd)
            call.reserved_usd = None
        try:
            if not model_state.calls_in_progress:
                model_state.notify_waiters()
            while (
                model_state.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS
                and self.stopped is None
            ):
                await model_state.verdict_changed.wait()
        finally:
            model_state.calls_in_progress += 1

    def _release_slot(self, model_state: ModelState, call: ModelCall) -> None:
        if call.batched:
            return
        if not model_state.spec.local:
            self._all.release()
        model_state.limiter.release()

    async def _acquire_slot(self, model_state: ModelState, call: ModelCall) -> None:
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        if call.batched:
            return
        limiter = model_state.limiter
        # About 4 bytes per token in English. The limiter needs an estimate, not a bound.
        tokens = call.max_input_tokens / 4 + ASSUMED_OUTPUT_TOKENS if limiter.counts_tokens else 0.0
        if not limiter.try_acquire(tokens):
            await self._wait_for_permission(limiter.acquire(tokens))
        try:
            if not model_state.spec.local and not self._all.try_acquire():
                await self._wait_for_permission(self._all.acquire())
        except BaseException:
            limiter.release()
            raise
        # Another run that shares the limiter stopped all calls during the wait.
        if self.stopped is not None:
            self._release_slot(model_state, call)
            raise self.stopped.with_traceback(None)

    async def _reserve_budget(self, model_state: ModelState, call: ModelCall) -> None:
        # Ask the budget before the limiter: a call that waits for money must not hold a slot.
        try:
            price = model_state.price(
                call.max_input_tokens,
                call.max_output_tokens(),
                batched=self._uses_batch_price(call),
            )
            call.reserved_usd = await self._wait_for_permission(self._budget.reserve_call(price))
        except RunPausedError as error:
            self.stop_calls(error)
            raise

    async def _wait_for_permission(self, waiting: Awaitable[R]) -> R:
        try:
            return await waiting
        except FolkmootError:
            # Limits that several runs share raise the error of the run that stopped first. This run
            # has an error that says so.
            if self.stopped is not None:
                raise self.stopped.with_traceback(None) from None
            raise

    def _uses_batch_price(self, call: ModelCall) -> bool:
        # With `batch: auto` a few calls that wait together are sent directly, at the full price.
        # Without `batch`, only the calls of an earlier process are batched.
        return call.batched and self._config.batch != "auto"

    def _backoff_seconds(
        self, model_state: ModelState, call: ModelCall, error: TransientError
    ) -> float:
        # Returns the seconds until the next attempt.
        config = self._config
        model_state.usage.retries += 1
        requested_wait = error.retry_after or 0.0
        if requested_wait > MAX_RETRY_AFTER_SECONDS:
            self._pause_run(model_state, f"asks to wait {requested_wait:.0f} s", error)
        if call.failures > config.max_api_retries:
            reason = f"did not answer in {call.attempts} attempts (max_api_retries)"
            self._pause_run(model_state, reason, error)
        # The wait is drawn from the seed, like all randomness of a run.
        draw = config.random_seed, call.address, "retry", call.attempts
        wait = backoff_seconds(config.api_retry_base_seconds, call.failures, *draw)
        # After a rate limit, the limiter already holds all calls for the requested time. Otherwise
        # the drawn wait is added to the requested one, so that calls do not return together.
        is_held = isinstance(error, RateLimitedError) and not call.batched
        seconds = max(wait, requested_wait) if is_held else wait + requested_wait
        billed = (error.may_be_billed, error.max_usd)
        self._progress(CallRetried(model_state.name, str(error), seconds, call.attempts, *billed))
        return wait if is_held else seconds

    def _handle_quota_error(
        self, model_state: ModelState, entered_at: float, error: QuotaError
    ) -> float:
        # Returns the seconds until the next attempt. The account is empty for all calls to the
        # model, so they wait together. Pause the run if a call that began after the wait, this one
        # or another, finds the account empty again.
        seconds, limiter = self._config.quota_wait_seconds, model_state.limiter
        if limiter.has_waited_for_quota(entered_at):
            exhausted = QuotaExhaustedError(
                f"The quota of {model_state.name} is still exhausted after a wait of "
                f"{seconds:g} s: {error}"
            )
            self.stop_calls(exhausted)
            raise exhausted from error
        model_state.usage.retries += 1
        if limiter.begin_quota_wait(seconds):
            self._progress(
                Notice(f"{model_state.name}: {error}; waiting once for {seconds:g} s", "warning")
            )
        return limiter.quota_wait_left or 0.0

    def _pause_run(self, model_state: ModelState, reason: str, error: TransientError) -> None:
        pause = RunPausedError(f"{model_state.name} {reason}; the last error: {error}")
        self.stop_calls(pause)
        raise pause from error

    async def _sleep_until_stopped(self, seconds: float) -> None:
        if seconds > 0 and not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), seconds)
            except TimeoutError:
                return

    async def _yield_to_event_loop(self) -> None:
        # Providers in this process never wait, so other coroutines would not run.
        now = time.perf_counter()
        if now - self._yielded > EVENT_LOOP_YIELD_SECONDS:
            await asyncio.sleep(0)
            self._yielded = time.perf_counter()


def _hold_seconds(error: TransientError) -> float | None:
    return None if error.retry_after is None else min(error.retry_after, MAX_RETRY_AFTER_SECONDS)
