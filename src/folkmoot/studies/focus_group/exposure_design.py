"""Which texts the design shows when people are asked in private."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import polars as pl

from folkmoot.kit.exposure import OWN_WORDS, Decision, ExposureTable
from folkmoot.kit.retest import RETEST
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import texts
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import MODERATOR

CONCEPT, MATERIAL, PRICE, STATEMENTS = "concept", "material", "price", "others' statements"
# discussion/GROUP/CONCEPT/WHEN/PERSON/ASKED/ask0; a price of the ladder comes before `ask0`.
ALONE, ADDRESS_PARTS = "alone", 7
WHEN, ASKED = ("before", "after", ALONE), ("opinion", f"opinion_{RETEST}", "intent")
LABELS = {
    texts.CONCEPT: CONCEPT,
    texts.MATERIAL: MATERIAL,
    texts.PRICE: PRICE,
    texts.SUMMARY: "moderator's notes",
    texts.UNANSWERED: "moderator's notes",
}


def label_source(source: Source) -> str:
    """Return what a text is to who is asked. Their own words are `OWN_WORDS` already."""
    if source.kind != "utterance":
        return LABELS.get(source.id.partition("/")[0], "")
    if source.speaker != MODERATOR:
        return STATEMENTS
    return "interviewer's words" if texts.stage_of(source.id) == ALONE else "moderator's words"


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """The private questions, of which the first about intent is at the product's own price."""
    config = DiscussionConfig.model_validate(run.config)
    on = {concept.id: config.for_stimulus(concept) for concept in config.concepts}
    said = run.read_table("utterances")
    if "turn" not in said.columns:  # nobody has spoken yet
        return
    said = said.filter(pl.col("turn").is_not_null())
    # Of each talk, and of each interview: who spoke, by id of the utterance.
    spoken: dict[tuple[str, str, str | None], dict[str, str]] = defaultdict(dict)
    columns = ("group", "stimulus", "persona_id", "utterance_id", "speaker_id")
    for group, concept, who, id, speaker in said.select(columns).iter_rows():
        spoken[group, concept, who][id] = speaker
    stated = run.read_table("statements").filter(when="before").select(*columns[:4])
    first = {(group, concept, who): id for group, concept, who, id in stated.iter_rows() if id}
    for address, who in run.rows("answers", "address", "speaker_id"):
        parts = str(address).split("/")
        if len(parts) != ADDRESS_PARTS or parts[3] not in WHEN or parts[5] not in ASKED:
            continue
        _, group, concept, when, _, what, _ = parts
        talk = (group, concept, who if when == ALONE else None)
        heard = {} if when == "before" else spoken[talk]
        heard = dict([*heard.items()][-config.context_messages :])
        own = [id for id, speaker in heard.items() if speaker == who]
        others = [id for id, speaker in heard.items() if speaker not in (who, MODERATOR)]
        concepts, material, price = (
            [cell_id(column, concept)] for column in (texts.CONCEPT, texts.MATERIAL, texts.PRICE)
        )
        shows = {
            CONCEPT: concepts,
            MATERIAL: material if on[concept].stimulus_material else (),
            STATEMENTS: others,
        }
        if own:
            shows[OWN_WORDS] = own
        if on[concept].price and what == "intent":
            shows[PRICE] = price
        yield Decision(
            address,
            who,
            concept,
            f"{what.replace('_', ' ')} {when}",
            shows,
            {*concepts, *material, *price, *heard, first.get((group, concept, who), "")},
            unit=group,
        )


EXPOSURE = ExposureTable(exposure_decisions, label_source)
