"""The user's budget in money and calls."""

from __future__ import annotations

import pytest

from folkmoot.engine.budget import Budget
from folkmoot.errors import BudgetReached


def spend(budget: Budget, cost: float | None, estimate: float | None = None) -> None:
    budget.settle(budget.admit(estimate), cost)


def test_without_limits_everything_goes() -> None:
    budget = Budget()
    assert not budget.active
    for _ in range(10):
        spend(budget, 1e6)


def test_money_ends_at_the_limit() -> None:
    budget = Budget(usd=1.0)
    with pytest.raises(BudgetReached, match=r"budget_usd"):
        for _ in range(100):
            spend(budget, 0.1)
    assert budget.spent_usd == pytest.approx(1.0)


def test_calls_under_way_count_against_the_money() -> None:
    budget = Budget(usd=1.0)
    for _ in range(5):
        spend(budget, 0.1)
    reserved = [budget.admit(None) for _ in range(5)]  # each is expected to cost the mean
    with pytest.raises(BudgetReached):
        budget.admit(None)
    budget.release(reserved.pop())  # one of them came to nothing
    budget.admit(None)


def test_before_anything_is_known_the_price_list_guards() -> None:
    budget = Budget(usd=1.0)
    for _ in range(3):
        budget.admit(0.3)
    with pytest.raises(BudgetReached):
        budget.admit(0.3)


def test_calls_end_at_exactly_the_limit_also_side_by_side() -> None:
    budget = Budget(calls=3)
    reserved = [budget.admit(None) for _ in range(3)]
    with pytest.raises(BudgetReached, match="3 calls"):
        budget.admit(None)
    budget.release(reserved[0])
    spend(budget, None)


def test_earlier_sittings_count() -> None:
    with pytest.raises(BudgetReached):
        Budget(calls=5, spent_calls=5).admit(None)
    with pytest.raises(BudgetReached):
        Budget(usd=2.0, spent_usd=2.0).admit(0.0)
    Budget(usd=2.5, spent_usd=2.0).admit(0.1)


def test_the_warning_comes_once_at_80_percent() -> None:
    said: list[str] = []
    budget = Budget(calls=10, warn=said.append)
    for i in range(10):
        spend(budget, None)
        assert len(said) == (1 if i >= 7 else 0)
    assert "budget_calls" in said[0]


def test_a_budget_of_nothing_allows_nothing() -> None:
    for budget in (Budget(usd=0.0), Budget(calls=0)):
        with pytest.raises(BudgetReached):
            budget.admit(0.0)
