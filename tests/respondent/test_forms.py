"""Answers of every answer type for studies without their own respondent part."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

import folkmoot
from folkmoot.conversation.answer_types import Json
from folkmoot.models.request import (
    FINISH_UNMOVED,
    FINISH_UNREAD,
    Completion,
    ProviderSettings,
    RespondentHints,
)
from folkmoot.provenance import Kind, SourcedText, quote_value
from folkmoot.respondent import Respondent
from tests.respondent.town import Town, make_prompt

EXAMPLES = Path(__file__).parents[2] / "examples"


def ask(
    number: int, about: str, *shown: object, at: str = "a", seed: int = 3, **hints: Any
) -> Completion:
    """Return the reply of participant `number` to a question, with other texts beside it."""
    schema, knobs = hints.pop("schema", None), hints.pop("knobs", {})
    known = RespondentHints(about=about, speaker=f"p{number}", **hints)
    request = Town().request(
        known, make_person(number), make_prompt(*shown, " Well?"), schema=schema
    )
    settings = ProviderSettings(seed=seed, options=knobs)
    return Respondent(settings).reply(request, f"{at}{number}")


def make_person(index: int) -> SourcedText:
    card = f"You are number {index} of the long street, with a life of your own."
    return quote_value(card, "persona", f"people.text/{index}", f"p{index}")


class Grounds(BaseModel):
    share: float = Field(ge=0, le=1)
    trust: int = Field(ge=1, le=7)
    agree: Literal["strongly disagree", "disagree", "agree", "strongly agree"]
    colour: Literal["red", "green", "blue"]
    why: str


def ask_grounds(number: int, at: str, about: str, *shown: object) -> dict[str, Any]:
    reply = ask(number, about, *shown, kind="json", at=at, schema=Json(Grounds).schema)
    return dict(json.loads(reply.text))


def correlate(first: list[float], second: list[float]) -> float:
    return float(np.corrcoef(first, second)[0, 1])


DAM = "Should the valley get a dam for the sake of the farmers below it?"
CATS = "Is a cat a better companion than a parrot on a long winter journey by ship?"


def test_a_person_asked_twice_says_nearly_the_same_and_another_question_is_another_matter() -> None:
    once = [ask_grounds(n, "x", DAM) for n in range(150)]
    again = [ask_grounds(n, "y", DAM) for n in range(150)]
    cats = [ask_grounds(n, "z", CATS) for n in range(150)]
    for field in ("share", "trust"):
        first, second, other = ([row[field] for row in rows] for rows in (once, again, cats))
        assert correlate(first, second) > 0.85
        assert abs(correlate(first, other)) < 0.35
        assert np.std(first) > 0.15 * (max(first) - min(first))
    for field in ("agree", "colour"):
        same = np.mean([a[field] == b[field] for a, b in zip(once, again, strict=True)])
        assert same > 0.7
        assert {row[field] for row in once} == set(Grounds.model_fields[field].annotation.__args__)


def test_the_delphi_example_has_experts_with_opinions(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "delphi.py", tmp_path)
    study = (EXAMPLES / "delphi.yaml").read_text("utf-8").replace("experts: 12", "experts: 120")
    (tmp_path / "delphi.yaml").write_text(study, "utf-8")
    run = folkmoot.run(
        tmp_path / "delphi.yaml", model="synthetic", out=tmp_path / "run", trust=True
    )
    estimates = run.table("estimates")
    first, second = (estimates.filter(round=n)["estimate"].to_list() for n in (1, 2))
    assert correlate(first, second) > 0.8
    said = " ".join(estimates.filter(round=1)["main_reason"])
    assert "households" in said
    assert "taxpayers" not in said and "entrepreneurs" not in said


def ask_numbers(about: str, low: float, high: float, *shown: object, at: str = "a") -> list[float]:
    """Return the numbers of 150 participants."""
    hints = {"kind": "number", "offered": (f"{low:g}", f"{high:g}")}
    given = [ask(n, about, *shown, at=at, **hints) for n in range(150)]
    assert {reply.finish for reply in given} <= {"stop", FINISH_UNMOVED}
    return [float(reply.text) for reply in given]


@given(st.integers(-1000, 1000), st.integers(1, 1000))
def test_a_number_lies_in_the_bounds_of_the_answer_type(low: int, size: int) -> None:
    offered = (str(low), str(low + size))
    reply = ask(1, "How many boats lie in the harbour?", kind="number", offered=offered)
    assert low <= float(reply.text) <= low + size
    assert reply.finish == "stop"


@pytest.mark.parametrize(("low", "high"), [(0, 100), (1, 7), (25, 200), (-5, 5), (0, 0.5)])
def test_people_use_all_of_the_range(low: float, high: float) -> None:
    given = ask_numbers("How many boats should lie in the harbour over the winter?", low, high)
    assert low <= min(given) < low + (high - low) / 5
    assert high >= max(given) > high - (high - low) / 5


class Guess(BaseModel):
    boats: float = Field(ge=10, le=90)
    how_sure: int = Field(ge=1, le=5)
    why: str


def test_a_field_keeps_to_the_bounds_of_its_schema() -> None:
    about = "How many boats will lie in the harbour?"
    given = [
        json.loads(ask(n, about, kind="json", schema=Json(Guess).schema).text) for n in range(60)
    ]
    for field, low, high in (("boats", 10, 90), ("how_sure", 1, 5)):
        values = [row[field] for row in given]
        assert low <= min(values) < low + (high - low) / 4
        assert high >= max(values) > high - (high - low) / 4


def test_instructions_are_not_read() -> None:
    how = "Please give your stance, the share, and a short reason why, in the form of JSON."
    assert [ask_grounds(n, "a", DAM, how) for n in range(50)] == [
        ask_grounds(n, "a", DAM) for n in range(50)
    ]
    words = " ".join(ask_grounds(n, "a", DAM, how)["why"] for n in range(200)).casefold()
    assert "valley" in words and "farmers" in words
    for word in ("short", "form", "json", "stance"):
        assert word not in words


@pytest.mark.parametrize("kind", ["utterance", "material", "summary", "value"])
def test_texts_beside_the_question_do_not_change_the_person(kind: Kind) -> None:
    shown = quote_value(
        "Four of them fear floods, and who pays for them? Tom: Nothing.", kind, "x.y/1"
    )
    alone, beside = ask_numbers(DAM, 0, 100), ask_numbers(DAM, 0, 100, shown, at="b")
    assert correlate(alone, beside) > 0.85


@pytest.mark.parametrize(("persuasion", "least", "most"), [(1.0, 4, 12), (0.0, -0.5, 0.5)])
def test_an_argument_moves_a_rating_and_a_text_on_nothing_does_not(
    persuasion: float, least: float, most: float
) -> None:
    """A planted effect on a leaning: .75·s·κ·n/(n + 8)·match of what is left to the top."""
    speech = (
        "It brings lonely neighbours together. It keeps costs predictable and spares taxpayers "
        "expensive repairs. There is evidence of savings, and fairness for the overlooked."
    )
    chat = (
        "Herons stand in the reeds all day, and at night foxes come down from the hill. The "
        "miller's daughter paints both of them in water colours on cardboard boxes."
    )
    hints = {"kind": "number", "offered": ("0", "100"), "knobs": {"persuasion": persuasion}}

    def mean(*shown: object) -> tuple[float, set[str]]:
        replies = [ask(n, DAM, *shown, **hints) for n in range(150)]
        return float(np.mean([float(x.text) for x in replies])), {x.finish for x in replies}

    base, ended = mean()
    assert ended == {"stop"}
    moved, ended = mean(quote_value(speech, "material", "study.speech"))
    assert least < moved - base < most and ended == {"stop"}
    same, ended = mean(quote_value(chat, "material", "study.chat"))
    assert same == base and ended == {FINISH_UNMOVED}
    assert mean(speech) == (base, {"stop"})  # as an instruction


def test_a_number_without_bounds_says_that_it_was_not_read() -> None:
    assert ask(1, "How many?", kind="number").finish == FINISH_UNREAD


@pytest.mark.parametrize("reverse", [False, True])
def test_people_speak_for_one_of_the_option_passages_whatever_their_order(reverse: bool) -> None:
    fruit = ("Apple tart", "Plum cake", "Cherry pie")
    shown = [quote_value(f, "option", "study.options") for f in fruit]
    for n in range(20):
        said = ask(n, "What to bake?", *(shown[::-1] if reverse else shown), kind="text").text
        held = [f for f in fruit if f in said]
        assert len(held) == 1
        assert held[0] in ask(n, "What to bake?", *shown, kind="text").text


class Odd(BaseModel):
    code: str = Field(min_length=3, max_length=12)
    few: list[int] = Field(min_length=2, max_length=4)
    by_name: dict[str, float]
    maybe: Literal[1, 2] | None
    inner: Grounds


def test_any_schema_validates() -> None:
    schema = Json(Odd).schema or {}
    for n in range(20):
        reply = ask(n, DAM, kind="json", schema=schema)
        Draft202012Validator(schema).validate(json.loads(reply.text))


def test_answers_that_have_no_relation_to_the_material_are_counted_in_the_runs_notes(
    tmp_path: Path,
) -> None:
    (tmp_path / "coding.py").write_text(CODING, "utf-8")
    (tmp_path / "s.yaml").write_text("study: ./coding.py\n", "utf-8")
    run = folkmoot.run(tmp_path / "s.yaml", model="synthetic", out=tmp_path / "run", trust=True)
    assert run.table("answers")["finish"].to_list() == [FINISH_UNREAD] * 3
    assert "3 answers were given by form alone" in run.folder.provenance_note
    assert "coder" in run.folder.provenance_note
    again = folkmoot.run(tmp_path / "s.yaml", model="synthetic", out=tmp_path / "run", trust=True)
    assert again.folder.provenance_note == run.folder.provenance_note


CODING = """
from folkmoot import BaseModel, Json, Session, Speaker, Study, StudyConfig

