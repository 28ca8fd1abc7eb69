"""The range of a number that participants answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerRange:
    """The numbers that an answer may have. A bound that does not exist is infinite."""

    is_integer: bool
    low: float
    high: float

    def widened(self, other: AnswerRange) -> AnswerRange:
        """Return the range of an answer that may have the numbers of either range."""
        return AnswerRange(
            self.is_integer and other.is_integer,
            min(self.low, other.low),
            max(self.high, other.high),
        )
