"""The operators by name: each a pure function of a tally, each the textbook rule of its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from folkmoot.studies.negotiation.operators import constraints, shares, subgroup, votes
from folkmoot.studies.negotiation.operators.outcome import Case, Operator, Outcome, Portion
from folkmoot.studies.negotiation.strategies import Strategy
from folkmoot.studies.negotiation.tally import Tally

__all__ = ["OPERATIONS", "Case", "Outcome", "Portion", "decide"]

OPERATIONS: Mapping[str, Operator] = MappingProxyType(
    {
        "approval_vote_plus_coverage": votes.approval,
        "weighted_avg": votes.weighted_average,
        "least_misery": votes.least_misery,
        "mutual_interest": votes.mutual_interest,
        "higher_pref_with_compensation": votes.higher_preference,
        "parent_vote_lower_misery": votes.parent_vote,
        "hard_constraint": constraints.hard_constraint,
        "include_both": shares.include_both,
        "self_select": shares.self_select,
        "individual_choice": shares.individual_choice,
        "alternate": shares.alternate,
        "log_roll": shares.log_roll,
        "cluster": shares.cluster,
        "flexible_shared_first": shares.shared_first,
        "subgroup_required": subgroup.subgroup_required,
        "subgroup_optional": subgroup.subgroup_optional,
    }
)


def decide(tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True) -> Outcome:
    """The decision of a strategy's operator on a tally, for a trip of `days` days. Without a
    conflict nobody is parted: the subgroup operators keep all together."""
    if not has_conflict and strategy.operator in ("subgroup_required", "subgroup_optional"):
        return subgroup.together(tally, Case(strategy, days))
    return OPERATIONS[strategy.operator](tally, Case(strategy, days))
