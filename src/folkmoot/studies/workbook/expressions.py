"""The language of a workbook: its computed values and what stands in its placeholders.

An expression is parsed by Python, so precedence is Python's, and calculated here node by node; only
the kinds of nodes that are listed pass, and nothing is executed. `value | round(1)` is another way
to write `round(value, 1)`. Arithmetic takes numbers of moderate size alone.

`sum(x)`, `mean(x)`, `min(x)`, `max(x)` and `count(x)` go over all participants of the session who
have the values in `x`; `sum(others(x))` over all but oneself. What an aggregate goes over is
calculated once for each participant, at any depth of nesting and however many ask for it. So the
work grows with the text of an expression times the participants.
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
from typing import Any

from jinja2.filters import do_title

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.prompts import keep_source
from folkmoot.hints import did_you_mean, shorten
from folkmoot.provenance import SourcedText, derive_number
from folkmoot.studies.workbook.answers import BROKEN
from folkmoot.studies.workbook.config import Computed, Scalar

MAX_EXPRESSION = 2_000  # characters
MAX_NESTED = 2  # aggregates within each other
MAX_VALUE = 1e15
MAX_BETWEEN = 1e150  # of a value on the way to the result
MAX_WORK = 2_000_000  # characters that a rendering, or an expression for one person, may handle
NAMESPACES = ("constant", "treatment", "role")
AGGREGATES = ("sum", "mean", "min", "max", "count")

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
_ORDER: Mapping[type[ast.AST], Callable[..., bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
_COMPARED = {**_EQUALITY, **_ORDER}
_NODES = (
    *(ast.Name, ast.Attribute, ast.Load, ast.Constant, ast.Call, ast.UnaryOp, ast.BinOp, ast.Not),
    *(ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.IfExp, *_ARITHMETIC, *_COMPARED),
)
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
_KEYWORDS = ("and", "or", "not", "if", "else", "in", "True", "False")  # of the language
_MOST_ARGUMENTS = {"min": 20, "max": 20, "round": 2}
_PLAIN = frozenset({int, float})  # numbers without a source
# What can go wrong while an expression is calculated.
FAILURES = (ArithmeticError, TypeError, ValueError, RecursionError)


class ExpressionProblem(ValueError):
    """An expression or a text cannot be used. The message is for the user; `hint` says what to
    write."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _Absent(Exception):
    """A value that the expression needs is not there."""

    def __init__(self, detail: str, reason: str = "not_computable") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class MissingValue(SourcedText):
    """A value that is not there, as a text shows it. It prints as its words. Arithmetic and
    functions leave it as it is, and it is not true. The words are ours, so they have no source."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Scene:
    """What expressions can see: participants, their values, and the constants.

    `value(name, participant)` gives a variable or a computed value: a number or text, Missing
    when there should be one and is none, None when the participant was never asked.
    """

    participants: Sequence[str]
    personal: frozenset[str]
    shared: frozenset[str]
    constants: Mapping[str, object]
    value: Callable[[str, str | None], Scalar | Missing | None]


# --- reading -----------------------------------------------------------------------------------


# As many as a very long workbook has: to parse a text takes a hundred times as long as to use it.
@lru_cache(maxsize=32_768)
def parse_expression(text: str) -> ast.expr:
    """Return the tree of an expression. Raises ExpressionProblem if it is not in the language."""
    if len(text) > MAX_EXPRESSION:
        raise ExpressionProblem(f"longer than {MAX_EXPRESSION:,} characters", "split it in two")
    written = " ".join(text.strip().lstrip("=").strip().splitlines())
    try:
        tree = _Pipes().visit(ast.parse(written, mode="eval").body)
        _check(tree)
        _check_fixed(tree)
    except ExpressionProblem:
        raise
    except (RecursionError, MemoryError) as error:
        raise ExpressionProblem("nested too deeply", "split it in two") from error
    except (SyntaxError, ValueError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else "it is not an expression"
        reserved = [w for w in _WORD.findall(written) if iskeyword(w) and w not in _KEYWORDS]
        hint = f"{reserved[0]} is a word of Python; rename what is called so" if reserved else ""
        raise ExpressionProblem(detail, hint or "e.g. endowment - give + total / 4") from error
    assert isinstance(tree, ast.expr)
    return tree


class _Pipes(ast.NodeTransformer):
    """Writes `value | round(1)` as `round(value, 1)`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = node.left, node.right
        given, named = list[ast.expr](), list[ast.keyword]()
        if not isinstance(node.op, ast.BitOr):
            self.generic_visit(node)
            return node
        # Templates read `a + b | round` as a + round(b), Python as round(a + b). Neither is taken
        # for the other: within parentheses the sum begins after the whole.
        together = isinstance(left, ast.BinOp) and not isinstance(left.op, ast.BitOr)
        if together and left.col_offset == node.col_offset:
            first = shorten(ast.unparse(left), 40)
            hint = f"write ({first}) | … for all of it"
            raise ExpressionProblem(f"{first} | … can be read in two ways", hint)
        if isinstance(right, ast.Call):
            given, named, right = right.args, right.keywords, right.func
        if not isinstance(right, ast.Name):
            raise ExpressionProblem("after | stands a function", "e.g. payoff | round(1)")
        return ast.Call(right, [self.visit(left), *map(self.visit, given)], named)


