"""Workbooks that would use too much memory or time are refused within limits of both."""

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
from tests.bounded import run_with_limits
from tests.studies.workbook.workbook_builder import find_mistakes, make_workbook, save_workbook
from tests.sweeps import sample_daily

MAIN = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
SHEET = "xl/worksheets/sheet1.xml"
STRINGS = "xl/sharedStrings.xml"
STYLES = "xl/styles.xml"
MILLION = 1_000_000


def make_sheet(rows: bytes) -> bytes:
    return b"<worksheet " + MAIN + b"><sheetData>" + rows + b"</sheetData></worksheet>"


def replace_parts(
    good_one: Path, path: Path, pack: int = zipfile.ZIP_DEFLATED, **parts: bytes
) -> Path:
    """Write a copy of a workbook with some of its parts replaced or added."""
    with zipfile.ZipFile(good_one) as old, zipfile.ZipFile(path, "w", pack, compresslevel=1) as new:
        names = {name: old.read(name) for name in old.namelist()} | parts
        for name, data in names.items():
            new.writestr(name, data)
    return path


def write_false_size(good_one: Path, path: Path) -> Path:
    """Write a part with a stated size of 1,000 bytes that unpacks to 400 million."""
    replace_parts(good_one, path, **{STYLES: b"\0" * (400 * MILLION)})
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


def write_shared_strings(good_one: Path, path: Path, strings: bytes, **more: bytes) -> Path:
    name = "[Content_Types].xml"
    with zipfile.ZipFile(good_one) as archive:
        types = archive.read(name)
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    one = b'<Override PartName="/%s" ContentType="%s"/></Types>' % (STRINGS.encode(), kind)
    changed = {
        name: types.replace(b"</Types>", one),
        STRINGS: b"<sst " + MAIN + b">" + strings + b"</sst>",
    }
    return replace_parts(good_one, path, **changed, **more)


def write_repeated_string(good_one: Path, path: Path) -> Path:
    """Write a workbook with one long shared string in every cell."""
    text = b"<si><t>" + b"x" * 90_000 + b"</t></si>"
    cells = make_sheet(b"<row>" + b'<c t="s"><v>0</v></c>' * 5000 + b"</row>")
    return write_shared_strings(good_one, path, text, **{SHEET: cells})


def with_shared_strings(strings: Callable[[], bytes]) -> Callable[[Path, Path], Path]:
    """Return a function that writes a workbook with these shared strings."""
    return lambda good_one, path: write_shared_strings(good_one, path, strings())


def with_part(name: str, data: Callable[[], bytes]) -> Callable[[Path, Path], Path]:
    """Return a function that writes a workbook with this part, which is made only then."""
    return lambda good_one, path: replace_parts(good_one, path, **{name: data()})


def make_entities() -> bytes:
    head = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">'
    each = (b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9))
    return head + b"".join(each) + b"]><w>&j;</w>"


