"""What is meant by a field of a JSON reply in another form, what is dropped, and what is not made
up."""

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


GOOD: dict[str, Any] = {
    "stance": "oppose",
    "level": 7,
    "again": True,
    "reason": "It is loud.",
    "points": [{"text": "noise", "weight": 2}],
    "tags": ["noise"],
    "ratings": {"park": 4},
}


def parse(**changed: Any) -> Any:
    return Json(Opinion).parse_reply(json.dumps(GOOD | changed))


def test_what_fits_is_not_touched() -> None:
    assert parse() == ParsedAnswer(Opinion(**GOOD), "exact", ())


@pytest.mark.parametrize(
    ("field", "said", "meant"),
    [
        ("stance", "Strong Support", "strong_support"),
        ("stance", "“oppose”.", "oppose"),
        ("stance", "STRONG-SUPPORT", "strong_support"),
        ("level", "seven", 7),
        ("level", "7/10", 7),
        ("level", "7 out of 10", 7),
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
def test_another_form_of_a_value_is_read_and_noted(field: str, said: object, meant: object) -> None:
    found = parse(**{field: said})
    assert isinstance(found, ParsedAnswer), found
    assert getattr(found.value, field) == meant
    rest = {k: v for k, v in found.value.model_dump().items() if k != field}
    assert rest == {k: v for k, v in Opinion(**GOOD).model_dump().items() if k != field}
    assert [r for r in found.repairs if r.field.startswith(field)]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("stance", "somewhat against"),
        ("stance", "support"),
        ("stance", None),
        ("level", 11),  # never moved to the nearest
        ("level", "quite a lot"),
        ("level", "7 or 8"),
        ("again", "perhaps"),
        ("reason", {"why": "It is loud."}),
    ],
)
def test_what_is_not_plain_is_asked_for_again(field: str, said: object) -> None:
    found = parse(**{field: said})
    assert isinstance(found, ParseFailure) and field in found.problem


def test_entries_that_cannot_be_read_are_dropped_and_counted() -> None:
    points = [{"text": "noise", "weight": 9}, "x", *GOOD["points"], {"weight": 1}, {"text": "a"}]
    found = parse(points=points, tags=["a", {"b": 1}])
    assert isinstance(found, ParsedAnswer)
    assert found.value.points == [Point(**GOOD["points"][0])] and found.value.tags == ("a",)
    dropped = [r for r in found.repairs if r.is_dropped]
    assert [r.kind for r in dropped] == ["unreadable"] * 5
    assert {r.field for r in dropped} == {"points.0", "points.1", "points.3", "points.4", "tags.1"}


def test_entries_under_a_name_are_dropped_like_those_of_a_list() -> None:
    class Panel(BaseModel):
        points: dict[str, Point]

    said = {"points": {"a": {"text": "noise", "weight": "two"}, "b": {"text": "cost"}, "c": "x"}}
    found = Json(Panel).parse_reply(json.dumps(said))
    assert isinstance(found, ParsedAnswer)
    assert found.value == Panel(points={"a": Point(text="noise", weight=2)})
    assert {r.field for r in found.repairs if r.is_dropped} == {"points.b", "points.c"}


def test_a_field_that_may_be_left_out_is_left_out() -> None:
    found = parse(share="a lot", note={"a": 1})
    assert isinstance(found, ParsedAnswer) and (found.value.share, found.value.note) == (None, "")
    assert {(r.field, r.is_dropped) for r in found.repairs} == {("share", True), ("note", True)}


def test_in_the_end_what_can_be_read_is_kept() -> None:
    reply = json.dumps(GOOD | {"level": "quite a lot"})
    assert isinstance(Json(Opinion).parse_reply(reply), ParseFailure)
    kept = Json(Opinion).salvage_reply(reply)
    assert kept is not None and kept.value == Opinion(**(GOOD | {"level": None}))
    assert [(r.field, r.original) for r in kept.repairs] == [("level", "quite a lot")]
    left_out = json.dumps({k: v for k, v in GOOD.items() if k != "level"})
    assert isinstance(Json(Opinion).parse_reply(left_out), ParseFailure)
    kept = Json(Opinion).salvage_reply(left_out)
    assert kept is not None and kept.value.level is None
    # A stance must not be null, so nothing of this can be kept.
    assert Json(Opinion).salvage_reply(json.dumps(GOOD | {"stance": "x"})) is None
    assert Json(Opinion).salvage_reply("no JSON at all") is None


class Weighed(BaseModel):
    share: float
    level: float | None
    note: float | None = None
    parts: list[float] = Field(default_factory=list)


NO_NUMBERS = ['"NaN"', '"Infinity"', "NaN", "-Infinity", "1e999", "true", "false"]


@pytest.mark.parametrize("written", NO_NUMBERS)
def test_what_is_no_number_is_unreadable_and_the_rest_is_kept(written: str) -> None:
    """Python and pydantic take these for numbers. They are asked for again, and then missing."""
    reply = f'{{"share": 0.5, "level": {written}, "note": {written}, "parts": [1, {written}]}}'
    found = Json(Weighed).parse_reply(reply)
    assert isinstance(found, ParseFailure) and "level" in found.problem
    kept = Json(Weighed).salvage_reply(reply)
    assert kept is not None and kept.value == Weighed(share=0.5, level=None, parts=[1])
    assert {r.field for r in kept.repairs} == {"level", "note", "parts.1"}
    optional = f'{{"share": 0.5, "level": 1, "note": {written}}}'
    assert isinstance(left_out := Json(Weighed).parse_reply(optional), ParsedAnswer)
    assert left_out.value == Weighed(share=0.5, level=1)
    assert Json(Weighed).salvage_reply(f'{{"share": {written}, "level": 1}}') is None
    (only,) = JsonList(Weighed).parse_reply(f'[{{"share": {written}, "level": 1}}, {optional}]')[0]
    assert only == left_out.value


