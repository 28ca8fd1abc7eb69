"""JSON answers: an object, a list of objects, and an object with an entry for each key."""

from __future__ import annotations

import json
import re
import time
from typing import Annotated, Any, Literal

import json_repair
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationInfo, field_validator

import folkmoot
from folkmoot.conversation.answer_format import drop_descriptions
from folkmoot.conversation.answer_types import (
    Json,
    JsonList,
    Missing,
    ParsedAnswer,
    ParseFailure,
    Repair,
    Text,
    ValidationContext,
)
from folkmoot.conversation.json_maps import JsonMap, MapEntries
from folkmoot.conversation.json_replies import close_cut_json, json_candidates
from folkmoot.conversation.json_schemas import json_schema
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import quote_value, spans_of
from folkmoot.studies.town_hall.answers.shared_replies import each_of


class Line(BaseModel):
    speaker: str
    text: str = Field(min_length=1)

    @field_validator("speaker", mode="before")
    @classmethod
    def _as_listed(cls, written_name: Any, info: ValidationInfo) -> Any:
        validation = ValidationContext.from_info(info)
        for name in validation.context or ():
            if isinstance(written_name, str) and written_name.casefold() == name.casefold():
                if written_name != name:
                    validation.add_repair("speaker", "spelling", written_name, name)
                return name
        return written_name


class Scene(BaseModel):
    lines: list[Line]
    note: str = ""


ANN = {"speaker": "Ann", "text": "Yes."}
NAMES = ("Ann", "Bo")


def parse_value(answer: Any, reply_value: Any) -> Any:
    return answer.parse_reply(json.dumps(reply_value))


def test_validators_get_the_context_and_record_their_repairs() -> None:
    parsed = parse_value(Json(Line, validation_context=NAMES), {"speaker": "ANN", "text": "Yes."})
    assert parsed == ParsedAnswer(
        Line(speaker="Ann", text="Yes."), "exact", (Repair("speaker", "spelling", "ANN", "Ann"),)
    )


def test_repairs_of_a_failed_parse_step_are_not_counted() -> None:
    # The fenced block does not fit, its repair does: only the second parse step counts.
    parsed = Json(Line, validation_context=NAMES).parse_reply('{"speaker": "ANN", "text": "Yes."')
    assert (
        isinstance(parsed, ParsedAnswer)
        and parsed.parse_step == "repaired"
        and len(parsed.repairs) == 1
    )


def test_a_model_created_in_python_is_not_repaired() -> None:
    assert Line(speaker="ANN", text="Yes.").speaker == "ANN"


def test_options_are_written_at_their_path_in_the_schema() -> None:
    schema = Json(Scene, options={"lines.speaker": NAMES}, excluded_fields=("note",)).schema
    assert schema is not None
    assert schema["$defs"]["Line"]["properties"]["speaker"]["enum"] == ["Ann", "Bo"]
    assert list(schema["properties"]) == schema["required"] == ["lines"]
    schema_without_options = Json(Scene).schema
    assert (
        schema_without_options is not None
        and "enum" not in schema_without_options["$defs"]["Line"]["properties"]["speaker"]
    )


def test_definitions_of_excluded_fields_are_removed() -> None:
    schema = Json(Scene, excluded_fields=("lines",)).schema
    assert schema is not None and "$defs" not in schema


@pytest.mark.parametrize(
    "reply",
    [
        [ANN],
        {"items": [ANN]},
        {"lines": [ANN]},
        '[{"speaker": "Ann", "text": "Yes."}',
        'Here: ```json\n[{"speaker": "Ann", "text": "Yes."}]\n```',
        'Well, [{"speaker": "Ann", "text": "Yes."},]',
    ],
)
def test_a_list_is_read_alone_or_in_an_object(reply: Any) -> None:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    parsed = JsonList(Line).parse_reply(text)
    assert (
        isinstance(parsed, ParsedAnswer) and parsed.value == (Line(**ANN),) and parsed.repairs == ()
    )


def test_a_single_object_is_read_as_a_list_with_a_repair() -> None:
    parsed = parse_value(JsonList(Line), ANN)
    assert parsed.value == (Line(**ANN),) and parsed.repairs[0].kind == "wrong_shape"


