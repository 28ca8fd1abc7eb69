"""All results of all claims of the five studies, computed anew by other formulae from the exported
CSV files: estimate, interval, p, and p adjusted for the family."""

from __future__ import annotations

import ast
import math
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

import folkmoot
from folkmoot.engine.settings.claims import evaluate_claims
from folkmoot.engine.study.study import claims_of_run, find_study_of_run, registered_studies
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.report.export import export_run
from folkmoot.storage.run_folder import RunFolder
from tests.planted.test_null_runs import study_file
from tests.recompute_claims import recompute, tango
from tests.test_recomputation import SMALLER, WIDER, example


def results(source: Path, folder: Path, overrides: tuple[str, ...]) -> list[Result]:
    """The results of the claims of a run of a study file; its tables are exported beside it."""
    folkmoot.run(source, model="synthetic", out=folder / "run", overrides=overrides)
    run = RunFolder(folder / "run")
    export_run(run, "csv", folder / "csv")
    return evaluate_claims(run, claims_of_run(find_study_of_run(run), run))


def check(found: list[Result], folder: Path) -> int:
    """Compare results with those computed anew; how many of them have a test."""
    anew = recompute(folder / "csv", [asdict(r.claim) for r in found])
    for result, row in zip(found, anew, strict=True):
        e = result.estimate
        shown = e.has_interval
        ours = {
            "value": e.value,
            "low": e.low if shown else math.nan,
            "high": e.high if shown else math.nan,
            "p": e.p,
            "adjusted_p": result.adjusted_p,
            "joint_low": result.joint.low if result.joint else math.nan,
            "joint_high": result.joint.high if result.joint else math.nan,
        }
        for name, value in ours.items():
            other = math.nan if row[name] is None else row[name]
            told = f"{result.claim.says}: {name} {value}, computed {other}"
            assert value == pytest.approx(other, rel=1e-5, abs=1e-7, nan_ok=True), told
    return sum(r.is_tested for r in found)


def test_all_claims_of_a_study_are_computed_anew(tmp_path: Path) -> None:
    source = example("cross_pollination")
    assert check(results(source, tmp_path, SMALLER["cross_pollination"]), tmp_path) >= 3


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_all_claims_of_all_examples_are_computed_anew(study: str, tmp_path: Path) -> None:
    found = results(example(study), tmp_path, ())
    check(found, tmp_path)
    assert found and all(math.isfinite(r.estimate.value) for r in found)


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", [*WIDER, "workbook"])
def test_so_are_claims_with_units_enough_for_a_test(study: str, tmp_path: Path) -> None:
    source = study_file(study, tmp_path) if study == "workbook" else example(study)
    found = results(source, tmp_path, WIDER.get(study, ()))
    assert check(found, tmp_path) >= 1


@pytest.mark.parametrize("counts", [(10, 6, 1, 3), (30, 25, 12, 33), (0, 4, 0, 9), (5, 2, 2, 11)])
def test_tangos_interval_is_that_of_the_likelihood(counts: tuple[int, ...]) -> None:
    both, first, second, neither = counts
    one = [1] * both + [1] * first + [0] * second + [0] * neither
    other = [1] * both + [0] * first + [1] * second + [0] * neither
    e = paired_shares(both, second, first, neither)
    assert tango(pd.Series(one), pd.Series(other), 0.95) == pytest.approx(
        (e.low, e.high, e.p), abs=1e-5
    )


def test_the_recomputation_of_claims_knows_nothing_of_what_it_checks() -> None:
    tree = ast.parse((Path(__file__).parent / "recompute_claims.py").read_text("utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(a.name for a in node.names), getattr(node, "module", None) or ""]
    }
    assert not any(name.startswith("folkmoot") for name in imported)
