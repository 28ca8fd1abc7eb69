"""The tables of a negotiation, and the functions that make the rows of these tables.

A session is one group under one condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from folkmoot.conversation.answer_types import Missing
from folkmoot.engine.seats.utterances import UtteranceRow
from folkmoot.engine.session.session import Scope
from folkmoot.kit import coding
from folkmoot.measures.inference.estimates import finite_or_none
from folkmoot.storage.rows import Row, column
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision
from folkmoot.studies.negotiation.rules.operators import counterfactual_outcomes
from folkmoot.studies.negotiation.rules.replies import (
    HIGHEST_SCORE,
    LOWEST_SCORE,
    OPTIONS_ON_THE_TABLE,
)
from folkmoot.studies.negotiation.rules.strategies import Group, TripTopic, strategy_table
from folkmoot.studies.negotiation.rules.tally import STRONG_REJECTION, Tally
from folkmoot.studies.negotiation.rules.vocabulary import describe_members

# The numbers that scores of members and shares may have.
SCORES, SHARES = (LOWEST_SCORE, HIGHEST_SCORE), (0, 1)


class OfGroup(Row):
    """The columns that identify a group."""

    group_id: str = column("group of travellers")
    group_type: str = column(
        "family, elder_young (multigenerational), colleagues, spouses or strangers"
    )


class OfSession(OfGroup):
    """The columns that identify a group under a condition."""

    condition: str = column(
        "C1 single user, C2 no mediation, C3 raw, C4 guided, C5 guided with feedback"
    )


class OfDecision(OfSession):
    """The columns that identify one decision of a session."""

    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or room_type or house_rule for lodging")


class GroupRow(OfGroup, table="groups", key=("group_id",)):
    """A group of travellers."""

    title: str = column("name of the group type in prompts")
    member_groups: str = column("phrase that lists the members in prompts")
    size: int = column("number of members")
    roles: str = column("roles of the members, in order")


class MemberRow(OfGroup, table="members", key=("group_id", "member_id")):
    """A member of a group."""

    member_id: str = column("id of the member in the group")
    member_name: str = column("name of the member")
    role: str = column("role within the group type")
    weight: float = column("weight in weighted averages")
    persona: str = column("description of the member in prompts")
    preferences_given: bool = column(
        "whether the researcher stated the preferences, so that the member was not asked"
    )


class TopicRow(Row, table="topics", key=("topic",)):
    """A topic with its label, question and usual options."""

    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or room_type or house_rule for lodging")
    label: str = column("name of the topic in prompts")
    question: str = column("question to the members")
    options: list[str] = column("usual options of the topic")


class StrategyRow(Row, table="strategies", key=("group_type", "topic")):
    """A row of the strategy table."""

    group_type: str = column("type of group")
    topic: str = column("the decision")
    strategy_id: str = column("canonical strategy")
    operator: str = column("the rule that decides")
    rule: str = column("the rule in words")
    style: str = column("how the mediator argues")


class PreferenceRow(OfGroup, table="preferences"):
    """The stated preference of one member on one topic."""

    member_id: str = column("id of the member in the group")
    member_name: str = column("name of the member")
    role: str = column("role within the group type")
    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or room_type or house_rule for lodging")
    text: str | None = column("the stated preference; empty where there is none")
    missing: str | None
    finish: str | None
    given: bool = column("whether the researcher stated the preference")
    options_shown: str = column("usual options in the order in which this member saw them")


class TalkRow(UtteranceRow):
    """An utterance of a negotiation."""

    group_id: str = column("group of travellers")
    group_type: str = column("type of group")
    condition: str = column(
        "condition, or `all` for stated preferences, which are stated once. C5 continues the "
        "dialogue of C4, and the shared rows have C4, or C5 if C4 is not compared"
    )
    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or room_type or house_rule for lodging")
    phase: str = column("preference, synthesis, vote or feedback")
    intent: str = column("purpose of the turn and its slot")
    author: str = column(
        "author of the text: the member, or `system` for the mediator, which also writes the "
        "members' lines in its dialogues. Empty for texts of the study file and for turns that "
        "were rendered from data (of the reply at `address`, if there is one)"
    )


class OptionRow(OfDecision, table="options", key=("group_id", "condition", "topic", "option")):
    """One option among which a group can decide."""

    # The condition is `all` if a statement named the option.
    option: str = column("option under negotiation")
    usual: bool = column("whether it is one of the usual options of the topic")


class ShownDecisionRow(
    OfDecision,
    table="shown_decisions",
    key=("group_id", "condition", "topic", "step"),
    from_replies=True,
):
    """A sentence that states a decision. The prompts of one step contain this sentence."""

    step: str = column(
        "step of the prompts that contain the text: operator (the operator's decision, in the "
        "mediator's prompt), proposal (the mediator's proposal, on the ballots), or round1, "
        "round2 … (feedback)"
    )
    text: str = column("the decision in one sentence")


class ShownShareRow(
    OfDecision,
    table="shown_shares",
    key=("group_id", "condition", "topic", "step", "share"),
    from_replies=True,
):
    """One part of a decision, in the words of the prompts of one step."""

    step: str = column(
        "step of the prompts that contain the share: operator, round1, round2 … (feedback), or "
        "record (the decision that members confirm)"
    )
    share: int = column("number of the share, from 0")
    option: str = column("option of this share")
    members: list[str] = column("names of the members who get the option, or everyone")
    time: str = column("days or branch of the option, or the whole trip")


class OwnScoreRow(OfGroup, table="own_scores"):
    """One member's score of one option, given to the researcher alone."""

    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or room_type or house_rule for lodging")
    entered: str = column(
        "when the option was first named: `before` the mediation, or the condition under which "
        "it was named later"
    )
    member_id: str = column("id of the member in the group")
    option: str = column("option under negotiation")
    score: int | None = column("the member's score of the option, −4 to 4")
    firm_no: bool | None = column(
        "whether the member firmly rejects the option, which counts as −4"
    )
    reason: str | None = column("reason, in the member's words")
    objection: str | None = column("other firm rejections, in the member's words")
    missing: str | None
    text_score: int | None = column(
        "score of the option from the text of the preference, by the rules of the source study"
    )
    text_primary: bool = column("whether the option is the member's first choice by the text score")
    options_shown: str = column("options in the order in which this member saw them")


