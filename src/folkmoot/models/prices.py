"""What tokens cost, from the kept price library (genai-prices, offline data).

An unknown price is `None`, never zero. Used by the gateway after every call and by estimates.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from folkmoot.models.catalog import ON_THIS_MACHINE, ModelSpec
from folkmoot.models.request import Usage

LINEAR_UP_TO = 20_000  # tokens up to which prices are checked to be proportional
_PROBE = 1_000


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of one model: USD per token, with the library asked again for long requests.

    The library takes 100 µs a question; almost every call is priced by three products instead.
    """

    provider: str | None
    model: str
    input_usd: float
    output_usd: float
    cached_usd: float

    def cost(self, usage: Usage) -> float | None:
        """USD for these tokens; None where the server did not count them. What is free is free
        uncounted, too; where no cached tokens are named there were none."""
        asked, said = usage.input_tokens, usage.output_tokens
        if self is FREE:
            return 0.0
        if asked is None or said is None:
            return None
        if max(asked, said) > LINEAR_UP_TO:
            exact = _exact(self.provider, self.model, usage)
            if exact is not None:
                return exact
        cached = min(usage.cached_tokens or 0, asked)
        return (asked - cached) * self.input_usd + cached * self.cached_usd + said * self.output_usd


FREE = Rate(None, "", 0.0, 0.0, 0.0)


def rate_for(spec: ModelSpec) -> Rate | None:
    """The rate of a model; None where the price is unknown. What runs here costs nothing."""
    if spec.local or spec.provider == ON_THIS_MACHINE:
        return FREE
    return None if spec.price_provider is None else _rate(spec.price_provider, spec.price_model)


def cost_of(spec: ModelSpec, input_tokens: int, output_tokens: int) -> float | None:
    """USD for this many tokens of a model, for estimates; None if the price is unknown."""
    rate = rate_for(spec)
    return None if rate is None else rate.cost(Usage(input_tokens, output_tokens))


@functools.cache
def _rate(provider: str, model: str) -> Rate | None:
    per_input = _exact(provider, model, Usage(_PROBE, 0, 0))
    per_output = _exact(provider, model, Usage(0, _PROBE, 0))
    per_cached = _exact(provider, model, Usage(_PROBE, 0, _PROBE))
    if per_input is None or per_output is None:
        return None
    cached = per_input if per_cached is None else per_cached
    return Rate(provider, model, per_input / _PROBE, per_output / _PROBE, cached / _PROBE)


def _exact(provider: str | None, model: str, usage: Usage) -> float | None:
    from genai_prices import Usage as PricedUsage  # 0.4 s to import: not for every `--help`
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cached_tokens or 0, usage.input_tokens or 0),
    )
    try:
        return float(calc_price(tokens, model_ref=model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
