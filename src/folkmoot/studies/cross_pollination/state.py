"""Participants and clusters with all the source's fields, and the state that phases hand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker, Transcript
from folkmoot.models.request import FloatArray

PENDING, COMPLETE, FAILED, SKIPPED = "pending", "complete", "failed", "skipped"


class Participant(NamedTuple):
    """One participant's record; phases return changed copies, nothing is changed in place."""

    participant_id: str
    condition: str
    base_persona: str = ""
    demographics: Mapping[str, Any] = MappingProxyType({})
    enriched_persona: str = ""
    # From the first vote on: the options in this participant's order, and the system prompt on
    # which those of all phases build.
    options: tuple[str, ...] = ()
    system: str = ""
    initial_choice: str | None = None
    initial_explanation: str | None = None
    final_choice: str | None = None
    clarification: Transcript | None = None
    adversarial: Transcript | None = None
    opposition_view: str | None = None
    cross_pollination_content: str | None = None
    individual_summary: str | None = None
    embedding: FloatArray | None = None
    cluster_id: str | None = None
    status: str = PENDING
    error_message: str | None = None

    @property
    def id(self) -> str:
        return self.participant_id

    @property
    def position_changed(self) -> bool | None:
        """Whether the final choice differs from the first; None without a final choice."""
        if self.final_choice is None or self.initial_choice is None:
            return None
        return self.final_choice != self.initial_choice

    @property
    def active(self) -> bool:
        """Still in the study."""
        return self.status in (PENDING, COMPLETE)

    def speaker(self, system: str) -> Speaker:
        """The participant as the models see it."""
        return Speaker(self.id, "Participant", "participant", system)

    def with_(self, **changes: Any) -> Participant:
        return self._replace(**changes)

    def failed(self, where: str, missing: Missing) -> Participant:
        """Out of the study, with the reason."""
        detail = f": {missing.detail}" if missing.detail else ""
        return self.with_(status=FAILED, error_message=f"{where}: {missing.reason}{detail}")

    def skipped(self, reason: str) -> Participant:
        return self.with_(status=SKIPPED, error_message=reason)

    def to_json(self) -> dict[str, Any]:
        """The record of participants.json."""
        return {
            "participant_id": self.participant_id,
            "condition": self.condition,
            "base_persona": self.base_persona,
            "demographics": dict(self.demographics),
            "enriched_persona": self.enriched_persona,
            "initial_choice": self.initial_choice,
            "initial_explanation": self.initial_explanation,
            "final_choice": self.final_choice,
            "position_changed": self.position_changed,
            "clarification_transcript": _said(self.clarification),
            "adversarial_transcript": _said(self.adversarial),
            "individual_summary": self.individual_summary,
            "individual_summary_embedding": self.embedding,
            "cluster_id": self.cluster_id,
            "opposition_view": self.opposition_view,
            "cross_pollination_content": self.cross_pollination_content,
            "status": self.status,
            "error_message": self.error_message,
        }


def _said(transcript: Transcript | None) -> list[dict[str, str]] | None:
    return None if transcript is None else transcript.to_source_json()


@dataclass(frozen=True)
class Cluster:
    """A group of like-minded participants of one option, described by a model."""

    cluster_id: str
    option: str
    description: str
    embedding: FloatArray | None
    member_ids: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.cluster_id

    @property
    def member_count(self) -> int:
        return len(self.member_ids)

    def to_json(self) -> dict[str, Any]:
        """The record of cluster_embeddings.json."""
        return {
            "cluster_id": self.cluster_id,
            "option": self.option,
            "description": self.description,
            "embedding": self.embedding,
            "member_count": self.member_count,
            "member_ids": list(self.member_ids),
        }


@dataclass(frozen=True)
class State:
    """All that the phases hand on to each other."""

    people: Mapping[str, Participant]
    clusters: tuple[Cluster, ...] = ()
    content: str = ""
    terminated_early: bool = False
    termination_reason: str | None = None

    def chosen(self, *conditions: str) -> list[Participant]:
        """Active participants of these conditions (of all, if none is named), in order."""
        return [
            p
            for p in self.people.values()
            if p.active and (not conditions or p.condition in conditions)
        ]

    def updated(self, changed: Iterable[Participant]) -> State:
        """The state with these participants' records replaced."""
        return replace(self, people={**self.people, **{p.id: p for p in changed}})

    def merged(self, *others: State) -> State:
        """This state with what parts that began from it and ran side by side made of it.

        Where two changed the same participant, or both have an end or clusters, that of the first
        named holds.
        """
        people = {}
        for who, p in self.people.items():
            changed = (o.people[who] for o in others if o.people[who] is not p)
            people[who] = next(changed, p)
        ended = next((o for o in others if o.terminated_early), self)
        shown = next((o for o in others if o.clusters), self)
        return State(
            people, shown.clusters, shown.content, ended.terminated_early, ended.termination_reason
        )

    def clusters_of(self, option: str) -> list[Cluster]:
        return [c for c in self.clusters if c.option == option]

    def votes(self, where: Callable[[Participant], bool] = lambda _: True) -> dict[str, int]:
        """First votes per option, most voted first, of those whom `where` admits."""
        counts: dict[str, int] = {}
        for p in self.people.values():
            if p.initial_choice is not None and where(p):
                counts[p.initial_choice] = counts.get(p.initial_choice, 0) + 1
        return counts
