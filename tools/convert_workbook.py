"""Convert an older workbook to the present layout.

    python -m tools.convert_workbook OLD.xlsx [FOLDER]

Older programs of this family had other sheets, keys and ways to write options, and filled gaps by
themselves. This command guesses missing values. It reports every guess on the terminal and in the
sheet `notes` of the new workbook.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from rapidfuzz import fuzz, process

from folkmoot.errors import EXIT_INPUT, InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import number_text, shorten
from folkmoot.studies.workbook.checks import FIXED_COLUMNS
from folkmoot.studies.workbook.config import (
    FACILITATOR,
    STRATEGIES,
    TASK_TYPES,
    VAR_TYPES,
    Problems,
    Scalar,
    special_role,
)
from folkmoot.studies.workbook.language.placeholders import OPTIONS
from folkmoot.studies.workbook.literals import (
    NotALiteral,
    looks_like_dict,
    looks_like_literal,
    read_literal,
)
from folkmoot.studies.workbook.preparation import load_workbook_config
from folkmoot.studies.workbook.spreadsheet.layouts import (
    AGENT_ROLES,
    COLUMNS,
    FLAGS,
    SHEETS,
    SHORT,
    Layout,
    Rows,
    as_bool,
    as_integer,
    detect_layout,
    header_row,
    names_for,
    workbook_bytes,
)
from folkmoot.studies.workbook.spreadsheet.reading import FREE_TEXT, MAX_ID, UNSAFE, names_row
from folkmoot.studies.workbook.spreadsheet.sheets import Cell, Sheet, read_book, rows_in_words

Values = dict[str, Scalar | None]

# Names of the archive that no later layout has.
_SHEETS = {"tasks": ("prompts_template", "prompts_templates", "prompts")}
_NAMES = {
    "session_assignment_strategy": "agent_assignment_strategy",
    "task_id": "id",
    "human_text": "text",
    "llm_text": "text_adapted",
    "validate_response": "response_validation",
    "name": "constant_label",
}
# Values for keys that older layouts lacked. The vendors' APIs use temperature 1 by default.
_NEW: Values = {"temperature": 1, "role_assignment_strategy": "random", "random_seed": 42}
_FACILITATORS = ("interviewer", "moderator", "experimenter", "host", "administrator")
_FLAGS = FLAGS[1:]  # is_adapted follows from the wording
_NOTHING = "{# nothing is told #}"  # a comment of the template: the description stays empty
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*:\s*(-?\d+(?:\.\d+)?)?")
_PLACEHOLDER = re.compile(r"\{+\s*(\w+)\s*\}+")
_MOST_LISTED = 21  # numbers that are written out, so that an answer in words fits beside them


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the new workbook beside the old one, or into a folder, and list every guess.

    Return the exit status: 2 if a file is in the way, or a mistake remains.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.convert_workbook")
    parser.add_argument("old", type=Path, help="the older workbook; it stays as it is")
    parser.add_argument("folder", type=Path, nargs="?", help="where the new one is written")
    given = parser.parse_args(arguments)
    new = (given.folder or given.old.parent) / f"{given.old.stem}_converted.xlsx"
    try:
        if new.exists():
            raise InputError(Problem("already exists", str(new), hint="move it, or name a folder"))
        data, guesses = convert(given.old)
        write_bytes(new, data)
        print(f"wrote {new}")
        for guess in guesses:
            print(f"Guess: {without_hidden(guess)}")
        load_workbook_config(new)
    except InputError as error:
        print(error, file=sys.stderr)
        return EXIT_INPUT
    print(f"\nCheck it: folkmoot check {new}")
    return 0


def convert(path: Path) -> tuple[bytes, list[str]]:
    """Return the new workbook and all guesses. Raises InputError if cells cannot be read."""
    book = read_book(path)
    if book.problems.found:
        raise InputError([replace(p, file=path.name) for p in book.problems.found])
    layout, found = detect_layout(list(book.sheets))
    target = SHORT if layout is SHORT else AGENT_ROLES
    work = _Conversion(path, target, book.problems.notes)
    sheets = work.sheets(book.sheets, found)
    content: dict[str, Rows] = {}
    for ours in (*COLUMNS, "profiles"):
        if ours in sheets:
            content[ours] = work.table(ours, sheets[ours])
    content["settings"] = work.settings(sheets.get("settings"))
    work.seats(content)
    return workbook_bytes(content, target, work.told), work.told


class _Conversion:
    """The conversion of one workbook. `told`: every guess, in the order of the sheets."""

    def __init__(self, path: Path, target: Layout, told: list[str]) -> None:
        self.path, self.target, self.told = path, target, told
        self.of_rows: dict[str, list[int]] = {}  # a guess → the rows of the tasks it is about
        self.renamed = ""  # the role that became the Facilitator
        self.roles = 0

    def sheets(self, there: Mapping[str, Sheet], found: Mapping[str, str]) -> dict[str, Sheet]:
        chosen = {ours: there[name] for ours, name in found.items()}
        spare = {n: s for n, s in there.items() if n not in found.values()}
        for ours in SHEETS:
            if ours in chosen:
                continue
            names = (self.target.sheet_name(ours), *_SHEETS.get(ours, ()))
            name = next((n for n in names if n in spare), None) or _likeliest(names, spare)
            if name is None:
                self.told.append(f"there was no sheet {names[0]}; it was added without rows")
            else:
                chosen[ours] = spare.pop(name)
                self.told.append(f"the sheet {name} became {names[0]}")
        self.told += [
            f"the sheet {name} was left out: it is not part of the layout" for name in spare
        ]
        return chosen

    def settings(self, sheet: Sheet | None) -> Rows:
        keys = self.target.setting_keys
        values: Values = {}
        for row, cells in sorted(sheet.rows.items()) if sheet else ():
            texts = [cells[c] for c in sorted(cells)]
            name = texts[0].text
            if name in ("experimental_setting", "settings_label"):
                continue
            key = _ours(name, keys, self.target.setting_name)
            where = f"{sheet.name if sheet else ''}!row {row}"
            if key is None or len(texts) > 2:
                self.told.append(f"{where}: {' '.join(t.text for t in texts)!r} was left out")
                continue
            values[key] = texts[1].value if len(texts) > 1 else None
        for key, value in _NEW.items():
            if key not in values:
                values[key] = value
                self.told.append(f"{key} is {value}: the old workbook has no such setting")
        name = str(values.get("experiment_id") or "")
        clean = UNSAFE.sub("_", name or self.path.stem).strip(" .-~")[:MAX_ID]
        if clean != name and values.get("experiment_id") is not None:
            self.told.append(f"the experiment_id {name!r} became {clean!r}: it names files")
            values["experiment_id"] = clean
        for key, choices in STRATEGIES.items():
            text = str(values.get(key) or "")
            if text and text not in choices:
                values[key] = _likeliest([text], choices, 75) or text
                self.told.append(f"{key} {text!r} became {values[key]!r}")
        if self.renamed and values.get("num_agents_per_session") == self.roles > 1:
            values["num_agents_per_session"] = self.roles - 1
            self.told.append(
                f"num_agents_per_session is {self.roles - 1} instead of {self.roles}: the "
                f"{self.renamed} was counted in"
            )
        if self.renamed:
            self.told.append(
                "max_conversation_length counts what a model writes; the old program counted "
                "questions as well"
            )
        # A key that is optional is only written where the old workbook had it.
        order = [k for k in keys if k in values or k not in self.target.optional]
        return [(self.target.setting_name(k), values.get(k)) for k in order]

    def table(self, ours: str, sheet: Sheet) -> Rows:
        if ours == "profiles":
            return self.profiles(sheet)
        rows = self.rows(ours, sheet)
        if ours == "tasks":
            return self.tasks(rows, sheet.name)
        if ours == "treatments":
            self.treatments(rows, sheet.name)
        elif ours == "roles":
            self.people(rows, sheet.name)
        elif ours == "constants":
            for number, values in rows.items():
                text = str(values.get("value") or "")
                if text and not looks_like_literal(text):
                    values["value"] = json.dumps([text], ensure_ascii=False)
                    self.told.append(f"{sheet.name}!row {number}: the value became a list of one")
        return [tuple(values.get(c) for c in COLUMNS[ours]) for values in rows.values()]

    def rows(self, ours: str, sheet: Sheet) -> dict[int, Values]:
        """Return the values of each row by our names, and report columns that we do not have."""
        columns = COLUMNS[ours]
        titles = [n for c in columns for n in (*names_for(c), _NAMES.get(c, c))]
        problems = Problems()
        top = header_row(
            sheet, [*titles, *(self.target.column_name(ours, c) for c in columns)], problems
        )
        self.told += problems.notes
        places: dict[int, str] = {}
        for number, cell in sorted(sheet.rows.get(top, {}).items()):
            name = _ours(cell.text, columns, lambda c: self.target.column_name(ours, c))
            if name is None or name in places.values():
                self.told.append(
                    f"{sheet.cell_address(top, number)}: the column {cell.text} was left out"
                )
            else:
                places[number] = name
        out: dict[int, Values] = {}
        for number, cells in sorted(sheet.rows.items()):
            if number <= top:
                continue
            values: Values = {places[c]: _plain(cell) for c, cell in cells.items() if c in places}
            for column in set(cells) - set(sheet.rows.get(top, {})):
                where = sheet.cell_address(number, column)
                self.told.append(
                    f"{where}: {cells[column].text[:60]!r} was left out, no column name"
                )
            if values:
                out[number] = values
        if ours == "tasks":
            for name in _FLAGS:
                if name not in places.values():
                    self.told.append(f"{name} is 0 in all tasks: there was no such column")
        return out

    def treatments(self, rows: dict[int, Values], sheet: str) -> None:
        for number, values in rows.items():
            if not values.get("treatment_description"):
                values["treatment_description"] = _NOTHING
                label = values.get("treatment_label")
                self.told.append(f"{sheet}!row {number}: {label} is told nothing (it was blank)")
        if not rows:
            rows[0] = {"treatment_label": "No Treatment", "treatment_description": _NOTHING}
            self.told.append(f"{sheet}: the treatment 'No Treatment' was added, it tells nothing")

    def people(self, rows: dict[int, Values], sheet: str) -> None:
        self.roles = len(rows)
        labels = [str(v.get("role_label") or "") for v in rows.values()]
        if any(special_role(label) == FACILITATOR for label in labels):
            return
        for number, values in rows.items():
            label = str(values.get("role_label") or "")
            if label.casefold() in _FACILITATORS:
                values["role_label"], self.renamed = FACILITATOR, label
                self.told.append(f"{sheet}!row {number}: the role {label} became {FACILITATOR}")
                return
        rows[0] = {
            "role_label": FACILITATOR,
            "role_description": "You lead the session and pose the questions.",
        }
        self.told.append(f"{sheet}: the role {FACILITATOR} was added; it must be there")

    # --- tasks ---------------------------------------------------------------------------------

    def tasks(self, rows: dict[int, Values], sheet: str) -> Rows:
        waiting: list[tuple[int, str]] = []  # contexts between questions
        out: list[Values] = []
        ordered = any("task_order" in values for values in rows.values())
        self.flags(rows, sheet)
        for number, values in rows.items():
            _wording(values)
            self.var_type(values, number)
            values["type"] = kind = self.kind(values, number, out)
            begun = any(task["type"] != "context" for task in out)
            if kind == "context" and begun and not ordered:
                waiting.append((number, str(values.get("llm_text") or "")))
                continue
            if waiting:
                self.prefixed(values, waiting, number)
                waiting = []
            self.options(values, number)
            self.placeholders(values, number)
            values.setdefault("task_order", len(out))
            out.append(values)
        for guess, numbers in self.of_rows.items():
            self.told.append(f"{sheet}, {rows_in_words(numbers, len(rows))}: {guess}")
        if not ordered and out:
            self.told.append(f"{sheet}: task_order follows the order of the rows")
        for number, _ in waiting:
            self.told.append(f"{sheet}!row {number}: the context was left out, no task follows it")
        self.unique(out, sheet)
        return [tuple(values.get(c) for c in COLUMNS["tasks"]) for values in out]

    def guess(self, row: int, text: str) -> None:
        self.of_rows.setdefault(text, []).append(row)

    def flags(self, rows: dict[int, Values], sheet: str) -> None:
        for flag in _FLAGS:
            blank = [n for n, values in rows.items() if values.get(flag) is None]
            asked = [n for n in blank if rows[n].get("type") != "context"]
            if asked and len(blank) < len(rows):
                where = rows_in_words(asked, len(asked))
                self.told.append(f"{sheet}: {flag} was blank in {where}; it is 0")
            for number in blank:
                rows[number][flag] = 0

    def kind(self, values: Values, row: int, before: Sequence[Values]) -> str:
        text = str(values.get("type") or "").strip().casefold()
        free = values.pop("free", None)
        follows = bool(before) and before[-1].get("type") == "discussion"
        if free and not values.get("llm_text") and follows:
            values["llm_text"] = "Please go on with the discussion."
            self.guess(row, "a blank task after a discussion goes on with it")
            return "discussion"
        if free and text == "context" and values.get("var_name"):
            self.guess(row, "a context with a named answer became a discussion")
            return "discussion"
        if text == "question":
            self.guess(row, "the type question became private_question")
            return "private_question"
        kind = text.removeprefix("repeat_")
        found = kind if kind in TASK_TYPES else _likeliest([kind], TASK_TYPES, 80)
        if found and found != text:
            more = "; it is asked once" if text.startswith("repeat_") else ""
            self.guess(row, f"the type {text} became {found}{more}")
        return found or text

    def var_type(self, values: Values, row: int) -> None:
        text = str(values.get("var_type") or "").strip()
        folded = re.sub(r"[\s_-]", "", text.casefold())
        values["var_type"] = None
        if folded in FREE_TEXT:
            values["free"] = True
        elif folded in ("numeric", "number"):
            values["var_type"] = "float"
            self.guess(row, f"the var_type {text} became float")
        elif folded and folded != "context":
            values["var_type"] = _likeliest([folded], VAR_TYPES, 70) or text
            if values["var_type"] != text:
                self.guess(row, f"the var_type {text} became {values['var_type']}")

    def prefixed(self, values: Values, waiting: Sequence[tuple[int, str]], row: int) -> None:
        before = "\n\n".join(text for _, text in waiting)
        text = str(values.get("llm_text") or "")
        if looks_like_dict(text):
            try:
                by_role = read_literal(text)
            except NotALiteral:
                by_role = None
            if isinstance(by_role, dict):
                told = {role: f"{before}\n\n{words}" for role, words in by_role.items()}
                values["llm_text"] = json.dumps(told, ensure_ascii=False)
        else:
            values["llm_text"] = f"{before}\n\n{text}"
        rows = rows_in_words([number for number, _ in waiting])
        self.guess(row, f"the context in {rows} now precedes this task's own words")

    def options(self, values: Values, row: int) -> None:
        text = str(values.get("response_options") or "").strip()
        if text and not looks_like_literal(text):
            new, kind, checked = _options(text, cast("str | None", values["var_type"]))
            if new != text or kind != values["var_type"]:
                types = f", var_type {kind}" if kind != values["var_type"] else ""
                weaker = "" if checked else "; numbers outside the range are not asked for again"
                self.guess(row, f"the options became {shorten(new, 60)}{types}{weaker}")
            values["response_options"], values["var_type"] = new, kind
        if (
            not text
            and values["var_type"] in (None, "category")
            and as_bool(_cell(values.get("validate_response")))
        ):
            values["validate_response"] = 0
            self.guess(row, "validate_response is 0, there is nothing to check against")

    def placeholders(self, values: Values, row: int) -> None:
        text = str(values.get("llm_text") or "")

        def hint(match: re.Match[str]) -> str:
            word = match[1]
            if word == OPTIONS or fuzz.ratio(word, OPTIONS) < 85:
                return match[0]
            self.guess(row, f"{match[0]} became {{{OPTIONS}}}")
            return f"{{{OPTIONS}}}"

        text = _PLACEHOLDER.sub(hint, text)
        if not values.get("response_options") and f"{{{OPTIONS}}}" in text:
            text = text.replace(f"{{{OPTIONS}}}", "").strip()
            self.guess(row, f"{{{OPTIONS}}} was left out of the words, there are none")
        values["llm_text"] = text or None

    def unique(self, tasks: Sequence[Values], sheet: str) -> None:
        for column, taken in (("task_id", ()), ("var_name", FIXED_COLUMNS)):
            names = [_name(values.get(column)) for values in tasks]
            if column == "task_id":
                names = [name or f"task_{number}" for number, name in enumerate(names, 1)]
            for values, name, new in zip(tasks, names, _distinct(names, taken), strict=True):
                if new and new != _name(values.get(column)):
                    self.told.append(f"{sheet}: the {column} {name} became {new}")
                    values[column] = new

    # --- people ----------------------------------------------------------------------------------

    def profiles(self, sheet: Sheet) -> Rows:
        if not sheet.rows:
            return [("ID",), ("ID",)]
        problems = Problems()
        top = names_row(sheet, problems)
        self.told += problems.notes
        names, questions = sheet.texts(top), sheet.texts(top + 1)
        data = [cells for row, cells in sorted(sheet.rows.items()) if row > top + 1]
        for column in sorted({c for row, c, _ in sheet.iterate_cells() if row > top} - set(names)):
            names[column] = questions.get(column, f"column_{column}")
            self.told.append(
                f"{sheet.cell_address(top, column)}: the column was named {names[column]!r}"
            )
        columns = sorted(names)
        for column in columns:
            if column not in questions:
                questions[column] = names[column]
                where = sheet.cell_address(top + 1, column)
                self.told.append(f"{where}: the question is the name {names[column]!r}")
        for column, new in zip(columns, _distinct([names[c] for c in columns]), strict=True):
            if new != names[column]:
                where = sheet.cell_address(top, column)
                self.told.append(f"{where}: the second {names[column]} became {new}")
                names[column] = new
        if "ID" not in names.values():
            ids = next((c for c in columns if questions[c] == "ID"), None) or next(
                (c for c in columns if names[c].casefold() in ("id", "subjectid")), None
            )
            if ids is None:
                ids = 0
                columns = [0, *columns]
                questions[0] = "ID"
                data = [{0: Cell(str(n), str(n)), **cells} for n, cells in enumerate(data, 1)]
                self.told.append(f"{sheet.name}: a column ID was added, numbered by row")
            else:
                self.told.append(
                    f"{sheet.cell_address(top, ids)}: the column {names[ids]} became ID"
                )
            names[ids] = "ID"
        return [
            tuple(names[c] for c in columns),
            tuple(questions[c] for c in columns),
            *(tuple(_plain(cells[c]) if c in cells else None for c in columns) for cells in data),
        ]

    # --- who sits where --------------------------------------------------------------------------

    def seats(self, content: dict[str, Rows]) -> None:
        """Fit the sessions to the participants, since the old program cut or filled sessions."""
        setting = self.target.setting_name
        values = dict(cast("Iterable[tuple[str, Scalar | None]]", content["settings"]))
        people = [list(row) for row in content.get("profiles", ())]
        size = as_integer(_cell(values.get(setting("num_agents_per_session")))) or 0
        wanted = as_integer(_cell(values.get(setting("num_sessions")))) or 0
        if size < 1 or wanted < 1 or len(people) < 3:
            return
        if values.get(setting("session_assignment_strategy")) == "manual":
            name = values.get(setting("session_column"))
            title = next((row for row in people[:2] if name in row), None)
            if title is None:
                return
            column = title.index(name)
            sizes = Counter(row[column] for row in people[2:] if row[column] is not None)
            odd = {label for label, count in sizes.items() if count != size}
            if odd and len(odd) < len(sizes):
                for row in people[2:]:
                    row[column] = None if row[column] in odd else row[column]
                self.told.append(
                    f"the sessions {', '.join(str(o) for o in sorted(odd, key=str))} do not have "
                    f"{size} people; their session is blank, they take no part"
                )
                content["profiles"] = [tuple(row) for row in people]
            played = len(sizes) - len(odd) if len(odd) < len(sizes) else len(sizes)
        elif values.get(setting("treatment_assignment_strategy")) == "manual":
            return
        else:
            played = min(wanted, (len(people) - 2) // size)
        if played and played != wanted:
            self.told.append(f"num_sessions is {played} instead of {wanted}: so many can be played")
            values[setting("num_sessions")] = played
            content["settings"] = list(values.items())


def _wording(values: Values) -> None:
    """Use the same text for people and models if no text was adapted."""
    human, text = values.get("human_text"), values.get("llm_text")
    values["llm_text"] = human if text is None else text
    values.setdefault("is_adapted", int(text is not None and human not in (None, text)))


def _likeliest(names: Collection[str], among: Iterable[str], cutoff: int = 85) -> str | None:
    """Return the element of `among` that is most similar to one of the names."""
    choices = list(among)
    for name in names:
        guess = process.extractOne(
            name, choices, scorer=fuzz.ratio, processor=str.casefold, score_cutoff=cutoff
        )
        if guess:
            return str(guess[0])
    return None


def _ours(title: str, names: Sequence[str], called: Callable[[str], str]) -> str | None:
    """Return our name for a key or column of any layout."""
    for name in names:
        if title in (called(name), *names_for(name), _NAMES.get(name)):
            return name
    return _likeliest([title], names)


def _plain(cell: Cell) -> Scalar:
    """Return the value to write: a number if it looks the same as the old cell."""
    if isinstance(cell.value, str):
        return cell.value
    if isinstance(cell.value, bool) or cell.text == number_text(cell.value):
        return cell.value
    return cell.text


def _cell(value: Scalar | None) -> Cell | None:
    return None if value is None else Cell(value, str(value))


def _name(value: Scalar | None) -> str:
    return "" if value is None else number_text(value) if isinstance(value, float) else str(value)


def _distinct(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Return the names with a number after each repeated or taken one; "" is not changed."""
    seen, out = set(taken), []
    for name in names:
        new, count = name, 1
        while new and new in seen:
            count += 1
            new = f"{name}_{count}"
        seen.add(new)
        out.append(new)
    return out


