"""Read the answer options in the cells of a workbook, and parse the replies of participants."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

import numpy as np
from pydantic import BaseModel, ConfigDict, field_validator

from folkmoot.conversation.answer_types import (
    ALL_FIELDS_INSTRUCTION,
    WAY_OUT_BY_KIND,
    AnswerType,
    FieldForPeople,
    Json,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Text,
    pin_schema,
)
from folkmoot.conversation.choices import (
    IGNORED_DIFFERENCES,
    Choice,
    Number,
    format_option_list,
    indistinguishable_pairs,
)
from folkmoot.conversation.lenient_fields import read_number
from folkmoot.conversation.parse_steps import UNFORMATTED
from folkmoot.conversation.reply_forms import visible_text
from folkmoot.hints import exact_number_text, number_text
from folkmoot.provenance import SourcedText, concatenate_texts, join_texts, quote_value
from folkmoot.studies.workbook.config import Scalar, VarType, written_label
from folkmoot.studies.workbook.literals import (
    MAX_NUMBER,
    NotALiteral,
    looks_like_literal,
    read_literal,
)

# Whole numbers of more digits are no longer exact as floats.
MAX_DIGITS = 15

# Surrogates without a partner: a literal can write them, but a UTF-8 file cannot hold them.
BROKEN = re.compile("[\ud800-\udfff]")
# A number in a text such as "between 0 and 5" or "1-5".
_NAMED = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Return whether a value is a text, a finite number or a boolean."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def scalar_text(value: Scalar) -> str:
    """Return a value as text, such as `4` for 4.0."""
    # Participants see this text, and files contain it.
    if isinstance(value, (bool, str)):
        return str(value).strip()
    return number_text(value)


@dataclass(frozen=True, slots=True)
class FreeOptions:
    """Options that the workbook gives as plain text, so replies cannot be checked against them."""

    text: str


@dataclass(frozen=True, slots=True)
class ListedOptions:
    """A closed list of options in the order of the workbook."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The smallest and the largest allowed number."""

    low: float
    high: float


Options = FreeOptions | ListedOptions | NumberRange


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """The options as one participant sees them."""

    # The text in the prompt.
    text: str
    # The options of a list in the order shown.
    order: tuple[str, ...] = ()
    # The text in a question for a human. The page shows a list as buttons.
    for_people: str = ""


def read_options(text: str) -> Options | dict[str, Options]:
    """Return the options of a cell, or a dict of options by role.

    Raises NotALiteral if the text cannot be read.
    """
    if not looks_like_literal(text):
        return FreeOptions(text.strip())
    value = read_literal(text)
    if isinstance(value, dict):
        if not value:
            raise NotALiteral("the dict is empty")
        return {label: _single_option(entry) for label, entry in by_role(value).items()}
    return _single_option(value)


def by_role(value: Mapping[Any, object]) -> dict[str, object]:
    """Return a dict by role with the labels as the program writes them, without spaces at the ends.

    Raises NotALiteral if a key is not a text, or if two keys are the same label.
    """
    entries: dict[str, object] = {}
    for key, entry in value.items():
        if not isinstance(key, str):
            raise NotALiteral(f"the key {key!r} is not a role label")
        label = written_label(key.strip())
        if label in entries:
            raise NotALiteral(f"duplicate key {label!r}; spaces at the ends do not count")
        entries[label] = entry
    return entries


def _single_option(value: object) -> Options:
    if isinstance(value, str):
        if not value.strip():
            raise NotALiteral("the text of the options is empty")
        return read_nested(value)
    if isinstance(value, list):
        return _parse_list(value)
    # A tuple is a range and a list is a list of options, even if both hold two numbers.
    if isinstance(value, tuple):
        return _parse_range(value)
    raise NotALiteral(f"{value!r} is neither a text nor a list nor a pair of bounds")


def read_nested(text: str) -> Options:
    """Return the options in a text such as "range(11)" or "['yes', 'no']"."""
    # Any other text becomes `FreeOptions`.
    # Dicts of options often hold their ranges as quoted text.
    if looks_like_literal(text):
        value = read_literal(text)
        if isinstance(value, (list, tuple)):
            return _single_option(value)
    return FreeOptions(text.strip())


