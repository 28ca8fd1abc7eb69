"""Reading a workbook: accepted forms, and problems with their cell and hint."""

from __future__ import annotations

import re
import unicodedata
import zipfile
from pathlib import Path
from typing import Any, Literal

import pytest
from openpyxl import load_workbook

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.studies.workbook.config import Settings
from folkmoot.studies.workbook.preparation import config_advisories, load_workbook_config
from folkmoot.studies.workbook.spreadsheet.layouts import template_files
from tests.studies.workbook.workbook_builder import (
    SETTINGS,
    TASK_COLUMNS,
    find_mistakes,
    make_task_row,
    make_workbook,
    read_config,
    save_workbook,
    with_cell,
    with_setting,
    write_workbook,
)

TASKS = "interview_prompts"


def get_only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_a_good_workbook_has_no_mistake(tmp_path: Path) -> None:
    config = read_config(make_workbook(), tmp_path)
    assert config.workbook.settings.experiment_id == "market"
    assert config.model == "gpt-4o-mini"
    assert config.random_seed == 7
    assert [t.task_id for t in config.workbook.tasks] == ["c", "t", "o", "m", "s"]
    assert config_advisories(config)[0].startswith("layout: the documented layout")


def test_config_survives_a_round_trip_through_json(tmp_path: Path) -> None:
    config = read_config(make_workbook(), tmp_path)
    again = type(config).model_validate(config.model_dump(mode="json"))
    assert again == config


@pytest.mark.parametrize("sheet", list(make_workbook())[:6])
def test_each_sheet_is_mandatory(tmp_path: Path, sheet: str) -> None:
    book = make_workbook()
    del book[sheet]
    assert f"the sheet {sheet} is missing" in get_only(find_mistakes(book, tmp_path))


def test_sheet_names_are_case_sensitive_and_extra_ones_refused(tmp_path: Path) -> None:
    book = make_workbook()
    book["Treatments"] = book.pop("treatments")
    book["scratch"] = [["note"]]
    found = find_mistakes(book, tmp_path)
    assert any("rename 'Treatments' to 'treatments'" in m for m in found)
    assert any("scratch: the sheet 'scratch' does not belong here" in m for m in found)


def test_all_problems_are_reported_at_once_with_cell_and_hint(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "temperature", 3)
    book = with_cell(book, "treatments!A3", "calm")
    book = with_cell(book, f"{TASKS}!B3", "debate")
    book = with_cell(book, "agent_profiles!A5", "p1")
    found = find_mistakes(book, tmp_path)
    assert [re.sub(r"book.xlsx:", "", m).split(":")[0] for m in found] == [
        "experimental_setting!B5",
        "treatments!A3",
        f"{TASKS}!B3",
        "agent_profiles!A5",
    ]
    assert all(m.endswith(")") for m in found)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("temperature", -0.1, "from 0 to 2"),
        ("temperature", "warm", "from 0 to 2"),
        ("num_sessions", 0, "whole number"),
        ("num_sessions", 2.5, "whole number"),
        ("num_agents_per_session", True, "whole number"),
        ("max_conversation_length", None, "is blank"),
        ("treatment_assignment_strategy", "complete random ", None),
        ("treatment_assignment_strategy", "completely", "did you mean complete_random"),
        ("role_assignment_strategy", "balanced", "random, manual"),
        ("experiment_id", "../../etc/passwd", "it names files"),
        ("experiment_id", "con", "choose another name"),
        ("random_seed", -1, "whole number"),
        ("model_info", None, "is blank"),
        ("model_info", "hf-inference", "needs the URL"),
    ],
)
def test_settings_are_checked(tmp_path: Path, key: str, value: Any, says: str | None) -> None:
    found = find_mistakes(with_setting(make_workbook(), key, value), tmp_path)
    if says is None:
        assert found == []
    else:
        assert says in get_only(found)


