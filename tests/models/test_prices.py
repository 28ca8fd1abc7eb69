"""Prices: from the price library, and unknown if the library has none."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from genai_prices.types import (
    ConditionalPrice,
    ModelPrice,
    StartDateConstraint,
    TimeOfDateConstraint,
)

from folkmoot.models import prices
from folkmoot.models.catalog import resolve_model
from folkmoot.models.prices import (
    estimate_cost,
    find_highest_price,
    find_price,
)
from folkmoot.models.request import Usage


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "gpt-5-mini", "claude-haiku-4.5", "gemini-3-flash", "gemini-2.5-pro", "kimi-k2"],
)
@pytest.mark.parametrize("tokens", [(1, 1, 0), (812, 93, 512), (19_000, 4, 0), (300_000, 900, 0)])
def test_costs_equal_those_of_the_library(name: str, tokens: tuple[int, int, int]) -> None:
    spec = resolve_model(name, environ={})
    rate = find_price(spec)
    assert rate is not None
    input_tokens, output_tokens, cached_tokens = tokens
    exact = calc_price(
        PricedUsage(
            input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached_tokens
        ),
        model_ref=spec.price_model,
        provider_id=spec.price_provider,
    ).total_price
    assert rate.cost(Usage(input_tokens, output_tokens, cached_tokens)) == pytest.approx(
        float(exact), rel=1e-6
    )


@pytest.mark.parametrize("name", ["gpt-4o", "claude-haiku-4.5", "gemini-2.5-pro"])
@pytest.mark.parametrize("tokens", [(1, 1), (812, 93), (19_000, 4), (300_000, 900)])
@pytest.mark.parametrize("batch", [False, True])
def test_maximum_cost_covers_cache_reads_and_writes(
    name: str, tokens: tuple[int, int], batch: bool
) -> None:
    rate = find_price(resolve_model(name, environ={}))
    assert rate is not None
    rate = rate.batch_price() if batch else rate
    read_usd, written_usd = (rate.cost(Usage(*tokens, 0, n)) for n in (0, tokens[0]))
    assert rate.max_cost_usd(*tokens) == pytest.approx(
        max(read_usd or 0.0, written_usd or 0.0), rel=1e-12
    )


@pytest.mark.parametrize("name", ["gpt-4o", "gemini-2.5-pro", "gpt-5.5"])
@pytest.mark.parametrize("calls", [1, 2, 100])
@pytest.mark.parametrize("batch", [False, True])
def test_many_short_calls_are_not_priced_as_a_long_call(name: str, calls: int, batch: bool) -> None:
    spec = resolve_model(name, environ={})
    rate = find_price(spec)
    assert rate is not None
    single_call_price = (rate.batch_price() if batch else rate).cost(
        Usage(1_000_000 // calls, 100_000 // calls, 0)
    )
    assert single_call_price is not None
    estimated = estimate_cost(spec, 1_000_000, 100_000, calls=calls, batch=batch)
    assert estimated == pytest.approx(calls * single_call_price)


@pytest.mark.parametrize("hour", [3, 20])
def test_price_that_depends_on_the_time_of_day_is_bounded_by_the_maximum(
    hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = resolve_model("deepseek/deepseek-chat", environ={})
    at = datetime(2026, 11, 29, hour, tzinfo=UTC)
    monkeypatch.setattr(prices, "_current_time", lambda: int(at.timestamp()))
    costs = []
    for moment in (at, datetime(2026, 11, 29, 3, tzinfo=UTC)):
        exact = calc_price(
            PricedUsage(input_tokens=900, output_tokens=90),
            model_ref=spec.price_model,
            provider_id=spec.price_provider,
            genai_request_timestamp=moment,
        )
        costs.append(float(exact.total_price))
    now, highest = find_price(spec), find_highest_price(spec)
    assert now is not None and highest is not None
    assert now.cost(Usage(900, 90)) == pytest.approx(costs[0])
    assert highest.max_cost_usd(900, 90) == pytest.approx(costs[1])


@pytest.mark.parametrize(
    ("at", "now_usd", "highest_usd"),
    [
        (datetime(2026, 11, 29, 8, 9, 59), 1, 5),
        (datetime(2026, 11, 29, 8, 10), 5, 5),
        (datetime(2026, 11, 29, 8, 19, 59), 5, 5),
        (datetime(2026, 11, 29, 8, 20), 1, 5),
        (datetime(2026, 11, 30, 0, 0, 1), 1, 7),
        (datetime(2026, 12, 1, 0, 0), 7, 7),
    ],
)
def test_price_changes_at_any_minute_and_on_its_date(
    at: datetime, now_usd: int, highest_usd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of ten minutes of a day counts in all of the 24 hours before."""
    constraints = [
        (None, 1),
        (TimeOfDateConstraint(time(8, 10, tzinfo=UTC), time(8, 20, tzinfo=UTC)), 5),
        (StartDateConstraint(date(2026, 12, 1)), 7),
    ]
    conditional = [
        ConditionalPrice(
            constraint, prices=ModelPrice(input_mtok=Decimal(usd), output_mtok=Decimal(usd))
        )
        for constraint, usd in constraints
    ]
    spec = resolve_model("deepseek/deepseek-chat", environ={})
    assert spec.price_model is not None
    model = calc_price(
        PricedUsage(), model_ref=spec.price_model, provider_id=spec.price_provider
    ).model
    monkeypatch.setattr(model, "prices", conditional)
    monkeypatch.setattr(prices, "_current_time", lambda: int(at.replace(tzinfo=UTC).timestamp()))
    _forget_prices()
    now, highest = find_price(spec), find_highest_price(spec)
    _forget_prices()
    assert now is not None and highest is not None
    assert 10**6 * now.input_usd == pytest.approx(now_usd)
    assert 10**6 * highest.input_usd == pytest.approx(highest_usd)


def _forget_prices() -> None:
    for cached in vars(prices).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.mark.parametrize("name", ["exaone-4.0", "openai/some-local-llama", "ollama/llama3"])
def test_unknown_price_is_none_and_not_zero(name: str) -> None:
    spec = resolve_model(name, environ={})
    assert find_price(spec) is None
    assert estimate_cost(spec, 1000, 1000) is None


def test_local_models_are_free() -> None:
    assert estimate_cost(resolve_model("synthetic", environ={}), 10**9, 10**9) == 0.0
