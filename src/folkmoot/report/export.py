"""`folkmoot export`: a run as CSV, Parquet or JSON with a codebook, or as a Polis export.

A Polis export is three files as pol.is writes them: comments.csv, participants-votes.csv (1 agree,
-1 disagree, 0 pass, empty unseen) and summary.csv. What a comment is depends on the study: an
option in cross-pollination, a ballot item in a town hall. Polis numbers participants and knows one
vote of each, so participants.csv beside them says who has which number and chose what at first.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, RunExists
from folkmoot.files import storage_errors, write_with
from folkmoot.records.files import write_json, write_text
from folkmoot.records.manifest import SYNTHETIC_MARK
from folkmoot.records.run_folder import CODEBOOK, TABLES, RunFolder

README = "README.txt"
FORMATS = ("csv", "parquet", "json", "polis")


def export(run: RunFolder, to: str, out: Path) -> None:
    """Write a run's data into the folder `out`. Raises RunExists when it holds something."""
    if to not in FORMATS:
        raise InputError(f"--to {to}: formats are {', '.join(FORMATS)}")
    if not run.tables():
        raise InputError(f"{run.path}: no tables yet; finish the run with --resume")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExists(f"{out} already exists and is not empty; choose another folder with --out")
    if to == "polis":
        write_polis(run, out)
        write_text(out / README, readme(run, to))
        return
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in run.tables():
            if to == "json":
                write_json(out / f"{name}.json", run.table(name).to_dicts())
            else:
                shutil.copyfile(run.path / TABLES / f"{name}.{to}", out / f"{name}.{to}")
    write_json(out / CODEBOOK, run.codebook())
    write_text(out / README, readme(run, to))


def readme(run: RunFolder, to: str) -> str:
    """What the files are and where they come from; who answered is stated first."""
    facts = run.manifest
    mark = f"{SYNTHETIC_MARK}. {run.synthetic_note} These are not findings about people.\n\n"
    partial = f"{run.partial}.\n\n" if run.partial else ""
    meaning = (
        "Comments and votes in the format of a Polis export."
        if to == "polis"
        else f"Tidy tables; {CODEBOOK} says what each column means."
    )
    served = sorted({name for m in facts.get("models", []) for name in m.get("served", [])})
    return (
        f"{mark if run.synthetic else ''}{partial}{meaning}\n"
        f"Run {run.id} of the study type {run.study}, "
        f"{facts.get('started_at', '?')} to {facts.get('finished_at', '?')}; answers by "
        f"{', '.join(served) or 'unknown'}; Folkmoot "
        f"{facts.get('software', {}).get('folkmoot', '?')}.\n"
    )


AGREE, DISAGREE = 1, -1
_VOTES = {"yes": AGREE, "no": DISAGREE}


@dataclass
class Conversation:
    """Comments and votes: participant → comment → vote; participant → group, and → first choice."""

    topic: str
    comments: list[str] = field(default_factory=list)
    votes: dict[str, dict[int, int]] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)


def write_polis(run: RunFolder, out: Path) -> None:
    """Write the three files. Raises InputError for a run without votes on comments."""
    conversation = _of_options(run) or _of_items(run)
    if conversation is None:
        raise InputError(f"{run.path}: this study has no votes that fit the Polis format")
    out.mkdir(parents=True, exist_ok=True)
    write_with(out / "comments.csv", _comments(conversation, run).write_csv)
    write_with(out / "participants-votes.csv", _votes(conversation).write_csv)
    write_with(out / "participants.csv", _participants(conversation).write_csv)
    write_with(out / "summary.csv", _summary(conversation, run).write_csv)


