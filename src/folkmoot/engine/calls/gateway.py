"""Answer all requests of a run: every call to a model passes this gateway."""

# The steps of a call:
# - Look for it in the journal.
# - Wait for the budget and the rate limiter.
# - Wait until a record on disk says that the call may be billed (`limits/lender.py`).
# - Ask the provider, with retries.
# - Write the completion to the journal.

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from folkmoot.engine.calls.batch_queue import MAX_WAVE_CALLS, BatchQueue, TooFewCallsForBatchError
from folkmoot.engine.calls.progress import CallDone, Notice, Progress, ReplyLost, ignore_progress
from folkmoot.engine.calls.retries import (
    PREFLIGHT_SCOPE,
    ModelCall,
    ModelState,
    RetryPolicy,
    SharedLimits,
)
from folkmoot.engine.journal.earlier_replies import RESEARCHER
from folkmoot.engine.journal.journal import BrokenReply, Journal, JournalEntry
from folkmoot.engine.journal.journal_reader import ReplayJournal
from folkmoot.engine.limits.budget import Budget, unknown_cost_message
from folkmoot.engine.limits.lender import LoanManager
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    ModelError,
    RefusedError,
    RejectedError,
    StorageError,
    TransientError,
    UnknownCostError,
)
from folkmoot.json_text import replace_lone_surrogates
from folkmoot.models.catalog import HUMAN_MODEL, ModelSpec
from folkmoot.models.prices import FREE_PRICE, find_price
from folkmoot.models.request import (
    FINISH_UNKNOWN,
    NO_USAGE,
    Completion,
    FloatArray,
    ModelRequest,
    Provider,
    Usage,
    byte_count,
    check_completion,
    check_embeddings,
    read_usage,
    translate_finish_reason,
)
from folkmoot.models.wire.capabilities import Capabilities
from folkmoot.models.wire.chat_provider import ChatProvider, join_embeddings
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUsage

R = TypeVar("R")

# Items of a fork that may run at once, unless twice the concurrency is more. It bounds the memory
# that waiting items take.
MAX_CALLS_IN_MEMORY = 1024
# An upper bound of the tokens of one image: gpt-4o-mini counts 48,169 for its largest.
MAX_IMAGE_TOKENS = 50_000


def create_limits(
    journal: Journal | ReplayJournal, config: StudyConfig, progress: Progress
) -> SharedLimits:
    """Return the limits of a run. Its budget counts what earlier processes have spent.

    Raises InputError for a budget in USD if the cost of earlier calls is unknown.
    """
    budget = Budget(
        config.budget_usd,
        config.budget_calls,
        warn=lambda message: progress(Notice(message, "warning")),
    )
    # A replay spends nothing.
    if isinstance(journal, Journal):
        spent = journal.spent()
        spent.require_known_cost(config.budget_usd)
        budget.count_earlier(spent)
    return SharedLimits(budget, config.concurrency)


