"""Helpers for tests of provenance."""

from __future__ import annotations

import re
from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.provenance import UNATTRIBUTED, Source, SourcedText
from folkmoot.storage.run_folder import RunFolder
from tests.wrong_sources import find_wrong_sources

VARIABLE = re.compile(r"\{\{ (?!loop\.)([\w.]+) \}\}")

SpanDescription = tuple[str, str, bool]


def describe_spans(text: SourcedText) -> list[SpanDescription]:
    """Return the characters and the kind of each span, and whether they were altered."""
    return [
        (text[span.start : span.end], span.source.kind, span.source.altered) for span in text.spans
    ]


def assert_every_text_has_its_source(run: RunFolder, study: Study) -> None:
    """Check that each text in a prompt has a source and equals what its source recorded."""
    assert count_unattributed_characters(run) == {}
    assert find_wrong_sources(run, study.tables) == []


def write_prompts_in_capitals(folder: Path, study: Study, names: set[str] | None = None) -> str:
    """Write the prompt files of a study with all variables, or those in `names`, in capitals
    and in cells of a table; return the folder."""
    folder.mkdir()

    def capitalise_variable(variable: re.Match[str]) -> str:
        name = variable[1]
        return variable[0] if names and name not in names else f"| {{{{ {name} | upper }}}} |"

    for path in Path(str(study.prompts)).glob("*.md"):
        (folder / path.name).write_text(
            VARIABLE.sub(capitalise_variable, path.read_text("utf-8")), "utf-8"
        )
    return str(folder)


def list_sources(text: SourcedText) -> list[Source]:
    """Return the sources of a text, in order."""
    return [span.source for span in text.spans]


def count_unattributed(text: SourcedText) -> int:
    """Count the characters with an unknown source."""
    return sum(span.end - span.start for span in text.spans if span.source.kind == UNATTRIBUTED)
