"""Controls read the answer to a repeated question exactly as the study has read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.controls import asking
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.tables import AS_DESIGNED, NO_PERSONA, ORDER, RETEST, ControlRow
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder
from tests.studies.workbook.workbook_builder import make_task_row, make_workbook, write_workbook

SENTENCE = "I would pick the red one, thank you"
Reply = Callable[[str], str]


def run_with_controls(
    folder: Path, tasks: Sequence[list[Any]], reply: Reply, **controls: bool
) -> tuple[RunFolder, pl.DataFrame]:
    """Run a workbook of eight participants, then its controls. Return the run and their answers.

    `reply`: the reply to a question, whatever was said before.
    """
    book = make_workbook()
    book["computed"] = book["computed"][:1]
    book["interview_prompts"] = [*book["interview_prompts"][:2], *tasks]

    def answer(request: ModelRequest, _address: str) -> str:
        return reply(request.messages[-1].content)

    provider = ScriptedProvider(answer)
    path = write_workbook(book, folder / "book.xlsx")
    run = folkmoot.run(path, provider=provider, out=folder / "run").folder
    settings = {"negative": False, **controls}
    made = run_controls(run, settings, RunOptions(custom_provider=provider))
    ((_, verification),) = verify_controls(run)
    assert not verification.differences
    return run, made.read_table(ControlRow.table)


def list_task(task_id: str, order: int, text: str, **more: Any) -> list[Any]:
    """Return a private question with the options red and blue."""
    options = {"var_type": "category", "response_options": '["red", "blue"]', **more}
    return make_task_row(
        task_id, "private_question", order, f"{text}\n\n{{response_options}}", task_id, **options
    )


def asked_addresses(run: RunFolder) -> list[str]:
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        return [entry.address for entry in journal.read_entries() if entry.kind == "ask"]


BAGS = [
    list_task("bag", 2, "Which bread bag do you take?"),
    list_task("again", 3, "Which box would you take now?", validate_response=1),
]


def reply_in_words(question: str) -> str:
    """Answer the first question in words, and the second one with an option."""
    return "blue" if "Which box" in question else SENTENCE


def test_a_reply_that_the_study_keeps_as_it_is_is_not_asked_again(tmp_path: Path) -> None:
    """A workbook keeps any reply to a list of options if it validates none."""
    run, rows = run_with_controls(tmp_path, BAGS, reply_in_words, no_persona=True, order=True)
    first, final = rows.filter(moment="first"), rows.filter(moment="final")
    for control in (RETEST, NO_PERSONA, ORDER):
        answers = first.filter(control=control)
        assert answers.height == 8 and {*answers["value"]} == {*answers["expected"]} == {SENTENCE}
    # The prompt of the second question holds the first reply, which has to be asked for again.
    for control in (NO_PERSONA, ORDER):
        answers = final.filter(control=control)
        assert answers.height == 8 and {*answers["value"]} == {*answers["expected"]} == {"blue"}
    assert not [address for address in asked_addresses(run) if ".r" in address]


def test_controls_that_an_earlier_version_planned_read_answers_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their replay makes the same requests, such as a re-ask for one of the options."""
    key = "read_as_the_study"

    with monkeypatch.context() as earlier:
        earlier.setattr(asking, "_is_planned_earlier", lambda _run, asked: asked == key)
        run, rows = run_with_controls(tmp_path, BAGS, reply_in_words, no_persona=True)
    assert {*rows.filter(control=RETEST)["missing"]} == {"unparsed"}
    assert [address for address in asked_addresses(run) if ".r" in address]
    controls = run.open_subfolder(CONTROLS)
    assert controls is not None and key not in controls.plan["sealed"]["controls"]["data"]
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_a_repeated_question_is_asked_again_as_often_as_in_the_study(tmp_path: Path) -> None:
    """A workbook has five re-asks. A reply that only the fifth one gets is an answer in both."""

    def reply_late(question: str) -> str:
        return "none of your business"

    task = list_task("bag", 2, "Which bread bag do you take?", validate_response=1)
    run, rows = run_with_controls(tmp_path, [task], reply_late)
    assert {*rows.filter(control=RETEST)["missing"]} == {"unparsed"}
    asked = asked_addresses(run)
    assert len(asked) == 8 * 6 and sum(address.endswith(".r5") for address in asked) == 8


def test_the_answer_in_json_is_compared_and_not_the_speculation_score(tmp_path: Path) -> None:
    as_json = {"format_response": 1, "generate_speculation_score": 1}
    number = make_task_row(
        *("sure", "private_question", 2, "How sure are you?\n\n{response_options}", "sure"),
        var_type="integer",
        response_options="(0, 10)",
        validate_response=1,
        **as_json,
    )
    reply = json.dumps({"response": 9, "speculation_score": 50})
    (tmp_path / "number").mkdir()
    _, rows = run_with_controls(tmp_path / "number", [number], lambda _: reply, no_persona=True)
    for control in (AS_DESIGNED, RETEST, NO_PERSONA):
        assert rows.filter(control=control)["number"].to_list() == [9] * 8
    assert {*rows.filter(control=RETEST)["expected"]} == {"9.0"}
    # An answer in free text is open, and its score is no decision.
    words = make_task_row("why", "private_question", 2, "Why?", "why", **as_json)
    (tmp_path / "words").mkdir()
    open_reply = json.dumps({"response": "So.", "speculation_score": 50})
    _, rows = run_with_controls(tmp_path / "words", [words], lambda _: open_reply, no_persona=True)
    assert rows.filter(control=AS_DESIGNED).is_empty()
    assert {*rows["missing"]} == {"open_answer"}


def test_an_option_in_json_is_read_in_any_case_and_quoted_as_in_the_run(tmp_path: Path) -> None:
    """Later prompts hold the JSON of the participant's own reply, and the answer alone."""
    json_task = list_task(
        "bag", 2, "Which bread bag do you take?", validate_response=1, format_response=1
    )
    later_task = list_task(
        "again", 3, "You took {{ bag }}. Which box would you take now?", validate_response=1
    )
    prompts: list[str] = []
    written = '{"response": "Red"}'

    def reply(question: str) -> str:
        prompts.append(question)
        return "blue" if "Which box" in question else written

    run, rows = run_with_controls(tmp_path, [json_task, later_task], reply, no_persona=True)
    first = rows.filter(moment="first")
    for control in (AS_DESIGNED, RETEST, NO_PERSONA):
        assert first.filter(control=control)["value"].to_list() == ["red"] * 8
    final = rows.filter(control=NO_PERSONA, moment="final")
    assert final["value"].to_list() == ["blue"] * 8 and final["missing"].null_count() == 8
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        entries = {entry.address: entry for entry in journal.read_entries()}
    for address in final["address"]:
        *_, answer, question = entries[address].request["messages"]
        assert answer["content"] == written and "You took red." in question["content"]
