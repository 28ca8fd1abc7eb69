"""Codes on paper: a sheet on which a person corrects the coder, or codes the sample blind, and its
way back into the run as amendments."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from folkmoot.engine.session.folder_access import held_folder
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.files import write_with
from folkmoot.hints import did_you_mean
from folkmoot.kit.coding.codebook import NO_CODE, Codebook
from folkmoot.kit.coding.results import BY_HAND, CORRECTION, Codings, codings, words_of
from folkmoot.randomness import digest
from folkmoot.spreadsheet_cells import RawSheet, read_spreadsheet
from folkmoot.storage.amendments import Amendment, amend, amendments
from folkmoot.storage.run_folder import RunFolder, time_of_day

CORRECTIONS, BLIND, BOOKS = "codes", "sample", "codebooks"  # names of sheets
SHARED = ("codebook", "number", "of", "text", "about")
CORRECTION_COLUMNS = (*SHARED, "coder", "code", "quote", "corrected")
BLIND_COLUMNS = (*SHARED, "your_codes")
KEEP = ("ok", "=")
NOTHING = ("none", NO_CODE, "-")
LONGEST_CELL = 32_000  # a spreadsheet's own limit is 32,767
HELP = (
    "codes: in “corrected”, write ok, the right code, or none. Leave it empty where you did not "
    "look. To add a code, copy a line and empty its “code”.",
    "sample: in “your_codes”, write the codes, separated by semicolons, or none. Leave it empty "
    "where you did not code.",
)
WIDTHS = {"text": 80, "quote": 50, "about": 40, "code": 24, "corrected": 24, "your_codes": 32}


def write_sheet(run: RunFolder, path: Path, *, blind: bool) -> int:
    """Write a sheet for a person; how many lines it has. `blind`: the sample without any codes,
    otherwise all codes with their quotes. Raises InputError, StorageError; never overwrites."""
    if path.exists():
        hint = "read it back with --read, or name another file"
        raise StorageError(f"{path} already exists; {hint}")
    read = codings(run)
    columns, name = (BLIND_COLUMNS, BLIND) if blind else (CORRECTION_COLUMNS, CORRECTIONS)
    lines = [line for c in read.values() for line in (_blind(c) if blind else _codes(c))]
    lines.sort(key=lambda line: (line["codebook"], line["number"]))  # their order tells as little
    if not lines:
        raise InputError(
            Problem(
                f"{run.path}: there is nothing to write on the sheet",
                hint="code the run first: folkmoot codes RUN --coder MODEL",
            )
        )
    book = Workbook()
    sheet = book.active
    sheet.title = name
    _write(sheet, columns, lines)
    _write(book.create_sheet(BOOKS), ("codebook", "code", "definition", "examples"), _books(read))
    write_with(path, book.save)
    return len(lines)


def _codes(read: Codings) -> Iterator[dict[str, str]]:
    if read.coder is None:
        return
    for text_id, codes in read.by_text.items():
        for (of, code), quote in (codes or {("{}", NO_CODE): ""}).items():
            coder = {"coder": read.coder.name, "code": code, "quote": quote}
            yield {**_shared(read, text_id, of), **coder}


def _blind(read: Codings) -> Iterator[dict[str, str]]:
    for text_id, row in read.texts.items():
        slots = json.loads(row["slots"] or "{}")
        for values in itertools.product(*slots.values()) if row["sampled"] else ():
            yield _shared(
                read, text_id, json.dumps(dict(zip(slots, values, strict=True)), ensure_ascii=False)
            )


def number_of(book: str, text_id: str) -> str:
    """What stands for a text on a sheet: an id may tell the condition, this tells nothing."""
    return digest(book, text_id, size=5).hex()


def _shared(read: Codings, text_id: str, of: str) -> dict[str, str]:
    row = read.texts[text_id]
    about = json.loads(row["about"] or "{}")
    return {
        "codebook": read.book.name,
        "number": number_of(read.book.name, text_id),
        "of": "" if of == "{}" else of,
        "text": row["text"] or "",
        "about": "\n".join(f"{name}: {said}" for name, said in about.items()),
    }


def _books(read: Mapping[str, Codings]) -> Iterator[dict[str, str]]:
    yield from ({"codebook": "how to", "definition": line} for line in HELP)
    for book in (c.book for c in read.values()):
        yield {"codebook": book.name, "code": f"({book.choose})", "definition": book.question}
        for code in book.codes:
            examples = " / ".join(code.examples)
            yield {
                "codebook": book.name,
                "code": code.name,
                "definition": code.definition,
                "examples": examples,
            }


def _write(sheet: Any, columns: Sequence[str], lines: Iterator[dict[str, str]] | list[Any]) -> None:
    sheet.append(columns)
    for number, line in enumerate(lines, 2):
        for place, column in enumerate(columns, 1):
            text = ILLEGAL_CHARACTERS_RE.sub("", line.get(column, ""))[:LONGEST_CELL]
            if text:  # as text, never as a formula: models wrote it
                sheet.cell(number, place, text).data_type = "s"
    sheet.freeze_panes = "A2"
    for place, column in enumerate(columns):
        sheet.column_dimensions[chr(ord("A") + place)].width = WIDTHS.get(column, 16)


def read_sheet(run: RunFolder, path: Path, by: str) -> list[Amendment]:
    """Take a person's corrections and codes from a sheet into the run, as amendments; the new ones.

    What was read before is not added again. Raises InputError with the cell of every mistake.
    """
    read = codings(run)
    now = time_of_day()
    problems: list[Problem] = []
    made: list[Amendment] = []
    takes = {CORRECTIONS: _correction, BLIND: _by_hand}
    sheets = {sheet.name: sheet for sheet in read_spreadsheet(path)}
    if not takes.keys() & sheets.keys():
        hint = "write one with folkmoot codes RUN --sheet FILE"
        raise InputError(
            Problem(f"there is no sheet {CORRECTIONS} or {BLIND}", str(path), hint=hint)
        )
    for name, take in takes.items():
        for number, line in _read_lines(sheets[name], path.name) if name in sheets else ():
            wrong = _misplaced(read, line)
            data = wrong or take(read[line["codebook"]], line)
            if isinstance(data, Problem):
                where = f"{name}!{number}"
                problems.append(Problem(data.message, path.name, where, data.key, data.hint))
            elif data:
                kind = CORRECTION if name == CORRECTIONS else BY_HAND
                made.append(Amendment(kind, by, now, data))
    if problems:
        raise InputError(problems)
    with held_folder(run.path):
        _refuse_who_saw(run, made, by)
        last = {_about(a): a.data for a in amendments(run.path)}
        new = [a for a in made if last.get(_about(a)) != a.data]
        if new:
            amend(run.path, new)
    return new


def _refuse_who_saw(run: RunFolder, made: Sequence[Amendment], by: str) -> None:
    """Raise InputError where somebody codes the sample after having seen the coder's codes."""
    seen = {a.by.casefold() for a in amendments(run.path) if a.kind == CORRECTION}
    if by.casefold() in seen and any(a.kind == BY_HAND for a in made):
        raise InputError(
            Problem(
                f"{by} has corrected codes of this run and so has seen them",
                key=BLIND,
                hint="let somebody else code the sample",
            )
        )


