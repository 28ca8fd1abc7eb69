"""The measures of a negotiation: per decision, per session, and compared over conditions.

All satisfaction is scored on stated preferences alone, with one yardstick for all conditions.
Groups are the unit: intervals cluster by group, differences are paired within groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from folkmoot.measures.clustered import clustered_mean, paired_difference
from folkmoot.measures.diversity import gini
from folkmoot.measures.estimates import Estimate
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.operators import Portion
from folkmoot.studies.negotiation.room import Room
from folkmoot.studies.negotiation.satisfaction import (
    HIGHEST,
    LOWEST,
    member_satisfaction,
    member_scores,
)
from folkmoot.studies.negotiation.slots import SUBGROUP_SLOTS, Topic
from folkmoot.studies.negotiation.tally import Tally

# Name → (what it is, whether more is better; None: neither).
MEASURES: Mapping[str, tuple[str, bool | None]] = {
    "satisfaction": ("mean member score of what was decided, from −2 to 4", True),
    "lowest_satisfaction": ("mean score of the group's least content member", True),
    "inequality": ("Gini of members' mean scores, rescaled to 0 to 1", False),
    "covered_share": ("share of members who get something they spoke for", True),
    "minority_coverage_share": (
        "share of members outside the most common first choice who get their first choice",
        True,
    ),
    "minority_promised_share": (
        "share of them who get their first choice or are promised it",
        True,
    ),
    "conflict_rate": ("share of decisions with a conflict", None),
    "drift_rate": ("share of locked decisions where the model named another strategy", False),
    "feedback_resolution_rate": ("share of decisions under feedback that ended resolved", True),
    "split_share": (
        "share of cuisine, attraction and event where the group may or must part",
        None,
    ),
    "words_per_decision": ("words spoken to come to a decision", None),
}


@dataclass(frozen=True, slots=True)
class DecisionMeasures:
    """One decision measured. NaN where a measure does not apply."""

    satisfaction: Mapping[str, float]
    covered: Mapping[str, float]
    minority_coverage: float
    minority_promised: float


def measure(room: Room, topic: Topic, d: SlotDecision, everyone: Room) -> DecisionMeasures:
    """One decision. `everyone` is the room with all members' statements, which C1 does not hear
    but is measured by.

    Where nothing was decided (C2), any of the stated first choices is taken to be as likely as
    another: the expectation over them.
    """
    tally = everyone.tally(topic)
    texts = everyone.texts(topic.id)
    worlds = [d.portions] if d.portions else _undecided(d, tally, everyone)
    if not worlds:
        return DecisionMeasures({}, {}, math.nan, math.nan)
    content = [member_satisfaction(room.group, texts, tally.options, w) for w in worlds]
    covered = [_covered(room, texts, tally, w) for w in worlds]
    promised = _promised(d)
    minority = _minority(tally)
    got = [_share(w, minority, {}) for w in worlds]
    owed = [_share(w, minority, promised) for w in worlds]
    return DecisionMeasures(_mean_by_key(content), _mean_by_key(covered), _mean(got), _mean(owed))


def _undecided(d: SlotDecision, tally: Tally, room: Room) -> list[tuple[Portion, ...]]:
    if d.source != "preferences":
        return []
    everyone = tuple(m.id for m in room.group.members)
    first = [p for v in tally.voters if (p := tally.primary(v.id)) is not None]
    return [(Portion(option, everyone),) for option in first]


def _covered(
    room: Room, texts: Mapping[str, str], tally: Tally, portions: Sequence[Portion]
) -> dict[str, float]:
    options = tuple(dict.fromkeys([*tally.options, *(p.option for p in portions)]))
    scored = member_scores(room.group, texts, options)
    return {
        m: float(any(own[p.option] > 0 for p in portions if m in p.members))
        for m, own in scored.items()
    }


def _minority(tally: Tally) -> dict[str, str]:
    """Members whose first choice is not the most common one, with that first choice. It follows
    from what was stated alone, so it is the same under every condition."""
    first = {v.id: p for v in tally.voters if (p := tally.primary(v.id)) is not None}
    if not first:
        return {}
    count = {o: sum(p == o for p in first.values()) for o in set(first.values())}
    common = min(count, key=lambda o: (-count[o], -tally.total(o), o))
    return {m: p for m, p in first.items() if p != common}


def _share(
    portions: Sequence[Portion], minority: Mapping[str, str], promised: Mapping[str, str]
) -> float:
    if not minority:
        return math.nan
    served = [
        promised.get(m) == wish or any(p.option == wish and m in p.members for p in portions)
        for m, wish in minority.items()
    ]
    return sum(served) / len(served)


def _promised(d: SlotDecision) -> dict[str, str]:
    targets = dict(d.coverage["minority_targets"]) if d.coverage else {}
    return {**targets, **(dict(d.outcome.owed) if d.outcome else {})}


def session_measures(
    room: Room, decisions: Sequence[SlotDecision], measured: Sequence[DecisionMeasures]
) -> dict[str, float]:
    """The measures of one session (a group under a condition), NaN where one does not apply."""
    ids = [m.id for m in room.group.members]
    by_member = {
        i: _mean([x.satisfaction[i] for x in measured if i in x.satisfaction]) for i in ids
    }
    means = [v for v in by_member.values() if math.isfinite(v)]
    rescaled = [(min(max(v, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST) for v in means]
    locked = [d for d in decisions if d.clamped]
    under_feedback = [d for d in decisions if d.feedback]
    parting = [d for d in decisions if d.slot in SUBGROUP_SLOTS]
    spoke = room.condition.synthesis != "none"
    return {
        "satisfaction": _mean(means),
        "lowest_satisfaction": min(means, default=math.nan),
        "inequality": gini(rescaled) if len(rescaled) > 1 else math.nan,
        "covered_share": _mean([v for x in measured for v in x.covered.values()]),
        "minority_coverage_share": _mean([x.minority_coverage for x in measured]),
        "minority_promised_share": _mean([x.minority_promised for x in measured]),
        "conflict_rate": math.nan
        if room.condition.one_member
        else _mean([float(d.has_conflict) for d in decisions]),
        "drift_rate": _mean([float(d.clamped.drifted) for d in locked if d.clamped]),
        "feedback_resolution_rate": _mean([float(bool(d.resolved)) for d in under_feedback]),
        "split_share": _mean([float(d.flags.required or d.flags.optional) for d in parting]),
        "words_per_decision": _mean([float(d.words) for d in decisions]) if spoke else math.nan,
    }


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The measures of one session, for comparing conditions."""

    group_id: str
    condition: str
    values: Mapping[str, float]
    conflicts: Mapping[str, bool]


