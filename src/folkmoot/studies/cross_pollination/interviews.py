"""Phases 3 and 4: interviews about the reasons for a vote, and the clusters that the reasons form.

A neutral moderator interviews the clarified participants; each interview is summarised at its end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.dialogue import Agenda, question_and_answer
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope
from folkmoot.measures.clusters import cluster_option
from folkmoot.models.request import FloatArray
from folkmoot.provenance import cell, quote
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import (
    Cluster,
    Participant,
    Reasons,
    State,
    quote_options,
    quote_topic,
)
from folkmoot.studies.cross_pollination.tables import SummaryRow, cluster_row

SATISFIED = "SATISFIED"
ANALYST = Speaker("summarizer", "Summarizer", "summarizer")


async def clarification(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Interview each participant whose condition has one until the moderator is satisfied."""

    async def interview_and_summarise(scope: Scope, p: Participant) -> Participant:
        p = await interviewed(scope, config, p)
        return await summarised(scope.at("summary"), p) if p.active else p

    clarified = state.chosen(config.those_with("interview"))
    return state.updated((await scope.each(clarified, interview_and_summarise)).values())


async def interviewed(scope: Scope, config: CrossPollinationConfig, p: Participant) -> Participant:
    """The participant with the transcript of their interview, or failed."""
    asks = scope.prompt(
        "clarification_moderator",
        topic=quote_topic(config),
        options=quote_options(p.options),
        initial_choice=p.initial_choice,
    )
    answers = scope.prompt(
        "clarification_participant", base_system_prompt=p.system, initial_choice=p.initial_choice
    )
    talk = await question_and_answer(
        scope,
        Speaker("moderator", "Moderator", "moderator", asks),
        p.speaker(answers),
        Agenda(
            scope.prompt("clarification_opening"),
            SATISFIED,
            config.max_clarification_exchanges,
            about=p.initial_choice or "",
        ),
        **p.marks,
    )
    if talk.missing is None and not talk.transcript:
        return p.failed("clarification", Missing("moderator asked nothing"))
    p = p.with_(interview=scope.keep(talk.transcript))
    return p if talk.missing is None else p.failed(f"clarification ({talk.silent})", talk.missing)


async def summarised(scope: Scope, p: Participant) -> Participant:
    """The participant with the interview in one to three sentences, or failed."""
    prompt = scope.prompt(
        "individual_summary", initial_choice=p.initial_choice, dialogue=p.clarification
    )
    summary = await scope.ask(ANALYST, prompt, about=p.initial_choice or "")
    if isinstance(summary, Missing):
        return p.failed("individual summary", summary)
    said = scope.say(ANALYST, summary, public=False, **p.marks)
    # It is made from one person's words alone, so they are the one whose text it is.
    theirs = quote(str(summary), "summary", cell("utterances.text", said.id), p.id)
    return p.with_(individual_summary=theirs)


# --- clusters of like reasons within each option, each described by a model ----------------------


async def summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Embeddings of the individual summaries → clusters by option → descriptions.

    A cluster without a description (the model refused, say) keeps its members, with a warning; its
    view is shown to nobody.
    """
    interviewed = state.chosen(config.those_with("interview"))
    chose = {
        option: (option, [p.reasons for p in interviewed if p.initial_choice == option])
        for option in config.topic.options
    }

    async def cluster_and_describe(
        scope: Scope, chosen: tuple[str, list[Reasons]]
    ) -> tuple[FloatArray, list[str], list[Cluster]]:
        option, spoken = chosen
        vectors, keys = await _clustered(scope, config, option, spoken)
        return vectors, keys, await _described(scope, option, spoken, keys, config.summary_draws)

    found = (await scope.each(chose, cluster_and_describe)).values()
    placed = [
        state.people[spoken.id].with_(embedding=vector, cluster_id=key)
        for (_, own), (vectors, keys, _) in zip(chose.values(), found, strict=True)
        for spoken, vector, key in zip(own, vectors, keys, strict=True)
    ]
    clusters = tuple(cluster for _, _, described in found for cluster in described)
    return replace(state.updated(placed), clusters=clusters)


async def _clustered(
    scope: Scope, config: CrossPollinationConfig, option: str, spoken: list[Reasons]
) -> tuple[FloatArray, list[str]]:
    """The embedding of each summary of the reasons for an option, and the cluster it is in."""
    if not spoken:
        return np.zeros((0, 0), dtype=np.float32), []
    vectors = await scope.at("embeddings").embed([one.summary or "" for one in spoken])
    labels = await scope.at("clusters").compute(
        cluster_option,
        vectors,
        config.clustering_algorithm,
        config.max_clusters_per_option,
        scope.seed,
        name="folkmoot.measures.clusters.cluster_option",
    )
    return vectors, [f"{option}_cluster_{label}" for label in labels]


async def _described(
    scope: Scope, option: str, spoken: list[Reasons], keys: list[str], draws: int
) -> list[Cluster]:
    """The clusters of those people, each with its descriptions and the embedding of the first."""

    async def describe(scope: Scope, chosen: tuple[str, list[Reasons]]) -> tuple[str, ...]:
        key, members = chosen
        own = [member.summary for member in members]
        (shown,) = quote_options([option])
        prompt = scope.prompt("cluster_description", option=shown, summaries=own)
        drawn = list[str]()
        for draw in range(1, draws + 1):
            text = await scope.ask(ANALYST, prompt, about=option)
            drawn.append("" if isinstance(text, Missing) else _recorded(scope, text, draw, key))
        return tuple(drawn)

    def _recorded(scope: Scope, text: str, draw: int, key: str) -> str:
        said = scope.say(ANALYST, text, public=False)
        scope.record(
            SummaryRow(draw=draw, option=option, cluster_id=key, description=text, address=said.id)
        )
        id = cell("summaries.description", draw, key)
        return quote(str(text), "summary", id, ANALYST.id)

    members: dict[str, list[Reasons]] = {}  # labels count from 0 by first appearance
    for who, key in zip(spoken, keys, strict=True):
        members.setdefault(key, []).append(who)
    by_key = {key: (key, own) for key, own in members.items()}
    said = await scope.at("descriptions").each(by_key, describe)
    texts = dict(zip(members, said.values(), strict=True))
    for key, drawn in texts.items():
        for draw, text in enumerate(drawn, 1):
            if not text:
                of = f" in draw {draw} of the summaries" if draws > 1 else ""
                scope.warn(f"the model gave no description of {key}{of}; nobody is shown its view")
    shown = [key for key in members if texts[key][0]]
    vectors = await scope.at("description_embeddings").embed([texts[key][0] for key in shown])
    embedding: dict[str, FloatArray] = dict(zip(shown, vectors, strict=True))
    clusters = [
        Cluster(key, option, texts[key], embedding.get(key), tuple(p.id for p in own))
        for key, own in members.items()
    ]
    for cluster in clusters:
        scope.record(cluster_row(cluster))
    return clusters
