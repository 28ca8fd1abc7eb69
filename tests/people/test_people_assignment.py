"""Random assignment to conditions of equal size, reproducible by the generator."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.errors import InputError
from folkmoot.people import assign_conditions
from folkmoot.randomness import generator

CONDITIONS = ["simple", "passive", "clarified", "acp"]


@given(st.integers(0, 97), st.integers(1, 5), st.integers(0, 2**32))
def test_sizes_differ_by_at_most_one(n: int, condition_count: int, seed: int) -> None:
    ids = [f"p_{i}" for i in range(n)]
    conditions = [f"c{i}" for i in range(condition_count)]
    assignment = assign_conditions(ids, conditions, generator(seed, ("a",)))
    sizes = Counter(assignment.values())
    assert list(assignment) == ids
    assert (
        max(sizes[condition] for condition in conditions)
        - min(sizes[condition] for condition in conditions)
        <= 1
    )


def test_equal_seeds_give_equal_assignments_and_other_seeds_differ() -> None:
    ids = [f"p_{i}" for i in range(40)]
    first = assign_conditions(ids, CONDITIONS, generator(1, ("a",)))
    assert first == assign_conditions(ids, CONDITIONS, generator(1, ("a",)))
    assert first != assign_conditions(ids, CONDITIONS, generator(2, ("a",)))


def test_no_position_and_no_condition_is_favoured() -> None:
    ids = [f"p_{i}" for i in range(5)]
    condition_of_first, larger_condition = Counter[str](), Counter[str]()
    for seed in range(2000):
        assignment = assign_conditions(ids, CONDITIONS, generator(seed, ("a",)))
        condition_of_first[assignment["p_0"]] += 1
        larger_condition[Counter(assignment.values()).most_common(1)[0][0]] += 1
    for count in (*condition_of_first.values(), *larger_condition.values()):
        assert abs(count - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_invalid_conditions_and_ids_are_refused() -> None:
    rng = generator(1, ("a",))
    for ids, conditions in ((["a"], []), (["a"], ["x", "x"]), (["a", "a"], ["x"])):
        with pytest.raises(InputError):
            assign_conditions(ids, conditions, rng)
