"""Comparison of runs: rates, effects, votes, measures, and answers of humans."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
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
from folkmoot.report.comparison.samples import load_samples
from folkmoot.storage.findings import Finding, TableCell, column_heading
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame

OPTIONS = ("parks", "jobs", "care")
# A folder without a manifest is that of a run that did not finish.
FINISHED_MANIFEST = json.dumps({"outcome": "done"})


def write_run(folder: Path, changed: dict[str, tuple[int, int]], **config: object) -> Path:
    """Write a run folder with a participants table. `changed`: condition → (changed, n)."""
    rows = []
    for condition, (changed_count, participant_count) in changed.items():
        for i in range(participant_count):
            first = OPTIONS[i % 3]
            last = OPTIONS[(i + 1) % 3] if i < changed_count else first
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
    (folder / "manifest.json").write_text(FINISHED_MANIFEST)
    return folder


def read_rows(finding: Finding) -> list[dict[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


def compute_comparison(runs: list[Path]) -> dict:
    return {finding.key: finding for finding in compare_runs(runs)}


@pytest.fixture
def base_run(tmp_path):
    return write_run(tmp_path / "first", {"acp": (60, 150), "simple_voting": (12, 150)})


def test_a_different_model_is_named_and_its_effect_estimated(base_run, tmp_path):
    other_run = write_run(
        tmp_path / "second", {"acp": (15, 150), "simple_voting": (12, 150)}, model="b"
    )
    result = compute_comparison([base_run, other_run])
    assert "differ in model." in result["designs"].says
    sentence = result["compare_claims"].says
    assert (
        "Changed their choice in Simple voting, second − first: 0 points (−6 to +6, adjusted "
        "p > .99); a difference is neither shown nor ruled out." in sentence
    )
    assert (
        "in Adversarial (ACP), second − first: −30 points (−39 to −20, adjusted p < .001); a "
        "difference is shown." in sentence
    )
    effects = result["compare_effects"]
    assert (
        "Adversarial (ACP) − Simple voting: +32 points in first, +2 points in second; the "
        "effects differ (−30 points, −41 to −19, adjusted p < .001)" in effects.says
    )
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    assert all(
        (result_row["low"] <= 0 <= result_row["high"]) == (result_row["p"] >= 0.05)
        for result_row in rows
    )
    # One family: each effect in each run, and the difference between the runs.
    assert [result_row["holm_p"] for result_row in rows] == pytest.approx(
        holm([result_row["p"] for result_row in rows])
    )
    assert [result_row["run"] for result_row in rows] == ["first", "second", "second − first"]
    assert "differ from those in first is not shown for" in result["compare_votes"].says
    figures = result["compare_figures"].says
    assert "Exchanges in Adversarial (ACP), second − first: +2.00 (" in figures


def test_a_comparison_says_how_many_columns_it_leaves_out(base_run, tmp_path):
    runs = [base_run, write_run(tmp_path / "second", {"acp": (9, 20), "simple_voting": (2, 20)})]
    for number, run in enumerate(runs):
        table = pl.read_parquet(run / "tables" / "participants.parquet")
        index = pl.int_range(pl.len())
        further = {f"figure{n}": (index * (n + 2)) % 7 + number for n in range(30)}
        write_table(run / "tables", "participants", table.with_columns(**further))
    finding = compute_comparison(runs)["compare_figures"]
    assert len({row["measure"] for row in read_rows(finding)}) == 25
    assert "Only the first 25 of 31 columns are compared." in finding.notes


def add_draws(run: Path, draws: int, text: str) -> Path:
    """Add `draws` generated texts to a run. Each participant of `acp` reads one of them."""
    table = pl.read_parquet(run / "tables" / "participants.parquet")
    number = pl.int_range(pl.len()).over("condition") % draws + 1
    draw_of_acp = pl.when(pl.col("condition") == "acp").then(number)
    write_table(run / "tables", "participants", table.with_columns(summary_draw=draw_of_acp))
    texts = [{"draw": draw + 1, "description": f"{text} {draw}"} for draw in range(draws)]
    write_table(run / "tables", "summaries", rows_to_frame(texts))
    return run


@pytest.mark.parametrize("draws", [1, 3, 10])
def test_participants_who_read_one_draw_of_a_text_are_one_unit_between_runs(tmp_path, draws):
    """The texts of two runs differ like their settings, so one draw per run is not enough."""
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    fewer = {"acp": (15, 150), "simple_voting": (12, 150)}
    runs = [
        add_draws(write_run(tmp_path / name, counts_of_run, model=name), draws, name)
        for name, counts_of_run in (("first", counts), ("second", fewer))
    ]
    result = compute_comparison(runs)
    measures, effects = result["compare_claims"], result["compare_effects"]
    rows = {str(row["condition"]): row for row in read_rows(measures)}
    row_of_readers, row_of_others = rows["Adversarial (ACP)"], rows["Simple voting"]
    # Participants of simple voting read no drawn text, so they are independent.
    assert row_of_others["unit"] == "participant" and row_of_others["units"] == 300
    assert row_of_others["low"] is not None
    assert row_of_readers["unit"] == "draw of the summaries"
    (effect_row,) = (row for row in read_rows(effects) if row["run"] == "second − first")
    if draws < 5:
        reason = f"draws of the summaries in a run: {draws}; the runs also differ in these texts"
        assert (
            f"Adversarial (ACP), second − first (−30 points): not tested ({reason}" in measures.says
        )
        assert f"their difference (−30 points): not tested ({reason}" in effects.says
        assert "draw of the summaries" in str(effect_row["unit"])
        for row in (row_of_readers, effect_row):
            assert row["low"] is None and row["p"] is None and row["holm_p"] is None
            assert row.get("equivalent") is None
            assert row["units"] == draws
    else:
        assert (
            row_of_readers["units"] == 2 * draws
            and row_of_readers["low"] < -0.3 < row_of_readers["high"] < 0
        )
        assert effect_row["low"] is not None
    # Conditions that read no text have other units. Both findings name them in the same words.
    unit_names = "draw of the summaries (participant in conditions that read none)"
    assert measures.unit == (unit_names if draws >= 5 else "participant")
    assert effects.unit == (unit_names if draws >= 5 else "participant")
    # Within a run the effect holds for its texts, and is tested as in its report.
    own_rows = [row for row in read_rows(effects) if row["run"] in ("first", "second")]
    assert all(row["low"] is not None for row in own_rows)
    rows_of_votes = read_rows(result["compare_votes"])
    p_values = {row["condition"]: row["p"] for row in rows_of_votes if row["votes"] == "final"}
    assert p_values["Adversarial (ACP)"] is None and p_values["Simple voting"] is not None


def test_runs_with_the_same_texts_are_compared_by_participants(tmp_path):
    runs = [
        add_draws(write_run(tmp_path / name, {"acp": counts}, model=name), 1, "the same")
        for name, counts in (("first", (60, 150)), ("second", (15, 150)))
    ]
    (row,) = read_rows(compute_comparison(runs)["compare_claims"])
    assert row["unit"] == "participant" and row["high"] < 0


def test_effects_that_differ_only_without_adjustment_are_not_shown_to_differ(tmp_path):
    baseline = {"simple_voting": (20, 150)}
    first = write_run(tmp_path / "first", {**baseline, "acp": (45, 150), "passive": (30, 150)})
    second = write_run(tmp_path / "second", {**baseline, "acp": (26, 150), "passive": (30, 150)})
    effects = compute_comparison([first, second])["compare_effects"]
    rows = [dict(zip(effects.grid.columns, row, strict=True)) for row in effects.grid.rows]
    difference_row = next(
        candidate
        for candidate in rows
        if candidate["run"] == "second − first" and "ACP" in candidate["claim"]
    )
    assert (
        difference_row["high"] < 0
        and difference_row["p"] < 0.05 < difference_row["holm_p"]
        and difference_row["verdict"] == "neither shown nor ruled out"
    )
    sentence = "+16.7 points in first, +4.0 points in second; that the effects differ is not shown"
    assert f"{sentence} (−12.7 points" in effects.says
    assert f"adjusted {format_p_value(difference_row['holm_p'])})" in effects.says


def test_the_same_run_twice_shows_no_difference(base_run):
    result = compute_comparison([base_run, base_run])
    assert "settings that matter are the same" in result["designs"].says
    assert result["compare_claims"].says.count(": 0 points (") == 2
    assert "that the effects differ is not shown" in result["compare_effects"].says
    assert {row["runs"] for row in read_rows(result["compare_claims"])} == {"first (2) − first"}


def record_models(run: Path, **roles_by_model: list[str]) -> Path:
    """Write the models that a run asked to its manifest. Each was served under the same name."""
    models = [
        {"asked": name, "served": ["scripted"], "roles": roles}
        for name, roles in roles_by_model.items()
    ]
    manifest = {"outcome": "done", "study": "cross_pollination", "models": models}
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def test_designs_differ_in_the_models_that_were_asked(base_run, tmp_path):
    """The study file may name another model than a script or the command line, or none."""
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    first = record_models(base_run, large=["moderator", "participant"])
    same_run = write_run(tmp_path / "same", counts)
    (same_run / "study.yaml").write_text("random_seed: 7\n")
    (first / "study.yaml").write_text("study: cross_pollination\nmodel: x\nrandom_seed: 7\n")
    same = record_models(same_run, large=["moderator", "participant"])
    assert "settings that matter are the same" in compute_comparison([first, same])["designs"].says
    mixed = write_run(tmp_path / "mixed", counts)
    (mixed / "study.yaml").write_text("study: cross_pollination\nmodel: x\nrandom_seed: 7\n")
    record_models(mixed, large=["participant"], small=["moderator"])
    designs = compute_comparison([first, mixed])["designs"]
    assert designs.says == "The designs differ in model."
    (row,) = read_rows(designs)
    assert row["mixed"] == "large (participant), small (moderator)"


def test_runs_are_displayed_under_their_names(base_run, tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    other_run = write_run(tmp_path / "second_run", counts, model="b")
    columns = compute_comparison([base_run, other_run])["designs"].grid.columns
    assert [*map(column_heading, columns)] == ["setting", "first", "second_run"]


def test_prompts_are_compared_by_their_texts_and_not_by_their_folder(base_run, tmp_path):
    def seal_prompts(folder: Path, prompts: dict[str, str]) -> Path:
        plan = {"sealed": {"design": {"hash": folder.name, "data": {"prompts": prompts}}}}
        (folder / "plan.json").write_text(json.dumps(plan))
        return folder

    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    first = seal_prompts(base_run, {"vote.md": "0a"})
    same_run = write_run(tmp_path / "same", counts, prompts="own")
    changed_run = write_run(tmp_path / "changed", counts)
    same = compute_comparison([first, seal_prompts(same_run, {"vote.md": "0a"})])["designs"]
    changed = compute_comparison([first, seal_prompts(changed_run, {"vote.md": "0b"})])["designs"]
    assert "settings that matter are the same" in same.says
    assert changed.says == "The designs differ in prompts."


@pytest.mark.parametrize("key", sorted(CALL_KEYS))
def test_call_settings_are_not_a_difference_in_design(base_run, tmp_path, key):
    values = {"batch": True, "endpoints": {"a": "http://localhost:1/v1"}}
    call_setting = {key: values.get(key, 7)}
    changed_run = write_run(
        tmp_path / "b", {"acp": (60, 150), "simple_voting": (12, 150)}, **call_setting
    )
    same_run = write_run(tmp_path / "c", {"acp": (60, 150), "simple_voting": (12, 150)})
    designs = compute_comparison([base_run, changed_run])["designs"]
    assert "differ in" not in designs.says and key not in str(designs.grid)
    assert designs.says == compute_comparison([base_run, same_run])["designs"].says


def test_large_equal_runs_are_called_equivalent(tmp_path):
    runs = [
        write_run(tmp_path / name, {"acp": (800, 4_000), "simple_voting": (200, 4_000)})
        for name in ("one", "two")
    ]
    claims = compute_comparison(runs)["compare_claims"]
    assert claims.says.count("Equivalent within 5 points.") == 2
    assert [row["equivalent"] for row in read_rows(claims)] == [True, True]


def test_different_initial_votes_are_reported(base_run, tmp_path):
    lopsided = tmp_path / "lopsided"
    write_run(lopsided, {"acp": (60, 150)})
    data = pl.read_parquet(lopsided / "tables" / "participants.parquet")
    skewed = data.with_columns(pl.lit("parks").alias("initial_choice"))
    write_table(lopsided / "tables", "participants", skewed)
    result = compute_comparison([base_run, lopsided])
    assert "initial votes of lopsided" in result["compare_votes"].says
    grid = result["compare_votes"].grid
    p_index, holm_index = grid.columns.index("p"), grid.columns.index("holm_p")
    initial, final = grid.rows
    assert initial[holm_index] == pytest.approx(2 * initial[p_index])  # the smaller of two
    assert final[holm_index] == pytest.approx(max(final[p_index], initial[holm_index]))
    assert "different room for change" in result["compare_votes"].says


def test_humans_without_conditions_are_compared_with_every_condition(base_run, tmp_path):
    survey_file = tmp_path / "survey.csv"
    rows = ["initial_choice,final_choice"] + ["parks,jobs"] * 55 + ["jobs,jobs"] * 45
    survey_file.write_text("\n".join(rows))
    result = compute_comparison([base_run, survey_file])
    assert "survey: answers by people." in result["designs"].says
    sentence = result["compare_claims"].says
    assert "in Adversarial (ACP), survey − first: +15 points" in sentence
    assert "in Simple voting, survey − first: +47 points" in sentence
    # The human figures come from the table, and not from published results.
    assert "55 % in people (file survey); first:" in result["compare_people"].says
    reversed_result = compute_comparison([survey_file, base_run])
    sentence = reversed_result["compare_claims"].says
    assert "in Simple voting, first − survey: −47 points" in sentence


def test_a_comparison_of_humans_with_drawn_texts_is_limited_to_these_texts(base_run, tmp_path):
    survey_file = tmp_path / "survey.csv"
    rows = ["initial_choice,final_choice"] + ["parks,jobs"] * 55 + ["jobs,jobs"] * 45
    survey_file.write_text("\n".join(rows))
    result = compute_comparison([add_draws(base_run, 1, "drawn"), survey_file])
    sentence = result["compare_claims"].says
    assert "in Adversarial (ACP), survey − first: +15 points (" in sentence
    assert "hold for their texts and for those that the run drew" in result["designs"].says


def test_an_empty_column_of_changes_is_computed_from_the_choices(base_run, tmp_path):
    survey_file = tmp_path / "survey.csv"
    survey_file.write_text(
        "condition,initial_choice,final_choice,position_changed\n"
        "simple_voting,a,b,\nsimple_voting,a,a,\nsimple_voting,b,b,\nsimple_voting,b,a,\n"
    )
    rates = read_rows(compute_comparison([base_run, survey_file])["compare_claims"])
    assert {row["first"] for row in rates} == {0.5}


def test_unknown_values_in_a_human_file_are_refused(base_run, tmp_path):
    survey_file = tmp_path / "survey.csv"
    survey_file.write_text("position_changed\nyes\nperhaps\n")
    with pytest.raises(InputError, match="perhaps"):
        compare_runs([base_run, survey_file])
    survey_file.write_text("position_changed\nyes\nno\n0\n1\n")
    rates = read_rows(compute_comparison([base_run, survey_file])["compare_claims"])
    assert {row["first"] for row in rates} == {0.5}


def test_runs_of_different_study_types_have_no_common_measures(base_run, tmp_path):
    town_hall_run = tmp_path / "hall"
    (town_hall_run / "tables").mkdir(parents=True)
    rows = [
        {"set": set_number, "level": level, "inclusivity": set_number + (level == "4")}
        for set_number in range(6)
        for level in "14"
    ]
    write_table(town_hall_run / "tables", "discussions", rows_to_frame(rows))
    (town_hall_run / "study.yaml").write_text("study: town_hall\n")
    (town_hall_run / "manifest.json").write_text(FINISHED_MANIFEST)
    result = compute_comparison([base_run, town_hall_run])
    assert "different study types (cross_pollination, town_hall)" in result["designs"].says
    assert "compare_nothing" in result


def test_measures_are_clustered_by_conversation(tmp_path):
    def write_ratings_run(name: str, shift: float) -> Path:
        rows = [
            {"group": group, "condition": "C1", "rating": group % 3 + shift}
            for group in range(8)
            for _ in range(5)
        ]
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        write_table(folder / "tables", "measures", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: negotiation\n")
        (folder / "manifest.json").write_text(FINISHED_MANIFEST)
        return folder

    result = compute_comparison([write_ratings_run("one", 0.0), write_ratings_run("two", 1.0)])
    grid = result["compare_figures"].grid
    row = dict(zip(grid.columns, grid.rows[0], strict=True))
    assert row["difference"] == pytest.approx(1.0)
    # 16 clusters, not 80 rows: the interval of group means is wider than ±0.8.
    assert row["high"] - row["low"] > 1.6


def test_texts_in_prompts_are_no_outcomes_of_a_comparison(tmp_path):
    """All other tables of a study type that names none, or is not installed, are compared."""
    folders = []
    for name, shift in (("one", 0), ("two", 1)):
        rows = [{"group": group, "condition": "C1", "texts": group + shift} for group in range(8)]
        folders.append(tmp_path / name)
        (folders[-1] / "tables").mkdir(parents=True)
        for table in ("talks", "exposure"):
            write_table(folders[-1] / "tables", table, rows_to_frame(rows))
        (folders[-1] / "study.yaml").write_text("study: not_installed\n")
        (folders[-1] / "manifest.json").write_text(FINISHED_MANIFEST)
    assert {sample.compared_tables for sample in load_samples(folders)} == {("talks",)}
    (row,) = read_rows(compute_comparison(folders)["compare_figures"])
    assert row["difference"] == pytest.approx(1)


def test_a_comparison_needs_two_runs_with_tables(base_run, tmp_path):
    with pytest.raises(InputError, match="two or more"):
        compare_runs([base_run])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "study.yaml").write_text("study: x\n")
    with pytest.raises(StorageError, match="no tables yet; finish the run"):
        compare_runs([base_run, empty])


def seal_participants(folder: Path, participants: str) -> Path:
    """Write a plan that seals the participants of a run."""
    parts = {
        name: {"hash": f"{name} {participants}", "data": {}} for name in ("assignment", "personas")
    }
    parts["design"] = {"hash": folder.name, "data": {}}
    (folder / "plan.json").write_text(json.dumps({"started_at": "", "sealed": parts}))
    return folder


def seal_claims(folder: Path, claims: list[Claim]) -> Path:
    plan = json.loads((folder / "plan.json").read_text())
    for part, data in (("claims", [asdict(claim) for claim in claims]), ("design", {})):
        plain_data = json.loads(json.dumps(data))
        plan["sealed"][part] = {"hash": digest(json.dumps(plain_data, sort_keys=True)).hex()}
        plan["sealed"][part]["data"] = plain_data
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


def test_runs_with_the_same_participants_are_compared_within_participants(tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    first = seal_participants(write_run(tmp_path / "first", counts), "seed 1")
    other_counts = {"acp": (75, 150), "simple_voting": (12, 150)}
    same_participants = seal_participants(
        write_run(tmp_path / "same", other_counts, model="b"), "seed 1"
    )
    other_participants = seal_participants(
        write_run(tmp_path / "other", other_counts, model="b"), "seed 2"
    )

    paired, unpaired = (
        compute_comparison([first, same_participants]),
        compute_comparison([first, other_participants]),
    )
    # The same 60 changed in both, 15 more in the second: McNemar's exact p is 2 · 2⁻¹⁵ by hand.
    sentence = paired["compare_claims"].says
    assert "same drew the same people as first" in paired["designs"].says
    assert "in Adversarial (ACP), same − first: +10 points" in sentence
    rows = {row["condition"]: row for row in read_rows(paired["compare_claims"])}
    assert rows["Adversarial (ACP)"]["holm_p"] == pytest.approx(2 * float(chi2.sf(15, 1)))
    assert rows["Adversarial (ACP)"]["paired"] is True
    unpaired_rows = {row["condition"]: row for row in read_rows(unpaired["compare_claims"])}
    assert unpaired_rows["Adversarial (ACP)"]["paired"] is False
    assert unpaired_rows["Adversarial (ACP)"]["verdict"] == "neither shown nor ruled out"
    same_choices = {
        (row["votes"], row["condition"]): row["same_person_same_choice_share"]
        for row in read_rows(paired["compare_votes"])
    }
    assert same_choices == {
        ("initial", "All shared"): 1.0,
        ("final", "Simple voting"): 1.0,
        ("final", "Adversarial (ACP)"): 135 / 150,
    }
    # Simple voting is the same in both runs, so the effects differ as much as the changes.
    assert "the effects differ (+10 points" in paired["compare_effects"].says
    assert "that the effects differ is not shown" in unpaired["compare_effects"].says


def test_figures_of_a_paired_comparison_are_of_those_known_in_both_runs(tmp_path):
    """Only the first 61 participants took part in the second run. All 61 changed in the first."""
    first = write_run(tmp_path / "first", {"acp": (61, 150), "simple_voting": (12, 150)})
    second = write_run(tmp_path / "second", {"acp": (30, 61), "simple_voting": (12, 150)})
    result = compute_comparison([seal_participants(run, "seed 1") for run in (first, second)])
    rows = {row["condition"]: row for row in read_rows(result["compare_claims"])}
    row = rows["Adversarial (ACP)"]
    assert row["paired"] is True
    assert (row["first"], row["second"]) == (pytest.approx(30 / 61), 1.0)
    assert row["difference"] == pytest.approx(30 / 61 - 1)
    # Votes are compared in the same way. These people start from the same votes in both runs.
    votes = {row["votes"]: row for row in read_rows(result["compare_votes"])}
    assert votes["initial"]["total_variation_distance_points"] == 0


@pytest.mark.parametrize("draws", [1, 5])
def test_a_comparison_with_humans_names_its_texts(tmp_path, draws):
    """With five draws the draws are the units, so the results hold for further draws as well."""
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    run = add_draws(write_run(tmp_path / "run", counts), draws, "text")
    people_file = tmp_path / "people.csv"
    rows = [f"{condition},a,{'b' if i < 20 else 'a'}" for condition in counts for i in range(60)]
    people_file.write_text("\n".join(["arm,before,after", *rows]), "utf-8")
    result = compute_comparison([run, people_file])
    note_text = (
        "Participants of run read 1 draw of the texts: differences from people hold for these"
    )
    for key in ("compare_claims", "compare_effects", "people_calibration", "compare_people"):
        assert any(note_text in note for note in result[key].notes) == (draws == 1), key
    # The interval for humans is stated once, with the values of all conditions.
    assert result["compare_people"].says.count("in people (") == 1
    assert "run: Adversarial (ACP) 40 %, Simple voting 8 %" in result["compare_people"].says


def test_a_custom_margin_decides_equivalence(tmp_path):
    counts = {"acp": (60, 150), "simple_voting": (12, 150)}
    runs = [
        seal_participants(write_run(tmp_path / name, counts), "seed 1")
        for name in ("first", "second")
    ]
    wide, narrow = (compare_runs(runs, margin=label) for label in (0.05, 0.001))
    sentences = {
        label: next(finding.says for finding in findings if finding.key == "compare_claims")
        for label, findings in (("wide", wide), ("narrow", narrow))
    }
    assert sentences["wide"].count("Equivalent within 5 points.") == 2
    assert "Equivalent" not in sentences["narrow"]
    with pytest.raises(InputError, match="--margin"):
        compare_runs(runs, margin=1.5)


def test_participants_who_read_the_same_draw_are_one_unit(tmp_path):
    """Ten draws of ten participants with equal answers are ten units, and not a hundred."""

    def write_run_with_draws(name: str, changed_draws: int) -> Path:
        folder = write_run(
            tmp_path / name, {"acp": (10 * changed_draws, 100), "simple_voting": (5, 100)}
        )
        path = folder / "tables" / "participants.parquet"
        table = pl.read_parquet(path)
        draw = pl.int_range(pl.len()).over("condition") // 10
        write_table(folder / "tables", "participants", table.with_columns(summary_draw=draw))
        return folder

    first, second = write_run_with_draws("first", 2), write_run_with_draws("second", 5)
    result = compute_comparison([first, second])
    acp = read_rows(result["compare_claims"])[0]
    assert (acp["units"], acp["unit"]) == (20, "draw of the summaries")
    assert str(acp["method"]).startswith("CR2") and acp["verdict"] == "neither shown nor ruled out"
    # With a hundred independent participants each, 50 against 20 of 100 would be significant.
    assert acp["difference"] == pytest.approx(0.3) and acp["p"] > 0.1
    # The t test over the means of draws, by hand: five ones of ten, and two.
    means = [[1.0] * 5 + [0.0] * 5, [1.0] * 2 + [0.0] * 8]
    assert acp["p"] == pytest.approx(float(ttest_ind(*means).pvalue))
    # No test of votes that were cast after shared texts.
    votes = {row["votes"]: row["p"] for row in read_rows(result["compare_votes"])}
    assert votes["initial"] == pytest.approx(1.0) and votes["final"] is None


def test_differences_are_stated_in_points(tmp_path):
    runs = [
        write_run(tmp_path / name, {"acp": (changed_count, 200), "simple_voting": (20, 200)})
        for name, changed_count in (("first", 34), ("second", 101))
    ]
    claims = compute_comparison(runs)["compare_claims"]
    row = read_rows(claims)[0]
    assert (row["second"], row["first"]) == (0.17, 0.505)
    assert str(row["in_words"]).startswith("+34 points, +24 to +42, adjusted p")
    chart_values = {line[0]: line[1] for line in claims.chart.items}
    label = "changed their choice in Adversarial (ACP): second − first"
    assert chart_values[label] == pytest.approx(33.5)
    for finding in compare_runs(runs):
        text = f"{finding.says} {' '.join(map(str, finding.grid.columns))}"
        assert not any(name in text for name in ("difference_rate", "effect_rate", "off by 3"))


def test_a_paired_comparison_is_clustered_by_conversation(tmp_path):
    """Eight groups of five take part in both runs. Gains differ only between groups."""

    def write_ratings_run(name: str, gains: list[float]) -> Path:
        rows = [
            {
                "group": group,
                "condition": "C1",
                "member_id": f"{group}.{member}",
                "rating": member % 3 + gains[group],
            }
            for group in range(8)
            for member in range(5)
        ]
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        write_table(folder / "tables", "measures", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: negotiation\n")
        (folder / "manifest.json").write_text(FINISHED_MANIFEST)
        return seal_participants(folder, "seed 1")

    gains = [0.1, 0.5, -0.2, 0.9, 0.3, 0.0, 0.4, -0.1]
    (row,) = read_rows(
        compute_comparison([write_ratings_run("one", [0.0] * 8), write_ratings_run("two", gains)])[
            "compare_figures"
        ]
    )
    test = ttest_1samp(gains, 0)
    assert (row["paired"], row["units"]) == (True, 8)
    assert row["p"] == pytest.approx(float(test.pvalue))
    bounds = test.confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx((bounds.low, bounds.high))


def write_village_run(folder: Path, participants: str, shift: float) -> Path:
    """Write answers of four people in each of twelve villages, in columns with unusual names."""
    rows = [
        {
            "who": f"{village}.{person}",
            "side": "north" if village % 2 else "south",
            "village": village,
            "trust": village % 4 + person / 10 + shift * (village % 3),
            "income": village % 5 + person / 10 + shift * (village % 3),
        }
        for village in range(12)
        for person in range(4)
    ]
    (folder / "tables").mkdir(parents=True)
    write_table(folder / "tables", "people", rows_to_frame(rows))
    (folder / "study.yaml").write_text("study: not_installed\n")
    (folder / "manifest.json").write_text(FINISHED_MANIFEST)
    seal_participants(folder, participants)
    trust = Claim("people.trust", ("north", "south"), "mean", by="side", unit_column="village")
    # Only one of the claims names the people.
    return seal_claims(
        folder,
        [
            replace(trust, family="primary"),
            replace(trust, at_least=2.0, kind="share", subject=("who",)),
        ],
    )


@pytest.mark.parametrize("participants", ["seed 1", "seed 2"])
def test_measures_without_a_claim_have_conditions_and_units_of_the_claims(tmp_path, participants):
    findings = compute_comparison(
        [
            write_village_run(tmp_path / "one", "seed 1", 0.0),
            write_village_run(tmp_path / "two", participants, 1.0),
        ]
    )
    are_same = participants == "seed 1"
    for key in ("compare_claims", "compare_figures"):
        rows = read_rows(findings[key])
        assert {row["condition"] for row in rows} == {"North", "South"}
        # Six villages of a side in each run.
        expected = ("village", 6 if are_same else 12, are_same)
        assert {(row["unit"], row["units"], row["paired"]) for row in rows} == {expected}
    assert {row["measure"] for row in read_rows(findings["compare_figures"])} == {"Income"}


def test_effects_are_compared_within_the_same_sets_or_between_sets(tmp_path):
    """The difference of effects is a t test over the same sets, or Welch's test of other sets."""
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

    def write_town_hall_run(name: str, participants: str) -> Path:
        folder = tmp_path / participants / name
        (folder / "tables").mkdir(parents=True)
        rows = [
            {
                "set": set_number,
                "level": level,
                "inclusivity": set_number % 4 + (level == "4") * gain,
            }
            for set_number, gain in enumerate(gains[name])
            for level in "14"
        ]
        write_table(folder / "tables", "discussions", rows_to_frame(rows))
        (folder / "study.yaml").write_text("study: town_hall\n")
        (folder / "manifest.json").write_text(FINISHED_MANIFEST)
        seal_participants(folder, participants if name == "second" else "seed 1")
        return seal_claims(folder, [claim])

    def compare_effect(participants: str) -> dict[str, TableCell]:
        finding = compute_comparison(
            [
                write_town_hall_run("first", participants),
                write_town_hall_run("second", participants),
            ]
        )["compare_effects"]
        return next(row for row in read_rows(finding) if row["run"] == "second − first")

    same_participants, other_participants = compare_effect("seed 1"), compare_effect("seed 2")
    second_minus_first = [
        second_gain - first_gain for first_gain, second_gain in zip(*gains.values(), strict=True)
    ]
    assert same_participants["p"] == pytest.approx(float(ttest_1samp(second_minus_first, 0).pvalue))
    assert (same_participants["units"], other_participants["units"]) == (6, 12)
    welch = ttest_ind(gains["second"], gains["first"], equal_var=False)
    assert other_participants["p"] == pytest.approx(float(welch.pvalue), rel=0.05)
    assert (same_participants["difference"], other_participants["difference"]) == pytest.approx(
        (0.4, 0.4)
    )


