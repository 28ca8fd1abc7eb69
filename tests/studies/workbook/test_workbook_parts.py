"""Parts without model calls: options, replies, computed values, assignment, permutations."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook

from folkmoot.conversation.answer_types import Missing, ParsedAnswer, ParseFailure
from folkmoot.studies.workbook.answers import (
    FreeOptions,
    ListedOptions,
    NumberRange,
    WorkbookAnswer,
    format_options,
    read_options,
)
from folkmoot.studies.workbook.config import Computed, Task
from folkmoot.studies.workbook.language.expressions import (
    EvaluationContext,
    ExpressionProblem,
    evaluate_for,
    in_order,
)
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.participants import (
    assign_balanced,
    assign_sessions,
    build_experiments,
)
from folkmoot.studies.workbook.preparation import design_size, load_workbook_config
from folkmoot.studies.workbook.protocol import order_tasks, sessions_of
from tests.studies.workbook.workbook_builder import (
    evaluate_expression,
    find_mistakes,
    make_workbook,
    read_config,
    save_workbook,
    with_cell,
    with_setting,
)

TASKS = "interview_prompts"
RNG = np.random.default_rng


# --- response options ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "means"),
    [
        ("Enter a number between 0 and 5", FreeOptions("Enter a number between 0 and 5")),
        ("(say what you like)", FreeOptions("(say what you like)")),
        ("[0, 1, 2.0]", ListedOptions(("0", "1", "2"))),
        ("(0, 5)", NumberRange(0, 5)),
        ("(0.5,1)", NumberRange(0.5, 1)),
        ("[True, False]", ListedOptions(("True", "False"))),
        (
            '{"A": "free", "B": (0, 10), "C": ["x", "y"],}',
            {"A": FreeOptions("free"), "B": NumberRange(0, 10), "C": ListedOptions(("x", "y"))},
        ),
        ('{"A": "(0, 3)"}', {"A": NumberRange(0, 3)}),
    ],
)
def test_options_of_every_kind(cell: str, means: Any) -> None:
    assert read_options(cell) == means


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("[]", "empty"),
        ("(5, 0)", "runs from 5 down to 0"),
        ("(1, 2, 3)", "pair of numbers"),
        ("[1, 1.0]", "duplicate"),
        ('["Park", "Mall", "park."]', "'Park' and 'park.' cannot be distinguished"),
        ('["a", ["b"]]', "not a single option"),
        ('{"A": {"B": 1}}', "neither"),
        ("[yes, no]", "needs quotes"),
        ("[true]", "write True"),
        ('["a", "b"', "never closed"),
        ("(0, 20", "never closed"),
        ("0, 20)", "unmatched"),
        ("()", "pair of numbers"),
        ('{"A": (0,1), "A": (0,2)}', "duplicate"),
        ('{"A": (0,1), "A ": (0,2)}', "duplicate key 'A'; spaces at the ends do not count"),
        ('["yes" "no", "maybe"]', """a comma is missing in "yes" "no\""""),
        ("['yes'\n'no']", "a comma is missing"),
        ('{"A": ["yes" "no"]}', "a comma is missing"),
        ('["""yes""" "no"]', "a comma is missing"),
        ("{Role 1: (0, 1), Role 2: (0, 2)}", 'Role 1 needs quotes: "Role 1"'),
        ('{"A": (0, 1), Role 2: (0, 2)}', 'Role 2 needs quotes: "Role 2"'),
        ('{Player (A): ["x"]}', "needs quotes"),
    ],
)
def test_bad_options_say_what_is_wrong(cell: str, says: str) -> None:
    with pytest.raises(NotALiteral, match=says):
        read_options(cell)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ('["it is \\"so\\"", \'a "b" c\', "don\'t"]', ('it is "so"', 'a "b" c', "don't")),
        ('["""yes""", r"no", "é ü", "ja"]', ("yes", "no", "é ü", "ja")),
    ],
)
def test_texts_with_quotes_are_single_options(cell: str, options: tuple[str, ...]) -> None:
    assert read_options(cell) == ListedOptions(options)


