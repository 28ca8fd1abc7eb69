"""The prompts of a study, which are rendered from template files.

A file of the researcher replaces the study type's file of the same name.
"""

# A library combines the prompt folder of a study type with the folder that a study file names under
# `prompts:`. Files of the second folder have priority. Only `{{ variable }}` and `{% … %}` are
# interpreted. All other text is kept exactly. A text that several prompts share is a separate
# prompt. A line `{% include "name" %}` inserts it. A prompt may have wording for humans:
# `for_people` is true in a template while it is rendered for a human's page. Only models get format
# instructions, and lists of options that the page shows as buttons. The text for models does not
# depend on the wording for humans.

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from types import CodeType
from typing import Any, Self

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, pass_context
from jinja2.runtime import Context

from folkmoot.conversation.choices import format_option_list
from folkmoot.conversation.template_sandbox import (
    ALLOWED_PROMPT_NODES,
    MAX_TEMPLATE,
    RENDER_ERRORS,
    WORK_VARIABLE,
    TemplateSandbox,
    WorkCounter,
)
from folkmoot.errors import InputError, Problem, ProtocolError
from folkmoot.hints import did_you_mean, shorten
from folkmoot.provenance import (
    Replacement,
    SourcedText,
    Span,
    alter_text,
    concatenate_texts,
    derive_number,
    escape_text,
    join_texts,
    replace_parts,
    shift_offset,
    source_of,
    spans_of,
    with_sources,
)

