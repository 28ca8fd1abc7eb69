"""An expression that fails in a prompt is reported, and the rest of the prompt is unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.studies.workbook.language.expressions import MissingValue
from folkmoot.studies.workbook.language.placeholders import render_text
from tests.studies.workbook.test_workbook_play import TASKS, run_workbook, select_requests
from tests.studies.workbook.workbook_builder import make_provider, make_task_row, make_workbook


def test_a_failing_expression_changes_no_condition_and_no_other_value(tmp_path: Path) -> None:
    text = "{% if offer > 1 %}Why {{ offer }}? Ratio {{ offer / (total - 12) }}.{% endif %}"
    book = make_workbook()
    book[TASKS].append(make_task_row("why", "private_question", 3, text, "why"))
    provider = make_provider(number=3)
    run = run_workbook(book, tmp_path, provider)
    asked = select_requests(provider, "/why/")
    assert len(asked) == 8
    assert all("Why 3? Ratio not available." in r.messages[-1].content for r in asked)
    found = run.table("responses").filter(var_name="why")
    assert found["missing"].to_list() == [None] * 8
    log = (run.path / "log.jsonl").read_text()
    assert "task why: offer / (total - 12) could not be calculated for p" in log
    assert "division by zero" in log
    # Three prompts of this task are filled in for each participant. The session warns once.
    assert log.count("could not be calculated") == 2


def test_a_failing_condition_is_false_and_its_failure_is_logged(tmp_path: Path) -> None:
    text = "{% if 1 / (total - 12) > 1 %}Much{% else %}Little of {{ total }}{% endif %}"
    book = make_workbook()
    book[TASKS].append(make_task_row("why", "private_question", 3, text, "why"))
    provider = make_provider(number=3)
    run = run_workbook(book, tmp_path, provider, limit=1)
    prompts = [r.messages[-1].content for r in select_requests(provider, "/why/")]
    assert len(prompts) == 4 and all("Little of 12" in prompt for prompt in prompts)
    assert "a condition counts as false" in (run.path / "log.jsonl").read_text()


CONDITIONS = ("x > 3", "x <= 3", "x == 3", "x != 3", "not x == 3", "not x", "x in y", "x != ''")


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_on_a_missing_value_holds_in_no_branch_but_else(condition: str) -> None:
    failures: list[tuple[str, str]] = []

    def note_failure(*failure: str) -> object:
        failures.append(failure)
        return MissingValue("not available")

    text = f"{{% if {condition} %}}yes{{% elif x != 4 %}}also{{% else %}}else{{% endif %}}"
    values = {"x": MissingValue("not available"), "y": "text"}
    assert render_text(text, values, note_failure) == "else"
    assert [reason for _, reason in failures] == ["a value that it needs is missing"] * 2


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("x > 3 or y == 1", True),
        ("x > 3 and y == 1", False),
        ("not (x > 3 and y == 2)", True),
        ("not (x > 3 or y == 2)", False),
        ("x == 'not available'", True),
        ("x != 'not available'", False),
        ("x == z", False),
        ("y != 'not available'", True),
    ],
)
def test_a_condition_that_the_missing_value_does_not_decide_is_decided(
    condition: str, holds: bool
) -> None:
    missing = MissingValue("not available")
    text = f"{{% if {condition} %}}yes{{% else %}}no{{% endif %}}"
    assert render_text(text, {"x": missing, "y": 1, "z": missing}) == ("yes" if holds else "no")


def test_the_log_names_participants_for_whom_a_condition_could_not_be_decided(
    tmp_path: Path,
) -> None:
    text = "{% if offer != 5 %}Not five.{% endif %} Why? {% if trade == 'no' %}So sad.{% endif %}"
    book = make_workbook()
    book[TASKS].append(make_task_row("why", "private_question", 4, text, "why"))
    provider = make_provider(number="cannot_say", option="yes")
    run = run_workbook(book, tmp_path, provider, limit=1)
    prompts = [r.messages[-1].content for r in select_requests(provider, "/why/")]
    assert len(prompts) == 4
    assert not any("Not five." in prompt or "So sad." in prompt for prompt in prompts)
    log = (run.path / "log.jsonl").read_text()
    assert "task why: offer != 5 could not be calculated for p" in log
    assert "a value that it needs is missing" in log
    # The other condition is false, and not undecided.
    assert log.count("could not be calculated") == 1 and "for Buyer" not in log


@pytest.mark.parametrize(
    ("text", "shown", "failed"),
    [
        ("{{ a }} {{ a / b }}", "3 ?", ["a / b"]),
        ("{{ 'x' if a / b else 'y' }}{{ a - 1 }}", "y2", ["a / b"]),
        ("{{ a / b if b else a }}", "3", []),
        ("{% if a %}{{ a / b }}{{ b * a }}{% endif %}", "?0", ["a / b"]),
        ("{{ upper(a) }}|{{ word - 1 }}|{{ word | upper }}", "?|?|NO", ["upper(a)", "word - 1"]),
    ],
)
def test_only_the_expression_that_fails_is_replaced(
    text: str, shown: str, failed: list[str]
) -> None:
    failures: list[str] = []

    def note_failure(expression: str, _reason: str) -> object:
        failures.append(expression)
        return MissingValue("?")

    assert render_text(text, {"a": 3, "b": 0, "word": "no"}, note_failure) == shown
    assert failures == failed
