"""The expression language of a workbook, for computed values and placeholders.

Only listed kinds of syntax are allowed, and no code is executed. `value | round(1)` means
`round(value, 1)`. `others(x)` leaves out the participant for whom the value is computed, and
`own(x)` within an aggregate is the value of this participant.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from keyword import iskeyword
from typing import Any, TypeGuard

from jinja2.filters import do_title

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.prompts import keep_source
from folkmoot.hints import did_you_mean, shorten
from folkmoot.provenance import SourcedText, derive_number
from folkmoot.studies.workbook.answers import BROKEN
from folkmoot.studies.workbook.config import Computed, Scalar

# Maximum length of an expression, in characters.
MAX_EXPRESSION = 2_000
# Maximum depth of aggregates within each other.
MAX_NESTED = 2
MAX_VALUE = 1e15
# Maximum of an intermediate value. The product of two such values is still a finite float.
MAX_BETWEEN = 1e150
# Maximum number of characters that a text, or an expression for one participant, may process.
MAX_WORK = 2_000_000
# Maximum number of participants of a session if an aggregate uses `own`. It has other values for
# each participant, so the work grows with the square of the number.
MAX_OWN = 2_000
NAMESPACES = ("constant", "treatment", "role")
AGGREGATES = ("sum", "mean", "min", "max", "count")

# `math.pow` returns a float or raises OverflowError. `**` could compute an integer without end.
_ARITHMETIC: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_EQUALITY: Mapping[type[ast.AST], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COMPARED: Mapping[type[ast.AST], Callable[..., bool]] = {
    **_EQUALITY,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
# Operators of Python that the language lacks.
_OTHER_SIGNS: Mapping[type[ast.AST], str] = {
    **{ast.BitXor: "^", ast.BitAnd: "&", ast.Invert: "~", ast.LShift: "<<", ast.RShift: ">>"},
    **{ast.MatMult: "@", ast.Is: "is", ast.IsNot: "is not"},
}
# What to write in place of the signs of other languages.
_REPLACEMENTS: Mapping[str, str] = {
    **{"^": "write ** for a power", "&": "write and", "&&": "write and", "||": "write or"},
    **{"=": "write == to compare", "<>": "write !=", "!": "write not", "~": "write not"},
    **{"is": "write ==", "is not": "write !="},
}
_FOREIGN_SIGN = re.compile(r"&&|\|\||<>|(?<![=!<>])=(?!=)|!(?!=)")
_NODES = (
    *(ast.Name, ast.Attribute, ast.Load, ast.Constant, ast.Call, ast.UnaryOp, ast.BinOp, ast.Not),
    *(ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.IfExp, *_ARITHMETIC, *_COMPARED),
)
# The digits of `round` are limited, since 10 to a large power would take long.
_NUMERIC: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "round": lambda x, digits=0: round(x, max(-10, min(10, int(digits)))),
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "int": int,
    "float": float,
    "min": min,
    "max": max,
    "own": lambda x: x,
}
_OF_TEXTS: Mapping[str, Callable[..., Any]] = {
    "upper": keep_source(str.upper),
    "lower": keep_source(str.lower),
    "capitalize": keep_source(str.capitalize),
    "title": keep_source(do_title),
    "trim": keep_source(str.strip),
}
FUNCTIONS = (*_NUMERIC, *_OF_TEXTS)
_WORD = re.compile(r"[^\W\d]\w*")
# A text in quotes, which may hold a "#", or a comment.
_TEXT_OR_COMMENT = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|#.*""")
# Words of Python that belong to the language.
KEYWORDS = ("and", "or", "not", "if", "else", "in", "True", "False")
_MOST_ARGUMENTS = {"min": 20, "max": 20, "round": 2}
# Number types without a source.
_PLAIN = frozenset({int, float})
# The errors that an evaluation can raise.
FAILURES = (ArithmeticError, TypeError, ValueError, RecursionError)


class ExpressionProblem(ValueError):
    """Raised for an expression or a text that cannot be used."""

    # The message is for the researcher. `hint` says how to correct the text.

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _Absent(Exception):
    def __init__(self, detail: str, reason: str = "not_computable") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class MissingValue(SourcedText):
    """The text that a prompt shows for a missing value."""

    # A condition that needs a missing value is missing itself, also with `!=` and `not`, and a
    # missing condition does not hold. Only a comparison with the text itself asks whether a value
    # is missing. Arithmetic and functions return it unchanged. It has no source, because no speaker
    # wrote the text.

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class EvaluationContext:
    """The names and values that expressions can use."""

    participants: Sequence[str]
    personal: frozenset[str]
    shared: frozenset[str]
    constants: Mapping[str, object]
    # Called with a name and a participant (None for a value of the session). Returns Missing if an
    # expected value is missing, and None if the participant was never asked.
    value: Callable[[str, str | None], Scalar | Missing | None]