PROMPT_SUFFIX = ".md"
_INCLUDE = re.compile(r'^\{% include "([^"]+)" %\}\n?', re.MULTILINE)
# Marks in a text during rendering: a cache breakpoint (`{{ cache }}`), and the start and end of an
# interpolated text. Unicode reserves these characters for internal use. They are removed from all
# interpolated texts, so a text cannot forge a mark.
CACHE_MARK, OPEN, CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
REMOVED_MARKS = dict.fromkeys(map(ord, (CACHE_MARK, OPEN, CLOSE)))
_MARKS = re.compile(f"[{CACHE_MARK}{OPEN}{CLOSE}]")
# The template variable in which a rendering collects the texts that it interpolates.
SOURCES = "_sources"
# The template variable that is true while the wording for humans is rendered.
FOR_PEOPLE = "for_people"
# The limit stops a template that would fill the memory. It is about 500,000 tokens.
MAX_PROMPT_CHARACTERS = 2_000_000
# Filters of jinja2 that only compute text or numbers. Filters that produce HTML or random values
# are missing.
ALLOWED_FILTERS = (
    *("abs", "capitalize", "count", "default", "d", "dictsort", "first", "float", "indent"),
    *("int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject"),
    *("rejectattr", "replace", "reverse", "round", "select", "selectattr", "sort", "string"),
    *("sum", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)


# Filters that change a text. The result keeps the source of the text.
TEXT_FILTERS = ("capitalize", "lower", "title", "trim", "truncate", "upper", "replace", "indent")
# Filters that compute a number. The result keeps the source of the number.
NUMBER_FILTERS = ("abs", "float", "int", "round")


class Prompt(SourcedText):
    """A rendered prompt that records where the parts of the text come from."""

    # A source says, for example, which reply a part quotes.

    __slots__ = ("cache_breakpoints", "for_people")
    # Ascending character offsets. The text before an offset may be repeated in other prompts.
    cache_breakpoints: tuple[int, ...]
    # The wording that a human reads in place of the text, or None if humans read the text itself.
    for_people: Prompt | None

    def __new__(
        cls,
        text: str = "",
        spans: Iterable[Span] = (),
        cache_breakpoints: Iterable[int] = (),
        for_people: Prompt | None = None,
    ) -> Self:
        self = super().__new__(cls, text, spans)
        self.cache_breakpoints = tuple(cache_breakpoints)
        self.for_people = for_people
        return self

    # `str` would restore only the text when a copy is unpickled in a worker process.
    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.spans, self.cache_breakpoints, self.for_people


def as_prompt(text: str, for_people: Prompt | None = None) -> Prompt:
    """Return a text as a `Prompt` that records where the parts of the text come from.

    `for_people`: the wording that humans read. None means that humans read `text`.
    """
    sourced = with_sources(text)
    return Prompt(sourced, sourced.spans, (), for_people)


def wording_for_people(text: str) -> str:
    """Return the text that a human reads in place of a prompt for models."""
    return text.for_people if isinstance(text, Prompt) and text.for_people is not None else text


def cache_breakpoints_of(text: str) -> tuple[int, ...]:
    """Return the cache breakpoints of a prompt, or an empty tuple for another text."""
    return text.cache_breakpoints if isinstance(text, Prompt) else ()


def replace_in_prompt(
    prompt: str, find_parts: Callable[[SourcedText], Sequence[Replacement]]
) -> Prompt:
    """Return a prompt with some parts replaced, in its wording for models and for humans.

    - `find_parts`: returns the replacements for one wording, see `replace_parts`.

    All other parts keep their sources.
    """

    def replace_in(wording: str) -> Prompt:
        text = with_sources(wording)
        parts = find_parts(text)
        changed = replace_parts(text, parts)
        # The breakpoints are offsets into the old text.
        moved = (shift_offset(offset, parts) for offset in cache_breakpoints_of(wording))
        return Prompt(changed, changed.spans, moved)

    changed_prompt = replace_in(prompt)
    wording = wording_for_people(prompt)
    if wording is not prompt:
        changed_prompt.for_people = replace_in(wording)
    return changed_prompt


class PromptLibrary:
    """The prompts of one run."""

    # The researcher's files replace those of the study type. `renders_for_people` is True if
    # prompts also get their wording for humans. Only a run in which humans take part needs this
    # wording.

    renders_for_people = False

    def __init__(self, folder: Path | None, override_folder: Path | None = None) -> None:
        self.folder = folder
        self.overrides = override_folder
        self._shipped_env = create_environment()
        self._own_env = create_environment(untrusted=True)
        self._templates: dict[str, Template] = {}
        # Maps the name of a prompt to the researcher's prompt in it, or to "" if there is none.
        self._replaced: dict[str, str] = {}

    @cached_property
    def prompt_files(self) -> dict[str, Path]:
        """A map from prompt name to the file of the prompt."""
        # The name is the path below the folder, without `.md`.
        override_files = {
            name: path
            for name, path in _prompt_files(self.overrides).items()
            if name in self.default_prompts
        }
        return {name: override_files.get(name, path) for name, path in self.default_prompts.items()}

    @cached_property
    def default_prompts(self) -> dict[str, Path]:
        """A map from prompt name to the prompt file of the study type."""
        return _prompt_files(self.folder)

    def render_prompt(self, name: str, /, **variables: object) -> Prompt:
        """Return the text of the prompt `name`, with `variables` filled in.

        Raises InputError if a prompt of the researcher cannot be rendered.
        Raises ProtocolError if a prompt of the study type cannot be rendered.
        """
        # White space at both ends is removed. The result keeps a note of the source of each part,
        # such as the reply that it quotes.
        template = self._templates.get(name)
        if template is None:
            template = self._templates[name] = self._compile(name)
        prompt = self._render_template(name, template, variables)
        if self.renders_for_people:
            for_people = self._render_template(name, template, {**variables, FOR_PEOPLE: True})
            prompt.for_people = None if for_people == prompt else for_people
        return prompt

    def _render_template(
        self, name: str, template: Template, variables: Mapping[str, object]
    ) -> Prompt:
        interpolated: list[SourcedText] = []
        all_variables = {**variables, SOURCES: interpolated}
        try:
            if not self._find_replaced(name):
                return read_marks(template.render(all_variables), interpolated)
            # The prompts of a study type are trusted. Only a prompt of the researcher can loop
            # without end, so only such a prompt is counted and limited.
            text = "".join(
                _join_limited(template.generate({**all_variables, WORK_VARIABLE: WorkCounter()}))
            )
            return read_marks(text, interpolated)
        except RENDER_ERRORS as error:
            raise self._render_error(name, str(error) or type(error).__name__) from error

    def hashes(self) -> dict[str, str]:
        """Return a map from prompt name to the SHA-256 of the prompt file."""
        # For the plan.
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in self.prompt_files.items()
        }

    def source_texts(self) -> dict[str, str]:
        """Return a map from prompt name to the unrendered text of the prompt file."""
        return {name: _read_prompt(path) for name, path in self.prompt_files.items()}

    def variables_of(self, name: str) -> frozenset[str]:
        """Return the names of the variables in the prompt `name` of the study type."""
        return _find_variables(self._shipped_env, read_source(name, self.default_prompts))

    def find_problems(self) -> list[Problem]:
        """Return all problems in the researcher's prompts."""
        # Problems are unknown files, unknown variables and syntax errors.
        if self.overrides is None:
            return []
        if not self.overrides.is_dir():
            return [Problem(f"no such folder: {self.overrides}", key="prompts")]
        problems: list[Problem] = []
        for name, path in _prompt_files(self.overrides).items():
            if name in self.default_prompts:
                problems.extend(self._check_file(name, path))
            else:
                hint = did_you_mean(name, self.default_prompts) or "prompts are: " + ", ".join(
                    self.default_prompts
                )
                problems.append(
                    Problem(f"unknown prompt {name}", str(path), key="prompts", hint=hint)
                )
        return problems

    def _check_file(self, name: str, path: Path) -> list[Problem]:
        try:
            source = read_source(name, self.prompt_files)
            used_variables, known_variables = (
                _find_variables(self._own_env, source),
                self.variables_of(name),
            )
            self._own_env.from_string(source)
        except TemplateSyntaxError as error:
            return [Problem(error.message or "bad syntax", str(path), where=str(error.lineno))]
        # Deeply nested templates exhaust the recursion of jinja2 or of the Python compiler.
        except (RecursionError, MemoryError, SyntaxError):
            return [Problem("nested too deeply", str(path), hint="simplify the template")]
        except (*RENDER_ERRORS, OSError) as error:
            return [Problem(str(error), str(path))]
        return [
            Problem(
                f"unknown variable {variable}",
                str(path),
                where=str(_line_of(variable, path)),
                hint=did_you_mean(variable, known_variables)
                or "known are: " + ", ".join(sorted(known_variables)),
            )
            for variable in sorted(used_variables - known_variables)
        ]

    def _find_replaced(self, name: str) -> str:
        # A file affects the prompt if it replaces the prompt or a prompt that is included in it.
        if name not in self._replaced:
            parts = (name, *_INCLUDE.findall(_read_prompt(self.prompt_files[name])))
            replaced_parts = (
                part
                for part in parts
                if self.prompt_files.get(part) != self.default_prompts.get(part)
            )
            self._replaced[name] = next(replaced_parts, "")
        return self._replaced[name]

    def _compile(self, name: str) -> Template:
        if name not in self.prompt_files:
            if self.folder is None:
                hint = 'the study has no prompts folder: Study(prompts=Path(__file__).parent / "…")'
            elif not self.folder.is_dir():
                hint = f"no such folder: {self.folder}"
            else:
                hint = did_you_mean(name, self.prompt_files) or f"{self.folder} holds " + (
                    ", ".join(self.prompt_files) or f"no file that ends with {PROMPT_SUFFIX}"
                )
            raise ProtocolError(f"unknown prompt {name} ({hint})")
        try:
            is_own = bool(self._find_replaced(name))
            env = self._own_env if is_own else self._shipped_env
            code = _compile_source(read_source(name, self.prompt_files), is_own)
            template = Template.from_code(env, code, env.make_globals(None))
            # jinja2 uses a ChainMap here and looks through it in every rendering. A plain dict is
            # faster.
            template.globals = dict(template.globals)
            return template
        except RENDER_ERRORS as error:
            raise self._render_error(name, str(error) or type(error).__name__) from error

    def _render_error(self, name: str, problem: str) -> InputError | ProtocolError:
        if replaced_name := self._find_replaced(name):
            return InputError(
                Problem(
                    problem,
                    file=str(self.prompt_files[replaced_name]),
                    key=f"prompt {replaced_name}",
                )
            )
        return ProtocolError(f"prompt {name} ({self.prompt_files[name]}): {problem}")


