"""Diagnostics: each finds its fault in simple data and passes good answers."""

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


def make_row(kind: str = "choice", **changes: object) -> dict[str, object]:
    defaults: dict[str, object] = {
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
    return {**defaults, **changes}


# With so many rows, zero faults exclude a rate of two percent.
GOOD_ROWS = (
    [make_row() for _ in range(800)]
    + [make_row("text") for _ in range(800)]
    + [make_row("json")] * 400
)


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length]
)
def test_good_answers_pass(check):
    assert check(GOOD_ROWS).verdict == "passed"


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length]
)
def test_few_good_answers_are_not_enough_to_pass(check):
    result = check([make_row(), make_row("text"), make_row("json")] * 8)
    assert result.verdict == "not known"
    assert result.value.value == 0 and "0 to" in result.says


def test_replies_of_few_participants_are_few_units() -> None:
    replies = [{**answer, "speaker_id": f"p{n % 8}"} for n, answer in enumerate(GOOD_ROWS)]
    result = check_refusals(replies)
    assert result.verdict == "not known"
    assert "(0 to 32 %; 8 independent units; the margin is at most 2 %)" in result.says
    replies_of_four = [{**answer, "speaker_id": f"p{n % 4}"} for n, answer in enumerate(GOOD_ROWS)]
    assert (
        "(no interval; 4 independent units; the margin is at most 2 %)"
        in check_refusals(replies_of_four).says
    )
    # Refusals of one participant are one unit, and not five independent refusals.
    replies_of_many = [
        {**answer, "speaker_id": f"p{n % 400}"} for n, answer in enumerate(GOOD_ROWS)
    ]
    assert check_refusals(replies_of_many).verdict == "passed"
    replies_with_two_refusers = [
        {**answer, "missing": "declined"} if answer["speaker_id"] in ("p1", "p2") else answer
        for answer in replies_of_many
    ]
    result = check_refusals(replies_with_two_refusers)
    assert result.value is not None and result.value.high == pytest.approx(
        wilson(2, 400).high, abs=1e-4
    )
    # A tenth of the participants refuse everything. Their many replies do not narrow the interval.
    replies_with_tenth_refusing = [
        {**answer, "missing": "declined"} if int(answer["speaker_id"][1:]) < 40 else answer
        for answer in replies_of_many
    ]
    result = check_refusals(replies_with_tenth_refusing)
    assert result.verdict == "failed" and result.value is not None
    independent_interval = wilson(40, 400)
    assert (result.value.low, result.value.high) == pytest.approx(
        (independent_interval.low, independent_interval.high), abs=0.005
    )


def test_a_structured_reply_is_compared_with_replies_to_the_same_question() -> None:
    def reply(question: int, speaker: int, words: int) -> dict[str, object]:
        who = {"speaker_id": f"p {speaker}", "address": f"set1/round1/p {speaker}/ask{question}"}
        return {**make_row("json"), **who, "stage": "set1", "words": words}

    # One question asks for a word about each of many things. It is no fault to name them all.
    usual = [reply(question, n, 400 if question else 10) for n in range(100) for question in (0, 1)]
    assert check_over_length(usual).verdict == "passed"
    rambling = [{**row, "words": 400} if i % 4 == 0 else row for i, row in enumerate(usual)]
    result = check_over_length([*usual, *rambling])
    assert result.verdict == "failed" and "13 % of 400 replies" in result.says
    # A few replies have no usual length.
    few = check_over_length([reply(0, n, 500 if n else 5) for n in range(4)])
    assert few.verdict == "not known" and "no such answers" in few.says.lower()


def test_structured_replies_are_compared_across_groups_and_rounds() -> None:
    """A group of three gives too few replies to tell the usual length of a reply."""
    replies = [
        {
            **make_row("json"),
            **{"stage": "talk", "speaker_id": f"p{n}", "words": 400 if group % 4 == 0 else 10},
            "address": f"talk/group{group}/round{round_}/p{n}/vote/ask0",
        }
        for group in range(40)
        for round_ in range(2)
        for n in range(3)
    ]
    result = check_over_length(replies, lambda row: row["address"].split("/")[1], "group")
    assert result.verdict == "failed" and "25 % of 240 replies" in result.says


