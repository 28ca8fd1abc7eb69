"""Answers by their form, with a person behind them: for studies that tell nothing of themselves."""

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
from folkmoot.conversation.answers import Json
from folkmoot.models.request import (
    NOBODY,
    NOT_MOVED,
    NOT_READ,
    Message,
    ProviderSettings,
    Reply,
    Request,
    RespondentHints,
)
from folkmoot.respondent import Respondent
from folkmoot.respondent.reading import in_lines

EXAMPLES = Path(__file__).parents[2] / "examples"


def ask(
    system: str, prompt: str, asked: RespondentHints = NOBODY, *, at: str = "a", **more: Any
) -> Reply:
    messages = (Message("system", system), Message("user", prompt))
    request = Request("synthetic", messages, asked=asked, **more)
    return Respondent(ProviderSettings(seed=more.pop("seed", 3))).reply(request, at)


def person(n: int) -> str:
    return f"You are number {n} of the long street, with a life of your own."


class Grounds(BaseModel):
    share: float = Field(ge=0, le=1)
    trust: int = Field(ge=1, le=7)
    agree: Literal["strongly disagree", "disagree", "agree", "strongly agree"]
    colour: Literal["red", "green", "blue"]
    why: str


def grounds(n: int, at: str, question: str) -> dict[str, Any]:
    reply = ask(
        person(n), question, RespondentHints(kind="json"), at=at, schema=Json(Grounds).schema
    )
    return dict(json.loads(reply.text))


def r(a: list[float], b: list[float]) -> float:
    return float(np.corrcoef(a, b)[0, 1])


DAM = "Should the valley get a dam for the sake of the farmers below it?"
CATS = "Is a cat a better companion than a parrot on a long winter journey by ship?"


def test_a_person_asked_twice_says_nearly_the_same_and_another_question_is_another_matter() -> None:
    once = [grounds(n, f"x{n}", DAM) for n in range(300)]
    again = [grounds(n, f"y{n}", DAM) for n in range(300)]
    cats = [grounds(n, f"z{n}", CATS) for n in range(300)]
    for field in ("share", "trust"):
        first, second, other = ([row[field] for row in rows] for rows in (once, again, cats))
        assert r(first, second) > 0.85
        assert abs(r(first, other)) < 0.35
        assert np.std(first) > 0.15 * (max(first) - min(first))
    for field in ("agree", "colour"):
        same = np.mean([a[field] == b[field] for a, b in zip(once, again, strict=True)])
        assert same > 0.7
        assert {row[field] for row in once} == set(Grounds.model_fields[field].annotation.__args__)


def test_the_delphi_example_has_experts_with_opinions(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "delphi.py", tmp_path)
    study = (EXAMPLES / "delphi.yaml").read_text("utf-8").replace("experts: 12", "experts: 300")
    (tmp_path / "delphi.yaml").write_text(study, "utf-8")
    run = folkmoot.run(
        tmp_path / "delphi.yaml", model="synthetic", out=tmp_path / "run", trust=True
    )
    estimates = run.table("estimates")
    first, second = (estimates.filter(round=n)["estimate"].to_list() for n in (1, 2))
    assert r(first, second) > 0.8
    said = " ".join(estimates.filter(round=1)["main_reason"])
    assert "households" in said
    assert "taxpayers" not in said and "entrepreneurs" not in said


