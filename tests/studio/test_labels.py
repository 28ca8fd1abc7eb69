"""A form names its fields by their labels, because its readers never see the study file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from folkmoot.authoring.keys import keys_of, walk_keys
from folkmoot.authoring.template import new_files
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.errors import Problem
from folkmoot.studio.fields import FormSection, StudyField, change_rows, make_form, walk_fields
from folkmoot.studio.labels import FormWords, value_words
from folkmoot.studio.study_forms import StudyForm, WorkbookForm, read_study_form, word_problems
from tests.sweeps import sample_daily

SNAKE_CASE = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")


def list_fields(sections: Sequence[FormSection]) -> list[StudyField]:
    return [field for section in sections for field in walk_fields(section.fields)]


def open_all_rows(kind: str) -> list[StudyField]:
    """Return the fields of a form in which each list and mapping has a row, so all are visible."""
    study = find_study(kind)
    values: dict[str, Any] = {}
    for _ in range(100):
        form = make_form(study, values)
        empty = [
            field
            for field in list_fields(form)
            if not field.inner and (field.kind in ("rows", "mapping") or field.can_become_rows)
        ]
        if not empty:
            return list_fields(form)
        action = "rows" if empty[0].can_become_rows else "add"
        values = change_rows(form, values, f"{action} {empty[0].name}")
    raise AssertionError(empty[0].path)


def create_workbook_form(folder: Path) -> WorkbookForm:
    for name, content in new_files(find_study("workbook")).items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    form = read_study_form(next(folder.glob("*.xlsx")))
    assert isinstance(form, WorkbookForm)
    return form


def find_raw_keys(field: StudyField, keys: set[str]) -> Iterator[str]:
    """Yield the keys in the help of a field that its form does not offer as values."""
    offered_values = {value_words(choice) for choice in (*field.choices, *field.key_choices)}
    # The text after "set to" is a value, and a name in braces is typed into a cell unchanged.
    text = re.sub(r"” set to `[^`]+`|\{\w+\}", "”", field.help)
    for name in re.findall("`([^`]+)`", text):
        if name.partition(": ")[0] in keys and name not in offered_values:
            yield name
    yield from (name for name in SNAKE_CASE.findall(text) if name in keys)


@pytest.mark.parametrize(
    "kind",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "negotiation"), part="sweeps"
    ),
)
def test_no_help_names_a_raw_key(tmp_path: Path, kind: str) -> None:
    keys = {key.name for _, key in walk_keys(keys_of(find_study(kind).config))}
    if kind == "workbook":
        form = create_workbook_form(tmp_path)
        for sheet in form.sheets.sheets:
            keys |= {sheet.name, *sheet.rows[0], *(row[0] for row in sheet.rows if row)}
        values: Any = form.sheets.values
        for section in form.sections:
            for field in section.fields:
                values = change_rows(form.sections, values, f"add {field.name}")
        cells = ((name, len(rows) - 1, "A") for name, rows in values.items())
        fields = list_fields(form.sheets.with_cells(cells).sections)
        assert {"agent_profiles", "llm_text", "api_endpoint"} <= keys
    else:
        fields = open_all_rows(kind)
    assert len([field for field in fields if field.help]) > 20
    assert {
        field.label: raw_keys for field in fields if (raw_keys := [*find_raw_keys(field, keys)])
    } == {}
    # A value is offered in the same words that help texts use.
    offered_values = {choice for field in fields for choice in (*field.choices, *field.key_choices)}
    assert [choice for choice in offered_values if SNAKE_CASE.fullmatch(value_words(choice))] == []


def test_help_texts_name_labels_instead_of_keys_and_keep_values() -> None:
    form = {field.path: field for field in open_all_rows("cross_pollination")}
    helps = {path: field.help for path, field in form.items()}
    assert helps["opposition_mapping",].startswith(
        "For “Choice of the opposing view” set to `predefined`: "
    )
    assert "`cluster embedding`" in helps["opposition_method",]
    assert helps["batch_at_least",].startswith("With “Batches at half the price” set to `auto`,")
    assert "“Time for an answer”" in helps["seats", "afterwards_minutes"]
    assert helps["controls", "negative"].startswith("`yes`: shipped questions")
    # `source` is a key of the personas and a value of this field.
    assert "`source`: prompts" in helps["exposure",]


def test_messages_name_fields_of_the_form() -> None:
    study = find_study("focus_group")
    form = StudyForm(study, "", {}, make_form(study, {}))
    hint = "set `replications` to 5, see `stimulus_material` in docs and {stimulus_material}"
    (problem,) = word_problems(form, [Problem("too few: replications", hint=hint)])
    assert problem.message == "too few: replications"
    assert problem.hint == (
        "set “Number of groups” to 5, see “Material to show” in docs and {stimulus_material}"
    )
    assert FormWords({"a_b": "A"}, {"c_d"}).rewrite("a_b, c_d, e_f, `x_y`") == (
        "“A”, c d, e_f, `x_y`"
    )