class BallotRow(OfDecision, table="ballots"):
    """One member's ballot."""

    member_id: str = column("id of the member in the group")
    top_choice: str | None = column("option that the member wants most")
    acceptable: str | None = column("further options that the member accepts")
    hard_no: str | None = column("options that the member rejects")
    objection: str | None = column("other firm rejections, in the member's words")
    scores: str | None = column("option and score, −4 to 4, if members vote with scores")
    unmatched: str | None = column("entries that name no listed option, also after a re-ask")
    asked_again: bool = column("whether a re-ask followed because of such entries")
    missing: bool = column(
        "whether no ballot could be read, so that only the preference text counts"
    )
    reason: str | None = column("reason for the missing ballot")
    excluded: bool = column("whether the member has no vote on this slot and was not asked")
    options_shown: str | None = column("options in the order in which this member saw them")


class FeedbackRow(OfDecision, table="feedback", key=("group_id", "condition", "topic", "round")):
    """One feedback round."""

    round: int
    target: str = column("id of the member who was asked")
    target_name: str = column("the member's name")
    targeted: bool = column(
        "whether the member was asked because the decision contains none of the member's words"
    )
    resolved: bool | None = column("whether the round ended in agreement; empty if unclear")
    question: str = column("question to the member")
    updated_explanation: str | None = column("explanation of the adjustment")
    revised_decision: str | None = column("the decision as revised, in the mediator's words")
    change: str | None = column("what the revision changed, rendered from the data")
    refused_options: str | None = column("options because of which the revision was rejected")
    refused_because: str | None = column(
        "reason for the rejection: struck (by a hard constraint), rejected (a member who would "
        "get the option strongly rejects it), split (it undoes a required split), unstated (it "
        "does not say who gets what)"
    )
    hard_no: str | None = column("options that the member rejected in this round")
    objection: str | None = column("other firm rejections in this round, in the member's words")
    parse_error: bool = column(
        "whether the reply could not be read, was declined or dropped, so that the minimal "
        "structure was used"
    )


class PortionRow(OfDecision, table="portions"):
    """An option that a decision gives to one member."""

    member_id: str = column("id of the member in the group")
    option: str = column("option that the member gets")
    when: str = column("days or branch of the option, or the whole trip")


class ConfirmationRow(OfDecision, table="confirmations"):
    """One member's answer to the question whether the recorded decision is right."""

    member_id: str = column("id of the member in the group")
    confirmed: bool | None = column(
        "whether the member confirms the recorded decision as the result of the dialogue"
    )
    refused: str | None = column(
        "options that the decision gives the member although the member refuses them"
    )
    missing: str | None


