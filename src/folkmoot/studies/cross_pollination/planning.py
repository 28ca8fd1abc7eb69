"""Before a run: deeper checks, a smaller version, a study file to begin with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from folkmoot.errors import Problem
from folkmoot.people.sources import quota
from folkmoot.randomness import generator
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import (
    CrossPollinationConfig,
)

CODEBOOK: dict[str, Any] = {
    "participants": {
        "status": "complete, failed (with a reason), skipped (with a reason) or pending",
        "error_message": "why the participant failed or was skipped",
        "initial_choice": "first vote (phase 1)",
        "final_choice": "last vote (phase 6 or 7; for simple_voting the second vote, if asked)",
        "position_changed": "whether the final choice differs from the first",
        "opposition_view": "option that the adversarial dialogue argued for (phase 5)",
        "cluster_id": "cluster of reasons within the first choice (phase 4)",
        "individual_summary": "the interview in one to three sentences, by a model",
        "clarification_exchanges": "questions and answers in the interview",
        "adversarial_exchanges": "challenges and answers in the adversarial dialogue",
        "options_shown": "options in the order in which this participant saw them",
        "base_persona": "the raw line that the persona grew from",
        "persona": "the description that the model was given",
        "demographic_age": "age in years",
        "demographic_sex": "F or M",
        "demographic_education": "highest education",
        "demographic_income": "income, from low to high",
        "demographic_location_type": "urban, suburban or rural",
        "demographic_political_leaning": "from very liberal to very conservative",
        "demographic_occupation": "occupation",
    },
    "clusters": {
        "cluster_id": "option and number of the cluster",
        "option": "option that its members chose first",
        "description": "what they share, in three sentences by a model",
        "member_count": "participants in the cluster",
        "member_ids": "their ids",
    },
    "utterances": {"turn": "place in the dialogue, from 1"},
}

TABLES = {
    "participants": "participant_id condition status error_message initial_choice final_choice "
    "position_changed:bool opposition_view cluster_id individual_summary "
    "clarification_exchanges:int adversarial_exchanges:int options_shown base_persona persona",
    "clusters": "cluster_id option description member_count:int member_ids",
    "utterances": "participant_id condition turn:int stage round:int speaker_id speaker_name "
    "speaker_role text missing finish",
}


def unusable(run: RunFolder) -> str:
    """Why nothing in a pilot is of use. One that ended early has its votes, which say so much."""
    if run.json("summary.json")["terminated_early"] and not _lacks(run, "initial_choice"):
        return ""
    if _lacks(run, "initial_choice"):
        return "no participant gave a valid first vote"
    if _lacks(run, "individual_summary"):
        return "all interviews failed, so that there was nothing to show to anybody"
    if run.table("clusters").is_empty():
        return "no group of reasons could be described, so that there was nothing to show"
    return "nobody gave a valid final vote" if _lacks(run, "final_choice") else ""


def _lacks(run: RunFolder, column: str) -> bool:
    return bool(run.table("participants")[column].is_null().all())


def check(config: CrossPollinationConfig, _folder: Path) -> list[Problem]:
    """What one setting by itself cannot show."""
    problems = []
    if config.personas.source == "table" and config.personas.file is None:
        problems.append(Problem("the source `table` needs a file", key="personas.file"))
    return problems


def rehearsal(config: CrossPollinationConfig, folder: Path) -> CrossPollinationConfig:
    """The same pilot with a copy of the pool, and stand-ins for lines that would be fetched."""
    named = config.personas
    if named.made or named.source == "table":
        return config
    pool, copy = Path(named.pool).expanduser(), folder / "pool.json"
    if pool.is_file():
        shutil.copyfile(pool, copy)
    changes: dict[str, Any] = {"pool": str(copy)}
    if named.file is None:
        lines = folder / "lines.jsonl"
        people = quota.make(3 * config.n, generator(config.random_seed, ("rehearsal",)))
        lines.write_text("".join(json.dumps({"persona": p.text}) + "\n" for p in people), "utf-8")
        changes["file"] = str(lines)
    return config.model_copy(update={"personas": named.model_copy(update=changes)})


def cut(config: CrossPollinationConfig, limit: int) -> CrossPollinationConfig:
    """The same pilot with at most `limit` participants, at least one a condition."""
    per = max(1, min(config.participants_per_condition, limit // len(config.conditions)))
    return config.model_copy(update={"participants_per_condition": per})


def template() -> dict[str, str | bytes]:
    """A study file to begin with."""
    return {"cross_pollination.yaml": TEMPLATE}


TEMPLATE = """\
# An adversarial cross-pollination pilot. Run it with
#   folkmoot run cross_pollination.yaml --model synthetic
pilot_id: my_pilot
pilot_name: What should the money be spent on?

topic:
  description: |
    Your city has $500,000 in discretionary funds to allocate.
    You must choose which area should receive the funding.
  options:
    - Park improvements
    - Youth job training programs
    - Senior services expansion

participants_per_condition: 30
disagreement_threshold: 0.9        # stop if one option gets this share of the first votes
max_clarification_exchanges: 5
max_socratic_exchanges: 5
opposition_method: cluster_embedding   # or embedding, llm_judge, predefined, highest_voted
revote: true                       # simple_voting votes twice: the floor of noise
option_order: random               # each participant sees the options in an order of their own

personas:
  source: quota                    # or persona_hub, table
model: synthetic                   # or openai/gpt-4o, anthropic/claude-haiku-4.5, …
random_seed: 42
"""
