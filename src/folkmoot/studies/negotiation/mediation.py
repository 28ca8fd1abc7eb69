"""What a mediator leads: a proposal, a round of ballots, the members' word on what was decided, and
C5's feedback: rounds in which one member reacts and the mediator may adjust the decision.

A revision replaces the whole state (words, portions, selected option, votes, promise, split), or it
does not stand at all, and the System says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_types import DECLINED, Missing
from folkmoot.conversation.choices import Choice
from folkmoot.engine.session.session import Scope
from folkmoot.hints import enumerated
from folkmoot.provenance import SourcedText, alter, cell, concatenate, quote
from folkmoot.studies.negotiation.ballots import (
    THEORY,
    UNMATCHED,
    Problems,
    Question,
    ask_and_check,
)
from folkmoot.studies.negotiation.decision import (
    NO_TERMS,
    NOTHING_DECIDED,
    SYSTEM,
    SYSTEM_SPEAKER,
    UNREAD_STEPS,
    FeedbackRound,
    Line,
    Negotiation,
    Origin,
    SlotDecision,
    Terms,
    conflict_part,
    contract,
    decision_sentence,
    firm_noes,
    render_change,
    render_decision,
    sentence,
    spelled,
)
from folkmoot.studies.negotiation.measures import satisfaction_of_members, text_scores_of
from folkmoot.studies.negotiation.participants import mediator, member_speaker
from folkmoot.studies.negotiation.quotes import (
    OPERATOR,
    RECORD,
    RESOLUTION,
    TARGET_NAME,
    in_quotation_marks,
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
    read_hard_no,
    settlement,
    sort_lines,
    summed_up,
)
from folkmoot.studies.negotiation.rules.strategies import (
    Group,
    Member,
    Strategy,
    Topic,
    natural,
)
from folkmoot.studies.negotiation.rules.tally import (
    Ballot,
    Branch,
    Tally,
    content_words,
    coverage,
    summary,
    text_scores,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import new_option_of

M = TypeVar("M", bound=BaseModel)


class MediatorReply(NamedTuple, Generic[M]):
    """A reply of the mediator. One that could not be read is the minimal structure, and its parse
    step says so. `first_problems`: why it had to be asked for again."""

    value: M
    parse_step: str
    finish: str | None
    first_problems: Problems
    address: str


MEDIATORS = ("synthesis", "feedback")  # sources of decisions that the mediator has stated
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
    """Ask the mediator for a reply of the type of `minimal`."""
    topic = case.topic(vocabulary.topic)
    allowed = vocabulary.allowed
    allowed["dialogue.speaker"] = (SYSTEM, *(m.name for m in case.members))
    if isinstance(minimal, FeedbackReply):
        allowed["hard_no"] = vocabulary.options
    order = case.config.field_order
    answer = json_answer(type(minimal), allowed, order=order, fallback=minimal)
    prompt = scope.prompt(
        _PROMPTS[type(minimal)],
        **variables,
        group_title=quote_title(case.group),
        days=quote(case.config.days, "material", "study.days"),
        label=quote_topic(topic, "label"),
        members=list_preferences(case, topic),
        groups=quote_member_groups(case.group),
        answer_format=answer.describe_format({}),
    )
    question = Question(mediator(scope), prompt, topic.label)
    got, problems = await ask_and_check(scope, question, answer, find_problems)
    if isinstance(got.value, Missing):
        reason = DECLINED if got.value.reason == DECLINED else "minimal"
        return MediatorReply(minimal, reason, got.reply.finish, problems, got.address)
    return MediatorReply(got.value, got.parse_step, got.reply.finish, problems, got.address)


# --- the proposal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the mediator returned, read. `label` is the strategy it named, None if unread; `said`
    all its words as it wrote them; `stated` what it says that each member gets; `terms` the words
    of theory in all that it wrote (C3)."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    label: str | None
    opening: str
    said: str
    stated: Settlement
    responses: tuple[tuple[str, str], ...]  # name, words
    parse_step: str
    dropped_lines: int
    finish: str | None = None  # how the mediator's reply ended
    address: str = ""
    terms: Terms = NO_TERMS
    terms_first: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()

    def origin(self, part: str, author: str = "") -> Origin:
        """Return where a line of this reply comes from."""
        return Origin(self.address, part, author, self.finish)


async def propose(
    scope: Scope,
    case: Negotiation,
    topic: Topic,
    tally: Tally,
    strategy: Strategy | None = None,
    outcome: Outcome | None = None,
) -> Proposal:
    """Ask the mediator: plainly under C3, under the locked strategy in C4 and C5. The minimal
    structure is whether the stated preferences differ, no words, and nothing decided.

    `outcome` is what the operator has decided, which the mediator explains.
    """
    group, names = case.group, [m.name for m in case.order(topic)]
    variables: dict[str, object] = {
        "names": quote_names(group, [m.id for m in case.order(topic)]),
        "options": quote_options(case, topic, case.drawn(topic, tally.options)),
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
        has_conflict=tally.conflict,
        conflict_description="",
        resolution_explanation="",
        decision=[],
    )
    terms_first: list[str] = []

    def find_problems(reply: PlainSynthesis | GuidedSynthesis) -> Problems:
        problems: dict[str, Mapping[str, Sequence[str]]] = {}
        if unmatched := _read_statement(case, topic, on_table, reply).unmatched:
            problems[UNMATCHED] = unmatched
        if strategy is None:
            terms_first.extend(case.find_terms(topic, _all_words(reply)).theory)
            if terms_first:
                problems[THEORY] = {THEORY: terms_first}
        return problems

    in_force = outcome.portions if outcome else ()
    on_table = Vocabulary(group, topic.id, tally.options, case.config.days, in_force)
    got = await ask_mediator(scope, case, variables, on_table, minimal, find_problems)
    reply = got.value
    opening, said, dropped = sort_lines(reply.dialogue, names)
    words = (opening, reply.conflict_description, reply.resolution_explanation)
    label = None
    if isinstance(reply, GuidedSynthesis) and got.parse_step not in UNREAD_STEPS:
        label = reply.resolution_strategy or None
    return Proposal(
        reply.has_conflict,
        reply.conflict_description,
        reply.resolution_explanation,
        label,
        opening,
        "\n".join(filter(None, (*words, *_words_of_statement(reply)))),
        _read_statement(case, topic, on_table, reply),
        tuple(said),
        got.parse_step,
        dropped,
        got.finish,
        got.address,
        case.find_terms(topic, _all_words(reply)) if strategy is None else NO_TERMS,
        tuple(terms_first),
        tuple(got.first_problems),
    )


def _show_outcome(scope: Scope, case: Negotiation, topic: Topic, outcome: Outcome) -> str:
    shares = show_shares(scope, case, topic, OPERATOR, outcome.portions)
    sentence = decision_sentence(case.group, outcome, shares)
    return show_sentence(scope, case, topic, OPERATOR, sentence)


def say_for_members(
    scope: Scope,
    case: Negotiation,
    topic: Topic,
    intent: str,
    said: Sequence[tuple[str, str]],
    origin: Origin,
) -> list[Line]:
    """Record what the mediator has the members say (name, words), as numbered parts of its reply;
    the part of `origin` is what each is called."""
    by_name = {name: id for id, name in case.group.names.items()}
    return [
        case.say(
            scope,
            by_name[name],
            intent,
            words,
            topic,
            origin._replace(part=f"{origin.part}{number}", author=SYSTEM_SPEAKER.id),
        )
        for number, (name, words) in enumerate(said, start=1)
    ]


def _read_statement(
    case: Negotiation,
    topic: Topic,
    vocabulary: Vocabulary,
    reply: Decided,
) -> Settlement:
    """Read a stated decision. A new option with a word of theory is none: it would carry the word
    to the planner and to later decisions."""
    named = (new_option_of(share.new_option, ()) for share in reply.decision)
    theory = tuple(o for o in named if o and case.find_terms(topic, o).theory)
    return settlement(replace(vocabulary, forbidden=theory), reply)


def _words_of_statement(reply: PlainSynthesis | GuidedSynthesis) -> list[str]:
    return [
        ", ".join(filter(None, (share.option, share.new_option, share.when)))
        for share in reply.decision
    ]


def _all_words(reply: PlainSynthesis | GuidedSynthesis) -> str:
    """Return everything that the mediator wrote, also what it has the members say."""
    words = (reply.conflict_description, reply.resolution_explanation)
    lines = (line.text for line in reply.dialogue)
    return "\n".join((*words, *lines, *_words_of_statement(reply), *reply.dropped))


# --- the members' word on what was decided -----------------------------------------------------


async def confirm(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Ask every member in one word whether the decision as recorded is what the talk came to, or
    which part of it the member refuses outright. A refusal changes no decision; it is on record as
    overridden."""
    topic = case.topic(decision.topic)
    lines = (_show_line(case, topic, decision, line) for line in decision.lines)
    dialogue = [line for line in lines if line is not None]
    stated = decision.source in MEDIATORS
    shares = show_shares(scope, case, topic, RECORD, decision.portions, stated=stated)
    dropped = quote_options(case, topic, decision.dropped, decision.came_up)
    given = {m.id: _refusals(decision.portions, m.id) for m in case.members}
    # C5's talks begin with C4's, so that each member is asked the same beginning twice.
    goes_on = case.condition.locked and {"C4", "C5"} <= set(case.config.conditions)

    def quote_refusal(words: str, options: Sequence[str]) -> str:
        if len(options) > 1:
            return SourcedText(words)
        option = quote_options(case, topic, options, decision.came_up)[0]
        return concatenate((words.removesuffix(option), option), plain=None)

    async def ask_member(at: Scope, member: Member) -> str | Missing:
        refusals = given[member.id]
        prompt = at.prompt(
            "confirm",
            label=quote_topic(topic, "label"),
            dialogue=dialogue,
            goes_on=goes_on,
            decision=shares,
            dropped=dropped,
            refusals=[quote_refusal(words, options) for words, options in refusals.items()],
        )
        who = member_speaker(at, case.group, member, case.config.days)
        words = Choice(("yes", "no", *refusals), labelled=False)
        return await at.ask(who, prompt, answer=words, about=topic.label)

    words = await scope.each(case.members, ask_member)
    refused = {m: given[m][w] for m, w in words.items() if isinstance(w, str) and w in given[m]}
    return replace(
        decision,
        confirmed={m: w if isinstance(w, Missing) else w != "no" for m, w in words.items()},
        refused=refused,
        overridden=_with_refused(decision.overridden, refused),
    )


