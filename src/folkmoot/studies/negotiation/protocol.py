"""The protocol of a negotiation, in the order of its stages."""

# The groups are generated or read, and recorded before the first call. The members of a group state
# their preferences once. From these statements the group decides on all topics under every
# condition. The decisions are written to files for the program that plans the trip.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import Scope, Session
from folkmoot.hints import collapse_spaces
from folkmoot.kit import coding
from folkmoot.provenance import alter_text, concatenate_texts, join_texts
from folkmoot.studies.negotiation.ballots import (
    NOT_HELD,
    UNMATCHED,
    ballot_as_text,
    collect_ballots,
    collect_own_scores,
    collect_responses,
    confirm_decision,
    score_late_options,
    state_of_ballots,
)
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import (
    LEFT_OPEN,
    NOTHING_DECIDED,
    SYSTEM,
    SYSTEM_SPEAKER,
    UNREAD_STEPS,
    UNREADABLE,
    DialogueTurn,
    Negotiation,
    Origin,
    SlotDecision,
    Statements,
    as_sentence,
    columns_of_line,
    conflict_part,
    coverage_sentence,
    decision_sentence,
    format_contract,
    overridden_rejections,
    parts_of,
    render_decision,
    theory_words,
)
from folkmoot.studies.negotiation.files import (
    finish_session,
    read_trips,
    record_measures,
    sealed_group,
    trip_of,
)
from folkmoot.studies.negotiation.measures import SessionResult
from folkmoot.studies.negotiation.mediation import (
    Proposal,
    derive_decision,
    hold_feedback,
    propose_decision,
    say_for_members,
)
from folkmoot.studies.negotiation.participants import (
    groups_of,
    member_speaker,
    with_anonymous_humans,
)
from folkmoot.studies.negotiation.quotes import (
    BEFORE,
    PROPOSAL,
    quote_topic,
    quote_usual_options,
    record_late_options,
    record_options,
    show_sentence,
)
from folkmoot.studies.negotiation.rules.operators import Portion, apply_operator
from folkmoot.studies.negotiation.rules.replies import summary_option
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
    Group,
    Member,
    TripTopic,
    load_topics,
    strategy_for,
)
from folkmoot.studies.negotiation.rules.tally import Tally
from folkmoot.studies.negotiation.tables import PreferenceRow, record_groups


