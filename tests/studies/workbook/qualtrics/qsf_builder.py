"""QSF files written by hand, with the structure that exports have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Keys = dict[str, Any]


def make_question(id: str, kind: str, selector: str, text: str, **keys: Any) -> Keys:
    """Make a question (SQ).

    - `keys`: `name` is the export tag. `choices` and `answers` are texts in order.
    """
    subselector = keys.pop("subselector", None)
    name = keys.pop("name", id.replace("QID", "Q"))
    payload: Keys = {
        "QuestionText": text, "DefaultChoices": False, "DataExportTag": name, "QuestionType": kind,
        "Selector": selector, "Configuration": {"QuestionDescriptionOption": "UseText"},
        "QuestionDescription": text[:99], "GradingData": [], "Language": [],
        "Validation": {"Settings": {"ForceResponse": "ON", "Type": "None"}}, "QuestionID": id,
    }  # fmt: skip
    if subselector:
        payload["SubSelector"] = subselector
    for argument, key, order in (
        ("choices", "Choices", "ChoiceOrder"),
        ("answers", "Answers", "AnswerOrder"),
    ):
        if argument in keys:
            entries = [e if isinstance(e, dict) else {"Display": e} for e in keys.pop(argument)]
            payload[key] = {str(n): entry for n, entry in enumerate(entries, 1)}
            payload[order] = [str(n) for n in range(1, len(entries) + 1)]
    return payload | keys


def single_choice(id: str, text: str, *choices: str | Keys, **keys: Any) -> Keys:
    """Make a multiple choice question with one answer."""
    return make_question(id, "MC", "SAVR", text, subselector="TX", choices=choices, **keys)


def multiple_choice(id: str, text: str, *choices: str | Keys, **keys: Any) -> Keys:
    """Make a multiple choice question with several answers."""
    return make_question(id, "MC", "MAVR", text, subselector="TX", choices=choices, **keys)


def descriptive_text(id: str, text: str, **keys: Any) -> Keys:
    """Make a descriptive text."""
    return make_question(id, "DB", "TB", text, **keys)


def text_entry(id: str, text: str, selector: str = "SL", **keys: Any) -> Keys:
    """Make a text entry."""
    return make_question(id, "TE", selector, text, **keys)


# --- logic -------------------------------------------------------------------------------------


def answer_condition(
    locator: str, name: str = "Selected", value: str | None = None, **keys: Any
) -> Keys:
    """Make an expression on an answer. The locator has no `q://`."""
    id = locator.partition("/")[0]
    expression: Keys = {
        "LogicType": "Question", "QuestionID": id, "QuestionIsInLoop": "no",
        "ChoiceLocator": f"q://{locator}", "Operator": name, "QuestionIDFromLocator": id,
        "LeftOperand": f"q://{locator}", "Type": "Expression",
        "Description": f'<span class="ConjDesc">If</span> <span class="OpDesc">{name}</span>',
    }  # fmt: skip
    if value is not None:
        expression["RightOperand"] = value
    return expression | keys


def embedded_data_condition(field: str, name: str, value: str = "", **keys: Any) -> Keys:
    """Make an expression on embedded data."""
    return {"LogicType": "EmbeddedField", "LeftOperand": field, "Operator": name,
            "RightOperand": value, "Type": "Expression", "Description": field} | keys  # fmt: skip


def make_logic(*sets: Sequence[Keys], kinds: Sequence[str] = ()) -> Keys:
    """Make display or branch logic from sets of expressions."""
    written: Keys = {"Type": "BooleanExpression", "inPage": False}
    for number, expressions in enumerate(sets):
        kind = kinds[number] if number < len(kinds) else ("OrIf" if number else "If")
        written[str(number)] = {str(n): e for n, e in enumerate(expressions)} | {"Type": kind}
    return written


# --- flow --------------------------------------------------------------------------------------


def show_block(block: str, **keys: Any) -> Keys:
    return {"Type": "Standard", "ID": block, "FlowID": f"FL_{block}", "Autofill": []} | keys


def flow_element(kind: str, id: str, *inner: Keys, **keys: Any) -> Keys:
    return {"Type": kind, "FlowID": id, "Flow": list(inner)} | keys


def randomizer(id: str, shown: int, *inner: Keys) -> Keys:
    """Make a randomizer that shows some of its elements."""
    return flow_element("BlockRandomizer", id, *inner, SubSet=shown, EvenPresentation=True)


def embedded_data(id: str, **values: str | None) -> Keys:
    """Make embedded data. None declares a field without a value."""
    entries = []
    for name, value in values.items():
        kind = "Recipient" if value is None else "Custom"
        given: Keys = {"Description": name, "Type": kind, "Field": name, "VariableType": "String",
                       "DataVisibility": [], "AnalyzeText": False}  # fmt: skip
        entries.append(given if value is None else given | {"Value": value})
    return {"Type": "EmbeddedData", "FlowID": id, "EmbeddedData": entries}


def end_of_survey(id: str) -> Keys:
    return {"Type": "EndSurvey", "FlowID": id}


# --- the file ----------------------------------------------------------------------------------


def make_survey(
    questions: Sequence[Keys],
    blocks: Mapping[str, Sequence[str | Keys]] | None = None,
    flow_elements: Sequence[Keys] | None = None,
    options: Mapping[str, Keys] | None = None,
    more: Sequence[Keys] = (),
) -> Keys:
    """Make a survey.

    By default, one block contains all questions, and the flow shows all blocks.
    """
    ids = [q["QuestionID"] for q in questions]
    blocks = {"BL_1": ids} if blocks is None else blocks
    listed: list[Keys] = []
    for id, elements in blocks.items():
        kind = "Trash" if "trash" in id.lower() else "Standard"
        listed.append(
            {"Type": kind, "SubType": "", "Description": id.removeprefix("BL_"), "ID": id,
             "BlockElements": [{"Type": "Question", "QuestionID": e} if isinstance(e, str) else e
                               for e in elements],
             "Options": {"BlockLocking": "false", "RandomizeQuestions": "false"}
             | (options or {}).get(id, {})}
        )  # fmt: skip
    shown = [show_block(id) for id in blocks if "trash" not in id.lower()]
    elements = [
        _make_element("BL", "Survey Blocks", listed),
        _make_element(
            "FL",
            "Survey Flow",
            {
                "Type": "Root",
                "FlowID": "FL_1",
                "Properties": {"Count": 9},
                "Flow": list(shown if flow_elements is None else flow_elements),
            },
        ),
        _make_element("SO", "Survey Options", {"BackButton": "false", "Header": "", "Footer": ""}),
        _make_element("PROJ", "CORE", {"ProjectCategory": "CORE", "SchemaVersion": "1.1.0"}),
        _make_element("QC", "Survey Question Count", None),
        *(_make_element("SQ", q["QuestionID"], q) for q in questions),
        *more,
    ]
    entry: Keys = {"SurveyID": "SV_1", "SurveyName": "A survey", "SurveyDescription": None,
                   "SurveyLanguage": "EN", "SurveyStatus": "Inactive"}  # fmt: skip
    return {"SurveyEntry": entry, "SurveyElements": elements}


def _make_element(kind: str, name: str, payload: object) -> Keys:
    return {"SurveyID": "SV_1", "Element": kind, "PrimaryAttribute": name,
            "SecondaryAttribute": None, "TertiaryAttribute": None, "Payload": payload}  # fmt: skip


def write_survey(document: object, path: Path) -> Path:
    """Write a survey to a file."""
    path.write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    return path
