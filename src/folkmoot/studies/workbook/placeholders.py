"""Values that are calculated from answers: payoffs, totals, shares. Safe arithmetic, nothing else.

Expressions are evaluated by simpleeval, narrowed further: no attributes, no subscripts, no text
operations beyond comparison. `sum(x)`, `mean(x)`, `min(x)`, `max(x)` and `count(x)` go over all
participants of the session who have the values in `x`; `sum(others(x))` over all but oneself.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.sandbox import EXPRESSIONS, FAILURES, WORK, Sandbox, Work
from folkmoot.hints import did_you_mean, nearest, shortened
from folkmoot.studies.workbook.answers import BROKEN
from folkmoot.studies.workbook.config import Computed, Scalar

UNDEFINED = "name only what exists"
MAX_OUTPUT = 100_000
MAX_WORK = 2_000_000  # characters that a rendering may handle on its way
MAX_TEMPLATE = 100_000
OPTIONS = "response_options"
NAMESPACES = ("constant", "treatment", "role")
FILTERS = ("upper", "lower", "capitalize", "title", "trim", "round", "int", "float", "abs")

_RESERVED = ("self", "super", "caller", "loop", "varargs", "kwargs")
_SINGLE = re.compile(r"(?<![{\w])\{\s*([A-Za-z_]\w*)\s*\}(?!\})")

Filter = Callable[..., object]


class TemplateProblem(ValueError):
    """A text cannot be filled in. The message is for the user; `hint` says what to write."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotThere(str):
    """A value that is not there: it prints as its words, and filters and sums leave it so."""

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


def _environment() -> Sandbox:
    environment = Sandbox(EXPRESSIONS, passive=(NotThere,), keep_trailing_newline=True)
    for name, convert in (("int", int), ("float", float)):
        environment.filters[name] = partial(_number, convert=convert)
    for name in ("upper", "lower", "capitalize", "title", "trim"):
        environment.filters[name] = partial(_text, environment.filters[name])
    environment.only(FILTERS)
    environment.globals = {}
    environment.tests = {n: t for n, t in environment.tests.items() if n in ("defined", "none")}
    return environment


_ENVIRONMENT = _environment()
_PLAIN = Environment()  # to look into a template before it is guarded; renders nothing


@lru_cache(maxsize=4096)
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


def render(text: str, values: Mapping[str, object]) -> str:
    """The text with its placeholders filled in. Raises TemplateProblem, for output as well."""
    text = normalise_options(text)
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    template, _, _ = _compiled(text)
    parts: list[str] = []
    size = 0
    try:
        for part in template.generate({**values, WORK: Work(MAX_WORK)}):
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
    return filled


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


@lru_cache(maxsize=4096)
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
        value = _calculated(node, scene, None)
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


def _finite(result: object) -> Scalar | Missing:
    if isinstance(result, bool):
        return int(result)
    if isinstance(result, str):
        return result
    if not isinstance(result, (int, float)) or not abs(result) <= MAX_VALUE:
        return Missing("not_computable", "the result is not a finite number")
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
        members = list(self.scene.participants)
        if isinstance(inner, ast.Call) and _called(inner) == "others":
            members = [m for m in members if m != self.participant]
            inner = inner.args[0]
        personal = names_used(inner, outside_only=True) & self.scene.personal
        values = [
            _Evaluator(self.scene, member).eval(self.expr, previously_parsed=inner)
            for member in members
            if all(self.scene.value(n, member) is not None for n in personal)
        ]
        return _combine(name, values)


def _power(base: float, exponent: float) -> float:
    return math.pow(base, exponent)


def _combine(name: str, values: list[float]) -> float:
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
