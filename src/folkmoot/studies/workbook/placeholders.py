"""What a workbook's texts and expressions are filled in with, and nothing else that they could do.

Placeholders are rendered by a narrow sandbox of Jinja.

Values that are calculated from answers: payoffs, totals, shares. Safe arithmetic, nothing else.

Expressions are evaluated by simpleeval, narrowed further: no attributes, no subscripts, no text
operations beyond comparison. `sum(x)`, `mean(x)`, `min(x)`, `max(x)` and `count(x)` go over all
participants of the session who have the values in `x`; `sum(others(x))` over all but oneself.

What an aggregate goes over is calculated once for each participant, at any depth of nesting and
however many ask for it. So the work grows with the text of an expression times the participants.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import Any

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.prompts import (
    NUMERIC,
    RESERVED,
    SOURCES,
    keep_number,
    keep_source,
    mark_source,
    read_marks,
)
from folkmoot.conversation.template_sandbox import EXPRESSIONS, FAILURES, WORK, Sandbox, Work
from folkmoot.hints import did_you_mean, nearest, shortened
from folkmoot.provenance import Quoted, QuotedFloat, QuotedInt, Source, SourcedText
from folkmoot.studies.workbook.answers import BROKEN
from folkmoot.studies.workbook.config import Computed, Scalar, number_text

UNDEFINED = "name only what exists"
MAX_OUTPUT = 100_000
MAX_WORK = 2_000_000  # characters that a rendering may handle on its way
MAX_TEMPLATE = 100_000
OPTIONS = "response_options"
NAMESPACES = ("constant", "treatment", "role")
FILTERS = ("upper", "lower", "capitalize", "title", "trim", "round", "int", "float", "abs")

_RESERVED = ("self", "super", "caller", "loop", "varargs", "kwargs")
_TESTS = re.compile(r"\{%[-+]?\s*(?:el)?if\s+(.*?)\s*[-+]?%\}", re.DOTALL)
_SINGLE = re.compile(r"(?<![{\w])\{\s*([A-Za-z_]\w*)\s*\}(?!\})")

Filter = Callable[..., object]


class TemplateProblem(ValueError):
    """A text cannot be filled in. The message is for the user; `hint` says what to write."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotThere(SourcedText):
    """A value that is not there: it prints as its words, and filters and sums leave it so. The
    words are ours, so they have no source."""

    __slots__ = ()

    def _same(self, *_: object) -> NotThere:
        return self

    def _no(self, _: object) -> bool:
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = _same
    __neg__ = __pos__ = __abs__ = __round__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _no

    def __bool__(self) -> bool:
        return False


def _number(value: object, convert: Filter) -> object:
    """The filters int and float: what is not there stays so instead of becoming 0."""
    return value if isinstance(value, NotThere) else convert(value)


def _text(change: Filter, value: object) -> object:
    return value if isinstance(value, NotThere) else change(value)


class Figure(QuotedFloat):
    """A number that prints as a person writes it and still rounds and compares as a number."""

    def __str__(self) -> str:
        return number_text(float(self))

    __repr__ = __str__

    def __round__(self, digits: int | None = None) -> Figure:  # type: ignore[override]
        rounded = round(float(self), digits or 0)
        altered = self.source.altered or rounded != self
        return Figure(rounded, self.source._replace(altered=altered))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


class Truth(QuotedInt):
    """A truth value of one source: it compares as 1 or 0 and prints as a truth value."""

    def __str__(self) -> str:
        return str(bool(self))


def sourced(value: Scalar, source: Source, recorded: str) -> object:
    """Return a value for placeholders with its source. `recorded` is how the source writes it."""
    source = source._replace(altered=str(value) != recorded)
    if isinstance(value, bool):
        return Truth(value, source)
    if isinstance(value, int):
        return QuotedInt(value, source)
    return QuotedFloat(value, source) if isinstance(value, float) else Quoted(value, source)


def _environment() -> Sandbox:
    environment = Sandbox(
        EXPRESSIONS, passive=(NotThere,), keep_trailing_newline=True, finalize=mark_source
    )
    environment.filters |= {"int": partial(_number, convert=int)}
    environment.filters |= {"float": partial(_number, convert=float)}
    for name in NUMERIC:
        environment.filters[name] = keep_number(environment.filters[name])
    for name in ("upper", "lower", "capitalize", "title", "trim"):
        environment.filters[name] = partial(_text, keep_source(environment.filters[name]))
    environment.only(FILTERS)
    environment.globals = {}
    environment.tests = {n: t for n, t in environment.tests.items() if n in ("defined", "none")}
    return environment


