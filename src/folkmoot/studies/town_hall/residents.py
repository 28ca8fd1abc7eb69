"""Residents: what is known of each, and the sampling of the sixteen general ones of a set.

Income, pressure and affordability must not contradict each other. The rule: nobody with a high
income is struggling and nobody with a low income is comfortable; within that, pressure follows
income so that both ratios are met exactly. Who is comfortable, or has a high income, can afford
the contribution; who is struggling, or has a low income, cannot; in between a coin decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkmoot.randomness import generator
from folkmoot.studies.town_hall.config import ResidentSettings
from folkmoot.studies.town_hall.occupations import OCCUPATIONS

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
