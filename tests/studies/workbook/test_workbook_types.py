"""Expressions that calculate with texts or compare unequal types are refused before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.studies.workbook.test_workbook_parts import make_manual_workbook
from tests.studies.workbook.test_workbook_play import TASKS, read_rows, run_workbook
from tests.studies.workbook.workbook_builder import (
    find_mistakes,
    make_provider,
    make_task_row,
    make_workbook,
    with_cell,
)

Cells = dict[str, list[list[Any]]]
REMEDY = "write integer or float as var_type in interview_prompts!H4, so that offer is a number"


def make_workbook_with(
    expression: str = "", *, prompt: str = "", options: str = "[0, 5, 10]", **more: Any
) -> Cells:
    """Make a workbook with offers from a list, a computed value and a later prompt."""
    book = with_cell(make_workbook(), f"{TASKS}!I4", options)
    book = with_cell(book, f"{TASKS}!H4", more.pop("var_type", None))
    book = with_cell(book, f"{TASKS}!K4", more.pop("validate", 1))
    book["computed"] = [book["computed"][0], ["total", "session", "count(offer)"]]
    if expression:
        book["computed"].append(["extra", "participant", expression])
    if prompt:
        book[TASKS].append(make_task_row("why", "private_question", 9, prompt, "why"))
    return book


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("10 - offer", "offer is a text, so 10 - offer cannot be calculated"),
        ("sum(offer)", "offer is a text, so sum(offer) cannot be calculated"),
        ("mean(others(offer))", "others(offer) is a text"),
        ("offer | round(1)", "offer is a text"),
        ("1 if offer > 5 else 0", "offer is a text and 5 is a number"),
        ("1 if offer == 5 else 0", "so offer == 5 is always false"),
        ("count(offer != 5)", "so offer != 5 is always true"),
        ("(offer if members > 1 else offer) + 1", "is a text"),
    ],
)
def test_a_list_of_numbers_without_a_type_is_not_calculated_with(
    tmp_path: Path, expression: str, message: str
) -> None:
    found = find_mistakes(make_workbook_with(expression), tmp_path)
    assert len(found) == 1 and found[0].startswith("book.xlsx:computed!C3: ")
    assert message in found[0] and REMEDY in found[0]
    assert not find_mistakes(make_workbook_with(expression, var_type="integer"), tmp_path)


@pytest.mark.parametrize(
    "prompt",
    [
        "{% if offer > 0 %}Why?{% endif %}",
        "{% if offer == 5 or offer == 10 %}Why?{% else %}And?{% endif %}",
        "Left: {{ 10 - offer }}",
        "{{ 'Much' if offer >= 5 else 'Little' }}",
    ],
)
def test_so_it_is_in_prompts(tmp_path: Path, prompt: str) -> None:
    found = find_mistakes(make_workbook_with(prompt=prompt), tmp_path)
    assert found and all(f"{TASKS}!F7: " in m and REMEDY in m for m in found)
    assert not find_mistakes(make_workbook_with(prompt=prompt, var_type="integer"), tmp_path)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("role == 'Foo'", "role is never 'Foo', so role == 'Foo' is always false (it can be "),
        ("role != 'Byer'", "is always true (did you mean Buyer?)"),
        ("role == 'Facilitator'", "role is never 'Facilitator'"),
        ("treatment == 'Calm'", "did you mean calm?"),
        ("treatment == 1", "treatment is a text and 1 is a number"),
        ("session == '1'", "session is a number and '1' is a text"),
        ("session == '1'", "write 1 without quotes"),
        ("trade == 'maybe'", "trade is never 'maybe'"),
        ("offer == '5'", "write 5 without quotes"),
        ("members == 'many'", "members is a number"),
    ],
)
def test_a_comparison_that_is_never_true_is_refused(
    tmp_path: Path, expression: str, message: str
) -> None:
    found = find_mistakes(
        make_workbook_with(f"1 if {expression} else 0", var_type="integer"), tmp_path
    )
    assert len(found) == 1 and message in found[0]


@pytest.mark.parametrize(
    "expression",
    [
        "role == 'Buyer' or treatment == 'NONE' and session == 1",
        "trade == 'yes' or trade != '' or trade == 'not available' or 'y' in trade",
        "offer == '5' or offer in '5 10' or int(offer) > 5",
        "talk == 'anything' or town == 'Foo' or age > 20 or age == 'old'",
        "treatment.label if goods == 'pears' else role",
    ],
)
def test_comparisons_that_can_be_true_pass(tmp_path: Path, expression: str) -> None:
    expression = expression.replace("treatment.label", "treatment")
    assert not find_mistakes(make_workbook_with(expression), tmp_path)


def test_what_is_not_validated_can_be_any_text(tmp_path: Path) -> None:
    assert not find_mistakes(make_workbook_with("offer == 'none'", validate=0), tmp_path)
    assert find_mistakes(make_workbook_with("offer == 'none'"), tmp_path)


def test_labels_and_options_count_in_all_experiments(tmp_path: Path) -> None:
    book = make_workbook_with("trade == 'buy pears' or treatment == 'calm pears'")
    book = with_cell(book, "constants!B2", '["apples", "pears"]')
    book = with_cell(book, f"{TASKS}!I5", '["buy {{ goods }}", "no"]')
    assert find_mistakes(with_cell(book, "treatments!A2", "calm"), tmp_path)
    assert not find_mistakes(with_cell(book, "treatments!A2", "calm {{ goods }}"), tmp_path)


def test_the_labels_of_manual_sessions_are_texts_or_numbers(tmp_path: Path) -> None:
    book = make_manual_workbook()
    book["computed"].append(["extra", "participant", "1 if session == 'nowhere' else 0"])
    (message,) = find_mistakes(book, tmp_path)
    assert "session is " in message


def test_a_failing_value_is_reported_once_and_options_are_not_reported_twice(
    tmp_path: Path,
) -> None:
    book = make_workbook_with("10 - offer", prompt="{{ extra + 1 }}")
    assert len(find_mistakes(book, tmp_path)) == 1
    (message,) = find_mistakes(make_workbook_with("10 - offer", options="[0, 5"), tmp_path)
    assert "the response options cannot be read" in message


def test_with_a_type_the_numbers_are_calculated(tmp_path: Path) -> None:
    run = run_workbook(
        make_workbook_with("10 - offer", var_type="integer"), tmp_path, make_provider(option=5)
    )
    assert {row["extra"] for row in read_rows(run)} == {"5"}
