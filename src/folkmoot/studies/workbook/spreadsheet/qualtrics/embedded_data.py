"""Embedded data of a survey: values that the export or the survey flow sets without a question."""
# A field that comes with participants becomes a column of the profiles. Prompts cannot use columns,
# so a field in a text or a condition also becomes a computed value. A field that the flow sets
# needs no column, because it follows from the treatment or from earlier answers.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.studies.workbook.config import CELL_NUMBER
from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import (
    Condition,
    ValueComparison,
    all_of,
    any_of,
    negate,
    text_literal,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.logic import SYMBOLS, compare_texts
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import Survey, as_text, nested_list
from folkmoot.studies.workbook.spreadsheet.qualtrics.treatments import ArmKey, Treatments


@dataclass(frozen=True)
class Setting:
    """A step of the survey that gives a field a value if `condition` holds."""

    condition: Condition
    # The value as a text of the workbook.
    template: str
    # The same value, or None if it contains piped text.
    value: str | None


@dataclass
class Column:
    """A column of the profiles, with one value for all participants."""

    name: str
    field: str
    value: str


@dataclass
class EmbeddedData:
    """Named values that a survey stores without asking a question."""

    # Returns a unique name.
    new_name: Callable[[str], str]
    # Columns by field.
    columns: dict[str, Column] = field(default_factory=dict)
    # The expressions of the computed values that prompts use, by name.
    computed: dict[str, str] = field(default_factory=dict)
    # The elements of the flow that have set a field so far, by field.
    settings: dict[str, list[Setting]] = field(default_factory=dict)
    _set_by_flow: set[str] = field(default_factory=set)

    def plan_columns(self, survey: Survey, treatments: Treatments) -> None:
        """Decide which fields become profile columns."""
        # Call this before the flow is visited.
        seen: dict[str, list[tuple[Condition, str]]] = {}

        def visit(
            elements: Sequence[Mapping[str, Any]], place: ArmKey, condition: Condition
        ) -> None:
            for number, element in enumerate(elements):
                key = (*place, str(number))
                here = all_of(condition, treatments.condition_of(key))
                # Whether a branch is taken depends on answers, so it never covers all participants.
                below = here
                if as_text(element.get("Type")) == "Branch":
                    below = all_of(here, ValueComparison(f"branch_{'_'.join(key)}"))
                for given in nested_list(element.get("EmbeddedData")):
                    name, value = as_text(given.get("Field")).strip(), as_text(given.get("Value"))
                    if name:
                        seen.setdefault(name, []).append((here, value))
                visit(nested_list(element.get("Flow")), key, below)

        visit(survey.flow, (), True)
        for name, given in seen.items():
            valued = [(condition, value) for condition, value in given if value]
            if len(valued) == 1 and valued[0][0] is True and "${" not in valued[0][1]:
                self.add_column(name, valued[0][1])
            elif valued:
                self._set_by_flow.add(name)
                is_covered = any_of(*(condition for condition, _ in valued)) is True
                if not is_covered and any(not value for _, value in given):
                    self.add_column(name, "")
            else:
                self.add_column(name, "")

    def add_column(self, field: str, value: str) -> None:
        """Add a column to the profiles, with the same value for all participants."""
        self.columns[field] = Column(self.new_name(field), field, value)

    def is_set_by_flow(self, field: str) -> bool:
        """Return whether the flow of the survey can set a field."""
        return field in self._set_by_flow

    def set_value(self, field: str, setting: Setting) -> None:
        """Record that a step of the survey sets a field."""
        self.settings.setdefault(field, []).append(setting)

    # --- use -----------------------------------------------------------------------------------

    def compare(self, field: str, name: str, operand: str) -> Condition | None:
        """Return the condition that compares the current value of a field with `operand`.

        - `name`: the name of the comparison operator.

        Returns None if the workbook cannot express the condition.
        """
        if not field.strip():
            return None
        condition = self._compare_column(field, name, operand)
        for setting in self.settings.get(field, []):
            if setting.value is None or condition is None:
                return None
            holds = compare_texts(setting.value, name, operand)
            if holds is None:
                return None
            condition = any_of(
                all_of(setting.condition, holds), all_of(negate(setting.condition), condition)
            )
        return condition

    def template_of(self, field: str) -> str:
        """Return the placeholder for the column of a field.

        Returns "" if the field has no column.
        """
        return f"{{{{ {self._computed_value(field)} }}}}" if self._uses_column(field) else ""

    def value_settings(self, field: str) -> Sequence[Setting]:
        """Return the steps that have set a field so far, in order."""
        return self.settings.get(field, [])

    def _uses_column(self, field: str) -> bool:
        if field in self.columns:
            return True
        if field in self._set_by_flow:
            return False
        # The survey does not declare it: it comes with a link or from a list of contacts.
        self.add_column(field, "")
        return True

    def _computed_value(self, field: str) -> str:
        return self._compute(field, self.columns[field].name)

    def _compute(self, about: str, expression: str) -> str:
        known = next((name for name, text in self.computed.items() if text == expression), None)
        if known is None:
            known = self.new_name(f"its_{about}")
            self.computed[known] = expression
        return known

    def _compare_column(self, field: str, name: str, operand: str) -> Condition | None:
        if not self._uses_column(field):
            return False
        column = self.columns[field].name
        if name == "NotEmpty":
            # The computed value of a blank cell is missing, which is not true.
            is_given = self._compute(f"{field}_given", f"1 if {column} == {column} else 0")
            return ValueComparison(f"{is_given} == 1")
        if name == "Contains":
            # A number contains no text. The computed value is then missing, which is not true.
            contains = f"1 if {text_literal(operand)} in {column} else 0"
            return ValueComparison(f"{self._compute(f'{field}_contains', contains)} == 1")
        if name not in SYMBOLS:
            return None
        value, symbol = self._computed_value(field), SYMBOLS[name][0]
        if CELL_NUMBER.fullmatch(operand):
            # A text is not less than a number: the computed value is then missing, and not true.
            if name != "EqualTo":
                expression = f"1 if {column} {symbol} {operand} else 0"
                return ValueComparison(f"{self._compute(f'{field}_compared', expression)} == 1")
            return ValueComparison(f"{value} == {operand}")
        return ValueComparison(f"{value} == {text_literal(operand)}") if name == "EqualTo" else None
