"""Turn pydantic's errors into problems in plain words. A problem names file, line and key."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.yaml_tree import (
    MAX_DIGITS,
    KeyPath,
    YamlTree,
    format_path,
    resolve_path,
)
from folkmoot.errors import Problem
from folkmoot.hidden_characters import hidden_in
from folkmoot.hints import did_you_mean, number_text, shorten

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
_DECIMAL_COMMA = re.compile(r"\d+,(?:\d{1,2}|\d{4,})")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_SHOWS_VALUE = ("_type", "_parsing", "_from_float", "than", "than_equal", "literal_error", "enum")


def problems_from_validation(
    error: ValidationError, tree: YamlTree, model: type[BaseModel]
) -> list[Problem]:
    """Return the errors of a validation as problems, one for each key."""
    # If an unknown key resembles a missing key, only the unknown key is reported. The hint then
    # names the missing key.
    messages_by_path: dict[KeyPath, list[str]] = {}
    hints: dict[KeyPath, str] = {}
    details = [
        (error_details, _file_path_of_error(error_details, tree))
        for error_details in error.errors(include_url=False)
    ]
    paths = {path for _, path in details}
    missing_paths = {path for error_details, path in details if error_details["type"] == "missing"}
    for detail, path in details:
        # Pydantic does not count wrong entries of a list, so it reports the list as too short as
        # well. The wrong entries are reported already.
        if detail["type"] == "too_short" and any(other[:-1] == path and other for other in paths):
            continue
        message, hint = _describe_error(detail, path, model, missing_paths)
        if detail["type"] == "value_error":
            path, message = _split_key_prefix(path, message, tree)  # noqa: PLW2901
        if message not in messages_by_path.setdefault(path, []):
            messages_by_path[path].append(message)
        hints[path] = hints.get(path) or hint
    for path, hint in list(hints.items()):
        suggested_key = hint.removeprefix("did you mean ").removesuffix("?")
        if hint.startswith("did you mean ") and (*path[:-1], suggested_key) in missing_paths:
            messages_by_path.pop((*path[:-1], suggested_key), None)
    problems = [
        located_problem(" or ".join(messages), path, tree, hints[path])
        for path, messages in messages_by_path.items()
    ]
    return problems


def located_problem(message: str, path: KeyPath, tree: YamlTree, hint: str = "") -> Problem:
    """Return a problem that names the file and the line of the value at `path`."""
    location = tree.nearest_location(path)
    # A key that is missing at the top level has no line. Line 1 would mislead the reader.
    has_line = bool(location.line) and path[:1] in tree.locations and bool(path)
    line = str(location.line) if has_line else ""
    return Problem(message, location.file, line, format_path(path), hint)


def find_hidden_characters(tree: YamlTree) -> list[Problem]:
    """Return a problem for each invisible character in a key or text."""
    # Line breaks in labels (`LABEL_KEYS`) are reported as well.
    problems = []

    def check_value(value: object, path: KeyPath) -> None:
        if isinstance(value, dict):
            for key, inner_value in value.items():
                if isinstance(key, str) and (found := hidden_in(key, label=True)):
                    problems.append(
                        _hidden_character_problem(f"a key holds {found}", (*path, key), tree)
                    )
                check_value(inner_value, (*path, key))
        elif isinstance(value, (list, tuple)):
            for index, inner_value in enumerate(value):
                check_value(inner_value, (*path, index))
        elif isinstance(value, str):
            # Entries of a list belong to the last key above them.
            names = [part for part in path if isinstance(part, str)]
            is_label = bool(names) and names[-1] in LABEL_KEYS
            if found := hidden_in(value, label=is_label):
                problems.append(_hidden_character_problem(f"holds {found}", path, tree))

    check_value(tree.value, ())
    return problems


def _hidden_character_problem(message: str, path: KeyPath, tree: YamlTree) -> Problem:
    return located_problem(f"{message}; it is invisible", path, tree, "delete it")


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems sorted by line, without duplicates."""
    # Problems without a line come last.
    distinct = list(dict.fromkeys(problems))
    return sorted(
        distinct, key=lambda problem: int(problem.where) if problem.where.isdigit() else sys.maxsize
    )


