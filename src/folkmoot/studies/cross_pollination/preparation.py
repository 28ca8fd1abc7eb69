"""Before and after a run: a rehearsal, a smaller version, whether it was of use; and what a new
pilot is made from: a template, or a Polis conversation.

Of Polis, each voter becomes a persona described by how they voted on the other comments; what they
voted on this one is kept apart, for `folkmoot compare RUN --people people.csv`.
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
from folkmoot.studies.cross_pollination.config import CONDITIONS, CrossPollinationConfig, Exposed


def unusable(run: RunFolder) -> str:
    """Why nothing in a pilot is of use. One that ended early still has its votes."""
    if run.json("checkpoint.json")["terminated_early"] and not _lacks(run, "initial_choice"):
        return ""
    if _lacks(run, "initial_choice"):
        return "no participant gave a valid first vote"
    config = CrossPollinationConfig.model_validate(run.config)
    informed = [name for name, shown in config.arms.items() if shown != Exposed()]
    voted = run.lazy("participants").filter(pl.col("condition").is_in(informed))
    if not informed or voted.select(pl.col("final_choice").count()).collect().item():
        return ""
    if config.those_with("interview") and _lacks(run, "individual_summary"):
        return "all interviews failed, so there was nothing to show"
    if config.those_with("summaries") and not any(run.table("clusters")["description"]):
        return "no group of reasons could be described, so there was nothing to show"
    return "nobody gave a valid final vote"


def _lacks(run: RunFolder, column: str) -> bool:
    return bool(run.lazy("participants").select(pl.col(column).is_null().all()).collect().item())


def rehearsal(config: CrossPollinationConfig, folder: Path) -> CrossPollinationConfig:
    """The same pilot with a copy of the pool, and stand-ins for lines that would be fetched."""
    named = config.personas
    if named.made or named.source == "table":
        return config
    pool, copy = Path(named.pool).expanduser(), folder / "pool.json"
    if pool.is_file():
        shutil.copyfile(pool, copy)
    changes: dict[str, object] = {"pool": str(copy)}
    if named.file is None:
        lines = folder / "lines.jsonl"
        people = quota.make(3 * config.n, generator(config.random_seed, ("rehearsal",)))
        lines.write_text("".join(json.dumps({"persona": p.text}) + "\n" for p in people), "utf-8")
        changes["file"] = str(lines)
    return config.model_copy(update={"personas": named.model_copy(update=changes)})


def cut(config: CrossPollinationConfig, limit: int) -> CrossPollinationConfig:
    """The same pilot with at most `limit` participants, at least one a condition, and no more draws
    of the summaries than a condition has readers."""
    per = max(1, min(config.participants_per_condition, limit // len(config.arms)))
    draws = min(config.summary_draws, per)
    return config.model_copy(update={"participants_per_condition": per, "summary_draws": draws})


def size(config: CrossPollinationConfig, _folder: Path) -> DesignSize:
    """How large the design is, for `folkmoot power`."""
    per = config.participants_per_condition
    key = ("participants_per_condition", per)
    return DesignSize("independent", len(config.arms), per, setting=key)


# --- a pilot made of a Polis conversation ---------------------------------------------------------


NAMES = {AGREE: "Agree", DISAGREE: "Disagree", PASS: "Pass"}
LEAST_VOTES = 5  # other comments agreed or disagreed with: fewer describe nobody
MOST_QUOTED = 6  # comments of each vote in a description
PERSONAS, PEOPLE, STUDY_FILE = "personas.csv", "people.csv", "cross_pollination.yaml"


def from_polis(conversation: PolisConversation, statement: str | None) -> dict[str, str | bytes]:
    """The files of the pilot; on the comment on which the smaller side is largest, if none is
    named. Raises InputError where the comment does not exist or too few voters are described."""
    number = conversation.most_divided if statement is None else statement
    if number not in conversation.comments:
        hint = did_you_mean(number, list(conversation.comments), "see comment-id in comments.csv")
        raise InputError(Problem(f"--statement: there is no accepted comment {number}", hint=hint))
    known = [v for v in conversation.voters if _opinions(v, number) >= LEAST_VOTES]
    per = len(known) // len(CONDITIONS)
    if not per:
        raise InputError(
            f"--from-polis: {len(known)} people agreed or disagreed with {LEAST_VOTES} other "
            f"comments; a pilot needs {len(CONDITIONS)}"
        )
    shown = _most_voted(conversation, number)
    personas = [(_id(v), _described(v, shown, conversation), v.group) for v in known]
    votes = [(_id(v), NAMES[v.votes[number]], v.group) for v in known if number in v.votes]
    return {
        STUDY_FILE: _study(conversation, number, per),
        PERSONAS: csv_text([("id", "persona", "polis_group"), *personas]),
        PEOPLE: csv_text([("participant", "first", "polis_group"), *votes]),
    }


def _opinions(voter: Voter, number: str) -> int:
    """How many other comments a voter agreed or disagreed with."""
    return sum(vote != PASS for comment, vote in voter.votes.items() if comment != number)


def _id(voter: Voter) -> str:
    return f"polis_{voter.id}"


def _most_voted(conversation: PolisConversation, number: str) -> list[str]:
    """The other comments, those on which most voted first."""
    counts = {c: sum(c in v.votes for v in conversation.voters) for c in conversation.comments}
    return sorted((c for c in counts if c != number), key=lambda c: -counts[c])


def _described(voter: Voter, shown: Sequence[str], conversation: PolisConversation) -> str:
    """ "a person who … agreed that “…”"; completes "You are …"."""
    parts = []
    for vote, verb in ((AGREE, "agreed with"), (DISAGREE, "disagreed with")):
        own = [conversation.comments[c] for c in shown if voter.votes.get(c) == vote]
        if own:
            quoted = " ".join(f"“{text}”" for text in own[:MOST_QUOTED])
            parts.append(f"You {verb}: {quoted}")
    about = f" about {conversation.topic}" if conversation.topic else ""
    return " ".join([f"a person who took part in a public conversation{about}.", *parts])


def _study(conversation: PolisConversation, number: str, per: int) -> str:
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
            "options": [NAMES[v] for v in (AGREE, DISAGREE, PASS)],
        },
        "participants_per_condition": per,
        "revote": True,
        "personas": {"source": "table", "file": PERSONAS},
        "model": "synthetic",
        "random_seed": 42,
    }
    counts = ", ".join(f"{conversation.count(number, v)} {n.lower()}" for v, n in NAMES.items())
    head = (
        f"# Comment {number} of a Polis conversation, voted on by personas made of its voters.\n"
        f"# {PERSONAS} describes each by their other votes; {PEOPLE} holds what they voted on it "
        f"({counts}):\n"
        f"#   folkmoot run {STUDY_FILE}\n"
        f"#   folkmoot compare RUN --people {PEOPLE}\n"
    )
    return head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)
