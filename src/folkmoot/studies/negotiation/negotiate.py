"""One session: a group goes through the slots in their order under one condition."""

from __future__ import annotations

from dataclasses import replace

from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.ballots import (
    NOT_HELD,
    Round,
    collect_ballots,
    vote_lines,
)
from folkmoot.studies.negotiation.contract import Contract, conflict_part
from folkmoot.studies.negotiation.coverage import coverage
from folkmoot.studies.negotiation.decision import SYSTEM, Line, SlotDecision
from folkmoot.studies.negotiation.feedback import hold_feedback
from folkmoot.studies.negotiation.operators import Outcome, Portion, decide
from folkmoot.studies.negotiation.polarity import words_of
from folkmoot.studies.negotiation.reading import portions_in
from folkmoot.studies.negotiation.room import Room
from folkmoot.studies.negotiation.slots import Topic, slot_of
from folkmoot.studies.negotiation.strategies import clamp, strategy_for
from folkmoot.studies.negotiation.subgroups import flags, nearest_split
from folkmoot.studies.negotiation.synthesis import (
    Proposal,
    propose,
    response_lines,
    stated_conflict,
)
from folkmoot.studies.negotiation.tally import Tally, summary
from folkmoot.studies.negotiation.wording import coverage_sentence, decision_sentence, next_step


async def negotiate(scope: Scope, room: Room) -> tuple[SlotDecision, ...]:
    """The decisions of a session, in the fixed order of the slots."""
    decisions = []
    for topic in room.topics:
        at = scope.at(topic.id)
        if room.condition.locked:
            decision = await _guided(at, room, topic)
        elif room.condition.synthesis == "raw":
            decision = await _raw(at, room, topic)
        else:
            decision = _unmediated(room, topic)
        spoken = (*room.preference_lines(topic), *decision.lines)
        decisions.append(replace(decision, lines=spoken))
    return tuple(decisions)


def _unmediated(room: Room, topic: Topic) -> SlotDecision:
    """C1: the one member's word is the decision. C2: all preferences go to the planner as they
    are, and nothing is decided."""
    tally = room.tally(topic)
    texts = room.texts(topic.id)
    everyone = tuple(m.id for m in room.group.members)
    if room.condition.one_member:
        lead = room.members[0]
        wish = tally.primary(lead.id)
        return SlotDecision(
            topic=topic.id,
            source="single_user",
            has_conflict=False,
            resolution_text=texts.get(lead.id, ""),
            options=tally.options,
            selected_option=wish,
            portions=(Portion(wish, everyone),) if wish else (),
        )
    return SlotDecision(
        topic=topic.id,
        source="preferences",
        has_conflict=stated_conflict(tally),
        resolution_text=" ".join(
            f"{m.name}: {_ended(texts[m.id])}" for m in room.members if m.id in texts
        ),
        options=tally.options,
    )


async def _raw(scope: Scope, room: Room, topic: Topic) -> SlotDecision:
    """C3: the mediator's own judgment; what it decided is read from its words."""
    tally = room.tally(topic)
    proposal = await propose(scope, room, topic, tally)
    text = room.seen(proposal.explanation)
    portions = portions_in(room.group, text, tally.options)
    opening = proposal.opening or proposal.explanation or proposal.conflict_description
    lines = []
    if opening:
        by = proposal.finish
        lines = [room.line(SYSTEM, "sys_synthesize", opening, "synthesis", topic.id, finish=by)]
    lines += response_lines(room, topic, proposal)
    return SlotDecision(
        topic=topic.id,
        source="synthesis",
        has_conflict=proposal.has_conflict,
        resolution_text=text,
        conflict_description=room.seen(proposal.conflict_description),
        proposal=text,
        options=tally.options,
        selected_option=portions[0].option if portions else None,
        portions=portions,
        lines=tuple(lines),
        rung=proposal.rung,
        dropped_lines=proposal.dropped,
    )


