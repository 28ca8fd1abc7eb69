"""A panel of the user's own in place of the packaged people: weights, gaps, other countries."""

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

HEAD = "name,age,sex,education,income,occupation,household,location,location_type,political_leaning"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "panel.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def weighted(folder: Path) -> Path:
    rows = [f"{20 + i % 50},{'FM'[i % 2]},weaver,{9 if i < 50 else 1}" for i in range(100)]
    return written(folder, "age,sex,occupation,weight", *rows)


def test_people_come_by_weight_and_nobody_twice(tmp_path: Path) -> None:
    panel = read_panel(weighted(tmp_path))
    first = Counter(
        i < 50 for seed in range(300) for i in panel.sample_rows(1, generator(seed, ("p",)))
    )
    assert first[True] / 300 == pytest.approx(0.9, abs=0.06)
    chosen = panel.sample_rows(100, generator(1, ("p",)))
    assert sorted(chosen) == list(range(100))
    again = Counter(panel.sample_rows(250, generator(1, ("p",))))
    assert set(again.values()) == {2, 3}


def test_who_weighs_nothing_never_comes(tmp_path: Path) -> None:
    panel = read_panel(written(tmp_path, "age,weight", "30,0", "40,2", "50,1"))
    assert set(panel.sample_rows(20, generator(3, ()))) == {1, 2}


def test_what_the_panel_says_is_kept_and_the_rest_fits(tmp_path: Path) -> None:
    people = PersonaGenerator(panel=read_panel(weighted(tmp_path))).generate_profiles(
        40, generator(2, ())
    )
    assert {p.occupation for p in people} == {"weaver"}
    assert all(20 <= p.age < 70 and p.race == "" for p in people)
    assert len({p.name for p in people}) == 40
    assert people == PersonaGenerator(panel=read_panel(weighted(tmp_path))).generate_profiles(
        40, generator(2, ())
    )


def test_quotas_hold_over_a_panel(tmp_path: Path) -> None:
    engine = PersonaGenerator(panel=read_panel(weighted(tmp_path)))
    people = engine.generate_profiles(10, generator(2, ()), {"sex": {"F": 8, "M": 2}})
    assert Counter(p.sex for p in people) == {"F": 8, "M": 2}
    assert {p.occupation for p in people} == {"weaver"}


@pytest.mark.parametrize(
    ("lines", "key", "line", "says"),
    [
        (["age,weight", "30,1", "40,-2"], "weight", "3", "not a weight"),
        (["age,weight", "30,much", "40,2"], "weight", "2", "not a weight"),
        (["age,weight", "30,nan"], "weight", "2", "not a weight"),
        (["age,weight", "30,0"], "weight", "", "all weights are 0"),
        (["age,sex", "old,F"], "age", "2", "not a valid age"),
        (["age,country", "30,Chile"], "name", "2", "drawn from the American"),
    ],
)
def test_mistakes_are_named_by_line(
    lines: list[str], key: str, line: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read_panel(written(tmp_path, *lines))
    found = error.value.problems[0]
    assert (found.key, found.where) == (key, line) and says in str(found)


def test_a_complete_table_of_another_country_gets_nothing_american(tmp_path: Path) -> None:
    row = "Amaya Soto,34,F,Some college,Middle income,enfermera,con su familia,Talca,urban,moderate"
    other = "Luis Rojas,61,M,High school,Low income,minero,solo,Calama,urban,liberal"
    path = written(tmp_path, f"{HEAD},country,weight", f"{row},Chile,2", f"{other},Chile,1")
    panel = read_panel(path)
    people = {
        p.name: p for p in PersonaGenerator(panel=panel).generate_profiles(2, generator(1, ()))
    }
    amaya = people["Amaya Soto"]
    for key, value in zip(HEAD.split(","), row.split(","), strict=True):
        assert str(getattr(amaya, key)) == value
    assert amaya.race == "" and people["Luis Rojas"].income == "Low income"
    for key in COMPLETE:
        at = HEAD.split(",").index(key)
        cells = row.split(",")
        cells[at] = ""
        with pytest.raises(InputError) as error:
            read_panel(written(tmp_path, f"{HEAD},country", f"{','.join(cells)},Chile"))
        assert [p.key for p in error.value.problems] == [key]


def test_the_command_line_builds_people_of_a_panel(tmp_path: Path) -> None:
    pool = tmp_path / "pool.json"
    args = ["personas", "build", "12", "--source", "grounded", "--file", str(weighted(tmp_path))]
    done = CliRunner().invoke(app, [*args, "--pool", str(pool)])
    assert done.exit_code == 0, done.output
    people = json.loads(pool.read_text())["personas"]
    assert {p["demographics"]["occupation"] for p in people} == {"weaver"}


def test_both_studies_take_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weighted(tmp_path)
    (tmp_path / "pilot.yaml").write_text(
        "pilot_id: p\ntopic: {description: A street, options: [Park, Road]}\n"
        "participants_per_condition: 1\npersonas: {source: grounded, file: panel.csv}\n"
    )
    run = folkmoot.run(tmp_path / "pilot.yaml", out=tmp_path / "one", model="synthetic")
    people = run.json("personas.json")["personas"]
    assert {p["demographics"]["occupation"] for p in people} == {"weaver"}
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
        written(tmp_path, "age,weight", "30,-1")
        folkmoot.run("focus_group", group, out=tmp_path / "three", model="synthetic")
