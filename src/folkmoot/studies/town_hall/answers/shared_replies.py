"""Answer types of replies in which one model answers for several residents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from folkmoot.conversation.answer_format import match_field_names
from folkmoot.conversation.answer_types import (
    AnswerType,
    Json,
    Missing,
    ParsedAnswer,
    ParseFailure,
    pin_schema,
)
from folkmoot.conversation.json_maps import JsonMap
from folkmoot.conversation.json_schemas import object_schema
from folkmoot.studies.town_hall.answers.repairs import resolve_id
from folkmoot.studies.town_hall.answers.turns import Reflection, Turn

M = TypeVar("M", bound=BaseModel)


def each_of(answers: Mapping[str, Json[M]]) -> JsonMap[M]:
    """Return the answer type of a reply with one answer for each resident."""
    name_fields = ("resident", "id", "agent_id")
    return JsonMap(answers, match_key=resolve_id, name_fields=name_fields, title="Residents")


@dataclass(frozen=True, slots=True)
class WholeRound(AnswerType[tuple[dict[str, Turn], dict[str, Reflection]]]):
    """The answer type of a whole round in one reply: all turns, followed by all reflections."""

    # Resident id → answer type of the turn, in speaking order.
    turn_types: Mapping[str, Json[Turn]]
    # Builds the answer type of a reflection from a resident's id and stance. None if the reply has
    # no reflections.
    reflection_type: Callable[[str, str], Json[Reflection]] | None
    kind: str = "json"

    @property
    def schema(self) -> dict[str, object]:
        turns = each_of(self.turn_types).schema
        schemas = {"turns": {**turns, "description": "the turn of each resident"}}
        if self.reflection_type:
            no_stances = dict.fromkeys(self.turn_types, "")
            reflection_schema = _reflection_types(self.reflection_type, no_stances).schema
            description = "how each resident looks back on the round"
            schemas["reflections"] = {**reflection_schema, "description": description}
        return object_schema("Round", schemas)

    def parse_reply(
        self, reply: str
    ) -> ParsedAnswer[tuple[dict[str, Turn], dict[str, Reflection]]] | ParseFailure | Missing:
        parsed_object = Json(AnyObject).parse_reply(reply)
        if not isinstance(parsed_object, ParsedAnswer):
            return parsed_object
        # `AnyObject` names no field, so the names are matched here.
        matched, _ = match_field_names(parsed_object.value.model_extra, self.schema)
        raw: Mapping[str, object] = matched if isinstance(matched, dict) else {}
        turn_types = each_of(self.turn_types)
        # Some models leave out the outer object, so the reply itself may hold the turns.
        parsed_turns = turn_types.read(_entries_or_default(raw, "turns", raw))
        if not isinstance(parsed_turns, ParsedAnswer):
            return parsed_turns
        turns = parsed_turns.value.values
        # Reflections are read after the turns, because each needs the stance of its resident's
        # turn.
        if self.reflection_type:
            stances = {resident_id: turn.stance for resident_id, turn in turns.items()}
            reflection_types = _reflection_types(self.reflection_type, stances)
        else:
            reflection_types = each_of({})
        parsed_reflections = reflection_types.read(_entries_or_default(raw, "reflections", {}))
        # The turns are kept, and the missing reflections are asked for in a further call.
        if not isinstance(parsed_reflections, ParsedAnswer):
            return ParsedAnswer((turns, {}), parsed_object.parse_step, parsed_turns.repairs)
        reflections = parsed_reflections.value.values
        reflections |= dict.fromkeys(parsed_reflections.value.declined, Reflection.refused_answer())
        return ParsedAnswer(
            (turns, reflections),
            parsed_object.parse_step,
            (*parsed_turns.repairs, *parsed_reflections.repairs),
        )


def _reflection_types(
    reflection_type: Callable[[str, str], Json[Reflection]], stances: Mapping[str, str]
) -> JsonMap[Reflection]:
    return each_of(
        {
            resident_id: reflection_type(resident_id, stance)
            for resident_id, stance in stances.items()
        }
    )


class AnyObject(BaseModel):
    """Any JSON object. `WholeRound` parses a reply with this model before it reads the turns."""

    model_config = pin_schema("AnyObject", "", ConfigDict(extra="allow"))


def _entries_or_default(
    raw: Mapping[str, object], name: str, default: Mapping[str, object]
) -> object:
    # The entries may also be a list, in which each names its resident.
    value = raw.get(name)
    return value if isinstance(value, (Mapping, list)) else default