@pytest.mark.parametrize(
    "check", [check_refusals, check_malformed, check_off_list, check_over_length, check_yes_share]
)
def test_an_empty_check_has_no_verdict(check):
    assert check([]).verdict == "not known"


@pytest.mark.parametrize(
    ("changes", "description"),
    [
        ({"missing": "declined", "how": "refused"}, "declined 100"),
        ({"missing": "none_of_these", "how": "clarified", "reasks": 1}, "none_of_these 100"),
        ({"missing": "cannot_say", "how": "exact"}, "cannot_say 100"),
        ({"missing": "content_filter", "how": "refused"}, "refused by the provider 100"),
        ({"missing": "refused", "finish": "refused:safety"}, "refused by the provider 100"),
        ({"missing": "refused"}, "refused by the provider 100"),  # of an earlier version
    ],
)
def test_declined_and_refused_answers_are_refusals(changes, description):
    result = check_refusals([*GOOD_ROWS, *[make_row(**changes)] * 100])
    assert result.verdict == "failed" and description in result.says
    assert check_off_list([*GOOD_ROWS, *[make_row(**changes)] * 100]).verdict != "failed"


def test_ways_out_in_fields_of_json_answers_are_counted_or_named_as_not_counted():
    addressed = [make_row("json", address=f"{i}") for i in range(100)]
    not_counted = "Ways out in single fields of JSON answers are not counted."
    assert not_counted in check_refusals([*GOOD_ROWS, *addressed]).says
    counted = check_refusals(
        [*GOOD_ROWS, *addressed], field_reasons={row["address"]: "cannot_say" for row in addressed}
    )
    assert counted.verdict == "failed" and "cannot_say 100" in counted.says
    assert not_counted not in counted.says
    # A field that could not be read is no refusal.
    unread = {row["address"]: "unparsed" for row in addressed}
    assert check_refusals([*GOOD_ROWS, *addressed], field_reasons=unread).verdict == "passed"
    assert not_counted not in check_refusals([make_row()]).says


def test_refusal_phrases_are_counted_without_effect_on_the_verdict():
    result = check_refusals(
        GOOD_ROWS, ["I'm sorry, but I can't take part in this."] * 9 + ["Parks."]
    )
    assert result.verdict == "passed"
    assert "Possible refusals by English phrases: 9 of 10 texts" in result.says
    rows = [make_row(said="I'm sorry, but I can't take part in this.") for _ in range(20)]
    assert check_refusals([*GOOD_ROWS, *rows]).verdict == "passed"
    assert (
        check_refusals(GOOD_ROWS, ["I can't imagine life without parks."] * 9).verdict != "failed"
    )


def test_refusals_have_no_verdict_if_answers_could_not_be_declined():
    earlier_rows = [
        {column: value for column, value in good_row.items() if column != "how"}
        for good_row in GOOD_ROWS
    ]
    assert check_refusals(earlier_rows).verdict == "not known"
    assert (
        check_refusals([*earlier_rows, *[{**earlier_rows[0], "missing": "refused"}] * 100]).verdict
        == "failed"
    )


@pytest.mark.parametrize("reason", ["language", "safety_filter", "filtered"])
def test_refusals_by_the_provider_count_in_earlier_runs(reason):
    # An earlier version called some of them unreadable.
    result = check_refusals([*GOOD_ROWS, *[make_row(missing=reason, how="unreadable")] * 100])
    assert result.verdict == "failed" and "refused by the provider 100" in result.says


def test_unreadable_answers_are_no_refusals_but_prevent_a_pass():
    result = check_refusals([*GOOD_ROWS, *[make_row(missing="unparsed", how="unreadable")] * 100])
    assert result.value.value == 0
    # These replies may be refusals in other words.
    assert result.verdict == "not known"
    sentence = "could not be read and may be refusals in other words"
    assert f"100 replies {sentence}" in result.says
    # The sentence does not depend on the verdict.
    rows = [make_row("json", speaker_id=f"p{n % 8}") for n in range(100)]
    plain_refusals = [{**row, "missing": "unparsed", "how": "unreadable"} for row in rows[:40]]
    small = check_refusals([*plain_refusals, *rows[40:]])
    assert small.verdict == "not known" and f"40 replies {sentence}" in small.says
    declined = [{**row, "missing": "declined", "how": "refused"} for row in GOOD_ROWS[:1000]]
    failed = check_refusals([*declined, *GOOD_ROWS[1000:], *plain_refusals])
    assert failed.verdict == "failed" and f"40 replies {sentence}" in failed.says
    assert sentence not in check_refusals(rows).says


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
def test_refusals_are_recognised(text):
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
def test_other_texts_are_not_refusals(text):
    assert not looks_like_refusal(text)