class CounterfactualRow(OfDecision, table="counterfactuals"):
    """The decision that one operator would have made from the members' texts and ballots."""

    operator: str = column("a rule, applied to the same texts and ballots")
    in_force: bool = column("whether this rule decided")
    selected_option: str | None = column("main option of the decision by this rule")
    same_winner: bool = column("whether the rule that decided has the same option")
    margin: float | None = column(
        "lead over the next option in the quantity that the rule compares first (approvals, "
        "average, …); empty if the rule compares no options"
    )
    decided_by: str = column("what settled the choice: rule, score or alphabetical")


class DecisionRow(OfDecision, table="decisions", key=("group_id", "condition", "topic")):
    """One decision with its audit trail."""

    source: str = column(
        "origin of the decision: single_user, preferences, synthesis, operator, vote, feedback"
    )
    has_conflict: bool = column("whether the preferences conflict, as judged by the mediator")
    stated_conflict: bool = column(
        "whether first choices differ or one is strongly rejected, by the text scores"
    )
    strategy_id: str | None = column("canonical strategy (C4, C5)")
    operator: str | None = column("the rule that decides")
    proposed_strategy: str | None = column(
        "strategy that the model named, before the lock replaced it; empty if it could not be read"
    )
    resolution_strategy: str | None = column("strategy that replaced it: the canonical id")
    drifted: bool | None = column(
        "whether the model named another strategy than the canonical one; empty if it could not "
        "be read"
    )
    selected_option: str | None = column("main option of the decision; empty if there is none")
    resolution_text: str | None = column(
        "the decision in words, rendered from its data, after feedback; empty where undecided"
    )
    undecided: str | None = column(
        "reason why nothing was decided: left_open, unreadable, declined (by the mediator) or "
        "dropped (the mediator's reply, by a fork)"
    )
    dropped: str = column(
        "options that no member gets, as stated by the mediator, otherwise by the operator"
    )
    overridden: str = column(
        "options given to members who strongly reject them (in the preference, on a ballot or at "
        "the confirmation), as `option: members`"
    )
    overridden_unasked: str = column("the same without rejections at the confirmation")
    mediator_words: str | None = column("text in which the mediator proposes the decision")
    theory_words: str | None = column(
        "words of the lexicon in the mediator's final reply (C3), which count as violations"
    )
    theory_words_quoted: str | None = column(
        "words of the lexicon in the final reply that come from an option or a member's words"
    )
    theory_words_first: str | None = column(
        "words of the lexicon in the mediator's first reply, which led to a re-ask"
    )
    asked_again: str | None = column(
        "reasons for re-asks: theory, unmatched (an entry named no listed option, member or time)"
    )
    statement_agrees: bool | None = column(
        "whether the mediator's statement gives the same members the same options as the "
        "operator; empty before a vote and if the statement decides"
    )
    unread_entries: int | None = column(
        "entries of the mediator's statement that name no listed option or member, also after a "
        "re-ask"
    )
    winner_by_source_ballots: str | None = column(
        "if members vote with scores: winner if the ballots are counted as in the source study"
    )
    members_shown: str | None = column("members in the order in which the mediator saw them")
    options_shown: str | None = column("options in the order in which the mediator saw them")
    fell_back_to: str | None = column("operator that decided because the canonical one could not")
    infeasible: bool | None = column(
        "whether every option breaks a hard constraint, or all members strongly reject every option"
    )
    ballots: str = column(
        "collected, partial, missing (the preference texts count), not_held; none without lock"
    )
    subgrouping_required: bool = column("whether the group must split for this slot")
    subgrouping_optional: bool = column("whether the group may split for this slot")
    feedback_rounds: int = column("rounds of feedback held")
    resolved: bool | None = column("whether feedback ended in agreement")
    parse_error: bool = column(
        "whether the synthesis reply could not be read, was declined or dropped, so that the "
        "minimal structure was used"
    )
    words: int = column(
        "words in the dialogue on the decision, without stated preferences; in scripts without "
        "spaces, such as Chinese, letters"
    )
    parse_step: str | None = column("parse step of the synthesis reply")


class ScoreRow(OfDecision, table="scores"):
    """One member's score of one option, computed from the member's text and ballot."""

    member_id: str = column("id of the member in the group")
    option: str = column("option under negotiation")
    score: int = column(
        "score by the vote parser, from the preference text and from the ballot if there is one"
    )
    text_score: int | None = column("score from the preference text alone")
    strong_rejection: bool = column("whether the score is −2 or less")
    primary: bool = column("whether the option is the member's first choice")