@pytest.mark.parametrize("key", ["api_endpoint", "random_seed"])
def test_optional_settings_may_be_blank(tmp_path: Path, key: str) -> None:
    config = read_config(with_setting(make_workbook(), key, None), tmp_path)
    assert key != "random_seed" or config.random_seed == 42


def test_missing_unknown_and_doubled_settings_are_named(tmp_path: Path) -> None:
    book = make_workbook()
    rows = book["experimental_setting"]
    rows[4][0] = "temprature"
    rows.append(["num_sessions", 4])
    rows.append(["colour", "red"])
    found = find_mistakes(book, tmp_path)
    assert any("rename 'temprature' in experimental_setting!A5 to temperature" in m for m in found)
    assert any("duplicate setting num_sessions" in m for m in found)
    assert any("there is no setting 'colour'" in m for m in found)


@pytest.mark.parametrize("column", TASK_COLUMNS)
def test_each_column_is_mandatory(tmp_path: Path, column: str) -> None:
    book = make_workbook()
    index = TASK_COLUMNS.index(column)
    book[TASKS] = [[v for i, v in enumerate(row) if i != index] for row in book[TASKS]]
    assert any(f"the column {column} is missing" in m for m in find_mistakes(book, tmp_path))


def test_extra_and_misnamed_columns_are_refused(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "treatments!C1", "cost")
    book = with_cell(book, "constants!B1", "values")
    found = find_mistakes(book, tmp_path)
    assert any("treatments!C1: the column 'cost' does not belong here" in m for m in found)
    assert any("rename 'values' in constants!B1 to value" in m for m in found)


@pytest.mark.parametrize(
    ("cell", "twin"),
    [
        (f"{TASKS}!A4", f"{TASKS}!A3"),
        (f"{TASKS}!G4", f"{TASKS}!G3"),
        ("agent_roles!A5", "agent_roles!A4"),
    ],
)
def test_unique_columns_are_unique(tmp_path: Path, cell: str, twin: str) -> None:
    sheet, at = twin.split("!")
    book = make_workbook()
    column, row = at[0], int(at[1:])
    value = book[sheet][row - 1]["ABCDEFG".index(column)]
    found = find_mistakes(with_cell(book, cell, value), tmp_path)
    assert any(cell in m and "duplicate" in m for m in found), found


def test_roles_facilitator_must_be_there(tmp_path: Path) -> None:
    book = make_workbook()
    del book["agent_roles"][1]
    assert any("the role Facilitator is missing" in m for m in find_mistakes(book, tmp_path))


def test_the_context_comes_first(tmp_path: Path) -> None:
    found = find_mistakes(with_cell(make_workbook(), f"{TASKS}!C2", 2), tmp_path)
    assert any(f"{TASKS}!C2: the context c must come before all other" in m for m in found)
    book = make_workbook()
    del book[TASKS][1]
    assert any("there is no context task" in m for m in find_mistakes(book, tmp_path))


# --- layouts ---------------------------------------------------------------------------------


def make_older_layout() -> dict[str, list[list[Any]]]:
    book = make_workbook()
    names = {"agent_roles": "roles", "agent_profiles": "demographic_profiles"}
    book = {names.get(k, k): v for k, v in book.items()}
    keys = {
        "api_endpoint": "hf_inference_endpoint",
        "num_agents_per_session": "num_subjects_per_session",
    }
    rows = book["experimental_setting"]
    book["experimental_setting"] = [[keys.get(r[0], r[0]), r[1]] for r in rows]
    book["experimental_setting"].append(["include_backstories", False])
    book[TASKS][1][7] = "context"
    return book


