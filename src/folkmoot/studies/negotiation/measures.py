"""The measures of decisions and sessions, and the comparison of conditions in these measures.

A session is one group under one condition.
"""

# Satisfaction comes from the members' own scores, which the researcher collects before the
# mediation and uses under all conditions. Other measures come from scores that a fixed rule gives
# to the members' texts. The unit of analysis is the group. `strict_tables`,
# `listed_choices` and `repeated_statements` prepare data for checks that all study types share.

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any, TypedDict

import polars as pl

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.kit.findings import split_address
from folkmoot.kit.reply_units import drop_humans
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.clustered import clustered_mean, paired_difference
from folkmoot.measures.inference.estimates import Estimate, finite_or_none
from folkmoot.measures.position import Shown
from folkmoot.measures.reply_checks import part_of_stage
from folkmoot.measures.retest import Repeat
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.decision import (
    LEFT_OPEN,
    UNREADABLE,
    Negotiation,
    SlotDecision,
)
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.replies import HIGHEST_SCORE, LOWEST_SCORE, OPEN_TIME
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
    SUBGROUP_SLOTS,
    Group,
    TripTopic,
)
from folkmoot.studies.negotiation.rules.tally import STRONG_REJECTION, Tally, text_scores
from folkmoot.studies.negotiation.tables import (
    MEASURES,
    BallotRow,
    NotAskedAgainRow,
    OwnScoreRow,
    PreferenceRow,
)

LOWEST, HIGHEST = LOWEST_SCORE, HIGHEST_SCORE
ByMember = Mapping[str, float]
# Member id → option → score.
Scores = Mapping[str, Mapping[str, float]]
# Reasons why a member's satisfaction with a decision is unknown: the member did not score the
# option, or gave no scores at all.
UNKNOWN_OPTION, NOT_SCORED = "unknown_option", "not_scored"


def satisfaction_of_members(
    scores: Scores, portions: Sequence[Portion], lowest: float = STRONG_REJECTION
) -> dict[str, float]:
    """Return a map from member id to the member's satisfaction with a decision.

    - `scores`: the score that each member gives to each option.
    - `portions`: the parts of the decision.
    - `lowest`: a member rejects an option with this score or a lower score.

    Members who get no option are left out, and so are members who did not score an option that they
    get.
    """
    # Satisfaction is the mean score over the times at which the member gets an option. If there are
    # several options at one time, the best score counts, or the worst if the member rejects any of
    # them.
    result: dict[str, float] = {}
    for member, member_scores in scores.items():
        given_portions = [portion for portion in portions if member in portion.members]
        if not given_portions or any(
            portion.option not in member_scores for portion in given_portions
        ):
            continue
        by_time: dict[tuple[str, str], list[float]] = {}
        for portion in given_portions:
            # Two options with an open time may be at different times, so each counts as a separate
            # time.
            open_option = portion.option if portion.when == OPEN_TIME else ""
            by_time.setdefault((portion.when, open_option), []).append(
                member_scores[portion.option]
            )
        scores_held = [
            min(option_scores) if min(option_scores) <= lowest else max(option_scores)
            for option_scores in by_time.values()
        ]
        result[member] = math.fsum(scores_held) / len(scores_held)
    return result


def why_unknown(
    group: Group, scores: Scores, slot_decision: SlotDecision, known: Collection[str]
) -> dict[str, str]:
    """Return a map from member id to the reason why the member's satisfaction is unknown.

    `known`: the ids of the members with a known satisfaction.
    """
    # A member without an option gets the reason why nothing was decided, such as `left_open`. The
    # reason is `unreadable` if a part of the mediator's statement could not be read.
    cause = slot_decision.undecided_reason or (
        UNREADABLE if _is_partly_unread(slot_decision) else LEFT_OPEN
    )
    served = {member for portion in slot_decision.portions for member in portion.members}
    return {
        member.id: cause
        if member.id not in served and slot_decision.source != "preferences"
        else UNKNOWN_OPTION
        if scores.get(member.id)
        else NOT_SCORED
        for member in group.members
        if member.id not in known
    }


def _is_partly_unread(slot_decision: SlotDecision) -> bool:
    return (
        slot_decision.source == "synthesis"
        and slot_decision.stated is not None
        and bool(slot_decision.stated.unread_count)
    )


