"""Comparison of a run with human answers: calibration, rectified estimates, heterogeneity."""

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
from folkmoot.report.comparison.bands import computed_bands
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.findings import Finding
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame

CONDITIONS = ("simple_voting", "acp")


def draw_humans_and_simulation(seed: int, n: int = 300) -> tuple[list[dict], list[dict]]:
    """Return the rows of n humans and of their simulation. The simulation follows most humans, and
    its participants change their choice too often."""
    rng = np.random.default_rng(seed)
    humans, simulated = [], []
    for i in range(n):
        condition = CONDITIONS[i % 2]
        rural = bool(rng.random() < 0.5)
        changed = bool(rng.random() < (0.2 if condition == "acp" else 0.1) + 0.3 * rural)
        simulated_change = changed if rng.random() < 0.8 else bool(rng.random() < 0.7)
        participant_id = f"p_{i:04}"
        shared = {
            "participant_id": participant_id,
            "condition": condition,
            "home": "rural" if rural else "urban",
        }
        for rows, has_changed in ((humans, changed), (simulated, simulated_change)):
            first, last = "Parks", "Jobs" if has_changed else "Parks"
            choices = {
                "initial_choice": first,
                "final_choice": last,
                "position_changed": has_changed,
            }
            rows.append({**shared, **choices, "status": "complete"})
    return humans, simulated


def read_rows(finding: Finding) -> list[dict]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


def write_run_and_humans(
    folder: Path, humans: list[dict], simulated: list[dict]
) -> tuple[Path, Path]:
    (folder / "run" / "tables").mkdir(parents=True)
    write_table(folder / "run" / "tables", "participants", rows_to_frame(simulated))
    (folder / "run" / "study.yaml").write_text("study: cross_pollination\n")
    # A folder without a manifest is that of a run that did not finish.
    (folder / "run" / "manifest.json").write_text('{"outcome": "done"}')
    names = {"participant_id": "participant", "condition": "arm", "initial_choice": "first"}
    table = pl.DataFrame(humans).drop("status", "position_changed")
    table.rename({**names, "final_choice": "last"}).write_csv(folder / "people.csv")
    return folder / "run", folder / "people.csv"


def test_a_few_humans_correct_the_simulation(tmp_path: Path) -> None:
    is_covered, is_narrower = [], []
    for seed in range(20):
        humans, simulated = draw_humans_and_simulation(seed)
        sampled_humans = humans[:100]
        run, file = write_run_and_humans(tmp_path / str(seed), sampled_humans, simulated)
        findings = {finding.key: finding for finding in compare_runs([run, file])}
        for row in findings["people_rectified"].grid.rows:
            cells = dict(zip(findings["people_rectified"].grid.columns, row, strict=True))
            truth = 0.35 if cells["condition"] == "Adversarial (ACP)" else 0.25
            if (
                cells["people"] is None
            ):  # the effect, as a difference to the first condition of the table
                truth = 0.1 if cells["condition"].startswith("Adversarial") else -0.1
            is_covered.append(cells["low"] <= truth <= cells["high"])
            if cells["people"] and not cells["not_corrected_because"]:
                is_narrower.append(cells["worth"] > cells["people"])
                assert cells["people"] == 50
        calibration = findings["people_calibration"]
        assert "off by" in calibration.says
    assert np.mean(is_covered) >= 0.88
    assert np.mean(is_narrower) > 0.9


# A participant's status in the study's own sense, such as their job, excludes no one.
@pytest.mark.parametrize("status", ["complete", "retired"])
def test_the_difference_of_the_simulation_equals_that_of_the_tables(
    status: str, tmp_path: Path
) -> None:
    humans, simulated = draw_humans_and_simulation(1)
    simulated = [{**row, "status": status} for row in simulated]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    grid = findings["people_calibration"].grid
    rows = {
        (table_row[0], table_row[1]): dict(zip(grid.columns, table_row, strict=True))
        for table_row in grid.rows
    }
    for condition, name in (("acp", "Adversarial (ACP)"), ("simple_voting", "Simple voting")):
        rate = {
            source: np.mean(
                [
                    table_row["position_changed"]
                    for table_row in table
                    if table_row["condition"] == condition
                ]
            )
            for source, table in (("simulated", simulated), ("people", humans))
        }
        row = rows[name, "position changed"]
        assert row["off"] == pytest.approx(rate["simulated"] - rate["people"])
        assert rows[name, "final choice"]["off"] == pytest.approx(abs(row["off"]))
        assert row["by_chance"] is None and 0 < rows[name, "final choice"]["by_chance"] < 0.2
    groups = {
        (row["condition"], row["level"]): row for row in read_rows(findings["people_heterogeneity"])
    }
    gaps = {
        (name, home): newcombe(
            *(
                count
                for rows in (simulated, humans)
                for changes in [
                    [
                        row["position_changed"]
                        for row in rows
                        if (row["condition"], row["home"]) == (condition, home)
                    ]
                ]
                for count in (sum(changes), len(changes))
            )
        )
        for condition, name in (("simple_voting", "Simple voting"), ("acp", "Adversarial (ACP)"))
        for home in ("rural", "urban")
    }
    assert groups.keys() == gaps.keys()
    adjusted = holm([difference.p for difference in gaps.values()])
    for ((name, home), difference), holm_p in zip(gaps.items(), adjusted, strict=True):
        row = groups[name, home]
        row_numbers = (row["off"], row["low"], row["high"], row["p"], row["holm_p"])
        assert row_numbers == pytest.approx(
            (difference.value, difference.low, difference.high, difference.p, holm_p)
        )
        label = f"home {home} in {name}: position changed"
        assert (label in findings["people_heterogeneity"].says) == (holm_p < 0.05)
    assert any("Holm" in note for note in findings["people_heterogeneity"].notes)


