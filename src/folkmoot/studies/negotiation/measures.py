"""The measures of a negotiation: per decision, per session, and compared over conditions.

All satisfaction is scored on stated preferences alone, with one yardstick for all conditions.
Groups are the unit: intervals cluster by group, differences are paired within groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypedDict

from folkmoot.conversation.answers import Missing
from folkmoot.measures.clustered import clustered_mean, paired_difference
from folkmoot.measures.diversity import gini
from folkmoot.measures.estimates import Estimate
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.strategies import SUBGROUP_SLOTS, Group, Topic
from folkmoot.studies.negotiation.rules.tally import (
    NAMED,
    STRONG_REJECTION,
    WANTED,
    Tally,
    text_scores,
)
from folkmoot.studies.negotiation.tables import MEASURES

LOWEST, HIGHEST = STRONG_REJECTION, NAMED + WANTED
ByMember = Mapping[str, float]


def member_satisfaction(
    group: Group, texts: Mapping[str, str], options: Sequence[str], portions: Sequence[Portion]
) -> dict[str, float]:
    """Member → the member's own score of what the member gets: the mean over the times or branches
    that are for the member; where several options hold at once, the best of them, or the worst if
    one is strongly rejected. Members who get nothing or stated nothing are left out."""
    result: dict[str, float] = {}
    for member, own in _scores(group, texts, options, portions).items():
        by_time: dict[str, list[int]] = {}
        for portion in portions:
            if member in portion.members:
                by_time.setdefault(portion.when, []).append(own[portion.option])
        if by_time:
            held = [min(s) if min(s) <= LOWEST else max(s) for s in by_time.values()]
            result[member] = sum(held) / len(held)
    return result


def _covered(
    group: Group, texts: Mapping[str, str], options: Sequence[str], portions: Sequence[Portion]
) -> dict[str, float]:
    """Member → whether the member gets something that the member spoke for."""
    return {
        m: float(any(own[p.option] > 0 for p in portions if m in p.members))
        for m, own in _scores(group, texts, options, portions).items()
    }


def _scores(
    group: Group, texts: Mapping[str, str], options: Sequence[str], portions: Sequence[Portion]
) -> dict[str, dict[str, int]]:
    """Member → option → score by the stated preference alone, so that conditions with and without
    ballots are measured alike. Members who stated nothing are left out."""
    every = tuple(dict.fromkeys([*options, *(p.option for p in portions)]))
    return {m.id: text_scores(texts[m.id], every) for m in group.members if m.id in texts}


@dataclass(frozen=True, slots=True)
class DecisionMeasures:
    """One decision measured. NaN where a measure does not apply."""

    satisfaction: ByMember
    covered: ByMember
    minority_coverage: float
    minority_promised: float


def measure(case: Negotiation, topic: Topic, d: SlotDecision) -> DecisionMeasures:
    """One decision. Where nothing was decided (C2), any of the stated first choices is taken to be
    as likely as another: the expectation over them."""
    everyone = case.hearing_all
    tally, texts, group = everyone.tally(topic), everyone.texts(topic.id), case.group
    worlds = [d.portions] if d.portions else []
    if d.source == "preferences":
        all_of_us = tuple(m.id for m in group.members)
        worlds = [(Portion(o, all_of_us),) for o in tally.first_choices().values()]
    minority = _minority(tally)
    promised = dict(d.coverage["minority_targets"]) if d.coverage else {}
    promised |= dict(d.outcome.owed) if d.outcome else {}
    return DecisionMeasures(
        _mean_by_key([member_satisfaction(group, texts, tally.options, w) for w in worlds]),
        _mean_by_key([_covered(group, texts, tally.options, w) for w in worlds]),
        _mean(_share(w, minority, {}) for w in worlds),
        _mean(_share(w, minority, promised) for w in worlds),
    )


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
    by_member = (
        _mean(x.satisfaction[m.id] for x in measured if m.id in x.satisfaction)
        for m in case.group.members
    )
    means = [v for v in by_member if math.isfinite(v)]
    rescaled = [(min(max(v, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST) for v in means]
    spoke = case.condition.synthesis != "none"
    one_member = case.condition.one_member
    return {
        "satisfaction": _mean(means),
        "lowest_satisfaction": min(means, default=math.nan),
        "inequality": gini(rescaled) if len(rescaled) > 1 else math.nan,
        "covered_share": _mean(v for x in measured for v in x.covered.values()),
        "minority_coverage_share": _mean(x.minority_coverage for x in measured),
        "minority_promised_share": _mean(x.minority_promised for x in measured),
        "conflict_rate": _mean(float(d.has_conflict) for d in decisions if not one_member),
        "drift_rate": _mean(float(d.drifted) for d in decisions if d.drifted is not None),
        "feedback_resolution_rate": _mean(float(bool(d.resolved)) for d in decisions if d.feedback),
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
        "undecided_share": _mean(float(not d.portions) for d in decisions if spoke),
    }


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


class Comparison(TypedDict):
    """comparison.json. `conditions`: condition → measure → figure; `conflict_rate_by_slot`:
    condition → topic → share of groups."""

    groups: int
    measures: dict[str, str]
    conditions: dict[str, dict[str, Figure]]
    paired_differences: list[Difference]
    conflict_rate_by_slot: dict[str, dict[str, float]]
    intervals: str


@dataclass(frozen=True, slots=True)
class SessionResult:
    """One session: its measures, where it had conflicts, and its row for TripCraft."""

    group_id: str
    condition: str
    values: Mapping[str, float]
    conflicts: Mapping[str, bool]
    trip: Mapping[str, object] = field(default_factory=dict)


def compare(results: Sequence[SessionResult], conditions: Sequence[str]) -> Comparison:
    """Means per condition and paired differences between conditions, each with a 95 % interval
    clustered by group, and the conflict rate per slot. JSON; what is unknown is null."""
    by = {(r.group_id, r.condition): r.values for r in results}
    groups = list(dict.fromkeys(r.group_id for r in results))
    means = {
        c: {
            name: _estimate(
                clustered_mean([by[g, c][name] for g in groups if (g, c) in by], groups)
            )
            for name in MEASURES
        }
        for c in conditions
    }
    differences: list[Difference] = []
    for earlier, later in combinations(conditions, 2):
        for name in MEASURES:
            pairs = ((g, by[g, later][name], by[g, earlier][name]) for g in groups)
            kept = [p for p in pairs if math.isfinite(p[1]) and math.isfinite(p[2])]
            if kept:
                ids, after, before = zip(*kept, strict=True)
                found = _estimate(paired_difference(after, before, ids))
                differences.append({**found, "measure": name, "of": later, "minus": earlier})
    return {
        "groups": len(groups),
        "measures": MEASURES,
        "conditions": means,
        "paired_differences": [d for d in differences if d["estimate"] is not None],
        "conflict_rate_by_slot": _conflicts(results, conditions),
        "intervals": "95 %, by group (t, groups − 1 degrees of freedom)",
    }


def _conflicts(
    results: Sequence[SessionResult], conditions: Sequence[str]
) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for condition in conditions:
        some = [r.conflicts for r in results if r.condition == condition and r.conflicts]
        if some:
            table[condition] = {t: _mean(float(c[t]) for c in some) for t in some[0]}
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
