"""Make a study file with all keys set from its template."""

from __future__ import annotations


def set_all_keys(template: str) -> str:
    """Remove the comment sign before every commented-out key of a template."""
    lines = template.splitlines(keepends=True)
    return "".join(line[1:] if _is_unset_key(line) else line for line in lines)


def _is_unset_key(line: str) -> bool:
    # A nested key that is commented out has an indentation of at least two spaces after its `#`.
    return line.startswith("#") and (line[1] != " " or line[2] == " ")