def make_short_layout() -> dict[str, list[list[Any]]]:
    book = make_workbook()
    names = {
        "experimental_setting": "settings",
        "treatments": "treatment",
        "agent_roles": "role",
        TASKS: "prompt",
        "agent_profiles": "profile",
        "constants": "constant",
    }
    book = {names.get(k, k): v for k, v in book.items()}
    keys = {
        "experimental_setting": "settings_label",
        "experiment_id": "session_id",
        "api_endpoint": "hf_inference_endpoint",
        "num_agents_per_session": "num_subjects_per_group",
        "num_sessions": "num_groups",
        "max_conversation_length": "max_num_rounds",
        "session_assignment_strategy": "group_assignment_strategy",
        "session_column": "group_column",
    }
    book["settings"] = [[keys.get(r[0], r[0]), r[1]] for r in book["settings"]]
    book["settings"] += [["build_profile_qna", True], ["build_profile_backstories", "FALSE"]]
    book["treatment"][0] = ["treatment_label", "value"]
    book["treatment"][1][1] = '{"description": "Calm.", "mood": "quiet"}'
    book["treatment"][2][1] = '{"description": "Unknown.", "mood": "open"}'
    book["role"][0] = ["role_label", "value"]
    book["role"][1][0] = "facilitator"
    header = {
        "task_id": "round_id",
        "task_order": "round_order",
        "var_name": "response_name",
        "var_type": "response_type",
    }
    book["prompt"][0] = [header.get(c, c) for c in TASK_COLUMNS]
    book["prompt"][2][7] = "free-text"
    book["prompt"][2][5] = "The market is {{ treatment.mood }}. What is a fair price?"
    return book


def test_the_older_layout_is_recognised(tmp_path: Path) -> None:
    config = read_config(make_older_layout(), tmp_path)
    assert config.workbook.layout == "roles"
    assert "roles and demographic_profiles" in config_advisories(config)[0]
    documented = read_config(make_workbook(), tmp_path).workbook
    assert config.workbook.settings.num_agents_per_session == 4
    assert [t.model_dump(exclude={"at"}) for t in config.workbook.tasks] == [
        t.model_dump(exclude={"at"}) for t in documented.tasks
    ]
    assert config.workbook.profiles.rows == documented.profiles.rows


def test_the_short_layout_is_recognised(tmp_path: Path) -> None:
    workbook = read_config(make_short_layout(), tmp_path).workbook
    assert workbook.layout == "short"
    assert workbook.settings.experiment_id == "market"
    assert workbook.settings.max_rounds == 100
    assert workbook.settings.max_conversation_length is None
    assert not workbook.settings.reveal_private
    assert workbook.treatments[0].extra == {"mood": "quiet"}
    assert workbook.tasks[1].var_type is None
    assert workbook.roles[0].special_name == "Facilitator"


def test_a_repeated_round_of_the_short_layout_is_a_listed_error(tmp_path: Path) -> None:
    book = with_cell(make_short_layout(), "prompt!B4", "repeat_private_question")
    assert "row of its own, of type private_question" in get_only(find_mistakes(book, tmp_path))


def test_a_mix_of_layouts_is_read_and_reported(tmp_path: Path) -> None:
    book = make_workbook()
    book = {("roles" if k == "agent_roles" else k): v for k, v in book.items()}
    config = read_config(book, tmp_path)
    assert "from another layout: roles" in config_advisories(config)[0]


# --- a spreadsheet in the wild ---------------------------------------------------------------


def test_phantom_extents_are_empty_space(tmp_path: Path) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    book = load_workbook(path)
    for name in ("agent_profiles", "constants"):
        for row in (50, 5312, 200_000):
            book[name].cell(row, 3).number_format = "0.00"
    book["agent_profiles"].cell(7, 16_384).number_format = "0.00"
    book.save(path)
    assert len(load_workbook_config(path).workbook.profiles.rows) == 8


def test_unnamed_trailing_columns_without_values_are_ignored(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "agent_profiles!H1", "   ")
    book = with_cell(book, f"{TASKS}!P1", " ")
    assert find_mistakes(book, tmp_path) == []
    found = get_only(
        find_mistakes(with_cell(make_workbook(), "agent_profiles!H5", "stray"), tmp_path)
    )
    assert "agent_profiles!H1: the column has no name in row 1" in found


