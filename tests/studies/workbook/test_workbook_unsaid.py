"""`check` reports every cell that is dropped or changed: merged, hidden or left out."""

from __future__ import annotations

import datetime as dt
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.studies.workbook.preparation import config_advisories, load_workbook_config
from tests.studies.workbook.test_workbook_parts import make_manual_workbook
from tests.studies.workbook.test_workbook_reading import make_older_layout
from tests.studies.workbook.workbook_builder import (
    TASK_COLUMNS,
    find_mistakes,
    make_provider,
    make_workbook,
    save_workbook,
    with_cell,
    with_setting,
    write_workbook,
)
from tests.sweeps import sample_daily

TASKS = "interview_prompts"
PEOPLE = "agent_profiles"
Cells = dict[str, list[list[Any]]]


def list_advisories(
    book: Cells, folder: Path, change: Callable[[Any], None] = lambda _: None
) -> list[str]:
    """Return what `check` reports after a change in the spreadsheet program."""
    return config_advisories(load_workbook_config(save_changed(book, folder, change)))


def save_changed(book: Cells, folder: Path, change: Callable[[Any], None]) -> Path:
    path = save_workbook(book, folder / "book.xlsx")
    opened = load_workbook(path)
    change(opened)
    opened.save(path)
    return path


def get_matching_note(found: list[str], *words: str) -> str:
    """Return the only note that contains all these words."""
    fitting = [n for n in found if all(w in n for w in words)]
    assert len(fitting) == 1, found
    return fitting[0]


def list_seated_participants(path: Path) -> dict[str, str]:
    """Return the session of each respondent."""
    out = path.parent / "out"
    run = folkmoot.run(path, out=out, provider=make_provider())
    return {r["participant_id"]: r["session"] for r in run.table("assignment").to_dicts()}


# --- merged cells ----------------------------------------------------------------------------


def merge_session_cells(book: Any) -> None:
    sheet = book[PEOPLE]
    column = next(c.column_letter for c in sheet[1] if c.value == "my session")
    for first in (3, 7):
        sheet.merge_cells(f"{column}{first}:{column}{first + 3}")


def test_a_merged_cell_counts_for_all_its_rows_and_check_says_so(tmp_path: Path) -> None:
    book = make_manual_workbook()
    column = book[PEOPLE][0].index("my session")
    for i, row in enumerate(book[PEOPLE][2:]):
        row[column] = "A" if i < 4 else "B"
    (tmp_path / "apart").mkdir()
    apart = list_seated_participants(save_workbook(book, tmp_path / "apart" / "book.xlsx"))
    path = save_changed(book, tmp_path, merge_session_cells)
    found = config_advisories(load_workbook_config(path))
    get_matching_note(found, f"{PEOPLE}!", "is one merged cell", "'A'", "rows 3–6")
    get_matching_note(found, f"{PEOPLE}!", "is one merged cell", "'B'", "rows 7–10")
    assert not [n for n in found if "take no part" in n]
    assert list_seated_participants(path) == apart
    assert len(apart) == 8


def test_a_range_merged_across_columns_with_values_is_refused_by_name(tmp_path: Path) -> None:
    path = save_changed(make_workbook(), tmp_path, lambda b: b[PEOPLE].merge_cells("B4:C5"))
    with pytest.raises(InputError, match=rf"{PEOPLE}!B4: the cells B4:C5 are merged.*unmerge"):
        load_workbook_config(path)


def save_with_merged_cells(folder: Path, cells: str) -> Path:
    """Save a workbook with merged cells of respondents as Excel does: with the range alone."""
    book = make_workbook()
    path = write_workbook(book, folder / "book.xlsx")
    merged = f'<mergeCells count="1"><mergeCell ref="{cells}"/></mergeCells></worksheet>'
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    people = f"xl/s{list(book).index(PEOPLE)}.xml"
    parts[people] = parts[people].replace("</worksheet>", merged)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def test_values_that_a_merged_cell_hides_are_not_overwritten(tmp_path: Path) -> None:
    path = save_with_merged_cells(tmp_path, "C3:C5")
    with pytest.raises(InputError, match=rf"{PEOPLE}!C3: the cells C3:C5 are merged over other"):
        load_workbook_config(path)


