"""A finding that fails is reported and does not affect the rest of a paid run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import folkmoot
from folkmoot.engine.study.study import FAILED_FINDING_KEY, compute_findings, find_study
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder


def test_failing_findings_are_reported_and_the_run_is_finished(tmp_path: Path) -> None:
    def raise_error(run: RunFolder) -> list[Finding]:
        return [max({}, key=str)]  # type: ignore[type-var]

    failing_study = replace(find_study("negotiation"), findings=raise_error)
    settings = {"group_types": ["spouses"], "groups_per_type": 1, "conditions": ["C2"]}
    run = folkmoot.run(failing_study, settings, out=tmp_path / "run", model="synthetic")
    (finding,) = compute_findings(failing_study, run.folder)
    assert finding.key == FAILED_FINDING_KEY and finding.headline
    assert "an error in the study type (ValueError(" in finding.says
    assert run.folder.is_finished and not run.table("decisions").is_empty()
