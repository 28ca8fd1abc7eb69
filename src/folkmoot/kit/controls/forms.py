"""Forms with one short field, built from the JSON schema of a journaled request."""
# A decision may ask for a JSON object, such as a reason and a rating. Controls can ask it again if
# exactly one field is a number, a truth value or one of several texts. They can also ask it again
# if one field holds an option that the prompt lists.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    CHOICE,
    DECLINED,
    AnswerType,
    Missing,
    ParsedAnswer,
    ParseFailure,
    is_declined,
    parse_way_out,
)
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.json_replies import json_candidates
from folkmoot.json_text import Schema

_NUMBERS = ("integer", "number")


@dataclass(frozen=True, slots=True)
class SingleFieldForm(AnswerType["str | float"]):
    """The answer type for a JSON object with one closed field. The answer is that field's value.

    A closed field is a number, a truth value or one of several texts.
    """

    name: str
    schema: Schema = field(default_factory=dict)
    kind: str = "json"

    def parse_reply(self, reply: str) -> ParsedAnswer[str | float] | ParseFailure | Missing:
        """Return the answer in a JSON reply, a missing answer, or the problem of the reply."""
        for step, candidate in json_candidates(reply, "{"):
            if isinstance(candidate, dict) and (
                self.name in candidate or is_declined(candidate.get(DECLINED))
            ):
                return self._read(candidate, step)
        return ParseFailure(f"Reply with only a JSON object that has the key {self.name}.")

    def _read(
        self, form: Mapping[str, Any], step: str
    ) -> ParsedAnswer[str | float] | ParseFailure | Missing:
        if is_declined(form.get(DECLINED)):
            return Missing(DECLINED)
        value, node = form[self.name], _closed(self.schema["properties"][self.name])
        assert node is not None
        # A schema that permits null offers it as the way out "cannot say".
        if value is None:
            return Missing(CANNOT_SAY)
        if (way_out := parse_way_out(value)) is not None and value not in node.get("enum", ()):
            return way_out
        # `bool` is a subclass of `int` in Python, so convert it before the check for numbers.
        if isinstance(value, bool):
            value = str(value).lower()
        if node.get("type") in _NUMBERS:
            low, high = node.get("minimum", value), node.get("maximum", value)
            if not isinstance(value, (int, float)) or not low <= value <= high:
                return ParseFailure(f"{self.name} must be a number within its bounds.")
            return ParsedAnswer(float(value), step)
        if "enum" in node and value not in node["enum"]:
            return ParseFailure(f"{self.name} must be one of {', '.join(map(str, node['enum']))}.")
        return ParsedAnswer(str(value), step)


@dataclass(frozen=True, slots=True)
class ChoiceInForm(AnswerType[str]):
    """The answer type for a JSON object in which one field holds one of the options of a prompt."""

    name: str
    options: tuple[str, ...]
    schema: Schema = field(default_factory=dict)
    kind: str = "json"

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options in the order in which the prompt lists them."""
        return self.options

    def with_listed_options(self, options: Sequence[str]) -> ChoiceInForm:
        return replace(self, options=tuple(options))

    @property
    def form_kind(self) -> str:
        """The kind of a choice, which the embedded rule-based respondent expects for options."""
        return CHOICE

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure | Missing:
        """Return the option in a JSON reply, a missing answer, or the problem of the reply."""
        for _, candidate in json_candidates(reply, "{"):
            if isinstance(candidate, dict) and is_declined(candidate.get(DECLINED)):
                return Missing(DECLINED)
            if isinstance(candidate, dict) and self.name in candidate:
                choice = Choice(self.options, with_labels=False, clarify=False)
                return choice.parse_reply(str(candidate[self.name]))
        return ParseFailure(f"Reply with only a JSON object that has the key {self.name}.")


def choice_in_form(
    schema: Schema, reply: str, options: tuple[str, ...], chosen: str | None
) -> ChoiceInForm | None:
    """Return the answer type for a choice in a form, or None if no field holds the choice.

    `reply`: the filled-in form. `chosen`: the option that the filled-in form holds.
    """
    # The schema does not say which field holds the choice. Only the journaled reply shows it.
    for _, candidate in json_candidates(reply, "{")[:1]:
        if isinstance(candidate, dict):
            for name, value in candidate.items():
                if chosen is not None and str(value).strip() == chosen:
                    return ChoiceInForm(name, options, schema)
    return None


def single_field_form(schema: Schema) -> SingleFieldForm | None:
    """Return the answer type for a JSON form with exactly one closed field.

    Returns None for any other form.
    """
    # A closed field is a number, a truth value or one of several texts.
    properties = schema.get("properties", {})
    closed = [
        # Every form has the field DECLINED as a way out. It is no field of the decision.
        name
        for name, node in properties.items()
        if name != DECLINED and _closed(node) is not None
    ]
    return SingleFieldForm(closed[0], schema) if len(closed) == 1 else None


def _closed(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    # A closed field is a number, a truth value or one of several texts. It may also allow null.
    if "anyOf" in node:
        others = [each for each in node["anyOf"] if each.get("type") != "null"]
        return _closed(others[0]) if len(others) == 1 else None
    is_closed = "enum" in node or node.get("type") in (*_NUMBERS, "boolean")
    return node if is_closed else None
