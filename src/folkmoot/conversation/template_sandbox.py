"""Templates from other people: what they may contain, and how much work they may cause.

jinja2's sandbox keeps a template from reaching anything, but not from filling the memory. Here only
listed kinds of nodes pass, everything that makes text longer is counted before it is done, and so
are the turns of loops. Used for prompts of a user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import (
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    nodes,
    pass_context,
)
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from folkmoot.provenance import SourcedText, concatenate_texts, derive_number

WORK_VARIABLE = "_work"  # the variable under which a rendering finds its counter
MAX_TEMPLATE = 100_000  # characters
MAX_WORK = 20_000_000
LOOP_ITERATION_COST = 100  # what one turn of a loop counts; a character counts 1
MAX_NUMBER = 1e15
MAX_ARGUMENT_CHARACTERS = 40  # of a filter that repeats it

# What can go wrong while a hostile template is read or rendered.
RENDER_ERRORS = (
    *(TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    *(RecursionError, MemoryError, SyntaxError),
)

_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Const)
ALLOWED_PROMPT_NODES: tuple[type[nodes.Node], ...] = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr),
    *(nodes.Filter, nodes.If, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or),
    *(nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Div, nodes.Concat),
    *(nodes.Getitem, nodes.Slice, nodes.Test, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Pow),
    *(nodes.For, nodes.Assign, nodes.Call, nodes.Keyword, *_LITERALS),
)
_METHODS = ("get", "items", "keys", "values")
_AMPLIFYING_FILTERS = ("join", "replace", "indent")  # they put an argument in many times
_NON_GROWING_FILTERS = (
    "default",
    "d",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
)  # nothing grows
_MAPPABLE_FILTERS = (
    "upper",
    "lower",
    "capitalize",
    "title",
    "trim",
    "string",
    "int",
    "float",
    "length",
)


class WorkCounter:
    """Counts what one rendering does, and ends it at the limit."""

    def __init__(self, limit: int = MAX_WORK) -> None:
        self.left = limit

    def spend_work(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise SecurityError("the template does too much: its loops or texts grow without end")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which changes nothing and reaches no internals; undefined names are errors.

    With `allowed`, for templates of somebody else: only these nodes pass, and each rendering needs
    a `WorkCounter` under the name WORK.
    """

    intercepted_binops = frozenset({"*", "**"})

    def __init__(
        self,
        allowed: tuple[type[nodes.Node], ...] = (),
        **options: object,
    ) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, **options)
        self._safe: dict[tuple[type, str], bool] = {}
        self.allowed = allowed
        self.code_generator_class = _KeepingSources
        if allowed:
            self.intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
            self.intercepted_unops = frozenset({"+", "-"})

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """The sandbox's own word, remembered: it goes by the type alone and asks every time."""
        key = (type(obj), attr)
        if key not in self._safe:
            self._safe[key] = super().is_safe_attribute(obj, attr, value)
        return self._safe[key]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Small numbers, and sums of texts: `"a" * 10**9` would fill the memory."""
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            context[WORK_VARIABLE].spend_work(len(left) + len(right))
        elif not isinstance(left, Undefined) and not isinstance(right, Undefined):
            small = all(isinstance(x, (int, float)) and abs(x) < MAX_NUMBER for x in (left, right))
            if not small or (operator == "**" and abs(right) > MAX_ARGUMENT_CHARACTERS):
                raise SecurityError(f"{operator} is for small numbers only")
        return derive_number(super().call_binop(context, operator, left, right), (left, right))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """The sandbox's own, with the source of the number."""
        return derive_number(super().call_unop(context, operator, arg), (arg,))

    def joined(self, context: Context, values: tuple[object, ...]) -> str:
        """`~`: the sources of the parts are kept, and in templates of others growth is counted."""
        if self.allowed:
            context[WORK_VARIABLE].spend_work(sum(len(str(value)) for value in values))
        return concatenate_texts(values)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if not self.allowed:
            return _mark_own_words(super()._parse(source, name, filename))
        if len(source) > MAX_TEMPLATE:
            raise TemplateSyntaxError(f"longer than {MAX_TEMPLATE:,} characters", 1)
        tree = super()._parse(source, name, filename)
        for node in tree.find_all(nodes.Node):
            _check_node(node, self.allowed)
        _mark_own_words(tree)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _wrap_in_counter("turns", loop.iter, 1)
        for used in list(tree.find_all(nodes.Filter)):
            if used.node is not None and used.name not in _COUNTERS:
                growth = MAX_ARGUMENT_CHARACTERS if used.name in _AMPLIFYING_FILTERS else 1
                used.node = _wrap_in_counter("measured", used.node, growth)
        tree.set_environment(self)
        return tree

    def restrict_filters(self, filters: Iterable[str]) -> None:
        """Keep these filters and what the guard itself uses."""
        kept = {name: self.filters[name] for name in filters}
        self.filters = {**kept, **_COUNTERS}


