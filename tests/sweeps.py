"""Sweeps over many cases: some of each kind every day, all others in `make nightly`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sample_daily(cases: Iterable[Any], daily: Container[Any] | int, part: str) -> list[Any]:
    """The cases for `parametrize`: those that are not daily ones belong to a nightly part. A tuple
    holds the values of several arguments.

    `daily`: these cases, or so many of the first ones.
    """
    cases = list(cases)
    if any(hasattr(case, "marks") for case in cases):
        raise TypeError("write values, not pytest.param(…), which is a tuple of other things")
    every_day = cases[:daily] if isinstance(daily, int) else daily
    nightly = pytest.mark.nightly(part=part)
    return [
        case
        if case in every_day
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=nightly)
        for case in cases
    ]


# The widths at which a test opens its pages: a telephone every day, a desk as well at night.
SCREEN_WIDTHS = sample_daily([375, 1280], daily=[375], part="pages")
