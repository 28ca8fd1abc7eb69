"""What a run will take before it is run: calls, tokens and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from folkmoot.engine.study import StageEstimate

ASSUMED_LATENCY = 2.0  # seconds for one reply of a hosted model
SYNTHETIC_LATENCY = 0.001  # of processor time; it answers in this process


@dataclass(frozen=True, slots=True)
class Estimate:
    """Totals of a run. `chain`: most calls that must wait for each other. `models`: input and
    output tokens by model, where it is known which model answers what."""

    stages: tuple[StageEstimate, ...]
    chain: int = 1
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(s.calls for s in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(s.input_tokens for s in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(s.output_tokens for s in self.stages)

    def seconds(
        self, *, concurrency: int, spacing: float = 0.0, latency: float = ASSUMED_LATENCY
    ) -> float:
        """How long it takes: as its calls at full concurrency, as its longest chain, or as its
        calls at the minimum spacing, whichever is longest. All in seconds a call."""
        calls = self.calls
        return max(calls / concurrency * latency, self.chain * latency, calls * spacing)
