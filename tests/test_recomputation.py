"""Recompute every headline figure of the example reports from the exported CSV files."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import openpyxl
import pytest
from statsmodels.stats.multitest import multipletests

import folkmoot
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.grid import run_grid
from folkmoot.engine.study.study import compute_findings, find_study_of_run, registered_studies
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.report.export import export_run
from folkmoot.storage.findings import TableCell
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.forbidden_phrases import find_forbidden
from tests.planted.test_null_runs import study_file
from tests.recompute import RECOMPUTED, Rows, cells_agree, pool_change_p_values

EXAMPLES = Path(__file__).parents[1] / "examples"
# A list of checks for signs of an unfit model. Each has its known answers in tests/measures.
NOT_FIGURES = {"respondent_checks"}
# The examples, with fewer participants and rounds where that only saves time.
SMALLER = {
    "cross_pollination": ("participants_per_condition=30", "min_responses_for_threshold=5"),
    "town_hall": ("levels=[1, 4]", "residents.general=3", "rounds=2"),
    "negotiation": ("group_types=[spouses, strangers]", "groups_per_type=3"),
}

# The examples of three studies are too small for intervals and tests. These are large enough.
WIDER = {
    "town_hall": ("levels=[1, 4]", "residents.general=2", "rounds=2", "sets=5"),
    "focus_group": ("replications=5",),
    "negotiation": ("group_types=[spouses]", "groups_per_type=5"),
}
FindingRows = list[dict[str, TableCell]]


def run_and_export(source: Path, folder: Path, overrides: tuple[str, ...] = ()) -> None:
    """Run a study in `folder / "run"`, and export its tables to `folder / "csv"`."""
    folkmoot.run(source, model="synthetic", out=folder / "run", overrides=overrides)
    export_run(RunFolder(folder / "run"), "csv", folder / "csv")


def exported_pilot(shared_folder: SharedFolder) -> Path:
    """Return the folder of the exported pilot study, which a test session makes once."""
    source, overrides = find_example("cross_pollination"), SMALLER["cross_pollination"]
    return shared_folder(
        "recomputed/pilot", lambda folder: run_and_export(source, folder, overrides)
    )


def read_headline_findings(run: RunFolder) -> dict[str, FindingRows]:
    """Return the rows of the headline findings of a run, by key."""
    findings = compute_findings(find_study_of_run(run), run)
    for finding in findings:
        grid = finding.grid
        for text in (finding.title, finding.says, *finding.notes, grid.caption, finding.conclusion):
            assert not find_forbidden(text), text
    return {
        finding.key: [
            dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows
        ]
        for finding in findings
        if finding.headline and finding.key not in NOT_FIGURES
    }


def find_differences(key: str, reported_rows: FindingRows, rows: Rows) -> list[str]:
    """Return the cells of a finding that differ from the recomputed rows or are missing there."""
    assert rows, key
    if len(reported_rows) != len(rows):
        return [f"{key}: {len(reported_rows)} rows, {len(rows)} computed"]
    # Rows are matched by their texts, and by the round where texts repeat.
    text_columns = [column for column in reported_rows[0] if isinstance(rows[0].get(column), str)]
    round_columns = [column for column in ("round",) if column in reported_rows[0]]
    keys = ["option"] if key == "votes" else [*text_columns, *round_columns]
    differences = []
    for row in rows:
        reported = next(
            (
                candidate
                for candidate in reported_rows
                if all(cells_agree(candidate[column], row[column]) for column in keys)
            ),
            None,
        )
        if reported is None:
            differences.append(f"{key}: no row {row}")
            continue
        for column, cell in reported.items():
            if column not in row or not cells_agree(cell, row[column]):
                differences.append(f"{key}, {column}: {cell}, computed {row.get(column)}")
    return differences


def assert_recomputed(study: str, folder: Path) -> None:
    """Compare each headline figure with the exported files, and check that a wrong one is found."""
    headlines = read_headline_findings(RunFolder(folder / "run"))
    assert headlines
    for key, reported_rows in headlines.items():
        assert key in RECOMPUTED[study], f"{key} has no recomputation"
        rows = RECOMPUTED[study][key](folder / "csv")
        assert find_differences(key, reported_rows, rows) == []
        for column in reported_rows[0]:
            first = next(
                (n for n, row in enumerate(reported_rows) if row[column] is not None), None
            )
            if first is not None:
                changed_rows = [dict(row) for row in reported_rows]
                changed_rows[first][column] = change_cell(reported_rows[first][column])
                assert find_differences(key, changed_rows, rows), (key, column)


def change_cell(cell: TableCell) -> TableCell:
    """Return another cell of the same type. A number is changed by a thousandth."""
    if isinstance(cell, bool) or cell is None:
        return not cell
    if isinstance(cell, str):
        return f"{cell}?"
    return cell + math.copysign(abs(cell) * 0.001 + 0.001, cell)  # away from zero


def find_example(study: str) -> Path:
    return EXAMPLES / ("public_goods.xlsx" if study == "workbook" else f"{study}.yaml")


@pytest.mark.nightly(part="truths")
def test_headline_figures_of_the_pilot_follow_from_the_exported_files(
    shared_folder: SharedFolder,
) -> None:
    assert_recomputed("cross_pollination", exported_pilot(shared_folder))


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_headline_figures_of_whole_examples_follow_from_the_exported_files(
    study: str, tmp_path: Path
) -> None:
    run_and_export(find_example(study), tmp_path)
    assert_recomputed(study, tmp_path)


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", [*WIDER, "workbook"])
def test_intervals_and_tests_follow_from_the_exported_files(study: str, tmp_path: Path) -> None:
    source = study_file(study, tmp_path) if study == "workbook" else find_example(study)
    run_and_export(source, tmp_path, WIDER.get(study, ()))
    assert_recomputed(study, tmp_path)


@pytest.mark.nightly(part="truths")
def test_the_tests_of_three_treatments_follow_from_the_exported_files(tmp_path: Path) -> None:
    """Two comparisons with the first treatment are corrected together."""
    path = tmp_path / "three.xlsx"
    book = openpyxl.load_workbook(find_example("workbook"))
    for sheet, key, value in (
        ("experimental_setting", "num_agents_per_session", 2),
        ("experimental_setting", "num_sessions", 15),
        ("constants", "members", "[2]"),
    ):
        row = next(sheet_row for sheet_row in book[sheet].iter_rows() if sheet_row[0].value == key)
        row[1].value = value
    book["treatments"].append(["careful", "Be careful: who gives first often loses."])
    profiles = book["agent_profiles"]
    for row in [[cell.value for cell in row] for row in profiles.iter_rows(min_row=3, max_row=16)]:
        profiles.append([f"{row[0]} again", *row[1:]])
    book.save(path)
    run_and_export(path, tmp_path)
    assert_recomputed("workbook", tmp_path)


GRID = """
study: cross_pollination
pilot_id: grid
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
participants_per_condition: 15
max_clarification_exchanges: 1
min_responses_for_threshold: 500
revote: true
personas: {source: quota}
"""


@pytest.mark.nightly(part="truths")
def test_p_of_a_grid_is_that_of_a_t_test_over_its_repeats(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(GRID)
    options = RunOptions(out=tmp_path / "grid", model="synthetic")
    grid = run_grid(tmp_path / "study.yaml", options, {"respondent.persuasion": ["0.5", "1.5"]}, 5)
    exported: dict[int, list[Path]] = {}
    for cell, run in grid.finished_cells().values():
        folder = tmp_path / "csv" / cell.name
        export_run(run, "csv", folder)
        exported.setdefault(cell.repeat, []).append(folder)
    (table,) = (finding.grid for finding in pooled_findings(grid) if finding.key == "grid_standing")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    title = "Differences between conditions"
    changes = {row["figure"]: row["p"] for row in rows if row["finding"] == title}
    assert len(changes) == 3
    computed = pool_change_p_values(exported)
    assert changes == pytest.approx({figure: computed[figure] for figure in changes})
    tested_rows = [row for row in rows if row["p"] is not None]
    holm_p_values = multipletests([row["p"] for row in tested_rows], method="holm")[1]
    assert [row["holm_p"] for row in tested_rows] == pytest.approx(holm_p_values)


def test_the_recomputation_imports_nothing_from_folkmoot() -> None:
    tree = ast.parse((Path(__file__).parent / "recompute.py").read_text("utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
    }
    assert not any(name.startswith("folkmoot") for name in imported)
