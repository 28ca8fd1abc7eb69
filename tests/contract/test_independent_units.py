"""Every study type names what is independent in its findings, and few of it are an illustration."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import folkmoot
from folkmoot.report.document.html import write_report
from folkmoot.storage.findings import Finding, IntervalChart
from tests.contract.small import EXAMPLES, SMALL, small_study
from tests.sweeps import sample_daily

UNITS = {
    "cross_pollination": "participant given these summaries",
    "focus_group": "group",
    "negotiation": "group",
    "town_hall": "set",
    "workbook": "session",
}
FOUR_PARTICIPANTS = (
    "participants_per_condition=2",
    "conditions=[simple_voting, clarified_passive]",
    "extra_conditions=[]",
)
EXAMPLE = [*(f"{name}.yaml" for name in UNITS if name != "workbook"), "public_goods.xlsx"]
# What only an interval or a test says: "(−0.2 to +0.4", "p = .03", "significant".
SURE_WORDS = re.compile(
    r"\([−+]?[\d.]+ to [−+]?[\d.]+|\bp [<=]|significant|chance could|interval \S*\d"
)


def find_sure_words(finding: Finding) -> list[str]:
    """Find traces of an interval or a test in the statement, chart and notes of a finding."""
    chart = finding.chart
    drawn = chart.items if isinstance(chart, IntervalChart) else ()
    said = " ".join((finding.says, *finding.notes))
    return [*SURE_WORDS.findall(said), *(label for label, _, low, high in drawn if low < high)]


@pytest.mark.parametrize(
    "study", sample_daily(UNITS, daily=("focus_group", "town_hall"), part="truths")
)
def test_few_units_are_an_illustration_in_every_study(
    study: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    """Two groups, one set, two sessions, four people: no interval, no test, in no words."""
    out = tmp_path / "run"
    if study == "cross_pollination":
        path = small_study(study, tmp_path)
        done = folkmoot.run(path, model="synthetic", out=out, overrides=FOUR_PARTICIPANTS)
    else:
        done = folkmoot.load(shutil.copytree(run_of_small_study(study), out))
    findings = done.findings
    few = [f for f in findings if f.illustrates]
    # The workbook of the example has sessions enough.
    assert few or study == "workbook"
    assert {f.unit for f in few} <= {
        UNITS[study],
        "participant",
        "text",
        "group of a type",
    }
    for finding in few:
        assert finding.says.startswith(f"An illustration, not evidence: {finding.counted}.")
        assert find_sure_words(finding) == [], finding.key
    page = write_report(done.folder).read_text("utf-8")
    for finding in findings:
        assert finding.independent in page


@pytest.mark.nightly(part="scale")
@pytest.mark.parametrize("example", EXAMPLE)
def test_every_finding_of_every_example_names_its_unit(example: str, tmp_path: Path) -> None:
    done = folkmoot.run(EXAMPLES / example, model="synthetic", out=tmp_path / "run")
    findings = done.findings
    assert UNITS[Path(example).stem.replace("public_goods", "workbook")] in {
        f.unit for f in findings
    }
    for finding in findings:
        assert not finding.illustrates or find_sure_words(finding) == [], finding.key


def test_the_small_studies_are_those_that_are_tried() -> None:
    assert {*SMALL, "workbook"} == set(UNITS)
