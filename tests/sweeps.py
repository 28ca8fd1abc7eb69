"""Sweeps over many cases: some run daily, all others in `make nightly`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sample_daily(cases: Iterable[Any], daily: Container[Any] | int, part: str) -> list[Any]:
    """Return cases for `parametrize`. Those that are not daily belong to a nightly part. A tuple
    holds the values of several arguments.

    `daily`: the daily cases, or the number of first cases that are daily.
    """
    cases = list(cases)
    if any(hasattr(case, "marks") for case in cases):
        raise TypeError("write values, not pytest.param(…), which is a tuple of other things")
    daily_cases = cases[:daily] if isinstance(daily, int) else daily
    nightly = pytest.mark.nightly(part=part)
    return [
        case
        if case in daily_cases
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=nightly)
        for case in cases
    ]


# The widths at which a test opens its pages: a phone daily, a desktop screen at night as well.
SCREEN_WIDTHS = sample_daily([375, 1280], daily=[375], part="pages")
