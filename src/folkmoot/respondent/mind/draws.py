"""Random draws by hashing. A draw does not depend on what was asked or drawn before."""
# Each draw is a hash of version, seed, address and purpose. Each combination of these gives an
# independent stream of draws.

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

from folkmoot.randomness import digest, uniform_values

T = TypeVar("T")
# Part of every draw, so a new version gives other draws. The version of the model's rules is in
# `model_served`.
VERSION = "2"
_NORMAL = NormalDist()
# A BLAKE2b digest has at most 64 bytes, which are eight draws of 64 bits.
_PER_BLOCK = 8


def uniform_draw(seed: int, *parts: str | int) -> float:
    """Return a uniform random number in (0, 1) that depends only on `seed` and `parts`."""
    return uniform_values(seed, VERSION, *parts)


def normal_draw(seed: int, *parts: str | int) -> float:
    """Return a standard normal random number that depends only on `seed` and `parts`."""
    return _NORMAL.inv_cdf(uniform_draw(seed, *parts))


def gumbel_draw(seed: int, *parts: str | int) -> float:
    """Return a standard Gumbel random number that depends only on `seed` and `parts`."""
    return -math.log(-math.log(uniform_draw(seed, *parts)))


class Draws:
    """The stream of random draws for one reply."""

    __slots__ = ("_block", "_key", "_values")

    def __init__(self, seed: int, *parts: str | int) -> None:
        self._key = digest(VERSION, seed, *parts, size=32)
        self._block = 0
        self._values: list[int] = []

    def _next_value(self) -> int:
        if not self._values:
            raw = digest(self._key, self._block, size=64)
            self._block += 1
            self._values = [
                int.from_bytes(raw[8 * i : 8 * i + 8], "big") for i in range(_PER_BLOCK)
            ]
        return self._values.pop()

    def unit(self) -> float:
        """Return a uniform draw in (0, 1)."""
        # The half keeps the draw away from 0, where the inverse normal is infinite.
        return (self._next_value() + 0.5) / 2.0**64

    def draw_chance(self, probability: float) -> bool:
        return self.unit() < probability

    def draw_normal(self, mean: float = 0.0, sd: float = 1.0) -> float:
        return mean + sd * _NORMAL.inv_cdf(self.unit())

    def draw_integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + self._next_value() % (high - low + 1)

    def pick_item(self, items: Sequence[T]) -> T:
        return items[self._next_value() % len(items)]

    def draw_weighted_index(self, weights: Sequence[float]) -> int:
        """Draw an index, with probabilities proportional to the weights."""
        position = self.unit() * math.fsum(weights)
        for index, weight in enumerate(weights):
            position -= weight
            if position < 0:
                return index
        # Floating-point errors can leave a tiny rest.
        return len(weights) - 1

    def shuffled_copy(self, items: Sequence[T]) -> list[T]:
        """Return the items in random order."""
        # Fisher–Yates.
        items_copy = list(items)
        for i in range(len(items_copy) - 1, 0, -1):
            other = self._next_value() % (i + 1)
            items_copy[i], items_copy[other] = items_copy[other], items_copy[i]
        return items_copy
