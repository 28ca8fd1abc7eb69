"""What a run will take before it is run: calls, tokens and time, from a study's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from folkmoot.engine.study import StageEstimate

ASSUMED_LATENCY = 2.0  # seconds for one reply of a hosted model
SYNTHETIC_LATENCY = 0.001  # of processor time; it answers in this process


@dataclass(frozen=True, slots=True)
class Estimate:
    """Totals of a run, and how many seconds it will take."""

    stages: tuple[StageEstimate, ...]
    seconds: float

    @property
    def calls(self) -> int:
        return sum(s.calls for s in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(s.input_tokens for s in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(s.output_tokens for s in self.stages)


def estimate(
    stages: Sequence[StageEstimate],
    *,
    concurrency: int,
    spacing: float = 0.0,
    latency: float = ASSUMED_LATENCY,
) -> Estimate:
    """Add stages up. `spacing` and `latency` are seconds a call.

    A stage takes as long as its calls at full concurrency, as its longest chain, or as its calls
    at the minimum spacing, whichever is longest.
    """
    seconds = sum(
        max(s.calls / concurrency * latency, s.longest_chain * latency, s.calls * spacing)
        for s in stages
        if s.calls
    )
    return Estimate(tuple(stages), seconds)
