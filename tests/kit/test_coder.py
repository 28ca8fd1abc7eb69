"""What a coder's reply must be: codes of the codebook, of values that there are, with quotes that
stand in the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import Missing, ParsedAnswer, ParseFailure
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, build_messages
from folkmoot.kit.coding.codebook import Codebook
from folkmoot.kit.coding.coder import (
    AssignedCode,
    CodesAnswer,
    TextToCode,
    build_coder_prompt,
    quote_occurs_in,
)
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import concatenate_texts, quote_value
from folkmoot.respondent.replies.coder import codes_of

DECISION = Codebook.model_validate(
    {
        "name": "decision",
        "question": "Who gets what?",
        "choose": "one",
        "slots": {"option": "what is decided on", "member": "for whom"},
        "codes": [
            {"name": "chosen", "definition": "The option is chosen."},
            {"name": "dropped", "definition": "The option is given up."},
            {"name": "open", "definition": "It is not decided.", "quoted": False},
        ],
    }
)
SAID = TextToCode(
    "t1",
    "We’ll take the “Harbour Walk” for everybody — and Ann skips the museum.",
    slots={"option": ["Harbour walk", "Museum"], "member": ["Ann", "Bo"]},
)


def read(*codes: dict[str, Any], book: Codebook = DECISION, text: TextToCode = SAID) -> Any:
    return CodesAnswer(book, text).parse_reply(json.dumps({"codes": codes}))


def given_code(code: str, quote: str, **of: Any) -> dict[str, Any]:
    return {"code": code, "quote": quote, **of}


STANCE = Codebook.model_validate(
    {
        "name": "stance",
        "question": "Where do they stand?",
        "choose": "one",
        "codes": [{"name": name, "definition": name} for name in ("keen", "opposed")],
    }
)
THEMES = Codebook.model_validate({**STANCE.model_dump(), "name": "themes", "choose": "any"})


@pytest.mark.parametrize("way_out", ["none_of_these", "declined", "None of these"])
def test_a_coder_of_one_code_has_a_way_out_and_is_not_asked_again(way_out: str) -> None:
    """The enumeration left only stances to choose from, whatever the text said."""
    text = TextToCode("t", "It rained on Tuesday.")
    codes = CodesAnswer(STANCE, text)
    items = codes.schema["properties"]["codes"]["items"]["properties"]["code"]
    assert items["enum"] == ["keen", "opposed", "none_of_these", "declined"]
    got = read(given_code(way_out, ""), book=STANCE, text=text)
    assert isinstance(got, Missing)
    assert got.reason == way_out.lower().replace(" ", "_")
    # Where no code need apply, the list may be empty.
    several = CodesAnswer(THEMES, text).schema["properties"]["codes"]["items"]["properties"]["code"]
    assert several["enum"] == ["keen", "opposed"]


def test_a_way_out_beside_codes_leaves_these() -> None:
    got = read(
        given_code("none_of_these", "", option="Museum", member="Bo"),
        given_code("dropped", "Ann skips", option="Museum", member="Ann"),
    )
    assert isinstance(got, ParsedAnswer)
    assert [(c.code, dict(c.slots)["member"]) for c in got.value] == [("dropped", "Ann")]


WALK = 'We\'ll take the "Harbour Walk" for everybody'


@pytest.mark.parametrize("who", ["all", "ALL", ["Ann", "Bo"], ["ann", "bo"]])
def test_a_code_of_several_values_is_a_code_of_each(who: object) -> None:
    got = read(given_code("chosen", WALK, option="harbour walk", member=who))
    assert isinstance(got, ParsedAnswer)
    assert [dict(c.slots) for c in got.value] == [
        {"option": "Harbour walk", "member": "Ann"},
        {"option": "Harbour walk", "member": "Bo"},
    ]


def test_an_option_that_is_called_all_is_that_option() -> None:
    text = TextToCode(
        "t", SAID.text, slots={"option": ["All", "Museum"], "member": ["Ann", "Ann", "Bo"]}
    )
    got = read(given_code("chosen", WALK, option="all", member="Ann"), text=text)
    assert isinstance(got, ParsedAnswer)
    assert [dict(c.slots) for c in got.value] == [{"option": "All", "member": "Ann"}]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (given_code("taken", WALK, option="Museum", member="Ann"), "not in the codebook"),
        (given_code("dropped", "skips", option="Zoo", member="Ann"), "none of its values"),
        (given_code("dropped", "skips", option="Museum"), "none of its values"),
        (given_code("dropped", "Bo skips", option="Museum", member="Bo"), "not in the text"),
        (given_code("dropped", "", option="Museum", member="Ann"), "not in the text"),
        (given_code("dropped", "“”", option="Museum", member="Ann"), "not in the text"),
    ],
)
def test_what_cannot_be_taken_is_asked_again_and_kept_only_as_refused(
    wrong: dict[str, Any], why: str
) -> None:
    right = given_code("chosen", WALK, option="Harbour walk", member="Ann")
    got = read(right, wrong)
    assert isinstance(got, ParseFailure) and why in got.problem
    kept = CodesAnswer(DECISION, SAID).salvage_reply(json.dumps({"codes": [right, wrong]}))
    assert kept is not None and [c.code for c in kept.value if not c.rejection_reason] == ["chosen"]
    assert [why in c.rejection_reason for c in kept.value if c.rejection_reason] == [True]


def test_codes_that_exclude_each_other_are_both_refused() -> None:
    both = [
        given_code(code, "Ann skips the museum", option="Museum", member="Ann")
        for code in ("chosen", "dropped")
    ]
    assert isinstance(read(*both), ParseFailure)
    kept = CodesAnswer(DECISION, SAID).salvage_reply(json.dumps({"codes": both}))
    assert kept is not None and all("exclude each other" in c.rejection_reason for c in kept.value)


def test_a_code_for_what_is_absent_needs_no_quote() -> None:
    got = read(given_code("open", "", option="Museum", member="Bo"))
    assert isinstance(got, ParsedAnswer)
    assert got.value == (AssignedCode("open", "", {"option": "Museum", "member": "Bo"}),)


def test_one_code_is_wanted_where_one_must_be_chosen() -> None:
    assert isinstance(read(), ParseFailure)
    several = DECISION.model_copy(update={"choose": "any"})
    assert isinstance(read(book=several), ParsedAnswer)


@pytest.mark.parametrize("reply", ["", "too dear", "[]]", "{", '{"codes": 3}', "null"])
def test_no_reply_breaks_the_reader(reply: str) -> None:
    wanted = CodesAnswer(DECISION, SAID)
    assert isinstance(wanted.parse_reply(reply), ParseFailure)
    kept = wanted.salvage_reply(reply)
    assert kept is None or not [c for c in kept.value if not c.rejection_reason]


SENTENCE = "we would not pay 20 $ for it — that’s dear, isn't it? “well” Straße"
WORDS = st.sampled_from(SENTENCE.split())
TEXTS = st.lists(WORDS, min_size=3, max_size=12)
DRESSES = (
    str.upper,
    str.title,
    lambda t: f"“{t}”",
    lambda t: f'"{t}."',
    lambda t: f"…{t}...",
    lambda t: t.replace(" ", "\n  "),
    lambda t: t.replace("’", "'").replace("“", '"').replace("—", "-"),
)


@given(TEXTS, st.data())
def test_a_quote_is_found_in_any_dress(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    quote = " ".join(words[start:end])
    dress = data.draw(st.sampled_from(DRESSES))
    if any(c.isalnum() for c in quote):
        assert quote_occurs_in(dress(quote), " ".join(words))


@given(TEXTS, st.data())
def test_a_quote_with_a_word_that_was_not_said_is_not_found(
    words: list[str], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(words)))
    other = data.draw(st.sampled_from(["never", "pa", "ear", "0"]))
    assert not quote_occurs_in(" ".join([*words[:place], other, *words[place:]]), " ".join(words))


def test_the_coder_is_told_what_the_question_refers_to_and_the_values() -> None:
    text = TextToCode(
        "t1", "Fine.", context={"concern": "The bus: it stops at 8 pm"}, slots=SAID.slots
    )
    system = build_coder_prompt(CodesAnswer(DECISION, text))
    assert "it stops at 8 pm" in system and "Harbour walk; Museum" in system
    assert "- member: Ann; Bo" in system and "Fine." not in system and "t1" not in system


def test_the_embedded_coder_reads_the_codebook_in_any_wording() -> None:
    wanted = CodesAnswer(DECISION, SAID)
    sentence = "The museum is given up by Ann."
    book = quote_value(DECISION.yaml_text, "material", f"codebooks.text/{DECISION.name}")
    system = concatenate_texts(("Xyz ", book, " zyx. The museum is reopened by Bo."), plain=None)
    text = quote_value(sentence, "utterance", "talk/ask0", "Ann")
    asked = build_messages(Speaker("coder", system=system), EMPTY_TRANSCRIPT, text)
    request = ModelRequest("synthetic", asked.messages, schema=wanted.schema, spans=asked.spans)
    said = json.loads(codes_of(request))["codes"]
    assert [c for c in said if c["code"] != "open"] == [
        given_code("dropped", sentence, option="Museum", member="Ann")
    ]
    # What no sentence speaks of is said to be open, of each option and member.
    assert len(said) == 4


@pytest.mark.parametrize(
    ("quote", "text", "there"),
    [
        ("太贵了", "我觉得太贵了，不会买。", True),
        ("太便宜", "我觉得太贵了，不会买。", False),
        ("แพงไป", "ฉันคิดว่ามันแพงไปหน่อย", True),
        ("дорого", "Это слишком дорого!", True),
        ("дорог", "Это слишком дорого!", False),
        ("20", "It costs 2024 crowns.", False),
        ("price", "overpriced, at that price", True),
    ],
)
def test_quotes_are_whole_words_where_a_script_has_them(quote: str, text: str, there: bool) -> None:
    assert quote_occurs_in(quote, text) is there
