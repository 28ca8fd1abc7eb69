"""Findings about the clusters of reasons: stability, number, map and the members' own summaries."""

from __future__ import annotations

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
FEWEST_ON_A_MAP = 3
MOST_ON_A_MAP = 2_000


@dataclass(frozen=True)
class Reasons:
    """The participants of one option with clustered reasons.

    The n ids, summaries and cluster ids are aligned with the rows of `vectors`, shape (n, d).
    `algorithm`, `max_k` and `seed` are the settings with which the run clustered them.
    """

    option: str
    ids: tuple[str, ...]
    summaries: tuple[str, ...]
    clusters: tuple[str, ...]
    vectors: NDArray[np.float32]
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
        """The clustering computed again, with the silhouette of every number of clusters.

        The run records its clusters but not the silhouettes.
        """
        return best_clustering(self.vectors, self.algorithm, self.max_k, self.seed)

    @property
    def describe_structure(self) -> str | None:
        """The structure that the mean silhouette shows, or None if only one number was possible."""
        silhouette = self.repeated_clustering.silhouettes.get(self.cluster_count)
        return None if silhouette is None else describe_structure(silhouette)

    @cached_property
    def bootstrap_stability_result(self) -> Stability:
        """The stability of the clusters when members are redrawn."""
        return bootstrap_stability(self.vectors, self.labels, self.algorithm, self.seed)


def reason_findings(votes: Votes) -> list[Finding]:
    """Return the findings about clusters: quality, numbers, map and members' summaries.

    The list is empty if no reasons were clustered.
    """
    groups = _by_option(votes)
    if not groups:
        return []
    # Without silhouettes there was no choice of a number, so that finding would be empty.
    numbers = (
        [_cluster_number(groups)]
        if any(reasons.repeated_clustering.silhouettes for reasons in groups)
        else []
    )
    mapped = (
        [_cluster_map(groups)]
        if sum(len(reasons.ids) for reasons in groups) >= FEWEST_ON_A_MAP
        else []
    )
    return [_cluster_quality(groups), *numbers, *mapped, _cluster_words(votes, groups)]


def _by_option(votes: Votes) -> list[Reasons]:
    """Return the clustered participants by option, in the order of the study file."""
    vectors, config = votes.summary_embeddings(), votes.config
    found = []
    for option in votes.options:
        own = [
            voter
            for voter in votes.people
            if voter.initial_choice == option
            and voter.cluster_id is not None
            and voter.participant_id in vectors
        ]
        if own:
            found.append(
                Reasons(
                    option,
                    tuple(voter.participant_id for voter in own),
                    tuple(voter.individual_summary or "" for voter in own),
                    tuple(str(voter.cluster_id) for voter in own),
                    # Vectors are removed as they are copied, so that no second copy of all
                    # embeddings is in memory.
                    np.array([vectors.pop(voter.participant_id) for voter in own]),
                    config.get("clustering_algorithm", "kmeans"),
                    int(config.get("max_clusters_per_option", 6)),
                    int(config.get("random_seed", 42)),
                )
            )
    return found


def _cluster_quality(groups: list[Reasons]) -> Finding:
    """Return silhouette and stability of the clusters of each option."""
    rows: list[Row] = []
    for reasons in groups:
        stable = reasons.bootstrap_stability_result
        rows.append(
            {
                "option": reasons.option,
                "members": len(reasons.ids),
                "clusters": reasons.cluster_count,
                "silhouette": reasons.repeated_clustering.silhouettes.get(reasons.cluster_count),
                "structure": reasons.describe_structure,
                "stability": stable.mean if stable.draws else None,
                "stability_10th": stable.low if stable.draws else None,
                "verdict": stable.verdict if stable.draws else "one cluster",
            }
        )
    number = format_count(sum(reasons.cluster_count for reasons in groups), "cluster")
    return Finding(
        "cluster_quality",
        "Do the clusters of reasons hold?",
        f"{number} of reasons over {format_count(len(groups), 'option')}. "
        f"{_describe_verdict(groups)}",
        ResultTable.from_records(
            rows, "Silhouette: −1 to 1; stability: adjusted Rand index over 20 redraws."
        ),
        notes=(
            "Structure by the mean silhouette, after Kaufman and Rousseeuw (1990): none up to .25, "
            "weak up to .50 (it may be artificial), reasonable up to .70, strong above. A "
            "stability of .75 or more is customary for clusters to be called stable. Embeddings "
            "capture topic better than stance; what people stand for is in their votes.",
        ),
        section=CLUSTERS,
    )


