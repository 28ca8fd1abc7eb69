"""Fill and check the placeholders of a workbook, such as `{{ name }}` and `{% if name %}`.

Expressions follow the rules of the module `expressions`, without aggregates such as `sum(x)`.
"""
# A value that is filled in is never searched for placeholders.

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from folkmoot.conversation.prompts import REMOVED_MARKS, cut_spans
from folkmoot.hints import closest_name, number_text, shorten
from folkmoot.provenance import (
    Quoted,
    QuotedFloat,
    QuotedInt,
    Source,
    SourcedText,
    concatenate_texts,
    escape_text,
    source_of,
    with_sources,
)
from folkmoot.studies.workbook.answers import BROKEN
from folkmoot.studies.workbook.config import MAX_TEXT, Scalar
from folkmoot.studies.workbook.language.expressions import (
    EMPTY_CONTEXT,
    FAILURES,
    EvaluationContext,
    Evaluator,
    ExpressionProblem,
    MissingValue,
    has_aggregate,
    names_used,
    parse_expression,
)

# Maximum length of a filled text, in characters. Constants may be long and may be repeated.
MAX_OUTPUT = 100_000
OPTIONS = "response_options"

_OPENS = re.compile(r"\{[{%#]")
_CLOSES = {"{{": "}}", "{%": "%}", "{#": "#}"}
_WORD = re.compile(r"(\w*)\s*(.*)", re.DOTALL)
# A name in single braces. The format writes only `{response_options}` like this.
_SINGLE = re.compile(r"(?<![{\w])\{\s*([A-Za-z_]\w*)\s*\}(?!\})")


# Called with an expression that cannot be calculated and with the reason. Returns the value that
# the text uses in its place.
FailureHandler = Callable[[str, str], object]


class UnknownName(ExpressionProblem):
    """Raised if a text uses an unknown name."""

    # The checks suggest the most similar known name.


class SourcedNumber(QuotedFloat):
    """A number that records its source and is printed without rounding noise."""

    # 0.3, not 0.30000000000000004.

    def __str__(self) -> str:
        return number_text(float(self))

    __repr__ = __str__

    def __round__(self, digits: int | None = None) -> SourcedNumber:  # type: ignore[override]
        rounded = round(float(self), digits or 0)
        altered = self.source.altered or rounded != self
        return SourcedNumber(rounded, self.source._replace(altered=altered))


class Truth(QuotedInt):
    """A boolean that records its source."""

    # It compares as 1 or 0 and prints as True or False.

    def __str__(self) -> str:
        return str(bool(self))


def with_source(value: Scalar, source: Source, recorded: str) -> object:
    """Return a copy of `value` that carries `source`, for use in placeholders.

    `recorded`: the value as the tables contain it.
    """
    # Exposure looks up values as recorded, so a value that prints otherwise is marked as altered.
    source = source._replace(altered=str(value) != recorded)
    if isinstance(value, bool):
        return Truth(value, source)
    if isinstance(value, int):
        return QuotedInt(value, source)
    return QuotedFloat(value, source) if isinstance(value, float) else Quoted(value, source)


@dataclass(frozen=True)
class _Branch:
    # None for `else`.
    condition: ast.expr | None
    # The condition as the researcher wrote it.
    words: str
    body: list[_Part]


@dataclass(frozen=True)
class _If:
    branches: tuple[_Branch, ...]


_Part = str | ast.expr | _If


_Names = set[str]


@lru_cache(maxsize=32_768)
def _parse_template(text: str) -> tuple[Sequence[_Part], frozenset[str]]:
    # Also returns the names in the text.
    if len(text) > MAX_TEXT:
        raise ExpressionProblem(f"the text is longer than {MAX_TEXT:,} characters", "shorten it")
    names = _Names()
    try:
        parts, word, _ = _read_body(_split_template(text), names)
    except RecursionError as error:
        raise ExpressionProblem("the placeholders are nested too deeply", "simplify") from error
    # A tag that ends no `if` is left over, such as `else` or `endfor`.
    if word:
        raise _misplaced_tag_problem(word)
    return parts, frozenset(names)


