"""Memory after many runs in one process."""

from __future__ import annotations

import gc
import weakref

import pytest

from folkmoot.engine.run.event_loop import RunStopper, run_until_complete


class Ring:
    """A reference cycle that only the garbage collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("when", ["before", "in"])
def test_garbage_of_a_small_run_is_collected(when: str) -> None:
    references: list[weakref.ref[Ring]] = []

    async def main(_: RunStopper) -> None:
        if when == "in":
            references.append(weakref.ref(Ring()))

    gc.disable()  # so that only the run itself can collect it
    try:
        if when == "before":
            references.append(weakref.ref(Ring()))
        run_until_complete(main)
    finally:
        gc.enable()
    assert references[0]() is None
