"""Users' own groups: YAML, JSON or CSV with roles, weights, personas or ready-made preferences.

YAML and JSON hold a list of groups (or `groups:`), each with `id`, `type` and `members`; CSV has
one row a member. Every mistake is found at once, with its line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folkmoot.engine.yaml_tree import read_tree
from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv
from folkmoot.studies.negotiation.groups import (
    TYPE_IDS,
    Draft,
    Group,
    build_group,
    group_type,
    problems_of,
    role_id,
)
from folkmoot.studies.negotiation.slots import LODGING, SLOTS, TOPICS

Weights = Mapping[str, Mapping[str, float]]
_MEMBER_KEYS = ("role", "name", "weight", "persona", "preferences")
_GROUP_KEYS = ("id", "type", "members")
_CSV_KEYS = ("group_id", "group_type", "role", "name", "weight", "persona", *SLOTS, *LODGING)
MOST_BYTES = 20_000_000


@dataclass(slots=True)
class _Raw:
    """A group as a file states it, with where it stands."""

    id: str
    type: str
    members: list[Mapping[str, Any]]
    where: str = ""
    problems: list[Problem] = field(default_factory=list)


def read_groups(path: Path, weights: Weights | None = None) -> list[Group]:
    """The groups of a file, in its order. Raises InputError with every mistake.

    `weights` (group type → role → weight) stand where the file gives a member none.
    """
    name = str(path)
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("is not UTF-8", file=name, mend="save it as UTF-8")) from error
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", file=name)) from error
    if len(data) > MOST_BYTES:
        raise InputError(Problem("is larger than any file of groups (20 MB)", file=name))
    raw = _from_csv(text, name) if path.suffix.lower() == ".csv" else _from_tree(text, name)
    return build(raw, weights or {}, name)


def from_entries(entries: Sequence[Any], weights: Weights, key: str = "groups") -> list[Group]:
    """The groups of a study file's own `groups:` list."""
    return build(_entries(entries, {}), weights, "", key)


def build(raw: Sequence[_Raw], weights: Weights, file: str, key: str = "") -> list[Group]:
    """Groups from what a file states. Raises InputError with every mistake."""
    problems: list[Problem] = []
    groups: list[Group] = []
    if not raw:
        problems.append(Problem("holds no group", file=file, key=key))
    for entry in raw:
        faults, group = _group(entry, weights)
        groups += [group] if group else []
        problems += [
            Problem(p.message, file=file, where=p.where or entry.where, key=key, mend=p.mend)
            for p in faults
        ]
    ids = [e.id.casefold() for e in raw]
    problems += [
        Problem(f"the group id `{i}` stands twice", file=file, key=key)
        for i in sorted({i for i in ids if ids.count(i) > 1})
    ]
    if problems:
        raise InputError(problems)
    return groups


def _group(entry: _Raw, weights: Weights) -> tuple[list[Problem], Group | None]:
    problems = list(entry.problems)
    kind = group_type(entry.type)
    if kind is None:
        given = f"unknown group type `{entry.type}`" if entry.type else "no group type"
        known = "types are " + ", ".join(TYPE_IDS)
        problems.append(Problem(f"group `{entry.id}`: {given}", mend=known))
    drafts: list[Draft] = []
    for number, member in enumerate(entry.members, start=1):
        draft, faults = _draft(member, f"group `{entry.id}`: member {number}")
        problems += faults
        drafts += [draft] if draft else []
    if kind is None or problems:
        return problems, None
    group = build_group(entry.id, kind, drafts, weights.get(kind.id))
    return problems_of(group), group


def _draft(member: Mapping[str, Any], who: str) -> tuple[Draft | None, list[Problem]]:
    problems: list[Problem] = []
    where = str(member.get("_line", ""))

    def say(message: str, mend: str = "") -> None:
        problems.append(Problem(f"{who} {message}", where=where, mend=mend))

    unknown = [k for k in member if k not in _MEMBER_KEYS and k != "_line"]
    for name in unknown:
        say(f"has an unknown key `{name}`", f"keys are {', '.join(_MEMBER_KEYS)}")
    role = str(member.get("role") or "").strip()
    if not role:
        say("has no role")
    weight, fault = _weight(member.get("weight"))
    if fault:
        say(fault, "a number above 0")
    preferences, faults = _preferences(member.get("preferences"))
    for fault in faults:
        say(fault)
    if problems:
        return None, problems
    return (
        Draft(
            role=role_id(role),
            persona=str(member.get("persona") or "").strip(),
            name=str(member.get("name") or "").strip(),
            weight=weight,
            preferences=preferences,
        ),
        [],
    )