def compare(results: Sequence[SessionResult], conditions: Sequence[str]) -> dict[str, Any]:
    """Means per condition and paired differences between conditions, each with a 95 % interval
    clustered by group, and the conflict rate per slot. JSON; what cannot be had is null."""
    by = {(r.group_id, r.condition): r for r in results}
    groups = list(dict.fromkeys(r.group_id for r in results))
    means = {
        c: {
            name: _estimate(
                clustered_mean([by[g, c].values[name] for g in groups if (g, c) in by], groups)
            )
            for name in MEASURES
        }
        for c in conditions
    }
    differences = [
        {
            "measure": name,
            "of": later,
            "minus": earlier,
            **_estimate(_paired(by, groups, name, later, earlier)),
        }
        for earlier, later in combinations(conditions, 2)
        for name in MEASURES
    ]
    return {
        "groups": len(groups),
        "measures": {name: what for name, (what, _) in MEASURES.items()},
        "conditions": means,
        "paired_differences": [d for d in differences if d["estimate"] is not None],
        "conflict_rate_by_slot": _conflicts(results, conditions),
        "intervals": "95 %, clustered by group (t, groups − 1 degrees of freedom)",
    }


def _paired(
    by: Mapping[tuple[str, str], SessionResult],
    groups: Sequence[str],
    name: str,
    later: str,
    earlier: str,
) -> Estimate:
    pairs = [(g, by[g, later].values[name], by[g, earlier].values[name]) for g in groups]
    kept = [(g, a, b) for g, a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not kept:
        return Estimate(math.nan, math.nan, math.nan, 0)
    ids, after, before = zip(*kept, strict=True)
    return paired_difference(after, before, ids)


def _conflicts(
    results: Sequence[SessionResult], conditions: Sequence[str]
) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for condition in conditions:
        some = [r.conflicts for r in results if r.condition == condition and r.conflicts]
        if some:
            table[condition] = {t: _mean([float(c[t]) for c in some]) for t in some[0]}
    return table


def _estimate(e: Estimate) -> dict[str, Any]:
    def number(x: float) -> float | None:
        return round(x, 6) if math.isfinite(x) else None

    return {
        "estimate": number(e.value),
        "low": number(e.low),
        "high": number(e.high),
        "p": number(e.p),
        "n": e.n,
    }


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


def _mean_by_key(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(k for row in rows for k in row)
    return {k: _mean([row[k] for row in rows if k in row]) for k in keys}
