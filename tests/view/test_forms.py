"""Forms built from JSON schemas: the input is returned as JSON that fits the schema."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, Field, JsonValue

from folkmoot import Json
from folkmoot.conversation.answer_types import FieldForPeople, with_ways_out
from folkmoot.models.request import JsonObject
from folkmoot.view import forms
from folkmoot.view.forms import answer_of, form_of, problem_with, way_out_of


class Point(BaseModel):
    who: str
    strength: int = Field(ge=1, le=5)


class Reply(BaseModel):
    stance: str = Field(json_schema_extra={"enum": ["strong_support", "neutral"]})
    points: list[Point]
    words: list[str]
    share: float | None = None
    speaks: bool
    statement: str


SCHEMA = Reply.model_json_schema()


def test_each_property_has_a_field_of_its_kind() -> None:
    form = form_of(SCHEMA)
    kinds = {part.name: part.kind for part in form.parts}
    assert kinds == {
        "a.stance": "choice",
        "a.points": "rows",
        "a.words": "lines",
        "a.share": "number",
        "a.speaks": "choice",
        "a.statement": "text",
    }
    strength = form.parts[1].parts[0].parts[1]
    assert (strength.low, strength.high, strength.whole) == (1, 5, True)
    assert [label for label, _ in form.parts[0].options] == ["strong support", "neutral"]


def test_form_input_fits_the_schema() -> None:
    fields = {
        "a.stance": ["0"],
        "a.points.0.who": ["Ann"],
        "a.points.0.strength": ["3"],
        "a.points.2.who": ["Bo"],
        "a.points.2.strength": ["5"],
        "a.words": ["one\n\n two "],
        "a.speaks": ["1"],
        "a.statement": [""],
    }
    value = answer_of(form_of(SCHEMA), fields)
    assert value == {
        "stance": "strong_support",
        "points": [{"who": "Ann", "strength": 3}, {"who": "Bo", "strength": 5}],
        "words": ["one", "two"],
        "speaks": False,
        "statement": "",
    }
    assert problem_with(value, SCHEMA, form_of(SCHEMA)) == ""
    assert Reply.model_validate(value).points[1].who == "Bo"


@pytest.mark.parametrize(
    ("bounds", "typed", "expected"),
    [
        ((0, 2000), "1.000", "Price: please write '1.000' as 1000 or 1."),
        ((0, 2000), "1.345", "Price: please write '1.345' as 1345 or 1.3450."),
        ((0, 2000), "1.3450", 1.345),
        ((0, 2000), "1000", 1000),
        # A thousand times as much is no answer.
        ((0, 20), "1.500", 1.5),
        ((0, 2000), "12.345", 12.345),
    ],
)
def test_a_number_that_may_have_a_sign_for_thousands_is_asked_about(
    bounds: tuple[int, int], typed: str, expected: str | float
) -> None:
    price: JsonObject = {"type": "number", "minimum": bounds[0], "maximum": bounds[1]}
    form = form_of({"type": "object", "properties": {"price": price}, "required": ["price"]})
    try:
        answer = answer_of(form, {"a.price": [typed]})
    except ValueError as error:
        assert str(error) == expected
    else:
        assert answer == {"price": expected}


def test_a_decimal_comma_in_a_list_of_numbers_does_not_make_two_numbers() -> None:
    prices: JsonObject = {"type": "array", "items": {"type": "number"}}
    form = form_of({"type": "object", "properties": {"prices": prices}, "required": ["prices"]})
    assert answer_of(form, {"a.prices": ["1, 2 ,3.5 , 4,"]}) == {"prices": [1, 2, 3.5, 4]}
    with pytest.raises(ValueError, match="'1,5' without a comma"):
        answer_of(form, {"a.prices": ["1,5 2"]})


@pytest.mark.parametrize(
    ("form_values", "says"),
    [
        ({}, "Stance: has no answer yet."),
        ({"a.stance": ["7"]}, "Stance: please choose one of the options."),
        ({"a.stance": ["²"]}, "Stance: please choose one of the options."),
        ({"a.stance": ["1" * 9_000]}, "Stance: please choose one of the options."),
        ({"a.share": ["much"]}, "Share: please give a number; 'much' is none."),
        (
            {"a.share": ["1,5"]},
            "Share: please write '1,5' without a comma, with a point before decimals.",
        ),
    ],
)
def test_a_problem_names_its_field(form_values: dict[str, list[str]], says: str) -> None:
    try:
        problem = problem_with(answer_of(form_of(SCHEMA), form_values), SCHEMA, form_of(SCHEMA))
    except ValueError as error:
        problem = str(error)
    assert problem == says


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "Where you stand on it: has no answer yet."),
        (
            {
                "stance": "neutral",
                "points": [{"who": "Ann", "strength": "much"}],
                **{"words": [], "speaks": True, "statement": ""},
            },
            "What speaks for it › How much: this does not fit.",
        ),
    ],
)
def test_a_problem_names_its_field_as_the_page_does(value: dict[str, JsonValue], says: str) -> None:
    wordings = {
        "stance": FieldForPeople("Where you stand on it"),
        "points": FieldForPeople("What speaks for it"),
        "points.strength": FieldForPeople("How much"),
    }
    assert problem_with(value, SCHEMA, form_of(SCHEMA, wordings)) == says


class Vote(BaseModel):
    stance: str = Field(json_schema_extra={"enum": ["for", *with_ways_out(["against"])]})
    strength: int | Literal["cannot_say"]
    share: float | None
    other: float | None = None


def way_out_labels(form: forms.FormField) -> list[str]:
    return [label for label, _ in form.ways_out]


def test_ways_out_are_separate_options_and_return_their_values() -> None:
    schema = Json(Vote, may_decline=True).schema
    assert schema is not None
    form = form_of(schema)
    stance, strength, share, other = form.parts  # `declined` is not a separate field
    assert [label for label, _ in stance.options] == ["for", "against"]
    assert way_out_labels(stance) == ["None of these", "I prefer not to answer"]
    assert (
        way_out_labels(strength) == way_out_labels(share) == ["I cannot say"]
        and way_out_labels(other) == []
    )
    assert way_out_labels(form) == ["I prefer not to answer any of this"]
    fields = {"a.stance": ["~0"], "a.strength~out": ["~0"], "a.share~out": ["~0"]}
    value = answer_of(form, fields)
    assert value == {
        "declined": False, "stance": "none_of_these", "strength": "cannot_say", "share": None
    }  # fmt: skip
    assert problem_with(value, schema, form_of(schema)) == ""
    value_without_ways_out = answer_of(
        form, {"a.stance": ["1"], "a.strength": ["3"], "a.share": ["0.5"]}
    )
    assert value_without_ways_out == {
        "declined": False,
        "stance": "against",
        "strength": 3,
        "share": 0.5,
    }
    assert way_out_of(form, fields) is None and way_out_of(form, {"a~out": ["~0"]}) == "declined"


@pytest.mark.parametrize(
    "form_values",
    [
        {"a.strength": ["3"], "a.strength~out": ["~0"]},
        {"a.stance": ["~7"]},
        {"a.stance": ["~"]},
        {"a.stance": ["-1"]},
    ],
)
def test_an_answer_together_with_its_way_out_is_refused(form_values: dict[str, list[str]]) -> None:
    schema = Json(Vote).schema
    assert schema is not None
    with pytest.raises(ValueError, match="please"):
        answer_of(form_of(schema), form_values)


def test_an_answer_together_with_a_way_out_of_the_form_is_refused() -> None:
    form = form_of(Json(Vote, may_decline=True).schema or {})
    with pytest.raises(ValueError, match="leave one of the two out"):
        way_out_of(form, {"a~out": ["~0"], "a.strength": ["3"]})


def test_a_map_with_arbitrary_keys_is_entered_as_json() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "additionalProperties": {"type": "number"}}
    form = form_of(schema)
    assert form.kind == "json"
    assert answer_of(form, {"a": ['{"x": 1}']}) == {"x": 1}
    with pytest.raises(ValueError, match="not JSON"):
        answer_of(form, {"a": ["x"]})


def test_a_recursive_schema_gives_a_finite_form() -> None:
    schema: dict[str, JsonValue] = {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    assert answer_of(form_of(schema), {}) == {}


class Rated(BaseModel):
    option: str
    score: int | None = Field(ge=-4, le=4)


class Ratings(BaseModel):
    scores: list[Rated]
    order: list[str]


def test_a_human_gives_each_option_a_number() -> None:
    names = ("sea", "hills", "city")
    answer_type = Json(Ratings, options={"scores.option": names, "order": names})
    assert answer_type.schema is not None
    form = form_of(answer_type.schema, {"order": FieldForPeople("Your order", "ranking")})
    scores, order = form.parts
    assert [row.label for row in scores.parts] == ["sea", "hills", "city"]
    assert order.label == "Your order" and [part.label for part in order.parts] == [*names]
    form_values = {"a.scores.0.score": ["4"], "a.scores.2.score": ["-1"]}
    ranks = {"a.order.0": ["3"], "a.order.1": ["1"], "a.order.2": ["2"]}
    assert answer_of(form, {**form_values, **ranks}) == {
        "scores": [{"option": "sea", "score": 4}, {"option": "city", "score": -1}],
        "order": ["hills", "city", "sea"],
    }
    for first in ("1", "9", ""):
        with pytest.raises(ValueError, match="each number from 1 to 3 once"):
            answer_of(form, {**ranks, "a.order.0": [first]})


@pytest.mark.parametrize(
    ("text", "number"),
    [("9007199254740993", 9007199254740993), ("4.0", 4), ("-.5", -0.5), ("1e3", 1000), ("٣", 3)],
)
def test_a_number_keeps_its_digits(text: str, number: float) -> None:
    field = forms.FormField("a", "number", "", required=True)
    value = answer_of(field, {"a": [text]})
    assert value == number and type(value) is type(number)


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "1e999", "9" * 5_000])
def test_what_only_python_reads_as_a_number_is_refused(text: str) -> None:
    field = forms.FormField("a", "number", "", required=True)
    with pytest.raises(ValueError, match="please give a number"):
        answer_of(field, {"a": [text]})