def _split_template(text: str) -> Iterator[tuple[str, str]]:
    # The kind is "" for plain text, and `{{` or `{%` for a tag.
    position, is_trimmed = 0, False
    while opening := _OPENS.search(text, position):
        kind, start = opening[0], opening.end()
        end = text.find(_CLOSES[kind], start)
        if end < 0:
            message = f"the placeholders cannot be read: no {_CLOSES[kind]} after {kind}"
            raise ExpressionProblem(message, "write {{ name }}")
        text_before, tag_text = text[position : opening.start()], text[start:end]
        text_before = text_before.lstrip() if is_trimmed else text_before
        yield "", text_before.rstrip() if tag_text.startswith("-") else text_before
        if kind != "{#":
            yield kind, tag_text.removeprefix("-").removesuffix("-").strip()
        position, is_trimmed = end + 2, tag_text.endswith("-")
    yield "", text[position:].lstrip() if is_trimmed else text[position:]


def _read_body(pieces: Iterator[tuple[str, str]], names: _Names) -> tuple[list[_Part], str, str]:
    # Reads up to the tag that ends the current branch. Returns the parts, the first word of the
    # tag, and its rest. The word is "" at the end of the text.
    parts: list[_Part] = []
    for kind, piece in pieces:
        if kind == "{{":
            parts.append(_read_expression(piece, names))
        elif kind == "{%":
            word, rest = _WORD.fullmatch(piece).groups()  # type: ignore[union-attr]
            if word != "if":
                return parts, word, rest
            parts.append(_read_if(rest, pieces, names))
        elif piece:
            parts.append(piece)
    return parts, "", ""


def _read_if(condition: str, pieces: Iterator[tuple[str, str]], names: _Names) -> _If:
    branches: list[_Branch] = []
    word, rest = "elif", condition
    while word == "elif":
        tree, words = _read_expression(rest, names), f"if {rest}"
        body, word, rest = _read_body(pieces, names)
        branches.append(_Branch(tree, words, body))
    body = []
    if word == "else" and not rest:
        body, word, rest = _read_body(pieces, names)
    if word != "endif" or rest:
        raise _misplaced_tag_problem(f"{word} {rest}")
    # The last branch has no condition, so that a branch always holds.
    return _If((*branches, _Branch(None, "else", body)))


def _misplaced_tag_problem(tag: str) -> ExpressionProblem:
    if not tag.strip():
        return ExpressionProblem("an `if` has no `endif`", "write {% if … %} … {% endif %}")
    allowed = "use {{ name }}, {{ name | round(2) }} or {% if … %} … {% endif %}"
    return ExpressionProblem(f"`{tag.strip()[:40]}` is not allowed here", allowed)


def _read_expression(expression_text: str, names: _Names) -> ast.expr:
    try:
        tree = parse_expression(expression_text)
    except ExpressionProblem as problem:
        message = f"the placeholders cannot be read: {problem}"
        hint = "write {{ a }}{{ b }} for a ~ b" if "~" in expression_text else problem.hint
        raise ExpressionProblem(message, hint) from problem
    # Computed values are recorded and checked. An aggregate in a text would be neither.
    if has_aggregate(tree):
        message = f"{shorten(expression_text, 40)} aggregates over all participants"
        raise ExpressionProblem(
            message, "define it with a name in the sheet computed, and write that name here"
        )
    names |= names_used(tree)
    return tree


def normalise_options(text: str) -> str:
    """Replace `{response_options}` by `{{ response_options }}`, the form that the parser reads."""
    return _SINGLE.sub(
        lambda match: "{{ " + OPTIONS + " }}" if match[1] == OPTIONS else match[0], text
    )


def names_in(text: str) -> frozenset[str]:
    """Return the names in the placeholders of a text.

    Raises ExpressionProblem if the text cannot be parsed.
    """
    return _parse_template(normalise_options(text))[1]


def expressions_in(text: str) -> list[ast.expr]:
    """Return the expressions in the placeholders and conditions of a text.

    Raises ExpressionProblem if the text cannot be parsed.
    """
    return [*_iterate_expressions(_parse_template(normalise_options(text))[0])]


