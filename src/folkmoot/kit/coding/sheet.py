"""Write spreadsheets for human coders, and read filled spreadsheets back as amendments."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from folkmoot.engine.session.folder_access import lock_folder
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.files import write_with
from folkmoot.hints import did_you_mean
from folkmoot.kit.coding.codebook import NO_CODE_LABEL, Codebook
from folkmoot.kit.coding.results import (
    CODE_CORRECTION,
    HAND_CODING,
    CodebookResults,
    correction_key,
    read_codings,
    text_digest,
)
from folkmoot.randomness import digest
from folkmoot.spreadsheet_cells import RawSheet, read_spreadsheet
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import RunFolder, utc_timestamp

# Names of the sheets in the workbook.
CORRECTION_SHEET, BLIND_SHEET, CODEBOOK_SHEET = "codes", "sample", "codebooks"
COMMON_COLUMNS = ("codebook", "number", "of", "text", "about")
CORRECTION_COLUMNS = (*COMMON_COLUMNS, "coder", "code", "quote", "corrected")
BLIND_COLUMNS = (*COMMON_COLUMNS, "your_codes")
# Words that confirm the coder's code, and words for "no code applies".
CONFIRM_MARKS = ("ok", "=")
NO_CODE_MARKS = ("none", NO_CODE_LABEL, "-")
# A spreadsheet cell holds at most 32,767 characters.
MAX_CELL_CHARACTERS = 32_000
INSTRUCTIONS = (
    "codes: in “corrected”, write ok, the right code, or none. Leave the cell empty if you did not "
    "check the code. To add a code where several are allowed, copy a line and clear the cell "
    "“code” of the copy.",
    "sample: in “your_codes”, write the codes, separated by semicolons, or none. Leave the cell "
    "empty if you did not code the text.",
)
COLUMN_WIDTHS = {
    "text": 80,
    "quote": 50,
    "about": 40,
    "code": 24,
    "corrected": 24,
    "your_codes": 32,
}


def write_sheet(run: RunFolder, path: Path, *, blind: bool) -> int:
    """Write a spreadsheet for a human coder and return the number of its lines.

    `blind`: write only a random part of the texts, and leave out the codes.
    Raises InputError if there is nothing to write, and StorageError if the file exists.
    """
    # Otherwise the sheet lists all codes with their quotes.
    if path.exists():
        hint = "read it with --read, or name another file"
        raise StorageError(f"{path} already exists; {hint}")
    results = read_codings(run)
    columns, sheet_name = (
        (BLIND_COLUMNS, BLIND_SHEET) if blind else (CORRECTION_COLUMNS, CORRECTION_SHEET)
    )
    rows = [
        row
        for codebook_results in results.values()
        for row in (_blind_rows(codebook_results) if blind else _correction_rows(codebook_results))
    ]
    # The numbers are digests, so their order does not reveal the condition of a text either.
    rows.sort(key=lambda row: (row["codebook"], row["number"]))
    if not rows:
        raise InputError(
            Problem(
                f"{run.path}: the sheet would be empty, because no text was coded or sampled",
                hint="code the run first: folkmoot codes RUN --coder MODEL",
            )
        )
    book = Workbook()
    sheet = book.active
    sheet.title = sheet_name
    _write_sheet(sheet, columns, rows)
    _write_sheet(
        book.create_sheet(CODEBOOK_SHEET),
        ("codebook", "code", "definition", "examples"),
        _codebook_rows(results),
    )
    write_with(path, book.save)
    return len(rows)


def _correction_rows(results: CodebookResults) -> Iterator[dict[str, str]]:
    if results.primary_coder is None:
        return
    for text_id, codes in results.codes_by_text.items():
        # A text without an applicable code also gets a line, because a human may disagree.
        for (of, code), quote in (codes or {("{}", NO_CODE_LABEL): ""}).items():
            coder = {"coder": results.primary_coder.name, "code": code, "quote": quote}
            yield {**_common_cells(results, text_id, of), **coder}


def _blind_rows(results: CodebookResults) -> Iterator[dict[str, str]]:
    for text_id, row in results.texts.items():
        slots = json.loads(row["slots"] or "{}")
        # A human decides on each combination of slot values, also on those to which no code
        # applies.
        for values in itertools.product(*slots.values()) if row["sampled"] else ():
            yield _common_cells(
                results,
                text_id,
                json.dumps(dict(zip(slots, values, strict=True)), ensure_ascii=False),
            )


def anonymous_number(book: str, text_id: str) -> str:
    """Return the number that identifies a text in a sheet without revealing the text id."""
    # A digest of the text id, because the id may reveal the condition.
    return digest(book, text_id, size=5).hex()


def _common_cells(results: CodebookResults, text_id: str, of: str) -> dict[str, str]:
    row = results.texts[text_id]
    about = json.loads(row["about"] or "{}")
    return {
        "codebook": results.book.name,
        "number": anonymous_number(results.book.name, text_id),
        "of": "" if of == "{}" else of,
        "text": row["text"] or "",
        "about": "\n".join(f"{name}: {text}" for name, text in about.items()),
    }


def _codebook_rows(results: Mapping[str, CodebookResults]) -> Iterator[dict[str, str]]:
    yield from ({"codebook": "how to", "definition": line} for line in INSTRUCTIONS)
    for book in (codebook_results.book for codebook_results in results.values()):
        yield {"codebook": book.name, "code": f"({book.choose})", "definition": book.question}
        for code in book.codes:
            examples = " / ".join(code.examples)
            yield {
                "codebook": book.name,
                "code": code.name,
                "definition": code.definition,
                "examples": examples,
            }


def _write_sheet(
    sheet: Any, columns: Sequence[str], lines: Iterator[dict[str, str]] | list[Any]
) -> None:
    sheet.append(columns)
    for number, line in enumerate(lines, 2):
        for column_number, column in enumerate(columns, 1):
            text = ILLEGAL_CHARACTERS_RE.sub("", line.get(column, ""))[:MAX_CELL_CHARACTERS]
            if text:
                # Force the type text. A model may have written something that starts with "=",
                # and a spreadsheet would evaluate it as a formula.
                sheet.cell(number, column_number, text).data_type = "s"
    # Keep the header visible while the human scrolls.
    sheet.freeze_panes = "A2"
    for column_index, column in enumerate(columns):
        sheet.column_dimensions[chr(ord("A") + column_index)].width = COLUMN_WIDTHS.get(column, 16)


def read_sheet(run: RunFolder, path: Path, by: str) -> list[Amendment]:
    """Store the codes on a sheet as amendments of the run, and return the new amendments.

    `by`: the human coder.
    Raises InputError with the cell of every mistake.
    """
    # Under the lock no other process adds amendments, and no withdrawal is half complete.
    with lock_folder(run.path):
        return _store_codes(run, path, by)


def _store_codes(run: RunFolder, path: Path, by: str) -> list[Amendment]:
    results = read_codings(run)
    now = utc_timestamp()
    problems: list[Problem] = []
    amendments: list[Amendment] = []
    parsers = {CORRECTION_SHEET: _parse_correction, BLIND_SHEET: _parse_hand_codes}
    sheets = {sheet.name: sheet for sheet in read_spreadsheet(path)}
    if not parsers.keys() & sheets.keys():
        hint = "write one with: folkmoot codes RUN --sheet FILE"
        raise InputError(
            Problem(f"there is no sheet {CORRECTION_SHEET} or {BLIND_SHEET}", str(path), hint=hint)
        )
    for name, parse_line in parsers.items():
        for number, line in _read_lines(sheets[name], path.name) if name in sheets else ():
            misplaced = _find_misplaced(results, line)
            data = misplaced or parse_line(results[line["codebook"]], line)
            if isinstance(data, Problem):
                cell = f"{name}!{number}"
                problems.append(Problem(data.message, path.name, cell, data.key, data.hint))
            elif data:
                kind = CODE_CORRECTION if name == CORRECTION_SHEET else HAND_CODING
                amendments.append(Amendment(kind, by, now, data))
    # Add nothing if any cell is wrong, so that the corrected sheet can be read as a whole.
    if problems:
        raise InputError(problems)
    _require_blind_coder(run, amendments, by)
    last = {
        _amendment_key(results, amendment): amendment.data
        for amendment in read_amendments(run.path)
        if amendment.kind in (CODE_CORRECTION, HAND_CODING)
        and amendment.data["codebook"] in results
    }
    new = [
        amendment
        for amendment in amendments
        if last.get(_amendment_key(results, amendment)) != amendment.data
    ]
    if new:
        append_amendments(run.path, new)
    return new


def _require_blind_coder(run: RunFolder, amendments: Sequence[Amendment], by: str) -> None:
    # Names are compared without case, because the same human may write the name differently.
    correctors = {
        amendment.author.casefold()
        for amendment in read_amendments(run.path)
        if amendment.kind == CODE_CORRECTION
    }
    if by.casefold() in correctors and any(
        amendment.kind == HAND_CODING for amendment in amendments
    ):
        raise InputError(
            Problem(
                f"{by} has corrected codes of this run, and therefore cannot code the sample blind",
                key=BLIND_SHEET,
                hint="let another human code the sample",
            )
        )


def _amendment_key(
    results: Mapping[str, CodebookResults], amendment: Amendment
) -> tuple[object, ...]:
    # A later amendment with the same key replaces it.
    data = amendment.data
    if amendment.kind == CODE_CORRECTION:
        key = correction_key(amendment, results[data["codebook"]].book)
    else:
        key = data["codebook"], data["text_id"], data["of"]
    return amendment.kind, amendment.author, *key


def _read_lines(sheet: RawSheet, file: str) -> Iterator[tuple[int, dict[str, str]]]:
    rows: dict[int, dict[int, str]] = {}
    for cell in sheet.cells:
        rows.setdefault(cell.row, {})[cell.column] = str(cell.value).strip()
    header = rows.pop(1, {})
    expected_columns = CORRECTION_COLUMNS if sheet.name == CORRECTION_SHEET else BLIND_COLUMNS
    if missing_columns := [column for column in expected_columns if column not in header.values()]:
        raise InputError(
            Problem(f"there is no column {missing_columns[0]}", file, f"{sheet.name}!1")
        )
    for number, cells in sorted(rows.items()):
        line = {header[column]: text for column, text in cells.items() if column in header}
        # The last column is the one for the human's answer.
        if line.get(expected_columns[-1]):
            yield (
                number,
                {**dict.fromkeys(expected_columns, ""), **line, "of": line.get("of") or "{}"},
            )


def _find_misplaced(results: Mapping[str, CodebookResults], line: dict[str, str]) -> Problem | None:
    # An unknown codebook or text number. Otherwise adds `text_id` and `words` (the digest of the
    # text) to `line`.
    if line["codebook"] not in results:
        hint = did_you_mean(line["codebook"], results)
        return Problem(f"no codebook {line['codebook']!r} in this run", key="codebook", hint=hint)
    numbers = {
        anonymous_number(line["codebook"], text): text for text in results[line["codebook"]].texts
    }
    if line["number"] not in numbers:
        hint = "keep the column number as folkmoot wrote it"
        return Problem(f"no text {line['number']!r} in this run", key="number", hint=hint)
    line["text_id"] = numbers[line["number"]]
    line["words"] = text_digest(results[line["codebook"]].texts[line["text_id"]])
    return None


def _parse_correction(
    results: CodebookResults, line: Mapping[str, str]
) -> dict[str, object] | Problem:
    was, corrected = line["code"] or NO_CODE_LABEL, line["corrected"]
    codes_by_text = results.primary_coder.codes if results.primary_coder else {}
    coder_codes = codes_by_text.get(line["text_id"], {})
    # Earlier sheets may have added codes.
    codes = {**results.codes_by_text.get(line["text_id"], {}), **coder_codes}
    # The human may have edited a cell by mistake, so the code must exist.
    if was != NO_CODE_LABEL and (line["of"], was) not in codes:
        hint = "keep the column code as folkmoot wrote it, or clear the cell to add a code"
        return Problem(f"the coder did not assign the code {was!r} here", key="code", hint=hint)
    own = [code for of, code in coder_codes if of == line["of"]]
    if was == NO_CODE_LABEL and own and results.book.choose == "one":
        hint = f"write the right code into the line of {own[0]}"
        return Problem(
            "this codebook allows one code, and the coder gave one", key="code", hint=hint
        )
    now = (
        was
        if corrected.casefold() in CONFIRM_MARKS
        else _parse_code_name(results.book, corrected, "corrected")
    )
    if isinstance(now, Problem):
        return now
    quote = codes.get((line["of"], was), "") if now == was else ""
    return {**_line_location(line), "was": was, "code": now, "quote": quote}


def _parse_hand_codes(
    results: CodebookResults, line: Mapping[str, str]
) -> dict[str, object] | Problem:
    names = [
        _parse_code_name(results.book, part.strip(), "your_codes")
        for part in line["your_codes"].split(";")
        if part.strip()
    ]
    if wrong := next((name for name in names if isinstance(name, Problem)), None):
        return wrong
    codes = list(dict.fromkeys(str(name) for name in names if name != NO_CODE_LABEL))
    if codes and NO_CODE_LABEL in names:
        hint = "write none alone, or leave it out"
        return Problem(f"{line['your_codes']!r}: none beside a code", key="your_codes", hint=hint)
    if len(codes) > 1 and results.book.choose == "one":
        return Problem(
            f"this codebook allows one code, and there are {len(codes)}", key="your_codes"
        )
    return {**_line_location(line), "codes": codes}


def _line_location(line: Mapping[str, str]) -> dict[str, str]:
    return {key: line[key] for key in ("codebook", "text_id", "words", "of")}


def _parse_code_name(book: Codebook, written: str, column: str) -> str | Problem:
    if written.casefold() in NO_CODE_MARKS:
        return NO_CODE_LABEL
    code = book.find_code(written)
    if code is None:
        hint = did_you_mean(
            written, book.code_names, "the codes are: " + ", ".join(book.code_names)
        )
        return Problem(f"{written!r} is not a code of {book.name}", key=column, hint=hint)
    return code.name
