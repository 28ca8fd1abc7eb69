"""The design of the study: topics, group types, conditions, strategies and groups."""

# A slot is one of the seven parts of a trip that are decided. A topic is a slot, or one of the two
# parts of the slot lodging. The strategy table (strategies.csv, 5 × 8 rows) and the usual options
# (options.yaml) are data files.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from folkmoot.files import packaged_yaml, read_csv
from folkmoot.hints import did_you_mean

LODGING = ("room_type", "house_rule")
SUBGROUP_SLOTS = ("cuisine", "attraction", "event")
SLOTS = ("traveler_type", "travel_purpose", "spending_preference", *SUBGROUP_SLOTS, "lodging")
TOPICS = (*SLOTS[:-1], *LODGING)


def slot_of(topic: str) -> str:
    """Return the part of the trip that a topic belongs to."""
    # The two topics of lodging belong to the slot `lodging`.
    return "lodging" if topic in LODGING else topic


@dataclass(frozen=True, slots=True)
class TripTopic:
    """A part of the trip to decide on, with the question for members and the usual options."""

    id: str
    label: str
    question: str
    options: tuple[str, ...]

    @property
    def slot_name(self) -> str:
        return slot_of(self.id)


def load_topics(overrides: Mapping[str, Sequence[str]] | None = None) -> tuple[TripTopic, ...]:
    """Return the eight topics in order.

    `overrides`: maps topics to the options that replace the usual options.
    """
    own_options = overrides or {}
    return tuple(
        replace(topic, options=tuple(own_options.get(topic.id, topic.options)))
        for topic in _topic_catalogue()
    )


@cache
def _topic_catalogue() -> tuple[TripTopic, ...]:
    data = packaged_yaml(__file__, "options.yaml")
    if tuple(data) != TOPICS:
        raise ValueError(f"options.yaml must hold exactly {', '.join(TOPICS)}, in this order")
    return tuple(
        TripTopic(topic, row["label"], row["question"], tuple(row["options"]))
        for topic, row in data.items()
    )


@dataclass(frozen=True, slots=True)
class MemberRole:
    """A role that members of a group can have, such as parent."""

    id: str
    # The name of its members without a number.
    name: str
    # The default number of members.
    size: int
    # The minimum number of members.
    needed: int


@dataclass(frozen=True, slots=True)
class GroupType:
    """A type of group, such as family, and the roles of its members."""

    id: str
    title: str
    roles: tuple[MemberRole, ...]
    # The maximum number of members, or None for no maximum.
    largest: int | None = None

    def role(self, role_id: str) -> MemberRole | None:
        return next((role for role in self.roles if role.id == role_id), None)


GROUP_TYPES = (
    GroupType(
        "family",
        "Family",
        (MemberRole("parent", "Parent", 2, 1), MemberRole("child", "Child", 2, 1)),
    ),
    GroupType(
        "elder_young",
        "Multigenerational",
        (
            MemberRole("grandparent", "Grandparent", 2, 1),
            MemberRole("young_adult", "Young Adult", 2, 1),
        ),
    ),
    GroupType("colleagues", "Colleagues", (MemberRole("colleague", "Colleague", 4, 2),)),
    GroupType("spouses", "Spouses", (MemberRole("partner", "Partner", 2, 2),), largest=2),
    GroupType("strangers", "Strangers", (MemberRole("stranger", "Stranger", 4, 2),)),
)
TYPE_IDS = tuple(group_type.id for group_type in GROUP_TYPES)
# Other words that study files use for a group type or a role.
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


def group_type(name: str) -> GroupType:
    """Return the group type with this name or alias.

    Raises ValueError if the name is unknown.
    """
    # Case and spacing do not matter.
    id = _TYPE_ALIASES.get(_comparison_key(name), _comparison_key(name))
    for kind in GROUP_TYPES:
        if kind.id == id:
            return kind
    hint = did_you_mean(name, TYPE_IDS, f"types: {', '.join(TYPE_IDS)}")
    raise ValueError(f"unknown group type `{name}`; {hint}")


def role_id(name: str) -> str:
    """Return the id of a role from its name."""
    # Case, spacing and plural do not matter.
    return _ROLE_ALIASES.get(_comparison_key(name), _comparison_key(name))


