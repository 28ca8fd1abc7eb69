"""The keys of a negotiation's study file, and the planned comparisons between conditions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from folkmoot.field_notes import field_notes
from folkmoot.hints import did_you_mean
from folkmoot.kit.coding import CodingStudyConfig
from folkmoot.measures.inference.claims import MOST_PRIMARY, Claim, Family
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
    LODGING,
    SLOTS,
    TOPICS,
    TYPE_IDS,
    ConditionId,
    group_type,
    role_id,
)
from folkmoot.studies.negotiation.rules.tally import fold_option

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1, le=12)]
Option = Annotated[str, Field(min_length=1, max_length=60)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Trip(_Part):
    """The trip that the groups plan. It is exported as input for TripCraft, a trip planner.

    - `file`: a CSV file in TripCraft's input format. A group gets the row with the group's
      `group_id`. If there is no such row, groups take the rows in turn.
    - All other keys: values of columns that the file lacks.
    """

    file: str | None = Field(
        None,
        description="CSV in TripCraft's format; its rows are assigned to the groups",
        json_schema_extra=field_notes(label="File of trips"),
    )
    org: str = Field(
        "",
        description="where the trip starts",
        json_schema_extra=field_notes(label="Start of the trip"),
    )
    dest: str = Field(
        "", description="where it goes", json_schema_extra=field_notes(label="Destination")
    )
    date: tuple[str, ...] = Field(
        (),
        description="dates of the days, as many as `days`",
        json_schema_extra=field_notes(label="Dates"),
    )
    budget: float | None = Field(None, ge=0, allow_inf_nan=False, description="budget of the group")
    visiting_city_number: int = Field(
        1,
        ge=1,
        description="number of cities to visit",
        json_schema_extra=field_notes(label="Number of cities"),
    )
    level: str = Field(
        "hard",
        description="difficulty of the plan, in TripCraft's words",
        json_schema_extra=field_notes(label="Difficulty"),
    )
    location_preference: str = Field("", description="where the group wants to stay")
    transportation: str | None = Field(None, description="means of transport")
    reference_information: str = Field(
        "[]", description="reference information, copied unchanged into the export"
    )


class _Stated(BaseModel):
    """Base class of the researcher's data on groups and members. Blank values count as missing."""

    # YAML reads an id or a name such as 7 as a number, so numbers become strings.
    model_config = ConfigDict(
        extra="forbid", frozen=True, coerce_numbers_to_str=True, str_strip_whitespace=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None and value != ""}


