"""Logs of a discussion as JSON lines, with the fields and the four levels of the source.

They are written from what happened, in the order of the protocol, with the times, tokens and
latencies that the journal holds; so a replay writes the same log again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.records import Call, Discussion, Round

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PREVIEW = 160


def log_name(discussion: str, started_at: str, ending: str) -> str:
    """`logs/<discussion>_<timestamp><ending>` below the run folder."""
    stamp = "".join(c for c in started_at[:19] if c.isalnum())
    return f"logs/{discussion}_{stamp}{ending}"


def log_lines(discussion: Discussion, config: TownHallConfig) -> tuple[str, str]:
    """(all entries of the wanted levels as JSON lines, the errors as plain lines)."""
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
        if self._of.level.context != "separate":
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
                "set_id": self._of.set_no,
                "level": self._of.level.name,
                "discussion_id": self._of.id,
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
