"""Forecast the cost of a run from its estimate and the replies so far."""

# The estimate assumes the length of the model's replies. The preflight and the first replies show
# their true length. So the forecast moves from the estimate to the counted values, and its range
# narrows.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from folkmoot.engine.calls.progress import CallDone, Event
from folkmoot.engine.run.dry_run import RunEstimate
from folkmoot.measures.inference.estimates import format_dollars

# After this number of replies, their mean length weighs as much as the estimated length. A mean of
# 20 replies has a standard error of about a fifth of their standard deviation.
REPLIES_THAT_WEIGH_AS_MUCH = 20

# Maps a model, a number of calls and their input and output tokens in total to USD, or to None if
# the price is unknown.
Price = Callable[[str, int, float, float], float | None]


class Cost(NamedTuple):
    """The forecast cost of a whole run in USD, with a range."""

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
    # Sums over the replies of one model: calls, tokens sent, tokens received and cost (USD).
    calls: int = 0
    sent: int = 0
    said: int = 0
    usd: float = 0.0


class Forecast:
    """Counts replies and forecasts the cost of the whole run."""

    def __init__(self, estimate: RunEstimate, price: Price) -> None:
        self._estimate = estimate
        self._price = price
        self._counted: dict[str, _Counted] = {}

    def __call__(self, event: Event) -> None:
        # A reply without usage would lower the mean lengths, so it does not count.
        if not isinstance(event, CallDone) or None in (event.input_tokens, event.output_tokens):
            return
        model_counts = self._counted.setdefault(event.model, _Counted())
        model_counts.calls += 1
        model_counts.sent += event.input_tokens or 0
        model_counts.said += event.output_tokens or 0
        model_counts.usd += event.cost_usd or 0.0

    def cost(self) -> Cost | None:
        """Return the cost of the whole run in USD.

        Returns None if the price of a model is unknown.
        """
        totals = [0.0, 0.0, 0.0]
        for model, calls in self._estimate.model_calls.items():
            bounds = self._cost_of(model, calls)
            if bounds is None:
                return None
            totals = [total + bound for total, bound in zip(totals, bounds, strict=True)]
        return Cost(*totals)

    def _cost_of(self, model: str, calls: int) -> list[float] | None:
        # Returns middle, low and high (USD) of the cost so far plus a forecast for the remaining
        # calls.
        model_counts = self._counted.get(model, _Counted())
        calls_left = max(0, calls - model_counts.calls)
        input_per_call, output_per_call = (
            tokens / max(1, calls) for tokens in self._estimate.models[model]
        )
        # `trust` is the weight of the counted mean against the estimate, for input and for output.
        # Prompts grow during a conversation, so the first prompts are shorter than the mean. The
        # input weight is therefore only the share of calls made. Replies do not grow in this way.
        trust = (
            model_counts.calls / max(1, calls, model_counts.calls),
            model_counts.calls / (model_counts.calls + REPLIES_THAT_WEIGH_AS_MUCH),
        )
        spread = self._estimate.relative_spread()
        costs = []
        for bound in range(3):
            mean_input = _blend_estimates(
                input_per_call * spread[0][bound], model_counts.sent, model_counts.calls, trust[0]
            )
            mean_output = _blend_estimates(
                output_per_call * spread[1][bound], model_counts.said, model_counts.calls, trust[1]
            )
            usd = self._price(model, calls_left, calls_left * mean_input, calls_left * mean_output)
            if usd is None:
                return None
            costs.append(model_counts.usd + usd)
        return costs


def _blend_estimates(expected: float, total: int, calls: int, trust: float) -> float:
    # `trust` (0 to 1) is the weight of the counted mean.
    return expected if not calls else trust * total / calls + (1 - trust) * expected
