"""The deliberation survey of `examples/`, and its measure on real deliberations."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest

import folkmoot
from folkmoot.errors import RunPausedError
from folkmoot.measures.dri import consistency, group_dri
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

EXAMPLE = Path(__file__).parents[1] / "examples" / "deliberation_survey.yaml"
SMALL = {"groups": 2, "group_size": 4, "rounds": 1}


def test_participants_answer_all_items_before_and_after_the_group_talk(tmp_path: Path) -> None:
    quoted_counts: dict[str, int] = {}

    def answer(request: ModelRequest, address: str) -> str:
        text = " ".join(message.content for message in request.messages)
        quoted_counts[address] = text.count("the harbour matters to")
        if "/round1/" in address:
            return f"To me the harbour matters to {address.split('/')[2]}."
        if "from 1 (not at all)" in request.messages[-1].content:
            return "5"
        prompt_lines = request.messages[-1].content.splitlines()
        return next(line for line in prompt_lines if line.startswith("- ")).removeprefix("- ")

    overrides = tuple(f"{key}={value}" for key, value in SMALL.items())
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
    assert {quoted_count for call, quoted_count in quoted_counts.items() if "/before/" in call} == {
        0
    }
    assert {quoted_count for call, quoted_count in quoted_counts.items() if "/after/" in call} == {
        4
    }
    ranks = survey.filter(wave="before", participant_id=survey["participant_id"][0])
    assert sorted(
        value for item, value in ranks.select("item", "value").iter_rows() if item[0] == "P"
    ) == [*(1, 2, 3, 4)]


def test_the_example_runs_and_gives_an_index_for_each_group_and_wave(tmp_path: Path) -> None:
    overrides = tuple(f"{key}={value}" for key, value in SMALL.items())
    run = folkmoot.run(
        EXAMPLE, model="synthetic", out=tmp_path / "run", trust=True, overrides=overrides
    )
    finding = run.findings[0]
    assert len(finding.grid.rows) == 2
    assert finding.says.startswith("An illustration, not evidence: 2 groups.")
    assert all(-3 <= x <= 1 for row in finding.grid.rows for x in row[1:] if not math.isnan(x))


def test_a_group_without_an_index_counts_neither_as_higher_nor_as_lower(tmp_path: Path) -> None:
    overrides = ("groups=2", "group_size=3", "rounds=1", "budget_calls=60")
    with pytest.raises(RunPausedError):
        folkmoot.run(
            EXAMPLE, model="synthetic", out=tmp_path / "run", trust=True, overrides=overrides
        )
    finding = folkmoot.load(tmp_path / "run").findings[0]
    assert "higher after than before in 0 of 0 groups" in finding.says
    assert "It is not known before and after in 2 more." in finding.says


@pytest.mark.skipif(
    "FOLKMOOT_DELIBERATIONS" not in os.environ,
    reason="set FOLKMOOT_DELIBERATIONS to a folder with human_pre_post.csv and dri_cases.csv",
)
def test_real_deliberations_have_the_published_index() -> None:
    folder = Path(os.environ["FOLKMOOT_DELIBERATIONS"])
    with (folder / "human_pre_post.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    with (folder / "dri_cases.csv").open(newline="", encoding="utf-8") as lines:
        published = list(csv.DictReader(lines))
    assert len(published) == 12

    def answers_of(participant_rows: list[dict[str, str]], letter: str) -> np.ndarray:
        items = [
            item_name for item_name in rows[0] if item_name[0] == letter and item_name[1:].isdigit()
        ]
        return np.array(
            [
                [
                    float(participant_row[item_name])
                    if participant_row[item_name] not in ("", "NA")
                    else math.nan
                    for item_name in items
                ]
                for participant_row in participant_rows
            ]
        )

    for deliberation in published:
        for stage, column in (("1", "pre_adj"), ("2", "post_adj")):
            participant_rows = [
                participant_row
                for participant_row in rows
                if participant_row["case"] == deliberation["case"]
                and participant_row["stage_id"] == stage
            ]
            index = group_dri(
                consistency(answers_of(participant_rows, "C"), answers_of(participant_rows, "P"))
            )
            assert index == pytest.approx(float(deliberation[column]), abs=1e-9), deliberation[
                "case"
            ]
