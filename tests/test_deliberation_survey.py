"""The deliberation survey of `examples/`, and its measure on real deliberations."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest

import folkmoot
from folkmoot.measures.dri import consistency, group_dri
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

EXAMPLE = Path(__file__).parents[1] / "examples" / "deliberation_survey.yaml"
SMALL = {"groups": 2, "group_size": 4, "rounds": 1}


def test_everybody_answers_every_item_twice_and_hears_the_group_in_between(tmp_path: Path) -> None:
    heard: dict[str, int] = {}

    def answer(request: ModelRequest, address: str) -> str:
        text = " ".join(m.content for m in request.messages)
        heard[address] = text.count("the harbour matters to")
        if "/round1/" in address:
            return f"To me the harbour matters to {address.split('/')[2]}."
        if "from 1 (not at all)" in request.messages[-1].content:
            return "5"
        lines = request.messages[-1].content.splitlines()
        return next(line for line in lines if line.startswith("- ")).removeprefix("- ")

    overrides = tuple(f"{k}={v}" for k, v in SMALL.items())
    run = folkmoot.run(
        EXAMPLE,
        out=tmp_path / "run",
        trust=True,
        provider=ScriptedProvider(answer),
        overrides=overrides,
    )
    survey = run.table("survey")
    assert survey.height == 2 * 8 * (6 + 4)
    assert survey["value"].null_count() == 0
    assert {n for a, n in heard.items() if "/before/" in a} == {0}
    assert {n for a, n in heard.items() if "/after/" in a} == {4}
    ranks = survey.filter(wave="before", participant_id=survey["participant_id"][0])
    assert sorted(v for i, v in ranks.select("item", "value").iter_rows() if i[0] == "P") == [
        *(1, 2, 3, 4)
    ]


def test_the_example_runs_and_gives_an_index_for_each_group_and_wave(tmp_path: Path) -> None:
    overrides = tuple(f"{k}={v}" for k, v in SMALL.items())
    run = folkmoot.run(
        EXAMPLE, model="synthetic", out=tmp_path / "run", trust=True, overrides=overrides
    )
    finding = run.findings[0]
    assert len(finding.grid.rows) == 2
    assert finding.says.startswith("An illustration, not evidence: 2 groups.")
    assert all(-3 <= x <= 1 for row in finding.grid.rows for x in row[1:] if not math.isnan(x))


@pytest.mark.skipif(
    "FOLKMOOT_DELIBERATIONS" not in os.environ,
    reason="set FOLKMOOT_DELIBERATIONS to a folder with human_pre_post.csv and dri_cases.csv",
)
def test_real_deliberations_have_the_published_index() -> None:
    folder = Path(os.environ["FOLKMOOT_DELIBERATIONS"])
    with (folder / "human_pre_post.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    with (folder / "dri_cases.csv").open(newline="", encoding="utf-8") as lines:
        known = list(csv.DictReader(lines))
    assert len(known) == 12

    def part(own: list[dict[str, str]], letter: str) -> np.ndarray:
        items = [k for k in rows[0] if k[0] == letter and k[1:].isdigit()]
        return np.array(
            [[float(r[k]) if r[k] not in ("", "NA") else math.nan for k in items] for r in own]
        )

    for case in known:
        for stage, column in (("1", "pre_adj"), ("2", "post_adj")):
            own = [r for r in rows if r["case"] == case["case"] and r["stage_id"] == stage]
            found = group_dri(consistency(part(own, "C"), part(own, "P")))
            assert found == pytest.approx(float(case[column]), abs=1e-9), case["case"]