@given(
    st.integers(-1000, 1000),
    st.integers(1, 1000),
    st.sampled_from(["from {} to {}", "{}–{}", "[{}, {}]", "least {}, most {}", "{} … {}"]),
)
def test_a_number_lies_in_the_bounds_that_the_text_states(low: int, size: int, said: str) -> None:
    bounds = said.format(low, low + size)
    asked = RespondentHints(kind="number", offered=(str(low), str(low + size)))
    for pointers in (asked, RespondentHints(kind="number")) if low >= 0 else (asked,):
        reply = ask(person(1), f"How many boats lie in the harbour? {bounds}", pointers)
        assert low <= float(reply.text) <= low + size
        assert reply.finish == "stop"


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [
        ("Say anything from nought to a hundred.", 0, 100),
        ("On a scale of one to seven, and in one or two words why.", 1, 7),
        (
            "Name between twenty-five and two hundred of them, as one of the four on the pier.",
            25,
            200,
        ),
        ("Give at most twelve.", 0, 12),
    ],
)
def test_bounds_that_stand_in_words_are_read_too(said: str, low: int, high: int) -> None:
    question = f"How many boats should lie in the harbour over the winter? {said}"
    asked = RespondentHints(kind="number", offered=(str(low), str(high)))
    given = [ask(person(n), question, asked) for n in range(60)]
    numbers = [float(reply.text) for reply in given]
    assert {reply.finish for reply in given} == {"stop"}
    assert low <= min(numbers) < low + (high - low) / 5
    assert high >= max(numbers) > high - (high - low) / 5


class Guess(BaseModel):
    boats: float
    how_sure: int
    why: str


def test_a_field_without_bounds_keeps_to_those_that_the_prompt_states_for_it() -> None:
    schema = Json(Guess).schema
    prompt = (
        "How many boats will lie in the harbour? Reply as JSON: boats (anything from ten to "
        "ninety), how_sure (1-5) and why (one to two sentences)."
    )
    given = [
        json.loads(ask(person(n), prompt, RespondentHints(kind="json"), schema=schema).text)
        for n in range(60)
    ]
    for field, low, high in (("boats", 10, 90), ("how_sure", 1, 5)):
        values = [row[field] for row in given]
        assert low <= min(values) < low + (high - low) / 4
        assert high >= max(values) > high - (high - low) / 4


def test_a_paragraph_on_how_to_answer_is_not_what_is_asked() -> None:
    how = "Please give your stance, the share, and a short reason why, in the form of JSON."
    first = [grounds(n, f"a{n}", f"{DAM}\n\n{how}") for n in range(200)]
    again = [grounds(n, f"b{n}", f"{DAM}\n\n{how}") for n in range(200)]
    other = [grounds(n, f"c{n}", f"{CATS}\n\n{how}") for n in range(200)]
    shares = [[row["share"] for row in rows] for rows in (first, again, other)]
    assert r(shares[0], shares[1]) > 0.85
    assert abs(r(shares[0], shares[2])) < 0.5
    words = " ".join(row["why"] for row in first).casefold()
    assert "valley" in words and "farmers" in words
    for word in ("short", "form", "json", "stance"):
        assert word not in words


SHOWN = [
    "The panel's median is 55. Four of them fear floods, and two think of the lake. {}",
    "You said 40 before. {} Answer with a number from 0 to 100, rounded to a whole per cent.",
    "{}\n\nRosa: And what of the floods? Who pays for them?\nTom: I fear nothing at all.",
    "{}\n\nThe others in the panel fear floods, drowned fields and a lake that nobody needs.",
    "Somebody from the ministry has spoken of floods.\n\nRate this: {} From 0 to 100, please.",
]


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("asks", [DAM, "Say how far the valley needs a dam for its farmers."])
def test_what_is_shown_beside_the_question_does_not_make_another_person(
    shown: str, asks: str
) -> None:
    asked = RespondentHints(kind="number", offered=("0", "100"))

    def said(prompt: str, at: str) -> list[float]:
        prompt += "\n\nA number from 0 to 100 only."
        return [float(ask(person(n), prompt, asked, at=f"{at}{n}").text) for n in range(200)]

    assert r(said(asks, "a"), said(shown.format(asks), "b")) > 0.85


