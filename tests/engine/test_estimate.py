"""Estimates: totals, and the longest of concurrency, chain and spacing."""

from __future__ import annotations

from folkmoot.engine.estimate import estimate
from folkmoot.engine.study import StageEstimate


def test_totals_add_up_and_time_is_the_longest_bound_of_each_stage() -> None:
    wide = StageEstimate("wide", 1000, 10_000, 1_000)
    deep = StageEstimate("deep", 20, 500, 50, longest_chain=10)
    none = StageEstimate("none", 0)
    total = estimate([wide, deep, none], concurrency=100, latency=2.0)
    assert (total.calls, total.input_tokens, total.output_tokens) == (1020, 10_500, 1_050)
    assert total.seconds == 1000 / 100 * 2 + 10 * 2
    spaced = estimate([wide], concurrency=100, latency=2.0, spacing=3.0)
    assert spaced.seconds == 3000
