"""Wait for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

# No condition takes so long unless it never becomes true.
TIMEOUT_SECONDS = 120.0


def wait_until(
    is_true: Callable[[], bool], describe_state: Callable[[], object] = lambda: ""
) -> None:
    """Wait until a condition holds. On a timeout, fail with the description of the state."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        started = time.monotonic()
        if is_true():
            return
        now = time.monotonic()
        assert now < deadline, f"waited in vain for {TIMEOUT_SECONDS:g} s; seen: {describe_state()}"
        # The awaited thread or process needs the processor too: use at most a quarter of the time.
        time.sleep(max(0.003, 3 * (now - started)))