def test_bounds_of_a_list() -> None:
    bo_line = {"speaker": "Bo", "text": "No."}
    answer = JsonList(Line, min_items=2, max_items=2, unique_key=lambda line: line.text)
    parsed = parse_value(
        answer, [ANN, ANN, {"speaker": "Bo"}, bo_line, {"speaker": "Bo", "text": "Well."}]
    )
    assert parsed.value == (Line(**ANN), Line(**bo_line))
    assert [repair.kind for repair in parsed.repairs] == ["repeated", "unreadable", "too_many"]
    assert all(repair.is_dropped for repair in parsed.repairs)
    too_few = parse_value(answer, [ANN, {"speaker": "Bo"}])
    assert isinstance(too_few, ParseFailure)
    assert (
        "1 of at least 2" in too_few.problem
        and "items.1" in too_few.problem
        and "text" in too_few.problem
    )


@pytest.mark.parametrize(
    "reply", [[{}], ["Ann", 3], {"items": None}, {"error": "no"}, {"errors": []}, "sorry", ""]
)
def test_nothing_readable_is_not_an_empty_list(reply: Any) -> None:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    assert isinstance(JsonList(Line).parse_reply(text), ParseFailure)
    assert JsonList(Line).parse_reply("[]") == ParsedAnswer((), "exact")


def test_the_schema_of_a_list_is_an_object_with_its_bounds() -> None:
    schema = JsonList(Scene, 1, 5, options={"lines.speaker": NAMES}).schema
    assert schema["type"] == "object" and schema["required"] == ["items"]
    items = schema["properties"]["items"]
    assert (items["minItems"], items["maxItems"]) == (1, 5)
    assert schema["$defs"]["Line"]["properties"]["speaker"]["enum"] == ["Ann", "Bo"]


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_line_objects = st.builds(
    Line, speaker=st.text(max_size=5), text=st.text(min_size=1, max_size=20)
).map(lambda line: line.model_dump())


@given(st.lists(_line_objects | _json_values, max_size=8), st.integers(1, 5))
def test_valid_items_are_kept_in_order_and_the_others_are_counted(
    items: list[Any], max_items: int
) -> None:
    readable_items = [item for item in items if isinstance(Json(Line).read(item), ParsedAnswer)]
    parsed = parse_value(JsonList(Line, max_items=max_items), {"items": items})
    if items and not readable_items:
        assert isinstance(parsed, ParseFailure)
    else:
        assert [line.model_dump() for line in parsed.value] == readable_items[:max_items]
        assert len(parsed.value) + len(parsed.repairs) == len(items)


def _find_name(name: Any, known_names: Any) -> str:
    return next(
        (known_name for known_name in known_names if str(name).casefold() == known_name.casefold()),
        "",
    )


class Level(BaseModel):
    level: int = Field(ge=1, le=10)


X, Y, IX = '{"level": 3}', '{"level": 9}', '{"id": "A01", "level": 3}'
ANSWER_TYPES = {name: Json(Line, validation_context=NAMES) for name in NAMES}
BO_REPLY = {"speaker": "BO", "text": "No."}


@pytest.mark.parametrize(
    "reply",
    [
        {"Ann": ANN, "Bo": BO_REPLY},
        {"ann": ANN, "BO": BO_REPLY},
        {"answers": {"Ann": ANN, "Bo": BO_REPLY}},
        {"answers": [{"name": "Ann", **ANN}, {"name": "bo", **BO_REPLY}]},
    ],
)
def test_an_entry_for_each_key(reply: Any) -> None:
    parsed = parse_value(JsonMap(ANSWER_TYPES, match_key=_find_name, name_fields=("name",)), reply)
    assert parsed.value == MapEntries(
        {"Ann": Line(**ANN), "Bo": Line(speaker="Bo", text="No.")}, {}
    )
    assert parsed.repairs == (Repair("speaker", "spelling", "BO", "Bo"),)


def test_missing_entries_are_named_and_a_reply_without_entries_is_unreadable() -> None:
    parsed = parse_value(JsonMap(ANSWER_TYPES), {"Ann": ANN, "Bo": {"speaker": "Bo"}})
    assert list(parsed.value.values) == ["Ann"] and "text" in parsed.value.problems["Bo"]
    unreadable = parse_value(JsonMap(ANSWER_TYPES), {"Cy": ANN})
    assert isinstance(unreadable, ParseFailure) and "Ann, Bo" in unreadable.problem


