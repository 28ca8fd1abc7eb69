"""Turn pydantic's errors into problems in plain words, with file, line and key of a study file."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from folkmoot.engine.settings.yaml_tree import (
    MAX_DIGITS,
    Path_,
    YamlTree,
    format_path,
    resolve_path,
)
from folkmoot.errors import Problem
from folkmoot.hidden_characters import hidden_in
from folkmoot.hints import did_you_mean, shorten

SECRET_KEYS = ("key", "api_key", "apikey", "openai_api_key", "anthropic_api_key", "token")
SECRET_HINT = "keys belong in the environment (OPENAI_API_KEY, …) or in .env, never in a study file"

# Texts of these keys are shown in lists, tables and charts, so they must not contain line breaks.
LABEL_KEYS = ("options", "title", "name", "names", "id", "label", "labels", "category")

# Pydantic's error type → message. Placeholders are filled from the context of the error. For all
# other types pydantic's own message is used.
_MESSAGES_BY_ERROR_TYPE = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "dict_type": "must be a group of keys",
    "model_type": "must be a group of keys",
    "model_attributes_type": "must be a group of keys",
    "path_type": "must be a path",
    "none_required": "must be empty",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "needs at least {min_length} entries",
    "too_long": "can have at most {max_length} entries",
    "union_tag_not_found": "does not say which kind it is (key {discriminator})",
    "union_tag_invalid": "must be of one of the kinds {expected_tags}",
    "url_scheme": "must start with http:// or https://",
}
# Endings of error types with a message that also quotes the value of the file.
_SHOWS_VALUE = ("_type", "_parsing", "_from_float", "than", "than_equal", "literal_error", "enum")


def problems_from_validation(
    error: ValidationError, tree: YamlTree, model: type[BaseModel]
) -> list[Problem]:
    """Return the errors of a validation as problems, one for each key.

    If a missing key resembles an unknown key, only the unknown key is reported, with a hint.
    """
    found: dict[Path_, list[str]] = {}
    hints: dict[Path_, str] = {}
    details = [(e, _file_path_of_error(e, tree)) for e in error.errors(include_url=False)]
    places = {path for _, path in details}
    missing = {path for e, path in details if e["type"] == "missing"}
    for detail, path in details:
        # Pydantic does not count wrong entries of a list, so it reports the list as too short as
        # well. The wrong entries are reported already.
        if detail["type"] == "too_short" and any(place[:-1] == path and place for place in places):
            continue
        message, hint = _describe_error(detail, path, model, missing)
        if detail["type"] == "value_error":
            path, message = _split_key_prefix(path, message, tree)  # noqa: PLW2901
        if message not in found.setdefault(path, []):
            found[path].append(message)
        hints[path] = hints.get(path) or hint
    for path, hint in list(hints.items()):
        meant = hint.removeprefix("did you mean ").removesuffix("?")
        if hint.startswith("did you mean ") and (*path[:-1], meant) in missing:
            found.pop((*path[:-1], meant), None)
    located = [
        located_problem(" or ".join(messages), path, tree, hints[path])
        for path, messages in found.items()
    ]
    return located


def located_problem(message: str, path: Path_, tree: YamlTree, hint: str = "") -> Problem:
    """Return a problem with the file and the line of the value at a path."""
    place = tree.nearest_location(path)
    # A key that is missing at the top level has no line. Line 1 would mislead the reader.
    placed = bool(place.line) and path[:1] in tree.locations and bool(path)
    line = str(place.line) if placed else ""
    return Problem(message, place.file, line, format_path(path), hint)


def find_hidden_characters(tree: YamlTree) -> list[Problem]:
    """Return a problem for each invisible character in a key or text.

    Line breaks in labels count as well (`LABEL_KEYS`).
    """
    problems = []

    def check_value(value: object, path: Path_) -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                if isinstance(key, str) and (found := hidden_in(key, label=True)):
                    problems.append(
                        _hidden_character_problem(f"a key holds {found}", (*path, key), tree)
                    )
                check_value(below, (*path, key))
        elif isinstance(value, (list, tuple)):
            for index, below in enumerate(value):
                check_value(below, (*path, index))
        elif isinstance(value, str):
            # Entries of a list belong to the last key above them.
            names = [part for part in path if isinstance(part, str)]
            label = bool(names) and names[-1] in LABEL_KEYS
            if found := hidden_in(value, label=label):
                problems.append(_hidden_character_problem(f"holds {found}", path, tree))

    check_value(tree.value, ())
    return problems


def _hidden_character_problem(message: str, path: Path_, tree: YamlTree) -> Problem:
    return located_problem(f"{message}; it is invisible", path, tree, "delete it")


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems sorted by line, without duplicates. Those without a line come last."""
    told = list(dict.fromkeys(problems))
    return sorted(
        told, key=lambda problem: int(problem.where) if problem.where.isdigit() else sys.maxsize
    )