def _check_node(node: nodes.Node, allowed: tuple[type[nodes.Node], ...]) -> None:
    """Raise TemplateSyntaxError for a node that is not allowed, or not in this shape."""
    wrong = ""
    if not isinstance(node, allowed):
        wrong = f"`{type(node).__name__.lower()}` is not allowed here"
    elif isinstance(node, nodes.Name) and node.name.startswith("_"):
        wrong = f"nothing is called {node.name}"
    elif isinstance(node, nodes.For) and node.recursive:
        wrong = "a loop cannot call itself"
    elif isinstance(node, nodes.Assign) and not isinstance(node.target, nodes.Name):
        wrong = "`set` gives one name a value"
    elif isinstance(node, nodes.Assign) and not _constant_value(node.node):
        wrong = "`set` takes only values that are written out"
    elif isinstance(node, (nodes.List, nodes.Dict, nodes.Tuple)) and not _constant_value(node):
        wrong = "a list or dict holds only values that are written out"
    elif isinstance(node, nodes.Call) and not _is_allowed_call(node):
        wrong = "only range(…) and .get(…), .items(), .keys(), .values() can be called"
    elif isinstance(node, nodes.Filter) and not _has_small_arguments(node):
        wrong = f"the filter {node.name} takes no such argument here"
    if wrong:
        raise TemplateSyntaxError(wrong, node.lineno)


def _constant_value(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Tuple) and node.ctx == "store":  # for key, value in …
        return True
    parts = [node, *node.find_all(nodes.Node)]
    return all(isinstance(part, (*_LITERALS, nodes.Neg)) for part in parts)


def _is_allowed_call(node: nodes.Call) -> bool:
    if node.kwargs or node.dyn_args or node.dyn_kwargs or len(node.args) > 3:
        return False
    if isinstance(node.node, nodes.Getattr):
        return node.node.attr in _METHODS
    return isinstance(node.node, nodes.Name) and node.node.name == "range"


def _has_small_arguments(node: nodes.Filter) -> bool:
    """Whether the arguments of a filter cannot make much out of little."""
    if node.dyn_args or node.dyn_kwargs or node.name.startswith("_"):
        return False
    if node.name in _NON_GROWING_FILTERS:
        return True
    given = [*node.args, *(pair.value for pair in node.kwargs)]
    values = [value.value if isinstance(value, nodes.Const) else ... for value in given]
    if ... in values:
        return False
    if node.name == "map" and node.args:
        return len(values) == 1 and values[0] in _MAPPABLE_FILTERS
    if node.name == "sum":
        return all(isinstance(value, str) for value in values)
    texts = [len(value) for value in values if isinstance(value, str)]
    numbers = [abs(value) for value in values if isinstance(value, int)]
    most = 10 if node.name == "round" else MAX_ARGUMENT_CHARACTERS
    small = all(number <= most for number in numbers) or node.name == "truncate"
    return small and all(length <= MAX_ARGUMENT_CHARACTERS for length in texts)


def _wrap_in_counter(name: str, node: nodes.Node, growth: int) -> nodes.Filter:
    arguments: list[nodes.Expr] = [nodes.Const(growth, lineno=node.lineno)]
    assert isinstance(node, nodes.Expr)
    return nodes.Filter(node, f"_{name}", arguments, [], None, None, lineno=node.lineno)


@pass_context
def _count_iterations(context: Context, items: Any, _growth: int) -> Any:
    """What a loop goes over, its turns counted beforehand."""
    if isinstance(items, Undefined):
        return items
    listed = items if isinstance(items, Sized) else list(items)
    context[WORK_VARIABLE].spend_work((len(listed) + 1) * LOOP_ITERATION_COST)
    return listed


@pass_context
def _count_filter_input(context: Context, value: object, growth: int) -> object:
    """What goes into a filter, counted by how long it can become."""
    if isinstance(value, Undefined):
        return value
    if isinstance(value, Iterator):
        value = list(value)
    context[WORK_VARIABLE].spend_work((_work_size(value) + 1) * growth)
    return value


def _mark_own_words(tree: nodes.Template) -> nodes.Template:
    """Mark texts that are written out in a template, and the numbers of its loops, as the
    template's own words: they have no source, and need none."""
    for output in tree.find_all(nodes.Output):
        output.nodes = [_own_words(node) for node in output.nodes]
    for assigned in tree.find_all(nodes.Assign):
        for pair in assigned.node.find_all(nodes.Pair):
            pair.value = _own_words(pair.value)
    for chosen in tree.find_all(nodes.CondExpr):
        chosen.expr1 = _own_words(chosen.expr1)
        chosen.expr2 = chosen.expr2 and _own_words(chosen.expr2)
    for joined in tree.find_all(nodes.Concat):
        joined.nodes = [_own_words(node) for node in joined.nodes]
    return tree


def _own_words(node: nodes.Expr) -> nodes.Expr:
    names = {name.name for name in node.find_all(nodes.Name)}
    if isinstance(node, nodes.Name):
        names.add(node.name)
    own = isinstance(node, nodes.Const) or names == {"loop"}
    if not own or isinstance(node, nodes.TemplateData):
        return node
    return nodes.Filter(node, "_own", [], [], None, None, lineno=node.lineno)


def _mark_as_instruction(value: object) -> SourcedText:
    """A text of the template's own: instructions."""
    return SourcedText(str(value))


_COUNTERS: dict[str, Callable[..., object]] = {
    "_turns": _count_iterations,
    "_measured": _count_filter_input,
    "_own": _mark_as_instruction,
}


def _work_size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_work_size(part) for pair in value.items() for part in pair) + len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_work_size, value)) + len(value)
    return len(value) if isinstance(value, Sized) else 1


class _KeepingSources(CodeGenerator):
    """Compiles `~` to a call that keeps sources and counts."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")