def _by_topic(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if "lodging" in value:
        lodging = value["lodging"]
        rest = {key: text for key, text in value.items() if key != "lodging"}
        by_topic = lodging if isinstance(lodging, Mapping) else dict.fromkeys(LODGING, lodging)
        value = {**by_topic, **rest}
    for slot in value:
        if slot not in TOPICS:
            known = (*SLOTS, *LODGING)
            suggestion = did_you_mean(str(slot), known, f"slots: {', '.join(SLOTS)}")
            raise ValueError(f"`{slot}` is not a slot; {suggestion}")
    return {
        topic: value for topic, value in value.items() if value is not None and str(value).strip()
    }


# The schema that editors use. `_by_topic` accepts more than the annotation of the field says.
_PREFERENCE_SCHEMA = {
    "type": "object",
    "propertyNames": {"enum": [*SLOTS, *LODGING]},
    "additionalProperties": {"type": ["string", "number", "null"]},
    "properties": {
        "lodging": {
            "description": "one text, or a group of `room_type` and `house_rule`",
            "type": ["string", "number", "object", "null"],
            "propertyNames": {"enum": [*LODGING]},
            "additionalProperties": {"type": ["string", "number", "null"]},
        }
    },
}


class MemberInput(_Stated):
    """A member in the researcher's data, who has no id yet.

    `preferences`: maps topics to texts.
    """

    role: Annotated[str, Field(min_length=1), AfterValidator(role_id)] = Field(
        description="role in the group, as `parent` in a family"
    )
    name: str = Field("", description="name; default: the role and a number")
    weight: Weight | None = Field(
        None, description="weight in the count; default: that of the role under `weights`"
    )
    persona: str = Field("", description="description of the member, completing `You are …`")
    preferences: Annotated[
        dict[str, str], BeforeValidator(_by_topic), WithJsonSchema(_PREFERENCE_SCHEMA)
    ] = Field(
        default_factory=dict,
        description="stated preferences: slot → text; without them the member is asked",
    )


class GroupInput(_Stated):
    """A group in the researcher's data."""

    id: str = Field(
        "",
        description="id, which names a folder of the run; default: a number",
        json_schema_extra=field_notes(label="Name of the group"),
    )
    type: Annotated[str, AfterValidator(lambda name: group_type(name).id)] = Field(
        description="group type: `family`, `elder_young`, `colleagues`, `spouses` or `strangers`",
        json_schema_extra=field_notes(label="Kind of group"),
    )
    members: tuple[MemberInput, ...] = Field(description="the members, in order")


def _as_given(groups: object) -> object:
    # `participants.groups_of` checks these groups later, like the groups of a file.
    # A study file gives a list, because YAML has no tuples.
    return tuple(groups) if isinstance(groups, list) else groups


class NegotiationConfig(CodingStudyConfig):
    """The settings of a negotiation study."""

    TEMPLATE_VALUES: ClassVar[Mapping[str, object]] = {
        "hypotheses": [
            {
                "measure": "measures.satisfaction",
                "contrast": ["C5", "C4"],
                "direction": "greater",
                "smallest": 0.2,
                "expected": 0.5,
            }
        ],
        # No example: the default conditions include C3 to C5, under which no seat is open.
        "seats": None,
    }

    title: str = Field(
        "",
        description="title for readers",
        examples=["Which mediation leaves whom content?"],
        json_schema_extra=field_notes(essential=True),
    )
    conditions: tuple[ConditionId, ...] = Field(
        get_args(ConditionId),
        min_length=1,
        description="conditions to run: "
        + "; ".join(f"`{condition.id}` {condition.title}" for condition in CONDITIONS.values()),
        json_schema_extra=field_notes(essential=True),
    )
    groups: Annotated[
        str | tuple[dict[str, object], ...] | None,
        BeforeValidator(_as_given, json_schema_input_type=str | list[GroupInput] | None),
    ] = Field(
        None,
        description="your own groups in place of generated ones: a YAML, JSON or CSV file, or the "
        "list itself",
        examples=["negotiation_groups.yaml"],
        json_schema_extra=field_notes(label="Your own groups"),
    )
    first_groups: int | None = Field(
        None,
        ge=1,
        description="run at most this many groups, the first ones (`--limit` with a file of "
        "groups)",
        json_schema_extra=field_notes(label="Most groups"),
    )
    group_types: tuple[str, ...] = Field(
        TYPE_IDS,
        min_length=1,
        description=f"group types to generate: {', '.join(f'`{name}`' for name in TYPE_IDS)}",
        json_schema_extra=field_notes(essential=True),
    )
    groups_per_type: int = Field(
        4,
        ge=1,
        le=10_000,
        description="groups to generate of each type",
        json_schema_extra=field_notes(essential=True, label="Groups of each type"),
    )
    sizes: dict[str, dict[str, Size]] = Field(
        default_factory=dict,
        description="members by role: group type → role → number",
        examples=[{"family": {"parent": 2, "child": 1}}],
        json_schema_extra=field_notes(label="Members by role"),
    )
    weights: dict[str, dict[str, Weight]] = Field(
        default_factory=dict,
        description="weights of members: group type → role → weight; default: 1",
        examples=[{"family": {"parent": 2, "child": 1}}],
        json_schema_extra=field_notes(label="Weights of members"),
    )
    personas: str | None = Field(
        None,
        min_length=1,
        description="file of personas (CSV, JSONL, Parquet) for the generated members",
        json_schema_extra=field_notes(label="Source of participants"),
    )
    options: dict[str, tuple[Option, ...]] = Field(
        default_factory=dict,
        description="usual options by topic, in place of the shipped ones; others are taken from "
        "the members' words",
        examples=[{"cuisine": ["Diner", "Street food", "Seafood"]}],
    )
    days: int = Field(
        3,
        ge=1,
        le=60,
        description="length of the trip",
        json_schema_extra=field_notes(unit="days", essential=True),
    )
    enable_feedback: bool = Field(
        True,
        description="hold feedback rounds in C5",
        json_schema_extra=field_notes(label="Feedback rounds"),
    )
    max_feedback_rounds: int = Field(
        2,
        ge=0,
        le=20,
        description="maximum number of feedback rounds per decision",
        json_schema_extra=field_notes(label="Most feedback rounds per decision"),
    )
    ballots: Literal["source", "scores"] = Field(
        "source",
        description="what members vote with: top choice, acceptable and hard no, counted with the "
        "texts (`source`), or a score of every option from -4 to 4 and hard no (`scores`)",
        json_schema_extra=field_notes(label="Kind of ballot"),
    )
    field_order: Literal["source", "reason_first"] = Field(
        "source",
        description="order of the fields of the mediator's replies: the source's, or reasons "
        "before decisions",
        json_schema_extra=field_notes(label="Order of the mediator's reply"),
    )
    members_speak: bool = Field(
        False,
        description="ask the members themselves what they say to a proposal and in feedback "
        "rounds, instead of having the mediator write it; humans can then take seats under C3 "
        "to C5",
        json_schema_extra=field_notes(label="Members speak for themselves"),
    )
    confirm: bool = Field(
        True,
        description="ask each member whether the recorded decision is the result of the "
        "dialogue, and whether it gives the member an option that the member refuses",
        json_schema_extra=field_notes(label="Confirm each decision"),
    )
    trip: Trip = Field(Trip(), description="the trip, for the export in TripCraft's input format")

    @field_validator("conditions")
    @classmethod
    def _without_duplicates(cls, conditions: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(conditions)) != len(conditions):
            raise ValueError("duplicate condition")
        # The order is always C1 to C5, because C5 continues C4 and the claims compare later
        # conditions with earlier ones.
        return tuple(condition for condition in CONDITIONS if condition in conditions)

    @field_validator("group_types")
    @classmethod
    def _known_types(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        type_ids = tuple(group_type(name).id for name in names)
        if len(set(type_ids)) != len(type_ids):
            raise ValueError("duplicate group type")
        return type_ids

    @field_validator("sizes", "weights")
    @classmethod
    def _known_roles(cls, tables: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        checked: dict[str, dict[str, float]] = {}
        for name, roles in tables.items():
            group_kind = group_type(name)
            for role in roles:
                if group_kind.role(role_id(role)) is None:
                    role_ids = [role.id for role in group_kind.roles]
                    hint = did_you_mean(role, role_ids, f"roles: {', '.join(role_ids)}")
                    raise ValueError(f"a {group_kind.id} group has no role `{role}`; {hint}")
            checked[group_kind.id] = {role_id(role): value for role, value in roles.items()}
        return checked

    @field_validator("options")
    @classmethod
    def _distinct_options(cls, options: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for topic, names in options.items():
            if topic not in TOPICS:
                hint = did_you_mean(topic, TOPICS, f"topics: {', '.join(TOPICS)}")
                raise ValueError(f"`{topic}` is not a topic; {hint}")
            folded = [fold_option(name) for name in names]
            if not names or () in folded:
                raise ValueError(f"`{topic}` has no options, or an empty one")
            if len(set(folded)) != len(folded):
                raise ValueError(f"`{topic}` has a duplicate option (case and plurals are ignored)")
        return options

    @model_validator(mode="after")
    def _dates_fit(self) -> NegotiationConfig:
        if self.trip.date and len(self.trip.date) != self.days:
            raise ValueError(
                f"trip.date: needs as many dates as `days`, {self.days}, and has "
                f"{len(self.trip.date)}"
            )
        return self


def path_in(folder: Path, name: str) -> Path:
    """Return the path of the file `name`. A relative `name` starts at `folder`."""
    return folder / Path(name).expanduser()


# Measures in which conditions are compared: column → its words. The first one is the main measure,
# the only one with primary claims.
COMPARED = {
    "satisfaction": "how content members are on a scale from −4 to 4",
    "lowest_satisfaction": "how content the least content member is on a scale from −4 to 4",
    "minority_promised_share": "minority wishes given or promised",
}


def declare_claims(config: NegotiationConfig) -> list[Claim]:
    """Return the planned comparisons between conditions, which are fixed before a run."""
    # They compare conditions within groups, in three measures. Three comparisons of satisfaction
    # are primary: C5 with C4, C4 with C3 and C3 with C2. All other comparisons of adjacent
    # conditions are secondary. Pairs that are not adjacent are exploratory.
    steps = [(later, earlier) for earlier, later in pairwise(config.conditions)]
    primary_steps = steps[-MOST_PRIMARY:]
    main_measure = next(iter(COMPARED))
    claims = []
    for measure in COMPARED:
        for pair in combinations(reversed(config.conditions), 2):
            family: Family = "secondary" if pair in steps else "exploratory"
            if measure == main_measure and pair in primary_steps:
                family = "primary"
            # C2 decides nothing. Its satisfaction is an expectation, and the lowest of several
            # expectations is not the expected lowest score.
            if measure != "lowest_satisfaction" or "C2" not in pair:
                claims.append(_within_groups(measure, pair, family))
    # The sort is stable: it moves the primary claims to the front and keeps the rest in order.
    return sorted(claims, key=lambda claim: claim.family != "primary")


def name_conditions(config: NegotiationConfig) -> dict[str, dict[str, str]]:
    """Return the display names of the conditions.

    The result has one key, "condition", which is the column of the tables. The value is a map from
    condition id to display name.
    """
    return {"condition": {name: condition_title(name) for name in config.conditions}}


def condition_title(name: str) -> str:
    """Return the code of a condition with its meaning. Papers and files use the code alone."""
    return f"{name} ({CONDITIONS[name].title})"


def _within_groups(measure: str, pair: tuple[str, str], family: Family) -> Claim:
    names = condition_title(pair[0]), condition_title(pair[1])
    return Claim(
        f"measures.{measure}",
        pair,
        "mean",
        family=family,
        unit="group",
        estimand=(
            f"Among simulated groups like those made for this run: the mean over groups of "
            f"{COMPARED[measure]}, under {names[0]} minus that under {names[1]}, within groups, of "
            "which the stated "
            "preferences are the same under all conditions; independent unit: group."
        ),
        by="condition",
        subject=("group_id",),
        paired=True,
        outcome=COMPARED[measure],
        names=names,
        is_mean_of_shares=measure.endswith("_share"),
    )
