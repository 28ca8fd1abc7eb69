"""Claims computed from tables: rows, subjects and units that count, and families of claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike
from scipy.stats import ttest_1samp

from folkmoot.engine.settings import claims as claims_of_run
from folkmoot.engine.settings.claimed_tables import design_of
from folkmoot.engine.settings.claims import (
    as_declared,
    evaluate_claims,
    join_claims,
    read_sides,
)
from folkmoot.engine.settings.hypotheses import check_claims
from folkmoot.measures.inference.claims import ACROSS, MOST_PRIMARY, Claim
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.families import judge_families
from folkmoot.storage.run_folder import RunFolder
from tests.engine.test_hypotheses import build_vote_rows, write_run_with_table

SHARE_CHANGED = Claim("participants.position_changed", ("acp", "simple_voting"))
POSITION_CHANGE = Claim(
    "statements.position",
    ("after", "before"),
    "mean",
    by="when",
    where=(("stimulus", ("tea",)),),
    subject=("group", "persona_id"),
    paired=True,
)


def write_statements(folder: Path, groups: int, left_out: tuple[str, ...] = ()) -> RunFolder:
    """Write positions that rise by .2 after the discussion, and by .3 in the first group."""
    rows = [
        {
            "group": f"g{group_number}",
            "persona_id": f"p{i}",
            "stimulus": stimulus,
            "when": when,
            "position": None
            if when == "after" and f"g{group_number}p{i}" in left_out
            else i / 10 + (0.0 if when == "before" else 0.3 if group_number == 0 else 0.2),
        }
        for group_number in range(groups)
        for i in range(4)
        for stimulus in ("tea", "coffee")
        for when in ("before", "after")
    ]
    return write_run_with_table(folder, rows, "statements")


def test_paired_claim_is_the_mean_difference_within_subjects_clustered_by_unit(
    tmp_path: Path,
) -> None:
    (result,) = evaluate_claims(write_statements(tmp_path / "run", 6), [POSITION_CHANGE])
    assert result.estimate.value == pytest.approx((0.3 + 5 * 0.2) / 6)
    assert (result.estimate.clusters, result.counts) == (6, (24, 24))
    assert result.claim.unit == "group" and result.estimate.method.startswith("CR2")


def test_arms_can_be_columns_of_one_row(tmp_path: Path) -> None:
    rows = [
        {"set": n, "level": level, "post_score": n % 3 + 1, "pre_score": None if n == 7 else n % 2}
        for n in range(8)
        for level in ("1", "2")
    ]
    claim = Claim(
        "held.score",
        ("post", "pre"),
        "mean",
        by=ACROSS,
        where=(("level", ("2",)),),
        subject=("set",),
        paired=True,
    )
    (result,) = evaluate_claims(write_run_with_table(tmp_path / "run", rows, "held"), [claim])
    differences = [n % 3 + 1 - n % 2 for n in range(7)]
    expected = ttest_1samp(differences, 0)
    assert result.estimate.value == pytest.approx(np.mean(differences))
    assert result.estimate.p == pytest.approx(expected.pvalue)
    assert (result.counts, result.lost, result.claim.unit) == ((7, 7), (1, 1), "set")
    claim_on_missing_arm = replace(claim, contrast=("post", "later"))
    assert (
        "no table has held.score"
        in evaluate_claims(RunFolder(tmp_path / "run"), [claim_on_missing_arm])[0].why
    )


def test_subject_missing_in_one_arm_is_dropped_from_both_arms_of_a_paired_claim(
    tmp_path: Path,
) -> None:
    left_out = ("g0p0", "g0p1", "g0p2", "g0p3")
    (result,) = evaluate_claims(write_statements(tmp_path / "run", 7, left_out), [POSITION_CHANGE])
    assert result.estimate.value == pytest.approx(0.2)
    assert result.lost == (4, 4) and result.estimate.clusters == 6


def test_too_few_units_are_not_tested_for_any_number_of_subjects(tmp_path: Path) -> None:
    (result,) = evaluate_claims(write_statements(tmp_path / "run", 4), [POSITION_CHANGE])
    assert result.why and not result.is_tested and not result.estimate.has_interval


def test_rows_of_one_subject_are_averaged_and_a_threshold_makes_a_share(tmp_path: Path) -> None:
    rows = [
        {"participant_id": f"{arm}{i}", "treatment": arm, "give": (10 if arm == "b" else 2) + k}
        for arm in "ab"
        for i in range(8)
        for k in range(3)
    ]
    run = write_run_with_table(tmp_path / "run", rows, "answers_of_people")
    claim = Claim("answers_of_people.give", ("b", "a"), "mean", subject=("participant_id",))
    sides = read_sides(run, claim)
    assert not isinstance(sides, str)
    assert len(sides[1].values) == len(sides[2].values) == 8
    reaching = replace(claim, kind="share", at_least=10.0)
    assert evaluate_claims(run, [reaching])[0].estimate.value == 1.0


def write_rounds(folder: Path, missing: str = "") -> RunFolder:
    """Write two rounds of 24 participants. Both conditions give about 1, then about 10.

    - `missing`: the round that every second participant of b leaves out, for example "first".
    """
    rows = [
        {
            "participant_id": f"{arm}{i}",
            "treatment": arm,
            "task": task,
            "give": None if arm == "b" and i % 2 and task == missing else level + i % 3 - 1,
        }
        for arm in "ab"
        for i in range(12)
        for task, level in (("first", 1), ("second", 10))
    ]
    return write_run_with_table(folder, rows, "games")


ROUNDS_CLAIM = Claim(
    "games.give", ("b", "a"), "mean", subject=("participant_id",), repeated=("task",)
)


def test_missing_rounds_make_no_effect_of_a_treatment(tmp_path: Path) -> None:
    (result,) = evaluate_claims(write_rounds(tmp_path / "run", "first"), [ROUNDS_CLAIM])
    assert result.estimate.value == pytest.approx(0, abs=0.2) and result.verdict != "supported"
    assert result.means == pytest.approx((5.5, 5.5), abs=0.1)
    # Every participant of b has one value or two.
    assert (result.counts, result.lost, result.missing_rounds) == ((12, 12), (0, 0), (6, 0))
    finding = claims_of_run.tested_finding([result])
    assert finding is not None and finding.grid.columns[-4:-2] == (
        "missing_rounds_first",
        "missing_rounds_second",
    )
    assert "Missing rounds" in finding.grid.caption


def test_complete_rounds_are_averaged_for_each_participant(tmp_path: Path) -> None:
    run = write_rounds(tmp_path / "run")
    averaged, plain = evaluate_claims(run, [ROUNDS_CLAIM, replace(ROUNDS_CLAIM, repeated=())])
    assert (averaged.estimate, averaged.means) == (plain.estimate, plain.means)
    finding = claims_of_run.tested_finding([averaged])
    assert finding is not None and "missing_rounds_first" not in finding.grid.columns
    assert "Missing rounds" not in finding.grid.caption


def test_round_that_one_condition_lacks_is_left_out_of_both(tmp_path: Path) -> None:
    rows = [
        {
            "participant_id": f"{arm}{i}",
            "treatment": arm,
            "task": task,
            "give": None if (arm, task) == ("b", "late") else level + i % 3,
        }
        for arm in "ab"
        for i in range(8)
        for task, level in (("early", 1), ("late", 100))
    ]
    run = write_run_with_table(tmp_path / "run", rows, "games")
    (result,) = evaluate_claims(run, [ROUNDS_CLAIM])
    assert result.estimate.value == pytest.approx(0)
    early_in_a = [row | {"give": None} for row in rows if row["treatment"] == "a"][::2]
    rest = [row for row in rows if row["treatment"] == "b" or row["task"] == "late"]
    run = write_run_with_table(tmp_path / "apart", [*early_in_a, *rest], "games")
    (result,) = evaluate_claims(run, [ROUNDS_CLAIM])
    assert "no round has values in both b and a" in result.why


@pytest.mark.parametrize("unknown", ["no row", "NaN", "NaN and null"])
def test_round_is_missing_however_a_table_records_it(unknown: str, tmp_path: Path) -> None:
    rows = write_rounds(tmp_path / "complete").read_table("games").rows(named=True)
    kept = []
    for row in rows:
        person = int(row["participant_id"][1:])
        is_missing = row["treatment"] == "b" and person % 2 == 1 and row["task"] == "first"
        if unknown == "NaN and null" and row["participant_id"] == "b2" and row["task"] == "first":
            kept.append(row | {"give": None})
        elif not is_missing:
            kept.append(row)
        elif unknown != "no row":
            kept.append(row | {"give": math.nan})
    table = pl.DataFrame(kept, infer_schema_length=None, strict=False)
    found = claims_of_run.read_rows(table, "give", ROUNDS_CLAIM)
    assert not isinstance(found, str)
    means = dict(found[1].group_by("arm").agg(pl.col("value").mean()).iter_rows())
    assert means == pytest.approx({"a": 5.5, "b": 5.5}, abs=0.2)


def test_roles_that_answer_different_rounds_miss_none() -> None:
    rows = [
        {"participant_id": f"{treatment}{i}", "treatment": treatment, "task": task, "give": give}
        for treatment in "ab"
        for i, (task, give) in enumerate([("first", 10.0), *[("second", 2.0)] * 3])
    ]
    found = claims_of_run.read_rows(pl.DataFrame(rows), "give", ROUNDS_CLAIM)
    assert not isinstance(found, str)
    # Every participant counts equally.
    assert sorted(found[1]["value"].to_list()) == [2.0] * 6 + [10.0] * 2


def test_shares_with_missing_rounds_are_still_shares() -> None:
    """Participants without the second round, which has a higher level, are moved above 1."""
    rows = [
        {
            "participant_id": f"{treatment}{i}",
            "treatment": treatment,
            "task": task,
            "kept_share": None if task == "second" and i % 2 else value,
        }
        for treatment in "ab"
        for i in range(8)
        for task, value in (("first", i % 4 / 4), ("second", 1.0))
    ]
    claim = replace(ROUNDS_CLAIM, measure="games.kept_share")
    found = claims_of_run.read_rows(pl.DataFrame(rows), "kept_share", claim)
    assert not isinstance(found, str)
    resolved, subjects = found
    assert subjects["value"].max() > 1 and resolved.is_mean_of_shares


def test_missing_experiment_of_a_session_makes_no_effect_of_its_treatment() -> None:
    rows = [
        {
            "experiment_id": experiment,
            "session": f"{treatment}{i}",
            "participant_id": "p",
            "treatment": treatment,
            "task": "first",
            "give": level + i % 3,
        }
        for experiment, level in (("e1", 0.0), ("e2", 50.0))
        for treatment in "ab"
        for i in range(6)
        if (experiment, treatment) != ("e1", "b") or i < 3
    ]
    subject = ("experiment_id", "session", "participant_id")
    claim = replace(ROUNDS_CLAIM, subject=subject, repeated=("experiment_id", "task"))
    found = claims_of_run.read_rows(pl.DataFrame(rows), "give", claim)
    assert not isinstance(found, str)
    means = dict(found[1].group_by("arm").agg(pl.col("value").mean()).iter_rows())
    assert means == pytest.approx({"a": 26.0, "b": 26.0})


def test_answer_that_does_not_count_excludes_its_participant(tmp_path: Path) -> None:
    rows = [
        {"participant_id": f"{arm}{i}", "treatment": arm, "give": i, "status": status}
        for arm in "ab"
        for i in range(8)
        for status in ("invalid" if arm == "b" and i < 2 else "valid",)
    ]
    run = write_run_with_table(tmp_path / "run", rows, "games")
    claim = Claim("games.give", ("b", "a"), "mean", where=(("status", ("valid", None)),))
    (result,) = evaluate_claims(run, [claim])
    assert (result.counts, result.lost) == ((6, 8), (2, 0))


@pytest.mark.parametrize(
    "status",
    [
        ("valid", "valid"),
        ("passed", "failed"),
        ("complete", "hung"),
        ("failed", "complete"),
        (1, 2),
    ],
)
def test_status_without_endings_excludes_no_participant(
    status: tuple[object, object], tmp_path: Path
) -> None:
    rows = [{**row, "status": status[row["position_changed"]]} for row in build_vote_rows(40, 10)]
    (result,) = evaluate_claims(write_run_with_table(tmp_path / "run", rows), [SHARE_CHANGED])
    assert (result.counts, result.lost) == ((100, 100), (0, 0))
    assert result.estimate.value == pytest.approx(0.3)


def test_a_claim_selects_rows_by_a_study_types_own_status(tmp_path: Path) -> None:
    rows = [
        {**row, "status": "employed" if i % 2 else "retired"}
        for i, row in enumerate(build_vote_rows(40, 10))
    ]
    run = write_run_with_table(tmp_path / "run", rows)
    where = (("status", ("employed",)),)
    (result,) = evaluate_claims(run, [replace(SHARE_CHANGED, where=where)])
    assert (result.counts, result.lost) == ((50, 50), (0, 0))


def write_villages(folder: Path, unit: str, arm: str = "condition") -> RunFolder:
    """Write the scores of six participants in each of twelve villages, with named columns."""
    rows = [
        {
            "participant_id": f"p{village}_{n}",
            arm: "talk" if village % 2 else "read",
            unit: f"v{village}",
            "score": float(village % 5 + n % 2),
        }
        for village in range(12)
        for n in range(6)
    ]
    return write_run_with_table(folder, rows, "people")


SCORE = Claim("people.score", ("talk", "read"), "mean", by="condition")


def test_a_claim_names_the_column_with_the_independent_units(tmp_path: Path) -> None:
    named = evaluate_claims(
        write_villages(tmp_path / "village", "village"), [replace(SCORE, unit_column="village")]
    )
    usual = evaluate_claims(write_villages(tmp_path / "group", "group"), [SCORE])
    assert named[0].estimate == usual[0].estimate and named[0].estimate.unit_count == 12
    assert (named[0].claim.unit, usual[0].claim.unit) == ("village", "group")
    (unnamed,) = evaluate_claims(RunFolder(tmp_path / "village"), [SCORE])
    assert unnamed.claim.unit == "participant" and unnamed.estimate.unit_count == 72
    absent = replace(SCORE, unit_column="town")
    assert "has no town" in evaluate_claims(RunFolder(tmp_path / "village"), [absent])[0].why
    with pytest.raises(ValueError, match="the conditions are no independent units"):
        replace(SCORE, unit_column="condition")


@pytest.mark.parametrize("row_ids", [(), ("id",)])
def test_named_subjects_are_the_units_of_a_table_without_usual_ids(
    row_ids: tuple[str, ...], tmp_path: Path
) -> None:
    """Seven people give four answers each. A column `id` may hold the ids of the answers."""
    rows = [
        {"person_code": f"r{person}", "arm": arm, "round": answer, "score": person + answer + gain}
        | dict.fromkeys(row_ids, f"{person}.{arm}.{answer}")
        for person in range(7)
        for arm, gain in (("before", 0.0), ("after", 1.0 + person / 10))
        for answer in range(4)
    ]
    run = write_run_with_table(tmp_path / "run", rows, "answered")
    paired = Claim(
        "answered.score",
        ("after", "before"),
        "mean",
        by="arm",
        subject=("person_code",),
        paired=True,
    )
    between = replace(paired, paired=False)
    results = evaluate_claims(run, [paired, between])
    expected = ttest_1samp([1.0 + person / 10 for person in range(7)], 0)
    assert results[0].estimate.p == pytest.approx(expected.pvalue)
    for result in results:
        assert (result.counts, result.lost) == ((7, 7), (0, 0))
        assert (result.claim.unit, result.estimate.unit_count) == ("person_code", 7)
    columns = {"person_code": "text", "arm": "text", "round": "int", "score": "float"}
    assert as_declared(paired, {"answered": columns}).unit == "person_code"
    # With a condition in each column, both values of a subject are in one row. Only one of the
    # columns has fractions.
    wide = [
        {"person_code": f"r{person}", "before_score": person, "after_score": person + 1 + gain}
        for person, gain in enumerate((0.1, 0.2, 0.3, 0.0, 0.1, 0.4))
    ]
    (across,) = evaluate_claims(
        write_run_with_table(tmp_path / "wide", wide, "answered"), [replace(paired, by=ACROSS)]
    )
    assert (across.claim.unit, across.counts) == ("person_code", (6, 6))


def test_a_sealed_claim_keeps_the_usual_columns_beside_claims_that_name_others() -> None:
    sealed = Claim("people.score", ("a", "b"), "mean")
    declared = [replace(sealed, by="when", contrast=("after", "before"), subject=("person_code",))]
    read = as_declared(sealed, {}, declared)
    assert (read.by, read.subject) == ("", ())


def test_the_conditions_are_no_units_whatever_their_column_is_called(tmp_path: Path) -> None:
    run = write_villages(tmp_path / "run", "village", arm="group")
    (result,) = evaluate_claims(run, [replace(SCORE, by="group", unit_column="village")])
    assert (result.claim.unit, result.estimate.unit_count) == ("village", 12)
    (result,) = evaluate_claims(run, [replace(SCORE, by="group")])
    assert (result.claim.unit, result.estimate.unit_count) == ("participant", 72)
    tables = {"people": {"participant_id": "text", "group": "text", "score": "float"}}
    assert as_declared(replace(SCORE, by="group"), tables).unit == "participant"


def test_a_hypothesis_has_the_units_of_the_claims_about_its_table() -> None:
    columns = {"participant_id": "text", "condition": "text", "village": "text", "age": "int"}
    tables = {"people": columns | {"score": "float"}}
    declared = [replace(SCORE, unit_column="village")]
    for measure in ("score", "people.age"):
        stated = Claim(measure, ("talk", "read"), "mean", unit="unit of the table")
        resolved = as_declared(stated, tables, declared)
        assert (resolved.unit_column, resolved.unit) == ("village", "village")
        assert "Independent unit: village." in resolved.estimand


@pytest.mark.parametrize("who", ["who", "participant_id"])
@pytest.mark.parametrize("is_paired", [False, True])
def test_a_hypothesis_counts_the_rows_of_the_claim_about_its_contrast(
    tmp_path: Path, who: str, is_paired: bool
) -> None:
    claim = Claim("panel.score", ("a", "b"), "mean", subject=(who,), repeated=("wave",))
    claim = replace(claim, by="arm", paired=is_paired)
    # Later waves have higher values, and one participant misses the last wave.
    rows = [
        {who: f"p{person}", "wave": wave, "arm": arm, "score": score}
        for person in range(8)
        for wave in range(3)
        for arm in "ab"
        if is_paired or arm == "ab"[person % 2]
        for score in [5.0 * wave + (arm == "a") + person * wave % 3]
        if (person, wave, arm) != (1, 2, "b")
    ]
    run = write_run_with_table(tmp_path / "run", rows, "panel")
    tables = {"panel": {who: "text", "wave": "int", "arm": "text", "score": "float"}}
    stated = Claim("score", ("a", "b"), "mean", unit="unit of the table")
    resolved = as_declared(stated, tables, [claim])
    (planned,), (result,) = evaluate_claims(run, [claim]), evaluate_claims(run, [resolved])
    assert result.estimate == planned.estimate
    assert (result.counts, result.missing_rounds) == (planned.counts, planned.missing_rounds)
    assert resolved.unit == result.claim.unit == planned.claim.unit
    # Other conditions of the same measure have the same rounds.
    other = as_declared(replace(stated, contrast=("a", "c")), tables, [claim])
    assert (other.subject, other.repeated, other.paired) == ((who,), ("wave",), False)


def test_rounds_in_the_subject_of_a_claim_are_no_units_of_other_measures() -> None:
    claim = Claim("panel.score", ("a", "b"), "mean", by="arm")
    claim = replace(claim, subject=("wave", "who"), repeated=("wave",))
    rows = [
        {"who": f"p{person}", "wave": wave, "arm": "ab"[person % 2], "score": 1.0, "trust": wave}
        for person in range(6)
        for wave in range(3)
    ]
    table = pl.DataFrame(rows)
    design = design_of(table.columns, [claim])
    for measure in (claim, design.apply_to(Claim("panel.trust", ("a", "b"), "mean"))):
        read = claims_of_run.read_rows(table, measure.measure.rpartition(".")[2], measure)
        assert not isinstance(read, str)
        assert (read[0].unit, read[1]["unit"].n_unique()) == ("who", 6)
    units = design.units_of(table)
    assert (units.name, units.of.n_unique()) == ("who", 6)


@pytest.mark.parametrize(
    ("changes", "says", "estimand"),
    [
        (
            {"at_least": 3.0, "kind": "share"},
            "Score of at least 3: talk and read differ",
            "like those of this run, the share with “score of at least 3” in talk minus",
        ),
        (
            {"where": (("village", ("v0", "v1", "v2", "v3")), ("score", (1.0, None)))},
            "Score (village: v0, v1, v2 and 1 more; score: 1.0 and empty): talk and read differ",
            "(village: v0, v1, v2 and 1 more; score: 1.0 and empty), the mean of “score” in",
        ),
        (
            {"where": (("village", ("v0", "v1")),), "outcome": "warmth"},
            "Warmth (village: v0 and v1): talk and read differ",
            "like those of this run (village: v0 and v1), the mean of “warmth” in talk",
        ),
        (
            {
                "where": (("village", ("v0", "v1")),),
                "outcome": "score in both",
                "outcome_says_rows": True,
            },
            "Score in both: talk and read differ",
            "like those of this run (village: v0 and v1), the mean of “score in both” in talk",
        ),
    ],
)
def test_a_claim_without_words_names_the_rows_and_values_that_count(
    changes: dict[str, object], says: str, estimand: str, tmp_path: Path
) -> None:
    run = write_villages(tmp_path / "run", "village")
    (result,) = evaluate_claims(run, [replace(SCORE, **changes)])  # type: ignore[arg-type]
    assert result.claim.says.startswith(says)
    assert estimand in result.claim.estimand


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"measure": "nowhere.x"}, "no table has nowhere.x"),
        ({"by": "colour"}, "no table has"),
        ({"where": (("colour", ("red",)),)}, "has no colour"),
        ({"contrast": ("acp", "talk")}, "no condition talk"),
    ],
)
def test_claim_on_data_that_the_run_lacks_is_not_tested(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    run = write_run_with_table(tmp_path / "run", build_vote_rows(40, 10))
    result = evaluate_claims(run, [replace(SHARE_CHANGED, **changes)])[0]  # type: ignore[arg-type]
    assert reason in result.why and result.verdict.startswith("cannot be tested")


def test_a_condition_in_which_no_one_finished_is_no_unknown_condition(tmp_path: Path) -> None:
    rows = build_vote_rows(40, 10)
    for row in rows:
        row["status"] = "skipped" if row["condition"] == "acp" else "complete"
        row["error_message"] = None
    run = write_run_with_table(tmp_path / "run", rows)
    result, other = evaluate_claims(
        run, [SHARE_CHANGED, replace(SHARE_CHANGED, contrast=("a",) * 2)]
    )
    assert result.why == "no one finished in condition acp"
    assert other.why == "no condition a; there are acp, simple_voting"


@pytest.mark.parametrize(
    ("changes", "expected_text"),
    [
        ({}, ""),
        ({"measure": "score"}, ""),
        (
            {"measure": "votes.scor"},
            "claims[1].measure: there is no column scor in the table votes",
        ),
        (
            {"measure": "votess.score"},
            "there is no table votess in this study (did you mean votes?)",
        ),
        # A protocol may record tables and columns that it does not declare.
        ({"measure": "talks.length", "by": "town"}, ""),
        ({"measure": "length"}, ""),
        ({"measure": "scor"}, "there is no column scor in any table"),
        ({"measure": "votes.name"}, "name is a text"),
        ({"by": "colour"}, "claims[1].by: there is no column colour in the table votes"),
        ({"by": ""}, "the table votes has no conditions to compare"),
        ({"by": ACROSS}, ""),
        ({"by": ACROSS, "contrast": ("later", "b")}, "there is no column later_score"),
        ({"unit_column": "arm", "by": "round", "contrast": ("1", "2")}, ""),
        (
            {"unit_column": "town"},
            "claims[1].unit_column: there is no column town in the table votes",
        ),
        ({"subject": ("juror",)}, "claims[1].subject: there is no column juror"),
        (
            {"where": (("rond", (1,)),)},
            "claims[1].where: there is no column rond in the table votes ",
        ),
        ({"contrast": ("a", "c")}, "claims[1].contrast: there is no arm c in this study"),
        ({"contrast": ("a", "a")}, "claims[1].contrast: must name two different conditions"),
        ({"direction": "equivalent"}, "claims[1].margin: equivalent needs a margin"),
        ({"measure": "votes.kept", "margin": 5.0}, "write margin: 0.05 for 5 points"),
    ],
)
def test_claims_are_compared_with_declared_tables_and_conditions(
    changes: dict[str, object], expected_text: str
) -> None:
    columns = {"arm": "text", "name": "text", "round": "int", "score": "float", "kept": "bool"}
    tables = {"votes": columns | {"a_score": "float", "b_score": "float"}}
    claim = replace(Claim("votes.score", ("a", "b"), "mean", by="arm"), **changes)  # type: ignore[arg-type]
    problems = check_claims([claim], tables, {"arm": {"a": "A", "b": "B"}})
    assert bool(problems) == bool(expected_text)
    assert expected_text in "".join(map(str, problems))


@pytest.mark.parametrize("returned", [None, Claim("votes.score", ("a", "b")), ["score"]])
def test_claims_that_are_no_list_of_claims_are_refused(returned: object) -> None:
    (problem,) = check_claims(returned, {}, {})
    assert problem.key == "claims" and "must be a list of Claim" in problem.message


def test_more_than_three_primary_claims_are_refused() -> None:
    claims = [Claim(f"votes.score{n}", ("a", "b"), family="primary") for n in range(4)]
    assert check_claims(claims[:3], {}, {}) == []
    (problem,) = check_claims(claims, {}, {})
    assert problem.message == "4 claims are primary, and at most 3 may be"


def build_side(values: ArrayLike, arm: str) -> Side:
    numbers = np.asarray(values, float)
    return Side.from_values(numbers, [f"{arm}{i}" for i in range(len(numbers))])


def build_shares(hits: int, n: int = 100) -> tuple[Side, Side]:
    return build_side([i < hits for i in range(n)], "a"), build_side(
        [i < 10 for i in range(n)], "b"
    )


def test_families_are_adjusted_separately() -> None:
    claims = [
        replace(SHARE_CHANGED, contrast=(f"{family}{n}", "x"), family=family)  # type: ignore[arg-type]
        for family in ("primary", "secondary", "exploratory")
        for n in range(3)
    ]
    hits = dict(zip(claims, (30, 22, 12, 30, 21, 12, 30, 12, 12), strict=True))
    judged_alone = judge_families(claims[:3], lambda claim: (claim, *build_shares(hits[claim])))
    judged_together = judge_families(claims, lambda claim: (claim, *build_shares(hits[claim])))
    assert [result.adjusted_p for result in judged_alone] == [
        result.adjusted_p for result in judged_together[:3]
    ]
    assert [result.joint is not None for result in judged_together] == [True] * 3 + [False] * 6
    # 21 of 100 against 10: p is .03 for a single test, and larger after adjustment for three tests.
    second_family_claim = judged_together[4]
    assert (
        second_family_claim.estimate.p < 0.05 < second_family_claim.adjusted_p
        and second_family_claim.verdict == "neither shown nor ruled out"
    )


def test_primary_claims_that_cannot_be_tested_still_count_in_the_adjustment() -> None:
    claims = [replace(SHARE_CHANGED, contrast=(str(n), "x"), family="primary") for n in range(3)]
    read_shares = lambda c: (c, *build_shares(30)) if c.contrast[0] == "0" else "there is none"  # noqa: E731
    first = judge_families(claims, read_shares)[0]
    assert first.adjusted_p == pytest.approx(3 * first.estimate.p)


def test_false_positives_among_primary_claims_stay_at_five_percent() -> None:
    rng = np.random.default_rng(31)
    claims = [replace(SHARE_CHANGED, contrast=(str(n), "x"), family="primary") for n in range(3)]
    alarms = 0
    for _ in range(400):
        base = build_side(rng.random(100) < 0.2, "b")
        samples = {claim: (build_side(rng.random(100) < 0.2, "a"), base) for claim in claims}
        results = judge_families(claims, lambda claim, samples=samples: (claim, *samples[claim]))  # type: ignore[misc]
        alarms += any(result.verdict == "supported" for result in results)
    assert alarms <= 28


def test_declared_claim_equal_to_a_hypothesis_is_not_repeated() -> None:
    stated = Claim("satisfaction", ("C5", "C4"), "mean", "greater", 0.1, "primary")
    claim = Claim(
        "measures.satisfaction", ("C5", "C4"), "mean", family="primary", subject=("g",), paired=True
    )
    other_contrast = replace(claim, contrast=("C4", "C3"))
    filtered_claim = replace(claim, where=(("group_type", ("spouses",)),))
    joined = join_claims([stated], [claim, other_contrast, filtered_claim])
    assert joined == [
        stated,
        *(replace(variant, family="exploratory") for variant in (other_contrast, filtered_claim)),
    ]
    assert join_claims([], [claim, other_contrast]) == [claim, other_contrast]


def test_each_study_has_at_most_three_primary_claims_with_estimands() -> None:
    from folkmoot.engine.study.study_file import load_study_file

    examples = Path(__file__).parents[2] / "examples"
    files = ("cross_pollination.yaml", "focus_group.yaml", "negotiation.yaml", "town_hall.yaml")
    for name in (*files, "public_goods.xlsx"):
        loaded = load_study_file(examples / name)
        claims = list(loaded.study.claims(loaded.config))
        assert claims and len(claims) == len(set(claims))
        assert 1 <= sum(claim.family == "primary" for claim in claims) <= MOST_PRIMARY
        for claim in claims:
            assert "independent unit: " in claim.estimand and claim.by and claim.outcome


def test_missing_round_of_a_role_changes_no_value_of_another_role() -> None:
    """Sellers answer the first two rounds, buyers the others, which are higher by 100."""

    def read_values(missing: Sequence[tuple[str, str]]) -> dict[str, float]:
        rows = [
            {
                "participant_id": f"{role}{i}{treatment}",
                "treatment": treatment,
                "task": task,
                "give": None if (f"{role}{i}", task) in missing else level + float(i),
            }
            for treatment in "ab"
            for role, tasks in (("s", {"r1": 0, "r2": 10}), ("b", {"r3": 100, "r4": 120}))
            for i in range(6)
            for task, level in tasks.items()
        ]
        found = claims_of_run.read_rows(pl.DataFrame(rows), "give", ROUNDS_CLAIM)
        assert not isinstance(found, str)
        return dict(found[1].select("participant_id", "value").iter_rows())

    complete = read_values([])
    assert complete["s0a"] == 5 and complete["b0a"] == 110
    assert read_values([("s0", "r1"), ("b3", "r4")]) == pytest.approx(complete, abs=1e-3)


def test_column_of_rounds_may_have_any_name() -> None:
    rows = [
        {
            "participant_id": f"{arm}{i}",
            "treatment": arm,
            "index": k,
            "value": None if i == k else k,
        }
        for arm in "ab"
        for i in range(8)
        for k in range(3)
    ]
    claim = replace(ROUNDS_CLAIM, measure="games.value", repeated=("index",))
    found = claims_of_run.read_rows(pl.DataFrame(rows), "value", claim)
    assert not isinstance(found, str)
    assert found[1]["value"].to_list() == pytest.approx([1.0] * 16, abs=1e-4)


def test_paired_claim_excludes_subjects_of_one_condition_from_the_levels_of_rounds(
    tmp_path: Path,
) -> None:
    rows = [
        {
            "participant_id": f"p{i}",
            "treatment": treatment,
            "task": task,
            # The last participant, with other levels, answers in one condition alone.
            "give": None
            if (i == 0 and task == "first") or (i == 9 and treatment == "a")
            else (level + i % 3 if i < 9 else 1000.0 * level),
        }
        for treatment in "ab"
        for i in range(10)
        for task, level in (("first", 1), ("second", 10))
    ]
    run = write_run_with_table(tmp_path / "run", rows, "games")
    (result,) = evaluate_claims(run, [replace(ROUNDS_CLAIM, paired=True)])
    assert result.estimate.value == pytest.approx(0, abs=1e-3)
    assert (result.counts, result.lost) == ((9, 9), (1, 1))


def test_paired_claim_leaves_out_rounds_that_its_subjects_have_in_one_condition_alone(
    tmp_path: Path,
) -> None:
    # The last participant is excluded, and alone answers the last round in one condition.
    levels = {"first": 1.0, "second": 10.0, "third": 100.0}
    rows = [
        {"participant_id": f"p{i}", "treatment": arm, "task": task, "give": level + i % 3}
        for arm in "ab"
        for i in range(10)
        for task, level in levels.items()
        if (arm == "b" if i == 9 else arm == "a" or task != "third")
    ]
    run = write_run_with_table(tmp_path / "run", rows, "games")
    (result,) = evaluate_claims(run, [replace(ROUNDS_CLAIM, paired=True)])
    assert result.estimate.value == pytest.approx(0, abs=1e-3)
    assert (result.counts, result.lost) == ((9, 9), (1, 1))


@pytest.mark.parametrize("arm", ["a", None])
def test_a_share_with_missing_rounds_is_at_most_one_in_each_arm(arm: str | None) -> None:
    # Those who answer the second round are below their own level of the first one.
    values = {"p": (1, 1), "q": (1, None), "r": (0, 1), "s": (1, None), "t": (1, None)}
    rows = pl.DataFrame(
        [
            {"participant": name, "unit": name, "arm": arm, "round": task, "value": value}
            for name, answers in values.items()
            for task, value in enumerate(answers)
        ],
        schema_overrides={"arm": pl.String, "value": pl.Float64},
    )
    subject, repeated = ["participant"], ["round"]
    linear, share = (
        claims_of_run.average_rounds(rows, subject, repeated, are_shares=are_shares)["value"]
        for are_shares in (False, True)
    )
    assert linear.mean() == pytest.approx(1.05, abs=1e-4)
    assert share.mean() == pytest.approx(1)
    assert share.std() == pytest.approx(linear.std())
