"""Functions that the engine calls before and after a run: dry run, size limit, usability check.

`from_polis` makes a new study from a Polis conversation. Each voter becomes a persona, which is
described by the votes on all other comments. The votes on the chosen comment are kept apart, for
`folkmoot compare RUN --people people.csv`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import yaml

from folkmoot.errors import InputError, Problem
from folkmoot.files import csv_text
from folkmoot.hints import did_you_mean
from folkmoot.kit.polis import AGREE, DISAGREE, PASS, PolisConversation, Voter
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
    """Return why a finished run has no usable result, or an empty string.

    A run that ended early is usable if it has first votes.
    """
    if run.read_json("checkpoint.json")["terminated_early"] and not _lacks_values(
        run, "initial_choice"
    ):
        return ""
    if _lacks_values(run, "initial_choice"):
        return "no participant gave a valid first vote"
    config = CrossPollinationConfig.model_validate(run.config)
    informed = [
        name for name, shown in config.condition_designs.items() if shown != ConditionDesign()
    ]
    voted = run.scan_table("participants").filter(pl.col("condition").is_in(informed))
    if not informed or voted.select(pl.col("final_choice").count()).collect().item():
        return ""
    if config.conditions_with("interview") and _lacks_values(run, "individual_summary"):
        return "all interviews failed, so there was nothing to show"
    if config.conditions_with("summaries") and not any(run.read_table("clusters")["description"]):
        return "no group of reasons could be described, so there was nothing to show"
    return "nobody gave a valid final vote"


def _lacks_values(run: RunFolder, column: str) -> bool:
    return bool(
        run.scan_table("participants").select(pl.col(column).is_null().all()).collect().item()
    )


def dry_run_config(config: CrossPollinationConfig, folder: Path) -> CrossPollinationConfig:
    """Return settings for a dry run that changes no pool and downloads nothing.

    The dry run works on a copy of the pool. Personas from quotas replace lines that would be
    downloaded.
    """
    named = config.personas
    if named.are_generated or named.source == "table":
        return config
    pool, copy = Path(named.pool).expanduser(), folder / "pool.json"
    if pool.is_file():
        shutil.copyfile(pool, copy)
    changes: dict[str, object] = {"pool": str(copy)}
    if named.file is None:
        lines = folder / "lines.jsonl"
        people = quota.make(
            # The pool is filled to 1.5 times the participants and may draw spare lines. Three times
            # is enough.
            3 * config.participant_count,
            generator(config.random_seed, ("rehearsal",)),
        )
        lines.write_text(
            "".join(json.dumps({"persona": persona.text}) + "\n" for persona in people), "utf-8"
        )
        changes["file"] = str(lines)
    return config.model_copy(update={"personas": named.model_copy(update=changes)})


def limit_participants(config: CrossPollinationConfig, limit: int) -> CrossPollinationConfig:
    """Return settings with at most `limit` participants, but at least one in each condition.

    The number of summary draws is lowered as well, so that each draw has a reader in every
    condition.
    """
    per = max(1, min(config.participants_per_condition, limit // len(config.condition_designs)))
    draws = min(config.summary_draws, per)
    return config.model_copy(update={"participants_per_condition": per, "summary_draws": draws})


def design_size(config: CrossPollinationConfig, _folder: Path) -> DesignSize:
    """Return the size of the design, for `folkmoot power`."""
    per = config.participants_per_condition
    key = ("participants_per_condition", per)
    return DesignSize("independent", len(config.condition_designs), per, setting=key)


# --- a study made from a Polis conversation ----------------------------------------------------


NAMES = {AGREE: "Agree", DISAGREE: "Disagree", PASS: "Pass"}
# Minimum number of other comments that a voter agreed or disagreed with. Fewer votes do not
# describe a person.
LEAST_VOTES = 5
# Maximum number of comments of each vote that a description quotes, to keep prompts short.
MOST_QUOTED = 6
PERSONAS, PEOPLE, STUDY_FILE = "personas.csv", "people.csv", "cross_pollination.yaml"


def from_polis(conversation: PolisConversation, statement: str | None) -> dict[str, str | bytes]:
    """Return the files of a new study, by name: study file, personas and the voters' real votes.

    `statement` is the number of a comment. If it is None, the comment with the largest minority is
    taken. Raise InputError if the comment does not exist or too few voters are described.
    """
    number = conversation.most_divisive_comment if statement is None else statement
    if number not in conversation.comments:
        hint = did_you_mean(number, list(conversation.comments), "see comment-id in comments.csv")
        raise InputError(Problem(f"--statement: there is no accepted comment {number}", hint=hint))
    known = [
        voter for voter in conversation.voters if _count_opinions(voter, number) >= LEAST_VOTES
    ]
    per = len(known) // len(CONDITIONS)
    if not per:
        raise InputError(
            f"--from-polis: {len(known)} people agreed or disagreed with {LEAST_VOTES} other "
            f"comments; a pilot needs {len(CONDITIONS)}"
        )
    shown = _most_voted(conversation, number)
    personas = [
        (_persona_id(voter), _describe_voter(voter, shown, conversation), voter.group)
        for voter in known
    ]
    votes = [
        (_persona_id(voter), NAMES[voter.votes[number]], voter.group)
        for voter in known
        if number in voter.votes
    ]
    return {
        STUDY_FILE: _study_file_text(conversation, number, per),
        PERSONAS: csv_text([("id", "persona", "polis_group"), *personas]),
        PEOPLE: csv_text([("participant", "first", "polis_group"), *votes]),
    }


def _count_opinions(voter: Voter, number: str) -> int:
    """Return how many other comments a voter agreed or disagreed with."""
    return sum(vote != PASS for comment, vote in voter.votes.items() if comment != number)


def _persona_id(voter: Voter) -> str:
    return f"polis_{voter.id}"


def _most_voted(conversation: PolisConversation, number: str) -> list[str]:
    """Return the numbers of the other comments, ordered by their number of votes, largest first."""
    counts = {
        comment: sum(comment in voter.votes for voter in conversation.voters)
        for comment in conversation.comments
    }
    return sorted(
        (count for count in counts if count != number), key=lambda condition: -counts[condition]
    )


def _describe_voter(voter: Voter, shown: Sequence[str], conversation: PolisConversation) -> str:
    """Return a persona text that completes "You are …", with quotes of comments."""
    parts = []
    for vote, verb in ((AGREE, "agreed with"), (DISAGREE, "disagreed with")):
        own = [
            conversation.comments[condition]
            for condition in shown
            if voter.votes.get(condition) == vote
        ]
        if own:
            quoted = " ".join(f"“{text}”" for text in own[:MOST_QUOTED])
            parts.append(f"You {verb}: {quoted}")
    about = f" about {conversation.topic}" if conversation.topic else ""
    return " ".join([f"a person who took part in a public conversation{about}.", *parts])


def _study_file_text(conversation: PolisConversation, number: str, per: int) -> str:
    about = re.sub(r"\s+", " ", conversation.description)
    text = conversation.comments[number]
    description = f"{about}\n" if about else ""
    description += f"Somebody in a public conversation wrote: “{text}”\n"
    description += "Do you agree, disagree, or pass?"
    name = conversation.topic or "A Polis conversation"
    settings = {
        "study": "cross_pollination",
        "pilot_id": f"polis_{re.sub(r'[^0-9a-z]+', '_', name.lower()).strip('_')[:60]}_{number}",
        "pilot_name": f"{name}: comment {number}",
        "topic": {
            "description": description,
            "options": [NAMES[value] for value in (AGREE, DISAGREE, PASS)],
        },
        "participants_per_condition": per,
        "revote": True,
        "personas": {"source": "table", "file": PERSONAS},
        "model": "synthetic",
        "random_seed": 42,
    }
    counts = ", ".join(
        f"{conversation.count(number, value)} {name.lower()}" for value, name in NAMES.items()
    )
    head = (
        f"# Comment {number} of a Polis conversation, voted on by personas made of its voters.\n"
        f"# {PERSONAS} describes each by their other votes; {PEOPLE} holds what they voted on it "
        f"({counts}):\n"
        f"#   folkmoot run {STUDY_FILE}\n"
        f"#   folkmoot compare RUN --people {PEOPLE}\n"
    )
    return head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)
