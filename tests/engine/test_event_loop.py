"""What many runs in one process leave behind."""

from __future__ import annotations

import gc
import weakref

import pytest

from folkmoot.engine.run.event_loop import RunStopper, run_until_complete


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("when", ["before", "in"])
def test_what_a_small_run_leaves_is_collected(when: str) -> None:
    left: list[weakref.ref[Ring]] = []

    async def main(_: RunStopper) -> None:
        if when == "in":
            left.append(weakref.ref(Ring()))

    gc.disable()  # nothing else may have found it
    try:
        if when == "before":
            left.append(weakref.ref(Ring()))
        run_until_complete(main)
    finally:
        gc.enable()
    assert left[0]() is None
