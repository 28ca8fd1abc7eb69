"""The settings in a focus group's study file, and the comparisons that the study declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
)

from folkmoot.engine.settings.config import PositiveInt
from folkmoot.field_notes import field_notes
from folkmoot.kit.coding import CodingStudyConfig
from folkmoot.measures.inference.claims import MOST_PRIMARY, Claim, Family
from folkmoot.models.images import find_image_references


class DiscussionPhase(StrEnum):
    """The phases of a discussion, in the usual order."""

    WARMUP = "warmup"
    EXPLORATION = "exploration"
    DEEP_DIVE = "deep_dive"
    REACTION = "reaction"
    SYNTHESIS = "synthesis"

    @property
    def heading(self) -> str:
        """Return the phase as a heading, such as `Warm-Up` or `Deep Dive`."""
        return "Warm-Up" if self is DiscussionPhase.WARMUP else self.value.replace("_", " ").title()


_AMOUNT = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def parse_amount(price: str) -> float:
    """Return the number in a price, such as 1299 for "$1,299 a year".

    Raises ValueError if the price does not contain exactly one number.
    """
    (amount,) = _AMOUNT.findall(price)
    return float(amount.replace(",", ""))


def _with_amount(price: str) -> str:
    if len(_AMOUNT.findall(price)) != 1:
        raise ValueError('a price must contain exactly one number, as in "299 dollars"')
    return price


# YAML reads `price: 299` as a number, so numbers are accepted and turned into text.
Price = Annotated[
    str,
    BeforeValidator(
        lambda value: str(value) if isinstance(value, (int, float)) else value,
        json_schema_input_type=str | float,
    ),
    AfterValidator(_with_amount),
]


class GuidePart(BaseModel):
    """The questions and probes that the researcher wrote for one phase."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: list[str] = Field(
        default_factory=list,
        description="questions, asked in these words and in this order",
        examples=[["When did you last cook a ready meal?"]],
    )
    probes: list[str] = Field(
        default_factory=list,
        description="follow-up questions to an answer",
        examples=[["What made you say that?"]],
    )


def _as_questions(value: object) -> object:
    return {"questions": value} if isinstance(value, list) else value


