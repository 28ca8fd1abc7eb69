"""Participants of an imported Qualtrics survey get its questions as in Qualtrics."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

import folkmoot
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.workbook.config import WorkbookConfig, declare_claims
from folkmoot.studies.workbook.preparation import load_workbook_config
from folkmoot.studies.workbook.spreadsheet.qualtrics.importing import import_survey
from tests.studies.workbook.qualtrics.qsf_builder import (
    answer_condition,
    descriptive_text,
    embedded_data,
    embedded_data_condition,
    end_of_survey,
    flow_element,
    make_logic,
    make_question,
    make_survey,
    multiple_choice,
    randomizer,
    show_block,
    single_choice,
    text_entry,
    write_survey,
)

Row = Mapping[str, str]


def import_workbook(document: object, folder: Path) -> tuple[WorkbookConfig, list[str]]:
    """Import a survey, and return its workbook as `folkmoot check` reads it, and the notes."""
    study = import_survey(write_survey(document, folder / "survey.qsf"))
    assert list(study.files) == ["survey.xlsx", "survey_import.txt"]
    for name, content in study.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_workbook_config(folder / "survey.xlsx"), list(study.notes)


def import_tasks(document: object, folder: Path) -> dict[str, Any]:
    """Return the tasks of a survey by variable."""
    config, _ = import_workbook(document, folder)
    return {task.var_name: task for task in config.workbook.tasks if task.type != "context"}


def select_notes(notes: list[str], where: str) -> list[str]:
    return [note for note in notes if f"({where}): " in note or f": {where}: " in note]


def run_survey(
    document: object,
    folder: Path,
    answers: Mapping[str, str],
    profile: Mapping[str, str] | None = None,
) -> list[tuple[Row, list[str]]]:
    """Return each participant's row of the data file, and the questions that it was asked.

    A question that contains a key of `answers` gets this answer. Other questions get their first
    option, 1 or words.
    """
    import_workbook(document, folder)
    if profile:
        book = load_workbook(folder / "survey.xlsx")
        sheet = book["agent_profiles"]
        names = [cell.value for cell in sheet[1]]
        for row in range(3, sheet.max_row + 1):
            for name, value in profile.items():
                sheet.cell(row, names.index(name) + 1, value)
        book.save(folder / "survey.xlsx")
    asked: dict[str, list[str]] = {}

    def answer(request: ModelRequest, address: str) -> str:
        text = request.messages[-1].content
        session = re.findall(r"\d+", address)[0]
        asked.setdefault(session, []).append(text)
        given = next((reply for key, reply in answers.items() if key in text), None)
        options = re.findall(r"^- (.+)$", text, re.MULTILINE)
        return given or ("1" if "the number alone" in text else (options or ["words"])[0])

    provider = ScriptedProvider(answer)
    run = folkmoot.run(folder / "survey.xlsx", out=folder / "out", provider=provider)
    with (run.path / "survey.csv").open(newline="") as file:
        return [(row, asked.get(row["session"], [])) for row in csv.DictReader(file)]


# --- kinds of questions ------------------------------------------------------------------------


def test_each_kind_of_question_becomes_tasks_with_the_columns_of_the_data_file(
    tmp_path: Path,
) -> None:
    scale = make_question("QID4", "Matrix", "Likert", "Rate these.", subselector="SingleAnswer",
                     choices=["Tea", "Milk"], answers=["bad", "good"])  # fmt: skip
    slider = make_question(
        "QID5", "Slider", "HSLIDER", "How warm?", choices=["Rome", "Oslo"],
        Configuration={"CSSliderMin": -10, "CSSliderMax": 40, "NumDecimals": "0"},
        Labels={"1": {"Display": "cold"}, "2": {"Display": "hot"}},
    )  # fmt: skip
    age = text_entry("QID6", "Your age?", name="age", Validation={"Settings": {
        "Type": "ContentType", "ContentType": "ValidNumber",
        "ValidNumber": {"Min": "18", "Max": "99", "NumDecimals": "0"}}})  # fmt: skip
    document = make_survey(
        [
            single_choice("QID1", "<p>Do you drink <b>coffee</b>?</p>", "Yes", "No"),
            multiple_choice("QID2", "Which of these?", "Cake", "Bread", name="food"),
            make_question("QID3", "RO", "DND", "Rank them.", choices=["Sea", "Hills"]),
            scale,
            slider,
            age,
            make_question("QID7", "MC", "NPS", "Would you recommend us?", name="nps",
                     choices=[str(n) for n in range(11)],
                     ColumnLabels=[{"Display": "never"}, {"Display": "surely"}]),
            text_entry("QID8", "Who are you?", "FORM", choices=["First name", "Town"]),
        ]
    )  # fmt: skip
    found = import_tasks(document, tmp_path)

    assert {name: (task.var_type, task.response_options) for name, task in found.items()} == {
        "Q1": ("category", '["Yes", "No"]'),
        "food_1": ("category", '["yes", "no"]'),
        "food_2": ("category", '["yes", "no"]'),
        "Q3_1": ("integer", "(1, 2)"),
        "Q3_2": ("integer", "(1, 2)"),
        "Q4_1": ("category", '["bad", "good"]'),
        "Q4_2": ("category", '["bad", "good"]'),
        "Q5_1": ("integer", "(-10, 40)"),
        "Q5_2": ("integer", "(-10, 40)"),
        "age": ("integer", "(18, 99)"),
        "nps": ("integer", "(0, 10)"),
        "Q8_1": (None, None),
        "Q8_2": (None, None),
    }
    assert found["Q1"].llm_text == "Do you drink coffee?"
    assert found["food_2"].llm_text == "Which of these?\n\nDoes this apply: “Bread”?"
    assert found["Q4_2"].llm_text == "Rate these.\n\nMilk"
    assert "How warm?\n\nOslo" in found["Q5_2"].llm_text and "cold | hot" in found["Q5_2"].llm_text
    assert "from 0 (never) to 10 (surely)" in found["nps"].llm_text
    assert found["Q8_2"].llm_text == "Who are you?\n\nTown"
    orders = [task.task_order for task in found.values()]
    assert orders == sorted(set(orders))  # one after the other


def test_a_choice_with_a_text_field_is_followed_by_a_question(tmp_path: Path) -> None:
    other = {"Display": "Other:", "TextEntry": "true"}
    document = make_survey([single_choice("QID1", "Your pet?", "Cat", other)])

    for row, _ in run_survey(document, tmp_path, {"Your pet": "Other:", "You chose": "a newt"}):
        assert (row["Q1"], row["Q1_2_TEXT"]) == ("Other:", "a newt")


def test_participants_with_another_choice_are_not_asked_for_the_text(tmp_path: Path) -> None:
    other = {"Display": "Other:", "TextEntry": "true"}
    document = make_survey([single_choice("QID1", "Your pet?", "Cat", other)])

    for row, texts in run_survey(document, tmp_path, {"Your pet": "Cat"}):
        assert (row["Q1_2_TEXT"], len(texts)) == ("", 1)


def test_a_descriptive_text_precedes_the_next_question_of_its_readers(
    tmp_path: Path,
) -> None:
    seen_by_some = make_logic([answer_condition("QID1/SelectableChoice/1")])
    document = make_survey(
        [
            descriptive_text("QID9", "Welcome to the survey."),
            single_choice("QID1", "Do you drive?", "Yes", "No"),
            descriptive_text("QID2", "Now about cars.", DisplayLogic=seen_by_some),
            text_entry("QID3", "Which car?", DisplayLogic=seen_by_some),
            text_entry("QID4", "What else?"),
        ]
    )
    drivers = run_survey(document, tmp_path, {"Do you drive": "Yes"})
    (tmp_path / "others").mkdir()
    others = run_survey(document, tmp_path / "others", {"Do you drive": "No"})

    assert drivers[0][1][0].startswith("Welcome to the survey.\n\nDo you drive?")
    assert drivers[0][1][1].startswith("Now about cars.\n\nWhich car?")
    assert drivers[0][1][2].startswith("What else?")
    assert [text.split("\n")[0] for text in others[0][1]] == [
        "Welcome to the survey.",
        "What else?",
    ]


def test_a_text_for_all_is_shown_with_the_next_question_that_each_is_asked(tmp_path: Path) -> None:
    document = make_survey(
        [
            single_choice("QID1", "Do you drive?", "Yes", "No"),
            descriptive_text("QID2", "Now about you."),
            text_entry(
                "QID3",
                "Which car?",
                DisplayLogic=make_logic([answer_condition("QID1/SelectableChoice/1")]),
            ),
            text_entry("QID4", "What else?"),
        ]
    )
    drivers = run_survey(document, tmp_path, {"Do you drive": "Yes"})
    (tmp_path / "others").mkdir()
    others = run_survey(document, tmp_path / "others", {"Do you drive": "No"})

    assert [text.count("Now about you.") for text in drivers[0][1]] == [0, 1, 0]
    assert others[0][1][1].startswith("Now about you.\n\nWhat else?")


def test_questions_of_the_trash_and_unknown_kinds_are_listed_with_their_ids(tmp_path: Path) -> None:
    document = make_survey(
        [
            single_choice("QID1", "Fine?", "Yes", "No"),
            make_question("QID2", "FileUpload", "FileUpload", "Send a photo"),
            make_question("QID3", "Hologram", "X", "Look"),
            text_entry("QID4", "An old one"),
            make_question("QID5", "Matrix", "MaxDiff", "Best?", choices=["a"], answers=["b"]),
            text_entry("QID6", "A forgotten one"),
            single_choice("QID7", "Wait", "Yes", QuestionJS="alert(1)"),
        ],
        {"BL_1": ["QID1", "QID2", "QID3", "QID5", "QID7", "QID99"], "BL_trash": ["QID4"]},
    )
    config, notes = import_workbook(document, tmp_path)

    assert [task.var_name for task in config.workbook.tasks] == ["context", "Q1", "Q7"]
    for id, words in {
        "QID2": "file upload", "QID3": "Hologram", "QID4": "trash", "QID5": "MaxDiff",
        "QID6": "no block", "QID7": "JavaScript", "QID99": "missing in the file",
    }.items():  # fmt: skip
        assert any(
            note.startswith("Left out") and words in note for note in select_notes(notes, id)
        )
    listed = (tmp_path / "survey_import.txt").read_text("utf-8").splitlines()
    sheet = load_workbook(tmp_path / "survey.xlsx")["notes"]
    assert listed == notes == [row[0] for row in sheet.iter_rows(values_only=True)]


def test_blank_choices_and_choices_that_look_alike_stay_playable(tmp_path: Path) -> None:
    document = make_survey(
        [single_choice("QID1", "Pick", "Yes", "yes", "", "{{ Yes }}", 'a "quoted" one\\')]
    )
    found = import_tasks(document, tmp_path)["Q1"]

    rows = run_survey(document, tmp_path, {})
    assert len({row["Q1"] for row, _ in rows}) == 1
    assert "Yes (choice 1)" in rows[0][1][0] and "yes (choice 2)" in rows[0][1][0]
    assert "{{ Yes }}" in rows[0][1][0] and 'a "quoted" one' in rows[0][1][0]
    assert found.randomize_response_order is False


# --- logic -------------------------------------------------------------------------------------

PETS = ("Cat", "Dog", "None")


# Sets of conditions, how they are joined, and whether cat and dog owners are asked.
LOGIC: tuple[tuple[Any, Any, tuple[bool, bool]], ...] = (
    ([[answer_condition("QID1/SelectableChoice/2")]], [], (False, True)),
    ([[answer_condition("QID1/SelectableChoice/2", "NotSelected")]], [], (True, False)),
    # "and" takes precedence: cat, or (dog and never).
    ([[answer_condition("QID1/SelectableChoice/1"),
       answer_condition("QID1/SelectableChoice/2", Conjuction="Or"),
       answer_condition("QID1/SelectableChoice/3", Conjuction="And")]], [], (True, False)),
    ([[answer_condition("QID1/SelectableChoice/1")], [answer_condition("QID1/SelectableChoice/2")]],
     ["If", "OrIf"], (True, True)),
    ([[answer_condition("QID1/SelectableChoice/1")], [answer_condition("QID1/SelectableChoice/2")]],
     ["If", "AndIf"], (False, False)),
    ([[answer_condition("QID1/QuestionDisplayed", "Displayed")]], [], (True, True)),
    # A participant who was not asked QID2 selected nothing there.
    ([[answer_condition("QID2/SelectableChoice/1")]], [], (False, False)),
    ([[answer_condition("QID2/SelectableChoice/1", "NotSelected")]], [], (True, True)),
)  # fmt: skip


@pytest.mark.parametrize("pet", ["Cat", "Dog"])
def test_display_logic_decides_as_in_the_survey(tmp_path: Path, pet: str) -> None:
    never = make_logic(
        [answer_condition("QID1/SelectableChoice/1"), answer_condition("QID1/SelectableChoice/2")]
    )
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS),
            single_choice("QID2", "Never asked", "Yes", "No", DisplayLogic=never),
            *(
                text_entry(f"QID{place}", "Its name?", DisplayLogic=make_logic(*sets, kinds=kinds))
                for place, (sets, kinds, _) in enumerate(LOGIC, start=3)
            ),
        ]
    )
    rows = run_survey(document, tmp_path, {"Your pet": pet})
    for place, (sets, _, (is_cat_asked, is_dog_asked)) in enumerate(LOGIC, start=3):
        is_asked = is_cat_asked if pet == "Cat" else is_dog_asked
        assert {bool(row[f"Q{place}"]) for row, _ in rows} == {is_asked}, sets


# Conditions of a question, and whether it is asked after each of the three sets of answers below.
CONDITIONS: tuple[tuple[Any, tuple[bool, bool, bool]], ...] = (
    (answer_condition("QID1/ChoiceNumericEntryValue/1", "GreaterThan", "50"), (True, False, False)),
    (
        answer_condition("QID1/ChoiceNumericEntryValue/1", "LessThanOrEqual", "50"),
        (False, True, True),
    ),
    (
        answer_condition("QID2/ChoiceTextEntryValue", "Contains", "SEA", IgnoreCase=1),
        (True, False, False),
    ),
    (answer_condition("QID2/ChoiceTextEntryValue", "Contains", "SEA"), (False, False, False)),
    (answer_condition("QID2/ChoiceTextEntryValue", "DoesNotContain", "sea"), (False, True, True)),
    (answer_condition("QID2/ChoiceTextEntryValue", "EqualTo", 'a "b"}}'), (False, True, False)),
    (answer_condition("QID3/SelectableChoice/1/2"), (True, False, False)),
    (answer_condition("QID3/SelectableAnswer/2"), (True, True, False)),
    (answer_condition("QID3/SelectedAnswerRecode/1", "GreaterThan", "3"), (True, False, False)),
    (answer_condition("QID4/SelectableChoice/2"), (True, True, False)),
    (answer_condition("QID4/SelectedChoicesCount", "EqualTo", "2"), (False, True, False)),
    (answer_condition("QID4/SelectedChoicesCount", "LessThan", "1"), (False, False, True)),
)
ANSWERS: tuple[Mapping[str, str], ...] = (
    {"Heat": "60", "live": "by the sea", "Tea": "good", "Milk": "bad",
     "“Bread”": "yes", "“Cake”": "no"},
    {"Heat": "50", "live": 'a "b"}}', "Tea": "bad", "Milk": "good",
     "“Bread”": "yes", "“Cake”": "yes"},
    {"Heat": "50", "live": "hills", "Tea": "bad", "Milk": "bad",
     "“Bread”": "no", "“Cake”": "no"},
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_logic_compares_numbers_texts_cells_and_counts(tmp_path: Path, number: int) -> None:
    document = make_survey(
        [
            make_question("QID1", "Slider", "HSLIDER", "Heat", choices=["now"],
                     Configuration={"CSSliderMin": 0, "CSSliderMax": 100, "NumDecimals": "0"}),
            text_entry("QID2", "Where do you live?"),
            make_question("QID3", "Matrix", "Likert", "Rate", subselector="SingleAnswer",
                     choices=["Tea", "Milk"], answers=["bad", "good"],
                     RecodeValues={"1": "1", "2": "5"}),
            multiple_choice("QID4", "Which?", "Cake", "Bread"),
            *(text_entry(f"QID{place}", "And now?", DisplayLogic=make_logic([condition]))
              for place, (condition, _) in enumerate(CONDITIONS, start=5)),
        ]
    )  # fmt: skip
    rows = run_survey(document, tmp_path, ANSWERS[number])
    for row, _ in rows:
        for place, (condition, is_asked) in enumerate(CONDITIONS, start=5):
            assert bool(row[f"Q{place}"]) is is_asked[number], condition
    assert rows


def test_unsupported_conditions_are_listed_and_ask_all_participants(
    tmp_path: Path,
) -> None:
    place = {"LogicType": "GeoIP", "Operator": "EqualTo", "LeftOperand": "loc://City",
             "Description": "<span>City</span><span>Is</span><span>Paris</span>"}  # fmt: skip
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS),
            text_entry("QID2", "In Paris?", DisplayLogic=make_logic([place])),
            text_entry(
                "QID3",
                "A cat there?",
                DisplayLogic=make_logic(
                    [answer_condition("QID1/SelectableChoice/1"), place | {"Conjuction": "And"}]
                ),
            ),
            text_entry(
                "QID4",
                "Later?",
                DisplayLogic=make_logic([answer_condition("QID5/SelectableChoice/1")]),
            ),
            single_choice("QID5", "Last", "Yes", "No"),
        ]
    )
    rows = run_survey(document, tmp_path, {"Your pet": "Dog"})
    _, notes = import_workbook(document, tmp_path)

    assert {(bool(row["Q2"]), bool(row["Q3"])) for row, _ in rows} == {(True, False)}
    assert "City Is Paris" in select_notes(notes, "QID2")[0]
    assert "asked of all participants" in select_notes(notes, "QID2")[1]
    assert "QID5, which is not asked before it" in select_notes(notes, "QID4")[0]
    assert "no participant would be asked" in select_notes(notes, "QID4")[1]


def test_skips_and_ends_leave_out_what_follows(tmp_path: Path) -> None:
    to_third = {"ChoiceLocator": "q://QID1/SelectableChoice/1", "Condition": "Selected",
                "SkipToDestination": "QID3", "QuestionID": "QID1"}  # fmt: skip
    to_end = to_third | {"ChoiceLocator": "q://QID1/SelectableChoice/2",
                         "SkipToDestination": "ENDOFSURVEY"}  # fmt: skip
    first = {"Type": "Question", "QuestionID": "QID1", "SkipLogic": [to_third, to_end]}
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS),
            text_entry("QID2", "Second?"),
            text_entry("QID3", "Third?"),
            text_entry("QID4", "Fourth?"),
        ],
        {"BL_1": [first, "QID2", "QID3"], "BL_2": ["QID4"]},
    )
    for pet, asked in {"Cat": (0, 1, 1), "Dog": (0, 0, 0), "None": (1, 1, 1)}.items():
        folder = tmp_path / pet
        folder.mkdir()
        rows = run_survey(document, folder, {"Your pet": pet})
        names = ("Q2", "Q3", "Q4")
        assert {tuple(int(bool(row[n])) for n in names) for row, _ in rows} == {asked}


def test_a_branch_with_an_end_screens_participants_out(tmp_path: Path) -> None:
    minors = flow_element(
        "Branch",
        "FL_5",
        end_of_survey("FL_6"),
        Description="New Branch",
        BranchLogic=make_logic([answer_condition("QID1/SelectableChoice/2")]),
    )
    document = make_survey(
        [single_choice("QID1", "Are you of age?", "Yes", "No"), text_entry("QID2", "Your job?")],
        {"BL_1": ["QID1"], "BL_2": ["QID2"]},
        [show_block("BL_1"), minors, show_block("BL_2")],
    )
    assert {row["Q2"] for row, _ in run_survey(document, tmp_path, {"of age": "No"})} == {""}


def test_a_long_chain_of_skips_keeps_its_conditions_short(tmp_path: Path) -> None:
    """Each of 60 questions may end the survey, and each has display logic on the one before."""
    questions, elements = [], []
    for n in range(1, 61):
        id = f"QID{n}"
        keys = (
            {"DisplayLogic": make_logic([answer_condition(f"QID{n - 1}/SelectableChoice/1")])}
            if n > 1
            else {}
        )
        questions.append(single_choice(id, f"Question {n}?", "Yes", "No", "Stop", **keys))
        skip = {"ChoiceLocator": f"q://{id}/SelectableChoice/3", "Condition": "Selected",
                "SkipToDestination": "ENDOFSURVEY", "QuestionID": id}  # fmt: skip
        elements.append({"Type": "Question", "QuestionID": id, "SkipLogic": [skip]})
    found = import_tasks(make_survey(questions, {"BL_1": elements}), tmp_path)

    assert len(found) == 60
    assert len(found["Q60"].llm_text) < 2_000


# --- randomizers and embedded data -------------------------------------------------------------


def test_treatments_are_compared_by_questions_and_not_by_embedded_data(tmp_path: Path) -> None:
    check = {"Type": "ContentType", "ContentType": "ValidNumber", "ValidNumber": {"Min": "0"}}
    arms = randomizer("FL_3", 1, show_block("BL_Buses"), show_block("BL_Roads"))
    document = make_survey(
        [
            descriptive_text("QID1", "The money pays for buses."),
            descriptive_text("QID2", "The money pays for roads."),
            text_entry("QID3", "You live in ${e://Field/region}. Why?"),
            text_entry("QID4", "How many dollars would you pay?", Validation={"Settings": check}),
        ],
        {"BL_Buses": ["QID1"], "BL_Roads": ["QID2"], "BL_Q": ["QID3", "QID4"]},
        [embedded_data("FL_2", region=None), arms, show_block("BL_Q")],
    )
    config, _ = import_workbook(document, tmp_path)
    assert [item.kind for item in config.workbook.computed] == ["helper"]
    primary = [claim for claim in declare_claims(config) if claim.family == "primary"]
    assert [claim.outcome for claim in primary] == ["Q4 per participant"]


def arm_survey(*elements: Any) -> Any:
    return make_survey(
        [
            descriptive_text("QID1", "A warm text."),
            descriptive_text("QID2", "A cold text."),
            descriptive_text("QID3", "A long text."),
            text_entry("QID4", "What do you think?"),
        ],
        {"BL_Warm": ["QID1"], "BL_Cold": ["QID2"], "BL_Warmer": ["QID3"], "BL_Q": ["QID4"]},
        elements,
    )


def test_a_randomizer_of_one_makes_a_treatment_of_each_arm(tmp_path: Path) -> None:
    document = arm_survey(
        randomizer("FL_2", 1, show_block("BL_Warm"), show_block("BL_Cold")), show_block("BL_Q")
    )
    rows = run_survey(document, tmp_path, {})

    assert sorted({row["treatment"] for row, _ in rows}) == ["Cold", "Warm"]
    for row, texts in rows:
        assert texts[0].startswith(f"A {row['treatment'].lower()} text.\n\nWhat do you think?")


def test_a_randomizer_that_shows_two_of_three_makes_a_treatment_of_each_pair(
    tmp_path: Path,
) -> None:
    three = randomizer(
        "FL_2", 2, show_block("BL_Warm"), show_block("BL_Cold"), show_block("BL_Warmer")
    )
    rows = run_survey(arm_survey(three, show_block("BL_Q")), tmp_path, {})

    assert len({row["treatment"] for row, _ in rows}) == 3
    for row, texts in rows:
        said = {"Warm": "A warm text", "Cold": "A cold text", "Warmer": "A long text"}
        shown = {name for name, text in said.items() if text in texts[0]}
        assert len(shown) == 2
        # `[1] Warm` and `Warmer` are different arms.
        assert shown == {label.removeprefix("[1] ") for label in row["treatment"].split(" + ")}


def test_nested_randomizers_and_embedded_data_of_arms(tmp_path: Path) -> None:
    inner = randomizer(
        "FL_5", 1, embedded_data("FL_6", size="big"), embedded_data("FL_7", size="small")
    )
    arms = randomizer(
        "FL_2",
        1,
        flow_element(
            "Group", "FL_3", embedded_data("FL_4", mood="warm"), inner, Description="Warm"
        ),
        flow_element("Group", "FL_8", embedded_data("FL_9", mood="cold"), Description="Cold"),
    )
    document = make_survey(
        [
            text_entry("QID1", "Your mood is ${e://Field/mood}, size ${e://Field/size}."),
            text_entry(
                "QID2",
                "Warm?",
                DisplayLogic=make_logic([embedded_data_condition("mood", "EqualTo", "warm")]),
            ),
            text_entry(
                "QID3",
                "Not big?",
                DisplayLogic=make_logic([embedded_data_condition("size", "NotEqualTo", "big")]),
            ),
        ],
        flow_elements=[embedded_data("FL_10", mood=None, size=None), arms, show_block("BL_1")],
    )
    rows = run_survey(document, tmp_path, {})

    seen = {row["treatment"]: (texts[0], bool(row["Q2"]), bool(row["Q3"])) for row, texts in rows}
    assert sorted(seen) == ["Cold", "Warm + size big", "Warm + size small"]
    assert seen["Warm + size big"][0].startswith("Your mood is warm, size big.")
    assert seen["Cold"][0].startswith("Your mood is cold, size")
    assert {label: asked[1:] for label, asked in seen.items()} == {
        "Cold": (False, True),
        "Warm + size big": (True, False),
        "Warm + size small": (True, True),
    }


def test_embedded_data_of_participants_are_columns_of_the_profiles(tmp_path: Path) -> None:
    document = make_survey(
        [
            text_entry("QID1", "Hello ${e://Field/team name}."),
            text_entry(
                "QID2",
                "Red?",
                DisplayLogic=make_logic([embedded_data_condition("team name", "EqualTo", "Red")]),
            ),
            text_entry(
                "QID3",
                "Over 9?",
                DisplayLogic=make_logic([embedded_data_condition("score", "GreaterThan", "9")]),
            ),
            text_entry(
                "QID4",
                "Ed?",
                DisplayLogic=make_logic([embedded_data_condition("team name", "Contains", "ed")]),
            ),
            text_entry(
                "QID5",
                "From a link?",
                DisplayLogic=make_logic([embedded_data_condition("source", "NotEmpty")]),
            ),
        ],
        flow_elements=[
            embedded_data("FL_2", **{"team name": None, "wave": "3"}),
            show_block("BL_1"),
        ],
    )
    config, notes = import_workbook(document, tmp_path)
    profiles = config.workbook.profiles
    assert profiles.names == ("ID", "team_name", "wave", "score", "source")
    assert profiles.questions[1] == "team name" and profiles.rows[0][2] == "3"
    assert any("fill in" in note and "team name" in note for note in notes)

    (tmp_path / "red").mkdir()
    red = run_survey(
        document, tmp_path / "red", {}, {"team_name": "Red", "score": "10", "source": "x"}
    )
    assert red[0][1][0].startswith("Hello Red.")
    assert {tuple(bool(row[n]) for n in ("Q2", "Q3", "Q4", "Q5")) for row, _ in red} == {
        (True,) * 4
    }
    (tmp_path / "none").mkdir()
    none = run_survey(document, tmp_path / "none", {}, {"team_name": "7", "score": "many"})
    assert {tuple(bool(row[n]) for n in ("Q2", "Q3", "Q4", "Q5")) for row, _ in none} == {
        (False,) * 4
    }


def test_random_orders_that_a_workbook_has_are_kept_and_others_listed(tmp_path: Path) -> None:
    rows = {"Randomization": {"Type": "All", "Advanced": None, "TotalRandSubset": ""}}
    document = make_survey(
        [
            single_choice("QID1", "One", "a", "b", **rows),
            make_question("QID2", "Matrix", "Likert", "Two", subselector="SingleAnswer",
                     choices=["x", "y"], answers=["bad", "good"], **rows),
            text_entry("QID3", "Three"),
            text_entry("QID4", "Four"),
            text_entry("QID5", "Five, after ${q://QID6/ChoiceTextEntryValue}"),
            text_entry("QID6", "Six"),
            text_entry("QID7", "Seven, after ${q://QID6/ChoiceTextEntryValue}"),
        ],
        {"BL_1": ["QID1", "QID2"], "BL_2": ["QID3", "QID4"], "BL_3": ["QID5", "QID6", "QID7"]},
        options={"BL_2": {"RandomizeQuestions": "true"}, "BL_3": {"RandomizeQuestions": "true"}},
    )  # fmt: skip
    config, notes = import_workbook(document, tmp_path)
    found = {task.var_name: task for task in config.workbook.tasks}

    assert found["Q1"].randomize_response_order
    assert found["Q2_1"].task_order == found["Q2_2"].task_order
    assert found["Q3"].task_order == found["Q4"].task_order > found["Q2_1"].task_order
    assert found["Q6"].task_order < found["Q7"].task_order
    assert any("random order" in note for note in select_notes(notes, "BL_3"))
    assert any("piped text" in note for note in select_notes(notes, "QID5"))


def test_words_of_a_question_that_are_names_of_columns_leave_the_random_order(
    tmp_path: Path,
) -> None:
    document = make_survey(
        [
            text_entry("QID1", "What is your age?", name="age"),
            text_entry("QID2", "What is your income at this age?", name="income"),
        ],
        options={"BL_1": {"RandomizeQuestions": "true"}},
    )
    config, notes = import_workbook(document, tmp_path)

    assert [task.task_order for task in config.workbook.tasks[1:]] == [1, 1]
    assert not select_notes(notes, "BL_1")


def test_random_orders_that_a_workbook_lacks_are_listed_for_every_kind_of_question(
    tmp_path: Path,
) -> None:
    rows = {"Randomization": {"Type": "All", "Advanced": None, "TotalRandSubset": ""}}
    table = {"choices": ["x", "y"], "answers": ["bad", "good"]}
    column = make_question("QID3#1", "Matrix", "Likert", "", subselector="SingleAnswer", **table)
    drawn = {"Type": "Advanced", "Advanced": {"FixedOrder": ["{~Randomized~}"] * 2,
             "RandomizeAll": ["1", "2"], "Undisplayed": ["3"]}}  # fmt: skip
    document = make_survey(
        [
            make_question("QID1", "Matrix", "Likert", "1", subselector="MultipleAnswer",
                          **table, **rows),
            make_question("QID2", "Matrix", "TE", "2", subselector="Short", **table, **rows),
            make_question("QID3", "SBS", "SBSMatrix", "3", choices=["x", "y"],
                          AdditionalQuestions={"1": column}, **rows),
            single_choice("QID4", "4", "a", "b", "c", Randomization=drawn),
            make_question("QID5", "TE", "FORM", "5", choices=["x", "y"], **rows),
        ]
    )  # fmt: skip
    config, notes = import_workbook(document, tmp_path)

    for id in ("QID1", "QID2", "QID3"):
        assert any("random order" in note for note in select_notes(notes, id)), id
    assert "all are offered" in select_notes(notes, "QID4")[0]
    form = [task.task_order for task in config.workbook.tasks if task.var_name.startswith("Q5_")]
    assert len(form) == 2 and len(set(form)) == 1


def test_a_question_that_its_block_never_shows_is_left_out(tmp_path: Path) -> None:
    advanced = {"FixedOrder": ["QID1"], "RandomizeAll": [], "RandomSubSet": [],
                "Undisplayed": ["QID2"], "TotalRandSubset": 0}  # fmt: skip
    document = make_survey(
        [text_entry("QID1", "One"), text_entry("QID2", "Two")],
        options={"BL_1": {"RandomizeQuestions": "Advanced",
                          "Randomization": {"Advanced": advanced}}},
    )  # fmt: skip
    config, notes = import_workbook(document, tmp_path)

    assert [task.var_name for task in config.workbook.tasks[1:]] == ["Q1"]
    assert "BL_1 does not show it" in select_notes(notes, "QID2")[0]


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("Cold:Warm and kind", "From “Cold” (1) to “Warm and kind” (3)"),
        ("${q://QID2/QuestionText}:Warm", "From “Cool” (1) to “Warm” (3)"),
        ("Cold", "Cold"),
    ],
)
def test_the_poles_of_a_bipolar_matrix_name_the_points_of_their_ends(
    statement: str, shown: str, tmp_path: Path
) -> None:
    question = make_question("QID1", "Matrix", "Bipolar", "This brand is",
                             choices=[statement], answers=["", "", ""])  # fmt: skip
    document = make_survey([question, text_entry("QID2", "Cool")])
    task = import_tasks(document, tmp_path)["Q1_1"]
    assert task.llm_text == f"This brand is\n\n{shown}"
    assert task.response_options == '["1", "2", "3"]'


def test_a_choice_that_excludes_the_others_is_listed(tmp_path: Path) -> None:
    nothing = {"Display": "None of these", "ExclusiveAnswer": True}
    document = make_survey([multiple_choice("QID1", "Which?", "Tea", nothing)])
    _, notes = import_workbook(document, tmp_path)

    assert "choice 2 excludes the others" in select_notes(notes, "QID1")[0]


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"Type": "ChoicesTotal", "ChoiceTotal": "168"}, "168"),
        ({"Type": "None"}, ""),
        ({"EnforceRange": "OFF", "Type": "None"}, ""),
        ({"Type": "ChoicesTotal", "ChoiceTotal": "${e://Field/hours}"}, ""),
    ],
)
def test_a_constant_sum_states_the_total_of_the_survey_and_no_other(
    tmp_path: Path, settings: Mapping[str, str], total: str
) -> None:
    question = make_question("QID1", "CS", "VRTL", "Hours", choices=["Work", "Sleep"],
                             Validation={"Settings": settings})  # fmt: skip
    config, notes = import_workbook(make_survey([question]), tmp_path)
    task = config.workbook.tasks[1]

    assert isinstance(task.llm_text, str)
    assert ("must add up" in task.llm_text) == bool(total)
    assert (task.response_options or "") == (f"(0, {total})" if total else "")
    assert task.var_type in ("integer", "float")
    assert ("${e://Field/hours}" in " ".join(notes)) == ("${" in settings.get("ChoiceTotal", ""))


def test_too_many_treatments_are_cut_and_reported(tmp_path: Path) -> None:
    questions = [text_entry(f"QID{n}", f"Question {n}") for n in range(1, 41)]
    blocks = {f"BL_{n}": [f"QID{n}"] for n in range(1, 41)}
    many = randomizer("FL_2", 5, *(show_block(id) for id in blocks))
    config, notes = import_workbook(make_survey(questions, blocks, [many]), tmp_path)

    assert [task.var_name for task in config.workbook.tasks[1:]] == [f"Q{n}" for n in range(1, 6)]
    assert any("658,008 treatments" in note for note in select_notes(notes, "FL_2"))
    assert all(select_notes(notes, f"QID{n}") for n in range(6, 41))


# --- piped texts and loops ---------------------------------------------------------------------


def test_answers_are_piped_into_later_texts(tmp_path: Path) -> None:
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS),
            multiple_choice("QID2", "You like", "Cake", "Bread", "Milk"),
            text_entry("QID3", "Its name?"),
            text_entry("QID4", "Pet ${q://QID1/ChoiceGroup/SelectedChoices} called "
                          "${q://QID3/ChoiceTextEntryValue} of ${q://QID1/ChoiceDescription/2} "
                          "likes ${q://QID2/ChoiceGroup/SelectedChoices}. ${m://FirstName} "
                          "{{ Q3 }} {% endif %} {response_options}"),
        ]
    )  # fmt: skip
    answers = {"Your pet": "Cat", "name?": "Tom", "“Bread”": "no", "“Cake”": "yes", "“Milk”": "yes"}
    rows = run_survey(document, tmp_path, answers)
    _, notes = import_workbook(document, tmp_path)

    expected = "Pet Cat called Tom of Dog likes Cake, Milk. [m://FirstName] {{ Q3 }} {% endif %}"
    assert rows[0][1][-1].startswith(f"{expected} {{response_options}}")
    assert "${m://FirstName}" in select_notes(notes, "QID4")[0]


def test_nothing_is_piped_from_a_question_or_a_text_field_that_was_not_asked(
    tmp_path: Path,
) -> None:
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS[:2], {"Display": "Other", "TextEntry": "on"}),
            text_entry("QID2", "Its name?", DisplayLogic=make_logic(
                [answer_condition("QID1/SelectableChoice/1")])),
            text_entry("QID3", "Name (${q://QID2/ChoiceTextEntryValue}), "
                               "kind (${q://QID1/ChoiceTextEntryValue/3})."),
        ]
    )  # fmt: skip
    for pet, shown in ((PETS[0], "Name (Tom), kind ()."), ("Other", "Name (), kind (ox).")):
        (folder := tmp_path / pet).mkdir()
        answers = {"Your pet": pet, "Its name": "Tom", "what you mean": "ox"}
        _, asked = run_survey(document, folder, answers)[0]
        assert asked[-1].startswith(shown)


def test_a_pipe_does_not_repeat_the_condition_of_its_question(tmp_path: Path) -> None:
    logic = {"DisplayLogic": make_logic([answer_condition("QID1/SelectableChoice/1")])}
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS),
            text_entry("QID2", "Its name?", **logic),
            text_entry("QID3", "Why ${q://QID2/ChoiceTextEntryValue}?", **logic),
        ]
    )
    task = import_tasks(document, tmp_path)["Q3"]
    assert task.llm_text == '{% if Q1 == "Cat" %}Why {{ Q2 }}?{% endif %}'


def test_choices_that_are_taken_over_twice_are_offered_and_piped_in_words(tmp_path: Path) -> None:
    def taken_over(id: str) -> dict[str, Any]:
        locator = f"q://{id}/ChoiceGroup/SelectedChoices"
        return {"DynamicChoices": {"Locator": locator, "Type": "Dynamic"}, "Choices": []}

    document = make_survey(
        [
            multiple_choice("QID1", "Known?", "Tea", "Milk"),
            multiple_choice("QID2", "Liked?", **taken_over("QID1")),
            single_choice("QID3", "Best?", **taken_over("QID2")),
            text_entry("QID4", "Of ${q://QID2/ChoiceGroup/SelectedChoices}, "
                               "why ${q://QID3/ChoiceGroup/SelectedChoices}?"),
        ]
    )  # fmt: skip
    answers = {"Liked?\n\nDoes this apply: “Tea”": "no", "Does this apply": "yes", "Best": "Milk"}
    row, asked = run_survey(document, tmp_path, answers)[0]

    assert row["Q3"] == "Milk"
    assert asked[-1].startswith("Of Milk, why Milk?")
    assert any("- Tea\n- Milk" in question for question in asked if "Best?" in question)


@pytest.mark.parametrize("make", [single_choice, multiple_choice])
def test_the_text_of_a_choice_is_piped_and_decides_and_not_the_choice_beside_it(
    tmp_path: Path, make: Any
) -> None:
    other = {"Display": "Other", "TextEntry": "true"}
    text = "QID1/ChoiceTextEntryValue/2"
    document = make_survey(
        [
            make("QID1", "You drink?", "Tea", other),
            text_entry("QID2", f"Why ${{q://{text}}}?"),
            text_entry("QID3", "Ale?", DisplayLogic=make_logic(
                [answer_condition(text, "Contains", "ale")])),
            text_entry("QID4", "Filled?", DisplayLogic=make_logic(
                [answer_condition(text, "NotEmpty")])),
        ]
    )  # fmt: skip
    answers = {"what you mean": "pale ale", "“Tea”": "no", "“Other”": "yes", "You drink": "Other"}
    row, asked = run_survey(document, tmp_path, answers)[0]
    assert any(question.startswith("Why pale ale?") for question in asked)
    assert row["Q3"] and row["Q4"]

    (tmp_path / "tea").mkdir()
    answers = {"“Tea”": "yes", "“Other”": "no", "You drink": "Tea"}
    row, _ = run_survey(document, tmp_path / "tea", answers)[0]
    assert not row["Q3"] and not row["Q4"]


@pytest.mark.parametrize(
    "path",
    [
        "QID1/SelectedChoicesRecode",
        "QID1/SelectedChoicesCount",
        "QID1/QuestionDescription",
        "QID1/ChoiceTextEntryValue",
        "QID2/SelectedAnswerRecode/1",
        "QID2/AnswerDescription/1",
    ],
)
def test_a_piped_code_count_or_description_is_listed_and_not_shown_as_the_answer(
    tmp_path: Path, path: str
) -> None:
    document = make_survey(
        [
            single_choice("QID1", "Your pet?", *PETS, RecodeValues={"1": "7", "2": "8", "3": "9"}),
            make_question("QID2", "Matrix", "Likert", "Rate", subselector="SingleAnswer",
                          choices=["Tea"], answers=["bad", "good"]),
            text_entry("QID3", f"Here: ${{q://{path}}}."),
        ]
    )  # fmt: skip
    config, notes = import_workbook(document, tmp_path)

    assert config.workbook.tasks[-1].llm_text == f"Here: [q://{path}]."
    assert path in select_notes(notes, "QID3")[0]


def test_a_loop_over_fixed_rows_is_written_out(tmp_path: Path) -> None:
    loop = {"Looping": "Static", "LoopingOptions": {"Randomization": "None", "Static": {
        "1": {"1": "apples"}, "2": {"1": "pears"}}}}  # fmt: skip
    document = make_survey(
        [
            single_choice("QID1", "Do you like ${lm://Field/1}?", "Yes", "No"),
            text_entry("QID2", "Why ${lm://Field/1}?", DisplayLogic=make_logic(
                [answer_condition("QID1/SelectableChoice/1")])),
        ],
        options={"BL_1": loop},
    )  # fmt: skip
    rows = run_survey(
        document, tmp_path, {"like apples": "No", "like pears": "Yes", "Why": "sweet"}
    )
    wanted = {"Q1_1": "No", "Q2_1": "", "Q1_2": "Yes", "Q2_2": "sweet"}
    assert {name: rows[0][0][name] for name in wanted} == wanted
    assert rows[0][1][-1].startswith("Why pears?")


def test_a_loop_over_answers_is_listed_by_question(tmp_path: Path) -> None:
    loop = {"Looping": "Question", "LoopingOptions": {
        "Locator": "q://QID1/ChoiceGroup/SelectedChoices", "Static": {"1": {"2": ""}}}}  # fmt: skip
    document = make_survey(
        [multiple_choice("QID1", "Which?", "a", "b"), text_entry("QID2", "Why ${lm://Field/1}?")],
        {"BL_1": ["QID1"], "BL_2": ["QID2"]},
        options={"BL_2": loop},
    )
    config, notes = import_workbook(document, tmp_path)
    assert [task.var_name for task in config.workbook.tasks[1:]] == ["Q1_1", "Q1_2"]
    assert "loop" in select_notes(notes, "QID2")[0]


def test_a_block_that_is_shown_in_two_arms_has_a_column_for_each(tmp_path: Path) -> None:
    arms = randomizer(
        "FL_2", 1,
        flow_element("Group", "FL_3", show_block("BL_Warm"), show_block("BL_Q"), Description="One"),
        flow_element("Group", "FL_4", show_block("BL_Q"), show_block("BL_Cold"), Description="Two"),
    )  # fmt: skip
    document = make_survey(
        [
            text_entry("QID1", "First"),
            text_entry("QID2", "Second"),
            single_choice("QID3", "Common?", "Yes", "No"),
            text_entry("QID4", "Why ${q://QID3/ChoiceGroup/SelectedChoices}?",
                  DisplayLogic=make_logic([answer_condition("QID3/SelectableChoice/1")])),
        ],
        {"BL_Warm": ["QID1"], "BL_Cold": ["QID2"], "BL_Q": ["QID3"], "BL_End": ["QID4"]},
        [arms, show_block("BL_End")],
    )  # fmt: skip
    for row, texts in run_survey(document, tmp_path, {"Common": "Yes"}):
        asked = ("Q1", "Q3") if row["treatment"] == "One" else ("Q3_2", "Q2")
        assert {name for name in ("Q1", "Q2", "Q3", "Q3_2") if row[name]} == set(asked)
        assert texts[-1].startswith("Why Yes?")


def test_parts_of_the_survey_beside_its_questions_are_listed(tmp_path: Path) -> None:
    greeting = text_entry("QID1", "Hello?", Language={"DE": {"QuestionText": "Hallo?"}})
    document = make_survey(
        [greeting],
        more=[
            {"Element": "SO", "PrimaryAttribute": "x", "Payload": {"Header": "<b>Lab</b>"}},
            {"Element": "SCO", "Payload": {"ScoringCategories": [{"ID": "SC_1"}]}},
            {"Element": "NT", "PrimaryAttribute": "NT_1", "Payload": {"ParentID": "QID1"}},
            {"Element": "ZZ", "PrimaryAttribute": "ZZ_1", "Payload": {}},
        ],
    )
    _, notes = import_workbook(document, tmp_path)
    for where, words in {
        "SO": "header", "SCO": "scoring", "NT_1": "notes of the survey's authors",
        "ZZ_1": "unknown kind 'ZZ'", "SurveyEntry": "translations (DE)",
    }.items():  # fmt: skip
        assert words in select_notes(notes, where)[0]


def test_a_note_names_its_part_in_the_words_of_the_survey(tmp_path: Path) -> None:
    looped = text_entry("QID2", "And <i>then</i>?", name="then", QuestionJS="alert()")
    document = make_survey(
        [
            text_entry("QID1", f"<p>Why {'tea ' * 30}?</p>", name="why", QuestionJS="alert()"),
            looped,
        ],
        {"BL_1": ["QID1", "QID2"]},
        [show_block("BL_1"), show_block("BL_9")],
    )
    _, notes = import_workbook(document, tmp_path)
    (why,), (then,) = select_notes(notes, "QID1"), select_notes(notes, "QID2")
    assert why.startswith("Left out: why “Why tea tea ") and "…” (QID1): its program" in why
    assert then.startswith("Left out: then “And then?” (QID2): its program (JavaScript)")
    (flow_note,) = [note for note in notes if "step of the survey flow (" in note]
    assert "the block BL_9, which is missing" in flow_note
