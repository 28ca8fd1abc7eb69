"""The focus group: recruit, discuss each concept in each group, write down what came of it."""

from __future__ import annotations

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.focus_group import outputs, tables
from folkmoot.studies.focus_group.config import DiscussionConfig, Stimulus
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.recruits import facing, recruit
from folkmoot.studies.focus_group.simulator import DiscussionSimulator


async def protocol(session: Session) -> None:
    """All groups side by side; within a group the concepts too, each from a fresh start."""
    config: DiscussionConfig = session.config
    recruits = recruit(session)
    await session.seal(
        "recruits",
        {g: [p.model_dump(mode="json") for p in people] for g, people in recruits.items()},
    )
    for group, people in recruits.items():
        tables.record_personas(session, group, people)

    async def discuss(scope: Scope, group: str) -> list[DiscussionTranscript]:
        async def on_concept(scope: Scope, stimulus: Stimulus) -> DiscussionTranscript:
            people = facing(session, group, recruits[group], stimulus)
            simulator = DiscussionSimulator(
                config.on(stimulus), personas=tuple(people), group=group, stimulus=stimulus.id
            )
            transcript = await simulator.run(scope)
            tables.record_discussion(scope, transcript)
            outputs.write_discussion(session, config, transcript)
            return transcript

        return list((await scope.each(config.concepts, on_concept)).values())

    by_group = await session.at("discussion").each(config.groups, discuss, sets=str)
    outputs.write_topline(session, config, [t for group in by_group.values() for t in group])
