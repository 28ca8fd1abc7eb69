"""Declare which texts the prompt of each private question should contain.

The exposure analysis compares the declaration with the prompts that were sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import polars as pl

from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
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
    """Return the label of a source in the prompt of a private question.

    Returns "" if the source has no label.
    """
    if source.kind != "utterance":
        return LABELS.get(source.id.partition("/")[0], "")
    if source.speaker != MODERATOR:
        return STATEMENTS
    return "interviewer's words" if texts.stage_of(source.id) == ALONE else "moderator's words"


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield one decision for each private question.

    A decision names the texts that the prompt of the question should contain.
    """
    # Of the questions on purchase intent, only the one at the product's own price counts.
    config = run.read_settings(DiscussionConfig)
    config_of = {concept.id: config.for_stimulus(concept) for concept in config.concepts}
    utterances = run.read_table("utterances")
    # No participant has spoken yet.
    if "turn" not in utterances.columns:
        return
    utterances = utterances.filter(pl.col("turn").is_not_null())
    # Maps each discussion or interview to its utterance ids and their speakers. The key is (group,
    # concept, participant), with None as participant for a discussion.
    speakers_by_talk: dict[tuple[str, str, str | None], dict[str, str]] = defaultdict(dict)
    columns = ("group", "stimulus", "persona_id", "utterance_id", "speaker_id")
    for group, concept, persona_id, utterance_id, speaker_id in utterances.select(
        columns
    ).iter_rows():
        speakers_by_talk[group, concept, persona_id][utterance_id] = speaker_id
    statements = run.read_table("statements").filter(when="before").select(*columns[:4])
    first_statement_ids = {
        (group, concept, persona_id): utterance_id
        for group, concept, persona_id, utterance_id in statements.iter_rows()
        if utterance_id
    }
    for address, persona_id in run.rows("answers", "address", "speaker_id"):
        parts = str(address).split("/")
        if len(parts) != ADDRESS_PARTS or parts[3] not in WHEN or parts[5] not in ASKED:
            continue
        _, group, concept, when, _, question, _ = parts
        talk_key = (group, concept, persona_id if when == ALONE else None)
        history = {} if when == "before" else speakers_by_talk[talk_key]
        # A participant is shown the last `context_messages` messages. Earlier ones must not be in
        # the prompt.
        history = dict([*history.items()][-config.context_messages :])
        own_ids = [
            utterance_id for utterance_id, speaker_id in history.items() if speaker_id == persona_id
        ]
        other_ids = [
            utterance_id
            for utterance_id, speaker_id in history.items()
            if speaker_id not in (persona_id, MODERATOR)
        ]
        concepts, material, price = (
            [cell_id(column, concept)] for column in (texts.CONCEPT, texts.MATERIAL, texts.PRICE)
        )
        shows = {
            CONCEPT: concepts,
            MATERIAL: material if config_of[concept].stimulus_material else (),
            STATEMENTS: other_ids,
        }
        if own_ids:
            shows[OWN_WORDS] = own_ids
        if config_of[concept].price and question == "intent":
            shows[PRICE] = price
        yield Decision(
            address,
            persona_id,
            concept,
            _name_decision(question, when),
            shows,
            {
                *concepts,
                *material,
                *price,
                *history,
                first_statement_ids.get((group, concept, persona_id), ""),
            },
            unit=group,
        )


def _questions(_run: RunFolder) -> QuestionOf:
    # The opinion or the intent.
    # The rest of the name says when it was asked.
    return lambda name, _address: name.split()[0]


def _name_decision(question: str, when: str) -> str:
    return f"{question.replace('_', ' ')} {when}"


EXPOSURE = ExposureTable(exposure_decisions, label_source)
# The treatment of a focus group is the discussion, so the last decision after it is the final one.
DECISION_DESIGN = DecisionDesign(
    kind_of_text=EXPOSURE.label,
    apart={_name_decision(question, ALONE): ALONE for question in ASKED},
    questions=_questions,
)
