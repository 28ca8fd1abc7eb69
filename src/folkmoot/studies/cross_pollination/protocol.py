"""Cross-pollination in nine phases, each a function from state to state.

A phase begins as soon as it can, which need not be when the one before is over: interviews do not
wait for the last first vote, nor the reasons for one option for interviews about another; and votes
that nobody waits for fill what gaps there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from folkmoot.engine.session import Promise, Scope, Session
from folkmoot.studies.cross_pollination.adversarial import adversarial_dialogue
from folkmoot.studies.cross_pollination.clarification import Interviews, clarification
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.exposure import (
    cross_pollination,
    second_vote,
    show_summaries,
)
from folkmoot.studies.cross_pollination.opposition import opposition
from folkmoot.studies.cross_pollination.outputs import (
    Records,
    final_statistics,
    save_embeddings,
    save_results,
    write_checkpoint,
)
from folkmoot.studies.cross_pollination.recruitment import recruit
from folkmoot.studies.cross_pollination.state import State
from folkmoot.studies.cross_pollination.summaries import summaries
from folkmoot.studies.cross_pollination.voting import Ballots, initial_vote, threshold_check

Phase = Callable[..., Awaitable[State]]

# The source's numbers, for the log and the checkpoint; in this order rows stand in the tables.
NUMBER: dict[Phase, int | None] = {
    initial_vote: 1,
    threshold_check: 2,
    clarification: 3,
    second_vote: None,  # ours
    summaries: 4,
    opposition: 5,
    show_summaries: None,  # the first part of 6
    cross_pollination: 6,
    adversarial_dialogue: 7,
    final_statistics: 8,
    save_results: 9,
}


async def protocol(session: Session) -> None:
    """Recruit, then the phases; an early end leaves out all but the last two."""
    config: CrossPollinationConfig = session.config
    begun = await recruit(session, config)
    run = _Phases(session)
    ballots = Ballots(session, config, begun)
    records = Records(run.scope(save_results), begun)
    counted: Promise[State] = session.promise()

    async def voting(_: Scope) -> State:
        state = await run(initial_vote, begun, ballots)
        state = await run(threshold_check, state)
        if state.terminated_early:
            session.warn(f"the study ends here: {state.termination_reason}")
        ballots.close(state)
        counted.give(state)
        return state

    async def voting_again(_: Scope) -> State:
        if not config.voting_again or not await ballots.goes_on():
            return begun
        return await run(second_vote, begun, ballots, records)

    async def discussion(scope: Scope) -> State:
        if not await ballots.goes_on():
            save_embeddings(session, config, begun)
            return begun
        interviews = Interviews(scope, begun, ballots)
        asked = await scope.together(
            asking=lambda _: run(clarification, begun, ballots, interviews),
            grouping=lambda _: run(summaries, begun, interviews),
        )
        state = begun.merged(asked["grouping"], asked["asking"], await counted.get())
        state = await run(opposition, state)
        state = await run(show_summaries, state)

        async def arguing(_: Scope) -> State:
            argued = await run(adversarial_dialogue, state, records)
            save_embeddings(session, config, state)  # while the last ones read
            return argued

        done = await scope.together(
            arguing=arguing,  # longer than reading, so first
            reading=lambda _: run(cross_pollination, state, records),
        )
        return state.merged(*done.values())

    done = await session.together(voting=voting, discussion=discussion, again=voting_again)
    state = begun.merged(done["again"], done["discussion"], done["voting"])
    state = await run(final_statistics, state)
    await run(save_results, state, records)


class _Phases:
    """Runs phases, each in the scope of its name; says what is done, and how far the run is."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._scopes = {phase: session.at(phase.__name__) for phase in NUMBER}
        self._over: dict[int, Phase | None] = {}  # None: left out
        self._written = 0

    def scope(self, phase: Phase) -> Scope:
        return self._scopes[phase]

    async def __call__(self, phase: Phase, state: State, *more: Any) -> State:
        scope, number = self._scopes[phase], NUMBER[phase]
        state = await phase(scope, self._session.config, state, *more)
        if number:
            self._over[number] = phase
            self._checkpoint(state)
        else:
            scope.log("done")
        return state

    def _checkpoint(self, state: State) -> None:
        """Write and say how far the run is: the last phase before which none is under way."""
        if state.terminated_early:
            self._over = {**dict.fromkeys(range(3, 8)), **self._over}
        reached = self._written
        while reached + 1 in self._over:
            reached += 1
            phase = self._over[reached]
            if phase is not None:
                self._scopes[phase].log(f"done (phase {reached} of 9)")
        if reached > self._written:
            self._written = reached
            write_checkpoint(self._session, reached, state)
