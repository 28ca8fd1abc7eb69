"""Parsing of choices, numbers and JSON: the parse steps, and replies that must not be read."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import folkmoot
from folkmoot.conversation.answer_types import (
    AnswerType,
    Json,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Text,
)
from folkmoot.conversation.choices import Choice, Number
from folkmoot.models.scripted import ScriptedProvider

OPTIONS = ["Park improvements", "Youth job training", "Street safety", "Safer street lighting"]


@pytest.mark.parametrize(
    ("reply", "value", "parse_step"),
    [
        ("Street safety", "Street safety", "exact"),
        ("  Street safety\n", "Street safety", "exact"),
        ("street safety.", "Street safety", "normalised"),
        ('"Street Safety"', "Street safety", "normalised"),
        ("**Street safety**", "Street safety", "normalised"),
        ("“Park improvements”", "Park improvements", "normalised"),
        ("3. Street safety", "Street safety", "normalised"),
        ("Option 3: Street safety", "Street safety", "normalised"),
        ("street-safety", "Street safety", "normalised"),
        ("3", "Street safety", "number"),
        ("Option 2.", "Youth job training", "number"),
        ("I choose Street safety.", "Street safety", "named"),
        ("My vote goes to safer street lighting!", "Safer street lighting", "named"),
        ("After some thought: youth job training it is", "Youth job training", "named"),
    ],
)
def test_choices_that_can_be_read(reply: str, value: str, parse_step: str) -> None:
    assert Choice(OPTIONS).parse_reply(reply) == ParsedAnswer(value, parse_step)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I do not want Street safety",
        "Anything but Park improvements, never Park improvements",
        "Street safety is not for me",
        "Street safety or Park improvements",
        "I prefer Youth job training to Street safety",
        "Street safey",  # similar, but must not be guessed
        "the second-best one",
        "7",
        "0",
        "I cannot choose.",
        "Street safety " + "matters because people walk and children play there. " * 8,
    ],
)
def test_choices_that_must_not_be_guessed(reply: str) -> None:
    parsed = Choice(OPTIONS).parse_reply(reply)
    assert isinstance(parsed, ParseFailure)
    assert "Street safety" in parsed.problem  # the re-ask lists the options


def test_an_option_inside_another_is_not_a_second_match() -> None:
    options = ["Street", "Street safety", "No change"]
    assert Choice(options).parse_reply("I take street safety") == ParsedAnswer(
        "Street safety", "named"
    )
    assert Choice(options).parse_reply("I vote for no change") == ParsedAnswer("No change", "named")


def test_a_re_ask_lists_the_options_and_proposes_none() -> None:
    parsed = Choice(OPTIONS).parse_reply("Street safey")
    assert isinstance(parsed, ParseFailure)
    assert (
        "\n".join(f"{number}. {option}" for number, option in enumerate(OPTIONS, 1))
        in parsed.problem
    )
    assert "none_of_these" in parsed.problem and "declined" in parsed.problem
    assert "meant" not in parsed.problem  # a guess would be a leading question


@given(st.sampled_from(OPTIONS), st.sampled_from(["{}", " {} ", "{}.", '"{}"', "1) {}", "- {}"]))
def test_decoration_never_changes_the_choice(option: str, template: str) -> None:
    parsed = Choice(OPTIONS).parse_reply(template.format(option))
    assert isinstance(parsed, ParsedAnswer) and parsed.value == option


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_without_an_error(reply: str) -> None:
    for answer in (Choice(OPTIONS), Number(0, 10), Text(), Json(Vote)):
        assert isinstance(answer.parse_reply(reply), ParsedAnswer | ParseFailure | Missing)


@pytest.mark.parametrize(
    ("answer_type", "reply", "value"),
    [
        (Choice(OPTIONS), "```\nStreet safety\n```", "Street safety"),
        (Choice(OPTIONS), "```text\n**Street safety**.\n```\n", "Street safety"),
        (Choice(OPTIONS), "My answer is:\n\n```\n3\n```", "Street safety"),
        (Choice(OPTIONS), "```\nStreet safety\nPark improvements\n```", None),
        (Choice(OPTIONS), "```\nStreet safety\n```\nor\n```\nPark improvements\n```", None),
        (Choice(OPTIONS), "I do not want\n```\nStreet safety\n```", None),
        # The first line of a block may be an answer, so only names of languages are left out.
        (Choice(["yes", "no"]), "```yes\nno\n```", None),
        (Number(0, 10), "```\n7\n```", "7.0"),
        (Number(0, 10), "```text\n7.5\n```", "7.5"),
        (Number(0, 10), "```\n7\n8\n```", None),
    ],
)
def test_an_answer_alone_in_a_code_block_is_stated(
    tmp_path: Path, answer_type: AnswerType[Any], reply: str, value: str | None
) -> None:
    async def ask(session: folkmoot.Session) -> None:
        ann = folkmoot.Speaker("ann", "Ann", "participant", "You are Ann.")
        await session.ask(ann, "Which?", answer_type=answer_type, reasks=0)

    study = folkmoot.Study("trial", "Trial", folkmoot.StudyConfig, ask)
    model = ScriptedProvider(lambda request, address: reply)
    run = folkmoot.run(study, {}, out=tmp_path / "run", provider=model)
    (row,) = run.table("answers").to_dicts()
    assert row["value"] == value
    assert row["how"] == ("stated" if value else "unreadable") and model.calls == 1


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        *(("7", 7), ("7.5", 7.5), ("I give 8", 8), ("-3", -3), ("1,200", 1200)),
        *(("about 4 tokens", 4), ("~7", 7), ("٧", 7), ("१२ tokens", 12), ("７", 7)),
        *(("٣٫٥", 3.5), ("١٬٢٠٠", 1200)),
    ],
)
def test_numbers(reply: str, value: float) -> None:
    parsed = Number().parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer) and parsed.value == value


UNCLEAR_NUMBERS = (
    "between 3 and 4; 10% of 5; 3-4; 3 to 4; 1.000,5; 3,5; minus 3; - 3; 5/10; 7 out of 10; not 5; "
    "5+; > 5; at least 3; up to 5; 5k; 5 thousand; 1e3; 5%; ½; 5 or so; 1. 5; Option 5; 1.000; "
    "2.500; 5 because 3 of 4"
)


@pytest.mark.parametrize("reply", UNCLEAR_NUMBERS.split("; "))
def test_no_number_is_guessed_from_prose(reply: str) -> None:
    assert isinstance(Number().parse_reply(reply), ParseFailure)
    assert isinstance(Number(0, 5000, integer=True).parse_reply(reply), ParseFailure)


@pytest.mark.parametrize(
    ("number", "reply", "value"),
    [
        # The comma may separate thousands or decimals.
        (Number(0, 10_000), "7,125", None),
        (Number(0, 10_000), "I give 1,005", None),
        (Number(), "0,500", None),
        (Number(0, 10_000), "0,500", None),
        # Only one reading is a whole number, is within the bounds, or is usual.
        (Number(0, 10_000), "7,500", 7500),
        (Number(0, 1_000_000), "I give 250,000", 250_000),
        (Number(0, 10_000, integer=True), "7,125", 7125),
        (Number(1_000, 10_000), "7,125", 7125),
        (Number(0, 2_000_000), "1,234,567", 1_234_567),
        (Number(0, 10_000), "7,500.5", 7500.5),
        (Number(), "7,500", 7500),
    ],
)
def test_a_comma_that_may_separate_decimals_is_not_read(
    number: Number, reply: str, value: float | None
) -> None:
    parsed = number.parse_reply(reply)
    assert (parsed.value if isinstance(parsed, ParsedAnswer) else None) == value


def test_bounds_are_stated_with_all_their_digits() -> None:
    """A bound with more than six digits is not rounded, so that a re-ask states the real range."""
    number = Number(1_000_001, 2_000_001)
    failure = number.parse_reply("1000000")
    assert isinstance(failure, ParseFailure) and "from 1000001 to 2000001" in failure.problem
    assert number.offered_values == ("1000001", "2000001")
    assert Number(0, 99_999.75).describe_bounds() == " from 0 to 99999.75"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("−3", -3),
        ("**7**", 7),
        ("Answer: 7", 7),
        ("“7.”", 7),
        ("0.125", 0.125),
        ("3.142", 3.142),
        (".5", 0.5),
        ("-.5", -0.5),
    ],
)
def test_a_single_number_is_read_with_any_decoration(reply: str, value: float) -> None:
    parsed = Number(-5, 10).parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer) and parsed.value == value


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('```json\n{"age": "7"}\n```', 7),
        ('{"Age": 7}', 7),
        ('{"rating": 2}', 2),
        ('{"rating": "seven"}', 7),
        ('{"rating": "eleven"}', None),
        ('{"Final Answer": "about 2"}', 2),
        ('{"answer": {"age": 7}}', 7),
        # Under another key the number may mean something else.
        ('{"error": 9}', None),
        ('{"A01": 2}', None),
        ('{"answer": {"error": 9}}', None),
        ('{"Ben": {"age": 7}}', None),
        ('{"age": 1, "rating": 2}', None),
        ('{"age": 1, "age": 2}', None),
        ('{"age": null}', None),
        ('{"age": true}', None),
        ('{"age": 2', None),
        ('{"age": [2]}', None),
    ],
)
def test_the_only_value_of_a_json_object_is_read_as_a_number(
    reply: str, value: float | None
) -> None:
    parsed = Number(0, 10, name="age").parse_reply(reply)
    assert (parsed.value if isinstance(parsed, ParsedAnswer) else None) == value


@pytest.mark.parametrize(
    ("reply", "option"),
    [
        ('{"vote": "Street safety"}', "Street safety"),
        ('```json\n{"Final answer": "**Street safety**"}\n```', "Street safety"),
        ('{"response": {"choice": "1"}}', OPTIONS[0]),
        ('{"rejected": "Street safety"}', None),
        ('{"vote": "not Street safety"}', None),
        ('{"vote": "Street safety", "vote": "No change"}', None),
    ],
)
def test_the_only_value_of_a_json_object_is_read_as_a_choice(
    reply: str, option: str | None
) -> None:
    parsed = Choice(OPTIONS).parse_reply(reply)
    assert (parsed.value if isinstance(parsed, ParsedAnswer) else None) == option


@pytest.mark.parametrize("answer_type", [Number(0, 10), Number(0, 10).last_reask, Choice(OPTIONS)])
def test_a_way_out_is_read_in_a_json_object(answer_type: Any) -> None:
    for reply in ('{"declined": true}', '{"Declined": "yes"}', '{"answer": "declined"}'):
        parsed = answer_type.parse_reply(reply)
        assert isinstance(parsed, Missing) and parsed.reason == "declined", reply
    assert isinstance(answer_type.parse_reply('{"declined": false}'), ParseFailure)


@pytest.mark.parametrize("reply", ["85%", "85 %", "85 percent", "My answer is 85 per cent."])
def test_a_percentage_is_read_only_on_a_scale_to_100_or_to_1(reply: str) -> None:
    for high, value in ((100, 85), (1, 0.85)):
        parsed = Number(0, high).parse_reply(reply)
        assert isinstance(parsed, ParsedAnswer) and parsed.value == value
    for answer_type in (Number(), Number(0), Number(0, 1000), Number(1, 100), Number(-1, 1)):
        assert isinstance(answer_type.parse_reply(reply), ParseFailure)
    # It may mean 85 %.
    assert isinstance(Number(0, 1).parse_reply("0.85%"), ParseFailure)


def test_an_answer_that_the_reply_withdraws_is_not_read() -> None:
    number, choice = Number(0, 10).last_reask, Choice(OPTIONS).clarifying_answer
    assert number is not None and choice is not None
    for answer_type, stated_value, other_value in (
        (number, 7, 2),
        (choice, OPTIONS[0], OPTIONS[1]),
    ):
        key = "number" if answer_type is number else "stated"
        answer = json.dumps({key: stated_value})
        withdrawn_answer = answer_type.parse_reply(
            f"Last time I said {answer}. Now I would say {other_value}."
        )
        assert isinstance(withdrawn_answer, ParseFailure)
        for reply in (
            answer,
            f"Not {other_value}: {answer}",
            f"{answer} I prefer {stated_value} to {other_value}.",
        ):
            parsed = answer_type.parse_reply(reply)
            assert isinstance(parsed, ParsedAnswer) and parsed.value == stated_value, reply


@given(
    st.integers(-9999, 9999).map(str) | st.decimals(-99, 99, places=2).map(str),
    st.text("0123456789.,+-/%~ ofabk*()", max_size=6),
    st.text("0123456789.,+-/%~ ofabk*()", max_size=6),
)
def test_a_number_is_read_only_if_it_is_the_only_one(
    number_text: str, prefix: str, suffix: str
) -> None:
    parsed = Number().parse_reply(f"{prefix}{number_text}{suffix}")
    if isinstance(parsed, ParsedAnswer):
        assert len(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", f"{prefix}{number_text}{suffix}")) == 1


@pytest.mark.parametrize("reply", ["", "seven", "3 or 4", "11", "-1", "2.5"])
def test_numbers_out_of_bounds_or_unclear(reply: str) -> None:
    assert isinstance(Number(0, 10, integer=True).parse_reply(reply), ParseFailure)


class Vote(BaseModel):
    choice: str
    weight: int = Field(ge=0, le=10)


@pytest.mark.parametrize(
    ("reply", "parse_step"),
    [
        ('{"choice": "a", "weight": 3}', "exact"),
        ('Here you are:\n```json\n{"choice": "a", "weight": 3}\n```', "fenced"),
        ('{"choice": "a", "weight": 3,}', "repaired"),
        ("{'choice': 'a', 'weight': 3", "repaired"),
        ('Sure! {"choice": "a", "weight": 3} Anything else?', "repaired"),
    ],
)
def test_json_parse_steps(reply: str, parse_step: str) -> None:
    assert Json(Vote).parse_reply(reply) == ParsedAnswer(Vote(choice="a", weight=3), parse_step)


def test_json_that_does_not_fit_names_the_field() -> None:
    parsed = Json(Vote).parse_reply('{"choice": "a", "weight": 30}')
    assert isinstance(parsed, ParseFailure) and "weight" in parsed.problem


def test_missing_is_false_and_keeps_its_reason() -> None:
    assert not Missing("refused") and Missing("refused").reason == "refused"


@pytest.mark.parametrize(
    "reply",
    ["{" * 5000, "9" * 5000, '{"choice": "a", "weight": ' + "9" * 5000 + "}", "[" * 3000 + "{"],
)
def test_huge_replies_are_refused(reply: str) -> None:
    assert isinstance(Json(Vote).parse_reply(reply), ParseFailure)
    assert isinstance(Number().parse_reply(reply), ParseFailure)


def test_lone_surrogates_do_not_reach_the_files() -> None:
    parsed = Json(Vote).parse_reply('{"choice": "a\\ud800", "weight": 3}')
    assert isinstance(parsed, ParsedAnswer)
    parsed.value.choice.encode("utf-8")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Number(5, 1), "no number is from 5 to 1"),
        (Number(1.2, 1.8, integer=True), "no whole number is from 1.2 to 1.8"),
        (Number(1.2, 1.8), ""),
        (Number(1.2, 2, integer=True), ""),
        (Number(-1.5, -1, integer=True), ""),
        (Number(2, 2, integer=True), ""),
        (Number(0, math.inf, integer=True), ""),
        (Number(math.nan), "the bounds of a number are numbers or None"),
        (Number(1, "5"), "the bounds of a number are numbers or None"),  # type: ignore[arg-type]
        (Choice(["yes", " "]), "an option has no text"),
        (Choice(["yes", "\u200b"]), "an option has no text"),
    ],
)
def test_an_answer_that_no_reply_can_give_is_reported(
    answer: AnswerType[object], problem: str
) -> None:
    assert answer.configuration_error.startswith(problem) and bool(problem) == bool(
        answer.configuration_error
    )


@pytest.mark.parametrize("reply", ["", " \n", "\u200b", "\ufeff", " \u200b\u2060 "])
def test_a_reply_without_a_visible_character_is_empty(reply: str) -> None:
    parsed = Text().parse_reply(reply)
    assert isinstance(parsed, ParseFailure) and parsed.problem == "The reply was empty."
    visible = Text().parse_reply(f"{reply}Well.")
    assert isinstance(visible, ParsedAnswer) and visible.value.endswith("Well.")


class Initial(AnswerType[str]):
    """The minimum that a custom answer type defines."""

    kind = "initial"

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure:
        return ParsedAnswer(reply[0], "exact") if reply else ParseFailure("The reply was empty.")


def test_a_custom_answer_type_defines_its_kind_and_its_parser(tmp_path: Path) -> None:
    answers: list[object] = []

    async def protocol(session: folkmoot.Session[folkmoot.StudyConfig]) -> None:
        answers.append(
            await session.ask(folkmoot.Speaker("p1"), "Who are you?", answer_type=Initial())
        )

    study = folkmoot.Study("initials", "Initials", folkmoot.StudyConfig, protocol)
    run = folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda *_: "Ann"))
    assert answers == ["A"]
    (row,) = run.table("answers").iter_rows(named=True)
    assert (row["kind"], row["how"], row["options"]) == ("initial", "exact", None)


@pytest.mark.parametrize(
    ("answer", "is_closed", "is_short", "is_read"),
    [
        (Text(), False, False, False),
        (Choice(["Yes", "No"]), True, True, True),
        (Number(0, 9), True, True, True),
        (Initial(), False, False, True),
    ],
)
def test_properties_of_answer_types(
    answer: AnswerType[Any], is_closed: bool, is_short: bool, is_read: bool
) -> None:
    assert (answer.is_closed, answer.is_short, answer.is_read) == (is_closed, is_short, is_read)
    assert (
        answer.form_kind == answer.kind and answer.schema is None and answer.fallback_value is None
    )


def test_ways_out_are_defined_in_one_module() -> None:
    package = Path(folkmoot.__file__).parent
    constant_pattern = re.compile(r"^\w*WAYS_OUT\w* = ", re.MULTILINE)
    file_names = [
        path.name
        for path in package.rglob("*.py")
        if constant_pattern.search(path.read_text("utf-8"))
    ]
    assert file_names == ["answer_types.py"]


def test_later_lines_of_a_human_under_other_names_are_joined() -> None:
    """They are words of the human, and others must not read them as words of the named."""
    answer_type = Text(own_names=("Ann Lee",), other_names=("Ben Ray", "Ann Lee")).for_human()
    reply = "I agree.\n\n**Ben:** I do not.\nAnn: So it is.\n Ben Ray: Yes."
    parsed = answer_type.parse_reply(reply)
    joined = "I agree. **Ben:** I do not.\nAnn: So it is. Ben Ray: Yes."
    assert parsed == ParsedAnswer(joined, "exact")
    for unchanged in ("Ben: I hear you.\nAnd I agree.", "Words.\n\nCarl: words."):
        assert answer_type.parse_reply(unchanged) == ParsedAnswer(unchanged, "exact")
