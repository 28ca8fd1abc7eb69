"""Phase 5 (C5): rounds of feedback, with the question put to whoever the decision leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from folkmoot.conversation.answers import Json
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.contract import Contract, conflict_part
from folkmoot.studies.negotiation.decision import SYSTEM, FeedbackRound, Line, SlotDecision
from folkmoot.studies.negotiation.groups import Group, Member, natural
from folkmoot.studies.negotiation.operators import Portion
from folkmoot.studies.negotiation.reading import portions_in
from folkmoot.studies.negotiation.replies import FeedbackReply, for_speakers
from folkmoot.studies.negotiation.room import Room, listing, mediator
from folkmoot.studies.negotiation.satisfaction import member_satisfaction
from folkmoot.studies.negotiation.slots import Topic
from folkmoot.studies.negotiation.synthesis import sort_lines


def left_out(group: Group, texts: Mapping[str, str], resolution: str) -> tuple[Member, ...]:
    """Members, by id, whose preference has no content word in common with the resolution.

    Content words: case and simple plurals folded, stop words and cue words left out. Who stated
    nothing cannot be left out.
    """
    decided = polarity.content_words(resolution)
    wanting = [
        m
        for m in sorted(group.members, key=lambda m: natural(m.id))
        if (words := polarity.content_words(texts.get(m.id, ""))) and not words & decided
    ]
    return tuple(wanting)


async def hold_feedback(
    scope: Scope, room: Room, topic: Topic, decision: SlotDecision
) -> SlotDecision:
    """Rounds until one ends resolved, at most `max_feedback_rounds`. The revised decision of a
    round supersedes what stood before, save for options that a hard constraint struck out."""
    asked: list[str] = []
    for number in range(1, room.config.max_feedback_rounds + 1):
        target, targeted = _whom(room, topic, decision, asked)
        asked.append(target.id)
        decision = await _round(
            scope.at(f"round{number}"), room, topic, decision, number, target, targeted
        )
        if decision.resolved:
            break
    return decision


def _whom(
    room: Room, topic: Topic, decision: SlotDecision, asked: Sequence[str]
) -> tuple[Member, bool]:
    """The first member left out who was not asked yet; with none, the least content one."""
    texts = room.texts(topic.id)
    wanting = left_out(room.group, texts, decision.resolution_text)
    fresh = [m for m in wanting if m.id not in asked]
    if fresh or wanting:
        return (fresh or list(wanting))[0], True
    content = member_satisfaction(room.group, texts, decision.options, decision.portions)
    known = [m for m in room.members if m.id not in asked] or list(room.members)
    least = min(known, key=lambda m: (content.get(m.id, 0.0), natural(m.id)))
    return least, False


async def _round(
    scope: Scope,
    room: Room,
    topic: Topic,
    decision: SlotDecision,
    number: int,
    target: Member,
    targeted: bool,
) -> SlotDecision:
    wish = _wish(room, topic, decision, target)
    question = f"{target.name}, does this decision address your wish{wish}?"
    names = (SYSTEM, *(m.name for m in room.members))
    model = for_speakers(FeedbackReply, names)
    prompt = scope.prompt(
        "feedback",
        group_title=room.group.type.title,
        days=room.config.days,
        label=topic.label,
        round=number,
        rounds=room.config.max_feedback_rounds,
        members=listing(room, topic),
        options=list(decision.options),
        decision=decision.resolution_text,
        target=target.name,
        targeted=targeted,
        question=question,
    )
    minimal = model(resolved=False)
    got = await scope.exchange(mediator(scope), prompt, answer=Json(model, fallback=minimal))
    reply = got.value if isinstance(got.value, FeedbackReply) else minimal
    assert isinstance(reply, FeedbackReply)
    asked = reply.targeted_feedback_question.strip()
    question = asked if target.name.casefold() in asked.casefold() else question
    portions, refused = revised_portions(room.group, decision, reply.final_revised_decision)
    round_ = FeedbackRound(
        round=number,
        target=target.id,
        targeted=targeted,
        resolved=reply.resolved,
        question=question,
        updated_explanation=reply.updated_resolution_explanation.strip(),
        revised_decision=reply.final_revised_decision.strip(),
        refused=refused,
        parse_error=got.rung in ("minimal", "missing"),
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
    return decision.with_lines(
        _lines(room, topic, decision, round_, target, reply, got.reply.finish)
    )


def _wish(room: Room, topic: Topic, decision: SlotDecision, target: Member) -> str:
    text = room.texts(topic.id).get(target.id, "")
    scored = polarity.scores(text, decision.options)
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
    new = [p for p in named if p.option not in struck]
    if not new:
        return decision.portions, refused
    single = len(decision.portions) <= 1
    wanted = {p.option for p in new}
    kept = tuple(p for p in decision.portions if not single or p.option in wanted)
    held = {p.option for p in kept}
    added = [replace(p, when=f"as revised: {p.option}") for p in new if p.option not in held]
    return (*kept, *added), refused


def _lines(
    room: Room,
    topic: Topic,
    decision: SlotDecision,
    round_: FeedbackRound,
    target: Member,
    reply: FeedbackReply,
    finish: str,
) -> list[Line]:
    _, said, _ = sort_lines(reply.dialogue, [m.name for m in room.members])
    reaction = next((text for name, text in said if name == target.name), "")
    assert decision.strategy is not None
    more = round_.round < room.config.max_feedback_rounds
    settled = "Take the decision to the plan" if round_.resolved else "Keep the decision as it is"
    contract = Contract(
        conflict=conflict_part(topic.id, decision.has_conflict),
        strategy=decision.strategy.strategy_id,
        decision=decision.resolution_text,
        reason=round_.updated_explanation or _reason(target, round_),
        next_step="Ask once more" if more and not round_.resolved else settled,
    )
    lines = [
        room.line(
            SYSTEM,
            "sys_feedback",
            Contract(
                contract.conflict,
                contract.strategy,
                "Stands as announced" if round_.round == 1 else "Stands as last revised",
                f"{target.name} is asked in round {round_.round}",
                round_.question,
            ).text,
            "feedback",
            topic.id,
            round_.round,
        )
    ]
    if reaction:
        lines.append(
            room.line(
                target.name, "user_feedback", reaction, "feedback", topic.id, round_.round, finish
            )
        )
    lines.append(
        room.line(SYSTEM, "sys_feedback", contract.text, "feedback", topic.id, round_.round)
    )
    return lines


def _reason(target: Member, round_: FeedbackRound) -> str:
    if round_.refused:
        return f"{', '.join(round_.refused)} was ruled out and cannot come back"
    return f"{target.name} accepts it" if round_.resolved else f"{target.name} is not content yet"
