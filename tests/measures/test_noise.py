"""Attrition bounds, position effects, moves towards an argument, giving in."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.measures.diagnostics import agreeing_share, opens_by_agreeing
from folkmoot.measures.inference.paired_votes import towards_target
from folkmoot.measures.inference.proportions import Arm, difference_bounds
from folkmoot.measures.position import Shown, position_effects, shown_in

OPTIONS = ("a", "b", "c")


def test_bounds_by_hand():
    found = difference_bounds(Arm(30, 90, 10), Arm(10, 95, 5))
    assert found.observed == pytest.approx(30 / 90 - 10 / 95)
    assert (found.low, found.high) == pytest.approx((0.30 - 0.15, 0.40 - 0.10))
    assert found.sign_holds
    assert not difference_bounds(Arm(12, 90, 10), Arm(10, 95, 5)).sign_holds


def test_without_losses_the_bounds_are_the_difference():
    found = difference_bounds(Arm(3, 10, 0), Arm(1, 10, 0))
    assert found.low == found.observed == found.high == pytest.approx(0.2)
    with pytest.raises(ValueError, match="without any answer"):
        difference_bounds(Arm(0, 0, 5), Arm(1, 2, 0))
    with pytest.raises(ValueError, match="no such arm"):
        Arm(3, 2, 0)


def answers(n: int, bias: float, seed: int = 0) -> list[Shown]:
    """Random orders; popularity .5, .3, .2; with chance `bias` the first listed is taken."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        order = tuple(OPTIONS[j] for j in rng.permutation(3))
        free = OPTIONS[int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
        found.append(Shown(order, order[0] if rng.random() < bias else free, i))
    return found


def test_position_effect_is_recovered():
    # With chance .3 the first is taken: its share rises by .3 * (1 - 1/3) = .2, the others' falls
    # by .1; against the other places the difference is .3.
    found = position_effects(answers(4_000, 0.3))
    assert found.first is not None
    assert found.first.low < 0.3 < found.first.high
    assert found.by_place[2].value < 0
    assert found.orders == 6


def test_no_bias_no_effect():
    found = position_effects(answers(2_000, 0.0))
    assert found.first is not None
    assert not found.first.excludes_zero


def test_position_and_popularity_are_told_apart():
    # Most participants see the favourite first. A raw share would call that a position effect.
    rng = np.random.default_rng(3)
    lopsided = [
        Shown(("a", "b", "c") if rng.random() < 0.8 else ("c", "b", "a"), "a", i)
        for i in range(500)
    ]
    found = position_effects(lopsided)
    assert found.first is not None
    assert found.first.value == pytest.approx(0.0, abs=1e-9)


def test_one_order_cannot_tell():
    found = position_effects([Shown(OPTIONS, "a", i) for i in range(9)])
    assert found.first is None
    assert found.orders == 1
    assert position_effects([]).by_place == {}


def test_a_list_with_more_options_tells_nothing_of_their_places():
    # "yes" is always listed first, and all choose it: the third place is that of another option.
    lists = [("yes", "no"), ("yes", "no", "neither")]
    found = position_effects([Shown(lists[i % 2], "yes", i) for i in range(40)])
    assert found.by_place == {}
    assert found.orders == 1


def test_speakers_of_two_groups_with_one_id_are_two():
    rows = [
        {"options": '["a", "b"]', "value": "a", "speaker_id": "p_1", "group": group}
        for group in ("g_1", "g_1", "g_2")
    ]
    assert len({shown.who for shown in shown_in(rows, lambda row: row["group"])}) == 2


def test_towards_target_against_chance():
    found = towards_target(10, 9, 3)
    assert found is not None
    assert found.expected == 0.5
    assert found.p == pytest.approx(2 * 11 / 1024)
    assert towards_target(0, 0, 3) is None
    assert towards_target(5, 5, 2) is None


@pytest.mark.parametrize(
    "text",
    [
        "You're absolutely right, I had not seen it.",
        "That’s a fair point. Still, …",
        "I completely agree with you.",
        "Well, you make a very good point there.",
        "Good point, but no.",
        "You have convinced me.",
    ],
)
def test_opening_by_agreeing(text):
    assert opens_by_agreeing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I disagree: parks matter more.",
        "No. My view has not changed.",
        "You're wrong about this.",
        "Parks are right for us, absolutely.",
        "",
    ],
)
def test_not_opening_by_agreeing(text):
    assert not opens_by_agreeing(text)


def test_agreeing_share():
    found = agreeing_share(["I agree.", "No."])
    assert found is not None
    assert found.value == 0.5
    assert agreeing_share([]) is None
