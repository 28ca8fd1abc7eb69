"""Each pathology of the embedded respondent is caught by its diagnostic, and only if switched on.

One questionnaire, put to forty personas through the engine, so that the checks read the very
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
    async def one(scope, n: str) -> None:
        order = tuple(OPTIONS[int(i)] for i in scope.rng.permutation(3))
        listed = "\n".join(f"{k}. {o}" for k, o in enumerate(order, 1))
        card = f"You are a {JOBS[int(n) % len(JOBS)]} who lives at number {n} of the street."
        persona = quote_value(card, "persona", f"residents.card/{n}", n)
        topic = (
            f"The town decides what to build.\n\nThe options are:\n{listed}\n\nStay in character."
        )
        who = Speaker(n, system=persona + f"\n\n{topic}")
        closing = f"Options:\n{listed}\n\nRespond with ONLY the exact text of your chosen option."
        first = await scope.ask(who, f"Make your choice.\n\n{closing}", answer_type=Choice(order))
        held = None if isinstance(first, Missing) else first
        told = persona + f'\n\n{topic}\n\nYou previously chose "{held}".'
        again = Speaker(n, system=told)
        second = await scope.ask(
            again, f"Choose once more.\n\n{closing}", answer_type=Choice(order)
        )
        other = next(o for o in order if o != held)
        pushed = f'Others chose "{other}". They want {other}, and {other} it shall be.\n\nNow make '
        third = await scope.ask(
            again,
            f"{pushed}your final choice. Respond with ONLY the exact text of your chosen option.",
            answer_type=Choice(order),
        )
        votes = {"first": held, "second": second or None, "pushed": third or None, "other": other}
        session_row = {"who": n, "order": list(order), **votes}
        for k, item in enumerate(ITEMS):
            prompt = f"How content are you with {item}, from 0 to 10? Reply with the number alone."
            rating = await scope.ask(who, prompt, answer_type=Number(0, 10))
            session_row[f"item{k}"] = None if isinstance(rating, Missing) else rating
        for k, pair in enumerate(PAIRS):
            for side, statement in zip(("pro", "con"), pair, strict=True):
                prompt = f"{statement}\n\nOptions:\n1. Agree\n2. Disagree\n\nReply with one option."
                said = await scope.ask(who, prompt, answer_type=Choice(("Agree", "Disagree")))
                session_row[f"{side}{k}"] = None if isinstance(said, Missing) else said == "Agree"
        ask = "Give your opinion on the choice as JSON with the keys opinion and strength (1 to 5)."
        await scope.ask(who, ask, answer_type=Json(View))
        why = await scope.ask(who, "In two or three sentences, why did you choose as you did?")
        session_row["why"] = str(why)
        scope.record("votes", session_row)

    await session.map([str(n) for n in range(PEOPLE)], one)


STUDY = Study("questionnaire", "A questionnaire", StudyConfig, questionnaire)


@dataclass(frozen=True)
class Seen:
    answers: list[dict]
    votes: pl.DataFrame


def run_and_read(folder: Path, **knobs: float) -> Seen:
    run = folkmoot.run(STUDY, {"respondent": knobs}, model="synthetic", out=folder)
    return Seen(run.table("answers").to_dicts(), run.table("votes"))


def moved(seen: Seen, to: str) -> tuple[int, int]:
    known = seen.votes.filter(pl.col("first").is_not_null() & pl.col(to).is_not_null())
    return known.filter(pl.col("first") != pl.col(to)).height, known.height


def asked_again(seen: Seen) -> list[Repeat]:
    return [
        Repeat(r["who"], "vote", r["first"], r["second"], untouched=True)
        for r in seen.votes.iter_rows(named=True)
        if r["first"] is not None and r["second"] is not None
    ]


def orders(seen: Seen) -> list[Shown]:
    return [
        Shown(tuple(json.loads(r["order"])), r["first"], r["who"])
        for r in seen.votes.iter_rows(named=True)
        if r["first"]
    ]


def agreement(seen: Seen) -> Check:
    pairs = [
        (r[f"pro{k}"], r[f"con{k}"], r["who"])
        for r in seen.votes.iter_rows(named=True)
        for k in range(len(PAIRS))
        if r[f"pro{k}"] is not None and r[f"con{k}"] is not None
    ]
    pro, con, who = zip(*pairs, strict=True)
    return check_acquiescence(pro, con, who)


CHECKS = {
    "refusals": lambda s: check_refusals(s.answers, s.votes["why"].to_list()),
    "malformed": lambda s: check_malformed(s.answers),
    "off_list": lambda s: check_off_list(s.answers),
    "over_length": lambda s: check_over_length(s.answers),
    "instability": lambda s: check_instability(asked_again(s)),
    "position_bias": lambda s: check_position_bias(orders(s)),
    "acquiescence": agreement,
    "sycophancy": lambda s: check_sycophancy(moved(s, "pushed"), moved(s, "second")),
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
def healthy(tmp_path_factory) -> Seen:
    return run_and_read(tmp_path_factory.mktemp("healthy") / "run")


@pytest.mark.parametrize("name", CHECKS)
def test_quiet_without_a_pathology(name, healthy):
    found = CHECKS[name](healthy)
    assert found.verdict != "failed", found.says


@pytest.mark.parametrize("name", CHECKS)
def test_caught_when_switched_on(name, tmp_path):
    found = CHECKS[name](run_and_read(tmp_path / "run", **{name: DOSES[name]}))
    assert found.verdict == "failed", found.says
    assert np.isfinite(found.value.value)
