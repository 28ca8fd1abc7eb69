"""Games: gifts within bounds, worn down by rounds, drawn to what others gave; talk to match."""

from __future__ import annotations

from statistics import mean, pstdev

import pytest

from folkmoot.models.synthetic import games
from folkmoot.models.synthetic.games import _GENEROUS, _MIDDLING, _WARY
from tests.models.synthetic.synthetic_world import World, persona

ASK = "How many of your 20 tokens do you put into the pot? Answer with a whole number from 0 to 20."
N = 200


def gifts(world: World, *before: str, ask: str = ASK, note: str = "") -> list[int]:
    return [int(world.ask(f"g/{n}{note}", f"You are {persona(n)}", *before, ask)) for n in range(N)]


def test_first_gifts_are_about_half_and_differ_between_people() -> None:
    given = gifts(World(1))
    assert all(0 <= g <= 20 for g in given)
    assert 7.5 < mean(given) < 12
    assert pstdev(given) > 3


def test_gifts_wear_down_from_round_to_round() -> None:
    world = World(1)
    later = gifts(world, ASK, "10", ASK, "10", ASK, "10", ASK, "10")
    assert mean(later) < mean(gifts(world)) - 1


def test_gifts_are_drawn_to_the_average_that_the_text_tells() -> None:
    world = World(1)
    low, high = (gifts(world, ask=f"On average 2 were given. {ASK}".replace("2 ", f"{k} "))
                 for k in (1, 19))  # fmt: skip
    assert mean(high) > mean(low) + 1.5


def test_one_person_gives_alike_in_like_rounds() -> None:
    world = World(1)
    pairs = zip(gifts(world), gifts(world, note="again"), strict=True)
    assert mean(abs(a - b) for a, b in pairs) < 3


def test_shrinking_variance_makes_all_give_alike() -> None:
    assert pstdev(gifts(World(1, {"shrinking_variance": 1}))) < 0.7 * pstdev(gifts(World(1)))


def test_what_is_said_before_a_game_is_about_the_game_and_names_who_spoke() -> None:
    world = World(2)
    said = [
        world.ask(f"t/{n}", f"You are {persona(n)}", "Ann: Let us give.\n\nTalk of the tokens now.")
        for n in range(60)
    ]
    assert len(set(said)) > 15
    assert 10 < sum("Ann" in s for s in said) < 50


def test_a_summarizer_repeats_what_was_said_and_nothing_else() -> None:
    told = World(2).ask("s", "You are the Summarizer.", "Ann: I give all.\nBen: I keep mine. So.")
    assert "Ann: I give all" in told and "Ben: I keep mine" in told


@pytest.mark.parametrize(
    ("theirs", "mine", "how"),
    [
        (_WARY, _WARY, games._AGREES),
        (_GENEROUS, _GENEROUS, games._AGREES),
        (_WARY, _GENEROUS, games._DIFFERS),
        (_GENEROUS, _WARY, games._DIFFERS),
        (_MIDDLING, _WARY, games._HEARD),
        (_GENEROUS, _MIDDLING, games._HEARD),
        (("I like trains.",), _WARY, games._HEARD),
    ],
)
def test_nobody_goes_along_with_the_opposite_of_what_they_say(
    theirs: tuple[str, ...], mine: tuple[str, ...], how: tuple[str, ...]
) -> None:
    assert games._taking_up(f"Well. {theirs[-1]}", mine) == how
