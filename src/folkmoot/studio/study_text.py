"""Change values in the text of a study file and keep its comments and layout."""
# A scalar or a renamed key is replaced in its line. For any other change, the smallest value around
# it is replaced. A removed key is commented out. If the key is set again, its commented line is
# used. An alias (`*name`) is text at its own place: a change there leaves the anchor alone, and a
# change at the anchor (`&name`) leaves the old value to the aliases.

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

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
# The tag of a node that is an alias. Its value is the name of the anchor.
_ALIAS_TAG = "alias"
_MERGE_KEY = "<<"


class _Edit(NamedTuple):
    # The characters from `start` to `end` are replaced by `text`.
    start: int
    end: int
    text: str


class _TooNested(Exception):
    """Raised if a value cannot be changed without changing its neighbours."""


class _Alias(NamedTuple):
    # `key`: the node before the alias: its key, or the alias itself in a list.
    node: yaml.Node
    key: yaml.Node


class _Anchor(NamedTuple):
    node: yaml.Node
    value: Any


class _Loader(yaml.BaseLoader):
    # Composing keeps the positions of nodes in the text, which parsing to values loses.

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            # PyYAML would return the node of the anchor, and edits would change the text there.
            self.get_event()  # type: ignore[no-untyped-call]
            start, end = cast(Any, event.start_mark), cast(Any, event.end_mark)
            node: Any = yaml.ScalarNode(_ALIAS_TAG, event.anchor, start, end)
        else:
            node = super().compose_node(parent, index)
            node.anchor = event.anchor
        node.is_in_flow = bool(parent and parent.flow_style)
        return node


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
    # The smallest edit comes first, then replacements of ever larger values. If none gives the
    # target values, the new text has no comments.
    for changed in _candidates(text, name, present, target):
        # The edits work on characters, and YAML has many layouts. An edit counts only if parsing
        # its result gives the wanted values.
        if _has_values(changed, target):
            return changed
    return _write_block(target)


def _candidates(
    text: str, name: str, present: Mapping[str, Any], target: Mapping[str, Any]
) -> Iterator[str]:
    root = yaml.compose(text, Loader=_Loader)
    for max_depth in range(_depth(present.get(name)), -1, -1):
        try:
            edits = _top_level_edits(text, root, name, present, target, max_depth)
        except _TooNested:
            continue
        yield _apply_edits(text, edits)
        if root is not None:
            yield _apply_edits(text, [*edits, *_moved_anchors(text, root, present, edits)])
    if root is not None:
        # The comments before and after the values stay.
        start, end = root.start_mark.index, _end(text, root)
        yield _apply_edits(text, [_Edit(start, end, _write_block(target))])


def _apply_edits(text: str, edits: list[_Edit]) -> str:
    # From the end to the start, so that the positions of the remaining edits stay valid.
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, items), default=-1)


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
    root: Any,
    name: str,
    present: Mapping[str, Any],
    target: Mapping[str, Any],
    max_depth: int,
) -> list[_Edit]:
    # `max_depth`: values that are nested more deeply are replaced together with their neighbours.
    # In a file of one mapping with braces, keys are changed only.
    is_block = root is None or (isinstance(root, yaml.MappingNode) and not root.flow_style)
    if not is_block and (name not in present or name not in target):
        raise _TooNested
    if name not in present:
        return [_addition(text, name, target[name])]
    key, node = _entry(root, name)
    if name not in target:
        return _comment_out(text, key, node)
    return _edits(text, node, present[name], target[name], key, max_depth)


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node]:
    for key, value in node.value:
        if key.value == name:
            return key, value
    raise _TooNested


def _edits(
    text: str, node: yaml.Node, old: Any, new: Any, key: yaml.Node, max_depth: int
) -> list[_Edit]:
    if is_same(old, new):
        return []
    if max_depth and isinstance(node, yaml.MappingNode) and isinstance(new, dict) and new:
        return _mapping_edits(text, node, old, new, max_depth - 1)
    # Entries are changed one by one only if their number stays. Otherwise it is unclear which one
    # was removed.
    is_list = isinstance(node, yaml.SequenceNode) and isinstance(new, list)
    if max_depth and is_list and len(new) == len(old):
        pairs = zip(node.value, old, new, strict=True)
        return [
            edit
            for child, old_item, new_item in pairs
            for edit in _edits(text, child, old_item, new_item, child, max_depth - 1)
        ]
    return _replacement(text, node, new, key)


def _mapping_edits(
    text: str, node: yaml.MappingNode, old: dict[str, Any], new: dict[str, Any], max_depth: int
) -> list[_Edit]:
    edits = []
    own_names = {child_key.value for child_key, _ in node.value}
    new_names = _match_names(old, new)
    # A value that is merged from an anchor is changed by a key of the mapping itself.
    added_names = [name for name in new if name not in new_names.values()]
    for name, new_name in new_names.items():
        if new_name == name and is_same(old[name], new[name]):
            continue
        if new_name == name and name not in own_names and _MERGE_KEY in own_names:
            added_names.append(name)
            continue
        child_key, child = _entry(node, name)
        if new_name is None:
            if node.flow_style:
                raise _TooNested
            edits += _comment_out(text, child_key, child)
            continue
        if new_name != name:
            start, end = child_key.start_mark.index, child_key.end_mark.index
            edits.append(_Edit(start, end, write_value(new_name)))
        edits += _edits(text, child, old[name], new[new_name], child_key, max_depth)
    if added_names:
        if node.flow_style or not any(name is not None for name in new_names.values()):
            raise _TooNested
        # Not the column of the mapping, which begins with its anchor.
        indent = " " * node.value[0][0].start_mark.column
        added_text = "".join(
            "\n" + _indented(_write_block({name: new[name]}), indent) for name in added_names
        )
        # New keys go behind the comment at the end of the last line.
        insert_position = _line_end(text, _end(text, node))
        edits.append(_Edit(insert_position, insert_position, added_text))
    return edits