def test_the_shuffle_is_a_permutation_and_leaves_the_list_alone() -> None:
    options = ListedOptions(tuple("abcdef"))
    orders = {
        format_options(options, integer=False, shuffle=True, rng=RNG(i), source_id="o.o/1").order
        for i in range(20)
    }
    assert len(orders) > 15
    assert all(sorted(o) == list("abcdef") for o in orders)
    plain = format_options(options, integer=False, shuffle=False, rng=RNG(1), source_id="o.o/1")
    assert plain.order == options.options
    assert "- a\n- b" in plain.text


# --- replies ---------------------------------------------------------------------------------


def make_answer_type(options: Any, var_type: Any = None, **more: Any) -> WorkbookAnswer:
    order = options.options if isinstance(options, ListedOptions) else ()
    fields = {"validate": True, "as_json": False, "speculation": False, **more}
    return WorkbookAnswer(options, order, var_type, **fields)


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ("Enter a number between 0 and 5", ("0", "5")),
        ("1-7, 7 being best", ("1", "7")),
        ("von -1.5 bis 1.5", ("-1.5", "1.5")),
        ("at most 20", ("20",)),
        ("a number", ()),
        (f"0 to {'9' * 300}", ("0",)),
    ],
)
def test_options_in_words_may_name_bounds(words: str, bounds: tuple[str, ...]) -> None:
    """The embedded respondent stays within these bounds, but no answer is checked against them."""
    wanted = make_answer_type(FreeOptions(words), "float")
    assert wanted.offered_values == bounds
    assert isinstance(wanted.parse_reply("99"), ParsedAnswer)
    assert make_answer_type(FreeOptions(words), "category").offered_values == ()


@pytest.mark.parametrize("number", [0, 7, 10])
def test_ranges_include_both_ends(number: int) -> None:
    read = make_answer_type(NumberRange(0, 10), "integer").parse_reply(str(number))
    assert isinstance(read, ParsedAnswer)
    assert read.value.value == number and isinstance(read.value.value, int)


@pytest.mark.parametrize("reply", ["-1", "11", "ten", "2.5", "3 or 4"])
def test_what_is_out_of_range_is_asked_for_again(reply: str) -> None:
    problem = make_answer_type(NumberRange(0, 10), "integer").parse_reply(reply)
    assert isinstance(problem, ParseFailure)
    assert "from 0 to 10" in problem.problem


@pytest.mark.parametrize(
    ("options", "var_type", "reply", "value"),
    [
        (ListedOptions(("10", "15")), "integer", "15", 15),
        (ListedOptions(("0.5", "1")), "float", "1", 1.0),
        (ListedOptions(("10", "15")), "category", "15", "15"),
        (NumberRange(0, 5), "float", "3", 3.0),
        (NumberRange(0, 5), None, "3", 3),
        (None, "integer", "I give 4.", 4),
        (FreeOptions("any number"), "float", "1,200.5", 1200.5),
        (ListedOptions(("I don’t know", "yes")), "category", "i don't know", "I don’t know"),
    ],
)
def test_values_have_their_type(options: Any, var_type: Any, reply: str, value: Any) -> None:
    read = make_answer_type(options, var_type).parse_reply(reply)
    assert isinstance(read, ParsedAnswer)
    assert read.value.value == value and type(read.value.value) is type(value)


@pytest.mark.parametrize("validate", [True, False])
def test_numbers_in_words_are_read_in_json(validate: bool) -> None:
    wanted = make_answer_type(NumberRange(0, 10), "integer", as_json=True, validate=validate)
    for words, value in (("eight", 8), ("Ten.", 10)):
        read = wanted.parse_reply(json.dumps({"response": words}))
        assert isinstance(read, ParsedAnswer)
        assert (read.value.value, read.value.is_usable) == (value, True)
    for words in ("eleven", "seven or eight", "minus one"):
        read = wanted.parse_reply(json.dumps({"response": words}))
        assert not (isinstance(read, ParsedAnswer) and read.value.is_usable)


