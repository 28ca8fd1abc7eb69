"""The sycophancy check: do participants please each other?

It measures agreement by speaking order, movement towards the group, and open disagreement. Each
participant is asked for a position twice before the discussion. Movement is tested against the
difference of these two answers, because noise alone moves extreme answers towards the mean.
Movement beyond noise may also come from what participants learn from each other. Only a control
separates that from giving in, so the check speaks of giving in only with a control.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot.kit.findings import format_change, format_points, format_signed, is_significant
from folkmoot.measures.inference.clustered import (
    clustered_coefficient,
    clustered_mean,
    paired_difference,
)
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, format_percent
from folkmoot.measures.retest import convergence_p, mean_spread
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.discussion import MODERATOR, DiscussionTranscript, InterviewTime
from folkmoot.studies.focus_group.positions import Positions, measure_approach

# Significance level of the check.
SIGNIFICANCE_LEVEL = 0.05


class PositionedAnswer(NamedTuple):
    """An answer with its place in the speaking order.

    `question` is an id that begins with the group ("group/…"). `step` is the number of points by
    which the answer brought the speaker closer to the others (`answer_movements`), None if not
    known. `takes_up` says whether it responds to another participant. None is not known and counts
    as yes.
    """

    question: str
    position: int
    stance: str | None
    step: float | None = None
    takes_up: bool | None = None

    @property
    def dependence_group(self) -> str:
        """The group of the answer. Answers of one group depend on each other."""
        return self.question.partition("/")[0]


class PositionRecord(NamedTuple):
    """The private positions of one group's participants by id, in the order of `InterviewTime`.

    `alone` is empty without the control `alone`, and `retest` without a second asking.
    """

    group: str
    before: Positions
    after: Positions
    alone: Positions
    retest: Positions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Check:
    """The result of the check, with groups as independent units.

    - `answers` counts the answers that are not the first to their question. `agree` and
      `disagree` are shares of these, from 0 to 1.
    - `agree_slope` is the change of the share that agrees, per place later in the order. It covers
      only answers that respond to another speaker, because later speakers have more to respond to.
    - `step_slope` is the same for the approach to the others, over all answers.
    - `spread_before` and `spread_after` are standard deviations of positions.
    - `converge_p` is the p-value of `convergence_p`: the chance that a second asking without a
      discussion would leave positions as close together.
    - `towards` is the number of points by which participants came closer to the others.
    - `beyond_alone` is how much closer they came than the same participants in an interview.

    A value is NaN if there is nothing to compare.
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

    def describe_check(self) -> str:
        """Return the check in words for the report."""
        return " ".join(
            filter(None, (self._describe_order(), self._describe_group(), self._describe_dissent()))
        )

    def _describe_order(self) -> str:
        slope = self.agree_slope
        if math.isnan(slope.value):
            return (
                "There are too few answers that take somebody up to tell whether agreement depends "
                "on speaking order."
            )
        step_text = format_points(slope, "per place in the order")
        if is_significant(slope) is None:
            more = "more" if slope.value > 0 else "less"
            return (
                f"Of those who take somebody up, later speakers agree {more} often, "
                f"{step_text}; {_is_untested(slope)}."
            )
        if is_significant(slope) and slope.value > 0:
            return (
                "The later somebody speaks, the more often they agree with whom they take up, "
                f"{step_text}."
            )
        if is_significant(slope):
            return f"Of those who take somebody up, later speakers agree less often, {step_text}."
        return (
            "That agreement with whom an answer takes up rises with speaking order is not shown: "
            f"{step_text}."
        )

    def _describe_group(self) -> str:
        if self.control == "alone":
            return self._against_alone()
        if self.control == "order":
            return self._against_order()
        return self._without_control()

    def _against_alone(self) -> str:
        estimate = self.beyond_alone
        if math.isnan(estimate.value):
            return "Nobody's positions are known in both settings: giving in cannot be told."
        if is_significant(estimate) is None:
            return (
                f"People moved {format_signed(estimate.value)} further towards the others in the "
                "group than "
                f"alone; {_is_untested(estimate)}."
            )
        if is_significant(estimate) and estimate.value > 0:
            return (
                "People gave in to the group: in it they moved "
                f"{format_change(estimate, 'groups as units')} "
                "further towards the others than the same people did when interviewed alone."
            )
        if is_significant(estimate):
            return (
                "People moved less far towards the others in the group than alone "
                f"({format_change(estimate)})."
            )
        return (
            "That people moved further towards the others in the group than when interviewed alone "
            f"is not shown ({format_change(estimate)})."
        )

    def _against_order(self) -> str:
        slope = self.step_slope
        if math.isnan(slope.value):
            return "There are too few answers to tell whether hearing others moves people."
        change_text = f"{format_change(slope)} per place in a random order"
        if is_significant(slope) is None:
            return (
                f"Answers moved {change_text} towards those who had spoken; {_is_untested(slope)}."
            )
        if is_significant(slope) and slope.value > 0:
            return (
                "People gave in to the group: the more of the others had just spoken, the further "
                f"an answer moved towards them ({change_text})."
            )
        if is_significant(slope):
            return (
                "Answers moved less far towards the others the more of them had spoken "
                f"({change_text})."
            )
        return (
            "That answers move further towards the others the more of them had spoken is not shown "
            f"({change_text})."
        )

    def _without_control(self) -> str:
        if not self.spread_before > 0:
            return ""
        ratio = self.spread_after / self.spread_before
        spread_text = f"spread {format_percent(ratio)} of what it was"
        if math.isnan(self.converge_p):
            return (
                f"Positions were not asked for twice before the talk ({spread_text}), so movement "
                "cannot be told from the noise of asking."
            )
        if self.towards.unit_count < FEWEST_UNITS:
            change_text = format_signed(self.towards.value)
            return (
                f"People moved {change_text} towards the others ({spread_text}); "
                f"{_is_untested(self.towards)}."
            )
        if self.converge_p < SIGNIFICANCE_LEVEL:
            movement_text = (
                f"People moved towards the group, by {format_change(self.towards)} points of "
                "distance, and"
                if self.towards.value > 0
                else "People moved past where the others had stood "
                f"({format_change(self.towards)} points of distance), but"
            )
            return (
                f"{movement_text} ended closer together than another asking alone would leave them "
                f"({spread_text}). "
                "Regression to the middle is allowed for; what they learned from each other can do "
                "the same. A control (`control: alone` or `control: order`) tells that from giving "
                "in."
            )
        return (
            f"That positions came closer together than another asking would leave them was not "
            f"found ({spread_text})."
        )

    def _describe_dissent(self) -> str:
        if not self.answers:
            return ""
        share = f"{format_percent(self.disagree)} of the answers"
        # The limits of 5 % and 12 % only choose the wording. They are no test.
        if self.disagree < 0.05:
            return f"Open disagreement is nearly absent ({share}): the group is too polite."
        if self.disagree < 0.12:
            return f"Open disagreement is rare ({share})."
        return f"People disagree openly in {share}."


