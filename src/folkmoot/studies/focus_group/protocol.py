"""The protocol of a focus group: recruit, hold and record all discussions, code the answers."""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.engine.session.session import Scope, Session
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import files
from folkmoot.studies.focus_group.config import DiscussionConfig, Stimulus
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.participants import (
    Participant,
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
    """Run all groups concurrently, and within a group one discussion per concept.

    Discussions of one group do not know each other. All answers are coded at the end. `invited`
    profiles take part in every group and replace its recruits.
    """
    config = session.config
    recruits = dict.fromkeys(config.groups, invited) if invited else recruit_groups(session)
    groups = {group: with_own_opinions(people, config) for group, people in recruits.items()}
    await session.seal(
        "recruits",
        {
            group: [profile.model_dump(mode="json") for profile in people]
            for group, people in groups.items()
        },
    )
    for concept in config.concepts:
        record_concept(session, concept.id, config.for_stimulus(concept))
    for group, people in groups.items():
        # Concepts and personas are recorded before the discussions, so that a run that stops has
        # them.
        record_personas(session, group, people)

    async def discuss_concepts(scope: Scope, group: str) -> list[DiscussionTranscript]:
        async def on_concept(scope: Scope, stimulus: Stimulus) -> DiscussionTranscript:
            people = with_seeded_opinion(session, group, groups[group], stimulus)
            said = await run_discussion(
                scope, config.for_stimulus(stimulus), people, group, stimulus.id
            )
            files.write_discussion(session, said)
            record_discussion(scope, said)
            return said

        return list((await scope.map(config.concepts, on_concept)).values())

    talks = await session.child("discussion").map(config.groups, discuss_concepts, block=str)
    said = [talk for group in talks.values() for talk in group]
    await code_remarks(session, said)


async def run_discussion(
    scope: Scope, config: DiscussionConfig, people: Sequence[Profile], group: str, stimulus: str
) -> DiscussionTranscript:
    """Hold the discussion of one group on one concept and return its transcript.

    `config` is that of the concept (`DiscussionConfig.for_stimulus`). The moderator plans the
    guide. Each participant reads the concept in private and states an opinion. The phases follow
    one another, and each speaker is shown the messages so far. At the end each participant is asked
    in private again.
    """
    moderator = Moderator(
        config, {profile.id: profile.first_name for profile in people}, group, stimulus
    )
    await moderator.generate_discussion_guide(scope.child("guide"))
    arriving = [Participant(person, config, group, stimulus) for person in people]
    for who in arriving:
        record_description(scope, who.texts, who.id, who.description)
    before = await ask_in_private(scope.child("before"), arriving)
    at_table = [
        with_opinion(who, said.statement) for who, said in zip(arriving, before, strict=True)
    ]
    talk = TableDiscussion(config, moderator, at_table)
    for phase in config.phases:
        for index in range(config.questions_in(phase)):
            await talk.question(scope.child(phase.value), phase, index)
    after = await ask_in_private(scope.child("after"), at_table, talk)
    # The interviews come last, but each starts from the first opinion. A model that is interviewed
    # does not know the discussion.
    alone = await interview_participants(scope.child("alone"), at_table, moderator.discussion_guide)
    private = [*before, *after, *(interview.private for interview in alone.values())]
    retests = [said.retest for said in before if said.retest is not None]
    return DiscussionTranscript(
        group=group,
        stimulus=stimulus,
        config=config,
        messages=tuple(talk.messages),
        personas=tuple(who.persona for who in at_table),
        guide=moderator.discussion_guide,
        statements=(*(said.statement for said in private), *retests),
        intents=tuple(intent for said in private for intent in said.intents),
        notes=tuple(talk.notes),
        interviews={who: interview.messages for who, interview in alone.items()},
        silences=tuple(talk.silences),
    )
