"""Phase 4: a summary of each interview, clusters of like reasons per option, their descriptions.

The options go each at its own pace: reasons for one are grouped and described while those for
another are still being asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.measures.clusters import cluster_option
from folkmoot.studies.cross_pollination.clarification import ANALYST, Interviews
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import Cluster, Participant, State

QUICKLY_GROUPED = 500  # so many are clustered in 25 ms


@dataclass(frozen=True)
class Reasons:
    """What was said for one option: its clusters, and those who spoke, each with their cluster."""

    clusters: list[Cluster]
    spoken: list[Participant]


async def summaries(
    scope: Scope, config: CrossPollinationConfig, state: State, interviews: Interviews
) -> State:
    """Individual summaries (had already) → embeddings → clusters by option → descriptions."""

    async def one(scope: Scope, option: str) -> Reasons:
        return await _reasons(scope, config, option, interviews.of(option))

    found = list((await scope.each(config.topic.options, one)).values())
    state = state.updated(p for reasons in found for p in reasons.spoken)
    return replace(state, clusters=tuple(c for reasons in found for c in reasons.clusters))


async def _reasons(
    scope: Scope, config: CrossPollinationConfig, option: str, chose: AsyncIterator[Participant]
) -> Reasons:
    """Groups of like-minded participants among those who chose an option."""
    spoken: list[Participant] = []

    async def said() -> AsyncIterator[str]:
        async for p in chose:
            if p.active and p.individual_summary is not None:
                spoken.append(p)
                yield p.individual_summary

    vectors = await scope.at("embeddings").embed(said())
    if not spoken:
        return Reasons([], [])
    labels = await scope.at("clusters").compute(
        cluster_option,
        vectors,
        config.clustering_algorithm,
        config.max_clusters_per_option,
        scope.seed,
        brief=len(spoken) <= QUICKLY_GROUPED,
    )
    spoken = [p.with_(embedding=v) for p, v in zip(spoken, vectors, strict=True)]
    members: dict[str, list[Participant]] = {}
    for p, label in sorted(zip(spoken, labels, strict=True), key=lambda pair: pair[1]):
        members.setdefault(f"{option}_cluster_{label}", []).append(p)
    clusters = await _described(scope, option, members)
    cluster_of = {who: c.id for c in clusters for who in c.member_ids}
    return Reasons(clusters, [p.with_(cluster_id=cluster_of.get(p.id)) for p in spoken])


async def _described(
    scope: Scope, option: str, members: dict[str, list[Participant]]
) -> list[Cluster]:
    """A description of each cluster by a model, and the descriptions' embeddings."""

    async def one(scope: Scope, people: list[Participant]) -> str | Missing:
        own = [p.individual_summary for p in people]
        prompt = scope.prompt("cluster_description", option=option, summaries=own)
        return await scope.ask(ANALYST, prompt)

    described = await scope.at("descriptions").each(members, one)
    kept = {key: text for key, text in zip(members, described.values(), strict=True) if text}
    for key in members:
        if key not in kept:
            scope.warn(f"no description of {key} could be had; it is not shown")
    vectors = await scope.at("description_embeddings").embed([str(t) for t in kept.values()])
    return [
        Cluster(key, option, str(text), vector, tuple(p.id for p in members[key]))
        for (key, text), vector in zip(kept.items(), vectors, strict=True)
    ]