def _member_coverage(scores: Scores, portions: Sequence[Portion]) -> dict[str, float]:
    # 1.0 if the member gets an option with a positive score, otherwise 0.0.
    return {
        member_id: float(
            any(
                member_scores[portion.option] > 0
                for portion in portions
                if member_id in portion.members
            )
        )
        for member_id, member_scores in scores.items()
    }


def text_scores_of(
    group: Group, texts: Mapping[str, str], options: Sequence[str], portions: Sequence[Portion]
) -> Scores:
    """Return how strongly each member's stated preference favours each option.

    - `texts`: a map from member id to stated preference.
    - `options`: the options to score.
    - `portions`: the parts of a decision. The options in these parts are scored too.

    The keys of the result are member ids. Members who stated nothing are left out.
    """
    all_options = tuple(dict.fromkeys([*options, *(portion.option for portion in portions)]))
    return {
        member.id: text_scores(texts[member.id], all_options)
        for member in group.members
        if member.id in texts
    }


@dataclass(frozen=True, slots=True)
class DecisionMeasures:
    """The measures of one decision.

    A value is NaN if the measure does not apply.
    """

    satisfaction: ByMember
    # Member id → the reason why the satisfaction is unknown.
    unknown: Mapping[str, str]
    # 1.0 if the member gets an option with a positive score, otherwise 0.0.
    covered: ByMember
    minority_coverage: float
    minority_promised: float

    def satisfaction_with(self, member: str, **values: float) -> float:
        """Return a member's satisfaction. Replace an unknown satisfaction by a value from `values`.

        `values`: the value to use for each reason why a satisfaction is unknown, such as
        `left_open`.

        Returns NaN if the satisfaction is unknown and `values` lacks the reason.
        """
        return self.satisfaction.get(member, values.get(self.unknown.get(member, ""), math.nan))


def measure_decision(
    case: Negotiation, topic: TripTopic, slot_decision: SlotDecision
) -> DecisionMeasures:
    """Return the measures of one decision."""
    # Without mediation (C2) nothing is decided. The measures are then means over the stated first
    # choices, each measured as if it were the decision.
    # C1 hears one member, but it is measured by the statements of all.
    everyone = case.with_all_statements
    tally, texts, group = everyone.tally_topic(topic), everyone.texts(topic.id), case.group
    # A slot that was left open gives no member anything, which is a result. If the decision is
    # unreadable, the result is unknown, so there is no world to measure.
    allocations = (
        [slot_decision.portions]
        if slot_decision.portions or slot_decision.undecided_reason == LEFT_OPEN
        else []
    )
    if slot_decision.source == "preferences":
        all_members = tuple(member.id for member in group.members)
        allocations = [(Portion(option, all_members),) for option in tally.first_choices().values()]
    minority = _minority_members(tally)
    promised = dict(slot_decision.coverage["minority_targets"]) if slot_decision.coverage else {}
    # Options that the operator owes to members count as promised as well.
    promised |= dict(slot_decision.outcome.owed) if slot_decision.outcome else {}
    scores = _own_scores(case, topic, slot_decision)
    satisfaction = _mean_by_key(
        [satisfaction_of_members(scores, allocation, LOWEST) for allocation in allocations]
    )
    return DecisionMeasures(
        satisfaction,
        why_unknown(group, scores, slot_decision, satisfaction),
        _mean_by_key(
            [
                _member_coverage(text_scores_of(group, texts, tally.options, world), world)
                for world in allocations
            ]
        ),
        _mean_of_known(_satisfied_share(allocation, minority, {}) for allocation in allocations),
        _mean_of_known(
            _satisfied_share(allocation, minority, promised) for allocation in allocations
        ),
    )


def _own_scores(case: Negotiation, topic: TripTopic, slot_decision: SlotDecision) -> Scores:
    earlier_scores = case.own_scores.get(topic.id, {})
    return {
        member.id: {
            **earlier_scores.get(member.id, {}),
            **slot_decision.late_scores.get(member.id, {}),
        }
        for member in case.group.members
    }


def _minority_members(tally: Tally) -> dict[str, str]:
    # Only statements are used, so the result is the same under every condition.
    first_choices = tally.first_choices()
    wanted_options = list(first_choices.values())
    majority_option = min(
        wanted_options,
        key=lambda option: (-wanted_options.count(option), -tally.total(option), option),
        default=None,
    )
    return {
        member_id: option
        for member_id, option in first_choices.items()
        if option != majority_option
    }


