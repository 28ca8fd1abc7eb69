"""Unusual values in the forms of the studio are saved exactly, or the form names the problem.

A file may contain any text that people write or paste: quotes, colons, emoji, very long texts.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import openpyxl
import pytest
from openpyxl.comments import Comment

import folkmoot
from folkmoot.authoring.template import new_files, write_value
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.study import find_study
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.workbook.spreadsheet.reading import read_workbook
from folkmoot.studio.fields import walk_fields
from folkmoot.studio.study_forms import WorkbookForm, read_study_form, word_problems
from folkmoot.studio.study_text import change_values
from tests.sweeps import sample_daily

# `test_studio_mistakes` reads workbooks in child processes, as in normal use.
pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

TEXTS = [
    'it\'s "so"',
    "a: b",
    "- x",
    "# no",
    "🙂👨‍👩‍👧",
    "x" * 50_000,
    "a\n\n  b",
    "true",
    "1e5",
    "1.0",
    "007",
    "0x10",
    "12:30",
    "no",
    " x ",
    "",
    "a\tb",
    "{x}",
    "%a",
    "*a",
    "|-\n x",
    "\x85x",
    "\u2028x",
    "\ufeffx",
]
STUDY_TEXT = """\
# a remark
topic:
  description: "Should we?"   # beside it
