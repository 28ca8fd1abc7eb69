"""The content of a question page: the texts that a model would get if no human answered."""

# The study's own prompts may have a separate wording for people. The utterances of other speakers
# are shown unchanged.

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.conversation.answer_types import AnswerType, FieldForPeople
from folkmoot.conversation.prompts import wording_for_people
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.hints import capitalise


@dataclass(frozen=True, slots=True)
class QuestionView:
    """The content of a question page: speaker, history, prompt and kind of answer."""

    speaker: Speaker
    history: tuple[Utterance, ...]
    prompt: str
    # `choice`, `number`, `text` or `json`.
    answer_kind: str
    options: tuple[str, ...]
    # The number of request messages that the page represents. Later messages of the request ask
    # again because the reply could not be parsed.
    message_count: int
    # Returns why a reply cannot be parsed, or an empty string.
    describe_parse_problem: Callable[[str], str] = lambda _text: ""
    # How the fields of a JSON reply are shown.
    fields_for_people: Mapping[str, FieldForPeople] = field(default_factory=dict)
    # Only for questions outside the protocol.
    title: str = ""
    # True for a question after the end of the protocol. It has another time limit.
    is_afterwards: bool = False

    def describe_exchange(self, reply: str) -> tuple[str, str]:
        """Return the question and a human's reply to the question as texts for a review."""
        question = self.prompt or (self.history[-1].text if self.history else "")
        value: object = reply
        if self.answer_kind == "json" or self.fields_for_people:
            with suppress(ValueError):
                value = json.loads(reply)
        return str(question), self._format_value(value)

    def _format_value(self, value: object) -> str:
        if isinstance(value, dict):
            lines = (
                f"{self._label_of(key)}: {self._format_value(entry)}"
                for key, entry in value.items()
                if entry not in ("", None, [], False)
            )
            return "\n".join(lines)
        if isinstance(value, list):
            return "; ".join(map(self._format_value, value))
        return str(value)

    def _label_of(self, key: str) -> str:
        wording = self.fields_for_people.get(key)
        return wording.label if wording is not None else capitalise(key.replace("_", " "))


def view_for_human(
    speaker: Speaker,
    history: Transcript,
    prompt: str,
    answer_type: AnswerType[Any],
    message_count: int,
) -> QuestionView:
    """Return the page of a question. Texts that have a wording for people appear in this wording.

    `message_count`: how many messages of the request the page shows.
    """
    spoken = tuple(
        utterance._replace(text=utterance.for_people or wording_for_people(utterance.text))
        for utterance in history
        if utterance.missing is None and utterance.text
    )
    return QuestionView(
        replace(speaker, system=wording_for_people(speaker.system)),
        spoken,
        wording_for_people(prompt),
        answer_type.form_kind,
        answer_type.offered_values,
        message_count,
        answer_type.problem_in,
        answer_type.fields_for_people,
    )
