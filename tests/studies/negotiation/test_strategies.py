"""The strategy table as data, and the correction of the mediator's label."""

from __future__ import annotations

from importlib.resources import files

import pytest

from folkmoot.studies.negotiation import rules
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.rules.strategies import (
    SLOTS,
    TOPICS,
    TYPE_IDS,
    read_table,
    strategy_for,
    strategy_table,
)

TEXT = files(rules).joinpath("strategies.csv").read_text(encoding="utf-8")

# Typed from the description of the method, independently of the table under test.
IDS = {
    "family": """hard_constraint weighted_avg parent_budget_hc include_both include_both
        parent_veto_hc parent_vote_lower_misery hard_constraint""",
    "elder_young": """least_misery subgroup_optional self_select least_misery subgroup_required
        elder_stamina_hc flexible_shared_first elder_accessibility_hc""",
    "colleagues": """self_select weighted_avg budget_guardrail_hc approval_vote_plus_coverage
        subgroup_required subgroup_optional approval_vote_plus_coverage
        shared_rules_intersection_hc""",
    "spouses": """alternate alternate higher_pref_with_compensation mutual_interest log_roll
        mutual_interest higher_pref_with_compensation shared_rules_intersection_hc""",
    "strangers": """cluster cluster self_select subgroup_required subgroup_required
        subgroup_optional individual_choice declare_upfront_hc""",
}


@pytest.mark.parametrize("group", IDS)
def test_each_pair_has_its_strategy(group: str) -> None:
    assert [strategy_for(group, t).strategy_id for t in TOPICS] == IDS[group].split()
    for topic in TOPICS:
        row = strategy_for(group, topic)
        hard = row.strategy_id.endswith("_hc") or row.strategy_id == "hard_constraint"
        assert row.operator == ("hard_constraint" if hard else row.strategy_id)


def test_five_by_eight_in_the_fixed_order() -> None:
    assert list(strategy_table()) == [(g, t) for g in TYPE_IDS for t in TOPICS]
    assert len(strategy_table()) == 40
    assert SLOTS[-1] == "lodging" and TOPICS[-2:] == ("room_type", "house_rule")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("family,cuisine,", "family,dessert,", "unknown pair family/dessert"),
        ("include_both,include_both", "include_both,include_all", "unknown operator `include_all`"),
        ("hard_constraint,parent,Parent-decides", "hard_constraint,uncle,P", "no role `uncle`"),
        ("hard_constraint,parent,Parent-decides", "hard_constraint,,P", "who is binding"),
        ("family,event,", "family,cuisine,", "duplicate row for family/cuisine"),
        ("family,event,", "family,cuisine,", "no row for family/event"),
        ("Minimize strongest dissatisfaction", "", "no rule"),
        ("strategy_id", "strategy", "columns must be"),
    ],
)
def test_a_faulty_table_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(ValueError, match=says):
        read_table(TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("label", "drifted"),
    [
        ("least_misery", False),
        ("Least Misery", False),
        ("least-misery", False),
        ("policy", True),
        ("Family Friendly", True),
        ("", True),
        ("weighted_avg", True),
    ],
)
def test_the_canonical_id_replaces_the_proposed_one(label: str, drifted: bool) -> None:
    strategy = strategy_for("elder_young", "cuisine")
    decision = SlotDecision("cuisine", "vote", True, "", strategy=strategy, proposed=label)
    assert decision.strategy_id == "least_misery"
    assert decision.proposed == label
    assert decision.strategy_drifted is drifted


@pytest.mark.parametrize("conflict", [True, False])
@pytest.mark.parametrize(("group", "topic"), list(strategy_table()))
def test_a_group_parts_by_strategy_slot_and_conflict_alone(
    group: str, topic: str, conflict: bool
) -> None:
    strategy = strategy_for(group, topic)
    decision = SlotDecision(topic, "operator", conflict, "Split into subgroups!", strategy=strategy)
    eligible = conflict and topic in ("cuisine", "attraction", "event")
    required = eligible and strategy.strategy_id == "subgroup_required"
    optional = eligible and strategy.strategy_id == "subgroup_optional"
    assert (decision.subgrouping_required, decision.subgrouping_optional) == (required, optional)
    plain = SlotDecision(topic, "synthesis", conflict, "Split into subgroups!")
    assert not plain.subgrouping_required and not plain.subgrouping_optional
