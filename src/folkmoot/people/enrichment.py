"""Turn a raw persona line into a full persona. This takes two calls to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from folkmoot.conversation.answer_types import AnswerType, Json, Missing, Text, pin_schema
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import Speaker
from folkmoot.hints import collapse_spaces
from folkmoot.people.persona import Persona
from folkmoot.provenance import cell_id, quote_value
from folkmoot.randomness import digest

T = TypeVar("T")

Education = Literal[
    "High school", "Some college", "Bachelor's degree", "Master's degree", "Doctorate"
]
Income = Literal[
    "Low income", "Lower-middle income", "Middle income", "Upper-middle income", "High income"
]
LocationType = Literal["urban", "suburban", "rural"]
PoliticalLeaning = Literal[
    "very liberal", "liberal", "moderate", "conservative", "very conservative"
]

SCALES: dict[str, tuple[str, ...]] = {
    "education": get_args(Education),
    "income": get_args(Income),
    "location_type": get_args(LocationType),
    "political_leaning": get_args(PoliticalLeaning),
}


def normalise_sex(sex: object) -> object:
    """Return F or M for common words such as "female", and any other value unchanged."""
    words = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
    return words.get(sex.strip().casefold(), sex) if isinstance(sex, str) else sex


def match_listed_value(value: object, listed: Iterable[str]) -> object:
    """Return the listed value that equals `value`. Case and the kind of apostrophe are ignored.

    Returns `value` unchanged if no listed value equals it.
    """
    if not isinstance(value, str):
        return value
    return {option.casefold(): option for option in listed}.get(
        value.strip().replace("’", "'").casefold(), value
    )


class Demographics(BaseModel):
    """The seven demographics of a persona. Case and curly quotes in a reply are ignored.

    If one of them stays unreadable, the line gives no persona and another line is drawn.
    """

    # The rest of such an answer is not kept. The description of a persona is written from all
    # seven, and participants are compared by them. A persona without an age, for example, would be
    # another kind of participant. There are enough other lines to draw from.
    model_config = pin_schema(
        "Demographics",
        "The seven demographics of a persona. Case and curly quotes in a reply are forgiven.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    age: int = Field(ge=18, le=65)
    sex: Literal["M", "F"]
    education: Education
    income: Income
    location_type: LocationType
    political_leaning: PoliticalLeaning
    occupation: str = Field(
        min_length=2, max_length=120, description="the job or main activity, in a few words"
    )

    @field_validator("sex", mode="before")
    @classmethod
    def _one_letter(cls, value: object) -> object:
        return normalise_sex(value)

    @field_validator("education", "income", "location_type", "political_leaning", mode="before")
    @classmethod
    def _as_listed(cls, value: object) -> object:
        return match_listed_value(value, (option for scale in SCALES.values() for option in scale))

    @field_validator("occupation", mode="before")
    @classmethod
    def _strip_occupation(cls, value: object) -> object:
        return value.strip() if isinstance(value, str) else value


DEMOGRAPHICS = Json(Demographics)

# The table of raw lines and their demographics. Its row class is in `kit.base_personas`.
BASE_PERSONAS = "base_personas"
RECRUITER = Speaker("recruiter", "Recruiter", "recruiter")


class Recruiting(Protocol):
    """The methods that `enrich_persona` needs: ask a model a question, and record a row."""

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        answer_type: AnswerType[T] | None = None,
        about: str = "",
    ) -> T | Missing: ...

    def record(self, table: str, row: Mapping[str, object], /) -> None: ...


async def enrich_persona(
    base: str, scope: Recruiting, *, prompts: Path | None = None
) -> Persona | Missing:
    """Make a full persona from the raw persona line `base`.

    Returns Missing if one of the two calls to a model fails.

    - `prompts`: a folder with files that replace the packaged prompts.
    """
    # The files are `demographics.md` and `enrichment.md`. The first call asks for demographics as
    # JSON, the second for a paragraph that completes "You are …".
    prompt = demographics_prompt(base, prompts)
    demographics = await scope.ask(
        RECRUITER, prompt, answer_type=DEMOGRAPHICS, about="demographics of a persona"
    )
    known_values = {} if isinstance(demographics, Missing) else demographics.model_dump()
    facts = {name: known_values.get(name) for name in Demographics.model_fields}
    # Record the line before the second call, so that the prompts have a recorded source for its
    # texts.
    scope.record(BASE_PERSONAS, {"line": key_of(base), "base_persona": base, **facts})
    if isinstance(demographics, Missing):
        return demographics
    prompt = enrichment_prompt(base, demographics, prompts)
    text = await scope.ask(RECRUITER, prompt, answer_type=Text(), about="description of a persona")
    if isinstance(text, Missing):
        return text
    return Persona(
        id="",
        text=clean_description(text),
        base=base,
        demographics=demographics.model_dump(),
        source="persona_hub",
    )


def key_of(base: str) -> str:
    """Return a short hash that identifies a raw persona line."""
    # The key is used in addresses and in the table `base_personas`.
    return digest(base, size=8).hex()


def demographics_prompt(base: str, prompts: Path | None = None) -> str:
    """Return the prompt that asks for the demographics of the person in a raw persona line."""
    return _render_prompt(
        "demographics",
        prompts,
        base_persona=_quote_base(base),
        answer_format=DEMOGRAPHICS.describe_format(),
    )


def enrichment_prompt(base: str, demographics: Demographics, prompts: Path | None = None) -> str:
    """Return the prompt that asks for a full description of the person in a raw persona line."""
    facts = {
        name: quote_value(value, "value", cell_id(f"{BASE_PERSONAS}.{name}", key_of(base)))
        for name, value in demographics.model_dump().items()
    }
    return _render_prompt("enrichment", prompts, base_persona=_quote_base(base), **facts)


def _quote_base(base: str) -> str:
    return quote_value(
        base, "persona", cell_id(f"{BASE_PERSONAS}.base_persona", key_of(base)), RECRUITER.id
    )


def clean_description(text: str) -> str:
    """Return a model's description of a persona as one paragraph without a leading "You are"."""
    flat = collapse_spaces(text).strip('"“”')
    return flat[8:] if flat.casefold().startswith("you are ") else flat


def _render_prompt(name: str, prompts: Path | None, **variables: object) -> str:
    return _prompt_library(prompts).render_prompt(name, **variables)


# A pool of many personas renders the same two prompt files again and again.
@lru_cache(maxsize=8)
def _prompt_library(prompts: Path | None) -> PromptLibrary:
    return PromptLibrary(Path(__file__).parent / "prompts", prompts)
