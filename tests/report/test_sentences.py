"""Every sentence on a result that a page, a terminal or a comparison prints is made by `word`."""

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
# An interval, a p-value, a verdict, or why there is none. Nothing else in a finding concludes.
RESULT = re.compile(
    r"\([^)]*\d to |\bp [=<]|no interval|\b(?:supported|contradicted|ruled out|tested|"
    r"passed|not known|margin)\b",
    re.IGNORECASE,
)


def made_elsewhere(findings: Iterable[Finding]) -> list[str]:
    """The statements on a result that are no `Sentence`."""
    return [f.says for f in findings if RESULT.search(f.says) and type(f.says) is not Sentence]


def test_findings_and_card_of_each_study_type(finished: RunFolder) -> None:
    findings = compute_findings(find_study_of_run(finished), finished)
    assert made_elsewhere(findings) == []
    front = build_document(finished).front
    assert front is not None
    for row in front.card:
        assert type(row.figures) is Sentence and type(row.consequence) is Sentence
    assert all(type(contrast.answer) is Sentence for contrast in front.contrasts)


@pytest.mark.parametrize("file", FILES)
def test_power_of_each_example(file: str) -> None:
    findings = power_of(load_study_file(EXAMPLES / file))
    assert findings and all(type(finding.says) is Sentence for finding in findings)


def test_a_comparison_of_runs(run_of_small_study: Callable[[str], Path], tmp_path: Path) -> None:
    first = run_of_small_study("cross_pollination")
    shutil.copytree(first, tmp_path / "second")
    findings = compare_runs([first, tmp_path / "second"])
    assert findings and all(type(finding.says) is Sentence for finding in findings)