def _moved_anchors(
    text: str, root: yaml.Node, present: Mapping[str, Any], edits: list[_Edit]
) -> list[_Edit]:
    # A change of an anchored value would change its aliases too, and its removal would leave them
    # without a value. The first alias that stays gets the anchor and the old value.
    anchors: dict[str, _Anchor] = {}
    aliases: dict[str, list[_Alias]] = {}
    _collect_references(root, root, present, anchors, aliases)
    moves = []
    for name, anchor in anchors.items():
        start, end = anchor.node.start_mark.index, _line_end(text, _end(text, anchor.node))
        if not any(start <= edit.end and edit.start <= end for edit in edits):
            continue
        staying = [
            alias
            for alias in aliases.get(name, [])
            if not any(edit.start <= alias.node.start_mark.index < edit.end for edit in edits)
        ]
        if not staying:
            continue
        label = re.compile(rf"[ \t]*&{re.escape(name)}(?=\r?\n)|&{re.escape(name)}[ \t]+")
        found = label.search(text, text.rfind("\n", 0, start) + 1)
        if found is not None and not any(edit.start <= start < edit.end for edit in edits):
            moves.append(_Edit(found.start(), found.end(), ""))
        first, *others = _replacement(text, staying[0].node, anchor.value, staying[0].key)
        written = first.text.strip()
        if len(staying) > 1:
            written = f"&{name} {written}".rstrip()
        moves += [first._replace(text=f" {written}" if first.text[:1] == " " else written), *others]
    return moves


def _collect_references(
    node: Any,
    key: yaml.Node,
    value: Any,
    anchors: dict[str, _Anchor],
    aliases: dict[str, list[_Alias]],
) -> None:
    # Fills `anchors` and `aliases`, in the order of the text.
    if node.tag == _ALIAS_TAG:
        aliases.setdefault(str(node.value), []).append(_Alias(node, key))
        return
    if node.anchor is not None:
        anchors[node.anchor] = _Anchor(node, value)
    if isinstance(node, yaml.MappingNode):
        for child_key, child in node.value:
            has_value = isinstance(value, dict) and isinstance(child_key, yaml.ScalarNode)
            child_value = value.get(child_key.value) if has_value else None
            _collect_references(child, child_key, child_value, anchors, aliases)
    elif isinstance(node, yaml.SequenceNode):
        for i, child in enumerate(node.value):
            item = value[i] if isinstance(value, list) and i < len(value) else None
            _collect_references(child, child, item, anchors, aliases)


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


def _replacement(text: str, node: Any, new: Any, key: yaml.Node) -> list[_Edit]:
    start, end = node.start_mark.index, _end(text, node)
    space = "" if start and text[start - 1] in " \t[{" else " "
    if node.is_in_flow:
        # Between brackets, a comma ends a text without quotes.
        written = "" if new is None else write_value([new])[1:-1]
        return [_Edit(start, end, space + written)]
    column = key.start_mark.column + (0 if key is node else 2)
    if "\n" in text[start:end].strip() or (
        isinstance(node, yaml.CollectionNode) and not node.flow_style
    ):
        start = start if key is node else key.end_mark.index + 1
        return [_Edit(start, end, _value_text(new, column).lstrip(" " if key is node else ""))]
    if _is_inline(new):
        return [_Edit(start, end, space + write_value(new))]
    first_line, _, rest = _value_text(new, column).partition("\n")
    insert_position = _line_end(text, end)
    edits = [_Edit(start, end, space + first_line.strip())]
    if rest:
        edits.append(_Edit(insert_position, insert_position, f"\n{rest}"))
    return edits


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


def _document_end(text: str) -> int:
    # A document may end with `...`, behind which nothing belongs to it.
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit:
            return int(cast(Any, event.start_mark).index)
    return len(text)


def _comment_out(text: str, key: yaml.Node, node: yaml.Node) -> list[_Edit]:
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        # Text before the key is the dash of a list entry, which stays.
        start = key.start_mark.index
    end = _line_end(text, max(_end(text, node), key.end_mark.index))
    lines = text[start:end].split("\n")
    commented = [line if line.lstrip().startswith("#") else f"#{line}" for line in lines]
    return [_Edit(start, end, "\n".join(commented))]


def _addition(text: str, name: str, value: Any) -> _Edit:
    # A commented line with this key is replaced.
    new_text = f"{write_value(name)}:{_value_text(value, 2)}"
    commented_key = re.search(rf"^#{re.escape(name)}:(?P<rest>.*)$", text, re.MULTILINE)
    if commented_key is None:
        end = _document_end(text)
        gap = "" if not end or text[end - 1] == "\n" else "\n"
        return _Edit(end, end, f"{gap}{new_text}\n")
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
        head, _, lines = text.partition("\n")
        # The dumper refuses a block for some texts, for example with trailing spaces in a line. In
        # a block that keeps its last blank lines (`|+`), those of the file would count too.
        if not head.startswith("|") or "+" in head:
            return f" {write_value(value)}"
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
