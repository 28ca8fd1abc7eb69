"""Do they please each other? Agreement by speaking order, convergence of positions, dissent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from folkmoot.measures.proportions import wilson
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.discussion import DiscussionTranscript

SHUFFLES = 2000


class Answered(NamedTuple):
    """An answer: its question, its place in the order, its stance."""

    question: str
    position: int
    stance: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """What was found. Shares in 0–1; NaN where there was nothing to compare.

    `agree_slope` is the change of the agreeing share per place later in the order (from the
    second on), `agree_p` its two-sided p against shuffling within questions. `spread_before`
    and `_after` are standard deviations of the positions, `converge_p` the share of shuffles of
    the shifts among people that end as close together or closer.
    """

    answers: int
    agree: float
    disagree: float
    agree_slope: float
    agree_p: float
    spread_before: float
    spread_after: float
    converge_p: float

    def reading(self) -> str:
        """The check in plain words."""
        return " ".join(filter(None, (self._order(), self._convergence(), self._dissent())))

    def _order(self) -> str:
        if math.isnan(self.agree_slope):
            return "There are too few answers to tell whether agreement depends on speaking order."
        step = f"{abs(100 * self.agree_slope):.0f} points per place"
        if self.agree_p < 0.05 and self.agree_slope > 0:
            return f"The later somebody speaks, the more often they agree ({step}): a bad sign."
        if self.agree_p < 0.05:
            return f"Later speakers agree less often ({step})."
        return "Agreement does not rise noticeably with speaking order."

    def _convergence(self) -> str:
        if math.isnan(self.converge_p) or self.spread_before == 0:
            return ""
        ratio = self.spread_after / self.spread_before
        spread = f"spread {ratio:.0%} of what it was"
        if self.converge_p < 0.05:
            how, end = (
                ("closer together", ": people gave in to the group.")
                if ratio < 0.8
                else ("slightly closer together", ".")
            )
            return f"Positions moved {how} than shifts of this size would by chance ({spread}){end}"
        if ratio > 1.1:
            return f"Positions moved apart ({spread})."
        return f"Positions did not converge more than chance alone would produce ({spread})."

    def _dissent(self) -> str:
        if not self.answers:
            return ""
        interval = wilson(round(self.disagree * self.answers), self.answers)
        share = f"{self.disagree:.0%} of the answers ({interval.low:.0%}–{interval.high:.0%})"
        if self.disagree < 0.05:
            return f"Open disagreement is nearly absent: {share}; the group is too polite."
        if self.disagree < 0.12:
            return f"Open disagreement is rare: {share}."
        return f"People disagree openly in {share}."


def of(transcripts: Sequence[DiscussionTranscript]) -> Check:
    """The check over one or more discussions."""
    answers = [
        Answered(f"{t.group}/{t.stimulus}/{m.question}", m.position, m.stance)
        for t in transcripts
        for m in t.by_participants()
        if not m.probe
    ]
    moved = [t.moved().values() for t in transcripts]
    return check(answers, [[b for b, _ in m] for m in moved], [[a for _, a in m] for m in moved])


def check(
    answers: Sequence[Answered],
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
) -> Check:
    """The check from bare data: answers, and positions before and after by discussion."""
    # The first to answer a question has nobody to agree with.
    later = [a for a in answers if a.position > 1]
    stances = [a.stance for a in later]
    n = len(later) or math.nan
    return Check(
        len(later),
        stances.count("agree") / n,
        stances.count("disagree") / n,
        *_slope(later),
        *_convergence(before, after),
    )


def _slope(answers: Sequence[Answered]) -> tuple[float, float]:
    """Slope of agreement on the place within questions, and the p of shuffling within them.

    With the places fixed and agreement shuffled within each question the slope has mean 0 and a
    known variance, Σ_q Σ(x − x̄)² Σ(a − ā)² / (n_q − 1); p is that of the normal.
    """
    agree = np.array([a.stance == "agree" for a in answers], dtype=float)
    place = np.array([a.position for a in answers], dtype=float)
    if len(answers) < 6 or np.ptp(place) == 0:
        return math.nan, math.nan
    _, block = np.unique([a.question for a in answers], return_inverse=True)
    x, y = place - _block_means(place, block), agree - _block_means(agree, block)
    scale = float((x**2).sum())
    freedom = np.maximum(np.bincount(block) - 1, 1)
    spread = np.bincount(block, weights=x**2) * np.bincount(block, weights=y**2) / freedom
    if scale == 0 or spread.sum() == 0:
        return (0.0, 1.0) if scale else (math.nan, math.nan)
    total = float((x * y).sum())
    z = abs(total) / math.sqrt(float(spread.sum()))
    return total / scale, math.erfc(z / math.sqrt(2))


def _block_means(values: np.ndarray, block: np.ndarray) -> np.ndarray:
    sums = np.bincount(block, weights=values)
    return np.asarray((sums / np.bincount(block))[block])


def _convergence(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> tuple[float, float, float]:
    """Mean standard deviation before and after, and the share of shuffles that end as close."""
    pairs = [
        (np.asarray(b, float), np.asarray(a, float))
        for b, a in zip(before, after, strict=True)
        if len(b) > 2
    ]
    if not pairs:
        return math.nan, math.nan, math.nan
    start = float(np.mean([b.std(ddof=1) for b, _ in pairs]))
    end = float(np.mean([a.std(ddof=1) for _, a in pairs]))
    if all(np.allclose(a, b) for b, a in pairs):
        return start, end, 1.0
    rng = generator(0, ("focus_group", "convergence"))
    spread = np.zeros(SHUFFLES)
    for b, a in pairs:
        shifts = rng.permuted(np.tile(a - b, (SHUFFLES, 1)), axis=1)
        spread += (b + shifts).std(axis=1, ddof=1) / len(pairs)
    hits = int((spread <= end + 1e-12).sum())
    return start, end, (hits + 1) / (SHUFFLES + 1)