class Stimulus(BaseModel):
    """One concept of a concept test. For a missing key, the study's own value is used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        "",
        description="short name for files and tables; default: from the concept",
        examples=["reader"],
    )
    product_concept: str = Field(
        min_length=1,
        description="the concept to discuss",
        examples=["An oven that reads barcodes"],
    )
    stimulus_material: str | None = Field(
        None,
        description="ad copy or product description; default: that of the study",
        json_schema_extra=field_notes(label="Material to show"),
    )
    price: Price | None = Field(None, description="price; default: that of the study")
    category: str | None = Field(None, description="product category; default: that of the study")

    @property
    def id(self) -> str:
        """The name of the concept in paths and tables: lower case, digits and `_` only."""
        words = re.findall(r"[a-z0-9]+", (self.name or self.product_concept).lower())
        return "_".join(words[:5])[:48] or "concept"


class DiscussionConfig(CodingStudyConfig):
    """The settings of a focus group on one or several concepts.

    The same recruits discuss all concepts.
    """

    TEMPLATE_VALUES: ClassVar[Mapping[str, object]] = {
        "hypotheses": [
            {
                "measure": "statements.position",
                "contrast": ["reader", "box"],
                "direction": "different",
                "smallest": 0.1,
                "expected": 0.2,
            }
        ]
    }

    product_concept: str | None = Field(
        None,
        min_length=1,
        description="the product or concept to discuss, unless there are `stimuli`",
        examples=[
            "A countertop oven that scans the barcode of a ready meal and cooks it by itself"
        ],
        json_schema_extra=field_notes(essential=True),
    )
    category: str = Field(
        min_length=1, description="product category", examples=["kitchen appliances"]
    )
    stimulus_material: str | None = Field(
        None,
        description="ad copy or product description, or the address of an image, read in private "
        "before the discussion and shown again from the reaction phase on",
        examples=[
            "Meet the oven that reads. Hold the package to the window, close the door, and dinner "
            "is ready\nin twelve minutes, crisp on the outside, hot in the middle.\n"
        ],
        json_schema_extra=field_notes(essential=True, label="Material to show"),
    )
    price: Price | None = Field(
        None,
        description="price of the product, as participants read it",
        examples=["299 dollars"],
        json_schema_extra=field_notes(essential=True),
    )
    prices: tuple[Price, ...] = Field(
        (),
        description="a price ladder: intent is asked at each of these prices",
        examples=[["199 dollars", "249 dollars"]],
        json_schema_extra=field_notes(label="Price ladder"),
    )
    first_opinion: Literal["asked", "seeded"] = Field(
        "asked",
        description="`asked`: each participant reads the concept in private and states an "
        "opinion; `seeded`: first opinions follow from the participant's traits",
        json_schema_extra=field_notes(label="Origin of first opinions"),
    )
    # A discussion needs two.
    num_personas: int = Field(
        8,
        ge=2,
        description="participants in a group",
        json_schema_extra=field_notes(essential=True, label="Participants in a group"),
    )
    phases: tuple[DiscussionPhase, ...] = Field(
        tuple(DiscussionPhase), min_length=1, description="phases, in order"
    )
    questions_per_phase: int = Field(
        2,
        ge=1,
        le=100,
        description="questions that the moderator asks in each phase",
        json_schema_extra=field_notes(essential=True),
    )
    max_responses_per_question: PositiveInt = Field(
        5,
        description="maximum number of answers to one question",
        json_schema_extra=field_notes(label="Most answers to a question"),
    )
    temperature: float | None = Field(
        0.9,
        ge=0,
        le=5,
        allow_inf_nan=False,
        description="sampling temperature of all calls except those of the coder, which is 0",
        json_schema_extra=field_notes(label="Temperature of the model"),
    )
    guide: dict[
        DiscussionPhase,
        Annotated[
            GuidePart, BeforeValidator(_as_questions, json_schema_input_type=GuidePart | list[str])
        ],
    ] = Field(
        default_factory=dict,
        description="your own questions and probes by phase; the moderator plans the other phases",
        examples=[{"deep_dive": {}}],
        json_schema_extra=field_notes(label="Your own questions"),
    )
    control: Literal["alone", "order"] | None = Field(
        None,
        description="control for giving in to the group: `alone` also interviews each participant "
        "without the others, `order` draws every speaking order at random",
        json_schema_extra=field_notes(label="Control for giving in"),
    )
    replications: int = Field(
        1,
        ge=1,
        le=10_000,
        description="independent groups, each with its own recruits; intervals need 5 or more",
        json_schema_extra=field_notes(essential=True, label="Number of groups"),
    )
    stimuli: tuple[Stimulus, ...] = Field(
        (),
        description="two or more concepts that the same recruits discuss one by one",
        examples=[
            [
                {"name": "reader", "product_concept": "An oven that reads barcodes"},
                {"name": "box", "product_concept": "A box that keeps meals warm"},
            ]
        ],
        json_schema_extra=field_notes(label="Concepts to compare"),
    )
    quotas: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="shares or numbers of participants by `age` (bands), `sex`, `education`, "
        "`income`, "
        "`location_type`, `political_leaning`, `vals` or `adoption`",
        examples=[{"sex": {"F": 1, "M": 1}}],
        json_schema_extra=field_notes(label="Quotas of participants"),
    )
    personas: str = Field(
        "grounded",
        min_length=1,
        description="`grounded`, or a file of real profiles",
        json_schema_extra=field_notes(label="Source of participants"),
    )
    panel: str | None = Field(
        None,
        min_length=1,
        description="file of people with weights, from which grounded personas are drawn",
        json_schema_extra=field_notes(label="File of a panel"),
    )
    appeal: float = Field(
        0.0,
        ge=-1,
        le=1,
        allow_inf_nan=False,
        description="shift of all first opinions with `first_opinion: seeded`",
        json_schema_extra=field_notes(
            unit="points of the position, −1 to 1", label="Shift of first opinions"
        ),
    )
    sentiment: Literal["lexicon", "model"] = Field(
        "lexicon",
        description="what rates how positive a message is: `lexicon` (the English word list of "
        "VADER; other languages have no rating) or `model`",
        json_schema_extra=field_notes(label="Rating of sentiment"),
    )
    context_messages: PositiveInt = Field(
        24,
        description="number of the latest messages that a speaker sees",
        json_schema_extra=field_notes(label="Messages that a speaker sees"),
    )
    max_words_per_response: PositiveInt = Field(
        90,
        description="longest answer that the prompt asks for",
        json_schema_extra=field_notes(unit="words", label="Most words of an answer"),
    )

    @field_validator("product_concept", "category", mode="after")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must not be blank")
        return value

    @field_validator("quotas", mode="before")
    @classmethod
    def _keys_as_text(cls, value: object) -> object:
        # YAML reads the key of `35: 2` as a number, but a category of a quota is always text.
        if not isinstance(value, Mapping):
            return value
        return {
            attribute: {str(level): share for level, share in shares.items()}
            if isinstance(shares, Mapping)
            else shares
            for attribute, shares in value.items()
        }

    def questions_in(self, phase: DiscussionPhase) -> int:
        """Return the number of questions of a phase."""
        # The researcher's guide gives the questions. If the guide has no questions for the phase,
        # the number is the setting `questions_per_phase`.
        guide_part = self.guide.get(phase)
        return (
            len(guide_part.questions)
            if guide_part and guide_part.questions
            else self.questions_per_phase
        )

    @property
    def all_questions(self) -> int:
        """The number of questions of a discussion."""
        return sum(self.questions_in(phase) for phase in self.phases)

    @property
    def responses_cap(self) -> int:
        """The maximum number of answers to one question."""
        # Never more than there are participants.
        return min(self.max_responses_per_question, self.num_personas)

    @property
    def concepts(self) -> tuple[Stimulus, ...]:
        """The concepts to discuss: the stimuli, or the single concept of the study."""
        if self.stimuli:
            return self.stimuli
        return (
            Stimulus(
                name="concept",
                # A study file without a concept is reported by `check_config`. Until then the model
                # must be valid.
                product_concept=self.product_concept or "-",
                stimulus_material=self.stimulus_material,
            ),
        )

    @property
    def ladder_prices(self) -> tuple[str, ...]:
        """The prices in questions about buying, the lowest first.

        The product's own price is left out.
        """
        own_amount = None if self.price is None else parse_amount(self.price)
        return tuple(
            sorted(
                (price for price in self.prices if parse_amount(price) != own_amount),
                key=parse_amount,
            )
        )

    @property
    def images(self) -> tuple[str, ...]:
        """The parts of the material that are sent to models as images."""
        return tuple(image.words for image in find_image_references(self.stimulus_material or ""))

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups: `group_001` and so on."""
        digit_count = max(3, len(str(self.replications)))
        return tuple(f"group_{i:0{digit_count}d}" for i in range(1, self.replications + 1))

    def for_stimulus(self, stimulus: Stimulus) -> DiscussionConfig:
        """Return the settings for the discussion of one concept."""
        # A concept without material has no reaction phase, because there is nothing to react to.
        material = stimulus.stimulus_material or self.stimulus_material
        return self.model_copy(
            update={
                "product_concept": stimulus.product_concept,
                "stimulus_material": material,
                "price": stimulus.price or self.price,
                "category": stimulus.category or self.category,
                "phases": tuple(
                    phase
                    for phase in self.phases
                    if material or phase is not DiscussionPhase.REACTION
                ),
                "stimuli": (),
            }
        )


