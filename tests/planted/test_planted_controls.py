"""Each control finds the fault that is planted for it, and raises few alarms where there is none.

Planted: 40 runs of a cross-pollination for each knob of the embedded respondent, 40 participants in
each of three conditions, seeds 1 to 40. At least 32 of them must raise the alarm of the control
that is made for the knob. None planted: 400 tables of control answers, seeds 1 to 400, drawn from
people who answer alike in all conditions and versions, half of them in groups whose members are
alike. At most 28 may raise an alarm of any one control, which a true rate of 5 % exceeds in one of
33 counts. Sizes and seeds were fixed before the first count, and the counts are in
docs/controls.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import folkmoot
from folkmoot.engine.settings.controls import ControlQuestion, shipped_questions
from folkmoot.kit.controls.findings import control_findings, findings_in
from folkmoot.kit.controls.replacing import UNCHANGED
from folkmoot.kit.controls.tables import (
    AS_DESIGNED,
    FACT,
    NEGATIVE,
    ORDER,
    RETEST,
    SAME_LENGTH,
    ControlRow,
)
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding

SEEDS, LEAST = 40, 32
TABLES, MOST = 400, 28
PEOPLE = 40  # participants of each condition
OPTIONS = ("Park improvements", "Youth job training", "Safer streets")
STUDY = """
study: cross_pollination
pilot_id: planted
random_seed: {seed}
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
participants_per_condition: {people}
max_clarification_exchanges: 1
personas: {{source: quota}}
respondent: {knobs}
controls: {controls}
"""
# Knob and its strength → the controls that are asked, and how the alarm begins that must be raised.
PLANTED = {
    "drift": (0.8, {"retest": False}, "User drift"),
    "persona_forgetting": (0.4, {"retest": False}, "Persona not kept: Simple passive, final"),
    "instability": (0.6, {"negative": False}, "Unreliable decision: first vote"),
    "length_bias": (
        0.6,
        {"negative": False, "retest": False, "same_length": True},
        "An effect remains with neutral texts of equal length",
    ),
    "position_bias": (
        1.0,
        {"negative": False, "retest": False, "order": True},
        "Answers depend on the order",
    ),
}


def alarms_of(findings: list[Finding]) -> list[str]:
    return [alarm for finding in findings for alarm in finding.alarms]


def alarms_of_run(folder: Path, seed: int, knob: str) -> list[str]:
    folder.mkdir()
    strength, controls, _ = PLANTED[knob]
    study = folder / "study.yaml"
    knobs = json.dumps({knob: strength})
    asked = json.dumps(controls)
    study.write_text(STUDY.format(seed=seed, people=PEOPLE, knobs=knobs, controls=asked))
    run = folkmoot.run(study, model="synthetic", out=folder / "run").folder
    return alarms_of(control_findings(run))


@pytest.mark.nightly(part="alarms")
@pytest.mark.parametrize("knob", PLANTED)
def test_each_control_finds_its_knob(knob: str, tmp_path: Path) -> None:
    wanted = PLANTED[knob][2]
    found = sum(
        any(alarm.startswith(wanted) for alarm in alarms_of_run(tmp_path / str(seed), seed, knob))
        for seed in range(1, SEEDS + 1)
    )
    print(f"{knob}: found in {found} of {SEEDS} runs")
    assert found >= LEAST


QUESTIONS = shipped_questions("en")
VOTE = ControlQuestion(id="vote", text="vote", options=OPTIONS)
AGE_QUESTION = ControlQuestion(id="age", text="age", number=(18, 90))


def null_table(seed: int) -> pl.DataFrame:
    """Control answers of 60 people in each of two conditions, before and after a treatment that
    changes nobody. With an even seed they talk in groups of five, and give three answers in ten
    as their group does."""
    rng = generator(seed, ("null controls",))
    rows: list[dict[str, object]] = []
    for condition in ("a", "b"):
        for group in range(12):
            habits = {q.id: draw(rng, q) for q in (*QUESTIONS, VOTE)}
            for person in range(5):
                id = f"{condition}{group}-{person}"
                is_grouped = seed % 2 == 0
                shared = {k: v for k, v in habits.items() if is_grouped and rng.random() < 0.3}
                unit = f"{condition}{group}" if is_grouped else id
                rows += null_person(rng, id, unit, shared)
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = {**dict.fromkeys(ControlRow.__annotations__, pl.String), "number": pl.Float64}


def null_person(
    rng: np.random.Generator, id: str, unit: str, habits: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """The answers of one person. `habits`: what the person answers as the group does."""
    own = dict(habits)

    def answer(question: ControlQuestion) -> object:
        """The person's own answer, or with one chance in ten another one."""
        if question.id not in own:
            own[question.id] = draw(rng, question)
        return own[question.id] if rng.random() < 0.9 else draw(rng, question)

    condition, age = id[0], str(draw(rng, AGE_QUESTION))
    base = {"participant_id": id, "condition": condition, "unit": unit, "address": "x"}
    for moment in ("first", "final"):
        at = {**base, "moment": moment, "decision_address": f"{moment}/{id}"}
        designed = str(answer(VOTE))
        yield {**at, "control": AS_DESIGNED, "question": "vote", "value": designed}
        for question in QUESTIONS:
            cells = as_cells(answer(question))
            yield {**at, "control": NEGATIVE, "question": question.id, **cells}
        number = float(age) + (rng.random() < 0.03)
        yield {**at, "control": FACT, "question": "age", "number": number, "expected": age}
        row = {**at, "question": "vote", "expected": designed}
        if moment == "first":
            yield {**row, "control": RETEST, "value": str(answer(VOTE))}
        yield {**row, "control": ORDER, "value": str(answer(VOTE))}
        if condition == "a" or moment == "first":
            yield {**row, "control": SAME_LENGTH, "missing": UNCHANGED}
        else:
            yield {**row, "control": SAME_LENGTH, "value": str(answer(VOTE))}


def draw(rng: np.random.Generator, question: ControlQuestion) -> object:
    if question.number is not None:
        low, high = question.number
        return float(round(low + (high - low) * rng.beta(2, 5)))
    return question.options[int(rng.integers(len(question.options)))]


def as_cells(answer: object) -> dict[str, object]:
    return {"number": answer} if isinstance(answer, float) else {"value": answer}


@pytest.mark.nightly(part="alarms")
def test_nothing_planted_raises_few_alarms() -> None:
    margins = {q.id: q.equivalence_margin for q in shipped_questions("en")}
    counts: Counter[str] = Counter()
    for seed in range(1, TABLES + 1):
        table = null_table(seed)
        options = dict.fromkeys(table["decision_address"].unique().to_list(), OPTIONS)
        alarms = alarms_of(findings_in(table, options, margins))
        counts.update({alarm.partition(":")[0] for alarm in alarms})
    print(f"of {TABLES} tables without a fault: {dict(counts)}")
    assert all(count <= MOST for count in counts.values())