def _with_refused(
    overridden: Mapping[str, tuple[str, ...]], refused: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return option → members who get it against a firm no, with those who refuse it now."""
    found = {option: list(members) for option, members in overridden.items()}
    for member, options in refused.items():
        for option in options:
            found.setdefault(option, []).append(member)
    return {option: tuple(dict.fromkeys(members)) for option, members in found.items()}


def _show_line(
    case: Negotiation, topic: Topic, decision: SlotDecision, line: Line
) -> dict[str, str] | None:
    """Return a line as the members who confirm may read it, or None.

    Under C3 no word of theory of the mediator may reach a later decision. A line of the System
    with such a word is replaced by the decision in our words, another line is left out.
    """
    said = line.utterance
    name = quote(line.speaker, "value", cell("utterances.speaker_name", said.id))
    theory = case.condition.synthesis == "raw" and case.find_terms(topic, line.text).theory
    if theory:
        id = cell(RESOLUTION, case.group.id, case.compared_as, topic.id)
        text = quote(decision.resolution_text, "value", id)
        return {"name": name, "text": text} if text and line.speaker == SYSTEM else None
    if line.speaker == SYSTEM:
        return {"name": name, "text": alter(said.quoted, " ".join(line.text.split()))}
    return {"name": name, "text": in_quotation_marks(said)}


def _refusals(portions: Sequence[Portion], member: str) -> dict[str, tuple[str, ...]]:
    """The words in which a member refuses something of what it gets → the options."""
    got = tuple(dict.fromkeys(p.option for p in portions if member in p.members))
    refusals = {f"refused: {option}": (option,) for option in got}
    return refusals | ({"refused: all of it": got} if len(got) > 1 else {})


# Words of ours that say when and for whom; nobody's wish is met by them.
_FRAME = frozenset(words_of("day whole trip group shared backbone optional branch part"))


def left_out(group: Group, texts: Mapping[str, str], resolution: str) -> list[Member]:
    """Members, by id, whose preference has no content word in common with the resolution.

    Content words: case and simple plurals folded, stop words, cue words, numbers and words for
    days and parts of the trip left out. Who stated nothing cannot be left out.
    """
    decided = _content(resolution)
    return [
        m
        for m in sorted(group.members, key=lambda m: natural(m.id))
        if (words := _content(texts.get(m.id, ""))) and not words & decided
    ]


def _content(text: str) -> set[str]:
    return {w for w in content_words(text) - _FRAME if not w.isdigit()}


async def hold_feedback(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Rounds on a decision with a conflict until one ends resolved, at most
    `max_feedback_rounds`."""
    if not (case.feedback and decision.has_conflict):
        return decision
    topic, scope = case.topic(decision.topic), scope.at("feedback")
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
    # The question follows the source's text scoring, and not what members told the researcher.
    scores = text_scores_of(case.group, texts, decision.options, decision.portions)
    content = satisfaction_of_members(scores, decision.portions)
    fresh = [m for m in case.members if m.id not in asked] or case.members
    return min(fresh, key=lambda m: (content.get(m.id, 0.0), natural(m.id))), False


async def _round(
    scope: Scope, case: Negotiation, topic: Topic, standing: SlotDecision
) -> SlotDecision:
    number = len(standing.feedback) + 1
    target, targeted = _whom(case, topic, standing)
    quote_listed = partial(quote_options, case, topic, came_up=standing.came_up)
    wish = quote_listed(_wish(case.texts(topic.id).get(target.id, ""), standing.options))
    question = concatenate(
        (
            quote_name(case.group, target.id),
            ", does this decision address your wish",
            *((" for ", *wish) if wish else ()),
            "?",
        ),
        plain=None,
    )
    before = case.tally(topic, standing.cast)
    on_table = tuple(dict.fromkeys([*standing.options, *(p.option for p in standing.portions)]))
    step, by_mediator = f"round{number}", standing.source in MEDIATORS
    standing_text = show_sentence(
        scope, case, topic, step, standing.resolution_text, stated=by_mediator
    )
    target_cell = cell(TARGET_NAME, *(case.group.id, case.compared_as, topic.id), number)
    variables = {
        "round": quote(number, "value", "protocol.round"),
        "rounds": quote(case.config.max_feedback_rounds, "material", "study.max_feedback_rounds"),
        "options": quote_listed(case.drawn(topic, standing.options)),
        "decision": standing_text or SourcedText("nothing is decided"),
        "shares": show_shares(scope, case, topic, step, standing.portions, stated=by_mediator),
        "refusals": [
            {"name": quote_name(case.group, m.id), "options": quote_listed(no)}
            for m in case.order(topic)
            if (no := _noes(before, m))
        ],
        "target": quote(target.name, "value", target_cell),
        "targeted": targeted,
        "question": question,
    }

    vocabulary = Vocabulary(
        case.group, topic.id, on_table, case.config.days, in_force=standing.portions
    )

    def read(reply: FeedbackReply) -> Settlement:
        return _read_statement(case, topic, vocabulary, reply)

    def read_refusals(
        reply: FeedbackReply,
    ) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
        given = (portion.option for portion in read(reply).portions)
        unmatched: list[str] = []
        known = tuple(dict.fromkeys([*on_table, *given]))
        return *read_hard_no(reply, known, unmatched), unmatched

    def find_problems(reply: FeedbackReply) -> Problems:
        unmatched = dict(read(reply).unmatched)
        if others := read_refusals(reply)[2]:
            unmatched[OPTIONS_ON_THE_TABLE] = (*unmatched.get(OPTIONS_ON_THE_TABLE, ()), *others)
        return {UNMATCHED: unmatched} if unmatched else {}

    minimal = FeedbackReply(decision=[])
    got = await ask_mediator(scope, case, variables, vocabulary, minimal, find_problems)
    reply = got.value
    stated = read(reply)
    hard_no, objections, _ = read_refusals(reply)
    cast = _with_refusals(standing, target.id, hard_no, objections)
    decision = _replaced(case, topic, replace(standing, cast=cast), reply, stated)
    asked = reply.targeted_feedback_question
    # Nobody has accepted what they reject in the same breath, or a revision that does not stand.
    refused = cast.get(target.id, Ballot(target.id)).hard_no if cast is not standing.cast else ()
    content = not decision.feedback[-1].because and not any(
        target.id in decision.overridden.get(option, ()) for option in refused
    )
    round_ = replace(
        decision.feedback[-1],
        round=number,
        target=target.id,
        targeted=targeted,
        resolved=None if reply.resolved is None else reply.resolved and content,
        question=asked if target.name.casefold() in asked.casefold() else str(question),
        hard_no=hard_no,
        objections=objections,
        parse_error=got.parse_step in UNREAD_STEPS,
    )
    again = dict.fromkeys([*standing.asked_again, *got.first_problems])
    decision = replace(decision, feedback=(*standing.feedback, round_), asked_again=tuple(again))
    _, said, dropped = sort_lines(reply.dialogue, [m.name for m in case.members])
    decision = replace(decision, dropped_lines=standing.dropped_lines + dropped)
    decision = record_late_options(scope, case, topic, decision)
    return decision.with_lines(*_say_round(scope, case, topic, decision, said, got))


def _wish(text: str, options: Sequence[str]) -> list[str]:
    """Return the option that a text speaks for most, or nothing."""
    scored = text_scores(text, options)
    best = min(scored, key=lambda o: (-scored[o], o), default="")
    return [best] if best and scored[best] > 0 else []


def _noes(tally: Tally, member: Member) -> list[str]:
    return [o for o in tally.options if member.id in tally.rejections(o)]


def _with_refusals(
    d: SlotDecision, member: str, refused: Sequence[str], objections: Sequence[str]
) -> Mapping[str, Ballot]:
    """Return the ballots, with what the member asked now rejects as well."""
    if not (refused or objections):
        return d.cast
    own = d.cast.get(member, Ballot(member))
    hard_no = tuple(dict.fromkeys((*own.hard_no, *refused)))
    others = tuple(dict.fromkeys((*own.objections, *objections)))
    return {**d.cast, member: replace(own, hard_no=hard_no, objections=others)}


def _replaced(
    case: Negotiation,
    topic: Topic,
    standing: SlotDecision,
    reply: FeedbackReply,
    stated: Settlement,
) -> SlotDecision:
    """The state after a revision: all of it as revised, or all of it as it stood."""
    because, refused = _refusal(case, topic, standing, stated, reply)
    decision = replace(standing, confirmed={}, refused={})
    if not because and stated.portions:
        decision = _revised(case, decision, stated)
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
    return state(case, topic, replace(decision, feedback=(round_,)))


def _refusal(
    case: Negotiation,
    topic: Topic,
    standing: SlotDecision,
    stated: Settlement,
    reply: FeedbackReply,
) -> tuple[str, tuple[str, ...]]:
    """Why a revision does not stand, and the options that it may not give; "" if it does."""
    served = {m for p in stated.portions for m in p.members}
    if stated.unread or {m for p in standing.portions for m in p.members} - served:
        unchanged = (), words_of(standing.resolution_text)
        words = words_of(reply.final_revised_decision)
        moved = stated.unread or stated.portions or words not in unchanged
        return ("unstated" if moved else ""), ()
    ruled_out = {o for o, _ in standing.outcome.removed} if standing.outcome else set()
    struck = tuple(dict.fromkeys(p.option for p in stated.portions if p.option in ruled_out))
    if struck:
        return "struck", struck
    stood = case.overridden(topic, standing.portions, standing.cast)
    against = case.overridden(topic, stated.portions, standing.cast).items()
    rejected = tuple(o for o, who in against if set(who) - set(stood.get(o, ())))
    if rejected:
        return "rejected", rejected
    if standing.subgrouping_required and _branches(case, stated.portions) is None:
        return "split", ()
    return "", ()


def _revised(case: Negotiation, standing: SlotDecision, stated: Settlement) -> SlotDecision:
    """Return the restated decision, or `standing` if options, members and times are the same."""
    portions = stated.portions
    if standing.subgrouping_required:
        a, b = portions
        portions = (replace(a, when="Group A"), replace(b, when="Group B"))
    if is_same_decision(portions, standing.portions, case.config.days):
        return standing
    return replace(
        standing,
        portions=portions,
        selected_option=summed_up(portions),
        dropped=stated.dropped,
        resolution_text=render_decision(case.group, portions),
        source="feedback",
    )


def _branches(case: Negotiation, portions: Sequence[Portion]) -> tuple[Branch, Branch] | None:
    """The two branches of a split; None if the portions do not part the whole group in two."""
    if len(portions) != 2:
        return None
    a, b = (Branch(p.option, p.members) for p in portions)
    whole = sorted((*a.members, *b.members)) == sorted(m.id for m in case.members)
    return (a, b) if whole and a.anchor != b.anchor else None


def state(case: Negotiation, topic: Topic, d: SlotDecision) -> SlotDecision:
    """What follows from the portions that hold and from the votes: the vote's summary, what is
    promised, the split, and whose strong rejection is overridden."""
    tally = case.tally(topic, d.cast)
    counted = d.source == "vote" or d.subgrouping_required or d.subgrouping_optional
    counted = counted or d.vote_summary is not None
    given = {v.id: {p.option for p in d.portions if v.id in p.members} for v in tally.voters}
    promises = counted and d.strategy is not None and d.strategy.votes
    id, chosen = d.strategy_id or "", d.selected_option
    got = {p.option for p in d.portions}
    dropped = d.dropped
    if d.source != "feedback":  # the mediator states it there
        dropped = tuple(o for o in tally.options if o not in got)
    overridden = case.overridden(topic, d.portions, d.cast)
    return replace(
        d,
        options=tally.options,
        dropped=dropped,
        overridden=overridden,
        overridden_unasked=overridden,
        vote_summary=summary(tally, id, chosen, d.ballots) if counted else None,
        coverage=coverage(topic.slot, tally, chosen, given) if promises else None,
        split=_branches(case, d.portions) if d.subgrouping_required else None,
    )


_WHY_NOT = {
    "struck": "{refused} was ruled out and cannot come back",
    "rejected": "{refused} would go against a firm no, so the decision stays as it was",
    "split": "The group must split here, so the decision stays as it was",
    "unstated": "The revision does not say who would get what, so the decision stays as it was",
}


def _say_round(
    scope: Scope,
    case: Negotiation,
    topic: Topic,
    decision: SlotDecision,
    reactions: Sequence[tuple[str, str]],
    got: MediatorReply[FeedbackReply],
) -> list[Line]:
    """Record the last round: the question, what members say to it (name, words), and what the
    System makes of it."""
    round_ = decision.feedback[-1]
    number, target, strategy = round_.round, case.group.names[round_.target], decision.strategy_id
    assert strategy is not None
    conflict = conflict_part(topic.id, decision.has_conflict)
    if round_.because:
        reason = _WHY_NOT[round_.because].format(refused=enumerated(round_.refused))
    else:
        accepts = f"{target} {'accepts it' if round_.resolved else 'is not content yet'}"
        if round_.resolved is None:
            accepts = f"It is not clear whether {target} accepts it"
        if round_.resolved and any(round_.target in who for who in decision.overridden.values()):
            accepts += " all the same"
        reason = round_.change or accepts
    against = firm_noes(case.group, decision.overridden)
    reason = " ".join(filter(None, (sentence(reason), sentence(against))))
    reason = spelled(reason[:1].upper() + reason[1:])
    if round_.resolved:
        then = "Take the decision to the plan"
    elif number < case.config.max_feedback_rounds:
        then = "Ask once more"
    else:
        then = "Keep the decision as it is"
    stands = "Stands as announced" if number == 1 else "Stands as it is now"
    why = f"{target} is asked in round {number}"
    question = contract(conflict, strategy, stands, why, round_.question)
    decided = decision.resolution_text or NOTHING_DECIDED
    answer = contract(conflict, strategy, decided, reason, then)
    origin = Origin(got.address, finish=got.finish, round=number)

    def say_turn(text: str, part: str) -> Line:
        return case.say(scope, SYSTEM, "sys_feedback", text, topic, origin._replace(part=part))

    asked, reaction = say_turn(question, "question"), origin._replace(part="reaction")
    reacted = say_for_members(scope, case, topic, "user_feedback", reactions, reaction)
    return [asked, *reacted, say_turn(answer, "answer")]
