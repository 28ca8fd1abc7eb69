"""Placeholders of a workbook's texts: a narrow sandbox of Jinja that only fills in values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError

from folkmoot.conversation.sandbox import EXPRESSIONS, FAILURES, WORK, Sandbox, Work
from folkmoot.hints import nearest
from folkmoot.studies.workbook.answers import BROKEN

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