def test_ids_stay_text(tmp_path: Path) -> None:
    book = make_workbook()
    for row, identifier in zip(
        book["agent_profiles"][2:], ["1.1", "3.10", "3.1", "007"], strict=False
    ):
        row[0] = identifier
    assert read_config(book, tmp_path).workbook.profiles.ids()[:4] == ["1.1", "3.10", "3.1", "007"]


def test_numeric_ids_read_as_they_are_shown(tmp_path: Path) -> None:
    book = make_workbook()
    book["agent_profiles"][2][0] = 4.0
    book["agent_profiles"][3][0] = 3.1
    book["agent_profiles"][4][0] = 3.1
    path = save_workbook(book, tmp_path / "book.xlsx")
    opened = load_workbook(path)
    opened["agent_profiles"]["A5"].number_format = "0.00"
    opened.save(path)
    assert load_workbook_config(path).workbook.profiles.ids()[:3] == ["4", "3.1", "3.10"]


@pytest.mark.parametrize("value", [1_234_567_890_123_450, 1.23456789012345e15])
def test_a_long_number_keeps_its_digits_and_is_named(tmp_path: Path, value: float) -> None:
    book = make_workbook()
    book["agent_profiles"][2][0] = value
    book["agent_profiles"][3][0] = 1_234_567_890_123_460
    workbook = read_config(book, tmp_path).workbook
    assert workbook.profiles.ids()[:2] == ["1234567890123450", "1234567890123460"]
    (note,) = [note for note in workbook.notes if "15 digits" in note]
    assert "agent_profiles!A3" in note and "1234567890123450" in note


@pytest.mark.parametrize("value", [1, 1.0, True, "1", "TRUE", "true", " True "])
def test_booleans_are_read_in_every_form(tmp_path: Path, value: Any) -> None:
    config = read_config(with_cell(make_workbook(), f"{TASKS}!K4", value), tmp_path)
    assert config.workbook.tasks[2].validate_response is True


@pytest.mark.parametrize("value", [0, 0.0, False, "0", "FALSE"])
def test_false_is_read_in_every_form(tmp_path: Path, value: Any) -> None:
    config = read_config(with_cell(make_workbook(), f"{TASKS}!K4", value), tmp_path)
    assert config.workbook.tasks[2].validate_response is False


@pytest.mark.parametrize("value", ["maybe", 2, None, "yes"])
def test_other_truth_values_are_refused(tmp_path: Path, value: Any) -> None:
    assert f"{TASKS}!K4" in get_only(
        find_mistakes(with_cell(make_workbook(), f"{TASKS}!K4", value), tmp_path)
    )


@pytest.mark.parametrize("value", [4.0, "4", "4.0", 4])
def test_integers_as_floats(tmp_path: Path, value: Any) -> None:
    book = with_cell(
        with_setting(make_workbook(), "num_agents_per_session", value), f"{TASKS}!C6", value
    )
    config = read_config(book, tmp_path)
    assert config.workbook.settings.num_agents_per_session == 4
    assert config.workbook.tasks[4].task_order == 4


@pytest.mark.parametrize(
    "cell",
    [
        '["yes", "no", "I don’t know"]',
        "[“yes”, “no”, “I don’t know”]",
        "[‘yes’, ‘no’, ‘I don’t know’]",
        '["yes",\n "no",\n "I don’t know",\n]',
    ],
)
def test_curly_quotes_in_options(tmp_path: Path, cell: str) -> None:
    from folkmoot.studies.workbook.answers import ListedOptions, read_options

    assert read_options(cell) == ListedOptions(("yes", "no", "I don’t know"))
    assert find_mistakes(with_cell(make_workbook(), f"{TASKS}!I5", cell), tmp_path) == []