def _options(text: str, kind: str | None) -> tuple[str, str | None, bool]:
    """(options as they are written now, var_type, whether they are still enforced)."""
    parts = list(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    ranges = [m for m in map(_RANGE.fullmatch, parts) if m]
    words = [part for part in parts if not _RANGE.fullmatch(part)]
    if not ranges:
        if len(parts) < 2:
            return text, kind, True
        numeric = all(re.fullmatch(r"-?\d+(\.\d+)?", part) for part in parts)
        if kind in ("integer", "float") and not numeric:
            kind = "category"
        return json.dumps(parts, ensure_ascii=False), kind, True
    low, high = ranges[0][1], ranges[0][2]
    if len(ranges) > 1:
        return text, kind, False
    if not words:
        kind = "integer" if kind in (None, "category") else kind
        if high is None:
            return f"Enter a number of at least {low}", kind, False
        return f"({low}, {high})", kind, True
    whole = high is not None and low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
    if whole and 0 < int(high) - int(low) < _MOST_LISTED:
        numbers = [str(n) for n in range(int(low), int(high) + 1)]
        return json.dumps([*numbers, *words], ensure_ascii=False), "category", True
    upper = f" to {high}" if high is not None else " upwards"
    return f"Enter a number from {low}{upper}, or one of: {'; '.join(words)}", "category", False


if __name__ == "__main__":
    sys.exit(main())
