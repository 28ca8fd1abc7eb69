"""The clusters of reasons: how well they stand, where they lie, and their own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.cluster_quality import (
    Map,
    Stability,
    bootstrap_stability,
    flat_map,
    nearest_members,
)
from folkmoot.measures.clusters import Clustering, best_clustering
from folkmoot.measures.estimates import plural
from folkmoot.records.findings import Cell, Finding, Grid, Lines, Points
from folkmoot.studies.cross_pollination.findings.data import Votes

FloatArray = NDArray[np.float64]

SECTION = "Clusters"
STRUCTURE = 0.25
FEWEST_ON_A_MAP = 3


@dataclass(frozen=True, slots=True)
class Spoken:
    """Those of one option whose reasons were clustered, with their vectors (n, d) and labels."""

    option: str
    ids: tuple[str, ...]
    summaries: tuple[str, ...]
    clusters: tuple[str, ...]
    vectors: FloatArray

    @property
    def labels(self) -> list[int]:
        order: dict[str, int] = {}
        return [order.setdefault(c, len(order)) for c in self.clusters]

    @property
    def k(self) -> int:
        return len(set(self.clusters))


def spoken(votes: Votes) -> list[Spoken]:
    """The clustered participants by option, options in the order of the study file."""
    vectors = votes.embeddings
    found = []
    for option in votes.options:
        own = [
            r
            for r in votes.people
            if r["initial_choice"] == option
            and r["cluster_id"] is not None
            and r["participant_id"] in vectors
        ]
        if own:
            found.append(
                Spoken(
                    option,
                    tuple(str(r["participant_id"]) for r in own),
                    tuple(str(r["individual_summary"] or "") for r in own),
                    tuple(str(r["cluster_id"]) for r in own),
                    np.array([vectors[str(r["participant_id"])] for r in own], float),
                )
            )
    return found


def reasons(votes: Votes) -> list[Finding]:
    """Quality, map and members' words; empty where nothing was clustered."""
    groups = spoken(votes)
    if not groups:
        return []
    mapped = [_map(groups)] if sum(len(g.ids) for g in groups) >= FEWEST_ON_A_MAP else []
    return [*_quality(votes, groups), *mapped, _words(votes, groups)]


def _quality(votes: Votes, groups: list[Spoken]) -> list[Finding]:
    """Whether the clusters hold, and by which silhouettes their number was chosen."""
    algorithm: Any = votes.config.get("clustering_algorithm", "kmeans")
    max_k = int(votes.config.get("max_clusters_per_option", 6))
    seed = int(votes.config.get("random_seed", 42))
    tried = {g.option: best_clustering(g.vectors, algorithm, max_k, seed) for g in groups}
    stable = {g.option: bootstrap_stability(g.vectors, g.labels, algorithm, seed) for g in groups}
    rows = [_quality_row(g, tried[g.option], stable[g.option]) for g in groups]
    number = plural(sum(g.k for g in groups), "cluster")
    says = f"{number} of reasons over {plural(len(groups), 'option')}. "
    quality = Finding(
        "cluster_quality",
        "Do the clusters of reasons hold?",
        says + _verdict(groups, tried, stable),
        Grid.of(rows, "Silhouette: −1 to 1; stability: adjusted Rand index over 20 redraws."),
        notes=(
            "Below about .25 a silhouette shows little structure; a stability of .75 or more is "
            "customary for clusters to be called stable. Embeddings capture topic better than "
            "stance; what people stand for is in their votes.",
        ),
        section=SECTION,
    )
    by_k = _by_number(groups, tried)
    return [quality, by_k] if by_k else [quality]