async def run_protocol(session: Session[NegotiationConfig]) -> None:
    """Run the whole study."""
    config, conditions = session.config, session.config.conditions
    groups = [
        with_anonymous_humans(session, group) for group in groups_of(config, session.study_folder)
    ]
    trips = read_trips(config, session.study_folder)
    topics = load_topics(config.options)
    # Seal the groups before the first call, so that nothing later can change who takes part.
    await session.seal("groups", [sealed_group(group) for group in groups])
    await session.seal("conditions", list(conditions))
    record_groups(session, groups, topics)
    # Create all scopes first. Rows are placed by the position of their scope, so tables are ordered
    # by stage even if one group is faster than another.
    preference_scopes = {group.id: session.child("preferences", group.id) for group in groups}
    score_scopes = {group.id: session.child("own_scores", group.id) for group in groups}
    # C5 continues the decisions of C4, so C4 runs for C5 even if the study does not compare it.
    conditions_played = [
        condition
        for condition in CONDITIONS
        if condition in config.conditions or (condition, "C5") == ("C4", conditions[-1])
    ]
    negotiation_scopes = {
        (group.id, condition): session.child("negotiation", f"{group.id}-{condition}")
        for group in groups
        for condition in conditions_played
    }
    trip_of_group = {
        group.id: trip_of(trips, group.id, index) for index, group in enumerate(groups)
    }

    async def run_group(scope: Scope, group: Group) -> list[Talks]:
        statements = await state_preferences(
            preference_scopes[group.id], group, topics, config.days
        )
        # Use C2 for all conditions here: in C2 all members speak and there is no mediator.
        with_all = Negotiation(group, CONDITIONS["C2"], statements, topics, config)
        record_options(preference_scopes[group.id], with_all)
        own_scores = await collect_own_scores(score_scopes[group.id], with_all)

        def build_negotiation(condition: str) -> Negotiation:
            return Negotiation(group, CONDITIONS[condition], statements, topics, config, own_scores)

        results: dict[str, tuple[SessionResult, Talks]] = {}

        async def finish_condition(
            condition: str, decisions: list[SlotDecision]
        ) -> list[SlotDecision]:
            if condition in conditions:
                condition_scope, case = (
                    negotiation_scopes[group.id, condition],
                    build_negotiation(condition),
                )
                decisions = [
                    await confirm_standing_decision(
                        condition_scope.child(slot_decision.topic), case, slot_decision
                    )
                    for slot_decision in decisions
                ]
                decisions = [
                    await score_late_options(
                        condition_scope.child(slot_decision.topic, "own_scores"),
                        case,
                        slot_decision,
                    )
                    for slot_decision in decisions
                ]
                trip = trip_of_group[group.id]
                result = finish_session(condition_scope, case, decisions, trip)
                results[condition] = result, texts_of(case, decisions)
            return decisions

        async def run_condition(_: Scope, condition: str) -> None:
            condition_scope, case = (
                negotiation_scopes[group.id, condition],
                build_negotiation(condition),
            )
            decisions = [
                await decide_topic(condition_scope.child(topic.id), case, topic) for topic in topics
            ]
            decisions = await finish_condition(condition, decisions)
            # C5 gives feedback on the decisions of C4, so it follows C4 in the same task.
            if condition == "C4" and "C5" in conditions:
                condition_scope, case = negotiation_scopes[group.id, "C5"], build_negotiation("C5")
                await finish_condition(
                    "C5",
                    [
                        await hold_feedback(
                            condition_scope.child(slot_decision.topic), case, slot_decision
                        )
                        for slot_decision in decisions
                    ],
                )

        # C5 is not in this list, because it starts from the decisions of C4.
        await scope.map(
            [condition for condition in conditions_played if condition != "C5"], run_condition
        )
        # The robustness measures leave out every topic with a re-ask, under all conditions, so that
        # conditions are compared on the same topics.
        asked_again = {
            slot_decision.topic
            for result, _ in results.values()
            for slot_decision in result.decisions
            if slot_decision.asked_again
        }
        for condition in conditions:
            # Measures come last: only when all conditions are done it is known which topics had a
            # re-ask.
            record_measures(
                negotiation_scopes[group.id, condition], results[condition][0], asked_again
            )
        return [results[condition][1] for condition in conditions]

    # A group is one block. Conditions are compared within groups, so a budget must not end inside
    # one.
    talks_by_group = await session.child("negotiation").map(
        groups, run_group, block=lambda group: group.id
    )
    await code_talks(session, [talks for group in talks_by_group.values() for talks in group])


# --- phase 1: preferences ----------------------------------------------------------------------


async def state_preferences(
    scope: Scope, group: Group, subjects: Sequence[TripTopic], days: int
) -> Statements:
    """Ask members to state their preferences, and return the statements by topic and member id."""

    # The members are asked once, for all conditions. Preferences that the researcher gave are
    # recorded without a question.
    async def interview_member(member_scope: Scope, member: Member) -> Mapping[str, Utterance]:
        return await _interview_member(member_scope, group, member, subjects, days)

    utterances = await scope.map(group.members, interview_member)
    return {
        topic.id: {
            member_id: member_utterances[topic.id]
            for member_id, member_utterances in utterances.items()
            if topic.id in member_utterances
        }
        for topic in subjects
    }