LIMITS = "seconds or 300 MB to read"
UNREADABLE = "the workbook cannot be read"
# Until Python 3.13 the XML reader refuses so many open tags. From 3.14 on it reads them until the
# memory is used up.
TOO_DEEP = UNREADABLE if sys.version_info < (3, 14) else LIMITS
BOMBS: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "styles": (
        with_part(STYLES, lambda: b"<styleSheet><cellXfs>" + b"<xf/>" * (8 * MILLION)),
        LIMITS,
    ),
    "strings": (with_shared_strings(lambda: b"<si/>" * (8 * MILLION)), LIMITS),
    "runs": (with_shared_strings(lambda: b"<si>" + b"<r/>" * (8 * MILLION)), LIMITS),
    "text": (
        with_shared_strings(lambda: b"<si><t>" + b"x" * (290 * MILLION) + b"</t></si>"),
        LIMITS,
    ),
    "wide": (with_part(SHEET, lambda: make_sheet(b"<row>" + b"<c/>" * (8 * MILLION))), LIMITS),
    "far": (
        with_part(SHEET, lambda: make_sheet(b'<row><c r="ZZZZZZZ1"><v>1</v></c></row>')),
        UNREADABLE,
    ),
    "deep row": (with_part(SHEET, lambda: make_sheet(b'<row r="99999999999"/>')), UNREADABLE),
    "no row": (
        with_part(SHEET, lambda: make_sheet(b'<row r="' + b"9" * 5000 + b'"/>')),
        UNREADABLE,
    ),
    "empty": (
        with_part(SHEET, lambda: make_sheet((b"<row>" + b'<c s="1"/>' * 10_000 + b"</row>") * 900)),
        LIMITS,
    ),
    "merges": (
        with_part(
            SHEET, lambda: make_sheet(b"")[:-12] + b"<mergeCells>" + b"<mergeCell/>" * (4 * MILLION)
        ),
        LIMITS,
    ),
    "repeated": (write_repeated_string, "100,000,000 characters"),
    "entities": (with_part("xl/workbook.xml", make_entities), UNREADABLE),
    "deep": (with_part(STYLES, lambda: b"<a>" * MILLION), TOO_DEEP),
    "tag": (with_part(STYLES, lambda: b'<a b="' + b"x" * (60 * MILLION)), UNREADABLE),
    "lying": (write_false_size, LIMITS),
    "huge": (with_part(STYLES, lambda: b"\0" * (400 * MILLION)), "unpacks to"),
}
# The daily test takes one of each kind: too many nodes, too far for the reader, too long once read,
# entities in entities, too large to unpack.
DAILY = ("strings", "far", "repeated", "entities", "huge")


@pytest.mark.parametrize(
    ("names", "seconds"),
    [
        # Of these files, only "strings" takes more than half a second: about 16.
        pytest.param(DAILY, 3, id="daily"),
        pytest.param(
            tuple(name for name in BOMBS if name != "deep"),
            3,
            id="all",
            marks=pytest.mark.nightly(part="mutations"),
        ),
        # It takes about a second, and must be refused for its content on a slow machine too.
        pytest.param(("deep",), 15, id="deep", marks=pytest.mark.nightly(part="mutations")),
    ],
)
def test_a_bomb_is_refused_within_bounded_memory(
    names: tuple[str, ...], seconds: int, tmp_path: Path
) -> None:
    good_one = save_workbook(make_workbook(), tmp_path / "good.xlsx")
    paths = {name: str(BOMBS[name][0](good_one, tmp_path / f"{name}.xlsx")) for name in names}
    setup = f"""
from pathlib import Path
from folkmoot import spreadsheet_cells
from folkmoot.child_process import Limits
from folkmoot.errors import InputError
from folkmoot.studies.workbook.preparation import load_workbook_config
spreadsheet_cells.LIMITS = Limits(seconds={seconds}, memory_bytes=300_000_000)
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
    said = json.loads(run_with_limits(setup, body, paths, memory=300_000_000))
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
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    with zipfile.ZipFile(path) as archive:
        part = archive.read(SHEET)
    cell = b'<row r="99"><c r="C99" t="%s"><v>%s</v></c></row>' % (kind.encode(), number.encode())
    hostile = replace_parts(
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
        book = make_workbook()
        book["constants"][1][column] = text
        found = find_mistakes(book, tmp_path)
        assert any(f"constants!{'AB'[column]}2" in problem for problem in found), found
    book = make_workbook()
    book["experimental_setting"][5][1] = "9" * 5000
    assert any("experimental_setting!B6" in problem for problem in find_mistakes(book, tmp_path))


def test_a_role_named_by_a_huge_number_is_located(tmp_path: Path) -> None:
    book = make_workbook()
    for row in book["interview_prompts"][1:]:
        if row[8] is not None:
            row[8] = "{0x" + "f" * 5000 + ": [1, 2]}"
    assert any("interview_prompts!I" in problem for problem in find_mistakes(book, tmp_path))