def _verdict(
    groups: list[Spoken], tried: dict[str, Clustering], stable: dict[str, Stability]
) -> str:
    cut = [g for g in groups if tried[g.option].silhouettes]
    if not cut:
        return "Too few or too like members to tell reasons apart within an option."
    shaky = [g.option for g in cut if stable[g.option].verdict != "stable"]
    blurred = [g.option for g in cut if tried[g.option].silhouettes.get(g.k, 0.0) < STRUCTURE]
    parts = []
    if shaky:
        parts.append(f"Other members would have given other clusters of: {', '.join(shaky)}.")
    if blurred:
        parts.append(f"They overlap (silhouette below {STRUCTURE:g}) in: {', '.join(blurred)}.")
    if not parts:
        return "They are well separated and come out the same when members are redrawn."
    if not shaky:
        parts.append("Yet they come out the same when members are redrawn.")
    parts.append("Read their descriptions as a way to sort the reasons, not as camps that exist.")
    return " ".join(parts)


def _quality_row(g: Spoken, again: Clustering, stable: Stability) -> dict[str, Cell]:
    return {
        "option": g.option,
        "members": len(g.ids),
        "clusters": g.k,
        "silhouette": again.silhouettes.get(g.k),
        "stability": stable.mean if stable.draws else None,
        "stability_10th": stable.low if stable.draws else None,
        "verdict": stable.verdict if stable.draws else "one cluster",
    }


def _by_number(groups: list[Spoken], tried: dict[str, Clustering]) -> Finding | None:
    """The silhouette of every number of clusters that was tried."""
    items = [
        (g.option, k, score) for g in groups for k, score in tried[g.option].silhouettes.items()
    ]
    if not items:
        return None
    chosen = {g.option: g.k for g in groups}
    rows: list[dict[str, Cell]] = [
        {"option": o, "clusters": k, "silhouette": s, "chosen": chosen[o] == k} for o, k, s in items
    ]
    best = "; ".join(f"{g.option} {g.k}" for g in groups if tried[g.option].silhouettes)
    return Finding(
        "cluster_number",
        "How many clusters?",
        f"For each option the number with the largest mean silhouette is taken: {best}.",
        Grid.of(rows),
        Lines(tuple((o, float(k), s) for o, k, s in items), x="clusters", y="mean silhouette"),
        section=SECTION,
    )


def _map(groups: list[Spoken]) -> Finding:
    flat: Map = flat_map(np.concatenate([g.vectors for g in groups]))
    rows: list[dict[str, Cell]] = []
    points = []
    at = 0
    for g in groups:
        for who, cluster in zip(g.ids, g.clusters, strict=True):
            x, y = (float(v) for v in flat.coordinates[at])
            points.append((x, y, cluster, who))
            rows.append({"participant_id": who, "cluster": cluster, "x": x, "y": y})
            at += 1
    shown = sum(flat.explained)
    return Finding(
        "cluster_map",
        "Map of the reasons",
        f"Each point is one participant's summary; near points use like words. The map shows "
        f"{100 * shown:.0f} % of the differences between them, so points that touch here may lie "
        "apart.",
        Grid.of(rows),
        Points(tuple(points), x="first component", y="second component"),
        section=SECTION,
    )


def _words(votes: Votes, groups: list[Spoken]) -> Finding:
    described = {str(c["cluster_id"]): str(c["description"]) for c in votes.clusters}
    rows: list[dict[str, Cell]] = []
    for g in groups:
        names = list(dict.fromkeys(g.clusters))
        for number, members in nearest_members(g.vectors, g.labels).items():
            name = names[number]
            size = g.clusters.count(name)
            for rank, member in enumerate(members):
                rows.append(
                    {
                        "cluster": name,
                        "members": size,
                        "description": described.get(name, "none could be had")
                        if rank == 0
                        else "″",
                        "participant_id": g.ids[member],
                        "own_words": g.summaries[member],
                    }
                )
    return Finding(
        "cluster_words",
        "What the members themselves say",
        "Beside each description stand the summaries of the three members nearest the centre of "
        "the cluster. If they do not say what the description says, do not trust it.",
        Grid.of(rows),
        section=SECTION,
    )
