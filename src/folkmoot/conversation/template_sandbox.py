"""A sandbox for templates that researchers write."""

# The sandbox of jinja2 keeps templates away from Python internals, but a template can still fill
# the memory. So templates may contain only listed node types. Loop iterations, and operations that
# make text longer, are counted before they run.

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

# The template variable in which a rendering finds its `WorkCounter`.
WORK_VARIABLE = "_work"
# In characters.
MAX_TEMPLATE = 100_000
# The work of one rendering, in characters. A prompt of 100,000 characters with a thousand loop
# iterations needs about 1 % of it.
MAX_WORK = 20_000_000
# The work of one loop iteration, in characters. An iteration costs time even if it writes nothing.
LOOP_ITERATION_COST = 100
# Python integers have no largest value. Without a bound, repeated products fill the memory.
MAX_NUMBER = 1e15
# The limit for arguments that a filter may repeat many times. It also limits exponents.
MAX_ARGUMENT_CHARACTERS = 40

# The exceptions that a faulty or hostile template can cause. All are reported as a problem of the
# template.
RENDER_ERRORS = (
    *(TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    *(RecursionError, MemoryError, SyntaxError),
)

_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Const)
# An allow list, because a later version of jinja2 may add kinds of nodes. Macros, blocks, imports
# and inheritance are missing on purpose.
ALLOWED_PROMPT_NODES: tuple[type[nodes.Node], ...] = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr),
    *(nodes.Filter, nodes.If, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or),
    *(nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Div, nodes.Concat),
    *(nodes.Getitem, nodes.Slice, nodes.Test, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Pow),
    *(nodes.For, nodes.Assign, nodes.Call, nodes.Keyword, *_LITERALS),
)
# The methods of mappings that only read.
_METHODS = ("get", "items", "keys", "values")
# These filters write an argument many times, so their input counts by the largest argument.
_AMPLIFYING_FILTERS = ("join", "replace", "indent")
# These filters return their input, a part of it, or a constant. So nothing grows.
_NON_GROWING_FILTERS = (
    "default",
    "d",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
)
# The filters that `map` may apply to each item. They take no arguments.
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
    """Counts the work of rendering one template, and stops the rendering at a limit."""

    # `limit` is a number of written characters. A loop iteration counts as `LOOP_ITERATION_COST`
    # characters.

    def __init__(self, limit: int = MAX_WORK) -> None:
        self.left = limit

    def spend_work(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise SecurityError("the template does too much: its loops or texts grow without end")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A jinja2 sandbox in which undefined names are errors."""

    # `allowed` holds the node types that templates of a researcher may contain. If `allowed` is
    # given, each rendering needs a `WorkCounter` in the variable `WORK_VARIABLE`.

    # jinja2 calls `call_binop` only for intercepted operators. Products and powers can fill the
    # memory, so they are checked in trusted templates too.
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
        """Return whether a template may use an attribute."""
        # The result is cached by type and name.
        key = (type(obj), attr)
        if key not in self._safe:
            self._safe[key] = super().is_safe_attribute(obj, attr, value)
        return self._safe[key]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an arithmetic operation on small numbers, or join two texts.

        Raises SecurityError for large operands.
        """
        # `"a" * 10**9` would fill the memory.
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            context[WORK_VARIABLE].spend_work(len(left) + len(right))
        elif not isinstance(left, Undefined) and not isinstance(right, Undefined):
            are_small = all(
                isinstance(operand, (int, float)) and abs(operand) < MAX_NUMBER
                for operand in (left, right)
            )
            if not are_small or (operator == "**" and abs(right) > MAX_ARGUMENT_CHARACTERS):
                raise SecurityError(f"{operator} is for small numbers only")
        return derive_number(super().call_binop(context, operator, left, right), (left, right))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Compute an operation with one operand, such as `-x`."""
        # The result keeps the note of where its operand comes from.
        return derive_number(super().call_unop(context, operator, arg), (arg,))

    def joined(self, context: Context, values: tuple[object, ...]) -> str:
        """Return the joined operands of the operator `~`."""
        # The result keeps the note of where each operand comes from. In a template of a researcher,
        # the operation also counts towards the work limit.
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
        # Check all nodes before the tree is changed, because the inserted counters are not allowed
        # in the source. `list` is needed, since the loops below change the tree that is searched.
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _wrap_in_counter("turns", loop.iter, 1)
        for filter_node in list(tree.find_all(nodes.Filter)):
            if filter_node.node is not None and filter_node.name not in _COUNTERS:
                growth = MAX_ARGUMENT_CHARACTERS if filter_node.name in _AMPLIFYING_FILTERS else 1
                filter_node.node = _wrap_in_counter("measured", filter_node.node, growth)
        tree.set_environment(self)
        return tree

    def restrict_filters(self, filters: Iterable[str]) -> None:
        """Remove all filters except `filters` and the internal filters of the sandbox."""
        kept_filters = {name: self.filters[name] for name in filters}
        self.filters = {**kept_filters, **_COUNTERS}


def _check_node(node: nodes.Node, allowed: tuple[type[nodes.Node], ...]) -> None:
    problem = ""
    if not isinstance(node, allowed):
        problem = f"`{type(node).__name__.lower()}` is not allowed here"
    elif isinstance(node, nodes.Name) and node.name.startswith("_"):
        problem = f"nothing is called {node.name}"
    elif isinstance(node, nodes.For) and node.recursive:
        problem = "a loop cannot call itself"
    elif isinstance(node, nodes.Assign) and not isinstance(node.target, nodes.Name):
        problem = "`set` gives one name a value"
    elif isinstance(node, nodes.Assign) and not _constant_value(node.node):
        problem = "`set` takes only values that are written out"
    elif isinstance(node, (nodes.List, nodes.Dict, nodes.Tuple)) and not _constant_value(node):
        problem = "a list or dict holds only values that are written out"
    elif isinstance(node, nodes.Call) and not _is_allowed_call(node):
        problem = "only range(…) and .get(…), .items(), .keys(), .values() can be called"
    elif isinstance(node, nodes.Filter) and not _has_small_arguments(node):
        problem = f"the filter {node.name} takes no such argument here"
    if problem:
        raise TemplateSyntaxError(problem, node.lineno)


def _constant_value(node: nodes.Node) -> bool:
    # The targets of `for key, value in …` are a tuple too.
    if isinstance(node, nodes.Tuple) and node.ctx == "store":
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
    # With these arguments, the filter cannot make a long text from a short one.
    if node.dyn_args or node.dyn_kwargs or node.name.startswith("_"):
        return False
    if node.name in _NON_GROWING_FILTERS:
        return True
    arguments = [*node.args, *(pair.value for pair in node.kwargs)]
    # Arguments must be constants, because the size of a variable is unknown before rendering.
    values = [value.value if isinstance(value, nodes.Const) else ... for value in arguments]
    if ... in values:
        return False
    if node.name == "map" and node.args:
        return len(values) == 1 and values[0] in _MAPPABLE_FILTERS
    if node.name == "sum":
        return all(isinstance(value, str) for value in values)
    # `truncate` shortens, so a large number is harmless there. `round` allows few digits.
    texts = [len(value) for value in values if isinstance(value, str)]
    numbers = [abs(value) for value in values if isinstance(value, int)]
    max_number = 10 if node.name == "round" else MAX_ARGUMENT_CHARACTERS
    are_small = all(number <= max_number for number in numbers) or node.name == "truncate"
    return are_small and all(length <= MAX_ARGUMENT_CHARACTERS for length in texts)


def _wrap_in_counter(name: str, node: nodes.Node, growth: int) -> nodes.Filter:
    arguments: list[nodes.Expr] = [nodes.Const(growth, lineno=node.lineno)]
    assert isinstance(node, nodes.Expr)
    return nodes.Filter(node, f"_{name}", arguments, [], None, None, lineno=node.lineno)


@pass_context
def _count_iterations(context: Context, items: Any, _growth: int) -> Any:
    if isinstance(items, Undefined):
        return items
    # An iterator has no length. It is read into a list, which the loop then uses.
    sized_items = items if isinstance(items, Sized) else list(items)
    context[WORK_VARIABLE].spend_work((len(sized_items) + 1) * LOOP_ITERATION_COST)
    return sized_items


@pass_context
def _count_filter_input(context: Context, value: object, growth: int) -> object:
    # The work is the largest output that the filter can have: `growth` times its input.
    if isinstance(value, Undefined):
        return value
    if isinstance(value, Iterator):
        value = list(value)
    context[WORK_VARIABLE].spend_work((_work_size(value) + 1) * growth)
    return value


def _mark_own_words(tree: nodes.Template) -> nodes.Template:
    # Literal texts and loop numbers of a template have no speaker.
    for output in tree.find_all(nodes.Output):
        output.nodes = [_own_words(node) for node in output.nodes]
    for assignment in tree.find_all(nodes.Assign):
        for pair in assignment.node.find_all(nodes.Pair):
            pair.value = _own_words(pair.value)
    for conditional in tree.find_all(nodes.CondExpr):
        conditional.expr1 = _own_words(conditional.expr1)
        conditional.expr2 = conditional.expr2 and _own_words(conditional.expr2)
    for concatenation in tree.find_all(nodes.Concat):
        concatenation.nodes = [_own_words(node) for node in concatenation.nodes]
    return tree


def _own_words(node: nodes.Expr) -> nodes.Expr:
    names = {name.name for name in node.find_all(nodes.Name)}
    if isinstance(node, nodes.Name):
        names.add(node.name)
    is_own = isinstance(node, nodes.Const) or names == {"loop"}
    if not is_own or isinstance(node, nodes.TemplateData):
        return node
    return nodes.Filter(node, "_own", [], [], None, None, lineno=node.lineno)


def _mark_as_instruction(value: object) -> SourcedText:
    # Text outside all spans is shown as an instruction of the study.
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
    # Compiles `~`, Jinja's operator to join texts, to a call of `joined`. The joined text then
    # keeps the note of where each part comes from.

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")
