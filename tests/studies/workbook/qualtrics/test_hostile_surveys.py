"""Broken and hostile surveys lead to errors or listed omissions, but not to invalid workbooks."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folkmoot.child_process import Limits
from folkmoot.errors import InputError
from folkmoot.studies.workbook.preparation import load_workbook_config
from folkmoot.studies.workbook.spreadsheet.qualtrics import importing
from folkmoot.studies.workbook.spreadsheet.qualtrics.importing import (
    import_survey,
    make_study,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import make_plain
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
from tests.sweeps import sample_daily


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"SurveyID,Question\n1,2\n", "not JSON"),
        (b"PK\x03\x04\xff\xfe", "not a text in UTF-8"),
        (b"[1, 2]", "not a JSON object"),
        (b"{}", "no SurveyElements"),
        (b'{"SurveyElements": [{"Element": "FL", "Payload": null}]}', "no questions"),
        (b'{"SurveyElements": [{"Element": "SQ", "Payload": []}]}', "no questions"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"SurveyElements": ' + b"[" * 900 + b"]" * 900 + b"}", "no SurveyElements"),
    ],
)
def test_a_file_that_is_no_survey_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "survey.qsf"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        make_study(path)
    assert words in str(raised.value) and "survey.qsf" in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        import_survey(tmp_path / "no.qsf")


def test_a_survey_of_which_nothing_can_be_asked_says_why(tmp_path: Path) -> None:
    document = make_survey(
        [
            make_question("QID1", "FileUpload", "FileUpload", "Send a photo"),
            descriptive_text("QID2", "Hi"),
        ]
    )
    with pytest.raises(InputError, match=r"QID1.*file upload"):
        make_study(write_survey(document, tmp_path / "survey.qsf"))


def test_ids_that_are_there_twice_are_listed(tmp_path: Path) -> None:
    questions = [
        text_entry("QID1", "First"),
        text_entry("QID1", "Impostor", name="x"),
        text_entry("QID2", "B", name="Q1"),
    ]
    study = make_study(write_survey(make_survey(questions), tmp_path / "survey.qsf"))
    config = _load_config(study, tmp_path)
    assert [(task.var_name, task.llm_text) for task in config.workbook.tasks[1:]] == [
        ("Q1", "First"), ("Q1_2", "First"), ("Q1_3", "B"),
    ]  # fmt: skip
    assert any("(QID1): a second question with the same id" in note for note in study.notes)


@pytest.mark.parametrize("count", sample_daily([200, 2_000], [200], "scale"))
def test_thousands_of_questions_are_imported_in_seconds(count: int, tmp_path: Path) -> None:
    questions = []
    for n in range(1, count + 1):
        keys = (
            {"DisplayLogic": make_logic([answer_condition(f"QID{n - 1}/SelectableChoice/1")])}
            if n > 1
            else {}
        )
        questions.append(single_choice(f"QID{n}", f"<p>Question {n}</p>" * 5, "Yes", "No", **keys))
    path = write_survey(make_survey(questions), tmp_path / "survey.qsf")
    before = time.process_time()
    study = import_survey(path)
    assert time.process_time() - before < 30 * count / 2_000
    assert len(_load_config(study, tmp_path).workbook.tasks) == count + 1


def test_html_that_takes_long_to_read_ends_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "LIMITS", Limits(seconds=1, memory_bytes=2_000_000_000))
    questions = [text_entry(f"QID{n}", "<b>x</b>" * 12_000) for n in range(150)]
    with pytest.raises(InputError, match="more than 1 seconds"):
        import_survey(write_survey(make_survey(questions), tmp_path / "survey.qsf"))


def test_html_becomes_the_words_that_a_participant_sees() -> None:
    html = (
        "<style>p {color: red}</style><p>One&nbsp;&amp; <b>two</b><br>three</p><script>alert(1)"
        "</script><ul><li>a</li><li>b</li></ul><img src='https://x.org/g.png' alt='a dog'>"
        "<table><tr><td>1</td><td>2</td></tr></table>x\u200by\u202e <a href='https://y.org'>there</a>"
    )
    plain = make_plain(html)
    assert plain.text == ("One & two\nthree\n\n- a\n- b\n\n[image: a dog]\n\n1 2\n\nxy there")
    assert [lost.split(" (")[0] for lost in plain.lost] == [
        "a script", "an image", "the address of a link",
    ]  # fmt: skip


def _make_full_survey() -> Any:
    """Make a survey with each kind of part, for mutations."""
    block = {"Looping": "Static", "LoopingOptions": {"Static": {"1": {"1": "x"}, "2": {"1": "y"}}}}
    skip = {"ChoiceLocator": "q://QID1/SelectableChoice/2", "Condition": "Selected",
            "SkipToDestination": "ENDOFSURVEY", "QuestionID": "QID1"}  # fmt: skip
    return make_survey(
        [
            single_choice(
                "QID1", "<p>Yes?</p>", "Yes", "No", {"Display": "Other", "TextEntry": "true"}
            ),
            multiple_choice("QID2", "Which?", "a", "b", Randomization={"Type": "All"}),
            make_question(
                "QID3",
                "Matrix",
                "Likert",
                "Rate",
                subselector="SingleAnswer",
                choices=["s", "t"],
                answers=["1", "2"],
                RecodeValues={"1": "5"},
            ),
            make_question(
                "QID4",
                "Slider",
                "HSLIDER",
                "Heat",
                choices=["z"],
                Configuration={"CSSliderMin": 0, "CSSliderMax": 10, "NumDecimals": "1"},
            ),
            descriptive_text("QID5", "Read ${e://Field/mood} ${lm://Field/1}."),
            text_entry(
                "QID6",
                "Why ${q://QID1/ChoiceGroup/SelectedChoices}?",
                DisplayLogic=make_logic(
                    [
                        answer_condition("QID3/SelectedAnswerRecode/1", "EqualTo", "5"),
                        embedded_data_condition("team", "Contains", "x", Conjuction="Or"),
                    ],
                    [answer_condition("QID2/SelectedChoicesCount", "LessThan", "2")],
                    kinds=["If", "AndIf"],
                ),
            ),
            make_question(
                "QID7",
                "RO",
                "DND",
                "Rank",
                choices=["p", "q"],
                DynamicChoices={"Locator": "q://QID2/ChoiceGroup/SelectedChoices"},
            ),
            make_question("QID8", "CS", "VRTL", "Split", choices=["p", "q"]),
            make_question(
                "QID9",
                "SBS",
                "SBSMatrix",
                "Both",
                choices=["p"],
                AdditionalQuestions={
                    "1": {
                        "QuestionText": "Left",
                        "QuestionType": "Matrix",
                        "Selector": "Likert",
                        "SubSelector": "MultipleAnswer",
                        "Answers": {"1": {"Display": "u"}},
                    }
                },
            ),
            text_entry("QID10", "Form", "FORM", choices=["k"]),
        ],
        {
            "BL_1": [
                {"Type": "Question", "QuestionID": "QID1", "SkipLogic": [skip]},
                "QID2",
                "QID3",
            ],
            "BL_2": ["QID4", "QID5", "QID6"],
            "BL_3": ["QID7", "QID8"],
            "BL_4": ["QID9", "QID10"],
        },
        [
            embedded_data("FL_2", team=None, wave="1"),
            show_block("BL_1"),
            randomizer(
                "FL_3",
                1,
                flow_element(
                    "Group", "FL_4", embedded_data("FL_5", mood="warm"), Description="Warm"
                ),
                flow_element(
                    "Group", "FL_6", embedded_data("FL_7", mood="cold"), Description="Cold"
                ),
            ),
            flow_element(
                "Branch",
                "FL_8",
                show_block("BL_3"),
                end_of_survey("FL_9"),
                Description="New Branch",
                BranchLogic=make_logic([answer_condition("QID2/SelectableChoice/1")]),
            ),
            randomizer("FL_10", 2, show_block("BL_2"), show_block("BL_4")),
        ],
        options={"BL_2": block, "BL_4": {"RandomizeQuestions": "true"}},
    )


_ODD: tuple[Any, ...] = (
    *(None, "", [], {}, -1, 0, float("inf"), True, [[]], {"1": None}, {"0": {"0": {}}}),
    *("x" * 70, "{{ 1 }}", "%}", "= 1 + 1", "<p>", "\u202e\u0000\ud800", "sum", "treatment"),
    *("${e://Field/}", "${q://QID1/", "QID1", "q://QID99/SelectableChoice/1"),
    *("BlockRandomizer", "EqualTo"),
)


def _iterate_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys."""
    keys = (
        value.keys()
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in list(keys):
        yield value, key
        yield from _iterate_places(value[key])


@pytest.mark.parametrize("seed", sample_daily(range(150), range(12), part="mutations"))
def test_whatever_a_survey_holds_its_workbook_has_no_mistakes(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    document = copy.deepcopy(_make_full_survey())
    for _ in range(1 + seed % 4):
        places = list(_iterate_places(document))
        container, key = places[rng.integers(len(places))]
        container[key] = copy.deepcopy(_ODD[rng.integers(len(_ODD))])
    path = tmp_path / "survey.qsf"
    path.write_text(json.dumps(document), "utf-8")
    try:
        study = make_study(path)
    except InputError:
        return
    _load_config(study, tmp_path)


def _load_config(study: Any, folder: Path) -> Any:
    content = study.files["survey.xlsx"]
    (folder / "survey.xlsx").write_bytes(content)
    return load_workbook_config(folder / "survey.xlsx")


def test_what_does_not_fit_into_a_cell_is_left_out_with_what_needs_it(tmp_path: Path) -> None:
    document = make_survey(
        [
            text_entry("QID1", "word " * 8_000),
            text_entry("QID2", "You said ${q://QID1/ChoiceTextEntryValue}."),
            single_choice("QID3", "Pick", *(f"{n} {'long ' * 30}" for n in range(300))),
            text_entry("QID4", "Fine?"),
        ]
    )
    study = make_study(write_survey(document, tmp_path / "survey.qsf"))
    assert [task.var_name for task in _load_config(study, tmp_path).workbook.tasks[1:]] == ["Q4"]
    for id, words in {
        "QID1": "its text has",
        "QID2": "needs Q1",
        "QID3": "list of choices",
    }.items():
        assert any(
            note.startswith("Left out: ") and f"({id}): " in note and words in note
            for note in study.notes
        )
