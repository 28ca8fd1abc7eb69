"""The opposing option of each participant, chosen by one of five methods.

An adversarial dialogue argues for this option. To add a method, write a function and add the
function to METHODS.
"""
# This is phase 5.

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
    """The votes, summaries and clusters from which a method chooses the opposing option."""

    # Each worker machine gets a copy, so arrays that the chosen method does not use are empty. In
    # the shapes, m counts the participants with an embedding. d is the length of an embedding.
    config: CrossPollinationConfig
    votes: Mapping[str, int]
    # For `llm_judge`: the records of the m participants.
    reasons: tuple[Reasons, ...]
    # The index of each participant in `reasons`, by id.
    position_of: Mapping[str, int]
    # For `choose_by_embedding`: the first choices, shape (m,).
    choices: NDArray[np.object_]
    # For `choose_by_embedding`: the embeddings of the summaries, shape (m, d).
    embeddings: FloatArray
    # The options that have described clusters.
    argued_options: tuple[str, ...]
    # The mean embedding of each option's clusters, weighted by members and scaled to length one,
    # shape (number of `argued_options`, d).
    means: NDArray[np.float64]


Method = Callable[[Scope, Participant, OppositionData], Awaitable[str | None]]


async def run_opposition(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Choose the opposing option of each participant who will have an adversarial dialogue.

    Returns the state with these options.
    """
    # Participants without an interview, or without a result of the method, get the most voted
    # option apart from their own. Without such an option they are skipped.
    data = _collect_opposition_data(config, state)
    method = METHODS[config.opposition_method]

    async def find_opposing_view(scope: Scope, participant: Participant) -> Participant:
        view = (
            await method(scope, participant, data)
            if config.condition_designs[participant.condition].interview
            else None
        )
        # A method may find no view, or a mapping or judge may name the participant's own option.
        # The most voted other option then takes its place.
        if view is None or view == participant.initial_choice:
            view = await most_voted_other(scope, participant, data)
        if view is None:
            return participant.with_skip(
                "nobody chose another option, so there is no opposing view"
            )
        id = cell_id("participants.opposition_view", participant.id)
        return participant.with_changes(opposition_view=quote_value(str(view), "option", id))

    arguing = state.participants_in(config.conditions_with("dialogue"))
    return state.with_updates((await scope.map(arguing, find_opposing_view)).values())


def _collect_opposition_data(config: CrossPollinationConfig, state: State) -> OppositionData:
    interviewed = [
        participant
        for participant in state.participants_in(config.conditions_with("interview"))
        if participant.embedding is not None
    ]
    means: dict[str, NDArray[np.float64]] = {}
    for option in config.topic.options:
        described_clusters = [
            cluster for cluster in state.clusters_of(option) if cluster.embedding is not None
        ]
        if described_clusters:
            stacked = np.array([cluster.embedding for cluster in described_clusters])
            # Dividing by the length makes the dot product in `cluster_embedding` a cosine. A zero
            # mean stays zero.
            mean = np.average(
                stacked, axis=0, weights=[len(cluster.member_ids) for cluster in described_clusters]
            )
            means[option] = mean / (float(np.linalg.norm(mean)) or 1.0)
    method = METHODS[config.opposition_method]
    judged = interviewed if method is llm_judge else []
    compared = interviewed if method is choose_by_embedding else []
    return OppositionData(
        config,
        state.votes(),
        tuple(participant.stated_reasons for participant in judged),
        {participant.id: position for position, participant in enumerate(judged)},
        np.array([participant.initial_choice for participant in compared], dtype=object),
        np.array([participant.embedding for participant in compared]),
        tuple(means),
        np.array([*means.values()]),
    )


async def most_voted_other(
    _scope: Scope, participant: Participant, data: OppositionData
) -> str | None:
    """Return the option with the most first votes among those that the participant did not choose.

    Returns None if none of these options has votes.
    """
    # Ties are resolved by the order of the study file.
    other_options = [
        option
        for option in data.config.topic.options
        if option != participant.initial_choice and data.votes.get(option)
    ]
    return max(other_options, key=lambda option: data.votes[option], default=None)


async def choose_predefined(
    _scope: Scope, participant: Participant, data: OppositionData
) -> str | None:
    """Return the option that the setting `opposition_mapping` opposes to the participant's choice.

    Returns None if the setting lacks the participant's choice.
    """
    return (data.config.opposition_mapping or {}).get(participant.initial_choice or "")


async def choose_by_embedding(
    _scope: Scope, participant: Participant, data: OppositionData
) -> str | None:
    """Return the choice of the participant with the reasons least similar to these ones.

    Returns None if `participant` has no summary of reasons, or if all participants made the same
    choice.
    """
    # Only participants with another choice count. Similarity is the cosine of the embeddings of two
    # summaries.
    others = data.choices != participant.initial_choice
    if participant.embedding is None or not others.any():
        return None
    similarities = np.where(others, data.embeddings @ participant.embedding, np.inf)
    return cast("str", data.choices[int(np.argmin(similarities))])


async def cluster_embedding(
    _scope: Scope, participant: Participant, data: OppositionData
) -> str | None:
    """Return the option with the clusters of reasons least similar to the participant's reasons.

    Returns None if the participant has no summary, or if only the participant's option has
    clusters.
    """
    # The summary's embedding is compared (cosine) with the mean over each option's clusters.
    if participant.embedding is None or not data.argued_options:
        return None
    similarities = dict(
        zip(data.argued_options, (data.means @ participant.embedding).tolist(), strict=True)
    )
    similarities.pop(participant.initial_choice or "", None)
    return min(similarities, key=lambda option: similarities[option], default=None)


async def llm_judge(scope: Scope, participant: Participant, data: OppositionData) -> str | None:
    """Let a model choose the opposing option.

    Returns None if the model gives no answer.
    """
    # The model reads the participant's summary and the summaries of a random sample of others.
    own_position = data.position_of.get(participant.id, len(data.reasons))
    other_count = len(data.reasons) - (participant.id in data.position_of)
    if not other_count or participant.individual_summary is None:
        return None
    # Draw indices among the others and skip the participant's own index afterwards. This avoids a
    # copy of the list for each of many participants.
    sampled = scope.rng.choice(
        other_count, size=min(data.config.judge_sample, other_count), replace=False
    )
    sample = [data.reasons[int(index) + (index >= own_position)] for index in sampled]
    options = data.config.topic.options
    prompt = scope.prompt(
        "opposition_judge",
        topic=quote_topic(data.config),
        options=quote_options(options),
        initial_choice=participant.initial_choice,
        reasoning=participant.individual_summary,
        others=[{"choice": reasons.choice, "reasoning": reasons.summary} for reasons in sample],
    )
    choice = await scope.ask(
        JUDGE, prompt, answer_type=Choice(options), about=participant.initial_choice or ""
    )
    return None if isinstance(choice, Missing) else choice


METHODS: dict[str, Method] = {
    "cluster_embedding": cluster_embedding,
    "embedding": choose_by_embedding,
    "llm_judge": llm_judge,
    "predefined": choose_predefined,
    "highest_voted": most_voted_other,
}
