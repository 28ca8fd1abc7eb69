"""Phase 5: which option stands against each participant's own, by one of five methods.

A new method is one function and one line in METHODS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope
from folkmoot.models.request import FloatArray
from folkmoot.provenance import cell_id, quote_value
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import (
    Participant,
    Reasons,
    State,
    quote_options,
    quote_topic,
)

JUDGE = Speaker("judge", "Judge", "judge")


@dataclass(frozen=True)
class OppositionData:
    """What the methods choose from: everybody's votes, positions and clusters. All of it goes to
    every machine that has a part, so of everybody there is what this run's method needs."""

    config: CrossPollinationConfig
    votes: Mapping[str, int]
    spoken: tuple[Reasons, ...]  # of the m participants with an embedding, for the judge
    at: Mapping[str, int]  # the place of each among them, by id
    choices: NDArray[np.object_]  # (m,), their first choices, for the method `choose_by_embedding`
    embeddings: FloatArray  # (m, d), as well
    argued: tuple[str, ...]  # the options that have described clusters
    means: NDArray[
        np.float64
    ]  # (options argued, d), weighted mean of each one's clusters, length one


Method = Callable[[Scope, Participant, OppositionData], Awaitable[str | None]]


async def run_opposition(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Give each participant with a dialogue an opposing view, or skip those who can have none.

    Without an interview nothing is known of a participant's reasons, so it is the most voted other
    option, whatever the method.
    """
    views = _collect_opposition_data(config, state)
    method = METHODS[config.opposition_method]

    async def find_opposing_view(scope: Scope, participant: Participant) -> Participant:
        view = (
            await method(scope, participant, views)
            if config.condition_designs[participant.condition].interview
            else None
        )
        if view is None or view == participant.initial_choice:
            view = await most_voted_other(scope, participant, views)
        if view is None:
            return participant.with_skip(
                "nobody chose another option, so there is no opposing view"
            )
        id = cell_id("participants.opposition_view", participant.id)
        return participant.with_changes(opposition_view=quote_value(str(view), "option", id))

    arguing = state.participants_in(config.conditions_with("dialogue"))
    return state.with_updates((await scope.map(arguing, find_opposing_view)).values())


def _collect_opposition_data(config: CrossPollinationConfig, state: State) -> OppositionData:
    spoken = [
        participant
        for participant in state.participants_in(config.conditions_with("interview"))
        if participant.embedding is not None
    ]
    means: dict[str, NDArray[np.float64]] = {}
    for option in config.topic.options:
        own = [cluster for cluster in state.clusters_of(option) if cluster.embedding is not None]
        if own:
            stacked = np.array([cluster.embedding for cluster in own])
            mean = np.average(stacked, axis=0, weights=[len(cluster.member_ids) for cluster in own])
            means[option] = mean / (float(np.linalg.norm(mean)) or 1.0)
    method = METHODS[config.opposition_method]
    judged = spoken if method is llm_judge else []
    compared = spoken if method is choose_by_embedding else []
    return OppositionData(
        config,
        state.votes(),
        tuple(participant.stated_reasons for participant in judged),
        {participant.id: place for place, participant in enumerate(judged)},
        np.array([participant.initial_choice for participant in compared], dtype=object),
        np.array([participant.embedding for participant in compared]),
        tuple(means),
        np.array([*means.values()]),
    )


async def most_voted_other(
    _scope: Scope, participant: Participant, views: OppositionData
) -> str | None:
    """The option with most first votes that is not the participant's own; ties by file order."""
    others = [
        option
        for option in views.config.topic.options
        if option != participant.initial_choice and views.votes.get(option)
    ]
    return max(others, key=lambda option: views.votes[option], default=None)


async def choose_predefined(
    _scope: Scope, participant: Participant, views: OppositionData
) -> str | None:
    """As the study file's `opposition_mapping` says."""
    return (views.config.opposition_mapping or {}).get(participant.initial_choice or "")


async def choose_by_embedding(
    _scope: Scope, participant: Participant, views: OppositionData
) -> str | None:
    """The choice of the participant whose summary is farthest (cosine) from one's own."""
    others = views.choices != participant.initial_choice
    if participant.embedding is None or not others.any():
        return None
    near = np.where(others, views.embeddings @ participant.embedding, np.inf)
    return cast("str", views.choices[int(np.argmin(near))])


async def cluster_embedding(
    _scope: Scope, participant: Participant, views: OppositionData
) -> str | None:
    """The option whose mean cluster embedding, weighted by members, is farthest (cosine)."""
    if participant.embedding is None or not views.argued:
        return None
    near = dict(zip(views.argued, (views.means @ participant.embedding).tolist(), strict=True))
    near.pop(participant.initial_choice or "", None)
    return min(near, key=lambda option: near[option], default=None)


async def llm_judge(scope: Scope, participant: Participant, views: OppositionData) -> str | None:
    """A model reads the participant's summary and a sample of others and names the option."""
    own = views.at.get(participant.id, len(views.spoken))
    others = len(views.spoken) - (participant.id in views.at)
    if not others or participant.individual_summary is None:
        return None
    drawn = scope.rng.choice(others, size=min(views.config.judge_sample, others), replace=False)
    sample = [views.spoken[int(item_id) + (item_id >= own)] for item_id in drawn]
    options = views.config.topic.options
    prompt = scope.prompt(
        "opposition_judge",
        topic=quote_topic(views.config),
        options=quote_options(options),
        initial_choice=participant.initial_choice,
        reasoning=participant.individual_summary,
        others=[{"choice": option.choice, "reasoning": option.summary} for option in sample],
    )
    named = await scope.ask(
        JUDGE, prompt, answer_type=Choice(options), about=participant.initial_choice or ""
    )
    return None if isinstance(named, Missing) else named


METHODS: dict[str, Method] = {
    "cluster_embedding": cluster_embedding,
    "embedding": choose_by_embedding,
    "llm_judge": llm_judge,
    "predefined": choose_predefined,
    "highest_voted": most_voted_other,
}
