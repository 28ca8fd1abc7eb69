"""Send waiting calls together through the vendors' batch APIs.

The gateway uses this module.
"""

# When no coroutine of the run can continue without an answer, all waiting calls form one wave. The
# content of a batch is journaled before the submission, and the vendor's id right after it. So a
# resume finds the batches of a killed run and pays for nothing twice. The split into batches
# changes no result, because the answer to a call depends only on its address and request.

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from folkmoot.engine.calls.progress import CallRetried, Notice, Progress
from folkmoot.engine.calls.retries import ModelState
from folkmoot.engine.journal.journal import BatchRecord, Journal
from folkmoot.engine.journal.journal_file import batch_key
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    ModelError,
    NotFoundError,
    QuotaError,
    QuotaExhaustedError,
    RefusedError,
    RunPausedError,
    TransientError,
    UnknownBatchError,
)
from folkmoot.json_text import encode_json
from folkmoot.measures.inference.estimates import format_count
from folkmoot.models.prices import supports_batches
from folkmoot.models.request import Completion, ModelRequest, longest_backoff_seconds
from folkmoot.models.wire.batches import (
    EXPIRED,
    PROMISED_HOURS,
    BatchApi,
    BatchItem,
    BatchStatus,
    batch_start_error,
)
from folkmoot.models.wire.chat_provider import MAX_CAPABILITY_RETRIES, ChatProvider
from folkmoot.transport import HttpResponse

R = TypeVar("R")

# Calls submitted together at most. It bounds the memory that waiting calls take.
MAX_WAVE_CALLS = 50_000
# After this many turns of the event loop without a new call, every coroutine that can wait does so.
# A coroutine may need several turns from one answer to its next question. A dry run counts its
# waves in the same way, so that it estimates the number of batches.
IDLE_LOOP_ITERATIONS = 30
# A batch that exceeds the vendor's queue is halved down to this many calls. If fewer do not fit,
# the queue is full with other batches, and splitting does not help.
MIN_SPLIT_CALLS = 100
# What a call gets if its batch ended without an answer: a transient error, so that it is retried.
EXPIRED_RESPONSE: HttpResponse = (
    EXPIRED,
    {},
    b'{"error": {"message": "not answered within the batch"}}',
)


class TooFewCallsForBatchError(FolkmootError):
    """Raised if too few calls wait for a batch, so that each call must be sent directly."""