def test_an_unfinished_run_is_estimated_and_not_tested(base_run, tmp_path):
    half_run = write_run(tmp_path / "half", {"acp": (5, 50), "simple_voting": (4, 50)})
    (half_run / "manifest.json").write_text(json.dumps({"outcome": "paused"}))
    result = compute_comparison([base_run, half_run])
    interim = "interim figures of an unfinished run"
    assert "half did not finish" in result["designs"].says
    for key in ("compare_claims", "compare_effects", "compare_figures"):
        assert interim in result[key].says
        rows_between_runs = [row for row in read_rows(result[key]) if row.get("run") != "first"]
        assert rows_between_runs and all(
            row["p"] is row["holm_p"] is None for row in rows_between_runs
        )
        assert any(row["low"] is not None for row in rows_between_runs)
    sentence = result["compare_votes"].says
    assert sentence == (
        "Not tested against first: initial votes of half, final votes of half in Simple voting and "
        "final votes of half in Adversarial (ACP)."
    )


@pytest.mark.parametrize(("people", "p"), [(2, None), (4, None), (5, 2 / 252)])
def test_votes_of_few_people_are_tested_exactly_or_not_at_all(tmp_path, people, p):
    """Fewer than five people are an illustration in each table of a comparison."""
    files = []
    for name, number, choice in (("run", people, "parks"), ("more", 5, "jobs")):
        files.append(tmp_path / f"{name}.csv")
        rows = [f"h{i},parks,{choice}" for i in range(number)]
        files[-1].write_text("\n".join(["person,before,after", *rows]))
    votes = compute_comparison(files)["compare_votes"]
    initial, final = read_rows(votes)
    assert final["p"] == (p and pytest.approx(p))
    assert initial["p"] == (p and 1.0)
    if p is None:
        assert (
            votes.says == "Not tested against run: initial votes of more and final votes of more."
        )


