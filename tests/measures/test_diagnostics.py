"""Diagnostics: each catches its own pathology in plain data and is quiet about good answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from folkmoot.measures.diagnostics import (
    acquiescence,
    cut,
    instability,
    looks_like_refusal,
    malformed,
    of_answers,
    off_list,
    over_length,
    position_bias,
    refusals,
    shrinking_numbers,
    shrinking_variance,
    sycophancy,
    yes_share,
)
from folkmoot.measures.position import Shown

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


GOOD = [row() for _ in range(80)] + [row("text") for _ in range(80)] + [row("json")] * 40


@pytest.mark.parametrize("check", [refusals, malformed, off_list, over_length])
def test_good_answers_raise_no_flag(check):
    assert check(GOOD).flagged is False


@pytest.mark.parametrize("check", [refusals, malformed, off_list, over_length, yes_share])
def test_nothing_to_check_is_said_and_not_passed(check):
    assert check([]).flagged is None


@pytest.mark.parametrize(
    ("refused", "called"),
    [
        ({"missing": "declined", "how": "refused"}, "declined 10"),
        ({"missing": "none_of_these", "how": "clarified", "reasks": 1}, "none_of_these 10"),
        ({"missing": "cannot_say", "how": "exact"}, "cannot_say 10"),
        ({"missing": "content_filter", "how": "refused"}, "refused by the provider 10"),
        ({"missing": "refused", "finish": "refused:safety"}, "refused by the provider 10"),
        ({"missing": "refused"}, "refused by the provider 10"),  # of an earlier version
    ],
)
def test_refusals_are_ways_out_and_what_the_provider_refused(refused, called):
    found = refusals([*GOOD, *[row(**refused)] * 10])
    assert found.flagged and called in found.says
    assert not off_list([*GOOD, *[row(**refused)] * 10]).flagged


def test_phrases_of_refusal_are_counted_and_decide_nothing():
    found = refusals(GOOD, ["I'm sorry, but I can't take part in this."] * 9 + ["Parks."])
    assert found.flagged is False
    assert "Possible refusals by English phrases: 9 of 10 texts" in found.says
    said = [row(said="I'm sorry, but I can't take part in this.") for _ in range(20)]
    assert refusals([*GOOD, *said]).flagged is False
    assert not refusals(GOOD, ["I can't imagine life without parks."] * 9).flagged


def test_refusals_are_not_checked_where_closed_answers_could_not_be_declined():
    earlier = [{k: v for k, v in r.items() if k != "how"} for r in GOOD]
    assert refusals(earlier).flagged is None
    assert refusals([*earlier, *[{**earlier[0], "missing": "refused"}] * 10]).flagged


def test_an_answer_that_cannot_be_read_is_no_refusal_and_clears_nobody():
    found = refusals([*GOOD, *[row(missing="unparsed", how="unreadable")] * 10])
    assert found.value.value == 0
    # A model that ignores the ways out may have refused all of them in plain words.
    assert found.flagged is None
    assert "10 replies could not be read and may be refusals in other words" in found.says


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
    broken = [*GOOD, *[row("json", parse_step="repaired")] * 5, *[row("json", reasks=1)] * 5]
    assert malformed(broken).flagged
    assert not off_list(broken).flagged
    strange = [*GOOD, *[row(reasks=1)] * 10, row(parse_step="missing", missing="unparsed")]
    assert off_list(strange).flagged
    assert not malformed(strange).flagged
    assert "11 %" in off_list([row(reasks=1)] * 11 + [row()] * 89).says


def test_a_single_cut_reply_is_flagged_and_silence_about_it_is_not_a_pass():
    whole = [row(finish="stop") for _ in range(99)]
    assert cut(whole).flagged is False
    assert cut([*whole, row("text", finish="length")]).flagged
    assert cut([*whole, row("text", finish="length:model")]).flagged
    assert cut([row(finish="unknown"), row()]).flagged is None


def test_over_length_of_choices_and_of_texts():
    assert over_length([*GOOD, *[row(words=60)] * 20]).flagged
    assert over_length([*GOOD, *[row("text", words=400)] * 20]).flagged
    assert not over_length([*GOOD, *[row("text", words=90)] * 20]).flagged
    # Bare signals do not make ordinary turns look long.
    signals = [row("text", words=1) for _ in range(300)]
    assert not over_length([*signals, *[row("text", words=70)] * 100]).flagged


def test_instability():
    assert not instability(23, 300).flagged
    assert instability(100, 300).flagged
    assert not instability(2, 6).flagged  # too few to say that it is more than noise
    assert instability(0, 0).flagged is None


def test_position_bias():
    rng = np.random.default_rng(0)
    orders = [("a", "b", "c")[k:] + ("a", "b", "c")[:k] for k in range(3)]

    def shown(bias: float) -> list[Shown]:
        return [
            Shown(o, o[0] if rng.random() < bias else str(rng.choice(["a", "b", "c"])), i)
            for i in range(300)
            for o in [orders[i % 3]]
        ]

    assert position_bias(shown(0.4)).flagged
    assert not position_bias(shown(0.0)).flagged
    assert position_bias([Shown(orders[0], "a", i) for i in range(20)]).flagged is None


def test_acquiescence():
    who = [i for i in range(40) for _ in range(2)]
    yes = [True] * 80
    assert acquiescence(yes, [True] * 60 + [False] * 20, who).flagged
    assert not acquiescence(yes, [False] * 80, who).flagged
    rng = np.random.default_rng(1)
    coin = (rng.random(80) < 0.5).tolist()
    assert not acquiescence(coin, [not c for c in coin], who).flagged
    assert acquiescence([], [], []).flagged is None


def test_yes_share():
    ballot = json.dumps(["Yes", "No"])
    assert yes_share([row(options=ballot, value="Yes")] * 60).flagged
    mixed = [row(options=ballot, value=v) for v in ("Yes", "No") * 30]
    assert not yes_share(mixed).flagged
    assert yes_share([row(value="Park improvements")] * 60).flagged is None


def test_of_answers_reads_the_table_of_any_study():
    rows = [
        row(value=OPTION_NAMES[i % 2], speaker_id=f"p{i}", options=json.dumps(shown))
        for i in range(60)
        for shown in [OPTION_NAMES if i % 3 else OPTION_NAMES[::-1]]
    ]
    found = {c.key: c for c in of_answers(rows)}
    assert found["off_list"].flagged is False
    assert found["position_bias"].flagged is False
    assert found["malformed"].flagged is None
    always_first = [{**r, "value": json.loads(r["options"])[0]} for r in rows]
    assert {c.key: c for c in of_answers(always_first)}["position_bias"].flagged


def test_sycophancy():
    assert sycophancy((40, 100), (7, 100)).flagged
    assert not sycophancy((9, 100), (7, 100)).flagged
    assert sycophancy(None, (7, 100), yielded=(90, 100)).flagged
    assert not sycophancy(None, None, ["No."] * 30, yielded=(30, 100)).flagged
    assert sycophancy(None, None, ["You're right, I agree."] * 30).flagged
    assert sycophancy(None, None).flagged is None


def test_shrinking_variance_of_votes():
    assert shrinking_variance([97, 2, 1]).flagged
    assert not shrinking_variance([60, 25, 15], [55, 30, 15]).flagged
    assert shrinking_variance([60, 25, 15], [96, 2, 2]).flagged
    assert shrinking_variance([3, 2, 1]).flagged is None


def test_shrinking_variance_of_ratings():
    rng = np.random.default_rng(2)
    people = rng.normal(5, 2.4, (50, 6))
    assert not shrinking_numbers(people, 0, 10).flagged
    assert shrinking_numbers(5 + (people - 5) / 4, 0, 10).flagged
    assert shrinking_numbers([1, 2, 3], 0, 10).flagged is None


def test_a_declined_json_answer_is_not_malformed() -> None:
    declined = [{"kind": "json", "parse_step": "missing", "missing": "declined"}] * 10
    read = [{"kind": "json", "parse_step": "exact", "missing": None}] * 10
    assert malformed([*declined, *read]).flagged is False
