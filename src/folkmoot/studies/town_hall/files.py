"""The files of a run: the seven JSON files of each discussion and the logs, under the names of the
source, the comparison of the levels, and the sealed plan.

Logs are written from what happened, in the order of the protocol, with the times, tokens and
latencies that the journal holds; so a replay writes the same log again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.town_hall.comparison import Result, compare
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Call, Discussion, Meeting, Round
from folkmoot.studies.town_hall.levels import levels_of
from folkmoot.studies.town_hall.measures import (
    SPECTRUM,
    Tracking,
    interaction_levels,
    measures,
    pairs,
    quality,
    ratio,
    responders,
    satisfaction_rows,
    survival,
    total_quality,
    tracking,
)
from folkmoot.studies.town_hall.participants import ResidentSet
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


def keep(scope: Scope, discussion: Discussion, started_at: str) -> Held:
    """Write the files, the logs and the rows of one discussion; what the comparison needs of it."""
    meeting = discussion.meeting
    for name, content in files(discussion).items():
        scope.write_json(f"{meeting.id}/{name}.json", content)
    lines, errors = log_lines(discussion)
    stamp = "".join(c for c in started_at[:19] if c.isalnum())
    scope.write_text(f"logs/{meeting.id}_{stamp}.jsonl", lines)
    scope.write_text(f"logs/{meeting.id}_{stamp}_errors.log", errors)
    record_discussion(scope, discussion)
    result = Result(meeting.set.number, meeting.level.name, measures(discussion))
    return Held(meeting.id, result, quality(discussion), use_of(discussion))


def keep_comparison(session: Session, held: list[Held], config: TownHallConfig) -> None:
    """Compare the levels and add up how well answers could be read, and what they took."""
    levels = levels_of(config)
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
        "residents": {f"set{s.number:02d}": [r.to_row() for r in s.residents] for s in sets},
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "levels": {m.level.name: m.level.to_json() for m in meetings},
        "seats": {m.id: dict(m.seats) for m in meetings},
    }


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


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PREVIEW = 160


def log_lines(discussion: Discussion) -> tuple[str, str]:
    """(all entries of the wanted levels as JSON lines, the errors as plain lines)."""
    config = discussion.meeting.config
    lowest = LEVELS.index(config.log_level)
    entries = list(_entries(discussion, full=config.log_texts == "full"))
    kept = [e for e in entries if LEVELS.index(e["level"]) >= lowest]
    errors = [e for e in entries if e["level"] == "ERROR"]
    return (
        "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in kept),
        "".join(f"{_plain(e)}\n" for e in errors),
    )


def use_of(discussion: Discussion) -> dict[str, Any]:
    """Calls, tokens, cost and time of one discussion, in all and by model."""
    calls = discussion.calls
    return {
        **_totals(calls),
        "began": _stamp(_first(calls)),
        "ended": _stamp(_last(calls)),
        "models": {
            model: _totals([c for c in calls if c.model == model])
            for model in sorted({c.model for c in calls})
        },
    }


def summary(uses: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`use_of` of each discussion by its id, and all of them by model."""
    models: dict[str, dict[str, Any]] = {}
    for use in uses.values():
        for model, totals in use["models"].items():
            known = models.setdefault(model, dict.fromkeys(totals, 0))
            models[model] = {name: _sum(known[name], value) for name, value in totals.items()}
    return {"discussions": dict(uses), "models": dict(sorted(models.items()))}


def _entries(discussion: Discussion, *, full: bool) -> Iterator[dict[str, Any]]:
    calls = discussion.calls
    here = _Writer(discussion, full)
    yield here.info("discussion", "discussion_started", _first(calls), None, "")
    yield from here.calls(c for c in calls if c.stage == "satisfaction_before")
    for round_ in discussion.rounds:
        own = [c for c in calls if c.round == round_.number]
        yield here.info("discussion", "round_started", _first(own), round_.number, "")
        yield from here.calls(own)
        yield from here.actions(round_, _last(own))
        yield from here.memories(round_, _last(own))
        yield here.info("discussion", "round_ended", _last(own), round_.number, "")
    yield from here.calls(c for c in calls if c.round is None and c.stage != "satisfaction_before")
    outcome = {"items": len(discussion.items), "passed": len(discussion.passed)}
    yield here.info("discussion", "discussion_ended", _last(calls), None, "", **outcome)


