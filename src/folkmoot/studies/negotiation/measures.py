"""The measures of a negotiation: per decision, per session, and compared over conditions.

Satisfaction is computed from the members' own scores, told to the researcher before the mediation,
with one yardstick for all conditions. What the source prescribes (first choices, coverage, splits,
feedback) stays on its text scoring. Groups are the unit: intervals cluster by group, differences
are paired within groups.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypedDict

import polars as pl

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.clustered import clustered_mean, paired_difference
from folkmoot.measures.inference.estimates import Estimate
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
    Topic,
)
from folkmoot.studies.negotiation.rules.tally import STRONG_REJECTION, Tally, text_scores
from folkmoot.studies.negotiation.tables import MEASURES, NotAskedAgainRow

LOWEST, HIGHEST = LOWEST_SCORE, HIGHEST_SCORE
ByMember = Mapping[str, float]
Scores = Mapping[str, Mapping[str, float]]  # member → option → score
# Why a member's satisfaction with a decision is not known. The first counts as the lowest score.
UNKNOWN_OPTION, NOT_SCORED = "unknown_option", "not_scored"


def satisfaction_of_members(
    scores: Scores, portions: Sequence[Portion], lowest: float = STRONG_REJECTION
) -> dict[str, float]:
    """Return each member's score of what the member gets.

    That is the mean over the times or branches that are for the member. Where several options hold
    at once it is the best of them, or the worst if one has at most the score `lowest`. Members who
    get nothing, or an option that they did not score, are left out.
    """
    result: dict[str, float] = {}
    for member, own in scores.items():
        given = [portion for portion in portions if member in portion.members]
        if not given or any(portion.option not in own for portion in given):
            continue
        by_time: dict[tuple[str, str], list[float]] = {}
        for portion in given:
            # Times left open need not be the same time.
            apart = portion.option if portion.when == OPEN_TIME else ""
            by_time.setdefault((portion.when, apart), []).append(own[portion.option])
        held = [min(s) if min(s) <= lowest else max(s) for s in by_time.values()]
        result[member] = sum(held) / len(held)
    return result


def why_unknown(
    group: Group, scores: Scores, d: SlotDecision, known: Collection[str]
) -> dict[str, str]:
    """Return why the satisfaction of the other members is not known.

    `left_open`: the decision gives the member nothing. It is `unreadable` if a part of the
    statement could not be read, which may have been the member's.
    """
    cause = d.undecided or (UNREADABLE if _is_partly_unread(d) else LEFT_OPEN)
    served = {member for portion in d.portions for member in portion.members}
    return {
        m.id: cause
        if m.id not in served and d.source != "preferences"
        else UNKNOWN_OPTION
        if scores.get(m.id)
        else NOT_SCORED
        for m in group.members
        if m.id not in known
    }


def _is_partly_unread(d: SlotDecision) -> bool:
    return d.source == "synthesis" and d.stated is not None and bool(d.stated.unread)


def _covered(scores: Scores, portions: Sequence[Portion]) -> dict[str, float]:
    """Return for each member whether the member gets something that the member spoke for."""
    return {
        m: float(any(own[p.option] > 0 for p in portions if m in p.members))
        for m, own in scores.items()
    }


def text_scores_of(
    group: Group, texts: Mapping[str, str], options: Sequence[str], portions: Sequence[Portion]
) -> Scores:
    """Return the source's scores of the stated preferences alone. Members who stated nothing are
    left out."""
    every = tuple(dict.fromkeys([*options, *(p.option for p in portions)]))
    return {m.id: text_scores(texts[m.id], every) for m in group.members if m.id in texts}


@dataclass(frozen=True, slots=True)
class DecisionMeasures:
    """One decision measured. NaN where a measure does not apply. `unknown`: member → why the
    satisfaction is not known."""

    satisfaction: ByMember
    unknown: Mapping[str, str]
    covered: ByMember
    minority_coverage: float
    minority_promised: float

    def satisfaction_with(self, member: str, **values: float) -> float:
        """Return a member's satisfaction. `values` replace unknown ones, by reason."""
        return self.satisfaction.get(member, values.get(self.unknown.get(member, ""), math.nan))


def measure(case: Negotiation, topic: Topic, d: SlotDecision) -> DecisionMeasures:
    """One decision. Where nothing was decided (C2), any of the stated first choices is taken to be
    as likely as another: the expectation over them."""
    everyone = case.hearing_all
    tally, texts, group = everyone.tally(topic), everyone.texts(topic.id), case.group
    # A slot that was left open gives everybody nothing. Of an unreadable one nothing is known.
    worlds = [d.portions] if d.portions or d.undecided == LEFT_OPEN else []
    if d.source == "preferences":
        all_of_us = tuple(m.id for m in group.members)
        worlds = [(Portion(o, all_of_us),) for o in tally.first_choices().values()]
    minority = _minority(tally)
    promised = dict(d.coverage["minority_targets"]) if d.coverage else {}
    promised |= dict(d.outcome.owed) if d.outcome else {}
    scores = _own_scores(case, topic, d)
    satisfaction = _mean_by_key([satisfaction_of_members(scores, w, LOWEST) for w in worlds])
    return DecisionMeasures(
        satisfaction,
        why_unknown(group, scores, d, satisfaction),
        _mean_by_key([_covered(text_scores_of(group, texts, tally.options, w), w) for w in worlds]),
        _mean(_share(w, minority, {}) for w in worlds),
        _mean(_share(w, minority, promised) for w in worlds),
    )


