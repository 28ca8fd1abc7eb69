"""Hypotheses stated beforehand: sealed, tested first, and never supported by too little."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import folkmoot
from folkmoot.engine.hypotheses import Hypothesis, hypotheses_finding, verdict_of
from folkmoot.engine.strict_answers import COMPARED, COUNTED
from folkmoot.engine.study_file import load_study_file
from folkmoot.errors import DriftError, InputError
from folkmoot.measures.estimates import Estimate
from folkmoot.storage.recording import frame
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import write_table
from tests.contract.small import small_study

MORE = {"measure": "position_changed", "contrast": ["acp", "simple_voting"], "direction": "greater"}


def stated(**changes: object) -> Hypothesis:
    return Hypothesis.model_validate({**MORE, **changes})


def run_of(folder: Path, rows: list[dict], table: str = "participants") -> RunFolder:
    (folder / "tables").mkdir(parents=True)
    write_table(folder / "tables", table, frame(rows))
    (folder / "study.yaml").write_text("study: x\n")
    return RunFolder(folder)


def votes(acp: int, simple: int, n: int = 100) -> list[dict]:
    return [
        {"participant_id": f"{arm}{i}", "condition": arm, "position_changed": i < moved}
        for arm, moved in (("acp", acp), ("simple_voting", simple))
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("acp", "simple", "changes", "verdict"),
    [
        (40, 10, {}, "supported"),
        (40, 10, {"smallest": 0.1}, "supported"),
        (40, 10, {"smallest": 0.25}, "undecided"),
        (14, 10, {}, "undecided"),
        (10, 40, {}, "contradicted"),
        (10, 40, {"direction": "less"}, "supported"),
        (40, 10, {"direction": "less"}, "contradicted"),
        (10, 10, {"smallest": 0.2}, "contradicted"),
        (40, 10, {"direction": "different"}, "supported"),
        (12, 10, {"direction": "different"}, "undecided"),
        (12, 10, {"direction": "equivalent", "smallest": 0.15}, "supported"),
        (12, 10, {"direction": "equivalent", "smallest": 0.05}, "undecided"),
        (40, 10, {"direction": "equivalent", "smallest": 0.05}, "contradicted"),
    ],
)
def test_verdicts(
    acp: int, simple: int, changes: dict[str, object], verdict: str, tmp_path: Path
) -> None:
    found = hypotheses_finding(run_of(tmp_path / "run", votes(acp, simple)), [stated(**changes)])
    assert found.grid.rows[0][1] == verdict
    assert verdict in found.says


def test_a_few_conversations_are_an_illustration_however_many_people_were_in_them(
    tmp_path: Path,
) -> None:
    rows = [
        {"set": s, "level": level, "heard": 0.9 if level == "4" else 0.1, "id": i}
        for s in range(4)
        for level in ("1", "4")
        for i in range(50)
    ]
    h = Hypothesis(measure="heard", contrast=("4", "1"), direction="greater")
    found = hypotheses_finding(run_of(tmp_path / "four", rows, "discussions"), [h])
    assert "4 independent units are an illustration" in found.says
    assert found.grid.rows[0][3:6] == (None, None, None)
    # The same difference in eight sets, with some variation between them, is tested by sets.
    more = [
        {**r, "set": s, "heard": r["heard"] + 0.01 * s * (r["level"] == "4")}
        for s in range(8)
        for r in rows
    ]
    found = hypotheses_finding(run_of(tmp_path / "eight", more, "discussions"), [h])
    assert found.grid.rows[0][1] == "supported"
    assert found.grid.rows[0][6] == 8


def test_null_hypotheses_are_rarely_supported_together(tmp_path: Path) -> None:
    """Five null measures in each of 120 runs: some one supported in at most 5 % of runs."""
    rng = np.random.default_rng(11)
    alpha = 0.05 / 5
    wrong = 0
    for _ in range(120):
        verdicts = []
        for _ in range(5):
            a, b = rng.binomial(1, 0.3, 60), rng.binomial(1, 0.3, 60)
            from folkmoot.measures.proportions import newcombe

            e = newcombe(int(a.sum()), 60, int(b.sum()), 60, 1 - alpha)
            verdicts.append(verdict_of(stated(direction="different"), e, alpha))
        wrong += "supported" in verdicts
    assert wrong <= 13  # with a true rate of 5 % more happens in 0.5 % of cases


def test_an_exact_test_over_few_units_must_agree_with_the_interval() -> None:
    sure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.03)
    unsure = Estimate(0.3, 0.1, 0.5, 6, 6, p=0.06)
    assert verdict_of(stated(), sure, 0.05) == "supported"
    assert verdict_of(stated(), unsure, 0.05) == "undecided"
    nothing = Estimate(0.3, float("nan"), float("nan"), 1)
    assert verdict_of(stated(), nothing, 0.05) == "undecided"


def test_what_cannot_be_tested_says_why(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", votes(40, 10))
    wrong = [stated(measure="warmth"), stated(contrast=["acp", "control"])]
    found = hypotheses_finding(run, wrong)
    assert "no table has warmth and arms" in found.says
    assert "no condition control; there are acp, simple_voting" in found.says
    assert found.chart is None


def test_what_is_unknown_in_an_arm_is_said_to_be_unknown(tmp_path: Path) -> None:
    rows = [{**r, "delay": None if r["condition"] == "acp" else 1} for r in votes(40, 10)]
    found = hypotheses_finding(run_of(tmp_path / "run", rows), [stated(measure="delay")])
    assert "delay is unknown in acp" in found.says
    assert "no condition" not in found.says


def test_a_difference_of_shares_in_points_is_not_read_as_a_hundred_times_as_large(
    tmp_path: Path,
) -> None:
    found = hypotheses_finding(run_of(tmp_path / "run", votes(40, 10)), [stated(smallest=5)])
    assert "write smallest: 0.05 for five points" in found.says
    assert "contradicted" not in found.says


def test_people_who_answer_often_are_one_unit_each(tmp_path: Path) -> None:
    """Six people who say the same twenty times are six people."""
    rows = [
        {"participant_id": f"{arm}{i}", "condition": arm, "round": r, "heat": i + (arm == "a")}
        for arm in "ab"
        for i in range(3)
        for r in range(20)
    ]
    h = Hypothesis(measure="heat", contrast=("a", "b"), direction="greater")
    found = hypotheses_finding(run_of(tmp_path / "run", rows, "rounds"), [h])
    assert found.grid.rows[0][1] == "undecided"
    assert found.grid.rows[0][6] == 6
    # The same six people in both arms, always one higher in the first, are pairs.
    same = [
        {"participant_id": f"p{i}", "condition": arm, "round": r, "heat": i + (arm == "a") * i}
        for arm in "ab"
        for i in range(6)
        for r in range(20)
    ]
    found = hypotheses_finding(run_of(tmp_path / "pairs", same, "rounds"), [h])
    assert found.grid.rows[0][6] == 6


def test_hypotheses_are_sealed_and_everything_else_is_called_exploratory(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**settings, "hypotheses": [MORE]}), "utf-8")
    done = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    first, *others = done.findings()
    assert first.key == "hypotheses"
    assert first.headline
    assert others
    about_answers = (COUNTED, COMPARED)  # how answers were had explores nothing
    assert all(f.title.endswith("(exploratory)") for f in others if f.key not in about_answers)
    plan = json.loads((done.path / "plan.json").read_text("utf-8"))
    assert "acp" in json.dumps(plan["sealed"]["design"]["data"]["settings"]["hypotheses"])
    path.write_text(
        yaml.safe_dump({**settings, "hypotheses": [{**MORE, "direction": "less"}]}), "utf-8"
    )
    with pytest.raises(DriftError, match="hypotheses"):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"measure": "position_chnged"}, "did you mean position_changed"),
        ({"measure": "participants.warmth"}, "no column warmth in the table participants"),
        ({"direction": "upwards"}, "must be one of"),
        ({"contrast": ["acp", "acp"]}, "two different arms"),
        ({"direction": "equivalent"}, "needs a margin"),
        ({"smallest": -1}, "at least 0"),
    ],
)
def test_mistakes_are_named_by_line(changes: dict, says: str, tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**settings, "hypotheses": [{**MORE, **changes}]}), "utf-8")
    with pytest.raises(InputError) as error:
        load_study_file(path)
    assert says in str(error.value)
    assert "hypotheses" in str(error.value)
