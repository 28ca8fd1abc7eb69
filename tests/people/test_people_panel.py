"""A custom panel in place of the packaged sample: weights, gaps, other countries."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.people.sources.grounded import PersonaGenerator
from folkmoot.people.sources.grounded.panel import COMPLETE, read_panel
from folkmoot.randomness import generator

COMPLETE_HEADER = (
    "name,age,sex,education,income,occupation,household,location,location_type,political_leaning"
)


def write_panel(folder: Path, *lines: str) -> Path:
    path = folder / "panel.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_weighted_panel(folder: Path) -> Path:
    rows = [f"{20 + i % 50},{'FM'[i % 2]},weaver,{9 if i < 50 else 1}" for i in range(100)]
    return write_panel(folder, "age,sex,occupation,weight", *rows)


def test_rows_are_drawn_by_weight_without_repetition(tmp_path: Path) -> None:
    panel = read_panel(write_weighted_panel(tmp_path))
    first_draws = Counter(
        row < 50 for seed in range(300) for row in panel.sample_rows(1, generator(seed, ("p",)))
    )
    assert first_draws[True] / 300 == pytest.approx(0.9, abs=0.06)
    chosen_rows = panel.sample_rows(100, generator(1, ("p",)))
    assert sorted(chosen_rows) == list(range(100))


def test_more_draws_than_rows_are_as_many_as_the_weights_ask_for(tmp_path: Path) -> None:
    panel = read_panel(write_weighted_panel(tmp_path))
    row_counts = Counter(panel.sample_rows(250, generator(1, ("p",))))
    # 450 of 500 are the weights of the first 50 rows: 4.5 draws of each, and 0.5 of each other row.
    assert {row_counts[row] for row in range(50)} == {4, 5}
    assert {row_counts[row] for row in range(50, 100)} == {0, 1}
    assert row_counts.total() == 250
    exact = read_panel(write_panel(tmp_path, "age,weight", "30,1", "40,8", "50,1", "60,0"))
    assert Counter(exact.sample_rows(200, generator(1, ("p",)))) == {0: 20, 1: 160, 2: 20}
    equal = read_panel(write_panel(tmp_path, "age", "30", "40", "50"))
    assert set(Counter(equal.sample_rows(8, generator(1, ("p",)))).values()) == {2, 3}


def test_a_column_weights_holds_weights_too(tmp_path: Path) -> None:
    """The messages of other sources call it a column of weights, and send to this one."""
    panel = read_panel(write_panel(tmp_path, "age,weights", "30,1", "40,8", "50,1"))
    assert panel.weights == (1.0, 8.0, 1.0)


def test_rows_with_weight_zero_are_never_drawn(tmp_path: Path) -> None:
    panel = read_panel(write_panel(tmp_path, "age,weight", "30,0", "40,2", "50,1"))
    assert set(panel.sample_rows(20, generator(3, ()))) == {1, 2}


def test_values_of_the_panel_are_kept_and_the_rest_is_drawn(tmp_path: Path) -> None:
    profiles = PersonaGenerator(panel=read_panel(write_weighted_panel(tmp_path))).generate_profiles(
        40, generator(2, ())
    )
    assert {profile.occupation for profile in profiles} == {"weaver"}
    assert all(20 <= profile.age < 70 and profile.race == "" for profile in profiles)
    assert len({profile.name for profile in profiles}) == 40
    assert profiles == PersonaGenerator(
        panel=read_panel(write_weighted_panel(tmp_path))
    ).generate_profiles(40, generator(2, ()))


def test_quotas_are_filled_from_a_panel(tmp_path: Path) -> None:
    persona_generator = PersonaGenerator(panel=read_panel(write_weighted_panel(tmp_path)))
    profiles = persona_generator.generate_profiles(10, generator(2, ()), {"sex": {"F": 8, "M": 2}})
    assert Counter(profile.sex for profile in profiles) == {"F": 8, "M": 2}
    assert {profile.occupation for profile in profiles} == {"weaver"}


@pytest.mark.parametrize(
    ("lines", "key", "line", "message"),
    [
        (["age,weight", "30,1", "40,-2"], "weight", "3", "not a weight"),
        (["age,weight", "30,much", "40,2"], "weight", "2", "not a weight"),
        (["age,weight", "30,nan"], "weight", "2", "not a weight"),
        (["age,weight", "30,0"], "weight", "", "all weights are 0"),
        (["age,weight", "30,2", "40,"], "weight", "3", "empty"),
        (["age,weights", "30,1", "40,-2"], "weights", "3", "not a weight"),
        (["age,weight,weights", "30,1,2"], "", "", "both hold weights"),
        (["age,sex", "old,F"], "age", "2", "not a valid age"),
        (["age,country", "30,Chile"], "name", "2", "drawn from the American"),
    ],
)
def test_problems_are_reported_by_line(
    lines: list[str], key: str, line: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read_panel(write_panel(tmp_path, *lines))
    problem = error.value.problems[0]
    assert (problem.key, problem.where) == (key, line) and message in str(problem)


def test_a_complete_panel_of_another_country_gets_no_drawn_values(tmp_path: Path) -> None:
    row = "Amaya Soto,34,F,Some college,Middle income,enfermera,con su familia,Talca,urban,moderate"
    other_row = "Luis Rojas,61,M,High school,Low income,minero,solo,Calama,urban,liberal"
    path = write_panel(
        tmp_path, f"{COMPLETE_HEADER},country,weight", f"{row},Chile,2", f"{other_row},Chile,1"
    )
    panel = read_panel(path)
    profiles_by_name = {
        item.name: item
        for item in PersonaGenerator(panel=panel).generate_profiles(2, generator(1, ()))
    }
    amaya = profiles_by_name["Amaya Soto"]
    for key, value in zip(COMPLETE_HEADER.split(","), row.split(","), strict=True):
        assert str(getattr(amaya, key)) == value
    assert amaya.race == "" and profiles_by_name["Luis Rojas"].income == "Low income"
    for key in COMPLETE:
        column = COMPLETE_HEADER.split(",").index(key)
        cells = row.split(",")
        cells[column] = ""
        with pytest.raises(InputError) as error:
            read_panel(
                write_panel(tmp_path, f"{COMPLETE_HEADER},country", f"{','.join(cells)},Chile")
            )
        assert [item.key for item in error.value.problems] == [key]


def test_the_command_line_builds_personas_from_a_panel(tmp_path: Path) -> None:
    pool = tmp_path / "pool.json"
    args = [
        "personas",
        "build",
        "12",
        "--source",
        "grounded",
        "--file",
        str(write_weighted_panel(tmp_path)),
    ]
    result = CliRunner().invoke(app, [*args, "--pool", str(pool)])
    assert result.exit_code == 0, result.output
    personas = json.loads(pool.read_text())["personas"]
    assert {persona["demographics"]["occupation"] for persona in personas} == {"weaver"}


def test_both_studies_accept_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_weighted_panel(tmp_path)
    (tmp_path / "pilot.yaml").write_text(
        "pilot_id: p\ntopic: {description: A street, options: [Park, Road]}\n"
        "participants_per_condition: 1\npersonas: {source: grounded, file: panel.csv}\n"
    )
    run = folkmoot.run(tmp_path / "pilot.yaml", out=tmp_path / "one", model="synthetic")
    personas = run.json("personas.json")["personas"]
    assert {persona["demographics"]["occupation"] for persona in personas} == {"weaver"}
    group: dict[str, Any] = {
        "product_concept": "a kettle",
        "category": "kitchen",
        "num_personas": 3,
        "questions_per_phase": 1,
        "panel": "panel.csv",
    }
    run = folkmoot.run("focus_group", group, out=tmp_path / "two", model="synthetic")
    assert set(run.table("personas")["occupation"]) == {"weaver"}
    with pytest.raises(InputError, match="not a weight"):
        write_panel(tmp_path, "age,weight", "30,-1")
        folkmoot.run("focus_group", group, out=tmp_path / "three", model="synthetic")


def test_a_weight_with_a_decimal_comma_is_quoted_and_the_point_named(tmp_path: Path) -> None:
    path = write_panel(tmp_path, "age,weight", '30,"1,5"', "40,2")
    with pytest.raises(InputError, match=r"'1,5' is not a weight .*point"):
        read_panel(path)
