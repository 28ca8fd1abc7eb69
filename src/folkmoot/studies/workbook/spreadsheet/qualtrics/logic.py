"""Turn the display, skip and branch logic of a survey into conditions."""
# An expression that a workbook cannot represent is noted and left out of its condition.

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any as Value
from urllib.parse import unquote

from folkmoot.hints import number_text, shorten
from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import (
    Condition,
    ValueComparison,
    all_of,
    any_of,
    negate,
    text_literal,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.questions import YES, Item, QuestionForm
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import (
    SurveyQuestion,
    as_mapping,
    as_number,
    as_text,
    in_order,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import make_plain

# A negative operator holds if the positive one does not, so also for a question never asked.
_NEGATIVE = {
    "NotSelected": "Selected",
    "NotEqualTo": "EqualTo",
    "DoesNotContain": "Contains",
    "NotDisplayed": "Displayed",
    "Empty": "NotEmpty",
}
SYMBOLS: Mapping[str, tuple[str, Callable[[Value, Value], bool]]] = {
    "EqualTo": ("==", operator.eq),
    "GreaterThan": (">", operator.gt),
    "GreaterThanOrEqual": (">=", operator.ge),
    "LessThan": ("<", operator.lt),
    "LessThanOrEqual": ("<=", operator.le),
}
_LONGEST_OPERAND = 150
# The parts of a question in which participants type or set a value.
_ENTRIES = ("ChoiceTextEntryValue", "ChoiceNumericEntryValue")


@dataclass(frozen=True)
class PlacedQuestion:
    """A question at one place in the survey."""

    # A question can be asked at several places.

    question: SurveyQuestion
    form: QuestionForm
    # The variable of each task of the question, by the key of the task.
    variables: Mapping[tuple[str, ...], str]
    # The condition under which the question is asked.
    condition: Condition
    # The row of the loop that asks the question, and "" outside loops.
    loop: str = ""

    def variable(self, *key: str) -> tuple[Item, str] | None:
        """Return a task and the name of its variable.

        Returns None if no task has this key.
        """
        item = self.form.item(*key)
        return (item, self.variables[item.key]) if item is not None else None

    def entry(self, locator: Locator) -> tuple[Item, str] | None:
        """Return the task with the text or number that `locator` names, and its variable.

        Returns None if participants enter nothing there.
        """
        # Other selectors name something about an answer, such as its recoded value.
        if locator.selector not in _ENTRIES:
            return None
        start = (locator.column,) if locator.column else ()
        # The text field of a choice comes first, because the choice itself may be a task too.
        keys = [("text", *locator.ids), (*start, *locator.ids)]
        found = next(filter(None, (self.variable(*key) for key in keys)), None)
        return found if found is not None and not found[0].choices else None


@dataclass(frozen=True)
class Locator:
    """The address of an answer, such as `q://QID1#2/SelectableChoice/3/4`, in a survey's logic."""

    # This example has question "QID1", column "2" of a side-by-side table, selector
    # "SelectableChoice" and ids ("3", "4").

    question: str
    column: str
    selector: str
    ids: tuple[str, ...]


def read_locator(text: str) -> Locator | None:
    """Parse the address of a question's answer.

    Returns None if the text is no such address.
    """
    scheme, found, path = unquote(text).partition("://")
    parts = path.split("/")
    if scheme != "q" or not found or not parts[0]:
        return None
    question, _, column = parts[0].partition("#")
    return Locator(question, column, parts[1] if len(parts) > 1 else "", tuple(parts[2:]))


def compare_texts(value: str, operator_name: str, operand: str) -> bool | None:
    """Compare two texts as the survey would.

    Returns None if the operator is unknown.
    """
    if operator_name == "NotEmpty":
        return bool(value)
    if operator_name == "Contains":
        return operand in value
    if operator_name not in SYMBOLS:
        return None
    first, second = as_number(value), as_number(operand)
    compare = SYMBOLS[operator_name][1]
    if first is None or second is None:
        return operator_name == "EqualTo" and value == operand
    return compare(first, second)


class LogicReader:
    """A reader of the display, skip and branch logic of a survey."""

    def __init__(
        self,
        find_asked: Callable[[str], Sequence[PlacedQuestion] | None],
        compare_field: Callable[[str, str, str], Condition | None],
        note: Callable[[str, str], None],
    ) -> None:
        # `find_asked` returns where a question was asked before, or None if the workbook cannot
        # ask it. `compare_field` returns the condition on an embedded data field.
        self._find_asked, self._compare_field, self._note = find_asked, compare_field, note

    def read_logic(self, logic: object, where: str) -> Condition | None:
        """Return the condition that the survey's display or branch logic states.

        Returns None if no part of the logic is known.
        """
        # Unknown parts are left out. A note names the place of each.
        groups: list[list[Condition | None]] = []
        for _, logic_set in _iterate_numbered(logic):
            is_and = as_text(logic_set.get("Type")) == "AndIf"
            condition = self._read_set(logic_set, where)
            if is_and and groups:
                groups[-1].append(condition)
            else:
                groups.append([condition])
        return _join_groups(groups)

    def _read_set(self, logic_set: Mapping[str, Value], where: str) -> Condition | None:
        # "and" binds more strongly than "or".
        groups: list[list[Condition | None]] = []
        for _, expression in _iterate_numbered(logic_set):
            condition = self.read_expression(expression, where)
            # The export writes "Conjuction".
            joined = as_text(expression.get("Conjuction") or expression.get("Conjunction"))
            if groups and joined.lower() != "or":
                groups[-1].append(condition)
            else:
                groups.append([condition])
        return _join_groups(groups)

    def read_expression(
        self, expression: Mapping[str, Value], where: str, *, operator_key: str = "Operator"
    ) -> Condition | None:
        """Return the condition that one entry of the survey's logic states.

        Returns None and adds a note if the condition is unknown.
        """
        name = as_text(expression.get(operator_key))
        is_negative, name = name in _NEGATIVE, _NEGATIVE.get(name, name)
        operand = as_text(expression.get("RightOperand", expression.get("Value"))).strip()
        kind = as_text(expression.get("LogicType")) or "Question"
        condition: Condition | None = None
        if len(operand) <= _LONGEST_OPERAND and "${" not in operand:
            if kind == "EmbeddedField":
                field = as_text(expression.get("LeftOperand")).removeprefix("e://Field/")
                condition = self._compare_field(field, name, operand)
            elif kind == "Question":
                condition = self._read_question(expression, name, operand, where)
        if condition is None:
            # Its parts are HTML elements with no space between them.
            html = as_text(expression.get("Description")).replace("<", " <")
            told = make_plain(html, in_one_line=True).text
            subject = as_text(expression.get("ChoiceLocator") or expression.get("LeftOperand"))
            told = told or " ".join(filter(None, (kind, subject, name, operand)))
            self._note(
                where, f"this part of its condition, which cannot be checked: {shorten(told, 160)}"
            )
            return None
        return negate(condition) if is_negative else condition

    def _read_question(
        self, expression: Mapping[str, Value], name: str, operand: str, where: str
    ) -> Condition | None:
        text = as_text(expression.get("ChoiceLocator") or expression.get("LeftOperand"))
        locator = read_locator(text)
        if locator is None:
            return None
        places = self._find_asked(locator.question)
        if places is None:
            return None
        if not places:
            what = f"its condition uses {locator.question}, which is not asked before it"
            self._note(where, f"{what}; it counts as not answered")
            return False
        ignore_case = bool(expression.get("IgnoreCase"))
        found = [self._condition_at(place, locator, name, operand, ignore_case) for place in places]
        if any(condition is None for condition in found):
            return None
        return any_of(*(condition for condition in found if condition is not None))

    def _condition_at(
        self, asked: PlacedQuestion, locator: Locator, name: str, operand: str, ignore_case: bool
    ) -> Condition | None:
        # Returns None if the workbook cannot express the condition.
        entry = asked.entry(locator)
        if name == "NotEmpty" and entry is not None and entry[0].follows is not None:
            # The text field of a choice is only shown to those who made the choice.
            key, choice = entry[0].follows
            chosen = asked.variable(*key)
            return _equals_choice(*chosen, choice) if chosen else None
        if name in ("Displayed", "NotEmpty"):
            return asked.condition  # whoever is asked answers
        start = (locator.column,) if locator.column else ()
        if name == "Selected":
            return _selection_condition(asked, start, locator)
        if locator.selector == "SelectedChoicesCount":
            return _count_condition(asked, name, operand)
        if locator.selector in ("SelectedAnswerRecode", "SelectedChoicesRecode"):
            return _recoded_value_condition(asked, (*start, *locator.ids), name, operand)
        return _entry_condition(*entry, name, operand, ignore_case) if entry else None


def _iterate_numbered(value: object) -> Iterator[tuple[str, Mapping[str, Value]]]:
    for key, entry in in_order(value):
        if as_number(key) is not None and isinstance(entry, dict):
            yield key, as_mapping(entry)


def _join_groups(groups: Sequence[Sequence[Condition | None]]) -> Condition | None:
    # Conditions in a group are joined by "and", and the groups by "or". Unknown conditions are
    # ignored.
    known = [[each for each in group if each is not None] for group in groups]
    joined = [all_of(*group) for group in known if group]
    return any_of(*joined) if joined else None


def _equals_choice(item: Item, variable: str, choice: str) -> Condition | None:
    literal = item.literal_of(choice)
    if literal is None:
        return None
    symbol, text = literal
    return ValueComparison(f"{variable} == {text}" if symbol == "==" else f"{text} in {variable}")


def _selection_condition(
    asked: PlacedQuestion, start: tuple[str, ...], locator: Locator
) -> Condition | None:
    # The condition holds if a choice or a cell of a matrix was selected.
    ids = (*start, *locator.ids)
    if not locator.ids:
        return None
    # In a matrix, a scale point and a statement may have the same id, so that a scale point is not
    # taken for the statement of its id.
    is_scale_point = locator.selector == "SelectableAnswer" and len(locator.ids) == 1
    if cell := asked.variable(*ids):  # a task of its own, with yes or no
        item, variable = cell
        if YES in item.choices:
            return _equals_choice(item, variable, YES)
        if not is_scale_point:
            return None
    if is_scale_point:
        return _any_selection_condition(asked, start, locator.ids[0])
    found = asked.variable(*ids[:-1])
    return _equals_choice(*found, ids[-1]) if found else None


def _any_selection_condition(
    asked: PlacedQuestion, start: tuple[str, ...], answer: str
) -> Condition | None:
    # The condition holds if at least one statement got the scale point with the id `answer`.
    found: list[Condition | None] = []
    for item in asked.form.items:
        if item.key[: len(start)] != start or item.key[:1] == ("text",):
            continue
        variable = asked.variables[item.key]
        if item.key[len(start) + 1 :] == (answer,) and YES in item.choices:
            found.append(_equals_choice(item, variable, YES))
        elif len(item.key) == len(start) + 1:
            found.append(_equals_choice(item, variable, answer))
    known = [condition for condition in found if condition is not None]
    return any_of(*known) if known and len(known) == len(found) else None


def _count_condition(asked: PlacedQuestion, name: str, operand: str) -> Condition | None:
    # Compares the number of selected choices with `operand`.
    number = as_number(operand)
    each = [
        f'(1 if {asked.variables[item.key]} == "{YES}" else 0)'
        for item in asked.form.items
        if YES in item.choices and not item.follows
    ]
    if not each or number is None or name not in SYMBOLS:
        return None
    expression = f"{' + '.join(each)} {SYMBOLS[name][0]} {number_text(number)}"
    return ValueComparison(expression, needs_answer=False)


def _recoded_value_condition(
    asked: PlacedQuestion, ids: tuple[str, ...], name: str, operand: str
) -> Condition | None:
    # The recoded value is the number that the survey stores for a choice.
    found = asked.variable(*ids)
    if found is None:
        return None
    item, variable = found
    holds = [
        id for id in item.choices if compare_texts(asked.form.recodes.get(id, id), name, operand)
    ]
    known = [
        condition for id in holds if (condition := _equals_choice(item, variable, id)) is not None
    ]
    return any_of(*known) if len(known) == len(holds) else None


def _entry_condition(
    item: Item, variable: str, name: str, operand: str, ignore_case: bool
) -> Condition | None:
    # Compares a participant's number or text with `operand`.
    number = as_number(operand)
    if item.bounds is not None or item.var_type in ("integer", "float"):
        if number is None or name not in SYMBOLS:
            return None
        return ValueComparison(f"{variable} {SYMBOLS[name][0]} {number_text(number)}")
    if ignore_case:
        variable, operand = f"lower({variable})", operand.lower()
    if name == "EqualTo":
        return ValueComparison(f"{variable} == {text_literal(operand)}")
    if name == "Contains":
        return ValueComparison(f"{text_literal(operand)} in {variable}")
    return None