def test_a_statement_is_what_is_asked_where_the_question_says_nothing_by_itself() -> None:
    asked = RespondentHints(kind="choice", offered=("1", "2", "3", "4", "5"))

    def said(prompt: str, at: str) -> list[float]:
        prompt += " Answer with a number: 1, 2, 3, 4, 5."
        return [float(ask(person(n), prompt, asked, at=f"{at}{n}").text) for n in range(200)]

    phones, cats = "Schools should ban phones.", "Ships should carry parrots."
    ways = ["Here is a statement: {} How far do you agree?", "“{}”\n\nDo you agree?"]
    ways += ["How strongly do you agree with the following statement?\n\n{}\n\nTell us."]
    for way in ways:
        first, other = said(way.format(phones), "a"), said(way.format(cats), "b")
        assert r(first, said(way.format(phones), "c")) > 0.85
        assert r(first, other) < 0.6


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
    asked = RespondentHints(kind="number", offered=("0", "100"))
    model = Respondent(ProviderSettings(seed=3, options={"persuasion": persuasion}))

    def mean(text: str) -> tuple[float, set[str]]:
        prompt = f"{text}\n\n{DAM} Answer from 0 to 100."
        replies = [
            model.reply(
                Request(
                    "synthetic",
                    (Message("system", person(n)), Message("user", prompt)),
                    asked=asked,
                ),
                f"a{n}",
            )
            for n in range(300)
        ]
        return float(np.mean([float(x.text) for x in replies])), {x.finish for x in replies}

    base, ended = mean("")
    assert ended == {"stop"}
    moved, ended = mean(speech)
    assert least < moved - base < most and ended == {"stop"}
    same, ended = mean(chat)
    assert same == base and ended == {NOT_MOVED}


def test_a_number_without_bounds_says_that_it_was_not_read() -> None:
    assert ask(person(1), "How many?", RespondentHints(kind="number")).finish == NOT_READ


LISTS = [
    "1. {}\n2. {}\n3. {}",
    "- {}\n- {}\n- {}",
    "a) {}\nb) {}\nc) {}",
    '"{}", "{}" or "{}"',
    "[{}, {}, {}]",
    "Here they are: {}, {}, {}.",
]


@pytest.mark.parametrize("dress", LISTS)
def test_options_are_found_in_any_dress_and_order_without_being_pointed_at(dress: str) -> None:
    fruit = ("Apple tart", "Plum cake", "Cherry pie")
    for n in range(20):
        said = {
            ask(
                person(n), f"Vuno tasil?\n\n{dress.format(*order)}", RespondentHints(kind="choice")
            ).text
            for order in (fruit, fruit[::-1])
        }
        assert len(said) == 1 and said <= set(fruit)


def test_an_option_that_stands_nowhere_cannot_be_chosen() -> None:
    asked = RespondentHints(kind="choice", offered=("Dam", "No dam"))
    reply = ask(person(1), "What do you think about the river?", asked)
    assert reply.text not in asked.offered
    assert reply.finish == NOT_READ


class Odd(BaseModel):
    code: str = Field(min_length=3, max_length=12)
    few: list[int] = Field(min_length=2, max_length=4)
    by_name: dict[str, float]
    maybe: Literal[1, 2] | None
    inner: Grounds


def test_any_schema_validates() -> None:
    schema = Json(Odd).schema or {}
    for n in range(20):
        reply = ask(person(n), DAM, RespondentHints(kind="json"), schema=schema)
        Draft202012Validator(schema).validate(json.loads(reply.text))


def test_answers_that_have_no_relation_to_the_material_are_counted_in_the_runs_notes(
    tmp_path: Path,
) -> None:
    (tmp_path / "coding.py").write_text(CODING, "utf-8")
    (tmp_path / "s.yaml").write_text("study: ./coding.py\n", "utf-8")
    run = folkmoot.run(tmp_path / "s.yaml", model="synthetic", out=tmp_path / "run", trust=True)
    assert run.table("answers")["finish"].to_list() == [NOT_READ] * 3
    assert "3 answers were given by form alone" in run.folder.synthetic_note
    assert "coder" in run.folder.synthetic_note
    again = folkmoot.run(
        tmp_path / "s.yaml", model="synthetic", out=tmp_path / "run", trust=True, resume=True
    )
    assert again.folder.synthetic_note == run.folder.synthetic_note


