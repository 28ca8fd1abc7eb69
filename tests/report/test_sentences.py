"""All sentences on results in pages, terminals and comparisons are made by `word`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from folkmoot.engine.study.study import compute_findings, find_study_of_run
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.measures.wording import Sentence
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.power import power_of
from folkmoot.report.document.document import build_document
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = (
    "cross_pollination.yaml",
    "focus_group.yaml",
    "negotiation.yaml",
    "town_hall.yaml",
    "public_goods.xlsx",
)
# An interval, a p-value, a verdict, or the reason for a missing one.
RESULT = re.compile(
    r"\([^)]*\d to |\bp [=<]|no interval|\b(?:supported|contradicted|ruled out|tested|"
    r"passed|not known|margin)\b",
    re.IGNORECASE,
)


def list_other_statements(findings: Iterable[Finding]) -> list[str]:
    """List the statements on results that are not of type `Sentence`."""
    return [
        finding.says
        for finding in findings
        if RESULT.search(finding.says) and type(finding.says) is not Sentence
    ]


def test_findings_and_card_of_each_study_type_are_sentences(finished_run: RunFolder) -> None:
    findings = compute_findings(find_study_of_run(finished_run), finished_run)
    assert list_other_statements(findings) == []
    front = build_document(finished_run).front
    assert front is not None
    for row in front.card:
        assert type(row.figures) is Sentence and type(row.consequence) is Sentence
    assert all(type(contrast.answer) is Sentence for contrast in front.contrasts)


@pytest.mark.parametrize("file", FILES)
def test_power_of_each_example_is_in_sentences(file: str) -> None:
    findings = power_of(load_study_file(EXAMPLES / file))
    assert findings and all(type(finding.says) is Sentence for finding in findings)


def test_a_comparison_of_runs_is_in_sentences(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    first = run_of_small_study("cross_pollination")
    shutil.copytree(first, tmp_path / "second")
    findings = compare_runs([first, tmp_path / "second"])
    assert findings and all(type(finding.says) is Sentence for finding in findings)
