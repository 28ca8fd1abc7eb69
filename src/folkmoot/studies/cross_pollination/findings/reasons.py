"""Findings about the clusters of reasons: whether they hold, how many, where, in whose words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from folkmoot.kit.findings import Row, listed
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
from folkmoot.measures.inference.estimates import percent, plural
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, Grid, Lines, Points
from folkmoot.studies.cross_pollination.findings.votes import Votes

CLUSTERS = "Clusters"
FEWEST_ON_A_MAP = 3
MOST_ON_A_MAP = 2_000


@dataclass(frozen=True)
class Reasons:
    """Those of one option whose reasons were clustered, with their vectors (n, d) and clusters."""

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
    def k(self) -> int:
        return len(set(self.clusters))

    @cached_property
    def tried(self) -> Clustering:
        """The choice among numbers of clusters, made again."""
        return best_clustering(self.vectors, self.algorithm, self.max_k, self.seed)

    @property
    def structure(self) -> str | None:
        """What the silhouette shows; None where there was nothing to choose."""
        silhouette = self.tried.silhouettes.get(self.k)
        return None if silhouette is None else describe_structure(silhouette)

    @cached_property
    def stability(self) -> Stability:
        return bootstrap_stability(self.vectors, self.labels, self.algorithm, self.seed)


def reasons(votes: Votes) -> list[Finding]:
    """Quality, numbers, map and members' words; empty where nothing was clustered."""
    groups = _by_option(votes)
    if not groups:
        return []
    numbers = [_cluster_number(groups)] if any(g.tried.silhouettes for g in groups) else []
    mapped = [_cluster_map(groups)] if sum(len(g.ids) for g in groups) >= FEWEST_ON_A_MAP else []
    return [_cluster_quality(groups), *numbers, *mapped, _cluster_words(votes, groups)]


def _by_option(votes: Votes) -> list[Reasons]:
    """The clustered participants by option, options in the order of the study file."""
    vectors, config = votes.embeddings(), votes.config
    found = []
    for option in votes.options:
        own = [
            r
            for r in votes.people
            if r.initial_choice == option
            and r.cluster_id is not None
            and r.participant_id in vectors
        ]
        if own:
            found.append(
                Reasons(
                    option,
                    tuple(r.participant_id for r in own),
                    tuple(r.individual_summary or "" for r in own),
                    tuple(str(r.cluster_id) for r in own),
                    np.array([vectors.pop(r.participant_id) for r in own]),
                    config.get("clustering_algorithm", "kmeans"),
                    int(config.get("max_clusters_per_option", 6)),
                    int(config.get("random_seed", 42)),
                )
            )
    return found


def _cluster_quality(groups: list[Reasons]) -> Finding:
    """Whether the clusters hold."""
    rows: list[Row] = []
    for g in groups:
        stable = g.stability
        rows.append(
            {
                "option": g.option,
                "members": len(g.ids),
                "clusters": g.k,
                "silhouette": g.tried.silhouettes.get(g.k),
                "structure": g.structure,
                "stability": stable.mean if stable.draws else None,
                "stability_10th": stable.low if stable.draws else None,
                "verdict": stable.verdict if stable.draws else "one cluster",
            }
        )
    number = plural(sum(g.k for g in groups), "cluster")
    return Finding(
        "cluster_quality",
        "Do the clusters of reasons hold?",
        f"{number} of reasons over {plural(len(groups), 'option')}. {_verdict(groups)}",
        Grid.of(rows, "Silhouette: −1 to 1; stability: adjusted Rand index over 20 redraws."),
        notes=(
            "Structure by the mean silhouette, after Kaufman and Rousseeuw (1990): none up to .25, "
            "weak up to .50 (it may be artificial), reasonable up to .70, strong above. A "
            "stability of .75 or more is customary for clusters to be called stable. Embeddings "
            "capture topic better than stance; what people stand for is in their votes.",
        ),
        section=CLUSTERS,
    )


def _verdict(groups: list[Reasons]) -> str:
    cut = [g for g in groups if g.tried.silhouettes]
    if not cut:
        return "Too few members, or members too much alike, to tell reasons apart."
    by_structure = {
        name: [g.option for g in cut if g.structure == name] for _, name in reversed(STRUCTURES)
    }
    parts = [
        "Structure by the silhouette: "
        + listed(f"{name} in {', '.join(own)}" for name, own in by_structure.items() if own)
    ]
    shaky = [g.option for g in cut if g.stability.verdict != "stable"]
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
    """The silhouette of every number of clusters that was tried."""
    rows = tuple(
        (g.option, k, score, g.k == k) for g in groups for k, score in g.tried.silhouettes.items()
    )
    cut = [g for g in groups if g.tried.silhouettes]
    says = "For each option the number with the largest mean silhouette was taken: "
    says += listed(f"{g.option} {g.k}" for g in cut)
    # A run of another version, or one in which some summaries have no embedding any more.
    if otherwise := [f"{g.option} {g.tried.k}" for g in cut if g.tried.k != g.k]:
        says += f" Computed again, the largest is at: {listed(otherwise)}"
    return Finding(
        "cluster_number",
        "How many clusters?",
        says,
        Grid(("option", "clusters", "silhouette", "chosen"), rows),
        Lines(
            tuple((option, float(k), score) for option, k, score, _ in rows),
            x="clusters",
            y="mean silhouette",
        ),
        section=CLUSTERS,
    )


def _cluster_map(groups: list[Reasons]) -> Finding:
    """Where everybody's reasons lie; of very many people, those of a random part of them."""
    people = [(n, at) for n, g in enumerate(groups) for at in range(len(g.ids))]
    part = ""
    if len(people) > MOST_ON_A_MAP:
        rng = generator(groups[0].seed, ("cluster map",))
        drawn = rng.choice(len(people), MOST_ON_A_MAP, replace=False)
        part = f" The map is of {MOST_ON_A_MAP:,} of {plural(len(people), 'summary', 'summaries')}."
        people = [people[int(i)] for i in np.sort(drawn)]
    flat = flat_map(np.array([groups[n].vectors[at] for n, at in people]))
    placed = [
        (groups[n].ids[at], groups[n].clusters[at], float(x), float(y))
        for (n, at), (x, y) in zip(people, flat.coordinates, strict=True)
    ]
    return Finding(
        "cluster_map",
        "Map of the reasons",
        "Each point is one participant's summary; near points use like words. The map shows "
        f"{percent(sum(flat.explained))} of the differences between them, so points that touch "
        f"here may lie apart.{part}",
        Grid(("participant_id", "cluster", "x", "y"), tuple(placed)),
        Points(
            tuple((x, y, cluster, who) for who, cluster, x, y in placed),
            x="first component",
            y="second component",
        ),
        section=CLUSTERS,
    )


def _cluster_words(votes: Votes, groups: list[Reasons]) -> Finding:
    described = {c["cluster_id"]: c["description"] for c in votes.clusters if c["description"]}
    rows = []
    for g in groups:
        names = list(dict.fromkeys(g.clusters))
        for number, members in nearest_members(g.vectors, g.labels).items():
            name = names[number]
            words = [described.get(name, "(the model gave none)"), *("″" for _ in members)]
            rows += [
                (name, g.clusters.count(name), says, g.ids[member], g.summaries[member])
                for says, member in zip(words, members, strict=False)
            ]
    return Finding(
        "cluster_words",
        "What the members themselves say",
        "Beside each description stand the summaries of the three members nearest the centre of "
        "the cluster. If they do not say what the description says, do not trust it.",
        Grid(("cluster", "members", "description", "participant_id", "own_words"), tuple(rows)),
        section=CLUSTERS,
    )