# --- reading -----------------------------------------------------------------------------------


# The size suits a very long workbook. Parsing a text takes a hundred times as long as using it.
@lru_cache(maxsize=32_768)
def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises ExpressionProblem if the expression is not allowed.
    """
    if len(text) > MAX_EXPRESSION:
        raise ExpressionProblem(f"longer than {MAX_EXPRESSION:,} characters", "split it in two")
    # Spreadsheet users often start an expression with "=".
    lines = text.strip().lstrip("=").strip().splitlines()
    source = " ".join(map(_remove_comment, lines)).strip()
    try:
        tree = _Pipes().visit(ast.parse(source, mode="eval").body)
        _check(tree)
        _check_fixed(tree)
    except ExpressionProblem:
        raise
    except (RecursionError, MemoryError) as error:
        raise ExpressionProblem("nested too deeply", "split it in two") from error
    except (SyntaxError, ValueError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else "it is not an expression"
        reserved = [
            word for word in _WORD.findall(source) if iskeyword(word) and word not in KEYWORDS
        ]
        foreign = _FOREIGN_SIGN.search(_TEXT_OR_COMMENT.sub("", source))
        hint = _REPLACEMENTS[foreign[0]] if foreign else ""
        if reserved:
            hint = f"{reserved[0]} is a reserved word of Python; choose another name"
        raise ExpressionProblem(detail, hint or "e.g. endowment - give + total / 4") from error
    assert isinstance(tree, ast.expr)
    return tree


def _remove_comment(line: str) -> str:
    # A comment ends at the end of its line. The lines are joined, so it would hide those below.
    return _TEXT_OR_COMMENT.sub(lambda match: "" if match[0][0] == "#" else match[0], line)


class _Pipes(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = node.left, node.right
        arguments, keywords = list[ast.expr](), list[ast.keyword]()
        if not isinstance(node.op, ast.BitOr):
            self.generic_visit(node)
            return node
        # Jinja reads `a + b | round` as a + round(b), and Python as round(a + b). Refuse it, so
        # that no reader takes one for the other. A sum within parentheses starts after the whole
        # node.
        is_ambiguous = isinstance(left, ast.BinOp) and not isinstance(left.op, ast.BitOr)
        if is_ambiguous and left.col_offset == node.col_offset:
            left_text = shorten(ast.unparse(left), 40)
            hint = f"write ({left_text}) | … for all of it"
            raise ExpressionProblem(f"{left_text} | … can be read in two ways", hint)
        if isinstance(right, ast.Call):
            arguments, keywords, right = right.args, right.keywords, right.func
        if not isinstance(right, ast.Name):
            raise ExpressionProblem("a function must follow |", "e.g. payoff | round(1)")
        return ast.Call(right, [self.visit(left), *map(self.visit, arguments)], keywords)


def _check(node: ast.AST, depth: int = 0, *, inside: bool = False) -> None:
    # `depth` is the number of aggregates such as `sum(x)` around the node.
    if not isinstance(node, _NODES):
        sign = _OTHER_SIGNS.get(type(node), "")
        message = f"{sign or shorten(ast.unparse(node), 40)} is not allowed"
        hint = _REPLACEMENTS.get(sign, "use numbers, names, + - * / and functions")
        raise ExpressionProblem(message, hint)
    if isinstance(node, ast.Constant):
        _check_constant(node.value)
    elif isinstance(node, ast.Attribute):
        if not (isinstance(node.value, ast.Name) and node.value.id in NAMESPACES):
            hint = "only constant.…, treatment.… and role.… have attributes"
            raise ExpressionProblem(f"`.{node.attr}` is not allowed here", hint)
    elif isinstance(node, ast.Call):
        _check_call(node)
        if _function_name(node) == "others" and not inside:
            hint = "write sum(others(…)) or mean(others(…))"
            raise ExpressionProblem("others(…) must be within an aggregate", hint)
        if _is_own(node) and depth > 1:
            raise ExpressionProblem(
                "own(…) is within two aggregates", "compute the inner one first"
            )
    is_aggregate = _is_aggregate(node)
    if depth + is_aggregate > MAX_NESTED:
        raise ExpressionProblem("aggregates are nested too deeply", "compute the inner one first")
    for child in ast.iter_child_nodes(node):
        _check(child, depth + is_aggregate, inside=is_aggregate)


def _check_constant(value: object) -> None:
    if isinstance(value, str):
        if len(value) > 200 or BROKEN.search(value):
            raise ExpressionProblem("a text is too long or broken", "compare with a shorter one")
    elif not isinstance(value, (bool, int, float)) or not abs(value) <= MAX_VALUE:
        raise ExpressionProblem(f"{str(value)[:30]} is not allowed", "use a smaller number")


def _check_call(node: ast.Call) -> None:
    name = _function_name(node)
    known_functions = sorted({*AGGREGATES, *FUNCTIONS, "others"})
    if name not in known_functions:
        hint = did_you_mean(name, known_functions, f"there are {', '.join(known_functions)}")
        raise ExpressionProblem(f"there is no function {name or 'of that kind'}", hint)
    if node.keywords or not node.args or any(isinstance(arg, ast.Starred) for arg in node.args):
        raise ExpressionProblem(f"{name} needs plain arguments", f"e.g. {name}(give)")
    max_arguments = _MOST_ARGUMENTS.get(name, 1)
    if len(node.args) > max_arguments:
        message = f"{name} takes {max_arguments} argument{'s' * (max_arguments > 1)}"
        raise ExpressionProblem(message, f"{name}(give)")


def _check_fixed(node: ast.expr) -> None:
    # A constant part such as `9 ** 9 ** 9` cannot be calculated.
    value: Scalar | Missing
    if _is_fixed(node):
        value = _calculate_value(node, Evaluator(EMPTY_CONTEXT), None)
    elif _divides_by_zero(node):
        value = Missing("not_computable", "division by zero")
    else:
        for child in operands_of(node):
            _check_fixed(child)
        return
    if isinstance(value, Missing):
        message = f"{shorten(ast.unparse(node), 40)} has no value: {value.detail}"
        hint = "use smaller numbers"
        if value.detail == "division by zero":
            hint = "divide by another number"
        elif any(isinstance(getattr(part, "value", None), str) for part in ast.walk(node)):
            hint = "only numbers can be calculated with; texts are written side by side"
        raise ExpressionProblem(message, hint)


def _is_fixed(node: ast.expr) -> bool:
    return not names_used(node) and not any(map(_is_aggregate, ast.walk(node)))


def _divides_by_zero(node: ast.expr) -> bool:
    # The dividend may be known only in a run.
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _DIVISIONS):
        return False
    divisor = node.right
    return _is_fixed(divisor) and _calculate_value(divisor, Evaluator(EMPTY_CONTEXT), None) == 0


def _function_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return ""


def _is_aggregate(node: ast.AST) -> bool:
    # `min` and `max` are aggregates only with a single argument.
    return isinstance(node, ast.Call) and _function_name(node) in AGGREGATES and len(node.args) == 1


def _is_own(node: ast.AST) -> TypeGuard[ast.Call]:
    return _function_name(node) == "own"


def counted_names(tree: ast.expr) -> list[str]:
    """Return each name `x` in a `count(x)` or `count(others(x))` of an expression."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _function_name(node) == "count":
            (inner,) = node.args
            if isinstance(inner, ast.Call) and _function_name(inner) == "others":
                (inner,) = inner.args
            if isinstance(inner, ast.Name):
                found.append(inner.id)
    return found


