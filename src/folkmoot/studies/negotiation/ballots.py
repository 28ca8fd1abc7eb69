"""Questions that each member answers alone.

- Ballots: a member votes on the options of a topic.
- Own scores: a member scores options for the researcher, unseen by mediator and members.
- Confirmations: a member says whether a recorded decision is right.
- Responses: a member answers the mediator.
"""

# Before the mediation each member scores the options once. No other speaker sees these own scores.
# They measure satisfaction under all conditions. Options that are added later are scored later.
# After a topic is decided, each member confirms the recorded decision or refuses a part of it.
# Prompts list the possible values of an answer. If a part of an answer matches no listed value, the
# member is asked once more.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_types import DECLINED, Json, Missing, Text
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.engine.session.asking import AskResult
from folkmoot.engine.session.session import Scope
from folkmoot.hints import collapse_spaces
from folkmoot.provenance import (
    SourcedText,
    alter_text,
    cell_id,
    concatenate_texts,
    enumerate_texts,
    quote_value,
)
from folkmoot.studies.negotiation.decision import (
    SYSTEM,
    UNREAD_STEPS,
    DialogueTurn,
    Negotiation,
    Origin,
    OwnScoresOfTopic,
    SlotDecision,
)
from folkmoot.studies.negotiation.participants import member_speaker
from folkmoot.studies.negotiation.quotes import (
    RECORD,
    RESOLUTION,
    in_quotation_marks,
    quote_options,
    quote_preference,
    quote_topic,
    show_shares,
)
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.replies import (
    LOWEST_SCORE,
    BallotForm,
    BallotRead,
    OwnScores,
    ScoreForm,
    json_answer,
    read_ballot,
    read_scores,
)
from folkmoot.studies.negotiation.rules.strategies import Member, TripTopic
from folkmoot.studies.negotiation.rules.tally import MemberBallot, Tally, text_scores
from folkmoot.studies.negotiation.rules.vocabulary import describe_mismatches
from folkmoot.studies.negotiation.tables import OwnScoreRow

COLLECTED, PARTIAL, MISSING, NOT_HELD = "collected", "partial", "missing", "not_held"
M = TypeVar("M", bound=BaseModel)


# The reasons for a re-ask.
THEORY, UNMATCHED = "theory", "unmatched"
# Reason → the kind of name that is missing → the entries without such a name.
Problems = Mapping[str, Mapping[str, Sequence[str]]]


class SpeakerQuestion(NamedTuple):
    """A question to one speaker."""

    speaker: Speaker
    prompt: str
    # The subject of the question, in a few words.
    about: str
    # The options in the prompt.
    options: Sequence[str] = ()


async def ask_and_check(
    scope: Scope,
    question: SpeakerQuestion,
    answer: Json[M],
    find_problems: Callable[[M], Problems],
) -> tuple[AskResult[M], Problems]:
    """Ask for a JSON reply, and ask once more if the reply has problems.

    Returns the last readable answer and the problems of the first reply.
    """
    # The second question names the problems. If the speaker then declines, the answer is missing
    # with the reason `declined`.
    speaker, prompt, about, options = question
    first = await scope.ask_detailed(speaker, prompt, answer_type=answer, about=about)
    if isinstance(first.value, Missing) or first.parse_step in UNREAD_STEPS:
        return first, {}
    problems = find_problems(first.value)
    if not problems:
        return first, {}
    quoted_options = {str(option): option for option in options}

    # An entry that repeats an option of the prompt keeps the source of that option. Any other entry
    # comes from the speaker's reply.
    def quote_entry(entry: str) -> str:
        return quoted_options.get(entry) or quote_value(entry, "reply", first.address, speaker.id)

    problem_texts = [
        _describe_problem(
            why,
            {word: list(map(quote_entry, entries)) for word, entries in entries_by_word.items()},
        )
        for why, entries_by_word in problems.items()
    ]
    reply = quote_value(first.text, "reply", first.address, speaker.id)
    history = Transcript((Utterance("", prompt), Utterance(speaker.id, reply)))
    reask_prompt = scope.prompt("again", problems=problem_texts)
    second = await scope.ask_detailed(
        speaker, reask_prompt, history=history, answer_type=answer, about=about
    )
    is_declined = isinstance(second.value, Missing) and second.value.reason == DECLINED
    is_unread = isinstance(second.value, Missing) or second.parse_step in UNREAD_STEPS
    # An unreadable second reply must not cost the readable first one.
    return (first if is_unread and not is_declined else second), problems


def _describe_problem(why: str, entries: Mapping[str, Sequence[str]]) -> SourcedText:
    if why == UNMATCHED:
        return describe_mismatches(entries)
    terms = [concatenate_texts(("“", term, "”"), plain=None) for term in entries[THEORY]]
    return concatenate_texts(
        ("Use plain words in place of ", enumerate_texts(terms), "."), plain=None
    )


