"""What members and mediator have before them when they decide, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from folkmoot.kit.exposure import OWN, Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS, table

PREFERENCES, STRATEGY, DIALOGUE = "preferences", "strategy", "dialogue"
# By the scope below the topic; without one it is the mediator's proposal.
NAMES = {
    "ballots": "ballot",
    "feedback": "feedback",
    "confirm": "confirmation",
    "own_scores": "own scores",
}


def texts(run: RunFolder) -> Iterator[Text]:
    """Stated preferences, what was said after them, and the rules of each type's strategies."""
    for row in _stated(run).iter_rows(named=True):
        group, topic, who = row["group_id"], row["topic"], row["member_id"]
        scope = f"{group}/{topic}"
        name = row["member_name"]
        yield Text(PREFERENCES, f"{scope}/{who}", row["text"], scope=scope, by=who, name=name)
    for row in run.table("utterances").iter_rows(named=True):
        if row["phase"] != "preference":
            scope = f"{row['group_id']}-{row['condition']}/{row['topic']}"
            turn = f"{scope}/{row['turn']}"
            yield Text(DIALOGUE, turn, row["text"], scope=scope, name=row["speaker"])
    for row in run.table("members").iter_rows(named=True):
        scope = row["group_id"]
        yield Text("", f"{scope}/{row['member_id']}", row["persona"] or "", scope=scope)
    rules: dict[str, list[str]] = {}
    for (group_type, _), strategy in table().items():
        rules.setdefault(group_type, []).append(strategy.rule)
    for group_type, lines in rules.items():
        yield Text(STRATEGY, group_type, "\n".join(lines), scope=group_type)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """Stating a preference, and the mediator's proposals, ballots and feedback."""
    types = dict(run.table("groups").select("group_id", "group_type").iter_rows())
    stated = set(_stated(run).select("group_id", "topic", "member_id").iter_rows())
    heard = {(group, topic) for group, topic, _ in stated}
    for row in run.table("answers").iter_rows(named=True):
        stage, where, *rest = row["address"].split("/")
        if stage == "preferences":
            group, condition, topic, name = where, "all", rest[1], "preference"
        elif stage == "own_scores":
            group, condition, topic, name = where, "all", rest[1], "own scores"
        elif stage == "negotiation" and where.rpartition("-")[0] in types:
            group, _, condition = where.rpartition("-")
            topic, name = rest[0], NAMES.get(rest[1], "proposal")
        else:
            continue
        who = row["speaker_id"]
        shows: Mapping[str, bool] = {
            "preference": {PREFERENCES: False, STRATEGY: False},
            "proposal": {
                PREFERENCES: (group, topic) in heard,
                STRATEGY: condition in CONDITIONS and CONDITIONS[condition].locked,
            },
            "feedback": {PREFERENCES: (group, topic) in heard},
            "ballot": {OWN: (group, topic, who) in stated},
            "own scores": {OWN: (group, topic, who) in stated},
            "confirmation": {DIALOGUE: True},
        }[name]
        talk = f"{group}-{condition}/{topic}"
        scopes = frozenset((group, f"{group}/{topic}", types[group], talk))
        yield Decision(row["address"], who, condition, name, scopes, shows)


def _stated(run: RunFolder) -> pl.DataFrame:
    return run.table("preferences").filter(pl.col("text").is_not_null())


EXPOSURE = Exposure(texts, decisions)