async def _interview_member(
    scope: Scope, group: Group, member: Member, subjects: Sequence[TripTopic], days: int
) -> Mapping[str, Utterance]:
    speaker = member_speaker(scope, group, member, days)
    statements: dict[str, Utterance] = {}
    for topic in subjects:
        topic_scope = scope.child(topic.id)
        given_text, options_shown = member.preferences.get(topic.id), list[str]()
        answer: str | Missing = given_text or ""
        if not given_text:
            # Each member sees the usual options in a random order, against position bias.
            options_shown = [
                topic.options[int(index)]
                for index in topic_scope.rng.permutation(len(topic.options))
            ]
            prompt = topic_scope.prompt(
                "preference",
                label=quote_topic(topic, "label"),
                question=quote_topic(topic, "question"),
                options=quote_usual_options(topic, options_shown),
            )
            answer = await topic_scope.ask(speaker, prompt, about=topic.label)
        missing = answer.reason if isinstance(answer, Missing) else None
        if not isinstance(answer, Missing):
            statements[topic.id] = topic_scope.say(
                speaker,
                answer,
                author="" if given_text else member.id,
                **columns_of_line(group, BEFORE, topic, "user_provide"),
            )
        topic_scope.record(
            PreferenceRow(
                group_id=group.id,
                group_type=group.type.id,
                member_id=member.id,
                member_name=member.name,
                role=member.role,
                slot=topic.slot_name,
                topic=topic.id,
                text=None if isinstance(answer, Missing) else answer,
                missing=missing,
                finish=topic_scope.finish,
                given=bool(given_text),
                options_shown="; ".join(options_shown),
            )
        )
    return statements


# --- phases 2 to 5: one decision ---------------------------------------------------------------


async def decide_topic(scope: Scope, case: Negotiation, topic: TripTopic) -> SlotDecision:
    """Return the decision on one topic, with the dialogue that led to the decision."""
    # Feedback rounds come later.
    if case.condition.has_locked_strategy:
        decision = await _run_guided_mediator(scope, case, topic)
    elif case.condition.synthesis == "raw":
        decision = await _run_plain_mediator(scope, case, topic)
    elif case.condition.one_member:
        decision = _single_user(case, topic)
    else:
        decision = _all_preferences(case, topic)
    return replace(decision, lines=(*case.preference_lines(topic), *decision.lines))


async def confirm_standing_decision(
    scope: Scope, case: Negotiation, decision: SlotDecision
) -> SlotDecision:
    """Ask the members to confirm a decision, if the study asks for confirmations.

    Returns the decision with the answers.
    """
    # Only conditions with a mediator have them. Members who have confirmed the decision already are
    # not asked a second time.
    needs_confirmation = case.config.confirm and case.condition.synthesis != "none"
    if not needs_confirmation or decision.confirmed:
        return decision
    return await confirm_decision(scope.child("confirm"), case, decision)


def _single_user(case: Negotiation, topic: TripTopic) -> SlotDecision:
    tally, lead_id = case.tally_topic(topic), case.heard_members[0].id
    first_choice = tally.first_choice(lead_id)
    everyone = tuple(member.id for member in case.group.members)
    portions = (Portion(first_choice, everyone),) if first_choice else ()
    return SlotDecision(
        topic.id,
        "single_user",
        has_conflict=False,
        resolution_text=render_decision(case.group, portions),
        options=tally.options,
        selected_option=first_choice,
        portions=portions,
        cause="" if lead_id in case.texts(topic.id) else UNREADABLE,
    )


def _all_preferences(case: Negotiation, topic: TripTopic) -> SlotDecision:
    tally = case.tally_topic(topic)
    texts = case.texts(topic.id).items()
    return SlotDecision(
        topic.id,
        "preferences",
        has_conflict=tally.has_conflict,
        resolution_text=" ".join(
            f"{case.group.names_by_member[member_id]}: {as_sentence(text)}"
            for member_id, text in texts
        ),
        options=tally.options,
    )


async def _run_plain_mediator(scope: Scope, case: Negotiation, topic: TripTopic) -> SlotDecision:
    tally = case.tally_topic(topic)
    proposal = await propose_decision(scope, case, topic, tally)
    portions = proposal.stated.portions
    opening = proposal.opening or proposal.explanation or proposal.conflict_description
    decision = replace(
        _unresolved_decision(topic, proposal),
        source="synthesis",
        resolution_text=render_decision(case.group, portions),
        options=tally.options,
        selected_option=summary_option(portions),
        portions=portions,
        dropped=proposal.stated.dropped,
        overridden=case.overridden_members(topic, portions),
        overridden_unasked=case.overridden_members(topic, portions),
        cause=_why_undecided(proposal),
    )
    decision = record_late_options(scope, case, topic, decision)
    if opening:
        origin = proposal.line_origin("opening", SYSTEM_SPEAKER.id)
        decision = decision.with_lines(
            case.record_line(scope, SYSTEM, "sys_synthesize", opening, topic, origin)
        )
    return await _hear_responses(scope, case, topic, decision, proposal)


