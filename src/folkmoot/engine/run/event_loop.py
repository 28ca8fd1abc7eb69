"""Run a coroutine on a new event loop, in a notebook too."""

# A notebook has a running loop, so a thread is used. Ctrl-C stops the run in both cases.

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from folkmoot.engine.calls.progress import Notice
from folkmoot.engine.calls.retries import RunHaltedError
from folkmoot.engine.session.run_context import RunContext
from folkmoot.errors import RunInterruptedError

T = TypeVar("T")
# The time that a run has to end after the second stop request, before `abandon` is called. A loop
# that is not blocked cancels its tasks in far less.
ABANDON_TIMEOUT_SECONDS = 0.7
STOPPING = (
    "stopping after the replies in flight; a second Ctrl-C abandons them, although they may be "
    "paid for"
)
ENDING_PROTOCOL = (
    "no reply is in flight, but the code of the study waits for something else: ending it now"
)
# A stopped protocol is cancelled if the engine has been idle in so many checks, one after another.
IDLE_CHECKS = 5
IDLE_CHECK_SECONDS = 0.4


class RunStopper:
    """A callable that stops a run. It may be called from any thread.

    - First call: the run starts no new requests and waits for the replies in flight.
    - Second call: the run is cancelled.
    - `abandon`: ends the process if code of the study blocks the event loop.
    """

    def __init__(self, abandon: Callable[[], object] | None = None) -> None:
        # Stops new calls. It is set only while there are replies in flight to wait for.
        self.halt: Callable[[], None] | None = None
        self.calls = 0
        self._abandon = abandon
        self._deadline: threading.Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    def __call__(self) -> None:
        self.calls += 1
        # A thread's timer and not one of the loop, which may be blocked.
        if self.calls == 2 and self._abandon is not None:
            self._deadline = threading.Timer(ABANDON_TIMEOUT_SECONDS, self._abandon)
            self._deadline.daemon = True
            self._deadline.start()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_run, self.calls)

    def _stop_run(self, call: int) -> None:
        if call > 1:
            assert self._task is not None
            self._task.cancel()
        elif self.halt is not None:
            self.halt()

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP stop the run while this context manager is open."""
        # Outside the main thread it does nothing.
        handlers_before = {}
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            # Windows has no SIGHUP. `nohup` ignores it, so that a run survives its terminal.
            number = getattr(signal, name, None)
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                continue
            # Python raises ValueError outside the main thread, which has to listen itself.
            with contextlib.suppress(ValueError):
                handlers_before[number] = signal.signal(number, lambda *_: self())
        try:
            yield
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            for number, handler in handlers_before.items():
                signal.signal(number, handler)

    async def run_guarded(self, main: Coroutine[object, object, None]) -> None:
        """Await `main` until it ends. A second request to stop cancels `main`.

        Raises RunInterruptedError if `main` was cancelled.
        """
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            await main
        except asyncio.CancelledError:
            # Any other cancellation belongs to the caller and is passed on.
            if self.calls > 1:
                raise RunInterruptedError from None
            raise
        finally:
            self._loop = self._task = None


@contextlib.contextmanager
def relax_garbage_collector() -> Iterator[None]:
    """Run the garbage collector less often while this context manager is open."""
    # A run makes many small objects and hardly any reference cycle. Collecting less often saved a
    # sixth of the wall time of a run with 1,200 participants.
    threshold_before = gc.get_threshold()
    # Collect young garbage first: frozen objects are not examined before the end of the run.
    gc.collect(1)
    gc.freeze()
    # The first threshold is 700 or 2,000 in CPython, depending on its version.
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        # Collect the objects of this run before the others are unfrozen, so that only these are
        # examined. Without this, many small runs in one process would never be collected:
        # `unfreeze` moves objects into the oldest generation without counting them.
        gc.collect()
        gc.set_threshold(*threshold_before)
        gc.unfreeze()


def release_free_memory() -> None:
    """Return freed memory to the operating system, if the C library can."""
    # Polars has a separate allocator, so it cannot reuse the memory that a long protocol has freed.
    gc.collect()
    # `malloc_trim` exists in glibc but not in musl.
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def run_until_complete(
    main: Callable[[RunStopper], Coroutine[object, object, None]], stopper: RunStopper | None = None
) -> None:
    """Run a coroutine to its end on a new event loop.

    `main`: receives the stopper and returns the coroutine.
    """
    # If a loop is running in this thread, the new loop runs in another thread.
    stopper = stopper or RunStopper()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _run_with_stopper(main(stopper), stopper)
        return
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        future = pool.submit(lambda: _run_with_stopper(main(stopper), stopper))
        # The thread cannot listen for signals, so Ctrl-C arrives here as KeyboardInterrupt. It is
        # passed to the stopper, and then the wait goes on until the run has ended.
        while True:
            try:
                future.result()
                return
            except KeyboardInterrupt:
                if future.done():
                    raise
                stopper()


async def run_beside_loop(run: Callable[[RunStopper], T]) -> T:
    """Call `run` in a second thread and return the result of the call."""
    # The caller's event loop is not blocked. If the caller is cancelled, stop the run and wait for
    # its end, so that replies in flight are kept.
    stopper = RunStopper()
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        future = asyncio.get_running_loop().run_in_executor(pool, run, stopper)
        # Without the shield, cancelling would abandon the thread and its paid replies.
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stopper()
            await asyncio.wait([future])
            # Read the exception of the run, so that asyncio does not log it as never retrieved. The
            # caller was cancelled and wants no result.
            with contextlib.suppress(BaseException):
                future.result()
            raise


def _run_with_stopper(main: Coroutine[object, object, None], stopper: RunStopper) -> None:
    with relax_garbage_collector(), stopper.handle_signals():
        asyncio.run(stopper.run_guarded(main))


@contextlib.contextmanager
def handle_interrupt(context: RunContext, stopper: RunStopper) -> Iterator[None]:
    """Let the first Ctrl-C stop only new calls, while this context manager is open."""

    # Replies in flight arrive, so no reply is lost.
    def stop_once() -> None:
        context.progress(Notice(STOPPING, "warning"))
        context.stop_new_calls(KeyboardInterrupt())

    stopper.halt = stop_once
    try:
        yield
    except RunHaltedError:
        raise context.halt_cause or KeyboardInterrupt() from None
    finally:
        # The closure refers to the context and with it to all objects of the run.
        stopper.halt = None


@contextlib.contextmanager
def end_halted_protocol(context: RunContext) -> Iterator[None]:
    """Cancel the code in this context manager if new calls are stopped and it makes none.

    Raises the error that stopped the run.
    """
    # A stopped protocol ends by itself at its next call. Without this, a protocol that waits for
    # something else, such as a lock or a queue of the study, would never end.
    task = asyncio.current_task()
    assert task is not None
    watcher: asyncio.Task[None] | None = None
    is_cancelled_here = False

    def start_watcher() -> None:
        nonlocal watcher
        watcher = watcher or asyncio.ensure_future(cancel_idle_protocol())

    async def cancel_idle_protocol() -> None:
        nonlocal is_cancelled_here
        await _wait_until_idle(context)
        context.progress(Notice(ENDING_PROTOCOL, "warning"))
        is_cancelled_here = True
        task.cancel()

    context.on_halt = start_watcher
    try:
        yield
    except asyncio.CancelledError:
        if is_cancelled_here and context.halt_cause is not None:
            raise context.halt_cause from None
        raise
    finally:
        # The closures refer to the context and with it to all objects of the run.
        context.on_halt = None
        if watcher is not None:
            watcher.cancel()
        if is_cancelled_here:
            task.uncancel()


async def _wait_until_idle(context: RunContext) -> None:
    # A protocol may do something between two calls, and a run that pauses may replay calls. So the
    # engine has to be idle for several checks, without any new call.
    idle_checks, calls_before = 0, -1
    while idle_checks < IDLE_CHECKS:
        await asyncio.sleep(IDLE_CHECK_SECONDS)
        calls = context.gateway.total_use()[1]
        is_idle = context.gateway.is_idle and calls == calls_before
        idle_checks, calls_before = idle_checks + 1 if is_idle else 0, calls
