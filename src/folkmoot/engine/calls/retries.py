"""One call, tried until there is an answer: budget, limiter, loan, and the policy for each kind of
error.

Used by the gateway, which journals what comes of it. What stops one call for good (wrong key, no
quota, attempts used up, budget) stops all: nobody starts another, and those who wait are released.

A plain 400 may be about one prompt or about every call. The replies to others decide: it waits for
the next of its model. Once the model answers somebody, it was the prompt, and the call ends as
rejected. The run stops where nobody else is under way and the model has never answered, or where
`IN_A_ROW` prompts were rejected without an answer between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from folkmoot.engine.calls.progress import CallRetried, Notice, Progress
from folkmoot.engine.limits.budget import Budget, Price
from folkmoot.engine.limits.lender import Loan
from folkmoot.engine.limits.rate_limiter import Limiter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    QuotaError,
    QuotaExhausted,
    RateLimited,
    RejectedError,
    RunPaused,
    TransientError,
)
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.prices import FREE, Rate
from folkmoot.models.request import Provider, Usage
from folkmoot.randomness import uniform
from folkmoot.storage.manifest import ModelUse

R = TypeVar("R")

LONGEST_BACKOFF = 60.0
LONGEST_RETRY_AFTER = 600.0  # a provider that asks for more pauses the run instead
YIELD_SECONDS = 0.02  # a provider in this process lets others run at least this often
GUESSED_OUTPUT_TOKENS = 400
UNBOUNDED = 1_000_000  # places at the limiter of a model in this process
UNBOUNDED_REPLY = 4096  # tokens reserved for a reply that nothing bounds (no max_tokens)
PREFLIGHT = "preflight%"  # names of scopes have their % escaped: no study's address begins so
IN_A_ROW = 3  # rejected prompts without an answer between them


@dataclass(slots=True)
class Line:
    """What the gateway knows of one model."""

    name: str
    provider: Provider
    spec: ModelSpec
    limiter: Limiter
    rate: Rate | None
    use: ModelUse
    # Messages of the provider about the model; the list grows, `told` counts those passed on.
    notes: Sequence[str] = ()
    told: int = 0
    sees: bool = False  # it has answered a prompt with images
    longest_reply: int = GUESSED_OUTPUT_TOKENS  # tokens, of those that nothing bounded
    # For the verdict on rejected prompts: answers so far, rejections since the last of them, calls
    # that may still bring one, and what wakes those who wait for news of these.
    answers: int = 0
    rejected: int = 0
    trying: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def price(self, most_in: int, most_out: int | None, *, batched: bool = False) -> Price:
        """The most that a call may cost; `most_out` None where nothing bounds the reply."""

        if self.rate is None:
            return Price()
        rate = self.rate.batched() if batched else self.rate
        if most_out is not None:
            usd = rate.dearest(most_in, most_out)
            return Price(usd, usd)
        unbounded = max(UNBOUNDED_REPLY, self.longest_reply)
        return Price(rate.dearest(most_in, unbounded), rate.dearest(most_in, self.longest_reply))

    def tell(self) -> None:
        """Wake everyone who waits for this model's answers."""
        self.news.set()
        self.news = asyncio.Event()

    def cost(self, usage: Usage, *, batched: bool = False) -> float | None:
        """The cost of the tokens (USD); None where the price or their number is unknown."""
        if self.rate is None:
            return None
        return (self.rate.batched() if batched else self.rate).cost(usage)


@dataclass(slots=True)
class Call:
    """One call and its progress. `most_in` bounds the tokens that are sent.

    `most_out` gives the bound on the reply's tokens (None: unbounded). `reserved` is what the
    budget holds for it (USD), None until it is admitted; `covered` what the loan holds for it, None
    until it is sent. A rejected `spare` call, which the model
    has answered in another form, says nothing about other calls.
    """

    address: str
    most_in: int
    most_out: Callable[[], int | None]
    spare: bool = False
    batched: bool = False  # it waits in the outbox, and takes no place at a limiter
    attempts: int = 0
    failures: int = 0
    waited_for_quota: bool = False
    started_at: float = 0.0
    latency_s: float = 0.0
    reserved: float | None = None
    covered: float | None = None


class Halted(FolkmootError):
    """Inside the engine only: no new call may start, because the run is about to stop."""


class Stoppable(Protocol):
    """Who makes calls, and starts no more once it is told to stop."""

    def stop(self, error: FolkmootError) -> None: ...


