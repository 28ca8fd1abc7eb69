"""The residents of one set, who discuss the issue at every level."""

# Income, economic pressure and affordability must not contradict each other. For example, a
# resident with a high income is never struggling and can afford the contribution. The shares of
# incomes and of pressures in the study file are met exactly.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from folkmoot.engine.settings.config_problems import problems_from_validation, with_location
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.errors import InputError, Problem
from folkmoot.files import packaged_yaml
from folkmoot.people.sources.names import draw_names
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.answers.options import OptionOrders, draw_option_orders
from folkmoot.studies.town_hall.config import ResidentSettings, TownHallConfig

# Age group → income level → occupations that fit both.
OCCUPATIONS: Mapping[str, Mapping[str, Sequence[str]]] = packaged_yaml(__file__, "occupations.yaml")

# Topic → sentences of everyday life, for residents without a story in their profile.
STORIES: Mapping[str, Any] = packaged_yaml(__file__, "life_stories.yaml")
# Length of a drawn story, in words, if no resident of the set has a story.
STORY_WORDS = 80

K = TypeVar("K")
Income = Literal["low", "middle", "high"]
Pressure = Literal["comfortable", "moderate", "struggling"]
INCOMES: tuple[Income, ...] = get_args(Income)
PRESSURES: tuple[Pressure, ...] = get_args(Pressure)
TRAITS = ("assertiveness", "openness", "risk_tolerance", "community_orientation")

# Relative weight of each pressure (columns, in the order of `PRESSURES`) under each income (rows).
# Both ratios are fitted from these weights. A weight of 0 makes a pair impossible.
_AFFINITY = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 1.0], [2.0, 1.0, 0.0]])


Score = Annotated[int, Field(ge=1, le=5)]


class AgeBounds(NamedTuple):
    """The youngest and the oldest age, in years, of an age group."""

    youngest: int
    oldest: int


# The upper bound of an open age group such as `70s+`.
MAX_AGE = 110
_NUMBER = re.compile(r"[0-9]{1,3}")
_UPPER_BOUND = re.compile(r"(?:\b(?:under|below|up to|younger than|less than)|<|≤)\s*[0-9]", re.I)
_NO_UPPER_BOUND = re.compile(
    r"[0-9]\s*(?:s\s*)?(?:\+|(?:and|or)\s+(?:over|older|above|more)\b)", re.I
)
_DECADE = re.compile(r"(?<![0-9])[0-9]{0,2}0\s*['’]?s\b", re.I)


def find_ages(age_group: str) -> AgeBounds | None:
    """Return the youngest and the oldest age in an age group such as `30s`.

    Returns None if the name of the age group contains no number.
    """
    numbers = [int(number) for number in _NUMBER.findall(age_group)]
    if not numbers:
        return None
    first, last = min(numbers), max(numbers)
    if _UPPER_BOUND.search(age_group) and len(numbers) == 1:
        return AgeBounds(0, last)
    if _NO_UPPER_BOUND.search(age_group) or re.search(r"\b(?:over|above)\b|>|≥", age_group):
        return AgeBounds(first, MAX_AGE)
    # A decade names its first year: `30s` are the ages 30 to 39.
    if _DECADE.search(age_group):
        last += 9
    return AgeBounds(first, last)


