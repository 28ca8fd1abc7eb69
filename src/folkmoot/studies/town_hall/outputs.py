"""The seven JSON files of a discussion, under the names of the source, and the sealed plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.measures import (
    measures,
    responders,
    satisfaction_rows,
    survival,
)
from folkmoot.studies.town_hall.quality import quality
from folkmoot.studies.town_hall.records import Discussion
from folkmoot.studies.town_hall.room import ResidentSet, Room
from folkmoot.studies.town_hall.tracking import SPECTRUM, Scale, Tracking, pairs, ratio, tracking

FILES = (
    "discussion_log",
    "reflection_log",
    "metrics_summary",
    "vulnerable_tracking",
    "reaction_spectrum",
    "voting_results",
    "satisfaction",
)


def files(discussion: Discussion, config: TownHallConfig) -> dict[str, Any]:
    """File name (without folder and ending) → content."""
    scale = Scale.of(config)
    head = {
        "discussion_id": discussion.id,
        "set": discussion.set_no,
        "level": discussion.level.name,
    }
    rows = tracking(discussion, scale)
    found = measures(discussion, scale)
    return {
        "discussion_log": head | _discussion_log(discussion, config),
        "reflection_log": head | _reflection_log(discussion),
        "metrics_summary": head
        | found
        | {"agents": _agents(discussion, rows), "quality": quality(discussion)},
        "vulnerable_tracking": head | _tracking(discussion, rows),
        "reaction_spectrum": head | _spectrum(discussion, scale, rows, found),
        "voting_results": head | _voting(discussion, found),
        "satisfaction": head | _satisfaction(discussion, found),
    }


def plan_of(sets: list[ResidentSet], rooms: list[Room]) -> dict[str, Any]:
    """What is fixed before the first call: residents, orders of speaking, switches, dealing."""
    return {
        "residents": {f"set{s.number:02d}": [r.to_row() for r in s.residents] for s in sets},
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "levels": {r.level.name: r.level.to_json() for r in rooms},
        "seats": {r.id: dict(r.seats) for r in rooms},
    }


def _discussion_log(discussion: Discussion, config: TownHallConfig) -> dict[str, Any]:
    return {
        "topic": config.topic.model_dump(),
        "switches": discussion.level.to_json(),
        "residents": [
            r.to_json() | {"seat_model": discussion.seats[r.id]} for r in discussion.residents
        ],
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
    for resident in discussion.residents:
        own = [r for r in rows if r.agent_id == resident.id]
        possible = sum(r.possible for r in own)
        total = sum(r.total_reaction_count for r in own)
        found.append(
            {
                "agent_id": resident.id,
                "is_vulnerable": resident.is_vulnerable,
                "vulnerable_type": resident.vulnerable_type,
                "interaction_count": sum(r.interaction_count for r in own),
                "total_reaction_count": total,
                "positive_reaction_ratio": ratio(
                    sum(r.positive_reaction_count for r in own), total
                ),
                "weighted_inclusivity_score": ratio(sum(r.score_sum for r in own), possible),
                "responders": responders(own, resident.id),
                "speaking_volume": sum(r.speaking_volume for r in own),
                "opinion_survival": survival(own, resident.id),
            }
        )
    return found


def _tracking(discussion: Discussion, rows: list[Tracking]) -> dict[str, Any]:
    return {
        "vulnerable": [r.to_json() for r in rows if r.agent_id in discussion.vulnerable],
        "opinion_survival": [survival(rows, i) for i in discussion.vulnerable],
        "general": [r.to_json() for r in rows if r.agent_id in discussion.general],
    }


def _spectrum(
    discussion: Discussion, scale: Scale, rows: list[Tracking], found: Mapping[str, Any]
) -> dict[str, Any]:
    shown = (
        *("reaction_spectrum", "total_possible_reactions", "total_reaction_count"),
        *("positive_reaction_count", "positive_reaction_ratio", "weighted_inclusivity_score"),
    )
    reactions = [p for p in pairs(discussion, scale) if p.target in discussion.vulnerable]
    return {
        "scale": {str(level): name for level, name in enumerate(SPECTRUM)},
        "interaction_levels": dict(scale.levels),
        "several_references": scale.repeated,
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
            for p in reactions
        ],
    }


def _voting(discussion: Discussion, found: Mapping[str, Any]) -> dict[str, Any]:
    vulnerable = set(discussion.vulnerable)
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
            "text": discussion.consensus.text,
            "concerns_reflected": [
                {"resident": r, "concern": c, "is_vulnerable": r in vulnerable}
                for r, c in discussion.consensus.concerns
            ],
        }
        | ({"_parse_error": True} if discussion.consensus.parse_error else {}),
        "measures": found["final_consensus"],
    }


def _satisfaction(discussion: Discussion, found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    return {
        "agents": satisfaction_rows(discussion),
        **{g: {n: found[g][n] for n in names} for g in ("vulnerable", "general", "gap")},
    }