CODING = """
from folkmoot import BaseModel, Json, Session, Speaker, Study, StudyConfig

class Code(BaseModel):
    tone: int

async def protocol(session: Session[StudyConfig]) -> None:
    for n in range(3):
        coder = Speaker("coder", role="coder")
        await session.ask(coder, f"Code this text: a dog {n}.", answer=Json(Code))

STUDY = Study("coding", "Coding", StudyConfig, protocol)
"""


def test_running_text_is_read_by_its_sentences_and_what_is_quoted_stays_whole() -> None:
    """A letter puts all that was said, and the question, into one paragraph."""
    text = (
        'Ann (A1) said, "It is late. Very late!" Then Bo, who is A2, said «No. Not yet.» '
        'You noted {"why": "It is late. So there."} and are asked now. Which is it, "a" or "b"?'
    )
    assert list(in_lines(text)) == [
        'Ann (A1) said, "It is late. Very late!"',
        "Then Bo, who is A2, said «No. Not yet.»",
        "You noted",
        '{"why": "It is late. So there."}',
        "and are asked now.",
        'Which is it, "a" or "b"?',
    ]
    for line in (
        "Ann: It is late. Very late!",
        'Ann: "It is late. Very late!"',
        "One {set} of two.",
    ):
        assert list(in_lines(line)) == [line]


# --- as studies ask that nobody here wrote -------------------------------------------------------


def numbers_of(prompt: str, low: float, high: float, at: str = "a", n: int = 150) -> list[float]:
    told = RespondentHints(kind="number", offered=(str(low), str(high)))
    return [float(ask(person(k), prompt, told, at=f"{at}{k}").text) for k in range(n)]


def objects(fields: Any, prompt: str, at: str = "a", n: int = 150) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    told = RespondentHints(kind="json")
    return [
        json.loads(ask(person(k), prompt, told, at=f"{at}{k}", schema=schema).text)
        for k in range(n)
    ]


def choices(prompt: str, *options: str, at: str = "a", n: int = 150) -> list[str]:
    told = RespondentHints(kind="choice", offered=options)
    return [ask(person(k), prompt, told, at=f"{at}{k}").text for k in range(n)]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("integer", "You have 100 points. Share them among the four so that nothing is left."),
        ("integer", "How would you spend the money? The four numbers must add up to 100."),
        ("number", "Distribute 100 per cent over these purposes as you think right."),
    ],
)
def test_numbers_that_must_add_up_do_and_stay_a_persons_own(kind: str, wanted: str) -> None:
    fields = {k: {"type": kind, "minimum": 0} for k in ("bread", "paint", "coal", "books")}
    once, again = (objects(fields, wanted, at) for at in "xy")
    assert all(round(sum(row.values()), 6) == 100 for row in once + again)
    assert r([row["coal"] for row in once], [row["coal"] for row in again]) > 0.85
    assert len({row["coal"] for row in once}) > 20 and min(map(min, map(dict.values, once))) >= 0


def test_each_statement_of_a_list_is_a_matter_of_its_own_as_if_asked_alone() -> None:
    said = ["Ferries should be free.", "Wolves belong in these hills.", "Poetry is for the young."]
    scale = {"type": "integer", "minimum": 1, "maximum": 7}
    table = "\n".join(f"| q{n} | {text} |" for n, text in enumerate(said, 1))
    lines = "\n".join(f"{n}. {text}" for n, text in enumerate(said, 1))
    for shown in (table, lines):
        rows = objects({f"q{n}": scale for n in (1, 2, 3)}, f"Rate each from 1 to 7.\n\n{shown}")
        each = [[row[f"q{n}"] for row in rows] for n in (1, 2, 3)]
        assert abs(r(each[0], each[1])) < 0.35 and abs(r(each[1], each[2])) < 0.35
        for text, listed in zip(said, each, strict=True):
            alone = f'Do you agree? "{text}" Anything from 1 to 7.'
            assert r(listed, numbers_of(alone, 1, 7, "z")) > 0.8