class VulnerableProfile(BaseModel):
    """The front matter of the file that describes a vulnerable resident.

    The fields are those of the source study. `label` is a short name for tables. A name is drawn if
    `name` is empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field(min_length=1)
    name: str = ""
    vulnerable_type: str = Field(min_length=1)
    age_group: str = Field(min_length=1)
    gender: str = Field(min_length=1)
    residence_years: int = Field(ge=0, le=100)
    ownership: str = Field(min_length=1)
    occupation: str = Field(min_length=1)
    assertiveness: Score
    openness: Score
    risk_tolerance: Score
    community_orientation: Score
    income_level: Income
    can_afford_contribution: bool
    economic_pressure: Pressure
    participation_tendency: Literal["active", "moderate", "passive"]
    information_access: Literal["high", "medium", "low"]
    community_engagement: Literal["active", "moderate", "minimal"]

    @field_validator("residence_years")
    @classmethod
    def _within_age(cls, years: int, info: ValidationInfo) -> int:
        age_group = str(info.data.get("age_group", ""))
        ages = find_ages(age_group)
        if ages and years > ages.oldest:
            raise ValueError(
                f"a resident of age group {age_group} cannot have lived here for {years} years; "
                f"give at most {ages.oldest}"
            )
        return years

    @field_validator("economic_pressure")
    @classmethod
    def _check_possible(cls, pressure: Pressure, info: ValidationInfo) -> Pressure:
        known = info.data
        if {"income_level", "can_afford_contribution"} <= known.keys():
            contradiction = find_contradiction(
                known["income_level"], pressure, known["can_afford_contribution"]
            )
            if contradiction:
                raise ValueError(f"{contradiction}; change one of the three")
        return pressure


class Resident(VulnerableProfile):
    """One resident of a set. `story` is a life story, from a profile file or drawn."""

    id: str = ""
    label: str = ""
    is_vulnerable: bool = False
    vulnerable_type: str | None = None  # type: ignore[assignment]
    story: str = Field("", repr=False)

    def to_json(self) -> dict[str, object]:
        """Return the fields, grouped as in the personas of the source study."""
        return {
            "id": self.id,
            "name": self.name,
            "label": self.label,
            "demographics": self._selected_attributes(
                "age_group", "gender", "residence_years", "ownership", "occupation"
            ),
            "personality": self._selected_attributes(*TRAITS),
            "economic": self._selected_attributes("income_level", "can_afford_contribution"),
            "state": self._selected_attributes("economic_pressure", "participation_tendency"),
            "context": self._selected_attributes("information_access", "community_engagement"),
            "classification": self._selected_attributes("is_vulnerable", "vulnerable_type"),
        }

    def to_row(self) -> dict[str, Any]:
        """Return the fields without the story."""
        return self.model_dump(exclude={"story"})

    def _selected_attributes(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ResidentSet:
    """One set of residents, and the orders in which prompts list statements and options.

    `stand_ins` replace the vulnerable residents at levels without vulnerable residents.
    """

    # Residents and orders are the same at all levels.
    number: int
    residents: tuple[Resident, ...]
    # For each round, the order in which prompts list its statements.
    orders: tuple[tuple[str, ...], ...]
    # Residents who replace the vulnerable ones at levels without vulnerable residents.
    stand_ins: tuple[Resident, ...]
    # The orders in which prompts list the options of a field, such as the stances.
    options: OptionOrders = field(default_factory=OptionOrders)


def make_set(
    config: TownHallConfig, profiles: Sequence[Resident], seed: int, number: int
) -> ResidentSet:
    """Draw one set: the residents, and the orders in which prompts list statements and options."""
    # The draw depends only on the study file, its seed and the number of the set.
    general, vulnerable = resident_ids(config.residents.general, len(profiles))
    resident_count = len(general) + len(vulnerable)
    # Stand-ins have ids after all others, so that no id means two residents in one set.
    stand_in_ids = [
        f"A{i:0{len(general[0]) - 1}d}"
        for i in range(resident_count + 1, resident_count + len(vulnerable) + 1)
    ]
    # Stand-ins are named together with the others, so that no name occurs twice in a set.
    all_residents = name_residents(
        (
            *sample_residents(config.residents, general, seed, number),
            *(
                resident.model_copy(update={"id": resident_id})
                for resident, resident_id in zip(profiles, vulnerable, strict=True)
            ),
            *sample_residents(config.residents, stand_in_ids, seed, number),
        ),
        seed,
        number,
    )
    all_ids = [resident.id for resident in all_residents[:resident_count]]
    rng = generator(seed, ("town_hall", f"set{number:02d}", "orders"))
    orders = tuple(
        tuple(all_ids[index] for index in rng.permutation(len(all_ids)))
        for _ in range(config.rounds)
    )
    options = draw_option_orders(seed, number)
    return ResidentSet(
        number, all_residents[:resident_count], orders, all_residents[resident_count:], options
    )


def shuffle_labels(people: Sequence[Resident], seed: int, set_no: int) -> tuple[Resident, ...]:
    """Return the residents with their labels shuffled.

    The labels say who is vulnerable, and in which way. The personas are not changed.
    """
    # A label consists of status (vulnerable or not), type and short name.
    rng = generator(seed, ("town_hall", f"set{set_no:02d}", "labels"))
    labels = ("is_vulnerable", "vulnerable_type", "label")
    shuffled = [
        people[index].model_dump(include=set(labels)) for index in rng.permutation(len(people))
    ]
    return tuple(
        resident.model_copy(update=attributes)
        for resident, attributes in zip(people, shuffled, strict=True)
    )


def with_stories(
    people: Sequence[Resident], story_setting: str, seed: int, set_no: int
) -> tuple[Resident, ...]:
    """Return the residents after adding or removing life stories.

    `story_setting`: `none` removes all stories. `all` gives a story to each resident who lacks one.
    """
    # New stories are about everyday life and have the mean length of the existing ones, so that
    # the length does not distinguish the residents.
    if story_setting == "none":
        return tuple(resident.model_copy(update={"story": ""}) for resident in people)
    lengths = [len(resident.story.split()) for resident in people if resident.story] or [
        STORY_WORDS
    ]
    word_count = round(sum(lengths) / len(lengths))
    # Each resident has a random stream, so that a further resident does not change another's story.
    rngs = {
        resident.id: generator(seed, ("town_hall", f"set{set_no:02d}", "story", resident.id))
        for resident in people
    }
    return tuple(
        resident
        if resident.story
        else resident.model_copy(
            update={"story": _draw_story(resident, word_count, rngs[resident.id])}
        )
        for resident in people
    )


def _draw_story(resident: Resident, word_count: int, rng: np.random.Generator) -> str:
    work_sentences = STORIES["work"][
        "retired" if resident.occupation.startswith("retired") else "working"
    ]
    sentences_by_topic = {
        "work": work_sentences,
        "neighbours": STORIES["neighbours"][resident.community_engagement],
    }
    topics = [
        list(sentences_by_topic.get(topic, sentences)) for topic, sentences in STORIES.items()
    ]
    story: list[str] = []
    # Take one sentence from each topic in turn until the story is long enough or none is left.
    while (words_left := word_count - sum(len(text.split()) for text in story)) > 0 and any(topics):
        topic = topics.pop(0)
        topics.append(topic)
        if topic:
            story.append(topic.pop(int(rng.integers(len(topic)))))
    # Keep the last sentence only if the story is then nearer to the wanted length.
    return " ".join(
        story if len(story) < 2 or -words_left <= len(story[-1].split()) / 2 else story[:-1]
    )


def name_residents(residents: Sequence[Resident], seed: int, set_no: int) -> tuple[Resident, ...]:
    """Return the residents, each with a name that fits the gender and age of that resident."""
    # The name is a given name. A family name is added if another resident of the set has the same
    # given name. Names of profiles are kept.
    rng = generator(seed, ("town_hall", f"set{set_no:02d}", "names"))
    sexes = [
        {"female": "F", "male": "M"}.get(resident.gender) or "FM"[rng.integers(2)]
        for resident in residents
    ]
    # The middle of a decade, or 50 if the age group gives no age. It only selects names in fashion.
    ages = [
        (bounds.youngest if (bounds := find_ages(resident.age_group)) else 45) + 5
        for resident in residents
    ]
    own_names = {resident.name for resident in residents if resident.name}
    drawn_names = draw_names(list(zip(sexes, ages, strict=True)), rng, taken=own_names)
    first_name_counts = Counter(name.split()[0] for name in drawn_names)
    short_names = [
        name if first_name_counts[name.split()[0]] > 1 else name.split()[0] for name in drawn_names
    ]
    return tuple(
        resident if resident.name else resident.model_copy(update={"name": name})
        for resident, name in zip(residents, short_names, strict=True)
    )


def resident_ids(general: int, vulnerable: int) -> tuple[list[str], list[str]]:
    """Return the ids of general residents and the ids of vulnerable residents, in two lists.

    An example of an id is `A01`.
    """
    width = max(2, len(str(general + vulnerable)))
    names = [f"A{i:0{width}d}" for i in range(1, general + vulnerable + 1)]
    return names[:general], names[general:]


def sample_residents(
    settings: ResidentSettings, names: Sequence[str], seed: int, set_no: int
) -> list[Resident]:
    """Return one general resident for each id in `names`."""
    # The draw depends only on the seed, the set and the id.
    joint = joint_shares(settings.ratios.income_level, settings.ratios.economic_pressure)
    return [
        _sample_resident(
            settings, joint, name, generator(seed, ("town_hall", f"set{set_no:02d}", name))
        )
        for name in names
    ]


def _sample_resident(
    settings: ResidentSettings, joint: NDArray[np.float64], resident: str, rng: np.random.Generator
) -> Resident:
    ratios = settings.ratios
    income = _draw_key(rng, ratios.income_level)
    pressure = _draw_key(rng, dict(zip(PRESSURES, joint[INCOMES.index(income)], strict=True)))
    age = _draw_key(rng, ratios.age_group)
    years = settings.residence_years
    ages = find_ages(age)
    # Only the age group of a sampled resident is known, so the youngest age of the group limits the
    # years of residence.
    max_years = min(years.high, ages.youngest or ages.oldest) if ages else years.high
    residence_years = min(
        int(np.clip(round(rng.normal(years.mean, years.sd)), years.low, years.high)), max_years
    )
    affords_by_lot = bool(rng.random() < settings.affords_in_between)
    work = settings.occupations.get(age) or OCCUPATIONS[age]
    # The order of these draws is fixed. A change would change all residents of existing seeds.
    attributes: dict[str, object] = {
        trait: _draw_key(rng, settings.personality) for trait in TRAITS
    }
    for name in ("gender", "ownership"):
        attributes[name] = _draw_key(rng, getattr(ratios, name))
    attributes["occupation"] = work[income][int(rng.integers(len(work[income])))]
    for name in ("participation_tendency", "information_access", "community_engagement"):
        attributes[name] = _draw_key(rng, getattr(ratios, name))
    fixed_attributes = {
        "id": resident,
        "age_group": age,
        "residence_years": residence_years,
        "income_level": income,
        "can_afford_contribution": can_afford_contribution(income, pressure, affords_by_lot),
        "economic_pressure": pressure,
    }
    return Resident.model_validate(fixed_attributes | attributes)


def _draw_key(rng: np.random.Generator, shares: Mapping[K, float]) -> K:
    keys = list(shares)
    weights = np.array([shares[key] for key in keys], dtype=float)
    # Normalise, because shares that sum to 1 only after rounding could leave a draw without a
    # category.
    edges = np.cumsum(weights / weights.sum())
    return keys[min(int(np.searchsorted(edges, rng.random(), side="right")), len(keys) - 1)]


def can_afford_contribution(income: str, pressure: str, by_lot: bool) -> bool:
    """Return whether a resident can pay a contribution to the costs.

    `by_lot`: a randomly drawn result. It is returned if income and pressure leave the question
    open.
    """
    if income == "low" or pressure == "struggling":
        return False
    if income == "high" or pressure == "comfortable":
        return True
    return by_lot


def find_contradiction(income: str, pressure: str, can_afford: bool) -> str:
    """Return why a resident's income, financial pressure and ability to pay do not fit together.

    Returns "" if there is no contradiction.
    """
    if income == "high" and pressure == "struggling":
        return "a high income and struggling contradict each other"
    if income == "low" and pressure == "comfortable":
        return "a low income and comfortable contradict each other"
    if can_afford != can_afford_contribution(income, pressure, can_afford):
        can = "can" if can_afford else "cannot"
        return f"{income} income, {pressure} and `{can} afford the contribution` contradict"
    return ""


def joint_shares(
    incomes: Mapping[str, float], pressures: Mapping[str, float]
) -> NDArray[np.float64]:
    """Return the share of each combination of income and pressure.

    There is one row per income and one column per pressure.
    """
    # The rows sum to `incomes` and the columns to `pressures`. Contradicting combinations have
    # share 0. The result is valid only if `joint_problem` returns "".
    rows = np.array([incomes.get(income, 0.0) for income in INCOMES])
    columns = np.array([pressures.get(pressure, 0.0) for pressure in PRESSURES])
    table = _AFFINITY.copy()
    # Iterative proportional fitting (Deming & Stephan 1940). Each pass fits the rows and then the
    # columns. The default ratios take 22 passes. Ratios at the edge of the possible converge
    # slowly, so the number is limited.
    for _ in range(5000):
        table *= _safe_ratio(rows, table.sum(axis=1))[:, None]
        table *= _safe_ratio(columns, table.sum(axis=0))[None, :]
        if np.abs(table.sum(axis=1) - rows).max() < 1e-12:
            break
    return table


def joint_problem(incomes: Mapping[str, float], pressures: Mapping[str, float]) -> str:
    """Return why some residents would get contradictory values of income and financial pressure.

    `incomes` and `pressures`: maps from value to share, from 0 to 1.

    Returns "" if a combination without contradictions exists.
    """
    low, high = incomes.get("low", 0.0), incomes.get("high", 0.0)
    comfortable, struggling = pressures.get("comfortable", 0.0), pressures.get("struggling", 0.0)
    if low + comfortable > 1 + 1e-9:
        return f"low income ({low:g}) and comfortable ({comfortable:g}) must not exceed 1 together"
    if high + struggling > 1 + 1e-9:
        return f"high income ({high:g}) and struggling ({struggling:g}) must not exceed 1 together"
    return ""


def _safe_ratio(target: NDArray[np.float64], current: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(target, current, out=np.zeros_like(target), where=current > 0)


# Vulnerable residents come from Markdown files with front matter. A researcher can edit, add or
# replace them.

BUILT_IN = Path(__file__).parent / "vulnerable"
# The word of the key `vulnerable` for the shipped profiles.
TOKEN = "builtin"


def load_profiles(places: Sequence[str], folder: Path) -> list[Resident]:
    """Return the vulnerable residents that the profile files describe. They have no ids yet.

    `places`: profile files, or folders with profile files.

    Raises InputError with all problems in all files.
    """
    # The ids of vulnerable residents follow those of the general residents, so they are given when
    # a set is drawn.
    residents, problems = read_profiles(places, folder)
    if problems:
        raise InputError(problems)
    return residents


def read_profiles(places: Sequence[str], folder: Path) -> tuple[list[Resident], list[Problem]]:
    """Return the readable profiles in order, and the problems of the unreadable ones.

    `places`: files and folders.
    """
    # Files of a folder are read in alphabetical order.
    residents: list[Resident] = []
    problems: list[Problem] = []
    for place in places:
        path = BUILT_IN if place == TOKEN else (folder / Path(place).expanduser())
        files = [path] if path.is_file() else sorted(path.glob("*.md")) if path.is_dir() else []
        if not files:
            message = f"no .md file in {path}" if path.is_dir() else f"there is no file {path}"
            hint = "name a profile, a folder of profiles, or `builtin`"
            problems.append(Problem(message, key="vulnerable", hint=hint))
        for file in files:
            try:
                residents.append(read_profile(file))
            except InputError as error:
                problems += error.problems
    return residents, problems


def read_profile(file: Path) -> Resident:
    """Return the resident that a profile describes.

    Raises InputError with the file, line and key of each problem.
    """
    name = str(file)
    try:
        # Editors on Windows write a byte-order mark and CRLF, which the pattern below does not
        # expect.
        text = file.read_text("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", name)) from error
    parts = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)(.*)", text, re.DOTALL)
    if parts is None:
        hint = "start the file with a line `---`, the fields, and a line `---`"
        raise InputError(Problem("no front matter", name, "1", hint=hint))
    # The added line replaces the first `---`, so that problems name the lines of the file.
    tree, story = parse_yaml("\n" + parts[1], name), parts[2].strip()
    problems = list(tree.problems)
    try:
        profile = VulnerableProfile.model_validate(tree.value, strict=True)
    except ValidationError as error:
        problems += [
            with_location(problem, name, 1)
            for problem in problems_from_validation(error, tree, VulnerableProfile)
        ]
        raise InputError(problems) from error
    if not story:
        hint = "below the second `---`, describe the person in a few sentences"
        problems.append(Problem("there is no description", name, hint=hint))
    if problems:
        raise InputError(problems)
    return Resident(is_vulnerable=True, story=story, **profile.model_dump())