def _is_untested(estimate: Estimate) -> str:
    if estimate.unit_count < FEWEST_UNITS:
        return "so few groups cannot tell that from chance"
    return "all groups came out alike, so there is nothing to test it against"


def check_transcripts(transcripts: Sequence[DiscussionTranscript]) -> Check:
    """Return the check over one or more discussions."""
    answers: list[PositionedAnswer] = []
    for transcript in transcripts:
        messages = list(transcript.by_participants())
        movements = answer_movements(
            transcript.positions(InterviewTime.BEFORE),
            ((message.speaker_id, message.valence) for message in messages),
        )
        answers += [
            PositionedAnswer(
                f"{transcript.group}/{transcript.stimulus}/{message.question}",
                message.position,
                message.stance,
                step,
                takes_up_others(message.stance, message.replied_to),
            )
            for message, step in zip(messages, movements, strict=True)
            # The answer to a probe has no place in the speaking order of its question.
            if not message.probe
        ]
    people = [
        PositionRecord(
            transcript.group,
            *(transcript.positions(when) for when in InterviewTime),
        )
        for transcript in transcripts
    ]
    return compute_check(answers, people, transcripts[0].config.control if transcripts else None)


def takes_up_others(stance: str | None, replied_to: str | None) -> bool:
    """Return whether an answer responds to another participant, according to the coder."""
    return stance is not None or replied_to not in (None, MODERATOR)


def answer_movements(
    first: Positions, answers: Iterable[tuple[str, float | None]]
) -> list[float | None]:
    """Return by how much each answer brought its speaker closer to the others at `first`.

    `said` yields (speaker, position after the answer) in the order of speaking. A movement is None
    if a position is not known.
    """
    current = dict(first)
    movements: list[float | None] = []
    for persona_id, after in answers:
        before = current.get(persona_id)
        movements.append(measure_approach(first, persona_id, before, after))
        if after is not None:
            current[persona_id] = after
    return movements