class SatisfactionRow(OfDecision, table="satisfaction"):
    """One member's satisfaction with a decision."""

    member_id: str = column("id of the member in the group")
    satisfaction: float | None = column(
        "the member's own score of the decision, −4 to 4", between=SCORES
    )
    unknown: str | None = column(
        "reason why the score is unknown: left_open (counts as −4 in the measures), unreadable, "
        "declined (by the mediator), dropped (by a fork), unknown_option (not scored by the "
        "member), not_scored (no scores at all)"
    )
    covered: float | None = column(
        "share of the possible outcomes in which the member gets an option that the member favours"
    )


class MeasuresRow(OfSession, table="measures"):
    """The measures of one group under one condition."""

    satisfaction: float | None = column(
        "mean member score of the decisions, −4 to 4; an open slot counts as −4", between=SCORES
    )
    satisfaction_decided: float | None = column(
        "mean member score of the decided slots alone", between=SCORES
    )
    satisfaction_if_lowest: float | None = column(
        "mean member score if open slots and all unknown scores counted as −4", between=SCORES
    )
    satisfaction_if_highest: float | None = column(
        "mean member score if open slots and all unknown scores counted as 4", between=SCORES
    )
    lowest_satisfaction: float | None = column(
        "mean score of the group's least satisfied member; empty for C2, which decides nothing",
        between=SCORES,
    )
    inequality: float | None = column(
        "Gini coefficient of members' mean scores, which are rescaled to 0 to 1 before; its "
        "maximum is (n − 1) ÷ n for n members; empty for C2",
        between=SHARES,
    )
    covered_share: float | None = column(
        "share of members who get an option that they favour", between=SHARES
    )
    minority_coverage_share: float | None = column(
        "share of members with a minority first choice who get it", between=SHARES
    )
    minority_promised_share: float | None = column(
        "share of members with a minority first choice who get it or a promise of it",
        between=SHARES,
    )
    conflict_rate: float | None = column("share of decisions with a conflict", between=SHARES)
    drift_rate: float | None = column(
        "share of locked decisions with a readable synthesis where the model named another "
        "strategy",
        between=SHARES,
    )
    feedback_resolution_rate: float | None = column(
        "share of decisions with feedback that ended in agreement", between=SHARES
    )
    split_share: float | None = column(
        "share of the decisions on cuisine, attraction and event in which the group may or must "
        "split",
        between=SHARES,
    )
    words_per_decision: float | None = column("words in the dialogue per decision")
    confirmed_share: float | None = column(
        "share of members who confirm a decision as the result of the dialogue", between=SHARES
    )
    undecided_share: float | None = column(
        "share of the mediator's decisions that give no member an option", between=SHARES
    )


class NotAskedAgainRow(MeasuresRow, table="measures_not_asked_again"):
    """The measures of a session, computed without decisions in which a question was asked twice."""

    # A decision for which a question was asked again is left out under all conditions of the group.
    # A group without such decisions has no row.
    left_out: int = column("decisions of the group that are left out")


class TripRow(OfSession, table="trips"):
    """The decisions of a session in the input format of TripCraft's planner."""

    # The researcher's trip file may add columns with reference information.
    org: str = column("where the trip starts")
    dest: str = column("where it goes")
    days: str = column("days")
    visiting_city_number: str = column("cities")
    date: str = column("dates, as a Python list")
    people_number: str = column("travellers")
    local_constraint: str = column("TripCraft's constraints, as a Python dictionary")
    budget: str = column("budget in US dollars; empty where there is none")
    query: str = column("the request in words")
    level: str = column("difficulty")
    persona: str = column("type, purpose, spending and location in one line")
    reference_information: str = column("places to choose from, copied from the trip file")


TABLES = (
    *(GroupRow, MemberRow, TopicRow, StrategyRow, PreferenceRow, OptionRow, OwnScoreRow, TalkRow),
    *(ShownDecisionRow, ShownShareRow, BallotRow, FeedbackRow),
    DecisionRow,
    *coding.TABLES,
    *(PortionRow, ConfirmationRow, ScoreRow, CounterfactualRow, SatisfactionRow, MeasuresRow),
    *(NotAskedAgainRow, TripRow),
)
# Measure of a session → its meaning.
MEASURES = {
    name: meaning
    for name, meaning in MeasuresRow.column_meanings().items()
    if name not in OfSession.columns()
}