# Compiling takes about 10 ms a prompt. One process may make many runs with the same prompts, such
# as those of a grid or of a notebook.
@lru_cache(maxsize=256)
def _compile_source(source: str, untrusted: bool) -> CodeType:
    # All environments with the same `untrusted` share the compiled code.
    return create_environment(untrusted=untrusted).compile(source)


def create_environment(*, untrusted: bool = False) -> TemplateSandbox:
    """Return a sandbox in which templates can loop, test and format.

    `untrusted`: True for templates of a researcher.
    """
    # Such templates may contain only listed node types, and their work is counted and limited.
    env = TemplateSandbox(
        ALLOWED_PROMPT_NODES if untrusted else (),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=mark_source,
    )
    env.filters |= {name: keep_source(env.filters[name]) for name in TEXT_FILTERS}
    env.filters |= {name: keep_number(env.filters[name]) for name in NUMBER_FILTERS}
    env.filters |= {
        "json": _as_json,
        "tojson": _as_json,
        "listed": format_option_list,
        "join": _join_with_sources,
    }
    env.restrict_filters((*ALLOWED_FILTERS, "json", "tojson", "listed"))
    # Replace the globals of jinja2. Some of them, such as `lipsum`, give access to Python objects.
    env.globals = {"range": env.globals["range"], "cache": CACHE_MARK, FOR_PEOPLE: False}
    return env


