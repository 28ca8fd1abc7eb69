"""The keys of a town hall's study file, and the levels that the study compares.

The source study calls them levels of technical implementation. A level says how models play the
residents: with one shared context or separate ones, with which models, and with which stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from folkmoot.engine.settings.config import NonNegative, PositiveInt, Proportion
from folkmoot.errors import Problem, ProtocolError
from folkmoot.field_notes import Word, field_notes
from folkmoot.hints import did_you_mean
from folkmoot.kit.coding import CodingStudyConfig
from folkmoot.measures.inference.claims import ACROSS, MOST_PRIMARY, Claim, Family
from folkmoot.models.catalog import CALL_LLM_MODELS
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.answers.options import InteractionType

# The model that the source uses by default. A researcher who names no model is told of it.
SOURCE_MODEL = "gemini-3-flash"
# Level 2-2 repeats level 2-1 on another model, so it is not part of the main comparison.
MAIN_LEVELS = ("1", "2-1", "3", "4")


def _as_text(value: object) -> object:
    # YAML reads the 1 of `levels: [1, 2-1]` as a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Shares = dict[str, Proportion]


def _as_list(value: object) -> object:
    # `levels: 1` means `levels: [1]`.
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def _as_mapping(value: object) -> object:
    return (
        {_as_text(key): entry for key, entry in value.items()}
        if isinstance(value, Mapping)
        else value
    )


LevelName = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(min_length=1, pattern=r"^[\w.-]+$"),
]
LevelNames = Annotated[list[LevelName], Field(min_length=1)]


GivenList = list[str] | int | Word
Listed = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=GivenList)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Topic(_Part):
    """The local issue that all discussions of a run are about."""

    title: str = Field(
        min_length=1,
        description="question that the hall discusses, in one line",
        examples=["Should Mill Street be closed to cars?"],
    )
    background: str = Field(
        min_length=1,
        description="background that every resident has read, in plain words",
        examples=[
            "The city proposes to close Mill Street to cars for one year. Buses and deliveries in "
            "the\nmorning stay allowed. Shops fear for their customers, parents want a safe way to "
            "school.\n"
        ],
    )
    contributions: dict[str, str] = Field(
        default_factory=dict,
        description="what residents are asked to pay: an ownership, a vulnerable type, the label "
        "of a profile, or `all` → what",
        examples=[{"owner": "a fee of 40 a year for a parking place"}],
    )
    stakes: dict[str, Listed] = Field(
        default_factory=dict,
        description="what is at stake for residents: an ownership, a vulnerable type, the label of "
        "a profile, or `all` → sentences",
        examples=[{"all": ["The bus will take another way."]}],
    )
    matters: list[str] = Field(
        default_factory=list,
        description="nouns for the subjects, for the embedded respondent; default: from other "
        "texts",
        examples=[["parking", "shops", "way to school"]],
        json_schema_extra=field_notes(essential=True, label="Subjects of the discussion"),
    )


class Ratios(_Part):
    """The shares from which general residents are sampled. The shares of each field sum to 1.

    Any words are allowed as age groups, genders and ownerships. Prompts use these words unchanged.
    """

    age_group: Shares = Field(
        {"30s": 0.15, "40s": 0.20, "50s": 0.25, "60s": 0.25, "70s+": 0.15},
        description="shares of age groups",
    )
    gender: Shares = Field({"male": 0.48, "female": 0.52}, description="shares of genders")
    ownership: Shares = Field(
        {"owner": 0.55, "tenant": 0.45}, description="shares of owners, tenants or others"
    )
    income_level: Shares = Field(
        {"low": 0.30, "middle": 0.50, "high": 0.20}, description="shares of income levels"
    )
    economic_pressure: Shares = Field(
        {"comfortable": 0.25, "moderate": 0.45, "struggling": 0.30},
        description="shares of economic pressure",
    )
    participation_tendency: Shares = Field(
        {"active": 0.20, "moderate": 0.50, "passive": 0.30},
        description="shares of participation tendency",
    )
    information_access: Shares = Field(
        {"high": 0.30, "medium": 0.45, "low": 0.25}, description="shares of access to information"
    )
    community_engagement: Shares = Field(
        {"active": 0.25, "moderate": 0.40, "minimal": 0.35},
        description="shares of engagement in the quarter",
    )


class ResidenceYears(_Part):
    """The number of years for which residents have lived in the quarter.

    The values are drawn from a normal distribution, rounded, and clipped to [low, high].
    """

    mean: float = Field(15.0, description="mean", json_schema_extra=field_notes(unit="years"))
    sd: float = Field(
        8.0,
        gt=0,
        description="standard deviation",
        json_schema_extra=field_notes(unit="years", label="Standard deviation"),
    )
    low: NonNegative = Field(
        1, description="fewest", json_schema_extra=field_notes(unit="years", label="Fewest")
    )
    high: PositiveInt = Field(
        40, description="most", json_schema_extra=field_notes(unit="years", label="Most")
    )


class ResidentSettings(_Part):
    """The settings by which the general residents of a set are drawn."""

    general: PositiveInt = Field(
        16,
        description="general residents in each set",
        json_schema_extra=field_notes(label="General residents in a set"),
    )
    ratios: Ratios = Field(
        default_factory=Ratios,
        description="shares of each group; the shares of a list sum to 1",
        json_schema_extra=field_notes(label="Shares"),
    )
    residence_years: ResidenceYears = Field(
        default_factory=ResidenceYears,
        description="years lived in the quarter, kept between fewest and most",
    )
    personality: dict[int, Proportion] = Field(
        default={1: 0.1, 2: 0.2, 3: 0.4, 4: 0.2, 5: 0.1},
        description="shares of the scores 1 to 5 of each personality trait",
    )
    affords_in_between: Proportion = Field(
        0.5,
        description="chance that a middle-income resident under moderate pressure can afford the "
        "contribution",
        json_schema_extra=field_notes(label="Chance to afford it in between"),
    )
    occupations: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="your own occupations: age group → income level → list; default: shipped ones",
    )


class LevelSettings(_Part):
    """The switches of one level in a study file.

    A switch that is left out keeps the value of the built-in level or of the level named by `like`.
    """

    like: LevelName | None = Field(
        None,
        description="level that gives the values of all other switches",
        json_schema_extra=field_notes(label="Same as level"),
    )
    context: Literal["shared", "separate"] | None = Field(
        None,
        description="`shared`: one session speaks for all residents; `separate`: each has their "
        "own calls and memory",
        json_schema_extra=field_notes(label="One session or separate calls"),
    )
    models: Annotated[
        list[str] | None, BeforeValidator(_as_list, json_schema_input_type=GivenList | None)
    ] = Field(
        None,
        description="one model, or several that are assigned to the residents",
        json_schema_extra=field_notes(label="Models of the residents"),
    )
    moderator: str | None = Field(
        None, min_length=1, description="none, model (the run's own) or the name of a model"
    )
    think: bool | None = Field(
        None,
        description="residents think in private before they speak",
        json_schema_extra=field_notes(label="Think before speaking"),
    )
    reflect: bool | None = Field(
        None,
        description="residents reflect in private after a round",
        json_schema_extra=field_notes(label="Reflect after a round"),
    )
    vulnerable: bool | None = Field(
        None,
        description="`false`: a control without the vulnerable residents",
        json_schema_extra=field_notes(label="Vulnerable residents"),
    )
    moderator_list: bool | None = Field(
        None,
        description="`false`: the moderator is not told who is vulnerable",
        json_schema_extra=field_notes(label="Moderator knows the vulnerable"),
    )
    labels: Literal["own", "shuffled"] | None = Field(
        None,
        description="`shuffled`: a placebo; the vulnerable are drawn at random",
        json_schema_extra=field_notes(label="Who counts as vulnerable"),
    )
    stories: Literal["vulnerable", "all", "none"] | None = Field(
        None,
        description="who has a life story; with `all` of the same length",
        json_schema_extra=field_notes(label="Life stories"),
    )
    part: Literal["main", "supplementary"] | None = Field(
        None,
        description="part of the main comparison, or reported apart",
        json_schema_extra=field_notes(label="Role in the comparison"),
    )


class TownHallConfig(CodingStudyConfig):
    """The settings in the study file of a town hall."""

    # The settings of the source's `.env`.
    INSTEAD_OF: ClassVar[Mapping[str, str]] = {
        "NUM_AGENTS": "use `residents.general`; the vulnerable come on top",
        "NUM_VULNERABLE": "use `vulnerable`, which names a profile for each",
        "NUM_ROUNDS": "use `rounds`",
        "NUM_SETS": "use `sets`",
        "DEFAULT_MODEL": "use `model`",
        "MODERATOR_MODEL": "use `models.moderator`",
        "LOG_LEVEL": "use `log_level`",
        "LOG_DIR": "leave it out: logs are written to logs/ in the run folder",
    }

    # Examples of inherited keys for this study type.
    TEMPLATE_VALUES: ClassVar[Mapping[str, object]] = {
        "hypotheses": [
            {
                "measure": "discussions.gap_weighted_inclusivity_score",
                "contrast": ["4", "3"],
                "direction": "greater",
                "smallest": 0.1,
                "expected": 0.3,
            }
        ]
    }

    model: str | None = Field(
        None,
        min_length=1,
        description="model of the planner, and of every resident for whom a level names none; if "
        "it is not a hosted model, the models of the levels are not used either",
        examples=["synthetic", SOURCE_MODEL],
        json_schema_extra=field_notes(essential=True, label="Model that answers"),
    )
    topic: Topic = Field(description="the one local issue that all discussions are about")
    sets: int = Field(
        20,
        ge=1,
        le=10_000,
        description="sets of residents; each runs through all levels",
        examples=[2],
        json_schema_extra=field_notes(essential=True, label="Sets of residents"),
    )
    rounds: int = Field(
        3,
        ge=1,
        le=1_000,
        description="rounds of discussion",
        json_schema_extra=field_notes(essential=True),
    )
    history: Literal["all", "last"] = Field(
        "all",
        description="rounds that residents still see: all, or only the last; the same at every "
        "level",
        json_schema_extra=field_notes(label="Rounds that residents see"),
    )
    levels: Annotated[
        list[LevelName],
        BeforeValidator(_as_list, json_schema_input_type=LevelNames | int | Word),
    ] = Field(
        list(MAIN_LEVELS),
        min_length=1,
        description="`1` shared session; `2-1` own ones; `2-2` their replication; `3` five models; "
        "`4` and a moderator",
        json_schema_extra=field_notes(essential=True),
    )
    level_settings: Annotated[dict[LevelName, LevelSettings], BeforeValidator(_as_mapping)] = Field(
        default_factory=dict,
        description="settings of changed or new levels: name → settings",
        examples=[{"4": {}}],
        json_schema_extra=field_notes(label="Settings of levels"),
    )
    residents: ResidentSettings = Field(
        default_factory=ResidentSettings,
        description="how the general residents are generated",
        json_schema_extra=field_notes(label="General residents"),
    )
    vulnerable: Listed = Field(
        ["builtin"],
        description="profiles of the vulnerable: `builtin`, folders or files; [] for none",
        examples=["vulnerable/"],
        json_schema_extra=field_notes(essential=True, label="Vulnerable residents"),
    )
    reaction_levels: dict[InteractionType, Annotated[int, Field(ge=0, le=4)]] = Field(
        default_factory=dict,
        description="level (0 ignore to 4 agree) of an interaction type, where it differs from the "
        "default",
        examples=[{"partial_agree": 4}],
        json_schema_extra=field_notes(label="Levels of reactions"),
    )
    repeated_reaction: Literal["highest", "lowest", "last"] = Field(
        "highest",
        description="reaction level that counts if one statement refers to the same resident twice",
        json_schema_extra=field_notes(label="Level of a repeated reaction"),
    )
    max_vote_items: PositiveInt = Field(
        6,
        description="maximum number of items on the ballot",
        json_schema_extra=field_notes(label="Most items on the ballot"),
    )
    longest_shared_reply: PositiveInt = Field(
        32_000,
        description="longest reply of a shared session; a round that would be longer is split",
        json_schema_extra=field_notes(unit="tokens"),
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "DEBUG",
        description="how much logs tell: all (`DEBUG`) to errors alone (`ERROR`)",
        json_schema_extra=field_notes(label="Detail of the logs"),
    )
    log_texts: Literal["preview", "full"] = Field(
        "preview",
        description="whether logs hold previews or the full questions and answers",
        json_schema_extra=field_notes(label="Texts in the logs"),
    )


# The five vendors' models among which the source divides the seats of levels 3 and 4. Their order
# is part of the assignment.
FIVE_MODELS = CALL_LLM_MODELS


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the study: the switches that say how a discussion is simulated."""

    name: str
    context: Literal["shared", "separate"] = "separate"
    # Several models are divided over the seats. Without models, all seats have the run's model.
    models: tuple[str, ...] = ()
    # `none`, `model` (the run's model for that role) or the name of a model.
    moderator: str = "none"
    think: bool = True
    reflect: bool = True
    # Without it, other residents (substitutes) take the seats of the vulnerable residents.
    vulnerable: bool = True
    # Without it, the moderator does not know who is vulnerable.
    moderator_list: bool = True
    # With `shuffled`, random residents are listed and counted as vulnerable.
    labels: Literal["own", "shuffled"] = "own"
    # Who has a life story. With `all`, every resident has a story of about the same length.
    stories: Literal["vulnerable", "all", "none"] = "vulnerable"
    # `main` for the main comparison, or `supplementary` for levels reported separately.
    part: Literal["main", "supplementary"] = "main"

    @property
    def is_moderated(self) -> bool:
        return self.moderator != "none"

    @property
    def label(self) -> str:
        """The level in words for readers, such as "level 3 (own sessions, 5 models)"."""
        parts = ["shared session" if self.context == "shared" else "own sessions"]
        parts += [f"{len(self.models)} models"] * (len(self.models) > 1)
        return f"level {self.name} ({', '.join(parts + ['moderator'] * self.is_moderated)})"

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"models": list(self.models)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Level:
        """Return the level that is stored in a plan."""
        # Plans of earlier versions lack some switches, which then have their defaults.
        values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        return cls(**{**values, "models": tuple(values["models"])})