def test_few_changed_votes_of_the_same_people_are_tested_exactly(tmp_path):
    """All five changed votes went from one option to another: p is that of five equal coins."""
    runs = [
        seal_participants(write_run(tmp_path / name, {"acp": (0, 30)}), "a")
        for name in ("first", "second")
    ]
    table = pl.read_parquet(runs[1] / "tables" / "participants.parquet")
    is_changed = (pl.col("final_choice") == "parks") & (pl.int_range(pl.len()) < 15)
    choice = pl.when(is_changed).then(pl.lit("jobs")).otherwise("final_choice")
    write_table(runs[1] / "tables", "participants", table.with_columns(final_choice=choice))
    _, final = read_rows(compute_comparison(runs)["compare_votes"])
    assert final["same_person_same_choice_share"] == pytest.approx(25 / 30)
    assert final["p"] == pytest.approx(2 / 32)


def test_untested_votes_are_reported_as_not_tested(base_run, tmp_path):
    """Final votes after shared texts are not independent, so only first votes are tested."""
    first = add_draws(base_run, 10, "a")
    second = write_run(tmp_path / "second", {"acp": (60, 150), "simple_voting": (12, 150)})
    sentence = compute_comparison([first, add_draws(second, 10, "b")])["compare_votes"].says
    assert sentence == (
        "That the shares of the options differ from those in first is not shown for initial votes "
        "of second and final votes of second in Simple voting. "
        "Not tested against first: final votes of second in Adversarial (ACP)."
    )


