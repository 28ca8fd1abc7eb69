"""The parts of a new reply that take the place of those of an old one."""

from __future__ import annotations

import pytest

from folkmoot.kit.controls.reply_graph import NewReply, ReplyPart, part_as_text

NOTES = ReplyPart(keys=("claim", "reason"))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"claim": "a", "reason": "b"}', '{"claim": "a", "reason": "b"}'),
        ('{"claim": "a"}', None),
        ('{"claim": "a", "claim": "b", "reason": "c"}', None),
        ('{"claim": {"x": 1, "x": 2}, "reason": "c"}', None),
        ('{"claim": , "reason": "c"}', None),
    ],
)
def test_a_field_that_a_new_reply_states_twice_is_missing(reply: str, expected: str | None) -> None:
    assert part_as_text(NOTES, NewReply("p1/ask0", reply, reply)) == expected
