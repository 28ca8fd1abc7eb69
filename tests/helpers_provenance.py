"""What tests of provenance share."""

from __future__ import annotations

import re
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.sources import count_unattributed_characters, find_wrong_sources
from folkmoot.provenance import UNATTRIBUTED, Source, SourcedText
from folkmoot.storage.run_folder import RunFolder

VARIABLE = re.compile(r"\{\{ (?!loop\.)([\w.]+) \}\}")

Told = tuple[str, str, bool]


def told(text: SourcedText) -> list[Told]:
    """Each span of a text: its characters, its kind, and whether they were altered."""
    return [(text[s.start : s.end], s.source.kind, s.source.altered) for s in text.spans]


def assert_every_text_has_its_source(run: RunFolder, study: Study) -> None:
    """No text in a prompt is without a source, and each is what its source recorded."""
    assert count_unattributed_characters(run) == {}
    assert find_wrong_sources(run, study.tables) == []


def write_prompts_in_capitals(folder: Path, study: Study, names: set[str] | None = None) -> str:
    """Write the prompt files of a study with all variables, or those of these names, in capitals
    and in cells of a table; return the folder."""
    folder.mkdir()

    def change(variable: re.Match[str]) -> str:
        name = variable[1]
        return variable[0] if names and name not in names else f"| {{{{ {name} | upper }}}} |"

    for path in Path(str(study.prompts)).glob("*.md"):
        (folder / path.name).write_text(VARIABLE.sub(change, path.read_text("utf-8")), "utf-8")
    return str(folder)


def sources_in(text: SourcedText) -> list[Source]:
    """The sources of a text, in order."""
    return [span.source for span in text.spans]


def unattributed_length(text: SourcedText) -> int:
    """The number of characters with an unknown source."""
    return sum(span.end - span.start for span in text.spans if span.source.kind == UNATTRIBUTED)