BUILT_IN: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level("1", context="shared"),
        Level("2-1"),
        Level("2-2", models=("exaone-4.0",), part="supplementary"),
        Level("3", models=FIVE_MODELS),
        Level("4", models=FIVE_MODELS, moderator="model"),
    )
}


def levels_of(config: TownHallConfig) -> list[Level]:
    """Return the levels of a run in the order of the study file."""
    # Unknown names are left out, because `level_problems` reports them before a run.
    levels = known_levels(config)
    return [levels[name] for name in config.levels if name in levels]


def known_levels(config: TownHallConfig) -> dict[str, Level]:
    """Return all levels that a study file can name."""
    names = dict.fromkeys([*BUILT_IN, *config.level_settings])
    return {name: level for name in names if (level := find_level(config, name))}


def find_level(config: TownHallConfig, name: str) -> Level | None:
    """Return the level that a study file calls `name`, or None if there is no such level."""
    return _build_level(config, name, ())


def _build_level(config: TownHallConfig, name: str, above: tuple[str, ...]) -> Level | None:
    # Switches that the level does not set come from the level that `like` names. None if `like`
    # names an unknown level or leads in a circle: `above` holds the names that led here.
    settings = config.level_settings.get(name)
    if settings is None or settings.like is None:
        return _change_level(BUILT_IN.get(name, Level(name) if settings else None), settings)
    base = None if settings.like in above else _build_level(config, settings.like, (*above, name))
    return _change_level(base and replace(base, name=name), settings)


