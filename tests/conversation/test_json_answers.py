"""JSON answers: an object, a list of objects, an object with an entry for each key."""

from __future__ import annotations

import json
import re
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
    JsonMap,
    MapEntries,
    ParsedAnswer,
    ParseFailure,
    Repair,
    Text,
    ValidationContext,
)
from folkmoot.conversation.json_replies import close_cut_json
from folkmoot.conversation.json_schemas import json_schema
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import quote_value, spans_of


class Line(BaseModel):
    speaker: str
    text: str = Field(min_length=1)

    @field_validator("speaker", mode="before")
    @classmethod
    def _as_listed(cls, said: Any, info: ValidationInfo) -> Any:
        reading = ValidationContext.from_info(info)
        for name in reading.context or ():
            if isinstance(said, str) and said.casefold() == name.casefold():
                if said != name:
                    reading.add_repair("speaker", "spelling", said, name)
                return name
        return said


class Scene(BaseModel):
    lines: list[Line]
    note: str = ""


ANN = {"speaker": "Ann", "text": "Yes."}
NAMES = ("Ann", "Bo")


def read(answer: Any, value: Any) -> Any:
    return answer.parse_reply(json.dumps(value))


def test_validators_know_what_the_answer_is_about_and_say_what_they_put_right() -> None:
    got = read(Json(Line, validation_context=NAMES), {"speaker": "ANN", "text": "Yes."})
    assert got == ParsedAnswer(
        Line(speaker="Ann", text="Yes."), "exact", (Repair("speaker", "spelling", "ANN", "Ann"),)
    )


def test_repairs_of_a_reading_that_failed_are_not_counted_twice() -> None:
    # The fenced block does not fit, the repair of it does: only the second reading counts.
    got = Json(Line, validation_context=NAMES).parse_reply('{"speaker": "ANN", "text": "Yes."')
    assert isinstance(got, ParsedAnswer) and got.parse_step == "repaired" and len(got.repairs) == 1


def test_a_model_made_in_python_needs_no_reading() -> None:
    assert Line(speaker="ANN", text="Yes.").speaker == "ANN"


def test_options_stand_in_the_schema_wherever_their_path_leads() -> None:
    schema = Json(Scene, options={"lines.speaker": NAMES}, excluded_fields=("note",)).schema
    assert schema is not None
    assert schema["$defs"]["Line"]["properties"]["speaker"]["enum"] == ["Ann", "Bo"]
    assert list(schema["properties"]) == schema["required"] == ["lines"]
    plain = Json(Scene).schema
    assert plain is not None and "enum" not in plain["$defs"]["Line"]["properties"]["speaker"]


def test_fields_left_out_take_their_definitions_with_them() -> None:
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
def test_a_list_is_read_bare_or_in_an_object(reply: Any) -> None:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    got = JsonList(Line).parse_reply(text)
    assert isinstance(got, ParsedAnswer) and got.value == (Line(**ANN),) and got.repairs == ()


def test_a_single_object_counts_as_a_list_and_is_noted() -> None:
    got = read(JsonList(Line), ANN)
    assert got.value == (Line(**ANN),) and got.repairs[0].kind == "wrong_shape"


def test_bounds_of_a_list() -> None:
    bo = {"speaker": "Bo", "text": "No."}
    answer = JsonList(Line, min_items=2, max_items=2, unique_key=lambda line: line.text)
    got = read(answer, [ANN, ANN, {"speaker": "Bo"}, bo, {"speaker": "Bo", "text": "Well."}])
    assert got.value == (Line(**ANN), Line(**bo))
    assert [r.kind for r in got.repairs] == ["repeated", "unreadable", "too_many"]
    assert all(r.is_dropped for r in got.repairs)
    few = read(answer, [ANN, {"speaker": "Bo"}])
    assert isinstance(few, ParseFailure)
    assert "1 of at least 2" in few.problem and "items.1" in few.problem and "text" in few.problem


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


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_lines = st.builds(Line, speaker=st.text(max_size=5), text=st.text(min_size=1, max_size=20)).map(
    lambda line: line.model_dump()
)


@given(st.lists(_lines | _json, max_size=8), st.integers(1, 5))
def test_what_fits_is_kept_in_order_and_everything_else_is_counted(
    items: list[Any], most: int
) -> None:
    good = [i for i in items if isinstance(Json(Line).read(i), ParsedAnswer)]
    got = read(JsonList(Line, max_items=most), {"items": items})
    if items and not good:
        assert isinstance(got, ParseFailure)
    else:
        assert [line.model_dump() for line in got.value] == good[:most]
        assert len(got.value) + len(got.repairs) == len(items)


