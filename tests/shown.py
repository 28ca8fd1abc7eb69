"""What `folkmoot show` prints, as text."""

from __future__ import annotations

from folkmoot.cli.show import render_run_lines
from folkmoot.storage.run_folder import RunFolder


def shown(run: RunFolder, who: str | None = None, *, prompts: bool = False) -> str:
    """The lines of `folkmoot show RUN [WHO] [--prompts]` without colours."""
    return "\n".join(line.plain for line in render_run_lines(run, who, prompts=prompts))
