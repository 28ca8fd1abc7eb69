"""How well answers could be read.

Whatever was repaired, dropped, declined or left out of a denominator is counted, so that nothing is
scored silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias, TypedDict

from folkmoot.conversation.answer_types import WAYS_OUT
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.records import Record
from folkmoot.studies.town_hall.discussion import Discussion

PARSE_STEPS = ("exact", "fenced", "repaired", "minimal", "missing")


Counts: TypeAlias = "dict[str, int | Counts]"


def quality(discussion: Discussion) -> Counts:
    """Steps of the ladder, re-asks, minimal structures and repairs of one discussion."""
    calls, rounds = discussion.calls, discussion.rounds
    repairs = [repair for call in calls for repair in call.repairs]
    turns = [turn for r in rounds for turn in r.turns.values()]
    reflections = [r for round_ in rounds for r in round_.reflections.values()]
    surveys = [*discussion.before.values(), *discussion.after.values()]
    return {
        "answers": len(calls),
        "parse_steps": _parse_steps(c.parse_step for c in calls),
        "parse_steps_by_stage": {
            stage: _parse_steps(c.parse_step for c in calls if c.stage.name == stage)
            for stage in dict.fromkeys(call.stage.name for call in calls)
        },
        "reasks": sum(c.reasks for c in calls),
        "minimal_structures": sum(c.minimal for c in calls),
        "missing_reasons": _by_kind(c.missing for c in calls if c.missing),
        "repaired": _by_kind(r.kind for r in repairs if not r.dropped),
        "dropped": _by_kind(r.kind for r in repairs if r.dropped),
        "thoughts_unread": sum(t.thinking is not None and t.thinking.parse_error for t in turns),
        "statements_unread": sum(not t.heard and not t.speaking.declined for t in turns),
        "reflections_unread": sum(r.parse_error for r in reflections),
        "thoughts_declined": sum(t.thinking is not None and t.thinking.declined for t in turns),
        "statements_declined": sum(t.speaking.declined for t in turns),
        "reflections_declined": sum(r.declined for r in reflections),
        "ways_out": _ways_out(discussion),
        "silent_turns": sum(t.silent for t in turns),
        "votes_uncast": sum(o.uncast for o in discussion.outcomes),
        "satisfaction_unread": sum(
            s.satisfaction is None and s.missing.get("satisfaction") not in WAYS_OUT
            for s in surveys
        ),
        "ballot_empty": not discussion.items,
        "consensus_unread": discussion.closing.parse_error,
        "rounds_split": sum(r.parts > r.planned_parts for r in rounds),
    }


def _ways_out(discussion: Discussion) -> Counts:
    """Way out → how many answers that state a stance, an agreement, a vote or a rating took it."""
    turns = [turn for r in discussion.rounds for turn in r.turns.values()]
    thoughts = [t.thinking for t in turns if t.thinking]
    reflections = [r for round_ in discussion.rounds for r in round_.reflections.values()]
    records: list[Record] = [
        *thoughts,
        *(reaction for t in thoughts for reaction in t.reactions),
        *(reference for t in turns for reference in t.speaking.references),
        *(r.stance_evolution for r in reflections if r.stance_evolution),
        *discussion.before.values(),
        *discussion.after.values(),
    ]
    missing = [record.missing for record in records]
    missing += [ballot.missing for ballot in discussion.ballots.values()]
    # A change from or to a stance that was not stated is no answer of its own.
    taken = [
        reason
        for reasons in missing
        for name, reason in reasons.items()
        if reason in WAYS_OUT and name != "change_type"
    ]
    return {way: taken.count(way) for way in WAYS_OUT}


Count = tuple[str, str | None, str | None, int]  # what, in which stage, of which kind, how many
COUNT_COLUMNS = ("count", "stage", "kind", "n")


def count_rows(counts: Counts) -> Iterator[Count]:
    """The counts of one discussion as rows."""
    for name, found in counts.items():
        if isinstance(found, int):
            yield name, None, None, int(found)
            continue
        if not found:
            yield name, None, "", 0
        for kind, n in found.items():
            if isinstance(n, int):
                yield name, None, kind, n
            else:
                yield from ((name, kind, step, counted(n, step)) for step in n)


def total_quality(rows: Iterable[Count]) -> Counts:
    """The counts of several discussions added up, from their rows."""
    total: Counts = {}
    for name, stage, kind, n in rows:
        if kind is None:
            total[name] = counted(total, name) + n
            continue
        of = total.setdefault(name, {})
        if stage is not None and isinstance(of, dict):
            of = of.setdefault(stage, {})
        if kind and isinstance(of, dict):
            of[kind] = counted(of, kind) + n
    return total


class OfRun(TypedDict):
    """The content of quality.json."""

    all: Counts
    levels: dict[str, Counts]


def quality_of_run(run: RunFolder) -> OfRun:
    """The counts of all discussions of a run, and of those at each level."""
    rows = run.table("quality")
    by_level = {
        level: total_quality(of.select(COUNT_COLUMNS).iter_rows())
        for (level,), of in rows.partition_by("level", as_dict=True, maintain_order=True).items()
    }
    return {"all": total_quality(rows.select(COUNT_COLUMNS).iter_rows()), "levels": by_level}


def counted(counts: Counts, *names: str) -> int:
    """How many in all by these names: a count, or the sum of counts by kind; 0 if none is known."""
    found: int | Counts = counts
    for name in names:
        found = found.get(name, 0) if isinstance(found, dict) else 0
    return found if isinstance(found, int) else sum(counted(found, kind) for kind in found)


def _parse_steps(found: Iterable[str]) -> Counts:
    counts = Counter(found)
    return {
        name: counts[name] for name in (*PARSE_STEPS, *sorted(counts.keys() - set(PARSE_STEPS)))
    }


def _by_kind(kinds: Iterable[str]) -> Counts:
    return dict(sorted(Counter(kinds).items()))