def has_aggregate(node: ast.expr) -> bool:
    """Return whether an expression contains an aggregate such as `sum(x)`."""
    return any(map(_is_aggregate, ast.walk(node)))


def names_used(node: ast.expr, *, outside_only: bool = False) -> set[str]:
    """Return the names of the values that an expression uses.

    `outside_only`: True to leave out names inside aggregates such as `sum(x)`, but for those inside
    `own`, which are values of the participant for whom the expression is computed.
    """
    # `treatment.label` is one name.
    if isinstance(node, (ast.Name, ast.Attribute)):
        return {name_of_node(node)}
    names: set[str] = set()
    parts = operands_of(node)
    if outside_only and _is_aggregate(node):
        parts = [part for part in ast.walk(node) if _is_own(part)]
    for part in parts:
        names |= names_used(part, outside_only=outside_only)
    return names


def _names_of_member(node: ast.expr) -> set[str]:
    # The names that the argument of an aggregate uses of each participant of the session.
    if _is_own(node) or _is_aggregate(node):
        return set()
    if isinstance(node, (ast.Name, ast.Attribute)):
        return {name_of_node(node)}
    return set().union(*map(_names_of_member, operands_of(node)))


def name_of_node(node: ast.Name | ast.Attribute) -> str:
    """Return the name of a value as an expression writes it, such as `treatment.label`."""
    if isinstance(node, ast.Name):
        return node.id
    assert isinstance(node.value, ast.Name)
    return f"{node.value.id}.{node.attr}"


