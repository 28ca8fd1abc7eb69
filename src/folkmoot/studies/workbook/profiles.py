"""The profiles sheet: short names, questions, and the people, every value kept as text."""

from __future__ import annotations

from openpyxl.utils import get_column_letter

from folkmoot.studies.workbook.model import Profiles
from folkmoot.studies.workbook.sheets import Sheet
from folkmoot.studies.workbook.tables import Problems

MAX_ROWS_OF_ONE_KIND = 20


def read_profiles(sheet: Sheet, problems: Problems) -> Profiles:
    """Row 1 short names, row 2 questions, then one respondent a row; everything stays text."""
    names = {c: cell.text for c, cell in sheet.rows.get(1, {}).items()}
    questions = {c: cell.text for c, cell in sheet.rows.get(2, {}).items()}
    data = {n: cells for n, cells in sorted(sheet.rows.items()) if n > 2}
    used = sorted({c for cells in data.values() for c in cells} | set(names) | set(questions))
    columns = [c for c in used if c in names]
    for column in used:
        if column not in names:
            problems.add(
                "the column has no name in row 1", sheet.at(1, column), mend="name it or clear it"
            )
        elif column not in questions:
            problems.add(
                f"the column {names[column]} has no question in row 2",
                sheet.at(2, column),
                mend="write the question as it was asked",
            )
    titles = [names[c] for c in columns]
    for i, title in enumerate(titles):
        if title in titles[:i]:
            problems.add(
                f"the name {title!r} stands in row 1 twice", sheet.at(1, columns[i]), mend="rename"
            )
    if "ID" not in titles:
        near = next((t for t in titles if t.casefold() == "id"), None)
        mend = f"rename {near!r} to 'ID'" if near else "name the column of identifiers ID"
        problems.add("there is no column named ID in row 1", f"{sheet.name}!A1", mend=mend)
        problems.structural = True
    elif not data:
        problems.add("there is no respondent", f"{sheet.name}!A3", mend="add rows from row 3 on")
    rows = tuple(
        tuple(cells[c].text if c in cells else "" for c in columns) for cells in data.values()
    )
    profiles = Profiles(
        names=tuple(titles),
        questions=tuple(questions.get(c, names[c]) for c in columns),
        rows=rows,
        lines=tuple(data),
        columns=tuple(get_column_letter(c) for c in columns),
        sheet=sheet.name,
    )
    if "ID" in titles:
        _check_ids(profiles, problems)
    return profiles


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
