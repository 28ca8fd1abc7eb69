"""Functions of the study type that the engine calls before and after a run.

`from_polis` makes a study from data of Polis, a survey in which people vote on others' comments.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import yaml

from folkmoot.engine.settings.yaml_tree import StudyDumper
from folkmoot.errors import InputError, Problem
from folkmoot.files import csv_text
from folkmoot.hints import did_you_mean
from folkmoot.kit.polis import AGREE, DISAGREE, PASS, PolisConversation, PolisVoter
from folkmoot.measures.inference.power import DesignSize
from folkmoot.people.sources import quota
from folkmoot.randomness import generator
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import (
    CONDITIONS,
    ConditionDesign,
    CrossPollinationConfig,
)


def unusable_reason(run: RunFolder) -> str:
    """Return the reason why a finished run has no usable result.

    Returns "" if the run is usable.
    """
    # A run that ended early is usable if it has first votes.
    if run.read_json("checkpoint.json")["terminated_early"] and not _lacks_values(
        run, "initial_choice"
    ):
        return ""
    if _lacks_values(run, "initial_choice"):
        return "no participant gave a valid first vote"
    config = run.read_settings(CrossPollinationConfig)
    informed = [
        name for name, design in config.condition_designs.items() if design != ConditionDesign()
    ]
    voted = run.scan_table("participants").filter(pl.col("condition").is_in(informed))
    if not informed or voted.select(pl.col("final_choice").count()).collect().item():
        return ""
    if config.conditions_with("interview") and _lacks_values(run, "individual_summary"):
        return "all interviews failed, so there was nothing to show"
    if config.conditions_with("summaries") and not any(run.read_table("clusters")["description"]):
        return "no cluster of reasons was described, so there was nothing to show"
    return "no participant gave a valid final vote"


def _lacks_values(run: RunFolder, column: str) -> bool:
    return bool(
        run.scan_table("participants").select(pl.col(column).is_null().all()).collect().item()
    )


def dry_run_config(config: CrossPollinationConfig, folder: Path) -> CrossPollinationConfig:
    """Return settings for a dry run that downloads nothing and changes no stored personas."""
    # It uses a copy of the file with personas (`pool`). Instead of a download, it draws from
    # quotas.
    personas = config.personas
    if personas.are_generated or personas.source == "table":
        return config
    pool, copy = Path(personas.pool).expanduser(), folder / "pool.json"
    if pool.is_file():
        shutil.copyfile(pool, copy)
    changes: dict[str, object] = {"pool": str(copy)}
    if personas.file is None:
        lines = folder / "lines.jsonl"
        quota_personas = quota.make(
            # The pool is filled to 1.5 times the participants and may draw spare lines. Three times
            # is enough.
            3 * config.participant_count,
            generator(config.random_seed, ("rehearsal",)),
        )
        lines.write_text(
            "".join(json.dumps({"persona": persona.text}) + "\n" for persona in quota_personas),
            "utf-8",
        )
        changes["file"] = str(lines)
    return config.model_copy(update={"personas": personas.model_copy(update=changes)})


def limit_participants(config: CrossPollinationConfig, limit: int) -> CrossPollinationConfig:
    """Return settings with at most `limit` participants, but at least one in each condition."""
    # `summary_draws` is lowered too, so that each version of the summaries still has readers.
    per_condition = max(
        1, min(config.participants_per_condition, limit // len(config.condition_designs))
    )
    draws = min(config.summary_draws, per_condition)
    return config.model_copy(
        update={"participants_per_condition": per_condition, "summary_draws": draws}
    )


def design_size(config: CrossPollinationConfig, _folder: Path) -> DesignSize:
    """Return the size of the design. `folkmoot power` uses this size."""
    per_condition = config.participants_per_condition
    key = ("participants_per_condition", per_condition)
    return DesignSize("independent", len(config.condition_designs), per_condition, setting=key)


# --- a study made from a Polis conversation ----------------------------------------------------


VOTE_LABELS = {AGREE: "Agree", DISAGREE: "Disagree", PASS: "Pass"}
# Minimum number of other comments that a voter agreed or disagreed with. Fewer votes do not
# describe a person.
MIN_OTHER_VOTES = 5
# Maximum number of comments of each vote that a description quotes, to keep prompts short.
MAX_QUOTED_COMMENTS = 6
PERSONAS, PEOPLE, STUDY_FILE = "personas.csv", "people.csv", "cross_pollination.yaml"


def from_polis(conversation: PolisConversation, statement: str | None) -> dict[str, str | bytes]:
    """Return the files of a new study, as a map from file name to content.

    - `conversation`: the exported data of a Polis survey.
    - `statement`: the number of the comment on which participants vote. None selects the most
      divisive comment.

    Raises InputError if the comment does not exist or has too few voters.
    """
    # Each voter becomes a persona that votes on this comment. The real votes on it are in
    # `people.csv`, for `folkmoot compare RUN --people people.csv`. Only voters on at least
    # `MIN_OTHER_VOTES` other comments count.
    comment_id = conversation.most_divisive_comment if statement is None else statement
    if comment_id not in conversation.comments:
        hint = did_you_mean(
            comment_id, list(conversation.comments), "see comment-id in comments.csv"
        )
        raise InputError(
            Problem(f"--statement: there is no accepted comment {comment_id}", hint=hint)
        )
    voters = [
        voter
        for voter in conversation.voters
        if _count_opinions(voter, comment_id) >= MIN_OTHER_VOTES
    ]
    per_condition = len(voters) // len(CONDITIONS)
    if not per_condition:
        raise InputError(
            f"--from-polis: {len(voters)} voters agreed or disagreed with {MIN_OTHER_VOTES} other "
            f"comments; a study needs at least {len(CONDITIONS)}"
        )
    comment_ids = _most_voted(conversation, comment_id)
    personas = [
        (_persona_id(voter), _describe_voter(voter, comment_ids, conversation), voter.group)
        for voter in voters
    ]
    votes = [
        (_persona_id(voter), VOTE_LABELS[voter.votes[comment_id]], voter.group)
        for voter in voters
        if comment_id in voter.votes
    ]
    return {
        STUDY_FILE: _study_file_text(conversation, comment_id, per_condition),
        PERSONAS: csv_text([("id", "persona", "polis_group"), *personas]),
        PEOPLE: csv_text([("participant", "first", "polis_group"), *votes]),
    }


def _count_opinions(voter: PolisVoter, comment_id: str) -> int:
    return sum(vote != PASS for comment, vote in voter.votes.items() if comment != comment_id)


def _persona_id(voter: PolisVoter) -> str:
    return f"polis_{voter.id}"


def _most_voted(conversation: PolisConversation, comment_id: str) -> list[str]:
    counts = {
        comment: sum(comment in voter.votes for voter in conversation.voters)
        for comment in conversation.comments
    }
    return sorted(
        (comment for comment in counts if comment != comment_id),
        key=lambda comment: -counts[comment],
    )


def _describe_voter(
    voter: PolisVoter, comment_ids: Sequence[str], conversation: PolisConversation
) -> str:
    parts = []
    for vote, verb in ((AGREE, "agreed with"), (DISAGREE, "disagreed with")):
        comment_texts = [
            conversation.comments[comment_id]
            for comment_id in comment_ids
            if voter.votes.get(comment_id) == vote
        ]
        if comment_texts:
            quoted = " ".join(f"“{text}”" for text in comment_texts[:MAX_QUOTED_COMMENTS])
            parts.append(f"You {verb}: {quoted}")
    about = f" about {conversation.topic}" if conversation.topic else ""
    return " ".join([f"a person who took part in a public conversation{about}.", *parts])


def _study_file_text(conversation: PolisConversation, comment_id: str, per_condition: int) -> str:
    about = re.sub(r"\s+", " ", conversation.description)
    text = conversation.comments[comment_id]
    description = f"{about}\n" if about else ""
    description += f"Somebody in a public conversation wrote: “{text}”\n"
    description += "Do you agree, disagree, or pass?"
    name = conversation.topic or "A Polis conversation"
    slug = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")[:60]
    settings = {
        "study": "cross_pollination",
        "pilot_id": f"polis_{slug}_{comment_id}",
        "pilot_name": f"{name}: comment {comment_id}",
        "topic": {
            "description": description,
            "options": [VOTE_LABELS[value] for value in (AGREE, DISAGREE, PASS)],
        },
        "participants_per_condition": per_condition,
        "revote": True,
        "personas": {"source": "table", "file": PERSONAS},
        "model": "synthetic",
        "random_seed": 42,
    }
    counts = ", ".join(
        f"{conversation.count(comment_id, value)} {name.lower()}"
        for value, name in VOTE_LABELS.items()
    )
    header = (
        f"# The voters of a Polis conversation, as personas, vote on its comment {comment_id}.\n"
        f"# {PERSONAS} describes each voter by the votes on other comments. {PEOPLE} has the real\n"
        f"# votes on this comment ({counts}).\n"
        f"#   folkmoot run {STUDY_FILE}\n"
        f"#   folkmoot compare RUN --people {PEOPLE}\n"
    )
    return header + yaml.dump(
        settings, Dumper=StudyDumper, sort_keys=False, allow_unicode=True, width=100
    )
