"""Human benchmarks computed from a table of human answers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.measures.bands import Band
from folkmoot.measures.computed_bands import AnswerTable, compute_bands
from folkmoot.report.comparison.bands import bands_of_table, published_bands


def compute_bands_by_key(answers: AnswerTable) -> dict[str, Band]:
    return {band.key: band for band in compute_bands(answers, "a test", "made up")}


def test_shares_are_computed_by_condition_and_spread_by_item() -> None:
    """Two arms of 20 in which 4 and 10 change, and two items on scales of 1 to 5."""
    before = [2.0] * 20 + [4.0] * 20
    # In the first arm 4 cross to the other side. In the second, 10 move to the middle.
    after = [4.0] * 4 + [1.0] * 6 + [2.0] * 10 + [3.0] * 10 + [4.0] * 10
    arms = ["read"] * 20 + ["talk"] * 20
    items = ["buses", "parks"] * 20
    persons = [f"p{n}" for n in range(40)]
    bands = compute_bands_by_key(AnswerTable(persons, items, arms, before, after, (1.0, 5.0)))
    changed_band = bands["choice_changed"]
    assert (changed_band.low, changed_band.centre, changed_band.high) == (0.2, 0.35, 0.5)
    assert "on another side (against, undecided, for)" in changed_band.label
    assert changed_band.n == 40 and changed_band.range.startswith("lowest to highest of 2 arms")
    moved_band = bands["rating_moved"]
    assert (moved_band.low, moved_band.centre, moved_band.high) == (0.5, 0.5, 0.5)
    # 4 people by 2 points, 6 and 10 by 1, of a scale of 4.
    assert bands["rating_mean_change"].centre == pytest.approx((8 + 6 + 10) / 40 / 4)
    # Each item has 10 people against and 10 for: two of three sides, equally often.
    evenness = bands["normalised_entropy"]
    assert evenness.centre == pytest.approx(math.log(2) / math.log(3))
    # An item has 10 ratings of 2 and 10 of 4, and so a standard deviation of about 1 of 4 points.
    assert bands["rating_sd_of_scale"].centre == pytest.approx(math.sqrt(20 / 19) / 4)


def test_options_need_no_scale_and_small_conditions_do_not_count() -> None:
    before = ["Park"] * 30 + ["Bus"] * 10
    after = ["Park"] * 21 + ["Bus"] * 19
    arms = ["read"] * 35 + ["talk"] * 5
    bands = compute_bands_by_key(AnswerTable(["x"] * 40, [""] * 40, arms, before, after))
    changed_band = bands["choice_changed"]
    assert changed_band.centre == pytest.approx(9 / 40) and not changed_band.has_range
    assert changed_band.label == "share who ended with another option"
    assert set(bands) == {"choice_changed", "effective_number_ratio", "normalised_entropy"}


def test_options_of_other_items_do_not_count() -> None:
    """Each item has two equally popular options, so its evenness is 1."""
    before = ["Yes", "No"] * 20 + ["Park", "Bus"] * 20
    items = ["a"] * 40 + ["b"] * 40
    bands = compute_bands_by_key(AnswerTable(["x"] * 80, items, [""] * 80, before, before))
    assert bands["normalised_entropy"].low == pytest.approx(1.0)


def test_too_few_answers_give_no_benchmark() -> None:
    few_answers = AnswerTable(["x"] * 19, [""] * 19, [""] * 19, ["a"] * 19, ["a"] * 19)
    assert compute_bands(few_answers, "", "") == []


def write_table(folder: Path, *rows: str) -> Path:
    path = folder / "people.csv"
    path.write_text("\n".join(["person,item,before,after,arm", *rows]), "utf-8")
    return path


def test_the_bands_command_prints_computed_and_published_bands(tmp_path: Path) -> None:
    rows = [f"p{n},Buses,{1 + n % 5},{1 + (n + n % 2) % 5},read" for n in range(40)]
    path = write_table(tmp_path, *rows, "late,Buses,3,NA,read")
    result = CliRunner().invoke(app, ["bands", str(path), "--scale", "1", "5"])
    assert result.exit_code == 0 and "8 figures of 40 people in people.csv" in result.output
    with pytest.raises(
        InputError, match=r"1 to 5, which the scale from 1 to 4 does not hold \(give"
    ):
        bands_of_table(path, (1.0, 4.0))
    (tmp_path / "few").mkdir()
    with pytest.raises(InputError, match="1 pair of answers before and after, and 20 are needed"):
        bands_of_table(write_table(tmp_path / "few", "a,Buses,1,2,read", "b,Buses,1,,read"))
    published_result = CliRunner().invoke(app, ["bands"])
    assert published_result.exit_code == 0 and "Niemeyer" in published_result.output
    assert len(published_bands().notes) == 4


def test_options_that_differ_only_in_spelling_are_one_option(tmp_path: Path) -> None:
    rows = [
        f"p{n},Buses,{'Park' if n % 2 else 'Bus lane'},{'park' if n % 2 else '“Bus lane”'},a"
        for n in range(40)
    ]
    path = write_table(tmp_path, *rows, "late,Buses,Park,declined,a")
    bands, (note,) = bands_of_table(path)
    (changed,) = (band for band in bands if band.key == "choice_changed")
    assert (changed.centre, changed.n) == (0, 40)
    assert "““Bus lane”” as “Bus lane” and “park” as “Park”" in note
    result = CliRunner().invoke(app, ["bands", str(path)])
    assert "“park” as “Park”" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("p1,Buses,2,3,control", "42: person: p1 answers twice about 'Buses', first in row 3"),
        ("q,Buses,2,3,", "42: arm: is empty, but other rows name an arm"),
        ("q,Buses,2,3,Read", "arm: the arms 'read' and 'Read' differ only in case or spaces"),
        (",Buses,2,3,read", "42: person: is empty"),
        ("q,,2,3,read", "42: item: is empty"),
        # One slip would turn 80 ratings into options.
        ("q,Buses,agree,3,read", "42: before: 'agree' is not a finite number (write all"),
        ('q,Buses,2,"3,5",read', "42: after: '3,5' is not a finite number"),
        ("q,Buses,inf,3,read", "42: before: 'inf' is not a finite number"),
        ("q,Buses,2,1e400,read", "42: after: '1e400' is not a finite number"),
    ],
)
def test_an_ambiguous_table_gives_no_benchmark(tmp_path: Path, row: str, problem: str) -> None:
    rows = [f"p{n},Buses,{1 + n % 5},{1 + (n + n % 2) % 5},read" for n in range(40)]
    result = CliRunner().invoke(app, ["bands", str(write_table(tmp_path, *rows, row))])
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())


@pytest.mark.parametrize("code", ["-99", "-9", "99", "888"])
def test_codes_for_missing_answers_are_no_ratings(tmp_path: Path, code: str) -> None:
    rows = [f"p{n},Buses,{1 + n % 5},{1 + (n + n % 2) % 5},read" for n in range(40)]
    path = write_table(tmp_path, *rows, f"q,Buses,2,{code},read", f"r,Buses,3,{code},read")
    with pytest.raises(InputError) as caught:
        bands_of_table(path)
    (problem,) = caught.value.problems
    assert f"{code} looks like a code for a missing answer (2 rows)" in problem.message
    assert (problem.where, problem.key) == ("42", "after") and "write NA" in problem.hint
    # A stated scale can hold the number. It is then an answer.
    bands, _ = bands_of_table(path, (-100, 1000))
    assert bands[0].n == 42


def test_a_refusal_is_no_answer(tmp_path: Path) -> None:
    ratings = [f"p{n},Buses,{1 + n % 5},{1 + (n + n % 2) % 5},read" for n in range(40)]
    refused = ["q,Buses,2,Prefer not to say,read", "r,Buses,don't know,2,read"]
    bands, _ = bands_of_table(write_table(tmp_path, *ratings, *refused))
    assert bands[0].n == 40
    choices = [f"p{n},Buses,Park,{('Park', 'Bus lane')[n % 2]},read" for n in range(40)]
    # Among options, "don't know" may be one of them.
    refused = ["q,Buses,Park,Prefer not to say,read", "r,Buses,Park,Don't know,read"]
    bands, _ = bands_of_table(write_table(tmp_path, *choices, *refused))
    assert bands[0].n == 41


@pytest.mark.parametrize("before", ["2", '"2,5"'])
def test_ratings_with_decimal_commas_are_refused_as_one_problem(
    tmp_path: Path, before: str
) -> None:
    rows = [f'p{n},Buses,{before},"{1 + n % 4},5",read' for n in range(40)]
    with pytest.raises(InputError) as caught:
        bands_of_table(write_table(tmp_path, *rows))
    problem = caught.value.problems[-1]
    assert len(caught.value.problems) == (1 if before == "2" else 2)
    assert problem.message.startswith("40 rows: '1,5' is not a finite number")
    assert "point" in problem.hint


def test_further_header_rows_of_qualtrics_are_no_people(tmp_path: Path) -> None:
    ids = '"{""ImportId"":""QID1""}"'
    rows = [f"p{n},Buses,Park,{('Park', 'Bus lane')[n % 2]},read" for n in range(40)]
    path = write_table(tmp_path, "Id,Item,Before,After,Arm", ",".join([ids] * 5), *rows)
    result = CliRunner().invoke(app, ["bands", str(path)])
    assert result.exit_code == 2 and "people.csv:3: Qualtrics wrote" in result.output
