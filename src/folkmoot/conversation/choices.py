"""Answer types for choices and numbers."""

# A choice is one of the listed options, and a number is within bounds. Answers are never guessed.
# Each answer type tries parse steps from strict to lenient and reports the step that succeeded. A
# speaker can always reply with a way out, such as `declined`, and every schema allows these
# replies.

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from folkmoot.conversation.answer_format import WRAPPER_NAMES, fold_field_name, match_field_names
from folkmoot.conversation.answer_types import (
    CANNOT_SAY,
    CHOICE,
    DECLINED,
    NONE_OF_THESE,
    NUMBER,
    WAYS_OUT,
    WAYS_OUT_OF_OPTIONS,
    AnswerType,
    ClarifyingAnswer,
    Json,
    Missing,
    ParsedAnswer,
    ParseFailure,
    parse_way_out,
    pin_schema,
)
from folkmoot.conversation.json_replies import (
    REPAIRED,
    json_candidates,
    refuses_beside_json,
    text_after_json,
)
from folkmoot.conversation.lenient_fields import read_number, read_percentage, read_switch
from folkmoot.conversation.reply_forms import (
    MAX_REPLY_CHARACTERS,
    PLAIN_NUMBER,
    comparison_key,
    find_numbers,
    find_options,
    forms_in_phrases,
    label_forms,
    longest_first,
    normalise_text,
    number_forms,
    undecorated_forms,
    visible_text,
)
from folkmoot.hints import number_text
from folkmoot.json_text import Schema
from folkmoot.provenance import SourcedText, concatenate_texts, join_texts

T = TypeVar("T")


# The names of the value in a JSON object, as `fold_field_name` returns them. Models often reply
# with an object such as {"rating": 7} after questions for JSON. The list is closed: {"error": 429}
# or {"rejected": "Park"} is no answer.
_ANSWER_NAMES = frozenset({"answer", "finalanswer", "response", "value", "result"})
_CHOICE_NAMES = _ANSWER_NAMES | {"choice", "vote", "option", "selection", "decision", "stated"}
_NUMBER_NAMES = _ANSWER_NAMES | {"number", "rating", "score", "amount"}


