"""Values that are calculated from answers: payoffs, totals, shares. Safe arithmetic, nothing else.

Expressions are evaluated by simpleeval, narrowed further: no attributes, no subscripts, no text
operations beyond comparison. `sum(x)`, `mean(x)`, `min(x)`, `max(x)` and `count(x)` go over all
participants of the session who have the values in `x`; `sum(others(x))` over all but oneself.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rapidfuzz import fuzz, process
from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

from folkmoot.conversation.answers import Missing
from folkmoot.studies.workbook.literals import BROKEN
from folkmoot.studies.workbook.model import Computed, Scalar

MAX_EXPRESSION = 2_000
MAX_NESTED = 2
MAX_VALUE = 1e15
MAX_BETWEEN = 1e150  # of a value on the way to the result
AGGREGATES = ("sum", "mean", "min", "max", "count")
PLAIN: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "round": lambda x, digits=0: round(x, max(-10, min(10, int(digits)))),
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
}


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arithmetic without texts (`"%999999999d" % 1` would fill the memory) and huge numbers."""

    def calculated(*values: Any) -> Any:
        if not all(isinstance(v, (int, float)) and abs(v) <= MAX_BETWEEN for v in values):
            raise ArithmeticError("only numbers that are not too large can be calculated with")
        return function(*values)

    return calculated


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd)
_COMPARED = (ast.Eq, ast.NotEq, ast.Gt, ast.Lt, ast.GtE, ast.LtE, ast.Not)
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{node: _of_numbers(DEFAULT_OPERATORS[node]) for node in _ARITHMETIC},
    **{node: DEFAULT_OPERATORS[node] for node in _COMPARED},
}
_NODES = (
    *(ast.Expression, ast.Expr, ast.Name, ast.Load, ast.Constant, ast.Call, ast.UnaryOp),
    *(ast.BinOp, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.IfExp, ast.Pow),
    *_OPERATORS,
)