def test_groups_of_humans_are_compared_with_participants_in_the_same_condition(
    tmp_path: Path,
) -> None:
    """Humans who equal one condition are not off, although all change in the other condition."""
    _, simulated = draw_humans_and_simulation(1)
    for row in simulated:
        if row["condition"] == "acp":
            row |= {"final_choice": "Jobs", "position_changed": True}
    humans = [row for row in simulated if row["condition"] == "simple_voting"]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    rows = read_rows(findings["people_heterogeneity"])
    assert {row["condition"] for row in rows} == {"Simple voting"}
    assert [row["off"] for row in rows] == [0, 0]


def test_spellings_of_an_attribute_are_one_group(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(1)
    spellings = {"rural": ("Rural", " rural", "RURAL"), "urban": ("urban", "Urban ", "urban")}
    respelled = [
        {**row, "home": spellings[str(row["home"])][i % 3]} for i, row in enumerate(humans)
    ]
    grids = [
        {finding.key: finding for finding in compare_runs([run, file])}["people_heterogeneity"].grid
        for name, people in (("a", humans), ("b", respelled))
        for run, file in [write_run_and_humans(tmp_path / name, people, simulated)]
    ]
    assert grids[0] == grids[1]


def test_a_run_without_conditions_is_compared_with_all_humans(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(1)
    for row in simulated:
        del row["condition"]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    assert "left out" not in findings["designs"].says
    (row,) = read_rows(findings["people_rectified"])
    assert (row["condition"], row["people"]) == ("Everybody", 300)
    assert findings["people_rectified"].unit == "participant"


def test_humans_without_an_answer_are_named_and_not_counted(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(2)
    humans = [{**row, "final_choice": None} if i < 60 else row for i, row in enumerate(humans)]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    assert "60 of 300 rows have no `after`" in findings["designs"].says
    heterogeneity = findings["people_heterogeneity"]
    assert (heterogeneity.unit, heterogeneity.units) == ("participant", 240)
    assert sum(row["people_n"] for row in read_rows(heterogeneity)) == 240


def test_groups_of_humans_who_talked_together_are_not_tested(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(2)
    humans = [{**row, "group": f"g{i % 4}"} for i, row in enumerate(humans)]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    heterogeneity = findings["people_heterogeneity"]
    assert (heterogeneity.unit, heterogeneity.units) == ("group", 4)
    reason = "4 comparisons: not tested (2 independent units are an illustration)."
    assert heterogeneity.says.endswith(reason) and "more than chance" not in heterogeneity.says
    rectified = findings["people_rectified"]
    assert (rectified.unit, rectified.units) == ("group", 2)


def test_humans_without_matching_ids_are_a_separate_sample(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(2)
    strangers = [{**row, "participant_id": f"x{i}"} for i, row in enumerate(humans)]
    run, file = write_run_and_humans(tmp_path, strangers, simulated)
    keys = {finding.key for finding in compare_runs([run, file])}
    assert "people_rectified" not in keys
    assert {"people_calibration", "compare_claims"} <= keys


def test_the_compare_command_reads_a_human_file(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(3))
    result = CliRunner().invoke(app, ["compare", str(run), "--people", str(file)])
    assert result.exit_code == 0, result.output
    assert "corrected by people" in result.stdout


def test_few_humans_with_equal_answers_do_not_correct_the_simulation(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(4)
    equal_answers = {"position_changed": False, "final_choice": "Parks"}
    run, file = write_run_and_humans(
        tmp_path, [{**human, **equal_answers} for human in humans[:20]], simulated
    )
    finding = {candidate.key: candidate for candidate in compare_runs([run, file])}[
        "people_rectified"
    ]
    for row in finding.grid.rows:
        cells = dict(zip(finding.grid.columns, row, strict=True))
        assert cells["corrected"] == 0 and cells["high"] > 0.15
    assert "of the people alone (10 people; a correction needs 20)" in finding.says


def test_ids_and_choices_that_look_like_numbers_are_text(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(5)
    for rows in (humans, simulated):
        for row in rows:
            row["participant_id"] = row["participant_id"].removeprefix("p_")
            row["initial_choice"], row["final_choice"] = (
                "1",
                "2" if row["position_changed"] else "1",
            )
    run, file = write_run_and_humans(tmp_path, humans[:100], simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    assert findings["people_rectified"].grid.rows  # 0007 is matched with 0007
    assert "1 is one" not in findings["designs"].says


def test_spaces_around_a_choice_are_ignored(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(6))
    file.write_text("arm,first,last\n" + "acp,Parks, Parks \n" * 10)
    grid = {finding.key: finding for finding in compare_runs([run, file])}["compare_claims"].grid
    assert [row[grid.columns.index("first")] for row in grid.rows] == [0.0]


def test_unknown_conditions_and_choices_are_reported(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(7))
    file.write_text("arm,first,last\n" + "control,1,2\nacp,2,2\n" * 10)
    sentence = {finding.key: finding for finding in compare_runs([run, file])}["designs"].says
    assert "conditions that no run has, which are left out: control." in sentence
    assert "No participant of a run chose “1” and “2” (40 answers in people)" in sentence


def test_choices_are_read_as_the_options_of_the_run_that_they_spell(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(7))
    file.write_text("arm,before,after\n" + "acp,Parks,parks\nacp,PARKS.,Jobs\nacp,Jobs,Rail\n" * 5)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    (changed,) = read_rows(findings["compare_claims"])
    assert changed["first"] == pytest.approx(10 / 15)
    sentence = findings["designs"].says
    assert "one choice: “PARKS.” as “Parks” and “parks” as “Parks”." in sentence
    assert "No participant of a run chose “Rail” (5 answers in people)" in sentence


@pytest.mark.parametrize(
    ("text", "message"),
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
            "line 3, person: 7 has several rows",
        ),
        ("colour,shape\nred,round\n", "(before and after, position_changed, or a number under"),
        (
            "arm,before,after,position_changed\nacp,a,a,no\nacp,a,A,yes\n",
            "line 3, position_changed: true contradicts before (a) and after (a) (correct the row",
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
def test_invalid_human_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    humans, simulated = draw_humans_and_simulation(8)
    run, file = write_run_and_humans(
        tmp_path, humans, [{**row, "exchanges": 2} for row in simulated]
    )
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        compare_runs([run, file])


def test_changes_that_a_file_does_not_state_follow_from_its_choices(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(9))
    rows = ["acp,Parks,Jobs,\n", "acp,Parks,Parks,no\n", "acp,Parks,,yes\n", "acp,,Parks,\n"]
    file.write_text("arm,before,after,position_changed\n" + "".join(rows) * 5)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    (row,) = read_rows(findings["compare_claims"])
    assert row["first"] == pytest.approx(10 / 15)


def test_weights_of_humans_are_not_applied_and_this_is_said(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(9)
    run, file = write_run_and_humans(
        tmp_path, [{**row, "Weight": i} for i, row in enumerate(humans)], simulated
    )
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    says = "Each row of people counts once: its column `Weight` is not applied."
    assert says in findings["designs"].says
    assert says.replace("of people", "of people.csv") in computed_bands(file).notes


def test_one_human_is_compared_and_not_tested(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(9))
    file.write_text("participant,arm,first,last\np_0001,acp,Parks,Jobs\n")
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    assert "not tested (1 independent unit is an illustration)" in findings["compare_claims"].says
    grid = findings["compare_claims"].grid
    (row,) = (dict(zip(grid.columns, cells, strict=True)) for cells in grid.rows)
    assert row["runs"] == "people − run" and row["verdict"].startswith("not tested (1 independent")
    assert row["low"] is row["high"] is row["p"] is row["holm_p"] is None


def test_na_values_of_r_and_pandas_are_missing(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(10))
    file.write_text("arm,status,first,last\n" + "NA,x,Parks,NA\n" * 4 + "NA,x,Parks,Jobs\n" * 6)
    grid = {finding.key: finding for finding in compare_runs([run, file])}["compare_claims"].grid
    rows = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    assert {row["first"] for row in rows} == {1.0}
    assert {row["units"] for row in rows} == {150 + 6}


def test_survey_weights_are_no_attribute(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(2)
    humans = [{**row, "weight": 1 + 2 * (i % 3 == 0)} for i, row in enumerate(humans)]
    run, file = write_run_and_humans(tmp_path, humans, simulated)
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    assert "`weight` is not applied" in findings["designs"].says
    rows = read_rows(findings["people_heterogeneity"])
    assert {row["attribute"] for row in rows} == {"home"}


def test_participants_of_another_run_who_did_not_finish_are_not_unchanged(tmp_path: Path) -> None:
    run, file = write_run_and_humans(tmp_path, *draw_humans_and_simulation(10))
    done, failed = "acp,complete,Parks,Jobs,true\n", "acp,failed,Parks,,false\n"
    file.write_text(
        "condition,status,initial_choice,final_choice,position_changed\n" + done * 6 + failed * 9
    )
    (row,) = read_rows({f.key: f for f in compare_runs([run, file])}["compare_claims"])
    assert (row["first"], row["units"]) == (1.0, 150 + 6)


@pytest.mark.parametrize("words", [("yes", "no"), ("true", "false"), ("on", "off")])
def test_yes_and_no_are_read_alike_in_all_columns(tmp_path: Path, words: tuple[str, str]) -> None:
    humans, simulated = draw_humans_and_simulation(10)
    run, file = write_run_and_humans(
        tmp_path, humans, [{**row, "would_return": i % 3 == 0} for i, row in enumerate(simulated)]
    )
    yes, no = words
    rows = [f"acp,{(yes, no)[n % 2]},{(yes, no)[n % 2]}\n" for n in range(20)]
    file.write_text("arm,position_changed,would_return\n" + "".join(rows) + f"acp,{no},refused\n")
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    rows = read_rows(findings["people_calibration"])
    shares = {row["measure"]: row["people"] for row in rows}
    # The refusal is no answer.
    assert shares == {"position changed": pytest.approx(10 / 21), "would return": 0.5}


def test_codes_for_missing_answers_of_humans_are_refused(tmp_path: Path) -> None:
    humans, simulated = draw_humans_and_simulation(10)
    run, file = write_run_and_humans(
        tmp_path, humans, [{**row, "score": 1 + i % 5} for i, row in enumerate(simulated)]
    )
    file.write_text("arm,score\n" + "acp,2\nacp,-99\nacp,5\n" * 4)
    with pytest.raises(InputError, match=r"people.csv:3: score: -99 looks like .* \(4 rows\)"):
        compare_runs([run, file])


@pytest.mark.parametrize("column", ["confidence_before", "score"])
def test_a_number_that_the_answer_may_have_is_no_code(tmp_path: Path, column: str) -> None:
    """The study declares 0 to 100 for the confidence, and nothing for the column `score`."""
    humans, simulated = draw_humans_and_simulation(10)
    run, file = write_run_and_humans(
        tmp_path, humans, [{**row, column: 60.0 + i % 5} for i, row in enumerate(simulated)]
    )
    file.write_text(f"arm,{column}\n" + "acp,62\nacp,99\nacp,65\n" * 4)
    if column == "confidence_before":
        compare_runs([run, file])
        return
    with pytest.raises(InputError, match="score: 99 looks like a code"):
        compare_runs([run, file])


def test_a_number_is_accepted_if_one_of_the_runs_has_the_column_without_a_range(
    tmp_path: Path,
) -> None:
    """Runs of two study types may have different scales under one name."""
    humans, simulated = draw_humans_and_simulation(10)
    rated = [{**row, "confidence_before": 60.0 + i % 5} for i, row in enumerate(simulated)]
    run, file = write_run_and_humans(tmp_path / "first", humans, rated)
    other, _ = write_run_and_humans(tmp_path / "second", humans, rated)
    (other / "study.yaml").write_text("study: survey_of_another_type\n")
    file.write_text("arm,confidence_before\n" + "acp,62\nacp,165\nacp,65\n" * 4)
    with pytest.raises(InputError, match="165 is no answer to confidence_before"):
        compare_runs([run, file])
    compare_runs([run, other, file])


def test_messages_name_the_line_of_json_lines_and_the_row_of_parquet(tmp_path: Path) -> None:
    run, _ = write_run_and_humans(tmp_path, *draw_humans_and_simulation(10))
    table = pl.DataFrame({"arm": ["acp"] * 3, "position_changed": ["yes", "no", "maybe"]})
    table.write_ndjson(tmp_path / "p.jsonl")
    table.write_parquet(tmp_path / "p.pq")
    for name, place in (("p.jsonl", "line 3"), ("p.pq", "row 3")):
        with pytest.raises(InputError, match=f"{name}, {place}, position_changed: 'maybe'"):
            compare_runs([run, tmp_path / name])
