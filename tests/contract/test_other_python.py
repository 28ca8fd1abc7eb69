"""A run can be verified under another version of Python than the one that made it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily

plain_sum = builtins.sum


def sum_with_other_rounding(values: Iterable[Any], /, start: Any = 0) -> Any:
    """Python 3.12 rounds a sum of floats otherwise than 3.11. The difference is larger here."""
    total = plain_sum(values, start)
    return total * (1 + 2**-40) if isinstance(total, float) else total


@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "focus_group"), part="sweeps"
    ),
)
def test_no_table_depends_on_how_a_python_rounds_sums(
    study: str, run_of_small_study: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(run_of_small_study(study))
    monkeypatch.setattr(builtins, "sum", sum_with_other_rounding)
    assert verify_run(run).differences == []
