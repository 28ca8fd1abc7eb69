"""Group negotiation, in the order in which it happens.

Groups are drawn and sealed. Each group's members state their preferences once; the group then
goes through the slots under every condition, from those same statements. What was decided goes to
the planner, and the conditions are compared within groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope, Session
from folkmoot.studies.negotiation import files, tripcraft
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import (
    SYSTEM,
    Negotiation,
    SlotDecision,
    Stated,
    Statements,
)
from folkmoot.studies.negotiation.groups import Group, Member
from folkmoot.studies.negotiation.measures import SessionResult, compare
from folkmoot.studies.negotiation.mediation import (
    NOT_HELD,
    Proposal,
    collect_ballots,
    hold_feedback,
    portions_in,
    propose,
    spoken,
)
from folkmoot.studies.negotiation.operators import Portion, decide
from folkmoot.studies.negotiation.participants import groups_of, member_speaker
from folkmoot.studies.negotiation.polarity import words_of
from folkmoot.studies.negotiation.strategies import (
    CONDITIONS,
    ConditionId,
    Topic,
    strategy_for,
    topics,
)
from folkmoot.studies.negotiation.tables import PreferenceRow
from folkmoot.studies.negotiation.tally import Tally, coverage, nearest_split, summary
from folkmoot.studies.negotiation.wording import (
    conflict_part,
    contract,
    coverage_sentence,
    decision_sentence,
    sentence,
)


async def protocol(session: Session[NegotiationConfig]) -> None:
    """The study."""
    config = session.config
    groups = groups_of(config, session.study_dir)
    trips = tripcraft.read_trips(config, session.study_dir)
    subjects = topics(config.options)
    await session.seal("groups", [files.sealed(g) for g in groups])
    await session.seal("conditions", list(config.conditions))
    files.record_groups(session, groups)
    # Scopes are made beforehand, so that rows come stage by stage, whichever group is quicker.
    stating = {g.id: session.at("preferences", g.id) for g in groups}
    sessions = [(g, c) for g in groups for c in config.conditions]
    talking = {(g.id, c): session.at("negotiation", f"{g.id}-{c}") for g, c in sessions}
    journeys = {g.id: tripcraft.trip_of(trips, g.id, n) for n, g in enumerate(groups)}

    async def whole_group(scope: Scope, group: Group) -> list[SessionResult]:
        stated = await state_preferences(stating[group.id], group, subjects, config.days)

        async def under(_: Scope, condition: ConditionId) -> SessionResult:
            at = talking[group.id, condition]
            case = Negotiation(group, CONDITIONS[condition], stated, subjects, config)
            decisions = [await settle(at.at(topic.id), case, topic) for topic in subjects]
            return files.finish_session(at, case, decisions, journeys[group.id])

        return list((await scope.each(config.conditions, under)).values())

    by_group = await session.at("negotiation").each(groups, whole_group, sets=lambda g: g.id)
    results = [result for group in by_group.values() for result in group]
    for condition in config.conditions:
        rows = [result.trip for result in results if result.condition == condition]
        session.write_text(f"tripcraft/{condition}.csv", tripcraft.to_csv(rows))
    session.write_json("comparison.json", compare(results, config.conditions))


# --- phase 1: preferences ----------------------------------------------------------------------


async def state_preferences(
    scope: Scope, group: Group, subjects: Sequence[Topic], days: int
) -> Statements:
    """What a group's members state, once for all conditions; ready-made texts are taken as they
    are."""

    async def interview(at: Scope, member: Member) -> Mapping[str, Stated]:
        return await _interview(at, group, member, subjects, days)

    said = await scope.each(group.members, interview)
    return {t.id: {m: own[t.id] for m, own in said.items() if t.id in own} for t in subjects}


async def _interview(
    scope: Scope, group: Group, member: Member, subjects: Sequence[Topic], days: int
) -> Mapping[str, Stated]:
    who = member_speaker(scope, group, member, days)
    stated: dict[str, Stated] = {}
    for topic in subjects:
        at = scope.at(topic.id)
        ready, shown = member.preferences.get(topic.id), list[str]()
        answer: str | Missing = ready or ""
        if not ready:
            # Each member sees the usual options in an order of the member's own.
            shown = [topic.options[int(i)] for i in at.rng.permutation(len(topic.options))]
            asked = at.prompt(
                "preference", label=topic.label, question=topic.question, options=shown
            )
            answer = await at.ask(who, asked)
        missing = answer.reason if isinstance(answer, Missing) else None
        if not isinstance(answer, Missing):
            stated[topic.id] = Stated(answer, at.finish)
        at.record(
            PreferenceRow(
                group_id=group.id,
                group_type=group.type.id,
                member_id=member.id,
                member_name=member.name,
                role=member.role,
                slot=topic.slot,
                topic=topic.id,
                text=None if isinstance(answer, Missing) else answer,
                missing=missing,
                finish=at.finish,
                given=bool(ready),
                options_shown="; ".join(shown),
            )
        )
    return stated


# --- phases 2 to 5: one decision ---------------------------------------------------------------


async def settle(scope: Scope, case: Negotiation, topic: Topic) -> SlotDecision:
    """One decision, with everything that was said on the way to it."""
    if case.condition.locked:
        decision = await _guided(scope, case, topic)
    elif case.condition.synthesis == "raw":
        decision = await _raw(scope, case, topic)
    elif case.condition.one_member:
        decision = _single_user(case, topic)
    else:
        decision = _all_preferences(case, topic)
    return replace(decision, lines=(*case.preference_lines(topic), *decision.lines))


def _single_user(case: Negotiation, topic: Topic) -> SlotDecision:
    """C1: the one member's word is the decision."""
    tally, lead = case.tally(topic), case.members[0].id
    wish = tally.primary(lead)
    everyone = tuple(m.id for m in case.group.members)
    return SlotDecision(
        topic.id,
        "single_user",
        has_conflict=False,
        resolution_text=case.texts(topic.id).get(lead, ""),
        options=tally.options,
        selected_option=wish,
        portions=(Portion(wish, everyone),) if wish else (),
    )


