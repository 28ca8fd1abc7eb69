"""Suggestions of names: similar names are suggested, and dissimilar ones are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import folkmoot
from folkmoot.hints import (
    closest_name,
    command_line,
    count_words,
    did_you_mean,
    has_unspaced_script,
    join_first,
    join_words,
    natural_sort_key,
    shorten,
)

KEYS = ["interview_turns", "threshold_percent", "max_api_retries", "seed", "model"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("interview_turn", "interview_turns"),
        ("Threshold-Percent", "threshold_percent"),
        ("max api retries", "max_api_retries"),
        ("retries", "max_api_retries"),
        ("sede", "seed"),
        ("zebra", None),
        ("", None),
    ],
)
def test_the_closest_name_is_suggested(written: str, expected: str | None) -> None:
    assert closest_name(written, KEYS) == expected
    assert did_you_mean(written, KEYS, "look again") == (
        f"did you mean {expected}?" if expected else "look again"
    )


def test_several_suggestions_are_sorted_by_similarity() -> None:
    hint = did_you_mean("gpt-4", ["gpt-4o-mini", "gpt-4o", "claude"], max_guesses=2)
    assert hint == "did you mean gpt-4o, gpt-4o-mini?"


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.data())
def test_an_existing_name_is_recognised(names: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))
    closest = closest_name(name, names)
    assert closest is None or closest in names
    if re.search(r"\w", name):
        assert closest is not None


def test_other_modules_do_not_search_for_similar_names() -> None:
    source = Path(folkmoot.__file__).parent
    other_searches = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "get_close_matches" in path.read_text(encoding="utf-8")
        or "extractOne" in path.read_text()
    ]
    assert other_searches == []


def test_lists_are_joined_in_words_and_long_texts_shortened() -> None:
    assert [join_words(list(names)) for names in ("", "a", "ab", "abc")] == [
        *("", "a", "a and b", "a, b and c")
    ]
    assert (join_first(list("abc")), join_first(list("abcd"), 2)) == (
        "a, b and c",
        "a, b and 2 more",
    )
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 81) == "x" * 79 + "…"


def test_natural_order_compares_numbers_in_texts() -> None:
    names = ["t10", "t9", "t²", "t1a", "t" + "1" * 9_000, "ann", ""]
    in_order = ["", "ann", "t1a", "t9", "t10", "t" + "1" * 9_000, "t²"]
    assert sorted(names, key=natural_sort_key) == in_order


@pytest.mark.parametrize(
    ("text", "words", "is_unspaced"),
    [
        ("", 0, False),
        ("It - is, a box.", 5, False),
        # Korean and Arabic have spaces between words.
        ("가격이 비싸요", 2, False),
        ("إنه مفيد", 2, False),
        ("我觉得太贵了，但是很方便。", 11, True),
        ("我觉得太贵了，但是很方便。 إنه مفيد", 13, True),
        # Five letters of a place and three other words.
        ("東京タワー is 10 m", 8, True),
        # Vowel signs of Thai belong to the letter before them.
        ("ก็ดี", 2, True),
    ],
)
def test_words_are_counted_in_scripts_with_and_without_spaces(
    text: str, words: int, is_unspaced: bool
) -> None:
    assert count_words(text) == words
    assert has_unspaced_script(text) is is_unspaced


def test_a_command_can_be_pasted_whatever_its_paths_contain() -> None:
    path = Path("-d") / "run [1]"
    assert command_line("show", path, "--addresses") == "folkmoot show './-d/run [1]' --addresses"
