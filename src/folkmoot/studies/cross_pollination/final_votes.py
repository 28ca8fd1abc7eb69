"""Phases 6 and 7: what everybody is shown, and the final votes after reading, after an adversarial
dialogue, or after nothing at all (`second_vote`, our noise floor)."""

from __future__ import annotations

from collections.abc import Iterable

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.dialogue import question_and_answer
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.config import (
    EMPTY_ARGUMENT,
    NAMES_ONLY,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.interviews import SATISFIED
from folkmoot.studies.cross_pollination.participants import Participant, State
from folkmoot.studies.cross_pollination.voting import Put, final_vote


def show_summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 6, first part: what those who read are shown, the same for all of one draw."""
    draws = range(1, config.summary_draws + 1)
    pages = {draw: format_cross_pollination_content(scope, config, state, draw) for draw in draws}

    def reading(p: Participant) -> Participant:
        page = pages[p.summary_draw or 1]
        if not page:
            return p.skipped("there are no positions to show")
        return p.with_(cross_pollination_content=page)

    return state.updated(map(reading, state.chosen(config.those_with("summaries"))))


def format_cross_pollination_content(
    scope: Scope, config: CrossPollinationConfig, state: State, draw: int = 1
) -> str:
    """The viewpoints of all options as markdown; empty when there are no described clusters."""
    votes = state.votes()
    sections: list[dict[str, object]] = []
    for option in config.topic.options:
        drawn = (c.descriptions[draw - 1] for c in state.clusters_of(option))
        descriptions = [text for text in drawn if text]
        if descriptions:
            count = votes[option]
            share = round(100 * count / votes.total()) if config.include_vote_distribution else None
            sections.append(
                {"option": option, "descriptions": descriptions, "votes": count, "share": share}
            )
    return scope.prompt("cross_pollination_content", sections=sections) if sections else ""


async def adversarial_dialogue(
    scope: Scope, config: CrossPollinationConfig, state: State
) -> Iterable[Participant]:
    """Phase 7: Socratic questions from the opposing view, then the final vote."""

    async def one(scope: Scope, p: Participant) -> Participant:
        told = {"base_system_prompt": p.system, "initial_choice": p.initial_choice}
        challenges = scope.prompt(
            "adversarial_moderator",
            topic=config.topic,
            options=p.options,
            initial_choice=p.initial_choice,
            cross_pollination_content=p.cross_pollination_content or "",
            opposition_view=p.opposition_view,
        )
        talk = await question_and_answer(
            scope,
            Speaker("moderator", "Moderator", "moderator", challenges),
            p.speaker(scope.prompt("adversarial_participant", **told)),
            opening=scope.prompt("adversarial_opening"),
            signal=SATISFIED,
            max_exchanges=config.max_socratic_exchanges,
        )
        p = p.with_(dialogue=scope.keep(talk.transcript))
        if talk.missing is not None:
            return p.failed(f"adversarial dialogue ({talk.silent})", talk.missing)
        if not talk.transcript:
            return p.failed("adversarial dialogue", Missing("moderator said nothing"))
        in_view = config.in_view(p.condition)
        prompt = scope.prompt(
            "final_vote_after_dialogue",
            cross_pollination_content=p.cross_pollination_content if in_view.summaries else "",
            dialogue=talk.transcript,
        )
        system = scope.prompt("dialogue_voter", **told)
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    return (await scope.each(state.chosen(config.those_with("dialogue")), one)).values()


async def cross_pollination(
    scope: Scope, config: CrossPollinationConfig, state: State
) -> Iterable[Participant]:
    """Phase 6, second part: those who only read vote on what they have read."""

    async def one(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt(
            "final_vote_after_summary", cross_pollination_content=p.cross_pollination_content
        )
        system = _system(scope, p, "summary_reader")
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    arguing = config.those_with("dialogue")
    reading = [n for n in config.those_with("summaries") if n not in arguing]
    return (await scope.each(state.chosen(reading), one)).values()


async def second_vote(
    scope: Scope, config: CrossPollinationConfig, state: State
) -> Iterable[Participant]:
    """Votes of those who read nothing and argued with nobody: the noise floor, the placebo arms,
    and those who were interviewed and no more."""

    async def one(scope: Scope, p: Participant) -> Participant:
        if p.condition == NAMES_ONLY:
            prompt = scope.prompt("names_only_vote", options=p.options)
        elif p.condition == EMPTY_ARGUMENT:
            others = [o for o in p.options if o != p.initial_choice]
            other = others[int(scope.rng.integers(len(others)))]
            prompt = scope.prompt("empty_argument_vote", other_option=other)
        elif p.clarification:
            prompt = scope.prompt("final_vote_after_interview", options=p.options)
        else:
            prompt = scope.prompt("second_vote", options=p.options)
        system = _system(scope, p, "returning_voter")
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    return (await scope.each(state.chosen(config.voting_otherwise), one)).values()


def _interview(config: CrossPollinationConfig, p: Participant) -> Transcript:
    """The participant's interview where it is in view at the final vote: a model has no memory but
    its prompt."""
    return (p.clarification or EMPTY) if config.in_view(p.condition).interview else EMPTY


def _system(scope: Scope, p: Participant, name: str) -> str:
    return scope.prompt(name, base_system_prompt=p.system, initial_choice=p.initial_choice)
