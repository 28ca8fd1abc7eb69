"""Phase 3: a neutral moderator interviews the clarified participants about their reasons.

The summary of an interview (the first part of phase 4) is asked for as soon as it is over, so that
nobody waits for the longest one.
"""

from __future__ import annotations

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.dialogue import question_and_answer
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.config import CLARIFIED, CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Participant, State
from folkmoot.studies.cross_pollination.summaries import summarised
from folkmoot.studies.cross_pollination.voting import Ballots

SATISFIED = "SATISFIED"


async def clarification(
    scope: Scope, config: CrossPollinationConfig, state: State, ballots: Ballots
) -> State:
    """Interview each participant of the clarified conditions until the moderator is satisfied."""

    async def one(scope: Scope, p: Participant) -> Participant:
        p, goes_on = await ballots.voted(p)
        if not goes_on:
            return p
        moderator = Speaker(
            "moderator",
            "Moderator",
            "moderator",
            scope.prompt(
                "clarification_moderator",
                topic=config.topic,
                options=p.options,
                initial_choice=p.initial_choice,
            ),
        )
        participant = p.speaker(
            scope.prompt(
                "clarification_participant",
                base_system_prompt=p.system,
                initial_choice=p.initial_choice,
            )
        )
        talk = await question_and_answer(
            scope,
            moderator,
            participant,
            opening=scope.prompt("clarification_opening"),
            signal=SATISFIED,
            max_exchanges=config.max_clarification_exchanges,
        )
        if talk.missing is not None:
            return p.with_(clarification=talk.transcript).failed(
                f"clarification ({talk.silent})", talk.missing
            )
        if not talk.transcript:
            return p.failed("clarification", Missing("moderator asked nothing"))
        return await summarised(scope.at("summary"), p.with_(clarification=talk.transcript))

    return state.updated((await scope.each(state.chosen(*CLARIFIED), one)).values())
