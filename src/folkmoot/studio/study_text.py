"""Changes the values of a study file in its text, so that comments and layout stay.

A change is made as narrowly as possible: a scalar in its line, else the value of its top-level key.
A key that is removed is put behind a `#`, as in a template, and taken from there when it is set.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from folkmoot.authoring.template import write_value
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.errors import InputError

INLINE_WIDTH = 90


class _Edit(NamedTuple):
    """Characters from `start` to `end` are replaced."""

    start: int
    end: int
    text: str


class _TooNested(Exception):
    """The value cannot be changed without its neighbours."""


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such, and entries of lists indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def change_values(text: str, wanted: Mapping[str, object]) -> str:
    """The text of a study file with these keys and values, and no others.

    Comments inside of a list of which the number of entries changes are lost. Raises InputError if
    the text is not YAML.
    """
    present = parse_yaml(text, "").value or {}
    if not isinstance(present, dict):
        present, text = {}, ""
    names = [*present, *(name for name in wanted if name not in present)]
    for name in names:
        there, value = name in present, wanted.get(name)
        if there and name in wanted and present[name] == value:
            continue
        target = {**present, name: copy.deepcopy(value)}
        if name not in wanted:
            target.pop(name)
        text = _change_key(text, name, present, target)
        present = target
    return text


def _change_key(text: str, name: str, present: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """The text with one top-level key changed: narrowly, else as a whole, else all written new."""
    for is_narrow in (True, False):
        try:
            edits = _top_level_edits(text, name, present, target, is_narrow=is_narrow)
        except _TooNested:
            continue
        changed = text
        for edit in sorted(edits, reverse=True):
            changed = changed[: edit.start] + edit.text + changed[edit.end :]
        if _values_of(changed) == target:
            return changed
    return _write_block(target)


def _values_of(text: str) -> object:
    try:
        return parse_yaml(text, "").value or {}
    except InputError:
        return None


def _top_level_edits(
    text: str,
    name: str,
    present: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    is_narrow: bool,
) -> list[_Edit]:
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    if name not in present:
        return [_addition(text, name, target[name])]
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise _TooNested
    key, node = _entry(root, name)
    if name not in target:
        return _comment_out(text, key, node)
    if is_narrow:
        return list(_edits(text, node, present[name], target[name], key))
    return _replacement(text, node, target[name], key)


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node]:
    for key, value in node.value:
        if key.value == name:
            return key, value
    raise _TooNested


def _edits(text: str, node: yaml.Node, old: Any, new: Any, key: yaml.Node) -> list[_Edit]:
    if old == new:
        return []
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if isinstance(node, yaml.MappingNode) and is_block and isinstance(new, dict) and new:
        found = []
        for name in old:
            below_key, below = _entry(node, name)
            if name not in new:
                found += _comment_out(text, below_key, below)
            else:
                found += _edits(text, below, old[name], new[name], below_key)
        added = [name for name in new if name not in old]
        if added:
            if all(name not in new for name in old):
                raise _TooNested
            indent = " " * node.start_mark.column
            lines = "".join(
                "\n" + _indented(_write_block({name: new[name]}), indent) for name in added
            )
            after = _line_end(text, _end(text, node))
            found.append(_Edit(after, after, lines))
        return found
    is_list = isinstance(node, yaml.SequenceNode) and is_block and isinstance(new, list)
    if is_list and len(new) == len(old):
        pairs = zip(node.value, old, new, strict=True)
        return [edit for below, b, a in pairs for edit in _edits(text, below, b, a, below)]
    return _replacement(text, node, new, key)


def _replacement(text: str, node: yaml.Node, new: Any, key: yaml.Node) -> list[_Edit]:
    """Another value in the place of a node, behind the node of its key."""
    start, end = node.start_mark.index, _end(text, node)
    column = key.start_mark.column + (0 if key is node else 2)
    if "\n" in text[start:end].strip() or (
        isinstance(node, yaml.CollectionNode) and not node.flow_style
    ):
        start = start if key is node else key.end_mark.index + 1
        return [_Edit(start, end, _value_text(new, column).lstrip(" " if key is node else ""))]
    if _is_inline(new):
        space = "" if start and text[start - 1] in " \t" else " "
        return [_Edit(start, end, space + write_value(new))]
    head, _, rest = _value_text(new, column).partition("\n")
    after = _line_end(text, end)
    return [_Edit(start, end, head.strip()), _Edit(after, after, f"\n{rest}")]


def _end(text: str, node: yaml.Node) -> int:
    """Where a node ends, without the white space and the comments behind it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found


def _comment_out(text: str, key: yaml.Node, node: yaml.Node) -> list[_Edit]:
    """Put a `#` before each line of a key and its value."""
    first = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[first : key.start_mark.index].strip():
        raise _TooNested  # the first key of an entry of a list
    last = _line_end(text, max(_end(text, node), key.end_mark.index))
    lines = text[first:last].split("\n")
    marked = [line if line.lstrip().startswith("#") else f"#{line}" for line in lines]
    return [_Edit(first, last, "\n".join(marked))]


def _addition(text: str, name: str, value: Any) -> _Edit:
    """A new key: in the place of its line behind a `#`, else at the end."""
    written = f"{write_value(name)}:{_value_text(value, 2)}"
    line = re.search(rf"^#{re.escape(name)}:(?P<rest>.*)$", text, re.MULTILINE)
    if line is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return _Edit(len(text), len(text), f"{gap}{written}\n")
    following = text[line.end() + 1 : line.end() + 3]
    if following.startswith("# ") and text[line.end() + 3 : line.end() + 4] == " ":
        return _Edit(line.start(), line.start(), f"{written}\n")  # a group that is shown there
    note = re.search(r"  # .*$", line["rest"])
    if note is not None:
        head, newline, rest = written.partition("\n")
        written = head.ljust(line.start() + note.start() - line.start()) + note[0] + newline + rest
    return _Edit(line.start(), line.end(), written)


def _value_text(value: Any, column: int) -> str:
    """A value as it is written behind the colon of its key."""
    if _is_inline(value):
        return f" {write_value(value)}"
    if isinstance(value, str):
        text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True)
        if not text.startswith("|"):
            return f" {write_value(value)}"
        head, _, lines = text.partition("\n")
        lines = "\n".join(line.removeprefix("  ") for line in lines.rstrip("\n").split("\n"))
        return f" {head}\n{_indented(lines, ' ' * column)}"
    return "\n" + _indented(_write_block(value), " " * column)


def _is_inline(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value
    if not value or not isinstance(value, (dict, list)):
        return True
    inner = list(value.values()) if isinstance(value, dict) else value
    flat = not any(isinstance(each, (dict, list)) for each in inner)
    return (
        flat
        and all(_is_inline(value) for value in inner)
        and len(write_value(value)) < INLINE_WIDTH
    )


def _write_block(value: Any) -> str:
    return yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=False,
        width=float("inf"),
        allow_unicode=True,
        sort_keys=False,
    ).rstrip("\n")


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line if line else line for line in text.split("\n"))
