"""A workbook is untrusted: nothing in it runs, nothing in it fills the memory or the disk."""

from __future__ import annotations

import csv
import io
import time
import zipfile
from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.studies.workbook import sheets
from folkmoot.studies.workbook.computed import BadExpression, Scene, evaluate, parse_expression
from folkmoot.studies.workbook.literals import NotALiteral, read_literal
from folkmoot.studies.workbook.outputs import csv_text, harmless
from folkmoot.studies.workbook.planning import check, load
from folkmoot.studies.workbook.templates import MAX_OUTPUT, TemplateProblem, render
from tests.studies.workbook.workbook_builder import good, mistakes, put, read, save

SCENE = Scene(["a", "b"], frozenset({"give"}), frozenset(), {"n": 2}, lambda name, who: 3)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[x for x in (1,2)]",
        '["a"].__class__',
        "{**{}}",
        '["a" * 1000000000]',
        "[1e999]",
        "[lambda: 1]",
        'f"{1}"',
        "[" * 500 + "]" * 500,
        "(1, 2, *[3])",
        "[9999999999999999999999]",
        "{1, 2}",
        "open('/etc/passwd')",
        "[yes, no]",
    ],
)
def test_literals_are_never_evaluated(text: str) -> None:
    with pytest.raises(NotALiteral):
        read_literal(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ constant.__class__ }}",
        "{{ constant['x'] }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self }}",
        "{{ lipsum() }}",
        "{% for i in range(100000000) %}x{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% set x = 1 %}{{ x }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 1 | round(999999999, 'ceil') }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ name | attr('__class__') }}",
        "{{ name.upper() }}",
        "{{ [1, 2] }}",
        "{{ unknown }}",
        "{{ 1 / 0 }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if %}",
        "{{ name",
    ],
)
def test_placeholders_run_nothing_and_end_soon(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(TemplateProblem):
        render(text, {"name": "x", "constant": {"x": 1}})
    assert time.monotonic() - began < 5


def test_filled_in_text_is_bounded() -> None:
    text = "{{ long }}" * 20
    with pytest.raises(TemplateProblem, match="longer than"):
        render(text, {"long": "x" * (MAX_OUTPUT // 10)})


def test_what_is_filled_in_is_not_read_as_a_template_again() -> None:
    assert render("{{ said }}", {"said": "{{ 1 + 1 }} {response_options}"}) == (
        "{{ 1 + 1 }} {response_options}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "give.__class__",
        "(lambda: 1)()",
        "[1, 2]",
        "give[0]",
        "'a' * 1000000000",
        "9 ** 9 ** 9 ** 9",
        "1 << 100000",
        "open('x')",
        "sum(sum(sum(give)))",
        "f'{give}'",
        "give if True else exec('1')",
        "x := 3",
        "round(give, digits=9)",
        "1e300",
        "give; give",
        "(" * 3000 + "1" + ")" * 3000,
        "",
    ],
)
def test_expressions_are_arithmetic_only(text: str) -> None:
    began = time.monotonic()
    try:
        parse_expression(text)
    except BadExpression:
        pass
    else:
        value = evaluate(text, SCENE, "a")
        assert not value, f"{text} gave {value}"  # Missing
    assert time.monotonic() - began < 5


def test_the_size_of_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(good(), tmp_path / "book.xlsx")
    monkeypatch.setattr(sheets, "MAX_FILE_BYTES", 1000)
    with pytest.raises(InputError, match="the limit is 1,000"):
        load(path)


def test_a_zip_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(good(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb.bin", b"\0" * 20_000_000)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(sheets, "MAX_UNPACKED_BYTES", 10_000_000)
    with pytest.raises(InputError, match="unpacks to"):
        load(path)


def test_xml_entities_are_not_expanded(tmp_path: Path) -> None:
    path = save(good(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    bomb = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">' + b"".join(
        b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9)
    )
    parts["xl/workbook.xml"] = bomb + b"]><w>&j;</w>"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    began = time.monotonic()
    with pytest.raises(InputError):
        load(path)
    assert time.monotonic() - began < 5


def test_the_number_of_cells_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(good(), tmp_path / "book.xlsx")
    monkeypatch.setattr(sheets, "MAX_CELLS", 50)
    with pytest.raises(InputError, match="too many cells"):
        load(path)


def test_more_than_a_thousand_permutations_are_asked_about(tmp_path: Path) -> None:
    book = good()
    book["constants"] += [[f"c{i}", str(list(range(11)))] for i in range(3)]
    config = read(book, tmp_path)
    (problem,) = check(config, tmp_path)
    assert "1,331 experiments" in problem.message
    assert "--set max_permutations=1331" in problem.mend
    assert problem.where == "constants!B2"
    assert check(config.model_copy(update={"max_permutations": 1331}), tmp_path) == []


def test_an_absurd_number_of_permutations_is_counted_not_made(tmp_path: Path) -> None:
    book = good()
    book["constants"] += [[f"c{i}", str(list(range(100)))] for i in range(12)]
    began = time.monotonic()
    (problem,) = check(read(book, tmp_path), tmp_path)
    assert "1,000,000,000,000,000,000,000,000 experiments" in problem.message
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"]
)
def test_formulas_in_csv_are_neutralised(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([], [[text, "plain", -3, -2.5, 1]]).split("\n", 1)[1]))
    assert row == [f"'{text}".replace("\r", "\n"), "plain", "-3", "-2.5", "1"]


def test_headers_are_neutralised_too() -> None:
    assert csv_text(["=x"], []).startswith("'=x")
    assert harmless(None) == ""


def test_paths_cannot_leave_the_run_folder(tmp_path: Path) -> None:
    for name in ("../x", "a/b", "c:\\x", ".hidden", "a\nb"):
        book = put(good(), "experimental_setting!B2", name)
        assert any("it names files" in m for m in mistakes(book, tmp_path)), name