# --- ballots -----------------------------------------------------------------------------------


async def collect_ballots(
    scope: Scope, case: Negotiation, topic: TripTopic, tally: Tally, proposal: str
) -> dict[str, BallotRead]:
    """Ask every eligible member for a ballot.

    `proposal`: the mediator's proposal, as a `SourcedText`.

    Returns a map from member id to parsed ballot.
    """
    # If a member's ballot is missing, the vote counts only the preference that the member has
    # stated.
    uses_scores = case.config.ballots == "scores"

    async def ask_for_ballot(member_scope: Scope, member: Member) -> BallotRead:
        options = case.shuffled_names(topic, tally.options, member.id)
        fields = (
            ("scores.option", "hard_no") if uses_scores else ("top_choice", "acceptable", "hard_no")
        )
        answer = json_answer(
            ScoreForm if uses_scores else BallotForm,
            dict.fromkeys(fields, options),
            order=case.config.field_order,
        )

        def parse_ballot_form(form: BaseModel) -> BallotRead:
            if isinstance(form, ScoreForm):
                return read_scores(form, member.id, tally.options)
            assert isinstance(form, BallotForm)
            return read_ballot(form, member.id, tally.options)

        quoted_options = quote_options(case, topic, options)
        prompt = member_scope.prompt(
            "ballot_scores" if uses_scores else "ballot",
            label=quote_topic(topic, "label"),
            preference=quote_preference(case, topic, member.id),
            proposal=proposal or SourcedText("none"),
            options=quoted_options,
            answer_format=answer.describe_format({}),
        )
        speaker = member_speaker(member_scope, case.group, member, case.config.days)
        question = SpeakerQuestion(speaker, prompt, topic.label, quoted_options)
        return await ask_for_options(member_scope, question, answer, parse_ballot_form)

    return await scope.map(case.eligible_voters(topic), ask_for_ballot)


async def ask_for_options(
    scope: Scope,
    question: SpeakerQuestion,
    answer: Json[M],
    parse: Callable[[M], BallotRead],
) -> BallotRead:
    """Ask one member to fill in a ballot or to score options, and return the parsed answer.

    `parse`: converts the reply into a `BallotRead`.
    """

    # If entries match no option, the member is asked once more.
    def find_problems(form: M) -> Problems:
        unmatched = parse(form).unmatched
        return {UNMATCHED: unmatched} if unmatched else {}

    result, problems = await ask_and_check(scope, question, answer, find_problems)
    if isinstance(result.value, Missing):
        return BallotRead(None, missing=result.value.reason, asked_again=bool(problems))
    return replace(parse(result.value), asked_again=bool(problems), address=result.address)


def state_of_ballots(ballots_read: Mapping[str, BallotRead]) -> str:
    """Return a word that says how many ballots could be read.

    - `collected`: all ballots.
    - `partial`: some ballots.
    - `missing`: no ballot.
    """
    cast_ballots = [
        ballot_read for ballot_read in ballots_read.values() if ballot_read.ballot is not None
    ]
    return (
        COLLECTED
        if len(cast_ballots) == len(ballots_read)
        else PARTIAL
        if cast_ballots
        else MISSING
    )


def ballot_as_text(ballot: MemberBallot) -> str:
    """Return a ballot as one line of text."""
    # Its parts are `top_choice`, `acceptable` and `hard_no`, or `scores` and `hard_no`. An empty
    # part is "none".
    parts = {"top_choice": ballot.top_choice, "acceptable": ", ".join(ballot.acceptable)}
    if ballot.scores:
        parts = {
            "scores": ", ".join(f"{option} {score:g}" for option, score in ballot.scores.items())
        }
    parts["hard_no"] = ", ".join((*ballot.hard_no, *ballot.objections))
    return "; ".join(f"{name}: {value or 'none'}" for name, value in parts.items())


# --- own scores --------------------------------------------------------------------------------


async def collect_own_scores(scope: Scope, case: Negotiation) -> dict[str, OwnScoresOfTopic]:
    """Ask all members to score the options that the stated preferences name.

    Returns the scores by topic, member id and option.
    """

    async def ask_member(at: Scope, member: Member) -> dict[str, dict[str, float]]:
        return {
            topic.id: await _ask_for_scores(
                at.child(topic.id), case, topic, member, case.tally_topic(topic).options
            )
            for topic in case.topics
        }

    by_member = await scope.map(case.group.members, ask_member)
    return {
        topic.id: {member: scores[topic.id] for member, scores in by_member.items()}
        for topic in case.topics
    }