def _find(said: Any, keys: Any) -> str:
    return next((k for k in keys if str(said).casefold() == k.casefold()), "")


PARTS = {name: Json(Line, validation_context=NAMES) for name in NAMES}
BO = {"speaker": "BO", "text": "No."}


@pytest.mark.parametrize(
    "reply",
    [
        {"Ann": ANN, "Bo": BO},
        {"ann": ANN, "BO": BO},
        {"answers": {"Ann": ANN, "Bo": BO}},
        {"answers": [{"name": "Ann", **ANN}, {"name": "bo", **BO}]},
    ],
)
def test_an_entry_for_each_key(reply: Any) -> None:
    got = read(JsonMap(PARTS, match_key=_find, name_fields=("name",)), reply)
    assert got.value == MapEntries({"Ann": Line(**ANN), "Bo": Line(speaker="Bo", text="No.")}, {})
    assert got.repairs == (Repair("speaker", "spelling", "BO", "Bo"),)


def test_entries_that_are_not_there_are_named_and_an_empty_reply_is_unreadable() -> None:
    got = read(JsonMap(PARTS), {"Ann": ANN, "Bo": {"speaker": "Bo"}})
    assert list(got.value.values) == ["Ann"] and "text" in got.value.problems["Bo"]
    none = read(JsonMap(PARTS), {"Cy": ANN})
    assert isinstance(none, ParseFailure) and "Ann, Bo" in none.problem


def test_equal_parts_of_a_schema_are_written_once() -> None:
    schema = JsonMap(PARTS, title="Residents").schema
    assert schema["properties"] == {n: {"$ref": "#/$defs/Line"} for n in NAMES}
    assert schema["required"] == list(NAMES) and list(schema["$defs"]) == ["Line"]


def test_numbers_of_thousands_of_digits_do_not_stop_a_run() -> None:
    class Loose(BaseModel):
        response: str | int | float | bool

    class Exact(BaseModel):
        response: float

    for digits in (300, 400, 4000, 5000):
        for reply in ('{"response": ' + "9" * digits + "}", '{"response": ' + "9" * digits):
            Json(Loose).parse_reply(reply)
            # Floats end at 309 digits.
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
def test_a_study_gets_the_list_the_repairs_and_the_minimal_structure(
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
    """Fields with the descriptions that a prompt gives of them."""

    items: list[Proposal] = []
    vote: Literal["yes", "no"] | None = Field(None, description="your vote, as you like")
    reason: str = Field("", description="why, in one sentence")
    concerns: list[str] = Field([], description="a list of your main concerns")
    note: str = Field("", description="why")


EMPTY: Any = object()


@pytest.mark.parametrize(
    ("value", "kept"),
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
        # What somebody says: more than the sentence, a part of it, or another field's sentence.
        ({"reason": "Why not? In one sentence it says it all."}, EMPTY),
        ({"reason": "in one sentence"}, EMPTY),
        ({"reason": "a list of your main concerns"}, EMPTY),
        # A description of fewer than three words may be an honest answer.
        ({"note": "why"}, EMPTY),
        ({"note": "why, in one sentence"}, EMPTY),
        ({"vote": "yes"}, EMPTY),
        ({"reason": 10, "vote": None, "concerns": []}, EMPTY),
        ({"unknown": "why, in one sentence"}, EMPTY),
        ("why, in one sentence", EMPTY),
    ],
)
def test_a_field_that_gives_its_own_description_back_is_left_out_alone(
    value: Any, kept: Any
) -> None:
    found, dropped = drop_descriptions(value, json_schema(Described))
    assert found == (value if kept is EMPTY else kept)
    assert bool(dropped) == (kept is not EMPTY)


def test_every_line_of_an_answer_format_is_recognised_in_a_reply() -> None:
    """What a small model can copy is exactly what is compared."""
    text = Json(Described, may_decline=True).describe_format()
    lines = dict(re.findall(r"^ *- (\w+): (.+)$", text, re.MULTILINE))
    assert lines.keys() == {"declined", *Described.model_fields, *Proposal.model_fields}
    for name in ("vote", "reason", "concerns"):
        kept, dropped = drop_descriptions({name: lines[name]}, json_schema(Described))
        assert kept == {} and [d.path for d in dropped] == [name]


class Bounds(BaseModel):
    age: int = Field(ge=18, le=65)
    share: Annotated[float | None, Field(ge=0, le=1)]
    tags: list[Literal["a", "b"]]
    anything: dict[str, str]
    places: list[str]


