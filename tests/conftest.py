"""Settings of all tests: hypothesis draws the same examples each time, and without a clock.

`make nightly` draws new ones (FOLKMOOT_FUZZ=1), so that a chance find never stops somebody else's
work but is not lost either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

# Files of the tests are their own: nobody is asked, and no yes is remembered on this machine.
os.environ["FOLKMOOT_TRUST"] = "1"

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=500)
hypothesis.settings.load_profile("fuzz" if os.environ.get("FOLKMOOT_FUZZ") else "steady")


@pytest.fixture(autouse=True, scope="session")
def _no_power_cut() -> Iterator[None]:
    """Files are not forced onto the disk: no test ends the machine, and a fifth of the time of a
    small run goes into waiting for it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _file: None)
        yield
