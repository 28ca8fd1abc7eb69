"""Groups of travellers, and users' own files of them.

YAML and JSON hold a list of groups (or `groups:`), each with `id`, `type` and `members` (roles,
weights, personas or ready-made preferences); CSV has one row a member. Every mistake is found at
once, with its line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from folkmoot.engine.yaml_tree import read_tree
from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv
from folkmoot.studies.negotiation.strategies import (
    LODGING,
    SLOTS,
    TOPICS,
    TYPE_IDS,
    GroupType,
    group_type,
    role_id,
)

# The mediator's name, and what models call it; no member may bear it.
RESERVED = frozenset({"system", "mediator", "moderator", "facilitator", "assistant"})
_ID = re.compile(r"\w[\w.-]{0,79}")
_NAME = re.compile(r"[^\W_][^\n\r\t:;|]{0,59}")


@dataclass(frozen=True, slots=True)
class Member:
    """One traveller. `preferences` maps topics to ready-made texts (empty: they are asked)."""

    id: str
    name: str
    role: str
    weight: float = 1.0
    persona: str = ""
    preferences: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Some travellers who plan one trip together."""

    id: str
    type: GroupType
    members: tuple[Member, ...]

    @property
    def names(self) -> dict[str, str]:
        """Member id → name."""
        return {m.id: m.name for m in self.members}


def listed(items: Sequence[str]) -> str:
    """Names as a reader would write them: "Parent 1, Parent 2 and Child 2"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A member as a user or the composer states it, before ids and names are given."""

    role: str
    persona: str = ""
    name: str = ""
    weight: float | None = None
    preferences: Mapping[str, str] = field(default_factory=dict)


def build_group(
    id: str, type: GroupType, drafts: Sequence[Draft], weights: Mapping[str, float] | None = None
) -> Group:
    """A group with ids `traveler_1…` and names by role ("Parent 1"), in the order given.

    `weights` maps roles to weights; a member's own weight wins; else 1.
    """
    by_role: dict[str, int] = {}
    members: list[Member] = []
    for n, draft in enumerate(drafts, start=1):
        role = type.role(draft.role)
        by_role[draft.role] = by_role.get(draft.role, 0) + 1
        spoken = role.name if role else draft.role.replace("_", " ").title()
        name = draft.name or f"{spoken} {by_role[draft.role]}"
        weight = draft.weight if draft.weight is not None else (weights or {}).get(draft.role, 1.0)
        own = dict(draft.preferences)
        members.append(Member(f"traveler_{n}", name, draft.role, weight, draft.persona, own))
    return Group(id, type, tuple(members))


def problems_of(group: Group, *, key: str = "") -> list[Problem]:
    """What makes a group unusable: sizes, roles it lacks, bad weights, half-given preferences."""
    found: list[Problem] = []

    def say(message: str, mend: str = "") -> None:
        found.append(Problem(f"group `{group.id}`: {message}", key=key, mend=mend))

    kind, members = group.type, group.members
    if not _ID.fullmatch(group.id):
        say("an id has letters, digits, `_`, `-` and `.`", "it names a folder of the run")
    known = [r.id for r in kind.roles]
    for member in members:
        if member.role not in known:
            roles = f"roles are {', '.join(known)}"
            say(f"a {kind.id} group has no role `{member.role}`", roles)
        if member.name.casefold() in RESERVED or not _NAME.fullmatch(member.name):
            say(f"a member cannot be called {member.name!r}", "dialogues go by members' names")
        if not member.weight > 0:
            say(f"{member.name} has weight {member.weight:g}", "weights are above 0")
        lacking = [t for t in TOPICS if not member.preferences.get(t, "").strip()]
        if lacking and any(m.preferences for m in members):
            what = "" if len(lacking) == len(TOPICS) else f" for {', '.join(lacking)}"
            say(
                f"{member.name} states no preference{what}",
                "give every member all slots, or give nobody any so that all are asked",
            )
        if not member.preferences and not member.persona:
            say(f"{member.name} has neither preferences nor a persona to ask")
    for role in kind.roles:
        if sum(m.role == role.id for m in members) < role.needed:
            need = f"at least {role.needed} {role.id}{'s' if role.needed > 1 else ''}"
            say(f"a {kind.id} group needs {need}", "its strategies give that role a part")
    if len(members) < 2:
        say(f"{len(members)} member(s) cannot negotiate", "two or more are needed")
    if kind.largest is not None and len(members) > kind.largest:
        say(f"{len(members)} members", f"{kind.id} are {kind.largest}")
    names = [m.name for m in members]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        say(f"two members are called {', '.join(twice)}", "speakers are told apart by name")
    return found