def read_source(name: str, files: Mapping[str, Path]) -> str:
    """Return the source of a prompt, in which each include is replaced by the included prompt.

    Raises TemplateError if an included prompt does not exist or includes another prompt.
    """

    def read_included(line: re.Match[str]) -> str:
        if line[1] not in files:
            raise TemplateError(f"there is no prompt {line[1]} to include")
        source = _read_prompt(files[line[1]])
        if _INCLUDE.search(source):
            raise TemplateError(f"{line[1]} is included and may not include another prompt")
        return source

    return _INCLUDE.sub(read_included, _read_prompt(files[name]))


def _find_variables(env: TemplateSandbox, source: str) -> frozenset[str]:
    return frozenset(meta.find_undeclared_variables(env.parse(source))) - set(env.globals)


@pass_context
def mark_source(context: Context, value: object) -> str:
    """Return the text that replaces `{{ value }}` in a template, with marks around sourced text."""
    # If it is known where the text comes from, two special characters enclose it. `read_marks` uses
    # them to find where the text begins and ends.

    # A prompt may be part of another one, such as the system prompt of a later stage.
    text = with_sources(
        wording_for_people(value)
        if isinstance(value, Prompt) and context.get(FOR_PEOPLE)
        else value
    )
    # `isascii` is quick and decides most texts, so the pattern search is rare.
    if not text.isascii() and _MARKS.search(text):
        if text == CACHE_MARK:
            return CACHE_MARK
        text = escape_text(text, lambda part: part.translate(REMOVED_MARKS))
    if not text.spans:
        return str(text)
    context[SOURCES].append(text)
    return f"{OPEN}{text}{CLOSE}"


def read_marks(marked: str, interpolated: list[SourcedText]) -> Prompt:
    """Return a rendered text as a `Prompt` that records the source of each value.

    - `marked`: the text, with special characters around the values of variables.
    - `interpolated`: the values of the variables in the order of the text.

    Raises ProtocolError if a filter changed a value.
    """
    # `mark_source` writes the special characters. White space at both ends is removed.
    if not _MARKS.search(marked):
        return Prompt(marked.strip())
    pieces: list[str] = []
    spans: list[Span] = []
    # Offsets below count characters of the text without marks.
    breakpoints: list[int] = []
    waiting = iter(interpolated)
    position = length = 0
    for mark in _MARKS.finditer(marked):
        pieces.append(marked[position : mark.start()])
        length += mark.start() - position
        position = mark.end()
        if mark[0] == CACHE_MARK:
            breakpoints.append(length)
        elif mark[0] == OPEN:
            text = next(waiting)
            if not marked.startswith(text, position):
                raise ProtocolError(
                    f"a text was changed while it was rendered: {shorten(text, 60)!r}"
                )
            spans += [span.shift_span(length) for span in text.spans]
    pieces.append(marked[position:])
    joined = "".join(pieces)
    stripped = joined.strip()
    # White space at the start is stripped, so all offsets move to the left by its length.
    skipped = len(joined) - len(joined.lstrip())
    stripped_breakpoints = (min(max(0, offset - skipped), len(stripped)) for offset in breakpoints)
    return Prompt(
        stripped, cut_spans(spans, skipped, len(stripped)), dict.fromkeys(stripped_breakpoints)
    )


