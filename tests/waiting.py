"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 120.0  # seconds; nothing here takes so long, unless what is waited for will never come


def wait_until(moment: Callable[[], bool], seen: Callable[[], object] = lambda: "") -> None:
    """Wait until the moment has come. Fails with what can be `seen` if it never does."""
    give_up = time.monotonic() + LONG
    while not moment():
        assert time.monotonic() < give_up, f"waited in vain for {LONG:g} s; seen: {seen()}"
        time.sleep(0.002)