class _Writer:
    """Makes the entries of one discussion."""

    def __init__(self, discussion: Discussion, full: bool) -> None:
        self._of = discussion
        self._full = full

    def info(
        self,
        component: str,
        action: str,
        at: float | None,
        round_no: int | None,
        agent: str,
        **data: Any,
    ) -> dict[str, Any]:
        return self._entry("INFO", component, action, at, round_no, agent, data)

    def actions(self, round_: Round, at: float | None) -> Iterator[dict[str, Any]]:
        for resident in round_.order:
            turn = round_.turns[resident]
            action = "spoke" if not turn.silent else "kept_silent"
            data = {
                "stance": turn.thinking.overall_stance if turn.thinking else None,
                "references": len(turn.speaking.references),
                "words": len(turn.speaking.full_statement.split()),
            }
            if turn.heard:
                yield self.info("resident", action, at, round_.number, resident, **data)

    def memories(self, round_: Round, at: float | None) -> Iterator[dict[str, Any]]:
        """What each resident with a context of their own takes along into the next round."""
        if self._of.meeting.level.context != "separate":
            return
        so_far = [r for r in self._of.rounds if r.number <= round_.number]
        for resident in round_.order:
            own = sum(bool(r.turns[resident].speaking.full_statement) for r in so_far)
            reflection = round_.reflections.get(resident)
            remembered = reflection is not None and not reflection.parse_error
            added = ["own statement"] if round_.turns[resident].speaking.full_statement else []
            added += ["reflection"] if remembered else []
            data = {"memory_length": own + remembered, "added": added}
            yield self._entry(
                "DEBUG", "resident", "memory_changed", at, round_.number, resident, data
            )

    def calls(self, calls: Iterable[Call]) -> Iterator[dict[str, Any]]:
        for call in calls:
            yield self._call("DEBUG", call, call.stage, self._call_data(call))
            if call.reasks:
                yield self._call("WARNING", call, "asked_again", {"times": call.reasks})
            if call.rung in ("fenced", "repaired"):
                yield self._call("WARNING", call, "unexpected_response", {"rung": call.rung})
            for mend in call.mends:
                how = {"field": mend.field, "kind": mend.kind, "was": mend.was}
                yield self._call("WARNING", call, "mended", {**how, "became": mend.became or None})
            if call.minimal or call.missing:
                data = {"reason": call.missing or "unparsed", "minimal_structures": call.minimal}
                yield self._call("ERROR", call, "unreadable_answer", data)

    def _call(self, level: str, call: Call, action: str, data: dict[str, Any]) -> dict[str, Any]:
        component = call.agent if call.agent in ("moderator", "planner", "session") else "resident"
        return self._entry(level, component, action, call.at, call.round, call.agent, data)

    def _call_data(self, call: Call) -> dict[str, Any]:
        data: dict[str, Any] = {
            "model": call.model,
            "memory_length": call.memory_length,
            "question_preview": _preview(call.question),
            "response_preview": _preview(call.response),
            "latency": None if call.latency_s is None else round(call.latency_s, 4),
            "tokens": {"input": call.input_tokens, "output": call.output_tokens},
            "cost_usd": call.cost_usd,
            "rung": call.rung,
        }
        if self._full:
            data |= {"question_full": call.question, "response_full": call.response}
        return data

    def _entry(
        self,
        level: str,
        component: str,
        action: str,
        at: float | None,
        round_no: int | None,
        agent: str,
        data: dict[str, Any],
    ) -> dict[str, Any]:
        return {
            "timestamp": _stamp(at),
            "level": level,
            "component": component,
            "action": action,
            "data": data,
            "context": {
                "set_id": self._of.meeting.set.number,
                "level": self._of.meeting.level.name,
                "discussion_id": self._of.meeting.id,
                "round": round_no,
                "agent_id": agent or None,
            },
        }


def _totals(calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "calls": len(calls),
        "asked_again": sum(c.reasks for c in calls),
        "errors": sum(bool(c.minimal or c.missing) for c in calls),
        "input_tokens": _total(c.input_tokens for c in calls),
        "output_tokens": _total(c.output_tokens for c in calls),
        "cost_usd": _total(c.cost_usd for c in calls),
        "latency_s": round(sum(c.latency_s or 0.0 for c in calls), 3),
    }


def _total(values: Iterable[float | None]) -> float | None:
    total: float | None = 0
    for value in values:
        total = _sum(total, value)
    return total


def _sum(a: float | None, b: float | None) -> float | None:
    """What is unknown makes the sum unknown."""
    return None if a is None or b is None else round(a + b, 6)


def _preview(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= PREVIEW else flat[: PREVIEW - 1] + "…"


def _first(calls: Iterable[Call]) -> float | None:
    return min((c.at for c in calls if c.at is not None), default=None)


def _last(calls: Iterable[Call]) -> float | None:
    return max((c.at + (c.latency_s or 0.0) for c in calls if c.at is not None), default=None)


def _stamp(at: float | None) -> str | None:
    return (
        None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    )


def _plain(entry: dict[str, Any]) -> str:
    context = entry["context"]
    place = f"{context['discussion_id']} round {context['round'] or '-'} {context['agent_id']}"
    return f"{entry['timestamp']} ERROR {place}: {entry['action']} {json.dumps(entry['data'])}"
