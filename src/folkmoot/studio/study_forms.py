"""The web form that edits a study, whether the study is a YAML file or a workbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import Study, find_study, load_installed_studies
from folkmoot.engine.study.study_file import read_study_text
from folkmoot.errors import InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.studio.fields import (
    FormSection,
    change_rows,
    form_words,
    make_form,
    place_problems,
    read_form,
)
from folkmoot.studio.labels import FormWords
from folkmoot.studio.projects import YAML_SUFFIXES
from folkmoot.studio.sheet_files import write_sheet_values
from folkmoot.studio.sheets import (
    SheetForm,
    change_columns,
    complete_rows,
    place_cell_problems,
    read_sheet_form,
)
from folkmoot.studio.study_text import change_values, is_same

# The letters of a column of a sheet.
LETTERS = re.compile("[A-Z]{1,2}")


@dataclass(frozen=True, slots=True)
class StudyForm:
    """The web form that edits a study file in YAML."""

    # If the study type is unknown, `sections` is empty.

    study: Study | None
    text: str
    values: dict[str, Any]
    sections: tuple[FormSection, ...]
    reason: str = ""

    @property
    def words(self) -> FormWords:
        """The words of the form for keys of the file."""
        return form_words(self.sections)

    def place(self, problems: Sequence[Problem]) -> tuple[dict[str, list[Problem]], list[Problem]]:
        """Return a map from field id to problems, and a list of all other problems."""
        return place_problems(self.sections, problems)

    def save(
        self, path: Path, sent: Mapping[str, str], action: str
    ) -> tuple[AnyForm, list[Problem]]:
        """Write submitted values into the file, and return the new form and its problems."""
        # `action` adds, removes or moves a row, as in `change_rows`.
        if self.study is None:
            return self, []
        changed, problems = read_form(self.sections, self.values, sent)
        if action:
            changed = change_rows(make_form(self.study, changed), changed, action)
        # An unchanged form leaves the file as it is, so that its time and layout stay.
        if not is_same(changed, self.values):
            write_bytes(path, change_values(self.text, changed).encode())
        return read_study_form(path), problems


@dataclass(frozen=True, slots=True)
class WorkbookForm:
    """The web form that edits a workbook."""

    study: Study | None
    sheets: SheetForm

    @property
    def sections(self) -> tuple[FormSection, ...]:
        return self.sheets.sections

    @property
    def reason(self) -> str:
        return self.sheets.reason

    @property
    def words(self) -> FormWords:
        """The words of the form for names in the workbook."""
        return self.sheets.words

    def place(self, problems: Sequence[Problem]) -> tuple[dict[str, list[Problem]], list[Problem]]:
        """Return a map from field id to problems, and a list of all other problems."""
        return place_cell_problems(self.sections, problems)

    def save(
        self, path: Path, sent: Mapping[str, str], action: str
    ) -> tuple[AnyForm, list[Problem]]:
        """Write submitted values into the cells, and return the new form and its problems."""
        if self.reason:
            return self, []
        shown = self.sheets.with_cells(_cells_of(sent))
        changed: dict[str, Any]
        changed, problems = read_form(shown.sections, shown.values, sent)
        if action:
            changed = change_columns(change_rows(shown.sections, changed, action), action)
        after = complete_rows(changed, shown.values)
        if after != shown.values:
            try:
                write_sheet_values(path, shown.values, after)
            except InputError as error:
                problems += error.problems
        cells = (
            (name, number, letter)
            for name, rows in after.items()
            for number, row in enumerate(rows)
            for letter in row
        )
        return WorkbookForm(self.study, read_sheet_form(path).with_cells(cells)), problems


AnyForm = StudyForm | WorkbookForm


def word_problems(form: AnyForm, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with messages that name fields of the form by their labels."""
    words = form.words
    return [
        replace(problem, message=words.rewrite(problem.message), hint=words.rewrite(problem.hint))
        for problem in problems
    ]


def _cells_of(sent: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    for name in sent:
        try:
            path = json.loads(name)
        except ValueError:
            continue
        match path:
            case [str(sheet), int(number), str(letter)] if LETTERS.fullmatch(letter):
                yield sheet, number, letter


def read_study_form(path: Path) -> AnyForm:
    """Return the web form that edits a study.

    The form has no sections if the file cannot be read as a study file.
    """
    if is_workbook(path):
        suffix = path.suffix.lower()
        types = load_installed_studies()[0]
        study = next((study for study in types if suffix in study.file_suffixes), None)
        return WorkbookForm(study, read_sheet_form(path))
    text = ""
    values = None
    # A form would save a file of another encoding without the characters that it cannot read.
    with suppress(InputError):
        text = read_study_text(path)
        values = parse_yaml(text, path.name).value
    if not isinstance(values, dict):
        return StudyForm(None, text, {}, ())
    study = _study_of(values, path)
    return StudyForm(study, text, values, make_form(study, values) if study is not None else ())


def _study_of(values: dict[str, Any], path: Path) -> Study | None:
    kind = values.get("study")
    try:
        if isinstance(kind, str):
            # A page cannot ask for consent. Code that the file names is executed only if the user
            # consented before.
            return find_study(kind, path.parent, Consent())
    except InputError:
        return None
    return next((study for study in load_installed_studies()[0] if study.matches(values)), None)


def is_workbook(path: Path) -> bool:
    """Return True if a study file is a spreadsheet and not YAML."""
    return path.suffix.lower() not in YAML_SUFFIXES
