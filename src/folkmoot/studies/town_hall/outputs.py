"""The seven JSON files of a discussion, under the names of the source, and its rows in the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.measures import (
    FIGURES,
    measures,
    responders,
    satisfaction_rows,
    survival,
)
from folkmoot.studies.town_hall.quality import mend_rows, quality
from folkmoot.studies.town_hall.records import Discussion, Round, Turn
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


def record_set(scope: Scope, of: ResidentSet) -> None:
    """The residents of one set, one row each."""
    for resident in of.residents:
        scope.record("residents", {"set": of.number, **resident.to_row()})


def record_discussion(scope: Scope, discussion: Discussion, config: TownHallConfig) -> None:
    """Everything tidy about one discussion."""
    scale = Scale.of(config)
    key = _key(discussion)
    is_vulnerable = {r.id: r.is_vulnerable for r in discussion.residents}
    tracked = {(row.agent_id, row.round): row for row in tracking(discussion, scale)}
    for round_ in discussion.rounds:
        for resident in discussion.residents:
            seat = {
                "round": round_.number,
                "agent_id": resident.id,
                "is_vulnerable": resident.is_vulnerable,
                "vulnerable_type": resident.vulnerable_type,
                "seat_model": discussion.seats[resident.id],
            }
            row = _round_row(round_, round_.turns[resident.id], tracked[resident.id, round_.number])
            scope.record("rounds", {**key, **seat, **row})
        for row in _utterances(round_, is_vulnerable):
            scope.record("utterances", {**key, **row})
    for pair in pairs(discussion, scale):
        sides = {
            "speaker_vulnerable": is_vulnerable[pair.speaker],
            "target_vulnerable": is_vulnerable[pair.target],
        }
        scope.record("reactions", {**key, **pair.to_row(), **sides})
    _record_votes(scope, discussion, is_vulnerable)
    for row in satisfaction_rows(discussion):
        scope.record("satisfaction", {**key, **row})
    for row in mend_rows(discussion):
        scope.record("mends", {**key, **row})
    scope.record("discussions", discussion_row(discussion, scale))


def discussion_row(discussion: Discussion, scale: Scale) -> dict[str, Any]:
    """All figures of one discussion in one row."""
    found = measures(discussion, scale)
    counts = quality(discussion)
    row: dict[str, Any] = dict(_key(discussion))
    for group in ("vulnerable", "general", "gap"):
        row |= {f"{group}_{name}": found[group][name] for name in FIGURES}
    for name in ("total_vote_items", "items_passed", "ties_failed"):
        row[name] = found["final_consensus"][name]
    for name in (
        "vulnerable_originated_items",
        "vulnerable_items_passed",
        "vulnerable_opinion_reflection_rate",
    ):
        row[name] = found["final_consensus"][name]
    for name in ("answers", "reasks", "minimal_structures", "silent_turns", "votes_uncast"):
        row[name] = counts[name]
    row["repaired"] = sum(counts["repaired"].values())
    row["dropped"] = sum(counts["dropped"].values())
    row["rounds_split"] = counts["rounds_split"]
    return row


def plan_of(sets: list[ResidentSet], rooms: list[Room]) -> dict[str, Any]:
    """What is fixed before the first call: residents, orders of speaking, switches, dealing."""
    return {
        "residents": {f"set{s.number:02d}": [r.to_row() for r in s.residents] for s in sets},
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "levels": {r.level.name: r.level.to_json() for r in rooms},
        "seats": {r.id: dict(r.seats) for r in rooms},
    }


def _key(discussion: Discussion) -> dict[str, Any]:
    return {
        "discussion_id": discussion.id,
        "set": discussion.set_no,
        "level": discussion.level.name,
        "part": discussion.level.part,
    }


def _round_row(round_: Round, turn: Turn, tracked: Tracking) -> dict[str, Any]:
    reflection = round_.reflections.get(turn.resident)
    evolution = reflection.stance_evolution if reflection else None
    data = tracked.to_json()
    spectrum = {f"reactions_{name}": tracked.spectrum[name] for name in SPECTRUM}
    kept = {
        k: v
        for k, v in data.items()
        if k not in ("agent_id", "round", "reaction_spectrum", "responders", "interaction_types")
    }
    return {
        "overall_stance": turn.thinking.overall_stance if turn.thinking else None,
        "silent": turn.silent,
        "words": len(turn.speaking.full_statement.split()),
        "thinking_parse_error": bool(turn.thinking and turn.thinking.parse_error),
        "speaking_parse_error": turn.speaking.parse_error,
        "new_points": tracked.new_points,
        "references_made": tracked.references_made,
        **spectrum,
        **kept,
        "responders": "|".join(tracked.responders),
        "stance_after": evolution.current_stance if evolution else None,
        "change_type": evolution.change_type if evolution else None,
        "most_compelling": _id_of(reflection, "most_compelling"),
        "most_disagreed": _id_of(reflection, "most_disagreed"),
    }


def _id_of(reflection: Any, name: str) -> str | None:
    found = getattr(reflection, name) if reflection else None
    return found.agent_id if found else None


def _utterances(round_: Round, is_vulnerable: Mapping[str, bool]) -> list[dict[str, Any]]:
    rows = [
        {
            "round": round_.number,
            "turn": turn,
            "speaker_id": resident,
            "speaker_role": "resident",
            "is_vulnerable": is_vulnerable[resident],
            "text": round_.turns[resident].speaking.full_statement,
            "silent": round_.turns[resident].silent,
            "unread": not round_.turns[resident].heard,
        }
        for turn, resident in enumerate(round_.order, start=1)
    ]
    if round_.moderation:
        rows.append(
            {
                "round": round_.number,
                "turn": len(rows) + 1,
                "speaker_id": "moderator",
                "speaker_role": "moderator",
                "is_vulnerable": False,
                "text": round_.moderation.spoken,
                "silent": False,
                "unread": round_.moderation.parse_error,
            }
        )
    return rows


def _record_votes(
    scope: Scope, discussion: Discussion, is_vulnerable: Mapping[str, bool]
) -> None:
    key = _key(discussion)
    for item, outcome in zip(discussion.items, discussion.outcomes, strict=True):
        scope.record(
            "items",
            {
                **key,
                "item_id": item.id,
                "text": item.text,
                "origin": "|".join(item.origin),
                "vulnerable_originated": any(is_vulnerable[i] for i in item.origin),
                "yes": outcome.yes,
                "no": outcome.no,
                "uncast": outcome.uncast,
                "passed": outcome.passed,
                "tie": outcome.tie,
            },
        )
    for resident, ballot in discussion.ballots.items():
        for item in discussion.items:
            row = {
                "item_id": item.id,
                "agent_id": resident,
                "is_vulnerable": is_vulnerable[resident],
                "originated": resident in item.origin,
                "vote": ballot.votes.get(item.id),
                "reason": ballot.reasons.get(item.id, ""),
                "passed": item.id in discussion.passed,
            }
            scope.record("votes", {**key, **row})


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
    shown = ("reaction_spectrum", "total_possible_reactions", "total_reaction_count")
    shown += ("positive_reaction_count", "positive_reaction_ratio", "weighted_inclusivity_score")
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
                    {"item_id": item.id, "vote": b.votes.get(item.id), "reason": b.reasons.get(item.id)}
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