def test_json_replies_with_a_speculation_score() -> None:
    wanted = make_answer_type(NumberRange(0, 10), "integer", as_json=True, speculation=True)
    read = wanted.parse_reply('```json\n{"response": "7", "speculation_score": 30}\n```')
    assert isinstance(read, ParsedAnswer)
    assert (read.value.value, read.value.score) == (7, 30)
    unrated = wanted.parse_reply('{"response": 7, "speculation_score": null}')
    assert isinstance(unrated, ParsedAnswer) and unrated.value.score is None
    for reply in ('{"response": 7}', '{"response": 7, "speculation_score": 130}', "7"):
        assert isinstance(wanted.parse_reply(reply), ParseFailure)
    # A fraction is most likely a share, and the score is a whole number.
    for score in (0.85, "0.9", 85.5, 0.5):
        reply = json.dumps({"response": 7, "speculation_score": score})
        assert isinstance(wanted.parse_reply(reply), ParseFailure)
    assert wanted.schema is not None
    assert wanted.schema["properties"]["response"] == {  # a refusal fits, and no bound excludes it
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": "your answer, or your words",
    }


def test_without_validation_everything_but_silence_is_an_answer() -> None:
    loose = make_answer_type(ListedOptions(("yes", "no")), "category", validate=False)
    read = loose.parse_reply("perhaps")
    assert isinstance(read, ParsedAnswer) and read.value.status == "unchecked"
    assert isinstance(loose.parse_reply("  "), ParseFailure)
    spoken = make_answer_type(None, None, validate=False, as_json=True).parse_reply(
        "no json at all"
    )
    assert isinstance(spoken, ParsedAnswer) and spoken.value.value == "no json at all"


@pytest.mark.parametrize(
    ("options", "var_type", "reply", "value", "status"),
    [
        (NumberRange(0, 10), "integer", "7", 7, "unchecked"),
        # Without validation the range does not bind, but the type does.
        (NumberRange(0, 10), "integer", "15", 15, "unchecked"),
        (NumberRange(0, 10), "integer", "3.5", 3.5, "invalid"),
        (NumberRange(0, 10), None, "3.5", 3.5, "unchecked"),
        (None, "float", "60 or 70", "60 or 70", "invalid"),
        (None, "float", "1,5", "1,5", "invalid"),
        (NumberRange(0, 1), "float", ".5", 0.5, "unchecked"),
        (NumberRange(0, 1), "float", "-.5", -0.5, "unchecked"),
        (None, "integer", "many", "many", "invalid"),
        (ListedOptions(("0", "5")), "integer", "3", 3, "unchecked"),
        (ListedOptions(("0", "5")), "integer", "few", "few", "invalid"),
        (ListedOptions(("0", "5")), "category", "few", "few", "unchecked"),
        (FreeOptions("yes or no"), None, "perhaps", "perhaps", "unchecked"),
    ],
)
def test_without_validation_an_answer_that_is_no_number_of_its_type_is_invalid(
    options: Any, var_type: Any, reply: str, value: Any, status: str
) -> None:
    for as_json in (False, True):
        wanted = make_answer_type(options, var_type, validate=False, as_json=as_json)
        read = wanted.parse_reply(json.dumps({"response": reply}) if as_json else reply)
        assert isinstance(read, ParsedAnswer)
        assert (read.value.value, read.value.status) == (value, status)


def test_the_last_answer_is_kept_and_flagged() -> None:
    wanted = make_answer_type(NumberRange(0, 10), "integer")
    kept = wanted.last("15")
    assert not isinstance(kept, Missing)
    assert (kept.value, kept.status, kept.is_usable) == (15, "invalid", False)
    words = wanted.last("everything I have")
    assert not isinstance(words, Missing) and words.value == "everything I have"
    wrapped = make_answer_type(NumberRange(0, 1), "float", as_json=True).last('{"response": 3}')
    assert not isinstance(wrapped, Missing) and wrapped.value == 3
    assert isinstance(wanted.last("   "), Missing)