def natural(member_id: str) -> tuple[str | int, ...]:
    """Sort key that puts `traveler_2` before `traveler_10`."""
    return tuple(int(p) if p.isdigit() else p for p in re.split(r"(\d+)", member_id))


Weights = Mapping[str, Mapping[str, float]]  # group type → role → weight
_MEMBER_KEYS = ("role", "name", "weight", "persona", "preferences")
_GROUP_KEYS = ("id", "type", "members")
_CSV_KEYS = ("group_id", "group_type", "role", "name", "weight", "persona", *SLOTS, *LODGING)
MOST_BYTES = 20_000_000


@dataclass(slots=True)
class _Stated:
    """A group as a file states it: its members with their lines, its own line, what is wrong."""

    id: str
    type: str
    where: str = ""
    members: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def say(self, message: str, mend: str = "", where: str = "") -> None:
        self.problems.append(Problem(message, where=where or self.where, mend=mend))


def read_groups(path: Path, weights: Weights | None = None) -> list[Group]:
    """The groups of a file, in its order. Raises InputError with every mistake.

    `weights` apply where the file gives a member none.
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
    stated = _from_csv(text, name) if path.suffix.lower() == ".csv" else _from_tree(text, name)
    return _build(stated, weights or {}, name)


def from_entries(entries: Sequence[Any], weights: Weights) -> list[Group]:
    """The groups of a study file's own `groups:` list. Raises InputError with every mistake."""
    return _build(_entries(entries, {}), weights, key="groups")


def _build(
    stated: Sequence[_Stated], weights: Weights, file: str = "", key: str = ""
) -> list[Group]:
    problems = [] if stated else [Problem("holds no group", file=file, key=key)]
    groups: list[Group] = []
    for entry in stated:
        group = _group(entry, weights)
        groups += [group] if group else []
        problems += [replace(p, file=file, key=key) for p in entry.problems]
    ids = [e.id.casefold() for e in stated]
    problems += [
        Problem(f"duplicate group id `{i}`", file=file, key=key)
        for i in sorted({i for i in ids if ids.count(i) > 1})
    ]
    if problems:
        raise InputError(problems)
    return groups


def _group(entry: _Stated, weights: Weights) -> Group | None:
    """The group of an entry; None, and what is wrong in its problems, if there can be none."""
    kind = group_type(entry.type)
    if kind is None:
        given = f"unknown group type `{entry.type}`" if entry.type else "no group type"
        entry.say(f"group `{entry.id}`: {given}", f"types are {', '.join(TYPE_IDS)}")
    drafts = [_draft(entry, n, *m) for n, m in enumerate(entry.members, start=1)]
    if kind is None or entry.problems:
        return None
    group = build_group(entry.id, kind, drafts, weights.get(kind.id))
    for problem in problems_of(group):
        entry.say(problem.message, problem.mend)
    return group