def _satisfied_share(
    portions: Sequence[Portion], minority: Mapping[str, str], promised: Mapping[str, str]
) -> float:
    return _mean_of_known(
        float(
            promised.get(member_id) == wish
            or any(portion.option == wish and member_id in portion.members for portion in portions)
        )
        for member_id, wish in minority.items()
    )


def session_measures(
    case: Negotiation, decisions: Sequence[SlotDecision], measured: Sequence[DecisionMeasures]
) -> dict[str, float]:
    """Return the measures of a session, as a map from name to value.

    A value is NaN if the measure does not apply.
    """
    member_means = _means_of_members(case, measured, left_open=LOWEST)
    # The bounds replace every unknown satisfaction by the lowest and by the highest score.
    unknown = ("left_open", "unreadable", DECLINED, DROPPED, UNKNOWN_OPTION, NOT_SCORED)
    low, high = (
        _means_of_members(case, measured, **dict.fromkeys(unknown, float(end)))
        for end in (LOWEST, HIGHEST)
    )
    # C2 has expectations. Their mean is the expected mean, but their minimum is not the expected
    # minimum: it is higher, so C2 would look fairer than conditions that decide.
    outcomes = (
        []
        if any(slot_decision.source == "preferences" for slot_decision in decisions)
        else member_means
    )
    # The Gini coefficient needs values that are not negative.
    rescaled = [(outcome - LOWEST) / (HIGHEST - LOWEST) for outcome in outcomes]
    has_synthesis = case.condition.synthesis != "none"
    one_member = case.condition.one_member
    return {
        "satisfaction": _mean_of_known(member_means),
        "satisfaction_decided": _mean_of_known(_means_of_members(case, measured)),
        "satisfaction_if_lowest": _mean_of_known(low),
        "satisfaction_if_highest": _mean_of_known(high),
        "lowest_satisfaction": min(outcomes, default=math.nan),
        "inequality": gini(rescaled) if len(rescaled) > 1 else math.nan,
        "covered_share": _mean_of_known(
            value for decision_measures in measured for value in decision_measures.covered.values()
        ),
        "minority_coverage_share": _mean_of_known(
            decision_measures.minority_coverage for decision_measures in measured
        ),
        "minority_promised_share": _mean_of_known(
            decision_measures.minority_promised for decision_measures in measured
        ),
        "conflict_rate": _mean_of_known(
            float(slot_decision.has_conflict) for slot_decision in decisions if not one_member
        ),
        "drift_rate": _mean_of_known(
            float(slot_decision.strategy_drifted)
            for slot_decision in decisions
            if slot_decision.strategy_drifted is not None
        ),
        "feedback_resolution_rate": _mean_of_known(
            float(slot_decision.is_resolved)
            for slot_decision in decisions
            if slot_decision.is_resolved is not None
        ),
        "split_share": _mean_of_known(
            float(slot_decision.subgrouping_required or slot_decision.subgrouping_optional)
            for slot_decision in decisions
            if slot_decision.slot_name in SUBGROUP_SLOTS
        ),
        "words_per_decision": _mean_of_known(
            float(slot_decision.words) for slot_decision in decisions if has_synthesis
        ),
        "confirmed_share": _mean_of_known(
            float(word)
            for slot_decision in decisions
            for word in slot_decision.confirmed.values()
            if not isinstance(word, Missing)
        ),
        "undecided_share": _mean_of_known(
            float(slot_decision.undecided_reason is not None)
            for slot_decision in decisions
            if has_synthesis
        ),
    }


def _means_of_members(
    case: Negotiation, measured: Sequence[DecisionMeasures], **values: float
) -> list[float]:
    # `values` gives the number to use for an unknown satisfaction, by the reason why it is unknown.
    # Members with no number at all are left out.
    means = (
        _mean_of_known(
            decision_measures.satisfaction_with(member.id, **values)
            for decision_measures in measured
        )
        for member in case.group.members
    )
    return [mean for mean in means if math.isfinite(mean)]