@pytest.mark.parametrize("word", ["respons_options", "response_option", "reponse_options"])
@pytest.mark.parametrize("braces", ["{%s}", "{{%s}}", "{{ %s }}"])
def test_misspelt_option_placeholders_name_the_likely_one(
    tmp_path: Path, word: str, braces: str
) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!F5", f"Trade? {braces % word}")
    found = get_only(find_mistakes(book, tmp_path))
    assert f"{TASKS}!F5" in found and "did you mean {response_options}?" in found


@pytest.mark.parametrize(
    "cell",
    [
        '{"Buyer": "Bid?", "Seller": "Ask?",}',
        '{\n  "Buyer": "Bid?",\n  "Seller": "Ask?",\n}\n',
        '{"Buyer": "Bid?\nNow.", "Seller": "Ask?"}',
        "{“Buyer”: “Bid?”, “Seller”: “It’s your turn.”}",
        "{'Buyer': 'Bid?', 'Seller': \"It's your turn.\"}",
    ],
)
def test_dict_cells_with_commas_breaks_and_quotes(tmp_path: Path, cell: str) -> None:
    config = read_config(with_cell(make_workbook(), f"{TASKS}!F4", cell), tmp_path)
    text = config.workbook.tasks[2].llm_text
    assert list(text) == ["Buyer", "Seller"]
    assert text["Buyer"].startswith("Bid?")


def test_lock_files_and_other_files_are_named_for_what_they_are(tmp_path: Path) -> None:
    lock = tmp_path / "~$book.xlsx"
    lock.write_bytes(b"\x05user")
    with pytest.raises(InputError, match=r"lock file.*give the workbook itself, book\.xlsx"):
        load_workbook_config(lock)
    old = tmp_path / "old.xlsx"
    old.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)
    with pytest.raises(InputError, match=r"old \.xls or is protected"):
        load_workbook_config(old)
    text = tmp_path / "text.xlsx"
    text.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"not an \.xlsx workbook"):
        load_workbook_config(text)
    with pytest.raises(InputError, match="cannot be read"):
        load_workbook_config(tmp_path / "nowhere.xlsx")


