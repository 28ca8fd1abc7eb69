"""Fields of JSON replies in another form: which are read, which are dropped, and which fail."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

import folkmoot
from folkmoot.conversation.answer_types import Json, JsonList, Missing, ParsedAnswer, ParseFailure
from folkmoot.conversation.lenient_fields import (
    match_folded,
    read_list,
    read_number,
    read_switch,
    read_text,
    says_none,
)
from folkmoot.models.scripted import ScriptedProvider


class Point(BaseModel):
    text: str
    weight: int | None = Field(ge=1, le=5)


class Opinion(BaseModel):
    stance: Literal["strong_support", "oppose", "neutral"]
    level: int | None = Field(ge=1, le=10)
    again: bool
    reason: str
    points: list[Point]
    tags: tuple[str, ...]
    note: str = ""
    share: float | None = None
    side: Literal[-1, 0, 1] = 0
    ratings: dict[str, int] = {}


VALID_REPLY: dict[str, Any] = {
    "stance": "oppose",
    "level": 7,
    "again": True,
    "reason": "It is loud.",
    "points": [{"text": "noise", "weight": 2}],
    "tags": ["noise"],
    "ratings": {"park": 4},
}


def parse_changed_reply(**changed: Any) -> Any:
    return Json(Opinion).parse_reply(json.dumps(VALID_REPLY | changed))


def test_a_valid_reply_is_not_changed() -> None:
    assert parse_changed_reply() == ParsedAnswer(Opinion(**VALID_REPLY), "exact", ())


@pytest.mark.parametrize(
    ("field", "reply_value", "expected"),
    [
        ("stance", "Strong Support", "strong_support"),
        ("stance", "“oppose”.", "oppose"),
        ("stance", "STRONG-SUPPORT", "strong_support"),
        ("level", "seven", 7),
        ("level", "7/10", 7),
        ("level", "7 out of 10", 7),
        ("level", "~7", 7),
        ("level", "about seven", 7),
        ("level", "٧", 7),
        ("share", "٣٫٥", 3.5),
        ("level", "cannot say", None),
        ("level", "null", None),
        ("again", "Yes.", True),
        ("again", "No.", False),
        ("reason", None, ""),
        ("reason", ["It is loud.", "It is dear."], "It is loud.; It is dear."),
        ("reason", 12, "12"),
        ("tags", "noise", ("noise",)),
        ("tags", "- noise\n- cost", ("noise", "cost")),
        ("tags", None, ()),
        ("tags", "none", ()),
        ("points", {"text": "cost", "weight": "five"}, [Point(text="cost", weight=5)]),
        ("share", "twenty-five", 25.0),
        ("share", "declined", None),
        ("side", "minus one", -1),
        ("side", "1", 1),
        ("ratings", {"park": "four"}, {"park": 4}),
    ],
)
def test_another_form_of_a_value_is_read_with_a_repair(
    field: str, reply_value: object, expected: object
) -> None:
    parsed = parse_changed_reply(**{field: reply_value})
    assert isinstance(parsed, ParsedAnswer), parsed
    assert getattr(parsed.value, field) == expected
    other_fields = {
        name: value for name, value in parsed.value.model_dump().items() if name != field
    }
    assert other_fields == {
        name: value for name, value in Opinion(**VALID_REPLY).model_dump().items() if name != field
    }
    assert [repair for repair in parsed.repairs if repair.field.startswith(field)]


@pytest.mark.parametrize(
    ("field", "reply_value"),
    [
        ("stance", "somewhat against"),
        ("stance", "support"),
        ("stance", None),
        ("level", 11),  # never changed to the nearest bound
        ("level", "quite a lot"),
        ("level", "7 or 8"),
        ("again", "perhaps"),
        ("reason", {"why": "It is loud."}),
    ],
)
def test_an_unclear_value_is_unreadable(field: str, reply_value: object) -> None:
    failure = parse_changed_reply(**{field: reply_value})
    assert isinstance(failure, ParseFailure) and field in failure.problem


class Place(BaseModel):
    park: str = ""
    rating: int | None = None


class Visit(BaseModel):
    place: Place
    marks: dict[str, int]
    tags: list[str]
    name: str
    later: Place | None = None
    others: dict[str, int] = {}
    notes: list[Place] = []


VISIT = {"place": {"park": "A"}, "marks": {"x": 1}, "tags": ["a"], "name": "Ann"}
SECOND_VALUES = {"place": {"park": "B"}, "marks": {"x": 2}, "tags": ["b"], "name": "Bo"}


def state_twice(reply: dict[str, Any], field: str, first: object, second: object) -> str:
    body = json.dumps(reply | {field: first}).removesuffix("}")
    return f'{body}, "{field}": {json.dumps(second)}}}'


@pytest.mark.parametrize("field", VISIT)
def test_a_required_field_that_is_stated_twice_is_asked_again(field: str) -> None:
    """Of two different values it is unknown which one is meant, whatever the type of the field."""
    reply = state_twice(VISIT, field, VISIT[field], SECOND_VALUES[field])
    for text in (reply, reply.replace("}}", "},}"), reply.replace(f'"{field}"', f"{field}")):
        failure = Json(Visit).parse_reply(text)
        assert isinstance(failure, ParseFailure)
        assert f"{field}: It is given twice" in failure.problem
    in_list = JsonList(Place, name="tags").parse_reply(state_twice({}, "tags", VISIT, [VISIT]))
    assert isinstance(in_list, ParseFailure)


@pytest.mark.parametrize(
    ("field", "first", "second", "path"),
    [
        ("later", {"park": "A"}, {"park": "B"}, "later"),
        ("others", {"x": 1}, {"x": 2}, "others"),
        ("notes", [{"park": "A"}], [], "notes"),
    ],
)
def test_an_optional_field_that_is_stated_twice_is_left_out_with_a_note(
    field: str, first: object, second: object, path: str
) -> None:
    parsed = Json(Visit).parse_reply(state_twice(VISIT, field, first, second))
    assert isinstance(parsed, ParsedAnswer) and parsed.value == Visit.model_validate(VISIT)
    (repair,) = parsed.repairs
    assert (repair.field, repair.kind, repair.is_dropped) == (path, "unreadable", True)
    # What was said is recorded beside what was recorded.
    assert json.dumps(first) in repair.original and json.dumps(second) in repair.original


@pytest.mark.parametrize(
    ("reply", "path"),
    [
        ('"others": {"x": 1, "x": 2, "y": 3}', "others.x"),
        ('"notes": [{"park": "A", "park": "B", "rating": 4}]', "notes.0.park"),
        ('"later": {"park": "A", "rating": 1, "rating": 2}', "later.rating"),
    ],
)
def test_a_part_that_is_stated_twice_costs_no_other_part(reply: str, path: str) -> None:
    parsed = Json(Visit).parse_reply(json.dumps(VISIT).removesuffix("}") + f", {reply}}}")
    assert isinstance(parsed, ParsedAnswer)
    assert [(repair.field, repair.kind) for repair in parsed.repairs] == [(path, "unreadable")]
    kept = parsed.value.model_dump()
    expected = {"others.x": {"y": 3}, "notes.0.park": [Place(rating=4).model_dump()]}
    part = path.partition(".")[0]
    assert kept[part] == expected.get(path, Place(park="A").model_dump())


@pytest.mark.parametrize("field", VISIT)
def test_a_field_without_a_value_is_not_empty(field: str) -> None:
    """The reply was cut after the key, or the model left the value out."""
    others = json.dumps({name: value for name, value in VISIT.items() if name != field})
    for end in ("", ",}", "}"):
        failure = Json(Visit).parse_reply(f'{others.removesuffix("}")}, "{field}":{end}')
        assert isinstance(failure, ParseFailure) and f"{field}: It has no value" in failure.problem


def test_the_rest_of_a_last_reply_counts_without_a_field_that_is_stated_twice() -> None:
    class Draft(BaseModel):
        name: str
        mark: int | None

    salvaged = Json(Draft).salvage_reply('{"name": "Ann", "mark": 1, "mark": 2}')
    assert salvaged is not None and salvaged.value == Draft(name="Ann", mark=None)
    assert [(repair.field, repair.original) for repair in salvaged.repairs] == [("mark", "1; 2")]
    reply = state_twice(VISIT, "others", {"x": 1}, {"x": 2})
    salvaged_visit = Json(Visit).salvage_reply(reply)
    assert salvaged_visit is not None and salvaged_visit.value == Visit.model_validate(VISIT)


def test_the_default_of_a_field_stated_twice_is_no_value_of_the_speaker() -> None:
    class Gift(BaseModel):
        to: str = "Ann"
        amount: int = 5

    class Gifts(BaseModel):
        gifts: list[Gift]

    one, two = '{"to": "Bo", "amount": 1, "amount": 2}', '{"to": "Cy", "amount": 3}'
    assert isinstance(Json(Gift).parse_reply(one), ParseFailure)
    assert Json(Gift).salvage_reply(one) is None
    parsed = Json(Gifts).parse_reply(f'{{"gifts": [{one}, {two}]}}')
    assert isinstance(parsed, ParsedAnswer)
    assert parsed.value.gifts == [Gift(to="Cy", amount=3)]
    assert [repair.field for repair in parsed.repairs] == ["gifts.0"]


def test_unreadable_entries_are_dropped_and_counted() -> None:
    points = [
        {"text": "noise", "weight": 9},
        "x",
        *VALID_REPLY["points"],
        {"weight": 1},
        {"text": "a"},
    ]
    parsed = parse_changed_reply(points=points, tags=["a", {"b": 1}])
    assert isinstance(parsed, ParsedAnswer)
    assert parsed.value.points == [Point(**VALID_REPLY["points"][0])] and parsed.value.tags == (
        "a",
    )
    dropped = [repair for repair in parsed.repairs if repair.is_dropped]
    assert [repair.kind for repair in dropped] == ["unreadable"] * 5
    assert {repair.field for repair in dropped} == {
        "points.0",
        "points.1",
        "points.3",
        "points.4",
        "tags.1",
    }


def test_unreadable_entries_of_a_mapping_are_dropped() -> None:
    class Panel(BaseModel):
        points: dict[str, Point]

    reply_value = {
        "points": {"a": {"text": "noise", "weight": "two"}, "b": {"text": "cost"}, "c": "x"}
    }
    parsed = Json(Panel).parse_reply(json.dumps(reply_value))
    assert isinstance(parsed, ParsedAnswer)
    assert parsed.value == Panel(points={"a": Point(text="noise", weight=2)})
    assert {repair.field for repair in parsed.repairs if repair.is_dropped} == {
        "points.b",
        "points.c",
    }


def test_an_unreadable_optional_field_is_dropped() -> None:
    parsed = parse_changed_reply(share="a lot", note={"a": 1})
    assert isinstance(parsed, ParsedAnswer) and (parsed.value.share, parsed.value.note) == (
        None,
        "",
    )
    assert {(repair.field, repair.is_dropped) for repair in parsed.repairs} == {
        ("share", True),
        ("note", True),
    }


def test_salvage_keeps_the_readable_fields() -> None:
    reply = json.dumps(VALID_REPLY | {"level": "quite a lot"})
    assert isinstance(Json(Opinion).parse_reply(reply), ParseFailure)
    salvaged = Json(Opinion).salvage_reply(reply)
    assert salvaged is not None and salvaged.value == Opinion(**(VALID_REPLY | {"level": None}))
    assert [(repair.field, repair.original) for repair in salvaged.repairs] == [
        ("level", "quite a lot")
    ]
    reply_without_level = json.dumps(
        {name: value for name, value in VALID_REPLY.items() if name != "level"}
    )
    assert isinstance(Json(Opinion).parse_reply(reply_without_level), ParseFailure)
    salvaged = Json(Opinion).salvage_reply(reply_without_level)
    assert salvaged is not None and salvaged.value.level is None
    # A stance must not be null, so this reply cannot be salvaged.
    assert Json(Opinion).salvage_reply(json.dumps(VALID_REPLY | {"stance": "x"})) is None
    assert Json(Opinion).salvage_reply("no JSON at all") is None


class WeightedAnswer(BaseModel):
    share: float
    level: float | None
    note: float | None = None
    parts: list[float] = Field(default_factory=list)


INVALID_NUMBERS = ['"NaN"', '"Infinity"', "NaN", "-Infinity", "1e999", "true", "false"]


@pytest.mark.parametrize("written", INVALID_NUMBERS)
def test_an_invalid_number_is_unreadable_and_the_rest_is_kept(written: str) -> None:
    """Python and pydantic accept these as numbers. Folkmoot re-asks, then the value is missing."""
    reply = f'{{"share": 0.5, "level": {written}, "note": {written}, "parts": [1, {written}]}}'
    failure = Json(WeightedAnswer).parse_reply(reply)
    assert isinstance(failure, ParseFailure) and "level" in failure.problem
    salvaged = Json(WeightedAnswer).salvage_reply(reply)
    assert salvaged is not None and salvaged.value == WeightedAnswer(
        share=0.5, level=None, parts=[1]
    )
    assert {repair.field for repair in salvaged.repairs} == {"level", "note", "parts.1"}
    optional = f'{{"share": 0.5, "level": 1, "note": {written}}}'
    assert isinstance(without_note := Json(WeightedAnswer).parse_reply(optional), ParsedAnswer)
    assert without_note.value == WeightedAnswer(share=0.5, level=1)
    assert Json(WeightedAnswer).salvage_reply(f'{{"share": {written}, "level": 1}}') is None
    (list_item,) = JsonList(WeightedAnswer).parse_reply(
        f'[{{"share": {written}, "level": 1}}, {optional}]'
    )[0]
    assert list_item == without_note.value


def test_a_model_may_have_an_infinite_default() -> None:
    class Bid(BaseModel):
        most: float = math.inf

    parsed = Json(Bid).parse_reply("{}")
    assert isinstance(parsed, ParsedAnswer) and parsed.value.most == math.inf


class Remark(BaseModel):
    names: tuple[str, ...]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _name_all_fields(cls, raw: Any) -> Any:
        return {"names": None, **raw} if isinstance(raw, dict) else raw


def test_a_field_filled_by_a_validator_does_not_change_the_outer_object() -> None:
    class Debate(BaseModel):
        remark: Remark
        note: str | None

    reply = json.dumps({"remark": {"text": {"words": 3}}, "note": "a"})
    assert isinstance(failure := Json(Debate).parse_reply(reply), ParseFailure)
    assert "remark.text" in failure.problem and Json(Debate).salvage_reply(reply) is None


def test_entries_of_a_list_are_read_like_single_objects() -> None:
    reply = json.dumps([{"text": "a", "weight": "two"}, {"text": "b", "weight": 9}])
    parsed = JsonList(Point).parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer) and parsed.value == (Point(text="a", weight=2),)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(Opinion.model_fields)), JSON_VALUES), st.booleans())
def test_any_reply_is_read_as_the_model_or_refused(changed: dict[str, Any], salvage: bool) -> None:
    parsed = Json(Opinion).read(VALID_REPLY | changed, salvage=salvage)
    if isinstance(parsed, ParsedAnswer):
        assert Opinion.model_validate(parsed.value.model_dump()) == parsed.value
    else:
        assert isinstance(parsed, ParseFailure)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("7", 7),
        ("+7", 7),
        ("7 // of ten", 7),
        ("7, // of ten", 7),
        ("7 or 8", None),
        ("7 (I think)", None),
        ("7, 8", None),
        ("1 to 10", None),
        ("3 out of 5", None),
        ("7 out of 10", 7),
        ("−7", None),
        ("– 7", None),
        ("?", None),
        ("`7`", None),
        ("", None),
        ("seven", 7),
    ],
)
@pytest.mark.parametrize("space", ["", " ", "\n"])
def test_a_value_without_quotation_marks_is_read_completely_or_not_at_all(
    written: str, expected: int | None, space: str
) -> None:
    """A part of the text ("7 or 8", "−7") would be a number that was not given."""
    other_fields = json.dumps(
        {name: VALID_REPLY[name] for name in VALID_REPLY if name not in ("level", "tags")}
    )[1:]
    reply = '{"tags": ["noise"],' + space + f'"level": {written}' + ("," + "\n" + other_fields)
    parsed = Json(Opinion).parse_reply(reply)
    if expected is None:
        assert isinstance(parsed, ParseFailure), parsed
    else:
        assert isinstance(parsed, ParsedAnswer) and parsed.value.level == expected


def test_a_remark_does_not_move_a_number_to_another_entry() -> None:
    class Scored(BaseModel):
        option: str
        score: int | None

    reply = '{"items":[{"option":"sushi","score":3 (love it)},{"option":"diner","score":-4}]}'
    parsed = JsonList(Scored).parse_reply(reply)
    assert isinstance(parsed, ParsedAnswer)
    assert [(item.option, item.score) for item in parsed.value] == [("diner", -4)]


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ('```json\n{"level": 9}\n```\nToo high. My answer:\n```json\n{"level": 3}\n```', 3),
        ('```json\n{"level": 9}\n```\nToo high. My answer:\n```json\n{"level": 3}', 3),
        ('```json\n{"level": 9}\n```\nToo high. My answer:\n```\n3\n```', None),
        ('{"level": 9}\n```', 9),
    ],
)
def test_the_last_of_several_code_blocks_counts(reply: str, level: int | None) -> None:
    class Level(BaseModel):
        level: int

    parsed = Json(Level).parse_reply(reply)
    assert (parsed.value.level if isinstance(parsed, ParsedAnswer) else None) == level


@pytest.mark.parametrize(
    "declined",
    [
        '"declined": true',
        '"Declined": true',
        '"DECLINED": "True."',
        '"declined": "**yes**"',
        '"declined": 1',
        '"decline": true',
        '"declines": true',
    ],
)
def test_a_declined_answer_has_no_value(declined: str) -> None:
    reply = f'{{{declined}, "text": "", "weight": 1}}'
    assert Json(Point, may_decline=True).parse_reply(reply) == Missing("declined")


class OfferTaken(BaseModel):
    decline: bool
    text: str


def test_a_model_field_named_decline_is_not_a_refusal_to_answer() -> None:
    offer = Json(OfferTaken, may_decline=True)
    parsed = offer.parse_reply('{"decline": true, "text": "Too little."}')
    assert isinstance(parsed, ParsedAnswer) and parsed.value.decline
    assert offer.parse_reply('{"declined": true, "decline": false}') == Missing("declined")


@pytest.mark.parametrize(
    "words",
    [
        *("I decline", "yes, I decline", "I would rather not", ["As an AI I cannot vote"]),
        *({"reason": "no"}, [True], [], {}, 2),
    ],
)
def test_words_in_the_field_declined_are_unreadable(words: object) -> None:
    reply = json.dumps({"declined": words, "text": "", "weight": 1})
    question = Json(Point, may_decline=True)
    assert isinstance(question.parse_reply(reply), ParseFailure)
    assert question.salvage_reply(reply) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, True) for text in ("None", "n.a.", "N/A", "—", "", "no_new_points", "keine")),
        *((text, True) for text in ("There are no further questions.", "None at the moment.")),
        *((text, True) for text in ("I have nothing to add.", "No objections at all", "Nil.")),
        *((text, False) for text in ("No comment from the council", "no parking", "5", "寿司")),
        *((text, True) for text in ("Keine weiteren Einwände.", "Aucune objection", "nada más")),
        *((text, True) for text in ("I don't have any other concerns.", "None, nothing to add.")),
        *((text, False) for text in ("None of the shops survive.", "No, thanks to you")),
        *((text, True) for text in ("There aren't any concerns", "I don't see any objections")),
        *((text, True) for text in ("I have no firm no.", "Not applicable here", "Unknown so far")),
        *((text, False) for text in ("There is no point.", "No question!", "Keine Autos")),
        *((text, False) for text in ("There isn't any point", "I have nobody", "Neither proposal")),
        *((text, False) for text in ("I don't have any money", "There is no time", "rien de cru")),
    ],
)
def test_only_a_whole_text_states_that_there_is_no_entry(text: str, expected: bool) -> None:
    assert says_none(text) == expected


def test_read_functions_of_single_fields() -> None:
    assert [read_number(raw) for raw in ("minus two", "forty-two", "-3.5", True, "x", None)] == (
        [-2, 42, -3.5, None, None, None]
    )
    assert (read_number("4/5", 5), read_number("4/10", 5)) == (4, None)
    assert [read_switch(raw) for raw in (True, "TRUE", "no.", "maybe", 1)] == (
        [True, True, False, None, None]
    )
    assert match_folded("a b", ("A-B", "a_b")) is None  # two options are equal after folding
    assert read_text([None, " a ", ["b"]]) == "a; b"
    assert read_list("1. a\n2. b") == ["a", "b"] and read_list("a\nb") == ["a\nb"]
    assert [read_list(raw) for raw in ("None.", "-", "–", "Nobody", "no one")] == [[]] * 5


def test_the_readable_part_of_an_answer_is_kept_after_all_re_asks(tmp_path: Path) -> None:
    """After two re-asks the level is still unreadable; the other fields are kept."""
    reply = json.dumps(VALID_REPLY | {"level": "quite a lot"})
    results: list[object] = []

    async def protocol(session: folkmoot.Session[folkmoot.StudyConfig]) -> None:
        result = await session.ask_detailed(
            folkmoot.Speaker("p1"), "What?", answer_type=Json(Opinion)
        )
        results.append(result)

    study = folkmoot.Study("opinions", "Opinions", folkmoot.StudyConfig, protocol)
    run = folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda *_: reply))
    (result,) = results
    assert result.value == Opinion(**(VALID_REPLY | {"level": None}))  # type: ignore[attr-defined]
    assert [repair.field for repair in result.repairs] == ["level"]  # type: ignore[attr-defined]
    (row,) = run.table("answers").iter_rows(named=True)
    assert (row["parse_step"], row["how"], row["missing"], row["reasks"]) == (
        ("partial", "clarified", None, 2)
    )
    assert "only some fields of a JSON reply" in run.report().read_text("utf-8")


class Vote(BaseModel):
    winner: Literal["Nobody", "Anna"] | None
    reason: str = ""


@pytest.mark.parametrize(("written", "expected"), [("nobody", "Nobody"), ("no one", None)])
def test_an_option_that_is_called_nobody_can_be_chosen(written: str, expected: str | None) -> None:
    answer = Json(Vote).parse_reply(json.dumps({"winner": written}))
    assert isinstance(answer, ParsedAnswer)
    assert answer.value.winner == expected
