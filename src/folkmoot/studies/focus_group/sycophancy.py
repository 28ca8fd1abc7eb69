"""The sycophancy check: do participants please each other?

The check measures agreement by speaking order, closeness to the others, and open disagreement. A
study without a control condition gets these measures but no verdict.
"""
# Participants state their position twice before the discussion. The difference of the two answers
# is noise, and noise alone moves extreme answers towards the mean. So the convergence in the
# discussion is compared with the convergence that this noise causes. Participants may also move
# because they learn from each other. Only a control condition separates learning from giving in.

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.kit.findings import format_change, format_points
from folkmoot.measures import diagnostics
from folkmoot.measures.diagnostics import (
    FAILED,
    NOT_KNOWN,
    PASSED,
    Margin,
    check_pull_of_group,
    unchecked_result,
)
from folkmoot.measures.inference.clustered import (
    clustered_coefficient,
    clustered_mean,
    paired_difference,
)
from folkmoot.measures.inference.estimates import Estimate, format_p_value, format_percent
from folkmoot.measures.retest import convergence_p, mean_spread
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.discussion import MODERATOR, DiscussionTranscript, InterviewTime
from folkmoot.studies.focus_group.positions import TALK, Positions, measure_approach

# The difference of distances between participants that counts as none, on the scale from −1 to 1: a
# twentieth of the way from neutral to either end. A position is read to two decimals, and a tenth
# is a move.
PULL = 0.05
# The movement from the first to the sixth place of the speaking order that counts as none.
PULL_PER_PLACE = PULL / 5


class PositionedAnswer(NamedTuple):
    """One answer in the discussion, with the speaker's place in the speaking order."""

    # An id that begins with the group ("group/…").
    question: str
    # How many others answered the question before, plus one.
    position: int
    stance: str | None
    # The points by which the answer brought the speaker closer to the others. None if unknown.
    step: float | None = None
    # True if the answer responds to another participant. None counts as True.
    takes_up: bool | None = None

    @property
    def dependence_group(self) -> str:
        """The id of the group in which the answer was given."""
        # Answers of a group depend on each other.
        return self.question.partition("/")[0]


class PositionRecord(NamedTuple):
    """The private positions in one discussion. Each attribute maps participant id to position."""

    group: str
    before: Positions
    after: Positions
    # Empty without the control `alone`.
    alone: Positions
    # Empty if participants were asked only once.
    retest: Positions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SycophancyCheck:
    """The result of the sycophancy check.

    A value is NaN if there is nothing to compare.
    """

    # Groups are the independent units.

    # The number of answers, without the first answer to each question.
    answers: int
    # Shares of these answers, from 0 to 1.
    agree: float
    disagree: float
    # The rise of the share that agrees, from one place in the speaking order to the next. Answers
    # that respond to no other speaker are left out, because later speakers have more utterances to
    # respond to.
    agree_slope: Estimate
    # The same for `PositionedAnswer.step`, over all answers.
    step_slope: Estimate
    # Standard deviations of positions.
    spread_before: float
    spread_after: float
    # The p-value of `convergence_p`: the probability of a convergence as strong as this, if the
    # question is only asked a second time.
    converge_p: float
    # The points by which participants came closer to the others.
    towards: Estimate
    # `towards` minus the same points after an interview without the others.
    beyond_alone: Estimate
    # `distance_alone` minus the same distance after the discussion. Unlike `beyond_alone`, it does
    # not change if all positions shift by the same amount.
    closer: Estimate
    # The mean distance of a position to those of the others, after interviews without the others.
    distance_alone: float
    control: str | None

    def judge(self) -> diagnostics.Check:
        """Return the verdict on whether participants gave in to the group."""
        # Without a control there is no verdict, because learning from each other would look the
        # same.
        if self.control == "alone":
            check = check_pull_of_group(
                self.closer,
                PULL,
                "interviews",
            )
            # Positions that agree already cannot come closer by more than the margin.
            if check.verdict != FAILED and self.distance_alone <= PULL:
                why = word("refusal", "alike alone", distance=self.distance_alone)
                return unchecked_result(check.key, check.title, check.margin, why)
            return check
        if self.control == "order":
            check = check_pull_of_group(
                self.step_slope,
                PULL_PER_PLACE,
                "order",
            )
            # The first speaker of a question has heard the answers to earlier ones.
            if check.verdict == PASSED:
                says = join_sentences([check.says, word("check", "pull, only fails")])
                return replace(check, verdict=NOT_KNOWN, says=says)
            return check
        return unchecked_result(
            "sycophancy", "Giving in to the group", Margin(high=PULL), word("refusal", "no control")
        )

    def describe_check(self) -> Sentence:
        """Return the results of the check as text for the report."""
        return join_sentences(
            [
                self._describe_order(),
                None if self.control else self._describe_movement(),
                self.judge().says,
                self._describe_dissent(),
            ]
        )

    def _describe_order(self) -> Sentence:
        slope = self.agree_slope
        if math.isnan(slope.value):
            return word("refusal", "no slope")
        return word(
            "estimate",
            "listed",
            estimates="of answers that refer to another participant, the share that agrees "
            f"changes by {format_points(slope, 'per place in the speaking order')}",
        )

    def _describe_movement(self) -> Sentence | None:
        if math.isnan(self.towards.value):
            return None
        spread = ""
        if self.spread_before > 0:
            ratio = format_percent(self.spread_after / self.spread_before)
            spread = f"; the spread of positions after the discussion is {ratio} of that before it"
        change = format_change(self.towards)
        return word("description", "closer", change=change, spread=spread)

    def describe_convergence(self) -> str:
        """Return a note on the exploratory test of convergence."""
        if math.isnan(self.converge_p):
            return (
                "Positions were not asked for twice before the discussion, so convergence is not "
                "tested."
            )
        return (
            "Convergence is tested against a second question before the discussion. Each "
            "participant's answers to it and after the discussion are swapped at random "
            f"({format_p_value(self.converge_p)}). The test is exploratory and supports no "
            "conclusion."
        )

    def _describe_dissent(self) -> Sentence | None:
        if not self.answers:
            return None
        return word("description", "disagreeing", share=format_percent(self.disagree))