def test_a_strict_workbook_is_named_for_what_it_is(tmp_path: Path) -> None:
    write_workbook(make_workbook(), tmp_path / "book.xlsx")
    path = tmp_path / "strict.xlsx"
    office = b"schemas.openxmlformats.org/officeDocument/2006"
    main = b"schemas.openxmlformats.org/spreadsheetml/2006"
    with zipfile.ZipFile(tmp_path / "book.xlsx") as book, zipfile.ZipFile(path, "w") as strict:
        for name in book.namelist():
            content = book.read(name).replace(office, b"purl.oclc.org/ooxml/officeDocument")
            strict.writestr(name, content.replace(main, b"purl.oclc.org/ooxml/spreadsheetml"))
    with pytest.raises(InputError, match=r"Strict Open XML.*save it as Excel Workbook"):
        load_workbook_config(path)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *((f"old{ending}", "save it as .xlsx") for ending in (".xls", ".ods", ".xlsm", ".csv")),
        ("survey.qsf", "folkmoot new workbook --from"),
    ],
)
def test_a_file_of_another_program_is_refused_with_its_remedy(
    name: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    with pytest.raises(InputError, match=re.escape(remedy)):
        load_study_file(tmp_path / name)


def test_a_truncated_or_foreign_archive_is_a_listed_error(tmp_path: Path) -> None:
    whole = save_workbook(make_workbook(), tmp_path / "book.xlsx").read_bytes()
    for size in range(200, len(whole), 997):
        broken = tmp_path / "broken.xlsx"
        broken.write_bytes(whole[:size])
        with pytest.raises(InputError):
            load_workbook_config(broken)
    with zipfile.ZipFile(tmp_path / "zip.xlsx", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(InputError, match="the workbook cannot be read"):
        load_workbook_config(tmp_path / "zip.xlsx")


def test_a_treatment_labelled_none_is_a_treatment(tmp_path: Path) -> None:
    assert [t.label for t in read_config(make_workbook(), tmp_path).workbook.treatments] == [
        "calm",
        "NONE",
    ]


@pytest.mark.parametrize("name", ["town", "Where do you live?"])
def test_manual_columns_by_either_row(tmp_path: Path, name: str) -> None:
    book = with_setting(make_workbook(), "session_assignment_strategy", "manual")
    book = with_setting(book, "session_column", name)
    for i, row in enumerate(book["agent_profiles"][2:]):
        row[2] = "A" if i < 4 else "B"
    assert find_mistakes(book, tmp_path) == []


@pytest.mark.parametrize(("in_sheet", "in_setting"), [("NFC", "NFD"), ("NFD", "NFC")])
@pytest.mark.parametrize(
    ("row", "title"), [(0, "r\u00e9gion"), (0, "r\u00e9gion 1"), (1, "O\u00f9 ?")]
)
def test_a_manual_column_is_found_in_either_spelling_of_its_accents(
    in_sheet: Literal["NFC", "NFD"],
    in_setting: Literal["NFC", "NFD"],
    row: int,
    title: str,
    tmp_path: Path,
) -> None:
    book = with_setting(make_workbook(), "session_assignment_strategy", "manual")
    book = with_setting(book, "session_column", unicodedata.normalize(in_setting, title))
    book["agent_profiles"][row][2] = unicodedata.normalize(in_sheet, title)
    for i, cells in enumerate(book["agent_profiles"][2:]):
        cells[2] = "A" if i < 4 else "B"
    assert find_mistakes(book, tmp_path) == []


def test_a_column_of_the_profiles_has_one_name_in_either_spelling(tmp_path: Path) -> None:
    book, name = make_workbook(), "\u00e2ge"
    book["agent_profiles"][0][1] = unicodedata.normalize("NFD", name)
    assert read_config(book, tmp_path).workbook.profiles.names[1] == name
    book["agent_profiles"][0][2] = name
    assert "duplicate name" in get_only(find_mistakes(book, tmp_path))


def test_an_attribute_of_a_treatment_is_found_in_either_spelling(tmp_path: Path) -> None:
    book = make_short_layout()
    for treatment, text in zip(book["treatment"][1:], ("calm", "open"), strict=True):
        attribute = unicodedata.normalize("NFD", "\u00e9tat")
        treatment[1] = f'{{"description": "Calm.", "{attribute}": "{text}"}}'
    book["prompt"][2][5] = "The market is {{ treatment.\u00e9tat }}. What is a fair price?"
    assert find_mistakes(book, tmp_path) == []


def test_formulas_give_their_cached_value_or_an_error_with_the_cell(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "experimental_setting!B7", "=1+1")
    path = save_workbook(book, tmp_path / "book.xlsx")  # openpyxl writes formulas without a value
    with pytest.raises(InputError, match=r"experimental_setting!B7: .*never calculated"):
        load_workbook_config(path)
    _give_formulas_a_value(path, "2")
    assert load_workbook_config(path).workbook.settings.num_sessions == 2


def test_error_cells_are_named(tmp_path: Path) -> None:
    assert "agent_profiles!B4: the cell holds the error #REF!" in get_only(
        find_mistakes(with_cell(make_workbook(), "agent_profiles!B4", "#REF!"), tmp_path)
    )


def _give_formulas_a_value(path: Path, value: str) -> None:
    """Write the value into the file that a spreadsheet program would have calculated."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(
                name,
                re.sub(
                    rb"(</f>)<v\s*/>|(</f>)<v></v>", rb"</f><v>" + value.encode() + rb"</v>", data
                ),
            )


# --- the template ----------------------------------------------------------------------------


def test_indistinguishable_options_are_refused_at_their_cell(tmp_path: Path) -> None:
    (found,) = find_mistakes(
        with_cell(make_workbook(), f"{TASKS}!I6", '["Yes", "no", "yes!"]'), tmp_path
    )
    assert f"{TASKS}!I6" in found and "'Yes' and 'yes!' cannot be distinguished" in found


def test_the_blank_template_is_refused_with_a_helpful_list(tmp_path: Path) -> None:
    (tmp_path / "experiment.xlsx").write_bytes(template_files()["experiment.xlsx"])
    with pytest.raises(InputError) as caught:
        load_workbook_config(tmp_path / "experiment.xlsx")
    said = str(caught.value)
    for cell in (
        "experimental_setting!B2",
        "treatments!A2",
        "interview_prompts!A2",
        "agent_roles!A3",
    ):
        assert cell in said


def test_the_template_has_drop_downs_and_notes_and_always_the_same_bytes(tmp_path: Path) -> None:
    first, second = template_files(), template_files()
    assert first == second
    path = tmp_path / "experiment.xlsx"
    path.write_bytes(first["experiment.xlsx"])
    book = load_workbook(path)
    lists = [v.formula1 for v in book[TASKS].data_validations.dataValidation]
    assert '"context,discussion,public_question,private_question"' in lists
    assert all(book[TASKS].cell(1, c).comment for c in range(1, len(TASK_COLUMNS) + 1))


def test_the_example_in_the_repository_is_the_one_that_new_writes(tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "examples" / "public_goods.xlsx"
    made = tmp_path / "public_goods.xlsx"
    made.write_bytes(template_files()["public_goods.xlsx"])
    assert load_workbook_config(path) == load_workbook_config(made)


def test_unknown_models_warn_and_go_to_the_compatible_api(tmp_path: Path) -> None:
    config = read_config(with_setting(make_workbook(), "model_info", "my-own-llm"), tmp_path)
    assert config.model == "openai/my-own-llm"
    assert any("not in the catalog" in n for n in config_advisories(config))
    hosted = with_setting(
        with_setting(make_workbook(), "model_info", "hf-inference"), "api_endpoint", "https://x.y"
    )
    config = read_config(hosted, tmp_path)
    assert (config.model, config.endpoints) == ("hf-inference", {"hf-inference": "https://x.y"})


def test_the_task_id_names_a_variable_that_has_no_name(tmp_path: Path) -> None:
    config = read_config(with_cell(make_workbook(), f"{TASKS}!G3", None), tmp_path)
    assert config.workbook.tasks[1].var_name == "t"
    assert any("the task_id t names the variable" in n for n in config_advisories(config))


def test_numbers_of_rows_in_a_long_workbook(tmp_path: Path) -> None:
    book = make_workbook()
    book[TASKS] += [
        make_task_row(f"x{i}", "private_question", 9, "Well?", f"x{i}") for i in range(200)
    ]
    assert len(read_config(book, tmp_path).workbook.tasks) == 205


@pytest.mark.parametrize("label", ["summarizer", "FACILITATOR"])
def test_special_roles_are_there_once_in_whatever_case(tmp_path: Path, label: str) -> None:
    book = make_workbook()
    book["agent_roles"].append([label, "Once more."])
    assert "duplicate role" in get_only(find_mistakes(book, tmp_path))


def test_no_respondent_is_called_like_a_special_role(tmp_path: Path) -> None:
    found = get_only(
        find_mistakes(with_cell(make_workbook(), "agent_profiles!A4", "Summarizer"), tmp_path)
    )
    assert "agent_profiles!A4" in found and "special role" in found


def test_every_mistake_is_listed_once_sheet_by_sheet_and_row_by_row(tmp_path: Path) -> None:
    book = make_workbook()
    for address, value in {
        "experimental_setting!B5": 3,
        "experimental_setting!B9": "maybe",
        "treatments!A3": "calm",
        "interview_prompts!F3": "What of {{ nothing }}?",
        "interview_prompts!F4": "Bid {responce_options}",
        "interview_prompts!I4": "(0, 20",
        "interview_prompts!G5": "talk",
        "interview_prompts!J5": "perhaps",
        "agent_profiles!A4": "p1",
        "constants!B2": "apples",
        "computed!C2": "sum(offr)",
    }.items():
        book = with_cell(book, address, value)
    book["more"] = [["x"]]
    found = find_mistakes(book, tmp_path)
    places = [m.split(": ")[0].partition(":")[2] for m in found]
    assert places == [
        *("more", "experimental_setting!B5", "experimental_setting!B9", "treatments!A3"),
        *("interview_prompts!F3", "interview_prompts!F4", "interview_prompts!I4"),
        *("interview_prompts!G5", "interview_prompts!J5", "agent_profiles!A4"),
        *("constants!B2", "computed!C2"),
    ]
    assert all(m.endswith(")") for m in found), "each has its hint"


@pytest.mark.parametrize("value", ["apples", "10", "[]", "[[1]]", '["a",'])
def test_a_constant_that_is_no_list_does_not_make_its_placeholders_unknown(
    tmp_path: Path, value: str
) -> None:
    (mistake,) = find_mistakes(with_cell(make_workbook(), "constants!B2", value), tmp_path)
    assert "constants!B2" in mistake


@pytest.mark.parametrize(
    ("address", "cell", "says"),
    [
        (f"{TASKS}!F4", '{Buyer: "Bid?", Role 2: "Ask?"}', "needs quotes"),
        (f"{TASKS}!F4", "{Role 1: 'Bid?', Role 2: 'Ask?'}", 'Role 1 needs quotes: "Role 1"'),
        (f"{TASKS}!F4", '{"Buyer": "Bid?", "Buyer ": "Ask?"}', "duplicate key 'Buyer'"),
        (f"{TASKS}!F4", '{"Summariser": "Bid?", "Summarizer": "Ask?"}', "duplicate key 'Summari"),
        ("constants!B2", '["apples" "pears"]', "a comma is missing in"),
        ("constants!B2", '("apples" "pears", "nuts")', "a comma is missing in"),
        ("experimental_setting!B7", "1_0", "num_sessions is '1_0'"),
        ("interview_prompts!G3", "True", "the name 'True' is reserved"),
        ("interview_prompts!F3", "Buy {Goods}?", "there is no {Goods} (did you mean {{goods}}?)"),
        (
            "interview_prompts!F3",
            "You are {{ age }}.",
            "age can only be used in the sheet computed",
        ),
        ("interview_prompts!F3", "{{ members }} sit here.", "e.g. my_members with the expression"),
    ],
)
def test_a_cell_that_python_reads_otherwise_is_refused(
    tmp_path: Path, address: str, cell: str, says: str
) -> None:
    found = find_mistakes(with_cell(make_workbook(), address, cell), tmp_path)
    assert any(address in message and says in message for message in found), found


@pytest.mark.parametrize(
    "text",
    [
        "{{ goods }}: what is a fair price?",
        "{% if goods == 'apples' %}Note: 'fair'?{% endif %} Price?",
        "{# a remark: 'x' #}What is a fair price?",
        '{"Buyer": "What do " "you bid?"}',
    ],
)
def test_a_prompt_that_starts_with_a_brace_is_no_dict_without_quotes(
    tmp_path: Path, text: str
) -> None:
    assert not find_mistakes(with_cell(make_workbook(), f"{TASKS}!F3", text), tmp_path)


@pytest.mark.parametrize("key", SETTINGS)
def test_the_notes_say_which_settings_may_not_be_blank(tmp_path: Path, key: str) -> None:
    found = find_mistakes(with_setting(make_workbook(), key, None), tmp_path)
    field = Settings.model_fields[key]
    is_required = field.is_required() or str(field.description).startswith("Required.")
    assert bool(found) == is_required, found
