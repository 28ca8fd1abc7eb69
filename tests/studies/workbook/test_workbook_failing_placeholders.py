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