def record_groups(scope: Scope, groups: Sequence[Group], subjects: Sequence[TripTopic]) -> None:
    """Record the groups and members, the topics and the strategies of a run."""
    for topic in subjects:
        texts = {"label": topic.label, "question": topic.question}
        options = list(topic.options)
        scope.record(TopicRow(slot=topic.slot_name, topic=topic.id, **texts, options=options))
    types = {group.type.id for group in groups}
    for strategy in strategy_table().values():
        if strategy.group_type in types:
            columns = StrategyRow.columns()
            scope.record(StrategyRow(**{name: getattr(strategy, name) for name in columns}))
    for group in groups:
        ids = {"group_id": group.id, "group_type": group.type.id}
        roles = ", ".join(member.role for member in group.members)
        scope.record(
            GroupRow(
                **ids,
                title=group.type.title,
                member_groups=describe_members(group),
                size=len(group.members),
                roles=roles,
            )
        )
        for member in group.members:
            scope.record(
                MemberRow(
                    **ids,
                    member_id=member.id,
                    member_name=member.name,
                    role=member.role,
                    weight=member.weight,
                    persona=member.full_description,
                    preferences_given=bool(member.preferences),
                )
            )


def ids_of(case: Negotiation) -> dict[str, str]:
    """Return the columns that identify a session."""
    group = case.group
    return {"group_id": group.id, "group_type": group.type.id, "condition": case.compared_as}


def ids_of_decision(case: Negotiation, topic: TripTopic) -> dict[str, str]:
    """Return the columns that identify a decision."""
    return {**ids_of(case), "slot": topic.slot_name, "topic": topic.id}


def decision_rows(
    case: Negotiation,
    slot_decision: SlotDecision,
    satisfaction: Mapping[str, float],
    unknown: Mapping[str, str],
    covered: Mapping[str, float],
) -> Iterator[Row]:
    """Yield all rows about one decision, for several tables.

    - `satisfaction`: a map from member id to satisfaction, without unknown values.
    - `unknown`: a map from member id to the reason why the satisfaction is unknown.
    - `covered`: a map from member id to 1 or 0. The value is 1 if the member gets an option that
      the member favours.
    """
    topic = case.topic(slot_decision.topic)
    decision_key = ids_of_decision(case, topic)
    yield _decision_row(case, topic, slot_decision, decision_key)
    yield from _ballot_rows(case, topic, slot_decision, decision_key)
    for portion in slot_decision.portions:
        for id in portion.members:
            yield PortionRow(**decision_key, member_id=id, option=portion.option, when=portion.when)
    for id, answer in slot_decision.confirmed.items():
        yield ConfirmationRow(
            **decision_key,
            member_id=id,
            confirmed=None if isinstance(answer, Missing) else answer,
            refused="; ".join(slot_decision.refused.get(id, ())) or None,
            missing=answer.reason if isinstance(answer, Missing) else None,
        )
    for feedback_round in slot_decision.feedback:
        yield FeedbackRow.from_source(
            feedback_round,
            **decision_key,
            target_name=case.group.names_by_member[feedback_round.target],
            updated_explanation=feedback_round.updated_explanation or None,
            revised_decision=feedback_round.revised_decision or None,
            change=feedback_round.change or None,
            refused_options="; ".join(feedback_round.refused) or None,
            refused_because=feedback_round.because or None,
            hard_no="; ".join(feedback_round.hard_no) or None,
            objection="; ".join(feedback_round.objections) or None,
        )
    tally, text_tally = case.tally_topic(topic, slot_decision.cast), case.tally_topic(topic)
    yield from _counterfactual_rows(case, slot_decision, tally, decision_key)
    for voter in tally.voters:
        for option, score in tally.scores[voter.id].items():
            text_score = text_tally.scores[voter.id].get(option)
            yield ScoreRow(
                **decision_key,
                member_id=voter.id,
                option=option,
                score=int(score),
                text_score=None if text_score is None else int(text_score),
                strong_rejection=score <= STRONG_REJECTION,
                primary=option == tally.first_choice(voter.id),
            )
    for member in case.group.members:
        yield SatisfactionRow(
            **decision_key,
            member_id=member.id,
            satisfaction=satisfaction.get(member.id),
            unknown=unknown.get(member.id),
            covered=covered.get(member.id),
        )