def _weight(given: Any) -> tuple[float | None, str]:
    if given is None or given == "":
        return None, ""
    try:
        weight = float(given)
    except (TypeError, ValueError):
        return None, f"has weight `{given}`"
    return (weight, "") if math.isfinite(weight) and weight > 0 else (None, f"has weight {given}")


def _preferences(given: Any) -> tuple[dict[str, str], list[str]]:
    """Topic → text. `lodging` may be one text for both halves, or a mapping of the two."""
    if given is None:
        return {}, []
    if not isinstance(given, Mapping):
        return {}, ["has preferences that are no mapping of slot to text"]
    found: dict[str, str] = {}
    faults: list[str] = []
    for slot, value in given.items():
        inner = value if isinstance(value, Mapping) and slot == "lodging" else {slot: value}
        for key, text in inner.items():
            if key not in TOPICS and key != "lodging":
                faults.append(
                    f"has a preference for `{key}`, which is no slot ({', '.join(SLOTS)})"
                )
            elif text is not None and not isinstance(text, (str, int, float)):
                faults.append(f"has a preference for {key} that is no text")
            elif text is not None and str(text).strip():
                for topic in LODGING if key == "lodging" else (key,):
                    found.setdefault(topic, str(text).strip())
    return found, faults


def _from_tree(text: str, name: str) -> list[_Raw]:
    tree = read_tree(text, name)
    if tree.problems:
        raise InputError(tree.problems)
    data = tree.value
    prefix: tuple[str | int, ...] = ()
    if isinstance(data, Mapping) and "groups" in data:
        data, prefix = data["groups"], ("groups",)
    if not isinstance(data, list):
        raise InputError(Problem("is no list of groups", file=name, mend="begin with `groups:`"))
    lines: dict[tuple[int, ...], str] = {}
    for path, place in tree.places.items():
        if path[: len(prefix)] == prefix:
            rest = path[len(prefix) :]
            if len(rest) == 1 and isinstance(rest[0], int):
                lines[rest[0],] = str(place.line)
            if len(rest) == 3 and rest[1] == "members":
                lines[int(rest[0]), int(rest[2])] = str(place.line)
    return _entries(data, lines)


def _entries(data: Sequence[Any], lines: Mapping[tuple[int, ...], str]) -> list[_Raw]:
    raw: list[_Raw] = []
    for n, entry in enumerate(data):
        where = lines.get((n,), "")
        if not isinstance(entry, Mapping):
            fault = Problem(f"group {n + 1} is no mapping with id, type and members", where=where)
            raw.append(_Raw(f"group_{n + 1}", "family", [], where, [fault]))
            continue
        group = _Raw(
            str(entry.get("id") or f"group_{n + 1:02d}"), str(entry.get("type") or ""), [], where
        )
        for key in entry:
            if key not in _GROUP_KEYS:
                group.problems.append(
                    Problem(
                        f"group `{group.id}` has an unknown key `{key}`",
                        mend=f"keys are {', '.join(_GROUP_KEYS)}",
                    )
                )
        members = entry.get("members")
        if not isinstance(members, list) or not all(isinstance(m, Mapping) for m in members):
            group.problems.append(Problem(f"group `{group.id}` has no list of members"))
            members = []
        group.members = [{**m, "_line": lines.get((n, i), where)} for i, m in enumerate(members)]
        raw.append(group)
    return raw


def _from_csv(text: str, name: str) -> list[_Raw]:
    columns, rows = read_csv(text)
    lacking = [c for c in ("group_id", "group_type", "role") if c not in columns]
    unknown = [c for c in columns if c not in _CSV_KEYS]
    known = f"columns are {', '.join(_CSV_KEYS)}"
    problems = [Problem(f"no column `{c}`", file=name, where="1", mend=known) for c in lacking]
    problems += [
        Problem(f"unknown column `{c}`", file=name, where="1", mend=known) for c in unknown
    ]
    if problems:
        raise InputError(problems)
    groups: dict[str, _Raw] = {}
    for line, cells in rows:
        where = str(line)
        group = groups.setdefault(
            cells["group_id"], _Raw(cells["group_id"], cells["group_type"], [], where)
        )
        if not group.id:
            group.problems.append(Problem("a row without group_id", where=where))
        if cells["group_type"] not in ("", group.type):
            group.problems.append(
                Problem(
                    f"group `{group.id}` is {group.type} and {cells['group_type']}", where=where
                )
            )
        preferences = {k: cells[k] for k in (*LODGING, *SLOTS) if cells.get(k)}
        group.members.append(
            {
                **{k: cells.get(k, "") for k in ("role", "name", "weight", "persona")},
                "preferences": preferences,
                "_line": where,
            }
        )
    return list(groups.values())