def _why_undecided(proposal: Proposal) -> str:
    if proposal.parse_step in (DECLINED, DROPPED):
        return proposal.parse_step
    is_unread = proposal.parse_step in UNREAD_STEPS or proposal.stated.unread_count
    return UNREADABLE if is_unread else LEFT_OPEN


def _unresolved_decision(topic: TripTopic, proposal: Proposal) -> SlotDecision:
    return SlotDecision(
        topic.id,
        "",
        proposal.has_conflict,
        resolution_text="",
        conflict_description=proposal.conflict_description,
        proposal=proposal.explanation,
        said=proposal.said,
        stated=proposal.stated,
        proposed=proposal.label,
        parse_step=proposal.parse_step,
        dropped_lines=proposal.dropped_lines,
        terms=proposal.terms,
        terms_first=proposal.terms_first,
        asked_again=proposal.asked_again,
    )


async def _run_guided_mediator(scope: Scope, case: Negotiation, topic: TripTopic) -> SlotDecision:
    # Guided synthesis (C4): the mediator proposes, members vote, and a fixed rule decides.
    strategy = strategy_for(case.group.type.id, topic.id)
    tally, days = case.tally_topic(topic), case.config.days
    # Without a vote the operator decides first, and the mediator explains the result.
    fixed_outcome = None if strategy.votes else apply_operator(tally, strategy, days)
    proposal = await propose_decision(scope, case, topic, tally, strategy, fixed_outcome)
    # The mediator judges whether there is a conflict. Without one the subgroup operators keep all
    # members together, so the operator is applied with this judgement.
    outcome = apply_operator(tally, strategy, days, has_conflict=proposal.has_conflict)
    decision = replace(
        _unresolved_decision(topic, proposal),
        source="operator",
        resolution_text=decision_sentence(case.group, outcome) if outcome.portions else "",
        strategy=strategy,
        outcome=outcome,
        portions=outcome.portions,
        selected_option=outcome.selected_option,
        ballots=NOT_HELD,
    )
    decision = record_late_options(scope, case, topic, derive_decision(case, topic, decision))
    votes = strategy.votes and proposal.has_conflict
    decision = _announce_decision(scope, case, topic, decision, proposal, votes=votes)
    decision = await _hear_responses(scope, case, topic, decision, proposal)
    return (
        await _run_vote(scope.child("ballots"), case, topic, decision, tally) if votes else decision
    )


def _announce_decision(
    scope: Scope,
    case: Negotiation,
    topic: TripTopic,
    decision: SlotDecision,
    proposal: Proposal,
    *,
    votes: bool,
) -> SlotDecision:
    assert decision.strategy is not None
    reason = proposal.conflict_description or decision.strategy.rule
    if votes:
        proposed = render_decision(case.group, proposal.stated.portions)
        decision_text = proposed or f"Put {topic.label} to the vote"
    else:
        decision_text = decision.resolution_text or NOTHING_DECIDED
        overridden_text = overridden_rejections(case.group, decision.overridden)
        reason = " ".join(filter(None, (as_sentence(reason), as_sentence(overridden_text))))
    text = format_contract(
        conflict_part(topic.id, decision.has_conflict),
        decision.strategy.strategy_id,
        decision_text,
        reason,
        _next_step(decision, votes=votes),
    )
    opening = case.record_line(
        scope, SYSTEM, "sys_synthesize", text, topic, proposal.line_origin("opening")
    )
    return decision.with_lines(opening)