def _own_scores(case: Negotiation, topic: Topic, d: SlotDecision) -> Scores:
    before = case.own_scores.get(topic.id, {})
    return {
        m.id: {**before.get(m.id, {}), **d.late_scores.get(m.id, {})} for m in case.group.members
    }


def _minority(tally: Tally) -> dict[str, str]:
    """Members whose first choice is not the most common one, with that first choice. It follows
    from what was stated alone, so it is the same under every condition."""
    first = tally.first_choices()
    wanted = list(first.values())
    common = min(wanted, key=lambda o: (-wanted.count(o), -tally.total(o), o), default=None)
    return {m: p for m, p in first.items() if p != common}


def _share(
    portions: Sequence[Portion], minority: Mapping[str, str], promised: Mapping[str, str]
) -> float:
    return _mean(
        float(promised.get(m) == wish or any(p.option == wish and m in p.members for p in portions))
        for m, wish in minority.items()
    )


def session_measures(
    case: Negotiation, decisions: Sequence[SlotDecision], measured: Sequence[DecisionMeasures]
) -> dict[str, float]:
    """The measures of one session (a group under a condition), NaN where one does not apply."""
    means = _means_of_members(case, measured, left_open=LOWEST)
    unknown = ("left_open", "unreadable", DECLINED, UNKNOWN_OPTION, NOT_SCORED)
    low, high = (
        _means_of_members(case, measured, **dict.fromkeys(unknown, float(end)))
        for end in (LOWEST, HIGHEST)
    )
    # Of expectations (C2) a mean is the expected mean, but the least of several is not the expected
    # least: members' luck evens out in it, so that C2 would look fairer than what is decided.
    outcomes = [] if any(d.source == "preferences" for d in decisions) else means
    rescaled = [(v - LOWEST) / (HIGHEST - LOWEST) for v in outcomes]
    spoke = case.condition.synthesis != "none"
    one_member = case.condition.one_member
    return {
        "satisfaction": _mean(means),
        "satisfaction_decided": _mean(_means_of_members(case, measured)),
        "satisfaction_if_lowest": _mean(low),
        "satisfaction_if_highest": _mean(high),
        "lowest_satisfaction": min(outcomes, default=math.nan),
        "inequality": gini(rescaled) if len(rescaled) > 1 else math.nan,
        "covered_share": _mean(v for x in measured for v in x.covered.values()),
        "minority_coverage_share": _mean(x.minority_coverage for x in measured),
        "minority_promised_share": _mean(x.minority_promised for x in measured),
        "conflict_rate": _mean(float(d.has_conflict) for d in decisions if not one_member),
        "drift_rate": _mean(float(d.drifted) for d in decisions if d.drifted is not None),
        "feedback_resolution_rate": _mean(
            float(d.resolved) for d in decisions if d.resolved is not None
        ),
        "split_share": _mean(
            float(d.subgrouping_required or d.subgrouping_optional)
            for d in decisions
            if d.slot in SUBGROUP_SLOTS
        ),
        "words_per_decision": _mean(float(d.words) for d in decisions if spoke),
        "confirmed_share": _mean(
            float(word)
            for d in decisions
            for word in d.confirmed.values()
            if not isinstance(word, Missing)
        ),
        "undecided_share": _mean(float(d.undecided is not None) for d in decisions if spoke),
    }


def _means_of_members(
    case: Negotiation, measured: Sequence[DecisionMeasures], **values: float
) -> list[float]:
    """Return the members' mean satisfaction, of those for whom it is known for a decision."""
    means = (
        _mean(x.satisfaction_with(m.id, **values) for x in measured) for m in case.group.members
    )
    return [mean for mean in means if math.isfinite(mean)]


class Figure(TypedDict):
    """An estimate as JSON: what is unknown is null; `each` has the values of few groups."""

    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    each: list[float]


class Difference(Figure):
    """What a measure is under `of` less what it is under `minus`, within groups."""

    measure: str
    of: str
    minus: str


class NotAskedAgain(TypedDict):
    """The same without the decisions for which a reply was asked for again under any condition of
    the group; `decisions`: how many of a group's decisions that leaves out."""

    decisions: int
    conditions: dict[str, dict[str, Figure]]
    paired_differences: list[Difference]


class Comparison(TypedDict):
    """comparison.json. `conditions`: condition → measure → figure; `conflict_rate_by_slot`:
    condition → topic → share of groups."""

    groups: int
    measures: dict[str, str]
    conditions: dict[str, dict[str, Figure]]
    paired_differences: list[Difference]
    without_asked_again: NotAskedAgain | None
    conflict_rate_by_slot: dict[str, dict[str, float]]
    intervals: str


