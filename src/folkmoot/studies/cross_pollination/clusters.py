"""Phase 4: clusters of like reasons within each option, each described by a model."""

from __future__ import annotations

from dataclasses import replace

from folkmoot.conversation.answers import Missing
from folkmoot.engine.session import Scope
from folkmoot.measures.clusters import cluster_option
from folkmoot.models.request import FloatArray
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.interviews import ANALYST
from folkmoot.studies.cross_pollination.participants import Cluster, Participant, State


async def summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Embeddings of the individual summaries → clusters by option → descriptions.

    A cluster without a description (the model refused, say) keeps its members, with a warning; its
    view is shown to nobody.
    """

    async def one(scope: Scope, option: str) -> tuple[list[Participant], list[Cluster]]:
        spoken = await _clustered(scope, config, option, state)
        return spoken, await _described(scope, option, spoken, config.summary_draws)

    found = (await scope.each(config.topic.options, one)).values()
    state = state.updated(p for spoken, _ in found for p in spoken)
    return replace(state, clusters=tuple(c for _, clusters in found for c in clusters))


async def _clustered(
    scope: Scope, config: CrossPollinationConfig, option: str, state: State
) -> list[Participant]:
    """Those who gave reasons for an option, with the embedding of their summary and a cluster."""
    interviewed = state.chosen(config.those_with("interview"))
    chose = [p for p in interviewed if p.initial_choice == option]
    if not chose:
        return []
    vectors = await scope.at("embeddings").embed([p.individual_summary or "" for p in chose])
    labels = await scope.at("clusters").compute(
        cluster_option,
        vectors,
        config.clustering_algorithm,
        config.max_clusters_per_option,
        scope.seed,
    )
    return [
        p.with_(embedding=vector, cluster_id=f"{option}_cluster_{label}")
        for p, vector, label in zip(chose, vectors, labels, strict=True)
    ]


async def _described(
    scope: Scope, option: str, spoken: list[Participant], draws: int
) -> list[Cluster]:
    """The clusters of those people, each with its descriptions and the embedding of the first."""

    async def one(scope: Scope, members: list[Participant]) -> tuple[str, ...]:
        own = [p.individual_summary for p in members]
        prompt = scope.prompt("cluster_description", option=option, summaries=own)
        said = [await scope.ask(ANALYST, prompt) for _ in range(draws)]
        return tuple("" if isinstance(text, Missing) else text for text in said)

    members: dict[str, list[Participant]] = {}  # labels count from 0 by first appearance
    for p in spoken:
        members.setdefault(str(p.cluster_id), []).append(p)
    said = await scope.at("descriptions").each(members, one)
    texts = dict(zip(members, said.values(), strict=True))
    for key, drawn in texts.items():
        for draw, text in enumerate(drawn, 1):
            if not text:
                of = f" in draw {draw} of the summaries" if draws > 1 else ""
                scope.warn(f"the model gave no description of {key}{of}; nobody is shown its view")
    shown = [key for key in members if texts[key][0]]
    vectors = await scope.at("description_embeddings").embed([texts[key][0] for key in shown])
    embedding: dict[str, FloatArray] = dict(zip(shown, vectors, strict=True))
    return [
        Cluster(key, option, texts[key], embedding.get(key), tuple(p.id for p in own))
        for key, own in members.items()
    ]
