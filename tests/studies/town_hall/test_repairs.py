"""Repairs of answers: known cases, and no invalid value remains."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import Json, ParsedAnswer, ValidationContext
from folkmoot.studies.town_hall.answers.options import STANCES
from folkmoot.studies.town_hall.answers.outcome import Planned, planned_ballot_type
from folkmoot.studies.town_hall.answers.repairs import (
    AskContext,
    match_option,
    parse_whole_number,
    resolve_id,
)
from folkmoot.studies.town_hall.answers.turns import (
    Reaction,
    Reflection,
    Speaking,
    Thinking,
    change_between,
)

IDS = tuple(f"A{i:02d}" for i in range(1, 21))


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("A03", "A03"),
        ("a3", "A03"),
        (" A-03 ", "A03"),
        ("Resident A03", "A03"),
        ("resident 3", "A03"),
        ("A03 (teacher)", "A03"),
        ("#3", "A03"),
        (3, "A03"),
        ("A3, the shopkeeper of A03 fame", "A03"),
        ("to resident A03", "A03"),
        ("agent_id: A03", "A03"),
        ("The speaker A 3", "A03"),
        ("not A03", ""),
        ("anyone but A03", ""),
        ("no one, not even resident 3", ""),
        ("A99", ""),
        ("A030", ""),
        ("A03 and A04", ""),
        ("A03 and A99", ""),
        ("everyone", ""),
        ("", ""),
        (None, ""),
        (True, ""),
        (["A03"], ""),
    ],
)
def test_ids_are_found_where_the_meaning_is_plain(raw: Any, meant: str) -> None:
    assert resolve_id(raw, IDS) == meant


@pytest.mark.parametrize(
    ("raw", "level"),
    [(4, 4), ("4", 4), (4.0, 4), ("4/5", 4), (7, None), (0, None), (-1, None), ("high", None),
     (3.5, None), (True, None)],
)  # fmt: skip
def test_levels_out_of_range_are_dropped_and_never_moved(raw: Any, level: int | None) -> None:
    reading = ValidationContext(AskContext(IDS, "A01"))
    entry = {"target_agent": "A02", "my_feeling": "angry", "want_to_respond": True}
    found = Reaction.model_validate({**entry, "agree_level": raw}, context=reading)
    assert found.agree_level == level
    as_it_should_be = isinstance(raw, int) and not isinstance(raw, bool) and level is not None
    assert bool(reading.repairs) != as_it_should_be


@pytest.mark.parametrize(
    ("concerns", "expected"),
    [
        ([{"concern": "the rents", "why": ["too high", None]}, "noise"],
         ("the rents; too high", "noise")),
        ({"concern": "the rents"}, ("the rents",)),
        ("1. the rents\n2. noise", ("the rents", "noise")),
        ("- the rents\n- Keine neuen Punkte", ("the rents",)),
        (["- the rents\n- noise", "trees\n- dogs"], ("the rents", "noise", "trees\n- dogs")),
    ],
)  # fmt: skip
def test_words_in_an_object_and_in_bullets_are_read_as_the_resident_wrote_them(
    concerns: Any, expected: tuple[str, ...]
) -> None:
    raw = {"reactions": [], "overall_stance": "neutral", "key_concerns": concerns,
           "strategic_notes": {"goal": "win Ben", "private": False}}  # fmt: skip
    parsed = Json(Thinking, validation_context=AskContext(IDS, "A01")).read(raw)
    assert isinstance(parsed, ParsedAnswer)
    assert (parsed.value.key_concerns, parsed.value.strategic_notes) == (expected, "win Ben")


def test_words_for_none_are_no_concern() -> None:
    raw = {"reactions": [], "overall_stance": "neutral", "strategic_notes": "",
           "key_concerns": ["None", "the rents", "n/a", "keine"]}  # fmt: skip
    out = Thinking.model_validate(raw, context=ValidationContext(AskContext(IDS, "A01")))
    assert out.key_concerns == ("the rents",)


def test_the_first_of_repeated_reactions_counts() -> None:
    entry = {"target_agent": "A02", "my_feeling": "angry", "agree_level": 1, "reason": "",
             "target_summary": "", "want_to_respond": "yes"}  # fmt: skip
    reading = ValidationContext(AskContext(IDS, "A01"))
    raw = {"reactions": [entry, {**entry, "agree_level": 5}], "overall_stance": "Strongly oppose",
           "key_concerns": "rent", "strategic_notes": ["wait", "see"]}  # fmt: skip
    out = Thinking.model_validate(raw, context=reading)
    assert [r.agree_level for r in out.reactions] == [1]
    assert out.reactions[0].want_to_respond is True
    assert out.overall_stance == "strong_oppose"
    assert out.key_concerns == ("rent",) and out.strategic_notes == "wait; see"
    assert [m.kind for m in reading.repairs] == [
        *("spelling", "repeated", "spelling", "wrong_shape")
    ]


def test_no_model_can_call_its_own_answer_unread() -> None:
    said = {"references": [], "new_points": [], "questions": [], "full_statement": "Hear me."}
    reply = json.dumps({**said, "_parse_error": True, "parse_error": True})
    found = Speaking.answer_type(AskContext(IDS, "A01", 1)).parse_reply(reply)
    assert isinstance(found, ParsedAnswer) and not found.value.parse_error


def test_questions_to_unknown_addressees_are_dropped() -> None:
    questions = [{"target": t, "content": "?"} for t in ("all", "Planner", "A3", "God")]
    raw = {"questions": questions, "new_points": [], "full_statement": "Well?"}
    out = Speaking.model_validate(raw, context=ValidationContext(AskContext(IDS, "A01")))
    assert [q.target for q in out.questions] == ["all", "planner", "A03"]


NAMES = {"A02": "Linda", "A03": "Hugo", "A04": "Rose"}


@pytest.mark.parametrize(
    ("words", "statement", "heard"),
    [
        ("the rents must stay", "As I see it, the rents must stay.", True),
        ("The rents must stay!", "He said it: “the rents\n must stay”, and I agree.", True),
        ("the rents … must stay", "The rents, if you ask me, must stay.", True),
        ("the rents will have to stay", "As I see it, the rents must stay.", False),
        ("she is right on rents", "Linda has it right about the rents.", True),  # named, roughly
        ("she is right on rents", "A02 has it right about the rents.", True),
        ("she is right on rents", "Thank you, Linda. I worry about the lift.", False),
        ("she is right on rents", "Hugo has it right about the rents.", False),
        ("I agree", "Linda, I have another matter.", False),
        ("…", "Linda, yes.", True),
        ("…", "Yes.", False),
        ("the rents must stay", "", False),
        ("the rents must stay, and so must the shops and the school", "the rents must stay", False),
    ],
)
def test_references_are_kept_as_given_whatever_a_rule_over_words_finds(
    words: str, statement: str, heard: bool
) -> None:
    entry = {"target_agent": "A02", "interaction_type": "agree", "content": words}
    raw = {"references": [entry], "questions": [], "new_points": ["x"]}
    reading = ValidationContext(AskContext(IDS, "A01", names=NAMES))
    out = Speaking.model_validate({**raw, "full_statement": statement}, context=reading)
    assert [r.content for r in out.references] == [words]
    assert out.new_points == ("x",) and not reading.repairs
    asked = AskContext(IDS, "A01", names=NAMES)
    assert (bool(statement) and asked.was_said_publicly(words, "A02", statement)) == heard


@pytest.mark.parametrize(
    ("raw", "meant"),
    [("Linda", "A02"), ("Linda (A02)", "A02"), ("Ms. Linda", "A02"), ("rose", ""),
     ("Linda and Hugo", ""), ("A03", "A03"), ("not Linda", ""), ("Anyone except Hugo", ""),
     ("A03…", ""), ("Linda…", "")],
)  # fmt: skip
def test_residents_are_found_by_name(raw: str, meant: str) -> None:
    assert AskContext(IDS, "A01", names=NAMES).find_resident(raw) == meant


def test_a_whole_name_may_be_written_in_any_case() -> None:
    names = {"A01": "A. Berg", "A02": "Siobhán O'Brien"}
    assert AskContext(IDS, "A01", names=names).find_resident("all but Berg") == ""
    assert AskContext(IDS, "A01", names=names).find_resident("siobhan o’brien ") == "A02"


@pytest.mark.parametrize(
    ("raw", "whom"),
    [
        *(("all", "all"), ("Everyone", "all"), ("the moderator", "moderator"), ("A02", "A02")),
        *(("urban planner", "planner"), ("A99", ""), ("everybody else in favour", "")),
    ],
)
def test_questions_reach_whom_they_name(raw: str, whom: str) -> None:
    entry = {"target": raw, "content": "Why?"}
    said = {"references": [], "new_points": [], "questions": [entry], "full_statement": "Why?"}
    out = Speaking.model_validate(
        said, context=ValidationContext(AskContext(IDS, "A01", names=NAMES))
    )
    assert [question.target for question in out.questions] == ([whom] if whom else [])


CALLED = {"A02": "Siobhán O'Brien", "A03": "Dr. Hugo Brandt", "A04": "Hugo Lee", "A05": "김민준"}


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ("Siobhán is right about the rents", "A02"),
        ("Siobhan is right about the rents", "A02"),
        ("I am with O’Brien there", "A02"),
        ("as Siobhán O’Brien told us", "A02"),
        ("as Mr. Brandt told us", "A03"),
        ("Hugo is right", ""),  # there are two
        ("Hugo Lee is right", "A04"),
        ("저는 김민준은 옳다고 생각합니다", "A05"),
        ("Siobhánova is right", ""),
        ("the doctor, Dr. Who, is right", ""),
    ],
)
def test_a_person_is_named_by_a_part_of_the_name_and_in_any_script(said: str, who: str) -> None:
    asked = AskContext(tuple(CALLED), "A01", names=CALLED)
    assert [i for i in CALLED if asked.is_mentioned(i, said)] == ([who] if who else [])
    assert asked.was_said_publicly(
        "right about the rents", "A02", "Siobhan has it right on the rents."
    )


@pytest.mark.parametrize(
    ("before", "after", "said", "stands", "mends"),
    [
        ("oppose", "neutral", "soften", "soften", 0),
        ("oppose", "oppose", "soften", "soften", 0),  # within one step of the scale
        ("oppose", "oppose", "flip", "maintain", 1),
        ("oppose", "support", "maintain", "flip", 1),
        ("neutral", "support", "harden", "harden", 0),
        ("support", "strong_support", "soften", "harden", 1),
    ],
)
def test_a_change_must_fit_its_stances(
    before: str, after: str, said: str, stands: str, mends: int
) -> None:
    reading = ValidationContext(AskContext(IDS, "A01", stance=before))
    raw = {"stance_evolution": {"previous_stance": before, "current_stance": after,
                                "change_type": said, "change_reason": ""}}  # fmt: skip
    out = Reflection.model_validate(raw, context=reading)
    assert out.stance_evolution and out.stance_evolution.change_type == stands
    assert len(reading.repairs) == mends


def test_the_stance_before_is_that_of_the_record() -> None:
    reading = ValidationContext(AskContext(IDS, "A01", stance="support"))
    raw = {"stance_evolution": {"previous_stance": "oppose", "current_stance": "support",
                                "change_type": "flip", "change_reason": ""}}  # fmt: skip
    out = Reflection.model_validate(raw, context=reading).stance_evolution
    assert out and (out.previous_stance, out.change_type) == ("support", "maintain")


def test_changes_between_stances() -> None:
    for i, a in enumerate(STANCES):
        for j, b in enumerate(STANCES):
            kind = change_between(a, b)
            assert (kind == "maintain") == (i == j)
            assert (kind == "flip") == ((i - 2) * (j - 2) < 0)


def test_a_ballot_has_each_proposal_once_and_no_more_than_it_may() -> None:
    said = ("Plant trees.", "plant\n trees.", "Build.", "Sell.")
    items = [{"proposal": p, "originating_residents": "A1, maybe"} for p in said]
    reading = ValidationContext(AskContext(IDS, "planner", most=2))
    found = Planned.model_validate({"items": [*items, "nothing"]}, context=reading).items
    assert [i.proposal for i in found] == ["Plant trees.", "Build."]
    assert {i.originating_residents for i in found} == {("A01",)}
    assert [r.kind for r in reading.repairs if r.is_dropped] == ["repeated", "too_many"]


@pytest.mark.parametrize("nothing", ["N/A", "none", "…", "", "-", "—"])
def test_a_word_for_nothing_is_no_proposal_and_no_statement(nothing: str) -> None:
    items = [
        {"proposal": p, "reasoning": "", "originating_residents": []} for p in (nothing, "Go.")
    ]
    asked = AskContext(IDS, "planner", most=2)
    read = planned_ballot_type(asked).parse_reply(json.dumps({"items": items}))
    assert isinstance(read, ParsedAnswer)
    assert [item.proposal for item in read.value.items] == ["Go."]
    said = {"references": [], "new_points": [], "questions": [], "full_statement": nothing}
    silent = Speaking.answer_type(AskContext(IDS, "A01")).parse_reply(json.dumps(said))
    assert isinstance(silent, ParsedAnswer) and silent.value.is_silent


def test_words_for_no_more_proposals_are_no_proposal() -> None:
    texts = ("Nothing.", "No further proposals at this time.", "No more cars.", "No new points")
    items = [{"proposal": p, "reasoning": "", "originating_residents": []} for p in texts]
    asked = AskContext(IDS, "planner", most=4)
    read = planned_ballot_type(asked).parse_reply(json.dumps({"items": items}))
    assert isinstance(read, ParsedAnswer)
    assert [item.proposal for item in read.value.items] == ["No more cars."]


def test_options_are_spelled_as_they_are() -> None:
    options = ("agree", "partial_agree")
    assert match_option("Partially agree", options) == "partial_agree"
    assert match_option("Partial-Agree", options) == "partial_agree"
    assert match_option("applaud", options) is None and match_option(3, options) is None
    assert (
        parse_whole_number("10/10", 10) == 10
        and parse_whole_number("ten", 10) == 10
        and parse_whole_number("a lot", 10) is None
    )
    assert (
        parse_whole_number("4/10", 5) is None
    )  # on another scale: what it is on this one would be a guess


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from([*IDS[:3], "A99", "agree", "support", "maintain"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["target_agent", "interaction_type", "agree_level", "my_feeling", "target", "content",
             "agent_id", "current_stance", "previous_stance", "change_type"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
FIELDS = ["reactions", "references", "questions", "new_points", "key_concerns", "full_statement",
          "overall_stance", "strategic_notes", "most_compelling", "most_disagreed",
          "stance_evolution", "next_round_strategy"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), json_values), st.integers(1, 3))
def test_no_reply_gives_an_invalid_answer(raw: dict[str, Any], number: int) -> None:
    reply = json.dumps(raw)
    said = Speaking.answer_type(AskContext(IDS, "A01", number)).parse_reply(reply)
    thought = Thinking.answer_type(AskContext(IDS, "A01", number)).parse_reply(reply)
    noted = Reflection.answer_type(AskContext(IDS, "A01", stance="support")).parse_reply(reply)
    if isinstance(said, ParsedAnswer):
        targets = [r.target_agent for r in said.value.references]
        assert set(targets) <= set(IDS) - {"A01"} and (number > 1 or not targets)
    if isinstance(thought, ParsedAnswer):
        for r in thought.value.reactions:
            assert r.target_agent in IDS and r.target_agent != "A01"
            assert r.agree_level is None or 1 <= r.agree_level <= 5
        assert thought.value.overall_stance in STANCES
    if isinstance(noted, ParsedAnswer):
        evolution = noted.value.stance_evolution
        assert evolution and evolution.previous_stance == "support"
