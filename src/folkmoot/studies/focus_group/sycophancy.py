"""Do they please each other? Agreement by speaking order, movement towards the group, dissent.

That people move towards a group has other reasons than giving in: extreme positions regress
towards the middle by themselves, and people learn the same things from each other. Only a control
tells them apart, so only with one is giving in spoken of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot.kit.findings import change, signed, significant
from folkmoot.measures.clustered import clustered_coefficient, clustered_mean, paired_difference
from folkmoot.measures.estimates import FEWEST_UNITS, Estimate, percent
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.discussion import DiscussionTranscript, When

SHUFFLES = 2000
CLEAR = 0.05  # a smaller p is more than chance

Positions = Mapping[str, float]


class Answered(NamedTuple):
    """An answer: its question ("group/…"), its place in the order, its stance, and how far it
    moved the speaker towards the others (see `steps`); None where that is not known."""

    question: str
    position: int
    stance: str | None
    step: float | None = None

    @property
    def group(self) -> str:
        """Whose answers depend on each other."""
        return self.question.partition("/")[0]


class Moved(NamedTuple):
    """The private positions of one group's people by id: before the talk, after it, and after an
    interview without the others (empty without that control)."""

    group: str
    before: Positions
    after: Positions
    alone: Positions


@dataclass(frozen=True, slots=True)
class Check:
    """What was found, with groups as units. Shares in 0–1; NaN where nothing could be compared.

    `agree_slope` is the change of the agreeing share per place later in the order (from the
    second on), `step_slope` the same for the movement towards the others (from the first on).
    `spread_before` and `_after` are standard deviations of the positions, `converge_p` the share
    of shuffles of the shifts among people that end as close together or closer. `towards` is how
    far people moved towards the others, `beyond_alone` how much further than the same people did
    in an interview.
    """

    answers: int
    agree: float
    disagree: float
    agree_slope: Estimate
    step_slope: Estimate
    spread_before: float
    spread_after: float
    converge_p: float
    towards: Estimate
    beyond_alone: Estimate
    control: str | None

    def reading(self) -> str:
        """The check in plain words."""
        return " ".join(filter(None, (self._order(), self._group(), self._dissent())))

    def _order(self) -> str:
        slope = self.agree_slope
        if math.isnan(slope.value):
            return "There are too few answers to tell whether agreement depends on speaking order."
        step = f"{abs(100 * slope.value):.0f} points per place"
        if significant(slope) is None:
            more = "more" if slope.value > 0 else "less"
            return f"Later speakers agree {more} often ({step}); {_untested(slope)}."
        if significant(slope) and slope.value > 0:
            return f"The later somebody speaks, the more often they agree ({step}): a bad sign."
        if significant(slope):
            return f"Later speakers agree less often ({step})."
        return "Agreement does not rise noticeably with speaking order."

    def _group(self) -> str:
        if self.control == "alone":
            return self._against_alone()
        if self.control == "order":
            return self._against_order()
        return self._without_control()

    def _against_alone(self) -> str:
        e = self.beyond_alone
        if math.isnan(e.value):
            return "Nobody's positions are known in both settings: giving in cannot be told."
        if significant(e) is None:
            return (
                f"People moved {signed(e.value)} further towards the others in the group than "
                f"alone; {_untested(e)}."
            )
        if significant(e) and e.value > 0:
            return (
                f"People gave in to the group: in it they moved {change(e, 'groups as units')} "
                "further towards the others than the same people did when interviewed alone."
            )
        return (
            "People did not move clearly further towards the others in the group than when "
            f"interviewed alone ({change(e)})."
        )

    def _against_order(self) -> str:
        slope = self.step_slope
        if math.isnan(slope.value):
            return "There are too few answers to tell whether hearing others moves people."
        by = f"{change(slope)} per place in a random order"
        if significant(slope) is None:
            return f"Answers moved {by} towards those who had spoken; {_untested(slope)}."
        if significant(slope) and slope.value > 0:
            return (
                "People gave in to the group: the more of the others had just spoken, the further "
                f"an answer moved towards them ({by})."
            )
        return f"Answers do not move further towards the others the more of them had spoken ({by})."

    def _without_control(self) -> str:
        if math.isnan(self.converge_p) or self.spread_before == 0:
            return ""
        ratio = self.spread_after / self.spread_before
        spread = f"spread {percent(ratio)} of what it was"
        if self.towards.units < FEWEST_UNITS:
            by = signed(self.towards.value)
            return f"People moved {by} towards the others ({spread}); {_untested(self.towards)}."
        if self.converge_p < CLEAR:
            return (
                f"People moved towards the group, by {change(self.towards)}, and ended closer "
                f"together than shifts of this size would by chance ({spread}). Regression to the "
                "middle and what they learned from each other can do the same; a control "
                "(`control: alone` or `control: order`) tells these apart from giving in."
            )
        if ratio > 1.1:
            return f"Positions moved apart ({spread})."
        return f"Positions did not converge more than chance alone would produce ({spread})."

    def _dissent(self) -> str:
        if not self.answers:
            return ""
        share = f"{percent(self.disagree)} of the answers"
        if self.disagree < 0.05:
            return f"Open disagreement is nearly absent ({share}): the group is too polite."
        if self.disagree < 0.12:
            return f"Open disagreement is rare ({share})."
        return f"People disagree openly in {share}."


def _untested(e: Estimate) -> str:
    if e.units < FEWEST_UNITS:
        return "so few groups cannot tell that from chance"
    return "all groups came out alike, so there is nothing to test it against"


def of(transcripts: Sequence[DiscussionTranscript]) -> Check:
    """The check over one or more discussions."""
    answers: list[Answered] = []
    for t in transcripts:
        said = list(t.by_participants())
        moved = steps(t.positions(When.BEFORE), ((m.speaker_id, m.valence) for m in said))
        answers += [
            Answered(f"{t.group}/{t.stimulus}/{m.question}", m.position, m.stance, step)
            for m, step in zip(said, moved, strict=True)
            if not m.probe
        ]
    people = [Moved(t.group, *(t.positions(when) for when in When)) for t in transcripts]
    return check(answers, people, transcripts[0].config.control if transcripts else None)


def steps(first: Positions, said: Iterable[tuple[str, float | None]]) -> list[float | None]:
    """How far each of the answers (speaker, position after it) moved its speaker towards where
    the others stood at `first`; None where one of these is not known."""
    now = dict(first)
    found: list[float | None] = []
    for who, after in said:
        before = now.get(who)
        found.append(_towards(first, who, before, after))
        if after is not None:
            now[who] = after
    return found


def towards(first: Positions, after: Positions) -> dict[str, float]:
    """How far each person moved towards where the others stood at `first`, by id."""
    moved = {who: _towards(first, who, before, after.get(who)) for who, before in first.items()}
    return {who: step for who, step in moved.items() if step is not None}


def _towards(first: Positions, who: str, before: float | None, after: float | None) -> float | None:
    others = [position for other, position in first.items() if other != who]
    if before is None or after is None or not others:
        return None
    return (after - before) * float(np.sign(np.mean(others) - before))


def check(
    answers: Sequence[Answered], people: Sequence[Moved], control: str | None = None
) -> Check:
    """The check from bare data: answers, and private positions by discussion."""
    # The first to answer a question has nobody to agree with.
    later = [a for a in answers if a.position > 1]
    stances = [a.stance for a in later]
    n = len(later) or math.nan
    known = [a for a in answers if a.step is not None]
    in_group = [towards(p.before, p.after) for p in people]
    alone = [towards(p.before, p.alone) for p in people]
    both = [
        (p.group, moved[who], single[who])
        for p, moved, single in zip(people, in_group, alone, strict=True)
        for who in moved
        if who in single
    ]
    units = [
        (p.group, step)
        for p, moved in zip(people, in_group, strict=True)
        for step in moved.values()
    ]
    return Check(
        len(later),
        stances.count("agree") / n,
        stances.count("disagree") / n,
        _slope([float(a.stance == "agree") for a in later], later),
        _slope([a.step or 0.0 for a in known], known),
        *_convergence(people),
        clustered_mean([step for _, step in units], [group for group, _ in units]),
        paired_difference(
            [g for _, g, _ in both], [s for _, _, s in both], [g for g, _, _ in both]
        ),
        control,
    )


def _slope(values: Sequence[float], answers: Sequence[Answered]) -> Estimate:
    """Slope of a value of answers on their place within questions, with groups as units."""
    _, block = np.unique([a.question for a in answers], return_inverse=True)
    value, place = np.array(values), np.array([a.position for a in answers], dtype=float)
    if len(answers) >= 6:
        value, place = value - _block_means(value, block), place - _block_means(place, block)
    if len(answers) < 6 or not place.any():
        return Estimate(math.nan, math.nan, math.nan, len(answers))
    return clustered_coefficient(value, place[:, None], 0, [a.group for a in answers])


def _block_means(values: NDArray[np.float64], block: NDArray[np.intp]) -> NDArray[np.float64]:
    sums = np.bincount(block, weights=values)
    return np.asarray((sums / np.bincount(block))[block])


def _convergence(people: Sequence[Moved]) -> tuple[float, float, float]:
    """Mean standard deviation before and after, and the share of shuffles that end as close."""
    pairs = []
    for p in people:
        known = [who for who in p.before if who in p.after]
        if len(known) > 2:
            pairs.append(
                (np.array([p.before[w] for w in known]), np.array([p.after[w] for w in known]))
            )
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
