"""Write the tables of keys in `docs/*.md` from the fields of the configuration classes.

    python -m tools.key_tables

A table is placed between `<!-- keys: module:Class -->` and `<!-- end of keys -->`. The table of a
study type leaves out the keys that all study types share, unless it changes them. Keys named after
`without` are left out, and those inside of groups that have a table on another page.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import BaseModel

from folkmoot.authoring.keys import Key, keys_of, walk_keys
from folkmoot.engine.settings.config import StudyConfig

DOCS = Path(__file__).parents[1] / "docs"
TABLE = re.compile(
    r"(<!-- keys: (?P<module>[\w.]+):(?P<name>\w+)(?: without (?P<without>[\w, ]+))? -->\n)"
    r".*?(<!-- end of keys -->)",
    re.DOTALL,
)
# Groups with a table of their keys on another page.
ELSEWHERE = {
    "seats": "people.md",
    "respondent": "respondent.md",
    "coding": "coding.md",
    "controls": "controls.md",
}


def updated(page: str) -> str:
    """Return the text of a page with current tables of keys."""

    def table(found: re.Match[str]) -> str:
        config = getattr(importlib.import_module(found["module"]), found["name"])
        without = re.split(r",\s*", found["without"] or "")
        return f"{found[1]}{key_table(config, without)}{found[5]}"

    return TABLE.sub(table, page)


def key_table(config: type[BaseModel], without: list[str]) -> str:
    """Return the table of the keys of a configuration class."""
    lines = ["| key | default | values | means |", "|---|---|---|---|"]
    for path, key in _listed(config, without):
        means = key.description.replace("|", "\\|")
        if page := ELSEWHERE.get(path):
            means += f" ([keys]({page}))"
        cells = (f"`{path}`", _default(key), key.values.replace("|", "\\|"), means)
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def _listed(config: type[BaseModel], without: list[str]) -> Iterator[tuple[str, Key]]:
    shared = keys_of(StudyConfig) if config is not StudyConfig else ()
    own = [key for key in keys_of(config) if key not in shared]
    own.sort(key=lambda key: key.name not in config.__annotations__)  # inherited ones last
    for path, key in walk_keys(tuple(own)):
        top = path.split(".")[0].removesuffix("[]")
        inside_elsewhere = path != top and top in ELSEWHERE
        if not inside_elsewhere and top not in without:
            yield path, key


def _default(key: Key) -> str:
    """Return the default as a study file would state it, or "" without a default."""
    if key.required:
        return "**required**"
    if key.inner or key.default in (None, "", [], {}):
        return ""
    value = key.default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = yaml.safe_dump(
        value, default_flow_style=True, width=1000, allow_unicode=True, sort_keys=False
    )
    return "`" + text.removesuffix("...\n").strip() + "`"


def main() -> None:
    """Write the tables of all pages."""
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text("utf-8")
        if (now := updated(page)) != page:
            path.write_text(now, "utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
