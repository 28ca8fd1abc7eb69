"""Phase 6: all viewpoints are shown; reading conditions vote, the adversarial one goes on to 7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from folkmoot.conversation.transcript import EMPTY
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.config import (
    ACP,
    EMPTY_ARGUMENT,
    NAMES_ONLY,
    READING,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.outputs import Records
from folkmoot.studies.cross_pollination.state import Participant, State
from folkmoot.studies.cross_pollination.voting import LATE, Ballots, final_vote


async def show_summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 6, first part: what everybody who reads is shown, which is the same for all."""
    content = format_cross_pollination_content(scope, config, state)
    if not content:
        readers = state.chosen(*READING, ACP)
        return state.updated(p.skipped("there are no positions to show") for p in readers)
    return replace(state, content=content)


async def cross_pollination(
    scope: Scope, config: CrossPollinationConfig, state: State, records: Records
) -> State:
    """Phase 6, second part: those who only read vote on what they have read."""

    scope.patience = LATE  # dialogues are longer and go first

    async def one(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt("final_vote_after_summary", cross_pollination_content=state.content)
        heard = (p.clarification or EMPTY) if config.remember_clarification else EMPTY
        system = _system(scope, config, p, "summary_reader")
        p = p.with_(cross_pollination_content=state.content)
        return records.over(await final_vote(scope, p, system, prompt, heard))

    return state.updated((await scope.each(state.chosen(*READING), one)).values())


def format_cross_pollination_content(
    scope: Scope, config: CrossPollinationConfig, state: State
) -> str:
    """The viewpoints of all options as markdown; empty when there are no clusters."""
    votes = state.votes()
    total = sum(votes.values())
    sections: list[dict[str, Any]] = []
    for option in config.topic.options:
        descriptions = [c.description for c in state.clusters_of(option)]
        if descriptions:
            count = votes.get(option, 0)
            share = round(100 * count / total) if config.include_vote_distribution else None
            sections.append(
                {"option": option, "descriptions": descriptions, "votes": count, "share": share}
            )
    return scope.prompt("cross_pollination_content", sections=sections) if sections else ""


async def second_vote(
    scope: Scope,
    config: CrossPollinationConfig,
    state: State,
    ballots: Ballots,
    records: Records,
) -> State:
    """Votes that nothing was said before: the floor of noise, and the placebo arms."""

    async def again(scope: Scope, p: Participant) -> Participant:
        p, goes_on = await ballots.voted(p)
        if not goes_on:
            return p
        system = _system(scope, config, p, "returning_voter")
        if p.condition == NAMES_ONLY:
            prompt = scope.prompt("names_only_vote", options=p.options)
        elif p.condition == EMPTY_ARGUMENT:
            others = [o for o in p.options if o != p.initial_choice]
            other = others[int(scope.rng.integers(len(others)))]
            prompt = scope.prompt("empty_argument_vote", other_option=other)
        else:
            prompt = scope.prompt("second_vote", options=p.options)
        return records.over(await final_vote(scope, p, system, prompt))

    scope.patience = LATE
    again_voters = state.chosen(*config.voting_again)
    return state.updated((await scope.each(again_voters, again)).values())


def _system(scope: Scope, config: CrossPollinationConfig, p: Participant, name: str) -> str:
    return scope.prompt(
        name,
        base_system_prompt=p.system,
        initial_choice=p.initial_choice,
    )
