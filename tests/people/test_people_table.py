"""Personas from table files: recognised columns, kept cells, refused files."""

from __future__ import annotations

import math
import unicodedata
from datetime import date
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from folkmoot.errors import InputError
from folkmoot.people.sources import table_files
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.people.sources.people_table import read_people
from folkmoot.people.sources.table import read_personas

pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

ROWS = {
    "ID": ["a", "b"],
    "Name": ["Ann Lee", "Bo Ray"],
    "Age": [41, 18],
    "sex": ["F", "M"],
    "occupation": ["a nurse", None],
    "Shoe Size": [38, 44],
}


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl"])
def test_every_format_gives_the_same_personas(tmp_path: Path, kind: str) -> None:
    path, frame = tmp_path / f"people.{kind}", pl.DataFrame(ROWS)
    {
        "csv": lambda: frame.write_csv(path),
        "tsv": lambda: frame.write_csv(path, separator="\t"),
        "parquet": lambda: frame.write_parquet(path),
        "jsonl": lambda: frame.write_ndjson(path),
    }[kind]()
    ann, bo = read_personas(path)
    assert (ann.id, ann.name, ann.demographics["age"], ann.extra) == (
        "a", "Ann Lee", 41, {"shoe_size": 38},
    )  # fmt: skip
    assert ann.text == "Ann Lee, a 41-year-old woman. Occupation: a nurse; shoe size: 38."
    assert "occupation" not in bo.demographics
    assert bo.text.startswith("Bo Ray, an 18-year-old man.")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl"])
def test_brackets_in_the_name_of_a_table_are_no_pattern(tmp_path: Path, kind: str) -> None:
    """A browser calls the second download `people[1].csv`. It was read from `people1.csv`."""
    for name, age in (("people[1]", 41), ("people1", 18)):
        path, frame = tmp_path / f"{name}.{kind}", pl.DataFrame({"name": ["Ann"], "age": [age]})
        {
            "csv": lambda path=path, frame=frame: frame.write_csv(path),
            "tsv": lambda path=path, frame=frame: frame.write_csv(path, separator="\t"),
            "parquet": lambda path=path, frame=frame: frame.write_parquet(path),
            "jsonl": lambda path=path, frame=frame: frame.write_ndjson(path),
        }[kind]()
    (person,) = read_personas(tmp_path / f"people[1].{kind}")
    assert person.demographics["age"] == 41


