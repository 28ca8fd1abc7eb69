"""Phases 8 and 9: final statistics, and the result files under the source's names and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

import yaml

from folkmoot.conversation.transcript import Transcript
from folkmoot.engine.session import Scope, Session
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import (
    COMPLETE,
    FAILED,
    SKIPPED,
    Cluster,
    Participant,
    State,
)
from folkmoot.studies.cross_pollination.tables import participant_row

PHASES = (
    "initial_vote",
    "threshold_check",
    "clarification",
    "summaries",
    "opposition",
    "cross_pollination",
    "adversarial_dialogue",
    "final_statistics",
    "save_results",
)


def final_statistics(scope: Scope, config: CrossPollinationConfig, state: State) -> None:
    """Phase 8: say how the votes stand; nobody votes here."""
    for condition, row in by_condition(config, state).items():
        if row["position_changed"] is None:
            scope.log(f"{condition}: {row['completed']} of {row['total']} complete, no final vote")
        else:
            scope.log(
                f"{condition}: {row['completed']} of {row['total']} complete, "
                f"{row['position_changed']} changed ({row['position_changed_rate']:.1%})"
            )


def save_results(scope: Scope, config: CrossPollinationConfig, state: State) -> None:
    """Phase 9: everything as files and tables."""
    people = state.people.values()
    session = scope.root
    head = {"pilot_id": config.pilot_id, "generated_at": session.started_at}
    mark = {"evidence": session.synthetic_mark} if session.synthetic_mark else {}
    embeddings = {p.id: p.embedding for p in people if p.embedding is not None}
    settings = config.model_dump(mode="json", exclude_none=True)

    def write(name: str, content: Mapping[str, object]) -> None:
        scope.write_json(name, {**head, **content})

    write("cluster_embeddings.json", {"clusters": [cluster_json(c) for c in state.clusters]})
    write("individual_embeddings.json", {"embeddings": embeddings})
    write("participants.json", {**mark, "participants": map(participant_json, people)})
    scope.write_json("summary.json", {**summary(config, state), **mark})
    scope.write_text("config.yaml", yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    for p in people:
        persona = p.persona
        demographics = {f"demographic_{k}": v for k, v in persona.demographics.items()}
        scope.record("participants", {**participant_row(p, persona).cells(), **demographics})


def write_checkpoint(session: Session[CrossPollinationConfig], phase: str, state: State) -> None:
    """checkpoint.json: how far the run is, for people; a resume goes by the journal alone."""
    number = PHASES.index(phase) + 1
    clusters = [cluster_json(c) for c in state.clusters]
    by_option: dict[str, list[dict[str, object]]] = {}
    for cluster, c in zip(state.clusters, clusters, strict=True):
        by_option.setdefault(cluster.option, []).append(c)
    session.write_json(
        "checkpoint.json",
        {
            "last_completed_phase": number,
            "terminated_early": state.terminated_early,
            "termination_reason": state.termination_reason,
            "clusters": clusters,
            "clusters_by_option": by_option,
            "checkpoint_time": session.now(),
        },
    )
    session.at(phase).log(f"done (phase {number} of {len(PHASES)})")


def participant_json(p: Participant) -> dict[str, object]:
    """The record of participants.json."""
    persona = p.persona
    return {
        "participant_id": p.id,
        "condition": p.condition,
        "base_persona": persona.base,
        "demographics": dict(persona.demographics),
        "enriched_persona": persona.text,
        "initial_choice": p.initial_choice,
        "initial_explanation": None,  # the source's own: deprecated, never collected
        "final_choice": p.final_choice,
        "position_changed": p.position_changed,
        "clarification_transcript": _said(p.clarification),
        "adversarial_transcript": _said(p.adversarial),
        "individual_summary": p.individual_summary,
        "individual_summary_embedding": p.embedding,
        "cluster_id": p.cluster_id,
        "opposition_view": p.opposition_view,
        "cross_pollination_content": p.cross_pollination_content,
        "status": p.status,
        "error_message": p.error_message,
    }


def _said(transcript: Transcript | None) -> list[dict[str, str]] | None:
    return None if transcript is None else transcript.to_source_json()


def cluster_json(c: Cluster) -> dict[str, object]:
    """The record of cluster_embeddings.json."""
    return {
        "cluster_id": c.id,
        "option": c.option,
        "description": c.description,
        "embedding": c.embedding,
        "member_count": len(c.member_ids),
        "member_ids": list(c.member_ids),
    }


def summary(config: CrossPollinationConfig, state: State) -> dict[str, object]:
    """The content of summary.json. `completed` counts participants whose status is complete."""
    return {
        "pilot_id": config.pilot_id,
        "terminated_early": state.terminated_early,
        "termination_reason": state.termination_reason,
        "total_participants": len(state.people),
        "by_condition": by_condition(config, state),
    }


class OfCondition(TypedDict):
    """One condition in summary.json."""

    total: int
    completed: int
    failed: int
    skipped: int
    position_changed: int | None
    position_changed_rate: float | None
    initial_vote_distribution: dict[str, int]
    final_vote_distribution: dict[str, int] | None


def by_condition(config: CrossPollinationConfig, state: State) -> dict[str, OfCondition]:
    """How each condition came out."""
    people = state.people.values()
    return {c: _condition(config, [p for p in people if p.condition == c]) for c in config.arms}


def _condition(config: CrossPollinationConfig, people: list[Participant]) -> OfCondition:
    final = [p for p in people if p.position_changed is not None and p.status == COMPLETE]
    changed = sum(bool(p.position_changed) for p in final)

    def distribution(choices: Iterable[str | None]) -> dict[str, int]:
        votes = list(choices)
        return {o: votes.count(o) for o in config.topic.options}

    return {
        "total": len(people),
        "completed": sum(p.status == COMPLETE for p in people),
        "failed": sum(p.status == FAILED for p in people),
        "skipped": sum(p.status == SKIPPED for p in people),
        "position_changed": changed if final else None,
        "position_changed_rate": changed / len(final) if final else None,
        "initial_vote_distribution": distribution(p.initial_choice for p in people),
        "final_vote_distribution": distribution(p.final_choice for p in final) if final else None,
    }
