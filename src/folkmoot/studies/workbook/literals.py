"""Python literals in cells: lists, tuples and dicts, read by `ast.literal_eval` and nothing else.

Spreadsheets bend quotes and break lines inside them; both are mended before a cell is given up.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from folkmoot.hidden_characters import hidden_in
from folkmoot.studies.workbook.config import Scalar
from folkmoot.studies.workbook.sheets import MAX_TEXT, number_text

MAX_DEPTH = 20
MAX_ITEMS = 10_000
MAX_NUMBER = 1e15  # larger ones no longer survive as floats

# Halves of characters: they can be written in a literal, but in no file.
BROKEN = re.compile("[\ud800-\udfff]")
_DICT = re.compile(r"\{\s*(?:[\"'“”‘’]|\}|[\w.+-]+\s*:)")
_TUPLE = re.compile(r"\(\s*[-+.\d]")
# Two numbers and one of the two parentheses: a range that lost the other, not a text.
_HALF = re.compile(r"\([-+.\d\s]+,[-+.\d\s]*|[-+.\d\s]+,[-+.\d\s]*\)")


class NotALiteral(ValueError):
    """The text looks like a literal and is none. The message is for the user."""


def looks_like_dict(text: str) -> bool:
    """Whether a cell is meant as a dict, and not as text that begins with a placeholder."""
    stripped = text.strip()
    return bool(_DICT.match(stripped)) and not re.match(r"\{\s*\w+\s*\}", stripped)


def looks_like_literal(text: str) -> bool:
    """Whether a cell is meant as a list, a tuple of numbers or a dict."""
    stripped = text.strip()
    if stripped.startswith("["):
        return True
    if _HALF.fullmatch(stripped) or re.fullmatch(r"\(\s*\)", stripped):
        return True
    return bool(_TUPLE.match(stripped) and stripped.endswith(")")) or looks_like_dict(stripped)


def read_literal(text: str) -> Any:
    """The value of a literal. Raises NotALiteral, whose message says what is wrong."""
    if len(text) > MAX_TEXT:
        raise NotALiteral(f"longer than {MAX_TEXT:,} characters")
    first: NotALiteral | None = None
    for candidate in _mended(text.strip()):
        try:
            value = _evaluate(candidate)
        except NotALiteral as error:
            first = first or error
            continue
        _bounded(value)
        return value
    raise first or NotALiteral("empty")


def _mended(text: str) -> list[str]:
    """The text, and the text with the quotes that a spreadsheet bent made straight again.

    Bent quotes are only touched when the text does not read as it is, so that an apostrophe
    inside an option stays the one that the author typed.
    """
    straight_doubles = re.sub(r"[“”„]", '"', text)
    straight = re.sub(r"[‘’‚]", "'", straight_doubles)
    candidates = [text, _delimiters_straightened(text), straight_doubles, straight]
    return list(dict.fromkeys(_lines_joined(c) for c in candidates))


def _delimiters_straightened(text: str) -> str:
    """Only the bent quotes that stand where a string begins or ends are made straight."""
    text = re.sub(r"(?<=[\[({,:\s])[“„]|”(?=\s*[\])},:])", '"', text)
    return re.sub(r"(?<=[\[({,:\s])[‘‚]|’(?=\s*[\])},:])", "'", text)


def _lines_joined(text: str) -> str:
    """Line breaks inside quotes written as \\n, those outside as spaces."""
    out: list[str] = []
    quote = ""
    escaped = False
    for char in text:
        if quote:
            if char == "\n":
                out.append("\\n")
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
        # Outside of quotes every kind of white space is one.
        out.append(" " if not quote and char in "\n\t\u00a0\u200b\ufeff" else char)
    return "".join(out)


def _evaluate(text: str) -> Any:
    try:
        tree = ast.parse(text, mode="eval")
        _only_literals(tree.body, text)
        return ast.literal_eval(tree)
    except NotALiteral:
        raise
    except SyntaxError as error:
        near = text[max(0, (error.offset or 1) - 12) : (error.offset or 1) + 12].strip()
        raise NotALiteral(f"{error.msg} near `{near}`") from error
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NotALiteral("not a plain list, tuple or dict") from error


def _only_literals(tree: ast.AST, text: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in ("true", "false", "null"):
                better = {"true": "True", "false": "False", "null": '"none"'}[node.id]
                raise NotALiteral(f"write {better} for {node.id}")
            raise NotALiteral(f'{node.id} needs quotes: "{node.id}"')
        if isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
            twice = [k for i, k in enumerate(keys) if k in keys[:i]]
            if twice:
                raise NotALiteral(f"duplicate key {twice[0]!r}")
        if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.Set)):
            raise NotALiteral("only lists, tuples, dicts, texts and numbers may stand here")


def _bounded(value: Any, depth: int = 0) -> int:
    if depth > MAX_DEPTH:
        raise NotALiteral(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        items = sum(_bounded(part, depth + 1) for pair in value.items() for part in pair)
    elif isinstance(value, (list, tuple)):
        items = sum(_bounded(v, depth + 1) for v in value) + len(value)
    else:
        if isinstance(value, str) and (hidden := hidden_in(value)):
            raise NotALiteral(f"a text holds {hidden}; it is invisible")
        if isinstance(value, (int, float)) and not abs(value) <= MAX_NUMBER:
            raise NotALiteral("a number is too large")
        items = 1
    if items > MAX_ITEMS:
        raise NotALiteral(f"more than {MAX_ITEMS:,} items")
    return items


def is_scalar(value: Any) -> bool:
    """Whether a value is a text, a finite number or a truth value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def scalar_text(value: Scalar) -> str:
    """A scalar as shown to a participant and written to files."""
    if isinstance(value, (bool, str)):
        return str(value).strip()
    return number_text(value)
