"""Phase 4: a summary of each interview, clusters of like reasons per option, their descriptions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.measures.clusters import cluster_option
from folkmoot.models.request import FloatArray
from folkmoot.studies.cross_pollination.config import CLARIFIED, CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Cluster, Participant, State

ANALYST = Speaker("summarizer", "Summarizer", "summarizer")


async def summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Individual summaries (had already) → embeddings → clusters by option → descriptions."""
    spoken = [p for p in state.chosen(*CLARIFIED) if p.individual_summary is not None]
    vectors = await scope.at("embeddings").embed([p.individual_summary or "" for p in spoken])
    spoken = [p.with_(embedding=v) for p, v in zip(spoken, vectors, strict=True)]
    members = await _clustered(scope.at("clusters"), config, spoken)
    clusters = await _described(scope, members)
    cluster_of = {p.id: c.cluster_id for c in clusters for p in members[c.cluster_id]}
    state = state.updated(p.with_(cluster_id=cluster_of.get(p.id)) for p in spoken)
    return replace(state, clusters=tuple(clusters))


async def summarised(scope: Scope, p: Participant) -> Participant:
    """The participant with the interview in one to three sentences, or failed."""
    prompt = scope.prompt(
        "individual_summary", initial_choice=p.initial_choice, dialogue=p.clarification
    )
    summary = await scope.ask(ANALYST, prompt)
    if isinstance(summary, Missing):
        return p.failed("individual summary", summary)
    return p.with_(individual_summary=summary)


async def _clustered(
    scope: Scope, config: CrossPollinationConfig, spoken: list[Participant]
) -> dict[str, list[Participant]]:
    """Members of each cluster by cluster id, options in the order of the study file."""

    async def one(scope: Scope, option: str) -> dict[str, list[Participant]]:
        own = [p for p in spoken if p.initial_choice == option]
        if not own:
            return {}
        vectors: FloatArray = np.stack([p.embedding for p in own if p.embedding is not None])
        labels = await scope.compute(
            cluster_option,
            vectors,
            config.clustering_algorithm,
            config.max_clusters_per_option,
            scope.seed,
        )
        groups: dict[str, list[Participant]] = {}
        for p, label in sorted(zip(own, labels, strict=True), key=lambda pair: pair[1]):
            groups.setdefault(f"{option}_cluster_{label}", []).append(p)
        return groups

    found = await scope.each(config.topic.options, one)
    return {key: members for groups in found.values() for key, members in groups.items()}


async def _described(scope: Scope, members: dict[str, list[Participant]]) -> list[Cluster]:
    """A description of each cluster by a model, and the descriptions' embeddings."""

    async def one(scope: Scope, cluster_id: str) -> str | Missing:
        own = members[cluster_id]
        prompt = scope.prompt(
            "cluster_description",
            option=own[0].initial_choice,
            summaries=[p.individual_summary for p in own],
        )
        return await scope.ask(ANALYST, prompt)

    described = await scope.at("descriptions").each(members, one)
    kept = {key: text for key, text in zip(members, described.values(), strict=True) if text}
    for key in members:
        if key not in kept:
            scope.warn(f"no description of {key} could be had; it is not shown")
    vectors = await scope.at("description_embeddings").embed([str(t) for t in kept.values()])
    return [
        Cluster(
            key,
            str(members[key][0].initial_choice),
            str(text),
            vector,
            tuple(p.id for p in members[key]),
        )
        for (key, text), vector in zip(kept.items(), vectors, strict=True)
    ]