def _about(a: Amendment) -> tuple[object, ...]:
    """What an amendment decides; a later one of the same replaces it."""
    return a.kind, a.by, *(a.data.get(k) for k in ("codebook", "text_id", "of", "was"))


def _read_lines(sheet: RawSheet, file: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The lines of a sheet in which the person wrote something, by number."""
    rows: dict[int, dict[int, str]] = {}
    for cell in sheet.cells:
        rows.setdefault(cell.row, {})[cell.column] = str(cell.value).strip()
    header = rows.pop(1, {})
    wanted = CORRECTION_COLUMNS if sheet.name == CORRECTIONS else BLIND_COLUMNS
    if lacking := [c for c in wanted if c not in header.values()]:
        raise InputError(Problem(f"there is no column {lacking[0]}", file, f"{sheet.name}!1"))
    for number, cells in sorted(rows.items()):
        line = {header[column]: text for column, text in cells.items() if column in header}
        if line.get(wanted[-1]):
            yield number, {**dict.fromkeys(wanted, ""), **line, "of": line.get("of") or "{}"}


def _misplaced(read: Mapping[str, Codings], line: dict[str, str]) -> Problem | None:
    if line["codebook"] not in read:
        hint = did_you_mean(line["codebook"], read)
        return Problem(f"no codebook {line['codebook']!r} in this run", key="codebook", hint=hint)
    numbers = {number_of(line["codebook"], t): t for t in read[line["codebook"]].texts}
    if line["number"] not in numbers:
        return Problem(f"no text {line['number']!r} in this run", key="number")
    line["text_id"] = numbers[line["number"]]
    line["words"] = words_of(read[line["codebook"]].texts[line["text_id"]])
    return None


def _correction(read: Codings, line: Mapping[str, str]) -> dict[str, object] | Problem:
    was, said = line["code"] or NO_CODE, line["corrected"]
    codes = dict(read.coder.codes.get(line["text_id"], {})) if read.coder else {}
    if was != NO_CODE and (line["of"], was) not in codes:
        return Problem(f"the coder gave no such code, {was!r}", key="code")
    now = was if said.casefold() in KEEP else _named(read.book, said)
    if isinstance(now, Problem):
        return now
    quote = codes.get((line["of"], was), "") if now == was else ""
    return {**_place(line), "was": was, "code": now, "quote": quote}


def _by_hand(read: Codings, line: Mapping[str, str]) -> dict[str, object] | Problem:
    named = [
        _named(read.book, part.strip()) for part in line["your_codes"].split(";") if part.strip()
    ]
    if wrong := next((n for n in named if isinstance(n, Problem)), None):
        return wrong
    codes = list(dict.fromkeys(str(n) for n in named if n != NO_CODE))
    if len(codes) > 1 and read.book.choose == "one":
        return Problem(f"one code is wanted, not {len(codes)}", key="your_codes")
    return {**_place(line), "codes": codes}


def _place(line: Mapping[str, str]) -> dict[str, str]:
    return {key: line[key] for key in ("codebook", "text_id", "words", "of")}


def _named(book: Codebook, said: str) -> str | Problem:
    """The code that a person wrote."""
    if said.casefold() in NOTHING:
        return NO_CODE
    found = book.code(said)
    if found is None:
        hint = did_you_mean(said, book.names, "codes are: " + ", ".join(book.names))
        return Problem(f"{said!r} is not a code of {book.name}", key="corrected", hint=hint)
    return found.name