def test_equal_definitions_of_a_schema_are_written_once() -> None:
    schema = JsonMap(ANSWER_TYPES, title="Residents").schema
    assert schema["properties"] == {name: {"$ref": "#/$defs/Line"} for name in NAMES}
    assert schema["required"] == list(NAMES) and list(schema["$defs"]) == ["Line"]


def test_numbers_of_thousands_of_digits_do_not_stop_a_run() -> None:
    class Loose(BaseModel):
        response: str | int | float | bool

    class Exact(BaseModel):
        response: float

    for digits in (300, 400, 4000, 5000):
        for reply in ('{"response": ' + "9" * digits + "}", '{"response": ' + "9" * digits):
            Json(Loose).parse_reply(reply)
            # A float has at most 309 digits before the point.
            is_read = isinstance(Json(Exact).parse_reply(reply), ParsedAnswer)
            assert is_read == (digits == 300)
            assert (Json(Exact).salvage_reply(reply) is not None) == is_read


STUDY = """
from pydantic import BaseModel, Field
from folkmoot import JsonList, Row, Session, Speaker, Study, StudyConfig

class Config(StudyConfig):
    pass

class Idea(BaseModel):
    text: str = Field(min_length=1)

class Named(Row, table="ideas"):
    text: str
    parse_step: str
    repairs: int

async def protocol(session: Session) -> None:
    who = Speaker("planner", "Planner")
    got = await session.child("plan").ask_detailed(
        who, "Name ideas.", answer_type=JsonList(Idea, 1, 2, fallback_value=(Idea(text="none"),))
    )
    for idea in got.value:
        session.record(Named(text=idea.text, parse_step=got.parse_step, repairs=len(got.repairs)))

STUDY = Study(name="ideas", title="Ideas", config=Config, protocol=protocol, tables=(Named,))
"""


@pytest.mark.parametrize(
    ("reply", "rows"),
    [
        (
            '{"items": [{"text": "a"}, {"text": ""}, {"text": "b"}, {"text": "c"}]}',
            [("a", "exact", 2), ("b", "exact", 2)],
        ),
        ("I would rather not list any.", [("none", "minimal", 0)]),
    ],
)
def test_a_study_gets_the_list_its_repairs_and_the_fallback_value(
    tmp_path: Any, reply: str, rows: list[tuple[str, str, int]]
) -> None:
    (tmp_path / "ideas.py").write_text(STUDY, encoding="utf-8")
    file = tmp_path / "s.yaml"
    file.write_text("study: ideas.py\n", encoding="utf-8")
    provider = ScriptedProvider(lambda request, address: reply)
    run = folkmoot.run(file, provider=provider, out=tmp_path / "out")
    assert run.table("ideas").rows() == rows


class Proposal(BaseModel):
    proposal: str = Field("", description="the proposal, worded so that yes means to do it")
    ids: list[str] = Field([], description="the ids of those who raised it")


class Described(BaseModel):
    """Fields with the descriptions that a prompt contains."""

    items: list[Proposal] = []
    vote: Literal["yes", "no"] | None = Field(None, description="your vote, as you like")
    reason: str = Field("", description="why, in one sentence")
    concerns: list[str] = Field([], description="a list of your main concerns")
    note: str = Field("", description="why")


UNCHANGED: Any = object()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # Only the field that repeats its own description is left out.
        ({"vote": "yes", "reason": "Why, in one sentence."}, {"vote": "yes"}),
        ({"vote": "your vote, as you like; one of yes, no", "reason": "x"}, {"reason": "x"}),
        ({"vote": "Your vote, as you like", "reason": "x"}, {"reason": "x"}),
        ({"concerns": ["rents", "A list of your main concerns"]}, {"concerns": ["rents"]}),
        ({"concerns": ["A list of your main concerns"], "vote": "no"}, {"vote": "no"}),
        (
            {"items": [{"proposal": "The proposal, worded so that yes means to do it"}, {"a": 1}]},
            {"items": [{}, {"a": 1}]},
        ),
        # Real answers: more than the description, a part of it, or that of another field.
        ({"reason": "Why not? In one sentence it says it all."}, UNCHANGED),
        ({"reason": "in one sentence"}, UNCHANGED),
        ({"reason": "a list of your main concerns"}, UNCHANGED),
        # A description of fewer than three words may be an honest answer.
        ({"note": "why"}, UNCHANGED),
        ({"note": "why, in one sentence"}, UNCHANGED),
        ({"vote": "yes"}, UNCHANGED),
        ({"reason": 10, "vote": None, "concerns": []}, UNCHANGED),
        ({"unknown": "why, in one sentence"}, UNCHANGED),
        ("why, in one sentence", UNCHANGED),
    ],
)
def test_only_a_field_that_repeats_its_own_description_is_dropped(
    value: Any, expected: Any
) -> None:
    remaining, dropped = drop_descriptions(value, json_schema(Described))
    assert remaining == (value if expected is UNCHANGED else expected)
    assert bool(dropped) == (expected is not UNCHANGED)