def test_malformed_and_off_list_use_different_answer_kinds():
    malformed_rows = [
        *GOOD_ROWS,
        *[make_row("json", parse_step="repaired")] * 50,
        *[make_row("json", reasks=1)] * 50,
    ]
    assert check_malformed(malformed_rows).verdict == "failed"
    assert check_off_list(malformed_rows).verdict != "failed"
    off_list_rows = [
        *GOOD_ROWS,
        *[make_row(reasks=1)] * 100,
        make_row(parse_step="missing", missing="unparsed"),
    ]
    assert check_off_list(off_list_rows).verdict == "failed"
    assert check_malformed(off_list_rows).verdict != "failed"
    assert "11 %" in check_off_list([make_row(reasks=1)] * 11 + [make_row()] * 89).says


def test_one_cut_reply_fails_and_unknown_endings_do_not_pass():
    complete_rows = [make_row(finish="stop") for _ in range(99)]
    assert check_cut_replies(complete_rows).verdict == "passed"
    assert (
        check_cut_replies([*complete_rows, make_row("text", finish="length")]).verdict == "failed"
    )
    assert (
        check_cut_replies([*complete_rows, make_row("text", finish="length:model")]).verdict
        == "failed"
    )
    assert check_cut_replies([make_row(finish="unknown"), make_row()]).verdict == "not known"


def test_long_choices_and_texts_are_found():
    assert check_over_length([*GOOD_ROWS, *[make_row(words=60)] * 200]).verdict == "failed"
    assert check_over_length([*GOOD_ROWS, *[make_row("text", words=400)] * 200]).verdict == "failed"
    assert check_over_length([*GOOD_ROWS, *[make_row("text", words=90)] * 200]).verdict != "failed"
    # Signals of one word do not make ordinary turns look long.
    signals = [make_row("text", words=1) for _ in range(300)]
    assert check_over_length([*signals, *[make_row("text", words=70)] * 100]).verdict != "failed"


def make_retests(changed: int, count: int) -> list[Repeat]:
    """Make choices of participants who answered the same question twice."""
    return [
        Repeat(participant, "vote", "a", "b" if participant < changed else "a", untouched=True)
        for participant in range(count)
    ]


def test_instability_of_retests():
    assert check_instability(make_retests(23, 300)).verdict == "passed"
    assert check_instability(make_retests(100, 300)).verdict == "failed"
    assert check_instability(make_retests(45, 300)).verdict == "not known"
    assert check_instability(make_retests(2, 6)).verdict == "not known"  # too few to call it noise
    assert check_instability([]).verdict == "not known"


def make_vote_pairs(first: Iterable[str], last: Iterable[str]) -> list[Repeat]:
    """Make votes of participants who read a text between them."""
    return [
        Repeat(participant, "vote", *pair)
        for participant, pair in enumerate(zip(first, last, strict=True))
    ]


def test_random_votes_are_unstable_and_changed_votes_are_not_known():
    rng = np.random.default_rng(5)
    first, last = (votes.tolist() for votes in rng.choice(list("abc"), (2, 600)))
    random_result = check_instability(make_vote_pairs(first, last))
    assert random_result.verdict == "failed" and "answers at random" in random_result.says
    partly_kept = [
        first_vote if rng.random() < 0.5 else last_vote
        for first_vote, last_vote in zip(first, last, strict=True)
    ]
    assert check_instability(make_vote_pairs(first, partly_kept)).verdict == "not known"
    # If all choose one option, the votes are not random.
    assert check_instability(make_vote_pairs(first, ["a"] * 600)).verdict == "not known"
    assert check_instability(make_vote_pairs(["a"] * 50, ["a"] * 50)).verdict == "not known"


