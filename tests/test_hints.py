"""Guesses at names: a slip is recognised, what is nothing like any name is not guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import folkmoot
from folkmoot.hints import (
    closest_name,
    did_you_mean,
    join_first,
    join_words,
    natural_sort_key,
    shorten,
)

KEYS = ["interview_turns", "threshold_percent", "max_api_retries", "seed", "model"]


@pytest.mark.parametrize(
    ("said", "meant"),
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
def test_the_name_that_was_meant(said: str, meant: str | None) -> None:
    assert closest_name(said, KEYS) == meant
    assert did_you_mean(said, KEYS, "look again") == (
        f"did you mean {meant}?" if meant else "look again"
    )


def test_several_guesses_come_nearest_first() -> None:
    hint = did_you_mean("gpt-4", ["gpt-4o-mini", "gpt-4o", "claude"], max_guesses=2)
    assert hint == "did you mean gpt-4o, gpt-4o-mini?"


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.data())
def test_a_known_name_is_its_own_nearest_up_to_case(known: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(known))
    found = closest_name(name, known)
    assert found is None or found in known
    if re.search(r"\w", name):
        assert found is not None


def test_nobody_else_words_a_guess() -> None:
    source = Path(folkmoot.__file__).parent
    own = [
        str(f.relative_to(source))
        for f in source.rglob("*.py")
        if "get_close_matches" in f.read_text(encoding="utf-8") or "extractOne" in f.read_text()
    ]
    assert own == []


def test_names_in_words_and_texts_cut_short() -> None:
    assert [join_words(list(names)) for names in ("", "a", "ab", "abc")] == [
        *("", "a", "a and b", "a, b and c")
    ]
    assert (join_first(list("abc")), join_first(list("abcd"), 2)) == ("a, b, c", "a, b and 2 more")
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 81) == "x" * 79 + "…"


def test_numbers_in_texts_are_compared_as_numbers() -> None:
    names = ["t10", "t9", "t²", "t1a", "t" + "1" * 9_000, "ann", ""]
    in_order = ["", "ann", "t1a", "t9", "t10", "t" + "1" * 9_000, "t²"]
    assert sorted(names, key=natural_sort_key) == in_order
