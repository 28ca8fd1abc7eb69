"""Find expressions that compare or calculate with values of different types."""
# An answer is a number for all participants or a text for all, so types are known before a run.

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from folkmoot.hints import did_you_mean, shorten
from folkmoot.studies.workbook.answers import ListedOptions, NumberRange, Options
from folkmoot.studies.workbook.config import Scalar, Task
from folkmoot.studies.workbook.language.expressions import (
    AGGREGATES,
    ExpressionProblem,
    name_of_node,
    operands_of,
)

# Functions that take only numbers. `int` and `float` also read a text such as "5".
_OF_NUMBERS = ("abs", "round", "floor", "ceil", "sqrt", "sum", "mean")
_READERS = ("int", "float")
_NUMBER_TEXT = re.compile(r"-?\d+(?:\.\d+)?")
# A text that a prompt shows for a missing value, and no text at all. Any value may be one of them.
_ALWAYS_POSSIBLE = ("", "not available")


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a value: number or text."""

    is_number: bool
    # The texts that the value can be. None: any text.
    texts: frozenset[str] | None = None
    # How the researcher makes a number of a text.
    remedy: str = ""


NUMBER = ValueType(is_number=True)
TEXT = ValueType(is_number=False)


def combine_types(types: Iterable[ValueType | None]) -> ValueType | None:
    """Return the type of a value that has one of several types.

    Returns None if the type is unknown, for example because it is a number or a text.
    """
    found = list(types)
    first = found[0] if found else None
    if first is None or any(kind is None or kind.is_number != first.is_number for kind in found):
        return None
    texts: frozenset[str] | None = frozenset()
    remedies = list[str]()
    for kind in found:
        assert kind is not None
        texts = None if texts is None or kind.texts is None else texts | kind.texts
        remedies.append(kind.remedy)
    return first if first.is_number else ValueType(False, texts, next(filter(None, remedies), ""))


def type_of_values(values: Iterable[Scalar]) -> ValueType | None:
    """Return the type of a value that is one of `values`.

    Returns None for numbers mixed with texts, and if there are no values.
    """
    return combine_types(TEXT if isinstance(value, str) else NUMBER for value in values)


def answer_type(task: Task, options: Options | None) -> ValueType:
    """Return the type of the answers to a task with these options."""
    if task.var_type in ("integer", "float") or isinstance(options, NumberRange):
        return NUMBER
    cell = task.at.get("var_type", "")
    place = f" in {cell}" if cell else f" of {task.task_id}"
    remedy = f"write integer or float as var_type{place}, so that {task.var_name} is a number"
    if not isinstance(options, ListedOptions):
        return ValueType(False, None, remedy)
    if not all(map(_NUMBER_TEXT.fullmatch, options.options)):
        remedy = ""
    # Without validation, a reply in other words is an answer too.
    texts = frozenset(options.options) if task.validate_response else None
    return ValueType(False, texts, remedy)


def type_problems(
    tree: ast.expr, types: Mapping[str, ValueType | None]
) -> tuple[ValueType | None, list[ExpressionProblem]]:
    """Return the type of an expression, and the problems with the types of its parts.

    `types`: the type of each name. A name that is missing here has an unknown type.
    """
    checker = _TypeChecker(types)
    kind = checker.check(tree)
    # An expression with a problem has no type, so that its problem is reported once.
    return (None if checker.problems else kind), checker.problems


class _ComparedPair(NamedTuple):
    # Two neighbouring sides of a comparison, with their types.
    operator: ast.cmpop
    left: ast.expr
    right: ast.expr
    left_type: ValueType
    right_type: ValueType
    # The end of a message, such as "so give > 3 cannot be calculated".
    effect: str


class _TypeChecker:
    def __init__(self, types: Mapping[str, ValueType | None]) -> None:
        self.types = types
        self.problems: list[ExpressionProblem] = []

    def check(self, node: ast.expr) -> ValueType | None:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return ValueType(False, frozenset({node.value}))
            return NUMBER
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.types.get(name_of_node(node))
        kinds = [self.check(operand) for operand in operands_of(node)]
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for i, operator in enumerate(node.ops):
                left, right = kinds[i : i + 2]
                if left is not None and right is not None:
                    effect = f"so {_shorten_node(node)} {_effect(operator)}"
                    pair = _ComparedPair(operator, sides[i], sides[i + 1], left, right, effect)
                    self._check_comparison(pair)
            return NUMBER
        if isinstance(node, ast.BoolOp):
            return combine_types(kinds)
        if isinstance(node, ast.IfExp):
            # The operands are in the order of the syntax tree: test, body, orelse.
            return combine_types(kinds[1:])
        if isinstance(node, ast.Call):
            return self._check_call(node, kinds)
        if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            self._check_numbers(node, operands_of(node), kinds)
        return NUMBER

    def _check_call(self, node: ast.Call, kinds: list[ValueType | None]) -> ValueType | None:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name in _OF_NUMBERS:
            self._check_numbers(node, node.args, kinds)
            return NUMBER
        if name in _READERS or name == "count":
            return NUMBER
        if name in (*AGGREGATES, "own", "others"):
            # `min` and `max` of texts are texts.
            return combine_types(kinds)
        return TEXT

    def _check_numbers(
        self, node: ast.expr, operands: list[ast.expr], kinds: list[ValueType | None]
    ) -> None:
        for operand, kind in zip(operands, kinds, strict=True):
            if kind is not None and not kind.is_number:
                effect = f"so {_shorten_node(node)} cannot be calculated"
                message = f"{_shorten_node(operand)} is a text, {effect}"
                hint = kind.remedy or "only numbers can be calculated with"
                self.problems.append(ExpressionProblem(message, hint))
                return

    def _check_comparison(self, pair: _ComparedPair) -> None:
        if pair.left_type.is_number != pair.right_type.is_number:
            self._report_mixed(pair)
        elif isinstance(pair.operator, (ast.Eq, ast.NotEq)) and not pair.left_type.is_number:
            self._check_texts(pair)

    def _report_mixed(self, pair: _ComparedPair) -> None:
        sides = (pair.left, pair.right)
        number_side, text_side = sides if pair.left_type.is_number else sides[::-1]
        text = pair.right_type if pair.left_type.is_number else pair.left_type
        if text.texts and text.texts <= {*_ALWAYS_POSSIBLE}:
            return
        hint = text.remedy
        if isinstance(text_side, ast.Constant):
            # The quotes make a text of the number.
            text_in_quotes = str(text_side.value)
            is_number = _NUMBER_TEXT.fullmatch(text_in_quotes)
            hint = f"write {text_in_quotes} without quotes" if is_number else ""
            message = (
                f"{_shorten_node(number_side)} is a number and {_shorten_node(text_side)} is a text"
            )
        else:
            message = (
                f"{_shorten_node(text_side)} is a text and {_shorten_node(number_side)} is a number"
            )
            if not hint and isinstance(number_side, ast.Constant):
                hint = f'a text is compared with a text in quotes: "{_shorten_node(number_side)}"'
        self.problems.append(
            ExpressionProblem(
                f"{message}, {pair.effect}", hint or "compare values of the same type"
            )
        )

    def _check_texts(self, pair: _ComparedPair) -> None:
        left_texts, right_texts = pair.left_type.texts, pair.right_type.texts
        if left_texts is None or right_texts is None or left_texts & right_texts:
            return
        for side, another, possible_texts in (
            (pair.left, pair.right, right_texts),
            (pair.right, pair.left, left_texts),
        ):
            if isinstance(side, ast.Constant) and side.value not in _ALWAYS_POSSIBLE:
                texts = sorted(possible_texts)
                shown = ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "")
                hint = did_you_mean(str(side.value), texts, f"it can be {shown or 'nothing'}")
                message = f"{_shorten_node(another)} is never {_shorten_node(side)}"
                self.problems.append(ExpressionProblem(f"{message}, {pair.effect}", hint))
                return


def _effect(operator: ast.cmpop) -> str:
    if isinstance(operator, ast.Eq):
        return "is always false"
    return "is always true" if isinstance(operator, ast.NotEq) else "cannot be calculated"


def _shorten_node(node: ast.expr) -> str:
    return shorten(ast.unparse(node), 40)
