"""Answer types for JSON forms, built from the JSON schema of a journaled request.

A closed field holds a number, a boolean, or one or several of a list of texts.
"""
# A decision may ask for a JSON object, such as a reason and a rating. Controls compare its closed
# fields: numbers, truth values, one of several texts, and lists of such texts. A field of an object
# inside the form counts too, and a list of objects if each of them names an option. Objects that
# only say whose words they hold, such as the lines of a dialogue, are no options. If one field
# holds an option that the prompt lists, it is the decision.

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.conversation.answer_format import match_field_names
from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    CHOICE,
    DECLINED,
    WAYS_OUT,
    WAYS_OUT_OF_OPTIONS,
    AnswerType,
    Missing,
    ParsedAnswer,
    ParseFailure,
    parse_way_out,
)
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.json_replies import json_candidates, refuses_beside_json
from folkmoot.conversation.lenient_fields import is_declined, read_number, read_switch
from folkmoot.conversation.schema_alternatives import single_alternative
from folkmoot.hints import capitalise
from folkmoot.json_text import Schema

# The kind of an answer that is a JSON object as a whole.
JSON = "json"
_NUMBERS = ("integer", "number")
# A form may refer to itself, so fields of objects in objects are read to this depth only.
_MAX_DEPTH = 4
# The value of the only closed field of a form, or the values of several by name.
FormAnswer = str | float | Mapping[str, str | float]


@dataclass(frozen=True, slots=True)
class ClosedForm(AnswerType["FormAnswer"]):
    """The answer type for a JSON object with closed fields, such as numbers or choices.

    With one closed field, the answer is the field's value. With several, the answer maps the names
    of the fields to their values.
    """

    # A mapping leaves out fields without a valid value.

    schema: Schema = field(default_factory=dict)
    # The keys that lead to one participant's part of a reply for several participants.
    path: tuple[str, ...] = ()
    # The texts that the prompt offers as options. None if every listed text counts as an option.
    offered: frozenset[str] | None = None
    kind: str = JSON

    @property
    def closed_names(self) -> list[str]:
        """The names of the closed fields. The name of a list ends with `.*`."""
        part = _part_of_schema(self.schema, self.path)
        return [*_closed_names(part, self.schema, self.offered)]

    def parse_reply(self, reply: str) -> ParsedAnswer[FormAnswer] | ParseFailure | Missing:
        """Return the closed fields of a reply, a missing answer, or the problem for a re-ask."""
        part_schema = _part_of_schema(self.schema, self.path)
        names = [name for name in part_schema.get("properties", {}) if name != DECLINED]
        for step, candidate in json_candidates(reply, "{"):
            part: Any = match_field_names(candidate, self.schema)[0]
            for key in self.path:
                part = part.get(key) if isinstance(part, dict) else None
            if not isinstance(part, dict):
                continue
            if (way_out := _read_declined(part)) is not None:
                return way_out
            if step != "exact" and refuses_beside_json(reply):
                break
            if any(name in part for name in names):
                return self._read(part_schema, part, step)
        wanted = ", ".join(self.path or names)
        return ParseFailure(f"Reply with only a JSON object that has the keys: {wanted}.")

    def _read(
        self, part_schema: Mapping[str, Any], part: Mapping[str, Any], step: str
    ) -> ParsedAnswer[FormAnswer] | ParseFailure | Missing:
        read = dict(_read_fields(part_schema, self.schema, part, self.offered))
        values = {name: value for name, value in read.items() if isinstance(value, (str, float))}
        if values:
            is_single = self.closed_names == [*values]
            return ParsedAnswer(next(iter(values.values())) if is_single else values, step)
        # A way out in one field does not excuse a mistake in another one.
        for value in read.values():
            if isinstance(value, ParseFailure):
                return value
        reasons = (value for value in read.values() if isinstance(value, Missing))
        return next(reasons, Missing(CANNOT_SAY))


