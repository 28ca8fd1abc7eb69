"""Workbooks that would fill the memory or never end: refused within limits of both."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.studies.workbook.preparation import load_workbook_config
from tests.bounded import bounded
from tests.studies.workbook.workbook_builder import good, mistakes, save
from tests.sweeps import sample_daily

MAIN = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
SHEET = "xl/worksheets/sheet1.xml"
STRINGS = "xl/sharedStrings.xml"
STYLES = "xl/styles.xml"
MILLION = 1_000_000


def sheet(rows: bytes) -> bytes:
    return b"<worksheet " + MAIN + b"><sheetData>" + rows + b"</sheetData></worksheet>"


def with_parts(
    good_one: Path, path: Path, pack: int = zipfile.ZIP_DEFLATED, **parts: bytes
) -> Path:
    """A copy of a workbook with some of its parts replaced, or others added."""
    with zipfile.ZipFile(good_one) as old, zipfile.ZipFile(path, "w", pack, compresslevel=1) as new:
        names = {name: old.read(name) for name in old.namelist()} | parts
        for name, data in names.items():
            new.writestr(name, data)
    return path


def lying(good_one: Path, path: Path) -> Path:
    """A part that says it has 1,000 bytes, and unpacks to 400 million."""
    with_parts(good_one, path, **{STYLES: b"\0" * (400 * MILLION)})
    data = bytearray(path.read_bytes())
    size = (400 * MILLION).to_bytes(4, "little")
    for head, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        start = data.find(head)
        while start >= 0:
            if data[start + at : start + at + 4] == size:
                data[start + at : start + at + 4] = (1000).to_bytes(4, "little")
            start = data.find(head, start + 4)
    path.write_bytes(data)
    return path


def with_strings(good_one: Path, path: Path, strings: bytes, **more: bytes) -> Path:
    name = "[Content_Types].xml"
    with zipfile.ZipFile(good_one) as archive:
        types = archive.read(name)
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    one = b'<Override PartName="/%s" ContentType="%s"/></Types>' % (STRINGS.encode(), kind)
    changed = {
        name: types.replace(b"</Types>", one),
        STRINGS: b"<sst " + MAIN + b">" + strings + b"</sst>",
    }
    return with_parts(good_one, path, **changed, **more)


def repeated(good_one: Path, path: Path) -> Path:
    """One long shared string that stands in every cell."""
    text = b"<si><t>" + b"x" * 90_000 + b"</t></si>"
    cells = sheet(b"<row>" + b'<c t="s"><v>0</v></c>' * 5000 + b"</row>")
    return with_strings(good_one, path, text, **{SHEET: cells})


def listed_strings(strings: Callable[[], bytes]) -> Callable[[Path, Path], Path]:
    """A workbook with these shared strings, which it names among its parts."""
    return lambda good_one, path: with_strings(good_one, path, strings())


def part(name: str, data: Callable[[], bytes]) -> Callable[[Path, Path], Path]:
    """A workbook with this part. Its hundreds of megabytes are there while it is written only."""
    return lambda good_one, path: with_parts(good_one, path, **{name: data()})


def entities() -> bytes:
    head = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">'
    each = (b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9))
    return head + b"".join(each) + b"]><w>&j;</w>"


LIMITS = "takes more than 3 seconds or 300 MB to read"
UNREADABLE = "the workbook cannot be read"
# Until Python 3.13 the XML reader refuses so many open tags. From 3.14 on it reads them until the
# memory is used up.
TOO_DEEP = UNREADABLE if sys.version_info < (3, 14) else LIMITS
BOMBS: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "styles": (part(STYLES, lambda: b"<styleSheet><cellXfs>" + b"<xf/>" * (8 * MILLION)), LIMITS),
    "strings": (listed_strings(lambda: b"<si/>" * (8 * MILLION)), LIMITS),
    "runs": (listed_strings(lambda: b"<si>" + b"<r/>" * (8 * MILLION)), LIMITS),
    "text": (listed_strings(lambda: b"<si><t>" + b"x" * (290 * MILLION) + b"</t></si>"), LIMITS),
    "wide": (part(SHEET, lambda: sheet(b"<row>" + b"<c/>" * (8 * MILLION))), LIMITS),
    "far": (part(SHEET, lambda: sheet(b'<row><c r="ZZZZZZZ1"><v>1</v></c></row>')), UNREADABLE),
    "deep row": (part(SHEET, lambda: sheet(b'<row r="99999999999"/>')), UNREADABLE),
    "no row": (part(SHEET, lambda: sheet(b'<row r="' + b"9" * 5000 + b'"/>')), UNREADABLE),
    "empty": (
        part(SHEET, lambda: sheet((b"<row>" + b'<c s="1"/>' * 10_000 + b"</row>") * 900)),
        LIMITS,
    ),
    "merges": (
        part(SHEET, lambda: sheet(b"")[:-12] + b"<mergeCells>" + b"<mergeCell/>" * (4 * MILLION)),
        LIMITS,
    ),
    "repeated": (repeated, "100,000,000 characters"),
    "entities": (part("xl/workbook.xml", entities), UNREADABLE),
    "deep": (part(STYLES, lambda: b"<a>" * MILLION), TOO_DEEP),
    "tag": (part(STYLES, lambda: b'<a b="' + b"x" * (60 * MILLION)), UNREADABLE),
    "lying": (lying, LIMITS),
    "huge": (part(STYLES, lambda: b"\0" * (400 * MILLION)), "unpacks to"),
}
# One of each kind, every day: too many nodes, too far for the reader, too long once read, entities
# in entities, too large to unpack.
DAILY = ("strings", "far", "repeated", "entities", "huge")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(DAILY, id="daily"),
        pytest.param(tuple(BOMBS), id="all", marks=pytest.mark.nightly(part="mutations")),
    ],
)
def test_a_bomb_is_refused_within_bounded_memory(names: tuple[str, ...], tmp_path: Path) -> None:
    good_one = save(good(), tmp_path / "good.xlsx")
    paths = {name: str(BOMBS[name][0](good_one, tmp_path / f"{name}.xlsx")) for name in names}
    setup = """
