"""The three conversations that a mediator leads: a proposal, a round of ballots, feedback."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import Json, Missing
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.decision import (
    SYSTEM,
    FeedbackRound,
    Line,
    Negotiation,
    SlotDecision,
)
from folkmoot.studies.negotiation.groups import Group, Member, natural
from folkmoot.studies.negotiation.measures import member_satisfaction
from folkmoot.studies.negotiation.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.participants import mediator, member_speaker
from folkmoot.studies.negotiation.replies import (
    BallotForm,
    FeedbackReply,
    GuidedSynthesis,
    PlainSynthesis,
    sort_lines,
)
from folkmoot.studies.negotiation.strategies import Strategy, Topic, table
from folkmoot.studies.negotiation.tally import Ballot, Tally
from folkmoot.studies.negotiation.wording import conflict_part, contract

COLLECTED, PARTIAL, MISSING, NOT_HELD = "collected", "partial", "missing", "not_held"
M = TypeVar("M", bound=BaseModel)


async def _ask(
    scope: Scope, case: Negotiation, prompt: str, minimal: M
) -> tuple[M, str, str | None]:
    """The mediator's reply, the rung on which it was read, and how it ended. One that stays
    unreadable gives the minimal structure, on the rung `minimal`."""
    names = (SYSTEM, *(m.name for m in case.members))
    answer = Json(type(minimal), fallback=minimal, options={"dialogue.speaker": names})
    got = await scope.exchange(mediator(scope), prompt, answer=answer)
    if isinstance(got.value, Missing):
        return minimal, "minimal", got.reply.finish
    return got.value, got.rung, got.reply.finish


# --- the proposal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the mediator returned, read. `label` is the strategy it named, None if unread."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    label: str | None
    opening: str
    responses: tuple[Line, ...]
    rung: str
    dropped: int
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
    structure is whether the stated preferences differ, and no words."""
    group, names = case.group, [m.name for m in case.members]
    shared = {
        "group_title": group.type.title,
        "days": case.config.days,
        "names": names,
        "label": topic.label,
        "members": case.listing(topic),
        "options": [case.seen(o) for o in tally.options],
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
    minimal = model(has_conflict=tally.conflict, conflict_description="", resolution_explanation="")
    reply, rung, finish = await _ask(scope, case, prompt, minimal)
    opening, said, dropped = sort_lines(reply.dialogue, names)
    label = None
    if isinstance(reply, GuidedSynthesis) and rung != "minimal":
        label = reply.resolution_strategy
    return Proposal(
        reply.has_conflict,
        reply.conflict_description,
        reply.resolution_explanation,
        label,
        opening,
        tuple(case.line(name, "user_respond", text, topic, finish=finish) for name, text in said),
        rung,
        dropped,
        finish,
    )


def portions_in(group: Group, text: str, options: Sequence[str]) -> tuple[Portion, ...]:
    """What a decision in free words gives to whom, read without a model: a portion for each
    option that it names and nowhere turns down, by first mention.

    It is for everyone, unless members are named after it behind "for" ("sushi for Child 1 on
    Day 2"): then for them. Several options share the trip, so each has a part of its own.
    """
    named = polarity.adopted(text, options)
    return tuple(
        Portion(
            option,
            _for_whom(group, text, option),
            WHOLE_TRIP if len(named) == 1 else f"part with {option}",
        )
        for option in named
    )


def _for_whom(group: Group, text: str, option: str) -> tuple[str, ...]:
    everyone = tuple(m.id for m in group.members)
    # The words of the option, separated by anything but letters.
    words = (re.escape(w.removesuffix("y")) + r"\w*" for w in polarity.words_of(option))
    stated = re.search(r"\W+".join(words), text, re.IGNORECASE)
    if stated is None:
        return everyone
    rest = re.match(r"\s+for\s+(.*)", re.split(r"[.;]", text[stated.end() :])[0], re.DOTALL)
    if rest is None or re.match(r"(?:everyone|everybody|all|us)\b", rest[1]):
        return everyone
    longest_first = sorted((m.name for m in group.members), key=len, reverse=True)
    name = rf"(?:{'|'.join(map(re.escape, longest_first))})(?!\w)"
    several = re.match(rf"{name}(?:(?:,| and|, and) {name})*", rest[1])
    told = re.findall(name, several[0]) if several else []
    return tuple(m.id for m in group.members if m.name in told) or everyone


# --- ballots -----------------------------------------------------------------------------------


async def collect_ballots(
    scope: Scope, case: Negotiation, topic: Topic, tally: Tally, proposal: str
) -> tuple[dict[str, Ballot], str]:
    """Ask every member for a ballot, apart from each other: the ballots, and whether that is all.

    A member without a ballot is counted by the preference text alone; with no ballot at all the
    state is `missing`.
    """

    fields = ("top_choice", "acceptable", "hard_no") if tally.options else ()
    answer = Json(BallotForm, options=dict.fromkeys(fields, tally.options))

    async def ask(at: Scope, member: Member) -> Ballot | None:
        prompt = at.prompt(
            "ballot",
            label=topic.label,
            preference=case.texts(topic.id).get(member.id, "none stated"),
            proposal=proposal or "none",
            options=list(tally.options),
        )
        who = member_speaker(at, case.group, member, case.config.days)
        form = await at.ask(who, prompt, answer=answer)
        return None if isinstance(form, Missing) else form.ballot(member.id)

    replies = await scope.each(case.members, ask)
    cast = {m: b for m, b in replies.items() if b is not None}
    return cast, COLLECTED if len(cast) == len(replies) else PARTIAL if cast else MISSING


def spoken(ballot: Ballot) -> str:
    """`top_choice: …; acceptable: …; hard_no: …`, with "none" for an empty part."""
    parts = {
        "top_choice": ballot.top_choice,
        "acceptable": ", ".join(ballot.acceptable),
        "hard_no": ", ".join(ballot.hard_no),
    }
    return "; ".join(f"{name}: {value or 'none'}" for name, value in parts.items())


# --- feedback ----------------------------------------------------------------------------------


def left_out(group: Group, texts: Mapping[str, str], resolution: str) -> list[Member]:
    """Members, by id, whose preference has no content word in common with the resolution.

    Content words: case and simple plurals folded, stop words and cue words left out. Who stated
    nothing cannot be left out.
    """
    decided = polarity.content_words(resolution)
    return [
        m
        for m in sorted(group.members, key=lambda m: natural(m.id))
        if (words := polarity.content_words(texts.get(m.id, ""))) and not words & decided
    ]


async def hold_feedback(
    scope: Scope, case: Negotiation, topic: Topic, decision: SlotDecision
) -> SlotDecision:
    """Rounds until one ends resolved, at most `max_feedback_rounds`. The revised decision of a
    round supersedes what stood before, save for options that a hard constraint struck out."""
    for number in range(1, case.config.max_feedback_rounds + 1):
        decision = await _round(scope.at(f"round{number}"), case, topic, decision)
        if decision.resolved:
            break
    return decision


def _whom(case: Negotiation, topic: Topic, decision: SlotDecision) -> tuple[Member, bool]:
    """The first member left out who was not asked yet; with none, the least content one."""
    asked = {f.target for f in decision.feedback}
    texts = case.texts(topic.id)
    wanting = left_out(case.group, texts, decision.resolution_text)
    if wanting:
        return next((m for m in wanting if m.id not in asked), wanting[0]), True
    content = member_satisfaction(case.group, texts, decision.options, decision.portions)
    fresh = [m for m in case.members if m.id not in asked] or case.members
    return min(fresh, key=lambda m: (content.get(m.id, 0.0), natural(m.id))), False


async def _round(
    scope: Scope, case: Negotiation, topic: Topic, decision: SlotDecision
) -> SlotDecision:
    number = len(decision.feedback) + 1
    target, targeted = _whom(case, topic, decision)
    wish = _wish(case.texts(topic.id).get(target.id, ""), decision.options)
    question = f"{target.name}, does this decision address your wish{wish}?"
    prompt = scope.prompt(
        "feedback",
        group_title=case.group.type.title,
        days=case.config.days,
        label=topic.label,
        round=number,
        rounds=case.config.max_feedback_rounds,
        members=case.listing(topic),
        options=list(decision.options),
        decision=decision.resolution_text,
        target=target.name,
        targeted=targeted,
        question=question,
    )
    reply, rung, finish = await _ask(scope, case, prompt, FeedbackReply(resolved=False))
    asked = reply.targeted_feedback_question
    portions, refused = revised_portions(case.group, decision, reply.final_revised_decision)
    round_ = FeedbackRound(
        number,
        target.id,
        targeted,
        reply.resolved,
        asked if target.name.casefold() in asked.casefold() else question,
        reply.updated_resolution_explanation,
        reply.final_revised_decision,
        refused,
        parse_error=rung == "minimal",
    )
    # A revision that would bring back what a hard constraint struck out does not stand.
    text = "" if refused else round_.revised_decision
    changed = bool(text) and text != decision.resolution_text
    decision = replace(
        decision,
        feedback=(*decision.feedback, round_),
        portions=portions if text else decision.portions,
        resolution_text=text or decision.resolution_text,
        source="feedback" if changed else decision.source,
    )
    _, said, _ = sort_lines(reply.dialogue, [target.name])
    reaction = said[0][1] if said else ""
    return decision.with_lines(*_round_lines(case, topic, decision, reaction, finish))


def _wish(text: str, options: Sequence[str]) -> str:
    scored = polarity.scores(text, options)
    best = min(scored, key=lambda o: (-scored[o], o), default="")
    return f" for {best}" if best and scored[best] > 0 else ""


def revised_portions(
    group: Group, decision: SlotDecision, text: str
) -> tuple[tuple[Portion, ...], tuple[str, ...]]:
    """What holds after a revision, read from its words, and options it may not bring back.

    A decision for one option is superseded by the options that the revision names; where members
    have different things (days, branches), options it names are added and the rest stays.
    """
    struck = {o for o, _ in decision.outcome.removed} if decision.outcome else set()
    named = portions_in(group, text, decision.options)
    refused = tuple(p.option for p in named if p.option in struck)
    new = tuple(p for p in named if p.option not in struck)
    if not new:
        return decision.portions, refused
    single = len(decision.portions) <= 1
    wanted = {p.option for p in new}
    kept = tuple(p for p in decision.portions if not single or p.option in wanted)
    held = {p.option for p in kept}
    added = (replace(p, when=f"as revised: {p.option}") for p in new if p.option not in held)
    return (*kept, *added), refused


def _round_lines(
    case: Negotiation, topic: Topic, decision: SlotDecision, reaction: str, finish: str | None
) -> list[Line]:
    """The last round: the question, the member's reaction, and what the System makes of it."""
    round_ = decision.feedback[-1]
    number, target, strategy = round_.round, case.group.names[round_.target], decision.strategy_id
    assert strategy is not None
    conflict = conflict_part(topic.id, decision.has_conflict)
    if round_.refused:
        reason = f"{', '.join(round_.refused)} was ruled out and cannot come back"
    else:
        reason = f"{target} {'accepts it' if round_.resolved else 'is not content yet'}"
    if round_.resolved:
        then = "Take the decision to the plan"
    elif number < case.config.max_feedback_rounds:
        then = "Ask once more"
    else:
        then = "Keep the decision as it is"
    stands = "Stands as announced" if number == 1 else "Stands as last revised"
    why = f"{target} is asked in round {number}"
    question = contract(conflict, strategy, stands, why, round_.question)
    reason = round_.updated_explanation or reason
    answer = contract(conflict, strategy, decision.resolution_text, reason, then)
    said: list[tuple[str, str, str, str | None]] = [(SYSTEM, "sys_feedback", question, None)]
    if reaction:
        said.append((target, "user_feedback", reaction, finish))
    said.append((SYSTEM, "sys_feedback", answer, None))
    return [
        case.line(who, intent, text, topic, round=number, finish=ended)
        for who, intent, text, ended in said
    ]
