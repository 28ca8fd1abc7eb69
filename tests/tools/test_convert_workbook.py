"""`python -m tools.convert_workbook`: older layouts become valid workbooks, with guesses."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

import folkmoot
from folkmoot.errors import InputError
from folkmoot.kit.exposure import describe_deviations
from folkmoot.studies.workbook import STUDY
from folkmoot.studies.workbook.config import Workbook
from folkmoot.studies.workbook.preparation import config_advisories, load_workbook_config
from tests.helpers_provenance import assert_every_text_has_its_source
from tests.studies.workbook.test_workbook_mutations import mutate
from tests.studies.workbook.test_workbook_reading import make_older_layout, make_short_layout
from tests.studies.workbook.test_workbook_sources import run_workbook
from tests.studies.workbook.test_workbook_unsaid import random_assignment
from tests.studies.workbook.workbook_builder import (
    TASK_COLUMNS,
    make_provider,
    make_workbook,
    save_workbook,
    with_cell,
    with_setting,
    write_workbook,
)
from tools.convert_workbook import convert, main

pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

TASKS = "interview_prompts"
Cells = dict[str, list[list[Any]]]


def make_archive_layout() -> Cells:
    """The oldest layout: prompts_template, `question`, options between semicolons, no seed."""
    columns = ["id", "type", "is_adapted", "text", "text_adapted", "var_name", "var_type"]
    return {
        "experimental_setting": [
            ["experimental_setting", "value"],
            ["experiment_id", "asch 2: power/influence"],
            ["model_info", "gpt-4-turbo"],
            ["api_endpoint", None],
            ["num_agents_per_session", 3],
            ["num_sessions", 90],
            ["max_conversation_length", 90],
            ["treatment_assignment_strategy", "simple_random"],
            ["agent_assignment_strategy", "manual"],
            ["treatment_column", None],
            ["session_column", "chat"],
        ],
        "treatments": [["treatment_label", "treatment_description"], ["No Treatment", None]],
        "agent_roles": [
            ["role_label", "role_description"],
            ["Interviewer", "You interview."],
            ["Jamie", "You are Jamie."],
            ["Taylor", "You are Taylor."],
        ],
        "prompts_template": [
            [*columns, "response_options", "response_validation"],
            [0, "context", 1, "A study.", "A study of opinions.", None, None, None, 0],
            ["1.1", "question", 0, "More power?", None, "power", "category", "Yes; No", 1],
            ["1.2", "question", 0, "Age?", "Your age?", "age", "integer", "18:", 1],
            [2, "context", 0, "Now about trust.", None, None, None, None, 0],
            [3, "question", 0, "Trust?", "{reponse_options} Trust?", "trust", "numeric", "0:10", 1],
            [4, "question", 0, "Good?", None, "good", "numeric", "0:100; Do not know", 1],
            [5, "question", 0, "Luck?", None, "luck", "cateogry", "0; 1; 2", 1],
            [6, "context", 1, "Tell Taylor.", None, "talk_1", "free text", None, 0],
            [7, "question", 0, None, None, "talk_2", "free text", None, 0],
            [8, "question", 0, "Once more?", None, "power", "string", None, 1],
        ],
        "agent_profiles": [
            ["ID", "age", "chat"],
            ["ID", "How old are you?", "chatID_full"],
            *([i, 20 + i, f"c{(i + 1) // 2}"] for i in range(1, 8)),
        ],
        "constants": [["name", "value"]],
    }


def make_without_format_response() -> Cells:
    book = make_workbook()
    book[TASKS] = [row[:-1] for row in book[TASKS]]
    book["experimental_setting"] = [
        row for row in book["experimental_setting"] if row[0] != "temperature"
    ]
    for row in book[TASKS][3:5]:
        row[1] = "question"
    return book


def convert_book(book: Cells, folder: Path) -> tuple[Path, list[str]]:
    data, guesses = convert(save_workbook(book, folder / "old.xlsx"))
    path = folder / "new.xlsx"
    path.write_bytes(data)
    return path, guesses


def run_tool(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, str]:
    """Run the tool. Return the exit status and the output."""
    status = main([str(path) for path in paths])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def workbooks_agree(first: Workbook, second: Workbook) -> bool:
    def strip_locations(value: Any) -> Any:
        if isinstance(value, dict):
            location_keys = ("at", "notes", "layout", "lines", "sheet", "columns")
            return {
                key: strip_locations(part)
                for key, part in value.items()
                if key not in location_keys
            }
        return [strip_locations(part) for part in value] if isinstance(value, list) else value

    return bool(
        strip_locations(first.model_dump(mode="json"))
        == strip_locations(second.model_dump(mode="json"))
    )


def test_the_archive_layout_is_converted_and_runs(tmp_path: Path) -> None:
    path, guesses = convert_book(make_archive_layout(), tmp_path)
    workbook = load_workbook_config(path).workbook
    by_name = {task.var_name: task for task in workbook.tasks}
    assert [task.type for task in workbook.tasks] == [
        *("context", *["private_question"] * 5, "discussion", "discussion", "private_question")
    ]
    assert by_name["power"].response_options == '["Yes", "No"]'
    assert by_name["power"].llm_text == "More power?" and by_name["power"].validate_response
    assert by_name["age"].response_options == "Enter a number of at least 18"
    assert by_name["trust"].llm_text == "Now about trust.\n\n{response_options} Trust?"
    assert (by_name["trust"].response_options, by_name["trust"].var_type) == ("(0, 10)", "float")
    assert "Do not know" in str(by_name["good"].response_options)
    assert by_name["luck"].var_type == "category"
    assert by_name["talk_1"].var_type is None
    assert not by_name["power_2"].validate_response
    assert [item.label for item in workbook.roles] == ["Facilitator", "Jamie", "Taylor"]
    settings = workbook.settings
    assert (settings.num_agents_per_session, settings.num_sessions) == (2, 3)
    assert settings.session_assignment_strategy == "manual"
    assert settings.experiment_id == "asch 2_ power_influence"
    provider = make_provider()
    run = folkmoot.run(path, out=tmp_path / "out", provider=provider)
    assert run.table("sessions").height == 3
    assert sorted(set(run.table("assignment")["participant_id"])) == list("123456")
    prompts = ["\n".join(message.content for message in item.messages) for _, item in provider.seen]
    assert not any("{#" in prompt or "No Treatment" in prompt for prompt in prompts)
    assert any("Now about trust." in prompt and "Trust?" in prompt for prompt in prompts)
    assert guesses


@pytest.fixture(scope="module")
def guesses_of_archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """Return the guesses about the archive layout in the output and in the new workbook."""
    folder = tmp_path_factory.mktemp("archive")
    old_path = save_workbook(make_archive_layout(), folder / "old.xlsx")
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        status = main([str(old_path)])
    assert status == 0, output.getvalue()
    printed = [line for line in output.getvalue().splitlines() if line.startswith("Guess:")]
    sheet = load_workbook(folder / "old_converted.xlsx")["notes"]
    return printed, [str(row[0]) for row in sheet.iter_rows(values_only=True)]


@pytest.mark.parametrize(
    "words",
    [
        ("prompts_template became interview_prompts",),
        ("No Treatment is told nothing",),
        ("Interviewer became Facilitator",),
        ("rows 3–4, 6–8, 11", "question became private_question"),
        ("row 3", '["Yes", "No"]'),
        ("row 4", "at least 18", "not asked for again"),
        ("row 6", "the context in row 5"),
        ("row 6", "{reponse_options} became {response_options}"),
        ("rows 6–7", "numeric became float"),
        ("row 7", "Do not know", "category", "not asked for again"),
        ("row 8", "cateogry became category"),
        ("row 9", "became a discussion"),
        ("row 10", "goes on with it"),
        ("row 11", "validate_response is 0"),
        ("var_name power became power_2",),
        ("format_response is 0 in all tasks",),
        ("task_order follows the order of the rows",),
        ("temperature is 1",),
        ("random_seed is 42",),
        ("role_assignment_strategy is random",),
        ("num_agents_per_session is 2 instead of 3",),
        ("num_sessions is 3 instead of 90",),
        ("sessions c4", "take no part"),
        ("experiment_id", "it names files"),
        ("max_conversation_length counts",),
    ],
)
def test_every_guess_is_on_the_terminal_and_in_the_workbook(
    guesses_of_archive: tuple[list[str], list[str]], words: tuple[str, ...]
) -> None:
    printed_guesses, workbook_guesses = guesses_of_archive
    assert len([line for line in printed_guesses if all(word in line for word in words)]) == 1, (
        printed_guesses
    )
    assert [line.removeprefix("Guess: ") for line in printed_guesses] == workbook_guesses


def test_a_workbook_without_format_response_is_converted_and_runs(tmp_path: Path) -> None:
    path, guesses = convert_book(make_without_format_response(), tmp_path)
    assert "format_response is 0 in all tasks: there was no such column" in guesses
    assert any("rows 4–5: the type question became private_question" in guess for guess in guesses)
    run = folkmoot.run(path, out=tmp_path / "out", provider=make_provider())
    assert run.table("sessions")["ended"].to_list() == ["completed", "completed"]


@pytest.mark.parametrize(
    "make", [make_workbook, make_older_layout, make_short_layout, random_assignment]
)
def test_a_valid_workbook_is_unchanged_by_the_conversion(tmp_path: Path, make: Any) -> None:
    path, guesses = convert_book(make(), tmp_path)
    assert workbooks_agree(
        load_workbook_config(path).workbook, load_workbook_config(tmp_path / "old.xlsx").workbook
    ) == (make is not random_assignment)
    assert len(guesses) == (make is random_assignment)


def test_the_short_layout_keeps_its_rules_when_columns_are_added(tmp_path: Path) -> None:
    book = make_short_layout()
    book["prompt"] = [row[:-1] for row in book["prompt"]]
    path, _ = convert_book(book, tmp_path)
    workbook = load_workbook_config(path).workbook
    assert workbook.layout == "short" and not workbook.settings.reveal_private
    assert workbook.treatments[0].extra == {"mood": "quiet"}


def test_files_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_path = save_workbook(make_archive_layout(), tmp_path / "old.xlsx")
    old_bytes = old_path.read_bytes()
    new_path = tmp_path / "old_converted.xlsx"
    new_path.write_bytes(b"mine")
    status, output = run_tool(capsys, old_path)
    assert status == 2 and "already exists" in output
    assert new_path.read_bytes() == b"mine" and old_path.read_bytes() == old_bytes
    other_folder = tmp_path / "other"
    status, output = run_tool(capsys, old_path, other_folder)
    assert status == 0 and (other_folder / "old_converted.xlsx").exists()


def test_a_value_without_a_guess_is_listed_with_its_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old_path = save_workbook(
        with_setting(make_archive_layout(), "model_info", None), tmp_path / "old.xlsx"
    )
    status, output = run_tool(capsys, old_path)
    assert status == 2
    assert "experimental_setting!B3: model_info is blank" in output
    assert (tmp_path / "old_converted.xlsx").exists()


def test_omitted_content_is_reported(tmp_path: Path) -> None:
    book = with_cell(make_archive_layout(), "treatments!E2", "a remark")
    book = with_cell(book, "agent_profiles!E4", "an answer")
    book["experimental_setting"].append(["colour", "red"])
    book["scratch"] = [["x"]]
    book["agent_roles"][0].append("colour")
    path, guesses = convert_book(book, tmp_path)
    for text in ("treatments!E2: 'a remark'", "agent_profiles!E1", "'colour red'", "scratch"):
        assert len([guess for guess in guesses if text in guess]) == 1, guesses
    assert any("agent_roles!C1: the column colour" in guess for guess in guesses)
    assert any("an answer" in row for row in load_workbook_config(path).workbook.profiles.rows)


def test_text_cells_stay_text(tmp_path: Path) -> None:
    book = make_archive_layout()
    book["agent_profiles"][2][:2] = ["007", "3.10"]
    old_path = save_workbook(book, tmp_path / "old.xlsx")
    workbook = load_workbook(old_path)
    cell = workbook["agent_profiles"]["B4"]
    cell.value = "=SUM, she said"
    cell.data_type = "s"
    workbook.save(old_path)
    data, _ = convert(old_path)
    (tmp_path / "new.xlsx").write_bytes(data)
    rows = load_workbook_config(tmp_path / "new.xlsx").workbook.profiles.rows
    assert rows[0][:2] == ("007", "3.10") and rows[1][1] == "=SUM, she said"


def test_errors_in_cells_are_refused(tmp_path: Path) -> None:
    old = save_workbook(
        with_cell(make_archive_layout(), "agent_profiles!B4", "#N/A"), tmp_path / "old.xlsx"
    )
    with pytest.raises(InputError, match=r"agent_profiles!B4: the cell holds the error #N/A"):
        convert(old)


def test_damaged_workbooks_are_converted_or_refused_with_messages(tmp_path: Path) -> None:
    loaded_count = 0
    for seed in range(18):
        path = write_workbook(mutate(seed), tmp_path / "old.xlsx")
        try:
            data, _ = convert(path)
            (tmp_path / "new.xlsx").write_bytes(data)
            assert config_advisories(load_workbook_config(tmp_path / "new.xlsx"))
            loaded_count += 1
        except InputError as error:
            assert all(problem.message for problem in error.problems)
    assert loaded_count > 5


def test_the_columns_of_a_task_are_those_of_the_layout(tmp_path: Path) -> None:
    path, _ = convert_book(make_archive_layout(), tmp_path)
    header = next(load_workbook(path)[TASKS].iter_rows(values_only=True))
    assert header == (*TASK_COLUMNS, "people_text", "measure")


@pytest.mark.skipif("FOLKMOOT_WORKBOOKS" not in os.environ, reason="names no folder of workbooks")
def test_collected_workbooks_run_unchanged_or_converted(tmp_path: Path) -> None:
    """Blank templates are skipped, because they have no respondents."""
    for old in sorted(Path(os.environ["FOLKMOOT_WORKBOOKS"]).glob("*.xlsx")):
        path = old
        try:
            load_workbook_config(old)
        except InputError:
            data, _ = convert(old)
            path = tmp_path / old.name
            path.write_bytes(data)
        try:
            load_workbook_config(path)
        except InputError as error:
            assert any("there is no respondent" in problem.message for problem in error.problems), (
                old
            )
            continue
        run_folder = tmp_path / f"{old.stem}_out"
        run = folkmoot.run(path, out=run_folder, model="synthetic", limit=1)
        assert run.table("sessions").height >= 1


@pytest.mark.parametrize("old", [make_archive_layout, make_without_format_response])
def test_every_text_in_the_prompts_of_a_converted_workbook_has_its_source(
    old: Callable[[], Cells], tmp_path: Path
) -> None:
    data, _ = convert(write_workbook(old(), tmp_path / "old.xlsx"))
    new = tmp_path / "new.xlsx"
    new.write_bytes(data)
    run = run_workbook(new, tmp_path / "played", limit=2)
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
