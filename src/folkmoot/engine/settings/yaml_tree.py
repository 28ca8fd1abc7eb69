"""Read YAML so that the line of every value is known, and change values at a path."""

# The parser avoids the pitfalls of YAML 1.1. `no`, `on`, `1e3`, `010`, `12:30` and dates keep their
# text, and the type of the key decides their meaning (`coerce_scalar`). `--set key=value` and the
# checks of study files change values.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from folkmoot.errors import InputError, Problem

# A path of keys and indices from the root. The underscore keeps it apart from `pathlib.Path`.
KeyPath = tuple[str | int, ...]
# More values than any study file has. A few lines of nested aliases could otherwise expand to more
# than the memory holds.
MAX_NODES = 100_000
# A longer number stays text: converting it takes quadratic time, and Python limits its length.
MAX_DIGITS = 300
# The tag of unquoted scalars, which stay unresolved.
PLAIN = "plain"
_CORE_TAG = "tag:yaml.org,2002:"
# Numbers as in JSON and YAML 1.2. YAML 1.1 would also read `010` as octal and `1_000` as a number.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# The words for a switch in a study file, in any case. The JSON Schema and the forms use them too.
BOOLEAN_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The location of a value in a file.

    Lines count from 1. Line 0 means that the value is not in a file.
    """

    file: str
    line: int
    # The spelling of an unquoted scalar, otherwise None.
    text: str | None = None


@dataclass(slots=True)
class YamlTree:
    """The data of a YAML document, with the location of each value."""

    value: Any
    # Path of a value from the root → its location.
    locations: dict[KeyPath, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def nearest_location(self, path: KeyPath) -> SourceLocation:
        """Return the location of the value at a path, or of the nearest group around the value."""
        # The group counts for a value that is not in the file.
        for end in range(len(path), -1, -1):
            if path[:end] in self.locations:
                return self.locations[path[:end]]
        return SourceLocation("", 0)


def parse_yaml(text: str, file: str) -> YamlTree:
    """Parse one YAML document.

    Raises InputError if the text is not valid YAML or is too large.
    """
    # Problems of its content are collected in the tree.
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


def coerce_scalar(error_type: str, location: SourceLocation, value: object) -> object:
    """Return a value converted to the type that the key of the value expects.

    - `error_type`: the type of pydantic's error, which tells the expected type.

    Returns `...` if the conversion is not safe.
    """
    # Only unquoted values are converted. For example, `no` becomes text if the key expects text,
    # and False if the key expects true or false.

    # `...` and not None, because None is a value of YAML.
    text = location.text
    if error_type == "string_type" and text is not None and not isinstance(value, str):
        return ... if value is None else text
    if error_type == "bool_type" and text is not None and text.lower() in BOOLEAN_WORDS:
        return BOOLEAN_WORDS[text.lower()]
    if error_type in ("int_type", "int_from_float") and isinstance(value, float):
        return int(value) if value.is_integer() else ...
    return ...


class _TooManyNodesError(Exception):
    """An error for a document with more than `MAX_NODES` values. It gives the line number."""


class _YamlLoader(yaml.SafeLoader):
    # Leaves unquoted scalars unresolved, and counts the nodes that it builds.

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
    # An alias builds the same node several times, so the values are counted again here.
    def __init__(self, file: str, tree: YamlTree) -> None:
        self._file = file
        self._tree = tree
        self._open: set[int] = set()
        self._count = 0

    def _build_value(self, node: yaml.Node, path: KeyPath, key_line: int = 0) -> object:
        self._count += 1
        # An open node that occurs inside itself is an alias to one of its own groups.
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
                return [self._build_value(child, (*path, i)) for i, child in enumerate(node.value)]
            return self._build_scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _build_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        if node.tag != _CORE_TAG + "map":
            self._bad_tag(node, path)
        result: dict[str, object] = {}
        lines_by_key: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem("a key must be a single word or text", key_node, path)
                continue
            key, line = _join_surrogates(key_node.value), _line_number(key_node)
            # A merge key of YAML 1.1. Keys of the mapping itself win over merged ones.
            if key == "<<" and key_node.tag == PLAIN:
                merged = self._resolve_merge_keys(value_node, path)
                result = {**merged, **result}
                continue
            # YAML would silently use the last value.
            if key in lines_by_key:
                where = f"first in line {lines_by_key[key]}, again here"
                self._add_problem(f"is a duplicate key ({where})", key_node, (*path, key))
                continue
            lines_by_key[key] = line
            result[key] = self._build_value(value_node, (*path, key), line)
        return result

    def _resolve_merge_keys(self, node: yaml.Node, path: KeyPath) -> dict[str, object]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for merged_node in nodes:
            value = self._build_value(merged_node, path)
            if isinstance(value, dict):
                result = {**value, **result}
            else:
                self._add_problem("<< needs a group of keys", merged_node, path)
        return result

    def _build_scalar(self, node: yaml.Node, path: KeyPath) -> object:
        if node.tag == PLAIN:
            return _parse_plain_scalar(str(node.value))
        if node.tag not in (_CORE_TAG + "str", "!"):
            self._bad_tag(node, path)
        return _join_surrogates(node.value)

    def _bad_tag(self, node: yaml.Node, path: KeyPath) -> None:
        tag = node.tag.replace(_CORE_TAG, "!!")
        self._add_problem(f"the tag {tag} is not supported", node, path, "leave it out")

    def _add_problem(self, message: str, node: yaml.Node, path: KeyPath, hint: str = "") -> None:
        self._tree.problems.append(
            Problem(message, self._file, str(_line_number(node)), format_path(path), hint)
        )


def format_path(path: KeyPath) -> str:
    """Return a path as text for messages, such as `topic.options[1]`."""
    # List entries count from 1.
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def resolve_path(value: object, key: str) -> KeyPath:
    """Return the path of a dotted key, up to the last part of the key that the data contain."""
    # List entries count from 1 in the key and from 0 in the path.
    return tuple(_resolve_parts(value, key))


def _resolve_parts(value: object, key: str) -> Iterator[str | int]:
    while key:
        index_match = re.match(r"\.?\[([0-9]{1,9})\]", key)
        if index_match and isinstance(value, list) and 1 <= int(index_match[1]) <= len(value):
            yield int(index_match[1]) - 1
            value, key = value[int(index_match[1]) - 1], key[index_match.end() :]
            continue
        key = key.removeprefix(".")
        if not isinstance(value, dict):
            return
        # Keys may contain dots, as options do, so the longest key that fits is meant.
        matching_keys = [k for k in value if key == k or key.startswith((f"{k}.", f"{k}["))]
        if not matching_keys:
            return
        name = max(matching_keys, key=len)
        yield name
        value, key = value[name], key[len(name) :]


def _join_surrogates(text: str) -> str:
    # JSON escapes an emoji as two halves, which PyYAML does not join.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _parse_plain_scalar(text: str) -> object:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    # If the key expects a number, validation reports the text.
    if len(text) > MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class StudyDumper(yaml.SafeDumper):
    """A YAML dumper for texts that `parse_yaml` must read back unchanged."""

    # PyYAML itself writes the text `1e5` without quotes, and `parse_yaml` would then read a number.
    # PyYAML also writes some line separators unescaped, and `parse_yaml` would then read spaces.


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return a text as a YAML node. The text is quoted if YAML would otherwise misread it."""
    # It needs quotes if `parse_yaml` would not read it back as text.
    style = "'" if _parse_plain_scalar(text) != text else None
    if any(separator in text for separator in ("\x85", "\u2028", "\u2029")):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


