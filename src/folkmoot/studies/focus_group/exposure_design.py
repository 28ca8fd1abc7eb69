"""What people have before them when they are asked in private, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.kit.exposure import OWN, Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.config import DiscussionConfig

MATERIAL, PRICE, STATEMENTS = "material", "price", "others' statements"
ALONE, ASKED = "alone", ("opinion", "intent")


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
    for row in run.table("interviews").iter_rows(named=True):
        alone = f"{row['group']}/{row['stimulus']}/{ALONE}/{row['persona_id']}"
        by = row["persona_id"] if row["role"] == "participant" else ""
        yield Text("interviewer's words", f"{alone}/{row['turn']}", row["text"], alone, by)
    for row in run.table("statements").filter(when="before").iter_rows(named=True):
        who = row["persona_id"]
        own = f"{row['group']}/{row['stimulus']}/{who}"
        yield Text("first opinion", own, row["words"], scope=own, by=who)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """The private questions, of which the first about intent is at the product's own price."""
    config = DiscussionConfig.model_validate(run.config)
    on = {concept.id: config.on(concept) for concept in config.concepts}
    spoke: dict[str, set[str]] = {}
    for row in run.table("utterances").filter(role="participant").iter_rows(named=True):
        spoke.setdefault(f"{row['group']}/{row['stimulus']}", set()).add(row["speaker_id"])
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        _, group, concept, when, who, *rest = row["address"].split("/")
        if when not in ("before", "after", ALONE) or len(rest) != 2 or rest[0] not in ASKED:
            continue
        what, ask = rest
        table = f"{group}/{concept}"
        spoken = spoke.get(table, set()) if when == "after" else set()
        shows = {MATERIAL: bool(on[concept].stimulus_material), STATEMENTS: bool(spoken - {who})}
        if on[concept].price and (what, ask) == ("intent", "ask0"):
            shows[PRICE] = True
        if who in spoken:
            shows[OWN] = True
        talk = f"{table}/{ALONE}/{who}" if when == ALONE else table
        scopes = frozenset((concept, f"{table}/{who}", talk))
        yield Decision(row["address"], who, concept, f"{what} {when}", scopes, shows)


EXPOSURE = Exposure(texts, decisions)