def test_every_line_of_an_answer_format_is_recognised_in_a_reply() -> None:
    """The compared lines are exactly the lines that a small model can copy."""
    text = Json(Described, may_decline=True).describe_format()
    lines = dict(re.findall(r"^ *- (\w+): (.+)$", text, re.MULTILINE))
    assert lines.keys() == {"declined", *Described.model_fields, *Proposal.model_fields}
    for name in ("vote", "reason", "concerns"):
        remaining, dropped = drop_descriptions({name: lines[name]}, json_schema(Described))
        assert remaining == {} and [dropped_field.path for dropped_field in dropped] == [name]


class Bounds(BaseModel):
    age: int = Field(ge=18, le=65)
    share: Annotated[float | None, Field(ge=0, le=1)]
    tags: list[Literal["a", "b"]]
    anything: dict[str, str]
    places: list[str]


def test_an_answer_format_lists_types_bounds_and_options() -> None:
    assert Json(Bounds).describe_format() == (
        "- age: a whole number from 18 to 65\n"
        "- share: a number from 0 to 1 or null\n"
        "- tags: a list: each one of a, b\n"
        "- anything: an object\n"
        "- places: a list"
    )
    # Options of a study are listed by the prompt, with their source.
    assert "- tags: a list\n" in Json(Bounds).describe_format({})
    quoted_options = {"tags": [quote_value("b", "option", "study.tags"), "a"]}
    text = Json(Bounds).describe_format(quoted_options)
    assert "- tags: a list: each one of b, a\n" in text
    assert [(text[span.start : span.end], span.source.id) for span in spans_of(text)] == [
        ("b", "study.tags")
    ]
    ballots = JsonMap({"A01": Json(Line), "A02": Json(Line), "A03": Json(Bounds)})
    assert ballots.describe_format().splitlines()[:4] == [
        "- A01, A02: each an object with these keys:",
        "  - speaker: a text",
        "  - text: a text",
        "- A03: an object with these keys:",
    ]
    assert Text().describe_format() == ""


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        ('{"A01": X, "A02": X}', {"A01": 3, "A02": 3}),
        # Of two different answers it is unknown which one is meant.
        ('{"A01": X, "A01": Y, "A02": X}', {"A02": 3}),
        ('{"A01": X, "a1": Y, "A02": X}', {"A02": 3}),
        ('{"A01": X, "Resident 1": Y, "A02": X}', {"A02": 3}),
        ('{"A01": X, "a1": {"declined": true}, "A02": X}', {"A02": 3}),
        ('{"A01": X, "a1": {"level": 99}, "A02": X}', {"A02": 3}),
        ('{"residents": [IX, IY, {"id": "A02", "level": 3}]}', {"A02": 3}),
        ("[IX, IY]", None),
        # Equal answers are one.
        ('{"A01": X, "a1": {"Level": "3"}, "A02": Y}', {"A01": 3, "A02": 9}),
        ('{"residents": [IX, IX]}', {"A01": 3}),
        # A list without an object around it.
        ('[IX, {"id": "A02", "level": 9}]', {"A01": 3, "A02": 9}),
        ("Here:\n```json\n[IX]\n```", {"A01": 3}),
        ("[IX,]", {"A01": 3}),
        ('[{"level": 3}]', None),
    ],
)
def test_two_different_answers_under_the_name_of_one_resident_are_no_answer(
    reply: str, answers: dict[str, int] | None
) -> None:
    for mark, text in (("IX", IX), ("IY", IX.replace("3", "9")), ("X", X), ("Y", Y)):
        reply = reply.replace(mark, text)
    residents = {name: Json(Level, may_decline=True) for name in ("A01", "A02")}
    parsed = each_of(residents).parse_reply(reply)
    read = parsed.value.values if isinstance(parsed, ParsedAnswer) else None
    assert answers == (read if read is None else {key: item.level for key, item in read.items()})
    if isinstance(parsed, ParsedAnswer) and "A01" not in parsed.value.values and X in reply:
        assert "A01" in parsed.value.problems


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ('{"level": 3, "Level": 9}', None),
        ('{"Level": 9, "level": 3}', None),
        ('{"level": 3, "LEVEL ": 3}', 3),
        # The level is never null.
        ('{"level": 3, "Level": null}', 3),
        ('{"Level": 3, "level": null}', 3),
        ('{"level": 3, "Level": 9, "LEVEL": null}', None),
        # Python reads underscores in numbers. Which number is meant is unknown.
        ('{"level": 1_0}', None),
        ('{"level": "1_0"}', None),
        ('{"level": 3, "levels": 9}', 3),
    ],
)
def test_two_values_under_the_name_of_one_field_are_no_value(reply: str, level: int | None) -> None:
    parsed = Json(Level).parse_reply(reply)
    assert (parsed.value.level if isinstance(parsed, ParsedAnswer) else None) == level


