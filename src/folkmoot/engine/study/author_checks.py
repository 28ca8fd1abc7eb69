"""Check the functions and the annotations of fields that a study author wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from folkmoot.engine.settings.author_errors import locate_function
from folkmoot.hints import join_words
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.rows import Row


def kinds_of_annotation(annotation: object) -> set[object]:
    """Return the types that an annotation allows: those of a union or `Literal`, or itself."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds_of_annotation(arguments[0])
    if origin is Literal:
        return {type(value) for value in arguments}
    if origin in (Union, UnionType):
        return set().union(*map(kinds_of_annotation, arguments))
    return {annotation}


def is_kind_allowed(kind: object, allowed: set[object]) -> bool:
    """Return whether one of the allowed types includes the type `kind`."""
    classes = tuple(member for member in allowed if isinstance(member, type))
    is_subclass = isinstance(kind, type) and issubclass(kind, classes)
    # Every whole number is a valid float.
    return kind in allowed or is_subclass or (kind is int and float in allowed)


def accepts_arguments(function: Callable[..., object], count: int) -> bool:
    """Return whether a function can be called with this number of positional arguments."""
    # Parameters with defaults are allowed, so the number of parameters does not decide.
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        # Some functions of C have no known signature.
        return True
    return True


# The parameters of functions that a study type may leave out.
OPTIONAL_FUNCTIONS = {
    "preview": ("config", "prompts"),
    "stopping_rule": ("config",),
    "reply_unit": ("row",),
    "strict_tables": ("run", "answers"),
    "load_config": ("path",),
    "with_limit": ("config", "limit"),
    "from_polis": ("conversation", "comment"),
}


_TEXTS = ("name", "title", "question", "reply_unit_name", "source_model")
_LISTS_OF_TEXTS = ("roles", "compared_tables", "file_suffixes")
_DICTIONARIES = ("codebook", "importers")


def find_wrong_values(study: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the fields of a study type that hold no function, and a remedy."""
    if not isinstance(study.tables, (tuple, list)) or not all(
        isinstance(table, type) and issubclass(table, Row) for table in study.tables
    ):
        yield "tables= is not a list of classes of rows", "write `tables=(Vote,)`"
    if not isinstance(study.prompts, (Path, type(None))):
        yield "prompts= is not a path", 'write `prompts=Path(__file__).parent / "prompts"`'
    for name in _TEXTS:
        if not isinstance(getattr(study, name), str):
            yield f"{name}= is no text", f'write `{name}="…"`'
    if isinstance(study.name, str) and (not study.name.strip() or {*study.name} & {*"/\\"}):
        yield f"name= is no name: {study.name!r}", "choose a name without / and \\"
    for name in _LISTS_OF_TEXTS:
        texts = getattr(study, name)
        if not isinstance(texts, (tuple, list)) or not all(isinstance(text, str) for text in texts):
            yield f"{name}= is no list of texts", f'write `{name}=("…",)`'
    for name in _DICTIONARIES:
        if not isinstance(getattr(study, name), Mapping):
            yield f"{name}= is no dictionary", f'write `{name}={{"…": …}}`'


class WrongFunction(NamedTuple):
    """A function of a study type that cannot be called as Folkmoot calls it."""

    message: str
    hint: str
    # The file and the line, or None if they are unknown.
    location: tuple[str, int] | None


def find_wrong_functions(study: Any) -> Iterator[WrongFunction]:
    """Yield the functions of a study type that do not take the arguments they are called with.

    - `study`: a dataclass. The default of a field shows the parameters of its function.
    """
    for field in fields(study):
        default, function = field.default, getattr(study, field.name)
        parameters = OPTIONAL_FUNCTIONS.get(field.name, ())
        if inspect.isfunction(default):
            names = inspect.signature(default).parameters
            parameters = tuple(name.removeprefix("_") for name in names)
        if not parameters or function is default:
            continue
        hint = f"write `{field.name}=lambda {', '.join(parameters)}: …`"
        if not callable(function):
            yield WrongFunction(f"{field.name}= is not a function", hint, None)
        elif not accepts_arguments(function, len(parameters)):
            count = format_count(len(parameters), "argument")
            message = f"{field.name}= must take {count}: {join_words(parameters)}"
            yield WrongFunction(message, hint, locate_function(function))