def _draft(entry: _Stated, number: int, member: Mapping[str, Any], line: str) -> Draft:
    def say(message: str, mend: str = "") -> None:
        entry.say(f"group `{entry.id}`: member {number} {message}", mend, line)

    for name in (k for k in member if k not in _MEMBER_KEYS):
        say(f"has an unknown key `{name}`", f"keys are {', '.join(_MEMBER_KEYS)}")
    texts = {k: str(member.get(k) or "").strip() for k in ("role", "name", "persona")}
    if not texts["role"]:
        say("has no role")
    weight: float | None = None
    given: Any = member.get("weight")
    if given not in (None, ""):
        try:
            weight = float(given)
            fault = "" if 0 < weight < math.inf else f"has weight {given}"
        except (TypeError, ValueError):
            fault = f"has weight `{given}`"
        if fault:
            say(fault, "a number above 0")
    preferences: dict[str, str] = {}
    stated = member.get("preferences") or {}
    if not isinstance(stated, Mapping):
        say("has preferences that are not a mapping of slot to text")
        stated = {}
    # `lodging` may be one text for both halves, or a mapping of the two.
    halves = stated.get("lodging")
    if isinstance(halves, Mapping):
        stated = {k: v for k, v in stated.items() if k != "lodging"} | dict(halves)
    for slot, text in stated.items():
        if slot not in (*SLOTS, *LODGING):
            say(f"has a preference for `{slot}`, which is not a slot ({', '.join(SLOTS)})")
        elif text is not None and not isinstance(text, (str, int, float)):
            say(f"has a preference for {slot} that is not text")
        elif text is not None and str(text).strip():
            for topic in LODGING if slot == "lodging" else (slot,):
                preferences.setdefault(topic, str(text).strip())
    role = role_id(texts["role"])
    return Draft(role, texts["persona"], texts["name"], weight, preferences)


def _from_tree(text: str, name: str) -> list[_Stated]:
    tree = read_tree(text, name)
    if tree.problems:
        raise InputError(tree.problems)
    inside = isinstance(tree.value, Mapping) and "groups" in tree.value
    data = tree.value["groups"] if inside else tree.value
    if not isinstance(data, list):
        raise InputError(Problem("is not a list of groups", file=name, mend="start with `groups:`"))
    lines = {
        path[inside:]: str(place.line)
        for path, place in tree.places.items()
        if not inside or path[:1] == ("groups",)
    }
    return _entries(data, lines)


def _entries(data: Sequence[Any], lines: Mapping[tuple[str | int, ...], str]) -> list[_Stated]:
    """`lines`: the line of each path in the file (number of the group, key, …)."""
    found: list[_Stated] = []
    for n, entry in enumerate(data):
        where = lines.get((n,), "")
        if not isinstance(entry, Mapping):
            group = _Stated(f"group_{n + 1}", "family", where)
            group.say(f"group {n + 1} is not a mapping with id, type and members")
            found.append(group)
            continue
        id = str(entry.get("id") or f"group_{n + 1:02d}")
        group = _Stated(id, str(entry.get("type") or ""), where)
        for key in (k for k in entry if k not in _GROUP_KEYS):
            known = f"keys are {', '.join(_GROUP_KEYS)}"
            group.say(f"group `{id}` has an unknown key `{key}`", known)
        members = entry.get("members")
        if not isinstance(members, list) or not all(isinstance(m, Mapping) for m in members):
            group.say(f"group `{id}` has no list of members")
            members = []
        group.members = [(m, lines.get((n, "members", i), where)) for i, m in enumerate(members)]
        found.append(group)
    return found


def _from_csv(text: str, name: str) -> list[_Stated]:
    columns, rows = read_csv(text)
    wrong = [f"no column `{c}`" for c in ("group_id", "group_type", "role") if c not in columns]
    wrong += [f"unknown column `{c}`" for c in columns if c not in _CSV_KEYS]
    if wrong:
        known = f"columns are {', '.join(_CSV_KEYS)}"
        raise InputError([Problem(w, file=name, where="1", mend=known) for w in wrong])
    groups: dict[str, _Stated] = {}
    for line, cells in rows:
        where = str(line)
        id, kind = cells["group_id"], cells["group_type"]
        group = groups.setdefault(id, _Stated(id, kind, where))
        if not id:
            group.say("a row without group_id", where=where)
        if kind not in ("", group.type):
            group.say(f"group `{id}` is {group.type} and {kind}", where=where)
        member: dict[str, Any] = {k: v for k, v in cells.items() if k in _MEMBER_KEYS}
        member["preferences"] = {k: cells[k] for k in (*LODGING, *SLOTS) if cells.get(k)}
        group.members.append((member, where))
    return list(groups.values())