POSITION, INTENT = "statements.position", "intents.score"
# The lowest intent score that counts as "would buy": definitely or probably.
LIKELY = 4
TALK = ("group", "stimulus", "persona_id")


def declare_claims(config: DiscussionConfig) -> list[Claim]:
    """Return the comparisons that a focus group declares before a run."""
    # They compare answers after the discussion with those before it, and each further concept with
    # the first one. Changes of positions are primary. With one concept, the change of purchase
    # intent is primary too. With more than MOST_PRIMARY concepts, no claim is primary.
    concepts = [concept.id for concept in config.concepts]
    movement_family: Family = "primary" if len(concepts) <= MOST_PRIMARY else "secondary"
    intent_family: Family = "primary" if len(concepts) == 1 else "secondary"
    has_several_concepts = len(concepts) > 1
    concept_claims = [
        claim
        for concept in concepts
        for claim in (
            _movement_claim(concept, movement_family, has_several_concepts),
            _would_buy(concept, intent_family, has_several_concepts),
        )
    ]
    return [*concept_claims, *(_concept_claim(concept, concepts[0]) for concept in concepts[1:])]


def name_conditions(config: DiscussionConfig) -> dict[str, dict[str, str]]:
    """Return the names of the conditions. In a focus group, each concept is one condition."""
    return {"stimulus": {concept.id: concept.id for concept in config.concepts}}


def _movement_claim(concept: str, family: Family, has_several_concepts: bool) -> Claim:
    return Claim(
        POSITION,
        ("after", "before"),
        "mean",
        family=family,
        unit="group",
        estimand=(
            "Among simulated recruits like those drawn for this run: the mean private position "
            f"on {concept if has_several_concepts else 'the concept'} after the discussion "
            "minus that before it, "
            "within persons, from −1 (against) to 1 (in favour); independent unit: group."
        ),
        by="when",
        where=(("stimulus", (concept,)),),
        subject=TALK,
        paired=True,
        outcome="position" + f" on {concept}" * has_several_concepts,
        outcome_says_rows=True,
        names=("after the discussion", "before"),
    )


def _would_buy(concept: str, family: Family, has_several_concepts: bool) -> Claim:
    return Claim(
        INTENT,
        ("after", "before"),
        family=family,
        unit="group",
        estimand=(
            "Among simulated recruits like those drawn for this run: the share who would "
            "definitely or probably buy "
            f"{concept if has_several_concepts else 'the product'}, asked in "
            "private after the discussion, minus the share before it, within persons; independent "
            "unit: group."
        ),
        by="when",
        where=(("stimulus", (concept,)), ("ladder", (False,))),
        subject=TALK,
        paired=True,
        at_least=LIKELY,
        outcome="would buy" + f" {concept}" * has_several_concepts,
        outcome_says_rows=True,
        names=("after the discussion", "before"),
    )


def _concept_claim(concept: str, first: str) -> Claim:
    return Claim(
        POSITION,
        (concept, first),
        "mean",
        family="secondary",
        unit="group",
        estimand=(
            "Among simulated recruits like those drawn for this run: the mean private position "
            f"after the discussion on {concept} minus that on {first}, within persons, from −1 "
            "(against) to 1 (in favour); independent unit: group."
        ),
        by="stimulus",
        where=(("when", ("after",)),),
        subject=("group", "persona_id"),
        paired=True,
        outcome="final position",
        outcome_says_rows=True,
    )
