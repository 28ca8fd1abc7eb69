"""The replies of a coder: codes of the codebook, for existing values, with quotes that occur in the
text."""

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
CODED_TEXT = TextToCode(
    "t1",
    "We’ll take the “Harbour Walk” for everybody — and Ann skips the museum.",
    slots={"option": ["Harbour walk", "Museum"], "member": ["Ann", "Bo"]},
)


def parse_codes(
    *codes: dict[str, Any], codebook: Codebook = DECISION, text: TextToCode = CODED_TEXT
) -> Any:
    return CodesAnswer(codebook, text).parse_reply(json.dumps({"codes": codes}))


def make_code(code: str, quote: str, **slots: Any) -> dict[str, Any]:
    return {"code": code, "quote": quote, **slots}


STANCE = Codebook.model_validate(
    {
        "name": "stance",
        "question": "Where do they stand?",
        "choose": "one",
        "codes": [{"name": name, "definition": name} for name in ("keen", "opposed")],
    }
)
THEMES = Codebook.model_validate({**STANCE.model_dump(), "name": "themes", "choose": "any"})


@pytest.mark.parametrize("no_code", ["none_of_these", "declined", "None of these"])
def test_a_coder_of_one_code_may_decline_without_a_reask(no_code: str) -> None:
    """Without these values the coder would have to choose a stance for any text."""
    text = TextToCode("t", "It rained on Tuesday.")
    codes = CodesAnswer(STANCE, text)
    items = codes.schema["properties"]["codes"]["items"]["properties"]["code"]
    assert items["enum"] == ["keen", "opposed", "none_of_these", "declined"]
    answer = parse_codes(make_code(no_code, ""), codebook=STANCE, text=text)
    assert isinstance(answer, Missing)
    assert answer.reason == no_code.lower().replace(" ", "_")
    # If no code is required, the list may be empty.
    several = CodesAnswer(THEMES, text).schema["properties"]["codes"]["items"]["properties"]["code"]
    assert several["enum"] == ["keen", "opposed"]


def test_none_of_these_beside_codes_is_ignored() -> None:
    answer = parse_codes(
        make_code("none_of_these", "", option="Museum", member="Bo"),
        make_code("dropped", "Ann skips", option="Museum", member="Ann"),
    )
    assert isinstance(answer, ParsedAnswer)
    assert [(code.code, dict(code.slots)["member"]) for code in answer.value] == [
        ("dropped", "Ann")
    ]


WALK_QUOTE = 'We\'ll take the "Harbour Walk" for everybody'


@pytest.mark.parametrize("members", ["all", "ALL", ["Ann", "Bo"], ["ann", "bo"]])
def test_a_code_for_several_values_is_one_code_for_each(members: object) -> None:
    answer = parse_codes(make_code("chosen", WALK_QUOTE, option="harbour walk", member=members))
    assert isinstance(answer, ParsedAnswer)
    assert [dict(code.slots) for code in answer.value] == [
        {"option": "Harbour walk", "member": "Ann"},
        {"option": "Harbour walk", "member": "Bo"},
    ]


def test_an_option_with_the_name_all_is_that_option() -> None:
    text = TextToCode(
        "t", CODED_TEXT.text, slots={"option": ["All", "Museum"], "member": ["Ann", "Ann", "Bo"]}
    )
    answer = parse_codes(make_code("chosen", WALK_QUOTE, option="all", member="Ann"), text=text)
    assert isinstance(answer, ParsedAnswer)
    assert [dict(code.slots) for code in answer.value] == [{"option": "All", "member": "Ann"}]


