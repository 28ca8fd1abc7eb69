"""Prompts: one file each, rendered in a sandbox, each replaceable by a file of the user's own.

A library is the folder of a study type's prompts and, over it, the folder that a study file names
under `prompts:`. Wording is kept exactly; only `{{ variable }}` and `{% … %}` are interpreted.

Text that several prompts share is a separate prompt. A line `{% include "name" %}` inserts it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, wraps
from pathlib import Path
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
from folkmoot.hints import did_you_mean
from folkmoot.provenance import (
    SourcedText,
    Span,
    alter_text,
    concatenate_texts,
    derive_number,
    escape_text,
    join_texts,
    source_of,
    with_sources,
)

PROMPT_SUFFIX = ".md"
_INCLUDE = re.compile(r'^\{% include "([^"]+)" %\}\n?', re.MULTILINE)
# What stands in a text while it is rendered: `{{ cache }}`, and where an interpolated text begins
# and ends. These characters are reserved by Unicode for such uses; they are taken out of all texts.
CACHE_MARK, OPEN, CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
RESERVED = dict.fromkeys(map(ord, (CACHE_MARK, OPEN, CLOSE)))
_MARKS = re.compile(f"[{CACHE_MARK}{OPEN}{CLOSE}]")
SOURCES = "_sources"  # the variable under which a rendering collects what it interpolates
MAX_PROMPT_CHARACTERS = 2_000_000
ALLOWED_FILTERS = (
    *("abs", "capitalize", "count", "default", "d", "dictsort", "first", "float", "indent"),
    *("int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject"),
    *("rejectattr", "replace", "reverse", "round", "select", "selectattr", "sort", "string"),
    *("sum", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)


# Filters that give another text, of the same source.
CHANGING = ("capitalize", "lower", "title", "trim", "truncate", "upper", "replace", "indent")
# … and those that give another number.
NUMERIC = ("abs", "float", "int", "round")


class Prompt(SourcedText):
    """A rendered prompt: `spans` say whose its parts are, and its beginnings of so many characters
    (`cache_breakpoints`) stand in other prompts too."""

    __slots__ = ("cache_breakpoints",)
    cache_breakpoints: tuple[int, ...]

    def __new__(
        cls, text: str = "", spans: Iterable[Span] = (), begins: Iterable[int] = ()
    ) -> Self:
        self = super().__new__(cls, text, spans)
        self.cache_breakpoints = tuple(begins)
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.spans, self.cache_breakpoints


class PromptLibrary:
    """The prompts of one run: shipped ones, and the user's where there are any.

    Raises InputError from `render_prompt` when a prompt of the user's own fails, ProtocolError when
    a shipped one does.
    """

    def __init__(self, folder: Path | None, override_folder: Path | None = None) -> None:
        self.folder = folder
        self.overrides = override_folder
        self._shipped_env = create_environment()
        self._own_env = create_environment(untrusted=True)
        self._templates: dict[str, Template] = {}
        self._replaced: dict[str, str] = {}  # name → prompt of the user's own in it, or ""

    @cached_property
    def prompt_files(self) -> dict[str, Path]:
        """Name of each prompt (path below the folder, without `.md`) and the file that holds it."""
        own = {
            name: path
            for name, path in _prompt_files(self.overrides).items()
            if name in self.default_prompts
        }
        return {name: own.get(name, path) for name, path in self.default_prompts.items()}

    @cached_property
    def default_prompts(self) -> dict[str, Path]:
        """The study type's own prompts."""
        return _prompt_files(self.folder)

    def render_prompt(self, name: str, /, **variables: object) -> Prompt:
        """The prompt's text with its variables filled in, without white space at the ends. It knows
        the sources of its variables, as far as they are `Quoted`."""
        template = self._templates.get(name)
        if template is None:
            template = self._templates[name] = self._compile(name)
        interpolated: list[SourcedText] = []
        known = {**variables, SOURCES: interpolated}
        try:
            if not self._find_replaced(name):
                return read_marks(template.render(known), interpolated)
            # Only a user's own prompt can be endless.
            text = "".join(
                _join_limited(template.generate({**known, WORK_VARIABLE: WorkCounter()}))
            )
            return read_marks(text, interpolated)
        except RENDER_ERRORS as error:
            raise self._render_error(name, str(error) or type(error).__name__) from error

    def hashes(self) -> dict[str, str]:
        """Name → SHA-256 of the file that is used, in order of name, for the sealed plan."""
        return {
            name: hashlib.sha256(prompt_file.read_bytes()).hexdigest()
            for name, prompt_file in self.prompt_files.items()
        }

    def source_texts(self) -> dict[str, str]:
        """Name → the file that is used, before anything is filled in."""
        return {name: _read_prompt(path) for name, path in self.prompt_files.items()}

    def variables_of(self, name: str) -> frozenset[str]:
        """The variables that the shipped prompt of this name uses."""
        return _find_variables(self._shipped_env, read_source(name, self.default_prompts))

    def find_problems(self) -> list[Problem]:
        """Every mistake in the user's prompts: unknown files, unknown variables, bad syntax."""
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
            used, known = _find_variables(self._own_env, source), self.variables_of(name)
            self._own_env.from_string(source)
        except TemplateSyntaxError as error:
            return [Problem(error.message or "bad syntax", str(path), where=str(error.lineno))]
        except (RecursionError, MemoryError, SyntaxError):
            return [Problem("nested too deeply", str(path), hint="simplify the template")]
        except (*RENDER_ERRORS, OSError) as error:
            return [Problem(str(error), str(path))]
        return [
            Problem(
                f"unknown variable {variable}",
                str(path),
                where=str(_line_of(variable, path)),
                hint=did_you_mean(variable, known) or "known are: " + ", ".join(sorted(known)),
            )
            for variable in sorted(used - known)
        ]

    def _find_replaced(self, name: str) -> str:
        """Return which of a prompt and the prompts that it includes is the user's own, or ""."""
        if name not in self._replaced:
            parts = (name, *_INCLUDE.findall(_read_prompt(self.prompt_files[name])))
            own = (
                part
                for part in parts
                if self.prompt_files.get(part) != self.default_prompts.get(part)
            )
            self._replaced[name] = next(own, "")
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
            env = self._own_env if self._find_replaced(name) else self._shipped_env
            template = env.from_string(read_source(name, self.prompt_files))
            # jinja2 chains maps here and walks the chain at every rendering.
            template.globals = dict(template.globals)
            return template
        except RENDER_ERRORS as error:
            raise self._render_error(name, str(error) or type(error).__name__) from error

    def _render_error(self, name: str, why: str) -> InputError | ProtocolError:
        if own := self._find_replaced(name):
            return InputError(Problem(why, file=str(self.prompt_files[own]), key=f"prompt {own}"))
        return ProtocolError(f"prompt {name} ({self.prompt_files[name]}): {why}")