groups: {a: 1, b: 2}
"""


@pytest.mark.parametrize("text", TEXTS, ids=[ascii(text)[:20] for text in TEXTS])
def test_a_written_text_is_read_back_unchanged(text: str) -> None:
    for new_values in (
        {"topic": {"description": text}, "groups": {"a": 1, "b": 2}},
        {"topic": {"description": "Should we?"}, "groups": {text: 1, "b": 2}},
        {"topic": {"description": "Should we?"}, "groups": {"a": 1, "b": 2}, "new": [text]},
    ):
        changed_text = change_values(STUDY_TEXT, new_values)
        assert parse_yaml(changed_text, "").value == new_values
        assert "# a remark" in changed_text
    assert parse_yaml(f"key: {write_value([text])}", "").value == {"key": [text]}


def write_study(folder: Path, lines: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(f"study: negotiation\n{lines}", "utf-8")
    return path


@pytest.mark.parametrize(("before", "after"), [("1", "true"), ("true", "1"), ("false", "0")])
def test_a_number_of_participants_can_become_all_of_them(
    tmp_path: Path, before: str, after: str
) -> None:
    path = write_study(tmp_path, f"controls: {{no_persona: {before}}}\n")
    field = json.dumps(["controls", "no_persona"])
    _, problems = read_study_form(path).save(path, {field: after}, "")
    assert problems == []
    assert f"no_persona: {after}" in path.read_text("utf-8")


@pytest.mark.parametrize(
    "text", ["true", "~", "#5", "{{ x }}", "- 5", "[1, 2]", "{% if %}", "1e400", "nan", "1,5", "'"]
)
@pytest.mark.parametrize("key", ["days", "budget_usd"])
def test_an_invalid_number_stays_in_its_field_with_a_problem(
    tmp_path: Path, key: str, text: str
) -> None:
    path = write_study(tmp_path, f"{key}: 1\n")
    form, problems = read_study_form(path).save(path, {json.dumps([key]): text}, "")
    assert problems == []
    with pytest.raises(InputError) as error:
        load_study_file(path)
    (element_ids,) = form.place(error.value.problems)[0].items()
    assert element_ids[0] == f"f-{key}"
    fields = [field for section in form.sections for field in section.fields]
    assert next(field.value for field in fields if field.id == f"f-{key}") == text


def test_too_few_dates_are_reported_at_their_list(tmp_path: Path) -> None:
    path = write_study(tmp_path, "days: 2\ntrip: {date: ['2026-01-01']}\n")
    with pytest.raises(InputError) as error:
        load_study_file(path)
    form = read_study_form(path)
    problems_by_field, other_problems = form.place(word_problems(form, error.value.problems))
    assert other_problems == []
    (problem,) = problems_by_field["f-trip-date"]
    assert problem.message == "needs as many dates as “Days”, 2, and has 1"
    # If the number of days is invalid, the number of dates is not compared with it.
    path = write_study(tmp_path, "days: 0\ntrip: {date: ['2026-01-01']}\n")
    with pytest.raises(InputError) as error:
        load_study_file(path)
    assert [problem.key for problem in error.value.problems] == ["days"]


LAYOUTS = {
    "block": "models:\n  # codes\n  coder: one  # small\n  mediator: two\n  members: three\n",
    "flow": "models: {coder: one, mediator: two, members: three}  # ours\n",
    "quoted": "models:\n  'coder': one\n  \"mediator\" : two\n  members: three\n",
    "anchors": "models:\n  coder: one\n  mediator: &two two\n  members: three\nprompts: *two\n",
    "groups": "level_settings:\n  1: {context: none}\n  2: {}\n  3:\n    part: main\n",
}


def type_into_page(path: Path, changes: Sequence[dict[str, str]]) -> list[str]:
    """Make the changes to one page of a form, which is saved after each. Return all problems."""
    page = {}
    for section in read_study_form(path).sections:
        for field in walk_fields(section.fields):
            keys = {row.key_name: row.label for row in field.inner if field.kind == "mapping"}
            page |= {field.name: field.value, **keys}
    messages = []
    for change in changes:
        assert change.keys() <= page.keys()
        page |= change
        # The page is not drawn again after a change of a field.
        _, problems = read_study_form(path).save(path, page, "")
        messages += [problem.message for problem in problems]
    return messages


@pytest.mark.parametrize(
    "line_end", sample_daily(["\n", "\r\n"], daily=1, part="sweeps"), ids=["lf", "crlf"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_renamed_row_of_a_mapping_keeps_its_value(
    tmp_path: Path, layout: str, row: int, line_end: str
) -> None:
    kind = "town_hall" if layout == "groups" else "negotiation"
    text = f"study: {kind}\nrandom_seed: 1\n{LAYOUTS[layout]}".replace("\n", line_end)
    path = tmp_path / "study.yaml"
    path.write_bytes(text.encode())
    mapping = "level_settings" if layout == "groups" else "models"
    before = parse_yaml(text, "").value
    key_name = f"key {json.dumps([mapping, row])}"
    # A page whose row is renamed letter by letter, and then another field is changed.
    seed = json.dumps(["random_seed"])
    problems = type_into_page(path, [{key_name: "n"}, {key_name: "new"}, {seed: "2"}])
    assert problems == []
    names = list(before[mapping])
    old_name, names[row] = names[row], "new"
    values = [before[mapping][name] for name in before[mapping]]
    changed_text = path.read_bytes().decode()
    after = parse_yaml(changed_text, "").value
    assert after == {**before, "random_seed": 2, mapping: dict(zip(names, values, strict=True))}
    assert list(after[mapping]) == names
    # Only the name and the other field are other text, so comments and layout stay.
    if layout != "flow":
        written = re.sub(f"['\"]?{old_name}['\"]?( ?:)", r"new\1", text, count=1)
        assert changed_text == written.replace("random_seed: 1", "random_seed: 2")


def test_two_rows_of_a_mapping_can_exchange_their_names(tmp_path: Path) -> None:
    path = write_study(tmp_path, "models:\n  coder: one\n  mediator: two\n  members: three\n")
    first, second, third = (f"key {json.dumps(['models', i])}" for i in range(3))
    changes = [{first: "mediator"}, {second: "members"}, {third: "coder"}, {first: "mediator "}]
    problems = type_into_page(path, changes)
    # While two rows have one name, each row keeps the one before.
    assert set(problems) == {
        f"there are two rows named {name!r}: give each another name"
        for name in ("mediator", "members")
    }
    models = parse_yaml(path.read_text("utf-8"), "").value["models"]
    assert list(models.items()) == [("mediator", "one"), ("members", "two"), ("coder", "three")]


def test_an_emptied_row_of_a_mapping_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    levels = "level_settings:\n  1:\n    part: supplementary\n  2:\n    part: main\n"
    path.write_text(f"study: town_hall\nrandom_seed: 1\n{levels}", "utf-8")
    part, seed = json.dumps(["level_settings", 0, "part"]), json.dumps(["random_seed"])
    assert type_into_page(path, [{part: ""}, {seed: "2"}]) == []
    values = parse_yaml(path.read_text("utf-8"), "").value
    assert values["level_settings"] == {"1": {}, "2": {"part": "main"}}


NEGOTIATION_GROUPS = """\
groups:
  - type: spouses
    members:
      - role: spouse
        preferences:
          traveler_type: I like quiet days.
          travel_purpose: I want rest.
          spending_preference: Cheap.
          cuisine: I love a diner.
          attraction: I like museums.
          event: I like the theatre.
          lodging: {room_type: I prefer a hotel., house_rule: No smoking.}
      - role: spouse
        persona: a teacher