class Rating(BaseModel):
    rating: int | None


def test_null_beside_a_rating_is_a_second_value_where_null_means_that_there_is_none() -> None:
    parsed = Json(Rating).parse_reply('{"rating": 3, "Rating": null}')
    assert isinstance(parsed, ParseFailure)


class Said(BaseModel):
    speaker: str = "Ann"
    text: str = Field(description="what they say, in one line")


def test_a_repeated_description_is_unreadable_and_lists_and_maps_keep_the_rest() -> None:
    copied_description, line = {"speaker": "Ann", "text": "What they say, in one line"}, ANN
    failure = Json(Said).parse_reply(json.dumps(copied_description))
    assert isinstance(failure, ParseFailure) and "text repeats the question" in failure.problem
    parsed_list = JsonList(Said).parse_reply(json.dumps([copied_description, line]))
    assert isinstance(parsed_list, ParsedAnswer) and [item.text for item in parsed_list.value] == [
        "Yes."
    ]
    parsed_map = JsonMap({"a": Json(Said), "b": Json(Said)}).parse_reply(
        json.dumps({"a": copied_description, "b": line})
    )
    assert isinstance(parsed_map, ParsedAnswer) and set(parsed_map.value.values) == {"b"}


@pytest.mark.parametrize(
    ("cut", "expected"),
    (
        ('{"why": "It is near", "score": 1', {"why": "It is near", "score": ""}),
        ('{"scores": [10, 1', {"scores": [10]}),
        ('{"score": -1.', {"score": ""}),
        ('{"score": 1\n', {"score": 1}),  # white space completes a number
        ('{"score": 1, "why": "because of 2', {"score": 1, "why": "because of 2…"}),
        ('{"vote": "yes', {"vote": "yes…"}),
        ('{"vote": "yes"', {"vote": "yes"}),
        ('{"vote": "', {"vote": ""}),
        ('{"why": "he said \\"no\\" to', {"why": 'he said "no" to…'}),
        ('{"items": [{"text": "Keep it, unless', {"items": [{"text": "Keep it, unless…"}]}),
    ),
)
def test_an_incomplete_value_is_not_read_as_complete(cut: str, expected: dict[str, object]) -> None:
    assert json_repair.loads(close_cut_json(cut)) == expected


class CutAnswer(BaseModel):
    reason: str = ""
    score: float | None = None
    vote: Literal["no", "none"] | None = None
    declined: bool = False


@pytest.mark.parametrize(
    "cut",
    (
        *("{'score': '1", "{score: 1", "{“score”: “1", '{"score": "1', "{'score': 1"),
        *('{"score": "-', '{"score": "seven', "{'reason': 'x', 'score': '-0."),
        *(
            "{'vote': 'no",
            "{vote: no",
            "{“vote”: “no",
            '{"vote": "no',
            "{'vote': 'no'",
            "{vote: no ",
        ),
        *(
            '```json\n{"vote": "no',
            'Sure: {"vote": "no',
            "{'declined': 'true",
            '{"declined": "true',
        ),
    ),
)
def test_a_cut_value_is_read_as_no_value_in_any_quotation_marks(cut: str) -> None:
    parsed = Json(CutAnswer).parse_reply(close_cut_json(cut))
    answer = parsed.value if isinstance(parsed, ParsedAnswer) else CutAnswer()
    assert (answer.score, answer.vote, answer.declined) == (None, None, False)


