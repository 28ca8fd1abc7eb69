"""Read the Python literals in the cells of a workbook, without executing code."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from folkmoot.hidden_characters import hidden_in
from folkmoot.studies.workbook.config import MAX_TEXT

# Limits that no real workbook reaches. They keep a hostile file from filling the memory.
MAX_DEPTH = 20
MAX_ITEMS = 10_000
# Larger whole numbers are no longer exact as floats.
MAX_NUMBER = 1e15

# A key without quotes, such as `Role 1` or `Player (A)`.
_BARE_KEY = r"[^\s{}\[\]:,\"'“”‘’%#][^{}\[\]:,\"'“”‘’]{0,80}"
# A dict, also with keys that lack their quotes: they are reported, and not shown to participants.
_DICT = re.compile(
    rf"\{{\s*(?:[\"'“”‘’]|\}}|[\w.+-]+(?: +[\w.+-]+)*\s*:|{_BARE_KEY}:\s*[\"'“”‘’\[(])"
)
_TUPLE = re.compile(r"\(\s*[-+.\d]")
# Two numbers and one parenthesis: a range that lost the other one, and not a text.
_HALF = re.compile(r"\([-+.\d\s]+,[-+.\d\s]*|[-+.\d\s]+,[-+.\d\s]*\)")
# A single text in quotes, also in triple ones, with an optional prefix such as `r`.
_ONE_TEXT = re.compile(
    r"""[A-Za-z]{0,2}(?:(?P<triple>'{3}|"{3}).*?(?P=triple)|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""",
    re.DOTALL,
)

# Python's `range(11)` or `list(range(0, 101, 10))` with plain whole numbers.
_COUNTED = re.compile(r"(?:list\s*\(\s*)?range\s*\([-+\d\s,]*\)(?:\s*\))?")


class NotALiteral(ValueError):
    """Raised for a text that looks like a literal but cannot be read."""

    # The message is for the researcher.


def looks_like_dict(text: str) -> bool:
    """Return whether a text looks like a dict."""
    # A text that starts with a placeholder `{{` is no dict.
    stripped = text.strip()
    # `{response_options}` in single braces is a placeholder.
    return bool(_DICT.match(stripped)) and not re.match(r"\{\s*\w+\s*\}", stripped)


def looks_like_literal(text: str) -> bool:
    """Return whether a text looks like a list, a tuple of numbers or a dict."""
    stripped = text.strip()
    if stripped.startswith("["):
        return True
    if _HALF.fullmatch(stripped) or re.fullmatch(r"\(\s*\)", stripped):
        return True
    if _COUNTED.fullmatch(stripped):
        return True
    return bool(_TUPLE.match(stripped) and stripped.endswith(")")) or looks_like_dict(stripped)


def read_literal(text: str) -> object:
    """Return the value of a literal.

    Raises NotALiteral if the text cannot be read.
    """
    if len(text) > MAX_TEXT:
        raise NotALiteral(f"longer than {MAX_TEXT:,} characters")
    # Report the problem of the text as it was typed, and not that of a repaired version.
    first: NotALiteral | None = None
    for candidate in _repair_candidates(text.strip()):
        try:
            value = _evaluate_literal(candidate)
        except NotALiteral as error:
            first = first or error
            continue
        _count_items(value)
        return value
    raise first or NotALiteral("empty")


def _repair_candidates(text: str) -> list[str]:
    # The text as typed comes first, so that an apostrophe inside an option is kept.
    straight_doubles = re.sub(r"[“”„]", '"', text)
    straight = re.sub(r"[‘’‚]", "'", straight_doubles)
    candidates = [text, _straighten_delimiters(text), straight_doubles, straight]
    return list(dict.fromkeys(_join_lines(candidate) for candidate in candidates))


def _straighten_delimiters(text: str) -> str:
    text = re.sub(r"(?<=[\[({,:\s])[“„]|”(?=\s*[\])},:])", '"', text)
    return re.sub(r"(?<=[\[({,:\s])[‘‚]|’(?=\s*[\])},:])", "'", text)


def _join_lines(text: str) -> str:
    # Line breaks inside quotes are written as \n, and those outside as spaces.
    characters: list[str] = []
    quote = ""
    escaped = False
    for char in text:
        if quote:
            if char == "\n":
                characters.append("\\n")
                escaped = False
                continue
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        # Outside of quotes every white-space character becomes a plain space.
        characters.append(" " if not quote and char in "\n\t\u00a0\u200b\ufeff" else char)
    return "".join(characters)


def _evaluate_literal(text: str) -> object:
    try:
        tree = ast.parse(text, mode="eval")
        tree = ast.fix_missing_locations(_RangeExpander().visit(tree))
        _reject_non_literals(tree.body)
        _reject_joined_texts(tree, text)
        return ast.literal_eval(tree)
    except NotALiteral:
        raise
    except SyntaxError as error:
        if bare := re.search(rf"[{{,]\s*({_BARE_KEY}):\s*[\"'\[(]", text):
            key = bare[1].strip()
            raise NotALiteral(f'{key} needs quotes: "{key}"') from error
        near = text[max(0, (error.offset or 1) - 12) : (error.offset or 1) + 12].strip()
        raise NotALiteral(f"{error.msg} near `{near}`") from error
    # `ast.literal_eval` raises all of these, for deep nesting or unhashable keys for example.
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NotALiteral("not a plain list, tuple or dict") from error


class _RangeExpander(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_call(node, "list") and len(node.args) == 1 and _is_call(node.args[0], "range"):
            return self.visit_Call(node.args[0])
        if not _is_call(node, "range"):
            return node
        bounds = [ast.literal_eval(argument) for argument in node.args]
        if not all(type(bound) is int and abs(bound) <= MAX_NUMBER for bound in bounds):
            raise NotALiteral("range(…) takes whole numbers")
        numbers = range(*bounds)
        if len(numbers) > MAX_ITEMS:
            raise NotALiteral(f"more than {MAX_ITEMS:,} items")
        return ast.List([ast.Constant(number) for number in numbers], ast.Load())


def _is_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return called and node.func.id == name and not node.keywords  # type: ignore[attr-defined]


def _reject_non_literals(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in ("true", "false", "null"):
                replacement = {"true": "True", "false": "False", "null": '"none"'}[node.id]
                raise NotALiteral(f"write {replacement} for {node.id}")
            raise NotALiteral(f'{node.id} needs quotes: "{node.id}"')
        # Python keeps only the last of equal keys, which would drop a role's options unnoticed.
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            for node_key in node.keys:
                if isinstance(node_key, (ast.Call, ast.BinOp)):
                    key_text = ast.unparse(node_key)
                    raise NotALiteral(f'{key_text} needs quotes: "{key_text}"')
            duplicates = [key for i, key in enumerate(keys) if key in keys[:i]]
            if duplicates:
                raise NotALiteral(f"duplicate key {duplicates[0]!r}")
        if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.Set)):
            raise NotALiteral("only lists, tuples, dicts, texts and numbers are allowed here")


def _reject_joined_texts(tree: ast.AST, text: str) -> None:
    # Python joins neighbouring texts into one, so a forgotten comma would merge two options. A
    # value of a dict is a long prompt, which may be split into several texts.
    lists = [node for node in ast.walk(tree) if isinstance(node, (ast.List, ast.Tuple))]
    # Positions in the tree count bytes. The text has one line.
    source = text.encode()
    for item in [item for node in lists for item in node.elts if isinstance(item, ast.Constant)]:
        if isinstance(item.value, str):
            written = source[item.col_offset : item.end_col_offset].decode()
            if not _ONE_TEXT.fullmatch(written):
                raise NotALiteral(f"a comma is missing in {written[:60]}")


def _count_items(value: object, depth: int = 0) -> int:
    if depth > MAX_DEPTH:
        raise NotALiteral(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        items = sum(_count_items(part, depth + 1) for pair in value.items() for part in pair)
    elif isinstance(value, (list, tuple)):
        items = sum(_count_items(item, depth + 1) for item in value) + len(value)
    else:
        if isinstance(value, str) and (hidden := hidden_in(value)):
            raise NotALiteral(f"a text contains {hidden}, which is invisible")
        if isinstance(value, (int, float)) and not abs(value) <= MAX_NUMBER:
            raise NotALiteral("a number is too large")
        items = 1
    if items > MAX_ITEMS:
        raise NotALiteral(f"more than {MAX_ITEMS:,} items")
    return items
