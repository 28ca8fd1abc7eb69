"""Claims read from tables: which rows, subjects and units count, and families of claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import ttest_1samp

from folkmoot.engine.settings.claims import evaluate_claims, join_claims, read_sides
from folkmoot.measures.inference.claims import ACROSS, MOST_PRIMARY, Claim
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.families import judge_families
from folkmoot.storage.run_folder import RunFolder
from tests.engine.test_hypotheses import run_of, votes

CHANGED = Claim("participants.position_changed", ("acp", "simple_voting"))
MOVED = Claim(
    "statements.position",
    ("after", "before"),
    "mean",
    by="when",
    where=(("stimulus", ("tea",)),),
    subject=("group", "persona_id"),
    paired=True,
)


def statements(folder: Path, groups: int, lost: tuple[str, ...] = ()) -> RunFolder:
    """Each person's position rises by .2 with the talk, in the first group by .3."""
    rows = [
        {
            "group": f"g{g}",
            "persona_id": f"p{i}",
            "stimulus": stimulus,
            "when": when,
            "position": None
            if when == "after" and f"g{g}p{i}" in lost
            else i / 10 + (0.0 if when == "before" else 0.3 if g == 0 else 0.2),
        }
        for g in range(groups)
        for i in range(4)
        for stimulus in ("tea", "coffee")
        for when in ("before", "after")
    ]
    return run_of(folder, rows, "statements")


def test_a_paired_claim_is_the_mean_difference_within_subjects_clustered_by_unit(
    tmp_path: Path,
) -> None:
    (result,) = evaluate_claims(statements(tmp_path / "run", 6), [MOVED])
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
    (result,) = evaluate_claims(run_of(tmp_path / "run", rows, "held"), [claim])
    moved = [n % 3 + 1 - n % 2 for n in range(7)]
    expected = ttest_1samp(moved, 0)
    assert result.estimate.value == pytest.approx(np.mean(moved))
    assert result.estimate.p == pytest.approx(expected.pvalue)
    assert (result.counts, result.lost, result.claim.unit) == ((7, 7), (1, 1), "set")
    lacking = replace(claim, contrast=("post", "later"))
    assert (
        "no table has held.score" in evaluate_claims(RunFolder(tmp_path / "run"), [lacking])[0].why
    )


def test_who_is_lost_in_one_arm_leaves_both_arms_of_a_paired_claim(tmp_path: Path) -> None:
    lost = ("g0p0", "g0p1", "g0p2", "g0p3")
    (result,) = evaluate_claims(statements(tmp_path / "run", 7, lost), [MOVED])
    assert result.estimate.value == pytest.approx(0.2)
    assert result.lost == (4, 4) and result.estimate.clusters == 6


def test_too_few_units_are_not_tested_however_many_subjects_there_are(tmp_path: Path) -> None:
    (result,) = evaluate_claims(statements(tmp_path / "run", 4), [MOVED])
    assert result.why and not result.is_tested and not result.estimate.has_interval


def test_rows_of_one_subject_are_averaged_and_a_number_can_make_a_share(tmp_path: Path) -> None:
    rows = [
        {"participant_id": f"{arm}{i}", "treatment": arm, "give": (10 if arm == "b" else 2) + k}
        for arm in "ab"
        for i in range(8)
        for k in range(3)
    ]
    run = run_of(tmp_path / "run", rows, "answers_of_people")
    claim = Claim("answers_of_people.give", ("b", "a"), "mean", subject=("participant_id",))
    read = read_sides(run, claim)
    assert not isinstance(read, str)
    assert len(read[1].values) == len(read[2].values) == 8
    reaching = replace(claim, kind="share", at_least=10.0)
    assert evaluate_claims(run, [reaching])[0].estimate.value == 1.0


