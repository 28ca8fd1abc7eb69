"""Counter-based draws for the embedded respondent: BLAKE2b(version | seed | address | purpose).

Two draws never share a stream, so a new question or another schedule shifts nobody else's answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

from folkmoot.randomness import digest, uniform

T = TypeVar("T")
# Part of every draw. The version of the rules stands in `model_served`.
VERSION = "2"
_NORMAL = NormalDist()
_PER_BLOCK = 8


def unit(seed: int, *parts: str | int) -> float:
    """One uniform draw in (0, 1) for these parts."""
    return uniform(seed, VERSION, *parts)


def normal(seed: int, *parts: str | int) -> float:
    """One standard normal draw for these parts."""
    return _NORMAL.inv_cdf(unit(seed, *parts))


def gumbel(seed: int, *parts: str | int) -> float:
    """One standard Gumbel draw for these parts."""
    return -math.log(-math.log(unit(seed, *parts)))


class Draws:
    """A private stream for one reply: as many draws as needed, one hash for each eight."""

    __slots__ = ("_block", "_key", "_values")

    def __init__(self, seed: int, *parts: str | int) -> None:
        self._key = digest(VERSION, seed, *parts, size=32)
        self._block = 0
        self._values: list[int] = []

    def _next(self) -> int:
        if not self._values:
            raw = digest(self._key, self._block, size=64)
            self._block += 1
            self._values = [
                int.from_bytes(raw[8 * k : 8 * k + 8], "big") for k in range(_PER_BLOCK)
            ]
        return self._values.pop()

    def unit(self) -> float:
        """Uniform in (0, 1)."""
        return (self._next() + 0.5) / 2.0**64

    def chance(self, p: float) -> bool:
        return self.unit() < p

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> float:
        return mean + sd * _NORMAL.inv_cdf(self.unit())

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self._next() % (high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self._next() % len(items)]

    def weighted(self, weights: Sequence[float]) -> int:
        """An index, with probability in proportion to its weight."""
        at = self.unit() * sum(weights)
        for index, weight in enumerate(weights):
            at -= weight
            if at < 0:
                return index
        return len(weights) - 1

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """A seeded permutation (Fisher–Yates)."""
        out = list(items)
        for k in range(len(out) - 1, 0, -1):
            other = self._next() % (k + 1)
            out[k], out[other] = out[other], out[k]
        return out
