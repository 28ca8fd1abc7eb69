"""Interviews about the reasons for a vote, and clusters of participants with similar reasons.

A neutral moderator interviews each participant. A model summarises each interview.
"""
# Phases 3 and 4. The summaries are clustered by option.

from __future__ import annotations

from dataclasses import replace

import numpy as np

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.dialogue import Agenda, interview
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope
from folkmoot.measures.clusters import cluster_option
from folkmoot.models.request import FloatArray
from folkmoot.provenance import cell_id, quote_value
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

# The moderator's prompt asks for this word to end an interview or a dialogue.
SATISFIED = "SATISFIED"
ANALYST = Speaker("summarizer", "Summarizer", "summarizer")


async def run_clarification(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Hold and summarise the interviews, in the conditions that have interviews."""

    async def interview_and_summarise(scope: Scope, participant: Participant) -> Participant:
        participant = await interview_participant(scope, config, participant)
        return (
            await summarise_interview(scope.child("summary"), participant)
            if participant.is_active
            else participant
        )

    clarified = state.participants_in(config.conditions_with("interview"))
    return state.with_updates((await scope.map(clarified, interview_and_summarise)).values())


async def interview_participant(
    scope: Scope, config: CrossPollinationConfig, participant: Participant
) -> Participant:
    """Interview one participant, and return the participant's record with the transcript."""
    # If a reply is missing, the returned participant has the status failed.
    moderator_prompt = scope.prompt(
        "clarification_moderator",
        topic=quote_topic(config),
        options=quote_options(participant.options),
        initial_choice=participant.initial_choice,
    )
    participant_prompt = scope.prompt(
        "clarification_participant",
        base_system_prompt=participant.system,
        initial_choice=participant.initial_choice,
        options=quote_options(participant.options),
    )
    result = await interview(
        scope,
        Speaker("moderator", "Moderator", "moderator", moderator_prompt),
        participant.speaker(participant_prompt),
        Agenda(
            scope.prompt("clarification_opening"),
            SATISFIED,
            config.max_clarification_exchanges,
            about=participant.initial_choice or "",
        ),
        **participant.utterance_columns,
    )
    if result.missing is None and not result.transcript:
        return participant.with_failure("clarification", Missing("moderator asked nothing"))
    participant = participant.with_changes(interview=scope.store(result.transcript))
    return (
        participant
        if result.missing is None
        else participant.with_failure(f"clarification ({result.silent_speaker})", result.missing)
    )


async def summarise_interview(scope: Scope, participant: Participant) -> Participant:
    """Let a model summarise the interview, and return the participant's record with the summary."""
    # Without a summary from the model, the participant's status is failed.
    prompt = scope.prompt(
        "individual_summary",
        initial_choice=participant.initial_choice,
        dialogue=participant.clarification_transcript,
    )
    summary = await scope.ask(ANALYST, prompt, about=participant.initial_choice or "")
    if isinstance(summary, Missing):
        return participant.with_failure("individual summary", summary)
    utterance = scope.say(ANALYST, summary, public=False, **participant.utterance_columns)
    # The summary is made from the words of one participant, so that participant is its speaker and
    # not the summarizer.
    quoted_summary = quote_value(
        str(summary), "summary", cell_id("utterances.text", utterance.id), participant.id
    )
    return participant.with_changes(individual_summary=quoted_summary)


# --- clusters of similar reasons within each option --------------------------------------------


async def build_summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Cluster the reasons for each option, and let a model describe each cluster.

    Returns the state with the clusters.
    """
    # The individual summaries are embedded, clustered within each option and described by a model.
    # Readers are not shown a cluster without a description.
    interviewed = state.participants_in(config.conditions_with("interview"))
    reasons_by_option = {
        option: (
            option,
            [
                participant.stated_reasons
                for participant in interviewed
                if participant.initial_choice == option
            ],
        )
        for option in config.topic.options
    }

    async def cluster_and_describe(
        scope: Scope, option_and_reasons: tuple[str, list[Reasons]]
    ) -> tuple[FloatArray, list[str], list[Cluster]]:
        option, reasons = option_and_reasons
        vectors, keys = await _embed_and_cluster(scope, config, option, reasons)
        return (
            vectors,
            keys,
            await _describe_clusters(scope, option, reasons, keys, config.summary_draws),
        )

    results = (await scope.map(reasons_by_option, cluster_and_describe)).values()
    placed = [
        state.people[reason.id].with_changes(embedding=vector, cluster_id=key)
        for (_, option_reasons), (vectors, keys, _) in zip(
            reasons_by_option.values(), results, strict=True
        )
        for reason, vector, key in zip(option_reasons, vectors, keys, strict=True)
    ]
    clusters = tuple(cluster for _, _, option_clusters in results for cluster in option_clusters)
    return replace(state.with_updates(placed), clusters=clusters)


async def _embed_and_cluster(
    scope: Scope, config: CrossPollinationConfig, option: str, reasons: list[Reasons]
) -> tuple[FloatArray, list[str]]:
    # The embeddings have one row per summary. The list has the cluster id of each summary.
    if not reasons:
        return np.zeros((0, 0), dtype=np.float32), []
    vectors = await scope.child("embeddings").embed([reason.summary or "" for reason in reasons])
    labels = await scope.child("clusters").compute(
        cluster_option,
        vectors,
        config.clustering_algorithm,
        config.max_clusters_per_option,
        scope.seed,
        # The name is part of the fingerprint in the journal. It is pinned, so that moving or
        # renaming the function does not break the resume of earlier runs.
        name="folkmoot.measures.clusters.cluster_option",
    )
    return vectors, [f"{option}_cluster_{label}" for label in labels]


async def _describe_clusters(
    scope: Scope, option: str, reasons: list[Reasons], keys: list[str], draws: int
) -> list[Cluster]:
    # `keys` holds the cluster id of each entry of `reasons`. Each cluster is described `draws`
    # times.
    async def describe_cluster(
        scope: Scope, key_and_members: tuple[str, list[Reasons]]
    ) -> tuple[str, ...]:
        key, members = key_and_members
        summaries = [member.summary for member in members]
        (shown,) = quote_options([option])
        prompt = scope.prompt("cluster_description", option=shown, summaries=summaries)
        descriptions = list[str]()
        # The prompt is the same for every draw. Each question has its own address in the journal,
        # so each draw is a separate call.
        for draw in range(1, draws + 1):
            text = await scope.ask(ANALYST, prompt, about=option)
            descriptions.append(
                "" if isinstance(text, Missing) else quote_summary(scope, text, draw, key)
            )
        return tuple(descriptions)

    def quote_summary(scope: Scope, text: str, draw: int, key: str) -> str:
        utterance = scope.say(ANALYST, text, public=False)
        scope.record(
            SummaryRow(
                draw=draw, option=option, cluster_id=key, description=text, address=utterance.id
            )
        )
        source_id = cell_id("summaries.description", draw, key)
        return quote_value(str(text), "summary", source_id, ANALYST.id)

    # Insertion order numbers the clusters by first appearance, which is how the labels count from
    # 0.
    members: dict[str, list[Reasons]] = {}
    for reason, key in zip(reasons, keys, strict=True):
        members.setdefault(key, []).append(reason)
    by_key = {key: (key, cluster_members) for key, cluster_members in members.items()}
    described = await scope.child("descriptions").map(by_key, describe_cluster)
    descriptions_by_key = dict(zip(members, described.values(), strict=True))
    for key, cluster_descriptions in descriptions_by_key.items():
        for draw, text in enumerate(cluster_descriptions, 1):
            if not text:
                draw_note = f" in draw {draw} of the summaries" if draws > 1 else ""
                scope.warn(
                    f"the model gave no description of {key}{draw_note}, so no reader is shown it"
                )
    shown_keys = [key for key in members if descriptions_by_key[key][0]]
    vectors = await scope.child("description_embeddings").embed(
        [descriptions_by_key[key][0] for key in shown_keys]
    )
    embedding: dict[str, FloatArray] = dict(zip(shown_keys, vectors, strict=True))
    clusters = [
        Cluster(
            key,
            option,
            descriptions_by_key[key],
            embedding.get(key),
            tuple(reason.id for reason in cluster_members),
        )
        for key, cluster_members in members.items()
    ]
    for cluster in clusters:
        scope.record(cluster_row(cluster))
    return clusters
