"""How one resident's raw JSON becomes a typed answer: mend first, then validate strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answers import Unreadable
from folkmoot.studies.town_hall.cognition import Reflection, Speaking, Thinking
from folkmoot.studies.town_hall.records import Turn
from folkmoot.studies.town_hall.references import Mender
from folkmoot.studies.town_hall.replies import (
    Mended,
    One,
    Reader,
    object_schema,
    schema_of,
    validated,
)

M = TypeVar("M", bound=BaseModel)


def thinking(ids: Sequence[str], me: str, round_no: int) -> One[Thinking]:
    """The answer type of THINK; without reactions in the first round."""

    def read(raw: Mapping[str, Any]) -> Mended[Thinking] | Unreadable:
        return _strict(Thinking, Mender(ids, me, round_no), Mender.thinking, raw)

    return One(thinking_schema(round_no), read)


def speaking(ids: Sequence[str], me: str, round_no: int) -> One[Speaking]:
    """The answer type of SPEAK; without references in the first round."""

    def read(raw: Mapping[str, Any]) -> Mended[Speaking] | Unreadable:
        return _strict(Speaking, Mender(ids, me, round_no), Mender.speaking, raw)

    return One(speaking_schema(round_no), read)


def reflection(ids: Sequence[str], me: str, stance: str) -> One[Reflection]:
    """The answer type of REFLECT; `stance` is the resident's own before it, or empty."""

    def read(raw: Mapping[str, Any]) -> Mended[Reflection] | Unreadable:
        return _strict(Reflection, Mender(ids, me, stance=stance), Mender.reflection, raw)

    return One(schema_of(Reflection), read)


def turn(ids: Sequence[str], me: str, round_no: int, *, think: bool) -> Reader[Turn]:
    """Reads one resident's part of a shared session's reply: `thinking` and `speaking`."""
    think_reader, speak_reader = thinking(ids, me, round_no), speaking(ids, me, round_no)

    def read(raw: Mapping[str, Any]) -> Mended[Turn] | Unreadable:
        said = speak_reader.reader(_part(raw, "speaking"))
        if isinstance(said, Unreadable):
            return said
        if not think:
            return Mended(Turn(me, None, said.value), said.mends)
        thought = think_reader.reader(_part(raw, "thinking"))
        if isinstance(thought, Unreadable):
            return thought
        return Mended(Turn(me, thought.value, said.value), (*thought.mends, *said.mends))

    return read


def turn_schema(round_no: int, *, think: bool) -> dict[str, Any]:
    """The JSON schema of one resident's part of a shared session's reply."""
    parts = {"thinking": thinking_schema(round_no)} if think else {}
    return object_schema("Turn", {**parts, "speaking": speaking_schema(round_no)})


def thinking_schema(round_no: int) -> dict[str, Any]:
    return schema_of(Thinking, *(("reactions",) if round_no == 1 else ()))


def speaking_schema(round_no: int) -> dict[str, Any]:
    return schema_of(Speaking, *(("references",) if round_no == 1 else ()))


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else {}


def _strict(
    model: type[M],
    mender: Mender,
    mend: Callable[[Mender, Mapping[str, Any]], dict[str, Any]],
    raw: Mapping[str, Any],
) -> Mended[M] | Unreadable:
    value = validated(model, mend(mender, raw))
    return value if isinstance(value, Unreadable) else Mended(value, tuple(mender.mends))