def closed_form(
    schema: Schema, participant_id: str = "", offered: frozenset[str] | None = None
) -> ClosedForm | None:
    """Return the answer type for a JSON form with closed fields, or None for any other form.

    - `participant_id`: the participant, if one reply speaks for several participants. The answer is
      then read from this participant's part of the form.
    - `offered`: the texts that the prompt offers as options. By default every listed text counts.
    """
    path = _path_to(schema, schema, participant_id) if participant_id else ()
    if path is None:
        return None
    part = _part_of_schema(schema, path)
    is_closed = any(_closed_names(part, schema, offered))
    return ClosedForm(schema, path, offered) if is_closed else None


def _path_to(
    node: Mapping[str, Any], schema: Schema, name: str, depth: int = _MAX_DEPTH
) -> tuple[str, ...] | None:
    # The keys that lead to a property with this name, or None.
    for key, value in node.get("properties", {}).items() if depth else ():
        if key == name:
            return (key,)
        below = _path_to(_resolve(value, schema), schema, name, depth - 1)
        if below is not None:
            return (key, *below)
    return None


def _part_of_schema(schema: Schema, path: Sequence[str]) -> Mapping[str, Any]:
    part: Mapping[str, Any] = schema
    for key in path:
        part = _resolve(part["properties"][key], schema)
    return part


def _resolve(node: Mapping[str, Any], schema: Schema) -> Mapping[str, Any]:
    # The node without references and ways out.
    return single_alternative(node, schema.get("$defs", {}))[0]


def _is_closed(node: Mapping[str, Any]) -> bool:
    return "enum" in node or node.get("type") in (*_NUMBERS, "boolean")


