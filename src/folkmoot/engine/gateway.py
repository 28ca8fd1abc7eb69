"""The gateway: the one way to a model. journal → budget → limiter → provider → retry → journal.

Used by the run's context, which asks it for every reply and every embedding. A call that the
journal knows is never made again; a reply that was paid for is always journaled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from folkmoot.engine.accounts import GatewayEvent, GatewaySettings, ModelStats
from folkmoot.engine.budget import Budget
from folkmoot.engine.journal import Entry, Journal
from folkmoot.engine.limits import Limiter
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    QuotaError,
    QuotaExhausted,
    RateLimited,
    RefusedError,
    RunPaused,
    TransientError,
)
from folkmoot.models.catalog import ModelSpec
from folkmoot.models.prices import Rate, rate_for
from folkmoot.models.request import FloatArray, Provider, Reply, Request, Usage
from folkmoot.randomness import digest, uniform

__all__ = ["Gateway", "GatewayEvent", "GatewaySettings", "ModelStats"]

R = TypeVar("R")

LONGEST_BACKOFF = 60.0
LONGEST_RETRY_AFTER = 600.0  # a provider that asks for more pauses the run instead
YIELD_SECONDS = 0.02  # a provider in this process lets others run at least this often
GUESSED_OUTPUT_TOKENS = 400
UNBOUNDED = 1_000_000


@dataclass(slots=True)
class _Line:
    """What the gateway keeps of one model."""

    name: str
    provider: Provider
    spec: ModelSpec
    limiter: Limiter
    rate: Rate | None
    stats: ModelStats


@dataclass(slots=True)
class _Trace:
    """How one call went."""

    attempts: int = 0
    started_at: float = 0.0
    latency_s: float = 0.0


class Gateway:
    """Answers requests at addresses. One per run; belongs to one event loop.

    `provider_for(model)` gives the provider and what the catalog knows of the model; it is asked
    once a model. `on_event` is told of retries, waits, refusals and warnings, `on_call` of every
    answer (its entry, and whether it was replayed).

    Raises: DriftError (the journal knows another request), RunPaused and its kinds (retries,
    quota or budget used up), FatalModelError (wrong key, unknown model), StorageError.
    """

    def __init__(
        self,
        journal: Journal,
        provider_for: Callable[[str], tuple[Provider, ModelSpec]],
        settings: GatewaySettings,
        *,
        seed: int = 0,
        on_event: Callable[[GatewayEvent], None] = lambda _: None,
        on_call: Callable[[Entry, bool], None] | None = None,
    ) -> None:
        self.stats: dict[str, ModelStats] = {}
        self.in_flight = 0
        self.stopped: FolkmootError | None = None
        self._journal = journal
        self._provider_for = provider_for
        self._settings = settings
        self._seed = seed
        self._on_event = on_event
        self._on_call = on_call
        self._lines: dict[str, _Line] = {}
        self._stop = asyncio.Event()
        self._idle: asyncio.Event | None = None
        self._yielded = 0.0
        self.budget = Budget(
            settings.budget_usd,
            settings.budget_calls,
            spent_usd=settings.spent_usd,
            spent_calls=settings.spent_calls,
            warn=lambda message: self._tell("budget", "", message),
        )

    async def complete(self, address: str, request: Request) -> Reply:
        """The reply at an address: replayed if it is journaled, else asked for and journaled.

        A refusal is a reply with an empty text and `finish` of `refused:<reason>`.
        """
        fingerprint = request.fingerprint()
        entry = self._journal.lookup(address, fingerprint, request.to_json)
        line = self._line(request.model)
        replayed = entry is not None
        if entry is None:
            entry = await self._ask(line, address, request, fingerprint)
        else:
            self._count(line, entry, replayed=True)
        return Reply(
            entry.reply,
            Usage(entry.input_tokens, entry.output_tokens, entry.cached_tokens),
            entry.model_served,
            entry.request_id,
            entry.finish,
            entry.latency_s,
            entry.started_at,
            entry.cost_usd,
            replayed,
        )

    async def embed(self, address: str, model: str, texts: Sequence[str]) -> FloatArray:
        """Embeddings (n, d) of the texts, float32, as the provider gave them."""
        asked = {"model": model, "texts": list(texts)}
        fingerprint = digest(model, *texts)
        entry = self._journal.lookup(address, fingerprint, lambda: asked)
        line = self._line(model)
        if entry is not None:
            self._count(line, entry, replayed=True)
            return _vectors(entry.blob or b"", len(texts))
        size = sum(map(len, texts))

        async def send() -> tuple[FloatArray, Usage]:
            return await line.provider.embed(line.spec.wire_model, texts, address=address)

        trace = _Trace()
        reserved = self._reserve(line, size, 0)
        try:
            vectors, usage = await self._persist(line, address, size, send, trace)
            vectors = np.ascontiguousarray(vectors, dtype=np.float32)
            entry = Entry(
                address=address,
                kind="embed",
                fingerprint=fingerprint,
                request=asked,
                blob=vectors.tobytes(),
                input_tokens=usage.input_tokens,
                cost_usd=_cost(line, usage),
                latency_s=trace.latency_s,
                attempts=trace.attempts,
                model_asked=model,
                started_at=trace.started_at,
            )
        except BaseException:
            self._left(reserved)
            raise
        self._keep(line, entry, reserved)
        return _vectors(entry.blob or b"", len(texts))

    def stop(self, error: FolkmootError) -> None:
        """Begin no more calls: whoever would, or waits to, gets the error. The first one counts.

        Calls in flight go on; `drain` waits for them.
        """
        if self.stopped is None:
            self.stopped = error
            self._stop.set()
            for line in self._lines.values():
                line.limiter.stop(error)

    async def drain(self) -> None:
        """Wait until no call is in flight and every reply is on the disk."""
        if self.in_flight:
            self._idle = asyncio.Event()
            await self._idle.wait()
        await self._journal.flush()

    async def close(self) -> None:
        """Close the providers' connections."""
        for line in self._lines.values():
            await line.provider.close()

    async def _ask(self, line: _Line, address: str, request: Request, fingerprint: bytes) -> Entry:
        """Make the call of a request and journal what came, a refusal included."""
        spec = line.spec
        sent = (
            request if spec.wire_model == request.model else replace(request, model=spec.wire_model)
        )
        provider = line.provider
        size = sum(len(m.content) for m in request.messages)
        trace = _Trace()
        reserved = self._reserve(line, size, request.max_tokens or GUESSED_OUTPUT_TOKENS)
        try:
            try:
                reply = await self._persist(
                    line, address, size, lambda: provider.complete(sent, address=address), trace
                )
            except RefusedError as error:
                self._tell("refused", line.name, str(error), address)
                reply = Reply("", finish=f"refused:{error.reason}")
            entry = Entry(
                address,
                "ask",
                fingerprint,
                request.to_json(),
                _sound(reply.text),
                None,
                reply.finish,
                reply.usage.input_tokens,
                reply.usage.output_tokens,
                reply.usage.cached_tokens,
                _cost(line, reply.usage),
                trace.latency_s,
                trace.attempts,
                request.model,
                reply.model_served,
                reply.request_id,
                trace.started_at,
            )
        except BaseException:
            self._left(reserved)
            raise
        self._keep(line, entry, reserved)
        return entry

    async def _persist(
        self,
        line: _Line,
        address: str,
        size: int,
        send: Callable[[], Awaitable[R]],
        trace: _Trace,
    ) -> R:
        """Send until there is an answer, with the design's policy for each kind of error."""
        limiter = line.limiter
        failures, others = 0, limiter.successes
        waited_for_quota = False
        trace.started_at = time.time()
        while True:
            await self._enter(limiter, size)
            trace.attempts += 1
            entered = limiter.now()
            try:
                result = await send()
            except TransientError as error:
                line.stats.retries += 1
                if isinstance(error, RateLimited):
                    limiter.rate_limited(entered, _patience(error))
                    # While others get through, a 429 is a queue and not a failure of this call.
                    failures += limiter.successes == others
                    others = limiter.successes
                else:
                    failures += 1
                limiter.leave()
                await self._back_off(line, address, error, failures, trace.attempts)
            except QuotaError as error:
                limiter.hold(self._settings.quota_wait_seconds)
                limiter.leave()
                self._quota(line, address, error, waited_for_quota)
                waited_for_quota = True
            except RefusedError:
                limiter.succeeded()
                limiter.leave()
                trace.latency_s = limiter.now() - entered
                raise
            except FatalModelError as error:
                line.stats.errors += 1
                limiter.leave()
                self.stop(error)
                raise
            except BaseException:
                limiter.leave()
                raise
            else:
                trace.latency_s = limiter.now() - entered
                limiter.succeeded(getattr(result, "hints", None))
                limiter.leave()
                if line.spec.local:
                    await self._breathe()
                return result

    async def _enter(self, limiter: Limiter, size: int) -> None:
        if self.stopped is not None:
            raise self.stopped
        tokens = size / 4 + GUESSED_OUTPUT_TOKENS if limiter.counts_tokens else 0.0
        if not limiter.try_enter(tokens):
            await limiter.enter(tokens)

    async def _back_off(
        self, line: _Line, address: str, error: TransientError, failures: int, attempts: int
    ) -> None:
        """Wait with full jitter before the next try, or pause the run when tries are used up."""
        settings = self._settings
        asked = error.retry_after or 0.0
        if failures > settings.max_api_retries or asked > LONGEST_RETRY_AFTER:
            line.stats.errors += 1
            why = (
                f"asks to wait {asked:.0f} s"
                if asked > LONGEST_RETRY_AFTER
                else f"gave no answer in {attempts} tries (max_api_retries)"
            )
            paused = RunPaused(f"{line.name} {why}; the last error: {error}")
            self.stop(paused)
            raise paused from error
        longest = min(
            LONGEST_BACKOFF, settings.api_retry_base_seconds * 2.0 ** min(max(failures, 1) - 1, 10)
        )
        wait = longest * uniform(self._seed, address, "retry", attempts)
        if not isinstance(error, RateLimited):
            wait += asked
        kind = "rate_limited" if isinstance(error, RateLimited) else "retry"
        self._tell(kind, line.name, str(error), address, max(wait, asked))
        await self._sleep(wait)

    def _quota(self, line: _Line, address: str, error: QuotaError, waited: bool) -> None:
        """The account is empty: the first time hold the model, after that wait pause the run."""
        seconds = self._settings.quota_wait_seconds
        if waited:
            line.stats.errors += 1
            empty = QuotaExhausted(
                f"The quota of {line.name} is used up, also after a wait of {seconds:g} s: {error}"
            )
            self.stop(empty)
            raise empty from error
        line.stats.retries += 1
        self._tell("quota", line.name, str(error), address, seconds)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but wake with the error when the gateway is stopped."""
        if self._stop.is_set():
            return
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

    def _reserve(self, line: _Line, size: int, output: int) -> float:
        """Count a call as under way; what the budget reserved for it."""
        if self.stopped is not None:
            raise self.stopped
        reserved = 0.0
        if self.budget.active:
            guess = Usage(size // 4, min(output, GUESSED_OUTPUT_TOKENS))
            try:
                reserved = self.budget.admit(_cost(line, guess))
            except RunPaused as error:
                self.stop(error)
                raise
        self.in_flight += 1
        return reserved

    def _keep(self, line: _Line, entry: Entry, reserved: float) -> None:
        """Journal a paid reply and settle its bill."""
        try:
            self._journal.put(entry)
        except FolkmootError as error:
            self.stop(error)
            self._left(reserved)
            raise
        self._count(line, entry, replayed=False)
        self._left(reserved, entry)

    def _count(self, line: _Line, entry: Entry, *, replayed: bool) -> None:
        line.stats.add(entry, replayed=replayed)
        if self._on_call is not None:
            self._on_call(entry, replayed)

    def _left(self, reserved: float, entry: Entry | None = None) -> None:
        """A call is no longer under way; `entry` is what it came to."""
        self.in_flight -= 1
        if self.budget.active:
            if entry is None:
                self.budget.release(reserved)
            else:
                self.budget.settle(reserved, entry.cost_usd)
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    def _line(self, model: str) -> _Line:
        line = self._lines.get(model)
        return line if line is not None else self._open_line(model)

    def _open_line(self, model: str) -> _Line:
        provider, spec = self._provider_for(model)
        settings = self._settings
        limiter = (
            Limiter(UNBOUNDED)
            if spec.local
            else Limiter(settings.concurrency, settings.api_sleep_seconds)
        )
        if self.stopped is not None:
            limiter.stop(self.stopped)
        rate = rate_for(spec)
        if rate is None and self.budget.usd is not None:
            self._tell(
                "price", model, "its price is unknown: budget_usd cannot count it, budget_calls can"
            )
        line = _Line(
            model, provider, spec, limiter, rate, self.stats.setdefault(model, ModelStats())
        )
        self._lines[model] = line
        return line

    def _tell(
        self, kind: str, model: str, message: str, address: str = "", seconds: float = 0.0
    ) -> None:
        self._on_event(GatewayEvent(kind, model, message, address, seconds))


def _patience(error: TransientError) -> float | None:
    """How long to hold the model: what was asked for, within reason."""
    return None if error.retry_after is None else min(error.retry_after, LONGEST_RETRY_AFTER)


def _cost(line: _Line, usage: Usage) -> float | None:
    """What the tokens cost (USD); None where the price is unknown."""
    return None if line.rate is None else line.rate.cost(usage)


def _sound(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _vectors(blob: bytes, rows: int) -> FloatArray:
    if not rows:
        return np.zeros((0, 0), dtype=np.float32)
    return np.frombuffer(blob, dtype=np.float32).reshape(rows, -1)