async def score_late_options(
    scope: Scope, case: Negotiation, decision: SlotDecision
) -> SlotDecision:
    """Ask all members to score late options, and return the decision with these scores.

    A late option is one that was first named after the members had scored the options of the topic.
    """
    topic = case.topic(decision.topic)
    tally = case.with_all_statements.tally_topic(topic)
    named_options = dict.fromkeys(
        [*decision.options, *(portion.option for portion in decision.portions)]
    )
    scored_options = {option for by_option in decision.late_scores.values() for option in by_option}
    late_options = tuple(
        option
        for option in named_options
        if option not in tally.options and option not in scored_options
    )
    if not late_options:
        return decision

    async def ask_member(member_scope: Scope, member: Member) -> dict[str, float]:
        return await _ask_for_scores(
            member_scope, case, topic, member, late_options, decision.came_up
        )

    scores_by_member = await scope.map(case.group.members, ask_member)
    earlier_scores = decision.late_scores
    scores = {
        member: {**earlier_scores.get(member, {}), **new_scores}
        for member, new_scores in scores_by_member.items()
    }
    return replace(decision, late_scores=scores)


async def _ask_for_scores(
    scope: Scope,
    case: Negotiation,
    topic: TripTopic,
    member: Member,
    options: Sequence[str],
    came_up: Mapping[str, str] | None = None,
) -> dict[str, float]:
    if not options:
        return {}
    text = case.with_all_statements.texts(topic.id).get(member.id, "")
    # This order differs from that of the member's ballot, so a position bias does not act on both
    # in the same way.
    shuffled = case.shuffled_names(topic, options, f"{member.id} alone")
    answer = json_answer(OwnScores, dict.fromkeys(("scores.option", "hard_no"), shuffled))
    quoted = quote_options(case, topic, shuffled, came_up)
    prompt = scope.prompt(
        "own_scores",
        label=quote_topic(topic, "label"),
        preference=quote_preference(case, topic, member.id),
        options=quoted,
        answer_format=answer.describe_format({}),
    )
    speaker = member_speaker(scope, case.group, member, case.config.days)
    # The ballot has no field for the reason, so `parse_score_form` keeps it here.
    reasons: list[str] = []

    def parse_score_form(form: OwnScores) -> BallotRead:
        reasons[:] = [form.reason]
        return read_scores(form, member.id, options)

    question = SpeakerQuestion(speaker, prompt, topic.label, quoted)
    ballot_read = await ask_for_options(scope, question, answer, parse_score_form)
    ballot = ballot_read.ballot
    scores = dict(ballot.scores) if ballot else {}
    rejected = ballot.hard_no if ballot else ()
    text_score_of = text_scores(text, options) if text else {}
    stated_tally = case.with_all_statements.tally_topic(topic)
    for option in options:
        is_scored = option in scores or option in rejected
        scope.record(
            OwnScoreRow(
                group_id=case.group.id,
                group_type=case.group.type.id,
                slot=topic.slot_name,
                topic=topic.id,
                entered="before" if option in stated_tally.options else case.condition.id,
                member_id=member.id,
                option=option,
                score=None if option not in scores else int(scores[option]),
                firm_no=option in rejected if ballot else None,
                objection=("; ".join(ballot.objections) or None) if ballot else None,
                reason=(reasons[0] or None) if ballot and reasons else None,
                missing=None if is_scored else ballot_read.reason_without_score(option),
                text_score=text_score_of.get(option),
                text_primary=option == stated_tally.first_choice(member.id),
                options_shown="; ".join(shuffled),
            )
        )
    return scores | dict.fromkeys(rejected, float(LOWEST_SCORE))


# --- confirmation of decisions -------------------------------------------------------------


async def collect_responses(
    scope: Scope,
    case: Negotiation,
    decision: SlotDecision,
    heard: Sequence[DialogueTurn],
    members: Sequence[Member],
    round: int | None = None,
) -> list[DialogueTurn]:
    """Ask the members, one after the other, to respond to the mediator.

    - `heard`: the utterances before the responses.
    - `round`: the number of the feedback round. None if the members respond to the proposal.
    """
    # This is used with the setting `members_speak`. Otherwise the mediator writes the responses.
    # Each member is shown `heard` and the responses of the members asked before. A member without
    # an answer adds no utterance.
    topic, intent = case.topic(decision.topic), "user_feedback" if round else "user_respond"
    responses: list[DialogueTurn] = []
    for member in members:
        member_scope = scope.child(member.id)
        lines = [_show_line(case, topic, decision, line) for line in (*heard, *responses)]
        prompt = member_scope.prompt(
            "response",
            label=quote_topic(topic, "label"),
            preference=quote_preference(case, topic, member.id),
            dialogue=[line for line in lines if line is not None],
        )
        speaker = member_speaker(member_scope, case.group, member, case.config.days)
        others = (other.name for other in case.group.members if other.id != member.id)
        answer_type = Text(own_names=(member.name,), other_names=(SYSTEM, *others))
        answer = await member_scope.ask(speaker, prompt, answer_type=answer_type, about=topic.label)
        if not isinstance(answer, Missing):
            origin = Origin(
                member_scope.address or "",
                author=member.id,
                finish=member_scope.finish,
                round=round,
            )
            responses.append(case.record_line(scope, member.id, intent, answer, topic, origin))
    return responses