def test_a_status_that_says_nothing_of_endings_leaves_nobody_out(tmp_path: Path) -> None:
    rows = [{**row, "status": "valid"} for row in votes(40, 10)]
    assert evaluate_claims(run_of(tmp_path / "run", rows), [CHANGED])[0].counts == (100, 100)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"measure": "nowhere.x"}, "no table has nowhere.x"),
        ({"by": "colour"}, "no table has"),
        ({"where": (("colour", ("red",)),)}, "has no colour"),
        ({"contrast": ("acp", "talk")}, "no condition talk"),
    ],
)
def test_what_a_run_does_not_hold_cannot_be_tested(
    changes: dict[str, object], why: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run", votes(40, 10))
    result = evaluate_claims(run, [replace(CHANGED, **changes)])[0]  # type: ignore[arg-type]
    assert why in result.why and result.verdict.startswith("cannot be tested")


def side(values: ArrayLike, arm: str) -> Side:
    known = np.asarray(values, float)
    return Side.from_values(known, [f"{arm}{i}" for i in range(len(known))])


def shares(hits: int, n: int = 100) -> tuple[Side, Side]:
    return side([i < hits for i in range(n)], "a"), side([i < 10 for i in range(n)], "b")


def test_families_do_not_pay_for_each_other() -> None:
    claims = [
        replace(CHANGED, contrast=(f"{family}{n}", "x"), family=family)  # type: ignore[arg-type]
        for family in ("primary", "secondary", "exploratory")
        for n in range(3)
    ]
    hits = dict(zip(claims, (30, 22, 12, 30, 21, 12, 30, 12, 12), strict=True))
    alone = judge_families(claims[:3], lambda c: (c, *shares(hits[c])))
    among = judge_families(claims, lambda c: (c, *shares(hits[c])))
    assert [r.adjusted_p for r in alone] == [r.adjusted_p for r in among[:3]]
    assert [r.joint is not None for r in among] == [True] * 3 + [False] * 6
    # 21 of 100 against 10: p is .03 by itself, and not when three are looked at.
    second = among[4]
    assert (
        second.estimate.p < 0.05 < second.adjusted_p
        and second.verdict == "neither shown nor ruled out"
    )


def test_primary_claims_that_cannot_be_tested_were_counted_beforehand() -> None:
    claims = [replace(CHANGED, contrast=(str(n), "x"), family="primary") for n in range(3)]
    read = lambda c: (c, *shares(30)) if c.contrast[0] == "0" else "there is none"  # noqa: E731
    first = judge_families(claims, read)[0]
    assert first.adjusted_p == pytest.approx(3 * first.estimate.p)


def test_false_alarms_among_primary_claims_stay_at_five_percent() -> None:
    rng = np.random.default_rng(31)
    claims = [replace(CHANGED, contrast=(str(n), "x"), family="primary") for n in range(3)]
    alarms = 0
    for _ in range(400):
        base = side(rng.random(100) < 0.2, "b")
        drawn = {c: (side(rng.random(100) < 0.2, "a"), base) for c in claims}
        found = judge_families(claims, lambda c, drawn=drawn: (c, *drawn[c]))  # type: ignore[misc]
        alarms += any(r.verdict == "supported" for r in found)
    assert alarms <= 28


def test_a_declared_claim_that_a_hypothesis_states_is_not_stated_twice() -> None:
    stated = Claim("satisfaction", ("C5", "C4"), "mean", "greater", 0.1, "primary")
    own = Claim(
        "measures.satisfaction", ("C5", "C4"), "mean", family="primary", subject=("g",), paired=True
    )
    other = replace(own, contrast=("C4", "C3"))
    part = replace(own, where=(("group_type", ("spouses",)),))
    joined = join_claims([stated], [own, other, part])
    assert joined == [stated, *(replace(c, family="exploratory") for c in (other, part))]
    assert join_claims([], [own, other]) == [own, other]


def test_a_study_has_at_most_three_primary_claims_and_each_says_what_it_estimates() -> None:
    from folkmoot.engine.study.study_file import load_study_file

    examples = Path(__file__).parents[2] / "examples"
    files = ("cross_pollination.yaml", "focus_group.yaml", "negotiation.yaml", "town_hall.yaml")
    for name in (*files, "public_goods.xlsx"):
        loaded = load_study_file(examples / name)
        claims = list(loaded.study.claims(loaded.config))
        assert claims and len(claims) == len(set(claims))
        assert 1 <= sum(c.family == "primary" for c in claims) <= MOST_PRIMARY
        for claim in claims:
            assert "independent unit: " in claim.estimand and claim.by and claim.outcome