def _change_level(level: Level | None, settings: LevelSettings | None) -> Level | None:
    if settings is None or level is None:
        return level
    # A switch that the file does not set is None and keeps the value of the level below.
    changes = settings.model_dump(exclude={"like"}, exclude_none=True)
    if "models" in changes:
        changes["models"] = tuple(changes["models"])
    return replace(level, **changes)


def level_problems(config: TownHallConfig, vulnerable_count: int) -> list[Problem]:
    """Return the problems of the levels in a study file."""
    levels_by_name = known_levels(config)
    described_names = levels_by_name.keys() | config.level_settings
    problems = [
        _unknown_level_problem(name, list(levels_by_name))
        for name in config.levels
        if name not in described_names
    ]
    for name in sorted({level for level in config.levels if config.levels.count(level) > 1}):
        problems.append(Problem(f"duplicate level {name}", key="levels", hint="list it once"))
    for name in sorted(config.level_settings.keys() - levels_by_name):
        like = str(config.level_settings[name].like)
        hint = did_you_mean(
            like, levels_by_name, "name a level that does not refer back to this one"
        )
        message = f"level {name} is like {like}, which leads to no level"
        problems.append(Problem(message, key=f"level_settings.{name}.like", hint=hint))
    # By name, so that a level that is listed twice is checked once.
    for level in {level.name: level for level in levels_of(config)}.values():
        problems.extend(
            _level_problems(level, vulnerable_count, level.name in config.level_settings)
        )
        key = f"level_settings.{level.name}.labels"
        if level.labels == "shuffled" and not (vulnerable_count and level.vulnerable):
            message = f"level {level.name} has no vulnerable residents, so no labels to shuffle"
            problems.append(
                Problem(message, key=key, hint="remove it, or keep the vulnerable residents")
            )
    return problems