def movement_towards_others(first: Positions, after: Positions) -> dict[str, float]:
    """Return by participant id how much closer each came to the others' positions at `first`."""
    movements = {
        persona_id: measure_approach(first, persona_id, before, after.get(persona_id))
        for persona_id, before in first.items()
    }
    return {persona_id: step for persona_id, step in movements.items() if step is not None}


def compute_check(
    answers: Sequence[PositionedAnswer],
    records: Sequence[PositionRecord],
    control: str | None = None,
) -> Check:
    """Return the check from answers and private positions by discussion."""
    # The first answer to a question has no earlier answer to agree with.
    later = [answer for answer in answers if answer.position > 1]
    stances = [answer.stance for answer in later]
    # Division by NaN gives NaN shares without answers.
    n = len(later) or math.nan
    referring = [answer for answer in later if answer.takes_up is not False]
    measured = [answer for answer in answers if answer.step is not None]
    group_movements = [movement_towards_others(record.before, record.after) for record in records]
    alone_movements = [movement_towards_others(record.before, record.alone) for record in records]
    paired_steps = [
        (record.group, in_talk[persona_id], interviewed[persona_id])
        for record, in_talk, interviewed in zip(
            records, group_movements, alone_movements, strict=True
        )
        for persona_id in in_talk
        if persona_id in interviewed
    ]
    grouped_steps = [
        (record.group, step)
        for record, movements in zip(records, group_movements, strict=True)
        for step in movements.values()
    ]
    return Check(
        len(later),
        stances.count("agree") / n,
        stances.count("disagree") / n,
        _slope_over_places(
            [float(answer.stance == "agree") for answer in referring],
            referring,
        ),
        _slope_over_places([answer.step or 0.0 for answer in measured], measured),
        *_convergence_of_groups(records),
        clustered_mean([step for _, step in grouped_steps], [group for group, _ in grouped_steps]),
        paired_difference(
            [talk_step for _, talk_step, _ in paired_steps],
            [alone_step for _, _, alone_step in paired_steps],
            [group for group, _, _ in paired_steps],
        ),
        control,
    )


def _slope_over_places(values: Sequence[float], answers: Sequence[PositionedAnswer]) -> Estimate:
    """Return the slope of a value on the place within a question, with groups as independent units.

    The estimate is NaN with fewer than six answers, or if all answers of a question have one place.
    """
    _, block = np.unique([answer.question for answer in answers], return_inverse=True)
    value, place = (
        np.array(values),
        np.array([answer.position for answer in answers], dtype=float),
    )
    # Subtracting the means of each question leaves the comparison within questions (fixed effects).
    if len(answers) >= 6:
        value, place = value - _block_means(value, block), place - _block_means(place, block)
    if len(answers) < 6 or not place.any():
        return Estimate(math.nan, math.nan, math.nan, len(answers))
    return clustered_coefficient(
        value,
        place[:, None],
        0,
        [answer.dependence_group for answer in answers],
    )


def _block_means(values: NDArray[np.float64], block: NDArray[np.intp]) -> NDArray[np.float64]:
    sums = np.bincount(block, weights=values)
    return np.asarray((sums / np.bincount(block))[block])


def _convergence_of_groups(records: Sequence[PositionRecord]) -> tuple[float, float, float]:
    """Return the mean standard deviation before and after, and the p-value of `convergence_p`."""
    start, end = _paired_positions((record.before, record.after) for record in records)
    retest, after = _paired_positions((record.retest, record.after) for record in records)
    # A fixed seed, so that a report computed again has the same p-value.
    rng = generator(0, ("focus_group", "convergence"))
    return mean_spread(start), mean_spread(end), convergence_p(retest, after, rng)


def _paired_positions(
    groups: Iterable[tuple[Positions, Positions]],
) -> tuple[list[list[float]], list[list[float]]]:
    """Return the first and second positions of participants who have both, by group.

    Groups with fewer than three such participants are left out, because they have no spread to
    speak of.
    """
    first: list[list[float]] = []
    second: list[list[float]] = []
    for first_positions, second_positions in groups:
        persona_ids = [
            persona_id for persona_id in first_positions if persona_id in second_positions
        ]
        if len(persona_ids) > 2:
            first.append([first_positions[persona_id] for persona_id in persona_ids])
            second.append([second_positions[persona_id] for persona_id in persona_ids])
    return first, second
