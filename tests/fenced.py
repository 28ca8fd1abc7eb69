"""Find and run the fenced blocks of the README and of the pages in docs, unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def find_blocks(text: str, language: str = "") -> list[str]:
    """Return the blocks of a language, or without one, in order and at any indentation."""
    matches = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [match[3] for match in matches if match[2] == language]


def find_block(text: str, language: str, part: str) -> str:
    """Return the first block of a language that contains `part`."""
    return next(block for block in find_blocks(text, language) if part in block)


def run_python(page: str, part: str = "") -> int:
    """Run the blocks of Python on a page of the repository that contain `part`, each by itself, and
    count them."""
    codes = [
        code for code in find_blocks((ROOT / page).read_text("utf-8"), "python") if part in code
    ]
    for code in codes:
        run_cells([code], page)
    return len(codes)


def run_cells(codes: Sequence[str], page: str) -> dict[str, Any]:
    """Run blocks of a page in order like cells of a notebook, and return the names they define."""
    names: dict[str, Any] = {}
    for code in codes:
        exec(compile(code, page, "exec"), names)
    return names