StudyDumper.add_representer(str, represent_text)


def dump_unwrapped(value: object, *, flow: bool, dumper: type[StudyDumper] = StudyDumper) -> str:
    """Return a value as YAML without line breaks inside texts.

    `flow`: True for one line with brackets, False for one line per entry.
    """
    text: str = yaml.dump(
        value,
        Dumper=dumper,
        default_flow_style=flow,
        width=float("inf"),
        allow_unicode=True,
        sort_keys=False,
    )
    return text


def _line_number(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = str(mark.line + 1) if mark else ""
    message = str(error.problem or "this is not valid YAML")
    # The messages of PyYAML are written for its developers. These are the mistakes that occur most.
    if "\\t" in message:
        return Problem("there is a tab here", file, line, hint="indent with spaces")
    if "expected a single document" in str(error.context):
        return Problem("a second document starts here (---)", file, line, hint="keep one")
    if "mapping values are not allowed" in message:
        message, hint = "there is a colon in the wrong place", "put text that holds `: ` in quotes"
    elif "could not find expected ':'" in message:
        message, hint = (
            "a colon is missing after a key here or in the line before",
            "write `key: …`",
        )
    elif "expected <block end>" in message:
        message, hint = "the indentation does not fit", "indent the keys of one group alike"
    elif "found unexpected end of stream" in message:
        message, hint = "a quote is not closed", "close it"
    elif "undefined alias" in message:
        hint = "put text that begins with * in quotes"
    else:
        hint = "put text that begins with a special character in quotes"
    return Problem(message, file, line, hint=hint)


SET_OPTION = "--set"


def apply_overrides(tree: YamlTree, overrides: Sequence[str]) -> None:
    """Change values of a study file as `overrides` say. An override is a text like `random_seed=7`.

    Raises InputError for an override that cannot be applied.
    """
    for text in overrides:
        key, equals_sign, value = text.partition("=")
        if not equals_sign or not key.strip():
            raise InputError(
                Problem(
                    f"{text!r} is not key=value", SET_OPTION, hint="for example --set random_seed=7"
                )
            )
        key = key.strip()
        value_tree = parse_yaml(value, SET_OPTION)
        known_path = resolve_path(tree.value, key)
        rest = key if not known_path else _rest_of_key(key, known_path)
        path = (*known_path, *(rest.split(".") if rest else ()))
        if not set_value(tree.value, path, value_tree.value):
            raise InputError(_describe_missing_place(get_value(tree.value, known_path), key, rest))
        # Line 0, because the value is not in the file. Its text is needed by `coerce_scalar`.
        for inner_path, location in value_tree.locations.items():
            tree.locations[(*path, *inner_path)] = SourceLocation(location.file, 0, location.text)


def _describe_missing_place(known_value: object, key: str, rest: str) -> Problem:
    # `known_value`: the value at the part of the key that exists. `rest`: the other part.
    if not isinstance(known_value, list):
        return Problem(f"no group of keys holds {key}", SET_OPTION, key=key)
    list_key = key.removesuffix(rest).removesuffix(".")
    return Problem(
        f"{list_key} is a list of length {len(known_value)}, counted from 1, and has no {rest}",
        SET_OPTION,
        hint=f'to add or remove entries, set the whole list: --set "{list_key}=[first, second]"',
    )


def _rest_of_key(key: str, path: KeyPath) -> str:
    for part in path:
        if isinstance(part, int):
            key = key[key.index("]") + 1 :]
        else:
            key = key.removeprefix(".").removeprefix(part)
    return key.removeprefix(".")


def existing_path(data: Any, loc: Sequence[str | int]) -> KeyPath | None:
    """Return the location of a pydantic error as a path in the data.

    Parts of the location that the data do not contain are left out. Returns None if no part is
    left.
    """
    # Pydantic adds names of union branches, which are not in the data.
    path: list[str | int] = []
    for part in loc:
        is_key = isinstance(data, dict) and part in data
        if is_key or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            path.append(part)
            data = data[part]
    return tuple(path) if path or not loc else None


def get_value(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def set_value(data: Any, path: KeyPath, value: Any) -> bool:
    """Set the value at a path, and return whether that was possible."""
    # Missing groups on the way are created. It is not possible if a value on the way is neither a
    # group nor a list.
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
