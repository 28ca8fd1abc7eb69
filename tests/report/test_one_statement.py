"""A comparison within a run has the same verdict, adjusted p and interval in all outputs: the
report, comparisons, grids, Python, the terminal and the page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.grid import GridCell
from folkmoot.engine.study.study import (
    analysed_parts,
    claims_of_run,
    compute_findings,
    find_study_of_run,
)
from folkmoot.errors import InputError, RunPausedError
from folkmoot.measures.inference.claims import Claim
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.pooled import judge_claims
from folkmoot.report.document.document import build_document
from folkmoot.report.preregistration import registration_of_run
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import small_study

# The second has the order of conditions that the study type does not declare.
HYPOTHESES = [
    {
        "measure": "position_changed",
        "contrast": ["acp", "simple_voting"],
        "direction": "greater",
        "smallest": 0.02,
    },
    {"measure": "position_changed", "contrast": ["simple_passive", "acp"], "direction": "less"},
]
Numbers = tuple[TableCell, ...]


def iterate_rows(finding: Finding) -> Iterator[dict[str, TableCell]]:
    for row in finding.grid.rows:
        yield dict(zip(finding.grid.columns, row, strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """Make two runs of one study with hypotheses, and one without, which has other families."""
    folder = tmp_path_factory.mktemp("statements")
    path = small_study("cross_pollination", folder)
    settings = {**yaml.safe_load(path.read_text("utf-8")), "participants_per_condition": 12}
    settings["extra_conditions"] = []
    (folder / "none.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    path.write_text(yaml.safe_dump({**settings, "hypotheses": HYPOTHESES}), "utf-8")
    finished_runs = {
        "one": folkmoot.run(path, model="synthetic", out=folder / "one"),
        "two": folkmoot.run(path, model="synthetic", seed=8, out=folder / "two"),
        "none": folkmoot.run(folder / "none.yaml", model="synthetic", out=folder / "none"),
    }
    return {name: RunFolder(run.path) for name, run in finished_runs.items()}


@cache
def read_findings(run: RunFolder) -> dict[str, Finding]:
    """Return the findings of a run by key. They are cached, because no test here changes a run."""
    study = folkmoot.load(run.path).study
    return {finding.key: finding for finding in compute_findings(study, run)}


def read_reported_contrasts(run: RunFolder) -> dict[tuple[str, str], Numbers]:
    """Map each contrast of changed choices to its numbers in the study's findings."""
    table = read_findings(run)["change_differences"]
    return {
        (str(row["first"]), str(row["second"])): (
            row["family"],
            row["difference_points"],
            row["low_points"],
            row["high_points"],
            row["adjusted_p"],
        )
        for row in iterate_rows(table)
    }


def reverse_contrast(numbers: Numbers) -> Numbers:
    family, difference, low, high, p = numbers
    return family, -float(difference), -float(high), -float(low), p  # type: ignore[arg-type]


@pytest.mark.nightly(part="sweeps")
def test_compare_prints_the_verdict_p_and_interval_of_the_report(
    runs: Mapping[str, RunFolder],
) -> None:
    compared = {finding.key: finding for finding in compare_runs([*runs.values()])}
    effects = list(iterate_rows(compared["compare_effects"]))
    checked_rows = 0
    for row in effects:
        if row["run"] not in runs:
            assert row["family"] == "between runs"
            continue
        first, _, second = str(row["claim"]).partition(": ")[2].partition(" − ")
        printed_numbers = (row["family"], row["difference"], row["low"], row["high"], row["holm_p"])
        reported = read_reported_contrasts(runs[str(row["run"])])
        reported_numbers = reported.get((first, second)) or reverse_contrast(
            reported[second, first]
        )
        assert printed_numbers[0] == reported_numbers[0]
        assert printed_numbers[1:] == pytest.approx(reported_numbers[1:], nan_ok=True)
        checked_rows += 1
    assert checked_rows == 3 * len(HYPOTHESES)
    # The primary family of two runs is their hypotheses, and that of the third the declared claims.
    verdicts = {(row["run"], row["claim"]): row["verdict"] for row in effects}
    hypotheses = list(iterate_rows(read_findings(runs["one"])["hypotheses"]))
    printed = [verdict for (run, _), verdict in verdicts.items() if run == "one"]
    assert printed == [row["verdict"] for row in hypotheses]