def operands_of(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that are expressions too."""
    if isinstance(node, ast.Call):
        return node.args
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


# --- calculating -------------------------------------------------------------------------------


def evaluate_for(
    expression: str, context: EvaluationContext, participants: Sequence[str | None]
) -> list[Scalar | Missing]:
    """Return the values of an expression for several participants, in the same order.

    A value is Missing with the reason if there is none.
    """
    # A participant is None for a value of the session. Numbers are finite. True and False are
    # returned as 1 and 0.
    tree = parse_expression(expression)
    # One evaluator for all participants, since it caches the columns of aggregates.
    evaluator = Evaluator(context)
    return [_calculate_value(tree, evaluator, participant) for participant in participants]


def _calculate_value(
    tree: ast.expr, evaluator: Evaluator, participant: str | None
) -> Scalar | Missing:
    try:
        result = evaluator.calculate(tree, participant)
    except _Absent as error:
        return Missing(error.reason, error.detail)
    except ZeroDivisionError:
        return Missing("not_computable", "division by zero")
    except FAILURES as error:
        return Missing("not_computable", shorten(str(error), 200))
    if isinstance(result, bool):
        return int(result)
    if isinstance(result, str):
        return str(result)
    if not isinstance(result, (int, float)) or not abs(result) <= MAX_VALUE:
        return Missing("not_computable", "the result is not a finite number")
    return result


@dataclass(frozen=True)
class _Column:
    # The values of the argument `x` in `sum(x)`, by participant.
    values: Mapping[str, Any]
    # The exceptions of the participants for whom the argument has no value.
    failures: Mapping[str, Exception]


class Evaluator:
    """An evaluator of expressions, which takes the values from one context."""

    def __init__(self, context: EvaluationContext) -> None:
        self.context = context
        self._work = MAX_WORK * (1 + len(context.participants))
        self._columns: dict[ast.AST, _Column] = {}
        # (aggregate, participant who is left out) → value.
        self._combined: dict[tuple[ast.AST, str | None], Any] = {}
        # The participant for whom an aggregate is computed, and the columns of aggregates with
        # `own`, which are for this participant alone.
        self._owner: str | None = None
        self._owned_columns: dict[ast.AST, _Column] = {}
        self._is_within = False

    def calculate(self, node: ast.expr, participant: str | None = None) -> Any:
        """Return the value of an expression for a participant.

        Raises `_Absent` if a value is missing.
        Raises ArithmeticError, TypeError, ValueError or RecursionError if the calculation fails.
        """
        return self._BY_KIND[type(node)](self, node, participant)

    def _text_or_number(self, node: ast.Constant, _participant: str | None) -> Any:
        return SourcedText(node.value) if isinstance(node.value, str) else node.value

    def _binary(self, node: ast.BinOp, participant: str | None) -> Any:
        left = self.calculate(node.left, participant)
        return _calculate_numbers(node.op, left, self.calculate(node.right, participant))

    def _unary(self, node: ast.UnaryOp, participant: str | None) -> Any:
        value = self.calculate(node.operand, participant)
        if isinstance(node.op, ast.Not):
            return value if isinstance(value, MissingValue) else not value
        return _calculate_numbers(node.op, value)

    def _if(self, node: ast.IfExp, participant: str | None) -> Any:
        branch = node.body if self.calculate(node.test, participant) else node.orelse
        return self.calculate(branch, participant)

    def _look_up(self, node: ast.Name | ast.Attribute, participant: str | None) -> Any:
        name = name_of_node(node)
        if name in self.context.constants:
            return self.context.constants[name]
        is_shared = name in self.context.shared
        value = self.context.value(name, None if is_shared else participant)
        if value is None:
            raise _Absent(f"{name} was not asked", "not_asked")
        if isinstance(value, Missing):
            holder = "the session" if is_shared else str(participant)
            reason = "not_asked" if value.reason == "not_asked" else "not_computable"
            raise _Absent(f"{name} of {holder}: {value.reason}", reason)
        return value

    def _choose(self, node: ast.BoolOp, participant: str | None) -> Any:
        value: Any = None
        absent: MissingValue | None = None
        for operand in node.values:
            value = self.calculate(operand, participant)
            if isinstance(value, MissingValue):
                absent = value
            elif bool(value) == isinstance(node.op, ast.Or):
                # It decides alone, whatever the missing value is.
                return value
        return value if absent is None else absent

    def _compare(self, node: ast.Compare, participant: str | None) -> Any:
        left, result = self.calculate(node.left, participant), True
        for kind, comparator in zip(map(type, node.ops), node.comparators, strict=True):
            right = self.calculate(comparator, participant)
            # A search takes time in proportion to the texts, so it counts as work.
            if kind in (ast.In, ast.NotIn):
                self._spend(left, right)
            result = _compare_values(kind, left, right)
            if not result:
                break
            left = right
        return result

    def _call(self, node: ast.Call, participant: str | None) -> Any:
        name = _function_name(node)
        if _is_aggregate(node):
            return self._aggregate(node, participant)
        if _is_own(node) and self._is_within:
            participant = self._owner
        arguments = [self.calculate(argument, participant) for argument in node.args]
        if absent := [value for value in arguments if isinstance(value, MissingValue)]:
            return absent[0]
        if name in _OF_TEXTS:
            self._spend(*arguments)
            return _OF_TEXTS[name](*arguments)
        return derive_number(_NUMERIC[name](*arguments), arguments)

    def _spend(self, *values: object) -> None:
        self._work -= sum(len(value) for value in values if isinstance(value, str))
        if self._work < 0:
            raise ValueError("the texts are too long to compute with")

    def _aggregate(self, node: ast.Call, participant: str | None) -> object:
        if not self._is_within and participant != self._owner:
            self._owner = participant
            self._owned_columns.clear()
        name, inner = _function_name(node), node.args[0]
        excludes_self = isinstance(inner, ast.Call) and _function_name(inner) == "others"
        if excludes_self:
            inner = inner.args[0]  # type: ignore[attr-defined]
        column = self._column(inner)
        excluded = participant if excludes_self else None
        # One failed value makes the aggregate fail. A sum without it would look complete.
        for member, failure in column.failures.items():
            if member != excluded:
                raise failure
        if excluded not in column.values:
            excluded = None
        elif len(column.values) == 1:
            return _combine_values(name, [])
        if inner in self._owned_columns:
            members = column.values.items()
            return _combine_values(name, [value for who, value in members if who != excluded])
        # The values for all participants are computed together, so that `others` stays linear.
        if (node, excluded) not in self._combined:
            values = [*column.values.values()]
            if excluded is None:
                self._combined[node, None] = _combine_values(name, values)
            else:
                results = _combine_without_one(name, values)
                for member, combined in zip(column.values, results, strict=True):
                    self._combined[node, member] = combined
        return self._combined[node, excluded]

    def _column(self, inner: ast.expr) -> _Column:
        for columns in (self._columns, self._owned_columns):
            if inner in columns:
                return columns[inner]
        has_own = any(map(_is_own, ast.walk(inner)))
        if has_own and len(self.context.participants) > MAX_OWN:
            raise ValueError(f"own(…) cannot compare more than {MAX_OWN:,} participants")
        was_within, self._is_within = self._is_within, True
        try:
            column = self._compute_column(inner)
        finally:
            self._is_within = was_within
        (self._owned_columns if has_own else self._columns)[inner] = column
        return column

    def _compute_column(self, inner: ast.expr) -> _Column:
        personal = _names_of_member(inner) & self.context.personal
        values: dict[str, Any] = {}
        failures: dict[str, Exception] = {}
        for member in self.context.participants:
            # A participant who was never asked is left out. A missing answer is a failure.
            if any(self.context.value(name, member) is None for name in personal):
                continue
            try:
                values[member] = self.calculate(inner, member)
            except (_Absent, *FAILURES) as error:
                failures[member] = error
        return _Column(values, failures)

    _BY_KIND: Mapping[type[ast.AST], Callable[..., Any]] = {
        ast.Name: _look_up,
        ast.Attribute: _look_up,
        ast.Constant: _text_or_number,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _choose,
        ast.Compare: _compare,
        ast.IfExp: _if,
        ast.Call: _call,
    }


EMPTY_CONTEXT = EvaluationContext((), frozenset(), frozenset(), {}, lambda _name, _who: None)


def _calculate_numbers(kind: ast.AST, *values: Any) -> Any:
    # Texts are refused, because `"%999999999d" % 1` would fill the memory.
    is_plain = _PLAIN.issuperset(map(type, values))
    if not is_plain and (absent := [value for value in values if isinstance(value, MissingValue)]):
        return absent[0]
    if not all(isinstance(value, (int, float)) and abs(value) <= MAX_BETWEEN for value in values):
        raise ArithmeticError("only numbers of moderate size can be calculated with")
    result = _ARITHMETIC[type(kind)](*values)
    return result if is_plain else derive_number(result, values)


def _compare_values(kind: type[ast.AST], left: Any, right: Any) -> Any:
    absent = [value for value in (left, right) if isinstance(value, MissingValue)]
    asks_for_absence = len(absent) == 1 and kind in _EQUALITY and left == right
    return absent[0] if absent and not asks_for_absence else _COMPARED[kind](left, right)


def _combine_values(name: str, values: Sequence[Any]) -> Any:
    if name == "count":
        return sum(bool(value) for value in values)
    if name == "sum":
        return (
            math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)
        )
    if not values:
        raise _Absent(f"no participant has a value for {name}(…)")
    if name == "mean":
        return math.fsum(values) / len(values)
    return min(values) if name == "min" else max(values)


# Each result is equal to `_combine_values` of the other values, bit for bit.
def _combine_without_one(name: str, values: Sequence[Any]) -> list[Any]:
    # For each value, the aggregate over all others: the sums of 1, 2, 3 are 5, 4, 3.
    if name in ("min", "max"):
        choose = min if name == "min" else max
        prefix_results = list(accumulate(values, choose))
        suffix_results = list(
            accumulate(reversed(values), lambda last, value: choose(value, last))
        )[::-1]
        middle = (
            choose(prefix_results[i - 1], suffix_results[i + 1]) for i in range(1, len(values) - 1)
        )
        return [suffix_results[1], *middle, prefix_results[-2]]
    if name == "count":
        true_count = _combine_values(name, values)
        return [true_count - bool(value) for value in values]
    # It raises for values that cannot be added.
    total = _combine_values(name, values)
    floats = sum(isinstance(value, float) for value in values)
    if name == "sum" and not floats:
        return [total - value for value in values]
    # Fractions make the subtraction exact. Floats would differ in the last bit from a sum without
    # it.
    fractions = [Fraction(float(value)) for value in values]
    total_fraction = sum(fractions)
    rests = [float(total_fraction - fraction) for fraction in fractions]
    if name == "mean":
        return [rest / (len(values) - 1) for rest in rests]
    # A sum of integers alone is an integer, so leaving out the only float gives an integer.
    integer_sum = sum(value for value in values if not isinstance(value, float))
    only_float_flags = [isinstance(value, float) and floats == 1 for value in values]
    return [
        integer_sum if is_only_float else rest
        for is_only_float, rest in zip(only_float_flags, rests, strict=True)
    ]


def in_order(computed: Sequence[Computed]) -> list[Computed]:
    """Return computed values in order, each after the values that it uses.

    Raises ExpressionProblem if computed values depend on each other in a cycle.
    """
    by_name = {item.name: item for item in computed}
    dependencies = {
        name: sorted(_names_of(item) & by_name.keys()) for name, item in by_name.items()
    }
    try:
        return [by_name[name] for name in TopologicalSorter(dependencies).static_order()]
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise ExpressionProblem(
            f"computed values depend on each other in a circle: {shorten(cycle, 200)}",
            "break the circle",
        ) from error


def known_after(ordered: Iterable[Computed], places: Mapping[str, int]) -> dict[str, int]:
    """Return, for each computed value, the index of the task after which the value is known.

    `places`: for each variable, the index of the task that asks for the variable.

    The index is -1 for values that are known from the start.
    """
    known_places: dict[str, int] = {}
    for item in ordered:
        dependency_places = (
            known_places.get(name, places.get(name, -1)) for name in _names_of(item)
        )
        known_places[item.name] = max(dependency_places, default=-1)
    return known_places


def variables_behind(computed: Sequence[Computed]) -> dict[str, set[str]]:
    """Return, for each computed value, all names that it uses, also by other computed values."""
    found: dict[str, set[str]] = {}
    for item in in_order(computed):
        names = _names_of(item)
        found[item.name] = names.union(*(found.get(name, ()) for name in names))
    return found


def _names_of(item: Computed) -> set[str]:
    return names_used(parse_expression(item.expression))