@pytest.mark.parametrize(("r", "verdict"), [(0.0, "failed"), (0.4, "not known"), (0.9, "passed")])
def test_repeated_numbers_are_compared_with_human_retests(r, verdict):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 400))
    y = 3 + r * x + np.sqrt(1 - r**2) * y
    pairs = [
        Repeat(participant, "rating", first_number, second_number, True)
        for participant, (first_number, second_number) in enumerate(zip(x, y, strict=True))
    ]
    result = check_instability(pairs)
    assert result.verdict == verdict, result.says
    assert result.margin.low == 0.4
    # After a conversation, answers can show randomness but not stability.
    result_after_talk = check_instability([replace(pair, untouched=False) for pair in pairs])
    assert result_after_talk.verdict == ("failed" if verdict == "failed" else "not known")
    # Agreement across a conversation is not shown as a measure of noise.
    assert (result_after_talk.value is not None) == (verdict == "failed")


def test_equal_answers_beside_answers_after_a_talk_keep_their_reason() -> None:
    retest = [Repeat(participant, "rating", 5.0, 5.0, True) for participant in range(40)]
    after_talk = [Repeat(number, "mood", number, number) for number in map(float, range(40))]
    result = check_instability([*retest, *after_talk])
    assert result.value is None and "All participants gave the same answer" in result.says


@pytest.mark.parametrize(
    "answers", [[(-0.62, -0.55), (-0.16, -0.18)], [(0.5, 0.5), (0.5, 0.4), (0.5, 0.1)]]
)
def test_different_answers_without_a_correlation_are_not_called_the_same(
    answers: list[tuple[float, float]],
) -> None:
    """Two pairs are too few for a correlation, and equal first answers have none."""
    repeats = [
        Repeat(participant, "rating", first, last, True)
        for participant, (first, last) in enumerate(answers)
    ]
    result = check_instability(repeats)
    assert (result.value, result.verdict) == (None, "not known")
    assert "Too few different answers were given twice" in result.says
    assert "same answer" not in result.says


def test_a_correlation_below_one_is_not_printed_as_one() -> None:
    equal = [
        Repeat(participant, "rating", float(participant % 7), float(participant % 7), True)
        for participant in range(40)
    ]
    assert (
        "all 40 second answers equal the first, a correlation of 1.00 (0.90 to 1.00): inside"
    ) in check_instability(equal).says
    nearly_equal = [
        replace(repeat, last=repeat.first + 0.01 * (n % 3)) for n, repeat in enumerate(equal)
    ]
    assert re.search(
        r"at 0\.99+\d* \(0\.99\d+ to 0\.99+\d*\)", check_instability(nearly_equal).says
    )


def test_random_votes_after_a_talk_fail_beside_a_small_retest():
    rng = np.random.default_rng(4)
    retest = [
        Repeat(participant, "rating", *rng.random(2).tolist(), True) for participant in range(6)
    ]
    first, last = (votes.tolist() for votes in rng.choice(list("abcde"), (2, 300)))
    assert check_instability(retest).verdict == "not known"
    assert check_instability([*retest, *make_vote_pairs(first, last)]).verdict == "failed"


def draw_choices(bias: float, people: int = 300) -> list[Shown]:
    rng = np.random.default_rng(0)
    orders = [("a", "b", "c")[k:] + ("a", "b", "c")[:k] for k in range(3)]
    return [
        Shown(order, order[0] if rng.random() < bias else str(rng.choice(["a", "b", "c"])), i)
        for i in range(people)
        for order in [orders[i % 3]]
    ]


def test_position_bias_is_found():
    assert check_position_bias(draw_choices(0.4)).verdict == "failed"
    assert check_position_bias(draw_choices(0.0, 6_000)).verdict == "passed"
    assert (
        check_position_bias([Shown(("a", "b", "c"), "a", i) for i in range(20)]).verdict
        == "not known"
    )


def test_a_place_without_an_interval_fails_no_run() -> None:
    # Four participants saw the longer list, and three of them chose its last option.
    long_list = ("a", "b", "c", "d")
    longer_choices = [
        Shown(options, chosen, f"y{n}")
        for n, (options, chosen) in enumerate(
            [(long_list, "d"), (long_list[::-1], "a"), (long_list, "a"), (long_list[::-1], "a")]
        )
    ]
    result = check_position_bias([*draw_choices(0.0, 600), *longer_choices])
    assert result.value is not None and result.value.has_interval
    assert result.verdict == "not known"