def test_a_model_may_have_an_infinite_default() -> None:
    class Bid(BaseModel):
        most: float = math.inf

    found = Json(Bid).parse_reply("{}")
    assert isinstance(found, ParsedAnswer) and found.value.most == math.inf


class Remark(BaseModel):
    names: tuple[str, ...]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _name_all_fields(cls, raw: Any) -> Any:
        return {"names": None, **raw} if isinstance(raw, dict) else raw


def test_a_field_that_a_validator_fills_in_does_not_change_the_object_around_it() -> None:
    class Debate(BaseModel):
        remark: Remark
        note: str | None

    reply = json.dumps({"remark": {"text": {"words": 3}}, "note": "a"})
    assert isinstance(found := Json(Debate).parse_reply(reply), ParseFailure)
    assert "remark.text" in found.problem and Json(Debate).salvage_reply(reply) is None


def test_lists_of_objects_read_their_entries_alike() -> None:
    reply = json.dumps([{"text": "a", "weight": "two"}, {"text": "b", "weight": 9}])
    found = JsonList(Point).parse_reply(reply)
    assert isinstance(found, ParsedAnswer) and found.value == (Point(text="a", weight=2),)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(Opinion.model_fields)), JSON_VALUES), st.booleans())
def test_any_reply_is_read_as_the_model_or_refused(changed: dict[str, Any], salvage: bool) -> None:
    found = Json(Opinion).read(GOOD | changed, salvage=salvage)
    if isinstance(found, ParsedAnswer):
        assert Opinion.model_validate(found.value.model_dump()) == found.value
    else:
        assert isinstance(found, ParseFailure)


@pytest.mark.parametrize(
    ("written", "read"),
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
def test_a_value_without_quotation_marks_is_read_whole(
    written: str, read: int | None, space: str
) -> None:
    """A part of it ("7 or 8", "−7") would be a number that nobody gave."""
    rest = json.dumps({name: GOOD[name] for name in GOOD if name not in ("level", "tags")})[1:]
    reply = '{"tags": ["noise"],' + space + f'"level": {written}' + ("," + "\n" + rest)
    parsed = Json(Opinion).parse_reply(reply)
    if read is None:
        assert isinstance(parsed, ParseFailure), parsed
    else:
        assert isinstance(parsed, ParsedAnswer) and parsed.value.level == read


def test_a_remark_moves_no_number_to_another_entry() -> None:
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
def test_who_declines_gives_no_value(declined: str) -> None:
    reply = f'{{{declined}, "text": "", "weight": 1}}'
    assert Json(Point, may_decline=True).parse_reply(reply) == Missing("declined")


class OfferTaken(BaseModel):
    decline: bool
    text: str


def test_a_field_to_decline_something_is_no_refusal_to_answer() -> None:
    offer = Json(OfferTaken, may_decline=True)
    taken = offer.parse_reply('{"decline": true, "text": "Too little."}')
    assert isinstance(taken, ParsedAnswer) and taken.value.decline
    assert offer.parse_reply('{"declined": true, "decline": false}') == Missing("declined")


@pytest.mark.parametrize("words", ["I decline", "yes, I decline", "I would rather not"])
def test_words_in_the_field_declined_are_asked_for_again(words: str) -> None:
    reply = json.dumps({"declined": words, "text": "", "weight": 1})
    question = Json(Point, may_decline=True)
    assert isinstance(question.parse_reply(reply), ParseFailure)
    assert question.salvage_reply(reply) is None


def test_single_readers() -> None:
    assert [read_number(raw) for raw in ("minus two", "forty-two", "-3.5", True, "x", None)] == (
        [-2, 42, -3.5, None, None, None]
    )
    assert (read_number("4/5", 5), read_number("4/10", 5)) == (4, None)
    assert [read_switch(raw) for raw in (True, "TRUE", "no.", "maybe", 1)] == (
        [True, True, False, None, None]
    )
    assert match_folded("a b", ("A-B", "a_b")) is None  # two options fold alike
    assert read_text([None, " a ", ["b"]]) == "a; b"
    assert read_list("1. a\n2. b") == ["a", "b"] and read_list("a\nb") == ["a\nb"]


def test_an_answer_that_stays_half_unreadable_is_kept_in_part(tmp_path: Path) -> None:
    """Asked three times, the speaker gives no level; the words and the stance are kept."""
    said = json.dumps(GOOD | {"level": "quite a lot"})
    seen: list[object] = []

    async def protocol(session: folkmoot.Session[folkmoot.StudyConfig]) -> None:
        got = await session.ask_detailed(folkmoot.Speaker("p1"), "What?", answer_type=Json(Opinion))
        seen.append(got)

    study = folkmoot.Study("opinions", "Opinions", folkmoot.StudyConfig, protocol)
    run = folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda *_: said))
    (got,) = seen
    assert got.value == Opinion(**(GOOD | {"level": None}))  # type: ignore[attr-defined]
    assert [r.field for r in got.repairs] == ["level"]  # type: ignore[attr-defined]
    (row,) = run.table("answers").iter_rows(named=True)
    assert (row["parse_step"], row["how"], row["missing"], row["reasks"]) == (
        ("partial", "clarified", None, 2)
    )
