"""The settings of the embedded respondent: built-in effects and simulated faults.

The embedded respondent answers by rules in place of a model. `planted_effects` lists the settings
in force, for the output of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import field_notes
from folkmoot.hints import did_you_mean

# The constants of the model in docs/respondent.md: standard deviation of tastes, parameters of the
# Beta distribution of susceptibility, distance in utility at which persuasion falls to 1/e, and
# share of the way back to the first view. A change needs a new version in `MODEL_SERVED`.
TASTE_SD = 1.3
BETA = (4.0, 3.0)
DISTANCE = 3.0
ANCHOR = 0.25
# The number of argument words, and of answered turns, at which half of the maximum effect is
# reached.
HALF_READ = 8.0
HALF_TURNS = 1.0


Strength = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Push = Annotated[float, Field(allow_inf_nan=False)]
Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class RespondentSettings(BaseModel):
    """The settings under the key `respondent:` of a study file.

    Simulated faults (pathologies) are off by default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kappa_read: Strength = Field(
        0.75,
        description="strength of arguments that were read",
        json_schema_extra=field_notes(label="Strength of arguments read"),
    )
    factor_interviewed: Strength = Field(
        1.85,
        description="factor by which arguments weigh more with a participant who has said their "
        "own reasons",
        json_schema_extra=field_notes(label="Effect of an interview"),
    )
    factor_addressed: Strength = Field(
        3.8,
        description="largest factor by which arguments weigh more when they are put to a "
        "participant in turns that call for an answer",
        json_schema_extra=field_notes(label="Effect of being addressed"),
    )
    persuasion: Strength = Field(
        1.0,
        description="factor of all three strengths; 0 plants no effect",
        json_schema_extra=field_notes(label="Strength of persuasion"),
    )
    noise: Strength = Field(
        0.12,
        description="how much chance decides: scale of Gumbel noise",
        json_schema_extra=field_notes(unit="units of utility", label="Noise of choices"),
    )
    position_bias: Push = Field(
        0.0,
        description="pathology: how much more an option is liked in the place that `position` "
        "gives",
        json_schema_extra=field_notes(
            unit="units of utility", label="Preference for a place in a list"
        ),
    )
    position: Annotated[int, Field(ge=1)] = Field(
        1,
        description="place in the list that `position_bias` favours; 1 is the first",
        json_schema_extra=field_notes(label="Favoured place in a list"),
    )
    acquiescence: Push = Field(
        0.0,
        description="pathology: pull towards yes, agreement and high numbers; 1 is much",
        json_schema_extra=field_notes(label="Tendency to agree"),
    )
    sycophancy: Strength = Field(
        0.0,
        description="pathology: pull towards what others favour; 1 is much",
        json_schema_extra=field_notes(label="Giving in to others"),
    )
    shrinking_variance: Chance = Field(
        0.0,
        description="pathology: share by which differences between persons shrink",
        json_schema_extra=field_notes(label="Differences that shrink"),
    )
    instability: Chance = Field(
        0.0,
        description="pathology: chance per reply of a random answer",
        json_schema_extra=field_notes(label="Random answers"),
    )
    refusals: Chance = Field(0.0, description="pathology: chance per reply of declining")
    malformed: Chance = Field(
        0.0,
        description="pathology: chance per reply of a broken format",
        json_schema_extra=field_notes(label="Replies in a broken form"),
    )
    off_list: Chance = Field(
        0.0,
        description="pathology: chance per reply of an option that is not listed",
        json_schema_extra=field_notes(label="Options not on the list"),
    )
    over_length: Chance = Field(
        0.0,
        description="pathology: chance per reply of an essay",
        json_schema_extra=field_notes(label="Overlong replies"),
    )
    cut: Chance = Field(
        0.0,
        description="pathology: chance per reply of ending in the middle",
        json_schema_extra=field_notes(label="Replies cut off"),
    )
    drift: Chance = Field(
        0.0,
        description="pathology: chance of answers of another person after much talk",
        json_schema_extra=field_notes(label="Drift of the persona"),
    )
    persona_forgetting: Chance = Field(
        0.0,
        description="pathology: chance of not knowing the own age after much talk",
        json_schema_extra=field_notes(label="Forgetting the persona"),
    )
    length_bias: Chance = Field(
        0.0,
        description="pathology: chance of a choice moved by the mere length of what was read",
        json_schema_extra=field_notes(label="Preference for long texts"),
    )

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> RespondentSettings:
        """Return settings from a mapping.

        Raises InputError with every unknown or invalid key.
        """
        try:
            return cls.model_validate(dict(options), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False)
            raise InputError([_problem_of(detail) for detail in details]) from None


PATHOLOGIES = tuple(
    name
    for name, field in RespondentSettings.model_fields.items()
    if "pathology" in str(field.description)
)


def _problem_of(detail: ErrorDetails) -> Problem:
    key, value, kind = str(detail["loc"][0]), detail["input"], detail["type"]
    field = f"respondent.{key}"
    if kind == "extra_forbidden":
        known = list(RespondentSettings.model_fields)
        hint = did_you_mean(key, known, f"known: {', '.join(known)}")
        return Problem("the embedded respondent has no such setting", key=field, hint=hint)
    if key == "position" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return Problem(f"{value} is not a place in a list", key=field, hint="1 is the first")
    if kind == "less_than_equal" or (kind == "greater_than_equal" and _is_chance(key)):
        return Problem(f"{value} is not a share", key=field, hint="give a number from 0 to 1")
    if kind == "greater_than_equal":
        return Problem(f"{value} is negative", key=field, hint="give 0 or more")
    return Problem(f"{str(value)[:40]!r} is not a number", key=field)


def _is_chance(key: str) -> bool:
    return any(hasattr(bound, "le") for bound in RespondentSettings.model_fields[key].metadata)


def planted_effects(options: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the settings of all built-in effects in force, as a run prints the settings.

    Raises InputError for an unknown or invalid key.
    """
    knobs = RespondentSettings.from_mapping(options or {})
    values = knobs.model_dump()
    kappa = knobs.kappa_read * knobs.persuasion
    return {
        "notice": "SYNTHETIC: planted by the embedded respondent, no evidence about people",
        "kappa": {
            "read": kappa,
            "read_after_interview": kappa * knobs.factor_interviewed,
            "argued_and_answered": kappa * knobs.factor_addressed,
        },
        "noise_scale": knobs.noise,
        "taste_sd": TASTE_SD,
        "susceptibility": f"Beta({BETA[0]:g}, {BETA[1]:g})",
        "distance_scale": DISTANCE,
        "return_to_first_view": ANCHOR,
        "pathologies": {name: values[name] for name in PATHOLOGIES if values[name]},
    }