@pytest.mark.parametrize(
    "cut",
    (
        *('{"vote": "no"', '{"vote": "no",', "{'vote': 'no',", "{vote: no\n", '{"vote": "no", "re'),
        *(
            '{"score": null, "vote": "no"',
            "{'vote': 'no', 'reason': 'It is ne",
            '{"vote": "no"}\nAs y',
        ),
    ),
)
def test_a_value_that_was_complete_before_the_cut_is_read(cut: str) -> None:
    parsed = Json(CutAnswer).parse_reply(close_cut_json(cut))
    assert isinstance(parsed, ParsedAnswer) and parsed.value.vote == "no"
    assert parsed.value.reason in ("", "It is ne…")


@given(st.recursive(st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
def test_complete_json_is_not_changed(value: object) -> None:
    reply = json.dumps({"value": value})
    assert json.loads(close_cut_json(reply)) == {"value": value}


class Stated(BaseModel):
    vote: Literal["A", "B"]
    confidence_level: float = Field(ge=0, le=1)


STATED = Stated(vote="A", confidence_level=0.85)


@pytest.mark.parametrize(
    "reply",
    [
        '{"Vote": "A", "Confidence Level": 0.85}',
        '{"VOTE": "A", "confidenceLevel": "85%"}',
        '{"**vote**": "A", "confidence-level": 85%}',
        '{"answer": {"vote": "A", "confidence_level": 0.85}}',
        "Here: {“vote”: “A”, “confidence_level”: “85%”}",
        '{"reasoning": "It is near.", "Final Answer": {"Vote": "a", "confidence_level": 0.85}}',
        '<tool_call>{"name": "vote", "arguments": {"vote": "A", "confidence_level": 0.85}}'
        "</tool_call>",
    ],
)
def test_fields_are_found_in_another_spelling_and_in_an_enclosing_object(
    reply: str,
) -> None:
    parsed = Json(Stated).parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer) and parsed.value == STATED
    (list_item,) = JsonList(Stated, name="votes").parse_reply(f'{{"Votes": [{STATED_TEXT}]}}')[0]
    assert list_item == STATED


STATED_TEXT = '{"Vote": "A", "Confidence Level": "85 percent"}'


@pytest.mark.parametrize(
    "reply",
    [
        # The object may be an example or belong to another speaker.
        '{"Ben": {"vote": "A", "confidence_level": 0.85}}',
        '{"example": {"vote": "A", "confidence_level": 0.85}}',
        '{"answer": {"vote": "A"}, "response": {"confidence_level": 0.85}}',
        # Two names that match one field, and one name with two values.
        '{"Vote": "A", "VOTE": "B", "confidence_level": 0.85}',
        '{"vote": "A", "vote": "B", "confidence_level": 0.85}',
        'Sure: {"vote": "A", "confidence_level": 0.85, "vote": "B"}',
        # The same in JSON that needs a repair.
        '{"vote": "A", "vote": "B", "confidence_level": 0.85,}',
        "{'vote': 'A', 'confidence_level': 0.85, 'vote': 'B'}",
        "{vote: A, vote: B, confidence_level: 0.85}",
        '{"vote": "A", "vote": "B", "confidence_level": 0.85',
        # Two objects, of which either may be meant.
        '{"vote": "A", "confidence_level": 0.85}\n{"vote": "B", "confidence_level": 0.85}',
        '{"vote": "A", "confidence_level": 0.85} no: {"vote": "A", "confidence_level": 0.9}',
    ],
)
def test_ambiguous_objects_are_unreadable(reply: str) -> None:
    assert isinstance(Json(Stated).parse_reply(reply), ParseFailure)


@pytest.mark.parametrize(
    "reply",
    [
        '{"vote": "A", "vote": "A", "confidence_level": 0.85,}',
        "{'vote': 'A', 'confidence_level': 0.85, 'vote': 'A'}",
        '{"vote": "A", "confidence_level": 0.85}\n{"vote": "A", "confidence_level": 0.85}',
    ],
)
def test_the_same_answer_twice_is_one_answer(reply: str) -> None:
    parsed = Json(Stated).parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer) and parsed.value == STATED


