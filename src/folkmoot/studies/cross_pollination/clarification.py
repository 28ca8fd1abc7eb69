"""Phase 3: a neutral moderator interviews the clarified participants about their reasons.

The summary of an interview (the first part of phase 4) is asked for as soon as it is over, so that
nobody waits for the longest one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.dialogue import question_and_answer
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Promise, Scope
from folkmoot.studies.cross_pollination.config import CLARIFIED, CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Participant, State
from folkmoot.studies.cross_pollination.voting import Ballots

SATISFIED = "SATISFIED"
ANALYST = Speaker("summarizer", "Summarizer", "summarizer")


class Interviews:
    """Interviews as they end, so that nobody need wait for all of them without need."""

    def __init__(self, scope: Scope, state: State, ballots: Ballots) -> None:
        self._ballots = ballots
        self._people = state.chosen(*CLARIFIED)
        self._ended: dict[str, Promise[Participant]] = {p.id: scope.promise() for p in self._people}

    def end(self, p: Participant) -> None:
        """Take in a participant whose interview is over, or failed."""
        self._ended[p.id].give(p)

    async def of(self, option: str) -> AsyncIterator[Participant]:
        """Those who chose an option, in order, as they are after their interviews."""
        for p in self._people:
            voted, goes_on = await self._ballots.voted(p)
            if goes_on and voted.initial_choice == option:
                yield await self._ended[p.id].get()


async def clarification(
    scope: Scope,
    config: CrossPollinationConfig,
    state: State,
    ballots: Ballots,
    interviews: Interviews,
) -> State:
    """Interview each participant of the clarified conditions until the moderator is satisfied."""

    async def one(scope: Scope, p: Participant) -> Participant:
        p, goes_on = await ballots.voted(p)
        if not goes_on:
            return p
        p = await interviewed(scope, p)
        interviews.end(p)
        return p

    async def interviewed(scope: Scope, p: Participant) -> Participant:
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


async def summarised(scope: Scope, p: Participant) -> Participant:
    """The participant with the interview in one to three sentences, or failed."""
    prompt = scope.prompt(
        "individual_summary", initial_choice=p.initial_choice, dialogue=p.clarification
    )
    summary = await scope.ask(ANALYST, prompt)
    if isinstance(summary, Missing):
        return p.failed("individual summary", summary)
    return p.with_(individual_summary=summary)
