"""Recompute the results of all claims of the five studies from the exported CSV files.

Other formulae give the estimate, the interval, p, and p adjusted for the family.
"""

from __future__ import annotations

import ast
import math
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from folkmoot.engine.settings.claims import evaluate_claims
from folkmoot.engine.study.study import claims_of_run, find_study_of_run, registered_studies
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.storage.run_folder import RunFolder
from tests.conftest import SharedFolder
from tests.planted.test_null_runs import study_file
from tests.recompute_claims import infer_tango, recompute
from tests.test_recomputation import WIDER, exported_pilot, find_example, run_and_export


def assert_claims_recomputed(folder: Path) -> list[Result]:
    """Compare the claims of an exported run with recomputed ones, and return their results."""
    run = RunFolder(folder / "run")
    results = evaluate_claims(run, claims_of_run(find_study_of_run(run), run))
    recomputed_rows = recompute(folder / "csv", [asdict(result.claim) for result in results])
    for result, row in zip(results, recomputed_rows, strict=True):
        estimate = result.estimate
        reported = {
            "value": estimate.value,
            "low": estimate.low if estimate.has_interval else math.nan,
            "high": estimate.high if estimate.has_interval else math.nan,
            "p": estimate.p,
            "adjusted_p": result.adjusted_p,
            "joint_low": result.joint.low if result.joint else math.nan,
            "joint_high": result.joint.high if result.joint else math.nan,
        }
        for name, value in reported.items():
            recomputed = math.nan if row[name] is None else row[name]
            message = f"{result.claim.says}: {name} {value}, recomputed {recomputed}"
            assert value == pytest.approx(recomputed, rel=1e-5, abs=1e-7, nan_ok=True), message
    return results


def test_all_claims_of_the_pilot_are_recomputed(shared_folder: SharedFolder) -> None:
    results = assert_claims_recomputed(exported_pilot(shared_folder))
    assert sum(result.is_tested for result in results) >= 3


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_all_claims_of_whole_examples_are_recomputed(study: str, tmp_path: Path) -> None:
    run_and_export(find_example(study), tmp_path)
    results = assert_claims_recomputed(tmp_path)
    assert results and all(math.isfinite(result.estimate.value) for result in results)


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("study", [*WIDER, "workbook"])
def test_claims_with_enough_units_for_a_test_are_recomputed(study: str, tmp_path: Path) -> None:
    source = study_file(study, tmp_path) if study == "workbook" else find_example(study)
    run_and_export(source, tmp_path, WIDER.get(study, ()))
    assert any(result.is_tested for result in assert_claims_recomputed(tmp_path))


@pytest.mark.parametrize("counts", [(10, 6, 1, 3), (30, 25, 12, 33), (0, 4, 0, 9), (5, 2, 2, 11)])
def test_tangos_interval_equals_the_likelihood_interval(counts: tuple[int, ...]) -> None:
    both_count, first_only, second_only, neither_count = counts
    first_votes = [1] * both_count + [1] * first_only + [0] * second_only + [0] * neither_count
    second_votes = [1] * both_count + [0] * first_only + [1] * second_only + [0] * neither_count
    estimate = paired_shares(both_count, second_only, first_only, neither_count)
    assert infer_tango(pd.Series(first_votes), pd.Series(second_votes), 0.95) == pytest.approx(
        (estimate.low, estimate.high, estimate.p), abs=1e-5
    )


def test_the_recomputation_of_claims_imports_nothing_from_folkmoot() -> None:
    tree = ast.parse((Path(__file__).parent / "recompute_claims.py").read_text("utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
    }
    assert not any(name.startswith("folkmoot") for name in imported)