@pytest.mark.parametrize(
    ("invalid_code", "reason"),
    [
        (make_code("taken", WALK_QUOTE, option="Museum", member="Ann"), "not in the codebook"),
        (make_code("dropped", "skips", option="Zoo", member="Ann"), "none of its values"),
        (make_code("dropped", "skips", option="Museum"), "none of its values"),
        (make_code("dropped", "Bo skips", option="Museum", member="Bo"), "not in the text"),
        (make_code("dropped", "", option="Museum", member="Ann"), "not in the text"),
        (make_code("dropped", "“”", option="Museum", member="Ann"), "not in the text"),
    ],
)
def test_an_invalid_code_causes_a_reask_and_is_kept_as_rejected(
    invalid_code: dict[str, Any], reason: str
) -> None:
    valid_code = make_code("chosen", WALK_QUOTE, option="Harbour walk", member="Ann")
    answer = parse_codes(valid_code, invalid_code)
    assert isinstance(answer, ParseFailure) and reason in answer.problem
    salvaged = CodesAnswer(DECISION, CODED_TEXT).salvage_reply(
        json.dumps({"codes": [valid_code, invalid_code]})
    )
    assert salvaged is not None and [
        code.code for code in salvaged.value if not code.rejection_reason
    ] == ["chosen"]
    assert [
        reason in code.rejection_reason for code in salvaged.value if code.rejection_reason
    ] == [True]


def test_codes_that_exclude_each_other_are_rejected() -> None:
    contradicting_codes = [
        make_code(code, "Ann skips the museum", option="Museum", member="Ann")
        for code in ("chosen", "dropped")
    ]
    assert isinstance(parse_codes(*contradicting_codes), ParseFailure)
    salvaged = CodesAnswer(DECISION, CODED_TEXT).salvage_reply(
        json.dumps({"codes": contradicting_codes})
    )
    assert salvaged is not None and all(
        "exclude each other" in coded.rejection_reason for coded in salvaged.value
    )


def test_a_code_for_something_absent_needs_no_quote() -> None:
    answer = parse_codes(make_code("open", "", option="Museum", member="Bo"))
    assert isinstance(answer, ParsedAnswer)
    assert answer.value == (AssignedCode("open", "", {"option": "Museum", "member": "Bo"}),)


def test_an_empty_list_is_refused_if_one_code_is_required() -> None:
    assert isinstance(parse_codes(), ParseFailure)
    several = DECISION.model_copy(update={"choose": "any"})
    assert isinstance(parse_codes(codebook=several), ParsedAnswer)


KEEN = '{"code": "keen", "quote": "Ann skips the museum"}'


@pytest.mark.parametrize(
    "reply",
    [
        '{"codes": [',
        f'{{"codes": [{KEEN},',
        f'{{"codes": [{KEEN}, {{"code": "opposed", "quote": "Ann…',
        'I will not code this. {"codes": []}',
        'I will not code this.\n```json\n{"codes": []}\n```',
        '{"codes": [], "declined": "As an AI I cannot."}',
    ],
)
def test_a_cut_list_and_a_refusal_do_not_say_that_no_further_code_applies(reply: str) -> None:
    answer_type = CodesAnswer(THEMES, CODED_TEXT)
    assert isinstance(answer_type.parse_reply(reply), ParseFailure)
    assert answer_type.salvage_reply(reply) is None


def test_a_coder_declines_after_other_words() -> None:
    answer = CodesAnswer(THEMES, CODED_TEXT).parse_reply('Sure: {"codes": [], "declined": true}')
    assert isinstance(answer, Missing) and answer.reason == "declined"


@pytest.mark.parametrize("codes", ["[]", f"[{KEEN}]", f'[{KEEN[:-1]}, "declined": true}}]'])
def test_a_coder_declines_by_the_field_of_that_name(codes: str) -> None:
    is_in_entry = "declined" in codes
    declined = "" if is_in_entry else ', "declined": true'
    reply = f'{{"codes": {codes}{declined}}}'
    answer = CodesAnswer(THEMES, CODED_TEXT).parse_reply(reply)
    assert isinstance(answer, Missing) and answer.reason == "declined"


