"""The tables of a negotiation, a class each: their columns and what these mean."""

from __future__ import annotations

import polars as pl

from folkmoot.kit import coding
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import RunFolder


class OfGroup(Row):
    """Columns that identify a group."""

    group_id: str = column("group of travellers")
    group_type: str = column(
        "family, elder_young (multigenerational), colleagues, spouses or strangers"
    )


class OfSession(OfGroup):
    """Columns that identify a session: a group under a condition."""

    condition: str = column(
        "C1 single user, C2 no mediation, C3 raw, C4 guided, C5 guided with feedback"
    )


class OfDecision(OfSession):
    """Columns that identify one decision of a session."""

    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or for lodging room_type or house_rule")


class GroupRow(OfGroup, table="groups"):
    size: int = column("number of members")
    roles: str = column("their roles, in order")


class MemberRow(OfGroup, table="members"):
    member_id: str = column("traveller within the group")
    member_name: str = column("how the member is called, by role")
    role: str = column("role within the group type")
    weight: float = column("weight in weighted averages")
    persona: str | None = column(
        "description that the member answers by; empty where preferences were given"
    )
    preferences_given: bool = column("the user stated the preferences; nobody was asked")


class PreferenceRow(OfGroup, table="preferences"):
    member_id: str = column("traveller within the group")
    member_name: str = column("how the member is called, by role")
    role: str = column("role within the group type")
    slot: str = column("one of the seven slots, in their fixed order")
    topic: str = column("the decision: the slot, or for lodging room_type or house_rule")
    text: str | None = column("the stated preference; empty where there is none")
    missing: str | None
    finish: str | None
    given: bool = column("stated by the user's file")
    options_shown: str = column("usual options in the order in which this member saw them")


class UtteranceRow(OfDecision, table="utterances"):
    turn: int
    phase: str = column("preference, synthesis, vote or feedback")
    round: int | None
    speaker: str = column("System, or the member's name")
    intent: str = column("what the turn does, and for which slot")
    text: str
    finish: str | None


class BallotRow(OfDecision, table="ballots"):
    member_id: str = column("traveller within the group")
    top_choice: str | None = column("option wanted most")
    acceptable: str | None = column("further options that would do")
    hard_no: str | None = column("options rejected")
    scores: str | None = column("option and score from -4 to 4, where scores are asked for")
    missing: bool = column("there is no ballot; the preference text alone counts")
    excluded: bool = column("the member has no vote in this slot and was not asked")
    options_shown: str | None = column("options in the order in which this member saw them")


class FeedbackRow(OfDecision, table="feedback"):
    round: int
    target: str = column("member who was asked")
    targeted: bool = column("the member was left out: no word in common with the decision")
    resolved: bool = column("whether it ended in agreement")
    question: str = column("what was asked")
    updated_explanation: str | None = column("what was adjusted")
    revised_decision: str | None = column("the decision as revised")
    refused_options: str | None = column(
        "options that a hard constraint had ruled out, so that the revision does not count"
    )
    refused_because: str | None = column(
        "why the revision does not count: struck (by a hard constraint), rejected (somebody who "
        "would get it strongly rejects it), split (it undoes a required split), unstated (it does "
        "not say who gets what)"
    )
    hard_no: str | None = column("options that the member asked came to reject")
    parse_error: bool = column("the reply was unreadable; the minimal structure was used")


class PortionRow(OfDecision, table="portions"):
    member_id: str = column("traveller within the group")
    option: str = column("what the decision gives the member")
    when: str = column("its days or branch, or the whole trip")


class ConfirmationRow(OfDecision, table="confirmations"):
    member_id: str = column("traveller within the group")
    confirmed: bool | None = column("whether the decision on record is what the talk came to")
    missing: str | None


class CounterfactualRow(OfDecision, table="counterfactuals"):
    operator: str = column("a rule, applied to the same texts and ballots")
    in_force: bool = column("it is the rule that decided")
    selected_option: str | None = column("the option that sums up what it would decide")
    same_winner: bool = column("that is the option of the rule in force")
    margin: float | None = column(
        "lead over the next option in what the rule goes by first (approvals, average, …); empty "
        "where it weighs no options against each other"
    )
    decided_by: str = column("rule, score or alphabetical")


