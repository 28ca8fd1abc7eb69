"""Hashed embeddings: the vector of a text does not depend on other texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.models.local.hashed_embeddings import DIMENSIONS, embed_texts, word_weight

TEXTS = [
    "Buses at night bring cleaners and nurses home.",
    "Night buses take the nurses and the cleaners home.",
    "A swimming pool teaches children to swim.",
    "The budget of the opera house has doubled.",
]

TOP, LARGEST = 278, 0.5065


def test_rows_are_unit_vectors_of_the_stated_size() -> None:
    rows = embed_texts(TEXTS)
    assert rows.shape == (4, DIMENSIONS)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", ["", "   ", "...", "the of and"])
def test_text_without_content_words_has_a_zero_vector(text: str) -> None:
    assert not embed_texts([text]).any()


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_vector_does_not_depend_on_the_batch(texts: list[str], at: int) -> None:
    at %= len(texts)
    assert np.array_equal(embed_texts(texts)[at], embed_texts([texts[at]])[0])


def test_texts_on_one_topic_are_closer_than_texts_on_two() -> None:
    rows = embed_texts(TEXTS)
    same_topic, other_topic = rows[0] @ rows[1], max(rows[0] @ rows[2], rows[0] @ rows[3])
    assert same_topic > other_topic + 0.3


def test_inflected_words_are_close_by_their_character_ngrams() -> None:
    rows = embed_texts(["gardening", "gardeners", "plumbing"])
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.1


def test_case_and_apostrophes_do_not_matter() -> None:
    first_vector, second_vector = embed_texts(["The Neighbour’s Garden", "the neighbour's garden"])
    assert np.allclose(first_vector, second_vector)


def test_stop_words_have_no_weight_and_long_words_more() -> None:
    assert word_weight("the") == 0
    assert 0 < word_weight("people") < word_weight("tax") < word_weight("maintenance")


def test_vector_of_a_text_never_changes() -> None:
    # Changes of the table or the hash change all stored embeddings, so they must be deliberate.
    row = embed_texts(["dignity for lonely neighbours"])[0]
    assert int(np.argmax(np.abs(row))) == TOP
    assert float(np.abs(row).max()) == pytest.approx(LARGEST, abs=1e-4)