async def _guided(scope: Scope, room: Room, topic: Topic) -> SlotDecision:
    """C4 and C5: proposal, lock, ballots where they are due, decision, split, feedback."""
    strategy = strategy_for(room.group.type.id, topic.id)
    tally = room.tally(topic)
    outcome = decide(tally, strategy, room.config.days)
    told = "" if strategy.votes else decision_sentence(room.group, outcome)
    proposal = await propose(scope, room, topic, tally, strategy, told)
    votes = strategy.votes and proposal.has_conflict
    outcome = decide(tally, strategy, room.config.days, has_conflict=proposal.has_conflict)
    decision = SlotDecision(
        topic=topic.id,
        source="operator",
        has_conflict=proposal.has_conflict,
        resolution_text=decision_sentence(room.group, outcome),
        conflict_description=proposal.conflict_description,
        proposal=proposal.explanation,
        strategy=strategy,
        clamped=clamp(proposal.label, strategy),
        options=tally.options,
        outcome=outcome,
        portions=outcome.portions,
        selected_option=outcome.selected_option,
        ballots=NOT_HELD,
        flags=flags(strategy.strategy_id, topic.slot, proposal.has_conflict),
        rung=proposal.rung,
        dropped_lines=proposal.dropped,
    )
    decision = decision.with_lines(_opening(room, topic, decision, proposal, votes))
    if votes:
        ballots = await collect_ballots(
            scope.at("ballots"), room, topic, tally, proposal.explanation
        )
        decision = _after_vote(room, topic, decision, ballots)
    elif decision.flags.required or decision.flags.optional:
        decision = _with_split(decision, tally)
    if room.condition.feedback and room.config.enable_feedback and decision.has_conflict:
        decision = await hold_feedback(scope.at("feedback"), room, topic, decision)
    return decision


def _opening(
    room: Room, topic: Topic, decision: SlotDecision, proposal: Proposal, votes: bool
) -> list[Line]:
    """The System's synthesis turn by the contract, then the members' responses."""
    assert decision.strategy is not None
    if votes:
        said = proposal.explanation or f"Put {topic.label} to the vote"
    else:
        said = _ended(decision.resolution_text)
        if words_of(proposal.explanation) != words_of(said):
            said += f" {proposal.explanation}"
    contract = Contract(
        conflict=conflict_part(topic.id, decision.has_conflict),
        strategy=decision.strategy.strategy_id,
        decision=said,
        reason=proposal.conflict_description or decision.strategy.rule,
        next_step=next_step(
            decision.flags,
            decision.has_conflict,
            votes=votes,
            feedback=room.condition.feedback and room.config.enable_feedback,
        ),
    )
    line = room.line(SYSTEM, "sys_synthesize", contract.text, "synthesis", topic.id)
    return [line, *response_lines(room, topic, proposal)]


def _after_vote(room: Room, topic: Topic, decision: SlotDecision, ballots: Round) -> SlotDecision:
    """The deterministic vote on texts and ballots, its summary, and what is promised."""
    strategy = decision.strategy
    assert strategy is not None
    tally = room.tally(topic, ballots.cast)
    outcome = decide(tally, strategy, room.config.days)
    promised = coverage(slot_of(topic.id), tally, outcome.selected_option)
    text = decision_sentence(room.group, outcome)
    decision = replace(
        decision,
        source="vote",
        options=tally.options,
        outcome=outcome,
        portions=outcome.portions,
        selected_option=outcome.selected_option,
        resolution_text=text,
        ballots=ballots.state,
        cast=ballots.cast,
        vote_summary=summary(tally, strategy.strategy_id, outcome.selected_option, ballots.state),
        coverage=promised,
    )
    return decision.with_lines(
        [
            _vote_request(room, topic, decision),
            *vote_lines(room, topic, ballots),
            _vote_result(room, topic, decision, outcome),
        ]
    )


def _vote_request(room: Room, topic: Topic, decision: SlotDecision) -> Line:
    assert decision.strategy is not None
    contract = Contract(
        conflict=conflict_part(topic.id, True),
        strategy=decision.strategy.strategy_id,
        decision="Open until the ballots are in",
        reason=decision.strategy.rule,
        next_step="Name your top choice, what is acceptable, and any hard no",
    )
    return room.line(SYSTEM, "sys_request_vote", contract.text, "vote", topic.id)


def _vote_result(room: Room, topic: Topic, decision: SlotDecision, outcome: Outcome) -> Line:
    assert decision.strategy is not None
    targets = decision.coverage["minority_targets"] if decision.coverage else {}
    contract = Contract(
        conflict=conflict_part(topic.id, True),
        strategy=decision.strategy.strategy_id,
        decision=decision.resolution_text,
        reason=" ".join(outcome.steps),
        next_step=coverage_sentence(room.group, targets) if targets else "Take this to the plan",
    )
    return room.line(SYSTEM, "sys_vote_result", contract.text, "vote", topic.id)


def _with_split(decision: SlotDecision, tally: Tally) -> SlotDecision:
    """Subgroup slots hold no ballots; their summary comes from the preference texts."""
    assert decision.strategy is not None
    return replace(
        decision,
        vote_summary=summary(
            tally, decision.strategy.strategy_id, decision.selected_option, NOT_HELD
        ),
        split=nearest_split(tally) if decision.flags.required else None,
    )


def _ended(text: str) -> str:
    text = " ".join(text.split())
    return text if not text or text[-1] in ".!?" else f"{text}."
