"""Exposure doses: arguments, own texts and answered turns, and their effects."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.models.request import Message, RespondentHints
from folkmoot.provenance import Source, SourcedText, Span, quote_value
from folkmoot.respondent import general_lexicon
from folkmoot.respondent.mind.persona import persona_from_text
from folkmoot.respondent.mind.reading import argument_counts, read_prompt
from tests.planted.mirror import Exposure, compute_true_rates
from tests.respondent.town import (
    CARE,
    ENTERPRISE,
    FINAL_QUESTION,
    OPTIONS,
    PRUDENCE,
    Town,
    make_page,
    make_page_and_vote,
    make_persona,
    make_prompt,
    make_transcript,
)

PEOPLE_COUNT = 1200
MARKET, BUSES, POOL = OPTIONS


def measure_changed_share(town: Town, first: dict[int, str], asked: str = FINAL_QUESTION) -> float:
    again = (town.vote(n, held=held, asked=asked, at="again") != held for n, held in first.items())
    return sum(again) / len(first)


def cast_first_votes(town: Town, count: int = PEOPLE_COUNT) -> dict[int, str]:
    return {number: town.vote(number) for number in range(count)}


def test_a_plain_re_ask_flips_about_seven_and_a_half_percent_and_none_without_noise() -> None:
    town = Town(4)
    assert 0.06 < measure_changed_share(town, cast_first_votes(town)) < 0.095
    floor = compute_true_rates(
        [make_persona(n) for n in range(PEOPLE_COUNT)], OPTIONS, Exposure(), seed=4
    )
    assert 0.068 < sum(floor) / PEOPLE_COUNT < 0.085
    still = Town(4, {"noise": 0})
    assert measure_changed_share(still, cast_first_votes(still, 300)) == 0


def test_a_word_speaks_for_the_option_named_before_it_else_for_the_first_named_after() -> None:
    text = f"{CARE} is {MARKET.upper()}. It is {PRUDENCE}. With free  evening buses, {ENTERPRISE}."
    found = argument_counts(text, OPTIONS, general_lexicon())
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
    assert argument_counts(text, OPTIONS, general_lexicon()) == {}


OPPOSING_TEXTS = [f"With {BUSES} there would be {CARE}.", f"{BUSES} means {PRUDENCE}. Does it not?"]
OWN_TEXTS = [f"I stay with {MARKET} for {ENTERPRISE}.", f"My reason for {MARKET} is {CARE}."]
TURNS = (OPPOSING_TEXTS[0], OWN_TEXTS[0], OPPOSING_TEXTS[1], OWN_TEXTS[1])


def write_out(order: list[int], labels: tuple[str, str]) -> SourcedText:
    """Return a prompt with a dialogue, its turns in any order under any labels."""
    said = list(make_transcript(1, *TURNS))
    return make_prompt(
        *(make_prompt(labels[k % 2], said[k].quoted_text, "\n") for k in order), FINAL_QUESTION
    )


@given(st.permutations(range(4)))
def test_a_dialogue_is_known_by_its_sources_in_any_order_and_as_messages(order: list[int]) -> None:
    spoken = Town().mind(1, *TURNS, held=MARKET).exposure_dose
    assert spoken.turns == {BUSES: 2}
    assert set(spoken.arguments) == {BUSES} and not spoken.interviewed
    for labels in (("Moderator: ", "You: "), ("", "")):
        assert Town().mind(1, held=MARKET, asked=write_out(order, labels)).exposure_dose == spoken


def test_the_same_words_without_a_source_are_instructions_without_effect() -> None:
    bare = make_prompt(str(write_out([0, 1, 2, 3], ("", ""))), str(make_page()), FINAL_QUESTION)
    assert (
        Town().mind(1, held=MARKET, asked=bare).exposure_dose
        == Town().mind(1, held=MARKET).exposure_dose
    )


def test_an_interview_and_a_dialogue_beside_each_other_are_two_conversations() -> None:
    dialogue = list(make_transcript(1, *TURNS))
    interview = list(make_transcript(1, "Why?", OWN_TEXTS[0], at="interview"))
    mixed = [dialogue[0], interview[1], dialogue[2], dialogue[1], interview[0], dialogue[3]]
    shown = make_prompt(*(u.quoted_text for u in mixed), FINAL_QUESTION)
    dose = Town().mind(1, held=MARKET, asked=shown).exposure_dose
    assert dose.turns == {BUSES: 2} and dose.interviewed


def test_an_interview_is_no_exposure_and_makes_what_is_read_weigh_more() -> None:
    said = ("Why?", f"I chose {MARKET} for {CARE}. {POOL} would mean {PRUDENCE}.")
    silent = Town().mind(1, *said, held=MARKET)
    assert silent.exposure_dose.arguments == {} and silent.exposure_dose.interviewed
    assert silent.option_utilities() == silent.initial_utilities()
    read_only = Town().mind(1, held=MARKET, asked=make_page_and_vote())
    both = Town().mind(1, *said, held=MARKET, asked=make_page_and_vote())
    assert both.exposure_dose.arguments == read_only.exposure_dose.arguments
    market, buses = (read_only.options.index(option) for option in (MARKET, BUSES))
    initial, after_reading = read_only.initial_utilities(), read_only.option_utilities()
    assert both.option_utilities()[buses] > after_reading[buses] > initial[buses]
    assert after_reading[market] == initial[market]  # one's own side is no news


@given(st.permutations(OPTIONS), st.integers(0, 40))
def test_the_order_of_arguments_has_no_effect(order: list[str], n: int) -> None:
    one, other = (
        Town().mind(n, held=MARKET, asked=make_page_and_vote(o)) for o in (OPTIONS, order)
    )
    assert one.option_utilities() == other.option_utilities()


def test_each_of_reading_an_interview_and_a_dialogue_adds_to_the_others() -> None:
    people = [make_persona(n) for n in range(250)]

    def rate(**exposure: int) -> float:
        found = compute_true_rates(people, OPTIONS, Exposure(**exposure), seed=1)  # type: ignore[arg-type]
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


def test_of_two_options_the_opposing_view_of_each_possible_first_vote_is_the_other_one() -> None:
    people, pair = [make_persona(n) for n in range(200)], (MARKET, BUSES)
    dialogue = Exposure(read=45, turns=3, interviewed=True)
    named = {MARKET: {BUSES: 3}, BUSES: {MARKET: 1}}
    all_rivals = compute_true_rates(people, pair, dialogue, seed=1)
    assert compute_true_rates(people, pair, dialogue, seed=1, against=named) == all_rivals
    # An opposing view that is the option held is a dialogue without effect.
    own = {o: {o: 1} for o in pair}
    assert compute_true_rates(people, pair, dialogue, seed=1, against=own) == compute_true_rates(
        people, pair, Exposure(read=45, interviewed=True), seed=1
    )


@pytest.mark.parametrize(("knobs", "moved"), [({}, True), ({"persuasion": 0}, False)])
def test_reading_moves_people_unless_persuasion_is_zero(
    knobs: dict[str, float], moved: bool
) -> None:
    town = Town(5, knobs)
    first = cast_first_votes(town, 600)
    floor, read_it = (
        measure_changed_share(town, first),
        measure_changed_share(town, first, make_page_and_vote()),
    )
    assert read_it > floor + 0.02 if moved else read_it == floor


def test_reasons_of_one_camp_move_that_camp_most() -> None:
    town = Town(6)
    first = cast_first_votes(town)
    told = [quote_value(f"{o} means {CARE}.", "summary", f"clusters.text/{o}") for o in OPTIONS]
    moved, size = [0, 0, 0], [0, 0, 0]
    for n, held in first.items():
        camp = persona_from_text(make_persona(n), 6).camp
        size[camp] += 1
        moved[camp] += (
            town.vote(n, held=held, at="again", asked=make_prompt(*told, FINAL_QUESTION)) != held
        )
    rates = [m / s for m, s in zip(moved, size, strict=True)]
    assert rates[0] > rates[1] and rates[0] > rates[2] + 0.02, rates


def test_a_person_is_one_in_all_prompts_and_follows_from_the_persona_passages_alone() -> None:
    lines = [quote_value("Ann is a cook.", "persona", "people.job/a", "a")]
    lines.append(quote_value("She has two sons.", "persona", "people.family/a", "a"))
    other = quote_value("Bo is a roofer.", "persona", "people.job/b", "b")

    def who(system: str) -> str:
        request = Town().request(RespondentHints("participant", speaker="a"), system, "Well?")
        return Town().model.build_mind(read_prompt(request), "a").who.key

    mixed = make_prompt("Listen. ", lines[1], " Vote!", lines[0], "And now ", other)
    assert who(make_prompt(*lines)) == who(mixed)
    assert who(lines[0]) == "Ann is a cook."
    assert who("You are Bo.") == "You are Bo."  # an f-string: its source is unknown
    assert who(make_prompt("You are a resident of the town.")) == "a"  # an instruction


def test_the_option_held_is_the_last_one_chosen_else_the_one_liked_best() -> None:
    liked = Town().mind(1)
    assert liked.current_option == OPTIONS[max(range(3), key=liked.initial_utilities().__getitem__)]
    assert {Town().mind(1, held=o).current_option for o in OPTIONS} == set(OPTIONS)
    later = quote_value(POOL, "answer", "second/1/ask0", "p1")
    theirs = quote_value(BUSES, "answer", "second/2/ask0", "p2")
    assert (
        Town().mind(1, held=MARKET, asked=make_prompt(later, theirs, FINAL_QUESTION)).current_option
        == POOL
    )


def test_a_reply_depends_on_seed_address_and_text_only() -> None:
    one, two = Town(3), Town(3)
    two.says(2, MARKET, "Why?")
    assert one.says(1, MARKET, "Why?") == two.says(1, MARKET, "Why?")
    assert one.says(1, MARKET, "Why?") != one.says(1, MARKET, "Why?", at="elsewhere")
    assert one.says(1, MARKET, "Why?") != Town(4).says(1, MARKET, "Why?")


def test_a_re_ask_is_answered_as_what_it_repeats_and_is_no_talk() -> None:
    town = Town(1)
    first = town.voting(1, held=MARKET, asked=make_page_and_vote())
    back = (Message("assistant", "I like them all."), Message("user", "Not that. One of them!"))
    given_back = Span(0, len(back[0].content), Source("reply", "a", "p1"), len(first.messages))
    again = replace(first, messages=(*first.messages, *back), spans=(*first.spans, given_back))
    minds = [town.model.build_mind(read_prompt(r), at) for r, at in ((first, "a"), (again, "a.r1"))]
    assert minds[0].reading.about == minds[1].reading.about
    assert minds[0].exposure_dose == minds[1].exposure_dose
    assert minds[0].option_utilities() == minds[1].option_utilities()
