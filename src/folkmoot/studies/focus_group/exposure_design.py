"""What people have before them when they are asked in private, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.kit.exposure import OWN, Decision, Exposure, Text
from folkmoot.kit.retest import RETEST
from folkmoot.people.sources.grounded.profile import first_name
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.config import DiscussionConfig

MATERIAL, PRICE, STATEMENTS = "material", "price", "others' statements"
ALONE, ASKED = "alone", ("opinion", f"opinion_{RETEST}", "intent")


def texts(run: RunFolder) -> Iterator[Text]:
    """The material and price of each concept, and all that was said about it, also in private;
    each remark has a scope of its own, because only the latest are heard."""
    config = DiscussionConfig.model_validate(run.config)
    for concept in config.concepts:
        on = config.on(concept)
        yield Text("", f"{concept.id}/concept", on.product_concept or "", scope=concept.id)
        yield Text(MATERIAL, concept.id, on.stimulus_material or "", scope=concept.id)
        yield Text(PRICE, concept.id, on.price or "", scope=concept.id)
    recruits = run.table("personas").select("group", "persona_id", "name")
    names = {(group, who): first_name(name) for group, who, name in recruits.iter_rows()}
    for row in run.table("utterances").iter_rows(named=True):
        turn, who = f"{row['group']}/{row['stimulus']}/{row['turn']}", row["speaker_id"]
        kind = STATEMENTS if row["role"] == "participant" else "moderator's words"
        name = names.get((row["group"], who), row["name"])
        yield Text(kind, turn, row["text"], scope=turn, by=who, name=name)
    for row in run.table("interviews").iter_rows(named=True):
        turn = f"{row['group']}/{row['stimulus']}/{ALONE}/{row['persona_id']}/{row['turn']}"
        by = row["persona_id"] if row["role"] == "participant" else ""
        yield Text("interviewer's words", turn, row["text"], turn, by)
    for row in run.table("statements").filter(when="before").iter_rows(named=True):
        who = row["persona_id"]
        own = f"{row['group']}/{row['stimulus']}/{who}"
        yield Text("first opinion", own, row["words"], scope=own, by=who)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """The private questions, of which the first about intent is at the product's own price."""
    config = DiscussionConfig.model_validate(run.config)
    on = {concept.id: config.on(concept) for concept in config.concepts}
    said: dict[str, list[tuple[int, str]]] = {}
    for row in run.table("utterances").iter_rows(named=True):
        spoken = (row["turn"], row["speaker_id"] if row["role"] == "participant" else "")
        said.setdefault(f"{row['group']}/{row['stimulus']}", []).append(spoken)
    for row in run.table("interviews").iter_rows(named=True):
        spoken = (row["turn"], row["persona_id"] if row["role"] == "participant" else "")
        talk = f"{row['group']}/{row['stimulus']}/{ALONE}/{row['persona_id']}"
        said.setdefault(talk, []).append(spoken)
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        _, group, concept, when, who, *rest = row["address"].split("/")
        if when not in ("before", "after", ALONE) or len(rest) != 2 or rest[0] not in ASKED:
            continue
        what, ask = rest
        table = f"{group}/{concept}"
        talk = {"after": table, ALONE: f"{table}/{ALONE}/{who}"}.get(when, "")
        heard = sorted(said.get(talk, ()))[-config.context_messages :]
        spoke = {speaker for _, speaker in heard}
        others = bool(spoke - {who, ""})
        shows = {MATERIAL: bool(on[concept].stimulus_material), STATEMENTS: others}
        if who in spoke:
            shows[OWN] = True
        if on[concept].price and (what, ask) == ("intent", "ask0"):
            shows[PRICE] = True
        scopes = frozenset((concept, f"{table}/{who}", *(f"{talk}/{turn}" for turn, _ in heard)))
        kind = f"{what.replace('_', ' ')} {when}"
        yield Decision(row["address"], who, concept, kind, scopes, shows)


EXPOSURE = Exposure(texts, decisions)