def _of_options(run: RunFolder) -> Conversation | None:
    """Cross-pollination: each option is a comment; a vote for it agrees, and passes the others."""
    if not run.has_table("participants") or "initial_choice" not in run.table("participants"):
        return None
    people = run.table("participants").filter(pl.col("initial_choice").is_not_null())
    topic = run.config.get("topic") or {}
    options = list(topic.get("options") or people["initial_choice"].unique(maintain_order=True))
    found = Conversation(str(topic.get("description", run.id)).strip())
    found.comments = [str(option) for option in options]
    for row in people.iter_rows(named=True):
        who = str(row["participant_id"])
        choice = row.get("final_choice") or row["initial_choice"]
        found.votes[who] = {i: AGREE if o == choice else 0 for i, o in enumerate(options)}
        found.groups[who] = str(row.get("condition") or "")
        found.first[who] = str(row["initial_choice"])
    return found


def _of_items(run: RunFolder) -> Conversation | None:
    """Town hall: each ballot item of each discussion is a comment, yes agrees and no disagrees.

    A vote that could not be read stays unseen: it is not a pass.
    """
    if not (run.has_table("votes") and run.has_table("items")):
        return None
    votes, items = run.table("votes"), run.table("items")
    wanted = {"discussion_id", "item_id"}
    if not (wanted | {"agent_id", "vote"} <= {*votes.columns} and wanted <= {*items.columns}):
        return None
    topic = run.config.get("topic") or {}
    found = Conversation(str(topic.get("title", run.id)))
    numbers: dict[tuple[str, str], int] = {}
    for row in items.iter_rows(named=True):
        numbers[row["discussion_id"], row["item_id"]] = len(numbers)
        found.comments.append(f"{row['discussion_id']}: {row['text']}")
    for row in votes.iter_rows(named=True):
        who = f"{row['discussion_id']}/{row['agent_id']}"
        cast = found.votes.setdefault(who, {})
        found.groups[who] = row["discussion_id"]
        if row["vote"] in _VOTES:
            cast[numbers[row["discussion_id"], row["item_id"]]] = _VOTES[row["vote"]]
    return found


def _comments(conversation: Conversation, run: RunFolder) -> pl.DataFrame:
    started = str(run.manifest.get("started_at", ""))
    cast = list(conversation.votes.values())
    return pl.DataFrame(
        [
            {
                "timestamp": 0,
                "datetime": started,
                "comment-id": number,
                "author-id": -1,
                "agrees": sum(v.get(number) == AGREE for v in cast),
                "disagrees": sum(v.get(number) == DISAGREE for v in cast),
                "moderated": 1,
                "comment-body": text,
            }
            for number, text in enumerate(conversation.comments)
        ]
    )


def _participants(conversation: Conversation) -> pl.DataFrame:
    """Who has which number, in which group, with which first choice (empty where not asked)."""
    return pl.DataFrame(
        [
            (number, who, conversation.groups[who], conversation.first.get(who))
            for number, who in enumerate(conversation.votes)
        ],
        schema=["participant", "participant_id", "group", "first_choice"],
        orient="row",
    )


def _votes(conversation: Conversation) -> pl.DataFrame:
    groups = {name: i for i, name in enumerate(dict.fromkeys(conversation.groups.values()))}
    rows = []
    for number, (who, votes) in enumerate(conversation.votes.items()):
        row: dict[str, int | None] = {
            "participant": number,
            "group-id": groups[conversation.groups[who]],
            "n-comments": 0,
            "n-votes": len(votes),
            "n-agree": sum(v == AGREE for v in votes.values()),
            "n-disagree": sum(v == DISAGREE for v in votes.values()),
        }
        row |= {str(i): votes.get(i) for i in range(len(conversation.comments))}
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _summary(conversation: Conversation, run: RunFolder) -> pl.DataFrame:
    cast = conversation.votes.values()
    facts = {
        "topic": conversation.topic,
        "url": "",
        "voters": str(len(conversation.votes)),
        "comments": str(len(conversation.comments)),
        "votes": str(sum(len(v) for v in cast)),
        "made-by": "Folkmoot" + (" SYNTHETIC: no evidence about people" if run.synthetic else ""),
    }
    return pl.DataFrame([{"key": k, "value": v} for k, v in facts.items()])
