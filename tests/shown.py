"""Render what `folkmoot show` prints."""

from __future__ import annotations

from folkmoot.cli.show import render_run_lines
from folkmoot.storage.run_folder import RunFolder


def render_run_text(run: RunFolder, speaker: str | None = None, *, prompts: bool = False) -> str:
    """Return the lines of `folkmoot show RUN [WHO] [--prompts]` without colours."""
    return "\n".join(line.plain for line in render_run_lines(run, speaker, prompts=prompts))
