"""Rows, tags and records as lines of one form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.lines import plain


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        ("| who | words |\n|:--|---|\n| **Ann** | I do. |", "who, words\nAnn: I do."),
        ("| 1 | Ann | 5 |\n| 2 | Bob | 7 |", "Ann: 5\nBob: 7"),
        ("| Ann | Bob and Cy | day 2 |", "Ann: Bob and Cy (day 2)"),
        ("| V1 | Plant a tree in it | 5 | 1 |", "V1: Plant a tree in it (5; 1)"),
        ("| A1 | Ann | I want a tree. |\n| A2 | Bob | |", "A1, Ann: I want a tree.\nA2, Bob:"),
        ("| Ann | Bob | – |", "Ann: Bob"),
        ("| Buses |\n| Trees |", "- Buses\n- Trees"),
        ('<turn n="2" by="Ann">I do.</turn>', "2, Ann: I do."),
        ("<turn by='Ann'>\nI do.\n</turn>", "Ann: I do."),
        ("<Ann>I do.</Ann>", "Ann: I do."),
        ("<task>Vote now.</task>", "Vote now."),
        ('{"id": 2, "by": "Ann", "words": "I do \\"that\\"."},', 'Ann: I do "that".'),
        ("[3] Ann » I do.", "[3] Ann: I do."),
        ("Ann Hill -> I do.", "Ann Hill: I do."),
    ],
)  # fmt: skip
def test_what_is_said_of_somebody_is_a_line_with_a_label(shown: str, read: str) -> None:
    assert plain(shown).strip() == read
    assert plain(plain(shown)) == plain(shown)


@pytest.mark.parametrize(
    "text",
    [
        "Ann: I do.\n\n- one\n- two",
        'Reply with {"ranking": [the best first]}.',
        '{"thoughts": {"of": ["a", "b"]}}',
        "2 < 3, and 4 > 3; is a<b?",
        "I said x|y",
    ],
)
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert plain(text) == text


@given(st.text(st.sampled_from('ab1 |-<>/="{}:,»\n')))
def test_no_text_is_too_odd(text: str) -> None:
    words = "".join(plain(text).split())
    assert set(words) <= set("".join(text.split())) | set("-:,();")
