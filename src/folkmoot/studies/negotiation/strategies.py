"""The canonical strategy of each group type and topic, and the clamp that enforces it.

The table is data (strategies.csv, 5 x 8 rows); it is checked whole when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from folkmoot.files import read_csv
from folkmoot.studies.negotiation.groups import GROUP_TYPES, TYPE_IDS
from folkmoot.studies.negotiation.polarity import words_of
from folkmoot.studies.negotiation.slots import TOPICS

VOTE_OPERATORS = frozenset(
    {
        "approval_vote_plus_coverage",
        "weighted_avg",
        "parent_vote_lower_misery",
        "least_misery",
        "mutual_interest",
        "higher_pref_with_compensation",
    }
)
OPERATORS = VOTE_OPERATORS | {
    "hard_constraint",
    "include_both",
    "self_select",
    "alternate",
    "log_roll",
    "cluster",
    "individual_choice",
    "flexible_shared_first",
    "subgroup_required",
    "subgroup_optional",
}
_COLUMNS = ("group_type", "topic", "strategy_id", "operator", "binding", "rule", "style")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the table. `binding` is the role whose word binds (or votes), `all`, or ``."""

    group_type: str
    topic: str
    strategy_id: str
    operator: str
    binding: str
    rule: str
    style: str

    @property
    def votes(self) -> bool:
        """Whether this strategy holds a ballot round when there is a conflict."""
        return self.operator in VOTE_OPERATORS


Table = Mapping[tuple[str, str], Strategy]


@cache
def table() -> Table:
    """The table that ships with the study, checked."""
    return read_table(files(__package__).joinpath("strategies.csv").read_text(encoding="utf-8"))


def read_table(text: str) -> Table:
    """A strategy table from CSV text. Raises ValueError with every fault found.

    It must hold each of the 5 x 8 pairs once, known operators, and binding roles that the group
    type has; `parent_vote_lower_misery` must name who votes.
    """
    columns, rows = read_csv(text)
    if columns != _COLUMNS:
        raise ValueError(f"strategy table: columns must be {', '.join(_COLUMNS)}")
    found: dict[tuple[str, str], Strategy] = {}
    faults: list[str] = []
    for line, row in rows:
        strategy = Strategy(**row)
        key = (strategy.group_type, strategy.topic)
        faults += [f"line {line}: {fault}" for fault in _faults(strategy)]
        if key in found:
            faults.append(f"line {line}: {key[0]}/{key[1]} stands twice")
        found[key] = strategy
    wanted = [(g, t) for g in TYPE_IDS for t in TOPICS]
    faults += [f"no row for {g}/{t}" for g, t in wanted if (g, t) not in found]
    if faults:
        raise ValueError("strategy table: " + "; ".join(faults))
    return {key: found[key] for key in wanted}


def _faults(strategy: Strategy) -> list[str]:
    faults = [f"no {c}" for c in _COLUMNS if c != "binding" and not getattr(strategy, c)]
    if strategy.group_type not in TYPE_IDS or strategy.topic not in TOPICS:
        faults.append(f"unknown pair {strategy.group_type}/{strategy.topic}")
    if strategy.operator not in OPERATORS:
        faults.append(f"unknown operator `{strategy.operator}`")
    roles = {r.id for t in GROUP_TYPES if t.id == strategy.group_type for r in t.roles}
    if strategy.binding not in roles | {"all", ""}:
        faults.append(f"a {strategy.group_type} group has no role `{strategy.binding}`")
    binds = strategy.operator in ("hard_constraint", "parent_vote_lower_misery")
    if binds and not strategy.binding:
        faults.append(f"`{strategy.operator}` must say who is binding")
    return faults


def strategy_for(group_type: str, topic: str) -> Strategy:
    """The canonical strategy of a pair; both are known ids."""
    return table()[group_type, topic]


@dataclass(frozen=True, slots=True)
class Clamped:
    """A model's label beside the canonical id that stands in its place."""

    proposed_strategy: str
    resolution_strategy: str
    drifted: bool


def clamp(proposed: str, strategy: Strategy) -> Clamped:
    """Whatever label a model returned is kept as proposed; the canonical id stands.

    It counts as drift when it is not the canonical id, spelling (case, spaces, hyphens) aside.
    """
    return Clamped(
        proposed_strategy=proposed,
        resolution_strategy=strategy.strategy_id,
        drifted=words_of(proposed) != words_of(strategy.strategy_id),
    )
