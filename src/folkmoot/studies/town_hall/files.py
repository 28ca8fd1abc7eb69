"""The files of a run under the names of the source: seven JSON files and the logs of each
discussion, the comparison of the levels, and the sealed plan.

Logs are written from what happened, in the order of the protocol, with the times, tokens and
latencies that the journal holds; so a replay writes the same log again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.session.session import Scope
from folkmoot.hints import shortened
from folkmoot.kit.calls import TOOK, JournalReader, calls_within
from folkmoot.kit.coding import Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.discussion import Call, Discussion, Meeting, Round
from folkmoot.studies.town_hall.measures import (
    SPECTRUM,
    Measures,
    Tracking,
    compare_levels,
    group_measures,
    interaction_levels,
    measures,
    pairs,
    responders,
    satisfaction_rows,
    survival,
    tracking,
    why_no_vote,
)
from folkmoot.studies.town_hall.participants import Resident, ResidentSet
from folkmoot.studies.town_hall.quality import quality, quality_of_run
from folkmoot.studies.town_hall.stages import concerns
from folkmoot.studies.town_hall.tables import record_discussion

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
            "timestamp": _stamp(self.at),
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
        return f"{_stamp(self.at)} {self.level} {place}: {self.action} {data}"


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
        outcome = {"items": len(discussion.items), "passed": len(discussion.passed)}
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


def summarise_calls(run: RunFolder, journal: JournalReader) -> dict[str, object]:
    """What each discussion took, in all and by model, and all of them by model: from the table of
    answers, and the journal, which has times, tokens and cost of every try."""
    tries = [
        {"discussion": name, **call}
        for name in run.table("discussions")["discussion_id"]
        for call in calls_within(journal, name)
    ]
    if not tries:
        return {"discussions": {}, "models": {}}
    answers = run.table("answers").select("address", "reasks", "missing", asked=True)
    calls = pl.DataFrame(tries, infer_schema_length=None).join(
        answers, on="address", how="left", maintain_order="left"
    )
    discussions = {}
    for (name,), own in calls.partition_by("discussion", as_dict=True).items():
        at: list[float] = own["at"].to_list()
        ends: list[float] = (own["at"] + own["latency_s"]).to_list()
        when = {"began": _stamp(min(at)), "ended": _stamp(max(ends))}
        discussions[name] = {**_add_up(own), **when, "models": _by_model(own)}
    return {"discussions": discussions, "models": _by_model(calls)}


def _by_model(calls: pl.DataFrame) -> dict[str, dict[str, object]]:
    of = calls.sort("model", maintain_order=True).partition_by("model", as_dict=True)
    return {model: _add_up(own) for (model,), own in of.items()}


def _add_up(calls: pl.DataFrame) -> dict[str, object]:
    """The totals of calls; tokens and cost (USD) are None where those of any are unknown."""
    lost = calls["missing"].drop_nulls() != DECLINED
    unknown = {name for name in TOOK if calls[name].has_nulls()}
    return {
        "calls": calls["asked"].count(),
        "asked_again": calls["reasks"].sum(),
        "errors": lost.sum(),
        **{name: None if name in unknown else round(calls[name].sum(), 6) for name in TOOK},
        "latency_s": round(calls["latency_s"].sum(), 3),
    }


def _preview(text: str) -> str:
    return shortened(" ".join(text.split()), PREVIEW)


def _first(calls: Iterable[Call]) -> float | None:
    return min((c.at for c in calls if c.at is not None), default=None)


def _last(calls: Iterable[Call]) -> float | None:
    return max((c.at + (c.latency_s or 0.0) for c in calls if c.at is not None), default=None)


def _stamp(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


FILES = (
    "discussion_log",
    "reflection_log",
    "metrics_summary",
    "vulnerable_tracking",
    "reaction_spectrum",
    "voting_results",
    "satisfaction",
)


def keep_log(scope: Scope, discussion: Discussion) -> None:
    """Write the logs of a discussion as far as it has come."""
    lines, errors = log_lines(discussion)
    stamp = "".join(c for c in scope.root.started_at[:19] if c.isalnum())
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}.jsonl", lines)
    scope.write_text(f"logs/{discussion.meeting.id}_{stamp}_errors.log", errors)


def keep(scope: Scope, discussion: Discussion) -> list[Text]:
    """Write the files and the logs of one discussion, then record its rows; the concerns to be
    coded."""
    for name, content in files(discussion).items():
        scope.write_json(f"{discussion.meeting.id}/{name}.json", content)
    keep_log(scope, discussion)
    record_discussion(scope, discussion)
    return concerns(discussion, scope.seed)


def derived(run: RunFolder, journal: JournalReader) -> dict[str, object]:
    """The files of all discussions of a run: how the levels compare, how well answers could be
    read, and what they took."""
    return {
        "levels.json": compare_levels(run),
        "quality.json": quality_of_run(run),
        "logs/summary.json": summarise_calls(run, journal),
    }


def files(discussion: Discussion) -> dict[str, dict[str, object]]:
    """File name (without folder and ending) → content."""
    meeting, found = discussion.meeting, measures(discussion)
    head: dict[str, object] = {
        "discussion_id": meeting.id,
        "set": meeting.set.number,
        "level": meeting.level.name,
    }
    rows = tracking(discussion)
    everyone = {"agents": _agents(discussion, rows), "quality": quality(discussion)}
    contents = (
        _discussion_log(discussion),
        _reflection_log(discussion),
        {**found.to_json(), **everyone},
        _tracking(discussion, rows),
        _spectrum(discussion, found),
        _voting(discussion, found),
        _satisfaction(discussion, found),
    )
    return {name: head | content for name, content in zip(FILES, contents, strict=True)}


def plan_of(sets: list[ResidentSet], meetings: list[Meeting]) -> dict[str, object]:
    """What is fixed before the first call: residents, orders of speaking, switches, dealing."""
    return {
        "residents": {
            f"set{s.number:02d}": [r.to_row() for r in present(s, meetings)] for s in sets
        },
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "option_orders": {f"set{s.number:02d}": s.options.to_json() for s in sets},
        "levels": {m.level.name: m.level.to_json() for m in meetings},
        "seats": {m.id: dict(m.seats) for m in meetings},
    }


def present(of: ResidentSet, meetings: Sequence[Meeting]) -> list[Resident]:
    """Everybody who takes part in any meeting of a set, each once."""
    known = {i for m in meetings if m.set is of for i in m.ids}
    return [r for r in (*of.residents, *of.stand_ins) if r.id in known]


def _discussion_log(discussion: Discussion) -> dict[str, object]:
    meeting = discussion.meeting
    return {
        "topic": meeting.config.topic.model_dump(exclude={"matters"}),
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


def _reflection_log(discussion: Discussion) -> dict[str, object]:
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


def _agents(discussion: Discussion, rows: list[Tracking]) -> list[dict[str, object]]:
    """The per-resident measures over all rounds."""
    alone = {i: group_measures(discussion, rows, (i,)) for i in discussion.meeting.ids}
    return [
        {
            "agent_id": r.id,
            "is_vulnerable": r.is_vulnerable,
            "vulnerable_type": r.vulnerable_type,
            "interaction_count": alone[r.id].totals["interaction_count"],
            "total_reaction_count": alone[r.id].totals["total_reaction_count"],
            "positive_reaction_ratio": alone[r.id].figures["positive_reaction_ratio"],
            "weighted_inclusivity_score": alone[r.id].figures["weighted_inclusivity_score"],
            "responders": responders(rows, r.id),
            "speaking_volume": alone[r.id].totals["speaking_volume"],
            "opinion_survival": survival(rows, r.id),
        }
        for r in discussion.meeting.residents
    ]


def _tracking(discussion: Discussion, rows: list[Tracking]) -> dict[str, object]:
    return {
        "vulnerable": [r.to_json() for r in rows if r.agent_id in discussion.meeting.vulnerable],
        "opinion_survival": [survival(rows, i) for i in discussion.meeting.vulnerable],
        "general": [r.to_json() for r in rows if r.agent_id in discussion.meeting.general],
    }


def _spectrum(discussion: Discussion, found: Measures) -> dict[str, object]:
    shown = (
        *("reaction_spectrum", "total_possible_reactions", "total_reaction_count"),
        *("positive_reaction_count", "positive_reaction_ratio", "weighted_inclusivity_score"),
    )
    config, vulnerable, general = (
        discussion.meeting.config,
        found.vulnerable.to_json(),
        found.general.to_json(),
    )
    return {
        "scale": {str(level): name for level, name in enumerate(SPECTRUM)},
        "interaction_levels": interaction_levels(config),
        "several_references": config.repeated_reaction,
        "vulnerable": {name: vulnerable[name] for name in shown},
        "general": {name: general[name] for name in shown},
        "gap": {name: found.gap[name] for name in shown if name in found.gap},
        "reactions": [
            {
                "round": p.round,
                "speaker": p.speaker,
                "target": p.target,
                "level": p.level,
                "reaction": None if p.level is None else SPECTRUM[p.level],
                "interaction_types": list(p.types),
            }
            for p in pairs(discussion)
            if p.target in discussion.meeting.vulnerable
        ],
    }


def _voting(discussion: Discussion, found: Measures) -> dict[str, object]:
    vulnerable = set(discussion.meeting.vulnerable)
    return {
        "rule": "an item passes with more yes than no; a tie fails; votes that were declined or "
        "could not be read do not count",
        "items": [
            {
                "item_id": item.id,
                "proposal": item.text,
                "reasoning": item.reasoning,
                "originating_residents": list(item.origin),
                "vulnerable_originated": bool(vulnerable & set(item.origin)),
                "yes": outcome.yes,
                "no": outcome.no,
                "declined": outcome.declined,
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
                        "missing": why_no_vote(b, item.id),
                        "reason": b.reasons.get(item.id),
                    }
                    for item in discussion.items
                ],
            }
            | ({"_parse_error": True} if b.parse_error else {})
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
        "measures": found.final_consensus,
    }


def _satisfaction(discussion: Discussion, found: Measures) -> dict[str, object]:
    names = ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    return {
        "agents": satisfaction_rows(discussion),
        **{g: {n: of[n] for n in names} for g, of in found.figures.items()},
    }