async def _hear_responses(
    scope: Scope, case: Negotiation, topic: TripTopic, decision: SlotDecision, proposal: Proposal
) -> SlotDecision:
    # The mediator's reply contains the responses, unless members speak for themselves.
    if not case.config.members_speak:
        origin = proposal.line_origin("response")
        return decision.with_lines(
            *say_for_members(scope, case, topic, "user_respond", proposal.responses, origin)
        )
    if not decision.lines:
        # The mediator of C3 has said nothing to which members could respond.
        return decision
    responses = await collect_responses(
        scope.child("responses"), case, decision, decision.lines, case.mediation_order(topic)
    )
    return decision.with_lines(*responses)


def _next_step(decision: SlotDecision, *, votes: bool) -> str:
    if votes:
        # Under some strategies only the members of one role vote.
        strategy = decision.strategy
        parents_vote = strategy is not None and strategy.operator == "parent_vote_lower_misery"
        voter = "parent" if parents_vote else "member"
        return f"Collect one ballot from each {voter}, then apply the operator deterministically"
    if decision.subgrouping_required:
        return "Plan a shared backbone, the two branches and the point where they meet again"
    if decision.subgrouping_optional:
        return "Plan the shared backbone and leave the branch open to whoever wants it"
    if not decision.has_conflict:
        return "Take this to the plan as it stands"
    return "Take who gets what to the plan"


async def _run_vote(
    scope: Scope, case: Negotiation, topic: TripTopic, decision: SlotDecision, stated: Tally
) -> SlotDecision:
    strategy, group, days = decision.strategy, case.group, case.config.days
    assert strategy is not None
    proposed = render_decision(group, decision.stated.portions) if decision.stated else ""
    proposed = show_sentence(scope, case, topic, PROPOSAL, proposed, stated=True)
    conflict, id = conflict_part(topic.id, True), strategy.strategy_id
    instructions = "Name your top choice, what is acceptable, and any hard no"
    if case.config.ballots == "scores":
        instructions = "Score every option from -4 to 4, and name any hard no"
    request = format_contract(
        conflict, id, "Open until the ballots are in", strategy.rule, instructions
    )
    lines = [case.record_line(scope, SYSTEM, "sys_request_vote", request, topic)]
    ballots_read = await collect_ballots(scope, case, topic, stated, proposed)
    cast = {
        member_id: ballot_read.ballot
        for member_id, ballot_read in ballots_read.items()
        if ballot_read.ballot is not None
    }
    asked_again = (
        [UNMATCHED] if any(ballot_read.asked_again for ballot_read in ballots_read.values()) else []
    )
    tally = case.tally_topic(topic, cast)
    outcome = apply_operator(tally, strategy, days)
    voted = replace(
        decision,
        source="vote",
        outcome=outcome,
        portions=outcome.portions,
        selected_option=outcome.selected_option,
        resolution_text=decision_sentence(group, outcome) if outcome.portions else "",
        ballots=state_of_ballots(ballots_read),
        cast=cast,
        ballots_read=ballots_read,
        asked_again=tuple(dict.fromkeys([*decision.asked_again, *asked_again])),
    )
    if case.config.ballots == "scores":
        # Count the same ballots without scores, so that the report can say whether the source's
        # form of ballot would have another winner.
        source_ballots = {
            member_id: replace(ballot, scores={}) for member_id, ballot in cast.items()
        }
        source_outcome = apply_operator(case.tally_topic(topic, source_ballots), strategy, days)
        voted = replace(voted, source_winner=source_outcome.selected_option)
    voted = record_late_options(scope, case, topic, derive_decision(case, topic, voted))
    for member, ballot in cast.items():
        origin = Origin(ballots_read[member].address)
        lines.append(
            case.record_line(scope, member, "user_vote", ballot_as_text(ballot), topic, origin)
        )
    result = _vote_result(case, topic, voted)
    lines.append(case.record_line(scope, SYSTEM, "sys_vote_result", result, topic))
    return voted.with_lines(*lines)


