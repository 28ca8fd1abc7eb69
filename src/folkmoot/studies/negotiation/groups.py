"""Groups of travellers: the five types, their roles, sizes, names and weights.

Used by the config (to compose groups), the readers of users' own files, and the operators (which
role binds, who votes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.errors import Problem
from folkmoot.studies.negotiation.slots import TOPICS


@dataclass(frozen=True, slots=True)
class Role:
    """A role in a group type: its id, how a member of it is called, and how many by default."""

    id: str
    name: str
    size: int
    needed: int = 0


@dataclass(frozen=True, slots=True)
class GroupType:
    """A kind of group. `smallest` is the least number of members that can negotiate."""

    id: str
    title: str
    roles: tuple[Role, ...]
    smallest: int = 2
    largest: int | None = None

    def role(self, role_id: str) -> Role | None:
        return next((r for r in self.roles if r.id == role_id), None)


GROUP_TYPES = (
    GroupType(
        "family",
        "Family",
        (Role("parent", "Parent", 2, needed=1), Role("child", "Child", 2, needed=1)),
    ),
    GroupType(
        "elder_young",
        "Multigenerational",
        (
            Role("grandparent", "Grandparent", 2, needed=1),
            Role("young_adult", "Young Adult", 2, needed=1),
        ),
    ),
    GroupType("colleagues", "Colleagues", (Role("colleague", "Colleague", 4, needed=2),)),
    GroupType("spouses", "Spouses", (Role("partner", "Partner", 2, needed=2),), largest=2),
    GroupType("strangers", "Strangers", (Role("stranger", "Stranger", 4, needed=2),)),
)
TYPE_IDS = tuple(t.id for t in GROUP_TYPES)
# The mediator's name, and what models call it; no member may bear it.
RESERVED = frozenset({"system", "mediator", "moderator", "facilitator", "assistant"})
_ID = re.compile(r"\w[\w.-]{0,79}")
_NAME = re.compile(r"[^\W_][^\n\r\t:;|]{0,59}")
_TYPE_ALIASES = {"multigenerational": "elder_young", "couple": "spouses"}
_ROLE_ALIASES = {
    "parents": "parent",
    "children": "child",
    "grandparents": "grandparent",
    "young_adults": "young_adult",
    "partners": "partner",
    "spouse": "partner",
    "spouses": "partner",
    "colleagues": "colleague",
    "strangers": "stranger",
}


def group_type(name: str) -> GroupType | None:
    """The group type of a name or alias in any case and spacing; None if there is none."""
    key = _key(name)
    key = _TYPE_ALIASES.get(key, key)
    return next((t for t in GROUP_TYPES if t.id == key), None)


def role_id(name: str) -> str:
    """The id of a role's name, singular or plural, in any case and spacing."""
    key = _key(name)
    return _ROLE_ALIASES.get(key, key)


def _key(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


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

    def of_role(self, role: str) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.role == role)

    def name_of(self, member_id: str) -> str:
        return next(m.name for m in self.members if m.id == member_id)


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
        weight = draft.weight if draft.weight is not None else (weights or {}).get(draft.role, 1.0)
        members.append(
            Member(
                id=f"traveler_{n}",
                name=draft.name or f"{spoken} {by_role[draft.role]}",
                role=draft.role,
                weight=weight,
                persona=draft.persona,
                preferences=dict(draft.preferences),
            )
        )
    return Group(id, type, tuple(members))


def problems_of(group: Group, *, key: str = "") -> list[Problem]:
    """What makes a group unusable: sizes, roles it lacks, bad weights, half-given preferences."""
    found: list[Problem] = []

    def say(message: str, mend: str = "") -> None:
        found.append(Problem(f"group `{group.id}`: {message}", key=key, mend=mend))

    if not _ID.fullmatch(group.id):
        say("an id has letters, digits, `_`, `-` and `.`", "it names a folder of the run")
    known = [r.id for r in group.type.roles]
    for member in group.members:
        if member.role not in known:
            say(
                f"a {group.type.id} group has no role `{member.role}`",
                f"roles are {', '.join(known)}",
            )
        if member.name.casefold() in RESERVED or not _NAME.fullmatch(member.name):
            say(f"a member cannot be called {member.name!r}", "dialogues go by members' names")
        if not member.weight > 0:
            say(f"{member.name} has weight {member.weight:g}", "weights are above 0")
        lacking = [t for t in TOPICS if not str(member.preferences.get(t, "")).strip()]
        if lacking and any(m.preferences for m in group.members):
            what = "" if len(lacking) == len(TOPICS) else f" for {', '.join(lacking)}"
            say(
                f"{member.name} states no preference{what}",
                "give every member all slots, or give nobody any so that all are asked",
            )
        if not member.preferences and not member.persona and lacking:
            say(f"{member.name} has neither preferences nor a persona to ask")
    for role in group.type.roles:
        if len(group.of_role(role.id)) < role.needed:
            need = f"at least {role.needed} {role.id}{'s' if role.needed > 1 else ''}"
            say(f"a {group.type.id} group needs {need}", "its strategies give that role a part")
    if len(group.members) < group.type.smallest:
        say(f"{len(group.members)} member(s) cannot negotiate", "two or more are needed")
    if group.type.largest is not None and len(group.members) > group.type.largest:
        say(f"{len(group.members)} members", f"{group.type.id} are {group.type.largest}")
    names = [m.name for m in group.members]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        say(f"two members are called {', '.join(twice)}", "speakers are told apart by name")
    return found


def natural(member_id: str) -> tuple[str | int, ...]:
    """Sort key that puts `traveler_2` before `traveler_10`."""
    return tuple(int(p) if p.isdigit() else p for p in re.split(r"(\d+)", member_id))