class IntervalEstimate(TypedDict):
    """An estimate with its 95 % interval, p-value and number of groups."""

    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    # The value of every group, if there are few groups.
    each: list[float]


class Difference(IntervalEstimate):
    """The difference between two conditions in one measure, computed within each group."""

    # The value under the condition `minus` is subtracted from the value under the condition `of`.
    measure: str
    of: str
    minus: str


class NotAskedAgain(TypedDict):
    """The comparison of conditions.

    Decisions in which a question was asked twice are left out.
    """

    # A question that was asked again under one condition removes the decision under all conditions
    # of the group.
    # The number of decisions left out.
    decisions: int
    conditions: dict[str, dict[str, IntervalEstimate]]
    paired_differences: list[Difference]


class Comparison(TypedDict):
    """The content of comparison.json."""

    groups: int
    measures: dict[str, str]
    # Condition → measure → estimate.
    conditions: dict[str, dict[str, IntervalEstimate]]
    paired_differences: list[Difference]
    without_asked_again: NotAskedAgain | None
    # Condition → topic → share of groups (0 to 1).
    conflict_rate_by_slot: dict[str, dict[str, float]]
    intervals: str


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The decisions of one session and their measures."""

    case: Negotiation
    decisions: tuple[SlotDecision, ...]
    measured: tuple[DecisionMeasures, ...]

    def values(self, left_out: Collection[str] = ()) -> dict[str, float]:
        """Return the measures of the session, as a map from name to value.

        `left_out`: the topics of the decisions that are left out.
        """
        pairs = zip(self.decisions, self.measured, strict=True)
        kept_pairs = [
            (slot_decision, decision_measures)
            for slot_decision, decision_measures in pairs
            if slot_decision.topic not in left_out
        ]
        return session_measures(
            self.case,
            [slot_decision for slot_decision, _ in kept_pairs],
            [decision_measures for _, decision_measures in kept_pairs],
        )


def compare_conditions(run: RunFolder) -> Comparison:
    """Return the means and conflict rates of a run's conditions, and the paired differences.

    Unknown values are null.
    """
    # Means and differences have 95 % intervals clustered by group. All values can be written as
    # JSON.
    conditions = run.plan["sealed"]["conditions"]["data"]
    return compare_measures(
        conditions,
        run.read_table("measures"),
        run.read_table("decisions"),
        run.read_rows(NotAskedAgainRow),
    )


def compare_measures(
    conditions: Sequence[str],
    measures: pl.DataFrame,
    decisions: pl.DataFrame,
    not_asked_again: pl.DataFrame | None = None,
) -> Comparison:
    """Return the comparison of conditions, computed from the tables of a run.

    - `measures`, `decisions`: the tables with these names.
    - `not_asked_again`: the measures, computed without decisions in which a question was asked
      twice. None if no question was asked twice.
    """
    groups = measures["group_id"].unique(maintain_order=True).to_list()
    values_of = _by_session(measures)
    return {
        "groups": len(groups),
        "measures": MEASURES,
        "conditions": _condition_means(values_of, groups, conditions),
        "paired_differences": _condition_differences(values_of, groups, conditions),
        "without_asked_again": _compare_not_asked_again(
            values_of, not_asked_again, groups, conditions
        ),
        "conflict_rate_by_slot": _conflict_rates(decisions, conditions),
        "intervals": "95 %, by group (t, groups − 1 degrees of freedom)",
    }


# (group, condition) → measure → value.
Values = Mapping[tuple[str, str], Mapping[str, float]]


def _by_session(measures: pl.DataFrame) -> Values:
    # A measure that does not apply is null. The table of an earlier version may lack a column.
    return {
        (row["group_id"], row["condition"]): {
            name: math.nan if row.get(name) is None else row[name] for name in MEASURES
        }
        for row in measures.iter_rows(named=True)
    }


def _compare_not_asked_again(
    values_of: Values,
    not_asked_again: pl.DataFrame | None,
    groups: Sequence[str],
    conditions: Sequence[str],
) -> NotAskedAgain | None:
    if not_asked_again is None or not_asked_again.is_empty():
        return None
    left_out = not_asked_again.select("group_id", "left_out").unique()
    values_of = {**values_of, **_by_session(not_asked_again)}
    return {
        "decisions": int(left_out["left_out"].sum()),
        "conditions": _condition_means(values_of, groups, conditions),
        "paired_differences": _condition_differences(values_of, groups, conditions),
    }


def _condition_means(
    values_of: Values, groups: Sequence[str], conditions: Sequence[str]
) -> dict[str, dict[str, IntervalEstimate]]:
    means: dict[str, dict[str, IntervalEstimate]] = {}
    for condition in conditions:
        own_groups = [group for group in groups if (group, condition) in values_of]
        means[condition] = {
            name: _estimate_figure(
                clustered_mean(
                    [values_of[group, condition][name] for group in own_groups], own_groups
                )
            )
            for name in MEASURES
        }
    return means


def _condition_differences(
    values_of: Values, groups: Sequence[str], conditions: Sequence[str]
) -> list[Difference]:
    differences: list[Difference] = []
    for earlier, later in combinations(conditions, 2):
        shared_groups = [
            group
            for group in groups
            if (group, earlier) in values_of and (group, later) in values_of
        ]
        for name in MEASURES:
            pairs = (
                (group, values_of[group, later][name], values_of[group, earlier][name])
                for group in shared_groups
            )
            # A paired contrast needs a value of the group under both conditions.
            known_pairs = [
                pair for pair in pairs if math.isfinite(pair[1]) and math.isfinite(pair[2])
            ]
            if known_pairs:
                ids, after, before = zip(*known_pairs, strict=True)
                figure = _estimate_figure(paired_difference(after, before, ids))
                differences.append({**figure, "measure": name, "of": later, "minus": earlier})
    return [difference for difference in differences if difference["estimate"] is not None]


def _conflict_rates(
    decisions: pl.DataFrame, conditions: Sequence[str]
) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for condition in conditions:
        condition_rows = decisions.filter(pl.col("condition") == condition)
        if not CONDITIONS[condition].one_member and not condition_rows.is_empty():
            by_topic = condition_rows.partition_by(
                "topic", as_dict=True, maintain_order=True
            ).items()
            table[condition] = {
                topic: _mean_of_known(map(float, topic_rows["has_conflict"]))
                for (topic,), topic_rows in by_topic
            }
    return table


def _estimate_figure(estimate: Estimate) -> IntervalEstimate:
    def round_finite(value: float) -> float | None:
        return finite_or_none(round(value, 6))

    each = [round(value, 6) for value in estimate.each]
    return IntervalEstimate(
        estimate=round_finite(estimate.value),
        low=round_finite(estimate.low),
        high=round_finite(estimate.high),
        p=round_finite(estimate.p),
        n=estimate.n,
        each=each,
    )


def _mean_of_known(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    # `sum` rounds differently since Python 3.12, and `fsum` would not reproduce earlier runs.
    # Adding one value after another gives the same last digit everywhere.
    return reduce(add, known) / len(known) if known else math.nan


def _mean_by_key(rows: Sequence[ByMember]) -> dict[str, float]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: _mean_of_known(row[key] for row in rows if key in row) for key in keys}


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """Return two tables, `confirmations` and `decisions`, without the excluded answers.

    `excluded`: a table with the journal addresses of the excluded answers.
    """
    # In `confirmations`, excluded answers become null. In `decisions`, a decision counts as refused
    # only if an answer that is not excluded refused it.
    # An address has the form `negotiation/group-condition/topic/confirm/member/ask0`.
    # If C5 does not change a decision of C4, members are not asked again. Their answers under C4
    # then count for C5 as well.
    keys = ["group_id", "condition", "topic", "member_id"]
    excluded_answers = _confirmed_at(excluded["address"])
    answered = _confirmed_at(run.read_table("answers")["address"])
    left_out = [
        (group, condition if (group, condition, *rest) in answered else "C4", *rest)
        in excluded_answers
        for group, condition, *rest in run.read_table("confirmations").select(keys).iter_rows()
    ]
    is_kept = ~pl.lit(pl.Series(left_out, dtype=pl.Boolean))
    words = run.read_table("confirmations").with_columns(
        pl.when(is_kept).then(pl.col("confirmed", "refused"))
    )
    refused_keys = set(words.drop_nulls("refused").select(keys[:3]).iter_rows())
    decisions = run.read_table("decisions")
    is_refused = pl.Series([key in refused_keys for key in decisions.select(keys[:3]).iter_rows()])
    overridden = pl.when(pl.lit(is_refused)).then("overridden").otherwise("overridden_unasked")
    return {
        "confirmations": words.lazy(),
        "decisions": decisions.with_columns(overridden=overridden).lazy(),
    }


def _confirmed_at(addresses: pl.Series) -> set[tuple[str, ...]]:
    # (group, condition, topic, member) for each address of an answer to a confirmation.
    confirmations = set[tuple[str, ...]]()
    for address in addresses:
        _, session, *rest = split_address(address)
        if len(rest) == 4 and rest[1] == "confirm":
            group, _, condition = session.rpartition("-")
            confirmations.add((group, condition, rest[0], rest[2]))
    return confirmations


def unusable_reason(run: RunFolder) -> str:
    """Return why a run has no usable result.

    Returns "" for a usable run.
    """
    # A run is unusable if no preference or no reply of the mediator could be read.
    if run.read_table("preferences")["text"].is_null().all():
        return "no stated preference could be read"
    mediated = run.read_table("decisions").filter(~pl.col("condition").is_in(["C1", "C2"]))
    is_unread = mediated["parse_error"].all() and not mediated.is_empty()
    return "no reply of the mediator could be read" if is_unread else ""


def group_of_answer(row: Mapping[str, Any]) -> Hashable:
    """Return the id of the group to which the answer in `row` belongs.

    `row`: a row of the table `answers`.
    """
    # The id is the same under all conditions.
    part = str(part_of_stage(row))
    # The negotiation of a group is named by group and condition.
    return part.rpartition("-")[0] if row["stage"] == "negotiation" else part


def listed_choices(run: RunFolder) -> list[Shown]:
    """Return the first choices on ballots, with the options in the order shown to the member."""
    # C5 repeats the rows of the ballots of C4. A member's ballot counts once.
    cast = run.read_rows(BallotRow).drop_nulls(["top_choice", "options_shown"])
    cast = drop_humans(run, cast, "group_id", "member_id", unit_of=group_of_answer)
    ballots = cast.unique(["group_id", "topic", "member_id"], keep="first", maintain_order=True)
    columns = ("group_id", "member_id", "top_choice", "options_shown")
    choices = [
        Shown(tuple(shown.split("; ")), chosen, (group, member), unit=group)
        for group, member, chosen, shown in ballots.select(columns).iter_rows()
    ]
    return [choice for choice in choices if choice.chosen in choice.options]


def repeated_statements(run: RunFolder) -> list[Repeat]:
    """Return pairs of answers that one member gave to two nearly equal questions."""
    # A human's answers say nothing about the model.
    # A pair holds two scores of one option: one from the member's text, one given by the member.
    # Other pairs hold the option that the member scored highest and the top choice on the ballot.
    own_scores = run.read_rows(OwnScoreRow)
    scored_options = drop_humans(
        run, own_scores, "group_id", "member_id", unit_of=group_of_answer
    ).filter((pl.col("entered") == "before") & pl.col("score").is_not_null())
    member = ["group_id", "topic", "member_id"]
    # A preference that the researcher wrote is no answer of the member.
    stated = set(run.read_rows(PreferenceRow).filter(~pl.col("given")).select(member).iter_rows())
    text_and_scores = [
        Repeat((row["group_id"], row["member_id"]), (row["topic"], row["option"]), *score_pair)
        for row in scored_options.iter_rows(named=True)
        if row["text_score"] is not None and tuple(row[key] for key in member) in stated
        for score_pair in [(float(row["text_score"]), float(row["score"]))]
    ]
    # A member with two favourites has no single option that a ballot could repeat.
    best_scored = scored_options.filter(pl.col("score") == pl.col("score").max().over(member))
    best_scored = best_scored.filter(pl.len().over(member) == 1).select(*member, "option")
    # C5 repeats the rows of the ballots of C4. A member's ballot counts once.
    cast = run.read_table("ballots").filter(pl.col("top_choice").is_not_null())
    votes = cast.unique(member, keep="first", maintain_order=True)
    choices = best_scored.join(votes, on=member, maintain_order="left").iter_rows(named=True)
    ballots = [
        Repeat(row["group_id"], row["topic"], row["option"], row["top_choice"]) for row in choices
    ]
    return [*text_and_scores, *ballots]
