"""One grounded person as data: demographics, temperament, consumer, voice, opinion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from folkmoot.errors import Problem
from folkmoot.people.enrichment import (
    SCALES,
    Education,
    Income,
    LocationType,
    PoliticalLeaning,
    as_listed,
    one_letter,
)
from folkmoot.people.persona import DEMOGRAPHIC_KEYS, Persona

TRAITS = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")

TITLES = ("dr", "prof", "professor", "mr", "mrs", "ms", "miss", "sir", "rev")

Score = Annotated[int, Field(ge=0, le=100)]
Valence = Annotated[float, Field(ge=-1, le=1)]
Vals = Literal[
    "innovator",
    "thinker",
    "believer",
    "achiever",
    "striver",
    "experiencer",
    "maker",
    "survivor",
]
Adoption = Literal["innovator", "early adopter", "early majority", "late majority", "laggard"]


def first_name(name: str) -> str:
    """The first name in a name, titles aside ("Dr. Ann Lee": "Ann"); empty if there is none."""
    words = name.split()
    while len(words) > 1 and words[0].rstrip(".").lower() in TITLES:
        words = words[1:]
    return words[0] if words else ""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Traits(_Frozen):
    """OCEAN scores, 0–100, mean 50 and standard deviation 20 in the population."""

    openness: Score
    conscientiousness: Score
    extraversion: Score
    agreeableness: Score
    neuroticism: Score

    def z(self, trait: str) -> float:
        """A trait in standard deviations from the mean of the population."""
        return (float(getattr(self, trait)) - 50.0) / 20.0


class ConsumerProfile(_Frozen):
    """How somebody buys. Scores 0–100, mean 50 and standard deviation 20."""

    engagement: Score
    price_sensitivity: Score
    brand_loyalty: Score
    channels: tuple[str, ...]
    adoption: Adoption


class VoiceProfile(_Frozen):
    """How somebody talks: four scales of three steps, and habits of speech."""

    verbosity: Literal["brief", "moderate", "talkative"]
    formality: Literal["casual", "neutral", "formal"]
    directness: Literal["indirect", "balanced", "blunt"]
    vocabulary: Literal["plain", "everyday", "educated"]
    habits: tuple[str, ...]


class Opinion(_Frozen):
    """What somebody thinks of the concept before anybody has spoken: −1 … 1 and a sentence."""

    valence: Valence
    sentence: str


RACES = ("White", "Black", "Asian", "Hispanic", "Other")

LISTED: dict[str, tuple[str, ...]] = {
    **SCALES,
    "vals": get_args(Vals),
    "adoption": get_args(Adoption),
}


class Given(BaseModel):
    """What is known of a real person; the rest is drawn. Other columns are no part of it.

    Case and apostrophes of listed values are forgiven, as are "female", "$52,000" and an `income`
    in dollars, which is `income_usd`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    id: str | None = None
    name: str | None = None
    age: Annotated[int, Field(ge=16, le=110)] | None = None
    sex: Literal["F", "M"] | None = None
    education: Education | None = None
    income: Income | None = None
    income_usd: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    occupation: str | None = None
    location: str | None = None
    location_type: LocationType | None = None
    household: str | None = None
    political_leaning: PoliticalLeaning | None = None
    race: str | None = None
    openness: Score | None = None
    conscientiousness: Score | None = None
    extraversion: Score | None = None
    agreeableness: Score | None = None
    neuroticism: Score | None = None
    engagement: Score | None = None
    price_sensitivity: Score | None = None
    brand_loyalty: Score | None = None
    adoption: Adoption | None = None
    vals: Vals | None = None
    valence: Valence | None = None
    opinion: str | None = None
    background: str | None = None
    described: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _dollars(cls, row: Any) -> Any:
        row = dict(row)
        if "income" in row and "income_usd" not in row and str(_dollars(row["income"])).isdigit():
            row["income_usd"] = row.pop("income")
        return row

    @field_validator("income_usd", mode="before")
    @classmethod
    def _without_sign(cls, value: object) -> object:
        return _dollars(value)

    @field_validator("sex", mode="before")
    @classmethod
    def _one_letter(cls, value: object) -> object:
        return one_letter(value)

    @field_validator(*LISTED, mode="before")
    @classmethod
    def _as_listed(cls, value: object) -> object:
        return as_listed(value, (v for values in LISTED.values() for v in values))

    @field_validator("race", mode="before")
    @classmethod
    def _as_race(cls, value: object) -> object:
        return as_listed(value, RACES)


def check_profile(row: Mapping[str, object], where: str) -> list[Problem]:
    """Everything wrong with one row of real profiles, which stands at `where`."""
    try:
        Given.model_validate(row)
    except ValidationError as error:
        wrong = {str(e["loc"][0]): e["input"] for e in error.errors()}
        return [
            Problem(f"{value!r} is not a valid {key}", where=where, key=key, hint=_wanted(key))
            for key, value in wrong.items()
        ]
    return []


def _wanted(key: str) -> str:
    """What a value of a real profile may be."""
    if key in LISTED:
        return f"one of: {', '.join(LISTED[key])}" + (
            "; or dollars a year" if key == "income" else ""
        )
    return {
        "age": "a whole number from 16 to 110",
        "sex": "F (female) or M (male)",
        "income_usd": "dollars a year, a whole number",
        "valence": "a number from -1 to 1",
    }.get(key, "a whole number from 0 to 100")


def _dollars(value: object) -> object:
    return value.strip().removeprefix("$").replace(",", "") if isinstance(value, str) else value


class Profile(_Frozen):
    """A grounded persona. `household` and `location` are phrases, `income_usd` dollars a year of
    the household, `race` one of `RACES` or what a table of the user's own says,
    `background` what a real profile says in free text; `described` says that these words describe
    the whole person, so that circumstances that were drawn might contradict them."""

    id: str
    name: str
    age: int
    sex: Literal["F", "M"]
    education: Education
    income: Income
    income_usd: int
    occupation: str
    location: str
    location_type: LocationType
    household: str
    political_leaning: PoliticalLeaning
    race: str = ""
    traits: Traits
    vals: Vals
    consumer: ConsumerProfile
    voice: VoiceProfile
    opinion: Opinion | None = None
    background: str = ""
    described: bool = False
    source: str = "grounded"

    @property
    def first_name(self) -> str:
        """What the others at the table say."""
        return first_name(self.name)

    def demographics(self) -> dict[str, Any]:
        """The seven demographics that all sources share, place and household, and race or
        ethnicity where it is known."""
        keys = (*DEMOGRAPHIC_KEYS, "location", "household", *(["race"] if self.race else []))
        return {key: getattr(self, key) for key in keys}

    def to_persona(self, text: str) -> Persona:
        """The persona that other studies use, with `text` as its description."""
        return Persona(
            id=self.id,
            text=text,
            base=f"{self.name}, {self.age}, {self.occupation}, {self.location}",
            demographics=self.demographics(),
            source=self.source,
            name=self.name,
            extra={"profile": self.model_dump(mode="json")},
        )

    @classmethod
    def of(cls, persona: Persona) -> Profile | None:
        """The profile that a persona carries; None for one of another source."""
        data = persona.extra.get("profile")
        return None if data is None else cls.model_validate(data)