@pytest.mark.parametrize(
    "reply",
    [
        *('{"codes": []}', '```json\n{"codes": []}\n```', "{'codes': [],}"),
        'Sure! {"codes": []}',
        'None of the codes applies.\n\n```json\n{"codes": []}\n```',
        '{"codes": []}\n\nThe speaker says that they cannot take part in the walk.',
    ],
)
def test_an_empty_list_alone_says_that_no_code_applies(reply: str) -> None:
    answer = CodesAnswer(THEMES, CODED_TEXT).parse_reply(reply)
    assert isinstance(answer, ParsedAnswer) and answer.value == ()


@pytest.mark.parametrize("reply", ["", "too dear", "[]]", "{", '{"codes": 3}', "null"])
def test_malformed_replies_are_parse_failures(reply: str) -> None:
    answer_type = CodesAnswer(DECISION, CODED_TEXT)
    assert isinstance(answer_type.parse_reply(reply), ParseFailure)
    salvaged = answer_type.salvage_reply(reply)
    assert salvaged is None or not [code for code in salvaged.value if not code.rejection_reason]


SENTENCE = "we would not pay 20 $ for it — that’s dear, isn't it? “well” Straße"
WORDS = st.sampled_from(SENTENCE.split())
TEXTS = st.lists(WORDS, min_size=3, max_size=12)
QUOTE_VARIANTS = (
    str.upper,
    str.title,
    lambda t: f"“{t}”",
    lambda t: f'"{t}."',
    lambda t: f"…{t}...",
    lambda t: t.replace(" ", "\n  "),
    lambda t: t.replace("’", "'").replace("“", '"').replace("—", "-"),
)


@given(TEXTS, st.data())
def test_quotes_match_despite_case_quotation_marks_and_line_breaks(
    words: list[str], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    quote = " ".join(words[start:end])
    change_quote = data.draw(st.sampled_from(QUOTE_VARIANTS))
    if any(character.isalnum() for character in quote):
        assert quote_occurs_in(change_quote(quote), " ".join(words))


@given(TEXTS, st.data())
def test_a_quote_with_an_additional_word_does_not_match(
    words: list[str], data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(words)))
    additional_word = data.draw(st.sampled_from(["never", "pa", "ear", "0"]))
    assert not quote_occurs_in(
        " ".join([*words[:position], additional_word, *words[position:]]), " ".join(words)
    )


def test_the_coder_prompt_has_context_and_values() -> None:
    text = TextToCode(
        "t1", "Fine.", context={"concern": "The bus: it stops at 8 pm"}, slots=CODED_TEXT.slots
    )
    system = build_coder_prompt(CodesAnswer(DECISION, text))
    assert "it stops at 8 pm" in system and "Harbour walk; Museum" in system
    assert "- member: Ann; Bo" in system and "Fine." not in system and "t1" not in system


def test_the_embedded_coder_finds_the_codebook_in_any_prompt() -> None:
    answer_type = CodesAnswer(DECISION, CODED_TEXT)
    sentence = "The museum is given up by Ann."
    book = quote_value(DECISION.yaml_text, "material", f"codebooks.text/{DECISION.name}")
    system = concatenate_texts(("Xyz ", book, " zyx. The museum is reopened by Bo."), plain=None)
    text = quote_value(sentence, "utterance", "talk/ask0", "Ann")
    built = build_messages(Speaker("coder", system=system), EMPTY_TRANSCRIPT, text)
    request = ModelRequest(
        "synthetic", built.messages, schema=answer_type.schema, spans=built.spans
    )
    codes = json.loads(codes_of(request))["codes"]
    assert [code for code in codes if code["code"] != "open"] == [
        make_code("dropped", sentence, option="Museum", member="Ann")
    ]
    # Pairs of option and member without a sentence are coded as open.
    assert len(codes) == 4


@pytest.mark.parametrize(
    ("quote", "text", "expected"),
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
def test_quotes_match_whole_words_in_scripts_with_spaces(
    quote: str, text: str, expected: bool
) -> None:
    assert quote_occurs_in(quote, text) is expected
