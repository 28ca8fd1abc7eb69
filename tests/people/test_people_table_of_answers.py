"""A table of human answers: valid content, file formats, and the personas it gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import openpyxl
import polars as pl
import pytest

import folkmoot
from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources import table_files
from folkmoot.people.sources.experiment import EVERYBODY, read_experiment
from folkmoot.people.sources.people_table import read_people
from folkmoot.people.sources.table import read_personas
from folkmoot.report.comparison.samples import people_file

pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

HEADER = "person,item,before,after,arm,text_shown,age,lives in"
ROWS = (
    "007,Buses should be free.,2,4,read,Buses are good.,31,town",
    "7,Buses should be free.,3,NA,control,,45,village",
    "007,Parks should close.,5,5,control,,31,town",
)


def write_table(folder: Path, *rows: str, header: str = HEADER, encoding: str = "utf-8") -> Path:
    path = folder / "people.csv"
    path.write_bytes("\n".join([header, *rows, ""]).encode(encoding))
    return path


def write_sheet(path: Path, rows: list[list[object]], change: Callable[..., object] = id) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(row)
    change(sheet)
    book.save(path)
    return path


def write_in_format(folder: Path, kind: str) -> Path:
    """Write the same three answers as a file of another format."""
    path = write_table(folder, *ROWS)
    table = pl.read_csv(path, infer_schema=False, null_values=["NA"])
    formatted_path = folder / f"other{kind}"
    if kind == ".csv":
        return write_table(folder, *ROWS, encoding="utf-8-sig")
    if kind == ".tsv":
        table.write_csv(formatted_path, separator="\t")
    elif kind == ".parquet":
        numbers = pl.col("before", "after", "age").cast(pl.Float64)
        table.with_columns(numbers).write_parquet(formatted_path)
    elif kind == ".jsonl":
        table.with_columns(pl.col("before", "after", "age").cast(pl.Int64)).write_ndjson(
            formatted_path
        )
    else:
        cells = [list(row) for row in table.rows()]
        numbers_and_texts = [
            [
                *row[:2],
                *(value and float(value) for value in row[2:4]),
                *row[4:6],
                int(row[6]),
                row[7],
            ]
            for row in cells
        ]
        write_sheet(formatted_path, [list(table.columns), *numbers_and_texts])
    return formatted_path


def test_nan_is_a_missing_answer_and_a_missing_attribute(tmp_path: Path) -> None:
    """A number of a Parquet file that is missing in pandas is NaN."""
    path = tmp_path / "people.parquet"
    pl.DataFrame(
        {
            "person": ["a", "a", "b"],
            "item": ["buses", "parks", "buses"],
            "before": [3.0, math.nan, 4.0],
            "after": [4.0, 5.0, math.nan],
            "age": [math.nan, math.nan, 41.0],
            "sex": ["F", "F", "M"],
        }
    ).write_parquet(path)
    table = read_people(path)
    assert table["before"].to_list() == ["3", None, "4"]
    assert table["after"].to_list() == ["4", "5", None]
    first, second = read_personas(path)
    assert (first.text, second.text) == ("a woman.", "a 41-year-old man.")
    one_item = tmp_path / "one_item.parquet"
    pl.read_parquet(path).filter(pl.col("item") == "buses").write_parquet(one_item)
    people = people_file(one_item).tables["participants"]
    assert people["final_choice"].to_list() == ["4", None]
    assert people["age"].to_list() == [None, 41]


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".jsonl", ".xlsx"])
def test_each_format_gives_the_same_answers_personas_and_comparison(
    tmp_path: Path, kind: str
) -> None:
    path = write_in_format(tmp_path, kind)
    answers = read_experiment(path)
    assert [(answer.person, answer.arm, answer.before, answer.after) for answer in answers] == [
        ("007", "read", 2, 4),
        ("7", "control", 3, None),
        ("007", "control", 5, 5),
    ]
    assert [answer.text_shown for answer in answers] == ["Buses are good.", "", ""]
    assert "31-year-old" in answers[0].persona and "Lives in: town" in answers[0].persona

    personas = read_personas(path)
    assert [persona.id for persona in personas] == ["007", "7"]
    # The answers, the arm and the text are not attributes of the persona.
    assert personas[0].text == "a 31-year-old person. Lives in: town."
    personas_with_answers = read_personas(path, with_first_answers=True)
    assert personas_with_answers[0].text.endswith(
        "Asked about “Buses should be free.”, you answered 2. "
        "Asked about “Parks should close.”, you answered 5."
    )


def test_a_comparison_reads_the_same_table_and_older_column_names(tmp_path: Path) -> None:
    new_file = write_table(
        tmp_path, "1,read,Park,Bus", "2,read,Bus,Bus", header="person,arm,before,after"
    )
    sample = people_file(new_file).tables["participants"]
    old_file = write_table(
        tmp_path, "1,read,Park,Bus", "2,read,Bus,Bus", header="participant,condition,first,last"
    )
    assert people_file(old_file).tables["participants"].equals(sample)
    assert sample.columns == [
        "participant_id",
        "condition",
        "initial_choice",
        "final_choice",
        "position_changed",
    ]
    two_items_file = write_table(
        tmp_path, "1,A,Park,Bus", "1,B,Bus,Bus", header="person,item,before,after"
    )
    with pytest.raises(InputError, match=r"item: 2 items \(a run asks about one item"):
        people_file(two_items_file)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            ["a,Buses,3,4,read,,,", "b,Buses,3,4,read,,,", "a,Buses,2,4,read,,,"],
            "4: person: a answers twice about 'Buses', first in row 2",
        ),
        # A person has only one condition for an item.
        (["a,Buses,3,4,read,,,", "a,Buses,3,4,control,,,"], "a answers twice about 'Buses'"),
        (
            ["a,Buses,3,4,read,,,", "b,Buses,3,4,,,,"],
            "3: arm: is empty, but other rows name an arm",
        ),
        (["a,Buses,3,4,read,,,", "b,Buses,3,4,Read,,,"], "'read' and 'Read' differ only in case"),
        (["a,,3,4,,,,"], "2: item: is empty"),
        ([",Buses,3,4,,,,"], "2: person: is empty"),
        (["a,Buses,,4,,,,"], "2: before: is empty"),
        (["a,Buses,3,inf,,,,"], "2: after: 'inf' is not a finite number"),
        (["a,Buses,3 of 5,4,,,,"], "2: before: '3 of 5' is not a finite number"),
        ([], "no answers below"),
    ],
)
def test_answers_that_cannot_be_replayed_are_refused_by_row(
    tmp_path: Path, rows: list[str], problem: str
) -> None:
    with pytest.raises(InputError) as error:
        read_experiment(write_table(tmp_path, *rows))
    assert problem in str(error.value)


@pytest.mark.parametrize("missing", ["NaN", "nan", "NAN", "NA", ""])
def test_every_spelling_of_nan_is_a_missing_number(tmp_path: Path, missing: str) -> None:
    """Python writes `nan`. It was refused as a number that is not finite."""
    rows = (f"1,read,2,{missing},1.5", f"2,read,3,4,{missing}")
    file = write_table(tmp_path, *rows, header="person,arm,before,after,trust")
    table = people_file(file).tables["participants"]
    assert table["trust"].to_list() == [1.5, None]
    assert table["final_choice"].to_list()[0] is None


def test_a_single_row_and_a_person_in_two_arms_are_valid(tmp_path: Path) -> None:
    (answer,) = read_experiment(
        write_table(tmp_path, "a,Buses,3,", header="person,item,before,after")
    )
    assert (answer.arm, answer.after) == (EVERYBODY, None)
    answers = read_experiment(
        write_table(tmp_path, "a,Buses,3,4,read,,,", "a,Parks,3,4,control,,,")
    )
    assert [item_answer.arm for item_answer in answers] == ["read", "control"]


def test_contradicting_attributes_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path, "a,Buses,3,4,,,30,town", "a,Parks,3,4,,,31,town")
    with pytest.raises(InputError, match="3: age: a has 31 here and 30 in row 2"):
        read_personas(path)


def test_first_answers_need_a_table_of_answers(tmp_path: Path) -> None:
    path = write_table(tmp_path, "a,a baker", header="id,text")
    with pytest.raises(InputError, match="no first answers"):
        read_personas(path, with_first_answers=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cannot be read as a table: empty CSV"),
        (
            b"person;item;before;after\na;Buses;3;4\n",
            "separated by semicolons; save it with commas",
        ),
        ("person,item,before,after\na,Busse für alle,3,4\n".encode("latin-1"), "line 2: not UTF-8"),
        (b"person,item,before,after\ra,Buses,3,4\rb,Buses,3,4\r", "end with a carriage return"),
        ("person,item,before,after\na,Buses,3,4\n".encode("utf-16"), "is not UTF-8"),
        ("person,item,before,after\r\na,Buses,3,4\r\n".encode("utf-16"), "is not UTF-8"),
        (b"person,item,before,before,after\na,Buses,3,3,4\n", "two columns are called before"),
        (b"person,item,before,first,after\na,Buses,3,3,4\n", "before and first have the same"),
        (b"person,item,before,After,after\na,Buses,3,3,4\n", "After and after have the same"),
        (b"person,item,before,after\na,Buses, free,3,4\n", "line 2: more fields than columns"),
        ("person,item,before,after,Größe\na,Buses,3,4,5\n".encode("latin-1"), "is not UTF-8"),
        (b"person,item,before\na,Buses,3\n", "no column 'after'"),
        (b"person,item,before,after,\na,Buses,3,4,x\n", "2: column 5 has a cell, but no name"),
        (b",person,item,before,after\n1,a,Buses,3,4\n", "2: column 1 has a cell, but no name"),
        (b"PK\x03\x04 not a table", ""),
    ],
)
def test_unusual_files_are_refused_with_a_hint(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_experiment(path)
    assert "people.csv" in str(error.value) and problem in str(error.value)


def test_blank_lines_at_the_end_of_a_file_are_no_people(tmp_path: Path) -> None:
    path = write_table(
        tmp_path, "a,Buses,3,4", "b,Parks,2,2", "", "", header="person,item,before,after"
    )
    assert read_people(path)["person"].to_list() == ["a", "b"]


def test_empty_columns_without_a_name_are_ignored(tmp_path: Path) -> None:
    path = write_table(tmp_path, "a,Buses,3,4,31,,", header="person,item,before,after,age,,")
    assert read_people(path).columns == ["person", "item", "before", "after", "age"]
    assert read_personas(path)[0].text == "a 31-year-old person."


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["a,read,Park,Bus", "b,,Bus,Bus"], "3: arm: is empty, but other rows name an arm"),
        (["a,read,Park,Bus", "b,Read,Bus,Bus"], "differ only in case or spaces"),
    ],
)
def test_a_comparison_refuses_ambiguous_arms(tmp_path: Path, rows: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        people_file(write_table(tmp_path, *rows, header="person,arm,before,after"))


def test_ten_thousand_rows_are_read(tmp_path: Path) -> None:
    rows = (f"p{n},item {n % 30},{n % 5},{n % 4},arm {n % 3},,{n % 80},x" for n in range(10_000))
    path = write_table(tmp_path, *rows)
    assert len(read_experiment(path)) == 10_000
    assert len(read_personas(path)) == 10_000


COLUMN_NAMES: list[object] = ["person", "item", "before", "after"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda sheet: sheet.merge_cells("A2:A3"), "Sheet!A2:A3: these cells are merged (unmerge"),
        (lambda sheet: setattr(sheet.row_dimensions[3], "hidden", True),
         "Sheet!3: this row or column is"),
        (lambda sheet: sheet.cell(2, 7, "note"), "Sheet!G2: no column name above this cell"),
        (lambda sheet: sheet.cell(1, 5, "before"), "two columns are called before"),
        (lambda sheet: sheet.cell(2, 3, "=1+1"), "Sheet!C2: this formula was never calculated"),
        (lambda sheet: sheet.parent.create_sheet("notes").cell(1, 1, "x"),
         "2 sheets have cells: Sheet,"),
        (lambda sheet: sheet.cell(90_000, 1, "x"), "is empty"),
        (lambda sheet: sheet.delete_rows(1, 3), "all sheets are empty"),
    ],
)  # fmt: skip
def test_a_sheet_that_is_not_a_simple_table_is_refused_by_cell(
    tmp_path: Path, change: Callable[..., object], problem: str
) -> None:
    rows: list[list[object]] = [COLUMN_NAMES, ["a", "Buses", 3, 4], ["b", "Buses", 2, 4]]
    path = write_sheet(tmp_path / "people.xlsx", rows, change)
    with pytest.raises(InputError) as error:
        read_experiment(path)
    assert problem in str(error.value)


def test_the_sheet_named_people_is_read(tmp_path: Path) -> None:
    def add_codebook(sheet: openpyxl.worksheet.worksheet.Worksheet) -> None:
        sheet.title = "People"
        sheet.parent.create_sheet("codebook").cell(1, 1, "x")

    rows: list[list[object]] = [COLUMN_NAMES, [7, "Buses", 3.5, 4]]
    (answer,) = read_experiment(write_sheet(tmp_path / "people.xlsx", rows, add_codebook))
    assert (answer.person, answer.before) == ("7", 3.5)


def test_a_sheet_with_few_cells_and_a_huge_area_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "MAX_SHEET_AREA", 100)
    path = write_sheet(
        tmp_path / "people.xlsx", [COLUMN_NAMES], lambda sheet: sheet.cell(500, 1, "a")
    )
    with pytest.raises(InputError, match="the table has 499 rows"):
        read_people(path)


def test_a_file_that_is_not_a_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.xlsx"
    path.write_text("person,item\n")
    with pytest.raises(InputError, match=r"not an \.xlsx workbook"):
        read_people(path)


@pytest.mark.parametrize("is_told", [True, False])
def test_participants_get_the_first_answers_only_on_request(tmp_path: Path, is_told: bool) -> None:
    write_table(
        tmp_path, *(f"r{n},Money,Park,Later answer,,Secret text.,{20 + n},town" for n in range(12))
    )
    (tmp_path / "study.yaml").write_text(
        "study: cross_pollination\npilot_id: a\n"
        "topic: {description: One can be funded., options: [Park, Bus]}\n"
        "participants_per_condition: 4\nconditions: [simple_voting]\n"
        f"personas: {{source: table, file: people.csv, first_answers: {str(is_told).lower()}}}\n",
        "utf-8",
    )
    model = ScriptedProvider(lambda *_: "Park", keep_requests=True)
    folkmoot.run(tmp_path / "study.yaml", provider=model, out=tmp_path / "run")
    system_prompts = [request.messages[0].content for _, request in model.seen]
    assert system_prompts and all("Lives in: town" in system for system in system_prompts)
    contains_answer = [
        "Asked about “Money”, you answered Park." in system for system in system_prompts
    ]
    assert all(contains_answer) if is_told else not any(contains_answer)
    assert not any("Secret text" in system or "Later answer" in system for system in system_prompts)