def _all_preferences(case: Negotiation, topic: Topic) -> SlotDecision:
    """C2: all preferences go to the planner as they are, and nothing is decided."""
    tally = case.tally(topic)
    said = case.texts(topic.id).items()
    return SlotDecision(
        topic.id,
        "preferences",
        has_conflict=tally.conflict,
        resolution_text=" ".join(f"{case.group.names[m]}: {sentence(text)}" for m, text in said),
        options=tally.options,
    )


async def _raw(scope: Scope, case: Negotiation, topic: Topic) -> SlotDecision:
    """C3: the mediator's own judgment; what it decided is read from its words."""
    tally = case.tally(topic)
    proposal = await propose(scope, case, topic, tally)
    text = case.seen(proposal.explanation)
    portions = portions_in(case.group, text, tally.options)
    said = proposal.opening or proposal.explanation or proposal.conflict_description
    opening = case.line(SYSTEM, "sys_synthesize", said, topic, finish=proposal.finish)
    return SlotDecision(
        topic.id,
        "synthesis",
        proposal.has_conflict,
        resolution_text=text,
        conflict_description=case.seen(proposal.conflict_description),
        proposal=text,
        options=tally.options,
        selected_option=portions[0].option if portions else None,
        portions=portions,
        lines=((opening,) if said else ()) + proposal.responses,
        rung=proposal.rung,
        dropped_lines=proposal.dropped,
    )


async def _guided(scope: Scope, case: Negotiation, topic: Topic) -> SlotDecision:
    """C4 and C5: proposal, lock, ballots where they are due, decision, split, feedback."""
    strategy = strategy_for(case.group.type.id, topic.id)
    tally, days = case.tally(topic), case.config.days
    told = "" if strategy.votes else decision_sentence(case.group, decide(tally, strategy, days))
    proposal = await propose(scope, case, topic, tally, strategy, told)
    outcome = decide(tally, strategy, days, has_conflict=proposal.has_conflict)
    decision = SlotDecision(
        topic.id,
        "operator",
        proposal.has_conflict,
        resolution_text=decision_sentence(case.group, outcome),
        conflict_description=proposal.conflict_description,
        proposal=proposal.explanation,
        strategy=strategy,
        proposed=proposal.label,
        options=tally.options,
        outcome=outcome,
        portions=outcome.portions,
        selected_option=outcome.selected_option,
        ballots=NOT_HELD,
        rung=proposal.rung,
        dropped_lines=proposal.dropped,
    )
    votes = strategy.votes and proposal.has_conflict
    decision = _announced(case, topic, decision, proposal, votes=votes)
    if votes:
        decision = await _voted(scope.at("ballots"), case, topic, decision, tally)
    elif decision.subgrouping_required or decision.subgrouping_optional:
        decision = _split(decision, tally)
    if case.feedback and decision.has_conflict:
        decision = await hold_feedback(scope.at("feedback"), case, topic, decision)
    return decision


