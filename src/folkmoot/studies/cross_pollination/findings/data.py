"""The votes of a run as the findings need them: read once from the tables, never changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import (
    ACP,
    CLARIFIED_PASSIVE,
    EMPTY_ARGUMENT,
    NAMES_ONLY,
    SIMPLE_PASSIVE,
    SIMPLE_VOTING,
)
from folkmoot.studies.cross_pollination.tables import ParticipantRow

LABELS: Mapping[str, str] = {
    SIMPLE_VOTING: "Simple voting",
    SIMPLE_PASSIVE: "Simple passive",
    CLARIFIED_PASSIVE: "Clarified passive",
    ACP: "Adversarial (ACP)",
    NAMES_ONLY: "Names only",
    EMPTY_ARGUMENT: "Empty argument",
}
INFORMED = (SIMPLE_PASSIVE, CLARIFIED_PASSIVE, ACP)
PLACEBOS = (NAMES_ONLY, EMPTY_ARGUMENT)


def label(condition: str) -> str:
    """The condition's name for readers."""
    return LABELS.get(condition, condition.replace("_", " ").capitalize())


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One condition. `rows` are its participants; `moved` those with a first and a final vote."""

    condition: str
    rows: tuple[Mapping[str, Any], ...]
    moved: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        return label(self.condition)

    @property
    def n(self) -> int:
        """Participants with both votes."""
        return len(self.moved)

    @property
    def changed(self) -> int:
        return sum(bool(r["position_changed"]) for r in self.moved)

    @property
    def lost(self) -> tuple[Mapping[str, Any], ...]:
        """Participants without a final vote who should have had one, for whatever reason."""
        return tuple(r for r in self.rows if r["position_changed"] is None)

    def column(self, name: str) -> list[Any]:
        """A column of those with both votes."""
        return [r[name] for r in self.moved]


@dataclass(frozen=True)
class Votes:
    """All that the findings know of a run."""

    run: RunFolder
    options: tuple[str, ...]
    arms: tuple[Arm, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    terminated: str | None = None

    @property
    def twice(self) -> tuple[Arm, ...]:
        """Arms in which somebody voted twice."""
        return tuple(a for a in self.arms if a.n)

    @property
    def informed(self) -> tuple[Arm, ...]:
        """Arms that were shown or told something, and voted again."""
        return tuple(a for a in self.twice if a.condition in INFORMED)

    def arm(self, condition: str) -> Arm | None:
        """The arm, if somebody in it voted twice."""
        return next((a for a in self.twice if a.condition == condition), None)

    @property
    def floor(self) -> Arm | None:
        """The arm that was asked again without being told anything."""
        return self.arm(SIMPLE_VOTING)

    @property
    def facing(self) -> list[Mapping[str, Any]]:
        """Those of the adversarial arm who faced an opposing view and voted again."""
        arm = self.arm(ACP)
        return [r for r in arm.moved if r["opposition_view"] is not None] if arm else []

    @property
    def rebuttals(self) -> list[str]:
        """What participants of the adversarial arm replied to whoever contradicted them."""
        return [
            u["text"]
            for u in self.utterances
            if u.get("stage") == "adversarial_dialogue"
            and u.get("speaker_role") == "participant"
            and u.get("text")
        ]

    @property
    def people(self) -> list[Mapping[str, Any]]:
        return [r for a in self.arms for r in a.rows]

    def counts(self, choices: Iterable[str | None]) -> list[int]:
        """Votes per option, in the order of the study file."""
        found = Counter(choices)
        return [found.get(o, 0) for o in self.options]

    @cached_property
    def answers(self) -> list[dict[str, Any]]:
        """The rows of the `answers` table; empty without one."""
        return _rows(self.run, "answers")

    @cached_property
    def utterances(self) -> list[dict[str, Any]]:
        return _rows(self.run, "utterances")

    @cached_property
    def clusters(self) -> list[dict[str, Any]]:
        return _rows(self.run, "clusters")

    @property
    def undescribed(self) -> list[str]:
        """Clusters that the model did not describe, so that nobody was shown their view."""
        return [c["cluster_id"] for c in self.clusters if not c["description"]]

    @cached_property
    def embeddings(self) -> dict[str, list[float]]:
        """Participant → embedding of the individual summary; empty where there is none."""
        if not self.run.has("individual_embeddings.json"):
            return {}
        return dict(self.run.json("individual_embeddings.json").get("embeddings", {}))


def read(run: RunFolder) -> Votes:
    """The votes of a run, conditions in the order of the design.

    A table without a column (everybody failed at the first vote, say) reads as if it were empty.
    """
    config = run.config
    columns = dict.fromkeys(ParticipantRow.columns())
    rows = [columns | r for r in _rows(run, "participants")]
    options = tuple(config.get("topic", {}).get("options", ())) or _seen(rows)
    known = [c for c in LABELS if any(r["condition"] == c for r in rows)]
    others = sorted({str(r["condition"]) for r in rows} - set(known))
    arms = []
    for condition in (*known, *others):
        own = tuple(r for r in rows if r["condition"] == condition)
        both = tuple(
            r for r in own if r["position_changed"] is not None and r["status"] == "complete"
        )
        arms.append(Arm(condition, own, both))
    summary = run.json("summary.json") if run.has("summary.json") else {}
    ended = summary.get("termination_reason") if summary.get("terminated_early") else None
    return Votes(run, options, tuple(arms), config, ended)


def _rows(run: RunFolder, table: str) -> list[dict[str, Any]]:
    return run.table(table).to_dicts() if run.has_table(table) else []


def _seen(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    votes = {r[c] for r in rows for c in ("initial_choice", "final_choice") if r[c] is not None}
    return tuple(sorted(votes))


def shown_options(cell: Any) -> tuple[str, ...]:
    """The options of a cell of lists, which tables keep as JSON text."""
    return tuple(json.loads(cell) if isinstance(cell, str) else cell or ())