class Allowance:
    """What calls compete for: money and places at the models. Runs of a grid share one.

    Each model has its own limiter; `places` also bounds all models together. What stops one of
    several runs (no quota, wrong key, budget) stops all; the end of one stops no other. With
    `tell` the models' limiters go by grants (see `Limiter`). `loan` is given where another process
    lends.
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
        self.places = Limiter(concurrency)
        self.users: list[Stoppable] = []
        self._shared = shared
        self._concurrency = concurrency
        self.limiters: dict[str, Limiter] = {}
        self._stopped: FolkmootError | None = None

    def limiter(self, model: str, spacing: float, *, local: bool) -> Limiter:
        """The limiter of a model; one in this process has places for everybody."""
        if model not in self.limiters:
            made = (
                Limiter(UNBOUNDED)
                if local
                else Limiter(self._concurrency, spacing, tell=self._tell)
            )
            self.limiters[model] = made
            if self._stopped is not None:
                made.stop(self._stopped)
        return self.limiters[model]

    def stop(self, error: FolkmootError, *, everybody: bool = False) -> None:
        """Release all who wait, with the error."""
        if self._shared and isinstance(error, Halted) and not everybody:
            return
        self._stopped = self._stopped or error
        self.budget.stop(error)
        for limiter in (self.places, *self.limiters.values()):
            limiter.stop(error)
        for user in self.users:
            user.stop(error)


class Attempts:
    """The policy of a run, with the settings of its study file. `progress` hears of every wait,
    `told` of what stops the run. What is sent to others is covered by the `loan`."""

    def __init__(
        self,
        config: StudyConfig,
        allowance: Allowance,
        progress: Progress,
        told: Callable[[FolkmootError], None] = lambda _: None,
        loan: Loan | None = None,
    ) -> None:
        self.stopped: FolkmootError | None = None
        self._config = config
        self._allowance = allowance
        self._budget = allowance.budget
        self._all = allowance.places
        self._progress = progress
        self._told = told
        self._loan = loan
        self._stop = asyncio.Event()
        self._yielded = 0.0
        allowance.users.append(self)

    def stop(self, error: FolkmootError) -> None:
        """Start no more calls; the first error counts."""
        if self.stopped is None:
            self.stopped = error
            self._stop.set()
            self._told(error)
            if self._loan is not None:
                self._loan.stop(error)
            self._allowance.stop(error)

    async def unless_halted(self, answer: asyncio.Future[R]) -> None:
        """Return when the answer is there, or when no more calls may start."""
        settled = asyncio.Event()
        stop = asyncio.ensure_future(self._stop.wait())
        for one in (answer, stop):
            one.add_done_callback(lambda _: settled.set())
        try:
            await settled.wait()
        finally:
            stop.cancel()

    async def run(self, line: Line, call: Call, send: Callable[[], Awaitable[R]]) -> R:
        """Send until there is an answer. Raises what stops the run, and RejectedError where the
        server takes other prompts, but not this one."""
        line.trying += 1
        try:
            result = await self._answer(line, call, send)
            line.answers += 1
            if line.rejected:
                line.rejected = 0
                line.tell()
            return result
        except RejectedError as error:
            rejected = error
        finally:
            line.trying -= 1
            if line.rejected and not line.trying:
                line.tell()
        if call.reserved is not None:  # it cost nothing, and others may wait for the money
            self._budget.settle(call.reserved, 0.0)
            call.reserved = None
        if not call.spare:
            await self._judge(line, rejected)
        raise rejected

    async def _judge(self, line: Line, error: RejectedError) -> None:
        """Wait for the verdict on a rejected prompt; raises if others fail as well."""
        answers = line.answers
        line.rejected += 1
        await asyncio.sleep(0)  # calls of the same fork may be about to begin
        while line.trying and line.answers == answers:
            await line.news.wait()
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        ever = line.answers or line.use.replayed
        if line.answers == answers and (not ever or line.rejected >= IN_A_ROW):
            fatal = FatalModelError(str(error))
            self.stop(fatal)
            line.tell()
            raise fatal from error

    async def _answer(self, line: Line, call: Call, send: Callable[[], Awaitable[R]]) -> R:
        limiter = line.limiter
        successes = limiter.successes
        while True:
            if self._budget.active and call.reserved is None:
                await self._reserve(line, call)
            call.started_at = call.started_at or time.time()
            await self._enter(line, call)
            if line.rejected >= IN_A_ROW and not call.attempts:
                self._leave(line, call)
                await self._stand_back(line, call)
                continue
            await self._cover(line, call)
            call.attempts += 1
            entered = limiter.now()
            try:
                result = await send()
            except RateLimited as error:
                if not call.batched:
                    limiter.rate_limited(entered, _held(error))
                # While others get through, a 429 is a queue and not a failure of this call.
                call.failures += limiter.successes == successes
                successes = limiter.successes
                wait = self._after(line, call, error)
            except TransientError as error:
                call.failures += 1
                line.use.lost += 1
                wait = self._after(line, call, error) + (error.retry_after or 0.0)
            except QuotaError as error:
                wait = self._after_quota(line, call, error)
            except FatalModelError as error:
                self.stop(error)
                raise
            else:
                call.latency_s = limiter.now() - entered
                limiter.succeeded(getattr(result, "hints", None))
                if line.spec.local:
                    await self._breathe()
                return result
            finally:
                self._leave(line, call)
            if not call.batched:  # the next batch is wait enough
                await self._sleep(wait)

    async def _cover(self, line: Line, call: Call) -> None:
        """Have it on the disk that the call may be paid. It has its place: it waits for no money,
        and for the disk only where many more calls begin than a moment ago."""
        loan = self._loan
        if loan is None or call.covered is not None or call.batched or line.spec.local:
            return
        usd = call.reserved
        if usd is None:
            priced = line.rate is not None and line.rate is not FREE
            usd = line.price(call.most_in, call.most_out()).dearest if priced else 0.0
            loan.unpriced = loan.unpriced or line.rate is None
        if not loan.try_cover(usd):
            try:
                await loan.cover(usd)
            except BaseException:
                self._leave(line, call)
                raise
        call.covered = usd

    async def _stand_back(self, line: Line, call: Call) -> None:
        """Send nothing more, and reserve no money, until it is known whether the model takes any
        prompt."""
        line.trying -= 1
        if call.reserved is not None:
            self._budget.release(call.reserved)
            call.reserved = None
        try:
            if not line.trying:
                line.tell()
            while line.rejected >= IN_A_ROW and self.stopped is None:
                await line.news.wait()
        finally:
            line.trying += 1

    def _leave(self, line: Line, call: Call) -> None:
        if call.batched:
            return
        if not line.spec.local:
            self._all.leave()
        line.limiter.leave()

    async def _enter(self, line: Line, call: Call) -> None:
        """Wait for a place at the limiter."""
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        if call.batched:
            return
        limiter = line.limiter
        tokens = call.most_in / 4 + GUESSED_OUTPUT_TOKENS if limiter.counts_tokens else 0.0
        if not limiter.try_enter(tokens):
            await limiter.enter(tokens)
        try:
            if not line.spec.local and not self._all.try_enter():
                await self._all.enter()
        except BaseException:
            limiter.leave()
            raise
        if self.stopped is not None:  # while it waited, by a run that shares the limiter
            self._leave(line, call)
            raise self.stopped.with_traceback(None)

    async def _reserve(self, line: Line, call: Call) -> None:
        """Wait until the budget agrees to a call, or stop the run.

        It comes before the limiter: a call that waits for money must not hold a place that a retry
        needs.
        """
        try:
            price = line.price(call.most_in, call.most_out(), batched=self._cheaper(call))
            call.reserved = await self._budget.reserve(price)
        except RunPaused as error:
            self.stop(error)
            raise

    def _cheaper(self, call: Call) -> bool:
        """Whether a call is certain to be charged at the price of batches."""
        return call.batched and self._config.batch is True

    def _after(self, line: Line, call: Call, error: TransientError) -> float:
        """Seconds to wait, with full jitter, or pause the run when the attempts are used up."""
        config = self._config
        line.use.retries += 1
        asked = error.retry_after or 0.0
        if asked > LONGEST_RETRY_AFTER:
            self._pause(line, f"asks to wait {asked:.0f} s", error)
        if call.failures > config.max_api_retries:
            why = f"gave no answer in {call.attempts} attempts (max_api_retries)"
            self._pause(line, why, error)
        doubled = config.api_retry_base_seconds * 2.0 ** min(max(call.failures, 1) - 1, 10)
        longest = min(LONGEST_BACKOFF, doubled)
        wait = longest * uniform(config.random_seed, call.address, "retry", call.attempts)
        billed = (error.may_be_billed, error.max_usd)
        self._progress(CallRetried(line.name, str(error), max(wait, asked), call.attempts, *billed))
        return wait

    def _after_quota(self, line: Line, call: Call, error: QuotaError) -> float:
        """The account is empty: hold the model the first time; after that wait, pause the run."""
        seconds = self._config.quota_wait_seconds
        if call.waited_for_quota:
            empty = QuotaExhausted(
                f"The quota of {line.name} is still used up after a wait of {seconds:g} s: {error}"
            )
            self.stop(empty)
            raise empty from error
        call.waited_for_quota = True
        line.use.retries += 1
        line.limiter.hold(seconds)
        self._progress(Notice(f"{line.name}: {error}; one wait of {seconds:g} s", "warning"))
        return 0.0

    def _pause(self, line: Line, why: str, error: TransientError) -> None:
        paused = RunPaused(f"{line.name} {why}; the last error: {error}")
        self.stop(paused)
        raise paused from error

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but wake when the run is stopped."""
        if seconds > 0 and not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), seconds)
            except TimeoutError:
                return

    async def _breathe(self) -> None:
        """Let the loop turn now and then when providers answer without ever waiting."""
        now = time.perf_counter()
        if now - self._yielded > YIELD_SECONDS:
            await asyncio.sleep(0)
            self._yielded = time.perf_counter()


def _held(error: TransientError) -> float | None:
    """How long to hold the model: as long as it asked for, within reason."""
    return None if error.retry_after is None else min(error.retry_after, LONGEST_RETRY_AFTER)
