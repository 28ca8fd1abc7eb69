"""Every headline figure of the example reports, computed anew from the exported CSV files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study import findings_of, registered, study_of_run
from folkmoot.report.export import export
from folkmoot.storage.run_folder import RunFolder
from tests.recompute import RECOMPUTED, same

EXAMPLES = Path(__file__).parents[1] / "examples"
# Signs of an unfit model, a list of checks: each has its known answers in tests/measures.
NOT_FIGURES = {"respondent_checks"}
# As the examples are, smaller where that only takes time.
SMALLER = {
    "cross_pollination": ("participants_per_condition=30", "min_responses_for_threshold=5"),
    "town_hall": ("levels=[1, 4]", "residents.general=3", "rounds=2"),
    "negotiation": ("group_types=[spouses, strangers]", "groups_per_type=3"),
}


def compared(study: str, folder: Path, overrides: tuple[str, ...]) -> None:
    """Run an example, export it, and compare each row of each headline finding."""
    source = EXAMPLES / ("public_goods.xlsx" if study == "workbook" else f"{study}.yaml")
    folkmoot.run(source, model="synthetic", out=folder / "run", overrides=overrides)
    run = RunFolder(folder / "run")
    export(run, "csv", folder / "csv")
    headlines = [f for f in findings_of(study_of_run(run), run) if f.headline]
    assert headlines
    for finding in headlines:
        if finding.key in NOT_FIGURES:
            continue
        assert finding.key in RECOMPUTED[study], f"{finding.key} has no recomputation"
        rows = RECOMPUTED[study][finding.key](folder / "csv")
        assert rows, finding.key
        columns = finding.grid.columns
        names = [name for name in columns if isinstance(rows[0].get(name), str)]
        # Rows are found by the texts that name them, or by their number where texts repeat.
        keys = [*names, *(c for c in ("round",) if c in columns)]
        told = [dict(zip(columns, row, strict=True)) for row in finding.grid.rows]
        assert len(told) == len(rows), finding.key
        for row in rows:
            if finding.key == "votes":
                (own,) = (t for t in told if t["option"] == row["option"])
            else:
                (own,) = (t for t in told if all(same(t[k], row[k]) for k in keys))
            wrong = {c: (own.get(c), v) for c, v in row.items() if not same(own.get(c), v)}
            assert not wrong, (finding.key, row)


@pytest.mark.parametrize("study", sorted(registered()))
def test_headline_figures_can_be_computed_from_the_exported_files(
    study: str, tmp_path: Path
) -> None:
    compared(study, tmp_path, SMALLER.get(study, ()))


@pytest.mark.nightly
@pytest.mark.parametrize("study", sorted(SMALLER))
def test_so_can_those_of_the_whole_examples(study: str, tmp_path: Path) -> None:
    compared(study, tmp_path, ())


def test_the_recomputation_knows_nothing_of_what_it_checks() -> None:
    tree = ast.parse((Path(__file__).parent / "recompute.py").read_text("utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(a.name for a in node.names), getattr(node, "module", None) or ""]
    }
    assert not any(name.startswith("folkmoot") for name in imported)
