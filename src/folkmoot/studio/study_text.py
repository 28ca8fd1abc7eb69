"""Change values of a study file in its text, so that comments and layout stay.

Each change is as small as possible: a scalar in its line, otherwise the value of its top-level key.
A removed key is commented out, as unset keys are in a template. If it is set again, its commented
line is used.
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

# Longer lists and mappings are written with one entry per line.
INLINE_WIDTH = 90


class _Edit(NamedTuple):
    """A replacement of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class _TooNested(Exception):
    """The value cannot be changed without changing its neighbours."""


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes text of several lines as a block and indents entries of lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def change_values(text: str, wanted: Mapping[str, object]) -> str:
    """Return the text of a study file with exactly these keys and values.

    Comments inside of a list are lost if the number of its entries changes. Raise InputError if the
    text is not YAML.
    """
    present = parse_yaml(text, "").value or {}
    if not isinstance(present, dict):
        present, text = {}, ""
    names = [*present, *(name for name in wanted if name not in present)]
    for name in names:
        there, value = name in present, wanted.get(name)
        if there and name in wanted and present[name] == value:
            continue
        # Keys are changed one after the other, so that each edit can be checked by parsing the
        # result.
        target = {**present, name: copy.deepcopy(value)}
        if name not in wanted:
            target.pop(name)
        text = _change_key(text, name, present, target)
        present = target
    return text


def _change_key(text: str, name: str, present: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Return the text with one top-level key changed.

    Try a narrow edit first, then a replacement of the whole value. If neither gives the wanted
    values, write the whole file from its values.
    """
    for is_narrow in (True, False):
        try:
            edits = _top_level_edits(text, name, present, target, is_narrow=is_narrow)
        except _TooNested:
            continue
        changed = text
        # From the end to the start, so that the positions of the remaining edits stay valid.
        for edit in sorted(edits, reverse=True):
            changed = changed[: edit.start] + edit.text + changed[edit.end :]
        # The edits work on characters, and YAML has many layouts. An edit counts only if parsing
        # its result gives the wanted values.
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
    # Composing keeps the positions of nodes in the text, which parsing to values loses.
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
            # New keys go behind the comment at the end of the last line.
            after = _line_end(text, _end(text, node))
            found.append(_Edit(after, after, lines))
        return found
    # Entries are changed one by one only if their number stays. Otherwise it is unclear which one
    # was removed.
    is_list = isinstance(node, yaml.SequenceNode) and is_block and isinstance(new, list)
    if is_list and len(new) == len(old):
        pairs = zip(node.value, old, new, strict=True)
        return [edit for below, b, a in pairs for edit in _edits(text, below, b, a, below)]
    return _replacement(text, node, new, key)


def _replacement(text: str, node: yaml.Node, new: Any, key: yaml.Node) -> list[_Edit]:
    """Return the edits that put another value in the place of a node."""
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
    """Return the position where a node ends, without trailing white space and comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found


def _comment_out(text: str, key: yaml.Node, node: yaml.Node) -> list[_Edit]:
    """Return the edit that puts a `#` before each line of a key and its value."""
    first = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[first : key.start_mark.index].strip():
        # Text before the key is the dash of a list entry, which a `#` would comment out as well.
        raise _TooNested
    last = _line_end(text, max(_end(text, node), key.end_mark.index))
    lines = text[first:last].split("\n")
    marked = [line if line.lstrip().startswith("#") else f"#{line}" for line in lines]
    return [_Edit(first, last, "\n".join(marked))]


def _addition(text: str, name: str, value: Any) -> _Edit:
    """Return the edit that adds a key: in the place of its commented line, or at the end."""
    written = f"{write_value(name)}:{_value_text(value, 2)}"
    line = re.search(rf"^#{re.escape(name)}:(?P<rest>.*)$", text, re.MULTILINE)
    if line is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return _Edit(len(text), len(text), f"{gap}{written}\n")
    following = text[line.end() + 1 : line.end() + 3]
    if following.startswith("# ") and text[line.end() + 3 : line.end() + 4] == " ":
        # A commented group follows in the template. The key is written before it, so that the
        # example stays.
        return _Edit(line.start(), line.start(), f"{written}\n")
    # The template explains the key behind its value. The explanation keeps its column.
    note = re.search(r"  # .*$", line["rest"])
    if note is not None:
        head, newline, rest = written.partition("\n")
        written = head.ljust(line.start() + note.start() - line.start()) + note[0] + newline + rest
    return _Edit(line.start(), line.end(), written)


def _value_text(value: Any, column: int) -> str:
    """Return a value as it is written after the colon of its key."""
    if _is_inline(value):
        return f" {write_value(value)}"
    if isinstance(value, str):
        text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True)
        # The dumper refuses a block for some texts, for example with trailing spaces in a line.
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
