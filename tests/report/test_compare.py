"""Runs side by side: rates, effects, votes, measures, and answers by people."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
import yaml
from scipy.stats import chi2, ttest_1samp, ttest_ind

from folkmoot.engine.settings.config import CALL_KEYS
from folkmoot.errors import InputError, StorageError
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import format_p_value
from folkmoot.measures.inference.proportions import holm
from folkmoot.randomness import digest
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.table_buffer import rows_to_frame
from folkmoot.storage.tables import write_table

OPTIONS = ("parks", "jobs", "care")
# A folder without a manifest is that of a run that did not finish.
FINISHED = json.dumps({"outcome": "done"})


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
    write_table(folder / "tables", "participants", rows_to_frame(rows))
    settings = {"study": "cross_pollination", "model": "a", **config}
    (folder / "study.yaml").write_text(yaml.safe_dump(settings))
    (folder / "manifest.json").write_text(FINISHED)
    return folder


def rows_of(finding: Finding) -> list[dict[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


def found(runs: list[Path]) -> dict:
    return {f.key: f for f in compare_runs(runs)}


@pytest.fixture
def base(tmp_path):
    return write_run(tmp_path / "first", {"acp": (60, 150), "simple_voting": (12, 150)})


def test_a_different_model_is_named_and_its_effect_measured(base, tmp_path):
    other = write_run(
        tmp_path / "second", {"acp": (15, 150), "simple_voting": (12, 150)}, model="b"
    )
    result = found([base, other])
    assert "differ in model." in result["designs"].says
    says = result["compare_claims"].says
    assert (
        "Changed their choice in Simple voting, second − first: 0 points (−6 to +6, adjusted "
        "p > .99); a difference is neither shown nor ruled out." in says
    )
    assert (
        "in Adversarial (ACP), second − first: −30 points (−39 to −20, adjusted p < .001); a "
        "difference is shown." in says
    )
    effects = result["compare_effects"]
    assert (
        "Adversarial (ACP) − Simple voting: +32 points in first, +2 points in second; the "
        "effects differ (−30 points, −41 to −19, adjusted p < .001)" in effects.says
    )
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    assert all((r["low"] <= 0 <= r["high"]) == (r["p"] >= 0.05) for r in rows)
    # One family: each effect in each run, and the difference between the runs.
    assert [r["holm_p"] for r in rows] == pytest.approx(holm([r["p"] for r in rows]))
    assert [r["run"] for r in rows] == ["first", "second", "second − first"]
    assert "differ from those in first is not shown" in result["compare_votes"].says
    figures = result["compare_figures"].says
    assert "Exchanges in Adversarial (ACP), second − first: +2.00 (" in figures


def with_draws(run: Path, draws: int, text: str) -> Path:
    """The run with `draws` texts that it drew itself: participants of `acp` read one of them."""
    table = pl.read_parquet(run / "tables" / "participants.parquet")
    number = pl.int_range(pl.len()).over("condition") % draws + 1
    own = pl.when(pl.col("condition") == "acp").then(number)
    write_table(run / "tables", "participants", table.with_columns(summary_draw=own))
    texts = [{"draw": draw + 1, "description": f"{text} {draw}"} for draw in range(draws)]
    write_table(run / "tables", "summaries", rows_to_frame(texts))
    return run


@pytest.mark.parametrize("draws", [1, 3, 10])
def test_participants_who_read_one_draw_of_a_text_are_one_unit_between_runs(tmp_path, draws):
    """The texts of two runs differ as their settings do. One draw in each run tells nothing."""
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    fewer = {"acp": (15, 150), "simple_voting": (12, 150)}
    runs = [
        with_draws(write_run(tmp_path / name, moved, model=name), draws, name)
        for name, moved in (("first", counts), ("second", fewer))
    ]
    result = found(runs)
    measures, effects = result["compare_claims"], result["compare_effects"]
    rows = {str(row["condition"]): row for row in rows_of(measures)}
    read, unread = rows["Adversarial (ACP)"], rows["Simple voting"]
    # Nobody reads a drawn text in simple voting, so its participants are independent.
    assert unread["unit"] == "participant" and unread["units"] == 300
    assert unread["low"] is not None
    assert read["unit"] == "draw of the summaries"
    (gap,) = (row for row in rows_of(effects) if row["run"] == "second − first")
    if draws < 5:
        why = f"draws of the summaries in a run: {draws}; the runs also differ in these texts"
        assert f"Adversarial (ACP), second − first (−30 points): not tested ({why}" in measures.says
        assert f"their difference is not tested ({why}" in effects.says
        for row in (read, gap):
            assert row["low"] is None and row["p"] is None and row["holm_p"] is None
            assert row.get("equivalent") is None
            assert row["units"] == draws
    else:
        assert read["units"] == 2 * draws and read["low"] < -0.3 < read["high"] < 0
        assert gap["low"] is not None
    # Conditions that read no text have other units. Both findings name them in the same words.
    both = "draw of the summaries (participant in conditions that read none)"
    assert measures.unit == (both if draws >= 5 else "participant")
    assert effects.unit == (both if draws >= 5 else "participant")
    # Within a run the effect holds for its texts, and is tested as in its report.
    own = [row for row in rows_of(effects) if row["run"] in ("first", "second")]
    assert all(row["low"] is not None for row in own)
    (final,) = (row for row in rows_of(result["compare_votes"]) if row["votes"] == "final")
    assert final["p"] is None


def test_runs_with_the_same_texts_are_compared_by_participants(tmp_path):
    runs = [
        with_draws(write_run(tmp_path / name, {"acp": moved}, model=name), 1, "the same")
        for name, moved in (("first", (60, 150)), ("second", (15, 150)))
    ]
    (row,) = rows_of(found(runs)["compare_claims"])
    assert row["unit"] == "participant" and row["high"] < 0


def test_effects_that_differ_by_themselves_alone_are_not_said_to_differ(tmp_path):
    floor = {"simple_voting": (20, 150)}
    first = write_run(tmp_path / "first", {**floor, "acp": (45, 150), "passive": (30, 150)})
    second = write_run(tmp_path / "second", {**floor, "acp": (26, 150), "passive": (30, 150)})
    effects = found([first, second])["compare_effects"]
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    gap = next(r for r in rows if r["run"] == "second − first" and "ACP" in r["claim"])
    assert (
        gap["high"] < 0
        and gap["p"] < 0.05 < gap["holm_p"]
        and gap["verdict"] == "neither shown nor ruled out"
    )
    said = "+16.7 points in first, +4.0 points in second; that the effects differ is not shown"
    assert f"{said} (−12.7 points" in effects.says
    assert f"adjusted {format_p_value(gap['holm_p'])})" in effects.says


def test_the_same_run_twice_shows_nothing(base):
    result = found([base, base])
    assert "settings that matter are the same" in result["designs"].says
    assert result["compare_claims"].says.count(": 0 points (") == 2
    assert "that the effects differ is not shown" in result["compare_effects"].says
    assert {r["runs"] for r in rows_of(result["compare_claims"])} == {"first (2) − first"}


@pytest.mark.parametrize("key", sorted(CALL_KEYS))
def test_the_way_of_calling_models_is_no_difference_in_design(base, tmp_path, key):
    values = {"batch": True, "endpoints": {"a": "http://localhost:1/v1"}}
    called = {key: values.get(key, 7)}
    other = write_run(tmp_path / "b", {"acp": (60, 150), "simple_voting": (12, 150)}, **called)
    same = write_run(tmp_path / "c", {"acp": (60, 150), "simple_voting": (12, 150)})
    designs = found([base, other])["designs"]
    assert "differ in" not in designs.says and key not in str(designs.grid)
    assert designs.says == found([base, same])["designs"].says


def test_large_equal_runs_are_called_equivalent(tmp_path):
    runs = [
        write_run(tmp_path / name, {"acp": (800, 4_000), "simple_voting": (200, 4_000)})
        for name in ("one", "two")
    ]
    compared = found(runs)["compare_claims"]
    assert compared.says.count("Equivalent within 5 points.") == 2
    assert [r["equivalent"] for r in rows_of(compared)] == [True, True]


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
    says = result["compare_claims"].says
    assert "in Adversarial (ACP), survey − first: +15 points" in says
    assert "in Simple voting, survey − first: +47 points" in says
    # The human figures are those of the table, and not published ones of other people.
    assert "55 % in people (file survey); first:" in result["compare_people"].says
    reverse = found([people, base])
    says = reverse["compare_claims"].says
    assert "in Simple voting, first − survey: −47 points" in says


def test_people_are_compared_with_a_draw_of_texts_and_the_page_says_so(base, tmp_path):
    people = tmp_path / "survey.csv"
    rows = ["initial_choice,final_choice"] + ["parks,jobs"] * 55 + ["jobs,jobs"] * 45
    people.write_text("\n".join(rows))
    result = found([with_draws(base, 1, "drawn"), people])
    says = result["compare_claims"].says
    assert "in Adversarial (ACP), survey − first: +15 points (" in says
    assert "hold for their texts and for those that the run drew" in result["designs"].says


def test_an_empty_column_of_changes_is_read_from_the_choices(base, tmp_path):
    people = tmp_path / "survey.csv"
    people.write_text(
        "condition,initial_choice,final_choice,position_changed\n"
        "simple_voting,a,b,\nsimple_voting,a,a,\nsimple_voting,b,b,\nsimple_voting,b,a,\n"
    )
    rates = rows_of(found([base, people])["compare_claims"])
    assert {r["first"] for r in rates} == {0.5}


def test_human_file_with_strange_values(base, tmp_path):
    people = tmp_path / "survey.csv"
    people.write_text("position_changed\nyes\nperhaps\n")
    with pytest.raises(InputError, match="perhaps"):
        compare_runs([base, people])
    people.write_text("position_changed\nyes\nno\n0\n1\n")
    rates = rows_of(found([base, people])["compare_claims"])
    assert {r["first"] for r in rates} == {0.5}


def test_different_study_types(base, tmp_path):
    hall = tmp_path / "hall"
    (hall / "tables").mkdir(parents=True)
    rows = [
        {"set": s, "level": lv, "inclusivity": s + (lv == "4")} for s in range(6) for lv in "14"
    ]
    write_table(hall / "tables", "discussions", rows_to_frame(rows))
    (hall / "study.yaml").write_text("study: town_hall\n")
    (hall / "manifest.json").write_text(FINISHED)
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
        write_table(folder / "tables", "satisfaction", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: negotiation\n")
        (folder / "manifest.json").write_text(FINISHED)
        return folder

    result = found([hall("one", 0.0), hall("two", 1.0)])
    grid = result["compare_figures"].grid
    row = dict(zip(grid.columns, grid.rows[0], strict=True))
    assert row["difference"] == pytest.approx(1.0)
    # 16 clusters, not 80 rows: the interval of group means g % 3 reaches beyond ±0.8.
    assert row["high"] - row["low"] > 1.6


def test_one_run_is_no_comparison(base, tmp_path):
    with pytest.raises(InputError, match="two or more"):
        compare_runs([base])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "study.yaml").write_text("study: x\n")
    with pytest.raises(StorageError, match="no tables yet; finish the run"):
        compare_runs([base, empty])


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
    says = paired["compare_claims"].says
    assert "same drew the same people as first" in paired["designs"].says
    assert "in Adversarial (ACP), same − first: +10 points" in says
    rows = {r["condition"]: r for r in rows_of(paired["compare_claims"])}
    assert rows["Adversarial (ACP)"]["holm_p"] == pytest.approx(2 * float(chi2.sf(15, 1)))
    assert rows["Adversarial (ACP)"]["paired"] is True
    others = {r["condition"]: r for r in rows_of(apart["compare_claims"])}
    assert others["Adversarial (ACP)"]["paired"] is False
    assert others["Adversarial (ACP)"]["verdict"] == "neither shown nor ruled out"
    votes = paired["compare_votes"].grid
    at = votes.columns.index("same_person_same_choice_share")
    assert [r[at] for r in votes.rows] == [1.0, 285 / 300]
    # Nobody differs in simple voting, so the effects differ as much as the changes do, and surely.
    assert "the effects differ (+10 points" in paired["compare_effects"].says
    assert "that the effects differ is not shown" in apart["compare_effects"].says


@pytest.mark.parametrize("draws", [1, 5])
def test_a_comparison_with_people_names_the_texts_that_it_holds_for(tmp_path, draws):
    """With five draws the draws are the units, so the results hold for further draws as well."""
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    run = with_draws(write_run(tmp_path / "run", counts), draws, "text")
    people = tmp_path / "people.csv"
    rows = [f"{arm},a,{'b' if i < 20 else 'a'}" for arm in counts for i in range(60)]
    people.write_text("\n".join(["arm,before,after", *rows]), "utf-8")
    result = found([run, people])
    told = "Participants of run read 1 draw of the texts: differences from people hold for these"
    for key in ("compare_claims", "compare_effects", "people_calibration", "compare_people"):
        assert any(told in note for note in result[key].notes) == (draws == 1), key
    # The range of people is told once, with the values of all conditions.
    assert result["compare_people"].says.count("in people (") == 1
    assert "run: Adversarial (ACP) 40 %, Simple voting 8 %" in result["compare_people"].says


def test_a_margin_of_ones_own_says_what_counts_as_equivalent(tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    runs = [sealed(write_run(tmp_path / name, counts), "seed 1") for name in ("first", "second")]
    wide, narrow = (compare_runs(runs, margin=m) for m in (0.05, 0.001))
    said = {
        m: next(f.says for f in fs if f.key == "compare_claims")
        for m, fs in (("wide", wide), ("narrow", narrow))
    }
    assert said["wide"].count("Equivalent within 5 points.") == 2
    assert "Equivalent" not in said["narrow"]
    with pytest.raises(InputError, match="--margin"):
        compare_runs(runs, margin=1.5)


def test_participants_who_read_the_same_draw_are_one_unit(tmp_path):
    """Ten draws of ten participants, of which all or none change: ten units, not a hundred."""

    def drawn(name: str, moved: int) -> Path:
        folder = write_run(tmp_path / name, {"acp": (10 * moved, 100), "simple_voting": (5, 100)})
        path = folder / "tables" / "participants.parquet"
        table = pl.read_parquet(path)
        draw = pl.int_range(pl.len()).over("condition") // 10
        write_table(folder / "tables", "participants", table.with_columns(summary_draw=draw))
        return folder

    first, second = drawn("first", 2), drawn("second", 5)
    result = found([first, second])
    acp = rows_of(result["compare_claims"])[0]
    assert (acp["units"], acp["unit"]) == (20, "draw of the summaries")
    assert str(acp["method"]).startswith("CR2") and acp["verdict"] == "neither shown nor ruled out"
    # As a hundred participants each, 50 against 20 of 100 would be beyond doubt.
    assert acp["difference"] == pytest.approx(0.3) and acp["p"] > 0.1
    # The t test over the means of draws, by hand: five ones of ten, and two.
    means = [[1.0] * 5 + [0.0] * 5, [1.0] * 2 + [0.0] * 8]
    assert acp["p"] == pytest.approx(float(ttest_ind(*means).pvalue))
    # No test of votes that were cast after shared texts.
    votes = {r["votes"]: r["p"] for r in rows_of(result["compare_votes"])}
    assert votes["initial"] == pytest.approx(1.0) and votes["final"] is None


def test_differences_are_told_in_points(tmp_path):
    runs = [
        write_run(tmp_path / name, {"acp": (moved, 200), "simple_voting": (20, 200)})
        for name, moved in (("first", 34), ("second", 101))
    ]
    compared = found(runs)["compare_claims"]
    row = rows_of(compared)[0]
    assert (row["second"], row["first"]) == (0.17, 0.505)
    assert str(row["in_words"]).startswith("+34 points, +24 to +42, adjusted p")
    drawn = {line[0]: line[1] for line in compared.chart.items}
    label = "changed their choice in Adversarial (ACP): second − first"
    assert drawn[label] == pytest.approx(33.5)
    for finding in compare_runs(runs):
        told = f"{finding.says} {' '.join(map(str, finding.grid.columns))}"
        assert not any(name in told for name in ("difference_rate", "effect_rate", "off by 3"))


def test_a_paired_comparison_goes_by_the_conversation_that_subjects_shared(tmp_path):
    """Eight groups of five, the same people in two runs: gains differ between groups alone."""

    def talks(name: str, gains: list[float]) -> Path:
        rows = [
            {
                "group": g,
                "condition": "C1",
                "member_id": f"{g}.{m}",
                "satisfaction": m % 3 + gains[g],
            }
            for g in range(8)
            for m in range(5)
        ]
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        write_table(folder / "tables", "satisfaction", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: negotiation\n")
        (folder / "manifest.json").write_text(FINISHED)
        return sealed(folder, "seed 1")

    gains = [0.1, 0.5, -0.2, 0.9, 0.3, 0.0, 0.4, -0.1]
    (row,) = rows_of(found([talks("one", [0.0] * 8), talks("two", gains)])["compare_figures"])
    test = ttest_1samp(gains, 0)
    assert (row["paired"], row["units"]) == (True, 8)
    assert row["p"] == pytest.approx(float(test.pvalue))
    bounds = test.confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx((bounds.low, bounds.high))


def test_effects_within_sets_are_compared_set_by_set_or_between_sets(tmp_path):
    """The double difference by hand: of the same sets a t test over them, else Welch's."""
    claim = Claim(
        "discussions.inclusivity",
        ("4", "1"),
        "mean",
        family="primary",
        by="level",
        subject=("set",),
        paired=True,
        outcome="inclusion",
    )
    gains = {"first": [0.1, 0.4, 0.2, 0.9, 0.3, 0.6], "second": [0.8, 0.5, 1.1, 1.0, 0.2, 1.3]}

    def hall(name: str, people: str) -> Path:
        folder = tmp_path / people / name
        (folder / "tables").mkdir(parents=True)
        rows = [
            {"set": s, "level": level, "inclusivity": s % 4 + (level == "4") * gain}
            for s, gain in enumerate(gains[name])
            for level in "14"
        ]
        write_table(folder / "tables", "discussions", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: town_hall\n")
        (folder / "manifest.json").write_text(FINISHED)
        sealed(folder, people if name == "second" else "seed 1")
        plan = json.loads((folder / "plan.json").read_text())
        for part, data in (("claims", [asdict(claim)]), ("design", {})):
            whole = json.loads(json.dumps(data))
            plan["sealed"][part] = {"hash": digest(json.dumps(whole, sort_keys=True)).hex()}
            plan["sealed"][part]["data"] = whole
        (folder / "plan.json").write_text(json.dumps(plan))
        return folder

    def gap(people: str) -> dict[str, TableCell]:
        finding = found([hall("first", people), hall("second", people)])["compare_effects"]
        return next(r for r in rows_of(finding) if r["run"] == "second − first")

    same, other = gap("seed 1"), gap("seed 2")
    second_minus_first = [b - a for a, b in zip(*gains.values(), strict=True)]
    assert same["p"] == pytest.approx(float(ttest_1samp(second_minus_first, 0).pvalue))
    assert (same["units"], other["units"]) == (6, 12)
    welch = ttest_ind(gains["second"], gains["first"], equal_var=False)
    assert other["p"] == pytest.approx(float(welch.pvalue), rel=0.05)
    assert (same["difference"], other["difference"]) == pytest.approx((0.4, 0.4))


def test_an_unfinished_run_is_estimated_and_not_tested(base, tmp_path):
    half = write_run(tmp_path / "half", {"acp": (5, 50), "simple_voting": (4, 50)})
    (half / "manifest.json").write_text(json.dumps({"outcome": "paused"}))
    result = found([base, half])
    interim = "interim figures of an unfinished run"
    assert "half did not finish" in result["designs"].says
    for key in ("compare_claims", "compare_effects", "compare_figures"):
        assert interim in result[key].says
        between = [row for row in rows_of(result[key]) if row.get("run") != "first"]
        assert between and all(row["p"] is row["holm_p"] is None for row in between)
        assert any(row["low"] is not None for row in between)
    said = result["compare_votes"].says
    assert said == "Not tested against first: initial votes of half and final votes of half."


def test_votes_without_a_test_are_not_said_to_be_compared(base, tmp_path):
    """Final votes after shared texts are not independent, so only first votes are tested."""
    first = with_draws(base, 10, "a")
    other = write_run(tmp_path / "second", {"acp": (60, 150), "simple_voting": (12, 150)})
    said = found([first, with_draws(other, 10, "b")])["compare_votes"].says
    assert said == (
        "That initial votes of second differ from those in first is not shown. "
        "Not tested against first: final votes of second."
    )
