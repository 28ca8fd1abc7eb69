"""Vulnerable residents: markdown files with front matter, which a user can edit, add or replace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.studies.town_hall.residents import (
    CATEGORIES,
    TRAITS,
    VULNERABLE_TYPES,
    Resident,
    contradiction,
)

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