def test_a_wide_interval_around_no_effect_does_not_pass():
    result = check_position_bias(draw_choices(0.0, 90))
    assert result.verdict == "not known"
    assert result.value.low < -0.05 < result.value.high


def test_acquiescence_is_found():
    participants = [i for i in range(40) for _ in range(2)]
    yes = [True] * 80
    assert check_acquiescence(yes, [True] * 60 + [False] * 20, participants).verdict == "failed"
    assert check_acquiescence(yes, [False] * 80, participants).verdict != "failed"
    rng = np.random.default_rng(1)
    random_answers = (rng.random(80) < 0.5).tolist()
    assert (
        check_acquiescence(
            random_answers, [not answer for answer in random_answers], participants
        ).verdict
        != "failed"
    )
    assert check_acquiescence([], [], []).verdict == "not known"


def test_one_sided_yes_shares_fail():
    ballot = ("Yes", "No")
    assert check_yes_share([Shown(ballot, "Yes", None)] * 60).verdict == "failed"
    mixed_choices = [Shown(ballot, chosen, None) for chosen in ballot * 30]
    assert check_yes_share(mixed_choices).verdict != "failed"
    assert check_yes_share([Shown(ballot, "No", None)] * 60).verdict == "failed"
    with_maybe = [Shown((*ballot, "Maybe"), "Maybe", None)] * 40
    assert "60 yes/no answers" in check_yes_share([*mixed_choices, *with_maybe]).says
    assert check_yes_share(with_maybe).verdict == "not known"
    park_votes = [Shown(tuple(OPTION_NAMES), "Park improvements", None)] * 60
    assert check_yes_share(park_votes).verdict == "not known"


@pytest.mark.parametrize(
    ("options", "is_yes_or_no"),
    [
        (("yes", "no", "unsure"), True),
        (("yes", "no", "refused: the museum"), True),
        (("agree", "disagree"), True),
        (("Strongly agree", "Agree", "Disagree", "Strongly disagree"), False),
        (("strong_support", "support", "neutral", "oppose", "strong_oppose"), False),
        (("agree", "disagree", "partial_agree", "cite", "question"), False),
        (("Ja", "Nein", "Enthaltung"), True),
        (("はい", "いいえ"), True),
        (("eher ja", "ja", "nein", "eher nein"), False),
    ],
)
def test_a_scale_is_no_yes_or_no_question(options: tuple[str, ...], is_yes_or_no: bool) -> None:
    result = check_yes_share([Shown(options, options[1], n) for n in range(60)])
    assert (result.value is not None) == is_yes_or_no
    assert result.value or result.says == (
        "Too few answers with known words for yes and no to say."
    )


def test_a_workbook_reply_with_options_or_a_range_is_a_closed_answer() -> None:
    open_rows = [make_row("workbook", said=None, how=None)] * 40
    closed_rows = [
        make_row("workbook", said="5"),
        make_row("workbook", said="a lot", reasks=1),
    ] * 30
    result = check_off_list([*open_rows, *closed_rows])
    assert result.verdict == "failed" and "50 % of 60 replies" in result.says
    assert check_off_list(open_rows).value is None


def test_yes_no_choices_of_a_coder_are_no_yes_saying():
    options = json.dumps(["yes", "no"])
    coder_rows = [
        make_row(value="yes", speaker_id=f"p{i}", options=options, role="coder") for i in range(60)
    ]
    verdicts = {"coder": "not known", "second_coder": "not known", "participant": "failed"}
    for role, verdict in verdicts.items():
        rows = [{**answer_row, "role": role} for answer_row in coder_rows]
        checks = {check.key: check for check in check_answers(rows)}
        assert checks["acquiescence"].verdict == verdict


