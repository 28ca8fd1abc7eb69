"""Random damage to a valid workbook leads to a run or a list of problems, not to a traceback."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import folkmoot
from folkmoot.errors import InputError
from folkmoot.randomness import generator
from folkmoot.studies.workbook.preparation import (
    check_config,
    config_advisories,
    load_workbook_config,
)
from tests.studies.workbook.test_workbook_parts import make_manual_workbook
from tests.studies.workbook.test_workbook_reading import make_older_layout, make_short_layout
from tests.studies.workbook.workbook_builder import make_provider, make_workbook, write_workbook

Rng = np.random.Generator
Cells = dict[str, list[list[Any]]]

NASTY: tuple[Any, ...] = (
    *(None, "", " ", 0, 1, -1, 4.0, 2.5, 1e300, True, False, "TRUE", "NONE", "None", "nan", "#N/A"),
    *("=1+1", "=A1", "@x", "{", "}", "{{", "{{ }}", "{% if %}", "{{ goods }}", "{{ total }}"),
    *("{response_options}", "{respons_option}", "[", "[]", "()", "(0,1)", "(1,0)", "(0,0.5)"),
    *("[1,2]", '["a","b"]', '{"Buyer": (0, 5)}', '{"Buyer": "x", "Seller": ["y", "z"]}', "{1: 2}"),
    *('{"Buyer": {"a": 1}}', "[[1]]", "[" * 300, "x" * 5000, "’", "“a”", "\u202e", "é\n\t", "a/b"),
    *('["\\ud800"]', "{{ '\\ud800' }}", '["\\x00"]', "'\\ud800'", '{"Buyer": "\\ud83d"}'),
    *("Facilitator", "Summarizer", "Buyer", "manual", "random", "context", "discussion", "integer"),
    *(
        "sum(offer)",
        "offer/0",
        "total",
        "9**9**9",
        "__import__('os')",
        "ID",
        "age",
        "1e999",
        "0x10",
    ),
    *("public_question", "category", "simple_random", "goods", "-5", "١٢", "1_000", "p1", "inf"),
)


def _draw_cell(rng: Rng, book: Cells) -> tuple[list[list[Any]], int, int] | None:
    rows = list(book.values())[rng.integers(len(book))]
    if not rows:
        return None
    r = int(rng.integers(len(rows)))
    return (rows, r, int(rng.integers(max(1, len(rows[r]))))) if rows[r] else None


def replace_cell(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        rows, r, c = found
        rows[r][c] = NASTY[rng.integers(len(NASTY))]


def reformat_cell(rng: Rng, book: Cells) -> None:
    """Write a value in another form. Most workbooks should still run."""
    found = _draw_cell(rng, book)
    if found is None:
        return
    rows, r, c = found
    value = rows[r][c]
    if isinstance(value, str):
        dresses: tuple[Any, ...] = (f" {value}", f"{value}\u00a0", value.replace("'", "’"), value)
    elif isinstance(value, (int, float)):
        dresses = (
            float(value),
            str(value),
            f" {value} ",
            bool(value) if value in (0, 1) else value,
        )
    else:
        dresses = ("  ", None, "\n")
    rows[r][c] = dresses[rng.integers(len(dresses))]


def copy_cell(rng: Rng, book: Cells) -> None:
    one, other = _draw_cell(rng, book), _draw_cell(rng, book)
    if one and other:
        one[0][one[1]][one[2]] = other[0][other[1]][other[2]]


def damage_text(rng: Rng, book: Cells) -> None:
    found = _draw_cell(rng, book)
    if found and isinstance(found[0][found[1]][found[2]], str):
        rows, r, c = found
        text = rows[r][c]
        at = int(rng.integers(len(text) + 1))
        extra = "{}[]()\"',:%|.*‘”\n "[rng.integers(18)]
        rows[r][c] = text[:at] + extra + text[at + int(rng.integers(2)) :]


def drop_row(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        del found[0][found[1]]


def duplicate_row(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        found[0].insert(found[1], list(found[0][found[1]]))


def drop_column(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        for row in found[0]:
            del row[found[2] : found[2] + 1]


def swap_rows(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        rows, r, _ = found
        other = int(rng.integers(len(rows)))
        rows[r], rows[other] = rows[other], rows[r]


def add_stray_cell(rng: Rng, book: Cells) -> None:
    if found := _draw_cell(rng, book):
        rows, r, _ = found
        rows[r].extend([None] * int(rng.integers(1, 6)))
        rows[r].append(NASTY[rng.integers(len(NASTY))])


def rename_sheet(rng: Rng, book: Cells) -> None:
    old = list(book)[rng.integers(len(book))]
    names = ("roles", "settings", "computed", "Sheet1", old.upper(), "prompt", "constant")
    new = names[rng.integers(len(names))]
    if new not in book and new.casefold() not in {n.casefold() for n in book if n != old}:
        book[new] = book.pop(old)


def drop_sheet(rng: Rng, book: Cells) -> None:
    if len(book) > 1:
        del book[list(book)[rng.integers(len(book))]]


MUTATIONS: tuple[Callable[[Rng, Cells], None], ...] = (
    *(reformat_cell, reformat_cell, reformat_cell),
    *(replace_cell, replace_cell, replace_cell, copy_cell, damage_text, damage_text),
    *(drop_row, duplicate_row, drop_column, swap_rows, add_stray_cell, rename_sheet, drop_sheet),
)
STARTS = (make_workbook, make_workbook, make_manual_workbook, make_older_layout, make_short_layout)


def mutate(seed: int) -> Cells:
    rng = generator(20, ("mutation", str(seed)))
    book = STARTS[rng.integers(len(STARTS))]()
    for _ in range(int(rng.geometric(0.7))):
        MUTATIONS[rng.integers(len(MUTATIONS))](rng, book)
    return book


def run_or_refuse(book: Cells, folder: Path) -> str:
    """Return "ran", or "refused" if the problems have messages for the researcher."""
    path = write_workbook(book, folder / "book.xlsx")
    try:
        config = load_workbook_config(path)
        problems = check_config(config, folder)
    except InputError as error:
        assert error.problems and all(p.message and p.file for p in error.problems)
        return "refused"
    if problems:
        return "refused"
    assert config_advisories(config)
    out = folder / "out"
    run = folkmoot.run(path, out=out, provider=make_provider(), limit=1)
    assert run.table("sessions").height >= 1
    shutil.rmtree(out)
    return "ran"


def _count_outcomes(first: int, last: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            counts[run_or_refuse(mutate(seed), folder)] += 1
        except Exception as error:
            raise AssertionError(f"mutation {seed}: {type(error).__name__}: {error}") from error
    return counts


def test_a_few_dozen_mutations(tmp_path: Path) -> None:
    counts = _count_outcomes(0, 24, tmp_path)
    assert counts["ran"] > 3 and counts["refused"] > 9


@pytest.mark.nightly(part="workbooks")
@pytest.mark.parametrize("part", range(12))
def test_thirty_thousand_mutations(
    tmp_path: Path, part: int, request: pytest.FixtureRequest
) -> None:
    # Two parts read each workbook in a child process, as users do. It takes most of the time, and
    # bombs, for which it exists, have tests of their own.
    if part >= 2:
        request.getfixturevalue("read_workbooks_in_process")
    counts = _count_outcomes(2_500 * part, 2_500 * (part + 1), tmp_path)
    assert counts.total() == 2_500