def _level_problems(level: Level, vulnerable_count: int, is_described: bool) -> list[Problem]:
    key = f"level_settings.{level.name}.models" if is_described else "levels"
    model_count = len(set(level.models))
    if model_count < len(level.models):
        return [Problem(f"level {level.name} lists a model twice", key=key, hint="list each once")]
    if level.context == "shared" and model_count > 1:
        return [
            Problem(
                f"level {level.name} has one shared session but {model_count} models",
                key=key,
                hint="name one model, or set context: separate",
            )
        ]
    if model_count > 1 and vulnerable_count > model_count:
        return [
            Problem(
                f"level {level.name} has {vulnerable_count} vulnerable residents for "
                f"{model_count} models, "
                "and no two of them may share one",
                key=key,
                hint=f"name at least {vulnerable_count} models, or at most {model_count} profiles",
            )
        ]
    return []


def _unknown_level_problem(name: str, known: list[str]) -> Problem:
    known_text = f"known levels: {', '.join(known)}; define new ones under level_settings"
    hint = f"{did_you_mean(name, known)} {known_text}".lstrip()
    return Problem(f"there is no level {name!r}", key="levels", hint=hint)


def assign_models(
    models: Sequence[str], general: Sequence[str], vulnerable: Sequence[str], seed: int, set_no: int
) -> dict[str, str | None]:
    """Return a map from the id of each resident to a model.

    The map holds None for a resident whom the run's model plays.

    Raises ProtocolError if there are too few models for the vulnerable residents.
    """
    # Several models are spread evenly, and each vulnerable resident gets a different model.
    if len(models) < 2:
        only_model = models[0] if models else None
        return dict.fromkeys((*general, *vulnerable), only_model)
    # The number of models is part of the path, and the level is not. So levels 3 and 4 share a
    # draw.
    rng = generator(seed, ("town_hall", f"set{set_no:02d}", "deal", str(len(models))))
    order = [models[index] for index in rng.permutation(len(models))]
    seats: dict[str, str | None] = dict(zip(vulnerable, order, strict=False))
    if len(set(seats.values())) != len(vulnerable):
        raise ProtocolError(
            f"{len(vulnerable)} vulnerable residents cannot be divided over {len(models)} "
            "different models"
        )
    # Round robin from the first model without a vulnerable resident keeps the counts even.
    first = len(vulnerable) % len(order)
    remaining = [order[(first + i) % len(order)] for i in range(len(general))]
    general_seats = {
        resident_id: remaining[index]
        for resident_id, index in zip(general, rng.permutation(len(remaining)), strict=True)
    }
    return {**general_seats, **seats}


