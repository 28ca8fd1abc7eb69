"""Invisible characters are refused in labels with their location and removed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folkmoot
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.hidden_characters import hidden_in, without_hidden
from folkmoot.people.sources import table
from folkmoot.report.document.charts import render_svgs
from folkmoot.storage.findings import BarChart
from tests.faults.lab import PILOT
from tests.studies.workbook.workbook_builder import (
    find_mistakes,
    make_workbook,
    read_config,
    with_cell,
)
from tests.sweeps import sample_daily

HIDDEN_CHARACTERS = [
    *("\x00", "\x07", "\x0b", "\x1b", "\r", "\x7f", "\x85", "\x9f", "\xad", "\u061c", "\u200b"),
    *("\u200c", "\u200d", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2060"),
    *("\u2066", "\u2069", "\ufeff", "\ufffe", "\ud800", "\udfff", "\U000e0041", "\u180e"),
]
XML_CHARACTERS = [
    c
    for c in HIDDEN_CHARACTERS
    if ord(c) > 0x1F and not 0xD800 <= ord(c) <= 0xDFFF and c != "\ufffe"
]
VISIBLE_TEXTS = [
    "Parks",
    "10 %",
    "C++",
    "日本",
    "عربى",
    "می\u200cخواهم",
    "👩\u200d🌾",
    "❤️\u200d🔥",
    "é",
    "e\u0301",
]


@pytest.mark.parametrize("character", HIDDEN_CHARACTERS)
def test_hidden_characters_are_found_and_removed(character: str) -> None:
    for text in (f"Par{character}ks", f"{character}Parks", f"Parks{character}"):
        assert f"U+{ord(character):04X}" in hidden_in(text)
        assert without_hidden(text) == "Parks"


@pytest.mark.parametrize("text", VISIBLE_TEXTS)
def test_visible_text_is_kept(text: str) -> None:
    assert hidden_in(text, label=True) == ""
    assert without_hidden(text) == text


def test_line_breaks_and_tabs_are_hidden_in_labels_only() -> None:
    for text in ("a\nb", "a\tb", "a\r\nb"):
        assert hidden_in(text) == ""
        assert hidden_in(text, label=True)
    assert hidden_in("a\n", label=True) == ""


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_is_stable_and_can_be_encoded(text: str) -> None:
    cleaned = without_hidden(text)
    cleaned.encode()
    assert (
        without_hidden(cleaned) == cleaned or "\u200c" in text or "\u200d" in text or "\r" in text
    )


def load_problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_study_file(path, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("character", HIDDEN_CHARACTERS)
def test_a_hidden_character_in_a_study_file_is_reported_with_its_line(
    tmp_path: Path, character: str
) -> None:
    path = tmp_path / "pilot.yaml"
    escaped = json.dumps(f"Par{character}ks")
    path.write_text(PILOT.replace("Park improvements", escaped), encoding="utf-8")
    (problem,) = load_problems(path)
    assert f"pilot.yaml:5: topic.options[1]: holds U+{ord(character):04X}" in problem
    path.write_text(PILOT.replace("description: One", f"{escaped}: 1\n  description: One"))
    assert any("pilot.yaml:4" in line and "a key holds" in line for line in load_problems(path))


def test_overrides_and_dictionaries_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "pilot.yaml"
    path.write_text(PILOT)
    (problem,) = load_problems(path, 'topic.options[1]="Par\\u202Eks"')
    assert problem.startswith("--set: topic.options[1]: holds U+202E")
    settings: dict[str, Any] = {"pilot_id": "x", "topic": {"options": ["a", "b\nc", "d"]}}
    with pytest.raises(InputError, match=r"topic.options\[2\]: holds U\+000A"):
        folkmoot.run("cross_pollination", settings)


@pytest.mark.parametrize("character", sample_daily(XML_CHARACTERS, daily=4, part="sweeps"))
def test_a_hidden_character_in_a_workbook_is_reported_with_sheet_and_cell(
    tmp_path: Path, character: str
) -> None:
    code = f"U+{ord(character):04X}"
    book = make_workbook()
    cells = ("agent_roles!A4", "treatments!A2", "constants!A2", "constants!B2")
    for location in cells:
        sheet, cell = location.split("!")
        old_text = book[sheet][int(cell[1]) - 1]["AB".index(cell[0])]
        book = with_cell(book, location, f"{old_text[:3]}{character}{old_text[3:]}")
    mistakes = find_mistakes(book, tmp_path)
    for location in cells:
        assert any(
            f"book.xlsx:{location}" in mistake and code in mistake for mistake in mistakes
        ), (location, mistakes)


def test_hidden_characters_are_refused_in_profile_ids_and_removed_from_answers(
    tmp_path: Path,
) -> None:
    book = make_workbook()
    sheet = next(
        name for name in book if "profile" in name or ("agent" in name and name != "agent_roles")
    )
    rows = book[sheet]
    rows[2][1] = f"ol\u200bd{rows[2][1]}"
    assert "\u200b" not in str(read_config(book, tmp_path).workbook.profiles.rows)
    rows[2][0] = f"{rows[2][0]}\u202e"
    assert any(
        f"{sheet}!A3" in mistake and "U+202E" in mistake
        for mistake in find_mistakes(book, tmp_path)
    )


def test_hidden_characters_in_literals_are_found(tmp_path: Path) -> None:
    for text in ("['a', '\\u202eb']", "['a', '\\ud800']"):
        mistakes = find_mistakes(with_cell(make_workbook(), "constants!B2", text), tmp_path)
        assert any(
            "constants!B2" in mistake and "which is invisible" in mistake for mistake in mistakes
        ), mistakes


def test_a_hidden_character_in_a_persona_id_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    pl.DataFrame({"id": ["a", "b\u202e"], "text": ["A co\u200bok.", "A baker."]}).write_csv(path)
    with pytest.raises(InputError, match=r"people.csv:3: id: the id contains U\+202E"):
        table.read_personas(path)
    pl.DataFrame({"id": ["a", "b"], "text": ["A co\u200bok.", "A baker."]}).write_csv(path)
    assert table.read_personas(path)[0].text == "A cook."


@pytest.mark.parametrize("character", HIDDEN_CHARACTERS)
def test_charts_with_hidden_characters_are_drawn(character: str) -> None:
    (svg,) = render_svgs(BarChart((("x", f"Par{character}ks", 1.0),)), f"Bars{character}")
    svg.encode()
    assert "Parks" in svg


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("random_seed: {}", "random_seed"),
        ("temperature: {}", "temperature"),
        ("participants_per_condition: '{}'", "participants_per_condition"),
        ("concurrency: -{}", "concurrency"),
        ("budget_usd: {}.5", "budget_usd"),
        ("respondent: {{noise: {}}}", "respondent"),
    ],
)
def test_numbers_with_thousands_of_digits_are_reported_with_their_location(
    tmp_path: Path, line: str, key: str
) -> None:
    path = tmp_path / "pilot.yaml"
    number = "9" * 5000
    base_text = PILOT.replace(f"{key}: 6\n", "")
    path.write_text(f"{base_text}{line.format(number)}\n")
    assert any(
        f"pilot.yaml:{len(base_text.splitlines()) + 1}: {key}" in problem
        for problem in load_problems(path)
    )
    path.write_text(PILOT)
    override = line.format(number).replace(": ", "=", 1)
    assert any(f"--set: {key}" in problem for problem in load_problems(path, override))


def test_an_index_with_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pilot.yaml"
    path.write_text(PILOT)
    (problem,) = load_problems(path, f"topic.options[{'9' * 5000}]=x")
    assert problem.startswith("--set")
