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
from folkmoot.engine.calls.retries import LONGEST_BACKOFF, Line
from folkmoot.engine.journal.journal import Batch, Journal
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import (
    FatalModelError,
    FolkmootError,
    NotFoundError,
    QuotaError,
    QuotaExhausted,
    RefusedError,
    RunPaused,
    TransientError,
)
from folkmoot.json_text import encode
from folkmoot.measures.inference.estimates import plural
from folkmoot.models.prices import takes_batches
from folkmoot.models.request import Reply, Request
from folkmoot.models.wire.batches import EXPIRED, PROMISED_HOURS, Batches, Item, Look, refused
from folkmoot.models.wire.chat_provider import CONCESSIONS, ChatWire
from folkmoot.randomness import digest
from folkmoot.transport import Answer

R = TypeVar("R")

WAVE = 50_000  # calls handed in together at most, so that memory stays bounded
QUIET_TURNS = 30  # of the loop without a new call: then all wait that can
CROWDED_ABOVE = 100  # calls; a smaller batch that does not fit beside others is not cut further
NOT_ANSWERED: Answer = (EXPIRED, {}, b'{"error": {"message": "not answered within the batch"}}')


class TooFew(FolkmootError):
    """Inside the engine only: with `batch: auto`, so few calls wait that they go directly."""