def cut_spans(spans: Iterable[Span], skipped: int, length: int) -> Iterator[Span]:
    """Adjust the positions of spans to a text that was shortened at both ends.

    - `spans`: the spans in the original text.
    - `skipped`: the number of characters removed from the start.
    - `length`: the number of characters that remain.

    A span that was removed entirely is left out.
    """
    for span in spans:
        start, end = max(0, span.start - skipped), min(length, span.end - skipped)
        if start < end:
            yield Span(start, end, span.source)


def keep_source(change: Callable[..., str]) -> Callable[..., object]:
    """Return a template filter that applies `change` to a text and keeps the source of the text."""
    # The source says, for example, which reply the text comes from.

    # jinja2 passes its own argument (context or environment) to such filters first.
    text_index = 1 if hasattr(change, "jinja_pass_arg") else 0

    @wraps(change)
    def change_with_source(*arguments: Any, **keywords: Any) -> object:
        text = arguments[text_index]
        if not isinstance(text, SourcedText):
            if source_of(text) is None:
                return change(*arguments, **keywords)
            text = with_sources(text)
        others = arguments[text_index + 1 :]

        def change_part(part: str) -> str:
            return change(*arguments[:text_index], part, *others, **keywords)

        changed = change_part(str(text))
        # `replace` may insert the text of another source. The source of each part is then unknown.
        if any(map(spans_of, (*others, *keywords.values()))):
            return changed
        # A filter such as `upper` changes each part as it changes the whole text.
        has_one_source = [span[:2] for span in text.spans] == [(0, len(text))]
        by_part = text if has_one_source else escape_text(text, change_part)
        return by_part if by_part == changed else alter_text(text, changed)

    return change_with_source


def keep_number(change: Callable[..., object]) -> Callable[..., object]:
    """Return a template filter that computes a number. The number keeps the source of the input."""

    @wraps(change)
    def change_number_with_source(value: object, *arguments: Any, **keywords: Any) -> object:
        return derive_number(change(value, *arguments, **keywords), (value,))

    return change_number_with_source


def _join_with_sources(
    values: Iterable[Any], separator: str = "", attribute: str | None = None
) -> SourcedText:
    parts = values if attribute is None else (getattr(value, attribute) for value in values)
    return join_texts(separator, parts)


def _join_limited(pieces: Iterator[str]) -> Iterator[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_PROMPT_CHARACTERS:
            raise TemplateError(f"the text is longer than {MAX_PROMPT_CHARACTERS:,} characters")
        yield piece


def _as_json(value: object) -> str:
    # Keeps the note of where each text in the value comes from.

    # The JSON filter of jinja2 escapes <, > and & for web pages, which would change the wording.
    return concatenate_texts(_json_parts(value), plain=None)


def _json_parts(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for number, (key, inner) in enumerate(value.items()):
            yield ", " if number else "{"
            yield f"{_as_json(key)}: "
            yield from _json_parts(inner)
        yield "}" if value else "{}"
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield ", " if number else "["
            yield from _json_parts(inner)
        yield "]" if value else "[]"
    elif isinstance(value, str):
        yield '"'
        yield escape_json(value)
        yield '"'
    else:
        text = json.dumps(value, ensure_ascii=False)
        yield alter_text(with_sources(value), text)


def escape_json(text: str) -> SourcedText:
    """Return a text with the escapes of a JSON string, but without the quotation marks."""
    # The result keeps the note of where the text comes from.
    return escape_text(with_sources(text), lambda part: json.dumps(part, ensure_ascii=False)[1:-1])


def _prompt_files(folder: Path | None) -> dict[str, Path]:
    if folder is None or not folder.is_dir():
        return {}
    files = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob(f"*{PROMPT_SUFFIX}")
    }
    return dict(sorted(files.items()))


def _read_prompt(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > 4 * MAX_TEMPLATE:
        raise TemplateError(f"is not text of at most {MAX_TEMPLATE:,} characters")
    return path.read_text("utf-8-sig")


def _line_of(variable: str, path: Path) -> int:
    lines = _read_prompt(path).splitlines()
    return next((i for i, line in enumerate(lines, 1) if variable in line), 1)