def finite_values(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return the measures of a session as cells. NaN becomes an empty cell."""
    return {key: finite_or_none(value) for key, value in values.items()}


def _decision_row(
    case: Negotiation,
    topic: TripTopic,
    slot_decision: SlotDecision,
    decision_key: Mapping[str, str],
) -> Row:
    is_raw = case.condition.synthesis == "raw"
    return DecisionRow.from_source(
        slot_decision,
        **decision_key,
        stated_conflict=case.with_all_statements.tally_topic(topic).has_conflict,
        operator=slot_decision.strategy.operator if slot_decision.strategy else None,
        proposed_strategy=slot_decision.proposed,
        resolution_strategy=slot_decision.strategy_id,
        drifted=slot_decision.strategy_drifted,
        resolution_text=slot_decision.resolution_text or None,
        undecided=slot_decision.undecided_reason,
        dropped="; ".join(slot_decision.dropped),
        overridden=_format_overridden(slot_decision.overridden),
        overridden_unasked=_format_overridden(slot_decision.overridden_unasked),
        mediator_words=slot_decision.said or None,
        theory_words="; ".join(slot_decision.terms.theory) if is_raw else None,
        theory_words_quoted="; ".join(slot_decision.terms.quoted) if is_raw else None,
        theory_words_first="; ".join(slot_decision.terms_first) if is_raw else None,
        asked_again="; ".join(slot_decision.asked_again) or None,
        unread_entries=slot_decision.stated.unread_count if slot_decision.stated else None,
        winner_by_source_ballots=slot_decision.source_winner,
        members_shown="; ".join(member.name for member in case.mediation_order(topic))
        if slot_decision.stated
        else None,
        options_shown="; ".join(case.shuffled_names(topic, slot_decision.options))
        if slot_decision.stated
        else None,
        fell_back_to=(slot_decision.outcome.fell_back_to or None)
        if slot_decision.outcome
        else None,
        infeasible=slot_decision.outcome.infeasible if slot_decision.outcome else None,
        feedback_rounds=len(slot_decision.feedback),
        resolved=slot_decision.is_resolved,
        parse_step=slot_decision.parse_step or None,
    )


def _format_overridden(overridden: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{option}: {', '.join(member_ids)}" for option, member_ids in overridden.items()
    )


def _ballot_rows(
    case: Negotiation,
    topic: TripTopic,
    slot_decision: SlotDecision,
    decision_key: Mapping[str, str],
) -> Iterator[Row]:
    voters = [member.id for member in case.eligible_voters(topic)]
    for member in (
        case.heard_members if slot_decision.ballots in ("collected", "partial", "missing") else ()
    ):
        ballot_read = slot_decision.ballots_read.get(member.id)
        ballot, is_eligible = (ballot_read.ballot if ballot_read else None), member.id in voters
        scores = ballot.scores.items() if ballot else ()
        options_shown = "; ".join(case.shuffled_names(topic, slot_decision.options, member.id))
        yield BallotRow(
            **decision_key,
            member_id=member.id,
            top_choice=(ballot.top_choice or None) if ballot else None,
            acceptable="; ".join(ballot.acceptable) if ballot else None,
            hard_no="; ".join(ballot.hard_no) if ballot else None,
            objection=("; ".join(ballot.objections) or None) if ballot else None,
            scores="; ".join(f"{option} {score:g}" for option, score in scores) or None,
            unmatched="; ".join(ballot_read.unmatched.get(OPTIONS_ON_THE_TABLE, ())) or None
            if ballot_read
            else None,
            asked_again=bool(ballot_read and ballot_read.asked_again),
            missing=is_eligible and ballot is None,
            reason=(ballot_read.missing or None) if ballot_read and ballot is None else None,
            excluded=not is_eligible,
            options_shown=options_shown if is_eligible else None,
        )


def _counterfactual_rows(
    case: Negotiation, slot_decision: SlotDecision, tally: Tally, decision_key: Mapping[str, str]
) -> Iterator[Row]:
    # C5 starts from the decision of C4, so one of the two conditions is enough.
    first_condition = "C4" if "C4" in case.config.conditions else "C5"
    if (
        slot_decision.strategy is None
        or slot_decision.outcome is None
        or case.condition.id != first_condition
    ):
        return
    outcomes = counterfactual_outcomes(
        tally, slot_decision.strategy, case.config.days, has_conflict=slot_decision.has_conflict
    )
    for operator, outcome in outcomes.items():
        yield CounterfactualRow(
            **decision_key,
            operator=operator,
            in_force=operator == slot_decision.strategy.operator,
            selected_option=outcome.selected_option,
            same_winner=outcome.selected_option == slot_decision.outcome.selected_option,
            margin=outcome.margin,
            decided_by=outcome.decided_by,
        )