def _check(node: ast.AST, depth: int = 0, *, inside: bool = False) -> None:
    """Refuse what is not in the language. `depth`: of aggregates; `inside`: right within one."""
    if not isinstance(node, _NODES):
        what = f"{type(node).__name__} is not allowed"
        raise ExpressionProblem(what, "use numbers, names, + - * / and functions")
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
    is_aggregate = _is_aggregate(node)
    if depth + is_aggregate > MAX_NESTED:
        raise ExpressionProblem("sums within sums within sums", "compute the inner one first")
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
    known = sorted({*AGGREGATES, *FUNCTIONS, "others"})
    if name not in known:
        hint = did_you_mean(name, known, f"there are {', '.join(known)}")
        raise ExpressionProblem(f"there is no function {name or 'of that kind'}", hint)
    if node.keywords or not node.args or any(isinstance(arg, ast.Starred) for arg in node.args):
        raise ExpressionProblem(f"{name} needs plain arguments", f"e.g. {name}(give)")
    most = _MOST_ARGUMENTS.get(name, 1)
    if len(node.args) > most:
        wrong = f"{name} takes {most} argument{'s' * (most > 1)}"
        raise ExpressionProblem(wrong, f"{name}(give)")


def _check_fixed(node: ast.expr) -> None:
    """A part that is the same for everybody must have a value; `9 ** 9 ** 9` has none."""
    if not names_used(node) and not any(map(_is_aggregate, ast.walk(node))):
        value = _calculate_value(node, Evaluator(EMPTY_SCENE), None)
        if isinstance(value, Missing):
            shown = shorten(ast.unparse(node), 40)
            raise ExpressionProblem(f"{shown} has no value: {value.detail}", "use smaller numbers")
        return
    for child in _operands(node):
        _check_fixed(child)