class Choice(AnswerType[str]):
    """A choice of one option.

        Choice(["yes", "no"])

    - `options`: the options, in the order in which the prompt lists them.
    - `with_labels`: whether the prompt numbers the options.
    - `clarify`: whether to ask which option an unclear reply meant.

    If the reply is `none_of_these` or `declined`, the answer counts as missing.
    """

    # The parse steps are: `exact`, the text of an option. `normalised`, the text in another case,
    # spelling or decoration. `number`, the number or letter of an option in the list. `named`, an
    # option in a carrier phrase ("My answer is …") or alone in every line. A reply that fits two
    # options is not parsed. An option inside a sentence is not parsed either, because no list of
    # words can tell whether the sentence chooses or rejects it. With
    # `clarify=False` the engine repeats the question in plain text, as often as the caller allows.
    # Without labels, a bare number is not an option.

    __slots__ = ("_clarify", "_index", "_labelled", "options")
    kind = CHOICE

    def __init__(
        self, options: Sequence[str], *, with_labels: bool = True, clarify: bool = True
    ) -> None:
        # A plain string is a sequence too: "Yes" would become the options Y, e and s.
        if isinstance(options, str) or not all(isinstance(option, str) for option in options):
            raise TypeError('options are a list of texts: Choice(["Yes", "No"])')
        self.options = tuple(options)
        self._labelled = with_labels
        self._clarify = clarify
        # Sorted and without duplicates, so that all orders of the same options share one cached
        # index. Without sources, because the same words may be options of different speakers.
        self._index = _build_index(tuple(sorted(set(map(str, options)))))

    @property
    def configuration_error(self) -> str:
        """The reason why the options cannot be told apart, or an empty string."""
        # Without sources, which the cache would otherwise keep in memory.
        return _find_indistinguishable_options(tuple(map(str, self.options)))

    @property
    def listed_options(self) -> tuple[str, ...]:
        return self.options

    def with_listed_options(self, options: Sequence[str]) -> Choice:
        return Choice(options, with_labels=self._labelled, clarify=self._clarify)

    @property
    def formatted_options(self) -> str:
        """The options as the prompt lists them, one per line."""
        return format_option_list(self.options, with_labels=self._labelled)

    @property
    def clarifying_answer(self) -> Clarification | None:
        """The question after an unclear reply, or None if there is none."""
        # None with `clarify=False`.
        return Clarification(self) if self._clarify else None

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure | Missing:
        text = reply.strip()
        if text in self._index.exact:
            return ParsedAnswer(text, "exact")
        if (only_value := _only_value_in_json(text, _CHOICE_NAMES)) is not None:
            read = self.parse_reply(only_value)
            return read._replace(parse_step="named") if isinstance(read, ParsedAnswer) else read
        forms = forms_in_phrases(text)
        options = self._index.from_forms(forms) or self._index.from_numbers(forms)
        # An option may be spelled like a way out ("Declined"). The option has priority.
        for form in () if options else (text, *forms):
            if (way_out := parse_way_out(form)) is not None:
                return way_out
        if len(options) == 1 and not self._has_wrong_label(forms, options):
            bare_forms = undecorated_forms(text)
            undecorated = self._index.from_forms(bare_forms) or self._index.from_numbers(bare_forms)
            return ParsedAnswer(
                next(iter(options)), "normalised" if undecorated == options else "named"
            )
        # Labels are tried after texts, because an option may be a number: "2" means the option "2".
        by_label = [] if options else self._match_label(text)
        if len(by_label) == 1:
            return ParsedAnswer(by_label[0], "number")
        if (repeated := self._repeated_option(text)) is not None:
            return ParsedAnswer(repeated, "named")
        problem = "was empty" if not text else "was not one of the options and nothing else"
        return ParseFailure(
            concatenate_texts(
                (
                    f"The reply {problem}. Reply with exactly one of these, its exact text and "
                    "nothing else:\n",
                    self.formatted_options,
                    f"\nOr reply with {self.describe_ways_out()}.",
                ),
                plain=None,
            )
        )

    @property
    def ways_out(self) -> tuple[str, ...]:
        """The replies that count as a missing answer, such as `declined`."""
        # An option of this name is left out.
        options = {normalise_text(option).replace(" ", "_") for option in self.options}
        return tuple(way for way in WAYS_OUT_OF_OPTIONS if way not in options)

    def describe_ways_out(self) -> str:
        """Return words for a prompt that explain replies such as `declined`."""
        # Each reply, such as `declined`, comes with its meaning.
        return " or ".join(f"{way} if you {_WAY_OUT_MEANING[way]}" for way in self.ways_out)

    def find_mentioned_values(self, reply: str) -> frozenset[str]:
        """Return the options that a reply mentions anywhere, by text or by label ("option 3")."""
        # The text of a short option may be part of a longer option. The short option then counts
        # only if it also occurs elsewhere in the reply.

        # Most replies are the bare option, so the search is not needed.
        if reply in self._index.exact:
            return frozenset((reply,))
        mentioned, text = find_options(reply, self._index.longest_first)
        labels = self._options_by_label() | self._index.own
        return mentioned | {labels[label] for label in _BY_LABEL.findall(text) if label in labels}

    def _repeated_option(self, text: str) -> str | None:
        # Small models often repeat their answer over several lines.
        if "\n" not in text or len(text) > MAX_REPLY_CHARACTERS:
            return None
        # A set, because a model may repeat one line hundreds of times. The recursion ends after one
        # level, since a single line contains no line break.
        parsed_lines = [self.parse_reply(line) for line in {*text.splitlines()} if line.strip()]
        values = {
            parsed.value if isinstance(parsed, ParsedAnswer) else None for parsed in parsed_lines
        }
        return values.pop() if len(values) == 1 else None

    def _has_wrong_label(self, forms: Sequence[str], found: frozenset[str]) -> bool:
        # The text of one option with the label of another: the intended option is unknown. `found`
        # holds the options that the text of the reply names. A leading 1 is ignored, because a
        # reply may be a list with one entry.
        is_list_of_one = re.match(r"\W*1\b", forms[0])
        option_by_label = {
            label: option
            for label, option in self._options_by_label().items()
            if label != "1" or not is_list_of_one
        }
        option_by_label |= self._index.own
        labels = (_REPLY_LABEL.fullmatch(form) for form in forms)
        return any(
            label and option_by_label.get(label[1], next(iter(found))) not in found
            for label in labels
        )

    def _match_label(self, text: str) -> list[str]:
        # A mark that is an option, such as ".", contradicts the label of another one beside it.
        marks = [word for word in text.split() if re.search(r"\w", word) is None]
        if any(option in mark for mark in marks for option in self.options):
            return []
        labels = self._options_by_label() | self._index.own
        matches = (_LABEL.fullmatch(form) for form in label_forms(text))
        return list(
            dict.fromkeys(labels[match[1]] for match in matches if match and match[1] in labels)
        )

    def _options_by_label(self) -> dict[str, str]:
        labels = option_labels(self.options) if self._labelled else ()
        return dict(zip(labels, self.options, strict=False))