# Measures of the claims, as table.column.
GAP = "discussions.gap_weighted_inclusivity_score"
INCLUSION = "discussions.weighted_inclusivity_score"
SATISFACTION = "satisfaction.satisfaction"


def declare_claims(config: TownHallConfig) -> list[Claim]:
    """Return the comparisons that a town hall declares before a run."""
    # The primary claims compare the inclusion gap of two consecutive main levels. The gap is the
    # inclusivity score of vulnerable minus that of general residents.
    # Controls without vulnerable residents have no gap to compare.
    levels = [level for level in levels_of(config) if level.vulnerable and config.vulnerable]
    main = [level for level in levels if level.part == "main"]
    steps = list(pairwise(main))
    claims = [
        # Few primary claims keep the correction for multiple tests small.
        _gap_between(later, earlier, "primary" if n < MOST_PRIMARY else "secondary")
        for n, (earlier, later) in enumerate(steps)
    ]
    claims += [
        _gap_between(later, earlier, "exploratory")
        for earlier, later in combinations(main, 2)
        if (earlier, later) not in steps
    ]
    claims += [
        _gap_between(level, other, "exploratory")
        for level in levels
        for other in main
        if level.part != "main" and changed_switches(other, level) == ["models"]
    ]
    claims += [_inclusion_at(level) for level in main]
    return claims + [
        _satisfaction_at(level, is_vulnerable)
        for level in levels_of(config)
        for is_vulnerable in (True, False)
        if level.part == "main" and (level in levels or not is_vulnerable)
    ]


