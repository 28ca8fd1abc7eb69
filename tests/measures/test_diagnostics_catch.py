"""Diagnostics find each fault of the embedded respondent, and only if it is switched on.

The engine asks forty personas one questionnaire, so the checks read the same
table that a run records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import BaseModel

import folkmoot
from folkmoot import Choice, Json, Missing, Number, Session, Speaker, Study, StudyConfig
from folkmoot.measures.diagnostics import (
    Check,
    check_acquiescence,
    check_instability,
    check_position_bias,
    check_spread_of_ratings,
    check_sycophancy,
)
from folkmoot.measures.position import Shown
from folkmoot.measures.reply_checks import (
    check_malformed,
    check_off_list,
    check_over_length,
    check_refusals,
)
from folkmoot.measures.retest import Repeat
from folkmoot.provenance import quote_value
from tests.sweeps import sample_daily

PEOPLE = 40
OPTIONS = ("A covered market", "Free evening buses", "A public swimming pool")
PAIRS = (
    ("Cars should be kept out of the centre.", "Cars should be let into the centre."),
    ("The town should borrow to build.", "The town should never borrow to build."),
    ("Shops should open on Sundays.", "Shops should stay shut on Sundays."),
)
ITEMS = ("the noise at night", "the price of bread", "the state of the parks", "the buses")
JOBS = ("bus driver", "cook", "tax clerk", "violin maker", "night nurse", "forester", "roofer")


class View(BaseModel):
    opinion: str
    strength: int


async def questionnaire(session: Session) -> None:
    async def interview_resident(scope, number: str) -> None:
        order = tuple(OPTIONS[int(i)] for i in scope.rng.permutation(3))
        options = "\n".join(f"{k}. {option}" for k, option in enumerate(order, 1))
        description = (
            f"You are a {JOBS[int(number) % len(JOBS)]} who lives at number {number} of the street."
        )
        persona = quote_value(description, "persona", f"residents.card/{number}", number)
        topic = (
            f"The town decides what to build.\n\nThe options are:\n{options}\n\nStay in character."
        )
        speaker = Speaker(number, system=persona + f"\n\n{topic}")
        closing = f"Options:\n{options}\n\nRespond with ONLY the exact text of your chosen option."
        first = await scope.ask(
            speaker, f"Make your choice.\n\n{closing}", answer_type=Choice(order)
        )
        first_vote = None if isinstance(first, Missing) else first
        system_with_vote = persona + f'\n\n{topic}\n\nYou previously chose "{first_vote}".'
        speaker_with_vote = Speaker(number, system=system_with_vote)
        second = await scope.ask(
            speaker_with_vote, f"Choose once more.\n\n{closing}", answer_type=Choice(order)
        )
        other = next(option for option in order if option != first_vote)
        pressure = (
            f'Others chose "{other}". They want {other}, and {other} it shall be.\n\nNow make '
        )
        third = await scope.ask(
            speaker_with_vote,
            f"{pressure}your final choice. Respond with ONLY the exact text of your chosen option.",
            answer_type=Choice(order),
        )
        votes = {
            "first": first_vote,
            "second": second or None,
            "pushed": third or None,
            "other": other,
        }
        session_row = {"who": number, "order": list(order), **votes}
        for k, item in enumerate(ITEMS):
            prompt = f"How content are you with {item}, from 0 to 10? Reply with the number alone."
            rating = await scope.ask(speaker, prompt, answer_type=Number(0, 10))
            session_row[f"item{k}"] = None if isinstance(rating, Missing) else rating
        for k, pair in enumerate(PAIRS):
            for side, statement in zip(("pro", "con"), pair, strict=True):
                prompt = f"{statement}\n\nOptions:\n1. Agree\n2. Disagree\n\nReply with one option."
                reply = await scope.ask(speaker, prompt, answer_type=Choice(("Agree", "Disagree")))
                session_row[f"{side}{k}"] = None if isinstance(reply, Missing) else reply == "Agree"
        opinion_prompt = (
            "Give your opinion on the choice as JSON with the keys opinion and strength (1 to 5)."
        )
        await scope.ask(speaker, opinion_prompt, answer_type=Json(View))
        reason = await scope.ask(
            speaker, "In two or three sentences, why did you choose as you did?"
        )
        session_row["why"] = "" if isinstance(reason, Missing) else reason
        scope.record("votes", session_row)

    await session.map([str(number) for number in range(PEOPLE)], interview_resident)


STUDY = Study("questionnaire", "A questionnaire", StudyConfig, questionnaire)


@dataclass(frozen=True)
class Recorded:
    answers: list[dict]
    votes: pl.DataFrame


def run_and_read(folder: Path, **knobs: float) -> Recorded:
    run = folkmoot.run(STUDY, {"respondent": knobs}, model="synthetic", out=folder)
    return Recorded(run.table("answers").to_dicts(), run.table("votes"))


def count_changes(recorded: Recorded, later_vote: str) -> tuple[int, int]:
    complete = recorded.votes.filter(
        pl.col("first").is_not_null() & pl.col(later_vote).is_not_null()
    )
    return complete.filter(pl.col("first") != pl.col(later_vote)).height, complete.height


def make_retests(recorded: Recorded) -> list[Repeat]:
    return [
        Repeat(vote["who"], "vote", vote["first"], vote["second"], untouched=True)
        for vote in recorded.votes.iter_rows(named=True)
        if vote["first"] is not None and vote["second"] is not None
    ]


def list_choices(recorded: Recorded) -> list[Shown]:
    return [
        Shown(tuple(json.loads(vote["order"])), vote["first"], vote["who"])
        for vote in recorded.votes.iter_rows(named=True)
        if vote["first"]
    ]


def check_agreement(recorded: Recorded) -> Check:
    pairs = [
        (vote[f"pro{i}"], vote[f"con{i}"], vote["who"])
        for vote in recorded.votes.iter_rows(named=True)
        for i in range(len(PAIRS))
        if vote[f"pro{i}"] is not None and vote[f"con{i}"] is not None
    ]
    pro, con, participants = zip(*pairs, strict=True)
    return check_acquiescence(pro, con, participants)


CHECKS = {
    "refusals": lambda s: check_refusals(s.answers, s.votes["why"].to_list()),
    "malformed": lambda s: check_malformed(s.answers),
    "off_list": lambda s: check_off_list(s.answers),
    "over_length": lambda s: check_over_length(s.answers),
    "instability": lambda s: check_instability(make_retests(s)),
    "position_bias": lambda s: check_position_bias(list_choices(s)),
    "acquiescence": check_agreement,
    "sycophancy": lambda s: check_sycophancy(
        count_changes(s, "pushed"), count_changes(s, "second")
    ),
    "shrinking_variance": lambda s: check_spread_of_ratings(
        s.votes.select(f"item{k}" for k in range(len(ITEMS))).to_numpy().astype(float), 0, 10
    ),
}
DOSES = {
    "refusals": 0.25,
    "malformed": 0.3,
    "off_list": 0.3,
    "over_length": 0.3,
    "instability": 0.6,
    "position_bias": 2.0,
    "acquiescence": 1.0,
    "sycophancy": 2.0,
    "shrinking_variance": 0.9,
}


@pytest.fixture(scope="module")
def run_without_faults(tmp_path_factory) -> Recorded:
    return run_and_read(tmp_path_factory.mktemp("healthy") / "run")


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_does_not_fail_without_its_fault(name, run_without_faults):
    check = CHECKS[name](run_without_faults)
    assert check.verdict != "failed", check.says


@pytest.mark.parametrize("name", sample_daily(CHECKS, daily=3, part="alarms"))
def test_a_check_fails_with_its_fault(name, tmp_path):
    check = CHECKS[name](run_and_read(tmp_path / "run", **{name: DOSES[name]}))
    assert check.verdict == "failed", check.says
    assert np.isfinite(check.value.value)