def _parse_list(values: Sequence[object]) -> ListedOptions:
    if not values:
        raise NotALiteral("the list is empty")
    for value in values:
        if not is_scalar(value):
            raise NotALiteral(f"{value!r} is not a single option")
    options = tuple(scalar_text(value) for value in values if is_scalar(value))
    if "" in options:
        raise NotALiteral("an option is empty")
    duplicates = [option for i, option in enumerate(options) if option in options[:i]]
    if duplicates:
        raise NotALiteral(f"duplicate option {duplicates[0]!r}")
    for first, second in indistinguishable_pairs(options):
        raise NotALiteral(
            f"{options[first]!r} and {options[second]!r} cannot be distinguished: "
            f"{IGNORED_DIFFERENCES}"
        )
    return ListedOptions(options)


def _parse_range(values: Sequence[object]) -> NumberRange:
    numbers = [
        value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if len(values) != 2 or len(numbers) != 2:
        raise NotALiteral("a range is a pair of numbers, (low, high); a list needs [ ]")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise NotALiteral(f"the range runs from {number_text(low)} down to {number_text(high)}")
    return NumberRange(low, high)


def option_texts(options: Options | None) -> tuple[str, ...]:
    """Return options as texts.

    Returns an empty tuple if `options` is None.
    """
    # A range gives its two bounds.
    if isinstance(options, ListedOptions):
        return options.options
    if isinstance(options, NumberRange):
        return (number_text(options.low), number_text(options.high))
    return () if options is None else (options.text,)


def format_options(
    options: Options | None,
    *,
    integer: bool,
    shuffle: bool,
    rng: np.random.Generator,
    source_id: str,
) -> ShownOptions:
    """Return options as text for a prompt."""
    order = option_texts(options)
    if options is None or isinstance(options, FreeOptions):
        return ShownOptions(
            join_texts("", [quote_value(text, "material", source_id) for text in order])
        )
    if isinstance(options, NumberRange):
        kind = "a whole number" if integer else "a number"
        low, high = (quote_value(bound, "value", source_id) for bound in order)
        parts = (f"Answer with {kind} from ", low, " to ", high, ", both included.")
        wording = (f"Give {kind} from ", low, " to ", high, ".")
        return ShownOptions(
            concatenate_texts(parts, plain=None), (), concatenate_texts(wording, plain=None)
        )
    # `option_position` looks up the answer in this order, which is recorded with it.
    if shuffle:
        order = tuple(order[index] for index in rng.permutation(len(order)))
    quoted = [quote_value(option, "option", source_id) for option in order]
    option_list = format_option_list(quoted, with_labels=False)
    text = SourcedText("Choose exactly one of these options:\n") + option_list
    return ShownOptions(text, order, SourcedText("Choose exactly one of the options."))


# The kind of participants' answers in the table `answers`.
ANSWER_KIND = "workbook"
Status = Literal["valid", "invalid", "unchecked"]
Value = str | int | float
EMPTY_REPLY = ParseFailure("The reply was empty.", is_empty=True)


class Structured(BaseModel):
    """The JSON object that a task with `format_response` asks for."""

    model_config = pin_schema(
        "Structured",
        "The JSON object that `format_response` asks for.",
        ConfigDict(extra="ignore", strict=False),
    )

    response: str | int | float | bool
    speculation_score: float | None = None

    @field_validator("speculation_score", mode="before")
    @classmethod
    def _parse_percentage(cls, raw: object) -> object:
        # A score out of range stays as it is, so that the question is asked again.
        number = read_number(raw, 100, 0) if isinstance(raw, str) else None
        return raw if number is None else number


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """A participant's answer with its validation status."""

    value: Value
    # `valid`: it passed validation. `invalid`: it failed even after the last re-ask, or it is no
    # number of the task's type. `unchecked`: the task asks for no validation.
    status: Status
    # The speculation score, 0 to 100.
    score: int | None = None

    @property
    def text(self) -> str:
        """The answer as other speakers see it."""
        return self.value if isinstance(self.value, str) else number_text(self.value)

    @property
    def recorded_text(self) -> str:
        """The answer as the table of answers records it, with all digits that were entered."""
        return self.value if isinstance(self.value, str) else exact_number_text(self.value)

    def __str__(self) -> str:
        return self.text

    @property
    def is_usable(self) -> bool:
        """True if computed values may use the answer."""
        return self.status != "invalid"


@dataclass(frozen=True, slots=True)
class WorkbookAnswer(AnswerType[GivenAnswer]):
    """The answer type for one participant's answer to one task.

    `order`: the listed options in the order in which the prompt shows them.
    """

    choices: Options | None
    order: tuple[str, ...]
    var_type: VarType | None
    validate: bool
    as_json: bool
    speculation: bool
    # The names of the speaker and of the others in a conversation, as in `Text`.
    own_names: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()
    keeps_all_words: bool = False
    kind: str = ANSWER_KIND

    @property
    def listed_options(self) -> tuple[str, ...]:
        return self.order

    def with_listed_options(self, options: Sequence[str]) -> WorkbookAnswer:
        return replace(self, order=tuple(options))

    def for_human(self) -> WorkbookAnswer:
        return replace(self, keeps_all_words=True)

    @property
    def form_kind(self) -> str:
        """The answer kind: `choice`, `number` or `text`."""
        # The embedded respondent needs it.
        return "choice" if self.order else "number" if self.is_numeric else "text"

    @property
    def offered_values(self) -> tuple[str, ...]:
        """The listed options, or the smallest and the largest number that the question allows."""
        # Options in plain text may mention numbers. Their smallest and largest are the bounds then.
        if isinstance(self.choices, FreeOptions) and self.is_numeric:
            numbers = [
                float(digits)
                for digits in _NAMED.findall(self.choices.text)
                if len(digits) < MAX_DIGITS
            ]
            bounds = {min(numbers), max(numbers)} if numbers else ()
            return tuple(number_text(bound) for bound in sorted(bounds))
        return option_texts(self.choices) if isinstance(self.choices, NumberRange) else self.order

    @property
    def is_numeric(self) -> bool:
        """True if the answer is a number."""
        # Options of a list are answered by their text, even if they are numbers.
        if isinstance(self.choices, ListedOptions):
            return False
        return isinstance(self.choices, NumberRange) or self.var_type in ("integer", "float")

    @property
    def is_closed(self) -> bool:
        return self.is_numeric or isinstance(self.choices, ListedOptions)

    @property
    def is_short(self) -> bool:
        return self.is_closed and not self.as_json

    @property
    def is_read(self) -> bool:
        return self.is_closed

    @property
    def schema(self) -> dict[str, object] | None:
        """The JSON schema of the reply, or None for plain text."""
        if not self.as_json:
            return None
        response = {**self._response_schema(), "description": "your answer, or your words"}
        fields: dict[str, object] = {"response": response}
        if self.speculation:
            score = {"type": "integer", "minimum": 0, "maximum": 100}
            fields["speculation_score"] = {
                "anyOf": [score, {"type": "null"}],
                "description": "how much of it is a guess, a whole number from 0 (not speculative "
                "at all) to 100 (entirely speculative)",
            }
        return {
            "title": "WorkbookResponse",
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }

    @property
    def fields_for_people(self) -> dict[str, FieldForPeople]:
        # The schema lets a model refuse in words. A human refuses by a way out of the page.
        kind: Literal["", "choice", "number"] = ""
        if self.order:
            kind = "choice"
        elif self.is_numeric:
            kind = "number"
        way = WAY_OUT_BY_KIND.get(kind)
        # An option may have the words of a way out.
        is_free = way is not None and isinstance(self._parse_answer(way), Missing)
        ways_out = (way,) if way is not None and is_free else ()
        return {
            "response": FieldForPeople("Your answer", kind, self.offered_values, ways_out),
            "speculation_score": FieldForPeople(
                "How much of it is a guess, from 0 (nothing) to 100 (everything)"
            ),
        }

    def _response_schema(self) -> dict[str, object]:
        # The schema has no options or bounds, because a speaker must be able to refuse in words.
        # The parser checks options and bounds.
        if not (self.is_numeric and self.validate):
            return {"type": "string"}
        kind = "integer" if self.var_type == "integer" else "number"
        return {"anyOf": [{"type": kind}, {"type": "string"}]}

    def parse_reply(self, reply: str) -> ParsedAnswer[GivenAnswer] | ParseFailure | Missing:
        """Parse a reply."""
        # Without validation, every non-empty reply is an answer.
        if not visible_text(reply):
            return EMPTY_REPLY
        text, score, parse_step, problem = self._unwrap_reply(reply)
        if problem is None:
            parsed = self._parse_answer(text)
            if isinstance(parsed, ParsedAnswer):
                status: Status = "valid" if self.validate else "unchecked"
                return ParsedAnswer(
                    GivenAnswer(parsed.value, status, score), parse_step or parsed.parse_step
                )
            if isinstance(parsed, Missing):
                return parsed
            problem = parsed
            # The re-ask must say which field of the object is wrong.
            if self.as_json:
                problem = ParseFailure(
                    f'The "response" could not be read. {parsed.problem} {ALL_FIELDS_INSTRUCTION}'
                )
        if self.validate or self._is_said_by_others(text):
            return problem
        # In JSON, an empty text and null are no answer either.
        return EMPTY_REPLY if not visible_text(text) else self._keep_unvalidated(text, score)

    def find_mentioned_values(self, reply: str) -> frozenset[str]:
        """Return the options or numbers that a reply mentions."""
        # Numbers outside the bounds do not count.
        answer_type = self._text_answer_type()
        if isinstance(answer_type, Number):
            return frozenset(
                number_text(_as_whole_number(number))
                for number in answer_type.find_mentioned_values(reply)
            )
        return (
            answer_type.find_mentioned_values(reply)
            if isinstance(answer_type, Choice)
            else frozenset()
        )

    def last(self, reply: str) -> GivenAnswer | Missing:
        """Return a reply that failed validation as an answer with the status `invalid`.

        If only the speculation score failed, the answer is valid and has no score. Returns Missing
        if the reply is empty.
        """
        text, score, parse_step, _ = self._unwrap_reply(reply)
        if not visible_text(text):
            return Missing("empty", "the reply was empty")
        if self._is_said_by_others(text):
            return Missing("unparsed", "the reply speaks in the names of others")
        # An unreadable speculation score makes the score missing and not the answer invalid.
        read = self._parse_answer(text) if parse_step else None
        if isinstance(read, ParsedAnswer):
            return GivenAnswer(read.value, "valid", score)
        return self._keep_invalid(text, score)

    def _is_said_by_others(self, text: str) -> bool:
        answer_type = self._text_answer_type()
        if not isinstance(answer_type, Text) or not visible_text(text):
            return False
        return isinstance(answer_type.parse_reply(text), ParseFailure)

    def _keep_unvalidated(self, text: str, score: int | None) -> ParsedAnswer[GivenAnswer]:
        # Without validation the options bind no answer, but the type of the variable does: only a
        # number can be counted as one.
        if not self.is_numeric and self.var_type not in ("integer", "float"):
            return ParsedAnswer(GivenAnswer(text.strip(), "unchecked", score), UNFORMATTED)
        number = _plain_number(text)
        if number is None or (self.var_type == "integer" and not number.is_integer()):
            return ParsedAnswer(self._keep_invalid(text, score), UNFORMATTED)
        return ParsedAnswer(GivenAnswer(self._typed_number(number), "unchecked", score), "exact")

    def _keep_invalid(self, text: str, score: int | None) -> GivenAnswer:
        # A number that does not fit is kept as a number, so that analyses can see it.
        number = _plain_number(text) if self.is_numeric else None
        value = text.strip() if number is None else self._typed_number(number)
        return GivenAnswer(value, "invalid", score)

    def _unwrap_reply(self, reply: str) -> tuple[str, int | None, str, ParseFailure | None]:
        # Returns answer, speculation rating, parse step and problem, which is None for a readable
        # reply.
        if not self.as_json:
            return reply, None, "", None
        unreadable = ParseFailure("The reply was not a JSON object that can be read.")
        try:
            parsed = Json(Structured).parse_reply(reply)
        # Python refuses to convert numbers of thousands of digits.
        except ValueError:
            parsed = unreadable
        if not isinstance(parsed, ParsedAnswer):
            return reply, None, "", parsed if isinstance(parsed, ParseFailure) else unreadable
        rating = parsed.value.speculation_score
        # A fraction may be a share: 0.85 most likely means 85 %.
        is_score = rating is not None and 0 <= rating <= 100 and rating.is_integer()
        score = int(rating) if rating is not None and is_score else None
        text = self._response_text(reply, parsed.value.response)
        # An explicit null says that the speaker gives no score, and is not re-asked.
        is_withheld = rating is None and "speculation_score" in parsed.value.model_fields_set
        if self.speculation and score is None and not is_withheld:
            problem = ParseFailure(
                "The JSON did not fit: speculation_score must be a whole number from 0 to 100. "
                f"{ALL_FIELDS_INSTRUCTION}"
            )
            return text, None, parsed.parse_step, problem
        if not visible_text(text):
            return text, score, parsed.parse_step, EMPTY_REPLY
        return text, score, parsed.parse_step, None

    def _response_text(self, reply: str, response: str | float | bool) -> str:
        if isinstance(response, (str, bool)):
            return str(response)
        if self.is_numeric:
            return exact_number_text(response)
        text = number_text(response)
        if not isinstance(response, float):
            return text
        # Options and words are texts, so a number counts as it is written: 2.50 is the option
        # "2.50". If only the option "1" is listed, 1.0 is that option.
        parsed = Json(Structured).parse_reply(reply, numbers_as_text=True)
        as_written = parsed.value.response if isinstance(parsed, ParsedAnswer) else text
        # A value that needed a repair, such as the only entry of a list, may be no text.
        written = as_written if isinstance(as_written, str) else text
        readable = (form for form in (written, text) if self._is_readable(form))
        return next(readable, text if self.var_type in ("integer", "float") else written)

    def _is_readable(self, text: str) -> bool:
        return isinstance(self._parse_answer(text), ParsedAnswer)

    def _parse_answer(
        self, text: str
    ) -> ParsedAnswer[str] | ParsedAnswer[float] | ParseFailure | Missing:
        answer_type = self._text_answer_type()
        parsed = (
            answer_type.parse_json_value(text)
            if self.as_json and isinstance(answer_type, Number)
            else answer_type.parse_reply(text)
        )
        if not isinstance(parsed, ParsedAnswer):
            return parsed
        if not self.is_numeric and self.var_type not in ("integer", "float"):
            return parsed
        number = float(parsed.value)
        if not abs(number) <= MAX_NUMBER:
            return ParseFailure("The number is too large. Reply with a single number.")
        return ParsedAnswer(self._typed_number(number), parsed.parse_step)

    def _typed_number(self, number: float) -> int | float:
        return number if self.var_type == "float" else _as_whole_number(number)

    def _text_answer_type(self) -> AnswerType[str] | AnswerType[float]:
        if isinstance(self.choices, ListedOptions):
            # The format of workbooks has up to five re-asks, which replace the one clarification of
            # `Choice`.
            return Choice(self.order, with_labels=False, clarify=False)
        if not self.is_numeric:
            return Text(
                own_names=self.own_names,
                other_names=self.other_names,
                keeps_all_words=self.keeps_all_words,
            )
        low, high = None, None
        if isinstance(self.choices, NumberRange):
            low, high = self.choices.low, self.choices.high
        return Number(low, high, integer=self.var_type == "integer")


def _plain_number(text: str) -> float | None:
    parsed = Number().parse_reply(text)
    if not isinstance(parsed, ParsedAnswer) or parsed.parse_step != "exact":
        return None
    return float(parsed.value) if abs(parsed.value) < MAX_NUMBER else None


def _as_whole_number(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number


def option_position(order: tuple[str, ...], value: Value) -> int | None:
    """Return the position of the chosen option in `order`, counted from 1.

    Returns None if the value is not a listed option.
    """
    text = value if isinstance(value, str) else number_text(value)
    if text in order:
        return order.index(text) + 1
    # A number may be written otherwise than its option: 4 and "4.0".
    for place, option in enumerate(order, 1):
        with suppress(ValueError):
            if not isinstance(value, str) and float(option) == value:
                return place
    return None
