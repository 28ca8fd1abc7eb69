"""The profile of a grounded participant: demographics, traits, buying behaviour, voice, opinion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from folkmoot.errors import Problem
from folkmoot.people.enrichment import (
    SCALES,
    Education,
    Income,
    LocationType,
    PoliticalLeaning,
    match_listed_value,
)
from folkmoot.people.persona import DEMOGRAPHIC_KEYS, Persona
from folkmoot.people.sources.grounded.survey_answers import (
    HIGHEST_AGE,
    LOWEST_AGE,
    read_age_band,
    read_dollars,
    read_listed,
    read_sex,
)
from folkmoot.people.sources.missing_answers import IN_OWN_WORDS, is_refused_answer

TRAITS = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")

TITLES = ("dr", "prof", "professor", "mr", "mrs", "ms", "miss", "sir", "rev")

# X means nonbinary.
Sex = Literal["F", "M", "X"]
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
    """Return the first name without titles, such as "Ann" for "Dr. Ann Lee"."""
    words = name.split()
    while len(words) > 1 and words[0].rstrip(".").lower() in TITLES:
        words = words[1:]
    return words[0] if words else ""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Traits(_Frozen):
    """The scores of the five OCEAN traits, 0–100, with mean 50 and standard deviation 20."""

    openness: Score
    conscientiousness: Score
    extraversion: Score
    agreeableness: Score
    neuroticism: Score

    def standard_score(self, trait: str) -> float:
        """Return the score of a trait in standard deviations from the population mean."""
        return (float(getattr(self, trait)) - 50.0) / 20.0


class ConsumerProfile(_Frozen):
    """The buying behaviour of a participant.

    Scores are 0–100 with mean 50 and standard deviation 20.
    """

    engagement: Score
    price_sensitivity: Score
    brand_loyalty: Score
    channels: tuple[str, ...]
    adoption: Adoption


class VoiceProfile(_Frozen):
    """The way of talking of a participant: four scales with three steps, and habits of speech."""

    verbosity: Literal["brief", "moderate", "talkative"]
    formality: Literal["casual", "neutral", "formal"]
    directness: Literal["indirect", "balanced", "blunt"]
    vocabulary: Literal["plain", "everyday", "educated"]
    habits: tuple[str, ...]


class Opinion(_Frozen):
    """The opinion of a participant on the concept before the discussion.

    - `valence`: the opinion as a number from −1 (against) to 1 (in favour).
    - `sentence`: the opinion in words.
    """

    valence: Valence
    sentence: str


RACES = ("White", "Black", "Asian", "Hispanic", "Other")

LISTED: dict[str, tuple[str, ...]] = {
    **SCALES,
    "vals": get_args(Vals),
    "adoption": get_args(Adoption),
}


# The smallest `income`, in dollars a year, that is read as a sum of money. 0 is read as well.
MIN_INCOME_USD = 100


class Given(BaseModel):
    """The known values of a real person. An attribute that is None is drawn at random.

    Columns of the table with other names are ignored. Values may be written as in surveys
    (see `survey_answers`). An `income` in dollars becomes `income_usd`, and an age band becomes
    `age_band`. A refusal such as "prefer not to say" becomes a missing value.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    id: str | None = None
    name: str | None = None
    age: Annotated[int, Field(ge=LOWEST_AGE, le=HIGHEST_AGE)] | None = None
    age_band: tuple[int, int] | None = None
    sex: Sex | None = None
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
    def _as_answered(cls, row: Any) -> Any:
        row = without_refused_answers(row)
        if "income" in row and "income_usd" not in row:
            dollars = _parse_dollars(row["income"])
            # A smaller number is a code of a survey or a sum in thousands. It stays and is refused.
            if isinstance(dollars, int) and not 0 < dollars < MIN_INCOME_USD:
                row["income_usd"] = dollars
                del row["income"]
        if band := read_age_band(row.get("age")):
            row["age_band"] = band
            del row["age"]
        return row

    @field_validator("income_usd", mode="before")
    @classmethod
    def _as_dollars(cls, value: object) -> object:
        return _parse_dollars(value)

    @field_validator("sex", mode="before")
    @classmethod
    def _as_sex(cls, value: object) -> object:
        return read_sex(value)

    @field_validator(*LISTED, mode="before")
    @classmethod
    def _as_listed(cls, value: object, info: ValidationInfo) -> object:
        key = str(info.field_name)
        return match_listed_value(read_listed(key, value), LISTED[key])

    @field_validator("race", mode="before")
    @classmethod
    def _as_race(cls, value: object) -> object:
        return match_listed_value(value, RACES)


