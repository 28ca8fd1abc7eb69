"""Counts that show how well the answers of a town hall could be read."""

# Repaired, dropped, declined and excluded values are all counted, so that readers see every change
# to the data.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias, TypedDict

from folkmoot.conversation.answer_types import WAYS_OUT
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.kit.findings import (
    Row,
)
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.records import Record
from folkmoot.studies.town_hall.discussion import Discussion

# All steps are listed in the counts, also those with a count of zero.
PARSE_STEPS = ("exact", "fenced", "repaired", "minimal", "missing")


# Name → count, or kind → count, or stage → kind → count.
Counts: TypeAlias = "dict[str, int | Counts]"


def count_quality(discussion: Discussion) -> Counts:
    """Return the counts of one discussion."""
    calls, rounds = discussion.calls, discussion.rounds
    repairs = [repair for call in calls for repair in call.repairs]
    turns = [turn for round_ in rounds for turn in round_.turns.values()]
    reflections = [reflection for round_ in rounds for reflection in round_.reflections.values()]
    surveys = [*discussion.before.values(), *discussion.after.values()]
    return {
        "answers": len(calls),
        "parse_steps": _parse_steps(call.parse_step for call in calls),
        "parse_steps_by_stage": {
            stage: _parse_steps(call.parse_step for call in calls if call.stage.name == stage)
            for stage in dict.fromkeys(call.stage.name for call in calls)
        },
        "reasks": sum(call.reasks for call in calls),
        "minimal_structures": sum(call.minimal for call in calls),
        "missing_reasons": _by_kind(call.missing for call in calls if call.missing),
        "repaired": _by_kind(repair.kind for repair in repairs if not repair.is_dropped),
        "dropped": _by_kind(repair.kind for repair in repairs if repair.is_dropped),
        "thoughts_unread": sum(
            turn.thinking is not None and turn.thinking.parse_error for turn in turns
        ),
        # A declined statement could be read: it says that the resident declines.
        "statements_unread": sum(
            not turn.has_statement and not turn.speaking.declined and not turn.speaking.dropped
            for turn in turns
        ),
        "reflections_unread": sum(reflection.parse_error for reflection in reflections),
        "thoughts_declined": sum(
            turn.thinking is not None and turn.thinking.declined for turn in turns
        ),
        "statements_declined": sum(turn.speaking.declined for turn in turns),
        "reflections_declined": sum(reflection.declined for reflection in reflections),
        "ways_out": _ways_out(discussion),
        "silent_turns": sum(turn.is_silent for turn in turns),
        "votes_uncast": sum(item_row.uncast for item_row in discussion.item_outcomes),
        "satisfaction_unread": sum(
            satisfaction.satisfaction is None
            and satisfaction.missing.get("satisfaction") not in (*WAYS_OUT, DROPPED)
            for satisfaction in surveys
        ),
        "ballot_empty": not discussion.items,
        "consensus_unread": discussion.closing.parse_error,
        "rounds_split": sum(round_.parts > round_.planned_parts for round_ in rounds),
    }


def _ways_out(discussion: Discussion) -> Counts:
    # A way out is an answer such as "cannot say" or "declined".
    turns = [turn for round_ in discussion.rounds for turn in round_.turns.values()]
    thoughts = [turn.thinking for turn in turns if turn.thinking]
    reflections = [
        reflection for round_ in discussion.rounds for reflection in round_.reflections.values()
    ]
    records: list[Record] = [
        *thoughts,
        *(reaction for thinking in thoughts for reaction in thinking.reactions),
        *(reference for turn in turns for reference in turn.speaking.references),
        *(reflection.stance_evolution for reflection in reflections if reflection.stance_evolution),
        *discussion.before.values(),
        *discussion.after.values(),
    ]
    missing = [record.missing for record in records]
    missing += [ballot.missing for ballot in discussion.ballots.values()]
    # A change from or to an unstated stance is a consequence of the missing stance, so it is not
    # counted again.
    ways_out = [
        reason
        for reasons in missing
        for name, reason in reasons.items()
        if reason in WAYS_OUT and name != "change_type"
    ]
    return {way: ways_out.count(way) for way in WAYS_OUT}


# Name of the count, stage or None, kind or None, number.
Count = tuple[str, str | None, str | None, int]
COUNT_COLUMNS = ("count", "stage", "kind", "n")


