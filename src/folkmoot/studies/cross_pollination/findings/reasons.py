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
    return [_quality(votes, groups), _map(groups), _words(votes, groups)]


def _quality(votes: Votes, groups: list[Spoken]) -> Finding:
    algorithm: Any = votes.config.get("clustering_algorithm", "kmeans")
    max_k = int(votes.config.get("max_clusters_per_option", 6))
    seed = int(votes.config.get("random_seed", 42))
    rows: list[dict[str, Cell]] = []
    lines = []
    weak = []
    for g in groups:
        again = best_clustering(g.vectors, algorithm, max_k, seed)
        stable = bootstrap_stability(g.vectors, g.labels, algorithm, seed)
        lines += [(g.option, float(k), s) for k, s in again.silhouettes.items()]
        rows.append(_quality_row(g, again, stable))
        if again.silhouettes and (
            stable.verdict != "stable" or again.silhouettes.get(g.k, 0.0) < 0.25
        ):
            weak.append(g.option)
    says = f"{plural(sum(g.k for g in groups), 'cluster')} of reasons over "
    says += f"{plural(len(groups), 'option')}. "
    says += (
        f"Weakly separated or unstable: {', '.join(weak)}. Read their descriptions as a way to cut "
        "the reasons up, not as camps that exist."
        if weak
        else "They are well separated and come out the same when members are redrawn."
    )
    return Finding(
        "cluster_quality",
        "Do the clusters of reasons hold?",
        says,
        Grid.of(rows, "Silhouette: −1 to 1; stability: adjusted Rand index over 20 redraws."),
        Lines(tuple(lines), x="clusters", y="mean silhouette") if lines else None,
        notes=(
            "Below about .25 a silhouette shows little structure; a stability of .75 or more is "
            "customary for clusters to be called stable. Embeddings capture topic better than "
            "stance; what people stand for is in their votes.",
        ),
        section=SECTION,
    )


def _quality_row(g: Spoken, again: Clustering, stable: Stability) -> dict[str, Cell]:
    return {
        "option": g.option,
        "members": len(g.ids),
        "clusters": g.k,
        "silhouette": again.silhouettes.get(g.k),
        "stability": stable.mean if stable.draws else None,
        "stability_10th": stable.low if stable.draws else None,
        "verdict": stable.verdict if stable.draws else "one cluster",
        **{f"silhouette_k{k}": s for k, s in _padded(again.silhouettes).items()},
    }


def _padded(silhouettes: dict[int, float]) -> dict[int, float | None]:
    return {k: silhouettes.get(k) for k in range(2, 7)}


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
            for member in members:
                rows.append(
                    {
                        "cluster": name,
                        "members": size,
                        "description": described.get(name, "none could be had"),
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