def test_a_difference_of_effects_without_variation_is_not_tested(tmp_path):
    """All of one condition change in the second run, and no participant in the first."""
    first = write_run(tmp_path / "first", {"acp": (0, 40), "simple_voting": (0, 40)})
    second = write_run(tmp_path / "second", {"acp": (40, 40), "simple_voting": (0, 40)})
    effects = compute_comparison([seal_participants(run, "a") for run in (first, second)])[
        "compare_effects"
    ]
    assert effects.says.endswith(
        "0 points in first, +100 points in second; their difference (+100 points): not tested "
        "(nothing varies between independent units)."
    )


def test_equal_effects_of_the_same_people_are_tested_without_an_interval(tmp_path):
    counts = {"acp": (20, 40), "simple_voting": (6, 40)}
    runs = [
        seal_participants(write_run(tmp_path / name, counts), "a") for name in ("first", "second")
    ]
    sentence = compute_comparison(runs)["compare_effects"].says
    assert sentence.endswith("that the effects differ is not shown (0 points, adjusted p > .99).")


def test_runs_with_one_condition_have_no_effects_to_compare(tmp_path):
    first = write_run(tmp_path / "first", {"simple_voting": (12, 150)})
    second = write_run(tmp_path / "second", {"simple_voting": (60, 150)})
    result = compute_comparison([first, second])
    (row,) = read_rows(result["compare_claims"])
    assert (row["condition"], row["difference"]) == ("Simple voting", pytest.approx(0.32))
    assert "compare_effects" not in result


