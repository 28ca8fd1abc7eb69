"""Findings about clusters of participants with similar reasons, such as their stability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from folkmoot.kit.findings import Row, join_clauses
from folkmoot.measures.clusters import (
    STRUCTURES,
    Algorithm,
    Clustering,
    Stability,
    best_clustering,
    bootstrap_stability,
    by_first_appearance,
    describe_structure,
    flat_map,
    nearest_members,
)
from folkmoot.measures.inference.estimates import format_count, format_percent
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, LineChart, ResultTable, ScatterChart
from folkmoot.studies.cross_pollination.findings.votes import Votes

CLUSTERS = "Clusters"
# Fewer points give no picture. More than the maximum make the chart heavy and unreadable.
MIN_MAP_POINTS = 3
MAX_MAP_POINTS = 2_000


@dataclass(frozen=True)
class OptionReasons:
    """The reasons of the participants who chose one option, divided into clusters.

    Tuples and arrays have one entry per participant.
    """

    option: str
    ids: tuple[str, ...]
    summaries: tuple[str, ...]
    clusters: tuple[str, ...]
    # The embeddings of the summaries, one per row.
    vectors: NDArray[np.float32]
    # The settings of the run's clustering.
    algorithm: Algorithm
    max_k: int
    seed: int

    @property
    def labels(self) -> list[int]:
        return by_first_appearance(self.clusters)

    @property
    def cluster_count(self) -> int:
        return len(set(self.clusters))

    @cached_property
    def repeated_clustering(self) -> Clustering:
        """The clustering, computed again to get the silhouette of each number of clusters."""
        # It is computed again, because the tables hold no silhouettes.
        return best_clustering(self.vectors, self.algorithm, self.max_k, self.seed)

    @property
    def structure(self) -> str | None:
        """A word for how distinct the clusters are, from "none" to "strong".

        Returns None if the silhouette is unknown.
        """
        # The word depends on the mean silhouette.
        silhouette = self.repeated_clustering.silhouettes.get(self.cluster_count)
        return None if silhouette is None else describe_structure(silhouette)

    @cached_property
    def bootstrap_stability_result(self) -> Stability:
        """The stability of the clusters when participants are resampled."""
        return bootstrap_stability(self.vectors, self.labels, self.algorithm, self.seed)


def reason_findings(votes: Votes) -> list[Finding]:
    """Return the findings about clusters of reasons.

    Returns an empty list if no reasons were clustered.
    """
    groups = _by_option(votes)
    if not groups:
        return []
    # Without silhouettes there was no choice of a number, so that finding would be empty.
    number_findings = (
        [_cluster_number(groups)]
        if any(reasons.repeated_clustering.silhouettes for reasons in groups)
        else []
    )
    map_findings = (
        [_cluster_map(groups)]
        if sum(len(reasons.ids) for reasons in groups) >= MIN_MAP_POINTS
        else []
    )
    return [
        _cluster_quality(votes, groups),
        *number_findings,
        *map_findings,
        _cluster_words(votes, groups),
    ]


def _by_option(votes: Votes) -> list[OptionReasons]:
    vectors, config = votes.summary_embeddings(), votes.config
    groups = []
    for option in votes.options:
        voters = [
            voter
            for voter in votes.people
            if voter.initial_choice == option
            and voter.cluster_id is not None
            and voter.participant_id in vectors
        ]
        if voters:
            groups.append(
                OptionReasons(
                    option,
                    tuple(voter.participant_id for voter in voters),
                    tuple(voter.individual_summary or "" for voter in voters),
                    tuple(str(voter.cluster_id) for voter in voters),
                    # Vectors are removed as they are copied, so that no second copy of all
                    # embeddings is in memory.
                    np.array([vectors.pop(voter.participant_id) for voter in voters]),
                    config.get("clustering_algorithm", "kmeans"),
                    int(config.get("max_clusters_per_option", 6)),
                    int(config.get("random_seed", 42)),
                )
            )
    return groups


def _cluster_quality(votes: Votes, groups: list[OptionReasons]) -> Finding:
    rows: list[Row] = []
    members = sum(voter.cluster_id is not None for voter in votes.people)
    left_out = members - sum(len(reasons.ids) for reasons in groups)
    left_out_notes = (
        (
            f"{format_count(left_out, 'member')} left out, because their summaries have no "
            "embedding. A withdrawal deletes the embedding.",
        )
        if left_out
        else ()
    )
    for reasons in groups:
        stability = reasons.bootstrap_stability_result
        rows.append(
            {
                "option": reasons.option,
                "members": len(reasons.ids),
                "clusters": reasons.cluster_count,
                "silhouette": reasons.repeated_clustering.silhouettes.get(reasons.cluster_count),
                "structure": reasons.structure,
                "stability": stability.mean if stability.draws else None,
                "stability_10th": stability.low if stability.draws else None,
                "verdict": stability.verdict if stability.draws else "one cluster",
            }
        )
    cluster_phrase = format_count(sum(reasons.cluster_count for reasons in groups), "cluster")
    return Finding(
        "cluster_quality",
        "How reliable are the clusters of reasons?",
        f"{cluster_phrase} of reasons over {format_count(len(groups), 'option')}. "
        f"{_describe_verdict(groups)}",
        ResultTable.from_records(
            rows, "Silhouette: −1 to 1; stability: adjusted Rand index over 20 redraws."
        ),
        notes=(
            "Structure by the mean silhouette, after Kaufman and Rousseeuw (1990): none up to .25, "
            "weak up to .50 (it may be artificial), reasonable up to .70, strong above. Clusters "
            "are customarily called stable from a stability of .75 on. Embeddings capture topic "
            "better than stance, so read stances from the votes.",
            *left_out_notes,
        ),
        section=CLUSTERS,
    )


def _describe_verdict(groups: list[OptionReasons]) -> str:
    clustered = [reasons for reasons in groups if reasons.repeated_clustering.silhouettes]
    if not clustered:
        return "The members are too few or too similar to separate their reasons."
    by_structure = {
        structure: [reasons.option for reasons in clustered if reasons.structure == structure]
        for _, structure in reversed(STRUCTURES)
    }
    parts = [
        "Structure by the silhouette: "
        + join_clauses(
            f"{structure} in {', '.join(options)}"
            for structure, options in by_structure.items()
            if options
        )
    ]
    unstable_options = [
        reasons.option
        for reasons in clustered
        if reasons.bootstrap_stability_result.verdict != "stable"
    ]
    if unstable_options:
        parts.append(f"Not stable when members are redrawn: {', '.join(unstable_options)}.")
    else:
        parts.append("The clusters are stable when members are redrawn.")
    if unstable_options or by_structure["none"] or by_structure["weak"]:
        parts.append(
            "Read the descriptions as a way to sort the reasons, not as real groups of opinion."
        )
    return " ".join(parts)


def _cluster_number(groups: list[OptionReasons]) -> Finding:
    rows = tuple(
        (reasons.option, k, score, reasons.cluster_count == k)
        for reasons in groups
        for k, score in reasons.repeated_clustering.silhouettes.items()
    )
    clustered = [reasons for reasons in groups if reasons.repeated_clustering.silhouettes]
    statement = "For each option the number with the largest mean silhouette was chosen: "
    statement += join_clauses(f"{reasons.option} {reasons.cluster_count}" for reasons in clustered)
    # The numbers may differ if another version made the run, or if some summaries lack an embedding
    # now.
    if recomputed := [
        f"{reasons.option} {reasons.repeated_clustering.cluster_count}"
        for reasons in clustered
        if reasons.repeated_clustering.cluster_count != reasons.cluster_count
    ]:
        statement += f" In a recomputation the largest silhouette is at: {join_clauses(recomputed)}"
    return Finding(
        "cluster_number",
        "How many clusters?",
        statement,
        ResultTable(("option", "clusters", "silhouette", "chosen"), rows),
        LineChart(
            tuple((option, float(k), score) for option, k, score, _ in rows),
            x="clusters",
            y="mean silhouette",
        ),
        section=CLUSTERS,
    )


def _cluster_map(groups: list[OptionReasons]) -> Finding:
    members = [
        (group, member)
        for group, reasons in enumerate(groups)
        for member in range(len(reasons.ids))
    ]
    sample_note = ""
    if len(members) > MAX_MAP_POINTS:
        # The sample comes from the run's seed, so that a report computed again shows the same
        # points.
        rng = generator(groups[0].seed, ("cluster map",))
        sampled = rng.choice(len(members), MAX_MAP_POINTS, replace=False)
        sample_note = (
            f" The map is of {MAX_MAP_POINTS:,} of "
            f"{format_count(len(members), 'summary', 'summaries')}."
        )
        members = [members[int(index)] for index in np.sort(sampled)]
    flat = flat_map(np.array([groups[group].vectors[member] for group, member in members]))
    placed = [
        (groups[group].ids[member], groups[group].clusters[member], float(x), float(y))
        for (group, member), (x, y) in zip(members, flat.coordinates, strict=True)
    ]
    return Finding(
        "cluster_map",
        "Map of the reasons",
        "Each point is the summary of one participant. Summaries with similar wording are close to "
        f"each other. The map shows {format_percent(math.fsum(flat.explained))} of the variance, "
        f"so close points may still differ in other respects.{sample_note}",
        ResultTable(("participant_id", "cluster", "x", "y"), tuple(placed)),
        ScatterChart(
            tuple(
                (x, y, cluster.replace("_cluster_", ", cluster "), participant_id)
                for participant_id, cluster, x, y in placed
            ),
            x="first component",
            y="second component",
        ),
        section=CLUSTERS,
    )


def _cluster_words(votes: Votes, groups: list[OptionReasons]) -> Finding:
    described = {
        cluster_row["cluster_id"]: cluster_row["description"]
        for cluster_row in votes.cluster_rows
        if cluster_row["description"]
    }
    rows = []
    for reasons in groups:
        names = list(dict.fromkeys(reasons.clusters))
        for number, members in nearest_members(reasons.vectors, reasons.labels).items():
            name = names[number]
            descriptions = [described.get(name, "(the model gave none)"), *("″" for _ in members)]
            rows += [
                (
                    name,
                    reasons.clusters.count(name),
                    description,
                    reasons.ids[member],
                    reasons.summaries[member],
                )
                for description, member in zip(descriptions, members, strict=False)
            ]
    return Finding(
        "cluster_words",
        "What the members themselves say",
        "Each description is shown with the summaries of the three members closest to the centre "
        "of the cluster. Do not trust a description that these summaries do not support.",
        ResultTable(
            ("cluster", "members", "description", "participant_id", "own_words"), tuple(rows)
        ),
        section=CLUSTERS,
    )
