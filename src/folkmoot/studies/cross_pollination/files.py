"""Write the result files of a run, with the names and formats that the source study uses."""
# They are phases 8 and 9.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypedDict

import yaml

from folkmoot.conversation.transcript import Transcript
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.yaml_tree import StudyDumper
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
    count_changes,
    has_voted_twice,
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
    """Log two numbers for each condition: completed participants, and changed votes."""
    people = [
        CountedVotes(*(getattr(participant, name) for name in CountedVotes._fields))
        for participant in state.people.values()
    ]
    for condition, row in summarise_conditions(config, people).items():
        if row["position_changed"] is None:
            scope.log(f"{condition}: {row['completed']} of {row['total']} complete, no final vote")
        else:
            scope.log(
                f"{condition}: {row['completed']} of {row['total']} complete, "
                f"{row['position_changed']} changed ({row['position_changed_rate']:.1%})"
            )


def write_embeddings(session: Session[CrossPollinationConfig], state: State) -> None:
    """Write the embeddings of clusters, and the embedding of each participant's summary."""
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
    """Write the files `participants.json` and `config.yaml`."""
    provenance = {"evidence": session.provenance_label} if session.provenance_label else {}
    people = map(participant_json, state.people.values())
    session.write_json(
        "participants.json", {**_common_fields(session), **provenance, "participants": people}
    )
    settings = session.config.model_dump(mode="json", exclude_none=True)
    text = yaml.dump(settings, Dumper=StudyDumper, sort_keys=False, allow_unicode=True)
    session.write_text("config.yaml", text)


def _common_fields(session: Session[CrossPollinationConfig]) -> dict[str, str]:
    return {"pilot_id": session.config.pilot_id, "generated_at": session.started_at}


def write_checkpoint(session: Session[CrossPollinationConfig], phase: str, state: State) -> None:
    """Write `checkpoint.json` with the last completed phase and the clusters found so far."""
    # The file informs the researcher. A resume reads the journal alone.
    number = PHASES.index(phase) + 1
    clusters = [cluster_json(cluster) for cluster in state.clusters]
    by_option: dict[str, list[dict[str, object]]] = {}
    for cluster, record in zip(state.clusters, clusters, strict=True):
        by_option.setdefault(cluster.option, []).append(record)
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
    """Return the record of a participant in `participants.json`."""
    # It has the fields of the source study.
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
    """Return the record of a cluster in `cluster_embeddings.json`."""
    # It has the fields of the source study.
    return {
        "cluster_id": cluster.id,
        "option": cluster.option,
        "description": cluster.description,
        "embedding": cluster.embedding,
        "member_count": len(cluster.member_ids),
        "member_ids": list(cluster.member_ids),
    }


def derived_files(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield `summary.json`, computed from the table `participants`."""
    # The file covers only participants with a row in that table. `completed` counts those with the
    # status `complete`.
    yield "summary.json", summarise_run(run)


def summarise_run(run: RunFolder) -> dict[str, object]:
    """Return the content of `summary.json`."""
    config = run.read_settings(CrossPollinationConfig)
    table = run.scan_table("participants").select(CountedVotes._fields).collect()
    people = [CountedVotes(*row) for row in table.iter_rows()]
    provenance, name = run.provenance_sentence, "checkpoint.json"
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


class CountedVotes(NamedTuple):
    """The values of one participant that `summary.json` needs."""

    condition: str
    status: str
    initial_choice: str | None
    final_choice: str | None
    position_changed: bool | None


class ConditionSummary(TypedDict):
    """The counts of one condition in `summary.json`."""

    total: int
    completed: int
    failed: int
    skipped: int
    # None if no participant of the condition voted twice, also below.
    position_changed: int | None
    # A share from 0 to 1.
    position_changed_rate: float | None
    initial_vote_distribution: dict[str, int]
    final_vote_distribution: dict[str, int] | None


def summarise_conditions(
    config: CrossPollinationConfig, people: Sequence[CountedVotes]
) -> dict[str, ConditionSummary]:
    """Return a map from condition to the numbers of participants and votes."""
    return {
        condition: _summarise_condition(
            config, [person for person in people if person.condition == condition]
        )
        for condition in config.condition_designs
    }


def _summarise_condition(
    config: CrossPollinationConfig, people: Sequence[CountedVotes]
) -> ConditionSummary:
    changed, both_votes = count_changes(people)
    status = Counter(person.status for person in people)

    def count_votes(choices: Iterable[str | None]) -> dict[str, int]:
        counts = Counter(choices)
        return {option: counts[option] for option in config.topic.options}

    return {
        "total": len(people),
        "completed": status[COMPLETE],
        "failed": status[FAILED],
        "skipped": status[SKIPPED],
        "position_changed": changed if both_votes else None,
        "position_changed_rate": changed / both_votes if both_votes else None,
        "initial_vote_distribution": count_votes(person.initial_choice for person in people),
        "final_vote_distribution": count_votes(
            person.final_choice for person in people if has_voted_twice(person)
        )
        if both_votes
        else None,
    }
