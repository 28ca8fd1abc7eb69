"""Controls as an earlier version of Folkmoot planned them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from folkmoot.kit.controls import asking


@contextmanager
def plan_controls_without(rule: str) -> Iterator[None]:
    """Plan controls without one rule, whose key earlier plans lack."""
    is_planned_earlier = asking._is_planned_earlier
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(
            asking,
            "_is_planned_earlier",
            lambda run, key: key == rule or is_planned_earlier(run, key),
        )
        yield
