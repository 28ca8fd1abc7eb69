"""The event loop of a run: our own, in a notebook in a thread, and stoppable by Ctrl-C in both."""

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
ABANDON_TIMEOUT_SECONDS = (
    0.7  # seconds for a run that was told twice to stop, before `abandon` is called
)


class RunStopper:
    """Stops a run, from any thread: the first call lets replies in flight arrive, the second
    does not wait. `abandon` ends the process when even that is not heard (the study's own code
    hangs, or a long computation)."""

    def __init__(self, abandon: Callable[[], object] | None = None) -> None:
        self.halt: Callable[[], None] | None = None  # while there are replies to wait for
        self.calls = 0
        self._abandon = abandon
        self._deadline: threading.Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    def __call__(self) -> None:
        self.calls += 1
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
        """Listen for Ctrl-C, SIGTERM and SIGHUP while the context is open, if this is the main
        thread."""
        before = {}
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                continue  # nohup
            with contextlib.suppress(ValueError):  # another thread's business
                before[number] = signal.signal(number, lambda *_: self())
        try:
            yield
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)

    async def run_guarded(self, main: Coroutine[object, object, None]) -> None:
        """Run it where calls reach it. Raises RunInterrupted when it was cancelled by one."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            await main
        except asyncio.CancelledError:
            if self.calls > 1:
                raise RunInterruptedError from None
            raise
        finally:
            self._loop = self._task = None


@contextlib.contextmanager
def relax_garbage_collector() -> Iterator[None]:
    """Run the garbage collector less often: a run makes many small objects and hardly a cycle.

    Measured on a pilot of 1,200: a sixth of its wall time. What is young is collected before, and
    what the run leaves after it: freezing makes it old without being counted, so that of many small
    runs in one process nothing would ever be collected.
    """
    before = gc.get_threshold()
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.collect()  # of what the run left: all else is frozen, and is not walked
        gc.set_threshold(*before)
        gc.unfreeze()


def release_free_memory() -> None:
    """Return memory that was freed to the system, where the C library can (glibc).

    Polars has an allocator of its own, so that what a long protocol has freed is of no use to the
    tables that are written after it.
    """
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def run_until_complete(
    main: Callable[[RunStopper], Coroutine[object, object, None]], stopper: RunStopper | None = None
) -> None:
    """Run to the end on a loop of our own; in a notebook, whose loop is running, in a thread."""
    stopper = stopper or RunStopper()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _run_with_stopper(main(stopper), stopper)
        return
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        done = pool.submit(lambda: _run_with_stopper(main(stopper), stopper))
        while True:
            try:
                done.result()
                return
            except KeyboardInterrupt:
                if done.done():
                    raise
                stopper()


async def run_beside_loop(run: Callable[[RunStopper], T]) -> T:
    """Run in a thread, so that the caller's event loop goes on, and return the result.

    When the caller is cancelled, the run is stopped and awaited: replies in flight are kept.
    """
    stopper = RunStopper()
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        done = asyncio.get_running_loop().run_in_executor(pool, run, stopper)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            stopper()
            await asyncio.wait([done])
            with contextlib.suppress(BaseException):  # its result is no longer wanted
                done.result()
            raise


def _run_with_stopper(main: Coroutine[object, object, None], stopper: RunStopper) -> None:
    with relax_garbage_collector(), stopper.handle_signals():
        asyncio.run(stopper.run_guarded(main))


@contextlib.contextmanager
def handle_interrupt(context: RunContext, stopper: RunStopper) -> Iterator[None]:
    """The first Ctrl-C lets replies in flight arrive."""

    def stop_once() -> None:
        context.progress(Notice("stopping after the replies in flight", "warning"))
        context.stop_new_calls(KeyboardInterrupt())

    stopper.halt = stop_once
    try:
        yield
    except RunHaltedError:
        raise context.halt_cause or KeyboardInterrupt() from None
    finally:
        stopper.halt = None  # it holds all of the run
