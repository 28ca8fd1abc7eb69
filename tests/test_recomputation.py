"""Every headline figure of the example reports, computed anew from the exported CSV files."""

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
from folkmoot.measures.wording import find_forbidden
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.report.export import export_run
from folkmoot.storage.findings import TableCell
from folkmoot.storage.run_folder import RunFolder
from tests.planted.test_null_runs import study_file
from tests.recompute import RECOMPUTED, Rows, pooled_changes, same
from tests.sweeps import sample_daily

EXAMPLES = Path(__file__).parents[1] / "examples"
# Signs of an unfit model, a list of checks: each has its known answers in tests/measures.
NOT_FIGURES = {"respondent_checks"}
# As the examples are, smaller where that only takes time.
SMALLER = {
    "cross_pollination": ("participants_per_condition=30", "min_responses_for_threshold=5"),
    "town_hall": ("levels=[1, 4]", "residents.general=3", "rounds=2"),
    "negotiation": ("group_types=[spouses, strangers]", "groups_per_type=3"),
}


# What is no figure of a run: a text, or the design.
NAMES: dict[str, set[str]] = {}
# Units enough for intervals and tests, which the examples of three studies are too small for.
WIDER = {
    "town_hall": ("levels=[1, 4]", "residents.general=2", "rounds=2", "sets=5"),
    "focus_group": ("replications=5",),
    "negotiation": ("group_types=[spouses]", "groups_per_type=5"),
}
Told = list[dict[str, TableCell]]


def made(source: Path, folder: Path, overrides: tuple[str, ...]) -> dict[str, Told]:
    """Run a study, export it, and give the rows of its headline findings by key. No finding says
    what no test of one run shows."""
    folkmoot.run(source, model="synthetic", out=folder / "run", overrides=overrides)
    run = RunFolder(folder / "run")
    export_run(run, "csv", folder / "csv")
    findings = compute_findings(find_study_of_run(run), run)
    for f in findings:
        for text in (f.title, f.says, *f.notes, f.grid.caption, f.conclusion):
            assert not find_forbidden(text), text
    return {
        f.key: [dict(zip(f.grid.columns, row, strict=True)) for row in f.grid.rows]
        for f in findings
        if f.headline and f.key not in NOT_FIGURES
    }


def faults(study: str, key: str, told: Told, rows: Rows) -> list[str]:
    """Cells of a finding that are not as they were computed anew, or were not computed at all."""
    assert rows, key
    if len(told) != len(rows):
        return [f"{key}: {len(told)} rows, {len(rows)} computed"]
    # Rows are found by the texts that name them, and by their number where texts repeat.
    names = [c for c in told[0] if isinstance(rows[0].get(c), str)]
    keys = ["option"] if key == "votes" else [*names, *(c for c in ("round",) if c in told[0])]
    found = []
    for row in rows:
        own = next((t for t in told if all(same(t[k], row[k]) for k in keys)), None)
        if own is None:
            found.append(f"{key}: no row {row}")
            continue
        for column in own.keys() - NAMES.get(study, set()):
            if column not in row or not same(own[column], row[column]):
                found.append(f"{key}, {column}: {own[column]}, computed {row.get(column)}")
    return found


def compared(study: str, source: Path, folder: Path, overrides: tuple[str, ...]) -> None:
    """Each figure of each headline finding is what comes of the exported files, and any other one
    would be noticed."""
    headlines = made(source, folder, overrides)
    assert headlines
    for key, told in headlines.items():
        assert key in RECOMPUTED[study], f"{key} has no recomputation"
        rows = RECOMPUTED[study][key](folder / "csv")
        assert faults(study, key, told, rows) == []
        for column in told[0].keys() - NAMES.get(study, set()):
            at = next((n for n, row in enumerate(told) if row[column] is not None), None)
            if at is not None:
                wrong = [dict(row) for row in told]
                wrong[at][column] = otherwise(told[at][column])
                assert faults(study, key, wrong, rows), (key, column)


def otherwise(cell: TableCell) -> TableCell:
    """Another cell of its kind, a figure off by a thousandth."""
    if isinstance(cell, bool) or cell is None:
        return not cell
    if isinstance(cell, str):
        return f"{cell}?"
    return cell + math.copysign(abs(cell) * 0.001 + 0.001, cell)  # away from zero


def example(study: str) -> Path:
    return EXAMPLES / ("public_goods.xlsx" if study == "workbook" else f"{study}.yaml")


# Daily one study with units and one with sessions; the whole examples of all five by night.
DAILY = ("cross_pollination",)


@pytest.mark.parametrize("study", sample_daily(sorted(registered_studies()), DAILY, "truths"))
def test_headline_figures_can_be_computed_from_the_exported_files(
    study: str, tmp_path: Path
) -> None:
    compared(study, example(study), tmp_path, SMALLER.get(study, ()))


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", sorted(SMALLER))
def test_so_can_those_of_the_whole_examples(study: str, tmp_path: Path) -> None:
    compared(study, example(study), tmp_path, ())


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", [*WIDER, "workbook"])
def test_so_can_intervals_and_tests_where_there_are_units_enough(
    study: str, tmp_path: Path
) -> None:
    source = study_file(study, tmp_path) if study == "workbook" else example(study)
    compared(study, source, tmp_path, WIDER.get(study, ()))


@pytest.mark.nightly(part="truths")
def test_so_can_the_tests_of_three_treatments(tmp_path: Path) -> None:
    """Two comparisons with the first treatment, corrected together."""
    path = tmp_path / "three.xlsx"
    book = openpyxl.load_workbook(example("workbook"))
    for sheet, key, value in (
        ("experimental_setting", "num_agents_per_session", 2),
        ("experimental_setting", "num_sessions", 15),
        ("constants", "members", "[2]"),
    ):
        row = next(r for r in book[sheet].iter_rows() if r[0].value == key)
        row[1].value = value
    book["treatments"].append(["careful", "Be careful: who gives first often loses."])
    profiles = book["agent_profiles"]
    for row in [[cell.value for cell in row] for row in profiles.iter_rows(min_row=3, max_row=16)]:
        profiles.append([f"{row[0]} again", *row[1:]])
    book.save(path)
    compared("workbook", path, tmp_path, ())


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
    how = RunOptions(out=tmp_path / "grid", model="synthetic")
    grid = run_grid(tmp_path / "study.yaml", how, {"respondent.persuasion": ["0.5", "1.5"]}, 5)
    exported: dict[int, list[Path]] = {}
    for cell, run in grid.finished_cells().values():
        folder = tmp_path / "csv" / cell.name
        export_run(run, "csv", folder)
        exported.setdefault(cell.repeat, []).append(folder)
    (told,) = (f.grid for f in pooled_findings(grid) if f.key == "grid_standing")
    rows = [dict(zip(told.columns, row, strict=True)) for row in told.rows]
    of = "Differences between conditions"
    changes = {row["figure"]: row["p"] for row in rows if row["finding"] == of}
    assert len(changes) == 3
    computed = pooled_changes(exported)
    assert changes == pytest.approx({figure: computed[figure] for figure in changes})
    tested = [row for row in rows if row["p"] is not None]
    holms = multipletests([row["p"] for row in tested], method="holm")[1]
    assert [row["holm_p"] for row in tested] == pytest.approx(holms)


def test_the_recomputation_knows_nothing_of_what_it_checks() -> None:
    tree = ast.parse((Path(__file__).parent / "recompute.py").read_text("utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(a.name for a in node.names), getattr(node, "module", None) or ""]
    }
    assert not any(name.startswith("folkmoot") for name in imported)
