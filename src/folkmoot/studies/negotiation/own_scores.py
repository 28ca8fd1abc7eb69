"""Members' own scores of the options: data for the measure of satisfaction.

Each member is asked once before the mediation, in a conversation of its own that no mediator and no
other member sees. The same scores are used under all conditions. Options that come up later are
scored when they enter; else the member's score of them is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from folkmoot.conversation.answers import CANNOT_SAY
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.decision import (
    Negotiation,
    OwnScoresOfTopic,
    SlotDecision,
    quoted,
)
from folkmoot.studies.negotiation.mediation import ask_for_options
from folkmoot.studies.negotiation.participants import member_speaker
from folkmoot.studies.negotiation.replies import (
    LOWEST_SCORE,
    BallotRead,
    OwnScores,
    describe_form,
    json_answer,
    read_scores,
)
from folkmoot.studies.negotiation.rules.strategies import Member, Topic
from folkmoot.studies.negotiation.rules.tally import text_scores
from folkmoot.studies.negotiation.tables import OwnScoreRow


async def collect_own_scores(scope: Scope, case: Negotiation) -> dict[str, OwnScoresOfTopic]:
    """Ask all members for scores of all options that the statements put on the table."""

    async def ask_member(at: Scope, member: Member) -> dict[str, dict[str, float]]:
        return {
            topic.id: await _ask_for_scores(
                at.at(topic.id), case, topic, member, case.tally(topic).options
            )
            for topic in case.topics
        }

    by_member = await scope.each(case.group.members, ask_member)
    return {
        topic.id: {member: scores[topic.id] for member, scores in by_member.items()}
        for topic in case.topics
    }


async def score_late_options(
    scope: Scope, case: Negotiation, decision: SlotDecision
) -> SlotDecision:
    """Ask all members for scores of the options of a decision that nobody could score before."""
    topic = case.topic(decision.topic)
    known = case.hearing_all.tally(topic)
    named = dict.fromkeys([*decision.options, *(p.option for p in decision.portions)])
    scored = {option for by_option in decision.late_scores.values() for option in by_option}
    late = tuple(o for o in named if o not in known.options and o not in scored)
    if not late:
        return decision

    async def ask_member(at: Scope, member: Member) -> dict[str, float]:
        return await _ask_for_scores(at, case, topic, member, late)

    found = await scope.each(case.group.members, ask_member)
    before = decision.late_scores
    scores = {member: {**before.get(member, {}), **own} for member, own in found.items()}
    return replace(decision, late_scores=scores)


async def _ask_for_scores(
    scope: Scope, case: Negotiation, topic: Topic, member: Member, options: Sequence[str]
) -> dict[str, float]:
    """Ask one member and record the scores. A firm no is the lowest score."""
    if not options:
        return {}
    text = case.hearing_all.texts(topic.id).get(member.id, "")
    shown = case.drawn(topic, options, f"{member.id} alone")
    answer = json_answer(OwnScores, dict.fromkeys(("scores.option", "hard_no"), shown))
    prompt = scope.prompt(
        "own_scores",
        label=topic.label,
        preference=quoted(text) if text else "none stated",
        options=shown,
        form=describe_form(answer.schema or {}),
    )
    speaker = member_speaker(scope, case.group, member, case.config.days)
    reasons: list[str] = []

    def read(form: OwnScores) -> BallotRead:
        reasons[:] = [form.reason]
        return read_scores(form, member.id, options)

    got = await ask_for_options(scope, speaker, prompt, answer, read)
    ballot = got.ballot
    given = dict(ballot.scores) if ballot else {}
    refused = ballot.hard_no if ballot else ()
    by_text = text_scores(text, options) if text else {}
    stated = case.hearing_all.tally(topic)
    for option in options:
        scored = option in given or option in refused
        scope.record(
            OwnScoreRow(
                group_id=case.group.id,
                group_type=case.group.type.id,
                slot=topic.slot,
                topic=topic.id,
                entered="before" if option in stated.options else case.condition.id,
                member_id=member.id,
                option=option,
                score=None if option not in given else int(given[option]),
                firm_no=option in refused if ballot else None,
                objection=("; ".join(ballot.objections) or None) if ballot else None,
                reason=(reasons[0] or None) if ballot and reasons else None,
                missing=None if scored else got.missing or CANNOT_SAY,
                text_score=by_text.get(option),
                text_primary=option == stated.primary(member.id),
                options_shown="; ".join(shown),
            )
        )
    return given | dict.fromkeys(refused, float(LOWEST_SCORE))
