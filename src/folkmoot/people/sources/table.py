"""Read personas from a table: one row for each person, or one for each answer of a person."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.hidden_characters import hidden_in, without_hidden
from folkmoot.hints import capitalise
from folkmoot.people.enrichment import normalise_sex
from folkmoot.people.persona import DEMOGRAPHIC_KEYS, Persona, indefinite_article
from folkmoot.people.sources.missing_answers import (
    IN_OWN_WORDS,
    MISSING_HINT,
    is_answer,
    list_missing_codes,
)
from folkmoot.people.sources.people_table import (
    FIRST_ANSWERS,
    holds_answers,
    people_in_answers,
)
from folkmoot.people.sources.table_files import (
    WEIGHT_COLUMNS,
    clean_name,
    first_line,
    is_weight_column,
    read_frame,
)

TEXT_COLUMNS = ("text", "persona", "enriched_persona", "description", "profile")
# A small Parquet file can encode one long text in every row.
MAX_CHARACTERS = 200_000_000
BASE_COLUMNS = ("base_persona", "base")
# Columns in which a word such as "unknown" is no missing answer.
KEPT_AS_WRITTEN = (
    *(*IN_OWN_WORDS, *TEXT_COLUMNS, *BASE_COLUMNS, FIRST_ANSWERS),
    *WEIGHT_COLUMNS,
)
CODE_HINT = f"{MISSING_HINT}; a true value needs its unit, such as “99 euros”"
NOT_FINITE = "this cell has a number that is not finite"
AGE_HINT = f"{MISSING_HINT}; a true age can be given as a band, such as “75-79”"
# Names of the demographics in surveys. A column that is not recognised would appear in the
# description next to a drawn value that contradicts it.
ALSO_CALLED = {
    "gender": "sex",
    "age_years": "age",
    "education_level": "education",
    "schooling": "education",
    "household_income": "income",
    "job": "occupation",
    "profession": "occupation",
    "politics": "political_leaning",
    "political_views": "political_leaning",
    "political_orientation": "political_leaning",
    "ideology": "political_leaning",
    "ethnicity": "race",
    "town": "location",
    "city": "location",
    "residence": "location",
}


def read_personas(path: Path, *, with_first_answers: bool = False) -> list[Persona]:
    """Return every person of a table as a persona, in the order of the file.

    - `with_first_answers`: if True, the description contains the first answers of the person.

    Raises InputError for an unreadable file, a repeated id or an empty row.
    """
    # Known names are `id`, `name`, one of `TEXT_COLUMNS` (the description), `base_persona` and the
    # seven demographics. `ALSO_CALLED` holds other accepted names for them. All other columns are
    # kept in `extra`. Without a description, `base_persona` is the description. If that is missing
    # too, the description is made from all other columns. Empty cells are left out.
    table = _read_people_frame(path, with_first_answers)
    meant = _known_meanings(table.columns)
    _require_different_names(meant, path)
    people: list[Persona] = []
    problems = [
        problem
        for column, name in meant.items()
        if name not in KEPT_AS_WRITTEN
        for problem in list_missing_codes(
            table[column], path, hint=AGE_HINT if name == "age" else CODE_HINT
        )
    ]
    seen: set[str] = set()
    characters = 0
    for number, row in enumerate(table.iter_rows(named=True)):
        cells = {
            # Keep hidden characters of an id, so that the check below can report them.
            name: value if name == "id" else _clean_cell(value)
            for name, value in ((meant[key], value) for key, value in row.items())
            if (is_answer(value) or name in KEPT_AS_WRITTEN)
            and value is not None
            and str(value).strip()
        }
        problems += [
            Problem(NOT_FINITE, str(path), str(number + first_line(path)), name, MISSING_HINT)
            for name, cell in cells.items()
            if _has_nonfinite_number(cell)
        ]
        first_answers = cells.pop(FIRST_ANSWERS, "") if with_first_answers else ""
        persona = _build_persona(number, cells)
        if persona is not None and first_answers:
            persona = replace(persona, text=f"{persona.text} {first_answers}")
        where = str(number + first_line(path))
        characters += sum(len(cell) for cell in cells.values() if isinstance(cell, str))
        if characters > MAX_CHARACTERS:
            hint = "shorten the descriptions, or give fewer rows"
            problem = f"more than {MAX_CHARACTERS:,} characters up to here"
            raise InputError(Problem(problem, str(path), where, hint=hint))
        if persona is not None and (hidden := hidden_in(persona.id, label=True)):
            problem = f"the id contains {hidden}, which is invisible"
            problems.append(Problem(problem, str(path), where, "id", hint="delete it"))
        elif persona is None:
            hint = "describe the person in a column, or delete the row"
            problem = "this row has no information about a person"
            problems.append(Problem(problem, str(path), where, hint=hint))
        elif persona.id in seen:
            hint = "give each row another id"
            problem = f"duplicate id {persona.id!r}"
            problems.append(Problem(problem, str(path), where, "id", hint=hint))
        else:
            seen.add(persona.id)
            people.append(persona)
    if not people and not problems:
        hint = "add a row for each person"
        problems.append(Problem("no rows below the column names", file=str(path), hint=hint))
    if problems:
        raise InputError(problems)
    return people


def _read_people_frame(path: Path, with_first_answers: bool) -> pl.DataFrame:
    table = read_frame(path)
    if holds_answers(table.columns):
        people = people_in_answers(table, path)
        return people if with_first_answers else people.drop(FIRST_ANSWERS)
    if with_first_answers:
        hint = "a table of answers has the columns person, item, before and after"
        raise InputError(Problem("this table has no first answers", str(path), hint=hint))
    return table


def _has_nonfinite_number(cell: object) -> bool:
    # No run can be written with such a number. A file with types may also have it in a list.
    if isinstance(cell, float):
        return not math.isfinite(cell)
    parts = cell.values() if isinstance(cell, Mapping) else cell if isinstance(cell, list) else ()
    return any(map(_has_nonfinite_number, parts))


def _clean_cell(value: object) -> object:
    return without_hidden(value) if isinstance(value, str) else value


def _known_meanings(columns: Sequence[str]) -> dict[str, str]:
    # Each known name is given once. If several columns have the same meaning, the column that
    # already has the known name gets it, or else the first.
    meant = {column: clean_name(column) for column in columns}
    taken = Counter(meant.values())
    for column, name in list(meant.items()):
        # A column with the exact name takes precedence over a synonym.
        if not taken[known := ALSO_CALLED.get(name, name)]:
            meant[column] = known
            taken[known] += 1
            taken[name] -= 1
    return meant


def _require_different_names(meant: Mapping[str, str], path: Path) -> None:
    first_columns: dict[str, str] = {}
    for column, name in meant.items():
        if name in first_columns:
            problem = f"the columns {first_columns[name]} and {column} have the same name"
            raise InputError(Problem(problem, str(path), "1", hint="remove or rename one"))
        first_columns[name] = column


def _build_persona(number: int, cells: dict[str, object]) -> Persona | None:
    text = next(
        (str(cells[text_column]).strip() for text_column in TEXT_COLUMNS if text_column in cells),
        "",
    )
    base = next(
        (str(cells[base_column]).strip() for base_column in BASE_COLUMNS if base_column in cells),
        "",
    )
    name = str(cells.get("name", "")).strip()
    demographics = {
        demographic_key: _to_json_value(cells[demographic_key])
        for demographic_key in DEMOGRAPHIC_KEYS
        if demographic_key in cells
    }
    taken = {"id", "name", *TEXT_COLUMNS, *BASE_COLUMNS, *DEMOGRAPHIC_KEYS}
    extra = {key: _to_json_value(cell) for key, cell in cells.items() if key not in taken}
    if not (text or base or demographics or extra):
        return None
    # A description in the table takes precedence over one made from the cells.
    text = text or base or describe_person(name, demographics, extra)
    return Persona(
        id=str(cells.get("id", f"t_{number + 1:05d}")),
        # Prompts add "You are" themselves.
        text=text[8:] if text.casefold().startswith("you are ") else text,
        base=base or text,
        demographics=demographics,
        source="table",
        name=name,
        extra=extra,
    )


def describe_unused_weights(personas: Sequence[Persona], path: Path) -> str:
    """Return the sentence that weights of a table are not applied, or "" if it has none."""
    columns = {key for persona in personas for key in persona.extra if is_weight_column(key)}
    if not columns:
        return ""
    return (
        f"{path}: the column {min(columns)!r} is not applied and not part of a description. "
        "Grounded personas are drawn by weight (source: grounded)."
    )


def describe_person(
    name: str, demographics: Mapping[str, object], extra: Mapping[str, object]
) -> str:
    """Return the cells of a row as a description that completes "You are …"."""
    age = f"{demographics['age']}-year-old " if "age" in demographics else ""
    sex = {"F": "woman", "M": "man"}.get(str(normalise_sex(demographics.get("sex"))), "")
    noun = f"{age}{sex or 'person'}"
    head = f"{indefinite_article(noun)} {noun}"
    # A noun phrase cannot hold every occupation of a survey, such as "unemployed" or "retired".
    used_keys = {"age", *(["sex"] if sex else [])}
    rest = {key: demographic for key, demographic in demographics.items() if key not in used_keys}
    # A survey weight says nothing about the person.
    rest.update({key: fact for key, fact in extra.items() if not is_weight_column(key)})
    facts = "; ".join(
        f"{key.replace('_', ' ')}: {words}"
        for key, fact in rest.items()
        if (words := in_words(fact))
    )
    return f"{name + ', ' if name else ''}{head}." + (f" {capitalise(facts)}." if facts else "")


def in_words(fact: object) -> str:
    """Return the content of a cell as a reader would write it: "yes", "tea, coffee".

    The result is "" for a list or record without content.
    """
    # Files with types hold truth values, lists and records. Their parts may be empty.
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, Mapping):
        parts = ((f"{key.replace('_', ' ')} ", in_words(part)) for key, part in fact.items())
        return ", ".join(name + words for name, words in parts if words)
    if isinstance(fact, list):
        return ", ".join(filter(None, map(in_words, fact)))
    return "" if fact is None else str(fact)


def _to_json_value(value: object) -> object:
    if isinstance(value, (str, int, float, bool)):
        return value.strip() if isinstance(value, str) else value
    return json.loads(json.dumps(value, default=str))
