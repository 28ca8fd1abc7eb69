"""Cross-pollination in nine phases, each a function from state to state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.cross_pollination.adversarial import adversarial_dialogue
from folkmoot.studies.cross_pollination.clarification import clarification
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.exposure import (
    cross_pollination,
    second_vote,
    show_summaries,
)
from folkmoot.studies.cross_pollination.opposition import opposition
from folkmoot.studies.cross_pollination.outputs import (
    final_statistics,
    save_results,
    write_checkpoint,
)
from folkmoot.studies.cross_pollination.recruitment import recruit
from folkmoot.studies.cross_pollination.state import State
from folkmoot.studies.cross_pollination.summaries import summaries
from folkmoot.studies.cross_pollination.voting import initial_vote, threshold_check

Phase = Callable[[Scope, CrossPollinationConfig, State], Awaitable[State]]

# Phases of one line run side by side: none of them knows of the others.
PHASES: tuple[tuple[Phase, ...], ...] = (
    (initial_vote,),
    (threshold_check,),
    (clarification, second_vote),
    (summaries,),
    (opposition,),
    (show_summaries,),
    (cross_pollination, adversarial_dialogue),
    (final_statistics,),
    (save_results,),
)
# The source's numbers, for the log and the checkpoint.
NUMBER = {
    initial_vote: 1,
    threshold_check: 2,
    clarification: 3,
    summaries: 4,
    opposition: 5,
    cross_pollination: 6,
    adversarial_dialogue: 7,
    final_statistics: 8,
    save_results: 9,
}
ALWAYS: tuple[Phase, ...] = (final_statistics, save_results)


async def protocol(session: Session) -> None:
    """Recruit, then run the phases in order; an early end leaves out all but the last two."""
    config: CrossPollinationConfig = session.config
    state = await recruit(session, config)
    for phases in PHASES:
        if state.terminated_early and phases[0] not in ALWAYS:
            continue
        if not config.voting_again:
            phases = tuple(p for p in phases if p is not second_vote)  # noqa: PLW2901
        state = await _side_by_side(session, config, state, phases)
        if state.terminated_early and phases[0] is threshold_check:
            session.warn(f"the study ends here: {state.termination_reason}")
        for number in sorted(NUMBER[phase] for phase in phases if phase in NUMBER):
            write_checkpoint(session, number, state)


async def _side_by_side(
    session: Session, config: CrossPollinationConfig, state: State, phases: tuple[Phase, ...]
) -> State:
    def part(phase: Phase) -> Callable[[Scope], Awaitable[State]]:
        async def run(scope: Scope) -> State:
            scope.log(f"begins{_numbered(phase)}")
            after = await phase(scope, config, state)
            scope.log("done")
            return after

        return run

    if len(phases) == 1:
        return await part(phases[0])(session.at(phases[0].__name__))
    done = await session.together(**{phase.__name__: part(phase) for phase in phases})
    return state.merged(*done.values())


def _numbered(phase: Phase) -> str:
    return f" (phase {NUMBER[phase]} of 9)" if phase in NUMBER else ""
