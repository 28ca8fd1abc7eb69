"""`compare_runs RUN --people FILE` for every study type, by the measures of its claims."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import InputError
from folkmoot.hints import capitalise
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.clustered import EQUAL_UNITS
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.measured_claims import read_measure
from folkmoot.report.comparison.samples import load_samples
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.contract.small import small_study
from tests.sweeps import sample_daily

SHIFT = 0.25  # human numbers minus those of the run


PAYOFF = "Payoff per participant and round, in units of the workbook"


@dataclass(frozen=True)
class StudyCase:
    """A study with enough units, its human file (from the run's tables), and the differences."""

    overrides: tuple[str, ...]
    people: Callable[[RunFolder], pl.DataFrame]
    unit: str
    measures: dict[str, float]  # measure → humans minus the run


def select_votes(run: RunFolder) -> pl.DataFrame:
    table = run.read_table("participants").filter(status="complete")
    return table.select(
        person="participant_id", arm="condition", before="initial_choice", after="final_choice"
    )


def select_positions(run: RunFolder) -> pl.DataFrame:
    keys = ["group", "stimulus", "persona_id", "when"]
    statements = run.read_table("statements").filter(pl.col("when").is_in(["before", "after"]))
    scores = run.read_table("intents").filter(~pl.col("ladder")).select(*keys, "score")
    joined = statements.select(*keys, pl.col("position") + SHIFT).join(scores, on=keys)
    return joined.rename({"persona_id": "person"})


def select_group_measures(run: RunFolder) -> pl.DataFrame:
    shifted = pl.col("satisfaction", "lowest_satisfaction") + SHIFT
    return run.read_table("measures").select("group_id", "condition", shifted)


def select_gaps(run: RunFolder) -> pl.DataFrame:
    gap = pl.col("gap_weighted_inclusivity_score") + SHIFT
    return run.read_table("discussions").select("set", pl.col("level").alias("arm"), gap)


def select_payoffs(run: RunFolder) -> pl.DataFrame:
    """Select payoffs with a column for each variable, as in the export of a survey program."""
    payoffs = run.read_table("computed").filter(pl.col("name").str.starts_with("payoff_"))
    keys = ["session", "treatment", "participant_id"]
    payoffs_by_participant = payoffs.select(*keys, "name", pl.col("number") + SHIFT)
    return payoffs_by_participant.pivot("name", index=keys, values="number").rename(
        {"participant_id": "person"}
    )


CASES = {
    "cross_pollination": StudyCase(
        ("participants_per_condition=8",),
        select_votes,
        "participant",
        {"Changed their choice": 0.0},
    ),
    "focus_group": StudyCase(
        ("replications=5", "phases=[reaction]", "max_responses_per_question=4"),
        select_positions,
        "group",
        {
            **{"Position on oven": SHIFT, "Position on box": SHIFT, "Final position": SHIFT},
            **{"Would buy oven": 0.0, "Would buy box": 0.0},
        },
    ),
    "negotiation": StudyCase(
        ("groups_per_type=5", "group_types=[spouses]", "conditions=[C4, C5]"),
        select_group_measures,
        "group",
        {
            "How content members are on a scale from −4 to 4": SHIFT,
            "How content the least content member is on a scale from −4 to 4": SHIFT,
        },
    ),
    "town_hall": StudyCase(("sets=5",), select_gaps, "set", {"Inclusion gap": SHIFT}),
    "workbook": StudyCase((), select_payoffs, "session", {PAYOFF: SHIFT}),
}


@pytest.fixture(scope="session", params=sorted(CASES))
def comparison(
    request: pytest.FixtureRequest,
    shared_folder: SharedFolder,
) -> tuple[StudyCase, Path, Path]:
    study_case = CASES[request.param]

    def run_study(folder: Path) -> None:
        source = small_study(request.param, folder)
        run_folder = folder / "run"
        folkmoot.run(source, model="synthetic", out=run_folder, overrides=study_case.overrides)
        study_case.people(RunFolder(run_folder)).write_csv(folder / "people.csv")

    folder = shared_folder(f"people/{request.param}", run_study)
    return study_case, folder / "run", folder / "people.csv"


def read_rows(finding: Finding) -> list[dict[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


@pytest.mark.parametrize(
    "comparison",
    sample_daily(sorted(CASES), daily=("cross_pollination",), part="truths"),
    indirect=True,
)
def test_each_measure_of_the_claims_is_compared_by_its_unit(
    comparison: tuple[StudyCase, Path, Path],
) -> None:
    study_case, run, file = comparison
    findings = {finding.key: finding for finding in compare_runs([run, file])}
    claim_rows = read_rows(findings["compare_claims"])
    assert {row["measure"] for row in claim_rows} == {*study_case.measures}
    for row in claim_rows:
        assert row["difference"] == pytest.approx(
            study_case.measures[str(row["measure"])], abs=1e-9
        )
        assert (row["runs"], row["unit"], row["paired"]) == ("people − run", study_case.unit, False)
        clustered = study_case.unit != "participant"
        # Shares of groups that are all equal have the interval of equal units.
        method = str(row["method"] or "CR2")
        assert not clustered or method.startswith("CR2") or method in (EQUAL_UNITS, "MOVER")
    # The shift is the same in all conditions, so effects of humans equal those of the run.
    effect_rows = [
        row for row in read_rows(findings["compare_effects"]) if row["run"] == "people − run"
    ]
    assert effect_rows and all(
        row["difference"] == pytest.approx(0, abs=1e-9) for row in effect_rows
    )
    assert all(row["verdict"] != "supported" for row in effect_rows)
    calibration_rows = read_rows(findings["people_calibration"])
    named_rows = [(capitalise(str(row["measure"])), row) for row in calibration_rows]
    for measure, row in ((name, row) for name, row in named_rows if name in study_case.measures):
        assert row["off"] == pytest.approx(-study_case.measures[measure], abs=1e-9)


@pytest.mark.parametrize(
    "comparison", sample_daily(sorted(CASES), daily=("focus_group",), part="truths"), indirect=True
)
def test_the_compare_command_prints_the_measures(comparison: tuple[StudyCase, Path, Path]) -> None:
    study_case, run, file = comparison
    result = CliRunner().invoke(
        app, ["compare", str(run), "--people", str(file)], env={"COLUMNS": "400"}
    )
    assert result.exit_code == 0, result.output
    assert "Measures of the claims, run by run" in result.output
    assert all(measure in result.output for measure in study_case.measures)


@pytest.mark.parametrize(
    "comparison",
    sample_daily(sorted(CASES), daily=("cross_pollination", "workbook"), part="truths"),
    indirect=True,
)
def test_an_invalid_number_is_reported_with_column_and_line(
    comparison: tuple[StudyCase, Path, Path], tmp_path: Path
) -> None:
    _, run, file = comparison
    lines = file.read_text("utf-8").splitlines()
    names = lines[0].split(",")
    column_index = len(names) - 1
    if names[column_index] == "after":  # choices are texts
        lines[0] = lines[0] + ",clarification_exchanges"
        lines[1:] = [f"{line},1" for line in lines[1:]]
        column_index += 1
    cells = lines[3].split(",")
    cells[column_index] = "plenty"
    column = lines[0].split(",")[column_index]
    lines[3] = ",".join(cells)
    invalid_file = tmp_path / "wrong.csv"
    invalid_file.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=rf"wrong\.csv, line 4, {column}: .*'plenty'"):
        compare_runs([run, invalid_file])


@pytest.mark.parametrize(
    "comparison", sample_daily(sorted(CASES), daily=("town_hall",), part="truths"), indirect=True
)
def test_a_file_without_any_measure_names_those_of_the_run(
    comparison: tuple[StudyCase, Path, Path], tmp_path: Path
) -> None:
    _, run, _ = comparison
    file = tmp_path / "other.csv"
    file.write_text("participant,shoe_size\n1,40\n2,41\n", "utf-8")
    with pytest.raises(InputError, match="no column is a measure of the run"):
        compare_runs([run, file])


@pytest.mark.parametrize("comparison", ["focus_group"], indirect=True)  # this study has concepts
def test_a_human_file_must_distinguish_concepts(
    tmp_path: Path, comparison: tuple[StudyCase, Path, Path]
) -> None:
    _, run, file = comparison
    mixed = tmp_path / "mixed.csv"
    pl.read_csv(file).filter(stimulus="oven").drop("stimulus").write_csv(mixed)
    with pytest.raises(InputError, match="position needs a column stimulus"):
        compare_runs([run, mixed])


def test_the_docs_name_the_columns_of_human_files(comparison: tuple[StudyCase, Path, Path]) -> None:
    _, _, file = comparison
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text("utf-8")
    study = file.parent.name
    name = study.replace("cross_", "cross-").replace("_", " ")
    page = page.partition("## Comparing models with human data")[2]
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
    for column in file.read_text("utf-8").splitlines()[0].split(","):
        assert f"`{column}`" in line + "`arm`" or column.startswith("payoff_"), column


@pytest.mark.parametrize(
    "comparison",
    sample_daily(sorted(CASES), daily=("cross_pollination", "negotiation"), part="truths"),
    indirect=True,
)
def test_a_run_compared_with_itself_has_no_differences(
    comparison: tuple[StudyCase, Path, Path],
) -> None:
    study_case, run, _ = comparison
    result = CliRunner().invoke(app, ["compare", str(run), str(run)], env={"COLUMNS": "220"})
    assert result.exit_code == 0, result.output
    claim_rows = read_rows(
        {finding.key: finding for finding in compare_runs([run, run])}["compare_claims"]
    )
    assert {*study_case.measures} <= {row["measure"] for row in claim_rows}
    for row in claim_rows:
        assert (row["difference"], row["unit"], row["paired"]) == (0.0, study_case.unit, True)
        assert row["verdict"] != "supported"


@pytest.mark.parametrize("comparison", ["workbook"], indirect=True)
def test_a_round_that_people_lack_is_left_out(
    comparison: tuple[StudyCase, Path, Path], tmp_path: Path
) -> None:
    """In the first round people have the payoffs of the run, and other rounds have other means."""
    _, run, file = comparison
    payoffs = pl.read_csv(file, infer_schema_length=None)
    rounds = [column for column in payoffs.columns if column.startswith("payoff_")]
    means = [payoffs[column].mean() for column in rounds]
    assert means[0] != pytest.approx(means[1])
    first = payoffs.with_columns(pl.col(rounds[0]) - SHIFT)
    path = tmp_path / "first.csv"
    # A column without values is as good as none.
    first.drop(rounds[2:]).with_columns(pl.lit(None).alias(rounds[1])).write_csv(path)
    findings = {finding.key: finding for finding in compare_runs([run, path])}
    for key in ("compare_claims", "compare_effects"):
        rows = [
            row for row in read_rows(findings[key]) if "−" in f"{row.get('runs')}{row.get('run')}"
        ]
        assert rows and [row["difference"] for row in rows] == pytest.approx([0.0] * len(rows))
    assert {row["off"] for row in read_rows(findings["people_calibration"])} == {0.0}
    assert f"first has no {rounds[1]}" in findings["designs"].says
    assert "has no" not in compare_runs([run, file])[0].says
    # A comparison of two runs keeps all rounds.
    other = tmp_path / "other"
    shutil.copytree(run, other)
    two, beside = compare_runs([run, other]), compare_runs([run, other, path])
    kept, found = (
        next(read_rows(finding) for finding in findings if finding.key == "compare_claims")
        for findings in (two, beside)
    )
    assert [row["first"] for row in found if "first" not in f"{row['runs']}"] == [
        row["first"] for row in kept
    ]


@pytest.mark.parametrize("comparison", ["workbook"], indirect=True)
@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("give_1", "1e3", "1000 is no answer to give_1, which takes 0 to "),
        ("give_1", "3.5", "3.5 is no answer to give_1, which takes whole numbers"),
        ("fair", "100.5", "100.5 is no answer to fair, which takes 0 to 100"),
        ("fair", "3.5", ""),
        ("payoff_1", "1000.5", ""),
    ],
)
def test_a_number_that_the_workbook_does_not_allow_is_refused(
    comparison: tuple[StudyCase, Path, Path], column: str, value: str, problem: str, tmp_path: Path
) -> None:
    _, run, _ = comparison
    path = tmp_path / "people.csv"
    rows = [f"p{n},s{n // 4},{n % 8}" for n in range(16)]
    path.write_text("\n".join([f"person,session,{column}", *rows[:8], f"q,s9,{value}", *rows[8:]]))
    if not problem:
        compare_runs([run, path])
        return
    with pytest.raises(InputError, match=rf"people\.csv, line 10, {column}: {problem}"):
        compare_runs([run, path])