def _comparison_key(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


ConditionId = Literal["C1", "C2", "C3", "C4", "C5"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the study, C1 to C5: who is heard, and how the mediator acts."""

    id: ConditionId
    title: str
    # How the mediator proposes a decision: not at all, by free reasoning, or with the strategy that
    # the strategy table gives for the case.
    synthesis: Literal["none", "raw", "canonical"] = "none"
    # True if only one member is heard.
    one_member: bool = False
    feedback: bool = False

    @property
    def has_locked_strategy(self) -> bool:
        return self.synthesis == "canonical"


CONDITIONS: Mapping[str, Condition] = {
    condition.id: condition
    for condition in (
        Condition("C1", "single user", one_member=True),
        Condition("C2", "all preferences, no mediation"),
        Condition("C3", "raw synthesis", "raw"),
        Condition("C4", "guided synthesis", "canonical"),
        Condition("C5", "active mediator", "canonical", feedback=True),
    )
}

# The operators that count ballots if there is a conflict. The others decide from the stated
# preferences.
VOTE_OPERATORS = frozenset(
    {
        *("approval_vote_plus_coverage", "weighted_avg", "parent_vote_lower_misery"),
        *("least_misery", "mutual_interest", "higher_pref_with_compensation"),
    }
)
OPERATORS = VOTE_OPERATORS | {
    *("hard_constraint", "include_both", "self_select", "alternate", "log_roll", "cluster"),
    *("individual_choice", "flexible_shared_first", "subgroup_required", "subgroup_optional"),
}


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the strategy table: how groups of one type decide on one topic."""

    group_type: str
    topic: str
    strategy_id: str
    operator: str
    # The role with the right to rule options out or to vote alone. It is `all` or empty if no role
    # has such a right.
    binding: str
    rule: str
    style: str

    @property
    def votes(self) -> bool:
        """True if members fill in ballots under this strategy."""
        # They do so only when there is a conflict.
        return self.operator in VOTE_OPERATORS


Table = Mapping[tuple[str, str], Strategy]
_COLUMNS = tuple(field.name for field in fields(Strategy))


def strategy_for(group_type: str, topic: str) -> Strategy:
    """Return the strategy by which groups of this type decide on this topic.

    Raises KeyError for unknown ids.
    """
    return strategy_table()[group_type, topic]


@cache
def strategy_table() -> Table:
    """Return the strategy table that the package contains, by group type and topic."""
    return read_table(files(__package__).joinpath("strategies.csv").read_text(encoding="utf-8"))


def read_table(text: str) -> Table:
    """Return a strategy table from CSV text.

    Raises ValueError with all problems.
    """
    # The table must have one row for each pair of a group type (5) and a topic (8). Operators must
    # be known. A binding role (one that may rule options out) must exist in the group type. The
    # operators `hard_constraint` and `parent_vote_lower_misery` need a binding role.
    columns, rows = read_csv(text, "strategies.csv")
    if columns != _COLUMNS:
        raise ValueError(f"strategy table: columns must be {', '.join(_COLUMNS)}")
    strategies: dict[tuple[str, str], Strategy] = {}
    # Collect all problems, so that one error names them all.
    problems: list[str] = []
    for line, row in rows:
        strategy = Strategy(**row)
        key = (strategy.group_type, strategy.topic)
        problems += [f"line {line}: {problem}" for problem in _strategy_problems(strategy)]
        if key in strategies:
            problems.append(f"line {line}: duplicate row for {key[0]}/{key[1]}")
        strategies[key] = strategy
    expected = [(group, topic) for group in TYPE_IDS for topic in TOPICS]
    problems += [
        f"no row for {group}/{topic}"
        for group, topic in expected
        if (group, topic) not in strategies
    ]
    if problems:
        raise ValueError("strategy table: " + "; ".join(problems))
    return {key: strategies[key] for key in expected}


def _strategy_problems(strategy: Strategy) -> list[str]:
    problems = [
        f"no {column}"
        for column in _COLUMNS
        if column != "binding" and not getattr(strategy, column)
    ]
    if strategy.group_type not in TYPE_IDS or strategy.topic not in TOPICS:
        problems.append(f"unknown pair {strategy.group_type}/{strategy.topic}")
    if strategy.operator not in OPERATORS:
        problems.append(f"unknown operator `{strategy.operator}`")
    roles = {
        role.id
        for group_type in GROUP_TYPES
        if group_type.id == strategy.group_type
        for role in group_type.roles
    }
    if strategy.binding not in roles | {"all", ""}:
        problems.append(f"a {strategy.group_type} group has no role `{strategy.binding}`")
    if (
        strategy.operator in ("hard_constraint", "parent_vote_lower_misery")
        and not strategy.binding
    ):
        problems.append(f"`{strategy.operator}` must say who is binding")
    return problems


# --- a group of travellers ---------------------------------------------------------------------

# Names for the mediator that models use. No member may have one, because dialogues identify
# speakers by name.
RESERVED = frozenset({"system", "mediator", "moderator", "facilitator", "assistant"})


@dataclass(frozen=True, slots=True)
class Member:
    """One traveller of a group."""

    id: str
    name: str
    role: str
    weight: float = 1.0
    persona: str = ""
    # Topic → preference in the researcher's words. If it is empty, the member is asked.
    preferences: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_description(self) -> str:
        """The description of the member, from which a model plays the member."""
        return self.persona.rstrip() or f"a traveller, {self.name}."


@dataclass(frozen=True, slots=True)
class Group:
    """A group of travellers who plan one trip together."""

    id: str
    type: GroupType
    members: tuple[Member, ...]

    @property
    def names_by_member(self) -> dict[str, str]:
        """A map from member id to name."""
        return {member.id: member.name for member in self.members}
