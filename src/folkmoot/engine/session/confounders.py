"""Attributes that a study states for all participants (`controls.confounders` of a study file)."""

# If a persona leaves attributes open, a treatment can change which person the model imagines ("The
# Illusion of Intervention", arXiv 2605.20767). The paper's mitigation is to state these attributes.
# This module adds them to the participant's description in the system prompt, so no study type
# needs code for confounders.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from folkmoot.conversation.prompts import replace_in_prompt
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.settings.controls import (
    CONFOUNDER,
    ControlQuestion,
    ControlSettings,
    Language,
)
from folkmoot.provenance import (
    Replacement,
    SourcedText,
    concatenate_texts,
    join_texts,
    quote_value,
    spans_of,
)
from folkmoot.randomness import generator

_INTRODUCTIONS = {
    "en": "It is also known about you: ",
    "de": "Über Sie ist auch bekannt: ",
}


def with_confounders(speaker: Speaker, settings: ControlSettings | None, seed: int) -> Speaker:
    """Return the speaker with a persona that also states the confounders of the study.

    Speakers without a persona are returned unchanged.
    """
    # The attributes depend only on the seed and the participant's id, so all prompts of a
    # participant state the same facts. A moderator or a coder has no persona.
    if settings is None or not settings.stated or not _description_ends(speaker, speaker.system):
        return speaker
    stated, language = settings.stated, settings.language

    def find_insertions(system: SourcedText) -> list[Replacement]:
        ends = sorted(_description_ends(speaker, system).items(), key=lambda item: item[1])
        return [Replacement(end, end, _statements(stated, id, seed, language)) for id, end in ends]

    return replace(speaker, system=replace_in_prompt(speaker.system, find_insertions))


def _description_ends(speaker: Speaker, system: str) -> dict[str, int]:
    # The end of each participant's description in the system prompt. Only text that quotes this
    # speaker's own persona counts: a moderator's prompt may quote the personas of participants.
    ends: dict[str, int] = {}
    for span in spans_of(system):
        if span.source.kind == "persona":
            described = span.source.speaker
            ends[described] = max(span.end, ends.get(described, 0))
    if speaker.id in ends:
        return {speaker.id: ends[speaker.id]}
    # A speaker without an own persona answers for several participants, so all of them count.
    return ends if speaker.role == PARTICIPANT_ROLE else {}


def _statements(
    stated: Sequence[ControlQuestion], participant_id: str, seed: int, language: Language
) -> SourcedText:
    texts = [
        quote_value(
            _statement(attribute, participant_id, seed),
            "persona",
            f"{CONFOUNDER}{attribute.id}",
            participant_id,
        )
        for attribute in stated
    ]
    parts = ["\n\n", _INTRODUCTIONS[language], join_texts(" ", texts)]
    return concatenate_texts(parts, plain=None)


def _statement(attribute: ControlQuestion, speaker_id: str, seed: int) -> str:
    rng = generator(seed, ("confounders", attribute.id, speaker_id))
    if attribute.number is None:
        value = attribute.options[int(rng.integers(len(attribute.options)))]
    else:
        low, high = attribute.number
        # Real numbers of siblings, months and languages are mostly small, and the ranges leave room
        # for rare ones. So numbers are drawn from the lowest quarter of the range, and the square
        # moves them towards its low end.
        value = f"{round(low + (high - low) * rng.random() ** 2 / 4)}"
    return f"{attribute.text} {value}."
