"""Declare which texts the design shows when participants are asked in private."""

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
# Addresses have the form discussion/GROUP/CONCEPT/WHEN/PERSON/ASKED/ask0. A price of the ladder
# adds a part before `ask0`, so these addresses have another length.
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
    """Return the kind of a source for the participant who is asked.

    The participant's own words never arrive here, because the kit labels them `OWN_WORDS`.
    """
    if source.kind != "utterance":
        return LABELS.get(source.id.partition("/")[0], "")
    if source.speaker != MODERATOR:
        return STATEMENTS
    return "interviewer's words" if texts.stage_of(source.id) == ALONE else "moderator's words"


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield the private questions as decisions.

    Of the questions about intent only the one at the product's own price counts.
    """
    config = DiscussionConfig.model_validate(run.config)
    on = {concept.id: config.for_stimulus(concept) for concept in config.concepts}
    said = run.read_table("utterances")
    # No participant has spoken yet.
    if "turn" not in said.columns:
        return
    said = said.filter(pl.col("turn").is_not_null())
    # Maps each discussion or interview to its utterance ids and their speakers. The key is (group,
    # concept, participant), with None as participant for a discussion.
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
        # A participant is shown the last `context_messages` messages. Earlier ones must not be in
        # the prompt.
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
