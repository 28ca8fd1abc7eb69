"""Checks of a study file that need more than one key, or the files that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.studies.town_hall.config import Ratios, ResidentSettings, TownHallConfig
from folkmoot.studies.town_hall.levels import BUILT_IN, level_problems, levels_of
from folkmoot.studies.town_hall.participants import (
    CATEGORIES,
    INCOMES,
    OCCUPATIONS,
    joint_problem,
    read_profiles,
)

TOLERANCE = 1e-6
# Age groups may be any that have occupations; the other attributes are what prompts can word.
_FREE = ("age_group",)


def problems(config: TownHallConfig, folder: Path) -> list[Problem]:
    """Every mistake that the types alone do not show."""
    profiles, found = read_profiles(config.vulnerable, folder)
    if not found:
        found = [*level_problems(config, len(profiles)), *_same_label(profiles)]
    else:
        found += level_problems(config, 0)
    return [*found, *_residents(config.residents)]


def seat_models(config: TownHallConfig) -> list[str]:
    """Models that the levels' seats and moderators name by themselves."""
    named = [m for level in levels_of(config) for m in level.models]
    named += [
        level.moderator for level in levels_of(config) if level.moderator not in ("none", "model")
    ]
    return list(dict.fromkeys(named))


def notes(config: TownHallConfig) -> list[str]:
    """What a user should know before the run."""
    levels = levels_of(config)
    count = config.sets * len(levels)
    lines = [f"{_many(config.sets, 'set')} x {_many(len(levels), 'level')}"]
    lines[0] += f" = {_many(count, 'discussion')}"
    if config.sets == 1:
        lines.append("with one set there are no intervals and no tests between levels")
    idle = [n for n in config.level_settings if n not in BUILT_IN and n not in config.levels]
    lines += [f"level_settings describes level {n}, which levels does not run" for n in idle]
    apart = [level.name for level in levels if level.part != "main"]
    if apart:
        lines.append(f"reported apart, not in the main comparison: level {', '.join(apart)}")
    return lines


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _residents(settings: ResidentSettings) -> list[Problem]:
    found: list[Problem] = []
    for name in Ratios.model_fields:
        found += _shares(getattr(settings.ratios, name), name)
    personality = {str(k): v for k, v in settings.personality.items()}
    found += _known(personality, tuple("12345"), "residents.personality")
    found += _sums_to_one(personality, "residents.personality")
    years = settings.residence_years
    if years.low >= years.high:
        what = f"low ({years.low}) is not below high ({years.high})"
        found.append(Problem(what, key="residents.residence_years", mend="swap them"))
    found += _occupations(settings)
    if not found:
        clash = joint_problem(settings.ratios.income_level, settings.ratios.economic_pressure)
        if clash:
            key = "residents.ratios.economic_pressure"
            what = f"no residents without contradictions can have these shares: {clash}"
            found.append(Problem(what, key=key, mend="lower one of the two"))
    return found


def _shares(shares: Mapping[str, float], name: str) -> list[Problem]:
    key = f"residents.ratios.{name}"
    unknown = [] if name in _FREE else _known(shares, CATEGORIES[name], key)
    return [*unknown, *_sums_to_one(shares, key)]


def _known(shares: Mapping[str, Any], options: Sequence[str], key: str) -> list[Problem]:
    found = []
    for name in shares:
        if name not in options:
            mend = did_you_mean(name, options, f"known are {', '.join(options)}")
            found.append(Problem("there is no such category", key=f"{key}.{name}", mend=mend))
    return found


def _sums_to_one(shares: Mapping[str, float], key: str) -> list[Problem]:
    total = sum(shares.values())
    if abs(total - 1) <= TOLERANCE:
        return []
    over = total - 1
    mend = f"take {over:g} away" if over > 0 else f"add {-over:g}"
    return [Problem(f"the shares sum to {total:g}, not to 1", key=key, mend=mend)]


def _occupations(settings: ResidentSettings) -> list[Problem]:
    found = []
    for age, share in settings.ratios.age_group.items():
        own: Mapping[str, Sequence[str]] = settings.occupations.get(age) or OCCUPATIONS.get(age, {})
        lacking = [i for i in INCOMES if not own.get(i)]
        if share and lacking:
            what = f"age group {age} has no occupations for {', '.join(lacking)} income"
            mend = f"add residents.occupations: {{{age!r}: {{low: […], middle: […], high: […]}}}}"
            found.append(Problem(what, key=f"residents.ratios.age_group.{age}", mend=mend))
    return found


def _same_label(profiles: Sequence[Any]) -> list[Problem]:
    labels = [p.label for p in profiles]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    return [
        Problem(
            f"two vulnerable profiles have the label {label!r}",
            key="vulnerable",
            mend="give each a label of its own, or name each file once",
        )
        for label in twice
    ]
