"""Runs side by side: rates, effects, votes, measures, and answers by people."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from folkmoot.errors import InputError, StorageError
from folkmoot.measures.estimates import p_value
from folkmoot.measures.proportions import holm
from folkmoot.report.compare import compare
from folkmoot.storage.recording import frame
from folkmoot.storage.tables import write_table

OPTIONS = ("parks", "jobs", "care")


def write_run(folder: Path, changed: dict[str, tuple[int, int]], **config: object) -> Path:
    """A run folder with a participants table: condition → (changed, n)."""
    rows = []
    for condition, (moved, n) in changed.items():
        for i in range(n):
            first = OPTIONS[i % 3]
            last = OPTIONS[(i + 1) % 3] if i < moved else first
            rows.append(
                {
                    "participant_id": f"{condition}{i}",
                    "condition": condition,
                    "status": "complete",
                    "initial_choice": first,
                    "final_choice": last,
                    "position_changed": first != last,
                    "exchanges": i % 4 + (2 if config.get("model") == "b" else 0),
                }
            )
    (folder / "tables").mkdir(parents=True)
    write_table(folder / "tables", "participants", frame(rows))
    settings = {"study": "cross_pollination", "model": "a", **config}
    (folder / "study.yaml").write_text(yaml.safe_dump(settings))
    return folder


def found(runs: list[Path]) -> dict:
    return {f.key: f for f in compare(runs)}


@pytest.fixture
def base(tmp_path):
    return write_run(tmp_path / "first", {"acp": (60, 150), "simple_voting": (12, 150)})


def test_a_different_model_is_named_and_its_effect_measured(base, tmp_path):
    other = write_run(
        tmp_path / "second", {"acp": (15, 150), "simple_voting": (12, 150)}, model="b"
    )
    result = found([base, other])
    assert "differ in model." in result["designs"].says
    says = result["compare_change"].says
    assert "Simple voting: second and first do not differ significantly (0 points" in says
    assert "Adversarial (ACP): in second fewer change than in first (−30 points, −39 to −20" in says
    effects = result["compare_effects"]
    assert (
        "(ACP): the effects differ (+32 points in first, +2 points in second; adjusted p < .001)"
        in effects.says
    )
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    assert all((r["low_rate"] <= 0 <= r["high_rate"]) == (r["p"] >= 0.05) for r in rows)
    # One family: each effect in each run, and the difference between the runs.
    assert [r["holm_p"] for r in rows] == pytest.approx(holm([r["p"] for r in rows]))
    assert [r[0] for r in effects.grid.rows] == ["Adversarial (ACP)"] * 3
    assert "no difference from first is statistically significant" in result["compare_votes"].says
    assert "exchanges in Adversarial (ACP), second +2" in result["compare_figures"].says


def test_effects_that_differ_by_themselves_alone_are_not_said_to_differ(tmp_path):
    floor = {"simple_voting": (20, 150)}
    first = write_run(tmp_path / "first", {**floor, "acp": (45, 150), "passive": (30, 150)})
    second = write_run(tmp_path / "second", {**floor, "acp": (26, 150), "passive": (30, 150)})
    effects = found([first, second])["compare_effects"]
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    (gap,) = (
        r for r in rows if r["run"] == "second − first" and r["condition"] == "Adversarial (ACP)"
    )
    assert gap["high_rate"] < 0 and gap["p"] < 0.05 < gap["holm_p"]
    said = "the effects do not differ significantly (+17 points in first, +4 points in second"
    tested = f"{p_value(gap['p'])} by itself, adjusted {p_value(gap['holm_p'])}"
    assert f"{said}; {tested})" in effects.says


def test_the_same_run_twice_shows_nothing(base):
    result = found([base, base])
    assert "settings that matter are the same" in result["designs"].says
    assert "do not differ significantly" in result["compare_change"].says
    assert "in the same order" in result["compare_effects"].says
    columns = result["compare_change"].grid.columns
    runs = {r[columns.index("run")] for r in result["compare_change"].grid.rows}
    assert {"first", "first (2)"} <= runs


def test_large_equal_runs_are_called_equivalent(tmp_path):
    runs = [
        write_run(tmp_path / name, {"acp": (800, 4_000), "simple_voting": (200, 4_000)})
        for name in ("one", "two")
    ]
    assert "are equivalent" in found(runs)["compare_change"].says


def test_other_opinions_at_the_start_are_said(base, tmp_path):
    lopsided = tmp_path / "lopsided"
    write_run(lopsided, {"acp": (60, 150)})
    data = pl.read_parquet(lopsided / "tables" / "participants.parquet")
    skewed = data.with_columns(pl.lit("parks").alias("initial_choice"))
    write_table(lopsided / "tables", "participants", skewed)
    result = found([base, lopsided])
    assert "initial votes of lopsided" in result["compare_votes"].says
    grid = result["compare_votes"].grid
    at, adjusted = grid.columns.index("p"), grid.columns.index("holm_p")
    initial, final = grid.rows
    assert initial[adjusted] == pytest.approx(2 * initial[at])  # the smaller of two
    assert final[adjusted] == pytest.approx(max(final[at], initial[adjusted]))
    assert "different room for change" in result["compare_votes"].says


def test_people_without_conditions_stand_beside_every_condition(base, tmp_path):
    people = tmp_path / "survey.csv"
    rows = ["initial_choice,final_choice"] + ["parks,jobs"] * 55 + ["jobs,jobs"] * 45
    people.write_text("\n".join(rows))
    result = found([base, people])
    assert "survey: answers by people." in result["designs"].says
    assert (
        "Adversarial (ACP): in survey more change than in first (+15 points"
        in result["compare_change"].says
    )
    assert "Simple voting: in survey more change" in result["compare_change"].says
    assert "compare_people" not in result
    reverse = found([people, base])
    assert "Simple voting: in first fewer change" in reverse["compare_change"].says


def test_an_empty_column_of_changes_is_read_from_the_choices(base, tmp_path):
    people = tmp_path / "survey.csv"
    people.write_text(
        "condition,initial_choice,final_choice,position_changed\n"
        "simple_voting,a,b,\nsimple_voting,a,a,\nsimple_voting,b,b,\nsimple_voting,b,a,\n"
    )
    rates = found([base, people])["compare_change"]
    assert any(r[1] == "survey" and r[3] == 0.5 for r in rates.grid.rows)


def test_human_file_with_strange_values(base, tmp_path):
    people = tmp_path / "survey.csv"
    people.write_text("position_changed\nyes\nperhaps\n")
    with pytest.raises(InputError, match="perhaps"):
        compare([base, people])
    people.write_text("position_changed\nyes\nno\n0\n1\n")
    rates = found([base, people])["compare_change"]
    assert any(r[1] == "survey" and r[3] == 0.5 for r in rates.grid.rows)


def test_different_study_types(base, tmp_path):
    hall = tmp_path / "hall"
    (hall / "tables").mkdir(parents=True)
    rows = [
        {"set": s, "level": lv, "inclusivity": s + (lv == "4")} for s in range(6) for lv in "14"
    ]
    write_table(hall / "tables", "discussions", frame(rows))
    (hall / "study.yaml").write_text("study: town_hall\n")
    result = found([base, hall])
    assert "different study types (cross_pollination, town_hall)" in result["designs"].says
    assert "compare_nothing" in result


def test_measures_are_clustered_by_conversation(tmp_path):
    def hall(name: str, plus: float) -> Path:
        rows = [
            {"group": g, "condition": "C1", "satisfaction": g % 3 + plus}
            for g in range(8)
            for _ in range(5)
        ]
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        write_table(folder / "tables", "satisfaction", frame(rows))
        (folder / "study.yaml").write_text("study: negotiation\n")
        return folder

    result = found([hall("one", 0.0), hall("two", 1.0)])
    grid = result["compare_figures"].grid
    row = dict(zip(grid.columns, grid.rows[0], strict=True))
    assert row["difference"] == pytest.approx(1.0)
    # 16 clusters, not 80 rows: the interval of group means g % 3 reaches beyond ±0.8.
    assert row["high"] - row["low"] > 1.6


def test_one_run_is_no_comparison(base, tmp_path):
    with pytest.raises(InputError, match="two or more"):
        compare([base])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "study.yaml").write_text("study: x\n")
    with pytest.raises(StorageError, match="no tables yet; finish the run"):
        compare([base, empty])


def sealed(folder: Path, people: str) -> Path:
    """The run folder with a plan that seals who takes part."""
    parts = {name: {"hash": f"{name} {people}", "data": {}} for name in ("assignment", "personas")}
    parts["design"] = {"hash": folder.name, "data": {}}
    (folder / "plan.json").write_text(json.dumps({"started_at": "", "sealed": parts}))
    return folder


def test_runs_of_the_same_people_are_compared_person_by_person(tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    first = sealed(write_run(tmp_path / "first", counts), "seed 1")
    more = {"acp": (75, 150), "simple_voting": (12, 150)}
    same = sealed(write_run(tmp_path / "same", more, model="b"), "seed 1")
    other = sealed(write_run(tmp_path / "other", more, model="b"), "seed 2")

    paired, apart = found([first, same]), found([first, other])
    # The same 60 changed in both, 15 more in the second: McNemar's exact p is 2 · 2⁻¹⁵ by hand.
    says = paired["compare_change"].says
    assert "same drew the same people as first" in paired["designs"].says
    assert "Adversarial (ACP): in same more change than in first (+10 points" in says
    rows = {(r[0], r[1]): r for r in paired["compare_change"].grid.rows}
    p = rows["Adversarial (ACP)", "same − first"][
        paired["compare_change"].grid.columns.index("holm_p")
    ]
    assert p == pytest.approx(2 * 2 * 0.5**15)
    assert "different people" in apart["compare_change"].grid.caption
    assert (
        "Adversarial (ACP): other and first do not differ significantly"
        in apart["compare_change"].says
    )
    votes = paired["compare_votes"].grid
    at = votes.columns.index("same_person_same_choice_share")
    assert [r[at] for r in votes.rows] == [1.0, 285 / 300]
    # Nobody differs in simple voting, so the effects differ as much as the changes do, and surely.
    assert "Adversarial (ACP): the effects differ" in paired["compare_effects"].says
    assert "Adversarial (ACP): both show the effect" in apart["compare_effects"].says


def test_a_margin_of_ones_own_says_what_counts_as_equivalent(tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    runs = [sealed(write_run(tmp_path / name, counts), "seed 1") for name in ("first", "second")]
    wide, narrow = (compare(runs, margin=m) for m in (0.05, 0.001))
    said = {
        m: next(f.says for f in fs if f.key == "compare_change")
        for m, fs in (("wide", wide), ("narrow", narrow))
    }
    assert said["wide"].count("are equivalent") == 2
    assert "equivalent" not in said["narrow"]
    with pytest.raises(InputError, match="--margin"):
        compare(runs, margin=1.5)
