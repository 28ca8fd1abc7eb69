"""Cross-pollination in nine phases, each a function from state to state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from folkmoot.engine.session import Scope, Session
from folkmoot.studies.cross_pollination.adversarial import adversarial_dialogue
from folkmoot.studies.cross_pollination.clarification import clarification
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.exposure import cross_pollination
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

PHASES: tuple[Phase, ...] = (
    initial_vote,
    threshold_check,
    clarification,
    summaries,
    opposition,
    cross_pollination,
    adversarial_dialogue,
    final_statistics,
    save_results,
)
ALWAYS: tuple[Phase, ...] = (final_statistics, save_results)


async def protocol(session: Session) -> None:
    """Recruit, then run the phases in order; an early end leaves out all but the last two."""
    config: CrossPollinationConfig = session.config
    state = await recruit(session, config)
    for number, phase in enumerate(PHASES, start=1):
        if state.terminated_early and phase not in ALWAYS:
            continue
        session.log(f"phase {number} of {len(PHASES)}: {phase.__name__} begins")
        state = await phase(session.at(phase.__name__), config, state)
        if state.terminated_early and phase is threshold_check:
            session.warn(f"the study ends here: {state.termination_reason}")
        write_checkpoint(session, number, state)
        session.log(f"phase {number} of {len(PHASES)}: {phase.__name__} done")
