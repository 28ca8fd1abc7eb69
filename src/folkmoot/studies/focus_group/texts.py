"""Texts in the prompts of one group and one concept, as strings with a source.

The source of a text is the table cell, study key or utterance that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from folkmoot.provenance import alter_text, cell_id, quote_all, quote_value, with_sources
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import INTENTS, InterviewTime

# Tables and columns in the ids of sources. The embedded respondent recognises its texts by these
# ids, and `exposure_design` labels texts by them.
CONCEPT, CATEGORY = "concepts.product_concept", "concepts.category"
MATERIAL, PRICE = "concepts.stimulus_material", "concepts.price"
LADDER, GUIDE = "study.prices", "study.guide"
PHASE, NUMBER = "protocol.phase", "study.questions_per_phase"
PERSONA, NAME = "descriptions.text", "personas.first_name"
FIRST_LEANING = "statements.leaning"
POSITION, LEANING = "opinions.valence", "opinions.leaning"
SUMMARY, UNANSWERED = "notes.summary", "notes.unanswered"


# Stages of a discussion in utterance ids. The other stages are the phases, `after` and `alone`.
PLANNING, FIRST_OPINION = "guide", "before"


def stage_of(id: str) -> str:
    """Return the name of the stage in which an utterance was recorded.

    Returns "" if the id names no stage.
    """
    # It is the fourth part of the id.
    return [*id.split("/"), "", "", ""][3]


class Where(TypedDict):
    """The columns that identify a discussion in all tables."""

    group: str
    stimulus: str


@dataclass(frozen=True, slots=True)
class DiscussionTexts:
    """Builds the strings that prompts of one group and one concept contain.

    Each string carries a source: the table cell, study key or utterance that it comes from.
    """

    # The settings for this concept (`DiscussionConfig.for_stimulus`).
    config: DiscussionConfig
    group: str = ""
    stimulus: str = ""

    @property
    def where(self) -> Where:
        return {"group": self.group, "stimulus": self.stimulus}

    @property
    def concept(self) -> str | None:
        return self._quote_key(CONCEPT, self.config.product_concept)

    @property
    def category(self) -> str:
        return self._quote_key(CATEGORY, self.config.category) or ""

    @property
    def material(self) -> str | None:
        return self._quote_key(MATERIAL, self.config.stimulus_material)

    @property
    def price(self) -> str | None:
        return self._quote_key(PRICE, self.config.price)

    @property
    def ladder(self) -> list[str]:
        return [quote_value(price, "material", LADDER) for price in self.config.ladder_prices]

    def _quote_key(self, column: str, text: str | None) -> str | None:
        return quote_value(text, "material", cell_id(column, self.stimulus))

    @property
    def max_words(self) -> int:
        return quote_value(
            self.config.max_words_per_response, "value", "study.max_words_per_response"
        )

    @property
    def questions_per_phase(self) -> int:
        return quote_value(self.config.questions_per_phase, "value", NUMBER)

    def researcher_questions(self, phase: DiscussionPhase) -> list[str]:
        """Return the researcher's own questions of a phase."""
        return self._quote_guide(phase, "questions")

    def researcher_probes(self, phase: DiscussionPhase) -> list[str]:
        """Return the researcher's own follow-up questions of a phase."""
        return self._quote_guide(phase, "probes")

    def _quote_guide(self, phase: DiscussionPhase, part: str) -> list[str]:
        guide_part = self.config.guide.get(phase)
        texts = getattr(guide_part, part) if guide_part else ()
        return [quote_value(text, "material", f"{GUIDE}.{phase.value}.{part}") for text in texts]

    def name(self, persona_id: str, first_name: str) -> str:
        """Return `first_name` as a string with a source."""
        # Prompts to other participants show this name.
        return quote_value(first_name, "value", cell_id(NAME, self.group, persona_id))

    def quote_names(self, by_id: Mapping[str, str], persona_ids: Iterable[str]) -> list[str]:
        return [self.name(persona_id, by_id[persona_id]) for persona_id in persona_ids]

    def description(self, persona_id: str, parts: Mapping[str, str]) -> dict[str, str]:
        """Return the parts of a persona's description as strings with a source."""
        return {
            part: quote_value(
                text, "persona", self._cell_id(PERSONA, persona_id, number), persona_id
            )
            for number, (part, text) in enumerate(parts.items(), 1)
        }

    def first_leaning(self, persona_id: str, leaning: str) -> str:
        """Return `leaning` as a string with a source.

        `leaning`: a participant's first position in words.
        """
        return quote_value(
            leaning, "value", self._cell_id(FIRST_LEANING, persona_id, InterviewTime.BEFORE.value)
        )

    def quote_position(self, persona_id: str, turn: int, position: float) -> str:
        """Return a position as a signed number, for a prompt to the coder."""
        # Turn 0 is before the discussion.
        quoted = quote_value(position, "value", self._cell_id(POSITION, persona_id, turn))
        return alter_text(with_sources(quoted), f"{position:+.2f}")

    def quote_leaning(self, persona_id: str, turn: int, leaning: str) -> str:
        """Return `leaning` as a string with a source.

        `leaning`: the position after turn `turn`, in words.
        """
        # Turn 0 is before the discussion.
        return quote_value(leaning, "value", self._cell_id(LEANING, persona_id, turn))

    def quote_summary(self, question: int, text: str, moderator: str) -> str:
        """Return the moderator's summary as a string with a source."""
        # `moderator` is the id of the moderator.
        return quote_value(text, "summary", self._cell_id(SUMMARY, question), moderator)

    def unanswered(self, question: int, texts: Iterable[str], moderator: str) -> list[str]:
        source_id = self._cell_id(UNANSWERED, question)
        return [quote_value(text, "summary", source_id, moderator) for text in texts]

    def _cell_id(self, column: str, *key: object) -> str:
        return cell_id(column, self.group, self.stimulus, *key)


def quote_phase(phase: DiscussionPhase) -> str:
    """Return the name of a phase as a string with a source."""
    return quote_value(phase.value, "value", PHASE)


def quote_intents() -> list[str]:
    """Return the options of the question about buying the product."""
    # All studies share them.
    options: list[str] = quote_all(INTENTS, "option", "protocol.purchase_intent")
    return options
