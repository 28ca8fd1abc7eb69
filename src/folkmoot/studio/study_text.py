"""Change values in the text of a study file and keep its comments and layout."""
# A scalar or a renamed key is replaced in its line. For any other change, the whole value of a
# top-level key is replaced. A removed key is commented out. If the key is set again, its commented
# line is used.

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from folkmoot.authoring.template import write_value
from folkmoot.engine.settings.yaml_tree import (
    StudyDumper,
    dump_unwrapped,
    parse_yaml,
    represent_text,
)
from folkmoot.errors import InputError

# Longer lists and mappings are written with one entry per line.
INLINE_WIDTH = 90


class _Edit(NamedTuple):
    # The characters from `start` to `end` are replaced by `text`.
    start: int
    end: int
    text: str


class _TooNested(Exception):
    """Raised if a value cannot be changed without changing its neighbours."""


class _Dumper(StudyDumper):
    # Texts of several lines are written as blocks, and list entries are indented.
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    return represent_text(dumper, text)


_Dumper.add_representer(str, _represent_text)


def is_same(value: object, other: object) -> bool:
    """Return True if two values of a study file are equal. A switch and a number never are.

    The keys of mappings must have the same order.
    """
    # The form names the rows of a mapping by their positions. In another order, the values of a
    # page that is not drawn again would be saved in other rows.
    if isinstance(value, dict) and isinstance(other, dict):
        return list(value) == list(other) and all(is_same(value[key], other[key]) for key in value)
    # In Python, `True` equals 1.
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(is_same, value, other))
    return value == other and isinstance(value, bool) is isinstance(other, bool)


def change_values(text: str, wanted: Mapping[str, object]) -> str:
    """Return the text of a study file, changed so that it holds the keys and values in `wanted`.

    Raises InputError if the text is not YAML.
    """
    # Comments inside a list are lost if its number of entries changes.
    old_values = parse_yaml(text, "").value or {}
    if not isinstance(old_values, dict):
        old_values, text = {}, ""
    names = [*old_values, *(name for name in wanted if name not in old_values)]
    for name in names:
        is_present, value = name in old_values, wanted.get(name)
        if is_present and name in wanted and is_same(old_values[name], value):
            continue
        # Keys are changed one after the other, so that each edit can be checked by parsing the
        # result.
        target = {**old_values, name: copy.deepcopy(value)}
        if name not in wanted:
            target.pop(name)
        text = _change_key(text, name, old_values, target)
        old_values = target
    return text


def _change_key(text: str, name: str, present: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    # The smallest edit comes first, then a replacement of the whole value. If neither gives the
    # target values, the new text has no comments.
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
        if _has_values(changed, target):
            return changed
    return _write_block(target)


def _has_values(text: str, target: Mapping[str, Any]) -> bool:
    # A key of the file itself may be anywhere: a commented line is used for it.
    try:
        values = parse_yaml(text, "").value or {}
    except InputError:
        return False
    return (
        isinstance(values, dict)
        and values.keys() == target.keys()
        and all(is_same(values[name], target[name]) for name in target)
    )


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
    if is_same(old, new):
        return []
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if isinstance(node, yaml.MappingNode) and is_block and isinstance(new, dict) and new:
        edits = []
        new_names = _match_names(old, new)
        for name, new_name in new_names.items():
            child_key, child = _entry(node, name)
            if new_name is None:
                edits += _comment_out(text, child_key, child)
                continue
            if new_name != name:
                start, end = child_key.start_mark.index, child_key.end_mark.index
                edits.append(_Edit(start, end, write_value(new_name)))
            edits += _edits(text, child, old[name], new[new_name], child_key)
        added_names = [name for name in new if name not in new_names.values()]
        if added_names:
            if not any(name is not None for name in new_names.values()):
                raise _TooNested
            indent = " " * node.start_mark.column
            added_text = "".join(
                "\n" + _indented(_write_block({name: new[name]}), indent) for name in added_names
            )
            # New keys go behind the comment at the end of the last line.
            insert_position = _line_end(text, _end(text, node))
            edits.append(_Edit(insert_position, insert_position, added_text))
        return edits
    # Entries are changed one by one only if their number stays. Otherwise it is unclear which one
    # was removed.
    is_list = isinstance(node, yaml.SequenceNode) and is_block and isinstance(new, list)
    if is_list and len(new) == len(old):
        pairs = zip(node.value, old, new, strict=True)
        return [
            edit
            for child, old_item, new_item in pairs
            for edit in _edits(text, child, old_item, new_item, child)
        ]
    return _replacement(text, node, new, key)


def _match_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str | None]:
    # Returns the new name of each old key, or None for a removed key. A key is renamed if another
    # key is at its place, before the same next key that stays.
    new_names: dict[str, str | None] = {}
    unused = [name for name in new if name not in old]
    followers = _names_that_stay_after(new, old)
    for name, follower in _names_that_stay_after(old, new).items():
        if name in new:
            new_names[name] = name
            continue
        renamed = next((other for other in unused if followers[other] == follower), None)
        if renamed is not None:
            unused.remove(renamed)
        new_names[name] = renamed
    return new_names