def name_conditions(config: TownHallConfig) -> dict[str, dict[str, str]]:
    """Return the readable names of the levels, for each column that names a level.

    The columns of figures on vulnerable residents contain only levels with vulnerable residents.
    """
    levels = levels_of(config)
    names = {level.name: level.label for level in levels}
    with_vulnerable = {
        level.name: names[level.name] for level in levels if level.vulnerable and config.vulnerable
    }
    measured = (GAP, GAP.replace("gap_", "vulnerable_"))
    return {"level": names, **dict.fromkeys(measured, with_vulnerable)}


def _inclusion_at(level: Level) -> Claim:
    return Claim(
        INCLUSION,
        ("vulnerable", "general"),
        "mean",
        unit="set",
        estimand=(
            "Among simulated sets of residents like those drawn for this run: the weighted "
            "inclusivity score, 0 to 4, of vulnerable minus that of general residents at level "
            f"{level.name}, within sets; independent unit: set."
        ),
        by=ACROSS,
        where=(("level", (level.name,)),),
        subject=("set",),
        paired=True,
        outcome=f"inclusion at level {level.name}",
        outcome_says_rows=True,
    )


def _satisfaction_at(level: Level, is_vulnerable: bool) -> Claim:
    group = "vulnerable" if is_vulnerable else "general"
    return Claim(
        SATISFACTION,
        ("post", "pre"),
        "mean",
        unit="set",
        estimand=(
            f"Among simulated {group} residents like those drawn for this run: satisfaction, 1 to "
            f"10, after the outcome minus that before the discussion at level {level.name}, within "
            "residents; independent unit: set."
        ),
        by=ACROSS,
        where=(("level", (level.name,)), ("is_vulnerable", (is_vulnerable,))),
        subject=("set", "agent_id"),
        paired=True,
        outcome=f"satisfaction of {group} residents at level {level.name}",
        outcome_says_rows=True,
        names=("after", "before"),
    )


def changed_switches(before: Level, after: Level) -> list[str]:
    """Return the names of the switches that differ between two levels."""
    old, new = asdict(before), asdict(after)
    return [name for name in old if name not in ("name", "part") and old[name] != new[name]]


def _gap_between(level: Level, other: Level, family: Family) -> Claim:
    return Claim(
        GAP,
        (level.name, other.name),
        "mean",
        family=family,
        unit="set",
        estimand=(
            "Among simulated sets of residents like those drawn for this run: the inclusion gap "
            "(weighted inclusivity score, 0 to 4, of vulnerable minus general residents) at "
            f"{level.label} minus that at {other.label}, within sets; independent unit: set."
        ),
        by="level",
        subject=("set",),
        paired=True,
        outcome="inclusion gap",
        names=(level.label, other.label),
    )