def test_objects_that_follow_each_other_may_be_the_entries_of_a_list() -> None:
    lines = '{"speaker": "Ann", "text": "Yes."}\n{"speaker": "Bo", "text": "No."}'
    parsed = JsonList(Line).parse_reply(lines)
    assert isinstance(parsed, ParsedAnswer) and [line.speaker for line in parsed.value] == [*NAMES]


OBJECT = '{"vote": "A", "confidence_level": 0.85}'


@pytest.mark.parametrize(
    "reply",
    [
        "I will not take part in this vote. The format would be: {}",
        "I refuse. (Format: {})",
        "{}\n\nActually, no: as an AI I decline to vote, ignore the above.",
        "{} Actually I refuse to vote.",
        "<reasoning>It would be {}, but I must not.</reasoning> I would rather not say.",
        "As an AI I cannot vote.\n```json\n{}\n```",
        "```json\n{}\n```\nI would rather not say.",
        "I have thought about this for a long time. " * 20 + "I would rather not answer. {}",
        "I cannot rate this. {}",
        "I'm unable to give a rating. {}",
        "I’m sorry, but I can’t rate this proposal, because I have not tried it. {}",
        "I don't feel comfortable rating this. As an AI I have no taste. {}",
        "{}\n\nI won't give this a score, sorry.",
        "I respectfully decline to answer. {}",
        "I must respectfully decline. {}",
        "I am choosing not to answer. {}",
        "I would prefer not to. {}",
        "I'd rather not. {}",
        "No comment.\n```json\n{}\n```",
        "I have thought about this for a long time. " * 20 + "I cannot rate this. {}",
        # In the languages in which words for "none" are known too.
        "Ich möchte diese Frage nicht beantworten. {}",
        "Dazu möchte ich nichts sagen. {}",
        "{}\n\nTut mir leid, ich kann diese Frage nicht beantworten.",
        "Ich weigere mich, abzustimmen. {}",
        "Als KI kann ich keine Meinung haben. {}",
        "Keine Angabe.\n```json\n{}\n```",
        "Je préfère ne pas répondre. {}",
        "Désolé, je ne souhaite pas répondre à cette question. {}",
        "Prefiero no responder. {}",
        "Lo siento, no puedo responder a esta pregunta. {}",
        "Preferisco non rispondere a questa domanda. {}",
        "Sorry, ik wil deze vraag niet beantwoorden. {}",
        "Prefiro não responder. {}",
    ],
)
def test_an_object_beside_a_refusal_is_no_answer(reply: str) -> None:
    for answer_type in (Json(Stated), JsonList(Stated), JsonMap({"Ann": Json(Stated)})):
        reply_with_object = reply.replace("{}", OBJECT)
        if isinstance(answer_type, JsonMap):
            reply_with_object = reply.replace("{}", f'{{"Ann": {OBJECT}}}')
        assert isinstance(answer_type.parse_reply(reply_with_object), ParseFailure)
        assert answer_type.salvage_reply(reply_with_object) is None