class Code(BaseModel):
    tone: int

async def protocol(session: Session[StudyConfig]) -> None:
    for n in range(3):
        coder = Speaker("coder", role="coder")
        await session.ask(coder, f"Code this text: a dog {n}.", answer_type=Json(Code))

STUDY = Study("coding", "Coding", StudyConfig, protocol)
"""


PLAIN = """
from folkmoot import Number, Session, Speaker, Study, StudyConfig

async def protocol(session: Session[StudyConfig]) -> None:
    for n in range(3):
        speech = "There is evidence of savings, and fairness for the overlooked."
        more = {"about": "the bridge", "shows": (speech,)} if n else {}
        who = Speaker(f"p{n}", system=f"You are number {n}.")
        prompt = f"{speech} Build the bridge? 0 to 999."
        await session.ask(who, prompt, answer_type=Number(0, 999), **more)

STUDY = Study("plain", "Plain", StudyConfig, protocol)
"""


def test_prompts_without_sources_are_read_as_one_text_and_the_note_of_the_run_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain.py").write_text(PLAIN, "utf-8")
    (tmp_path / "s.yaml").write_text("study: ./plain.py\n", "utf-8")

    def estimates(**settings: float) -> list[float]:
        changes = {"study": "./plain.py", "respondent": settings}
        out = tmp_path / f"run{len(settings)}"
        (tmp_path / "s.yaml").write_text(json.dumps(changes), "utf-8")
        run = folkmoot.run(tmp_path / "s.yaml", model="synthetic", out=out, trust=True)
        assert "3 prompts hold text without a recorded source" in run.folder.provenance_note
        return [float(x) for x in run.table("answers")["value"]]

    assert all(map(float.__gt__, estimates(), estimates(persuasion=0)))


# --- questions of other studies ------------------------------------------------------------------


def ask_objects(fields: Any, about: str, at: str = "a", **hints: Any) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    replies = (ask(k, about, at=at, kind="json", schema=schema, **hints) for k in range(150))
    return [json.loads(reply.text) for reply in replies]


def ask_choices(about: str, *options: str, at: str = "a", count: int = 150) -> list[str]:
    return [ask(k, about, at=at, kind="choice", offered=options).text for k in range(count)]


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_numbers_add_up_to_the_total_of_the_answer_type(kind: str) -> None:
    fields = {k: {"type": kind, "minimum": 0} for k in ("bread", "paint", "coal", "books")}
    once, again = (ask_objects(fields, "How to spend the money?", at, total=100) for at in "xy")
    assert all(round(sum(row.values()), 6) == 100 for row in once + again)
    assert correlate([row["coal"] for row in once], [row["coal"] for row in again]) > 0.85
    assert len({row["coal"] for row in once}) > 20 and min(map(min, map(dict.values, once))) >= 0


def test_two_numbers_on_one_matter_are_not_the_same_opinion() -> None:
    fields = {k: {"type": "number", "minimum": 0, "maximum": 10} for k in ("warmth", "trust")}
    once, again = (ask_objects(fields, "How do you see the ferrymen?", at) for at in "xy")
    assert correlate([row["warmth"] for row in once], [row["trust"] for row in once]) < 0.6
    for field in fields:
        assert correlate([row[field] for row in once], [row[field] for row in again]) > 0.85


def test_a_letter_is_another_option_in_each_question() -> None:
    barn, tower = (
        ask_choices("a barn of stone", "A", "B"),
        ask_choices("a tower by the sea", "A", "B"),
    )
    assert 0.3 < np.mean([a != b for a, b in zip(barn, tower, strict=True)]) < 0.7
    assert 0.3 < barn.count("A") / len(barn) < 0.7


def test_degrees_are_a_scale_and_not_to_know_is_its_middle() -> None:
    degrees = ("Very much", "Not at all", "Somewhat", "A little")
    ask_of = "Does {} bother you?"
    rank = {d: n for n, d in enumerate(("Not at all", "A little", "Somewhat", "Very much"))}
    smoke, again = (
        [rank[c] for c in ask_choices(ask_of.format("smoke"), *degrees, at=a)] for a in "xy"
    )
    dogs = [rank[c] for c in ask_choices(ask_of.format("barking of hounds"), *degrees)]
    assert (
        correlate(smoke, again) > 0.8
        and abs(correlate(smoke, dogs)) < 0.6
        and set(smoke) == {0, 1, 2, 3}
    )
    unsure = ask_choices("Cap the rents?", "Yes", "No", "Don't know", count=300)
    assert 0.05 < unsure.count("Don't know") / 300 < 0.3
    five = ("Agree", "Neither", "Disagree", "Not sure")
    assert ask_choices("Cap the rents?", *five, count=300).count("Neither") > 60