def _announced(
    case: Negotiation, topic: Topic, decision: SlotDecision, proposal: Proposal, *, votes: bool
) -> SlotDecision:
    """The System's synthesis turn by the contract, then the members' responses."""
    assert decision.strategy is not None
    if votes:
        said = proposal.explanation or f"Put {topic.label} to the vote"
    else:
        said = sentence(decision.resolution_text)
        if words_of(proposal.explanation) != words_of(said):
            said += f" {proposal.explanation}"
    text = contract(
        conflict_part(topic.id, decision.has_conflict),
        decision.strategy.strategy_id,
        said,
        proposal.conflict_description or decision.strategy.rule,
        _next_step(decision, votes=votes, feedback=case.feedback),
    )
    opening = case.line(SYSTEM, "sys_synthesize", text, topic)
    return decision.with_lines(opening, *proposal.responses)


def _next_step(decision: SlotDecision, *, votes: bool, feedback: bool) -> str:
    """What follows a synthesis turn: a vote, the plan of a split, feedback, or the plan."""
    if votes:
        return "Collect one ballot from each member, then apply the operator deterministically"
    if decision.subgrouping_required:
        return "Plan a shared backbone, the two branches and the point where they meet again"
    if decision.subgrouping_optional:
        return "Plan the shared backbone and leave the branch open to whoever wants it"
    if not decision.has_conflict:
        return "Take this to the plan as it stands"
    plan = "Take who gets what to the plan"
    return f"{plan}, once who is left out was heard" if feedback else plan


async def _voted(
    scope: Scope, case: Negotiation, topic: Topic, decision: SlotDecision, stated: Tally
) -> SlotDecision:
    """The deterministic vote on texts and ballots, its summary, and what is promised."""
    strategy, group = decision.strategy, case.group
    assert strategy is not None
    cast, state = await collect_ballots(scope, case, topic, stated, decision.proposal)
    tally = case.tally(topic, cast)
    outcome = decide(tally, strategy, case.config.days)
    chosen, text = outcome.selected_option, decision_sentence(group, outcome)
    promised = coverage(topic.slot, tally, chosen)
    conflict, id = conflict_part(topic.id, True), strategy.strategy_id
    request = contract(
        conflict,
        id,
        "Open until the ballots are in",
        strategy.rule,
        "Name your top choice, what is acceptable, and any hard no",
    )
    then = (
        coverage_sentence(group, promised["minority_targets"])
        if promised
        else "Take this to the plan"
    )
    result = contract(conflict, id, text, " ".join(outcome.steps), then)
    said = [(SYSTEM, "sys_request_vote", request)]
    said += [(m.name, "user_vote", spoken(cast[m.id])) for m in case.members if m.id in cast]
    said += [(SYSTEM, "sys_vote_result", result)]
    return replace(
        decision,
        source="vote",
        options=tally.options,
        outcome=outcome,
        portions=outcome.portions,
        selected_option=chosen,
        resolution_text=text,
        ballots=state,
        cast=cast,
        vote_summary=summary(tally, id, chosen, state),
        coverage=promised,
    ).with_lines(*(case.line(*one, topic) for one in said))


def _split(decision: SlotDecision, tally: Tally) -> SlotDecision:
    """Subgroup slots hold no ballots; their summary comes from the preference texts."""
    id = decision.strategy_id or ""
    return replace(
        decision,
        vote_summary=summary(tally, id, decision.selected_option, NOT_HELD),
        split=nearest_split(tally) if decision.subgrouping_required else None,
    )