def test_descriptions_are_correct_english_for_every_kind_of_cell(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pl.DataFrame(
        {
            "age": [33],
            "occupation": ["unemployed"],
            "hobbies": [["chess", "tea"]],
            "owns_a_car": [False],
            "home": [{"rooms": 2, "garden": True, "pool": None}],
            "languages": [["Dutch", None, ""]],
            "children": pl.Series([[]], dtype=pl.List(pl.String)),
        }
    ).write_parquet(path)
    (person,) = read_personas(path)
    assert person.text == (
        "a 33-year-old person. Occupation: unemployed; hobbies: chess, tea; owns a car: no; "
        "home: rooms 2, garden yes; languages: Dutch."
    )


def test_a_given_description_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('text,age\n"You are a shy poet.",33\n')
    (poet,) = read_personas(path)
    assert poet.text == "a shy poet."
    assert poet.demographics == {"age": 33}


def test_demographics_are_recognised_by_common_column_names(tmp_path: Path) -> None:
    """Otherwise a prompt could contain them beside a contradicting drawn value."""
    path = tmp_path / "p.csv"
    path.write_text(
        "Gender,Politics,ideology,Household Income,ethnicity\nfemale,liberal,left,9000,X\n"
    )
    (ann,) = read_personas(path)
    assert ann.demographics == {"sex": "female", "political_leaning": "liberal", "income": 9000}
    assert ann.extra == {
        "ideology": "left",
        "race": "X",
    }  # of two matching columns the first is used
    path.write_text("gender,sex\nfluid,F\n")
    (ann,) = read_personas(path)
    assert (ann.demographics, ann.extra) == ({"sex": "F"}, {"gender": "fluid"})
    path.write_text("gender,age\nfluid,30\n")
    assert read_personas(path)[0].text == "a 30-year-old person. Sex: fluid."


def test_a_column_is_recognised_in_every_spelling_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    size = "Gr\u00f6\u00dfe"
    # A combining accent, and full-width letters.
    for spelling in (size, unicodedata.normalize("NFD", size)):
        path.write_text(f"\uff29\uff24,\uff21\uff47\uff45,{spelling}\nann,41,180\n", "utf-8")
        (ann,) = read_personas(path)
        assert (ann.id, ann.demographics, ann.extra) == (
            "ann",
            {"age": 41},
            {"gr\u00f6\u00dfe": 180},
        )
    path.write_text(f"id,{size},{unicodedata.normalize('NFD', size)}\nann,180,170\n", "utf-8")
    with pytest.raises(InputError, match="have the same name"):
        read_personas(path)


def test_problems_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,age\nx,30\nx,31\n,\ny,32\n")
    with pytest.raises(InputError) as error:
        read_personas(path)
    assert [(problem.where, problem.key) for problem in error.value.problems] == [
        ("3", "id"),
        ("4", ""),
    ]


@pytest.mark.parametrize("name", ["none.csv", "people.xlsx", "people.txt"])
def test_unreadable_files_are_refused(tmp_path: Path, name: str) -> None:
    if not name.startswith("none"):
        (tmp_path / name).write_text("a")
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        read_personas(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "p.csv",
            "text;age\nAnn;40\n",
            "p.csv:1: its columns are separated by semicolons; save it",
        ),
        ("p.csv", "text\tage\nAnn\t40\n", "separated by tabs"),
        ("p.tsv", "text,age\nAnn,40\n", "by commas; save it with tabs"),
        ("p.csv", "text,age,age\nAnn,40,41\n", "p.csv:1: two columns are called age"),
        ("p.csv", "text;age\nAnn, a baker;40\n", "save it as CSV in UTF-8, with commas"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        read_personas(tmp_path / name)
    assert problem in str(error.value)


def test_cells_are_kept_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,text,zip,version,children\n007,Ann,01234,1.10,2\n7,Bo,98765,1.1,\n")
    ann, bo = read_personas(path)
    assert (ann.id, bo.id) == ("007", "7")
    assert ann.extra == {"zip": "01234", "version": "1.10", "children": 2}
    assert bo.extra == {"zip": "98765", "version": "1.1"}


def test_a_table_that_unpacks_to_too_many_rows_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "people.parquet"
    pl.DataFrame({"text": pl.repeat("A cook.", 1_000_001, eager=True)}).write_parquet(path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(table_files.pl, "read_parquet", None)  # the table must not be unpacked
    with pytest.raises(InputError, match="1,000,001 rows, the limit is 1,000,000"):
        read_personas(path)


def test_one_long_text_in_every_row_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.people.sources.table.MAX_CHARACTERS", 2_000_000)
    path = tmp_path / "people.parquet"
    texts = pl.repeat("x" * 10_000, 250, eager=True)
    pl.DataFrame({"text": texts}).write_parquet(path)
    with pytest.raises(InputError, match="more than 2,000,000 characters up to here"):
        read_personas(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_table_of_too_many_columns_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(table_files, "MAX_COLUMNS", 50)
    path = tmp_path / f"wide.{kind}"
    wide_table = pl.DataFrame({f"c{number}": [1] for number in range(51)})
    {
        "csv": wide_table.write_csv,
        "parquet": wide_table.write_parquet,
        "jsonl": wide_table.write_ndjson,
    }[kind](path)
    with pytest.raises(InputError, match="51 columns, the limit is 50"):
        read_personas(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_nan_is_missing_in_every_format(tmp_path: Path, kind: str) -> None:
    """pandas writes a missing number as NaN. The other numbers of the column stay numbers."""
    path = tmp_path / f"people.{kind}"
    rows = {
        "id": ["a", "b"],
        "age": [31.0, math.nan],
        "trust": [math.nan, 2.5],
        "weight": [math.nan, 0.5],
    }
    if kind == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        # In these formats a text beside whole numbers keeps their spelling.
        cells = pl.DataFrame({**rows, "age": [31, None]})
        if kind == "csv":
            cells.write_csv(path)
            assert "a,31,NaN,NaN" in path.read_text()
        else:
            book = openpyxl.Workbook()
            for row in [tuple(rows), *cells.rows()]:
                book.active.append(["NaN" if str(cell) == "nan" else cell for cell in row])
            book.save(path)
    full, gap = read_personas(path)
    assert (full.text, full.demographics, full.extra) == ("a 31-year-old person.", {"age": 31}, {})
    assert (gap.text, gap.demographics) == ("a person. Trust: 2.5.", {})
    # The first weight is missing, and no default would be its value.
    with pytest.raises(InputError, match="weight: empty"):
        read_panel(path)


@pytest.mark.parametrize("cell", [math.inf, [1.0, math.nan], {"score": -math.inf}])
def test_a_number_that_no_run_can_write_is_refused_with_its_place(
    tmp_path: Path, cell: object
) -> None:
    path = tmp_path / "people.parquet"
    pl.DataFrame({"age": [31, 40], "trust": [None, cell]}, strict=False).write_parquet(path)
    with pytest.raises(InputError, match=r"people\.parquet:2: trust: .*number that is not finite"):
        read_personas(path)


def test_missing_answers_and_weights_are_no_part_of_a_description(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "id,name,age,gender,marital status,political party,satisfaction (1-5),weight\n"
        "a,Null,31,Prefer not to say,NA,Refused,4,1.5\n"
        "b,Bo,32,F,single,don't know,5,0.5\n"
    )
    null, bo = read_personas(path)
    assert null.text == "Null, a 31-year-old person. Satisfaction (1-5): 4."
    assert bo.text == "Bo, a 32-year-old woman. Marital status: single; satisfaction (1-5): 5."
    assert "weight" in bo.extra  # a panel draws by it


@pytest.mark.parametrize(
    ("ages", "codes"),
    [
        *[("18 35 80 99", 0), ("18 22 25 99", 1), ("31 -99", 1)],
        # All other answers are equal, as after a filter question.
        *[("40 40 999", 1), ("1 1 1 99", 1)],
    ],
)
def test_codes_for_missing_answers_are_no_part_of_a_description(
    tmp_path: Path, ages: str, codes: int
) -> None:
    path = tmp_path / "p.csv"
    path.write_text("age\n" + ages.replace(" ", "\n") + "\n")
    if not codes:
        assert len(read_personas(path)) == 4
        return
    with pytest.raises(InputError) as caught:
        read_personas(path)
    (problem,) = caught.value.problems
    assert "looks like a code for a missing answer (1 row)" in problem.message
    assert (problem.where, problem.key) == (str(len(ages.split()) + 1), "age")
    assert "a true age can be given as a band, such as “75-79”" in problem.hint


def test_codes_among_words_are_refused_and_a_small_number_is_not(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,party,lives in\na,left,Ulm\nb,999,88\nc,NA,Rome\n")
    with pytest.raises(InputError) as caught:
        read_personas(path)
    (problem,) = caught.value.problems
    assert problem.message == "999 looks like a code for a missing answer (1 row)"
    assert (problem.where, problem.key) == ("3", "party")


def test_a_single_other_answer_does_not_make_a_code(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("score,office\n50,999\n99,NA\n")
    assert [persona.extra["score"] for persona in read_personas(path)] == [50, 99]


def test_an_age_that_looks_like_a_code_can_be_given_as_a_band(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("age,sex,change (-3 to 3)\n18,F,0\n20,F,3\n75-79,F,-3\n")
    text = "a 75-79-year-old woman. Change (-3 to 3): -3."
    assert [persona.text for persona in read_personas(path)][2] == text
    assert len(read_panel(path).weights) == 3


def test_further_header_rows_of_qualtrics_are_no_people(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    header = 'Age,Job\nHow old are you?,Job\n"{""ImportId"":""Q1""}","{""ImportId"":""Q2""}"\n'
    path.write_text(header + "31,baker\n")
    with pytest.raises(InputError, match=r"p\.csv:3: Qualtrics wrote its question ids"):
        read_personas(path)


def test_lists_and_dates_of_a_table_are_described_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    days = [date(1997, 5, 18), date(1970, 1, 2)]  # day 9999 of the calendar, and day 1
    pl.DataFrame({"age": [31, 32], "hobbies": [["chess"], []], "born": days}).write_parquet(path)
    chess, _ = read_personas(path)
    assert "born: 1997-05-18" in chess.text and "chess" in chess.text


@pytest.mark.parametrize(
    "options",
    [
        ("👍", "👎"),
        ("+", "++"),
        ("Declined to sign", "signed"),
        ("I would rather not give", "gave"),
    ],
)
def test_options_are_answers_even_if_they_have_no_letter_or_decline(
    options: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "p.csv"
    first, second = options
    path.write_text(f"person,item,before,after\na,x,{first},{second}\nb,x,-,prefer not to say\n")
    assert read_people(path).select("before", "after").rows() == [options, (None, None)]


@pytest.mark.parametrize("scores", ["94 95 99", "98.2 98.4 97", "100 101 96"])
def test_a_number_near_all_others_is_no_code(scores: str, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("score\n" + scores.replace(" ", "\n") + "\n")
    assert len(read_personas(path)) == 3
