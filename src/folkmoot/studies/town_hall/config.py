"""The keys of a town-hall study file, and the checks that need more than one key or a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from folkmoot.engine.config import NonNegative, Positive, Share
from folkmoot.kit.coding import CodedConfig
from folkmoot.studies.town_hall.answers import InteractionType

DEFAULT_MODEL = "gemini-3-flash"
MAIN_LEVELS = ("1", "2-1", "3", "4")


def _as_text(value: Any) -> Any:
    """`levels: [1, 2-1]` reads 1 as a number; a level's name is text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _listed(value: Any) -> Any:
    """`levels: 1` and `vulnerable: builtin` name one of what is a list."""
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def _named(value: Any) -> Any:
    return {_as_text(k): v for k, v in value.items()} if isinstance(value, Mapping) else value


LevelName = Annotated[str, BeforeValidator(_as_text), Field(min_length=1, pattern=r"^[\w.-]+$")]
Shares = dict[str, Share]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Topic(_Part):
    """The one local issue that all discussions are about."""

    title: str = Field(min_length=1, description="the question before the hall, in one line")
    background: str = Field(
        min_length=1, description="what every resident has read about it, in plain words"
    )
    contributions: dict[str, str] = Field(
        default_factory=dict,
        description="what residents are asked to pay, if anything: who → what, as in "
        "`owner: a third of the price of the new flat`",
    )
    stakes: dict[str, list[str]] = Field(
        default_factory=dict,
        description="what is at stake for whom: who → sentences. `Who` in both is an ownership, a "
        "vulnerable type, the label of a profile, or `all`",
    )

    @field_validator("stakes", mode="before")
    @classmethod
    def _sentences(cls, raw: Any) -> Any:
        return {k: _listed(v) for k, v in raw.items()} if isinstance(raw, Mapping) else raw


class Ratios(_Part):
    """Shares from which the general residents are sampled; each sums to 1.

    Age groups, genders and ownerships may be any; prompts say them in the words given here.
    """

    age_group: Shares = {"30s": 0.15, "40s": 0.20, "50s": 0.25, "60s": 0.25, "70s+": 0.15}
    gender: Shares = {"male": 0.48, "female": 0.52}
    ownership: Shares = {"owner": 0.55, "tenant": 0.45}
    income_level: Shares = {"low": 0.30, "middle": 0.50, "high": 0.20}
    economic_pressure: Shares = {"comfortable": 0.25, "moderate": 0.45, "struggling": 0.30}
    participation_tendency: Shares = {"active": 0.20, "moderate": 0.50, "passive": 0.30}
    information_access: Shares = {"high": 0.30, "medium": 0.45, "low": 0.25}
    community_engagement: Shares = {"active": 0.25, "moderate": 0.40, "minimal": 0.35}


class ResidenceYears(_Part):
    """Years lived in the quarter: normal, rounded, clipped to [low, high]."""

    mean: float = 15.0
    sd: float = Field(8.0, gt=0)
    low: NonNegative = 1
    high: Positive = 40


class ResidentSettings(_Part):
    """How the general residents of a set are made."""

    general: Positive = Field(16, description="general residents in each set")
    ratios: Ratios = Field(default_factory=Ratios)
    residence_years: ResidenceYears = Field(default_factory=ResidenceYears)
    personality: dict[int, Share] = Field(
        default={1: 0.1, 2: 0.2, 3: 0.4, 4: 0.2, 5: 0.1},
        description="shares of the scores 1 to 5 of each personality trait",
    )
    affords_in_between: Share = Field(
        0.5,
        description="chance that a middle-income resident under moderate pressure can afford "
        "the contribution (the rest follows from income and pressure)",
    )
    occupations: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="own occupations: age group → income level → list",
    )


class LevelSettings(_Part):
    """Switches of one level; what is left out stays as the level has it."""

    context: Literal["shared", "separate"] | None = None
    models: Annotated[list[str] | None, BeforeValidator(_listed)] = Field(
        None, description="one model, or several to deal over the seats"
    )
    moderator: str | None = Field(
        None, min_length=1, description="`none`, `model` (the run's own) or the name of a model"
    )
    think: bool | None = None
    reflect: bool | None = None
    vulnerable: bool | None = Field(
        None, description="false: a control in which others sit in the seats of the vulnerable"
    )
    moderator_list: bool | None = Field(
        None, description="false: a control in which the moderator is not told who is vulnerable"
    )
    labels: Literal["own", "shuffled"] | None = Field(
        None,
        description="shuffled: a placebo; who is listed and counted as vulnerable is drawn by lot",
    )
    stories: Literal["vulnerable", "all", "none"] | None = Field(
        None, description="who has a life story in the prompts; with `all` of the same length"
    )
    like: LevelName | None = Field(None, description="the level from which the rest is taken")
    part: Literal["main", "supplementary"] | None = Field(
        None, description="whether the main results compare the level or it is reported apart"
    )


class TownHallConfig(CodedConfig):
    """A town-hall study file."""

    # Names of the method's `.env`, and what stands for them here.
    INSTEAD_OF: ClassVar[Mapping[str, str]] = {
        "NUM_AGENTS": "`residents.general` (the vulnerable come on top)",
        "NUM_VULNERABLE": "`vulnerable`, which names a profile for each",
        "NUM_ROUNDS": "`rounds`",
        "NUM_SETS": "`sets`",
        "DEFAULT_MODEL": "`model`",
        "MODERATOR_MODEL": "`models.moderator`",
        "LOG_LEVEL": "`log_level`",
        "LOG_DIR": "nothing: logs are written to logs/ of the run",
    }

    model: str | None = Field(
        DEFAULT_MODEL,
        min_length=1,
        description="model of the planner, and of every seat for which a level names none",
    )
    topic: Topic
    sets: Positive = Field(20, description="sets of residents; each runs through all levels")
    rounds: Positive = Field(3, description="rounds of discussion")
    history: Literal["all", "last"] = Field(
        "all",
        description="rounds that residents still have before them: all, or the last one only; "
        "the same at every level",
    )
    levels: Annotated[list[LevelName], BeforeValidator(_listed)] = Field(
        list(MAIN_LEVELS), min_length=1, description="levels to run"
    )
    level_settings: Annotated[dict[LevelName, LevelSettings], BeforeValidator(_named)] = Field(
        default_factory=dict, description="switches of changed or new levels: name → switches"
    )
    residents: ResidentSettings = Field(default_factory=ResidentSettings)
    vulnerable: Annotated[list[str], BeforeValidator(_listed)] = Field(
        ["builtin"],
        description="profiles of the vulnerable residents: `builtin`, folders, files; [] for none",
    )
    reaction_levels: dict[InteractionType, Annotated[int, Field(ge=0, le=4)]] = Field(
        default_factory=dict,
        description="level (0–4) of an interaction type, where it differs from the default",
    )
    repeated_reaction: Literal["highest", "lowest", "last"] = Field(
        "highest",
        description="which level counts when one statement answers the same resident twice",
    )
    max_vote_items: Positive = Field(6, description="most items on the ballot")
    longest_shared_reply: Positive = Field(
        32_000,
        description="most tokens of one reply of a shared session; longer rounds are split",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "DEBUG", description="lowest level written to the logs of discussions"
    )
    log_texts: Literal["preview", "full"] = Field(
        "preview", description="whether the logs hold previews or the full questions and answers"
    )
