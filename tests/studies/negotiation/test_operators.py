"""Each operator against its textbook rule and Masthoff's worked example, and invariances."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.studies.negotiation.config import MemberInput
from folkmoot.studies.negotiation.participants import build_group
from folkmoot.studies.negotiation.rules.operators import (
    OPERATIONS,
    Case,
    Outcome,
    apply_operator,
    counterfactual_outcomes,
    decide_by_approval,
)
from folkmoot.studies.negotiation.rules.strategies import (
    GROUP_TYPES,
    OPERATORS,
    Member,
    Strategy,
    group_type,
    strategy_for,
    strategy_table,
)
from folkmoot.studies.negotiation.rules.tally import Tally, count_votes
from folkmoot.studies.negotiation.rules.vocabulary import parse_time

# J. Masthoff, Group recommender systems: combining individual models (2011), ten items A to J.
MASTHOFF = {
    "John": (10, 4, 3, 6, 10, 9, 6, 8, 10, 8),
    "Adam": (1, 9, 8, 9, 7, 9, 6, 9, 3, 8),
    "Mary": (10, 5, 2, 7, 9, 8, 5, 6, 7, 6),
}
SUM = (21, 18, 13, 22, 26, 26, 17, 23, 20, 22)
LOWEST = (1, 4, 2, 6, 7, 8, 5, 6, 3, 6)
APPROVALS_ABOVE_5 = (2, 1, 1, 3, 3, 3, 2, 3, 2, 3)
ITEMS = "ABCDEFGHIJ"


def make_tally(
    scores: Mapping[str, Mapping[str, float]],
    roles: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Tally:
    roles, weights = roles or {}, weights or {}
    voters = tuple(
        Member(m, m.title(), roles.get(m, "member"), weights.get(m, 1.0)) for m in sorted(scores)
    )
    return Tally(tuple(sorted(next(iter(scores.values())))), voters, scores)


def make_case(operator: str, *, binding: str = "", topic: str = "cuisine", days: int = 3) -> Case:
    return Case(Strategy("family", topic, operator, operator, binding, "rule", "style"), days)


def apply_rule(operator: str, tally: Tally, **how: object) -> Outcome:
    return OPERATIONS[operator](tally, make_case(operator, **how))  # type: ignore[arg-type]


def make_masthoff_tally(shift: float = 0.0) -> Tally:
    rows = {
        m: {i: float(r) - shift for i, r in zip(ITEMS, row, strict=True)}
        for m, row in MASTHOFF.items()
    }
    return make_tally(rows)


def test_masthoff_average() -> None:
    tally = make_masthoff_tally()
    assert tuple(tally.total(i) for i in ITEMS) == SUM
    outcome = apply_rule("weighted_avg", tally)
    # E and F share the highest sum, so the alphabet decides.
    assert (outcome.selected_option, outcome.decided_by) == ("E", "alphabetical")
    assert outcome.details["weighted_average"]["D"] == pytest.approx(22 / 3, abs=1e-6)


def test_masthoff_least_misery() -> None:
    tally = make_masthoff_tally()
    assert tuple(tally.lowest_score(i) for i in ITEMS) == LOWEST
    assert apply_rule("least_misery", tally).selected_option == "F"


def test_masthoff_approval() -> None:
    # Our approval is a score above zero, so the ratings are centred on the book's threshold.
    tally = make_masthoff_tally(shift=5)
    assert tuple(len(tally.supporting_voters(i)) for i in ITEMS) == APPROVALS_ABOVE_5
    outcome = apply_rule("approval_vote_plus_coverage", tally)
    assert (outcome.selected_option, outcome.decided_by) == ("E", "alphabetical")


def test_weights_move_the_average() -> None:
    tally = make_tally(
        {"ann": {"x": 4, "y": 0}, "bob": {"x": 0, "y": 3}}, weights={"ann": 1, "bob": 2}
    )
    assert apply_rule("weighted_avg", tally).selected_option == "y"
    assert apply_rule("weighted_avg", tally).details["weighted_average"] == {
        "x": 1.333333,
        "y": 2.0,
    }


def test_least_misery_counts_strong_rejections_first() -> None:
    tally = make_tally(
        {"ann": {"x": -2, "y": -1}, "bob": {"x": -2, "y": -1}, "cal": {"x": 9, "y": -1}}
    )
    assert apply_rule("least_misery", tally).selected_option == "y"
    # One strong rejection is better than two, although its lowest score is lower.
    tally = make_tally({"ann": {"x": -4, "y": -2}, "bob": {"x": 0, "y": -2}})
    assert apply_rule("least_misery", tally).selected_option == "x"


def test_mutual_interest_is_what_all_support_or_says_so() -> None:
    tally = make_tally({"ann": {"x": 1, "y": 4}, "bob": {"x": 1, "y": 0}})
    outcome = apply_rule("mutual_interest", tally)
    assert (outcome.selected_option, outcome.fell_back_to) == ("x", "")
    tally = make_tally({"ann": {"x": 0, "y": 4}, "bob": {"x": 4, "y": -2}})
    outcome = apply_rule("mutual_interest", tally)
    assert (outcome.selected_option, outcome.fell_back_to) == ("x", "least_misery")
    assert "No option has everyone's support" in outcome.steps[0]


def test_higher_preference_wins_and_the_other_is_owed() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 0}, "bob": {"x": 0, "y": 2}})
    outcome = apply_rule("higher_pref_with_compensation", tally)
    assert outcome.selected_option == "x"
    assert outcome.owed == (("bob", "y"),)


def test_rules_differ_from_one_another() -> None:
    """Five rules give five results for one tally, so that no rule equals another one."""
    tally = make_tally(
        {
            "p1": {"a": 4, "b": 1, "c": 0, "d": 3, "e": 0},
            "p2": {"a": -2, "b": 1, "c": 0, "d": 3, "e": 6},
            "p3": {"a": 4, "b": 1, "c": 3, "d": 0, "e": 0},
            "p4": {"a": 4, "b": 0, "c": 3, "d": 3, "e": -2},
        },
        roles={"p2": "parent"},
        weights={"p2": 9.0},
    )
    assert apply_rule("approval_vote_plus_coverage", tally).selected_option == "a"
    assert apply_rule("higher_pref_with_compensation", tally).selected_option == "e"
    assert apply_rule("least_misery", tally).selected_option == "d"
    assert apply_rule("weighted_avg", tally).selected_option == "e"
    assert apply_rule("parent_vote_lower_misery", tally, binding="parent").selected_option == "e"
    assert apply_rule("hard_constraint", tally, binding="parent").removed == (("a", ("p2",)),)


def test_children_do_not_vote() -> None:
    roles = {"p1": "parent", "p2": "parent", "c1": "child", "c2": "child", "c3": "child"}
    scores = {
        "p1": {"x": 4, "y": 0},
        "p2": {"x": 4, "y": 0},
        "c1": {"x": 0, "y": 4},
        "c2": {"x": 0, "y": 4},
        "c3": {"x": 0, "y": 4},
    }
    outcome = apply_rule("parent_vote_lower_misery", make_tally(scores, roles), binding="parent")
    assert outcome.selected_option == "x"
    assert outcome.details["votes"] == {"p1": "x", "p2": "x"}
    assert outcome.steps == ("2 of 2 parents vote for x.",)


def test_a_tied_parents_vote_goes_to_the_lower_misery() -> None:
    roles = {"p1": "parent", "p2": "parent", "c1": "child"}
    scores = {"p1": {"x": 4, "y": 0}, "p2": {"x": 0, "y": 2}, "c1": {"x": -2, "y": 0}}
    outcome = apply_rule("parent_vote_lower_misery", make_tally(scores, roles), binding="parent")
    assert outcome.selected_option == "y"
    # The count alone would be as true of the other option.
    assert "the family rejects it least strongly" in " ".join(outcome.steps)


def test_a_parents_vote_that_stays_tied_goes_by_the_alphabet_not_by_score() -> None:
    roles = {"p1": "parent", "p2": "parent", "c1": "child"}
    scores = {"p1": {"x": 1, "y": 0}, "p2": {"x": 0, "y": 4}, "c1": {"x": 0, "y": 4}}
    outcome = apply_rule("parent_vote_lower_misery", make_tally(scores, roles), binding="parent")
    assert (outcome.selected_option, outcome.decided_by) == ("x", "alphabetical")


def test_hard_constraint_removes_first_and_binds_only_those_it_names() -> None:
    roles = {"p1": "parent", "c1": "child"}
    tally = make_tally({"p1": {"x": -2, "y": 1, "z": 0}, "c1": {"x": 4, "y": -2, "z": 4}}, roles)
    outcome = apply_rule("hard_constraint", tally, binding="parent")
    assert outcome.removed == (("x", ("p1",)),)
    assert outcome.selected_option == "y"
    nothing = apply_rule(
        "hard_constraint", make_tally({"p1": {"x": -2}, "c1": {"x": 4}}, roles), binding="all"
    )
    assert nothing.infeasible and nothing.selected_option == "x"


def test_house_rules_hold_together() -> None:
    tally = make_tally(
        {
            "a": {"quiet": 4, "pets": -2, "smoke free": 2},
            "b": {"quiet": 0, "pets": 4, "smoke free": 4},
        }
    )
    outcome = apply_rule("hard_constraint", tally, binding="all", topic="house_rule")
    assert [p.option for p in outcome.portions] == ["smoke free", "quiet"]


def test_include_both_gives_each_side_its_days() -> None:
    roles = {"p1": "parent", "c1": "child"}
    tally = make_tally({"p1": {"x": 4, "y": 0}, "c1": {"x": 0, "y": 4}}, roles)
    outcome = apply_rule("include_both", tally, days=3)
    assert [(p.option, p.when) for p in outcome.portions] == [
        ("x", "Day 1 and Day 3"),
        ("y", "Day 2"),
    ]


def test_include_both_with_one_option_covers_every_day() -> None:
    tally = make_tally({"p1": {"x": 4}, "c1": {"x": 0}}, {"p1": "parent", "c1": "child"})
    (portion,) = apply_rule("include_both", tally, days=3).portions
    assert (portion.option, portion.when) == ("x", "whole trip")


def test_include_both_leaves_out_options_that_all_members_reject() -> None:
    tally = make_tally(
        {"p1": {"x": 4, "y": -2, "z": 0}, "c1": {"x": 1, "y": -2, "z": -1}},
        {"p1": "parent", "c1": "child"},
    )
    assert [p.option for p in apply_rule("include_both", tally).portions] == ["x", "z"]
    only = make_tally(
        {"p1": {"x": 4, "y": -2}, "c1": {"x": 1, "y": -2}}, {"p1": "parent", "c1": "child"}
    )
    assert [p.option for p in apply_rule("include_both", only).portions] == ["x"]
    # No member gets a day of an option that the member rejects and no other member wants.
    refusing = make_tally(
        {"p1": {"x": -2, "y": -2}, "c1": {"x": 4, "y": 0}}, {"p1": "parent", "c1": "child"}
    )
    assert [p.option for p in apply_rule("include_both", refusing).portions] == ["x"]


def test_include_both_gives_no_side_a_second_best_option_that_it_only_rejects() -> None:
    roles = {"p1": "parent", "p2": "parent", "c1": "child", "c2": "child"}
    liked = {"museums": 2, "parks": 4}
    hated = {"museums": -2, "parks": 0}
    tally = make_tally({"p1": liked, "p2": liked, "c1": hated, "c2": hated}, roles)
    assert [p.option for p in apply_rule("include_both", tally).portions] == ["parks"]


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_rule_says_when_all_strongly_reject_everything(operator: str) -> None:
    strategy = make_case(operator, binding="parent").strategy
    roles = {"p1": "parent", "c1": "child"}
    hated = make_tally({"p1": {"x": -2, "y": -2}, "c1": {"x": -2, "y": -2}}, roles)
    assert apply_operator(hated, strategy, 3).infeasible
    borne = make_tally({"p1": {"x": 0, "y": -2}, "c1": {"x": -2, "y": -2}}, roles)
    assert not apply_operator(borne, strategy, 3).infeasible


def test_the_margin_is_the_lead_in_what_the_rule_goes_by() -> None:
    scores = {
        "ann": {"x": 4, "y": 3, "z": 0},
        "bob": {"x": -2, "y": 1, "z": 1},
        "cal": {"x": 4, "y": 1, "z": 0},
    }
    tally = make_tally(scores)
    found = counterfactual_outcomes(tally, strategy_for("strangers", "cuisine"), 3)
    assert set(found) == OPERATORS
    # Means 2, 5/3 and 1/3; supporters 2, 3 and 1; strong rejections 1, 0 and 0; best wishes 4, 1.
    told = {name: (o.selected_option, o.margin) for name, o in found.items()}
    assert told["weighted_avg"] == ("x", pytest.approx(1 / 3))
    assert told["approval_vote_plus_coverage"] == ("y", 1)
    assert told["least_misery"] == ("y", 0)
    assert told["mutual_interest"] == ("y", None)
    assert told["alternate"][1] is None
    assert told["subgroup_required"] == ("x", 4)


def test_a_counterfactual_binds_whom_the_rule_binds_in_such_groups() -> None:
    """Where only parents vote, only parents vote, also if no role may rule options out."""
    tally = make_tally(
        {"p1": {"x": 4, "y": 0}, "c1": {"x": 0, "y": 4}, "c2": {"x": 0, "y": 4}},
        {"p1": "parent", "c1": "child", "c2": "child"},
    )
    found = counterfactual_outcomes(tally, strategy_for("family", "cuisine"), 3)
    assert found["parent_vote_lower_misery"].selected_option == "x"
    assert found["approval_vote_plus_coverage"].selected_option == "y"


def test_alternate_gives_days_in_turn() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 0}, "bob": {"x": 0, "y": 4}})
    got = [(p.when, p.option, p.owner) for p in apply_rule("alternate", tally, days=4).portions]
    assert got == [
        ("Day 1", "x", "ann"),
        ("Day 2", "y", "bob"),
        ("Day 3", "x", "ann"),
        ("Day 4", "y", "bob"),
    ]


def test_log_roll_gives_options_to_those_who_value_them_most() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 2, "z": 0}, "bob": {"x": 4, "y": 0, "z": 1}})
    wins = apply_rule("log_roll", tally).details["wins"]
    # x is 4 of Bob's 5 points and 4 of Ann's 6: Bob has it; y is worth something to Ann alone.
    assert wins == {"ann": ["y"], "bob": ["x", "z"]}


def test_log_roll_gives_every_member_a_win() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 2}, "bob": {"x": 4, "y": 1}})
    assert all(apply_rule("log_roll", tally).details["wins"].values())


def test_self_select_has_a_frame_and_own_choices() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 0}, "bob": {"x": -2, "y": 2}, "cal": {"x": 0, "y": 0}})
    outcome = apply_rule("self_select", tally)
    assert outcome.selected_option == "y"
    assert {(p.option, p.members) for p in outcome.portions} == {
        ("x", ("ann",)),
        ("y", ("bob", "cal")),
    }


def test_individual_choice_selects_nothing_for_all() -> None:
    tally = make_tally({"ann": {"x": 4, "y": 0}, "bob": {"x": 0, "y": 2}})
    outcome = apply_rule("individual_choice", tally)
    assert outcome.selected_option is None
    assert [(p.option, p.members) for p in outcome.portions] == [("x", ("ann",)), ("y", ("bob",))]


def test_cluster_brings_singles_to_a_cluster_they_like() -> None:
    tally = make_tally(
        {
            "a": {"x": 4, "y": 0, "z": 0},
            "b": {"x": 4, "y": 0, "z": 0},
            "c": {"x": 1, "y": 2, "z": 0},
            "d": {"x": 0, "y": 0, "z": 4},
        }
    )
    outcome = apply_rule("cluster", tally)
    assert [(p.option, p.members) for p in outcome.portions] == [
        ("x", ("a", "b", "c")),
        ("z", ("d",)),
    ]
    assert outcome.selected_option == "x"


def test_shared_first_makes_exceptions_only_for_members_who_reject() -> None:
    tally = make_tally(
        {
            "a": {"house": 2, "rooms": -2},
            "b": {"house": 2, "rooms": -2},
            "c": {"house": -2, "rooms": 4},
        }
    )
    outcome = apply_rule("flexible_shared_first", tally)
    assert [(p.option, p.members) for p in outcome.portions] == [
        ("house", ("a", "b")),
        ("rooms", ("c",)),
    ]


def test_subgroup_optional_is_a_backbone_with_a_branch() -> None:
    tally = make_tally({"a": {"x": 2, "y": 0}, "b": {"x": 2, "y": 0}, "c": {"x": 1, "y": 4}})
    outcome = apply_rule("subgroup_optional", tally)
    assert [(p.option, p.members, p.when) for p in outcome.portions] == [
        ("x", ("a", "b", "c"), "shared backbone"),
        ("y", ("c",), "optional branch"),
    ]


def test_every_operator_of_the_table_is_there() -> None:
    assert set(OPERATIONS) == OPERATORS == {s.operator for s in strategy_table().values()}
    assert decide_by_approval is OPERATIONS["approval_vote_plus_coverage"]


options = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)


@st.composite
def draw_tally(draw: st.DrawFn) -> Tally:
    names = draw(options)
    size = draw(st.integers(2, 5))
    score = st.integers(-2, 4)
    roles = ("parent", "child", "grandparent", "young_adult", "member")
    people = [f"traveler_{n}" for n in range(1, size + 1)]
    rows = {m: {o: float(draw(score)) for o in names} for m in people}
    return make_tally(
        rows, {m: draw(st.sampled_from(roles)) for m in people[1:]} | {people[0]: "parent"}
    )


@given(draw_tally(), st.sampled_from(sorted(OPERATORS)), st.integers(1, 7))
def test_decisions_are_whole(tally: Tally, operator: str, days: int) -> None:
    outcome = apply_rule(operator, tally, binding="parent", days=days)
    everyone = {v.id for v in tally.voters}
    assert outcome.portions and {m for p in outcome.portions for m in p.members} == everyone
    assert outcome.steps or operator == "log_roll"
    if operator != "subgroup_required":
        assert all(p.option in tally.options for p in outcome.portions)
    if operator not in ("individual_choice", "subgroup_required"):
        assert outcome.selected_option in tally.options


@given(draw_tally(), st.sampled_from(sorted(OPERATORS)), st.randoms(use_true_random=False))
def test_the_order_of_members_never_matters(tally: Tally, operator: str, random: object) -> None:
    """The tally comes from `count_votes`, as in the study."""
    people = [MemberInput(role=role) for role in ("parent", "child", "child")]
    group = build_group("g", group_type("family"), people)
    texts = {"traveler_1": "I love a", "traveler_2": "I want b, no a", "traveler_3": "c or b"}
    shuffled = list(group.members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = count_votes(group.members, texts, "abc"), count_votes(shuffled, texts, "cab")
    how = make_case(operator, binding="parent")
    assert OPERATIONS[operator](first, how) == OPERATIONS[operator](second, how)


@pytest.mark.parametrize("kind", [t.id for t in GROUP_TYPES])
def test_a_group_without_options_is_undecided(kind: str) -> None:
    type_ = group_type(kind)
    people = [MemberInput(role=r.id) for r in type_.roles for _ in range(r.size)]
    group = build_group("g", type_, people)
    empty = count_votes(group.members, {}, ())
    for (group_kind, topic), strategy in strategy_table().items():
        if group_kind == kind:
            outcome = apply_operator(empty, strategy_for(kind, topic), 3)
            assert (outcome.selected_option, outcome.portions) == (None, ())
            assert strategy.operator == outcome.operator


@pytest.mark.parametrize(
    "when", ["Day ²", "Day 0", "Day 6", "Day 00001", "Day " + "9" * 9_000, "Day 1…"]
)
def test_a_day_that_the_trip_does_not_have_is_no_time(when: str) -> None:
    assert parse_time(when, 5) is None


@pytest.mark.parametrize(
    "when", ["day 1 to day 3", "Days 1-3", "1—3", "Day 1 through 3", "on day 1, day 2 and day 3"]
)
def test_a_range_of_days_has_the_days_between(when: str) -> None:
    assert parse_time(when, 5) == "Day 1, Day 2 and Day 3"