# --- computed values -------------------------------------------------------------------------

AMOUNTS = {"a": 4, "b": 0, "c": 10}


def make_context(values: dict[str, Any] | None = None) -> EvaluationContext:
    given = AMOUNTS if values is None else values
    people = ["a", "b", "c", "d"]  # d was never asked

    def value(name: str, who: str | None) -> Any:
        if name == "total":
            return sum(v for v in given.values() if isinstance(v, int))
        return given.get(who or "")

    constants = {"endowment": 10, "factor": 2, "label": "x"}
    return EvaluationContext(people, frozenset({"give"}), frozenset({"total"}), constants, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sum(give)", 14),
        ("mean(give)", 14 / 3),
        ("min(give) + max(give)", 10),
        ("count(give > 3)", 2),
        ("endowment - give + factor * sum(give) / 3", 10 - 4 + 28 / 3),
        ("sum(others(give))", 10),
        ("mean(others(give)) - give", 1),
        ("own(give) * 2", 8),
        ("total - give", 10),
        ("max(give, 7)", 7),
        ("1 if give >= 4 else 0", 1),
        ("give == 4 and total > 0", 1),
        ("sum(endowment - give)", 16),
        ("round(mean(give), 1)", 4.7),
        ("sum(give == max(give))", 1),
        ("'high' if give > 3 else 'low'", "high"),
        ("2 ** 3 % 5", 3),
        ("= sum(give)", 14),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert evaluate_expression(text, make_context(), "a") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        # The rank of each participant. d was never asked.
        ("count(give > own(give)) + 1", {"a": 2, "b": 3, "c": 1, "d": None}),
        ("sum(abs(give - own(give)))", {"a": 10, "b": 14, "c": 16, "d": None}),
        ("mean(others(give - own(give)))", {"a": 1, "b": 7, "c": -8, "d": None}),
        ("max(own(give) * give) - own(give)", {"a": 36, "b": 0, "c": 90, "d": None}),
    ],
)
def test_own_within_an_aggregate_is_of_who_the_value_is_for(
    text: str, values: dict[str, Any]
) -> None:
    results = dict(zip(values, evaluate_for(text, make_context(), list(values)), strict=True))
    assert {who: None if isinstance(x, Missing) else x for who, x in results.items()} == values
    assert isinstance(results["d"], Missing) and results["d"].reason == "not_asked"


def test_own_of_a_value_that_others_were_not_asked_for() -> None:
    bids = {"a": 4, "b": 6}
    asks = {"c": 5, "d": 6}

    def value(name: str, who: str | None) -> Any:
        return (bids if name == "bid" else asks).get(who or "")

    context = EvaluationContext(
        ["a", "b", "c", "d"], frozenset({"bid", "ask"}), frozenset(), {}, value
    )
    assert evaluate_for("count(ask <= own(bid))", context, ["a", "b"]) == [0, 2]


def test_own_compares_at_most_two_thousand_participants() -> None:
    people = [f"p{i}" for i in range(2_001)]
    context = EvaluationContext(
        people, frozenset({"give"}), frozenset(), {}, lambda _name, who: int((who or "p0")[1:])
    )
    few = replace(context, participants=people[:2_000])
    assert evaluate_for("count(give > own(give)) + 1", few, ["p1990"]) == [10]
    (refused,) = evaluate_for("count(give > own(give)) + 1", context, ["p1990"])
    assert isinstance(refused, Missing) and "2,000 participants" in refused.detail
    with pytest.raises(ExpressionProblem, match="within two aggregates"):
        evaluate_for("sum(count(give > own(give)))", few, ["p1"])


def test_what_cannot_be_computed_says_why() -> None:
    missing = {"a": 4, "b": Missing("invalid"), "c": 10}
    total = evaluate_expression("sum(give)", make_context(missing), "a")
    assert isinstance(total, Missing) and "give of b: invalid" in total.detail
    assert evaluate_expression("give", make_context(missing), "a") == 4
    zero = evaluate_expression("1 / (give - 4)", make_context(), "a")
    assert isinstance(zero, Missing) and "division by zero" in zero.detail
    never = evaluate_expression("give", make_context(), "d")
    assert isinstance(never, Missing) and never.reason == "not_asked"
    mixed = evaluate_expression("give + label", make_context(), "a")
    assert isinstance(mixed, Missing)


