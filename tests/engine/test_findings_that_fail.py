"""A finding that fails is said and takes nothing of a paid run with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import folkmoot
from folkmoot.engine.study.study import FAILED_FINDING_KEY, compute_findings, find_study
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder


def test_findings_that_fail_are_said_and_the_run_has_ended(tmp_path: Path) -> None:
    def fails(run: RunFolder) -> list[Finding]:
        return [max({}, key=str)]  # type: ignore[type-var]

    broken = replace(find_study("negotiation"), findings=fails)
    settings = {"group_types": ["spouses"], "groups_per_type": 1, "conditions": ["C2"]}
    run = folkmoot.run(broken, settings, out=tmp_path / "run", model="synthetic")
    (finding,) = compute_findings(broken, run.folder)
    assert finding.key == FAILED_FINDING_KEY and finding.headline
    assert "an error in the study type (ValueError(" in finding.says
    assert run.folder.is_finished and not run.table("decisions").is_empty()
