"""No request leaves a speaker only values that exclude the honest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.storage.run_folder import JOURNAL
from tests.contract.small import SMALL, small_study
from tests.sweeps import sample_daily

STUDIES = (*SMALL, "workbook")
WAYS_OUT = {"none_of_these", "declined", "cannot_say", "none", None}
# Fields that state no speaker's vote, stance, rating or agreement.
NOT_STATED = {
    "code": "a coder's code for somebody else's text",
    "option": "names the option that a row is about; the row may be left out",
    "members": "names the members that a decision is for",
    "member": "names the member that a code is about",
    "speaker": "names the speaker of a line of dialogue",
    "response": "a workbook author's own options",
}


def iterate_closed_fields(
    schema: Mapping[str, Any],
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield each field with an enumeration or bounds, with the alternatives of its schema."""
    definitions = schema.get("$defs", {})

    def alternatives(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if "$ref" in node:
            return alternatives(definitions[node["$ref"].rpartition("/")[2]])
        parts = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
        return [inner for part in parts for inner in alternatives(part)] if parts else [node]

    def walk(name: str, node: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
        found = alternatives(node)
        if any({"enum", "const", "minimum", "maximum"} & part.keys() for part in found):
            yield name, found
        for part in found:
            for inner, below in part.get("properties", {}).items():
                yield from walk(inner, below)
            entries = [part.get("items"), part.get("additionalProperties")]
            for entry in (e for e in entries if isinstance(e, Mapping)):
                # A list may stay empty, so its plain entries force no answer.
                if part.get("minItems") or any("properties" in a for a in alternatives(entry)):
                    yield from walk(name, entry)

    yield from walk("", schema)


def has_way_out(parts: list[Mapping[str, Any]]) -> bool:
    """Return whether one of the alternatives is a way out, or free text."""
    allowed = [value for part in parts for value in part.get("enum", [part.get("const", 0)])]
    free = any(
        part.get("type") == "string" and not part.keys() & {"enum", "const"} for part in parts
    )
    null = any(part.get("type") == "null" for part in parts)
    return free or null or bool(WAYS_OUT & set(allowed))


# A cross-pollination asks for no closed answer first, but in the test below.
@pytest.mark.parametrize("study", [study for study in STUDIES if study != "cross_pollination"])
def test_every_closed_answer_has_a_way_out(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    assert_ways_out(run_of_small_study(study))


# Some answers are no option, so that second requests are sent as well. Their schema is made in one
# place for all studies.
@pytest.mark.parametrize("study", sample_daily(SMALL, daily=("cross_pollination",), part="sweeps"))
def test_every_closed_second_request_has_a_way_out(study: str, tmp_path: Path) -> None:
    path, own = small_study(study, tmp_path), ("respondent.off_list=0.3",)
    assert_ways_out(folkmoot.run(path, out=tmp_path / "run", model="synthetic", overrides=own).path)


def assert_ways_out(run: Path) -> None:
    without: dict[tuple[str, str], str] = {}
    closed = 0
    with JournalReader(run / JOURNAL) as journal:
        for entry in journal.read_entries("ask"):
            schema = entry.request.get("schema") or {}
            for name, parts in iterate_closed_fields(schema):
                closed += 1
                if name not in NOT_STATED and not has_way_out(parts):
                    without.setdefault((str(schema["title"]), name), entry.address)
    assert closed, "the small study asks for no closed answer, so this test would prove nothing"
    assert without == {}
