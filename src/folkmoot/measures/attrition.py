"""What the answers that are missing could change: best and worst cases for shares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """Of `count` + others seen (`seen` in all) plus `lost` without an answer."""

    count: int
    seen: int
    lost: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.seen or self.lost < 0:
            raise ValueError(f"no such arm: {self.count} of {self.seen}, {self.lost} lost")

    @property
    def low(self) -> float:
        """The share if nobody lost would have counted."""
        return self.count / (self.seen + self.lost) if self.seen + self.lost else 0.0

    @property
    def high(self) -> float:
        """The share if everybody lost would have counted."""
        total = self.seen + self.lost
        return (self.count + self.lost) / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """A difference of shares as observed, and the least and greatest that it could have been."""

    observed: float
    low: float
    high: float

    @property
    def sign_holds(self) -> bool:
        """Whether no way of filling the gaps makes the difference vanish or change sign."""
        return self.low > 0 or self.high < 0


def difference_bounds(first: Arm, second: Arm) -> Bounds:
    """Bounds of share(first) − share(second) over all ways of filling in the lost answers.

    Low: all lost in the first arm did not count and all in the second did; high: the reverse. No
    assumption about why they are lost, and no sampling error.
    Horowitz and Manski (2000), doi:10.1080/01621459.2000.10473902. Raises ValueError if an arm
    has no answer at all.
    """
    if not first.seen or not second.seen:
        raise ValueError("an arm without any answer has no observed share")
    observed = first.count / first.seen - second.count / second.seen
    return Bounds(observed, first.low - second.high, first.high - second.low)
