"""What residents have before them when they decide, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from folkmoot.kit.exposure import OWN, Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import TownHallConfig

STATEMENTS, MODERATOR = "others' statements", "moderator's words"
PROPOSALS, LIFE_STORY = "proposals", "life story"
THIS_ROUND = "statements of this round"  # where the reply of a shared session took several calls


def texts(run: RunFolder) -> Iterator[Text]:
    """Who the residents are, what was said aloud, and the ballot."""
    topic = run.config["topic"]
    yield Text("", "topic", f"{topic['title']}\n{topic['background']}")
    for row in run.table("portraits").iter_rows(named=True):
        who = f"{row['discussion_id']}/{row['agent_id']}"
        yield Text(LIFE_STORY, who, row["portrait"], scope=who)
    for row in run.table("utterances").iter_rows(named=True):
        round_, who = f"{row['discussion_id']}/round{row['round']}", row["speaker_id"]
        kind = STATEMENTS if row["speaker_role"] == "resident" else MODERATOR
        yield Text(kind, f"{round_}/{who}", row["text"], scope=round_, by=who, name=who)
        yield Text(THIS_ROUND, f"{round_}/{who}", row["text"], scope=f"{round_}/{THIS_ROUND}")
    for row in run.table("items").iter_rows(named=True):
        hall = row["discussion_id"]
        yield Text(PROPOSALS, f"{hall}/{row['item_id']}", row["text"], scope=hall)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """Statements, reflections, votes and satisfaction, of each resident whom a question is put to:
    that of a shared session is put to all."""
    config = TownHallConfig.model_validate(run.config)
    levels: dict[str, str] = {}
    residents: dict[str, list[str]] = {}
    for row in run.table("portraits").iter_rows(named=True):
        levels[row["discussion_id"]] = row["level"]
        residents.setdefault(row["discussion_id"], []).append(row["agent_id"])
    said: dict[str, list[tuple[int, str, str]]] = {}
    for row in run.table("utterances").filter(pl.col("text") != "").iter_rows(named=True):
        spoken = (row["round"], row["speaker_id"], row["speaker_role"])
        said.setdefault(row["discussion_id"], []).append(spoken)
    has_items = set(run.table("items")["discussion_id"])
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        hall, part, *_, ask = row["address"].split("/")
        if hall not in levels:
            continue
        now = int(part.removeprefix("round")) if part.startswith("round") else config.rounds + 1
        if looks_back := "/reflect/" in row["address"]:
            now += 1  # the round that has just ended is one of those before
        first = now if part == "before" else (1 if config.history == "all" else now - 1)
        known = [(who, role) for n, who, role in said.get(hall, ()) if first <= n < now]
        rounds = [f"{hall}/round{n}" for n in range(first, now)]
        name = {"before": "satisfaction before", "after": "satisfaction after", "vote": "vote"}.get(
            part, "first statement" if now == 1 else "later statement"
        )
        if looks_back:
            name = "reflection"
        asked = [row["speaker_id"]]
        if row["speaker_id"] == "session":
            asked = residents[hall]
            if (
                ask != "ask0" and not looks_back
            ):  # of a round that took several: it holds what was said before
                rounds.append(f"{hall}/round{now}/{THIS_ROUND}")
        scopes = frozenset((hall, *rounds, *(f"{hall}/{who}" for who in asked)))
        for who in asked:
            shows = {
                LIFE_STORY: True,
                STATEMENTS: any(w != who and role == "resident" for w, role in known),
                OWN: (who, "resident") in known,
                MODERATOR: any(role == "moderator" for _, role in known),
                PROPOSALS: part in ("vote", "after") and hall in has_items,
            }
            yield Decision(row["address"], who, levels[hall], name, scopes, shows)


EXPOSURE = Exposure(texts, decisions)