def allowed_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the names of the keys that are allowed in the group at this path."""
    # A union has several types at a path, so all of them are followed.
    kinds: list[object] = [model]
    for part in path:
        kinds = [inner for kind in kinds for inner in _descend_type(kind, part)]
    return [name for kind in kinds for each in _models_in_type(kind) for name in _field_names(each)]


def _describe_error(
    detail: ErrorDetails, path: Path_, model: type[BaseModel], missing: set[Path_]
) -> tuple[str, str]:
    kind = detail["type"]
    context = {key: _format_limit(value) for key, value in (detail.get("ctx") or {}).items()}
    if kind == "extra_forbidden":
        return "unknown key", _suggest_key(path, model, missing)
    if kind in ("literal_error", "enum"):
        return _list_allowed_values(detail)
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", detail["msg"])), ""
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty", ""
    words = _MESSAGES_BY_ERROR_TYPE.get(kind)
    if words is None:
        return detail["msg"][:1].lower() + detail["msg"][1:], ""
    text = words.format_map(context)
    if text.endswith(" 1 entries"):
        text = text.replace("1 entries", "1 entry")
    shows = kind.endswith(_SHOWS_VALUE)
    return (f"{text}, is {_format_value(detail['input'])}" if shows else text), _suggest_value(
        detail
    )


def _format_limit(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value


def _split_key_prefix(path: Path_, message: str, tree: YamlTree) -> tuple[Path_, str]:
    """Move the key at the beginning of a message, such as `mapping: …`, into the path.

    Validators of several keys raise ValueError with the key in front. Return path and message
    unchanged if the message does not begin with a key of the file.
    """
    key, colon, rest = message.partition(": ")
    inside = tree.value
    for part in path:
        inside = inside[part]
    found = resolve_path(inside, key) if colon and isinstance(inside, dict) else ()
    # `resolve_path` goes as far as it can. Only a key that it resolves completely counts.
    return ((*path, *found), rest) if found and format_path(found) == key else (path, message)


def _list_allowed_values(detail: ErrorDetails) -> tuple[str, str]:
    # Pydantic gives the options as text: "'a', 'b' or 'c'".
    expected = str(detail.get("ctx", {}).get("expected", ""))
    options = [
        option.strip(" '")
        for option in expected.replace(" or ", ", ").split(",")
        if option.strip(" '")
    ]
    value = detail["input"]
    hint = did_you_mean(value, options) if isinstance(value, str) else ""
    return f"must be one of {', '.join(options)}, is {_format_value(value)}", hint


def _suggest_key(path: Path_, model: type[BaseModel], missing: set[Path_]) -> str:
    name = str(path[-1]) if path else ""
    if name.lower() in SECRET_KEYS:
        return SECRET_HINT
    instead: Mapping[str, str] = getattr(model, "INSTEAD_OF", {})
    # A study type may say which of its keys replaces a setting of its source project.
    if len(path) == 1 and (own := instead.get(name.upper())):
        return own
    # Missing keys are better guesses than keys that the file may have already.
    wanted = [str(p[-1]) for p in missing if p[:-1] == path[:-1]]
    known = allowed_keys(model, path[:-1])
    if likely := did_you_mean(name, wanted) or did_you_mean(name, known):
        return likely
    if path[:-1] and known:
        return f"known here are {', '.join(known)}"
    return "`folkmoot new` writes a study file with all keys"


def _suggest_value(detail: ErrorDetails) -> str:
    value = detail["input"]
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str):
        digits = value.replace("_", "").replace(",", "")
        # `int` of a very long text takes quadratic time, and Python limits its length.
        if digits.isdecimal() and len(digits) <= MAX_DIGITS:
            return f"write {int(digits)}"
    return ""


def _file_path_of_error(detail: ErrorDetails, tree: YamlTree) -> Path_:
    """Return the path of an error in the file: pydantic's location without union branches."""
    path: list[str | int] = []
    value = tree.value
    last = len(detail["loc"]) - 1
    for index, part in enumerate(detail["loc"]):
        inside = isinstance(value, dict) and part in value
        if inside or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            path.append(part)
            value = value[part]
        # A missing key is not in the data, but its name belongs to the path.
        elif index == last and detail["type"] == "missing":
            path.append(part)
        elif part == "[key]" and path:
            break
    return tuple(path)


def _descend_type(kind: Any, part: str | int) -> list[Any]:
    found = [
        m.model_fields[part].annotation for m in _models_in_type(kind) if part in m.model_fields
    ]
    if found:
        return found
    return [a for a in _type_arguments(kind) if a is not str and a is not int]


def _models_in_type(kind: object) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    if typing.get_origin(kind) in (list, tuple, dict, set):
        return []
    return [m for a in typing.get_args(kind) for m in _models_in_type(a)]


def _type_arguments(kind: object) -> list[object]:
    """Return the types inside `list[…]`, `dict[…]` and the like, also within a union with None."""
    if typing.get_origin(kind) in (list, tuple, dict, set):
        return list(typing.get_args(kind))
    return [inner for a in typing.get_args(kind) for inner in _type_arguments(a)]


def _field_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _format_value(value: object) -> str:
    # As the study file spells it, not as Python does.
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)):
        return "a group of keys" if isinstance(value, dict) else "a list"
    text = f'"{value}"' if isinstance(value, str) else f"{value}"
    if isinstance(value, str) and len(value) > MAX_DIGITS and value.isdecimal():
        return f"a number of {len(value):,} digits"
    return shorten(text, 60)


def with_location(problem: Problem, file: str, line: int) -> Problem:
    """Return a problem with its file and, unless it has a location, its line (0 if unknown)."""
    where = problem.where or (str(line) if line else "")
    return Problem(problem.message, file, where, problem.key, problem.hint)