_ENVIRONMENT = _environment()
_PLAIN = Environment()  # to look into a template before it is guarded; renders nothing


# As many as a very long workbook has: to compile a text takes a hundred times as long as to use it.
@lru_cache(maxsize=32_768)
def _compiled(text: str) -> tuple[Template, frozenset[str], frozenset[tuple[str, str]]]:
    """The template, the names it uses, and the (namespace, attribute) pairs."""
    if len(text) > MAX_TEMPLATE:
        raise TemplateProblem(f"the text is longer than {MAX_TEMPLATE:,} characters", "shorten it")
    try:
        names, attributes = _inspect(_PLAIN.parse(text))
        return _ENVIRONMENT.from_string(text), names, attributes
    except TemplateProblem:
        raise
    except TemplateError as error:
        raise TemplateProblem(
            f"the placeholders cannot be read: {error}", "write {{ name }}"
        ) from error
    except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
        raise TemplateProblem("the placeholders are nested too deeply", "simplify") from error


def _inspect(tree: nodes.Template) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    names: set[str] = set()
    attributes: set[tuple[str, str]] = set()
    inside: set[int] = set()
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, EXPRESSIONS):
            raise TemplateProblem(
                f"`{type(node).__name__.lower()}` is not allowed in a placeholder",
                "use {{ name }}, {{ name | round(2) }} or {% if … %}",
            )
        if isinstance(node, nodes.Getattr):
            if not (isinstance(node.node, nodes.Name) and node.node.name in NAMESPACES):
                raise TemplateProblem(
                    f"`.{node.attr}` is not allowed here",
                    "only constant.…, treatment.… and role.… have attributes",
                )
            attributes.add((node.node.name, node.attr))
            inside.add(id(node.node))
        if isinstance(node, nodes.Filter) and node.name not in FILTERS:
            raise TemplateProblem(
                f"the filter {node.name} is not allowed", "allowed are: " + ", ".join(FILTERS)
            )
        if isinstance(node, nodes.Filter) and not _small_arguments(node):
            raise TemplateProblem(
                f"the filter {node.name} takes no such argument", "e.g. {{ name | round(2) }}"
            )
    for name in tree.find_all(nodes.Name):
        if name.name in _RESERVED or name.name.startswith("_"):
            raise TemplateProblem(f"nothing is called {name.name}", "name a constant or a result")
        if id(name) not in inside:
            names.add(name.name)
    return frozenset(names), frozenset(attributes)


def _small_arguments(node: nodes.Filter) -> bool:
    """No argument, or for `round` a number of digits: a huge one would never end."""
    if node.kwargs or node.dyn_args or node.dyn_kwargs:
        return False
    values = [a.value if isinstance(a, nodes.Const) else None for a in node.args]
    if node.name == "round":
        return len(values) <= 1 and all(isinstance(v, int) and 0 <= v <= 10 for v in values)
    return not values


def normalise_options(text: str) -> str:
    """`{response_options}` in single braces, as the format writes it, as a placeholder."""
    return _SINGLE.sub(lambda m: "{{ " + OPTIONS + " }}" if m[1] == OPTIONS else m[0], text)


