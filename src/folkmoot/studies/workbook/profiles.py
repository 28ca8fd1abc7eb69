"""The profiles sheet: short names, questions, and the people, every value kept as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from openpyxl.utils import get_column_letter

from folkmoot.hidden_characters import without_hidden
from folkmoot.studies.workbook.appearance import rows_in_words
from folkmoot.studies.workbook.model import Profiles
from folkmoot.studies.workbook.sheets import Cell, Sheet
from folkmoot.studies.workbook.tables import (
    MAX_ABOVE,
    Problems,
    as_number,
    gap_note,
    note_above,
    report_hidden,
)

MAX_ROWS_OF_ONE_KIND = 20


def read_profiles(sheet: Sheet, problems: Problems) -> Profiles:
    """Short names, below them the questions, then one respondent a row; everything stays text."""
    top = names_row(sheet, problems)
    names = {c: cell.text for c, cell in sheet.rows.get(top, {}).items()}
    questions = {c: cell.text for c, cell in sheet.rows.get(top + 1, {}).items()}
    data = {n: cells for n, cells in sorted(sheet.rows.items()) if n > top + 1}
    used = sorted({c for cells in data.values() for c in cells} | set(names) | set(questions))
    columns = [c for c in used if c in names]
    titles = [names[c] for c in columns]
    asked = tuple(questions.get(c, names[c]) for c in columns)
    _check_header(sheet, top, names, questions, used, problems)
    profiles = Profiles(
        names=tuple(titles),
        questions=asked,
        rows=tuple(
            tuple(without_hidden(cells[c].text) if c in cells else "" for c in columns)
            for cells in data.values()
        ),
        lines=tuple(data),
        columns=tuple(get_column_letter(c) for c in columns),
        sheet=sheet.name,
    )
    for row in (top, top + 1):
        for c in columns:
            report_hidden(sheet, row, c, problems)
    if "ID" not in profiles.titles:
        near = next((t for t in titles if t.casefold() == "id"), None)
        mend = f"rename {near!r} to 'ID'" if near else "name the column of identifiers ID"
        where = sheet.at(top, 1)
        problems.add(f"there is no column named ID in row {top} or {top + 1}", where, mend=mend)
        problems.structural = True
        return profiles
    column = columns[profiles.id_column]
    for row in data:
        report_hidden(sheet, row, column, problems)
    if names[column] != "ID":
        problems.notes.append(
            f"{sheet.at(top + 1, column)}: the column {names[column]} holds the IDs, as row "
            f"{top + 1} says"
        )
    if not data:
        problems.add("there is no respondent", sheet.at(top + 2, 1), mend="add rows from there on")
    _check_questions(sheet, top + 1, column, data, problems)
    _check_ids(profiles, problems)
    _note_rows(profiles, problems)
    gap_note(sheet, data, problems)
    return profiles


def names_row(sheet: Sheet, problems: Problems) -> int:
    """The row of the short names: 1, or further down where ID is named there.

    Some workbooks have ID among the questions only; then the short names are one row above.
    """

    def has_id(row: int) -> bool:
        return any(cell.text == "ID" for cell in sheet.rows.get(row, {}).values())

    found = next((row for row in sorted(sheet.rows)[:MAX_ABOVE] if has_id(row)), 1)
    above = len(sheet.rows.get(found - 1, {}))
    if not has_id(found + 1) and 2 * above > len(sheet.rows.get(found, {})):
        found -= 1
    note_above(sheet, found, problems)
    return found


def _check_header(
    sheet: Sheet,
    top: int,
    names: Mapping[int, str],
    questions: Mapping[int, str],
    used: list[int],
    problems: Problems,
) -> None:
    if names and not questions:
        problems.add(
            f"row {top + 1} is empty; the questions belong there",
            sheet.at(top + 1, min(names)),
            mend="write each question as it was asked",
        )
    for column in used:
        if column not in names:
            problems.add(
                f"the column has no name in row {top}",
                sheet.at(top, column),
                mend="name it or clear it",
            )
        elif questions and column not in questions:
            problems.add(
                f"the column {names[column]} has no question in row {top + 1}",
                sheet.at(top + 1, column),
                mend="write the question as it was asked",
            )
    seen: set[str] = set()
    for column, title in sorted(names.items()):
        if title in seen:
            problems.add(
                f"the name {title!r} stands in row {top} twice",
                sheet.at(top, column),
                mend="rename",
            )
        seen.add(title)


def _check_questions(
    sheet: Sheet, row: int, column: int, data: Mapping[int, Mapping[int, Cell]], problems: Problems
) -> None:
    """Without a row of questions the first respondent would be taken for one."""
    asked = as_number(sheet.rows.get(row, {}).get(column))
    ids = [as_number(cells.get(column)) for cells in data.values()]
    if asked is not None and ids and None not in ids:
        problems.add(
            f"row {row} must hold the questions, but it looks like a respondent",
            sheet.at(row, column),
            mend=f"insert a row {row} with the questions as they were asked",
        )


def _check_ids(profiles: Profiles, problems: Problems) -> None:
    seen: dict[str, str] = {}
    reported = 0
    for i, identifier in enumerate(profiles.ids()):
        where = profiles.cell(i, profiles.id_column)
        if not identifier:
            message, mend = "the respondent has no ID", "fill in the cell or clear the row"
        elif identifier in seen:
            message = f"the ID {identifier!r} stands there twice"
            mend = (
                f"it is in {seen[identifier]} as well; make them differ, and format the column as "
                "text where 3.1 and 3.10 are two"
            )
        else:
            seen[identifier] = where
            continue
        reported += 1
        if reported <= MAX_ROWS_OF_ONE_KIND:
            problems.add(message, where, mend=mend)
    if reported > MAX_ROWS_OF_ONE_KIND:
        problems.add(
            f"{reported - MAX_ROWS_OF_ONE_KIND} more respondents have a missing or repeated ID",
            profiles.sheet,
            mend="mend the column ID",
        )
    problems.notes += [
        f"{seen[labels[-1]]}: the IDs {' and '.join(map(repr, labels))} look alike; they are "
        "different respondents"
        for labels in look_alikes(list(seen))[:MAX_ROWS_OF_ONE_KIND]
    ]


def look_alikes(labels: Sequence[str]) -> list[list[str]]:
    """Different labels that a person would take for one, together."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(_folded(label), {})[label] = None
    return [list(group) for group in groups.values() if len(group) > 1]


def _folded(text: str) -> str:
    """The same for labels that a person would take for one: P1 and p1, 1 and 1.0 and 01."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    try:
        return f"{float(plain):g}"
    except ValueError:
        return plain


def _note_rows(profiles: Profiles, problems: Problems) -> None:
    """A footnote below the table becomes a respondent who answered nothing: say so."""
    if len(profiles.names) == 1:
        return
    bare = [n for n, row in zip(profiles.lines, profiles.rows, strict=True) if _bare(row)]
    if bare and len(bare) < len(profiles.rows):
        problems.notes.append(
            f"{profiles.sheet}: {rows_in_words(bare)} with one filled cell only, read as "
            "respondents all the same"
        )


def _bare(row: tuple[str, ...]) -> bool:
    return sum(map(bool, row)) == 1
