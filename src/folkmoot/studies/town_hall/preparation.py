"""What happens before a run of a town hall: checks, advisories and template files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.calls.model_routing import names_hosted_model
from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.errors import Problem
from folkmoot.hints import did_you_mean
from folkmoot.measures.inference.estimates import FEWEST_UNITS, format_count
from folkmoot.measures.inference.power import DesignSize
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import (
    BUILT_IN,
    Ratios,
    ResidentSettings,
    TownHallConfig,
    level_problems,
    levels_of,
)
from folkmoot.studies.town_hall.participants import BUILT_IN as BUILT_IN_PROFILES
from folkmoot.studies.town_hall.participants import (
    INCOMES,
    OCCUPATIONS,
    VulnerableProfile,
    find_ages,
    joint_problem,
    load_profiles,
    read_profiles,
)
from folkmoot.studies.town_hall.recording import RESIDENT

# Shares are written with few decimals, and sums of floating-point numbers are inexact.
TOLERANCE = 1e-6


def matches_study(raw: Mapping[str, object]) -> bool:
    """Return whether a study file that lacks the key `study` describes a town hall."""
    # Only a town hall has levels beside a topic with a background.
    topic = raw.get("topic")
    return isinstance(topic, Mapping) and "background" in topic and "levels" in raw


def limit_sets(config: TownHallConfig, max_sets: int) -> TownHallConfig:
    """Return a copy of the settings with at most `max_sets` sets."""
    return config.model_copy(update={"sets": min(config.sets, max_sets)})


def expected_rows(sealed: Mapping[str, Any]) -> list[ExpectedRows]:
    """Return the rows of discussions and residents that the pre-registered plan requires."""
    plan = sealed.get("discussions", {})
    discussion_rows = tuple(
        {
            "discussion_id": name,
            "set": int(name.partition("_")[0].removeprefix("set")),
            "level": name.partition("_lv")[2],
        }
        for name in plan.get("seats", {})
    )
    resident_rows = tuple(
        {
            "set": int(name.removeprefix("set")),
            **{column: resident[column] for column in ("id", "name", "occupation")},
        }
        for name, residents in plan.get("residents", {}).items()
        for resident in residents
    )
    return [
        ExpectedRows("discussions", ("discussion_id",), discussion_rows, "discussion", part="set"),
        ExpectedRows("residents", ("set", "id"), resident_rows, "resident"),
    ]


def unusable_reason(run: RunFolder) -> str:
    """Return why a run has no usable data.

    Returns "" for a usable run.
    """
    # A run is unusable if no resident made a readable statement in any discussion.
    statements = run.read_table("utterances").filter(speaker_role=RESIDENT, public=True)
    # A null in `missing` marks a statement that could be read.
    if statements.is_empty() or statements["missing"].null_count():
        return ""
    if (statements["missing"] == DECLINED).any():
        return "no resident made a statement: all declined or could not be read"
    return "no resident's statement could be read"


def template_files() -> dict[str, str | bytes]:
    """Return a map from path to content for the built-in profiles, which users may edit."""
    profiles = sorted(BUILT_IN_PROFILES.glob("*.md"))
    return {f"vulnerable/{file.name}": file.read_text("utf-8") for file in profiles}


def seat_models(config: TownHallConfig) -> list[str]:
    """Return the models that the levels name, each once."""
    # Models that are built into the levels are left out if the run uses no hosted model, for
    # example with `--model synthetic`.
    levels = levels_of(config)
    models = [model for level in levels for model in level.models]
    models += [level.moderator for level in levels if level.moderator not in ("none", "model")]
    # A run with the embedded respondent or a local model must not need keys of five vendors.
    if not names_hosted_model(config):
        settings = config.level_settings.values()
        file_models = {
            model
            for level_settings in settings
            for model in (*(level_settings.models or ()), level_settings.moderator)
        }
        models = [model for model in models if model in file_models]
    return list(dict.fromkeys(models))


def config_advisories(config: TownHallConfig) -> list[str]:
    """Return the advisories before a run, one per line."""
    levels = levels_of(config)
    count = format_count(config.sets * len(levels), "discussion")
    lines = [f"{format_count(config.sets, 'set')} x {format_count(len(levels), 'level')} = {count}"]
    if config.sets < FEWEST_UNITS:
        lines.append(f"fewer than {FEWEST_UNITS} sets are an illustration: no intervals, no tests")
    for key in ("gender", "ownership"):
        known_words = Ratios.model_fields[key].default
        for word in getattr(config.residents.ratios, key).keys() - known_words.keys():
            suggestion = did_you_mean(word, known_words)
            lines.append(
                f"prompts contain the {key} {word!r} exactly as written. {suggestion}".rstrip()
            )
    unlisted = [
        name for name in config.level_settings if name not in BUILT_IN and name not in config.levels
    ]
    lines += [
        f"level_settings describes level {name}, but levels does not list it" for name in unlisted
    ]
    supplementary = [level.name for level in levels if level.part != "main"]
    if supplementary:
        lines.append(
            f"reported apart, not in the main comparison: level {', '.join(supplementary)}"
        )
    return lines


def find_problems(config: TownHallConfig, folder: Path) -> list[Problem]:
    """Return the problems of a study file, such as a profile that cannot be read."""
    profiles, problems = read_profiles(config.vulnerable, folder)
    # With unreadable profiles the number of vulnerable residents is unknown. Zero avoids follow-up
    # problems.
    problems += level_problems(config, 0 if problems else len(profiles))
    known_keys = {"all", *config.residents.ratios.ownership}
    known_keys |= {
        word
        for resident in profiles
        for word in (resident.ownership, resident.vulnerable_type or "", resident.label)
    }
    for key in ("contributions", "stakes"):
        for group in getattr(config.topic, key).keys() - known_keys:
            hint = did_you_mean(group, known_keys, f"known are {', '.join(sorted(known_keys))}")
            message = "this key matches no resident"
            problems.append(Problem(message, key=f"topic.{key}.{group}", hint=hint))
    labels = [resident.label for resident in profiles]
    # Tables and topic entries name vulnerable residents by label.
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        message = f"two vulnerable profiles have the label {label!r}"
        hint = "give each its own label, or list each file once"
        problems.append(Problem(message, key="vulnerable", hint=hint))
    return [*problems, *_check_residents(config.residents)]


def _check_residents(settings: ResidentSettings) -> list[Problem]:
    problems: list[Problem] = []
    for name in Ratios.model_fields:
        shares, key = getattr(settings.ratios, name), f"residents.ratios.{name}"
        # Any age group with occupations is allowed, and any word for gender and ownership. The
        # other categories are limited to those that the prompts can express.
        if options := get_args(VulnerableProfile.model_fields[name].annotation):
            problems += _check_known_shares(shares, options, key)
        problems += _check_sum_is_one(shares, key)
    personality = {str(key): value for key, value in settings.personality.items()}
    problems += _check_known_shares(personality, tuple("12345"), "residents.personality")
    problems += _check_sum_is_one(personality, "residents.personality")
    years = settings.residence_years
    if years.low >= years.high:
        message = f"low ({years.low}) is not below high ({years.high})"
        problems.append(
            Problem(message, key="residents.residence_years", hint="swap the two values")
        )
    for group, share in settings.ratios.age_group.items():
        ages = find_ages(group)
        if share and years.low < years.high and ages and years.low > (ages.youngest or ages.oldest):
            message = f"low ({years.low}) is above the lowest age of age group {group}"
            key, hint = (
                "residents.residence_years.low",
                "residents cannot live here longer than their age",
            )
            problems.append(Problem(message, key=key, hint=f"{hint}: lower it"))
    problems += _check_occupations(settings)
    # Contradicting shares are reported only if each of them is valid by itself.
    if not problems:
        contradiction = joint_problem(
            settings.ratios.income_level, settings.ratios.economic_pressure
        )
        if contradiction:
            key = "residents.ratios.economic_pressure"
            message = f"these shares contradict each other: {contradiction}"
            problems.append(Problem(message, key=key, hint="lower one of the two"))
    return problems


def _check_known_shares(
    shares: Mapping[str, object], options: Sequence[str], key: str
) -> list[Problem]:
    problems = []
    for name in shares:
        if name not in options:
            hint = did_you_mean(name, options, f"known are {', '.join(options)}")
            problems.append(Problem("unknown category", key=f"{key}.{name}", hint=hint))
    return problems


def _check_sum_is_one(shares: Mapping[str, float], key: str) -> list[Problem]:
    total = math.fsum(shares.values())
    if abs(total - 1) <= TOLERANCE:
        return []
    excess = total - 1
    hint = f"subtract {excess:g}" if excess > 0 else f"add {-excess:g}"
    return [Problem(f"the shares sum to {total:g}, not to 1", key=key, hint=hint)]


def _check_occupations(settings: ResidentSettings) -> list[Problem]:
    problems = []
    for age, share in settings.ratios.age_group.items():
        occupations: Mapping[str, Sequence[str]] = settings.occupations.get(age) or OCCUPATIONS.get(
            age, {}
        )
        missing_incomes = [income for income in INCOMES if not occupations.get(income)]
        if share and missing_incomes:
            message = f"age group {age} has no occupations for {', '.join(missing_incomes)} income"
            hint = f"add residents.occupations: {{{age!r}: {{low: […], middle: […], high: […]}}}}"
            problems.append(Problem(message, key=f"residents.ratios.age_group.{age}", hint=hint))
    return problems


def design_size(config: TownHallConfig, folder: Path) -> DesignSize:
    """Return the size of the design for `folkmoot power`."""
    # Every set takes part at all levels.
    resident_count = config.residents.general + len(load_profiles(config.vulnerable, folder))
    key = ("sets", config.sets)
    return DesignSize("paired", len(config.levels), config.sets, resident_count, "set", key)