def test_an_exploratory_contrast_has_no_conclusion_in_comparisons(
    runs: Mapping[str, RunFolder],
) -> None:
    """`compare` uses the families of the reports in any order of the runs."""
    compared = {finding.key: finding for finding in compare_runs([runs["none"], runs["one"]])}
    rows = [
        candidate
        for candidate in iterate_rows(compared["compare_effects"])
        if candidate["run"] in runs
    ]
    by_run = {
        name: {candidate["family"] for candidate in rows if candidate["run"] == name}
        for name in ("none", "one")
    }
    assert by_run == {"none": {"primary"}, "one": {"primary", "exploratory"}}
    for row in rows:
        assert (row["verdict"] == "no conclusion") == (row["family"] == "exploratory"), row


def test_the_pages_have_the_texts_of_the_findings(runs: Mapping[str, RunFolder]) -> None:
    run = runs["one"]
    first = next(iterate_rows(read_findings(run)["hypotheses"]))
    result = next(
        candidate
        for candidate in iterate_rows(read_findings(run)["claims_tested"])
        if candidate["family"] == "primary"
    )
    assert str(result["claim"]) == first["hypothesis"]
    command_result = CliRunner().invoke(app, ["report", str(run.path)])
    assert command_result.exit_code == 0, command_result.output
    page = (run.path / "report.html").read_text("utf-8")
    sentence = read_findings(run)["hypotheses"].says
    assert sentence.replace("'", "&#39;") in page
    registered = registration_of_run(run)[1]
    hypotheses = [row["hypothesis"] for row in iterate_rows(read_findings(run)["hypotheses"])]
    assert [row[1] for row in registered.rows] == hypotheses


def test_a_row_of_a_grid_counts_the_verdicts_of_the_reports(runs: Mapping[str, RunFolder]) -> None:
    cells = {
        name: (GridCell(name, {}, repeat, repeat), runs[name])
        for repeat, name in enumerate(("one", "two"), 1)
    }
    finding = judge_claims(cells)
    assert finding is not None
    by_claim = {row["claim"]: row for row in iterate_rows(finding)}
    reports = [
        list(iterate_rows(read_findings(runs[name])["hypotheses"])) for name in ("one", "two")
    ]
    assert set(by_claim) == {row["hypothesis"] for row in reports[0]}
    for row in by_claim.values():
        matching_rows = [
            candidate
            for rows in reports
            for candidate in rows
            if candidate["hypothesis"] == row["claim"]
        ]
        assert row["cells_supporting"] == sum(
            candidate["verdict"] == "supported" for candidate in matching_rows
        )


