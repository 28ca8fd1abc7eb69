"""What the gateway is told, what it tells, and the running totals that it keeps of each model."""

from __future__ import annotations

from dataclasses import dataclass, field

from folkmoot.engine.journal import Entry


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How hard to try. Seconds; the names of the study file's keys stand in `engine/config.py`."""

    concurrency: int = 64
    max_api_retries: int = 5
    api_retry_base_seconds: float = 2.0
    api_sleep_seconds: float = 0.0
    quota_wait_seconds: float = 60.0
    budget_usd: float | None = None
    budget_calls: int | None = None
    spent_usd: float = 0.0  # by earlier sittings of this run
    spent_calls: int = 0


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """Something worth telling: kind is retry, rate_limited, quota, refused, budget, price or
    note (what a provider found out about a model)."""

    kind: str
    model: str
    message: str
    address: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class ModelStats:
    """Running totals of one model. Tokens and cost count replayed calls as well, `spent_usd` not.

    `uncounted` are calls of which the server did not say all tokens, `unpriced` those whose cost
    is unknown: then the sums are only lower bounds. `lost` are tries that failed on the way: the
    vendor may have billed them, and nobody knows what.
    """

    calls: int = 0
    replayed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    spent_usd: float = 0.0
    unpriced: int = 0
    uncounted: int = 0
    lost: int = 0
    retries: int = 0
    errors: int = 0
    refused: int = 0
    latency_s: float = 0.0
    served: set[str] = field(default_factory=set)

    def add(self, entry: Entry, *, replayed: bool) -> None:
        self.input_tokens += entry.input_tokens or 0
        self.output_tokens += entry.output_tokens or 0
        self.cached_tokens += entry.cached_tokens or 0
        self.uncounted += entry.input_tokens is None or entry.output_tokens is None
        if entry.model_served:
            self.served.add(entry.model_served)
        if entry.finish.startswith("refused:"):
            self.refused += 1
        if entry.cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd += entry.cost_usd
        if replayed:
            self.replayed += 1
            return
        self.calls += 1
        self.spent_usd += entry.cost_usd or 0.0
        self.latency_s += entry.latency_s