@pytest.mark.parametrize(
    ("comparison", "header", "rows", "problem"),
    [
        (
            "cross_pollination",
            "participant_id,condition,confidence_before",
            ("p1,simple_voting,100", "p2,simple_voting,101"),
            "101 is no answer to confidence_before, which takes 0 to 100",
        ),
        (
            "focus_group",
            "group,when,stimulus,score",
            ("g1,after,oven,5", "g2,after,oven,7"),
            "7 is no answer to score, which takes 1 to 5",
        ),
        (
            "focus_group",
            "group,when,stimulus,score",
            ("g1,after,oven,5", "g2,after,oven,4.5"),
            "4.5 is no answer to score, which takes whole numbers",
        ),
        (
            "negotiation",
            "group_id,condition,satisfaction",
            ("g1,C4,-4", "g2,C4,5"),
            "5 is no answer to satisfaction, which takes -4 to 4",
        ),
        (
            "town_hall",
            "set,arm,gap_weighted_inclusivity_score",
            ("1,1,-4", "2,1,-5"),
            "-5 is no answer to gap_weighted_inclusivity_score, which takes -4 to 4",
        ),
    ],
    indirect=["comparison"],
)
def test_a_number_outside_the_range_of_a_column_is_refused(
    comparison: tuple[StudyCase, Path, Path],
    header: str,
    rows: Sequence[str],
    problem: str,
    tmp_path: Path,
) -> None:
    _, run, _ = comparison
    path = tmp_path / "people.csv"
    path.write_text("\n".join([header, *rows]))
    column = header.rpartition(",")[2]
    with pytest.raises(InputError, match=rf"people\.csv, line 3, {column}: {problem}"):
        compare_runs([run, path])