def test_the_plan_decides_which_claims_are_primary(
    runs: Mapping[str, RunFolder], tmp_path: Path
) -> None:
    """A later version of the study type declares other claims. The report keeps the claims of the
    plan, and new ones are exploratory."""
    run = runs["none"]
    study = folkmoot.load(run.path).study
    families = {claim.contrast: claim.family for claim in claims_of_run(study, run)}
    new_claim = Claim(
        "participants.socratic_exchanges", ("acp", "simple_voting"), "mean", by="condition"
    )

    def declare_later_claims(config: object) -> list[Claim]:
        declared = [replace(claim, family="exploratory") for claim in study.claims(config)]  # type: ignore[arg-type]
        return [replace(new_claim, family="primary"), *declared]

    claims = claims_of_run(replace(study, claims=declare_later_claims), run)
    assert {
        claim.contrast: claim.family for claim in claims if claim.measure != new_claim.measure
    } == families
    assert [claim.family for claim in claims if claim.measure == new_claim.measure] == [
        "exploratory"
    ]
    assert "primary" in families.values()
    # Without a sealed plan, the claims of the current version count.
    folder = Path(shutil.copytree(run.path, tmp_path / "unsealed"))
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    del plan["sealed"]["claims"]
    (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
    unsealed = claims_of_run(replace(study, claims=declare_later_claims), RunFolder(folder))
    assert unsealed[0].family == "primary"


INTERIM_VERDICT = "not tested (interim figures of an unfinished run)"


@pytest.mark.nightly(part="sweeps")
def test_a_paused_run_gives_no_verdict(tmp_path: Path) -> None:
    """The first completed participants are not a random sample, and a resumed run tests again."""
    path = small_study("cross_pollination", tmp_path)
    key = "participants_per_condition"
    path.write_text(path.read_text("utf-8").replace(f"{key}: 6", f"{key}: 30"))
    overrides = ("budget_calls=900",)
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run", overrides=overrides)
    run = RunFolder(tmp_path / "run")
    study = find_study_of_run(run)
    covered = analysed_parts(study, run)
    assert isinstance(covered, PartsView)
    findings = {finding.key: finding for finding in compute_findings(study, run)}
    rows = list(iterate_rows(findings["claims_tested"]))
    primary = [row for row in rows if row["family"] == "primary"]
    assert primary and all(row["result"] == INTERIM_VERDICT for row in primary)
    # Planned participants without a record are missing. Their measure is not unknown.
    document = build_document(run)
    methods = str(document.methods)
    for claim in claims_of_run(study, covered):
        if claim.family == "primary":
            (row,) = (row for row in primary if row["claim"] == claim.says)
            complete_ids = set(covered.parts.complete)
            for condition, side in zip(claim.contrast, ("first", "second"), strict=True):
                planned = covered.parts.arms[condition]
                assert row[f"excluded_{side}"] == len(planned) - len(
                    complete_ids.intersection(planned)
                )
            assert row["least_if_missing"] is not None
            pending = row["excluded_first"] + row["excluded_second"]
            assert f"none excluded, {pending} not complete yet; independent unit" in methods
    front = document.front
    assert front is not None and front.contrasts
    answers = [contrast.answer for contrast in front.contrasts]
    answers += [finding.says for finding in findings.values() if finding.primary]
    for answer in answers:
        assert "interim figures" in answer and " points (" in answer
        assert "p =" not in answer and "p <" not in answer and "shown" not in answer


# Daily, test_partial_runs compares a killed run.
@pytest.mark.nightly(part="kills")
def test_an_unfinished_run_is_compared_by_the_parts_of_its_report(
    tmp_path: Path,
) -> None:
    path = small_study("negotiation", tmp_path)
    path.write_text(path.read_text("utf-8").replace("groups_per_type: 1", "groups_per_type: 2"))
    whole_run = folkmoot.run(path, model="synthetic", out=tmp_path / "whole")
    budget = f"budget_calls={whole_run.manifest['calls'] // 2}"
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "half", overrides=(budget,))
    half_run = RunFolder(tmp_path / "half")
    covered = analysed_parts(folkmoot.load(half_run.path).study, half_run)
    assert isinstance(covered, PartsView) and 0 < len(covered.parts.analysed) < 4
    compared = {finding.key: finding for finding in compare_runs([whole_run.path, half_run])}
    partial_text = f"half did not finish ({covered.partial.removeprefix('PARTIAL: ')})"
    assert partial_text in compared["designs"].says and covered.parts.count_text in partial_text
    # Interim figures are not tested.
    claim_rows = [
        *iterate_rows(compared["compare_claims"]),
        *iterate_rows(compared["compare_effects"]),
    ]
    half_rows = [row for row in claim_rows if row.get("run") != "whole"]
    assert half_rows and all(row["p"] is row["holm_p"] is None for row in half_rows)
    groups = {row["units"] for row in iterate_rows(compared["compare_claims"])}
    assert groups == {len(covered.parts.analysed)}
    small_budget = ("budget_calls=3",)
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "none", overrides=small_budget)
    with pytest.raises(InputError, match="no part of the run can be analysed yet"):
        compare_runs([whole_run.path, tmp_path / "none"])
