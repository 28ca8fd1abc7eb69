"""What a mediator leads: a proposal, a round of ballots, the members' word on what was decided, and
C5's feedback: rounds in which one member reacts and the mediator may adjust the decision.

A revision replaces the whole state (words, portions, selected option, votes, promise, split), or it
does not stand at all, and the System says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.choices import Choice
from folkmoot.engine.session import Scope
from folkmoot.hints import enumerated
from folkmoot.studies.negotiation.decision import (
    SYSTEM,
    FeedbackRound,
    Line,
    Negotiation,
    SlotDecision,
    conflict_part,
    contract,
    firm_noes,
    portions_sentence,
    quoted,
    sentence,
    shares,
    spelled,
)
from folkmoot.studies.negotiation.measures import member_satisfaction
from folkmoot.studies.negotiation.participants import mediator, member_speaker
from folkmoot.studies.negotiation.replies import (
    BallotForm,
    FeedbackReply,
    GuidedSynthesis,
    PlainSynthesis,
    ScoreForm,
    Settlement,
    same,
    settlement,
    sort_lines,
    summed_up,
)
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.strategies import (
    Group,
    Member,
    Strategy,
    Topic,
    natural,
    table,
)
from folkmoot.studies.negotiation.rules.tally import (
    Ballot,
    Branch,
    Tally,
    adopted,
    all_named,
    clean,
    content_words,
    coverage,
    summary,
    text_scores,
    words_of,
)

COLLECTED, PARTIAL, MISSING, NOT_HELD = "collected", "partial", "missing", "not_held"
M = TypeVar("M", bound=BaseModel)


async def ask_mediator(
    scope: Scope, case: Negotiation, prompt: str, minimal: M, options: Sequence[str]
) -> tuple[M, str, str | None]:
    """The mediator's reply, the parse step at which it was read, and how it ended. One that stays
    unreadable gives the minimal structure, at the step `minimal`. `options`: those on the table."""
    names = [m.name for m in case.members]
    allowed = {"dialogue.speaker": (SYSTEM, *names), "decision.members": names}
    if options:
        allowed["decision.option"] = options
    answer = Json(type(minimal), fallback=minimal, options=allowed)
    got = await scope.exchange(mediator(scope), prompt, answer=answer)
    if isinstance(got.value, Missing):
        return minimal, "minimal", got.reply.finish
    return got.value, got.parse_step, got.reply.finish


# --- the proposal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the mediator returned, read. `label` is the strategy it named, None if unread; `said`
    all its words as it wrote them; `stated` what it says that everybody gets."""

    has_conflict: bool
    conflict_description: str
    explanation: str
    label: str | None
    opening: str
    said: str
    stated: Settlement
    responses: tuple[Line, ...]
    parse_step: str
    dropped_lines: int
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
    structure is whether the stated preferences differ, no words, and nothing decided."""
    group, names = case.group, [m.name for m in case.order(topic)]
    shared = {
        "group_title": group.type.title,
        "days": case.config.days,
        "names": names,
        "label": topic.label,
        "members": case.listing(topic),
        "options": case.drawn(topic, tally.options),
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
    minimal = model(
        has_conflict=tally.conflict,
        conflict_description="",
        resolution_explanation="",
        decision=[],
    )
    reply, parse_step, finish = await ask_mediator(scope, case, prompt, minimal, tally.options)
    opening, said, dropped = sort_lines(reply.dialogue, names)
    words = (opening, reply.conflict_description, reply.resolution_explanation)
    parts = (
        f"{share.option}, {share.when}" if share.when else share.option for share in reply.decision
    )
    aloud = "\n".join(filter(None, (*words, *parts)))
    reply = _seen(case, reply)
    label = None
    if isinstance(reply, GuidedSynthesis) and parse_step != "minimal":
        label = reply.resolution_strategy or None
    return Proposal(
        reply.has_conflict,
        reply.conflict_description,
        reply.resolution_explanation,
        label,
        opening,
        aloud,
        settlement(group, topic.id, tally.options, reply),
        tuple(case.line(name, "user_respond", text, topic, finish=finish) for name, text in said),
        parse_step,
        dropped,
        finish,
    )


def _seen(case: Negotiation, reply: PlainSynthesis) -> PlainSynthesis:
    """The reply with its words as members and the planner may see them."""
    shares = [
        s.model_copy(update={"option": case.seen(s.option), "when": case.seen(s.when)})
        for s in reply.decision
    ]
    return reply.model_copy(
        update={
            "conflict_description": case.seen(reply.conflict_description),
            "resolution_explanation": case.seen(reply.resolution_explanation),
            "decision": shares,
            "dropped": [case.seen(option) for option in reply.dropped],
        }
    )


# --- ballots -----------------------------------------------------------------------------------


async def collect_ballots(
    scope: Scope, case: Negotiation, topic: Topic, tally: Tally, proposal: str
) -> tuple[dict[str, Ballot], str]:
    """Ask every member who votes for a ballot, apart from each other: the ballots, and whether
    that is all.

    A member without a ballot is counted by the preference text alone; with no ballot at all the
    state is `missing`.
    """
    scored = case.config.ballots == "scores"

    async def ask(at: Scope, member: Member) -> Ballot | None:
        text = case.texts(topic.id).get(member.id)
        options = case.drawn(topic, tally.options, member.id)
        prompt = at.prompt(
            "ballot_scores" if scored else "ballot",
            label=topic.label,
            preference=quoted(text) if text else "none stated",
            proposal=proposal or "none",
            options=options,
        )
        who = member_speaker(at, case.group, member, case.config.days)
        form: BallotForm | ScoreForm | Missing
        if scored:
            form = await at.ask(who, prompt, answer=_form(ScoreForm, ("scores.option",), options))
        else:
            fields = ("top_choice", "acceptable")
            form = await at.ask(who, prompt, answer=_form(BallotForm, fields, options))
        return None if isinstance(form, Missing) else form.ballot(member.id)

    replies = await scope.each(case.voters(topic), ask)
    cast = {m: b for m, b in replies.items() if b is not None}
    return cast, COLLECTED if len(cast) == len(replies) else PARTIAL if cast else MISSING


def _form(model: type[M], fields: Sequence[str], options: Sequence[str]) -> Json[M]:
    named = (*fields, "hard_no") if options else ()
    return Json(model, options=dict.fromkeys(named, options))


def spoken(ballot: Ballot) -> str:
    """`top_choice: …; acceptable: …; hard_no: …` (or `scores: …; hard_no: …`), with "none" for an
    empty part."""
    parts = {"top_choice": ballot.top_choice, "acceptable": ", ".join(ballot.acceptable)}
    if ballot.scores:
        parts = {"scores": ", ".join(f"{o} {s:g}" for o, s in ballot.scores.items())}
    parts["hard_no"] = ", ".join(ballot.hard_no)
    return "; ".join(f"{name}: {value or 'none'}" for name, value in parts.items())


# --- the members' word on what was decided -----------------------------------------------------


async def confirm(scope: Scope, case: Negotiation, decision: SlotDecision) -> SlotDecision:
    """Ask every member in one word whether the decision as recorded is what the talk came to, or
    which part of it the member refuses outright. A refusal changes no decision; it is on record as
    overridden."""
    topic = case.topic(decision.topic)
    dialogue = [
        {
            "name": x.speaker,
            "text": " ".join(x.text.split()) if x.speaker == SYSTEM else quoted(x.text),
        }
        for x in decision.lines
    ]

    given = {m.id: _refusals(decision.portions, m.id) for m in case.members}
    # C5's talks begin with C4's, so that each member is asked the same beginning twice.
    goes_on = case.condition.locked and {"C4", "C5"} <= set(case.config.conditions)

    async def ask(at: Scope, member: Member) -> str | Missing:
        prompt = at.prompt(
            "confirm",
            label=topic.label,
            dialogue=dialogue,
            goes_on=goes_on,
            decision=shares(case.group, decision.portions),
            dropped=list(decision.dropped),
            refusals=list(given[member.id]),
        )
        who = member_speaker(at, case.group, member, case.config.days)
        words = Choice(("yes", "no", *given[member.id]), labelled=False)
        return await at.ask(who, prompt, answer=words)

    words = await scope.each(case.members, ask)
    refused = {m: given[m][w] for m, w in words.items() if isinstance(w, str) and w in given[m]}
    overridden = {o: list(who) for o, who in decision.overridden.items()}
    for member, options in refused.items():
        for option in options:
            overridden.setdefault(option, []).append(member)
    return replace(
        decision,
        confirmed={m: w if isinstance(w, Missing) else w != "no" for m, w in words.items()},
        refused=refused,
        overridden={o: tuple(dict.fromkeys(who)) for o, who in overridden.items()},
    )


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
    content = member_satisfaction(case.group, texts, decision.options, decision.portions)
    fresh = [m for m in case.members if m.id not in asked] or case.members
    return min(fresh, key=lambda m: (content.get(m.id, 0.0), natural(m.id))), False


async def _round(
    scope: Scope, case: Negotiation, topic: Topic, standing: SlotDecision
) -> SlotDecision:
    number = len(standing.feedback) + 1
    target, targeted = _whom(case, topic, standing)
    wish = _wish(case.texts(topic.id).get(target.id, ""), standing.options)
    question = f"{target.name}, does this decision address your wish{wish}?"
    before = case.tally(topic, standing.cast)
    prompt = scope.prompt(
        "feedback",
        group_title=case.group.type.title,
        days=case.config.days,
        label=topic.label,
        round=number,
        rounds=case.config.max_feedback_rounds,
        members=case.listing(topic),
        options=case.drawn(topic, standing.options),
        decision=standing.resolution_text,
        shares=shares(case.group, standing.portions),
        refusals=[
            {"name": m.name, "options": no} for m in case.order(topic) if (no := _noes(before, m))
        ],
        target=target.name,
        targeted=targeted,
        question=question,
    )
    reply, parse_step, finish = await ask_mediator(
        scope, case, prompt, FeedbackReply(resolved=False, decision=[]), standing.options
    )
    stated = settlement(case.group, topic.id, standing.options, reply)
    cast = _with_refusals(standing, target.id, reply.hard_no, stated)
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
        resolved=reply.resolved and content,
        question=asked if target.name.casefold() in asked.casefold() else question,
        parse_error=parse_step == "minimal",
    )
    decision = replace(decision, feedback=(*standing.feedback, round_))
    _, said, dropped = sort_lines(reply.dialogue, [m.name for m in case.members])
    decision = replace(decision, dropped_lines=standing.dropped_lines + dropped)
    return decision.with_lines(*_round_lines(case, topic, decision, said, finish))


def _wish(text: str, options: Sequence[str]) -> str:
    scored = text_scores(text, options)
    best = min(scored, key=lambda o: (-scored[o], o), default="")
    return f" for {best}" if best and scored[best] > 0 else ""


def _noes(tally: Tally, member: Member) -> list[str]:
    return [o for o in tally.options if member.id in tally.rejections(o)]


def _with_refusals(
    d: SlotDecision, member: str, refused: Sequence[str], stated: Settlement
) -> Mapping[str, Ballot]:
    """The ballots, with what the member asked now rejects as well: options on the table or in the
    revision ("no sushi" rejects sushi), else the member's own words."""
    known = tuple(dict.fromkeys([*d.options, *(p.option for p in stated.portions)]))
    named = [o for e in refused for o in all_named(e, known) or (clean(e),) if o]
    if not named:
        return d.cast
    own = d.cast.get(member, Ballot(member))
    hard_no = tuple(dict.fromkeys((*own.hard_no, *named)))
    return {**d.cast, member: replace(own, hard_no=hard_no)}