"""


def test_both_lodging_preferences_have_a_field_that_may_be_emptied(tmp_path: Path) -> None:
    path = write_study(tmp_path, NEGOTIATION_GROUPS)
    lodging = ["groups", 0, "members", 0, "preferences", 6]
    form_values = {json.dumps([*lodging, 0]): "I want: a tent", json.dumps([*lodging, 1]): ""}
    read_study_form(path).save(path, form_values, "")
    members = parse_yaml(path.read_text("utf-8"), "").value["groups"][0]["members"]
    assert members[0]["preferences"]["lodging"] == {"room_type": "I want: a tent", "house_rule": ""}
    with pytest.raises(InputError, match="Partner 1 states no preference for house_rule"):
        load_study_file(path)


def test_a_blank_lodging_preference_is_reported_as_missing(tmp_path: Path) -> None:
    path = write_study(tmp_path, NEGOTIATION_GROUPS.partition(" {room_type")[0])
    with pytest.raises(InputError, match="states no preference for room_type, house_rule"):
        load_study_file(path)


def test_a_run_with_options_like_numbers_can_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "study: cross_pollination\npilot_id: p\npersonas: {source: quota}\n"
        "topic: {description: 'How many?', options: ['1e5', '2e5']}\n"
        "participants_per_condition: 2\nconditions: [simple_voting]\n"
        "min_responses_for_threshold: 50\n",
        "utf-8",
    )
    provider = ScriptedProvider(lambda request, address: request.hints.offered[0])
    run = folkmoot.run(path, provider=provider, out=tmp_path / "run")
    resumed_run = folkmoot.run(
        run.path / "study.yaml", provider=provider, out=tmp_path / "run", if_exists="resume"
    )
    assert resumed_run.table("participants")["initial_choice"].to_list() == ["1e5", "1e5"]


def write_workbook(folder: Path) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "roles"
    for cells in (["role", "description"], ["buyer", "You buy."]):
        sheet.append(cells)
    book.save(folder / "prices.xlsx")
    return folder / "prices.xlsx"


@pytest.mark.parametrize(
    ("text", "saved_text"),
    sample_daily(
        [
            ('it\'s "so": 🙂', 'it\'s "so": 🙂'),
            ("=1+1", "=1+1"),
            ("1" * 400, "1" * 400),
            ("9007199254740993", "9007199254740993"),
            ("5.0", "5.0"),
            ("1e+16", "1e+16"),
            ("a\nb", "a\nb"),
            # XML cannot contain these characters. They are replaced, so the file can be read.
            ("a\x00\ufffeb", "a\ufffd\ufffdb"),
        ],
        daily=4,
        part="sweeps",
    ),
)
def test_a_cell_contains_the_entered_text(tmp_path: Path, text: str, saved_text: str) -> None:
    path = write_workbook(tmp_path)
    form = read_study_form(path)
    _, problems = form.save(path, {json.dumps(["roles", 1, "B"]): text}, "")
    assert problems == []
    saved_form = read_study_form(path)
    assert isinstance(saved_form, WorkbookForm)
    assert saved_form.sheets.values["roles"][1] == {"A": "buyer", "B": saved_text}


def write_example_workbook(folder: Path, change: Callable[[openpyxl.Workbook], None]) -> Path:
    """Write the example workbook with a change by a spreadsheet program, and return its path."""
    path = folder / "public_goods.xlsx"
    content = new_files(find_study("workbook"))[path.name]
    assert isinstance(content, bytes)
    path.write_bytes(content)
    book = openpyxl.load_workbook(path)
    change(book)
    book.save(path)
    return path


def test_dates_are_unchanged_after_a_row_above_them_is_removed(tmp_path: Path) -> None:
    def enter_dates(book: openpyxl.Workbook) -> None:
        for row in range(3, 19):
            book["agent_profiles"].cell(row, 2, dt.date(1990, 1, row))

    path = write_example_workbook(tmp_path, enter_dates)
    original_workbook, _ = read_workbook(path)
    _, problems = read_study_form(path).save(path, {}, 'remove ["agent_profiles", 2]')
    assert problems == []
    changed_workbook, _ = read_workbook(path)
    assert original_workbook is not None and changed_workbook is not None
    assert changed_workbook.profiles.rows == original_workbook.profiles.rows[1:]


def read_column_texts(path: Path) -> tuple[list[str], list[str]]:
    """Return column C of the participants as the form shows it and as the study reads it."""
    form = read_study_form(path)
    assert isinstance(form, WorkbookForm)
    shown_texts = [row["C"] for row in form.sheets.values["agent_profiles"][2:]]
    workbook_read, problems = read_workbook(path)
    assert workbook_read is not None and problems == []
    return shown_texts, [row[2] for row in workbook_read.profiles.rows]


@pytest.mark.parametrize(
    "number_format",
    sample_daily(["0%", "000", "0.00", "yyyy-mm-dd"], daily=["0%"], part="mutations"),
)
def test_a_form_shows_the_numbers_that_the_study_reads(tmp_path: Path, number_format: str) -> None:
    def enter_numbers(book: openpyxl.Workbook) -> None:
        for row in range(3, 19):
            cell = book["agent_profiles"].cell(row, 3, row + 0.4 if row % 2 else row)
            cell.number_format = number_format

    path = write_example_workbook(tmp_path, enter_numbers)
    shown_texts, read_texts = read_column_texts(path)
    assert shown_texts == read_texts
    # Text that is typed into such a cell is read unchanged.
    for number, text in enumerate(("5", "0.25", "007", "40%", "2.50", "3.14159265358979"), 2):
        form = read_study_form(path)
        _, problems = form.save(path, {json.dumps(["agent_profiles", number, "C"]): text}, "")
        assert problems == []
        shown_texts, read_texts = read_column_texts(path)
        assert shown_texts == read_texts
        assert read_texts[number - 2] == text
    read_study_form(path).save(path, {}, 'remove ["agent_profiles", 2]')
    assert read_column_texts(path) == (shown_texts[1:], read_texts[1:])


def test_a_comment_in_a_sheet_does_not_change_its_form(tmp_path: Path) -> None:
    def read_shape(path: Path) -> list[tuple[str, list[str]]]:
        return [
            (section.title, [field.label for field in walk_fields(section.fields)])
            for section in read_study_form(path).sections
        ]

    original_shape = read_shape(write_example_workbook(tmp_path, lambda book: None))

    def add_notes(book: openpyxl.Workbook) -> None:
        cells = ("agent_profiles!A5", "agent_profiles!B1", "treatments!A2")
        for sheet, _, cell in (address.partition("!") for address in cells):
            book[sheet][cell].comment = Comment("Is this right?", "a colleague")

    assert read_shape(write_example_workbook(tmp_path, add_notes)) == original_shape


@pytest.mark.parametrize(
    ("part_name", "content"),
    [
        ("xl/drawings/drawing1.xml", "drawings"),
        ("xl/threadedComments/threadedComment1.xml", "comments with replies"),
    ],
)
def test_a_workbook_with_parts_that_a_form_would_lose_has_no_form(
    tmp_path: Path, part_name: str, content: str
) -> None:
    path = write_example_workbook(tmp_path, lambda book: None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(part_name, "<a/>")
    form = read_study_form(path)
    assert isinstance(form, WorkbookForm)
    assert f"The workbook has {content}, which a form would lose" in form.reason


def test_a_text_too_long_for_a_cell_is_refused_and_the_file_is_unchanged(tmp_path: Path) -> None:
    path = write_workbook(tmp_path)
    original_bytes = path.read_bytes()
    _, problems = read_study_form(path).save(
        path, {json.dumps(["roles", 1, "B"]): "x" * 40_000}, ""
    )
    assert "roles!B2: this text has 40,000 characters, and a cell holds 32,767" in str(problems[0])
    assert path.read_bytes() == original_bytes


def test_a_file_in_another_encoding_has_no_form_and_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes("study: cross_pollination\npilot_id: Größe\n".encode("latin-1"))
    form = read_study_form(path)
    assert form.sections == ()
    form.save(path, {'["pilot_id"]': "x"}, "")
    assert path.read_bytes() == "study: cross_pollination\npilot_id: Größe\n".encode("latin-1")