@pytest.mark.parametrize("role", ["coder", "second_coder"])
def test_bad_replies_of_a_coder_change_no_check(role: str) -> None:
    kinds = ("choice", "text", "json")
    rows = [make_row(kind, speaker_id=f"p{i}", finish="stop") for i in range(400) for kind in kinds]
    rows += [make_row("json", speaker_id="p0", finish="stop", missing="declined")]
    bad_replies = [
        {"missing": "declined"},
        {"missing": "unparsed", "how": "unreadable"},
        {"missing": "none_of_these"},
        {"parse_step": "repaired", "reasks": 1},
        {"finish": "length"},
        {"words": 4_000},
    ]
    of_coder = [make_row("json", **{"role": role, **bad}) for bad in bad_replies * 20]
    assert check_answers([*rows, *of_coder]) == check_answers(rows)


def test_check_answers_reads_the_table_of_any_study():
    rows = [
        make_row(value=OPTION_NAMES[i // 2 % 2], speaker_id=f"p{i}", options=json.dumps(options))
        for i in range(6_000)
        for options in [OPTION_NAMES if i % 2 else OPTION_NAMES[::-1]]
    ]
    checks = {check.key: check for check in check_answers(rows)}
    assert checks["off_list"].verdict == "passed"
    assert checks["position_bias"].verdict == "passed"
    assert checks["malformed"].verdict == "not known"
    always_first = [
        {**answer_row, "value": json.loads(answer_row["options"])[0]} for answer_row in rows[:60]
    ]
    biased = {check.key: check for check in check_answers(always_first)}["position_bias"]
    assert biased.verdict == "failed"


def test_sycophancy_is_found():
    assert check_sycophancy((40, 100), (7, 100)).verdict == "failed"
    assert check_sycophancy((9, 100), (7, 100)).verdict != "failed"
    assert check_sycophancy(None, (7, 100), yielded=(90, 100)).verdict == "failed"
    assert check_sycophancy(None, None, ["No."] * 30, yielded=(30, 100)).verdict != "failed"
    assert check_sycophancy(None, None, ["You're right, I agree."] * 30).verdict == "failed"
    assert check_sycophancy(None, None).verdict == "not known"
    # A condition that only votes twice hears no reasons, and no opposing view either.
    says = check_sycophancy(None, (7, 100), ["You are right."] * 30).says
    assert "only with a condition in which the opposing view comes without reasons" in says


def test_too_narrow_and_too_even_votes_fail():
    counts = [160, 90, 60, 20, 5]
    assert check_spread_of_votes(counts).verdict == "passed"
    assert check_spread_of_votes([97, 2, 1, 0, 0]).verdict == "failed"
    assert (
        check_spread_of_votes(counts, np.outer(counts, [327, 2, 2, 2, 2]) // 335).verdict
        == "failed"
    )
    assert check_spread_of_votes([3, 2, 1, 0, 0]).verdict == "not known"
    even_result = check_spread_of_votes([60, 61, 59, 60, 60])
    assert even_result.verdict == "failed" and "answers at random" in even_result.says


def test_few_options_may_be_even_but_not_unanimous():
    assert check_spread_of_votes([97, 2, 1]).verdict == "failed"
    assert check_spread_of_votes([100, 101, 99]).verdict == "not known"
    assert check_spread_of_votes([60, 25, 15], np.diag([60, 25, 15])).verdict == "not known"
    assert (
        check_spread_of_votes([60, 25, 15], [[60, 0, 0], [23, 2, 0], [13, 0, 2]]).verdict
        == "failed"
    )


def test_too_narrow_and_too_wide_ratings_fail():
    rng = np.random.default_rng(2)
    ratings = rng.normal(5, 2.4, (200, 12))
    assert check_spread_of_ratings(ratings, 0, 10).verdict == "passed"
    assert check_spread_of_ratings(5 + (ratings - 5) / 4, 0, 10).verdict == "failed"
    assert check_spread_of_ratings(rng.choice([0, 10], (200, 6)), 0, 10).verdict == "failed"
    assert check_spread_of_ratings([1, 2, 3], 0, 10).verdict == "not known"


def test_a_declined_json_answer_is_not_malformed() -> None:
    declined = [{"kind": "json", "parse_step": "missing", "missing": "declined"}] * 10
    read = [{"kind": "json", "parse_step": "exact", "missing": None}] * 100
    assert check_malformed([*declined, *read]).verdict == "passed"