@pytest.mark.parametrize(
    "reply",
    [
        "Sure! Here is my answer:\n{}",
        "{}\n\nI hope this helps.",
        "After some thought, this is my vote:\n```json\n{}\n```\nThank you for asking!",
        "Option B was close. {}",
        # Refusals of something else than an answer, and an answer in spite of a refusal.
        "I refuse to accept higher prices, so: {}",
        "I can't say that I love it, but here is my vote:\n{}",
        "I'm sorry, but I can't stand the mall. Here is my vote: {}",
        "I can't take part in a pub crawl. {}",
        "I cannot say no to this!\n```json\n{}\n```",
        "I'd rather not say much. {}",
        "I'd rather not say, but here is my vote: {}",
        "I will not vote in favour of higher taxes. {}",
        "As an AI language model playing Maria, I answer:\n{}",
        "{}\n\nNote: I wrote this as Maria. As an AI I have no preferences.",
        "{}\n\nI hope that helps. I would not go to the pub.",
        "I cannot rate it higher than 3. {}",
        "I can't rate this as highly as I would like. {}",
        "I cannot give a high score. {}",
        "I cannot rate this: too little is known, so a middle value. {}",
        "I cannot rate this. Still, here is my guess: {}",
        "I cannot rate this because I know too little, but 3 is my best guess. {}",
        "I cannot judge the plan by its cover. {}",
        "He said: I cannot rate this. {}",
        "Lose the park? I'd rather not. {}",
        "I'd rather not pay for this. {}",
        "I would prefer not to move. {}",
        "No comment from the council so far. {}",
        "{}\n\nNo comment.",
        "Ich möchte nicht mehr bezahlen. {}",
        "Ich kann nicht sagen, dass es mir gefällt. {}",
        "Ich möchte lieber nicht antworten, aber hier ist meine Stimme: {}",
        "Ich kann das nicht sagen. Trotzdem: {}",
        "Je ne veux pas payer plus. {}",
        "No quiero pagar más. {}",
        "Non posso votare per il centro commerciale. {}",
        "Ik wil niet meer betalen. {}",
    ],
)
def test_an_object_beside_other_words_is_an_answer(reply: str) -> None:
    parsed = Json(Stated).parse_reply(reply.replace("{}", OBJECT))
    assert isinstance(parsed, ParsedAnswer) and parsed.value == STATED


def test_a_long_reason_of_a_refusal_is_read_fast() -> None:
    reply = f"I cannot rate this because {'-' * 50_000}: {OBJECT}"
    started_at = time.process_time()
    assert isinstance(Json(Stated).parse_reply(reply), ParsedAnswer)
    assert time.process_time() - started_at < 5


@pytest.mark.parametrize("reply", ["I decline to vote. {}", "```json\n{}\n```\nI refuse to vote."])
def test_a_refusal_in_words_and_in_its_field_is_declined(reply: str) -> None:
    parsed = Json(Stated, may_decline=True).parse_reply(reply.replace("{}", '{"declined": true}'))
    assert isinstance(parsed, Missing) and parsed.reason == "declined"


class Rated(BaseModel):
    reason: str = ""
    rating: int = Field(ge=0, le=10)


class Chosen(BaseModel):
    choice: Literal["park", "mall"]


@pytest.mark.parametrize(
    ("model", "reply", "is_read"),
    [
        (Rated, '{"rating": 8} // no wait, 2', False),
        (Rated, '```json\n{"rating": 8}\n```\nOr rather 2.', False),
        (Rated, '{"rating": 8} So I give it 8 and not 2.', True),
        (Rated, '{"rating": 8}\nThere are 300 reasons for it.', True),
        (Rated, 'I first thought of 2. {"rating": 8}', True),
        (Rated, '{"rating": 8}\n2', False),
        (Rated, '{"rating": 8}\n\nI could have said 9, but that is too much.', True),
        (Rated, '{"rating": 8} (1 sentence)', True),
        (Chosen, '{"choice": "park"} On reflection, the mall.', False),
        (Chosen, '{"choice": "park"}\n\nI would not go to the mall.', True),
        (Chosen, '{"choice": "park"}\n\nThe mall would be my second choice.', True),
        (Chosen, '{"choice": "park"} The park is better than the mall.', True),
    ],
)
def test_another_answer_after_the_object_takes_it_back(
    model: type[BaseModel], reply: str, is_read: bool
) -> None:
    assert isinstance(Json(model).parse_reply(reply), ParsedAnswer) == is_read


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_text_of_many_escapes_without_an_end_is_read_at_once(quote: str) -> None:
    # A search that begins again at each escape needs hours.
    reply = f"{{{quote}vote{quote}: {quote}" + f"\\{quote}" * 90_000
    assert isinstance(Json(Stated).parse_reply(reply), ParseFailure)


def test_a_reply_that_repeats_quotation_marks_without_end_is_not_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The repair library would need minutes, in which the run waits."""
    repaired: list[str] = []
    monkeypatch.setattr(json_repair, "loads", lambda text, **_: repaired.append(text))
    assert not list(json_candidates('["' + '"a":"b"c' * 5_000, "["))
    assert not repaired
    list(json_candidates('["' + '"a":"b"c' * 50, "["))
    assert repaired