def names_in(text: str) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The names and the (namespace, attribute) pairs of a text. Raises TemplateProblem."""
    _, names, attributes = _compiled(normalise_options(text))
    return names, attributes


def render(text: str, values: Mapping[str, object]) -> SourcedText:
    """Return the text with its placeholders filled in, without white space at the ends. It knows
    the sources of the values.

    Raises TemplateProblem, for output as well.
    """
    if isinstance(text, SourcedText) and not _has_placeholder(text):
        return text  # filled in before
    text = normalise_options(text)
    if not text.isascii():
        text = text.translate(RESERVED)
    if not _has_placeholder(text):
        return SourcedText(text.strip())
    template, _, _ = _compiled(text)
    interpolated: list[SourcedText] = []
    parts: list[str] = []
    size = 0
    try:
        known = {**values, WORK: Work(MAX_WORK), SOURCES: interpolated}
        for part in template.generate(known):
            size += len(part)
            if size > MAX_OUTPUT:
                raise TemplateProblem(
                    f"the filled text is longer than {MAX_OUTPUT:,} characters",
                    "shorten the constants",
                )
            parts.append(part)
    except TemplateProblem:
        raise
    except SecurityError as error:
        raise TemplateProblem(str(error), "shorten the constants; use small numbers") from error
    except TemplateError as error:
        raise TemplateProblem(str(error), UNDEFINED) from error
    except FAILURES as error:
        raise TemplateProblem(f"the placeholder cannot be filled in: {error}") from error
    filled = "".join(parts)
    if BROKEN.search(filled):
        raise TemplateProblem("the filled text holds a broken character", "correct the placeholder")
    return read_marks(filled, interpolated)


def _has_placeholder(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def empty_branches(text: str) -> list[str]:
    """The branches of a text in which nothing remains of it, as it writes them.

    A text that always holds some words, or a value, has none.
    """
    text = normalise_options(text)
    if "{%" not in text:
        return []
    is_empty, branches = _empty_in(_PLAIN.parse(text).body, iter(_TESTS.findall(text)))
    return branches if is_empty else []


def _empty_in(body: Sequence[nodes.Node], tests: Iterator[str]) -> tuple[bool, list[str]]:
    """Whether nothing may remain of these nodes, and in which branches.

    `tests`: the conditions in the order of the text, which is the order of the nodes.
    """
    is_empty, branches = True, list[str]()
    for node in body:
        if isinstance(node, nodes.If):
            empty, inner = _empty_in_if(node, tests)
            is_empty, branches = is_empty and empty, branches + inner
        else:
            is_empty = is_empty and not _says_something(node)
    return is_empty, branches


def _empty_in_if(node: nodes.If, tests: Iterator[str]) -> tuple[bool, list[str]]:
    is_empty, branches = False, list[str]()
    for branch in (node, *node.elif_):
        condition = f"if {next(tests)}"
        empty, inner = _empty_in(branch.body, tests)
        if empty:
            is_empty = True
            branches += [f"{condition}, {deeper}" for deeper in inner] or [condition]
    empty, inner = _empty_in(node.else_, tests)
    if empty:
        is_empty = True
        branches += inner or ["else"]
    return is_empty, branches


def _says_something(node: nodes.Node) -> bool:
    """Whether a node outputs words or a value."""
    parts = node.nodes if isinstance(node, nodes.Output) else [node]
    return any(not isinstance(p, nodes.TemplateData) or bool(p.data.strip()) for p in parts)


def check_names(
    text: str, known: Collection[str], attributes: Mapping[str, Collection[str]]
) -> list[TemplateProblem]:
    """Everything wrong with the placeholders of a text, each with the likely name."""
    try:
        names, pairs = names_in(text)
    except TemplateProblem as problem:
        return [problem]
    found = [_unknown(name, known) for name in sorted(names) if name not in known]
    for space, attribute in sorted(pairs):
        if attribute not in attributes.get(space, ()):
            found.append(_unknown(f"{space}.{attribute}", attributes.get(space, ()), space + "."))
    for match in _SINGLE.finditer(text):
        name = match[1]
        if name == OPTIONS:
            continue
        if name in known:
            found.append(TemplateProblem(f"{{{name}}} has single braces", f"write {{{{{name}}}}}"))
        elif nearest(name, [OPTIONS]):
            found.append(TemplateProblem(f"there is no {{{name}}}", f"did you mean {{{OPTIONS}}}?"))
    return found


def _unknown(name: str, known: Collection[str], prefix: str = "") -> TemplateProblem:
    pool = sorted(known)
    guess = nearest(name.removeprefix(prefix), pool)
    if guess == OPTIONS:
        hint = f"did you mean {{{OPTIONS}}}?"
    elif guess:
        hint = f"did you mean {{{{{prefix}{guess}}}}}?"
    else:
        listed = ", ".join(pool[:8]) + (", …" if len(pool) > 8 else "")
        hint = f"define it in the constants sheet; known here: {listed or 'nothing'}"
    return TemplateProblem(f"nothing is called {name}", hint)


# --- expressions -------------------------------------------------------------------------------

MAX_EXPRESSION = 2_000
MAX_NESTED = 2
MAX_VALUE = 1e15
MAX_BETWEEN = 1e150  # of a value on the way to the result
AGGREGATES = ("sum", "mean", "min", "max", "count")
PLAIN: Mapping[str, Callable[..., object]] = {
    "abs": abs,
    "round": lambda x, digits=0: round(x, max(-10, min(10, int(digits)))),
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
}


def _of_numbers(function: Callable[..., object]) -> Callable[..., object]:
    """Arithmetic without texts (`"%999999999d" % 1` would fill the memory) and huge numbers."""

    def calculated(*values: object) -> object:
        if not all(isinstance(v, (int, float)) and abs(v) <= MAX_BETWEEN for v in values):
            raise ArithmeticError("only numbers of moderate size can be calculated with")
        return function(*values)

    return calculated


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd)
_COMPARED = (ast.Eq, ast.NotEq, ast.Gt, ast.Lt, ast.GtE, ast.LtE, ast.Not)
_OPERATORS: dict[type[ast.AST], Callable[..., object]] = {
    **{node: _of_numbers(DEFAULT_OPERATORS[node]) for node in _ARITHMETIC},
    **{node: DEFAULT_OPERATORS[node] for node in _COMPARED},
}
_NODES = (
    *(ast.Expression, ast.Expr, ast.Name, ast.Load, ast.Constant, ast.Call, ast.UnaryOp),
    *(ast.BinOp, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.IfExp, ast.Pow),
    *_OPERATORS,
)


class BadExpression(ValueError):
    """An expression cannot be used. `hint` says what to write."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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


