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
from folkmoot.provenance import cell, quote
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
class Views:
    """What the methods choose from: everybody's votes, positions and clusters. All of it goes to
    every machine that has a part, so of everybody there is what this run's method needs."""

    config: CrossPollinationConfig
    votes: Mapping[str, int]
    spoken: tuple[Reasons, ...]  # of the m participants with an embedding, for the judge
    at: Mapping[str, int]  # the place of each among them, by id
    choices: NDArray[np.object_]  # (m,), their first choices, for the method `embedding`
    embeddings: FloatArray  # (m, d), as well
    argued: tuple[str, ...]  # the options that have described clusters
    means: NDArray[
        np.float64
    ]  # (options argued, d), weighted mean of each one's clusters, length one


Method = Callable[[Scope, Participant, Views], Awaitable[str | None]]


async def opposition(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Give each participant with a dialogue an opposing view, or skip those who can have none.

    Without an interview nothing is known of a participant's reasons, so it is the most voted other
    option, whatever the method.
    """
    views = _views(config, state)
    method = METHODS[config.opposition_method]

    async def find_opposing_view(scope: Scope, p: Participant) -> Participant:
        view = await method(scope, p, views) if config.arms[p.condition].interview else None
        if view is None or view == p.initial_choice:
            view = await most_voted_other(scope, p, views)
        if view is None:
            return p.skipped("nobody chose another option, so there is no opposing view")
        id = cell("participants.opposition_view", p.id)
        return p.with_(opposition_view=quote(str(view), "option", id))

    arguing = state.chosen(config.those_with("dialogue"))
    return state.updated((await scope.each(arguing, find_opposing_view)).values())


def _views(config: CrossPollinationConfig, state: State) -> Views:
    spoken = [p for p in state.chosen(config.those_with("interview")) if p.embedding is not None]
    means: dict[str, NDArray[np.float64]] = {}
    for option in config.topic.options:
        own = [c for c in state.clusters_of(option) if c.embedding is not None]
        if own:
            stacked = np.array([c.embedding for c in own])
            mean = np.average(stacked, axis=0, weights=[len(c.member_ids) for c in own])
            means[option] = mean / (float(np.linalg.norm(mean)) or 1.0)
    method = METHODS[config.opposition_method]
    judged = spoken if method is llm_judge else []
    compared = spoken if method is embedding else []
    return Views(
        config,
        state.votes(),
        tuple(p.reasons for p in judged),
        {p.id: place for place, p in enumerate(judged)},
        np.array([p.initial_choice for p in compared], dtype=object),
        np.array([p.embedding for p in compared]),
        tuple(means),
        np.array([*means.values()]),
    )


async def most_voted_other(_scope: Scope, p: Participant, views: Views) -> str | None:
    """The option with most first votes that is not the participant's own; ties by file order."""
    others = [o for o in views.config.topic.options if o != p.initial_choice and views.votes.get(o)]
    return max(others, key=lambda o: views.votes[o], default=None)


async def predefined(_scope: Scope, p: Participant, views: Views) -> str | None:
    """As the study file's `opposition_mapping` says."""
    return (views.config.opposition_mapping or {}).get(p.initial_choice or "")


async def embedding(_scope: Scope, p: Participant, views: Views) -> str | None:
    """The choice of the participant whose summary is farthest (cosine) from one's own."""
    others = views.choices != p.initial_choice
    if p.embedding is None or not others.any():
        return None
    near = np.where(others, views.embeddings @ p.embedding, np.inf)
    return cast("str", views.choices[int(np.argmin(near))])


async def cluster_embedding(_scope: Scope, p: Participant, views: Views) -> str | None:
    """The option whose mean cluster embedding, weighted by members, is farthest (cosine)."""
    if p.embedding is None or not views.argued:
        return None
    near = dict(zip(views.argued, (views.means @ p.embedding).tolist(), strict=True))
    near.pop(p.initial_choice or "", None)
    return min(near, key=lambda o: near[o], default=None)


async def llm_judge(scope: Scope, p: Participant, views: Views) -> str | None:
    """A model reads the participant's summary and a sample of others and names the option."""
    own = views.at.get(p.id, len(views.spoken))
    others = len(views.spoken) - (p.id in views.at)
    if not others or p.individual_summary is None:
        return None
    drawn = scope.rng.choice(others, size=min(views.config.judge_sample, others), replace=False)
    sample = [views.spoken[int(i) + (i >= own)] for i in drawn]
    options = views.config.topic.options
    prompt = scope.prompt(
        "opposition_judge",
        topic=quote_topic(views.config),
        options=quote_options(options),
        initial_choice=p.initial_choice,
        reasoning=p.individual_summary,
        others=[{"choice": o.choice, "reasoning": o.summary} for o in sample],
    )
    named = await scope.ask(JUDGE, prompt, answer=Choice(options), about=p.initial_choice or "")
    return None if isinstance(named, Missing) else named


METHODS: dict[str, Method] = {
    "cluster_embedding": cluster_embedding,
    "embedding": embedding,
    "llm_judge": llm_judge,
    "predefined": predefined,
    "highest_voted": most_voted_other,
}