@dataclass(slots=True)
class QueuedCall:
    """One call in the batch queue."""

    # Identifies the call within its batch.
    key: str
    address: str
    model_state: ModelState
    provider: ChatProvider
    item: BatchItem
    path: str
    answer: asyncio.Future[HttpResponse] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def fail_waiting_call(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def wait_until_idle(
    count_waiting: Callable[[], int],
    max_waiting: float = math.inf,
    is_still: asyncio.Event | None = None,
) -> None:
    """Wait until no coroutine of the run can ask a further question without an answer.

    - `count_waiting`: returns the number of calls that wait for an answer.
    - `max_waiting`: the number of waiting calls at which the wait ends in any case.
    - `is_still`: an event that is not set while work goes on that may ask questions, if any.
    """
    last_count, idle_iterations = 0, 0
    while idle_iterations < IDLE_LOOP_ITERATIONS and count_waiting() < max_waiting:
        idle_iterations = idle_iterations + 1 if count_waiting() == last_count else 0
        last_count = count_waiting()
        # Let the other coroutines run: they may be about to ask.
        await asyncio.sleep(0)
        if is_still is not None and not is_still.is_set():
            idle_iterations = 0
            await is_still.wait()


class BatchQueue:
    """The batch queue of one run.

    - `stop_run`: called with an error that stops the run, such as an exhausted quota.
    """

    def __init__(
        self,
        journal: Journal,
        config: StudyConfig,
        progress: Progress,
        stop_run: Callable[[FolkmootError], None],
    ) -> None:
        self._journal = journal
        self._config = config
        self._progress = progress
        self._stop_run = stop_run
        self._stopped: FolkmootError | None = None
        self._known = journal.read_batches()
        self._earlier = frozenset(self._known)
        # Address → time of the last lost reply that earlier processes recorded.
        self._earlier_broken = {
            reply.address: reply.at for reply in journal.read_broken_replies() if self._known
        }
        # Vendor ids that are certain: by a receipt or by the keys of the results.
        self._own_ids: set[str] = set()
        # A random prefix of all batch names and keys, so that another run of the same study has
        # other ones. A resumed run keeps its prefix.
        self._run = next(iter(self._known), secrets.token_hex(8)).partition("-")[0]
        # Address → number of submissions. A call that is submitted again needs another key.
        self._steps: dict[str, int] = {}
        self._waiting: list[QueuedCall] = []
        # Batches that the vendor is processing.
        self._open: dict[str, BatchRecord] = {}
        self._driver: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Submissions in progress. They must finish even if the run stops.
        self._placing: set[asyncio.Task[BatchRecord]] = set()
        # The number of blocks of work that may still ask questions.
        self._elsewhere = 0
        self._still = asyncio.Event()
        self._still.set()

    def supports_model(self, model_state: ModelState) -> bool:
        """Return whether this model can be called through a batch API."""
        return supports_batches(model_state.spec) and isinstance(model_state.provider, ChatProvider)

    def should_batch(self, model_state: ModelState, address: str, fingerprint: bytes) -> bool:
        """Return whether a call is sent in a batch."""
        # The call of an earlier process may be in a batch even if the study file no longer sets
        # `batch`.
        if not self.supports_model(model_state):
            return False
        return bool(self._config.batch) or bool(
            self._earlier and self._journal.find_batch(self._submission_key(address, fingerprint))
        )

    @contextlib.contextmanager
    def hold_while_working(self) -> Iterator[None]:
        """Delay the submission of waiting calls while this context manager is open."""
        # For work that may lead to further calls, such as a computation.
        self._elsewhere += 1
        self._still.clear()
        try:
            yield
        finally:
            self._elsewhere -= 1
            if not self._elsewhere:
                self._still.set()

    async def request_reply(
        self, model_state: ModelState, address: str, fingerprint: bytes, request: ModelRequest
    ) -> Completion:
        """Send a request in a batch and return its completion.

        Raises TooFewCallsForBatchError, or a ModelError that describes the vendor's error.
        """
        provider = model_state.provider
        assert isinstance(provider, ChatProvider)
        # The model may reject a parameter. The provider then learns it, and the call goes into a
        # further batch without the parameter.
        for _ in range(MAX_CAPABILITY_RETRIES):
            capabilities, body = provider.prepare_request(request, batched=True)
            key = self._submission_key(address, fingerprint)
            self._steps[address] = self._steps.get(address, 0) + 1
            call = QueuedCall(
                key, address, model_state, provider, BatchItem(key, body), provider.path(request)
            )
            self._enqueue(call)
            try:
                response = await call.answer
            # One error ends thousands of calls. Each raise would add its frames to the shared
            # traceback.
            except FolkmootError as error:
                self._forget_recorded_bill(call, error)
                raise error.with_traceback(None) from None
            try:
                completion = provider.decode_or_relearn(request, capabilities, response)
            except QuotaError:
                # The account was empty when an earlier process submitted the batch. It need not be
                # empty any more, so the call goes into a new batch.
                if self._journal.find_batch(key) not in self._earlier:
                    raise
                return await self.request_reply(model_state, address, fingerprint, request)
            except ModelError as error:
                self._forget_recorded_bill(call, error)
                raise
            if completion is not None:
                self._steps.pop(address)
                return completion
        raise FatalModelError(f"{model_state.name} rejected {address} in every request format")

    def _forget_recorded_bill(self, call: QueuedCall, error: FolkmootError) -> None:
        # A resume reads the results of earlier batches again. It must not count a lost reply among
        # them twice.
        if not isinstance(error, ModelError) or not error.may_be_billed:
            return
        name = self._journal.find_batch(call.key)
        if name in self._earlier:
            recorded_at = self._earlier_broken.get(call.address, -math.inf)
            error.may_be_billed = recorded_at <= self._known[name].submitted_at

    def stop_calls(self, error: FolkmootError) -> None:
        """Submit no more batches and raise `error` in waiting calls."""
        # Submitted batches continue at the vendor.
        if self._stopped is not None:
            return
        self._stopped = error
        if self._driver is not None:
            self._driver.cancel()
        for call in self._waiting:
            call.fail_waiting_call(error)
        self._waiting.clear()
        for task in tuple(self._tasks):
            task.cancel()
        for batch in self._open.values():
            self._notify_remaining_time(batch)

    async def wait_for_submissions(self) -> None:
        """Wait until no submission is in progress."""
        await asyncio.gather(*self._placing, return_exceptions=True)

    def _submission_key(self, address: str, fingerprint: bytes) -> str:
        return batch_key(self._run, address, fingerprint, self._steps.get(address, 0))

    def _enqueue(self, call: QueuedCall) -> None:
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        self._waiting.append(call)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._submit_when_idle())

    async def _submit_when_idle(self) -> None:
        while self._waiting:
            await wait_until_idle(lambda: len(self._waiting), MAX_WAVE_CALLS, self._still)
            wave, self._waiting = self._waiting[:MAX_WAVE_CALLS], self._waiting[MAX_WAVE_CALLS:]
            self._start_wave(wave)

    def _start_wave(self, wave: Sequence[QueuedCall]) -> None:
        new_calls: dict[tuple[str, str], list[QueuedCall]] = {}
        earlier_calls: dict[str, list[QueuedCall]] = {}
        for call in wave:
            name = self._journal.find_batch(call.key) if self._earlier else None
            if name is not None:
                earlier_calls.setdefault(name, []).append(call)
            else:
                new_calls.setdefault((call.model_state.name, call.path), []).append(call)
        for name, calls in earlier_calls.items():
            self._start_task(self._resume_batch(self._known[name], calls), calls)
        for calls in new_calls.values():
            # Few calls are answered faster directly. Their callers send them without a batch.
            if self._config.batch == "auto" and len(calls) < self._config.batch_at_least:
                for call in calls:
                    call.fail_waiting_call(TooFewCallsForBatchError(""))
            else:
                self._start_task(self._submit_calls(calls), calls)

    def _start_task(self, work: Awaitable[None], calls: Sequence[QueuedCall]) -> None:
        async def run_task() -> None:
            try:
                await work
            except asyncio.CancelledError:
                for call in calls:
                    call.fail_waiting_call(
                        self._stopped or RunPausedError("the batches were abandoned")
                    )
                raise
            except Exception as error:
                if isinstance(error, FolkmootError):
                    self._stop_run(error)
                for call in calls:
                    call.fail_waiting_call(error)

        task = asyncio.ensure_future(run_task())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit_calls(self, calls: Sequence[QueuedCall]) -> None:
        batches = calls[0].provider.batches
        for batch_calls in _split_into_batches(calls, batches.max_calls, batches.max_bytes):
            task = asyncio.ensure_future(self._submit_recorded(batch_calls))
            self._placing.add(task)
            task.add_done_callback(self._placing.discard)
            # Shield the submission: whatever stops the run, the batch id must be journaled.
            batch = await asyncio.shield(task)
            self._start_task(self._collect_results(batch, batch_calls), batch_calls)

    async def _submit_recorded(self, calls: Sequence[QueuedCall]) -> BatchRecord:
        submitted_at = time.time()
        due_at = submitted_at + PROMISED_HOURS * 3600
        name = f"{self._run}-{len(self._known)}"
        batch = BatchRecord(name, calls[0].model_state.name, "", len(calls), submitted_at, due_at)
        # Journal the batch first. If the process dies during the submission, a resume looks for the
        # batch at the vendor by this name.
        await self._record_batch(batch, [call.key for call in calls])
        batch = batch._replace(id=await self._submit_once(batch, calls))
        await self._record_batch(batch)
        self._notify(
            f"{format_count(len(calls), 'call')} submitted to {batch.model} as batch "
            f"{batch.id}; results are due by {_format_time(due_at)}"
        )
        if self._stopped is None:
            self._open[name] = batch
        else:
            self._notify_remaining_time(batch)
        return batch

    async def _submit_once(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> str:
        # If the outcome is unknown, look for the batch at the vendor before submitting it again. If
        # every attempt was refused, the vendor has nothing to bill.
        batches, path = calls[0].provider.batches, calls[0].path
        items = [call.item for call in calls]
        may_have_arrived = False

        async def submit_batch() -> str:
            nonlocal may_have_arrived
            if may_have_arrived and (submitted_id := await self._find_at_vendor(batch, batches)):
                return submitted_id
            is_prepared = False
            try:
                prepared = await batches.prepare_batch(batch.name, path, items)
                is_prepared = True
                received_id = await batches.submit_batch(batch.name, path, prepared)
            except NotFoundError as error:
                raise FatalModelError(
                    f"{batch.model} has no batch API at this address; leave out --batch ({error})"
                ) from None
            except ModelError as error:
                may_have_arrived = may_have_arrived or (is_prepared and not error.is_refusal)
                raise
            self._own_ids.add(received_id)
            return received_id

        try:
            return await self._retry_vendor_call(batch, submit_batch)
        except FolkmootError:
            if not may_have_arrived:
                await asyncio.wrap_future(self._journal.release_batch(batch.name))
            raise

    async def _resume_batch(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> None:
        # A batch that the vendor never received is submitted again.
        batches = calls[0].provider.batches
        # The earlier process ended before it had journaled the id.
        if not batch.id:
            submitted_id = await self._retry_vendor_call(
                batch, lambda: self._find_at_vendor(batch, batches)
            )
            if submitted_id is None:
                await self._submit_calls(calls)
                return
            batch = batch._replace(id=submitted_id)
            await self._record_batch(batch)
        self._open[batch.name] = batch
        self._notify(
            f"batch {batch.id} of {batch.model} is resumed: {format_count(len(calls), 'call')}"
        )
        await self._collect_results(batch, calls)

    async def _find_at_vendor(
        self, batch: BatchRecord, batches: BatchApi, foreign: Collection[str] = ()
    ) -> str | None:
        # Returns the id of a batch with an unknown receipt. Other batches of this run are excluded,
        # because Anthropic's batches can be told apart only by their age and size.
        # `foreign`: batches that were found in this way and belong to others. If there are any, the
        # id of another batch of this run may be wrong as well, and only certain ids are excluded.
        others = {known.id for known in self._known.values() if known.name != batch.name}
        excluded = {*self._own_ids, *foreign} if foreign else others | self._own_ids
        return await batches.find_submitted_batch(
            batch.name, batch.submitted_at, batch.calls, excluded
        )

    async def _collect_results(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> None:
        earlier = batch.name in self._earlier
        try:
            batch, status, responses = await self._read_own_results(
                batch, calls[0].provider.batches
            )
        finally:
            self._open.pop(batch.name, None)
        if status.processed_nothing:
            await asyncio.wrap_future(self._journal.release_batch(batch.name))
        if status.problem:
            await self._resubmit(batch, calls, status, earlier=earlier)
            return
        # Expired calls get no answer, so their callers submit them again.
        answered = {key for key, response in responses.items() if response[0] != EXPIRED}
        answered_count = sum(call.key in answered for call in calls)
        self._notify(
            f"batch {batch.id}: {answered_count:,} of {format_count(len(calls), 'call')} answered"
        )
        # A batch that the researcher cancelled pauses the run, instead of being paid for again at
        # once. In a later process the researcher has resumed the run, so its calls are submitted
        # again.
        is_paused = status.is_cancelled and not earlier and answered_count < len(calls)
        for call in calls:
            if call.answer.done() or (is_paused and call.key not in answered):
                continue
            if call.key in responses or not status.processed_all:
                is_answered = call.key in answered
                call.answer.set_result(responses[call.key] if is_answered else EXPIRED_RESPONSE)
            else:
                problem = f"batch {batch.id} has no readable result for this call"
                call.fail_waiting_call(TransientError(problem, may_be_billed=True))
        if is_paused:
            raise RunPausedError(
                f"batch {batch.id} of {batch.model} was cancelled, with "
                f"{format_count(len(calls) - answered_count, 'call')} unanswered; a resume "
                "submits them again"
            )

    async def _read_own_results(
        self, batch: BatchRecord, batches: BatchApi
    ) -> tuple[BatchRecord, BatchStatus, dict[str, HttpResponse]]:
        # A batch that was found by its age and size may be that of another run, with other keys.
        # Then the next one is tried. The batch is returned with the id of the one that was read.
        keys, foreign = self._journal.keys_of(batch.name), set[str]()
        while True:
            status, responses = await self._read_results(batch, batches)
            if not responses:
                return batch, status, responses
            if any(key in responses for key in keys):
                self._own_ids.add(batch.id)
                return batch, status, responses
            foreign.add(batch.id)
            submitted_id = await self._retry_vendor_call(
                batch, functools.partial(self._find_at_vendor, batch, batches, frozenset(foreign))
            )
            if submitted_id is None:
                # The vendor never received the batch, so its calls are submitted again.
                return batch, BatchStatus(is_finished=True), {}
            batch = self._open[batch.name] = batch._replace(id=submitted_id)
            await self._record_batch(batch)

    async def _read_results(
        self, batch: BatchRecord, batches: BatchApi
    ) -> tuple[BatchStatus, dict[str, HttpResponse]]:
        try:
            while not (
                status := await self._retry_vendor_call(batch, lambda: batches.get_status(batch.id))
            ).is_finished:
                await asyncio.sleep(self._config.batch_poll_seconds)
            if status.problem:
                return status, {}
            return status, dict(
                await self._retry_vendor_call(
                    batch, lambda: batches.fetch_results(batch.id, status)
                )
            )
        except NotFoundError as error:
            if self._journal.accept_changes:
                return BatchStatus(is_finished=True, processed_all=True), {}
            difference = f"{batch.model} does not know batch {batch.id} ({error})."
            unknown = UnknownBatchError(
                f"{difference} Resume with the key and the address with which the batch was "
                "submitted, or add --accept-changes to ask its calls again"
            )
            unknown.difference = difference
            raise unknown from None

    async def _resubmit(
        self, batch: BatchRecord, calls: Sequence[QueuedCall], status: BatchStatus, *, earlier: bool
    ) -> None:
        # If the vendor's queue was full, halve the batch. Submit a batch of an earlier process
        # unchanged. Any other failure stops the run.
        if status.queue_was_full and len(calls) > MIN_SPLIT_CALLS:
            self._notify(
                f"batch {batch.id} was too large for the vendor's queue; it is submitted in two "
                "halves"
            )
            middle = len(calls) // 2
            for half in (calls[:middle], calls[middle:]):
                await self._submit_calls(half)
                # The first half must leave the vendor's queue before the second one fits.
                await asyncio.gather(*(_wait_until_answered(call) for call in half))
        elif earlier:
            await self._submit_calls(calls)
        else:
            raise batch_start_error(batch.model, status.problem)

    async def _retry_vendor_call(
        self, batch: BatchRecord, call_vendor: Callable[[], Awaitable[R]]
    ) -> R:
        # A transient error is retried as for a model call.
        config, failures = self._config, 0
        while True:
            try:
                return await call_vendor()
            except TransientError as error:
                failures += 1
                if self._stopped is not None:
                    raise
                if failures > config.max_api_retries:
                    raise RunPausedError(
                        f"the batch API of {batch.model} failed {failures} times "
                        f"(max_api_retries); the last error: {error}"
                    ) from error
                # Few batches are sent, so their waits need not differ.
                backoff = longest_backoff_seconds(config.api_retry_base_seconds, failures)
                wait = max(error.retry_after or 0.0, backoff)
                self._progress(CallRetried(batch.model, str(error), wait, failures))
                await asyncio.sleep(wait)
            except QuotaError as error:
                raise QuotaExhaustedError(f"{batch.model}: {error}") from error
            # The vendor refused the whole batch. This is no rejection of one of its calls.
            except RefusedError as error:
                raise FatalModelError(f"{batch.model}, batch API: {error}") from None

    async def _record_batch(self, batch: BatchRecord, keys: Sequence[str] = ()) -> None:
        self._known[batch.name] = batch
        await asyncio.wrap_future(self._journal.note(batch, keys))

    def _notify(self, message: str) -> None:
        self._progress(Notice(message))

    def _notify_remaining_time(self, batch: BatchRecord) -> None:
        self._notify(
            f"batch {batch.id} ({format_count(batch.calls, 'call')}) continues at "
            f"{batch.model}, until {_format_time(batch.due_at)} at the latest; resume to fetch "
            "its answers"
        )


async def _wait_until_answered(call: QueuedCall) -> None:
    with contextlib.suppress(FolkmootError):
        await asyncio.shield(call.answer)


def _split_into_batches(
    calls: Sequence[QueuedCall], max_calls: int, max_bytes: int
) -> Iterator[list[QueuedCall]]:
    batch: list[QueuedCall] = []
    batch_bytes = 0
    for call in calls:
        call_bytes = len(encode_json(call.item.body))
        if batch and (len(batch) == max_calls or batch_bytes + call_bytes > max_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(call)
        batch_bytes += call_bytes
    if batch:
        yield batch


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %H:%M UTC")