def test_a_merge_across_empty_columns_or_as_a_title_changes_nothing(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book["treatments"].merge_cells("B2:F2")
        book["agent_roles"].insert_rows(1)
        book["agent_roles"]["A1"] = "Who takes part"
        book["agent_roles"].merge_cells("A1:B1")

    plain = load_workbook_config(save_workbook(make_workbook(), tmp_path / "plain.xlsx")).workbook
    path = save_changed(make_workbook(), tmp_path, change)
    assert load_workbook_config(path).workbook.treatments == plain.treatments
    assert [r.label for r in load_workbook_config(path).workbook.roles] == [
        r.label for r in plain.roles
    ]
    get_matching_note(
        config_advisories(load_workbook_config(path)),
        "agent_roles: the column names are in row 2",
        "row 1 above not read",
    )


def test_a_merge_down_to_the_end_of_the_sheet_adds_no_participant(tmp_path: Path) -> None:
    path = save_with_merged_cells(tmp_path, "C10:C1048576")
    assert len(load_workbook_config(path).workbook.profiles.rows) == 8
    # Other programs write each cell of the range, too.
    path = save_changed(make_workbook(), tmp_path, lambda b: b[PEOPLE].merge_cells("C10:C5000"))
    assert len(load_workbook_config(path).workbook.profiles.rows) == 8


def test_merged_ids_are_duplicates_and_not_people_without_one(tmp_path: Path) -> None:
    path = save_changed(make_workbook(), tmp_path, lambda b: b[PEOPLE].merge_cells("A3:A4"))
    with pytest.raises(InputError, match=rf"{PEOPLE}!A4: duplicate ID 'p1'"):
        load_workbook_config(path)


# --- hidden ----------------------------------------------------------------------------------


def test_hidden_rows_columns_and_sheets_are_read_and_reported(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        for row in (4, 5, 9, 400):
            book[PEOPLE].row_dimensions[row].hidden = True
        for letter in "CDEF":
            book[PEOPLE].column_dimensions[letter].hidden = True
        book["constants"].sheet_state = "veryHidden"

    found = list_advisories(make_workbook(), tmp_path, change)
    get_matching_note(found, f"{PEOPLE}: rows 4–5, 9 hidden")
    get_matching_note(found, f"{PEOPLE}: column C hidden")  # the others hold nothing
    get_matching_note(found, "the sheet constants is hidden")
    plain = load_workbook_config(save_workbook(make_workbook(), tmp_path / "plain.xlsx"))
    assert load_workbook_config(tmp_path / "book.xlsx").workbook.profiles == plain.workbook.profiles


def test_a_hidden_sheet_of_notes_is_not_read(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book.create_sheet("notes")["A1"] = "for us"
        book["notes"].sheet_state = "hidden"

    found = list_advisories(make_workbook(), tmp_path, change)
    assert [note for note in found if "notes" in note] == [
        "the sheet notes is for people; it is not read"
    ]


def test_rows_behind_a_filter_are_reported(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        sheet = book[PEOPLE]
        sheet.auto_filter.ref = "A2:C10"
        sheet.auto_filter.add_filter_column(1, ["21"])
        for row in range(4, 11):
            sheet.row_dimensions[row].hidden = True

    get_matching_note(
        list_advisories(make_workbook(), tmp_path, change),
        f"{PEOPLE}: rows 4–10 hidden by a filter",
    )


def test_an_unknown_hidden_sheet_is_reported_as_hidden(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book.create_sheet("lists")["A1"] = "yes"
        book["lists"].sheet_state = "hidden"

    with pytest.raises(InputError, match=r"the hidden sheet 'lists' does not .*unhide it"):
        load_workbook_config(save_changed(make_workbook(), tmp_path, change))


# --- people and arms left out ----------------------------------------------------------------


def test_respondents_without_a_session_are_reported_with_row_and_reason(tmp_path: Path) -> None:
    book = with_setting(make_manual_workbook(), "num_sessions", 1)
    column = book[PEOPLE][0].index("my session")
    first = book[PEOPLE][2][column]
    out = [n for n, row in enumerate(book[PEOPLE][2:], 3) if row[column] != first]
    for n in out:
        book[PEOPLE][n - 1][column] = None
    found = list_advisories(book, tmp_path)
    note = get_matching_note(found, "respondents take no part", "my session blank")
    assert f"{len(out)} of 8" in note
    assert extract_numbers(note.rpartition(":")[2]) == out


def extract_numbers(text: str) -> list[int]:
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def test_a_run_reports_respondents_without_a_session(tmp_path: Path) -> None:
    path = save_workbook(with_setting(make_workbook(), "num_sessions", 1), tmp_path / "book.xlsx")
    words = ["run", str(path), "--model", "synthetic", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0
    assert "4 of 8 respondents take no part" in shown.output


@pytest.mark.parametrize("seed", [7, 8])
def test_people_whom_the_draw_leaves_out_are_those_whom_the_run_leaves_out(
    tmp_path: Path, seed: int
) -> None:
    book = with_setting(with_setting(make_workbook(), "num_sessions", 1), "random_seed", seed)
    path = save_workbook(book, tmp_path / "book.xlsx")
    note = get_matching_note(
        config_advisories(load_workbook_config(path)),
        "4 of 8 respondents take no part",
        "not drawn",
    )
    assert {f"p{n - 2}" for n in extract_numbers(note.rpartition(":")[2])} == {
        f"p{i}" for i in range(1, 9)
    } - set(list_seated_participants(path))


def test_an_empty_arm_is_reported(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "num_sessions", 1)
    get_matching_note(
        list_advisories(book, tmp_path), "no session has the treatment", "treatments!A"
    )


# --- where the table begins ------------------------------------------------------------------


SHIFTS = [*product(make_workbook(), ((1, 0), (2, 0), (0, 1), (2, 3)))]


# The daily cases have each sheet and each shift.
@pytest.mark.parametrize(
    ("sheet", "shift"),
    sample_daily(
        SHIFTS,
        [(sheet, SHIFTS[n % 4][1]) for n, sheet in enumerate(make_workbook())],
        part="mutations",
    ),
)
def test_a_table_that_does_not_begin_in_a1_is_read_and_reported(
    tmp_path: Path, sheet: str, shift: tuple[int, int]
) -> None:
    rows, columns = shift

    def change(book: Any) -> None:
        if rows:
            book[sheet].insert_rows(1, rows)
            book[sheet].cell(1, 1, "Version of last spring")
        if columns:
            book[sheet].insert_cols(1, columns)

    path = save_changed(make_workbook(), tmp_path, change)
    plain = load_workbook_config(save_workbook(make_workbook(), tmp_path / "plain.xlsx")).workbook
    found = load_workbook_config(path).workbook
    bare = {"at": True}
    for part in ("treatments", "roles", "tasks", "constants", "computed"):
        assert [p.model_dump(exclude=bare) for p in getattr(found, part)] == [
            p.model_dump(exclude=bare) for p in getattr(plain, part)
        ]
    assert found.profiles.rows == plain.profiles.rows
    assert found.settings.model_dump(exclude=bare) == plain.settings.model_dump(exclude=bare)
    if rows:
        get_matching_note(
            list(found.notes), f"{sheet}: the column names are in row {rows + 1}", "row 1 above"
        )


def test_an_empty_row_in_the_middle_is_reported(tmp_path: Path) -> None:
    book = make_workbook()
    book[PEOPLE].insert(5, [])
    book[TASKS].insert(3, [None] * 13)
    found = list_advisories(book, tmp_path)
    get_matching_note(found, f"{PEOPLE}: row 6 empty")
    get_matching_note(found, f"{TASKS}: row 4 empty")
    assert len(load_workbook_config(tmp_path / "book.xlsx").workbook.profiles.rows) == 8


def test_a_footnote_below_the_people_is_not_a_silent_respondent(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "num_sessions", 2)
    book[PEOPLE] += [[], ["Source: survey of 2021"]]
    get_matching_note(list_advisories(book, tmp_path), f"{PEOPLE}: row 12 with one filled cell")


@pytest.mark.parametrize(
    "ids",
    [
        range(1, 9),
        [f"p{i}" for i in range(1, 9)],
        [f"Person {i}" for i in range(1, 9)],
        ["R_3kXa", "R_9bbQ1", "7fz", "a1b2", "x0", "y9z", "z77", "q1w2e3"],
        ["anna", "ben", "cem", "dora", "eva", "fay", "gil", "hana"],
    ],
)
def test_a_sheet_without_a_row_of_questions_does_not_swallow_the_first_respondent(
    tmp_path: Path, ids: Sequence[object]
) -> None:
    book = make_workbook()
    for row, identifier in zip(book[PEOPLE][2:], ids, strict=True):
        row[0] = identifier
    assert not find_mistakes(book, tmp_path)
    del book[PEOPLE][1]
    assert any(
        f"{PEOPLE}!A2: row 2 must hold the questions" in m for m in find_mistakes(book, tmp_path)
    )


@pytest.mark.parametrize(
    "question",
    ["ID", "id", "What is your ID?", "PROLIFIC_PID", "Identifier", "Your ID (p1, p2, p3 …)"],
)
def test_a_question_for_the_id_is_not_taken_for_a_respondent(tmp_path: Path, question: str) -> None:
    assert not find_mistakes(with_cell(make_workbook(), f"{PEOPLE}!A2", question), tmp_path)


# --- the random-assignment layout, and what was said of columns that are not there -----------


def random_assignment() -> Cells:
    """Make a workbook with names of a survey in row 1 (SubjectID) and the columns in row 2."""
    book = make_older_layout()
    people = book["demographic_profiles"]
    people[0][:1] = ["SubjectID"]
    people[0].append("individual_treatment")
    people[1].append("treatment")
    for i, row in enumerate(people[2:]):
        row[0] = 2060 + i
        row.append("calm" if i < 4 else "NONE")
    book = with_setting(book, "treatment_assignment_strategy", "manual")
    book = with_setting(book, "treatment_column", "treatment")
    book[TASKS][2][7] = "free-text"
    return book


@pytest.mark.parametrize(
    "word",
    sample_daily(
        ["free-text", "Free_Text", "free text", "freetext", "text"], daily=2, part="sweeps"
    ),
)
def test_the_random_assignment_layout_runs(tmp_path: Path, word: str) -> None:
    book = random_assignment()
    book[TASKS][2][7] = word
    path = save_workbook(book, tmp_path / "book.xlsx")
    get_matching_note(
        config_advisories(load_workbook_config(path)),
        "demographic_profiles!A2",
        "SubjectID holds the IDs",
    )
    run = folkmoot.run(path, out=tmp_path / "out", provider=make_provider())
    assert set(run.table("assignment")["participant_id"]) == {str(2060 + i) for i in range(8)}
    assert load_workbook_config(path).workbook.tasks[1].var_type is None


def test_the_identifiers_may_also_have_the_survey_name_below(tmp_path: Path) -> None:
    book = with_cell(random_assignment(), "demographic_profiles!A1", "ID")
    path = save_workbook(
        with_cell(book, "demographic_profiles!A2", "SubjectID"), tmp_path / "book.xlsx"
    )
    run = folkmoot.run(path, out=tmp_path / "out", provider=make_provider())
    assert set(run.table("assignment")["participant_id"]) == {str(2060 + i) for i in range(8)}


def test_a_missing_column_of_identifiers_is_reported_with_both_rows(tmp_path: Path) -> None:
    book = with_cell(with_cell(make_workbook(), f"{PEOPLE}!A1", "key"), f"{PEOPLE}!A2", "Key")
    found = find_mistakes(book, tmp_path)
    assert len(found) == 1 and "no column named ID in row 1 or 2" in found[0]


@pytest.mark.parametrize("column", TASK_COLUMNS)
def test_a_missing_column_is_one_mistake_and_no_row_adds_another(
    tmp_path: Path, column: str
) -> None:
    book = make_workbook()
    index = TASK_COLUMNS.index(column)
    book[TASKS] = [[v for i, v in enumerate(row) if i != index] for row in book[TASKS]]
    about = [m for m in find_mistakes(book, tmp_path) if column in m]
    assert len(about) == 1 and f"the column {column} is missing" in about[0]


# --- values with a number format -------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown", "read"),
    [
        (7, "000", "007"),
        (0.1, "0%", "10%"),
        (0.125, "0.0%", "12.5%"),
        (3.1, "0.00", "3.10"),
        (1.0, "General", "1"),
        ("1.0", "General", "1.0"),
        (True, "General", "TRUE"),
        (0.1 + 0.2, "General", "0.3"),
    ],
)
def test_values_are_read_as_they_are_shown(
    tmp_path: Path, value: Any, shown: str, read: str
) -> None:
    def change(book: Any) -> None:
        book[PEOPLE]["B3"] = value
        book[PEOPLE]["B3"].number_format = shown

    config = load_workbook_config(save_changed(make_workbook(), tmp_path, change))
    assert config.workbook.profiles.rows[0][1] == read


def test_dates_are_reported_as_they_are_read(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{PEOPLE}!B3", dt.datetime(2022, 2, 10, 8, 12))
    get_matching_note(
        list_advisories(book, tmp_path), f"{PEOPLE}: column B holds dates", "2022-02-10 08:12:00"
    )


def test_long_durations_are_read_in_hours(tmp_path: Path) -> None:
    """A duration has the number format `[h]:mm:ss`."""
    book = with_cell(make_workbook(), f"{PEOPLE}!B3", dt.timedelta(hours=27, minutes=3))
    get_matching_note(
        list_advisories(book, tmp_path), f"{PEOPLE}: column B holds dates", "as 27:03:00"
    )


@pytest.mark.parametrize(
    ("value", "number_format", "read"),
    [
        (1234.5, "#,##0.00 €", "1234.5"),
        (0.5, "# ?/?", "0.5"),
        (1.5e-7, "0.00E+00", "0.00000015"),
        (1234567.891, '#,##0.0,"k"', "1234567.891"),
        (-3.5, "0.00;[Red](0.00)", "-3.50"),
        (-3.5, "0.00;[Red]-0.00", ""),
        (3.5, "0.00", ""),
        (5, "General", ""),
    ],
)
def test_numbers_in_other_formats_are_reported_as_they_are_read(
    tmp_path: Path, value: float, number_format: str, read: str
) -> None:
    def change(book: Any) -> None:
        book[PEOPLE]["B4"] = value
        book[PEOPLE]["B4"].number_format = number_format

    advisories = list_advisories(make_workbook(), tmp_path, change)
    found = [note for note in map(str, advisories) if "format that is not read" in note]
    assert [note for note in found if f"read as {read} (" in note] == found
    assert len(found) == bool(read)


def test_digits_that_the_sheet_does_not_show_are_reported(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book[PEOPLE]["B4"] = 3.14159
        book[PEOPLE]["B4"].number_format = "0.00"

    get_matching_note(
        list_advisories(make_workbook(), tmp_path, change),
        f"{PEOPLE}: column B",
        "3.14 for 3.14159",
        "B4",
    )


def test_a_manual_column_named_by_a_question_that_is_asked_twice_is_refused(
    tmp_path: Path,
) -> None:
    book = make_manual_workbook()
    for place in (4, 5):
        book[PEOPLE][1][place] = "Which one?"
    book = with_setting(book, "session_column", "Which one?")
    assert any(
        "2 columns have the question 'Which one?'" in m for m in find_mistakes(book, tmp_path)
    )


@pytest.mark.parametrize(("one", "other"), [("p1", "P1"), (1, "1.0"), ("01", 1), ("a  b", "A b")])
def test_similar_ids_are_reported(tmp_path: Path, one: Any, other: Any) -> None:
    book = with_cell(with_cell(make_workbook(), f"{PEOPLE}!A3", one), f"{PEOPLE}!A6", other)
    get_matching_note(list_advisories(book, tmp_path), f"{PEOPLE}!A6: the IDs", "look alike")


@pytest.mark.parametrize(("one", "other"), [("p1", " p1 "), (1, "1"), (1.0, 1), ("p1\u00a0", "p1")])
def test_ids_in_other_formats_are_duplicates(tmp_path: Path, one: Any, other: Any) -> None:
    book = with_cell(with_cell(make_workbook(), f"{PEOPLE}!A3", one), f"{PEOPLE}!A6", other)
    (found,) = find_mistakes(book, tmp_path)
    assert f"{PEOPLE}!A6" in found and f"{PEOPLE}!A3" in found and "duplicate" in found


def test_similar_sessions_are_reported(tmp_path: Path) -> None:
    book = with_setting(
        with_setting(make_manual_workbook(), "num_sessions", 2), "num_agents_per_session", 4
    )
    column = book[PEOPLE][0].index("my session")
    for i, row in enumerate(book[PEOPLE][2:]):
        row[column] = "S1" if i < 4 else "s1"
    get_matching_note(list_advisories(book, tmp_path), "the sessions 'S1' and 's1' look alike")


@pytest.mark.parametrize(
    ("cell", "value", "what"),
    [
        ("treatments!A3", "Calm", "the treatments 'calm' and 'Calm'"),
        ("agent_roles!A6", "buyer", "the roles 'Buyer' and 'buyer'"),
        (f"{TASKS}!G3", "Trade", "the variables 'Trade' and 'trade'"),
    ],
)
def test_similar_labels_are_reported(tmp_path: Path, cell: str, value: str, what: str) -> None:
    book = with_cell(
        with_cell(make_workbook(), "agent_roles!A6", "Broker"), "agent_roles!B6", "You go between."
    )
    get_matching_note(list_advisories(with_cell(book, cell, value), tmp_path), what, "look alike")


def test_a_text_in_the_wrong_encoding_is_reported(tmp_path: Path) -> None:
    garbled = "Café – naïve".encode().decode("cp1252")
    book = with_cell(with_cell(make_workbook(), f"{PEOPLE}!C4", garbled), f"{PEOPLE}!C5", garbled)
    note = get_matching_note(
        list_advisories(book, tmp_path), f"{PEOPLE}!C4", "wrong encoding", "'Café – naïve'"
    )
    assert "1 more" in note
    assert not [
        n
        for n in list_advisories(
            with_cell(make_workbook(), f"{PEOPLE}!C4", "Café – naïve"), tmp_path
        )
        if "enc" in n
    ]


@pytest.mark.parametrize("twin", ["treatments ", "Treatments", "treatments (2)"])
def test_two_sheets_that_look_alike_are_not_chosen_between(tmp_path: Path, twin: str) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    opened = load_workbook(path)
    opened.create_sheet("spare").append(["treatment_label", "treatment_description"])
    opened["spare"].title = "spare"
    opened.save(path)
    rename_sheet_in_file(path, "spare", twin)
    with pytest.raises(InputError, match=re.escape(f"{twin.strip()}")) as caught:
        load_workbook_config(path)
    assert "does not belong here" in str(caught.value)


def rename_sheet_in_file(path: Path, old: str, new: str) -> None:
    """Rename a sheet in the file, because openpyxl avoids names that differ in case alone."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            renamed = data.replace(f'name="{old}"'.encode(), f'name="{new}"'.encode())
            archive.writestr(name, renamed if name == "xl/workbook.xml" else data)


def test_check_prints_what_it_noticed(tmp_path: Path) -> None:
    path = save_changed(make_workbook(), tmp_path, lambda b: b[PEOPLE].merge_cells("C3:C4"))
    shown = CliRunner().invoke(app, ["check", str(path), "--model", "synthetic"])
    assert shown.exit_code == 0, shown.output
    assert f"{PEOPLE}!C3:C4 is one merged cell" in shown.output


# --- an answer that never fits ---------------------------------------------------------------


def test_an_unreadable_answer_is_asked_for_five_times_more_and_then_kept_with_its_flag(
    tmp_path: Path,
) -> None:
    words = "perhaps, I could not say"
    provider = make_provider(option=words, text=words)
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=provider)
    trades = run.table("responses").filter(task_id="m").to_dicts()
    assert {r["status"] for r in trades} == {"invalid"}
    assert {r["value"] for r in trades} == {words}
    asked = [a for a, _ in provider.seen if "/m/" in a]
    assert len(asked) == 6 * len(trades)


@pytest.mark.skipif("FOLKMOOT_WORKBOOKS" not in os.environ, reason="names no folder of workbooks")
def test_workbooks_of_others_are_read_or_refused_in_words() -> None:
    folder = Path(os.environ["FOLKMOOT_WORKBOOKS"])
    for path in sorted(folder.glob("*.xlsx")):
        try:
            assert config_advisories(load_workbook_config(path))
        except InputError as error:
            assert all(p.message and p.file for p in error.problems)


def save_with_formula(folder: Path, cell: str) -> Path:
    """Save a workbook with a formula in the town of the first respondent."""
    path = write_workbook(make_workbook(), folder / "book.xlsx")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    people = f"xl/s{list(make_workbook()).index(PEOPLE)}.xml"
    parts[people] = re.sub(r'<c r="C3".*?</c>', cell, parts[people])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def test_a_formula_with_an_empty_text_is_a_blank_cell(tmp_path: Path) -> None:
    path = save_with_formula(tmp_path, '<c r="C3" t="str"><f>IF(A1="","",A1)</f><v></v></c>')
    profiles = load_workbook_config(path).workbook.profiles
    assert profiles.rows[0] == ("p1", "21", "") and profiles.rows[1][2] == "Town 2"


def test_a_formula_without_a_result_says_how_an_expression_is_typed(tmp_path: Path) -> None:
    path = save_with_formula(tmp_path, '<c r="C3"><f>10 - give</f></c>')
    with pytest.raises(InputError, match=r"never calculated.*typed without the = at its start"):
        load_workbook_config(path)


def test_a_column_that_is_named_and_assigns_nothing_stays_in_the_profile(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "session_column", "town")
    get_matching_note(
        list_advisories(book, tmp_path), "session_column is only used", "will see the column 'town'"
    )
    run = folkmoot.run(tmp_path / "book.xlsx", out=tmp_path / "out", provider=make_provider())
    profiles = [row["profile"] for row in run.table("assignment").to_dicts()]
    assert len(profiles) == 8 and all("Town" in str(profile) for profile in profiles)
