"""Write the result files with the names and formats of the source study (phases 8 and 9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import polars as pl
import yaml

from folkmoot.conversation.transcript import Transcript
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit.calls import JournalReader
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import (
    COMPLETE,
    FAILED,
    SKIPPED,
    Cluster,
    Participant,
    State,
)

# The order gives the phase numbers of the source, which `checkpoint.json` holds.
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
    """Log the number of completed participants and of changed votes per condition (phase 8)."""
    people = pl.DataFrame(
        [[getattr(participant, name) for name in COUNTED] for participant in state.people.values()],
        schema=dict.fromkeys(COUNTED, pl.String) | {"position_changed": pl.Boolean},
        orient="row",
    )
    for condition, row in summarise_conditions(config, people).items():
        if row["position_changed"] is None:
            scope.log(f"{condition}: {row['completed']} of {row['total']} complete, no final vote")
        else:
            scope.log(
                f"{condition}: {row['completed']} of {row['total']} complete, "
                f"{row['position_changed']} changed ({row['position_changed_rate']:.1%})"
            )


def write_embeddings(session: Session[CrossPollinationConfig], state: State) -> None:
    """Write the embeddings of clusters and of individual summaries."""
    clusters = [cluster_json(cluster) for cluster in state.clusters]
    embeddings = {
        participant.id: participant.embedding
        for participant in state.people.values()
        if participant.embedding is not None
    }
    session.write_json("cluster_embeddings.json", {**_common_fields(session), "clusters": clusters})
    session.write_json(
        "individual_embeddings.json", {**_common_fields(session), "embeddings": embeddings}
    )


def save_results(session: Session[CrossPollinationConfig], state: State) -> None:
    """Write the participants and the settings as files (phase 9).

    `derived_files` writes `summary.json`, because that file is computed from the tables.
    """
    provenance = {"evidence": session.provenance_label} if session.provenance_label else {}
    people = map(participant_json, state.people.values())
    session.write_json(
        "participants.json", {**_common_fields(session), **provenance, "participants": people}
    )
    settings = session.config.model_dump(mode="json", exclude_none=True)
    session.write_text("config.yaml", yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def _common_fields(session: Session[CrossPollinationConfig]) -> dict[str, str]:
    return {"pilot_id": session.config.pilot_id, "generated_at": session.started_at}


def write_checkpoint(session: Session[CrossPollinationConfig], phase: str, state: State) -> None:
    """Write `checkpoint.json`: the last completed phase and the clusters found so far.

    The file informs the researcher. A resume reads the journal alone.
    """
    number = PHASES.index(phase) + 1
    clusters = [cluster_json(cluster) for cluster in state.clusters]
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
            "checkpoint_time": session.current_time(),
        },
    )
    session.child(phase).log(f"done (phase {number} of {len(PHASES)})")


def participant_json(participant: Participant) -> dict[str, object]:
    """Return the record of a participant in `participants.json`, with the source's fields."""
    persona = participant.persona
    return {
        "participant_id": participant.id,
        "condition": participant.condition,
        "base_persona": persona.base,
        "demographics": dict(persona.demographics),
        "enriched_persona": persona.text,
        "initial_choice": participant.initial_choice,
        # The source has this field, deprecated it and never fills it.
        "initial_explanation": None,
        "final_choice": participant.final_choice,
        "position_changed": participant.position_changed,
        "clarification_transcript": _transcript_json(participant.clarification_transcript),
        "adversarial_transcript": _transcript_json(participant.adversarial_transcript),
        "individual_summary": participant.individual_summary,
        "individual_summary_embedding": participant.embedding,
        "cluster_id": participant.cluster_id,
        "opposition_view": participant.opposition_view,
        "cross_pollination_content": participant.cross_pollination_content,
        "status": participant.status,
        "error_message": participant.error_message,
    }


def _transcript_json(transcript: Transcript | None) -> list[dict[str, str]] | None:
    return None if transcript is None else transcript.to_source_json()


def cluster_json(cluster: Cluster) -> dict[str, object]:
    """Return the record of a cluster in `cluster_embeddings.json`, with the source's fields."""
    return {
        "cluster_id": cluster.id,
        "option": cluster.option,
        "description": cluster.description,
        "embedding": cluster.embedding,
        "member_count": len(cluster.member_ids),
        "member_ids": list(cluster.member_ids),
    }


def derived_files(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield `summary.json`, computed from the table `participants`.

    The file covers only participants with a row in that table. `completed` counts those with the
    status `complete`.
    """
    yield "summary.json", summarise_run(run)


def summarise_run(run: RunFolder) -> dict[str, object]:
    """Return the content of `summary.json`."""
    config = CrossPollinationConfig.model_validate(run.config)
    people = run.read_table("participants").select(COUNTED)
    provenance, name = run.mark_of_files, "checkpoint.json"
    # A run that failed before its first phase ended has no checkpoint.
    checkpoint = run.read_json(name) if run.has_file(name) else {}
    return {
        "pilot_id": config.pilot_id,
        "terminated_early": checkpoint.get("terminated_early", False),
        "termination_reason": checkpoint.get("termination_reason"),
        "total_participants": len(people),
        "by_condition": summarise_conditions(config, people),
        **({"evidence": provenance} if provenance else {}),
    }


# The columns of `participants` that the summary needs. The persona texts stay on disk.
COUNTED = ("condition", "status", "initial_choice", "final_choice", "position_changed")


class ConditionSummary(TypedDict):
    """The counts of one condition in `summary.json`.

    `position_changed_rate` is a share from 0 to 1. If no participant of the condition voted twice,
    `position_changed`, `position_changed_rate` and `final_vote_distribution` are None.
    """

    total: int
    completed: int
    failed: int
    skipped: int
    position_changed: int | None
    position_changed_rate: float | None
    initial_vote_distribution: dict[str, int]
    final_vote_distribution: dict[str, int] | None


def summarise_conditions(
    config: CrossPollinationConfig, people: pl.DataFrame
) -> dict[str, ConditionSummary]:
    """Return the counts of each condition, by condition.

    `people` holds the columns `COUNTED` of the table `participants`.
    """
    return {
        condition: _summarise_condition(config, people.filter(condition=condition))
        for condition in config.condition_designs
    }


def _summarise_condition(config: CrossPollinationConfig, people: pl.DataFrame) -> ConditionSummary:
    final = people.filter(pl.col("position_changed").is_not_null(), status=COMPLETE)
    changed, status = int(final["position_changed"].sum()), people["status"].to_list()

    def choice_distribution(choices: pl.Series) -> dict[str, int]:
        votes = choices.to_list()
        return {option: votes.count(option) for option in config.topic.options}

    return {
        "total": len(people),
        "completed": status.count(COMPLETE),
        "failed": status.count(FAILED),
        "skipped": status.count(SKIPPED),
        "position_changed": changed if len(final) else None,
        "position_changed_rate": changed / len(final) if len(final) else None,
        "initial_vote_distribution": choice_distribution(people["initial_choice"]),
        "final_vote_distribution": choice_distribution(final["final_choice"])
        if len(final)
        else None,
    }
