"""The outbox: calls that wait are handed in together, by the vendors' batch interfaces.

When nobody in the run can go on without an answer, all calls that wait are one wave, cut into
batches of the size that the vendor takes. What is in which batch is in the journal before the
batch is handed in, and its id before anything else happens; so a run that was killed finds its
batches again and pays for nothing twice. How waves are cut changes no result: a call's answer
depends on its address and its request alone. Used by the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from folkmoot.engine.calls.progress import CallRetried, Notice, Progress
from folkmoot.engine.calls.retries import MAX_BACKOFF_SECONDS, ModelState
from folkmoot.engine.journal.journal import BatchRecord, Journal
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    NotFoundError,
    QuotaError,
    QuotaExhaustedError,
    RefusedError,
    RunPausedError,
    TransientError,
)
from folkmoot.json_text import encode_json
from folkmoot.measures.inference.estimates import format_count
from folkmoot.models.prices import supports_batches
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.wire.batches import (
    EXPIRED,
    PROMISED_HOURS,
    BatchApi,
    BatchItem,
    BatchStatus,
    batch_start_error,
)
from folkmoot.models.wire.chat_provider import MAX_CAPABILITY_RETRIES, ChatProvider
from folkmoot.randomness import digest
from folkmoot.transport import HttpResponse

R = TypeVar("R")

MAX_WAVE_CALLS = 50_000  # calls handed in together at most, so that memory stays bounded
IDLE_LOOP_ITERATIONS = 30  # of the loop without a new call: then all wait that can
MIN_SPLIT_CALLS = 100  # calls; a smaller batch that does not fit beside others is not cut further
EXPIRED_RESPONSE: HttpResponse = (
    EXPIRED,
    {},
    b'{"error": {"message": "not answered within the batch"}}',
)


class TooFewCallsForBatchError(FolkmootError):
    """Inside the engine only: with `batch: auto`, so few calls wait that they go directly."""


@dataclass(slots=True)
class QueuedCall:
    """One call in the outbox; `key` names it in the batch."""

    key: str
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


class BatchQueue:
    """The outbox of one run. `stop_run` is told of what stops the run: no quota, no such batch."""

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
        # In every name and key, so that another run of the same study has others.
        self._run = next(iter(self._known), secrets.token_hex(8)).partition("-")[0]
        self._steps: dict[str, int] = {}
        self._waiting: list[QueuedCall] = []
        self._open: dict[str, BatchRecord] = {}  # under way at the vendor
        self._driver: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._placing: set[asyncio.Task[BatchRecord]] = set()
        self._elsewhere = 0
        self._still = asyncio.Event()
        self._still.set()

    def supports_model(self, line: ModelState) -> bool:
        """Whether a model can be asked by batches at all."""
        return supports_batches(line.spec) and isinstance(line.provider, ChatProvider)

    def should_batch(self, line: ModelState, address: str, fingerprint: bytes) -> bool:
        """Whether a call goes by batch: the study says so, or it stands in one already."""
        if not self.supports_model(line):
            return False
        return bool(self._config.batch) or bool(
            self._earlier and self._journal.find_batch(self._submission_key(address, fingerprint))
        )

    @contextlib.contextmanager
    def hold_while_working(self) -> Iterator[None]:
        """Work that needs no batch is under way: calls may still come from it."""
        self._elsewhere += 1
        self._still.clear()
        try:
            yield
        finally:
            self._elsewhere -= 1
            if not self._elsewhere:
                self._still.set()

    async def request_reply(
        self, line: ModelState, address: str, fingerprint: bytes, request: ModelRequest
    ) -> Completion:
        """The reply to a request by way of a batch. Raises TooFew, or the ModelError that fits."""
        chat = line.provider
        assert isinstance(chat, ChatProvider)
        for _ in range(MAX_CAPABILITY_RETRIES):
            used, body = chat.prepare_request(request, batched=True)
            key = self._submission_key(address, fingerprint)
            self._steps[address] = self._steps.get(address, 0) + 1
            call = QueuedCall(key, line, chat, BatchItem(key, body), chat.path(request))
            self._enqueue(call)
            try:
                answer = await call.answer
            except FolkmootError as error:  # one for thousands: its traceback must not grow
                raise error.with_traceback(None) from None
            reply = chat.decode_or_relearn(request, used, answer)
            if reply is not None:
                self._steps.pop(address)
                return reply
        raise FatalModelError(f"{line.name} refused {address} in every form that it can be asked")

    def stop_calls(self, error: FolkmootError) -> None:
        """Hand nothing more in; those who wait get the error. Batches go on at the vendor."""
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
        """Wait until no batch is being handed in."""
        await asyncio.gather(*self._placing, return_exceptions=True)

    def _submission_key(self, address: str, fingerprint: bytes) -> str:
        """The key under which a call is handed in next: 32 hexadecimal digits."""
        return digest(self._run, address, fingerprint, self._steps.get(address, 0)).hex()

    def _enqueue(self, call: QueuedCall) -> None:
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        self._waiting.append(call)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._submit_when_idle())

    async def _submit_when_idle(self) -> None:
        """Hand in what waits, each time that nobody is left who could still ask."""
        while self._waiting:
            seen, quiet = 0, 0
            while quiet < IDLE_LOOP_ITERATIONS and len(self._waiting) < MAX_WAVE_CALLS:
                quiet = quiet + 1 if len(self._waiting) == seen else 0
                seen = len(self._waiting)
                await asyncio.sleep(0)
                if self._elsewhere:
                    quiet = 0
                    await self._still.wait()
            wave, self._waiting = self._waiting[:MAX_WAVE_CALLS], self._waiting[MAX_WAVE_CALLS:]
            self._start_wave(wave)

    def _start_wave(self, wave: Sequence[QueuedCall]) -> None:
        """Start what a wave needs: new batches, and those of an earlier process looked up."""
        new: dict[tuple[str, str], list[QueuedCall]] = {}
        old: dict[str, list[QueuedCall]] = {}
        for call in wave:
            name = self._journal.find_batch(call.key) if self._earlier else None
            if name is not None:
                old.setdefault(name, []).append(call)
            else:
                new.setdefault((call.model_state.name, call.path), []).append(call)
        for name, calls in old.items():
            self._start_task(self._resume_batch(self._known[name], calls), calls)
        for calls in new.values():
            if self._config.batch == "auto" and len(calls) < self._config.batch_at_least:
                for call in calls:
                    call.fail_waiting_call(TooFewCallsForBatchError(""))
            else:
                self._start_task(self._submit_calls(calls), calls)

    def _start_task(self, work: Awaitable[None], calls: Sequence[QueuedCall]) -> None:
        """A task whose failure is that of its calls, and of the run where it is not one call's."""

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
        """Hand calls of one model in, in batches of the size that the vendor takes."""
        batches = calls[0].provider.batches
        for part in _split_into_batches(calls, batches.most_calls, batches.most_bytes):
            task = asyncio.ensure_future(self._submit_recorded(part))
            self._placing.add(task)
            task.add_done_callback(self._placing.discard)
            batch = await asyncio.shield(task)  # whatever stops the run: the id must be kept
            self._start_task(self._collect_results(batch, part), part)

    async def _submit_recorded(self, calls: Sequence[QueuedCall]) -> BatchRecord:
        """One batch, written down, handed in, and written down with its id."""
        begun = time.time()
        promised = begun + PROMISED_HOURS * 3600
        name = f"{self._run}-{len(self._known)}"
        batch = BatchRecord(name, calls[0].model_state.name, "", len(calls), begun, promised)
        self._known[name] = batch
        await self._record_batch(batch, [call.key for call in calls])
        batch = batch._replace(id=await self._submit_once(batch, calls))
        await self._record_batch(batch)
        self._notify(
            f"{format_count(len(calls), 'call')} handed in to {batch.model} as batch {batch.id}; "
            f"promised by {_format_time(promised)}"
        )
        if self._stopped is None:
            self._open[name] = batch
        else:
            self._notify_remaining_time(batch)
        return batch

    async def _submit_once(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> str:
        """Hand one batch in; the vendor's id. After a failure of which nobody knows whether the
        vendor had taken it already, it is looked for before it is handed in again."""
        batches, path = calls[0].provider.batches, calls[0].path
        tried = False

        async def submit_batch() -> str:
            nonlocal tried
            if tried and (
                found := await batches.find_submitted_batch(
                    batch.name, batch.submitted_at, batch.calls
                )
            ):
                return found
            tried = True
            try:
                return await batches.submit_batch(batch.name, path, [call.item for call in calls])
            except NotFoundError as error:
                raise FatalModelError(
                    f"{batch.model} has no batch interface there; leave out --batch ({error})"
                ) from None

        return await self._retry_vendor_call(batch, submit_batch)

    async def _resume_batch(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> None:
        """Take up a batch of an earlier process; hand in again what never got there."""
        batches = calls[0].provider.batches
        if not batch.id:
            found = await self._retry_vendor_call(
                batch,
                lambda: batches.find_submitted_batch(batch.name, batch.submitted_at, batch.calls),
            )
            if found is None:
                await self._submit_calls(calls)
                return
            batch = batch._replace(id=found)
            await self._record_batch(batch)
        self._open[batch.name] = batch
        self._notify(
            f"batch {batch.id} of {batch.model} is taken up: {format_count(len(calls), 'call')}"
        )
        await self._collect_results(batch, calls)

    async def _collect_results(self, batch: BatchRecord, calls: Sequence[QueuedCall]) -> None:
        """Wait for a batch and distribute its answers."""
        earlier = batch.name in self._earlier
        try:
            look, answers = await self._read_results(batch, calls[0].provider.batches)
        finally:
            self._open.pop(batch.name, None)
        if look.wrong:
            await self._resubmit(batch, calls, look, earlier=earlier)
            return
        count = sum(call.key in answers for call in calls)
        self._notify(f"batch {batch.id}: {count:,} of {format_count(len(calls), 'call')} answered")
        paused = look.is_cancelled and not earlier and count < len(calls)
        for call in calls:
            if not call.answer.done() and (call.key in answers or not paused):
                call.answer.set_result(answers.get(call.key, EXPIRED_RESPONSE))
        if paused:
            raise RunPausedError(
                f"batch {batch.id} of {batch.model} was cancelled, with "
                f"{format_count(len(calls) - count, 'call')} unanswered; a resume hands them in "
                "again"
            )

    async def _read_results(
        self, batch: BatchRecord, batches: BatchApi
    ) -> tuple[BatchStatus, dict[str, HttpResponse]]:
        """How a batch ended, and its answers by key."""
        try:
            while not (
                look := await self._retry_vendor_call(batch, lambda: batches.get_status(batch.id))
            ).is_finished:
                await asyncio.sleep(self._config.batch_poll_seconds)
            if look.wrong:
                return look, {}
            found = await self._retry_vendor_call(
                batch, lambda: batches.fetch_results(batch.id, look)
            )
            return look, {key: answer for key, answer in found if answer[0] != EXPIRED}
        except NotFoundError as error:
            if self._journal.accept_changes:
                return BatchStatus(is_finished=True), {}
            raise FatalModelError(
                f"{batch.model} does not know batch {batch.id} ({error}). Resume with the key and "
                "the address with which it was handed in, or add --accept-changes to ask its calls "
                "again"
            ) from None

    async def _resubmit(
        self, batch: BatchRecord, calls: Sequence[QueuedCall], look: BatchStatus, *, earlier: bool
    ) -> None:
        """A batch that the vendor did not start: where its queue was too full for it, it is halved,
        one half after the other; after a resume it goes as it was; else it stops the run."""
        if look.queue_was_full and len(calls) > MIN_SPLIT_CALLS:
            self._notify(f"batch {batch.id} was too large for the vendor's queue; it is halved")
            middle = len(calls) // 2
            for half in (calls[:middle], calls[middle:]):
                await self._submit_calls(half)
                await asyncio.gather(*(_wait_until_answered(call) for call in half))
        elif earlier:
            await self._submit_calls(calls)
        else:
            raise batch_start_error(batch.model, look.wrong)

    async def _retry_vendor_call(self, batch: BatchRecord, what: Callable[[], Awaitable[R]]) -> R:
        """Try until it works, as often as any call is tried. Raises what stops the run."""
        config, failures = self._config, 0
        while True:
            try:
                return await what()
            except TransientError as error:
                failures += 1
                if self._stopped is not None:
                    raise
                if failures > config.max_api_retries:
                    raise RunPausedError(
                        f"the batch interface of {batch.model} failed {failures} times "
                        f"(max_api_retries); the last error: {error}"
                    ) from error
                doubled = config.api_retry_base_seconds * 2.0 ** (failures - 1)
                wait = max(error.retry_after or 0.0, min(MAX_BACKOFF_SECONDS, doubled))
                self._progress(CallRetried(batch.model, str(error), wait, failures))
                await asyncio.sleep(wait)
            except QuotaError as error:
                raise QuotaExhaustedError(f"{batch.model}: {error}") from error
            except RefusedError as error:  # of the whole batch: no call of it was rejected
                raise FatalModelError(f"{batch.model}, by batches: {error}") from None

    async def _record_batch(self, batch: BatchRecord, keys: Sequence[str] = ()) -> None:
        await asyncio.wrap_future(self._journal.note(batch, keys))

    def _notify(self, message: str) -> None:
        self._progress(Notice(message))

    def _notify_remaining_time(self, batch: BatchRecord) -> None:
        self._notify(
            f"batch {batch.id} ({format_count(batch.calls, 'call')}) goes on at {batch.model}, "
            "until "
            f"{_format_time(batch.due_at)} at the latest; resume to fetch its answers"
        )


async def _wait_until_answered(call: QueuedCall) -> None:
    with contextlib.suppress(FolkmootError):
        await asyncio.shield(call.answer)


def _split_into_batches(
    calls: Sequence[QueuedCall], most_calls: int, most_bytes: int
) -> Iterator[list[QueuedCall]]:
    """Calls in parts that one batch holds."""
    part: list[QueuedCall] = []
    size = 0
    for call in calls:
        more = len(encode_json(call.item.body))
        if part and (len(part) == most_calls or size + more > most_bytes):
            yield part
            part, size = [], 0
        part.append(call)
        size += more
    if part:
        yield part


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %H:%M UTC")