@dataclass(slots=True)
class Waiting:
    """One call in the outbox; `key` names it in the batch."""

    key: str
    line: Line
    chat: ChatWire
    item: Item
    path: str
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Outbox:
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
        self._known = journal.batches()
        self._earlier = frozenset(self._known)
        # In every name and key, so that another run of the same study has others.
        self._run = next(iter(self._known), secrets.token_hex(8)).partition("-")[0]
        self._steps: dict[str, int] = {}
        self._waiting: list[Waiting] = []
        self._open: dict[str, Batch] = {}  # under way at the vendor
        self._driver: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._placing: set[asyncio.Task[Batch]] = set()
        self._elsewhere = 0
        self._still = asyncio.Event()
        self._still.set()

    def serves(self, line: Line) -> bool:
        """Whether a model can be asked by batches at all."""
        return takes_batches(line.spec) and isinstance(line.provider, ChatWire)

    def takes(self, line: Line, address: str, fingerprint: bytes) -> bool:
        """Whether a call goes by batch: the study says so, or it stands in one already."""
        if not self.serves(line):
            return False
        return bool(self._config.batch) or bool(
            self._earlier and self._journal.batch_of(self._key(address, fingerprint))
        )

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Work that needs no batch is under way: calls may still come from it."""
        self._elsewhere += 1
        self._still.clear()
        try:
            yield
        finally:
            self._elsewhere -= 1
            if not self._elsewhere:
                self._still.set()

    async def ask(self, line: Line, address: str, fingerprint: bytes, request: Request) -> Reply:
        """The reply to a request by way of a batch. Raises TooFew, or the ModelError that fits."""
        chat = line.provider
        assert isinstance(chat, ChatWire)
        for _ in range(CONCESSIONS):
            used, body = chat.asked(request, batched=True)
            key = self._key(address, fingerprint)
            self._steps[address] = self._steps.get(address, 0) + 1
            call = Waiting(key, line, chat, Item(key, body), chat.path(request))
            self._join(call)
            try:
                answer = await call.answer
            except FolkmootError as error:  # one for thousands: its traceback must not grow
                raise error.with_traceback(None) from None
            reply = chat.settled(request, used, answer)
            if reply is not None:
                self._steps.pop(address)
                return reply
        raise FatalModelError(f"{line.name} refused {address} in every form that it can be asked")

    def stop(self, error: FolkmootError) -> None:
        """Hand nothing more in; those who wait get the error. Batches go on at the vendor."""
        if self._stopped is not None:
            return
        self._stopped = error
        if self._driver is not None:
            self._driver.cancel()
        for call in self._waiting:
            call.fail(error)
        self._waiting.clear()
        for task in tuple(self._tasks):
            task.cancel()
        for batch in self._open.values():
            self._say_left(batch)

    async def drain(self) -> None:
        """Wait until no batch is being handed in."""
        await asyncio.gather(*self._placing, return_exceptions=True)

    def _key(self, address: str, fingerprint: bytes) -> str:
        """The key under which a call is handed in next: 32 hexadecimal digits."""
        return digest(self._run, address, fingerprint, self._steps.get(address, 0)).hex()

    def _join(self, call: Waiting) -> None:
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        self._waiting.append(call)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._drive())

    async def _drive(self) -> None:
        """Hand in what waits, each time that nobody is left who could still ask."""
        while self._waiting:
            seen, quiet = 0, 0
            while quiet < QUIET_TURNS and len(self._waiting) < WAVE:
                quiet = quiet + 1 if len(self._waiting) == seen else 0
                seen = len(self._waiting)
                await asyncio.sleep(0)
                if self._elsewhere:
                    quiet = 0
                    await self._still.wait()
            wave, self._waiting = self._waiting[:WAVE], self._waiting[WAVE:]
            self._sort(wave)

    def _sort(self, wave: Sequence[Waiting]) -> None:
        """Start what a wave needs: new batches, and those of an earlier process looked up."""
        new: dict[tuple[str, str], list[Waiting]] = {}
        old: dict[str, list[Waiting]] = {}
        for call in wave:
            name = self._journal.batch_of(call.key) if self._earlier else None
            if name is not None:
                old.setdefault(name, []).append(call)
            else:
                new.setdefault((call.line.name, call.path), []).append(call)
        for name, calls in old.items():
            self._start(self._resume(self._known[name], calls), calls)
        for calls in new.values():
            if self._config.batch == "auto" and len(calls) < self._config.batch_at_least:
                for call in calls:
                    call.fail(TooFew(""))
            else:
                self._start(self._hand_in(calls), calls)

    def _start(self, work: Awaitable[None], calls: Sequence[Waiting]) -> None:
        """A task whose failure is that of its calls, and of the run where it is not one call's."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                for call in calls:
                    call.fail(self._stopped or RunPaused("the batches were abandoned"))
                raise
            except Exception as error:
                if isinstance(error, FolkmootError):
                    self._stop_run(error)
                for call in calls:
                    call.fail(error)

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_in(self, calls: Sequence[Waiting]) -> None:
        """Hand calls of one model in, in batches of the size that the vendor takes."""
        batches = calls[0].chat.batches
        for part in _cut(calls, batches.most_calls, batches.most_bytes):
            task = asyncio.ensure_future(self._placed(part))
            self._placing.add(task)
            task.add_done_callback(self._placing.discard)
            batch = await asyncio.shield(task)  # whatever stops the run: the id must be kept
            self._start(self._follow(batch, part), part)

    async def _placed(self, calls: Sequence[Waiting]) -> Batch:
        """One batch, written down, handed in, and written down with its id."""
        begun = time.time()
        promised = begun + PROMISED_HOURS * 3600
        name = f"{self._run}-{len(self._known)}"
        batch = Batch(name, calls[0].line.name, "", len(calls), begun, promised)
        self._known[name] = batch
        await self._noted(batch, [call.key for call in calls])
        batch = batch._replace(id=await self._submitted(batch, calls))
        await self._noted(batch)
        self._say(
            f"{plural(len(calls), 'call')} handed in to {batch.model} as batch {batch.id}; "
            f"promised by {_when(promised)}"
        )
        if self._stopped is None:
            self._open[name] = batch
        else:
            self._say_left(batch)
        return batch

    async def _submitted(self, batch: Batch, calls: Sequence[Waiting]) -> str:
        """Hand one batch in; the vendor's id. After a failure of which nobody knows whether the
        vendor had taken it already, it is looked for before it is handed in again."""
        batches, path = calls[0].chat.batches, calls[0].path
        tried = False

        async def submit() -> str:
            nonlocal tried
            if tried and (found := await batches.find(batch.name, batch.begun, batch.calls)):
                return found
            tried = True
            try:
                return await batches.submit(batch.name, path, [call.item for call in calls])
            except NotFoundError as error:
                raise FatalModelError(
                    f"{batch.model} has no batch interface there; leave out --batch ({error})"
                ) from None

        return await self._patiently(batch, submit)

    async def _resume(self, batch: Batch, calls: Sequence[Waiting]) -> None:
        """Take up a batch of an earlier process; hand in again what never got there."""
        batches = calls[0].chat.batches
        if not batch.id:
            found = await self._patiently(
                batch, lambda: batches.find(batch.name, batch.begun, batch.calls)
            )
            if found is None:
                await self._hand_in(calls)
                return
            batch = batch._replace(id=found)
            await self._noted(batch)
        self._open[batch.name] = batch
        self._say(f"batch {batch.id} of {batch.model} is taken up: {plural(len(calls), 'call')}")
        await self._follow(batch, calls)

    async def _follow(self, batch: Batch, calls: Sequence[Waiting]) -> None:
        """Wait for a batch and distribute its answers."""
        earlier = batch.name in self._earlier
        try:
            look, answers = await self._answers(batch, calls[0].chat.batches)
        finally:
            self._open.pop(batch.name, None)
        if look.wrong:
            await self._hand_in_anew(batch, calls, look, earlier=earlier)
            return
        count = sum(call.key in answers for call in calls)
        self._say(f"batch {batch.id}: {count:,} of {plural(len(calls), 'call')} answered")
        paused = look.cancelled and not earlier and count < len(calls)
        for call in calls:
            if not call.answer.done() and (call.key in answers or not paused):
                call.answer.set_result(answers.get(call.key, NOT_ANSWERED))
        if paused:
            raise RunPaused(
                f"batch {batch.id} of {batch.model} was cancelled, with "
                f"{plural(len(calls) - count, 'call')} unanswered; a resume hands them in again"
            )

    async def _answers(self, batch: Batch, batches: Batches) -> tuple[Look, dict[str, Answer]]:
        """How a batch ended, and its answers by key."""
        try:
            while not (look := await self._patiently(batch, lambda: batches.look(batch.id))).over:
                await asyncio.sleep(self._config.batch_poll_seconds)
            if look.wrong:
                return look, {}
            found = await self._patiently(batch, lambda: batches.results(batch.id, look))
            return look, {key: answer for key, answer in found if answer[0] != EXPIRED}
        except NotFoundError as error:
            if self._journal.accept_changes:
                return Look(over=True), {}
            raise FatalModelError(
                f"{batch.model} does not know batch {batch.id} ({error}). Resume with the key and "
                "the address with which it was handed in, or add --accept-changes to ask its calls "
                "again"
            ) from None

    async def _hand_in_anew(
        self, batch: Batch, calls: Sequence[Waiting], look: Look, *, earlier: bool
    ) -> None:
        """A batch that the vendor did not start: where its queue was too full for it, it is halved,
        one half after the other; after a resume it goes as it was; else it stops the run."""
        if look.crowded and len(calls) > CROWDED_ABOVE:
            self._say(f"batch {batch.id} was too large for the vendor's queue; it is halved")
            middle = len(calls) // 2
            for half in (calls[:middle], calls[middle:]):
                await self._hand_in(half)
                await asyncio.gather(*(_over(call) for call in half))
        elif earlier:
            await self._hand_in(calls)
        else:
            raise refused(batch.model, look.wrong)

    async def _patiently(self, batch: Batch, what: Callable[[], Awaitable[R]]) -> R:
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
                    raise RunPaused(
                        f"the batch interface of {batch.model} failed {failures} times "
                        f"(max_api_retries); the last error: {error}"
                    ) from error
                doubled = config.api_retry_base_seconds * 2.0 ** (failures - 1)
                wait = max(error.retry_after or 0.0, min(LONGEST_BACKOFF, doubled))
                self._progress(CallRetried(batch.model, str(error), wait, failures))
                await asyncio.sleep(wait)
            except QuotaError as error:
                raise QuotaExhausted(f"{batch.model}: {error}") from error
            except RefusedError as error:  # of the whole batch: no call of it was rejected
                raise FatalModelError(f"{batch.model}, by batches: {error}") from None

    async def _noted(self, batch: Batch, keys: Sequence[str] = ()) -> None:
        await asyncio.wrap_future(self._journal.note(batch, keys))

    def _say(self, message: str) -> None:
        self._progress(Notice(message))

    def _say_left(self, batch: Batch) -> None:
        self._say(
            f"batch {batch.id} ({plural(batch.calls, 'call')}) goes on at {batch.model}, until "
            f"{_when(batch.promised)} at the latest; resume to fetch its answers"
        )


async def _over(call: Waiting) -> None:
    with contextlib.suppress(FolkmootError):
        await asyncio.shield(call.answer)


def _cut(calls: Sequence[Waiting], most_calls: int, most_bytes: int) -> Iterator[list[Waiting]]:
    """Calls in parts that one batch holds."""
    part: list[Waiting] = []
    size = 0
    for call in calls:
        more = len(encode(call.item.body))
        if part and (len(part) == most_calls or size + more > most_bytes):
            yield part
            part, size = [], 0
        part.append(call)
        size += more
    if part:
        yield part


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %H:%M UTC")
