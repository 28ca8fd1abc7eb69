"""Phases 8 and 9: final statistics, and the result files under the source's names and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from folkmoot.conversation.transcript import EMPTY
from folkmoot.engine.session import Scope, Session
from folkmoot.errors import ProtocolError
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import COMPLETE, FAILED, Cluster, Participant, State


def summary(config: CrossPollinationConfig, state: State) -> dict[str, Any]:
    """The content of summary.json. `completed` counts participants whose status is complete."""
    by_condition = {
        c: _condition(config, [p for p in state.people.values() if p.condition == c])
        for c in config.conditions
    }
    return {
        "pilot_id": config.pilot_id,
        "terminated_early": state.terminated_early,
        "termination_reason": state.termination_reason,
        "total_participants": len(state.people),
        "by_condition": by_condition,
    }


def _condition(config: CrossPollinationConfig, people: list[Participant]) -> dict[str, Any]:
    final = [p for p in people if p.position_changed is not None and p.status == COMPLETE]
    changed = sum(bool(p.position_changed) for p in final)
    return {
        "total": len(people),
        "completed": sum(p.status == COMPLETE for p in people),
        "failed": sum(p.status == FAILED for p in people),
        "position_changed": changed if final else None,
        "position_changed_rate": changed / len(final) if final else None,
        "initial_vote_distribution": _counts(config, [p.initial_choice for p in people]),
        "final_vote_distribution": (
            _counts(config, [p.final_choice for p in final]) if final else None
        ),
    }


def _counts(config: CrossPollinationConfig, choices: Sequence[str | None]) -> dict[str, int]:
    return {o: sum(c == o for c in choices) for o in config.topic.options}


async def final_statistics(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 8: say how the votes stand; nobody votes here."""
    for condition, row in summary(config, state)["by_condition"].items():
        if row["position_changed"] is None:
            scope.log(f"{condition}: {row['completed']} of {row['total']} complete, no final vote")
        else:
            scope.log(
                f"{condition}: {row['completed']} of {row['total']} complete, "
                f"{row['position_changed']} changed ({row['position_changed_rate']:.1%})"
            )
    return state


class Records:
    """What participants leave: JSON for participants.json and rows in the tables, each made as soon
    as their part is over, while others still talk.

    Made all together they would hold up the end of a run of a thousand by a hundredth of its time.
    """

    def __init__(self, scope: Scope, state: State) -> None:
        self._places = {who: scope.at(who) for who in state.people}  # rows stand in this order
        self._left: dict[str, tuple[Participant, dict[str, Any]]] = {}

    def over(self, p: Participant) -> Participant:
        """Take in one whose part is over; the participant as given."""
        place = self._places[p.id]
        place.record("participants", _participant_row(p))
        for stage, talk in (
            ("clarification", p.clarification),
            ("adversarial_dialogue", p.adversarial),
        ):
            said = talk or EMPTY
            for row in said.to_rows(stage=stage, participant_id=p.id, condition=p.condition):
                place.record("utterances", row)
        self._left[p.id] = (p, p.to_json())
        return p

    def of_all(self, state: State) -> list[dict[str, Any]]:
        """The JSON of everybody, in order. Raises ProtocolError for one who was changed after."""
        for who, p in state.people.items():
            if who not in self._left:
                self.over(p)
            if self._left[who][0] is not p:
                raise ProtocolError(f"{who} was changed after their part was over")
        return [self._left[who][1] for who in state.people]


def save_embeddings(session: Session, config: CrossPollinationConfig, state: State) -> None:
    """The embeddings of clusters and of individual summaries."""
    head = _head(session, config)
    clusters = [c.to_json() for c in state.clusters]
    session.write_json("cluster_embeddings.json", {**head, "clusters": clusters})
    found = {p.id: p.embedding for p in state.people.values() if p.embedding is not None}
    session.write_json("individual_embeddings.json", {**head, "embeddings": found})


async def save_results(
    scope: Scope, config: CrossPollinationConfig, state: State, records: Records
) -> State:
    """Phase 9: participants, summary and settings as files and tables; embeddings are there."""
    session = scope.root
    head = _head(session, config)
    mark = {"evidence": session.synthetic_mark} if session.synthetic_mark else {}
    people = records.of_all(state)
    scope.write_json("participants.json", {**head, **mark, "participants": people})
    scope.write_json("summary.json", {**summary(config, state), **mark})
    settings = config.model_dump(mode="json", exclude_none=True)
    scope.write_text("config.yaml", yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    for c in state.clusters:
        scope.record("clusters", _cluster_row(c))
    return state


def _head(session: Session, config: CrossPollinationConfig) -> dict[str, Any]:
    return {"pilot_id": config.pilot_id, "generated_at": session.started_at}


def _participant_row(p: Participant) -> dict[str, Any]:
    return {
        "participant_id": p.id,
        "condition": p.condition,
        "status": p.status,
        "error_message": p.error_message,
        "initial_choice": p.initial_choice,
        "final_choice": p.final_choice,
        "position_changed": p.position_changed,
        "opposition_view": p.opposition_view,
        "cluster_id": p.cluster_id,
        "individual_summary": p.individual_summary,
        "clarification_exchanges": len(p.clarification or ()) // 2,
        "adversarial_exchanges": len(p.adversarial or ()) // 2,
        "options_shown": list(p.options),
        "base_persona": p.base_persona,
        "persona": p.enriched_persona,
        **{f"demographic_{k}": v for k, v in p.demographics.items()},
    }


def _cluster_row(c: Cluster) -> dict[str, Any]:
    return {
        "cluster_id": c.cluster_id,
        "option": c.option,
        "description": c.description,
        "member_count": c.member_count,
        "member_ids": list(c.member_ids),
    }


def write_checkpoint(session: Session, phase: int, state: State) -> None:
    """checkpoint.json: how far the run is, for people; a resume goes by the journal alone."""
    clusters = [c.to_json() for c in state.clusters]
    by_option: dict[str, list[dict[str, Any]]] = {}
    for c in clusters:
        by_option.setdefault(str(c["option"]), []).append(c)
    session.write_json(
        "checkpoint.json",
        {
            "last_completed_phase": phase,
            "terminated_early": state.terminated_early,
            "termination_reason": state.termination_reason,
            "clusters": clusters,
            "clusters_by_option": by_option,
            "checkpoint_time": session.now(),
        },
    )
