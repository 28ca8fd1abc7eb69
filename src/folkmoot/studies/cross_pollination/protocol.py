"""The protocol of cross-pollination: the nine phases of the source study in their order."""

from __future__ import annotations

from functools import partial

from folkmoot.engine.session.session import Scope, Session
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.files import (
    final_statistics,
    save_results,
    write_checkpoint,
    write_embeddings,
)
from folkmoot.studies.cross_pollination.interviews import build_summaries, run_clarification
from folkmoot.studies.cross_pollination.opposition import run_opposition
from folkmoot.studies.cross_pollination.participants import State, recruit_participants
from folkmoot.studies.cross_pollination.tables import record_ended, record_participant
from folkmoot.studies.cross_pollination.voting import (
    adversarial_dialogue,
    assign_restated_options,
    code_restatements,
    cross_pollination,
    delayed_vote,
    initial_vote,
    second_vote,
    show_summaries,
    threshold_check,
)


async def run_protocol(session: Session[CrossPollinationConfig]) -> None:
    """Recruit participants and run all phases."""
    # If the first vote is nearly unanimous, only the last two phases follow it.
    config, child = session.config, session.child
    # The scope is created before all phases, so that the rows of participants have one fixed
    # position. Each row is recorded as soon as its participant ends.
    rows = child("participants")
    state = await recruit_participants(session)

    state = await initial_vote(child("initial_vote"), config, state)
    write_checkpoint(session, "initial_vote", state)

    state = threshold_check(child("threshold_check"), config, state)
    write_checkpoint(session, "threshold_check", state)

    if state.terminated_early:
        write_embeddings(session, state)
    else:
        state = await run_deliberation(session, state, rows)

    final_statistics(child("final_statistics"), config, state)
    write_checkpoint(session, "final_statistics", state)

    # Record the participants without a row so far: those who were skipped or failed late. This is
    # done last because a recorded row cannot change.
    for participant in state.people.values():
        record_participant(rows, participant)
    save_results(session, state)
    write_checkpoint(session, "save_results", state)


async def run_deliberation(
    session: Session[CrossPollinationConfig], state: State, rows: Scope
) -> State:
    """Run phases 3 to 7: interviews, summaries, opposing views and final votes."""
    config, child = session.config, session.child

    state = await run_clarification(child("clarification"), config, state)
    write_checkpoint(session, "clarification", state)

    state = await build_summaries(child("summaries"), config, state)
    write_embeddings(session, state)
    write_checkpoint(session, "summaries", state)

    state = await run_opposition(child("opposition"), config, state)
    write_checkpoint(session, "opposition", state)

    state = assign_restated_options(config, show_summaries(session, config, state))
    state = record_ended(rows, config, state)
    # The three kinds of final votes run concurrently. Dialogues are the longest chains of calls, so
    # they start first.
    stages = {
        "adversarial_dialogue": adversarial_dialogue,
        "cross_pollination": cross_pollination,
    }
    if config.uninformed_revote_conditions:
        stages["second_vote"] = second_vote
    final_votes = {
        name: partial(stage, config=config, state=state, rows=rows)
        for name, stage in stages.items()
    }
    for voters in (await session.map(final_votes)).values():
        state = state.with_updates(voters)
    # Phases 6 and 7 run at the same time, so both checkpoints follow here, in the source's order.
    write_checkpoint(session, "cross_pollination", state)
    write_checkpoint(session, "adversarial_dialogue", state)

    if config.delayed_vote:
        state = await delayed_vote(child("delayed_vote"), config, state, rows)
    if config.restatement:
        await code_restatements(session, state)
    return state