def test_computed_values_come_after_those_they_rest_on() -> None:
    items = [
        Computed(name="c", scope="session", expression="b + 1"),
        Computed(name="b", scope="session", expression="a + 1"),
        Computed(name="a", scope="session", expression="sum(give)"),
    ]
    assert [c.name for c in in_order(items)] == ["a", "b", "c"]
    circle = [items[0], Computed(name="b", scope="session", expression="c")]
    with pytest.raises(ExpressionProblem, match="circle"):
        in_order(circle)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (["x", "session", "sum(ofer)"], "did you mean offer?"),
        (["x", "session", "offer + 1"], "differs between participants"),
        (["x", "session", "count(offer > own(offer))"], "differs between participants"),
        (["x", "participant", "offer +"], "cannot be read"),
        (["x", "participant", "summ(offer)"], "did you mean sum?"),
        (["x", "group", "1"], "scope is 'group'"),
        (["offer", "session", "1"], "duplicate name"),
        (["x", "session", "x"], "circle"),
        (["my total", "session", "1"], "not a name"),
        (["role", "session", "1"], "reserved"),
    ],
)
def test_mistakes_in_the_seventh_sheet(tmp_path: Path, row: list[str], says: str) -> None:
    book = make_workbook()
    book["computed"].append(row)
    found = find_mistakes(book, tmp_path)
    assert any(says in m for m in found), found
    assert all("computed!" in m for m in found)


def test_results_are_only_shown_after_they_are_known(tmp_path: Path) -> None:
    found = find_mistakes(with_cell(make_workbook(), f"{TASKS}!C5", 2), tmp_path)
    assert len(found) == 2  # total, and the own offer: now in a tie with the task that asks for it
    assert all(f"{TASKS}!F5" in m and "not known yet" in m for m in found)


def test_special_roles_are_shown_no_personal_values(tmp_path: Path) -> None:
    cell = '{"Buyer": "Sure?", "Summarizer": "The offer was {{ offer }}, all {{ total }}."}'
    book = with_cell(make_workbook(), f"{TASKS}!F6", cell)
    assert any("offer is not known yet" in m for m in find_mistakes(book, tmp_path))


