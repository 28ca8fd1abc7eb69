"""The rows of a discussion in the run's tables: one per resident-round, reaction, vote, …"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.measures import FIGURES, measures, satisfaction_rows
from folkmoot.studies.town_hall.quality import mend_rows, quality
from folkmoot.studies.town_hall.records import Discussion, Round, Turn
from folkmoot.studies.town_hall.room import ResidentSet
from folkmoot.studies.town_hall.tracking import SPECTRUM, Scale, Tracking, pairs, tracking

MODERATOR = "moderator"


def record_set(scope: Scope, of: ResidentSet) -> None:
    """The residents of one set, one row each."""
    for resident in of.residents:
        scope.record("residents", {"set": of.number, **resident.to_row()})


def record_discussion(scope: Scope, discussion: Discussion, config: TownHallConfig) -> None:
    """Everything tidy about one discussion."""
    scale = Scale.of(config)
    key = _key(discussion)
    is_vulnerable = {r.id: r.is_vulnerable for r in discussion.residents}
    spoken = {
        (call.round, who): call.finish
        for call in discussion.calls
        if call.stage in ("speak", "round", "moderate")
        for who in (call.residents if call.stage != "moderate" else (MODERATOR,))
    }
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
            finish = spoken.get((round_.number, row["speaker_id"]))
            scope.record("utterances", {**key, **row, "finish": finish})
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
    compelling = reflection.most_compelling if reflection else None
    disagreed = reflection.most_disagreed if reflection else None
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
        "most_compelling": compelling.agent_id if compelling else None,
        "most_disagreed": disagreed.agent_id if disagreed else None,
    }


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
                "speaker_id": MODERATOR,
                "speaker_role": MODERATOR,
                "is_vulnerable": False,
                "text": round_.moderation.spoken,
                "silent": False,
                "unread": round_.moderation.parse_error,
            }
        )
    return rows


def _record_votes(scope: Scope, discussion: Discussion, is_vulnerable: Mapping[str, bool]) -> None:
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