def test_final_votes_are_compared_in_the_same_condition(base_run, tmp_path):
    """Humans who equal one condition of the run differ from its other condition."""
    participants = pl.read_parquet(base_run / "tables" / "participants.parquet")
    humans = participants.filter(pl.col("condition") == "simple_voting")
    file = tmp_path / "people.csv"
    humans.select("condition", "initial_choice", "final_choice").write_csv(file)
    rows = read_rows(compute_comparison([base_run, file])["compare_votes"])
    assert [(row["votes"], row["condition"]) for row in rows] == [
        ("initial", "Simple voting"),
        ("final", "Simple voting"),
    ]
    assert {row["total_variation_distance_points"] for row in rows} == {0}


@pytest.mark.parametrize("unit_column", ["group", "village"])
def test_final_votes_of_humans_who_talked_in_groups_are_not_tested(base_run, tmp_path, unit_column):
    if unit_column == "village":
        # Only a claim of the run tells that people of a village talked to each other.
        read_table = pl.read_parquet(base_run / "tables" / "participants.parquet")
        villages = read_table.with_columns(pl.int_range(pl.len()).cast(pl.String).alias("village"))
        write_table(base_run / "tables", "participants", villages)
        claim = Claim("participants.position_changed", ("acp", "simple_voting"))
        seal_participants(base_run, "seed 1")
        seal_claims(base_run, [replace(claim, by="condition", unit_column="village")])
    file = tmp_path / "people.csv"
    rows = [
        f"g{i // 50},h{i},simple_voting,{OPTIONS[i % 3]},{OPTIONS[i // 50]}" for i in range(100)
    ]
    file.write_text("\n".join([f"{unit_column},person,arm,before,after", *rows]))
    result = compute_comparison([base_run, file])
    votes = {row["votes"]: row for row in read_rows(result["compare_votes"])}
    assert votes["initial"]["p"] is not None and votes["final"]["p"] is None
    assert "Not tested against first: final votes of people" in result["compare_votes"].says
    # The distance by chance assumes independent votes as well.
    by_chance = {
        row["measure"]: row["by_chance"] for row in read_rows(result["people_calibration"])
    }
    assert by_chance["initial choice"] is not None and by_chance["final choice"] is None
