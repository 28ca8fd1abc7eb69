"""YAML read with the place of every value, and without the traps of YAML 1.1; values changed at a
path, by `--set key=value` and by repairs while checking.

`no`, `on`, `1e3`, `010`, `12:30` and dates keep their text, so that the type which the study file
wants decides what they mean (see `coerce_scalar`). Used by `study_file.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from folkmoot.errors import InputError, Problem

Path_ = tuple[str | int, ...]
MAX_NODES = 100_000
MAX_DIGITS = 300
PLAIN = "plain"
_CORE = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOOLEAN_WORDS = {"yes": True, "on": True, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where a value stands: file, line from 1 (0: not in a file), its text if it was plain."""

    file: str
    line: int
    text: str | None = None


@dataclass(slots=True)
class YamlTree:
    """Values as plain Python data, with the place of each by its path from the root."""

    value: Any
    locations: dict[Path_, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def nearest_location(self, path: Path_) -> SourceLocation:
        """The place of the value, or of the nearest group around it that is in the file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.locations:
                return self.locations[path[:end]]
        return SourceLocation("", 0)


def parse_yaml(text: str, file: str) -> YamlTree:
    """Read one YAML document. Problems of content are collected in the tree.

    Raises InputError when the text is no YAML at all.
    """
    try:
        root = yaml.compose(text, Loader=_YamlLoader)
    except yaml.MarkedYAMLError as error:
        raise InputError(_syntax_problem(error, file)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise InputError(
            Problem("there is a control character here", file, str(line), hint="delete it")
        ) from error
    except _TooManyNodesError as error:
        raise InputError(
            Problem(f"more than {MAX_NODES:,} values up to here", file, str(error))
        ) from error
    except RecursionError as error:
        raise InputError(Problem("the file is nested too deeply", file)) from error
    tree = YamlTree(None)
    if root is not None:
        tree.value = _TreeBuilder(file, tree)._build_value(root, ())
    return tree


def coerce_scalar(error_type: str, place: SourceLocation, value: object) -> object:
    """A value re-read as the type that was wanted, or `...` when there is no safe reading.

    `error_type` is pydantic's error type. Only plain, unquoted values are re-read: `no` where text
    is wanted is the word, where true or false is wanted it is false.
    """
    text = place.text
    if error_type == "string_type" and text is not None and not isinstance(value, str):
        return ... if value is None else text
    if error_type == "bool_type" and text is not None and text.lower() in _BOOLEAN_WORDS:
        return _BOOLEAN_WORDS[text.lower()]
    if error_type in ("int_type", "int_from_float") and isinstance(value, float):
        return int(value) if value.is_integer() else ...
    return ...


class _TooManyNodesError(Exception):
    """More values than any study file has; the argument is the line."""


class _YamlLoader(yaml.SafeLoader):
    """SafeLoader that leaves plain scalars unresolved and counts what it builds."""

    _built = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._built += 1
        if self._built > MAX_NODES:
            raise _TooManyNodesError(self.peek_event().start_mark.line + 1)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return PLAIN
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


class _TreeBuilder:
    """Turns nodes into values; keeps count, because aliases can multiply without end."""

    def __init__(self, file: str, tree: YamlTree) -> None:
        self._file = file
        self._tree = tree
        self._open: set[int] = set()
        self._count = 0

    def _build_value(self, node: yaml.Node, path: Path_, key_line: int = 0) -> object:
        self._count += 1
        if self._count > MAX_NODES or id(node) in self._open:
            raise InputError(
                Problem("aliases (&, *) expand without end", self._file, str(_line_number(node)))
            )
        line = key_line or _line_number(node)
        plain = node.value if node.tag == PLAIN else None
        self._tree.locations[path] = SourceLocation(self._file, line, plain)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._build_mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self._build_value(name, (*path, i)) for i, name in enumerate(node.value)]
            return self._build_scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _build_mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, object]:
        if node.tag != _CORE + "map":
            self._bad_tag(node, path)
        result: dict[str, object] = {}
        own: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem("a key must be a single word or text", key_node, path)
                continue
            key, line = _join_surrogates(key_node.value), _line_number(key_node)
            if key == "<<" and key_node.tag == PLAIN:
                merged = self._resolve_merge_keys(value_node, path)
                result = {**merged, **result}
                continue
            if key in own:
                where = f"first in line {own[key]}, again here"
                self._add_problem(f"is a duplicate key ({where})", key_node, (*path, key))
                continue
            own[key] = line
            result[key] = self._build_value(value_node, (*path, key), line)
        return result

    def _resolve_merge_keys(self, node: yaml.Node, path: Path_) -> dict[str, object]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for each in nodes:
            value = self._build_value(each, path)
            if isinstance(value, dict):
                result = {**value, **result}
            else:
                self._add_problem("<< needs a group of keys", each, path)
        return result

    def _build_scalar(self, node: yaml.Node, path: Path_) -> object:
        if node.tag == PLAIN:
            return _parse_plain_scalar(str(node.value))
        if node.tag not in (_CORE + "str", "!"):
            self._bad_tag(node, path)
        return _join_surrogates(node.value)

    def _bad_tag(self, node: yaml.Node, path: Path_) -> None:
        tag = node.tag.replace(_CORE, "!!")
        self._add_problem(f"the tag {tag} is not understood", node, path, "leave it out")

    def _add_problem(self, message: str, node: yaml.Node, path: Path_, hint: str = "") -> None:
        self._tree.problems.append(
            Problem(message, self._file, str(_line_number(node)), format_path(path), hint)
        )


def format_path(path: Path_) -> str:
    """A path as people write it: `topic.options[1]` (entries counted from 1)."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def resolve_path(value: object, key: str) -> Path_:
    """The path that a dotted key means in this data; as far as it goes. Entries count from 1."""
    return tuple(_resolve_parts(value, key))


def _resolve_parts(value: object, key: str) -> Iterator[str | int]:
    while key:
        entry = re.match(r"\.?\[([0-9]{1,9})\]", key)
        if entry and isinstance(value, list) and 1 <= int(entry[1]) <= len(value):
            yield int(entry[1]) - 1
            value, key = value[int(entry[1]) - 1], key[entry.end() :]
            continue
        key = key.removeprefix(".")
        if not isinstance(value, dict):
            return
        # Keys may hold dots themselves (options do), so the longest that fits is meant.
        fits = [k for k in value if key == k or key.startswith((f"{k}.", f"{k}["))]
        if not fits:
            return
        name = max(fits, key=len)
        yield name
        value, key = value[name], key[len(name) :]


def _join_surrogates(text: str) -> str:
    """JSON writes an emoji as two halves; they are put together."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _parse_plain_scalar(text: str) -> object:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if len(text) > MAX_DIGITS:
        return text  # where a number is wanted, the type of the key says so
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _line_number(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = str(mark.line + 1) if mark else ""
    what = str(error.problem or "this is not valid YAML")
    if "\\t" in what:
        return Problem("there is a tab here", file, line, hint="indent with spaces")
    if "expected a single document" in str(error.context):
        return Problem("a second document starts here (---)", file, line, hint="keep one")
    if "mapping values are not allowed" in what:
        what, hint = "there is a colon in the wrong place", "put text that holds `: ` in quotes"
    elif "could not find expected ':'" in what:
        what, hint = "a colon is missing after a key here or in the line before", "write `key: …`"
    elif "expected <block end>" in what:
        what, hint = "the indentation does not fit", "indent the keys of one group alike"
    elif "found unexpected end of stream" in what:
        what, hint = "a quote is not closed", "close it"
    elif "undefined alias" in what:
        hint = "put text that begins with * in quotes"
    else:
        hint = "put text that begins with a special character in quotes"
    return Problem(what, file, line, hint=hint)


SET_OPTION = "--set"


def apply_overrides(tree: YamlTree, overrides: Sequence[str]) -> None:
    """Put `key=value` overrides into the tree."""
    for text in overrides:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InputError(
                Problem(
                    f"{text!r} is not key=value", SET_OPTION, hint="for example --set random_seed=7"
                )
            )
        key = key.strip()
        part = parse_yaml(value, SET_OPTION)
        path = resolve_path(tree.value, key)
        rest = key if not path else _rest_of_key(key, path)
        path = (*path, *(rest.split(".") if rest else ()))
        if not set_value(tree.value, path, part.value):
            raise InputError(Problem(f"no group of keys holds {key}", SET_OPTION, key=key))
        for below, place in part.locations.items():
            tree.locations[(*path, *below)] = SourceLocation(place.file, 0, place.text)


def _rest_of_key(key: str, path: Path_) -> str:
    """What of a dotted key comes after the part that the file already holds."""
    for part in path:
        if isinstance(part, int):
            key = key[key.index("]") + 1 :]
        else:
            key = key.removeprefix(".").removeprefix(part)
    return key.removeprefix(".")


def existing_path(data: Any, loc: Sequence[str | int]) -> Path_ | None:
    """The part of pydantic's location that is in the data; None for a missing key."""
    path: list[str | int] = []
    for part in loc:
        inside = isinstance(data, dict) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            path.append(part)
            data = data[part]
    return tuple(path) if path or not loc else None


def get_value(data: Any, path: Path_) -> Any:
    for part in path:
        data = data[part]
    return data


def set_value(data: Any, path: Path_, value: Any) -> bool:
    """Set the value at a path, making groups on the way; False when something else is there."""
    for part in path[:-1]:
        if isinstance(data, dict) and data.get(part) is None:
            data[part] = {}
        if not _can_descend(data, part):
            return False
        data = data[part]
    if not _can_descend(data, path[-1]):
        return False
    data[path[-1]] = value
    return True


def _can_descend(data: object, part: str | int) -> bool:
    return isinstance(data, dict) or (isinstance(data, list) and isinstance(part, int))