async def confirm_decision(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Ask every member whether the recorded decision is the result of the dialogue.

    Returns the decision with the answers.
    """
    # A member answers yes or no, or refuses an option that the decision gives to this member. A
    # refusal is recorded but does not change the decision.
    topic = case.topic(decision.topic)
    lines = (_show_line(case, topic, decision, line) for line in decision.lines)
    dialogue = [line for line in lines if line is not None]
    is_stated = decision.is_stated_by_mediator
    shares = show_shares(scope, case, topic, RECORD, decision.portions, stated=is_stated)
    dropped = quote_options(case, topic, decision.dropped, decision.came_up)
    refusals_by_member = {
        member.id: _stated_refusals(decision.portions, member.id) for member in case.heard_members
    }
    # The dialogue of C5 begins with that of C4, so a cache breakpoint after each line pays off.
    negotiation_goes_on = case.condition.has_locked_strategy and {"C4", "C5"} <= set(
        case.config.conditions
    )

    def quote_refusal(words: str, options: Sequence[str]) -> str:
        if len(options) > 1:
            return SourcedText(words)
        option = quote_options(case, topic, options, decision.came_up)[0]
        return concatenate_texts((words.removesuffix(option), option), plain=None)

    async def ask_member(member_scope: Scope, member: Member) -> str | Missing:
        refusals = refusals_by_member[member.id]
        prompt = member_scope.prompt(
            "confirm",
            label=quote_topic(topic, "label"),
            dialogue=dialogue,
            goes_on=negotiation_goes_on,
            decision=shares,
            dropped=dropped,
            refusals=[quote_refusal(words, options) for words, options in refusals.items()],
        )
        speaker = member_speaker(member_scope, case.group, member, case.config.days)
        answer_type = Choice(("yes", "no", *refusals), with_labels=False)
        return await member_scope.ask(speaker, prompt, answer_type=answer_type, about=topic.label)

    answers = await scope.map(case.heard_members, ask_member)
    refused_options = {
        member_id: refusals_by_member[member_id][answer]
        for member_id, answer in answers.items()
        if isinstance(answer, str) and answer in refusals_by_member[member_id]
    }
    return replace(
        decision,
        confirmed={
            member_id: answer if isinstance(answer, Missing) else answer != "no"
            for member_id, answer in answers.items()
        },
        refused=refused_options,
        overridden=_with_refused(decision.overridden, refused_options),
    )


def _with_refused(
    overridden: Mapping[str, tuple[str, ...]], refused_options: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    members_by_option = {option: list(members) for option, members in overridden.items()}
    for member, options in refused_options.items():
        for option in options:
            members_by_option.setdefault(option, []).append(member)
    return {option: tuple(dict.fromkeys(members)) for option, members in members_by_option.items()}


def _show_line(
    case: Negotiation, topic: TripTopic, decision: SlotDecision, line: DialogueTurn
) -> dict[str, str] | None:
    # Members do not see terms of lexicon.yaml that the mediator used although C3 forbids them. None
    # if the utterance is left out.
    utterance = line.utterance
    name = quote_value(line.speaker, "value", cell_id("utterances.speaker_name", utterance.id))
    theory_terms = case.condition.synthesis == "raw" and case.find_terms(topic, line.text).theory
    if theory_terms:
        source_id = cell_id(RESOLUTION, case.group.id, case.compared_as, topic.id)
        text = quote_value(decision.resolution_text, "value", source_id)
        return {"name": name, "text": text} if text and line.speaker == SYSTEM else None
    if line.speaker == SYSTEM:
        return {
            "name": name,
            "text": alter_text(utterance.quoted_text, collapse_spaces(line.text)),
        }
    return {"name": name, "text": in_quotation_marks(utterance)}


def _stated_refusals(portions: Sequence[Portion], member: str) -> dict[str, tuple[str, ...]]:
    # Each answer is mapped to the options that it refuses: "refused: diner" refuses "diner".
    received = tuple(
        dict.fromkeys(portion.option for portion in portions if member in portion.members)
    )
    refusals = {f"refused: {option}": (option,) for option in received}
    return refusals | ({"refused: all of it": received} if len(received) > 1 else {})
