"""Position effects, moves towards an argument, and agreement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from folkmoot.measures.diagnostics import agreeing_share, check_position_bias, opens_by_agreeing
from folkmoot.measures.inference.paired_votes import towards_target
from folkmoot.measures.position import Shown, position_effects, shown_in

OPTIONS = ("a", "b", "c")


def draw_choices(n: int, bias: float, seed: int = 0) -> list[Shown]:
    """Draw choices from random orders. The first is taken at rate `bias`, others by popularity."""
    rng = np.random.default_rng(seed)
    choices = []
    for i in range(n):
        order = tuple(OPTIONS[j] for j in rng.permutation(3))
        free = OPTIONS[int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
        choices.append(Shown(order, order[0] if rng.random() < bias else free, i))
    return choices


def test_position_effect_is_recovered():
    # With chance .3 the first is taken: its share rises by .3 * (1 - 1/3) = .2, the others' falls
    # by .1; against the other places the difference is .3.
    result = position_effects(draw_choices(4_000, 0.3))
    assert result.first is not None
    assert result.first.low < 0.3 < result.first.high
    assert result.by_place[2].value < 0
    assert result.orders == 6


def test_a_choice_of_an_unknown_participant_counts_once():
    choices = draw_choices(200, 0.3)
    known = position_effects(choices).first
    assert position_effects([replace(choice, who=None) for choice in choices]).first == known
    of_three = [replace(choice, who=choice.who % 3) for choice in choices]
    assert check_position_bias(of_three).verdict == "not known"
    assert check_position_bias([replace(choice, who=None) for choice in choices]).value is not None


def test_unbiased_choices_have_no_position_effect():
    result = position_effects(draw_choices(2_000, 0.0))
    assert result.first is not None
    assert not result.first.excludes_zero


def test_position_and_popularity_are_distinguished():
    # Most participants see the favourite first. A raw share would call that a position effect.
    rng = np.random.default_rng(3)
    choices = [
        Shown(("a", "b", "c") if rng.random() < 0.8 else ("c", "b", "a"), "a", i)
        for i in range(500)
    ]
    result = position_effects(choices)
    assert result.first is not None
    assert result.first.value == pytest.approx(0.0, abs=1e-9)


def test_one_order_gives_no_position_effect():
    result = position_effects([Shown(OPTIONS, "a", i) for i in range(9)])
    assert result.first is None
    assert result.orders == 1
    assert position_effects([]).by_place == {}


def test_lists_of_different_options_give_no_position_effect():
    # "yes" is always listed first, and all choose it: the third place is that of another option.
    lists = [("yes", "no"), ("yes", "no", "neither")]
    result = position_effects([Shown(lists[i % 2], "yes", i) for i in range(40)])
    assert result.by_place == {}
    assert result.orders == 1


def test_speakers_with_one_id_in_two_groups_are_distinct():
    rows = [
        {"options": '["a", "b"]', "value": "a", "speaker_id": "p_1", "group": group}
        for group in ("g_1", "g_1", "g_2")
    ]
    assert len({shown.who for shown in shown_in(rows, lambda row: row["group"])}) == 2


def test_moves_towards_a_target_are_compared_with_chance():
    result = towards_target(10, 9, 3)
    assert result is not None
    assert result.expected == 0.5
    assert result.p == pytest.approx(2 * 11 / 1024)
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
def test_agreeing_openings_are_recognised(text):
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
def test_other_openings_are_not_agreeing(text):
    assert not opens_by_agreeing(text)


def test_the_share_of_agreeing_openings():
    result = agreeing_share(["I agree.", "No."])
    assert result is not None
    assert result.value == 0.5
    assert agreeing_share([]) is None