def _iterate_expressions(parts: Sequence[_Part]) -> Iterator[ast.expr]:
    for part in parts:
        if isinstance(part, _If):
            for branch in part.branches:
                if branch.condition is not None:
                    yield branch.condition
                yield from _iterate_expressions(branch.body)
        elif not isinstance(part, str):
            yield part


def render_text(
    text: str, values: Mapping[str, object], on_failure: FailureHandler | None = None
) -> SourcedText:
    """Return a text with its placeholders filled in, without white space at its ends.

    `on_failure`: called for each expression that cannot be calculated. The value that it returns
    takes the place of this expression alone. None to raise ExpressionProblem instead.

    Raises UnknownName for a name without a value. Raises ExpressionProblem for a text or value that
    cannot be used.
    """
    if isinstance(text, SourcedText) and not _OPENS.search(text):
        # It was filled in before. Its values may hold braces, which are text.
        return text
    text = normalise_options(text)
    # Replace characters that the prompt library reserves for its own marks.
    if not text.isascii():
        text = text.translate(REMOVED_MARKS)
    if not _OPENS.search(text):
        return SourcedText(text.strip())
    parts, names = _parse_template(text)
    if unknown := sorted(names - values.keys()):
        raise UnknownName(f"nothing is called {unknown[0]}")
    evaluator = _PlaceholderEvaluator(replace(EMPTY_CONTEXT, constants=values), on_failure)
    rendered: list[SourcedText] = []
    size = 0
    try:
        # Stop as soon as the text is too long, before memory is full.
        for part in _fill(parts, evaluator):
            size += len(part)
            if size > MAX_OUTPUT:
                message = f"the filled text is longer than {MAX_OUTPUT:,} characters"
                raise ExpressionProblem(message, "shorten the constants")
            rendered.append(part)
    except ExpressionProblem:
        raise
    except FAILURES as error:
        raise ExpressionProblem(f"the placeholder cannot be filled in: {error}") from error
    filled = concatenate_texts(rendered, plain=None)
    if BROKEN.search(filled):
        message = "the filled text contains an invalid character"
        raise ExpressionProblem(message, "correct the placeholder")
    # Spans have to move by the number of characters that are stripped at the start.
    stripped = filled.strip()
    skipped = len(filled) - len(filled.lstrip())
    return SourcedText(stripped, cut_spans(filled.spans, skipped, len(stripped)))


class _PlaceholderEvaluator(Evaluator):
    def __init__(self, context: EvaluationContext, on_failure: FailureHandler | None) -> None:
        super().__init__(context)
        self._on_failure = on_failure

    def calculate_whole(self, tree: ast.expr, *, is_condition: bool = False) -> object:
        # The value of a whole placeholder or condition. Its failure leaves all others unchanged.
        # A condition that needs a missing value fails, because it cannot be decided.
        try:
            value = self.calculate(tree)
        except FAILURES as error:
            if self._on_failure is None:
                raise
            is_division = isinstance(error, ZeroDivisionError)
            reason = "division by zero" if is_division else shorten(str(error), 200)
        else:
            is_undecided = is_condition and isinstance(value, MissingValue)
            if self._on_failure is None or not is_undecided:
                return value
            reason = "a value that it needs is missing"
        return self._on_failure(ast.unparse(tree), reason)


def _fill(parts: Sequence[_Part], evaluator: _PlaceholderEvaluator) -> Iterator[SourcedText]:
    for part in parts:
        if isinstance(part, str):
            yield SourcedText(part)
        elif isinstance(part, _If):
            true_branches = (
                branch
                for branch in part.branches
                if branch.condition is None
                or evaluator.calculate_whole(branch.condition, is_condition=True)
            )
            yield from _fill(next(true_branches).body, evaluator)
        else:
            yield _show(part, evaluator)


