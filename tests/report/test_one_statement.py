"""A comparison within a run has one verdict, one adjusted p and one interval wherever it is
printed: in the report, beside other runs, over a grid, in Python, on the terminal and the page."""

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


def rows_of(finding: Finding) -> Iterator[dict[str, TableCell]]:
    for row in finding.grid.rows:
        yield dict(zip(finding.grid.columns, row, strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """Two draws of one study with hypotheses, and a third without, which has other families."""
    folder = tmp_path_factory.mktemp("statements")
    path = small_study("cross_pollination", folder)
    settings = {**yaml.safe_load(path.read_text("utf-8")), "participants_per_condition": 12}
    settings["extra_conditions"] = []
    (folder / "none.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    path.write_text(yaml.safe_dump({**settings, "hypotheses": HYPOTHESES}), "utf-8")
    made = {
        "one": folkmoot.run(path, model="synthetic", out=folder / "one"),
        "two": folkmoot.run(path, model="synthetic", seed=8, out=folder / "two"),
        "none": folkmoot.run(folder / "none.yaml", model="synthetic", out=folder / "none"),
    }
    return {name: RunFolder(run.path) for name, run in made.items()}


@cache
def findings_of(run: RunFolder) -> dict[str, Finding]:
    """The findings of a run by key, computed once: no test of this file changes a run."""
    study = folkmoot.load(run.path).study
    return {finding.key: finding for finding in compute_findings(study, run)}


def as_in_report(run: RunFolder) -> dict[tuple[str, str], Numbers]:
    """Each contrast of changed choices in the table of the study's findings."""
    table = findings_of(run)["change_differences"]
    return {
        (str(row["first"]), str(row["second"])): (
            row["family"],
            row["difference_points"],
            row["low_points"],
            row["high_points"],
            row["adjusted_p"],
        )
        for row in rows_of(table)
    }


def turn(numbers: Numbers) -> Numbers:
    family, difference, low, high, p = numbers
    return family, -float(difference), -float(high), -float(low), p  # type: ignore[arg-type]


def test_compare_prints_the_verdict_p_and_interval_of_the_report(
    runs: Mapping[str, RunFolder],
) -> None:
    compared = {finding.key: finding for finding in compare_runs([*runs.values()])}
    effects = list(rows_of(compared["compare_effects"]))
    checked = 0
    for row in effects:
        if row["run"] not in runs:
            assert row["family"] == "between runs"
            continue
        first, _, second = str(row["claim"]).partition(": ")[2].partition(" − ")
        own = (row["family"], row["difference"], row["low"], row["high"], row["holm_p"])
        reported = as_in_report(runs[str(row["run"])])
        stated = reported.get((first, second)) or turn(reported[second, first])
        assert own[0] == stated[0]
        assert own[1:] == pytest.approx(stated[1:], nan_ok=True)
        checked += 1
    assert checked == 3 * len(HYPOTHESES)
    # Hypotheses are the primary family of two runs, and the claims of the study type of the third.
    verdicts = {(row["run"], row["claim"]): row["verdict"] for row in effects}
    hypotheses = list(rows_of(findings_of(runs["one"])["hypotheses"]))
    printed = [verdict for (run, _), verdict in verdicts.items() if run == "one"]
    assert printed == [row["verdict"] for row in hypotheses]


def test_a_contrast_without_a_conclusion_has_none_beside_other_runs(
    runs: Mapping[str, RunFolder],
) -> None:
    """What the report calls exploratory is called so by `compare`, whichever run comes first."""
    compared = {f.key: f for f in compare_runs([runs["none"], runs["one"]])}
    rows = [r for r in rows_of(compared["compare_effects"]) if r["run"] in runs]
    by_run = {name: {r["family"] for r in rows if r["run"] == name} for name in ("none", "one")}
    assert by_run == {"none": {"primary"}, "one": {"primary", "exploratory"}}
    for row in rows:
        assert (row["verdict"] == "no conclusion") == (row["family"] == "exploratory"), row


def test_the_pages_print_what_the_findings_say(runs: Mapping[str, RunFolder]) -> None:
    run = runs["one"]
    first = next(rows_of(findings_of(run)["hypotheses"]))
    result = next(r for r in rows_of(findings_of(run)["claims_tested"]) if r["family"] == "primary")
    assert str(result["claim"]) == first["hypothesis"]
    done = CliRunner().invoke(app, ["report", str(run.path)])
    assert done.exit_code == 0, done.output
    page = (run.path / "report.html").read_text("utf-8")
    says = findings_of(run)["hypotheses"].says
    assert says.replace("'", "&#39;") in page
    registered = registration_of_run(run)[1]
    stated = [row["hypothesis"] for row in rows_of(findings_of(run)["hypotheses"])]
    assert [row[1] for row in registered.rows] == stated


def test_a_row_of_a_grid_counts_the_verdicts_of_the_reports(runs: Mapping[str, RunFolder]) -> None:
    cells = {
        name: (GridCell(name, {}, repeat, repeat), runs[name])
        for repeat, name in enumerate(("one", "two"), 1)
    }
    finding = judge_claims(cells)
    assert finding is not None
    by_claim = {row["claim"]: row for row in rows_of(finding)}
    reports = [list(rows_of(findings_of(runs[name])["hypotheses"])) for name in ("one", "two")]
    assert set(by_claim) == {row["hypothesis"] for row in reports[0]}
    for row in by_claim.values():
        same = [r for rows in reports for r in rows if r["hypothesis"] == row["claim"]]
        assert row["cells_supporting"] == sum(r["verdict"] == "supported" for r in same)


def test_the_plan_decides_which_claims_are_primary(
    runs: Mapping[str, RunFolder], tmp_path: Path
) -> None:
    """A later version of the study type declares other claims. The report keeps those of the
    plan, and what is new is exploratory."""
    run = runs["none"]
    study = folkmoot.load(run.path).study
    before = {c.contrast: c.family for c in claims_of_run(study, run)}
    new = Claim("participants.socratic_exchanges", ("acp", "simple_voting"), "mean", by="condition")

    def later(config: object) -> list[Claim]:
        declared = [replace(c, family="exploratory") for c in study.claims(config)]  # type: ignore[arg-type]
        return [replace(new, family="primary"), *declared]

    claims = claims_of_run(replace(study, claims=later), run)
    assert {c.contrast: c.family for c in claims if c.measure != new.measure} == before
    assert [c.family for c in claims if c.measure == new.measure] == ["exploratory"]
    assert "primary" in before.values()
    # Without a sealed plan there is nothing else to go by.
    folder = Path(shutil.copytree(run.path, tmp_path / "unsealed"))
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    del plan["sealed"]["claims"]
    (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
    unsealed = claims_of_run(replace(study, claims=later), RunFolder(folder))
    assert unsealed[0].family == "primary"


INTERIM_VERDICT = "not tested (interim figures of an unfinished run)"


@pytest.mark.nightly(part="sweeps")
def test_a_run_that_its_budget_stopped_gives_no_verdict(tmp_path: Path) -> None:
    """Those who were done first are no random part, and a resumed run tests again."""
    path = small_study("cross_pollination", tmp_path)
    size = "participants_per_condition"
    path.write_text(path.read_text("utf-8").replace(f"{size}: 6", f"{size}: 30"))
    limit = ("budget_calls=900",)
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run", overrides=limit)
    run = RunFolder(tmp_path / "run")
    study = find_study_of_run(run)
    covered = analysed_parts(study, run)
    assert isinstance(covered, PartsView)
    findings = {finding.key: finding for finding in compute_findings(study, run)}
    rows = list(rows_of(findings["claims_tested"]))
    primary = [row for row in rows if row["family"] == "primary"]
    assert primary and all(row["result"] == INTERIM_VERDICT for row in primary)
    # Those who were planned and are not recorded are missing, and not of an unknown measure.
    document = build_document(run)
    methods = str(document.methods)
    for claim in claims_of_run(study, covered):
        if claim.family == "primary":
            (row,) = (row for row in primary if row["claim"] == claim.says)
            done = set(covered.parts.complete)
            for arm, place in zip(claim.contrast, ("first", "second"), strict=True):
                planned = covered.parts.arms[arm]
                assert row[f"excluded_{place}"] == len(planned) - len(done.intersection(planned))
            assert row["least_if_missing"] is not None
            pending = row["excluded_first"] + row["excluded_second"]
            assert f"none excluded, {pending} not complete yet; independent unit" in methods
    front = document.front
    assert front is not None and front.contrasts
    said = [contrast.answer for contrast in front.contrasts]
    said += [finding.says for finding in findings.values() if finding.primary]
    for words in said:
        assert "interim figures" in words and " points (" in words
        assert "p =" not in words and "p <" not in words and "shown" not in words


# Daily, test_partial_runs compares a killed run.
@pytest.mark.nightly(part="kills")
def test_an_unfinished_run_is_compared_by_the_parts_that_its_report_covers(
    tmp_path: Path,
) -> None:
    path = small_study("negotiation", tmp_path)
    path.write_text(path.read_text("utf-8").replace("groups_per_type: 1", "groups_per_type: 2"))
    whole = folkmoot.run(path, model="synthetic", out=tmp_path / "whole")
    limit = f"budget_calls={whole.manifest['calls'] // 2}"
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "half", overrides=(limit,))
    half = RunFolder(tmp_path / "half")
    covered = analysed_parts(folkmoot.load(half.path).study, half)
    assert isinstance(covered, PartsView) and 0 < len(covered.parts.analysed) < 4
    compared = {f.key: f for f in compare_runs([whole.path, half])}
    told = f"half did not finish ({covered.partial.removeprefix('PARTIAL: ')})"
    assert told in compared["designs"].says and covered.parts.count_text in told
    # An interim look tests nothing.
    told_rows = [*rows_of(compared["compare_claims"]), *rows_of(compared["compare_effects"])]
    halves = [row for row in told_rows if row.get("run") != "whole"]
    assert halves and all(row["p"] is row["holm_p"] is None for row in halves)
    groups = {row["units"] for row in rows_of(compared["compare_claims"])}
    assert groups == {len(covered.parts.analysed)}
    none = ("budget_calls=3",)
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "none", overrides=none)
    with pytest.raises(InputError, match="no part of the run can be analysed yet"):
        compare_runs([whole.path, tmp_path / "none"])