@lru_cache(maxsize=32_768)
def parse_expression(text: str) -> ast.expr:
    """The tree of an expression. Raises BadExpression when it holds more than arithmetic."""
    if len(text) > MAX_EXPRESSION:
        raise BadExpression(f"longer than {MAX_EXPRESSION:,} characters", "split it in two")
    try:
        tree = ast.parse(text.strip().lstrip("=").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else "it is not an expression"
        raise BadExpression(str(detail), "e.g. endowment - give + 2 * sum(give) / 4") from error
    try:
        _check(tree)
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
        value = _calculated(node, _Evaluator(scene), None)
        if isinstance(value, Missing):
            shown = shortened(ast.unparse(node), 40)
            raise BadExpression(f"{shown} has no value: {value.detail}", "use smaller numbers")
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            _check_fixed(child)


def _check(node: ast.AST, depth: int = 0, *, inside: bool = False) -> None:
    """Refuses what is not arithmetic. `depth`: of aggregates; `inside`: right within one."""
    if not isinstance(node, _NODES):
        what = f"{type(node).__name__} is not allowed"
        raise BadExpression(what, "use numbers, names, + - * / and functions")
    if isinstance(node, ast.Constant):
        _check_constant(node.value)
    if isinstance(node, ast.Call):
        _check_call(node)
        if _called(node) == "others" and not inside:
            raise BadExpression(
                "others(…) must be within an aggregate", "write sum(others(…)) or mean(others(…))"
            )
    aggregate = _aggregate(node)
    if depth + aggregate > MAX_NESTED:
        raise BadExpression("sums within sums within sums", "compute the inner one first")
    for child in ast.iter_child_nodes(node):
        _check(child, depth + aggregate, inside=aggregate)


def _check_constant(value: object) -> None:
    if isinstance(value, str):
        if len(value) > 200 or BROKEN.search(value):
            raise BadExpression("a text is too long or broken", "compare with a shorter one")
    elif not isinstance(value, (bool, int, float)) or not abs(value) <= MAX_VALUE:
        raise BadExpression(f"{str(value)[:30]} is not allowed", "use a smaller number")


def _check_call(node: ast.Call) -> None:
    name = _called(node)
    known = sorted({*AGGREGATES, *PLAIN, "own", "others"})
    if name not in known:
        hint = did_you_mean(name, known, f"there are {', '.join(known)}")
        raise BadExpression(f"there is no function {name or 'of that kind'}", hint)
    if node.keywords or not node.args or any(isinstance(a, ast.Starred) for a in node.args):
        raise BadExpression(f"{name} needs plain arguments", f"e.g. {name}(give)")
    most = {"min": 20, "max": 20, "round": 2}.get(name, 1)
    if len(node.args) > most:
        raise BadExpression(f"{name} takes {most} argument{'s' * (most > 1)}", f"{name}(give)")


def _called(node: ast.AST) -> str:
    """The name of the function that a node calls, or ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return ""


def _aggregate(node: ast.AST) -> bool:
    """Whether a node goes over participants: a named aggregate of one argument."""
    return isinstance(node, ast.Call) and _called(node) in AGGREGATES and len(node.args) == 1


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
    return evaluate_for(expression, scene, [participant])[0]


def evaluate_for(
    expression: str, scene: Scene, participants: Sequence[str | None]
) -> list[Scalar | Missing]:
    """The values for several participants, in their order: see `evaluate`."""
    tree = parse_expression(expression)
    evaluator = _Evaluator(scene)
    return [_calculated(tree, evaluator, participant) for participant in participants]


def _calculated(tree: ast.expr, evaluator: _Evaluator, participant: str | None) -> Scalar | Missing:
    try:
        result = evaluator.value_for(participant, tree)
    except _Absent as error:
        return Missing(error.reason, error.detail)
    except ZeroDivisionError:
        return Missing("not_computable", "division by zero")
    except _FAILURES as error:
        return Missing("not_computable", str(error)[:200])
    return _finite(result)


_FAILURES = (InvalidExpression, ArithmeticError, TypeError, ValueError, RecursionError)


def _finite(result: object) -> Scalar | Missing:
    if isinstance(result, bool):
        return int(result)
    if isinstance(result, str):
        return result
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


class _Evaluator(SimpleEval):  # type: ignore[misc]
    """simpleeval with names from a scene and aggregates over its participants."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(
            operators={**_OPERATORS, ast.Pow: _of_numbers(_power)}, functions=dict(PLAIN), names={}
        )
        self.scene = scene
        self.participant: str | None = None
        self._columns: dict[ast.AST, _Column] = {}
        # By aggregate, and by who is left out of it.
        self._combined: dict[tuple[ast.AST, str | None], Any] = {}
        for node in (ast.Attribute, ast.Subscript, ast.JoinedStr, ast.Import, ast.Assign):
            self.nodes.pop(node, None)

    def value_for(self, participant: str | None, node: ast.expr) -> Any:
        """The value of a part of the expression for a participant. Raises why there is none."""
        before, self.participant = self.participant, participant
        try:
            return self._eval(node)
        finally:
            self.participant = before

    def _eval_name(self, node: ast.Name) -> Scalar:
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

    def _eval_call(self, node: ast.Call) -> object:
        name = _called(node)
        if name == "own":
            return self._eval(node.args[0])
        if not _aggregate(node):
            return super()._eval_call(node)
        inner = node.args[0]
        without_self = isinstance(inner, ast.Call) and _called(inner) == "others"
        if without_self:
            inner = inner.args[0]  # type: ignore[attr-defined]
        column = self._column(inner)
        left_out = self.participant if without_self else None
        for member, failure in column.failures.items():
            if member != left_out:
                raise failure
        if left_out not in column.values:
            left_out = None
        elif len(column.values) == 1:
            return _combine(name, [])
        if (node, left_out) not in self._combined:
            values = [*column.values.values()]
            if left_out is None:
                self._combined[node, None] = _combine(name, values)
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
                    values[member] = self.value_for(member, inner)
                except (_Absent, *_FAILURES) as error:
                    failures[member] = error
            self._columns[inner] = _Column(values, failures)
        return self._columns[inner]


