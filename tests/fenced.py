"""Fenced blocks of the README and of the pages in docs: found, and run as they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def blocks(text: str, language: str = "") -> list[str]:
    """The blocks of a language, or of none, in order, however far they are indented."""
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [block[3] for block in found if block[2] == language]


def block_with(text: str, language: str, part: str) -> str:
    """The first block of a language that holds this part."""
    return next(block for block in blocks(text, language) if part in block)


def run_python(page: str, part: str = "") -> int:
    """Run the blocks of Python on a page of the repository that hold `part`, each by itself, and
    count them."""
    codes = [code for code in blocks((ROOT / page).read_text("utf-8"), "python") if part in code]
    for code in codes:
        run_cells([code], page)
    return len(codes)


def run_cells(codes: Sequence[str], page: str) -> dict[str, Any]:
    """Run blocks of a page one after the other like cells of a notebook; the names they leave."""
    names: dict[str, Any] = {}
    for code in codes:
        exec(compile(code, page, "exec"), names)
    return names
