"""The gateway: the one way to a model. journal → budget → limiter → loan → provider → retry →
journal.

Used by the run's context, which asks it for every reply and every embedding. A call that the
journal knows is never made again; a reply that was paid for is always journaled.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from folkmoot.engine.calls.batch_queue import WAVE, Outbox, TooFew
from folkmoot.engine.calls.progress import CallDone, Notice, Progress, silent
from folkmoot.engine.calls.retries import PREFLIGHT, Allowance, Attempts, Call, Line
from folkmoot.engine.journal.earlier_replies import RESEARCHER
from folkmoot.engine.journal.journal import BrokenReply, Entry, Journal, Replay
from folkmoot.engine.limits.budget import Budget
from folkmoot.engine.limits.lender import Lender
from folkmoot.engine.seats.seat_manager import Desk
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    ModelError,
    RefusedError,
    RejectedError,
    StorageError,
    TransientError,
)
from folkmoot.models.catalog import HUMAN, ModelSpec
from folkmoot.models.prices import rate_for
from folkmoot.models.request import NOTHING, FloatArray, Provider, Reply, Request, Usage, byte_count
from folkmoot.models.wire.capabilities import Capabilities
from folkmoot.models.wire.chat_provider import ChatWire
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUse

R = TypeVar("R")

LIVE_CALLS = 1024
MOST_IMAGE_TOKENS = 50_000  # of one image; gpt-4o-mini counts 48,169 for its largest
# A provider may name a refusal without our prefix; it is an outcome all the same.
_REFUSALS = {"refusal": "refused:refused", "filter": "refused:filtered"}


class Gateway:
    """Answers requests at addresses. One per run; belongs to one event loop.

    `provider_for(model)` gives the provider and what the catalog knows of the model; it is asked
    once a model, and not at all where everything is replayed. `config` says how hard to try and
    what may be spent. `progress` hears of answers, retries, waits, refusals and warnings.
    `allowance` is given where several runs share one budget and one limiter, or where another
    process has the run's journal, and lends.

    Raises: DriftError (the journal knows another request), RunPaused and its kinds (retries,
    quota or budget used up), FatalModelError (wrong key, unknown model), StorageError.
    """

    def __init__(
        self,
        journal: Journal | Replay,
        provider_for: Callable[[str], tuple[Provider, ModelSpec]],
        config: StudyConfig,
        progress: Progress = silent,
        allowance: Allowance | None = None,
        desk: Desk | None = None,
    ) -> None:
        self.uses: dict[str, ModelUse] = {}
        self.in_flight = 0
        self.allowance = allowance or self._own_allowance(journal, config)
        self.budget = self.allowance.budget
        self._outbox: Outbox | None = None
        if isinstance(journal, Journal) and (config.batch or journal.batches()):
            self._outbox = Outbox(journal, config, progress, self.stop)
        told = self._outbox.stop if self._outbox is not None else lambda _: None
        self.lender: Lender | None = None
        loan = self.allowance.loan
        if loan is None and isinstance(journal, Journal):
            self.lender = Lender(journal, self.budget, self.elsewhere)
            loan = self.lender.loan
        self._loan = loan
        self._attempts = Attempts(config, self.allowance, progress, told, loan)
        self._journal = journal
        self._provider_for = provider_for
        self._config = config
        self._progress = progress
        self._desk = desk
        self._lines: dict[str, Line] = {}
        self._idle: asyncio.Event | None = None

    def _own_allowance(self, journal: Journal | Replay, config: StudyConfig) -> Allowance:
        calls, usd, _ = journal.spent()
        calls -= journal.by_people()
        budget = Budget(
            config.budget_usd,
            config.budget_calls,
            spent_usd=usd,
            spent_calls=calls,
            warn=self._warn,
        )
        budget.count_possible(journal.possibly_paid())
        return Allowance(budget, config.concurrency)

    @property
    def stopped(self) -> FolkmootError | None:
        """Why no more calls begin, if so."""
        return self._attempts.stopped

    async def complete(self, address: str, request: Request, *, spare: bool = False) -> Reply:
        """The reply at an address: replayed if it is journaled, else asked for and journaled.

        `spare`: there is a reply to fall back on, so a rejection does not mean that something is
        wrong with all calls. A refusal is a reply with an empty text and `finish` of
        `refused:<reason>`.
        """
        fingerprint = request.fingerprint()
        entry = self._journal.lookup(address, fingerprint, request.to_json)
        replayed = entry is not None
        if entry is None and request.model == HUMAN and self._desk is not None:
            entry = await self._ask_person(self._desk, address, request, fingerprint)
        elif entry is None:
            line = self._lines.get(request.model) or self._open_line(request.model)
            entry = await self._ask(line, address, request, fingerprint, spare)
        self.count(request.model, entry, replayed=replayed)
        self._check_counted(request.model, entry, replayed=replayed)
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
        replayed = entry is not None
        if entry is None:
            line = self._lines.get(model) or self._open_line(model)
            entry = await self._embed(line, address, asked, fingerprint)
        self.count(model, entry, replayed=replayed)
        self._check_counted(model, entry, replayed=replayed)
        return _vectors(entry.blob or b"", len(texts))

    def known_of(self, request: Request) -> Capabilities | None:
        """What the model of a request is known to take by now; None where nobody knows."""
        line = self._lines.get(request.model)
        if line is None or not isinstance(line.provider, ChatWire):
            return None
        return line.provider.asked(replace(request, model=line.spec.wire_model))[0]

    def taken(self) -> tuple[float, int]:
        """Money (USD) and calls of all replies so far, those that were replayed included."""
        uses = self.uses.values()
        return sum(u.cost_usd for u in uses), sum(u.calls + u.replayed for u in uses)

    def stop(self, error: FolkmootError) -> None:
        """Begin no more calls: whoever would, or waits to, gets the error. The first one counts.

        Calls in flight go on; `drain` waits for them.
        """
        self._attempts.stop(error)

    async def drain(self) -> None:
        """Wait until no call is in flight, and every reply is with the journal."""
        if self.in_flight:
            if self._idle is None or self._idle.is_set():  # others may wait already
                self._idle = asyncio.Event()
            await self._idle.wait()
        if self._outbox is not None:
            await self._outbox.drain()
        if self.lender is not None:
            self.lender.end()

    @property
    def most_waiting(self) -> int:
        """How many calls may wait for their answers at once."""
        fewest = max(LIVE_CALLS, 2 * self._config.concurrency)
        return fewest if self._outbox is None else WAVE

    def elsewhere(self) -> AbstractContextManager[None]:
        """Work that is not a call is under way: a wave of batches waits for it."""
        return nullcontext() if self._outbox is None else self._outbox.elsewhere()

    async def close(self) -> None:
        """Close the providers' connections."""
        for line in self._lines.values():
            await line.provider.close()

    async def _ask(
        self,
        line: Line,
        address: str,
        request: Request,
        fingerprint: bytes,
        spare: bool,
    ) -> Entry:
        """Make the call of a request and journal the reply, refusals included."""
        wire = line.spec.wire_model
        sent = request
        if wire != request.model:  # not `replace`: it costs as much as a look-up
            how = (request.temperature, request.max_tokens, request.schema, request.images)
            sent = Request(wire, request.messages, *how, request.asked, request.begins)
        call = Call(
            address,
            _most_tokens_in(request),
            lambda: _longest_reply(line.provider, sent),
            spare,
        )

        def refused(error: RefusedError) -> Reply:
            self._warn(f"{address}: {line.name}: {error}")
            # An error status in place of a reply: no model answered, nothing is billed. What is too
            # long to read was written all the same, and nobody read what it cost.
            usage = Usage() if error.reason == "too_large" else NOTHING
            return Reply("", usage, finish=f"refused:{error.reason}")

        async def send() -> Reply:
            try:
                if call.batched and self._outbox is not None:
                    reply = await self._outbox.ask(line, address, fingerprint, sent)
                else:
                    with self.elsewhere():
                        reply = await line.provider.complete(sent, address=address)
            except ModelError as error:
                if sent.images and _no_images(error, line):
                    raise FatalModelError(
                        f"{line.name} did not take a prompt with images ({error}). Name a model "
                        "that takes them, or see that the server can reach their addresses"
                    ) from None
                if isinstance(error, RefusedError) and not isinstance(error, RejectedError):
                    return refused(error)
                raise  # what a rejection means is decided by the replies to others
            line.sees = line.sees or bool(sent.images)
            return reply

        sending = self._keeping_broken(line, call, send)

        async def settled() -> Reply:
            outbox = self._outbox
            if outbox is not None and not address.startswith(PREFLIGHT):
                call.batched = outbox.takes(line, address, fingerprint)
            try:
                try:
                    return await self._attempts.run(line, call, sending)
                except TooFew:
                    call.batched = False
                    return await self._attempts.run(line, call, sending)
            except RejectedError as error:
                return refused(error)

        def entry_of(reply: Reply) -> Entry:
            usage = reply.usage
            line.longest_reply = max(line.longest_reply, usage.output_tokens or 0)
            return Entry(
                address,
                "ask",
                fingerprint,
                request.to_json(),
                _sound(reply.text),
                None,
                _REFUSALS.get(reply.finish, reply.finish),
                usage.input_tokens,
                usage.output_tokens,
                usage.cached_tokens,
                line.cost(usage, batched=call.batched),
                call.latency_s,
                call.attempts,
                request.model,
                reply.model_served,
                reply.request_id,
                call.started_at,
            )

        return await self._perform(line, call, settled, entry_of)

    async def _ask_person(
        self, desk: Desk, address: str, request: Request, fingerprint: bytes
    ) -> Entry:
        """Put a request to its person and journal the answer. It costs nothing and takes no place;
        a run that stops waits for nobody, and asks again when it goes on."""
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)
        question, asked_at = desk.put(address, request), time.time()
        stored = False
        self.in_flight += 1
        try:
            await self._attempts.unless_halted(question.reply)
            if not question.reply.done():
                assert self.stopped is not None
                raise self.stopped.with_traceback(None)
            reply = question.reply.result()
            entry = Entry(
                address,
                "ask",
                fingerprint,
                request.to_json(),
                _sound(reply.text),
                finish=reply.finish,
                input_tokens=0,
                output_tokens=0,
                cached_tokens=0,
                cost_usd=0.0,
                latency_s=time.time() - asked_at,
                model_asked=HUMAN,
                model_served=HUMAN,
                started_at=asked_at,
            )
            self._journal.put(entry)
            await self._journal.committed()
            stored = True
        except StorageError as error:
            self.stop(error)
            raise
        finally:
            desk.take_back(question, stored=stored)
            self.in_flight -= 1
            if self._idle is not None and not self.in_flight:
                self._idle.set()
        return entry

    async def _embed(
        self, line: Line, address: str, asked: dict[str, Any], fingerprint: bytes
    ) -> Entry:
        """Make the call of a batch of embeddings and journal the reply."""
        texts: list[str] = asked["texts"]
        call = Call(address, byte_count(*texts), lambda: 0)

        async def send() -> tuple[FloatArray, Usage]:
            try:
                with self.elsewhere():
                    return await line.provider.embed(line.spec.wire_model, texts, address=address)
            except RefusedError as error:  # no text can do without its embedding
                raise FatalModelError(f"{line.name} refuses to embed {address}: {error}") from None

        def entry_of(result: tuple[FloatArray, Usage]) -> Entry:
            vectors, usage = result
            return Entry(
                address=address,
                kind="embed",
                fingerprint=fingerprint,
                request=asked,
                blob=np.ascontiguousarray(vectors, dtype=np.float32).tobytes(),
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=line.cost(usage),
                latency_s=call.latency_s,
                attempts=call.attempts,
                model_asked=line.name,
                started_at=call.started_at,
            )

        sending = self._keeping_broken(line, call, send)
        return await self._perform(
            line, call, lambda: self._attempts.run(line, call, sending), entry_of
        )

    def _keeping_broken(
        self, line: Line, call: Call, send: Callable[[], Awaitable[R]]
    ) -> Callable[[], Awaitable[R]]:
        """Send, and keep account of a reply that broke off: the vendor may bill it.

        Its cost is unknown, so the budget counts the full reservation. This is written to disk
        before the call is tried again, so that a resume counts it too.
        """

        async def sending() -> R:
            try:
                return await send()
            except ModelError as error:
                if error.may_be_billed:
                    error.max_usd = self._charge_broken(line, call)
                    broken = BrokenReply(time.time(), call.address, line.name, error.max_usd)
                    if isinstance(self._journal, Journal):
                        await asyncio.wrap_future(self._journal.put_broken(broken))
                raise

        return sending

    def _charge_broken(self, line: Line, call: Call) -> float | None:
        """Charge a reply that broke off to the budget; the most that it may have cost (USD), None
        where the price is unknown."""
        most = line.price(call.most_in, call.most_out(), batched=call.batched).dearest
        if call.reserved is not None:
            most = call.reserved
            self.budget.settle_broken(call.reserved)
            call.reserved = None
        return None if line.rate is None else most

    async def _perform(
        self,
        line: Line,
        call: Call,
        settled: Callable[[], Awaitable[R]],
        entry_of: Callable[[R], Entry],
    ) -> Entry:
        """Make a call, journal its entry, settle its bill. From answer to journal nothing waits."""
        entry: Entry | None = None
        self.in_flight += 1
        try:
            made = entry_of(await settled())
            self._journal.put(made, call.covered)
            entry = made
            if call.covered is not None and self.lender is not None:
                self.lender.settle(call.covered)
        except StorageError as error:
            self.stop(error)
            raise
        except FolkmootError:
            if call.covered is not None and self._loan is not None:
                self._loan.give_back(call.covered)
            raise  # after any other error, and a cancellation, the call may be paid
        finally:
            self.in_flight -= 1
            if call.reserved is not None:
                if entry is None:
                    self.budget.release(call.reserved)
                else:
                    self.budget.settle(call.reserved, entry.cost_usd)
            if self._idle is not None and not self.in_flight:
                self._idle.set()
        while line.told < len(line.notes):
            self._warn(line.notes[line.told])
            line.told += 1
        return entry

    def _check_counted(self, model: str, entry: Entry, *, replayed: bool) -> None:
        """Stop at the first new reply of an unknown cost under a budget in money; it is kept."""
        if self.budget.usd is not None and entry.cost_usd is None and not replayed:
            self._refuse(f"{model} does not say how many tokens its replies used")

    def _refuse(self, why: str) -> NoReturn:
        """Stop the run: on this model's bill a budget in money cannot be kept."""
        error = FatalModelError(uncountable(why))
        self.stop(error)
        raise error

    def count(self, model: str, entry: Entry, *, replayed: bool) -> None:
        """Account for an entry that a call here, or a worker's, came to."""
        use = self.uses.setdefault(model, ModelUse())
        use.calls += not replayed
        use.replayed += replayed
        use.add(entry.input_tokens, entry.output_tokens, entry.cost_usd)
        use.cached_tokens += entry.cached_tokens or 0
        if entry.model_served not in ("", RESEARCHER):
            use.served.add(entry.model_served)
        tokens = (entry.input_tokens, entry.output_tokens)
        kind = (entry.kind, entry.address)
        self._progress(CallDone(entry.model_asked, replayed, entry.cost_usd, *tokens, *kind))

    def _open_line(self, model: str) -> Line:
        provider, spec = self._provider_for(model)
        config = self._config
        limiter = self.allowance.limiter(model, config.api_sleep_seconds, local=spec.local)
        rate = rate_for(spec)
        if rate is None and self.budget.usd is not None:
            self._refuse(f"the price of {model} is unknown")
        use = self.uses.setdefault(model, ModelUse())
        notes = getattr(provider, "notes", ())
        line = Line(model, provider, spec, limiter, rate, use, notes, len(notes))
        self._lines[model] = line
        outbox = self._outbox
        if outbox is not None and config.batch and not spec.local and not outbox.serves(line):
            self._warn(f"{model} is not asked by batches but directly, at its full price")
        return line

    def _warn(self, message: str) -> None:
        self._progress(Notice(message, "warning"))