class Gateway:
    """The object that answers all requests of a run, in one event loop.

    - `provider_for`: returns the provider and the catalogue entry of a model.
    - `config`: sets retries and budget.
    - `progress`: receives answers, retries, waits, refusals and warnings.
    - `shared_limits`: the budget and the rate limiters that other runs or workers share.
    - `seat_manager`: delivers questions to humans.

    Raises DriftError for a changed request, and StorageError for a failing disk.
    Raises FatalModelError for a wrong key or an unknown model.
    Raises RunPausedError if retries, quota or budget are used up.
    """

    # `provider_for` is called once per model, and never in a replay.
    def __init__(
        self,
        journal: Journal | ReplayJournal,
        provider_for: Callable[[str], tuple[Provider, ModelSpec]],
        config: StudyConfig,
        progress: Progress = ignore_progress,
        shared_limits: SharedLimits | None = None,
        seat_manager: SeatManager | None = None,
    ) -> None:
        self.usage_by_model: dict[str, ModelUsage] = {}
        self.in_flight = 0
        # Pieces of work of the engine that are neither calls nor code of the study.
        self._works = _OpenBlocks()
        self.shared_limits = shared_limits or create_limits(journal, config, progress)
        self.budget = self.shared_limits.budget
        self._batch_queue: BatchQueue | None = None
        # A resume without `batch:` still has to fetch batches of an earlier process.
        if isinstance(journal, Journal) and (config.batch or journal.read_batches()):
            self._batch_queue = BatchQueue(journal, config, progress, self.stop_calls)
        stop_batches = (
            self._batch_queue.stop_calls if self._batch_queue is not None else lambda _: None
        )
        self.lender: LoanManager | None = None
        loan = self.shared_limits.loan
        # A cluster worker gets its loans from the head, which has the journal.
        if loan is None and isinstance(journal, Journal):
            self.lender = LoanManager(journal, self.budget, self.hold_batches)
            loan = self.lender.loan
        self._loan = loan
        self._attempts = RetryPolicy(config, self.shared_limits, progress, stop_batches, loan)
        self._journal = journal
        self._provider_for = provider_for
        self._config = config
        self._progress = progress
        self._seat_manager = seat_manager
        self._model_states: dict[str, ModelState] = {}
        # Notes of the providers.
        self._reported_notes: set[str] = set()
        # Addresses of refusals of unknown cost, which the account of lost replies bounds.
        self._lost_refusals: set[str] = set()
        self._idle: asyncio.Event | None = None

    @property
    def stop_error(self) -> FolkmootError | None:
        """The error that stopped new calls, or None."""
        return self._attempts.stopped

    async def complete_request(
        self, address: str, request: ModelRequest, *, has_alternative: bool = False
    ) -> Completion:
        """Return the completion at an address, from the journal or from the model.

        If the model refuses, the text is empty and the finish reason is `refused:<reason>`.
        `has_alternative`: True if the caller has an earlier reply to use if this request is
        rejected.
        """
        fingerprint = request.fingerprint()
        entry = self._journal.lookup_entry(address, fingerprint, request.to_json)
        replayed = entry is not None
        if entry is None and request.model == HUMAN_MODEL and self._seat_manager is not None:
            entry = await self._ask_human(self._seat_manager, address, request, fingerprint)
        elif entry is None:
            model_state = self._model_states.get(request.model) or self._open_model(request.model)
            entry = await self._call_model(
                model_state, address, request, fingerprint, has_alternative
            )
        self.count_usage(request.model, entry, replayed=replayed)
        self._require_known_cost(request.model, entry, replayed=replayed)
        return completion_of(entry, replayed=replayed)

    async def embed_texts(self, address: str, model: str, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings of texts, float32, shape (texts, dimensions)."""
        request_data = {"model": model, "texts": list(texts)}
        fingerprint = digest(model, *texts)
        entry = self._journal.lookup_entry(address, fingerprint, lambda: request_data)
        replayed = entry is not None
        if entry is None:
            model_state = self._model_states.get(model) or self._open_model(model)
            entry = await self._call_embedding_model(
                model_state, address, request_data, fingerprint
            )
        self.count_usage(model, entry, replayed=replayed)
        self._require_known_cost(model, entry, replayed=replayed)
        return decode_vectors(entry.blob, len(texts))

    def known_capabilities(self, request: ModelRequest) -> Capabilities | None:
        """Return the known capabilities of a request's model.

        Returns None if nothing is known.
        """
        model_state = self._model_states.get(request.model)
        if model_state is None or not isinstance(model_state.provider, ChatProvider):
            return None
        return model_state.provider.prepare_request(
            replace(request, model=model_state.spec.wire_model)
        )[0]

    def total_use(self) -> tuple[float, int]:
        """Return the cost in USD and the number of all calls, including replayed calls."""
        usage_by_model = self.usage_by_model.values()
        return sum(usage.cost_usd for usage in usage_by_model), sum(
            usage.calls + usage.replayed for usage in usage_by_model
        )

    def stop_calls(self, error: FolkmootError) -> None:
        """Start no new calls and raise `error` in waiting calls."""
        # The first error is kept. Calls in flight continue, see `wait_for_calls_in_flight`.
        self._attempts.stop_calls(error)

    async def wait_until_set(self, event: asyncio.Event) -> None:
        """Wait for an event.

        Raises the error that stops the run, if the run is stopped first.
        """
        waiting = asyncio.ensure_future(event.wait())
        try:
            await self._attempts.wait_for_result_or_halt(waiting)
        finally:
            waiting.cancel()
        if not event.is_set() and self.stop_error is not None:
            raise self.stop_error.with_traceback(None)

    async def wait_for_calls_in_flight(self) -> None:
        """Wait until no call is in flight and every completion is journaled."""
        if self.in_flight:
            # Reuse the event of a caller that waits already.
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()
        if self._batch_queue is not None:
            await self._batch_queue.wait_for_submissions()
        if self.lender is not None:
            self.lender.end_own_loan()

    @property
    def max_waiting_calls(self) -> int:
        """The number of calls that can wait for their answers at the same time."""
        # With batches, all items must be able to wait at once, or waves would be small.
        min_waiting = max(MAX_CALLS_IN_MEMORY, 2 * self._config.concurrency)
        return min_waiting if self._batch_queue is None else MAX_WAVE_CALLS

    def hold_batches(self) -> AbstractContextManager[None]:
        """Delay the submission of batches while the returned context manager is open."""
        # For work that may lead to further calls, such as a computation.
        queue = self._batch_queue
        return self._works if queue is None else self._hold_queue(queue)

    @contextmanager
    def _hold_queue(self, queue: BatchQueue) -> Iterator[None]:
        with self._works, queue.hold_while_working():
            yield

    def count_as_work(self) -> AbstractContextManager[None]:
        """Let `is_idle` be false while the returned context manager is open."""
        return self._works

    @property
    def is_idle(self) -> bool:
        """True if no call, computation or part on a cluster is in progress."""
        return not (self.in_flight or self._works.count)

    async def close(self) -> None:
        """Close the connections of the providers."""
        for model_state in self._model_states.values():
            await model_state.provider.close()

    async def _call_model(
        self,
        model_state: ModelState,
        address: str,
        request: ModelRequest,
        fingerprint: bytes,
        has_alternative: bool,
    ) -> JournalEntry:
        wire_model = model_state.spec.wire_model
        wire_request = request
        # Build the request without `replace`, which costs as much as a lookup in the journal.
        if wire_model != request.model:
            parameters = (request.temperature, request.max_tokens, request.schema, request.images)
            wire_request = ModelRequest(
                wire_model, request.messages, *parameters, request.hints, request.cache_breakpoints
            )
        call = ModelCall(
            address,
            _max_input_tokens(request),
            lambda: model_state.provider.max_output_tokens(wire_request),
            has_alternative,
        )

        def refused_completion(error: RefusedError) -> Completion:
            self._report_warning(f"{address}: {model_state.name}: {error}")
            # An error status means that no model generated text, so the usage is zero. The vendor
            # may bill a refusal that came with a reply. Its usage is unknown if it is not stated.
            usage = read_usage(error.usage) if error.may_be_billed else NO_USAGE
            return Completion("", usage, finish=f"refused:{error.reason}")

        async def call_provider() -> Completion:
            try:
                if call.batched and self._batch_queue is not None:
                    reply = await self._batch_queue.request_reply(
                        model_state, address, fingerprint, wire_request
                    )
                else:
                    with self.hold_batches():
                        provider = model_state.provider
                        reply = check_completion(
                            await provider.complete_request(wire_request, address=address), provider
                        )
            except ModelError as error:
                # A rejection that may be billed came with a reply, so the model was asked. It says
                # nothing about other prompts.
                is_rejected = isinstance(error, RejectedError) and not error.may_be_billed
                if isinstance(error, RefusedError) and not is_rejected:
                    completion = refused_completion(error)
                    # The reservation bounds the cost of a refusal with unknown usage, so that a
                    # budget in USD can be kept.
                    if model_state.cost(completion.usage, batched=call.batched) is None:
                        await self._record_broken_reply(model_state, call, error)
                        self._lost_refusals.add(address)
                    return completion
                await self._record_broken_reply(model_state, call, error)
                if wire_request.images and _is_image_error(error, model_state):
                    raise FatalModelError(
                        f"{model_state.name} rejected a prompt with images ({error}). Name a "
                        "model that accepts images, or check that the server can reach their "
                        "addresses"
                    ) from None
                # A rejection may concern this prompt or every call. The retry policy decides by the
                # answers to other calls.
                raise
            model_state.accepts_images = model_state.accepts_images or bool(wire_request.images)
            return reply

        async def complete_with_retries() -> Completion:
            batch_queue = self._batch_queue
            # A preflight has to show its result before the run starts, so it is never batched.
            if batch_queue is not None and not address.startswith(PREFLIGHT_SCOPE):
                call.batched = batch_queue.should_batch(model_state, address, fingerprint)
            try:
                try:
                    return await self._attempts.run(model_state, call, call_provider)
                except TooFewCallsForBatchError:
                    call.batched = False
                    return await self._attempts.run(model_state, call, call_provider)
            except RejectedError as error:
                return refused_completion(error)

        def build_entry(reply: Completion) -> JournalEntry:
            # A paid reply must not be lost, whatever the provider put into its other fields.
            usage = read_usage(reply.usage)
            finish = _read_text(reply.finish) or FINISH_UNKNOWN
            # Later reservations for calls without a token limit are at least as large as the
            # longest reply seen.
            model_state.longest_output_tokens = max(
                model_state.longest_output_tokens, usage.output_tokens or 0
            )
            return JournalEntry(
                address,
                "ask",
                fingerprint,
                request.to_json(),
                _read_text(reply.text),
                None,
                # Providers of study authors may pass on the vendor's word.
                translate_finish_reason(finish),
                usage.input_tokens,
                usage.output_tokens,
                usage.cached_tokens,
                model_state.cost(usage, batched=call.batched),
                call.latency_s,
                call.attempts,
                request.model,
                _read_text(reply.model_served),
                _read_text(reply.request_id),
                call.started_at,
            )

        return await self._call_and_journal(model_state, call, complete_with_retries, build_entry)

    async def _ask_human(
        self, seat_manager: SeatManager, address: str, request: ModelRequest, fingerprint: bytes
    ) -> JournalEntry:
        # If the run stops, the question is withdrawn. A resume then asks it again.
        if self.stop_error is not None:
            raise self.stop_error.with_traceback(None)
        question, asked_at = seat_manager.enqueue(address, request), time.time()
        stored = False
        self.in_flight += 1
        try:
            await self._attempts.wait_for_result_or_halt(question.reply)
            if not question.reply.done():
                assert self.stop_error is not None
                raise self.stop_error.with_traceback(None)
            reply = question.reply.result()
            entry = JournalEntry(
                address,
                "ask",
                fingerprint,
                request.to_json(),
                replace_lone_surrogates(reply.text),
                finish=reply.finish,
                input_tokens=0,
                output_tokens=0,
                cached_tokens=0,
                cost_usd=0.0,
                latency_s=time.time() - asked_at,
                model_asked=HUMAN_MODEL,
                model_served=HUMAN_MODEL,
                started_at=asked_at,
            )
            self._journal.append(entry)
            # Only now confirm the answer to the human (`stored`): a crash must not lose a confirmed
            # answer.
            await self._journal.flush()
            stored = True
        except StorageError as error:
            self.stop_calls(error)
            raise
        finally:
            seat_manager.withdraw_question(question, stored=stored)
            self.in_flight -= 1
            if self._idle is not None and not self.in_flight:
                self._idle.set()
        return entry

    async def _call_embedding_model(
        self,
        model_state: ModelState,
        address: str,
        request_data: dict[str, Any],
        fingerprint: bytes,
    ) -> JournalEntry:
        texts: list[str] = request_data["texts"]
        call = ModelCall(address, byte_count(*texts), lambda: 0)
        # Many texts take several requests. If one of them fails, the results of the earlier ones
        # are kept here, so that a retry asks only for the rest.
        received: list[tuple[FloatArray, Usage]] = []

        async def call_provider() -> tuple[FloatArray, Usage]:
            received_count = sum(len(vectors) for vectors, _ in received)
            try:
                with self.hold_batches():
                    provider, missing_texts = model_state.provider, texts[received_count:]
                    result = check_embeddings(
                        await provider.embed_texts(
                            model_state.spec.wire_model, missing_texts, address=address
                        ),
                        len(missing_texts),
                        provider,
                    )
                return join_embeddings([*received, result]) if received else result
            except ModelError as error:
                if error.partial_result is not None:
                    received.append(error.partial_result)
                await self._record_broken_reply(model_state, call, error)
                # A refusal is fatal here: the study cannot continue without an embedding.
                if isinstance(error, RefusedError):
                    raise FatalModelError(
                        f"{model_state.name} refuses to embed {address}: {error}"
                    ) from None
                raise

        async def embed_with_retries() -> tuple[FloatArray, Usage]:
            try:
                return await self._attempts.run(model_state, call, call_provider)
            except FolkmootError:
                # The part that was received is billed, and a resume asks for it again.
                if received and find_price(model_state.spec) is not FREE_PRICE:
                    vectors, usage = join_embeddings(received)
                    max_input_tokens = byte_count(*texts[: len(vectors)])
                    max_usd = model_state.embedding_cost(usage, max_input_tokens)
                    self.budget.count_broken(max_usd or 0.0)
                    await self._write_broken_reply(model_state, call, max_usd)
                raise

        def build_entry(result: tuple[FloatArray, Usage]) -> JournalEntry:
            vectors, usage = result[0], read_usage(result[1])
            return JournalEntry(
                address=address,
                kind="embed",
                fingerprint=fingerprint,
                request=request_data,
                blob=np.ascontiguousarray(vectors, dtype=np.float32).tobytes(),
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=model_state.embedding_cost(usage, call.max_input_tokens),
                latency_s=call.latency_s,
                attempts=call.attempts,
                model_asked=model_state.name,
                started_at=call.started_at,
            )

        return await self._call_and_journal(model_state, call, embed_with_retries, build_entry)

    async def _record_broken_reply(
        self, model_state: ModelState, call: ModelCall, error: ModelError
    ) -> None:
        # The vendor may bill such a reply. A model on this machine has no vendor.
        if find_price(model_state.spec) is FREE_PRICE:
            error.may_be_billed = False
        if not error.may_be_billed:
            return
        error.max_usd = self._charge_broken(model_state, call)
        await self._write_broken_reply(model_state, call, error.max_usd)

    async def _write_broken_reply(
        self, model_state: ModelState, call: ModelCall, max_usd: float | None
    ) -> None:
        # The record is on disk before the retry, so a resume counts it. On a cluster, the main
        # process writes it when it receives the event.
        if isinstance(self._journal, Journal):
            broken = BrokenReply(time.time(), call.address, model_state.name, max_usd)
            await asyncio.wrap_future(self._journal.put_broken(broken))
            self._progress(ReplyLost(model_state.name, call.address, max_usd))

    def _charge_broken(self, model_state: ModelState, call: ModelCall) -> float | None:
        # Returns the maximum cost (USD) of the broken-off reply, or None if unknown.
        max_usd = model_state.price(
            call.max_input_tokens, call.max_output_tokens(), batched=call.batched
        ).max_usd
        if call.reserved_usd is not None:
            max_usd = call.reserved_usd
            self.budget.settle_broken(call.reserved_usd)
            call.reserved_usd = None
        return None if find_price(model_state.spec) is None else max_usd

    async def _call_and_journal(
        self,
        model_state: ModelState,
        call: ModelCall,
        get_result: Callable[[], Awaitable[R]],
        build_entry: Callable[[R], JournalEntry],
    ) -> JournalEntry:
        # No await separates the answer from the journal, so a cancellation cannot lose a paid
        # answer.
        entry: JournalEntry | None = None
        self.in_flight += 1
        try:
            new_entry = build_entry(await get_result())
            self._journal.append(new_entry, call.covered_usd)
            entry = new_entry
            if call.covered_usd is not None and self.lender is not None:
                self.lender.record_settlement(call.covered_usd)
        except StorageError as error:
            self.stop_calls(error)
            raise
        except FolkmootError:
            if call.covered_usd is not None and self._loan is not None:
                self._loan.give_back(call.covered_usd)
            # The call ended with an error that is not billed. After other errors and cancellations
            # it may be, so its loan is kept.
            raise
        finally:
            self.in_flight -= 1
            if call.reserved_usd is not None:
                if entry is None:
                    self.budget.release_reservation(call.reserved_usd)
                else:
                    self.budget.record_cost(call.reserved_usd, entry.cost_usd)
            if self._idle is not None and not self.in_flight:
                self._idle.set()
        # Providers append notes while they learn what a model accepts. Report each of them once,
        # although several models may share a provider.
        for note in model_state.provider.notes:
            if note not in self._reported_notes:
                self._reported_notes.add(note)
                self._report_warning(note)
        return entry

    def _require_known_cost(self, model: str, entry: JournalEntry, *, replayed: bool) -> None:
        # The completion is already journaled, so a resume does not pay for it again.
        is_bounded = entry.cost_usd is not None or entry.address in self._lost_refusals
        if self.budget.usd is not None and not is_bounded and not replayed:
            self._stop_for_unknown_cost(f"{model} does not report how many tokens its replies used")

    def _stop_for_unknown_cost(self, reason: str) -> NoReturn:
        error = UnknownCostError(unknown_cost_message(reason))
        self.stop_calls(error)
        raise error

    def count_usage(self, model: str, entry: JournalEntry, *, replayed: bool) -> None:
        """Add the tokens and cost of one call to the usage of `model`."""
        # The call may have been made here or by a cluster worker.
        usage = self.usage_by_model.get(model)
        if usage is None:
            usage = self.usage_by_model[model] = ModelUsage()
        usage.calls += not replayed
        usage.replayed += replayed
        usage.add_reply(entry.input_tokens, entry.output_tokens, entry.cost_usd)
        usage.cached_tokens += entry.cached_tokens or 0
        if entry.model_served not in ("", RESEARCHER):
            usage.served_models.add(entry.model_served)
        self._progress(
            CallDone(
                entry.model_asked,
                replayed,
                entry.cost_usd,
                entry.input_tokens,
                entry.output_tokens,
                entry.kind,
                entry.address,
            )
        )

    def _open_model(self, model: str) -> ModelState:
        provider, spec = self._provider_for(model)
        config = self._config
        limiter = self.shared_limits.get_limiter(model, config.api_sleep_seconds, local=spec.local)
        if find_price(spec) is None and self.budget.usd is not None:
            self._stop_for_unknown_cost(f"the price of {model} is unknown")
        usage = self.usage_by_model.setdefault(model, ModelUsage())
        model_state = ModelState(model, provider, spec, limiter, usage)
        self._model_states[model] = model_state
        batch_queue = self._batch_queue
        if (
            batch_queue is not None
            and config.batch
            and not spec.local
            and not batch_queue.supports_model(model_state)
        ):
            self._report_warning(
                f"{model} has no batch API, so it is asked directly, at its full price"
            )
        return model_state

    def _report_warning(self, message: str) -> None:
        self._progress(Notice(message, "warning"))


class _OpenBlocks:
    # Counts the `with` blocks that are open. Each call opens one, and a context manager made of a
    # generator costs several times as much.

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_error: object) -> None:
        self.count -= 1


def _read_text(value: object) -> str:
    # Providers may report anything, and SQLite takes no lone surrogates.
    return replace_lone_surrogates("" if value is None else str(value))


def _max_input_tokens(request: ModelRequest) -> int:
    # A byte is at most one token. 200 bytes bound the wrapper of a schema, 16 tokens that of a
    # message.
    schema_bytes = len(json.dumps(request.schema)) + 200 if request.schema is not None else 0
    message_bytes = byte_count(*[message.content for message in request.messages])
    message_bytes += MAX_IMAGE_TOKENS * len(request.images)
    # Twice the schema: providers add keys to it, and without native support it is spelt out in the
    # prompt.
    return message_bytes + 2 * schema_bytes + 16 * (len(request.messages) + 1)


# Servers report in many ways, with any status, that a model accepts only text.
_IMAGE_ERROR_PATTERN = re.compile(r"image|multi-?modal|mmproj", re.IGNORECASE)


def _is_image_error(error: ModelError, model_state: ModelState) -> bool:
    # A rejected prompt with images counts if the model has never accepted one.
    if isinstance(error, RejectedError) and not model_state.accepts_images:
        return True
    error_types = (RejectedError, TransientError)
    return type(error) in error_types and bool(_IMAGE_ERROR_PATTERN.search(str(error)))


def decode_vectors(blob: bytes | None, rows: int) -> FloatArray:
    """Return the embeddings of a journal entry, one row for each text."""
    if not rows:
        return np.zeros((0, 0), dtype=np.float32)
    return np.frombuffer(blob or b"", dtype=np.float32).reshape(rows, -1)


def completion_of(entry: JournalEntry, *, replayed: bool) -> Completion:
    """Return the completion that a journal entry holds.

    `replayed`: True if the entry is from an earlier process or run.
    """
    return Completion(
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
