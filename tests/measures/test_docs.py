"""The pages on measures and on R: code runs, and names only columns that a run has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import folkmoot
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
        agreement, bands, clustered, clusters, diagnostics, diversity, dri,
        paired_votes, persona_variance, position, power, proportions, regression, retest,
        reply_checks, simultaneous,
    )
}  # fmt: skip


def test_python_of_the_page_runs_and_prints_what_it_says(capsys):
    assert run_python("docs/measures.md") > 0
    printed = capsys.readouterr().out
    assert "10%, 5.5% to 17.4%" in printed
    assert "32 % to 91 % in people (top-ranked of five to nine policies" in printed


def test_every_function_in_the_table_exists():
    text = (DOCS / "measures.md").read_text("utf-8")
    text = text[text.index("| question | module |") : text.index("## Human bands")]
    rows = [line.split("|")[2:4] for line in text.splitlines() if line.startswith("| ")]
    named = 0
    for modules, functions in rows[2:]:
        homes = [MODULES[m] for m in re.findall(r"`(\w+)`", modules)]
        for function in re.findall(r"`(\w+)`", functions):
            assert any(hasattr(home, function) for home in homes), function
            named += 1
    assert named > 40


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {
        "pilot_id": "for_r",
        "topic": {"description": "One purpose.", "options": ["Parks", "Jobs", "Streets"]},
        "participants_per_condition": 3,
        "revote": True,
        "personas": {"source": "quota"},
    }
    out = tmp_path_factory.mktemp("r") / "run"
    return folkmoot.run("cross_pollination", settings, model="synthetic", out=out)


def test_r_script_names_only_columns_and_tables_that_a_run_has(run):
    code = "\n".join(find_blocks((DOCS / "r.md").read_text("utf-8"), "r"))
    tables = set(re.findall(r'read_table\("(\w+)"\)', code))
    assert tables == {"participants"}
    columns = set(run.table("participants").columns)
    asked = set(re.findall(r"(?:participants|voted_twice)\$(\w+)", code))
    asked |= set(
        re.findall(r"\b((?:initial|final)_\w+|demographic_\w+|status|position_\w+)\b", code)
    )
    assert {"condition", "position_changed", "status", "demographic_age"} <= asked
    assert asked <= columns
    for arm in re.findall(r'"((?:simple|clarified)_\w+|acp)"', code):
        assert arm in set(run.table("participants")["condition"])


def test_the_csv_has_the_words_that_the_script_reads(run):
    csv = (Path(run.path) / "tables" / "participants.csv").read_text("utf-8")
    assert csv.splitlines()[0].startswith("participant_id,condition,status,")
    assert re.search(r",(true|false),", csv)  # toupper + as.logical in the script
