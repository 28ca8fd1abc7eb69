"""The vote parser: a table of sentences, properties, and unusual texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.studies.negotiation.rules.tally import (
    content_words,
    split_clauses,
    text_scores,
    words_of,
)

FOOD = ("diner", "barbecue", "brew pub", "pub", "sushi", "arts and theatre", "no smoking")

_LIST = {"sushi": -2, "barbecue": -2, "pub": -2}
# (sentence, {option: score}). Options that are not listed score 0.
SENTENCES = [
    # named
    ("Sushi.", {"sushi": 2}),
    ("Maybe sushi", {"sushi": 2}),
    ("SUSHI", {"sushi": 2}),
    ("ｓｕｓｈｉ", {"sushi": 2}),
    ("the diner's pancakes", {"diner": 2}),
    ("diners everywhere", {"diner": 2}),
    ("Barbecues are fun", {"barbecue": 2}),
    ("sushi or barbecue", {"sushi": 2, "barbecue": 2}),
    ("sushi sushi sushi", {"sushi": 2}),
    ("a sushi-bar", {"sushi": 2}),
    ("arts & theatre", {"arts and theatre": 2}),
    ("Arts and theatres", {"arts and theatre": 2}),
    ("sushirrito", {}),
    ("", {}),
    ("...", {}),
    ("Whatever suits the others", {}),
    # wanted
    ("I prefer diners with classic American food", {"diner": 4}),
    ("I love barbecue restaurants", {"barbecue": 4}),
    ("I want a brew pub experience", {"brew pub": 4}),
    ("I'd like sushi", {"sushi": 4}),
    ("She loves sushi", {"sushi": 4}),
    ("We need a diner", {"diner": 4}),
    ("I enjoy a good pub", {"pub": 4}),
    ("I would really, truly like sushi", {"sushi": 4}),
    ("I want very much to try some sushi", {"sushi": 2}),
    ("I want to have really good sushi", {"sushi": 2}),
    ("I want some very good sushi", {"sushi": 4}),
    ("Sushi is what I love", {"sushi": 2}),
    ("I love sushi and barbecue", {"sushi": 4, "barbecue": 4}),
    ("I love it here. Sushi is fine", {"sushi": 2}),
    # rejected
    ("No sushi", {"sushi": -2}),
    ("no sushi please", {"sushi": -2}),
    ("not sushi", {"sushi": -2}),
    ("I hate sushi", {"sushi": -2}),
    ("He hates sushi", {"sushi": -2}),
    ("I dislike sushi", {"sushi": -2}),
    ("avoid the diner", {"diner": -2}),
    ("skip barbecue", {"barbecue": -2}),
    ("Please exclude pubs", {"pub": -2}),
    ("anything without sushi", {"sushi": -2}),
    ("I don't want sushi", {"sushi": -2}),
    ("I don’t want sushi", {"sushi": -2}),
    *((f"I don{mark}t want sushi", {"sushi": -2}) for mark in "‘‛′ʹʼ´`＇"),
    ("I dont like sushi", {"sushi": -2}),
    ("I do not like sushi", {"sushi": -2}),
    ("I want no sushi", {"sushi": -2}),
    ("sushi is not for me", {"sushi": -2}),
    ("sushi is really and truly not for me", {"sushi": 2}),
    ("Not one of the many places with sushi", {"sushi": 2}),
    ("no diner or barbecue", {"diner": -2, "barbecue": -2}),
    ("sushi and no barbecue", {"sushi": -2, "barbecue": -2}),
    # boundaries
    ("sushi, not barbecue", {"sushi": 2, "barbecue": -2}),
    ("not barbecue, sushi", {"sushi": 2, "barbecue": -2}),
    ("I love sushi, not barbecue", {"sushi": 4, "barbecue": -2}),
    ("sushi but not barbecue", {"sushi": 2, "barbecue": -2}),
    ("sushi and not barbecue", {"sushi": 2, "barbecue": -2}),
    ("no barbecue; sushi", {"sushi": 2, "barbecue": -2}),
    ("No barbecue. Sushi!", {"sushi": 2, "barbecue": -2}),
    ("Barbecue? No! Sushi", {"sushi": 2, "barbecue": 2}),
    ("no barbecue\nsushi", {"sushi": 2, "barbecue": -2}),
    ("I like the diner but hate sushi", {"diner": 4, "sushi": -2}),
    ("sushi for 3.5 hours without stop", {"sushi": -2}),
    ("I love sushi, but no sushi on Monday", {"sushi": 0}),
    # lists
    ("I don't want sushi, barbecue, or a diner", {"sushi": -2, "barbecue": -2, "diner": -2}),
    ("No sushi, barbecue or pub, but a diner", _LIST | {"diner": 2}),
    ("I love the diner, no sushi, barbecue or pub", _LIST | {"diner": 4}),
    ("I hate sushi, barbecue and pubs", _LIST),
    ("Sushi, barbecue, and pubs are not for me", _LIST),
    ("I love sushi, barbecue and diners", {"sushi": 4, "barbecue": 4, "diner": 4}),
    ("No sushi, barbecue and a diner", {"sushi": -2, "barbecue": 2, "diner": 2}),
    ("I love sushi, a diner would do", {"sushi": 4, "diner": 2}),
    ("sushi, barbecue, no diner", {"sushi": 2, "barbecue": 2, "diner": -2}),
    # longest first
    ("brew pub", {"brew pub": 2}),
    ("brew-pubs", {"brew pub": 2}),
    ("a brew pub or a pub", {"brew pub": 2, "pub": 2}),
    ("no brew pub, a pub", {"brew pub": -2, "pub": 2}),
    ("I love brew pubs, no pub", {"brew pub": 4, "pub": -2}),
    ("brew, pub", {"brew pub": 1, "pub": 2}),
    # weak overlap
    ("a good brew", {"brew pub": 1}),
    ("I love the theatre", {"arts and theatre": 1}),
    ("theatre and the arts", {"arts and theatre": 2}),
    ("no theatre", {}),
    ("smoking", {"no smoking": 1}),
    # a cue inside an option is part of its name
    ("no smoking", {"no smoking": 2}),
    ("I want no smoking", {"no smoking": 4}),
    ("no smoking and a diner", {"no smoking": 2, "diner": 2}),
    ("a no-frills diner", {"diner": 2}),
    # a negation in the name of an option counts for members who reject the option only
    ("no heavy smoking", {"no smoking": 1}),
    ("I hate smoking", {"no smoking": 1}),
    ("I love smoking", {}),
]


def test_the_table_is_long_enough() -> None:
    assert len(SENTENCES) >= 60
    assert len({text for text, _ in SENTENCES}) == len(SENTENCES)


@pytest.mark.parametrize(("text", "expected"), SENTENCES)
def test_sentence(text: str, expected: dict[str, int]) -> None:
    assert text_scores(text, FOOD) == {o: expected.get(o, 0) for o in FOOD}


PLACES = ("harbour", "old market", "market", "garden walk", "tower")
SMALL_TALK = """
I we the a and or but not no don't love want like hate avoid really today
harbour harbours old market garden walk tower towers , . ; !
"""
WORDS = SMALL_TALK.split()
speech = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


@given(speech, st.sampled_from(PLACES), st.sampled_from(["no {}", "I hate {}", "skip the {}"]))
def test_adding_a_rejection_never_raises_a_score(text: str, option: str, form: str) -> None:
    before = text_scores(text, PLACES)
    for joint in (". ", ", ", "; ", " but ", " "):
        after = text_scores(text + joint + form.format(option), PLACES)
        assert after[option] <= before[option]


@given(speech, st.permutations(PLACES))
def test_renaming_options_permutes_the_result(text: str, order: list[str]) -> None:
    # All names are exchanged at the same time, and words of names stay words of names.
    codes = {"harbour": "qqa", "old": "qqb", "market": "qqc", "garden": "qqd", "walk": "qqe"}
    codes |= {"tower": "qqf", "harbours": "qqas", "towers": "qqfs"}

    def renamed(phrase: str) -> str:
        return " ".join(codes.get(w, w) for w in phrase.split())

    before = text_scores(text, PLACES)
    after = text_scores(renamed(text), [renamed(o) for o in order])
    assert after == {renamed(o): before[o] for o in PLACES}


@given(speech, st.permutations(PLACES))
def test_the_order_of_options_never_matters(text: str, order: list[str]) -> None:
    assert text_scores(text, PLACES) == text_scores(text, order)


@given(st.text(max_size=400), st.lists(st.text(max_size=30), max_size=6, unique=True))
def test_any_text_has_bounded_scores(text: str, options: list[str]) -> None:
    found = text_scores(text, options)
    assert list(found) == options
    for option, score in found.items():
        assert -2 <= score <= max(4, len(words_of(option)))


@given(st.text(max_size=200))
def test_a_text_names_itself(option: str) -> None:
    words = words_of(option)
    if words and len(split_clauses(option)) == 1 and split_clauses(option)[0] == words:
        assert text_scores(option, [option])[option] == 2


def test_saying_it_twice_weighs_no_more() -> None:
    once = text_scores("I love sushi", FOOD)
    assert text_scores("I love sushi. I love sushi. I love sushi", FOOD) == once


@given(st.lists(st.sampled_from(PLACES[:1] + PLACES[3:]), min_size=2, max_size=3, unique=True))
def test_a_list_that_is_turned_down_is_turned_down_whole(some: list[str]) -> None:
    """The length of the names of options and the last comma do not matter."""
    for last in (" or ", ", or ", " or the "):
        text = "I don't want the " + ", ".join(some[:-1]) + last + some[-1]
        found = text_scores(text, PLACES)
        assert {o for o, score in found.items() if score == -2} == set(some)


def test_content_words_leave_out_small_words_and_cues() -> None:
    found = content_words("I really want the diners, not a museum")
    assert found == {"diner", "museum"}


@pytest.mark.parametrize("mark", [*"'‘’‛′‵ʹʻʼʽˈ´`＇՚ꞌˊˋʾʿ׳", "", " "])
def test_a_negation_is_read_with_any_apostrophe(mark: str) -> None:
    assert text_scores(f"I don{mark}t want sushi", FOOD)["sushi"] == -2
