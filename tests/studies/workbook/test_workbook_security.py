"""A workbook is untrusted: its texts are not executed, and do not fill the memory or disk."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import polars as pl
import pytest

from folkmoot import spreadsheet_cells
from folkmoot.errors import InputError
from folkmoot.storage.tables import format_csv
from folkmoot.studies.workbook import checks
from folkmoot.studies.workbook.files import harmless_csv
from folkmoot.studies.workbook.language.expressions import (
    EvaluationContext,
    ExpressionProblem,
    parse_expression,
)
from folkmoot.studies.workbook.language.placeholders import MAX_OUTPUT, render_text
from folkmoot.studies.workbook.literals import NotALiteral, read_literal
from folkmoot.studies.workbook.preparation import check_config, load_workbook_config
from tests.bounded import run_with_limits
from tests.in_process import call_in_process
from tests.studies.workbook.workbook_builder import (
    evaluate_expression,
    find_mistakes,
    make_workbook,
    read_config,
    save_workbook,
    with_cell,
)

CONTEXT = EvaluationContext(
    ["a", "b"], frozenset({"give"}), frozenset(), {"n": 2}, lambda name, who: 3
)


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


PLACEHOLDERS = [
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
    "{{ 'a' * 3000000000 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ '%3000000000d' % 1 }}",
    "{{ '{:>3000000000}'.format(1) }}",
    "{{ 'a'.zfill(3000000000) }}",
    "{{ 1 | round(999999999, 'ceil') }}",
    "{{ 'a' | center(3000000000) }}",
    "{{ name | attr('__class__') }}",
    "{{ name.upper() }}",
    "{{ [1, 2] }}",
    "{{ unknown }}",
    "{{ 1 / 0 }}",
    "{{ " + "9" * 5000 + " }}",
    "{{ long ~ " + "long ~ " * 9000 + "1 }}",
    "{{ " + "long + " * 300 + "long }}",
    "{{ long " + "| upper " * 9000 + "}}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ sum(name) }}",
    "{{ " + "-" * 1900 + "1 }}",
    ("{% if long " + "| upper " * 200 + "%}{% endif %}") * 60,
    "{% if name %}" * 7000,
    "{{" * 50_000,
    "{%" * 50_000,
    "{% if name %}{% else %}{% else %}{% endif %}",
    "{% if name %}{% elif %}{% endif %}",
    "{% if name %}",
    "{% endif %}",
    "{% raw %}{{ name }}{% endraw %}",
    "{% if %}",
    "{{ name",
]


def test_placeholders_run_nothing_and_end_soon() -> None:
    setup = """
from folkmoot.studies.workbook.language.expressions import ExpressionProblem
from folkmoot.studies.workbook.language.placeholders import render_text
"""
    body = """
for text in given:
    try:
        said = render_text(text, {"name": "x", "constant.x": 1, "long": "x" * 100_000})
    except ExpressionProblem:
        continue
    print(text[:60], "gave", said[:60])
"""
    assert run_with_limits(setup, body, PLACEHOLDERS) == ""


def test_filled_in_text_is_bounded() -> None:
    text = "{{ long }}" * 20
    with pytest.raises(ExpressionProblem, match="longer than"):
        render_text(text, {"long": "x" * (MAX_OUTPUT // 10)})


def test_what_is_filled_in_is_not_read_as_a_template_again() -> None:
    assert render_text("{{ said }}", {"said": "{{ 1 + 1 }} {response_options}"}) == (
        "{{ 1 + 1 }} {response_options}"
    )


EXPRESSIONS = [
    "__import__('os')",
    "give.__class__",
    "(lambda: 1)()",
    "[1, 2]",
    "give[0]",
    "'a' * 3000000000",
    "'%3000000000d' % 1",
    "'%3000000000d' % give",
    "give % 'a'",
    "9 ** 9 ** 9 ** 9",
    "9 ** 9 ** 9",
    "give + 9 ** 9 ** 9",
    "give + 1 / 0",
    "sqrt(0 - 1)",
    "1 << 100000",
    "open('x')",
    "sum(sum(sum(give)))",
    "f'{give}'",
    "give if True else exec('1')",
    "x := 3",
    "round(give, digits=9)",
    "1e300",
    "9" * 1900,
    "give; give",
    "(" * 3000 + "1" + ")" * 3000,
    "",
]
VALID_EXPRESSIONS = [
    "give ** 2 / 4",
    "min(2)",
    "mean(2) + 1",
    "2 ** 10",
    "give / (2 - 1)",
    "count(give > 1)",
]


def test_expressions_are_arithmetic_only() -> None:
    setup = """
from folkmoot.studies.workbook.language.expressions import (
    ExpressionProblem, EvaluationContext, evaluate_for, parse_expression
)
scene = EvaluationContext(
    ["a", "b"], frozenset({"give"}), frozenset(), {"n": 2}, lambda name, who: 3
)
"""
    body = """
