"""Phase 6: all viewpoints are shown; reading conditions then vote, the adversarial one waits."""

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
    SIMPLE_VOTING,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.state import Participant, State
from folkmoot.studies.cross_pollination.voting import base_system, final_vote


async def cross_pollination(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Show the summaries and take the final votes of all conditions without a dialogue."""
    content = format_cross_pollination_content(scope, config, state)
    if not content:
        gone = state.chosen(*READING, ACP)
        state = state.updated(p.skipped("there are no positions to show") for p in gone)
    state = replace(state, content=content)

    async def read_and_vote(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt("final_vote_after_summary", cross_pollination_content=content)
        heard = (p.clarification or EMPTY) if config.remember_clarification else EMPTY
        read = p.with_(cross_pollination_content=content)
        return await final_vote(
            scope, read, _system(scope, config, p, "summary_reader"), prompt, heard
        )

    state = state.updated(
        (await scope.at("reading").each(state.chosen(*READING), read_and_vote)).values()
    )
    state = state.updated(p.with_(cross_pollination_content=content) for p in state.chosen(ACP))
    return await _uninformed(scope, config, state)


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


async def _uninformed(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """The second votes that nothing was said before: the floor of noise, and the placebo arms."""

    async def again(scope: Scope, p: Participant) -> Participant:
        system = _system(scope, config, p, "returning_voter")
        if p.condition == NAMES_ONLY:
            prompt = scope.prompt("names_only_vote", options=p.options)
        elif p.condition == EMPTY_ARGUMENT:
            others = [o for o in p.options if o != p.initial_choice]
            other = others[int(scope.rng.integers(len(others)))]
            prompt = scope.prompt("empty_argument_vote", other_option=other)
        else:
            prompt = scope.prompt("second_vote", options=p.options)
        return await final_vote(scope, p, system, prompt)

    arms = [*((SIMPLE_VOTING,) if config.revote else ()), *config.extra_conditions]
    again_voters = state.chosen(*arms) if arms else []
    return state.updated((await scope.at("second_vote").each(again_voters, again)).values())


def _system(scope: Scope, config: CrossPollinationConfig, p: Participant, name: str) -> str:
    return scope.prompt(
        name,
        base_system_prompt=base_system(scope, config, p),
        initial_choice=p.initial_choice,
    )
