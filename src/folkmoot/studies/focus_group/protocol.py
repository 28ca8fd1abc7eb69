"""The protocol of a focus group: recruit participants, hold discussions and code answers."""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.engine.session.session import Scope, Session
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import files
from folkmoot.studies.focus_group.config import DiscussionConfig, Stimulus
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.participants import (
    RECRUITS,
    Participant,
    as_sealed,
    recruit_groups,
    with_own_opinions,
    with_seeded_opinion,
)
from folkmoot.studies.focus_group.tables import (
    record_concept,
    record_description,
    record_discussion,
    record_personas,
)
from folkmoot.studies.focus_group.talk.in_private import (
    ask_in_private,
    interview_participants,
    with_opinion,
)
from folkmoot.studies.focus_group.talk.moderator import Moderator
from folkmoot.studies.focus_group.talk.reading import code_remarks
from folkmoot.studies.focus_group.talk.table import TableDiscussion


async def run_protocol(session: Session[DiscussionConfig], invited: Sequence[Profile] = ()) -> None:
    """Run all groups at the same time, with one discussion per concept in each group.

    - `invited`: if given, every group consists of these participants.
    """
    # No discussion contains words of another one.
    config = session.config
    groups = (
        dict.fromkeys(config.groups, with_own_opinions(invited, config))
        if invited
        else recruit_groups(session)
    )
    await session.seal(RECRUITS, as_sealed(groups))
    for concept in config.concepts:
        record_concept(session, concept.id, config.for_stimulus(concept))
    for group, people in groups.items():
        # Concepts and personas are recorded before the discussions, so that a run that stops has
        # them.
        record_personas(session, group, people)

    async def discuss_concepts(scope: Scope, group: str) -> list[DiscussionTranscript]:
        async def discuss_concept(scope: Scope, stimulus: Stimulus) -> DiscussionTranscript:
            people = with_seeded_opinion(session, group, groups[group], stimulus)
            transcript = await run_discussion(
                scope, config.for_stimulus(stimulus), people, group, stimulus.id
            )
            files.write_discussion(session, transcript)
            record_discussion(scope, transcript)
            return transcript

        return list((await scope.map(config.concepts, discuss_concept)).values())

    transcripts_by_group = await session.child("discussion").map(
        config.groups, discuss_concepts, block=str
    )
    transcripts = [
        transcript
        for group_transcripts in transcripts_by_group.values()
        for transcript in group_transcripts
    ]
    await code_remarks(session, transcripts)


async def run_discussion(
    scope: Scope, config: DiscussionConfig, people: Sequence[Profile], group: str, stimulus: str
) -> DiscussionTranscript:
    """Hold the discussion of one group on one concept and return its transcript."""
    # `config` holds the settings for this concept (`DiscussionConfig.for_stimulus`). Participants
    # are asked in private before the first phase and after the last one.
    moderator = Moderator(
        config, {profile.id: profile.first_name for profile in people}, group, stimulus
    )
    await moderator.generate_discussion_guide(scope.child("guide"))
    participants = [Participant(profile, config, group, stimulus) for profile in people]
    for participant in participants:
        record_description(scope, participant.texts, participant.id, participant.description)
    before = await ask_in_private(scope.child("before"), participants)
    with_opinions = [
        with_opinion(participant, answers.statement)
        for participant, answers in zip(participants, before, strict=True)
    ]
    discussion = TableDiscussion(config, moderator, with_opinions)
    for phase in config.phases:
        for index in range(config.questions_in(phase)):
            await discussion.question(scope.child(phase.value), phase, index)
    after = await ask_in_private(scope.child("after"), with_opinions, discussion)
    # The interviews come last, but each starts from the first opinion. A model that is interviewed
    # does not know the discussion.
    interviews = await interview_participants(
        scope.child("alone"), with_opinions, moderator.discussion_guide
    )
    private = [*before, *after, *(interview.private for interview in interviews.values())]
    retests = [answers.retest for answers in before if answers.retest is not None]
    return DiscussionTranscript(
        group=group,
        stimulus=stimulus,
        config=config,
        messages=tuple(discussion.messages),
        personas=tuple(participant.persona for participant in with_opinions),
        guide=moderator.discussion_guide,
        statements=(*(answers.statement for answers in private), *retests),
        intents=tuple(intent for answers in private for intent in answers.intents),
        notes=tuple(discussion.notes),
        interviews={persona_id: interview.messages for persona_id, interview in interviews.items()},
        silences=tuple(discussion.silences),
    )
