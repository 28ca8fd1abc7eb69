"""Phases 1 and 2 and every later vote: one prompt, one option, or a reason why there is none."""

from __future__ import annotations

from dataclasses import replace

from folkmoot.conversation.answers import Choice, Missing
from folkmoot.conversation.transcript import EMPTY, Transcript
from folkmoot.engine.session import Promise, Scope
from folkmoot.randomness import uniform
from folkmoot.studies.cross_pollination.config import (
    CLARIFIED,
    SIMPLE_VOTING,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.state import COMPLETE, Participant, State

# Patience of calls that few others wait for: they fill the gaps that longer chains leave.
LATE = 1


def prepared(p: Participant, scope: Scope, config: CrossPollinationConfig) -> Participant:
    """The participant with the order in which they see the options, and their system prompt."""
    options = config.topic.options
    if config.option_order == "random":
        options = tuple(sorted(options, key=lambda o: uniform(scope.seed, "option_order", p.id, o)))
    system = scope.prompt(
        "participant_system", persona=p.enriched_persona, topic=config.topic, options=options
    )
    return p.with_(options=options, system=system)


async def vote(
    scope: Scope, p: Participant, system: str, prompt: str, heard: Transcript = EMPTY
) -> str | Missing:
    """One vote; the options are those of the topic in the participant's own order."""
    return await scope.ask(p.speaker(system), prompt, heard=heard, answer=Choice(p.options))


async def final_vote(
    scope: Scope, p: Participant, system: str, prompt: str, heard: Transcript = EMPTY
) -> Participant:
    """The participant with a final choice, or failed."""
    choice = await vote(scope, p, system, prompt, heard)
    if isinstance(choice, Missing):
        return p.failed("final vote", choice)
    return p.with_(final_choice=choice)


class Ballots:
    """First votes as they come in, so that nobody need wait for the last one without need."""

    def __init__(self, scope: Scope, config: CrossPollinationConfig, state: State) -> None:
        self._scope = scope
        self._config = config
        self._voted: dict[str, Promise[Participant]] = {
            p.id: scope.promise() for p in state.chosen()
        }
        self._goes_on: Promise[bool] = scope.promise()
        self._counts = dict.fromkeys(config.topic.options, 0)
        self._outstanding = len(self._voted)

    def cast(self, p: Participant) -> None:
        """Take in a participant who has voted, or could not."""
        self._outstanding -= 1
        if p.status == COMPLETE and p.initial_choice is not None:
            self._counts[p.initial_choice] += 1
        if not self._goes_on.given and self._cannot_stop():
            self._goes_on.give(True)
            self._scope.log(f"{self._why()}: interviews begin")
        self._voted[p.id].give(p)

    def close(self, state: State) -> None:
        """Take in the outcome of the check."""
        if not self._goes_on.given:
            self._goes_on.give(not state.terminated_early)

    async def voted(self, p: Participant) -> tuple[Participant, bool]:
        """The participant as after the first vote, and whether there is more for them to do."""
        p = await self._voted[p.id].get()
        return p, p.active and await self.goes_on()

    async def goes_on(self) -> bool:
        """Whether the check lets the study go on; known as soon as no vote to come can stop it."""
        return await self._goes_on.get()

    def _cannot_stop(self) -> bool:
        """Whether the check can't end the study even with all votes to come: the leading option
        stays below the threshold, or there are too few votes to look at it."""
        most, total = max(self._counts.values()), sum(self._counts.values())
        reachable = (most + self._outstanding) / max(1, total + self._outstanding)
        return total > 0 and (self._too_few() or reachable < self._config.disagreement_threshold)

    def _too_few(self) -> bool:
        votes = sum(self._counts.values()) + self._outstanding
        return votes < self._config.min_responses_for_threshold

    def _why(self) -> str:
        if self._too_few():
            return f"fewer than {self._config.min_responses_for_threshold} votes, so no check"
        share = 100 * self._config.disagreement_threshold
        return f"no option can get {share:g} % of the first votes any more"


async def initial_vote(
    scope: Scope, config: CrossPollinationConfig, state: State, ballots: Ballots
) -> State:
    """Phase 1: everybody chooses one option, without giving reasons."""

    async def one(scope: Scope, p: Participant) -> Participant:
        if p.condition not in CLARIFIED:
            scope.patience = LATE  # no interview waits for this vote
        p = prepared(p, scope, config)
        choice = await vote(scope, p, p.system, scope.prompt("initial_vote", options=p.options))
        if isinstance(choice, Missing):
            p = p.failed("initial vote", choice)
        else:
            p = p.with_(initial_choice=choice, status=COMPLETE)
        ballots.cast(p)
        return p

    return state.updated((await scope.each(state.chosen(), one)).values())


async def threshold_check(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 2: stop when the first vote is (nearly) unanimous already."""
    votes = state.votes(lambda p: p.status == COMPLETE)
    total = sum(votes.values())
    if total == 0:
        return _ended(state, "no participant gave a valid first vote")
    if total < config.min_responses_for_threshold:
        scope.log(f"{total} votes, fewer than {config.min_responses_for_threshold}: no check")
        return state
    option, most = max(votes.items(), key=lambda item: item[1])
    if most / total >= config.disagreement_threshold:
        return _ended(
            state,
            f"{most / total:.1%} of {total} first votes are for {option!r} "
            f"(disagreement_threshold {config.disagreement_threshold:g})",
        )
    return state


def _ended(state: State, reason: str) -> State:
    """The study stopped early: those whose part was still to come are skipped.

    Simple voting is complete with its first vote; a second one (`revote`) is our floor of noise.
    """
    rest = [p for p in state.chosen() if p.condition != SIMPLE_VOTING]
    skipped = [p.skipped(f"terminated early: {reason}") for p in rest]
    return replace(state.updated(skipped), terminated_early=True, termination_reason=reason)
