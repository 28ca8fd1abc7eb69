"""How the command line gets the user's yes to what a file does: `--trust`, or a question."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape

from folkmoot.cli.console import err, resume_line, safe
from folkmoot.engine.trust import Consent


def consent(path: Path, given: bool = False) -> Consent:
    """The user's consent to what this study file does."""
    return Consent(given, _agreed if sys.stdin.isatty() else None, _line(path))


def _line(path: Path) -> str:
    """The command of this process with `--trust`; where it takes none, `check` does."""
    words = sys.argv[1:]
    if words[:1] not in (["run"], ["check"]):
        return shlex.join(["folkmoot", "check", str(path), "--trust"])
    line = resume_line([*words, "--trust"])
    return line if "--resume" in words else line.removesuffix(" --resume")


def _agreed(sentences: Sequence[str]) -> bool:
    for sentence in sentences:
        err().print(f"[yellow]Mind:[/] {escape(safe(sentence))}", soft_wrap=True)
    try:
        return typer.confirm("Do you trust it?", err=True)
    except typer.Abort:  # end of input
        return False
