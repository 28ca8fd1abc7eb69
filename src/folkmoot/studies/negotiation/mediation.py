"""What a mediator leads: a proposal, a round of ballots, the members' word on what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.choices import Choice
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.decision import SYSTEM, Line, Negotiation, SlotDecision
from folkmoot.studies.negotiation.participants import mediator, member_speaker
from folkmoot.studies.negotiation.replies import (
    BallotForm,
    GuidedSynthesis,
    PlainSynthesis,
    ScoreForm,
    sort_lines,
)
from folkmoot.studies.negotiation.settlement import Settlement, settlement
from folkmoot.studies.negotiation.strategies import Member, Strategy, Topic, table
from folkmoot.studies.negotiation.tally import Ballot, Tally
from folkmoot.studies.negotiation.wording import quoted, shares

COLLECTED, PARTIAL, MISSING, NOT_HELD = "collected", "partial", "missing", "not_held"
M = TypeVar("M", bound=BaseModel)


async def ask_mediator(
    scope: Scope, case: Negotiation, prompt: str, minimal: M
) -> tuple[M, str, str | None]:
    """The mediator's reply, the rung on which it was read, and how it ended. One that stays
    unreadable gives the minimal structure, on the rung `minimal`."""
    names = [m.name for m in case.members]
    allowed = {"dialogue.speaker": (SYSTEM, *names), "decision.members": names}
    answer = Json(type(minimal), fallback=minimal, options=allowed)
    got = await scope.exchange(mediator(scope), prompt, answer=answer)
    if isinstance(got.value, Missing):
        return minimal, "minimal", got.reply.finish
    return got.value, got.rung, got.reply.finish


# --- the proposal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the mediator returned, read. `label` is the strategy it named, None if unread; `said`
    all its words as it wrote them; `stated` what it says that everybody gets."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    label: str | None
    opening: str
    said: str
    stated: Settlement
    responses: tuple[Line, ...]
    rung: str
    dropped_lines: int
    finish: str | None = None  # how the mediator's reply ended


async def propose(
    scope: Scope,
    case: Negotiation,
    topic: Topic,
    tally: Tally,
    strategy: Strategy | None = None,
    outcome: str = "",
) -> Proposal:
    """Ask the mediator: plainly under C3, under the locked strategy in C4 and C5. The minimal
    structure is whether the stated preferences differ, no words, and nothing decided."""
    group, names = case.group, [m.name for m in case.order(topic)]
    shared = {
        "group_title": group.type.title,
        "days": case.config.days,
        "names": names,
        "label": topic.label,
        "members": case.listing(topic),
        "options": case.drawn(topic, tally.options),
    }
    if strategy is None:
        prompt = scope.prompt("synthesis_raw", **shared)
    else:
        prompt = scope.prompt(
            "synthesis_guided",
            **shared,
            group_type=group.type.id,
            topic=topic.id,
            strategy=strategy,
            strategies=[s for (kind, _), s in table().items() if kind == group.type.id],
            outcome=outcome,
        )
    model = GuidedSynthesis if strategy else PlainSynthesis
    minimal = model(
        has_conflict=tally.conflict,
        conflict_description="",
        resolution_explanation="",
        decision=[],
    )
    reply, rung, finish = await ask_mediator(scope, case, prompt, minimal)
    opening, said, dropped = sort_lines(reply.dialogue, names)
    words = (opening, reply.conflict_description, reply.resolution_explanation)
    parts = (
        f"{share.option}, {share.when}" if share.when else share.option for share in reply.decision
    )
    aloud = "\n".join(filter(None, (*words, *parts)))
    reply = _seen(case, reply)
    label = None
    if isinstance(reply, GuidedSynthesis) and rung != "minimal":
        label = reply.resolution_strategy
    return Proposal(
        reply.has_conflict,
        reply.conflict_description,
        reply.resolution_explanation,
        label,
        opening,
        aloud,
        settlement(group, topic.id, tally.options, reply),
        tuple(case.line(name, "user_respond", text, topic, finish=finish) for name, text in said),
        rung,
        dropped,
        finish,
    )


def _seen(case: Negotiation, reply: PlainSynthesis) -> PlainSynthesis:
    """The reply with its words as members and the planner may see them."""
    shares = [
        s.model_copy(update={"option": case.seen(s.option), "when": case.seen(s.when)})
        for s in reply.decision
    ]
    return reply.model_copy(
        update={
            "conflict_description": case.seen(reply.conflict_description),
            "resolution_explanation": case.seen(reply.resolution_explanation),
            "decision": shares,
            "dropped": [case.seen(option) for option in reply.dropped],
        }
    )


# --- ballots -----------------------------------------------------------------------------------


async def collect_ballots(
    scope: Scope, case: Negotiation, topic: Topic, tally: Tally, proposal: str
) -> tuple[dict[str, Ballot], str]:
    """Ask every member who votes for a ballot, apart from each other: the ballots, and whether
    that is all.

    A member without a ballot is counted by the preference text alone; with no ballot at all the
    state is `missing`.
    """
    scored = case.config.ballots == "scores"

    async def ask(at: Scope, member: Member) -> Ballot | None:
        text = case.texts(topic.id).get(member.id)
        options = case.drawn(topic, tally.options, member.id)
        prompt = at.prompt(
            "ballot_scores" if scored else "ballot",
            label=topic.label,
            preference=quoted(text) if text else "none stated",
            proposal=proposal or "none",
            options=options,
        )
        who = member_speaker(at, case.group, member, case.config.days)
        form: BallotForm | ScoreForm | Missing
        if scored:
            form = await at.ask(who, prompt, answer=_form(ScoreForm, ("scores.option",), options))
        else:
            fields = ("top_choice", "acceptable")
            form = await at.ask(who, prompt, answer=_form(BallotForm, fields, options))
        return None if isinstance(form, Missing) else form.ballot(member.id)

    replies = await scope.each(case.voters(topic), ask)
    cast = {m: b for m, b in replies.items() if b is not None}
    return cast, COLLECTED if len(cast) == len(replies) else PARTIAL if cast else MISSING


def _form(model: type[M], fields: Sequence[str], options: Sequence[str]) -> Json[M]:
    named = (*fields, "hard_no") if options else ()
    return Json(model, options=dict.fromkeys(named, options))


def spoken(ballot: Ballot) -> str:
    """`top_choice: …; acceptable: …; hard_no: …` (or `scores: …; hard_no: …`), with "none" for an
    empty part."""
    parts = {"top_choice": ballot.top_choice, "acceptable": ", ".join(ballot.acceptable)}
    if ballot.scores:
        parts = {"scores": ", ".join(f"{o} {s:g}" for o, s in ballot.scores.items())}
    parts["hard_no"] = ", ".join(ballot.hard_no)
    return "; ".join(f"{name}: {value or 'none'}" for name, value in parts.items())


# --- the members' word on what was decided -----------------------------------------------------


async def confirm(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Ask every member in one word whether the decision as recorded is what the talk came to."""
    topic = case.topic(decision.topic)
    dialogue = [
        {
            "name": x.speaker,
            "text": " ".join(x.text.split()) if x.speaker == SYSTEM else quoted(x.text),
        }
        for x in decision.lines
    ]

    async def ask(at: Scope, member: Member) -> bool | Missing:
        prompt = at.prompt(
            "confirm",
            label=topic.label,
            dialogue=dialogue,
            decision=shares(case.group, decision.portions),
            dropped=list(decision.dropped),
        )
        who = member_speaker(at, case.group, member, case.config.days)
        word = await at.ask(who, prompt, answer=Choice(("yes", "no"), labelled=False))
        return word if isinstance(word, Missing) else word == "yes"

    return replace(decision, confirmed=await scope.each(case.members, ask))