def _describe_verdict(groups: list[Reasons]) -> str:
    cut = [reasons for reasons in groups if reasons.repeated_clustering.silhouettes]
    if not cut:
        return "Too few members, or members too much alike, to tell reasons apart."
    by_structure = {
        name: [reasons.option for reasons in cut if reasons.describe_structure == name]
        for _, name in reversed(STRUCTURES)
    }
    parts = [
        "Structure by the silhouette: "
        + join_clauses(f"{name} in {', '.join(own)}" for name, own in by_structure.items() if own)
    ]
    shaky = [
        reasons.option for reasons in cut if reasons.bootstrap_stability_result.verdict != "stable"
    ]
    if shaky:
        parts.append(f"Other members would have given other clusters of: {', '.join(shaky)}.")
    else:
        parts.append("They are stable when members are redrawn.")
    if shaky or by_structure["none"] or by_structure["weak"]:
        parts.append(
            "Read their descriptions as a way to sort the reasons, not as camps that exist."
        )
    return " ".join(parts)


def _cluster_number(groups: list[Reasons]) -> Finding:
    """Return the mean silhouette of every number of clusters that was tried."""
    rows = tuple(
        (reasons.option, key, score, reasons.cluster_count == key)
        for reasons in groups
        for key, score in reasons.repeated_clustering.silhouettes.items()
    )
    cut = [reasons for reasons in groups if reasons.repeated_clustering.silhouettes]
    says = "For each option the number with the largest mean silhouette was taken: "
    says += join_clauses(f"{reasons.option} {reasons.cluster_count}" for reasons in cut)
    # The numbers may differ if another version made the run, or if some summaries lack an embedding
    # now.
    if otherwise := [
        f"{reasons.option} {reasons.repeated_clustering.cluster_count}"
        for reasons in cut
        if reasons.repeated_clustering.cluster_count != reasons.cluster_count
    ]:
        says += f" Computed again, the largest is at: {join_clauses(otherwise)}"
    return Finding(
        "cluster_number",
        "How many clusters?",
        says,
        ResultTable(("option", "clusters", "silhouette", "chosen"), rows),
        LineChart(
            tuple((option, float(key), score) for option, key, score, _ in rows),
            x="clusters",
            y="mean silhouette",
        ),
        section=CLUSTERS,
    )


def _cluster_map(groups: list[Reasons]) -> Finding:
    """Return a two-dimensional map of the summaries, by principal components.

    A random sample is shown if there are more than MOST_ON_A_MAP.
    """
    people = [(n, at) for n, reasons in enumerate(groups) for at in range(len(reasons.ids))]
    part = ""
    if len(people) > MOST_ON_A_MAP:
        # The sample comes from the run's seed, so that a report computed again shows the same
        # points.
        rng = generator(groups[0].seed, ("cluster map",))
        drawn = rng.choice(len(people), MOST_ON_A_MAP, replace=False)
        part = (
            f" The map is of {MOST_ON_A_MAP:,} of "
            f"{format_count(len(people), 'summary', 'summaries')}."
        )
        people = [people[int(item_id)] for item_id in np.sort(drawn)]
    flat = flat_map(np.array([groups[n].vectors[at] for n, at in people]))
    placed = [
        (groups[n].ids[at], groups[n].clusters[at], float(x), float(y))
        for (n, at), (x, y) in zip(people, flat.coordinates, strict=True)
    ]
    return Finding(
        "cluster_map",
        "Map of the reasons",
        "Each point is one participant's summary; near points use like words. The map shows "
        f"{format_percent(sum(flat.explained))} of the differences between them, so points that "
        "touch "
        f"here may lie apart.{part}",
        ResultTable(("participant_id", "cluster", "x", "y"), tuple(placed)),
        ScatterChart(
            tuple((x, y, cluster, who) for who, cluster, x, y in placed),
            x="first component",
            y="second component",
        ),
        section=CLUSTERS,
    )


def _cluster_words(votes: Votes, groups: list[Reasons]) -> Finding:
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
            words = [described.get(name, "(the model gave none)"), *("″" for _ in members)]
            rows += [
                (
                    name,
                    reasons.clusters.count(name),
                    says,
                    reasons.ids[member],
                    reasons.summaries[member],
                )
                for says, member in zip(words, members, strict=False)
            ]
    return Finding(
        "cluster_words",
        "What the members themselves say",
        "Beside each description stand the summaries of the three members nearest the centre of "
        "the cluster. If they do not say what the description says, do not trust it.",
        ResultTable(
            ("cluster", "members", "description", "participant_id", "own_words"), tuple(rows)
        ),
        section=CLUSTERS,
    )