def _vote_result(case: Negotiation, topic: TripTopic, decision: SlotDecision) -> str:
    strategy, outcome, group = decision.strategy, decision.outcome, case.group
    assert strategy is not None and outcome is not None
    coverage = decision.coverage
    next_step = (
        coverage_sentence(group, coverage["minority_targets"])
        if coverage
        else "Take this to the plan"
    )
    sentences = (*outcome.steps, as_sentence(overridden_rejections(group, decision.overridden)))
    reason = " ".join(filter(None, sentences))
    decision_text = decision.resolution_text or NOTHING_DECIDED
    return format_contract(
        conflict_part(topic.id, True), strategy.strategy_id, decision_text, reason, next_step
    )


CODEBOOKS = Path(__file__).parent / "codebooks"


class Talks(NamedTuple):
    """The texts of one session (one group under one condition) that coders code."""

    # The stated preferences.
    wishes: tuple[coding.TextToCode, ...] = ()
    # The mediator's texts under C3.
    mediators: tuple[coding.TextToCode, ...] = ()
    # The dialogues.
    talks: tuple[coding.TextToCode, ...] = ()


def texts_of(case: Negotiation, decisions: Sequence[SlotDecision]) -> Talks:
    """Return the texts of one session that coders code."""
    # If there is no feedback, C4 and C5 share one dialogue. It is then coded only once, under C4.
    wishes, mediators, talks = [], [], []
    for slot_decision in decisions:
        text_id = f"{case.group.id}/{case.condition.id}/{slot_decision.topic}"
        # The preferences are the same under all conditions. Code them once, under the first
        # condition that hears all members.
        if case.condition.id == next(
            (condition for condition in case.config.conditions if condition != "C1"), ""
        ):
            preference_turns = [
                dialogue_turn
                for dialogue_turn in slot_decision.lines
                if dialogue_turn.phase == "preference"
            ]
            wishes.append(
                coding.TextToCode(
                    f"{case.group.id}/{slot_decision.topic}",
                    _format_talk_for_coder(preference_turns),
                )
            )
        if slot_decision.said and case.condition.synthesis == "raw":
            mediators.append(coding.TextToCode(text_id, slot_decision.said))
        is_coded_here = (
            case.condition.id != "C5"
            or slot_decision.feedback
            or "C4" not in case.config.conditions
        )
        if slot_decision.said and is_coded_here and slot_decision.options:
            slots = {
                "option": slot_decision.options,
                "member": [member.name for member in case.heard_members],
            }
            talks.append(
                coding.TextToCode(text_id, _format_talk_for_coder(slot_decision.lines), slots=slots)
            )
    return Talks(tuple(wishes), tuple(mediators), tuple(talks))


async def code_talks(session: Session[NegotiationConfig], talks: Sequence[Talks]) -> None:
    """Let coders assign codes to the texts of all sessions."""
    # If coding is off, the texts are only recorded.
    for name, texts, rule in (
        (
            "conflict",
            [text_to_code for group_talks in talks for text_to_code in group_talks.wishes],
            None,
        ),
        (
            "mediator",
            [text_to_code for group_talks in talks for text_to_code in group_talks.mediators],
            _theory_terms_in,
        ),
        (
            "decision",
            [text_to_code for group_talks in talks for text_to_code in group_talks.talks],
            None,
        ),
    ):
        if texts:
            await coding.code_texts(session, CODEBOOKS / f"{name}.yaml", texts, rule=rule)


def _format_talk_for_coder(lines: Sequence[DialogueTurn]) -> str:
    # `_plain_line` leaves out the headings of C4 and C5, because they would reveal the condition.
    return join_texts(
        "\n",
        (
            concatenate_texts((dialogue_turn.speaker, ": ", _plain_line(dialogue_turn)), plain=None)
            for dialogue_turn in lines
        ),
    )


def _plain_line(line: DialogueTurn) -> str:
    parts = parts_of(line.text) if line.speaker == SYSTEM else {}
    text = " ".join((parts["Decision"], parts["Reason"])) if parts else line.text
    return alter_text(line.utterance.quoted_text, collapse_spaces(text))


def _theory_terms_in(text: coding.TextToCode) -> Iterator[coding.AssignedCode]:
    return (coding.AssignedCode("names_theory", term) for term in theory_words(text.text))