@pytest.mark.parametrize("comparison", sorted(CASES), indirect=True)
def test_recorded_numbers_are_in_the_ranges_of_their_columns(
    comparison: tuple[StudyCase, Path, Path],
) -> None:
    run = RunFolder(comparison[1])
    study = find_study_of_run(run)
    for row in study.tables:
        for name, declared in row.column_ranges().items():
            values = run.read_table(row.table)[name].drop_nulls().to_list()
            assert all(declared.low <= value <= declared.high for value in values), name


@pytest.mark.parametrize("comparison", ["workbook"], indirect=True)
def test_people_of_a_misspelled_treatment_are_named_and_left_out(
    comparison: tuple[StudyCase, Path, Path], tmp_path: Path
) -> None:
    _, run, file = comparison
    lines = file.read_text("utf-8").splitlines()
    treatment = lines[1].split(",")[1]
    path, without = tmp_path / "people.csv", tmp_path / "without.csv"
    path.write_text("\n".join([lines[0], lines[1].replace(treatment, "other"), *lines[2:]]))
    without.write_text("\n".join([lines[0], *lines[2:]]))
    findings, expected = compare_runs([run, path]), compare_runs([run, without])
    assert "which are left out: other." in findings[0].says
    rows, expected_rows = (
        [read_rows(found) for found in each[1:]] for each in (findings, expected)
    )
    renamed = str(expected_rows).replace("without", "people")
    assert str(rows) == renamed
    path.write_text(
        "\n".join([lines[0], lines[1].replace(treatment, treatment.upper()), *lines[2:]])
    )
    with pytest.raises(InputError, match=r"treatment: the arms .* differ only in case"):
        compare_runs([run, path])


