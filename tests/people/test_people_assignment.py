"""Equal groups, at random, the same for the same generator."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.errors import InputError
from folkmoot.people import assign_conditions
from folkmoot.randomness import generator

ARMS = ["simple", "passive", "clarified", "acp"]


@given(st.integers(0, 97), st.integers(1, 5), st.integers(0, 2**32))
def test_sizes_differ_by_at_most_one(n: int, k: int, seed: int) -> None:
    ids = [f"p_{i}" for i in range(n)]
    arms = [f"c{i}" for i in range(k)]
    drawn = assign_conditions(ids, arms, generator(seed, ("a",)))
    sizes = Counter(drawn.values())
    assert list(drawn) == ids
    assert max(sizes[a] for a in arms) - min(sizes[a] for a in arms) <= 1


def test_same_generator_same_assignment_and_other_seed_another() -> None:
    ids = [f"p_{i}" for i in range(40)]
    first = assign_conditions(ids, ARMS, generator(1, ("a",)))
    assert first == assign_conditions(ids, ARMS, generator(1, ("a",)))
    assert first != assign_conditions(ids, ARMS, generator(2, ("a",)))


def test_no_position_and_no_arm_is_favoured() -> None:
    ids = [f"p_{i}" for i in range(5)]
    first_id, extra = Counter[str](), Counter[str]()
    for seed in range(2000):
        drawn = assign_conditions(ids, ARMS, generator(seed, ("a",)))
        first_id[drawn["p_0"]] += 1
        extra[Counter(drawn.values()).most_common(1)[0][0]] += 1
    for count in (*first_id.values(), *extra.values()):
        assert abs(count - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_nonsense_is_refused() -> None:
    rng = generator(1, ("a",))
    for ids, arms in ((["a"], []), (["a"], ["x", "x"]), (["a", "a"], ["x"])):
        with pytest.raises(InputError):
            assign_conditions(ids, arms, rng)
