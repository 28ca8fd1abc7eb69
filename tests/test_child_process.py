"""A function in a child process: its value, its errors, and its limits."""

from __future__ import annotations

import math
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from folkmoot import child_process
from folkmoot.child_process import Limits, run_in_child
from folkmoot.errors import FolkmootError, LimitReached, StorageError

SMALL_LIMITS = Limits(seconds=1, memory_bytes=100_000_000)


def test_a_value_is_returned_and_an_error_has_one_line(tmp_path: Path) -> None:
    assert run_in_child(math.gcd, (12, 18), limits=SMALL_LIMITS) == 6
    with pytest.raises(FolkmootError, match=r"^math\.sqrt: ValueError: ") as caught:
        run_in_child(math.sqrt, (-1,), limits=SMALL_LIMITS)
    assert not isinstance(caught.value, LimitReached)
    with pytest.raises(StorageError):
        run_in_child(math.gcd, (12, 18), folder=tmp_path / "gone")


def test_a_blocked_module_cannot_be_imported() -> None:
    with pytest.raises(FolkmootError, match="ModuleNotFoundError"):
        run_in_child(import_module, ("colorsys",), blocked_modules=["colorsys"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited() -> None:
    assert len(run_in_child(bytes, (10_000_000,), limits=SMALL_LIMITS)) == 10_000_000  # type: ignore[arg-type]
    with pytest.raises(LimitReached, match="MemoryError"):
        run_in_child(bytes, (500_000_000,), limits=SMALL_LIMITS)


@pytest.mark.skipif(child_process.resource is None, reason="has no limit on processor time")
def test_processor_time_is_limited() -> None:
    with pytest.raises(LimitReached, match="status -"):
        run_in_child(pow, (3, 10**9), limits=Limits(1, 2_000_000_000))


@pytest.mark.nightly(part="sweeps")
def test_wall_clock_time_is_limited_on_all_systems() -> None:
    with pytest.raises(LimitReached, match="not done after 6 seconds"):
        run_in_child(time.sleep, (600,), limits=SMALL_LIMITS)
