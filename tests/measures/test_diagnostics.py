"""Diagnostics: each catches its own pathology in plain data and is quiet about good answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from folkmoot.measures.diagnostics import (
    check_acquiescence,
    check_instability,
    check_position_bias,
    check_spread_of_ratings,
    check_spread_of_votes,
    check_sycophancy,
)
from folkmoot.measures.inference.proportions import wilson
from folkmoot.measures.position import Shown
from folkmoot.measures.reply_checks import (
    check_answers,
    check_cut_replies,
    check_malformed,
    check_off_list,
    check_over_length,
    check_refusals,
    check_yes_share,
    looks_like_refusal,
)
from folkmoot.measures.retest import Repeat

OPTION_NAMES = ["Park improvements", "Youth job training"]
OPTIONS = json.dumps(OPTION_NAMES)


def row(kind: str = "choice", **more: object) -> dict[str, object]:
    made: dict[str, object] = {
        "stage": "vote",
        "role": "participant",
        "kind": kind,
        "parse_step": "exact",
        "how": "exact" if kind == "choice" else None,
        "reasks": 0,
        "missing": None,
        "words": 2 if kind == "choice" else 50,
        "options": OPTIONS if kind == "choice" else None,
        "value": None,
    }
    return {**made, **more}


# As many as it takes until none in all excludes two in a hundred.
GOOD = [row() for _ in range(800)] + [row("text") for _ in range(800)] + [row("json")] * 400


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length]
)
def test_good_answers_pass(check):
    assert check(GOOD).verdict == "passed"


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length]
)
def test_few_good_answers_prove_nothing(check):
    few = check([row(), row("text"), row("json")] * 8)
    assert few.verdict == "not known"
    assert few.value.value == 0 and "0 to" in few.says


def test_many_replies_of_few_participants_are_few() -> None:
    replies = [{**answer, "speaker_id": f"p{n % 8}"} for n, answer in enumerate(GOOD)]
    found = check_refusals(replies)
    assert found.verdict == "not known"
    assert "(0 to 32 %; 8 independent units; the margin is at most 2 %)" in found.says
    four = [{**answer, "speaker_id": f"p{n % 4}"} for n, answer in enumerate(GOOD)]
    assert (
        "(no interval; 4 independent units; the margin is at most 2 %)" in check_refusals(four).says
    )
    # With 400 participants, one who refuses all is not taken for five independent refusals.
    many = [{**answer, "speaker_id": f"p{n % 400}"} for n, answer in enumerate(GOOD)]
    assert check_refusals(many).verdict == "passed"
    refusing = [
        {**answer, "missing": "declined"} if answer["speaker_id"] in ("p1", "p2") else answer
        for answer in many
    ]
    found = check_refusals(refusing)
    assert found.value is not None and found.value.high == pytest.approx(
        wilson(2, 400).high, abs=1e-4
    )
    # A tenth of all participants refuse everything, which many replies of theirs do not sharpen.
    tenth = [
        {**answer, "missing": "declined"} if int(answer["speaker_id"][1:]) < 40 else answer
        for answer in many
    ]
    found = check_refusals(tenth)
    assert found.verdict == "failed" and found.value is not None
    apart = wilson(40, 400)
    assert (found.value.low, found.value.high) == pytest.approx((apart.low, apart.high), abs=0.005)


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length, check_yes_share]
)
def test_nothing_to_check_is_said_and_not_passed(check):
    assert check([]).verdict == "not known"


@pytest.mark.parametrize(
    ("refused", "called"),
    [
        ({"missing": "declined", "how": "refused"}, "declined 100"),
        ({"missing": "none_of_these", "how": "clarified", "reasks": 1}, "none_of_these 100"),
        ({"missing": "cannot_say", "how": "exact"}, "cannot_say 100"),
        ({"missing": "content_filter", "how": "refused"}, "refused by the provider 100"),
        ({"missing": "refused", "finish": "refused:safety"}, "refused by the provider 100"),
        ({"missing": "refused"}, "refused by the provider 100"),  # of an earlier version
    ],
)
def test_refusals_are_ways_out_and_what_the_provider_refused(refused, called):
    found = check_refusals([*GOOD, *[row(**refused)] * 100])
    assert found.verdict == "failed" and called in found.says
    assert check_off_list([*GOOD, *[row(**refused)] * 100]).verdict != "failed"


def test_phrases_of_refusal_are_counted_and_decide_nothing():
    found = check_refusals(GOOD, ["I'm sorry, but I can't take part in this."] * 9 + ["Parks."])
    assert found.verdict == "passed"
    assert "Possible refusals by English phrases: 9 of 10 texts" in found.says
    said = [row(said="I'm sorry, but I can't take part in this.") for _ in range(20)]
    assert check_refusals([*GOOD, *said]).verdict == "passed"
    assert check_refusals(GOOD, ["I can't imagine life without parks."] * 9).verdict != "failed"


def test_refusals_are_not_checked_where_closed_answers_could_not_be_declined():
    earlier = [{k: v for k, v in r.items() if k != "how"} for r in GOOD]
    assert check_refusals(earlier).verdict == "not known"
    assert (
        check_refusals([*earlier, *[{**earlier[0], "missing": "refused"}] * 100]).verdict
        == "failed"
    )


def test_an_answer_that_cannot_be_read_is_no_refusal_and_clears_nobody():
    found = check_refusals([*GOOD, *[row(missing="unparsed", how="unreadable")] * 100])
    assert found.value.value == 0
    # A model that ignores the ways out may have refused all of them in plain words.
    assert found.verdict == "not known"
    assert "100 replies could not be read and may be refusals in other words" in found.says


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "As an AI language model, I have no opinions.",
        "I’d rather not answer that.",
        "I cannot participate in this exercise.",
        "I won't engage with this question.",
    ],
)
def test_refusing_texts(text):
    assert looks_like_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "I can't see how a car park helps anyone.",
        "I'm sorry to hear that, but jobs come first.",
        "We won't get this chance again.",
        "I am afraid of cuts to the buses.",
    ],
)
def test_texts_that_refuse_nothing(text):
    assert not looks_like_refusal(text)


def test_malformed_and_off_list_look_at_their_own_kinds():
    broken = [*GOOD, *[row("json", parse_step="repaired")] * 50, *[row("json", reasks=1)] * 50]
    assert check_malformed(broken).verdict == "failed"
    assert check_off_list(broken).verdict != "failed"
    strange = [*GOOD, *[row(reasks=1)] * 100, row(parse_step="missing", missing="unparsed")]
    assert check_off_list(strange).verdict == "failed"
    assert check_malformed(strange).verdict != "failed"
    assert "11 %" in check_off_list([row(reasks=1)] * 11 + [row()] * 89).says


def test_a_single_cut_reply_is_flagged_and_silence_about_it_is_not_a_pass():
    whole = [row(finish="stop") for _ in range(99)]
    assert check_cut_replies(whole).verdict == "passed"
    assert check_cut_replies([*whole, row("text", finish="length")]).verdict == "failed"
    assert check_cut_replies([*whole, row("text", finish="length:model")]).verdict == "failed"
    assert check_cut_replies([row(finish="unknown"), row()]).verdict == "not known"


def test_over_length_of_choices_and_of_texts():
    assert check_over_length([*GOOD, *[row(words=60)] * 200]).verdict == "failed"
    assert check_over_length([*GOOD, *[row("text", words=400)] * 200]).verdict == "failed"
    assert check_over_length([*GOOD, *[row("text", words=90)] * 200]).verdict != "failed"
    # Bare signals do not make ordinary turns look long.
    signals = [row("text", words=1) for _ in range(300)]
    assert check_over_length([*signals, *[row("text", words=70)] * 100]).verdict != "failed"


def asked_again(changed: int, people: int) -> list[Repeat]:
    """Choices of people who were merely asked again."""
    return [
        Repeat(who, "vote", "a", "b" if who < changed else "a", untouched=True)
        for who in range(people)
    ]


def test_instability():
    assert check_instability(asked_again(23, 300)).verdict == "passed"
    assert check_instability(asked_again(100, 300)).verdict == "failed"
    assert check_instability(asked_again(45, 300)).verdict == "not known"
    assert check_instability(asked_again(2, 6)).verdict == "not known"  # too few to call it noise
    assert check_instability([]).verdict == "not known"


def two_votes(first: Iterable[str], last: Iterable[str]) -> list[Repeat]:
    """Votes of people who read something in between."""
    return [Repeat(who, "vote", *pair) for who, pair in enumerate(zip(first, last, strict=True))]


def test_two_votes_by_lot_are_unstable_and_two_of_ones_own_are_not_proven_stable():
    rng = np.random.default_rng(5)
    first, last = (side.tolist() for side in rng.choice(list("abc"), (2, 600)))
    lot = check_instability(two_votes(first, last))
    assert lot.verdict == "failed" and "answers at random" in lot.says
    kept = [a if rng.random() < 0.5 else b for a, b in zip(first, last, strict=True)]
    assert check_instability(two_votes(first, kept)).verdict == "not known"
    # All were won over to one option: that is no lot.
    assert check_instability(two_votes(first, ["a"] * 600)).verdict == "not known"
    assert check_instability(two_votes(["a"] * 50, ["a"] * 50)).verdict == "not known"


@pytest.mark.parametrize(("r", "verdict"), [(0.0, "failed"), (0.4, "not known"), (0.9, "passed")])
def test_numbers_given_twice_are_held_against_people_who_deliberated(r, verdict):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 400))
    y = 3 + r * x + np.sqrt(1 - r**2) * y
    pairs = [Repeat(who, "rating", a, b, True) for who, (a, b) in enumerate(zip(x, y, strict=True))]
    found = check_instability(pairs)
    assert found.verdict == verdict, found.says
    assert found.margin.low == 0.4
    # After a talk the same answers can show randomness, and no stability.
    talked = check_instability([replace(pair, untouched=False) for pair in pairs])
    assert talked.verdict == ("failed" if verdict == "failed" else "not known")


def test_a_correlation_that_is_not_quite_one_is_not_printed_as_one() -> None:
    equal = [Repeat(who, "rating", float(who % 7), float(who % 7), True) for who in range(40)]
    assert (
        "all 40 second answers equal the first, a correlation of 1.00 (0.90 to 1.00): inside"
    ) in check_instability(equal).says
    nearly = [replace(r, last=r.first + 0.01 * (n % 3)) for n, r in enumerate(equal)]
    assert re.search(r"at 0\.99+\d* \(0\.99\d+ to 0\.99+\d*\)", check_instability(nearly).says)


def test_random_answers_after_a_talk_fail_where_the_retest_is_too_small_to_tell():
    rng = np.random.default_rng(4)
    retest = [Repeat(who, "rating", *rng.random(2).tolist(), True) for who in range(6)]
    first, last = (side.tolist() for side in rng.choice(list("abcde"), (2, 300)))
    assert check_instability(retest).verdict == "not known"
    assert check_instability([*retest, *two_votes(first, last)]).verdict == "failed"


def shown_with(bias: float, people: int = 300) -> list[Shown]:
    rng = np.random.default_rng(0)
    orders = [("a", "b", "c")[k:] + ("a", "b", "c")[:k] for k in range(3)]
    return [
        Shown(order, order[0] if rng.random() < bias else str(rng.choice(["a", "b", "c"])), i)
        for i in range(people)
        for order in [orders[i % 3]]
    ]


def test_position_bias():
    assert check_position_bias(shown_with(0.4)).verdict == "failed"
    assert check_position_bias(shown_with(0.0, 6_000)).verdict == "passed"
    assert (
        check_position_bias([Shown(("a", "b", "c"), "a", i) for i in range(20)]).verdict
        == "not known"
    )


def test_a_wide_interval_around_no_effect_does_not_pass():
    found = check_position_bias(shown_with(0.0, 90))
    assert found.verdict == "not known"
    assert found.value.low < -0.05 < found.value.high


def test_acquiescence():
    who = [i for i in range(40) for _ in range(2)]
    yes = [True] * 80
    assert check_acquiescence(yes, [True] * 60 + [False] * 20, who).verdict == "failed"
    assert check_acquiescence(yes, [False] * 80, who).verdict != "failed"
    rng = np.random.default_rng(1)
    coin = (rng.random(80) < 0.5).tolist()
    assert check_acquiescence(coin, [not c for c in coin], who).verdict != "failed"
    assert check_acquiescence([], [], []).verdict == "not known"


def test_yes_share():
    ballot = json.dumps(["Yes", "No"])
    assert check_yes_share([row(options=ballot, value="Yes")] * 60).verdict == "failed"
    mixed = [row(options=ballot, value=v) for v in ("Yes", "No") * 30]
    assert check_yes_share(mixed).verdict != "failed"
    assert check_yes_share([row(options=ballot, value="No")] * 60).verdict == "failed"
    assert check_yes_share([row(value="Park improvements")] * 60).verdict == "not known"


def test_of_answers_reads_the_table_of_any_study():
    rows = [
        row(value=OPTION_NAMES[i // 2 % 2], speaker_id=f"p{i}", options=json.dumps(shown))
        for i in range(6_000)
        for shown in [OPTION_NAMES if i % 2 else OPTION_NAMES[::-1]]
    ]
    found = {c.key: c for c in check_answers(rows)}
    assert found["off_list"].verdict == "passed"
    assert found["position_bias"].verdict == "passed"
    assert found["malformed"].verdict == "not known"
    always_first = [{**r, "value": json.loads(r["options"])[0]} for r in rows[:60]]
    biased = {c.key: c for c in check_answers(always_first)}["position_bias"]
    assert biased.verdict == "failed"


def test_sycophancy():
    assert check_sycophancy((40, 100), (7, 100)).verdict == "failed"
    assert check_sycophancy((9, 100), (7, 100)).verdict != "failed"
    assert check_sycophancy(None, (7, 100), yielded=(90, 100)).verdict == "failed"
    assert check_sycophancy(None, None, ["No."] * 30, yielded=(30, 100)).verdict != "failed"
    assert check_sycophancy(None, None, ["You're right, I agree."] * 30).verdict == "failed"
    assert check_sycophancy(None, None).verdict == "not known"


def test_the_spread_of_votes_is_judged_on_both_sides():
    people = [160, 90, 60, 20, 5]
    assert check_spread_of_votes(people).verdict == "passed"
    assert check_spread_of_votes([97, 2, 1, 0, 0]).verdict == "failed"
    assert (
        check_spread_of_votes(people, np.outer(people, [327, 2, 2, 2, 2]) // 335).verdict
        == "failed"
    )
    assert check_spread_of_votes([3, 2, 1, 0, 0]).verdict == "not known"
    even = check_spread_of_votes([60, 61, 59, 60, 60])
    assert even.verdict == "failed" and "answers at random" in even.says


def test_a_choice_between_few_options_may_be_even_and_may_not_be_unanimous():
    assert check_spread_of_votes([97, 2, 1]).verdict == "failed"
    assert check_spread_of_votes([100, 101, 99]).verdict == "not known"
    assert check_spread_of_votes([60, 25, 15], np.diag([60, 25, 15])).verdict == "not known"
    assert (
        check_spread_of_votes([60, 25, 15], [[60, 0, 0], [23, 2, 0], [13, 0, 2]]).verdict
        == "failed"
    )


def test_the_spread_of_ratings_is_judged_on_both_sides():
    rng = np.random.default_rng(2)
    people = rng.normal(5, 2.4, (200, 12))
    assert check_spread_of_ratings(people, 0, 10).verdict == "passed"
    assert check_spread_of_ratings(5 + (people - 5) / 4, 0, 10).verdict == "failed"
    assert check_spread_of_ratings(rng.choice([0, 10], (200, 6)), 0, 10).verdict == "failed"
    assert check_spread_of_ratings([1, 2, 3], 0, 10).verdict == "not known"


def test_a_declined_json_answer_is_not_malformed() -> None:
    declined = [{"kind": "json", "parse_step": "missing", "missing": "declined"}] * 10
    read = [{"kind": "json", "parse_step": "exact", "missing": None}] * 100
    assert check_malformed([*declined, *read]).verdict == "passed"