@dataclass(frozen=True, slots=True)
class Clarification(ClarifyingAnswer[str]):
    """The question after an unclear choice: which listed option did the speaker state?"""

    # The reply is JSON and may also be a way out, such as `declined`. Some endpoints ignore the
    # schema, so a reply without JSON is parsed as well.

    choice: Choice
    kind: str = CHOICE

    @property
    def listed_options(self) -> tuple[str, ...]:
        """The options in the order in which the original question listed them."""
        return self.choice.options

    @property
    def schema(self) -> Schema:
        """The schema of the reply, which allows every option and words such as `declined`."""
        stated = {"type": "string", "enum": [*self.choice.options, *self.choice.ways_out]}
        return {
            "title": "Clarification",
            "type": "object",
            "properties": {"stated": stated},
            "required": ["stated"],
            "additionalProperties": False,
        }

    @property
    def prompt(self) -> str:
        """The prompt that asks the speaker which option the unclear reply meant."""
        return concatenate_texts(
            (
                "Which of these options did you state in your reply?\n",
                self.choice.formatted_options,
                '\n\nReply with only the JSON object {"stated": …}, where … is the exact text of '
                f"that option, or {self.choice.describe_ways_out()}.",
            ),
            plain=None,
        )

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure | Missing:
        """Return the option that the speaker stated, or `Missing` for a reply like `declined`."""
        parsed = Json(_Stated).parse_reply(reply, numbers_as_text=True)
        text = parsed.value.stated if isinstance(parsed, ParsedAnswer) else reply
        parsed_option = self.choice.parse_reply(text)
        if not isinstance(parsed_option, ParsedAnswer):
            return parsed_option
        if isinstance(parsed, ParsedAnswer) and _is_taken_back(
            self.choice, parsed_option.value, reply
        ):
            return ParseFailure("The reply names another option after the JSON object.")
        return ParsedAnswer(parsed_option.value, "clarified")


class _Stated(BaseModel):
    model_config = pin_schema("Clarification")

    stated: str


class _OptionIndex(NamedTuple):
    # Finds the options of a choice by their normalised text.

    # The options with each normalised text.
    by_form: dict[str, tuple[str, ...]]
    # The options that are each number.
    by_number: dict[float, tuple[str, ...]]
    # The option of each label, if every option begins with a label such as `A)`. Otherwise empty.
    own: dict[str, str]
    # The options that can be identified by their text.
    exact: frozenset[str]
    # The options, sorted by length.
    longest_first: tuple[str, ...]

    def from_forms(self, forms: Sequence[str]) -> frozenset[str]:
        return frozenset(
            option for form in forms for option in self.by_form.get(comparison_key(form), ())
        )

    def from_numbers(self, forms: Sequence[str]) -> frozenset[str]:
        """Return the options that are the same number as a form, such as `2.50` for `2.5`."""
        return frozenset(
            option
            for form in forms
            if (number := _read_decimal(form)) is not None
            for option in self.by_number.get(number, ())
        )


# Models write 2.50 as 2.5, above all in JSON. Three decimals are not read, because `1.000` may be
# a thousand.
_DECIMAL = re.compile(r"[-+]?[0-9]{1,15}(?:\.(?:[0-9]{1,2}|[0-9]{4,9}))?")