def _function_name(node: ast.AST) -> str:
    """The name of the function that a node calls, or ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return ""


def _is_aggregate(node: ast.AST) -> bool:
    """Whether a node goes over participants: a named aggregate of one argument."""
    return isinstance(node, ast.Call) and _function_name(node) in AGGREGATES and len(node.args) == 1


def has_aggregate(node: ast.expr) -> bool:
    """Return whether an expression goes over participants anywhere."""
    return any(map(_is_aggregate, ast.walk(node)))


def names_used(node: ast.expr, *, outside_only: bool = False) -> set[str]:
    """The names of values in a tree; with `outside_only` those that no aggregate goes over. An
    attribute is a name with a dot: `treatment.label`."""
    if outside_only and _is_aggregate(node):
        return set()
    if isinstance(node, (ast.Name, ast.Attribute)):
        return {_name_of(node)}
    found: set[str] = set()
    for child in _operands(node):
        found |= names_used(child, outside_only=outside_only)
    return found


def _name_of(node: ast.Name | ast.Attribute) -> str:
    if isinstance(node, ast.Name):
        return node.id
    assert isinstance(node.value, ast.Name)
    return f"{node.value.id}.{node.attr}"


def _operands(node: ast.expr) -> list[ast.expr]:
    """The expressions right within an expression; the name of a function is none."""
    if isinstance(node, ast.Call):
        return node.args
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


# --- calculating -------------------------------------------------------------------------------


def evaluate_expression(expression: str, scene: Scene, participant: str | None) -> Scalar | Missing:
    """The value for one participant (None: for the session), or why there is none.

    Numbers come out finite; a truth value comes out as 1 or 0.
    """
    return evaluate_for(expression, scene, [participant])[0]


def evaluate_for(
    expression: str, scene: Scene, participants: Sequence[str | None]
) -> list[Scalar | Missing]:
    """The values for several participants, in their order: see `evaluate_expression`."""
    tree = parse_expression(expression)
    evaluator = Evaluator(scene)
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
        return Missing("not_computable", str(error)[:200])
    if isinstance(result, bool):
        return int(result)
    if isinstance(result, str):
        return str(result)
    if not isinstance(result, (int, float)) or not abs(result) <= MAX_VALUE:
        return Missing("not_computable", "the result is not a finite number")
    return result


@dataclass(frozen=True)
class _Column:
    """A part of an expression, calculated for each participant who was asked for what it needs.

    `failures`: why it could not be calculated for some of them.
    """

    values: Mapping[str, Any]
    failures: Mapping[str, Exception]


class Evaluator:
    """Calculates the nodes of expressions over the values of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._work = MAX_WORK * (1 + len(scene.participants))
        self._columns: dict[ast.AST, _Column] = {}
        # By aggregate, and by who is left out of it.
        self._combined: dict[tuple[ast.AST, str | None], Any] = {}

    def calculate(self, node: ast.expr, participant: str | None = None) -> Any:
        """Return the value of an expression for a participant.

        Raises one of ArithmeticError, TypeError, ValueError and RecursionError if there is none,
        and an exception of this module if a value that it needs is not there.
        """
        return self._BY_KIND[type(node)](self, node, participant)

    def _text_or_number(self, node: ast.Constant, _participant: str | None) -> Any:
        return SourcedText(node.value) if isinstance(node.value, str) else node.value

    def _binary(self, node: ast.BinOp, participant: str | None) -> Any:
        left = self.calculate(node.left, participant)
        return _calculate_numbers(node.op, left, self.calculate(node.right, participant))

    def _unary(self, node: ast.UnaryOp, participant: str | None) -> Any:
        value = self.calculate(node.operand, participant)
        return not value if isinstance(node.op, ast.Not) else _calculate_numbers(node.op, value)

    def _if(self, node: ast.IfExp, participant: str | None) -> Any:
        chosen = node.body if self.calculate(node.test, participant) else node.orelse
        return self.calculate(chosen, participant)

    def _look_up(self, node: ast.Name | ast.Attribute, participant: str | None) -> Any:
        name = _name_of(node)
        if name in self.scene.constants:
            return self.scene.constants[name]
        is_shared = name in self.scene.shared
        value = self.scene.value(name, None if is_shared else participant)
        if value is None:
            raise _Absent(f"{name} was not asked", "not_asked")
        if isinstance(value, Missing):
            who = "the session" if is_shared else str(participant)
            reason = "not_asked" if value.reason == "not_asked" else "not_computable"
            raise _Absent(f"{name} of {who}: {value.reason}", reason)
        return value

    def _choose(self, node: ast.BoolOp, participant: str | None) -> Any:
        """`and` and `or`: the first operand that decides, or the last one."""
        value: Any = None
        for operand in node.values:
            value = self.calculate(operand, participant)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _compare(self, node: ast.Compare, participant: str | None) -> Any:
        left, result = self.calculate(node.left, participant), True
        for kind, compared in zip(map(type, node.ops), node.comparators, strict=True):
            right = self.calculate(compared, participant)
            if kind in (ast.In, ast.NotIn):
                self._spend(left, right)
            absent = isinstance(left, MissingValue) or isinstance(right, MissingValue)
            result = False if absent and kind in _ORDER else _COMPARED[kind](left, right)
            if not result:
                break
            left = right
        return result

    def _call(self, node: ast.Call, participant: str | None) -> Any:
        name = _function_name(node)
        if _is_aggregate(node):
            return self._aggregate(node, participant)
        given = [self.calculate(argument, participant) for argument in node.args]
        if absent := [value for value in given if isinstance(value, MissingValue)]:
            return absent[0]
        if name in _OF_TEXTS:
            self._spend(*given)
            return _OF_TEXTS[name](*given)
        return derive_number(_NUMERIC[name](*given), given)

    def _spend(self, *values: object) -> None:
        self._work -= sum(len(value) for value in values if isinstance(value, str))
        if self._work < 0:
            raise ValueError("too much is done with long texts")

    def _aggregate(self, node: ast.Call, participant: str | None) -> object:
        name, inner = _function_name(node), node.args[0]
        without_self = isinstance(inner, ast.Call) and _function_name(inner) == "others"
        if without_self:
            inner = inner.args[0]  # type: ignore[attr-defined]
        column = self._column(inner)
        left_out = participant if without_self else None
        for member, failure in column.failures.items():
            if member != left_out:
                raise failure
        if left_out not in column.values:
            left_out = None
        elif len(column.values) == 1:
            return _combine_values(name, [])
        if (node, left_out) not in self._combined:
            values = [*column.values.values()]
            if left_out is None:
                self._combined[node, None] = _combine_values(name, values)
            else:
                others = _combine_without_one(name, values)
                for member, combined in zip(column.values, others, strict=True):
                    self._combined[node, member] = combined
        return self._combined[node, left_out]

    def _column(self, inner: ast.expr) -> _Column:
        """What an aggregate goes over, calculated once."""
        if inner not in self._columns:
            personal = names_used(inner, outside_only=True) & self.scene.personal
            values: dict[str, Any] = {}
            failures: dict[str, Exception] = {}
            for member in self.scene.participants:
                if any(self.scene.value(name, member) is None for name in personal):
                    continue
                try:
                    values[member] = self.calculate(inner, member)
                except (_Absent, *FAILURES) as error:
                    failures[member] = error
            self._columns[inner] = _Column(values, failures)
        return self._columns[inner]

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


