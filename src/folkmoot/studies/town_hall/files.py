"""The files of a run: the seven JSON files of each discussion and the logs, under the names of the
source, the comparison of the levels, and the sealed plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from folkmoot.engine.session import Scope, Session
from folkmoot.kit.coding import Text
from folkmoot.studies.town_hall.comparison import Result, compare
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Discussion, Meeting
from folkmoot.studies.town_hall.heard import concerns
from folkmoot.studies.town_hall.levels import levels_of
from folkmoot.studies.town_hall.logs import log_lines, summary, use_of
from folkmoot.studies.town_hall.measures import (
    SPECTRUM,
    Tracking,
    group_measures,
    interaction_levels,
    measures,
    pairs,
    quality,
    responders,
    satisfaction_rows,
    survival,
    total_quality,
    tracking,
)
from folkmoot.studies.town_hall.participants import Resident, ResidentSet
from folkmoot.studies.town_hall.tables import record_comparison, record_discussion

FILES = (
    "discussion_log",
    "reflection_log",
    "metrics_summary",
    "vulnerable_tracking",
    "reaction_spectrum",
    "voting_results",
    "satisfaction",
)


@dataclass(frozen=True)
class Held:
    """What is kept in memory of a discussion once its files are written."""

    id: str
    result: Result
    quality: dict[str, Any]
    use: dict[str, Any]
    concerns: list[Text]


def keep_log(scope: Scope, discussion: Discussion) -> None:
    """Write the logs of a discussion as far as it has come."""
    lines, errors = log_lines(discussion)
    stamp = "".join(c for c in scope.root.started_at[:19] if c.isalnum())
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}.jsonl", lines)
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}_errors.log", errors)


def keep(scope: Scope, discussion: Discussion) -> Held:
    """Write the files, the logs and the rows of one discussion; what the comparison needs of it."""
    meeting = discussion.meeting
    for name, content in files(discussion).items():
        scope.write_json(f"{meeting.id}/{name}.json", content)
    keep_log(scope, discussion)
    record_discussion(scope, discussion)
    result = Result(meeting.set.number, meeting.level.name, measures(discussion))
    concerned = concerns(discussion, scope.seed)
    return Held(meeting.id, result, quality(discussion), use_of(discussion), concerned)


def keep_comparison(session: Session[TownHallConfig], held: list[Held]) -> None:
    """Compare the levels and add up how well answers could be read, and what they took."""
    levels = levels_of(session.config)
    comparison = compare(levels, [h.result for h in held])
    session.write_json("levels.json", comparison)
    record_comparison(session, comparison)
    by_level = {
        level.name: total_quality(h.quality for h in held if h.result.level == level.name)
        for level in levels
    }
    total = {"all": total_quality(h.quality for h in held), "levels": by_level}
    session.write_json("quality.json", total)
    session.write_json("logs/summary.json", summary({h.id: h.use for h in held}))


def files(discussion: Discussion) -> dict[str, Any]:
    """File name (without folder and ending) → content."""
    meeting, found = discussion.meeting, measures(discussion)
    head = {
        "discussion_id": meeting.id,
        "set": meeting.set.number,
        "level": meeting.level.name,
    }
    rows = tracking(discussion)
    everyone = {"agents": _agents(discussion, rows), "quality": quality(discussion)}
    contents = (
        _discussion_log(discussion),
        _reflection_log(discussion),
        found | everyone,
        _tracking(discussion, rows),
        _spectrum(discussion, found),
        _voting(discussion, found),
        _satisfaction(discussion, found),
    )
    return {name: head | content for name, content in zip(FILES, contents, strict=True)}


def plan_of(sets: list[ResidentSet], meetings: list[Meeting]) -> dict[str, Any]:
    """What is fixed before the first call: residents, orders of speaking, switches, dealing."""
    return {
        "residents": {
            f"set{s.number:02d}": [r.to_row() for r in present(s, meetings)] for s in sets
        },
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "levels": {m.level.name: m.level.to_json() for m in meetings},
        "seats": {m.id: dict(m.seats) for m in meetings},
    }


def present(of: ResidentSet, meetings: Sequence[Meeting]) -> list[Resident]:
    """Everybody who takes part in any meeting of a set, each once."""
    known = {i for m in meetings if m.set is of for i in m.ids}
    return [r for r in (*of.residents, *of.stand_ins) if r.id in known]


def _discussion_log(discussion: Discussion) -> dict[str, Any]:
    meeting = discussion.meeting
    return {
        "topic": meeting.config.topic.model_dump(),
        "switches": meeting.level.to_json(),
        "residents": [r.to_json() | {"seat_model": meeting.seats[r.id]} for r in meeting.residents],
        "rounds": [
            {
                "round": r.number,
                "speaking_order": list(r.order),
                "calls_of_shared_session": r.parts or None,
                "turns": [
                    {
                        "agent_id": i,
                        "thinking": t.thinking.to_json() if t.thinking else None,
                        "speaking": t.speaking.to_json(),
                    }
                    for i, t in r.turns.items()
                ],
                "moderator": r.moderation.to_json() if r.moderation else None,
            }
            for r in discussion.rounds
        ],
    }


def _reflection_log(discussion: Discussion) -> dict[str, Any]:
    return {
        "rounds": [
            {
                "round": r.number,
                "reflections": [{"agent_id": i, **x.to_json()} for i, x in r.reflections.items()],
            }
            for r in discussion.rounds
            if r.reflections
        ]
    }


def _agents(discussion: Discussion, rows: list[Tracking]) -> list[dict[str, Any]]:
    """The per-resident measures over all rounds."""
    found = []
    for resident in discussion.meeting.residents:
        me, alone = resident.id, group_measures(discussion, rows, (resident.id,))
        found.append(
            {
                "agent_id": me,
                "is_vulnerable": resident.is_vulnerable,
                "vulnerable_type": resident.vulnerable_type,
                "interaction_count": alone["interaction_count"],
                "total_reaction_count": alone["total_reaction_count"],
                "positive_reaction_ratio": alone["positive_reaction_ratio"],
                "weighted_inclusivity_score": alone["weighted_inclusivity_score"],
                "responders": responders(rows, me),
                "speaking_volume": alone["speaking_volume"],
                "opinion_survival": survival(rows, me),
            }
        )
    return found


def _tracking(discussion: Discussion, rows: list[Tracking]) -> dict[str, Any]:
    return {
        "vulnerable": [r.to_json() for r in rows if r.agent_id in discussion.meeting.vulnerable],
        "opinion_survival": [survival(rows, i) for i in discussion.meeting.vulnerable],
        "general": [r.to_json() for r in rows if r.agent_id in discussion.meeting.general],
    }


def _spectrum(discussion: Discussion, found: Mapping[str, Any]) -> dict[str, Any]:
    shown = (
        *("reaction_spectrum", "total_possible_reactions", "total_reaction_count"),
        *("positive_reaction_count", "positive_reaction_ratio", "weighted_inclusivity_score"),
    )
    config, vulnerable = discussion.meeting.config, discussion.meeting.vulnerable
    return {
        "scale": {str(level): name for level, name in enumerate(SPECTRUM)},
        "interaction_levels": interaction_levels(config),
        "several_references": config.repeated_reaction,
        "vulnerable": {name: found["vulnerable"][name] for name in shown},
        "general": {name: found["general"][name] for name in shown},
        "gap": {name: found["gap"][name] for name in shown if name in found["gap"]},
        "reactions": [
            {
                "round": p.round,
                "speaker": p.speaker,
                "target": p.target,
                "level": p.level,
                "reaction": SPECTRUM[p.level],
                "interaction_types": list(p.types),
            }
            for p in pairs(discussion)
            if p.target in vulnerable
        ],
    }


def _voting(discussion: Discussion, found: Mapping[str, Any]) -> dict[str, Any]:
    vulnerable = set(discussion.meeting.vulnerable)
    return {
        "rule": "an item passes with more yes than no; a tie fails; unread ballots do not count",
        "items": [
            {
                "item_id": item.id,
                "proposal": item.text,
                "reasoning": item.reasoning,
                "originating_residents": list(item.origin),
                "vulnerable_originated": bool(vulnerable & set(item.origin)),
                "yes": outcome.yes,
                "no": outcome.no,
                "uncast": outcome.uncast,
                "passed": outcome.passed,
                "tie": outcome.tie,
            }
            for item, outcome in zip(discussion.items, discussion.outcomes, strict=True)
        ],
        "ballots": [
            {
                "agent_id": i,
                "votes": [
                    {
                        "item_id": item.id,
                        "vote": b.votes.get(item.id),
                        "reason": b.reasons.get(item.id),
                    }
                    for item in discussion.items
                ],
            }
            for i, b in discussion.ballots.items()
        ],
        "final_consensus": {
            "text": discussion.closing.consensus,
            "concerns_reflected": [
                c.to_json() | {"is_vulnerable": c.resident in vulnerable}
                for c in discussion.closing.concerns_reflected
            ],
        }
        | ({"_parse_error": True} if discussion.closing.parse_error else {}),
        "measures": found["final_consensus"],
    }


def _satisfaction(discussion: Discussion, found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    return {
        "agents": satisfaction_rows(discussion),
        **{g: {n: found[g][n] for n in names} for g in ("vulnerable", "general", "gap")},
    }
