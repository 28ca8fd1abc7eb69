"""How well answers could be read: rungs of the ladder, re-asks, minimal structures, mends.

Nothing is scored silently: whatever was repaired, dropped or left out of a denominator is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from folkmoot.studies.town_hall.records import Call, Discussion

RUNGS = ("exact", "fenced", "repaired", "minimal", "missing")


def quality(discussion: Discussion) -> dict[str, Any]:
    """Counts of one discussion."""
    calls = discussion.calls
    mends = [(call.stage, mend) for call in calls for mend in call.mends]
    turns = [turn for r in discussion.rounds for turn in r.turns.values()]
    stages = list(dict.fromkeys(call.stage for call in calls))
    return {
        "answers": len(calls),
        "rungs": _counted(RUNGS, (c.rung for c in calls)),
        "rungs_by_stage": {
            stage: _counted(RUNGS, (c.rung for c in calls if c.stage == stage)) for stage in stages
        },
        "reasks": sum(c.reasks for c in calls),
        "minimal_structures": sum(c.minimal for c in calls),
        "missing_reasons": dict(sorted(Counter(c.missing for c in calls if c.missing).items())),
        "repaired": _by_kind(m.kind for _, m in mends if not m.dropped),
        "dropped": _by_kind(m.kind for _, m in mends if m.dropped),
        "thoughts_unread": sum(t.thinking is not None and t.thinking.parse_error for t in turns),
        "statements_unread": sum(not t.heard for t in turns),
        "reflections_unread": sum(
            r.parse_error for round_ in discussion.rounds for r in round_.reflections.values()
        ),
        "silent_turns": sum(t.silent for t in turns),
        "votes_uncast": sum(o.uncast for o in discussion.outcomes),
        "satisfaction_unread": sum(
            s.score is None for side in (discussion.before, discussion.after) for s in side.values()
        ),
        "ballot_empty": not discussion.items,
        "consensus_unread": discussion.consensus.parse_error,
        "rounds_split": sum(r.parts > 1 for r in discussion.rounds),
        "calls_by_round": {str(r.number): r.parts for r in discussion.rounds if r.parts},
    }


def total_quality(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of several discussions added up."""
    total: dict[str, Any] = {}
    for part in parts:
        _add(total, part)
    total.pop("calls_by_round", None)
    return total


def mend_rows(discussion: Discussion) -> list[dict[str, Any]]:
    """One record for each thing that was mended."""
    return [_mend_row(call, at) for call in discussion.calls for at in range(len(call.mends))]


def _mend_row(call: Call, at: int) -> dict[str, Any]:
    mend = call.mends[at]
    return {
        "stage": call.stage,
        "round": call.round,
        "agent_id": call.agent,
        "field": mend.field,
        "kind": mend.kind,
        "was": mend.was,
        "became": mend.became or None,
        "dropped": mend.dropped,
    }


def _counted(names: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    counts = Counter(found)
    order = [*names, *sorted(set(counts) - set(names))]
    return {name: counts[name] for name in order}


def _by_kind(kinds: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(kinds).items()))


def _add(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, Mapping):
            _add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + int(value)