from pathlib import Path
from folkmoot import spreadsheet_cells
from folkmoot.child_process import Limits
from folkmoot.errors import InputError
from folkmoot.studies.workbook.preparation import load_workbook_config
spreadsheet_cells.LIMITS = Limits(seconds=3, memory_bytes=300_000_000)
"""
    body = """
said = {}
for name, path in given.items():
    try:
        load_workbook_config(Path(path))
        said[name] = "passed"
    except InputError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
    said = json.loads(bounded(setup, body, paths, memory=300_000_000))
    wrong = {name: text for name, text in said.items() if BOMBS[name][1] not in text}
    assert set(said) == set(names) and not wrong


@pytest.mark.parametrize(
    ("kind", "number"),
    sample_daily(
        product(("n", "b"), ("9" * 5000, "1e999", "nan", "-inf", "4" * 301)),
        (("n", "9" * 5000), ("n", "nan"), ("n", "4" * 301), ("b", "1e999")),
        part="mutations",
    ),
)
def test_a_number_that_is_none_is_named_by_sheet_and_cell(
    tmp_path: Path, number: str, kind: str
) -> None:
    path = save(good(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path) as archive:
        part = archive.read(SHEET)
    cell = b'<row r="99"><c r="C99" t="%s"><v>%s</v></c></row>' % (kind.encode(), number.encode())
    hostile = with_parts(
        path, tmp_path / "b.xlsx", **{SHEET: part.replace(b"</sheetData>", cell + b"</sheetData>")}
    )
    with pytest.raises(InputError) as caught:
        load_workbook_config(hostile)
    (problem,) = caught.value.problems
    assert problem.where == "experimental_setting!C99"
    assert "300 digits" in problem.message


def test_numbers_of_thousands_of_digits_in_texts_are_located(tmp_path: Path) -> None:
    for column, text in (
        (1, "[" + "9" * 5000 + "]"),
        (1, "[0x" + "f" * 5000 + "]"),
        (0, "9" * 5000),
    ):
        book = good()
        book["constants"][1][column] = text
        found = mistakes(book, tmp_path)
        assert any(f"constants!{'AB'[column]}2" in problem for problem in found), found
    book = good()
    book["experimental_setting"][5][1] = "9" * 5000
    assert any("experimental_setting!B6" in problem for problem in mistakes(book, tmp_path))


def test_a_role_named_by_a_huge_number_is_located(tmp_path: Path) -> None:
    book = good()
    for row in book["interview_prompts"][1:]:
        if row[8] is not None:
            row[8] = "{0x" + "f" * 5000 + ": [1, 2]}"
    assert any("interview_prompts!I" in problem for problem in mistakes(book, tmp_path))