class BadExpression(ValueError):
    """An expression cannot be used. `mend` says what to write."""

    def __init__(self, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.mend = mend


class _Absent(Exception):
    """A value that the expression needs is not there."""

    def __init__(self, detail: str, reason: str = "not_computable") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


@dataclass(frozen=True)
class Scene:
    """What expressions can see: participants, their values, and the constants.

    `value(name, participant)` gives a variable or a computed value: a number or text, Missing
    when there should be one and is none, None when the participant was never asked.
    """

    participants: Sequence[str]
    personal: frozenset[str]
    shared: frozenset[str]
    constants: Mapping[str, Scalar]
    value: Callable[[str, str | None], Scalar | Missing | None]


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> ast.expr:
    """The tree of an expression. Raises BadExpression when it holds more than arithmetic."""
    if len(text) > MAX_EXPRESSION:
        raise BadExpression(f"longer than {MAX_EXPRESSION:,} characters", "split it in two")
    try:
        tree = ast.parse(text.strip().lstrip("=").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else "it is no expression"
        raise BadExpression(str(detail), "e.g. endowment - give + 2 * sum(give) / 4") from error
    try:
        _check_tree(tree)
        _check_fixed(tree.body)
    except RecursionError as error:
        raise BadExpression("nested too deeply", "split it in two") from error
    return tree.body


def _check_fixed(node: ast.expr) -> None:
    """A part that is the same for everybody must have a value; `9 ** 9 ** 9` has none."""
    parts = list(ast.walk(node))
    named = any(isinstance(part, ast.Name) and part.id not in PLAIN for part in parts)
    if not named and not any(map(_aggregate, parts)):
        scene = Scene((), frozenset(), frozenset(), {}, lambda _name, _who: None)
        value = _calculated(node, scene, None)
        if isinstance(value, Missing):
            part = ast.unparse(node)
            shown = part if len(part) <= 40 else part[:39] + "…"
            raise BadExpression(f"{shown} has no value: {value.detail}", "use smaller numbers")
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            _check_fixed(child)


def _check_tree(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise BadExpression(
                f"{type(node).__name__} is not allowed", "use numbers, names, + - * / and functions"
            )
        if isinstance(node, ast.Constant):
            _check_constant(node.value)
        if isinstance(node, ast.Call):
            _check_call(node)
    _check_nesting(tree, 0)


def _check_constant(value: Any) -> None:
    if isinstance(value, str):
        if len(value) > 200 or BROKEN.search(value):
            raise BadExpression("a text is too long or broken", "compare with a shorter one")
    elif not isinstance(value, (bool, int, float)) or not abs(value) <= MAX_VALUE:
        raise BadExpression(f"{str(value)[:30]} is not allowed", "use a smaller number")


def _check_call(node: ast.Call) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    known = sorted({*AGGREGATES, *PLAIN, "own", "others"})
    if name not in known:
        guess = process.extractOne(name, known, scorer=fuzz.WRatio, score_cutoff=60)
        mend = f"did you mean {guess[0]}?" if guess else f"there are {', '.join(known)}"
        raise BadExpression(f"there is no function {name or 'of that kind'}", mend)
    if node.keywords or not node.args or any(isinstance(a, ast.Starred) for a in node.args):
        raise BadExpression(f"{name} needs plain arguments", f"e.g. {name}(give)")
    most = {"min": 20, "max": 20, "round": 2}.get(name, 1)
    if len(node.args) > most:
        raise BadExpression(f"{name} takes {most} argument{'s' * (most > 1)}", f"{name}(give)")


def _aggregate(node: ast.AST) -> bool:
    """Whether a node goes over participants: a named aggregate of one argument."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in AGGREGATES
        and len(node.args) == 1
    )


def _is_others(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "others"
    )


def _check_nesting(node: ast.AST, depth: int, inside: bool = False) -> None:
    if _is_others(node) and not inside:
        raise BadExpression("others(…) stands alone", "write sum(others(…)) or mean(others(…))")
    deeper = depth + 1 if _aggregate(node) else depth
    if deeper > MAX_NESTED:
        raise BadExpression("sums within sums within sums", "compute the inner one first")
    for child in ast.iter_child_nodes(node):
        _check_nesting(child, deeper, inside=_aggregate(node))


def names_used(node: ast.AST, *, outside_only: bool = False) -> set[str]:
    """The names of values in a tree; with `outside_only` those that no aggregate goes over."""
    if outside_only and _aggregate(node):
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Call) and child is node.func:
            continue
        found |= names_used(child, outside_only=outside_only)
    return found


def evaluate(expression: str, scene: Scene, participant: str | None) -> Scalar | Missing:
    """The value for one participant (None: for the session), or why there is none.

    Numbers come out finite; a truth value comes out as 1 or 0.
    """
    return _calculated(parse_expression(expression), scene, participant)


def _calculated(tree: ast.expr, scene: Scene, participant: str | None) -> Scalar | Missing:
    try:
        result = _Evaluator(scene, participant).eval("", previously_parsed=tree)
    except _Absent as error:
        return Missing(error.reason, error.detail)
    except ZeroDivisionError:
        return Missing("not_computable", "division by zero")
    except (InvalidExpression, ArithmeticError, TypeError, ValueError, RecursionError) as error:
        return Missing("not_computable", str(error)[:200])
    return _finite(result)


def _finite(result: Any) -> Scalar | Missing:
    if isinstance(result, bool):
        return int(result)
    if isinstance(result, str):
        return result
    if not isinstance(result, (int, float)) or not abs(result) <= MAX_VALUE:
        return Missing("not_computable", "the result is no finite number")
    return result


class _Evaluator(SimpleEval):  # type: ignore[misc]
    """simpleeval with names from a scene and aggregates over its participants."""

    def __init__(self, scene: Scene, participant: str | None) -> None:
        super().__init__(
            operators={**_OPERATORS, ast.Pow: _of_numbers(_power)}, functions=dict(PLAIN), names={}
        )
        self.scene = scene
        self.participant = participant
        for node in (ast.Attribute, ast.Subscript, ast.JoinedStr, ast.Import, ast.Assign):
            self.nodes.pop(node, None)

    def _eval_name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.scene.constants:
            return self.scene.constants[name]
        shared = name in self.scene.shared
        value = self.scene.value(name, None if shared else self.participant)
        if value is None:
            raise _Absent(f"{name} was not asked", "not_asked")
        if isinstance(value, Missing):
            who = "the session" if shared else str(self.participant)
            reason = "not_asked" if value.reason == "not_asked" else "not_computable"
            raise _Absent(f"{name} of {who}: {value.reason}", reason)
        return value

    def _eval_call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "own":
            return self._eval(node.args[0])
        if not _aggregate(node):
            return super()._eval_call(node)
        inner = node.args[0]
        members = list(self.scene.participants)
        if _is_others(inner):
            assert isinstance(inner, ast.Call)
            members = [m for m in members if m != self.participant]
            inner = inner.args[0]
        personal = names_used(inner, outside_only=True) & self.scene.personal
        values = [
            _Evaluator(self.scene, member).eval(self.expr, previously_parsed=inner)
            for member in members
            if all(self.scene.value(n, member) is not None for n in personal)
        ]
        return _combine(name, values)


def _power(base: Any, exponent: Any) -> float:
    return math.pow(float(base), float(exponent))


def _combine(name: str, values: list[Any]) -> Any:
    if name == "count":
        return sum(bool(v) for v in values)
    if name == "sum":
        return math.fsum(values) if any(isinstance(v, float) for v in values) else sum(values)
    if not values:
        raise _Absent(f"nobody has a value for {name}(…)")
    if name == "mean":
        return math.fsum(values) / len(values)
    return min(values) if name == "min" else max(values)


def in_order(computed: Sequence[Computed]) -> list[Computed]:
    """Computed values, each after those that it uses. Raises BadExpression on a circle."""
    by_name = {c.name: c for c in computed}
    done: dict[str, Computed] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in done:
            return
        if name in path:
            circle = " → ".join((*path[path.index(name) :], name))
            raise BadExpression(f"computed values go in a circle: {circle}", "break the circle")
        for used in sorted(names_used(parse_expression(by_name[name].expression)) & set(by_name)):
            visit(used, (*path, name))
        done[name] = by_name[name]

    for item in computed:
        visit(item.name, ())
    return list(done.values())


def sources(computed: Sequence[Computed]) -> dict[str, frozenset[str]]:
    """For each computed value the names of variables that it rests on, directly or not."""
    found: dict[str, frozenset[str]] = {}
    for item in in_order(computed):
        used = names_used(parse_expression(item.expression))
        found[item.name] = frozenset(
            {n for n in used if n not in found}.union(*(found[n] for n in used if n in found))
        )
    return found
