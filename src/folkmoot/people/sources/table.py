"""Read personas from a table of real profiles: CSV, Parquet or JSON lines, one person per row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from folkmoot.errors import InputError, Problem
from folkmoot.files import READ_CSV_OPTIONS, header_problem
from folkmoot.hidden_characters import hidden_in, without_hidden
from folkmoot.people.enrichment import normalise_sex
from folkmoot.people.persona import DEMOGRAPHIC_KEYS, Persona, indefinite_article

TEXT_COLUMNS = ("text", "persona", "enriched_persona", "description", "profile")
MAX_BYTES = 500_000_000
MAX_PEOPLE = 1_000_000
# Far more than any survey has. Each column costs separate work.
MAX_COLUMNS = 10_000
# A small Parquet file can encode one long text in every row.
MAX_CHARACTERS = 200_000_000
BASE_COLUMNS = ("base_persona", "base")
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


def read_personas(path: Path, columns: Mapping[str, str] | None = None) -> list[Persona]:
    """Return every row as a persona, in the order of the file.

    These columns have a meaning: `id`, `name`, one of `TEXT_COLUMNS` (the description),
    `base_persona`, and the seven demographics. `ALSO_CALLED` holds other accepted names of them.
    Without a description column, the description is made from the other columns. All other columns
    are kept in `extra`. `columns` maps names with a meaning to those of the file (`{"age":
    "AGE_YRS"}`). Empty cells are left out. Raises InputError for an unreadable file, a repeated id,
    or rows without any information (named by line).
    """
    table = read_frame(path)
    given = columns or {}
    unknown = [theirs for theirs in given.values() if theirs not in table.columns]
    if unknown:
        have = ", ".join(table.columns)
        raise InputError(
            [
                Problem(f"no column {column!r}", file=str(path), hint=f"columns: {have}")
                for column in unknown
            ]
        )
    table = table.rename({theirs: ours for ours, theirs in given.items()})
    meant = _known_meanings(table.columns)
    people: list[Persona] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    characters = 0
    for number, row in enumerate(table.iter_rows(named=True)):
        cells = {
            # Keep hidden characters of an id, so that the check below can report them.
            name: value if name == "id" else _clean_cell(value)
            for name, value in ((meant[key], value) for key, value in row.items())
            if value is not None and str(value).strip()
        }
        persona = _build_persona(number, cells)
        where = str(number + first_line(path))
        characters += sum(len(cell) for cell in cells.values() if isinstance(cell, str))
        if characters > MAX_CHARACTERS:
            raise InputError(
                Problem(f"more than {MAX_CHARACTERS:,} characters up to here", str(path), where)
            )
        if persona is not None and (hidden := hidden_in(persona.id, label=True)):
            problem = f"the id holds {hidden}; it is invisible"
            problems.append(Problem(problem, str(path), where, "id", hint="delete it"))
        elif persona is None:
            problems.append(Problem("this row describes nobody", str(path), where))
        elif persona.id in seen:
            problems.append(Problem(f"duplicate id {persona.id!r}", str(path), where, "id"))
        else:
            seen.add(persona.id)
            people.append(persona)
    if not people and not problems:
        problems.append(Problem("no rows", file=str(path)))
    if problems:
        raise InputError(problems)
    return people


def first_line(path: Path) -> int:
    """Return the line number of the first person in a file."""
    return 2 if path.suffix.lower() in {".csv", ".tsv"} else 1


def read_frame(path: Path) -> pl.DataFrame:
    """Return the table in a file. Raises InputError if the file cannot be read."""
    kind = path.suffix.lower()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(Problem(f"larger than {MAX_BYTES:,} bytes", file=str(path)))
        # A few bytes of Parquet can encode any number of rows, so check before reading.
        if kind in {".parquet", ".pq"}:
            rows = pl.scan_parquet(path).select(pl.len()).collect().item()
            if rows > MAX_PEOPLE:
                raise InputError(Problem(f"{rows:,} rows, the limit is {MAX_PEOPLE:,}", str(path)))
            _check_columns(path, len(pl.read_parquet_schema(path)))
        if kind in {".csv", ".tsv"}:
            return _read_separated_file(path, "," if kind == ".csv" else "\t")
        if kind in {".parquet", ".pq"}:
            return pl.read_parquet(path)
        if kind in {".jsonl", ".ndjson"}:
            table = pl.read_ndjson(path, infer_schema_length=None)
            _check_columns(path, table.width)
            return table
    except FileNotFoundError as error:
        raise InputError(Problem("no such file", file=str(path))) from error
    except (OSError, pl.exceptions.PolarsError) as error:
        first = str(error).strip().splitlines()[0]
        hint = READ_CSV_OPTIONS if kind in {".csv", ".tsv"} else ""
        raise InputError(Problem(f"cannot be read: {first}", file=str(path), hint=hint)) from error
    raise InputError(
        Problem(
            f"cannot read profiles from a {kind or 'nameless'} file",
            file=str(path),
            hint="give .csv, .tsv, .parquet or .jsonl",
        )
    )


def _check_columns(path: Path, count: int) -> None:
    if count > MAX_COLUMNS:
        raise InputError(Problem(f"{count:,} columns, the limit is {MAX_COLUMNS:,}", str(path)))


def _read_separated_file(path: Path, mark: str) -> pl.DataFrame:
    # Read the header first, because a file with very many columns is slow to parse.
    header = pl.read_csv(path, separator=mark, infer_schema=False, n_rows=0)
    _check_columns(path, header.width)
    cells = pl.read_csv(path, separator=mark, infer_schema=False)
    if wrong := header_problem(cells.columns, mark):
        raise InputError(Problem(wrong, str(path), "1"))
    return cells.with_columns(_parse_number_column(column) for column in cells)


def _parse_number_column(column: pl.Series) -> pl.Series:
    """Return the column as numbers if no cell changes its spelling, otherwise unchanged.

    007 and 1.10 would change, so they stay text.
    """
    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if numbers.cast(pl.String).eq_missing(column).all():
            return numbers
    return column


def _clean_cell(value: object) -> object:
    """Return a cell without hidden characters."""
    return without_hidden(value) if isinstance(value, str) else value


def clean_name(column: str) -> str:
    """Return the name of a column in lower case with underscores."""
    return column.strip().lower().replace(" ", "_").replace("-", "_")


def _known_meanings(columns: Sequence[str]) -> dict[str, str]:
    """Return for each column the known name of its meaning.

    If several columns have the same meaning, the first one gets the name.
    """
    meant = {column: clean_name(column) for column in columns}
    taken = Counter(meant.values())
    for column, name in list(meant.items()):
        # A column with the exact name takes precedence over a synonym.
        if not taken[known := ALSO_CALLED.get(name, name)]:
            meant[column] = known
            taken[known] += 1
            taken[name] -= 1
    return meant


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
    text = text or base or describe_person(name, demographics, extra)
    return Persona(
        id=str(cells.get("id", f"t_{number + 1:05d}")),
        text=text[8:] if text.casefold().startswith("you are ") else text,
        base=base or text,
        demographics=demographics,
        source="table",
        name=name,
        extra=extra,
    )


def describe_person(
    name: str, demographics: Mapping[str, object], extra: Mapping[str, object]
) -> str:
    """Return a description that completes "You are …" from the cells of a row."""
    age = f"{demographics['age']}-year-old " if "age" in demographics else ""
    sex = {"F": "woman", "M": "man"}.get(str(normalise_sex(demographics.get("sex"))), "")
    who = f"{age}{sex or 'person'}"
    head = f"{indefinite_article(who)} {who}"
    if "occupation" in demographics:
        head += f" who works as {demographics['occupation']}"
    said = {"age", "occupation", *(["sex"] if sex else [])}
    rest = {key: demographic for key, demographic in demographics.items() if key not in said}
    rest.update(extra)
    facts = "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in rest.items())
    return f"{name + ', ' if name else ''}{head}." + (
        f" {_capitalise_first(facts)}." if facts else ""
    )


def _capitalise_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _to_json_value(value: object) -> object:
    """Return a cell as a JSON value. Dates, decimals and similar types become text."""
    if isinstance(value, (str, int, float, bool)):
        return value.strip() if isinstance(value, str) else value
    return json.loads(json.dumps(value, default=str))
