"""The cost of tokens, from an offline price library (genai-prices).

An unknown price is `None` and never zero.
"""

from __future__ import annotations

import functools
import math
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from datetime import time as clock_time
from typing import TYPE_CHECKING

from folkmoot.models.catalog import LOCAL_MODEL, ModelSpec
from folkmoot.models.request import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

# Up to this number of tokens, prices are proportional to tokens. Some vendors charge more per token
# in long requests, so these are priced by the library itself.
MAX_LINEAR_TOKENS = 20_000
# The token count with which the library is asked for the prices per token.
_PROBE_TOKENS = 1_000
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of one model in USD per token."""

    provider: str | None
    model: str
    input_usd: float
    output_usd: float
    # The price of input tokens that the vendor reads from its cache.
    cached_usd: float
    # The price of tokens that are written to the vendor's cache.
    cache_write_usd: float
    # The factor by which the library's price is multiplied, such as 0.5 in a batch.
    share: float = 1.0
    # The beginning of the interval in which the price holds, in seconds since 1970. Some prices
    # depend on the time of day or begin on a date.
    since: int = 0

    def batch_price(self) -> ModelPrice:
        """Return the price of the model in a batch. It is half the normal price at all vendors."""
        # Anthropic applies its cache discount in batches too. The other vendors do not document
        # this for every model, so their cached tokens are priced as uncached. The actual bill may
        # be lower.
        half = replace(self, share=0.5)
        if self.provider == "anthropic":
            return half
        return replace(half, cached_usd=self.input_usd)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in USD, or None if the server did not report the tokens.

        A free model costs 0, even without a token count.
        """
        # A usage without a count of cached tokens is priced as if none were cached.
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        if self is FREE_PRICE:
            return 0.0
        if input_tokens is None or output_tokens is None:
            return None
        if max(input_tokens, output_tokens) > MAX_LINEAR_TOKENS:
            # In a batch without cache discount, the library must not apply that discount either.
            ignores_cache = self.share < 1.0 and self.cached_usd == self.input_usd
            priced_usage = usage._replace(cached_tokens=None) if ignores_cache else usage
            exact = _library_cost(self.provider, self.model, priced_usage, self.since)
            if exact is not None:
                return exact * self.share
        return self.short_calls_cost(
            input_tokens, output_tokens, usage.cached_tokens or 0, usage.cache_write_tokens or 0
        )

    def short_calls_cost(
        self, input_tokens: int, output_tokens: int, cached: int = 0, cache_written: int = 0
    ) -> float:
        """Return the cost in USD of calls with these numbers of tokens in total.

        Each call has at most `MAX_LINEAR_TOKENS`.
        """
        # Some servers report more cached tokens than input tokens.
        cached = min(cached, input_tokens)
        cache_written = min(cache_written, input_tokens - cached)
        return self.share * (
            (input_tokens - cached - cache_written) * self.input_usd
            + cached * self.cached_usd
            + cache_written * self.cache_write_usd
            + output_tokens * self.output_usd
        )

    def max_cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the highest cost, in USD, that a call with these token counts can have."""
        # Writing the input to the vendor's cache may cost more or less than plain input. The higher
        # cost counts.
        if max(input_tokens, output_tokens) <= MAX_LINEAR_TOKENS or self is FREE_PRICE:
            return self.share * (
                input_tokens * max(self.input_usd, self.cache_write_usd)
                + output_tokens * self.output_usd
            )
        possible_usages = (
            Usage(input_tokens, output_tokens, 0),
            Usage(input_tokens, output_tokens, 0, input_tokens),
        )
        return max(self.cost(usage) or 0.0 for usage in possible_usages)


FREE_PRICE = ModelPrice(None, "", 0.0, 0.0, 0.0, 0.0)


def find_price(spec: ModelSpec) -> ModelPrice | None:
    """Return the present price of a model, or None if it is unknown.

    Models on this machine are free.
    """
    if spec.local or spec.provider == LOCAL_MODEL:
        return FREE_PRICE
    if spec.price_provider is None:
        return None
    starts = _price_starts(spec.price_provider, spec.price_model, _current_time())
    return _load_price(spec.price_provider, spec.price_model, starts[0])


def find_highest_price(spec: ModelSpec) -> ModelPrice | None:
    """Return the highest price of a model in the next 24 hours, or None if it is unknown."""
    # A call that begins at a low price may end at a higher one.
    price = find_price(spec)
    if price is None or price.provider is None:
        return price
    starts = _price_starts(price.provider, price.model, _current_time())
    return _load_highest_price(price.provider, price.model, starts)


def estimate_cost(
    spec: ModelSpec,
    input_tokens: int,
    output_tokens: int,
    cached: int = 0,
    *,
    calls: int = 1,
    batch: bool = False,
) -> float | None:
    """Return the estimated cost in USD of calls with these numbers of tokens in total.

    Returns None if the price is unknown.
    """
    rate = find_price(spec)
    if rate is None:
        return None
    price_rate = rate.batch_price() if batch and supports_batches(spec) else rate
    # Long requests cost more per token, so price one call of the mean length.
    calls = max(1, calls)
    mean = Usage(*(math.ceil(tokens / calls) for tokens in (input_tokens, output_tokens, cached)))
    if max(mean.input_tokens or 0, mean.output_tokens or 0) <= MAX_LINEAR_TOKENS:
        return price_rate.short_calls_cost(input_tokens, output_tokens, cached)
    mean_cost = price_rate.cost(mean)
    return None if mean_cost is None else calls * mean_cost


def supports_batches(spec: ModelSpec) -> bool:
    """Return True if the vendor has a batch API for this model."""
    return not spec.local and spec.price_provider in ("openai", "anthropic", "google")


def _current_time() -> int:
    # In seconds since 1970.
    return int(time.time())


# Many calls ask within a second.
@functools.lru_cache(maxsize=256)
def _price_starts(provider: str, model: str, now: int) -> tuple[int, ...]:
    # The beginnings of the price intervals that reach into the next 24 hours, in seconds since
    # 1970. The first interval is the present one.
    starts = _starts_around(provider, model, now // _DAY_SECONDS)
    return starts[bisect_right(starts, now) - 1 : bisect_left(starts, now + _DAY_SECONDS)]


# Each call asks for its price, so the intervals of a day are computed once.
@functools.cache
def _starts_around(provider: str, model: str, day: int) -> tuple[int, ...]:
    # The beginnings of all price intervals up to the end of the next day, in ascending order.
    dates, times_of_day = _price_changes(provider, model)
    changes = {0, *dates}
    for midnight in range((day - 1) * _DAY_SECONDS, (day + 2) * _DAY_SECONDS, _DAY_SECONDS):
        changes.update(midnight + seconds for seconds in times_of_day)
    return tuple(sorted(changes))


@functools.cache
def _price_changes(provider: str, model: str) -> tuple[frozenset[int], frozenset[int]]:
    # The dates (seconds since 1970) and the times of day (seconds since midnight, UTC) at which the
    # price changes.
    from genai_prices.types import StartDateConstraint, TimeOfDateConstraint

    calculation = _calculate_price(provider, model, Usage(0, 0, 0), 0)
    prices = [] if calculation is None else calculation.model.prices
    dates, times_of_day = set[int](), set[int]()
    for price in prices if isinstance(prices, list) else ():
        constraint = price.constraint
        if isinstance(constraint, StartDateConstraint):
            start = datetime.combine(constraint.start_date, clock_time.min, UTC)
            dates.add(int(start.timestamp()))
        elif isinstance(constraint, TimeOfDateConstraint):
            for moment in (constraint.start_time, constraint.end_time):
                # A time without a zone is UTC.
                zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                start = datetime.combine(date(1970, 1, 2), zoned)
                times_of_day.add(int(start.timestamp()) % _DAY_SECONDS)
    return frozenset(dates), frozenset(times_of_day)


@functools.cache
def _load_highest_price(provider: str, model: str, starts: tuple[int, ...]) -> ModelPrice | None:
    prices = (_load_price(provider, model, start) for start in starts)
    return max(
        (price for price in prices if price is not None),
        key=lambda price: price.short_calls_cost(_PROBE_TOKENS, _PROBE_TOKENS),
    )


@functools.cache
def _load_price(provider: str, model: str, at: int) -> ModelPrice | None:
    per_input = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, 0), at)
    per_output = _library_cost(provider, model, Usage(0, _PROBE_TOKENS, 0), at)
    per_cached = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, _PROBE_TOKENS), at)
    per_written = _library_cost(provider, model, Usage(_PROBE_TOKENS, 0, 0, _PROBE_TOKENS), at)
    if per_input is None or per_output is None:
        return None
    return ModelPrice(
        provider,
        model,
        per_input / _PROBE_TOKENS,
        per_output / _PROBE_TOKENS,
        (per_input if per_cached is None else per_cached) / _PROBE_TOKENS,
        (per_input if per_written is None else per_written) / _PROBE_TOKENS,
        since=at,
    )


def _library_cost(provider: str | None, model: str, usage: Usage, at: int) -> float | None:
    calculation = _calculate_price(provider, model, usage, at)
    return None if calculation is None else float(calculation.total_price)


def _calculate_price(
    provider: str | None, model: str, usage: Usage, at: int
) -> PriceCalculation | None:
    # The import takes 0.4 s, too long for every `--help`.
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cached_tokens or 0, usage.input_tokens or 0),
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    try:
        return calc_price(
            tokens,
            model_ref=model,
            provider_id=provider,
            genai_request_timestamp=datetime.fromtimestamp(at, UTC),
        )
    except (LookupError, ValueError):
        return None