def allowed_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the names of the keys that are allowed in the group at this path."""
    # A union has several types at a path, so all of them are followed.
    types: list[object] = [model]
    for part in path:
        types = [inner for outer in types for inner in _descend_type(outer, part)]
    return [
        name
        for type_ in types
        for inner_model in _models_in_type(type_)
        for name in _field_names(inner_model)
    ]


def _describe_error(
    detail: ErrorDetails, path: KeyPath, model: type[BaseModel], missing_paths: set[KeyPath]
) -> tuple[str, str]:
    kind = detail["type"]
    context = {key: _format_limit(value) for key, value in (detail.get("ctx") or {}).items()}
    if kind == "extra_forbidden":
        return "unknown key", _suggest_key(path, model, missing_paths)
    if kind in ("literal_error", "enum"):
        return _list_allowed_values(detail)
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", detail["msg"])), ""
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty", ""
    template = _MESSAGES_BY_ERROR_TYPE.get(kind)
    if template is None:
        return detail["msg"][:1].lower() + detail["msg"][1:], ""
    text = template.format_map(context)
    if text.endswith(" 1 entries"):
        text = text.replace("1 entries", "1 entry")
    shows_value = kind.endswith(_SHOWS_VALUE)
    return (
        f"{text}, is {_format_value(detail['input'])}" if shows_value else text
    ), _suggest_value(detail)


def _format_limit(value: object) -> object:
    return number_text(value) if isinstance(value, float) else value


def _split_key_prefix(path: KeyPath, message: str, tree: YamlTree) -> tuple[KeyPath, str]:
    # The key at the beginning of a message, such as `mapping: …`, becomes a part of the path.
    key, colon, rest = message.partition(": ")
    parent = tree.value
    for part in path:
        parent = parent[part]
    key_path = resolve_path(parent, key) if colon and isinstance(parent, dict) else ()
    # `resolve_path` goes as far as it can. Only a key that it resolves completely counts.
    return (
        ((*path, *key_path), rest) if key_path and format_path(key_path) == key else (path, message)
    )


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


def _suggest_key(path: KeyPath, model: type[BaseModel], missing_paths: set[KeyPath]) -> str:
    name = str(path[-1]) if path else ""
    if name.lower() in SECRET_KEYS:
        return SECRET_HINT
    # A study type may say which of its keys replaces a setting of its source project.
    if len(path) == 1 and issubclass(model, StudyConfig) and name.upper() in model.INSTEAD_OF:
        return model.INSTEAD_OF[name.upper()]
    # Missing keys are better guesses than keys that the file may have already.
    missing_names = [
        str(missing_path[-1]) for missing_path in missing_paths if missing_path[:-1] == path[:-1]
    ]
    allowed = allowed_keys(model, path[:-1])
    if suggestion := did_you_mean(name, missing_names) or did_you_mean(name, allowed):
        return suggestion
    if path[:-1] and allowed:
        return f"known here: {', '.join(allowed)}"
    return "`folkmoot new` writes a study file with all keys"


def _suggest_value(detail: ErrorDetails) -> str:
    value = detail["input"]
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str):
        # In 1,000 the comma separates thousands, and in 1,50 it is a decimal comma.
        is_decimal = detail["type"] == "float_type" and _DECIMAL_COMMA.fullmatch(value)
        if is_decimal and len(value) <= MAX_DIGITS:
            return f"write {value.replace(',', '.')}"
        if "," in value and not _THOUSANDS.fullmatch(value):
            return ""
        digits = value.replace("_", "").replace(",", "")
        # `int` of a very long text takes quadratic time, and Python limits its length.
        if digits.isdecimal() and len(digits) <= MAX_DIGITS:
            return f"write {int(digits)}"
    return ""


def _file_path_of_error(detail: ErrorDetails, tree: YamlTree) -> KeyPath:
    # pydantic's location also names union branches, which are no keys of the file.
    path: list[str | int] = []
    value = tree.value
    last = len(detail["loc"]) - 1
    for index, part in enumerate(detail["loc"]):
        is_key = isinstance(value, dict) and part in value
        if is_key or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            path.append(part)
            value = value[part]
        # A missing key is not in the data, but its name belongs to the path.
        elif index == last and detail["type"] == "missing":
            path.append(part)
        elif part == "[key]" and path:
            break
    return tuple(path)


def _descend_type(kind: Any, part: str | int) -> list[Any]:
    annotations = [
        inner_model.model_fields[part].annotation
        for inner_model in _models_in_type(kind)
        if part in inner_model.model_fields
    ]
    if annotations:
        return annotations
    return [
        argument
        for argument in _type_arguments(kind)
        if argument is not str and argument is not int
    ]


def _models_in_type(kind: object) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    if typing.get_origin(kind) in (list, tuple, dict, set):
        return []
    return [
        inner_model
        for argument in typing.get_args(kind)
        for inner_model in _models_in_type(argument)
    ]


def _type_arguments(kind: object) -> list[object]:
    # The types inside `list[…]`, `dict[…]` and similar types, also in a union with None.
    if typing.get_origin(kind) in (list, tuple, dict, set):
        return list(typing.get_args(kind))
    return [inner for argument in typing.get_args(kind) for inner in _type_arguments(argument)]


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
    """Return a copy of the problem that names a file and a line.

    - `line`: the number of the line, or 0 if unknown. A location in `problem` is kept.
    """
    # An existing location is kept.
    where = problem.where or (str(line) if line else "")
    return Problem(problem.message, file, where, problem.key, problem.hint)
