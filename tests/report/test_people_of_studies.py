"""`compare_runs RUN --people FILE` for every study type, by the measures of its claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.errors import InputError
from folkmoot.hints import capitalise
from folkmoot.measures.inference.clustered import EQUAL_UNITS
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.contract.small import small_study
from tests.sweeps import sample_daily

SHIFT = 0.25  # by which people's numbers lie above those of the run


PAYOFF = "Payoff per participant and round, in units of the workbook"


@dataclass(frozen=True)
class Case:
    """A study with enough units, its file of people (from its own tables), and what differs."""

    overrides: tuple[str, ...]
    people: Callable[[RunFolder], pl.DataFrame]
    unit: str
    measures: dict[str, float]  # measure → people minus the run


def votes(run: RunFolder) -> pl.DataFrame:
    table = run.read_table("participants").filter(status="complete")
    return table.select(
        person="participant_id", arm="condition", before="initial_choice", after="final_choice"
    )


def talk(run: RunFolder) -> pl.DataFrame:
    keys = ["group", "stimulus", "persona_id", "when"]
    said = run.read_table("statements").filter(pl.col("when").is_in(["before", "after"]))
    scores = run.read_table("intents").filter(~pl.col("ladder")).select(*keys, "score")
    both = said.select(*keys, pl.col("position") + SHIFT).join(scores, on=keys)
    return both.rename({"persona_id": "person"})


def groups(run: RunFolder) -> pl.DataFrame:
    shifted = pl.col("satisfaction", "lowest_satisfaction") + SHIFT
    return run.read_table("measures").select("group_id", "condition", shifted)


def halls(run: RunFolder) -> pl.DataFrame:
    gap = pl.col("gap_weighted_inclusivity_score") + SHIFT
    return run.read_table("discussions").select("set", pl.col("level").alias("arm"), gap)


def sessions(run: RunFolder) -> pl.DataFrame:
    """A column for each variable, as a survey program writes them."""
    own = run.read_table("computed").filter(pl.col("name").str.starts_with("payoff_"))
    keys = ["session", "treatment", "participant_id"]
    wide = own.select(*keys, "name", pl.col("number") + SHIFT)
    return wide.pivot("name", index=keys, values="number").rename({"participant_id": "person"})


CASES = {
    "cross_pollination": Case(
        ("participants_per_condition=8",), votes, "participant", {"Changed their choice": 0.0}
    ),
    "focus_group": Case(
        ("replications=5", "phases=[reaction]", "max_responses_per_question=4"),
        talk,
        "group",
        {
            **{"Position on oven": SHIFT, "Position on box": SHIFT, "Final position": SHIFT},
            **{"Would buy oven": 0.0, "Would buy box": 0.0},
        },
    ),
    "negotiation": Case(
        ("groups_per_type=5", "group_types=[spouses]", "conditions=[C4, C5]"),
        groups,
        "group",
        {
            "How content members are on a scale from −4 to 4": SHIFT,
            "How content the least content member is on a scale from −4 to 4": SHIFT,
        },
    ),
    "town_hall": Case(("sets=5",), halls, "set", {"Inclusion gap": SHIFT}),
    "workbook": Case((), sessions, "session", {PAYOFF: SHIFT}),
}


@pytest.fixture(scope="session", params=sorted(CASES))
def compared(
    request: pytest.FixtureRequest,
    shared_folder: SharedFolder,
) -> tuple[Case, Path, Path]:
    case = CASES[request.param]

    def make(folder: Path) -> None:
        source = small_study(request.param, folder)
        out = folder / "run"
        folkmoot.run(source, model="synthetic", out=out, overrides=case.overrides)
        case.people(RunFolder(out)).write_csv(folder / "people.csv")

    folder = shared_folder(f"people/{request.param}", make)
    return case, folder / "run", folder / "people.csv"


def rows(finding: Finding) -> list[dict[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


@pytest.mark.parametrize(
    "compared",
    sample_daily(sorted(CASES), daily=("cross_pollination", "town_hall"), part="truths"),
    indirect=True,
)
def test_each_measure_of_the_claims_is_compared_by_its_unit(
    compared: tuple[Case, Path, Path],
) -> None:
    case, run, file = compared
    found = {f.key: f for f in compare_runs([run, file])}
    told = rows(found["compare_claims"])
    assert {row["measure"] for row in told} == {*case.measures}
    for row in told:
        assert row["difference"] == pytest.approx(case.measures[str(row["measure"])], abs=1e-9)
        assert (row["runs"], row["unit"], row["paired"]) == ("people − run", case.unit, False)
        clustered = case.unit != "participant"
        # Shares of groups that are all equal have the interval of equal units.
        method = str(row["method"] or "CR2")
        assert not clustered or method.startswith("CR2") or method in (EQUAL_UNITS, "MOVER")
    # The shift is the same in all arms, so effects of people are those of the run.
    gaps = [row for row in rows(found["compare_effects"]) if row["run"] == "people − run"]
    assert gaps and all(row["difference"] == pytest.approx(0, abs=1e-9) for row in gaps)
    assert all(row["verdict"] != "supported" for row in gaps)
    off = rows(found["people_calibration"])
    named = [(capitalise(str(row["measure"])), row) for row in off]
    for measure, row in ((name, row) for name, row in named if name in case.measures):
        assert row["off"] == pytest.approx(-case.measures[measure], abs=1e-9)


@pytest.mark.parametrize(
    "compared", sample_daily(sorted(CASES), daily=("focus_group",), part="truths"), indirect=True
)
def test_the_command_tells_the_same(compared: tuple[Case, Path, Path]) -> None:
    case, run, file = compared
    shown = CliRunner().invoke(
        app, ["compare", str(run), "--people", str(file)], env={"COLUMNS": "400"}
    )
    assert shown.exit_code == 0, shown.output
    assert "Measures of the claims, run by run" in shown.output
    assert all(measure in shown.output for measure in case.measures)


@pytest.mark.parametrize(
    "compared",
    sample_daily(sorted(CASES), daily=("cross_pollination", "workbook"), part="truths"),
    indirect=True,
)
def test_a_number_that_is_none_is_told_with_column_and_line(
    compared: tuple[Case, Path, Path], tmp_path: Path
) -> None:
    _, run, file = compared
    lines = file.read_text("utf-8").splitlines()
    names = lines[0].split(",")
    at = len(names) - 1
    if names[at] == "after":  # choices are texts
        lines[0] = lines[0] + ",clarification_exchanges"
        lines[1:] = [f"{line},1" for line in lines[1:]]
        at += 1
    cells = lines[3].split(",")
    cells[at] = "plenty"
    column = lines[0].split(",")[at]
    lines[3] = ",".join(cells)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=rf"wrong\.csv, line 4, {column}: .*'plenty'"):
        compare_runs([run, wrong])


@pytest.mark.parametrize(
    "compared", sample_daily(sorted(CASES), daily=("town_hall",), part="truths"), indirect=True
)
def test_a_file_without_any_measure_names_those_of_the_run(
    compared: tuple[Case, Path, Path], tmp_path: Path
) -> None:
    _, run, _ = compared
    file = tmp_path / "other.csv"
    file.write_text("participant,shoe_size\n1,40\n2,41\n", "utf-8")
    with pytest.raises(InputError, match="no column is a measure of the run"):
        compare_runs([run, file])


@pytest.mark.parametrize("compared", ["focus_group"], indirect=True)  # which has concepts
def test_concepts_must_be_told_apart(tmp_path: Path, compared: tuple[Case, Path, Path]) -> None:
    _, run, file = compared
    mixed = tmp_path / "mixed.csv"
    pl.read_csv(file).filter(stimulus="oven").drop("stimulus").write_csv(mixed)
    with pytest.raises(InputError, match="position needs a column stimulus"):
        compare_runs([run, mixed])


def test_the_page_names_the_columns_of_these_files(compared: tuple[Case, Path, Path]) -> None:
    _, _, file = compared
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text("utf-8")
    study = file.parent.name
    name = study.replace("cross_", "cross-").replace("_", " ")
    page = page.partition("## Humans and models compared")[2]
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
    for column in file.read_text("utf-8").splitlines()[0].split(","):
        assert f"`{column}`" in line + "`arm`" or column.startswith("payoff_"), column


@pytest.mark.parametrize(
    "compared",
    sample_daily(sorted(CASES), daily=("cross_pollination", "negotiation"), part="truths"),
    indirect=True,
)
def test_a_run_beside_itself_differs_in_nothing_within_subjects(
    compared: tuple[Case, Path, Path],
) -> None:
    case, run, _ = compared
    shown = CliRunner().invoke(app, ["compare", str(run), str(run)], env={"COLUMNS": "220"})
    assert shown.exit_code == 0, shown.output
    told = rows({f.key: f for f in compare_runs([run, run])}["compare_claims"])
    assert {*case.measures} <= {row["measure"] for row in told}
    for row in told:
        assert (row["difference"], row["unit"], row["paired"]) == (0.0, case.unit, True)
        assert row["verdict"] != "supported"