for text in given:
    try:
        parse_expression(text)
    except ExpressionProblem:
        continue
    print(text, "gave", repr(evaluate_for(text, scene, ["a"])[0]))
"""
    said = run_with_limits(setup, body, EXPRESSIONS).splitlines()
    # Names have values only after the answers, so these two expressions are missing values.
    assert [line.partition(" gave ")[0] for line in said] == [
        "'%3000000000d' % give",
        "give % 'a'",
    ]
    assert all("Missing(reason='not_computable'" in line for line in said)


@pytest.mark.parametrize("text", VALID_EXPRESSIONS)
def test_what_can_be_calculated_passes(text: str) -> None:
    parse_expression(text)
    assert isinstance(evaluate_expression(text, CONTEXT, "a"), (int, float))


def test_a_computed_value_that_has_none_is_found_by_check(tmp_path: Path) -> None:
    book = make_workbook()
    book["computed"][1][2] = "9**9**9"
    (found,) = find_mistakes(book, tmp_path)
    assert "computed!C2" in found
    assert "has no value" in found


def test_the_size_of_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    monkeypatch.setattr(spreadsheet_cells, "MAX_FILE_BYTES", 1000)
    with pytest.raises(InputError, match="the limit is 1,000"):
        load_workbook_config(path)


def test_a_zip_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb.bin", b"\0" * 20_000_000)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(spreadsheet_cells, "MAX_UNPACKED_BYTES", 10_000_000)
    with pytest.raises(InputError, match="unpacks to"):
        load_workbook_config(path)


def test_xml_entities_are_not_expanded(tmp_path: Path) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    bomb = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">' + b"".join(
        b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9)
    )
    parts["xl/workbook.xml"] = bomb + b"]><w>&j;</w>"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match="entities"):
        load_workbook_config(path)


def test_the_number_of_cells_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    monkeypatch.setattr(spreadsheet_cells, "MAX_CELLS", 50)
    with pytest.raises(InputError, match="too many cells"):
        load_workbook_config(path)


def test_more_than_a_thousand_permutations_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check would read the texts of 1,000 experiments, which takes seconds.
    monkeypatch.setattr(checks, "MOST_PERMUTATIONS_CHECKED", 20)
    book = make_workbook()
    book["constants"] += [[f"c{i}", str(list(range(11)))] for i in range(3)]
    config = read_config(book, tmp_path)
    (problem,) = check_config(config, tmp_path)
    assert "1,331 experiments" in problem.message
    assert "--set max_permutations=1331" in problem.hint
    assert problem.where == "constants!B2"
    assert check_config(config.model_copy(update={"max_permutations": 1331}), tmp_path) == []


def test_an_absurd_number_of_permutations_is_counted_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MOST_PERMUTATIONS_CHECKED", 20)
    book = make_workbook()
    book["constants"] += [[f"c{i}", str(list(range(100)))] for i in range(12)]
    (problem,) = check_config(read_config(book, tmp_path), tmp_path)
    assert "1,000,000,000,000,000,000,000,000 experiments" in problem.message


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"]
)
def test_formulas_in_csv_are_neutralised(text: str) -> None:
    (row,) = csv.reader(
        io.StringIO(harmless_csv([], [[text, "plain", -3, -2.5, 1, None]]).split("\n", 1)[1])
    )
    assert row == [f"'{text}".replace("\r", "\n"), "plain", "-3", "-2.5", "1", ""]


def test_a_file_of_a_study_and_a_table_escape_the_same_cells() -> None:
    texts = ["=1+1", "-1+x", "-3", "+4.5%", "-3\n", "@a", "\t=1", "-", "", "a=b", "-٣"]
    of_tables = csv.DictReader(io.StringIO(format_csv(pl.DataFrame({"text": texts})).decode()))
    of_study = csv.DictReader(io.StringIO(harmless_csv(["text"], [[text] for text in texts])))
    escaped = [row["text"] for row in of_study]
    assert escaped == [row["text"] for row in of_tables]
    assert [text for text in escaped if text.startswith("'")] == [
        *("'=1+1", "'-1+x", "'-3\n", "'@a", "'\t=1", "'-")
    ]


def test_headers_are_neutralised_too() -> None:
    assert harmless_csv(["=x"], []).startswith("'=x")


def test_paths_cannot_leave_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The names are checked after the file is read, so the file needs no process for itself.
    monkeypatch.setattr(spreadsheet_cells, "run_in_child", call_in_process)
    for name in ("../x", "a/b", "c:\\x", ".hidden", "a\nb"):
        book = with_cell(make_workbook(), "experimental_setting!B2", name)
        assert any("it names files" in m for m in find_mistakes(book, tmp_path)), name