def _replaced(
    case: Negotiation,
    topic: Topic,
    standing: SlotDecision,
    reply: FeedbackReply,
    stated: Settlement,
) -> SlotDecision:
    """The state after a revision: all of it as revised, or all of it as it stood."""
    because, refused = _refusal(case, topic, standing, stated, reply)
    text = " ".join(reply.final_revised_decision.split())
    round_ = FeedbackRound(
        round=0,
        target="",
        targeted=False,
        resolved=False,
        question="",
        updated_explanation=reply.updated_resolution_explanation,
        revised_decision=reply.final_revised_decision,
        refused=refused,
        because=because,
        hard_no=tuple(reply.hard_no),
    )
    decision = replace(standing, feedback=(round_,), confirmed={}, refused={})
    if not because and (text or stated.portions):
        decision = _revised(case, decision, stated, text)
    return state(case, topic, decision)


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
        words = reply.final_revised_decision.split()
        moved = (
            stated.unread or stated.portions or words not in ([], standing.resolution_text.split())
        )
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


def _revised(
    case: Negotiation, standing: SlotDecision, stated: Settlement, text: str
) -> SlotDecision:
    portions = stated.portions
    given = {p.option for p in portions or standing.portions}
    if not given.issuperset(adopted(text, standing.options)):
        text = ""  # the words give what the statement does not: the statement holds
    if portions and not same(portions, standing.portions):
        if standing.subgrouping_required:
            a, b = portions
            portions = (replace(a, when="Group A"), replace(b, when="Group B"))
        said = portions_sentence(case.group, portions)
        return replace(
            standing,
            portions=portions,
            selected_option=summed_up(portions),
            dropped=stated.dropped,
            resolution_text=text or said[:1].upper() + said[1:],
            source="feedback",
        )
    changed = text and text != standing.resolution_text
    return replace(standing, resolution_text=text, source="feedback") if changed else standing


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
    return replace(
        d,
        options=tally.options,
        dropped=dropped,
        overridden=case.overridden(topic, d.portions, d.cast),
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


def _round_lines(
    case: Negotiation,
    topic: Topic,
    decision: SlotDecision,
    reactions: Sequence[tuple[str, str]],
    finish: str | None,
) -> list[Line]:
    """The last round: the question, what members say to it (name, words), and what the System makes
    of it."""
    round_ = decision.feedback[-1]
    number, target, strategy = round_.round, case.group.names[round_.target], decision.strategy_id
    assert strategy is not None
    conflict = conflict_part(topic.id, decision.has_conflict)
    if round_.because:
        reason = _WHY_NOT[round_.because].format(refused=enumerated(round_.refused))
    else:
        accepts = f"{target} {'accepts it' if round_.resolved else 'is not content yet'}"
        if round_.resolved and any(round_.target in who for who in decision.overridden.values()):
            accepts += " all the same"
        reason = round_.updated_explanation or accepts
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
    answer = contract(conflict, strategy, decision.resolution_text, reason, then)
    return [
        case.line(SYSTEM, "sys_feedback", question, topic, round=number),
        *(
            case.line(who, "user_feedback", words, topic, round=number, finish=finish)
            for who, words in reactions
        ),
        case.line(SYSTEM, "sys_feedback", answer, topic, round=number),
    ]
