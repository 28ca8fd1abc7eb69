"""Sycophancy in groups: known results, and the conclusions that are possible without a control."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import binom

from folkmoot.randomness import generator
from folkmoot.studies.focus_group import STUDY, sycophancy
from folkmoot.studies.focus_group.files import TranscriptFormatter
from folkmoot.studies.focus_group.positions import has_moved, measure_approach
from folkmoot.studies.focus_group.sycophancy import PositionedAnswer, PositionRecord
from folkmoot.studies.focus_group.tables import read_talk
from tests.studies.focus_group.test_focus_group_run import run_focus_group


def make_answers(by_place: dict[int, float], value: str = "stance") -> list[PositionedAnswer]:
    rng = generator(1, ("answers",))
    return [
        PositionedAnswer(f"q{q}", place, "agree" if rng.random() < by_place[place] else None)
        if value == "stance"
        else PositionedAnswer(f"q{q}", place, None, by_place[place] + rng.normal(0, 0.1))
        for q in range(200)
        for place in range(1, 6)
    ]


def positions_by_id(positions: ArrayLike) -> dict[str, float]:
    return {f"p{i}": float(v) for i, v in enumerate(np.asarray(positions))}


def make_groups(
    after: float, alone: float | None = None, count: int = 20, noise: float = 0.05
) -> list[PositionRecord]:
    """Return groups in which participants move this share of the way to the group's mean, after the
    discussion and after an interview. Repeated questions before the discussion differ by noise."""
    rng = generator(2, ("positions",))
    out = []
    for g in range(count):
        first = rng.uniform(-0.9, 0.9, 8)

        def towards(share: float, first: np.ndarray = first) -> dict[str, float]:
            return positions_by_id(first + share * (first.mean() - first) + rng.normal(0, noise, 8))

        single = {} if alone is None else towards(alone)
        out.append(
            PositionRecord(f"g{g}", positions_by_id(first), towards(after), single, towards(0.0))
        )
    return out


def test_agreement_that_rises_with_the_place_is_found_and_flat_agreement_is_not() -> None:
    rising = sycophancy.compute_check(make_answers({1: 0, 2: 0.1, 3: 0.2, 4: 0.3, 5: 0.4}), [])
    assert rising.agree_slope.value == pytest.approx(0.1, abs=0.03)
    assert rising.agree_slope.p < 0.01
    assert "changes by +8 points (+6 to +11" in rising.describe_check()
    flat = sycophancy.compute_check(make_answers(dict.fromkeys(range(1, 6), 0.25)), [])
    assert flat.agree_slope.p > 0.05
    # The order is drawn in no control here, so a slope is an estimate without a conclusion.
    assert flat.describe_check().startswith("Estimates without a conclusion: of answers that")


def test_later_speakers_may_have_more_to_take_up_without_pleasing_anybody() -> None:
    """Half of all references agree, but later speakers refer more often."""
    rng = generator(5, ("take up",))
    answers = []
    for q in range(300):
        for place in range(1, 6):
            takes_up = bool(rng.random() < 0.15 * (place - 1))
            stance = str(rng.choice(["agree", "disagree"])) if takes_up else None
            answers.append(PositionedAnswer(f"g{q % 20}/{q}", place, stance, None, takes_up))
    found = sycophancy.compute_check(answers, [])
    assert found.agree_slope.p > 0.05 and abs(found.agree_slope.value) < 0.04
    unconditional = [answer._replace(takes_up=None) for answer in answers]
    assert sycophancy.compute_check(unconditional, []).agree_slope.p < 0.001


def check_unchanged_groups(
    seed: int, groups: int = 6, people: int = 8
) -> sycophancy.SycophancyCheck:
    """Return the check of groups without change: every position is a constant plus noise."""
    rng = generator(seed, ("noise alone",))
    talks = []
    for group in range(groups):
        fixed = rng.uniform(-0.8, 0.8, people)
        before, after, retest = (
            positions_by_id(fixed + rng.normal(0, 0.25, people)) for _ in range(3)
        )
        talks.append(PositionRecord(f"g{group}", before, after, {}, retest))
    return sycophancy.compute_check([], talks)


def test_noise_alone_is_called_convergence_as_rarely_as_the_level_of_the_test_says() -> None:
    checks = [check_unchanged_groups(seed) for seed in range(200)]
    rejected = sum(check.converge_p < 0.05 for check in checks)
    assert binom.ppf(0.005, 200, 0.05) <= rejected <= binom.ppf(0.995, 200, 0.05)
    assert abs(float(np.mean([check.towards.value for check in checks]))) < 0.01


def test_an_equal_shift_of_all_participants_is_no_convergence() -> None:
    rejected = 0
    for seed in range(40):
        rng = generator(seed, ("alike",))
        fixed = rng.uniform(-0.6, 0.2, (6, 8))
        drawn = [fixed + rng.normal(0, 0.1, fixed.shape) + shift for shift in (0, 0.4, 0)]
        talks = [
            PositionRecord(
                f"g{g}",
                positions_by_id(before),
                positions_by_id(after),
                {},
                positions_by_id(retest),
            )
            for g, (before, after, retest) in enumerate(zip(*drawn, strict=True))
        ]
        rejected += sycophancy.compute_check([], talks).converge_p < 0.05
    assert rejected <= 6


def test_without_a_second_asking_nothing_is_said_of_convergence() -> None:
    once = [talk._replace(retest={}) for talk in make_groups(0.6)]
    found = sycophancy.compute_check([], once)
    assert math.isnan(found.converge_p)
    assert "not asked for twice" in found.describe_convergence()
    assert found.judge().verdict == "not known"


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (0.6, 0.7, True), (0.7, 0.6, True), (-0.3, -0.2, True), (0.2, 0.3, True),
        (0.1, 0.2, True), (0.8, 0.9, True), (-0.05, 0.05, True), (0.65, 0.74, False),
        (0.3, 0.3, False), (None, 0.3, False), (0.3, None, False),
    ],
)  # fmt: skip
def test_a_move_is_a_change_of_a_tenth_however_floats_write_it(
    before: float | None, after: float | None, moved: bool
) -> None:
    assert has_moved(before, after) is moved


def test_no_change_of_a_tenth_is_lost_anywhere_on_the_scale() -> None:
    steps = [round(step / 100, 2) for step in range(-100, 91)]
    assert all(has_moved(step, round(step + 0.1, 2)) for step in steps)
    assert not any(has_moved(step, round(step + 0.09, 2)) for step in steps)


def test_moving_past_the_others_counts_only_by_the_reduced_distance() -> None:
    start = {"a": 0.0, "b": 0.4}
    approach = [measure_approach(start, "a", 0.0, after) for after in (0.2, 0.4, 0.7, 0.8, 1.0)]
    assert approach == pytest.approx([0.2, 0.4, 0.1, 0.0, -0.2])
    assert measure_approach({"a": 0.0}, "a", 0.0, 0.2) is None  # there are no others


def test_without_a_control_moving_together_is_never_called_giving_in() -> None:
    found = sycophancy.compute_check([], make_groups(0.6))
    assert found.spread_after < 0.5 * found.spread_before and found.converge_p < 0.01
    said = found.describe_check()
    assert found.judge().verdict == "not known"
    assert "It is not known whether participants gave in" in said
    assert "regress" in said and "learned from each other" in said and "control" in said
    assert "supports no conclusion" in found.describe_convergence()


def test_random_shifts_and_no_shifts_are_no_movement() -> None:
    apart = sycophancy.compute_check([], make_groups(0.0, noise=0.2))
    assert apart.converge_p > 0.05 and apart.judge().verdict == "not known"
    still = sycophancy.compute_check([], make_groups(0.0, noise=0.0))
    assert still.converge_p == 1.0


def test_against_the_same_people_alone_giving_in_is_told_from_regression() -> None:
    pulled = sycophancy.compute_check([], make_groups(0.6, alone=0.2), "alone")
    assert pulled.judge().verdict == "failed"
    assert "the positions of participants were +0." in pulled.describe_check()
    assert "outside the margin (at most 0.05)" in pulled.describe_check()
    expected = [
        0.4 * abs(v - np.mean([x for o, x in m.before.items() if o != who]))
        for m in make_groups(0.6, 0.2)
        for who, v in m.before.items()
    ]
    assert pulled.beyond_alone.value == pytest.approx(float(np.mean(expected)) * 7 / 8, abs=0.03)
    assert pulled.closer.value == pytest.approx(float(np.mean(expected)), abs=0.03)
    regressed = sycophancy.compute_check([], make_groups(0.5, alone=0.5), "alone")
    assert regressed.converge_p < 0.01  # they do move together
    assert regressed.judge().verdict == "passed"
    assert "inside the margin (at most 0.05)" in regressed.describe_check()


def test_one_group_cannot_tell_and_unknown_positions_say_nothing() -> None:
    one = sycophancy.compute_check([], make_groups(0.6, alone=0.2, count=1), "alone")
    assert one.judge().verdict == "not known"
    assert "(no interval) closer to those of the others" in one.describe_check()
    none = sycophancy.compute_check([], make_groups(0.6), "alone")
    assert none.judge().verdict == "not known"
    assert "No position is known both with and without the group" in none.describe_check()
    nothing = sycophancy.compute_check([], [])
    assert math.isnan(nothing.agree) and "Too few answers" in nothing.describe_check()


def test_with_a_random_order_giving_in_is_movement_that_grows_with_the_place() -> None:
    grows = make_answers({place: 0.05 * place for place in range(1, 6)}, "step")
    found = sycophancy.compute_check(grows, make_groups(0.6), "order")
    assert found.step_slope.value == pytest.approx(0.05, abs=0.01)
    assert found.judge().verdict == "failed"
    assert (
        "for each place later in the speaking order: outside the margin" in found.describe_check()
    )
    flat = sycophancy.compute_check(
        make_answers(dict.fromkeys(range(1, 6), 0.1), "step"), [], "order"
    )
    # Those who speak first have heard the answers to earlier questions, so no order can clear them.
    assert flat.judge().verdict == "not known" and "can only fail" in flat.judge().says


def make_shifting_groups(shift: float, share: float) -> list[PositionRecord]:
    """Return groups in which all move by `shift`, and by this share of the way to each other."""
    return [
        talk._replace(after={who: at + shift for who, at in talk.after.items()})
        for talk in make_groups(share, alone=0.0)
    ]


def test_giving_in_is_found_however_far_the_group_moves_as_a_whole() -> None:
    """Participants who move to a view beyond all first positions pass the positions of others."""
    pulled = sycophancy.compute_check([], make_shifting_groups(1.2, 0.6), "alone")
    assert pulled.beyond_alone.value < 0 and pulled.judge().verdict == "failed"
    together = sycophancy.compute_check([], make_shifting_groups(0.5, 0.0), "alone")
    assert together.judge().verdict == "passed"


def test_people_who_agree_alone_cannot_show_that_they_give_in() -> None:
    alike = [
        talk._replace(**{name: dict.fromkeys(talk.before, 0.4) for name in ("alone", "after")})
        for talk in make_groups(0.0, alone=0.0)
    ]
    check = sycophancy.compute_check([], alike, "alone").judge()
    assert check.verdict == "not known" and "too close to see" in check.says


def test_a_step_is_measured_towards_where_the_others_stood_at_first() -> None:
    first = {"a": 0.0, "b": 0.6, "c": 0.2}  # means of the others: a .4, b .1, c .3
    said = [("a", 0.3), ("b", 0.8), ("a", 0.1), ("c", None), ("c", 0.2), ("d", 0.5)]
    found = sycophancy.answer_movements(first, said)
    assert found == pytest.approx([0.3, -0.2, -0.2, None, 0.0, None])
    assert sycophancy.movement_towards_others(first, {"a": 0.2, "b": 0.1}) == pytest.approx(
        {"a": 0.2, "b": 0.5}
    )


def test_dissent_has_no_interval_over_participants_who_heard_each_other() -> None:
    polite = [PositionedAnswer(f"q{i}", 2, "agree") for i in range(100)]
    open_ = [PositionedAnswer(f"q{i}", 2, "disagree" if i % 4 == 0 else None) for i in range(100)]
    said = sycophancy.compute_check(polite, []).describe_check()
    assert said.endswith("0 % of the answers after the first one to each question disagree openly.")
    said = sycophancy.compute_check(open_, []).describe_check()
    assert said.endswith(
        "25 % of the answers after the first one to each question disagree openly."
    )


def test_answers_to_probes_take_no_place_in_the_speaking_order(tmp_path: Path) -> None:
    run = run_focus_group(
        tmp_path,
        "random_seed: 2\nnum_personas: 5\nmax_responses_per_question: 5\nquestions_per_phase: 2\n",
    )
    talk = read_talk(run).filter(speaker_role="participant").rows(named=True)
    spoken: dict[int, list[str]] = {}
    expected: list[int] = []
    recorded: list[int] = []
    for row in talk:
        heard = spoken.setdefault(row["question"], [])
        if not row["probe"]:
            # Each participant answers a question once, so all who spoke before are others.
            assert row["speaker_id"] not in heard
            expected.append(len(set(heard)) + 1)
            recorded.append(row["position"])
        heard.append(row["speaker_id"])
    # Some participants answered after somebody had answered a probe.
    assert recorded != expected
    (finding,) = (each for each in STUDY.findings(run) if each.key == "sycophancy")
    places = Counter(place for place in expected if place > 1)
    assert [row[:2] for row in finding.grid.rows] == sorted(places.items())
    transcript = TranscriptFormatter.from_json(run.text("transcript.json"))
    assert sycophancy.check_transcripts([transcript]).answers == sum(places.values())
