"""Prices: from the price library, and unknown where it knows none."""

from __future__ import annotations

import pytest
from genai_prices import Usage as PricedUsage
from genai_prices import calc_price

from folkmoot.models.catalog import resolve_model
from folkmoot.models.prices import estimate_cost, find_price
from folkmoot.models.request import Usage


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "gpt-5-mini", "claude-haiku-4.5", "gemini-3-flash", "gemini-2.5-pro", "kimi-k2"],
)
@pytest.mark.parametrize("tokens", [(1, 1, 0), (812, 93, 512), (19_000, 4, 0), (300_000, 900, 0)])
def test_costs_are_those_of_the_library(name: str, tokens: tuple[int, int, int]) -> None:
    spec = resolve_model(name, environ={})
    rate = find_price(spec)
    assert rate is not None
    asked, said, cached = tokens
    exact = calc_price(
        PricedUsage(input_tokens=asked, output_tokens=said, cache_read_tokens=cached),
        model_ref=spec.price_model,
        provider_id=spec.price_provider,
    ).total_price
    assert rate.cost(Usage(asked, said, cached)) == pytest.approx(float(exact), rel=1e-6)


@pytest.mark.parametrize("name", ["gpt-4o", "claude-haiku-4.5", "gemini-2.5-pro"])
@pytest.mark.parametrize("tokens", [(1, 1), (812, 93), (19_000, 4), (300_000, 900)])
@pytest.mark.parametrize("batch", [False, True])
def test_the_dearest_is_that_of_tokens_read_or_written(
    name: str, tokens: tuple[int, int], batch: bool
) -> None:
    rate = find_price(resolve_model(name, environ={}))
    assert rate is not None
    rate = rate.batch_price() if batch else rate
    read, written = (rate.cost(Usage(*tokens, 0, n)) for n in (0, tokens[0]))
    assert rate.max_cost_usd(*tokens) == pytest.approx(max(read or 0.0, written or 0.0), rel=1e-12)


@pytest.mark.parametrize("name", ["exaone-4.0", "openai/some-local-llama", "ollama/llama3"])
def test_an_unknown_price_is_none_and_not_zero(name: str) -> None:
    spec = resolve_model(name, environ={})
    assert find_price(spec) is None
    assert estimate_cost(spec, 1000, 1000) is None


def test_what_runs_here_is_free() -> None:
    assert estimate_cost(resolve_model("synthetic", environ={}), 10**9, 10**9) == 0.0
