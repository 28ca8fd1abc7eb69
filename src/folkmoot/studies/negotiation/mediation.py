"""The steps that a mediator leads: the proposal and the feedback rounds."""

# In a feedback round one member reacts, and the mediator may revise the decision. An accepted
# revision replaces the whole decision. If a revision is rejected, the dialogue gives the reason.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import Scope
from folkmoot.hints import capitalise, join_words, natural_sort_key
from folkmoot.provenance import SourcedText, cell_id, concatenate_texts, quote_value
from folkmoot.studies.negotiation.ballots import (
    THEORY,
    UNMATCHED,
    Problems,
    SpeakerQuestion,
    ask_and_check,
    collect_responses,
)
from folkmoot.studies.negotiation.decision import (
    NO_TERMS,
    NOTHING_DECIDED,
    SYSTEM,
    SYSTEM_SPEAKER,
    UNREAD_STEPS,
    DialogueTurn,
    FeedbackRound,
    Negotiation,
    Origin,
    SlotDecision,
    Terms,
    as_sentence,
    conflict_part,
    decision_sentence,
    format_contract,
    overridden_rejections,
    render_change,
    render_decision,
    restore_capitals,
)
from folkmoot.studies.negotiation.measures import satisfaction_of_members, text_scores_of
from folkmoot.studies.negotiation.participants import mediator_speaker
from folkmoot.studies.negotiation.quotes import (
    OPERATOR,
    TARGET_NAME,
    in_quotation_marks,
    left_out,
    list_preferences,
    quote_member_groups,
    quote_name,
    quote_names,
    quote_options,
    quote_strategies,
    quote_strategy,
    quote_title,
    quote_topic,
    quote_type,
    record_late_options,
    show_sentence,
    show_shares,
)
from folkmoot.studies.negotiation.rules.operators import Outcome, Portion
from folkmoot.studies.negotiation.rules.replies import (
    OPTIONS_ON_THE_TABLE,
    Decided,
    FeedbackReply,
    GuidedSynthesis,
    PlainSynthesis,
    Settlement,
    Vocabulary,
    is_same_decision,
    json_answer,
    parse_settlement,
    read_hard_no,
    sort_lines,
    summary_option,
)
from folkmoot.studies.negotiation.rules.strategies import Member, Strategy, TripTopic
from folkmoot.studies.negotiation.rules.tally import (
    Branch,
    MemberBallot,
    Tally,
    describe_coverage,
    summarise_vote,
    text_scores,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import new_option_of

M = TypeVar("M", bound=BaseModel)


class MediatorReply(NamedTuple, Generic[M]):
    """A parsed reply of the mediator."""

    value: M
    parse_step: str
    finish: str | None
    # Problems of the first reply, if the mediator was asked again.
    first_problems: Problems
    # The address of the reply in the journal.
    address: str


_PROMPTS: Mapping[type[BaseModel], str] = {
    PlainSynthesis: "synthesis_raw",
    GuidedSynthesis: "synthesis_guided",
    FeedbackReply: "feedback",
}


async def ask_mediator(
    scope: Scope,
    case: Negotiation,
    variables: Mapping[str, object],
    vocabulary: Vocabulary,
    minimal: M,
    find_problems: Callable[[M], Problems],
) -> MediatorReply[M]:
    """Ask the mediator for a reply of the same type as `minimal`.

    - `variables`: the variables of the prompt template.
    - `vocabulary`: the options, members and times that the reply may name.
    - `minimal`: the reply to use if the mediator's reply is missing or unreadable.
    - `find_problems`: returns the problems of a readable reply.
    """
    # If there are problems, the mediator is asked once more.
    topic = case.topic(vocabulary.topic)
    allowed = vocabulary.allowed_values
    allowed["dialogue.speaker"] = (SYSTEM, *_voiced_names(case))
    if isinstance(minimal, FeedbackReply):
        allowed["hard_no"] = vocabulary.options
    order = case.config.field_order
    answer = json_answer(type(minimal), allowed, order=order, fallback=minimal)
    prompt = scope.prompt(
        _PROMPTS[type(minimal)],
        **variables,
        group_title=quote_title(case.group),
        days=quote_value(case.config.days, "material", "study.days"),
        label=quote_topic(topic, "label"),
        members=list_preferences(case, topic),
        groups=quote_member_groups(case.group),
        answer_format=answer.describe_format({}),
        members_speak=case.config.members_speak,
    )
    question = SpeakerQuestion(mediator_speaker(scope), prompt, topic.label)
    result, problems = await ask_and_check(scope, question, answer, find_problems)
    if isinstance(result.value, Missing):
        reason = result.value.reason if result.value.reason in (DECLINED, DROPPED) else "minimal"
        return MediatorReply(minimal, reason, result.reply.finish, problems, result.address)
    return MediatorReply(
        result.value, result.parse_step, result.reply.finish, problems, result.address
    )


def _voiced_names(case: Negotiation) -> list[str]:
    # The mediator may write utterances for these members.
    return [] if case.config.members_speak else [member.name for member in case.heard_members]


# --- the proposal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """The mediator's proposal for one decision."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    # The name that the mediator gave to the strategy, or None if it could not be read.
    label: str | None
    opening: str
    # The mediator's complete text.
    said: str
    # The decision in that text.
    stated: Settlement
    responses: tuple[tuple[str, str], ...]
    parse_step: str
    dropped_lines: int
    finish: str | None = None
    address: str = ""
    # The theory terms (see lexicon.yaml) in that text, under C3.
    terms: Terms = NO_TERMS
    # Theory terms in the first reply, if the mediator was asked again.
    terms_first: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()

    def line_origin(self, part: str, author: str = "") -> Origin:
        """Return the origin of an utterance that the mediator's reply contains.

        - `part`: the part of the reply that contains the utterance.
        - `author`: the id of the speaker who wrote the utterance.
        """
        return Origin(self.address, part, author, self.finish)


async def propose_decision(
    scope: Scope,
    case: Negotiation,
    topic: TripTopic,
    tally: Tally,
    strategy: Strategy | None = None,
    outcome: Outcome | None = None,
) -> Proposal:
    """Ask the mediator for a proposal.

    - `strategy`: the strategy that the mediator must follow. None for free reasoning.
    - `outcome`: the decision of a fixed rule, which the mediator explains. None if no rule decided.
    """
    group = case.group
    variables: dict[str, object] = {
        "names": quote_names(group, [member.id for member in case.mediation_order(topic)]),
        "options": quote_options(case, topic, case.shuffled_names(topic, tally.options)),
    }
    if strategy is not None:
        variables |= {
            "group_type": quote_type(group),
            "topic": quote_topic(topic, "topic"),
            "strategy": quote_strategy(strategy),
            "strategies": quote_strategies(group),
            "outcome": _show_outcome(scope, case, topic, outcome) if outcome else "",
        }
    model = GuidedSynthesis if strategy else PlainSynthesis
    minimal = model(
        has_conflict=tally.has_conflict,
        conflict_description="",
        resolution_explanation="",
        decision=[],
    )
    terms_first: list[str] = []

    def find_problems(reply: PlainSynthesis | GuidedSynthesis) -> Problems:
        problems: dict[str, Mapping[str, Sequence[str]]] = {}
        if unmatched := _read_statement(case, topic, vocabulary, reply).unmatched:
            problems[UNMATCHED] = unmatched
        if strategy is None:
            terms_first.extend(case.find_terms(topic, _all_words(reply)).theory)
            if terms_first:
                problems[THEORY] = {THEORY: terms_first}
        return problems

    portions_in_force = outcome.portions if outcome else ()
    vocabulary = Vocabulary(group, topic.id, tally.options, case.config.days, portions_in_force)
    result = await ask_mediator(scope, case, variables, vocabulary, minimal, find_problems)
    reply = result.value
    opening, lines, dropped = sort_lines(reply.dialogue, _voiced_names(case))
    texts = (opening, reply.conflict_description, reply.resolution_explanation)
    label = None
    if isinstance(reply, GuidedSynthesis) and result.parse_step not in UNREAD_STEPS:
        label = reply.resolution_strategy or None
    return Proposal(
        reply.has_conflict,
        reply.conflict_description,
        reply.resolution_explanation,
        label,
        opening,
        "\n".join(filter(None, (*texts, *_words_of_statement(reply)))),
        _read_statement(case, topic, vocabulary, reply),
        tuple(lines),
        result.parse_step,
        dropped,
        result.finish,
        result.address,
        case.find_terms(topic, _all_words(reply)) if strategy is None else NO_TERMS,
        tuple(terms_first),
        tuple(result.first_problems),
    )


def _show_outcome(scope: Scope, case: Negotiation, topic: TripTopic, outcome: Outcome) -> str:
    shares = show_shares(scope, case, topic, OPERATOR, outcome.portions)
    sentence = decision_sentence(case.group, outcome, shares)
    return show_sentence(scope, case, topic, OPERATOR, sentence)


def say_for_members(
    scope: Scope,
    case: Negotiation,
    topic: TripTopic,
    intent: str,
    lines: Sequence[tuple[str, str]],
    origin: Origin,
) -> list[DialogueTurn]:
    """Record utterances that the mediator wrote in the name of members.

    - `intent`: what the utterances do. A key of `PHASES`, such as "user_vote".
    - `lines`: for each utterance the name of the member and the text.
    - `origin`: the mediator's reply that contains the utterances.
    """
    # Each utterance gets its line number as part of the origin.
    by_name = {name: id for id, name in case.group.names_by_member.items()}
    return [
        case.record_line(
            scope,
            by_name[name],
            intent,
            words,
            topic,
            origin._replace(part=f"{origin.part}{number}", author=SYSTEM_SPEAKER.id),
        )
        for number, (name, words) in enumerate(lines, start=1)
    ]


def _read_statement(
    case: Negotiation, topic: TripTopic, vocabulary: Vocabulary, reply: Decided
) -> Settlement:
    # Such an option would carry the word to the planner and to later decisions.
    new_options = (new_option_of(share.new_option, ()) for share in reply.decision)
    theory_options = tuple(
        option for option in new_options if option and case.find_terms(topic, option).theory
    )
    return parse_settlement(replace(vocabulary, forbidden=theory_options), reply)


def _words_of_statement(reply: PlainSynthesis | GuidedSynthesis) -> list[str]:
    return [
        ", ".join(filter(None, (share.option, share.new_option, share.when)))
        for share in reply.decision
    ]


def _all_words(reply: PlainSynthesis | GuidedSynthesis) -> str:
    texts = (reply.conflict_description, reply.resolution_explanation)
    lines = (line.text for line in reply.dialogue)
    return "\n".join((*texts, *lines, *_words_of_statement(reply), *reply.dropped))


async def hold_feedback(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Run feedback rounds until a round ends in agreement, at most `max_feedback_rounds`.

    Returns the revised decision.
    """
    # If the first choices do not conflict, or if the condition has no feedback, the decision stays
    # unchanged.
    if not (case.has_feedback and decision.has_conflict):
        return decision
    topic, scope = case.topic(decision.topic), scope.child("feedback")
    for number in range(1, case.config.max_feedback_rounds + 1):
        decision = await _feedback_round(scope.child(f"round{number}"), case, topic, decision)
        if decision.is_resolved:
            break
    return decision


def _member_to_ask(
    case: Negotiation, topic: TripTopic, decision: SlotDecision
) -> tuple[Member, bool]:
    # The second value says whether the decision left out this member.
    asked_ids = {feedback_round.target for feedback_round in decision.feedback}
    texts = case.texts(topic.id)
    left_out_members = left_out(case.group, texts, decision.resolution_text)
    if left_out_members:
        return next(
            (member for member in left_out_members if member.id not in asked_ids),
            left_out_members[0],
        ), True
    # Use the source's scores of texts. The members' own scores are for the researcher alone, so
    # they must not influence the mediation.
    scores = text_scores_of(case.group, texts, decision.options, decision.portions)
    satisfaction = satisfaction_of_members(scores, decision.portions)
    candidates = [
        member for member in case.heard_members if member.id not in asked_ids
    ] or case.heard_members
    return min(
        candidates,
        key=lambda member: (satisfaction.get(member.id, 0.0), natural_sort_key(member.id)),
    ), False


async def _feedback_round(
    scope: Scope, case: Negotiation, topic: TripTopic, standing: SlotDecision
) -> SlotDecision:
    number = len(standing.feedback) + 1
    target, is_targeted = _member_to_ask(case, topic, standing)
    quote_listed_options = partial(quote_options, case, topic, came_up=standing.came_up)
    wished_options = quote_listed_options(
        _wished_option(case.texts(topic.id).get(target.id, ""), standing.options)
    )
    question = concatenate_texts(
        (
            quote_name(case.group, target.id),
            ", does this decision address your wish",
            *((" for ", *wished_options) if wished_options else ()),
            "?",
        ),
        plain=None,
    )
    tally = case.tally_topic(topic, standing.cast)
    options_on_table = tuple(
        dict.fromkeys([*standing.options, *(portion.option for portion in standing.portions)])
    )
    step, is_by_mediator = f"round{number}", standing.is_stated_by_mediator
    standing_text = show_sentence(
        scope, case, topic, step, standing.resolution_text, stated=is_by_mediator
    )
    target_cell = cell_id(TARGET_NAME, *(case.group.id, case.compared_as, topic.id), number)
    variables = {
        "round": quote_value(number, "value", "protocol.round"),
        "rounds": quote_value(
            case.config.max_feedback_rounds, "material", "study.max_feedback_rounds"
        ),
        "options": quote_listed_options(case.shuffled_names(topic, standing.options)),
        "decision": standing_text or SourcedText("nothing is decided"),
        "shares": show_shares(scope, case, topic, step, standing.portions, stated=is_by_mediator),
        "refusals": [
            {
                "name": quote_name(case.group, member.id),
                "options": quote_listed_options(rejected_options),
            }
            for member in case.mediation_order(topic)
            if (rejected_options := _rejected_options(tally, member))
        ],
        "target": quote_value(target.name, "value", target_cell),
        "targeted": is_targeted,
        "question": question,
    }

    own_turns: list[DialogueTurn] = []
    if case.config.members_speak:
        origin = Origin(round=number)
        own_turns = [_say_question(scope, case, standing, target, str(question), origin)]
        own_turns += await collect_responses(
            scope.child("reaction"), case, standing, own_turns, [target], number
        )
        reactions_quoted = [in_quotation_marks(turn.utterance) for turn in own_turns[1:]]
        variables["reaction"] = next(iter(reactions_quoted), SourcedText("no answer"))
    vocabulary = Vocabulary(
        case.group, topic.id, options_on_table, case.config.days, in_force=standing.portions
    )

    def parse_settlement(reply: FeedbackReply) -> Settlement:
        return _read_statement(case, topic, vocabulary, reply)

    def read_refusals(reply: FeedbackReply) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
        portion_options = (portion.option for portion in parse_settlement(reply).portions)
        unmatched: list[str] = []
        known_options = tuple(dict.fromkeys([*options_on_table, *portion_options]))
        return *read_hard_no(reply, known_options, unmatched), unmatched

    def find_problems(reply: FeedbackReply) -> Problems:
        unmatched = dict(parse_settlement(reply).unmatched)
        if unread_refusals := read_refusals(reply)[2]:
            unmatched[OPTIONS_ON_THE_TABLE] = (
                *unmatched.get(OPTIONS_ON_THE_TABLE, ()),
                *unread_refusals,
            )
        return {UNMATCHED: unmatched} if unmatched else {}

    minimal = FeedbackReply(decision=[])
    result = await ask_mediator(scope, case, variables, vocabulary, minimal, find_problems)
    reply = result.value
    stated = parse_settlement(reply)
    hard_no, objections, _ = read_refusals(reply)
    cast = _with_refusals(standing, target.id, hard_no, objections)
    decision = _state_after_revision(case, topic, replace(standing, cast=cast), reply, stated)
    asked_question = reply.targeted_feedback_question
    # A round is not resolved if the revision was rejected, or if the member gets an option that the
    # member rejects in this round.
    rejected = (
        cast.get(target.id, MemberBallot(target.id)).hard_no if cast is not standing.cast else ()
    )
    is_content = not decision.feedback[-1].because and not any(
        target.id in decision.overridden.get(option, ()) for option in rejected
    )
    round_ = replace(
        decision.feedback[-1],
        round=number,
        target=target.id,
        targeted=is_targeted,
        resolved=None if reply.resolved is None else reply.resolved and is_content,
        question=asked_question
        if target.name.casefold() in asked_question.casefold() and not own_turns
        else str(question),
        hard_no=hard_no,
        objections=objections,
        parse_error=result.parse_step in UNREAD_STEPS,
    )
    asked_again = dict.fromkeys([*standing.asked_again, *result.first_problems])
    decision = replace(
        decision, feedback=(*standing.feedback, round_), asked_again=tuple(asked_again)
    )
    _, reactions, dropped = sort_lines(reply.dialogue, _voiced_names(case))
    decision = replace(decision, dropped_lines=standing.dropped_lines + dropped)
    decision = record_late_options(scope, case, topic, decision)
    origin = Origin(result.address, finish=result.finish, round=number)
    if not own_turns:
        question_origin = origin._replace(part="question")
        own_turns = [
            _say_question(scope, case, decision, target, round_.question, question_origin),
            *say_for_members(
                scope, case, topic, "user_feedback", reactions, origin._replace(part="reaction")
            ),
        ]
    answer = _say_answer(scope, case, topic, decision, origin._replace(part="answer"))
    return decision.with_lines(*own_turns, answer)


def _wished_option(text: str, options: Sequence[str]) -> list[str]:
    scores = text_scores(text, options)
    best = min(scores, key=lambda option: (-scores[option], option), default="")
    return [best] if best and scores[best] > 0 else []


def _rejected_options(tally: Tally, member: Member) -> list[str]:
    return [option for option in tally.options if member.id in tally.rejecting_voters(option)]


def _with_refusals(
    slot_decision: SlotDecision, member: str, rejected: Sequence[str], objections: Sequence[str]
) -> Mapping[str, MemberBallot]:
    if not (rejected or objections):
        return slot_decision.cast
    own_ballot = slot_decision.cast.get(member, MemberBallot(member))
    hard_no = tuple(dict.fromkeys((*own_ballot.hard_no, *rejected)))
    all_objections = tuple(dict.fromkeys((*own_ballot.objections, *objections)))
    return {
        **slot_decision.cast,
        member: replace(own_ballot, hard_no=hard_no, objections=all_objections),
    }


def _state_after_revision(
    case: Negotiation,
    topic: TripTopic,
    standing: SlotDecision,
    reply: FeedbackReply,
    stated: Settlement,
) -> SlotDecision:
    because, refused = _revision_problem(case, topic, standing, stated, reply)
    decision = replace(standing, confirmed={}, refused={})
    if not because and stated.portions:
        decision = _revise_state(case, decision, stated)
    round_ = FeedbackRound(
        round=0,
        target="",
        targeted=False,
        resolved=None,
        question="",
        updated_explanation=reply.updated_resolution_explanation,
        revised_decision=reply.final_revised_decision,
        refused=refused,
        because=because,
        change=render_change(case.group, standing.portions, decision.portions),
    )
    return derive_decision(case, topic, replace(decision, feedback=(round_,)))


def _revision_problem(
    case: Negotiation,
    topic: TripTopic,
    standing: SlotDecision,
    stated: Settlement,
    reply: FeedbackReply,
) -> tuple[str, tuple[str, ...]]:
    # `standing` is the decision before the revision, and `stated` is the revision. The result names
    # the options that caused the rejection. Both parts are empty if the revision is accepted or
    # states nothing new.
    served_members = {member for portion in stated.portions for member in portion.members}
    if (
        stated.unread_count
        or {member for portion in standing.portions for member in portion.members} - served_members
    ):
        empty_wordings = (), words_of(standing.resolution_text)
        revised_words = words_of(reply.final_revised_decision)
        has_change = stated.unread_count or stated.portions or revised_words not in empty_wordings
        return ("unstated" if has_change else ""), ()
    removed_options = (
        {option for option, _ in standing.outcome.removed} if standing.outcome else set()
    )
    returned_options = tuple(
        dict.fromkeys(
            portion.option for portion in stated.portions if portion.option in removed_options
        )
    )
    if returned_options:
        return "struck", returned_options
    overridden_before = case.overridden_members(topic, standing.portions, standing.cast)
    overridden_after = case.overridden_members(topic, stated.portions, standing.cast).items()
    rejected_options = tuple(
        option
        for option, member_ids in overridden_after
        if set(member_ids) - set(overridden_before.get(option, ()))
    )
    if rejected_options:
        return "rejected", rejected_options
    if standing.subgrouping_required and _split_branches(case, stated.portions) is None:
        return "split", ()
    return "", ()


def _revise_state(case: Negotiation, standing: SlotDecision, stated: Settlement) -> SlotDecision:
    portions = stated.portions
    if standing.subgrouping_required:
        first_portion, second_portion = portions
        portions = (replace(first_portion, when="Group A"), replace(second_portion, when="Group B"))
    if is_same_decision(portions, standing.portions, case.config.days):
        return standing
    return replace(
        standing,
        portions=portions,
        selected_option=summary_option(portions),
        dropped=stated.dropped,
        resolution_text=render_decision(case.group, portions),
        source="feedback",
    )


def _split_branches(case: Negotiation, portions: Sequence[Portion]) -> tuple[Branch, Branch] | None:
    # A split has two portions with different options. Each member who takes part is in exactly one.
    if len(portions) != 2:
        return None
    first_branch, second_branch = (Branch(portion.option, portion.members) for portion in portions)
    has_all_members = sorted((*first_branch.members, *second_branch.members)) == sorted(
        member.id for member in case.heard_members
    )
    return (
        (first_branch, second_branch)
        if has_all_members and first_branch.anchor != second_branch.anchor
        else None
    )


def derive_decision(
    case: Negotiation, topic: TripTopic, slot_decision: SlotDecision
) -> SlotDecision:
    """Return the decision with its derived fields computed, such as the summary of the vote."""
    # They follow from the portions and the ballots.
    tally = case.tally_topic(topic, slot_decision.cast)
    is_counted = (
        slot_decision.source == "vote"
        or slot_decision.subgrouping_required
        or slot_decision.subgrouping_optional
    )
    is_counted = is_counted or slot_decision.vote_summary is not None
    options_by_member = {
        member.id: {
            portion.option for portion in slot_decision.portions if member.id in portion.members
        }
        for member in tally.voters
    }
    has_coverage = (
        is_counted and slot_decision.strategy is not None and slot_decision.strategy.votes
    )
    id, selected_option = slot_decision.strategy_id or "", slot_decision.selected_option
    given_options = {portion.option for portion in slot_decision.portions}
    dropped = slot_decision.dropped
    # In feedback the mediator states the dropped options itself.
    if slot_decision.source != "feedback":
        dropped = tuple(option for option in tally.options if option not in given_options)
    overridden = case.overridden_members(topic, slot_decision.portions, slot_decision.cast)
    return replace(
        slot_decision,
        options=tally.options,
        dropped=dropped,
        overridden=overridden,
        overridden_unasked=overridden,
        vote_summary=summarise_vote(tally, id, selected_option, slot_decision.ballots)
        if is_counted
        else None,
        coverage=describe_coverage(topic.slot_name, tally, selected_option, options_by_member)
        if has_coverage
        else None,
        split=_split_branches(case, slot_decision.portions)
        if slot_decision.subgrouping_required
        else None,
    )


_WHY_NOT = {
    "struck": "{refused} was ruled out and cannot come back",
    "rejected": "{refused} would go against a firm no, so the decision stays as it was",
    "split": "The group must split here, so the decision stays as it was",
    "unstated": "The revision does not say who would get what, so the decision stays as it was",
}


def _say_question(
    scope: Scope,
    case: Negotiation,
    decision: SlotDecision,
    target: Member,
    question: str,
    origin: Origin,
) -> DialogueTurn:
    assert decision.strategy_id is not None
    text = format_contract(
        conflict_part(decision.topic, decision.has_conflict),
        decision.strategy_id,
        "Stands as announced" if origin.round == 1 else "Stands as it is now",
        f"{target.name} is asked in round {origin.round}",
        question,
    )
    topic = case.topic(decision.topic)
    return case.record_line(scope, SYSTEM, "sys_feedback", text, topic, origin)


def _say_answer(
    scope: Scope, case: Negotiation, topic: TripTopic, decision: SlotDecision, origin: Origin
) -> DialogueTurn:
    round_ = decision.feedback[-1]
    target, strategy = case.group.names_by_member[round_.target], decision.strategy_id
    assert strategy is not None
    if round_.because:
        reason = _WHY_NOT[round_.because].format(refused=join_words(round_.refused))
    else:
        acceptance = f"{target} {'accepts it' if round_.resolved else 'is not content yet'}"
        if round_.resolved is None:
            acceptance = f"It is not clear whether {target} accepts it"
        if round_.resolved and any(
            round_.target in member_ids for member_ids in decision.overridden.values()
        ):
            acceptance += " all the same"
        reason = round_.change or acceptance
    overridden_text = overridden_rejections(case.group, decision.overridden)
    reason = " ".join(filter(None, (as_sentence(reason), as_sentence(overridden_text))))
    reason = restore_capitals(capitalise(reason))
    if round_.resolved:
        next_step = "Take the decision to the plan"
    elif round_.round < case.config.max_feedback_rounds:
        next_step = "Ask once more"
    else:
        next_step = "Keep the decision as it is"
    conflict = conflict_part(topic.id, decision.has_conflict)
    decision_text = decision.resolution_text or NOTHING_DECIDED
    text = format_contract(conflict, strategy, decision_text, reason, next_step)
    return case.record_line(scope, SYSTEM, "sys_feedback", text, topic, origin)