@pytest.mark.parametrize("comparison", ["focus_group"], indirect=True)
def test_times_that_no_run_has_are_named_or_refused(
    comparison: tuple[StudyCase, Path, Path], tmp_path: Path
) -> None:
    _, run, file = comparison
    people, path = pl.read_csv(file), tmp_path / "people.csv"

    def compare_times(**times: str | None) -> list[Finding]:
        people.with_columns(pl.col("when").replace(times)).write_csv(path)
        return compare_runs([run, path])

    findings = compare_times(after="After")
    assert "people has conditions that no run has, which are left out: After." in findings[0].says
    rows = {finding.key: read_rows(finding) for finding in findings}["compare_claims"]
    assert {row["condition"] for row in rows} == {"before"}
    with pytest.raises(
        InputError, match=r"none of its arms \(After and Before\) is one of a run's"
    ):
        compare_times(after="After", before="Before")
    with pytest.raises(InputError, match=r"csv:\d+: when: is empty, but other rows name an arm"):
        compare_times(after=None)
    lines = file.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1].replace("after", "After")]), "utf-8")
    with pytest.raises(InputError, match=r"when: the arms 'after' and 'After' differ only in case"):
        compare_runs([run, path])


def test_empty_cells_of_rounds_do_not_move_the_means_of_human_conditions(tmp_path: Path) -> None:
    rows = [
        f"{arm}{i},{arm},{'' if arm == 'b' and i % 2 else 1 + i % 3},{10 + i % 3}"
        for arm in "ab"
        for i in range(12)
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["participant_id,condition,give_1,give_2", *rows]) + "\n")
    measure = Claim(
        "responses.number",
        ("", ""),
        "mean",
        by="treatment",
        where=(("var_name", ("give_1", "give_2")),),
        subject=("experiment_id", "session", "participant_id"),
        repeated=("experiment_id", "var_name"),
    )
    (sample,) = load_samples([path])
    measured = read_measure(sample, measure)
    assert measured is not None
    means = {arm: measured.arms[arm]["value"].mean() for arm in "ab"}
    assert means["a"] == pytest.approx(6.5) and means["b"] == pytest.approx(6.5, abs=0.3)