def _names_that_stay_after(
    names: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, str | None]:
    # For each key, the next key that the other mapping has too, or None at the end.
    follower: str | None = None
    followers: dict[str, str | None] = {}
    for name in reversed(list(names)):
        followers[name] = follower
        if name in others:
            follower = name
    return dict(reversed(followers.items()))


def _replacement(text: str, node: yaml.Node, new: Any, key: yaml.Node) -> list[_Edit]:
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
    first_line, _, rest = _value_text(new, column).partition("\n")
    insert_position = _line_end(text, end)
    return [
        _Edit(start, end, first_line.strip()),
        _Edit(insert_position, insert_position, f"\n{rest}"),
    ]


def _end(text: str, node: yaml.Node) -> int:
    # Trailing white space and comments do not belong to the node.
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _line_end(text: str, position: int) -> int:
    newline = text.find("\n", position)
    return len(text) if newline < 0 else newline


def _comment_out(text: str, key: yaml.Node, node: yaml.Node) -> list[_Edit]:
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        # Text before the key is the dash of a list entry, which a `#` would comment out as well.
        raise _TooNested
    end = _line_end(text, max(_end(text, node), key.end_mark.index))
    lines = text[start:end].split("\n")
    commented = [line if line.lstrip().startswith("#") else f"#{line}" for line in lines]
    return [_Edit(start, end, "\n".join(commented))]


def _addition(text: str, name: str, value: Any) -> _Edit:
    # A commented line with this key is replaced.
    new_text = f"{write_value(name)}:{_value_text(value, 2)}"
    commented_key = re.search(rf"^#{re.escape(name)}:(?P<rest>.*)$", text, re.MULTILINE)
    if commented_key is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return _Edit(len(text), len(text), f"{gap}{new_text}\n")
    following = text[commented_key.end() + 1 : commented_key.end() + 3]
    if (
        following.startswith("# ")
        and text[commented_key.end() + 3 : commented_key.end() + 4] == " "
    ):
        # A commented group follows in the template. The key is written before it, so that the
        # example stays.
        return _Edit(commented_key.start(), commented_key.start(), f"{new_text}\n")
    # The template explains the key behind its value. The explanation keeps its column.
    note = re.search(r"  # .*$", commented_key["rest"])
    if note is not None:
        head, newline, rest = new_text.partition("\n")
        new_text = (
            head.ljust(commented_key.start() + note.start() - commented_key.start())
            + note[0]
            + newline
            + rest
        )
    return _Edit(commented_key.start(), commented_key.end(), new_text)


def _value_text(value: Any, column: int) -> str:
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
    items = list(value.values()) if isinstance(value, dict) else value
    is_flat = not any(isinstance(item, (dict, list)) for item in items)
    return (
        is_flat
        and all(_is_inline(value) for value in items)
        and len(write_value(value)) < INLINE_WIDTH
    )


def _write_block(value: Any) -> str:
    return dump_unwrapped(value, flow=False, dumper=_Dumper).rstrip("\n")


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line if line else line for line in text.split("\n"))
