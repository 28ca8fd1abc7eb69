"""JSON of requests and replies, also where the fast library raises an error."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot import json_text
from tests.json_values import json_values

VALUES = json_values(st.integers(-(2**63), 2**64 - 1))


@given(VALUES)
def test_encoded_json_is_read_by_any_reader(value: Any) -> None:
    text = json_text.encode_json(value)
    assert json.loads(text) == value
    assert json_text.decode_json(text) == json.loads(text)
    assert json_text.decode_json(text.decode()) == json.loads(text)


def test_integers_of_any_size_are_written() -> None:
    assert json_text.encode_json([2**70]) == b"[1180591620717411303424]"


def test_a_lone_surrogate_is_encoded_as_a_question_mark_and_decoded_unchanged() -> None:
    assert json_text.encode_json({"said": "so \ud83d"}) == b'{"said":"so ?"}'
    assert json_text.decode_json(b'{"said": "so \\ud83d"}') == {"said": "so \ud83d"}


@pytest.mark.parametrize("broken", [b"", b"{", b'{"a": 1}x', b"\xff"])
def test_invalid_json_raises_a_value_error(broken: bytes) -> None:
    with pytest.raises(ValueError):
        json_text.decode_json(broken)


def test_encoded_json_uses_no_more_memory_than_its_length() -> None:
    """Fifty thousand requests may wait for one batch."""
    tracemalloc.start()
    encoded_texts = [json_text.encode_json({"n": n}) for n in range(100)]
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used_bytes < 200 * len(encoded_texts)


def test_lone_surrogates_are_replaced_in_texts_keys_and_lists() -> None:
    value = {"a\ud83d": ["so \ud83d", "İß\u2028", {"b": 1.5, "c": None}], "d": True}
    assert json_text.replace_lone_surrogates(value) == {
        **{"a?": ["so ?", "İß\u2028", {"b": 1.5, "c": None}]},
        "d": True,
    }
