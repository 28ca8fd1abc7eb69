"""Phases 1 and 2, and how the final vote of every condition is taken."""

from __future__ import annotations

from dataclasses import replace

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.randomness import uniform
from folkmoot.studies.cross_pollination.asking import Put, vote
from folkmoot.studies.cross_pollination.config import SIMPLE_VOTING, CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import COMPLETE, Participant, State
from folkmoot.studies.cross_pollination.quality import AFTER, BEFORE, rated, restated


async def initial_vote(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 1: everybody chooses one option, without giving reasons."""

    async def one(scope: Scope, p: Participant) -> Participant:
        p = prepared(p, scope, config)
        put = Put(p.system, scope.prompt("initial_vote", options=p.options))
        choice = await vote(scope, p, put)
        if isinstance(choice, Missing):
            return p.failed("initial vote", choice)
        p = p.with_(initial_choice=choice, status=COMPLETE)
        return await rated(scope, config, p, put.answered(p, choice), BEFORE)

    return state.updated((await scope.each(state.active, one)).values())


def prepared(p: Participant, scope: Scope, config: CrossPollinationConfig) -> Participant:
    """The participant with the order in which they see the options, and their system prompt."""
    options = config.topic.options
    if config.option_order == "random":
        options = tuple(sorted(options, key=lambda o: uniform(scope.seed, "option_order", p.id, o)))
    system = scope.prompt(
        "participant_system", persona=p.persona.text, topic=config.topic, options=options
    )
    return p.with_(options=options, told=scope.keep(system))


def threshold_check(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 2: stop when the first vote is already (nearly) unanimous."""
    votes = state.votes()
    if votes.total() == 0:
        return _ended(scope, state, "no participant gave a valid first vote")
    if votes.total() < config.min_responses_for_threshold:
        scope.log(
            f"{votes.total()} votes, fewer than {config.min_responses_for_threshold}: no check"
        )
        return state
    option, most = max(votes.items(), key=lambda item: item[1])
    share = most / votes.total()
    if share < config.disagreement_threshold:
        return state
    return _ended(
        scope,
        state,
        f"{share:.1%} of {votes.total()} first votes are for {option!r} "
        f"(disagreement_threshold {config.disagreement_threshold:g})",
    )


def _ended(scope: Scope, state: State, reason: str) -> State:
    """The study stopped early: those whose part was still to come are skipped.

    Simple voting is complete with its first vote; a second one (`revote`) is our noise floor.
    """
    scope.root.warn(f"the study ends early: {reason}")
    rest = [p for p in state.active if p.condition != SIMPLE_VOTING]
    skipped = [p.skipped(f"terminated early: {reason}") for p in rest]
    return replace(state.updated(skipped), termination_reason=reason)


async def final_vote(
    scope: Scope, config: CrossPollinationConfig, p: Participant, put: Put
) -> Participant:
    """The participant with a final choice and what is asked about it, or failed."""
    choice = await vote(scope, p, put)
    if isinstance(choice, Missing):
        return p.failed("final vote", choice)
    told = put.answered(p, choice)
    p = await rated(scope, config, p.with_(final_choice=choice), told, AFTER)
    return await restated(scope, p, told)