def create_environment(*, untrusted: bool = False) -> TemplateSandbox:
    """A sandbox that can loop, test and format; `untrusted` for prompts of somebody else."""
    env = TemplateSandbox(
        ALLOWED_PROMPT_NODES if untrusted else (),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=mark_source,
    )
    env.filters |= {name: keep_source(env.filters[name]) for name in CHANGING}
    env.filters |= {name: keep_number(env.filters[name]) for name in NUMERIC}
    env.filters |= {
        "json": _as_json,
        "tojson": _as_json,
        "listed": format_option_list,
        "join": _join_with_sources,
    }
    env.restrict_filters((*ALLOWED_FILTERS, "json", "tojson", "listed"))
    env.globals = {"range": env.globals["range"], "cache": CACHE_MARK}
    return env


def read_source(name: str, files: Mapping[str, Path]) -> str:
    """Return the source of a prompt with the prompts that it includes in place of their lines.

    Raises TemplateError for an included prompt that there is not, or that includes another.
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
    """What `{{ value }}` writes: the text between marks, so that its place can be found."""
    text = with_sources(value)
    if not text.isascii() and _MARKS.search(text):
        if text == CACHE_MARK:
            return CACHE_MARK
        text = escape_text(text, lambda part: part.translate(RESERVED))
    if not text.spans:
        return str(text)
    context[SOURCES].append(text)
    return f"{OPEN}{text}{CLOSE}"


def read_marks(marked: str, interpolated: list[SourcedText]) -> Prompt:
    """The rendered text without marks and white space at its ends, and what the marks told."""
    if not _MARKS.search(marked):
        return Prompt(marked.strip())
    pieces: list[str] = []
    spans: list[Span] = []
    begins: list[int] = []
    waiting = iter(interpolated)
    at = length = 0
    for mark in _MARKS.finditer(marked):
        pieces.append(marked[at : mark.start()])
        length += mark.start() - at
        at = mark.end()
        if mark[0] == CACHE_MARK:
            begins.append(length)
        elif mark[0] == OPEN:
            text = next(waiting)
            if not marked.startswith(text, at):
                raise ProtocolError(f"a text was changed while it was rendered: {text[:60]!r}")
            spans += [span.shift_span(length) for span in text.spans]
    pieces.append(marked[at:])
    whole = "".join(pieces)
    plain = whole.strip()
    skipped = len(whole) - len(whole.lstrip())
    ends = (min(max(0, end - skipped), len(plain)) for end in begins)
    return Prompt(plain, cut_spans(spans, skipped, len(plain)), dict.fromkeys(ends))


def cut_spans(spans: Iterable[Span], skipped: int, length: int) -> Iterator[Span]:
    """Yield the spans of a text that lost white space at both ends: `skipped` characters before it,
    and all after the next `length`."""
    for span in spans:
        start, end = max(0, span.start - skipped), min(length, span.end - skipped)
        if start < end:
            yield Span(start, end, span.source)


def keep_source(change: Callable[..., str]) -> Callable[..., object]:
    """A filter that keeps the source of the text that it changes."""
    before = 1 if hasattr(change, "jinja_pass_arg") else 0  # jinja2's own argument comes first

    @wraps(change)
    def change_with_source(*given: Any, **named: Any) -> object:
        text = given[before]
        if not isinstance(text, SourcedText):
            if source_of(text) is None:
                return change(*given, **named)
            text = with_sources(text)
        return alter_text(text, change(*given[:before], str(text), *given[before + 1 :], **named))

    return change_with_source


def keep_number(change: Callable[..., object]) -> Callable[..., object]:
    """A filter that keeps the source of the number or text of which it makes a number."""

    @wraps(change)
    def change_number_with_source(value: object, *given: Any, **named: Any) -> object:
        return derive_number(change(value, *given, **named), (value,))

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
    """JSON that keeps the sources of the texts in it."""
    # jinja2's own escapes <, > and & for web pages, which would change the wording.
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
    """Return a text as it stands between the quotation marks of JSON, with its sources."""
    return escape_text(with_sources(text), lambda part: json.dumps(part, ensure_ascii=False)[1:-1])


def _prompt_files(folder: Path | None) -> dict[str, Path]:
    if folder is None or not folder.is_dir():
        return {}
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob(f"*{PROMPT_SUFFIX}")
    }
    return dict(sorted(found.items()))


def _read_prompt(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > 4 * MAX_TEMPLATE:
        raise TemplateError(f"is not text of at most {MAX_TEMPLATE:,} characters")
    return path.read_text("utf-8-sig")


def _line_of(variable: str, path: Path) -> int:
    lines = _read_prompt(path).splitlines()
    return next((i for i, line in enumerate(lines, 1) if variable in line), 1)
