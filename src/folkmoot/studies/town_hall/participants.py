"""Who takes part: the sampled general residents of a set and the vulnerable ones of the profiles.

Income, pressure and affordability must not contradict each other. The rule: nobody with a high
income is struggling and nobody with a low income is comfortable; within that, pressure follows
income so that both ratios are met exactly. Who is comfortable, or has a high income, can afford
the contribution; who is struggling, or has a low income, cannot; in between a coin decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.config import ResidentSettings, TownHallConfig

OCCUPATIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "30s": {
        "low": ("parcel courier", "kitchen hand", "call-centre clerk", "home carer"),
        "middle": ("primary-school teacher", "nurse", "office clerk", "electrician"),
        "high": ("software engineer", "pharmacist", "dentist", "product manager"),
    },
    "40s": {
        "low": ("cleaner", "market stallholder", "warehouse worker", "school-canteen cook"),
        "middle": ("café owner", "bus driver", "civil servant", "physiotherapist"),
        "high": ("lawyer", "sales director", "surgeon", "architect"),
    },
    "50s": {
        "low": ("taxi driver", "night guard", "seamstress", "cook in a small restaurant"),
        "middle": ("shopkeeper", "factory foreman", "secondary-school teacher", "bank clerk"),
        "high": ("company owner", "accountant", "hospital consultant", "estate agent"),
    },
    "60s": {
        "low": ("janitor", "retired bus conductor", "street-food seller", "part-time caretaker"),
        "middle": ("retired teacher", "hardware-shop owner", "retired postal worker", "barber"),
        "high": ("retired executive", "landlord", "notary", "retired airline pilot"),
    },
    "70s+": {
        "low": ("retired factory worker", "retired farm worker", "retired cleaner"),
        "middle": ("retired civil servant", "retired nurse", "retired tailor"),
        "high": ("retired doctor", "retired company owner", "retired professor"),
    },
}

INCOMES = ("low", "middle", "high")
PRESSURES = ("comfortable", "moderate", "struggling")
TRAITS = ("assertiveness", "openness", "risk_tolerance", "community_orientation")
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "age_group": tuple(OCCUPATIONS),
    "gender": ("male", "female"),
    "ownership": ("owner", "tenant"),
    "income_level": INCOMES,
    "economic_pressure": PRESSURES,
    "participation_tendency": ("active", "moderate", "passive"),
    "information_access": ("high", "medium", "low"),
    "community_engagement": ("active", "moderate", "minimal"),
}
VULNERABLE_TYPES = ("housing", "participation")

# How much likelier a pressure is under an income, before both ratios are met; 0 is never.
_AFFINITY = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 1.0], [2.0, 1.0, 0.0]])


@dataclass(frozen=True, slots=True)
class Resident:
    """One resident, with the standardised fields of the source.

    `story` is the free text of a vulnerable profile, `label` a short name of it for tables.
    """

    id: str
    age_group: str
    gender: str
    residence_years: int
    ownership: str
    occupation: str
    assertiveness: int
    openness: int
    risk_tolerance: int
    community_orientation: int
    income_level: str
    can_afford_contribution: bool
    economic_pressure: str
    participation_tendency: str
    information_access: str
    community_engagement: str
    is_vulnerable: bool = False
    vulnerable_type: str | None = None
    label: str = ""
    story: str = field(default="", repr=False)

    def to_json(self) -> dict[str, Any]:
        """The fields in the groups of the source's persona format."""
        return {
            "id": self.id,
            "label": self.label,
            "demographics": self._some(
                "age_group", "gender", "residence_years", "ownership", "occupation"
            ),
            "personality": self._some(*TRAITS),
            "economic": self._some("income_level", "can_afford_contribution"),
            "state": self._some("economic_pressure", "participation_tendency"),
            "context": self._some("information_access", "community_engagement"),
            "classification": self._some("is_vulnerable", "vulnerable_type"),
        }

    def to_row(self) -> dict[str, Any]:
        """One flat record."""
        row = asdict(self)
        del row["story"]
        return row

    def _some(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ResidentSet:
    """What all levels of a set have in common: the residents and the orders of speaking.

    `orders` has one order per round: that in which the round's statements are listed.
    """

    number: int
    residents: tuple[Resident, ...]
    orders: tuple[tuple[str, ...], ...]


def make_set(
    config: TownHallConfig, profiles: Sequence[Resident], seed: int, number: int
) -> ResidentSet:
    """The residents of one set and who speaks when; a function of seed and set alone."""
    general, vulnerable = ids(config.residents.general, len(profiles))
    residents = (
        *sample_residents(config.residents, general, seed, number),
        *with_ids(profiles, vulnerable),
    )
    names = [r.id for r in residents]
    rng = generator(seed, ("town_hall", f"set{number:02d}", "orders"))
    orders = tuple(
        tuple(names[i] for i in rng.permutation(len(names))) for _ in range(config.rounds)
    )
    return ResidentSet(number, residents, orders)


def ids(general: int, vulnerable: int) -> tuple[list[str], list[str]]:
    """Ids of the general and of the vulnerable residents: A01–A16 and A17–A20."""
    width = max(2, len(str(general + vulnerable)))
    names = [f"A{i:0{width}d}" for i in range(1, general + vulnerable + 1)]
    return names[:general], names[general:]


def sample_residents(
    settings: ResidentSettings, names: Sequence[str], seed: int, set_no: int
) -> list[Resident]:
    """The general residents of one set, one for each of `names`; a function of seed and set."""
    both = joint(settings.ratios.income_level, settings.ratios.economic_pressure)
    return [
        _sample_one(settings, both, name, generator(seed, ("town_hall", f"set{set_no:02d}", name)))
        for name in names
    ]


def _sample_one(
    settings: ResidentSettings, both: NDArray[np.float64], name: str, rng: np.random.Generator
) -> Resident:
    ratios = settings.ratios
    income = _draw(rng, ratios.income_level)
    pressure = _draw(rng, dict(zip(PRESSURES, both[INCOMES.index(income)], strict=True)))
    age = _draw(rng, ratios.age_group)
    years = settings.residence_years
    lived = int(np.clip(round(rng.normal(years.mean, years.sd)), years.low, years.high))
    coin = bool(rng.random() < settings.affords_in_between)
    work = settings.occupations.get(age) or OCCUPATIONS[age]
    traits = {trait: int(_draw(rng, settings.personality)) for trait in TRAITS}
    return Resident(
        id=name,
        age_group=age,
        gender=_draw(rng, ratios.gender),
        residence_years=lived,
        ownership=_draw(rng, ratios.ownership),
        occupation=str(work[income][int(rng.integers(len(work[income])))]),
        assertiveness=traits["assertiveness"],
        openness=traits["openness"],
        risk_tolerance=traits["risk_tolerance"],
        community_orientation=traits["community_orientation"],
        income_level=income,
        can_afford_contribution=affords(income, pressure, coin),
        economic_pressure=pressure,
        participation_tendency=_draw(rng, ratios.participation_tendency),
        information_access=_draw(rng, ratios.information_access),
        community_engagement=_draw(rng, ratios.community_engagement),
    )


def _draw(rng: np.random.Generator, shares: Mapping[Any, float]) -> Any:
    names = list(shares)
    weights = np.array([shares[n] for n in names], dtype=float)
    # A share that does not quite sum to 1 by rounding must not fall off the end.
    edges = np.cumsum(weights / weights.sum())
    return names[min(int(np.searchsorted(edges, rng.random(), side="right")), len(names) - 1)]


def affords(income: str, pressure: str, coin: bool) -> bool:
    """Can this resident pay the contribution? Decided by income and pressure where they can."""
    if income == "low" or pressure == "struggling":
        return False
    if income == "high" or pressure == "comfortable":
        return True
    return coin


def contradiction(income: str, pressure: str, can_afford: bool) -> str:
    """Why these three cannot be true of one person, or an empty text."""
    if income == "high" and pressure == "struggling":
        return "a high income and struggling contradict each other"
    if income == "low" and pressure == "comfortable":
        return "a low income and comfortable contradict each other"
    if can_afford != affords(income, pressure, can_afford):
        can = "can" if can_afford else "cannot"
        return f"{income} income, {pressure} and `{can} afford the contribution` contradict"
    return ""


def joint(incomes: Mapping[str, float], pressures: Mapping[str, float]) -> NDArray[np.float64]:
    """Shares by income (rows) and pressure (columns): both ratios met, contradictions empty.

    Iterative proportional fitting of the affinities (Deming & Stephan 1940). Meaningful only
    where `joint_problem` is empty.
    """
    rows = np.array([incomes.get(i, 0.0) for i in INCOMES])
    columns = np.array([pressures.get(p, 0.0) for p in PRESSURES])
    table = _AFFINITY.copy()
    for _ in range(5000):
        table *= _ratio(rows, table.sum(axis=1))[:, None]
        table *= _ratio(columns, table.sum(axis=0))[None, :]
        if np.abs(table.sum(axis=1) - rows).max() < 1e-12:
            break
    return table


def joint_problem(incomes: Mapping[str, float], pressures: Mapping[str, float]) -> str:
    """Why no population can have both ratios without contradictions, or an empty text."""
    low, high = incomes.get("low", 0.0), incomes.get("high", 0.0)
    comfortable, struggling = pressures.get("comfortable", 0.0), pressures.get("struggling", 0.0)
    if low + comfortable > 1 + 1e-9:
        return f"low income ({low:g}) and comfortable ({comfortable:g}) must not exceed 1 together"
    if high + struggling > 1 + 1e-9:
        return f"high income ({high:g}) and struggling ({struggling:g}) must not exceed 1 together"
    return ""


def _ratio(wanted: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(wanted, there, out=np.zeros_like(wanted), where=there > 0)


BUILT_IN = Path(__file__).parent / "vulnerable"
TOKEN = "builtin"
NEEDED = (
    "label",
    "vulnerable_type",
    "age_group",
    "gender",
    "residence_years",
    "ownership",
    "occupation",
    *TRAITS,
    "income_level",
    "can_afford_contribution",
    "economic_pressure",
    "participation_tendency",
    "information_access",
    "community_engagement",
)
_OPTIONS = {**CATEGORIES, "vulnerable_type": VULNERABLE_TYPES}


@dataclass(frozen=True, slots=True)
class _FrontMatter:
    """Values, the line of each, and the text below; `error` when it cannot be read."""

    values: dict[str, Any]
    lines: dict[str, int]
    body: str
    error: Problem | None = None


def load_profiles(places: Sequence[str], folder: Path) -> list[Resident]:
    """The vulnerable residents that a study file names, still without ids.

    Raises InputError with every problem of every file.
    """
    found, problems = read_profiles(places, folder)
    if problems:
        raise InputError(problems)
    return found


def read_profiles(places: Sequence[str], folder: Path) -> tuple[list[Resident], list[Problem]]:
    """Profiles that can be read, in order, and what is wrong with the others."""
    files, problems = profile_files(places, folder)
    residents: list[Resident] = []
    for file in files:
        resident, own = read_profile(file)
        problems.extend(own)
        if resident is not None:
            residents.append(resident)
    return residents, problems


def profile_files(places: Sequence[str], folder: Path) -> tuple[list[Path], list[Problem]]:
    """The markdown files that are meant; folders give theirs in order of name."""
    files: list[Path] = []
    problems: list[Problem] = []
    for place in places:
        path = BUILT_IN if place == TOKEN else (folder / Path(place).expanduser())
        if path.is_file():
            files.append(path)
            continue
        inside = sorted(path.glob("*.md")) if path.is_dir() else []
        files.extend(inside)
        if not inside:
            what = f"no .md file in {path}" if path.is_dir() else f"there is no file {path}"
            mend = "name a profile, a folder of profiles, or `builtin`"
            problems.append(Problem(what, key="vulnerable", mend=mend))
    return files, problems


def read_profile(file: Path) -> tuple[Resident | None, list[Problem]]:
    """One profile, or what is wrong with it, each problem with file, line and key."""
    matter = _front_matter(file)
    if matter.error is not None:
        return None, [matter.error]
    problems = [
        *_missing(file, matter),
        *_unknown(file, matter),
        *(p for name in NEEDED if (p := _wrong(file, matter, name)) is not None),
    ]
    if not matter.body:
        mend = "below the second `---`, tell who this is in a few sentences"
        problems.append(Problem("there is no description", str(file), mend=mend))
    if problems:
        return None, problems
    resident = Resident(id="", is_vulnerable=True, story=matter.body, **matter.values)
    clash = contradiction(
        resident.income_level, resident.economic_pressure, resident.can_afford_contribution
    )
    if clash:
        where = str(matter.lines["economic_pressure"])
        mend = "change one of the three"
        return None, [Problem(clash, str(file), where, "economic_pressure", mend)]
    return resident, []


def with_ids(profiles: Sequence[Resident], names: Sequence[str]) -> list[Resident]:
    """The same residents under their ids in the hall."""
    return [replace(p, id=name) for p, name in zip(profiles, names, strict=True)]


def _front_matter(file: Path) -> _FrontMatter:
    try:
        text = file.read_text("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        return _FrontMatter({}, {}, "", Problem(f"cannot be read: {error}", str(file)))
    parts = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)(.*)", text, re.DOTALL)
    if parts is None:
        mend = "begin the file with a line `---`, the fields, and a line `---`"
        return _FrontMatter({}, {}, "", Problem("no front matter", str(file), "1", mend=mend))
    try:
        node = yaml.compose(parts[1])
        values = yaml.safe_load(parts[1])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = str(mark.line + 2) if mark else ""
        what = f"the front matter is no YAML: {getattr(error, 'problem', error)}"
        return _FrontMatter({}, {}, "", Problem(what, str(file), where))
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        return _FrontMatter({}, {}, "", Problem("no `key: value` lines", str(file), "2"))
    # The front matter begins on the file's second line.
    lines = {str(key.value): key.start_mark.line + 2 for key, _ in node.value}
    named = {str(key): value for key, value in values.items()}
    return _FrontMatter(named, lines, parts[2].strip())


def _missing(file: Path, matter: _FrontMatter) -> list[Problem]:
    return [
        Problem("this field is missing", str(file), "1", name, f"add {name}: {_hint(name)}")
        for name in NEEDED
        if matter.values.get(name) is None
    ]


def _unknown(file: Path, matter: _FrontMatter) -> list[Problem]:
    problems = []
    for name in matter.values:
        if name not in NEEDED:
            mend = did_you_mean(name, NEEDED, "take it out")
            where = str(matter.lines.get(name, ""))
            problems.append(Problem("there is no such field", str(file), where, name, mend))
    return problems


def _wrong(file: Path, matter: _FrontMatter, name: str) -> Problem | None:
    value = matter.values.get(name)
    if value is None or _fits(name, value):
        return None
    where = str(matter.lines[name])
    return Problem(f"{value!r} does not fit", str(file), where, name, f"write {_hint(name)}")


def _fits(name: str, value: Any) -> bool:
    if name in _OPTIONS:
        return value in _OPTIONS[name]
    if name == "can_afford_contribution":
        return isinstance(value, bool)
    if name in TRAITS or name == "residence_years":
        top = 5 if name in TRAITS else 100
        low = 1 if name in TRAITS else 0
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= top
    return isinstance(value, str) and bool(value.strip())


def _hint(name: str) -> str:
    if name in _OPTIONS:
        return " or ".join(_OPTIONS[name])
    if name == "can_afford_contribution":
        return "true or false"
    if name in TRAITS:
        return "a whole number from 1 to 5"
    return "a number of years" if name == "residence_years" else "a few words"