def without_refused_answers(row: Mapping[str, object]) -> dict[str, object]:
    """Return the row without answers such as "prefer not to say"."""
    asked_keys = [key for key in Given.model_fields if key not in IN_OWN_WORDS]
    return {
        key: value
        for key, value in row.items()
        if not (key in asked_keys and is_refused_answer(value))
    }


def with_blank_locations(rows: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the rows. If some rows have a location, each missing location becomes ""."""
    # If no row has a location, nothing changes.
    # The people in a table with locations may come from any country. Without the empty location, an
    # American location would be drawn for them.
    known = [dict(row) for row in rows]
    if any(row.get("location") for row in known):
        for row in known:
            row["location"] = row.get("location") or ""
    return known


def check_profile(row: Mapping[str, object], where: str) -> list[Problem]:
    """Return all problems in the row of a real person."""
    # `where` is the position of the row.
    try:
        Given.model_validate(row)
    except ValidationError as error:
        invalid_values = {str(detail["loc"][0]): detail["input"] for detail in error.errors()}
        return [
            Problem(
                f"{value!r} is not a valid {key}",
                where=where,
                key=key,
                hint=_describe_expected(key),
            )
            for key, value in invalid_values.items()
        ]
    return []


def _describe_expected(key: str) -> str:
    if key in LISTED:
        return f"one of: {', '.join(LISTED[key])}" + (
            f"; or dollars a year, 0 or at least {MIN_INCOME_USD}" if key == "income" else ""
        )
    return {
        "age": f"a whole number from {LOWEST_AGE} to {HIGHEST_AGE}, or a band such as 35-44",
        "sex": "F (female) or M (male), or nonbinary",
        "income_usd": "dollars a year, a whole number or a band such as 40k-50k",
        "valence": "a number from -1 to 1",
    }.get(key, "a whole number from 0 to 100")


def _parse_dollars(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    dollars = read_dollars(value)
    return value if dollars is None else dollars


class Profile(_Frozen):
    """A grounded participant, made by `PersonaGenerator`.

    - `household`, `location`: phrases. `location` is empty if unknown.
    - `income_usd`: the income of the household in dollars per year.
    - `race`: one of `RACES`, or a value of the researcher's table.
    - `background`: free text about a real person.
    - `described`: True if `background` describes the whole person, so that randomly drawn
      circumstances might contradict it.
    """

    id: str
    name: str
    age: int
    sex: Sex
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
        """The name by which other participants address this participant."""
        return first_name(self.name)

    def shared_demographics(self) -> dict[str, Any]:
        """Return the demographics that all sources have, and location, household and race."""
        # The race is left out if it is unknown.
        keys = (*DEMOGRAPHIC_KEYS, "location", "household", *(["race"] if self.race else []))
        return {key: getattr(self, key) for key in keys}

    def to_persona(self, text: str) -> Persona:
        """Return the profile as a persona with the description `text`."""
        return Persona(
            id=self.id,
            text=text,
            base=", ".join(
                filter(None, (self.name, str(self.age), self.occupation, self.location))
            ),
            demographics=self.shared_demographics(),
            source=self.source,
            name=self.name,
            extra={"profile": self.model_dump(mode="json")},
        )