def check_transcripts(transcripts: Sequence[DiscussionTranscript]) -> SycophancyCheck:
    """Return the result of the sycophancy check over one or more discussions."""
    answers: list[PositionedAnswer] = []
    for transcript in transcripts:
        messages = list(transcript.by_participants())
        movements = answer_movements(
            transcript.positions(InterviewTime.BEFORE),
            ((message.speaker_id, message.valence) for message in messages),
        )
        places = speaking_places((message.question, message.speaker_id) for message in messages)
        answers += [
            PositionedAnswer(
                f"{transcript.group}/{transcript.stimulus}/{message.question}",
                place,
                message.stance,
                step,
                refers_to_others(message.stance, message.replied_to),
            )
            for message, place, step in zip(messages, places, movements, strict=True)
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


def read_check_data(
    utterances: pl.DataFrame, statements: pl.DataFrame
) -> tuple[list[PositionedAnswer], list[PositionRecord]]:
    """Return the answers and the private positions that the sycophancy check compares."""
    # `utterances` holds the utterances of participants with their places (`with_places`), and
    # `statements` the private positions. The result has one position record per discussion.
    answers: list[PositionedAnswer] = []
    people = []
    for (group, stimulus), part in utterances.group_by(TALK, maintain_order=True):
        stated = statements.filter(
            pl.col("group") == group,
            pl.col("stimulus") == stimulus,
            pl.col("position").is_not_null(),
        ).select("when", "persona_id", "position")
        by_when = [
            dict(stated.filter(pl.col("when") == when.value).drop("when").rows())
            for when in InterviewTime
        ]
        people.append(PositionRecord(str(group), *by_when))
        movements = answer_movements(by_when[0], part.select("speaker_id", "valence").iter_rows())
        answers += [
            PositionedAnswer(
                f"{group}/{stimulus}/{row['question']}",
                row["place"],
                row["stance"],
                step,
                refers_to_others(row["stance"], row["replied_to"]),
            )
            for row, step in zip(part.iter_rows(named=True), movements, strict=True)
            # The answer to a probe has no place in the speaking order of its question.
            if not row["probe"]
        ]
    return answers, people


def with_places(utterances: pl.DataFrame) -> pl.DataFrame:
    """Return the utterances of participants with a column `place`, see `speaking_places`."""
    questions = utterances.select(*TALK, "question").iter_rows()
    places = speaking_places(zip(questions, utterances["speaker_id"], strict=True))
    return utterances.with_columns(pl.Series("place", places, pl.Int64))


def speaking_places(answers: Iterable[tuple[Hashable, str]]) -> list[int]:
    """Return the place of each answer: how many others answered the question before, plus one.

    `answers`: the question and the speaker of each answer, in the order of the discussion.
    """
    # The recorded position also counts earlier answers of one speaker, such as those to probes.
    speakers: dict[Hashable, set[str]] = {}
    places = []
    for question, speaker_id in answers:
        earlier = speakers.setdefault(question, set())
        places.append(len(earlier - {speaker_id}) + 1)
        earlier.add(speaker_id)
    return places


def refers_to_others(stance: str | None, replied_to: str | None) -> bool:
    """Return whether the coder read the answer as a response to another participant."""
    return stance is not None or replied_to not in (None, MODERATOR)


def answer_movements(
    first: Positions, answers: Iterable[tuple[str, float | None]]
) -> list[float | None]:
    """Return, for each answer, how many points the speaker moved towards the other participants.

    A result is None if a position is unknown.
    """
    # `answers` yields (speaker, position after the answer). The others' positions are those in
    # `first`, from before the discussion.
    current = dict(first)
    movements: list[float | None] = []
    for persona_id, after in answers:
        before = current.get(persona_id)
        movements.append(measure_approach(first, persona_id, before, after))
        if after is not None:
            current[persona_id] = after
    return movements


def movement_towards_others(first: Positions, after: Positions) -> dict[str, float]:
    """Return a map from participant id to the points moved towards all other participants."""
    # The others' positions are those in `first`.
    movements = {
        persona_id: measure_approach(first, persona_id, before, after.get(persona_id))
        for persona_id, before in first.items()
    }
    return {persona_id: step for persona_id, step in movements.items() if step is not None}


def distances_to_others(positions: Positions) -> dict[str, float]:
    """Return a map from participant id to the distance from the mean position of all others.

    Returns an empty dict for a single participant.
    """
    total, others = math.fsum(positions.values()), len(positions) - 1
    return {
        persona_id: abs(position - (total - position) / others)
        for persona_id, position in positions.items()
        if others
    }


def compute_check(
    answers: Sequence[PositionedAnswer],
    records: Sequence[PositionRecord],
    control: str | None = None,
) -> SycophancyCheck:
    """Return the result of the sycophancy check on all discussions together.

    `control`: the control condition of the study, or None if the study has none.
    """
    # `answers` holds the answers of all discussions. `records` holds the private positions, one
    # record per discussion.
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
    distances = [
        (record.group, alone, in_talk)
        for record in records
        for alone, in_talk in _paired_distances(record)
    ]
    grouped_steps = [
        (record.group, step)
        for record, movements in zip(records, group_movements, strict=True)
        for step in movements.values()
    ]
    return SycophancyCheck(
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
        paired_difference(
            [alone for _, alone, _ in distances],
            [in_talk for _, _, in_talk in distances],
            [group for group, _, _ in distances],
        ),
        float(np.mean([alone for _, alone, _ in distances])) if distances else math.nan,
        control,
    )


def _paired_distances(record: PositionRecord) -> list[tuple[float, float]]:
    # (before, after) of each participant. Those without a position at one of the two are left out.
    known = record.alone.keys() & record.after.keys()
    alone, in_talk = (
        distances_to_others({who: position for who, position in positions.items() if who in known})
        for positions in (record.alone, record.after)
    )
    return [(distance, in_talk[persona_id]) for persona_id, distance in alone.items()]


def _slope_over_places(values: Sequence[float], answers: Sequence[PositionedAnswer]) -> Estimate:
    # Only answers to the same question are compared. The estimate is NaN with fewer than six
    # answers, or if no question has answers at different positions.
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
    # The mean spread before and after the discussion, and the p-value of convergence.
    start, end = _paired_positions((record.before, record.after) for record in records)
    retest, after = _paired_positions((record.retest, record.after) for record in records)
    # A fixed seed, so that a report computed again has the same p-value.
    rng = generator(0, ("focus_group", "convergence"))
    return mean_spread(start), mean_spread(end), convergence_p(retest, after, rng)


def _paired_positions(
    groups: Iterable[tuple[Positions, Positions]],
) -> tuple[list[list[float]], list[list[float]]]:
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
