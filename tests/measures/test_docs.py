"""The pages on measures and on R: their code runs and uses existing columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.seats.questionnaire import CheckRow
from folkmoot.measures import (
    agreement,
    bands,
    clusters,
    diagnostics,
    diversity,
    dri,
    persona_variance,
    position,
    reply_checks,
    retest,
)
from folkmoot.measures.inference import (
    clustered,
    differences,
    paired_votes,
    power,
    proportions,
    regression,
    simultaneous,
)
from tests.fenced import find_blocks, run_python

DOCS = Path(__file__).parents[2] / "docs"
MODULES = {
    m.__name__.rsplit(".", maxsplit=1)[-1]: m
    for m in (
        agreement, bands, clustered, clusters, diagnostics, differences, diversity, dri,
        paired_votes, persona_variance, position, power, proportions, regression, retest,
        reply_checks, simultaneous,
    )
}  # fmt: skip


def test_the_python_code_of_the_page_prints_the_stated_output(capsys):
    assert run_python("docs/measures.md") > 0
    printed = capsys.readouterr().out
    assert "10%, 5.5% to 17.4%" in printed
    assert "32 % to 91 % in people (top-ranked of five to nine policies" in printed


def test_all_functions_in_the_table_exist():
    text = (DOCS / "measures.md").read_text("utf-8")
    text = text[text.index("| question | module |") : text.index("## Human benchmarks")]
    rows = [line.split("|")[2:4] for line in text.splitlines() if line.startswith("| ")]
    function_count = 0
    for modules, functions in rows[2:]:
        listed_modules = [MODULES[name] for name in re.findall(r"`(\w+)`", modules)]
        for function in re.findall(r"`(\w+)`", functions):
            assert any(hasattr(module, function) for module in listed_modules), function
            function_count += 1
    assert function_count > 40


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    settings = {
        "pilot_id": "for_r",
        "topic": {"description": "One purpose.", "options": ["Parks", "Jobs", "Streets"]},
        "participants_per_condition": 3,
        "revote": True,
        "personas": {"source": "quota"},
    }
    run_folder = tmp_path_factory.mktemp("r") / "run"
    return folkmoot.run("cross_pollination", settings, model="synthetic", out=run_folder)


def test_the_r_script_uses_existing_tables_and_columns(finished_run):
    code = "\n".join(find_blocks((DOCS / "r.md").read_text("utf-8"), "r"))
    tables = set(re.findall(r'read_table\("(\w+)"\)', code))
    assert tables == {"participants", "checks"}
    assert set(re.findall(r"checks\$(\w+)", code)) == {"part", "outcome"} <= {*CheckRow.columns()}
    columns = set(finished_run.table("participants").columns)
    used_columns = set(re.findall(r"(?:participants|voted_twice)\$(\w+)", code))
    used_columns |= set(
        re.findall(r"\b((?:initial|final)_\w+|demographic_\w+|status|position_\w+)\b", code)
    )
    assert {"condition", "position_changed", "status", "demographic_age"} <= used_columns
    assert used_columns <= columns
    for condition in re.findall(r'"((?:simple|clarified)_\w+|acp)"', code):
        assert condition in set(finished_run.table("participants")["condition"])


def test_the_csv_has_the_truth_values_that_the_script_reads(finished_run):
    csv = (Path(finished_run.path) / "tables" / "participants.csv").read_text("utf-8")
    assert csv.splitlines()[0].startswith("participant_id,condition,status,")
    assert re.search(r",(true|false),", csv)  # toupper + as.logical in the script
