"""The study file of a negotiation study, and its deeper checks."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from folkmoot.hints import did_you_mean
from folkmoot.kit.coding import CodedConfig
from folkmoot.measures.claims import MOST_PRIMARY, Claim, Family
from folkmoot.studies.negotiation.rules.strategies import (
    CONDITIONS,
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
    """The trip that the groups plan, for the export in TripCraft's input format.

    `file` is a CSV in that format whose rows are dealt to the groups in turn (or by a `group_id`
    column); the other keys fill what it lacks. Reference information is passed through as it is.
    """

    file: str | None = None
    org: str = ""
    dest: str = ""
    date: tuple[str, ...] = ()
    budget: float | None = Field(None, ge=0, allow_inf_nan=False)
    visiting_city_number: int = Field(1, ge=1)
    level: str = "hard"
    location_preference: str = ""
    transportation: str | None = None
    reference_information: str = "[]"


class NegotiationConfig(CodedConfig):
    """Settings of a negotiation study."""

    title: str = Field("", description="title for people")
    conditions: tuple[ConditionId, ...] = Field(
        ("C1", "C2", "C3", "C4", "C5"),
        min_length=1,
        description="which of C1 to C5 to run",
    )
    groups: str | tuple[dict[str, object], ...] | None = Field(
        None, description="your own groups: a YAML, JSON or CSV file, or the list itself"
    )
    group_types: tuple[str, ...] = Field(
        TYPE_IDS, min_length=1, description="group types to generate"
    )
    groups_per_type: int = Field(4, ge=1, description="groups to generate of each type")
    sizes: dict[str, dict[str, Size]] = Field(
        default_factory=dict, description="members by role: group type → role → number"
    )
    weights: dict[str, dict[str, Weight]] = Field(
        default_factory=dict, description="member weights: group type → role → weight (1)"
    )
    personas: str | None = Field(
        None, min_length=1, description="table of personas (CSV, JSONL, Parquet) for the members"
    )
    options: dict[str, tuple[Option, ...]] = Field(
        default_factory=dict, description="usual options by topic, in place of the shipped ones"
    )
    days: int = Field(3, ge=1, le=60, description="length of the trip, in days")
    enable_feedback: bool = Field(True, description="let C5 hold feedback rounds")
    max_feedback_rounds: int = Field(
        2, ge=0, le=20, description="most feedback rounds per decision"
    )
    ballots: Literal["source", "scores"] = Field(
        "source",
        description="what members vote with: top choice, acceptable and hard no, or a score of "
        "every option from -4 to 4 and hard no",
    )
    field_order: Literal["source", "reason_first"] = Field(
        "source",
        description="order of the fields of the mediator's replies: the source's, or reasons "
        "before decisions",
    )
    confirm: bool = Field(
        True,
        description="ask each member, for one word, whether the record is right",
    )
    trip: Trip = Trip()

    @field_validator("conditions")
    @classmethod
    def _once(cls, conditions: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(conditions)) != len(conditions):
            raise ValueError("duplicate condition")
        return tuple(c for c in CONDITIONS if c in conditions)

    @field_validator("group_types")
    @classmethod
    def _known_types(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(group_type(name).id for name in names)
        if len(set(found)) != len(found):
            raise ValueError("duplicate group type")
        return found

    @field_validator("sizes", "weights")
    @classmethod
    def _known_roles(cls, tables: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        known: dict[str, dict[str, float]] = {}
        for name, roles in tables.items():
            kind = group_type(name)
            for role in roles:
                if kind.role(role_id(role)) is None:
                    have = [r.id for r in kind.roles]
                    hint = did_you_mean(role, have, f"roles: {', '.join(have)}")
                    raise ValueError(f"a {kind.id} group has no role `{role}`; {hint}")
            known[kind.id] = {role_id(role): value for role, value in roles.items()}
        return known

    @field_validator("options")
    @classmethod
    def _distinct_options(cls, options: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for topic, names in options.items():
            if topic not in TOPICS:
                hint = did_you_mean(topic, TOPICS, f"topics: {', '.join(TOPICS)}")
                raise ValueError(f"`{topic}` is not a topic; {hint}")
            folded = [fold_option(n) for n in names]
            if not names or () in folded:
                raise ValueError(f"`{topic}` has no option, or one without a word")
            if len(set(folded)) != len(folded):
                raise ValueError(f"`{topic}` has a duplicate option (case and plurals aside)")
        return options

    @model_validator(mode="after")
    def _dates_fit(self) -> NegotiationConfig:
        if self.trip.date and len(self.trip.date) != self.days:
            raise ValueError(f"trip.date has {len(self.trip.date)} dates for {self.days} days")
        return self


def path_in(folder: Path, name: str) -> Path:
    """A path that the study file names, relative to the file's own folder."""
    return folder / Path(name).expanduser()


# Measures that conditions are compared in: column → its words. The first is the main one.
COMPARED = {
    "satisfaction": "how content members are",
    "lowest_satisfaction": "how content the least content member is",
    "minority_promised_share": "minority wishes given or promised",
}


def claims(config: NegotiationConfig) -> list[Claim]:
    """What a negotiation compares: conditions within groups, in three measures.

    Primary are the last steps of the ablation in how content members are: C5 against C4, C4 against
    C3, C3 against C2. Other steps, and the same steps in the other measures, are secondary; pairs
    that are no step are exploratory.
    """
    steps = [(later, earlier) for earlier, later in pairwise(config.conditions)]
    primary = steps[-MOST_PRIMARY:]
    main = next(iter(COMPARED))
    found = []
    for measure in COMPARED:
        for earlier, later in combinations(config.conditions, 2):
            pair = later, earlier
            family: Family = "secondary" if pair in steps else "exploratory"
            if measure == main and pair in primary:
                family = "primary"
            # C2 decides nothing: expectations have no least content member.
            if measure != "lowest_satisfaction" or "C2" not in pair:
                found.append(_within_groups(measure, pair, family))
    return found


def _within_groups(measure: str, pair: tuple[str, str], family: Family) -> Claim:
    names = [f"{name} ({CONDITIONS[name].title})" for name in pair]
    return Claim(
        f"measures.{measure}",
        pair,
        "mean",
        family=family,
        unit="group",
        estimand=(
            f"Among simulated groups like those made for this run: {COMPARED[measure]} under "
            f"{names[0]} minus that under {names[1]}, within groups, of which the stated "
            "preferences are the same under all conditions; independent unit: group."
        ),
        by="condition",
        subject=("group_id",),
        paired=True,
        outcome=COMPARED[measure],
    )