def test_a_six_sheet_file_works_without_computed(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!F5", "Trade? {response_options}")
    del book["computed"]
    assert find_mistakes(book, tmp_path) == []


# --- assignment ------------------------------------------------------------------------------


def plan_sessions(book: Any, folder: Path, seed: int = 7) -> Any:
    config = read_config(book, folder)
    found, problems = assign_sessions(build_experiments(config.workbook)[0], seed)
    assert problems == []
    return found


def make_large_workbook(session_count: int) -> dict[str, list[list[Any]]]:
    book = with_setting(make_workbook(), "num_sessions", session_count)
    head = book["agent_profiles"][:2]
    book["agent_profiles"] = [*head, *([f"p{i}", i, "x"] for i in range(4 * session_count + 3))]
    return book


def test_each_participant_has_one_seat_and_roles_are_balanced(tmp_path: Path) -> None:
    found = plan_sessions(make_large_workbook(6), tmp_path)
    seated = [s.id for p in found for s in p.seats]
    assert len(seated) == len(set(seated)) == 24
    for plan in found:
        assert Counter(s.role for s in plan.seats) == {"Buyer": 2, "Seller": 2}
        assert [s.name for s in plan.seats] == ["Buyer 1", "Buyer 2", "Seller 1", "Seller 2"]


def test_complete_random_is_balanced_and_simple_is_not_always(tmp_path: Path) -> None:
    book = make_large_workbook(10)
    complete = Counter(p.treatment for p in plan_sessions(book, tmp_path))
    assert complete == {"calm": 5, "NONE": 5}
    simple = with_setting(book, "treatment_assignment_strategy", "simple_random")
    config = build_experiments(read_config(simple, tmp_path).workbook)[0]
    splits = {
        Counter(p.treatment for p in assign_sessions(config, s)[0])["calm"] for s in range(30)
    }
    assert len(splits) > 3


@given(st.integers(0, 60), st.integers(1, 7), st.integers(0, 99))
def test_balanced_deals_differ_by_one_at_most(session_count: int, arms: int, seed: int) -> None:
    counts = Counter(dict.fromkeys(range(arms), 0))
    counts.update(assign_balanced(session_count, arms, RNG(seed)))
    assert sum(counts.values()) == session_count
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_same_seed_seats_the_same(tmp_path: Path) -> None:
    assert plan_sessions(make_large_workbook(5), tmp_path, 1) == plan_sessions(
        make_large_workbook(5), tmp_path, 1
    )
    assert plan_sessions(make_large_workbook(5), tmp_path, 1) != plan_sessions(
        make_large_workbook(5), tmp_path, 2
    )


def make_manual_workbook() -> dict[str, list[list[Any]]]:
    book = make_workbook()
    for what in ("treatment", "session", "role"):
        book = with_setting(book, f"{what}_assignment_strategy", "manual")
        book = with_setting(book, f"{what}_column", f"my {what}")
    head = ["my treatment", "my session", "my role"]
    rows = book["agent_profiles"]
    rows[0] += head
    rows[1] += [f"{h}, assigned" for h in head]
    for i, row in enumerate(rows[2:]):
        row += ["calm" if i < 4 else "NONE", 3 if i < 4 else 1.0, ["Seller", "Buyer"][i % 2]]
    return book


def test_assignment_by_hand(tmp_path: Path) -> None:
    first, second = plan_sessions(make_manual_workbook(), tmp_path)
    assert (first.label, first.treatment) == ("3", "calm")
    assert (second.label, second.treatment) == ("1", "NONE")
    assert [(s.id, s.role) for s in first.seats] == [
        ("p2", "Buyer"),
        ("p4", "Buyer"),
        ("p1", "Seller"),
        ("p3", "Seller"),
    ]


@pytest.mark.parametrize(
    ("cell", "value", "says"),
    [
        ("D4", "Calm", "did you mean calm"),
        ("D4", "NONE", "mixes the treatments"),
        ("D4", None, "the treatment is blank"),
        ("E4", 1, "session 3 has 3 respondents, not 4"),
        ("E4", 9, "names 3 sessions, but 2"),
        ("F4", "Byer", "did you mean Buyer"),
        ("F4", "Facilitator", "there is no role 'Facilitator'"),
        ("D1", "their treatment", "the profiles have no column 'my treatment'"),
    ],
)
def test_mistakes_by_hand_have_their_cell(tmp_path: Path, cell: str, value: Any, says: str) -> None:
    found = find_mistakes(
        with_cell(make_manual_workbook(), f"agent_profiles!{cell}", value), tmp_path
    )
    assert any(says in m for m in found), found


@pytest.mark.parametrize("what", ["treatment", "session", "role"])
def test_assignment_by_hand_needs_the_name_of_a_column(tmp_path: Path, what: str) -> None:
    found = find_mistakes(with_setting(make_manual_workbook(), f"{what}_column", None), tmp_path)
    assert any(
        "experimental_setting" in m and f"{what}s are assigned manually, but no column" in m
        for m in found
    ), found


def test_every_wrong_role_of_a_session_is_named(tmp_path: Path) -> None:
    book = with_cell(
        with_cell(make_manual_workbook(), "agent_profiles!F4", "Byer"), "agent_profiles!F5", "Sellr"
    )
    found = find_mistakes(book, tmp_path)
    assert [m for m in found if "F4" in m and "did you mean Buyer" in m]
    assert [m for m in found if "F5" in m and "did you mean Seller" in m]


def test_a_blank_session_cell_leaves_a_respondent_out(tmp_path: Path) -> None:
    book = make_manual_workbook()
    book["agent_profiles"].append(["spare", 60, "Nowhere", None, None, None])
    seated = {s.id for p in plan_sessions(book, tmp_path) for s in p.seats}
    assert "spare" not in seated and len(seated) == 8


def test_sessions_at_random_under_treatments_by_hand_do_not_mix(tmp_path: Path) -> None:
    book = with_setting(make_manual_workbook(), "session_assignment_strategy", "random")
    column = {f"p{i}": "calm" if i <= 4 else "NONE" for i in range(1, 9)}
    for plan in plan_sessions(book, tmp_path):
        assert {column[s.id] for s in plan.seats} == {plan.treatment}


def test_too_few_respondents_are_an_error(tmp_path: Path) -> None:
    found = find_mistakes(with_setting(make_workbook(), "num_sessions", 3), tmp_path)
    assert len(found) == 1 and "more respondents than the available 8" in found[0]


def test_more_roles_than_participants_are_an_error(tmp_path: Path) -> None:
    found = find_mistakes(with_setting(make_workbook(), "num_agents_per_session", 1), tmp_path)
    assert any("2 roles cannot be assigned to 1 participants" in m for m in found)


# --- order and permutations ------------------------------------------------------------------


def make_tasks(*orders: int) -> list[Task]:
    return [
        Task(
            task_id=str(i),
            type="context" if i == 0 else "private_question",
            task_order=order,
            llm_text="x",
            var_name=f"v{i}",
        )
        for i, order in enumerate(orders)
    ]


def test_ties_are_shuffled_and_nothing_else() -> None:
    tasks = make_tasks(0, 1, 2, 2, 2, 3)
    seen = {tuple(t.task_id for t in order_tasks(tasks, RNG(i))) for i in range(200)}
    assert len(seen) == 6
    assert all(o[:2] == ("0", "1") and o[-1] == "5" for o in seen)


def test_constants_spin_off_every_combination(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "constants!B2", '["apples", "pears"]')
    book["constants"].append(["high", "[20, 30, 40.5]"])
    book = with_cell(book, f"{TASKS}!I4", "(0, {{ high }})")
    found = build_experiments(read_config(book, tmp_path).workbook)
    assert [e.id for e in found] == [f"market_{i}" for i in range(1, 7)]
    assert [tuple(e.constants.values()) for e in found] == [
        (goods, high) for goods in ("apples", "pears") for high in (20, 30, 40.5)
    ]
    assert found[5].tasks["o"].options == NumberRange(0, 40.5)
    assert found[5].roles["Buyer"].description == "You buy pears."


def test_one_combination_keeps_the_plain_name(tmp_path: Path) -> None:
    assert [e.id for e in build_experiments(read_config(make_workbook(), tmp_path).workbook)] == [
        "market"
    ]


def test_options_are_checked_in_every_permutation(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!I4", "(5, {{ high }})")
    book["constants"].append(["high", "[20, 1]"])
    (found,) = find_mistakes(book, tmp_path)
    assert f"{TASKS}!I4" in found and "from 5 down to 1" in found


@pytest.mark.parametrize("value", ["apples", "5", '{"a": 1}', "[]", '[["a"]]', '["a", "a"]'])
def test_constants_must_be_lists(tmp_path: Path, value: str) -> None:
    assert any(
        "constants!B2" in m
        for m in find_mistakes(with_cell(make_workbook(), "constants!B2", value), tmp_path)
    )


@pytest.mark.parametrize(
    ("cell", "text", "says"),
    [
        ("treatments!B2", "{{ fruit }}", "nothing is called fruit"),
        ("agent_roles!B4", "{{ good }}", "did you mean {{goods}}?"),
        (f"{TASKS}!F3", "{{ goods", "cannot be read"),
        (f"{TASKS}!F3", "{{ goods | round(1) }}", "cannot be filled in"),
        (f"{TASKS}!F3", "{{ 1 / 0 }}", "1 / 0 has no value: division by zero"),
        (f"{TASKS}!F3", "{{ goods ~ 's' }}", "write {{ a }}{{ b }}"),
        (f"{TASKS}!F3", "{{ from }}", "from is a reserved word of Python"),
        (f"{TASKS}!F6", '{"Buyer": "{{ sum(offer) }}?"}', "in the sheet computed"),
        (f"{TASKS}!F3", "{{ treatment.colour }}", "nothing is called treatment.colour"),
        (f"{TASKS}!F3", "{{ role.labl }}", "did you mean {{role.label}}?"),
        (f"{TASKS}!F3", "{goods} today", "write {{goods}}"),
        (f"{TASKS}!I4", "(0, {{ high }})", "nothing is called high"),
        (f"{TASKS}!F3", "Options? {response_options}", "there are none"),
        (f"{TASKS}!F4", '{"Byer": "Bid?"}', "did you mean Buyer?"),
        (f"{TASKS}!F4", '{"Buyer": "Bid?" "Seller": 3}', "cannot be read"),
        (f"{TASKS}!I6", '{"Seller": (0, 1)}', "Buyer has no response options"),
        (f"{TASKS}!I4", '["cheap", "dear"]', "not of type integer"),
        (f"{TASKS}!I5", "(0, 1)", "cannot be of type category"),
        (f"{TASKS}!I5", None, "there are no options"),
    ],
)
def test_undefined_names_and_wrong_options_are_errors_with_their_cell(
    tmp_path: Path, cell: str, text: Any, says: str
) -> None:
    found = find_mistakes(with_cell(make_workbook(), cell, text), tmp_path)
    assert any(says in m for m in found), found
    assert any(cell.split("!")[0] in m for m in found)


@pytest.mark.parametrize(
    ("value", "number_format", "text"),
    [
        (2.75, "0", "3"),
        (0.025, "0%", "3%"),
        (0.125, "0.00", "0.13"),
        (1.005, "0.00", "1.01"),
        (-0.4, "0", "0"),
        (0.00002, "General", "0.00002"),
        (3.1, "0.00", "3.10"),
    ],
)
def test_a_number_is_read_as_the_sheet_shows_it(
    value: float, number_format: str, text: str, tmp_path: Path
) -> None:
    path = save_workbook(
        with_cell(make_workbook(), "agent_profiles!C3", value), tmp_path / "book.xlsx"
    )
    book = load_workbook(path)
    book["agent_profiles"]["C3"].number_format = number_format
    book.save(path)
    assert load_workbook_config(path).workbook.profiles.rows[0][2] == text


def test_names_with_accents_of_either_form_are_one_name(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "constants!A2", unicodedata.normalize("NFD", "bon\u00e9s"))
    book["constants"].append(["\u00b5", "[5]"])
    book["agent_roles"][3][1] = "You buy {{ bon\u00e9s }} at {{ \u00b5 }}."
    book["agent_roles"][4][1] = unicodedata.normalize("NFD", "You sell {{ bon\u00e9s }}.")
    book["interview_prompts"][1][5] = "A market."
    assert not find_mistakes(book, tmp_path)


def test_power_counts_the_sessions_that_each_treatment_gets(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "num_sessions", 12)
    book = with_setting(book, "treatment_assignment_strategy", "complete_random")
    people = [[f"p{i}", i, "x"] for i in range(48)]
    book["agent_profiles"] = [*book["agent_profiles"][:2], *people]
    config = read_config(book, tmp_path)
    size = design_size(config, tmp_path)
    treatments = len(config.workbook.treatments)
    assert (size.arms, size.units) == (treatments, 12 // treatments)
    # Two further sessions belong to one treatment or two, and the last ones are not played.
    first = config.model_copy(update={"first_sessions": 2 * treatments})
    labels = [plan.treatment for plan in sessions_of(first, build_experiments(config.workbook)[0])]
    fewest = min(labels.count(treatment.label) for treatment in config.workbook.treatments)
    assert design_size(first, tmp_path).units == fewest <= 2