class DecisionRow(OfDecision, table="decisions"):
    source: str = column(
        "what settled it: single_user, preferences, synthesis, operator, vote, feedback"
    )
    has_conflict: bool = column("whether the preferences conflict, as the mediator judged")
    stated_conflict: bool = column(
        "whether first choices differ or one is strongly rejected, by the texts"
    )
    strategy_id: str | None = column("canonical strategy (C4, C5)")
    operator: str | None = column("the rule that decides")
    proposed_strategy: str | None = column(
        "label that the model returned, before the clamp; empty if unreadable"
    )
    resolution_strategy: str | None = column("label that replaces it: the canonical id")
    drifted: bool | None = column(
        "whether the proposed label differs from the canonical id; empty if unreadable"
    )
    selected_option: str | None = column(
        "the option that sums up the decision; empty where there is none"
    )
    resolution_text: str = column("the decision in words, after feedback")
    dropped: str = column("options that nobody gets: stated by the mediator, else by the operator")
    overridden: str = column("options given to members who strongly reject them: option: members")
    mediator_words: str | None = column("what the mediator wrote, before any word was stripped")
    theory_words: str | None = column("words of the lexicon in what the mediator wrote (C3)")
    statement_agrees: bool | None = column(
        "the mediator's statement gives the same members the same options as the operator; empty "
        "before a vote and where the statement decides"
    )
    unread_entries: int | None = column(
        "entries of the mediator's statement that name no option or no member"
    )
    winner_by_source_ballots: str | None = column(
        "with ballots of scores: the winner by the same ballots in the source's form"
    )
    members_shown: str | None = column("members in the order in which the mediator saw them")
    options_shown: str | None = column("options in the order in which the mediator saw them")
    fell_back_to: str | None = column("operator that decided where the canonical one could not")
    infeasible: bool | None = column("every option breaks a hard constraint")
    ballots: str = column(
        "collected, partial, missing (counted by texts), not_held; none without lock"
    )
    subgrouping_required: bool = column("the group must part for this slot")
    subgrouping_optional: bool = column("the group may part for this slot")
    feedback_rounds: int = column("rounds of feedback held")
    resolved: bool | None = column("whether feedback ended in agreement")
    parse_error: bool = column("the synthesis reply was unreadable; the minimal structure was used")
    words: int = column("words spoken to come to the decision, stated preferences left out")
    rung: str | None = column("where on the ladder the synthesis reply was read")


class ScoreRow(OfDecision, table="scores"):
    member_id: str = column("traveller within the group")
    option: str = column("option on the table")
    score: int = column("the vote parser's score, with ballots where there were any")
    text_score: int | None = column("the same by the stated preference alone")
    strong_rejection: bool = column("score of -2 or less")
    primary: bool = column("the member's first choice")


class SatisfactionRow(OfDecision, table="satisfaction"):
    member_id: str = column("traveller within the group")
    satisfaction: float | None = column(
        "the member's own score of what was decided for the member, -2 to 4"
    )
    covered: float | None = column(
        "share of what may happen in which the member gets something spoken for"
    )


class MeasuresRow(OfSession, table="measures"):
    satisfaction: float | None = column("mean member score of what was decided, from −2 to 4")
    lowest_satisfaction: float | None = column("mean score of the group's least content member")
    inequality: float | None = column("Gini of members' mean scores, rescaled to 0 to 1")
    covered_share: float | None = column("share of members who get something they spoke for")
    minority_coverage_share: float | None = column(
        "share of members outside the most common first choice who get their first choice"
    )
    minority_promised_share: float | None = column(
        "share of members outside the most common first choice who get theirs or are promised it"
    )
    conflict_rate: float | None = column("share of decisions with a conflict")
    drift_rate: float | None = column(
        "share of locked decisions with a readable synthesis where the model named another strategy"
    )
    feedback_resolution_rate: float | None = column(
        "share of decisions under feedback that ended resolved"
    )
    split_share: float | None = column(
        "share of cuisine, attraction and event where the group may or must part"
    )
    words_per_decision: float | None = column("words spoken to come to a decision")
    confirmed_share: float | None = column(
        "share of members' words on a decision that it is what the talk came to"
    )
    undecided_share: float | None = column(
        "share of the mediator's decisions that give nobody anything"
    )


TABLES = (
    *(GroupRow, MemberRow, PreferenceRow, UtteranceRow, BallotRow, FeedbackRow, DecisionRow),
    *coding.TABLES,
    *(PortionRow, ConfirmationRow, ScoreRow, CounterfactualRow, SatisfactionRow, MeasuresRow),
)
# Name → what it is, of the measures of a session.
MEASURES = {n: said for n, said in MeasuresRow.meanings().items() if n not in OfSession.columns()}


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: no preference was had, or nothing the mediator said."""
    if run.table("preferences")["text"].is_null().all():
        return "no member stated a preference that could be read"
    mediated = run.table("decisions").filter(~pl.col("condition").is_in(["C1", "C2"]))
    unread = mediated["parse_error"].all() and not mediated.is_empty()
    return "no reply of the mediator could be read" if unread else ""