def test_an_answer_format_says_types_bounds_and_closed_values() -> None:
    assert Json(Bounds).describe_format() == (
        "- age: a whole number from 18 to 65\n"
        "- share: a number from 0 to 1 or null\n"
        "- tags: a list: each one of a, b\n"
        "- anything: an object\n"
        "- places: a list"
    )
    # Options that somebody has written are listed by the prompt, with their source.
    assert "- tags: a list\n" in Json(Bounds).describe_format({})
    quoted = {"tags": [quote_value("b", "option", "study.tags"), "a"]}
    text = Json(Bounds).describe_format(quoted)
    assert "- tags: a list: each one of b, a\n" in text
    assert [(text[s.start : s.end], s.source.id) for s in spans_of(text)] == [("b", "study.tags")]
    ballots = JsonMap({"A01": Json(Line), "A02": Json(Line), "A03": Json(Bounds)})
    assert ballots.describe_format().splitlines()[:4] == [
        "- A01, A02: each an object with these keys:",
        "  - speaker: a text",
        "  - text: a text",
        "- A03: an object with these keys:",
    ]
    assert Text().describe_format() == ""


class Said(BaseModel):
    speaker: str = "Ann"
    text: str = Field(description="what they say, in one line")


def test_answers_without_the_field_are_asked_for_again_and_lists_and_maps_keep_the_rest() -> None:
    echo, said = {"speaker": "Ann", "text": "What they say, in one line"}, ANN
    one = Json(Said).parse_reply(json.dumps(echo))
    assert isinstance(one, ParseFailure) and "text repeats the question" in one.problem
    several = JsonList(Said).parse_reply(json.dumps([echo, said]))
    assert isinstance(several, ParsedAnswer) and [x.text for x in several.value] == ["Yes."]
    read = JsonMap({"a": Json(Said), "b": Json(Said)}).parse_reply(
        json.dumps({"a": echo, "b": said})
    )
    assert isinstance(read, ParsedAnswer) and set(read.value.values) == {"b"}


@pytest.mark.parametrize(
    ("cut", "read"),
    (
        ('{"why": "It is near", "score": 1', {"why": "It is near", "score": ""}),
        ('{"scores": [10, 1', {"scores": [10]}),
        ('{"score": -1.', {"score": ""}),
        ('{"score": 1\n', {"score": 1}),  # white space ends a number
        ('{"score": 1, "why": "because of 2', {"score": 1, "why": "because of 2…"}),
        ('{"vote": "yes', {"vote": "yes…"}),
        ('{"vote": "yes"', {"vote": "yes"}),
        ('{"vote": "', {"vote": ""}),
        ('{"why": "he said \\"no\\" to', {"why": 'he said "no" to…'}),
        ('{"items": [{"text": "Keep it, unless', {"items": [{"text": "Keep it, unless…"}]}),
    ),
)
def test_the_beginning_of_a_value_that_was_cut_is_not_the_value(
    cut: str, read: dict[str, object]
) -> None:
    assert json_repair.loads(close_cut_json(cut)) == read


@given(st.recursive(st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
def test_what_was_not_cut_is_left_as_it_is(value: object) -> None:
    whole = json.dumps({"value": value})
    assert json.loads(close_cut_json(whole)) == {"value": value}


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
def test_fields_are_found_under_names_in_another_spelling_and_in_an_object_around_them(
    reply: str,
) -> None:
    read = Json(Stated).parse_reply(reply)
    assert isinstance(read, ParsedAnswer) and read.value == STATED
    (listed,) = JsonList(Stated, name="votes").parse_reply(f'{{"Votes": [{STATED_TEXT}]}}')[0]
    assert listed == STATED


STATED_TEXT = '{"Vote": "A", "Confidence Level": "85 percent"}'


@pytest.mark.parametrize(
    "reply",
    [
        # The object may be an example, or of another speaker.
        '{"Ben": {"vote": "A", "confidence_level": 0.85}}',
        '{"example": {"vote": "A", "confidence_level": 0.85}}',
        '{"answer": {"vote": "A"}, "response": {"confidence_level": 0.85}}',
        # Two names that fit one field, and one name with two values.
        '{"Vote": "A", "VOTE": "B", "confidence_level": 0.85}',
        '{"vote": "A", "vote": "B", "confidence_level": 0.85}',
        'Sure: {"vote": "A", "confidence_level": 0.85, "vote": "B"}',
    ],
)
def test_what_may_be_another_answer_is_asked_for_again(reply: str) -> None:
    assert isinstance(Json(Stated).parse_reply(reply), ParseFailure)