def _show(tree: ast.expr, evaluator: _PlaceholderEvaluator) -> SourcedText:
    if isinstance(tree, ast.IfExp):
        is_body = evaluator.calculate_whole(tree.test, is_condition=True)
        return _show(tree.body if is_body else tree.orelse, evaluator)
    value = evaluator.calculate_whole(tree)
    # A result is printed like a computed value: 3 and not 3.0, if the answers are whole numbers.
    if isinstance(value, float):
        source = source_of(value)
        value = number_text(value) if source is None else SourcedNumber(value, source)
    rendered = with_sources(value) if names_used(tree) else SourcedText(str(value))
    return (
        rendered
        if rendered.isascii()
        else escape_text(rendered, lambda part: part.translate(REMOVED_MARKS))
    )


def empty_branches(text: str) -> list[str]:
    """Return the conditions under which a text is empty.

    Each condition is spelled as in the workbook. The list has no entry if the text is never empty.
    """
    is_empty, branches = _find_empty(_parse_template(normalise_options(text))[0])
    return branches if is_empty else []


def _find_empty(parts: Sequence[_Part]) -> tuple[bool, list[str]]:
    # Returns whether the text can be empty, and under which conditions.
    is_empty, conditions = True, list[str]()
    for part in parts:
        if not isinstance(part, _If):
            is_empty = is_empty and isinstance(part, str) and not part.strip()
            continue
        may_be_empty = False
        for branch in part.branches:
            branch_is_empty, nested = _find_empty(branch.body)
            if branch_is_empty:
                may_be_empty = True
                prefix = f"{branch.words}, " if branch.condition is not None else ""
                conditions += [f"{prefix}{condition}" for condition in nested] or [branch.words]
        is_empty = is_empty and may_be_empty
    return is_empty, conditions


def check_names(
    text: str, known: Collection[str], only_computed: Collection[str] = ()
) -> list[ExpressionProblem]:
    """Return the problems of a text's placeholders.

    - `known`: the names that the text may use.
    - `only_computed`: the names that only expressions of the sheet `computed` may use.
    """
    try:
        names = names_in(text)
    except ExpressionProblem as problem:
        return [problem]
    problems = [
        _only_computed_problem(name)
        if name in only_computed
        else _unknown_name_problem(name, known)
        for name in sorted(names)
        if name not in known
    ]
    names_by_folded = {name.casefold(): name for name in sorted(known)}
    # Single braces are a likely mistake, because the format uses them for options.
    for match in _SINGLE.finditer(text):
        name = match[1]
        if name == OPTIONS:
            continue
        if name in known:
            message, hint = f"{{{name}}} has single braces", f"write {{{{{name}}}}}"
            problems.append(ExpressionProblem(message, hint))
        elif similar := names_by_folded.get(name.casefold()):
            message, hint = f"there is no {{{name}}}", f"did you mean {{{{{similar}}}}}?"
            problems.append(ExpressionProblem(message, hint))
        elif closest_name(name, [OPTIONS]):
            message, hint = f"there is no {{{name}}}", f"did you mean {{{OPTIONS}}}?"
            problems.append(ExpressionProblem(message, hint))
    return problems


def _only_computed_problem(name: str) -> ExpressionProblem:
    message = f"{name} can only be used in the sheet computed"
    hint = f"give it a name there, e.g. my_{name} with the expression {name}, and use that name"
    return ExpressionProblem(message, hint)


def _unknown_name_problem(name: str, known: Collection[str]) -> ExpressionProblem:
    space, dot, _ = name.partition(".")
    candidates = sorted(
        known_name
        for known_name in known
        if (known_name.startswith(f"{space}.") if dot else known_name.isidentifier())
    )
    suggestion = closest_name(name, candidates)
    if suggestion == OPTIONS:
        hint = f"did you mean {{{OPTIONS}}}?"
    elif suggestion:
        hint = f"did you mean {{{{{suggestion}}}}}?"
    else:
        candidate_text = ", ".join(candidates[:8]) + (", …" if len(candidates) > 8 else "")
        hint = f"define it in the constants sheet; known here: {candidate_text or 'nothing'}"
    return ExpressionProblem(f"nothing is called {name}", hint)