def _read_decimal(form: str) -> float | None:
    return float(form) if _DECIMAL.fullmatch(form) else None


# A run puts the same options to thousands of speakers. The index depends on the options alone.
@lru_cache(maxsize=4096)
def _build_index(options: tuple[str, ...]) -> _OptionIndex:
    by_form: dict[str, tuple[str, ...]] = {}
    for option in options:
        for key in dict.fromkeys(comparison_key(form) for form in undecorated_forms(option)):
            by_form[key] = (*by_form.get(key, ()), option)
    by_number: dict[float, tuple[str, ...]] = {}
    for key, same_options in by_form.items():
        if (number := _read_decimal(key)) is not None:
            by_number[number] = (*by_number.get(number, ()), *same_options)
    label_matches = [_OPTION_LABEL.fullmatch(normalise_text(option)) for option in options]
    own_labels = {
        match[1]: option for match, option in zip(label_matches, options, strict=True) if match
    }
    index = _OptionIndex(
        by_form,
        by_number,
        own_labels if len(own_labels) == len(options) else {},
        frozenset(),
        longest_first(options),
    )
    # The forms of the index must be complete before this, because an option is unique only in
    # comparison with all others.
    exact = frozenset(
        option for option in options if index.from_forms(forms_in_phrases(option)) == {option}
    )
    return index._replace(exact=exact)


# Each question needs the result.
@lru_cache(maxsize=4096)
def _find_indistinguishable_options(options: tuple[str, ...]) -> str:
    if not options:
        return "there are no options to choose from"
    if not all(map(visible_text, options)):
        return "an option has no text, so no reply can choose it"
    index = _build_index(tuple(sorted(set(options))))
    # Comparing all pairs is quadratic, so it is done only if some option is ambiguous.
    pairs = indistinguishable_pairs(options) if len(index.exact) < len(set(options)) else []
    if not pairs:
        return ""
    first, second = (options[place] for place in pairs[0])
    return f"the options {first!r} and {second!r} cannot be distinguished: {IGNORED_DIFFERENCES}"


def option_labels(options: Sequence[str]) -> tuple[str, ...]:
    """Return the label that each option has in the prompt, such as "1" or "A".

    Returns an empty tuple if the options cannot have labels.
    """
    # Labels are numbers, or letters if an option looks like a number. The result is empty if an
    # option begins or ends with one of the needed letters.
    return _labels_of(tuple(options))


@lru_cache(maxsize=4096)
def _labels_of(options: tuple[str, ...]) -> tuple[str, ...]:
    texts = [normalise_text(option) for option in options]
    # If an option contains a number, a bare "2" in a reply could mean its label or its text.
    if not any(
        _NUMERIC.search(text) or any(character.isnumeric() for character in text) for text in texts
    ):
        return tuple(str(number) for number in range(1, len(options) + 1))
    letters = tuple("abcdefghijklmnopqrstuvwxyz"[: len(options)])
    # In a list with the options "Plan A" and "Plan B", the label "a" would be ambiguous.
    lone_letters = {
        letter for text in texts for groups in _LETTER.findall(text) for letter in groups
    }
    return letters if len(letters) == len(options) and not lone_letters & set(letters) else ()


def format_option_list(options: Sequence[str], *, with_labels: bool = True) -> str:
    """Return the options as lines. Each line begins with the label of the option or with a dash."""
    labels = option_labels(options) if with_labels else ()
    line_starts = [f"{label.upper()}." for label in labels] or ["-"] * len(options)
    lines = zip(line_starts, options, strict=True)
    return join_texts(
        "\n",
        (
            concatenate_texts((SourcedText(f"{line_start} "), option))
            for line_start, option in lines
        ),
    )


_WAY_OUT_MEANING = {NONE_OF_THESE: "chose no single one of them", DECLINED: "declined to choose"}
_BY_LABEL = re.compile(r"\boption\s#?([1-9][0-9]{0,2}|[a-z])\b")
# The explanation that messages about `indistinguishable_pairs` give to study authors.
IGNORED_DIFFERENCES = (
    "case, width, quotes, closing marks and listing numbers count for nothing in a reply"
)