def count_rows(counts: Counts) -> Iterator[Count]:
    """Yield the counts of one discussion as rows with the columns `COUNT_COLUMNS`."""
    # Nested counts give one row per kind, or one row per stage and kind.
    for name, counts_of_name in counts.items():
        if isinstance(counts_of_name, int):
            yield name, None, None, int(counts_of_name)
            continue
        # Without this row `total_quality` could not restore a count that is empty.
        if not counts_of_name:
            yield name, None, "", 0
        for kind, value in counts_of_name.items():
            if isinstance(value, int):
                yield name, None, kind, value
            else:
                yield from ((name, kind, step, total_count(value, step)) for step in value)


def total_quality(rows: Iterable[Count]) -> Counts:
    """Return the counts of several discussions, added up."""
    total: Counts = {}
    for name, stage, kind, n in rows:
        if kind is None:
            total[name] = total_count(total, name) + n
            continue
        # The row of an empty count only creates its entry.
        nested = total.setdefault(name, {})
        if stage is not None and isinstance(nested, dict):
            nested = nested.setdefault(stage, {})
        if kind and isinstance(nested, dict):
            nested[kind] = total_count(nested, kind) + n
    return total


class OfRun(TypedDict):
    """The counts of a whole run and of each level, as in quality.json."""

    all: Counts
    levels: dict[str, Counts]


def quality_of_run(run: RunFolder) -> OfRun:
    """Return the counts of a whole run and of each level."""
    rows = run.read_table("quality")
    by_level = {
        level: total_quality(level_rows.select(COUNT_COLUMNS).iter_rows())
        for (level,), level_rows in rows.partition_by(
            "level", as_dict=True, maintain_order=True
        ).items()
    }
    return {"all": total_quality(rows.select(COUNT_COLUMNS).iter_rows()), "levels": by_level}


def total_count(counts: Counts, *names: str) -> int:
    """Return one count. If the count is split by kind, return the sum over all kinds.

    `names`: the keys that lead to the count in the nested map `counts`, the outermost first.

    Returns 0 if there is no such count.
    """
    value: int | Counts = counts
    for name in names:
        value = value.get(name, 0) if isinstance(value, dict) else 0
    return value if isinstance(value, int) else sum(total_count(value, kind) for kind in value)


def _parse_steps(parse_steps: Iterable[str]) -> Counts:
    counts = Counter(parse_steps)
    return {
        name: counts[name] for name in (*PARSE_STEPS, *sorted(counts.keys() - set(PARSE_STEPS)))
    }


def _by_kind(kinds: Iterable[str]) -> Counts:
    return dict(sorted(Counter(kinds).items()))


def answer_quality_finding(quality: OfRun) -> Finding:
    """Build the finding on how many answers could be read without problems."""
    rows: list[Row] = [
        {
            "level": level,
            "answers": total_count(counts, "answers"),
            **{
                step: total_count(counts, "parse_steps", step)
                for step in ("exact", "fenced", "repaired")
            },
            "asked again": total_count(counts, "reasks"),
            "minimal structures": total_count(counts, "minimal_structures"),
            "fields repaired": total_count(counts, "repaired"),
            "fields dropped": total_count(counts, "dropped"),
            "silent turns": total_count(counts, "silent_turns"),
            "ways out": total_count(counts, "ways_out"),
            "votes uncast": total_count(counts, "votes_uncast"),
            "rounds split": total_count(counts, "rounds_split"),
        }
        for level, counts in quality["levels"].items()
    ]
    total = partial(total_count, quality["all"])
    return Finding(
        "quality",
        "How well answers could be read",
        f"Of {total('answers'):,} answers, {total('parse_steps', 'exact'):,} could be read "
        f"without changes. {format_count(total('reasks'), 're-ask')} followed. The minimal "
        "structure replaced the answers of "
        f"{format_count(total('minimal_structures'), 'resident')}; "
        f"{format_count(total('dropped'), 'field')} had to be dropped (values that cannot be "
        "read, ids that do not exist, self-references, levels out of range).",
        ResultTable.from_records(rows),
        notes=(
            "Answers that could not be read are left out of the denominators and never counted "
            "as silence.",
            "`rounds split`: rounds of the shared session that took more calls than planned.",
            "`ways out`: stances, agreements, votes and ratings answered with none of these, "
            "declined or cannot say; they count as no option.",
        ),
        section="Quality",
    )