EMPTY_SCENE = Scene((), frozenset(), frozenset(), {}, lambda _name, _who: None)


def _calculate_numbers(kind: ast.AST, *values: Any) -> Any:
    """Arithmetic without texts (`"%999999999d" % 1` would fill the memory) and huge numbers."""
    is_plain = _PLAIN.issuperset(map(type, values))
    if not is_plain and (absent := [value for value in values if isinstance(value, MissingValue)]):
        return absent[0]
    if not all(isinstance(value, (int, float)) and abs(value) <= MAX_BETWEEN for value in values):
        raise ArithmeticError("only numbers of moderate size can be calculated with")
    result = _ARITHMETIC[type(kind)](*values)
    return result if is_plain else derive_number(result, values)


def _combine_values(name: str, values: Sequence[Any]) -> Any:
    if name == "count":
        return sum(bool(value) for value in values)
    if name == "sum":
        return (
            math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)
        )
    if not values:
        raise _Absent(f"nobody has a value for {name}(…)")
    if name == "mean":
        return math.fsum(values) / len(values)
    return min(values) if name == "min" else max(values)


def _combine_without_one(name: str, values: Sequence[Any]) -> list[Any]:
    """For each value what `_combine_values` gives for all others, the same to the last bit.

    It takes time in proportion to the values. Each sum is exact before it is rounded once, as
    `math.fsum` does it.
    """
    if name in ("min", "max"):
        choose = min if name == "min" else max
        before = list(accumulate(values, choose))
        after = list(accumulate(reversed(values), lambda last, value: choose(value, last)))[::-1]
        middle = (choose(before[i - 1], after[i + 1]) for i in range(1, len(values) - 1))
        return [after[1], *middle, before[-2]]
    if name == "count":
        true = _combine_values(name, values)
        return [true - bool(value) for value in values]
    total = _combine_values(name, values)  # raises for values that cannot be added
    floats = sum(isinstance(value, float) for value in values)
    if name == "sum" and not floats:
        return [total - value for value in values]
    exact = [Fraction(float(value)) for value in values]
    everybody = sum(exact)
    rest = [float(everybody - own) for own in exact]
    if name == "mean":
        return [others / (len(values) - 1) for others in rest]
    # The sum of integers alone is an integer.
    whole = sum(value for value in values if not isinstance(value, float))
    alone = [isinstance(value, float) and floats == 1 for value in values]
    return [whole if only else others for only, others in zip(alone, rest, strict=True)]


def in_order(computed: Sequence[Computed]) -> list[Computed]:
    """Computed values, each after those that it uses. Raises ExpressionProblem on a circle."""
    by_name = {computed.name: computed for computed in computed}
    used = {
        name: sorted(_names_of(computed) & by_name.keys()) for name, computed in by_name.items()
    }
    try:
        return [by_name[name] for name in TopologicalSorter(used).static_order()]
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise ExpressionProblem(
            f"computed values go in a circle: {shorten(circle, 200)}", "break the circle"
        ) from error


def known_after(ordered: Iterable[Computed], places: Mapping[str, int]) -> dict[str, int]:
    """For each computed value the place after which it can be calculated, -1 from the beginning.

    `ordered` is what `in_order` gives; `places`: of each variable. Names in neither are known from
    the beginning.
    """
    found: dict[str, int] = {}
    for item in ordered:
        rests_on = (found.get(name, places.get(name, -1)) for name in _names_of(item))
        found[item.name] = max(rests_on, default=-1)
    return found


def _names_of(item: Computed) -> set[str]:
    return names_used(parse_expression(item.expression))
