"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 120.0  # seconds; nothing here takes so long, unless what is waited for will never come


def wait_until(moment: Callable[[], bool], seen: Callable[[], object] = lambda: "") -> None:
    """Wait until the moment has come. Fails with what can be `seen` if it never does."""
    give_up = time.monotonic() + LONG
    while True:
        started = time.monotonic()
        if moment():
            return
        now = time.monotonic()
        assert now < give_up, f"waited in vain for {LONG:g} s; seen: {seen()}"
        # Whoever is waited for needs the processor as well: look a quarter of the time at most.
        time.sleep(max(0.003, 3 * (now - started)))