def indistinguishable_pairs(options: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of options that parsing cannot tell apart.

    Options are given as positions, counted from 0.
    """
    index = _build_index(tuple(sorted(set(options))))
    options_of_reply = [index.from_forms(forms_in_phrases(option)) for option in options]
    return [
        (first, second)
        for second, option in enumerate(options)
        for first, other in enumerate(options[:second])
        if other == option or other in options_of_reply[second] or option in options_of_reply[first]
    ]


def match_spellings(texts: Iterable[str], options: Collection[str]) -> dict[str, str | None]:
    """Return the option that each text names, as a reply would be read.

    Texts that name no option and differ in spelling alone get the first of their spellings. The
    value is None for a way out, such as `declined`.
    """
    choice = Choice(sorted(options), with_labels=False)
    parsed = {text: choice.parse_reply(text) for text in dict.fromkeys(texts)}
    spellings = {
        text: reply.value if isinstance(reply, ParsedAnswer) else None
        for text, reply in parsed.items()
    }
    others = [text for text, reply in parsed.items() if isinstance(reply, ParseFailure)]
    position = {text: number for number, text in enumerate(others)}
    index = _build_index(tuple(sorted(others)))
    same = {text: index.from_forms(undecorated_forms(text)) | {text} for text in others}
    return spellings | {text: min(same[text], key=position.__getitem__) for text in others}


# Number words that make an option look like a number, so that `option_labels` uses letters.
_NUMERIC = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|"
    r"first|second|third|fourth|fifth)\b"
)
# A single letter at the beginning or end of an option, as in "Plan A".
_LETTER = re.compile(r"^([a-z])(?![^\W\d_])|(?<![^\W\d_])([a-z])$")
# A reply that is only a label: "2", "(b)", "Option 3:".
_LABEL = re.compile(
    r"(?:(?:option|choice|number|no\.|nr\.)\s?)?#?[(\[]?([1-9][0-9]{0,2}|[a-z])[)\]]?[.:]?"
)
# A label before the text of an option. A comma after the label occurs in replies only.
_LABEL_PREFIX = r"(?:option\s|choice\s)?[(\[#]?(\d{1,3}|[a-z])(?:[)\]][.:]?|[%s]|\s[-=])\s.+"
_OPTION_LABEL = re.compile(_LABEL_PREFIX % ".:", re.DOTALL)
_REPLY_LABEL = re.compile(_LABEL_PREFIX % ".:,", re.DOTALL)

# The end of each re-ask, so that a speaker is never forced to invent a number.
WAY_OUT_HINT = f" If you cannot answer, reply with {CANNOT_SAY}."


@dataclass(frozen=True, slots=True)
class Number(AnswerType[float]):
    """A number within inclusive bounds.

        Number(1, 5, integer=True)

    - `low`: the lower bound, or None.
    - `high`: the upper bound, or None.
    - `integer`: whether fractions are rejected.
    - `name`: what the number is, such as `age`. A reply may be a JSON object with this key.

    If the reply is `cannot_say` or `declined`, the answer counts as missing.
    """

    # The reply must be a single number, or a carrier phrase ("My answer is …") with one number.
    # Numbers inside prose are not used.

    low: float | None = None
    high: float | None = None
    integer: bool = False
    kind: str = NUMBER
    name: str = ""

    @property
    def configuration_error(self) -> str:
        """The reason why no number could fit the bounds, or an empty string."""
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if not all(isinstance(bound, Real) and not math.isnan(bound) for bound in bounds):
            return f"the bounds of a number are numbers or None, not {self.low!r} and {self.high!r}"
        if self.low is None or self.high is None:
            return ""
        lies_between_whole_numbers = self.low % 1 > 0 and self.low // 1 == self.high // 1
        if self.low > self.high or (self.integer and lies_between_whole_numbers):
            return f"no {'whole ' * self.integer}number is{self.describe_bounds()}"
        return ""

    @property
    def offered_values(self) -> tuple[str, ...]:
        """The lower bound and the upper bound. A missing bound is left out."""
        return tuple(number_text(bound) for bound in (self.low, self.high) if bound is not None)

    def parse_reply(self, reply: str) -> ParsedAnswer[float] | ParseFailure | Missing:
        text = reply.strip()
        if (way_out := parse_way_out(text, (CANNOT_SAY, DECLINED))) is not None:
            return way_out
        names = _NUMBER_NAMES | ({fold_field_name(self.name)} if self.name else set())
        if (only_value := _only_value_in_json(text, names)) is not None:
            read = self.parse_json_value(only_value)
            return read._replace(parse_step="named") if isinstance(read, ParsedAnswer) else read
        undecorated, in_phrases = number_forms(text)
        read_forms = ((form, self._read_form(form)) for form in (*undecorated, *in_phrases))
        numbers = {form: value for form, value in read_forms if value is not None}
        # Compare values and not spellings: a reply may give one number twice, as in "**7** 7.0".
        values = set(numbers.values())
        if len(values) != 1 or any(self.has_ambiguous_separator(number) for number in numbers):
            return ParseFailure(
                f"Reply with a single number{self.describe_bounds()} and nothing "
                f"else.{WAY_OUT_HINT}"
            )
        (value,), number_text = values, next(iter(numbers))
        # Hundreds of digits become infinity, which has no place in a table.
        if not math.isfinite(value):
            return ParseFailure(
                f"{number_text[:20]}… is no sensible number{self.describe_bounds()}.{WAY_OUT_HINT}"
            )
        if self.integer and not value.is_integer():
            return ParseFailure(
                f"Reply with a whole number{self.describe_bounds()} and nothing else.{WAY_OUT_HINT}"
            )
        if not self._within_bounds(value):
            bounds = self.describe_bounds()
            problem = f"{number_text} is out of range. Reply with a number{bounds}.{WAY_OUT_HINT}"
            return ParseFailure(problem)
        parse_step = (
            "exact"
            if text == number_text and PLAIN_NUMBER.fullmatch(text)
            else "normalised"
            if number_text in undecorated
            else "named"
        )
        return ParsedAnswer(value, parse_step)

    def parse_json_value(self, text: str) -> ParsedAnswer[float] | ParseFailure | Missing:
        """Parse the text of a value in JSON, which may also be a number in words, such as `seven`.

        Words in plain text are no number: there they may belong to a phrase.
        """
        parsed = self.parse_reply(text)
        if isinstance(parsed, ParseFailure) and not any(map(str.isdigit, text)):
            number = read_number(text)
            in_words = None if number is None else self.parse_reply(number_text(number))
            # The problem names the reply as it is, so it does not change with the words.
            return in_words if isinstance(in_words, ParsedAnswer) else parsed
        return parsed

    @property
    def last_reask(self) -> NumberInJson:
        """The answer type of the last re-ask, which asks for a JSON object."""
        # Small models may answer a number question in words, however often it is repeated. The JSON
        # schema prevents this at endpoints that enforce schemas.
        return NumberInJson(self)

    def find_mentioned_values(self, reply: str) -> frozenset[float]:
        """Return the numbers within the bounds that a reply mentions anywhere."""
        return frozenset(value for value in find_numbers(reply) if self._within_bounds(value))

    def _read_form(self, form: str) -> float | None:
        if PLAIN_NUMBER.fullmatch(form):
            return float(form.replace(",", ""))
        return read_percentage(form, self.low, self.high)

    def _within_bounds(self, value: float) -> bool:
        is_high_enough = self.low is None or value >= self.low
        return is_high_enough and (self.high is None or value <= self.high)

    def has_ambiguous_separator(self, number_text: str) -> bool:
        """Return whether the separator of a number may mean thousands as well as decimals."""
        # The dot may separate thousands, as in `1.000`. That is possible only if the number times
        # 1,000 is within the bounds. The comma may separate decimals, as in `7,125`. That is
        # possible only if a thousandth of the number is within the bounds. Nobody writes 7.5 with
        # zeros after a comma, so `7,500` is 7500.
        match = re.fullmatch(r"([-+]?[1-9][0-9]{0,2})([.,])([0-9]{3})", number_text)
        if match is None:
            return False
        has_bounds = self.low is not None and self.high is not None
        if match[2] == ",":
            decimal = float(f"{match[1]}.{match[3]}")
            may_be_decimal = not self.integer and not match[3].endswith("0")
            return has_bounds and may_be_decimal and self._within_bounds(decimal)
        return self._within_bounds(float(number_text) * 1000) and (
            has_bounds or self.integer or match[3].endswith("0")
        )

    def describe_bounds(self) -> str:
        """Return the bounds as the end of a sentence, such as " from 1 to 5"."""
        if self.low is not None and self.high is not None:
            return f" from {number_text(self.low)} to {number_text(self.high)}"
        if self.low is not None:
            return f" of at least {number_text(self.low)}"
        return f" of at most {number_text(self.high)}" if self.high is not None else ""


def _only_value_in_json(reply: str, names: Collection[str]) -> str | None:
    # The value of a JSON object that holds nothing else under one of the names, or None. For
    # {"declined": true} it is the way out. A repaired object does not count, because the repair
    # turns prose into values.
    if not reply.startswith(("{", "`")):
        return None
    for parse_step, found in json_candidates(reply, "{", numbers_as_text=True):
        if parse_step == REPAIRED or not isinstance(found, dict) or len(found) != 1:
            continue
        ((name, value),) = found.items()
        if isinstance(value, dict) and len(value) == 1 and fold_field_name(name) in WRAPPER_NAMES:
            ((name, value),) = value.items()
        if read_switch(value) and parse_way_out(name, WAYS_OUT) is not None:
            return str(name)
        if parse_step != "exact" and refuses_beside_json(reply):
            return None
        is_scalar = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        return str(value) if is_scalar and fold_field_name(name) in names else None
    return None


def _is_taken_back(answer_type: AnswerType[T], value: T, reply: str) -> bool:
    # True if the text after a JSON object names other answers and not the one in the object, as in
    # `Last time I said {…}. Now I would say 2.` The text before it may weigh several answers. It is
    # also true if the reply refuses to answer in words.
    mentioned = answer_type.find_mentioned_values(text_after_json(reply)) or frozenset()
    return (bool(mentioned) and value not in mentioned) or refuses_beside_json(reply)


@dataclass(frozen=True, slots=True)
class NumberInJson(ClarifyingAnswer[float]):
    """The last re-ask of a number, which asks for a JSON object."""

    # The reply may also be a word such as `declined`. Some endpoints ignore the schema, so a reply
    # without JSON is parsed as well.

    number: Number
    kind: str = NUMBER

    @property
    def offered_values(self) -> tuple[str, ...]:
        """The bounds of the number."""
        return self.number.offered_values

    @property
    def schema(self) -> Schema:
        """The schema of the reply, with the bounds and words such as `declined`."""
        bounds = {"minimum": self.number.low, "maximum": self.number.high}
        number = {
            "type": "integer" if self.number.integer else "number",
            **{name: bound for name, bound in bounds.items() if bound is not None},
        }
        way_out = {"type": "string", "enum": [CANNOT_SAY, DECLINED]}
        return {
            "title": "NumberInJson",
            "type": "object",
            "properties": {"number": {"anyOf": [number, way_out]}},
            "required": ["number"],
            "additionalProperties": False,
        }

    @property
    def prompt(self) -> str:
        """The instruction to reply with a JSON object."""
        bounds = self.number.describe_bounds()
        return (
            f'Reply with only the JSON object {{"number": …}}, where … is your number{bounds}, or '
            f'"{CANNOT_SAY}" if you cannot answer, or "{DECLINED}" if you decline to answer.'
        )

    def parse_reply(self, reply: str) -> ParsedAnswer[float] | ParseFailure | Missing:
        """Return the number in the JSON object, or `Missing` for a reply such as `declined`."""
        for _, found in json_candidates(reply, "{", numbers_as_text=True):
            value, _ = match_field_names(found, self.schema)
            if isinstance(value, dict) and isinstance(value.get("number"), int | float | str):
                parsed = self.number.parse_json_value(str(value["number"]))
                if isinstance(parsed, ParsedAnswer) and _is_taken_back(
                    self.number, parsed.value, reply
                ):
                    return ParseFailure("The reply names another number after the JSON object.")
                return parsed
        return self.number.parse_reply(reply)
