"""People of a file sit in one group each, and runs of earlier versions keep their people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import ReplyReplacement, fork_run
from folkmoot.engine.run.verify import verify_run
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import participants
from folkmoot.studies.focus_group.findings import compute_findings
from folkmoot.studies.focus_group.participants import choose_rows
from tests.studies.focus_group.test_focus_group_run import reply_plainly

SHARED = "in several groups. Intervals and tests take groups as independent"


def write_study(folder: Path, people: int, groups: int, seats: int = 3) -> Path:
    """Write a study file and a file of so many people with different names."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{chr(65 + number)}nn Lee,{20 + number}" for number in range(people)]
    (folder / "real.csv").write_text("\n".join(["name,age", *rows]) + "\n")
    path = folder / "study.yaml"
    path.write_text(
        "study: focus_group\nproduct_concept: A bar\ncategory: snacks\npersonas: real.csv\n"
        f"num_personas: {seats}\nmax_responses_per_question: 3\nreplications: {groups}\n"
        "questions_per_phase: 1\nphases: [exploration]\n"
    )
    return path


def run_study(path: Path, **options: Any) -> RunFolder:
    options.setdefault("provider", ScriptedProvider(reply_plainly))
    return folkmoot.run(path, out=path.parent / "run", **options).folder


def check_study(path: Path) -> str:
    result = CliRunner().invoke(app, ["check", str(path), "--model", "synthetic"])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def count_groups_of_each(run: RunFolder) -> list[int]:
    groups = run.read_table("personas").group_by("persona_id").n_unique()
    return sorted(groups["group"])


def test_nobody_sits_in_two_groups_if_the_file_has_enough_people(tmp_path: Path) -> None:
    run = run_study(write_study(tmp_path, people=15, groups=5))
    assert count_groups_of_each(run) == [1] * 15
    assert not any(SHARED in note for finding in compute_findings(run) for note in finding.notes)
    assert SHARED not in check_study(tmp_path / "study.yaml")


def test_people_in_several_groups_are_counted_in_check_and_report(tmp_path: Path) -> None:
    path = write_study(tmp_path, people=13, groups=5)
    run = run_study(path)
    # As few people as possible sit twice.
    assert count_groups_of_each(run) == [1] * 11 + [2] * 2
    headlines = [finding for finding in compute_findings(run) if finding.headline]
    assert headlines
    for finding in headlines:
        assert any(f"2 people sit {SHARED}" in note for note in finding.notes)
    assert f"2 people sit {SHARED}" in check_study(path)


@pytest.mark.parametrize("seed", range(30))
def test_people_with_one_first_name_are_spread_over_the_groups(seed: int) -> None:
    # Only if each group has an Ann do the eight people fill two groups of four.
    names = ["Ann", "Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus"]
    rng, uses = np.random.default_rng(seed), dict[int, int]()
    for groups_left in (2, 1):
        chosen = choose_rows(names, 4, rng, uses, groups_left)
        assert len({names[number] for number in chosen}) == 4
        uses |= dict.fromkeys(chosen, 1)
    assert len(uses) == 8


def test_a_run_of_an_earlier_version_keeps_the_people_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    calls = 0

    def stop_half_way(request: ModelRequest, address: str) -> str:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise Stop
        return reply_plainly(request, address)

    path = write_study(tmp_path, people=15, groups=5)
    recruit = participants.recruit_all_groups
    # An earlier version drew each group from all people.
    with monkeypatch.context() as earlier:
        earlier.setattr(
            participants,
            "recruit_all_groups",
            lambda *parts, **options: recruit(*parts, **{**options, "group_by_group": True}),
        )
        with pytest.raises(Stop):
            run_study(path, provider=ScriptedProvider(stop_half_way))
    before = RunFolder(tmp_path / "run").plan["sealed"]["recruits"]
    run = run_study(path)
    assert run.plan["sealed"]["recruits"] == before
    shared = sum(number > 1 for number in count_groups_of_each(run))
    assert shared > 1
    headlines = [finding for finding in compute_findings(run) if finding.headline]
    assert all(any(f"{shared} people sit" in note for note in each.notes) for each in headlines)
    assert not verify_run(run).differences
    last = run.read_table("utterances").filter(pl.col("turn").is_not_null())["address"][-1]
    options = RunOptions(custom_provider=ScriptedProvider(reply_plainly), out=tmp_path / "fork")
    fork = fork_run(run, last, ReplyReplacement(say="I would not buy it."), options)
    assert fork.plan["sealed"]["recruits"] == before
