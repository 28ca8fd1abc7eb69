"""People's answers beside a run: calibration, rectified estimates, heterogeneity."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.measures.inference.proportions import holm, newcombe
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.table_buffer import rows_to_frame
from folkmoot.storage.tables import write_table

ARMS = ("simple_voting", "acp")


def draw_people_and_simulation(seed: int, n: int = 300) -> tuple[list[dict], list[dict]]:
    """Return the rows of n people and of their simulation. The simulation follows most people, and
    its participants change their choice too often."""
    rng = np.random.default_rng(seed)
    people, simulated = [], []
    for i in range(n):
        arm = ARMS[i % 2]
        rural = bool(rng.random() < 0.5)
        changed = bool(rng.random() < (0.2 if arm == "acp" else 0.1) + 0.3 * rural)
        told = changed if rng.random() < 0.8 else bool(rng.random() < 0.7)
        who = f"p_{i:04}"
        shared = {"participant_id": who, "condition": arm, "home": "rural" if rural else "urban"}
        for rows, moved in ((people, changed), (simulated, told)):
            first, last = "Parks", "Jobs" if moved else "Parks"
            choices = {"initial_choice": first, "final_choice": last, "position_changed": moved}
            rows.append({**shared, **choices, "status": "complete"})
    return people, simulated


def write_run_and_people(
    folder: Path, people: list[dict], simulated: list[dict]
) -> tuple[Path, Path]:
    (folder / "run" / "tables").mkdir(parents=True)
    write_table(folder / "run" / "tables", "participants", rows_to_frame(simulated))
    (folder / "run" / "study.yaml").write_text("study: cross_pollination\n")
    # A folder without a manifest is that of a run that did not finish.
    (folder / "run" / "manifest.json").write_text('{"outcome": "done"}')
    names = {"participant_id": "participant", "condition": "arm", "initial_choice": "first"}
    table = pl.DataFrame(people).drop("status", "position_changed")
    table.rename({**names, "final_choice": "last"}).write_csv(folder / "people.csv")
    return folder / "run", folder / "people.csv"


def test_a_few_people_correct_the_simulation(tmp_path: Path) -> None:
    inside, narrower = [], []
    for seed in range(20):
        everybody, simulated = draw_people_and_simulation(seed)
        asked = everybody[:100]
        run, file = write_run_and_people(tmp_path / str(seed), asked, simulated)
        found = {f.key: f for f in compare_runs([run, file])}
        for row in found["people_rectified"].grid.rows:
            at = dict(zip(found["people_rectified"].grid.columns, row, strict=True))
            truth = 0.35 if at["condition"] == "Adversarial (ACP)" else 0.25
            if at["people"] is None:  # the effect, first arm of the table taken off
                truth = 0.1 if at["condition"].startswith("Adversarial") else -0.1
            inside.append(at["low"] <= truth <= at["high"])
            if at["people"] and not at["not_corrected_because"]:
                narrower.append(at["worth"] > at["people"])
                assert at["people"] == 50
        off = found["people_calibration"]
        assert "off by" in off.says
    assert np.mean(inside) >= 0.88
    assert np.mean(narrower) > 0.9


def test_the_gap_of_the_simulation_is_what_it_is(tmp_path: Path) -> None:
    everybody, simulated = draw_people_and_simulation(1)
    run, file = write_run_and_people(tmp_path, everybody, simulated)
    found = {f.key: f for f in compare_runs([run, file])}
    grid = found["people_calibration"].grid
    rows = {(r[0], r[1]): dict(zip(grid.columns, r, strict=True)) for r in grid.rows}
    for arm, name in (("acp", "Adversarial (ACP)"), ("simple_voting", "Simple voting")):
        rate = {
            who: np.mean([r["position_changed"] for r in table if r["condition"] == arm])
            for who, table in (("simulated", simulated), ("people", everybody))
        }
        row = rows[name, "position changed"]
        assert row["off"] == pytest.approx(rate["simulated"] - rate["people"])
        assert rows[name, "final choice"]["off"] == pytest.approx(abs(row["off"]))
        assert row["by_chance"] is None and 0 < rows[name, "final choice"]["by_chance"] < 0.2
    grid = found["people_heterogeneity"].grid
    homes = {r[1]: dict(zip(grid.columns, r, strict=True)) for r in grid.rows}
    assert homes.keys() == {"rural", "urban"}
    counts = {
        home: [
            [r["position_changed"] for r in rows if r["home"] == home]
            for rows in (simulated, everybody)
        ]
        for home in homes
    }
    gaps = {h: newcombe(sum(a), len(a), sum(b), len(b)) for h, (a, b) in sorted(counts.items())}
    for (home, e), holms in zip(gaps.items(), holm([e.p for e in gaps.values()]), strict=True):
        row = homes[home]
        told = (row["off"], row["low"], row["high"], row["p"], row["holm_p"])
        assert told == pytest.approx((e.value, e.low, e.high, e.p, holms))
        named = f"home {home}: position changed" in found["people_heterogeneity"].says
        assert named == (holms < 0.05)
    assert any("Holm" in note for note in found["people_heterogeneity"].notes)


def test_people_who_match_nobody_are_another_sample(tmp_path: Path) -> None:
    everybody, simulated = draw_people_and_simulation(2)
    strangers = [{**row, "participant_id": f"x{i}"} for i, row in enumerate(everybody)]
    run, file = write_run_and_people(tmp_path, strangers, simulated)
    keys = {f.key for f in compare_runs([run, file])}
    assert "people_rectified" not in keys
    assert {"people_calibration", "compare_claims"} <= keys


def test_the_command_takes_people(tmp_path: Path) -> None:
    run, file = write_run_and_people(tmp_path, *draw_people_and_simulation(3))
    result = CliRunner().invoke(app, ["compare", str(run), "--people", str(file)])
    assert result.exit_code == 0, result.output
    assert "corrected by people" in result.stdout


def test_few_people_who_all_say_the_same_correct_nothing(tmp_path: Path) -> None:
    everybody, simulated = draw_people_and_simulation(4)
    kept = {"position_changed": False, "final_choice": "Parks"}
    run, file = write_run_and_people(tmp_path, [{**r, **kept} for r in everybody[:20]], simulated)
    found = {f.key: f for f in compare_runs([run, file])}["people_rectified"]
    for row in found.grid.rows:
        at = dict(zip(found.grid.columns, row, strict=True))
        assert at["corrected"] == 0 and at["high"] > 0.15
    assert "of the people alone (10 people; a correction needs 20)" in found.says


def test_ids_and_choices_that_look_like_numbers_are_text(tmp_path: Path) -> None:
    everybody, simulated = draw_people_and_simulation(5)
    for rows in (everybody, simulated):
        for row in rows:
            row["participant_id"] = row["participant_id"].removeprefix("p_")
            row["initial_choice"], row["final_choice"] = (
                "1",
                "2" if row["position_changed"] else "1",
            )
    run, file = write_run_and_people(tmp_path, everybody[:100], simulated)
    found = {f.key: f for f in compare_runs([run, file])}
    assert found["people_rectified"].grid.rows  # 0007 is matched with 0007
    assert "1 is one" not in found["designs"].says


def test_spaces_around_a_choice_are_no_change(tmp_path: Path) -> None:
    run, file = write_run_and_people(tmp_path, *draw_people_and_simulation(6))
    file.write_text("arm,first,last\n" + "acp,Parks, Parks \n" * 10)
    grid = {f.key: f for f in compare_runs([run, file])}["compare_claims"].grid
    assert [r[grid.columns.index("first")] for r in grid.rows] == [0.0]


def test_what_no_run_knows_is_said(tmp_path: Path) -> None:
    run, file = write_run_and_people(tmp_path, *draw_people_and_simulation(7))
    file.write_text("arm,first,last\n" + "control,1,2\nacp,2,2\n" * 10)
    says = {f.key: f for f in compare_runs([run, file])}["designs"].says
    assert "conditions that no run has, which are left out: control." in says
    assert "No choice in people is one of a run (1 and 2)" in says


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("participant;arm;first;last\n1;acp;a;b\n", "separated by semicolons"),
        ("participant\tarm\n1\tacp\n", "separated by tabs"),
        ("arm,first,last\n", "no answers below"),
        ("arm,condition,first,last\nacp,acp,a,b\n", "arm and condition have the same"),
        ("", "cannot be read as a table: empty CSV (save it"),
        ("arm,first,last\nacp,a,b,c\n", "as a table: line 2: more fields than columns (save it"),
        ("arm,first,first\nacp,a,b\n", "two columns are called first"),
        ("colour,shape\nred,round\n", "no column holds answers"),
        (
            "participant,arm,first,last\n7,acp,a,b\n7,acp,a,b\n",
            "line 3, participant_id: 7 has several rows",
        ),
        ("arm,first,last\nnowhere,a,b\n", "none of its arms (nowhere) is one of a run's"),
        (
            "arm,first,exchanges\nacp,a,3\nacp,b,many\n",
            "people.csv, line 3, exchanges: exchanges is a number in the run, and 'many'",
        ),
        ("arm,exchanges\nacp,inf\n", "line 2, exchanges: exchanges has values that are no finite"),
        (
            "arm,position_changed\nacp,yes\nacp,maybe\n",
            "line 3, position_changed: 'maybe' is neither",
        ),
    ],
)
def test_files_of_people_that_cannot_be_meant(tmp_path: Path, text: str, why: str) -> None:
    people, simulated = draw_people_and_simulation(8)
    run, file = write_run_and_people(
        tmp_path, people, [{**row, "exchanges": 2} for row in simulated]
    )
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(why)):
        compare_runs([run, file])


def test_one_person_is_compared_and_not_tested(tmp_path: Path) -> None:
    run, file = write_run_and_people(tmp_path, *draw_people_and_simulation(9))
    file.write_text("participant,arm,first,last\np_0001,acp,Parks,Jobs\n")
    found = {f.key: f for f in compare_runs([run, file])}
    assert "not tested (1 independent unit is an illustration)" in found["compare_claims"].says
    grid = found["compare_claims"].grid
    (row,) = (dict(zip(grid.columns, r, strict=True)) for r in grid.rows)
    assert row["runs"] == "people − run" and row["verdict"].startswith("not tested (1 independent")
    assert row["low"] is row["high"] is row["p"] is row["holm_p"] is None


def test_what_r_and_pandas_write_for_unknown_is_unknown(tmp_path: Path) -> None:
    run, file = write_run_and_people(tmp_path, *draw_people_and_simulation(10))
    file.write_text("arm,status,first,last\n" + "NA,x,Parks,NA\n" * 4 + "NA,x,Parks,Jobs\n" * 6)
    grid = {f.key: f for f in compare_runs([run, file])}["compare_claims"].grid
    rows = [dict(zip(grid.columns, r, strict=True)) for r in grid.rows]
    assert {r["first"] for r in rows} == {1.0}
    assert {r["units"] for r in rows} == {150 + 6}
