"""What counts as an argument, as one's own words, and as having had to answer; and what they do."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.models.request import Message, Request, RespondentHints
from folkmoot.respondent import general
from folkmoot.respondent.persona import meet
from folkmoot.respondent.reading import arguments, read
from tests.planted.mirror import Exposure, true_rates
from tests.respondent.town import (
    CARE,
    ENTERPRISE,
    FINAL,
    OPTIONS,
    PRUDENCE,
    Town,
    page,
    persona,
    system,
)

MANY = 2000
MARKET, BUSES, POOL = OPTIONS


def changed(town: Town, first: dict[int, str], *turns: str) -> float:
    again = (town.vote(n, *turns, held=held, at="again") != held for n, held in first.items())
    return sum(again) / len(first)


def first_votes(town: Town, n: int = MANY) -> dict[int, str]:
    return {k: town.vote(k) for k in range(n)}


def test_a_plain_re_ask_flips_about_seven_and_a_half_percent_and_none_without_noise() -> None:
    town = Town(4)
    assert 0.06 < changed(town, first_votes(town), FINAL) < 0.095
    floor = true_rates([persona(n) for n in range(MANY)], OPTIONS, Exposure(), seed=4)
    assert 0.068 < sum(floor) / MANY < 0.085
    still = Town(4, {"noise": 0})
    assert changed(still, first_votes(still, 300), FINAL) == 0


def test_a_word_speaks_for_the_option_named_before_it_else_for_the_first_named_after() -> None:
    text = f"{CARE} is {MARKET.upper()}. It is {PRUDENCE}. With free  evening buses, {ENTERPRISE}."
    found = arguments(text, OPTIONS, general())
    assert found[MARKET][0] > 0 and found[MARKET][1] > 0 and found[MARKET][2] == 0
    assert found[BUSES][:2] == (0, 0) and found[BUSES][2] > 0
    assert POOL not in found


@pytest.mark.parametrize(
    "text",
    [
        "Weigh the evidence before you name A public swimming pool.",
        "A covered market",
        CARE.split()[0],
    ],
)
def test_one_argument_word_is_chance_and_names_are_no_arguments(text: str) -> None:
    assert arguments(text, OPTIONS, general()) == {}


LABELS = [
    ("Moderator: {}", "You: {}"),
    ("Q — {}", "A — {}"),
    ("> {}", "{}"),
    ("[1]\n{}\n", "[2]\n{}\n"),
    ("They told you: «{}»", "To which you said: «{}»"),
]


@pytest.mark.parametrize("labels", LABELS)
def test_a_dialogue_is_known_under_any_labels_and_as_messages(labels: tuple[str, str]) -> None:
    put = [f"With {BUSES} there would be {CARE}.", f"{BUSES} means {PRUDENCE}. Does it not?"]
    own = [f"I stay with {MARKET} for {ENTERPRISE}.", f"My reason for {MARKET} is {CARE}."]
    told = "\n".join(
        said
        for a, b in zip(put, own, strict=True)
        for said in (labels[0].format(a), labels[1].format(b))
    )
    written = Town().mind(1, f"Vozu:\n\n{told}\n\n{FINAL}", held=MARKET).dose
    spoken = Town().mind(1, put[0], own[0], put[1], own[1], FINAL, held=MARKET).dose
    assert written == spoken
    assert written.turns == {BUSES: 2}
    assert set(written.arguments) == {BUSES} and not written.interviewed


def test_an_interview_is_no_exposure_and_makes_what_is_read_weigh_more() -> None:
    talk = ("Why?", f"I chose {MARKET} for {CARE}. {POOL} would mean {PRUDENCE}.")
    silent = Town().mind(1, *talk, FINAL, held=MARKET)
    assert silent.dose.arguments == {} and silent.dose.interviewed
    assert silent.utilities() == silent.tastes()
    read_only = Town().mind(1, f"{page()}\n\n{FINAL}", held=MARKET)
    both = Town().mind(1, *talk, f"{page()}\n\n{FINAL}", held=MARKET)
    assert both.dose.arguments == read_only.dose.arguments
    assert both.opinion(BUSES) > read_only.opinion(BUSES) > read_only.tastes()[1]
    assert read_only.opinion(MARKET) == read_only.tastes()[0]  # one's own side is no news


@given(st.permutations(OPTIONS), st.integers(0, 40))
def test_the_order_in_which_arguments_stand_moves_nobody_differently(
    order: list[str], n: int
) -> None:
    one, other = (
        Town().mind(n, f"{page(tuple(o))}\n\n{FINAL}", held=MARKET) for o in (OPTIONS, order)
    )
    assert one.utilities() == other.utilities()


def test_each_of_reading_an_interview_and_a_dialogue_adds_to_the_others() -> None:
    people = [persona(n) for n in range(500)]

    def rate(**exposure: int) -> float:
        found = true_rates(people, OPTIONS, Exposure(**exposure), seed=1)  # type: ignore[arg-type]
        return sum(found) / len(found)

    argued = {"argued": 18, "turns": 3}
    switches = {"i": {"interviewed": 1}, "s": {"read": 45}, "d": argued}
    rates = {
        "".join(on): rate(**{k: v for name in on for k, v in switches[name].items()})
        for size in range(4)
        for on in itertools.combinations("sid", size)
    }
    assert rates["i"] == rates[""]
    for more in "sid":
        for have, size in rates.items():
            together = "".join(s for s in "sid" if s in have or s == more)
            if more not in have and together not in ("i", ""):
                assert rates[together] > size + 0.015, (have, more, rates)


@pytest.mark.parametrize(("knobs", "moved"), [({}, True), ({"persuasion": 0}, False)])
def test_reading_moves_people_unless_persuasion_is_zero(
    knobs: dict[str, float], moved: bool
) -> None:
    town = Town(5, knobs)
    first = first_votes(town, 1000)
    floor, read_it = changed(town, first, FINAL), changed(town, first, f"{page()}\n\n{FINAL}")
    assert read_it > floor + 0.02 if moved else read_it == floor


def test_reasons_of_one_camp_move_that_camp_most() -> None:
    town = Town(6)
    first = first_votes(town)
    told = "\n".join(f"{o} means {CARE}." for o in OPTIONS)
    moved, size = [0, 0, 0], [0, 0, 0]
    for n, held in first.items():
        camp = meet(persona(n), 6).camp
        size[camp] += 1
        moved[camp] += town.vote(n, f"{told}\n\n{FINAL}", held=held, at="again") != held
    rates = [m / s for m, s in zip(moved, size, strict=True)]
    assert rates[0] > rates[1] and rates[0] > rates[2] + 0.02, rates


def test_a_persona_counts_only_where_it_stands_and_is_one_person_in_all_prompts() -> None:
    def who(told: str, described: str) -> str:
        request = Request(
            "x",
            (Message("system", told), Message("user", "Well?")),
            asked=RespondentHints("participant", described),
        )
        return Town().model.mind(read(request, "a"), "a").who.key

    tale = "Ann is a cook.\nShe has two sons."
    assert who(f"{tale} Now vote.", tale) == who(
        f"Listen. {tale.replace(' ', '  ')}\n\nArgue!", tale
    )
    assert who("You are Bo.", tale) == "You are Bo."
    assert who("Ann is a cook. She has none.", tale) == "Ann is a cook."


def test_the_option_held_is_the_one_singled_out_else_the_one_liked_best() -> None:
    liked = Town().mind(1, FINAL)
    assert liked.held == OPTIONS[max(range(3), key=liked.tastes().__getitem__)]
    assert {Town().mind(1, FINAL, held=o).held for o in OPTIONS} == set(OPTIONS)


def test_a_reply_depends_on_seed_address_and_text_only() -> None:
    one, two = Town(3), Town(3)
    two.says(2, MARKET, "Why?")
    assert one.says(1, MARKET, "Why?") == two.says(1, MARKET, "Why?")
    assert one.says(1, MARKET, "Why?") != one.says(1, MARKET, "Why?", at="elsewhere")
    assert one.says(1, MARKET, "Why?") != Town(4).says(1, MARKET, "Why?")


def test_a_re_ask_is_answered_as_what_it_repeats_and_is_no_talk() -> None:
    town = Town(1)
    asked = RespondentHints("participant", persona(1), "choice", OPTIONS)
    told = system(persona(1), MARKET)
    again = town.request(
        asked, told, f"{page()}\n\n{FINAL}", "I like them all.", "Not that. One of them!"
    )
    first = town.request(asked, told, f"{page()}\n\n{FINAL}")
    minds = [town.model.mind(read(r, at), at) for r, at in ((first, "a"), (again, "a.r1"))]
    assert minds[0].dose == minds[1].dose
    assert minds[0].utilities() == minds[1].utilities()
