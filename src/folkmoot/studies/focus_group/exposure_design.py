"""What people have before them when they are asked in private, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.kit.exposure import OWN, Decision, Exposure, Text
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.focus_group.config import DiscussionConfig

MATERIAL, PRICE, STATEMENTS = "material", "price", "others' statements"


def texts(run: RunFolder) -> Iterator[Text]:
    """The material and price of each concept, and all that was said about it, also in private."""
    config = DiscussionConfig.model_validate(run.config)
    for concept in config.concepts:
        on = config.on(concept)
        yield Text("", f"{concept.id}/concept", on.product_concept or "", scope=concept.id)
        yield Text(MATERIAL, concept.id, on.stimulus_material or "", scope=concept.id)
        yield Text(PRICE, concept.id, on.price or "", scope=concept.id)
    for row in run.table("utterances").iter_rows(named=True):
        table, who = f"{row['group']}/{row['stimulus']}", row["speaker_id"]
        kind = STATEMENTS if row["role"] == "participant" else "moderator's words"
        yield Text(kind, f"{table}/{row['turn']}", row["text"], scope=table, by=who)
    for row in run.table("statements").filter(when="before").iter_rows(named=True):
        table, who = f"{row['group']}/{row['stimulus']}", row["persona_id"]
        yield Text("others' first opinions", f"{table}/{who}", row["words"], scope=table, by=who)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """The private questions before and after the talk, of which the first asks at the own price."""
    config = DiscussionConfig.model_validate(run.config)
    on = {concept.id: config.on(concept) for concept in config.concepts}
    spoke: dict[str, set[str]] = {}
    for row in run.table("utterances").filter(role="participant").iter_rows(named=True):
        spoke.setdefault(f"{row['group']}/{row['stimulus']}", set()).add(row["speaker_id"])
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        _, group, concept, when, *rest = row["address"].split("/")
        if when not in ("before", "after") or len(rest) != 3:
            continue
        who, what, ask = rest
        others = spoke.get(f"{group}/{concept}", set()) - {who}
        shows = {
            MATERIAL: bool(on[concept].stimulus_material),
            STATEMENTS: when == "after" and bool(others),
            "others' first opinions": False,
        }
        if on[concept].price and (what, ask) == ("intent", "ask0"):
            shows[PRICE] = True
        if when == "after" and who in spoke.get(f"{group}/{concept}", set()):
            shows[OWN] = True
        scopes = frozenset((concept, f"{group}/{concept}"))
        yield Decision(row["address"], who, concept, f"{what} {when}", scopes, shows)


EXPOSURE = Exposure(texts, decisions)
