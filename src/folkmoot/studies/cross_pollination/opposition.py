"""Phase 5: which option stands against each adversarial participant's own, by one of five methods.

A new method is one function and one line in METHODS; only `llm_judge` asks a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from folkmoot.conversation.answers import Choice, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.models.request import FloatArray
from folkmoot.studies.cross_pollination.config import ACP, CLARIFIED, CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Participant, State

JUDGE = Speaker("judge", "Judge", "judge")


@dataclass(frozen=True)
class Field:
    """What the methods choose from: positions, clusters and votes of everybody."""

    config: CrossPollinationConfig
    votes: dict[str, int]
    spoken: tuple[Participant, ...]  # those with a summary and an embedding
    argued: tuple[str, ...]  # the options that have clusters
    means: FloatArray  # (options argued, d): weighted mean of each one's clusters, length one

    @cached_property
    def choices(self) -> NDArray[np.object_]:
        """The first choices (m,) of those who have spoken."""
        return np.array([p.initial_choice for p in self.spoken], dtype=object)

    @cached_property
    def embeddings(self) -> FloatArray:
        """Their embeddings (m, d)."""
        return np.array([p.embedding for p in self.spoken])


Method = Callable[[Participant, Field], str | None]


async def opposition(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Give each adversarial participant an opposing view, or skip those who can have none."""
    field = _field(config, state)
    facing = state.chosen(ACP)
    if config.opposition_method == "llm_judge":

        async def judged(scope: Scope, p: Participant) -> str | None:
            return await llm_judge(scope, p, field)

        views = [*(await scope.each(facing, judged)).values()]
    else:
        method = METHODS[config.opposition_method]
        views = [method(p, field) for p in facing]
    return state.updated(_opposed(p, v, field) for p, v in zip(facing, views, strict=True))


def _opposed(p: Participant, view: str | None, field: Field) -> Participant:
    if view is None or view == p.initial_choice:
        view = most_voted_other(p, field)
    if view is None:
        return p.skipped("no other option was chosen by anybody: there is no opposing view")
    return p.with_(opposition_view=view)


def _field(config: CrossPollinationConfig, state: State) -> Field:
    spoken = tuple(p for p in state.chosen(*CLARIFIED) if p.embedding is not None)
    means: dict[str, FloatArray] = {}
    for option in config.topic.options:
        own = [c for c in state.clusters_of(option) if c.embedding is not None]
        if own:
            stacked = np.stack([c.embedding for c in own if c.embedding is not None])
            mean = np.average(stacked, axis=0, weights=[c.member_count for c in own])
            means[option] = mean / (float(np.linalg.norm(mean)) or 1.0)
    return Field(config, state.votes(), spoken, tuple(means), np.array([*means.values()]))


def most_voted_other(p: Participant, field: Field) -> str | None:
    """The option with most first votes that is not the participant's own; ties by file order."""
    others = [o for o in field.config.topic.options if o != p.initial_choice and field.votes.get(o)]
    return max(others, key=lambda o: field.votes[o], default=None)


def predefined(p: Participant, field: Field) -> str | None:
    """As the study file's `opposition_mapping` says."""
    return (field.config.opposition_mapping or {}).get(p.initial_choice or "")


def embedding(p: Participant, field: Field) -> str | None:
    """The choice of the participant whose summary is farthest (cosine) from one's own."""
    others = field.choices != p.initial_choice
    if p.embedding is None or not others.any():
        return None
    near = np.where(others, field.embeddings @ p.embedding, np.inf)
    return field.spoken[int(np.argmin(near))].initial_choice


def cluster_embedding(p: Participant, field: Field) -> str | None:
    """The option whose mean cluster embedding, weighted by members, is farthest (cosine)."""
    if p.embedding is None or not field.argued:
        return None
    near = dict(zip(field.argued, (field.means @ p.embedding).tolist(), strict=True))
    near.pop(p.initial_choice or "", None)
    return min(near, key=lambda o: near[o], default=None)


async def llm_judge(scope: Scope, p: Participant, field: Field) -> str | None:
    """A model reads the participant's summary and a sample of others and names the option."""
    others = [o for o in field.spoken if o.id != p.id]
    if not others or p.individual_summary is None:
        return None
    size = min(field.config.judge_sample, len(others))
    sample = [others[int(i)] for i in scope.rng.choice(len(others), size=size, replace=False)]
    prompt = scope.prompt(
        "opposition_judge",
        topic=field.config.topic,
        options=field.config.topic.options,
        initial_choice=p.initial_choice,
        reasoning=p.individual_summary,
        others=[{"choice": o.initial_choice, "reasoning": o.individual_summary} for o in sample],
    )
    named = await scope.ask(JUDGE, prompt, answer=Choice(field.config.topic.options))
    return None if isinstance(named, Missing) else named


METHODS: dict[str, Method] = {
    "cluster_embedding": cluster_embedding,
    "embedding": embedding,
    "predefined": predefined,
    "highest_voted": most_voted_other,
}