def uncountable(why: str) -> str:
    """The sentence for a model whose cost is unknown, so that no budget in money can hold."""
    return (
        f"{why}: budget_usd cannot be kept. Leave it out (and --budget) and bound the calls "
        "instead, with budget_calls or --set budget_calls=N; all work is kept"
    )


def _most_tokens_in(request: Request) -> int:
    """A bound of the tokens of a request, with the words and marks that wire formats add."""
    schema = len(json.dumps(request.schema)) + 200 if request.schema is not None else 0
    said = byte_count(*(m.content for m in request.messages))
    said += MOST_IMAGE_TOKENS * len(request.images)
    return said + 2 * schema + 16 * (len(request.messages) + 1)


# Servers say in many ways, with any status, that a model reads text alone.
_ABOUT_IMAGES = re.compile(r"image|multi-?modal|mmproj", re.IGNORECASE)


def _no_images(error: ModelError, line: Line) -> bool:
    """Whether an error to a prompt with images is about these: it says so, or the model never
    answered such a prompt."""
    if isinstance(error, RejectedError) and not line.sees:
        return True
    kinds = (RejectedError, TransientError)
    return type(error) in kinds and bool(_ABOUT_IMAGES.search(str(error)))


def _longest_reply(provider: Provider, request: Request) -> int | None:
    """The bound that the provider sends along, thoughts included."""
    bound = getattr(provider, "longest_reply", None)
    limit: int | None = request.max_tokens if bound is None else bound(request)
    return limit


def _sound(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _vectors(blob: bytes, rows: int) -> FloatArray:
    if not rows:
        return np.zeros((0, 0), dtype=np.float32)
    return np.frombuffer(blob, dtype=np.float32).reshape(rows, -1)