@dataclass(frozen=True, slots=True)
class SessionResult:
    """One session: its decisions, and these measured."""

    case: Negotiation
    decisions: tuple[SlotDecision, ...]
    measured: tuple[DecisionMeasures, ...]

    def values(self, left_out: Collection[str] = ()) -> dict[str, float]:
        """The measures by name, without the decisions on some topics."""
        pairs = zip(self.decisions, self.measured, strict=True)
        kept = [(d, m) for d, m in pairs if d.topic not in left_out]
        return session_measures(self.case, [d for d, _ in kept], [m for _, m in kept])


def compare_conditions(run: RunFolder) -> Comparison:
    """Means per condition and paired differences between conditions, from the tables of a run: each
    with a 95 % interval clustered by group; and the conflict rate per slot. JSON; what is unknown
    is null."""
    conditions = run.plan["sealed"]["conditions"]["data"]
    return compare(
        conditions,
        run.table("measures"),
        run.table("decisions"),
        run.table(NotAskedAgainRow.table) if run.has_table(NotAskedAgainRow.table) else None,
    )


def compare(
    conditions: Sequence[str],
    measures: pl.DataFrame,
    decisions: pl.DataFrame,
    not_asked_again: pl.DataFrame | None = None,
) -> Comparison:
    """The comparison from the rows of these tables."""
    groups = measures["group_id"].unique(maintain_order=True).to_list()
    by = _by_session(measures)
    return {
        "groups": len(groups),
        "measures": MEASURES,
        "conditions": _means(by, groups, conditions),
        "paired_differences": _differences(by, groups, conditions),
        "without_asked_again": _compare_not_asked_again(by, not_asked_again, groups, conditions),
        "conflict_rate_by_slot": _conflicts(decisions, conditions),
        "intervals": "95 %, by group (t, groups − 1 degrees of freedom)",
    }


Values = Mapping[tuple[str, str], Mapping[str, float]]  # group and condition → measures


def _by_session(measures: pl.DataFrame) -> Values:
    """The measures of each session; NaN where one does not apply, or is not of that version."""
    return {
        (row["group_id"], row["condition"]): {
            name: math.nan if row.get(name) is None else row[name] for name in MEASURES
        }
        for row in measures.iter_rows(named=True)
    }


def _compare_not_asked_again(
    by: Values,
    not_asked_again: pl.DataFrame | None,
    groups: Sequence[str],
    conditions: Sequence[str],
) -> NotAskedAgain | None:
    if not_asked_again is None or not_asked_again.is_empty():
        return None
    left_out = not_asked_again.select("group_id", "left_out").unique()
    by = {**by, **_by_session(not_asked_again)}
    return {
        "decisions": int(left_out["left_out"].sum()),
        "conditions": _means(by, groups, conditions),
        "paired_differences": _differences(by, groups, conditions),
    }


def _means(
    by: Values, groups: Sequence[str], conditions: Sequence[str]
) -> dict[str, dict[str, Figure]]:
    means: dict[str, dict[str, Figure]] = {}
    for c in conditions:
        own = [g for g in groups if (g, c) in by]
        means[c] = {
            name: _estimate(clustered_mean([by[g, c][name] for g in own], own)) for name in MEASURES
        }
    return means


def _differences(by: Values, groups: Sequence[str], conditions: Sequence[str]) -> list[Difference]:
    differences: list[Difference] = []
    for earlier, later in combinations(conditions, 2):
        both = [g for g in groups if (g, earlier) in by and (g, later) in by]
        for name in MEASURES:
            pairs = ((g, by[g, later][name], by[g, earlier][name]) for g in both)
            kept = [p for p in pairs if math.isfinite(p[1]) and math.isfinite(p[2])]
            if kept:
                ids, after, before = zip(*kept, strict=True)
                found = _estimate(paired_difference(after, before, ids))
                differences.append({**found, "measure": name, "of": later, "minus": earlier})
    return [d for d in differences if d["estimate"] is not None]


def _conflicts(decisions: pl.DataFrame, conditions: Sequence[str]) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for condition in conditions:
        own = decisions.filter(pl.col("condition") == condition)
        if not CONDITIONS[condition].one_member and not own.is_empty():
            by_topic = own.partition_by("topic", as_dict=True, maintain_order=True).items()
            table[condition] = {
                topic: _mean(map(float, of["has_conflict"])) for (topic,), of in by_topic
            }
    return table


def _estimate(e: Estimate) -> Figure:
    def known(x: float) -> float | None:
        return round(x, 6) if math.isfinite(x) else None

    each = [round(x, 6) for x in e.each]
    return Figure(
        estimate=known(e.value),
        low=known(e.low),
        high=known(e.high),
        p=known(e.p),
        n=e.n,
        each=each,
    )


def _mean(values: Iterable[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


def _mean_by_key(rows: Sequence[ByMember]) -> dict[str, float]:
    keys = dict.fromkeys(k for row in rows for k in row)
    return {k: _mean(row[k] for row in rows if k in row) for k in keys}
