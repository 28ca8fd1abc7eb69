"""What tokens cost, from the kept price library (genai-prices, offline data).

An unknown price is `None`, never zero. Used by the gateway after every call and by estimates.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from folkmoot.models.catalog import LOCAL_MODEL, ModelSpec
from folkmoot.models.request import Usage

MAX_LINEAR_TOKENS = 20_000  # tokens up to which prices are checked to be proportional
_PROBE_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of one model: USD per token, with the library asked again for long requests.

    The library takes 100 µs a question; almost every call is priced by three products instead.
    """

    provider: str | None
    model: str
    input_usd: float
    output_usd: float
    cached_usd: float
    cache_write_usd: float  # of tokens that go into the vendor's cache, where these cost more
    share: float = 1.0  # of the library's price

    def batch_price(self) -> ModelPrice:
        """What a call costs in a batch: half, with all three vendors (see `batches.py`).

        Anthropic grants the discount of its cache as well. Of the others that is not known of every
        model, so cached tokens count as any others: the bill may be less.
        """
        half = replace(self, share=0.5)
        if self.provider == "anthropic":
            return half
        return replace(half, cached_usd=self.input_usd)

    def cost(self, usage: Usage) -> float | None:
        """USD for these tokens; None where the server did not count them. What is free is free
        uncounted, too; where no cached tokens are named there were none."""
        asked, said = usage.input_tokens, usage.output_tokens
        if self is FREE_PRICE:
            return 0.0
        if asked is None or said is None:
            return None
        if max(asked, said) > MAX_LINEAR_TOKENS:
            plain = self.share < 1.0 and self.cached_usd == self.input_usd
            counted = usage._replace(cached_tokens=None) if plain else usage
            exact = _library_cost(self.provider, self.model, counted)
            if exact is not None:
                return exact * self.share
        cached = min(usage.cached_tokens or 0, asked)
        written = min(usage.cache_write_tokens or 0, asked - cached)
        return self.share * (
            (asked - cached - written) * self.input_usd
            + cached * self.cached_usd
            + written * self.cache_write_usd
            + said * self.output_usd
        )

    def max_cost_usd(self, asked: int, said: int) -> float:
        """USD that so many tokens may cost at most, be they written into the vendor's cache or not:
        what `cost` says of both, without asking twice."""
        if max(asked, said) <= MAX_LINEAR_TOKENS or self is FREE_PRICE:
            return self.share * (
                asked * max(self.input_usd, self.cache_write_usd) + said * self.output_usd
            )
        used = (Usage(asked, said, 0), Usage(asked, said, 0, asked))
        return max(self.cost(usage) or 0.0 for usage in used)


FREE_PRICE = ModelPrice(None, "", 0.0, 0.0, 0.0, 0.0)


def find_price(spec: ModelSpec) -> ModelPrice | None:
    """The rate of a model; None where the price is unknown. What runs here costs nothing."""
    if spec.local or spec.provider == LOCAL_MODEL:
        return FREE_PRICE
    return (
        None if spec.price_provider is None else _load_price(spec.price_provider, spec.price_model)
    )


def estimate_cost(
    spec: ModelSpec, input_tokens: int, output_tokens: int, cached: int = 0, *, batch: bool = False
) -> float | None:
    """USD for this many tokens of a model, for estimates; None if the price is unknown."""
    rate = find_price(spec)
    if rate is None:
        return None
    priced = rate.batch_price() if batch and supports_batches(spec) else rate
    return priced.cost(Usage(input_tokens, output_tokens, cached))


def supports_batches(spec: ModelSpec) -> bool:
    """Whether calls to a model can go by its vendor's batch interface, at a price that is known."""
    return not spec.local and spec.price_provider in ("openai", "anthropic", "google")


@functools.cache
def _load_price(provider: str, model: str) -> ModelPrice | None:
    per_input = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, 0))
    per_output = _library_cost(provider, model, Usage(0, _PROBE_TOKENS, 0))
    per_cached = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, _PROBE_TOKENS))
    per_written = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, 0, _PROBE_TOKENS))
    if per_input is None or per_output is None:
        return None
    cached = per_input if per_cached is None else per_cached
    written = per_input if per_written is None else per_written
    each = (price / _PROBE_TOKENS for price in (per_input, per_output, cached, written))
    return ModelPrice(provider, model, *each)


def _library_cost(provider: str | None, model: str, usage: Usage) -> float | None:
    from genai_prices import Usage as PricedUsage  # 0.4 s to import: not for every `--help`
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cached_tokens or 0, usage.input_tokens or 0),
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    try:
        return float(calc_price(tokens, model_ref=model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