def _fields_of(node: Mapping[str, Any], schema: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Every form has the field DECLINED as a way out. It is not a field of the decision.
    for name, value in node.get("properties", {}).items():
        if name != DECLINED:
            yield name, _resolve(value, schema)


def _closed_names(
    node: Mapping[str, Any],
    schema: Schema,
    offered: frozenset[str] | None,
    depth: int = _MAX_DEPTH,
) -> Iterator[str]:
    for name, value in _fields_of(node, schema) if depth else ():
        items = _resolve(value.get("items", {}), schema)
        if _is_closed(value):
            yield name
        elif value.get("type") == "array" and _options_in(items, schema, offered)[1]:
            yield f"{name}.*"
        elif value.get("type") == "object":
            below = _closed_names(value, schema, offered, depth - 1)
            yield from (f"{name}.{below_name}" for below_name in below)


def _options_in(
    items: Mapping[str, Any], schema: Schema, offered: frozenset[str] | None
) -> tuple[str, list[str]]:
    # The entries of a list are options, or objects that each name one option in a field. Returns
    # the field ("" if there is none), and the options without ways out.
    named = [("", items), *_fields_of(items, schema)]
    field_name, node = next(((name, node) for name, node in named if "enum" in node), ("", {}))
    options = [str(option) for option in node.get("enum", ())]
    if offered is not None and _are_texts(items, schema) and offered.isdisjoint(options):
        return field_name, []
    return field_name, [option for option in options if parse_way_out(option) is None]


def _are_texts(items: Mapping[str, Any], schema: Schema) -> bool:
    # Whether each entry of a list is a text in words, such as an utterance, and has no number or
    # truth value. Its other fields then say what the text is about, or who speaks. A text that may
    # be left out only adds something to the option that the entry names.
    fields = [(name, node) for name, node in _fields_of(items, schema) if "enum" not in node]
    required = items.get("required", ())
    is_text = any(name in required and node.get("type") == "string" for name, node in fields)
    return is_text and not any(_is_closed(node) for _, node in fields)


_Read = str | float | Missing | ParseFailure


def _read_fields(
    node: Mapping[str, Any],
    schema: Schema,
    part: Mapping[str, Any],
    offered: frozenset[str] | None,
) -> Iterator[tuple[str, _Read]]:
    for name, value in _fields_of(node, schema):
        if name not in part:
            continue
        got = part[name]
        if _is_closed(value):
            yield name, _read_closed(name, value, got)
        elif value.get("type") == "array" and isinstance(got, list):
            items = _resolve(value.get("items", {}), schema)
            for below, read in _read_list(items, schema, got, offered):
                yield f"{name}.{below}", read
        elif value.get("type") == "object" and isinstance(got, dict):
            for below, read in _read_fields(value, schema, got, offered):
                yield f"{name}.{below}", read


def _read_list(
    items: Mapping[str, Any],
    schema: Schema,
    got: Sequence[Any],
    offered: frozenset[str] | None,
) -> Iterator[tuple[str, _Read]]:
    # A list of options says for each of them whether it is in the list. A list of objects may also
    # hold closed fields of each option.
    field_name, options = _options_in(items, schema, offered)
    others = [(n, node) for n, node in _fields_of(items, schema) if n != field_name]
    closed = [(n, node) for n, node in others if _is_closed(node)]
    for option in options:
        entries = [
            entry
            for entry in got
            if (entry.get(field_name) if isinstance(entry, dict) else entry) == option
        ]
        if not closed:
            yield option, str(bool(entries)).lower()
        for name, node in closed if entries else ():
            if isinstance(entries[0], dict) and name in entries[0]:
                yield f"{option}.{name}", _read_closed(name, node, entries[0][name])


def _read_closed(name: str, node: Mapping[str, Any], value: Any) -> _Read:
    # A schema that permits null offers it as the way out "cannot say".
    if value is None:
        return Missing(CANNOT_SAY)
    # `cannot_say` is a way out of numbers and truth values. In a list of options it is one of them.
    ways_out = WAYS_OUT_OF_OPTIONS if "enum" in node else WAYS_OUT
    if (way_out := parse_way_out(value, ways_out)) is not None:
        return way_out
    if node.get("type") in _NUMBERS:
        number = None if isinstance(value, str) else read_number(value)
        low, high = (
            node.get("minimum", -sys.float_info.max),
            node.get("maximum", sys.float_info.max),
        )
        if number is None or not low <= number <= high:
            return ParseFailure(f"{name} must be a number within its bounds.")
        return number
    if node.get("type") == "boolean":
        switch = read_switch(value)
        problem = ParseFailure(f"{name} must be true or false.")
        return problem if switch is None else str(switch).lower()
    if "enum" in node and value not in node["enum"]:
        return ParseFailure(f"{name} must be one of {', '.join(map(str, node['enum']))}.")
    return str(value)


@dataclass(frozen=True, slots=True)
class ChoiceInForm(AnswerType[str]):
    """The answer type for a JSON object in which one field holds an option of the prompt."""

    name: str
    options: tuple[str, ...]
    schema: Schema = field(default_factory=dict)
    kind: str = JSON

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options in the order in which the prompt lists them."""
        return self.options

    def with_listed_options(self, options: Sequence[str]) -> ChoiceInForm:
        return replace(self, options=tuple(options))

    @property
    def form_kind(self) -> str:
        """The answer kind `choice`, so that the embedded rule-based respondent picks an option."""
        return CHOICE

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure | Missing:
        """Return the option in a JSON reply, a missing answer, or the problem for a re-ask."""
        for _, value in json_candidates(reply, "{"):
            candidate, _ = match_field_names(value, self.schema)
            if not isinstance(candidate, dict):
                continue
            if (way_out := _read_declined(candidate)) is not None:
                return way_out
            if self.name in candidate:
                choice = Choice(self.options, with_labels=False, clarify=False)
                return choice.parse_reply(str(candidate[self.name]))
        return ParseFailure(f"Reply with only a JSON object that has the key {self.name}.")


def _read_declined(form: Mapping[str, object]) -> Missing | ParseFailure | None:
    # None if the form is an answer.
    try:
        return Missing(DECLINED) if is_declined(form) else None
    except ValueError as error:
        return ParseFailure(f"{capitalise(str(error))}.")


def choice_in_form(
    schema: Schema, reply: str, options: tuple[str, ...], chosen: str | None
) -> ChoiceInForm | None:
    """Return the answer type for a choice in a form, or None if no field holds the choice.

    `reply`: the filled-in form. `chosen`: the option that the filled-in form holds.
    """
    # The schema does not say which field holds the choice. Only the journaled reply shows it.
    _, value = next(json_candidates(reply, "{"), ("", None))
    form, _ = match_field_names(value, schema)
    for name, entry in form.items() if isinstance(form, dict) else ():
        if chosen is not None and str(entry).strip() == chosen:
            return ChoiceInForm(name, options, schema)
    return None