def _power(base: float, exponent: float) -> float:
    return math.pow(base, exponent)


def _combine(name: str, values: Sequence[Any]) -> Any:
    if name == "count":
        return sum(bool(v) for v in values)
    if name == "sum":
        return math.fsum(values) if any(isinstance(v, float) for v in values) else sum(values)
    if not values:
        raise _Absent(f"nobody has a value for {name}(…)")
    if name == "mean":
        return math.fsum(values) / len(values)
    return min(values) if name == "min" else max(values)


def _combine_without_one(name: str, values: Sequence[Any]) -> list[Any]:
    """For each value what `_combine` gives for all others, the same to the last bit.

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
        true = _combine(name, values)
        return [true - bool(v) for v in values]
    total = _combine(name, values)  # raises for values that cannot be added
    floats = sum(isinstance(v, float) for v in values)
    if name == "sum" and not floats:
        return [total - v for v in values]
    exact = [Fraction(float(v)) for v in values]
    everybody = sum(exact)
    rest = [float(everybody - own) for own in exact]
    if name == "mean":
        return [others / (len(values) - 1) for others in rest]
    # The sum of integers alone is an integer.
    whole = sum(v for v in values if not isinstance(v, float))
    alone = [isinstance(v, float) and floats == 1 for v in values]
    return [whole if only else others for only, others in zip(alone, rest, strict=True)]


def in_order(computed: Sequence[Computed]) -> list[Computed]:
    """Computed values, each after those that it uses. Raises BadExpression on a circle."""
    by_name = {c.name: c for c in computed}
    used = {name: sorted(_names_of(c) & by_name.keys()) for name, c in by_name.items()}
    try:
        return [by_name[name] for name in TopologicalSorter(used).static_order()]
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise BadExpression(
            f"computed values go in a circle: {shortened(circle, 200)}", "break the circle"
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
