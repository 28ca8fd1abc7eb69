"""The logs of a discussion (source, section 8): what happened, in the order of the protocol.

Times, tokens and latencies are those of the journal, so a replay writes the same log again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.session.session import Scope
from folkmoot.hints import shortened
from folkmoot.studies.town_hall.discussion import Call, Discussion, Round

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PREVIEW = 160


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a log. `at` is seconds since the epoch."""

    level: str
    component: str
    action: str
    at: float | None
    data: Mapping[str, object] = field(default_factory=dict)
    round: int | None = None
    agent: str | None = None

    def to_json(self, discussion: Discussion) -> dict[str, object]:
        meeting = discussion.meeting
        return {
            "timestamp": stamp(self.at),
            "level": self.level,
            "component": self.component,
            "action": self.action,
            "data": self.data,
            "context": {
                "set_id": meeting.set.number,
                "level": meeting.level.name,
                "discussion_id": meeting.id,
                "round": self.round,
                "agent_id": self.agent,
            },
        }

    def plain(self, discussion: Discussion) -> str:
        place = f"{discussion.meeting.id} round {self.round or '-'} {self.agent}"
        data = json.dumps(self.data)
        return f"{stamp(self.at)} {self.level} {place}: {self.action} {data}"


def log_lines(discussion: Discussion) -> tuple[str, str]:
    """(all entries of the wanted levels as JSON lines, the errors as plain lines)."""
    wanted = LEVELS[LEVELS.index(discussion.meeting.config.log_level) :]
    kept = list(entries(discussion))
    lines = [e.to_json(discussion) for e in kept if e.level in wanted]
    errors = [e.plain(discussion) for e in kept if e.level == "ERROR"]
    return (
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
        "".join(f"{line}\n" for line in errors),
    )


def entries(discussion: Discussion) -> Iterator[Entry]:
    """What happened, in the order of the protocol."""
    calls, full = discussion.calls, discussion.meeting.config.log_texts == "full"
    before = [c for c in calls if c.stage == "satisfaction_before"]
    after = [c for c in calls if c.round is None and c not in before]
    yield Entry("INFO", "discussion", "discussion_started", _first(calls))
    for call in before:
        yield from _of_call(call, full)
    for round_ in discussion.rounds:
        number, own = round_.number, [c for c in calls if c.round == round_.number]
        yield Entry("INFO", "discussion", "round_started", _first(own), round=number)
        for call in own:
            yield from _of_call(call, full)
        yield from _actions(round_, _last(own))
        if discussion.meeting.level.context == "separate":
            yield from _memories(discussion.rounds[:number], _last(own))
        yield Entry("INFO", "discussion", "round_ended", _last(own), round=number)
    for call in after:
        yield from _of_call(call, full)
    if discussion.after:
        outcome = {
            "items": len(discussion.items),
            "passed": sum(o.passed for o in discussion.outcomes),
        }
        yield Entry("INFO", "discussion", "discussion_ended", _last(calls), outcome)


def _of_call(call: Call, full: bool) -> Iterator[Entry]:
    """The call itself, and what was unusual about it."""

    def entry(level: str, action: str, **data: object) -> Entry:
        official = call.agent in ("moderator", "planner", "session")
        component = call.agent if official else "resident"
        return Entry(level, component, action, call.at, data, call.round, call.agent)

    texts = {"question_full": call.question, "response_full": call.response} if full else {}
    yield entry(
        "DEBUG",
        call.stage,
        model=call.model,
        memory_length=call.memory_length,
        question_preview=_preview(call.question),
        response_preview=_preview(call.response),
        latency=None if call.latency_s is None else round(call.latency_s, 4),
        tokens={"input": call.input_tokens, "output": call.output_tokens},
        cost_usd=call.cost_usd,
        parse_step=call.parse_step,
        **texts,
    )
    if call.reasks:
        yield entry("WARNING", "asked_again", times=call.reasks)
    if call.parse_step in ("fenced", "repaired"):
        yield entry("WARNING", "unexpected_response", parse_step=call.parse_step)
    for repair in call.repairs:
        what = {"field": repair.field, "kind": repair.kind, "was": repair.was}
        yield entry("WARNING", "repaired", **what, became=repair.became or None)
    if call.missing == DECLINED:
        yield entry("WARNING", "declined")
    elif call.minimal or call.missing:
        reason = call.missing or "unparsed"
        yield entry("ERROR", "unreadable_answer", reason=reason, minimal_structures=call.minimal)


def _actions(round_: Round, at: float | None) -> Iterator[Entry]:
    for resident in round_.order:
        turn = round_.turns[resident]
        data = {
            "stance": turn.stance or None,
            "references": len(turn.speaking.references),
            "words": len(turn.speaking.full_statement.split()),
        }
        action = "kept_silent" if turn.silent else "spoke"
        if turn.heard:
            yield Entry("INFO", "resident", action, at, data, round_.number, resident)


def _memories(rounds: Sequence[Round], at: float | None) -> Iterator[Entry]:
    """What each resident with a context of their own takes along into the next round."""
    last = rounds[-1]
    for resident in last.order:
        said = [bool(r.turns[resident].speaking.full_statement) for r in rounds]
        reflection = last.reflections.get(resident)
        remembered = reflection is not None and not reflection.unanswered
        added = ["own statement"] * said[-1] + ["reflection"] * remembered
        data = {"memory_length": sum(said) + remembered, "added": added}
        yield Entry("DEBUG", "resident", "memory_changed", at, data, last.number, resident)


def _preview(text: str) -> str:
    return shortened(" ".join(text.split()), PREVIEW)


def _first(calls: Iterable[Call]) -> float | None:
    return min((c.at for c in calls if c.at is not None), default=None)


def _last(calls: Iterable[Call]) -> float | None:
    return max((c.at + (c.latency_s or 0.0) for c in calls if c.at is not None), default=None)


def stamp(at: float | None) -> str | None:
    """A time as the files have it: ISO 8601, UTC, in milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def keep_log(scope: Scope, discussion: Discussion) -> None:
    """Write the logs of a discussion as far as it has come."""
    lines, errors = log_lines(discussion)
    stamp = "".join(c for c in scope.root.started_at[:19] if c.isalnum())
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}.jsonl", lines)
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}_errors.log", errors)
