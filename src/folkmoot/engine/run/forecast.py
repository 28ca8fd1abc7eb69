"""What a run will cost, from its estimate and the replies so far.

The estimate does not know how long the replies of a model are. The preflight and the first replies
show it, so the forecast moves from the estimate to what was counted, and its range narrows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from folkmoot.engine.calls.progress import CallDone, Event
from folkmoot.engine.run.dry_run import RunEstimate, TokenRange
from folkmoot.measures.inference.estimates import format_dollars

# With so many replies the lengths that were counted and those that were estimated weigh the same.
REPLIES_THAT_WEIGH_AS_MUCH = 20

Price = Callable[[str, float, float], float | None]  # model, input and output tokens → USD


class Cost(NamedTuple):
    """The cost of a whole run (USD), and between what it is expected to be."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{format_dollars(self.middle)} ({format_dollars(self.low)} to "
            f"{format_dollars(self.high)})"
        )


@dataclass(slots=True)
class _Counted:
    calls: int = 0
    sent: int = 0
    said: int = 0
    usd: float = 0.0


class Forecast:
    """A Progress that adds up replies; `cost` forecasts the bill. `price` gives None for a model
    of unknown price; then nothing is forecast."""

    def __init__(self, estimate: RunEstimate, price: Price) -> None:
        self._estimate = estimate
        self._price = price
        self._counted: dict[str, _Counted] = {}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, CallDone) or None in (event.input_tokens, event.output_tokens):
            return
        counted = self._counted.setdefault(event.model, _Counted())
        counted.calls += 1
        counted.sent += event.input_tokens or 0
        counted.said += event.output_tokens or 0
        counted.usd += event.cost_usd or 0.0

    @property
    def counted_replies(self) -> int:
        """How many replies have been counted."""
        return sum(counted.calls for counted in self._counted.values())

    def cost(self) -> Cost | None:
        """What the whole run will cost; None where a price is unknown."""
        totals = [0.0, 0.0, 0.0]
        for model, calls in self._estimate.model_calls.items():
            bounds = self._cost_of(model, calls)
            if bounds is None:
                return None
            totals = [total + bound for total, bound in zip(totals, bounds, strict=True)]
        return Cost(*totals)

    def _cost_of(self, model: str, calls: int) -> list[float] | None:
        """The middle, low and high cost of a model: what it cost so far and what is left."""
        counted = self._counted.get(model, _Counted())
        left = max(0, calls - counted.calls)
        sent, said = (tokens / max(1, calls) for tokens in self._estimate.models[model])
        # Prompts grow while a conversation goes on, so early ones weigh only by their share.
        trust = (
            counted.calls / max(1, calls, counted.calls),
            counted.calls / (counted.calls + REPLIES_THAT_WEIGH_AS_MUCH),
        )
        spread = (
            self._relative_spread(self._estimate.input_range),
            self._relative_spread(self._estimate.output_range),
        )
        costs = []
        for which in range(3):
            mean_sent = _blend_estimates(
                sent * spread[0][which], counted.sent, counted.calls, trust[0]
            )
            mean_said = _blend_estimates(
                said * spread[1][which], counted.said, counted.calls, trust[1]
            )
            usd = self._price(model, left * mean_sent, left * mean_said)
            if usd is None:
                return None
            costs.append(counted.usd + usd)
        return costs

    def _relative_spread(self, bounds: TokenRange | None) -> tuple[float, float, float]:
        """The middle, the low and the high bound of a range, as shares of its middle."""
        if bounds is None or not bounds.low + bounds.high:
            return 1.0, 1.0, 1.0
        middle = (bounds.low + bounds.high) / 2
        return 1.0, bounds.low / middle, bounds.high / middle


def _blend_estimates(expected: float, total: int, calls: int, trust: float) -> float:
    """A mean between the one that was expected and the one that was counted."""
    return expected if not calls else trust * total / calls + (1 - trust) * expected