def test_two_numbers_on_one_question_are_not_the_same_opinion() -> None:
    fields = {k: {"type": "number", "minimum": 0, "maximum": 10} for k in ("warmth", "trust")}
    once, again = (objects(fields, "Ferrymen: give warmth and trust, 0 to 10.", at) for at in "xy")
    assert r([row["warmth"] for row in once], [row["trust"] for row in once]) < 0.6
    for field in fields:
        assert r([row[field] for row in once], [row[field] for row in again]) > 0.85


BARN = "an old barn of stone, 90 metres from the well, 400 a month"
TOWER = "a tower with a view, up 80 steps, 300 a month"


@pytest.mark.parametrize(
    "shown",
    [
        "Profile A\n{}\n\nProfile B\n{}\n\nWhich would you move into, A or B?",
        "A) {}\nB) {}\n\nWhere would you live? Say A or B.",
        "| | A | B |\n|---|---|---|\n| what | {} | {} |\n\nA or B?",
    ],
)
def test_a_letter_is_liked_for_what_stands_under_it(shown: str) -> None:
    one = choices(shown.format(BARN, TOWER), "A", "B", at="x")
    turned = choices(shown.format(TOWER, BARN), "A", "B", at="y")
    assert np.mean([a != b for a, b in zip(one, turned, strict=True)]) > 0.88
    assert 0.3 < one.count("A") / len(one) < 0.7


def test_degrees_are_a_scale_and_not_to_know_is_its_middle() -> None:
    degrees = ("Very much", "Not at all", "Somewhat", "A little")
    ask_of = "Does {} bother you not at all, a little, somewhat or very much? " + "/".join(degrees)
    rank = {d: n for n, d in enumerate(("Not at all", "A little", "Somewhat", "Very much"))}
    smoke, again = (
        [rank[c] for c in choices(ask_of.format("smoke"), *degrees, at=a)] for a in "xy"
    )
    dogs = [rank[c] for c in choices(ask_of.format("barking of hounds"), *degrees)]
    assert r(smoke, again) > 0.8 and abs(r(smoke, dogs)) < 0.6 and set(smoke) == {0, 1, 2, 3}
    unsure = choices("Cap the rents? Yes, No or Don't know", "Yes", "No", "Don't know", n=300)
    assert 0.05 < unsure.count("Don't know") / 300 < 0.3
    five = ("Agree", "Neither", "Disagree", "Not sure")
    assert choices("Cap the rents? " + ", ".join(five), *five, n=300).count("Neither") > 60


def test_below_nought_is_read_and_headings_hide_no_question() -> None:
    warmth = "How warm do you feel towards {}? From −5 (ice cold) over 0 to +5 (very warm)."
    monks = numbers_of(warmth.format("monks"), -5, 5, "x")
    assert min(monks) < -3 and max(monks) > 3
    assert abs(r(monks, numbers_of(warmth.format("millers of flour"), -5, 5))) < 0.6
    how = "Give your probability as a decimal between 0.00 (impossible) and 1.00 (certain)."
    rain, snow = (
        f"Forecasting question 3: Will {w}?\n{how}" for w in ("rain fall", "lambs thrive")
    )
    assert abs(r(numbers_of(rain, 0, 1), numbers_of(snow, 0, 1))) < 0.5
    once, more = ("should the town buy the brewery?", "Once more: should the town buy the brewery?")
    scale = "\nFrom 0 to 100, please."
    assert r(numbers_of(once + scale, 0, 100, "x"), numbers_of(more + scale, 0, 100, "y")) > 0.85
